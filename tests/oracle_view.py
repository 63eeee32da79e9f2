#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_view.py - what kvtool view draws, against numpy: pool, maps, magnitudes, layouts

The numbers of a page are those of --json, which is looked for in the page itself.
"""
import json
import os
import re

import h5py
import numpy as np

import oracle
import oracle_windows as windows
from diff_model import values
from oracle import kvtool, read_text, sizes, tap, write_json

LOW, BINS = -30, 50
MOST = 6144


def view(*args):
    r = kvtool("view", "--json", *args)
    return r.json if r.code == 0 else r


def close(got, want):
    got = np.array([np.nan if x is None else x for x in got], float)
    with np.errstate(invalid="ignore"):
        return got.shape == want.shape and bool(
            np.all((np.abs(got - want) <= 1e-5 * np.abs(want)) | (np.isnan(got) & np.isnan(want))))


def measures(x, axis):
    """{name: [...]} of numbers x along these axes; NaN where nothing is."""
    finite = np.isfinite(x)
    some = np.where(finite, x, 0)
    n = finite.sum(axis)
    with np.errstate(invalid="ignore"):
        steps = np.diff(x, axis=2)
    steps = np.where(np.isfinite(steps), steps, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {"rms": np.sqrt((some ** 2).sum(axis) / n),
                "mean": some.sum(axis) / n,
                "step": np.sqrt(np.nansum(steps ** 2, axis) / np.isfinite(steps).sum(axis)),
                "largest": np.where(n > 0, np.abs(some).max(axis), np.nan),
                "zero": ((x == 0) & finite).sum(axis) / np.prod([x.shape[a] for a in axis]),
                "nonfinite": (~finite).sum(axis).astype(float)}


def magnitudes(x):
    x = np.abs(x[np.isfinite(x) & (x != 0)])
    e = np.clip(np.frexp(x)[1] - 1 - LOW, 0, BINS - 1)
    return np.bincount(e, minlength=BINS)


def whole(path, x, *options):
    """All of a dump without requests: x[L, B, S, H, K, D] are its numbers."""
    v = view(*options, path)
    if not isinstance(v, dict):
        return str(v)
    n = v["dumps"][0]["groups"][0]["numbers"]
    bad = [f"by_head {name}" for name, want in measures(x, (1, 2, 5)).items()
           if not close(n["by_head"][name], want.transpose(2, 0, 1).ravel())]
    bad += [f"by_position {name}" for name, want in measures(x, (2, 3, 5)).items()
            if not close(n["by_position"][name], want.transpose(2, 0, 1).ravel())]
    want = [magnitudes(x[l, :, :, :, k]) for k in range(x.shape[4]) for l in range(x.shape[0])]
    if n["exponents"]["counts"] != np.concatenate(want).tolist():
        bad.append("exponents")
    return ", ".join(bad)


# ---- dumps with requests ------------------------------------------------------

def requests_of(d):
    """Blocks in the order of tokens, each once, and how many slots of each are live."""
    order, live = [], {}
    for name, blocks in d.tables.items():
        for i, b in enumerate(blocks):
            if b not in live:
                order.append(b)
                live[b] = 0
            live[b] = max(live[b], min(d.dims["S"], d.ntokens[name] - i * d.dims["S"]))
    return order, live


def told(d):
    v = view(d.path)
    if not isinstance(v, dict):
        return str(v)
    g = v["dumps"][0]["groups"][0]
    n, x = g["numbers"], values(d.cells, d.dtype)		# [K, L, B, S, H, D]
    order, live = requests_of(d)
    dead = np.ones((d.dims["B"], d.dims["S"]), bool)
    for b, count in live.items():
        dead[b, :count] = False
    bad = []
    if n["positions"] != order:
        bad.append("order of blocks")
    for k in range(d.dims["K"]):
        for l in range(d.dims["L"]):
            for h in range(d.dims["H"]):
                some = x[k, l, :, :, h][~dead]
                i = (k * d.dims["L"] + l) * d.dims["H"] + h
                if abs(n["by_head"]["rms"][i] - np.sqrt((some ** 2).mean())) > 1e-5 * n["by_head"]["rms"][i]:
                    bad.append(f"rms of {k}, {l}, {h}")
            for c, b in enumerate(order):
                some = np.abs(x[k, l, b, :live[b]]).max()
                if abs(n["by_position"]["largest"][(k * d.dims["L"] + l) * len(order) + c] - some) > 1e-5 * some:
                    bad.append(f"largest of {k}, {l}, block {b}")
    users = {b: {r for r, t in d.tables.items() if b in t} for b in range(d.dims["B"])}
    drawn = [use for _, count, use, _ in g["pool"]["runs"] for _ in range(count)]
    for b, use in enumerate(drawn):
        want = "shared" if len(users[b]) > 1 else "owned" if users[b] else "free"
        if use != want and not (use == "null" and not users[b]):
            bad.append(f"block {b} is {use}, not {want}")
    if len(drawn) != d.dims["B"]:
        bad.append("blocks of the pool")
    bad += layouts(g) + places(d, g)
    return ", ".join(bad[:5])


def layouts(g):
    """Each puts every element of the shape somewhere of its own."""
    s, bad = g["shape"], []
    index = np.indices([s[a] for a in "LBSHKD"])
    for layout in g["layouts"]:
        seen = []
        for v in layout["views"]:
            at = np.full(index.shape[1:], v["offset"])
            for axis, div, n, stride in v["factors"]:
                at = at + index["LBSHKD".index(axis)] // div % n * stride
            seen.append(at[:, :, :, :, v["kv"] if v["kv"] is not None else slice(None)].ravel())
        flat = np.concatenate(seen)
        if np.unique(flat).size != flat.size or (flat % s["elem"]).any():
            bad.append(f"layout {layout['name']}")
    return bad


# ---- hard ones ----------------------------------------------------------------

def made(tmp):
    rng = np.random.default_rng(3)
    options = ("--layout=LBSHKD",)
    for shape in ((2, 3, 4, 2, 2, 8), (1, 1, 1, 1, 2, 1), (3, 5, 2, 1, 1, 6), (128, 24, 1, 2, 2, 1)):
        x = rng.standard_normal(shape).astype(np.float16)
        x[rng.random(shape) < .1] = 0
        if x.size > 50:
            x.reshape(-1)[[3, 9, 20]] = np.nan, np.inf, -np.inf
        np.save(f"{tmp}/x.npy", x)
        if shape[4] == 1:
            np.save(f"{tmp}/x.npy", x[:, :, :, 0, 0])
        said = options if shape[4] == 2 else ("--layout=mla",)
        tap.equal(whole(f"{tmp}/x.npy", x.astype(float), *said), "", f"numbers of {shape}")


def many(tmp):
    """Axes that are longer than a picture: neighbours are one, and nothing is lost."""
    x = np.arange(1, 1 + 300 * 700, dtype=np.float32).reshape(300, 700, 1, 1, 1, 1)
    np.save(f"{tmp}/x.npy", x[:, :, :, 0, 0])
    v = view("--layout=mla", f"{tmp}/x.npy")
    n = v["dumps"][0]["groups"][0]["numbers"]
    rows, columns = len(n["layers"]), len(n["positions"])
    tap.ok(rows <= 128 and rows * columns <= MOST, f"{rows} rows of {columns} columns")
    sums = np.add.reduceat(np.add.reduceat(x.reshape(300, 700).astype(float) ** 2, n["layers"], 0),
                           n["positions"], 1)
    counts = np.add.reduceat(np.add.reduceat(np.ones((300, 700)), n["layers"], 0), n["positions"], 1)
    tap.ok(close(n["by_position"]["rms"], np.sqrt(sums / counts).ravel()), "of merged cells")
    page(tmp, "--layout=mla", f"{tmp}/x.npy")


def sampled(tmp):
    x = np.ones((4, 4096, 16, 2, 2, 8), np.float16)
    np.save(f"{tmp}/x.npy", x)
    v = view("--layout=LBSHKD", "--sample=4M", f"{tmp}/x.npy")
    n = v["dumps"][0]["groups"][0]["numbers"]
    tap.ok(0 < n["read_bytes"] < n["bytes"] == x.nbytes, "a sample says that it is one", n["read_bytes"])
    tap.ok(all(r in (None, 1) for r in n["by_position"]["rms"]) and 1 in n["by_position"]["rms"],
           "what was not read is null")
    n = view("--layout=LBSHKD", "--sample=4M", "--all", f"{tmp}/x.npy")["dumps"][0]["groups"][0]["numbers"]
    tap.equal(n["read_bytes"], x.nbytes, "--all reads all")
    r = kvtool("view", "--layout=LBSHKD", "--sample=4M", f"{tmp}/x.npy")
    tap.ok("a sample: " in r.out, "and a terminal hears of it", r.out)
    tap.equal(view("--layout=LBSHKD", "--sample=4M", "--threads=1", f"{tmp}/x.npy"),
              view("--layout=LBSHKD", "--sample=4M", "--threads=2", f"{tmp}/x.npy"),
              "the same for any number of threads")


def page(tmp, *args):
    out = f"{tmp}/page.html"
    r = kvtool("view", "-f", "-o", out, *args)
    text = read_text(out)
    got = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    tap.ok(r.code == 0 and json.loads(got.group(1)) == view(*args), "a page has the same numbers", r.err)
    tap.ok(len(text) < 2 << 20, f"a page of {len(text)} bytes")
    rest = text.replace(got.group(0), "")
    tap.ok(not re.search(r'(src|href)\s*=|url\(|@import', rest), "a page needs nothing else")
    return text


def hostile(tmp):
    """Names that are markup stay text."""
    name = "</script><img src=x onerror=alert(1)>"
    np.save(f"{tmp}/h.npy", np.full((2, 4, 4, 2, 2, 8), np.nan, np.float16))
    write_json(f"{tmp}/h.json",
               {"layout": "LBSHKD",
                "requests": [{"id": name, "tokens": 5, "blocks": [1, 2]}]})
    r = kvtool("convert", "-f", f"--blocks-of={name}=1,2:5", "--layout=LBSHKD", f"{tmp}/h.npy", f"{tmp}/h.h5")
    text = page(tmp, f"{tmp}/h.h5")
    tap.ok(r.code == 0 and "<img" not in text, "markup in a name is not markup", r.err)
    n = view(f"{tmp}/h.h5")["dumps"][0]
    tap.equal(n["requests"][0]["id"], name, "and the name is the same")
    tap.equal(set(n["groups"][0]["numbers"]["by_head"]["rms"]), {None}, "of NaN there is no mean")


def compared(tmp):
    """What differs is what kvtool diff finds."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((5, 12, 4, 3, 2, 8)).astype(np.float16)
    y = x.copy()
    y[3, 2:4, 1, 2, 1] += np.float16(1)
    y[4, 7] = 0
    np.save(f"{tmp}/a.npy", x)
    np.save(f"{tmp}/b.npy", y)
    options = ("--layout=LBSHKD",)
    v = view(*options, f"{tmp}/a.npy", f"{tmp}/b.npy")["diff"]
    d = kvtool("diff", "--json", *options, f"{tmp}/a.npy", f"{tmp}/b.npy").json
    g, h = v["groups"][0], d["groups"][0]
    tap.equal((v["result"], g["different"], g["elements"]),
              (d["result"], h["metrics"]["different"], h["elements"]), "how much differs")
    got = {(g["layers"][c[0]], g["heads"][c[1]]): (c[2], c[3]) for c in g["by_head"]}
    tap.equal(got, {(c["layer"], c["head"]): (c["compared"], c["different"]) for c in h["by_head"]},
              "which heads")
    bad = (x.view(np.uint16) != y.view(np.uint16)).sum((2, 3, 4, 5))
    got = {(g["layers"][c[0]], g["positions"][c[1]]["block"]): c[3] for c in g["by_position"]}
    tap.equal(got, {(l, b): bad[l, b] for l, b in zip(*np.nonzero(bad))}, "which blocks")
    tap.equal([g["first"][k] for k in ("layer", "block", "slot", "head", "kv", "dim")], [3, 2, 1, 2, 1, 0],
              "where first")
    rows = {(l, b): np.argwhere((x.view(np.uint16) != y.view(np.uint16))[l, b])[0] for l, b in zip(*np.nonzero(bad))}
    at = {(g["layers"][c[0]], g["positions"][c[1]]["block"]): c[7:] for c in g["by_position"]}
    header, strides = os.path.getsize(f"{tmp}/a.npy") - x.nbytes, x.strides
    tap.equal(at, {(l, b): [b, s, h, k, e, x[l, b, s, h, k, e], (n := header + int(np.dot(strides, (l, b, s, h, k, e)))),
                            y[l, b, s, h, k, e], n] for (l, b), (s, h, k, e) in rows.items()}, "the first of each cell")
    moved = np.argwhere(x.view(np.uint16) != y.view(np.uint16))
    heads = {(l, h): next(i for i in moved if i[0] == l and i[3] == h) for l, _, _, h, _, _ in moved}
    at = {(g["layers"][c[0]], g["heads"][c[1]]): (c[7], c[8], c[10], c[11]) for c in g["by_head"]}
    tap.equal(at, {key: (i[1], i[2], i[4], i[5]) for key, i in heads.items()}, "and of each head")
    page(tmp, *options, f"{tmp}/a.npy", f"{tmp}/b.npy")
    same = view(*options, f"{tmp}/a.npy", f"{tmp}/a.npy")["diff"]
    tap.equal(same["result"], "equal", "the same file")
    kvtool("mutate", "-f", "--layout=LBSHKD", "--fault=swap-kv,layer=2", f"{tmp}/a.npy", f"{tmp}/b.npy")
    g = view(*options, f"{tmp}/a.npy", f"{tmp}/b.npy")["diff"]["groups"][0]
    line = re.search(r"^  fault   (.*)$", kvtool("diff", *options, f"{tmp}/a.npy", f"{tmp}/b.npy").out, re.M)
    tap.equal(g["diagnosis"], line and line.group(1), "the diagnosis in the words of diff")


