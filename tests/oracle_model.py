#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_model.py - --model of a dump: what it fills in, and what it refuses

State files of llama.cpp with a GGUF that has the keys of their model, and raw bytes with
a config.json, are described as they are with --heads, --head-dim and --layers.
"""
import json
import os

import gguf_headers as G
from oracle import kvtool, run, tap, write_bytes, write_json, write_text

STATES = "testdata/engines/llama.cpp"


def gguf(arch, layers, kv, dim, **more):
    return G.Model(arch, G.keys(layers, 128, 4, kv, **G.dims(dim), **more), [], 0)


LFM2 = {"shortconv__l_cache": 3}
SSM = {"ssm__conv_kernel": 4, "ssm__inner_size": 128, "ssm__state_size": 16,
       "ssm__time_step_rank": 8}
# file, its model, what says the same
FILES = [
    ("gemma2.fa0_u0.ggsn", gguf("gemma2", 4, 2, 64, attention__sliding_window=16),
     ["--heads=2", "--set=window=16"]),
    ("gemma2.fa0_u0.s1.ggsq", gguf("gemma2", 4, 2, 64, attention__sliding_window=16),
     ["--heads=2", "--set=window=16"]),
    ("qwen2vl.fa0_u0.ggsn", gguf("qwen2vl", 3, 2, 32), ["--heads=2"]),
    ("r64.q4_0_fa1.ggsn", gguf("llama", 4, 2, 64), ["--heads=2"]),
    ("lfm2.fa0_u0.ggsn", gguf("lfm2", 4, [0, 2, 0, 2], 32, **LFM2), ["--heads=2"]),
    ("lfm2.fa0_u0.s0.ggsq", gguf("lfm2", 4, [0, 2, 0, 2], 32, **LFM2), ["--heads=2"]),
    ("jamba.fa0_u0.ggsn", gguf("jamba", 4, [0, 2, 0, 2], 32, **SSM), ["--heads=2"]),
]


def states(folder):
    for name, model, said in FILES:
        path = G.write(os.path.join(folder, "model.gguf"), model)
        file = f"{STATES}/{name}"
        want = kvtool("describe", "--json", *said, file)
        got = kvtool("describe", "--json", f"--model={path}", file)
        tap.ok(want.code == 0 and (got.code, got.out) == (0, want.out),
               f"{name}: the GGUF says what {' '.join(said)} says", got.err or want.err)
        for key, value in ("attention.head_count_kv", 3), ("attention.key_length", 96):
            keys = {**model.keys, key: value, "attention.value_length": 96}
            if isinstance(model.keys["attention.head_count_kv"], list) and value == 3:
                keys[key] = [value if n else 0
                             for n in model.keys["attention.head_count_kv"]]
            G.write(path, model._replace(keys=keys))
            r = kvtool("describe", f"--model={path}", file)
            tap.ok(r.code == 3 and "but keys have" in r.err and
                   f"{keys['attention.key_length']}" in r.err and r.err.count("\n") == 1,
                   f"{name}: {key} of {value} is refused", r.err)
        r = kvtool("describe", "--heads=1", f"--model={G.write(path, model)}", file)
        tap.ok(r.code == 3 and "--model" in r.err and "has 1 heads" in r.err,
               f"{name}: --heads contradicts the GGUF", r.err)


def two_kinds(folder):
    """Layers with a window have other heads, told from the others by their width."""
    model = gguf("gemma4", 4, [2, 1, 2, 1], 64, attention__sliding_window=16,
                 attention__key_length_swa=64, attention__value_length_swa=64,
                 attention__sliding_window_pattern=[True, False, True, False])
    path = G.write(os.path.join(folder, "model.gguf"), model)
    said = kvtool("size", "--json", path)
    tap.equal([g["spec"] for g in json.loads(said.out)["groups"]],
              ["sliding-window:layers=2,heads=2,head-dim=64,window=16",
               "gqa:layers=2,heads=1,head-dim=64"], "two kinds of layers")
    r = kvtool("describe", "--json", f"--model={path}", f"{STATES}/gemma2.fa0_u0.ggsn")
    tap.ok(r.code == 0 and {g["heads"] for g in r.json["groups"]} == {2},
           "keys of 128 elements are of the kind that has them", r.err)
    wide = {**model.keys, "attention.head_count_kv": [2, 1, 2, 1],
            "attention.key_length": 128, "attention.value_length": 128}
    G.write(path, model._replace(keys=wide))
    r = kvtool("describe", f"--model={path}", f"{STATES}/gemma2.fa0_u0.ggsn")
    tap.ok(r.code == 3 and "give --heads" in r.err, "and are asked for where both do",
           r.err)


def raw(folder):
    """Bytes without a header, of 3 layers, 5 blocks, 16 slots, 4 heads of 8."""
    file, config = os.path.join(folder, "pool.bin"), os.path.join(folder, "config.json")
    write_bytes(file, bytes(i % 60 for i in range(3 * 5 * 16 * 2 * 4 * 8 * 2)))
    facts = {"model_type": "llama", "num_hidden_layers": 3, "num_attention_heads": 8,
             "num_key_value_heads": 4, "hidden_size": 64, "torch_dtype": "float16"}

    def model(**more):
        write_json(config, {**facts, **more})
        return config

    common = ["--layout=nhd", "--dtype=float16", "--block-size=16"]
    want = kvtool("describe", "--json", *common, "--layers=3", "--heads=4", "--head-dim=8",
                  file)
    for name, path in (("config.json", model()), ("its folder", folder)):
        got = kvtool("describe", "--json", *common, f"--model={path}", file)
        tap.ok(want.code == 0 and (got.code, got.out) == (0, want.out),
               f"raw bytes of {name}", got.err or want.err)
    for option, n, said in ("--heads", 2, "has 2 heads"), ("--head-dim", 4, "heads of 4"), \
            ("--layers", 5, "has 5 layers"):
        r = kvtool("describe", *common, f"--model={model()}", f"{option}={n}", file)
        tap.ok(r.code == 3 and "--model is" in r.err and said in r.err and
               r.err.count("\n") == 1, f"raw bytes: {option}={n} contradicts it", r.err)
    r = kvtool("describe", *common, f"--model={model(num_key_value_heads=7)}", file)
    tap.ok(r.code == 3 and r.err.count("\n") == 1, "bytes that no such model has", r.err)
    r = kvtool("guess", "--dtype=float16", "--block-size=16", f"--model={model()}", file)
    want = kvtool("guess", "--dtype=float16", "--block-size=16", "--layers=3", "--heads=4",
                  "--head-dim=8", file)
    tap.equal((r.code, r.out, r.err), (want.code, want.out, want.err), "guess takes it")
    r = kvtool("describe", *common, f"--model={folder}/none.json", file)
    tap.ok(r.code == 5 and r.err.count("\n") == 1, "a model that is not there", r.err)
    r = kvtool("describe", *common, "--model=llama-3.1-8b", file)
    tap.ok(r.code == 3 and r.err.count("\n") == 1, "a model by its name", r.err)


LLAMA = {"model_type": "llama", "num_hidden_layers": 3, "num_attention_heads": 8,
         "num_key_value_heads": 4, "hidden_size": 64}
MISTRAL = {"dim": 64, "n_layers": 3, "n_heads": 8, "n_kv_heads": 4, "head_dim": 8,
           "hidden_dim": 256, "vocab_size": 100, "norm_eps": 1e-5, "rope_theta": 1e4}


def safetensors(path, *types):
    """A header of tensors of so many bytes each; none of the data."""
    at, header = 0, {"__metadata__": {"format": "pt"}}
    for i, (kind, nbytes) in enumerate(types):
        header[f"t{i}"] = {"dtype": kind, "shape": [nbytes], "data_offsets":
                           [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header).encode()
    write_bytes(path, len(text).to_bytes(8, "little") + text)


def put(folder, name, value):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_text(path, value if isinstance(value, str) else json.dumps(value))
    return path


def sized(*args):
    r = kvtool("size", "--json", "--tp=1", *args)
    return (r.json, r) if r.code == 0 else (None, r)


def weights(root):
    for i, (types, want) in enumerate((
            ([("BF16", 4096), ("F32", 64)], "bfloat16"), ([("F16", 4096)], "float16"),
            ([("F32", 4096), ("BF16", 64)], "float32"),
            ([("I8", 9999), ("F16", 64), ("F32", 32)], "float16"),
            ([("U8", 9999), ("F8_E4M3", 50)], None))):
        folder = os.path.join(root, f"weights{i}")
        path = put(folder, "config.json", LLAMA)
        safetensors(os.path.join(folder, "model-00001-of-00002.safetensors"), *types)
        safetensors(os.path.join(folder, "model-00002-of-00002.safetensors"), ("F64", 8))
        for model in (folder, path):
            said, r = sized("--cache-dtype=bfloat16", model)
            tap.ok(said and said["dtype"] == want, f"the weights' type: {want}, {types}",
                   r.err)
        tap.equal([n for n in said["notes"] if n.startswith("dtype is missing")],
                  [f"dtype is missing: {want}, as the weights in "
                   "model-00001-of-00002.safetensors have it"] * (want is not None),
                  f"and so it is said: {want}")
        said, _ = sized(put(folder, "config.json", {**LLAMA, "torch_dtype": "float16"}))
        tap.equal(said["dtype"], "float16", "but not where the file has one")
    for bad in b"", b"x", bytes(8), b"\xff" * 8 + b"{}", (9).to_bytes(8, "little") + b"{":
        put(folder, "config.json", LLAMA)
        write_bytes(os.path.join(folder, "model-00001-of-00002.safetensors"), bad)
        said, r = sized("--cache-dtype=bfloat16", folder)
        tap.ok(said and said["dtype"] is None, f"damaged weights say nothing: {bad}", r.err)


def folders(root):
    want, _ = sized(put(root, "plain/config.json", {**LLAMA, "torch_dtype": "float16"}))
    hub = os.path.join(root, "models--org--name")
    put(hub, "snapshots/aaa/config.json", {**LLAMA, "torch_dtype": "float16"})
    same = lambda said: said and said["groups"] == want["groups"]
    tap.ok(same(sized(hub)[0]), "a hub's cache folder of one snapshot")
    put(hub, "snapshots/bbb/config.json", {**LLAMA, "num_hidden_layers": 9,
                                           "torch_dtype": "float16"})
    r = sized(hub)[1]
    tap.ok(r.code == 3 and "several snapshots" in r.err and r.err.count("\n") == 1,
           "of two snapshots none is chosen by chance", r.err)
    put(hub, "refs/main", "aaa\n")
    tap.ok(same(sized(hub)[0]), "but the one that main is at")
    for commit in "../../plain", "zzz", "":
        put(hub, "refs/main", commit)
        r = sized(hub)[1]
        tap.ok(r.code == 3 and "several snapshots" in r.err, f"main is at '{commit}'", r.err)
    ggufs = os.path.join(root, "ggufs")
    os.makedirs(ggufs)
    for name in "m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj-f16.gguf":
        G.write(os.path.join(ggufs, name), G.MODELS["llama"])
    r = kvtool("size", ggufs)
    tap.ok(r.code == 0 and ": llama, 3 layers" in r.out, "a folder of a GGUF", r.err)
    G.write(os.path.join(ggufs, "n.gguf"), G.MODELS["llama"])
    r = kvtool("size", ggufs)
    tap.ok(r.code == 3 and "several GGUFs" in r.err, "of two GGUFs", r.err)
    r = kvtool("size", put(root, "nothing/readme.txt", "x")[:-len("/readme.txt")])
    tap.ok(r.code == 5 and "without config.json" in r.err, "a folder of no model", r.err)


def params(root):
    want, _ = sized(put(root, "plain/config.json", {**LLAMA, "torch_dtype": "bfloat16"}))
    folder = os.path.join(root, "mistral")
    path = put(folder, "params.json", MISTRAL)
    safetensors(os.path.join(folder, "consolidated.safetensors"), ("BF16", 64))
    for model in (path, folder):
        said, r = sized(model)
        tap.ok(said and said["groups"] == want["groups"] and said["dtype"] == "bfloat16",
               f"params.json as {os.path.basename(model)}", r.err)
    said, r = sized(put(folder, "params.json", {
        **MISTRAL, "kv_lora_rank": 32, "q_lora_rank": 16, "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8, "v_head_dim": 8}))
    tap.ok(said and said["groups"][0]["spec"] == "mla:layers=3,latent=40",
           "params.json with latents", r.err)
    r = sized(put(folder, "params.json", {**MISTRAL, "magic_heads": 3}))[1]
    tap.ok(r.code == 4 and "magic_heads" in r.err and r.err.count("\n") == 1,
           "params.json with a key that is not known", r.err)
    r = kvtool("describe", path)
    tap.ok(r.code == 3 and "kvtool size takes it" in r.err, "describe says what it is",
           r.err)


run(states, two_kinds, raw, weights, folders, params)
