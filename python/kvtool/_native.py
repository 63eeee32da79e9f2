# SPDX-License-Identifier: Apache-2.0
"""
libkvt through ctypes: its structs, its functions, its errors

Structs are those of <kvt/*.h>, field by field; tests/check_structs.py holds
sizes and offsets against a compiler.  Nothing here knows numpy or torch.
"""
from __future__ import annotations

import ctypes
import importlib
import operator
import os
import re
import threading
import warnings
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p,
                    c_double, c_int, c_int64, c_size_t, c_void_p)
from typing import Any, Callable, Dict, List, Optional, Tuple, Type, Union

VERSION = "0.1.0"
NAXES = 6
L, B, S, H, K, D = range(NAXES)
MAX_GROUPS = 32


# ---- errors ------------------------------------------------------------------------

class Error(Exception):
    """What libkvt refuses or fails at; ``status`` is the exit status of kvtool(1)."""

    status = 5


class Mismatch(Error):
    """Data or an expectation differs (status 1)."""

    status = 1


class UsageError(Error, ValueError):
    """The request itself makes no sense (status 2)."""

    status = 2


class BadInput(Error, ValueError):
    """Malformed, ambiguous or not comparable (status 3)."""

    status = 3


class Unsupported(Error):
    """Valid, but this build or machine cannot do it (status 4)."""

    status = 4


class SystemFailure(Error, OSError):
    """Memory, a file or a device failed (status 5)."""

    status = 5


class KvtoolWarning(UserWarning):
    """Something that changes no result, as kvtool prints it."""


ERRORS: Dict[int, Type[Error]] = {e.status: e for e in (
    Mismatch, UsageError, BadInput, Unsupported, SystemFailure)}


# ---- structs -----------------------------------------------------------------------

class ErrorText(Structure):
    _fields_ = [("text", c_char * 512)]


class Text(Structure):
    _fields_ = [("s", c_char * 160)]


class Range(Structure):
    _fields_ = [("begin", c_int64), ("end", c_int64)]


class Ranges(Structure):
    _fields_ = [("n", c_int), ("range", POINTER(Range))]


class Names(Structure):
    _fields_ = [("n", c_int), ("s", POINTER(c_char_p))]


class Rank(Structure):
    _fields_ = [("size", c_int64), ("index", c_int64)]


class Shape(Structure):
    _fields_ = [("n", c_int64 * NAXES), ("elem", c_int64)]


class Dtype(Structure):
    _fields_ = [("name", c_char_p), ("safetensors", c_char_p), ("npy", c_char_p),
                ("torch", c_char_p), ("ml_dtypes", c_char_p), ("alias", c_char_p * 4),
                ("elem", c_int), ("is_float", c_bool), ("index", c_int),
                ("number", c_int), ("fraction", c_int), ("exponent", c_int),
                ("bias", c_int)]


class Box(Structure):
    _fields_ = [("begin", c_int64 * NAXES), ("end", c_int64 * NAXES)]


class Factor(Structure):
    _fields_ = [("axis", c_int), ("div", c_int64), ("n", c_int64), ("stride", c_int64)]


class View(Structure):
    _fields_ = [("shape", Shape), ("offset", c_int64), ("nfactors", c_int),
                ("factor", Factor * 12)]


class Views(Structure):
    _fields_ = [("count", c_int), ("first_k", c_int), ("view", View * 2),
                ("nbytes", c_int64)]


class TensorPart(Structure):
    _fields_ = [("group", c_int), ("box", Box), ("data", c_void_p), ("view", View),
                ("device", c_void_p)]


class Part(Structure):
    _fields_ = [("axis", c_int), ("kind", c_int), ("split", c_int64)]


class Order(Structure):
    _fields_ = [("nparts", c_int), ("part", Part * 8)]


class Layout(Structure):
    _fields_ = [("nplanes", c_int), ("plane", Order * 2)]


class Facts(Structure):
    _fields_ = [("n", c_int), ("s", c_char_p * 64)]


class Hint(Structure):
    """A row of the library's table of what can be said of an input."""
    _fields_ = [("name", c_char_p), ("member", c_char_p), ("type", c_int),
                ("offset", c_size_t), ("of_group", c_bool), ("arg", c_char_p),
                ("help", c_char_p)]


