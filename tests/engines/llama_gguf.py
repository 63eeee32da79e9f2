#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
llama_gguf.py - kvtool size of a GGUF against what llama.cpp allocates for it

llama.cpp itself makes a model of the keys (llama_model_init_from_user, whose tensors
nobody fills) and a context; a callback sees each tensor of a cache that the graph of a
token names.  Each model is a process of its own: llama.cpp ends one where it refuses.
"""
import ctypes
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import gguf_headers as G
import llama_cpp as L
import llama_engine as E

CONTEXTS = [G.Context(), G.Context(3000, 1, "bf16", "f32"), G.Context(600, 3),
            G.Context(600, 3, unified=True), G.Context(3000, 2, swa_full=True, ubatch=64),
            G.Context(500, 2, "q8_0", "q4_0"),
            G.Context(500, 2, "q8_0", "q8_0"), G.Context(900, 1, flash=False)]

# what llama_model_init_from_user cannot make: layers that draft, RWKV with attention's keys
NOT_MADE = ("glm-dsa", "glm4moe, drafts", "rwkv6qwen2")


# ---- in a process of its own ---------------------------------------------------

class Init(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


FILL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@FILL
def fill(_tensor, _data):
    pass


class Engine(E.Engine):
    """The same calls on a model of keys alone; notes the tensors of its caches."""

    def __init__(self, path, c):
        E.ggml.gguf_init_from_file.restype = ctypes.c_void_p
        E.ggml.gguf_init_from_file.argtypes = [ctypes.c_char_p, Init]
        make = L.llama_cpp._lib.llama_model_init_from_user
        make.restype = ctypes.c_void_p
        make.argtypes = [ctypes.c_void_p, FILL, ctypes.c_void_p, L.llama_model_params]
        how = L.llama_model_default_params()
        how.n_gpu_layers = 0
        keys = E.ggml.gguf_init_from_file(path.encode(), Init(True, None))
        self.model = keys and make(keys, fill, None, how)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}: {''.join(E.said)}")
        self.tensors = {}
        self.callback = L.ggml_backend_sched_eval_callback(self.seen)
        p = L.llama_context_default_params()
        p.n_ctx, p.n_seq_max = c.tokens * c.sequences, c.sequences
        p.n_batch, p.n_ubatch = 2048, c.ubatch
        p.n_threads = p.n_threads_batch = 1
        p.type_k, p.type_v = IDS[c.k], IDS[c.v]
        p.swa_full, p.kv_unified = c.swa_full, c.unified
        p.flash_attn_type = int(c.flash)
        p.offload_kqv, p.cb_eval = False, self.callback
        self.context = L.llama_init_from_model(self.model, p)
        if not self.context:
            raise RuntimeError(f"llama.cpp makes no such context: {''.join(E.said)}")
        self.memory = L.llama_get_memory(self.context)

    def seen(self, address, _ask, _data):
        self.look(address, 6)
        return False

    def look(self, address, depth):
        t = E.Tensor.from_address(address)
        if t.view_src:
            self.look(t.view_src, depth)
        # Kimi Linear gives its convolution states another name
        name = t.name.decode().replace("conv_states_all-", "cache_r_l")
        if not t.view_src and CACHE.fullmatch(name):
            # an indexer's keys have the same name, and are narrower
            seen = self.tensors.setdefault(name, {})
            seen[address] = E.ggml.ggml_nbytes(address)
        for source in t.src:
            if source and depth:
                self.look(source, depth - 1)

    def compute(self, n, sequence=0):
        b = L.llama_batch_init(n, 0, 1)
        b.n_tokens = n
        for i in range(n):
            b.token[i], b.pos[i], b.n_seq_id[i] = i % 100, i, 1
            b.seq_id[i][0], b.logits[i] = sequence, i == n - 1
        code = L.llama_decode(self.context, b)
        L.llama_batch_free(b)
        if code:
            raise RuntimeError(f"llama_decode: {code}: {''.join(E.said)}")


CACHE = re.compile(r"cache_[kvrs]_l[0-9]+")
IDS = {**E.TYPES, "q4_1": 3, "q5_0": 6, "q5_1": 7, "iq4_nl": 20}


def one(path, context, state):
    c = G.Context(*json.loads(context))
    engine = Engine(path, c)
    engine.compute(20)
    if state:
        engine.save(state, list(range(20)))
    print(json.dumps({name: sorted(seen.values(), reverse=True)
                      for name, seen in engine.tensors.items()}))


# ---- what is proven --------------------------------------------------------------

def by_layer(tensors):
    """{name of a part: {layer: bytes}}, as gguf_headers has it"""
    parts = {"k": "k", "v": "v", "r": "conv", "s": "state"}
    out = {}
    for name, found in tensors.items():
        what, layer = name[len("cache_"):].rsplit("_l", 1)
        for part, nbytes in zip((parts[what], "indexer"), found):
            out.setdefault(part, {})[int(layer)] = nbytes
    return out


def fits(model, c):
    """llama.cpp wants heads of whole blocks, and latents of one type."""
    if "attention.key_length_mla" in model.keys and c.k != c.v:
        return False
    # of several sequences llama.cpp's own graph of it asserts
    if "kda.head_dim" in model.keys and c.sequences > 1:
        return False
    heads = [model.keys.get(f"attention.{w}_length", 32) for w in ("key", "value")]
    return all(h % G.BLOCKS[t][0] == 0 for h, t in zip(heads, (c.k, c.v)))


def allocated(proof, path, c, state=""):
    p = subprocess.run([sys.executable, __file__, "--one", path, json.dumps(c), state],
                       capture_output=True, text=True, timeout=120, check=False)
    if p.returncode:
        raise RuntimeError(p.stderr[-2000:])
    return json.loads(p.stdout.splitlines()[-1])


def check_sizes(row, proof, name, path, c):
    said = json.loads(proof.kvtool("size", "--json", *G.options(c), path).out)["llama_cpp"]
    got = by_layer(allocated(proof, path, c))
    for part, of in (("key_bytes", "k"), ("value_bytes", "v"), ("indexer_bytes",
                                                                "indexer")):
        row.equal(sum(k[part] for k in said["caches"]), sum(got.get(of, {}).values()),
                  f"{part}, {c}")
    row.equal(sum(k["state_bytes"] for k in said["caches"]),
              sum(got.get("conv", {}).values()) + sum(got.get("state", {}).values()),
              f"state_bytes, {c}")
    want = G.expected(G.MODELS[name], c)
    for i, layer in enumerate(want):
        row.equal({k: v.get(i, 0) for k, v in got.items() if v.get(i)},
                  {k: n for k, n in layer.items() if n}, f"layer {i}, {c}")


def sort_of(model):
    words = {layer.word for layer in model.layers}
    if words & {"state", "both"}:
        return "recurrent and hybrid"
    if "window" in words:
        return "windows"
    return "attention" if any(layer.v for layer in model.layers) else "latents"


def check_all(row, proof, names):
    for name in names:
        model = G.MODELS[name]
        path = os.path.join(proof.work, name.replace(" ", "-").replace(",", "") + ".gguf")
        G.write(path, model._replace(keys={**model.keys,
                                           "tokenizer.ggml.model": "no_vocab"}))
        for c in CONTEXTS:
            if fits(model, c):
                check_sizes(row, proof, name, path, c)


def main():
    from proof import Proof
    proof = Proof("llama.cpp", f"in llama-cpp-python {L.__version__}")
    for sort in "attention", "windows", "latents", "recurrent and hybrid":
        names = [n for n, m in G.MODELS.items() if n not in NOT_MADE and sort_of(m) == sort]
        with proof.row("kvtool size of a GGUF is what llama.cpp allocates",
                       f"{sort}: {', '.join(n.replace(',', '') for n in names)}") as row:
            check_all(row, proof, names)
    return proof.done()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:])
        sys.exit(0)
    sys.exit(main())
