# SPDX-License-Identifier: Apache-2.0
"""
kvtool_capture.py - writes the KV caches of a running engine into a file that
kvtool reads

Copy this file to where the engine runs; it needs Python 3.8 and whichever of
torch and numpy the caches are made of.  The file that it writes is safetensors with
the manifest of kvtool-manifest(5) in its header: it describes itself.

vLLM, from a script that holds an LLM in its own process:

    import kvtool_capture
    kvtool_capture.capture_vllm(llm, "kv")          # kv.rank0.safetensors, ...

vLLM, from a server that is not changed: as its connector,

    PYTHONPATH=contrib vllm serve MODEL --kv-transfer-config '{
        "kv_connector": "CaptureConnector", "kv_role": "kv_both",
        "kv_connector_module_path": "kvtool_capture",
        "kv_connector_extra_config": {"capture_path": "kv"}}'
    touch kv.now            # the next step is captured: kv.0.rank0.safetensors, ...

Groups, windows and block tables are those of the engine's own scheduler; the order of
bytes is told by the backend that owns a layer, and a backend that is not known here is
an error that names it.  The engine waits for a copy of the blocks into memory; files
are written beside it.

Any other engine, or arrays of your own:

    kvtool_capture.capture(
        "cache.safetensors",
        {"model.layers.0.self_attn.attn": tensor, ...},
        axes="BHNC",                          # of each tensor, as the engine indexes it
        block_tables={"req-1": [5, 9, 2]},    # ids of blocks, in token order
        num_tokens={"req-1": 40},
        model="meta-llama/Llama-3.1-8B")

Bytes are written in the order in which they lie in memory: a tensor whose axes
are permuted is not rearranged, and the layout in the file says so.

Who writes an array (numpy.save) and a manifest beside it puts file_proof() of the
array into the manifest, so that kvtool uses it for these data and for no other:

    numpy.save("kv.npy", array)
    with open("kv.json", "w") as f:
        json.dump({**manifest, **kvtool_capture.file_proof("kv.npy")}, f)
"""
import inspect
import json
import mmap
import os
import re
import signal
import struct
import threading
import time
import zlib

# Letters of kvtool: layer, block, slot (a token of a block), head, key or value,
# element, content (keys and values together).  vLLM calls slots N.
_LETTERS = "BSHKDC"

_TYPES = {
    "bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0", "bool": "BOOL",
    "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16",
    "uint32": "U32", "int32": "I32", "uint64": "U64", "int64": "I64",
}


# ---- layers and groups ---------------------------------------------------------

class _Layer:
    """A tensor as memory has it: axes sorted by their strides."""

    def __init__(self, name, tensor, axes, dtype):
        self.name, self.tensor = name, tensor
        axes = axes.upper().replace("N", "S")
        if len(axes) != len(tensor.shape) or len(set(axes)) != len(axes) or \
                set(axes) - set(_LETTERS) or "B" not in axes or \
                ("C" in axes and set(axes) & set("KD")):
            raise ValueError(f"{name}: axes {axes!r} do not fit shape "
                             f"{tuple(tensor.shape)}")
        stride = tensor.stride() if hasattr(tensor, "stride") else tensor.strides
        n = dict(zip(axes, tensor.shape))
        # an axis of one entry may have any stride: it stays with its neighbours
        order = sorted(range(len(axes)),
                       key=lambda i: (-stride[i] if n[axes[i]] > 1 else
                                      -max([s for j, s in enumerate(stride)
                                            if j > i and n[axes[j]] > 1] or [0]), i))
        self.order, self.axes = order, "".join(axes[i] for i in order)
        self.n = n
        self.dtype = dtype or str(tensor.dtype).replace("torch.", "")
        if self.dtype not in _TYPES:
            raise ValueError(f"{name}: no name for elements of {self.dtype}")
        self.block_axis = self.axes.index("B")

    def shape(self, nblocks):
        return [nblocks if a == "B" else self.n[a] for a in self.axes]

    def itemsize(self):
        t = self.tensor
        return t.element_size() if hasattr(t, "element_size") else t.itemsize

    def copy(self, blocks, out):
        """Some blocks, or all (None), into a buffer of as many bytes."""
        t = self.tensor
        if not hasattr(t, "detach"):
            t = t.transpose(self.order)
            if blocks is not None:
                t = t.take(blocks, axis=self.block_axis)
            out[:] = memoryview(t.tobytes())
            return
        import torch
        t = t.detach().permute(*self.order)
        # bytes are all that is wanted, and numpy has no bfloat16
        into = torch.frombuffer(out, dtype=torch.uint8).view(t.dtype)
        into = into.view(self.shape(t.shape[self.block_axis] if blocks is None
                                    else len(blocks)))
        if blocks is None:
            into.copy_(t)
            return
        ids = torch.as_tensor(blocks, device=t.device)
        if t.device.type == "cpu":
            torch.index_select(t, self.block_axis, ids, out=into)
        else:
            into.copy_(t.index_select(self.block_axis, ids))


    def put(self, data, nblocks, source, target):
        """Blocks of a file into the tensor: those at source go to target."""
        import torch
        t = self.tensor.detach().permute(*self.order)
        held = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(t.dtype)
        held = held.view(self.shape(nblocks))
        axis = self.block_axis
        some = held.index_select(axis, torch.as_tensor(source)).to(t.device)
        t.index_copy_(axis, torch.as_tensor(target, device=t.device), some)


class _Pair(_Layer):
    """Keys and values in two tensors: one after the other in the file."""

    def __init__(self, name, tensors, axes, dtype):
        self.both = [_Layer(name, t, axes, dtype) for t in tensors]
        first, second = self.both
        if (first.axes, first.n, first.dtype) != (second.axes, second.n, second.dtype) or \
                set(first.axes) & set("KC"):
            raise ValueError(f"{name}: keys {tuple(first.tensor.shape)} and values "
                             f"{tuple(second.tensor.shape)} are no pair of axes {axes!r}")
        self.name, self.tensor, self.dtype = name, first.tensor, first.dtype
        self.axes, self.n = "K" + first.axes, {**first.n, "K": 2}

    def copy(self, blocks, out):
        half = len(out) // 2
        for i, layer in enumerate(self.both):
            layer.copy(blocks, out[i * half:(i + 1) * half])


