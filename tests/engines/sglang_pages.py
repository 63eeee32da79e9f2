#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
sglang_pages.py - pages of SGLang's HiCache, written and read by its own classes

Host pools (MHATokenToKVPoolHost, MLATokenToKVPoolHost) hold random bits, all patterns of
them, and HiCacheFile stores and loads their pages, under the hashes that SGLang makes of
the tokens.  What a pool holds is the oracle: kvtool has to read each element of a folder
as it is there, and what kvtool writes has to be, file by file, what a pool of that
layout and rank writes, and to fill an empty pool through HiCacheFile.

Only the kernels that copy between a GPU and a host pool are not run.
"""
import ctypes
import importlib.metadata
import inspect
import json
import os
import random
import sys

import dumps
import page as manual
from proof import Proof
from plain_files import (headed, read_bytes, read_json, safetensors_parts, write_bytes,
                         write_json)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                "contrib"))

proof = Proof("SGLang", importlib.metadata.version("sglang"))
# SGLang builds its hash function when it is first called
os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.join(proof.work, "extensions"))
os.environ.setdefault("XDG_CACHE_HOME", os.path.join(proof.work, "cache"))

import logging
import warnings

warnings.simplefilter("ignore")

import numpy as np
import torch

from sglang.srt.layers.dcp.layout import maybe_dcp_kernel_indices
try:
    from sglang.srt.mem_cache.device_pool_info import (KVBufferLayout, KVBuffers,
                                                       MHABufferInfo, MLABufferInfo)
except ImportError:             # releases before 0.5.23 take the device's pool itself
    MHABufferInfo = MLABufferInfo = None
from sglang.srt.mem_cache.hicache_storage import (HiCacheFile, HiCacheStorageConfig,
                                                  PoolName, PoolTransfer)
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.utils import get_hash_str
try:
    from sglang.srt.mem_cache.utils import storage_namespace_seed as namespace_seed
except ImportError:             # releases before it hash no salt
    namespace_seed = None

logging.disable(logging.WARNING)
torch.set_num_threads(1)

# the axes of a pool's buffer, as init_kv_buffer() of the class has them: k or v,
# layer, page, slot of the page, head, element; p and s are one axis in some
MHA = {"layer_first": "klpshd", "page_first": "kpslhd", "page_first_direct": "kplshd",
       "page_head": "kphsld"}
MLA = {"layer_first": "lpshd", "page_first": "pslhd", "page_first_direct": "plshd"}
# what kvtool calls the order of a page of latents
LATENT = {"layer_first": "mla", "page_first": "BSLC", "page_first_direct": "mla"}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32,
          "float8_e4m3fn": torch.float8_e4m3fn}


# ---- the cache that is stored ------------------------------------------------

class Cache:
    """Elements [k, layer, token, head, d] of two requests, their tokens and hashes."""

    def __init__(self, seed, mla=False, dtype="bf16"):
        r = random.Random(f"{seed} {mla} {dtype}")
        some = lambda first, *others: first if not seed else r.choice(others)
        self.mla, self.dtype = mla, dtype
        self.layers = some(4, 2, 6)
        self.heads = 1 if mla else some(4, 2, 8)
        self.dim = some(24, 16, 40) if mla else some(8, 16, 4)
        self.page = some(4, 8, 12)
        self.model = some("org/tiny-model", "tiny", "a_b/tiny_2")
        pages = [some(5, 3, 6), some(4, 2, 8)]
        self.tokens = [[r.randrange(1 << 17) for _ in range(n * self.page)]
                       for n in pages]
        size = DTYPES[dtype].itemsize
        shape = (1 if mla else 2, self.layers, sum(map(len, self.tokens)), self.heads,
                 self.dim * size)
        bits = np.random.default_rng(r.randrange(1 << 32)).integers(
            0, 256, shape, np.uint8)
        self.x = torch.from_numpy(bits).view(DTYPES[dtype])

    def keys(self, page=None):
        """Hashes of all pages, request after request."""
        page = page or self.page
        return [h for t in self.tokens for h in get_hash_str(t, page_size=page)]

    def part(self, heads=slice(None), layers=slice(None)):
        return self.x[:, layers, :, heads]

    def options(self, layout, **other):
        """What has to be said of a folder."""
        said = {"layout": LATENT[layout], "content": self.dim} if self.mla else \
            {"from": "hicache-" + layout.replace("_", "-"), "heads": self.heads,
             "head-dim": self.dim}
        said.update({"dtype": self.dtype, "block-size": self.page}, **other)
        return [f"--{k}={v}" for k, v in said.items() if v is not None]


# ---- SGLang's pools and files ------------------------------------------------

def of_info(x, mla, page, **common):
    """A host pool from what it asks to know of a device's pool."""
    _, layers, _, heads, dim = x.shape
    rows = [torch.zeros(page, heads, dim, dtype=x.dtype) for _ in range(2 * layers)]
    table = lambda t: torch.tensor([one.data_ptr() for one in t], dtype=torch.uint64)
    geometry = {"page_size": page, "dtype": x.dtype, "device": torch.device("cpu")}
    common |= {"device_capacity_tokens": page, "start_layer": 0, "end_layer": layers}
    if mla:
        info = MLABufferInfo(
            buffers=tuple(rows[:layers]), data_ptrs=table(rows[:layers]),
            layer_indices=tuple(range(layers)), device_layer_num=layers,
            kv_lora_rank=dim - dim // 3, qk_rope_head_dim=dim // 3, kv_cache_dim=dim,
            **geometry)
        return MLATokenToKVPoolHost(info, target_layer_num=layers, **common)
    k, v = tuple(rows[:layers]), tuple(rows[layers:])
    info = MHABufferInfo(
        buffers=KVBuffers(k=k, v=v, k_data_ptrs=table(k), v_data_ptrs=table(v),
                          layout=KVBufferLayout.NHD),
        head_num=heads, head_dim=dim, v_head_dim=dim, **geometry)
    return MHATokenToKVPoolHost(info, **common)


