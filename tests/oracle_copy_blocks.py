#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_copy_blocks.py - what kvtool copy-blocks writes, against numpy

out[:, :, dst] = from[:, :, src], with cells that come from a sidecar's address
map and go where the axis string of the layout says.  So that no byte of one dump
can stand for one of the other, FROM is random where it is not another real dump.
"""
import json
import os
import random

import numpy as np

import oracle
from kvd1 import MambaDump, conv_cells
from oracle import FULL, array_bytes, kvtool, place, refused, tap, write_json


# ---- two dumps --------------------------------------------------------------

class Twin:
    """A dump with the sizes of a real one and random bytes, in any layout."""

    def __init__(self, d, layout, seed, path, **said):
        self.layout, self.itemsize, self.path = layout, d.itemsize, path
        rng = np.random.default_rng(seed)
        self.cells = rng.integers(0, 1 << 8 * d.itemsize, d.cells.shape,
                                  dtype=np.uint64).astype(d.cells.dtype)
        bits = np.frombuffer(place(self.cells, layout, d.itemsize), d.cells.dtype)
        np.save(path, bits)
        side = {k: v for k, v in d.side.items() if k not in
                ("address_map", "npy_dtype", "file_shape", "file_axes")}
        side.update(file=os.path.basename(path), layout=layout, **said)
        write_json(path[:-4] + ".json", side)
        self.tables = side["block_table"]


def list_of(pairs):
    """A list for --blocks; neighbours on both sides become ranges."""
    runs = []
    for s, d in pairs:
        if runs and s == runs[-1][0] + runs[-1][2] and d == runs[-1][1] + runs[-1][2]:
            runs[-1][2] += 1
        else:
            runs.append([s, d, 1])
    return ",".join(f"{s}:{d}" if n == 1 else f"{s}-{s + n - 1}:{d}-{d + n - 1}"
                    for s, d, n in runs)


def some_pairs(rng, nfrom, nbase):
    """Sources may come again, destinations may not."""
    n = rng.randrange(1, nbase + 1)
    if rng.random() < 0.4:
        n = min(n, nfrom)
        s, d = rng.randrange(nfrom - n + 1), rng.randrange(nbase - n + 1)
        return [(s + i, d + i) for i in range(n)]
    return [(rng.randrange(nfrom), d) for d in rng.sample(range(nbase), n)]


def copied(base, other, pairs):
    out = base.copy()
    for s, d in pairs:
        out[:, :, d] = other[:, :, s]
    return out


def judge(name, r, out, want, base, count):
    """Bytes of the pool, the count, and that all else is the base's."""
    if not tap.ok(r.code == 0, f"{name}: exit 0", r):
        return
    said = json.loads(r.out)
    tap.equal((said["verified"], said["groups"][0]["blocks_copied"]), (True, count),
              f"{name}: verified, blocks copied")
    flat = out
    if not out.endswith(".npy"):
        flat = out + ".npy"
        v = kvtool("describe", "--verify", out)
        c = kvtool("convert", "-f", out, flat)
        tap.ok(v.code == 0 and c.code == 0, f"{name}: its cells", f"{v}{c}")
    tap.ok(array_bytes(flat) == place(want, base.layout, base.itemsize),
           f"{name}: every byte", r)


def requests_of(path):
    said = kvtool("describe", "--json", "--block-tables", path).json
    return said["requests"], said["groups"][0].get("block_ids")


# ---- real dumps as the base -------------------------------------------------

LAYOUTS = ("nhd", "hnd", "bhlsc", "rocm-paged", "kv-first-nhd", "cpu-vec")


def check_dumps(dumps, tmp):
    rng = random.Random(1)
    for n, d in enumerate(dumps):
        layouts = ("mla", "mla-cross") if d.latent else LAYOUTS
        for layout in layouts if FULL else (d.layout, layouts[n % len(layouts)]):
            other = Twin(d, layout, n, f"{tmp}/from.npy")
            pairs = some_pairs(rng, d.dims["B"], d.dims["B"])
            name = f"{d.name} with blocks of {layout}"
            r = kvtool("copy-blocks", "-f", "--json", "--verify", "--blocks",
                       list_of(pairs), "-o", f"{tmp}/out.npy", other.path, d.path)
            judge(name, r, f"{tmp}/out.npy", copied(d.cells, other.cells, pairs), d,
                  len(pairs))
            if r.code == 0:
                tap.equal(requests_of(f"{tmp}/out.npy"), requests_of(d.path),
                          f"{name}: requests are the base's")
        # and the other way round
        back = [(b, a) for a, b in {s: (s, b) for s, b in pairs}.values()]
        r = kvtool("copy-blocks", "-f", "--json", "--verify", "--blocks", list_of(back),
                   "-o", f"{tmp}/out.npy", d.path, other.path)
        judge(f"{d.name} into {layout}", r, f"{tmp}/out.npy",
              copied(other.cells, d.cells, back), other, len(back))


