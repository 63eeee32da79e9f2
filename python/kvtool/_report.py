# SPDX-License-Identifier: Apache-2.0
"""Two dumps compared"""
from __future__ import annotations

import contextlib
import ctypes
import math
import os
import weakref
from ctypes import byref
from typing import (Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set,
                    Tuple, Union)

from . import _caches, _html, _native, _view
from ._dump import MEMORY, Dump, open as open_dump
from ._native import (DiffOptions, DiffTold, Error, Mismatch, Progress, UsageError, Watch,
                      text)
from ._tensors import from_tensors


class GroupDifference(NamedTuple):
    """What both dumps have of a group."""

    id: str
    equal: bool                     #: element for element
    differs: bool                   #: by the tolerance
    elements: int
    unequal: int
    outside: int                    #: of the tolerance of each element
    max_abs: float
    rel_l2: float
    cosine: float
    pcc: float
    fault: str                      #: the known fault that explains all of it, or ""
    fault_args: str                 #: "layer=2,block=17"
    fault_text: str


class ElementDifference(NamedTuple):
    """An element with other values; of the worst ones of a group."""

    group: str
    layer: int                      #: in the model
    layer_name: str
    request: str                    #: "" if paired by blocks
    token: int
    block: Tuple[int, int]
    slot: Tuple[int, int]
    head: int                       #: -1: the content has none
    kv: int                         #: 0 keys, 1 values, -1 neither
    dim: int
    value: Tuple[float, float]
    error: float
    state: bool = False             #: token is an entry of the block table: it holds all

    def __str__(self) -> str:
        what = "entry" if self.state else "token"
        where = f"{what} {self.token} of {self.request}" if self.request else \
            f"block {self.block[0]} slot {self.slot[0]}"
        half = {0: " keys", 1: " values"}.get(self.kv, "")
        head = f", head {self.head}{half}" if self.head >= 0 else half and f",{half}"
        return (f"layer {self.layer}, {where}{head}, element "
                f"{self.dim}: {self.value[0]:.9g} and {self.value[1]:.9g}")


class PartDifference(NamedTuple):
    """What both dumps have of a layer, or of a head of one, of a group."""

    group: str
    layer: int                      #: in the model
    head: int                       #: in the model; -1: all of them
    elements: int
    outside: int                    #: of the tolerance of each element, or unequal
    max_abs: float
    rel_l2: float
    cosine: float                   #: NaN where a side is all zeros


class RowDifference(NamedTuple):
    """What both dumps have of a token, a dim, or of keys or values alone, of a group."""

    group: str
    request: str                    #: of a token; "" if paired by blocks
    token: int                      #: of the request; -1: the row is of something else
    dim: int                        #: -1 likewise
    kv: int                         #: 0 keys, 1 values, -1 likewise
    block: int                      #: of a token, in the first dump; -1 likewise
    slot: int
    elements: int
    outside: int                    #: of the tolerance of each element, or unequal
    max_abs: float
    rel_l2: float
    cosine: float                   #: NaN where a side is all zeros


class AttentionDifference(NamedTuple):
    """What the difference does to a head of queries of a layer."""

    group: str                      #: of the keys
    layer: int
    head: int                       #: of queries, in the model
    queries: int
    change: float                   #: of weights, 0 to 1: on average
    change_max: float
    rel_l2: float                   #: of all outputs
    worst: float                    #: of the output of a query
    top_changed: float              #: share of queries
    lost: int                       #: outputs that are a number on one side only


def _numbers(dd: float, aa: float, bb: float, ab: float) -> Tuple[float, float]:
    """rel_l2 and cosine, of sums of squares."""
    cosine = 1.0
    if dd:
        length = math.sqrt(aa) * math.sqrt(bb)
        cosine = max(-1.0, min(1.0, ab / length)) if length else math.nan
    return (math.sqrt(dd / aa) if aa else math.inf) if dd else 0.0, cosine


def _part(cells: Sequence[Any], head: int) -> PartDifference:
    """Cells of one layer together."""
    rel_l2, cosine = _numbers(*(math.fsum(c[i] for c in cells) for i in range(6, 10)))
    return PartDifference(cells[0][0], cells[0][1], head, sum(c[3] for c in cells),
                          sum(c[4] for c in cells), max(c[5] for c in cells), rel_l2,
                          cosine)


