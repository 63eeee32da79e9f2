#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
llama_travel.py - caches go from transformers to llama.cpp and back

A model of random weights is made in transformers and written as GGUF, with the rows of
queries and keys put in pairs where llama.cpp has them so, as its converter does.  A cache
of one engine is given to the other by kvtool; the other has to say the same tokens as
after its own prompt.  Keys in the wrong order give other logits: that shows that it
matters.
"""
import json
import os
import random
import subprocess
import sys

import gguf
import numpy as np

import llama_cpp
from llama_engine import Engine
from proof import Proof
from plain_files import read_json

HERE = os.path.dirname(os.path.abspath(__file__))
proof = Proof("llama.cpp", f"in llama-cpp-python {llama_cpp.__version__}")
# of the environments that suite.py makes, or another one
PYTHON = os.environ.get("TRANSFORMERS_PYTHON") or os.path.join(
    proof.work, "..", "..", "env", "transformers", "bin", "python")
BESIDE = "llama_beside.py"
GREEDY = 20
PROMPT = []
TRIES = 100                             # prompts

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
    "model.norm.weight": "output_norm.weight",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


class Beside:
    """Another engine, in a process and an environment of its own"""

    def __init__(self):
        self.process = subprocess.Popen(
            [PYTHON, os.path.join(HERE, BESIDE)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{words[0]}: {BESIDE} failed, see the log")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def in_pairs(w, heads):
    """Rows of each head: the first half and the second one become pairs."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(
        1, 2).reshape(w.shape)


def write_gguf(folder, kind):
    c = read_json(f"{folder}/config.json")
    heads = {"attn_q": c["num_attention_heads"], "attn_k": c["num_key_value_heads"]}
    path = f"{folder}/model.gguf"
    w = gguf.GGUFWriter(path, kind)
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(1024)
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_vocab_size(c["vocab_size"])
    w.add_file_type(0)
    w.add_tokenizer_model("no_vocab")
    w.add_head_count(heads["attn_q"])
    w.add_head_count_kv(heads["attn_k"])
    if kind == "llama":
        w.add_key_length(c["head_dim"])
        w.add_value_length(c["head_dim"])
        w.add_rope_dimension_count(c["head_dim"])
    weights = np.load(f"{folder}/weights.npz")
    for name in weights.files:
        a, new = weights[name], NAMES.get(name)
        if not new:
            layer, rest = name[len("model.layers."):].split(".", 1)
            module, ending = rest.rsplit(".", 1)
            new = f"blk.{layer}.{LAYER_NAMES[module]}.{ending}"
            if kind == "llama" and LAYER_NAMES[module] in heads:
                a = in_pairs(a, heads[LAYER_NAMES[module]])
        w.add_tensor(new, np.ascontiguousarray(a))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def margin(e, prompt):
    """
    How far the token that comes next is before the others, where that is least: a cache
    of bfloat16 changes logits by a percent, and must change no token.
    """
    least, token = np.inf, prompt[-1]
    e.decode(prompt[:-1])
    for i in range(GREEDY):
        logits = e.decode([token], len(prompt) - 1 + i)
        token = int(logits.argmax())
        second, first = np.sort(logits)[-2:]
        least = min(least, (first - second) / logits.std())
    e.remove(0, -1, -1)
    return least


def choose_prompt(path):
    r = random.Random(proof.seed)
    e = Engine(path, "f32")
    prompts = [[r.randrange(32) for _ in range(40)] for _ in range(TRIES)]
    margins = [margin(e, p) for p in prompts]
    e.close()
    PROMPT[:] = prompts[int(np.argmax(margins))]
    return max(margins)


def greedy(path, state, kind):
    """After a state, or after the prompt itself."""
    e = Engine(path, kind, flash=kind == "q8_0")
    if state is None:
        e.decode(PROMPT[:-1])
    elif not e.load(state):
        raise RuntimeError("llama.cpp does not load the file")
    tokens, logits = e.go_on(PROMPT[-1], len(PROMPT) - 1, GREEDY)
    e.close()
    return tokens, np.frombuffer(logits[0], np.float32)


