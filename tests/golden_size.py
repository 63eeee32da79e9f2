#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
golden_size.py - kvtool size against known numbers, each with where it is from

A number is either published, and then its place is named, or follows from the shapes
of a cache: then its place is the product, which is worked out here, too.
"""
import os
import sys

from oracle import bail, kvtool, tap


def size(model, *args):
    """By TP the row of the first type; of testdata/config, @models, or specs: with a colon."""
    what = [f"--spec={s}" for s in model.split()] if ":" in model else \
        [f"--models={os.path.abspath('models')}", f"--model={model[1:]}"] \
        if model[0] == "@" else [os.path.abspath(f"testdata/config/{model}.json")]
    r = kvtool("size", "--json", *what, *args)
    if r.code:
        bail(f"{model}: {r}")
    rows = {}
    for row in r.json["sizes"]:
        rows.setdefault(row["tp"], row)
    return rows


def group(row, name):
    return next(g for g in row["groups"] if g["name"] == name)


def check(place, found, number, what):
    """A place that is a product must make the number; others name a publication."""
    if place[0].isdigit():
        tap.equal(eval(place), number, f"{what}: {place}")
    tap.equal(found, number, f"{what} is {number}")


# ---- bytes per token ----------------------------------------------------------

# model, TP, type: bytes on a rank, on all ranks, of heads once each; in windows; place
TOKENS = [
    ("llama-3.1-8b", 1, "bfloat16", (131072, 131072, 131072), 0, "32 * 8 * 2 * 128 * 2"),
    ("llama-3.1-70b", 1, "bfloat16", (327680, 327680, 327680), 0, "80 * 8 * 2 * 128 * 2"),
    ("qwen3-8b", 1, "bfloat16", (147456, 147456, 147456), 0, "36 * 8 * 2 * 128 * 2"),
    ("qwen3-30b-a3b", 1, "bfloat16", (98304, 98304, 98304), 0, "48 * 4 * 2 * 128 * 2"),
    ("qwen3-235b-a22b", 8, "bfloat16", (48128, 385024, 192512), 0, "94 * 1 * 2 * 128 * 2"),
    ("gpt-oss-20b", 1, "bfloat16", (24576, 24576, 24576), 24576, "12 * 8 * 2 * 64 * 2"),
    ("deepseek-v3", 1, "bfloat16", (70272, 70272, 70272), 0, "61 * 576 * 2"),
    ("deepseek-v3", 8, "bfloat16", (70272, 8 * 70272, 70272), 0, "61 * 576 * 2"),
    ("deepseek-v3", 1, "fp8_ds_mla", (40016, 40016, 40016), 0, "61 * 656"),
    ("qwen3-next", 1, "bfloat16", (24576, 24576, 24576), 0, "12 * 2 * 2 * 256 * 2"),
    ("kimi-linear-48b", 1, "bfloat16", (8064, 8064, 8064), 0, "7 * 576 * 2"),
    ("gemma-3n", 1, "bfloat16", (8192, 8192, 8192), 32768, "4 * 2 * 2 * 256 * 2"),
    ("gemma-2", 1, "bfloat16", (53248, 53248, 53248), 53248, "13 * 4 * 2 * 256 * 2"),
    ("gemma-3-4b", 1, "bfloat16", (20480, 20480, 20480), 118784, "5 * 4 * 2 * 256 * 2"),
    ("cohere2", 8, "float16", (5120, 40960, 40960), 15360, "10 * 1 * 2 * 128 * 2"),
]
for model, tp, dtype, numbers, window, place in TOKENS:
    row = size(model, f"--tp={tp}", f"--cache-dtype={dtype}")[tp]
    what = f"{model}, tp {tp}, {dtype}: bytes of a token"
    check(place, row["token_bytes"], numbers[0], what)
    tap.equal((row["all_ranks_token_bytes"], row["unique_token_bytes"],
               row["window_token_bytes"]), (*numbers[1:], window),
              f"{what} on all ranks, once each, in windows")

# ---- pages --------------------------------------------------------------------

FOUR = (1, 2, 8, 16)
# model, cache, tokens of a block, type: page by TP; place of the first
PAGES = [
    ("llama-3.1-8b", "full", 16, "auto", {1: 65536, 2: 32768, 8: 8192, 16: 8192},
     "16 * 8 * 2 * 128 * 2"),
    ("qwen3-235b-a22b", "full", 16, "auto", {1: 32768, 2: 16384, 8: 8192, 16: 8192},
     "16 * 4 * 2 * 128 * 2"),
    ("gpt-oss-20b", "full", 16, "auto", {1: 32768, 2: 16384, 8: 4096, 16: 4096},
     "16 * 8 * 2 * 64 * 2"),
    ("gpt-oss-20b", "window", 16, "auto", {1: 32768, 2: 16384, 8: 4096, 16: 4096},
     "16 * 8 * 2 * 64 * 2"),
    ("deepseek-v3", "mla", 64, "auto", dict.fromkeys(FOUR, 73728), "64 * 576 * 2"),
    ("deepseek-v3.2", "mla", 64, "fp8_ds_mla", dict.fromkeys(FOUR, 41984),
     "64 * (512 + 4 * 4 + 64 * 2)"),
    ("deepseek-v3.2", "indexer", 64, "auto", dict.fromkeys(FOUR, 8448), "64 * (128 + 4)"),
    ("deepseek-v4", "c4a", 256, "fp8_ds_mla", dict.fromkeys(FOUR, 37440),
     "vllm#50276: pages at 37,440 * i"),
    ("deepseek-v4", "c4a", 256, "fp8_ds_mla", {1: 37440}, "65 * 576"),
    ("deepseek-v4", "c128a", 256, "fp8_ds_mla", dict.fromkeys(FOUR, 1728), "3 * 576"),
    ("deepseek-v4", "swa", 256, "fp8_ds_mla", {1: 37440}, "65 * 576"),
    ("deepseek-v4", "swa", 256, "bfloat16", {1: 65536}, "64 * 512 * 2"),
    ("deepseek-v4", "c4a", 256, "bfloat16", {1: 65536}, "64 * 512 * 2"),
    ("deepseek-v4", "c128a", 256, "bfloat16", {1: 2048}, "2 * 512 * 2"),
    ("deepseek-v4", "compressor-c4", 256, "bfloat16", {1: 32832}, "57 * 576"),
    ("deepseek-v4", "compressor-c128", 256, "bfloat16", {1: 32832}, "57 * 576"),
    ("deepseek-v4", "indexer", 256, "bfloat16", {1: 8640}, "15 * 576"),
    ("deepseek-v4", "indexer-compressor", 256, "bfloat16", {1: 8640}, "15 * 576"),
    ("nemotron-h-8b", "conv", 16, "auto",
     {1: 61440, 2: 30720, 4: 15360, 8: 7680, 16: 4608}, "(8192 + 2 * 8 * 128) * 3 * 2"),
    ("nemotron-h-8b", "ssm", 16, "auto", {1: 4194304, 4: 1048576, 8: 524288},
     "128 * 64 * 128 * 4"),
    ("mamba2", "conv", 16, "auto", {1: 61440, 2: 30720, 4: 15360, 8: 7680, 16: 4608},
     "10240 * 3 * 2"),
    ("mamba2", "ssm", 16, "auto", {1: 2097152, 4: 524288, 8: 262144},
     "128 * 64 * 128 * 2"),
    ("bamba-9b", "conv", 16, "auto", {1: 52224, 2: 27648, 4: 15360, 8: 9216, 16: 6144},
     "(8192 + 2 * 256) * 3 * 2"),
    ("bamba-9b", "ssm", 16, "auto", {1: 4194304, 4: 1048576, 8: 524288},
     "128 * 64 * 256 * 2"),
    ("falcon-h1", "conv", 16, "auto", {1: 9216, 2: 6144, 4: 4608, 8: 3840, 16: 3456},
     "(1024 + 2 * 256) * 3 * 2"),
    ("falcon-h1", "ssm", 16, "auto", {1: 524288, 2: 262144, 4: 131072, 8: 65536,
                                      16: 32768}, "128 * 8 * 256 * 2"),
    ("qwen3-next", "conv", 16, "auto", {1: 49152, 2: 24576, 4: 12288, 8: 6144},
     "(2 * 16 * 128 + 32 * 128) * 3 * 2"),
    ("qwen3-next", "ssm", 16, "auto", {1: 1048576, 2: 524288, 4: 262144, 8: 131072},
     "32 * 128 * 128 * 2"),
    ("qwen3.5", "ssm", 16, "auto", {8: 262144}, "vllm-ascend#7393: ssm_block_page_size"),
    ("jamba", "conv", 16, "auto", {1: 49152, 4: 12288, 8: 6144}, "8192 * 3 * 2"),
    ("jamba", "ssm", 16, "auto", {1: 262144, 4: 65536, 8: 32768}, "8192 * 16 * 2"),
    ("kimi-linear-48b", "conv", 64, "auto", {1: 73728, 4: 18432}, "3 * 32 * 128 * 3 * 2"),
    ("kimi-linear-48b", "ssm", 64, "auto", {1: 2097152, 4: 524288}, "32 * 128 * 128 * 4"),
    ("lfm2", "conv", 16, "auto", {1: 10240, 8: 1280}, "2560 * 2 * 2"),
    ("minimax", "ssm", 16, "auto", {1: 2097152, 8: 262144}, "64 * 128 * 128 * 2"),
    # rows of other types: (D + a float32 scale) twice a head, a byte for 16 of nvfp4
    ("llama-3.1-8b", "full", 16, "int8_per_token_head", {1: 33792}, "16 * 8 * 2 * (128 + 4)"),
    ("llama-3.1-8b", "full", 16, "fp8_per_token_head", {1: 33792}, "16 * 8 * 2 * (128 + 4)"),
    ("llama-3.1-8b", "full", 16, "int4_per_token_head", {1: 17408}, "16 * 8 * 2 * (64 + 4)"),
    ("llama-3.1-8b", "full", 16, "nvfp4", {1: 18432}, "16 * 8 * 2 * (64 + 8)"),
    ("llama-3.1-8b", "full", 16, "fp8", {1: 32768}, "16 * 8 * 2 * 128"),
    # small ones by hand: inter 8 as 4 heads of 2, groups of 2, 3 taps
    ("mamba2-conv:heads=4,head-dim=2,groups=2,state-size=2,kernel=4", "g0", 16, "float16",
     {1: 96, 2: 48}, "16 * 3 * 2"),
    ("mamba2-ssm:heads=4,head-dim=2,state-size=2", "g0", 16, "float16", {1: 64, 2: 32},
     "4 * 2 * 2 * 4"),
    ("mamba2-conv:heads=4,head-dim=2,groups=1,state-size=2,kernel=4", "g0", 16, "float16",
     {1: 72, 2: 48}, "12 * 3 * 2"),
    ("gdn-conv:heads=4,head-dim=2,key-heads=2,key-dim=2,kernel=4", "g0", 16, "float16",
     {1: 96, 2: 48}, "(2 * 4 + 8) * 3 * 2"),
    ("mamba1-conv:inter=8,kernel=4", "g0", 16, "float16", {1: 48, 2: 24}, "8 * 3 * 2"),
    ("mamba1-ssm:inter=8,state-size=2", "g0", 16, "float16", {1: 64, 2: 32}, "8 * 2 * 4"),
    ("gqa:heads=4,head-dim=8", "g0", 16, "float16", {1: 2048},
     "vllm#37885: its test's page of 16 tokens, 4 heads of 8"),
    ("gqa:heads=4,head-dim=2", "g0", 4, "float16", {1: 128, 2: 64},
     "vllm#48414: canonical 128, local 64"),
    ("gqa:heads=2,head-dim=2", "g0", 4, "float16", {1: 64, 4: 32},
     "vllm#48414: canonical 64, local 32"),
    ("gqa:heads=8,head-dim=128", "g0", 16, "float16", {4: 16384}, "16 * 2 * 2 * 128 * 2"),
    ("fp8-ds-mla:layers=1", "g0", 64, "float16", {1: 41984}, "64 * 656"),
]
for model, cache, block, dtype, pages, place in PAGES:
    dtype = [] if ":" in model and dtype == "auto" else [f"--cache-dtype={dtype}"]
    rows = size(model, "--apart", f"--block-size={block}", *dtype,
                "--tp=" + ",".join(map(str, pages)))
    found = {tp: group(row, cache)["page_bytes"] for tp, row in rows.items()}
    first = next(iter(pages))
    check(place, found[first], pages[first], f"{model}: page of {cache}, tp {first}")
    tap.equal(found, pages, f"{model}: pages of {cache} over TP")

# cache of DeepSeek V4: a block before it is padded; place
UNPADDED = [
    ("c4a", 37376, "64 * (448 + 64 * 2 + 8)"), ("c128a", 1168, "2 * 584"),
    ("swa", 37376, "64 * 584"), ("indexer", 8448, "64 * (128 + 4)"),
    ("compressor-c4", 32768, "4 * 2 * 2 * 512 * 4"),
    ("compressor-c128", 32768, "8 * 2 * 512 * 4"),
    ("indexer-compressor", 8192, "4 * 2 * 2 * 128 * 4"),
]
row = size("deepseek-v4", "--cache-dtype=fp8_ds_mla", "--tp=1")[1]
for cache, number, place in UNPADDED:
    check(place, group(row, cache)["unpadded_bytes"], number, f"deepseek-v4: {cache}")
row = size("dsv4-c4a:layers=4,block-size=256", "--cache-dtype=fp8_ds_mla", "--tp=1")[1]
check("vllm#50276: block stride", group(row, "g0")["block_bytes"], 149760,
      "four layers of dsv4-c4a")

# ---- channels of conv states on a rank ----------------------------------------

# of x, B, C or q, k, v: a rank's rows, from class-default configs with 3 taps
CONV = [
    ("nemotron-h-8b", {1: 10240, 2: 5120, 4: 2560, 8: 1280, 16: 768}),
    ("bamba-9b", {1: 8704, 2: 4608, 4: 2560, 8: 1536, 16: 1024}),
    ("falcon-h1", {1: 1536, 2: 1024, 4: 768, 8: 640, 16: 576}),
    ("qwen3-next", {1: 8192, 2: 4096, 4: 2048, 8: 1024}),
]
for model, channels in CONV:
    rows = size(model, "--apart", "--cache-dtype=auto", "--tp=" + ",".join(map(str, channels)))
    tap.equal({tp: group(row, "conv")["page_bytes"] // (3 * 2) for tp, row in rows.items()},
              channels, f"{model}: channels of the conv state over TP")

# ---- blocks of hybrids --------------------------------------------------------

BY_HAND = "by hand: as many tokens as a page of states needs, 16 at a time, 64 of latents"
BY_RELEASE = "by hand, from the rule of that release"
# model, options: tokens of a block, padding of a state's page in per cent; place
BLOCKS = [
    ("nemotron-nano-9b-v2", ("--ssm-dtype=auto", "--tp=1"), 672, "2.13",
     "vllm#24280: 672 tokens"),
    ("nemotron-nano-9b-v2", ("--tp=1",), 1312, "1.08", BY_HAND),
    ("nemotron-3-nano", ("--cache-dtype=fp8", "--tp=1"), 4176, "0.19",
     "a log of vLLM: 4176 tokens and 0.19 %"),
    ("qwen3.5", ("--tp=4",), 528, "0.76", "vllm#37467: 528 tokens and 0.76 %"),
    ("qwen3.5", ("--tp=1",), 1056, "0.76", BY_HAND),
    ("qwen3.5", ("--tp=2",), 1056, "0.76", BY_HAND),
    ("qwen3-next", ("--tp=1",), 544, "1.49", "a log of vLLM 0.10.2: 544 tokens, 1.49 %"),
    ("qwen3-next", ("--tp=4",), 272, "1.49", BY_HAND),
    ("qwen3-next", ("--ssm-dtype=float32", "--tp=1"), 1056, "0.76", BY_HAND),
    ("@qwen3-next-80b-a3b", ("--tp=1",), 544, "1.49", "as above"),
    ("granite-4.0-h-small", ("--tp=1",), 528, "0.69", "vllm-gaudi#1564: 528 tokens"),
    ("kimi-linear-48b", ("--tp=1",), 1920, "1.89", BY_HAND),
    # the step: 128 of latents, before that the backend's; chunks whose states are kept
    ("kimi-linear-48b", ("--tp=2",), 1024, "8.68", BY_RELEASE),
    ("kimi-linear-48b", ("--tp=2", "--release=0.26"), 960, "1.89", BY_RELEASE),
    ("kimi-linear-48b", ("--tp=2", "--release=0.22", "--block-size=16"), 944, "0.19",
     BY_RELEASE),
    ("granite-4.0-h-small", ("--tp=1", "--release=0.24"), 528, "0.69", BY_RELEASE),
    ("granite-4.0-h-small", ("--tp=1", "--release=0.26"), 768, "46.46", BY_RELEASE),
]
for model, options, tokens, padding, place in BLOCKS:
    row = next(iter(size(model, *options).values()))
    state = sum(g["unpadded_bytes"] for g in row["groups"] if g["block_size"] is None)
    percent = "%.2f" % (100 * (row["state_page_bytes"] - state) / state)
    tap.equal((row["block_size"], percent), (tokens, padding),
              f"{model} {' '.join(options)}: {place}")

# ---- pools ----------------------------------------------------------------------

# What vLLM 0.32's own get_kv_cache_groups() and its bytes of a block answered for specs
# that were written down by hand from each model's classes.
# model, options: bytes of a block id; groups in order: how many, tokens, bytes, layers
POOLS = [
    ("@glm-5.2", "--cache-dtype=fp8_ds_mla", 3452160,
     [(1, 64, 3452160, "21 mla, 21 indexer, 57 mla-shared")]),
    ("@glm-5.2", "--cache-dtype=bfloat16", 5928192,
     [(1, 64, 5928192, "21 mla, 21 indexer, 57 mla-shared")]),
    ("@glm-5.2", "--cache-dtype=nvfp4_ds_mla", 1934592,
     [(1, 64, 1934592, "21 mla, 21 indexer, 57 mla-shared")]),
    ("glm-moe-dsa", "--cache-dtype=fp8_ds_mla", 3933696,
     [(1, 64, 3933696, "78 mla, 78 indexer")]),
    ("@glm-5.3-flash", "--cache-dtype=bfloat16 --tp=1", 50600704,
     [(2, 4352, 40108032, "9 conv"), (2, 4352, 35651584, "8 conv"),
      (1, 4352, 50600704, "11 mla, 11 indexer"), (1, 4, 22528, "11 tail")]),
    ("@glm-5.3-flash", "--cache-dtype=bfloat16 --tp=4", 13394304,
     [(2, 1152, 10616832, "9 conv"), (2, 1152, 9437184, "8 conv"),
      (1, 1152, 13394304, "11 mla, 11 indexer"), (1, 4, 22528, "11 tail")]),
    ("@glm-5.3-flash", "--cache-dtype=bfloat16 --tp=8", 7441280,
     [(2, 640, 5898240, "9 conv"), (2, 640, 5242880, "8 conv"),
      (1, 640, 7441280, "11 mla, 11 indexer"), (1, 4, 22528, "11 tail")]),
    ("@kimi-k3", "--cache-dtype=bfloat16 --tp=8", 21233664,
     [(3, 768, 20348928, "23 conv"), (1, 768, 21233664, "24 mla")]),
    ("@qwen3.8-flash-next", "--cache-dtype=bfloat16 --tp=1 --block-size=64", 40550400,
     [(3, 1600, 39321600, "12 conv"), (1, 1600, 3276800, "1 ple"),
      (1, 1600, 40550400, "12 full, 12 key"), (1, 4, 13440, "12 raw-key")]),
    ("@qwen3.8-flash-next", "--cache-dtype=bfloat16 --tp=2 --block-size=128", 21725184,
     [(3, 1664, 20447232, "12 conv"), (1, 1664, 1703936, "1 ple"),
      (1, 1664, 21725184, "12 full, 12 key"), (1, 4, 13440, "12 raw-key")]),
    ("gemma-4", "--cache-dtype=bfloat16 --block-size=32", 1310720,
     [(5, 64, 1310720, "5 window"), (1, 32, 1310720, "5 full")]),
    ("gemma-4-60l", "--cache-dtype=bfloat16 --block-size=32", 5242880,
     [(5, 32, 5242880, "10 window"), (1, 64, 5242880, "10 full")]),
    ("@gemma-4-e2b", "--cache-dtype=bfloat16 --block-size=32", 131072,
     [(6, 64, 131072, "2 window"), (1, 64, 65536, "1 window"),
      (1, 32, 131072, "2 full")]),
    ("@minimax-m3", "--cache-dtype=bfloat16", 17596416,
     [(1, 128, 17596416, "60 full, 57 index-key")]),
    ("@minimax-m3", "--cache-dtype=bfloat16 --tp=4", 5799936,
     [(1, 128, 5799936, "60 full, 57 index-key")]),
    ("@minimax-m3", "--cache-dtype=bfloat16 --indexer-dtype=fp8", 16662528,
     [(1, 128, 16662528, "60 full, 57 index-key")]),
    ("@minimax-m3", "--cache-dtype=nvfp4", 6291456,
     [(1, 128, 6291456, "60 full, 57 index-key")]),
    ("@deepseek-v4.1-flash", "--cache-dtype=fp8_ds_mla_528", 211968,
     [(4, 32, 168960, "10 swa"),
      (1, 128, 211968, "3 main-2, 3 indexer-2, 1 main-1, 1 indexer-1"),
      (1, 8, 98304, "3 ring")]),
    ("@deepseek-v4.1-flash", "--cache-dtype=nvfp4_ds_mla", 135168,
     [(5, 32, 135168, "8 swa"),
      (1, 128, 135168, "3 main-2, 3 indexer-2, 1 main-1, 1 indexer-1"),
      (1, 8, 98304, "3 ring")]),
    ("@deepseek-v4.1-flash", "--cache-dtype=nvfp4_ds_mla --indexer-dtype=mxfp4", 114688,
     [(5, 32, 101376, "6 swa"), (2, 32, 84480, "5 swa"),
      (1, 128, 114688, "3 main-2, 3 indexer-2, 1 main-1, 1 indexer-1"),
      (1, 8, 98304, "3 ring")]),
    ("@deepseek-v4.1-flash", "--cache-dtype=fp8_ds_mla_584", 230400,
     [(4, 32, 190080, "10 swa"),
      (1, 128, 230400, "3 main-2, 3 indexer-2, 1 main-1, 1 indexer-1"),
      (1, 8, 98304, "3 ring")]),
    ("@deepseek-v4-flash", "--cache-dtype=fp8_ds_mla", 1002240,
     [(1, 64, 823680, "22 swa"), (1, 64, 786240, "21 swa"),
      (1, 256, 1002240, "21 c4a, 21 indexer, 20 c128a"),
      (1, 4, 870912, "21 compressor-c4, 21 indexer-compressor"),
      (1, 8, 656640, "20 compressor-c128")]),
    ("@deepseek-v4-flash", "--cache-dtype=fp8_ds_mla --indexer-dtype=mxfp4", 917568,
     [(1, 64, 823680, "22 swa"), (1, 64, 786240, "21 swa"),
      (1, 256, 917568, "21 c4a, 21 indexer, 20 c128a"),
      (1, 4, 870912, "21 compressor-c4, 21 indexer-compressor"),
      (1, 8, 656640, "20 compressor-c128")]),
    ("inkling", "--cache-dtype=bfloat16", 1441792,
     [(5, 16, 1441792, "11 window"), (5, 4, 1441792, "11 conv-window"),
      (1, 32, 1441792, "11 full"), (1, 4, 1441792, "11 conv-full")]),
    ("dots3", "--cache-dtype=bfloat16", 886272,
     [(3, 64, 835584, "6 window"), (1, 64, 886272, "6 mla, 6 indexer")]),
    ("hy-v4", "--cache-dtype=bfloat16", 2591232,
     [(1, 64, 2591232, "10 mla, 10 indexer, 24 mla-shared")]),
    ("llama-4-scout", "--cache-dtype=bfloat16", 786432,
     [(3, 16, 786432, "12 chunk"), (1, 16, 786432, "12 full")]),
    ("gpt-oss-20b", "--cache-dtype=bfloat16", 393216,
     [(1, 16, 393216, "12 window"), (1, 16, 393216, "12 full")]),
]
for model, options, nbytes, groups in POOLS:
    pool = next(iter(size(model, *options.split(), *(
        [] if "--tp" in options else ["--tp=1"])).values()))["pool"]
    name = f"{model} {options}"
    tap.equal(pool.get("block_id_bytes"), nbytes, f"{name}: bytes of a block id")
    tap.equal([(run["groups"], run["parts"][0]["block_size"], run["block_bytes"],
                ", ".join(f"{p['layers']} {p['name']}" for p in run["parts"]))
               for run in pool.get("runs", [])], groups, f"{name}: groups")

# Whether fresh blocks are zeroed: needs_kv_cache_zeroing() of the same release
for model, options, zeroing in [
        ("@glm-5.3-flash", "--cache-dtype=bfloat16", True), ("@kimi-k3", "", True),
        ("@qwen3.8-flash-next", "", True), ("@deepseek-v4-flash", "", True),
        ("@deepseek-v4.1-flash", "--cache-dtype=fp8_ds_mla_528", True),
        ("@glm-5.2", "--cache-dtype=fp8_ds_mla", False),
        ("@glm-5.2", "--cache-dtype=bfloat16", True),
        ("@minimax-m3", "--cache-dtype=bfloat16", False),
        ("@minimax-m3", "--cache-dtype=bfloat16 --indexer-dtype=fp8", True),
        ("gpt-oss-20b", "--cache-dtype=bfloat16", False)]:
    pool = next(iter(size(model, "--tp=1", *options.split()).values()))["pool"]
    tap.equal(pool["zeroing"], zeroing, f"{model} {options}: are fresh blocks zeroed")

# Where a part begins in a block, and that every group begins at byte 0
OFFSETS = [
    ("@glm-5.2", "--cache-dtype=fp8_ds_mla --layout=BLHNC", {"indexer": 881664,
                                                            "mla-shared": 1059072}),
    ("@glm-5.3-flash", "--cache-dtype=bfloat16 --tp=4", {"indexer": 12976128}),
    ("@deepseek-v4.1-flash", "--cache-dtype=fp8_ds_mla_528", {"indexer-2": 101376}),
    ("@deepseek-v4-flash", "--cache-dtype=fp8_ds_mla", {"indexer": 786240,
                                                        "c128a": 967680}),
]
for model, options, offsets in OFFSETS:
    pool = next(iter(size(model, *options.split(), *(
        [] if "--tp" in options else ["--tp=1"])).values()))["pool"]
    found = {p["name"]: p["offset"] for run in pool["runs"] for p in run["parts"]}
    tap.equal({name: found[name] for name in offsets}, offsets,
              f"{model}: where parts begin")
    tap.equal({run["parts"][0]["offset"] for run in pool["runs"]}, {0},
              f"{model}: all groups begin at byte 0")

# Block ids in 8 GiB over those of a request of 131072 tokens, 8192 of them in flight
CONCURRENCY = [
    ("@glm-5.2", "--cache-dtype=fp8_ds_mla", "1.21"),
    ("glm-moe-dsa", "--cache-dtype=fp8_ds_mla", "1.07"),
    ("@glm-5.2", "--cache-dtype=bfloat16", "0.71"),
    ("@glm-5.2", "--cache-dtype=nvfp4_ds_mla", "2.17"),
    ("@glm-5.3-flash", "--cache-dtype=bfloat16 --tp=4", "5.39"),
    ("@glm-5.3-flash", "--cache-dtype=bfloat16 --tp=8", "5.50"),
    ("@glm-5.3-flash", "--cache-dtype=bfloat16 --tp=1", "4.69"),
    ("@kimi-k3", "--cache-dtype=bfloat16 --tp=8", "2.32"),
    ("@qwen3.8-flash-next", "--cache-dtype=bfloat16 --tp=2 --block-size=128", "4.70"),
    ("gemma-4-60l", "--cache-dtype=bfloat16 --block-size=32", "0.47"),
    ("@gemma-4-e2b", "--cache-dtype=bfloat16 --block-size=32", "12.96"),
    ("@minimax-m3", "--cache-dtype=bfloat16", "0.48"),
    ("@minimax-m3", "--cache-dtype=bfloat16 --tp=4", "1.45"),
    ("@minimax-m3", "--cache-dtype=bfloat16 --indexer-dtype=fp8", "0.50"),
    ("@minimax-m3", "--cache-dtype=nvfp4", "1.33"),
    ("@deepseek-v4.1-flash", "--cache-dtype=fp8_ds_mla_528", "19.59"),
    ("@deepseek-v4.1-flash", "--cache-dtype=nvfp4_ds_mla", "27.27"),
    ("@deepseek-v4.1-flash", "--cache-dtype=nvfp4_ds_mla --indexer-dtype=mxfp4", "26.26"),
    ("@deepseek-v4.1-flash", "--cache-dtype=fp8_ds_mla_584", "18.02"),
    ("@deepseek-v4-flash", "--cache-dtype=fp8_ds_mla", "2.22"),
    ("@deepseek-v4-flash", "--cache-dtype=fp8_ds_mla --indexer-dtype=mxfp4", "2.42"),
    ("llama-4-scout", "--cache-dtype=bfloat16", "0.97"),
    ("gpt-oss-20b", "--cache-dtype=bfloat16", "2.51"),
]
for model, options, number in CONCURRENCY:
    row = next(iter(size(model, "--memory=8G", "--tokens=131072", *options.split(), *(
        [] if "--tp" in options else ["--tp=1"])).values()))
    tap.equal("%.2f" % (row["pool"]["block_ids"] / row["pool"]["request_block_ids"]), number,
              f"{model} {options}: requests at a time")
sys.exit(tap.done())
