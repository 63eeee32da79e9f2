#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_manifest.py - the checksum in manifests, said a second time

The rule is that of kvtool-manifest(5).  Here it is written in numpy; the page and
the capture module have it in plain Python: all four must say the same number.

At the end the keys that the page lists, each with a slip in it.
"""
import os
import random
import re
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "contrib"))

import numpy as np

import kvtool_capture
import oracle
from oracle import (kvtool, patch, read_bytes, read_json, read_text, refused, sizes, tap,
                    write_json)

MIB = 1 << 20


def places(size):
    """Where pages are read, and how long they are."""
    if size <= 4 * MIB:
        return [(0, size)]
    i = np.arange(1023, dtype=object)
    step = size // 1024
    scattered = np.array([int(x) & 0xffffffff for x in i * 0x9e3779b1], dtype=object)
    at = i * step + scattered % step
    return [(int(x) & ~4095, 4096) for x in at] + [(size - 4096, 4096)]


def proof(path):
    size = os.path.getsize(path)
    with open(path, "rb") as f:
        read = b"".join((f.seek(at), f.read(n))[1] for at, n in places(size))
    return {"file": os.path.basename(path), "file_bytes": size,
            "sample_crc32": zlib.crc32(read)}


def from_page():
    """The function that kvtool-manifest(5) shows."""
    text = re.search(r"^import os, zlib\n.*?(?=^\.Ed)",
                     read_text(os.path.join(HERE, "..", "man", "kvtool-manifest.5")),
                     re.M | re.S)[0]
    space = {}
    exec(text.replace("\\e", "\\"), space)
    return space["sample_crc32"]


def describes(size):
    """A manifest for that many bytes."""
    return {"layout": "mla", "dtype": "uint8", "sizes": sizes(L=1, B=1, S=1, C=size)}


def write_manifest(path, *parts):
    write_json(path + ".json", {k: v for part in parts for k, v in part.items()})


def sparse(path, size, rng):
    """Data here and there, on samples and between them."""
    with open(path, "wb") as f:
        f.truncate(size)
        spots = rng.sample(places(size), min(40, len(places(size))))
        for at, n in spots + [(0, 1), (size - 1, 1), (rng.randrange(size), 1)]:
            at += rng.randrange(n)
            f.seek(at)
            f.write(rng.randbytes(min(64, size - at)))


def check_sizes(tmp, page):
    rng = random.Random(12)
    for size in (1, 4095, 4096, 4097, 100001, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1,
                 4 * MIB + 4096, 12345678, 3 << 30, (100 << 30) + 77, (5 << 40) + 4095):
        path = f"{tmp}/f.bin"
        sparse(path, size, rng)
        want = proof(path)
        tap.equal(kvtool_capture.file_proof(path), want, f"{size} bytes: the module")
        tap.equal(page(path), want["sample_crc32"], f"{size} bytes: the page")
        write_manifest(path, describes(size), want)
        r = kvtool("describe", "--json", path)
        tap.ok(r.code == 0 and r.json["manifest"]["proof"] == "samples",
               f"{size} bytes: kvtool", r)
        other = {**want, "sample_crc32": want["sample_crc32"] ^ 1 << rng.randrange(32)}
        write_manifest(path, describes(size), other)
        refused(f"{size} bytes: another number", 3,
                (str(want["sample_crc32"]), str(other["sample_crc32"])), "describe", path)


def check_written(tmp):
    """What kvtool writes beside arrays of any size, in each of their formats."""
    rng = np.random.default_rng(5)
    for size in (1, 5000, 4 * MIB - 200, 4 * MIB, 4 * MIB + 8, 9 * MIB + 1):
        path = f"{tmp}/in.bin"
        rng.integers(0, 256, size, np.uint8).tofile(path)
        write_manifest(path, describes(size))
        for name, side in ("out.npy", "out.json"), ("out.bin", "out.bin.json"):
            r = kvtool("convert", "-f", "--no-sync", path, f"{tmp}/{name}")
            said = read_json(f"{tmp}/{side}")
            want = proof(f"{tmp}/{name}")
            tap.equal((r.code, {k: said.get(k) for k in want}), (0, want),
                      f"{size} bytes as {name}")


def check_older(tmp):
    """Another state of the same cache, of the same size, is told apart."""
    rng, path = random.Random(3), f"{tmp}/big.bin"
    size = 24 * MIB
    np.random.default_rng(6).integers(0, 256, size, np.uint8).tofile(path)
    write_manifest(path, describes(size), proof(path))
    for i in range(20):
        # what a run of 1/400 of the file held before
        at, n = rng.randrange(size - size // 400), size // 400
        held = read_bytes(path)[at:at + n]
        patch(path, at, bytes(b ^ 255 for b in held))
        r = kvtool("describe", path)
        patch(path, at, held)
        tap.ok(r.code == 3 and "big.bin.json" in r.err, f"other bytes {at} to {at + n}", r)
    tap.ok(kvtool("describe", path).code == 0, "the same bytes again")


def page_keys():
    """The keys of sections and of "sizes" that kvtool-manifest(5) lists."""
    page = read_text(os.path.join(HERE, "..", "man", "kvtool-manifest.5"))
    keys = []
    for section in ("The file", "The cache", "The rank", "Tables"):
        body = page.split(f".Ss {section}\n")[1].split(".Ss ")[0]
        for line in re.findall(r"^\.It (Cm .*)", body, re.M):
            keys += re.findall(r"\w+", re.sub(r"No \(.*?\)|\bCm\b", "", line))
    body = page.split(".It Cm sizes")[1].split(".It Cm")[0]
    return keys, [w for line in re.findall(r"^\.Li (.*)", body, re.M)
                  for w in re.findall(r"\w+", line)]


def slips(word, rng):
    """Words that somebody types who meant this one."""
    i = rng.randrange(len(word) - 1)
    yield word.upper()
    yield word.replace("_", "-")
    if len(word) > 6:
        yield word + "s"
        yield word[:i] + word[i + 1:]
        yield word[:i] + "x" + word[i + 1:]
        yield word[:i] + word[i + 1] + word[i] + word[i + 2:]


def check_slips(tmp):
    rng, path = random.Random(5), f"{tmp}/keys.bin"
    np.zeros(64, np.uint8).tofile(path)
    tops, extents = page_keys()
    tap.ok(len(tops) > 45 and len(extents) == 7, f"{len(tops)} and {len(extents)} keys of the page")
    plain = describes(64)
    for key in tops:
        for slip in sorted(set(slips(key, rng)) - {*tops}):
            write_manifest(path, plain, {slip: 1})
            # of sizes and ranks of parallel groups, several are as near
            near = re.sub("^[a-z]+p_", "_", key)
            refused(f"{slip} at the top", 3, (slip, "did you mean", near), "describe", path)
    for key in extents:
        for slip in sorted(set(slips(key, rng)) - {*extents}):
            write_manifest(path, plain, {"sizes": {**plain["sizes"], slip: 1}})
            refused(f"{slip} in sizes", 3, (slip, "did you mean", key), "describe", path)
        if key != "content":
            write_manifest(path, plain, {key: 7})
            refused(f"{key} outside sizes", 3, (key, "outside sizes", '": 7'), "describe", path)
    group = {"groups": [{"block_tables": {}, **plain}]}
    write_manifest(path, group)
    refused("block_tables of a group", 3, ("block_tables", "'block_table'"), "describe", path)
    for key in "requests", "ep_size", "comment", "date", "node", "Address":
        write_manifest(path, plain, {key: 1})
        tap.ok(kvtool("describe", path).code == 0, f"{key} is anybody's")
    write_manifest(path, plain, {"layers": 1})
    tap.ok(kvtool("describe", path).code == 0, "layers as in sizes, said twice")


def main(tmp):
    check_sizes(tmp, from_page())
    check_written(tmp)
    check_older(tmp)
    check_slips(tmp)


oracle.run(main)
