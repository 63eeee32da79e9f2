#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_canonical_tensor.py - one tensor for all groups, read and written, beside numpy

A model's groups are made twice: as dense arrays one after the other, and as vLLM #37885
allocates them, as bytes in a row that numpy sees as positions and permutes.  kvtool must
find both equal, write the second from the first to the byte, and refuse what cannot be.
"""
import os
import random

import numpy as np

import oracle
from oracle import (FULL, SHARE, kvtool, read_json, refused, runs, sizes, tap,
                    write_bytes, write_json)

rng = random.Random(31)


class Group:
    def __init__(self, name, layers, ids, layout, slots=4, heads=2, dim=3, page=0):
        self.name, self.layers, self.ids, self.layout = name, layers, ids, layout
        self.slots, self.heads, self.dim = slots, heads, dim
        self.content = slots * heads * 2 * dim * 2
        self.page = page or self.content
        self.more = {}
        shape = {"B": len(ids), "L": layers, "S": slots, "H": heads, "K": 2, "D": dim}
        self.order = layout.replace("C", "KD")
        self.data = np.frombuffer(rng.randbytes(2 * int(np.prod(list(shape.values())))),
                                  np.uint16).reshape([shape[a] for a in self.order])

    def manifest(self):
        out = {"id": self.name, "layout": self.layout, "dtype": "float16",
               "kind": "full_attention",
               "sizes": sizes(L=self.layers, B=len(self.ids), S=self.slots, H=self.heads,
                              D=self.dim),
               "block_ids": self.ids, **self.more}
        if self.page != self.content:
            out.update(page_bytes=self.page, page_offset=0)
        return out

    def place(self, tensor, row):
        """Into [rows, row bytes]: as the buffer of positions is seen, permuted back."""
        blocks = np.moveaxis(self.data, self.order.index("B"), 0)
        rest = self.order.replace("B", "")
        for i, b in enumerate(self.ids):
            if self.page == self.content:
                raw = np.ascontiguousarray(blocks[i]).view(np.uint8).reshape(-1)
                tensor[b, :len(raw)] = raw
                continue
            assert rest[0] == "L"
            for l in range(self.layers):
                raw = np.ascontiguousarray(blocks[i][l]).view(np.uint8).reshape(-1)
                tensor[b, l * self.page:l * self.page + len(raw)] = raw


def write(folder, name, data, manifest):
    path = os.path.join(folder, name)
    write_bytes(path, data)
    write_json(path + ".json", {"file": name, **manifest})
    return path


def dense(folder, groups):
    """Arrays of all groups one after the other; none of them in pages."""
    parts = []
    for g in groups:
        m = g.manifest()
        m.pop("page_bytes", None)
        m.pop("page_offset", None)
        parts.append(m)
    return write(folder, "dense.bin", b"".join(g.data.tobytes() for g in groups),
                 {"groups": parts})


def tensor_of(groups, rows):
    row = max(g.layers * g.page for g in groups)
    out = np.zeros((rows, row), np.uint8)
    for g in groups:
        g.place(out, row)
    return out


def canonical(folder, groups, rows, **more):
    t = tensor_of(groups, rows)
    return write(folder, "engine.canonical", t.tobytes(), {
        "rows": rows, "row_bytes": t.shape[1],
        "groups": [g.manifest() for g in groups], **more}), t


def random_groups():
    ids = rng.sample(range(rng.randint(6, 20)), 6)
    cut = rng.randint(1, 5)
    layouts = ["BLHSC", "BLSHC", "BLKSHD", "BHLSC", "BHLKSD"]
    layers, out = rng.randint(1, 4), []
    for name, mine in (("full", ids[:cut]), ("window", ids[cut:])):
        layout = rng.choice(layouts)
        slots, heads, dim = rng.choice([2, 4]), rng.randint(1, 3), rng.randint(1, 4)
        page = 0
        if layout[1] == "L" and rng.random() < 0.3:
            page = slots * heads * dim * 4 + 2 * rng.randint(1, 20)
        out.append(Group(name, layers + rng.randint(0, 1), sorted(mine) if
                         rng.random() < 0.5 else mine, layout, slots, heads, dim, page))
    return out, max(ids) + 1


def test_random(folder):
    wrong, n = [], 120
    for _ in range(n):
        groups, rows = random_groups()
        source = dense(folder, groups)
        engine, t = canonical(folder, groups, rows)
        r = kvtool("diff", source, engine)
        if r.code:
            wrong.append(("read", [vars(g) for g in groups], r))
            continue
        if any(g.page != g.content for g in groups):
            source = engine             # of pages with gaps a dense array knows nothing
        out = os.path.join(folder, "out.canonical")
        r = kvtool("convert", "-q", "-f", "--verify", "--format=canonical", "-o", out,
                   source)
        if r.code or np.fromfile(out, np.uint8).tobytes() != t.tobytes():
            wrong.append(("write", [vars(g) for g in groups], r))
            continue
        side = read_json(out + ".json")
        if (side["rows"], side["row_bytes"]) != t.shape or kvtool("diff", engine,
                                                                  out).code:
            wrong.append(("sidecar", side))
    tap.ok(not wrong, f"{n} random models, read, written and read again",
           "\n".join(map(str, wrong[:2])))


def test_vector(folder):
    """Of #37885: three groups of two layers, and the byte of one element."""
    groups = [Group("full", 2, [1, 3, 7], "BLKSHD", 16, 4, 8),
              Group("sw0", 2, [0, 2, 4], "BLKSHD", 16, 4, 8),
              Group("sw1", 2, [5, 6, 8, 9], "BLKSHD", 16, 4, 8)]
    engine, t = canonical(folder, groups, 10)
    tap.equal(t.shape, (10, 4096), "rows of two pages of 2048 bytes")
    element = groups[0].data[1, 1, 1, 5, 2, 0]          # block 3, layer 1, V, token 5
    tap.equal(int(t.reshape(-1)[15712:15714].view(np.uint16)[0]), int(element),
              "numpy has the element at byte 15712")
    runs("so does kvtool", "where", engine,
         "group=full,layer=1,block=3,kv=v,slot=5,head=2,dim=0", says="15712")
    tap.equal(kvtool("diff", dense(folder, groups), engine).code, 0, "all of it")


