# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory as dumps: where they are, without a copy"""
from __future__ import annotations

import ctypes
import importlib
import json
import os
import re
import sys
from ctypes import byref, c_void_p
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _arrays, _caches, _native
from ._dump import Dump
from ._native import (NAXES, Box, Factor, Layout, Shape, TensorPart, Unsupported,
                      UsageError, View, call, lib, make)

_LETTERS = "LBSHKD"
_WHOLE, _OUTER, _INNER = range(3)


_DEVICES: Dict[str, int] = {}               # open for as long as the process lives


def _device(spec: str) -> int:
    """The library's handle of a device, "cuda:0"."""
    if spec not in _DEVICES:
        _DEVICES[spec] = make("kvt_device_open", spec.encode())
    return _DEVICES[spec]


def _is_masked(tensor: Any) -> bool:
    """Of numpy or torch: what it says of its elements is not in their memory."""
    ma = sys.modules.get("numpy.ma")
    if ma is not None and isinstance(tensor, ma.MaskedArray):
        return tensor.mask is not ma.nomask
    return callable(getattr(tensor, "get_mask", None))


class _Tensor:
    """Memory of numpy, torch, whatever exports DLPack on the CPU, or of a GPU."""

    def __init__(self, name: str, tensor: Any, dtype: Optional[str]) -> None:
        self.name, self.keep = name, tensor
        self.device: Optional[int] = None       # None: the host's memory
        if _is_masked(tensor):
            raise Unsupported(f"{name}: some of its elements are masked, and a dump has "
                              "no masks; give .filled(0), for example")
        if _arrays.is_torch(tensor):
            self._take_torch(tensor)
        elif hasattr(tensor, "__cuda_array_interface__"):
            self._take_gpu_array(tensor)
        else:
            tensor = self._take_host_array(tensor)
        self.shape = list(tensor.shape)
        self.dtype = _arrays.proper(dtype) if dtype else _arrays.name_of(tensor.dtype)
        if _arrays.itemsize(self.dtype) != self.size:
            raise UsageError(f"{name}: elements have {self.size} bytes, {self.dtype} has "
                             f"{_arrays.itemsize(self.dtype)}")
        if any(s < 0 for s in self.strides):
            raise Unsupported(f"{name}: has a negative stride")

    def _take_torch(self, tensor: Any) -> None:
        where = tensor.device.type
        if tensor.is_sparse or tensor.is_quantized or tensor.is_neg() or \
                str(tensor.layout) != "torch.strided":
            raise Unsupported(f"{self.name}: its memory is not its values (sparse, "
                              "quantized, or negated when it is read)")
        if where == "cuda":                     # AMD's GPUs, too
            torch = importlib.import_module("torch")
            vendor = "hip" if torch.version.hip else "cuda"
            torch.cuda.current_stream(tensor.device).synchronize()
            self.device = _device(f"{vendor}:{tensor.device.index or 0}")
        elif where != "cpu":
            raise Unsupported(f"{self.name}: lies on {tensor.device}; copy it with "
                              ".cpu()")
        self.size = tensor.element_size()
        self.address = tensor.data_ptr()
        self.strides = [s * self.size for s in tensor.stride()]

    def _take_gpu_array(self, tensor: Any) -> None:
        """Of CuPy, Numba and their like."""
        facts = tensor.__cuda_array_interface__
        kind, number = (int(i) for i in tensor.__dlpack_device__()) \
            if hasattr(tensor, "__dlpack_device__") else (2, 0)
        if kind not in (2, 10):                 # DLPack's CUDA, ROCm
            raise Unsupported(f"{self.name}: lies on a device that kvtool cannot read "
                              f"(DLPack type {kind}); copy it to the CPU")
        self.device = _device(f"{'cuda' if kind == 2 else 'hip'}:{number}")
        if facts.get("stream") is not None:     # what still writes to it
            stream = int(facts["stream"])
            call("kvt_device_wait", self.device, None if stream == 1 else stream)
        order, code, size = facts["typestr"][0], facts["typestr"][1:2], \
            int(facts["typestr"][2:])
        if order == ">" or (facts.get("mask") is not None) or not code:
            raise Unsupported(f"{self.name}: elements are {facts['typestr']}, or masked")
        self.size, self.address = size, int(facts["data"][0])
        strides = facts.get("strides")
        if strides is None:
            strides, step = [], size
            for n in reversed(facts["shape"]):
                strides.insert(0, step)
                step *= n
        self.strides = [int(s) for s in strides]

    def _take_host_array(self, tensor: Any) -> Any:
        if not hasattr(tensor, "__array_interface__"):
            tensor = self.keep = self._from_dlpack(tensor)
        if not tensor.dtype.isnative:
            raise Unsupported(f"{self.name}: elements are {tensor.dtype.str}, of the "
                              "other byte order")
        self.size = tensor.itemsize
        self.address = tensor.__array_interface__["data"][0]
        self.strides = list(tensor.strides)
        return tensor

    def _from_dlpack(self, tensor: Any) -> Any:
        if not hasattr(tensor, "__dlpack__"):
            raise UsageError(f"{self.name}: {type(tensor).__name__} is no tensor that "
                             "numpy, torch or DLPack know")
        kind = tensor.__dlpack_device__()[0]
        if kind not in (1, 3):              # CPU, and memory pinned for CUDA
            raise Unsupported(f"{self.name}: lies on a device (DLPack type {kind}) and "
                              "has no __cuda_array_interface__; copy it to the CPU")
        import numpy
        try:
            return numpy.from_dlpack(tensor)
        except (BufferError, RuntimeError, TypeError) as error:
            raise Unsupported(f"{self.name}: numpy cannot take it: {error}") from None

    def is_dense(self) -> bool:
        """Do its elements fill one run of memory, in whatever order?"""
        expected = self.size
        for stride, n in sorted((s, n) for s, n in zip(self.strides, self.shape) if n > 1):
            if stride != expected:
                return False
            expected *= n
        return True


