#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_store_kinds.py - stores without an index, and with their own, read back

Files are painted here, byte by byte, with random cells; what must come out of them is
known from how they were painted.  Nothing here knows kvtool.
"""
import hashlib
import json
import os
import random
import shutil
import struct
import urllib.parse
import zlib

import numpy as np

import store_files as sf
from oracle import kvtool, patch, read_json, run, tap

SHAPE = (2, 2, 8, 2, 4)                         # K, L, T, H, D
SAID = ["--layout=KLSHD", "--layers=2", "--heads=2", "--head-dim=4", "--dtype=float16"]


def cells(r, tokens=SHAPE[2], shape=SHAPE):
    shape = shape[:2] + (tokens,) + shape[3:]
    bits = np.frombuffer(r.randbytes(2 * int(np.prod(shape))), np.uint16)
    return (bits & 0x3bff | 1).reshape(shape)       # numbers, and none is zero


def read(path, *options, to="KLBSHD"):
    """{request: cells [K, L, T, H, D]} as kvtool has them; or its refusal."""
    out = path.rstrip("/") + ".out.npy"
    r = kvtool("relayout", "--no-sync", "-f", "-q", f"--to={to}", *options, "-o", out,
               path)
    if r.code:
        return r
    side = read_json(out[:-4] + ".json")
    array = np.load(out).view(np.uint16)
    if to == "LBSC":
        array = array[None, :, :, :, None]
    size = array.shape[3]
    array = array.reshape(array.shape[:2] + (-1,) + array.shape[-2:])
    return {name: np.concatenate([array[:, :, b * size:(b + 1) * size] for b in blocks],
                                 axis=2)[:, :, :side["num_tokens"][name]]
            for name, blocks in side["block_table"].items()}


def same(name, got, want):
    good = isinstance(got, dict) and got.keys() == want.keys() and \
        all(np.array_equal(got[k], want[k]) for k in want)
    tap.ok(good, name, got if not isinstance(got, dict) else
           f"got {sorted(got)}\nwant {sorted(want)}")


def refused(name, status, words, *args):
    r = kvtool(*args)
    tap.ok(r.code == status and all(w in r.out + r.err for w in words), name, r)


# ---- records of Mooncake without kv_cache.meta ------------------------------------

def paint(r, crc, writes, size=1 << 18):
    """
    A kv_cache.data after so many writes at random places, and what is whole of it:
    {key: cells} of the newest record of each key that no later one touched.  After many
    writes all other bytes are noise.
    """
    data = bytearray(size)
    places = []
    for seq in range(writes):
        key, value = f"k{r.randrange(writes)}", cells(r)
        record = sf.record(key, value.tobytes(), seq, crc)
        at = 512 * r.randrange((size - len(record)) // 512)
        data[at:at + len(record)] = record
        places = [p for p in places if p[1] <= at or p[0] >= at + len(record)]
        places.append((at, at + len(record), key, value))
    for at in range(0, size, 512) if writes > 30 else []:
        if not any(p[0] < at + 512 and at < p[1] for p in places):
            data[at:at + 512] = r.randbytes(512)
    return data, {key: value for _, _, key, value in places}


def scanned(top):
    for seed in range(12):
        r = random.Random(seed)
        data, want = paint(r, seed % 2, 8 + 4 * seed)
        folder = f"{top}/scan{seed}"
        sf.write(f"{folder}/kv_cache.data", bytes(data))
        same(f"{len(want)} records {'with' if seed % 2 else 'without'} checksums, found "
             f"without kv_cache.meta, seed {seed}", read(folder, *SAID), want)
    r = random.Random(99)
    one = {f"k{i}": cells(r) for i in range(3)}
    sf.offset_store(f"{top}/three", {k: v.tobytes() for k, v in one.items()})
    same("with kv_cache.meta", read(f"{top}/three", *SAID), one)
    os.unlink(f"{top}/three/kv_cache.meta")
    same("and without", read(f"{top}/three", *SAID), one)
    path = f"{top}/three/kv_cache.data"
    patch(path, 8192 + 4096 + 100, b"x")
    del one["k0"]
    same("a damaged record is none", read(f"{top}/three", *SAID), one)
    refused("fsck says so", 0, ["store.stale", "1 records of kv_cache.data",
                                "found by scanning"], "fsck", *SAID, f"{top}/three")
    os.truncate(path, os.path.getsize(path) - 4096 - 3840 - 9)
    del one["k2"]
    same("nor one that was cut", read(f"{top}/three", *SAID), one)
    sf.write(f"{top}/noise/kv_cache.data", random.Random(7).randbytes(1 << 16))
    refused("noise", 3, ["holds no value"], "describe", *SAID, f"{top}/noise")
    head = sf.record("k", bytes(100000), 1)[:4096]
    sf.write(f"{top}/vain/kv_cache.data", (head[:20] + b"abcd" + head[24:512]) * 400)
    refused("heads without records", 3, ["holds no value"], "describe", *SAID,
            f"{top}/vain")


# ---- LMCache: slots in one file, copies of objects --------------------------------

BLOCKS = ["--heads=2", "--head-dim=4"]
BARE = BLOCKS + ["--layers=2", "--dtype=float16"]


def rank_key(model, chunk, salt="", prefix="0x", group=0):
    return f"{model}@{prefix}01000100@{group:x}@{chunk}{'@' + salt if salt else ''}"


def identity(key):
    """Of an object's key, or of one of an engine, whose hash it is."""
    if "@0x" in key:
        return hashlib.blake2b(key.encode(), digest_size=8).digest()
    return struct.pack("<Q", int(key.split("@")[3], 16) & (1 << 64) - 1)


