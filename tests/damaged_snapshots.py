#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
damaged_snapshots.py - a snapshot that is not what was written is never taken

One bit is flipped, the file is cut short, or bytes of it move, in snapshots of all
four kinds; half of the bits are outside of the data.  Afterwards every command
refuses the file, or prints and writes what it did before.  KVT_FULL=1 tries 3,000
bits of each, or of the kinds that are given.  That the checksums are the documented
ones, h5py and xxhash say.
"""
import collections
import hashlib
import os
import random
import struct
import sys

import oracle
from oracle import (FULL, flip, kvtool, read_bytes, read_json, refused, runs, tap,
                    write_bytes, write_json)

try:
    import h5py
    import xxhash
except ImportError as missing:
    print(f"1..0 # SKIP python3-{missing.name} is not installed")
    sys.exit(0)

KINDS = {"compressed": [], "uncompressed": ["--uncompressed"],
         "no digest": ["--no-digest"],
         "neither": ["--uncompressed", "--no-digest"]}
FLIPS, CUTS = (3000, 120) if FULL else (30, 4)
RANGE = 65536


# ---- what the documentation says is hashed ----------------------------------

class Tables:
    """The bytes of kvtool-snapshot(5), CHECKSUMS."""

    def __init__(self):
        self.bytes = bytearray()

    def number(self, n):
        self.bytes += struct.pack("<q", int(n)) if n < 2**63 else struct.pack("<Q", n)

    def text(self, s):
        s = bytes(s).rstrip(b"\0")
        self.number(len(s))
        self.bytes += s

    def optional(self, attrs, name):
        self.number(name in attrs)
        if name in attrs:
            self.text(attrs[name])

    def table(self, group, name):
        self.number(name in group)
        if name in group:
            self.number(len(group[name]))
            self.bytes += group[name][()].tobytes()

    def texts(self, group, name):
        self.number(name in group)
        if name in group:
            self.number(len(group[name]))
            for s in group[name]:
                self.text(s)


def group_bytes(t, name, g):
    t.text(name.encode())
    t.text(g.attrs["kind"])
    t.text(g.attrs["dtype"])
    t.optional(g.attrs, "content_type")
    t.text(g.attrs["axes"])
    for key, default in (("block_size", 0), ("tokens_per_state", 0),
                         ("total_num_heads", 0), ("head_start", 0),
                         ("replication", 1), ("page_size_bytes", 0),
                         ("page_offset", 0), ("window", 0)):
        t.number(g.attrs.get(key, default))
    t.texts(g, "layer_names")
    t.table(g, "layer_ids")
    t.table(g, "block_ids")
    t.table(g, "block_valid")
    t.texts(g, "block_names")
    parts = g.get("components", {})
    t.number(len(parts["name"]) if "name" in parts else 0)
    for i in range(len(parts["name"]) if "name" in parts else 0):
        t.text(parts["name"][i])
        for column in ("start", "length", "global_start"):
            t.number(parts[column][i])
    for plane in planes(g):
        t.text(g[plane].attrs["axes"])
        t.number(g[plane].ndim)
        for n in g[plane].shape:
            t.number(n)
        t.table(g, plane + "_checksum")
    t.number("content_digest" in g)
    if "content_digest" in g:
        t.number(int(g["content_digest"].attrs["checksum"]))


def planes(g):
    return ["data"] if "data" in g else ["data_k", "data_v"]


def tables_checksum(f):
    t = Tables()
    for n in f.attrs["format_version"]:
        t.number(n)
    t.optional(f["model"].attrs if "model" in f else {}, "name")
    for key in ("source_format", "note"):
        t.optional(f["provenance"].attrs if "provenance" in f else {}, key)
    t.number("parallel" in f)
    if "parallel" in f:
        for key in ("tp", "pp", "dp", "dcp"):
            t.number(f["parallel"].attrs[key + "_size"])
            t.number(f["parallel"].attrs[key + "_rank"])
    groups = f["groups"]
    ids = [i.rstrip(b"\0").decode() for i in groups.attrs["ids"]]
    t.number(groups.attrs.get("null_block", -1))
    t.number(len(ids))
    for i in ids:
        group_bytes(t, i, groups[i])
    requests = f.get("requests", {})
    t.number(len(requests))
    for n in range(len(requests)):
        r = requests[str(n)]
        t.text(r.attrs["request_id"])
        t.number(r.attrs["num_computed_tokens"])
        t.number(r.attrs.get("first_token", 0))
        t.table(r, "token_ids")
        for i in ids:
            t.table(r["block_table"], i)
        for i in ids:
            pairs = r["holes"][i][()] if i in r.get("holes", {}) else []
            for begin, end in zip(pairs[::2], pairs[1::2]):
                t.text(i.encode())
                t.number(begin)
                t.number(end)
    return xxhash.xxh3_64_intdigest(bytes(t.bytes))


def check_documented(path, name):
    wrong = []
    with h5py.File(path, "r") as f, open(path, "rb") as raw:
        if tables_checksum(f) != int(f.attrs["tables_checksum"]):
            wrong.append("tables_checksum")
        for g in f["groups"].values():
            if "content_digest" in g:
                cells = g["content_digest"][()].reshape(-1)
                want = sum(xxhash.xxh3_64_intdigest(c.tobytes(), seed=i)
                           for i, c in enumerate(cells)) % 2**64
                if want != int(g["content_digest"].attrs["checksum"]):
                    wrong.append("checksum of content_digest")
            for plane in planes(g):
                at = g[plane].id.get_offset()
                if at is None:
                    if plane + "_checksum" in g:
                        wrong.append(f"{plane}_checksum of chunks")
                    continue
                raw.seek(at)
                data = raw.read(g[plane].id.get_storage_size())
                want = [xxhash.xxh3_64_intdigest(data[i:i + RANGE])
                        for i in range(0, len(data), RANGE)]
                if want != [int(n) for n in g[plane + "_checksum"]]:
                    wrong.append(plane + "_checksum")
    tap.ok(not wrong, f"{name}: its checksums are the documented ones", wrong)


# Ranks; planes; a latent; parts of a content and groups without requests.
OTHERS = ("s260k/tp4/rank1.packed_hnd.bf16.safetensors",
          "s260k/paged_bs16/rocm_x.bf16.npy", "mla144/paged_bs16/mla_lbsc.bf16.npy",
          "mamba2g4/tp2_SD/rank1.npy")


def check_others(tmp, source):
    manifest = read_json(source.replace(".npy", ".json"))
    manifest["block_names"] = [f"{i:08x}" for i in range(48)]
    write_json(f"{tmp}/named.json", manifest)
    named = ["--manifest", f"{tmp}/named.json", source]
    path = f"{tmp}/other.h5"
    engines = f"{os.path.dirname(oracle.DATA)}/engines/llama.cpp"
    holes = [["--heads=2", f"{engines}/gemma2.fa0_u0.s1.ggsq"],
             ["--heads=4", f"{engines}/s260k.hole.ggsn"]]
    for command in [[f"{oracle.DATA}/{name}"] for name in OTHERS] + holes + [named]:
        for options in ([], ["--uncompressed"]):
            r = kvtool("convert", "-q", "-f", "--no-sync", *options, *command, path)
            if tap.ok(r.code == 0, "made " + " ".join(options), r):
                check_documented(path, os.path.basename(command[-1]))
    with h5py.File(path) as f:
        tap.ok("block_names" in f["groups/g0"], "and blocks have names")


# ---- what commands make of a file -------------------------------------------

def sha(path):
    return hashlib.sha1(read_bytes(path)).hexdigest()


class Victim:
    """A snapshot, what commands make of it, and a place for damaged copies."""

    def __init__(self, tmp, name, options, source):
        self.tmp, self.name = tmp, name
        self.good, self.bad = f"{tmp}/good.h5", f"{tmp}/bad.h5"
        runs(f"{name}: made", "convert", "-q", "-f", "--no-sync", *options, source,
             self.good)
        self.bytes = read_bytes(self.good)
        self.data = self.extents()
        self.options = options
        self.counts = collections.Counter()
        self.before = {}

    def extents(self):
        """Where the data is: [begin, end) in the file."""
        out = []
        with h5py.File(self.good, "r") as f:
            for g in f["groups"].values():
                for d in (g[plane] for plane in planes(g)):
                    if d.id.get_offset() is not None:
                        out.append((d.id.get_offset(), d.id.get_offset() +
                                    d.id.get_storage_size()))
                        continue
                    for i in range(d.id.get_num_chunks()):
                        c = d.id.get_chunk_info(i)
                        out.append((c.byte_offset, c.byte_offset + c.size))
        return out

    def put(self, data):
        write_bytes(self.bad, data)

    def out(self, *names):
        """One name for what is in these outputs."""
        return tuple(sha(f"{self.tmp}/{n}") for n in names)

    def run(self, how):
        """What a command makes of the copy: what it prints, or one name for what it writes."""
        tmp, bad = self.tmp, self.bad
        (command, *args), *written = {
            "convert": (["convert", "-f", "--no-sync", bad, f"{tmp}/o.npy"], "o.npy", "o.json"),
            "digest": (["digest", bad],),
            # into the same kind, so that tiles, cells and tables go over
            "relayout": (["relayout", "-f", "--no-sync", "--to=hnd", *self.options, "-o",
                          f"{tmp}/o.h5", bad], "o.h5"),
            # equal: what the two say must then be equal
            "diff": (["diff", self.good, bad],),
            "slice": (["slice", "-f", "--no-sync", "--layers=1:3", *self.options, "-o",
                       f"{tmp}/s.h5", bad], "s.h5"),
            "verify": (["describe", "--verify", bad],),
            "fsck": (["fsck", bad],)}[how]
        r = kvtool(command, "-q", *args)
        return r, r.out if not written else r.code == 0 and self.out(*written)

    def judge(self, how, what):
        """'harmless', 'refused', or what is wrong."""
        r, got = self.run(how)
        if how not in self.before:
            self.before[how] = got
            return "harmless" if r.code == 0 else str(r)
        if r.code == 0:
            return "harmless" if got == self.before[how] else f"silent: {how}, {what}"
        if how == "fsck" and r.code in (1, 3) and r.out or \
           r.code in (1, 3, 4) and r.err.strip():
            return "refused"
        return f"{how}, {what}: {r}"


def flips(victim, n, rng):
    inside = [(b, e) for b, e in victim.data if e > b]
    for i in range(n):
        while True:
            at = rng.randrange(len(victim.bytes))
            if i % 2:
                b, e = rng.choice(inside)
                at = rng.randrange(b, e)
            elif any(b <= at < e for b, e in inside) or \
                    (i % 4 == 0 and not victim.bytes[at]):
                continue    # every other one of these is a byte in use, no gap
            break
        data, bit = bytearray(victim.bytes), rng.randrange(8)
        data[at] ^= 1 << bit
        yield "data" if i % 2 else "rest", f"bit {bit} of byte {at}", data


def cuts(victim, n, rng):
    for _ in range(n):
        end = rng.randrange(len(victim.bytes))
        yield "cut", f"cut to {end}", victim.bytes[:end]


def splices(victim, n, rng):
    b = victim.bytes
    for i in range(n):
        x, y = sorted(rng.randrange(len(b)) for _ in "xy")
        y, at = min(y, x + 20000), rng.randrange(len(b))
        data = bytearray(b)
        if i % 3 == 0:
            data[at:at] = b[x:y]
        elif i % 3 == 1:
            del data[x:y]
        else:
            data[at:at + y - x] = b[x:y]
        yield "splice", f"{x}:{y} to {at}, way {i % 3}", bytes(data)


# Each damaged file goes to the first two, and to one of the others in turn.
ALWAYS = ("convert", "digest")
TURNS = ("relayout", "diff", "slice", "verify", "fsck")


def damage(victim):
    rng = random.Random(12)
    wrong, table = [], collections.Counter()
    victim.put(victim.bytes)
    for how in ALWAYS + TURNS:
        good = victim.judge(how, "undamaged")
        if good != "harmless":
            wrong.append(good)
    for make, n in ((flips, FLIPS), (cuts, CUTS), (splices, CUTS)):
        for i, (where, what, data) in enumerate(make(victim, n, rng)):
            victim.put(data)
            for how in ALWAYS + (TURNS[i // 2 % len(TURNS)],):
                outcome = victim.judge(how, what)
                if outcome in ("harmless", "refused"):
                    table[where, outcome] += 1
                elif outcome.startswith("silent") and data == victim.bytes:
                    table[where, "harmless"] += 1
                else:
                    table[where, "wrong"] += 1
                    wrong.append(outcome)
    for where in ("data", "rest", "cut", "splice"):
        print(f"# {victim.name:12} {where:6} " + ", ".join(
            f"{table[where, o]} {o}" for o in ("refused", "harmless", "wrong")))
    tap.ok(not wrong, f"{victim.name}: {FLIPS} bits, {CUTS} cuts, {CUTS} splices: "
           "refused or harmless", "\n".join(wrong))
    return victim


# ---- snapshots that say less ------------------------------------------------

def check_old(tmp, source):
    """Version 1.0: read as before, and what nothing proves is not copied."""
    whole, old, out = f"{tmp}/whole.h5", f"{tmp}/old.h5", f"{tmp}/out.h5"
    for name, options in KINDS.items():
        for path in (whole, out):
            kvtool("convert", "-q", "-f", "--no-sync", *options, source, path)
        os.replace(whole, old)
        with h5py.File(old, "r+") as f:
            oracle.unprove(f)
            g = f["groups/g0"]
            for key in [k for k in g if k.endswith("_checksum")]:
                del g[key]
            if "content_digest" in g:
                del g["content_digest"].attrs["checksum"]
            at = g["data"].id.get_offset()
        r = kvtool("describe", "--verify", "--json", old)
        d = r.json
        g = d["groups"][0]
        tap.ok(r.code == 0 and d["tables_proven"] is False and
               g["content_cells_proven"] is False and
               g["checksum"] == (None if at else "fletcher32"),
               f"{name}, of version 1.0: read, and nothing is proven", r)
        tap.ok(kvtool("diff", "--deep", old, out).code == 0,
               f"{name}, of version 1.0: its content")
        r = kvtool("convert", "-q", "-f", "--no-sync", *options, old, f"{tmp}/new.h5")
        with h5py.File(out) as a, h5py.File(f"{tmp}/new.h5") as b:
            same = r.code == 0 and a.attrs["tables_checksum"] == b.attrs["tables_checksum"]
        tap.ok(same, f"{name}, of version 1.0: rewritten, it is proven", r)
        if not at or "--no-digest" in options:
            continue
        flip(old, at + 100000)
        refused(f"{name}, of version 1.0: a digest of other data is not copied", 3,
                "does not match content_digest", "convert", "-q", "-f", "--no-sync",
                *options, old, f"{tmp}/new.h5")


def check_told(tmp, source):
    """describe says what proves what; both find a damaged block and name it."""
    path = f"{tmp}/told.h5"
    for name, options in KINDS.items():
        kvtool("convert", "-q", "-f", "--no-sync", *options, source, path)
        r = kvtool("describe", "--json", path)
        d = r.json
        g = d["groups"][0]
        tap.ok(d["tables_proven"] is True and
               g["content_cells_proven"] == ("--no-digest" not in options) and
               g["checksum"] == ("xxh3" if "--uncompressed" in options else "fletcher32"),
               f"{name}: describe says what is proven", r)
        with h5py.File(path) as f:
            at = f["groups/g0/data"].id.get_offset()
        if not at:
            continue
        flip(path, at + 70000)
        # ranges are of 64 KiB: it is the second, of 32 blocks of 2 KiB
        r = kvtool("describe", "--verify", "--json", path)
        v = r.json["groups"][0]["verify"]
        tap.ok(r.code == 3 and v["tiles_damaged"] == 32 and
               [(f["layer"], f["block"]) for f in v["findings"]] ==
               [(0, b) for b in range(32, 48)] and
               f"between bytes {at + RANGE} and {at + 2 * RANGE}" in r.err,
               f"{name}: describe --verify names the blocks of a damaged range", r)
        r = kvtool("fsck", "--json", path)
        found = r.json["files"][0]["counts"]
        tap.ok(r.code == 1 and found.get("tile.damaged") == 32,
               f"{name}: so does fsck", r)


def main(tmp):
    source = f"{oracle.DATA}/s260k/paged_bs16/packed_nhd.bf16.npy"
    for name, options in KINDS.items():
        if name not in (sys.argv[1:] or KINDS):
            continue
        victim = Victim(tmp, name, options, source)
        check_documented(victim.good, name)
        damage(victim)
    check_others(tmp, source)
    check_told(tmp, source)
    check_old(tmp, source)


oracle.run(main)
