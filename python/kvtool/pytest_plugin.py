# SPDX-License-Identifier: Apache-2.0
"""
pytest-kvtool: does a backend keep its layout, do two caches hold the same

    from kvtool.pytest_plugin import assert_layout, assert_same_kv

    def test_backend(engine, kv_snapshot):
        cache = kvtool.from_tensors(engine.kv_caches, layout="KBSHD", ...)
        assert_layout(engine.kv_caches, "kv-first-nhd", axes="KBSHD", block_size=16)
        assert_same_kv(cache, "reference.h5", tolerance="auto")
        assert_contract(cache, "backend.kvc")
        kv_snapshot(cache)              # kept beside the test; --kv-update writes it

The functions are fixtures, too.  What fails prints what kvtool diff prints, and leaves a
page of kvtool view, which pytest-html attaches where it is installed.
"""
from __future__ import annotations

import os
import re
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Union

import pytest

import kvtool
from . import _arrays, _native, _tensors, _view
from ._dump import Path

Cache = Union[kvtool.Dump, Path, Mapping[Any, Any], List[Any]]
#: of the test that runs: where reports go, what pytest-html is to show
_state: Dict[str, Any] = {"reports": None, "extras": []}


def _is_path(cache: Any) -> bool:
    return isinstance(cache, (str, os.PathLike))


def _opened(cache: Any) -> kvtool.Dump:
    if isinstance(cache, kvtool.Dump):
        return cache
    if _is_path(cache):
        return kvtool.open(cache)
    return kvtool.from_tensors(cache)   # of transformers; of tensors it asks for a layout


def _file_of(cache: Any, folder: str, name: str) -> str:
    """A path that kvtool(1) can read: of a dump in memory, a copy."""
    if _is_path(cache):
        return str(os.fspath(cache))
    path = os.path.join(folder, name + ".h5")
    _opened(cache).write(path, sync=False)
    return path


# ---- layout --------------------------------------------------------------------------

def physical_layout(tensor: Any, axes: str) -> str:
    """
    The order in which a tensor lies in memory, slowest first; axes of one entry, which
    lie anywhere, are left out.  'axes' names its dimensions as it is indexed ("KBSHD").
    """
    held = _tensors._Tensor("the tensor", tensor, None)  # pylint: disable=protected-access
    words = axes.upper().replace("N", "S")
    if len(words) != len(held.shape):
        raise kvtool.UsageError(f"axes are {axes!r}, but the tensor has "
                                f"{len(held.shape)} dimensions")
    order = sorted((i for i, n in enumerate(held.shape) if n > 1),
                   key=lambda i: -int(held.strides[i]))
    return "".join(words[i] for i in order)


def _without_single(layout: str, sizes: Mapping[str, int]) -> str:
    """The axes of a layout that have more than one entry; C is K, D."""
    words = layout.replace(" ", "").replace("C", "KD")
    return "".join(a for a in words if not a.isalpha() or sizes.get(a, 2) > 1)


def _sizes(tensor: Any, axes: str) -> Dict[str, int]:
    out = dict(zip(axes.upper().replace("N", "S"), tensor.shape))
    if "C" in out:
        out["D"] = out["C"]
    return out


def assert_layout(cache: Any, layout: str, *, axes: Optional[str] = None,
                  block_size: Optional[int] = None, heads: Optional[int] = None,
                  dtype: Optional[str] = None) -> None:
    """
    A dump or its path says that it has this layout; tensors of an engine have it in
    memory, by their strides: then ``axes`` names their dimensions as they are indexed.
    """
    __tracebackhide__ = True
    want = _native.layout_text(_native.parse_layout(layout))
    if isinstance(cache, kvtool.Dump) or _is_path(cache):
        dump = _opened(cache)
        for g in dump.groups:
            _same_facts(g.id, [("layout", g.layout, want), ("block size", g.block_size,
                                                            block_size),
                               ("heads", g.heads, heads), ("type", g.dtype, dtype)])
        return
    if axes is None:
        raise kvtool.UsageError("for tensors, name their axes in index order, such as axes=\"KBSHD\"")
    items = cache.items() if isinstance(cache, Mapping) else enumerate(cache)
    for name, tensor in items:
        sizes = _sizes(tensor, axes)
        is_ = physical_layout(tensor, axes).replace("C", "KD")
        _same_facts(f"layer {name}", [
            ("layout", is_, _without_single(want.replace("L", ""), sizes)),
            ("block size", sizes.get("S"), block_size), ("heads", sizes.get("H"), heads),
            ("type", _arrays.name_of(tensor.dtype), dtype)])


def _same_facts(name: str, facts: Any) -> None:
    __tracebackhide__ = True
    for what, is_, want in facts:
        if want is not None and is_ != want:
            pytest.fail(f"{name}: {what} is {is_}, expected {want}", pytrace=False)


# ---- values ----------------------------------------------------------------------------

def _options(tolerance: Any, common: bool) -> List[str]:
    out = ["--common"] if common else []
    if isinstance(tolerance, str):
        out.append(f"--tolerance={tolerance}")
    elif tolerance is not None:
        out.append(f"--atol={tolerance}")
    return out