class Run(Structure):
    CANCELLED = CFUNCTYPE(c_bool, c_void_p)
    PROGRESS = CFUNCTYPE(None, c_void_p, c_char_p, c_int64, c_int64)
    WARN = CFUNCTYPE(None, c_void_p, c_char_p)
    _fields_ = [("threads", c_int), ("memory", c_int64), ("device", c_void_p),
                ("context", c_void_p), ("cancelled", CANCELLED),
                ("progress", PROGRESS), ("warn", WARN), ("share", c_void_p),
                ("about", c_int64)]


class SliceOptions(Structure):
    _fields_ = [("layers", Ranges), ("blocks", Ranges), ("heads", Ranges),
                ("tokens", Ranges), ("requests", Names), ("components", Names),
                ("rank", Rank), ("to", Rank), ("mamba_groups", c_int64)]


class ReblockOptions(Structure):
    _fields_ = [("block_size", c_int64), ("compact", c_bool), ("stale", c_int),
                ("layout", POINTER(Layout))]


class AsType(Structure):
    _fields_ = [("type", c_char_p), ("scaling", c_int), ("scale", c_double * 2),
                ("has_from", c_bool), ("from_", c_double * 2)]


class Reblocked(Structure):
    _fields_ = [("how", c_int), ("why", ErrorText), ("size_before", c_int64),
                ("blocks_before", c_int64), ("blocks_after", c_int64),
                ("dropped", c_int64), ("copied", c_int64), ("stale", c_int64),
                ("stale_kept", c_int64)]


class CreateOptions(Structure):
    _fields_ = [("format", c_char_p), ("force", c_bool), ("no_sync", c_bool),
                ("uncompressed", c_bool), ("no_digest", c_bool), ("as_is", c_bool),
                ("level", c_int),
                ("tile_bytes", c_int64), ("row_ranks", c_int64), ("row_form", c_char_p),
                ("like", c_void_p),
                ("parts", c_void_p), ("nparts", c_int64),
                ("template_path", c_char_p), ("key_order", c_char_p),
                ("model_path", c_char_p), ("context", c_char_p)]


class DiffOptions(Structure):
    _fields_ = [("by", c_int), ("common", c_bool), ("exact", c_bool),
                ("automatic", c_bool), ("has_atol", c_bool), ("has_rtol", c_bool),
                ("atol", c_double), ("rtol", c_double), ("no_diagnosis", c_bool),
                ("most", c_int), ("has_scale", c_bool * 2),
                ("scale", c_double * 2 * 2), ("nmatches", c_int),
                ("match", POINTER(c_char_p)), ("attention", c_bool),
                ("queries", c_void_p), ("attention_scale", c_double),
                ("attention_cap", c_double), ("attention_rank", c_int64),
                ("attention_sample", c_int64), ("has_bound", c_bool),
                ("bound", c_double)]


class DiffGroup(Structure):
    _fields_ = [("id", c_char_p), ("equal", c_bool), ("differs", c_bool),
                ("elements", c_int64), ("unequal", c_int64), ("outside", c_int64),
                ("max_abs", c_double), ("rel_l2", c_double), ("cosine", c_double),
                ("pcc", c_double), ("fault", c_char_p), ("fault_args", c_char_p),
                ("fault_text", c_char_p)]


class DiffElement(Structure):
    _fields_ = [("group", c_char_p), ("layer", c_int64), ("layer_name", c_char_p),
                ("request", c_char_p), ("token", c_int64), ("block", c_int64 * 2),
                ("slot", c_int64 * 2), ("head", c_int64), ("kv", c_int64),
                ("dim", c_int64), ("value", c_double * 2), ("error", c_double)]


class DiffCell(Structure):
    _fields_ = [("group", c_char_p), ("layer", c_int64), ("head", c_int64),
                ("elements", c_int64), ("outside", c_int64), ("max_abs", c_double),
                ("dd", c_double), ("aa", c_double), ("bb", c_double), ("ab", c_double)]


class DiffRow(Structure):
    _fields_ = [("group", c_char_p), ("axis", c_int), ("id", c_int64),
                ("request", c_char_p), ("block", c_int64), ("slot", c_int64),
                ("elements", c_int64), ("outside", c_int64), ("max_abs", c_double),
                ("dd", c_double), ("aa", c_double), ("bb", c_double), ("ab", c_double)]


class DiffPaired(Structure):
    _fields_ = [("request", c_char_p * 2), ("by_name", c_bool), ("alike", c_int64),
                ("sampled", c_int64)]