class Slots:
    """A file of raw_block; payloads by key, and what the checkpoint says of them."""

    def __init__(self, meta=1 << 16, align=4096, header=4096, slot=8192, slots=12):
        self.meta, self.align, self.header, self.slot = meta, align, header, slot
        self.data = bytearray(meta + slot * slots)
        self.entries = {}
        self.used = 0

    def put(self, key, array, fmt="KV_2LTD", dtype="half", at=None, **more):
        i = self.used if at is None else at
        self.used = max(self.used, i + 1)
        payload = array.tobytes()
        place = self.meta + i * self.slot
        k, layers, tokens, heads, dim = array.shape
        self.data[place:place + self.slot] = (
            b"LMCBLK01" + identity(key) + struct.pack("<Q", len(payload))).ljust(
                self.header, b"\0") + payload.ljust(self.slot - self.header, b"\xcc")
        self.entries[key] = {"offset": place, "size": len(payload), "fmt": fmt,
                             "shape": [k, layers, tokens, heads * dim], "dtype": dtype,
                             "cached_positions": None, **more}

    def checkpoint(self, seq, container=1, crc=0, **more):
        text = json.dumps({
            "version": 1, "device_path": "/dev/x", "capacity_bytes": len(self.data),
            "block_align": self.align, "header_bytes": self.header,
            "slot_bytes": self.slot, "meta_total_bytes": self.meta,
            "meta_magic": "LMCIDX01", "meta_version": 1, "data_base_offset": self.meta,
            "next_slot": self.used, "entries": self.entries, **more}).encode()
        half = self.meta // 2 // self.align * self.align
        at = (seq - 1) % 2 * half
        assert len(text) <= half - self.align
        self.data[at:at + self.align] = struct.pack(
            "<8sIQQI", b"LMCIDX01", container, seq, len(text),
            zlib.crc32(text) ^ crc).ljust(self.align, b"\0")
        self.data[at + self.align:at + self.align + len(text)] = text
        return self

    def write(self, path):
        sf.write(path, bytes(self.data))
        return path


