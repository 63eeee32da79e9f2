#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_notebook.py - what Python draws: pages, pictures, and numbers against numpy

The numbers of plot() are worked out again from what read() gives; the page must be the
file that kvtool view writes, byte for byte; matplotlib is a stand-in that notes its calls.
"""
import gc
import html.parser
import json
import os
import random
import sys
import types

import numpy as np
import oracle
from oracle import DATA, kvtool, patch, raises, read_text, tap, write_bytes
import kvtool as kv

FOLDER = f"{DATA}/s260k/paged_bs16"
HOSTILE = '</script><script>alert("x")//\' onload=\'&quot;$\\frac$'


def page_of(*arguments):
    r = kvtool("view", "-q", "-f", "-o", "page.html", *arguments, folder=os.getcwd())
    return read_text("page.html") if not r.code else ""


def data_of(view):
    """The JSON that the script of a page draws."""
    return json.loads(view.html.split('id="data">', 1)[1].split("</script>", 1)[0])


class Frame(html.parser.HTMLParser):
    """One element, and the page in it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.page, self.attrs, self.text = [], "", {}, ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attrs = dict(attrs)
        self.page = self.attrs.get("srcdoc", "")

    def handle_data(self, data):
        self.text += data


# ---- numbers -------------------------------------------------------------------------

def expected(cells, measure):
    """Of numbers in one cell of a map."""
    finite = cells[np.isfinite(cells)].astype("f8")
    if measure == "nonfinite":
        return float(cells.size - finite.size) if cells.size else np.nan
    if measure == "zero":
        return (finite == 0).sum() / cells.size if cells.size else np.nan
    if not finite.size:
        return np.nan
    return np.sqrt((finite ** 2).mean()) if measure == "rms" else np.abs(finite).max()


def two_halves(r):
    """A dump in memory with odd values, and its cells [kv, layer, block, slot, head, d]."""
    layers, blocks, heads = r.randint(1, 4), r.randint(2, 7), r.randint(1, 4)
    pool = np.random.default_rng(r.randrange(1 << 30)).standard_normal(
        (2, layers, blocks, 4, heads, 8)).astype("f4")
    flat = pool.reshape(-1)
    for value in (0, np.nan, np.inf, -np.inf):
        flat[r.sample(range(pool.size), r.randrange(40))] = value
    if r.random() < 0.2:
        pool[:, 0, :, :, 0] = np.nan
    return kv.from_tensors([pool[:, i] for i in range(layers)], layout="KBSHD"), pool


def numbers():
    r, wrong = random.Random(36), []
    for i in range(60):
        d, pool = two_halves(r)
        measure = r.choice(["rms", "largest", "zero", "nonfinite"])
        axis, place = r.choice([("head", 4), ("block", 2)])
        turned, half = r.random() < 0.5, r.choice([None, "k", "v"])
        shown = d.plot(measure, by=(axis, "layer") if turned else ("layer", axis), kv=half)
        want = np.array([[[expected(pool[k, l].take(c, place - 2), measure)
                           for c in range(pool.shape[place])]
                          for l in range(pool.shape[1])] for k in range(2)])
        want = want.swapaxes(1, 2) if turned else want
        want = want if half is None else want["kv".index(half)]
        rows = tuple(range(pool.shape[1])), tuple(range(pool.shape[place]))
        if shown.values.shape != want.shape or not np.allclose(
                shown.values, want, rtol=1e-5, equal_nan=True) or \
                (shown.columns, shown.rows)[:: 1 if turned else -1] != rows or \
                shown.axes is not None or shown.read_bytes != shown.data_bytes:
            wrong.append((i, measure, axis, turned, half))
    tap.ok(not wrong, "60 maps are what numpy makes of the same elements", wrong)
    d = kv.open(f"{FOLDER}/packed_nhd.bf16.npy")
    values, axes = d.plot("largest", by=("layer", "token"))
    shown = d.plot("largest", by=("layer", "token"))
    wrong = []
    for column, (request, token) in enumerate(shown.columns):
        span = slice(token, min(token + 16, d.requests[request].tokens))
        here = np.abs(d.read(request=request, tokens=span, dtype="float32"))
        if not np.allclose(values[:, :, column], here.max(axis=(2, 3, 4)), rtol=1e-5):
            wrong.append((request, token))
    tap.ok(axes is None and len(shown.columns) > 9 and not wrong,
           "by token: columns are named by their request and token", wrong)
    large = kv.from_tensors([np.ones((2, 512, 16, 8, 64), "f4")], layout="KBSHD")
    part = large.plot(sample=1 << 20, threads=2, memory=64 << 20)
    tap.ok(part.read_bytes < part.data_bytes == large.plot(all=True).read_bytes == 32 << 20 and
           raises(kv.UsageError, lambda: d.plot(sample=1, all=True), "exclude"),
           "a sample says how much it read")
    several = kv.open(os.path.join(oracle.ROOT, "testdata/engines/transformers/5.23.0/"
                                               "dynamic.pt"))
    tap.ok(several.plot(group="g1").rows == (2,) and
           raises(kv.UsageError, several.plot, "give group=") and
           raises(kv.UsageError, lambda: d.plot("mean"), "'mean'", "nonfinite") and
           raises(kv.UsageError, lambda: d.plot(by=("layer", "dim")), "dim") and
           raises(kv.UsageError, lambda: d.plot(by="layer"), "by is") and
           raises(kv.UsageError, lambda: kv.from_tensors(
               [np.zeros((2, 3, 4, 1, 8), "f4")], layout="KBSHD").plot(
                   by=("layer", "token")), "no requests"), "what cannot be drawn is said")


