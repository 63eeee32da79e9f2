# SPDX-License-Identifier: Apache-2.0
"""
transformers_attention.py - what kvtool diff --attention says of two caches, beside torch
and beside what a model of transformers does with them

Models have random weights.  Queries are heard by contrib/kvtool_capture.py while a model
reads its last tokens.  "Predicted" is kvtool's; "measured" are outputs of the model's own
attention: of each layer by itself with the other cache, and of the model that runs with
it from the first layer on, where layers pass on what they got wrong.
"""
import contextlib
import os
import random
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "contrib")]

import numpy as np
import torch
import transformers
from transformers import cache_utils
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import kvtool_capture
from attention_model import Case
from proof import Proof

CASES = 500
TOKENS, NEW = 90, 12


def attention(proof, *args):
    """What kvtool says; that the caches differ is no failure."""
    r = proof.kvtool("diff", "--no-diagnosis", "--top=0", "--json", *args)
    if r.code not in (0, 1):
        raise RuntimeError(f"kvtool failed\n{r}")
    return r.json["attention"]


# ---- torch's own attention --------------------------------------------------------

def sdpa(q, k, v, scale, cap, sink):
    """Scores, weights and the output of a query, in float32; a sink is a key of value 0."""
    q, k, v = (torch.from_numpy(x).float() for x in (q, k, v))
    s = (k @ q) * scale
    s = cap * torch.tanh(s / cap) if cap else s
    if sink is not None:
        s = torch.cat([s, torch.tensor([float(sink)])])
        v = torch.cat([v, torch.zeros(1, v.shape[1])])
        k = torch.cat([k, torch.zeros(1, k.shape[1])])
    if cap or sink is not None:     # what is no product of q and k is a mask
        out = torch.nn.functional.scaled_dot_product_attention(
            torch.zeros(1, 1, 1, len(q)), torch.zeros(1, 1, len(s), len(q)),
            v[None, None], attn_mask=s[None, None, None], scale=1.0)
    else:
        out = torch.nn.functional.scaled_dot_product_attention(
            q[None, None, None], k[None, None], v[None, None], scale=scale)
    weights = torch.softmax(s, 0)
    n = len(s) - (sink is not None)
    return s[:n].double().numpy(), weights.double().numpy(), \
        out[0, 0, 0].double().numpy()


def beside_torch(proof):
    folder = proof.folder("random")
    with proof.row(f"{CASES} random caches, changes of weights and outputs",
                   "beside torch's scaled_dot_product_attention") as row:
        most = 0.0
        for seed in range(CASES):
            case = Case(random.Random(1000 * proof.seed + seed), folder)
            why, error = case.wrong(attention(proof, *case.write()), sdpa)
            most = max(most, error)
            row.ok(not why, f"seed {seed}, {case.kind}", why)
        row.figure(f"largest error {most:.1e}")


# ---- models -----------------------------------------------------------------------

def shape(**more):
    return {**dict(hidden_size=64, intermediate_size=96, num_attention_heads=8,
                   num_hidden_layers=4, num_key_value_heads=2, head_dim=16,
                   vocab_size=211, initializer_range=0.2, eos_token_id=None,
                   bos_token_id=None, pad_token_id=0), **more}


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape()))


def mistral():
    return transformers.MistralForCausalLM(transformers.MistralConfig(
        **shape(sliding_window=40)))


def gemma2():
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **shape(attn_implementation="eager", sliding_window=4096,
                query_pre_attn_scalar=24, attn_logit_softcapping=8.0)))


def gpt_oss():
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(
        **shape(attn_implementation="eager", num_local_experts=2, sliding_window=4096,
                num_experts_per_tok=1)))
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
    return model


MODELS = {"Llama, GQA": llama, "Mistral, window of 40": mistral,
          "Gemma 2, scale and soft cap": gemma2, "gpt-oss, sinks": gpt_oss}


def rounded(x, kind):
    """As caches are stored."""
    if kind == "e4m3":
        scale = x.abs().amax() / 448
        return (x / scale).to(torch.float8_e4m3fn).float() * scale
    if kind == "int4":
        scale = x.abs().amax(-1, keepdim=True) / 7
        return (x / scale).round() * scale
    return x.to(torch.bfloat16).float()


@contextlib.contextmanager
def outputs(into, exchange=None):
    """Each layer's attention output [T, H, D]; with another layer's keys and values."""
    known = ALL_ATTENTION_FUNCTIONS
    get = known.get_interface

    def around(inner):
        def attention(module, query, key, value, *more, **named):
            out = inner(module, query, key, value, *more, **named)
            kept = out
            if exchange:
                other = exchange(module.layer_idx, key, value)
                kept = inner(module, query, *other, *more, **named)
            into[module.layer_idx] = kept[0][0].double()
            return out
        return attention

    known.get_interface = lambda *which: around(get(*which))
    try:
        yield
    finally:
        del known.get_interface


