#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_odd.py - what describe --stats and doctor find in a dump that has nothing beside it

The measures (how much pairs of elements turn with the position, the spread of the median
channel, numbers at the end of their type) are worked out a second time in numpy.  Then
faults are planted into real caches and must be found, with the place where they are; and
of everything that engines have written, and of the caches as they were, nothing may be said.
KVT_FULL=1 plants more.
"""
import os
import shlex

import numpy as np

import oracle
from oracle import DATA, E4M3, FULL, SHARE, kvtool, read_json, round_to, tap, values, write_json

ENGINES = os.path.join(os.path.dirname(DATA), "engines")
BASES = ("s260k", "gqa64")


# ---- dumps ------------------------------------------------------------------

class Cache:
    """Bits of a paged cache in [L, B, S, H, K, D], and what its manifest says."""

    def __init__(self, model):
        self.path = f"{DATA}/{model}/paged_bs16/packed_nhd.bf16.npy"
        self.bits = np.load(self.path)
        self.side = read_json(self.path[:-4] + ".json")
        self.tables = self.side["block_table"]

    def live(self):
        """[B, S]: which slots hold a token of a request."""
        _, nblocks, slots = self.bits.shape[:3]
        out = np.zeros((nblocks, slots), bool)
        for name, table in self.tables.items():
            tokens = self.side["num_tokens"][name]
            for i, block in enumerate(table):
                out[block, :max(0, min(slots, tokens - i * slots))] = True
        return out

    def write(self, path, bits, dtype="bfloat16"):
        np.save(path, bits)
        side = dict(self.side, file=os.path.basename(path), dtype=dtype,
                    npy_dtype="<u2" if bits.dtype == np.uint16 else "|u1")
        side.pop("address_map", None)
        write_json(path[:-4] + ".json", side)
        return path


def to_fp8(x):
    table = E4M3[:0x7f]
    at = np.clip(np.searchsorted(table, np.abs(x)), 1, len(table) - 1)
    at -= np.abs(x) - table[at - 1] < table[at] - np.abs(x)
    return (at + 128 * (x < 0)).astype(np.uint8)


def strange(path, *options):
    """Of each group, what is said; None if there are no numbers to look at."""
    r = kvtool("describe", "--stats", "--json", *options, path)
    if r.code:
        return None if r.code == 4 or "has no values" in r.err else r
    return [g["strange"] for g in r.json["groups"]]


def verdicts(said):
    return [f for g in said for f in g["findings"] if f["sure"] != "perhaps"]


# ---- the measures -----------------------------------------------------------

def turning(x, pair):
    """x [B, S, D] of a head, pair [B, S-1]: are both slots live?  By where pairs are."""
    dim = x.shape[-1]
    a, b = x[:, :-1][pair], x[:, 1:][pair]
    low = np.arange(0, dim - 1, 2)
    pairs = {1: (low, low + 1)}
    for part in (2, 4, 8):
        if dim % part == 0 and dim // part > 1:
            pairs[dim // part] = (np.arange(dim // part), np.arange(dim // part) + dim // part)
    out = {}
    for apart, (i, j) in pairs.items():
        turn = a[:, i] * b[:, j] - a[:, j] * b[:, i]
        size = np.sqrt((turn ** 2).sum(0))
        some = size > 0
        z = turn.sum(0)[some] / size[some]
        out[apart] = z.sum() / np.sqrt(len(z)) if len(z) else 0.0
    return out


def unit(x):
    """x [tokens, D]"""
    return np.log(max(np.sort(x.std(0))[x.shape[1] // 2], 1e-30))


def check_measures(cache, name):
    x, live = values(cache.bits, "bfloat16"), cache.live()
    nl, _, _, nh, nk, _ = x.shape
    said = strange(cache.path)[0]
    pair = live[:, 1:] & live[:, :-1]
    turns = {}
    for l in range(nl):
        for k in range(nk):
            for h in range(nh):
                for apart, z in turning(x[l, :, :, h, k], pair).items():
                    turns.setdefault(apart, np.zeros((nl, nk, nh)))[l, k, h] = z
    total = {a: np.maximum(z.sum(2) / np.sqrt(nh), 0).max(1).sum() for a, z in turns.items()}
    best = max(total, key=total.get)
    units = [unit(x[l][live][:, h, k]) for l in range(nl) for k in range(nk) for h in range(nh)]
    tap.equal(said["turns_with"], best, f"{name}: which elements turn together")
    tap.equal(said["slots"], int(live.sum()), f"{name}: slots that count")
    tap.ok(np.allclose(said["turning"], turns[best].ravel(), rtol=1e-9, atol=1e-9),
           f"{name}: how much they turn")
    tap.ok(np.allclose(said["unit"], units, rtol=1e-9, atol=1e-9), f"{name}: spreads")


# ---- faults -----------------------------------------------------------------

def ranges(cache, rng):
    """Heads of a rank: (first, how many), of two ranks or four."""
    nh = cache.bits.shape[3]
    size = nh // int(rng.choice([r for r in (2, 4) if nh % r == 0]))
    return int(rng.integers(nh // size)) * size, size


def swap_layer(cache, rng):
    bits, l = cache.bits.copy(), int(rng.integers(cache.bits.shape[0]))
    bits[l] = bits[l, :, :, :, ::-1]
    return bits, "swapped-kv", f"group=g0,layer={l}"


def swap_all(cache, rng):
    return cache.bits[:, :, :, :, ::-1].copy(), "swapped-kv", "group=g0"


def swap_rank(cache, rng):
    bits, (h, n) = cache.bits.copy(), ranges(cache, rng)
    bits[:, :, :, h:h + n] = bits[:, :, :, h:h + n, ::-1]
    return bits, "swapped-kv", f"group=g0,head={h}"


def factor(rng, least):
    return float(rng.uniform(least, 64)) ** rng.choice([-1, 1])


def scale_layer(cache, rng):
    x = values(cache.bits, "bfloat16")
    l, k = int(rng.integers(1, x.shape[0] - 1)), int(rng.integers(2))
    x[l, ..., k, :] *= factor(rng, 8)
    return round_to(x, "bfloat16"), "scale", f"group=g0,layer={l}"


def scale_end(cache, rng):
    x = values(cache.bits, "bfloat16")
    l, k = int(rng.choice([0, x.shape[0] - 1])), int(rng.integers(2))
    x[l, ..., k, :] *= factor(rng, 24)
    return round_to(x, "bfloat16"), "scale", f"group=g0,layer={l}"


def scale_rank(cache, rng):
    x, (h, n) = values(cache.bits, "bfloat16"), ranges(cache, rng)
    k = int(rng.integers(2))
    x[:, :, :, h:h + n, k] *= factor(rng, 12)
    # of two halves either may be the wrong one
    first = 0 if 2 * n == x.shape[3] else h
    return round_to(x, "bfloat16"), "scale", f"group=g0,head={first}"


def two_blocks(cache, rng, requests=2):
    """Two full blocks of requests that do not stand for the same entry."""
    slots = cache.bits.shape[2]
    full = [(r, i, b) for r, t in cache.tables.items() for i, b in enumerate(t)
            if (i + 1) * slots <= cache.side["num_tokens"][r]]
    while True:
        a, b = (full[i] for i in rng.choice(len(full), 2, replace=False))
        if a[1] != b[1] and a[2] != b[2] and (a[0] == b[0]) == (requests == 1):
            return a[2], b[2]


def copy_block(cache, rng):
    bits, (a, b) = cache.bits.copy(), two_blocks(cache, rng)
    bits[:, b] = bits[:, a]
    return bits, "twice", f"group=g0,block={max(a, b)}"


def copy_block_within(cache, rng):
    bits, (a, b) = cache.bits.copy(), two_blocks(cache, rng, 1)
    bits[:, b] = bits[:, a]
    return bits, "twice", f"group=g0,block={max(a, b)}"


def copy_block_of_layer(cache, rng):
    bits, (a, b) = cache.bits.copy(), two_blocks(cache, rng)
    l = int(rng.integers(bits.shape[0]))
    bits[l, b] = bits[l, a]
    return bits, "twice", f"group=g0,block={max(a, b)}"


def copy_heads(cache, rng):
    bits, nh = cache.bits.copy(), cache.bits.shape[3]
    bits[:, :, :, nh // 2:] = bits[:, :, :, :nh // 2]
    return bits, "twice", f"group=g0,head={nh // 2}"


def copy_layer(cache, rng):
    bits = cache.bits.copy()
    a, b = sorted(rng.choice(bits.shape[0], 2, replace=False))
    bits[b] = bits[a]
    return bits, "twice", f"group=g0,layer={b}"


def keys_as_values(cache, rng):
    bits, l = cache.bits.copy(), int(rng.integers(cache.bits.shape[0]))
    bits[l, ..., 1, :] = bits[l, ..., 0, :]
    return bits, "twice", f"group=g0,layer={l}"


def cut_off(cache, rng):
    x = values(cache.bits, "bfloat16")
    most = np.quantile(np.abs(x[:, cache.live()]), rng.uniform(0.9, 0.995))
    return to_fp8(x * 448 / most), "cut-off", "group=g0"


FAULTS = (swap_layer, swap_all, swap_rank, scale_layer, scale_end, scale_rank, copy_block,
          copy_block_within, copy_block_of_layer, copy_heads, copy_layer, keys_as_values, cut_off)


def plant(folder, cache, name, count):
    rng = np.random.default_rng(35)
    for fault in FAULTS:
        missed = []
        for i in range(count):
            bits, kind, at = fault(cache, rng)
            path = cache.write(os.path.join(folder, "planted.npy"), bits,
                               "bfloat16" if bits.dtype == np.uint16 else "float8_e4m3fn")
            found = verdicts(strange(path))
            if (kind, at) not in [(f["name"], f["at"]) for f in found] or \
                    any(f["name"] != kind for f in found):
                missed.append((i, at, [(f["name"], f["at"]) for f in found]))
        tap.ok(not missed, f"{name}: {fault.__name__}, {count} planted", missed)


def check_fp8(folder, cache, name):
    """A type's largest number is no news where the scale has room for all."""
    x = values(cache.bits, "bfloat16")
    bits = to_fp8(x * 448 / np.abs(x[:, cache.live()]).max())
    said = strange(cache.write(os.path.join(folder, "sound.npy"), bits, "float8_e4m3fn"))
    seen = bits[:, cache.live()] & 0x7f
    tap.equal((said[0]["elements"], said[0]["largest"], said[0]["next_to_largest"]),
              (seen.size, int((seen == 0x7e).sum()), int((seen == 0x7d).sum())),
              f"{name} in fp8: the largest number is counted")
    tap.equal(said[0]["findings"], [], f"{name} in fp8: nothing is strange")


