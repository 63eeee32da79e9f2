#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_caches.py - vLLM's CanonicalKVCaches as JSON, read and told, beside numpy

Tensors of pages are filled here, layer by layer, at references that are drawn: several
tensors, pages of several sizes, several layers and groups in one page.  kvtool reads the
bytes by such a manifest, and must find what a dense file of the same groups has.  What
describe --canonical --json tells of a dump is taken at its word the same way: the bytes
are put where it says, and read by what it printed.
"""
import json
import os
import random

import numpy as np

import oracle
from oracle import FULL, kvtool, refused, runs, tap, write_bytes, write_json, write_text

rng = random.Random(46954)
LAYOUTS = ("BLHSC", "BLSHC", "BLKSHD", "LBHSC", "LBSHC", "LBKHSD")


class Group:
    """data[layer][block] is a page, in the order of the layout within it."""

    def __init__(self, name, layout, ids, names, tp=1):
        self.name, self.layout, self.ids, self.names = name, layout, ids, names
        self.layers = len(names)
        self.slots, self.heads = rng.choice([2, 4]), rng.randint(1, 3)
        self.dim, self.tp = rng.randint(1, 3), tp
        self.latent = "K" not in layout and "C" in layout and rng.random() < 0.25
        self.mamba = False
        if self.latent:
            self.heads = 1
            self.layout = layout = layout.replace("H", "")
        self.content = self.dim * (1 if self.latent else 2)
        self.page = self.slots * self.heads * self.content * 2
        self.data = [[np.frombuffer(rng.randbytes(self.page), np.uint8) for _ in ids]
                     for _ in names]

    def manifest(self):
        sizes = {"layers": self.layers, "num_blocks": len(self.ids),
                 "block_size": self.slots, "num_kv_heads": self.heads,
                 "content" if self.latent else "head_dim": self.dim}
        return {"id": self.name, "layout": self.layout, "dtype": "float16",
                "kind": "mla" if self.latent else "full_attention", "sizes": sizes,
                "total_kv_heads": 1 if self.latent else self.heads * self.tp,
                "layer_names": self.names, "block_ids": self.ids}

    def dense(self):
        """All layers and blocks, in the order of the layout."""
        pages = self.data if self.layout[0] == "L" else zip(*self.data)
        return b"".join(page.tobytes() for row in pages for page in row)

    def fields(self):
        if self.latent:
            return {"n_heads": 0, "h_stride": 0, "bs_stride": 0, "replicated": True}
        n = self.heads * self.tp
        return {"n_heads": n, "h_stride": 4 * self.dim, "bs_stride": 4 * self.dim * n,
                "replicated": False}


def draw():
    first = rng.choice("BL")
    ids = rng.sample(range(24), 12)
    count = rng.randint(1, 3)
    tp = rng.choice([1, 1, 2])
    cuts = [0] + sorted(rng.sample(range(1, 12), count - 1)) + [12]
    layer = iter(range(100))
    return [Group(f"g{i}", rng.choice([l for l in LAYOUTS if l[0] == first]),
                  ids[cuts[i]:cuts[i + 1]],
                  [f"model.layers.{next(layer)}" for _ in range(rng.randint(1, 4))], tp)
            for i in range(count)]


def write(folder, name, data, manifest=None):
    path = os.path.join(folder, name)
    write_bytes(path, data)
    if manifest is not None:
        write_json(path + ".json", manifest)
    return path


def tp_of(groups):
    return {"tp_size": groups[0].tp, "tp_rank": 0} if groups[0].tp > 1 else {}


def write_dense(folder, groups):
    return write(folder, "dense.bin", b"".join(g.dense() for g in groups),
                 {"groups": [g.manifest() for g in groups], **tp_of(groups)})


def place(caches, groups):
    """The bytes of the tensors, with every page where its reference says."""
    out = [np.frombuffer(rng.randbytes(t["num_blocks"] * t["page_size_bytes"]), np.uint8)
           .reshape(t["num_blocks"], -1).copy() for t in caches["tensors"]]
    for g, refs in zip(groups, caches["group_data_refs"]):
        for ref in refs:
            layer = g.names.index(ref["layer_name"]) if "layer_name" in ref else \
                refs.index(ref)
            tensor, at = out[ref["tensor_idx"]], ref.get("offset", 0)
            for b, page in zip(g.ids, g.data[layer]):
                tensor[b, at:at + g.page] = page
    return b"".join(t.tobytes() for t in out)


def draw_caches(groups):
    """References into one to four tensors, where nothing of a group overlaps."""
    tensors = [{"num_blocks": rng.randint(24, 30), "page_size_bytes": 0}
               for _ in range(rng.randint(1, 4))]
    refs = []
    for g in groups:
        used, mine = {}, []
        for name in g.names:
            t = rng.randrange(len(tensors))
            at = used.get(t, 0) + rng.choice([0, 0, 2, 16])
            used[t] = at + g.page
            tensors[t]["page_size_bytes"] = max(tensors[t]["page_size_bytes"], used[t])
            ref = {"layer_name": name, "tensor_idx": t, "offset": at,
                   "page_size_bytes": g.page, **g.fields()}
            for key in list(ref):
                if key not in ("layer_name", "tensor_idx", "offset") and \
                        rng.random() < 0.2:
                    del ref[key]
            if not at and rng.random() < 0.5:
                del ref["offset"]
            mine.append(ref)
        if rng.random() < 0.5:
            rng.shuffle(mine)
        elif rng.random() < 0.5:
            for ref in mine:
                del ref["layer_name"]
        refs.append(mine)
    for t in tensors:
        t["page_size_bytes"] += rng.choice([0, 0, 6]) or (not t["page_size_bytes"])
    return {"tensors": tensors, "group_data_refs": refs}


def test_read(folder):
    wrong, n = [], 330 if FULL else 120
    for _ in range(n):
        groups = draw()
        caches = draw_caches(groups)
        manifest = {**caches, "groups": [g.manifest() for g in groups], **tp_of(groups)}
        path = write(folder, "caches.bin", place(caches, groups), manifest)
        r = kvtool("diff", write_dense(folder, groups), path)
        if r.code or r.out.count("equal") != len(groups):
            wrong.append((manifest, r))
    tap.ok(not wrong, f"{n} sets of tensors are read", "\n".join(map(str, wrong[:1])))


def test_tell(folder):
    wrong, n = [], 330 if FULL else 120
    for _ in range(n):
        groups = draw()
        source = write_dense(folder, groups)
        r = kvtool("describe", "--canonical", "--json", source)
        caches = r.json["canonical"]["caches"] if not r.code else None
        if not caches:
            wrong.append(("told", r))
            continue
        blocks = 1 + max(b for g in groups for b in g.ids)
        one = groups[0].layout[0] == "B"
        pages = [max(g.layers * g.page for g in groups)] if one else \
            [max(g.page for g in groups if i < g.layers)
             for i in range(max(g.layers for g in groups))]
        want = [{"num_blocks": blocks, "page_size_bytes": p} for p in pages]
        refs = [[{"layer_name": name, "layer_slot": i, "tensor_idx": 0 if one else i,
                  "offset": i * g.page if one else 0, "page_size_bytes": g.page,
                  **g.fields()} for i, name in enumerate(g.names)] for g in groups]
        if caches["tensors"] != want or caches["group_data_refs"] != refs:
            wrong.append(("tensors", caches, want, refs))
            continue
        path = write(folder, "told.bin", place(caches, groups))
        write_text(os.path.join(folder, "told.json"), r.out)
        r = kvtool("convert", "-qf", "--manifest", os.path.join(folder, "told.json"),
                   path, os.path.join(folder, "told.h5"))
        if r.code or kvtool("diff", source, os.path.join(folder, "told.h5")).code:
            wrong.append(("read back", r.err, r.out, kvtool("diff", source, os.path.join(folder, "told.h5")).err))
    tap.ok(not wrong, f"{n} dumps tell tensors that hold them",
           "\n".join(map(str, wrong[:1])))


def test_little(folder):
    """One group, of which the references tell what they can; options tell the rest."""
    g = Group("g0", "BLHSC", [0, 1, 2], ["a", "b"])
    while g.latent:
        g = Group("g0", "BLHSC", [0, 1, 2], ["a", "b"])
    caches = {"tensors": [{"num_blocks": 3, "page_size_bytes": 2 * g.page}],
              "group_data_refs": [[{"layer_name": n, "tensor_idx": 0, "offset": i * g.page,
                                    "page_size_bytes": g.page, **g.fields()}
                                   for i, n in enumerate("ab")]]}
    path = write(folder, "little.bin", place(caches, [g]), caches)
    said = ["--layout=blhsc", "--dtype=float16", f"--head-dim={g.dim}"]
    out = os.path.join(folder, "little.h5")
    r = kvtool("convert", "-f", *said, path, out)
    tap.ok(r.code == 0 and kvtool("diff", write_dense(folder, [g]), out).code == 0,
           "layers, blocks, slots and heads follow from references", r)
    refused("what they do not tell is asked", 3, "is not given", "convert", "-f",
            *said[:2], path, out)
    refused("what is said otherwise is refused", 3, "heads", "describe", *said,
            "--heads=5", path)


def hybrid(folder):
    """Kinds whose pages are opaque to who slices by heads."""
    side = {"layout": "LBSHC", "dtype": "float16", "kind": "full_attention",
            "sizes": oracle.sizes(L=1, B=2, S=2, H=2, D=2)}
    for what, change, want in (
            ("one rank", {}, (2, 8, 16, False)),
            ("tokens dealt out", {"dcp_size": 2, "dcp_rank": 0}, (0, 0, 0, False)),
            ("replicated heads", {"tp_size": 4, "tp_rank": 0, "total_kv_heads": 2,
                                  "head_start": 0, "replicas": 2}, (0, 0, 0, False)),
            ("half of the heads", {"tp_size": 2, "tp_rank": 1, "total_kv_heads": 4},
             (4, 8, 32, False)),
            ("slots of four tokens", {"tokens_per_slot": 4, "sizes": {
                **side["sizes"], "block_size": 8}}, (0, 0, 0, False))):
        n = 32 if "replicated" not in what else 16
        now = {**side, **change}
        if "replicated" in what:
            now["sizes"] = {**side["sizes"], "num_kv_heads": 1}
        path = write(folder, "kind.bin", bytes(2 * n), now)
        r = kvtool("describe", "--canonical", "--json", path)
        ref = r.code or r.json["canonical"]["caches"]["group_data_refs"][0][0]
        tap.ok(r.code == 0 and tuple(ref[k] for k in (
            "n_heads", "h_stride", "bs_stride", "replicated")) == want, what, (r, ref))
    path = f"{oracle.DATA}/mamba2g4/tp1_DS/rank0.npy"
    r = kvtool("describe", "--canonical", "--json", path)
    caches = {} if r.code else r.json["canonical"]["caches"]
    refs = [[(ref["tensor_idx"], ref["offset"], ref["page_size_bytes"], ref["n_heads"],
              ref["replicated"]) for ref in refs] for refs in caches["group_data_refs"]]
    layers = len(refs[0])
    tap.equal((caches["tensors"][0]["page_size_bytes"], refs), (18688, [
        [(i, 0, 2304, 0, False) for i in range(layers)],
        [(i, 2304, 16384, 0, False) for i in range(layers)]]), "states share a page")
    write_json(os.path.join(folder, "m.json"), caches)
    raw = write(folder, "mamba.bin", np.load(path).tobytes())
    out = os.path.join(folder, "mamba.h5")
    r = kvtool("convert", "-f", "--manifest", os.path.join(folder, "m.json"), raw, out)
    tap.ok(r.code == 0 and kvtool("diff", path, out).code == 0, "and are read there", r)
    path = write(folder, "kind.bin", bytes(64), {**side, "layout": "LKBSHD"})
    r = kvtool("describe", "--canonical", "--json", path)
    tap.ok(r.code == 0 and r.json["canonical"]["caches"] is None,
           "keys and values apart are no pages", r)


def test_refused(folder):
    a = Group("a", "BLHSC", [0, 1], ["x", "y"])
    b = Group("b", "BLSHC", [2], ["z"])
    refs = [[{"layer_name": n, "tensor_idx": 0, "offset": i * g.page,
              "page_size_bytes": g.page, **g.fields()} for i, n in enumerate(g.names)]
            for g in (a, b)]
    row = max(2 * a.page, b.page)
    good = {"tensors": [{"num_blocks": 3, "page_size_bytes": row}],
            "group_data_refs": refs, "groups": [a.manifest(), b.manifest()]}
    data = place(good, [a, b])
    runs("sound", "describe", write(folder, "bad.bin", data, good))

    def bad(what, text, code=3, **change):
        side = json.loads(json.dumps(good))
        for key, value in change.items():
            side[key] = value
        refused(f"refused: {what}", code, text, "describe",
                write(folder, "bad.bin", data, side))

    def ref(**change):
        out = json.loads(json.dumps(refs))
        out[0][1].update(change)
        return out

    bad("a tensor less", "there are 0 tensors", tensors=[])
    bad("no references", "one of tensors and group_data_refs", group_data_refs=None)
    bad("a page less", f"its 1 tensors have {2 * row}",
        tensors=[{"num_blocks": 2, "page_size_bytes": row}])
    bad("sizes that overflow", "its 2 tensors have",
        tensors=[{"num_blocks": 1 << 60, "page_size_bytes": 1 << 60}] * 2)
    bad("a page without a size", "no num_blocks or page_size_bytes",
        tensors=[{"num_blocks": 3}])
    bad("rows, too", "rows and tensors", rows=3, row_bytes=row)
    bad("a tensor that is not there", "tensor_idx is 1", group_data_refs=ref(tensor_idx=1))
    bad("a layer behind the page", "of a page of tensor 0",
        group_data_refs=ref(offset=row - a.page + 2))
    bad("an offset of the end of the world", "", group_data_refs=ref(offset=(1 << 62) - 2))
    bad("another name", "no reference for layer 'y'", group_data_refs=ref(layer_name="q"))
    bad("a name twice", "more than one reference", group_data_refs=ref(layer_name="x"))
    bad("a name less", "have no layer_name", group_data_refs=ref(layer_name=None))
    bad("a layer less", "2 layers, but 1 references",
        group_data_refs=[refs[0][:1], refs[1]])
    bad("a group less", "group_data_refs is of 1 groups", group_data_refs=refs[:1])
    bad("a list that is none", "is not an array", group_data_refs=[refs[0], 3])
    for key, value in a.fields().items():
        wrong = not value if isinstance(value, bool) else value + 2
        bad(f"another {key}", f"{key} is {int(wrong)}", group_data_refs=ref(**{key: wrong}))
    bad("another page", "page_size_bytes is", group_data_refs=ref(page_size_bytes=a.page + 1))
    groups = json.loads(json.dumps(good["groups"]))
    groups[1]["block_ids"] = [3]
    bad("a block without a page", "has block 3, but tensor 0 has 3 pages", groups=groups)
    groups = json.loads(json.dumps(good["groups"]))
    groups[1].update(layout="KBLSHD" if not b.latent else "SBLC")
    bad("another order", "blocks are outermost", 4, groups=groups)
    np.save(os.path.join(folder, "t.npy"), np.zeros((3, row), np.int8))
    write_json(os.path.join(folder, "t.json"), {**good, "file": "t.npy"})
    refused("refused: an npy file", 3, "has tensors, which are of a file without",
            "describe", os.path.join(folder, "t.npy"))


oracle.run(test_read, test_tell, test_little, hybrid, test_refused)
