# SPDX-License-Identifier: Apache-2.0
"""
mlx_caches.py - prompt caches of mlx-lm: what kvtool reads of them is what the cache
held, and mlx-lm goes on from those that kvtool writes

Models have random weights.  The oracle of an element is the cache in memory; that of a
file which kvtool wrote are the tokens that the model says next with the cache it made.
"""
import copy
import importlib
import itertools
import os
import random
import sys

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx_lm.models import cache as caches

import dumps
from proof import Proof

NEW = 20
VERSION = tuple(int(n) for n in mlx_lm.__version__.split(".")[:2])
FORM = "mlx" if VERSION >= (0, 32) else "mlx-0.28" if VERSION >= (0, 28) else "mlx-0.26"


# ---- models ------------------------------------------------------------------

def model(kind, dtype, **numbers):
    module = importlib.import_module(f"mlx_lm.models.{kind}")
    args = module.ModelArgs.from_dict(dict(
        model_type=kind, vocab_size=97, hidden_size=64, intermediate_size=64,
        num_attention_heads=4, rms_norm_eps=1e-5, **numbers))
    made = module.Model(args)
    made.set_dtype(dtype)
    # weights as drawn make models that say one token for ever
    inner = made.parameters()["model"]
    made.update({"model": {"layers": scaled(inner["layers"], 6.0)}})
    mx.eval(made.parameters())
    return made


def scaled(tree, by):
    if isinstance(tree, dict):
        return {k: scaled(v, by) for k, v in tree.items()}
    if isinstance(tree, list):
        return [scaled(v, by) for v in tree]
    return tree * by if tree.ndim > 1 else tree


def llama(draw, dtype):
    return model("llama", dtype, num_hidden_layers=draw.choice((2, 3)),
                 num_key_value_heads=draw.choice((1, 2)), head_dim=32)


def gemma3(draw, dtype):
    return model("gemma3_text", dtype, num_hidden_layers=4, num_key_value_heads=2,
                 head_dim=16, sliding_window=draw.choice((8, 12)),
                 sliding_window_pattern=2)


def qwen3_next(_, dtype):
    return model("qwen3_next", dtype, num_hidden_layers=4, num_key_value_heads=2,
                 head_dim=16, linear_num_value_heads=4, linear_num_key_heads=2,
                 linear_key_head_dim=32, linear_value_head_dim=16,
                 linear_conv_kernel_dim=4, num_experts=4, num_experts_per_tok=2,
                 decoder_sparse_step=1, shared_expert_intermediate_size=16,
                 mlp_only_layers=[], moe_intermediate_size=16, rope_theta=1e4,
                 partial_rotary_factor=.25, max_position_embeddings=512,
                 full_attention_interval=2, norm_topk_prob=True)


class Case:
    """A model and the cache of a prompt; most of it at once, the end token by token."""

    def __init__(self, seed, make, dtype=mx.float32, tokens=37, single=5, bits=0, **made):
        draw = random.Random(seed)
        mx.random.seed(seed)
        self.model = make(draw, dtype)
        self.prompt = [draw.randrange(97) for _ in range(tokens)]
        self.bits = bits
        self.cache = caches.make_prompt_cache(self.model, **made)
        many = tokens - single
        steps = [self.prompt[:many]] + [[t] for t in self.prompt[many:]]
        for step in steps:
            out = self.model(mx.array([step]), cache=self.cache)
            mx.eval(out)
            if bits:
                self.cache = [c.to_quantized(group_size=32, bits=bits)
                              if hasattr(c, "to_quantized") and
                              type(c).__name__ == "KVCache" else c for c in self.cache]
        self.last = int(mx.argmax(out[0, -1]).item())

    def goes_on(self, cache, chunk=()):
        """The tokens that come after one, and after others at once."""
        out, token = [], self.last
        if chunk:
            logits = self.model(mx.array([[token, *chunk]]), cache=cache)
            token = int(mx.argmax(logits[0, -1]).item())
            out.append(token)
        while len(out) < NEW:
            logits = self.model(mx.array([[token]]), cache=cache)
            token = int(mx.argmax(logits[0, -1]).item())
            out.append(token)
        return out


def saved(proof, case):
    path = os.path.join(proof.folder("saved"), "prompt.safetensors")
    caches.save_prompt_cache(path, case.cache, {"model": "tiny"})
    return path


# ---- what is read ------------------------------------------------------------

def held(one):
    """(keys, values, position of the first token) of a cache of attention."""
    keys, values = one.keys, one.values
    if type(one).__name__ == "RotatingKVCache":
        keys, values = one._temporal_order(keys), one._temporal_order(values)
    n = min(one.offset, keys.shape[2])
    return [np.array(a[0, :, :n].astype(mx.float32)).transpose(1, 0, 2)
            for a in (keys, values)] + [one.offset - n]


def numbers(cells):
    """Of bits: what they are as float32."""
    if cells.dtype.itemsize == 2:
        return (cells.astype(np.uint32) << 16).view(np.float32)
    return cells.view(np.float32)