def _place(p: Any) -> str:
    """Of which layer, head, token and so on a row is."""
    if isinstance(p, PartDifference):
        return f"layer {p.layer}" + (f" head {p.head}" if p.head >= 0 else "")
    if p.kv >= 0:
        return "values" if p.kv else "keys"
    if p.dim >= 0:
        return f"dim {p.dim}"
    return f"token {p.token} of {p.request}" if p.request else \
        f"block {p.block} slot {p.slot}"


class Parts(Sequence[Any]):
    """
    Layers, heads of layers, tokens, dims, or keys and values, in the order of the dump: a
    sequence, and columns: ``report.by_layer.cosine`` is a numpy array, as are the other
    fields; of by_head ``[layer, head]`` if all layers have the same heads.
    """

    def __init__(self, parts: Sequence[Any], width: int = 0,
                 fields: Tuple[str, ...] = PartDifference._fields) -> None:
        self._parts, self._width, self._fields = tuple(parts), width, fields

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, i: Any) -> Any:
        return self._parts[i]

    def __repr__(self) -> str:
        return "\n".join(f"{p.group} {_place(p)}: {p.outside} of {p.elements}, max_abs {p.max_abs:.6g}, "
                         f"rel_l2 {p.rel_l2:.6g}, cosine {p.cosine:.9g}"
                         for p in self._parts)

    def _repr_html_(self) -> str:
        if self._fields is not PartDifference._fields:
            return _html.table(("group", "where", *RowDifference._fields[7:]),
                               [[p.group, _place(p), *p[7:]] for p in self._parts])
        return _html.table(PartDifference._fields, [
            [p.group, p.layer, p.head if p.head >= 0 else "all", *p[3:]] for p in self._parts])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._fields:
            raise AttributeError(f"no {name!r}; there are " + ", ".join(self._fields))
        import numpy
        column = numpy.array([getattr(p, name) for p in self._parts])
        return column.reshape(-1, self._width) if self._width else column


class Attention(Parts):
    """Heads of queries of layers."""

    def __repr__(self) -> str:
        return "\n".join(f"{p.group} layer {p.layer} head {p.head}: rel_l2 {p.rel_l2:.6g}, "
                         f"weights change by {p.change:.6g}, top key by "
                         f"{100 * p.top_changed:.3g} %" for p in self._parts)

    def _repr_html_(self) -> str:
        return _html.table(self._fields, [list(p) for p in self._parts])


