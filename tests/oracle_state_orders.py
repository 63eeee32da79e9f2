#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_state_orders.py - one recurrent state, as each engine stores it, is equal in diff

The update rules of a gated delta net, of Mamba and Mamba 2 and of a short convolution are
run here once for each engine, in the order of axes that its state has, on small whole
numbers, so that all of them compute the same values exactly.  What the engines themselves saved of one
model and the same tokens (testdata) differs by rounding alone.  Then one element is
changed, and diff must say where it is; and where the order cannot be known, or is known
not to be the same, nothing may be compared.
"""
import json
import os
import random
import struct

import h5py
import numpy as np

import oracle
from foreign_files import (Object, Tensor, ggsn_bytes, ggsq_bytes, recurrent_bytes,
                           safetensors_bytes, torch_bytes)
from oracle import (SHARE, kvtool, patch, read_bytes, read_json, runs, tap, write_bytes,
                    write_json)
from oracle_groups import write_raw

CASES, TOKENS, BLOCK, OWN = 40 // SHARE, 7, 4, "--common"
HERE = f"{oracle.ENGINES}/recurrent"


# ---- the update rules, each in the order of the engine's axes ---------------

def delta_keys_first(q):
    """transformers: state[head, k, v]"""
    s = np.zeros((q.heads, q.dk, q.dv))
    for t in range(TOKENS):
        for h in range(q.heads):
            s[h] *= q.gate[t, h]
            memory = (s[h] * q.k[t, h, :, None]).sum(0)
            s[h] += np.outer(q.k[t, h], (q.v[t, h] - memory) * q.beta[t, h])
    return s


def delta_values_first(q):
    """vLLM, mlx-lm and llama.cpp: state[head, v, k], a row for each element of v"""
    s = np.zeros((q.heads, q.dv, q.dk))
    for t in range(TOKENS):
        for h in range(q.heads):
            for j in range(q.dv):
                row = s[h, j] * q.gate[t, h]
                new = (q.v[t, h, j] - row @ q.k[t, h]) * q.beta[t, h]
                s[h, j] = row + new * q.k[t, h]
    return s


def mamba(q):
    """all of them: state[head, x, B]"""
    s = np.zeros((q.heads, q.dv, q.dk))
    for t in range(TOKENS):
        s = s * q.gate[t, :, None, None] + q.v[t][:, :, None] * q.k[t][:, None, :]
    return s


class Sequence:
    """What a layer reads: its shape, and numbers for each token."""

    def __init__(self, rng, rule, heads, dk, dv, groups):
        draw = np.random.default_rng(rng.randint(0, 1 << 30))
        self.rule, self.heads, self.dk, self.dv, self.groups = rule, heads, dk, dv, groups
        self.k = draw.integers(-1, 2, (TOKENS, heads, dk)).astype(float)
        self.v = draw.integers(-3, 4, (TOKENS, heads, dv)).astype(float)
        self.gate = draw.choice([0.5, 1.0], (TOKENS, heads))
        self.beta = draw.choice([0.5, 1.0], (TOKENS, heads))
        wide = heads * dv
        self.parts = {"delta": [("q", groups * dk), ("k", groups * dk), ("v", wide)],
                      "mamba2": [("x", wide), ("B", groups * dk), ("C", groups * dk)],
                      "mamba1": [("x", wide)], "conv": [("x", wide)]}[rule]
        channels = sum(n for _, n in self.parts)
        self.inputs = draw.integers(-9, 10, (TOKENS, channels)).astype(float)

    def state(self, keys_first):
        if self.rule == "conv":
            return None
        if self.rule == "delta":
            return (delta_keys_first if keys_first else delta_values_first)(self)
        return mamba(self)

    def conv(self, taps):
        """[taps, channels], the newest last"""
        return self.inputs[-taps:]


def random_layers(rng, rule, square):
    dk, dv = rng.choice((2, 4, 6)), rng.choice((2, 3, 4, 8))
    heads, groups = rng.choice((2, 4)), rng.choice((1, 2))
    dk = dv if square else dk if dk != dv else dk + 1
    if rule in ("mamba1", "conv"):
        heads, dv, groups = 8, 1, 1
    if rule == "delta":
        groups = heads          # llama.cpp has an order of its own where they differ
    return [Sequence(rng, rule, heads, dk, dv, groups) for _ in range(rng.choice((1, 3)))]


# ---- the files of the engines -----------------------------------------------

def f32(a):
    return np.ascontiguousarray(a, dtype=np.float32)


def transformers(path, layers, numbers, kernel, alone=False):
    """A DynamicCache of 5.x, [channels, taps]; what is between is attention."""
    zeros = Tensor("FloatStorage", np.zeros((1, 1, TOKENS, 2), np.float32))
    held = [Object("DynamicLayer", {"keys": zeros, "values": zeros})
            for _ in range(max(numbers) + 2 - alone)]
    for n, q in zip(numbers, layers):
        conv, s, states = f32(q.conv(kernel).T[None]), q.state(True), {}
        if s is not None:
            s = s[:, 0] if q.rule == "mamba1" else s
            states[0] = Tensor("FloatStorage", f32(s[None]))
        held[n] = Object("LinearAttentionLayer", {
            "conv_states": {0: Tensor("FloatStorage", conv)}, "recurrent_states": states})
    write_bytes(path, torch_bytes(Object("DynamicCache", {"layers": held})))


def mlx(path, layers, numbers, kernel):
    """mlx-lm 0.32: [taps - 1, channels]"""
    tensors, meta, scalars = {}, {"2.0": ""}, []
    by_number = dict(zip(numbers, layers))
    for n in range(max(numbers) + 2):
        meta[f"1.{n}"] = "ArraysCache" if n in numbers else "KVCache"
        if n not in numbers:
            tensors |= {f"{n}.{i}": ("F32", np.zeros((1, 1, 8, 2), np.float32))
                        for i in range(2)}
            tensors[f"{n}.2"] = "I32", np.array(TOKENS, np.int32)
            scalars.append(f"{n}.2")
            continue
        q = by_number[n]
        tensors[f"{n}.0.0"] = ("F32", f32(q.conv(kernel - 1)[None]))
        s = q.state(False)
        if s is not None:
            s = s[:, 0] if q.rule == "mamba1" else s
            tensors[f"{n}.0.1"] = ("F32", f32(s[None]))
        tensors |= {f"{n}.{i}": ("F32", np.zeros(0, np.float32)) for i in (1, 2)}
    for i, name in enumerate(scalars, 1):
        meta |= {f"2.{i}.0": name, f"2.{i}.1": "scalar"}
    write_bytes(path, safetensors_bytes(tensors, meta))


def placed(rng, states, blocks, at):
    """The state in one block of a pool; others hold something else."""
    pool = np.random.default_rng(rng.randint(0, 1 << 30)).standard_normal(
        (len(states), blocks, *states[0].shape))
    pool[:, at] = states
    return f32(pool)


def vllm(path, layers, numbers, kernel, rng, how, said=True, shape=True, rank=None,
         tokens=TOKENS, ids=None):
    """
    Pools of blocks; the newest state of a request is in the last of its table.  Returns
    where its elements are.
    """
    blocks, at = 5, rng.randint(1, 4)
    entries = rng.choice(([at], [0, at]))
    ids = ids or list(range(blocks))
    q, (size, this) = layers[0], rank or (1, 0)
    heads = slice(this * q.heads // size, (this + 1) * q.heads // size)
    channels, parts, here, there = [], [], 0, 0
    for name, n in q.parts:
        own = n // size
        channels += range(there + this * own, there + (this + 1) * own)
        parts.append({"name": name, "start": here, "length": own,
                      "global_start": there + this * own})
        here, there = here + own, there + n
    conv = [q.conv(kernel - 1)[:, channels] for q in layers]
    conv = placed(rng, [c if how == "sd" else c.T for c in conv], blocks, at)
    names = [f"model.layers.{n}.mixer" for n in numbers]
    sizes = oracle.sizes(L=len(layers), B=blocks, S=BLOCK)
    same = {"dtype": "float32", "tokens_per_slot": -1, "layer_names": names, "layer_ids": numbers,
            "block_table": {"0": [ids[e] for e in entries]}, "block_ids": ids}
    groups = [{"id": "conv", "kind": "mamba_conv", "layout": f"conv-{how}", **same,
               "sizes": sizes, "head_count": 1, "head_start": 0,
               "total_kv_heads": 1, "replicas": 1, "state_shape": [here, kernel - 1]}]
    arrays = [conv]
    if said:
        groups[0]["content"] = parts
    if q.rule != "conv":
        s = [q.state(False)[heads] for q in layers]
        arrays.append(placed(rng, s, blocks, at))
        groups.append({"id": "ssm", "kind": "mamba_ssm", "layout": "ssm", **same,
                       "sizes": {**sizes, "num_kv_heads": len(s[0]),
                                 "content": int(s[0][0].size)},
                       "head_start": heads.start, "total_kv_heads": q.heads})
        if shape:
            s = s[0].shape
            groups[1]["state_shape"] = [s[0], s[2]] if q.rule == "mamba1" else list(s)
    more = {} if size == 1 else {"tp_size": size, "tp_rank": this}
    write_raw(path, arrays, groups, num_tokens={"0": tokens}, null_block=ids[0], **more)
    found, base = [], 0
    for a in arrays:
        n = a[0, 0].nbytes
        found += [base + (l * blocks + at) * n + 4 * i for l in range(len(layers))
                  for i in range(n // 4)]
        base += a.nbytes
    return found


def llama(path, layers, kernel, arch="", version=10):
    """Rows [channel][tap] and [head][v][k]; without a model a file of one sequence.
    Returns where its elements are."""
    r = f32([q.conv(kernel - 1).T.reshape(1, -1) for q in layers])
    s = [q.state(False) for q in layers]
    s = f32([[[]] for _ in s] if s[0] is None else [x.reshape(1, -1) for x in s])
    data = recurrent_bytes([(TOKENS - 1, [0])], r, s, layers=9)
    with open(path, "wb") as f:
        f.write(ggsn_bytes(data, version=version, arch=arch) if arch else
                ggsq_bytes(data, version=3 if version > 9 else 2))
        end = f.tell()
    found = []
    for row in reversed([*r, *s]):      # each after a type and a length
        found += range(end - row.nbytes, end, 4)
        end -= row.nbytes + 12
    return found


# ---- what diff says ---------------------------------------------------------

def diff(a, b, *options):
    return kvtool("diff", "--exact", *options, a, b)


def equal(what, a, b, *options):
    for x, y in ((a, b), (b, a)):
        r = diff(x, y, *options)
        if not tap.ok(r.code == 0, f"{what}: {os.path.basename(x)} and "
                      f"{os.path.basename(y)}", r):
            return


def check_found(what, a, b, at, *options):
    """b with the element at that offset changed: it is the only one, and it is found."""
    patch(b, at, struct.pack("<f", 77.0))
    r = diff(a, b, "--json", *options)
    found = [g for g in json.loads(r.out)["groups"] if g["result"] == "differs"] \
        if r.code == 1 else []
    tap.ok(len(found) == 1 and found[0]["metrics"]["different"] == 1 and
           found[0]["first"]["b"]["offset"] == at and
           found[0]["first"]["b"]["value"] == 77.0, f"{what}: where it differs", r)
    first = found[0]["first"] if found else None
    data = read_bytes(a)
    tap.ok(first and struct.unpack_from("<f", data, first["a"]["offset"])[0] ==
           first["a"]["value"], f"{what}: and what A has there", r)
    tap.ok(first and (first["head"] is None or first["dim"] == first["a"]["dim"]),
           f"{what}: it is called what A calls it", r)


def check_engines(tmp, rng, number):
    rule = ("delta", "mamba2", "mamba1", "conv")[number % 4]
    square = rule == "delta" and number % 8 == 0
    layers = random_layers(rng, rule, square)
    kernel = rng.choice((2, 3, 4))
    numbers = list(range(len(layers)))
    what = f"{number}: {rule} {layers[0].heads} x {layers[0].dv} x {layers[0].dk}"
    hf, ml, v, lc = (f"{tmp}/{n}" for n in ("hf.pt", "mlx.safetensors",
                                            "vllm.bin", "llama.ggsn"))
    transformers(hf, layers, numbers, kernel)
    mlx(ml, layers, numbers, kernel)
    in_vllm = vllm(v, layers, numbers, kernel, rng, rng.choice(("sd", "ds")))
    in_llama = llama(lc, layers, kernel, {"delta": "qwen3next", "mamba2": "mamba2",
                               "mamba1": "mamba", "conv": "lfm2"}[rule])
    for x, y in ((hf, v), (hf, lc), (v, lc), (ml, v)):
        equal(what, x, y, OWN)
    if not square:
        equal(what, hf, ml, OWN)
    kvtool("convert", "-f", hf, f"{tmp}/hf.h5")
    kvtool("convert", "-f", v, f"{tmp}/vllm.h5")
    equal(what, f"{tmp}/hf.h5", f"{tmp}/vllm.h5", OWN)
    equal(what, f"{tmp}/hf.h5", lc, OWN)
    check_found(what, hf, lc, rng.choice(in_llama), OWN)
    check_found(what, hf, v, rng.choice(in_vllm), OWN)


# ---- what cannot be known ---------------------------------------------------

def refused(what, a, b, part, *options, code=3):
    for x, y in ((a, b), (b, a)):
        r = diff(x, y, *options)
        tap.ok(r.code == code and part in r.err, what, r)


def check_unknown(tmp, rng):
    hf, v, lc = f"{tmp}/hf.pt", f"{tmp}/v.bin", f"{tmp}/l.ggsn"
    for rule, order in (("delta", "kv"), ("mamba2", "vk")):
        layers = [Sequence(rng, rule, 4, 4, 4, 4)]
        transformers(hf, layers, [1], 4)
        vllm(v, layers, [1], 4, rng, "sd", said=False)
        refused(f"{rule}: 4 x 4 and nothing tells which", hf, v, "--set recurrent=kv", OWN)
        equal(f"{rule}: told", hf, v, OWN, "--set", f"recurrent={order}")
        other = {"kv": "vk", "vk": "kv"}[order]
        r = diff(hf, v, OWN, "--set", f"recurrent={other}")
        tap.ok(r.code == 1, f"{rule}: told wrong, and it differs", r)
        llama(lc, layers, 4)
        refused(f"{rule}: a file of one sequence", hf, lc, "give --set arch=", OWN)
        arch = {"delta": "qwen3next", "mamba2": "mamba2"}[rule]
        equal(f"{rule}: a file of one sequence, told", hf, lc, OWN, f"--set=arch={arch}")
        refused(f"{rule}: a model that is not known", hf, lc, "states of tinynet", OWN,
                "--set=arch=tinynet", code=4)
        llama(lc, layers, 4, arch)
        r = kvtool("describe", "--set=arch=other", lc)
        tap.ok(r.code == 3 and f"the file says {arch}" in r.err, "another model", r)
    r = kvtool("describe", "--set", "recurrent=sideways", hf)
    tap.ok(r.code == 2 and "expected vk" in r.err, "no order", r)
    layers = [Sequence(rng, "delta", 4, 6, 4, 4)]
    transformers(hf, layers, [1], 4)
    vllm(v, layers, [1], 4, rng, "sd", said=False)
    equal("extents that differ tell it", hf, v, OWN)
    vllm(v, layers, [1], 4, rng, "sd", shape=False)
    equal("extents that B does not say are those of A", hf, v, OWN)
    vllm(v, [Sequence(rng, "delta", 4, 8, 3, 4)], [1], 4, rng, "sd")
    refused("other extents", hf, v, "a head", OWN)


def check_refused(tmp, rng):
    hf, v, lc = f"{tmp}/hf.pt", f"{tmp}/v.bin", f"{tmp}/l.ggsn"
    layers = [Sequence(rng, "delta", 4, 4, 4, 2)]
    transformers(hf, layers, [1], 4)
    llama(lc, layers, 4, "qwen35")
    refused("value heads in another order", hf, lc, "qwen35", OWN, code=4)
    llama(lc, layers, 4)
    refused("or perhaps", hf, lc, "does not say its model", OWN, "--set", "recurrent=kv")
    refused("of that model it is known", hf, lc, "qwen35", OWN, "--set=arch=qwen35",
            code=4)
    llama(lc, layers, 4, "qwen3next")
    equal("and not there", hf, lc, OWN)
    llama(lc, layers, 4, "qwen3next", version=9)
    refused("a build of before", hf, lc, "version 10", OWN)
    llama(lc, layers * 2, 4, "qwen3next")
    refused("more layers", hf, lc, "layers in", OWN)
    vllm(v, layers, [1], 7, rng, "sd")
    refused("taps of two more", hf, v, "differ by one at most", OWN)
    transformers(hf, layers, [1], 4)
    vllm(v, layers, [1], 4, rng, "sd", tokens=TOKENS - 1)
    refused("states of other tokens", hf, v, "the newest recurrent state of request 0", OWN)


def check_samples():
    """What engines saved; the greatest difference they may have is far below any order's."""
    order = {"gdn": "kv", "mamba2": "vk", "lfm2": "vk"}
    for name in sorted(os.listdir(HERE)):
        model, other = name.split(".", 1)
        if other == "pt":
            continue
        own = [OWN, "--tolerance=rel-l2=1e-5", "--json"]
        own += ["--head-dim=8"] if other == "ggsn" and model != "mamba2" else []
        own += ["--set", f"recurrent={order[model]}"] if other != "ggsn" else []
        r = kvtool("diff", *own, f"{HERE}/{model}.pt", f"{HERE}/{name}")
        kinds = [g["kind"] for g in r.json["groups"]] if r.code == 0 else []
        want = ["full_attention"] * (model != "mamba2") + ["mamba_conv"] + \
            ["mamba_ssm"] * (model != "lfm2")
        tap.ok(kinds == want, f"engines: {name}", r)