# ---- snapshots --------------------------------------------------------------

def snapshot(d, tile, path):
    return kvtool("convert", "-f", "--tile", tile, d.path, path).code == 0


def check_tiles(d, tmp):
    rng = random.Random(2)
    for n in range(120 if FULL else 30):
        layout = rng.choice((d.layout, d.layout, "hnd", "kv-first-nhd"))
        other = Twin(d, layout, 100 + n, f"{tmp}/from.npy")
        tile = [rng.choice(("64", "256", "2K", "8K", "64K")) for _ in "ab"]
        ok = snapshot(d, tile[0], f"{tmp}/base.h5")
        paths = [other.path, f"{tmp}/base.h5"]
        if rng.random() < 0.8:
            ok &= snapshot(other, tile[1], f"{tmp}/from.h5")
            paths[0] = f"{tmp}/from.h5"
        if rng.random() < 0.1:
            paths[1] = d.path
        pairs = some_pairs(rng, d.dims["B"], d.dims["B"])
        out = f"{tmp}/out.{rng.choice(('h5', 'h5', 'npy'))}"
        r = kvtool("copy-blocks", "-f", "--json", "--verify", "--blocks",
                   list_of(pairs), "--threads", rng.choice("13"), "--mem-limit",
                   rng.choice(("8M", "256M")), "-o", out, *paths)
        tap.ok(ok, "snapshots")
        judge(f"tiles {n}: {layout} {tile[1]} into {tile[0]}", r, out,
              copied(d.cells, other.cells, pairs), d, len(pairs))
    check_moved(d, tmp)


def check_moved(d, tmp):
    """Tiles of one block move, of both; larger ones if whole ones are copied."""
    same = Twin(d, d.layout, 7, f"{tmp}/same.npy")
    hnd = Twin(d, "hnd", 8, f"{tmp}/hnd.npy")
    rows = [("64", same, "64", "5:7,9:1", True), ("64", hnd, "64", "5:7,9:1", False),
            ("2K", same, "2K", "5:7", False), ("2K", same, "2K", "16-31:0-15", True),
            ("2K", same, "2K", "15-30:0-15", False), ("64", same, "2K", "5:7", False)]
    for base_tile, other, from_tile, blocks, moves in rows:
        snapshot(d, base_tile, f"{tmp}/base.h5")
        snapshot(other, from_tile, f"{tmp}/from.h5")
        r = kvtool("copy-blocks", "-f", "--json", "--blocks", blocks, "-o",
                   f"{tmp}/out.h5", f"{tmp}/from.h5", f"{tmp}/base.h5")
        g = r.json["groups"][0] if r.code == 0 else {}
        tap.equal((g.get("tiles", 0) > 0, g.get("tiles_moved")),
                  (True, g.get("tiles") if moves else 0),
                  f"{blocks} of {other.layout} {from_tile} into {base_tile}: "
                  f"{'all tiles' if moves else 'no tile'} moved")


# ---- whose block, whose layer -----------------------------------------------

def check_requests(d, tmp):
    rng = random.Random(3)
    for n in range(8):
        blocks = list(range(1, d.dims["B"]))
        rng.shuffle(blocks)
        number = [0] + blocks
        tables = {q: [number[b] for b in t] for q, t in d.tables.items()}
        other = Twin(d, "hnd", 200 + n, f"{tmp}/from.npy", block_table=tables)
        some = rng.sample(sorted(tables), rng.randrange(1, len(tables) + 1))
        pairs = {b: a for q in some for a, b in zip(tables[q], d.tables[q])}
        r = kvtool("copy-blocks", "-f", "--json", "--verify", "-o", f"{tmp}/out.npy",
                   *[x for q in some for x in ("--request", q)], other.path, d.path)
        judge(f"requests {' '.join(some)}", r, f"{tmp}/out.npy",
              copied(d.cells, other.cells, [(a, b) for b, a in pairs.items()]), d,
              len(pairs))
        tokens = kvtool("diff", "-q", *(("--by", "tokens") if n % 2 else ()),
                        f"{tmp}/out.npy", other.path)
        tap.equal(tokens.code, 0 if len(some) == len(tables) else 1,
                  "all requests make the tokens those of the other")


