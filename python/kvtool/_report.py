# SPDX-License-Identifier: Apache-2.0
"""Two dumps compared"""
from __future__ import annotations

from ctypes import byref
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from . import _native
from ._dump import MEMORY, Dump, Path, open as open_dump
from ._native import (DiffOptions, DiffTold, Mismatch, Progress, UsageError, Watch, text)


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
    head: int
    kv: int                         #: 0 keys, 1 values, -1 neither
    dim: int
    value: Tuple[float, float]
    error: float

    def __str__(self) -> str:
        where = f"token {self.token} of {self.request}" if self.request else \
            f"block {self.block[0]} slot {self.slot[0]}"
        half = {0: " keys", 1: " values"}.get(self.kv, "")
        return (f"layer {self.layer}, {where}, head {self.head}{half}, element "
                f"{self.dim}: {self.value[0]:.9g} and {self.value[1]:.9g}")


class Report:
    """What :func:`diff` found.  Ask .same or .differs: it is neither true nor false."""

    def __init__(self, a: str, b: str, groups: Tuple[GroupDifference, ...],
                 elements: Tuple[ElementDifference, ...], only: Tuple[str, ...]) -> None:
        self.a, self.b = a, b           #: names of the dumps
        self.groups = groups
        self.elements = elements        #: the worst of each group, worst first
        self.only = only                #: "A: layers 3, 4 of g0"

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

    def __str__(self) -> str:
        lines = [f"{self.a} and {self.b}: {'differ' if self.differs else 'the same'}"]
        lines += [f"only {o}" for o in self.only]
        for g in self.groups:
            if g.equal:
                lines.append(f"{g.id}: equal, {g.elements} elements")
                continue
            lines.append(f"{g.id}: {g.unequal} of {g.elements} elements differ, at most "
                         f"by {g.max_abs:.6g}" + ("" if g.differs else
                                                  ", within the tolerance"))
            if g.fault:
                lines.append(f"  fault   {g.fault} {g.fault_args}".rstrip() +
                             f": {g.fault_text}")
            lines += [f"  {e}" for e in self.elements if e.group == g.id]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        import html
        return f"<pre>{html.escape(str(self))}</pre>"


def _opened(side: Union[Dump, Path]) -> Tuple[Dump, bool]:
    return (side, False) if isinstance(side, Dump) else (open_dump(side), True)


def diff(a: Union[Dump, Path], b: Union[Dump, Path], *, by: str = "auto",
         common: bool = False, exact: bool = False,
         tolerance: Union[str, float, None] = None, atol: Optional[float] = None,
         rtol: Optional[float] = None, diagnose: bool = True, most: int = 5,
         threads: int = 0, memory: int = MEMORY,
         progress: Optional[Progress] = None) -> Report:
    """
    Compares two dumps, also of other layouts, block sizes and formats; paths are opened.

    Bits decide, unless ``tolerance="auto"`` (as far apart as rounding to their types
    puts numbers), ``atol``, ``rtol`` or ``exact`` (numbers, whatever the type) say
    otherwise; a number for ``tolerance`` is ``atol``.  ``by`` is "auto", "tokens" (of
    requests of one name) or "blocks"; with ``common`` what only one has does not count.
    A known fault that explains all differences is named (kvtool help faults).

    >>> report = diff("cache.npy", "bad.npy", most=1)
    >>> report.differs, report.groups[0].fault
    (True, 'swap-kv')
    >>> print(report)
    cache.npy and bad.npy: differ
    g0: 1024 of 220480 elements differ, at most by 19.5938
      fault   swap-kv: keys and values are exchanged
      layer 2, token 70 of A, head 1 keys, element 6: 20.25 and 0.65625
    """
    modes = ("auto", "tokens", "blocks")
    if by not in modes:
        raise UsageError(f"by is {by!r}, expected one of {', '.join(modes)}")
    if isinstance(tolerance, str) and tolerance != "auto":
        raise UsageError(f"tolerance is {tolerance!r}, expected 'auto' or a number")
    if isinstance(tolerance, (int, float)):
        atol = float(tolerance)
    o = DiffOptions(modes.index(by), common, exact, tolerance == "auto",
                    atol is not None, rtol is not None, atol or 0, rtol or 0,
                    not diagnose, _native.whole("most", most, 0, 100))
    groups: List[GroupDifference] = []
    elements: List[ElementDifference] = []
    only: List[str] = []

    def tell_only(_: Any, side: int, words: bytes) -> None:
        only.append(f"{'AB'[side]}: {text(words)}")

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
            (e.value[0], e.value[1]), e.error))

    told = DiffTold(None, DiffTold.ONLY(tell_only), DiffTold.GROUP(tell_group),
                    DiffTold.ELEMENT(tell_element))
    (first, own_a), (second, own_b) = _opened(a), _opened(b)
    try:
        # pylint: disable=protected-access
        with first._handle as one, second._handle as other:
            status, err = Watch(threads, memory, progress).status(
                "kvt_diff", one, other, byref(o), byref(told))
        if status not in (0, Mismatch.status):
            _native.check(status, err)
        return Report(first.name, second.name, tuple(groups), tuple(elements),
                      tuple(only))
    finally:
        if own_a:
            first.close()
        if own_b:
            second.close()
