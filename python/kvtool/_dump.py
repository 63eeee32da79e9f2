# SPDX-License-Identifier: Apache-2.0
"""Dumps: opened, made of tensors in memory, or derived of other dumps"""
from __future__ import annotations

import ctypes
import functools
import json
import os
import threading
from ctypes import byref, c_bool, c_char_p, c_int64, c_void_p, pointer
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple, Union)

from . import _arrays, _html, _native, _view
from ._native import (AsType, B, D, H, K, L, NAXES, S, BadInput, Box, CreateOptions, Error,
                      Layout, Mismatch, Progress, Range, Ranges, Reblocked,
                      ReblockOptions, SliceOptions, SystemFailure, Text,
                      UsageError, Watch, call, encoded, lib, make, parse_layout,
                      path_bytes, text, whole)

if TYPE_CHECKING:
    import numpy

Span = Union[int, slice, Tuple[int, int], range, None]
Slice = slice                   # inside Dump the name is its method's
Path = Union[str, "os.PathLike[str]"]
MEMORY = 256 << 20
LARGEST = 1 << 62                # far above any number of a token or block


class Group(NamedTuple):
    """Layers that share layout, type and shape."""

    id: str
    kind: str                       #: "full_attention", "mla", "mamba_ssm", ...
    layout: str                     #: axes from slowest to fastest, "LBSHC"
    dtype: str                      #: "bfloat16"
    layers: int
    blocks: int                     #: in the dump
    block_size: int                 #: tokens; 0: states, which stand for all tokens
    slots: int                      #: rows of a block
    heads: int                      #: of this rank
    total_heads: int                #: of the model
    dim: int                        #: elements of a head, or of opaque content
    has_values: bool                #: keys and values; else one content
    layer_ids: Tuple[int, ...]      #: numbers in the model
    layer_names: Tuple[str, ...]    #: empty if unknown
    block_ids: Tuple[int, ...]      #: in the engine's pool
    window: int                     #: tokens; 0: none
    content_type: str               #: "" for elements of one type
    state_shape: Tuple[int, ...]    #: [channels, taps], [heads, ...]; empty if unknown

    @property
    def shape(self) -> Tuple[int, ...]:
        """Of all its blocks: [kv, layer, block, slot, head, element], or without kv."""
        return ((2,) if self.has_values else ()) + (self.layers, self.blocks, self.slots,
                                                    self.heads, self.dim)


class Request(NamedTuple):
    """What a request has in the cache."""

    id: str
    tokens: int
    first_token: int
    token_ids: Tuple[int, ...]              #: empty if unknown
    blocks: Mapping[str, Tuple[int, ...]]   #: ids in the pool, by group


class Finding(NamedTuple):
    """A rule of kvtool-fsck(1) that is broken."""

    rule: str
    severity: str                   #: "error", "warning", "note"
    at: str                         #: "group=g0,block=3"; "": all of the dump
    text: str


