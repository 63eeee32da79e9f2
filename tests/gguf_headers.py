# SPDX-License-Identifier: Apache-2.0
"""
gguf_headers.py - GGUF files of keys and no tensors, and what llama.cpp keeps for each

A model is its architecture, its keys and, by hand, its layers: a word, the elements of
a token's keys and values, those of an indexer's key, and of the two states.
"""
import struct
from collections import namedtuple

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACKED = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?",
          U64: "Q", I64: "q", F64: "d"}

Layer = namedtuple("Layer", "word k v indexer conv state", defaults=(0,) * 5)
Model = namedtuple("Model", "arch keys layers window")


class Typed(namedtuple("Typed", "type value")):
    """A value whose type does not follow from it."""


def type_of(value):
    if isinstance(value, Typed):
        return value.type
    return {bool: BOOL, int: U32, float: F32, str: STRING}[type(value)]


def bare(value):
    return value.value if isinstance(value, Typed) else value


class Header:
    def __init__(self, version=3, big=False, tensors=0):
        self.order = ">" if big else "<"
        self.version, self.tensors, self.keys = version, tensors, []

    def number(self, kind, value):
        return struct.pack(self.order + PACKED[kind], value)

    def string(self, text):
        raw = text if isinstance(text, bytes) else text.encode()
        return self.number(U64, len(raw)) + raw

    def element(self, kind, value):
        return self.string(value) if kind == STRING else self.number(kind, value)

    def value(self, value):
        if isinstance(bare(value), list):
            of = value.type if isinstance(value, Typed) else type_of(value[0])
            return (self.number(U32, ARRAY) + self.number(U32, of) +
                    self.number(U64, len(bare(value))) +
                    b"".join(self.element(of, bare(x)) for x in bare(value)))
        kind = type_of(value)
        return self.number(U32, kind) + self.element(kind, bare(value))

    def add(self, name, value):
        self.keys.append(self.string(name) + self.value(value))
        return self

    def raw(self, name, data):
        self.keys.append(self.string(name) + data)
        return self

    def bytes(self):
        return (b"GGUF" + self.number(U32, self.version) +
                self.number(U64, self.tensors) + self.number(U64, len(self.keys)) +
                b"".join(self.keys))


def header(model, **how):
    h = Header(**how)
    h.add("general.architecture", model.arch)
    for name, value in model.keys.items():
        h.add(name if name.startswith(("general.", "split.", "tokenizer.")) else
              f"{model.arch}.{name}", value)
    return h


def write(path, model, **how):
    with open(path, "wb") as f:
        f.write(header(model, **how).bytes())
    return path


def keys(layers, width, heads, kv, **more):
    out = {"context_length": 2048, "embedding_length": width, "block_count": layers,
           "feed_forward_length": 2 * width, "attention.head_count": heads,
           "attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5,
           "vocab_size": 128, "rope.dimension_count": 32}
    if kv is not None:
        out["attention.head_count_kv"] = kv
    out.update({name.replace("__", "."): value for name, value in more.items()})
    return {name: value for name, value in out.items() if value is not None}


def dims(k, v=None, **more):
    return {"attention__key_length": k, "attention__value_length": v or k, **more}


def plain(arch, **more):
    return Model(arch, keys(3, 128, 4, 2, **more), [Layer("full", 64, 64)] * 3, 0)


def windows(arch, full, n, window=16, said=True, pattern=None, **more):
    """Layers in 'full' have no window."""
    if said:
        more["attention__sliding_window"] = window
    if pattern is not None:
        more["attention__sliding_window_pattern"] = pattern
    return Model(arch, keys(n, 128, 4, 2, **more),
                 [Layer("full" if i in full else "window", 64, 64) for i in range(n)],
                 window)


SSM = {"ssm__conv_kernel": 4, "ssm__inner_size": 256, "ssm__state_size": 16}
SCAN = Layer("state", conv=3 * (256 + 2 * 2 * 16), state=256 * 16)
MLA = dims(96, 64, attention__key_length_mla=64, attention__value_length_mla=32,
           attention__kv_lora_rank=64, attention__q_lora_rank=48)
EXPERTS = {"expert_count": 2, "expert_used_count": 2, "expert_feed_forward_length": 64,
           "expert_shared_count": 1, "expert_shared_feed_forward_length": 64,
           "expert_weights_scale": 1.0, "expert_gating_func": 2,
           "leading_dense_block_count": 1}
GATED = {"ssm__conv_kernel": 4, "ssm__inner_size": 256, "ssm__state_size": 64,
         "ssm__time_step_rank": 4, "ssm__group_count": 2}
DELTA = Layer("state", conv=3 * (256 + 2 * 2 * 64), state=256 * 64)
KDA = {"ssm__conv_kernel": 4, "kda__head_dim": 32, "kda__gate_lower_bound": -5.0,
       "kda__safe_gate": True}
KIMI = Layer("state", conv=3 * 3 * 4 * 32, state=4 * 32 * 32)

