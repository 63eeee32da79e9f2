#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_whose.py - who wrote an offload tree: trees of known TP and pages, and breaks

A model is made up of which only this is true: the values of its first layer are those of
the token, its keys those of token and position, and nothing else is ever the same twice,
but where two prompts begin alike.
Trees are written from it with all orders that vLLM has.  Sound ones must give no error
and the truth, or that it is not known; in broken ones the break must be named, and
nothing else.
"""
import hashlib
import json
import os
import shutil

import numpy as np

import oracle
import store_trees as st
from oracle import kvtool, refused, runs, tap

RNG = np.random.default_rng(20261127)
ENGINES = os.environ.get("KVT_ENGINES", f"{oracle.ENGINES}/vllm")
SLOTS, DIM, VOCABULARY = 16, 8, 60
#: Zipf's law
OFTEN = 1 / np.arange(1, VOCABULARY + 1)
OFTEN /= OFTEN.sum()
#: orders of a row, the slowest first, and what its pages are called
LAYERS = {"LBSHKD": "NHD", "LBKSHD": "NHD", "LBHSKD": "HND", "LBKHSD": "HND"}
BLOCKS = {"BLSHKD": "NHD", "BLHSKD": "HND"}


class Model:
    def __init__(self, layers, heads):
        self.layers, self.heads = layers, heads
        self.first = RNG.standard_normal((2, VOCABULARY, heads, DIM)).astype(np.float32)

    def cells(self, tokens, like=None, alike=0):
        """K L B S H D of a prompt; its first 'alike' tokens have what 'like' has."""
        shape = (2, self.layers, len(tokens), self.heads, DIM)
        out = RNG.standard_normal(shape).astype(np.float32)
        out[1, 0] = self.first[1, tokens]
        # keys of the first layer depend on the position, too, and on nothing else
        turn = (1 + 0.37 * np.arange(len(tokens), dtype=np.float32))[:, None, None]
        out[0, 0] = self.first[0, tokens] * turn
        if alike:
            out[:, :, :alike] = like[:, :, :alike]
        return out


def prompts(model, files, per_file):
    """Cells of prompts, as one array of blocks, by Zipf's law."""
    out, before, tokens, left = [], None, None, files
    while left:
        n = min(int(RNG.integers(1, 5)), left)
        left -= n
        n *= SLOTS * per_file
        new = RNG.choice(VOCABULARY, n, p=OFTEN)
        alike = 0
        if before is not None and RNG.random() < 0.5:
            alike = int(RNG.integers(1, min(n, len(tokens)) + 1)) // 2
            new[:alike] = tokens[:alike]
        before, tokens = model.cells(new, before, alike), new
        out.append(before)
    cells = np.concatenate(out, axis=2)
    k, l, t, h, d = cells.shape
    return cells.reshape(k, l, t // SLOTS, SLOTS, h, d)


def row(cells, order, ranks):
    heads = cells.shape[4] // ranks
    return b"".join(st.ordered(cells[..., r * heads:(r + 1) * heads, :], order)
                    for r in range(ranks))


class Tree:
    """Files of 'per_file' blocks, each in an order of its own if it is told so."""

    def __init__(self, root, model, per_file, files, canonical=None):
        names = [f"model.layers.{i}.self_attn.attn" for i in range(model.layers)]
        more = {"canonical_format": canonical} if canonical else {}
        self.config = st.renamed(st.offload_config(
            [(SLOTS, names)], "float32", blocks_per_file=per_file, **more))
        self.root, self.model, self.per_file = root, model, per_file
        self.cells = prompts(model, files, per_file)
        self.names = [hashlib.sha256(RNG.bytes(8)).hexdigest() for _ in range(files)]
        st.put(os.path.join(root, st.offload_base(self.config), "config.json"),
               json.dumps(self.config, indent=2, sort_keys=True).encode())

    def path(self, i):
        return st.offload_file(self.root, self.config, 0, 0, self.names[i])

    def some(self, i):
        return self.cells[:, :, i * self.per_file:(i + 1) * self.per_file]

    def write(self, order, ranks, only=None, cells=None):
        """'only': files that were written later, by an engine that rounds otherwise."""
        for i in range(len(self.names)) if only is None else only:
            if only is not None:
                later = self.some(i)[:, 1:]
                later[:] = RNG.standard_normal(later.shape)
            raw = row(self.some(i) if cells is None else cells[:, :, :self.per_file],
                      order, ranks)
            st.put(self.path(i), raw.ljust(-len(raw) % 4096 + len(raw), b"\0"))

    def said(self, order, ranks=None):
        out = [f"--layout={order}", f"--heads={self.model.heads}", f"--head-dim={DIM}"]
        return out + ([f"--set=tp-size={ranks}"] if ranks else []) + [self.root]


def fsck(args):
    """(result, {rule: [texts]}, writer)"""
    run = kvtool("fsck", "--json", *args)
    found = {}
    try:
        report = run.json["files"][0]
    except (ValueError, KeyError, IndexError):
        return run, {"no JSON": [run.err]}, ""
    for f in report["findings"]:
        found.setdefault(f["name"], []).append(f["problem"])
    return run, found, (report.get("looked_at") or {}).get("writer") or ""


def shape():
    heads = int(RNG.choice([4, 8]))
    ranks = int(RNG.choice([t for t in (1, 2, 4, 8) if heads % t == 0]))
    per_file = int(RNG.choice([1, 1, 2, 4]))
    orders = list(LAYERS) + list(BLOCKS)
    return (Model(int(RNG.integers(3, 6)), heads), ranks, per_file,
            orders[int(RNG.integers(len(orders)))])


def fits(writer, order, ranks, heads, per_file, canonical):
    """Is what is said the truth?"""
    page = {**LAYERS, **BLOCKS}[order]
    want = "canonical form" if canonical and per_file == 1 else f"TP {ranks}"
    if per_file > 1:
        want += ", layers outermost" if order in LAYERS else ", blocks outermost"
    elif ranks == heads:
        want += ", or heads outside of layers"
    return writer.startswith((f"{want}, {page}: likely", f"{want}: likely"))


def sound(cases):
    known = pages = 0
    for case in range(cases):
        model, ranks, per_file, order = shape()
        canonical = order in LAYERS and case % 5 == 0
        ranks = 1 if canonical else ranks
        files = int(RNG.integers(6, 20))
        with oracle.workdir() as work:
            family = "v1-" + LAYERS.get(order, "nhd").lower()
            tree = Tree(work + "/t", model, per_file, files, canonical and family)
            tree.write(order, ranks)
            run, found, writer = fsck(tree.said(order, None if canonical else ranks))
            right = fits(writer, order, ranks, model.heads, per_file, canonical)
            known += right
            pages += right and ("NHD" in writer or "HND" in writer)
            if run.code or found or not (right or "not known" in writer):
                tap.ok(False, f"sound tree {case}: {order}, TP {ranks}, {model.heads} heads, "
                       f"{per_file} blocks a file", f"{writer}\n{found}\n{run}")
                return
    tap.ok(known > cases * 0.8 and pages > cases * 0.5,
           f"{cases} sound trees without a finding; of {known} who wrote them is known, "
           f"of {pages} the pages")


# ---- breaks ------------------------------------------------------------------------

def other(values, but):
    values = [v for v in values if v != but]
    return values[int(RNG.integers(len(values)))]


def expect(name, args, rule, *parts, alone=True):
    run, found, writer = fsck(args)
    texts = " ".join(found.get(rule, []))
    good = run.code == (0 if rule in ("row.foreign", "file.leftover") else 1)
    good = good and all(p in texts for p in parts) and (not alone or list(found) == [rule])
    return good or tap.ok(False, name, f"{rule} {parts}\n{found}\n{writer}\n{run}")


def other_ranks(tree, order, ranks, heads):
    """The whole tree is of another TP than is said."""
    tree.write(order, ranks)
    said = other([t for t in (1, 2, 4, 8) if heads % t == 0], ranks)
    return expect("other TP", tree.said(order, said), "row.ranks", f"fit TP {ranks}",
                  f"read as TP {said}")


def some_of_other_ranks(tree, order, ranks, heads):
    """The folder went on being used after a change of TP."""
    later = other([t for t in (1, 2, 4, 8) if heads % t == 0], ranks)
    n = int(RNG.integers(1, len(tree.names) // 3))
    tree.write(order, ranks)
    tree.write(order, later, range(n))
    return expect(f"{n} files of TP {later}", tree.said(order, ranks), "row.mixed",
                  f"fit TP {later}", *[tree.names[i] for i in range(n)])


def other_pages(tree, order, ranks, heads):
    said = other([o for o in LAYERS if LAYERS[o] != LAYERS[order]], order)
    tree.write(order, ranks)
    return expect("other pages", tree.said(said, ranks), "row.layout",
                  f", {LAYERS[order]}, but")


def some_of_other_pages(tree, order, ranks, heads):
    later = other([o for o in LAYERS if LAYERS[o] != LAYERS[order]], order)
    tree.write(order, ranks)
    tree.write(later, ranks, [2])
    return expect("a file of other pages", tree.said(order, ranks), "row.mixed",
                  tree.names[2], LAYERS[later])


def blocks_outermost(tree, order, ranks, heads):
    tree.write({"NHD": "BLSHKD", "HND": "BLHSKD"}[LAYERS[order]], ranks)
    return expect("blocks outermost", tree.said(order, ranks), "row.ranks",
                  f"fit TP {ranks}, blocks outermost")


def truncated(tree, order, ranks, heads):
    tree.write(order, ranks)
    os.truncate(tree.path(3), int(RNG.integers(1, os.path.getsize(tree.path(3)))))
    return expect("a cut file", tree.said(order, ranks), "row.length", tree.names[3])


def foreign_name(tree, order, ranks, heads):
    tree.write(order, ranks)
    st.put(os.path.dirname(tree.path(1)) + "/notes.txt", b"to do\n")
    return expect("a file of another kind", tree.said(order, ranks), "file.foreign",
                  "notes.txt")


def foreign_model(tree, order, ranks, heads):
    tree.write(order, ranks)
    cells = prompts(Model(tree.model.layers, heads), 1, tree.per_file)
    tree.write(order, ranks, [1], cells)
    return expect("a file of another model", tree.said(order, ranks), "row.foreign",
                  tree.names[1])


def leftover(tree, order, ranks, heads):
    tree.write(order, ranks)
    os.rename(tree.path(0), tree.path(0) + "_8812345.tmp")
    return expect("a write that did not end", tree.said(order, ranks), "file.leftover",
                  tree.names[0])


#: blocks of a file; None: any
BREAKS = {other_ranks: None, some_of_other_ranks: None, other_pages: None,
          some_of_other_pages: None, blocks_outermost: 2, truncated: None,
          foreign_name: None, foreign_model: None, leftover: None}


def broken(cases):
    kinds, good = list(BREAKS), 0
    for case in range(cases):
        kind = kinds[case % len(kinds)]
        order = list(LAYERS)[int(RNG.integers(len(LAYERS)))]
        # where keys come first, half of the pieces are not looked at
        heads = 8 if order[2] == "K" else int(RNG.choice([4, 8]))
        # with a head a rank pages have one order
        ranks = int(RNG.choice([t for t in (1, 2, 4) if t < heads]))
        per_file = BREAKS[kind] or int(RNG.choice([1, 1, 2]))
        with oracle.workdir() as work:
            tree = Tree(work + "/t", Model(int(RNG.integers(4, 6)), heads), per_file, 24)
            good += bool(kind(tree, order, ranks, heads))
    tap.ok(good == cases, f"{cases} broken trees, each named, nothing else said")


# ---- what an engine wrote ----------------------------------------------------------

#: trees of vLLM 0.32, what is said of each, who wrote it
REAL = {"offload_tp1_vec_bs32": ("cpu-vec", 1, "TP 1, HND: likely"),
        "offload_tp2_vec_bs32": ("cpu-vec", 2, "TP 2, HND: likely"),
        "offload_tp1_vec_bs32_chunk2": ("cpu-vec", 1, "TP 1, layers outermost, HND: likely"),
        "offload_tp2_canonical": ("cpu-vec", None, "canonical form, HND: likely"),
        "offload_tp1_amx_canonical": ("cpu-amx", None, "not known")}


def real():
    """Of some testdata has one file, in which nothing repeats; KVT_ENGINES has them whole."""
    for name, (layout, ranks, want) in REAL.items():
        root = os.path.join(ENGINES, name, "root")
        said = [f"--layout={layout}", "--heads=4", "--head-dim=32", root]
        run, found, writer = fsck(said + ([f"--set=tp-size={ranks}"] if ranks else []))
        known = writer.startswith(want)
        tap.ok(run.code == 0 and not found and (known or "not known" in writer),
               f"{name}: {writer}", run)
        if ranks:
            run, found, writer = fsck(said + [f"--set=tp-size={4 if ranks == 1 else 1}"])
            tap.ok(list(found) == ["row.ranks"] and
                   f"fit TP {ranks}" in found["row.ranks"][0] if known else not found,
                   f"{name}: another TP is said", run)
    one, two = (os.path.join(ENGINES, name, "root") for name in list(REAL)[:2])
    later = sorted(name for name in st.tree(two) if name.endswith(".bin"))[:-4]
    with oracle.workdir() as work:
        shutil.copytree(one, work + "/t")
        for name in later:
            st.put(os.path.join(work, "t", name), st.get(os.path.join(two, name)))
        run, found, writer = fsck(["--layout=cpu-vec", "--heads=4", "--head-dim=32",
                                   "--set=tp-size=1", work + "/t"])
        told = found.get("row.mixed", [])
        tap.ok(len(told) == len(later) and len(found) == bool(later) and
               all(any(os.path.basename(n) in f for f in told) for n in later),
               f"a folder that both used: {writer}", run)


# ---- what is asked -----------------------------------------------------------------

def asked():
    with oracle.workdir() as work:
        tree = Tree(work + "/t", Model(4, 8), 1, 20)
        tree.write("LBHSKD", 4)
        refused("who does not say TP is told what the bytes fit", 3,
                ("give --set tp-size=N", "its bytes fit TP 4, HND: likely"), "describe",
                *tree.said("LBHSKD"))
        run = kvtool("describe", *tree.said("LBHSKD", 4))
        tap.ok("TP 4, HND: likely" in run.out, "describe says it", run)
        run = kvtool("describe", "--json", *tree.said("LBHSKD", 4))
        tap.ok(json.loads(run.out)["writer"].startswith("TP 4, HND"), "in JSON, too", run)
        run = kvtool("doctor", *tree.said("LBHSKD", 2))
        tap.ok("something is wrong: its bytes fit TP 4, HND" in run.out, "so does doctor", run)
        # half of the folder: who is right cannot be known, what is wrong is seen
        tree.write("LBHSKD", 2, range(10))
        run, found, writer = fsck(tree.said("LBHSKD", 4))
        tap.ok("10 files TP 2, HND" in writer and "10 files TP 4, HND" in writer and
               writer.startswith("mixed: "), "half and half", f"{writer}\n{run}")
        run = kvtool("fsck", "--fast", *tree.said("LBHSKD", 4))
        tap.ok(run.code == 0 and "writer" not in run.out, "--fast reads no rows", run)


def sampled():
    with oracle.workdir() as work:
        tree = Tree(work + "/t", Model(3, 4), 1, 60)
        tree.write("LBSHKD", 2)
        runs("a sample of a sound tree", "fsck", "--sample=20", *tree.said("LBSHKD", 2),
             says=("saw 60 files, looked at 21 files", "TP 2"))
        # of any sample all names and lengths are seen
        for i in range(3, 23):
            os.truncate(tree.path(i), 100 if i % 2 else 4096)
        st.put(os.path.dirname(tree.path(1)) + "/notes.txt", b"to do\n")
        os.rename(tree.path(0), tree.path(0) + "_12.tmp")
        for n in (5, 59, 60, 1000):
            run = kvtool("fsck", "--json", f"--sample={n}", *tree.said("LBSHKD", 2))
            report = run.json["files"][0]
            tap.ok(run.code == 1 and report["counts"] == {
                "row.length": 20, "file.foreign": 1, "file.leftover": 1} and
                report["looked_at"]["files_of"] == 59, f"counts, of a sample of {n}", run)
        run = kvtool("fsck", *tree.said("LBSHKD", 2))
        lines = run.out.splitlines()
        tap.ok(run.code == 1 and lines[0].endswith("file.leftover: 1 in all") and
               "row.length: 20 in all, of which 16 follow" in run.out and
               len([x for x in lines if ": row.length: t" not in x]),
               "counts come first", run)


def main():
    sound(100 // oracle.SHARE)
    broken(99 // oracle.SHARE)
    real()
    asked()
    sampled()


oracle.run(main)
