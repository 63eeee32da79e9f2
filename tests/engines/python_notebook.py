# SPDX-License-Identifier: Apache-2.0
"""
python_notebook.py - docs/python.ipynb in a real Jupyter, from top to bottom

Each cell must show again what is stored, numbers as near as torch comes on another CPU;
therefore it is run with other kernels of torch, too.  Then the notebook as HTML in a
browser, and plot() with the matplotlib that oracle_notebook.py has a stand-in for.

    python_notebook.py NOTEBOOK         runs it, and writes what it shows into it
"""
import copy
import json
import os
import re
import struct
import sys
from base64 import b64decode

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "scripts"), os.path.join(ROOT, "tests"), os.path.join(ROOT, "python")]

import ipykernel
import matplotlib
import nbclient
import nbformat
import torch
import transformers

import notebook_page
from notebook_page import text_of
from proof import Proof
from plain_files import write_text

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
VERSION = f"ipykernel {ipykernel.__version__}, matplotlib {matplotlib.__version__}"


# ---- running ----------------------------------------------------------------------

def environment(folder, program, **more):
    """Of the kernel: this kvtool, and nothing of the user's own settings."""
    own = {name: os.path.join(folder, name.lower()) for name in (
        "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR",
        "MPLCONFIGDIR")}
    return {**os.environ, **own, "KVTOOL": program, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": os.path.join(ROOT, "python"), "PYTHONDONTWRITEBYTECODE": "1",
            "KVTOOL_LIBRARY": os.path.join(os.path.dirname(program), "libkvt.so.0"), **more}


def executed(path, folder, env, times=1):
    """
    A copy of it with what it shows now, each cell after having been run so many times, as a
    reader may; warnings on stderr are of a machine.
    """
    nb = nbformat.read(path, 4)
    nb.cells = [copy.deepcopy(cell) for cell in nb.cells for _ in range(times)]
    os.environ.update(env)
    work = os.path.join(folder, "cells")
    os.makedirs(work)
    nbclient.NotebookClient(nb, timeout=300, kernel_name="python3", record_timing=False,
                            coalesce_streams=True, resources={"metadata": {"path": work}}).execute(env=env)
    nb.cells = nb.cells[times - 1::times]
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.metadata = {k: v for k, v in cell.metadata.items() if k == "alt"}
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
    nb.metadata = {"kernelspec": nb.metadata["kernelspec"], "language_info": {"name": "python"}}
    return nb


# ---- comparing --------------------------------------------------------------------

def near(a, b):
    """Counts exactly; roundings within ten times; other numbers within a third."""
    if a == b:
        return True
    x, y = float(a), float(b)
    if "e-" in a and "e-" in b:
        return 0.1 < x / y < 10
    counts = a.isdigit() and len(a) < 4 or b.isdigit() and len(b) < 4
    return not counts and abs(x - y) <= max(abs(x), abs(y)) / 3


def alike(a, b):
    """The same words, and numbers that are near."""
    return NUMBER.sub("0", a) == NUMBER.sub("0", b) and \
        all(map(near, NUMBER.findall(a), NUMBER.findall(b)))


def drawn(kind, what):
    """Of a picture its words, of a page the dumps, groups and faults that it has."""
    if kind == "svg":
        return set(NUMBER.sub("0", re.sub("<[^>]*>", " ", what.decode())).split())
    data = json.loads(what.split('id="data">', 1)[1].split("</script>", 1)[0])
    return ([(d["file"], [g["id"] for g in d["groups"]]) for d in data["dumps"]],
            [g["fault"] for g in (data.get("diff") or {}).get("groups", [])])


def part_alike(a, b):
    (kind, one), (other, two) = a, b
    if kind != other:
        return False
    if kind in ("svg", "frame"):
        return drawn(kind, one) == drawn(kind, two)
    if kind == "table":
        one, two = ("\n".join(" ".join(cell for cell, _ in row) for row in t) for t in (one, two))
    return alike(one, two)


def same_size(*pngs):
    """But for a label that is a digit longer."""
    sizes = [struct.unpack(">2I", b64decode(png)[16:24]) for png in pngs]
    return all(abs(x - y) <= max(x, y) / 10 for x, y in zip(*sizes))


def difference(stored, now):
    """Of one output; '': none."""
    if stored["output_type"] != now["output_type"]:
        return f"{now['output_type']}, not {stored['output_type']}"
    one, two = stored.get("data", {}), now.get("data", {})
    if set(one) != set(two):
        return f"{sorted(two)}, not {sorted(one)}"
    for a, b in ((stored.get("text", ""), now.get("text", "")),
                 (one.get("text/plain", ""), two.get("text/plain", ""))):
        if not alike(text_of(a), text_of(b)):
            return f"now\n{text_of(b)}\nstored\n{text_of(a)}"
    parts = [notebook_page.Shown(text_of(x.get("text/html", ""))).parts for x in (one, two)]
    if len(parts[0]) != len(parts[1]):
        return f"{len(parts[1])} parts of HTML, not {len(parts[0])}"
    for a, b in zip(*parts):
        if not part_alike(a, b):
            return f"{b[0]}: now\n{b[1]}\nstored\n{a[1]}"
    if "image/png" in one and not same_size(one["image/png"], two["image/png"]):
        return "a picture of another size"
    return ""


def cell_difference(stored, now):
    if len(stored["outputs"]) != len(now["outputs"]):
        return f"{len(now['outputs'])} outputs, not {len(stored['outputs'])}"
    return next(filter(None, map(difference, stored["outputs"], now["outputs"])), "")


# ---- proofs -----------------------------------------------------------------------

WHAT = "the notebook of docs/ runs from top to bottom, and shows what is stored"
MODELS = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"