MODELS = {
    "llama": plain("llama"),
    "qwen2": plain("qwen2"),
    "qwen3": Model("qwen3", keys(3, 96, 4, 2, **dims(64), rope__dimension_count=64),
                   [Layer("full", 128, 128)] * 3, 0),
    # keys and values of other widths
    "minicpm3": Model("minicpm3", keys(3, 128, 4, 4, **dims(96, 64), **{
        "attention__q_lora_rank": 48, "attention__kv_lora_rank": 64}),
        [Layer("full", 384, 256)] * 3, 0),
    # heads of each layer
    "deci": Model("deci", keys(3, 128, [4, 4, 4], [2, 1, 4],
                               feed_forward_length=[256, 128, 256]),
                  [Layer("full", 64, 64), Layer("full", 32, 32), Layer("full", 128, 128)],
                  0),
    "openelm": Model("openelm", keys(3, 128, [4, 8, 8], [1, 2, 4], **dims(32),
                                     feed_forward_length=[128, 256, 256]),
                     [Layer("full", 32 * n, 32 * n) for n in (1, 2, 4)], 0),
    # without heads of keys: as many as of queries
    "gpt2": Model("gpt2", keys(2, 128, 4, None), [Layer("full", 128, 128)] * 2, 0),
    "gemma2": windows("gemma2", (1, 3), 4, 4096, said=False),
    "gemma3": windows("gemma3", (5,), 8, 24),
    "gemma3, no window": Model("gemma3", keys(7, 128, 4, 2),
                               [Layer("full", 64, 64)] * 7, 0),
    "gemma3n": Model("gemma3n", keys(22, 128, 4, 2, attention__sliding_window=20,
                                     embedding_length_per_layer_input=32),
                     [Layer("full" if i % 5 == 4 else "window", 64, 64)
                      for i in range(20)] + [Layer("none")] * 2, 20),
    "gemma4": Model("gemma4", keys(
        7, 128, 4, [2, 1, 2, 2, 1, 2, 1], attention__sliding_window=40, **dims(64),
        attention__sliding_window_pattern=[True, False, True, True, False, True, False],
        attention__shared_kv_layers=2, attention__key_length_swa=32,
        attention__value_length_swa=32, embedding_length_per_layer_input=16,
        rope__dimension_count=64, rope__dimension_count_swa=32),
        [Layer("window", 64, 64), Layer("full", 64, 64), Layer("window", 64, 64),
         Layer("window", 64, 64), Layer("full", 64, 64)] + [Layer("none")] * 2, 40),
    "gpt-oss": windows("gpt-oss", (1, 3), 4, 128, **EXPERTS),
    "cohere2": windows("cohere2", (3,), 5, 32, logit_scale=1.0),
    "olmo2": windows("olmo2", (3,), 6, 32),
    "olmo2, no window": plain("olmo2"),
    "smallthinker": windows("smallthinker", (0, 4), 6, 4096, **EXPERTS),
    "llama4": windows("llama4", (3,), 4, 8192, said=False, **EXPERTS,
                      interleave_moe_layer_step=2),
    "exaone4": plain("exaone4", attention__sliding_window=16),
    "step35": windows("step35", (0, 3), 5, 32, pattern=[0, 1, 1, 0, 1], **EXPERTS),
    # a window that llama.cpp does not look for
    "phi3": plain("phi3", attention__sliding_window=16),
    "deepseek2": Model("deepseek2", keys(3, 128, 4, 1, **MLA, **EXPERTS),
                       [Layer("full", 96)] * 3, 0),
    "deepseek2, older": Model("deepseek2", keys(3, 128, 4, 4, **dims(64, 32), **EXPERTS,
                                                attention__kv_lora_rank=64,
                                                attention__q_lora_rank=48),
                              [Layer("full", 256, 128)] * 3, 0),
    "deepseek32": Model("deepseek32", keys(
        3, 128, 4, 1, **MLA, **EXPERTS, attention__indexer__head_count=4,
        attention__indexer__key_length=64, attention__indexer__top_k=128),
        [Layer("full", 96, 0, 64)] * 3, 0),
    "glm-dsa": Model("glm-dsa", keys(
        5, 128, 4, 1, **MLA, **EXPERTS, attention__indexer__head_count=4,
        attention__indexer__key_length=64, attention__indexer__top_k=128,
        attention__indexer__types=[1, 1, 0, 1], nextn_predict_layers=1),
        [Layer("full", 96, 0, 64)] * 2 + [Layer("full", 96), Layer("full", 96, 0, 64),
                                          Layer("none")], 0),
    "glm4moe, drafts": Model("glm4moe", keys(4, 128, 4, 2, nextn_predict_layers=1,
                                             **EXPERTS),
                             [Layer("full", 64, 64)] * 3 + [Layer("none")], 0),
    "mamba": Model("mamba", keys(3, 128, 0, None, ssm__time_step_rank=8, **SSM),
                   [Layer("state", conv=3 * 256, state=256 * 16)] * 3, 0),
    "mamba2": Model("mamba2", keys(3, 128, 0, None, ssm__time_step_rank=8,
                                   ssm__group_count=2, **SSM), [SCAN] * 3, 0),
    "jamba": Model("jamba", keys(4, 128, 4, [0, 2, 0, 2], ssm__time_step_rank=8, **SSM),
                   [Layer("state", conv=3 * 256, state=256 * 16),
                    Layer("full", 64, 64)] * 2, 0),
    "falcon-h1": Model("falcon-h1", keys(2, 128, 4, 2, ssm__time_step_rank=8,
                                         ssm__group_count=2, **SSM, **dims(32)),
                       [Layer("both", 64, 64, 0, SCAN.conv, SCAN.state)] * 2, 0),
    "nemotron_h": Model("nemotron_h", keys(
        4, 128, 4, [0, 2, 0, 0], ssm__time_step_rank=8, ssm__group_count=2, **SSM,
        feed_forward_length=[0, 0, 256, 0]),
        [SCAN, Layer("full", 64, 64), Layer("none"), SCAN], 0),
    "granitehybrid": Model("granitehybrid", keys(
        3, 128, 4, [0, 2, 0], ssm__time_step_rank=8, ssm__group_count=2, **SSM),
        [SCAN, Layer("full", 64, 64), SCAN], 0),
    "qwen3next": Model("qwen3next", keys(5, 128, 4, 2, **GATED, **dims(32), **EXPERTS),
                       [DELTA] * 3 + [Layer("full", 64, 64), DELTA], 0),
    "qwen35": Model("qwen35", keys(4, 128, 4, 2, **GATED, **dims(32),
                                   rope__dimension_sections=[8, 4, 4, 0],
                                   full_attention_interval=2),
                    [DELTA, Layer("full", 64, 64)] * 2, 0),
    "kimi-linear": Model("kimi-linear", keys(3, 128, 4, [0, 1, 0], **MLA, **KDA,
                                             **EXPERTS),
                         [KIMI, Layer("full", 96), KIMI], 0),
    "lfm2": Model("lfm2", keys(4, 128, 4, [0, 2, 0, 2], shortconv__l_cache=3),
                  [Layer("state", conv=2 * 128), Layer("full", 64, 64)] * 2, 0),
    "rwkv6": Model("rwkv6", keys(2, 128, 0, None, wkv__head_size=32,
                                 time_mix_extra_dim=16, time_decay_extra_dim=16),
                   [Layer("state", conv=2 * 128, state=128 * 32)] * 2, 0),
    "rwkv6qwen2": Model("rwkv6qwen2", keys(2, 128, 0, None, wkv__head_size=32,
                                           time_mix_extra_dim=16, time_decay_extra_dim=16,
                                           token_shift_count=1),
                        [Layer("state", conv=128, state=128 * 32)] * 2, 0),
    "rwkv7": Model("rwkv7", keys(2, 128, 0, None, wkv__head_size=32,
                                 attention__decay_lora_rank=16,
                                 attention__iclr_lora_rank=16,
                                 attention__gate_lora_rank=16,
                                 attention__value_residual_mix_lora_rank=16),
                   [Layer("state", conv=2 * 128, state=128 * 32)] * 2, 0),
}