def one_nan(cache, rng):
    bits, at = cache.bits.copy(), np.argwhere(cache.live())
    block, slot = at[rng.integers(len(at))]
    bits[rng.integers(bits.shape[0]), block, slot, rng.integers(bits.shape[3]),
         rng.integers(2), rng.integers(bits.shape[5])] = rng.choice([0x7fc0, 0x7f80, 0xff80])
    return bits


def zero_heads(cache, rng):
    bits, (h, n) = cache.bits.copy(), ranges(cache, rng)
    bits[:, :, :, h:h + n] = 0
    return bits


def zero_keys_or_values(cache, rng):
    bits = cache.bits.copy()
    bits[..., rng.integers(2), :] = 0
    return bits


def zero_layer(cache, rng):
    bits = cache.bits.copy()
    bits[rng.integers(bits.shape[0])] = 0
    return bits


def check_doctor(folder, cache, name, count):
    """What fsck finds is a verdict of doctor, too, as is all that is strange."""
    rng = np.random.default_rng(5)
    for make in (one_nan, zero_heads, zero_keys_or_values, zero_layer, swap_layer, copy_block):
        missed = []
        for i in range(count):
            made = make(cache, rng)
            path = cache.write(os.path.join(folder, "wrong.npy"),
                               made[0] if isinstance(made, tuple) else made)
            r = kvtool("doctor", "--json", path)
            if r.code != 1 or r.json["verdict"] != "wrong":
                missed.append((i, str(r)))
        tap.ok(not missed, f"{name}: {make.__name__} is wrong, {count} planted", missed)


