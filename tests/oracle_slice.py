#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_slice.py - what kvtool slice and merge write, against numpy

The part that is wanted is cut out of the cells of the whole dump, which come
from its sidecar, and put where the axis string says; the bytes must agree.  Real
dumps of tensor parallel ranks, written by another program, are the other witness.
"""
import os
import random

import numpy as np

import oracle
from kvd1 import MASK, MambaDump, lanes_of, printed, text, whole
from oracle import (FULL, SHARE, array_bytes, kvtool, manifest_of, place, read_bytes,
                    runs, tap, write_bytes)

AXIS = {"L": 1, "B": 2, "H": 4}


# ---- what must come out -----------------------------------------------------

def owned(units, size, rank):
    """First and last + 1 of the units of a rank; neighbours hold the same."""
    if units % size == 0:
        return rank * units // size, (rank + 1) * units // size
    return rank * units // size, rank * units // size + 1


def restricted(dump, blocks):
    """Tables by ids and token counts: what precedes the first lost block."""
    tables, tokens = {}, {}
    for r, table in dump.tables.items():
        kept = []
        for b in table:
            if b not in blocks:
                break
            kept.append(b)
        if kept:
            tables[r] = kept
            tokens[r] = min(dump.ntokens[r], len(kept) * dump.dims["S"])
    return tables, tokens


def judge(name, r, path, dump, layers, blocks, heads):
    """Bytes and manifest of a slice; heads as a range of the model's."""
    if not tap.ok(r.code == 0, f"{name}: exit 0", r):
        return
    first = heads[0] - dump.head_start
    cells = dump.cells[:, layers][:, :, blocks][
        :, :, :, :, first:first + heads[1] - heads[0]]
    want = place(cells, dump.layout, dump.itemsize)
    tap.ok(array_bytes(path) == want, f"{name}: the bytes", r)
    m = manifest_of(path)
    tables, tokens = restricted(dump, set(blocks))
    got = (m.get("layer_ids", list(range(dump.dims["L"]))),
           m.get("block_ids", list(range(dump.dims["B"]))),
           m["head_start"], m["head_count"], m["total_kv_heads"],
           m["layer_names"], m.get("block_table", {}), m.get("num_tokens", {}),
           m.get("null_block"))
    tap.equal(got, (list(layers), list(blocks), heads[0], heads[1] - heads[0],
                    dump.side.get("total_kv_heads", dump.dims["H"]),
                    [dump.side["layer_names"][l] for l in layers], tables, tokens,
                    0 if 0 in blocks else None),
              f"{name}: what it says of itself")


# ---- parts of attention caches ----------------------------------------------

def written(ids):
    """A list as the command line has it, with ranges where ids are neighbours."""
    runs = []
    for i in ids:
        if runs and runs[-1][1] == i:
            runs[-1][1] = i + 1
        else:
            runs.append([i, i + 1])
    return ",".join(str(a) if b == a + 1 else f"{a}:{b}" for a, b in runs)


def some(rng, n):
    """Ascending indices, in runs and alone."""
    kept, i = [], rng.randrange(n)
    while i < n and len(kept) < 60:
        run = rng.choice([1, 1, 2, 5, 16])
        kept += range(i, min(n, i + run))
        i += run + rng.choice([1, 1, 3, 9])
    return kept


def check_parts(dumps, tmp):
    """Random layers, blocks and heads, out of flat files and out of tiles."""
    rng = random.Random(17)
    for n, d in enumerate(dumps):
        for tile in (None, "512", "4K", "32K"):
            if tile and n % 3 and not FULL:
                continue
            path = d.path
            if tile:
                path = f"{tmp}/p{n}.{tile}.h5"
                kvtool("convert", "-f", "--tile", tile, d.path, path)
            layers, blocks = some(rng, d.dims["L"]), some(rng, d.dims["B"])
            blocks = blocks if len(written(blocks).split(",")) <= 64 else [1]
            a = rng.randrange(d.dims["H"])
            b = rng.randrange(a, d.dims["H"]) + 1
            heads = (d.head_start + a, d.head_start + b)
            out = f"{tmp}/part.npy"
            r = kvtool("slice", "-f", "--verify", "--layers", written(layers),
                       "--blocks", written(blocks), "--heads",
                       f"{heads[0]}:{heads[1]}", "-o", out, path)
            judge(f"{d.name} {'tiles of ' + tile if tile else 'flat'} "
                  f"L {written(layers)} B {written(blocks)} H {heads}",
                  r, out, d, layers, blocks, heads)


