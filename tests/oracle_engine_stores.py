#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_engine_stores.py - stores that LMCache, Mooncake and SGLang wrote themselves

testdata/engines has their files as they were; the values are those of the
recorded caches in testdata/kv, rounded to bfloat16.  Each block that kvtool
reads is compared with them element by element: the tables beside the samples,
or keys that say it, tell which tokens a block must hold.  KVT_ENGINES is another
folder of such samples of LMCache and SGLang; those that are not there are left out.
"""
import os
import re
import shutil

import numpy as np

from oracle import (DATA, ENGINES, kvtool, patch, read_bytes, read_json, refused, run,
                    tap, write_text)
from oracle_stores import sf_arrays

HERE = os.path.abspath("testdata/engines")

caches = {}


def cache(model, request):
    """[L, T, H, K, D], or [L, T, C]: bits of bfloat16, rounded to nearest even."""
    if (model, request) not in caches:
        x = np.load(f"{DATA}/{model}/canonical/{request}.fp32.npy")
        bits = x.astype("<f4").view("<u4").astype(np.uint64)
        bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16
        caches[model, request] = bits.astype("<u2")
    return caches[model, request]


def table(kind):
    return read_json(f"{HERE}/{kind}/order.json")


def sample(path):
    path = f"{ENGINES}/{path}"
    return path if os.path.exists(path) else None


# ---- what kvtool reads --------------------------------------------------------

def blocks(top, path, options):
    """{name: [L, S, H, K, D] or [L, S, C]} of live slots, and the sidecar."""
    out = f"{top}/out"
    r = kvtool("convert", "--no-sync", "-f", *options, path, out + ".npy")
    if r.code:
        return r, None
    side = read_json(out + ".json")
    axes = side["layout"]
    array = np.load(out + ".npy").view("<u2").reshape(side["file_shape"])
    order = "BLSHKD" if "H" in axes else "BLSC"
    array = array.transpose([axes.index(a) for a in order])
    valid = side.get("block_valid", [array.shape[2]] * array.shape[0])
    return {name: array[b][:, :valid[b]]
            for b, name in enumerate(side["block_names"])}, side


def compare(what, got, where, nblocks, heads=slice(None), layers=slice(None)):
    """'where' says of a name which model, request and first token it is."""
    if not isinstance(got, dict):
        return tap.ok(False, what, got)
    bad = []
    for name, cells in got.items():
        model, request, first = where(name)
        want = cache(model, request)[layers, first:first + cells.shape[1]]
        if want.ndim == 5:
            want = want[:, :, heads]
        if not cells.size or not np.array_equal(cells, want):
            bad.append(name)
    n = nblocks if ENGINES == HERE else len(got)
    return tap.ok(not bad and len(got) == n, what,
                  f"{len(got)} blocks, expected {n}; differ: {bad[:3]}")


# ---- LMCache ------------------------------------------------------------------

HEADS = ["--heads", "4"]
SAID = HEADS + ["--head-dim", "8", "--layers", "5"]


def lmcache(top):
    chunk = table("lmcache")
    cases = [
        ("fs_meta", HEADS, 2),
        ("fs_nometa", SAID, 1),
        ("local_disk", SAID, 1),
        ("fs_meta_mla", [], 2),
        ("gds", HEADS, 1),
        ("l2_fs", SAID + ["--dtype", "bf16"], 1),
        ("l2_fs_salted", SAID + ["--dtype", "bf16"], 1),
        ("layerwise_disk_2TD", SAID[:4] + ["--layout", "LKBSHD"], 1),
        ("layerwise_disk_T2D", SAID[:4] + ["--layout", "LBSKHD"], 1),
    ]
    for name, options, n in cases:
        path = sample(f"lmcache/{name}")
        if path:
            got, _ = blocks(top, path, options)
            compare(f"LMCache: {name}", got, lambda c: chunk[c], n)
    lmcache_order(top)
    lmcache_two_groups(top, chunk)


def lmcache_order(top):
    path = sample("lmcache/fs_meta")
    if not path:
        return
    write_text(f"{top}/order", "C -78760ac32d6fc120 -18f13b8241c8f724\n")
    got, side = blocks(top, path, HEADS + ["--set", f"order={top}/order"])
    tap.equal((side["num_tokens"], [len(t) for t in side["block_table"].values()]),
              ({"C": 80}, [2]), "LMCache: two chunks are a request of 80 tokens")


def lmcache_two_groups(top, chunk):
    """Layers 0 to 2 and 3 and 4 are two arrays of a chunk."""
    path = sample("lmcache/fs_meta_2groups")
    if not path:
        return
    r = kvtool("convert", "--no-sync", "-f", *HEADS, path, f"{top}/two.safetensors")
    got = sf_arrays(f"{top}/two.safetensors") if r.code == 0 else {}
    side = kvtool("describe", "--json", "--block-tables", *HEADS, path)
    names = side.json["groups"][0]["block_names"] if got else []
    for group, layers in ("g0", slice(0, 3)), ("g1", slice(3, 5)):
        bad = [] if got else ["nothing"]
        for b, name in enumerate(names):
            want = cache(*chunk[name][:2])[layers, chunk[name][2]:][:, :64]
            cells = got[group][:, :, b].transpose(1, 2, 3, 0, 4)
            if not np.array_equal(cells[:, :want.shape[1]], want):
                bad.append(name)
        tap.ok(not bad, f"LMCache: fs_meta_2groups, {group}", f"{bad} {r}")


# ---- Mooncake -----------------------------------------------------------------

def by_key(first=0):
    """[raw-|tp-][REQUEST-]TOKEN, as the store was filled."""
    def where(key):
        m = re.fullmatch(r"(?:raw-|tp-)?(?:([AB])-)?([0-9]{4})", key)
        return "s260k", m.group(1) or "B", int(m.group(2)) + first
    return where


KLSHD = ["--layout", "KLSHD"]
BYTES = KLSHD + SAID + ["--dtype", "bf16"]


def keys(prefix, *more):
    return ["--set", f"keys={prefix}", *more]


def tenant(name):
    return ["--set", f"tenant={name}"]


def mooncake(top):
    # tensors, and shards of each TP rank: a bucket that is not full is not written
    for name, n, shards in ("bucket", 3, (3, 2)), ("file_per_key", 2, (2, 2)), \
            ("offset", 3, ()):
        path = sample(f"mooncake/{name}")
        if not path:
            continue
        for who, first in ("default", 0), ("team-a", 64):
            said = KLSHD + tenant(who)
            got, _ = blocks(top, path, said + keys("B-"))
            compare(f"Mooncake: {name}, {who}", got, by_key(first), n)
            for rank, nshards in enumerate(shards):
                got, _ = blocks(top, path, said + keys("tp-", "--set", f"tp-rank={rank}"))
                compare(f"Mooncake: {name}, {who}, TP rank {rank}", got,
                        by_key(first), nshards, heads=slice(2 * rank, 2 * rank + 2))
        refused(f"Mooncake: {name}, tenants are not mixed", 3,
                ["'default' and 'team-a'", "--set tenant=default"],
                "describe", *KLSHD, *keys("B-"), path)
    mooncake_values_alone(top)
    mooncake_without_crc(top)
    mooncake_scanned(top)
    mooncake_odd_keys(top)
    mooncake_single(top)
    mooncake_lies(top)


def mooncake_values_alone(top):
    """A store that is told root_fs_dir keeps no keys but in the names of files."""
    path = sample("mooncake/root_fs_dir")
    if not path:
        return
    got, _ = blocks(top, path, KLSHD + keys("B-"))
    compare("Mooncake: values alone, tensors", got, by_key(), 2)
    got, _ = blocks(top, path, BYTES + keys("raw-"))
    compare("Mooncake: values alone, bytes", got, by_key(), 2)
    got, _ = blocks(top, path, SAID + keys("karpathy"))
    compare("Mooncake: values alone, chunks of LMCache", got,
            lambda c: ("s260k", "B", int(c, 16) - 0x10000), 2)
    refused("Mooncake: values alone of several kinds", 3,
            ["is a chunk of LMCache", "--set keys="], "describe", *KLSHD, path)
    refused("Mooncake: values alone say no tenant", 3, ["leave out --set tenant"],
            "describe", *KLSHD, *keys("B-"), *tenant("default"), path)


def mooncake_without_crc(top):
    path = sample("mooncake/offset_nocrc")
    if not path:
        return
    got, _ = blocks(top, path, KLSHD)
    compare("Mooncake: records without checksums, one tenant", got, by_key(), 3)
    copy = shutil.copytree(path, f"{top}/nocrc")
    patch(f"{copy}/kv_cache.data", 100, b"x")
    refused("Mooncake: a byte between key and value", 3, ["record at 0", "0x78"],
            "describe", *KLSHD, copy)


def mooncake_scanned(top):
    """Without kv_cache.meta the same records are found."""
    path = sample("mooncake/offset")
    if not path:
        return
    copy = shutil.copytree(path, f"{top}/scanned")
    os.unlink(f"{copy}/kv_cache.meta")
    for who, first in ("default", 0), ("team-a", 64):
        got, _ = blocks(top, copy, KLSHD + tenant(who) + keys("B-"))
        compare(f"Mooncake: an offset store without .meta, {who}", got, by_key(first), 3)


def mooncake_odd_keys(top):
    """Names of files lose characters; the keys inside have them."""
    path = sample("mooncake/file_per_key")
    if not path:
        return
    for key in 'a/b:c*?"<>|\\d', "\u043a\u043b\u044e\u0447 \u00e9", "x y":
        got, _ = blocks(top, path, BYTES + tenant("default") + keys(key[:2]))
        tap.ok(isinstance(got, dict) and list(got) == [key], f"Mooncake: key {key!a}",
               got)
        compare("Mooncake: and its value", got, lambda k: ("s260k", "B", 0), 1)


def mooncake_single(top):
    """One file of a store is not the bytes of a value."""
    path = sample("mooncake/file_per_key")
    if not path:
        return
    at, = [f"{at}/{f}" for at, _, fs in os.walk(path) for f in fs if f == "default_x y"]
    got, _ = blocks(top, at, ["--from", "mooncake"] + BYTES)
    tap.ok(isinstance(got, dict) and list(got) == ["x y"],
           "Mooncake: a file with its key by itself", got)
    for name in "bucket/7353983590401.bucket", "offset/kv_cache.data":
        refused(f"Mooncake: {name} without its folder", 3, ["give their folder"],
                "describe", "--from", "mooncake", *BYTES, f"{ENGINES}/mooncake/{name}")


def mooncake_lies(top):
    def lie(what, status, words, store, change, options=()):
        source = sample(f"mooncake/{store}")
        if not source:
            return
        name = f"{top}/lie"
        shutil.rmtree(name, ignore_errors=True)
        shutil.copytree(source, name)
        change(name)
        refused(f"Mooncake: {what}", status, words, "describe", *KLSHD,
                *keys("B-"), *options, name)

    def first(folder, ending=""):
        return sorted(os.path.join(at, f) for at, _, fs in os.walk(folder)
                      for f in fs if f.endswith(ending))[0]

    lie("an offset store without .data", 3, ["no kv_cache.data"], "offset",
        lambda f: os.unlink(f"{f}/kv_cache.data"))
    for n in 0, 1, 100, 1500, 2110:
        lie(f"a .meta cut to {n} bytes", 3,
            ["kv_cache.meta"], "offset",
            lambda f, n=n: os.truncate(f"{f}/kv_cache.meta", n))
    lie("a byte of a value in a record", 3, ["key B-0000", "checksum"], "offset",
        lambda f: patch(f"{f}/kv_cache.data", 5000, b"\x99\x99"))
    lie("a .meta of a bucket cut", 3, [".meta"], "bucket",
        lambda f: os.truncate(first(f, ".meta"), 60))
    lie("no such tenant", 3, ["is of tenant 'team-b'"], "bucket", lambda f: None,
        tenant("team-b"))
    lie("a file per key cut", 3, ["are left"], "file_per_key",
        lambda f: os.truncate(first(f), 4000))
    lie("a value alone in a store of file per key", 3, ["files of two stores"],
        "file_per_key", lambda f: patch(first(f), 0, b"NOOM"))


# ---- SGLang -------------------------------------------------------------------

PAGE = ["--dtype", "bf16", "--head-dim", "8", "--heads", "4"]
LATENT = ["--layout", "BSLC", "--dtype", "bf16", "--content", "144"]


def sglang(top):
    page = table("sglang")
    both = "mla_dcp2_both"
    cases = [
        ("layer_first", ["--from", "hicache-layer-first", *PAGE], 4),
        ("page_first", ["--from", "hicache-page-first", *PAGE], 4),
        ("page_head", ["--from", "hicache-page-head", *PAGE], 4),
        ("page_first_pp", ["--from", "hicache-page-first", *PAGE], 2),
        ("page_first_cp", ["--from", "hicache-page-first", *PAGE], 2),
        ("mla_page_first", LATENT, 4),
        ("mla_dcp2", LATENT, 2),
        (both, LATENT, 4),
        (f"{both}_layer_first", ["--layout", "mla", *LATENT[2:]], 2),
    ]
    for name, options, n in cases:
        path = sample(f"sglang/{name}")
        if not path:
            continue
        if "dcp" not in name:
            options = options + ["--block-size", "16"] + \
                (["--layers", "5"] if "mla" not in name else [])
        got, side = blocks(top, path, options)
        compare(f"SGLang: {name}", got, lambda h: page[h], n)
        if both not in name:
            written_back(top, name, path, options, n)
    if sample(f"sglang/{both}"):
        sglang_dcp(top, sample(f"sglang/{both}"), page)


def contents(path):
    return read_bytes(path)


def written_back(top, name, path, options, n):
    """The engine finds pages by their names."""
    out = f"{top}/{name} back"
    r = kvtool("convert", "--no-sync", "--format=hicache", *options, path, out)
    files = os.listdir(out) if r.code == 0 else []
    tap.ok((len(files) == n or ENGINES != HERE and files) and
           all(contents(f"{out}/{f}") == contents(f"{path}/{f}") for f in files),
           f"SGLang: {name} is written as it was, names and bytes", r)


def sglang_dcp(top, path, page):
    """Tokens of a page are dealt out one by one."""
    for rank in 0, 1:
        got, side = blocks(top, path, LATENT + ["--set", f"rank=tp4_dcp{rank}_2_page32"])
        bad = [h for h, cells in got.items() if not np.array_equal(
            cells, cache(*page[h][:2])[:, page[h][2] + rank:page[h][2] + 32:2])]
        tap.ok(len(got) == 4 and not bad, f"SGLang: DCP rank {rank} by itself", bad)
        tap.equal([side.get(k) for k in ("dcp_size", "dcp_rank", "tp_size",
                                         "tp_rank")], [2, rank, 4, rank],
                  "SGLang: and says so")
        written_back(top, f"DCP rank {rank}", path, LATENT +
                     ["--set", f"rank=tp4_dcp{rank}_2_page32"], 4)
    r = kvtool("describe", *LATENT, path)
    tap.ok(r.code == 0 and "4 of 32 tokens" in r.out and "mla144\n" in r.out and
           "dcp 0" not in r.out, "SGLang: both ranks are the cache", r)
    copy = shutil.copytree(path, f"{top}/holes")
    os.unlink(f"{copy}/{sorted(os.listdir(copy))[3]}")
    refused("SGLang: a page lacks a shard", 3, ["DCP rank 1 of 2", "--set rank=tp4"],
            "describe", *LATENT, copy)
    refused("SGLang: a page of another size than names say", 3, ["16", "32"],
            "describe", *LATENT, "--block-size", "16", path)
    name = sorted(os.listdir(copy))[0]
    shutil.copy(f"{copy}/{name}", f"{copy}/{name.replace('tp4', 'tp2')}")
    refused("SGLang: shards of two engines", 3, ["tp2_dcp0_2_page32", "--set rank="],
            "describe", *LATENT, copy)


run(lmcache, mooncake, sglang)
