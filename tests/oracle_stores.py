#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_stores.py - chunks that LMCache and Mooncake wrote, against the cache they
were made from, and stores that lie

store_files.py writes them from the descriptions of their formats, with values of
real dumps.  With a list of what follows what they have the digest of the dump;
without one, each chunk is looked at by itself.
"""
import json
import os
import shutil
import struct

import numpy as np

import store_files as sf
from kvd1 import whole
from oracle import (DATA, Dump, kvtool, patch, read_json, refused, run, runs,
                    safetensors_tensors, tap, write_bytes, write_text)


def dump(model, name):
    d = Dump(model, f"{DATA}/{model}/{name}.json")
    d.ids = read_json(f"{DATA}/{model}/canonical/requests.json")["token_ids"]
    d.requests = {r: d.tokens(d.cells, r) for r in d.tables}
    return d


def same_tokens(name, path, options, want):
    got = whole(path, *options)
    tap.ok(want and got[0] == want, name,
           f"got {got[0]} want {want}\n{kvtool('digest', *options, path)}")


# ---- LMCache ----------------------------------------------------------------

GEOMETRY = ["--layers", "5", "--head-dim", "8"]


def lmcache_round_trips(top, d, want):
    heads = ["--heads", "4"]
    cases = [("fs", 1, 32, "zeros", heads), ("fs", 2, 64, "zeros", heads),
             ("fs", 2, 64, "ones", heads), ("fs", 3, 64, "zeros", heads),
             ("fs", 3, 64, "ones", ["--head-dim", "8"]),
             ("gds", 1, 256, "", heads), ("weka", 3, 256, "", heads),
             ("disk", 1, 64, "", heads + GEOMETRY),
             ("disk", 3, 64, "", heads + GEOMETRY[2:] + ["--layout", "KSHD"]),
             ("disk", 2, 64, "", heads + GEOMETRY + ["--layout", "LBSKHD"]),
             ("fs-bare", 1, 64, "", heads + GEOMETRY)]
    for i, (backend, fmt, size, pad, options) in enumerate(cases):
        name = f"{top}/{i}"
        order = sf.lmcache_dump(name, backend, d.requests, d.ids, size,
                                d.dtype, fmt, pad=pad)
        sf.write_order(name + ".order", order)
        for block in [], ["--block-size", "16"]:
            same_tokens(f"{backend}, format {fmt}, chunks of {size}, "
                        f"{pad or 'no padding'}{' as blocks of 16' * bool(block)}",
                        name, options + block + ["--set", f"order={name}.order"],
                        want)


def lmcache_l2(top, d, want):
    order = sf.l2_dump(f"{top}/l2", d.requests, d.ids, 64, salt="s")
    sf.write_order(f"{top}/l2.order", order)
    same_tokens("L2 adapter", f"{top}/l2",
                ["--heads", "4", "--dtype", "bf16", *GEOMETRY,
                 "--set", f"order={top}/l2.order"], want)


def lmcache_latent(top):
    d = dump("mla144", "paged_bs16/mla_lbsc.bf16")
    want = whole(d.path)[0]
    for i, (backend, options) in enumerate([
            ("fs", []), ("gds", []),
            ("disk", ["--layers", "3", "--content", "144"])]):
        name = f"{top}/mla{i}"
        order = sf.lmcache_dump(name, backend, d.requests, d.ids, 32, d.dtype, 6)
        sf.write_order(name + ".order", order)
        same_tokens(f"MLA, {backend}", name,
                    options + ["--set", f"order={name}.order"], want)


def lmcache_ranks(top, want):
    """One folder of two workers, each of which is chosen, and joined again."""
    for worker in 0, 1:
        d = dump("s260k", f"tp2/rank{worker}.packed_nhd.bf16")
        order = sf.lmcache_dump(f"{top}/tp2", "fs", d.requests, d.ids, 64,
                                d.dtype, 1, world=2, worker=worker)
    sf.write_order(f"{top}/tp2.order", order)
    said = ["--heads", "2", "--set", "total-heads=4", "--set", f"order={top}/tp2.order"]
    refused("two workers are a conflict", 3, ["worker '0'", "worker '1'",
            "--set worker="], "describe", *said, f"{top}/tp2")
    for worker in 0, 1:
        runs(f"worker {worker} is chosen", "convert", "--no-sync", *said, "--set",
             f"worker={worker}", f"{top}/tp2", f"{top}/rank{worker}.h5")
    runs("workers are merged", "merge", "--no-sync", "-o", f"{top}/whole.h5",
         f"{top}/rank0.h5", f"{top}/rank1.h5")
    same_tokens("merged workers are the cache", f"{top}/whole.h5", [], want)
    refused("heads of the model are asked for", 3, ["--set total-heads=N"],
            "describe", "--heads", "2", "--set", "worker=0", f"{top}/tp2")
    refused("workers that share nothing", 3, ["do not fit a model of 6"], "describe",
            "--heads", "2", "--set", "worker=0", "--set", "total-heads=6",
            f"{top}/tp2")
    refused("no such worker", 3, ["none of its"], "describe", "--heads", "2",
            "--set", "worker=7", f"{top}/tp2")


def each_chunk_alone(top, d):
    """Values of each chunk, as blocks that are named by it."""
    name = f"{top}/alone"
    sf.lmcache_dump(name, "fs", d.requests, d.ids, 32, d.dtype, 1)
    chunks = {}
    for request, cells in d.requests.items():
        for chunk, first, end in sf.chunk_ids(d.ids[request], cells.shape[2], 32):
            chunks[chunk] = cells[:, :, first:end]
    runs("chunks without a list are converted", "convert", "--no-sync", "--heads", "4",
         name, f"{top}/alone.npy")
    side = json.load(open(f"{top}/alone.json"))
    array = np.load(f"{top}/alone.npy").view(np.uint16)
    tap.equal(sorted(chunks), sorted(side["block_table"]), "each chunk is a request")
    tap.equal({c: a.shape[2] for c, a in chunks.items()}, side["num_tokens"],
              "of as many tokens")
    good = True
    for chunk, cells in chunks.items():
        b, = side["block_table"][chunk]
        good &= side["block_names"][b] == chunk
        good &= np.array_equal(array[:, :, b, :cells.shape[2]], cells)
        good &= not array[:, :, b, cells.shape[2]:].any()
    tap.ok(good, "and holds its values, and zeros behind them")


def lmcache_several_arrays(top):
    """A chunk of two arrays of unlike width, as hybrid models have."""
    rng = np.random.default_rng(7)
    a = rng.integers(0, 1 << 16, (2, 3, 8, 4, 8), dtype=np.uint16)
    b = rng.integers(0, 1 << 16, (2, 2, 8, 2, 8), dtype=np.uint16)
    for backend in "fs", "gds":
        for first in 0, 4:
            part = [x[:, :, first:first + 4] for x in (a, b)]
            shapes = [sf.lmcache_array(x, 1)[1] for x in part]
            key = sf.lmcache_key("m", 1, 0, f"{first + 160:x}", "bfloat16")
            sf.lmcache_file(f"{top}/two-{backend}", backend, key,
                            f"{first + 1600:x}", part, 1, ["bfloat16"] * 2, shapes)
        r = kvtool("convert", "--no-sync", "-f", "--head-dim", "8",
                   f"{top}/two-{backend}", f"{top}/two.safetensors")
        got = sf_arrays(f"{top}/two.safetensors") if r.code == 0 else {}
        tap.ok(all(np.array_equal(got.get(g), x.reshape(x.shape[:2] + (2, 4) +
                                                        x.shape[3:]))
                   for g, x in (("g0", a), ("g1", b))),
               f"two arrays in a chunk, {backend}", r)


def sf_arrays(path):
    return {name.split(".")[0]: np.frombuffer(
                raw, np.uint8 if dtype in ("U8", "F8_E4M3", "F8_E5M2") else np.uint16)
            .reshape(shape) for name, (dtype, shape, raw) in safetensors_tensors(path).items()}


def lmcache_several_types(top):
    """An indexer's bytes and latents in one chunk, whichever the name says, and order."""
    rng = np.random.default_rng(8)
    parts = {"uint8": rng.integers(0, 1 << 8, (1, 3, 8, 1, 12), dtype=np.uint8),
             "bfloat16": rng.integers(0, 1 << 16, (1, 3, 8, 1, 16), dtype=np.uint16)}
    for backend in "fs", "gds":
        for order in ["uint8", "bfloat16"], ["bfloat16", "uint8"]:
            for said in order:
                folder = f"{top}/types-{backend}-{order[0]}-{said}"
                arrays = [parts[t] for t in order]
                sf.lmcache_file(folder, backend, sf.lmcache_key("m", 1, 0, "a1", said),
                                "a1", arrays, 6, order,
                                [sf.lmcache_array(a, 6)[1] for a in arrays])
                r = kvtool("convert", "--no-sync", "-f", folder, f"{top}/t.safetensors")
                got = sf_arrays(f"{top}/t.safetensors") if r.code == 0 else {}
                tap.ok(all(np.array_equal(got.get(f"g{g}", np.zeros(1)).ravel(), a.ravel())
                           for g, a in enumerate(arrays)),
                       f"{order[0]} before {order[1]}, {said} in the name, {backend}", r)
    arrays = [parts["uint8"], parts["uint8"]]
    sf.lmcache_file(f"{top}/types-none", "fs", sf.lmcache_key("m", 1, 0, "a1", "float16"),
                    "a1", arrays, 6, ["uint8"] * 2,
                    [sf.lmcache_array(a, 6)[1] for a in arrays])
    refused("a type in the name that no array has", 3, ["float16 in the name"],
            "describe", f"{top}/types-none")
    # GLM's: what was reported as 25,638,912 bytes
    arrays = [np.zeros((1, 78, 256, 1, 132), np.uint8),
              np.zeros((1, 78, 256, 1, 576), np.uint16)]
    sf.lmcache_file(f"{top}/glm", "fs", sf.lmcache_key("glm", 1, 0, "a1", "bfloat16"),
                    "a1", arrays, 6, ["uint8", "bfloat16"],
                    [sf.lmcache_array(a, 6)[1] for a in arrays])
    r = kvtool("describe", "-j", f"{top}/glm")
    groups = r.json["groups"] if r.code == 0 else []
    tap.equal([(g["dtype"], g["layers"], g["block_size"]) for g in groups],
              [("uint8", 78, 256), ("bfloat16", 78, 256)], "an indexer of 78 layers")
    tap.equal(r.json["data_bytes"], 25638912, "of as many bytes as reported")


