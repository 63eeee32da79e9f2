#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_groups.py - slice and merge of dumps of several groups, against numpy

The dumps are made up: a gated delta net, and a hybrid of full attention, sliding
window and MLA, each group with layers and tables of its own.  Every element is a
hash of its place in the model.
"""
import json
import os

import numpy as np

import oracle
from kvd1 import whole
from oracle import FULL, array_bytes, kvtool, refused, runs, tap, write_bytes, write_json
from oracle_parts import total
from oracle_slice import owned


def numbers(shape, salt):
    """Elements of 2 bytes that tell where they are."""
    n = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(salt << 32)
    n = (n ^ n >> np.uint64(7)) * np.uint64(0x9e3779b97f4a7c15)
    return (n >> np.uint64(40)).astype(np.uint16).reshape(shape)


def write_raw(path, arrays, groups, **rest):
    with open(path, "wb") as f:
        for a in arrays:
            f.write(np.ascontiguousarray(a).tobytes())
    write_json(os.path.splitext(path)[0] + ".json",
               {"file": os.path.basename(path), "groups": groups, **rest})


GDN = {"nk": 4, "nv": 8, "dk": 3, "dv": 5, "L": 2, "B": 3}


def gdn_dump(path):
    """q, k, v of a gated delta net, and its states."""
    g = GDN
    q, v = g["nk"] * g["dk"], g["nv"] * g["dv"]
    conv = numbers((g["L"], g["B"], 2 * q + v, 3), 1)
    ssm = numbers((g["L"], g["B"], g["nv"], g["dv"] * g["dk"]), 2)
    sizes = oracle.sizes(L=g["L"], B=g["B"], S=64)
    same = {"dtype": "bfloat16", "tokens_per_slot": -1}
    write_raw(path, [conv, ssm], [
        {"id": "conv", "kind": "mamba_conv", "layout": "conv-ds", **same,
         "sizes": {**sizes, "slots": 3, "num_kv_heads": 1, "content": 2 * q + v},
         "content": [{"name": "q", "start": 0, "length": q},
                     {"name": "k", "start": q, "length": q},
                     {"name": "v", "start": 2 * q, "length": v}]},
        {"id": "ssm", "kind": "mamba_ssm", "layout": "ssm", **same,
         "total_kv_heads": g["nv"],
         "sizes": {**sizes, "slots": 1, "num_kv_heads": g["nv"],
                   "content": g["dv"] * g["dk"]}}])
    return conv, ssm


def check_gdn_page(path, conv, ssm, tmp):
    """The same as the engine's pages: the digest does not care."""
    g = GDN
    q, v = g["nk"] * g["dk"], g["nv"] * g["dv"]
    flat = [np.ascontiguousarray(a).view(np.uint8).reshape(g["L"], g["B"], -1)
            for a in (conv, ssm)]
    page = np.concatenate(flat, axis=2)
    write_bytes(f"{tmp}/page.bin", page.tobytes())
    write_json(f"{tmp}/page.json",
               {"file": "page.bin", "layout": "mamba-page", "page_bytes": page.shape[2],
                "conv_layout": "DS", "sizes": oracle.sizes(L=g["L"], B=g["B"], S=64),
                "conv": {"byte_offset": 0, "dtype": "bfloat16", "shape": [2 * q + v, 3],
                         "q": [0, q], "k": [q, 2 * q], "v": [2 * q, 2 * q + v]},
                "ssm": {"byte_offset": flat[0].shape[2], "dtype": "bfloat16",
                        "shape": [g["nv"], g["dv"], g["dk"]]}})
    tap.ok(whole(f"{tmp}/page.bin") == whole(path), "gated delta net: pages",
           kvtool("digest", f"{tmp}/page.bin"))
    for rank in range(2):
        for name in ("page", "gdn"):
            kvtool("slice", "-f", "--tp-size", 2, "--tp-rank", rank, "-o",
                   f"{tmp}/of.{name}.h5", f"{tmp}/{name}.bin")
        tap.ok(whole(f"{tmp}/of.page.h5") == whole(f"{tmp}/of.gdn.h5") and
               whole(f"{tmp}/of.page.h5")[1], f"gated delta net: rank {rank} of pages")


