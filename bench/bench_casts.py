#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench_casts.py - casts and encoders on one thread: kvtool, memcpy, a relayout, ggml, torch

Row by row, one after the other: bench_cast measures kvtool's kernels, a memcpy and a
relayout of the same bytes and, where there is a ggml, its encoder of that type; then this
program has torch write the same into memory that is there: a copy, for fp8 of numbers that
were divided by a scale and held between the ends first, as engines do.  GB of input a second, the best of
several rounds in time of the processor.  torch and ggml are left out where they are not:
the latter comes with llama-cpp-python, or from KVT_BENCH_GGML, a folder.
"""
import glob
import importlib.util
import json
import os
import subprocess
import time

try:
    import torch
    torch.set_num_threads(1)
except ImportError:
    torch = None

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("KVT_BUILD", os.path.join(ROOT, "build")))
NUMBERS = 32 << 20
ENCODED = 4 << 20
ROUNDS = 9
SCALE = 0.037

CASTS = [("bfloat16", "float32"), ("bfloat16", "float16"), ("bfloat16", "float8_e4m3fn"),
         ("bfloat16", "float8_e4m3fnuz"), ("bfloat16", "float8_e5m2"),
         ("float16", "bfloat16"), ("float32", "bfloat16"), ("float32", "float8_e4m3fn"),
         ("float8_e4m3fn", "bfloat16")]
ENCODERS = [f"{name}/plain" for name in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")] + [
    "int8-per-token-head", "fp8-per-token-head/e4m3fn", "mlx-affine/4/64/bfloat16",
    "transformers-fp8/bfloat16"]


def ggml():
    """Its two libraries; [] where there is none."""
    folder = os.environ.get("KVT_BENCH_GGML")
    if not folder:
        spec = importlib.util.find_spec("llama_cpp")
        folder = spec and os.path.join(spec.submodule_search_locations[0], "lib")
    paths = [folder and os.path.join(folder, f"libggml-{part}.so") for part in ("base", "cpu")]
    if not all(path and os.path.exists(path) for path in paths):
        # some builds have one for each kind of processor
        found = sorted(glob.glob(os.path.join(folder or "-", "libggml-cpu*.so")))
        paths = [paths[0], found[0]] if found else []
    return paths


def kvtool(row, libraries):
    env = dict(os.environ)
    if libraries:
        env["LD_LIBRARY_PATH"] = os.path.dirname(libraries[0])
    text = subprocess.run([os.path.join(BUILD, "bench", "bench_cast"), "--json",
                           f"--only={row}", *libraries],
                          check=True, capture_output=True, text=True, env=env).stdout
    return json.loads(text)


def divided(out, room, x, scale):
    """As engines write fp8 and int8: over a scale, held between the ends, then cast."""
    room.copy_(x)
    room.div_(scale)
    if out.dtype == torch.int8:
        room.round_().clamp_(-128, 127)
    else:
        ends = torch.finfo(out.dtype)
        room.clamp_(ends.min, ends.max)
    out.copy_(room)


def per_token(out, room, x, most):
    """A scale a row."""
    torch.abs(x, out=room)
    divided(out, room, x, room.amax(dim=1, keepdim=True).div_(most).clamp_(min=1e-6))


def torch_of(source, to):
    """Writes that into memory that is there, and the bytes read; None: torch has none."""
    wide = {"int8-per-token-head": (torch.int8, 127), "transformers-fp8/bfloat16":
            (torch.float8_e4m3fn, 0), "fp8-per-token-head/e4m3fn": (torch.float8_e4m3fn, 448)}
    if to in wide:
        dtype, most = wide[to]
        x = torch.randn(ENCODED // 1024, 1024) * 4
    elif hasattr(torch, to):
        dtype, most = getattr(torch, to), 0
        x = (torch.randn(NUMBERS) * 4).to(getattr(torch, source))
    else:
        return None
    out, room = torch.zeros(x.shape, dtype=dtype), torch.zeros(x.shape)
    nbytes = x.numel() * x.element_size()
    if most:
        return lambda: per_token(out, room, x, most), nbytes
    if dtype.itemsize == 1:
        return lambda: divided(out, room, x, SCALE), nbytes
    return lambda: out.copy_(x), nbytes


def peer(source, to):
    if torch is None:
        return None
    found = torch_of(source, to)
    if not found:
        return None
    work, nbytes = found
    work()
    best = 1e9
    for _ in range(ROUNDS):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return nbytes / best / 1e9


def text(figure):
    return f"{figure:9.2f}" if figure else f"{'':9}"


def main():
    libraries = ggml()
    for name, there in (("torch", torch), ("ggml", libraries)):
        if not there:
            print(f"without {name}, which is not here")
    print("one thread, GB of input a second; ratio: kvtool to ggml, or else to torch")
    print(f"{'row':38}" + "".join(f"{name:>9}" for name in
                                  ("kvtool", "avx2", "memcpy", "relayout", "ggml", "torch",
                                   "ratio")))
    for source, to in CASTS + [("float32", name) for name in ENCODERS]:
        own = kvtool(f"{source} to {to}", libraries)
        best = max(own.get(name, 0) for name in ("kvtool", "plain", "avx2", "avx512"))
        other = peer(source, to)
        against = own.get("ggml") or other
        print(f"{source + ' to ' + to:38}" + text(best) + text(own.get("avx2")) +
              text(own.get("memcpy")) + text(own.get("relayout")) + text(own.get("ggml")) +
              text(other) + text(against and best / against), flush=True)


if __name__ == "__main__":
    main()
