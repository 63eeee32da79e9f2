#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_attention.py - what kvtool diff --attention says, against a softmax in float64

500 random cases if FULL: kinds, grouped heads, latents, windows, caps, sinks, layouts,
types, keys and values apart, several requests; with queries of a dump, and with keys that
stand in for them; with little memory, so that the work is cut, and threads.
"""
import random

from attention_model import Case
from oracle import FULL, kvtool, run, tap


def check(seed, work):
    rng = random.Random(seed)
    case = Case(rng, work)
    options = case.write() + [f"--threads={rng.choice((1, 3))}", "--json"]
    if rng.random() < 0.3:
        options.append("--mem-limit=4M")
    r = kvtool("diff", "--no-diagnosis", "--top=0", *options)
    name = f"seed {seed}: {case.kind} {case.types} {'proxy ' * case.proxy}" \
           f"{'apart ' * case.apart}{'sinks ' * case.sinks}"
    if r.code not in (0, 1):
        tap.ok(False, name, r)
        return 0
    said = r.json["attention"]
    if all(not any(case.held_of(q)[p] for p in at) for q, at in case.at.items()):
        tap.ok(False, name, "no query is left")
        return 0
    why, most = case.wrong(said)
    tap.ok(not why, name, why)
    return most


def main(work):
    most = 0
    for seed in range(500 if FULL else 24):
        most = max(most, check(seed, work))
    tap.ok(most < 1e-5, f"the largest error is {most:.2g}")


run(main)