def _parts_of(layout: Layout, elem: int, with_layers: bool) -> List[Tuple[int, int, int]]:
    """(axis, kind, split) of each dimension; without L if tensors are of a layer."""
    if layout.nplanes != 1:
        raise UsageError("keys and values have orders of their own: give a pair of "
                         "tensors a layer, and the order of one")
    out = []
    for i in range(layout.plane[0].nparts):
        part = layout.plane[0].part[i]
        if part.axis == _native.L and not with_layers:
            continue
        out.append((part.axis, part.kind, part.split or max(1, 16 // elem)))
    return out


def _one_short(tensor: _Tensor, parts: Sequence[Tuple[int, int, int]]) -> bool:
    """One dimension less than the layout, which ends with K and D: it may end with C."""
    return len(parts) == len(tensor.shape) + 1 and parts[-2][0] == _native.K and \
        parts[-1][0] == _native.D and parts[-1][1] == _WHOLE


def _fits(tensor: _Tensor, parts: Sequence[Tuple[int, int, int]], words: str) -> bool:
    return len(parts) == len(tensor.shape) or \
        (_one_short(tensor, parts) and "K" not in words)


def _view(tensor: _Tensor, parts: Sequence[Tuple[int, int, int]], words: str) -> View:
    one_short = _one_short(tensor, parts)
    if one_short and "K" not in words:          # it is written with C, or has a name
        return _content_view(tensor, parts, words)
    if len(parts) != len(tensor.shape):
        axes = "".join(_LETTERS[a] for a, _, _ in parts)
        hint = f"; where keys and values are one dimension, it is {axes[:-2]}C" \
            if one_short else ""
        raise UsageError(f"{tensor.name}: has {len(tensor.shape)} dimensions "
                         f"{tuple(tensor.shape)}, layout {words} has {axes}{hint}")
    view = View(Shape((1,) * NAXES, tensor.size), 0, len(parts))
    for i, ((axis, kind, split), n, stride) in enumerate(
            zip(parts, tensor.shape, tensor.strides)):
        if kind == _INNER and n != split:
            raise UsageError(f"{tensor.name}: dimension {i} has {n} entries, layout "
                             f"{words} says {split}")
        view.factor[i] = Factor(axis, split if kind == _OUTER else 1, n, stride)
        view.shape.n[axis] *= n
    return view


def _content_view(tensor: _Tensor, parts: Sequence[Tuple[int, int, int]],
                  words: str) -> View:
    """The last dimension is C: keys and values of a head behind each other."""
    n, stride = tensor.shape[-1], tensor.strides[-1]
    if n % 2:
        raise UsageError(f"{tensor.name}: the last of {tuple(tensor.shape)} is not keys "
                         f"and values, as in layout {words}; of latents give "
                         "latent=True")
    view = View(Shape((1,) * NAXES, tensor.size), 0, len(parts))
    shape = tensor.shape[:-1] + [2, n // 2]
    strides = tensor.strides[:-1] + [stride * (n // 2), stride]
    for i, ((axis, kind, split), m, step) in enumerate(zip(parts, shape, strides)):
        view.factor[i] = Factor(axis, split if kind == _OUTER else 1, m, step)
        view.shape.n[axis] *= m
    return view


def _number(name: Any, position: int) -> int:
    """The layer's number in the model: an int, or the first in its name."""
    if isinstance(name, int):
        return name
    found = re.findall(r"(?<![A-Za-z0-9])\d+(?![A-Za-z0-9])", str(name))
    return int(found[0]) if found else position


def _named(tensors: Any) -> List[Tuple[Any, Tuple[Any, ...]]]:
    """(name, (tensor,) or (keys, values)) a layer."""
    items: List[Tuple[Any, Any]] = list(tensors.items()) \
        if isinstance(tensors, Mapping) else list(enumerate(tensors))
    return [(n, tuple(t) if isinstance(t, (tuple, list)) else (t,)) for n, t in items]


def _rows(cache: _caches.Cache, counts: Any, mask: Any, tokens: Any,
          padding: Optional[str]) -> Tuple[Any, Any, bool]:
    """
    Block tables, numbers of tokens, and is every slot a block?  It is where a sequence
    begins with padding; else a sequence is one.  Of several nobody knows which tokens are
    padding unless it is told; then they are blocks alone.
    """
    rows, _, slots, _ = cache.pairs[0][0].shape
    names = [str(i) for i in range(rows)]
    if counts is not None:
        if mask is not None or tokens is not None or padding is not None:
            raise UsageError("num_tokens= and attention_mask=, tokens= or padding= exclude "
                             "each other")
        if isinstance(counts, Mapping):
            names, counts = [str(r) for r in counts], list(counts.values())
        if len(counts) != rows:
            raise UsageError(f"num_tokens has {len(counts)} numbers, the cache {rows} "
                             "sequences")
        tokens = counts
    elif mask is None and tokens is None:
        if padding is not None:
            raise UsageError("padding= says where it is, and tokens= or attention_mask= how "
                             "much: give one of them, too")
        if rows > 1:
            return None, None, False
        tokens = cache.tokens
    spans = _caches.spans(cache, mask, tokens, padding)
    apart = any(begin for begin, _ in spans)
    tables = [range(i * slots + begin, i * slots + end) if apart else [i]
              for i, (begin, end) in enumerate(spans)]
    return (dict(zip(names, tables)),
            {r: end - begin for r, (begin, end) in zip(names, spans)}, apart)


def _apart(views: Sequence[Tuple[Box, _Tensor, View]]
           ) -> List[Tuple[Box, _Tensor, View]]:
    """Slots of all blocks as blocks of one slot, in their order: each block a part."""
    out = []
    for whole, tensor, view in views:
        factors = [Factor(f.axis, f.div, f.n, f.stride) for f in view.factor[:view.nfactors]]
        block = next(f for f in factors if f.axis == _native.B)
        slot = next(f for f in factors if f.axis == _native.S)
        factors.remove(block)
        slot.axis = _native.B
        for i in range(block.n):
            box, part = Box(), View(view.shape, view.offset + i * block.stride, len(factors))
            part.factor[:len(factors)] = factors
            part.shape.n[_native.B], part.shape.n[_native.S] = slot.n, 1
            ctypes.memmove(byref(box), byref(whole), ctypes.sizeof(Box))
            box.begin[_native.B], box.end[_native.B] = i * slot.n, (i + 1) * slot.n
            box.end[_native.S] = 1
            out.append((box, tensor, part))
    return out


def _cache_in(tensors: Any, own: Dict[str, Any], told: Mapping[str, Any]) -> Any:
    """
    A dump of a cache that is read as its file; of a plain one its layers, block tables,
    numbers of tokens, and whether a slot is a block; None: it is no cache.
    """
    padding, unsaid = own["padding"], all(own[name] is None for name in (
        "num_tokens", "attention_mask", "tokens", "block_table"))
    if padding not in (None, "left", "right"):
        raise UsageError(f"padding is {padding!r}, expected 'left' or 'right'")
    tensors = _caches.given_back(tensors)
    cache, why = _caches.plain_of(tensors)
    told = dict(told, block_size=own["block_size"]) if own["block_size"] else told
    if (cache is None or told or (unsaid and _caches.has_zeros(cache))) and \
            own["layout"] is None and _caches.is_savable(tensors, bool(told)):
        return _opened(tensors, own, told)
    if cache is None:
        if _caches.is_object(tensors):
            raise UsageError(why + ": of torch's tensors that is read, as torch.save() "
                             "writes it")
        return None
    _none_of("an encoder and a decoder", {},
             decoder_attention_mask=own["decoder_attention_mask"])
    if own["block_table"] is not None:
        for name in ("attention_mask", "tokens", "padding"):
            if own[name] is not None:
                raise UsageError(f"block_table= and {name}= exclude each other")
        return cache.pairs, own["block_table"], own["num_tokens"], False
    return (cache.pairs, *_rows(cache, own["num_tokens"], own["attention_mask"],
                                own["tokens"], padding))


def _opened(tensors: Any, own: Mapping[str, Any], told: Mapping[str, Any]) -> Dump:
    """A cache by what torch.save() writes of it, told what its file would be told."""
    for name in ("block_table", "token_ids", "latent", "kind", "model", "null_block"):
        if own[name]:
            raise UsageError(f"{name}= is for tensors with layout=, and for caches of plain "
                             "layers; leave it out")
    told = {**told, "facts": {**told.get("facts", {}),
                              **_caches.words_of(own["tokens"], own["padding"])}}
    if own["num_tokens"] is not None:
        if isinstance(own["num_tokens"], Mapping) or own["tokens"] is not None:
            raise UsageError("num_tokens= with names is for caches of plain layers; give "
                             "tokens=, a number for each sequence")
        told["facts"].update(_caches.words_of(own["num_tokens"], None))
    if own["window"]:
        told["facts"].setdefault("window", str(own["window"]))
    for name in ("block_size", "heads", "head_dim", "dtype", "tp", "total_heads"):
        if own[name]:
            told[name] = own[name]
    masks = {name: own[name] for name in ("attention_mask", "decoder_attention_mask")
             if own[name] is not None}
    return _caches.saved(tensors, masks, told)


def _missing_layout(tensors: Any) -> UsageError:
    items = tensors.values() if isinstance(tensors, Mapping) else \
        tensors if isinstance(tensors, (list, tuple)) else [None]
    first = tensors if _caches.is_tensor(tensors) else next(iter(items), None)
    if isinstance(first, (tuple, list)) and first:
        first = first[0]
    if isinstance(tensors, (str, os.PathLike, Dump)):
        return UsageError(f"from_tensors() takes tensors, but {tensors!r} is a dump or a "
                          "path, which kvtool.open() takes")
    if not _caches.is_tensor(first):
        return UsageError(f"{type(tensors).__name__} is no dump, path, cache of transformers, "
                          "or tensors")
    shape = tuple(int(n) for n in first.shape)
    example = {3: "BSC", 4: "BSHD", 5: "KBSHD", 6: "LKBSHD"}.get(len(shape), "KBSHD")
    return UsageError(f"give layout=, which names the dimensions of {shape} as they are "
                      f'indexed: layout="{example}", for example (L layers, K keys and '
                      "values, B blocks, S slots, H heads, D elements, C is K and D in one)")


def from_tensors(tensors: Any, *,  # pylint: disable=too-many-locals
                 layout: Optional[str] = None,
                 block_table: Optional[Mapping[str, Sequence[int]]] = None,
                 num_tokens: Union[Mapping[str, int], Sequence[int], None] = None,
                 token_ids: Optional[Mapping[str, Sequence[int]]] = None,
                 dtype: Optional[str] = None, latent: bool = False, kind: str = "",
                 window: int = 0, block_size: int = 0, heads: int = 0, head_dim: int = 0,
                 model: str = "", null_block: Optional[int] = None,
                 tp: Optional[Tuple[int, int]] = None, total_heads: int = 0,
                 attention_mask: Any = None, tokens: Union[int, Sequence[int], None] = None,
                 padding: Optional[str] = None, decoder_attention_mask: Any = None,
                 **told: Any) -> Dump:
    """
    A dump of tensors in memory: numpy, torch on the CPU or a GPU, CuPy and whatever
    else has ``__cuda_array_interface__``, or anything with DLPack on the CPU.

    ``tensors`` is ``{layer: tensor}`` or a list of layers, where a layer may be a pair
    of keys and values, or one tensor of all layers.  ``layout`` names the dimensions of
    a tensor, slowest first as it is indexed, not as it lies in memory: a preset such as
    "nhd", or axes such as "KBSHD" (layer L, block B, slot S, head H, keys and values K,
    element D; C is K and D in one dimension).  L is left out, or ignored, where each
    layer has a tensor of its own, and where the one tensor has no dimension for it.  Any strides but negative ones are fine.  A masked
    array is refused: a dump has no masks.

    A cache of transformers needs no ``layout``: past_key_values of any class, a tuple of
    pairs, what a model gave back, or a dict of such with its attention_mask.  One of plain
    layers is read where it lies.  All others (windows, recurrent states, quantised layers,
    latents, an encoder and a decoder) are copied once, as torch.save() writes them, and
    read as :func:`open` reads that file; what it cannot know is told by the arguments of
    open(), such as ``facts={"slots": 19}``.  A sequence alone is request "0".  Of several
    ``attention_mask`` [batch, tokens] says which slots are padding (of an encoder its own,
    and ``decoder_attention_mask`` those of the decoder), or ``tokens`` how many
    are tokens (one number, or one for each) and ``padding`` on which side the others are,
    "right" or "left"; ``num_tokens`` may name them, ``{"a": 19, "b": 13}``.  Untold, plain
    layers are blocks without requests.

    Nothing else is copied, and nothing may write to the tensors while the dump is read;
    they are kept alive by it.  Of a tensor on a GPU what is read comes over, in pieces of
    16 MiB; the stream that is current is waited for here, others are the caller's.
    ``block_table`` has the blocks of each request in the order of its tokens,
    ``num_tokens`` how many it has (default: all slots of its blocks).  ``latent`` says that
    the content is no keys and values (MLA).

    Where the shape of a tensor does not say what is where, as with orders that kernels
    pack ("cpu-vec", "rocm-paged"), ``block_size``, ``heads`` and ``head_dim`` are given:
    then the memory of each layer is taken as bytes of that layout, whatever its shape.

    >>> import numpy
    >>> cache = numpy.zeros((2, 3, 16, 4, 8), numpy.float16)
    >>> d = from_tensors([cache], layout="KBSHD", block_table={"r": [2, 1]})
    >>> d.requests["r"].tokens, d.read(layer=0, request="r", kv="v").shape
    (32, (32, 4, 8))
    >>> keys = values = numpy.zeros((2, 4, 19, 8), numpy.float16)     # [batch, head, ...]
    >>> d = from_tensors(((keys, values),), tokens=[19, 13], padding="left")
    >>> d.read(layer=0, request="1", kv="k").shape
    (13, 4, 8)
    """
    own = {n: v for n, v in locals().items() if n not in ("tensors", "told")}
    for name in told:
        if name != "groups" and name not in _native.HINTS:
            raise TypeError(f"from_tensors() got an unexpected keyword argument {name!r}")
    apart = False
    if layout in (None, "BHSD"):
        found = _cache_in(tensors, own, told)
        if isinstance(found, Dump):
            return found
        if found is not None:
            tensors, block_table, num_tokens, apart = found
            layout, attention_mask, tokens, padding = "BHSD", None, None, None
    if layout is None or not (hasattr(tensors, "__iter__") or _caches.is_tensor(tensors)):
        raise _missing_layout(tensors)
    _none_of("a cache of transformers, without layout=", told, attention_mask=attention_mask,
             tokens=tokens, padding=padding, decoder_attention_mask=decoder_attention_mask)
    whole = _native.parse_layout(layout)
    one = _caches.is_tensor(tensors)
    named: List[Tuple[Any, Tuple[Any, ...]]] = [(0, (tensors,))] if one else \
        _named(tensors)
    if not named:
        raise UsageError("no tensors")
    held = [[_Tensor(f"layer {name}", t, dtype) for t in pair] for name, pair in named]
    first = held[0][0]
    if heads and head_dim:
        n, views = _packed(whole, held, one, latent, (block_size, heads, head_dim))
        return _described(whole, n, views, named, len(held), n[_native.K], latent, one,
                          block_table, num_tokens, token_ids, kind=kind, window=window,
                          block_size=0, model=model, null_block=null_block, tp=tp,
                          total_heads=total_heads)
    parts = [p for p in _parts_of(whole, first.size, one)
             if not latent or p[0] != _native.K]
    if one and not _fits(first, parts, layout):
        # the layout has L and the tensor has not: it is one layer, as a file of it is
        alone = [p for p in parts if p[0] != _native.L]
        if len(alone) < len(parts) and _fits(first, alone, layout):
            parts, one = alone, False
    pairs = len(held[0]) == 2
    if pairs:
        parts = [p for p in parts if p[0] != _native.K]
    views = []
    for i, layer in enumerate(held):
        for half, tensor in enumerate(layer):
            views.append(_place(tensor, _view(tensor, parts, layout), i, half, one,
                                first.dtype))
    n = views[0][2].shape.n
    if n[_native.K] > 2:
        raise UsageError(f"{first.name}: {tuple(first.shape)} in layout {layout} would have "
                         f"{n[_native.K]} entries for keys and values, expected 2")
    for _, tensor, view in views:
        if any(view.shape.n[a] != n[a] for a in range(NAXES)):
            raise UsageError(f"{tensor.name}: {tuple(tensor.shape)}, others "
                             f"{tuple(first.shape)}: give groups apart, and their layers "
                             "in dumps of their own")
    if apart:
        views = _apart(views)
        n = Shape(tuple(n), first.size).n
        n[_native.B], n[_native.S] = n[_native.B] * n[_native.S], 1
    layers = n[_native.L] if one else len(held)
    halves = 2 if pairs else n[_native.K]
    return _described(whole, n, views, named, layers, halves, latent, one, block_table,
                      num_tokens, token_ids, kind=kind, window=window,
                      block_size=block_size, model=model, null_block=null_block, tp=tp,
                      total_heads=total_heads)


def _none_of(what: str, told: Mapping[str, Any], **given: Any) -> None:
    for name in [*told, *(n for n, v in given.items() if v is not None)]:
        raise UsageError(f"{name}= is for {what}")


def _described(whole: Layout, n: Any, views: Sequence[Tuple[Box, _Tensor, View]],
               named: Sequence[Tuple[Any, Any]], layers: int, halves: int, latent: bool,
               one: bool, *tables: Any, **more: Any) -> Dump:
    manifest = _manifest(whole, n, layers, halves, views[0][1].dtype, latent)
    if not one:
        manifest["layer_ids"] = [_number(name, i) for i, (name, _) in enumerate(named)]
        if all(isinstance(name, str) for name, _ in named):
            manifest["layer_names"] = [name for name, _ in named]
    _say_more(manifest, n, *tables, **more)
    return _make(manifest, views)


def _packed(layout: Layout, held: Sequence[Sequence[_Tensor]], one: bool, latent: bool,
            sizes: Tuple[int, int, int]) -> Tuple[Any, List[Tuple[Box, _Tensor, View]]]:
    """Tensors as plain memory of the layout, whatever their shape: (extents, views)."""
    block_size, heads, dim = (_native.whole("block_size, heads or head_dim", s, 0, 1 << 40)
                              for s in sizes)
    if not block_size:
        raise UsageError("heads= and head_dim= need block_size=, too")
    n = Shape().n
    n[_native.S], n[_native.H], n[_native.D] = block_size, heads, dim
    n[_native.K] = 1 if latent else 2
    out = []
    for i, layer in enumerate(held):
        if len(layer) != 1:
            raise UsageError("heads= and head_dim= are for memory that holds keys and "
                             "values; pairs of tensors have a shape")
        tensor = layer[0]
        nbytes = tensor.size
        for extent in tensor.shape:
            nbytes *= extent
        if not tensor.is_dense():
            raise UsageError(f"{tensor.name}: has gaps, strides {tensor.strides} of "
                             f"{tensor.shape}")
        block = block_size * heads * dim * n[_native.K] * tensor.size
        count, rest = divmod(nbytes, block)
        if rest:
            raise UsageError(f"{tensor.name}: {nbytes} bytes are no blocks of {block}")
        n[_native.L], n[_native.B] = 1, count
        if one:
            raise UsageError("heads= and head_dim= are for tensors of a layer each")
        box, views = Box(), _native.Views()
        for axis in range(NAXES):
            box.end[axis] = n[axis]
        call("kvt_layout_views", byref(views), byref(layout), byref(box), tensor.size)
        for half in range(views.count):
            part, view = Box(), views.view[half]
            ctypes.memmove(byref(part), byref(box), ctypes.sizeof(Box))
            part.begin[_native.L], part.end[_native.L] = i, i + 1
            part.begin[_native.K] = views.first_k + half
            part.end[_native.K] = part.begin[_native.K] + view.shape.n[_native.K]
            out.append((part, tensor, view))
    return n, out


def _place(tensor: _Tensor, view: View, layer: int, half: int, one: bool,
           dtype: str) -> Tuple[Box, _Tensor, View]:
    box = Box()
    if tensor.dtype != dtype:
        raise UsageError(f"{tensor.name}: elements are {tensor.dtype}, others {dtype}")
    for axis in range(NAXES):
        box.end[axis] = view.shape.n[axis]
    if not one:
        box.begin[_native.L], box.end[_native.L] = layer, layer + 1
    if half:
        box.begin[_native.K], box.end[_native.K] = 1, 2
    return box, tensor, view


def _manifest(layout: Layout, n: Any, layers: int, halves: int, dtype: str,
              latent: bool) -> Dict[str, Any]:
    sizes = {"layers": layers, "num_blocks": n[_native.B], "block_size": n[_native.S],
             "num_kv_heads": n[_native.H],
             "content" if latent or halves == 1 else "head_dim": n[_native.D]}
    words = _native.layout_text(layout)
    if "L" not in words:
        words = "L" + (" " if " " in words else "") + words
    if latent or halves == 1:
        words = words.replace("C", "D").replace("K", "").strip() + "C"
        words = words.replace("D", "")
    elif "K" not in words and "C" not in words:
        words = words.replace("L", "LK" if " " not in words else "L K", 1)
    return {"layout": words, "dtype": dtype, "sizes": sizes,
            "source_format": "memory"}


def _say_more(manifest: Dict[str, Any], n: Any,
              block_table: Optional[Mapping[str, Sequence[int]]],
              num_tokens: Optional[Mapping[str, int]],
              token_ids: Optional[Mapping[str, Sequence[int]]], *, kind: str,
              window: int, block_size: int, model: str, null_block: Optional[int],
              tp: Optional[Tuple[int, int]], total_heads: int) -> None:
    size = block_size or n[_native.S]
    if block_size % max(1, n[_native.S]) or block_size < 0:
        raise UsageError(f"block_size is {block_size}, expected a multiple of the "
                         f"{n[_native.S]} slots that a block has")
    if block_size:
        manifest["sizes"]["block_size"] = block_size
        manifest["tokens_per_slot"] = block_size // n[_native.S]
    for key, value in (("kind", kind), ("window", window), ("model", model),
                       ("total_kv_heads", total_heads)):
        if value:
            manifest[key] = value
    if null_block is not None:
        manifest["null_block"] = null_block
    if tp is not None:
        manifest["tp_rank"], manifest["tp_size"] = tp
    for name, value in (("block_table", block_table), ("num_tokens", num_tokens)):
        if value is not None and (block_table is None or not isinstance(value, Mapping)):
            raise UsageError(f"{name} is a {type(value).__name__}, expected a mapping, "
                             'block_table={"A": [5, 2]}, num_tokens={"A": 20}')
    if block_table is None:
        return
    tables = {str(r): [int(b) for b in t] for r, t in block_table.items()}
    manifest["block_table"] = tables
    counts = {r: len(t) * size for r, t in tables.items()}
    counts.update({str(r): int(c) for r, c in (num_tokens or {}).items()})
    manifest["num_tokens"] = counts
    if token_ids is not None:
        manifest["token_ids"] = {str(r): [int(i) for i in ids]
                                 for r, ids in token_ids.items()}


def _make(manifest: Mapping[str, Any],
          views: Sequence[Tuple[Box, _Tensor, View]]) -> Dump:
    parts = (TensorPart * len(views))()
    for i, (box, tensor, view) in enumerate(views):
        # an array of no elements may have no address, and is never read
        parts[i] = TensorPart(0, box, tensor.address or 1, view, tensor.device)
    info = c_void_p()
    call("kvt_snapshot_from_json", byref(info), json.dumps(manifest).encode(),
         b"tensors")
    try:
        made = make("kvt_dump_of_tensors", info,
                    ctypes.cast(parts, ctypes.POINTER(TensorPart)), len(views))
    finally:
        lib.kvt_snapshot_delete(info)
    dump = Dump(made, "memory", [t.keep for _, t, _ in views])
    dump._views = [v for v in views if v[1].device is None]  # pylint: disable=protected-access
    return dump
