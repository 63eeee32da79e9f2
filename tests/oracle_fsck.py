#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_fsck.py - each finding of kvtool fsck, planted

A real dump is clean.  Then one thing is made wrong, in the manifest, in the data
or with h5py in a snapshot, and fsck must name it, at the right place and no other
error.  Findings that no file can be made to have (the reader refuses it earlier,
in its own words) are planted in tests/unit/formats/test_snapshot.c.
"""
import json
import os
import re
import shutil

import numpy as np

import oracle
from oracle import DATA, flip, kvtool, read_json, read_text, runs, tap, write_json

try:
    import h5py
except ImportError:
    h5py = None

NHD = f"{DATA}/s260k/paged_bs16/packed_nhd.bf16"
TP4 = [f"{DATA}/s260k/tp4/rank{r}.packed_hnd.bf16" for r in range(4)]
PAGES = f"{DATA}/mamba2g4/tp2_SD/rank1"
planted = set()


def fsck(*args):
    """(result, {name: [at, ...]} of all files)"""
    r = kvtool("fsck", "--json", *args)
    found = {}
    try:
        for report in r.json["files"]:
            for f in report["findings"]:
                found.setdefault(f["name"], []).append(f["at"] or "")
    except ValueError:
        found = {"no JSON": [r.out, r.err]}
    return r, found


def severity():
    """{name: severity} from the program's own list."""
    rows = [line.split() for line in kvtool("fsck", "--list").out.splitlines()]
    return {row[0]: row[1] for row in rows}


SEVERITY = severity()


def expect(what, name, at, *args, also=(), code=None):
    """The finding is there, at a place that has 'at', and no error beside it."""
    planted.add(name)
    r, found = fsck(*args)
    want = {"error": 1, "warning": 0, "note": 0}[SEVERITY.get(name, "error")]
    if name == "file.unreadable":
        want = 3
    others = [n for n in found if n != name and n not in also and
              SEVERITY.get(n) != "note"]
    tap.ok(name in found and any(at in a for a in found[name]) and not others and
           r.code == (want if code is None else code), f"{name}: {what}",
           f"found {found}\n{r}")


# ---- a dump to break --------------------------------------------------------

class Broken:
    """A copy of an array with its manifest, changed by a function."""

    def __init__(self, tmp, stem=NHD, ending="npy"):
        self.path = f"{tmp}/broken.{ending}"
        shutil.copyfile(f"{stem}.{ending}", self.path)
        self.side = read_json(f"{stem}.json")
        self.side["file"] = os.path.basename(self.path)

    def save(self):
        write_json(os.path.splitext(self.path)[0] + ".json", self.side)
        return self.path

    def array(self):
        return np.load(self.path)

    def put(self, array):
        np.save(self.path, array)


