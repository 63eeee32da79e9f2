# SPDX-License-Identifier: Apache-2.0
"""
transformers_fp8.py - a model goes on from a cache that kvtool wrote as fp8 as it does from
the fp8 cache that it computed itself

    model, DynamicCache -> file -> convert --cache-dtype -> Fp8QuantizedLayer -> 20 tokens
    model, QuantizedCache("fp8") ---------------------------------------------> 20 tokens

The first update() of the fp8 cache hands keys and values on as they came, and its scale is
that of this update for ever: what both caches hold of a prompt was computed alike, and bits
of codes, scales and logits are compared.  Nothing here says how numbers are rounded: the
oracle is what update() and the model make of them.
"""
import copy
import itertools
import os
import sys

import numpy as np
import torch
import transformers
from transformers import cache_utils

import dumps
from proof import Proof
from transformers_caches import Case, bits, kvtool_capture, llama, mqa

TOKENS, NEW = 163, 20
WHAT = "a cache that kvtool wrote as fp8 gives the tokens of the engine's own fp8 cache"
HALVES = ("keys", "values")


class Prompt(Case):
    """Read in one step, as an fp8 cache has to be for its scale to know all of it."""

    def filled(self):
        self.tokens = TOKENS
        self.prompt = torch.randint(3, 211, (self.rows, TOKENS))
        cache = self.empty()
        self.next = self.read(cache)
        return cache

    def read(self, cache):
        with torch.no_grad():
            out = self.model(self.prompt, past_key_values=cache, use_cache=True)
        return out.logits[:, -1:].argmax(-1)

    def fp8(self):
        return cache_utils.QuantizedCache("fp8", self.model.config)

    def goes_on(self, cache):
        """Logits [NEW, rows, vocabulary] and the greedy tokens [rows, NEW] behind them."""
        cache, token, logits, ids = copy.deepcopy(cache), self.next, [], []
        for _ in range(NEW):
            with torch.no_grad():
                out = self.model(token, past_key_values=cache, use_cache=True).logits
            token = out[:, -1:].argmax(-1)
            logits.append(out[:, -1])
            ids.append(token)
        return torch.stack(logits), torch.cat(ids, 1).tolist()

    def generates(self, cache):
        """The same tokens by the library's own loop."""
        ids = self.model.generate(
            torch.cat([self.prompt, self.next], 1), past_key_values=copy.deepcopy(cache),
            attention_mask=torch.ones(self.rows, TOKENS + 1, dtype=torch.long),
            do_sample=False, max_new_tokens=NEW)
        return ids[:, TOKENS + 1:].tolist()


# ---- from kvtool into the class ---------------------------------------------------

def told(case):
    """Of several rows the file does not say that they are not padded."""
    return [f"--set=tokens={','.join([str(TOKENS)] * case.rows)}"] * (case.rows > 1)


def rows_of(proof, path, case):
    """[(keys, values)] of each layer: bytes of [rows, heads, T, codes and scale]."""
    dump = dumps.read(proof, path)
    each = [[dump.layer(str(r), l)[:2] for r in range(case.rows)]
            for l in range(case.shape.layers)]
    return [tuple(np.stack([row[half] for row in layer]).swapaxes(1, 2)
                  for half in (0, 1)) for layer in each]


def parts(rows):
    """Codes, and the one scale that all of these rows have, else None."""
    codes = np.ascontiguousarray(rows[..., :-4])
    scales = np.ascontiguousarray(rows[..., -4:]).view("<f4")
    one = torch.tensor(scales.flat[0]) if (scales == scales.flat[0]).all() else None
    return torch.from_numpy(codes).view(torch.float8_e4m3fn), one


def put(case, pairs):
    """The engine's class with these codes and scales in it, and nothing else."""
    cache = case.fp8()
    for layer, (keys, values) in zip(cache.layers, pairs):
        layer.device = torch.device("cpu")
        layer.keys, layer.values = (torch.tensor([], dtype=case.dtype) for _ in HALVES)
        layer.dtype, layer.is_initialized = case.dtype, True
        layer.cumulative_length = TOKENS
        layer._quantized_keys, layer._quantized_values = keys, values
    return cache


def transcoded(proof, case, source, scale, out):
    of = str(case.dtype).removeprefix("torch.")
    proof.must("convert", "-f", "-q", "--no-sync", "--verify",
               f"--cache-dtype=transformers-fp8/{of}", f"--scale={scale}",
               *(told(case) if source.endswith(".pt") else []), source, out)
    return [tuple(map(parts, pair)) for pair in rows_of(proof, out, case)]


# ---- rows -------------------------------------------------------------------------

