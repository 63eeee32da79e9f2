# SPDX-License-Identifier: Apache-2.0
"""
mlx_casts.py - numbers that kvtool writes as mlx's codes are those of mx.quantize, bit for
bit

All finite bfloat16, each among others of its size and among any, and as many normal ones.
mlx's own scales of two bytes wrap below 2^-127, so less than that is left out.
"""
import os
import struct
import sys

import mlx.core as mx
import numpy as np

from proof import Proof
from plain_files import write_json

WHAT = "numbers written as mlx's codes are those of mx.quantize"
DIM = 128


def bfloat16(words):
    return (words.astype(np.uint32) << 16).view(np.float32)


def inputs(rng):
    """Rows of bfloat16, as float32."""
    words = np.arange(1 << 16, dtype=np.uint16)
    x = bfloat16(words)
    x = x[(np.abs(x) < 1e37) & ((np.abs(x) > 1e-35) | (x == 0))]
    near = np.abs(x).argsort(kind="stable")
    normal = rng.standard_normal(1 << 16) * np.exp(rng.standard_normal(1 << 16).repeat(
        DIM)[:1 << 16] * 3)
    parts = [rng.permutation(x)] + [x[near[(np.arange(len(x)) + rng.uniform(
        0, n, len(x))).argsort()]] for n in (8, 512)]
    parts.append(bfloat16((normal.astype(np.float32).view(np.uint32) >> 16)))
    x = np.concatenate(parts)
    return x[:len(x) // (64 * DIM) * 64 * DIM].reshape(-1, DIM)


def kvtool_rows(proof, folder, x, name):
    np.save(os.path.join(folder, "x.npy"), x.reshape(1, -1, 16, 2, 2, DIM))
    write_json(os.path.join(folder, "x.json"), {"layout": "LBSHKD"})
    proof.must("convert", "-f", "-q", "--cache-dtype=" + name, "x.npy", "y.safetensors",
               folder=folder)
    data = open(os.path.join(folder, "y.safetensors"), "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return np.frombuffer(data[8 + n:], np.uint8).reshape(len(x), -1)


def raw(array):
    """Its bytes, row by row."""
    if array.dtype == mx.bfloat16:
        array = array.view(mx.uint16)
    return np.ascontiguousarray(np.array(array)).view(np.uint8)


def main():
    proof = Proof("mlx", mx.__version__)
    x = inputs(np.random.default_rng(41))
    typed = mx.array(x).astype(mx.bfloat16)
    kinds = [(f"mlx-{m}", {"mode": m}) for m in ("nvfp4", "mxfp4", "mxfp8")]
    kinds += [(f"mlx-affine/{b}/{g}/bfloat16", {"bits": b, "group_size": g})
              for b in (2, 3, 4, 5, 6, 8) for g in (32, 64, 128)]
    for name, how in kinds:
        with proof.row(WHAT, name) as row:
            want = np.concatenate([raw(p) for p in mx.quantize(typed, **how)], -1)
            got = kvtool_rows(proof, proof.folder("casts"), x, name)
            row.equal(int((got != want).sum()), 0, f"bytes of {x.size} numbers")
            row.figure(f"{x.size} numbers")
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
