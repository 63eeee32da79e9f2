# SPDX-License-Identifier: Apache-2.0
"""
store_trees.py - folders of engines' stores, written and read from their
descriptions

Nothing here knows how kvtool works.  A cache is an array of bits with the axes
K L B S H D (K is 1 for latent content).  The writers put it where each engine
would; the readers look blocks up by name, as the engines do.
"""
import hashlib
import json
import os

import numpy as np

from oracle import read_bytes, write_bytes

AXES = "KLBSHD"


def block_name(b):
    """64 hex digits, ascending with b."""
    return f"{b:04x}" + hashlib.sha256(b"%d" % b).hexdigest()[:60]


def ordered(cells, axes):
    """The bytes of an array with these axes, slowest first; others are gone."""
    left = [a for a in AXES if a not in axes]
    for a in left:
        if cells.shape[AXES.index(a)] != 1:
            raise ValueError(f"axis {a} is lost")
    order = [AXES.index(a) for a in axes] + [AXES.index(a) for a in left]
    return np.ascontiguousarray(cells.transpose(order)).tobytes()


def unordered(raw, axes, dims, dtype):
    """The inverse: K L B S H D."""
    array = np.frombuffer(raw, dtype).reshape([dims[a] for a in axes])
    axes = list(axes)
    for a in AXES:
        if a not in axes:
            array = array[..., None]
            axes.append(a)
    return array.transpose([axes.index(a) for a in AXES])


def put(path, raw):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_bytes(path, raw)


def get(path):
    return read_bytes(path)


def tree(path):
    """{name below path: bytes} of all files."""
    out = {}
    for folder, _, files in os.walk(path):
        for name in files:
            full = os.path.join(folder, name)
            out[os.path.relpath(full, path)] = get(full)
    return out


def one_block(dims):
    return dict(dims, B=1)


# ---- SGLang HiCache -----------------------------------------------------------

HICACHE = {
    "hicache-layer-first": "KLSHD", "hicache-page-first": "KSLHD",
    "hicache-page-first-direct": "KLSHD", "hicache-page-head": "KHSLD",
    "mla": "LSD", "BSLC": "SLD",
}


def hicache_file(b, model, rank, pool=""):
    return block_name(b) + pool + "_" + model.replace("/", "-") + rank + ".bin"


def write_hicache(path, cells, layout, model, rank="_0_1", pool=""):
    for b in range(cells.shape[2]):
        put(os.path.join(path, hicache_file(b, model, rank, pool)),
            ordered(cells[:, :, b:b + 1], HICACHE[layout]))


def read_hicache(path, dims, layout, model, rank="_0_1", pool="", dtype=np.uint16):
    pages = [unordered(get(os.path.join(path, hicache_file(b, model, rank, pool))),
                       HICACHE[layout], one_block(dims), dtype)
             for b in range(dims["B"])]
    return np.concatenate(pages, axis=2)


# ---- llm-d's and vLLM's file-system offload -------------------------------------

def offload_config(groups, dtype="bfloat16", model="org/stories", tp=1,
                   blocks_per_file=1, **more):
    config = {"model_name": model, "hash_block_size": groups[0][0],
              "gpu_blocks_per_file": blocks_per_file, "tp_size": tp, "pp_size": 1,
              "pcp_size": 1, "dcp_size": 1, "dtype": dtype,
              "kv_cache_groups": [{"block_size": s, "layer_names": names}
                                  for s, names in groups],
              "inference_engine": "vllm"}
    config.update(more)
    return config


def renamed(config):
    """The same as later versions write it."""
    out = dict(config)
    out["tokens_per_hash"] = out.pop("hash_block_size")
    out["blocks_per_file"] = out.pop("gpu_blocks_per_file")
    out["kv_cache_groups"] = [
        {"tokens_per_block": g["block_size"], "layer_names": g["layer_names"]}
        for g in out["kv_cache_groups"]]
    return out


def offload_base(config):
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:12]
    return config["model_name"].replace("/", "_") + "_" + digest


def offload_file(root, config, rank, group, name):
    return os.path.join(root, f"{offload_base(config)}_r{rank}", name[:3],
                        f"{name[3:5]}_g{group}", name + ".bin")


def blocks_per_file(config):
    return config.get("gpu_blocks_per_file") or config["blocks_per_file"]


def file_runs(config, nblocks):
    """[(name, first block, blocks)]: ranges, the last of them perhaps a tail."""
    n = blocks_per_file(config)
    return [(block_name(at), at, min(n, nblocks - at)) for at in range(0, nblocks, n)]


def write_offload(root, config, cells, order, rank=0, group=0, pad=0):
    put(os.path.join(root, offload_base(config), "config.json"),
        json.dumps(config, indent=2).encode())
    for name, at, n in file_runs(config, cells.shape[2]):
        raw = b""
        for b in range(at, at + n):
            for l in range(cells.shape[1]):
                raw += ordered(cells[:, l:l + 1, b:b + 1], order) + b"\xee" * pad
        put(offload_file(root, config, rank, group, name), raw)


