#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_cut.py - files that were cut or emptied, in every format without a header

A file that lost its end must not become a shorter cache of other values behind
anybody's back: it is named, or fsck and describe both say that it cannot be noticed.
An empty value blocks nothing else.  Each case makes a store anew, by descriptions that
know nothing of kvtool, and cuts one file of it.
"""
import json
import os
import re
import struct
import sys

import numpy as np

import store_files as sf
import store_trees as st
from kvd1 import whole
from oracle import kvtool, runs, tap, workdir

K, L, H, D, S, B = 2, 3, 2, 4, 8, 4
rng = np.random.default_rng(29)
# a bit of every exponent is not set: no NaN
TOKENS = rng.integers(1, 1 << 16, (K, L, B * S, H, D), dtype=np.uint16) & 0xfbff | 1
BLOCKS = TOKENS.reshape(K, L, B, S, H, D)
LATENT = BLOCKS[:1, :, :, :, :1]
IDS = list(range(B * S))
GEOMETRY = [f"--layers={L}", f"--heads={H}", f"--head-dim={D}"]
BF16 = ["--dtype=bf16"]
MISSING = "kvtool cannot tell if one is missing"


def cut_is_told(text):
    return re.search(r"a cut file cannot be noticed", text)


# ---- the stores: where, options ---------------------------------------------------

def lmcache(backend, fmt, options, listed=False, l2=False, size=S):
    def make(path):
        requests, ids = {"A": TOKENS}, {"A": IDS}
        if l2:
            order = sf.l2_dump(path, requests, ids, size)
        else:
            order = sf.lmcache_dump(path, backend, requests, ids, size, "bfloat16", fmt)
        if not listed:
            return path, options
        sf.write_order(path + ".order", order)
        return path, [*options, f"--set=order={path}.order"]
    return make


def mooncake(kind, options):
    def make(path):
        for b in range(B):
            part = BLOCKS[:, :, b]
            key = {"raw": f"raw-{b}", "tensor": f"t-{b}",
                   "chunk": f"m@1@0@{b + 1:08x}@bfloat16"}[kind]
            value = sf.tensor_object(part, "bfloat16") if kind == "tensor" else \
                sf.raw(part)
            sf.write(f"{path}/{chr(97 + b)}/p/{key}", value)
        return path, options
    return make


def entries(path):
    sf.file_per_key(path, {f"raw-{b}": sf.raw(BLOCKS[:, :, b]) for b in range(B)})
    return path, ["--layout=KLSHD", *GEOMETRY, *BF16]


def buckets(path):
    sf.buckets(path, {f"raw-{b}": sf.raw(BLOCKS[:, :, b]) for b in range(B)})
    return path, ["--layout=KLSHD", *GEOMETRY, *BF16]


def records(path):
    sf.offset_store(path, {f"raw-{b}": sf.raw(BLOCKS[:, :, b]) for b in range(B)})
    return path, ["--layout=KLSHD", *GEOMETRY, *BF16]


PAGE = [*BF16, f"--block-size={S}", *GEOMETRY[1:]]


def hicache(layout, options, cells=BLOCKS):
    def make(path):
        st.write_hicache(path, cells, layout, "m")
        return path, [f"--layout={layout}", *options]
    return make


def trtllm(options, cells=BLOCKS):
    def make(path):
        st.write_trtllm(path, cells, range(3, 3 + B))
        return path, options
    return make


def flexkv(axes, layout, files, options):
    def make(path):
        st.write_flexkv(path, BLOCKS, axes, files=files)
        return path, [f"--layout=flexkv:{layout}", f"--layers={L}", *PAGE, *options]
    return make


def kvbm(separate):
    def make(path):
        dims = {"K": K, "L": L, "B": B, "S": S, "H": H, "D": D}
        kind = ("BlockIsFirstDim", "OperationalNHD") if separate else "OperationalNHD"
        if separate:
            for l in range(L):
                st.put(f"{path}/layer{l}.bin", st.ordered(BLOCKS[:, l:l + 1], "BKSHD"))
        else:
            st.put(f"{path}/tier.bin", st.ordered(BLOCKS, "BLKSHD"))
        st.put(path + ".json", json.dumps(st.kvbm_descriptor(dims, kind)).encode())
        return path, ["--from=kvbm", f"--manifest={path}.json", *BF16]
    return make


def offload(per_file, rows):
    def make(path):
        config = st.offload_config([(S, [f"layers.{l}" for l in range(L)])], model="m",
                                   blocks_per_file=per_file)
        if rows:
            config = st.renamed(config)
            st.write_rows(path, config, BLOCKS, "LBSHKD")
            return path, ["--layout=LBSHKD", *GEOMETRY[1:], "--set=tp-size=1"]
        st.write_offload(path, config, BLOCKS, "SHKD")
        return path, ["--from=llmd", "--layout=nhd", *GEOMETRY[1:]]
    return make


def connector(path):
    part = TOKENS.transpose(1, 2, 0, 3, 4)
    head = json.dumps({"kv_cache": {"dtype": "BF16", "shape": [B * S, K, H, D],
                                    "data_offsets": [0, part[0].nbytes]}}).encode()
    for r in "AB":
        for l in range(L):
            sf.write(f"{path}/{r}/model.layers.{l}.attn.safetensors",
                     struct.pack("<Q", len(head)), head, sf.raw(part[l]))
    return path, [f"--block-size={S}"]


def raw(layout, options):
    def make(path):
        sf.write(f"{path}/kv.bin", st.ordered(BLOCKS, layout))
        return f"{path}/kv.bin", [f"--layout={layout}", *BF16, *options]
    return make


HEADED, LISTED = [f"--heads={H}"], True
ALL = [*GEOMETRY, f"--block-size={S}"]
VALUE = ["--layout=KLSHD", *GEOMETRY, *BF16]
STORES = {
    "LMCache disk": lmcache("disk", 1, GEOMETRY),
    "LMCache disk, chunk size": lmcache("disk", 1, [*GEOMETRY, f"--set=chunk-size={S}"]),
    "LMCache disk, blocks of a chunk": lmcache("disk", 1,
                                               [*GEOMETRY, f"--block-size={S}"]),
    "LMCache disk, small blocks, listed": lmcache("disk", 1,
                                                  [*GEOMETRY, "--block-size=2"], LISTED),
    "LMCache disk, one chunk": lmcache("disk", 1, GEOMETRY, size=B * S),
    "LMCache disk, 2TD": lmcache("disk", 3, ["--layout=LKBSHD", *GEOMETRY[1:]]),
    "LMCache disk, T2D": lmcache("disk", 2, ["--layout=LBSKHD", *GEOMETRY[1:]]),
    "LMCache FS, bare": lmcache("fs-bare", 1, GEOMETRY),
    "LMCache FS, bare, listed": lmcache("fs-bare", 1, GEOMETRY, LISTED),
    "LMCache FS": lmcache("fs", 1, HEADED),
    "LMCache FS, one chunk": lmcache("fs", 1, HEADED, size=B * S),
    "LMCache GDS": lmcache("gds", 1, HEADED),
    "LMCache second level": lmcache("", 1, [*GEOMETRY, *BF16], l2=True),
    "LMCache second level, one": lmcache("", 1, [*GEOMETRY, *BF16], l2=True, size=B * S),
    "LMCache second level, one, chunk size": lmcache(
        "", 1, [*GEOMETRY, *BF16, f"--set=chunk-size={B * S}"], l2=True, size=B * S),
    "Mooncake, values of bytes": mooncake("raw", VALUE),
    "Mooncake, values of chunks": mooncake("chunk", GEOMETRY),
    "Mooncake, values of tensors": mooncake("tensor", ["--layout=KLSHD"]),
    "Mooncake, file per key": entries,
    "Mooncake, buckets": buckets,
    "Mooncake, records": records,
    "hicache, layer first": hicache("hicache-layer-first", PAGE),
    "hicache, page head, layers open": hicache("hicache-page-head", PAGE),
    "hicache, page first, all said": hicache("hicache-page-first", [*BF16, *ALL]),
    "hicache, latents": hicache("mla", [*BF16, f"--block-size={S}",
                                        f"--content-size={D}"], LATENT),
    "trtllm, layers open": trtllm(PAGE),
    "trtllm, all said": trtllm([*BF16, *ALL]),
    "trtllm, latents": trtllm([*BF16, f"--block-size={S}", f"--content-size={D}"], LATENT),
    "flexkv, one file": flexkv("LKBSHD", "LAYERFIRST", 1, []),
    "flexkv, one file, blocks said": flexkv("LKBSHD", "LAYERFIRST", 1, [f"--blocks={B}"]),
    "flexkv, blocks first": flexkv("BLKSHD", "BLOCKFIRST", 1, []),
    "flexkv, two files": flexkv("LKBSHD", "LAYERFIRST", 2,
                                ["--set=placement=consecutive"]),
    "kvbm, one file": kvbm(False),
    "kvbm, a file a layer": kvbm(True),
    "offload, rows": offload(2, True),
    "llm-d, one block a file": offload(1, False),
    "llm-d, two blocks a file": offload(2, False),
    "connector": connector,
    "raw, blocks open": raw("LKBSHD", [*GEOMETRY, f"--block-size={S}"]),
    "raw, layers open": raw("BLKSHD", [*GEOMETRY[1:], f"--block-size={S}",
                                       f"--blocks={B}"]),
    "raw, all said": raw("LKBSHD", [*ALL, f"--blocks={B}"]),
}

# ---- cuts -------------------------------------------------------------------------

TOKEN = K * L * H * D * 2


def cuts(n):
    """Empty, nothing but a beginning, halves, whole tokens, blocks, layers, a byte."""
    some = {"to nothing": 0, "to a byte": 1, "to a half": n // 2,
            "by a byte": n - 1, "to a token": TOKEN, "by a token": n - TOKEN,
            "to a quarter": n // 4}
    return {name: to for name, to in some.items() if 0 <= to < n}


def names_of(path):
    """What a message may call a file: its name, its key, its hash, the one beside it."""
    base = os.path.basename(path).replace("%40", "@")
    return {base, base.replace("default_", ""), *re.findall("[0-9a-f]{16}", base),
            base.replace(".bucket", ".meta"), base.replace(".data", ".meta")}


def look(name, path, victim, options, sound):
    """'sound': what was read before; a cut that changed nothing may go unnoticed."""
    fsck = kvtool("fsck", *options, path)
    told = kvtool("describe", *options, path)
    said = fsck.out + fsck.err
    named = [n for n in names_of(victim) if n in said]
    flawed = named and not said.rstrip().endswith("clean")
    noticed = cut_is_told(fsck.out) and told.code == 0 and cut_is_told(told.out)
    refused = told.code in (3, 4) and any(n in told.err for n in names_of(victim))
    empty = told.code == 0 and "it is empty" in told.out
    same = whole(path, *options) == sound
    tap.ok((flawed and (refused or empty or noticed)) or noticed or same, name,
           f"{fsck}\n{told}")


def of_folder(path):
    files = sorted(f for f in (os.path.join(folder, f) for folder, _, names in
                               os.walk(path) for f in names))
    return [f for f in files if not f.endswith(("config.json", ".metadata"))]


def cut(name, make):
    with workdir() as work:
        path, options = make(f"{work}/in")
        fsck, told = kvtool("fsck", *options, path), kvtool("describe", *options, path)
        tap.ok(fsck.code == told.code == 0 and "looked at" in fsck.out and
               fsck.out.endswith("clean\n"), f"{name}: sound", f"{fsck}\n{told}")
        folder = f"{work}/in"
        files = of_folder(folder)
        bytes_of = {f: st.get(f) for f in files}
        sound = whole(path, *options)
        for f in dict.fromkeys((files[0], files[-1])):
            for how, to in cuts(len(bytes_of[f])).items():
                os.truncate(f, to)
                look(f"{name}: {'last' if f == files[-1] else 'first'} file cut {how}",
                     path, f, options, sound)
                st.put(f, bytes_of[f])


# ---- an empty value blocks nothing else ----------------------------------------------

def emptied(name):
    """What is read beside it is what is read without it."""
    with workdir() as work:
        path, options = STORES[name](f"{work}/in")
        victim = of_folder(path)[1]
        os.truncate(victim, 0)
        with_it, told = whole(path, *options), kvtool("describe", *options, path)
        fsck = kvtool("fsck", *options, path)
        os.unlink(victim)
        if os.path.exists(victim + ".metadata"):
            os.unlink(victim + ".metadata")
        without = whole(path, *options)
        tap.ok(with_it and with_it[0] == without[0] and "it is empty" in told.out and
               fsck.code == 1 and "file.empty" in fsck.out, f"{name}: an empty file",
               f"{with_it}\n{without}\n{told}\n{fsck}")


def all_empty(name):
    with workdir() as work:
        path, options = STORES[name](f"{work}/in")
        for f in of_folder(path):
            os.truncate(f, 0)
        r = kvtool("describe", *options, path)
        tap.ok(r.code == 3 and "empty" in r.err, f"{name}: nothing but empty files", r)


def no_list(name, told):
    """A missing file is told not to be noticed, or is noticed."""
    with workdir() as work:
        path, options = STORES[name](f"{work}/in")
        fsck, seen = kvtool("fsck", *options, path), kvtool("describe", *options, path)
        tap.ok((MISSING in fsck.out) == told and (MISSING in seen.out) == told,
               f"{name}: {'no' if told else 'a'} list of files", f"{fsck}\n{seen}")


def shorter():
    """A chunk that is shorter than the others has a name in fsck."""
    with workdir() as work:
        path, options = STORES["LMCache disk"](f"{work}/in")
        victim = of_folder(path)[1]
        os.truncate(victim, os.path.getsize(victim) // 2)
        runs("file.short", "fsck", *options, path,
             says=("note: file.short", f"has {S // 2} tokens, a whole one {S}"))
        looked = kvtool("fsck", "-j", *options, path).json["files"][0]
        tap.ok(looked["looked_at"]["missing_files_noticed"] is False and
               "cut file" in looked["looked_at"]["unnoticed"], "fsck in JSON", looked)
        told = kvtool("describe", "-j", *options, path).json
        tap.ok(told["missing_files_noticed"] is False and "cut file" in told["unnoticed"],
               "describe in JSON", told)


for name, make in STORES.items():
    cut(name, make)
shorter()
for name in ("LMCache disk", "LMCache FS, bare", "LMCache FS", "LMCache GDS",
             "LMCache second level", "Mooncake, values of bytes",
             "Mooncake, values of chunks", "Mooncake, values of tensors",
             "Mooncake, file per key"):
    emptied(name)
    all_empty(name)
for name in STORES:
    no_list(name, not (name.startswith(("raw", "kvbm")) or "listed" in name or
                       name == "Mooncake, records"))
sys.exit(tap.done())