# ---- what is no fault --------------------------------------------------------

def same_prefix(cache, rng):
    """Two requests that begin with the same text, and share no block."""
    bits, (a, b, *_) = cache.bits.copy(), cache.tables.values()
    for i in range(int(rng.integers(1, len(b) - 1))):
        bits[:, b[i]] = bits[:, a[i]]
    return bits


def unused_copy(cache, rng):
    """A block that no request has any more, as copy on write leaves it."""
    bits, used = cache.bits.copy(), set(sum(cache.tables.values(), []))
    free = [b for b in range(1, bits.shape[1]) if b not in used]
    if free:
        bits[:, rng.choice(free)] = bits[:, rng.choice(sorted(used))]
    return bits


def a_little_larger(cache, rng):
    x = values(cache.bits, "bfloat16")
    x[int(rng.integers(x.shape[0])), ..., int(rng.integers(2)), :] *= rng.uniform(0.5, 2)
    return round_to(x, "bfloat16")


def heads_in_another_order(cache, rng):
    return cache.bits[:, :, :, rng.permutation(cache.bits.shape[3])].copy()


def noise(cache, rng):
    """No structure at all: nothing can be told of it."""
    return round_to(rng.normal(size=cache.bits.shape) * rng.uniform(0.01, 10), "bfloat16")