def raw_block(top):
    for seed in range(10):
        r = random.Random(seed)
        legacy, align = seed % 3 == 0, r.choice([512, 4096, 4096, 8192])
        s = Slots(meta=r.choice([1 << 16, (1 << 16) + align]), align=align,
                  header=r.choice([512, 4096]), slot=align * r.randrange(2, 4) + 8192)
        want = {}
        for i in range(r.randrange(1, 8)):
            chunk = f"{r.getrandbits(64 if legacy else 256):x}"
            if legacy and r.random() < 0.4:
                chunk = "-" + f"{r.getrandbits(63):x}"
            key = f"org/m@1@0@{chunk}@half" if legacy else \
                rank_key("org%2Fm%25", chunk, "tenant" * (seed % 2))
            want[chunk] = cells(r, r.randrange(1, 9) if legacy else 8)
            s.put(key, want[chunk])
            if i % 2:
                s.checkpoint(i)
        for seq in range(2 + seed % 3, 12, 3):
            s.checkpoint(100 + seq)
        same(f"{len(want)} slots, seed {seed}",
             read(s.write(f"{top}/slots{seed}"), *BLOCKS), want)
    lie = raw_block_lie(top)
    lie("nothing wrong", 0, ["3 requests, 24 tokens"], lambda s: s.checkpoint(1))
    lie("no checkpoint is whole", 3, ["no checkpoint in it is whole"],
        lambda s: s.checkpoint(1, crc=1))
    lie("another version of the container", 3, ["no checkpoint"],
        lambda s: s.checkpoint(1, container=2))
    lie("another version of the text", 4, ["version 7"],
        lambda s: s.checkpoint(1, version=7))
    lie("slots of another place", 3, ["contradict"],
        lambda s: s.checkpoint(1, data_base_offset=4096))
    lie("a slot beyond the file", 3, ["it was cut"],
        lambda s: (s.checkpoint(1), s.data.__delitem__(slice(s.meta + 9000, None))))
    for place in 1, 1 << 15, (1 << 16) + 1:
        lie(f"a chunk at {place}", 3, ["which is no slot"],
            lambda s, p=place: (s.entries["m@0x01000100@0@aa"].update(offset=p),
                                s.checkpoint(1)))
    lie("a chunk longer than a slot", 3, ["which is no slot"],
        lambda s: (s.entries["m@0x01000100@0@aa"].update(size=4097), s.checkpoint(1)))
    lie("a key that is none", 3, ["'m@xyz'"],
        lambda s: (s.entries.update({"m@xyz": s.entries["m@0x01000100@0@aa"]}),
                   s.checkpoint(1)))
    lie("no entries", 3, ["has no entries"], lambda s: s.checkpoint(1, entries=3))
    lie("no chunk", 3, ["names 0 chunks"], lambda s: s.checkpoint(1, entries={}))
    lie("two keys of one slot", 0, ["2 requests, 16 tokens"],
        lambda s: (s.entries["m@0x01000100@0@bb"].update(
            offset=s.entries["m@0x01000100@0@aa"]["offset"]), s.checkpoint(1)))
    lie("all slots are others'", 3, ["3 chunks, of which 3 lie in slots that hold others"],
        lambda s: (s.checkpoint(1), [s.put(f"m@0x01000100@0@f{i}", cells(
            random.Random(i)), at=i) for i in range(3)]))
    fsck = ["fsck", *BLOCKS]
    s = three().checkpoint(1)
    s.put("m@0x01000100@0@dd", cells(random.Random(5)), at=1)
    s.put("m@0x01000100@0@ee", cells(random.Random(6)))
    refused("fsck: a slot of another chunk, and one that is not named", 0,
            ["slot 1 no longer holds chunk m@0x01000100@0@bb",
             "2 slots hold chunks that the checkpoint does not name"],
            *fsck, s.write(f"{top}/stale"))
    s = three()
    for e in s.entries.values():
        e["shape"] = e["dtype"] = None
    refused("no shape: it is asked for", 3, ["--layers", "--dtype"], "describe", *BLOCKS,
            s.checkpoint(1).write(f"{top}/bare"))
    refused("and may be said", 0, ["8 tokens"], "describe", *BARE, f"{top}/bare")


def three():
    s = Slots()
    for i, chunk in enumerate(("aa", "bb", "cc")):
        s.put(f"m@0x01000100@0@{chunk}", cells(random.Random(i)))
    return s


def raw_block_lie(top):
    def lie(what, status, words, change):
        s = three()
        change(s)
        refused(f"raw_block: {what}", status, words, "describe", *BLOCKS,
                s.write(f"{top}/lie"))
    return lie


