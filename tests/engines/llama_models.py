# SPDX-License-Identifier: Apache-2.0
"""
llama_models.py - tiny gguf files of random weights, of each kind of memory that
llama.cpp has: attention, with a window in some layers, latents, states, and both
"""
import random

import gguf
import numpy as np

VOCABULARY = 320


class Maker:
    """A gguf file that grows, layer by layer."""

    def __init__(self, path, arch, seed, layers, width, hidden, part=1):
        self.w = gguf.GGUFWriter(path, arch)
        self.rng = np.random.default_rng(seed)
        self.width, self.hidden, self.part = width, hidden, part
        self.w.add_block_count(layers)
        self.w.add_context_length(1024)
        self.w.add_embedding_length(width)
        self.w.add_feed_forward_length(hidden)
        self.w.add_layer_norm_rms_eps(1e-5)
        self.w.add_rope_freq_base(10000.0)
        self.w.add_vocab_size(VOCABULARY)
        self.w.add_file_type(0)
        self.w.add_tokenizer_model("no_vocab")
        self.random("token_embd", VOCABULARY, width, scale=0.05)

    def heads(self, heads, kv, dim):
        self.w.add_head_count(heads)
        self.w.add_head_count_kv(kv)
        if dim:
            self.w.add_key_length(dim)
            self.w.add_value_length(dim)
            self.w.add_rope_dimension_count(dim)

    def tensor(self, name, array, ending=".weight"):
        self.w.add_tensor(name + ending, np.ascontiguousarray(array, "<f4"))

    def random(self, name, *shape, scale=None, ending=".weight"):
        scale = scale or 1.5 / np.sqrt(shape[-1])
        scale *= self.part if name.endswith(("_output", "_down", "_q")) else 1
        self.tensor(name, self.rng.standard_normal(shape) * scale, ending)

    def norm(self, name, n, ending=".weight", scale=1):
        self.tensor(name, scale * (1 + 0.1 * self.rng.standard_normal(n)), ending)

    def attention(self, i, heads, kv, dim, norms=False, bias=False):
        for name, rows in ("q", heads), ("k", kv), ("v", kv):
            self.random(f"blk.{i}.attn_{name}", rows * dim, self.width,
                        scale=3 / self.width ** 0.5)
            if bias:
                self.random(f"blk.{i}.attn_{name}", rows * dim, scale=0.1, ending=".bias")
        self.random(f"blk.{i}.attn_output", self.width, heads * dim)
        if norms:
            self.norm(f"blk.{i}.attn_q_norm", dim)
            self.norm(f"blk.{i}.attn_k_norm", dim)

    def forward(self, i):
        self.norm(f"blk.{i}.ffn_norm", self.width)
        self.random(f"blk.{i}.ffn_gate", self.hidden, self.width)
        self.random(f"blk.{i}.ffn_up", self.hidden, self.width)
        self.random(f"blk.{i}.ffn_down", self.width, self.hidden)

    def scan(self, i, inner, states, rank, norms):
        """A layer of Mamba's."""
        w = f"blk.{i}.ssm_"
        self.random(w + "in", 2 * inner, self.width)
        self.random(w + "conv1d", inner, 4)
        self.random(w + "conv1d", inner, scale=0.1, ending=".bias")
        self.random(w + "x", rank + 2 * states, inner)
        self.random(w + "dt", inner, rank)
        self.random(w + "dt", inner, scale=0.1, ending=".bias")
        self.tensor(w + "a", -np.exp(self.rng.standard_normal((inner, states))), "")
        self.norm(w + "d", inner, "")
        self.random(w + "out", self.width, inner)
        for name, n in ("dt", rank), ("b", states), ("c", states):
            if norms:
                self.norm(w + name + "_norm", n)

    def close(self, norm="output_norm", tied=False):
        self.norm(norm, self.width)
        if not tied:
            self.random("output", VOCABULARY, self.width)
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


class Shape:
    """Sizes of the models, which a seed other than 0 chooses."""

    def __init__(self, seed):
        r = random.Random(seed)
        some = lambda first, *others: r.choice(others) if seed else first
        self.seed = seed
        self.part = 1                   # below 1 rounding changes fewer tokens
        self.layers = some(3, 2, 4)
        self.kv = some(2, 3, 4)
        self.group = some(2, 1, 3)
        self.dim = some(32, 64)
        self.width = some(96, 64, 128)
        self.hidden = some(128, 160)
        self.window = some(16, 12, 24)
        self.latent = some(64, 32, 96)
        self.inner = some(128, 160)
        self.states = some(16, 8)
        self.length = some(45, 38, 53)