def check_gdn(tmp):
    path = f"{tmp}/gdn.bin"
    conv, ssm = gdn_dump(path)
    check_gdn_page(path, conv, ssm, tmp)
    g = GDN
    q, v = g["nk"] * g["dk"], g["nv"] * g["dv"]
    for size in (1, 2, 4):
        ranks = []
        for rank in range(size):
            ranks.append(f"{tmp}/gdn{rank}.h5")
            r = kvtool("slice", "-f", "--verify", "--tp-size", size, "--tp-rank", rank,
                       "-o", ranks[-1], path)
            a, b = q * rank // size, q * (rank + 1) // size
            c, d = v * rank // size, v * (rank + 1) // size
            want = np.concatenate([conv[:, :, a:b], conv[:, :, q + a:q + b],
                                   conv[:, :, 2 * q + c:2 * q + d]], axis=2)
            kvtool("slice", "-f", *(f"--component={n}" for n in "qkv"), "-o",
                   f"{tmp}/gc.npy", ranks[-1])
            kvtool("slice", "-f", "--component=ssm", "-o", f"{tmp}/gs.npy", ranks[-1])
            h0, h1 = g["nv"] * rank // size, g["nv"] * (rank + 1) // size
            tap.ok(r.code == 0 and array_bytes(f"{tmp}/gc.npy") == want.tobytes() and
                   array_bytes(f"{tmp}/gs.npy") == ssm[:, :, h0:h1].tobytes(),
                   f"gated delta net: rank {rank} of {size}", r)
        r = kvtool("merge", "-f", "--verify", "-o", f"{tmp}/gdn.all.h5", *ranks)
        tap.ok(r.code == 0 and whole(f"{tmp}/gdn.all.h5") == whole(path),
               f"gated delta net: {size} ranks merged", r)
    refused("4 heads of q on 8 ranks", 3, "4 heads of q", "slice", "--tp-size", 8,
            "--tp-rank", 0, "-o", f"{tmp}/no.h5", path)
    refused("a number of heads that is not", 3, "show 4 groups", "slice", "--tp-size", 2,
            "--tp-rank", 0, "--mamba-groups", 2, "-o", f"{tmp}/no.h5", path)
    kvtool("slice", "-f", *(f"--component={n}" for n in "qkv"), "-o", f"{tmp}/gc.h5",
           path)
    refused("q, k and v without states", 3, "--mamba-groups", "slice", "--tp-size", 2,
            "--tp-rank", 0, "-o", f"{tmp}/no.h5", f"{tmp}/gc.h5")
    got = []
    for s in range(4):
        out = f"{tmp}/gt{s}.h5"
        r = kvtool("slice", "-f", "--for-transfer", "--src-tp", 4, "--src-rank", s,
                   "--dst-tp", 2, "--dst-rank", 1, "-o", out, path)
        if os.path.exists(out):
            for c in json.loads(kvtool("describe", "--json", out).out)["groups"][0][
                    "components"]:
                got.append((s, c["name"], c["global_start"], c["length"]))
    tap.equal(got, [(s, n, at + w * s // 4, w // 4) for s in (2, 3)
                    for n, at, w in (("q", 0, q), ("k", q, q), ("v", 2 * q, v))],
              "gated delta net: what ranks 2 and 3 of 4 give to 1 of 2")


def hybrid_dump(path):
    """Full attention, a sliding window and an MLA group, with tables of their own."""
    full = numbers((2, 6, 4, 4, 2, 3), 3)		# L B S H K D
    window = numbers((3, 6, 4, 4, 2, 3), 4)
    latent = numbers((1, 6, 4, 5), 5)
    sizes = {"num_blocks": 6, "block_size": 4}
    write_raw(path, [full, window, latent], [
        {"id": "full", "kind": "full_attention", "layout": "nhd", "dtype": "bfloat16",
         "sizes": {**sizes, "layers": 2, "num_kv_heads": 4, "head_dim": 3},
         "layer_ids": [0, 2], "block_table": {"A": [1, 3, 2], "B": [4, 5]}},
        {"id": "window", "kind": "sliding_window", "layout": "nhd", "window": 4,
         "dtype": "bfloat16", "layer_ids": [1, 3, 5],
         "sizes": {**sizes, "layers": 3, "num_kv_heads": 4, "head_dim": 3},
         "block_table": {"A": [0, 5, 4], "B": [1, 2]}},
        {"id": "latent", "kind": "mla", "layout": "mla", "dtype": "bfloat16",
         "sizes": {**sizes, "layers": 1, "content": 5}, "layer_ids": [4],
         "block_table": {"A": [5, 0, 1], "B": [3, 2]}}],
        num_tokens={"A": 11, "B": 6}, null_block=0)
    return full, window, latent


def group_bytes(path, group, tmp, layer):
    """Of one group, found by a layer that only it has; None if it is not there."""
    r = kvtool("slice", "-f", "--layers", layer, "-o", f"{tmp}/one.npy", path)
    return array_bytes(f"{tmp}/one.npy") if r.code == 0 else None


def check_hybrid(tmp):
    path = f"{tmp}/hybrid.bin"
    full, window, latent = hybrid_dump(path)
    r = kvtool("slice", "-f", "--verify", "--tp-size", 8, "--tp-rank", 5, "-o",
               f"{tmp}/hy.h5", path)
    tap.ok(r.code == 0 and
           (group_bytes(f"{tmp}/hy.h5", "full", tmp, 2),
            group_bytes(f"{tmp}/hy.h5", "window", tmp, 3),
            group_bytes(f"{tmp}/hy.h5", "latent", tmp, 4)) ==
           (full[1:, :, :, 2:3].tobytes(), window[1:2, :, :, 2:3].tobytes(),
            latent.tobytes()), "hybrid: rank 5 of 8 in all groups", r)
    ranks = oracle.ranks_of(path, 8, f"{tmp}/hy%d.h5")
    r = kvtool("merge", "-f", "--verify", "-o", f"{tmp}/hy.all.h5", *ranks)
    tap.ok(r.code == 0 and whole(f"{tmp}/hy.all.h5") == whole(path),
           "hybrid: 8 ranks merged", r)
    # tokens 4 to 8 of A: one block of each group
    r = kvtool("slice", "-f", "--verify", "--request", "A", "--tokens", "4:8", "-o",
               f"{tmp}/hy.h5", path)
    tap.ok(r.code == 0 and
           (group_bytes(f"{tmp}/hy.h5", "full", tmp, 0),
            group_bytes(f"{tmp}/hy.h5", "window", tmp, 1),
            group_bytes(f"{tmp}/hy.h5", "latent", tmp, 4)) ==
           (full[:1, 3:4].tobytes(), window[:1, 5:6].tobytes(),
            latent[:, :1].tobytes()), "hybrid: tokens 4 to 8 in all groups", r)
    # the first block of A's window is null: that group has lost these tokens
    r = kvtool("slice", "-f", "--request", "A", "--tokens", "0:6", "-o",
               f"{tmp}/hy.h5", path)
    said = kvtool("describe", "--json", f"{tmp}/hy.h5").json
    tap.equal([g["id"] for g in said["groups"]], ["full", "latent"],
              "hybrid: tokens that the window no longer has")
    parts = []
    for name in "kv":
        parts.append(f"{tmp}/hy.{name}.h5")
        runs(f"hybrid: {name} of both groups that have it", "slice", "-f", "--verify",
             "--component", name, "-o", parts[-1], path)
    kvtool("slice", "-f", "--layers", "0:4,5", "-o", f"{tmp}/hy.h5", path)
    tap.equal(total(parts, "blocks"), whole(f"{tmp}/hy.h5")[1],
              "hybrid: keys and values add up to the groups that have them")
    # MLA comes from one rank, heads from another
    for s, ids in ((0, ["full", "window", "latent"]), (1, ["full", "window"])):
        r = kvtool("slice", "-f", "--for-transfer", "--src-tp", 4, "--src-rank", s,
                   "--dst-tp", 2, "--dst-rank", 0, "-o", f"{tmp}/hy.h5", path)
        said = kvtool("describe", "--json", f"{tmp}/hy.h5").json
        tap.equal([g["id"] for g in said["groups"]], ids,
                  f"hybrid: groups of which rank {s} of 4 gives to 0 of 2")


def check_head_counts(tmp):
    """Ranks of any number of heads hold what they own, and merge to the whole."""
    L, B, S, D = 2, 3, 2, 2
    for heads in (1, 2, 3, 4, 6, 8, 16) if FULL else (3, 6):
        cells = numbers((L, B, S, heads, 2, D), 7)
        path = f"{tmp}/n{heads}.bin"
        write_raw(path, [cells],
                  [{"id": "g0", "kind": "full_attention", "layout": "nhd",
                    "dtype": "bfloat16",
                    "sizes": oracle.sizes(L=L, B=B, S=S, H=heads, D=D)}])
        for size in range(1, 33 if FULL else 13):
            ranks = [f"{tmp}/rank{rank}.npy" for rank in range(size)]
            if heads % size and size % heads:
                refused(f"{heads} heads on {size} ranks are refused", 3, f"{heads} heads",
                        "slice", "-f", "--tp-size", size, "--tp-rank", 0, "-o", ranks[0],
                        path)
                continue
            wrong = []
            for rank, out in enumerate(ranks):
                kvtool("slice", "-f", "--no-sync", "--tp-size", size, "--tp-rank",
                       rank, "-o", out, path)
                a, b = owned(heads, size, rank)
                if array_bytes(out) != cells[:, :, :, a:b].tobytes():
                    wrong.append(rank)
            r = kvtool("merge", "-f", "--no-sync", "-o", f"{tmp}/n.npy", *ranks)
            tap.ok(not wrong and r.code == 0 and
                   array_bytes(f"{tmp}/n.npy") == cells.tobytes(),
                   f"{heads} heads on {size} ranks, and merged", f"{wrong} {r}")


def check_some_moved(tmp):
    """Where a range cuts tiles, only the boxes that have these are decoded."""
    L, B = 2, 400
    cells = numbers((L, B, 16, 2, 2, 64), 8)
    write_raw(f"{tmp}/big.bin", [cells],
              [{"id": "g0", "kind": "full_attention", "layout": "nhd",
                "dtype": "bfloat16", "sizes": oracle.sizes(L=L, B=B, S=16, H=2, D=64)}])
    kvtool("convert", "-f", "--no-sync", "--tile", "4K", f"{tmp}/big.bin",
           f"{tmp}/big.h5")		# tiles of 2 blocks
    for a, b, moved in ((0, 400, "all"), (0, 397, "some"), (2, 393, "some"),
                        (0, 398, "all"), (3, 399, "no")):
        name = f"tiles of blocks {a}:{b}"
        r = runs(f"{name}: exit 0", "slice", "-f", "--json", "--verify", "--no-sync",
                 "--blocks", f"{a}:{b}", "--mem-limit", "6M", "-o", f"{tmp}/moved.h5",
                 f"{tmp}/big.h5")
        if r.code:
            continue
        g = r.json["groups"][0]
        n = g["tiles_moved"]
        tap.equal("all" if n == g["tiles"] else "some" if n else "no", moved,
                  f"{name}: {moved} move, in {g['boxes']} boxes")
        kvtool("convert", "-f", "--no-sync", f"{tmp}/moved.h5", f"{tmp}/moved.npy")
        r = kvtool("describe", "--verify", f"{tmp}/moved.h5")
        tap.ok(r.code == 0 and array_bytes(f"{tmp}/moved.npy") ==
               cells[:, a:b].tobytes(), f"{name}: the bytes, and checksums of cells", r)


if __name__ == "__main__":
    oracle.run(check_gdn, check_hybrid, check_head_counts, check_some_moved)
