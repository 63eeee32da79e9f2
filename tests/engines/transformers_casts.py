# SPDX-License-Identifier: Apache-2.0
"""
transformers_casts.py - numbers that kvtool writes as another type are those of torch, bit
for bit

All bfloat16 and float16, and ten million patterns of float32.  torch has infinity, or no
number, where e5m2 and the e4m3 without a negative zero have no number that large; vLLM's
conversions saturate, and so does kvtool: there the largest is expected.
"""
import os
import struct
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers

from proof import Proof

WHAT = "numbers of another type are those of torch"
TYPES = {n: getattr(torch, n) for n in (
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2")}
SIGNED = {4: torch.int32, 2: torch.int16, 1: torch.uint8}
SCALE = 0.0371


def bits(t):
    return t.contiguous().view(SIGNED[t.element_size()]).numpy()


def inputs(name, rng):
    if name == "float32":
        n = -(-10 ** 7 // 16384) * 16384
        return torch.from_numpy(rng.integers(0, 1 << 32, n, dtype=np.uint32)
                                .view(np.int32)).view(torch.float32)
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(TYPES[name])


def cast(proof, folder, x, name, *args):
    """What kvtool makes of the numbers, two heads of 64 in blocks of 16."""
    bits(x).tofile(os.path.join(folder, "x.bin"))
    proof.must("convert", "--force", "--layout=LBSHKD", "--dtype=" + name,
               f"--layers={x.numel() // 16384}", "--blocks=4", "--block-size=16",
               "--heads=2", "--head-dim=64", *args, "x.bin", "y.safetensors",
               folder=folder)
    data = open(os.path.join(folder, "y.safetensors"), "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return data[8 + n:]


def expected(y, target):
    """torch's cast of float32, and the largest where it has none."""
    out = y.to(TYPES[target])
    if TYPES[target].itemsize == 1:
        most = torch.finfo(TYPES[target]).max
        large = (~torch.isfinite(out.float()) & ~y.isnan()).nonzero().flatten()
        out.view(torch.uint8)[large] = (y[large].sign() * most).to(
            TYPES[target]).view(torch.uint8)
    return out


def torch_casts(proof, rng):
    for source in ("bfloat16", "float16", "float32"):
        folder = proof.folder("casts-" + source)
        x = inputs(source, rng)
        with proof.row(WHAT, source) as row:
            for target in TYPES:
                if target == source:
                    continue
                args, y = [], x.float()
                if TYPES[target].itemsize == 1:
                    args, y = [f"--scale={SCALE}"], y / torch.tensor(SCALE)
                data = cast(proof, folder, x, source, "--cache-dtype=" + target, *args)
                want = expected(y, target)
                got = torch.frombuffer(bytearray(data), dtype=TYPES[target])[:x.numel()]
                same = (bits(got) == bits(want)) | (
                    got.float().isnan() & y.isnan()).numpy()
                row.ok(bool(same.all()), f"to {target}, {x.numel()} numbers",
                       f"{int((~same).sum())} differ")
            row.figure(f"{x.numel()} numbers each")


def main():
    proof = Proof("transformers", transformers.__version__)
    torch_casts(proof, np.random.default_rng(40))
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
