# SPDX-License-Identifier: Apache-2.0
"""
record_quantised.py OUT - caches that HQQ and quanto have quantised, of random keys and
values, as the installed transformers makes and torch.save() writes them, and in
NAME.oracle.npz what the library itself decodes, with the newest tokens behind

Needs torch, hqq, optimum-quanto and transformers 4.42 or later.
"""
import os
import sys

import numpy as np
import torch
import transformers
import transformers.cache_utils as caches

OUT = sys.argv[1]
VERSION = tuple(map(int, transformers.__version__.split(".")[:2]))
OLD, PROCESSED = VERSION < (4, 54), (4, 54) <= VERSION < (4, 56)
HEADS, DIM, LAYERS = 2, 16, 2
B16, F16, F32 = torch.bfloat16, torch.float16, torch.float32

# name, quantiser, bits, axes of keys and values, size of groups, type, prompt, tokens after it
ROWS = [
    ("hqq1", "hqq", 1, 0, 0, 16, B16, 21, 3), ("hqq2", "hqq", 2, 1, 0, 32, F16, 24, 5),
    ("hqq3", "hqq", 3, 0, 0, 64, B16, 18, 3), ("hqq4", "hqq", 4, 1, 1, 16, B16, 21, 3),
    ("hqq8", "hqq", 8, 0, 1, 16, F32, 16, 0),
    ("quanto2", "quanto", 2, 0, -1, 8, F16, 24, 3),
    ("quanto4", "quanto", 4, -1, 0, 16, B16, 24, 12),
]
OLD_ROWS = [ROWS[1], ROWS[3], ROWS[5]]


def make(quantiser, bits, keys, values, group):
    named = dict(nbits=bits, axis_key=keys, axis_value=values, q_group_size=group,
                 residual_length=8)
    if OLD or PROCESSED:
        cls = caches.HQQQuantizedCache if quantiser == "hqq" else caches.QuantoQuantizedCache
        named.update(device="cpu", compute_dtype=F16)
        if PROCESSED:
            return cls(**named, **({} if quantiser == "hqq" else {"backend": quantiser}))
        return cls(caches.QuantizedCacheConfig(backend=quantiser, **named))
    config = transformers.LlamaConfig(num_hidden_layers=LAYERS, hidden_size=HEADS * DIM,
                                      num_attention_heads=HEADS, vocab_size=32)
    return caches.QuantizedCache(quantiser, config, **named)


def held(cache, i):
    """Codes and newest tokens, of keys and of values, and what decodes codes"""
    if OLD:
        return ((cache._quantized_key_cache[i], cache.key_cache[i]),
                (cache._quantized_value_cache[i], cache.value_cache[i])), cache
    l = cache.layers[i]
    if PROCESSED:
        p = cache.cache_processor
        return ((p._quantized_keys[i], l.keys), (p._quantized_values[i], l.values)), p
    return ((l._quantized_keys, l.keys), (l._quantized_values, l.values)), l


for name, quantiser, bits, keys, values, group, dtype, prompt, more in (
        OLD_ROWS if OLD or PROCESSED else ROWS):
    torch.manual_seed(bits)
    cache, oracle = make(quantiser, bits, keys, values, group), {}
    for i in range(LAYERS):
        for n in [prompt] + [1] * more:
            cache.update(torch.randn(1, HEADS, n, DIM).to(dtype) * (i + 1),
                         torch.randn(1, HEADS, n, DIM).to(dtype) + 3, i)
        halves, by = held(cache, i)
        for half, (codes, rest) in zip(("keys", "values"), halves):
            decoded = by._dequantize(codes)
            whole = torch.cat([decoded, rest], -2) if rest.numel() else decoded
            oracle[f"{i}.{half}"] = whole.float().numpy()
    torch.save(cache, f"{OUT}/{name}.pt")
    np.savez_compressed(f"{OUT}/{name}.oracle.npz", **oracle)
    print(name, os.path.getsize(f"{OUT}/{name}.pt"))
