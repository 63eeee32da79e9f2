#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_vllm.py - caches that vLLM wrote, against what it was given to write

The numbers of testdata/engines/vllm/*/oracle*.npy are the keys and values that the
engine handed to its own cache write (or, hf*, what transformers computes), one array
a request: [layers, tokens, heads, 2, dim].  kvtool brings a dump into the order LBSHC,
which takes knowing the engine's layout, and numpy picks the tokens by the engine's
block tables.  KVT_ENGINES names another folder with such samples; those that it does
not have are left out.
"""
import json
import os

import numpy as np

import oracle
from oracle import kvtool, runs, tap, write_json

VLLM = f"{oracle.ENGINES}/vllm"
TYPES = {"F32": "<f4", "BF16": "<u2", "F8_E4M3": "u1"}


def groups_of(path):
    """{group id: (array as kvtool wrote it, manifest of the group)} of one file."""
    out = {}
    for name, (group, (dtype, _, raw)) in oracle.written_groups(path)[1].items():
        sizes = group["sizes"]
        shape = [sizes["layers"], sizes["num_blocks"], sizes["block_size"],
                 sizes["num_kv_heads"], -1]
        out[name] = np.frombuffer(raw, TYPES[dtype]).reshape(shape), group
    return out


def tokens_of(array, group, request, first, end):
    """[L, T, H, 2, D] of a request, by its table."""
    size = group["sizes"]["block_size"]
    ids = group.get("block_ids") or list(range(group["sizes"]["num_blocks"]))
    at = [ids.index(b) for b in group["block_table"][request]]
    t = np.arange(first, end)
    cells = array[:, np.array(at)[t // size], t % size]
    return cells.reshape(cells.shape[:3] + (2, -1))


def exact(got, want):
    return got.dtype.itemsize == want.dtype.itemsize and \
        got.tobytes() == np.ascontiguousarray(want).tobytes()


def computed(got, want):
    """transformers sums in another order."""
    return np.allclose(got, want, rtol=0, atol=1e-5)


def truncated(got, want):
    """An fp8 code is the next one towards zero, or the nearest."""
    value = (want.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    near = oracle.E4M3[got]
    step = np.maximum(np.abs(value) / 8, 2.0 ** -9)
    return bool((np.abs(near - value) <= step * 1.0001).all() and
                (np.abs(near) <= np.abs(value) * (1 + 1 / 16) + 2.0 ** -10).all())


# sample, {(request, group): (oracle, first token)}, how
SAMPLES = (
    ("vec_bs32/raw_LBHNC.npy", "oracle_%d.npy", exact),
    ("vec_bs32/right.rank0.safetensors", "oracle_%d.npy", exact),
    ("vec_bs32/raw_LBHNC.npy", "hf_%d.npy", computed),
    ("amx_bs32/raw_LBHNC.npy", "oracle_%d.npy", exact),
    ("fp8_amx_bs32/raw_LBHNC.npy", "oracle_%d.npy", truncated),
    ("old0112/raw.npy", "hf_%d.npy", computed),
    ("mid0260/raw.npy", "hf_%d.npy", computed),
)


def as_lbshc(name, tmp):
    """The dump with tokens in order; a copy, since sources may be read only."""
    out = f"{tmp}/{os.path.basename(name)}.lbshc.safetensors"
    r = runs(f"{name}: as LBSHC", "relayout", "-f", "--to=nhd", "-o", out,
             f"{VLLM}/{name}")
    return groups_of(out) if r.code == 0 else None


def check_sample(name, want, how, tmp):
    groups = as_lbshc(name, tmp)
    for i, request in enumerate(("req-0", "req-1")):
        oracle_path = f"{VLLM}/{os.path.dirname(name)}/{want % i}"
        if not groups or not os.path.exists(oracle_path):
            continue
        expected = np.load(oracle_path)
        got = tokens_of(*groups["g0"], request, 0, expected.shape[1])
        tap.ok(got.shape == expected.shape and how(got, expected),
               f"{name}: {request} is what {want % i} has")


def check_tp2(tmp):
    """Both ranks together are what one of TP 1 has, but for rounding."""
    ranks = [f"{VLLM}/tp2_vec_bs32/right.rank{r}.safetensors" for r in (0, 1)]
    both = f"{tmp}/both.safetensors"
    runs("tp2_vec_bs32: merged", "merge", "-f", "--verify", "-o", both, *ranks)
    kvtool("relayout", "-f", "--to=nhd", "-o", f"{tmp}/tp2.safetensors", both)
    groups = groups_of(f"{tmp}/tp2.safetensors")
    for i in (0, 1):
        path = f"{VLLM}/vec_bs32/oracle_{i}.npy"
        if not os.path.exists(path):
            continue
        expected = np.load(path)
        got = tokens_of(*groups["g0"], f"req-{i}", 0, expected.shape[1])
        tap.ok(exact(got[0], expected[0]) and computed(got, expected),
               f"tp2_vec_bs32: req-{i} as with TP 1, layer 0 in every bit")


def check_latents(tmp):
    """An MLA tensor [B, N, C] as it is: layers x tokens of 576 numbers each."""
    folder = f"{VLLM}/dsv2_bfloat16_bs32"
    facts = json.load(open(f"{folder}/facts.json"))
    raw = np.load(f"{folder}/raw.npy")
    tables = {r: t[0] if isinstance(t[0], list) else t
              for r, t in facts["block_tables"].items()}
    manifest = {"layout": "mla", "dtype": "bfloat16", "kind": "mla",
                "sizes": oracle.sizes(L=raw.shape[0], B=raw.shape[1], S=32, C=576),
                "block_table": tables, "num_tokens": facts["num_tokens"]}
    write_json(f"{tmp}/mla.json", manifest)
    runs("dsv2_bfloat16_bs32: a snapshot", "convert", "-f", f"--manifest={tmp}/mla.json",
         f"{folder}/raw.npy", f"{tmp}/mla.h5")
    runs("dsv2_bfloat16_bs32: block by block", "relayout", "-f", "--to=mla-cross", "-o",
         f"{tmp}/mla.safetensors", f"{tmp}/mla.h5")
    _, back = oracle.safetensors_parts(f"{tmp}/mla.safetensors")
    bits = np.ascontiguousarray(raw).view("<u2").reshape(raw.shape[:2] + (32, -1))
    tap.ok(back == np.ascontiguousarray(bits.swapaxes(0, 1)).tobytes(),
           "dsv2_bfloat16_bs32: every latent in its place")


def check_hybrid(tmp):
    """Two groups of one pool, by the scheduler's tables."""
    folder = "proto_gemma3"
    groups = as_lbshc(f"{folder}/conn.rank0.safetensors", tmp)
    for name in sorted(os.listdir(f"{VLLM}/{folder}")):
        if not name.startswith("oracle_"):
            continue
        _, request, group, first = name[:-4].split("_")
        first, expected = int(first[4:]), np.load(f"{VLLM}/{folder}/{name}")
        got = tokens_of(*groups[group], f"req-{request[3:]}", first,
                        first + expected.shape[1])
        tap.ok(exact(got, expected), f"{folder}: {name[7:-4]}")


def check_tables(tmp):
    """Tables of the scheduler are right, and those of the worker are found out."""
    folder = f"{VLLM}/gemma3_window"
    sched, changed = f"{folder}/sched", f"{folder}/sched_null_block_changed"
    runs("gemma3_window: the null block counts for nothing", "diff",
         f"{sched}.safetensors", f"{changed}.safetensors")
    digests = [kvtool("digest", "--scope=tokens", f"{p}.safetensors").out.split()[0]
               for p in (sched, changed)]
    tap.equal(digests[0], digests[1], "gemma3_window: nor in the digest")
    for name, code in (("sched", 0), ("worker", 1)):
        r = kvtool("fsck", f"{folder}/{name}.safetensors")
        tap.ok(r.code == code and ("table.repeated" in r.out) == bool(code),
               f"gemma3_window: fsck of the {name}'s tables", r)


def main(tmp):
    for name, want, how in SAMPLES:
        if os.path.exists(f"{VLLM}/{name}"):
            check_sample(name, want, how, tmp)
    if os.path.exists(f"{VLLM}/proto_gemma3"):
        check_hybrid(tmp)
    if os.path.exists(f"{VLLM}/gemma3_window"):
        check_tables(tmp)
    preempted = f"{VLLM}/preempted_contrib.safetensors"
    if os.path.exists(preempted):
        r = kvtool("fsck", preempted)
        tap.ok(r.code == 1 and "table.shared" in r.out, "a preempted request", r)
    runs("proto_gemma3: fsck finds nothing", "fsck",
         f"{VLLM}/proto_gemma3/conn.rank0.safetensors", says="clean")
    if os.path.exists(f"{VLLM}/tp2_vec_bs32"):
        check_tp2(tmp)
    if os.path.exists(f"{VLLM}/dsv2_bfloat16_bs32"):
        check_latents(tmp)


oracle.run(main)