def objects(top):
    """Copies of what is in S3: keys with their slashes, and without an ending."""
    r = random.Random(3)
    native = {f"{r.getrandbits(256):064x}": cells(r) for _ in range(3)}
    for salt in "", "team":
        for chunk, value in native.items():
            sf.write(f"{top}/s3{salt}/{rank_key('org/m', chunk, salt, '')}",
                     value.tobytes())
        same(f"objects of the second level, salt '{salt}'", read(f"{top}/s3{salt}", *BARE),
             native)
    old = {f"{r.getrandbits(63):x}": cells(r, 8 - i) for i in range(3)}
    for quoted in False, True:
        for chunk, value in old.items():
            key = f"org_m@1@0@{chunk}@half"
            sf.write(f"{top}/old{quoted}/"
                     f"{urllib.parse.quote(key, safe='') if quoted else key}",
                     value.tobytes())
        same(f"objects of the old connector, {'quoted' if quoted else 'as they are'}",
             read(f"{top}/old{quoted}", *BARE), old)
    store = {rank_key("org/m", c, "", ""): v.tobytes() for c, v in native.items()}
    sf.file_per_key(f"{top}/mc", store)
    same("the same keys in a store of Mooncake", read(f"{top}/mc", *BARE), native)


# ---- SGLang's pages in Mooncake ----------------------------------------------------

# a half of a page, as the layouts of HiCache order it; cells are [K, L, T, H, D]
HALVES = {"hicache-page-first": "TLHD", "hicache-page-first-direct": "LTHD",
          "hicache-page-head": "HTLD", "KLSHD": "LTHD", "SLHD": "TLHD"}


def digest(r):
    return hashlib.sha256(r.randbytes(8)).hexdigest()


def half(cells_, order):
    return np.ascontiguousarray(
        cells_.transpose(["LTHD".index(a) for a in order])).tobytes()


def sglang_pages(top):
    stores = [sf.buckets, sf.file_per_key, sf.offset_store]
    said = ["--dtype=float16", "--layers=2", "--heads=2", "--head-dim=4"]
    for i, (layout, order) in enumerate(HALVES.items()):
        r = random.Random(i)
        tag, rank = ["", "prod_"][i % 2], ["0", "3_1"][i % 3 % 2]
        want, store = {}, {}
        for _ in range(5):
            name = f"{tag}{digest(r)}_{rank}"
            want[name] = cells(r)
            for k, kv in enumerate("kv"):
                store[f"{name}_{kv}"] = half(want[name][k], order)
        folder = f"{top}/pages{i}"
        stores[i % 3](folder, store)
        same(f"keys and values apart, {layout}, {tag}HASH_{rank}",
             read(folder, f"--layout={layout}", *said), want)
    r = random.Random(9)
    hashes = [digest(r) for _ in range(3)]
    values = {}
    for h in hashes:
        for rank in "01":
            for pool in "", "draft_":
                for kv in "kv":
                    values[f"{h}_{rank}_{pool}{kv}"] = cells(r)[0].tobytes()
    folder = f"{top}/ranks"
    sf.buckets(folder, values)
    said.append("--layout=KLSHD")
    refused("two pools", 3, ["holds pools 'draft' and 'kv'", "--set pool=draft"], "describe",
            *said, folder)
    refused("two ranks", 3, ["holds ranks '0' and '1'", "--set rank=0"], "describe",
            *said, "--set=pool=draft", folder)
    refused("one of each", 0, ["3 requests, 24 tokens"], "describe", *said,
            "--set=pool=draft", "--set=rank=1", folder)
    for kv, what in ("k", "values, but no keys"), ("v", "keys, but no values"):
        some = {k: v for k, v in values.items() if "draft" not in k and "_0_" in k}
        del some[f"{hashes[1]}_0_{kv}"]
        shutil.rmtree(folder)
        sf.buckets(folder, some)
        refused(f"a page without {what[-6:]}", 3, [f"page {hashes[1]}_0 has {what}"],
                "describe", *said, folder)
    one = f"{hashes[0]}_0_k"
    shutil.rmtree(folder)
    sf.buckets(folder, {k: v for k, v in some.items() if k.endswith("_k")})
    refused("keys alone", 3, ["no values beside its keys", "--content"], "describe",
            *said, folder)
    some = {k: v for k, v in some.items() if not k.startswith(hashes[1])}
    shutil.rmtree(folder)
    sf.buckets(folder, {**some, one: values[one][:-32]})
    refused("a shorter half", 3, [hashes[0], "has 224 bytes of keys and 256 of values"],
            "describe", *said, folder)
    shutil.rmtree(folder)
    sf.buckets(folder, {**some, "other": b"x" * 64})
    refused("other values among them", 3, ["are pages of SGLang", "--set keys="],
            "describe", *said, folder)
    latent = {f"{h}__k": cells(r, 8, (1, 3, 8, 1, 12)) for h in hashes}
    sf.buckets(f"{top}/latent", {k: np.ascontiguousarray(
        v.transpose(0, 2, 1, 3, 4)).tobytes() for k, v in latent.items()})
    same("latents", read(f"{top}/latent", "--layout=BSLC", "--dtype=float16",
                         "--layers=3", "--content=12", to="LBSC"),
         {k[:-3]: v for k, v in latent.items()})


