#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
llama_made.py - states that kvtool writes by the GGUF of a model, without a template

Of every architecture of gguf_headers.py llama.cpp makes a model of the keys alone and
writes a state; kvtool reads it, and writes it again by the same GGUF.  Of models with
weights the engine loads what kvtool wrote and goes on, with the same logits.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import gguf_headers as G
import llama_cpp
import llama_gguf
from llama_engine import Engine
from llama_models import MODELS, VOCABULARY, Shape, make
from proof import Proof
from plain_files import read_bytes

proof = Proof("llama.cpp", f"in llama-cpp-python {llama_cpp.__version__}")
OLD = llama_cpp.__version__ == "0.3.16"
GREEDY = 20
CACHES = [("f16", "f16", True), ("f16", "f16", False), ("f32", "f32", False),
          ("bf16", "bf16", True), ("q8_0", "q8_0", True), ("q8_0", "f16", False),
          ("q4_0", "q4_0", True)]


def read(path):
    return read_bytes(path)


def context_of(form, k, v, flash, streams=1):
    said = [f"type-k={k}", f"type-v={v}", f"flash-attn={'on' if flash else 'off'}"]
    said += [f"sequences={streams}"] if streams > 1 else ["unified"]
    if OLD:
        said.append(f"version={9 if form == 'ggsn' else 2}")
    return ",".join(said)


# ---- of keys alone -----------------------------------------------------------------

def heads_of(model):
    """What is to be said of the heads of a state, which no file has."""
    k = model.keys
    if "attention.key_length_mla" in k:
        return ["--heads=1"]
    width = k.get("attention.key_length")
    if not width and isinstance(k.get("attention.head_count"), int):
        heads = k["attention.head_count"]
        width = k["embedding_length"] // heads if heads else None
    return [] if not width else [f"--head-dim={width}"]


def architectures():
    names = [n for n in G.MODELS if n not in llama_gguf.NOT_MADE]
    contexts = [G.Context(300, 1), G.Context(300, 1, "bf16", "f32"),
                G.Context(500, 2, flash=False)]
    with proof.row("a state of kvtool's by a GGUF is byte for byte that of the engine",
                   f"{len(names)} architectures, of keys alone") as row:
        written = 0
        for name in names:
            model = G.MODELS[name]
            model = model._replace(keys={**model.keys,
                                         "tokenizer.ggml.model": "no_vocab"})
            path = os.path.join(proof.work, name.replace(" ", "-").replace(",", "") +
                                ".gguf")
            G.write(path, model)
            for c in contexts:
                if llama_gguf.fits(model, c):
                    one(row, name, model, path, c)
                    written += 1
        row.figure(f"{written} states")


def one(row, name, model, path, c):
    state = os.path.join(proof.work, "engine.ggsn")
    dump, out = (os.path.join(proof.work, f) for f in ("made.h5", "made.ggsn"))
    what = f"{name}, {c.k}, {c.v}, flash {c.flash}, {c.sequences} sequences"
    llama_gguf.allocated(proof, path, c, state)
    # what is stored is whatever memory held: NaN is no hindrance
    r = proof.kvtool("convert", "-q", "-f", *heads_of(model), state, dump)
    if r.code:
        r = proof.kvtool("convert", "-q", "-f", f"--model={path}", state, dump)
    if not row.ok(r.code == 0, f"{what}: is read", r):
        return
    said = context_of("ggsn", c.k, c.v, c.flash, c.sequences)
    r = proof.kvtool("convert", "-q", "-f", "--format=ggsn", f"--context={said}",
                     f"--model={path}", dump, out)
    if row.ok(r.code == 0, f"{what}: is written", r):
        row.ok(read(out) == read(state), f"{what}: byte for byte")


# ---- the engine goes on ----------------------------------------------------------------

def options_of(name, shape):
    return ["--heads=1"] if name == "mla" else [] if name == "mamba" else \
        [f"--head-dim={shape.dim}"]


def goes_on():
    shape, words = Shape(proof.seed), random.Random(proof.seed + 5)
    for name, (_, _, called) in MODELS.items():
        if OLD and name in ("mla", "qwen2vl"):
            continue                    # refused: see formats/llama/made.c
        path = os.path.join(proof.work, f"{name}.gguf")
        make(name, path, shape)
        with proof.row("the engine loads a state that kvtool wrote by a GGUF and goes on "
                       f"with the same {GREEDY} tokens and logits", called) as row:
            tokens = [words.randrange(VOCABULARY) for _ in range(shape.length)]
            types = {"mamba": CACHES[:1], "mla": [c for c in CACHES if c[0] == c[1]]}
            for k, v, flash in types.get(name, CACHES):
                for form in "ggsq", "ggsn":
                    load(row, name, path, shape, tokens, (k, v, flash), form)


def load(row, name, path, shape, tokens, cache, form):
    k, v, flash = cache
    own, dump, out = (os.path.join(proof.work, f"one.{e}") for e in (form, "h5", "made"))
    what = f"{k}, {v}, flash {flash}, {form}"
    e = Engine(path, k, v, flash)
    e.decode(tokens)
    (e.save_sequence if form == "ggsq" else e.save)(own, tokens)
    e.close()
    memory = ["--set=memory=recurrent"] if OLD and name == "mamba" else []
    proof.must("convert", "-q", "-f", *options_of(name, shape), *memory, own, dump)
    r = proof.kvtool("convert", "-q", "-f", "--verify", f"--format={form}", dump, out,
                     f"--model={path}",
                     f"--context={context_of(form, k, v, flash)}")
    if not row.ok(r.code == 0, f"{what}: is written", r):
        return
    if form == "ggsq" or not OLD:       # older ones keep logits in a ggsn
        row.ok(read(out) == read(own), f"{what}: as the engine writes it")
    said = []
    for state in own, out:
        e = Engine(path, k, v, flash)
        row.ok(e.load(state), f"{what}: is loaded")
        said.append(e.go_on(5, shape.length, GREEDY))
        e.close()
    row.equal(said[1][0], said[0][0], f"{what}: {GREEDY} tokens")
    row.ok(said[1] == said[0], f"{what}: their logits, bit by bit")


def main():
    if hasattr(llama_cpp.llama_cpp._lib, "llama_model_init_from_user"):
        architectures()
    goes_on()
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