class DiffAttended(Structure):
    _fields_ = [("group", c_char_p), ("layer", c_int64), ("head", c_int64),
                ("queries", c_int64), ("top_changed", c_int64), ("lost", c_int64),
                ("change", c_double), ("change_max", c_double), ("rel_l2", c_double),
                ("worst", c_double)]


class DiffTold(Structure):
    ONLY = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
    GROUP = CFUNCTYPE(None, c_void_p, POINTER(DiffGroup))
    ELEMENT = CFUNCTYPE(None, c_void_p, POINTER(DiffElement))
    CELL = CFUNCTYPE(None, c_void_p, POINTER(DiffCell))
    ROW = CFUNCTYPE(None, c_void_p, POINTER(DiffRow))
    PAIRED = CFUNCTYPE(None, c_void_p, POINTER(DiffPaired))
    ATTENDED = CFUNCTYPE(None, c_void_p, POINTER(DiffAttended))
    _fields_ = [("context", c_void_p), ("only", ONLY), ("group", GROUP),
                ("element", ELEMENT), ("cell", CELL), ("row", ROW),
                ("paired", PAIRED), ("attended", ATTENDED)]


class BrokenRule(Structure):
    _fields_ = [("rule", c_char_p), ("severity", c_char_p), ("at", c_char_p),
                ("text", c_char_p)]


FOUND = CFUNCTYPE(None, c_void_p, POINTER(BrokenRule))

# ---- the library -------------------------------------------------------------------

_ERR = POINTER(ErrorText)
_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "kvt_version": (c_char_p, []),
    "kvt_hint_at": (POINTER(Hint), [c_int]),
    "kvt_open": (c_int, [POINTER(c_void_p), c_char_p, c_void_p, _ERR]),
    "kvt_dump_close": (None, [c_void_p]),
    "kvt_dump_snapshot": (c_void_p, [c_void_p]),
    "kvt_dump_format": (c_char_p, [c_void_p]),
    "kvt_dump_unchanged": (c_int, [c_void_p, _ERR]),
    "kvt_dump_of_tensors": (c_int, [POINTER(c_void_p), c_void_p, POINTER(TensorPart),
                                    c_int64, _ERR]),
    "kvt_device_open": (c_int, [POINTER(c_void_p), c_char_p, _ERR]),
    "kvt_device_wait": (c_int, [c_void_p, c_void_p, _ERR]),
    "kvt_dump_slice": (c_int, [POINTER(c_void_p), c_void_p, POINTER(SliceOptions), _ERR]),
    "kvt_dump_merge": (c_int, [POINTER(c_void_p), POINTER(c_void_p), POINTER(c_char_p),
                               c_int, _ERR]),
    "kvt_dump_reblock": (c_int, [POINTER(c_void_p), POINTER(Reblocked), c_void_p,
                                 POINTER(ReblockOptions), _ERR]),
    "kvt_dump_decode": (c_int, [POINTER(c_void_p), c_void_p, POINTER(Dtype), c_void_p,
                                _ERR]),
    "kvt_dump_astype": (c_int, [POINTER(c_void_p), c_void_p, POINTER(AsType),
                                POINTER(Run), _ERR]),
    "kvt_dump_tokens": (c_int, [POINTER(c_void_p), POINTER(c_int64), c_void_p, c_int,
                                c_char_p, Range, _ERR]),
    "kvt_dump_read": (c_int, [c_void_p, c_int, POINTER(Box), POINTER(Layout), c_void_p,
                              _ERR]),
    "kvt_dtype_find": (POINTER(Dtype), [c_char_p]),
    "kvt_dtype_at": (POINTER(Dtype), [c_int]),
    "kvt_layout_parse": (c_int, [POINTER(Layout), c_char_p, _ERR]),
    "kvt_layout_string": (Text, [POINTER(Layout)]),
    "kvt_layout_views": (c_int, [POINTER(Views), POINTER(Layout), POINTER(Box), c_int64,
                                 _ERR]),
    "kvt_snapshot_json": (c_void_p, [c_void_p]),
    "kvt_snapshot_from_json": (c_int, [POINTER(c_void_p), c_char_p, c_char_p, _ERR]),
    "kvt_snapshot_clone": (c_int, [POINTER(c_void_p), c_void_p, _ERR]),
    "kvt_snapshot_set_layout": (c_int, [c_void_p, POINTER(Layout), _ERR]),
    "kvt_snapshot_delete": (None, [c_void_p]),
    "kvt_create": (c_int, [POINTER(c_void_p), c_char_p, POINTER(CreateOptions), c_void_p,
                           _ERR]),
    "kvt_write": (c_int, [POINTER(c_void_p), POINTER(c_void_p), c_int, POINTER(Run),
                          _ERR]),
    "kvt_open_written": (c_int, [POINTER(c_void_p), c_void_p, _ERR]),
    "kvt_publish": (c_int, [POINTER(c_void_p), c_int, _ERR]),
    "kvt_writer_retell": (None, [c_void_p, _ERR]),
    "kvt_close_writer": (None, [c_void_p]),
    "kvt_verify": (c_int, [c_void_p, c_void_p, POINTER(Run), _ERR]),
    "kvt_verify_reblocked": (c_int, [c_void_p, c_void_p, POINTER(Reblocked), POINTER(Run),
                                     _ERR]),
    "kvt_dump_digest": (c_int, [POINTER(Text), c_void_p, c_int, POINTER(Run), _ERR]),
    "kvt_diff": (c_int, [c_void_p, c_void_p, POINTER(DiffOptions), POINTER(DiffTold),
                         POINTER(Run), _ERR]),
    "kvt_check": (c_int, [c_void_p, c_bool, FOUND, c_void_p, POINTER(Run), _ERR]),
}


