#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_matrix.py - what transfer-sim matrix says of pairs, worked out a second time

Which bytes of which rank land where, pair by pair: from axis strings, block tables and
the shares of heads, all in numpy.  Runs of bytes that follow each other on both sides
are counted for the operations of scope rfc.  Of dumps the digest that every pair ends
with is that of the dump, by kvd1.py.
"""
import random

import numpy as np

import oracle
from kvd1 import attention_pool, text
from oracle import FULL, Dump, kvtool, preset_offsets, tap

LAYOUTS = ("nhd", "hnd", "blshc", "bhlsc", "lhbsc", "blhsc")


# ---- one pair ------------------------------------------------------------------


def heads_of(rank, tp, heads):
    """The heads that a rank holds; with more ranks than heads neighbours share one."""
    if tp <= heads:
        n = heads // tp
        return list(range(rank * n, rank * n + n))
    return [rank * heads // tp]


def giver(head, rank, src_tp, dst_tp, heads):
    """The rank of the source that gives a head: at the same place among its holders."""
    holders = [r for r in range(src_tp) if head in heads_of(r, src_tp, heads)]
    takers = [r for r in range(dst_tp) if head in heads_of(r, dst_tp, heads)]
    return holders[takers.index(rank) * len(holders) // len(takers)]


class Side:
    """Byte addresses of one rank: [K, L, T, H, D] of its heads."""

    def __init__(self, cache, layout, block_size, tp):
        tokens = np.arange(cache["tokens"])
        blocks = -(-cache["tokens"] // block_size)
        held = len(heads_of(0, tp, cache["heads"]))
        dims = {"L": cache["layers"], "B": blocks + blocks // 16 + 1, "S": block_size,
                "H": held, "K": cache["k"], "D": cache["d"]}
        at = preset_offsets(layout, dims, 2)
        self.block = tokens // block_size
        self.at = at[:, :, tokens // block_size, tokens % block_size] * 2
        self.nbytes = 2 * int(np.prod(list(dims.values()))) * tp


def runs(src, dst):
    """How many runs of elements of 2 bytes are contiguous on both sides."""
    if not src.size:
        return 0
    order = np.argsort(src, axis=None)
    a, b = src.ravel()[order], dst.ravel()[order]
    return 1 + int(np.sum((np.diff(a) != 2) | (np.diff(b) != 2)))


def expected(cache, src, dst):
    """(operations, bytes that arrive, bytes of the destination that do not change)"""
    ops = nbytes = 0
    a, b = Side(cache, *src), Side(cache, *dst)
    live = np.arange(cache["tokens"]) >= cache["first"]
    for rank in range(dst[2]):
        own = heads_of(rank, dst[2], cache["heads"])
        by = {}
        for head in own:
            by.setdefault(giver(head, rank, src[2], dst[2], cache["heads"]),
                          []).append(head)
        for peer, heads in by.items():
            there = heads_of(peer, src[2], cache["heads"])
            x = a.at[:, :, :, [there.index(h) for h in heads]]
            y = b.at[:, :, :, [own.index(h) for h in heads]]
            pairs = set(zip(a.block[live], b.block[live]))
            for p, q in pairs:
                t = live & (a.block == p) & (b.block == q)
                ops += runs(x[:, :, t], y[:, :, t])
                nbytes += 2 * x[:, :, t].size
    return ops, nbytes, b.nbytes - nbytes


def side_of(row, which):
    return (row[f"{which}_layout"], row[f"{which}_block_size"], row[f"{which}_tp"])


def matrix(*args):
    r = kvtool("transfer-sim", "matrix", "--json", *args)
    return r, r.json if r.out else {"rows": []}


# ---- models -----------------------------------------------------------------------


def random_cache(rng, kind):
    cache = {"layers": rng.randint(1, 3), "tokens": rng.randint(20, 130), "first": 0,
             "k": 2, "heads": rng.choice([1, 2, 4, 8]), "d": rng.choice([2, 4, 8])}
    words = f"layers={cache['layers']}"
    if kind == "mla":
        cache.update(k=1, heads=1, d=rng.choice([6, 16]))
        return cache, f"mla:{words},latent={cache['d']}"
    words += f",heads={cache['heads']},head-dim={cache['d']}"
    if kind == "gqa":
        return cache, f"gqa:{words}"
    window = rng.randint(2, cache["tokens"] + 20)
    cache["first"] = max(0, cache["tokens"] - (window - 1))
    return cache, f"sliding-window:{words},window={window}"


def check_model(rng, kind):
    cache, spec = random_cache(rng, kind)
    sizes = rng.sample([4, 8, 12, 16, 24, 32, 48], 2)
    layouts = rng.sample(LAYOUTS, 2)
    src = f"tp=1,2,4,block-size={sizes[0]},{sizes[1]},layout={','.join(layouts)}"
    r, o = matrix(f"--spec={spec}", "-t", cache["tokens"], f"--src={src}",
                  "--try-layers=9")
    name = f"{spec} of {cache['tokens']} tokens, {src}"
    if not tap.ok(r.code == 0 and o["pairs"] == o["equal"] == len(o["rows"]) == 144,
                  f"{name}: all pairs are equal", r):
        return
    sides = {side_of(row, w) for row in o["rows"] for w in ("src", "dst")}
    tap.equal(len({(side_of(row, "src"), side_of(row, "dst")) for row in o["rows"]}),
              len(sides) ** 2, f"{name}: each source with each destination")
    for row in o["rows"] if FULL else rng.sample(o["rows"], 8):
        a, b = side_of(row, "src"), side_of(row, "dst")
        tap.equal((row["ops"], row["bytes_compared"], row["bytes_untouched"]),
                  expected(cache, a, b), f"{spec} -t {cache['tokens']}: {a} to {b}")
        tap.equal(row["bytes"], row["bytes_compared"], "all that is planned is tried")


def check_layers(rng):
    """Plans are of all layers, whatever number is carried out."""
    cache, spec = random_cache(rng, "gqa")
    cache["layers"] = 7
    spec = spec.replace(spec.split(",")[0], "gqa:layers=7")
    r, o = matrix(f"--spec={spec}", "-t", cache["tokens"], "--src=tp=2,nhd,hnd,bs8,bs12")
    tap.ok(r.code == 0 and o["tried_layers"] == 2, f"{spec}: two layers are tried", r)
    for row in o["rows"]:
        ops, nbytes, _ = expected(cache, side_of(row, "src"), side_of(row, "dst"))
        tap.equal((row["ops"], row["bytes"], row["bytes_compared"] * 7),
                  (ops, nbytes, nbytes * 2), f"{spec}: {side_of(row, 'dst')}")


# ---- dumps ---------------------------------------------------------------------------


def check_dump(rng, path, folders):
    sidecar = next(oracle.sidecars(path, folders))
    dump = Dump(path, sidecar)
    layouts = ["LBSC", "BLSC"] if dump.latent else rng.sample(LAYOUTS, 3)
    r, o = matrix(f"--src=tp=1,2,{','.join(layouts)},block-size=12,16", dump.path)
    want = text("tokens", attention_pool(dump).expected("tokens", "whole")[""])
    n = (2 * len(layouts) * 2) ** 2
    tap.ok(r.code == 0 and o["equal"] == n, f"{dump.name}: {n} pairs are equal", r)
    tap.equal({row["digest"] for row in o["rows"]}, {want}, f"{dump.name}: its digest")
    tap.equal(o["tokens"], sum(dump.ntokens.values()), f"{dump.name}: its tokens")


# ---- what must fail --------------------------------------------------------------------


def check_spoilt(rng):
    """One byte of one operation is noticed in every pair that has so many."""
    cache, spec = random_cache(rng, "gqa")
    r, o = matrix(f"--spec={spec}", "-t", cache["tokens"], "--corrupt-op=5",
                  "--src=tp=1,2,nhd,hnd,bs8,bs12", "--try-layers=9")
    tap.equal(r.code, 1, f"{spec}: a spoilt byte ends with status 1")
    tap.equal({row["verdict"]: row["ops"] > 5 for row in o["rows"]}.get("differs"), True,
              f"{spec}: it differs where there is such an operation")
    for row in o["rows"]:
        if (row["verdict"] == "differs") != (row["ops"] > 5):
            tap.ok(False, f"{spec}: {row}")
    tap.equal(o["differ"] + o["equal"], o["pairs"], f"{spec}: counted")


def main():
    rng = random.Random(31)
    for kind in ("gqa", "mla", "window"):
        for _ in range(12 if FULL else 3):
            check_model(rng, kind)
    check_layers(rng)
    check_dump(rng, "s260k", ["paged_bs16"])
    check_dump(rng, "mla144", ["paged_bs16"])
    check_spoilt(rng)


oracle.run(main)
