#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench_peers.py - permutations in memory: kvtool's kernels, numpy, torch

Case by case, one after the other: check_kernels --bench --only=CASE measures
kvtool's copy and a memcpy on two threads, then this program measures numpy's
copyto, torch's copy_ (two threads, into memory that is there already) and a
memcpy on two threads of its own.  Every figure is a fraction of the memcpy of
its own process, minutes apart at most.  Reblocks are left out: their shuffled
block table is no permutation.  KVT_BENCH_MIB sets the size (512).
"""
import ctypes
import json
import os
import statistics
import subprocess
import threading
import time

import numpy as np

try:
    import torch
    torch.set_num_threads(2)
except ImportError:
    torch = None

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("KVT_BUILD", os.path.join(ROOT, "build")))
MIB = int(os.environ.get("KVT_BENCH_MIB", "512"))
ROUNDS = 5

# name, axes of the source, axes of the destination, slots, heads, content, type
CASES = [
    ("NHD to HND", "LBSHD", "LBHSD", 16, 8, 256, "u2"),
    ("HND to NHD", "LBHSD", "LBSHD", 16, 8, 256, "u2"),
    ("NHD to BLSHC", "LBSHD", "BLSHD", 16, 8, 256, "u2"),
    ("NHD to BHLSC", "LBSHD", "BHLSD", 16, 8, 256, "u2"),
    ("HND to BHLSC", "LBHSD", "BHLSD", 16, 8, 256, "u2"),
    ("MLA to BLSHC", "LBSHD", "BLSHD", 64, 1, 576, "u2"),
    ("fp8 K, D=64", "LBSHD", "LBHSD", 16, 8, 64, "u1"),
    ("x-pack of K", "LBSHEx", "LBHESx", 16, 8, 128, "u2"),
    ("scales", "LBSHD", "LBHSD", 16, 8, 1, "u4"),
    ("V d-major", "LBSHD", "LBHDS", 16, 8, 128, "u2"),
    ("content of 2 B", "LBSHD", "LBHSD", 16, 8, 1, "u2"),
]
# torch has no unsigned types beyond bytes; bits are bits
TORCH_KIND = {"u1": "u1", "u2": "i2", "u4": "i4"}


def kvtool(name):
    text = subprocess.run(
        [os.path.join(BUILD, "check_kernels"), "--bench", f"--mib={MIB}",
         f"--rounds={ROUNDS}", f"--only={name}", "--json"],
        check=True, capture_output=True, text=True).stdout
    return json.loads(text.splitlines()[0])


def seconds(work):
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def memcpy_of(dst, src):
    """On two threads: ctypes lets go of the interpreter while it copies."""
    half = src.nbytes // 2

    def copy(i):
        ctypes.memmove(dst.ctypes.data + i * half, src.ctypes.data + i * half, half)

    def both():
        other = threading.Thread(target=copy, args=(1,))
        other.start()
        copy(0)
        other.join()
    return both


def peers(case):
    _, src_axes, dst_axes, slots, heads, dim, kind = case
    size = {"L": 32, "S": slots, "H": heads, "D": dim, "E": dim // 8, "x": 8}
    page = slots * heads * dim * np.dtype(kind).itemsize
    size["B"] = max(1, MIB * 2**20 // (32 * page))
    src = np.ones([size[a] for a in src_axes], kind)
    dst = np.zeros([size[a] for a in dst_axes], kind)
    order = [src_axes.index(a) for a in dst_axes]
    plain = seconds(memcpy_of(dst, src))
    numpy = plain / seconds(lambda: np.copyto(dst, src.transpose(order)))
    if torch is None:
        return numpy, None
    view = TORCH_KIND[kind]
    s, d = torch.from_numpy(src.view(view)), torch.from_numpy(dst.view(view))
    return numpy, plain / seconds(lambda: d.copy_(s.permute(order)))


def main():
    print(f"{MIB} MiB, fraction of a memcpy on two threads in the same process")
    print(f"{'case':16} {'run':>6} {'kvtool 2t':>10} {'kvtool 1t':>10} "
          f"{'memcpy a run':>13} {'numpy':>7} {'torch 2t':>9}")
    for case in CASES:
        own = kvtool(case[0])
        numpy, other = peers(case)
        print(f"{case[0]:16} {own['run']:6} {own['pool 2t']['ratio']:10.2f} "
              f"{own['pool 1t']['ratio']:10.2f} {own['ref 2t']['ratio']:13.2f} "
              f"{numpy:7.2f} " + (f"{other:9.2f}" if other else f"{'absent':>9}"),
              flush=True)


if __name__ == "__main__":
    main()