class Axes:
    """Of a matplotlib that is not there: what it was told."""

    def __init__(self):
        self.told, self.figure = {}, self

    def __getattr__(self, name):
        return lambda *a, **k: self.told.setdefault(name, a)


def plotted():
    own, given = Axes(), Axes()
    pyplot = types.ModuleType("matplotlib.pyplot")
    pyplot.subplots = lambda: (own, own)
    package = types.ModuleType("matplotlib")
    package.pyplot = pyplot
    sys.modules.update({"matplotlib": package, "matplotlib.pyplot": pyplot})
    pool = np.ones((2, 3, 4, 2, 8), "f4")
    d = kv.from_tensors([pool, pool], layout="KBSHD", block_table={HOSTILE: [1, 2]})
    try:
        values, axes = d.plot(by=("layer", "token"))
        tap.ok(axes is own and own.told["imshow"][0].shape == (2, 4) and
               values.shape == (2, 2, 2) and own.told["set_ylabel"] == ("layer",) and
               own.told["set_title"][0].startswith("rms of g0, keys | values"),
               "matplotlib draws keys and values beside each other", own.told)
        words = own.told["set_xticks"][1]
        plain = words[0].replace("\\$", "$")
        tap.ok(len(words) == 4 and all(w.count("$") == w.count("\\$") > 0 for w in words) and
               plain == f"{HOSTILE} 0", "a name is no formula, and its token stands behind it",
               words)
        tap.ok(d.plot(kv="v", ax=given).axes is given and
               given.told["imshow"][0].shape == (2, 2), "Axes that are given are drawn into")
    finally:
        for name in ("matplotlib", "matplotlib.pyplot"):
            del sys.modules[name]


# ---- pages ---------------------------------------------------------------------------

def pages(tmp):
    good, other = f"{FOLDER}/packed_nhd.bf16.npy", f"{FOLDER}/packed_nhd.fp16.npy"
    d = kv.open(good)
    view = d.view()
    tap.ok(view.html == page_of(good) and good in repr(view), "the page is that of kvtool view")
    frame = Frame(view._repr_html_())
    tap.ok(frame.tags == ["iframe"] and frame.page == view.html and
           good in frame.text and "trusted" in frame.text and
           frame.attrs["sandbox"] == "allow-scripts",
           "a notebook has it in a frame, and words where frames are taken away",
           (frame.tags, frame.attrs.get("sandbox"), frame.text))
    view.save("saved.html")
    same = read_text("saved.html") == view.html
    tap.ok(same and raises(kv.SystemFailure, lambda: view.save("saved.html"),
                            "overwrite=True"), "it is saved, and replaces nothing unasked")
    view.save("saved.html", overwrite=True)
    # what was told of a file, and a path that looks like an option
    np.save("-o.npy", np.ones((2, 5, 4, 3, 8), "f4"))
    told = {"layout": "KBSHD", "blocks_of": {HOSTILE: [1, 2]}}
    raw = kv.open("-o.npy", **told)
    tap.ok(raw.view().html == page_of("--layout=KBSHD", f"--blocks-of={HOSTILE}=1,2", "--",
                                      "-o.npy"), "what was told is told to the program")
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    tap.ok(data_of(raw.view())["dumps"][0]["requests"][0]["id"] == HOSTILE,
           "from another folder, too")
    os.chdir(tmp)
    # in memory and derived: what they have is what the file has
    page = data_of(d.reblock(32).view())["dumps"][0]
    tap.ok(page["groups"][0]["block_size"] == 32 and page["file"].endswith(".h5") and
           "/" not in page["file"] and len(page["requests"]) == 3, "of a derived dump, a copy",
           page["file"])
    huge = kv.open(good)
    import kvtool._view as module
    before, module.COPIED = module.COPIED, 1000
    tap.ok(raises(kv.UsageError, huge.reblock(32).view, "no copy", "1000"),
           "none of a large one")
    module.COPIED, module.CHEAP = before, 1000
    shown = huge._repr_html_()
    tap.ok("<img" not in shown and "are not read" in shown and ".view()" in shown and
           "<table" in shown, "nothing is read of a large dump to show it")
    module.CHEAP = 16 << 20
    named, os.environ["KVTOOL"] = os.environ["KVTOOL"], f"{tmp}/none"
    tap.ok("<img" not in d._repr_html_() and "<table" in d._repr_html_() and
           raises(kv.SystemFailure, d.view, "none"), "without the program there are tables")
    os.environ["KVTOOL"] = named
    d.close()
    tap.ok(raises(kv.UsageError, d.view, "closed") and
           raises(kv.UsageError, d.plot, "closed"), "a closed dump is not drawn")
    write_bytes("cut.npy", open(good, "rb").read())
    oracle.copy_manifest(good, "cut.npy")
    changed = kv.open("cut.npy")
    patch("cut.npy", 200, b"\xff" * 9)
    os.utime("cut.npy", (1, 1))
    tap.ok(raises(kv.Error, changed.view, "cut.npy"), "a file that changed is not drawn")
    compared(good, other)