def runs(proof, on, times=1, **more):
    stored = nbformat.read(notebook_page.NOTEBOOK, 4)
    with proof.row(WHAT, on) as row:
        folder = proof.folder("run")
        now = executed(notebook_page.NOTEBOOK, folder, environment(folder, proof.program, **more),
                       times)
        for a, b in zip(stored.cells, now.cells):
            if a.cell_type == "code":
                why = cell_difference(a, b)
                row.ok(not why, f"cell {a.id}", why)
    return now


def bites(proof, now):
    """What is stored, changed: each must be found."""
    def count(cell):
        cell.outputs[0].text = cell.outputs[0].text.replace("elements differ", "elements are one")

    def number(cell):
        data = cell.outputs[0]["data"]
        data["text/plain"] = data["text/plain"].replace("(8, 4", "(9, 4")

    def picture(cell):
        del cell.outputs[0]["data"]["image/png"]

    def nothing(cell):
        cell.outputs = []

    def heading(cell):
        data = cell.outputs[0]["data"]
        data["text/html"] = data["text/html"].replace("cosine", "sine")

    with proof.row("a notebook that shows something else is found", "5 changes planted") as row:
        for name, change in (("eager", count), ("read", number), ("plot", picture),
                             ("view", nothing), ("fault", heading)):
            cell = next(c for c in now.cells if c.id == name)
            changed = copy.deepcopy(cell)
            change(changed)
            row.ok(not cell_difference(cell, cell) and cell_difference(changed, cell),
                   f"{name}: {change.__name__}")


SEEN = """(() => ({
    pictures: [...document.images].filter(i => i.complete && i.naturalWidth > 100).length,
    missing: [...document.images].filter(i => !i.naturalWidth).length,
    frames: document.querySelectorAll('iframe').length,
    words: document.querySelectorAll('td').length}))()"""
DRAWN = "document.querySelectorAll('main svg, main canvas').length"


def in_browser(proof, now):
    """As nbconvert writes it: pictures have a size, and scripts of the frames have drawn."""
    from nbconvert import HTMLExporter
    import browser
    what, on = "the notebook as HTML shows its pictures and pages", "Chromium, light and dark"
    if not browser.CHROMIUM:
        proof.skip(what, on, "no Chromium on this machine")
        return
    page = notebook_page.Page(now)
    path = os.path.join(proof.folder("html"), "python.html")
    write_text(path,
               HTMLExporter(require_js_url="", mathjax_url="").from_notebook_node(now)[0])
    with proof.row(what, on) as row:
        for dark in (False, True):
            one = browser.Browser()
            try:
                one.open(path, dark=dark)
                seen = one.run(SEEN)
                row.ok(seen["pictures"] == len(page.pictures) and not seen["missing"] and
                       seen["frames"] == len(page.frames) and seen["words"] > 50,
                       f"pictures and tables, dark: {dark}", seen)
                drawn = one.run_in_frames(DRAWN)
                row.ok(len(drawn) == len(page.frames) and all(n > 2 for n in drawn),
                       f"scripts of the frames have drawn, dark: {dark}", drawn)
            finally:
                one.close()


def with_matplotlib(proof):
    """What plot() hands to matplotlib, as that has it."""
    matplotlib.use("Agg")
    import kvtool
    import numpy as np
    from matplotlib import pyplot
    pool = np.random.default_rng(3).standard_normal((2, 4, 3, 4, 2, 8)).astype("f4")
    name = "$\\frac$"
    d = kvtool.from_tensors(list(pool.swapaxes(0, 1)), layout="KBSHD", block_table={name: [1, 2]})
    with proof.row("maps of plot() as matplotlib has them", "by head, token and block") as row:
        for by in (("layer", "head"), ("layer", "token"), ("block", "layer")):
            for half in ("k", None):
                values, ax = d.plot("largest", by=by, kv=half)
                said = f"{by}, {half}"
                image = np.asarray(ax.images[0].get_array())
                want = values if half else np.concatenate(list(values), axis=1)
                row.ok(np.array_equal(image, want) and ax.get_ylabel() == by[0] and
                       ax.get_xlabel() == by[1], f"the map is the array: {said}", image)
                ax.figure.canvas.draw()         # which raises for a formula that is none
                ticks = [t.get_text() for t in ax.get_xticklabels()]
                row.ok(len(ticks) == want.shape[1] and
                       (by[1] != "token" or ticks[0] == "\\$\\frac\\$ 0"), f"ticks: {said}", ticks)
                bar = ax.figure.axes[1]
                row.equal(bar.get_ylabel(), "largest", f"the bar of colours: {said}")
                pyplot.close(ax.figure)
        fig, (left, right) = pyplot.subplots(1, 2)
        row.ok(d.plot(ax=right).axes is right and right.images and not left.images,
               "Axes that are given are drawn into")
        pyplot.close(fig)


def main():
    proof = Proof("Jupyter", VERSION)
    os.environ.update(environment(proof.folder("settings"), proof.program))
    now = runs(proof, MODELS)
    runs(proof, f"{MODELS}, each cell twice", times=2)
    runs(proof, f"{MODELS} without vector instructions, one thread",
         ATEN_CPU_CAPABILITY="default", OMP_NUM_THREADS="1")
    bites(proof, now)
    in_browser(proof, now)
    with_matplotlib(proof)
    return proof.done()


def write(path):
    """KVTOOL, or the program that was built here."""
    import tempfile
    program = os.environ.get("KVTOOL") or os.path.join(ROOT, "build", "kvtool")
    with tempfile.TemporaryDirectory() as folder:
        now = executed(path, folder, environment(folder, program))
    nbformat.write(now, path)


if __name__ == "__main__":
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        sys.exit(write(sys.argv[1]))
    sys.exit(main())