def read_offload(root, config, dims, order, rank=0, group=0, dtype=np.uint16):
    blocks = []
    page = {a: dims[a] for a in "KSHD"}
    page["L"] = page["B"] = 1
    for name, at, n in file_runs(config, dims["B"]):
        raw = get(offload_file(root, config, rank, group, name))
        step = len(raw) // (n * dims["L"])
        for i in range(n):
            layers = [unordered(raw[(i * dims["L"] + l) * step:][:step], order, page,
                                dtype) for l in range(dims["L"])]
            blocks.append(np.concatenate(layers, axis=1))
    return np.concatenate(blocks, axis=2)


# ---- rows of vLLM's file-system tier ----------------------------------------------

def rank_bytes(cells, order, heads, layers, per_file, block_bytes=0, junk=0):
    """
    What one rank's tensors hold of the blocks of a file: axes 'order', which
    begin with LB or with B, as far as this group goes; 'junk' is the rest of what
    the largest group has, and of blocks that are longer than they need be.
    """
    mine = cells[..., heads[0]:heads[1], :]
    page = len(ordered(mine[:, :1, :1], order.replace("L", "").replace("B", "")))
    step = block_bytes or page
    if order.startswith("LB"):
        pages = [ordered(mine[:, l:l + 1, b:b + 1], order[2:]).ljust(step, junk)
                 for l in range(mine.shape[1]) for b in range(per_file)]
        return b"".join(pages).ljust(layers * per_file * step, junk)
    return b"".join(ordered(mine[:, :, b:b + 1], order[1:]).ljust(layers * step, junk)
                    for b in range(per_file))


def write_rows(root, config, cells, order, ranks=1, group=0, layers=0, canonical=False,
               block_bytes=0, align=4096, junk=b"\xee", latent=False):
    """'layers': of the largest group."""
    put(os.path.join(root, offload_base(config), "config.json"),
        json.dumps(config, indent=2, sort_keys=True).encode())
    n, heads = blocks_per_file(config), cells.shape[4]
    each = heads if latent else max(1, heads // ranks)
    for at in range(0, cells.shape[2], n):
        some, row = cells[:, :, at:at + n], b""
        for r in range(1 if canonical else ranks):
            first = 0 if canonical or latent else r * heads // ranks
            row += rank_bytes(some, order, (first, heads if canonical else first + each),
                              layers or cells.shape[1], n, block_bytes, junk)
        if canonical and not latent and ranks > heads:
            row = row.ljust(len(row) * (ranks // heads), b"\0")
        put(offload_file(root, config, 0, group, block_name(at)),
            row.ljust(-len(row) % align + len(row), b"\0"))


# ---- TensorRT-LLM ---------------------------------------------------------------

def write_trtllm(path, cells, ids, pool=0):
    axes = "LSD" if cells.shape[0] == 1 else "LKHSD"
    for b, i in enumerate(ids):
        put(os.path.join(path, f"block_{i}_pool_{pool}.bin"),
            ordered(cells[:, :, b:b + 1], axes))


# ---- FlexKV -----------------------------------------------------------------------

def write_flexkv(path, cells, axes, devices=1, files=1, round_robin=1,
                 interleaved=False, prefix="flexkv_ssdcache_12ab"):
    """Block by block, as the engine computes where one goes."""
    total = cells.shape[2]
    each = total // devices // files
    k, l, _, s, h, d = cells.shape
    pools = {(dev, f): np.zeros((k, l, each, s, h, d), cells.dtype)
             for dev in range(devices) for f in range(files)}
    for b in range(total):
        dev = b // round_robin % devices
        there = b // round_robin // devices * round_robin + b % round_robin
        if interleaved:
            f, at = there % files, there // files
        else:
            f, at = there // each, there % each
        pools[dev, f][:, :, at] = cells[:, :, b]
    for (dev, f), pool in pools.items():
        put(os.path.join(path, f"disk{dev}", f"{prefix}_{dev}_{f}.bin"),
            ordered(pool, axes))


# ---- Dynamo KVBM --------------------------------------------------------------------

def kvbm_descriptor(dims, kind, itemsize=2, heads=True, alignment=1, size=None):
    """kind: a name of FullyContiguous, or (block_dim, name) of LayerSeparate."""
    if isinstance(kind, tuple):
        details = {"LayerSeparate": {"block_dim": kind[0], "kv_block_layout": kind[1]}}
    else:
        details = {"FullyContiguous": {"block_format": "Operational",
                                       "kv_block_layout": kind}}
    return {
        "version": 1,
        "layout_config": {
            "num_blocks": dims["B"], "num_layers": dims["L"], "outer_dim": dims["K"],
            "page_size": dims["S"], "inner_dim": dims["H"] * dims["D"],
            "alignment": alignment, "dtype_width_bytes": itemsize,
            "num_heads": dims["H"] if heads else None},
        "location": "System",
        "nixl_metadata": {"agent_name": "a", "mem_type": "Dram", "device_id": 0},
        "memory_descriptors": [{"addr": 4096, "size": size or 0}],
        "layout_type_details": details}