def _load() -> ctypes.CDLL:
    here = os.path.dirname(os.path.abspath(__file__))
    own = os.path.join(here, "_lib", "libkvt.so.0")
    path = os.environ.get("KVTOOL_LIBRARY") or (own if os.path.exists(own) else
                                                "libkvt.so.0")
    try:
        found = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"kvtool cannot load its library: {error}") from None
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(found, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}(): it is of another version than "
                              f"this module, {VERSION}") from None
        function.restype, function.argtypes = result, arguments
    version = found.kvt_version().decode()
    if version != VERSION:
        raise ImportError(f"{path} is version {version}, this module is {VERSION}")
    return found


lib = _load()


OPTIONS: Dict[str, str] = {}         #: the member that an option of the program is


def _hint_fields() -> Dict[str, Tuple[int, Any]]:
    """{member: (offset, type)} of what a row of the library's table says, in order."""
    types = (c_bool, c_char_p, c_int64, c_int64, Facts, c_void_p)
    rows: Dict[str, Tuple[int, Any]] = {}
    number = 0
    while lib.kvt_hint_at(number):
        row = lib.kvt_hint_at(number).contents
        rows.setdefault(row.member.decode(), (row.offset, types[row.type]))
        OPTIONS[row.name.decode()] = row.member.decode()
        number += 1
    return rows


HINTS = _hint_fields()


class Hints(Structure):
    """Whatever the library's options are: a new one needs nothing here."""
    _fields_ = [(name, kind) for name, (_, kind) in
                sorted(HINTS.items(), key=lambda row: row[1][0])] + \
        [("group", c_char_p), ("tp_size", c_int64), ("tp_rank", c_int64),
         ("total_heads", c_int64), ("one_of_several", c_bool), ("empty", c_bool),
         ("has_sides", c_bool),
         ("inspector", c_void_p), ("of_model", c_void_p),
         ("look_into", c_int64), ("sample", c_int64)]

_free = ctypes.CDLL(None).free
_free.argtypes = [c_void_p]


def text(value: Optional[bytes]) -> str:
    return (value or b"").decode(errors="backslashreplace")


def whole(name: str, value: Any, least: int = 0, most: int = (1 << 63) - 1) -> int:
    """A number that C has room for: ctypes cuts others without a word."""
    number = operator.index(value)
    if not least <= number <= most:
        raise UsageError(f"{name} is {number}, expected {least} to {most}")
    return number