def reads(proof, on, case):
    path = saved(proof, case)
    dump = dumps.read(proof, path)
    with proof.row("what kvtool reads is what the cache held", on) as row:
        row.equal(proof.kvtool("fsck", "-q", path).code, 0, "fsck is content")
        row.equal(proof.kvtool("diff", "-q", path, path).code, 0, "it is what it is")
        for i, one in enumerate(case.cache):
            if not hasattr(one, "keys"):
                continue
            keys, values, begin = held(one)
            got = dump.layer("0", i)
            skip = got[2] - begin
            row.ok(skip >= 0, f"layer {i}: its first token", str(got[2]))
            for name, want, is_ in ("keys", keys, got[0]), ("values", values, got[1]):
                row.ok(np.array_equal(want[skip:], numbers(is_)), f"layer {i}: {name}")


def decodes(proof, on, dtype):
    """A layer of each width and group that mlx quantises, as its cache codes them."""
    draw = random.Random(proof.seed)
    mx.random.seed(proof.seed)
    made, kinds = [], list(itertools.product((2, 3, 4, 5, 6, 8), (32, 64, 128)))
    heads, tokens = draw.choice((1, 2, 3)), draw.choice((3, 21, 300))

    def numbers(n):
        far = mx.array([draw.choice((0.02, 1, 40)) for _ in range(n)])[:, None]
        return [(mx.random.normal((1, heads, n, 128)) * far + shift).astype(dtype)
                for shift in (0.3, -2)]

    for bits, group in kinds:
        plain = caches.KVCache()
        # of other widths the cache cannot be added to: it counts whole codes in a word
        single = 2 if bits in (2, 4, 8) else 0
        plain.update_and_fetch(*numbers(tokens - single))
        made.append(plain.to_quantized(group_size=group, bits=bits))
        for _ in range(single):
            made[-1].update_and_fetch(*numbers(1))
    path = os.path.join(proof.folder("saved"), "prompt.safetensors")
    caches.save_prompt_cache(path, made, {})
    with proof.row("decoded numbers are those of mx.dequantize()", on) as row:
        row.equal(proof.kvtool("fsck", "-q", path).code, 0, "fsck is content")
        dump = dumps.read(proof, path, "--decode=float32")
        for i, (one, (bits, group)) in enumerate(zip(made, kinds)):
            got = dump.layer("0", i)
            for name, codes, half in ("keys", one.keys, 0), ("values", one.values, 1):
                want = mx.dequantize(*codes, group_size=group, bits=bits)
                want = np.array(want[0, :, :one.offset].astype(mx.float32))
                row.ok(np.array_equal(want.transpose(1, 0, 2), got[half].view(np.float32)),
                       f"{bits} bits, groups of {group}: {name}")


# ---- what is written ---------------------------------------------------------

def writes(proof, on, case, chunk=(7, 3, 11)):
    path = saved(proof, case)
    folder = os.path.dirname(path)
    out, snapshot = os.path.join(folder, "out.safetensors"), os.path.join(folder, "a.h5")
    with proof.row(f"mlx-lm goes on with {NEW} identical tokens from what kvtool writes",
                   on) as row:
        for more in (), chunk:
            want = case.goes_on(copy.deepcopy(case.cache), more)
            row.ok(want != case.goes_on(caches.make_prompt_cache(case.model), more),
                   "an empty cache says other tokens", str(want))
            cases = [("as it is", path)]
            proof.must("convert", "-f", "-q", path, snapshot)
            cases.append(("by a snapshot", snapshot))
            for name, source in cases:
                proof.must("convert", "-f", "-q", "--verify", f"--format={FORM}", source,
                           out)
                got = case.goes_on(caches.load_prompt_cache(out), more)
                row.equal(got, want, f"{name}, {1 + len(more)} at once")
                row.equal(proof.kvtool("diff", "-q", path, out).code, 0,
                          f"{name}: kvtool finds them equal")
        loaded = caches.load_prompt_cache(out)
        again = os.path.join(folder, "again.safetensors")
        caches.save_prompt_cache(again, loaded, {})
        row.equal(proof.kvtool("diff", "-q", path, again).code, 0,
                  "what mlx-lm saves again is equal")


def main():
    proof = Proof("mlx-lm", mlx_lm.__version__)
    os.environ["HDF5_PLUGIN_PATH"] = os.path.join(os.path.dirname(proof.program), "plugin")
    seed, half = proof.seed, mx.bfloat16
    for on, case in [
            ("KVCache, float32", Case(seed, llama)),
            ("KVCache, bfloat16", Case(seed, llama, half)),
            ("windows and full attention, float32", Case(seed, gemma3)),
            ("windows that are not full, float32", Case(seed, gemma3, tokens=6, single=2)),
            ("windows, a prompt at once, bfloat16", Case(seed, gemma3, half, single=0))]:
        reads(proof, on, case)
        writes(proof, on, case)
    for on, case in [
            ("a ring that keeps 4 tokens, float32",
             Case(seed, llama, single=37 - 10, max_kv_size=16))]:
        writes(proof, on, case, chunk=())
    for name, dtype in ("float32", mx.float32), ("bfloat16", half), ("float16", mx.float16):
        decodes(proof, f"QuantizedKVCache, all bits and groups, {name}", dtype)
    for bits in 4, 8:
        writes(proof, f"QuantizedKVCache, {bits} bits, bfloat16",
               Case(seed, llama, half, bits=bits))
    writes(proof, "QuantizedKVCache, 4 bits, float32", Case(seed, llama, bits=4))
    if VERSION >= (0, 28):
        writes(proof, "states beside attention, float32", Case(seed, qwen3_next))
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
