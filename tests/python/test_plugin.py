# SPDX-License-Identifier: Apache-2.0
"""What the pytest plugin says, in tests of its own that pass and fail; run by pytest."""
import os
from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]
DATA = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "testdata", "kv",
                                    "s260k", "paged_bs16"))
START = f"""
import kvtool, numpy as np
from kvtool.pytest_plugin import assert_contract, assert_layout, assert_same_kv
NHD, HND = "{DATA}/packed_nhd.bf16.npy", "{DATA}/packed_hnd.bf16.npy"
FP16 = "{DATA}/packed_nhd.fp16.npy"

def in_memory(change=None):
    cells = kvtool.open(FP16).read(blocks=slice(None), bits=True)
    if change:
        change(cells)
    d = kvtool.open(FP16)
    return kvtool.from_tensors(
        [cells.view(np.float16)[:, l] for l in range(5)], layout="KBSHD",
        block_table={{r.id: r.blocks["g0"] for r in d.requests.values()}},
        num_tokens={{r.id: r.tokens for r in d.requests.values()}})
"""
# an installed wheel has told pytest of the plugin, and it is not to be named twice
INSTALLED = not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD") and any(
    e.name == "kvtool" for e in entry_points(group="pytest11"))
LOAD = [] if INSTALLED else ["-p", "kvtool.pytest_plugin"]


@pytest.fixture(name="run")
def _run(pytester):
    def run(body, *options, **counts):
        pytester.makepyfile(START + body)
        result = pytester.runpytest_subprocess(*LOAD, *options)
        result.assert_outcomes(**(counts or {"passed": 1}))
        return result.stdout.str()
    return run


def test_layout_of_a_dump(run):
    run("""
def test(assert_layout):
    assert_layout(NHD, "nhd", block_size=16, heads=4, dtype="bfloat16")
    assert_layout(kvtool.open(HND), "LBHSC")
""")


def test_another_layout_fails(run):
    text = run("def test(): assert_layout(NHD, 'hnd')", failed=1)
    assert "g0: layout is LBSHC, expected LBHSC" in text
    text = run("def test(): assert_layout(NHD, 'nhd', block_size=32)", failed=1)
    assert "g0: block size is 16, expected 32" in text


def test_layout_of_tensors_is_that_of_their_strides(run):
    run("""
def test():
    plain = np.zeros((2, 7, 16, 4, 8), np.float32)
    turned = np.zeros((2, 7, 4, 16, 8), np.float32).swapaxes(2, 3)
    assert_layout([plain], "kv-first-nhd", axes="KBSHD", block_size=16)
    assert_layout({"layers.0": turned}, "kv-first-hnd", axes="KBSHD", heads=4)
    one = np.zeros((7, 16, 1, 16), np.float32)
    assert_layout([one], "nhd", axes="BSHC")
    assert_layout([one], "hnd", axes="BSHC")
""")
    text = run("""
def test():
    assert_layout([np.zeros((2, 7, 4, 16, 8)).swapaxes(2, 3)], "kv-first-nhd", axes="KBSHD")
""", failed=1)
    assert "layer 0: layout is KBHSD, expected KBSHD" in text


def test_same(run):
    run("""
def test(assert_same_kv):
    assert_same_kv(NHD, HND)
    assert_same_kv(in_memory(), FP16)
    assert_same_kv(NHD, FP16, tolerance="auto")
    assert_same_kv(NHD, FP16, tolerance=0.1)
    assert_same_kv(NHD, FP16, tolerance="cosine=0.99")
""")


def test_what_differs_is_what_kvtool_diff_prints(run, tmp_path):
    text = run("""
def swap(cells):
    cells[:, 2, 17] = cells[::-1, 2, 17].copy()

def test():
    assert_same_kv(FP16, in_memory(swap))
""", f"--kv-reports={tmp_path}", failed=1)
    assert "fault   swap-kv" in text and "first   layer 2 " in text
    assert "where   layers 2" in text
    assert "Traceback" not in text
    report, = list(tmp_path.iterdir())
    page = report.read_text()
    assert "<svg" not in page and page.count("<!DOCTYPE html>") == 1
    assert '"fault":{"name":"swap-kv"' in page and "<pre>" in page
    assert "fault   swap-kv" in page and f"report: {report}" in text


def test_contract(run, pytester):
    pytester.makefile(".kvc", nhd="layout = nhd\nblock_size = 16\n")
    import kvtool
    made = kvtool.run("expect", "write", f"{DATA}/packed_nhd.bf16.npy", "nhd.kvc", "-f")
    assert made.returncode == 0, made.stderr
    run("def test(): assert_contract(NHD, 'nhd.kvc')")
    text = run("def test(): assert_contract(HND, 'nhd.kvc')", failed=1)
    assert "layout" in text and "Traceback" not in text


def test_snapshots(run, pytester):
    body = "def test(kv_snapshot): kv_snapshot(in_memory())"
    assert "pytest --kv-update writes it" in run(body, failed=1)
    run(body, "--kv-update")
    kept = os.listdir(os.path.join(str(pytester.path), "kv_snapshots"))
    assert kept == ["test.h5"]
    run(body)
    text = run("""
def flip(cells):
    cells[0, 1, 20, 3] ^= 1

def test(kv_snapshot): kv_snapshot(in_memory(flip))
""", failed=1)
    assert "layer 1" in text
