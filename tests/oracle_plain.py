#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_plain.py - names from files cannot act on a terminal or forge a line

Two dumps that differ in their names alone: one has tame names, the other the same
with control characters of each kind behind them.  Every command that prints must
end alike for both, print as many lines, and print no character that acts; and where
the tame name is shown, the escaped one is.
"""
import json
import os
import re
import shutil
import subprocess
import unicodedata

import oracle
from oracle import DATA, KVTOOL, kvtool, read_bytes, read_json, tap, write_json

EVIL = "\nkvd1:forged\r\t\x1b[31m\x07\x7f\u009b2J\u0085\u2028\u202e\u2066\u200f  block=3\\"
SEEN = r"\nkvd1:forged\r\t\x1b[31m\x07\x7f\xc2\x9b2J\xc2\x85\xe2\x80\xa8\xe2\x80\xae" \
    r"\xe2\x81\xa6\xe2\x80\x8f"
NHD = f"{DATA}/s260k/paged_bs16/packed_nhd.bf16"


def acts(c):
    """By Unicode's own tables, not by the program's."""
    return (unicodedata.category(c) in ("Cc", "Zl", "Zp") and c != "\n" or
            unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI",
                                             "RLI", "FSI", "PDI") or
            c in "\u200e\u200f\u061c" or c == "\ufffd")


def plant(folder, evil):
    """A dump in each format that holds names, in a folder of its own."""
    os.makedirs(folder)
    os.chdir(folder)
    m = read_json(f"{NHD}.json")
    name = lambda s: s + evil
    m["file"] = name("in") + ".npy"
    m["model"] = name("model-x")
    m["layer_names"] = [name(f"layer-{i}-") for i in range(len(m["layer_names"]))]
    for key in ("block_table", "num_tokens"):
        m[key] = {name(f"request-{r}-"): v for r, v in m[key].items()}
    shutil.copy(f"{NHD}.npy", name("in") + ".npy")
    write_json(name("in") + ".json", m)
    for other, key in (("b", "model"), ("c", "num_tokens")):
        changed = dict(m, file=name(other) + ".npy")
        if key == "num_tokens":
            changed[key] = {r: v - 1 for r, v in m[key].items()}
        data = bytearray(open(f"{NHD}.npy", "rb").read())
        data[-5000] ^= 0x44
        open(name(other) + ".npy", "wb").write(data)
        write_json(name(other) + ".json", changed)
    for out in (name("in") + ".h5", name("in") + ".safetensors"):
        r = kvtool("convert", "-q", "--no-sync", name("in") + ".npy", out)
        if r.code:
            tap.ok(False, "the names can be stored", r)


def run(*args):
    p = subprocess.run([KVTOOL, *args], stdin=subprocess.DEVNULL, capture_output=True,
                       timeout=600)
    return p.returncode, p.stdout, p.stderr


def commands(evil):
    """(what, the command line); '@' stands for the end of a name."""
    npy, h5, st = "in@.npy", "in@.h5", "in@.safetensors"
    lines = []
    for f in (npy, h5, st):
        lines += [["describe", "--layers", f], ["describe", "--json", f],
                  ["describe", "--blocks", f],
                  ["digest", f], ["digest", "--by=request", f],
                  ["digest", "--by=request", "--json", f],
                  ["where", "--offset=50000", f], ["where", "--offset=50000", "--json", f],
                  ["where", "--at=layer=1,block=4,slot=2", f],
                  ["fsck", f], ["expect", "write", f],
                  ["diff", f, "b@.npy"], ["diff", f, "c@.npy"],
                  ["diff", "--map", "--json", f, "b@.npy"], ["diff", "--by=tokens", f, "b@.npy"]]
    lines += [
        ["describe", "no@.npy"], ["describe", "--request=x@", npy],
        ["slice", "-o", "s@.h5", "--request=x@", npy], ["digest", "in@.npy", "no@.npy"],
        ["slice", "-n", "-o", "s@.h5", "--request=request-A-@", npy],
        ["relayout", "-n", "-t", "hnd", "-o", "r@.npy", npy],
        ["relayout", "--no-sync", "-t", "hnd", "-o", "r@.npy", npy],
        ["relayout", "--no-sync", "-t", "hnd", "-o", "r@.npy", npy],
        ["convert", "--no-sync", h5, "t@.h5"], ["convert", h5, "t@.xyz"],
        ["mutate", "--no-sync", "--fault=flip-bit", "-o", "m@.npy", npy],
        ["mutate", "--fault=x@", "-o", "m@.npy", npy],
        ["reblock", "--no-sync", "-b", "32", "-o", "b32@.npy", npy],
        ["copy-blocks", "-n", "--request=request-A-@", "-o", "cb@.npy", npy, "b@.npy"],
        ["merge", "-o", "me@.npy", npy, "b@.npy"],
        ["expect", "check", "no@.contract", npy], ["guess", npy],
        ["transfer-sim", npy, "r@.npy"], ["transfer-sim", "--request=x@", npy, "r@.npy"],
        ["transfer-sim", "--request=request-A-@", "--ops", npy, "r@.npy"],
        ["transfer-sim", "time", npy, "r@.npy"],
        ["transfer-sim", "emit", "--format=regions", npy, "r@.npy"],
        ["transfer-sim", "emit", "--format=kvbench-yaml", "--matrix-file=x@", npy, "r@.npy"],
        ["transfer-sim", "exec", "--no-sync", "-o", "e@.h5", npy, "r@.npy"],
        ["transfer-sim", "wire", "--no-sync", "-o", "w@.h5", npy, "r@.npy"],
        ["transfer-sim", "report", "--html=p@.html", "--svg=p@.svg", npy, "r@.npy"],
        ["transfer-sim", "--model=x@"], ["size", "x@"], ["x@"], ["describe", "--x@"],
        ["import", "x@", "-o", "i@.h5"], ["workers", "x@"],
    ]
    return [(" ".join(x), [a.replace("@", evil) for a in x]) for x in lines]


def raw(data):
    text = data.decode(errors="replace")
    return sorted({f"U+{ord(c):04X}" for c in text if acts(c)})


def check_digest(folder):
    """Lines of a digest can be taken apart, whatever the names hold."""
    os.chdir(f"{folder}/evil")
    want = [d["request"] for d in json.loads(run("digest", "--by=request", "--json",
                                                 f"in{EVIL}.npy")[1])["digests"]]
    got = []
    for line in run("digest", "--by=request", f"in{EVIL}.npy")[1].splitlines():
        fields = line.split(b"  ", 2)
        names = [re.sub(rb"\\(?:x(..)|(.))", lambda m: bytes.fromhex(m[1].decode()) if m[1]
                        else {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\"}[m[2]], f)
                 for f in fields[1:]]
        if fields[0].startswith(b"\\kvd1:") and names[1].decode() == f"in{EVIL}.npy":
            got.append(names[0].decode().removeprefix("request="))
    tap.equal(got, want, "digest: names can be had back from a line")
    os.chdir("/")


def main(folder):
    got = []
    for name, evil in (("tame", ""), ("evil", EVIL)):
        plant(f"{folder}/{name}", evil)
        got.append([(what, *run(*args)) for what, args in commands(evil)])
        os.chdir("/")
    shown = 0
    for (what, *tame), (_, *evil) in zip(*got):
        bad = raw(evil[1]) + raw(evil[2])
        if what.startswith("expect write"):     # no line of a contract can hold them
            tame[1] = b"".join(x for x in tame[1].splitlines(True)
                               if not x.startswith((b"model =", b"layer_names =")))
        if "--matrix-file" in what:             # refused
            tame = [2, b"", evil[2]]
        same = tame[0] == evil[0] and [x.count(b"\n") for x in tame[1:]] == \
            [x.count(b"\n") for x in evil[1:]]
        tap.ok(not bad and same, f"plain: {what}",
               f"{bad}\n{tame[0]} {evil[0]}\n{tame}\n{evil}")
        shown += SEEN.encode() in evil[1] + evil[2]
    tap.ok(shown >= len(got[0]) // 2, "names are shown, escaped",
           f"in {shown} of {len(got[0])}")
    check_digest(folder)
    for page in ("html", "svg"):
        tap.equal(raw(read_bytes(f"{folder}/evil/p{EVIL}.{page}")), [],
                  f"plain: the page of report --{page}")


oracle.run(main)
