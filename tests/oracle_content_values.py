#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_content_values.py - the numbers of packed contents, against numpy

content_model.py reads every number from the documented bytes; --stats and --peek
must see the same ones, in any layout and format, and diff must compare them.
"""
import math
import random

import h5py
import numpy as np

import content_model as model
from oracle import kvtool, place, refused, run, runs, sizes, tap, unprove, write_json
from oracle_content import Packed
from oracle_content_types import ggml


def near(a, b):
    return a is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-300)


def same(got, want):
    """What JSON says of numbers: 15 digits."""
    return len(got) == len(want) and \
        all(g is not None and math.isclose(g, w, rel_tol=1e-14) for g, w in zip(got, want))


def same_runs(got, want):
    return [g[:2] for g in got] == [w[:2] for w in want] and \
        all(same(g[2], w[2]) for g, w in zip(got, want))


def said(path, *options):
    r = kvtool("describe", "--json", *options, path)
    return (r.json if r.code == 0 else None), r


# ---- statistics -------------------------------------------------------------

def check_stats(name, d, path, *options):
    """d.values are [K, L, B, S, H, numbers]."""
    out, r = said(path, "--stats", *options)
    if not tap.ok(out, f"{name}: has statistics", r):
        return
    rows = iter(out["groups"][0]["stats"])
    good = True
    for l in range(d.L):
        for h in range(d.H):
            for k in range(d.K):
                v, row = d.values[k, l, :, :, h], next(rows)
                for key, want in (("min", v.min()), ("max", v.max()),
                                  ("mean", v.mean()), ("std", v.std())):
                    good &= near(row[key], want)
                good &= row["nan"] == 0 and row["inf"] == 0
    tap.ok(good, f"{name}: each head has numpy's", out["groups"][0]["stats"][:2])


# ---- places -----------------------------------------------------------------

def check_peek(name, d, path, rng, rows=1, *options):
    """Some places at once; what the first number is follows from dim."""
    asked, want = [], []
    for _ in range(12):
        at = [rng.randrange(n) for n in (d.K, d.L, d.B, d.S, d.H)]
        row, fields = rng.randrange(rows), d.fields
        dim, count = rng.randrange(sum(fields.values())), rng.randrange(1, 40)
        numbers = d.values[tuple(at)].reshape(rows, -1)[row]
        begin, runs = 0, []
        for field, n in fields.items():
            if dim < n:
                runs.append((field, dim, numbers[begin + dim:begin + n][:count].tolist()))
            begin += n
        text = f"layer={at[1]},block={at[2]},slot={at[3]},head={at[4]},dim={dim}"
        text += f",count={count}" + (f",row={row}" if rows > 1 else "")
        text += ",kv=" + "kv"[at[0]] if d.K == 2 else ""
        asked.append(f"--peek={text}")
        want.append(runs)
    out, r = said(path, *asked, *options)
    if not tap.ok(out, f"{name}: can be looked into", r):
        return
    got = [[(f["name"], f["first"], f["values"]) for f in p["fields"]
            if f["name"] in d.fields] for p in out["peeks"]]
    tap.ok(len(got) == len(want) and all(map(same_runs, got, want)) and
           all(p["raw"] is None for p in out["peeks"]),
           f"{name}: 12 places hold numpy's numbers", f"{got}\n{want}"[:900])


def check_missing(d, path):
    """What is not said is the first; a token is found by its request."""
    out, r = said(path, "--peek=layer=1")
    tap.ok(out and same(out["peeks"][0]["fields"][0]["values"],
                        d.values[0, 1, 0, 0, 0, :8]), "the first of all but the layer", r)
    for text, says in (("dim=576", "expected 0 to 575"), ("row=1", "row is 1"),
                       ("count=5000", "expected 0 to 4096"), ("byte=1", "no key 'byte'"),
                       ("layer", "expected KEY=VALUE"), ("kv=k", "not keys and values")):
        refused(f"--peek={text} is refused", 2, says, "describe", f"--peek={text}", path)


def check_tokens(tmp):
    """The row of a page of planes that holds a token of a request."""
    rng = np.random.default_rng(8)
    d = Packed("dsv4-c4a/e4m3fn", *model.dsv4(rng, 1, 5, 8, "e4m3fn"),
               tokens_per_slot=32, block_table={"A": [3, 1, 4]}, num_tokens={"A": 90},
               kind="mla")
    d.said["sizes"] = sizes(L=1, B=5, S=32, H=1, C=d.D)
    path, good = d.write(f"{tmp}/tokens.npy", "mla"), True
    for token in (0, 3, 4, 31, 32, 45, 89):
        out, r = said(path, f"--peek=request=A,token={token},count=3")
        block, row = [3, 1, 4][token // 32], token % 32 // 4
        peek = out["peeks"][0] if out else {"block": r}
        good &= (peek["block"], peek["row"]) == (block, row) and \
            same(peek["fields"][0]["values"], d.values[0, block, row, :3])
    tap.ok(good, "a token is in a row of a page", r)


def check_scale(tmp):
    """fp8 of one scale for keys and one for values, given by the user."""
    rng = np.random.default_rng(33)
    cells = model.some_fp8(rng, (2, 2, 3, 16, 2, 8))
    d = Packed("", cells, model.FP8["e4m3fnuz"](cells) *
               np.reshape([0.5, 0.0625], (2, 1, 1, 1, 1, 1)),
               dtype="float8_e4m3fnuz", kind="full_attention")
    d.fields = {"values": 8}
    path = d.write(f"{tmp}/fp8.npy", "hnd")
    check_stats("--scale", d, path, "--scale=0.5,0.0625")
    check_peek("--scale", d, path, random.Random(1), 1, "--scale=0.5,0.0625")
    kvtool("slice", "-f", "--component=v", "-o", f"{tmp}/half.npy", path)
    half = Packed("", cells[1:], d.values[1:])
    check_stats("--scale, values alone", half, f"{tmp}/half.npy", "--scale=0.5,0.0625")
    for text in ("0", "1,2,3", "x"):
        refused(f"--scale={text} is refused", 2, "--scale is", "describe",
                f"--scale={text}", path)


# ---- what cannot be read ----------------------------------------------------

def check_unreadable(tmp):
    rng = np.random.default_rng(9)
    for name, K, D, H in (("q8_0", 2, 68, 4), ("turboquant-3bit-nc", 1, 78, 4)):
        d = Packed(name, *model.opaque(rng, K, 1, 2, 16, H, D), kind="full_attention")
        path = d.write(f"{tmp}/raw.npy", "nhd")
        r = kvtool("describe", "--stats", path)
        tap.ok((r.code, "cannot be read" in r.err, "rotated" in r.err) in
               ((4, True, False), (3, False, True)), f"{name}: no statistics", r)
        out, r = said(path, "--peek=block=1,head=2,slot=3,count=4")
        if name.startswith("turbo"):
            tap.ok(out and "no power of two" in out["peeks"][0]["raw"], "or why", r)
            continue
        want = d.cells[0, 0, 1, 3, 2, 2:6].view(np.int8).tolist()
        fields = out["peeks"][0]["fields"] if out else []
        tap.ok([f["name"] for f in fields] == ["scales", "values"] and
               fields[1]["values"] == want and "rotated" in out["peeks"][0]["raw"],
               f"{name}: but its bytes", r)
    d = Packed("fp8-per-token-head", *model.opaque(rng, 2, 1, 2, 16, 2, 12),
               kind="full_attention")
    refused("fp8 of no flavour", 3, "unknown fp8 type", "describe", "--stats",
            d.write(f"{tmp}/which.npy", "nhd"))


# ---- differences ------------------------------------------------------------

def write_bf16(path, values, layout):
    """values[K, L, B, S, H, D] as a dump of bfloat16; returns what it holds."""
    bits = model.to_bf16(values)
    K, L, B, S, H, D = values.shape
    np.save(path, np.frombuffer(place(bits, layout, 2), "<u2"))
    write_json(path[:-4] + ".json",
               {"layout": layout, "dtype": "bfloat16",
                "sizes": {"layers": L, "num_blocks": B, "block_size": S,
                          "num_kv_heads": H, "head_dim" if K == 2 else "content": D},
                "kind": "full_attention" if K == 2 else "mla"})
    return model.bf16(bits.view(np.uint8)).reshape(values.shape)


def compared(a, b, *options):
    r = kvtool("diff", "--json", *options, a, b)
    return (r.json["groups"][0] if r.out.startswith("{") else None), r


def check_metrics(name, a, b, va, vb):
    """Every number of both, as float64."""
    out, r = compared(a, b, "--exact")
    if not tap.ok(out and r.code == 1, f"{name}: differ exactly", r):
        return
    d = va - vb
    want = {"different": int((va != vb).sum()), "max_abs": np.abs(d).max(),
            "rel_l2": math.sqrt((d * d).sum() / (va * va).sum())}
    got = out["metrics"]
    tap.ok(out["elements"] == va.size and got["different"] == want["different"] and
           near(got["max_abs"], want["max_abs"]) and near(got["rel_l2"], want["rel_l2"]),
           f"{name}: by as much as numpy says", f"{got}\n{want}"[:700])


def check_rounding(name, d, path, other, at, byte):
    """What was rounded once is within; a scale that is off is found."""
    r = runs(f"{name}: within its rounding", "diff", "--tolerance=auto", path, other)
    refused(f"{name}: or says how to", 3, "--tolerance=auto", "diff", path, other)
    cells = d.cells.copy()
    cells[at][byte:byte + 4] = (model.f32(cells[at][byte:byte + 4]) * 1.5) \
        .astype("<f4").view(np.uint8)
    bad = d.write(path[:-4] + ".bad.npy", "mla" if d.K == 1 else "hnd", cells)
    out, r = compared(bad, other, "--tolerance=auto")
    where = out["first"] if out and r.code == 1 else None
    tap.ok(where and (where["layer"], where["a"]["block"], where["a"]["slot"]) ==
           (at[1], at[2], at[3]), f"{name}: a wrong scale is found", r)
    r = kvtool("diff", "--quiet", path, bad)
    tap.ok(r.code == 1, f"{name}: also by its bytes", r)


def check_diff(tmp):
    rng = np.random.default_rng(31)
    t = rng.standard_normal((1, 2, 3, 16, 1, 576)) * rng.uniform(0.1, 9, (1, 2, 3, 16, 1, 1))
    vb = write_bf16(f"{tmp}/mla.npy", t, "mla")
    for flavour in ("e4m3fn", "e5m2fnuz"):
        name = f"fp8-ds-mla/{flavour}"
        cells = model.quantised_ds_mla(t, flavour)
        n = cells.shape[:-1]
        va = model.FP8[flavour](cells[..., :512]).reshape(n + (4, 128)) * \
            model.f32(cells[..., 512:528]).reshape(n + (4, 1))
        va = np.concatenate([va.reshape(n + (512,)),
                             model.bf16(cells[..., 528:].copy()).reshape(n + (64,))], -1)
        d = Packed(name, cells, va, kind="mla")
        path = d.write(f"{tmp}/ds.npy", "mla-cross")
        check_metrics(name, path, f"{tmp}/mla.npy", va, vb)
        check_rounding(name, d, path, f"{tmp}/mla.npy", (0, 1, 2, 7, 0), 516)
    t = rng.standard_normal((2, 2, 3, 16, 4, 24))
    vb = write_bf16(f"{tmp}/gqa.npy", t, "nhd")
    cells = model.quantised_int8(t)
    va = cells[..., :24].view(np.int8) * model.f32(cells[..., 24:].copy())
    d = Packed("int8-per-token-head", cells, va, kind="full_attention")
    path = d.write(f"{tmp}/int8.npy", "kv-first-nhd")
    check_metrics("int8", path, f"{tmp}/gqa.npy", va, vb)
    check_rounding("int8", d, path, f"{tmp}/gqa.npy", (1, 0, 1, 3, 2), 24)


def check_same_numbers(tmp):
    """Twice the scale and half the numbers: other bytes, equal to --exact."""
    rng = np.random.default_rng(32)
    cells, _ = model.ds_mla(rng, 1, 2, 16, "e4m3fn")
    a = Packed("fp8-ds-mla", cells, None, kind="mla")
    # numbers that stay normal when halved
    cells[..., :512] = rng.integers(0x10, 0x7e, cells[..., :512].shape)
    twice = cells.copy()
    twice[..., :512] -= 8
    twice[..., 512:528] = (model.f32(cells[..., 512:528]) * 2).astype("<f4") \
        .view(np.uint8)
    a.write(f"{tmp}/once.npy", "mla")
    a.write(f"{tmp}/twice.npy", "mla", twice)
    r = kvtool("diff", "--exact", f"{tmp}/once.npy", f"{tmp}/twice.npy")
    tap.ok(r.code == 0, "other bytes, equal numbers: --exact", r)
    r = kvtool("diff", f"{tmp}/once.npy", f"{tmp}/twice.npy")
    tap.ok(r.code == 1, "other bytes, equal numbers: bytes differ", r)
    runs("equal bytes", "diff", f"{tmp}/once.npy", f"{tmp}/once.npy")
    bare = f"{tmp}/bare.h5"
    kvtool("convert", "-f", "-q", f"{tmp}/twice.npy", bare)
    with h5py.File(bare, "a") as f:
        unprove(f)
        del f["groups/g0"].attrs["content_type"]
    refused("numbers and bytes", 3, "give --content-type", "diff", "--exact",
            f"{tmp}/once.npy", bare)
    r = kvtool("diff", "--exact", "--content-type=fp8-ds-mla", f"{tmp}/once.npy", bare)
    tap.ok(r.code == 0, "bytes that are told to be numbers", r)
    d = Packed("mla-per-token-head", cells, None, kind="mla")
    d.write(f"{tmp}/packed.npy", "mla")
    refused("nobody knows these numbers", 4, "cannot be read", "diff", "--exact",
            f"{tmp}/once.npy", f"{tmp}/packed.npy")
    r = kvtool("diff", f"{tmp}/packed.npy", f"{tmp}/packed.npy")
    tap.ok(r.code == 0, "but that their bytes are equal", r)


def main(tmp):
    rng, draw = np.random.default_rng(30), random.Random(30)
    made = [("fp8-ds-mla", model.ds_mla(rng, 2, 3, 16, "e4m3fn"), "mla", 1,
             {"nope": 512, "rope": 64}),
            ("fp8-ds-mla/e5m2fnuz", model.ds_mla(rng, 2, 3, 16, "e5m2fnuz"), "mla", 1,
             {"nope": 512, "rope": 64}),
            ("int8-per-token-head",
             model.per_token_head(rng, 2, 3, 16, 2, 30, "int8"), "hnd", 1,
             {"values": 30})]
    made += [(f"fp8-per-token-head/{f}",
              model.per_token_head(rng, 1, 3, 16, 2, 13, f), "bhlsc", 1,
              {"values": 13}) for f in model.FP8]
    for name in ("q5_1", "q8_0"):
        (cells,), values = ggml(rng, 384, 96, name)
        shape = (2, 2, 3, 16, 2, -1)
        made.append((name, (cells.reshape(shape), values.reshape(shape)), "hnd", 1,
                     {"values": 96}))
    for name, (cells, values), layout, rows, fields in made:
        d = Packed(name, cells, values, kind="mla" if layout == "mla" else
                   "full_attention")
        d.fields = fields
        path = d.write(f"{tmp}/d.npy", layout)
        kvtool("convert", "-f", "-q", path, f"{tmp}/d.h5")
        for p in (path, f"{tmp}/d.h5"):
            check_stats(f"{name} {p[-4:]}", d, p)
            check_peek(f"{name} {p[-4:]}", d, p, draw)
        if name == "fp8-ds-mla":
            check_missing(d, path)
    for name, make, fields in (
            ("indexer/e4m3fnuz", model.indexer, {"values": 128}),
            ("dsv4-swa/e4m3fn", model.dsv4, {"nope": 448, "rope": 64})):
        cells, values = make(rng, 2, 3, 16, name.split("/")[1])
        d = Packed(name, cells, values.reshape(1, 2, 3, 1, 1, -1))
        d.fields = fields
        np.save(f"{tmp}/rows.npy", cells.reshape(2, 3, 16, -1))
        kvtool("convert", "-f", "-q", "--layout=mla", f"--content-type={name}",
               "--block-size=16", f"{tmp}/rows.npy", f"{tmp}/d.h5")
        check_stats(name, d, f"{tmp}/d.h5")
        check_peek(name, d, f"{tmp}/d.h5", draw, rows=16)
    check_tokens(tmp)
    check_diff(tmp)
    check_same_numbers(tmp)
    check_scale(tmp)
    check_unreadable(tmp)


run(main)