def check_ids(d, tmp):
    """Parts of pools are known by their ids, layers by their numbers."""
    other = Twin(d, d.layout, 300, f"{tmp}/from.npy")
    for i, (path, ids) in enumerate(((d.path, "20:40"), (other.path, "5:31"))):
        kvtool("slice", "-f", "--blocks", ids, "-o", f"{tmp}/part{i}.npy", path)
    r = kvtool("copy-blocks", "-f", "--json", "--verify", "--blocks",
               "20-30:25-35,5:39,6:20", "-o", f"{tmp}/out.npy", f"{tmp}/part1.npy",
               f"{tmp}/part0.npy")
    pairs = [(s, s + 5) for s in range(20, 31)] + [(5, 39), (6, 20)]
    judge("parts of pools", r, f"{tmp}/out.npy",
          copied(d.cells, other.cells, pairs)[:, :, 20:40], d, len(pairs))
    for blocks in ("4:20", "5:19", "31:20", "5:40"):
        r = kvtool("copy-blocks", "-f", "--blocks", blocks, "-o", f"{tmp}/no.npy",
                   f"{tmp}/part1.npy", f"{tmp}/part0.npy")
        tap.ok(r.code == 3 and not os.path.exists(f"{tmp}/no.npy"),
               f"parts of pools: {blocks} is refused", r)
    turned = Twin(d, "hnd", 301, f"{tmp}/turned.npy",
                  layer_names=d.side["layer_names"][::-1],
                  layer_ids=list(range(d.dims["L"]))[::-1])
    pairs = [(3, 4), (9, 11)]
    r = kvtool("copy-blocks", "-f", "--json", "--verify", "--blocks", "3:4,9:11", "-o",
               f"{tmp}/out.npy", turned.path, d.path)
    judge("layers in another order", r, f"{tmp}/out.npy",
          copied(d.cells, turned.cells[:, ::-1], pairs), d, 2)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0)]
    r = kvtool("copy-blocks", "-f", "--json", "--verify", "--blocks", "0-2:1-3,3:0",
               "-o", f"{tmp}/out.npy", d.path, d.path)
    judge("one file, blocks that change places", r, f"{tmp}/out.npy",
          copied(d.cells, d.cells, pairs), d, 4)


# ---- Mamba ------------------------------------------------------------------

def check_mamba(tmp):
    top = f"{oracle.DATA}/mamba2g4"
    rng = random.Random(4)
    dumps = [MambaDump(f"{top}/{name}.json") for name in
             ("tp1_DS/rank0", "tp1_SD/rank0", "tp4_DS/rank2", "tp2_SD/rank1")]
    for base in dumps:
        for other in dumps:
            if base.page.shape != other.page.shape or base.side["conv"]["global_x"] != \
                    other.side["conv"]["global_x"]:
                continue
            n = base.page.shape[1]
            pairs = some_pairs(rng, n, n)
            name = f"{base.name} with blocks of {other.name}"
            r = kvtool("copy-blocks", "-f", "--json", "--verify", "--blocks",
                       list_of(pairs), "-o", f"{tmp}/m.npy", other.path, base.path)
            if not tap.ok(r.code == 0, f"{name}: exit 0", r):
                continue
            page = np.load(f"{tmp}/m.npy").view(np.uint8).reshape(base.page.shape)
            parts = []
            for p, side in ((page, base.side), (base.page, base.side),
                            (other.page, other.side)):
                at = side["ssm"]["byte_offset"]
                parts.append((conv_cells(p, side["conv"]), p[:, :, at:]))
            for i, what in enumerate(("conv", "ssm")):
                want = parts[1][i].copy()
                for s, d in pairs:
                    want[:, d] = parts[2][i][:, s]
                tap.ok(np.array_equal(parts[0][i], want), f"{name}: {what}")
    refused("another rank has other channels", 3, "", "copy-blocks", "-f", "--blocks",
            "1:2", "-o", f"{tmp}/no.npy", dumps[2].path, f"{top}/tp4_DS/rank1.npy")


def main(tmp):
    dumps = oracle.attention_dumps()
    first = next(d for d in dumps if d.name == "s260k/paged_bs16/packed_nhd.bf16")
    check_dumps(dumps, tmp)
    check_tiles(first, tmp)
    check_requests(first, tmp)
    check_ids(first, tmp)
    check_mamba(tmp)


oracle.run(main)