def manifest_plants(tmp):
    """(what, name, at, change of the manifest, further findings)"""
    def table(request, index, block):
        def change(side):
            side["block_table"][request][index] = block
        return change

    def names(*pairs):
        def change(side):
            for l, name in pairs:
                side["layer_names"][l] = name
        return change

    def rank(**keys):
        def change(side):
            side.update(keys)
        return change

    def lose_table(side):
        del side["block_table"]["C"]

    def tokens(request, n):
        def change(side):
            side["num_tokens"][request] = n
        return change

    def holes(request, begin, end):
        return lambda side: side.update(holes={request: [[begin, end]]})

    def token_ids(side):
        side["token_ids"] = {"A": list(range(421)), "B": list(range(188))}
        side["token_ids"]["B"][17] = 99

    def few_ids(side):
        side["token_ids"] = {"C": [1, 2, 3]}

    def swap_names(side):
        n = side["layer_names"]
        n[1], n[2] = n[2], n[1]

    attn = "model.layers.%d.self_attn.attn"
    return [
        ("entry 3 of C", "table.out-of-pool", "", table("C", 3, 48), ()),
        ("entry 3 of C, far out", "table.out-of-pool", "",
         table("C", 3, 4000000000), ()),
        ("two entries at once", "table.out-of-pool", "",
         lambda s: (table("C", 1, 99)(s), table("A", 5, 77)(s)), ()),
        ("entry 2 of B", "table.null-block", "request=B", table("B", 2, 0),
         ("live.zero", "null.nonzero")),
        ("entry 4 of C is entry 0", "table.repeated", "request=C,block=39",
         table("C", 4, 39), ()),
        ("another place", "table.shared", "block=20", table("C", 3, 20), ()),
        ("the first block of A", "table.shared", "block=13", table("C", 2, 13), ()),
        ("same place, other prefix", "table.shared", "block=15",
         table("C", 2, 15), ()),
        ("not the first block", "table.shared", "block=14",
         lambda s: (table("B", 0, 12)(s), table("B", 2, 13)(s)), ()),
        ("token 17", "table.shared-tokens", "block=14", token_ids, ()),
        ("C lacks tokens 3 and 4", "request.missing", "group=g0,request=C",
         holes("C", 3, 5), ()),
        ("C lacks token 80", "request.holes", "", holes("C", 79, 81), ()),
        ("C", "request.token-ids", "request=C", few_ids, ()),
        ("C has no table", "table.missing", "", lose_table, ()),
        ("81 tokens in 5 blocks", "table.too-short", "", tokens("C", 81), ()),
        ("64 tokens in 5 blocks", "table.spare", "request=C", tokens("C", 64), ()),
        ("null block 48", "null.out-of-pool", "", rank(null_block=48), ()),
        ("layer 3 is called 2", "layers.duplicate-name", "layer=3",
         names((3, attn % 2)), ("layers.gap",)),
        ("layer 4 is called 6", "layers.gap", "", names((4, attn % 6)), ()),
        ("layer 4 is called 5", "layers.gap", "", names((4, attn % 5)), ()),
        ("layers 1 and 2 swapped", "layers.order", "layer=2", swap_names, ()),
        ("heads of rank 0", "tp.heads", "",
         rank(tp_size=2, tp_rank=1, total_kv_heads=8, head_start=0), ()),
        ("5 heads on 2 ranks", "tp.heads", "group=g0",
         rank(tp_size=2, tp_rank=0, total_kv_heads=9, head_start=0), ()),
        ("4 of 8 heads", "tp.partial", "group=g0",
         rank(total_kv_heads=8, head_start=2), ()),
        ("rank 2 of 2", "tp.rank", "", rank(tp_size=2, tp_rank=2), ()),
    ]


def check_manifests(tmp):
    for what, name, at, change, also in manifest_plants(tmp):
        b = Broken(tmp)
        change(b.side)
        expect(what, name, at, b.save(), also=also)
        # without data the same, but for what data shows
        expect(f"{what}, --fast", name, at, "--fast", b.path,
               also=() if name != "layers.duplicate-name" else ("layers.gap",))


def check_terminal(tmp):
    """What a file calls a request is no command to a terminal."""
    b = Broken(tmp)
    b.side["block_table"]["\x1b[2J"] = [39, 39]
    b.side["num_tokens"]["\x1b[2J"] = 20
    r = kvtool("fsck", "--fast", b.save())
    tap.ok(r.code == 1 and "request=?[2J" in r.out and "\x1b" not in r.out + r.err,
           "no control characters are printed", r)


def check_all_told(tmp):
    """Two flaws that each refuse the file are both told."""
    b = Broken(tmp)
    b.side["block_table"]["C"][3] = 1000
    b.side["block_table"]["A"][1] = 2000
    b.side["num_tokens"]["B"] = 10000
    r, found = fsck(b.save())
    tap.ok(r.code == 1 and len(found.get("table.out-of-pool", [])) == 2 and
           "table.too-short" in found, "all flaws of a refused file are told", r)


# ---- data -------------------------------------------------------------------

def slot_offset(dump, layer, block, slot):
    """First element of a slot, by the sidecar's address map (nhd)."""
    return int(dump.offsets[0, layer, block, slot, 0, 0])


