#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
llama_beside_vllm.py - vLLM on a CPU, as llama_vllm.py asks it: a model with the weights
that it has in GGUF, a cache of a prompt, and what comes next after one from elsewhere

As llama_beside.py it reads lines of JSON and answers each with a line.
"""
import json
import os
import sys

import vllm_engine as engine
import llama_beside as beside

ENGINES = {}


def version():
    import vllm
    return vllm.__version__


def make(folder, kind, seed):
    """As Hugging Face has it, and the weights as an array of their own."""
    import numpy as np
    import torch
    from safetensors.torch import save_file
    beside.make(folder, kind, seed)
    weights = np.load(f"{folder}/weights.npz")
    save_file({k: torch.from_numpy(weights[k]).bfloat16() for k in weights.files},
              f"{folder}/model.safetensors", {"format": "pt"})
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        config = json.load(f)
    config["architectures"] = [{"llama": "LlamaForCausalLM",
                                "qwen2": "Qwen2ForCausalLM"}[kind]]
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)


def llm_of(folder):
    if folder not in ENGINES:
        ENGINES[folder] = engine.make(folder, "bfloat16")
    return ENGINES[folder]


def tokens_of(run):
    return next(iter(run.finish().values()))


def begin(llm, tokens, n):
    """All tokens are in the cache, and the first of n is known."""
    engine.clear(llm)
    return engine.Run(llm, {"0": tokens}, n).step()


def fresh(folder, tokens, n):
    return tokens_of(begin(llm_of(folder), tokens, n))


def prefill(folder, tokens, base):
    """A capture of all of them."""
    import kvtool_capture
    llm = llm_of(folder)
    run = begin(llm, tokens, 2)
    kvtool_capture.capture_vllm(llm, base)
    tokens_of(run)


def go_on(folder, tokens, base, n):
    """After a cache from elsewhere, or with zeros in its place."""
    import kvtool_capture
    llm = llm_of(folder)
    run = begin(llm, tokens, n)
    engine.clear(llm)
    if base:
        kvtool_capture.restore_vllm(llm, base)
    return tokens_of(run)


if __name__ == "__main__":
    # what the engine prints is no answer
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    does = {"version": version, "make": make, "fresh": fresh, "prefill": prefill,
            "go_on": go_on}
    for line in sys.stdin:
        word, *args = json.loads(line)
        print(json.dumps(does[word](*args)), file=answers, flush=True)
