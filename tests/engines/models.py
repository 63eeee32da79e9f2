# SPDX-License-Identifier: Apache-2.0
"""
models.py - tiny models with random weights, as transformers saves them

A family is one way to cache: grouped heads, one head, latent, windows beside full
attention, recurrent states beside attention.  Seed 0 has fixed shapes; other seeds
draw layers, heads and head sizes too, so that nothing holds for one shape alone.
"""
import os
import random

VOCABULARY = 512
PROMPT_IDS = 500        # ids that prompts are made of: the rest are special

# family: what is said of it
FAMILIES = {
    "gqa": "grouped heads",
    "mqa": "one head of keys and values",
    "mla": "latent attention",
    "window": "windows beside full attention",
    "mamba": "Mamba 2 beside attention",
    "gdn": "gated delta net beside attention",
}


class Shape:
    """The numbers of a model of one family and seed."""

    def __init__(self, family, seed):
        draw = random.Random(f"{family} {seed}")
        self.family, self.seed = family, seed
        self.layers = 3 if seed == 0 else draw.choice([2, 3, 4])
        self.head_dim = 32 if seed == 0 else draw.choice([32, 64])
        self.kv_heads = 4 if seed == 0 else draw.choice([2, 4])
        self.heads = self.kv_heads * (2 if seed == 0 else draw.choice([1, 2, 3]))
        if family == "mqa":
            self.kv_heads = 1
        if family in ("window", "mamba", "gdn"):
            self.layers = 4
        self.window = 64 if seed == 0 else draw.choice([40, 64, 96])
        self.hidden = 128 if seed == 0 else draw.choice([96, 128, 192])


def _common(s):
    return dict(vocab_size=VOCABULARY, hidden_size=s.hidden,
                intermediate_size=2 * s.hidden, num_hidden_layers=s.layers,
                num_attention_heads=s.heads, num_key_value_heads=s.kv_heads,
                max_position_embeddings=1024, bos_token_id=510, eos_token_id=511,
                tie_word_embeddings=False)


def config_of(s):
    """The configuration and the class of the model."""
    import transformers as t
    base = _common(s)
    if s.family in ("gqa", "mqa"):
        return t.LlamaConfig(head_dim=s.head_dim, **base), t.LlamaForCausalLM
    if s.family == "window":
        return t.Gemma3TextConfig(
            head_dim=s.head_dim, sliding_window=s.window, pad_token_id=509,
            query_pre_attn_scalar=s.head_dim,
            layer_types=["sliding_attention", "full_attention"] * (s.layers // 2),
            **base), t.Gemma3ForCausalLM
    if s.family == "mla":
        # the kernels of the CPU engine know these sizes only
        base.update(num_key_value_heads=s.heads)
        return t.DeepseekV2Config(
            moe_intermediate_size=64, kv_lora_rank=512, q_lora_rank=None,
            qk_rope_head_dim=64, qk_nope_head_dim=64, v_head_dim=64,
            n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
            first_k_dense_replace=s.layers, **base), t.DeepseekV2ForCausalLM
    if s.family == "mamba":
        # the heads of attention are as wide as hidden over heads
        base.update(tie_word_embeddings=True, hidden_size=s.heads * s.head_dim)
        s.hidden = base["hidden_size"]
        return t.GraniteMoeHybridConfig(
            layer_types=["mamba", "attention"] * 2, num_local_experts=0,
            num_experts_per_tok=0, shared_intermediate_size=2 * s.hidden,
            mamba_n_heads=8, mamba_d_head=s.hidden * 2 // 8, mamba_n_groups=1,
            mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=16,
            position_embedding_type="rope", pad_token_id=509,
            **base), t.GraniteMoeHybridForCausalLM
    if s.family == "gdn":
        return t.Qwen3NextConfig(
            head_dim=s.head_dim, layer_types=["linear_attention", "full_attention"] * 2,
            linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=64,
            linear_value_head_dim=64, linear_conv_kernel_dim=4, num_experts=2,
            num_experts_per_tok=1, moe_intermediate_size=64,
            shared_expert_intermediate_size=64, **base), t.Qwen3NextForCausalLM
    raise ValueError(s.family)


def make(family, seed, dtype, folder):
    """Saves a model and its tokenizer in folder; returns its path and its shape."""
    import torch
    shape = Shape(family, seed)
    path = os.path.join(folder, f"{family}-{seed}-{dtype}")
    if os.path.exists(os.path.join(path, "config.json")):
        return path, shape
    torch.manual_seed(1000 + seed)
    config, cls = config_of(shape)
    model = cls(config)
    with torch.no_grad():
        for parameter in model.parameters():
            # small random weights make attention look at everything alike
            if parameter.dim() > 1 and family in ("gqa", "mqa", "mla"):
                parameter.mul_(4)
    model.to(getattr(torch, dtype)).save_pretrained(path)
    _tokenizer(path)
    return path, shape


def _tokenizer(path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    words = [f"t{i}" for i in range(509)] + ["<unk>", "<s>", "</s>"]
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)},
                                   unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=t, unk_token="<unk>", bos_token="<s>",
                            eos_token="</s>").save_pretrained(path)


def prompt(tokens, seed):
    draw = random.Random(seed)
    return [draw.randrange(PROMPT_IDS) for _ in range(tokens)]