# ---- what serdes make of chunks --------------------------------------------------

XXH3_OF_ABC = bytes.fromhex("78af5f94892f3950")


def lmcache_serdes(top, d):
    one = {"C": d.requests["C"][:, :, :64]}
    said = ["--heads", "4", *GEOMETRY]
    name, = sf.l2_dump(f"{top}/serde", one, d.ids, 64)["C"]
    path, = (os.path.join(f"{top}/serde", f) for f in os.listdir(f"{top}/serde"))
    raw = sf.raw(one["C"])
    coded = np.random.default_rng(5).integers(0, 1 << 8, len(raw) // 2, dtype=np.uint8)

    def describe(what, data, code, words, *options):
        write_bytes(path, data)
        r = kvtool("describe", *said, *options, f"{top}/serde")
        tap.ok(r.code == code and all(w in r.out + r.err for w in words), what, r)

    sets = [[], ["--dtype=bf16"], ["--dtype=fp8_e4m3"], ["--dtype=fp8_e5m2"]]
    for options, dtype in zip(sets, ["e4m3fn", "e4m3fn", "e4m3fn", "e5m2"]):
        describe(f"serde fp8 {options}", coded.tobytes(), 0,
                 ["64 tokens", f"float8_{dtype}"], "--set=serde=fp8", *options)
        r = kvtool("convert", "--no-sync", "-f", *said, "--set=serde=fp8", *options,
                   f"{top}/serde", f"{top}/fp8.safetensors")
        got = sf_arrays(f"{top}/fp8.safetensors").popitem()[1] if r.code == 0 else None
        tap.ok(got is not None and np.array_equal(got.ravel(), coded),
               f"serde fp8 {options}: the same bytes", r)
    bf16 = "--dtype=bf16"
    describe("fp8 as raw data is half as long: said", coded.tobytes(), 0,
             ["32 tokens", "a cut file cannot be noticed, nor one that a serde"], bf16)
    describe("fp8 as raw data, the chunk's size said", coded.tobytes(), 3,
             ["has 32 tokens, expected 64", "serde"], bf16, "--set=chunk-size=64")
    describe("no serde", raw, 0, ["64 tokens", "a cut file cannot be noticed\n"], bf16,
             "--set=serde=none")
    describe("a longer chunk than said", raw, 3, ["has 64 tokens", "chunk-size says 32"],
             bf16, "--set=chunk-size=32")
    describe("encrypted, by its length", bytes([1]) + raw + bytes(28), 4, ["aesgcm"], bf16)
    frame = bytes([1]) + bytes.fromhex(name)
    describe("a frame that nobody said", frame + bytes(8) + raw, 3,
             ["--set=serde=checksum"], bf16)
    describe("a checksum that is wrong", frame + bytes(8) + raw, 3,
             ["checksum is 0x", "expected 0x0000000000000000"], bf16,
             "--set=serde=checksum")
    describe("a checksum that is right", frame + XXH3_OF_ABC + b"abc", 3,
             ["has 3 bytes"], bf16, "--set=serde=checksum")
    r = kvtool("convert", "--no-sync", "-f", "--layers=1", "--content-size=3",
               "--dtype=uint8", "--set=serde=checksum", f"{top}/serde",
               f"{top}/abc.safetensors")
    tap.ok(r.code == 0 and sf_arrays(f"{top}/abc.safetensors").popitem()[1].tobytes() == b"abc",
           "what is behind the frame", r)
    describe("no frame", raw, 3, ["does not begin with its hash"], bf16,
             "--set=serde=checksum")
    describe("a blob of another coder", b"LMCKV\1\0\1" + raw, 4, ["asym_k16_v8"], bf16)
    for serde in "aesgcm", "turboquant", "asym_k16_v8", "cachegen":
        describe(f"serde {serde}", raw, 4, [f"serde {serde} has coded"], bf16,
                 f"--set=serde={serde}")
    describe("no such serde", raw, 2, ["expected none, fp8"], bf16, "--set=serde=zip")
    refused("a serde where there is a header", 3, ["has a header"], "describe",
            "--heads", "4", "--set=serde=fp8", f"{top}/good")


# ---- LMCache folders that lie --------------------------------------------------

def lmcache_lies(top, d):
    name = f"{top}/lies"
    one = {"C": d.requests["C"]}
    order = sf.lmcache_dump(f"{top}/good", "fs", one, d.ids, 32, d.dtype, 1)
    sf.lmcache_dump(f"{top}/good-gds", "gds", one, d.ids, 32, d.dtype, 1)
    sf.lmcache_dump(f"{top}/good-layers", "fs", one, d.ids, 32, d.dtype, 3)

    def lie(what, status, words, change, good="good", options=()):
        shutil.rmtree(name, ignore_errors=True)
        shutil.copytree(f"{top}/{good}", name)
        files = sorted(os.path.join(at, f) for at, _, fs in os.walk(name) for f in fs)
        change(files)
        refused(what, status, words, "describe", "--from", "lmcache", "--heads",
                "4", *options, name)

    def rename(path, old, new):
        os.rename(path, path.replace(old, new))

    lie("one byte more", 3, ["header"], lambda f: open(f[1], "ab").write(b"x"))
    lie("one byte less", 3, ["header"], lambda f: os.truncate(f[1], 28))
    lie("another format", 3, ["differs"], lambda f: patch(
        f[1], 4, struct.pack("<6i", 6, 3, 1, 10, os.path.getsize(f[1]) // 640, 32)))
    lie("a format of later", 4, ["format 9"], lambda f: patch(f[0], 4, b"\x09"))
    lie("a type that the name denies", 3, ["float16 in the header"],
        lambda f: patch(f[0], 8, b"\x01"))
    lie("a type that another name has", 3, ["dtype 'bfloat16'", "--set dtype"],
        lambda f: rename(f[1], "@bfloat16", "@half"))
    lie("two models", 3, ["model 'org-model'", "'other'"],
        lambda f: rename(f[0], "org-model", "other"))
    lie("two tags", 3, ["tags"], lambda f: rename(f[0], ".data", "@a%b.data"))
    lie("two backends", 3, ["backend"], lambda f: rename(f[0], ".data", ".pt"))
    lie("a name without a key", 3, ["not an LMCache key"],
        lambda f: rename(f[0], "@1@0@", "@1@"))
    lie("a stranger", 3, ["not a file of LMCache"],
        lambda f: open(name + "/notes.txt", "w").close())
    lie("a link", 3, ["links are refused"],
        lambda f: (os.rename(f[0], f"{top}/away"),
                   os.symlink(f"{top}/away", f[0])))
    lie("nothing", 3, ["holds no chunk"], lambda f: [os.unlink(x) for x in f])
    lie("a layout that is denied", 3, ["KLBSHD", "LKSHD"], lambda f: None,
        options=["--layout", "LKSHD"])
    lie("heads that do not divide", 3, ["32 elements", "--heads is 3"],
        lambda f: None, options=["--heads", "3"])
    lie("layers that are denied", 3, ["--layers"], lambda f: None,
        options=["--layers", "6"])
    lie("a key of facts that is none", 2, ["colour"], lambda f: None,
        options=["--set", "colour=red"])
    lie("a layer that is missing", 3, ["layer 3, expected layer 2"],
        lambda f: os.unlink(f[2]), "good-layers")
    lie("a last layer that is missing", 3, ["layers"],
        lambda f: os.unlink(f[4]), "good-layers")
    lie("a layer twice", 3, ["twice"],
        lambda f: os.makedirs(name + "/b") or shutil.copy(f[2], name + "/b"),
        "good-layers")
    lie("a .metadata that is not the header", 3, ["does not match the beginning"],
        lambda f: patch(f[1], 100, b"x"), "good-gds")
    lie("a .metadata alone", 3, ["beside it"], lambda f: os.unlink(f[0]), "good-gds")
    lie("a GDS header cut", 3, ["header"], lambda f: (
        os.unlink(f[1]), os.truncate(f[0], 4095)), "good-gds")

    def listed(what, words, text):
        write_text(f"{top}/list", text)
        refused(what, 3, words, "describe", "--heads", "4", "--set",
                f"order={top}/list", f"{top}/good")

    listed("a chunk that is not there", ["list:2: chunk abc"], "\nC abc\n")
    listed("a request without chunks", ["has no chunk"], "C\n")
    listed("a list of nothing", ["names no request"], "# nothing\n")
    listed("a request twice", ["is listed twice"],
           f"C {order['C'][0]}\nC {order['C'][1]}\n")
    listed("a short chunk before others", ["16 tokens", "--block-size"],
           f"C {order['C'][2]} {order['C'][1]}\n")
    refused("nothing that says a shape", 3, ["--layers", "--heads", "--head-dim",
            "--content"], "describe", disk_file(top, d))
    runs("a chunk by itself is read", "describe", "--heads", "4",
         f"{top}/good/{os.listdir(top + '/good')[0]}", says="lmcache")


def disk_file(top, d):
    sf.lmcache_dump(f"{top}/bare", "disk", {"C": d.requests["C"]}, d.ids, 32, d.dtype, 1)
    return f"{top}/bare"


# ---- Mooncake -------------------------------------------------------------------

SAID = ["--heads", "4", *GEOMETRY, "--dtype", "bf16"]


def objects(d, size, make, name=lambda chunk: f"kv/{chunk}"):
    values, order = {}, {}
    for request, cells in d.requests.items():
        order[request] = []
        for chunk, first, end in sf.chunk_ids(d.ids[request], cells.shape[2], size):
            order[request].append(name(chunk))
            values[name(chunk)] = make(cells[:, :, first:end])
    return values, order


def mooncake_round_trips(top, d, want):
    def tensor(cells):
        return sf.tensor_object(cells, d.dtype)

    def token_first(cells):
        return sf.tensor_object(cells.transpose(2, 1, 0, 3, 4), d.dtype,
                                shape=[cells.shape[2], 5, 2, 32], gap=bytes(80))

    layout = ["--layout", "KLSHD"]
    cases = [("one key a file", sf.file_per_key, tensor, layout),
             ("buckets", sf.buckets, tensor, layout),
             ("records", lambda f, v: sf.offset_store(f, v, crc=False), tensor,
              layout),
             ("tensors of another order", sf.buckets, token_first,
              ["--layout", "SLKHD", "--heads", "4"]),
             ("padded buckets of bytes", lambda f, v: sf.buckets(f, v, padded=True),
              sf.raw, layout + SAID)]
    for i, (what, store, make, options) in enumerate(cases):
        values, order = objects(d, 64, make)
        store(f"{top}/m{i}", values)
        sf.write_order(f"{top}/m{i}.order", order)
        for block in [], ["--block-size", "16"]:
            same_tokens(f"Mooncake: {what}{' as blocks of 16' * bool(block)}",
                        f"{top}/m{i}",
                        options + block + ["--set", f"order={top}/m{i}.order"], want)


def mooncake_of_lmcache(top, d, want):
    values, order = objects(
        d, 64, lambda c: sf.fs_header([sf.raw(c)], 1, [d.dtype],
                                      [sf.lmcache_array(c, 1)[1]]) + sf.raw(c),
        lambda chunk: sf.lmcache_key("org/model", 1, 0, chunk, d.dtype))
    sf.buckets(f"{top}/lm", values)
    sf.write_order(f"{top}/lm.order", {r: [k.split("@")[3] for k in keys]
                                       for r, keys in order.items()})
    same_tokens("Mooncake: chunks of LMCache", f"{top}/lm",
                ["--heads", "4", "--set", f"order={top}/lm.order"], want)


def mooncake_records(top, d):
    """Checksums, and records that a checkpoint is not of."""
    one = {"C": d.requests["C"][:, :1, :32]}
    values = {f"k{i}": sf.tensor_object(one["C"] + i, d.dtype) for i in range(3)}
    sf.offset_store(f"{top}/crc", values, later={"k2"})
    r = kvtool("digest", "--layout", "KLSHD", "--by", "request", "--scope",
               "tokens", f"{top}/crc")
    sf.offset_store(f"{top}/two", {k: values[k] for k in ("k0", "k1")}, crc=False)
    s = kvtool("digest", "--layout", "KLSHD", "--by", "request", "--scope",
               "tokens", f"{top}/two")
    tap.ok(r.code == 0 and r.out.count("\n") == 2 and
           r.out.replace("/crc", "/two") == s.out,
           "Mooncake: records with checksums, without those of later", f"{r}\n{s}")
    patch(f"{top}/crc/kv_cache.data", 8192 + 4096 + 400, b"x")
    refused("a byte of a record", 3, ["key k0", "checksum"], "describe", "--layout",
            "KLSHD", f"{top}/crc")


def mooncake_ranks(top, want):
    d = dump("s260k", "paged_bs16/packed_nhd.bf16")
    values, order = {}, {}
    for rank in 0, 1:
        some, order = objects(
            d, 64, lambda c, r=rank: sf.tensor_object(
                c[:, :, :, 2 * r:2 * r + 2], d.dtype, axes=[(1, r, 2, 3)],
                whole=c.shape), lambda chunk, r=rank: f"{chunk}_tp_{r}")
        values.update(some)
    sf.buckets(f"{top}/tp", values)
    sf.write_order(f"{top}/tp.order", {r: [k[:-5] for k in keys]
                                       for r, keys in order.items()})
    said = ["--layout", "KLSHD", "--set", f"order={top}/tp.order"]
    refused("two TP ranks are a conflict", 3, ["ranks 0 and 1", "--set tp-rank="],
            "describe", *said, f"{top}/tp")
    for rank in 0, 1:
        kvtool("convert", "--no-sync", "-f", *said, "--set", f"tp-rank={rank}",
               f"{top}/tp", f"{top}/tp{rank}.h5")
    runs("Mooncake: TP shards are merged", "merge", "--no-sync", "-f", "-o",
         f"{top}/tp.h5", f"{top}/tp0.h5", f"{top}/tp1.h5")
    same_tokens("Mooncake: and are the cache", f"{top}/tp.h5", [], want)


def mooncake_stages(top, d):
    """PP shards say which layers they are."""
    cells = d.requests["C"][:, :4]
    for rank in 0, 1:
        sf.buckets(f"{top}/pp{rank}", {"c": sf.tensor_object(
            cells[:, 2 * rank:2 * rank + 2], d.dtype, axes=[(3, rank, 2, 1)],
            whole=cells.shape)})
    r = kvtool("convert", "--no-sync", "--layout", "KLSHD", f"{top}/pp1",
               f"{top}/pp1.npy")
    side = json.load(open(f"{top}/pp1.json")) if r.code == 0 else {}
    tap.equal((side.get("pp_size"), side.get("pp_rank"), side.get("layer_ids")),
              (2, 1, [2, 3]), "Mooncake: a PP shard has its layers")


def mooncake_lies(top, d):
    good = {f"k{i}": sf.tensor_object(d.requests["C"][:, :, 32 * i:32 * i + 32],
                                      d.dtype) for i in range(2)}
    name = f"{top}/lie"
    layout = ["--layout", "KLSHD"]

    def lie(what, status, words, store, options=layout):
        shutil.rmtree(name, ignore_errors=True)
        store(name)
        refused(what, status, words, "describe", "--from", "mooncake", *options, name)

    def changed(values, key, at, data):
        v = bytearray(values[key])
        v[at:at + len(data)] = data
        return {**values, key: bytes(v)}

    def cut(store, path, n):
        def make(folder):
            store(folder, good)
            path_ = f"{folder}/{path}"
            os.truncate(path_, os.path.getsize(path_) + n)
        return make

    def without(store, path):
        def make(folder):
            store(folder, good)
            os.unlink(f"{folder}/{path}")
        return make

    lie("no layout", 3, ["2 x 5 x 32 x 4 x 8", "--layout"],
        lambda f: sf.buckets(f, good), [])
    lie("a layout of other axes", 3, ["5 axes", "LBSC has"],
        lambda f: sf.buckets(f, good), ["--layout", "LBSC"])
    lie("a layout without tokens", 3, ["no axis of tokens"],
        lambda f: sf.buckets(f, good), ["--layout", "KLHD"])
    lie("a layout that makes 5 of keys and values", 3, ["expected 2"],
        lambda f: sf.buckets(f, good), ["--layout", "LKSHD"])
    lie("bytes beside tensors", 3, ["neither a tensor", "--set keys="],
        lambda f: sf.buckets(f, {**good, "other": b"0123456789"}))
    lie("tensors of two types", 3, ["differs", "--set keys="],
        lambda f: sf.buckets(f, changed(good, "k1", 8, b"\x0b")))
    lie("a tensor that lies of its size", 3, ["data size"],
        lambda f: sf.buckets(f, changed(good, "k0", 32, b"\x01")))
    lie("a version of later", 4, ["version 2"],
        lambda f: sf.buckets(f, changed(good, "k0", 4, b"\x02")))
    lie("tensors without a token", 3, ["holds a token"], lambda f: sf.buckets(f, {
        "k": sf.tensor_object(d.requests["C"][:, :, :0], d.dtype)}))
    lie("keys that begin otherwise", 3, ["begins with 'x'"],
        lambda f: sf.buckets(f, good), layout + ["--set", "keys=x"])
    lie("a shard of experts", 4, ["kind 2"], lambda f: sf.buckets(f, {
        "k": sf.tensor_object(d.requests["C"], d.dtype, axes=[(2, 0, 2, 3)])}))
    lie("TP that divides elements", 4, ["TP shard"], lambda f: sf.buckets(f, {
        "k": sf.tensor_object(d.requests["C"], d.dtype, axes=[(1, 0, 2, 4)],
                              whole=(2, 5, 80, 4, 16))}))
    lie("a bucket cut", 3, ["bytes"], cut(sf.buckets, "1000.bucket", -1))
    lie("a bucket with one byte more", 3, ["bytes"], cut(sf.buckets, "1000.bucket", 1))
    lie("a bucket's meta cut", 3, ["1000.meta"], cut(sf.buckets, "1000.meta", -1))
    lie("a bucket without meta", 3, ["no .meta"], without(sf.buckets, "1000.meta"))
    lie("a meta without bucket", 3, ["no .bucket"], without(sf.buckets, "1000.bucket"))
    lie("meta without data", 3, ["no kv_cache.data"],
        without(sf.offset_store, "kv_cache.data"))
    lie("data cut", 3, ["range of data"], cut(sf.offset_store, "kv_cache.data", -8192))
    lie("no store", 3, ["holds no value"], os.makedirs)

    def other_key(folder):
        sf.buckets(folder, good)
        patch(f"{folder}/1000.bucket", 0, b"x")
    lie("another key in the bucket", 3, ["key k0"], other_key)

    def twice(folder):
        sf.buckets(folder, good)
        shutil.copy(f"{folder}/1000.bucket", f"{folder}/1.bucket")
        shutil.copy(f"{folder}/1000.meta", f"{folder}/1.meta")
    lie("a key in two buckets", 3, ["occurs twice"], twice)
    lie("a version of the store", 4, ["version 2"], lambda f: (
        sf.write(f"{f}/kv_cache.data", bytes(4096)),
        sf.write(f"{f}/kv_cache.meta", sf.checkpoint([], 1, 4096, [], version=2))))
    sf.write(f"{top}/one.tensor", good["k0"])
    runs("a tensor object by itself is read", "describe", *layout, f"{top}/one.tensor",
         says="one.tensor: 32 tokens")


def main(top):
    d = dump("s260k", "paged_bs16/packed_nhd.bf16")
    want = whole(d.path)[0]
    lmcache_round_trips(top, d, want)
    lmcache_l2(top, d, want)
    lmcache_latent(top)
    lmcache_ranks(top, want)
    each_chunk_alone(top, d)
    lmcache_several_arrays(top)
    lmcache_several_types(top)
    lmcache_lies(top, d)
    lmcache_serdes(top, d)
    mooncake_round_trips(top, d, want)
    mooncake_of_lmcache(top, d, want)
    mooncake_records(top, d)
    mooncake_ranks(top, want)
    mooncake_stages(top, d)
    mooncake_lies(top, d)


if __name__ == "__main__":
    run(main)
