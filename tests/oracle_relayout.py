#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_relayout.py - every byte that relayout and convert write, against an
evaluator of addresses that shares no code with kvtool

First the evaluator itself is held against published offsets and against the
address maps of real dumps; only then does it judge the program.  By default
each dump visits a few layouts and each layout is visited; KVT_FULL=1 runs all
pairs.
"""
import itertools
import os

import numpy as np

import oracle
from oracle import (FULL, LATENT, ONE_PLANE, SEPARATE, SIX, TWO_PLANES, array_bytes,
                    cached_offsets, kvtool, legal, order_terms, parse_order,
                    preset_offsets, tap, write_bytes)


# L=3 B=5 S=32 H=4 D=64, two bytes each; l=1 b=3 s=17 h=1 d=13: key, value
GOLDEN_DIMS = {"L": 3, "B": 5, "S": 32, "H": 4, "K": 2, "D": 64}
GOLDEN = {
    "nhd": (279834, 279962), "cross-nhd": (336538, 352922),
    "hnd": (274714, 274842), "cross-hnd": (333978, 350362),
    "blshc": (345370, 345498), "cross-flex": (345242, 345754),
    "blhsc": (340250, 340378), "cross-head": (329882, 333978),
    "bhlsc": (332058, 332186), "cross-kv-head": (313498, 362650),
    "lhbsc": (233754, 233882), "cross-layer-head": (338074, 342170),
    "kv-first-nhd": (221850, 303770), "rocm-paged": (217882, 299874),
    "kv-first-hnd": (219290, 301210), "rocm-paged-page": (267034, 283490),
    "blocks-first-nhd": (271002, 287386),
    "aiter-shuffle-kv-first": (217882, 301266),
    "blocks-first-hnd": (268442, 284826), "aiter-shuffle": (267034, 284882),
    "flex-split": (279706, 280218), "hicache-layer-first": (139930, 385690),
    "head-halves": (272538, 276634), "hicache-page-first": (174234, 419994),
    "cpu-vec": (271202, 276634),
    "hicache-page-first-direct": (172698, 418458),
    "cpu-amx": (272774, 274998), "hicache-page-head": (166426, 412186),
    "cpu-neon-bf16": (272586, 275274),
}
# byte strides of L B S H C for L=3 B=8 H=4 S=16, content 256
STRIDES = {
    "nhd": (131072, 16384, 1024, 256), "hnd": (131072, 16384, 256, 4096),
    "blshc": (16384, 49152, 1024, 256), "blhsc": (16384, 49152, 256, 4096),
    "bhlsc": (4096, 49152, 256, 12288), "lhbsc": (131072, 4096, 256, 32768),
}
# S=32 D=64 t=17 inside one half: d, index of the key, of the value
HALF = {"cpu-vec": (5, 177, 1093), "cpu-amx": (5, 1091, 267),
        "cpu-neon-bf16": (5, 1061, 165), "rocm-paged": (13, 397, 433),
        "aiter-shuffle": (13, 397, 1129)}


# ---- the evaluator itself ---------------------------------------------------

def check_golden():
    for name, want in sorted(GOLDEN.items()):
        at = preset_offsets(name, GOLDEN_DIMS, 2)
        tap.equal(tuple(int(at[k, 1, 3, 17, 1, 13]) * 2 for k in (0, 1)), want,
                  f"evaluator: {name} at one coordinate")
    for name, want in STRIDES.items():
        dims = {"L": 3, "B": 8, "S": 16, "H": 4, "K": 2, "D": 128}
        terms, _ = order_terms(parse_order(ONE_PLANE[name], 16), dims)
        stride = {axis: s for axis, _, _, s in terms}
        tap.equal(tuple(stride[a] for a in "LBSH"), want, f"evaluator: strides of {name}")
    for name, (d, key, value) in HALF.items():
        dims = {"L": 1, "B": 1, "S": 32, "H": 1, "K": 2, "D": 64}
        at = preset_offsets(name, dims, 2)
        tap.equal((int(at[0, 0, 0, 17, 0, d]),
                   int(at[1, 0, 0, 17, 0, d]) - 32 * 64), (key, value),
                  f"evaluator: one half of {name}")
    for name in itertools.chain(ONE_PLANE, TWO_PLANES, SEPARATE):
        at = preset_offsets(name, GOLDEN_DIMS, 2).ravel()
        tap.ok(np.array_equal(np.sort(at), np.arange(at.size)),
               f"evaluator: {name} puts one element everywhere")


def check_sources(dumps):
    for d in dumps:
        tap.ok(np.array_equal(preset_offsets(d.layout, d.dims, d.itemsize),
                              d.offsets),
               f"evaluator: {d.name} has the addresses of {d.layout}")
        tap.ok(d.is_true(d.cells) and d.nelements == d.offsets.size,
               f"evaluator: {d.name} holds what the model computed")


# ---- the program ------------------------------------------------------------

def plane_bytes(path):
    """
    All bytes of an output in the order the evaluator counts them: separate
    planes are two tensors, keys first.
    """
    if not path.endswith(".safetensors"):
        return array_bytes(path)
    tensors = oracle.safetensors_tensors(path)
    if len(tensors) == 1:
        return next(iter(tensors.values()))[2]
    if sorted(tensors) != ["kv_cache.k", "kv_cache.v"]:
        raise ValueError(f"{path}: tensors {sorted(tensors)}")
    return tensors["kv_cache.k"][2] + tensors["kv_cache.v"][2]


def read_cells(path, layout, dump):
    """cells[K, L, B, S, H, D] of an output in a layout, or why not."""
    try:
        raw = plane_bytes(path)
    except (OSError, ValueError) as e:
        return None, str(e)
    if len(raw) != dump.nelements * dump.itemsize:
        return None, f"{len(raw)} bytes"
    bits = np.frombuffer(raw, oracle.UNSIGNED[dump.itemsize])
    return bits[cached_offsets(layout, dump.dims, dump.itemsize)], ""


def first_difference(got, want):
    where = np.argwhere(got != want)
    if not len(where):
        return ""
    k, l, b, s, h, d = where[0]
    return (f"{len(where)} of {got.size} elements; first at layer {l} block "
            f"{b} slot {s} head {h} k/v {k} element {d}: "
            f"{got[tuple(where[0])]:#x}, expected {want[tuple(where[0])]:#x}")


def judge(path, layout, dump, siblings, name, result):
    """One output: sibling, evaluator, truth."""
    if not tap.ok(result.code == 0, f"{name}: exit 0", result):
        return
    cells, why = read_cells(path, layout, dump)
    if cells is None:
        tap.ok(False, f"{name}: readable", why)
        return
    tap.ok(np.array_equal(cells, dump.cells), f"{name}: every element",
           first_difference(cells, dump.cells))
    if dump.tables:
        tap.ok(dump.is_true(cells), f"{name}: what the model computed")
    twin = siblings.get((dump.model, dump.folder, layout, dump.dtype))
    if twin:
        tap.ok(plane_bytes(path) == array_bytes(twin.path),
               f"{name}: same bytes as {os.path.basename(twin.path)}")


def targets_of(dump):
    if dump.latent:
        return sorted(LATENT)
    return [p for p in itertools.chain(ONE_PLANE, TWO_PLANES)
            if legal(p, dump.dims, dump.itemsize)]


def choose(dumps):
    """
    (dump, preset) pairs.  The short run deals the presets out in turn, so that
    each dump has some and each preset comes up on several dumps; the layouts
    of siblings always count, as they are checked against a file.
    """
    if FULL:
        return [(d, p) for d in dumps for p in targets_of(d)]
    pairs, next_of = [], {}
    for d in dumps:
        targets = targets_of(d)
        i = next_of.get(d.model, 0)
        step = 3 if d.model == "s260k" else 6
        mine = [targets[(i + j) % len(targets)] for j in range(step)]
        next_of[d.model] = i + step
        pairs += [(d, p) for p in dict.fromkeys(mine)]
    covered = {p for _, p in pairs}
    every = {p for d in dumps for p in targets_of(d)}
    for p in sorted(every - covered):
        pairs.append((next(d for d in dumps if p in targets_of(d)), p))
    return pairs


def check_pairs(dumps, siblings, tmp):
    """There as .npy, and back."""
    for n, (d, preset) in enumerate(choose(dumps)):
        there, back = f"{tmp}/{n}.npy", f"{tmp}/{n}.back.npy"
        name = f"{d.name} -> {preset}"
        verify = ["--verify"] if n % 4 == 0 else []
        judge(there, preset, d, siblings, name,
              kvtool("relayout", *verify, "--to", preset, "-o", there, d.path))
        r = kvtool("relayout", "--to", d.layout, "-o", back, there)
        good = r.code == 0 and array_bytes(back) == array_bytes(d.path)
        tap.ok(good, f"{name} -> {d.layout}: the first file again", r)
        for path in (there, back):
            for ending in ("", ".json"):
                leftover = path[:-4] + ending if ending else path
                if os.path.exists(leftover):
                    os.unlink(leftover)


def check_separate(dumps, siblings, tmp):
    """Keys and values in buffers of their own."""
    for n, d in enumerate(d for d in dumps if not d.latent):
        if n % 5 and not FULL:
            continue
        for preset in SEPARATE:
            there = f"{tmp}/s{n}.{preset}.safetensors"
            back = f"{tmp}/s{n}.{preset}.npy"
            name = f"{d.name} -> {preset} .safetensors"
            judge(there, preset, d, siblings, name,
                  kvtool("relayout", "--to", preset, "-o", there, d.path))
            r = kvtool("relayout", "--to", d.layout, "-o", back, there)
            good = r.code == 0 and array_bytes(back) == array_bytes(d.path)
            tap.ok(good, f"{name} -> {d.layout}: the first file again", r)


def check_refused(dumps):
    """A split that does not divide its axis must not be written."""
    for d in dumps:
        wrong = [p for p in TWO_PLANES if not legal(p, d.dims, d.itemsize)]
        if d.latent or not wrong:
            continue
        for p in wrong if FULL else wrong[:1]:
            r = kvtool("relayout", "--to", p, "-n", d.path)
            tap.ok(r.code in (2, 3, 4) and r.err, f"{d.name} -> {p}: refused", r)


def check_chains(dumps, siblings, tmp):
    """Through snapshots and safetensors; -o decides the format."""
    hops = itertools.cycle(itertools.product(SIX, (
        "kv-first-nhd", "blocks-first-hnd", "head-halves", "cross-kv-head",
        "hicache-page-first", "rocm-paged", "cpu-vec", "cross-head")))
    chosen = dumps if FULL else dumps[::2]
    for n, d in enumerate(chosen):
        a, b = ("mla", "mla-cross") if d.latent else next(hops)
        if not legal(b, d.dims, d.itemsize):
            b = "blocks-first-nhd"
        name = f"{d.name} -> .h5 -> {a} .h5 -> {b} .safetensors -> .npy"
        files = [f"{tmp}/c{n}.h5", f"{tmp}/c{n}.{a}.h5",
                 f"{tmp}/c{n}.safetensors", f"{tmp}/c{n}.npy"]
        steps = [("convert", d.path, files[0]),
                 ("relayout", "--to", a, "-o", files[1], files[0]),
                 ("relayout", "--to", b, "-o", files[2], files[1]),
                 ("convert", files[2], files[3])]
        for step in steps:
            r = kvtool(*step)
            if r.code != 0:
                break
        judge(files[3], b, d, siblings, name, r)
        if r.code == 0:
            tap.ok(plane_bytes(files[2]) == array_bytes(files[3]),
                   f"{name}: convert to .npy keeps the order")
        r = kvtool("relayout", "--to", d.layout, "--uncompressed", "-o",
                   f"{tmp}/c{n}.u.h5", files[1])
        if r.code == 0:
            r = kvtool("convert", f"{tmp}/c{n}.u.h5", f"{tmp}/c{n}.u.npy")
        good = (r.code == 0 and array_bytes(f"{tmp}/c{n}.u.npy") == array_bytes(d.path))
        tap.ok(good, f"{d.name} -> {a} .h5 -> uncompressed .h5 -> .npy: "
               "the first file again", r)


class Made:
    """A dump without a sidecar, described by options alone."""

    def __init__(self, path, dims, itemsize, dtype, seed):
        self.model, self.folder, self.layout = "made", "made", "nhd"
        self.name = os.path.basename(path)
        self.path, self.dims, self.itemsize = path, dims, itemsize
        self.dtype, self.tables, self.latent = dtype, {}, False
        self.nelements = int(np.prod(list(dims.values())))
        bits = np.random.default_rng(seed).integers(
            0, 1 << (8 * itemsize), self.nelements, dtype=np.uint64)
        bits = bits.astype(oracle.UNSIGNED[itemsize])
        write_bytes(path, bits.tobytes())
        self.cells = bits[preset_offsets("nhd", dims, itemsize)]

    def hints(self):
        d = self.dims
        return ["--layout", self.layout, "--dtype", self.dtype,
                "--layers", d["L"], "--blocks", d["B"],
                "--block-size", d["S"], "--heads", d["H"],
                "--head-dim", d["D"]]


def check_made(tmp):
    """Extents that differ, where every split fits, for 1, 2 and 4 bytes."""
    for itemsize, dtype in ((2, "bfloat16"), (1, "float8_e4m3fn"), (4, "float32")):
        made = Made(f"{tmp}/made{itemsize}.raw", GOLDEN_DIMS, itemsize, dtype, itemsize)
        targets = targets_of(made)
        if itemsize != 2 and not FULL:
            targets = [p for p in targets if p in TWO_PLANES]
        for preset in targets:
            out = f"{tmp}/made.{itemsize}.{preset}.npy"
            judge(out, preset, made, {}, f"{made.name} -> {preset}",
                  kvtool("relayout", *made.hints(), "--to", preset, "-o", out,
                         made.path))


def main(tmp):
    dumps = oracle.attention_dumps()
    siblings = {(d.model, d.folder, d.layout, d.dtype): d for d in dumps
                if not d.folder.startswith("tp")}
    check_golden()
    check_sources(dumps)
    check_pairs(dumps, siblings, tmp)
    check_separate(dumps, siblings, tmp)
    check_refused(dumps)
    check_chains(dumps, siblings, tmp)
    check_made(tmp)


oracle.run(main)
