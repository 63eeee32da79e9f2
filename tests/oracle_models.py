#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_models.py - kvtool size --engine=transformers against caches of transformers

The caches are in testdata/transformers: of each model type the default config and, layer
by layer, what 7 tokens left in its cache.  Facts of a file are told in other ways, too,
which must change nothing; and changed, which must be seen.
"""
import copy
import gzip
import json
import os
import subprocess
import sys

from held_caches import TOKENS, first_difference
from oracle import DATA, KVTOOL, tap

LINES = os.path.join(os.path.dirname(DATA), "transformers", "caches.jsonl.gz")
# what a class does that no key says: its type has rules of its own
NAMED = {"deepseek_v4", "dots3_note", "mimo_v2_flash", "minimax"}


def size(config, *args):
    text = config if isinstance(config, str) else json.dumps(config)
    return subprocess.run([KVTOOL, "size", "--engine=transformers", f"--tokens={TOKENS}",
                           "--json", *args, "-"], input=text, capture_output=True,
                          text=True, timeout=600, check=False)


def differs(case, config, *args):
    p = size(config, *args)
    if p.returncode:
        return f"status {p.returncode}: {p.stderr.strip()}"
    return first_difference(json.loads(p.stdout), case["cache"], case["layers"])


def text_of(config):
    return config.get("text_config", config)


def check_plain(cases):
    for case in cases:
        why = differs(case, case["config"])
        tap.ok(not why, f"{case['model_type']}: layers, shapes and types", why)


def check_type(cases):
    """Another type, a type of the file, and one that transformers keeps as it is."""
    case = copy.deepcopy(next(c for c in cases if c["model_type"] == "llama"))
    for _, layer in case["layers"]:
        for key in ("keys", "values"):
            layer[key][-1] = "torch.float32"
    tap.equal(differs(case, case["config"], "--cache-dtype=float32"), "", "a type given")
    for key in ("dtype", "torch_dtype"):
        config = dict(case["config"], **{key: "float32"})
        tap.equal(differs(case, config), "", f"{key} of the file")


def check_other_words(cases):
    """Names that no class has, so that only keys can say it; configs in configs."""
    for case in cases:
        if case["model_type"] in NAMED:
            continue
        config = copy.deepcopy(case["config"])
        text_of(config)["model_type"] = config["model_type"] = "never_heard_of"
        # a default that a class adds, and a file need not have, is a fact of its name
        p = size(config)
        if not p.returncode:
            why = first_difference(json.loads(p.stdout), case["cache"], case["layers"])
            tap.ok(not why, f"{case['model_type']} by another name", why)
        else:
            tap.ok(p.returncode in (3, 4) and "never_heard_of" in p.stderr,
                   f"{case['model_type']} by another name is refused", p.stderr)


def check_nested(cases):
    for case in cases[::7]:
        text = text_of(case["config"])
        outer = {"model_type": "never_heard_of", "vision_config": {"hidden_size": 8}}
        for name in ("text_config", "llm_config", "language_config", "decoder"):
            why = differs(case, dict(outer, **{name: text}))
            tap.ok(not why, f"{case['model_type']} in {name}", why)
        why = differs(case, dict(outer, thinker_config={"text_config": text}))
        tap.ok(not why, f"{case['model_type']} two levels down", why)


def check_python(cases):
    """What Python's json writes beside JSON."""
    for case in cases[::9]:
        text = json.dumps(dict(case["config"], limits=[float("inf"), float("-inf"),
                                                       float("nan")]))
        text = text.replace('"limits"', '"time_step_limits"')
        why = differs(case, text)
        tap.ok(not why, f"{case['model_type']} with Infinity and NaN", why)


def check_unknown_key(cases):
    """A key that nobody knows, of a type that nobody knows: that key is named."""
    for case in cases[::3]:
        config = copy.deepcopy(case["config"])
        text_of(config)["model_type"] = config["model_type"] = "never_heard_of"
        if size(config).returncode:
            continue
        text_of(config)["kv_squeeze_ratio"] = 4
        p = size(config)
        tap.ok(p.returncode == 4 and "kv_squeeze_ratio may concern" in p.stderr,
               f"{case['model_type']} with a new key", p.stderr)
        text_of(config)["kv_squeeze_ratio"] = None
        tap.equal(size(config).returncode, 0, f"{case['model_type']}: not in use")


def check_faults(cases):
    """Each fact that is changed is seen: the comparison can fail."""
    for case in cases:
        for key in ("num_hidden_layers", "num_key_value_heads", "head_dim",
                    "kv_lora_rank", "sliding_window", "linear_num_value_heads",
                    "mamba_num_heads", "state_size"):
            config = copy.deepcopy(case["config"])
            n = text_of(config).get(key)
            if not isinstance(n, int) or (key == "sliding_window" and not any(
                    "sliding_window" in layer for _, layer in case["layers"])):
                continue
            if "kv_lora_rank" in text_of(config) and key in ("num_key_value_heads",
                                                             "head_dim"):
                continue
            text_of(config)[key] = 2 * n
            tap.ok(differs(case, config), f"{case['model_type']}: another {key} is seen")


with gzip.open(LINES, "rt") as f:
    CASES = [json.loads(line) for line in f]
tap.equal(len(CASES), 74, "model types")
check_plain(CASES)
check_type(CASES)
check_other_words(CASES)
check_nested(CASES)
check_python(CASES)
check_unknown_key(CASES)
check_faults(CASES)
sys.exit(tap.done())
