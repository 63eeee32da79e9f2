#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Numbers as another type, against the definition of the types in exact integers.

A float32 is an integer times a power of two, and so is each number of a smaller float:
a table of all numbers of a type, in ascending order, and of the middles between them,
says what is nearest, and to which even code a middle goes (encoder_model.py).  Nothing is
shared with the program, which works on the bits of exponents.

All 65,536 bfloat16 and float16, and random patterns of float32 (KVT_FULL: 10^7),
go through a dump; then scales by tensor and head, other layouts, and back.  Contents are
those of oracle_encoders.py.
"""
import json
import os
import struct

import numpy as np

from encoder_model import ALL as KINDS
from oracle import FULL, array_bytes, kvtool, manifest_in, run, tap

ALL = {n: t for n, t in KINDS.items() if t.bits > 4}


def as_float(words: np.ndarray, name: str) -> np.ndarray:
    return words.view(np.float32) if name == "float32" else ALL[name].decode(words)


def encode(x: np.ndarray, name: str) -> np.ndarray:
    return x.view(np.uint32) if name == "float32" else ALL[name].encode(x)


def same(a: np.ndarray, b: np.ndarray, name: str) -> bool:
    """Bit for bit; of float32 a NaN is a NaN, whatever else it carries."""
    if name == "float32":
        nan = np.isnan(a.view(np.float32)) & np.isnan(b.view(np.float32))
        return bool(np.all(nan | (a == b)))
    return bool(np.array_equal(a, b))


WORD = {"float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16,
        "uint8": np.uint8, **{n: np.uint8 for n in ALL if n.startswith("float8")}}
def read_words(path: str, name: str) -> np.ndarray:
    """All elements of a dump in LBSHKD, by safetensors' own header."""
    out = path + ".st"
    r = kvtool("relayout", "--to=LBSHKD", "--format=safetensors", "--force", path, out)
    assert r.code == 0, r.err
    return np.frombuffer(array_bytes(out), WORD[name])


def dump_of(folder: str, name: str, words: np.ndarray, shape, what: str) -> str:
    raw, out = (os.path.join(folder, what + e) for e in (".bin", ".h5"))
    L, B, S, H, K, D = shape
    words.tofile(raw)
    r = kvtool("convert", "--format=hdf5", "--uncompressed", "--force", "--layout=LBSHKD",
               "--dtype=" + name, "--layers=%d" % L, "--blocks=%d" % B,
               "--block-size=%d" % S, "--heads=%d" % H, "--head-dim=%d" % D, raw, out)
    assert r.code == 0, r.err
    return out


def inputs(rng: np.random.Generator, name: str) -> np.ndarray:
    if name == "float32":
        n = (10 ** 7 if FULL else 1 << 18) // 16384 * 16384
        return rng.integers(0, 1 << 32, n, dtype=np.uint32)
    bits = 16 if WORD[name] == np.uint16 else 8
    words = np.arange(1 << bits, dtype=np.uint32).astype(WORD[name])
    return np.tile(words, 1 if bits == 16 else 64)


