#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
llama_retype.py - states of float16 go into contexts with quantised caches, and back

kvtool gives a state the types of a template, and a context of these types goes on from
it as it does after the prompt itself.  With the other rotation it says something else:
that shows that it matters.
"""
import os
import random
import sys

import numpy as np

import llama_engine as E
from llama_models import VOCABULARY, Shape, make
from llama_types import ROTATES, SWITCH, proof

GREEDY, TRIES = 20, 100


class Case:
    """A model, and a prompt after which no token is a near thing in a context."""

    def __init__(self, name, dim, k, v, on, seed):
        self.name, self.dim = name, dim
        self.how = {"k": k, "v": v, "flash": True}
        self.on = on
        shape = Shape(seed)
        shape.dim, shape.layers, shape.part = dim, 2, 0.3
        self.path = os.path.join(proof.work, f"{name}{dim}.gguf")
        make(name, self.path, shape)
        words = random.Random(seed)
        engine, best = self.engine(), -1.0
        for _ in range(TRIES):
            prompt = [words.randrange(VOCABULARY) for _ in range(45)]
            near, tokens, logits = self.margin(engine, prompt)
            if near > best:
                best, self.prompt, self.want, self.logits = near, prompt, tokens, logits
        self.best = best
        engine.close()

    def engine(self, **how):
        os.environ[SWITCH] = "0" if self.on else "1"
        return E.Engine(self.path, **{**self.how, **how})

    def margin(self, engine, prompt):
        engine.remove(0, -1, -1)
        engine.decode(prompt[:-1])
        token, least, tokens, first = prompt[-1], np.inf, [], None
        for i in range(GREEDY):
            logits = engine.decode([token], len(prompt) - 1 + i)
            first = logits if first is None else first
            token = int(logits.argmax())
            tokens.append(token)
            second, most = np.sort(logits)[-2:]
            least = min(least, (most - second) / logits.std())
        return least, tokens, first

    def states(self, tokens, **how):
        engine = self.engine(**how)
        engine.decode(tokens)
        folder = proof.folder("state" if len(tokens) > 5 else "like")
        out = [engine.save_sequence(f"{folder}/{self.name}.ggsq", tokens),
               engine.save(f"{folder}/{self.name}.ggsn", tokens)]
        engine.close()
        return out

    def goes_on(self, path, **how):
        engine = self.engine(**how)
        if not engine.load(path):
            raise RuntimeError("llama.cpp does not load the file")
        tokens, logits = engine.go_on(self.prompt[-1], len(self.prompt) - 1, GREEDY)
        engine.close()
        return tokens, np.frombuffer(logits[0], np.float32)


def away(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def heads(case):
    return [] if case.name == "mla" and ROTATES else \
        ["--heads=1" if case.name == "mla" else f"--head-dim={case.dim}"]


def retyped(case, source, like, *said):
    out = os.path.join(proof.work, "retyped.bin")
    r = proof.kvtool("convert", "-f", "--verify", f"--format={like[-4:]}",
                     f"--template={like}", "--cache-dtype=template", *heads(case), *said,
                     source, out)
    return r, out


def to_quantised(row, case):
    """Of float16, for the types of the context."""
    k, v = case.how["k"], case.how["v"]
    turns = case.on and ROTATES and case.name != "mla" and case.dim % 64 == 0
    right, wrong = ("hadamard", "none") if turns else ("none", "hadamard")
    plain = case.states(case.prompt[:-1], k="f16", v="f16")
    for source, like in zip(plain, case.states(case.prompt[:3])):
        what = f"{case.name}, {case.dim}, float16 to {k}/{v}, rotated {turns}, {like[-4:]}"
        r, out = retyped(case, source, like, f"--rotation={right}")
        if not row.ok(r.code == 0 and "values changed: float16 to " in r.out,
                      f"{what}: is written", r):
            continue
        got = case.goes_on(out)
        row.equal(got[0], case.want, f"{what}: {GREEDY} tokens")
        near = away(got[1], case.logits)
        if case.dim % 64 or case.name == "mla":
            continue
        r, out = retyped(case, source, like)
        told = like.endswith("ggsn") and not ROTATES      # outputs say how old it is
        row.ok(r.code == (0 if told else 2), f"{what}: rotation is not guessed", r)
        r, out = retyped(case, source, like, f"--rotation={wrong}")
        far = away(case.goes_on(out)[1], case.logits)
        row.ok(r.code == 0 and far > .05 and far > 3 * near,
               f"{what}: rotated otherwise logits are {far:.1%} away, else {near:.2%}", r)


def to_float16(row, case):
    """The other way, into a context of float16, with and without transposed values."""
    k, v = case.how["k"], case.how["v"]
    turns = case.on and ROTATES and case.name != "mla" and case.dim % 64 == 0
    source = case.states(case.prompt[:-1])[0]
    for flash in (True, False):
        how = {"k": "f16", "v": "f16", "flash": flash}
        like = case.states(case.prompt[:3], **how)[0]
        what = f"{case.name}, {case.dim}, {k}/{v} to float16, flash {flash}"
        basis = [f"--set=rotation={'hadamard' if turns else 'none'}"]
        r, out = retyped(case, source, like, *basis)
        if row.ok(r.code == 0, f"{what}: is written", r):
            got = case.goes_on(out, **how)
            row.equal(got[0], case.want, f"{what}: {GREEDY} tokens")


CASES = [("gqa", 64, "q8_0", "q8_0"), ("gqa", 128, "q8_0", "f16"),
         ("gqa", 64, "f16", "q8_0"), ("gqa", 32, "q8_0", "q8_0"),
         ("gqa", 192, "q8_0", "q8_0"), ("gemma3", 64, "q8_0", "q8_0"),
         ("mla", 0, "q8_0", "q8_0")]


def main():
    there = "a state of float16 becomes one of a quantised cache, and the engine " \
        f"says the {GREEDY} tokens of its own prompt"
    back = "a state of a quantised cache becomes float16, and the engine says the " \
        f"{GREEDY} tokens of the quantised one"
    for name, dim, k, v in CASES:
        for on in (True, False) if dim % 64 == 0 and dim else (True,):
            case = Case(name, dim or 32, k, v, on, proof.seed)
            with proof.row(there, f"{name}, heads of {case.dim}, {k}/{v}, {SWITCH} "
                           f"{int(not on)}") as row:
                row.figure(f"least margin of a token {case.best:.2f} of the logits' "
                           "deviation")
                to_quantised(row, case)
            with proof.row(back, f"{name}, heads of {case.dim}, {k}/{v}, {SWITCH} "
                           f"{int(not on)}") as row:
                to_float16(row, case)
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