def drawn_scales(cache, rng):
    """Each head has a spread of its own, and a few channels are far larger."""
    nl, _, _, nh, nk, dim = cache.bits.shape
    x = rng.normal(size=cache.bits.shape)
    x *= np.exp(0.25 * rng.normal(size=(nl, 1, 1, nh, nk, 1)))
    x *= np.where(rng.random((nl, 1, 1, nh, nk, dim)) < 0.05, 30, 1)
    return round_to(x, "bfloat16")


def turning_at_random(cache, rng):
    """Keys that are not rotated: they and values turn, each head in a way of its own."""
    nl, nblocks, slots, nh, nk, dim = cache.bits.shape
    mix = rng.normal(size=(nl, nh, nk, dim, dim))
    mix *= 0.95 / np.abs(np.linalg.eigvals(mix)).max(-1)[..., None, None]
    x = np.empty((nblocks * slots, nl, nh, nk, dim))
    x[0] = 0
    for i in range(1, len(x)):
        x[i] = np.einsum("lhkde,lhke->lhkd", mix, x[i - 1]) + rng.normal(size=x[0].shape)
    x = x.reshape(nblocks, slots, nl, nh, nk, dim).transpose(2, 0, 1, 3, 4, 5)
    return round_to(x, "bfloat16")


SOUND = (same_prefix, unused_copy, a_little_larger, heads_in_another_order, noise, drawn_scales,
         turning_at_random)


def check_quiet(folder, cache, name, count):
    rng = np.random.default_rng(2)
    for make in SOUND:
        wrong = []
        for i in range(count):
            path = cache.write(os.path.join(folder, "quiet.npy"), make(cache, rng))
            if verdicts(strange(path)):
                wrong.append((i, verdicts(strange(path))))
        tap.ok(not wrong, f"{name}: {make.__name__} is no fault, {count} tried", wrong)


def check_no_tables(folder, cache, name):
    """Without tables nobody knows whether two requests begin alike."""
    rng = np.random.default_rng(1)
    bits, kind, at = copy_block(cache, rng)
    path = os.path.join(folder, "tables.npy")
    side, cache.side = cache.side, {k: v for k, v in cache.side.items() if k not in
                                    ("block_table", "num_tokens", "free_blocks", "null_block")}
    found = strange(cache.write(path, bits))[0]["findings"]
    cache.side = side
    tap.ok((kind, at, "perhaps") in [(f["name"], f["at"], f["sure"]) for f in found],
           f"{name}: of a pool without tables it is perhaps", found)


# ---- sound dumps ------------------------------------------------------------

def sound_dumps():
    with open(f"{ENGINES}/samples.tsv") as f:
        for line in f.read().splitlines()[1:]:
            path, options, held = line.split("\t")[:3]
            if not held.startswith("refused"):
                yield f"{ENGINES}/{path}", [] if options == "-" else shlex.split(options)
    for folder, _, files in sorted(os.walk(DATA)):
        for name in sorted(files):
            if name.endswith(".npy") and os.path.exists(f"{folder}/{name[:-4]}.json"):
                yield f"{folder}/{name}", []


def check_sound():
    measured, wrong = 0, []
    for path, options in sound_dumps():
        r = kvtool("doctor", *options, path)
        if r.code and "content.rotation" in r.out:		# what the file does not say is told
            r = kvtool("doctor", *options, "--set=rotation=hadamard", path)
        if r.code:
            wrong.append(str(r))
        said = strange(path, *options)
        measured += isinstance(said, list) and any(g["elements"] or "turning" in g for g in said)
    tap.ok(not wrong, "sound dumps: doctor finds nothing wrong", wrong)
    tap.ok(measured >= 100, f"numbers of {measured} of them were looked at", measured)


def main(folder):
    for name in BASES:
        cache = Cache(name)
        check_measures(cache, name)
        check_fp8(folder, cache, name)
        plant(folder, cache, name, 25 if FULL else 1 + 4 // SHARE)
        check_doctor(folder, cache, name, 25 if FULL else 4 // SHARE)
        check_quiet(folder, cache, name, 25 if FULL else 4 // SHARE)
        check_no_tables(folder, cache, name)
    check_sound()


oracle.run(main)
