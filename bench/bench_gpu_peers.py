#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench_gpu_peers.py - kvtool bench on a device, and torch on the same device

KVT_BENCH_DEVICE names the device (cuda), KVT_BENCH_MIB the size of a case (512).
Each figure is a fraction of the device's own copy, that of kvtool of the driver's,
that of torch of its copy_ between two tensors of one shape.  Without torch, or
with one that cannot use the device, its column is "absent".
"""
import json
import math
import os
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    torch = None

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("KVT_BUILD", os.path.join(ROOT, "build")))
DEVICE = os.environ.get("KVT_BENCH_DEVICE", "cuda")
MIB = int(os.environ.get("KVT_BENCH_MIB", "512"))
ROUNDS = 21

# axes of the source and of the destination, as kvtool bench has the case, sizes, type;
# B is what remains, b are the blocks that become one
LLAMA = {"L": 2, "S": 16, "H": 8, "K": 2, "D": 128}
CASES = {
    "nhd-hnd": ("LBSHKD", "LBHSKD", LLAMA, "int16"),
    "hnd-nhd": ("LBHSKD", "LBSHKD", LLAMA, "int16"),
    "kv-first": ("LKBSHD", "LBHSKD", LLAMA, "int16"),
    "nhd-blshc": ("LBSHKD", "BLSHKD", LLAMA, "int16"),
    "nhd-bhlsc": ("LBSHKD", "BHLSKD", LLAMA, "int16"),
    "hnd-bhlsc": ("LBHSKD", "BHLSKD", LLAMA, "int16"),
    "fp8": ("LKBSHD", "LKBHSD", LLAMA | {"D": 64}, "uint8"),
    "mla": ("LBSD", "BLSD", {"L": 2, "S": 64, "D": 576}, "int16"),
    "scales": ("LBSHD", "LBHSD", {"L": 2, "S": 16, "H": 8, "D": 1}, "int32"),
    "reblock": ("LBbHSKD", "LBHbSKD", LLAMA | {"b": 4}, "int16"),
}


def seconds(work):
    if DEVICE.startswith("cpu"):
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def torch_fraction(case):
    """In turn, as kvtool does it: a copy, a permutation, a copy."""
    src_axes, dst_axes, size, kind = case
    dtype = getattr(torch, kind)
    page = math.prod(size.values()) * torch.empty(0, dtype=dtype).element_size()
    size = size | {"B": max(1, MIB * 2**20 // page)}
    src = torch.randint(0, 127, [size[a] for a in src_axes], dtype=dtype, device=DEVICE)
    dst = torch.empty([size[a] for a in dst_axes], dtype=dtype, device=DEVICE)
    flat = torch.empty_like(src)
    view = src.permute([src_axes.index(a) for a in dst_axes])
    times = [(seconds(lambda: flat.copy_(src)), seconds(lambda: dst.copy_(view)))
             for _ in range(ROUNDS + 3)][3:]
    assert torch.equal(dst, view)
    return statistics.median(t[0] for t in times) / \
        statistics.median(t[1] for t in times)


def has_torch():
    return torch is not None and \
        (DEVICE.startswith("cpu") or (DEVICE.startswith("cuda") and
                                      torch.cuda.is_available()))


def main():
    run = subprocess.run([os.path.join(BUILD, "kvtool"), "bench", f"--device={DEVICE}",
                          f"--size={MIB}M", f"--rounds={ROUNDS}", "--json"],
                         capture_output=True, text=True)
    if run.returncode == 4:
        print(f"not run: {run.stderr.strip()}")
        return 0
    if run.returncode:
        print(run.stderr, end="")
        return 1
    own = json.loads(run.stdout)
    print(f"{own['device']} ({own['device_name']}), {MIB} MiB, fraction of a copy")
    print(f"{'case':10} {'run':>7} {'kvtool':>8} {'torch':>8} {'x naive':>8}")
    for c in own["cases"]:
        peer = "absent"
        if has_torch() and c["case"] in CASES:
            peer = f"{torch_fraction(CASES[c['case']]):.2f}"
        print(f"{c['case']:10} {c['run_bytes']:7} {c['of_copy']:8.2f} {peer:>8} "
              f"{c['times_naive']:8.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
