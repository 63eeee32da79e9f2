#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
llama_beside.py - transformers, as llama_travel.py asks it: a model with the weights that
it has in GGUF, a cache of a prompt, and what comes next after a cache from elsewhere

It reads lines of JSON, each a list of a word and what the function of that name takes,
and answers each with a line: the tokens that come next, greedily.
"""
import json
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from safetensors.torch import load_file, save_file
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

SIZES = {"vocab_size": 32, "hidden_size": 96, "intermediate_size": 128,
         "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 32, "max_position_embeddings": 1024, "tie_word_embeddings": False,
         "bos_token_id": 0, "eos_token_id": 0}


def version():
    return transformers.__version__


def make(folder, kind, seed):
    torch.manual_seed(seed)
    sizes = {**SIZES, "head_dim": SIZES["hidden_size"] // 4} if kind == "qwen2" else SIZES
    config = AutoConfig.for_model(kind, **sizes, rms_norm_eps=1e-5)
    model = AutoModelForCausalLM.from_config(config)
    weights = {}
    for name, t in model.state_dict().items():
        # attention that looks at few tokens, so that the order of keys matters, and of
        # which a token has a part only, so that rounding does not
        scale = 3 if "q_proj" in name or "k_proj" in name else \
            0.4 if "o_proj" in name or "down_proj" in name else 1
        t = torch.randn(t.shape) * (1 if "embed" in name else
                                      scale / t.shape[-1] ** 0.5 if t.dim() > 1 else 0.1)
        t += "norm" in name
        # numbers that bfloat16 has, too
        weights[name] = t.to(torch.bfloat16).float().numpy()
    np.savez(f"{folder}/weights.npz", **weights)
    config.save_pretrained(folder)


def model_of(folder, dtype):
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config)
    weights = np.load(f"{folder}/weights.npz")
    model.load_state_dict({k: torch.from_numpy(weights[k]) for k in weights.files})
    return model.to(getattr(torch, dtype)).eval()


def greedy(model, cache, token, n):
    out = []
    for _ in range(n):
        logits = model(input_ids=torch.tensor([[token]]), past_key_values=cache,
                       use_cache=True).logits
        token = int(logits[0, -1].argmax())
        out.append(token)
    return out


def prefill(folder, dtype, tokens, out):
    model = model_of(folder, dtype)
    cache = DynamicCache()
    model(input_ids=torch.tensor([tokens[:-1]]), past_key_values=cache, use_cache=True)
    save_file({f"layers.{i}.{n}": getattr(layer, n).contiguous()
               for i, layer in enumerate(cache.layers) for n in ("keys", "values")}, out)
    return greedy(model, cache, tokens[-1], 20)


def go_on(folder, dtype, path, token, n):
    model, held, cache = model_of(folder, dtype), load_file(path), DynamicCache()
    for i in range(model.config.num_hidden_layers):
        cache.update(held[f"layers.{i}.keys"], held[f"layers.{i}.values"], i)
    return greedy(model, cache, token, n)


if __name__ == "__main__":
    does = {"version": version, "make": make, "prefill": prefill, "go_on": go_on}
    with torch.no_grad():
        for line in sys.stdin:
            word, *args = json.loads(line)
            print(json.dumps(does[word](*args)), flush=True)
