#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_fit.py - what describe --fit says of fp8, in numpy; of other types, what diff says
of a dump that was written
"""
import os

import numpy as np

import oracle
from attention_model import stored
from diff_model import dump_side
from oracle import kvtool, refused, runs, tap, values


def figures(a, b):
    return (np.sqrt(((a - b) ** 2).sum() / (a * a).sum()), abs(a - b).max(),
            int(((b == 0) & (a != 0)).sum()))


def told(row):
    return row["rel_l2"], row["max_abs"], row["zeroed"]


def near(got, want):
    return np.allclose(got, want, rtol=1e-6)


def check_fp8(dump):
    side = dump_side(dump)
    a = np.concatenate([values(b, dump.dtype) for b in side.bits.values()])
    # [T, L, H, K, D]; the scale of a layer's keys, values is that of its live tokens
    scale = np.float32(abs(a).max(axis=(0, 2, 4), keepdims=True)) / np.float32(448)
    exact = (a.astype(np.float32) / scale).astype(float)
    b = stored(exact, "float8_e4m3fn")[1] * scale
    r = runs(f"{dump.name}: fits", "describe", "--json", "--fit=fp8=0.0268,fp8",
             dump.path)
    if r.code:
        return
    strict, usual = r.json["fit"]
    group = strict["groups"][0]
    layers = {(x["layer"], x["kv"]): x for x in group["layers"]}
    heads = {(x["layer"], x["head"]): x for x in group["heads"]}
    bad = [k for k in layers if not near(told(layers[k]),
                                         figures(a[:, k[0], :, k[1]], b[:, k[0], :, k[1]]))]
    bad += [k for k in heads if not near(told(heads[k]),
                                         figures(a[:, k[0], k[1]], b[:, k[0], k[1]]))]
    tap.ok(not bad and len(layers) == a.shape[1] * 2 and
           len(heads) == a.shape[1] * a.shape[2], f"{dump.name}: figures", bad)
    tap.ok(near(group["scales"], (scale.min(), scale.max())), f"{dump.name}: scales")
    rows = [*layers.values(), *heads.values()]
    tap.ok(all(x["holds"] == (x["rel_l2"] <= 0.0268) for x in rows) and
           strict["holds"] == all(x["holds"] for x in rows) and usual["holds"],
           f"{dump.name}: what holds", strict["holds"])
    power = (a * a).sum(axis=(0, 1, 2, 3))
    tap.ok(group["dim"] == power.argmax() and near(
        group["dim_times"], np.sqrt(power.max() / np.sort(power)[len(power) // 2])),
        f"{dump.name}: the dim of the greatest numbers")


def check_written(work, dump, type_):
    path = os.path.join(work, "cast.safetensors")
    r = kvtool("describe", "--json", f"--fit={type_}", dump.path)
    fit = r.json["fit"][0]
    made = kvtool("convert", "-q", "-f", f"--cache-dtype={type_}", "-o", path, dump.path)
    if made.code:
        tap.ok(fit["holds"] is None and fit["why"], f"{type_}: not possible", r)
        return
    if type_.startswith("nvfp4"):       # pages of planes are compared as numbers
        made = kvtool("convert", "-q", "-f", "--cache-dtype=float32", "-o",
                      path[:-12] + ".npy", path)
        path = path[:-12] + ".npy"
    said = kvtool("diff", "--json", "--no-diagnosis", "--exact", dump.path,
                  path).json["groups"][0]["lost"]["layers"]
    want = {(x["layer"], x["kv"]): told(x) for x in said}
    got = {(x["layer"], x["kv"]): told(x) for x in fit["groups"][0]["layers"]}
    tap.equal(got, want, f"{type_}: as of a dump that was written")


def main(work):
    dumps = {d.name: d for d in oracle.attention_dumps()}
    for name in ("s260k/paged_bs16/packed_nhd.bf16", "gqa64/paged_bs16/packed_nhd.bf16",
                 "s260k/paged_bs16/rocm_x.fp16"):
        if name in dumps:
            check_fp8(dumps[name])
    for type_ in ("q4_0/plain", "q8_0/plain", "nvfp4-plain", "nvfp4-sm100", "mlx-nvfp4",
                  "int4-per-token-head", "mlx-affine/4/64/bfloat16"):
        check_written(work, dumps["gqa64/paged_bs16/packed_nhd.bf16"], type_)
    for word, type_ in (("nvfp4", "nvfp4-plain"), ("int4", "q4_0/plain")):
        r = kvtool("describe", "--json", f"--fit={word}",
                   dumps["gqa64/paged_bs16/packed_nhd.bf16"].path)
        fit = r.json["fit"][0]
        tap.ok(fit["type"] == type_ and fit["holds"], f"{word} is {type_}", fit["type"])
    for wrong in ("fp9", "fp8=0", "fp8=x", "", "fp8,"):
        refused(f"--fit={wrong}: wrong command line", 2, "", "describe", f"--fit={wrong}",
                dumps["gqa64/paged_bs16/packed_nhd.bf16"] .path)


oracle.run(main)