def transformer(path, s, arch="llama", kv=None, layers=None, **how):
    kv, layers = kv or s.kv, layers or s.layers
    heads = kv * s.group if kv > 1 else 4
    # of some models the heads of a query are as wide as the model
    width = heads * s.dim if arch == "qwen2vl" else s.width
    m = Maker(path, arch, s.seed, layers, width, s.hidden, s.part)
    m.heads(heads, kv, s.dim)
    if arch.startswith("gemma"):
        m.w.add_sliding_window(s.window)
    if arch == "qwen2vl":
        m.w.add_rope_dimension_sections([s.dim // 8, s.dim // 8 * 2, s.dim // 8, 0])
    for i in range(layers):
        m.norm(f"blk.{i}.attn_norm", width)
        m.attention(i, heads, kv, s.dim, **how)
        m.forward(i)
        if arch.startswith("gemma"):
            m.norm(f"blk.{i}.post_attention_norm", s.width, scale=6)
            m.norm(f"blk.{i}.post_ffw_norm", s.width, scale=2)
    m.close(tied=arch == "gemma2")


def latent(path, s):
    m = Maker(path, "deepseek2", s.seed, s.layers, s.width, s.hidden, s.part)
    heads, rope, nope, values, lora = 4, 32, 32, 32, 48
    m.heads(heads, 1, 0)
    m.w.add_key_length(s.latent + rope)
    m.w.add_value_length(s.latent)
    m.w.add_rope_dimension_count(rope)
    m.w.add_key_length_mla(nope + rope)
    m.w.add_value_length_mla(values)
    m.w.add_kv_lora_rank(s.latent)
    m.w.add_q_lora_rank(lora)
    m.w.add_leading_dense_block_count(s.layers)
    m.w.add_expert_shared_count(0)
    m.w.add_expert_feed_forward_length(64)
    m.w.add_expert_count(0)
    m.w.add_expert_used_count(0)
    m.w.add_expert_weights_scale(1.0)
    for i in range(s.layers):
        m.norm(f"blk.{i}.attn_norm", s.width)
        m.norm(f"blk.{i}.attn_q_a_norm", lora)
        m.norm(f"blk.{i}.attn_kv_a_norm", s.latent)
        m.random(f"blk.{i}.attn_q_a", lora, s.width)
        m.random(f"blk.{i}.attn_q_b", heads * (nope + rope), lora)
        m.random(f"blk.{i}.attn_kv_a_mqa", s.latent + rope, s.width)
        m.random(f"blk.{i}.attn_k_b", heads, s.latent, nope)
        m.random(f"blk.{i}.attn_v_b", heads, values, s.latent)
        m.random(f"blk.{i}.attn_output", s.width, heads * values)
        m.forward(i)
    m.close()


def recurrent(m, inner, s):
    m.w.add_ssm_conv_kernel(4)
    m.w.add_ssm_inner_size(inner)
    m.w.add_ssm_state_size(s.states)
    m.w.add_ssm_time_step_rank(8)


def mamba(path, s):
    m = Maker(path, "mamba", s.seed, s.layers, s.inner // 2, 0)
    m.heads(0, 0, 0)
    recurrent(m, s.inner, s)
    for i in range(s.layers):
        m.norm(f"blk.{i}.attn_norm", m.width)
        m.scan(i, s.inner, s.states, 8, False)
    m.close()


def jamba(path, s):
    kv = [0, s.kv, 0, s.kv]
    m = Maker(path, "jamba", s.seed, 4, s.kv * s.group * s.dim, s.hidden)
    m.heads(s.kv * s.group, kv, s.dim)
    recurrent(m, 2 * m.width, s)
    m.w.add_expert_count(0)
    m.w.add_expert_used_count(0)
    for i in range(4):
        m.norm(f"blk.{i}.attn_norm", m.width)
        if kv[i]:
            m.attention(i, s.kv * s.group, s.kv, s.dim)
        else:
            m.scan(i, 2 * m.width, s.states, 8, True)
        m.forward(i)
    m.close()


def lfm2(path, s):
    kv = [0, s.kv, 0, s.kv, 0]
    m = Maker(path, "lfm2", s.seed, 5, s.kv * s.group * s.dim, s.hidden)
    m.heads(s.kv * s.group, kv, s.dim)
    m.w.add_shortconv_l_cache(3)
    for i in range(5):
        m.norm(f"blk.{i}.attn_norm", m.width)
        if kv[i]:
            m.attention(i, s.kv * s.group, s.kv, s.dim, norms=True)
        else:
            m.random(f"blk.{i}.shortconv.conv", m.width, 3)
            m.random(f"blk.{i}.shortconv.in_proj", 3 * m.width, m.width)
            m.random(f"blk.{i}.shortconv.out_proj", m.width, m.width)
        m.forward(i)
    m.close("token_embd_norm", tied=True)


# name: how it is made, what one may call it
MODELS = {
    "gqa": (transformer, {}, "llama, GQA"),
    "mqa": (transformer, {"kv": 1}, "llama, MQA"),
    "gemma3": (transformer, {"arch": "gemma3", "layers": 7, "norms": True},
               "gemma3, 6 layers of 7 with a window"),
    "gemma2": (transformer, {"arch": "gemma2", "layers": 4},
               "gemma2, 2 layers of 4 with a window"),
    "qwen2vl": (transformer, {"arch": "qwen2vl", "bias": True}, "qwen2vl, M-RoPE"),
    "mla": (latent, {}, "deepseek2, MLA"),
    "mamba": (mamba, {}, "mamba"),
    "jamba": (jamba, {}, "jamba, hybrid"),
    "lfm2": (lfm2, {}, "lfm2, hybrid"),
}


def make(name, path, shape):
    how, more, _ = MODELS[name]
    how(path, shape, **more)
