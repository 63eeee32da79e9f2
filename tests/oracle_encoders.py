#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_encoders.py - every content that numbers are written as, byte by byte

All 65,536 bfloat16, among neighbours of their size and among any, and random patterns of
float32, go through convert --cache-dtype and its --verify, and must be what a model in
numpy has (encoder_model.py).  KVT_FULL takes all float16 and 10^7 float32, and affine
codes of every kind.  What is read back and written again is the same, but where DOUBLED
and LOOSE say why not.
"""
import os
import sys

import numpy as np

import encoder_model as model
from encoder_model import ALL, F
from oracle import FULL, run, runs, safetensors_tensors, tap

BLOCKS = {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl"}
SCALE = (0.0371, 1.7)           # of keys, values, where it is the tensor's

# What is read is written to other bytes: scales that are powers of two are the half where
# the largest number was rounded down, and then all codes are the double, so that the
# numbers are the same.
DOUBLED = ("dsv4/", "dsv4-swa", "dsv41/", "dsv41", "dsv41-row", "mlx-mx")
# Some numbers are others: where the scale of a block was rounded up so far that its
# largest number is not 6 of the 4 bits, it has a smaller scale next time; and of affine
# codes scale and bias are made of the ends of the numbers, which codes do not reach.
LOOSE = ("nvfp4", "dsv41-fp4", "mlx-nvfp4", "mlx-affine")


# ---- inputs ---------------------------------------------------------------------

def patterns(rng, name):
    if name == "float32":
        n = 10 ** 7 if FULL else 1 << 16
        return rng.integers(0, 1 << 32, n, dtype=np.uint32)
    return np.arange(1 << 16, dtype=np.uint16)


def inputs(rng, name, finite):
    """Float32, and their words: each value among others of its size, and among any."""
    words = patterns(rng, name)
    x = words.view(F) if name == "float32" else ALL[name].decode(words)
    if finite:
        words, x = words[np.isfinite(x)], x[np.isfinite(x)]
    order = [rng.permutation(len(x))]
    size = np.where(np.isnan(x), np.inf, np.abs(x)).argsort(kind="stable")
    for near in (8, 512) if FULL or name == "bfloat16" else (64,):
        order.append(size[(np.arange(len(x)) + rng.uniform(0, near, len(x))).argsort()])
    order = np.concatenate(order)
    return words[order], x[order]


def write(folder, name, words, shape, latent):
    path = os.path.join(folder, name + ".bin")
    words.tofile(path)
    L, B, S, H, K, D = shape
    return path, ["--layout=" + ("LBSC" if latent else "LBSHKD"), "--dtype=" + name,
                  f"--layers={L}", f"--blocks={B}", f"--block-size={S}", f"--heads={H}",
                  f"--{'content-size' if latent else 'head-dim'}={D}"]


def filled(words, x, step):
    """As many as are whole blocks; the first ones again."""
    more = -len(x) % step
    return np.concatenate([words, words[:more]]), np.concatenate([x, x[:more]])


# ---- types ----------------------------------------------------------------------

def in_turn(f, x):
    """Keys and values, a row each."""
    return f(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)


def pages(planes, rows):
    """Each page all of one plane, then all of the next; [L, B, S, 1, 1, ...]"""
    L, B, S = planes[0].shape[:3]
    return np.concatenate([p.reshape(L, B, S // rows, -1) for p in planes], -1)


def nvfp4_pages(x, swizzled):
    """[L, B, S, H, K, D]: keys, their scales, values, theirs; head by head."""
    parts = []
    for k in range(2):
        data, scale = model.nvfp4(x[..., k, :].transpose(0, 1, 3, 2, 4))
        if swizzled and k:
            L, B, H, S, E = scale.shape
            scale = scale.reshape(L, B, H, S // 4, 4, E).swapaxes(-1, -2)
        parts += [p.reshape(*x.shape[:2], -1) for p in (data, scale)]
    return np.concatenate(parts, -1)


def of_tensor(x):
    return model.transformers_fp8(x, np.array(SCALE, F))


def cases():
    """name, numbers of a row, is it a latent, bytes of [L, B, S, H, K, D]"""
    for fp8 in ("e4m3fn", "e4m3fnuz", "e5m2"):
        yield f"fp8-per-token-head/{fp8}", 64, False, \
            lambda x, f=fp8: model.per_token_head(x, f)
        yield f"dsv4/{fp8}", 512, True, lambda x, f=fp8: pages(model.dsv4(x, f), 16)
    yield "int8-per-token-head", 64, False, model.int8_per_token_head
    yield "nvfp4-plain", 64, False, lambda x: nvfp4_pages(x, False)
    yield "nvfp4-sm100", 64, False, lambda x: nvfp4_pages(x, True)
    for mode in ("nvfp4", "mxfp4", "mxfp8"):
        yield "mlx-" + mode, 64, False, lambda x, m=mode: model.mlx_float(x, m)
    every = [(b, g, t) for b in (2, 3, 4, 5, 6, 8) for g in (32, 64, 128)
             for t in ("bfloat16", "float16", "float32")]
    for b, g, t in every if FULL else every[::5]:
        yield f"mlx-affine/{b}/{g}/{t}", 128, False, \
            lambda x, a=(b, g, t): model.affine(x, *a)
    for t in ("bfloat16", "float16", "float32"):
        yield f"transformers-fp8/{t}", 64, False, of_tensor
    for name in sorted(BLOCKS):
        yield name + "/plain", 64, False, lambda x, n=name: in_turn(
            lambda v: model.ggml_bytes(v.reshape(-1, 32), n), x)
    yield "fp8-ds-mla", 576, True, lambda x: model.ds_mla(x, True)
    yield "glm53-nope-656", 512, True, lambda x: model.ds_mla(x, False)
    yield "nvfp4-ds-mla", 576, True, model.nvfp4_ds_mla
    yield "dsv4-swa/e4m3fn", 512, True, lambda x: pages(model.dsv4(x, "e4m3fn"), 16)
    yield "dsv4/e4m3fn/8", 512, True, lambda x: pages(model.dsv4(x, "e4m3fn"), 8)
    yield "dsv41", 512, True, lambda x: pages(model.dsv41(x, "e4m3fn"), 16)
    yield "dsv41-fp4", 512, True, lambda x: pages(model.dsv41_fp4(x), 16)
    yield "dsv41-row", 512, True, lambda x: np.concatenate(model.dsv41(x, "e4m3fn"), -1)
    yield "dsv41-fp4-row", 512, True, lambda x: np.concatenate(model.dsv41_fp4(x), -1)


def tame(name):
    """Neither NaN nor infinity is in blocks, or has a code that engines agree on."""
    return name.split("/")[0] in BLOCKS or name[:3] == "mlx"


def within(name, x):
    """Numbers whose scales their types can hold, and where mlx's own are no accidents."""
    if name.split("/")[0] in BLOCKS:
        return np.abs(x) < (6e4 if "_1" in name else 4e5)
    if name[:10] == "mlx-affine":
        return np.abs(x) < (6e4 if "float16" in name.split("/") else 1e37)
    if name[:6] == "mlx-mx":
        return (np.abs(x) > 1e-35) | (x == 0)
    return np.ones(x.shape, bool)