def held(row, case, own, pairs, name):
    """Codes and scales are those that the engine's class has, bit by bit."""
    for l, layer in enumerate(own.layers):
        for half, got in zip(HALVES, pairs[l]):
            codes, scale = getattr(layer, f"_quantized_{half}")
            row.ok(got[1] is not None and torch.equal(got[1], scale),
                   f"{name}: layer {l}, scale of {half}", f"{got[1]}, {scale}")
            row.ok(torch.equal(got[0].view(torch.uint8),
                               codes.contiguous().view(torch.uint8)),
                   f"{name}: layer {l}, codes of {half}")


def same_bits(a, b):
    return np.array_equal(bits(a), bits(b))


def saved(proof, case, folder):
    """The cache in two files: the object, and what contrib's capture makes of it."""
    files = [os.path.join(folder, f) for f in ("cache.pt", "captured.safetensors")]
    torch.save(case.cache, files[0])
    rows = range(case.rows)
    kvtool_capture.capture(
        files[1], {f"layers.{l}": pair for l, pair in enumerate(case.pairs())},
        axes="BHSD", block_tables={str(r): [r] for r in rows},
        num_tokens={str(r): TOKENS for r in rows})
    return files


def faults(pairs):
    """Scales that went wrong on the way, the codes as they were."""
    def each(change):
        return [change(l, *pair) for l, pair in enumerate(pairs)]

    def times(by, halves, layer=None):
        return each(lambda l, *pair: tuple(
            (codes, scale * by if i in halves and layer in (None, l) else scale)
            for i, (codes, scale) in enumerate(pair)))
    yield "all scales 1", each(lambda _, k, v: ((k[0], k[1] / k[1]), (v[0], v[1] / v[1])))
    yield "keys twice as large", times(2, (0,))
    yield "values half as large", times(0.5, (1,))
    yield "values 5% larger in layer 0", times(1.05, (1,), 0)
    yield "scales of keys and values exchanged", each(
        lambda _, k, v: ((k[0], v[1]), (v[0], k[1])))
    yield "scales of the next layer", each(lambda l, k, v: tuple(
        (half[0], pairs[(l + 1) % len(pairs)][i][1]) for i, half in enumerate((k, v))))


def goes_on(proof, on, *kind):
    with proof.row(WHAT, on) as row:
        case, folder = Prompt(proof.seed, *kind), proof.folder("fp8")
        own = case.fp8()
        row.ok(torch.equal(case.read(own), case.next), "the prompt is read alike")
        want = case.goes_on(own)
        row.ok(want[0].isfinite().all(), "logits are finite")
        row.ok(all(len(set(ids)) > 4 for ids in want[1]), "the tokens are not all alike",
               str(want[1]))
        plain = case.goes_on(case.cache)
        row.ok(not same_bits(plain[0], want[0]), "logits are not the unquantised cache's")
        row.equal(case.generates(own), want[1], "generate() writes the tokens of the steps")
        theirs = os.path.join(folder, "own.pt")
        torch.save(own, theirs)
        for source in saved(proof, case, folder):
            name, out = os.path.basename(source), os.path.join(folder, "fp8.safetensors")
            pairs = transcoded(proof, case, source, "auto", out)
            held(row, case, own, pairs, name)
            row.equal(proof.kvtool("diff", "-q", *told(case), theirs, out).code, 0,
                      f"{name}: diff finds it equal to the engine's own, saved")
            cache = put(case, pairs)
            logits, ids = case.goes_on(cache)
            row.ok(same_bits(logits, want[0]), f"{name}: logits of {NEW} steps, bit by bit")
            row.equal(ids, want[1], f"{name}: {NEW} tokens of each row")
            row.equal(case.generates(cache), want[1], f"{name}: {NEW} tokens by generate()")
        others = itertools.chain(faults(pairs), [
            (f"written with --scale={s}", transcoded(proof, case, source, s, out))
            for s in ("1", "0.5,0.25")])
        all_, changed = 0, 0
        for fault, wrong in others:
            logits, ids = case.goes_on(put(case, wrong))
            row.ok(not same_bits(logits[0], want[0][0]), f"seen: {fault}")
            all_, changed = all_ + 1, changed + (ids != want[1])
        row.ok(changed > 0, "some of them change the tokens")
        row.equal(proof.kvtool("diff", "-q", *told(case), theirs, out).code, 1,
                  "diff sees the last one, too")
        row.figure(f"{changed} of {all_} wrong scales change the tokens, {all_} the logits")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    proof = Proof("transformers", transformers.__version__)
    half, short = torch.bfloat16, torch.float16
    for on, *kind in [("GQA, bfloat16", llama, half),
                      ("GQA, bfloat16, two rows", llama, half, False, 2),
                      ("MQA, bfloat16", mqa, half), ("GQA, float16", llama, short),
                      ("GQA, float32", llama, torch.float32)]:
        goes_on(proof, on, *kind)
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