# ---- what a context takes ----------------------------------------------------

BLOCKS = {"f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18),
          "q4_1": (32, 20), "iq4_nl": (32, 18), "q5_0": (32, 22), "q5_1": (32, 24)}

Context = namedtuple("Context", "tokens sequences k v unified swa_full ubatch flash",
                     defaults=(300, 1, "f16", "f16", False, False, 512, True))


def options(c):
    out = [f"--tokens={c.tokens}", f"--requests={c.sequences}", f"--cache-type-k={c.k}",
           f"--cache-type-v={c.v}", f"--ubatch={c.ubatch}"]
    return (out + ["--unified"] * c.unified + ["--swa-full"] * c.swa_full +
            ["--no-flash-attn"] * (not c.flash))


def up(n):
    return -(-n // 256) * 256


def row(kind, n):
    elems, nbytes = BLOCKS[kind]
    return n // elems * nbytes


def cells(model, c):
    """Of a layer without a window and of one with it, all sequences together."""
    full = up(c.tokens * c.sequences)
    if not c.unified:
        full = up(full // c.sequences)
    window = up(min(full, model.window * (c.sequences if c.unified else 1) +
                    min(c.ubatch, c.tokens * c.sequences)))
    streams = 1 if c.unified else c.sequences
    return full * streams, (full if c.swa_full else window) * streams


def expected(model, c):
    """Bytes of each layer: {"k": ..., "v": ..., "indexer": ..., "conv": ..., "state": ...}"""
    out = []
    full, window = cells(model, c)
    widest = max(layer.v for layer in model.layers)
    for layer in model.layers:
        n = window if layer.word == "window" else full
        v = layer.v if c.flash or not layer.v else widest
        out.append({"k": n * row(c.k, layer.k), "v": n * row(c.v, v),
                    "indexer": n * row(c.k, layer.indexer),
                    "conv": 4 * layer.conv * c.sequences,
                    "state": 4 * layer.state * c.sequences})
    return out