class Report:
    """What :func:`diff` found.  Ask .same or .differs: it is neither true nor false."""

    def __init__(self, a: str, b: str, groups: Tuple[GroupDifference, ...],
                 elements: Tuple[ElementDifference, ...], only: Tuple[str, ...],
                 cells: Sequence[Tuple[Any, ...]] = (), note: str = "",
                 rows: Sequence[Sequence[RowDifference]] = ((), (), ()),
                 paired: Tuple[str, ...] = (),
                 sides: Sequence[Tuple[Any, Any]] = (), terms: str = "",
                 beyond: str = "",
                 attention: Sequence[AttentionDifference] = ()) -> None:
        self.a, self.b = a, b           #: names of the dumps
        self.groups = groups
        self.elements = elements        #: the worst of each group, worst first
        self.only = only                #: "A: layers 3, 4 of g0"
        self.note = note                #: on what "auto" means for these types, or ""
        self.paired = paired            #: "request x of A is y of B: ..."
        self._cells = cells             # fields of kvt_diff_cell
        self._rows = rows               # of tokens, dims, keys and values
        self._sides = sides             # gives what was compared; its layout
        self._terms = terms             # the tolerance, for the program
        self._beyond = beyond           # what was asked for that the page does not do
        self._attention = attention

    @property
    def by_layer(self) -> Parts:
        """Each layer: ``report.by_layer.cosine`` is a numpy array."""
        layers: Dict[Any, List[Any]] = {}
        for cell in self._cells:
            layers.setdefault(cell[:2], []).append(cell)
        return Parts([_part(cells, -1) for cells in layers.values()])

    @property
    def by_head(self) -> Parts:
        """Each head of each layer: its columns are ``[layer, head]``."""
        heads: Dict[Any, List[int]] = {}
        for cell in self._cells:
            heads.setdefault(cell[:2], []).append(cell[2])
        widths = {len(h) for h in heads.values()}
        return Parts([_part([c], c[2]) for c in self._cells],
                     widths.pop() if len(widths) == 1 else 0)

    @property
    def by_token(self) -> Parts:
        """
        Each token of each request, or slot of each block: empty where they do not fit
        into half of the memory that :func:`diff` may use for data.
        """
        return Parts(self._rows[0], fields=RowDifference._fields)

    @property
    def by_dim(self) -> Parts:
        """Each element of a slot, of all layers, tokens and heads; as by_token."""
        return Parts(self._rows[1], fields=RowDifference._fields)

    @property
    def by_kv(self) -> Parts:
        """Keys, and values; empty where a group has neither."""
        return Parts(self._rows[2], fields=RowDifference._fields)

    @property
    def attention(self) -> Attention:
        """Each head of queries of each layer; empty where it was not asked for."""
        heads: Dict[Any, int] = {}
        for part in self._attention:
            heads[part[:2]] = heads.get(part[:2], 0) + 1
        widths = set(heads.values())
        return Attention(self._attention, widths.pop() if len(widths) == 1 else 0,
                         AttentionDifference._fields)

    @property
    def differs(self) -> bool:
        """Does a group differ, by the tolerance that was given?"""
        return any(g.differs for g in self.groups)

    @property
    def same(self) -> bool:
        """The opposite."""
        return not self.differs

    def __bool__(self) -> bool:
        raise TypeError("a Report is neither true nor false: ask .same or .differs")

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [f"{self.a} and {self.b}: {'differ' if self.differs else 'the same'}"]
        lines += list(self.paired)
        lines += [f"only {o}" for o in self.only]
        if self.note and self.differs:
            lines.append(self.note)
        for g in self.groups:
            if g.equal:
                lines.append(f"{g.id}: equal, {g.elements} elements")
                continue
            lines.append(f"{g.id}: {g.unequal} of {g.elements} elements differ, at most "
                         f"by {g.max_abs:.6g}" + (
                             ", within the tolerance" if not g.differs else
                             f"; {g.outside} are outside the tolerance"
                             if g.outside < g.unequal else ""))
            if g.fault:
                lines.append(f"  fault   {g.fault} {g.fault_args}".rstrip() +
                             f": {g.fault_text}")
            lines += [f"  {e}" for e in self.elements if e.group == g.id]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        groups = _html.table(
            ("group", "elements", "differ", "outside", "max abs", "rel L2", "cosine", "fault"),
            [(g.id, g.elements, g.unequal, g.outside, g.max_abs, g.rel_l2, g.cosine,
              f"{g.fault} {g.fault_args}".rstrip() + f": {g.fault_text}" if g.fault else "")
             for g in self.groups])
        worst = _html.table(("where", "of a", "of b", "error"), [
            (str(e).rpartition(": ")[0], *e.value, e.error) for e in self.elements])
        return _html.line("differ" if self.differs else "the same",
                          f"{self.a} and {self.b}:") + "".join(
            _html.line(f"only {o}") for o in self.only) + _html.line(
            self.note) + self._picture() + groups + worst

    def _picture(self) -> str:
        """Where values differ; none if what was compared is closed or gone."""
        if not self._sides or all(g.equal for g in self.groups):
            return ""
        try:
            with self._open() as dumps:
                return _view.picture(dumps, self._options())
        except (Error, OSError):
            return ""

    @contextlib.contextmanager
    def _open(self) -> Iterator[List[Dump]]:
        """What was compared, opened again where it was not a Dump."""
        dumps: List[Dump] = []
        own: List[Dump] = []
        try:
            for number, (given, layout) in enumerate(self._sides):
                side = given()
                dump, is_own = _opened(side, number, layout)
                dumps.append(dump)
                own += [dump] if is_own else []
            yield dumps
        finally:
            for dump in own:
                dump.close()

    def _options(self) -> List[str]:
        return [self._terms] if self._terms else []

    def view(self, *, sample: Optional[int] = None,
             all: bool = False,  # pylint: disable=redefined-builtin
             threads: int = 0, memory: int = MEMORY) -> _view.View:
        """
        The page of kvtool-view(1) with both dumps: a notebook shows it, its
        .save("page.html") writes it.  They are compared once more: files are opened
        again, and dumps and tensors in memory must be there still.  What by=, match= and
        scales change is not in the pictures; the page says so, and what the report says.
        """
        words = f"The pictures are without {self._beyond}, with which there is:\n{self}" \
            if self._beyond else ""
        with self._open() as dumps:
            return _view.view(dumps, _view.reading(sample, all, threads, memory) +
                              self._options(), words, f"{self.a} and {self.b}")


