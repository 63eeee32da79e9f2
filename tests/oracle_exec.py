#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_exec.py - what kvtool transfer-sim exec writes, against numpy

A destination is filled with poison, receives, and must then hold the model's own
capture where its tables and the address map of its sidecar say, and poison
everywhere else.  KVT_FULL=1 tries all pairs of layout, TP and block size.
"""
import csv
import os
import random

import numpy as np

import oracle
from oracle import (DATA, FULL, UNSIGNED, Dump, array_bytes, kvtool, preset_offsets,
                    read_bytes, read_json, tap, write_bytes)

POISON = 0x5a
transfers = 0


# ---- deployments -------------------------------------------------------------

def deployments(model):
    """[[Dump of rank 0, ...], ...]"""
    sides = {}
    for sidecar in oracle.sidecars(model):
        dump = Dump(model, sidecar)
        key = (dump.folder, dump.layout, dump.dtype, os.path.basename(
            dump.path) if "tp_size" not in dump.side else "")
        sides.setdefault(key, []).append(dump)
    for side in sides.values():
        side.sort(key=lambda d: d.side.get("tp_rank", 0))
    return [sides[k] for k in sorted(sides)]


def name_of(side):
    d = side[0]
    return f"{d.model}/{d.layout} tp{len(side)} bs{d.dims['S']} {d.dtype}"


def poisoned(path, folder):
    """A copy whose data are poison, with its sidecar; the path."""
    out = f"{folder}/poisoned.{os.path.basename(path)}"
    raw = bytearray(read_bytes(path))
    n = len(array_bytes(path))
    raw[len(raw) - n:] = bytes([POISON]) * n
    write_bytes(out, raw)
    oracle.copy_manifest(path, out)
    return out


def expected(itemsize, nelements, offsets, dims, tables, ntokens, truth, fill):
    """The elements of an array that holds these requests and nothing else."""
    bits = np.full(nelements * itemsize, fill, np.uint8).view(UNSIGNED[itemsize])
    for r, table in tables.items():
        t = np.arange(ntokens[r])
        block = np.array(table)[t // dims["S"]]
        bits[offsets[:, :, block, t % dims["S"]]] = truth(r)
    return bits


def exec_json(*args):
    global transfers
    transfers += 1
    r = kvtool("transfer-sim", "exec", "--json", "--no-sync", "--force", *args)
    return r, r.json if r.code == 0 else {}


# ---- into real dumps ------------------------------------------------------------

def check_ranks(name, r, o, paths, side, want_digest):
    if not tap.ok(r.code == 0, f"{name}: exit 0", r):
        return
    for path, dump in zip(paths, side):
        got = np.frombuffer(array_bytes(path), UNSIGNED[dump.itemsize])
        want = expected(dump.itemsize, dump.nelements, dump.offsets, dump.dims,
                        dump.tables, dump.ntokens, dump.canonical, POISON)
        if not np.array_equal(got, want):
            tap.ok(False, f"{name}: {path}", f"{np.sum(got != want)} differ")
            return
    tap.ok(o["digest"] == want_digest, f"{name}: bytes and digest", o)


def into_dump(src, dst, want_digest, folder):
    ext = os.path.splitext(dst[0].path)[1]
    into = [poisoned(d.path, folder) for d in dst]
    out = [f"{folder}/out.{i}{ext}" for i in range(len(dst))]
    r, o = exec_json("-o", f"{folder}/out.%r{ext}", *[d.path for d in src], *into)
    check_ranks(f"{name_of(src)} -> {name_of(dst)}", r, o, out, dst, want_digest)


def digest(path):
    r = kvtool("digest", "--scope", "tokens", path)
    return r.out.split()[0] if r.code == 0 else str(r)


def real_dumps(folder):
    rng = random.Random(5)
    for model in ("s260k", "gqa64", "mla144"):
        sides = deployments(model)
        pairs = [(a, b) for a in sides for b in sides if a[0].dtype == b[0].dtype]
        if not FULL:
            seen = [rng.sample(pairs, min(6, len(pairs)))]
            # each deployment once on either side
            seen.append([(a, next(b for b in sides[i + 1:] + sides
                                  if a[0].dtype == b[0].dtype))
                         for i, a in enumerate(sides)])
            pairs = seen[0] + seen[1]
        digests = {}
        for side in sides:
            if len(side) == 1 and side[0].dtype not in digests:
                digests[side[0].dtype] = digest(side[0].path)
        for a, b in pairs:
            into_dump(a, b, digests[a[0].dtype], folder)


# ---- into new ones -----------------------------------------------------------------

def into_new(src, layout, tp, size, ids, ext, folder):
    name = f"{name_of(src)} -> new {layout} tp{tp} bs{size} {ids} {ext}"
    r, o = exec_json("-o", f"{folder}/new.%r.{ext}", f"--fill={POISON}",
                     f"--dst=layout={layout},tp={tp},block-size={size},"
                     f"ids={ids}", *[d.path for d in src])
    for rank in range(tp if ext == "h5" and r.code == 0 else 0):
        # compressed ranges, which relayout's oracle knows how to trust
        r = kvtool("convert", "--force", "--no-sync", f"{folder}/new.{rank}.h5",
                   f"{folder}/new.{rank}.npy")
    if not tap.ok(r.code == 0, f"{name}: exit 0", r):
        return
    whole = src[0]
    heads = 1 if whole.latent else 4 if whole.model == "s260k" else \
        whole.dims["H"] * len(src)
    for rank in range(tp):
        path = f"{folder}/new.{rank}.npy"
        m = read_json(path[:-4] + ".json")
        bits = np.frombuffer(array_bytes(path), np.uint16)
        held = max(heads // tp, 1)
        per = whole.dims["L"] * size * held * whole.dims["K"] * whole.dims["D"]
        dims = dict(whole.dims, S=size, H=held, B=bits.size // per)
        first = rank * held if tp <= heads else rank * heads // tp

        def truth(request):
            raw = np.load(f"{DATA}/{whole.model}/canonical/{request}.fp32.npy")
            raw = raw[None, :, :, None, :] if whole.latent else \
                raw.transpose(3, 0, 1, 2, 4)
            return oracle.round_to(raw[:, :, :, first:first + held], whole.dtype)

        want = expected(2, bits.size, preset_offsets(layout, dims, 2), dims,
                        m["block_table"], m["num_tokens"], truth, POISON)
        if not np.array_equal(bits, want):
            tap.ok(False, f"{name}: rank {rank}",
                   f"{np.sum(bits != want)} elements differ")
            return
    tap.ok(o["digest"] is not None, f"{name}: bytes")


def new_dumps(folder):
    rng = random.Random(6)
    cases = []
    for model, layouts, sizes in (
            ("s260k", oracle.SIX + ("kv-first-nhd", "cross-head", "rocm-paged",
                                    "aiter-shuffle", "cpu-vec"),
             (8, 16, 24, 32)),
            ("gqa64", oracle.SIX, (16, 40)),
            ("mla144", ("mla", "mla-cross"), (1, 16, 24))):
        sides = [s for s in deployments(model) if s[0].dtype == "bfloat16"]
        for src in sides if FULL else rng.sample(sides, min(3, len(sides))):
            # of sources all layouts are in real_dumps(); here TP and size count
            heads = 4 if model == "s260k" else src[0].dims["H"]
            tps = [n for n in (1, 2, 4, 8) if max(n, heads) % min(n, heads) == 0]
            for layout in layouts:
                for tp in tps:
                    for size in sizes:
                        dims = dict(src[0].dims, S=size, H=1, B=1)
                        if oracle.legal(layout, dims, 2):
                            cases.append((src, layout, tp, size))
    for src, layout, tp, size in cases if FULL else rng.sample(cases, 24):
        ids = rng.choice(("contig", "reverse", "half", "scatter", "random:3", "aged:4"))
        into_new(src, layout, tp, size, ids, rng.choice(("npy", "h5")), folder)


# ---- recurrent states ----------------------------------------------------------------

def mamba(folder):
    top = f"{DATA}/mamba2g4"
    sides = {name: sorted(f"{top}/{name}/{f}" for f in os.listdir(f"{top}/{name}")
                          if f.endswith(".npy"))
             for name in os.listdir(top) if name != "canonical"}
    want_digest = digest(sides["tp1_SD"][0])
    for a in sorted(sides):
        for b in sorted(sides):
            into = [poisoned(p, folder) for p in sides[b]]
            r, o = exec_json("-o", f"{folder}/out.%r.npy", "--all-states",
                             "--mamba-groups=4", *sides[a], *into)
            good = r.code == 0 and o["digest"] == want_digest
            for i, path in enumerate(sides[b] if good else ()):
                tables = read_json(path[:-4] + ".json")["block_table"]
                want = np.full_like(np.load(path), POISON)
                for table in tables.values():
                    want[:, table] = np.load(path)[:, table]
                good = good and np.array_equal(np.load(f"{folder}/out.{i}.npy"), want)
            tap.ok(good, f"mamba2g4/{a} -> {b}", r)


# ---- a corrupted op --------------------------------------------------------------------

def corrupted(folder):
    """Found, and where the op of that number is."""
    src, dst = f"{DATA}/s260k/paged_bs16/packed_nhd.bf16.npy", \
        f"{DATA}/s260k/paged_bs16/packed_hnd.bf16.npy"
    side = Dump("s260k", dst[:-4] + ".json")
    ops = list(csv.DictReader(kvtool("transfer-sim", "plan", "--ops", src,
                                     dst).out.splitlines()))
    rng = random.Random(7)
    for n in [0, len(ops) - 1] + rng.sample(range(len(ops)), 6):
        k, l, b, s, h, d = (int(i[0]) for i in np.nonzero(
            side.offsets == int(ops[n]["dst_off"]) // 2))
        r = kvtool("transfer-sim", "exec", "--force", "--no-sync", "-o",
                   f"{folder}/bad.npy", f"--corrupt-op={n}", src, dst)
        tokens = {q: t.index(b) * 16 + s for q, t in side.tables.items() if b in t}
        want = [f"request {q} token {t}, block {b} slot {s} layer {l} "
                f"head {h} kv {k} dim {d} is " for q, t in tokens.items()]
        tap.ok(r.code == 1 and any(w in r.err for w in want),
               f"op {n} corrupted", f"{r}\n{want}")


def main(folder):
    real_dumps(folder)
    new_dumps(folder)
    mamba(folder)
    corrupted(folder)
    print(f"# {transfers} transfers")


oracle.run(main)
