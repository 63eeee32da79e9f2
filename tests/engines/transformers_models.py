# SPDX-License-Identifier: Apache-2.0
"""
transformers_models.py - the cache of every decoder class, and what kvtool says of it

Each class that generates text is built on torch's meta device with the default config of
its type, and runs a few tokens: no weights, only shapes.  kvtool reads the config alone.
It may refuse one, with the key that it does not know, but never say another cache.

    transformers_models.py FILE.jsonl.gz    writes the caches, as testdata has them
"""
import contextlib
import gzip
import itertools
import json
import os
import signal
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto import modeling_auto

from proof import Proof
from plain_files import write_json

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from held_caches import TOKENS, first_difference

MOST_SECONDS = 60
LEAST = 0.95	# of those that run, what kvtool must have computed
# of a config.json, what is said of other models, or nothing
LEFT_OUT = {"id2label", "label2id", "problem_type", "dtype", "vision_config",
            "audio_config"}


class TooLong(Exception):
    pass


def stop(*_):
    raise TooLong("takes too long")


def cleaned(config):
    return {k: cleaned(v) if isinstance(v, dict) else v for k, v in config.items()
            if v is not None and k not in LEFT_OUT}


def shape(tensor):
    return list(tensor.shape) + [str(tensor.dtype)]


def layer_of(layer):
    """Every tensor that a layer holds, and its window."""
    out = {"type": type(layer).__name__}
    for name, value in vars(layer).items():
        if name.startswith("_"):
            continue
        values = list(value.values()) if isinstance(value, dict) else value
        if torch.is_tensor(value):
            out[name] = shape(value)
        elif name == "sliding_window":
            out[name] = value
        elif isinstance(values, (list, tuple)) and values and \
                all(torch.is_tensor(v) for v in values):
            out[name] = [shape(v) for v in values]
    return out


def cache_of(config):
    """What a class made of a config; raises whatever the class does."""
    config._attn_implementation = "eager"
    with torch.device("meta"), torch.no_grad():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        out = model(input_ids=torch.zeros((1, TOKENS), dtype=torch.long), use_cache=True)
    cache = getattr(out, "past_key_values", None)
    return cache if cache is not None else getattr(out, "cache_params", None)


def case_of(name):
    """The config and the cache of a model type; None where it holds nothing."""
    signal.alarm(MOST_SECONDS)
    try:
        config = AutoConfig.for_model(name)
        text = json.loads(json.dumps(config.to_dict(), default=str))
        cache = cache_of(config)
    finally:
        signal.alarm(0)
    layers = [layer_of(one) for one in getattr(cache, "layers", [])]
    if not any(isinstance(v, list) for layer in layers for v in layer.values()):
        return None
    return {"model_type": name, "config": text, "cache": type(cache).__name__,
            "tokens": TOKENS,
            "layers": [[len(list(same)), layer]
                       for layer, same in itertools.groupby(layers)]}


def cases():
    """Of all types: (type, case or None, why it does not run)."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    signal.signal(signal.SIGALRM, stop)
    for name in sorted(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield name, case_of(name), ""
        except Exception as error:
            yield name, None, f"{type(error).__name__}: {str(error)[:60]}"


def write(path):
    with gzip.GzipFile(path, "wb", mtime=0) as out:
        for _, case, _ in cases():
            if case:
                case["config"] = cleaned(case["config"])
                out.write((json.dumps(case) + "\n").encode())


def check(proof, row, case):
    """One type: 'same', 'refused' or 'differs'."""
    path = os.path.join(proof.work, f"{case['model_type']}.json")
    write_json(path, case["config"])
    p = proof.kvtool("size", "--engine=transformers", f"--tokens={TOKENS}", "--json",
                     path)
    if p.code:
        print(f"# {case['model_type']}: refused: {p.err.strip()}")
        row.ok(p.code in (3, 4), f"{case['model_type']}: refused with a sentence", p)
        return "refused"
    why = first_difference(p.json, case["cache"], case["layers"])
    row.ok(not why, f"{case['model_type']}: layers, shapes and types", why)
    return "differs" if why else "same"


def main():
    proof = Proof("transformers", transformers.__version__)
    count = dict.fromkeys(("same", "refused", "differs"), 0)
    with proof.row("the cache that kvtool says is the one that a class makes",
                   "every decoder class, on the meta device") as row:
        for name, case, why in cases():
            if case:
                count[check(proof, row, case)] += 1
            elif why:
                print(f"# {name}: does not run here: {why}")
        runs = sum(count.values())
        row.ok(count["same"] >= LEAST * runs,
               f"{count['same']} of {runs} are computed, expected {LEAST:.0%}")
        row.figure(f"{count['same']} of {runs} the same, {count['refused']} refused")
    return proof.done()


if __name__ == "__main__":
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        sys.exit(write(sys.argv[1]))
    sys.exit(main())
