# SPDX-License-Identifier: Apache-2.0
"""
cause_model.py - causes of wrong caches, made in numpy on small dumps

A cache is an array [L, B, S, H, K, D] of bits with tables of requests.  A cause is a
function of such an array, of all of it or of the part that it is limited to, which is
an array like it: that of a rank, a layer, keys alone.  Where several names predict the
same bytes, all of them are right: they are found by what moved, not by who moved it.
Nothing here knows how kvtool does it, nor uses kvtool mutate.
"""

import numpy as np

from oracle import E4M3, small_float, values, write_json

L, B, S, H, K, D = range(6)
FLOATS = {"float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16,
          "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


# ---- types ------------------------------------------------------------------

# Infinities are left out, as NaN are.
FP8 = {"float8_e4m3fn": E4M3,
       "float8_e5m2": small_float(5, 2, 15, [n for n in range(256) if n & 0x7c == 0x7c])}


def decode(bits, dtype):
    return FP8[dtype][bits] if dtype in FP8 else values(bits, dtype)


def encode(x, dtype):
    """To nearest, halves to even; what is too large becomes the largest."""
    x = np.atleast_1d(x)
    if dtype in FP8:
        table = FP8[dtype][:128]
        table = table[~np.isnan(table)]
        i = np.searchsorted((table[1:] + table[:-1]) / 2, np.abs(x), side="left")
        half = np.abs(x) == np.append((table[1:] + table[:-1]) / 2, -1)[i]
        i = i + (half & (i % 2 == 1))
        return (i + np.where(np.signbit(x), 128, 0)).astype(np.uint8)
    if dtype == "bfloat16":
        u = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
        u = (u + 0x7fff + (u >> 16 & 1)) >> 16
        return np.where(u & 0x7fff == 0x7f80, u - 1, u).astype(np.uint16)
    if dtype == "float16":
        return np.clip(x, -65504, 65504).astype(np.float16).view(np.uint16)
    return np.asarray(x, np.float32).view(np.uint32)


LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "float16": 65504.0}


# ---- dumps ------------------------------------------------------------------

