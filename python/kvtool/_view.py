# SPDX-License-Identifier: Apache-2.0
"""
Dumps as pictures: the page, the picture and the numbers of kvtool-view(1)

Nothing is drawn here.  The program draws, and is given the file that a dump was opened
from, with what was told of it; of any other dump a copy, if that is not large.
"""
from __future__ import annotations

import base64
import contextlib
import html
import importlib
import json
import math
import os
import re
import tempfile
from typing import (TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple)

from . import _arrays, _html, _native
from ._native import SystemFailure, UsageError, call, whole
from ._program import program

if TYPE_CHECKING:
    from ._dump import Dump

SAMPLE = 256 << 20              # of a group's data, as the program has it
COPIED = 1 << 30                # of a dump that has no file of its own
CHEAP = 16 << 20                # what is read without being asked for


class Source(NamedTuple):
    """Where a dump was opened: the program opens it there again."""

    folder: str
    path: str
    options: Tuple[str, ...]


def source(path: Any, told: Sequence[Tuple[str, str]]) -> Optional[Source]:
    """What open() was given: a path, and members of the hints; "": a flag."""
    names = {member: name for name, member in reversed(list(_native.OPTIONS.items()))}
    options = tuple(f"--{names[member]}" + (f"={word}" if word else "")
                    for member, word in told)
    try:
        return Source(os.getcwd(), os.fsdecode(path), options)
    except OSError:                     # the folder is gone
        return None


def absolute(path: Any) -> str:
    """The same file from another folder; ".." stays, for it may follow a link."""
    name: str = os.fsdecode(path)
    return name if os.path.isabs(name) else os.path.join(os.getcwd(), name)


def data_bytes(dump: "Dump") -> int:
    """Of all its elements."""
    return sum(math.prod(g.shape) * _arrays.itemsize(g.dtype) for g in dump.groups)


# ---- the program ---------------------------------------------------------------------

def _together(dumps: Sequence["Dump"]) -> Optional[Source]:
    """Where all were opened, if that is one folder and they were told the same."""
    # pylint: disable=protected-access
    sources = [d._source for d in dumps]
    first = sources[0]
    return first if first and all(s and s[::2] == first[::2] for s in sources) else None


def _copies(dumps: Sequence["Dump"]) -> List[str]:
    """For each the name of the snapshot that is drawn in its place; "": its file is."""
    names = []
    for d in dumps:
        source_of = d._source           # pylint: disable=protected-access
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", os.path.basename(d.name))[:80].strip(".-")
        names.append("" if _together(dumps) or (source_of and not source_of.options) else
                     re.sub(r"(\.h5)?$", ".h5", name, count=1))
    return [f"{n[:-3]}-{'ab'[i]}.h5" if n and names.count(n) > 1 else n
            for i, n in enumerate(names)]


def _copy(dump: "Dump", path: str) -> str:
    size = data_bytes(dump)
    if size > COPIED:
        raise UsageError(f"{dump.name} is no file, and of its {size} bytes no copy is made to draw "
                         f"them, which {COPIED} may have: d.write() it, and open that")
    dump.write(path, verify=False, sync=False, compress=False)
    return os.path.basename(path)


def _told(dumps: Sequence["Dump"]) -> str:
    """Where the commands of a page find what was drawn, if that was a copy."""
    copies = [(d.name, name) for d, name in zip(dumps, _copies(dumps)) if name]
    return "; ".join(f"{of} is no file: d.write({name!r}, compress=False) makes the one that "
                     "commands of this page name" for of, name in copies)


@contextlib.contextmanager
def operands(dumps: Sequence["Dump"]) -> Iterator[Tuple[str, List[str]]]:
    """A folder, and the arguments by which the program finds the dumps there."""
    # pylint: disable=protected-access
    first = _together(dumps)
    with tempfile.TemporaryDirectory(prefix="kvtool-") as folder:
        if first:
            yield first.folder, [*first.options, "--", *(d._source.path for d in dumps if d._source)]
        else:
            yield folder, ["--", *(
                _copy(d, os.path.join(folder, name)) if name or not d._source else
                os.path.join(d._source.folder, d._source.path)
                for d, name in zip(dumps, _copies(dumps)))]
        for d in dumps:
            with d._handle as handle:   # what was drawn is what is open
                call("kvt_dump_unchanged", handle)


