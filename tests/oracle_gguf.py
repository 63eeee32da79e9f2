#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_gguf.py - kvtool size of GGUF headers, against layers that are listed by hand

Then headers that are damaged: each gets one sentence and status 3.
"""
import os
import random

import gguf_headers as G
from gguf_headers import ARRAY, BOOL, F32, I32, I64, STRING, U8, U16, U32, U64, Header
from oracle import kvtool, run, tap, write_bytes

rng = random.Random(9)
LLAMA = G.MODELS["llama"]
SHAPES = {"full": False, "both": False, "window": True}


# ---- sizes ---------------------------------------------------------------------

def context(model):
    heads = [model.keys.get(f"attention.{w}_length", 32) for w in ("key", "value")]
    k = rng.choice(list(G.BLOCKS))
    v = k if "attention.key_length_mla" in model.keys else rng.choice(list(G.BLOCKS))
    if any(h % 32 for h in heads):
        k = v = "f16"
    flash = G.BLOCKS[v][0] > 1 or rng.random() < 0.6
    return G.Context(rng.choice([1, 255, 256, 257, 1000, 5000, 131072]),
                     rng.choice([1, 2, 3, 8]), k, v, rng.random() < 0.4,
                     rng.random() < 0.3, rng.choice([1, 64, 512, 2048]), flash)


def check(name, model, path):
    for c in [G.Context()] + [context(model) for _ in range(5)]:
        r = kvtool("size", "--json", *G.options(c), path)
        if not tap.equal(r.code, 0, f"{name}: {c}"):
            print(f"# {r.err}")
            continue
        said = r.json["llama_cpp"]
        want = G.expected(model, c)
        got = {part: sum(k[part] for k in said["caches"]) for part in
               ("key_bytes", "value_bytes", "indexer_bytes", "state_bytes")}
        tap.equal(list(got.values()),
                  [sum(x[p] for x in want) for p in ("k", "v", "indexer")] +
                  [sum(x["conv"] + x["state"] for x in want)], f"{name}: bytes, {c}")
        tap.equal(said["bytes"], sum(got.values()), f"{name}: the sum, {c}")
        tap.equal(said["token_bytes"],
                  sum(G.row(c.k, x.k) + G.row(c.k, x.indexer) +
                      G.row(c.v, x.v if c.flash or not x.v else
                            max(y.v for y in model.layers))
                      for x in model.layers if x.word != "window"),
                  f"{name}: a token, {c}")


def elements(spec):
    """Of a token, or of a state, in one layer."""
    kind, words = spec.split(":")
    a = {k: int(v) for k, v in (w.split("=") for w in words.split(","))}
    if kind in ("mla", "index-key"):
        return "token", a["latent"]
    if kind in ("gqa", "sliding-window", "chunked-local"):
        return "token", a["heads"] * (a["head-dim"] + a.get("head-dim-v", a["head-dim"]))
    taps = a.get("kernel", 1) - 1
    return "state", {
        "mamba1-conv": lambda: taps * a["inter"], "short-conv": lambda: taps * a["inter"],
        "mamba1-ssm": lambda: a["inter"] * a["state-size"],
        "mamba2-conv": lambda: taps * (a["heads"] * a["head-dim"] +
                                       2 * a["groups"] * a["state-size"]),
        "mamba2-ssm": lambda: a["heads"] * a["head-dim"] * a["state-size"],
        "gdn-conv": lambda: taps * (a["heads"] * a["head-dim"] +
                                    2 * a["key-heads"] * a["key-dim"]),
        "gdn-ssm": lambda: a["heads"] * a["head-dim"] * a["key-dim"],
        "kda-conv": lambda: taps * 3 * a["heads"] * a["head-dim"],
        "kda-ssm": lambda: a["heads"] * a["head-dim"] ** 2,
        "linear-attention": lambda: a["heads"] * a["head-dim"] ** 2}[kind]()


def check_groups(name, model, path):
    """The groups that other engines would have are of the same elements."""
    said = kvtool("size", "--json", path).json
    sums = {"token": 0, "state": 0}
    for group in said["groups"]:
        what, n = elements(group["spec"])
        sums[what] += n * group["layers"]
    tap.equal(sums, {"token": sum(x.k + x.v + x.indexer for x in model.layers),
                     "state": sum(x.conv + x.state for x in model.layers)},
              f"{name}: groups")
    windows = {w.split("=")[1] for g in said["groups"] for w in g["spec"].split(",")
               if w.startswith("window=")}
    tap.equal(windows, {str(model.window)} if model.window else set(),
              f"{name}: the window of groups")


def check_orders(name, model, folder):
    want = kvtool("size", "--json", G.write(os.path.join(folder, "m.gguf"), model)).out
    for version, big in (2, False), (2, True), (3, True):
        path = G.write(os.path.join(folder, "m.gguf"), model, version=version, big=big)
        tap.equal(kvtool("size", "--json", path).out, want,
                  f"{name}: version {version}, {'big' if big else 'little'} endian")


# ---- what is refused --------------------------------------------------------------

def refused(name, path, words, code=3):
    r = kvtool("size", path)
    tap.ok(r.code == code and r.out == "" and r.err.count("\n") == 1 and words in r.err,
           f"refused: {name}", f"status {r.code}, wanted {code}: '{words}' in: {r.err}")


def put(folder, data):
    path = os.path.join(folder, "bad.gguf")
    write_bytes(path, data)
    return path


def changed(**more):
    """The small llama with other keys; None: without it."""
    keys = {k: v for k, v in {**LLAMA.keys, **{n.replace("__", "."): v for n, v in
                                               more.items()}}.items() if v is not None}
    return LLAMA._replace(keys=keys)


def hostile(folder):
    good = G.header(LLAMA)
    h = Header()
    n = lambda kind, value: h.number(kind, value)
    start = b"GGUF" + n(U32, 3)
    for name, data, words in (
            ("no keys and no end", start, "cut or damaged"),
            ("2^63 keys", start + n(U64, 0) + n(U64, 1 << 63), "cut or damaged"),
            ("2^64 - 1 keys", start + n(U64, 0) + n(U64, (1 << 64) - 1), "keys"),
            ("more keys than there are", good.bytes()[:16] + n(U64, 40) +
             good.bytes()[24:], "cut or damaged"),
            ("a name of 2^63 bytes", start + n(U64, 0) + n(U64, 1) + n(U64, 1 << 63) +
             bytes(64), "cut or damaged"),
            ("an empty name", start + n(U64, 0) + n(U64, 1) + n(U64, 0) + bytes(64),
             "damaged")):
        refused(name, put(folder, data), words)
    for name, value, words in (
            ("a string past the end", n(U32, STRING) + n(U64, 1000), "cut or damaged"),
            ("a string of 2^64 - 1", n(U32, STRING) + n(U64, (1 << 64) - 1), "cut or"),
            ("an array of 2^63", n(U32, ARRAY) + n(U32, U64) + n(U64, 1 << 63), "cut or"),
            ("an array of 2^61 strings", n(U32, ARRAY) + n(U32, STRING) + n(U64, 1 << 61),
             "cut or damaged"),
            ("an array of arrays", n(U32, ARRAY) + n(U32, ARRAY) + n(U64, 1) + n(U32, U8) +
             n(U64, 1) + b"x", "array of arrays"),
            ("type 13", n(U32, 13) + bytes(8), "type 13"),
            ("an array of type 99", n(U32, ARRAY) + n(U32, 99) + n(U64, 0), "type 99")):
        refused(name, put(folder, G.header(LLAMA).raw("general.x", value).bytes()), words)
    refused("a key twice", put(folder, G.header(LLAMA).add("llama.block_count", 3).bytes()),
            "llama.block_count is there twice")
    for version in 0, 1, 4, 99, 65536:
        refused(f"version {version}", put(folder, b"GGUF" + n(U32, version) + bytes(16)),
                "version", 4)
    whole = good.bytes()
    for cut in rng.sample(range(4, len(whole)), 40):
        refused(f"the first {cut} bytes of {len(whole)}", put(folder, whole[:cut]),
                "cut or damaged" if cut >= 24 else "")


def facts(folder):
    for name, model, words in (
            ("no architecture", None, "general.architecture"),
            ("no layers", changed(block_count=None), "llama.block_count"),
            ("0 layers", changed(block_count=0), "llama.block_count"),
            ("2^31 layers", changed(block_count=1 << 31), "expected 0 to 512"),
            ("-1 layers", changed(block_count=G.Typed(I32, -1)), "is -1"),
            ("2^64 - 1 layers", changed(block_count=G.Typed(U64, (1 << 64) - 1)),
             "no whole number"),
            ("layers as a word", changed(block_count="three"), "no whole number"),
            ("layers as a fraction", changed(block_count=3.0), "no whole number"),
            ("layers as a list", changed(block_count=[3]), "is an array"),
            ("heads of two layers", changed(attention__head_count_kv=[2, 2]),
             "2 entries, but llama.block_count is 3"),
            ("heads of five layers", changed(attention__head_count_kv=[2] * 5),
             "5 entries"),
            ("heads as words", changed(attention__head_count_kv=["a", "b", "c"]),
             "no whole number"),
            ("no heads", changed(attention__head_count=0, attention__head_count_kv=0),
             "none of its layers"),
            ("2^20 heads of 2^20", changed(attention__head_count_kv=1 << 20,
                                           attention__key_length=1 << 20), "no model"),
            ("half of a latent", changed(attention__key_length_mla=64), "one is missing"),
            ("the second of two files", changed(**{"split.no": 1, "split.count": 2}),
             "give the first"),
            ("a window that is missing", G.MODELS["gpt-oss"]._replace(keys={
                k: v for k, v in G.MODELS["gpt-oss"].keys.items()
                if k != "attention.sliding_window"}), "sliding_window is missing"),
            ("a pattern that is missing", G.MODELS["step35"]._replace(keys={
                k: v for k, v in G.MODELS["step35"].keys.items()
                if k != "attention.sliding_window_pattern"}), "sliding_window_pattern"),
            ("a state that is missing", G.MODELS["mamba2"]._replace(keys={
                k: v for k, v in G.MODELS["mamba2"].keys.items()
                if k != "ssm.state_size"}), "mamba2.ssm.state_size")):
        path = put(folder, G.header(model).bytes() if model else
                   Header().add("general.name", "x").bytes())
        refused(name, path, words)
    for arch, words in (("bert", "keeps no cache"), ("clip", "not known"),
                        ("deepseek4", "not known"), ("t5", "not known")):
        refused(arch, put(folder, G.header(LLAMA._replace(arch=arch)).bytes()), words, 4)
    new = LLAMA._replace(arch="newllm")
    r = kvtool("size", put(folder, G.header(new).bytes()))
    tap.ok(r.code == 0 and "architecture newllm is not known: taken as full attention"
           in r.out, "an architecture that is not known, all of whose keys are", r.err)
    for key in ("attention.sliding_window", "ssm.state_size", "attention.magic", "x"):
        refused(f"newllm with {key}", put(folder, G.header(new._replace(
            keys={**new.keys, key: 8})).bytes()),
            f"its key newllm.{key} may concern the cache", 4)


def lengths(folder):
    """A vocabulary of some MiB is walked over; a header of more than 64 MiB is not."""
    path = os.path.join(folder, "long.gguf")
    want = kvtool("size", "--json", G.write(path, LLAMA)).out
    words = [f"word{i:08}" for i in range(100000)]
    keys = {**LLAMA.keys, "tokenizer.ggml.tokens": words}
    order = {k: keys[k] for k in sorted(keys, reverse=True)}     # the words come first
    G.write(path, LLAMA._replace(keys=order))
    tap.ok(os.path.getsize(path) > 1 << 20, "a header of more than 1 MiB")
    tap.equal(kvtool("size", "--json", path).out, want, "its sizes are the same")
    with open(path, "ab") as f:
        f.truncate(1 << 34)
    tap.equal(kvtool("size", "--json", path).out, want, "nor is the rest of it read")
    h = G.header(LLAMA)
    h.raw("general.x", h.number(U32, ARRAY) + h.number(U32, U8) + h.number(U64, 65 << 20))
    with open(path, "wb") as f:
        f.write(h.bytes())
        f.truncate(80 << 20)
    refused("a header of 65 MiB", path, "longer than 64 MiB", 4)
    first = changed(**{"split.no": G.Typed(U16, 0), "split.count": G.Typed(U16, 2)})
    tap.equal(kvtool("size", "--json", G.write(path, first)).out, want,
              "the first of two files")


def main(folder):
    for name, model in G.MODELS.items():
        path = G.write(os.path.join(folder, "model.gguf"), model)
        check(name, model, path)
        check_groups(name, model, path)
    for name in rng.sample(sorted(G.MODELS), 8):
        check_orders(name, G.MODELS[name], folder)
    hostile(folder)
    facts(folder)
    lengths(folder)


run(main)
