#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
capture_module.py - what contrib/kvtool_capture.py writes of arrays in memory is
the cache that they are, whatever their axes and strides
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "contrib"))

import numpy as np

import kvtool_capture
import oracle
from kvd1 import whole
from oracle import kvtool, runs, tap, write_json


def told(dump):
    return dict(block_tables=dump.tables, num_tokens=dump.ntokens, dtype="bfloat16",
                null_block=dump.side["null_block"], model=dump.side["model"])


def layers(dump, memory, axes):
    """
    One array a layer: in memory its axes are in one order, and they are indexed
    in another one, as engines do it.
    """
    out = {}
    for name, cells in zip(dump.side["layer_names"], dump.cells.swapaxes(0, 1)):
        held = np.ascontiguousarray(cells.transpose(["KBSHD".index(a) for a in memory]))
        out[name] = held.transpose([memory.index(a) for a in axes])
    return out


def check_strides(tmp):
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    want = whole(dump.path)
    for memory, axes in (("BSHKD", "BSHKD"), ("BSHKD", "BHSKD"), ("BHSKD", "BHSKD"),
                         ("BHSKD", "BSHKD"), ("KBSHD", "KBHSD"), ("BKHSD", "KBSHD"),
                         ("HBSKD", "BSHKD")):
        path = f"{tmp}/{memory}.{axes}.safetensors"
        kvtool_capture.capture(path, layers(dump, memory, axes), axes.replace("S", "N"),
                               **told(dump))
        tap.equal(whole(path), want, f"memory {memory}, indexed as {axes}")
        runs(f"the layout is L{memory}", "describe", f"--expect-layout=L{memory}", path)


def check_pairs(tmp):
    """Keys and values in arrays of their own."""
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    for memory in "BSKHD", "KBHSD":
        all_of = layers(dump, memory, "KBSHD")
        pairs = {n: (a[0], a[1]) for n, a in all_of.items()}
        path = f"{tmp}/pair.safetensors"
        for blocks in "all", "used":
            kvtool_capture.capture(path, pairs, "BSHD", blocks=blocks, **told(dump))
            tap.equal(whole(path)[0], whole(dump.path)[0], f"pairs out of {memory}, {blocks}")
    refused(tmp, "keys and values of two shapes", {"a": (pairs[n][0], pairs[n][1][:3])
                                                   for n in list(pairs)[:1]}, "BSHD",
            dtype="bfloat16")


def check_content(tmp):
    dump = oracle.dump("gqa64/paged_bs16/packed_nhd.bf16")
    nhd = layers(dump, "BSHKD", "BHSKD")
    flat = {n: np.lib.stride_tricks.as_strided(
        a, a.shape[:3] + (2 * a.shape[4],), a.strides[:3] + (2,)) for n, a in nhd.items()}
    path = f"{tmp}/c.safetensors"
    kvtool_capture.capture(path, flat, "BHNC", **told(dump))
    tap.equal(whole(path), whole(dump.path), "keys and values as one content")
    dump = oracle.dump("mla144/paged_bs16/mla_lbsc.bf16")
    latent = {n: c[0, :, :, None, 0].swapaxes(1, 2)
              for n, c in zip(dump.side["layer_names"], dump.cells.swapaxes(0, 1))}
    kvtool_capture.capture(path, latent, "BHNC", latent=True, **told(dump))
    tap.equal(whole(path), whole(dump.path), "latent content with one head")


def check_used(tmp):
    """Only the blocks of tables: the tokens are the same, the file is smaller."""
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    path = f"{tmp}/used.safetensors"
    more = told(dump)
    more["block_tables"] = {"C": dump.tables["C"]}
    more["num_tokens"] = {"C": dump.ntokens["C"]}
    kvtool_capture.capture(path, layers(dump, "BSHKD", "BSHKD"), "BSHKD", blocks="used",
                           **more)
    kvtool("slice", "-f", "--request=C", "-o", f"{tmp}/C.h5", dump.path)
    tap.equal(whole(path), whole(f"{tmp}/C.h5"), "the blocks of one request")
    tap.ok(os.path.getsize(path) < os.path.getsize(dump.path) / 5, "and no others")