def run(dumps: Sequence["Dump"], *options: str) -> bytes:
    """What kvtool view prints of them."""
    import subprocess
    for d in dumps:
        with d._handle:                 # pylint: disable=protected-access
            pass                        # a closed dump is refused
    with operands(dumps) as (folder, arguments):
        try:
            done = subprocess.run([program(), "view", "-q", *options, *arguments],
                                  cwd=folder, stdin=subprocess.DEVNULL, check=False,
                                  capture_output=True)
        except OSError as error:
            raise SystemFailure(f"{program()}: {error}") from None
        if done.returncode:
            words = done.stderr.decode(errors="backslashreplace").strip()
            raise _native.ERRORS.get(done.returncode, SystemFailure)(
                _native.in_python(re.sub(r"^kvtool view: ", "", words)))
        return done.stdout


def reading(sample: Optional[int], everything: bool, threads: int, memory: int
            ) -> List[str]:
    """Options of what is read, by how many, in how much memory."""
    if sample is not None and everything:
        raise UsageError("sample and all exclude each other")
    words = ["--all"] if everything else \
        [f"--sample={whole('sample', SAMPLE if sample is None else sample, 1)}"]
    if threads:
        words.append(f"--threads={whole('threads', threads, 1)}")
    return words + [f"--mem-limit={whole('memory', memory, 1)}"]


def _written(dumps: Sequence["Dump"], ending: str, options: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="kvtool-") as folder:
        path = os.path.join(folder, "page" + ending)
        run(dumps, f"--output={path}", *options)
        with open(path, encoding="utf-8") as f:
            return f.read()


# ---- pages and pictures ----------------------------------------------------------------