# ---- pools: the same blocks in several groups ---------------------------------

class Pool:
    """Groups of one model, as a capture of the pool has them, and requests."""

    def __init__(self):
        self.null = rng.choice([0, 0, 0, None])
        n = rng.randint(8, 24)
        free = list(range(n))
        if self.null is not None:
            free.remove(self.null)
        rng.shuffle(free)
        names = ["full", "window", "sink"][:rng.choice([2, 2, 3])]
        whole = rng.random() < 0.5      # every group sees every block
        equal = rng.random() < 0.5      # pages
        heads, dim, layers = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 3)
        layout = rng.choice(["BLHSC", "BLSHC", "BLKSHD"])
        self.groups, self.tables, self.tokens = [], [], {}
        for q in "rs"[:rng.randint(1, 2)]:
            self.tokens[q] = 4 * rng.randint(1, len(free) // len(names) // 2)
        for name in names:
            tables = {}
            for q, tokens in self.tokens.items():
                table = [free.pop() for _ in range(tokens // 4)]
                if name != "full" and self.null is not None:
                    gone = rng.randint(0, len(table) - 1)
                    table[:gone] = [self.null] * gone
                tables[q] = table
            self.tables.append(tables)
        for name, tables in zip(names, self.tables):
            ids = {b for t in tables.values() for b in t}
            if whole:
                ids = set(range(n))
            elif self.null is not None and rng.random() < 0.7:
                ids.add(self.null)
            if not whole:
                ids |= {b for b in free if rng.random() < 0.2}
            g = Group(name, layers if equal else rng.randint(1, 3), sorted(ids), layout, 4,
                      heads if equal else rng.randint(1, 3), dim)
            if name != "full":
                g.more = {"kind": "sliding_window", "window": 4}
            self.groups.append(g)

    def write(self, folder):
        path = dense(folder, self.groups)
        side = read_json(path + ".json")
        for g, tables in zip(side["groups"], self.tables):
            g["block_table"] = tables
        side["num_tokens"] = self.tokens
        if self.null is not None:
            for g in side["groups"]:
                g["null_block"] = self.null if self.null in g["block_ids"] else -1
        write_json(path + ".json", side)
        return path

    def kept(self):
        """ids of each group: its own; of those that none uses, the first has them."""
        used = [{b for t in ts.values() for b in t if b != self.null}
                for ts in self.tables]
        out = []
        for g, mine in zip(self.groups, used):
            ids = []
            for b in g.ids:
                others = [i for i, o in enumerate(self.groups) if b in o.ids]
                users = [i for i in others if b in used[i]]
                owner = users[0] if users else others[0]
                if b == self.null or self.groups[owner] is g:
                    ids.append(b)
            out.append(ids)
        return out

    def tensor(self):
        """The rows that must be written, and of each group what is read back."""
        kept = self.kept()
        out = np.zeros((max(max(ids) for ids in kept) + 1,
                        max(g.layers * g.page for g in self.groups)), np.uint8)
        held = sum(self.null in ids for ids in kept)
        for g, ids in zip(self.groups, kept):
            axis = g.order.index("B")
            at = [g.ids.index(b) for b in ids]
            g.data, g.ids = np.take(g.data, at, axis), ids
            if held > 1 and self.null in ids:
                blocks = np.moveaxis(g.data, axis, 0)
                blocks[ids.index(self.null)] = 0
            g.place(out, out.shape[1])
        return out


def check_pool(folder, pool):
    source = pool.write(folder)
    before = kvtool("digest", "--scope=tokens", source).out.split()[0]
    compact = os.path.join(folder, "compact.h5")
    r = kvtool("reblock", "-qf", "--verify", "--compact", "-b4", "-o", compact, source)
    if r.code:
        return "compact", r
    out = os.path.join(folder, "compact.canonical")
    r = kvtool("convert", "-qf", "--verify", compact, out)
    if r.code or kvtool("digest", "--scope=tokens", out).out.split()[0] != before:
        return "compact as canonical", r
    want = pool.tensor()
    out = os.path.join(folder, "out.canonical")
    r = kvtool("convert", "-qf", "--verify", source, out)
    if r.code or np.fromfile(out, np.uint8).tobytes() != want.tobytes():
        return "write", r
    if kvtool("digest", "--scope=tokens", out).out.split()[0] != before:
        return "tokens", source
    if kvtool("diff", dense(folder, pool.groups), out).code:
        return "every block", kvtool("diff", dense(folder, pool.groups), out)
    r = kvtool("describe", "--canonical", "--json", out)
    said = r.json["canonical"]
    pages = {g.page for g in pool.groups}
    if said["applies"] != (len(pages) == 1) or said["applies"] and \
            (said["blocks"], said["row_bytes"], said["bytes"]) != (*want.shape, want.size):
        return "describe", said
    return None


def test_pools(folder):
    wrong, n = [], 330 if FULL else 110 // SHARE
    for _ in range(n):
        pool = Pool()
        what = [(g.name, g.ids, t) for g, t in zip(pool.groups, pool.tables)]
        bad = check_pool(folder, pool)
        if bad:
            wrong.append((pool.null, what, *bad))
    tap.ok(not wrong, f"{n} pools of which several groups have blocks, {len(wrong)} wrong",
           "\n".join(map(str, wrong[:2])))


def test_shared(folder):
    """Blocks of two groups, and what is said where they cannot be one's."""
    out = os.path.join(folder, "shared.canonical")
    for what, tables, null, text in (
            ("the null block of both", ([1, 2], [3, 4]), 0, None),
            ("a block that one uses", ([0, 1], [3, 4]), -1, None),
            ("blocks that both use", ([1, 2], [1, 3]), 0, "requests use both"),
            ("no tables of one", ([1, 2], []), 0, "no request tells")):
        groups = [Group(n, 1, list(range(5)), "BLHSC") for n in "ab"]
        path = dense(folder, groups)
        side = read_json(path + ".json")
        for g, table in zip(side["groups"], tables):
            if table:
                g["block_table"] = {"r": table}
        side |= {"null_block": null, "num_tokens": {"r": 2 * groups[0].slots}}
        write_json(path + ".json", side)
        r = kvtool("convert", "-f", "--verify", "--format=canonical", "-o", out, path)
        if text:
            tap.ok(r.code == 3 and text in r.err, f"refused: {what}", r)
        else:
            tap.ok(r.code == 0 and kvtool("diff", path, out).code == 0, what, r)


def test_refused(folder):
    a = Group("a", 2, [0, 1], "BLHSC")
    b = Group("b", 2, [1, 2], "BLHSC")
    out = os.path.join(folder, "no.canonical")
    r = kvtool("convert", "--format=canonical", "-o", out, dense(folder, [a, b]))
    tap.ok(r.code == 3 and "block 1 is of groups a and b" in r.err and
           not os.path.exists(out), "a block of two groups", r)
    tap.ok("no request tells" in r.err, "without requests nothing is advised", r)
    l = Group("a", 2, [0, 1], "LBHSC")
    r = kvtool("convert", "--format=canonical", "-o", out, dense(folder, [l]))
    tap.ok(r.code == 4 and "blocks are outermost" in r.err, "layers outermost", r)
    follow = r.err.split("; kvtool ")[1].split(" has ")[0].split()
    r = kvtool(*follow, "--format=canonical", "-o", out, dense(folder, [l]))
    tap.ok(r.code == 0 and kvtool("diff", dense(folder, [l]), out).code == 0,
           f"what it tells to do helps: {' '.join(follow)}", r)
    os.unlink(out)
    r = kvtool("convert", "--format=canonical", "-o", out,
               f"{oracle.DATA}/mamba2g4/tp1_DS/rank0.npy")
    tap.ok(r.code == 4 and "parts of the same pages" in r.err and "kvtool relayout" not in
           r.err, "parts of one page", r)
    good = [Group("a", 2, [0, 1], "BLHSC"), Group("b", 1, [2], "BLHSC")]
    for what, change, code, text in (
            ("a row less", {"rows": 2}, 3, "but 2 rows of"),
            ("no rows", {"rows": None}, 3, "one of rows and row_bytes"),
            ("a shorter row", {"rows": 12, "row_bytes": 48}, 3, "more than row_bytes, 48"),
            ("rows that overflow", {"rows": 1 << 61, "row_bytes": 1 << 61}, 3,
             "rows of")):
        path, t = canonical(folder, good, 3)
        side = read_json(path + ".json")
        side.update(change)
        if side["rows"] is None:
            del side["rows"]
        write_json(path + ".json", side)
        refused(f"refused: {what}", code, text, "describe", path)
    path, _ = canonical(folder, good, 3)
    side = read_json(path + ".json")
    side["groups"][1]["block_ids"] = [9]
    write_json(path + ".json", side)
    refused("refused: a block without a row", 3, "has block 9, but there are 3 rows",
            "describe", path)
    np.save(os.path.join(folder, "t.npy"), np.zeros((3, 96), np.int8))
    write_json(os.path.join(folder, "t.json"), {**side, "file": "t.npy"})
    refused("refused: an npy file", 3, "which are of a file without a header", "describe",
            os.path.join(folder, "t.npy"))


oracle.run(test_vector, test_random, test_pools, test_shared, test_refused)
