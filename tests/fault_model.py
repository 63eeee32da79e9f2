# SPDX-License-Identifier: Apache-2.0
"""
fault_model.py - what each fault of kvtool mutate does, said in numpy

A cache is an array [L, B, S, H, K, D] of bits.  A prediction is such an array,
which of its elements are known, and which axes tell apart the parts that a fault
hits or spares.  Nothing here knows how kvtool does it.
"""
import numpy as np

from oracle import values

L, B, S, H, K, D = range(6)
PAGE = (L, B)


class Cache:
    """Bits, what is live, and where the elements are in memory."""

    def __init__(self, bits, dtype, kind, live, tables, offsets, null=0, parts=()):
        self.bits, self.dtype, self.kind = bits, dtype, kind
        self.live = np.broadcast_to(
            live.reshape((1,) + live.shape + (1, 1, 1)), bits.shape)
        self.tables, self.offsets, self.null = tables, offsets, null
        self.parts = parts			# lengths of x, B, C, or of latent, RoPE
        self.n = bits.shape
        self.predictions = list(predict_all(self))

    def tokens(self):
        return self.kind in ("attention", "mla")


# ---- elements taken from elsewhere ------------------------------------------

def heads_of_modulo(heads, tp):
    """By rank: who thinks that rank r has heads r, r + tp, ... or r % heads."""
    if tp < heads:
        return [h for r in range(tp) for h in range(r, heads, tp)]
    first = [h * tp // heads for h in range(heads)]
    return [r % heads for r in first]


def read_as(memory, written, read):
    """Memory with axes in the order 'written', taken for the order 'read'."""
    shape = {a: memory.shape[a] for a in written}
    flat = memory.transpose(written).reshape(-1)
    again = flat.reshape([shape[a] for a in read])
    back = [read.index(a) for a in sorted(read)]
    return again.transpose(back)


def sizes_of_ranks(heads):
    for tp in range(2, 8 * heads + 1):
        more = tp // heads
        if (tp < heads and heads % tp == 0) or \
           (tp > heads and tp % heads == 0 and more & (more - 1) == 0):
            if heads_of_modulo(heads, tp) != list(range(heads)):
                yield tp


def packed(a, x, back):
    """[S][D] <-> [D/x][S][x] of one head's keys or values: a[..., S, D]."""
    lead, (s, d) = a.shape[:-2], a.shape[-2:]
    if not back:
        split = a.reshape(*lead, s, d // x, x)
        return np.moveaxis(split, -2, -3).reshape(*lead, s, d)
    split = a.reshape(*lead, d // x, s, x)
    return np.moveaxis(split, -3, -2).reshape(*lead, s, d)


def straddled(parts, tp):
    """Channels of the whole as ranks' shares side by side have them."""
    out = []
    for rank in range(tp):
        start = 0
        for length in parts:
            each = length // tp
            out += range(start + rank * each, start + (rank + 1) * each)
            start += length
    return out


def by_heads(c):
    A, n = c.bits, c.n[H]
    part = (L, B, S, K)
    for a in range(n):
        for b in range(n):
            m = list(range(n))
            if a < b:
                m[a], m[b] = b, a
                yield "swap-heads", {"a": a, "b": b}, A[:, :, :, m], True, part
            if a != b:
                m = list(range(n))
                m[a] = b
                yield "copy-head", {"to": a, "from": b}, A[:, :, :, m], True, part
    for tp in sizes_of_ranks(n):
        yield ("rank-map", {"tp": tp}, A[:, :, :, heads_of_modulo(n, tp)], True, part)


def by_pages(c):
    A, n = c.bits, c.n
    if c.tokens() and n[S] > 1 and n[H] > 1:
        orders = [L, B, K, S, H, D], [L, B, K, H, S, D]
        for way in (0, 1):
            yield ("swap-heads-slots", {"way": way},
                   read_as(A, orders[way], orders[1 - way]), True, (L, B, K))
    if n[K] == 2:
        yield "swap-kv", {}, A[:, :, :, :, ::-1], True, (L, B, S, H)
        for rows, names in enumerate(([S, H], [H, S], [S])):
            if rows and (n[S] == 1 or n[H] == 1):
                continue
            outer = [L, B] + ([H] if rows == 2 else [])
            orders = outer + names + [K, D], outer + [K] + names + [D]
            for way in (0, 1):
                yield ("split-kv", {"way": way, "rows": rows},
                       read_as(A, orders[way], orders[1 - way]), True, PAGE)
    if n[K] == 2 and n[S] > 1:
        yield from by_packs(c)


def by_packs(c):
    A, d = c.bits, c.n[D]
    for x in (x for x in range(1, d) if d % x == 0):
        for way in (0, 1):
            for kv, which in ((0, [0]), (1, [1]), (2, [0, 1])):
                P = A.copy()
                rows = P[:, :, :, :, which].transpose(L, B, H, K, S, D)
                P[:, :, :, :, which] = packed(rows, x, back=bool(way)) \
                    .transpose(0, 1, 4, 2, 3, 5)
                yield ("x-packing", {"way": way, "x": x, "kv": kv}, P, True, (L, B, H, K))


def by_rotation(c):
    A, d = c.bits, c.n[D]
    if not c.tokens():
        return
    if c.kind == "mla":
        sizes = [c.parts[-1]]
    else:
        sizes = [r for r in range(4, d + 1, 2) if d % r == 0]
    for r in sizes:
        start = d - r if c.kind == "mla" else 0
        for way in (0, 1):
            if r == 4 and way:
                continue
            P = A.copy()
            keys, out = A[:, :, :, :, 0, start:start + r], P[:, :, :, :, 0,
                                                             start:start + r]
            if way == 0:
                out[..., 0::2], out[..., 1::2] = keys[..., :r // 2], keys[..., r // 2:]
            else:
                out[..., :r // 2], out[..., r // 2:] = keys[..., 0::2], keys[..., 1::2]
            yield ("rope-pairs", {"way": way, "rotary": r}, P, True, (L, B, S, H, K))


def by_channels(c):
    A, n = c.bits, c.n
    if c.kind != "conv":
        return
    orders = [L, B, H, K, S, D], [L, B, H, K, D, S]
    for way in (0, 1):
        yield ("conv-order", {"way": way}, read_as(A, orders[way], orders[1 - way]),
               True, PAGE)
    for tp in range(2, min(n[D], 256) + 1):
        if len(c.parts) > 1 and all(p % tp == 0 for p in c.parts):
            m = straddled(c.parts, tp)
            back = np.argsort(m)
            for way, order in enumerate((m, back)):
                yield ("conv-parts", {"way": way, "tp": tp}, A[..., order], True,
                       (L, B, S))


# ---- places -----------------------------------------------------------------

def beside(c, step):
    """{block: the one before or after it}; None where requests disagree."""
    out = {}
    for table in c.tables.values():
        for i, b in enumerate(table):
            j = i + step
            there = table[j] if 0 <= j < len(table) else -1
            out[b] = there if out.get(b, there) == there else None
    return out


def by_tokens(c):
    n = c.n
    if not c.tokens():
        return
    live = c.live[0, :, :, 0, 0, 0]
    near = {-1: beside(c, -1), 1: beside(c, 1)}
    for by in (by for by in range(-64, 65) if by and abs(by) <= n[S] * n[B]):
        P, known = c.bits.copy(), np.zeros(n, bool)
        step = -1 if by > 0 else 1
        for b in range(n[B]):
            for s in range(n[S]):
                source, t = b, s - by
                while not 0 <= t < n[S] and source is not None and source >= 0:
                    source, t = near[step].get(source, -1), t - step * n[S]
                if source is None or source < 0 or not live[source, t]:
                    continue
                P[:, b, s], known[:, b, s] = c.bits[:, source, t], True
        yield "shift-tokens", {"by": by, "from": 0}, P, known, (L, B, S, K)


def by_blocks(c):
    n = c.n
    for by in (-1, 1):
        for of in (0, 1):
            P, known = c.bits.copy(), np.zeros(n, bool)
            near = beside(c, -by)
            for b in range(n[B]):
                source = near.get(b, -1) if of else b - by
                if source is not None and 0 <= source < n[B]:
                    P[:, b], known[:, b] = c.bits[:, source], True
            yield "shift-blocks", {"by": by, "of": of}, P, known, (L, B, K)


def by_layers(c):
    for layer in range(c.n[L]):
        for source in range(c.n[L]):
            if source != layer:
                P = c.bits.copy()
                P[layer] = c.bits[source]
                yield ("wrong-layer", {"layer": layer, "from": source}, P, True,
                       (L, B, K))


def by_padding(c):
    n = c.n
    page = int(np.prod(n[2:]))
    first = c.offsets.reshape(n[0], n[1], -1)
    order = np.arange(n[0] * n[1]).reshape(n[0], n[1]) * page
    if not c.tokens() or not (np.array_equal(first.min(2), order) and
                              np.array_equal(first.max(2), order + page - 1)):
        return
    elem = c.bits.itemsize
    memory = np.empty(c.bits.size, c.bits.dtype)
    memory[c.offsets] = c.bits
    memory = memory.reshape(n[0], n[1], page)
    for pad in range(elem, page * elem + 1, elem):
        if (page * elem + pad) % 32:
            continue
        wide = [(0, 0), (0, 0), (0, pad // elem)]
        there = np.pad(np.ones(memory.shape, bool), wide)
        stream = np.pad(memory, wide).reshape(n[0], -1)[:, :n[1] * page]
        there = there.reshape(n[0], -1)[:, :n[1] * page]
        yield ("padding", {"pad": pad}, stream.reshape(-1)[c.offsets],
               there.reshape(-1)[c.offsets], PAGE)


def by_kernel(c):
    """Block i is read at i of a kernel's blocks; behind the pool is nothing known."""
    n = c.n
    page = int(np.prod(n[2:]))
    first = c.offsets.reshape(n[0], n[1], -1)
    order = np.arange(n[0] * n[1]).reshape(n[0], n[1]) * page
    if not c.tokens() or n[B] < 2 or n[S] < 2 or not (
            np.array_equal(first.min(2), order) and
            np.array_equal(first.max(2), order + page - 1)):
        return
    memory = np.empty(c.bits.size, c.bits.dtype)
    memory[c.offsets] = c.bits
    inside = c.offsets % page
    layer = np.arange(n[0]).reshape(-1, 1, 1, 1, 1, 1) * n[1] * page
    block = np.arange(n[1]).reshape(1, -1, 1, 1, 1, 1)
    for ratio in range(2, n[S] + 1):
        if n[S] % ratio == 0:
            yield ("kernel-stride", {"ratio": ratio},
                   memory[layer + block * (page // ratio) + inside], True, PAGE)


def predict_all(c):
    for rows in (by_heads, by_pages, by_rotation, by_channels, by_tokens, by_blocks,
                 by_layers, by_padding, by_kernel):
        yield from rows(c)
    yield "zero-block", {}, np.zeros_like(c.bits), True, (L, B)
    for kv in range(2 if c.n[K] == 2 else 0):
        half = c.bits.copy()
        half[:, :, :, :, kv] = 0
        yield "zero-kv", {"kv": kv}, half, True, (L, B, K)
    if c.bits.itemsize > 1:
        yield "byte-order", {}, c.bits.byteswap(), True, (L, B, S, H, K)


# ---- which of them explain --------------------------------------------------

def sample(differs):
    """A few elements that differ, which refute most predictions."""
    at = np.flatnonzero(differs)
    return np.unravel_index(at[::max(1, len(at) // 50)], differs.shape)


def explains(c, suspect, differs, spots, P, known, part):
    """Every part that differs is wholly as predicted, as far as is known."""
    known = np.broadcast_to(known, c.n)
    if np.any(known[spots] & (P[spots] != suspect[spots])):
        return False
    hit = differs.any(axis=tuple(a for a in range(6) if a not in part), keepdims=True)
    if np.any(hit & c.live & known & (P != suspect)):
        return False
    explained = int((differs & known).sum())
    return explained > 0 and int((differs & ~known).sum()) <= explained


def stale(c, suspect, differs):
    """Exactly one block differs, and it is another one, which is not empty."""
    blocks = np.flatnonzero(differs.any(axis=(L, S, H, K, D)))
    layer = np.flatnonzero(differs.any(axis=(B, S, H, K, D)))[0]
    if len(blocks) > 1:
        return
    b = blocks[0]
    hit = differs[:, b].any(axis=(1, 2, 4), keepdims=True) & c.live[:, b]
    for source in range(c.n[B]):
        if source != b and c.bits[layer, source].any() and \
           c.live[0, b, 0, 0, 0, 0] and \
           not np.any(hit & (c.bits[:, source] != suspect[:, b])):
            yield {"block": int(b), "from": source}


def zero_tail(c, suspect, differs):
    first = c.offsets[differs].min()
    P = np.where(c.offsets >= first, 0, c.bits)
    return bool(np.all((P == suspect) | ~c.live))


def flips(c, suspect, differs):
    """Few, one bit each, and not the two lowest alone, which may be rounding."""
    bits = (c.bits ^ suspect)[differs]
    one = (bits & (bits - 1)) == 0
    return bool(one.all() and len(bits) <= 64 and
                len(bits) <= int(c.live.sum()) // 16 and bits.max() >= 4)


def span_of_factors(a, b, c):
    """Factors that round a to b, per element: from and to."""
    top = np.array(1 << (8 * b.itemsize - 1), b.dtype)
    size = (b & ~top).astype(b.dtype)
    sign = np.where(b & top, -1.0, 1.0)
    here = values(size, c.dtype)
    with np.errstate(over="ignore"):
        above = values((size + 1).astype(b.dtype), c.dtype)
        below = np.where(size > 0, values(np.where(size > 0, size - 1, 0)
                                          .astype(b.dtype), c.dtype), -above)
    x = values(a, c.dtype) * sign
    with np.errstate(divide="ignore"):
        ends = np.stack([(here + below) / 2 / x, (here + above) / 2 / x])
    return ends.min(0) - 1e-12 * abs(ends.min(0)), \
        ends.max(0) + 1e-12 * abs(ends.max(0))


LARGEST = {"bfloat16": 0x7f7f, "float16": 0x7bff, "float32": 0x7f7fffff}


def factors(c, suspect, differs):
    """Of each layer's keys and values: least, most, rows that tell; elements cut."""
    rows = differs.any(D, keepdims=True) & c.live
    out, cut = [], 0
    largest = LARGEST[c.dtype]
    for l in range(c.n[L]):
        for k in range(c.n[K]):
            here = rows[l, :, :, :, k] & c.live[l, :, :, :, k]
            a, b = c.bits[l, :, :, :, k][here], suspect[l, :, :, :, k][here]
            zero = values(a, c.dtype) == 0
            if not len(a):
                continue
            if np.any(~np.isfinite(values(b, c.dtype))) or \
               np.any(values(b[zero], c.dtype) != 0) or zero.all():
                return None, 0
            a, b = a[~zero], b[~zero]
            low, high = span_of_factors(a, b, c)
            at = (b & largest) == largest		# may have been any larger one
            same = np.sign(values(a, c.dtype)) == np.sign(values(b, c.dtype))
            low, high = np.where(at & ~same, -np.inf, low), \
                np.where(at & same, np.inf, high)
            cut += int((at & (a != b)).sum())
            out.append((low.max(), high.min(), len(a)))
    return out, cut


def by_factor(c, suspect, differs, many_cut):
    spans, cut = factors(c, suspect, differs)
    return bool(spans) and (cut >= 8) == many_cut and \
        sum(n for _, _, n in spans) >= 8 and \
        all(low <= high and low * high > 0 and not low <= 1 <= high and n >= 4
            for low, high, n in spans)


def scaled(c, suspect, differs):
    """One factor for the keys, and one for the values, of each layer."""
    return by_factor(c, suspect, differs, False)


def saturated(c, suspect, differs):
    """The same, but many became the largest that there is."""
    return by_factor(c, suspect, differs, True)


def no_numbers(c, suspect, differs):
    """All that differs is not finite now, and was; that is no flipped bit."""
    bits = (c.bits ^ suspect)[differs]
    return bool(np.isfinite(values(c.bits[differs], c.dtype)).all() and
                not np.isfinite(values(suspect[differs], c.dtype)).any() and
                (bits & (bits - 1)).any())


def explanations(c, suspect):
    """[(name, arguments)] of all faults that make 'suspect' of the cache."""
    differs = (c.bits != suspect) & c.live
    spots = sample(differs)
    out = [(name, args) for name, args, P, known, part in c.predictions
           if explains(c, suspect, differs, spots, P, known, part)]
    # what shifts by whole blocks is called a shift of blocks
    out = [(name, args) for name, args in out
           if name != "shift-tokens" or args["by"] % c.n[S]]
    out += [("stale-block", args) for args in stale(c, suspect, differs)]
    for name, rule in (("zero-tail", zero_tail), ("flip-bits", flips),
                       ("scale", scaled), ("saturate", saturated),
                       ("nan", no_numbers)):
        if rule(c, suspect, differs):
            out.append((name, {}))
    return out