class _Group:
    """
    Layers that are alike, and what is said of them.
    fields: keys of kvtool-manifest(5).  number: which of the engine's groups it is in.
    split: how many blocks of its tensors make one block of the tables.
    """

    def __init__(self, layers, fields, number, split=1):
        self.layers, self.fields = layers, fields
        self.number, self.split = number, split

    def address(self):
        return {_address(layer.tensor) for layer in self.layers}

    def put(self, said, data, tables):
        """
        The blocks of requests from a file into the tensors.  said: the group of the
        file; data: its bytes; tables: {request: ids} where they have to go.
        """
        own = self.fields["sizes"]
        got = {k: said["sizes"].get(k) for k in own}
        if own != got or any(said[k] != self.fields[k] for k in ("layout", "dtype")):
            raise ValueError(
                f"group {said['id']} is {said['layout']} of {said['dtype']}, {got}; the "
                f"engine has {self.fields['layout']} of {self.fields['dtype']}, {own}: "
                "see kvtool-relayout(1) and kvtool-reblock(1)")
        ids = said.get("block_ids") or list(range(said["sizes"]["num_blocks"]))
        null = said.get("null_block")
        place = {b: i for i, b in enumerate(ids)}
        source, target = [], []
        for request, table in self.tables(tables).items():
            have = said["block_table"].get(request)
            if have is None or len(have) != len(table):
                raise ValueError(f"group {said['id']}: {request} has "
                                 f"{len(have or ())} blocks, the engine {len(table)}")
            for a, b in zip(have, table):
                if b == 0:          # the engine needs nothing here
                    continue
                if a == null:
                    raise ValueError(f"group {said['id']}: {request} lacks a block that "
                                     "the engine needs")
                source.append(place[a])
                target.append(b)
        each = len(data) // len(self.layers)
        for i, layer in enumerate(self.layers):
            layer.put(data[i * each:(i + 1) * each], len(ids), source, target)

    def tables(self, tables):
        """{request: ids}, as blocks of the tensors; the null block stays 0."""
        k = self.split
        return tables if k == 1 else {
            r: [b and b * k + i for b in t for i in range(k)] for r, t in tables.items()}


def _address(tensor):
    if hasattr(tensor, "data_ptr"):
        return tensor.data_ptr()
    return tensor.__array_interface__["data"][0]


def _sizes(layer, latent):
    n = layer.n
    sizes = {"block_size": n.get("S", 1), "num_kv_heads": n.get("H", 1)}
    if latent or ("C" not in n and "K" not in n):
        sizes["content"] = n.get("C", n.get("D", 1))
    elif "C" in n:
        if n["C"] % 2:
            raise ValueError(f"{layer.name}: content of {n['C']} elements is no key "
                             "and value; is it latent?")
        sizes["head_dim"] = n["C"] // 2
    else:
        sizes["head_dim"] = n["D"]
    return sizes


def _name_pools(groups):
    """Groups that lie in the same memory get the name of one pool."""
    for i, group in enumerate(groups):
        for other in groups[:i]:
            if group.address() & other.address():
                name = other.fields.setdefault("pool", f"pool{groups.index(other)}")
                group.fields.setdefault("pool", name)
                break


# ---- the file ------------------------------------------------------------------

class _Capture:
    """Blocks copied out of an engine, and the header of the file they go to."""

    def __init__(self, groups, tables, blocks, manifest):
        """
        tables: for each of the engine's groups {request: ids}.
        blocks: "live", those of the tables, or "all".  Of groups in one pool each
        block is taken once then: with the group whose table has it, those of none
        with the first group.
        """
        _name_pools(groups)
        said, self.tensors, self.parts, at = [], {}, [], 0
        for i, group in enumerate(groups):
            own = group.tables(tables[group.number])
            ids = self._chosen(groups, i, own, tables, blocks)
            first = group.layers[0]
            nblocks = first.n["B"] if ids is None else len(ids)
            fields = {"id": f"g{i}", "block_table": own, **group.fields}
            fields["sizes"] = {"layers": len(group.layers), "num_blocks": nblocks,
                               **group.fields["sizes"]}
            fields["layer_names"] = [layer.name for layer in group.layers]
            if ids is not None:
                fields["block_ids"] = ids
                if "null_block" in fields and fields["null_block"] not in ids:
                    del fields["null_block"]
            shape = [len(group.layers)] + first.shape(nblocks)
            size = first.itemsize()
            for extent in shape:
                size *= extent
            self.tensors[fields["id"]] = {
                "dtype": _TYPES[first.dtype], "shape": shape,
                "data_offsets": [at, at + size]}
            at += size
            said.append(fields)
            self.parts.append((group.layers, ids, size))
        self.manifest = {k: v for k, v in {**manifest, "groups": said}.items()
                         if v is not None}
        self.size = at
        self.buffers = []

    @staticmethod
    def _chosen(groups, index, own, tables, blocks):
        used = {b for table in own.values() for b in table}
        if blocks == "live":
            return sorted(used)
        group = groups[index]
        pool = group.fields.get("pool")
        sharing = [g for g in groups if pool is not None and g.fields.get("pool") == pool]
        if len(sharing) < 2 or len({g.split for g in sharing}) > 1:
            return None
        if group is not sharing[0]:
            return sorted(used)
        others = {b for g in sharing[1:] for t in g.tables(tables[g.number]).values()
                  for b in t} - used
        return [b for b in range(group.layers[0].n["B"]) if b not in others]

    def copy(self):
        """Takes the bytes: the engine has to stand still until this returns."""
        for layers, ids, size in self.parts:
            view, each = _room(size), size // len(layers)
            for i, layer in enumerate(layers):
                if each:
                    layer.copy(ids, view[i * each:(i + 1) * each])
            self.buffers.append(view)
        return self

    def write(self, path):
        """To a temporary file, synced and renamed: all of it or nothing."""
        header = {"__metadata__": {"kvtool": json.dumps(self.manifest)}, **self.tensors}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        temporary = f"{path}.{os.getpid()}.tmp"
        try:
            with open(temporary, "wb") as f:
                f.write(struct.pack("<Q", len(text)) + text)
                while self.buffers:
                    f.write(self.buffers.pop(0))
                f.flush()
                os.fsync(f.fileno())
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.remove(temporary)
            raise


def read(path):
    """The manifest of a file and {group id: numpy array of bytes}."""
    import numpy
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = numpy.memmap(path, numpy.uint8, "r", f.tell())
    manifest = json.loads(header.pop("__metadata__")["kvtool"])
    groups = manifest.get("groups") or [manifest]
    names = list(header)
    arrays = {}
    for i, group in enumerate(groups):
        name = group.setdefault("id", f"g{i}" if len(groups) > 1 else names[0])
        begin, end = header[name]["data_offsets"]
        arrays[group["id"]] = data[begin:end]
    return {**manifest, "groups": groups}, arrays


def _room(size):
    """Memory to copy to, in large pages if it can be: it is the first touch that costs."""
    room = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            room.madvise(mmap.MADV_HUGEPAGE)
        except OSError:     # a kernel without them
            pass
    return memoryview(room)[:size]


def file_proof(path):
    """What a manifest says of its file: name, size and a checksum of samples."""
    page, pages, crc = 4096, 1024, 0
    with open(path, "rb") as f:
        size = f.seek(0, os.SEEK_END)
        step = size // pages
        places = range(0, size, page)
        if size > page * pages:
            places = [(i * step + i * 2654435761 % 2 ** 32 % step) // page * page
                      for i in range(pages - 1)] + [size - page]
        for place in places:
            f.seek(place)
            crc = zlib.crc32(f.read(page), crc)
    return {"file": os.path.basename(path), "file_bytes": size, "sample_crc32": crc}


# ---- arrays of any engine ------------------------------------------------------

def _tables(block_tables, ngroups):
    """A request has one table for all groups, or one for each: for each group all."""
    out = [{} for _ in range(ngroups)]
    for request, table in (block_tables or {}).items():
        table = list(table)
        each = [table] * ngroups
        if table and not isinstance(table[0], int):
            if len(table) != ngroups:
                raise ValueError(f"{request}: {len(table)} block tables for "
                                 f"{ngroups} groups of layers")
            each = table
        for of_group, ids in zip(out, each):
            of_group[request] = [int(b) for b in ids]
    return out


