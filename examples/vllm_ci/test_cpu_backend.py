# SPDX-License-Identifier: Apache-2.0
"""
Does the CPU backend of vLLM keep the layout that it promises?

    pip install kvtool pytest
    pytest examples/vllm_ci

For each block size, type and head size the backend's own operation writes random keys
and values into its cache.  Read in the declared layout, the cache has to hold them, token
by token.  The last tests plant faults in that operation and expect them to be named.
"""
import itertools
import random

import pytest
import torch
from vllm import _custom_ops as ops
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, _get_attn_isa

import kvtool
from kvtool.pytest_plugin import assert_layout, assert_same_kv

# Which bytes are what, by instruction set: kvtool help layouts
DECLARED = {"vec": "cpu-vec", "vec16": "cpu-vec", "rvv": "cpu-vec", "vxe": "cpu-vec",
            "vsx": "cpu-vec", "amx": "cpu-amx", "neon": "cpu-neon-bf16"}
TYPES = [torch.float32, torch.bfloat16, torch.float16]
BLOCK_SIZES = [32, 64, 128]
HEADS, TOKENS = 3, 150


class Case:
    """A request of random keys and values [T, H, D], and blocks in no order."""

    def __init__(self, block_size, dtype, head_size):
        self.size, self.dim = block_size, head_size
        count = -(-TOKENS // block_size)
        self.blocks = random.Random(block_size + head_size).sample(range(1, count + 4), count)
        self.key, self.value = torch.randn(2, TOKENS, HEADS, head_size).to(dtype)
        self.isa = _get_attn_isa(dtype, block_size, head_size)
        self.slots = torch.tensor([self.blocks[t // block_size] * block_size + t % block_size
                                   for t in range(TOKENS)])

    def dump(self, cache, layout, **more):
        return kvtool.from_tensors([cache], layout=layout, num_tokens={"r": TOKENS}, **more)

    def wanted(self):
        """The same tokens, in blocks that were filled in order, by torch alone."""
        cells = torch.zeros(2, len(self.blocks) * self.size, HEADS, self.dim,
                            dtype=self.key.dtype)
        cells[0, :TOKENS], cells[1, :TOKENS] = self.key, self.value
        return self.dump(cells.view(2, -1, self.size, HEADS, self.dim), "KBSHD",
                         block_table={"r": range(len(self.blocks))})

    def written(self, write=ops.cpu_attn_reshape_and_cache):
        """What the backend's operation makes of it, in its own cache."""
        cache = torch.zeros(max(self.blocks) + 1, HEADS, self.size, 2 * self.dim,
                            dtype=self.key.dtype)
        halves = cache.view(len(cache), HEADS, 2 * self.size, self.dim).chunk(2, dim=2)
        write(self.key, self.value, *halves, self.slots, self.isa)
        return self.dump(cache, DECLARED[self.isa], block_size=self.size, heads=HEADS,
                         head_dim=self.dim, block_table={"r": self.blocks})


def cases():
    return itertools.product(BLOCK_SIZES, TYPES, CPUAttentionBackend.get_supported_head_sizes())


@pytest.mark.parametrize("block_size, dtype, head_size", cases())
def test_the_cache_has_the_declared_layout(block_size, dtype, head_size):
    case = Case(block_size, dtype, head_size)
    cache = case.written()
    assert_layout(cache, DECLARED[case.isa], block_size=block_size, heads=HEADS)
    assert_same_kv(case.wanted(), cache)


def swapped(key, value, *rest):
    ops.cpu_attn_reshape_and_cache(value, key, *rest)


def other_heads(key, value, *rest):
    ops.cpu_attn_reshape_and_cache(key.flip(1).contiguous(), value.flip(1).contiguous(), *rest)


def off_by_one(key, value, keys, values, slots, isa):
    ops.cpu_attn_reshape_and_cache(key, value, keys, values, slots.roll(1), isa)


@pytest.mark.parametrize("fault, sentence", [
    (swapped, "swap-kv"), (other_heads, "differ"), (off_by_one, "differ")])
def test_a_fault_in_the_operation_is_found(fault, sentence):
    case = Case(32, torch.bfloat16, 64)
    with pytest.raises(pytest.fail.Exception, match=sentence):
        assert_same_kv(case.wanted(), case.written(fault))


def test_another_layout_is_not_taken_for_it():
    case = Case(32, torch.float32, 64)
    cache = case.written()
    with pytest.raises(pytest.fail.Exception, match="layout is"):
        assert_layout(cache, "hnd")