class Run:
    """A model, its cache before the last tokens and after them, and the same changed."""

    def __init__(self, make, kind, seed):
        torch.manual_seed(seed)
        self.model, self.kind = make().eval(), kind
        self.ids = torch.randint(3, 211, (1, TOKENS))
        self.heard = kvtool_capture.Queries(NEW)
        cache, self.right, self.forced, self.free = self.filled(), {}, {}, {}
        with self.heard, outputs(self.right):
            self.heard._count = dict.fromkeys(range(4), TOKENS - NEW)
            self.go_on(cache)
        self.cache = cache
        with outputs(self.forced, self.exchange):
            self.go_on(self.filled())
        changed = self.filled()
        for layer in changed.layers:
            layer.keys, layer.values = (rounded(x, kind)
                                        for x in (layer.keys, layer.values))
        with outputs(self.free):
            self.go_on(changed)

    def filled(self):
        cache = cache_utils.DynamicCache()      # without windows: all tokens stay
        with torch.no_grad():
            self.model(self.ids[:, :-NEW], past_key_values=cache, use_cache=True)
        return cache

    def go_on(self, cache):
        with torch.no_grad():
            self.model(self.ids[:, -NEW:], past_key_values=cache, use_cache=True)

    def exchange(self, layer, key, value):
        """What was in the cache before the last tokens is rounded."""
        return tuple(torch.cat([rounded(x[:, :, :-NEW], self.kind), x[:, :, -NEW:]], 2)
                     for x in (key, value))

    def save(self, folder):
        window = getattr(self.model.config, "sliding_window", None)
        tables = {"0": list(range(TOKENS))}
        for name, change in (("a", lambda *x: x[1:]), ("b", self.exchange)):
            pairs = {}
            for i, layer in enumerate(self.cache.layers):
                pairs[f"layers.{i}"] = tuple(
                    x[0].transpose(0, 1).contiguous()
                    for x in change(i, layer.keys, layer.values))
            # a window of attention: nothing has left the cache
            group = {"layers": list(pairs), "kind": "full_attention"}
            if window and window < TOKENS:
                group["window"] = window
            kvtool_capture.capture(os.path.join(folder, f"{name}.safetensors"), pairs,
                                   "BHD", block_tables=tables, groups=[group],
                                   num_tokens={"0": TOKENS})
        self.heard.write(os.path.join(folder, "q.safetensors"))


def error_of(right, other, layer, head):
    """Of all queries of a layer and head together."""
    a, b = right[layer][:, head], other[layer][:, head]
    return float((a - b).norm() / a.norm())


def beside_model(proof, name, make, kind):
    folder = proof.folder(f"model-{kind}")
    run = Run(make, kind, proof.seed)
    run.save(folder)
    a, b, q = (os.path.join(folder, f"{x}.safetensors") for x in "abq")
    with proof.row("errors of attention outputs are those that diff predicts",
                   f"{name}; cache rounded to {kind}") as row:
        groups = attention(proof, "--exact", f"--attention={q}", a, b)["groups"]
        cells = {(c["layer"], c["head"]): c for g in groups for c in g["cells"]}
        row.equal(len(cells), 4 * 8, "layers and heads")
        most, ratios = 0, {}
        for (layer, head), cell in sorted(cells.items()):
            forced = error_of(run.right, run.forced, layer, head)
            free = error_of(run.right, run.free, layer, head)
            most = max(most, abs(cell["rel_l2"] - forced))
            ratios.setdefault(layer, []).append(free / cell["rel_l2"])
            row.ok(abs(cell["rel_l2"] - forced) < 1e-5,
                   f"layer {layer}, head {head}", f"{cell['rel_l2']}, measured {forced}")
        row.ok(abs(np.median(ratios[0]) - 1) < 0.01, "the first layer of a model that runs",
               ratios[0])
        # what the model as a whole gets wrong is at least this, layer by layer
        row.ok(min(np.median(r) for r in ratios.values()) > 0.8, "later layers", ratios)
        medians = [np.median(r) for r in ratios.values()]
        row.figure(f"predicted {np.mean([c['rel_l2'] for c in cells.values()]):.2g}, "
                   f"measured in each layer within {most:.0e}; in the running model "
                   f"{min(medians):.2g} to {max(medians):.2g} times that")
        by_proxy(proof, row, a, b, cells)


def by_proxy(proof, row, a, b, cells):
    """Keys that stand in: how they rank layers and heads, and by how much they err."""
    for group in attention(proof, "--exact", "--attention", a, b)["groups"]:
        proxy = {(c["layer"], c["head"]): c["rel_l2"] for c in group["cells"]}
    layers = sorted({l for l, _ in cells})
    real = [np.mean([cells[l, h]["rel_l2"] for h in range(8)]) for l in layers]
    stand = [np.mean([proxy[l, h] for h in range(2)]) for l in layers]
    row.ok(all(x > 0 for x in stand), "keys say something, too", stand)
    times = [p / r for p, r in zip(stand, real)]
    row.figure(f"by proxy {min(times):.2g} to {max(times):.2g} times")


def main():
    proof = Proof("transformers", transformers.__version__)
    beside_torch(proof)
    for name, make in MODELS.items():
        for kind in ("bfloat16", "e4m3", "int4"):
            beside_model(proof, name, make, kind)
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