def _group_numbers(names, groups):
    """{layer name: which of the engine's groups it is in}"""
    if groups is None:
        return dict.fromkeys(names, 0)
    number = {name: i for i, group in enumerate(groups) for name in group["layers"]}
    for name in names:
        if name not in number:
            raise ValueError(f"{name} is in none of the groups")
    return number


def capture(path, kv_caches, axes, *, block_tables=None, num_tokens=None,
            token_ids=None, blocks="all", dtype=None, latent=False, model=None,
            null_block=None, parallel=None, total_kv_heads=None, note=None,
            groups=None, prompt_tokens=None, first_token=None):
    """
    kv_caches: {layer name: tensor}, torch or numpy, in the order of the model; or a
        pair of keys and values, each with these axes: SGLang's k_buffer and v_buffer as
        pages are tensors "BSHD", layers of transformers "BHSD" with a row a block.
    axes: letters of the tensors' axes as they are indexed, such as "BHNC" or
        "KBSHD"; or {layer name: letters}, or a function of name and tensor.
    block_tables: {request: block ids}; where layers make several groups (by shape
        and type, in the order of the layers), {request: [block ids of each]}.
    num_tokens, token_ids: {request: number}, {request: ids}.
    blocks: "all" of the pool, or those that tables "use".
    dtype: of arrays whose type numpy has no name for ("bfloat16").
    latent: the content is no key and value (MLA); True, or a function of the name.
    groups: [{"layers": [names], ...}]: how the engine groups its layers, with what it
        knows of each, by the keys of kvtool-manifest(5): kind, window,
        retained_tokens, null_block, pool.  Groups whose layers lie in the same memory
        are in one pool, also if nobody says so.
    null_block: id of the block that stands where a window has passed.  Take the tables
        of the scheduler: the worker's keep ids of blocks that others have since.
    prompt_tokens: {request: number}, for groups of kind "rswa".
    first_token: {request: position}, where tables do not begin with token 0.
    parallel: {"tp_size": 2, "tp_rank": 0, ...}, and then total_kv_heads.
    """
    if blocks not in ("all", "used"):
        raise ValueError(f"blocks is {blocks!r}, expected 'all' or 'used'")
    found, of_group = {}, _group_numbers(kv_caches, groups)
    for name, tensor in kv_caches.items():
        letters = axes(name, tensor) if callable(axes) else \
            axes[name] if isinstance(axes, dict) else axes
        kind = _Pair if isinstance(tensor, (tuple, list)) else _Layer
        layer = kind(name, tensor, letters, dtype)
        is_latent = latent(name) if callable(latent) else latent
        key = (of_group[name], layer.axes, tuple(sorted(layer.n.items())), layer.dtype,
               is_latent)
        found.setdefault(key, []).append(layer)
    if not found:
        raise ValueError("no layers to capture")
    # in the order of the engine's groups, which is that of its tables
    made = []
    for key, layers in sorted(found.items(), key=lambda item: item[0][0]):
        fields = {"layout": "L" + layers[0].axes, "dtype": layers[0].dtype,
                  "sizes": _sizes(layers[0], key[-1])}
        if groups:
            fields.update({k: v for k, v in groups[key[0]].items() if k != "layers"})
        if total_kv_heads is not None:
            fields["total_kv_heads"] = total_kv_heads
        made.append(_Group(layers, fields, key[0] if groups else len(made)))
    tables = _tables(block_tables, len(groups or made))
    manifest = {"model": model, "note": note, "null_block": null_block,
                "num_tokens": num_tokens, "token_ids": token_ids,
                "prompt_tokens": prompt_tokens, "first_token": first_token,
                **(parallel or {})}
    _Capture(made, tables, "live" if blocks == "used" else "all",
             manifest).copy().write(path)


# ---- queries, for kvtool diff --attention ----------------------------------------

class Queries:
    """
    The last queries of each request and layer, as attention gets them: rotated, of one
    position each.  Of transformers, whose models call attention through an interface
    (before 5.0 any but "eager"):

        with kvtool_capture.Queries(tokens=32) as heard:
            model(ids, past_key_values=cache)
        heard.write("q.safetensors")        # kvtool diff --attention=q.safetensors A B

    Rows of a batch are requests 0, 1, ...  past: tokens that the cache had before.
    Of anything else call hear() with what it has.
    """

    def __init__(self, tokens=32, past=0):
        self.tokens, self.past = tokens, past
        self.heard, self.facts, self.sinks, self._count = {}, {}, {}, {}

    def hear(self, layer, request, first, rows, scale=None, cap=None, sinks=None):
        """
        rows: [tokens, heads, numbers] of a layer (its number in the model), the first of
        them at position 'first'.  scale, cap: what the layer does to q.k.  sinks: [heads].
        """
        own = self.heard.setdefault(layer, {})
        rows = rows.detach() if hasattr(rows, "detach") else rows
        if request in own and own[request][0] + len(own[request][1]) == first:
            before = own[request]
            more = rows.new_tensor if hasattr(rows, "new_tensor") else None
            first = before[0]
            if more:
                import torch
                rows = torch.cat([before[1], rows.to(before[1].device)])
            else:
                import numpy
                rows = numpy.concatenate([before[1], rows])
        cut = max(0, len(rows) - self.tokens)
        rows = rows[cut:]
        own[request] = (first + cut, rows.clone() if hasattr(rows, "clone") else
                        rows.copy())
        self.facts[layer] = (scale, cap or None)
        if sinks is not None:
            self.sinks[layer] = sinks.detach() if hasattr(sinks, "detach") else sinks

    def write(self, path, parallel=None, total_heads=None, requests=None):
        """requests: {name heard: name in the dump}; None: all, as they were heard."""
        if not self.heard:
            raise ValueError("no query was heard; does the model compile its layers, or "
                             "call attention in its own way (eager)?")
        facts = set(self.facts.values())
        if len(facts) > 1:
            raise ValueError(f"layers have several scales and caps: {sorted(facts)}")
        (scale, cap), = facts
        layers = sorted(self.heard)
        names = {r: r for r in self.heard[layers[0]]} if requests is None else requests
        said = {r: (self.heard[layers[0]][r][0], len(self.heard[layers[0]][r][1]))
                for r in names}
        arrays, groups, tables, at = {}, {}, {}, 0
        for r, (_, n) in said.items():
            tables[names[r]] = list(range(at, at + n))
            at += n
        for layer in layers:
            own = self.heard[layer]
            if {r: (own[r][0], len(own[r][1])) for r in names} != said:
                raise ValueError(f"layer {layer} was heard at other positions")
            rows = [own[r][1] for r in names]
            if hasattr(rows[0], "detach"):
                import torch
                arrays[f"layers.{layer}"] = torch.cat(rows).cpu()
            else:
                import numpy
                arrays[f"layers.{layer}"] = numpy.concatenate(rows)
            groups.setdefault(tuple(rows[0].shape[1:]), []).append(layer)
        made = [{"layers": [f"layers.{i}" for i in ids], "layer_ids": ids,
                 "kind": "full_attention", "content": [["q", dim]]}
                for (_, dim), ids in groups.items()]
        axes = dict.fromkeys(arrays, "BHD")
        for layer, sinks in sorted(self.sinks.items()):
            arrays[f"sinks.{layer}"] = sinks.reshape(1, -1, 1)
            axes[f"sinks.{layer}"] = "BHD"
        if self.sinks:
            made.append({"layers": [f"sinks.{i}" for i in sorted(self.sinks)],
                         "layer_ids": sorted(self.sinks), "kind": "opaque",
                         "id": "sinks"})
        words = [f"{k}={v!r}" for k, v in (("scale", scale), ("cap", cap)) if v]
        capture(path, arrays, axes, groups=made, parallel=parallel,
                block_tables={r: [table] * (len(made) - bool(self.sinks)) +
                              [[]] * bool(self.sinks) for r, table in tables.items()},
                num_tokens={names[r]: n for r, (_, n) in said.items()},
                first_token={names[r]: first for r, (first, _) in said.items()},
                total_kv_heads=total_heads,
                note=f"attention {','.join(words)}" if words else None)

    # ---- of transformers

    def __enter__(self):
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as known
        self._known, self._before = known, dict(known)
        if hasattr(known, "get_interface"):
            get, self._before = known.get_interface, {}
            known.get_interface = lambda *which: self._around(get(*which))
        for name, inner in self._before.items():
            known[name] = self._around(inner)
        return self

    def __exit__(self, *_):
        vars(self._known).pop("get_interface", None)
        for name, inner in self._before.items():
            self._known[name] = inner

    def _around(self, inner):
        def attention(module, query, *more, **named):
            layer = getattr(module, "layer_idx", None)
            if layer is not None:
                first = self._count.get(layer, self.past)
                self._count[layer] = first + query.shape[2]
                scale = named.get("scaling", getattr(module, "scaling", None))
                for row in range(len(query)):
                    self.hear(layer, str(row), first, query[row].transpose(0, 1), scale,
                              named.get("softcap"), named.get("s_aux"))
            return inner(module, query, *more, **named)
        return attention