def each_pair(folder: str, rng: np.random.Generator) -> None:
    for source in list(ALL) + ["float32"]:
        words = inputs(rng, source)
        shape = (len(words) // 16384, 4, 16, 2, 2, 64)
        path = dump_of(folder, source, words, shape, source)
        x = as_float(words, source)
        for target in list(ALL) + ["float32"]:
            out = os.path.join(folder, "to.h5")
            scale = (0.0371, 1.7) if target.startswith("float8") else (1.0, 1.0)
            args = ["--scale=%r,%r" % scale] if target.startswith("float8") else []
            if source.startswith("float8"):
                args += ["--from-scale=1"]
            r = kvtool("convert", "--verify", "--force", "--cache-dtype=" + target, *args,
                       path, out)
            if r.code:
                tap.ok(False, "%s to %s: %s" % (source, target, r.err.strip()))
                continue
            by = np.tile(np.repeat(np.array(scale, np.float32), 64), len(words) // 128)
            with np.errstate(all="ignore"):
                wanted = words if source == target and not args else \
                    encode((x / by).astype(np.float32), target)
            got = read_words(out, target)
            tap.ok(same(got, wanted, target),
                   "%s to %s: all %d" % (source, target, len(words)))


def idempotent(folder: str, rng: np.random.Generator) -> None:
    words = inputs(rng, "bfloat16")
    path = dump_of(folder, "bfloat16", words, (4, 4, 16, 2, 2, 64), "again")
    for target in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"):
        first, back, second = (os.path.join(folder, n) for n in ("1.h5", "2.h5", "3.h5"))
        r = [kvtool("convert", "--force", "--cache-dtype=" + target, "--scale=0.25", path,
                    first),
             kvtool("convert", "--force", "--cache-dtype=bfloat16", first, back),
             kvtool("convert", "--force", "--cache-dtype=" + target, "--scale=0.25", back,
                    second)]
        good = not any(x.code for x in r)
        tap.ok(good and
               same(read_words(first, target), read_words(second, target), target),
               "%s: there, back and there again is once there" % target)


def scales(folder: str, rng: np.random.Generator) -> None:
    L, B, S, H, K, D = shape = (3, 5, 8, 4, 2, 16)
    x = rng.standard_normal(shape).astype(np.float32) * \
        np.exp(rng.standard_normal((L, 1, 1, H, K, 1)) * 2).astype(np.float32)
    words = ALL["bfloat16"].encode(x)
    x = ALL["bfloat16"].decode(words)
    path = dump_of(folder, "bfloat16", words, shape, "scaled")
    for how, axes in (("auto", (1, 2, 3, 5)), ("auto-heads", (1, 2, 5))):
        for layout in ("LBSHKD", "hnd", "K L B H D S", "L B K H D/8 S D%8",
                       "K:L K B H D/x S x V:L K B H D S"):
            out = os.path.join(folder, "s.h5")
            r = kvtool("relayout", "--to=" + layout, "--force", "--verify",
                       "--cache-dtype=fp8", "--scale=" + how, path, out)
            if r.code:
                tap.ok(False, "%s in %s: %s" % (how, layout, r.err.strip()))
                continue
            most = np.abs(x).max(axis=axes, keepdims=True)
            scale = (most / np.float32(448)).astype(np.float32)
            wanted = ALL["float8_e4m3fn"].encode(
                (x / np.broadcast_to(scale, x.shape)).astype(np.float32))
            got = read_words(out, "float8_e4m3fn").reshape(wanted.shape)
            said = manifest_of(out + ".st")
            heads = H if how == "auto-heads" else 1
            told = np.array(said["scales"], np.float32)
            good = np.array_equal(got, wanted) and said["from"] == "bfloat16" and \
                np.array_equal(told, scale[:, 0, 0, :, :, 0].transpose(0, 2, 1)
                               .reshape(L, 2, heads))
            tap.ok(good, "%s in %s: bytes, and what the manifest says" % (how, layout))
    back = os.path.join(folder, "b.h5")
    kvtool("convert", "--force", "--cache-dtype=float32", out, back)
    wanted = (ALL["float8_e4m3fn"].decode(got) * np.broadcast_to(scale, x.shape))
    tap.ok(np.array_equal(read_words(back, "float32").view(np.float32).reshape(x.shape),
                          wanted.astype(np.float32)),
           "scales of heads multiply it back")
    r = kvtool("diff", "--tolerance=auto", path, out)
    tap.ok(r.code == 0, "diff --tolerance=auto takes the scales: " + r.err.strip())
    for file, said in ((path, []), (out, ["bfloat16 to float8_e4m3fn, "])):
        got = kvtool("digest", "--json", file).json["digests"][0]["casts"]
        tap.ok(len(got) == len(said) and all(g.startswith(s) for g, s in zip(got, said)),
               "digest says what was cast: %s" % got)
    part = os.path.join(folder, "p.h5")
    r = kvtool("slice", "--layers=1:2", "--heads=1:2", "--force", "-o", part, out)
    kvtool("convert", "--force", "--cache-dtype=float32", part, back)
    tap.ok(r.code == 0 and
           np.array_equal(read_words(back, "float32").view(np.float32),
                          wanted[1:2, :, :, 1:2].astype(np.float32).reshape(-1)),
           "a slice keeps the scales of its layer and head")


def manifest_of(path: str):
    m = manifest_in(path)
    return m["cast"] if "cast" in m else m["groups"][0]["cast"]


def refusals(folder: str, rng: np.random.Generator) -> None:
    fp8 = dump_of(folder, "float8_e4m3fn", inputs(rng, "float8_e4m3fn"),
                  (1, 4, 16, 2, 2, 64), "r8")
    bf = dump_of(folder, "bfloat16", inputs(rng, "bfloat16"), (4, 4, 16, 2, 2, 64), "rb")
    out = os.path.join(folder, "no.h5")
    for status, what, args in (
            (2, "does not say its scale", ["--cache-dtype=bf16", fp8]),
            (2, "expected --scale", ["--cache-dtype=fp8", bf]),
            (2, "no scale beside it", ["--cache-dtype=bf16", "--scale=2", bf]),
            (2, "and --cache-dtype", ["--scale=2", bf]),
            (2, "neither an element type", ["--cache-dtype=fp9", bf]),
            (4, "not written as", ["--cache-dtype=int8", bf]),
            (3, "not all finite", ["--cache-dtype=fp8", "--scale=auto", bf])):
        r = kvtool("convert", *args, out)
        tap.ok(r.code == status and what in r.err and not os.path.exists(out),
               "refused: %s (%d, %s)" % (what, r.code, r.err.strip()[:100]))


def files(folder: str, rng: np.random.Generator) -> None:
    shape = (2, 2, 4, 2, 2, 16)
    x = rng.standard_normal(shape).astype(np.float32)
    path = dump_of(folder, "float32", x.view(np.uint32).reshape(-1), shape, "f")
    k, v = np.array([.5, .25], np.float32), np.array([2, 4], np.float32)
    st = os.path.join(folder, "model.safetensors")
    header, data = {}, b""
    for l in range(2):
        for n, t in (("k", k), ("v", v)):
            header["model.layers.%d.self_attn.attn.%s_scale" % (l, n)] = {
                "dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
            data += t[l].tobytes()
    text = json.dumps(header).encode()
    open(st, "wb").write(struct.pack("<Q", len(text)) + text + data)
    js = os.path.join(folder, "scales.json")
    json.dump({"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn",
               "scaling_factor": {"0": {"0": 0.5, "1": 0.25}}}}, open(js, "w"))
    out = os.path.join(folder, "o.h5")
    for file, kv in ((st, np.stack([k, v], 1)), (js, np.stack([k, k], 1))):
        r = kvtool("convert", "--force", "--verify", "--cache-dtype=fp8",
                   "--scale=" + file, path, out)
        by = kv.reshape(2, 1, 1, 1, 2, 1)
        wanted = ALL["float8_e4m3fn"].encode((x / by).astype(np.float32)).reshape(-1)
        tap.ok(r.code == 0 and np.array_equal(read_words(out, "float8_e4m3fn"), wanted),
               "scales from %s %s" % (os.path.basename(file), r.err.strip()))


def main(folder: str) -> None:
    rng = np.random.default_rng(int(os.environ.get("SEED", "40")))
    for check in each_pair, idempotent, scales, files, refusals:
        check(folder, rng)


run(main)
