# SPDX-License-Identifier: Apache-2.0
"""
vllm_casts.py - numbers that kvtool writes as contents of vLLM are those of its writers

All finite bfloat16, among others of their size and among any, go through vLLM's Triton
kernels for latents of DeepSeek V4 and V4.1, in Triton's interpreter, and through its
reference of nvfp4, with a scale of 1; every byte is compared.  The interpreter does not
convert to fp8 as GPUs do: between two it takes the one farther from 0, it loses what is
carried into an exponent, and of what is below the normal numbers it takes any.  Where kvtool
has another number it must be nearer, or as near and even.
"""
import os
import sys
from importlib import import_module
from importlib.metadata import version

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch

from proof import Proof
from plain_files import write_json
from vllm_contents import interpreted

WHAT = "numbers written as a content of vLLM are those of its own functions"
BLOCK = 64


def inputs(rng, dim):
    """Rows of bfloat16, the last ones normal, as float32."""
    words = np.arange(1 << 16, dtype=np.uint32)
    x = (words << 16).view(np.float32)
    x = x[np.isfinite(x)]
    near = np.abs(x).argsort(kind="stable")
    near = near[(np.arange(len(x)) + rng.uniform(0, 64, len(x))).argsort()]
    normal = rng.standard_normal((64, dim)) * np.exp(rng.standard_normal((64, 1)) * 3)
    normal = (normal.astype(np.float32).view(np.uint32) & 0xffff0000).view(np.float32)
    x = np.concatenate([x[near], rng.permutation(x), normal.reshape(-1)])
    return x[len(x) % (BLOCK * dim * 2):].reshape(-1, dim)


def kvtool_bytes(proof, name, x, heads):
    """Of latents, or of heads with a key and a value each, in blocks of 64 tokens."""
    folder = proof.folder("casts")
    n, dim = x.shape
    pair = 2 if heads else 1
    np.save(os.path.join(folder, "x.npy"), x.reshape(1, -1, BLOCK, 1, pair, dim))
    write_json(os.path.join(folder, "x.json"),
               {"layout": "LBSHKD", **({} if heads else {"kind": "mla"})})
    proof.must("convert", "-f", "-q", "--cache-dtype=" + name, "x.npy", "y.safetensors",
               folder=folder)
    data = open(os.path.join(folder, "y.safetensors"), "rb").read()
    n = int.from_bytes(data[:8], "little")
    return torch.frombuffer(bytearray(data[8 + n:]), dtype=torch.uint8)


def check_latents(proof, rng):
    ops = import_module("vllm.models.deepseek_v41.common.ops.cache_utils")
    for name, width, kind in (("dsv4/e4m3fn", 584, ops.V4_BYTES_PER_TOKEN),
                              ("dsv41", 528, ops.V41_BYTES_PER_TOKEN)):
        with proof.row(WHAT, name) as row:
            x = inputs(rng, 512)
            cache = torch.zeros(len(x) // BLOCK, BLOCK * width, dtype=torch.uint8)
            ops.quantize_and_insert_k_cache(torch.from_numpy(x).bfloat16(), cache,
                                            torch.arange(len(x)), BLOCK, True, False, kind)
            got = kvtool_bytes(proof, name, x, False).reshape(cache.shape)
            fp8, per = (448, 64) if width == 584 else (512, 32)
            data, scales = (slice(0, BLOCK * (576 if width == 584 else 512)),
                            slice(BLOCK * (576 if width == 584 else 512), None))
            row.ok(torch.equal(got[:, scales], cache[:, scales]), "every scale")
            a, b = (t[:, data].reshape(len(x), -1) for t in (got, cache))
            row.ok(torch.equal(a[:, fp8:], b[:, fp8:]), "every rotary part")
            power = got[:, scales].reshape(len(x), -1)[:, :fp8 // per].int() - 127
            y = torch.from_numpy(x)[:, :fp8].double() / torch.exp2(
                power.double()).repeat_interleave(per, 1)
            far = [(t[:, :fp8].contiguous().view(torch.float8_e4m3fn).double() - y).abs()
                   for t in (a, b)]
            other = a[:, :fp8] != b[:, :fp8]
            even = (far[0] == far[1]) & (a[:, :fp8] & 1 == 0)
            nearer = far[0] < far[1]
            row.ok(bool((even | nearer)[other].all()),
                   "every number, or the even one of two, or a nearer one")
            row.figure(f"{x.size} numbers, {int((even & other).sum())} between two, "
                       f"{int((nearer & other).sum())} nearer")


def check_nvfp4(proof, rng):
    quant = import_module(
        "vllm.model_executor.layers.quantization.utils.nvfp4_emulation_utils")
    for dim in (64, 128):
        with proof.row(WHAT, f"nvfp4-plain, heads of {dim}") as row:
            x = inputs(rng, dim)
            codes, scales = quant.ref_nvfp4_quant(torch.from_numpy(x), torch.ones(1), 16)
            levels = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])
            bits = torch.searchsorted(levels, codes.abs())
            # a code of 0 has a sign of no number: torch.sign() has none of -0
            sign = torch.from_numpy(np.signbit(x)) & (bits >= 0)
            bits = (bits | sign.int() << 3).to(torch.uint8).unflatten(1, (-1, 2))
            data = (bits[..., 0] | bits[..., 1] << 4).reshape(-1, BLOCK, 2, dim // 2)
            kept = scales.to(torch.float8_e4m3fn).view(torch.uint8).reshape(
                -1, BLOCK, 2, dim // 16)
            want = torch.cat([part[:, :, k].flatten(1) for k in (0, 1)
                              for part in (data, kept)], 1).flatten()
            got = kvtool_bytes(proof, f"nvfp4-plain/{dim}", x, True)
            row.equal(int((got != want).sum()), 0, f"bytes of {x.size} numbers")
            row.figure(f"{x.size} numbers")


def main():
    proof = Proof("vLLM", version("vllm"))
    interpreted()
    rng = np.random.default_rng(41)
    check_nvfp4(proof, rng)
    check_latents(proof, rng)
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