def stored(tmp):
    """Bytes of tiles by layer are those of HDF5's index; findings are those of fsck."""
    for name, to in (("plain", []), ("hnd", ["--level=9"]), ("big", ["--tile=1K"])):
        r = kvtool("convert", "-q", "-f", *to, f"{oracle.DATA}/s260k/paged_bs16/packed_nhd.bf16.npy", f"{tmp}/{name}.h5")
        if r.code:
            tap.ok(False, f"stored: {name}", r.err)
            continue
        s = view(f"{tmp}/{name}.h5")["dumps"][0]["groups"][0]["stored"]
        with h5py.File(f"{tmp}/{name}.h5") as f:
            data = largest(f)
            want = {}
            for i in range(data.id.get_num_chunks()):
                c = data.id.get_chunk_info(i)
                want.setdefault(c.chunk_offset[0], []).append(c.size)
        tap.equal([s["stored_bytes"], s["tiles"], s["seen"], s["least"], s["most"]],
                  [[f(want[l]) for l in sorted(want)] for f in (sum, len, len, min, max)], f"stored: {name}")
        tap.equal(sum(s["plain_bytes"]), view(f"{tmp}/{name}.h5")["dumps"][0]["data_bytes"], f"all of {name}")
    x = np.zeros((40, 300, 1, 8), np.float16)
    np.save(f"{tmp}/many.npy", x)
    kvtool("convert", "-q", "-f", "--layout=mla", "--tile=1", f"{tmp}/many.npy", f"{tmp}/many.h5")
    v = view(f"{tmp}/many.h5")
    s = v["dumps"][0]["groups"][0]["stored"]
    tap.ok(sum(s["seen"]) <= 4096 < sum(s["tiles"]) == 40 * 300 and all(s["seen"]),
           "of many tiles some are looked up, of each layer", [sum(s["seen"]), sum(s["tiles"])])
    x[3] = np.nan
    np.save(f"{tmp}/odd.npy", x)
    for more, fsck in ((), ("--fast",)), (("--all",), ()):
        got = view("--layout=mla", "--blocks-of=A=2:1", "--blocks-of=B=2:1", *more, f"{tmp}/odd.npy")
        want = kvtool("fsck", "--json", "--layout=mla", "--blocks-of=A=2:1", "--blocks-of=B=2:1", *fsck, f"{tmp}/odd.npy").json
        got = got["dumps"][0]["fsck"] if isinstance(got, dict) else got
        tap.equal(got, want["files"][0], f"findings as of fsck {' '.join(fsck)}")