def away(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def template(path, folder, kind):
    e = Engine(path, kind, flash=kind == "q8_0")
    e.decode([1, 2, 3])
    out = (e.save(f"{folder}/like.ggsn", []), e.save_sequence(f"{folder}/like.ggsq", []))
    e.close()
    return out


def to_llama(row, folder, path, kind, dtype, cache, dump):
    """From transformers, in the type that the cache of llama.cpp has."""
    want = greedy(path, None, cache)
    decode = [f"--decode={'float16' if cache == 'f16' else 'float32'}"]
    for like in template(path, folder, cache):
        form, out = like[-4:], f"{folder}/written.{like[-4:]}"
        order = "pairs" if kind == "llama" else "halves"
        wrong = "halves" if kind == "llama" else "pairs"
        what = f"{dtype} to {cache}, {form}"
        for said in (["--key-order=" + order],) + (([],) if form == "ggsn" else ()):
            r = proof.kvtool("convert", "-q", "-f", "--verify", *decode, *said,
                             "--from=transformers", f"--format={form}",
                             f"--template={like}", dump, out)
            if row.ok(r.code == 0, f"{what}: is written, {said}", r):
                got = greedy(path, out, cache)
                row.equal(got[0], want[0], f"{what}: {GREEDY} tokens, {said}")
        proof.must("convert", "-q", "-f", *decode, f"--key-order={wrong}",
                   "--from=transformers", f"--format={form}", f"--template={like}", dump,
                   out)
        far = away(greedy(path, out, cache)[1], want[1])
        near = away(got[1], want[1])
        row.ok(far > 0.05 and far > 3 * near, f"{what}: with keys in {wrong} logits are "
               f"{far:.1%} away, else {near:.2%}")
        if form == "ggsq":
            r = proof.kvtool("convert", "-f", *decode, "--from=transformers",
                             f"--format={form}", f"--template={like}", dump, out)
            row.ok(r.code == 4, f"{what}: refused if nothing says the order", r)


def to_transformers(row, folder, path, kind, dtype, cache, there, want):
    """The same tokens as from a cache of its own, of that type."""
    e = Engine(path, cache)
    e.decode(PROMPT[:-1])
    state = e.save_sequence(f"{folder}/mine.ggsq", PROMPT[:-1])
    e.close()
    dim = 32 if kind == "llama" else 24
    out, what = f"{folder}/written.safetensors", f"{cache} to {dtype}"
    halves = ["--set=keys=halves"] if kind == "llama" else ["--as-is"]
    r = proof.kvtool("convert", "-q", "-f", f"--head-dim={dim}", *halves,
                     f"--decode={dtype}", "--format=transformers", state, out)
    if row.ok(r.code == 0, f"{what}: is written", r):
        row.equal(there.ask("go_on", folder, dtype, out, PROMPT[-1], GREEDY), want,
                  f"{what}: {GREEDY} tokens")
    r = proof.kvtool("convert", "-f", f"--head-dim={dim}", f"--decode={dtype}",
                     "--format=transformers", state, out)
    row.ok(r.code == 4, f"{what}: refused if nothing says the order", r)


def main():
    for kind in "llama", "qwen2":
        what = "a cache goes from {} and the engine says the same tokens as after its " \
            "own prompt"
        on = f"{kind}, float32 and bfloat16, caches of f16 and f32"
        if not os.path.exists(PYTHON):
            proof.skip(what.format("transformers to llama.cpp"), on,
                       "there is no environment of transformers: make it first")
            continue
        folder, there = proof.folder(kind), Beside()
        version = there.ask("version")
        there.ask("make", folder, kind, proof.seed)
        path = write_gguf(folder, kind)
        least = choose_prompt(path)
        dumps = {d: f"{folder}/theirs.{d}.safetensors" for d in ("float32", "bfloat16")}
        said = {d: there.ask("prefill", folder, d, PROMPT, dumps[d]) for d in dumps}
        with proof.row(what.format("transformers to llama.cpp"), on) as row:
            row.figure(f"transformers {version}; least margin of a token {least:.2f} of "
                       "the logits' deviation")
            for dtype, dump in dumps.items():
                for cache in "f16", "f32":
                    to_llama(row, folder, path, kind, dtype, cache, dump)
        with proof.row(what.format("llama.cpp to transformers"), on) as row:
            row.figure(f"transformers {version}")
            for dtype, want in said.items():
                for cache in "f16", "f32":
                    to_transformers(row, folder, path, kind, dtype, cache, there, want)
        there.close()
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