def check_moved(d, tmp):
    """Tiles that stay what they are move, others do not, and all are right."""
    src = f"{tmp}/m.h5"
    kvtool("convert", "--tile", "512", d.path, src)
    every = list(range(d.dims["B"]))
    cases = [("--layers", "1,3:5", [1, 3, 4], every, (0, 4)),
             ("--heads", "1:3", [0, 1, 2, 3, 4], every, (1, 3)),
             ("--blocks", "4:8,30:32", [0, 1, 2, 3, 4],
              [4, 5, 6, 7, 30, 31], (0, 4)),
             # tiles of 2 blocks: cut, joined across a border, cut at the end
             ("--blocks", "5:9", every[:5], [5, 6, 7, 8], (0, 4)),
             ("--blocks", "4,7", every[:5], [4, 7], (0, 4)),
             ("--blocks", "4:7", every[:5], [4, 5, 6], (0, 4))]
    for n, (option, value, layers, blocks, heads) in enumerate(cases):
        out = f"{tmp}/moved.h5"
        r = kvtool("slice", "-f", "--json", option, value, "-o", out, src)
        name = f"{d.name} in tiles {option} {value}"
        if not tap.ok(r.code == 0, f"{name}: exit 0", r):
            continue
        g = r.json["groups"][0]
        tap.equal((g["tiles"] > 0, g["tiles_moved"]),
                  (True, g["tiles"] if n < 3 else 0),
                  f"{name}: {'all' if n < 3 else 'no'} tiles move")
        r = kvtool("convert", "-f", out, f"{tmp}/moved.npy")
        judge(name, r, f"{tmp}/moved.npy", d, layers, blocks, heads)
        runs(f"{name}: every cell has its checksum", "describe", "--verify", out)


def check_again(d, tmp):
    """A part of a part is named as in the whole."""
    runs("a part in a snapshot", "slice", "--layers", "1:5", "--blocks", "10:40",
         "--heads", "1:4", "-o", f"{tmp}/once.h5", d.path)
    r = kvtool("slice", "--layers", "2,4", "--blocks", "13:20,39", "--heads",
               "2:3", "-o", f"{tmp}/twice.npy", f"{tmp}/once.h5")
    judge("a part of a part", r, f"{tmp}/twice.npy", d, [2, 4],
          list(range(13, 20)) + [39], (2, 3))


# ---- digests ----------------------------------------------------------------

def add_up(name, scope, parts, path):
    total = [0, 0]
    for part in parts:
        value = whole(part)[("tokens", "blocks").index(scope)]
        if not value:
            tap.ok(False, name, f"{part}: no digest of {scope}")
            return
        total = [(a + b) & MASK for a, b in zip(total, lanes_of(value))]
    tap.equal(text(scope, total), whole(path)[("tokens", "blocks").index(scope)], name)


def slices(tmp, path, ending, *options):
    out = []
    for n, option in enumerate(options):
        out.append(f"{tmp}/d{n}.{ending}")
        kvtool("slice", "-f", *option, "-o", out[-1], path)
    return out


def check_digests(d, tmp):
    for ending in ("h5", "npy", "safetensors"):
        parts = slices(tmp, d.path, ending, ("--layers", "0,3"), ("--layers", "1:3,4"))
        add_up(f"digests of layers add up, tokens, {ending}", "tokens", parts, d.path)
        add_up(f"digests of layers add up, blocks, {ending}", "blocks", parts, d.path)
        parts = slices(tmp, d.path, ending, ("--heads", "0:1"), ("--heads", "1:4"))
        add_up(f"digests of heads add up, {ending}", "tokens", parts, d.path)
        parts = slices(tmp, d.path, ending, ("--blocks", "0:11,40"),
                       ("--blocks", "11:40,41:48"))
        add_up(f"digests of blocks add up, {ending}", "blocks", parts, d.path)
        parts = slices(tmp, d.path, ending, *(("--request", r) for r in d.tables))
        add_up(f"digests of requests add up, {ending}", "tokens", parts, d.path)
        found, _ = printed(d.path, "--by", "request")
        for r, part in zip(d.tables, parts):
            got, said = printed(part, "--by", "request")
            tap.ok(got is not None and got["tokens"] ==
                   {f"request={r}": found["tokens"][f"request={r}"]},
                   f"request {r} keeps its digest, {ending}", said)
    r = kvtool("slice", "-f", "--request", "A", "--request", "C", "-o",
               f"{tmp}/two.npy", d.path)
    tap.ok(r.code == 0 and list(manifest_of(f"{tmp}/two.npy")["num_tokens"]) ==
           ["A", "C"], "two requests", r)