def largest(f):
    """The dataset of a snapshot that has the data."""
    found = []
    f.visititems(lambda _, o: found.append(o) if isinstance(o, h5py.Dataset) else None)
    return max(found, key=lambda d: d.size)


def token_ids(tmp):
    """They are the prompt: nowhere but where they are asked for."""
    np.save(f"{tmp}/t.npy", np.ones((1, 4, 4, 1, 2, 8), np.float16))
    write_json(f"{tmp}/t.json",
               {"layout": "LBSHKD", "sizes": sizes(L=1, B=4, S=4, D=8, H=1),
                "dtype": "float16", "file": "t.npy", "block_table": {"A": [1, 2]},
                "num_tokens": {"A": 6},
                "token_ids": {"A": [70001, 70002, 70003, 70004, 70005, 70006]}})
    text = page(tmp, f"{tmp}/t.npy")
    tap.ok("70003" not in text, "no ids of tokens")
    text = page(tmp, "--token-ids", f"{tmp}/t.npy")
    v = view("--token-ids", f"{tmp}/t.npy")
    tap.equal(v["dumps"][0]["requests"][0]["token_ids"] if isinstance(v, dict) else v, list(range(70001, 70007)), "with them")


def places(d, g):
    """Tables give each block its tokens; offsets are those of where."""
    bad, s = [], g["shape"]
    each = s["S"] * g["tokens_per_slot"]
    tables = list(d.tables.items())
    if len(g["pool"]["tables"]) != len(tables) or not g["pool"]["tables_whole"]:
        return ["number of tables"]
    for (name, blocks), table in zip(tables, g["pool"]["tables"]):
        drawn = [(i + k, token + k * each) for i, n, token in table for k in range(n)]
        if drawn != [(b, i * each) for i, b in enumerate(blocks)]:
            bad.append(f"table of {name}")
    b = s["B"] // 2
    at = f"layer={g['numbers']['layers'][0]},block={b},slot=0,head={g['numbers']['heads'][0]},kv=k,dim=0"
    r = kvtool("where", "--json", d.path, at)
    said = r.json["matches"][0] if r.code == 0 else {}
    got = g["pool"]["offsets"][b]
    if said.get("offset") is not None and got[1:] != [said["offset"]]:
        bad.append(f"offset of block {b}: {got}, not {said['offset']}")
    return bad