# ---- vLLM: what its objects say ------------------------------------------------

# Backends whose content of a slot is the key and then the value of a head, seen in
# their sources.  Of others a page is not known: say layouts={class name: layout}.
_KEY_THEN_VALUE = {
    "FlashAttentionBackend", "FlashInferBackend", "TritonAttentionBackend",
    "FlexAttentionBackend", "RocmAiterUnifiedAttentionBackend",
}
# Orders of keys and of values inside a block of CPU_ATTN, by what kvtool calls them, and
# which one the instruction set that it chose has.  "neon" depends on the type, too.
_CPU_ORDERS = {"cpu-vec": ("D S", "S D"),
               "cpu-amx": ("S/16 D/2 S%16 D%2", "D/16 S/2 D%16 S%2"),
               "cpu-neon-bf16": ("S/8 D/4 S%8 D%4", "D/2 S/4 D%2 S%4")}
_CPU_SETS = {"vec": "cpu-vec", "vec16": "cpu-vec", "rvv": "cpu-vec", "vxe": "cpu-vec",
             "vsx": "cpu-vec", "amx": "cpu-amx"}
_KINDS = {
    "FullAttentionSpec": "full_attention", "SinkFullAttentionSpec": "full_attention",
    "SlidingWindowSpec": "sliding_window", "ChunkedLocalAttentionSpec": "chunked_local",
    "RSWASpec": "rswa", "MLAAttentionSpec": "mla", "SlidingWindowMLASpec": "mla",
    "MambaSpec": None, "CrossAttentionSpec": "cross",
}
_FP8 = {"fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}


class Unknown(RuntimeError):
    """The engine has something that this module does not know how to describe."""


def _bound(layer):
    """The tensor that a layer uses; older engines have one for each virtual engine."""
    cache = getattr(layer, "kv_cache", None)
    if isinstance(cache, (list, tuple)) and len(cache) == 1:
        cache = cache[0]
    return cache


def _cpu_layout(name, layer, spec, tensor):
    isa = getattr(layer, "isa", None)
    if isa is None:
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa
        known = {"dtype": spec.dtype, "block_size": spec.block_size,
                 "head_size": spec.head_size,
                 "kv_cache_dtype": getattr(layer, "kv_cache_dtype", None)}
        isa = _get_attn_isa(**{k: known[k] for k in
                               inspect.signature(_get_attn_isa).parameters})
    order = _CPU_SETS.get(isa)
    if isa == "neon":
        order = "cpu-neon-bf16" if "bfloat16" in str(tensor.dtype) else "cpu-vec"
    if order is None:
        raise Unknown(f"{name}: CPU_ATTN with instruction set {isa!r}: its order of "
                      "bytes is not known here")
    # Five axes until vLLM 0.22: all keys, then all values; where recurrent layers share
    # the memory, those of a block and then the next one.
    axes, outer, inner = "BHSC", "L B H K", tensor[0]
    if tensor.dim() == 5:
        axes, inner = "KBHSD", tensor[0, 0]
        outer = "L K B H" if tensor.stride(0) > tensor.stride(1) else "L B K H"
    if not inner.is_contiguous():
        raise Unknown(f"{name}: CPU_ATTN, strides {tensor.stride()} of shape "
                      f"{tuple(tensor.shape)} are not those of its blocks")
    both = [f"{part}:{outer} {tail}" for part, tail in zip("KV", _CPU_ORDERS[order])]
    if order == "cpu-vec":
        both = [text.replace(" ", "") for text in both]
    return " ".join(both), axes


def _probed_axes(backend, spec, tensor):
    """
    Letters of a tensor whose backend states its shape: which extents change when one
    number changes.  Newer backends state none, their tensors are [B, H, N, C].
    """
    if not hasattr(backend, "get_kv_cache_shape"):
        return {4: "BHSC", 3: "BSC"}.get(tensor.dim())
    base = [6, 2 * spec.block_size, 4, 64]
    shape = backend.get_kv_cache_shape(*base)
    letters = [None] * len(shape)
    for letter, i in zip("BSHD", range(4)):
        more = list(base)
        more[i] *= 2
        for axis, (a, b) in enumerate(zip(shape, backend.get_kv_cache_shape(*more))):
            if a != b:
                letters[axis] = letter
    letters = ["K" if a is None and n == 2 else a for a, n in zip(letters, shape)]
    if "D" in letters and "K" not in letters:
        letters[letters.index("D")] = "C"
    return "".join(a or "?" for a in letters)


def _latent_content(name, held, spec, width):
    """A word that means several contents: which, by the bytes and the numbers of a row."""
    known = {("fp8_ds_mla", 656, 576): "fp8-ds-mla",
             ("fp8_ds_mla", 656, 512): "glm53-nope-656",
             ("nvfp4_ds_mla", 352, 576): "nvfp4-ds-mla"}
    found = known.get((held, width, spec.head_size))
    if found is None:
        raise Unknown(f"{name}: {held} with {width} bytes for {spec.head_size} numbers, "
                      "which is not known here; see kvtool-content(7)")
    return found


def _attention(name, layer, spec, tensor, layouts):
    """Axes, layout, latent and dtype of a layer of attention."""
    backend = layer.get_attn_backend()
    cls = backend.__name__
    dtype = str(tensor.dtype).replace("torch.", "")
    held = getattr(layer, "kv_cache_dtype", "auto")
    more = {}
    if dtype == "uint8" and held in _FP8:
        dtype = _FP8[held]
    if held in ("fp8_ds_mla", "nvfp4_ds_mla"):
        more["content_type"] = _latent_content(name, held, spec, tensor.shape[-1])
    elif held not in _FP8 and held not in ("auto", "bfloat16", "float16", "half",
                                           "float32", "float"):
        raise Unknown(f"{name}: {cls} with elements of {held}, which is not known here")
    mode = getattr(spec, "kv_quant_mode", None)
    if mode is not None and getattr(mode, "value", 0) not in (0, None) and \
            "PER_TENSOR" not in mode.name:
        raise Unknown(f"{name}: {cls} keeps scales in its pages ({mode.name}), which is "
                      "not known here")
    if cls in layouts:
        return _probed_axes(backend, spec, tensor), layouts[cls], False, dtype, more
    if cls == "CPUAttentionBackend":
        layout, axes = _cpu_layout(name, layer, spec, tensor)
        return axes, layout, False, dtype, more
    if getattr(backend, "is_mla", lambda: False)() or "MLA" in type(spec).__name__:
        axes = {3: "BSC", 4: "BHSC"}.get(tensor.dim())
        if axes is None:
            raise Unknown(f"{name}: {cls}, a latent cache of shape {tuple(tensor.shape)}")
        return axes, None, True, dtype, more
    if cls not in _KEY_THEN_VALUE or \
            getattr(spec, "num_head_slots", None) not in (None, spec.num_kv_heads) or \
            getattr(spec, "head_size_v", spec.head_size) != spec.head_size:
        raise Unknown(
            f"{name}: {backend.__module__}.{cls} is not known here: say what its pages "
            f"are with layouts={{'{cls}': LAYOUT}} or capture_layouts, see "
            "kvtool-layouts(7)")
    axes = _probed_axes(backend, spec, tensor)
    if axes is None or "?" in axes:
        raise Unknown(f"{name}: {cls}, axes of shape {tuple(tensor.shape)}: {axes}")
    return axes, None, False, dtype, more


def _ranges(parts, tp, rank):
    """
    Channels of a convolution, in this rank and in the model.
    parts: (name, channels in this rank, ranks in a row that hold the same ones).
    """
    out, here, there = [], 0, 0
    for name, n, same in parts:
        out.append({"name": name, "start": here, "length": n,
                    "global_start": there + rank // same * n})
        here += n
        there += n * (tp // same)
    return out


def _channels(name, layer, config, tp, conv, ssm):
    """The parts of a layer's convolution."""
    cls = type(layer).__name__
    if cls == "MambaMixer2":
        groups = [getattr(config, k) for k in ("mamba_n_groups", "n_groups",
                                               "mamba_ngroups") if hasattr(config, k)]
        if tp > 1 and not groups:
            raise Unknown(f"{name}: {cls} of a model that does not say its groups")
        # fewer groups than ranks: some ranks hold the same one
        same = tp // groups[0] if tp > 1 and groups[0] < tp else 1
        inner = ssm.shape[1] * ssm.shape[2]
        n = (max(conv.shape[1:]) - inner) // 2
        return [("x", inner, 1), ("B", n, same), ("C", n, same)]
    if cls == "MambaMixer":
        return [("x", ssm.shape[1], 1)]
    if cls == "ShortConv":
        return [("x", layer.conv_dim // tp, 1)]
    if "GatedDeltaNet" in cls:
        key, value = layer.key_dim // tp, layer.value_dim // tp
        return [("q", key, 1), ("k", key, 1), ("v", value, 1)]
    raise Unknown(f"{name}: the states of {cls} are not known here")


def _mamba(name, layer, spec, parallel, config):
    """The states of a recurrent layer, which lie in one page of the engine."""
    cache = _bound(layer)
    if hasattr(cache, "shape"):
        cache = (cache,)
    if not isinstance(cache, (list, tuple)) or len(cache) not in (1, 2):
        raise Unknown(f"{name}: {type(layer).__name__} has another number of states "
                      "than one or two, which is not known here")
    conv, ssm = cache if len(cache) == 2 else (cache[0], None)
    tp, rank = parallel["tp_size"], parallel["tp_rank"]
    parts = _channels(name, layer, config, tp, conv, ssm)
    channels = sum(n for _, n, _ in parts)
    if conv.dim() != 3 or (ssm is not None and ssm.dim() not in (3, 4)) or \
            conv.shape[1] == conv.shape[2] or channels not in conv.shape[1:]:
        raise Unknown(f"{name}: {channels} channels in a state of {conv.shape[1:]}")
    taps_first = conv.shape[2] == channels
    base = conv.storage_offset() * conv.element_size()
    page = {"tokens_per_slot": -1, "page_bytes": spec.page_size_bytes}
    first = _Layer(name, conv, "BSD" if taps_first else "BDS", None)
    pieces = [(first, {
        "kind": "mamba_conv", "layout": "L" + first.axes, "dtype": first.dtype, **page,
        "page_offset": 0, "content": _ranges(parts, tp, rank),
        "total_kv_heads": 1, "head_start": 0, "head_count": 1, "replicas": 1,
        "state_shape": [channels, first.n["S"]],
        "sizes": {"block_size": spec.block_size, "slots": first.n["S"],
                  "num_kv_heads": 1, "content": channels}})]
    if ssm is None:
        return pieces
    second = _Layer(name, ssm.flatten(2), "BHD", None)
    heads = second.n["H"]
    return pieces + [(second, {
        "kind": "mamba_ssm", "layout": "LBHC", "dtype": second.dtype, **page,
        "page_offset": ssm.storage_offset() * ssm.element_size() - base,
        "total_kv_heads": heads * tp, "head_start": heads * rank, "head_count": heads,
        "replicas": 1, "state_shape": list(ssm.shape[1:]),
        "sizes": {"block_size": spec.block_size, "slots": 1, "num_kv_heads": heads,
                  "content": second.n["D"]}})]


def _spec_of(spec, name):
    """Groups of several specs hold one for each layer."""
    return spec.kv_cache_specs[name] if hasattr(spec, "kv_cache_specs") else spec


def _window(spec):
    kind = type(spec).__name__
    out = {"kind": _KINDS[kind]}
    if getattr(spec, "rswa_window", None):
        out["window"] = spec.rswa_window
    elif getattr(spec, "attention_chunk_size", None):
        out["window"] = spec.attention_chunk_size
        if kind == "FullAttentionSpec":     # all of it is kept, only some looked at
            del out["window"]
    elif getattr(spec, "sliding_window", None) and kind != "FullAttentionSpec":
        out["window"] = spec.sliding_window
    if getattr(spec, "extra_retained_tokens", 0):
        out["retained_tokens"] = spec.extra_retained_tokens
    return out


class _VllmRank:
    """The caches of one worker of vLLM, described."""

    def __init__(self, vllm_config, kv_cache_config, layouts=None):
        from vllm.distributed import parallel_state as ranks
        context = vllm_config.compilation_config.static_forward_context
        model = vllm_config.model_config
        parallel = {"tp_size": ranks.get_tensor_model_parallel_world_size(),
                    "tp_rank": ranks.get_tensor_model_parallel_rank()}
        pp = ranks.get_pp_group()
        if pp.world_size > 1:
            parallel.update(pp_size=pp.world_size, pp_rank=pp.rank_in_group)
        found, owner, self.shared = {}, {}, {}
        for number, group in enumerate(kv_cache_config.kv_cache_groups):
            for name in sorted(group.layer_names, key=_layer_key):
                if name not in context:         # of another rank of the pipeline
                    continue
                layer = context[name]
                spec = _spec_of(group.kv_cache_spec, name)
                for piece, fields, split in self._pieces(
                        name, layer, spec, parallel, layouts or {}, model.hf_text_config):
                    place = (number, _address(piece.tensor), fields["kind"])
                    if place in owner:          # this layer reads another one's cache
                        self.shared[name] = owner[place]
                        continue
                    owner[place] = name
                    key = (number, piece.axes, tuple(sorted(piece.n.items())),
                           json.dumps(fields))
                    found.setdefault(key, (fields, split, []))[2].append((piece, layer))
        if not found:
            raise Unknown("this rank has no layers with a cache")
        self.groups = []
        for key, (fields, split, layers) in found.items():
            if "total_kv_heads" not in fields and fields["kind"] != "mla":
                fields["total_kv_heads"] = model.get_total_num_kv_heads()
            scales = [_scales(layer) for _, layer in layers]
            if "float8" in fields["dtype"] and None not in scales:
                fields["k_scale"], fields["v_scale"] = map(list, zip(*scales))
            ids = [_layer_key(p.name)[0] for p, _ in layers]
            if len(set(ids)) == len(ids) and min(ids) >= 0:
                fields["layer_ids"] = ids
            self.groups.append(_Group([p for p, _ in layers], fields, key[0], split))
        import vllm
        self.manifest = {
            "model": getattr(model, "model", None), **parallel, "null_block": 0,
            "note": f"captured from vLLM {vllm.__version__}",
            "engine": {"name": "vllm", "version": vllm.__version__,
                       "backends": sorted({type_name(context[p.name]) for g in self.groups
                                           for p in g.layers}),
                       "layout": getattr(kv_cache_config, "kv_cache_layout", None),
                       "block_size": vllm_config.cache_config.block_size,
                       "cache_dtype": str(vllm_config.cache_config.cache_dtype),
                       "num_blocks": kv_cache_config.num_blocks,
                       "max_model_len": getattr(model, "max_model_len", None)}}
        if self.shared:
            self.manifest["engine"]["shared_layers"] = self.shared

    @staticmethod
    def _pieces(name, layer, spec, parallel, layouts, config):
        """[(layer, fields, split)]: recurrent layers have two states."""
        if type(spec).__name__ not in _KINDS:
            raise Unknown(f"{name}: caches of {type(spec).__name__} are not known here")
        if type(spec).__name__ == "MambaSpec":
            return [(*piece, 1) for piece in _mamba(name, layer, spec, parallel, config)]
        tensor = _bound(layer)
        if tensor is None or tensor.numel() == 0:
            return []
        axes, layout, latent, dtype, more = _attention(name, layer, spec, tensor, layouts)
        piece = _Layer(name, tensor, axes, dtype)
        slots = piece.n.get("S", 1)
        if spec.block_size % slots or getattr(spec, "tokens_per_state", 1) != 1:
            raise Unknown(f"{name}: blocks of {spec.block_size} tokens with {slots} "
                          "slots")
        fields = {"layout": layout or "L" + piece.axes, "dtype": dtype,
                  "sizes": _sizes(piece, latent), **_window(spec), **more}
        if latent and piece.n.get("H") == 1:
            fields["layout"] = fields["layout"].replace("H", "")
        return [(piece, fields, spec.block_size // slots)]

    def capture(self, order):
        """The copied blocks of what the scheduler ordered."""
        requests, blocks = order["requests"], order["blocks"]
        numbers = sorted({g.number for g in self.groups})
        names = _names(requests)
        tables = {n: {names[r]: q["blocks"][n] for r, q in requests.items()}
                  for n in numbers}
        tokens = {names[r]: q["tokens"] for r, q in requests.items()}
        ids = {names[r]: q["ids"][:q["tokens"]] for r, q in requests.items()
               if q.get("ids") and len(q["ids"]) >= q["tokens"]}
        groups = [_Group(g.layers, dict(g.fields), g.number, g.split)
                  for g in self.groups]
        manifest = {**self.manifest, "num_tokens": tokens, "token_ids": ids or None,
                    "prompt_tokens": {names[r]: q["prompt"] for r, q in requests.items()},
                    "engine": {**self.manifest["engine"], "request_ids":
                               {n: r for r, n in names.items() if n != r}}}
        return _Capture(groups, tables, blocks, manifest).copy()


def type_name(layer):
    """The backend of a layer, or the layer itself where it has none."""
    get = getattr(layer, "get_attn_backend", None)
    return get().__name__ if get else type(layer).__name__


def _layer_key(name):
    """Layers in the order of the model, whatever order the engine keeps them in."""
    numbers = [int(n) for n in re.findall(r"\d+", name)]
    return (numbers[0] if numbers else -1, numbers, name)


def _scales(layer):
    k, v = getattr(layer, "_k_scale", None), getattr(layer, "_v_scale", None)
    if k is None or v is None or k.numel() != 1 or v.numel() != 1:
        return None
    return float(k), float(v)


def _names(requests):
    """
    {engine's id: user's id}: the engine appends a dash and 8 random hexadecimal digits,
    which differ between two runs of one prompt.
    """
    short = {r: re.sub(r"-[0-9a-f]{8}$", "", r) for r in requests}
    said = list(short.values())
    return {r: s if said.count(s) == 1 else r for r, s in short.items()}


# ---- vLLM: what its scheduler says ---------------------------------------------

def _order(manager, kv_cache_config, requests, tokens, blocks):
    """
    What workers have to take: the tables of the scheduler's manager, where blocks that
    a window has passed are the null block, and requests that were preempted are none.
    """
    said = {}
    for request in requests:
        n = tokens[request.request_id]
        ids = manager(request.request_id)
        if n <= 0 or not ids or not any(ids):
            continue
        cut = []
        for group, table in zip(kv_cache_config.kv_cache_groups, ids):
            # blocks behind the last token hold nothing yet
            cut.append(list(table)[:-(-n // group.kv_cache_spec.block_size)])
        all_ids = [int(t) for t in getattr(request, "all_token_ids", [])]
        said[request.request_id] = {"blocks": cut, "tokens": n, "ids": all_ids,
                                    "prompt": request.num_prompt_tokens}
    if not said and blocks == "live":
        raise ValueError("no request holds blocks now")
    return {"requests": said, "blocks": blocks}


def _chosen(requests, wanted):
    """Requests by the ids that users gave."""
    if wanted is None:
        return list(requests)
    names = _names([r.request_id for r in requests])
    out = [r for r in requests if r.request_id in wanted or names[r.request_id] in wanted]
    missing = set(wanted) - {r.request_id for r in out} - \
        {names[r.request_id] for r in out}
    if missing:
        raise ValueError(f"no request {', '.join(sorted(missing))} holds blocks now")
    return out


def _hook(worker, heard, name, layer):
    """What a layer's forward() is given, with the requests of the batch."""
    from vllm.forward_context import get_forward_context
    number = _layer_key(name)[0]

    def listen(_, args, named):
        said = get_forward_context().attn_metadata
        said = said.get(name) if isinstance(said, dict) else said
        if said is None:                # a step that only measures memory
            return
        query = args[0] if args else named["query"]
        query = query.reshape(query.shape[0], layer.num_heads, -1)
        begins = said.query_start_loc.tolist()
        for i, request in enumerate(worker.model_runner.input_batch.req_ids):
            begin, end = begins[i:i + 2]
            first = int(said.seq_lens[i]) - (end - begin)
            heard.hear(number, request, first, query[begin:end], layer.impl.scale,
                       getattr(layer.impl, "logits_soft_cap", None),
                       getattr(layer.impl, "sinks", None))
    return listen


def _worker_hear(worker, tokens):
    context = worker.model_runner.vllm_config.compilation_config.static_forward_context
    worker.kvtool_heard = heard = Queries(tokens)
    for name, layer in context.items():
        if hasattr(layer, "num_kv_heads") and hasattr(layer, "impl"):
            layer.register_forward_pre_hook(_hook(worker, heard, name, layer),
                                            with_kwargs=True)


def hear_queries(llm, tokens=32):
    """
    Keeps the last queries of each request from now on, for capture_vllm(queries=True).
    Layers that were compiled do not tell them: the LLM needs enforce_eager=True.  Latent
    attention (MLA) is not heard.
    """
    llm.llm_engine.engine_core.engine_core.model_executor.collective_rpc(
        _worker_hear, args=(tokens,))


def _write_queries(worker, path, order, manifest):
    heard = getattr(worker, "kvtool_heard", None)
    if heard is None:
        raise ValueError("queries are kept from hear_queries(llm) on, which was not called")
    names = _names(order["requests"])
    parallel = {k: v for k, v in manifest.items() if k.startswith(("tp_", "pp_"))}
    heads = next(iter(next(iter(heard.heard.values())).values()))[1].shape[1] \
        if heard.heard else 0
    heard.write(path.replace(".safetensors", ".queries.safetensors"), parallel=parallel,
                total_heads=heads * manifest["tp_size"], requests=names)


def _worker_capture(worker, path, order, layouts, queries=False):
    """In a worker, by collective_rpc: writes its file and says what it cost."""
    runner = worker.model_runner
    config = getattr(runner, "kv_cache_config", None)
    if config is None:
        raise Unknown(f"{type(runner).__name__} does not say how it groups layers")
    rank = _VllmRank(runner.vllm_config, config, layouts)
    start = time.perf_counter()
    taken = rank.capture(order)
    copied = time.perf_counter() - start
    out = _rank_path(path, rank.manifest)
    taken.write(out)
    if queries:
        _write_queries(worker, out, order, rank.manifest)
    return {"path": out, "bytes": taken.size, "copy_seconds": copied,
            "write_seconds": time.perf_counter() - start - copied}


def _rank_path(path, manifest):
    stage = f".pp{manifest['pp_rank']}" if "pp_rank" in manifest else ""
    return f"{path}{stage}.rank{manifest['tp_rank']}.safetensors"


def capture_vllm(llm, path, requests=None, blocks="live", layouts=None, queries=False):
    """
    Writes PATH.rankN.safetensors for each rank of an LLM between two of its steps.

    requests: ids of those to take; None: all that hold blocks.
    blocks: "live", those that the requests hold, or "all" of the pool.
    layouts: {class of a backend: layout} for backends that this module does not know.
    queries: also PATH.rankN.queries.safetensors, the last queries of these requests, for
        kvtool diff --attention; hear_queries() was called before the steps.
    Returns what each rank wrote: path, bytes, copy_seconds, write_seconds.

    The engine's core has to be in this process (VLLM_ENABLE_V1_MULTIPROCESSING=0),
    because its scheduler knows the tables; else use CaptureConnector.
    """
    if blocks not in ("live", "all"):
        raise ValueError(f"blocks is {blocks!r}, expected 'live' or 'all'")
    core = getattr(llm.llm_engine.engine_core, "engine_core", None)
    if core is None:
        raise Unknown("the engine's core is in another process: set "
                      "VLLM_ENABLE_V1_MULTIPROCESSING=0, or use CaptureConnector")
    if getattr(core, "batch_queue", None):
        raise Unknown("a step is under way: make the LLM with async_scheduling=False")
    scheduler = core.scheduler
    running = _chosen(scheduler.running, requests)
    tokens = {r.request_id: r.num_computed_tokens for r in running}
    order = _order(scheduler.kv_cache_manager.get_block_ids, scheduler.kv_cache_config,
                   running, tokens, blocks)
    # a worker may be another process, in another folder
    return core.model_executor.collective_rpc(
        _worker_capture, args=(os.path.abspath(path), order, layouts, queries))


def _worker_restore(worker, path, tables, layouts):
    runner = worker.model_runner
    rank = _VllmRank(runner.vllm_config, runner.kv_cache_config, layouts)
    name = _rank_path(path, rank.manifest)
    manifest, data = read(name)
    said = {(tuple(g["layer_names"]), g["kind"]): g for g in manifest["groups"]}
    for group in rank.groups:
        key = (tuple(layer.name for layer in group.layers), group.fields["kind"])
        if key not in said:
            raise ValueError(f"{name}: no group of {key[1]} with the layers {key[0][0]} "
                             f"to {key[0][-1]}")
        group.put(said[key], data[said[key]["id"]], tables[group.number])
    return name


def restore_vllm(llm, path, requests=None, layouts=None):
    """
    Puts PATH.rankN.safetensors into an LLM between two of its steps: the blocks of each
    request of the file go to those that the request of that name holds there.

    requests: ids of those to put; None: all that hold blocks.
    The layout, the size of blocks and the ranks have to be the engine's: kvtool
    relayout, reblock, slice and merge make them so.  Each request needs as many tokens
    in the file as it has in the engine.
    """
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    running = _chosen(scheduler.running, requests)
    tokens = {r.request_id: r.num_computed_tokens for r in running}
    order = _order(scheduler.kv_cache_manager.get_block_ids, scheduler.kv_cache_config,
                   running, tokens, "live")["requests"]
    names = _names(order)
    tables = [{names[r]: q["blocks"][g] for r, q in order.items()}
              for g in range(len(scheduler.kv_cache_config.kv_cache_groups))]
    return llm.llm_engine.engine_core.engine_core.model_executor.collective_rpc(
        _worker_restore, args=(os.path.abspath(path), tables, layouts))


try:
    from vllm.distributed.kv_transfer.kv_connector.v1 import base as _base
except ImportError:
    _base = None

if _base is not None:
    import logging
    _log = logging.getLogger("vllm.kvtool_capture")

    class CaptureMetadata(_base.KVConnectorMetadata):
        """order: what to take in this step, or None."""

        def __init__(self, order):
            self.order = order

    class CaptureConnector(
            _base.KVConnectorBase_V1,
            *([_base.SupportsHMA] if hasattr(_base, "SupportsHMA") else [])):
        """
        Captures a step of an unmodified server.  kv_connector_extra_config:

        capture_path: PATH.N.rankR.safetensors are written, N counting from 0.
        capture_signal: name of a signal that orders a capture too, such as SIGUSR2,
            sent to the process of the engine's core.
        capture_layouts: {class of a backend: layout} for those not known here.

        A capture is ordered by making PATH.now: empty, or JSON with "requests" (ids)
        and "blocks" ("live" or "all").  The scheduler takes it, removes the file and
        tells all ranks of the next step what to copy, so that they take the same step.
        An idle engine makes no step.  Nothing is loaded or stored.
        """

        def __init__(self, vllm_config, role, kv_cache_config=None):
            known = inspect.signature(
                _base.KVConnectorBase_V1.__init__).parameters
            more = {"kv_cache_config": kv_cache_config} if "kv_cache_config" in known \
                else {}
            super().__init__(vllm_config=vllm_config, role=role, **more)
            say = self._kv_transfer_config.get_from_extra_config
            self._path = say("capture_path", "kv")
            self._layouts = say("capture_layouts", {})
            self._vllm, self._cfg = vllm_config, kv_cache_config
            self._requests, self._seen, self._count = {}, {}, 0
            self._blocks, self._manager = {}, None
            self._rank = self._writer = None
            self._signalled = threading.Event()
            if role == _base.KVConnectorRole.SCHEDULER and say("capture_signal", None):
                signal.signal(getattr(signal, say("capture_signal", None)),
                              lambda *_: self._signalled.set())

        # ---- in the scheduler ---------------------------------------------------

        def bind_kv_cache_manager(self, kv_cache_manager):
            super().bind_kv_cache_manager(kv_cache_manager)
            self._manager = kv_cache_manager

        def get_num_new_matched_tokens(self, request, num_computed_tokens):
            return 0, False

        def update_state_after_alloc(self, request, blocks, num_external_tokens):
            self._requests[request.request_id] = request

        def request_finished(self, request, block_ids):
            self._forget(request.request_id)
            return False, None

        def request_finished_all_groups(self, request, block_ids):
            return self.request_finished(request, block_ids)

        def _forget(self, request_id):
            for known in self._requests, self._seen, self._blocks:
                known.pop(request_id, None)

        def build_connector_meta(self, scheduler_output):
            self._follow(scheduler_output)
            wanted = self._wanted()
            if wanted is None:
                return CaptureMetadata(None)
            try:
                order = self._take(wanted)
            except (ValueError, KeyError) as error:
                _log.error("kvtool_capture: %s", error)
                return CaptureMetadata(None)
            order["path"] = f"{self._path}.{self._count}"
            self._count += 1
            return CaptureMetadata(order)

        def _follow(self, out):
            """Tokens that are in the cache after this step, and where."""
            drafts = out.scheduled_spec_decode_tokens
            cached = out.scheduled_cached_reqs
            done = {new.req_id: new.num_computed_tokens for new in out.scheduled_new_reqs}
            done.update(zip(cached.req_ids, cached.num_computed_tokens))
            for request, n in out.num_scheduled_tokens.items():
                self._seen[request] = done.get(request, 0) + n - \
                    len(drafts.get(request, ()))
            for request in set(getattr(out, "preempted_req_ids", None) or ()) | \
                    set(out.finished_req_ids):
                self._forget(request)
            if self._manager is not None:
                return
            # older engines do not show their manager: follow what they send to workers
            for new in out.scheduled_new_reqs:
                self._blocks[new.req_id] = [list(ids) for ids in new.block_ids]
            resumed = getattr(cached, "resumed_req_ids", None)
            for i, request in enumerate(cached.req_ids):
                more = cached.new_block_ids[i]
                again = request in resumed if resumed is not None else \
                    cached.resumed_from_preemption[i]
                if again:
                    self._blocks[request] = [list(ids) for ids in more]
                elif more is not None:
                    for table, ids in zip(self._blocks[request], more):
                        table += ids

        def _tables(self, request_id):
            if self._manager is not None:
                return self._manager.get_block_ids(request_id)
            tables = []
            for group, ids in zip(self._cfg.kv_cache_groups, self._blocks[request_id]):
                spec, ids = group.kv_cache_spec, list(ids)
                gone = 0
                if type(spec).__name__ == "SlidingWindowSpec":
                    gone = max(0, self._seen[request_id] - spec.sliding_window + 1)
                elif type(spec).__name__ == "ChunkedLocalAttentionSpec":
                    gone = self._seen[request_id] // spec.attention_chunk_size * \
                        spec.attention_chunk_size
                gone //= spec.block_size
                tables.append([0] * gone + ids[gone:])
            return tables

        def _wanted(self):
            """What was ordered: a dictionary, or None."""
            if self._signalled.is_set():
                self._signalled.clear()
                return {}
            trigger = f"{self._path}.now"
            try:
                with open(trigger, encoding="utf-8") as f:
                    text = f.read()
                os.remove(trigger)
            except FileNotFoundError:
                return None
            except OSError as error:
                _log.error("kvtool_capture: %s: %s", trigger, error)
                return None
            if not text.strip():
                return {}
            try:
                wanted = json.loads(text)
            except ValueError as error:
                wanted = error
            if not isinstance(wanted, dict) or \
                    wanted.get("blocks", "live") not in ("live", "all"):
                _log.error("kvtool_capture: %s: %s", trigger, wanted)
                return None
            return wanted

        def _take(self, wanted):
            holding = []
            for name, request in self._requests.items():
                # preempted ones wait, and hold nothing
                if name in self._seen and "PREEMPTED" not in str(request.status):
                    holding.append(request)
            chosen = _chosen(holding, wanted.get("requests"))
            return _order(self._tables, self._cfg, chosen, self._seen,
                          wanted.get("blocks", "live"))

        # ---- in the worker ------------------------------------------------------

        def register_kv_caches(self, kv_caches):
            pass

        def start_load_kv(self, forward_context, **kwargs):
            pass

        def wait_for_layer_load(self, layer_name):
            pass

        def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
            pass

        def wait_for_save(self):
            order = self._get_connector_metadata().order
            if order is None:
                return
            self._join()
            try:
                if self._rank is None:
                    self._rank = _VllmRank(self._vllm, self._cfg, self._layouts)
                start = time.perf_counter()
                taken = self._rank.capture(order)
                seconds = time.perf_counter() - start
            except (Unknown, ValueError) as error:
                # the server goes on
                _log.error("kvtool_capture: %s", error)
                return
            path = _rank_path(order["path"], self._rank.manifest)
            _log.warning("kvtool_capture: %s: %d bytes copied in %.1f ms",
                         path, taken.size, 1e3 * seconds)
            self._writer = threading.Thread(target=self._write, args=(taken, path))
            self._writer.start()

        @staticmethod
        def _write(taken, path):
            try:
                taken.write(path)
            except OSError as error:
                _log.error("kvtool_capture: %s: %s", path, error)

        def _join(self):
            """One file at a time: memory holds at most one capture."""
            if self._writer is not None:
                self._writer.join()
                self._writer = None

        def shutdown(self):
            self._join()