# ---- ranks of attention caches ----------------------------------------------

def check_real_ranks(dumps, tmp):
    for folder, size, source in (("tp2", 2, "packed_nhd.bf16"),
                                 ("tp4", 4, "packed_hnd.bf16")):
        one = next(d for d in dumps if d.name == f"s260k/paged_bs16/{source}")
        ranks = [d for d in dumps if d.folder == folder]
        tap.equal(len(ranks), size, f"{folder}: {size} dumps")
        made = []
        for r, d in enumerate(ranks):
            made.append(f"{tmp}/{folder}.{r}.safetensors")
            said = kvtool("slice", "--verify", "--tp-size", size, "--tp-rank", r,
                          "-o", made[-1], one.path)
            tap.ok(said.code == 0 and array_bytes(made[-1]) == array_bytes(d.path),
                   f"slice: rank {r} of {size} is the real dump of that rank", said)
            tap.equal(whole(made[-1]), whole(d.path),
                      f"slice: rank {r} of {size} has its digests")
        add_up(f"digests of {folder} add up", "tokens", made, one.path)
        for kind, files in (("real", [d.path for d in ranks]), ("own", made)):
            out = f"{tmp}/{folder}.{kind}.npy"
            said = kvtool("merge", "--verify", "-o", out,
                          *random.Random(size).sample(files, size))
            if not tap.ok(said.code == 0 and
                          array_bytes(out) == array_bytes(one.path),
                          f"merge: the {kind} ranks of {folder} are tp1", said):
                continue
            m = manifest_of(out)
            tap.equal((m["tp_size"], m["head_start"], m["head_count"],
                       m["replicas"]), (1, 0, 4, 1),
                      f"merge: {folder} {kind}: no rank any more")


