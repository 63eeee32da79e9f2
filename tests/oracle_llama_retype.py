#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_llama_retype.py - states of llama.cpp that get the types of their template: each
row is what numpy makes of the numbers, rotated and rounded as ggml does; what keeps its
type keeps its bytes; nothing of it happens unasked, and no rotation is guessed
"""
import json
import os
import random
import struct

import numpy as np

import oracle
from foreign_files import Cells, ggsn_bytes, ggsq_bytes, memory_bytes
from oracle import Dump, kvtool, read_bytes, refused, runs, tap, write_bytes
from oracle_content_types import ggml_bytes, sylvester
from oracle_llama_engine import State
from oracle_llama_write import in_pairs

IDS = {"f32": 0, "f16": 1, "bf16": 30, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7,
       "q8_0": 8, "iq4_nl": 20}
PLAIN = {"f32": "<f4", "f16": "<f2", "bf16": None}
NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
ROWS = 6


# ---- numpy's own ------------------------------------------------------------

def rotated(x, turn):
    """Rows [n, D], so many numbers together, in float64 and then float32."""
    if turn == 1:
        return x.astype("<f4")
    y = x.astype(float).reshape(-1, turn) @ sylvester(turn) / np.sqrt(turn)
    return y.reshape(x.shape).astype("<f4")


def row_bytes(x, name, turn):
    """[n, heads * D] as bytes [n, width]."""
    if name == "bf16":
        u = x.astype("<f4").view("<u4")
        return ((u + 0x7fff + (u >> 16 & 1)) >> 16).astype("<u2").view(np.uint8)
    if name in PLAIN:
        return x.astype(PLAIN[name]).view(np.uint8)
    return ggml_bytes(rotated(x, turn).reshape(-1, 32), name).reshape(len(x), -1)


def turn_of(dim, kv, name, said):
    """Of so many numbers together, by what is said of keys and values."""
    both = said == "hadamard"
    if name in PLAIN or dim % 64 or not (both or said == "kv"[kv]):
        return 1
    return 64 if kv else dim & -dim


# ---- files --------------------------------------------------------------------

def write(path, keys, values, kinds, elem=0):
    """[layers][rows] of bytes; a file of one sequence, or of all."""
    memory = memory_bytes([Cells([(p, [0]) for p in range(len(keys[0]))],
                                 [[r.tobytes() for r in x] for x in keys],
                                 [[r.tobytes() for r in x] for x in values],
                                 tuple(IDS[k] for k in kinds), elem=elem)])
    tokens = list(range(len(keys[0])))
    write_bytes(path,
                ggsq_bytes(memory, 3, tokens) if path.endswith("ggsq")
                else ggsn_bytes(memory, 10, tokens))
    return path


def like(path, width, layers, kinds, elem=0):
    """A template: two cells of zeros."""
    rows = [[np.zeros((2, len(row_bytes(np.zeros((1, width)), k, 1)[0])), np.uint8)] * layers
            for k in kinds]
    return write(path, *rows, kinds, elem)


def retype(source, template, out, *options):
    return kvtool("convert", "-f", "--verify", f"--format={template[-4:]}",
                  f"--template={template}", "--cache-dtype=template", *options, source, out)


def rows_of(path):
    """[keys, values][layers, tokens] as bytes"""
    cells = State(read_bytes(path), 1).of(0, 0)
    return [np.array([[np.frombuffer(x, np.uint8) for x in cells[p][kv]]
                      for p in sorted(cells)]).swapaxes(0, 1) for kv in (1, 2)]


def numbers(rng, layers, width):
    x = rng.standard_normal((2, layers, ROWS, width)) * 10 ** rng.uniform(
        -2, 1, (2, layers, ROWS, 1))
    x[0, 0, 0] = 0
    return x


# ---- to each type -------------------------------------------------------------

# numbers of a head, heads, types of the source, of the template, what is rotated
CASES = [
    (64, 2, ("f16", "f16"), ("q8_0", "q8_0"), "hadamard"),
    (64, 2, ("f16", "f16"), ("q8_0", "q8_0"), "none"),
    (128, 1, ("f32", "f32"), ("q4_0", "q8_0"), "hadamard"),
    (192, 2, ("f16", "bf16"), ("q5_1", "q4_1"), "hadamard"),
    (256, 1, ("bf16", "bf16"), ("iq4_nl", "q5_0"), "k"),
    (128, 2, ("f16", "f16"), ("q8_0", "f16"), "k"),
    (128, 2, ("f16", "f16"), ("f16", "q4_0"), "v"),
    (32, 2, ("f16", "f16"), ("q8_0", "q4_0"), None),
    (96, 2, ("f32", "f16"), ("q5_0", "q5_0"), None),
    (80, 2, ("f16", "f16"), ("q8_0", "q8_0"), None),
    (16, 4, ("f16", "f16"), ("q4_1", "f32"), None),
    (64, 2, ("f32", "f32"), ("f16", "bf16"), None),
    (64, 2, ("f32", "bf16"), ("bf16", "f16"), None),
]


def check_types(tmp):
    rng = np.random.default_rng(7)
    for i, (dim, heads, is_, to, said) in enumerate(CASES):
        form = "ggsn" if i % 3 == 2 else "ggsq"
        x = numbers(rng, 2, heads * dim)
        have = [row_bytes(x[kv].reshape(-1, heads * dim), is_[kv], 1).reshape(
            2, ROWS, -1) for kv in (0, 1)]
        path = write(f"{tmp}/is.ggsq", *have, is_)
        template = like(f"{tmp}/like.{form}", heads * dim, 2, to)
        out = f"{tmp}/out.{form}"
        what = f"{'/'.join(is_)} to {'/'.join(to)}, heads of {dim}, {said}"
        r = retype(path, template, out, f"--head-dim={dim}",
                   *([f"--rotation={said}"] if said else []))
        if not tap.ok(r.code == 0, f"{what}: is written", r):
            continue
        got = rows_of(out)
        for kv in (0, 1):
            # what the source's own type has left of the numbers
            y = read_plain(have[kv], is_[kv]).reshape(-1, heads * dim)
            want = row_bytes(y, to[kv], turn_of(dim, kv, to[kv], said))
            tap.ok(np.array_equal(got[kv].reshape(len(y), -1), want),
                   f"{what}: {('keys', 'values')[kv]} of {y.size} numbers",
                   f"{(got[kv].reshape(want.shape) != want).any(-1).sum()} rows differ")
        for kv in (0, 1):
            if is_[kv] != to[kv]:
                tap.ok(f"values changed: {NAMES[is_[kv]]} to {NAMES.get(to[kv], to[kv])}"
                       in r.out, f"{what}: {to[kv]} is said", r)


def read_plain(b, name):
    if name == "bf16":
        return (np.ascontiguousarray(b).view("<u2").astype("<u4") << 16).view("<f4")
    return np.ascontiguousarray(b).view(PLAIN[name])


def check_from_blocks(tmp):
    """Of blocks, whose basis is told: to other ones, to numbers, transposed."""
    rng = np.random.default_rng(8)
    blocks = [row_bytes(rng.standard_normal((2 * ROWS, 128)), "q8_0", 1).reshape(
        2, ROWS, -1) for _ in range(2)]
    path = write(f"{tmp}/is.ggsq", *blocks, ("q8_0", "q8_0"))
    b = [x.reshape(-1, 34) for x in blocks]
    stored = [(x[:, :2].copy().view("<f2").astype(float) *
               x[:, 2:].view(np.int8)).reshape(-1, 128) for x in b]
    plain = [rotated(stored[0], 64), rotated(stored[1], 64)]
    exact = [y.astype(float).reshape(-1, 64) @ sylvester(64) / 8 for y in stored]
    for to, elem, said in ((("f32", "f32"), 4, None), (("f16", "f16"), 2, None),
                           (("q4_0", "q8_0"), 0, "none"), (("q4_0", "q8_0"), 0, None)):
        template = like(f"{tmp}/like.ggsq", 128, 2, to, elem)
        r = retype(path, template, f"{tmp}/out.ggsq", "--heads=2", "--set=rotation=hadamard",
                   *([f"--rotation={said}"] if said else []))
        what = f"rotated q8_0 to {'/'.join(to)}, transposed {elem > 0}, {said}"
        if to[0] == "q4_0" and not said:
            tap.ok(r.code == 2 and "--rotation=hadamard" in r.err,
                   f"{what}: the build's rotation is not guessed", r)
            continue
        if not tap.ok(r.code == 0, f"{what}: is written", r):
            continue
        for kv, got in enumerate(rows_of(f"{tmp}/out.ggsq")):
            want = row_bytes(exact[kv].reshape(-1, 128) if to[kv] in PLAIN else plain[kv],
                             to[kv], 1)
            tap.ok(np.array_equal(got.reshape(want.shape), want), f"{what}: rows of {kv}")
    # keys of one type, whose basis nobody asks about, keep their bytes
    template = like(f"{tmp}/like.ggsq", 128, 2, ("q8_0", "f16"))
    r = retype(path, template, f"{tmp}/out.ggsq", "--heads=2", "--set=rotation=hadamard")
    tap.ok(r.code == 0 and np.array_equal(rows_of(f"{tmp}/out.ggsq")[0], blocks[0]) and
           "g0.k: values" not in r.out, "keys that keep their type keep their bytes", r)
    template = like(f"{tmp}/like.ggsq", 128, 2, ("q8_0", "q8_0"))
    r = retype(path, template, f"{tmp}/out.ggsq", "--heads=2")
    tap.ok(r.code == 0 and rows_of(f"{tmp}/out.ggsq")[1].tobytes() == blocks[1].tobytes() and
           "changed" not in r.out, "nothing changes where nothing has to", r)


def check_scales(tmp):
    """Numbers of fp8 are multiplied by its scales, and those are not kept."""
    x = numbers(np.random.default_rng(11), 2, 128)
    have = [row_bytes(x[kv].reshape(-1, 128), "f16", 1).reshape(2, ROWS, -1)
            for kv in (0, 1)]
    path = write(f"{tmp}/is.ggsq", *have, ("f16", "f16"))
    template = like(f"{tmp}/like.ggsq", 128, 2, ("q8_0", "f16"))
    got = []
    for args in (["--head-dim=64", "--cache-dtype=fp8", "--scale=auto-heads", path],
                 ["--cache-dtype=float32", f"{tmp}/0.h5"]):
        out = f"{tmp}/{len(got)}"
        runs("fp8 with scales, or its numbers", "convert", "-f", *args, out + ".h5")
        r = retype(out + ".h5", template, out + ".ggsq", "--rotation=none")
        if tap.ok(r.code == 0, "fp8 with scales, or its numbers: is written", r):
            got.append(open(out + ".ggsq", "rb").read())
    tap.ok(len(got) == 2 and got[0] == got[1], "fp8 with scales: the same as its numbers")


def check_kept(tmp):
    """What is no number keeps its bytes, too, in the half that is not asked for."""
    rng = np.random.default_rng(9)
    half = rng.integers(0, 1 << 16, (2, 2, ROWS, 64), dtype=np.uint16)
    half[1] = rng.standard_normal((2, ROWS, 64)).astype("<f2").view("<u2")
    path = write(f"{tmp}/is.ggsq", *half.view(np.uint8), ("f16", "f16"))
    template = like(f"{tmp}/like.ggsq", 64, 2, ("f16", "q8_0"))
    r = retype(path, template, f"{tmp}/out.ggsq", "--heads=2", "--json")
    tap.ok(r.code == 0 and rows_of(f"{tmp}/out.ggsq")[0].tobytes() == half[0].tobytes(),
           "keys of any bits are moved", r)
    groups = json.loads(r.out)["groups"] if r.code == 0 else []
    tap.equal([g.get("cast") for g in groups], [None, "float16 to q8_0/plain"],
              "and JSON says which changed")


def check_foreign(tmp):
    """Of another engine keys are put in order first."""
    base = f"{oracle.DATA}/s260k/paged_bs16/kv_first_nhd.bf16"
    dump = Dump("s260k", base + ".json")
    layers, dim, heads = dump.dims["L"], dump.dims["D"], dump.dims["H"]
    name = list(dump.tables)[1]
    tokens = dump.tokens(dump.cells, name)
    for order in "pairs", "halves":
        template = like(f"{tmp}/like.ggsq", heads * dim, layers, ("q8_0", "bf16"))
        out = f"{tmp}/out.ggsq"
        r = retype(base + ".npy", template, out, f"--key-order={order}",
                   f"--request={name}")
        if not tap.ok(r.code == 0, f"a dump of vLLM, keys in {order}: is written", r):
            continue
        got = rows_of(out)
        for kv in (0, 1):
            rows = [tokens[kv, layer, p].tobytes() for layer in range(layers)
                    for p in range(dump.ntokens[name])]
            if order == "pairs" and not kv:
                rows = [in_pairs(x, dim) for x in rows]
            b = np.array([np.frombuffer(x, np.uint8) for x in rows])
            want = b if kv else row_bytes(read_plain(b, "bf16"), "q8_0", 1)
            tap.ok(np.array_equal(got[kv].reshape(want.shape), want),
                   f"a dump of vLLM, keys in {order}: {('keys', 'values')[kv]}")


# ---- what is refused --------------------------------------------------------------

def check_refusals(tmp):
    rng = np.random.default_rng(10)
    x = numbers(rng, 2, 128)
    plain = write(f"{tmp}/plain.ggsq", *(row_bytes(a.reshape(-1, 128), "f32", 1).reshape(
        2, ROWS, -1) for a in x), ("f32", "f32"))
    x[1, 1, 2, 5] = np.inf
    with np.errstate(over="ignore"):
        odd = write(f"{tmp}/odd.ggsq", *(row_bytes(a.reshape(-1, 128), "f32", 1).reshape(
            2, ROWS, -1) for a in x), ("f32", "f32"))
        x[1, 1, 2, 5] = 1e38
        big = write(f"{tmp}/big.ggsq", *(row_bytes(a.reshape(-1, 128), "f32", 1).reshape(
            2, ROWS, -1) for a in x), ("f32", "f32"))
    q8 = like(f"{tmp}/q8.ggsq", 128, 2, ("q8_0", "q8_0"))
    f16 = like(f"{tmp}/f16.ggsq", 128, 2, ("f16", "f16"))
    q8_again = like(f"{tmp}/again.ggsq", 128, 2, ("q8_0", "q8_0"))
    few, out = like(f"{tmp}/few.ggsq", 96, 2, ("q8_0", "q8_0")), f"{tmp}/no.ggsq"
    asked = "--cache-dtype=template"
    for code, says, source, template, more in (
            (4, "--cache-dtype=template to write other numbers", plain, q8, []),
            (2, "does not say whether its build rotates keys of q8_0", plain, q8, [asked]),
            (2, "expected none, hadamard", plain, q8, [asked, "--rotation=q"]),
            (2, "types have their own scales", plain, q8, [asked, "--scale=1"]),
            (2, "is for --cache-dtype=template", plain, q8, ["--rotation=none"]),
            (3, "is not said", q8_again, q8, [asked, "--rotation=none"]),
            (3, "is not said", q8_again, f16, [asked]),
            (3, "hold none such", odd, q8, [asked, "--rotation=none"]),
            (3, "too large for the scales of q8_0", big, q8, [asked, "--rotation=none"]),
            (3, "which float16 cannot hold", big, f16, [asked]),
            (3, "of two models", plain, few, [asked, "--rotation=none"]),
            (3, "cannot be rotated by 128", plain, q8, [asked, "--rotation=k128"]),
            (2, "needs --template=STATE", plain, None, [asked])):
        r = kvtool("convert", "--format=ggsq", "--heads=2", "-o", out, *more,
                   *([f"--template={template}"] if template else []), source)
        tap.ok(r.code == code and says in r.err and not os.path.exists(out),
               f"status {code}, {says}", r)
    refused("not of .npy", 2, "takes its types from no template", "convert", asked,
            "--heads=2", plain, f"{tmp}/no.npy")


def check_damage(tmp):
    """A damaged template, or source, is refused or fits: no crash."""
    path = write(f"{tmp}/is.ggsq", *np.random.default_rng(1).integers(
        0, 60, (2, 1, ROWS, 128), dtype=np.uint8), ("f16", "f16"))
    template = like(f"{tmp}/like.ggsq", 64, 1, ("q8_0", "q4_0"))
    crashed = []
    for seed in range(60 if not os.environ.get("KVT_FULL") else 2000):
        rng = random.Random(seed)
        bad = bytearray(read_bytes(template))
        at = rng.randrange(len(bad) - 4)
        if seed % 2:
            struct.pack_into("<I", bad, at // 4 * 4, rng.choice([0, 1, 2, 8, 30, 1 << 31]))
        else:
            bad[at] = rng.randrange(256)
        write_bytes(f"{tmp}/bad.ggsq", bad)
        r = retype(path, f"{tmp}/bad.ggsq", f"{tmp}/out.ggsq", "--heads=1",
                   "--rotation=hadamard")
        if r.code not in (0, 2, 3, 4) or not r.err != (r.code == 0):
            crashed.append(f"{seed}: {r}")
    tap.ok(not crashed, "a damaged template is refused, or fits", "\n".join(crashed[:2]))


oracle.run(check_types, check_from_blocks, check_scales, check_kept, check_foreign,
           check_refusals, check_damage)
