# SPDX-License-Identifier: Apache-2.0
"""
kvtool_regions.py - what a KV connector of vLLM registered, as kvtool-regions(5) has it

    import kvtool_regions
    kvtool_regions.watch("regions.{rank}.json")     # before the engine is made

One file to copy to where the engine runs.  From then on each worker that registers its
caches with NixlConnector, MooncakeConnector or OffloadingConnector writes what it
registered beside what the engine has: kvtool fsck, diff and describe read that.  Where
workers are processes that do not inherit this, call watch() in a sitecustomize.py on
PYTHONPATH.  What a connector registers is not changed.
"""
import dataclasses
import importlib
import json

PLACE = "vllm.distributed.kv_transfer.kv_connector.v1."


# ---- what the engine has -----------------------------------------------------

def _specs(config):
    """{layer: (group, spec)}; a layer that reads another one's cache is in no group."""
    out = {}
    for number, group in enumerate(config.kv_cache_groups):
        each = getattr(group.kv_cache_spec, "kv_cache_specs", {})
        for name in group.layer_names:
            out[name] = number, each.get(name, group.kv_cache_spec)
    return out


def _rows(tensor):
    """(base, stride, blocks, length) of each run of bytes that every block has."""
    size, run, apart = tensor.element_size(), 1, [0]
    for stride, n in sorted(zip(tensor.stride()[1:], tensor.shape[1:])):
        if n > 1 and stride == run:
            run *= n
        elif n > 1:
            apart = [at + i * stride for i in range(n) for at in apart]
    return [(tensor.data_ptr() + at * size, tensor.stride(0) * size, tensor.shape[0],
             run * size) for at in apart]


def _tensors(tensor, spec, blocks):
    """[(part, rows)] of a layer."""
    if type(spec).__name__ == "MambaSpec":
        stride = tensor.stride(0) * tensor.element_size() if tensor.dim() > 1 else \
            spec.page_size_bytes
        length = dataclasses.replace(spec, page_size_padded=None).page_size_bytes
        return [("state", [(tensor.data_ptr(), stride, blocks, length)])]
    if tensor.dim() == 1:
        page = spec.page_size_bytes
        return [("kv", [(tensor.data_ptr(), page, blocks, page)])]
    if tensor.dim() == 5 and tensor.shape[0] == 2:      # before vLLM 0.23
        return [("k", _rows(tensor[0])), ("v", _rows(tensor[1]))]
    return [("kv", _rows(tensor))]


def _heads(spec, total, rank, size):
    heads = getattr(spec, "num_kv_heads", None)
    if not heads or "MLA" in type(spec).__name__:
        return (1, 0) if heads else None
    return heads, rank * heads if heads * size <= total else rank * total // size