def groups(tmp):
    """What another group of the same pool has is not unused; codes have names."""
    tables = windows.TABLES
    path = windows.write(f"{tmp}/pool", [windows.cells_of(8)] * 3, windows.three_groups("ppp", tables))
    v = view(path)
    for g, table in zip(v["dumps"][0]["groups"] if isinstance(v, dict) else [], tables):
        drawn = [use for _, n, use, _ in g["pool"]["runs"] for _ in range(n)]
        rest = {b for t in tables for b in t if t is not table} - set(table) - {0}
        tap.equal({b for b, use in enumerate(drawn) if use == "other"}, rest, f"{g['id']}: blocks of other groups")
    tap.ok(isinstance(v, dict) and len(v["dumps"][0]["groups"]) == 3, "three groups of one pool", v)
    np.save(f"{tmp}/q.npy", np.zeros((2, 3, 64, 656), np.uint8))
    g = view("--layout=mla", "--content-type=fp8-ds-mla/e4m3fn", f"{tmp}/q.npy")
    g = g["dumps"][0]["groups"][0] if isinstance(g, dict) else {"fields": str(g)}
    tap.equal([(f["name"], f["at"], f["count"] * f["bits"] // 8) for f in g["fields"]],
              [("nope", 0, 512), ("scales", 512, 16), ("rope", 528, 128)], "fields of a row")
    np.save(f"{tmp}/q.npy", np.zeros((2, 2, 3, 16, 2, 48), np.uint8))
    g = view("--layout=nhd", "--content-type=q5_1/plain", f"{tmp}/q.npy")
    g = g["dumps"][0]["groups"][0] if isinstance(g, dict) else {"fields": str(g)}
    tap.equal(sorted((f["at"], f["count"] * f["bits"] // 8, f["name"]) for f in g["fields"]),
              [(24 * b + at, n, name) for b in (0, 1) for at, n, name in
               ((0, 2, "scales"), (2, 2, "minima"), (4, 4, "high bits"), (8, 16, "values"))],
              "fields of each block of a row")


def small(tmp):
    """No page has more than 2 MiB, whatever is on it."""
    np.save(f"{tmp}/layers.npy", np.ones((10000, 3, 1, 8), np.float16))
    np.save(f"{tmp}/layers2.npy", np.full((10000, 3, 1, 8), 2, np.float16))
    np.save(f"{tmp}/blocks.npy", np.ones((1, 1000000, 1, 1), np.float16))
    x = np.random.default_rng(5).standard_normal((128, 2, 2, 128, 2, 2)).astype(np.float16)
    np.save(f"{tmp}/heads.npy", x)
    np.save(f"{tmp}/heads2.npy", x + np.float16(.37))
    # a word of a command line has 128 KiB at most
    parts = [",".join(str(b) for b in range(first, first + 220000, 13)) for first in (1, 250000, 500000, 750000)]
    for name, args in {
            "10,000 layers": ["--layout=mla", f"{tmp}/layers.npy"],
            "two of them": ["--layout=mla", f"{tmp}/layers.npy", f"{tmp}/layers2.npy"],
            "128 layers of 128 heads": ["--layout=LBSHKD", f"{tmp}/heads.npy"],
            "two of these": ["--layout=LBSHKD", f"{tmp}/heads.npy", f"{tmp}/heads2.npy"],
            "20 dumps": ["--layout=LBSHKD", *[f"{tmp}/heads.npy"] * 20],
            "a million blocks": ["--layout=mla", "--block-size=1", *[f"--blocks-of={'ABCD'[i]}={p}" for i, p in enumerate(parts)],
                                 f"{tmp}/blocks.npy"]}.items():
        r = kvtool("view", "-f", "-o", f"{tmp}/page.html", *args)
        size = os.path.getsize(f"{tmp}/page.html") if r.code == 0 else -1
        tap.ok(0 < size < 2 << 20, f"{name}: a page of {size} bytes", r.err)
    if r.code == 0:
        p = view(*args)["dumps"][0]["groups"][0]["pool"]
        tap.equal([sum(r[i] for r in p.get("ranges", [])) for i in (1, 4)], [1000000, p["used"]], "its ranges are all blocks")


def main(tmp):
    bad = [f"{d.name}: {why}" for d in oracle.attention_dumps() if (why := told(d))]
    tap.equal(bad[:5], [], "pool, maps and layouts of all dumps of attention")
    made(tmp)
    many(tmp)
    sampled(tmp)
    hostile(tmp)
    compared(tmp)
    groups(tmp)
    stored(tmp)
    token_ids(tmp)
    small(tmp)


oracle.run(main)