def check_alone(tmp, rng):
    """A cache of states alone has no requests: its only state is the newest of the other."""
    layers = random_layers(rng, "mamba2", False)
    numbers = list(range(len(layers)))
    hf, v = f"{tmp}/hf.pt", f"{tmp}/v.bin"
    transformers(hf, layers, numbers, 4, alone=True)
    vllm(v, layers, numbers, 4, rng, "sd")
    equal("states alone", hf, v, OWN)
    equal("states alone, told their tokens", hf, v, OWN, "--set", f"tokens={TOKENS}")
    r = diff(hf, v, "--json", OWN)
    tap.equal([g["recurrent"] for g in json.loads(r.out)["groups"]],
              [{"taps": 3, "a": {"taps": 4, "row": False, "turned": False},
                "b": {"taps": 3, "row": False, "turned": False}}, None],
              "states alone: what was done")
    vllm(v, layers, numbers, 4, rng, "sd", ids=list(range(3, 8)))
    refused("states alone, by blocks", hf, v, "--set tokens=N", OWN, "--by=blocks")


def check_snapshots(tmp, rng):
    """The order is kept, and one that is no order is refused."""
    hf = f"{tmp}/hf.pt"
    transformers(hf, [Sequence(rng, "delta", 4, 4, 4, 4)], [0], 4)
    for ext in "h5", "safetensors":
        kvtool("convert", "-f", "--set", "recurrent=kv", hf, f"{tmp}/c.{ext}")
        r = kvtool("describe", "--json", f"{tmp}/c.{ext}")
        tap.equal([g["state_order"] for g in r.json["groups"]], [None, None, "kv"],
                  f"{ext}: the order is kept")
    kvtool("convert", "-f", hf, f"{tmp}/c.h5")
    runs("both as transformers has them", "diff", hf, f"{tmp}/c.h5")
    with h5py.File(f"{tmp}/c.h5", "r+") as f:
        f["groups/ssm"].attrs["state_order"] = "sideways"
    r = kvtool("describe", f"{tmp}/c.h5")
    tap.ok(r.code == 3 and "state_order" in r.err, "h5: no order", r)
    vllm(f"{tmp}/v.bin", [Sequence(rng, "delta", 4, 4, 4, 4)], [0], 4, rng, "sd")
    said = read_json(f"{tmp}/v.json")
    said["groups"][1]["state_order"] = "sideways"
    write_json(f"{tmp}/v.json", said)
    r = kvtool("describe", f"{tmp}/v.bin")
    tap.ok(r.code == 3 and "state_order" in r.err, "manifest: no order", r)


