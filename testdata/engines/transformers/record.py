# SPDX-License-Identifier: Apache-2.0
"""
record.py OUT - caches of tiny random models as the installed transformers makes
and torch.save() writes them, and in NAME.npy what the model handed to the cache:
[row, layer, token, head, key and value, element]

Needs torch and transformers 4.36 or later; the recordings here were made by torch
2.15.0 on a CPU.
"""
import sys
import warnings

import numpy as np
import torch
import transformers
import transformers.cache_utils as caches

warnings.simplefilter("ignore")
OUT = sys.argv[1]
VERSION = tuple(map(int, transformers.__version__.split(".")[:2]))
SMALL = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, head_dim=4, vocab_size=100)

# ---- what is handed to a cache ----------------------------------------------

given, depth = {}, 0


def watch(cls):
    inner = cls.update

    def update(self, key_states, value_states, layer_idx=None, *more, **named):
        global depth
        if layer_idx is None:
            layer_idx = named.pop("layer_idx")
        if not depth:
            given.setdefault(id(self), {}).setdefault(layer_idx, []).append(
                (key_states.clone(), value_states.clone()))
        depth += 1
        try:
            return inner(self, key_states, value_states, layer_idx, *more, **named)
        finally:
            depth -= 1
    cls.update = update


for c in list(vars(caches).values()):
    if isinstance(c, type) and issubclass(c, caches.Cache) and "update" in vars(c):
        watch(c)


def handed_over(cache):
    layers = given[id(cache)]
    halves = [torch.stack([torch.cat([step[i] for step in layers[l]], 2)
                           for l in sorted(layers)]) for i in (0, 1)]
    wide = max(h.shape[-1] for h in halves)      # the narrower one gets zeros
    halves = [torch.nn.functional.pad(h, (0, wide - h.shape[-1])) for h in halves]
    return torch.stack(halves, 4).permute(1, 0, 3, 2, 4, 5).contiguous().numpy()


# ---- models -----------------------------------------------------------------

def gemma3():
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig
    more = {"layer_types": ["sliding_attention"] * 2 + ["full_attention"]} \
        if VERSION >= (4, 54) else {"sliding_window_pattern": 3}
    config = Gemma3TextConfig(**SMALL, sliding_window=8, **more)
    return config, Gemma3ForCausalLM(config)


def mistral():
    from transformers import MistralConfig, MistralForCausalLM
    config = MistralConfig(**SMALL, sliding_window=8)
    return config, MistralForCausalLM(config)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(**{k: v for k, v in SMALL.items() if k != "head_dim"})
    return config, LlamaForCausalLM(config)


def deepseek():
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM
    config = DeepseekV3Config(
        **{k: v for k, v in SMALL.items() if k != "head_dim"},
        moe_intermediate_size=8, n_routed_experts=4, n_group=1, topk_group=1,
        num_experts_per_tok=1, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4,
        qk_nope_head_dim=8, v_head_dim=6)
    return config, DeepseekV3ForCausalLM(config)


def make(cls, config, rows, slots):
    tries = [dict(config=config), {}] if slots is None else [
        dict(config=config, max_cache_len=slots),
        dict(config=config, max_batch_size=rows, max_cache_len=slots),
        dict(config=config, batch_size=rows, max_cache_len=slots),
        dict(config=config, max_batch_size=rows, max_cache_len=slots, device="cpu")]
    for t in tries:
        try:
            return cls(**t)
        except TypeError as e:
            why = e
    raise why


def fill(model, cache, prompt, steps, rows, mask):
    torch.manual_seed(1)
    ids = torch.randint(3, 100, (rows, prompt + steps))
    for a, b in [(0, prompt)] + [(t, t + 1) for t in range(prompt, prompt + steps)]:
        named = {} if mask is None else {"attention_mask": mask[:, :b]}
        if VERSION < (5, 0):
            named["cache_position"] = torch.arange(a, b)
        with torch.no_grad():
            model(ids[:, a:b], past_key_values=cache, use_cache=True, **named)


# ---- recordings -------------------------------------------------------------

def save(name, what, cache):
    torch.save(what, f"{OUT}/{name}.pt")
    np.save(f"{OUT}/{name}.npy", handed_over(cache))
    print(name, type(cache).__name__)


def record(name, model, cls, slots, prompt, steps, rows=1, pad=0, what=None):
    torch.manual_seed(0)
    given.clear()
    mask = None
    if pad:
        mask = torch.ones(rows, prompt + steps, dtype=torch.long)
        mask[1, :pad] = 0
    try:
        config, m = model()
        cache = make(cls, config, rows, slots)
        fill(m.eval(), cache, prompt, steps, rows, mask)
        save(name, what(cache) if what else cache, cache)
    except Exception as e:
        print("no", name, type(e).__name__, str(e)[:100])


def pairs(cache):
    if hasattr(cache, "layers"):
        return [(l.keys, l.values) for l in cache.layers]
    return list(zip(cache.key_cache, cache.value_cache))


def beside(cache):
    return {"input_ids": torch.arange(19), "past_key_values": cache, "seed": 0,
            "temperature": 0.5}


def lists(cache):
    k, v = zip(*pairs(cache))
    return {"key_cache": list(k), "value_cache": list(v)}


def main():
    dynamic, static = caches.DynamicCache, caches.StaticCache
    hybrid = getattr(caches, "HybridCache", static) if VERSION < (4, 56) else static
    window = caches.SlidingWindowCache if VERSION < (4, 56) and \
        hasattr(caches, "SlidingWindowCache") else static
    record("dynamic", gemma3, dynamic, None, 13, 6)
    record("dynamic_short", gemma3, dynamic, None, 4, 2)
    record("dynamic_leftpad", gemma3, dynamic, None, 13, 6, 2, 6)
    record("dynamic_list", gemma3, dynamic, None, 13, 6, what=list)
    record("dynamic_pairs", gemma3, dynamic, None, 13, 6, what=pairs)
    record("dynamic_state", gemma3, dynamic, None, 13, 6, what=vars)
    record("dynamic_lists", llama, dynamic, None, 13, 6, what=lists)
    record("dynamic_beside", gemma3, dynamic, None, 13, 6, what=beside)
    record("static", gemma3, hybrid, 24, 13, 6)
    record("static_grown", gemma3, hybrid, 24, 5, 14)
    record("static_short", gemma3, hybrid, 24, 4, 2)
    record("static_leftpad", gemma3, hybrid, 24, 13, 6, 2, 6)
    record("static_pairs", gemma3, hybrid, 24, 13, 6, what=pairs)
    record("full_dynamic", llama, dynamic, None, 13, 6)
    record("full_static", llama, static, 24, 13, 6)
    record("window_dynamic", mistral, dynamic, None, 13, 6)
    record("window_static", mistral, window, 24, 8, 11)
    record("latent", deepseek, dynamic, None, 13, 6)
    if VERSION >= (5, 0):
        from transformers import T5Config, T5ForConditionalGeneration
        torch.manual_seed(0)
        given.clear()
        m = T5ForConditionalGeneration(T5Config(
            d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=2, vocab_size=100,
            decoder_start_token_id=0)).eval()
        ids = torch.randint(3, 100, (1, 9))
        with torch.no_grad():
            c = m(input_ids=ids, decoder_input_ids=ids[:, :5],
                  use_cache=True).past_key_values
        save("encoder_decoder", c, c.self_attention_cache)


main()