# ---- checking -------------------------------------------------------------------

def content_of(path):
    tensors = [t[2] for n, t in safetensors_tensors(path).items()]
    assert len(tensors) == 1
    return np.frombuffer(tensors[0], np.uint8)


def check(folder, rng, source, name, dim, latent, encode):
    words, x = inputs(rng, source, tame(name))
    keep = within(name, x)
    words, x = filled(words[keep], x[keep], 16 * dim * (1 if latent else 4))
    shape = (1, x.size // (16 * dim * (1 if latent else 4)), 16, 1 if latent else 2,
             1 if latent else 2, dim)
    path, said = write(folder, source, words, shape, latent)
    out = os.path.join(folder, "out.safetensors")
    scale = ["--scale=%r,%r" % SCALE] if name[:12] == "transformers" else []
    r = runs(f"{source} to {name}: written and verified", "convert", "-f", "-q",
             "--verify", *said, "--cache-dtype=" + name, *scale, path, out)
    if r.code:
        return
    with np.errstate(all="ignore"):
        want = encode(x.reshape(shape)).reshape(-1)
    got = content_of(out)
    at = np.flatnonzero(got != want) if got.size == want.size else [-1]
    tap.ok(len(at) == 0, f"{source} to {name}: {x.size} numbers, each byte",
           f"{len(at)} of {want.size} differ, first {at[:3]}: {got[at[:3]]} {want[at[:3]]}")


def again(folder, rng, name, dim, latent):
    """Written, read back as float32, written again and read: the same numbers?"""
    shape = (1, 8, 16, 1 if latent else 2, 1 if latent else 2, dim)
    size = rng.standard_normal(shape[:-1] + (1,)).clip(-3, 3)   # within float16
    x = rng.standard_normal(shape) * np.exp(3 * size)
    path, said = write(folder, "float32", x.astype(F).reshape(-1), shape, latent)
    names = [os.path.join(folder, f"{i}.safetensors") for i in range(4)]
    scale = ["--scale=%r,%r" % SCALE] if name[:12] == "transformers" else []
    for i, out in enumerate(names):
        r = runs(f"{name}: read, and written again ({i})", "convert", "-f", "-q",
                 *(said if not i else []),
                 "--cache-dtype=" + ("float32" if i % 2 else name),
                 *([] if i % 2 else scale), path, out)
        if r.code:
            return
        path = out
    a, b = (content_of(p).view(F) for p in names[1::2])
    if name.startswith(LOOSE):
        tap.ok((a != b).mean() < (.5 if "affine" in name else .02),
               f"{name}: few numbers are others when they are written again")
    elif name.startswith(DOUBLED):
        tap.ok(np.array_equal(a, b), f"{name}: the same numbers when they are written again")
    else:
        tap.ok(np.array_equal(content_of(names[0]), content_of(names[2])),
               f"{name}: the same bytes when they are written again")


def main(folder):
    rng = np.random.default_rng(int(os.environ.get("SEED", "41")))
    only = sys.argv[1:]
    for case in cases():
        if only and not any(o in case[0] for o in only):
            continue
        for source in ("bfloat16", "float16", "float32") if FULL else \
                ("bfloat16", "float32"):
            check(folder, rng, source, *case)
        again(folder, rng, *case[:3])


run(main)