def check_ranks(tmp, rng):
    """Each rank has some of q, of k and of v."""
    for rule in "delta", "mamba2":
        layers = [Sequence(rng, rule, 4, 6, 4, 4) for _ in range(2)]
        transformers(f"{tmp}/hf.pt", layers, [1, 4], 4)
        state = rng.getstate()
        for rank in range(2):
            rng.setstate(state)
            vllm(f"{tmp}/r{rank}.bin", layers, [1, 4], 4, rng, "sd", rank=(2, rank))
        runs(f"{rule}: ranks", "diff", "--exact", OWN, f"{tmp}/hf.pt", ":",
             f"{tmp}/r0.bin", f"{tmp}/r1.bin")
        llama(f"{tmp}/l.ggsn", layers, 4, "qwen3next" if rule == "delta" else "mamba2")
        runs(f"{rule}: ranks, and rows of all heads", "diff", "--exact", OWN,
             f"{tmp}/r0.bin", f"{tmp}/r1.bin", ":", f"{tmp}/l.ggsn")
        r = diff(f"{tmp}/r0.bin", f"{tmp}/l.ggsn", OWN)
        tap.ok(r.code == 3, f"{rule}: a rank, and rows of all heads", r)
        r = diff(f"{tmp}/hf.pt", f"{tmp}/r0.bin", OWN)
        tap.ok(r.code == 3, f"{rule}: one rank alone", r)


def main(tmp):
    rng = random.Random(33)
    for number in range(CASES):
        check_engines(tmp, rng, number)
    check_unknown(tmp, rng)
    check_refused(tmp, rng)
    check_ranks(tmp, rng)
    check_alone(tmp, rng)
    check_snapshots(tmp, rng)
    check_samples()


oracle.run(main)