def _layout_of(side: Any, given: Any, number: int) -> Optional[str]:
    """One layout for all tensors, or one for each side; a cache has its own."""
    if isinstance(given, (tuple, list)):
        if len(given) != 2:
            raise UsageError(f"layout has {len(given)} entries, expected one, or one of each "
                             "side")
        given = given[number]
    elif _caches.is_cache(side):
        return None
    if given is not None and not isinstance(given, str):
        raise UsageError(f"layout is {given!r}, expected a name, axes such as \"KBSHD\", or a "
                         "pair of these")
    return given


def _opened(side: Any, number: int, layout: Any) -> Tuple[Dump, bool]:
    """A dump, and whether it is to be closed."""
    if isinstance(side, Dump):
        return side, False
    if isinstance(side, (str, os.PathLike)):
        return open_dump(side), True
    try:
        dump = from_tensors(side, layout=_layout_of(side, layout, number))
    except Error as error:
        words = f"{'ab'[number]}: {error}"
        if "facts=" in words or "tokens=" in words:
            words += "; from_tensors() takes these, and diff() what it makes"
        raise type(error)(words) from None
    dump._name = "ab"[number]           # pylint: disable=protected-access
    return dump, True


def _scales(o: DiffOptions, *given: Any) -> None:
    """One number, or one of keys and one of values."""
    for side, scale in enumerate(given):
        if scale is None:
            continue
        scale = scale.tolist() if hasattr(scale, "tolist") else scale
        both = list(scale) if isinstance(scale, (list, tuple)) else [scale]
        if len(both) not in (1, 2) or not all(isinstance(x, (int, float)) for x in both):
            raise UsageError(f"scale_{'ab'[side]} is {scale!r}, expected one number, or one "
                             "of keys and one of values")
        o.has_scale[side] = True
        o.scale[side][0], o.scale[side][1] = both[0], both[-1]


def _remembered(side: Any) -> Callable[[], Any]:
    """
    What gives it once more.  A report holds no file open and no memory: what was opened
    by a path is opened again, and tensors must be there still.
    """
    if isinstance(side, (str, os.PathLike)):
        path = _view.absolute(side)
        return lambda: path
    if isinstance(side, (list, tuple)):
        kind, parts = type(side), [_remembered(part) for part in side]
        return lambda: kind(part() for part in parts)
    if isinstance(side, dict):
        of = {name: _remembered(part) for name, part in side.items()}
        return lambda: {name: part() for name, part in of.items()}
    # pylint: disable=protected-access
    again = side._again if isinstance(side, Dump) else None
    try:
        held = weakref.ref(side)
    except TypeError:
        return lambda: side

    def there() -> Any:
        found = held()
        if isinstance(found, Dump) and found._handle.closing:
            found = None
        if found is None and again is None:
            raise UsageError("what was compared is closed or gone: keep it in a variable as "
                             "long as its report is to be drawn")
        return again() if found is None and again else found
    return there


def _terms(exact: bool, automatic: bool, atol: Optional[float],
           rtol: Optional[float]) -> str:
    """The option of the program for a tolerance; "": none."""
    terms = ["auto"] if automatic else []
    terms += [f"{name}={value!r}" for name, value in (("atol", atol), ("rtol", rtol))
              if value is not None]
    return "--exact" if exact else "--tolerance=" + ",".join(terms) if terms else ""


def _beyond(by: str, match: Any, scale_a: Any, scale_b: Any) -> str:
    asked = (by if by != "auto" else None, match or None, scale_a, scale_b)
    return ", ".join(name for name, value in
                     zip(("by=", "match=", "scale_a=", "scale_b="), asked)
                     if value is not None)


def _note(a: Dump, b: Dump) -> str:
    """What "auto" is where both have the same types."""
    theirs = {g.id: g.dtype for g in b.groups}
    same = {g.id: g.dtype for g in a.groups if theirs.get(g.id) == g.dtype}
    if not same:
        return ""
    types = " and ".join(sorted(set(same.values())))
    where = "" if len(same) == len(theirs) == len(a.groups) else \
        " in " + ", ".join(same)
    return (f'both are {types}{where}, of which tolerance="auto" allows no rounding; '
            "atol= and rtol= say how far apart they may be")


