# SPDX-License-Identifier: Apache-2.0
"""
record_states.py OUT - caches of hybrid models as transformers before 5.4 has classes for
them, of tiny random models, as torch.save() writes them, and in NAME.oracle.npz what they
hold: keys, values and states by layer, in float32

Needs torch and transformers 4.45 to 5.3.
"""
import importlib
import os
import sys

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

OUT, TOKENS = sys.argv[1], 13
BASE = dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, max_position_embeddings=512)
MODELS = {
    "mamba": dict(state_size=8),
    "mamba2": dict(num_heads=4, head_dim=16, state_size=8, n_groups=1),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2,
                  expert_layer_offset=1, num_experts=2, mamba_d_state=8, mamba_dt_rank=4,
                  use_mamba_kernels=False),
    "lfm2": dict(layer_types=["conv", "full_attention"] * 2, conv_L_cache=3),
}
NAMES = {"conv_states": "conv_states.0", "conv_cache": "conv_states.0",
         "ssm_states": "recurrent_states.0", "key_cache": "keys", "value_cache": "values"}


def made_for(model, config):
    """The class that the model's module has for its cache"""
    module = importlib.import_module(type(model).__module__)
    own = [c for n, c in vars(module).items() if n.endswith("DynamicCache") and
           getattr(c, "__module__", None) == module.__name__]
    return own[0](config, 1, torch.bfloat16) if own else None


for name, more in MODELS.items():
    torch.manual_seed(5)
    try:
        config = AutoConfig.for_model(name, **BASE, **more)
    except ValueError:
        continue                                            # younger than transformers
    model = AutoModelForCausalLM.from_config(config).eval().to(torch.bfloat16)
    given = made_for(model, config)
    with torch.no_grad():
        out = model(torch.randint(3, 60, (1, TOKENS)), use_cache=True,
                    **({"past_key_values": given, "cache_position": torch.arange(TOKENS)}
                       if given else {}))
    cache = given or getattr(out, "past_key_values", None) or out.cache_params
    torch.save(cache, f"{OUT}/{name}.pt")
    oracle = {}
    for attribute, what in NAMES.items():
        held = vars(cache).get(attribute, ())
        for i, t in held.items() if isinstance(held, dict) else enumerate(held):
            if t.numel():
                oracle[f"{i}.{what}"] = t.float().numpy()
    np.savez_compressed(f"{OUT}/{name}.oracle.npz", **oracle)
    print(name, os.path.getsize(f"{OUT}/{name}.pt"))