# ---- SGLang's other stores ---------------------------------------------------------

def nixl_path(name):
    """Where the router of its NIXL backend puts a key, on one disk."""
    h = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return f"{h[-1]:02x}/{name}"


def other_stores(top):
    said = ["--dtype=float16", "--block-size=8", "--heads=2", "--head-dim=4"]
    for i, (layout, order) in enumerate(list(HALVES.items())[:3]):
        r = random.Random(i)
        want = {digest(r): cells(r) for _ in range(6)}
        option = [f"--layout={layout}", *said]
        for model, rank, pool in ("org-m", "_1_4", ""), ("m_1", "_0_1", "_draft"):
            more = ["--set=total-heads=8"] if rank == "_1_4" else []
            more += ["--set=pool=draft"] if pool else []
            name = f"{top}/nixl{i}{rank}"
            for h, v in want.items():
                for k, kv in enumerate("kv"):
                    sf.write(f"{name}/" + nixl_path(f"{h}_{model}{rank}{pool}_{kv}"),
                             half(v[k], order))
            same(f"NIXL, keys and values, {layout}, {model}{rank}{pool}",
                 blocks(name, *option, *more), want)
        for h, v in want.items():
            page = half(v[0], order) + half(v[1], order)
            sf.write(f"{top}/whole{i}/" + nixl_path(f"{h}_org-m_0_1"), page)
            sf.write(f"{top}/s3{i}/pre/org-m/tp3of4/{'pp0of2/' * (i == 1)}{h}", page)
        same(f"NIXL, whole pages, {layout}", blocks(f"{top}/whole{i}", *option), want)
        same(f"SeaweedFS, {layout}", blocks(
            f"{top}/s3{i}", *option, "--set=total-heads=8"), want)
    r = random.Random(5)
    values = {f"{digest(r)}_m_0_1": cells(r) for _ in range(4)}
    option = ["--layout=hicache-page-first", *said]
    for gone in "kv":
        folder = f"{top}/gone{gone}"
        for j, (h, v) in enumerate(values.items()):
            for k, kv in enumerate("kv"):
                if j != 2 or kv != gone:
                    sf.write(f"{folder}/" + nixl_path(f"{h}_{kv}"), half(v[k], "TLHD"))
        h = list(values)[2][:64]
        refused(f"NIXL: a page without its _{gone}", 3,
                [f"page {h} has {'values, but no keys' if gone == 'k' else 'keys, but'}"],
                "describe", *option, folder)
        refused("and fsck says so", 1,
                ["pool.missing", f"page {h} is not in "
                 f"{'keys' if gone == 'k' else 'values'} of pool kv"],
                "fsck", *option, folder)
    sf.write(f"{folder}/{'a' * 64}_m_0_1.bin", bytes(512))
    refused("pages of two stores", 3, ["are pages of different stores"], "describe",
            *option, folder)
    for h in values:
        v = np.ascontiguousarray(cells(r, 8, (1, 3, 8, 1, 12)).transpose(0, 2, 1, 3, 4))
        sf.write(f"{top}/mla/" + nixl_path(f"{h[:-4]}_k"), v.tobytes())
    refused("NIXL: latents", 0, ["4 of 8 tokens"], "describe", "--layout=BSLC",
            "--dtype=float16", "--block-size=8", "--content=12", f"{top}/mla")


# ---- objects of KVBM --------------------------------------------------------------

