#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
llama_vllm.py - caches go from vLLM to llama.cpp and back

As llama_travel.py does it with transformers: one model of random weights, in both; a
cache of bfloat16 that vLLM filled on a CPU goes into a context of float16, and one of
llama.cpp into vLLM's blocks.
"""
import json
import os
import sys

import llama_travel as T
from llama_travel import GREEDY, PROMPT, proof

T.PYTHON = os.environ.get("VLLM_PYTHON") or os.path.join(
    proof.work, "..", "..", "env", "vllm-0.32", "bin", "python")
T.BESIDE = "llama_beside_vllm.py"


def to_llama(row, folder, path, kind, there):
    there.ask("prefill", folder, PROMPT[:-1], f"{folder}/theirs")
    dump, order = f"{folder}/theirs.rank0.safetensors", "pairs"
    if kind != "llama":
        order = "halves"
    wrong = {"pairs": "halves", "halves": "pairs"}[order]
    for cache, decode in ("f16", "float16"), ("bf16", "bfloat16"), ("f32", "float32"):
        want = T.greedy(path, None, cache)
        for like in T.template(path, folder, cache):
            form, out = like[-4:], f"{folder}/written.{like[-4:]}"
            what = f"bfloat16 to {cache}, {form}"

            def write(said):
                return proof.kvtool("convert", "-q", "-f", "--verify",
                                    f"--decode={decode}", *said, f"--format={form}",
                                    f"--template={like}", dump, out)
            for said in (["--key-order=" + order],) + (([],) if form == "ggsn" else ()):
                r = write(said)
                if row.ok(r.code == 0, f"{what}: is written, {said}", r):
                    got = T.greedy(path, out, cache)
                    row.equal(got[0], want[0], f"{what}: {GREEDY} tokens, {said}")
            write(["--key-order=" + wrong])
            far = T.away(T.greedy(path, out, cache)[1], want[1])
            near = T.away(got[1], want[1])
            row.ok(far > 0.05 and far > 3 * near, f"{what}: with keys in {wrong} logits "
                   f"are {far:.1%} away, else {near:.2%}")
    # into blocks of q8_0, of which float16 was asked to become some
    want = T.greedy(path, None, "q8_0")
    for like in T.template(path, folder, "q8_0"):
        r = proof.kvtool("convert", "-f", "--verify", "--cache-dtype=template",
                         f"--key-order={order}", f"--format={like[-4:]}",
                         f"--template={like}", dump, f"{folder}/written.bin")
        if row.ok(r.code == 0 and "values changed: bfloat16 to q8_0" in r.out,
                  f"bfloat16 to q8_0, {like[-4:]}: is written", r):
            row.equal(T.greedy(path, f"{folder}/written.bin", "q8_0")[0], want[0],
                      f"bfloat16 to q8_0, {like[-4:]}: {GREEDY} tokens")


def blocks_of(dump):
    """Layout, tokens of a block, and the type of what vLLM has."""
    group, = json.loads(proof.must("describe", "--json", dump).out)["groups"]
    return group["layout"], group["block_size"]


def to_vllm(row, folder, path, kind, there):
    """Through blocks of vLLM's size and order, into those of the request."""
    want = there.ask("fresh", folder, PROMPT, GREEDY)
    row.ok(there.ask("go_on", folder, PROMPT, None, GREEDY) != want,
           "with zeros in the cache vLLM says something else")
    there.ask("prefill", folder, PROMPT, f"{folder}/base")
    base = f"{folder}/base.rank0.safetensors"
    layout, size = blocks_of(base)
    for cache in "f16", "f32":
        e = T.Engine(path, cache)
        e.decode(PROMPT)
        state = e.save_sequence(f"{folder}/mine.ggsq", PROMPT)
        e.close()
        halves = ["--set=keys=halves"] if kind == "llama" else []
        steps = [["convert", f"--head-dim={32 if kind == 'llama' else 24}", *halves,
                  "--decode=bfloat16", state, f"{folder}/a.h5"],
                 ["reblock", f"--block-size={size}", "--stale=zero", "-o",
                  f"{folder}/b.h5", f"{folder}/a.h5"],
                 ["relayout", f"--to={layout}", "-o", f"{folder}/c.h5",
                  f"{folder}/b.h5"],
                 ["copy-blocks", "--request=0", "--verify", "-o",
                  f"{folder}/back.rank0.safetensors", f"{folder}/c.h5", base]]
        failed = [r for r in (proof.kvtool(*s[:1], "-q", "-f", *s[1:]) for s in steps)
                  if r.code]
        if row.ok(not failed, f"{cache} to bfloat16: is written", "\n".join(map(str, failed))):
            row.equal(there.ask("go_on", folder, PROMPT, f"{folder}/back", GREEDY), want,
                      f"{cache} to bfloat16: {GREEDY} tokens")


def main():
    for kind in ("llama",):
        what = "a cache goes from {} and the engine says the same tokens as after its " \
            "own prompt"
        on = f"{kind}, bfloat16 on a CPU, caches of f16, bf16, f32 and q8_0"
        if not os.path.exists(T.PYTHON):
            proof.skip(what.format("vLLM to llama.cpp"), on,
                       "there is no environment of vLLM: make it first")
            continue
        folder, there = proof.folder(f"vllm-{kind}"), T.Beside()
        version = there.ask("version")
        there.ask("make", folder, kind, proof.seed)
        path = T.write_gguf(folder, kind)
        least = T.choose_prompt(path)
        with proof.row(what.format("vLLM to llama.cpp"), on) as row:
            row.figure(f"vLLM {version}; least margin of a token {least:.2f} of the "
                       "logits' deviation")
            to_llama(row, folder, path, kind, there)
        with proof.row(what.format("llama.cpp to vLLM"), f"{kind}, caches of f16 and f32, "
                       "bfloat16 on a CPU") as row:
            row.figure(f"vLLM {version}")
            to_vllm(row, folder, path, kind, there)
        there.close()
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