class View:
    """
    The page that kvtool view writes: a notebook shows it, :meth:`save` writes it.

    >>> import kvtool
    >>> view = kvtool.open("cache.npy").view()
    >>> view
    <kvtool.View of cache.npy: .save("page.html") writes it>
    >>> view.save("page.html")
    """

    def __init__(self, name: str, page: str, words: str = "", below: str = "") -> None:
        self.name = name
        above = f"<pre>{html.escape(words)}</pre>\n" if words else ""
        if below:
            below = f'<footer class="dim"><p>{html.escape(below)}</p></footer>\n'
        #: all of the page, which needs nothing but itself
        self.html = page.replace("<main>\n", "<main>\n" + above, 1).replace(
            "</main>\n", "</main>\n" + below, 1)

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Writes the page; a file that exists is replaced only with ``overwrite``."""
        try:
            with open(path, "w" if overwrite else "x", encoding="utf-8") as f:
                f.write(self.html)
        except FileExistsError:
            raise SystemFailure(f"{os.fspath(path)}: exists; overwrite=True replaces it") \
                from None

    def __repr__(self) -> str:
        return f'<kvtool.View of {self.name}: .save("page.html") writes it>'

    def _repr_html_(self) -> str:
        """
        In a frame of its own: its script sees nothing of the notebook.  Where a notebook is
        not trusted the frame is taken away, and what stands in it is left.
        """
        page = self.html.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")
        return (f"<iframe srcdoc='{page}' "     # a page has hundreds of the other quotes
                'sandbox="allow-scripts" '
                'allow="clipboard-write" title="kvtool view" width="100%" height="760" '
                f'style="border:0">The page of {html.escape(self.name)} is shown once this cell '
                'has run, or the notebook is trusted.</iframe>')


def view(dumps: Sequence["Dump"], options: Sequence[str], words: str = "",
         name: str = "") -> View:
    """The page of one dump, or of two beside each other."""
    return View(name or " and ".join(d.name for d in dumps),
                _written(dumps, ".html", options), words, _told(dumps))


def picture(dumps: Sequence["Dump"], options: Sequence[str] = ()) -> str:
    """
    An image for a notebook; nothing where the program cannot draw.  Of large dumps it is
    a line that says how to ask, for data are read to draw.
    """
    try:
        size = sum(map(data_bytes, dumps))
        if size > CHEAP:
            return _html.line(f"its {size} bytes are not read to show this: .view() draws a sample")
        svg = _written(dumps, ".svg", ["--all", *options])
    except (_native.Error, OSError, ValueError):
        return ""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="maps of its numbers" src="data:image/svg+xml;base64,{data}">'


# ---- numbers -------------------------------------------------------------------------

MEASURES = ("rms", "largest", "zero", "nonfinite")
COLUMNS = {"head": ("heads", "by_head"), "token": ("positions", "by_position"),
           "block": ("positions", "by_position")}


TICKS = 32                      # more are not readable


class _Plot(NamedTuple):
    values: Any                 #: a numpy array, NaN where there is no number
    axes: Any                   #: of matplotlib; None where that is not installed


class Plot(_Plot):
    """What :meth:`Dump.plot` gives: ``values, axes``, and what is in them."""

    rows: Tuple[Any, ...] = ()          #: what each row begins with: a layer, ...
    columns: Tuple[Any, ...] = ()       #: each column: a head, a block, (request, token)
    read_bytes: int = 0                 #: fewer than data_bytes: they are of a sample
    data_bytes: int = 0

    def __repr__(self) -> str:
        return f"<kvtool.Plot of {' x '.join(map(str, self.values.shape))}: values, axes>"


def _asked(measure: str, by: Sequence[str]) -> Tuple[str, bool]:
    """The axis beside layers, and whether it is the first."""
    if measure not in MEASURES:
        raise UsageError(f"the measure is {measure!r}, expected one of {', '.join(MEASURES)}")
    pair = (by,) if isinstance(by, str) else tuple(by)
    other = [axis for axis in pair if axis != "layer"]
    if len(pair) != 2 or len(other) != 1 or other[0] not in COLUMNS:
        raise UsageError(f"by is {by!r}, expected (\"layer\", \"head\"), (\"layer\", \"token\") or "
                         "(\"layer\", \"block\")")
    return other[0], pair[0] != "layer"


def _labels(numbers: Mapping[str, Any], requests: Sequence[Mapping[str, Any]],
            axis: str) -> Tuple[Any, ...]:
    if axis != "token":
        return tuple(numbers[COLUMNS[axis][0]])
    if not numbers["position_tokens"]:
        raise UsageError("the dump has no requests, whose tokens these would be: by=(\"layer\", "
                         "\"block\")")
    return tuple((requests[r]["id"] if 0 <= r < len(requests) else r, token)
                 for r, token in numbers["position_tokens"])


def _tick(what: Any) -> str:
    """A request and its token have a space between; a name from a file is no formula."""
    words = " ".join(map(str, what)) if isinstance(what, tuple) else str(what)
    return words.replace("$", r"\$")


def _axes(shown: Plot, ax: Any, measure: str, by: Sequence[str], title: str) -> Any:
    """Drawn by matplotlib, if it is there: components side by side."""
    if ax is None:
        try:
            pyplot = importlib.import_module("matplotlib.pyplot")
        except ImportError:
            return None
        ax = pyplot.subplots()[1]
    import numpy
    cells = shown.values
    if cells.ndim == 3:
        cells = numpy.concatenate(list(cells), axis=1)
    image = ax.imshow(cells, aspect="auto", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label=measure)
    ax.set_ylabel(by[0])
    ax.set_xlabel(by[1])
    columns = shown.columns * (cells.shape[1] // max(len(shown.columns), 1))
    if len(shown.rows) <= TICKS:
        ax.set_yticks(range(len(shown.rows)), list(map(_tick, shown.rows)))
    if len(columns) <= TICKS:
        ax.set_xticks(range(len(columns)), list(map(_tick, columns)))
    ax.set_title(_tick(title))
    return ax


def plot(dump: "Dump", measure: str, by: Sequence[str], group: str, half: Optional[int],
         ax: Any, options: Sequence[str]) -> Plot:
    """One map of the page as an array."""
    import numpy
    other, turned = _asked(measure, by)
    told = json.loads(run([dump], "--json", *options))["dumps"][0]
    found: Dict[str, Any] = next(g for g in told["groups"] if g["id"] == group)
    numbers, parts = found["numbers"], found["components"]
    if numbers is None:
        raise _native.Unsupported(_native.in_python(found["why"] or f"{group}: its elements are no numbers"))
    if half is not None and half >= len(parts):
        raise UsageError(f"{group} has neither keys nor values: leave kv out")
    rows, columns = tuple(numbers["layers"]), _labels(numbers, told["requests"], other)
    cells = numpy.array(numbers[COLUMNS[other][1]][measure], dtype="f8").reshape(
        len(parts), len(rows), len(columns))
    if turned:
        cells, rows, columns = cells.swapaxes(1, 2), columns, rows
    title = f"{measure} of {group}"
    if len(parts) > 1:
        title += f", {parts[half]}" if half is not None else ", " + " | ".join(parts)
    if numbers["read_bytes"] < numbers["bytes"]:
        title += f" ({numbers['read_bytes']} of {numbers['bytes']} bytes)"
    cells = cells[half or 0] if half is not None or len(parts) == 1 else cells

    def filled(axes: Any) -> Plot:
        made = Plot(cells, axes)
        made.rows, made.columns = rows, columns
        made.read_bytes, made.data_bytes = numbers["read_bytes"], numbers["bytes"]
        return made

    return filled(_axes(filled(None), ax, measure, tuple(by), title))