def compared(good, other):
    kvtool("mutate", "--fault=swap-kv,layer=2,block=17", good, "bad.npy", folder=os.getcwd())
    report = kv.diff(good, "bad.npy")
    view = report.view()
    fault = data_of(view)["diff"]["groups"][0]["fault"]
    tap.ok("<td" in report._repr_html_() and ">swap-kv: keys" in report._repr_html_() and
           fault["name"] == "swap-kv" and
           view.html == page_of(good, os.path.abspath("bad.npy")) and
           report._repr_html_().count("<img") == 1, "two dumps, with the fault", fault)
    a, b = kv.open(good), kv.open(other)
    page = data_of(kv.diff(a, b, tolerance="auto").view())
    tap.ok(page["diff"]["result"] == "within" and
           data_of(kv.diff(a, b, atol=1e-6).view())["diff"]["result"] == "differs" and
           data_of(kv.diff(a, b, exact=True).view())["diff"]["result"] == "differs",
           "the tolerance is that of the report", page["diff"]["result"])
    words = kv.diff(a, "bad.npy", by="blocks").view().html
    tap.ok("<pre>The pictures are without by=" in words and "swap-kv: keys" in words,
           "what the page does not do, it says")
    pool = [np.ones((2, 3, 4, 2, 8), "f4")]
    changed = [pool[0] * 2]
    table = {HOSTILE: [1, 2]}
    one, two = (kv.from_tensors(p, layout="KBSHD", block_table=table) for p in (pool, changed))
    report = kv.diff(one, two, atol=9)
    tap.ok(data_of(report.view())["diff"]["result"] == "within" and
           Frame(report.view()._repr_html_()).tags == ["iframe"] and
           Frame(report.view()._repr_html_()).page == report.view().html and
           "alert(" not in report.view().html.replace("\\u003c/script>\\u003cscript>alert(",
                                                       ""), "of tensors, with hostile names")
    words = kv.diff(one, two, scale_a=1.0).view().html
    tap.ok("without scale_a=" in words and "of &lt;/script&gt;" in words and
           "</script><script>alert" not in words, "and in what the report says")
    plain = kv.diff(pool, changed, layout="KBSHD")
    tap.ok(data_of(plain.view())["diff"]["groups"][0]["different"] == 384,
           "of tensors that were given as they are")
    of_temporaries = kv.diff(kv.open(good), kv.open(good))
    tap.ok(data_of(of_temporaries.view())["diff"]["result"] == "equal",
           "of dumps that are closed, whose files are opened again")
    del pool, changed, one, two
    gc.collect()
    tap.ok(raises(kv.UsageError, plain.view, "gone") and
           raises(kv.UsageError, report.view, "gone") and "<table" in report._repr_html_(),
           "a report holds no memory")


def main(tmp):
    numbers()
    plotted()
    before = os.getcwd()
    os.chdir(tmp)
    try:
        pages(tmp)
    finally:
        os.chdir(before)


oracle.run(main)
