#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_prompts.py - --prompt: which files of a tree or store are whose, and which are not there

Trees of vLLM, SGLang and LMCache named by tests/prefix_model.py, of prompts that begin
alike, with files missing, files of nobody, groups with windows and files of several blocks.
What kvtool says of each prompt, and the tables of its requests, are worked out here once
more; that a block of a name has its bytes is what the other oracles prove.
"""
import os
import random
import shutil

import numpy as np

import prefix_model as model
import store_files as sf
import store_trees as st
from oracle import (DATA, kvtool, read_bytes, read_json, refused, run, tap, write_json,
                    write_text)

SEED = int(os.environ.get("KVT_SEED", "0"))


def random_prompts(rng, size):
    """Some share blocks, one may have none that is full."""
    stem = [rng.randrange(32000) for _ in range(size * 5)]
    out = {}
    for name in "ABC":
        own = [rng.randrange(32000) for _ in range(rng.randrange(1, size * 7))]
        out[name] = stem[:size * rng.randrange(6)] + own
    return out


def runs(flags):
    """[begin, end] of each run of what is False."""
    out = []
    for i, f in enumerate(flags):
        if f:
            continue
        if out and out[-1]["end"] == i:
            out[-1]["end"] += 1
        else:
            out.append({"begin": i, "end": i + 1})
    return out


def length(there, each, windows):
    """Tokens before which each group has what it needs."""
    step = int(np.lcm.reduce(list(each.values())))
    most = min(len(there[g]) * each[g] for g in there)
    for end in range(most - most % step, 0, -step):
        if all(all(there[g][needed(end, each[g], windows.get(g)):end // each[g]])
               for g in there):
            return end
    return 0


def needed(end, each, window):
    return 0 if not window or end < window else (end - window + 1) // each


def check(what, folder, said, prompts, names, kept, each, windows, per_file=1):
    """names[g][prompt]: of its files; kept[g]: those that are there."""
    write_json("prompts.json", prompts)
    r = kvtool("describe", "--json", "--block-tables", "--prompt=prompts.json", *said, folder)
    if r.code:
        return tap.ok(False, what, r)
    got = r.json
    want_prompts, want_tables, ntokens = [], {}, {}
    for p, tokens in prompts.items():
        there = {g: [n in kept[g] for n in names[g][p]] for g in names}
        end = ntokens[p] = length(there, each, windows)
        for g in names:
            want_prompts.append({"files": len(there[g]), "present": sum(there[g]),
                                 "reached": end // each[g], "missing": runs(there[g]),
                                 "tokens": len(tokens), "request": p})
            first = needed(end, each[g], windows.get(g))
            want_tables[p, g] = [n if per_file == 1 else f"{n}:{i}"
                                 for n in names[g][p][first:end // each[g]]
                                 for i in range(per_file)]
    for q in got["prompts"]:
        q.pop("group"), q.pop("tokens_per_file")
    tables = {(q["id"], g): [got["groups"][i]["block_names"][b]
                             for b in q["block_tables"][i] or []]
              for q in got["requests"] for i, g in enumerate(names)}
    tap.ok(got["prompts"] == want_prompts and tables == want_tables and
           {q["id"]: q["tokens"] for q in got["requests"]} == ntokens, what,
           f"{got['prompts']}\n{want_prompts}\n{tables}\n{want_tables}\n{said} {folder}")
    check_findings(what, folder, said, want_prompts)
    return got


def check_findings(what, folder, said, prompts):
    """fsck has one for each prompt and group of which something is missing."""
    want = {"prompt.unreachable": sum(q["present"] > q["reached"] for q in prompts),
            "prompt.missing": sum(q["present"] < q["files"] and q["present"] <= q["reached"]
                                  for q in prompts)}
    r = kvtool("fsck", "--json", "--prompt=prompts.json", *said, folder)
    counts = r.json["files"][0]["counts"] if r.out else {}
    tap.equal({k: counts.get(k, 0) for k in want}, want, f"{what}: findings")


def some_of(rng, names):
    """Few are missing, most, or none."""
    share = rng.choice((0, 0.1, 0.3, 0.9))
    return {n for n in names if rng.random() >= share}


# ---- vLLM -------------------------------------------------------------------------

def vllm_tree(rng, number):
    size, per_file, ngroups = rng.choice((2, 4, 8)), rng.choice((1, 1, 2, 3)), rng.choice((1, 2))
    each = size * per_file
    unit = rng.choice([u for u in (1, 2, 4, 8) if size % u == 0])
    seed, algorithm = rng.choice((("0", "sha256"), (None, "sha256_cbor"), ("77", "xxhash"),
                                  ("x", "xxhash_cbor"), ("0", "sha256_cbor")))
    key = rng.choice(({}, {"salt": "s1"}, {"lora": ("a", "/p/a")}))
    engine = rng.choice(("vllm", "vllm-0.30"))
    prompts = random_prompts(rng, each)
    chains = {p: list(model.vllm(engine, t, unit, algorithm, seed, **key))
              for p, t in prompts.items()}
    step = each // unit
    ids = [f"g{g}" for g in range(ngroups)]
    names = {g: {p: c[step - 1::step] for p, c in chains.items()} for g in ids}
    config = st.renamed(st.offload_config(
        [(size, [f"model.layers.{2 * l + g}.attn" for l in range(2)]) for g in range(ngroups)],
        blocks_per_file=per_file))
    config["tokens_per_hash"] = unit
    root, kept = f"tree{number}", {}
    for g, name in enumerate(ids):
        every = sorted({n for row in names[name].values() for n in row})
        if not every:
            return
        # one block proves how names were made
        kept[name] = some_of(rng, every) | {every[0]}
        kept[name] |= {"0" * 63 + "1"} if number % 2 else set()
        files = sorted(kept[name])
        cells = np.zeros((2, 2, len(files) * per_file, size, 2, 4), np.uint16)
        st.block_name = lambda at: files[at // per_file]
        st.write_rows(root, config, cells, "LBSHKD", group=g)
    windows = {"g0": rng.choice((1, size, each + 1, 3 * each))} if ngroups == 2 else {}
    said = ["--layout=NHD", "--heads=2", "--head-dim=4", "--set=tp-size=1"]
    said[0] = "--layout=LBSHKD"
    said += [f"--set=window=g0:{windows['g0']}"] if windows else []
    said += [f"--set=seed={seed}"] if seed not in (None, "0") else []
    said += ["--set=salt=s1"] if "salt" in key else []
    said += ["--set=lora=a=/p/a" if engine == "vllm" else "--set=lora=a"] if "lora" in key else []
    check(f"vLLM {number}: {engine}, {algorithm}, hashes of {unit}, blocks of {size}, "
          f"{per_file} a file, {ngroups} groups, {key}", root, said, prompts, names, kept,
          {g: each for g in ids}, windows, per_file)


# ---- SGLang -----------------------------------------------------------------------

def sglang_tree(rng, number):
    size = rng.choice((1, 4, 16))
    key = rng.choice(({}, {"salt": "t"}, {"extra_key": "k"}))
    prompts = random_prompts(rng, size)
    names = {"g0": {p: list(model.sglang(t, size, **key)) for p, t in prompts.items()}}
    every = sorted({n for r in names["g0"].values() for n in r})
    if not every:
        return
    kept = some_of(rng, every) | {every[0]}
    files = sorted(kept)
    st.block_name = lambda b: files[b]
    st.write_hicache(f"pages{number}", np.zeros((2, 3, len(files), size, 2, 4), np.uint16),
                     "hicache-page-first", "org/m")
    check(f"SGLang {number}: pages of {size}, {key}", f"pages{number}",
          ["--layout=hicache-page-first", "--dtype=bf16", f"--block-size={size}", "--heads=2",
           "--head-dim=4", *(f"--set={k.replace('_', '-')}={v}" for k, v in key.items())],
          prompts, names, {"g0": kept}, {"g0": size}, {})


# ---- LMCache ----------------------------------------------------------------------

def lmcache_tree(rng, number):
    size, second = 8, rng.random() < 0.5
    seed = rng.choice((None, "0", "41"))
    prompts = random_prompts(rng, size)
    function = model.lmcache_mp if second else model.lmcache
    key = {} if second else {"seed": seed}
    chains = {p: list(function(t, size, **key)) for p, t in prompts.items()}
    every = {n: (p, i) for p, row in chains.items() for i, n in enumerate(row)}
    # a full one says how long they are
    full = [n for n, (p, i) in every.items() if (i + 1) * size <= len(prompts[p])]
    kept = some_of(rng, sorted(every)) | set(full[:1])
    if not full:
        return
    for name in kept:
        p, i = every[name]
        part = np.zeros((2, 3, min(size, len(prompts[p]) - i * size), 2, 4), np.uint16)
        if second:
            sf.chunk_ids = lambda *_: [(name, 0, part.shape[2])]
            sf.l2_dump(f"chunks{number}", {p: part}, {p: None}, size, "org/m", salt="s")
        else:
            sf.chunk_ids = lambda *_: [(name, 0, part.shape[2])]
            sf.lmcache_dump(f"chunks{number}", "fs", {p: part}, {p: None}, size, "bfloat16", 1)
    write_json("prompts.json", prompts)
    said = ["--heads=2"] + (["--head-dim=4", "--layers=3", "--dtype=bf16"] if second else [])
    said += [f"--set=seed={seed}"] if seed == "41" and not second else []
    r = kvtool("describe", "--json", "--prompt=prompts.json", *said, f"chunks{number}")
    if r.code:
        return tap.ok(False, f"LMCache {number}", r)
    got = r.json
    want, tokens = [], {}
    for p, row in chains.items():
        there = [n in kept for n in row]
        reached = (there + [False]).index(False)
        tokens[p] = min(reached * size, len(prompts[p]))
        want.append({"request": p, "group": None, "tokens": len(prompts[p]),
                     "tokens_per_file": size, "files": len(row), "present": sum(there),
                     "reached": reached, "missing": runs(there)})
    tap.ok(got["prompts"] == want and tokens == {q["id"]: q["tokens"] for q in got["requests"]},
           f"LMCache {number}: second level {second}, seed {seed}",
           f"{got['prompts']}\n{want}\n{tokens} {got['requests']}")


# ---- samples, and what is refused ---------------------------------------------------

def by_token():
    """Chunks of an engine, and a capture of the same requests."""
    tokens = read_json(f"{DATA}/s260k/canonical/requests.json")["token_ids"]["C"]
    write_text("c.txt", "\n".join(map(str, tokens)))
    capture = f"{DATA}/s260k/paged_bs16/packed_nhd.bf16.npy"
    chunks = os.path.abspath(f"{DATA}/../engines/lmcache/fs_meta")
    r = kvtool("diff", "--heads=4", "--common", "--prompt=C=c.txt", chunks, ":", capture)
    tap.ok(r.code == 0 and "80 tokens" in r.out, "diff of a store and a capture by token", r)
    r = kvtool("slice", "--head-dim=8", "--prompt=C=c.txt", "--request=C", "--tokens=10:70",
               "--no-sync", chunks, "part.npy")
    again = kvtool("diff", "--common", "part.npy", ":", capture)
    tap.ok(r.code == 0 and again.code == 0 and "60 tokens" in again.out,
           "slice of a request that a prompt made", f"{r}\n{again}")
    for name in "part.npy", "part.json":
        tap.ok(b"token_ids" not in read_bytes(name), f"{name} has no token ids")
    return chunks, tokens


def refusals(chunks, tokens):
    said = ("describe", "--heads=4", chunks)
    few = ",".join(map(str, tokens[:64]))
    refused("no block of the prompt", 3, ["--set=hash=NAME"], *said, "--prompt=1,2,3")
    refused("other names for it", 3, ["no block is called"], *said, f"--prompt={few}",
            "--set=seed=3")
    refused("a prompt twice", 3, ["two prompts are called A"], *said, "--prompt=A=1", "--prompt=A=2")
    refused("an order, too", 2, ["--set=order"], *said, "--prompt=1", "--set=order=x")
    refused("no such hash", 2, ["--engine=list"], *said, "--prompt=1", "--set=hash=md5")
    refused("names of another engine", 2, ["names no files of this kind"], *said, "--prompt=1",
            "--set=engine=sglang")
    refused("no token", 3, ["has no token"], *said, "--prompt=empty.json")
    refused("tokens that are none", 3, ["line 2 is not a whole number"], *said, "--prompt=bad.txt")
    refused("a dump without such names", 2, ["--prompt"], "describe", "--prompt=1,2",
            f"{DATA}/s260k/paged_bs16/packed_nhd.bf16.npy")
    r = kvtool("describe", "--heads=4", "--prompt=" + few + ",9", "--set=seed=0",
               "--set=hash=builtin", chunks)
    tap.ok(r.code == 0 and "0 to 1 missing" in r.out,
           "all of it was said, so nothing of the prompt is there", r)


def main(top):
    rng = random.Random(SEED)
    os.chdir(top)
    write_text("empty.json", "[]")
    write_text("bad.txt", "1\nx\n")
    for number in range(14):
        vllm_tree(rng, number)
        sglang_tree(rng, number)
        lmcache_tree(rng, number)
        for name in os.listdir():
            if os.path.isdir(name):
                shutil.rmtree(name)
    refusals(*by_token())


run(main)
