#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_goes_on.py - one request of a pool, as a cache of mlx-lm or of transformers

Pools are made up here, of full attention, windows, keys and values apart, in blocks in any
order; so are the caches that must come of them, by the rules of the classes that load
them.  Files are read here byte by byte.  What cannot be such a cache must be refused, and
leave nothing behind.
"""
import json
import os
import random

import numpy as np

import oracle
from foreign_files import Cells, ggsn_bytes, memory_bytes
from oracle import kvtool, refused, runs, safetensors_parts, tap, write_bytes
from plain_files import headed

CASES = 120 if oracle.FULL else 12 // oracle.SHARE
TYPES = {"F16": ("float16", np.uint16), "BF16": ("bfloat16", np.uint16),
         "F32": ("float32", np.uint32), "F64": ("float64", np.uint64)}
FORMS = "transformers", "mlx", "mlx-0.28", "mlx-0.26"
NAMES = ["0", "chat 7", 'a"b\\c', "Gr\u00fc\u00dfe", "x" * 60, "%s%n"]


# ---- pools -------------------------------------------------------------------

class Group:
    """bits[L, B, S, H, K, D]"""

    def __init__(self, rng, name, layers, blocks, kind, half=None):
        self.name, self.layers, self.kind, self.half = name, layers, kind, half
        self.blocks, self.type = blocks, rng.choice(list(TYPES))
        self.size, self.heads = rng.choice((1, 3, 4)), rng.randint(1 + bool(half), 3)
        self.dim, self.total = rng.choice((2, 6, 8)), 1
        self.window = rng.randint(2, 9) if kind == "sliding_window" else 0
        self.draw(rng)

    def draw(self, rng):
        self.axes = list("LBSHD" if self.half else "LBSHKD")
        rng.shuffle(self.axes)
        shape = [len(self.layers), self.blocks, self.size, self.heads,
                 1 if self.half else 2, self.dim]
        kind = TYPES[self.type][1]
        self.bits = np.random.default_rng(rng.getrandbits(32)).integers(
            0, np.iinfo(kind).max, shape, dtype=kind)
        # no NaN, and no zero
        self.bits = self.bits & ~kind(1 << (8 * kind().itemsize - 2)) | kind(1)

    def data(self):
        order = ["LBSHKD".index(a) for a in self.axes]
        order += [i for i in range(6) if i not in order]
        return np.ascontiguousarray(self.bits.transpose(order)).tobytes()

    def manifest(self):
        out = {"id": self.name, "kind": self.kind, "layout": "".join(self.axes),
               "dtype": TYPES[self.type][0], "layer_ids": self.layers,
               "sizes": {"layers": len(self.layers), "num_blocks": self.blocks,
                         "block_size": self.size, "num_kv_heads": self.heads,
                         "content" if self.half else "head_dim": self.dim}}
        if self.half:
            out["content"] = [[self.half, self.dim]]
        if self.total > 1:
            out["total_kv_heads"] = self.total * self.heads
        if self.window:
            out["window"] = self.window
        return out | {"block_table": self.table}


class Pool:
    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.blocks = 40
        layers = list(range(rng.randint(1, 6)))
        cut = rng.choice((0, len(layers) // 2, len(layers)))
        rng.shuffle(layers)
        self.groups = []
        for kind, mine in (("full_attention", layers[:cut]),
                           ("sliding_window", layers[cut:])):
            if not mine:
                continue
            name = f"g{len(self.groups)}"
            if rng.random() < .3:
                keys = Group(rng, name + "k", mine, self.blocks, kind, "k")
                values = Group(rng, name + "v", mine[::-1], self.blocks, kind, "v")
                values.size, values.window = keys.size, keys.window
                values.type, values.heads = keys.type, keys.heads
                values.dim = keys.dim + 1
                values.draw(rng)
                self.groups += [keys, values]
            else:
                self.groups.append(Group(rng, name, mine, self.blocks, kind))
        self.requests = {}
        for name in rng.sample(NAMES, rng.randint(1, 3)):
            self.requests[name] = rng.randint(1, 20)
        for group in self.groups:
            free = list(range(1, self.blocks))
            rng.shuffle(free)
            group.table = {}
            for name, n in self.requests.items():
                passed = max(0, n - group.window + 1) // group.size if group.window else 0
                passed = rng.randint(0, passed)
                need = -(-n // group.size)
                mine = [free.pop() for _ in range(min(need - passed, len(free)))]
                group.table[name] = [0] * passed + mine
        if any(len(g.table[name]) * g.size < n for g in self.groups
               for name, n in self.requests.items()):
            self.__init__(seed + 100000)

    def write(self, path, **more):
        data = [g.data() for g in self.groups]
        side = {"null_block": 0, "num_tokens": self.requests,
                "groups": [g.manifest() for g in self.groups], **more}
        head, at = {"__metadata__": {"kvtool": json.dumps(side)}}, 0
        for g, d in zip(self.groups, data):
            name = g.name if len(data) > 1 else "kv_cache"
            head[name] = {"dtype": g.type, "data_offsets": [at, at + len(d)],
                          "shape": [g.bits.shape["LBSHKD".index(a)] for a in g.axes]}
            at += len(d)
        write_bytes(path, headed(head, b"".join(data)))


# ---- what must come of a request ------------------------------------------------

def tokens_of(group, name, layer, kv, begin, end):
    """[1, H, T, D] of tokens that are there, zeros for those in the null block."""
    out = np.zeros((1, group.heads, end - begin, group.dim), group.bits.dtype)
    row = group.layers.index(layer)
    for t in range(begin, end):
        block = group.table[name][t // group.size]
        if block:
            out[0, :, t - begin] = group.bits[row, block, t % group.size, :, kv]
    return out


def layers_of(pool, name, spare):
    """{layer: (keys, values, window, type)}"""
    out, n = {}, pool.requests[name]
    for g in pool.groups:
        begin = max(0, n - g.window + spare) if g.window else 0
        for layer in g.layers:
            keys, values = out.get(layer, (None, None, 0, ""))[:2]
            if g.half != "v":
                keys = tokens_of(g, name, layer, 0, begin, n)
            if g.half != "k":
                values = tokens_of(g, name, layer, int(not g.half), begin, n)
            out[layer] = keys, values, g.window, g.type
    return out


def number(n):
    return "I32", np.array(n, np.int32)


def expect_mlx(pool, name, form):
    tensors, meta, scalars = {}, {}, [""]
    n = pool.requests[name]
    for l, (keys, values, window, kind) in layers_of(pool, name, 0).items():
        tensors |= {f"{l}.0": (kind, keys), f"{l}.1": (kind, values)}
        ring = {"keep": 0, "max_size": window, "step": 256, "offset": n,
                "idx": keys.shape[2]}
        if form == "mlx":
            order = ["offset"] + ["keep", "max_size", "idx"] * bool(window)
            for i, what in enumerate(order):
                tensors[f"{l}.{i + 2}"] = number(ring[what])
                scalars.append((f"{l}.{i + 2}", "scalar"))
        else:
            drop = {"mlx-0.28": ["step"]}.get(form, [])
            said = [str(v) for k, v in ring.items() if k not in drop] if window else []
            meta |= {f"0.{l}.{i}": v for i, v in enumerate(said)} or {f"0.{l}": ""}
        meta[f"{1 if form == 'mlx' else 2}.{l}"] = \
            "RotatingKVCache" if window else "KVCache"
    user = {"kvtool_request": name, "kvtool_tokens": str(n), "model": "some/model"}
    meta |= {f"{0 if form == 'mlx' else 1}.{k}": v for k, v in user.items()}
    return tensors, meta, scalars if form == "mlx" else []


def expect_transformers(pool, name):
    tensors, n = {}, pool.requests[name]
    meta = {"kvtool_cache": "transformers", "kvtool_request": name,
            "kvtool_tokens": str(n)}
    for l, (keys, values, window, kind) in layers_of(pool, name, 1).items():
        tensors |= {f"layers.{l}.keys": (kind, keys), f"layers.{l}.values": (kind, values)}
        if window:
            meta[f"layers.{l}.sliding_window"] = str(window)
    return tensors, meta, []


def header(path):
    head, data = safetensors_parts(path)
    at = 0
    for t in sorted(head.items(), key=lambda t: t[1].get("data_offsets", [0, 0])):
        if t[0] != "__metadata__":
            assert t[1]["data_offsets"][0] == at, f"{t}: not at {at}"
            at = t[1]["data_offsets"][1]
    assert at == len(data), "the data do not end where the file does"
    return head, data


def listed(meta, scalars):
    """Those of 0.32 are listed in the order of the arrays; any order means the same."""
    got = [""] if meta.pop("2.0", None) == "" else []
    for i in range(1, len(meta)):
        if f"2.{i}.0" in meta:
            got.append((meta.pop(f"2.{i}.0"), meta.pop(f"2.{i}.1")))
    return sorted(got[1:]) == sorted(scalars[1:]) and len(got) == len(scalars)


def wrong_in(path, want):
    tensors, meta, scalars = want
    head, data = header(path)
    said = head.pop("__metadata__")
    said.pop("kvtool_load", None)
    if scalars and not listed(said, scalars):
        return f"scalars {said}"
    if said != meta:
        return f"metadata {sorted(set(said.items()) ^ set(meta.items()))}"
    if set(head) != set(tensors):
        return f"tensors {sorted(set(head) ^ set(tensors))}"
    for name, (kind, array) in tensors.items():
        t = head[name]
        if (t["dtype"], t["shape"]) != (kind, list(array.shape)):
            return f"{name}: {t}, not {kind} {array.shape}"
        if data[slice(*t["data_offsets"])] != np.ascontiguousarray(array).tobytes():
            return f"{name}: other bytes"
    return ""


# ---- checks ------------------------------------------------------------------

def check_one(pool, path, out, name, form):
    named = ["--request", name] if len(pool.requests) > 1 else []
    r = kvtool("convert", "-f", "--verify", "--no-sync", f"--format={form}", *named, path,
               out)
    if r.code:
        return str(r)
    want = expect_transformers(pool, name) if form == "transformers" else \
        expect_mlx(pool, name, form)
    wrong = wrong_in(out, want)
    if wrong:
        return wrong
    if len(pool.requests) > 1:
        kvtool("slice", "-f", "-q", "--request", name, "-o", out + ".one.h5", path)
        path = out + ".one.h5"
    for command in ("diff", "-q", path), ("fsck", "-q"):
        r = kvtool(*command, out)
        if r.code:
            return str(r)
    both = [kvtool("digest", "--scope=tokens", p).out.split()[0] for p in (path, out)]
    return "" if both[0] == both[1] else f"digests {both}"


def check_pools(tmp):
    wrong = []
    for seed in range(CASES):
        pool = Pool(seed)
        path, out = f"{tmp}/pool.safetensors", f"{tmp}/out.safetensors"
        pool.write(path, model="some/model")
        for form in FORMS:
            for name in pool.requests:
                why = check_one(pool, path, out, name, form)
                wrong += [f"seed {seed}, {form}, {name!r}: {why}"] if why else []
    tap.equal(wrong[:2], [], f"{CASES} pools, {len(FORMS)} forms")


def plain(kind="full_attention", tokens=7, **more):
    """A pool of one group and one request, all of which can be written."""
    pool = Pool(0)
    group = Group(pool.rng, "g0", [0, 1, 2], pool.blocks, kind)
    group.size, group.window = 4, 5 if kind == "sliding_window" else 0
    for name, value in more.items():
        setattr(group, name, value)
    group.draw(pool.rng)
    group.table = {"r": [3, 8, 2][:-(-tokens // 4)]}
    pool.groups, pool.requests = [group], {"r": tokens}
    return pool


def check_refused(tmp):
    """(what, pool, keys of its manifest, options, status, words)"""
    two = plain()
    two.requests, two.groups[0].table = {"a": 3, "b": 2}, {"a": [1], "b": [2]}
    none = plain()
    none.requests, none.groups[0].table = {}, {}
    gone = plain("sliding_window", tokens=10)
    gone.groups[0].table = {"r": [0, 0, 5]}
    gaps = plain(layers=[0, 2, 3])
    for what, pool, more, options, code, words in [
            ("two requests", two, {}, [], 3, "--request"),
            ("a request that is not there", two, {}, ["--request=c"], 3, "c"),
            ("no request", none, {}, [], 3, "no block tables"),
            ("a token that is gone", gone, {}, [], 3, "token"),
            ("the first tokens are gone", plain(tokens=8),
             {"first_token": {"r": 4}}, [], 3, "token 0"),
            ("one rank of two", plain(total=2), {"tp_size": 2, "tp_rank": 0}, [], 4,
             "merge"),
            ("chunks", plain("chunked_local", window=4), {}, [], 4, "chunked_local")]:
        for form in FORMS:
            path, out = f"{tmp}/bad.safetensors", f"{tmp}/never.safetensors"
            pool.write(path, **more)
            before = set(os.listdir(tmp))
            r = kvtool("convert", f"--format={form}", *options, path, out)
            tap.ok(r.code == code and words in r.err and r.err.count("\n") == 1,
                   f"{what}, {form}", r)
            tap.equal(set(os.listdir(tmp)), before, f"{what}, {form}: nothing is left")
    gaps.write(path)
    for form in FORMS:
        r = kvtool("convert", "-f", f"--format={form}", path, out)
        tap.equal(r.code, 0 if form == "transformers" else 4, f"a gap of layers, {form}")
    refused("--request of another format", 2, "slice", "convert", "-f", "--request=r",
            path, f"{tmp}/a.h5")


def check_names(tmp):
    """Three lines that are Python, whatever the file is called."""
    plain("sliding_window").write(f"{tmp}/plain.safetensors")
    for name in "a.safetensors", 'a"; import os; ".safetensors', "a\nb.safetensors", \
            "a\\", "\u00fc.safetensors", "%s%n":
        out = f"{tmp}/{name}"
        r = kvtool("convert", "-f", "--format=transformers", f"{tmp}/plain.safetensors", out)
        lines = r.out.split("\n")[1:]
        tap.ok(r.code == 0 and len(lines) == 4 and lines[3] == "", f"{name!r}: three lines", r)
        head = header(out)[0]["__metadata__"]["kvtool_load"]
        tap.equal(head, "\n".join(lines), f"{name!r}: they are in the file, too")
        code = compile(head, "lines", "exec")
        tap.ok(not {"os", "n"} & set(code.co_names), f"{name!r}: and nothing else is run")
        runs(f"{name!r}: is read", "describe", out, says="window    5 tokens")
    r = kvtool("convert", "-f", "--json", "--format=transformers",
               f"{tmp}/plain.safetensors", out)
    tap.equal(r.json["use"], head, "JSON has them")
    r = kvtool("convert", "-f", "--json", "--format=mlx", f"{tmp}/plain.safetensors", out)
    tap.ok("use" not in r.json, "and not for mlx-lm", r)


def check_notes(tmp):
    """What was written of the request is text of a file: any may stand there."""
    path, out = f"{tmp}/plain.safetensors", f"{tmp}/note.safetensors"
    plain("sliding_window", tokens=9).write(path)
    kvtool("convert", "-f", "--format=transformers", path, out)
    head, data = safetensors_parts(out)
    for name, text in [(k, t) for k in ("kvtool_tokens", "layers.1.sliding_window",
                                        "kvtool_cache")
                       for t in ("", "-1", "0", "99999999999", "1e3", "9" * 40, "x")]:
        said = {**head, "__metadata__": {**head["__metadata__"], name: text}}
        write_bytes(out, headed(said, data))
        r = kvtool("describe", out)
        tap.ok(r.code in (3, 4) and r.err.count("\n") == 1, f"{name} is {text!r}", r)


# ---- codes -------------------------------------------------------------------

def codes_of(path):
    """{layer: (tokens, [group, bits], {name: (type, shape, bytes)})}, of any form."""
    head, data = header(path)
    meta, out = head.pop("__metadata__"), {}
    whole = "1.0" in meta
    for l in range(sum(k.startswith("1." if whole else "2.") and v == "QuantizedKVCache"
                       for k, v in meta.items())):
        if whole:
            said = [int(np.frombuffer(data[slice(*head[f"{l}.{i}"]["data_offsets"])],
                                      "<i4")[0]) for i in (2, 3, 4)]
        else:
            said = [int(meta[f"0.{l}.{i}"]) for i in range(4) if f"0.{l}.{i}" in meta][-3:]
        found = {}
        for name in (f"{l}.{kv}.{part}" for kv in (0, 1) for part in (0, 1, 2)):
            t = head[name]
            rows = np.frombuffer(data[slice(*t["data_offsets"])], np.uint8)
            rows = rows.reshape(t["shape"][:3] + [-1])[:, :, :said[0]]
            found[name] = t["dtype"], rows.shape, rows.tobytes()
        out[l] = said[0], said[1:], found
    return out


def check_codes(tmp):
    """Codes, scales and biases keep their bytes in each form, and all that says them."""
    folder = f"{oracle.ENGINES}/mlx"
    for name in ("llama_q8.026", "mlx0.32.2_q4_f16", "quant234_bf16.032",
                 "quant568_f16.028", "quant234_f32.026"):
        path, out = f"{folder}/{name}.safetensors", f"{tmp}/codes.safetensors"
        want = codes_of(path)
        for form in FORMS[1:]:
            r = kvtool("convert", "-f", "--verify", f"--format={form}", path, out)
            tap.ok(r.code == 0 and want and codes_of(out) == want, f"{name}, {form}", r)
            first = header(out)[0]["__metadata__"].get("0.0.0")
            tap.equal(first, {"mlx-0.26": "256", "mlx-0.28": str(want[0][0])}.get(form),
                      f"{name}, {form}: its first number")
        refused(f"{name}: not for transformers", 4, "--decode", "convert", "-f",
                "--format=transformers", path, out)
        runs(f"{name}: its numbers are", "convert", "-f", "--decode=float32",
             "--format=transformers", path, out)


def check_llama(tmp):
    """Of llama.cpp only as they are: its files do not say how elements are ordered."""
    rng = np.random.default_rng(5)
    k, v = (rng.integers(0, 0x7000, (2, 9, 16), "<u2") for _ in "kv")
    cells = Cells([(i, [0]) for i in range(9)],
                  *([[row.tobytes() for row in l] for l in half] for half in (k, v)))
    path, out = f"{tmp}/state.ggsn", f"{tmp}/llama.safetensors"
    write_bytes(path, ggsn_bytes(memory_bytes([cells])))
    for form in FORMS:
        options = ["-f", "--heads=2", f"--format={form}", path, out]
        r = kvtool("convert", *options)
        tap.ok(r.code == 4 and "--as-is" in r.err and not os.path.exists(out),
               f"a state of llama.cpp, {form}: asked about", r)
        runs(f"a state of llama.cpp, {form}: as it is", "convert", "--as-is", "--verify",
             *options)
        both = [kvtool("digest", "--by=request", *o).out.split()[0]
                for o in (["--heads=2", path], [out])]
        tap.equal(both[0], both[1], f"a state of llama.cpp, {form}: its digest")
        os.unlink(out)


oracle.run(check_refused, check_names, check_notes, check_codes, check_llama, check_pools)
