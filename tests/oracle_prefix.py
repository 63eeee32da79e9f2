#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_prefix.py - kvtool prefix against tests/prefix_model.py, and against engines' files

Random prompts with every hash, seed and kind of extra that a rule has; then the names of
all files that engines wrote, from the prompts that they were given.  KVT_ENGINES is
another folder of such samples, in which more of the files are left.
"""
import glob
import os
import random
import re
import subprocess

import numpy as np

import prefix_model as model
from oracle import (DATA, ENGINES, KVTOOL, kvtool, read_json, run, tap, write_json,
                    write_text)

HERE = os.path.abspath("testdata/engines")
PROMPTS = os.path.abspath("testdata/prompts/vllm.json")
SEED = int(os.environ.get("KVT_SEED", "0"))


def names(prompts, size, *options):
    """{prompt: [name]} that kvtool prints; or the failed run."""
    write_json("prompts.json", prompts)
    r = kvtool("prefix", "--json", "--prompt=prompts.json", f"--block-size={size}",
               *options)
    if r.code:
        return r
    return {p["name"]: [b["hash"] for b in p["blocks"]] for p in r.json["prompts"]}


def agree(what, prompts, size, options, function, *args, **key):
    want = {name: list(function(*args, tokens=t, size=size, **key))
            for name, t in prompts.items()}
    tap.equal(names(prompts, size, *options), want, what)


def random_prompts(rng, most):
    return {f"p{i}": [rng.choice((rng.randrange(256), rng.randrange(1 << 16),
                                  rng.randrange(most))) for _ in range(rng.randrange(1, 90))]
            for i in range(4)}


# ---- rules ----------------------------------------------------------------------

def vllm_rules(rng):
    for engine in "vllm", "vllm-0.30", "vllm-0.28":
        for algorithm in model.DIGEST:
            seed = rng.choice(("0", "1234", "random", "x" * 300, ""))
            size = rng.choice((1, 2, 3, 4, 16, 30))
            key = {"seed": seed, "algorithm": algorithm}
            said = [f"--engine={engine}", f"--hash={algorithm}", f"--seed={seed}"]
            if algorithm.startswith("sha256") and engine != "vllm-0.28":
                del key["seed"], said[-1]
            prompts = random_prompts(rng, 1 << 40)
            agree(f"{engine}, {algorithm}, blocks of {size}", prompts, size, said,
                  model.vllm, engine, **key)
            key |= {"salt": "tenant \u00e9", "lora": ("sql", "/lora/sql" + "p" * 260),
                    "items": [("im1", 1, 7), ("im2", 7, 8), ("im3", 9, 70)]}
            said += ["--salt=tenant \u00e9", "--lora=sql" +
                     ("=" + key["lora"][1] if engine == "vllm" else "")]
            said += [f"--item={n}:{a}-{b}" for n, a, b in key["items"]]
            agree(f"the same with salt, LoRA and pictures", prompts, size, said,
                  model.vllm, engine, **key)


def other_rules(rng):
    for seed in None, "0", "7", "4294967295":
        said = [] if seed else ["--without-vllm"]
        said += [f"--seed={seed}"] if seed else []
        agree(f"lmcache, builtin, seed {seed}", random_prompts(rng, 1 << 62), 16,
              ["--engine=lmcache", *said], model.lmcache, seed=seed)
    for algorithm in model.DIGEST:
        prompts = random_prompts(rng, 1 << 31)
        said = [f"--hash={algorithm}", "--seed=vllm-none-hash"]
        for engine, f in ("lmcache", model.lmcache), ("lmcache-mp", model.lmcache_mp):
            agree(f"{engine}, {algorithm}", prompts, 8, [f"--engine={engine}", *said], f,
                  algorithm=algorithm, seed="vllm-none-hash")
    for size in 1, 64, 248, 249, 700, 1500:
        long = {"a": [rng.randrange(1 << 32) for _ in range(3 * size + 1)]}
        agree(f"lmcache-mp, blake3, chunks of {size}", long, size, ["--engine=lmcache-mp"],
              model.lmcache_mp)
    for most in 1 << 17, 1 << 40:
        for key in {}, {"salt": "s1"}, {"salt": ""}, {"extra_key": "\u00e9", "salt": "s"}:
            said = [f"--{k.replace('_', '-')}={v}" for k, v in key.items()]
            for event in False, True:
                if event and "extra_key" in key:
                    continue
                agree(f"sglang, {key}, tokens below {most}, event {event}",
                      random_prompts(rng, most), 16,
                      ["--engine=sglang" + "-event" * event, *said], model.sglang,
                      event=event, **key)


def long_block():
    tokens = {"a": [70000 + i for i in range(13000)]}
    agree("a block of 13000 tokens", tokens, 13000, ["--engine=vllm", "--seed=0"],
          model.vllm, "vllm", seed="0")
    r = names({"a": tokens["a"] * 2}, 26000, "--engine=vllm", "--seed=0")
    tap.ok(not isinstance(r, dict) and r.code == 4, "one of 26000 is refused", r)


# ---- inputs ---------------------------------------------------------------------

def inputs():
    tokens = [1, 2, 3, 4, 5, 300, 70000, 0]
    want = list(model.sglang(tokens, 4))
    np.save("a.npy", np.array(tokens, "<i4"))
    np.save("b.npy", np.array(tokens, "<i8"))
    write_text("c.txt", "\n".join(map(str, tokens)) + "\n")
    write_json("d.json", tokens)
    said = ",".join(map(str, tokens))
    for prompt in "a.npy", "b.npy", "c.txt", "d.json", said, "N=d.json", f"N={said}":
        r = kvtool("prefix", "--engine=sglang", "--block-size=4", f"--prompt={prompt}")
        tap.equal([line.split()[1] for line in r.out.splitlines()], want,
                  f"--prompt={prompt[:12]}")
        tap.ok("70000" not in r.out, "shows no token")
    with open("c.txt") as f:
        r = subprocess.run([KVTOOL, "prefix", "--engine=sglang", "--block-size=4",
                            "--prompt=-", "--show-tokens"], stdin=f, text=True,
                           stdout=subprocess.PIPE)
    tap.ok(r.stdout.split("\n")[1].endswith(" 5,300,70000,0"), "standard input", r)


# ---- samples --------------------------------------------------------------------

def vllm_prompts():
    return read_json(PROMPTS)


def vllm_samples():
    """Files, and among them those whose names follow from a prompt."""
    found = total = 0
    for tree in sorted(glob.glob(f"{ENGINES}/vllm/offload_*/root")):
        config = read_json(glob.glob(f"{tree}/*/config.json")[0])
        each = config["blocks_per_file"]
        expected = set()
        for g, group in enumerate(config["kv_cache_groups"]):
            r = kvtool("prefix", "--engine=vllm", "--seed=0", "--json", f"--group={g}",
                       f"--prompt={PROMPTS}",
                       f"--block-size={config['tokens_per_hash']}",
                       f"--blocks-per-file={each * group['tokens_per_block'] // config['tokens_per_hash']}")
            for p in r.json["prompts"]:
                expected |= {b["file"] for b in p["blocks"]}
        files = glob.glob(f"{tree}/*_r0/*/*/*.bin")
        total += len(files)
        found += sum("/".join(f.split("/")[-3:]) in expected for f in files)
    tap.ok(total and found == total, f"vLLM: {found} of {total} files")


def store_samples(kind, pattern, sizes, options):
    prompts = read_json(f"{DATA}/s260k/canonical/requests.json")["token_ids"]
    prompts["MLA"] = list(range(133))
    expected = set()
    for size in sizes:
        for row in names(prompts, size, *options).values():
            expected.update(row)
    for folder in sorted(glob.glob(f"{ENGINES}/{kind}/*/")):
        here = set()
        for path in glob.glob(f"{folder}/**", recursive=True):
            match = re.search(pattern, os.path.basename(path))
            if match:
                here.add(match.group(1))
        if here:
            tap.ok(here <= expected, f"{kind}/{os.path.basename(folder[:-1])}: "
                   f"{len(here & expected)} of {len(here)} names", here - expected)


def main(top):
    rng = random.Random(SEED)
    os.chdir(top)
    vllm_rules(rng)
    other_rules(rng)
    long_block()
    inputs()
    vllm_samples()
    # hashes of the second level were made up
    store_samples("lmcache", r"(?:@|%40)\d+(?:@|%40)\d+(?:@|%40)(-?[0-9a-f]{8,16})(?:@|%40)",
                  (64,), ("--engine=lmcache", "--without-vllm"))
    store_samples("sglang", r"^([0-9a-f]{64})_.*\.bin$", (16, 32), ("--engine=sglang",))


run(main)
