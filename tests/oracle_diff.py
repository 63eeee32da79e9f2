#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_diff.py - what kvtool diff finds, against numpy

Every figure of --json (counts, norms, the first difference, the worst ones, both
maps) as diff_model.py computes it: for layouts, block sizes, ranks and types with
each other, and for changes planted anywhere.
"""
import itertools
import os
import random
import shutil
import xml.etree.ElementTree

import numpy as np

import oracle
from diff_model import (TABLES, Expected, Side, connector_side, data_start, diff,
                        dump_side, ranks_side, wrong, wrong_tables)
from kvd1 import MambaDump, conv_heads
from oracle import (E4M3, FULL, Dump, kvtool, patch, read_json, read_text, sizes, tap,
                    values, write_json)

rng = random.Random(20)


# ---- comparing --------------------------------------------------------------

def check(name, a, b, options=(), ntop=5, **how):
    e = Expected(a, b, **how)
    top = [] if ntop == 5 else [f"--top={ntop}"]
    r, o = diff(a, b, *top, f"--table={','.join(TABLES)}", *options)
    bad = bool(e.bad.any())
    if not tap.ok(o is not None and r.code == (1 if bad else 0),
                  f"{name}: exit {1 if bad else 0}", r):
        return
    said = wrong(o["groups"][0], e, ntop) or \
        wrong_tables(o["groups"][0], e, ntop if top else 0)
    tap.ok(not said, f"{name}: {int(e.bad.sum())} of {e.bad.size}", said)


# ---- pairs of what there is -------------------------------------------------

dumps = {d.name: d for d in oracle.attention_dumps()}
sides = {n: dump_side(d) for n, d in dumps.items() if "/tp" not in n}


def tp_dumps(folder):
    return sorted((d for n, d in dumps.items() if f"/{folder}/" in n),
                  key=lambda d: d.head_start)


def check_pairs():
    """Layouts, block sizes and types; ranks; all with each other if FULL."""
    for n in (2, 4):
        sides[f"tp{n}"] = ranks_side(f"tp{n}", tp_dumps(f"tp{n}"))
    by_model = {}
    for n, s in sides.items():
        model = n.split("/")[0] if "/" in n else "s260k"
        by_model.setdefault(model, []).append(s)
    for model, some in by_model.items():
        pairs = itertools.permutations(some, 2) if FULL else \
            [p for i, s in enumerate(some) for p in ((some[0], s), (s, some[i - 1]))]
        for a, b in pairs:
            options = [] if a.dtype == b.dtype else ["--exact"]
            check(f"{a.name} and {b.name}", a, b, options)


def reblocked(work, dump, slots):
    """The same requests in blocks of another size, one behind the other."""
    whole = dump_side(dump)
    L, H, K, D = next(iter(whole.bits.values())).shape[1:]
    tables, blocks = {}, 1
    for r, n in dump.ntokens.items():
        tables[r] = list(range(blocks, blocks + -(-n // slots)))
        blocks += len(tables[r])
    cells = np.zeros((L, blocks, slots, H, K, D), next(iter(whole.bits.values())).dtype)
    at = np.arange(cells.size).reshape(cells.shape) * dump.itemsize
    offsets = {}
    for r, table in tables.items():
        t = np.arange(dump.ntokens[r])
        where = np.array(table)[t // slots], t % slots
        cells[:, where[0], where[1]] = whole.bits[r].swapaxes(0, 1)
        offsets[r] = at[:, where[0], where[1]].swapaxes(0, 1)
    path = os.path.join(work, f"bs{slots}.npy")
    np.save(path, cells)
    head = os.path.getsize(path) - cells.nbytes
    side = {"file": os.path.basename(path), "layout": "nhd", "dtype": dump.dtype,
            "sizes": sizes(L=L, B=blocks, S=slots, H=H, D=D),
            "layer_names": dump.side["layer_names"], "block_table": tables,
            "num_tokens": dump.ntokens, "null_block": 0}
    write_json(path[:-3] + "json", side)
    made = Side(f"blocks of {slots}", [path], dump.dtype, slots, dump.ntokens,
                whole.bits, {r: o + head for r, o in offsets.items()}, 0)
    made.blocks = tables
    return made


def check_block_sizes(work):
    """Sizes that do not divide each other; one type, and two."""
    dump = dumps["s260k/paged_bs16/packed_nhd.bf16"]
    odd = reblocked(work, dump, 24)
    for name in (dump.name, "s260k/paged_bs32/packed_nhd.bf16",
                 "s260k/paged_bs16/packed_nhd.fp16"):
        for pair in ((sides[name], odd), (odd, sides[name])):
            check(f"{pair[0].name} and {pair[1].name}", *pair, ["--exact"])


def check_part(whole, part, name):
    r, _ = diff(whole, part)
    tap.ok(r.code == 3 and "only A has head" in r.err and not r.out,
           f"{name}: incomparable", r)
    first = part.head0
    cut = Side(whole.name, whole.operands, whole.dtype, whole.slots, whole.tokens,
               {k: v[:, :, first:first + next(iter(part.bits.values())).shape[2]]
                for k, v in whole.bits.items()},
               {k: v[:, :, first:first + next(iter(part.bits.values())).shape[2]]
                for k, v in whole.offsets.items()}, 0)
    check(f"{name}: --common", cut, part, ["--common"])


def check_connectors():
    top = f"{oracle.DATA}/s260k/connector"
    folders = [connector_side(f"{top}/{f}", 4) for f in sorted(os.listdir(top))]
    hints = []
    work = oracle.workdir()
    for c in folders:
        # what has to be said of one folder is not so of the others
        said = ["--heads=4", "--block-size=16"]
        said += ["--layout=nhd"] if c.operands[0].endswith("2026_07") else []
        out = f"{work.name}/{os.path.basename(c.operands[0])}.h5"
        kvtool("import", "-q", "--no-sync", *said, "-o", out, *c.operands)
        c.operands = [out]
    for a, b in itertools.permutations(folders, 2):
        check(f"{a.name} and {b.name}", a, b, hints)
    paged = sides["s260k/paged_bs32/packed_nhd.bf16"]
    for c in folders:
        match = {r: f for r in paged.bits for f in c.bits if c.names[f] == r}
        options = hints + ["--common"] + [f"--match={a}={b}" for a, b in match.items()]
        check(f"{paged.name} and {c.name}", paged, c, options, match=match)
        check(f"{paged.name} and {c.name}, by content", paged, c, hints + ["--common"],
              match=match)


# ---- planted changes --------------------------------------------------------

def planted(work, dump, changes):
    """A copy with other bits at [(k, l, b, s, h, d)]."""
    name = os.path.join(work, os.path.basename(dump.path))
    shutil.copy(dump.path, name)
    shutil.copy(os.path.splitext(dump.path)[0] + ".json",
                os.path.splitext(name)[0] + ".json")
    for at, bits in changes:
        patch(name, data_start(dump) + int(dump.offsets[at]) * dump.itemsize,
              int(bits).to_bytes(dump.itemsize, "little"))
    changed = Dump(dump.model, os.path.splitext(dump.path)[0] + ".json")
    for at, bits in changes:
        changed.cells[at] = bits
    return dump_side(changed, name)


def live_spot(dump):
    request = rng.choice(list(dump.tables))
    t = rng.randrange(dump.ntokens[request])
    K, L, B, S, H, D = dump.cells.shape
    return (rng.randrange(K), rng.randrange(L), dump.tables[request][t // S], t % S,
            rng.randrange(H), rng.randrange(D))


def check_planted(work):
    some = sorted(n for n in dumps if "/tp" not in n)
    for i in range(400 if FULL else 24):
        dump = dumps[some[i % len(some)]]
        other = sides[rng.choice([n for n in sides if n.split("/")[0] == dump.model
                                  and sides[n].dtype == dump.dtype])]
        spots = {live_spot(dump) for _ in range(rng.choice((1, 1, 1, 7)))}
        changes = [(at, int(dump.cells[at]) ^ 1 << rng.randrange(8 * dump.itemsize))
                   for at in spots]
        side = planted(work, dump, changes)
        pair = (other, side) if i % 2 else (side, other)
        check(f"{len(spots)} changed in {dump.name}, against {other.name}", *pair,
              options=[f"--threads={1 + i % 2}"], ntop=4)


NAN, INF = 0x7fc0, 0x7f80


def check_not_finite(work):
    dump = dumps["s260k/paged_bs16/packed_nhd.bf16"]
    spots = [live_spot(dump) for _ in range(5)]
    base = os.path.join(work, "base")
    os.mkdir(base)
    a = planted(base, dump, list(zip(spots, (NAN, NAN, INF, INF, NAN))))
    b = planted(work, dump, list(zip(spots, (NAN, NAN | 1, INF, INF | 0x8000, 0))))
    check("NaN and infinity, by bits", a, b)
    check("NaN and infinity, by value", a, b, ["--tolerance=atol=0"], allowed=(0, 0))
    r, o = diff(a, b, "--tolerance=rel-l2=1e9")
    tap.ok(r.code == 1 and o["groups"][0]["result"] == "differs",
           "what is lost is in no norm and yet differs", r)


# ---- tolerances -------------------------------------------------------------

def check_tolerances():
    a, b = (sides[f"s260k/paged_bs16/packed_nhd.{t}"] for t in ("bf16", "fp16"))
    r, _ = diff(a, b)
    tap.ok(r.code == 3 and "--tolerance=auto" in r.err, "two types: 3 unless asked", r)
    for atol, rtol in ((0, 1e-3), (1e-3, 0), (1e-2, 1e-2), (0, 0)):
        check(f"atol {atol} rtol {rtol}", a, b, [f"--tolerance=atol={atol},rtol={rtol}"],
              allowed=(atol, rtol))
    metrics = Expected(a, b).metrics()
    for term, value, sense in (("rel-l2", metrics["rel_l2"], 1),
                               ("max-abs", metrics["max_abs"], 1),
                               ("cosine", metrics["cosine"], -1),
                               ("pcc", metrics["pcc"], -1)):
        for slack, want in ((1e-6, 0), (-1e-6, 1)):
            bound = value * (1 + sense * slack)
            r, o = diff(a, b, f"--tolerance={term}={bound:.17g}")
            tap.ok(o and r.code == want and
                   o["groups"][0]["broken"] == (term if want else None),
                   f"{term} {'just ' if want == 0 else 'not '}kept", r)
    for pair in itertools.permutations(("bf16", "fp16", "fp32"), 2):
        x, y = (sides[f"s260k/paged_bs16/packed_nhd.{t}"] for t in pair)
        r, _ = diff(x, y, "--tolerance=auto")
        tap.ok(r.code == 0, f"auto: {pair[0]} and {pair[1]} are one truth rounded", r)


def check_ulps(work):
    dump = dumps["s260k/paged_bs16/packed_hnd.bf16"]
    at = live_spot(dump)
    side = planted(work, dump, [(at, int(dump.cells[at]) ^ 3)])
    e = Expected(sides[dump.name], side)
    for ulp, code in ((e.max_ulp(), 0), (e.max_ulp() - 1, 1)):
        r, _ = diff(sides[dump.name], side, f"--tolerance=ulp={ulp}")
        tap.ok(r.code == code, f"{ulp} of {e.max_ulp()} ulp allowed: {code}", r)


def fp8_side(work, dump, scale):
    """The dump as fp8 with a scale, rounded to nearest."""
    order = np.argsort(E4M3[:254], kind="stable")
    order = order[~np.isnan(E4M3[order])]
    table, true = E4M3[order], values(dump.cells, dump.dtype) / scale
    i = np.clip(np.searchsorted(table, true), 1, len(table) - 1)
    i -= np.abs(table[i - 1] - true) < np.abs(table[i] - true)
    flat = np.zeros(dump.nelements, np.uint8)
    flat[dump.offsets] = order[i]
    path = os.path.join(work, "fp8.npy")
    np.save(path, flat.reshape(np.load(dump.path).shape))
    side = dict(dump.side, file="fp8.npy", dtype="float8_e4m3fn", npy_dtype="|u1")
    write_json(path[:-3] + "json", side)
    copy = Dump.__new__(Dump)
    copy.__dict__.update(dump.__dict__, path=path, dtype="float8_e4m3fn", itemsize=1,
                         cells=order[i].astype(np.uint8), name="fp8")
    return dump_side(copy)


def check_fp8(work):
    dump = dumps["s260k/paged_bs16/packed_nhd.bf16"]
    b, scale = sides["s260k/paged_bs16/rocm_x.bf16"], 0.0625
    a = fp8_side(work, dump, scale)
    r, _ = diff(a, b, "--tolerance=auto")
    tap.ok(r.code == 3 and "--scale-a" in r.err, "fp8 without a scale: 3", r)
    r, _ = diff(a, b, "--tolerance=auto", f"--scale-a={scale}")
    tap.ok(r.code == 0, "fp8 with its scale is within rounding", r)
    r, _ = diff(a, b, "--tolerance=auto", "--scale-a=1")
    tap.ok(r.code == 1, "fp8 with another scale is not", r)
    check("fp8 and bf16", a, b, ["--exact", f"--scale-a={scale}"], scale=(scale, 1))
    check("fp8 and bf16, keys and values scaled alike", a, b,
          ["--tolerance=atol=0.01,rtol=0.05", f"--scale-a={scale},{scale}"],
          scale=(scale, 1), allowed=(0.01, 0.05))


def lost_rows(e, scale):
    """{(layer, kv): figures} of what fp8 has lost of A."""
    out, top = {}, 448 * scale
    for l, k in np.ndindex(e.va.shape[1], e.va.shape[3]):
        a, b = e.va[:, l, :, k].ravel(), e.vb[:, l, :, k].ravel()
        out[l, k] = (np.sqrt(((a - b) ** 2).sum() / (a @ a)),
                     a @ b / np.sqrt((a @ a) * (b @ b)), np.abs(a - b).max(),
                     int(((np.abs(b) == top) & (np.abs(a) > top + 16 * scale)).sum()),
                     int(((b == 0) & (a != 0)).sum()))
    return out


def check_lost(work):
    """Scales of which one is too small and one too large."""
    dump = dumps["s260k/paged_bs16/packed_nhd.bf16"]
    a = sides["s260k/paged_bs16/rocm_x.bf16"]
    for scale in (0.004, 0.0625, 0.5):
        b = fp8_side(work, dump, scale)
        r, o = diff(a, b, "--tolerance=atol=1e9", f"--scale-b={scale}", "--table=layer")
        said = o["groups"][0]["lost"]
        want = lost_rows(Expected(a, b, scale=(1, scale)), scale)
        got = {(row["layer"], row["kv"]): tuple(row[x] for x in (
            "rel_l2", "cosine", "max_abs", "saturated", "zeroed"))
            for row in said["layers"]}
        tap.ok(got.keys() == want.keys() and
               all(np.allclose(got[x], want[x], rtol=1e-9) for x in want) and
               said["saturated"] == sum(x[3] for x in want.values()) and
               said["zeroed"] == sum(x[4] for x in want.values()),
               f"lost with scale {scale}: {said['saturated']}, {said['zeroed']}",
               f"got {got}\nwant {want}")
        order = [row["rel_l2"] for row in said["layers"]]
        rows = o["groups"][0]["tables"]["layer"]
        tap.ok(order == sorted(order, reverse=True) and
               all(row["saturated"] == sum(want[row["layer"], k][3] for k in (0, 1))
                   for row in rows), "lost: the worst first, and in tables", rows)


# ---- by block ---------------------------------------------------------------

def check_blocks(work):
    """Stale blocks count by block and not by token."""
    dump = dumps["s260k/paged_bs16/packed_blshc.bf16"]
    used = {b for t in dump.tables.values() for b in t}
    block = next(b for b in range(1, dump.dims["B"]) if b not in used)
    at = (1, 2, block, 3, 1, 5)
    side = planted(work, dump, [(at, int(dump.cells[at]) ^ 0x80)])
    whole = sides["s260k/paged_bs16/packed_nhd.bf16"]
    check("a stale block, by token", whole, side)
    r, o = diff(whole, side, "--by=blocks")
    g = o["groups"][0] if o else None
    tap.ok(r.code == 1 and g["metrics"]["different"] == 1 and
           [g["first"][k] for k in ("layer", "head", "kv", "dim", "token")] ==
           [2, 1, 1, 5, None] and g["first"]["b"]["block"] == block and
           g["first"]["a"]["slot"] == 3 and g["elements"] == dump.nelements,
           "a stale block, by block", r)


# ---- recurrent states -------------------------------------------------------

def check_mamba(work):
    def side(folder, n):
        return [f"{oracle.DATA}/mamba2g4/{folder}/rank{i}.npy" for i in range(n)]

    every = [side("tp1_SD", 1), side("tp1_DS", 1), side("tp2_SD", 2), side("tp4_DS", 4)]
    for a, b in itertools.permutations(every, 2):
        r = kvtool("diff", *a, ":", *b)
        tap.ok(r.code == 0 and r.out.count(": equal,") == 2,
               f"states of {len(a)} and {len(b)} ranks are equal", r)
    for i in range(40 if FULL else 6):
        dump = MambaDump(f"{oracle.DATA}/mamba2g4/tp2_SD/rank{i % 2}.json")
        conv, table = dump.side["conv"], dump.side["block_table"]
        request = rng.choice(list(table))
        entry = rng.randrange(len(table[request]))
        taps, channels = conv["shape"]
        l, tap_, c = rng.randrange(3), rng.randrange(taps), rng.randrange(channels)
        name = os.path.join(work, os.path.basename(dump.path))
        page = np.load(dump.path)
        flat = page.reshape(3, page.shape[1] if page.shape[0] == 3 else -1, -1)
        at = conv["byte_offset"] + 2 * (tap_ * channels + c)
        flat[l, table[request][entry], at] ^= 1
        np.save(name, page)
        shutil.copy(dump.path[:-3] + "json", name[:-3] + "json")
        ranks = every[2].copy()
        ranks[i % 2] = name
        r = kvtool("diff", "--json", *every[1], ":", *ranks)
        o = r.json if r.out else {"groups": [{"first": None}]}
        first, head = o["groups"][0]["first"], conv_heads(conv)[0][c]
        tap.ok(r.code == 1 and first and
               [first[k] for k in ("layer", "request", "token", "dim", "head")] ==
               [l, request, entry, head, None] and
               [first["b"][k] for k in ("slot", "dim")] == [tap_, c],
               f"channel {head} of rank {i % 2} is found", r)


# ---- files of maps ----------------------------------------------------------

def check_files(work):
    a = sides["s260k/paged_bs16/packed_nhd.bf16"]
    b = sides["s260k/paged_bs16/packed_nhd.fp16"]
    e = Expected(a, b)
    for ending in ("svg", "csv", "json", "txt"):
        path = os.path.join(work, f"map.{ending}")
        r = kvtool("diff", "-q", "--exact", f"--heatmap={path}", *a.operands, *b.operands)
        tap.ok(r.code == 1 and os.path.getsize(path) > 100 and not r.out,
               f"--heatmap: {ending}", r)
    tree = xml.etree.ElementTree.parse(os.path.join(work, "map.svg"))
    titles = [t.text for t in tree.iter("{http://www.w3.org/2000/svg}title")]
    cells = len(e.by_head()) + len(e.by_position())
    tap.equal(len(titles), 1 + cells, "the picture has every cell, with a title")
    width, height = float(tree.getroot().get("width")), float(tree.getroot().get("height"))
    boxes = [[float(r.get(k)) for k in ("x", "y", "width", "height")]
             for r in tree.iter("{http://www.w3.org/2000/svg}rect") if r.get("x")]
    tap.ok(all(x >= 0 and x + w <= width + 0.1 and y + h <= height
               for x, y, w, h in boxes), "all of it is inside the picture")
    lines = read_text(os.path.join(work, "map.csv")).splitlines()
    rows = [x.replace('"', "").split(",") for x in lines[1:]]
    L, H = e.bad.shape[1:3]
    tap.equal(len(rows), L * H + L * len(e.columns), "CSV: a row for each cell")
    tap.equal(sum(int(r[5]) for r in rows), 2 * int(e.bad.sum()), "CSV: each counts once")
    o = read_json(os.path.join(work, "map.json"))
    tap.equal(len(o["groups"][0]["by_head"]), len(e.by_head()), "JSON: the map by head")


def check_snapshots(work):
    """Stored digests give the answer, and do not hide a difference."""
    names = [os.path.join(work, f"{i}.h5") for i in range(3)]
    dump = dumps["gqa64/paged_bs16/packed_nhd.bf16"]
    kvtool("convert", dump.path, names[0])
    kvtool("relayout", "--to=hnd", "-o", names[1], names[0])
    for options, n in (((), None), (("--deep",), 0)):
        r = kvtool("diff", "--json", *options, *names[:2])
        g = r.json["groups"][0]
        tap.ok(r.code == 0 and g["by_digest"] == (g["elements"] if n is None else n),
               f"equal snapshots {options}", r)
    K, L, B, S, H, D = dump.cells.shape
    last = (K - 1, L - 1, max(max(t) for t in dump.tables.values()), 0, H - 1, D - 1)
    for at in [last] + [live_spot(dump) for _ in range(4)]:
        side = planted(work, dump, [(at, int(dump.cells[at]) ^ 4)])
        kvtool("relayout", "-f", "--to=lhbsc", "-o", names[2], side.operands[0])
        r = kvtool("diff", "--json", names[0], names[2])
        e = Expected(sides[dump.name], side)
        e.offsets = [None, None]
        said = wrong(r.json["groups"][0], e, 5) if r.out else r
        tap.ok(r.code == 1 and not said, f"{at} differs in a snapshot", said)


def main():
    check_pairs()
    whole = sides["s260k/paged_bs16/packed_nhd.bf16"]
    for folder in ("tp2", "tp4"):
        for d in tp_dumps(folder):
            check_part(whole, dump_side(d), d.name)
    check_connectors()
    check_tolerances()
    for what in (check_block_sizes, check_planted, check_not_finite, check_ulps, check_fp8,
                 check_lost, check_blocks,
                 check_mamba, check_files, check_snapshots):
        with oracle.workdir() as work:
            what(work)


oracle.run(main)