def round_trip(name, d, size, ending, tmp):
    files, total = [], d.dims["H"]
    for rank in range(size):
        begin, end = owned(total, size, rank)
        files.append(f"{tmp}/r{rank}.{ending}")
        r = kvtool("slice", "-f", "--tp-size", size, "--tp-rank", rank, "-o",
                   files[-1], d.path)
        if not tap.ok(r.code == 0, f"{name}: rank {rank}: exit 0", r):
            return
        if ending == "npy":
            want = place(d.cells[:, :, :, :, begin:end], d.layout, d.itemsize)
            m = manifest_of(files[-1])
            tap.ok(array_bytes(files[-1]) == want and
                   (m["head_start"], m["tp_rank"], m["replicas"]) ==
                   (begin, rank, max(1, size // total)),
                   f"{name}: rank {rank}: bytes and place", m)
    out = f"{tmp}/back.npy"
    r = kvtool("merge", "-f", "--verify", "-o", out, *reversed(files))
    tap.ok(r.code == 0 and array_bytes(out) == array_bytes(d.path),
           f"{name}: merged again", r)


def check_round_trips(dumps, tmp):
    chosen = [d for d in dumps if not d.folder.startswith("tp")]
    for n, d in enumerate(chosen if FULL else chosen[::3 * SHARE]):
        for size in (1, 2, 4, 8):
            for ending in ("npy", "h5"):
                round_trip(f"{d.name}, tp {size}, {ending}", d, size, ending, tmp)


def check_mixed(d, tmp):
    """Ranks in different formats and layouts are still ranks."""
    files = [f"{tmp}/x0.h5", f"{tmp}/x1.safetensors", f"{tmp}/x2.npy", f"{tmp}/x3.h5"]
    for rank, (path, to) in enumerate(zip(files, ("nhd", "bhlsc", "rocm-paged",
                                                  "cpu-vec"))):
        kvtool("slice", "--tp-size", 4, "--tp-rank", rank, "-o", f"{tmp}/x.h5",
               "-f", d.path)
        kvtool("relayout", "--to", to, "-o", path, f"{tmp}/x.h5")
    r = kvtool("merge", "--verify", "-o", f"{tmp}/mixed.npy", *files)
    tap.ok(r.code == 0 and
           array_bytes(f"{tmp}/mixed.npy") == place(d.cells, "nhd", d.itemsize),
           "ranks in four layouts and three formats", r)


# ---- recurrent states -------------------------------------------------------

class States:
    """conv[L, B, channels, taps] and ssm[L, B, heads, bytes] of a page."""

    def __init__(self, dump):
        side = dump.side
        L, B = dump.page.shape[:2]
        start, shape = side["conv"]["byte_offset"], side["conv"]["shape"]
        raw = np.ascontiguousarray(dump.page[:, :, start:start + 2 * shape[0] * shape[1]])
        self.ds = side["conv_layout"] == "DS"
        conv = raw.view("<u2").reshape(L, B, *shape)
        self.conv = conv if self.ds else conv.transpose(0, 1, 3, 2)
        heads = side["ssm"]["shape"][0]
        at = side["ssm"]["byte_offset"]
        each = 4 * side["ssm"]["shape"][1] * side["ssm"]["shape"][2]
        self.ssm = np.ascontiguousarray(
            dump.page[:, :, at:at + heads * each]).reshape(L, B, heads, each)
        self.inter = side["conv"]["x"][1]
        self.part = side["conv"]["B"][1] - side["conv"]["B"][0]

    def rank(self, size, rank, groups):
        """The page of a rank: its x, its groups of B and C, its heads."""
        x0, x1 = (n * self.inter // size for n in (rank, rank + 1))
        g0, g1 = owned(groups, size, rank)
        rows = self.part // groups
        b0 = self.inter + g0 * rows
        b1 = self.inter + g1 * rows
        conv = np.concatenate([self.conv[:, :, x0:x1], self.conv[:, :, b0:b1],
                               self.conv[:, :, b0 + self.part:b1 + self.part]],
                              axis=2)
        conv = conv if self.ds else conv.transpose(0, 1, 3, 2)
        h0, h1 = owned(self.ssm.shape[2], size, rank)
        L, B = conv.shape[:2]
        page = np.concatenate([
            np.ascontiguousarray(conv).view(np.uint8).reshape(L, B, -1),
            np.ascontiguousarray(self.ssm[:, :, h0:h1]).reshape(L, B, -1)], axis=2)
        return page.tobytes(), [x0, b0, b0 + self.part], h0


def check_real_states(mamba, tmp):
    by_name = {(m.folder, os.path.basename(m.path)): m.path for m in mamba}
    for source, folder, size in (("tp1_DS", "tp4_DS", 4), ("tp1_SD", "tp2_SD", 2)):
        one = by_name[source, "rank0.npy"]
        ranks = [by_name[folder, f"rank{r}.npy"] for r in range(size)]
        made = []
        for r, real in enumerate(ranks):
            made.append(f"{tmp}/{folder}.{r}.npy")
            said = kvtool("slice", "--verify", "--tp-size", size, "--tp-rank", r,
                          "--mamba-groups", 4, "-o", made[-1], one)
            tap.ok(said.code == 0 and array_bytes(made[-1]) == array_bytes(real),
                   f"slice: {folder} rank {r} is the real dump of that rank", said)
            tap.equal(whole(made[-1]), whole(real),
                      f"slice: {folder} rank {r} has its digests")
        add_up(f"digests of {folder} add up", "blocks", made, one)
        out = f"{tmp}/{folder}.npy"
        said = kvtool("merge", "--verify", "-o", out, *reversed(ranks))
        tap.ok(said.code == 0 and array_bytes(out) == array_bytes(one),
               f"merge: the real ranks of {folder} are {source}", said)


def check_groups(mamba, tmp):
    """However many groups the model may have, B and C go where they belong."""
    for m in (m for m in mamba if m.folder.startswith("tp1")):
        states = States(m)
        for groups in (1, 2, 4, 8):
            for size in (1, 2, 4, 8):
                files = []
                name = f"{m.folder}, {groups} groups, tp {size}"
                for rank in range(size):
                    files.append(f"{tmp}/g{rank}.npy")
                    r = kvtool("slice", "-f", "--tp-size", size, "--tp-rank", rank,
                               "--mamba-groups", groups, "-o", files[-1], m.path)
                    page, starts, head = states.rank(size, rank, groups)
                    got = manifest_of(files[-1])["groups"]
                    tap.ok(r.code == 0 and array_bytes(files[-1]) == page and
                           [c["global_start"] for c in got[0]["content"]] == starts
                           and got[1]["head_start"] == head,
                           f"{name}: rank {rank}", r)
                out = f"{tmp}/groups.npy"
                r = kvtool("merge", "-f", "--verify", "-o", out, *files)
                tap.ok(r.code == 0 and array_bytes(out) == array_bytes(m.path),
                       f"{name}: merged again", r)


def check_twice(mamba, tmp):
    """The ranks of a rank are those of the whole; replicas show the groups."""
    one = next(m for m in mamba if m.folder == "tp1_SD")
    states = States(one)
    for groups, options in ((1, ()), (2, ()), (8, ("--mamba-groups", 8))):
        kvtool("slice", "-f", "--tp-size", 4, "--tp-rank", 2, "--mamba-groups",
               groups, "-o", f"{tmp}/four.h5", one.path)
        for rank in (4, 5):
            r = kvtool("slice", "-f", "--tp-size", 8, "--tp-rank", rank, *options,
                       "-o", f"{tmp}/eight.npy", f"{tmp}/four.h5")
            tap.ok(r.code == 0 and array_bytes(f"{tmp}/eight.npy") ==
                   states.rank(8, rank, groups)[0],
                   f"{groups} groups: rank {rank} of 8 out of rank 2 of 4", r)


# ---- what must be refused ---------------------------------------------------

def check_replicas(d, tmp):
    """A byte that differs between replicas is found, whichever it is."""
    files = []
    for rank in range(8):
        files.append(f"{tmp}/bad{rank}.npy")
        kvtool("slice", "--tp-size", 8, "--tp-rank", rank, "-o", files[-1], d.path)
    L, B, S, D = (d.dims[a] for a in "LBSD")
    rng = random.Random(3)
    for n in range(40 if FULL else 8):
        rank = rng.randrange(8)
        good = read_bytes(files[rank])
        head = len(good) - L * B * S * 2 * D * d.itemsize
        at = rng.randrange(len(good) - head)
        write_bytes(files[rank],
                    good[:head + at] + bytes([good[head + at] ^ 0x10]) +
                    good[head + at + 1:])
        i = at // d.itemsize
        i, dim = divmod(i, D)
        i, k = divmod(i, 2)
        i, slot = divmod(i, S)
        layer, block = divmod(i, B)
        want = (f"block {block} slot {slot} layer {layer} head {rank // 2} "
                f"kv {k} dim {dim} is 0x")
        r = kvtool("merge", "--trust-manifest", "-o", f"{tmp}/never.npy", *files)
        tap.ok(r.code == 1 and want in r.err and
               not os.path.exists(f"{tmp}/never.npy"),
               f"replicas differ in {want}", r)
        write_bytes(files[rank], good)


def main(tmp):
    dumps = oracle.attention_dumps()
    mamba = [MambaDump(s) for s in oracle.sidecars("mamba2g4")]
    nhd = next(d for d in dumps if d.name == "s260k/paged_bs16/packed_nhd.bf16")
    check_parts(dumps, tmp)
    check_moved(nhd, tmp)
    check_again(nhd, tmp)
    check_digests(nhd, tmp)
    check_real_ranks(dumps, tmp)
    check_round_trips(dumps, tmp)
    check_mixed(nhd, tmp)
    check_real_states(mamba, tmp)
    check_groups(mamba, tmp)
    check_twice(mamba, tmp)
    check_replicas(nhd, tmp)


if __name__ == "__main__":
    oracle.run(main)