class Cache:
    """Bits [L, B, S, H, K, D], and what a manifest says of them."""

    def __init__(self, bits, dtype, tables, tokens, layout="nhd", parts=()):
        self.bits, self.dtype, self.layout, self.parts = bits, dtype, layout, parts
        self.tables, self.tokens = tables, tokens

    def like(self, bits):
        return Cache(bits, self.dtype, self.tables, self.tokens, self.layout, self.parts)

    def live(self):
        """[B, S]: slots that hold a token."""
        n = self.bits.shape
        out = np.zeros((n[B], n[S]), bool)
        for r, table in self.tables.items():
            t = np.arange(self.tokens[r])
            out[np.array(table)[t // n[S]], t % n[S]] = True
        return out

    def moved(self, rng):
        """The same tokens in a pool where other blocks hold them."""
        n = self.bits.shape
        to = np.concatenate(([0], 1 + rng.permutation(n[B] - 1)))
        bits = np.empty_like(self.bits)
        bits[:, to] = self.bits
        return Cache(bits, self.dtype,
                     {r: [int(to[b]) for b in t] for r, t in self.tables.items()},
                     self.tokens, self.layout, self.parts), to

    def write(self, path):
        order = {"nhd": (L, B, S, H, K, D), "hnd": (L, B, H, S, K, D),
                 "blocks-first-nhd": (L, B, K, S, H, D), "cross-nhd": (B, L, K, S, H, D),
                 "kv-first-nhd": (L, K, B, S, H, D), "mla": (L, B, S, H, K, D)}
        n = self.bits.shape
        sizes = {"layers": n[L], "num_blocks": n[B], "block_size": n[S],
                 "num_kv_heads": n[H], "content" if self.parts else "head_dim": n[D]}
        side = {"file": path.rsplit("/", 1)[-1], "layout": self.layout,
                "dtype": self.dtype, "sizes": sizes, "block_table": self.tables,
                "num_tokens": self.tokens, "null_block": 0}
        if self.parts:
            side["content"] = [list(p) for p in self.parts]
        np.save(path, np.ascontiguousarray(self.bits.transpose(order[self.layout])))
        write_json(path[:-4] + ".json", side)


SHAPES = (   # layers, blocks, slots, heads, kv, dim
    ("mha", (4, 22, 16, 8, 2, 8)), ("gqa", (3, 26, 8, 4, 2, 16)),
    ("narrow", (6, 24, 4, 8, 2, 8)), ("mla", (4, 20, 16, 1, 1, 24)),
    ("mqa", (5, 20, 16, 1, 2, 16)), ("two", (4, 24, 8, 2, 2, 16)))
LAYOUTS = ("nhd", "hnd", "blocks-first-nhd", "cross-nhd", "kv-first-nhd")
TYPES = ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2")


def make(rng, shape=None, dtype=None):
    """A pool as an engine leaves it: requests here and there, stale blocks, a null block."""
    name, n = SHAPES[rng.integers(len(SHAPES))] if shape is None else \
        next(s for s in SHAPES if s[0] == shape)
    dtype = dtype or TYPES[rng.integers(len(TYPES))]
    x = rng.standard_normal(n)
    x *= np.exp(rng.normal(0, .4, (n[L], 1, 1, n[H], n[K], 1)))
    x[..., 0, :] += rng.normal(0, 1.5, (n[L], 1, 1, n[H], n[D]))
    bits = encode(x, dtype)
    bits[:, 0] = 0
    blocks = 1 + rng.permutation(n[B] - 1)
    bits[:, blocks[-2:]] = 0		# never used
    tables, tokens, used = {}, {}, 0
    for r, count in zip("ABC", (int(rng.integers(6, 9)), int(rng.integers(4, 6)),
                                int(rng.integers(1, 4)))):
        tables[r] = [int(b) for b in blocks[used:used + count]]
        used += count
        tokens[r] = int((count - 1) * n[S] + rng.integers(1, n[S] + 1))
    layout = "mla" if name == "mla" else LAYOUTS[rng.integers(len(LAYOUTS))]
    parts = (("kv_c", n[D] - 8), ("k_pe", 8)) if name == "mla" else ()
    return Cache(bits, dtype, tables, tokens, layout, parts)


# ---- who moved what ---------------------------------------------------------

def groups(n):
    """(ranks, heads of each) of all ways to divide heads among ranks."""
    return [(tp, n // tp) for tp in range(2, n + 1) if n % tp == 0]


def names_of_ranks(source):
    """Do whole ranks stand where others should?"""
    n, out = len(source), set()
    for tp, each in groups(n):
        ranks = source.reshape(tp, each)
        first = ranks[:, 0] // each
        if np.array_equal(ranks, first[:, None] * each + np.arange(each)):
            moved = np.flatnonzero(first != np.arange(tp))
            if len(moved) == 2 and first[moved[0]] == moved[1] and \
               first[moved[1]] == moved[0]:
                out.add("swap-ranks")
            if len(moved) == 1:
                out.add("copy-rank")
    return out


def dealt(n):
    """Heads that are dealt to ranks like cards, of each number of ranks."""
    for tp, each in groups(n):
        if each > 1:
            yield np.arange(n).reshape(each, tp).T.reshape(-1)


def names_of_move(source, what):
    """All names of 'place i has what was at source[i]'; what: heads or layers."""
    n, here = len(source), np.arange(len(source))
    moved = np.flatnonzero(source != here)
    is_permuted = len(set(source)) == n
    out = set()
    if is_permuted and len(moved) == 2:
        out.add(f"swap-{what}")
    if any(np.array_equal(source, (here + by) % n) for by in range(1, n)):
        out.add(f"rotate-{what}")
    if not is_permuted and len(moved) == 1:
        out.add("copy-head" if what == "heads" else "wrong-layer")
    if what == "heads":
        out |= names_of_ranks(np.asarray(source))
        if any(np.array_equal(source, m) for m in dealt(n)) or \
           (n == 2 and list(source) == [0, 0]):	# more ranks than heads
            out.add("rank-map")
    if not out and is_permuted:
        out.add(f"permute-{what}")
    return out


# ---- causes -----------------------------------------------------------------
#
# Each is given what it strikes, and returns the bits as they become, the names that are
# right and arguments that must not be said otherwise; or None where it cannot happen.

def derange(rng, n):
    """Nothing stays, and it is no rotation, which has a name of its own, if it can be."""
    while True:
        p = rng.permutation(n)
        turned = (p - np.arange(n)) % n
        if np.all(turned) and (n < 4 or len(set(turned)) > 1):
            return p


def move(c, axis, source, what):
    return np.take(c.bits, source, axis), names_of_move(source, what), {}


def swapped(rng, n):
    a, b = sorted(rng.choice(n, 2, replace=False))
    source = np.arange(n)
    source[[a, b]] = b, a
    return source, {"a": int(a), "b": int(b)}


def shuffled(rng, n):
    """Some of them, three at least, change places with each other."""
    source = np.arange(n)
    which = rng.choice(n, int(rng.integers(3, n + 1)), replace=False)
    source[which] = which[derange(rng, len(which))]
    return source


def copied(rng, n):
    to, source = rng.choice(n, 2, replace=False)
    order = np.arange(n)
    order[to] = source
    return order, int(to), int(source)


def along(axis, what):
    """What can happen to heads or layers, by name."""
    def swap(c, rng):
        n = c.bits.shape[axis]
        if n < 2:
            return None
        source, args = swapped(rng, n)
        return move(c, axis, source, what)[:2] + (args,)

    def rotate(c, rng):
        n = c.bits.shape[axis]
        return None if n < 3 else \
            move(c, axis, np.roll(np.arange(n), int(rng.integers(1, n))), what)

    def permute(c, rng):
        n = c.bits.shape[axis]
        return None if n < 3 else move(c, axis, shuffled(rng, n), what)

    def copy(c, rng):
        n = c.bits.shape[axis]
        if n < 2:
            return None
        order, to, source = copied(rng, n)
        return move(c, axis, order, what)[:2] + ({"to": to, "layer": to, "from": source},)

    made = swap, rotate, permute, copy
    for f in made:
        f.__name__ = f"{f.__name__}_{what}"
    return made


def swap_ranks(c, rng):
    sizes = [g for g in groups(c.bits.shape[H]) if g[1] > 1]
    if not sizes:
        return None
    tp, each = sizes[rng.integers(len(sizes))]
    source = swapped(rng, tp)[0]
    return move(c, H, (source[:, None] * each + np.arange(each)).reshape(-1), "heads")


def copy_rank(c, rng):
    sizes = [g for g in groups(c.bits.shape[H]) if g[1] > 1]
    if not sizes:
        return None
    tp, each = sizes[rng.integers(len(sizes))]
    source = copied(rng, tp)[0]
    return move(c, H, (source[:, None] * each + np.arange(each)).reshape(-1), "heads")


def rank_map(c, rng):
    maps = list(dealt(c.bits.shape[H]))
    return move(c, H, maps[rng.integers(len(maps))], "heads") if maps else None


# ---- blocks

def in_use(c):
    return np.array(sorted({b for t in c.tables.values() for b in t}))


def put_blocks(c, to, source, names, args=None):
    bits = c.bits.copy()
    bits[:, to] = c.bits[:, source]
    return bits, names, args or {}


def swap_blocks(c, rng):
    a, b = sorted(int(x) for x in rng.choice(in_use(c), 2, replace=False))
    return put_blocks(c, [a, b], [b, a], {"swap-blocks"}, {"a": a, "b": b})


def permute_blocks(c, rng):
    used = in_use(c)
    which = rng.choice(used, int(rng.integers(3, min(len(used), 9) + 1)), replace=False)
    return put_blocks(c, which, which[derange(rng, len(which))], {"permute-blocks"})


def permute_table(c, rng):
    """All of the longest request."""
    table = np.array(max(c.tables.values(), key=len))
    order = derange(rng, len(table))
    return put_blocks(c, table, table[order], {"permute-blocks"})


def shift_table(c, rng):
    """Entries of one table, or of all, are those of n further on; the rest stays."""
    by = int(rng.integers(1, 3)) * (1 if rng.random() < .5 else -1)
    bits, n = c.bits.copy(), 0
    for table in c.tables.values():
        for i in range(len(table)):
            if 0 <= i - by < len(table):
                bits[:, table[i]] = c.bits[:, table[i - by]]
                n += 1
    if n < 2:
        return None
    names = {"shift-table", "shift-tokens"} | ({"shift-blocks"} if abs(by) == 1 else set())
    return bits, names, {}


def shift_pool(c, rng):
    by = 1 if rng.random() < .5 else -1
    bits = c.bits.copy()
    here = np.arange(1, c.bits.shape[B])
    here = here[(here - by >= 1) & (here - by < c.bits.shape[B])]
    bits[:, here] = c.bits[:, here - by]
    return bits, {"shift-blocks"}, {"by": by}


def swap_requests(c, rng):
    if len(c.tables) < 2:
        return None
    a, b = rng.choice(sorted(c.tables), 2, replace=False)
    n = min(len(c.tables[a]), len(c.tables[b]))
    one, two = c.tables[a][:n], c.tables[b][:n]
    return put_blocks(c, one + two, two + one,
                      {"swap-requests"} | ({"swap-blocks"} if n == 1 else set()))


def stale_block(c, rng):
    to, source = (int(x) for x in rng.choice(in_use(c), 2, replace=False))
    return put_blocks(c, [to], [source], {"stale-block"}, {"block": to, "from": source})


def stale_blocks(c, rng):
    used = in_use(c)
    if len(used) < 4:
        return None
    n = int(rng.integers(2, min(len(used) // 2, 5) + 1))
    which = rng.choice(used, 2 * n, replace=False)
    return put_blocks(c, which[:n], which[n:], {"stale-blocks"})


# ---- tokens

def shift_tokens(c, rng):
    slots = c.bits.shape[S]
    by = int(rng.choice([1, 2, 3, 5, slots - 1, slots + 3]))
    by *= 1 if rng.random() < .5 else -1
    start = 0 if rng.random() < .4 else int(rng.integers(1, 2 * slots))
    bits, moved = c.bits.copy(), 0
    for r, table in c.tables.items():
        t = np.arange(start + max(by, 0), c.tokens[r] + min(by, 0))
        table = np.array(table)
        if len(t):
            bits[:, table[t // slots], t % slots] = \
                c.bits[:, table[(t - by) // slots], (t - by) % slots]
        moved += len(t)
    if moved < 2 * abs(by):
        return None
    names = {"shift-tokens"}
    if by % slots == 0:
        names |= {"shift-table", "shift-blocks"}
    return bits, names, {"by": by}


# ---- pages

def again(c, written, read):
    memory = c.bits.transpose(written).reshape([c.bits.shape[a] for a in read])
    return memory.transpose([read.index(a) for a in range(6)])


def heads_slots(c, rng):
    if c.bits.shape[H] < 2:
        return None
    orders = [L, B, K, S, H, D], [L, B, K, H, S, D]
    way = int(rng.integers(2))
    return again(c, orders[way], orders[1 - way]), {"swap-heads-slots"}, {}


def swap_kv(c, rng):
    if c.bits.shape[K] != 2:
        return None
    return c.bits[:, :, :, :, ::-1], {"swap-kv"}, {}


def split_kv(c, rng):
    if c.bits.shape[K] != 2:
        return None
    orders = [L, B, S, H, K, D], [L, B, K, S, H, D]
    way = int(rng.integers(2))
    return again(c, orders[way], orders[1 - way]), {"split-kv"}, {}


def x_packing(c, rng):
    n, x = c.bits.shape, 16 // c.bits.itemsize
    if c.parts or n[D] % x or n[D] == x:
        return None
    t = c.bits.reshape(*n[:D], n[D] // x, x)	# L B S H K d x
    t = t.transpose(0, 1, 3, 4, 5, 2, 6).reshape(n[L], n[B], n[H], n[K], n[S], n[D])
    return t.transpose(0, 1, 4, 2, 3, 5), {"x-packing"}, {}


def rope_pairs(c, rng):
    bits, n = c.bits.copy(), c.bits.shape
    r = c.parts[-1][1] if c.parts else n[D]
    part = bits[:, :, :, :, 0, n[D] - r:]
    part[...] = np.concatenate((part[..., 0::2], part[..., 1::2]), -1)
    return bits, {"rope-pairs"}, {}


def byte_order(c, rng):
    return (c.bits.byteswap(), {"byte-order"}, {}) if c.bits.itemsize > 1 else None


# ---- values

def zero_block(c, rng):
    bits = c.bits.copy()
    bits[:, rng.choice(in_use(c), int(rng.integers(1, 4)), replace=False)] = 0
    return bits, {"zero-block"}, {}


def zero_all(c, rng):
    return np.zeros_like(c.bits), {"zero-block"}, {}


def zero_kv(c, rng):
    if c.bits.shape[K] != 2:
        return None
    bits, kv = c.bits.copy(), int(rng.integers(2))
    bits[:, :, :, :, kv] = 0
    return bits, {"zero-kv"}, {"kv": kv}


def scale(c, rng):
    f = float(rng.choice([.25, .3, .5, .7, 1.5, 2, 3.]))
    x = decode(c.bits, c.dtype) * f
    if np.abs(x).max() > LARGEST.get(c.dtype, np.inf):
        return None
    return encode(x, c.dtype), {"scale"}, {"factor": f}


def source_of(c, rng):
    """Values of which these bits may be what rounding left."""
    step = {"float32": 1e-7, "float16": 9e-4, "bfloat16": 7e-3, "float8_e4m3fn": .11,
            "float8_e5m2": .2}[c.dtype]
    x = decode(c.bits, c.dtype)
    near = x * (1 + rng.uniform(-.5, .5, x.shape) * step)
    return np.where(encode(near, c.dtype).reshape(x.shape) == c.bits, near, x)


def scale_source(c, rng):
    """Both were rounded, from one source: this one and that times a factor."""
    f = float(rng.choice([.25, .3, .5, .7, 1.5, 4, 3.]))
    x = source_of(c, rng) * f
    if np.abs(x).max() > LARGEST.get(c.dtype, np.inf):
        return None
    return encode(x, c.dtype), {"scale"}, {"factor": f}


def saturate_source(c, rng):
    return saturate(c, rng, source_of(c, rng)) if c.dtype in LARGEST else None


def saturate(c, rng, x=None):
    """Multiplied, and clipped at the largest of the type."""
    if c.dtype not in LARGEST:
        return None
    most, x = LARGEST[c.dtype], decode(c.bits, c.dtype) if x is None else x
    f = float(2 ** np.floor(np.log2(most / np.quantile(np.abs(x), .9))))
    bits = encode(np.clip(x * f, -most, most), c.dtype)
    return bits, {"saturate"}, {"factor": f}


def nan(c, rng):
    at = {"float32": 0x7fc00000, "float16": 0x7e00, "bfloat16": 0x7fc0}
    bits = c.bits.copy()
    bits[:, rng.choice(in_use(c), int(rng.integers(1, 4)), replace=False)] = \
        at.get(c.dtype, 0x7f)
    return bits, {"nan"}, {}


def flip_bits(c, rng):
    bits, used = c.bits.copy(), in_use(c)
    for _ in range(int(rng.integers(1, 9))):
        n = c.bits.shape
        at = tuple(int(rng.integers(m)) for m in n)
        at = (at[0], int(rng.choice(used))) + at[2:]
        bits[at] ^= np.asarray(1 << int(rng.integers(3, 8 * bits.itemsize)), bits.dtype)
    return bits, {"flip-bits"}, {}


swap_heads, rotate_heads, permute_heads, copy_head = along(H, "heads")
swap_layers, rotate_layers, permute_layers, wrong_layer = along(L, "layers")

# A cause, and what it can be limited to.
CAUSES = (
    (swap_blocks, "heads layers kv"), (permute_blocks, "heads layers kv"),
    (permute_table, "heads layers kv"), (shift_table, "heads layers kv requests"),
    (shift_pool, "heads layers kv"), (swap_requests, "heads layers kv"),
    (stale_block, "heads layers kv"), (stale_blocks, "heads layers kv"),
    (swap_layers, "heads kv requests"), (rotate_layers, "heads kv requests"),
    (permute_layers, "heads kv requests"), (wrong_layer, "heads kv requests"),
    (swap_heads, "layers kv requests"), (rotate_heads, "heads layers kv requests"),
    (permute_heads, "layers kv requests"), (copy_head, "layers kv requests"),
    (rank_map, "heads layers kv requests"), (swap_ranks, "layers kv requests"),
    (copy_rank, "layers kv requests"), (shift_tokens, "heads layers kv requests"),
    (heads_slots, "heads layers kv requests"), (swap_kv, "heads layers requests"),
    (split_kv, "heads layers requests"), (x_packing, "heads layers kv requests"),
    (rope_pairs, "heads layers requests"), (byte_order, "heads layers kv requests"),
    (zero_block, "heads layers kv"), (zero_all, "heads layers kv requests"),
    (zero_kv, "heads layers requests"), (scale, "heads layers kv requests"),
    (saturate, "heads layers kv requests"),
    (scale_source, "heads layers kv requests"),
    (saturate_source, "heads layers kv requests"), (nan, "heads layers kv"),
    (flip_bits, ""),
)


# ---- limits -----------------------------------------------------------------

class Planted:
    """A cache with a cause in it, and what is right to say of it."""

    def __init__(self, cache, bits, accepted, args):
        self.cache, self.bits, self.accepted, self.args = cache, bits, accepted, args

    def differs(self, other=None):
        """[L, B, S, H, K, D] of live elements."""
        live = self.cache.live()[None, :, :, None, None, None]
        other = self.cache.bits if other is None else other
        return (self.bits != other) & live

    def axes(self):
        """What differs, by the names of a limit: the ids on each axis."""
        d = self.differs()
        slots = d.any((L, H, K, D))
        def one(a):
            return set(np.flatnonzero(d.any(tuple(x for x in range(6) if x != a)))
                       .tolist())
        requests = {r for r, t in self.cache.tables.items()
                    if any(slots[b].any() for b in t)}
        return {"layers": one(L), "heads": one(H), "kv": one(K), "blocks": one(B),
                "requests": requests}


def box_of(c, limit, rng):
    """The part that a cause is limited to: an index of the bits, and which ids."""
    n = c.bits.shape
    if limit == "heads":
        tps = [tp for tp in (2, 4) if n[H] % tp == 0 and n[H] > 1]
        if not tps:
            return None
        each = n[H] // int(rng.choice(tps))
        first = each * int(rng.integers(n[H] // each))
        return (slice(None),) * 3 + (slice(first, first + each),)
    if limit == "layers":
        first = int(rng.integers(n[L]))
        return (slice(first, first + 1),)
    if limit == "kv":
        if n[K] != 2:
            return None
        first = int(rng.integers(2))
        return (slice(None),) * 4 + (slice(first, first + 1),)
    return ()


AXIS_OF = {"heads": H, "layers": L, "kv": K}


def moved_args(args, limit, box, cause):
    """Arguments that count along the axis of the limit begin with its first."""
    if limit not in AXIS_OF or not args:
        return args
    start = box[-1].start
    counted = {"heads": ("a", "b", "to", "from"), "layers": (), "kv": ("kv",)}[limit]
    along_heads = cause in (swap_heads, copy_head)
    return {k: v + start if k in counted and (along_heads or k == "kv") else v
            for k, v in args.items()}


def plant(c, cause, limit, rng):
    """Planted, or None where this cannot happen to this cache."""
    sub, box, request = c, (), None
    if limit == "requests":
        request = str(rng.choice(sorted(c.tables)))
        sub = Cache(c.bits, c.dtype, {request: c.tables[request]}, c.tokens, c.layout,
                    c.parts)
    elif limit:
        box = box_of(c, limit, rng)
        if box is None:
            return None
        sub = c.like(c.bits[box])
    made = cause(sub, rng)
    if made is None:
        return None
    part, names, args = made
    bits = c.bits.copy()
    if request:
        bits[:, c.tables[request]] = part[:, c.tables[request]]
    else:
        bits[box] = part
    bits[:, 0] = c.bits[:, 0]
    accepted = [(n, limit) for n in names]
    if limit == "heads" and cause in (rotate_heads, rank_map):
        whole, start = np.arange(c.bits.shape[H]), box[-1].start
        whole[box[-1]] = start + np.array([
            next(g for g in range(sub.bits.shape[H])
                 if np.array_equal(part[:, 1:, :, h], sub.bits[:, 1:, :, g]))
            for h in range(sub.bits.shape[H])])
        accepted += [(n, None) for n in names_of_move(whole, "heads")]
    if limit == "kv" and cause in (zero_block, zero_all):
        accepted.append(("zero-kv", None))
    return Planted(c, bits, accepted, moved_args(args, limit, box, cause))
