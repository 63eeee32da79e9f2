#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_backends.py - who could have written a dump: kvtool against three releases of vLLM

testdata/vllm_layouts.tsv has where each backend puts bytes, on which device ("-":
without one) and with which connector, as tests/engines/vllm_layouts.py printed it out of
the source text of the wheels.  Dumps of zeros in every named order, and in random ones,
are asked about.
"""
import csv
import os
import random

from oracle import DATA, SHARE, kvtool, run, tap, write_json

QUESTIONS = 1200 // SHARE
NAMES = {"K:LKBHD/xSx V:LKBHDS": "rocm-paged", "K:LBKHD/xSx V:LBKHDS": "rocm-paged-page",
         "K:LBKHD/xSx V:LBKHS/xDS%x": "aiter-shuffle",
         "K:LKBHD/xSx V:LKBHS/xDS%x": "aiter-shuffle-kv-first"}
ORDERS = list(NAMES.values()) + (
    "LBSHC LBHSC BLSHC BLHSC BHLSC LHBSC LKBSHD LKBHSD LBKSHD LBKHSD LBSKHD LBHKSD BLKSHD "
    "BLKHSD BLSKHD BHLKSD BKHLSD BLHKSD KLBSHD cpu-vec cpu-vec-kv-first cpu-amx "
    "cpu-amx-kv-first cpu-neon-bf16 cpu-neon-bf16-kv-first").split()


def read():
    """{(release, configuration, device, with a connector): {backend: layouts}}"""
    out = {}
    with open(f"{DATA}/../vllm_layouts.tsv", encoding="ascii") as f:
        for row in csv.DictReader(f, delimiter="\t"):
            names = {NAMES.get(n, n) for n in row["layouts"].split(" | ")}
            for on in row["on"].split():
                key = row["release"], row["config"], on, row["connector"] == "yes"
                out.setdefault(key, {})[row["backend"]] = names
    return out


def ask(folder, key, layout):
    """What kvtool says: {backend: whether it is possible}"""
    release, config, on, connector = key
    form, sparse, head, block, cache = config.split()
    path, mla = f"{folder}/dump.bin", form == "mla"
    with open(path, "wb") as f:
        f.truncate(2 * 3 * int(block) * int(head) * (1 if mla else 8) * 2)
    sizes = {"layers": 2, "num_blocks": 3, "block_size": int(block)}
    sizes |= {"content": int(head)} if mla else {"num_kv_heads": 4, "head_dim": int(head)}
    write_json(path + ".json", {"layout": layout, "dtype": "bfloat16", "sizes": sizes})
    words = ["--with=sparse"] * (sparse == "sparse") + ["--with=connector"] * connector
    words += [f"--on={on}"] * (on != "-")
    r = kvtool("expect", "backend", "--json", f"--release={release}", *words,
               f"--cache-dtype={cache}", path)
    if r.code:
        return {"exit": r.code, "said": r.err}
    return {b["backend"]: b["possible"] for b in r.json["groups"][0]["backends"]}


def main(folder):
    facts, rng = read(), random.Random(int(os.environ.get("SEED", "31")))
    wrong, verdicts, yes = [], 0, 0
    for i in range(QUESTIONS):
        key = rng.choice(list(facts))
        orders = ["LBSC", "BLSC", "LSBC"] if key[1].startswith("mla") else \
            ORDERS + ["".join(rng.sample("LBSHKD", 6))]
        layout = rng.choice(orders)
        got = ask(folder, key, layout)
        for backend, layouts in facts[key].items():
            verdicts += 1
            yes += layout in layouts
            if got.get(backend) != (layout in layouts):
                wrong.append(f"{key} {layout} {backend}: kvtool says "
                             f"{got.get(backend, got.get('said'))}, its source has "
                             f"{sorted(layouts)}")
    tap.ok(not wrong, f"{verdicts} verdicts, {yes} of them yes, over {len(facts)} settings",
           "\n".join(wrong[:20]))
    tap.ok(yes > QUESTIONS // 12, "many are yes")


run(main)