def assert_same_kv(a: Any, b: Any, *, tolerance: Union[str, float, None] = None,
                   common: bool = False) -> None:
    """
    Both hold the same, in whatever layout: to the bit, or within ``tolerance``: "auto",
    a number, or terms of kvtool diff ("atol=1e-3,cosine=0.999").
    """
    __tracebackhide__ = True
    terms = isinstance(tolerance, str) and tolerance != "auto"
    if not terms:
        report = kvtool.diff(a, b, tolerance=tolerance, common=common, diagnose=False,
                             most=0)
        if report.same:
            return
    with tempfile.TemporaryDirectory(prefix="kvtool-") as folder:
        paths = [_file_of(a, folder, "a"), _file_of(b, folder, "b")]
        found = kvtool.run("diff", *_options(tolerance, common), *paths)
        if found.returncode == 0:
            return
        words = (found.stdout + found.stderr).replace(folder + os.sep, "")
        _fail(words, paths, _options(tolerance, False))


def _page(paths: List[str], options: List[str], words: str) -> Optional[_view.View]:
    """What kvtool view draws of the files; None where it cannot."""
    try:
        return _view.view([kvtool.open(path) for path in paths], options, words)
    except (kvtool.Error, OSError):
        return None


def _fail(words: str, paths: List[str], options: List[str]) -> None:
    __tracebackhide__ = True
    page = _page(paths, options, words)
    if page is not None:
        _state["extras"].append(page._repr_html_())  # pylint: disable=protected-access
    folder = _state["reports"]
    if page is not None and folder:
        os.makedirs(folder, exist_ok=True)
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", _state.get("test", "report"))[:150]
        path = os.path.join(folder, name + ".html")
        page.save(path, overwrite=True)
        words += f"\nreport: {path}"
    pytest.fail(words, pytrace=False)


def assert_contract(cache: Any, contract: Path) -> None:
    """The program finds nothing in a dump that breaks a contract (kvtool-expect(1))."""
    __tracebackhide__ = True
    with tempfile.TemporaryDirectory(prefix="kvtool-") as folder:
        path = _file_of(cache, folder, "cache")
        found = kvtool.run("expect", "check", contract, path)
        if found.returncode:
            _fail((found.stdout + found.stderr).replace(folder + os.sep, ""), [path], [])


# ---- fixtures --------------------------------------------------------------------------

def pytest_addoption(parser: Any) -> None:
    """--kv-update and --kv-reports."""
    group = parser.getgroup("kvtool")
    group.addoption("--kv-update", action="store_true",
                    help="write the dumps that kv_snapshot compares with")
    group.addoption("--kv-reports", metavar="DIR", default=None,
                    help="write a report in HTML for each comparison that fails")


@pytest.hookimpl(hookwrapper=True)  # type: ignore
def pytest_runtest_makereport(item: Any) -> Iterator[None]:
    """Hands reports to pytest-html where it is there."""
    outcome: Any = yield
    report = outcome.get_result()
    plugin = item.config.pluginmanager.getplugin("html")
    if report.when == "call" and _state["extras"] and plugin is not None:
        extras = getattr(report, "extras", [])
        report.extras = extras + [plugin.extras.html(p) for p in _state["extras"]]


@pytest.fixture(autouse=True)
def _kvtool_reports(request: Any) -> Iterator[None]:
    _state.update(reports=request.config.getoption("--kv-reports"), extras=[],
                  test=request.node.nodeid)
    yield


class Snapshots:
    """Dumps kept beside a test, in the folder kv_snapshots."""

    def __init__(self, request: Any) -> None:
        self._update = request.config.getoption("--kv-update")
        self._folder = os.path.join(os.path.dirname(str(request.node.path)),
                                    "kv_snapshots")
        self._name = re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.name)
        self._count = 0

    def path(self, name: Optional[str] = None) -> str:
        """Where the dump is kept; those without a name are counted."""
        if name is None:
            self._count += 1
            name = self._name + (f"-{self._count}" if self._count > 1 else "")
        return os.path.join(self._folder, name + ".h5")

    def __call__(self, cache: Any, name: Optional[str] = None, *,
                 tolerance: Union[str, float, None] = None) -> None:
        """Compares with the dump that is kept, or keeps this one."""
        __tracebackhide__ = True
        path = self.path(name)
        if self._update:
            os.makedirs(self._folder, exist_ok=True)
            _opened(cache).write(path, overwrite=True)
        elif not os.path.exists(path):
            pytest.fail(f"{path}: no dump is kept; pytest --kv-update writes it",
                        pytrace=False)
        else:
            assert_same_kv(path, cache, tolerance=tolerance)


@pytest.fixture
def kv_snapshot(request: Any) -> Snapshots:
    """A regression dump beside the test: kv_snapshot(cache)."""
    return Snapshots(request)


def _fixture(function: Callable[..., None]) -> Any:
    def give() -> Callable[..., None]:
        return function
    give.__doc__ = function.__doc__
    return pytest.fixture(name=function.__name__)(give)


_layout_fixture = _fixture(assert_layout)
_same_fixture = _fixture(assert_same_kv)
_contract_fixture = _fixture(assert_contract)