def _attention(o: DiffOptions, queries: Any, attend: Optional[Mapping[str, float]]
               ) -> Tuple[Any, bool]:
    """Fills what is asked of attention; the dump of queries, and is it ours?"""
    if not queries and queries is not None and not isinstance(queries, Dump):
        queries = None
    if attend and queries is None:
        raise UsageError("attend says more of attention, which is not asked for")
    o.attention = queries is not None
    for key, value in (attend or {}).items():
        if key not in ("scale", "cap", "rank", "sample", "bound"):
            raise UsageError(f"attend has {key!r}, expected scale, cap, rank, sample or bound")
        if not value > 0 and not (key == "bound" and value == 0):
            raise UsageError(f"attend: {key} is {value!r}, expected a number above 0")
        if key == "bound":
            o.has_bound, o.bound = True, value
        else:
            setattr(o, f"attention_{key}", value)
    if queries is None or queries is True:
        return None, False
    return (queries, False) if isinstance(queries, Dump) else (open_dump(queries), True)


def diff(a: Any, b: Any, *, by: str = "auto",  # pylint: disable=too-many-locals
         common: bool = False, exact: bool = False,
         tolerance: Union[str, float, None] = None, atol: Optional[float] = None,
         rtol: Optional[float] = None, diagnose: bool = True, most: int = 5,
         layout: Union[str, Sequence[Optional[str]], None] = None,
         scale_a: Union[float, Sequence[float], None] = None,
         scale_b: Union[float, Sequence[float], None] = None,
         match: Optional[Mapping[str, str]] = None, attention: Any = None,
         attend: Optional[Mapping[str, float]] = None, threads: int = 0,
         memory: int = MEMORY, progress: Optional[Progress] = None) -> Report:
    """
    Compares two dumps, also of other layouts, block sizes and formats.  Each is a Dump, a
    path, or whatever :func:`from_tensors` takes: a cache of transformers, or tensors,
    whose dimensions ``layout`` names as they are indexed, of both sides, or of each where
    it is a pair, ``("KBSHD", "BSHKD")``.

    Bits decide, unless ``tolerance="auto"`` (as far apart as rounding to their types
    puts numbers: of the same types not at all), ``atol``, ``rtol`` or ``exact``
    (numbers, whatever the type) say otherwise; a number for ``tolerance`` is ``atol``.
    Requests of other names are paired where what they hold leaves no choice; the report
    has them as ``paired``.  ``scale_a`` and ``scale_b`` are what one of A or B is multiplied with: a number, or
    one of keys and one of values.  ``by`` is "auto", "tokens" (of requests of one name,
    or of those that ``match`` pairs, ``{"r1": "r2"}``) or "blocks"; with ``common`` what
    only one has does not count.  ``attention`` is a dump of queries, or its path, or True,
    and keys of A stand in for queries: ``report.attention`` is what the difference does to
    each head then.  ``attend`` has ``scale``, ``cap``, ``rank``, ``sample`` of
    kvtool-diff(1), and ``bound``, which the error of each head's outputs may be at most.
    A known fault that explains all differences is named
    (kvtool help faults).

    >>> report = diff("cache.npy", "bad.npy", most=1)
    >>> report.differs, report.groups[0].fault
    (True, 'swap-kv')
    >>> print(report)
    cache.npy and bad.npy: differ
    g0: 1024 of 220480 elements differ, at most by 19.5938
      fault   swap-kv: keys and values are exchanged
      layer 2, token 70 of A, head 1 keys, element 6: 20.25 and 0.65625
    >>> report.by_layer.cosine.round(3).tolist(), report.by_head.cosine.shape
    ([1.0, 1.0, 0.975, 1.0, 1.0], (5, 4))
    >>> report.by_kv.rel_l2.round(3).tolist(), report.by_token.max_abs.argmax()
    ([0.062, 0.621], 70)
    """
    modes = ("auto", "tokens", "blocks")
    if by not in modes:
        raise UsageError(f"by is {by!r}, expected one of {', '.join(modes)}")
    if isinstance(tolerance, str) and tolerance != "auto":
        raise UsageError(f"tolerance is {tolerance!r}, expected 'auto' or a number; atol= and "
                         "rtol= are arguments of their own")
    if tolerance is not None and not isinstance(tolerance, str):
        atol = float(tolerance)
    o = DiffOptions(modes.index(by), common, exact, tolerance == "auto",
                    atol is not None, rtol is not None, atol or 0, rtol or 0,
                    not diagnose, _native.whole("most", most, 0, 100))
    _scales(o, scale_a, scale_b)
    pairs = [_native.path_bytes(f"{one}={other}") for one, other in (match or {}).items()]
    words = (ctypes.c_char_p * len(pairs))(*pairs)
    o.nmatches, o.match = len(pairs), words
    queries, own_queries = _attention(o, attention, attend)
    attended: List[AttentionDifference] = []
    groups: List[GroupDifference] = []
    elements: List[ElementDifference] = []
    only: List[str] = []
    cells: List[Tuple[Any, ...]] = []
    rows: Tuple[List[RowDifference], ...] = ([], [], [])
    paired: List[str] = []
    states: Set[str] = set()

    def tell_only(_: Any, side: int, words: bytes) -> None:
        only.append(f"{'AB'[side]}: {_native.in_python(text(words))}")

    def tell_group(_: Any, found: Any) -> None:
        g = found[0]
        groups.append(GroupDifference(
            text(g.id), g.equal, g.differs, g.elements, g.unequal, g.outside, g.max_abs,
            g.rel_l2, g.cosine, g.pcc, text(g.fault), text(g.fault_args),
            text(g.fault_text)))

    def tell_element(_: Any, found: Any) -> None:
        e = found[0]
        elements.append(ElementDifference(
            text(e.group), e.layer, text(e.layer_name), text(e.request), e.token,
            (e.block[0], e.block[1]), (e.slot[0], e.slot[1]), e.head, e.kv, e.dim,
            (e.value[0], e.value[1]), e.error, text(e.group) in states))

    def tell_cell(_: Any, found: Any) -> None:
        c = found[0]
        cells.append((text(c.group), c.layer, c.head, c.elements, c.outside, c.max_abs,
                      c.dd, c.aa, c.bb, c.ab))

    def tell_row(_: Any, found: Any) -> None:
        r = found[0]
        rel_l2, cosine = _numbers(r.dd, r.aa, r.bb, r.ab)
        token, dim, kv = (r.id if r.axis == axis else -1 for axis in range(3))
        rows[r.axis].append(RowDifference(
            text(r.group), text(r.request), token, dim, kv, r.block, r.slot, r.elements,
            r.outside, r.max_abs, rel_l2, cosine))

    def tell_paired(_: Any, found: Any) -> None:
        p = found[0]
        paired.append(f"request {text(p.request[0])} of A is {text(p.request[1])} of B: " + (
            "names that are one but for the end" if p.by_name else
            f"{p.alike} of {p.sampled} tokens that were read are alike"))

    def tell_attended(_: Any, found: Any) -> None:
        c = found[0]
        attended.append(AttentionDifference(
            text(c.group), c.layer, c.head, c.queries, c.change, c.change_max, c.rel_l2,
            c.worst, c.top_changed / c.queries if c.queries else 0.0, c.lost))

    told = DiffTold(None, DiffTold.ONLY(tell_only), DiffTold.GROUP(tell_group),
                    DiffTold.ELEMENT(tell_element), DiffTold.CELL(tell_cell),
                    DiffTold.ROW(tell_row), DiffTold.PAIRED(tell_paired),
                    DiffTold.ATTENDED(tell_attended))
    opened = contextlib.ExitStack()
    if own_queries:
        opened.callback(queries.close)
    try:
        first, own_a = _opened(a, 0, layout)
        if own_a:
            opened.callback(first.close)
        second, own_b = _opened(b, 1, layout)
        if own_b:
            opened.callback(second.close)
    except BaseException:
        opened.close()
        raise
    names = (first.name, second.name) if first.name != second.name else ("a", "b")
    states |= {g.id for g in first.groups if not g.block_size}
    try:
        # pylint: disable=protected-access
        with contextlib.ExitStack() as held:
            one, other = (held.enter_context(d._handle) for d in (first, second))
            if queries is not None:
                o.queries = held.enter_context(queries._handle)
            status, err = Watch(threads, memory, progress).status(
                "kvt_diff", one, other, byref(o), byref(told))
        if status not in (0, Mismatch.status):
            _native.check(status, err)
        sides = [(_remembered(side), layout) for side in (a, b)]
        return Report(*names, tuple(groups), tuple(elements),
                      tuple(only), cells, _note(first, second)
                      if tolerance == "auto" else "", rows, tuple(paired), sides,
                      _terms(exact, tolerance == "auto", atol, rtol),
                      _beyond(by, match, scale_a, scale_b), attended)
    finally:
        opened.close()
