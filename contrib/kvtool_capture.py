# SPDX-License-Identifier: Apache-2.0
"""
kvtool_capture.py - writes the KV caches of a running engine into a file that
kvtool reads

Copy this file to where the engine runs; it needs Python 3.8 and whichever of
torch and numpy the caches are made of.  The file is safetensors with the
manifest of kvtool-manifest(5) in its header: it describes itself.

    import kvtool_capture
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
import json
import os
import struct
import zlib

# Letters of kvtool: layer, block, state (a token of a block), head, key or value,
# element, content (keys and values together).  vLLM calls states N.
_LETTERS = "BSHKDC"

_TYPES = {
    "bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16",
    "int32": "I32", "int64": "I64",
}


class _Layer:
    """A tensor as memory has it: axes sorted by their strides."""

    def __init__(self, name, tensor, axes, dtype, latent):
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
        self.latent = latent
        self.block_axis = self.axes.index("B")

    def kind(self):
        """Layers of one kind make a group."""
        return self.axes, tuple(sorted(self.n.items())), self.dtype, self.latent

    def bytes(self, blocks):
        """The bytes of some blocks, or of all (None)."""
        t = self.tensor
        if hasattr(t, "detach"):
            t = t.detach().permute(*self.order)
            if blocks is not None:
                import torch
                t = t.index_select(self.block_axis,
                                   torch.as_tensor(blocks, device=t.device))
            t = t.contiguous().cpu()
            # numpy has no bfloat16: bytes are all that is wanted
            return t.reshape(-1).view(_torch_bytes()).numpy().tobytes()
        t = t.transpose(self.order)
        if blocks is not None:
            t = t.take(blocks, axis=self.block_axis)
        return t.tobytes()


def _torch_bytes():
    import torch
    return torch.uint8


def _sizes(layer, nlayers, nblocks):
    n = layer.n
    sizes = {"layers": nlayers, "num_blocks": nblocks,
             "block_size": n.get("S", 1), "num_kv_heads": n.get("H", 1)}
    if layer.latent or ("C" not in n and "K" not in n):
        sizes["content"] = n.get("C", n.get("D", 1))
    elif "C" in n:
        if n["C"] % 2:
            raise ValueError(f"{layer.name}: content of {n['C']} elements is no key "
                             "and value; is it latent?")
        sizes["head_dim"] = n["C"] // 2
    else:
        sizes["head_dim"] = n["D"]
    return sizes


def _tables(block_tables, index, ngroups):
    """The tables of one group; a request has one for all, or one for each."""
    out = {}
    for request, table in block_tables.items():
        table = list(table)
        if table and not isinstance(table[0], int):
            if len(table) != ngroups:
                raise ValueError(f"{request}: {len(table)} block tables for "
                                 f"{ngroups} groups of layers")
            table = table[index]
        out[request] = [int(b) for b in table]
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


def _pools(made):
    """A name for groups that lie in the same memory, or None, for each group."""
    starts = [{_address(layer.tensor) for layer in layers} for layers in made]
    names = [None] * len(made)
    for i, mine in enumerate(starts):
        for j in range(i):
            if mine & starts[j]:
                names[j] = names[j] or f"pool{j}"
                names[i] = names[j]
                break
    return names


def _address(tensor):
    if hasattr(tensor, "data_ptr"):
        return tensor.data_ptr()
    return tensor.__array_interface__["data"][0]


def _group(layers, tables, blocks, index):
    first = layers[0]
    nblocks = first.n["B"] if blocks is None else len(blocks)
    group = {"id": f"g{index}", "layout": "L" + first.axes, "dtype": first.dtype,
             "sizes": _sizes(first, len(layers), nblocks),
             "layer_names": [layer.name for layer in layers], "block_table": tables}
    if blocks is not None:
        group["block_ids"] = blocks
    return group


def _write(path, header, layers, blocks):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for group, wanted in zip(layers, blocks):
                for layer in group:
                    f.write(layer.bytes(wanted))
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


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


def capture(path, kv_caches, axes, *, block_tables=None, num_tokens=None,
            token_ids=None, blocks="all", dtype=None, latent=False, model=None,
            null_block=None, parallel=None, total_kv_heads=None, note=None,
            groups=None, prompt_tokens=None):
    """
    kv_caches: {layer name: tensor}, torch or numpy, in the order of the model.
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
    parallel: {"tp_size": 2, "tp_rank": 0, ...}, and then total_kv_heads.
    """
    tables, made, found = block_tables or {}, [], {}
    of_group = _group_numbers(kv_caches, groups)
    for name, tensor in kv_caches.items():
        letters = axes(name, tensor) if callable(axes) else \
            axes[name] if isinstance(axes, dict) else axes
        layer = _Layer(name, tensor, letters, dtype,
                       latent(name) if callable(latent) else latent)
        key = layer.kind() + (of_group[name],)
        if key not in found:
            found[key] = len(made)
            made.append([])
        made[found[key]].append(layer)
    if not made:
        raise ValueError("no layers to capture")
    if blocks not in ("all", "used"):
        raise ValueError(f"blocks is {blocks!r}, expected 'all' or 'used'")
    said, wanted, tensors, at = [], [], {}, 0
    # in the order of the engine's groups, which is that of its tables
    made.sort(key=lambda layers: of_group[layers[0].name])
    pools = _pools(made)
    for i, layers in enumerate(made):
        number = of_group[layers[0].name]
        own = _tables(tables, number, len(groups)) if groups else \
            _tables(tables, i, len(made))
        ids = None
        if blocks == "used":
            ids = sorted({b for table in own.values() for b in table})
        group = _group(layers, own, ids, i)
        if pools[i] is not None:
            group["pool"] = pools[i]
        if groups:
            group.update({k: v for k, v in groups[number].items() if k != "layers"})
        if total_kv_heads is not None:
            group["total_kv_heads"] = total_kv_heads
        first = layers[0]
        shape = [len(layers)] + [group["sizes"]["num_blocks"] if a == "B" else
                                 first.n[a] for a in first.axes]
        size = first.tensor.element_size() if hasattr(first.tensor, "element_size") \
            else first.tensor.itemsize
        for extent in shape:
            size *= extent
        tensors[group["id"]] = {"dtype": _TYPES[first.dtype], "shape": shape,
                                "data_offsets": [at, at + size]}
        at += size
        said.append(group)
        wanted.append(ids)
    manifest = {"model": model, "note": note, "null_block": null_block,
                "num_tokens": num_tokens, "token_ids": token_ids,
                "prompt_tokens": prompt_tokens, **(parallel or {}), "groups": said}
    manifest = {k: v for k, v in manifest.items() if v is not None}
    header = {"__metadata__": {"kvtool": json.dumps(manifest)}, **tensors}
    _write(path, header, made, wanted)
