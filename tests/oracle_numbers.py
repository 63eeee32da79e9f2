#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_numbers.py - every command names a block by its id in the engine's pool

One dump of two groups whose pools have different ids at the same positions, no
id being its own position.  Whatever prints or takes the number of a block must
mean the id; a position is only what is called so.  What is where is worked out
with numpy from the arrays that the files were made of.
"""
import json
import os
import re
import shutil

import h5py
import numpy as np

import oracle
from oracle import (kvtool, read_text, refused, runs, safetensors_tensors, sizes, tap,
                    write_json, write_text)

L, S, H, D = 2, 4, 2, 8
IDS = {"full": [100, 7, 55, 1, 20, 4], "local": [100, 9, 0, 77, 2, 50]}
TABLES = {"full": {"A": [7, 55, 4], "B": [20, 1]},
          "local": {"A": [9, 0, 50], "B": [2, 77]}}
TOKENS = {"A": 10, "B": 8}
NULL = 100


def cells_of(group):
    """[L][B][S][H][K][D], no two alike and none zero but in the null block."""
    n = L * 6 * S * H * 2 * D
    cells = np.arange(1, n + 1, dtype=np.float32).reshape(L, 6, S, H, 2, D)
    cells = cells + (5000 if group == "local" else 0)
    cells[:, 0] = 0
    return cells


def write(path, tables=TABLES, one=False):
    """Both groups, or the first alone, as a raw file with a manifest."""
    names = ["full"] if one else ["full", "local"]
    groups = [{"id": g, "kind": "full_attention", "layout": "nhd", "dtype": "float32",
               "block_ids": IDS[g], "block_table": tables[g],
               "layer_ids": [0, 1] if g == "full" else [2, 3],
               "sizes": sizes(L=L, B=6, S=S, H=H, D=D)}
              for g in names]
    with open(path, "wb") as f:
        for g in names:
            f.write(cells_of(g).tobytes())
    write_json(os.path.splitext(path)[0] + ".json",
               {"file": os.path.basename(path), "null_block": NULL, "num_tokens": TOKENS,
                "groups": groups})
    return path


def offset(group, b, layer=0, s=0, h=0, k=0, d=0, start=0):
    """Of an element in the raw file, by the id of its block."""
    at = np.ravel_multi_index((layer, IDS[group].index(b), s, h, k, d),
                              (L, 6, S, H, 2, D))
    return int(start + 4 * at + (cells_of("full").nbytes if group == "local" else 0))


def run(*args):
    r = kvtool(*args)
    return r, (r.json if r.code in (0, 1) and r.out[:1] == "{" else None)


def said(r, name, *words, code=None):
    text = r.out + r.err
    tap.ok((code is None or r.code == code) and all(w in text for w in words), name, r)


# ---- what is printed ---------------------------------------------------------

def check_describe(dump, h5):
    for path in (dump, h5):
        r, o = run("describe", "--json", "--block-tables", path)
        what = os.path.basename(path)
        tap.equal({q["id"]: q["block_tables"] for q in o["requests"]},
                  {q: [TABLES[g][q] for g in IDS] for q in TOKENS},
                  f"describe --json {what}: tables are of ids")
        tap.equal((o["null_block"], [g["block_ids"] for g in o["groups"]]),
                  (NULL, list(IDS.values())), f"describe --json {what}: null block, ids")
        r = kvtool("describe", "--block-tables", path)
        lines = [line.strip() for line in r.out.splitlines()]
        tap.ok(all(" ".join(map(str, t[q])) in lines
                   for t in TABLES.values() for q in t), f"describe {what}: tables", r)
        tap.equal(r.out.count("block 100 null"), 2, f"describe {what}: null blocks")
    contract = os.path.join(os.path.dirname(dump), "contract")
    write_text(contract, f"kvtool-contract 1\nnull_block = {NULL}\n")
    runs("expect: the null block by its id", "expect", "check", contract, dump)


def check_places(dump):
    for g, ids in IDS.items():
        for p, b in enumerate(ids):
            want = cells_of(g)[1, p, 3, 1, 1, :3].tolist()
            for key, n in (("block", b), ("position", p)):
                r, o = run("describe", "--json", dump, f"--peek=group={g},layer=1,"
                           f"{key}={n},slot=3,head=1,kv=v,count=3")
                one = o["peeks"][0] if o else {}
                tap.equal((one.get("block"), one.get("position"),
                           one.get("fields", [{}])[0].get("values")), (b, p, want),
                          f"describe --peek {g} {key} {n}")
            at = offset(g, b, 1, 3, 1, 1, 2)
            r, o = run("where", "--json", dump, f"--offset={at}",
                       f"--at=group={g},layer=1,block={b},slot=3,head=1,kv=v,dim=2",
                       f"--at=group={g},layer=1,position={p},slot=3,head=1,kv=v,dim=2")
            tap.equal([(x["offset"], x["block"], x["block_id"], x["position"])
                       for x in o["matches"]], 3 * [(at, b, b, p)],
                      f"where {g} block {b}")
    r = kvtool("describe", dump, "--peek=group=full,block=7")
    said(r, "describe --peek says which", "block 7,", code=0)
    r = kvtool("where", dump, f"--offset={offset('local', 77)}")
    said(r, "where says which", "block=77,", "position 3 in the dump", code=0)
    r, o = run("where", "--json", dump,
               "--at=group=local,request=B,token=4,layer=0,head=0,kv=k,dim=0")
    tap.equal(o["matches"][0]["block"], 77, "where: the block of a token")
    for key in ("block=3", "position=6"):
        refused(f"where: there is no {key}", 2, "", "where", dump,
                f"--at=group=full,layer=0,{key},slot=0,head=0,kv=k,dim=0")


def check_digest(dump):
    r = kvtool("digest", "--by=block", dump)
    tap.equal({int(b) for b in re.findall(r"block=(\d+)", r.out)},
              set(sum(IDS.values(), [])), "digest --by=block")


# ---- a fault, from mutate to what finds it -----------------------------------

def check_fault(dump, tmp):
    for g, b, layer in (("full", 7, 1), ("local", 77, 3)):
        bad = f"{tmp}/bad.safetensors"
        r = kvtool("mutate", "-f", f"--fault=zero-block,block={b},layer={layer}",
                   f"--group={g}", "-o", bad, dump)
        said(r, f"mutate block {b}", f"block {b}", code=0)
        p = IDS[g].index(b)
        want = {x: cells_of(x) for x in IDS}
        want[g][1, p] = 0
        got = {n: t[2] for n, t in safetensors_tensors(bad).items()}
        tap.ok(got == {n: c.tobytes() for n, c in want.items()},
               f"mutate block {b}: it alone is zero", list(got))
        for by in ("tokens", "blocks"):
            r, o = run("diff", "--json", f"--by={by}", dump, bad)
            found = [x for x in o["groups"] if x.get("first")]
            tap.equal([(x["first"][s]["block"], x["first"][s]["position"])
                       for x in found for s in "ab"], 2 * [(b, p)],
                      f"diff --json --by={by} of block {b}")
            r = kvtool("diff", f"--by={by}", dump, bad)
            others = set(map(int, re.findall(r"\bblocks? (\d+)", r.out))) - {b}
            tap.ok(r.code == 1 and f"block {b} slot" in r.out and not others,
                   f"diff --by={by} names block {b}", r)
        maps = {}
        for form in ("svg", "csv", "txt", "json"):
            kvtool("diff", "-f", "--by=blocks", f"--heatmap={tmp}/map.{form}", dump, bad)
            maps[form] = read_text(f"{tmp}/map.{form}")
        tap.equal({int(x) for x in re.findall(rf"{g},position,.*block (\d+)",
                                              maps["csv"])}, set(IDS[g]),
                  f"diff: a map's columns, as CSV ({g})")
        tap.equal(re.findall(r"from block (\d+) to block (\d+)", maps["txt"]),
                  [(str(min(IDS[g])), str(max(IDS[g])))],
                  f"diff: a map's columns, drawn ({g})")
        tap.equal([x["position"] for y in json.loads(maps["json"])["groups"]
                   for x in y["by_position"]], [f"block {b}"],
                  f"diff: where a map has something, as JSON ({g})")
        tap.equal({int(x) for x in re.findall(r"block (\d+)", maps["svg"])},
                  {min(IDS[g]), max(IDS[g]), b},
                  f"diff: the ends of a map and the block, as SVG ({g})")
        r = kvtool("fsck", bad)
        said(r, f"fsck of block {b}", f"live.zero: group={g},layer=1,block={b},slot=0")
        r, o = run("fsck", "--json", bad)
        at = {f["at"] for f in o["files"][0]["findings"] if f["name"] == "live.zero"}
        tap.ok(at and all(f"block={b}," in a for a in at), f"fsck --json of block {b}", r)


def check_verify(h5, tmp):
    """A stored digest that is wrong."""
    bad = f"{tmp}/cell.h5"
    shutil.copyfile(h5, bad)
    with h5py.File(bad, "r+") as f:
        oracle.unprove(f)
        f["groups/local/content_digest"][1, 3, 1, 0] = 1
    r, o = run("describe", "--json", "--verify", bad)
    found = o["groups"][1]["verify"]["findings"]
    tap.equal([(x["block"], x["position"]) for x in found], [(77, 3)],
              "describe --verify --json")
    said(kvtool("describe", "--verify", bad), "describe --verify", "block 77 ", code=1)
    said(kvtool("fsck", bad), "fsck of a digest", "digest.cell", "block=77,")
    with h5py.File(bad, "r+") as f:
        f["groups/full/block_valid"][1] = 1
        f["groups/full/block_valid"][2] = 5
    said(kvtool("fsck", bad), "fsck of counts that cannot be", "valid.capacity",
         "block 55 ")
    with h5py.File(bad, "r+") as f:
        f["groups/full/block_valid"][2] = 4
        f["groups/full/block_valid"][1] = 1
    said(kvtool("fsck", "--fast", bad), "fsck of too few live slots", "valid.short",
         "group=full,block=7")


def check_tables(tmp):
    """Tables that cannot be true."""
    cases = {"table.repeated": ([7, 55, 7], "request=A,block=7"),
             "table.null-block": ([7, 100, 4], "request=A,block=100"),
             "table.shared": ([7, 20, 4], "request=B,block=20")}
    for name, (table, at) in cases.items():
        path = write(f"{tmp}/t.bin", {**TABLES, "full": {**TABLES["full"], "A": table}})
        r = kvtool("fsck", "--fast", path)
        said(r, f"fsck: {name}", f"{name}: group=full,{at}")
        if name == "table.repeated":
            r = kvtool("reblock", "-f", "-b", 8, "-o", f"{tmp}/r.bin", path)
            said(r, "reblock: twice in a table", "block 7 of full is listed twice", code=3)


# ---- ids as options ----------------------------------------------------------

def check_slice(tmp):
    part = f"{tmp}/part.h5"
    one = write(f"{tmp}/one.bin", one=True)
    kvtool("slice", "-f", "--blocks=7,55,20", "-o", part, one)
    r, o = run("describe", "--json", "--block-tables", part)
    tap.equal([o["groups"][0]["block_ids"], [q["block_tables"] for q in o["requests"]]],
              [[7, 55, 20], [[[7, 55]], [[20]]]], "slice --blocks takes and keeps ids")
    r, o = run("describe", "--json", part, "--peek=block=55,count=2")
    tap.equal((o["peeks"][0]["block"], o["peeks"][0]["position"],
               o["peeks"][0]["fields"][0]["values"]),
              (55, 1, cells_of("full")[0, 2, 0, 0, 0, :2].tolist()), "a slice's block 55")


def check_copy(tmp):
    one = write(f"{tmp}/one.bin", one=True)
    out = f"{tmp}/copied.bin"
    r = kvtool("copy-blocks", "-f", "--blocks=7:55", "-o", out, one, one)
    raw = np.frombuffer(open(out, "rb").read(), np.float32).reshape(L, 6, S, H, 2, D) \
        if r.code == 0 else np.zeros((L, 6))
    tap.ok(r.code == 0 and np.array_equal(raw[:, 2], cells_of("full")[:, 1]) and
           np.array_equal(raw[:, 1], cells_of("full")[:, 1]), "copy-blocks 7:55", r)
    r = kvtool("copy-blocks", "-f", "--blocks=7:55,20:55", "-o", out, one, one)
    said(r, "copy-blocks: 55 twice", "block id 55 is listed twice", code=3)
    r = kvtool("copy-blocks", "-f", "--blocks=3:55", "-o", out, one, one)
    said(r, "copy-blocks: 3 is a position only", "no block 3", code=3)


def check_views(dump, tmp):
    """The pictures of a transfer show the first block that moves: A's in 'full'."""
    one = write(f"{tmp}/one.bin", one=True)
    out = f"{tmp}/page.html"
    r = kvtool("transfer-sim", "report", "-f", f"--html={out}", "--request=A", one, one)
    text = open(out).read() if r.code == 0 else ""
    tap.equal(sorted(set(re.findall(r"Block (\d+) of the (source|destination)", text))),
              [("7", "destination"), ("7", "source")], "transfer-sim report --html")


def main(tmp):
    dump, h5 = write(f"{tmp}/two.bin"), f"{tmp}/two.h5"
    r = kvtool("convert", "--tile=64", dump, h5)
    if tap.ok(r.code == 0, "two groups, two pools", r):
        check_describe(dump, h5)
        check_places(dump)
        check_digest(dump)
        check_fault(dump, tmp)
        check_verify(h5, tmp)
        check_tables(tmp)
        check_slice(tmp)
        check_copy(tmp)
        check_views(dump, tmp)


oracle.run(main)
