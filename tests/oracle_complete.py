#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_complete.py - fsck --model: what a model keeps and a dump has not

Dumps of caches of several kinds are whole.  Then something is taken out, and the layers,
requests or ranks that lack it must be named, by the rule that is for it; what is
rightly a part is no error.  Besides: what transformers made of hybrids.
"""
import json

import numpy as np

import gguf_headers
import oracle
from oracle import kvtool, read_json, refused, tap, write_json
from oracle_groups import numbers, write_raw

SAMPLES = f"{oracle.ENGINES}/transformers/5.24.0"
COMMON = {"hidden_size": 32, "num_attention_heads": 4, "torch_dtype": "bfloat16"}
GQA = {**COMMON, "model_type": "llama", "num_hidden_layers": 6, "num_key_value_heads": 2,
       "head_dim": 8}
MLA = {**COMMON, "model_type": "deepseek_v3", "num_hidden_layers": 6, "kv_lora_rank": 12,
       "qk_rope_head_dim": 4}
GDN = {**GQA, "model_type": "qwen3_next", "linear_num_key_heads": 2,
       "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
       "linear_conv_kernel_dim": 4,
       "layer_types": ["linear_attention", "linear_attention", "full_attention"] * 2}
BOTH = {**GQA, "model_type": "falcon_h1", "mamba_d_ssm": 32, "mamba_n_heads": 4,
        "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_d_conv": 4}
# a list of caches: how many layers there are, not which
LIST = {"dtype": "bfloat16", "layers": 6, "groups": [
    {"name": "attn", "spec": "gqa:layers=2,heads=2,head-dim=8"},
    {"name": "conv", "spec": "mamba2-conv:layers=4,heads=4,head-dim=8,groups=1,state-size=8,"
                             "kernel=4"},
    {"name": "ssm", "spec": "mamba2-ssm:layers=4,heads=4,head-dim=8,state-size=8"}]}
SIZES = {"num_blocks": 6, "block_size": 4}
STATE = {"dtype": "bfloat16", "tokens_per_slot": -1}
TABLES = {"A": [1, 3, 2], "B": [4, 5]}
STATES = {"A": [3], "B": [1]}


# ---- dumps ------------------------------------------------------------------

def attention(layers):
    return numbers((len(layers), 6, 4, 2, 16), 1) | 1, {
        "id": "attn", "kind": "full_attention", "layout": "nhd", "dtype": "bfloat16",
        "sizes": {**SIZES, "layers": len(layers), "num_kv_heads": 2, "head_dim": 8},
        "layer_ids": layers, "block_table": dict(TABLES)}


def latents(layers):
    return numbers((len(layers), 6, 4, 16), 2) | 1, {
        "id": "latent", "kind": "mla", "layout": "mla", "dtype": "bfloat16",
        "sizes": {**SIZES, "layers": len(layers), "content": 16},
        "layer_ids": layers, "block_table": dict(TABLES)}


def conv(layers):
    return numbers((len(layers), 6, 64, 3), 3) | 1, {
        "id": "conv", "kind": "mamba_conv", "layout": "conv-ds", **STATE,
        "sizes": {**SIZES, "layers": len(layers), "slots": 3, "num_kv_heads": 1,
                  "content": 64}, "layer_ids": layers, "block_table": dict(STATES)}


def ssm(layers):
    return numbers((len(layers), 6, 4, 64), 4) | 1, {
        "id": "ssm", "kind": "mamba_ssm", "layout": "ssm", **STATE, "total_kv_heads": 4,
        "sizes": {**SIZES, "layers": len(layers), "slots": 1, "num_kv_heads": 4,
                  "content": 64}, "layer_ids": layers, "block_table": dict(STATES)}


def write(path, parts, **rest):
    for _, group in parts:
        if "layer_ids" in group:
            group["layer_names"] = [f"model.layers.{l}.mixer" for l in group["layer_ids"]]
    # 14 bits: no number is NaN or infinite
    write_raw(path, [a & 0x3fff for a, _ in parts], [g for _, g in parts],
              **{"num_tokens": {"A": 11, "B": 6}, **rest})
    return path


def hybrid(states=(0, 1, 3, 4), full=(2, 5)):
    return [attention(list(full)), conv(list(states)), ssm(list(states))]


# ---- findings ---------------------------------------------------------------

def fsck(model, *args):
    """(status, {name: [text with place, ...]})"""
    r = kvtool("fsck", "--json", f"--model={model}", *args)
    found = {}
    try:
        for report in r.json["files"]:
            for f in report["findings"]:
                found.setdefault(f["name"], []).append(f"{f['at']} {f['problem']}")
    except ValueError:
        found = {"no JSON": [r.out, r.err]}
    return r, found


def sound(what, model, *args, notes=()):
    """Nothing is found but these notes."""
    r, found = fsck(model, *args)
    beside = {"stale.slots", "layers.chosen", "layers.gap"}
    tap.ok(r.code == 0 and set(found) - beside == set(notes),
           f"sound: {what}", f"{found}\n{r}")


def lacks(what, model, want, *args):
    """These errors and no other, each with a finding that has all the words."""
    r, found = fsck(model, *args)
    beside = {"stale.slots", "layers.chosen", "layers.gap", "model.part",
              "model.no-tables", "live.zero"}
    tap.ok(r.code == 1 and set(found) - beside == set(want) and
           all(any(all(w in text for w in words) for text in found.get(name, ()))
               for name, words in want.items()), f"lacks: {what}", f"{found}\n{r}")


def config(tmp, name, value):
    write_json(f"{tmp}/{name}.json", value)
    return f"{tmp}/{name}.json"


# ---- layers -----------------------------------------------------------------

def check_plain(tmp):
    for name, model, kind in (("gqa", GQA, attention), ("mla", MLA, latents)):
        model = config(tmp, name, model)
        sound(name, model, write(f"{tmp}/d.bin", [kind(list(range(6)))]))
        for gone in ([5], [0], [2, 3], [1, 4]):
            here = [l for l in range(6) if l not in gone]
            path = write(f"{tmp}/d.bin", [kind(here)])
            text = ", ".join(map(str, gone)) if gone != [2, 3] else "2 to 3"
            words = [f"{len(gone)} of 6 layers", "no keys or latents here: layer",
                     f" {text}"]
            lacks(f"{name} without {gone}", model, {"model.layer-missing": words}, path)
            sound(f"{name} without {gone}, a part", model, "--part", path,
                  notes=("model.part",))
        array, group = kind(list(range(4)))
        del group["layer_ids"]
        path = write(f"{tmp}/d.bin", [(array, group)])
        lacks(f"{name}, 4 layers that say no number", model,
              {"model.layer-missing": ["2 of 6", "4 to 5"]}, path)
        if name == "gqa":
            cut = f"{tmp}/cut.h5"
            path = write(f"{tmp}/d.bin", [kind(list(range(6)))])
            kvtool("slice", "-f", "--layers=0:4", "-o", cut, path)
            lacks("layers of a slice", model, {"model.layer-missing": ["4 to 5"]}, cut)
            sound("a slice, a part", model, "--part", cut, notes=("model.part",))
            kvtool("slice", "-f", "--component=k", "-o", cut, path)
            lacks("keys alone", model, {"model.layer-missing": ["values", "0 to 5"]}, cut)


def check_hybrid(tmp):
    model, path = config(tmp, "gdn", GDN), f"{tmp}/d.bin"
    sound("gdn", model, write(path, hybrid()))
    states = {"model.state-missing": ["4 of 6 layers", "0 to 1, 3 to 4"]}
    lacks("the paged half alone", model, states, write(path, hybrid()[:1]))
    lacks("the states alone", model, {"model.layer-missing": ["2 of 6", "2, 5"]},
          write(path, hybrid()[1:]))
    lacks("no convolutions", model, {"model.state-missing": ["convolution", "0 to 1"]},
          write(path, hybrid()[::2]))
    lacks("no convolutions in a part", model,
          {"model.state-missing": ["convolution", "0 to 1"]}, "--part", path)
    lacks("a state", model, {"model.state-missing": ["2 of 6", "3 to 4"]},
          write(path, hybrid((0, 1))))
    lacks("a paged layer", model, {"model.layer-missing": ["1 of 6", "layer 5"]},
          write(path, hybrid(full=(2,))))
    array, group = attention([0, 1])
    del group["layer_ids"]
    lacks("the paged half, without numbers", model, states, write(path, [(array, group)]))
    sound("the paged half as a part", model, "--part", path, notes=("model.part",))
    sound("without numbers", model, write(path, [(array, group)] + hybrid()[1:]))
    both = config(tmp, "both", BOTH)
    parts = [attention(list(range(6))), conv(list(range(6))), ssm(list(range(6)))]
    sound("keys, values and states in each layer", both, write(path, parts))
    lacks("an SSM state of a layer with all", both,
          {"model.state-missing": ["1 of 6", "SSM state", "layer 5"]},
          write(path, parts[:2] + [ssm(list(range(5)))]))
    count = config(tmp, "list", LIST)
    sound("a list of caches", count, write(path, hybrid()))
    lacks("states of a list", count,
          {"model.state-missing": ["SSM state: of 2 layers here, of 4"]},
          write(path, hybrid()[:2] + [ssm([0, 1])]))
    lacks("the paged half of a list", count,
          {"model.state-missing": ["of 0 layers here, of 4 in the model"]},
          write(path, hybrid()[:1]))


def check_gguf(tmp):
    more = {**gguf_headers.GATED, **gguf_headers.dims(8), **gguf_headers.EXPERTS}
    model = gguf_headers.write(f"{tmp}/m.gguf", gguf_headers.Model(
        "qwen3next", gguf_headers.keys(6, 32, 4, 2, full_attention_interval=3, **more),
        [], 0))
    sound("gguf", model, write(f"{tmp}/d.bin", hybrid()))
    lacks("the paged half of a gguf", model,
          {"model.state-missing": ["4 of 6 layers", "0 to 1, 3 to 4"]},
          write(f"{tmp}/d.bin", hybrid()[:1]))


# ---- requests ---------------------------------------------------------------

def check_requests(tmp):
    model, path = config(tmp, "gdn", GDN), f"{tmp}/d.bin"
    for g, name in enumerate(("attn", "conv", "ssm")):
        parts = hybrid()
        del parts[g][1]["block_table"]["B"]
        lacks(f"request B in {name}", model,
              {"model.request": [f"group={name},request=B", "6 tokens"]},
              write(path, parts))
    parts = hybrid()
    del parts[2][1]["block_table"]
    r, found = fsck(model, write(path, parts))
    tap.ok(r.code == 0 and list(found)[-1] == "model.no-tables", "no tables of a group",
           f"{found}\n{r}")


def check_zeros(tmp):
    model, path = config(tmp, "gdn", GDN), f"{tmp}/d.bin"
    for g, name in enumerate(("attn", "conv", "ssm")):
        for request in "AB":
            parts = hybrid()
            array, group = parts[g]
            array[1:, group["block_table"][request]] = 0
            lacks(f"zeros of {request} in {name}", model,
                  {"model.zero": [f"request={request}", f"of request {request}",
                                  f"group={name},layer=1"]}, write(path, parts))
            r = kvtool("fsck", path)
            tap.ok(r.code == 0 and "model.zero" not in r.out and "live.zero" in r.out,
                   f"zeros of {request} in {name}, and no model", r)
    for blocks in ([3, 1], slice(None)):
        parts = hybrid()
        parts[2][0][:, blocks] = 0
        lacks(f"zeros of all states in {blocks}", model,
              {"model.zero": ["group=ssm", "layers 0 to 3"]}, write(path, parts))
    parts = hybrid()
    for array, group in parts:
        del group["block_table"]
    parts[2][0][:] = 0
    lacks("zero states of nobody knows whom", model,
          {"model.zero": ["group=ssm", "not in group attn"]},
          write(path, parts, num_tokens={}))
    for array, _ in parts:
        array[:] = 0
    sound("an empty pool", model, write(path, parts, num_tokens={}))
    parts = hybrid()
    parts[2][1]["block_table"] = {"A": [2, 4, 3], "B": [0, 1]}
    parts[2][0][:, 3] = 0
    lacks("the last of several states", model,
          {"model.zero": ["request=A", "layers 0 to 3"]}, write(path, parts))


# ---- ranks ------------------------------------------------------------------

def stage(path, layers, pp):
    states = [l for l in layers if l % 3 < 2]
    parts = hybrid(states, [l for l in layers if l % 3 == 2])
    return write(path, [p for p in parts if p[1]["layer_ids"]], pp_size=2, pp_rank=pp)


def check_stages(tmp):
    model = config(tmp, "gdn", GDN)
    first = stage(f"{tmp}/p0.bin", range(3), 0)
    last = stage(f"{tmp}/p1.bin", range(3, 6), 1)
    sound("all stages", model, first, last)
    sound("a stage", model, first, notes=("model.part",))
    sound("the other stage", model, last, notes=("model.part",))
    lacks("a layer between stages", model,
          {"model.state-missing": ["1 of 6", "layer 3"]}, first,
          stage(f"{tmp}/q1.bin", (4, 5), 1))
    side = read_json(f"{tmp}/p1.json")
    for group in side["groups"]:
        del group["block_table"]["B"]
    del side["num_tokens"]["B"]
    write_json(f"{tmp}/p1.json", side)
    for files in ((first, last), (last, first)):
        lacks("a request of a stage", model,
              {"model.request": ["request=B", "6 tokens", "p0.bin", "p1.bin"]}, *files)
    lacks("a layer inside of a stage", model,
          {"model.state-missing": ["1 of 6", "layer 1"]},
          stage(f"{tmp}/q0.bin", (0, 2), 0))
    gqa = config(tmp, "gqa", GQA)
    ranks = {}
    for pp in range(2):
        whole = write(f"{tmp}/w.bin", [attention(list(range(3 * pp, 3 * pp + 3)))],
                      pp_size=2, pp_rank=pp)
        for tp in range(2):
            ranks[pp, tp] = f"{tmp}/pp{pp}tp{tp}.h5"
            kvtool("slice", "-f", "--tp-size=2", f"--tp-rank={tp}", "-o", ranks[pp, tp],
                   whole)
    sound("two ranks of two stages", gqa, *ranks.values())
    sound("two ranks of a stage", gqa, ranks[0, 0], ranks[0, 1], notes=("model.part",))
    sound("one rank", gqa, ranks[0, 0], notes=("model.part",))
    lacks("rank 1 of the last stage", gqa,
          {"model.layer-missing": ["rank 1 of 2", "3 to 5"]}, ranks[0, 0], ranks[0, 1],
          ranks[1, 0])
    lacks("rank 1 of all stages", gqa, {"ranks.missing": ["1 of 2 ranks"]}, ranks[0, 0],
          ranks[1, 0])


def check_ranks(tmp):
    model, ranks = config(tmp, "gqa", GQA), []
    for layers in ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4]):
        whole = write(f"{tmp}/w.bin", [attention(layers)])
        ranks += oracle.ranks_of(whole, 2, f"{tmp}/l{len(layers)}tp%d.h5")
    sound("two ranks", model, *ranks[:2])
    lacks("a layer on both ranks", model,
          {"model.layer-missing": ["rank 1 of 2", "layer 5"]}, *ranks[2:])
    lacks("a layer on one rank", model,
          {"model.layer-missing": ["rank 1 of 2", "layer 5"], "ranks.differ": []},
          ranks[0], ranks[3])


# ---- of transformers --------------------------------------------------------

SMALL = {"num_hidden_layers": 4, "hidden_size": 64, "torch_dtype": "bfloat16",
         "num_attention_heads": 4}
LINEAR = ["linear_attention", "full_attention"] * 2
MADE = {
    "qwen3_next": {**SMALL, "num_key_value_heads": 2, "head_dim": 16,
                   "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                   "linear_key_head_dim": 16, "linear_value_head_dim": 16,
                   "linear_conv_kernel_dim": 4, "layer_types": LINEAR},
    "jamba": {**SMALL, "num_attention_heads": 8, "num_key_value_heads": 2,
              "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8,
              "mamba_d_conv": 4, "mamba_expand": 1, "num_experts": 2,
              "expert_layer_period": 2, "expert_layer_offset": 1},
    "falcon_h1": {**SMALL, "num_key_value_heads": 2, "head_dim": 16, "mamba_d_ssm": 64,
                  "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1,
                  "mamba_d_state": 16, "mamba_d_conv": 4},
    "deepseek_v3": {**SMALL, "kv_lora_rank": 32, "qk_rope_head_dim": 8},
    "minimax": {**SMALL, "num_key_value_heads": 2, "head_dim": 16,
                "layer_types": LINEAR},
}


def check_samples(tmp):
    for name, made in MADE.items():
        model = config(tmp, name, {"model_type": name, **made})
        sound(f"transformers: {name}", model, f"{SAMPLES}/{name}.pt")
        more = config(tmp, "more", {**json.load(open(model)), "num_hidden_layers": 6,
                                    **({"layer_types": LINEAR + LINEAR[:2]}
                                       if "layer_types" in made else {})})
        r, found = fsck(more, f"{SAMPLES}/{name}.pt")
        tap.ok(r.code == 1 and set(found) & {"model.layer-missing",
                                             "model.state-missing"},
               f"transformers: {name} of more layers", f"{found}\n{r}")
    refused("--part of no model", 2, "--model", "fsck", "--part", f"{SAMPLES}/jamba.pt")


oracle.run(check_plain, check_hybrid, check_gguf, check_requests, check_zeros,
           check_stages, check_ranks, check_samples)