def base58(n):
    """As bs58 writes 8 bytes: a 1 for each zero before the number."""
    digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    raw, out = n.to_bytes(8, "big"), ""
    zeros = len(raw) - len(raw.lstrip(b"\0"))
    while n:
        n, d = divmod(n, 58)
        out = digits[d] + out
    return "1" * zeros + out


def kvbm_chain(r, n, start=0):
    """Keys of a request's blocks, as its lineage hashes print themselves."""
    bits = [r.getrandbits(r.choice([59, 59, 20])) for _ in range(n)]
    keys = []
    for i, h in enumerate(bits):
        keys.append(f"{i}:{base58(h)}" + (f":{base58(bits[i - 1])}" if i else ""))
    return keys[start:]


def kvbm_objects(top):
    orders = {"BLKSHD": "LKTHD", "kvbm:OperationalHND": "LKHTD", "kvbm:UniversalTP":
              "HLKTD", "hicache-page-first": "KTLHD"}
    for i, (layout, order) in enumerate(orders.items()):
        r = random.Random(i)
        keys = kvbm_chain(r, 5 + i)
        branch = keys[:2] + [f"2:{base58(r.getrandbits(59))}:{keys[1].split(':')[1]}"]
        late = kvbm_chain(r, 4, 2)              # of what came before nothing is left
        values = {k: cells(r) for k in keys + branch[2:] + late}
        folder = f"{top}/kvbm{i}"
        for k, v in values.items():
            body = np.ascontiguousarray(v.transpose(["KLTHD".index(a) for a in order]))
            for rank in range(2):
                sf.write(f"{folder}/pre/{rank}/{k}",
                         (body + rank).astype(np.uint16).tobytes())
            sf.write(f"{folder}/{k}.meta", b"")
        said = [f"--layout={layout}", "--dtype=float16", "--layers=2", "--block-size=8",
                "--heads=2", "--head-dim=4"]
        want = {chain[-1].rsplit(":", 1)[0]: np.concatenate(
            [values[k] for k in chain], axis=2) for chain in (keys, branch, late)}
        same(f"objects of KVBM, {layout}", read(folder, *said, "--set=rank=0"), want)
        for path in f"{folder}/0", f"{folder}/1":
            r2 = kvtool("describe", "-j", *said, f"{folder}/pre/{path[-1]}")
            first = {q["id"]: q["first_token"] for q in
                     r2.json["requests"]} if not r2.code else r2
            tap.equal(first, {q: 16 * (q == late[-1].rsplit(":", 1)[0]) for q in want},
                      "and where requests begin")
        refused("two ranks", 3, ["holds ranks '0' and '1'"], "describe", *said, folder)
    sf.write(f"{folder}/pre/0/9:abc:def.meta", b"")
    refused("a mark of a block that is not there", 1,
            ["pool.missing", "block 9:abc is marked as stored"], "fsck", *said,
            f"{folder}/pre/0")
    os.unlink(f"{folder}/pre/0/9:abc:def.meta")
    path = f"{folder}/pre/0/{keys[2]}"
    refused("tokens of a block are asked for", 3, ["give --block-size"], "describe",
            *said[:3], *said[4:], f"{folder}/pre/0")
    os.truncate(path, os.path.getsize(path) // 2)
    refused("an object that was cut", 3, [keys[2], "4 tokens, expected 8"], "describe",
            *said, f"{folder}/pre/0")
    os.unlink(path)
    sf.write(f"{folder}/pre/0/notes", b"")
    refused("another file", 3, ["is not an object of KVBM"], "describe",
            "--from=kvbm-objects", *said, f"{folder}/pre/0")


# ---- vLLM's tier obj, and stores that are not read ---------------------------------

def objects_of_vllm(top):
    r = random.Random(6)
    config = {"model_name": "org/m", "tokens_per_hash": 8, "blocks_per_file": 1,
              "tp_size": 1, "pp_size": 1, "pcp_size": 1, "dcp_size": 1,
              "dtype": "float16", "inference_engine": "vllm", "kv_cache_groups": [
                  {"tokens_per_block": 8, "layer_names": [f"l.{i}" for i in (0, 1)]}]}
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    base = f"org_m_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    want = {digest(r): cells(r) for _ in range(4)}
    folder = f"{top}/obj"
    for h, v in want.items():           # L, B, S, H, K D of one rank, then zeros
        row = np.ascontiguousarray(v.transpose(1, 2, 3, 0, 4)).tobytes()
        sf.write(f"{folder}/kv/{base}_r0/{h[:3]}/{h[3:5]}_g0/{h}.bin",
                 row.ljust(4096, b"\0"))
    said = ["--layout=LBSHKD", "--heads=2", "--head-dim=4", "--set=tp-size=1"]
    refused("objects of vLLM without a config", 3,
            [f"has no config.json for {base}_r0", "tier obj", f"/kv/{base}"], "describe",
            *said, f"{folder}/kv")
    sf.write(f"{folder}/kv/{base}/config.json", json.dumps(config, indent=2).encode())
    same("and with that of the tier fs", blocks(f"{folder}/kv", *said), want)
    for h in want:
        path = f"{folder}/kv/{base}_r0/{h[:3]}/{h[3:5]}_g0/{h}.bin"
        os.truncate(path, 8192)
    refused("objects of several blocks", 3, ["8192", "4096"], "describe", *said,
            f"{folder}/kv")


UNREAD = {
    "p2p": "tier fs", "example": "tier fs", "kvcr": "--from=raw", "obj": "config.json",
    "s3": "copy the objects", "redis": "its key as name", "valkey": "its key as name",
    "bigtable": "behind the first @", "lm": "--from=lmcache", "zmq": "--from=lmcache",
    "lmcache-server": "--from=lmcache", "mooncakestore": "root_fs_dir",
    "nvme-kv": "root_fs_dir", "distributed": "root_fs_dir", "hf3fs": "BKSLHD",
    "eic": "storage backend file", "aibrix": "storage backend file",
    "simm": "storage backend file", "umbp": "storage backend file",
    "tensorcast": "storage backend file", "npu-memcache": "storage backend file",
}


def unread(top):
    """Each is refused with what to do instead, by its name and as a URL."""
    sf.write(f"{top}/some.bin", bytes(100))
    for name, words in UNREAD.items():
        refused(f"--from={name}", 4, [f"{name} is not read", words], "describe",
                f"--from={name}", f"{top}/some.bin")
    for url, words in ("lm://host:65432", "--from=lmcache"), ("s3://a/b", "copy"), \
            ("redis://h", "its key as name"), ("http://h:8080/cache", "--from=lmcache"), \
            ("ftp://x", "copy it to one"), ("mooncakestore://h:1", "root_fs_dir"):
        refused(url, 4, [words], "describe", url)
    refused("a name that is nobody's", 2, ["there is no format"], "describe",
            "--from=p2", f"{top}/some.bin")
    # what is said of hf3fs holds: pages at their places
    r = random.Random(8)
    want = [cells(r) for _ in range(3)]
    sf.write(f"{top}/hf3fs.0.bin", b"".join(half(v[0], "TLHD") + half(v[1], "TLHD")
                                             for v in want))
    got = kvtool("relayout", "--no-sync", "-q", "--from=raw", "--layout=BKSLHD",
                 "--dtype=float16", "--layers=2", "--block-size=8", "--heads=2",
                 "--head-dim=4", "--to=KLBSHD", "-o", f"{top}/hf3fs.npy",
                 f"{top}/hf3fs.0.bin")
    array = np.load(f"{top}/hf3fs.npy").view(np.uint16) if not got.code else None
    tap.ok(array is not None and all(np.array_equal(array[:, :, i], v)
                                     for i, v in enumerate(want)),
           "pages of hf3fs as raw", got)


def blocks(path, *options):
    """{name of a block: cells}"""
    out = path + ".out.npy"
    r = kvtool("relayout", "--no-sync", "-f", "-q", "--to=KLBSHD", *options, "-o", out,
               path)
    if r.code:
        return r
    names = read_json(out[:-4] + ".json")["block_names"]
    return dict(zip(names, np.load(out).view(np.uint16).transpose(2, 0, 1, 3, 4, 5)))


run(scanned, raw_block, objects, sglang_pages, other_stores, kvbm_objects,
    objects_of_vllm, unread)