def of_pool(x, mla, page, host_token_capacity, **common):
    """The same in a release whose host pools ask the device's pool."""
    _, layers, _, heads, dim = x.shape
    geometry = {"size": host_token_capacity - page, "page_size": page, "dtype": x.dtype,
                "layer_num": layers, "device": "cpu", "enable_memory_saver": False}
    if mla:
        return MLATokenToKVPoolHost(MLATokenToKVPool(
            kv_lora_rank=dim - dim // 3, qk_rope_head_dim=dim // 3, **geometry), **common)
    return MHATokenToKVPoolHost(MHATokenToKVPool(
        head_num=heads, head_dim=dim, **geometry), **common)


def pool_of(cache, layout, x, page=None, dcp=(0, 1)):
    """
    A host pool of SGLang's with room for the tokens of x, whose pages get places in
    no order, pool.place. (Pools of some layouts need as many pages as layers.)
    """
    _, layers, tokens, _, _ = x.shape
    page = page or cache.page
    pages = tokens // page + layers + 1
    common = {"host_to_device_ratio": 1.0, "host_size": 0, "layout": layout,
              "pin_memory": False, "host_token_capacity": pages * page,
              "page_size": page * dcp[1] if cache.mla else page}
    if cache.mla:
        common |= {"dcp_rank": dcp[0], "dcp_size": dcp[1]}
    with host_memory_budget_scope(1 << 30):
        pool = (of_info if MHABufferInfo else of_pool)(x, cache.mla, page, **common)
    order = random.Random(tokens * layers).sample(range(pages), tokens // page)
    pool.place = torch.tensor(order)
    pool.kv_buffer.view(torch.uint8).fill_(0xa5)
    return pool


def axes_of(pool, x):
    """The buffer of a pool as a view [k, l, page, slot, h, d]."""
    axes = (MLA if x.shape[0] == 1 else MHA)[pool.layout]
    n = dict(zip("klhd", (x.shape[0], x.shape[1], x.shape[3], x.shape[4])))
    n.update(p=pool.page_num, s=pool.page_size)
    b = pool.kv_buffer.view([n[a] for a in axes])
    b = b.permute([axes.index(a) for a in "klpshd" if a in axes])
    return b if "k" in axes else b.unsqueeze(0)


def fill(pool, x):
    view = axes_of(pool, x)
    x = x.view(view.dtype)              # some releases hold fp8 as bytes
    pages = x.reshape(*x.shape[:2], -1, pool.page_size, *x.shape[3:])
    for i, place in enumerate(pool.place):
        view[:, :, place].copy_(pages[:, :, i])
    return pool


def held(pool, x):
    """What a pool holds is x, bit by bit."""
    return bits(axes_of(pool, x)[:, :, pool.place]) == bits(x)


def bits(x):
    return x.contiguous().view(torch.uint8).numpy().tobytes()


def addressed(pool, x):
    """The addresses that SGLang registers for transfers lead to the same elements."""
    page = pool.page_size
    slots = slots_of(pool)
    if pool.layout == "page_head":
        heads = x.shape[3]
        got = list(zip(*pool.get_split_heads_page_buffer_meta(slots, heads)))
        want = [x[kv, :, at:at + page, h].permute(1, 0, 2)
                for at in range(0, x.shape[2], page) for h in range(heads)
                for kv in range(2)]
    else:
        got = list(zip(*pool.get_page_buffer_meta(slots)))
        cells = [x[kv, :, at:at + page] for at in range(0, x.shape[2], page)
                 for kv in range(x.shape[0])]
        if pool.layout == "layer_first":
            pages = [x[:, :, at:at + page] for at in range(0, x.shape[2], page)]
            want = [p[kv, layer] for p in pages for layer in range(x.shape[1])
                    for kv in range(x.shape[0])]
        elif pool.layout == "page_first":
            want = [c.permute(1, 0, 2, 3) for c in cells]
        else:
            want = cells
    return len(got) == len(want) and all(
        ctypes.string_at(p, n) == bits(w) for (p, n), w in zip(got, want))


def slots_of(pool):
    """Slots of the pages of a pool, page after page."""
    return (pool.place[:, None] * pool.page_size + torch.arange(pool.page_size)).flatten()


class Engine:
    """One rank: its pool, and HiCacheFile on a folder."""

    def __init__(self, folder, cache, pool, name=PoolName.KV, **ranks):
        settings = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1,
                    "attn_cp_rank": 0, "attn_cp_size": 1, **ranks}
        settings.update(is_mla_model=cache.mla, enable_storage_metrics=False,
                        is_page_first_layout=pool.layout != "layer_first",
                        model_name=cache.model)
        self.file = HiCacheFile(HiCacheStorageConfig(**settings), folder)
        self.file.register_mem_host_pool_v2(pool, name)
        self.pool, self.name = pool, name

    def transfer(self, keys):
        return [PoolTransfer(name=self.name, host_indices=slots_of(self.pool), keys=keys)]

    def save(self, keys):
        done = self.one_by_one(keys) if self.pool.dcp_size > 1 else \
            self.file.batch_set_v2(self.transfer(keys))[self.name]
        if len(done) != len(keys) or not all(done):
            raise RuntimeError("HiCacheFile wrote not every page")

    def one_by_one(self, keys):
        # slots of a DCP pool count all ranks, and batch_set_v2() those of one
        step = self.pool.logical_page_size
        return [self.file.set(k, self.pool.get_data_page(i * step))
                for i, k in zip(self.pool.place, keys)]

    def load(self, keys):
        """All pages, into the pool; False where one is not found."""
        if self.pool.dcp_size == 1:
            found = self.file.batch_exists_v2(keys).kv_hit_pages
            done = self.file.batch_get_v2(self.transfer(keys))[self.name]
            return (found == len(keys) or self.name != PoolName.KV) and all(done)
        step = self.pool.logical_page_size
        for i, k in zip(self.pool.place, keys):
            page = self.file.get(k, self.pool.get_dummy_flat_data_page())
            if page is None:
                return False
            self.pool.set_from_flat_data_page(i * step, page)
        return True


def save(cache, layout, x, folder, page=None, keys=None, dcp=(0, 1), name=PoolName.KV,
         **ranks):
    """A rank of SGLang writes what x holds; its pool."""
    pool = fill(pool_of(cache, layout, x, page, dcp), x)
    if dcp[1] > 1:
        ranks.update(dcp_rank=dcp[0], dcp_size=dcp[1],
                     logical_page_size=pool.logical_page_size)
    Engine(folder, cache, pool, name, **ranks).save(keys or cache.keys(page))
    return pool


def load(cache, layout, x, folder, page=None, keys=None, dcp=(0, 1), **ranks):
    """A rank of SGLang reads a folder into an empty pool; is it x, bit by bit."""
    pool = pool_of(cache, layout, x, page, dcp)
    if dcp[1] > 1:
        ranks.update(dcp_rank=dcp[0], dcp_size=dcp[1],
                     logical_page_size=pool.logical_page_size)
    engine = Engine(folder, cache, pool, **ranks)
    return engine.load(keys or cache.keys(page)) and held(pool, x)


def contents(folder):
    out = {}
    for name in os.listdir(folder):
        out[name] = read_bytes(os.path.join(folder, name))
    return out


# ---- what kvtool reads --------------------------------------------------------

def read(path, options, mla):
    """{hash: [k, l, s, h, bytes]} of a folder or dump, by a plain copy of it."""
    out = os.path.join(proof.folder("read"), "read.npy")
    to = "mla" if mla else "nhd"
    proof.must("relayout", "-q", f"--to={to}", *options, "-o", out, path)
    side = read_json(out[:-4] + ".json")
    n = side["sizes"]
    raw = np.load(out)
    raw = raw.view(np.uint8).reshape(n["layers"], n["num_blocks"], n["block_size"],
                                     1 if mla else n["num_kv_heads"],
                                     1 if mla else 2, -1)
    return {name: raw[:, b].transpose(3, 0, 1, 2, 4)
            for b, name in enumerate(side["block_names"])}, side


def wrong_pages(got, x, keys, page):
    """Pages that are not what x holds, and those that are missing or too many."""
    wrong = sorted(set(got) ^ set(keys))
    for i, key in enumerate(keys):
        want = x[:, :, i * page:(i + 1) * page].contiguous().view(torch.uint8).numpy()
        if key in got and not np.array_equal(got[key], want):
            wrong.append(key)
    return wrong


def check_read(row, what, path, options, cache, x, page=None, keys=None):
    got, side = read(path, options, cache.mla)
    keys = keys or cache.keys(page)
    row.equal(wrong_pages(got, x, keys, page or cache.page), [],
              f"{what}: {len(keys)} pages of {x[:, :, :cache.page].numel()} elements")
    return side


def check_prompts(row, what, path, options, cache, keys, *said):
    """The same pages by the token ids of their prompts; keys: of each request."""
    asked = os.path.join(proof.folder("prompts"), "prompts.json")
    write_json(asked, cache.tokens)
    r = proof.must("describe", "--json", "--block-tables", f"--prompt={asked}", *said,
                   *options, path)
    got = r.json
    names = got["groups"][0]["block_names"]
    tables = [[names[b] for b in q["block_tables"][0]] for q in got["requests"]]
    row.equal(tables, keys, f"{what}: the pages of each prompt, in order")


def half(cache, rank, of=2):
    n = cache.heads // of
    return cache.part(heads=slice(rank * n, (rank + 1) * n))


# ---- rows ----------------------------------------------------------------------

def layouts_are_read():
    for dtype in DTYPES:
        cache = Cache(proof.seed, dtype=dtype)
        with proof.row("pages of all four layouts are read, every element",
                       f"TP 1, {dtype}") as row:
            for layout in MHA:
                folder = proof.folder(f"{layout}.{dtype}")
                pool = save(cache, layout, cache.x, folder)
                row.ok(addressed(pool, cache.x), f"{layout}: SGLang's own addresses "
                       "lead to the oracle's elements")
                check_read(row, layout, folder, cache.options(layout), cache, cache.x)
                check_prompts(row, layout, folder, cache.options(layout), cache,
                              [get_hash_str(t, page_size=cache.page)
                               for t in cache.tokens])
                back = os.path.join(proof.folder("back"), "pages")
                proof.must("convert", "-q", "--format=hicache", *cache.options(layout),
                           folder, back)
                row.ok(contents(back) == contents(folder),
                       f"{layout}: and written back, names and bytes")


def names_of_namespaces():
    """Salts and extra keys begin the hashes of a request in a way of their own."""
    with proof.row("kvtool names the pages of a prompt as SGLang does",
                   "salts, extra keys, pages of several sizes") as row:
        cache = Cache(proof.seed)
        asked = os.path.join(proof.folder("prompts"), "prompts.json")
        write_json(asked, cache.tokens)
        spaces = [(None, None)]
        if namespace_seed:
            spaces += [(None, "tenant-1"), ("lora-7", None), ("lora-7", "s"), ("", "")]
        for extra, salt in spaces:
            seed = namespace_seed(extra, salt) if namespace_seed else None
            said = [f"--extra-key={extra}"] if extra is not None else []
            said += [f"--salt={salt}"] if salt is not None else []
            for page in 1, 3, cache.page, 16:
                r = proof.must("prefix", "--json", "--engine=sglang", f"--prompt={asked}",
                               f"--block-size={page}", *said)
                got = [[b["hash"] for b in p["blocks"]] for p in r.json["prompts"]]
                want = [get_hash_str(t[:len(t) // page * page], seed, page_size=page)
                        for t in cache.tokens]
                row.equal(got, want, f"extra key {extra}, salt {salt}, pages of {page}")


def ranks_are_read():
    cache = Cache(proof.seed)
    with proof.row("pages of tensor parallel ranks are read, and merged",
                   "TP 2, four layouts") as row:
        for layout in MHA:
            folder = proof.folder("tp2")
            dumps = []
            for rank in range(2):
                save(cache, layout, half(cache, rank), folder, tp_rank=rank, tp_size=2)
            for rank in range(2):
                said = cache.options(layout, heads=cache.heads // 2) + \
                    ["--set", f"rank={rank}_2", "--set", f"total-heads={cache.heads}"]
                side = check_read(row, f"{layout}, rank {rank}", folder, said, cache,
                                  half(cache, rank))
                row.equal([side.get(k) for k in ("tp_size", "tp_rank", "head_start")],
                          [2, rank, rank * cache.heads // 2],
                          f"{layout}, rank {rank}: is that rank")
                dumps.append(f"{proof.work}/rank{rank}.h5")
                proof.must("import", "-q", "-f", *said, "-o", dumps[-1], folder)
            whole = f"{proof.work}/whole.h5"
            proof.must("merge", "-q", "-f", "-o", whole, *dumps)
            check_read(row, f"{layout}, merged", whole, [], cache, cache.x)
    with proof.row("pages of pipeline stages are read", "PP 2, four layouts") as row:
        n = cache.layers // 2
        for layout in MHA:
            folder = proof.folder("pp2")
            for stage in range(2):
                x = cache.part(layers=slice(stage * n, stage * n + n))
                save(cache, layout, x, folder, pp_rank=stage, pp_size=2)
            for stage in range(2):
                x = cache.part(layers=slice(stage * n, stage * n + n))
                side = check_read(
                    row, f"{layout}, stage {stage}", folder, cache.options(layout) +
                    ["--set", f"rank=0_1_2_{stage}"], cache, x)
                row.equal([side.get("pp_size"), side.get("pp_rank")], [2, stage],
                          f"{layout}: is stage {stage}")


def context_parallel():
    cache = Cache(proof.seed)
    with proof.row("slices of pages are read, one rank at a time",
                   "prefill context parallel, CP 2") as row:
        n = cache.layers // 2
        for layout in MHA:
            folder = proof.folder("cp2")
            for rank in range(2):
                x = cache.part(layers=slice(rank * n, rank * n + n))
                save(cache, layout, x, folder, attn_cp_rank=rank, attn_cp_size=2)
            for rank in range(2):
                x = cache.part(layers=slice(rank * n, rank * n + n))
                check_read(row, f"{layout}, CP rank {rank}", folder,
                           cache.options(layout) + ["--set", f"rank=0_1_cp{rank}_2"],
                           cache, x)


def latents():
    for dtype in DTYPES:
        cache = Cache(proof.seed, mla=True, dtype=dtype)
        with proof.row("pages of latents are read and written, every element",
                       f"MLA, three layouts, {dtype}") as row:
            for layout in MLA:
                folder = proof.folder("mla")
                pool = save(cache, layout, cache.x, folder)
                if layout != "layer_first":     # has one entry a layer there, no page
                    row.ok(addressed(pool, cache.x), f"{layout}: SGLang's own addresses")
                check_read(row, layout, folder, cache.options(layout), cache, cache.x)
                for to in MLA:
                    write_and_load(row, cache, layout, to, folder,
                                   cache.options(layout), cache.x)


def decode_context():
    cache = Cache(proof.seed, mla=True)
    what = "shards of pages are dealt out by SGLang and put together by kvtool"
    on = "MLA, DCP 2 of TP 4, three layouts"
    if "dcp_rank" not in inspect.signature(HiCacheStorageConfig).parameters:
        proof.skip(what, on, "HiCacheFile of this release knows no DCP")
        return
    with proof.row(what, on) as row:
        page, logical = cache.page, 2 * cache.page
        whole = cache.x[:, :, :cache.x.shape[2] // logical * logical]
        keys = get_hash_str(sum(cache.tokens, [])[:whole.shape[2]], page_size=logical)
        slots = torch.arange(whole.shape[2])
        for layout in MLA:
            folder = proof.folder("dcp2")
            said = cache.options(layout, **{"block-size": None})
            parts = []
            for rank in range(2):
                mine = slots[rank::2]
                row.ok(torch.equal(maybe_dcp_kernel_indices(slots, 2, rank), mine // 2),
                       f"{layout}: SGLang deals slots to rank {rank} one by one")
                parts.append(whole[:, :, mine])
                save(cache, layout, parts[-1], folder, page, keys, (rank, 2),
                     tp_rank=rank, tp_size=4)
            for rank, x in enumerate(parts):
                name = f"rank=tp4_dcp{rank}_2_page{logical}"
                check_read(row, f"{layout}, rank {rank}", folder,
                           said + ["--set", name], cache, x, page, keys)
                back = os.path.join(proof.folder("back"), "pages")
                proof.must("convert", "-q", "--format=hicache", *said, "--set", name,
                           folder, back)
                row.ok(load(cache, layout, x, back, page, keys, (rank, 2),
                            tp_rank=rank, tp_size=4),
                       f"{layout}: HiCacheFile of rank {rank} reads what kvtool wrote")
            check_read(row, f"{layout}, both", folder, said, cache, whole, logical, keys)
            row.equal(len(contents(folder)), 2 * len(keys), f"{layout}: files")


def sidecars():
    cache, draft = Cache(proof.seed), Cache(proof.seed + 1000)
    draft.page, draft.tokens, draft.model = cache.page, cache.tokens, cache.model
    tokens = torch.arange(cache.x.shape[2])
    draft.x = draft.x[:, :, tokens % draft.x.shape[2]].contiguous()
    with proof.row("two pools in one folder are told apart", "kv and draft") as row:
        for layout in MHA:
            folder = proof.folder("pools")
            save(cache, layout, cache.x, folder)
            save(draft, layout, draft.x, folder, name=PoolName.DRAFT)
            check_read(row, f"{layout}, kv", folder,
                       cache.options(layout) + ["--set", "pool=kv"], cache, cache.x)
            side = check_read(row, f"{layout}, draft", folder, draft.options(layout) +
                              ["--set", "pool=draft"], draft, draft.x)
            row.ok(side["block_names"], f"{layout}: pages have names")


# ---- written by kvtool ---------------------------------------------------------

def write_and_load(row, cache, layout, to, folder, options, x, **ranks):
    """kvtool rewrites a folder; files are those of a pool of that layout, and load."""
    there = f"{layout} to {to}" + "".join(f", {k} {v}" for k, v in ranks.items()
                                         if k == "tp_rank")
    out = os.path.join(proof.folder("to"), "pages")
    name = LATENT[to] if cache.mla else "hicache-" + to.replace("_", "-")
    proof.must("relayout", "-q", f"--to={name}", "--format=hicache", "-o", out, *options,
               folder)
    own = proof.folder("own")
    save(cache, to, x, own, **ranks)
    row.ok(contents(own) == contents(out), f"{there}: files are those SGLang writes",
           f"{sorted(contents(own))[:2]}\n{sorted(contents(out))[:2]}")
    row.ok(load(cache, to, x, out, **ranks), f"{there}: HiCacheFile loads them")


def layouts_are_written():
    cache = Cache(proof.seed)
    with proof.row("pages that kvtool relays out are those that SGLang writes, and load",
                   "four layouts to four, TP 1") as row:
        for layout in MHA:
            folder = proof.folder("from")
            save(cache, layout, cache.x, folder)
            for to in MHA:
                write_and_load(row, cache, layout, to, folder, cache.options(layout),
                               cache.x)
    with proof.row("pages that kvtool relays out are those that SGLang writes, and load",
                   "four layouts to four, TP 2") as row:
        for layout in MHA:
            folder = proof.folder("from")
            for rank in range(2):
                save(cache, layout, half(cache, rank), folder, tp_rank=rank, tp_size=2)
            said = cache.options(layout, heads=cache.heads // 2)
            for to in MHA:
                for rank in range(2):
                    write_and_load(row, cache, layout, to, folder, said +
                                   ["--set", f"rank={rank}_2", "--set",
                                    f"total-heads={cache.heads}"], half(cache, rank),
                                   tp_rank=rank, tp_size=2)


def tensor_parallel_changes():
    cache = Cache(proof.seed)
    with proof.row("another number of ranks: files are those SGLang writes, and load",
                   "TP 1 to 2 and back, four layouts to four") as row:
        for layout in MHA:
            for to in MHA:
                change_ranks(row, cache, layout, to)


def change_ranks(row, cache, layout, to):
    name = "hicache-" + to.replace("_", "-")
    back = "hicache-" + layout.replace("_", "-")
    folder, out = proof.folder("tp1"), proof.folder("tp1to2")
    save(cache, layout, cache.x, folder)
    dumps, one = [], f"{proof.work}/one.h5"
    proof.must("import", "-q", "-f", *cache.options(layout), "-o", one, folder)
    for rank in range(2):
        cut, pages = f"{proof.work}/cut{rank}.h5", os.path.join(out, str(rank))
        proof.must("slice", "-q", "-f", "--tp-size=2", f"--tp-rank={rank}", "-o", cut,
                   one)
        proof.must("relayout", "-q", f"--to={name}", "--format=hicache", "-o", pages, cut)
        own = proof.folder("own")
        save(cache, to, half(cache, rank), own, tp_rank=rank, tp_size=2)
        row.ok(contents(own) == contents(pages),
               f"{layout} to {to}: rank {rank} has the files of SGLang")
        row.ok(load(cache, to, half(cache, rank), pages, tp_rank=rank, tp_size=2),
               f"{layout} to {to}: rank {rank} loads them")
        dumps.append(f"{proof.work}/again{rank}.h5")
        proof.must("import", "-q", "-f", *cache.options(to, heads=cache.heads // 2),
                   "--set", f"total-heads={cache.heads}", "-o", dumps[-1], pages)
    whole, again = f"{proof.work}/whole.h5", os.path.join(out, "again")
    proof.must("merge", "-q", "-f", "-o", whole, *dumps)
    proof.must("relayout", "-q", f"--to={back}", "--format=hicache", "-o", again, whole)
    row.ok(contents(again) == contents(folder), f"{layout} to {to} and back: the files")
    row.ok(load(cache, layout, cache.x, again), f"{layout} to {to} and back: loads")


# ---- pages of another size -------------------------------------------------------

def with_tables(cache, layout, folder):
    """A dump of a folder whose pages are in tables: what the engine's tree knows."""
    plain = f"{proof.work}/tables.safetensors"
    proof.must("convert", "-q", "-f", *cache.options(layout), folder, plain)
    header, data = safetensors_parts(plain)
    side = json.loads(header["__metadata__"]["kvtool"])
    at = {name: b for b, name in enumerate(side["block_names"])}
    side["block_table"], side["num_tokens"] = {}, {}
    for request, tokens in enumerate(cache.tokens):
        pages = get_hash_str(tokens, page_size=cache.page)
        side["block_table"][str(request)] = [at[h] for h in pages]
        side["num_tokens"][str(request)] = len(tokens)
    write_safetensors(plain, header, side, data)
    return plain


def write_safetensors(path, header, side, data):
    header["__metadata__"]["kvtool"] = json.dumps(side)
    write_bytes(path, headed(header, data))


def named(cache, path, page):
    """Blocks get the hashes of their tokens; tables have done their work."""
    header, data = safetensors_parts(path)
    side = json.loads(header["__metadata__"]["kvtool"])
    names = [None] * side["sizes"]["num_blocks"]
    ids = side.get("block_ids") or list(range(len(names)))
    for request, tokens in enumerate(cache.tokens):
        pages = get_hash_str(tokens, page_size=page)
        for block, h in zip(side["block_table"][str(request)], pages):
            names[ids.index(block)] = h
    if None in names:
        raise RuntimeError("a block is in no table")
    side["block_names"] = names
    write_safetensors(path, header, side, data)


def whole_pages(cache, page):
    """Requests of a length that pages of both sizes divide."""
    cut = Cache(proof.seed)
    cut.__dict__.update(cache.__dict__)
    step = np.lcm(page, cache.page)
    at, rows, cut.tokens = 0, [], []
    for tokens in cache.tokens:
        n = len(tokens) // step * step
        rows += range(at, at + n)
        at += len(tokens)
        if n:
            cut.tokens.append(tokens[:n])
    cut.x = cache.x[:, :, rows]
    return cut


def page_sizes():
    cache = Cache(proof.seed)
    for page in (cache.page * 2, cache.page // 2, cache.page * 3 // 2):
        cut = whole_pages(cache, page)
        with proof.row("pages of another size and layout are those that SGLang writes, "
                       "and load", f"reblock, {cache.page} to {page} tokens") as row:
            for layout, to in zip(MHA, [*list(MHA)[1:], "layer_first"]):
                change_pages(row, cut, layout, to, page)
        with proof.row("pages of another size and layout are those that SGLang writes, "
                       "and load",
                       f"transfer-sim exec, {cache.page} to {page} tokens") as row:
            for layout, to in zip(MHA, [*list(MHA)[2:], "layer_first", "page_first"]):
                execute(row, cut, layout, to, page)


def finish(row, cut, to, page, dump, what):
    named(cut, dump, page)
    out = os.path.join(proof.folder("pages"), "pages")
    proof.must("convert", "-q", "--format=hicache", dump, out)
    own = proof.folder("own")
    save(cut, to, cut.x, own, page)
    row.ok(contents(own) == contents(out), f"{what}: files are those SGLang writes",
           f"{sorted(contents(own))[:2]}\n{sorted(contents(out))[:2]}")
    row.ok(load(cut, to, cut.x, out, page), f"{what}: HiCacheFile loads them")


def change_pages(row, cut, layout, to, page):
    folder = proof.folder("source")
    save(cut, layout, cut.x, folder)
    dump = f"{proof.work}/pages.safetensors"
    proof.must("reblock", "-q", "-f", "--compact", f"--block-size={page}",
               f"--to=hicache-{to.replace('_', '-')}", "-o", dump,
               with_tables(cut, layout, folder))
    finish(row, cut, to, page, dump, f"{layout} to {to}")


def execute(row, cut, layout, to, page):
    folder = proof.folder("source")
    save(cut, layout, cut.x, folder)
    source = with_tables(cut, layout, folder)
    blocks = sum(len(t) for t in cut.tokens) // page
    made, dump = f"{proof.work}/made.safetensors", f"{proof.work}/exec.safetensors"
    proof.must("transfer-sim", "exec", "-q", "-f", "-o", made,
               f"--dst=layout=hicache-{to.replace('_', '-')},block-size={page}", source)
    # the pool has blocks to spare, which HiCache has no pages for
    proof.must("slice", "-q", "-f", f"--blocks=0:{blocks}", "-o", dump, made)
    finish(row, cut, to, page, dump, f"{layout} to {to}")


# ---- faults --------------------------------------------------------------------

FAULTS = ["swap-heads,a=0,b=1", "swap-kv", "wrong-layer,layer=1,from=0",
          "stale-block,block=2,from=0", "zero-block,block=1", "byte-order",
          "flip-bits,count=1", "shift-blocks,by=1", "scale,kv=2,factor=2"]


def faults():
    cache = Cache(proof.seed)
    # values, not bits: a fault that scales or reorders is told by what they are
    g = torch.Generator().manual_seed(proof.seed)
    cache.x = torch.randn(cache.x.shape, generator=g).to(torch.bfloat16)
    with proof.row("a planted fault is not what SGLang holds, and diff names it",
                   f"{len(FAULTS)} faults in four layouts") as row:
        for layout in MHA:
            folder = proof.folder("good")
            save(cache, layout, cache.x, folder)
            for fault in FAULTS:
                bad = os.path.join(proof.folder("bad"), "pages")
                proof.must("mutate", "-q", f"--fault={fault}", "--format=hicache",
                           *cache.options(layout), "-o", bad, folder)
                row.ok(not load(cache, layout, cache.x, bad),
                       f"{layout}, {fault}: SGLang loads something else")
                r = proof.kvtool("diff", "--json", *cache.options(layout), folder, bad)
                name = fault.split(",", maxsplit=1)[0]
                row.ok(r.code == 1 and f'"{name}"' in r.out,
                       f"{layout}, {fault}: diff says {name}", r)


def server_options():
    """No server runs without a GPU, but what it is told is looked at."""
    import argparse
    from sglang.srt.server_args import ServerArgs
    with proof.row("options and variables of kvtool-dumps(7) are those of SGLang",
                   "HiCache in files") as row:
        export, server, read = manual.commands("sglang-server")
        name, folder = export[1].split("=")
        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
        got = parser.parse_args(server[server.index("sglang.launch_server") + 1:])
        row.equal((got.page_size, got.enable_hierarchical_cache,
                   got.hicache_storage_backend), (64, True, "file"), "options")
        row.ok(f"--from=hicache-{got.hicache_mem_layout.replace('_', '-')}" in read and
               f"--block-size={got.page_size}" in read and folder in read,
               "kvtool is told the same", read)
        os.environ[name] = os.path.join(proof.folder("variable"), folder)
        made = HiCacheFile(HiCacheStorageConfig(
            tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
            is_mla_model=False, enable_storage_metrics=False, is_page_first_layout=True,
            model_name="m"))
        row.equal(made.file_path, os.environ.pop(name), "the folder")


def device_pools():
    """
    contrib/kvtool_capture.py of SGLang's pool.  Its buffers are filled by index: the
    method that stores asks for the model runner, whose kernels need a GPU.
    """
    page, heads, dim, layers, slots = 4, 2, 16, 3, 64
    pool = MHATokenToKVPool(size=slots, page_size=page, dtype=torch.bfloat16,
                            head_num=heads, head_dim=dim, layer_num=layers, device="cpu",
                            enable_memory_saver=False)
    draw = random.Random(proof.seed)
    pages = draw.sample(range(1, slots // page + 1), 9)
    tables, lengths = {"A": pages[:5], "B": pages[5:]}, {"A": 18, "B": 13 + proof.seed % 3}
    given = {}
    for name, table in tables.items():
        at = torch.tensor([table[t // page] * page + t % page
                           for t in range(lengths[name])])
        for layer in range(layers):
            given[name, layer] = torch.randn(2, lengths[name], heads, dim).bfloat16()
            pool.k_buffer[layer][at] = given[name, layer][0]
            pool.v_buffer[layer][at] = given[name, layer][1]
    folder = proof.folder("device")
    manual.run_python("sglang-pool", folder, pool=pool, page=page, heads=heads, dim=dim,
                      layers=layers, tables=tables, lengths=lengths)
    path = os.path.join(folder, "pool.safetensors")
    with proof.row("a pool in memory is captured", "MHATokenToKVPool, bf16") as row:
        row.equal(proof.kvtool("fsck", path).code, 0, "fsck is content")
        dump = dumps.read(proof, path)
        for (name, layer), want in given.items():
            got = dump.layer(name, layer)
            for half in (0, 1):
                bits = want[half].view(torch.int16).numpy().view("<u2")
                row.ok(np.array_equal(got[half], bits), f"{name}, layer {layer}, "
                       f"{'keys' if half == 0 else 'values'}: {bits.size} elements")


def main():
    server_options()
    device_pools()
    layouts_are_read()
    names_of_namespaces()
    ranks_are_read()
    context_parallel()
    latents()
    decode_context()
    sidecars()
    layouts_are_written()
    tensor_parallel_changes()
    page_sizes()
    faults()
    proof.skip("copies between the device's pool and the host pool", "sgl_kernel",
               "the kernels need a GPU; host pools are filled as their own views and "
               "addresses say")
    proof.skip("greedy tokens after pages were loaded", "SGLang's server",
               "its model runner needs kernels that run on a GPU")
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