def check_groups(tmp):
    """Layers of two shapes are two groups with tables of their own."""
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    all_of = layers(dump, "BSHKD", "BSHKD")
    names = list(all_of)
    for n in names[3:]:
        all_of[n] = np.ascontiguousarray(all_of[n][:30, :, :2])
    more = told(dump)
    more["block_tables"] = {"C": [dump.tables["C"], [1, 2, 3, 4, 5]]}
    more["num_tokens"] = {"C": dump.ntokens["C"]}
    path = f"{tmp}/two.safetensors"
    kvtool_capture.capture(path, all_of, "BSHKD", **more)
    r = kvtool("convert", "-f", "--verify", path, f"{tmp}/again.safetensors")
    want = np.stack([all_of[n] for n in names[3:]])
    tap.ok(r.code == 0 and oracle.safetensors_tensors(f"{tmp}/again.safetensors")["g1"][2]
           == want.tobytes(), "two groups", r)
    runs("fsck finds nothing", "fsck", path)


def check_hybrid(tmp):
    """Groups of an engine that overlay one pool, with the scheduler's tables."""
    pool = np.random.default_rng(4).integers(1, 0x7f00, (2, 9, 4, 2, 2, 3)).astype("<u2")
    caches = {f"layers.{i}": pool[i // 2] for i in range(4)}
    groups = [{"layers": ["layers.0", "layers.2"], "kind": "sliding_window", "window": 5},
              {"layers": ["layers.1", "layers.3"], "kind": "full_attention"}]
    path = f"{tmp}/hybrid.safetensors"
    for blocks in "all", "used":
        kvtool_capture.capture(path, caches, "BSHKD", blocks=blocks, dtype="bfloat16",
                               groups=groups, null_block=0, num_tokens={"A": 14},
                               block_tables={"A": [[0, 0, 3, 4], [5, 6, 7, 8]]})
        r = kvtool("fsck", "--json", path)
        found = {f["name"] for f in r.json["files"][0]["findings"]}
        tap.ok(r.code == 0 and found <= {"null.nonzero"},
               f"hybrid, blocks {blocks}: nothing stale, shared or repeated", r)
        said = kvtool("describe", "--json", path).json["groups"]
        tap.equal([(g["kind"], g["window"], g["pool"], g["layers"]) for g in said],
                  [("sliding_window", 5, "pool0", 2), ("full_attention", None, "pool0", 2)],
                  f"hybrid, blocks {blocks}: its groups")
    kvtool_capture.capture(path, caches, "BSHKD", dtype="bfloat16", groups=groups,
                           null_block=0, num_tokens={"A": 14},
                           block_tables={"A": [[0, 0, 3, 4], [5, 6, 7, 3]]})
    r = kvtool("fsck", path)
    tap.ok(r.code == 1 and "table.shared" in r.out, "hybrid: a block of both groups", r)
    refused(tmp, "a layer in no group", caches, "BSHKD", dtype="bfloat16",
            groups=groups[:1])


def check_ranks(tmp):
    """Each rank captures its heads; merged they are the whole."""
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    paths = []
    for rank in range(2):
        mine = {n: a[:, :, 2 * rank:2 * rank + 2] for n, a in
                layers(dump, "BSHKD", "BSHKD").items()}
        paths.append(f"{tmp}/rank{rank}.safetensors")
        kvtool_capture.capture(paths[-1], mine, "BSHKD", total_kv_heads=4,
                               parallel={"tp_size": 2, "tp_rank": rank}, **told(dump))
    r = kvtool("merge", "-f", "-o", f"{tmp}/all.h5", *paths)
    tap.ok(r.code == 0 and whole(f"{tmp}/all.h5") == whole(dump.path),
           "two ranks merge into the whole", r)


def check_proof(tmp):
    """A manifest of one's own with file_proof() is proven; of other data it is not."""
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    side = {k: v for k, v in dump.side.items() if k != "file"}
    for name in "own.npy", "own.bin":
        path = f"{tmp}/{name}"
        beside = path[:-4] + ".json" if name == "own.npy" else path + ".json"
        array = np.load(dump.path)
        for data in array, array[::-1]:
            np.save(path, data) if name == "own.npy" else data.tofile(path)
            if data is array:
                write_json(beside, {**side, **kvtool_capture.file_proof(path)})
            r = kvtool("describe", "--json", path)
            if data is array:
                tap.ok(r.code == 0 and r.json["manifest"]["proof"] == "samples",
                       f"file_proof() of {name}", r)
            else:
                tap.ok(r.code == 3 and "sample" in r.err, f"{name} of other data", r)


def check_torch(tmp):
    """Where torch is, and there is time for it: KVT_FULL=1."""
    if not oracle.FULL:
        return
    import torch
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    tensors = {n: torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
               for n, a in layers(dump, "BSHKD", "BSHKD").items()}
    strided = {n: t.permute(0, 2, 1, 3, 4) for n, t in tensors.items()}
    more = told(dump)
    del more["dtype"]
    for blocks in "all", "used":
        path = f"{tmp}/torch.safetensors"
        kvtool_capture.capture(path, strided, "BHNKD", blocks=blocks, **more)
        tap.equal(whole(path)[0], whole(dump.path)[0], f"torch tensors, blocks {blocks}")


def check_queries(tmp):
    """The last ones that were heard, of each request at its position."""
    rng = np.random.default_rng(5)
    every = {(l, r): rng.normal(size=(n, 4, 6)).astype(np.float32)
             for l in (1, 3) for r, n in (("A", 9), ("B", 3))}
    heard = kvtool_capture.Queries(tokens=4)
    for (layer, request), rows in every.items():
        for at in range(0, len(rows), 2):
            heard.hear(layer, request, 20 + at, rows[at:at + 2], 0.25, 30.0,
                       np.arange(4, dtype=np.float32) + layer)
    path = os.path.join(tmp, "q.safetensors")
    heard.write(path, requests={"A": "a", "B": "b"})
    manifest, data = kvtool_capture.read(path)
    group, sinks = manifest["groups"]
    tap.equal((manifest["first_token"], manifest["num_tokens"], group["layer_ids"]),
              ({"a": 25, "b": 20}, {"a": 4, "b": 3}, [1, 3]), "queries: where they are")
    want = np.stack([np.concatenate([every[l, "A"][-4:], every[l, "B"]]) for l in (1, 3)])
    tap.ok(data["g0"].tobytes() == want.tobytes(), "queries: those that were heard")
    tap.equal((manifest["note"], sinks["id"], data["sinks"].view(np.float32).tolist()),
              ("attention scale=0.25,cap=30.0", "sinks", [1, 2, 3, 4, 3, 4, 5, 6]),
              "queries: what the layers do")
    runs("queries: fsck is content", "fsck", path)
    heard.hear(3, "A", 29, every[3, "A"][:1], 0.5)
    try:
        heard.write(path)
        tap.ok(False, "queries: two scales are refused")
    except ValueError as e:
        tap.ok("several scales" in str(e), "queries: two scales are refused", e)


def refused(tmp, what, *args, **more):
    path = f"{tmp}/no.safetensors"
    try:
        kvtool_capture.capture(path, *args, **more)
        said = "nothing"
    except ValueError as e:
        said = str(e)
    left = [n for n in os.listdir(tmp) if n.startswith("no.")]
    tap.ok(said != "nothing" and not left, f"refused: {what}", f"{said} {left}")


def check_refusals(tmp):
    a = {"layers.0": np.zeros((2, 4, 1, 6), np.float16)}
    refused(tmp, "too few axes", a, "BSH")
    refused(tmp, "an axis twice", a, "BSSC")
    refused(tmp, "a letter that is none", a, "BSHX")
    refused(tmp, "content and its parts", a, "BKDC")
    refused(tmp, "no blocks", a, "SHKD")
    refused(tmp, "content of odd size", {"layers.0": a["layers.0"][..., :5]}, "BSHC")
    refused(tmp, "no layers", {}, "BSHC")
    refused(tmp, "an element type", {"layers.0": a["layers.0"].astype(complex)}, "BSHC")
    refused(tmp, "tables for other groups", a, "BSHC", block_tables={"A": [[0], [1]]})


oracle.run(check_strides, check_pairs, check_content, check_used, check_groups,
           check_hybrid, check_ranks, check_proof, check_torch, check_queries,
           check_refusals)