def index(name: str, value: Any) -> int:
    """A whole number of Python or numpy, which True is not."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UsageError(f"{name} has {value!r} in it, expected numbers")
    return operator.index(value)


def path_bytes(path: Any) -> bytes:
    """A path or another word; C would end it at a NUL."""
    data = os.fsencode(path)
    if b"\0" in data:
        raise UsageError(f"{path!r} has a NUL in it")
    return data


def encoded(value: Optional[str]) -> Optional[bytes]:
    return None if value is None else path_bytes(value)


#: options of the program that are arguments of other names here
_ARGUMENTS = {"mem-limit": "memory", "to": "layout", "tp-rank": "tp", "tp-size": "tp",
              "of-group": "groups", "top": "most", "force": "overwrite",
              "component": "components"}
#: those that are no option of an input, and are arguments of the same name
_SAME = ("as-is", "atol", "attend", "by", "common", "compact", "context", "exact", "format",
         "from-scale", "heads", "key-order", "layers", "mamba-groups", "match", "requests", "scale", "scale-a",
         "scale-b", "template", "threads", "tokens", "tolerance", "total-heads")
_FLAGS = ("as_is", "common", "compact", "exact", "overwrite")
#: what is more than another name
_PHRASES = (
    ("the output of kvtool convert --decode=float32 of A", "a.decode()"),
    ("the output of kvtool convert --decode=float32 of B", "b.decode()"),
    ("kvtool convert --decode=float32 makes", "decode() makes"),
    ("--tp-size and --tp-rank", "tp=(rank, size)"),
    ("if they are listed in the order of the ranks, add --in-order",
     "open each with tp=(rank, size)"),
    ("--in-order", "tp=(rank, size)"),
    ("--set tokens=N or N,N..., and padding=left if",
     'facts={"tokens": "N"} or "N,N...", and "padding": "left" if'))
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?:=([^\s;()]*[^\s;(),.:])|"
                     r"(?<=--set) ([\w-]+=[^\s;()]*[^\s;(),.:]))?")
_NEXT = re.compile(r"((?<![\w-])--(?:set [^\s;(),]+|[a-z][a-z-]*(?:=[^\s;(),]+)?))"
                   r"(?= --[a-z])")
#: a file in memory has a name that nobody gave it
_IN_MEMORY = re.compile(r"/proc/self/fd/\d+(?:: the file)?")
_COMMAND = re.compile(r"(\bkvtool [a-z-]+(?: [^;\s]*[^;,\s])*)")


def _argument(found: "re.Match[str]") -> str:
    """An option of the program, as it is written in a call of Python."""
    option, value = found.group(1), found.group(2) or found.group(3)
    name = OPTIONS.get(option) or _ARGUMENTS.get(option) or \
        (option.replace("-", "_") if option in _SAME else None)
    if name is None:
        return found.group(0)           # no argument: the program's word stays
    kind = HINTS.get(name, (0, None))[1]
    if name in _FLAGS or kind is c_bool:
        return f"{name}=True"
    if value is None:
        return f"{name}="
    if name == "tolerance" and "=" in value:
        return value                    # terms are arguments of their own
    if name == "attend" and "=" in value:
        key, _, of = value.partition("=")
        return f'{name}={{"{key}": {of}}}'
    if (kind is Facts or name == "match") and "=" in value:
        key, _, of = value.partition("=")
        return f'{name}={{"{key}": "{of}"}}'
    return f"{name}={value}" if value.isdecimal() else f'{name}="{value}"'


def in_python(words: str) -> str:
    """What the library says, with arguments in the place of options of the program."""
    for said, here in _PHRASES:
        words = words.replace(said, here)
    words = _IN_MEMORY.sub("the cache", words)
    parts = _COMMAND.split(words)       # whole commands stay what can be pasted
    return "".join(part if i % 2 else _spelled(part) for i, part in enumerate(parts))


def _spelled(words: str) -> str:
    """Arguments one after the other have commas between, and facts are one mapping."""
    words = _OPTION.sub(_argument, _NEXT.sub(r"\1,", words))
    return re.sub(r"facts=\{([^{}]*)\}, facts=\{", r"facts={\1, ", words)


def check(status: int, err: ErrorText) -> None:
    if status:
        raise ERRORS.get(status, SystemFailure)(in_python(text(err.text)))


def call(name: str, *arguments: Any) -> None:
    """A function whose last argument is the error."""
    err = ErrorText()
    check(getattr(lib, name)(*arguments, byref(err)), err)


def make(name: str, *arguments: Any) -> int:
    """The same of one whose first argument is where its result goes; the handle."""
    out = c_void_p()
    call(name, byref(out), *arguments)
    assert out.value is not None
    return out.value


def parse_layout(words: str) -> Layout:
    layout = Layout()
    call("kvt_layout_parse", byref(layout), path_bytes(words))
    return layout


def layout_text(layout: Layout) -> str:
    return text(lib.kvt_layout_string(byref(layout)).s)


def snapshot_json(snapshot: int) -> str:
    found = lib.kvt_snapshot_json(snapshot)
    if not found:
        raise BadInput("a name in the dump is no UTF-8")
    try:
        return ctypes.string_at(found).decode()
    finally:
        _free(found)


# ---- long calls --------------------------------------------------------------------

#: called with what is done ("converting"), bytes done and all; True: tqdm, if it is there
Progress = Union[Callable[[str, int, int], None], bool]


class _Bar:
    """tqdm, one bar for each phase."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm, self._bar, self._what = tqdm, None, ""

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != self._what:
            self.close()
            self._what = what
            self._bar = self._tqdm(total=total, desc=what, unit="B", unit_scale=True)
        bar: Any = self._bar
        bar.update(done - bar.n)

    def close(self) -> None:
        """Ends the bar of a phase."""
        bar: Any = self._bar
        if bar is not None:
            bar.close()
        self._bar = None


