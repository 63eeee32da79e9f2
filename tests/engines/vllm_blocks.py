# SPDX-License-Identifier: Apache-2.0
"""
vllm_blocks.py - how many tokens a block of a hybrid has, by vLLM's own code

The rule is a method of the platform that needs no device: it is run from the source text
of the installed release (vllm_source.py), with what it asks of the model and the backend.
Whether a state is kept at the end of each chunk is asked of the release, too: it follows
from prefix caching, which some releases switch on for hybrids.
"""
import contextlib
import os
import random

import vllm_types
from proof import Proof
from plain_files import write_json
from vllm_layouts import Dtype, World, release_of
from vllm_types import NS

ROOT = os.path.dirname(vllm_types.ROOT)
HEADS, KV_HEADS = 16, 8


class Registry:
    """Who has the model; its states are measured by vllm_types.py."""

    @staticmethod
    def resolve_model_cls(architecture, model_config):
        return NS(get_mamba_state_shape_from_config=lambda config: None,
                  get_mamba_state_dtype_from_config=lambda config: None), architecture


def world():
    out = World(ROOT, "cuda:9.0")
    out.release.standins |= {
        "ModelRegistry": Registry, "set_current_vllm_config":
        lambda config: contextlib.nullcontext(),
        "MambaSpec": lambda shapes, dtypes, block_size: NS(page_size_bytes=out.states)}
    return out


def keeps_chunks(w, family):
    """Does the model's class say that it can keep a state of each chunk?"""
    module = w.release.module(vllm_types.model_module(family))
    node = module.nodes[family[3] or family[1]][-1]
    return any(getattr(b, "id", "") == "SupportsMambaPrefixCaching" for b in node.bases)


def engine_block(w, family, config, tp, cache, block, states):
    """Tokens of a block, as the release has it."""
    text = config.get("text_config", config)
    mla = "kv_lora_rank" in text
    head = text["kv_lora_rank"] + text["qk_rope_head_dim"] if mla else \
        text["head_dim"]
    backend = w.backends()[("FLASH_ATTN_MLA" if block else "FLASHMLA") if mla else
                           "FLASH_ATTN"]
    ModelConfig = w.get("vllm.config.model.ModelConfig")
    model = NS(dtype=Dtype("bfloat16"), use_mla=mla, is_hybrid=True, architecture="",
               get_num_kv_heads=lambda parallel: 1 if mla else max(1, KV_HEADS // tp),
               get_head_size=lambda: head, max_model_len=4096,
               hf_text_config=NS(**text), pooler_config=None, attn_type="hybrid",
               supports_mamba_prefix_caching=keeps_chunks(w, family))
    model.get_mamba_chunk_size = lambda: ModelConfig.get_mamba_chunk_size(model)
    cached = ModelConfig.__dict__["is_prefix_caching_supported"].fget(model)
    cache_config = NS(cache_dtype=cache, block_size=block or 16, mamba_block_size=None,
                      user_specified_block_size=bool(block),
                      user_specified_mamba_block_size=False, mamba_cache_mode="none",
                      mamba_page_size_padded=None, kv_cache_dtype_skip_layers=[],
                      enable_prefix_caching=cached)
    engine = NS(model_config=model, cache_config=cache_config, parallel_config=NS(),
                scheduler_config=NS(enable_chunked_prefill=True))
    w.get("vllm.model_executor.models.config.MambaModelConfig") \
        .verify_and_update_config(engine)
    platform = w.get("vllm.platforms.interface.Platform")
    platform._find_non_ssm_backend = classmethod(lambda cls, config: backend)
    platform._find_non_ssm_backends = classmethod(lambda cls, config: [backend])
    w.states = sum(states)
    platform.update_block_size_for_backend(engine)
    return cache_config.block_size


def with_attention(name, text):
    """At least one of the four layers."""
    if name == "jamba":
        text |= {"attn_layer_period": 4, "attn_layer_offset": 3}
    elif name == "granitemoehybrid":
        text["layer_types"] = ["mamba"] * 3 + ["attention"]


def blocks(proof, release, rng):
    path, w = os.path.join(proof.folder("blocks"), "config.json"), world()
    with proof.row("tokens of a hybrid's blocks, by the platform's own rule",
                   "150 random configs") as row:
        seen = {}
        while row.points < 150:
            family, config = vllm_types.made_up(rng)
            text = config.get("text_config", config)
            if family[0] in ("mamba", "mamba2"):
                continue                        # no attention
            with_attention(family[0], text)
            for key in ("chunk_size", "mamba_chunk_size"):
                # of the three the class has one by default, which is not asked here
                if rng.random() < 0.3 or (key == "chunk_size" and family[0] in (
                        "granitemoehybrid", "falcon_h1", "nemotron_h")):
                    text[key] = rng.choice([64, 96, 128, 256])
            config["dtype"] = "bfloat16"
            if "kv_lora_rank" not in text:
                text.setdefault("head_dim", text["hidden_size"] // HEADS)
            tp, block = rng.choice([1, 2, 4]), rng.choice([None, None, 16, 32, 128, 256])
            cache = rng.choice(["auto", "auto", "bfloat16", "fp8"])
            states = vllm_types.engine_states(family, config, tp, "auto")
            if states is None:
                continue
            write_json(path, config)
            words = [f"--block-size={block}"] if block else []
            r = proof.kvtool("size", "--json", f"--tp={tp}", f"--release={release}", *words,
                             f"--cache-dtype={cache}", path)
            want = engine_block(w, family, config, tp, cache, block, states)
            got = r.code or r.json["sizes"][0]["block_size"]
            row.ok(got == want, f"config {row.points}: {config}, tp {tp}, {words}, {cache}",
                   f"got {got}\nwant {want}\n{r.err}")
            seen[family[0]] = seen.get(family[0], 0) + 1
        row.figure(f"{len(seen)} families")


def main():
    number = release_of(ROOT)
    proof = Proof("vLLM", number)
    blocks(proof, ".".join(number.split(".")[:2]), random.Random(proof.seed))
    return proof.done()


if __name__ == "__main__":
    raise SystemExit(main())