def check_data(tmp):
    dump = next(d for d in oracle.attention_dumps()
                if d.path.endswith("s260k/paged_bs16/packed_nhd.bf16.npy"))
    b = Broken(tmp)
    flat = b.array().reshape(-1)
    row = dump.dims["H"] * 2 * dump.dims["D"]

    def with_row(layer, block, slot, value):
        bits = flat.copy()
        at = slot_offset(dump, layer, block, slot)
        bits[at:at + row] = value
        b.put(bits.reshape(b.array().shape))
        return b.save()

    expect("layer 2, slot 5", "null.nonzero", "layer=2,block=0,slot=5",
           with_row(2, 0, 5, 0x3f80))
    expect("token 0 of C in layer 4", "live.zero", "layer=4,block=39,slot=0",
           with_row(4, 39, 0, 0))
    # what is stale: counted with numpy, one more when one is planted
    live = np.zeros((dump.dims["B"], dump.dims["S"]), bool)
    for r, table in dump.tables.items():
        t = np.arange(dump.ntokens[r])
        live[np.array(table)[t // 16], t % 16] = True
    some = dump.cells.any(axis=(0, 4, 5))
    stale = int((some & ~live[None])[:, 1:].sum())
    planted.add("stale.slots")
    empty = next((b, t) for b in range(1, dump.dims["B"])
                 for t in range(dump.dims["S"])
                 if not live[b, t] and not some[3, b, t])
    for place, n in (((0, 13, 0), stale), ((3, *empty), stale + 1)):
        r = runs(f"stale.slots: {n} of them", "fsck", with_row(*place, 1),
                 says=(f"{n} unused slots", "stale.slots"))
    r, found = fsck("--fast", with_row(2, 0, 5, 0x3f80))
    tap.ok(r.code == 0 and not found, "--fast reads no data", r)
    os.truncate(b.path, 1000)
    expect("a truncated file", "file.unreadable", "", b.save())


def check_padding(tmp):
    b = Broken(tmp, PAGES)
    shape = b.side["file_shape"]
    pages = b.array().reshape(shape)
    padded = np.pad(pages, [(0, 0)] * 4 + [(0, 56)])
    b.side["file_shape"] = shape[:4] + [shape[4] + 56]
    b.side["page_bytes"] = shape[4] + 56
    b.put(padded)
    r, found = fsck(b.save())
    tap.ok(r.code == 0 and not found, "padded pages of zeros are clean", r)
    padded[2, 4, 0, 0, shape[4] + 55] = 7
    b.put(padded)
    expect("the last byte of a page", "padding.nonzero", "layer=2,block=4", b.save())
    tap.equal(len(fsck(b.path)[1]["padding.nonzero"]), 1, "of two groups in it one is named")
    # content beside it is not padding
    padded[2, 4, 0, 0, shape[4] + 55] = 0
    padded[2, 2, 0, 0, shape[4] - 1] ^= 255
    b.put(padded)
    r, found = fsck(b.save())
    tap.ok("padding.nonzero" not in found, "the last byte of content is none", r)


def check_page_offset(tmp):
    """A group that begins inside its page: padding before it and behind."""
    b = Broken(tmp, f"{DATA}/mla144/paged_bs16/mla_lbsc.bf16")
    content = b.array().view(np.uint8).reshape(3 * 15, 4608)
    pages = np.pad(content, [(0, 0), (32, 64)])
    for key in ("file_shape", "file_axes", "npy_dtype"):
        del b.side[key]
    b.side.update(page_bytes=4704, page_offset=32)
    for at, clean in ((None, True), (31, False), (32, True), (4639, True),
                      (4640, False), (4703, False)):
        broken = pages.copy()
        if at is not None:
            broken[22, at] ^= 1
        b.put(broken.reshape(-1).view("<u2"))
        r, found = fsck(b.save())
        tap.equal((r.code, found), (0, {} if clean else
                                    {"padding.nonzero": ["group=g0,layer=1,block=7"]}),
                  f"padding.nonzero: byte {at} of a page with content from 32 to 4640")
    for clause, code in (("=32", 0), (">=64", 1)):
        r = kvtool("describe", "-j", "--expect", f"alignment{clause}", b.path)
        tap.equal(r.code, code, f"blocks begin at byte 32 of pages: alignment{clause}")


# ---- snapshots --------------------------------------------------------------

def check_snapshots(tmp):
    whole, path = f"{tmp}/whole.h5", f"{tmp}/broken.h5"
    kvtool("convert", "-f", f"{NHD}.npy", whole)

    def broken(change):
        shutil.copyfile(whole, path)
        with h5py.File(path, "r+") as f:
            change(oracle.unprove(f))
        return path

    def put(name, index, value):
        def change(f):
            f[name][index] = value
        return change

    def attr(name, key, value):
        def change(f):
            f[name].attrs.modify(key, value)
        return change

    def ids(values):
        def change(f):
            f["groups/g0"].create_dataset("layer_ids", data=np.array(values, "<u4"))
            f["groups/g0/layer_ids"].dims[0].label = "layer"
        return change

    def block_ids(f):
        values = np.arange(48, dtype="<u8")
        values[7] = 6
        f["groups/g0"].create_dataset("block_ids", data=values)
        f["groups/g0/block_ids"].dims[0].label = "block"

    r, found = fsck(whole)
    tap.ok(r.code == 0 and set(found) == {"stale.slots"}, "a snapshot is clean", r)
    for what, name, at, change, also in (
            ("request B is called A", "request.duplicate", "request=A",
             attr("requests/1", "request_id", b"A"), ()),
            ("17 of 16 slots", "valid.capacity", "",
             put("groups/g0/block_valid", 20, 17), ()),
            ("15 of 16 slots", "valid.short", "block=20",
             put("groups/g0/block_valid", 20, 15), ()),
            ("a last block too full", "valid.excess", "block=47",
             put("groups/g0/block_valid", 47, 16), ("live.zero",)),
            ("the null block", "null.valid", "block=0",
             put("groups/g0/block_valid", 0, 1), ()),
            ("entry 4 of C", "table.out-of-pool", "",
             put("requests/2/block_table/g0", 4, 48), ()),
            ("two layers 3", "layers.duplicate-id", "layer=3",
             ids([0, 1, 3, 3, 4]), ("layers.name-id", "layers.chosen")),
            ("ids without layer 3", "layers.chosen", "", ids([0, 1, 2, 4, 5]),
             ("layers.name-id",)),
            ("ids from 10", "layers.name-id", "layer=0",
             ids([10, 11, 12, 13, 14]), ()),
            ("two blocks 6", "blocks.duplicate-id", "group=g0", block_ids, ()),
            ("a stored digest", "digest.cell", "layer=1,block=20,head=2,kv=v",
             put("groups/g0/content_digest", (1, 20, 2, 1), 1), ())):
        expect(what, name, at, broken(change), also=also)

    shutil.copyfile(whole, path)
    with h5py.File(path) as f:
        chunk = f["groups/g0/data"].id.get_chunk_info_by_coord((3, 16, 0, 1, 0, 0))
    flip(path, chunk.byte_offset + chunk.size // 2, 16)
    planted.add("tile.damaged")
    r, found = fsck(path)
    tap.ok(r.code == 1 and list(found) == ["tile.damaged"] and
           "layer=3" in found["tile.damaged"][0] and
           "head=1" in found["tile.damaged"][0], "tile.damaged: one bit", r)


def check_later(tmp):
    """A part that begins inside a block; its blocks still are where they were."""
    part = f"{tmp}/later.npy"
    kvtool("slice", "-f", "--tokens", "37:150", "-o", part, f"{NHD}.npy")
    r, found = fsck(part)
    tap.ok(r.code == 0 and set(found) <= {"stale.slots"},
           "tokens from 37 on are clean", r)
    side = read_json(part[:-3] + "json")
    side["token_ids"] = {"A": list(range(113)), "B": list(range(113)), "C": [1, 2]}
    side["block_table"]["B"][1] = side["block_table"]["A"][1]
    side["block_table"]["B"][0] = side["block_table"]["A"][0]

    def save():
        write_json(part[:-3] + "json", side)
        return part
    r, found = fsck("--fast", save())
    tap.ok(r.code == 0 and set(found) == {"request.token-ids"},
           "they may share blocks", r)
    side["token_ids"]["B"][12] = 99
    expect("token 49 of a part", "table.shared-tokens",
           f"request=B,block={side['block_table']['B'][1]}", "--fast", save(),
           also=("request.token-ids",))


# ---- ranks ------------------------------------------------------------------

def check_ranks(tmp):
    files = [f"{stem}.safetensors" for stem in TP4]
    r, found = fsck(*files)
    tap.ok(r.code == 0 and set(found) == {"stale.slots"}, "four ranks are clean", r)
    two = [f"{DATA}/s260k/tp2/rank{r}.packed_nhd.bf16.safetensors" for r in (1, 0)]
    r, found = fsck(*files, *two)
    tap.ok(r.code == 0 and set(found) == {"stale.slots"} and
           len(json.loads(r.out)["files"]) == 8, "two sets are kept apart", r)
    expect("rank 2 of 4", "ranks.missing", "", *files[:2], files[3])
    expect("ranks 1 to 3", "ranks.missing", "", files[0], files[0],
           also=("ranks.duplicate",))
    expect("rank 1 twice", "ranks.duplicate", "", *files, files[1])

    b = Broken(tmp, TP4[2], "safetensors")
    b.side["num_tokens"]["C"] = 79
    expect("other tokens", "ranks.differ", "", files[0], files[1], b.save(), files[3])
    part = f"{tmp}/part.safetensors"
    kvtool("slice", "-f", "--heads", "0", "-o", part, two[1])
    expect("half of the heads of rank 0", "ranks.coverage", "", part, two[0],
           also=("tp.partial",))

    shares = oracle.ranks_of(f"{DATA}/s260k/paged_bs16/packed_hnd.bf16.npy", 8,
                             f"{tmp}/share%d.npy")
    r, found = fsck(*shares)
    tap.ok(r.code == 0 and set(found) == {"stale.slots"}, "replicas are clean", r)
    bits = np.load(shares[5])
    bits.reshape(-1)[20000] ^= 1
    np.save(shares[5], bits)
    expect("one bit of rank 5", "manifest.mismatch", "", shares[5])
    expect("one bit of rank 5, trusted", "ranks.replicas", "", "--trust-manifest", *shares)
    r, found = fsck("--fast", "--trust-manifest", *shares)
    tap.ok(r.code == 0 and not found, "--fast compares no replicas", r)

    opaque = []
    for rank in range(2):
        b = Broken(tmp, f"{DATA}/mla144/paged_bs16/mla_lbsc.bf16")
        b.side.update(kind="opaque", tp_size=2, tp_rank=rank, total_kv_heads=1)
        b.path = shutil.copyfile(b.path, f"{tmp}/opaque{rank}.npy")
        b.side["file"] = f"opaque{rank}.npy"
        opaque.append(b.save())
    expect("opaque content", "ranks.unknown", "", *opaque)


# ---- all of it --------------------------------------------------------------

TOKENS = "--layout=nhd", "--block-size=16"


def check_real_dumps():
    for d in oracle.attention_dumps():
        r, found = fsck(d.path)
        tap.ok(r.code == 0 and set(found) <= {"stale.slots"}, f"{d.name} is clean", r)
    for side in oracle.sidecars("mamba2g4"):
        r, found = fsck(side[:-4] + "npy")
        tap.ok(r.code == 0 and not found, f"{os.path.relpath(side, DATA)} is clean", r)
    folder = f"{DATA}/s260k/connector/example_2026_07"
    r, found = fsck(*TOKENS, folder)
    tap.ok(r.code == 0 and not found, "a connector folder is clean", r)
    state = f"{DATA}/../engines/llama.cpp/r64.q4_0_fa1.ggsn"
    expect("a quantised state of llama.cpp", "content.rotation", "group=g0", "--head-dim=64", state)
    r, found = fsck("--head-dim=64", "--set=rotation=none", state)
    tap.ok(r.code == 0 and not found, "nor where its rotation is told", r)


def check_folder(tmp):
    folder = f"{tmp}/folder"
    shutil.copytree(f"{DATA}/s260k/connector/example_2026_07", folder)
    for left in (f"{folder}/out.h5.tmp-4711", f"{folder}.tmp-4711"):
        os.mkdir(left)
        expect("left inside a folder, or beside it", "file.leftover", "", *TOKENS, folder)
        os.rmdir(left)
    request = sorted(os.listdir(folder))[0]
    os.unlink(f"{folder}/{request}/model.layers.2.self_attn.attn.safetensors")
    expect("a layer of a request is gone", "file.unreadable", "", folder)


def check_names():
    """Each finding there is was planted, here or in the tests that are named."""
    here, there = os.path.dirname(os.path.abspath(__file__)), set()
    for name in ("unit/formats/test_snapshot.c", "oracle_content.py",
                 "oracle_nonfinite.py", "oracle_offload.py", "oracle_cut.py",
                 "oracle_regions.py", "oracle_complete.py", "oracle_whose.py",
                 "oracle_pools.py", "oracle_store_kinds.py", "oracle_prompts.py"):
        there |= set(re.findall(r'[" ]([a-z]+\.[a-z-]+)"', read_text(f"{here}/{name}")))
    missing = set(SEVERITY) - planted - there
    tap.ok(len(SEVERITY) > 50 and not missing, "all findings were planted", missing)
    tap.ok(planted <= set(SEVERITY), "no other names", planted - set(SEVERITY))
    page = read_text(f"{here}/../man/kvtool-fsck.1")
    missing = [n for n, s in SEVERITY.items()
               if f".It Li {n}\n{s[0].upper()} " not in page]
    tap.ok(not missing, "the page has all findings, as severe as they are", missing)


def main(tmp):
    check_real_dumps()
    check_manifests(tmp)
    check_all_told(tmp)
    check_terminal(tmp)
    check_data(tmp)
    check_padding(tmp)
    check_page_offset(tmp)
    check_later(tmp)
    check_ranks(tmp)
    check_folder(tmp)
    if h5py:
        check_snapshots(tmp)
    else:
        tap.skip("snapshots", "this needs the package python3-h5py")
    if h5py:
        check_names()


oracle.run(main)