def _teller(progress: Optional[Progress]) -> Optional[Callable[[str, int, int], None]]:
    if progress is not True:
        return progress or None
    try:
        return _Bar(importlib.import_module("tqdm.auto").tqdm)
    except ImportError:
        return None


class Watch:
    """
    A call that takes a kvt_run: in a thread of its own if this is the main one, so that
    ^C ends it; progress and warnings are told in the thread that called.
    """

    def __init__(self, threads: int, memory: int, progress: Optional[Progress]) -> None:
        self._stop = False
        self._seen: Tuple[str, int, int] = ("", 0, 0)
        self._told: Optional[Tuple[str, int, int]] = None
        self._progress = _teller(progress)
        self._warnings: List[str] = []
        # kept here: C holds no reference to them
        self._callbacks = (Run.CANCELLED(self._cancelled), Run.PROGRESS(self._note),
                           Run.WARN(self._warn))
        self.run = Run(whole("threads", threads, 0, 1 << 16),
                       whole("memory", memory, 0), None, None, *self._callbacks)
        if self._progress is None:
            # null: nothing is reported
            self.run.progress = ctypes.cast(c_void_p(), Run.PROGRESS)

    def _cancelled(self, _: Any) -> bool:
        return self._stop

    def _note(self, _: Any, what: Optional[bytes], done: int, total: int) -> None:
        if what is not None:
            self._seen = (what.decode(), done, total)

    def _warn(self, _: Any, words: Optional[bytes]) -> None:
        self._warnings.append(in_python(text(words)))

    def _tell(self) -> None:
        if self._progress and self._seen != self._told and self._seen[0]:
            self._told = self._seen
            self._progress(*self._seen)

    def _in_thread(self, job: Callable[[], int]) -> int:
        """
        Runs the job to its end, or ends it, whatever is raised here and whenever: C uses
        what the callers free.  Until 'go' it has not begun, and then may be called off.
        """
        done: List[Any] = []
        go, finished, called_off = threading.Event(), threading.Event(), [False]

        def work() -> None:
            go.wait()
            try:
                done.append(0 if called_off[0] else job())
            except BaseException as error:      # pylint: disable=broad-except
                done.append(error)
            finally:
                finished.set()

        try:
            threading.Thread(target=work, name="kvtool", daemon=True).start()
            go.set()
            while not finished.wait(0.05):
                self._tell()
        except BaseException:
            if not go.is_set():
                called_off[0] = True
                go.set()
                raise
            self._stop = True
            while not finished.is_set():
                try:
                    finished.wait()
                except KeyboardInterrupt:
                    pass                        # it is ending already
            raise
        if isinstance(done[0], BaseException):
            raise done[0]
        return int(done[0])

    def status(self, name: str, *arguments: Any) -> Tuple[int, ErrorText]:
        """What a function gave whose last two arguments are run and error."""
        err = ErrorText()

        def job() -> int:
            return int(getattr(lib, name)(*arguments, byref(self.run), byref(err)))

        if threading.current_thread() is threading.main_thread() or self._progress:
            result = self._in_thread(job)
        else:
            result = job()
        self._tell()
        if isinstance(self._progress, _Bar):
            self._progress.close()
        for words in self._warnings:
            warnings.warn(words, KvtoolWarning, stacklevel=4)
        self._warnings.clear()
        return result, err

    def call(self, name: str, *arguments: Any) -> None:
        check(*self.status(name, *arguments))