def _engine(self, caches, rank, size):
    config, model = self.kv_cache_config, self.vllm_config.model_config
    total = model.get_total_num_kv_heads()
    groups, layers = {}, []
    for name, (group, spec) in _specs(config).items():
        if name not in caches:
            continue
        for part, rows in _tensors(caches[name], spec, config.num_blocks):
            heads = _heads(spec, total, rank, size) if part != "state" else None
            if heads and len(rows) == heads[0]:
                cut = [(1, heads[1] + i) for i in range(heads[0])]
            else:
                cut = [heads if len(rows) == 1 else None] * len(rows)
            for (base, stride, blocks, length), of in zip(rows, cut):
                layers.append({"name": name, "group": group, "part": part,
                               "base": base, "stride": stride, "blocks": blocks,
                               "block_len": length})
                padded = min(spec.page_size_bytes * config.num_blocks // blocks, stride)
                if len(rows) == 1 and padded > length:
                    layers[-1]["padded_block_len"] = padded
                if of:
                    layers[-1].update(heads=of[0], first_head=of[1])
            groups[group] = {"id": group, "block_size": spec.block_size,
                             "kernel_block_size": spec.block_size * config.num_blocks //
                             rows[0][2], "blocks": config.num_blocks}
    return list(groups.values()), layers


# ---- what a connector registered ---------------------------------------------

def _region(base, stride, blocks, length, layers, group, ids, part="kv"):
    return {"base": base, "stride": stride, "blocks": blocks, "block_len": length,
            "layers": layers, "group": group, "part": part, "ids": ids}


def _at(layers, base, name):
    """Layers of a region: those that begin there, which the connector folded into it."""
    names = dict.fromkeys(v["name"] for v in layers if v["base"] == base)
    return list(names) or [name]


def _nixl(self, layers, calls):
    bases = self.kv_caches_base_addr[self.engine_id]
    bases = bases[self.tp_rank] if isinstance(bases, dict) else bases
    rows = zip(bases, self.block_stride_per_layer, self.region_num_blocks,
               self.block_len_per_layer, self.region_names, self.region_group_ids)
    memory = [{"base": d[0], "length": d[1], "device": f"{kind}:{d[2]}"}
              for descs, kind in calls for d in descs]
    return memory, [_region(base, stride, blocks, length, _at(layers, base, name),
                            max(group, -1), "kernel")
                    for base, stride, blocks, length, name, group in rows]


def _mooncake(self, layers, calls):
    blocks = self.kv_cache_config.num_blocks * self._physical_blocks_per_logical_kv_block
    rows = zip(self.kv_caches_base_addr, self.block_len_per_layer,
               self.kv_block_len_per_layer, self.registered_layer_names,
               self.registered_group_indices)
    memory = [{"base": at, "length": n} for call in calls for at, n in zip(*call)]
    return memory, [_region(base, stride, blocks, length, _at(layers, base, name),
                            max(group, -1), "kernel")
                    for base, stride, length, name, group in rows]


def _offloading(self, layers, calls):
    (canonical,), = calls
    names = [[] for _ in canonical.tensors]
    owner = [set() for _ in canonical.tensors]
    for number, refs in enumerate(canonical.group_data_refs):
        listed = self.kv_cache_config.kv_cache_groups[number].layer_names
        for ref, name in zip(refs, listed):
            names[ref.tensor_idx].append(name)
            owner[ref.tensor_idx].add(number)
    regions = []
    for row, of, groups in zip(canonical.tensors, names, owner):
        t = row.tensor
        regions.append(_region(t.data_ptr(), t.stride(0), t.shape[0],
                               row.page_size_bytes, of,
                               groups.pop() if len(groups) == 1 else -1, "manager"))
    return [], regions


# connector, module, class of its worker, who is told what, and by which call
WORKERS = [
    ("NixlConnector", "nixl.base_worker", "NixlBaseConnectorWorker", _nixl, "order",
     "nixl_wrapper", "get_reg_descs"),
    ("MooncakeConnector", "mooncake.mooncake_connector", "MooncakeConnectorWorker",
     _mooncake, "layer", "engine", "batch_register_memory"),
    ("OffloadingConnector", "offloading.worker", "OffloadingConnectorWorker",
     _offloading, "order", None, "_init_worker"),
]


class _Tap:
    """Stands for an object and keeps the arguments of one of its methods."""

    def __init__(self, real, method, calls):
        self._real, self._method, self._calls = real, method, calls

    def __getattr__(self, name):
        found = getattr(self._real, name)
        if name != self._method:
            return found

        def call(*args):
            self._calls.append(args)
            return found(*args)
        return call


def _watch(path, connector, owner, regions, pairing, told, method):
    real = owner.register_kv_caches

    def register_kv_caches(self, kv_caches):
        calls = []
        if told:
            kept = getattr(self, told)
            setattr(self, told, _Tap(kept, method, calls))
        else:
            setattr(self, method, getattr(_Tap(self, method, calls), method))
        try:
            result = real(self, kv_caches)
        finally:
            if told:
                setattr(self, told, kept)
            else:
                delattr(self, method)
        _write(path, connector, self, kv_caches, regions, pairing, calls)
        return result

    owner.register_kv_caches = register_kv_caches


def _text(table):
    """JSON, an entry a line."""
    out = []
    for key, value in table.items():
        text = json.dumps(value)
        if isinstance(value, list):
            text = "[" + ",".join(f"\n  {json.dumps(entry)}" for entry in value) + "]"
        out.append(f"{json.dumps(key)}: {text}")
    return "{" + ",\n ".join(out) + "}\n"


def _write(path, connector, self, caches, regions, pairing, calls):
    from vllm import __version__
    parallel = self.vllm_config.parallel_config
    size = parallel.tensor_parallel_size
    rank = parallel.rank % size
    groups, layers = _engine(self, caches, rank, size)
    memory, rows = regions(self, layers, calls)
    role = self.vllm_config.kv_transfer_config.kv_role
    table = {"kvtool_regions": 1, "engine": f"vllm {__version__}",
             "connector": connector, "role": role, "tp_size": size, "tp_rank": rank,
             "pairing": pairing, "groups": groups, "memory": memory, "layers": layers,
             "regions": rows}
    with open(path.format(rank=parallel.rank, role=role, connector=connector), "w",
              encoding="utf-8") as f:
        f.write(_text(table))


def watch(path="regions.{rank}.json"):
    """Every connector that can be imported here; returns their names."""
    watched = []
    for connector, module, cls, *rest in WORKERS:
        try:
            owner = getattr(importlib.import_module(PLACE + module), cls)
        except (ImportError, AttributeError):
            continue
        _watch(path, connector, owner, *rest)
        watched.append(connector)
    return watched