def _group(entry: Mapping[str, Any], number: int) -> Group:
    sizes = entry["sizes"]
    per, size = entry["tokens_per_slot"], sizes["block_size"]
    layers, blocks = sizes["layers"], sizes["num_blocks"]
    return Group(
        id=entry.get("id", f"g{number}"), kind=entry["kind"], layout=entry["layout"],
        dtype=entry["dtype"], layers=layers, blocks=blocks, block_size=size,
        slots=sizes.get("slots", size // per if per > 0 else 1),
        heads=sizes["num_kv_heads"], total_heads=entry["total_kv_heads"],
        dim=sizes.get("head_dim", sizes.get("content", 0)),
        has_values="head_dim" in sizes,
        layer_ids=tuple(entry.get("layer_ids", range(layers))),
        layer_names=tuple(entry.get("layer_names", ())),
        block_ids=tuple(entry.get("block_ids", range(blocks))),
        window=entry.get("window", 0), content_type=entry.get("content_type", ""),
        state_shape=tuple(entry.get("state_shape", ())))


class _Facts:
    """What a dump says of itself, read once."""

    def __init__(self, handle: int) -> None:
        self.manifest = json.loads(_native.snapshot_json(lib.kvt_dump_snapshot(handle)))
        m = self.manifest
        entries = self.entries = m.get("groups", [m] if "layout" in m else [])
        self.groups = [_group(e, i) for i, e in enumerate(entries)]
        first, ids = m.get("first_token", {}), m.get("token_ids", {})
        self.requests: Dict[str, Request] = {}
        for name, count in m.get("num_tokens", {}).items():
            tables = {g.id: tuple(e["block_table"][name])
                      for g, e in zip(self.groups, entries)
                      if name in e.get("block_table", {})}
            self.requests[name] = Request(name, count, first.get(name, 0),
                                          tuple(ids.get(name, ())), tables)


class _Handle:
    """A kvt_dump that is closed once nobody uses it, in the process that opened it."""

    def __init__(self, value: int) -> None:
        self.value: Optional[int] = value
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.users = 0
        self.closing = False

    def __enter__(self) -> int:
        if self.pid != os.getpid():
            raise UsageError("the dump was opened before a fork; open it in this process")
        with self.lock:
            if self.closing or self.value is None:
                raise UsageError("the dump is closed")
            self.users += 1
            return self.value

    def __exit__(self, *_: Any) -> None:
        with self.lock:
            self.users -= 1
            value = self._last()
        if value:
            lib.kvt_dump_close(value)

    def _last(self) -> Optional[int]:
        if not self.closing or self.users:
            return None
        value, self.value = self.value, None
        return value

    def close(self) -> None:
        if self.pid != os.getpid():
            return                      # its files are the other process's
        with self.lock:
            self.closing = True
            value = self._last()
        if value:
            lib.kvt_dump_close(value)


def _range(span: Span, begin: int, end: int, what: str) -> Tuple[int, int, bool]:
    """(begin, end, is it one) of a span of indices in [begin, end)."""
    if span is None:
        return begin, end, False
    if isinstance(span, (tuple, range)):
        if isinstance(span, range) and span.step != 1:
            raise UsageError(f"{what}: a step of {span.step}, expected 1")
        span = slice(span[0], span[1]) if isinstance(span, tuple) else \
            slice(span.start, span.stop)
    if isinstance(span, slice):
        if span.step not in (None, 1):
            raise UsageError(f"{what}: a step of {span.step}, expected 1")
        at = [begin if span.start is None else span.start,
              end if span.stop is None else span.stop]
        at = [i + end if i < 0 else i for i in at]
        if not begin <= at[0] < at[1] <= end:
            raise UsageError(f"{what} {span.start}:{span.stop}, expected a range in "
                             f"{begin}:{end}")
        return at[0], at[1], False
    if not hasattr(span, "__index__") or isinstance(span, bool):
        raise UsageError(f"{what} {span!r}, expected a number, a slice, (begin, end), or a "
                         "list of numbers")
    at0 = int(span) + end if int(span) < 0 else int(span)
    if not begin <= at0 < end:
        raise UsageError(f"{what} {span}, expected one of {begin} to {end - 1}")
    return at0, at0 + 1, True


#: what kv= may be called: 0 keys, 1 values
HALVES = {None: None, "k": 0, "key": 0, "keys": 0, 0: 0, "v": 1, "value": 1, "values": 1,
          1: 1}
#: arguments of a read that may be lists, in the order of their axes
LISTS = ("layer", "blocks", "tokens", "heads")


def _half_of(kv: Any) -> Optional[int]:
    """0 or 1 of kv=; None: both, or the one content there is."""
    if isinstance(kv, (str, int, type(None))) and kv in HALVES:
        return HALVES[kv]
    raise UsageError(f"kv is {kv!r}, expected 'k' or 'v'")


def _is_list(span: Any) -> bool:
    """A list or an array of numbers, or of names: not (begin, end), nor a range."""
    return not isinstance(span, (str, bytes, tuple, range)) and \
        hasattr(span, "__len__") and hasattr(span, "__getitem__") and \
        not hasattr(span, "__index__") or getattr(span, "ndim", 0) > 0


def _runs(numbers: Sequence[int]) -> List[slice]:
    """Neighbours in a list, together."""
    runs: List[slice] = []
    for i in numbers:
        if runs and runs[-1].stop == i:
            runs[-1] = slice(runs[-1].start, i + 1)
        else:
            runs.append(slice(i, i + 1))
    return runs


def _pair(name: str, item: Any, known: Sequence[int]) -> Tuple[int, int]:
    """From and to of one id, of a slice, a range or (begin, end); from the end if negative."""
    if isinstance(item, (slice, range)):
        if item.step not in (None, 1):
            raise UsageError(f"{name}: a step of {item.step}, expected 1")
        item = (item.start, item.stop)
    if not isinstance(item, tuple):
        i = _native.index(name, item)
        i = known[i] if i < 0 and known and known[0] >= 0 and -i <= len(known) else i
        return i, i + 1
    if len(item) != 2:
        raise UsageError(f"{name} {item}, expected (begin, end)")
    ends = [known[0] if known else 0, known[-1] + 1 if known else 0]
    begin, end = (edge if i is None else _native.index(name, i)
                  for i, edge in zip(item, ends))
    if known and known[0] >= 0:
        begin, end = (i + ends[1] if i < 0 else i for i in (begin, end))
    return begin, end


def _ranges(name: str, span: Any, known: Sequence[int], keep: List[Any],
            one: bool = False) -> Ranges:
    """Ids: one, a slice, a tuple (begin, end), or a list of such; 'one': neighbours."""
    if span is None:
        return Ranges()
    known = sorted(set(known))
    pairs = [_pair(name, item, known) for item in (span if _is_list(span) else [span])]
    if one and pairs and all(a[1] == b[0] for a, b in zip(pairs, pairs[1:])):
        pairs = [(pairs[0][0], pairs[-1][1])]
    if not pairs or (one and len(pairs) > 1):
        raise UsageError(f"{name} is {span}, expected " + (
            "neighbours, as one range" if pairs else "some"))
    out = (Range * len(pairs))()
    for i, (begin, end) in enumerate(pairs):
        out[i] = Range(whole("begin", begin, -LARGEST), whole("end", end, -LARGEST))
    keep.append(out)
    return Ranges(len(pairs), ctypes.cast(out, ctypes.POINTER(Range)))


def _two_scales(name: str, scale: Any) -> Tuple[float, float]:
    try:
        both = (scale, scale) if isinstance(scale, (int, float)) else tuple(scale)
        k, v = (float(x) for x in both)
    except (TypeError, ValueError):
        raise UsageError(f"{name} is {scale!r}, expected a number, or one for keys and "
                         "one for values") from None
    return k, v


class Dump:
    """
    A KV cache that can be read, wherever it is: a file, tensors in memory, or made of
    others by :meth:`slice`, :meth:`reblock` and :func:`merge`, which read no data.

    A dump never changes, and any number of threads may read it.  It holds files open
    until :meth:`close`, the end of a ``with`` block, or its last reference.
    """

    def __init__(self, handle: int, name: str, keep: Sequence[Any] = (),
                 proof: Optional[Tuple["Dump", Any]] = None) -> None:
        self._handle = _Handle(handle)
        self._name = name
        self._keep = tuple(keep)        # memory that C reads
        self._proof = proof             # of what, and how, it was reblocked
        self._views: Sequence[Any] = ()     # of tensors in memory: (box, tensor, view)
        self._source: Optional[_view.Source] = None     # where the program finds it
        self._again: Optional[Callable[[], "Dump"]] = None      # opens it once more
        self._facts_read: Optional[_Facts] = None

    # ---- life ----

    def close(self) -> None:
        """Ends its use; data of derived dumps stay readable."""
        self._handle.close()

    def __enter__(self) -> "Dump":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            handle.close()

    def __len__(self) -> int:
        """Layers of the model that it has."""
        return len({n for g in self._facts.groups for n in g.layer_ids})

    def __bool__(self) -> bool:
        return True                     # without layers, too

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        """All blocks of the only group, of the shape :attr:`shape`."""
        if copy is False:
            raise ValueError("reading a dump copies; d.read(blocks=...) of a tensor in memory "
                             "does not")
        if len(self.groups) != 1:
            raise UsageError("the dump has several groups, each of which is an array: " +
                             "; ".join(f'd.read(group="{g.id}", blocks=slice(None))'
                                       for g in self.groups[:3]))
        name = getattr(dtype, "name", None)
        if name in ("float32", "float64"):
            return self.read(blocks=slice(None), dtype=name)
        array = self.read(blocks=slice(None))
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        if self._handle.closing:
            return f"<kvtool.Dump {self._name!r}, closed>"
        groups = ", ".join(f"{g.id}: {g.layout} {g.dtype}" for g in self.groups)
        return f"<kvtool.Dump {self._name!r}: {groups}>"

    # ---- facts ----

    @property
    def _facts(self) -> _Facts:
        if self._facts_read is None:
            with self._handle as handle:
                self._facts_read = _Facts(handle)
        return self._facts_read

    @property
    def name(self) -> str:
        """Its path, or what it was made of."""
        return self._name

    @property
    def format(self) -> str:
        """Of its first source: "hdf5", "npy", "memory", ..."""
        with self._handle as handle:
            return text(lib.kvt_dump_format(handle))

    @property
    def groups(self) -> Tuple[Group, ...]:
        """Groups of layers that share layout, type and shape."""
        return tuple(self._facts.groups)

    @property
    def requests(self) -> Mapping[str, Request]:
        """By id, in the order of the dump; empty if it has no block tables."""
        return dict(self._facts.requests)

    @property
    def layout(self) -> str:
        """Axes from slowest to fastest ("LBSHC"), if all groups have the same."""
        found = {g.layout for g in self.groups}
        if len(found) != 1:
            raise UsageError("groups have layouts of their own: " +
                             ", ".join(f"{g.id} {g.layout}" for g in self.groups))
        return found.pop()

    @property
    def shape(self) -> Tuple[int, ...]:
        """
        ``[kv, layer, block, slot, head, element]`` of the only group, as numpy.asarray(d)
        reads all of it; without ``kv`` where there are no values.

        >>> d = open("cache.npy")
        >>> d.shape, len(d)
        ((2, 5, 48, 16, 4, 8), 5)
        """
        if len(self.groups) != 1:
            raise UsageError("groups have shapes of their own: " +
                             ", ".join(f"{g.id} {g.shape}" for g in self.groups))
        return self.groups[0].shape

    @property
    def spec(self) -> Mapping[str, Any]:
        """All that it says of itself, with the keys of kvtool-manifest(5)."""
        copy: Mapping[str, Any] = json.loads(json.dumps(self._facts.manifest))
        return copy

    def group(self, name: Union[str, int, None] = None) -> Group:
        """The group of that id or number; without one the only one."""
        return self._facts.groups[self._group_number(name)]

    def _group_number(self, name: Union[str, int, None]) -> int:
        groups = self._facts.groups
        if name is None and len(groups) == 1:
            return 0
        for i, g in enumerate(groups):
            if name in (g.id, i):
                return i
        raise UsageError(f"{'no group' if name is None else repr(name)}: give group= "
                         f"one of {', '.join(g.id for g in groups) or 'none'}")

    # ---- made of it ----

    def slice(self, *, layers: Any = None, heads: Any = None, tokens: Any = None,
              requests: Union[str, Sequence[str], None] = None, blocks: Any = None,
              tp: Optional[Tuple[int, int]] = None,
              components: Union[str, Sequence[str], None] = None, mamba_groups: int = 0
              ) -> "Dump":
        """
        A part, named by numbers in the model and ids in the pool.

        ``layers`` and ``blocks`` take a number, ``slice(2, 5)``, ``(2, 5)`` or a list
        of these; ``heads`` and ``tokens`` neighbours.  -1 is the last.
        ``components`` are parts of what a group holds, by their names ("k", "v", "ssm").
        ``tp=(rank, size)`` is the share of a tensor parallel rank, which of some recurrent
        states depends on ``mamba_groups``.

        >>> part = open("cache.npy").slice(layers=(1, 3), requests="A", tp=(1, 4))
        >>> part.groups[0].layer_ids, part.groups[0].heads, list(part.requests)
        ((1, 2), 1, ['A'])
        """
        if tokens is not None and not self.requests:
            raise BadInput("the dump has no requests, so tokens cannot be chosen: give "
                           'blocks=, or name requests where it is made, open(blocks_of={"A": '
                           '"5,2,9:40"}) or from_tensors(block_table={"A": [5, 2, 9]})')
        keep: List[Any] = []
        known: Dict[str, List[int]] = {"layers": [], "blocks": [], "heads": []}
        for g, entry in zip(self.groups, self._facts.entries):
            start = entry.get("head_start", 0)
            known["layers"] += g.layer_ids if layers is not None else ()
            known["blocks"] += g.block_ids if blocks is not None else ()
            known["heads"] += range(start, start + g.heads)
        ends = [r.first_token + r.tokens for r in self.requests.values()]
        o = SliceOptions(_ranges("layers", layers, known["layers"], keep),
                         _ranges("blocks", blocks, known["blocks"], keep),
                         _ranges("heads", heads, known["heads"], keep, one=True),
                         _ranges("tokens", tokens, range(max(ends, default=0)), keep,
                                 one=True))
        for given, of in ((requests, o.requests), (components, o.components)):
            if given is not None:
                names = [given] if isinstance(given, str) else list(given)
                array = (c_char_p * len(names))(*[path_bytes(n) for n in names])
                of.n, of.s = len(names), array
                keep.append(array)
        o.mamba_groups = whole("mamba_groups", mamba_groups)
        if tp is not None:
            o.rank.index, o.rank.size = whole("rank", tp[0]), whole("size", tp[1])
        with self._handle as handle:
            made = make("kvt_dump_slice", handle, byref(o))
        proof = self._proof and (self._proof[0], None)
        return Dump(made, f"part of {self._name}", self._keep, proof)

    def reblock(self, block_size: int, *, layout: Optional[str] = None,
                compact: bool = False) -> "Dump":
        """Blocks of another number of tokens; ``compact`` drops unused ones."""
        o = ReblockOptions(whole("block_size", block_size, 1), compact)
        if layout is not None:
            to = parse_layout(layout)
            o.layout = pointer(to)
        said = (Reblocked * _native.MAX_GROUPS)()
        out = c_void_p()
        with self._handle as handle:
            call("kvt_dump_reblock", byref(out), said, handle, byref(o))
        assert out.value is not None
        how = None if self._proof else said
        return Dump(out.value, f"{self._name} in blocks of {block_size}", self._keep,
                    (self._proof[0] if self._proof else self, how))

    def decode(self, dtype: Any = "float32") -> "Dump":
        """
        The numbers of all groups as float32, float64 or float16: of a quantised content each
        times its scale, as the engine reads it; of other groups they are the elements.

        >>> open("cache.npy").decode().read(layer=3, request="A", kv="k").dtype
        dtype('float32')
        """
        name = _arrays.plain_name(dtype)
        if name not in ("float16", "float32", "float64"):
            raise UsageError(f"dtype is {name!r}, expected 'float32', 'float64' or "
                             "'float16'")
        found = lib.kvt_dtype_find(path_bytes(name))
        with self._handle as handle:
            made = make("kvt_dump_decode", handle, found, None)
        return Dump(made, f"numbers of {self._name}", self._keep)

    def astype(self, dtype: Any, scale: Any = None, from_scale: Any = None, *,
               threads: int = 0, memory: int = MEMORY,
               progress: Optional[Progress] = None) -> "Dump":
        """
        Keys, values and latents as another type, rounded as engines do, by the names of
        ``kvtool convert --cache-dtype``.  fp8 needs a scale: a number, one for keys and
        one for values, "auto" or "auto-heads"; what is read may need ``from_scale``.

        >>> open("cache.npy").astype("fp8", scale="auto").groups[0].dtype
        'float8_e4m3fn'
        """
        name = dtype if isinstance(dtype, str) else _arrays.plain_name(dtype)
        how = AsType(path_bytes(name))
        if scale in ("auto", "auto-heads"):
            how.scaling = 2 + (scale == "auto-heads")
        elif scale is not None:
            how.scaling = 1
            how.scale[:] = _two_scales("scale", scale)
        if from_scale is not None:
            how.has_from = True
            how.from_[:] = _two_scales("from_scale", from_scale)
        out = c_void_p()
        with self._handle as handle:
            Watch(threads, memory, progress).call("kvt_dump_astype", byref(out), handle,
                                                  byref(how))
        assert out.value is not None
        return Dump(out.value, f"{self._name} as {name}", self._keep)

    # ---- reading ----

    def read(self, *, layer: Any = None, tokens: Any = None,
             request: Union[str, int, None] = None, kv: Union[str, int, None] = None,
             heads: Any = None, blocks: Any = None, group: Union[str, int, None] = None,
             bits: bool = False, dtype: Any = None) -> "numpy.ndarray[Any, Any]":
        """
        Elements as a numpy array ``[kv, layer, token, head, element]``.

        ``layer`` is a number in the model (-1: the last) or a name; an int drops that axis,
        as do an int for ``tokens`` or ``heads`` and "k" or "v" for ``kv``; content without
        values has no axis ``kv``.  Each may be a slice (of layers of the dump, counted from
        0), ``(begin, end)``, or a list of numbers in any order.  Of several groups that of
        the layer is read, and that with keys and values where ``kv`` asks for them; where
        that leaves more than one, ``group`` names it.

        ``tokens`` are positions of ``request``, which may be left out if there is only one;
        left out themselves they are all that are still there, of layers with a window the
        newest.  Of a recurrent group it is the newest state.  Of a dump without requests
        they are slots, of all blocks one after the other.  With ``blocks``, positions in the
        dump, the axes are ``[kv, layer, block, slot, head, element]`` instead.

        ``dtype="float32"`` (or "float64") gives the numbers, whatever the type: as
        :meth:`decode` does, of a quantised content times their scales.  Without it the
        array has the type of the dump, for which bfloat16 and fp8 need ml_dtypes;
        ``bits=True`` gives unsigned integers, and :meth:`read_torch` and
        :meth:`read_bytes` do without both.  One copy is made of what is read.  Only
        ``blocks`` of a tensor in memory are not copied: the array is that memory, and
        cannot be written to.  ``to_torch()`` of it shares its memory.

        >>> d = open("cache.npy")
        >>> d.read(layer=3, request="A", tokens=slice(64, 72), kv="k", bits=True).shape
        (8, 4, 8)
        >>> d.read(layer=slice(0, 2), request="B", tokens=-1, dtype="float32").shape
        (2, 2, 4, 8)
        >>> d.read(layer=-1, request="B", heads=[3, 0], dtype="float32").shape
        (2, 188, 2, 8)
        """
        if bits and dtype is not None:
            raise UsageError("bits= and dtype= exclude each other")
        which = {"layer": layer, "tokens": tokens, "request": request, "kv": kv,
                 "heads": heads, "blocks": blocks, "group": group, "dtype": dtype}
        parts, axis = self._parts_of(which)
        arrays = []
        for part in parts:
            data, shape, index, name = self._read_of(part)
            if bits:
                name = f"uint{8 * _arrays.itemsize(name)}"
            arrays.append(_arrays.to_numpy(data, shape, index, name))
        array: "numpy.ndarray[Any, Any]" = _arrays.joined("numpy", arrays, axis)
        return array

    def read_torch(self, **which: Any) -> Any:
        """The same as a torch.Tensor; takes what :meth:`read` takes, but ``bits``."""
        parts, axis = self._parts_of(which)
        return _arrays.joined("torch", [_arrays.to_torch(*self._read_of(part))
                                        for part in parts], axis)

    def read_bytes(self, **which: Any) -> Tuple[bytearray, Tuple[int, ...], str]:
        """The same as bytes in C order, their shape, and the name of their type."""
        parts, _ = self._parts_of(which)
        if len(parts) != 1:
            raise UsageError("read_bytes() takes no numbers apart, as in a list with gaps: "
                             "read each by a call of its own")
        data, keep, drop, dtype = self._read_of(parts[0])
        return _arrays.to_bytes(data, keep, drop, dtype)

    def _read_of(self, which: Dict[str, Any]) -> Any:
        names = ("layer", "tokens", "request", "kv", "heads", "blocks", "group")
        unknown = set(which) - set(names) - {"dtype"}
        if unknown:
            raise TypeError(f"unexpected {', '.join(sorted(unknown))}")
        dtype = which.get("dtype")
        of = self if dtype is None else self.decode(dtype)
        return of._read(**{n: which.get(n) for n in names})

    def _parts_of(self, which: Dict[str, Any]) -> Tuple[List[Dict[str, Any]], int]:
        """Of a list of numbers the runs, and their axis, counted from the end."""
        lists = [name for name in LISTS if _is_list(which.get(name))]
        if not lists:
            return [which], 0
        if len(lists) > 1:
            raise UsageError(f"{lists[0]}= and {lists[1]}= are lists both; give one of them "
                             "as a slice, or index what is read")
        name = lists[0]
        if not len(which[name]):
            raise UsageError(f"{name} is an empty list")
        if name == "layer":
            places = [self._find_layer(i, which.get("group"), which.get("kv"))
                      for i in which[name]]
            if len({number for number, _ in places}) != 1:
                raise UsageError(f"layers {list(which[name])} are in several groups: read "
                                 "each by itself")
            which = {**which, "group": places[0][0]}
            numbers = [at for _, at in places]
        else:
            numbers = [_native.index(name, i) for i in which[name]]
            end = self._end_of(name, which) if min(numbers) < 0 else 0
            numbers = [i + end if i < 0 else i for i in numbers]
        return [{**which, name: run} for run in _runs(numbers)], _axis_of(name, which)

    def _end_of(self, name: str, which: Dict[str, Any]) -> int:
        """What negative numbers are counted from."""
        layer = None if _is_list(which.get("layer")) else which.get("layer")
        g = self._facts.groups[self._find_layer(layer, which.get("group"),
                                                which.get("kv"))[0]]
        if name != "tokens":
            return g.heads if name == "heads" else g.blocks
        if not self._facts.requests:
            return g.blocks * g.slots
        r = self._request(which.get("request"))
        return r.first_token + r.tokens

    def _request(self, name: Union[str, int, None]) -> Request:
        requests = self._facts.requests
        if name is None:
            if len(requests) != 1:
                raise UsageError("give request= one of " + ", ".join(requests))
            return next(iter(requests.values()))
        found = requests.get(name if isinstance(name, str) else str(name))
        if found is None:
            raise UsageError(f"no request {name!r}; there are " + (
                ", ".join(requests) or "none: name them by blocks_of= of open(), or "
                "block_table= of from_tensors()"))
        return found

    def _find_layer(self, layer: Any, group: Union[str, int, None], kv: Any
                    ) -> Tuple[int, Any]:
        """The group, and the layer by its number in the dump."""
        groups = self._facts.groups
        chosen = range(len(groups)) if group is None else [self._group_number(group)]
        if layer is None or isinstance(layer, (slice, tuple, range)):
            found: List[Tuple[int, Any]] = [(i, layer) for i in chosen]
        else:
            if isinstance(layer, bool) or not isinstance(layer, str) and \
                    not hasattr(layer, "__index__"):
                raise UsageError(f"layer {layer!r}, expected a number, a name, a slice, or a "
                                 "list of numbers")
            known = sorted({n for i in chosen for n in groups[i].layer_ids})
            if not isinstance(layer, str) and -len(known) <= layer < 0:
                layer = known[layer]
            found = [(i, ids.index(layer)) for i in chosen for ids in (
                groups[i].layer_names if isinstance(layer, str) else groups[i].layer_ids,)
                     if layer in ids]
        half = _half_of(kv)
        if len(found) > 1 and half is not None:
            found = [f for f in found if groups[f[0]].has_values or
                     groups[f[0]].id.endswith((".k", ".v")[half])] or found
        if len(found) == 1:
            return found[0]
        if found:
            what = "no layer is named, and there are" if layer is None else "layers are in" \
                if isinstance(layer, (slice, tuple, range)) else f"layer {layer} is in"
            raise UsageError(f"{what} several groups, give group= one of " +
                             ", ".join(groups[i].id for i, _ in found))
        raise UsageError(f"no layer {layer!r}; there are " + "; ".join(
            f"{g.id}: {g.layer_ids[0]} to {g.layer_ids[-1]}" for g in groups
            if g.layer_ids))

    def _read(self, layer: Any, tokens: Span, request: Union[str, int, None], kv: Any,
              heads: Span, blocks: Span, group: Union[str, int, None]
              ) -> Tuple[Any, Tuple[int, ...], Tuple[Any, ...], str]:
        number, layer = self._find_layer(layer, group, kv)
        g = self._facts.groups[number]
        half = _half_of(kv)
        if half is not None and not g.has_values:
            if not g.id.endswith((".k", ".v")[half]):
                raise UsageError(f"kv is {kv!r}, expected none: {g.id} has one content")
            half = None                     # all of it is that half
        box, drop = Box(), [False] * NAXES
        box.begin[K], box.end[K] = (0, 2 if g.has_values else 1) if half is None else \
            (half, half + 1)
        drop[K] = half is not None or not g.has_values
        box.begin[L], box.end[L], drop[L] = _range(layer, 0, g.layers, "layer")
        box.begin[H], box.end[H], drop[H] = _range(heads, 0, g.heads, "head")
        box.end[D] = g.dim
        box.end[S] = g.slots
        if blocks is not None:
            if tokens is not None or request is not None:
                raise UsageError("blocks= and tokens= or request= exclude each other")
            box.begin[B], box.end[B], drop[B] = _range(blocks, 0, g.blocks, "block")
            index = _index(drop, (K, L, B, S, H, D))
            with self._handle as handle:
                here = _arrays.in_place(self._views, box, (K, L, B, S, H, D))
                if here is not None:
                    return here, here.shape, index, g.dtype
                data, shape = _read_box(handle, number, box, g)
            return data, shape, index, g.dtype
        return self._read_tokens(number, g, box, drop, tokens, request)

    def _held(self, handle: int, number: int, r: Request) -> Tuple[int, int]:
        """The newest tokens, as far back as all of them are there."""
        low, end = r.first_token, r.first_token + r.tokens
        high = end
        while low < high:
            row, at = c_void_p(), (low + high) // 2
            try:
                call("kvt_dump_tokens", byref(row), byref(c_int64()), handle, number,
                     path_bytes(r.id), Range(at, end))
                high = at
            except BadInput:
                low = at + 1
            finally:
                lib.kvt_dump_close(row)
        return (high, end) if high < end else (r.first_token, end)

    def _read_tokens(self, number: int, g: Group, box: Box, drop: List[bool],
                     tokens: Span, request: Union[str, int, None]
                     ) -> Tuple[Any, Tuple[int, ...], Tuple[Any, ...], str]:
        if request is None and not self._facts.requests:
            return self._read_slots(number, g, box, drop, tokens)
        r = self._request(request)
        if tokens is None and g.window and r.tokens:
            with self._handle as handle:
                tokens = self._held(handle, number, r)
        begin, end, drop[S] = _range(tokens, r.first_token, r.first_token + r.tokens,
                                     "token")
        row, first = c_void_p(), c_int64()
        with self._handle as handle:
            call("kvt_dump_tokens", byref(row), byref(first), handle, number,
                 path_bytes(r.id), Range(begin, end))
        try:
            assert row.value is not None
            slots = g.slots
            per = g.block_size // slots if g.block_size else 0
            count = (end - 1) // per - begin // per + 1 if per else slots
            box.end[B] = -(-(first.value + count) // slots)
            data, shape = _read_box(row.value, 0, box, g)
        finally:
            lib.kvt_dump_close(row)
        return _row(data, shape, drop, first.value, count, g)

    def _read_slots(self, number: int, g: Group, box: Box, drop: List[bool],
                    tokens: Span) -> Tuple[Any, Tuple[int, ...], Tuple[Any, ...], str]:
        """Of a dump without requests: all blocks, one after the other."""
        if g.block_size != g.slots:
            raise UsageError(f"{g.id}: a block has {g.slots} slots, which are not tokens, and "
                             "the dump has no requests: pass blocks=0, or a slice of them, "
                             "instead of tokens")
        begin, end, drop[S] = _range(tokens, 0, g.blocks * g.slots, "token")
        box.begin[B], box.end[B] = begin // g.slots, -(-end // g.slots)
        with self._handle as handle:
            data, shape = _read_box(handle, number, box, g)
        return _row(data, shape, drop, begin - box.begin[B] * g.slots, end - begin, g)

    # ---- writing ----

    def write(self, path: Path, *, layout: Optional[str] = None,
              format: Optional[str] = None,  # pylint: disable=redefined-builtin
              overwrite: bool = False, verify: bool = True, sync: bool = True,
              compress: bool = True, as_is: bool = False,
              template: Optional[Path] = None, key_order: Optional[str] = None,
              model: Optional[Path] = None, context: Optional[str] = None,
              threads: int = 0, memory: int = MEMORY,
              progress: Optional[Progress] = None) -> None:
        """
        Writes all of it into a new file or folder, whose format follows from the end of
        its name.  It has its name only when it is complete and, with ``verify``, when
        it was read again and every element found equal; else nothing is left.  What
        an open dump reads is not replaced, nor what this one was made of: UsageError.
        ``as_is`` leaves recurrent states in the order of their engine.  ``template`` is
        for the formats ggsq and ggsn: another state of the same llama.cpp and model, or
        ``model`` is its GGUF and ``context`` what that does not say;
        ``key_order`` how it has the keys of a dump of another engine (kvtool-convert(1)).
        """
        # the library says it, too, by the name of the program's option
        if not overwrite and os.path.lexists(path):
            raise SystemFailure(f"{os.fspath(path)}: exists; overwrite=True replaces it")
        watch = Watch(threads, memory, progress)
        o = CreateOptions(encoded(format), overwrite, not sync, not compress, as_is=as_is,
                          template_path=None if template is None else
                          path_bytes(template), key_order=encoded(key_order),
                          model_path=None if model is None else path_bytes(model),
                          context=encoded(context))
        info, writer = c_void_p(), c_void_p()
        with self._handle as handle:
            try:
                call("kvt_snapshot_clone", byref(info), lib.kvt_dump_snapshot(handle))
                if layout is not None:
                    to = parse_layout(layout)
                    call("kvt_snapshot_set_layout", info, byref(to))
                call("kvt_create", byref(writer), path_bytes(path), byref(o), info)
                self._fill(watch, handle, writer, verify,
                           template is not None or model is not None)
            finally:
                lib.kvt_close_writer(writer)
                lib.kvt_snapshot_delete(info)

    def _fill(self, watch: Watch, handle: int, writer: c_void_p, verify: bool,
              by_tokens: bool) -> None:
        try:
            watch.call("kvt_write", byref(writer), byref(c_void_p(handle)), 1)
            if verify:
                self._verify(watch, handle, writer, by_tokens)
            call("kvt_dump_unchanged", handle)
            call("kvt_publish", byref(writer), 1)
        except Error as error:
            err = _native.ErrorText(str(error).encode()[:511])
            lib.kvt_writer_retell(writer, byref(err))
            raise type(error)(_native.in_python(text(err.text))) from None

    def _verify(self, watch: Watch, handle: int, writer: c_void_p,
                by_tokens: bool) -> None:
        written = Dump(make("kvt_open_written", writer), "what was written")
        try:
            with written._handle as other:  # pylint: disable=protected-access
                if by_tokens:
                    o = _native.DiffOptions(by=1, no_diagnosis=True)
                    watch.call("kvt_diff", handle, other, byref(o), None)
                elif self._proof is None:
                    watch.call("kvt_verify", handle, other)
                elif self._proof[1] is not None:
                    with self._proof[0]._handle as before:
                        watch.call("kvt_verify_reblocked", before, other, self._proof[1])
                else:
                    self._verify_tokens(watch, other)
        finally:
            written.close()

    def _verify_tokens(self, watch: Watch, other: int) -> None:
        """A part of a reblocked dump: by the tokens of what it was before."""
        assert self._proof is not None
        if not self.requests:
            raise _native.Unsupported("a part of a reblocked dump without requests "
                                      "cannot be verified; pass verify=False")
        o = _native.DiffOptions(by=1, common=True, no_diagnosis=True)
        with self._proof[0]._handle as before:
            watch.call("kvt_diff", before, other, byref(o), None)

    # ---- questions to the data ----

    def digest(self, scope: str = "tokens", *, threads: int = 0, memory: int = MEMORY,
               progress: Optional[Progress] = None) -> str:
        """
        "kvd1:tokens:..." of live tokens, or of "blocks" of the pool: the same in every
        layout and format (kvtool-digest(1)).

        >>> open("cache.npy").digest()
        'kvd1:tokens:b73809ebc064eb21a0cc395e4393a5c6'
        """
        if scope not in ("tokens", "blocks"):
            raise UsageError(f"scope is {scope!r}, expected 'tokens' or 'blocks'")
        out = Text()
        with self._handle as handle:
            Watch(threads, memory, progress).call(
                "kvt_dump_digest", byref(out), handle, int(scope == "blocks"))
        return text(out.s)

    def fsck(self, data: bool = True, *, threads: int = 0, memory: int = MEMORY,
             progress: Optional[Progress] = None) -> List[Finding]:
        """What is wrong with it, by the rules of kvtool-fsck(1); empty: nothing."""
        found: List[Finding] = []

        def told(_: Any, rule: Any) -> None:
            r = rule[0]
            found.append(Finding(text(r.rule), text(r.severity), text(r.at),
                                 _native.in_python(text(r.text))))

        with self._handle as handle:
            status, err = Watch(threads, memory, progress).status(
                "kvt_check", handle, data, _native.FOUND(told), None)
        if status and status != Mismatch.status:
            _native.check(status, err)
        return found

    def _repr_html_(self) -> str:
        if self._handle.closing:
            return _html.line("closed", self._name)
        groups = _html.table(
            ("group", "kind", "layout", "type", "layers", "blocks", "of tokens", "heads",
             "elements", "window"),
            [(g.id, g.kind, g.layout, g.dtype, g.layers, g.blocks, g.block_size or "all",
              g.heads, g.dim, g.window or "") for g in self.groups])
        requests = _html.table(("request", "tokens", "first", "blocks"), [
            (r.id, r.tokens, r.first_token, max(map(len, r.blocks.values()), default=0))
            for r in self.requests.values()])
        kind = self.format if self.format != self._name else ""
        return _html.line(kind, self._name) + _view.picture([self]) + groups + requests

    # ---- pictures ----

    def view(self, *, sample: Optional[int] = None,
             all: bool = False,  # pylint: disable=redefined-builtin
             threads: int = 0, memory: int = MEMORY) -> _view.View:
        """
        The page of kvtool-view(1): a notebook shows it, its .save("page.html") writes it.

        Of each group ``sample`` bytes are read, here and there (by default 256 MiB), or
        ``all``.  The program kvtool draws, of the file that was opened, or of a copy of
        what is in memory or was made of other dumps, for which a GiB is the most.
        """
        return _view.view([self], _view.reading(sample, all, threads, memory))

    def plot(self, measure: str = "rms", *, by: Sequence[str] = ("layer", "head"),
             kv: Union[str, int, None] = None, group: Union[str, int, None] = None,
             ax: Any = None, sample: Optional[int] = None,
             all: bool = False,  # pylint: disable=redefined-builtin
             threads: int = 0, memory: int = MEMORY) -> _view.Plot:
        """
        ``values, axes``: a map of the page as a numpy array ``[kv, layer, head]``, without
        ``kv`` where that is "k" or "v" or there are no values; and, where matplotlib is
        installed, its Axes (or ``ax``), else None.

        ``measure`` is "rms", "largest" (magnitude), "zero" (share) or "nonfinite" (how
        many); ``by`` layer and head, token or block, in either order.  What rows and
        columns are is in .rows and .columns; where they are too many, neighbours are one.
        It reads what :meth:`view` reads: .read_bytes of .data_bytes.

        >>> values, axes = open("cache.npy").plot("largest", kv="k")
        >>> values.shape, float(values.max())
        ((5, 4), 27.25)
        """
        name = self.groups[self._group_number(group)].id
        return _view.plot(self, measure, by, name, _half_of(kv), ax,
                          _view.reading(sample, all, threads, memory))


def _axis_of(name: str, which: Mapping[str, Any]) -> int:
    """The axis of an argument in what is read, counted from the end."""
    behind = LISTS[LISTS.index(name) + 1:]
    blocks = which.get("blocks") is not None
    kept = [other for other in behind if not hasattr(which.get(other), "__index__") and
            other != ("tokens" if blocks else "blocks")]
    return -2 - len(kept) - (blocks and name != "heads")


def _index(drop: Sequence[bool], axes: Sequence[int]) -> Tuple[Any, ...]:
    return _arrays.with_drops([slice(None)] * len(axes), [drop[a] for a in axes])


def _row(data: Any, shape: Tuple[int, ...], drop: Sequence[bool], first: int,
         count: int, g: Group) -> Tuple[Any, Tuple[int, ...], Tuple[Any, ...], str]:
    """Blocks of slots are one row of slots, of which 'count' are wanted."""
    index = [slice(None)] * 5
    index[2] = slice(first, first + count)
    drops = [drop[a] for a in (K, L, S, H, D)]
    return (data, shape[:2] + (shape[2] * shape[3],) + shape[4:],
            _arrays.with_drops(index, drops), g.dtype)


_ORDER: List[Layout] = []


def _read_box(handle: int, group: int, box: Box, g: Group
              ) -> Tuple[Any, Tuple[int, ...]]:
    """Bytes of a box as [kv, layer, block, slot, head, element]."""
    if not _ORDER:
        _ORDER.append(parse_layout("KLBSHD"))
    shape = tuple(box.end[a] - box.begin[a] for a in (K, L, B, S, H, D))
    n = _arrays.itemsize(g.dtype)
    for extent in shape:
        n *= extent
    data = _arrays.empty(n)
    call("kvt_dump_read", handle, group, byref(box), byref(_ORDER[0]),
         _arrays.address(data))
    return data, shape


def _words(value: Any) -> str:
    """One value, or several of them with commas between."""
    if isinstance(value, (str, bytes, os.PathLike)) or not hasattr(value, "__iter__"):
        return os.fsdecode(value) if isinstance(value, (bytes, os.PathLike)) else str(value)
    return ",".join(str(v) for v in value)


def _facts(value: Any) -> List[bytes]:
    """A mapping, or one word that stands for all: ``"@blocks.npy"``."""
    if isinstance(value, (str, bytes)):
        return [path_bytes(value)]
    return [path_bytes(f"{k}={_words(v)}") for k, v in value.items()]


def _said(told: Mapping[str, Any], *, group: Optional[str] = None) -> Any:
    """The library's struct of what is told, each as its table has it."""
    hints = _native.Hints(group=encoded(group))
    for name, value in told.items():
        kind = _native.HINTS.get(name, (0, None))[1]
        if kind in (None, c_void_p) or (group and kind not in (c_char_p, c_int64)):
            raise TypeError(f"open() got an unexpected keyword argument {name!r}")
        if value is None:
            continue
        if kind is _native.Facts:
            given, facts = _facts(value), getattr(hints, name)
            if len(given) > len(facts.s):
                raise UsageError(f"{len(given)} {name}, expected at most "
                                 f"{len(facts.s)}")
            facts.n = len(given)
            for i, fact in enumerate(given):
                facts.s[i] = fact
        else:
            setattr(hints, name, bool(value) if kind is c_bool
                    else path_bytes(_words(value))
                    if kind is c_char_p else whole(name, value))
    return hints


def _spelled(told: Mapping[str, Any]) -> Iterator[Tuple[str, str]]:
    """The same for the program: (member, word), and no word of a flag."""
    for name, value in told.items():
        kind = _native.HINTS[name][1]
        if value is None or (kind is c_bool and not value):
            continue
        if kind is _native.Facts:
            yield from ((name, os.fsdecode(fact)) for fact in _facts(value))
        else:
            yield name, "" if kind is c_bool else _words(value)


def open(path: Path, *,  # pylint: disable=redefined-builtin
         tp: Optional[Tuple[int, int]] = None, total_heads: int = 0,
         groups: Optional[Mapping[str, Mapping[str, Any]]] = None, **told: Any) -> Dump:
    """
    Opens a dump of any format that kvtool reads, and no data of it.

    What the file does not say is told by arguments that are called as the options of
    kvtool(1) are, with _ for -: layout, dtype, format (--from), spec, manifest,
    trust_manifest, content_type, layers, blocks, block_size, heads, head_dim, content,
    skip; ``facts`` is what ``--set`` takes, ``groups`` what ``--of-group`` does:
    ``{"g1": {"heads": 8}}``; ``tp=(rank, size)``.  Requests that the file does not know:
    ``blocks_of={"A": [5, 2, 9]}, seq_lens=[40]``, ``blocks_of={"A": "5,2,9:40"}``,
    ``blocks_of="@tables.npy"``, or ``slot_mapping=`` a path.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"open() takes a path; from_tensors() takes a {type(path).__name__}")
    others = [_said(of, group=name) for name, of in (groups or {}).items()]
    for one, following in zip(others, others[1:]):
        one.next = ctypes.addressof(following)
    hints = _said(told)
    hints.next = ctypes.addressof(others[0]) if others else None
    hints.total_heads = whole("total_heads", total_heads)
    if tp is not None:
        hints.tp_rank, hints.tp_size = whole("rank", tp[0]), whole("size", tp[1], 1)
    dump = Dump(make("kvt_open", path_bytes(path), byref(hints)), os.fspath(path))
    # pylint: disable=protected-access
    dump._again = functools.partial(open, _view.absolute(path), tp=tp, total_heads=total_heads,
                                    groups=groups, **told)
    if not others and tp is None and not total_heads:   # which are no options of view
        dump._source = _view.source(path, list(_spelled(told)))
    return dump


def merge(dumps: Sequence[Dump]) -> Dump:
    """
    The dumps of all tensor parallel ranks of a model, in any order, as one.

    >>> whole = open("cache.npy")
    >>> merge([whole.slice(tp=(r, 2)) for r in (1, 0)]).digest() == whole.digest()
    True
    """
    handles: List[int] = []
    held: Iterator[Dump] = iter(dumps)
    used: List[Any] = []
    try:
        for dump in held:
            handles.append(dump._handle.__enter__())  # pylint: disable=protected-access
            used.append(dump._handle)  # pylint: disable=protected-access
        n = len(handles)
        if not n:
            raise UsageError("no dumps to merge")
        made = make("kvt_dump_merge", (c_void_p * n)(*handles),
                    (c_char_p * n)(*[path_bytes(d.name) for d in dumps]), n)
    finally:
        for handle in used:
            handle.__exit__()
    keep = [k for d in dumps for k in d._keep]  # pylint: disable=protected-access
    return Dump(made, " + ".join(d.name for d in dumps), keep)


