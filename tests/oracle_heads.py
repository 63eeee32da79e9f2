#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_heads.py - keys and values of a layer have the same heads, whatever their
widths: states of llama.cpp with unequal keys and values, made up here, and caches
of transformers; and what says otherwise is refused
"""
import json
import random

import numpy as np

import oracle
from foreign_files import (BF16, F16, F32, Q8_0, Cells, ggsn_bytes, ggsq_bytes,
                           memory_bytes, safetensors_bytes)
from oracle import SHARE, kvtool, runs, tap, write_bytes

STATES, BLOCK = 100 // SHARE, 16
# of ggml: bytes and elements of a block of a type
TYPES = {F16: (2, 1), BF16: (2, 1), F32: (4, 1), Q8_0: (34, 32)}


def nbytes(kind, n):
    size, elems = TYPES[kind]
    return n // elems * size


class Cache:
    """One of a state: L layers of H heads, keys and values of widths of their own."""

    def __init__(self, rng, dims, kinds, heads, tokens, first):
        self.H, self.L, self.first, self.kinds = heads, rng.randint(1, 3), first, kinds
        self.dims, self.T = dims, tokens - first
        draw = np.random.default_rng(rng.randrange(1 << 30))
        self.kv = [draw.integers(0, 256, (self.L, self.T, self.H * nbytes(k, d)),
                                 np.uint8) for k, d in zip(kinds, dims)]
        self.turned = rng.random() < .3 and kinds[1] != Q8_0

    def stream(self):
        cells = [(t + self.first, [0]) for t in range(self.T)]
        rows = [[[t.tobytes() for t in layer] for layer in a] for a in self.kv]
        return Cells(cells, *rows, self.kinds,
                     elem=TYPES[self.kinds[1]][0] if self.turned else 0)

    def head(self, half):
        """[L, T, H, bytes]"""
        return self.kv[half].reshape(self.L, self.T, self.H, -1)


class State:
    def __init__(self, seed):
        rng = random.Random(seed)
        self.tokens = rng.randint(2, 60)
        windowed = rng.random() < .7
        blocks = rng.random() < .3      # heads of whole blocks of 32 elements
        unit = 32 if blocks else rng.choice((2, 4, 8))
        dk, dv = rng.sample(range(1, 7), 2)
        dims = dk * unit, dv * unit
        floats = rng.choice(((F16, F16), (BF16, BF16), (F32, F32), (F16, F32)))
        kinds = rng.choice(((Q8_0, Q8_0), (Q8_0, F16), (F16, Q8_0))) if blocks else floats
        count = 2 if windowed else 1
        heads = [2 * rng.randint(1, 4) for _ in range(count)]
        firsts = [0, rng.randint(0, self.tokens - 1)]
        self.caches = [Cache(rng, dims, kinds, heads[i], self.tokens, firsts[i])
                       for i in range(count)]
        memory = b"".join(memory_bytes([c.stream()]) for c in self.caches)
        self.data = rng.choice((ggsn_bytes, ggsq_bytes))(memory)
        self.dims, self.heads = dims, heads
        self.asked = [f"--head-dim={dims[0]}", "--set=heads=" + ",".join(map(str, heads))]
        if len(set(heads)) == 1:
            self.asked.append(f"--heads={heads[0]}")


def groups_of(path):
    """Groups of what kvtool wrote as safetensors: id -> [L, T, H, bytes] and first."""
    manifest, groups = oracle.written_groups(path)
    out = {}
    for name, (g, (_, shape, raw)) in groups.items():
        assert g["layout"] in ("LBSHD", "L B S H D", "LBHSD"), g["layout"]
        a = np.frombuffer(raw, np.uint8).reshape(*shape[:4], -1)
        if g["layout"] == "LBHSD":
            a = a.swapaxes(2, 3)
        table = g.get("block_table", manifest.get("block_table", {}))["0"]
        out[name] = a[:, table].reshape(a.shape[0], -1, *a.shape[3:])
    return out


def same(groups, state, take):
    """Are these the heads 'take(H)' of the state, with keys and values apart?"""
    for i, c in enumerate(state.caches):
        for half, letter in enumerate("kv"):
            got = groups.get(f"g{i}.{letter}")
            want = c.head(half)[:, :, take(c.H)]
            if got is None or not np.array_equal(got[:, c.first:c.first + c.T], want):
                return f"g{i}.{letter}"
    return ""


def check_states(tmp):
    wrong = []
    for seed in range(STATES):
        state = State(seed)
        path = f"{tmp}/state.bin"
        write_bytes(path, state.data)
        for asked in state.asked:
            for what, command in (
                    ("all", ("convert", "-f")),
                    ("rank 0", ("slice", "-f", "--tp=0/2")),
                    ("rank 1", ("slice", "-f", "--tp=1/2"))):
                if what != "all" and asked.startswith("--heads"):
                    continue        # which a slice takes for the heads to be cut out
                out = f"{tmp}/out.safetensors"
                turned = any(c.turned for c in state.caches)
                r = kvtool(*command, asked, path, f"{tmp}/out.h5" if turned else out)
                if turned and not r.code:
                    r = kvtool("relayout", "-f", "--to=LBSHD", "-o", out, f"{tmp}/out.h5")
                if r.code:
                    wrong.append(f"seed {seed} {asked} {what}: {r}")
                    continue
                groups = groups_of(out)
                take = {"all": lambda h: slice(0, h),
                        "rank 0": lambda h: slice(0, h // 2),
                        "rank 1": lambda h: slice(h // 2, h)}[what]
                bad = same(groups, state, take)
                if bad:
                    wrong.append(f"seed {seed} {asked} {what}: {bad}")
                if what == "all" and not same(groups, state, lambda h: slice(1, h + 1)):
                    wrong.append(f"seed {seed}: the comparison sees nothing")
        r = kvtool("fsck", "-q", state.asked[0], path)
        if r.code > 1 or "kv.heads" in r.out:      # of random bits, some are NaN
            wrong.append(f"seed {seed} fsck: {r}")
        if len(set(state.heads)) > 1:
            r = kvtool("describe", f"--heads={state.heads[0]}", path)
            if r.code != 3 or "--head-dim" not in r.err:
                wrong.append(f"seed {seed}: --heads that is true of one cache: {r}")
    tap.equal(wrong[:3], [], f"{STATES} states with unequal keys and values")


def check_sentences(tmp):
    """What is given is not asked for again."""
    rng = random.Random(1)
    c = Cache(rng, (48, 32), (F16, F16), 4, 9, 0)
    path = f"{tmp}/state.bin"
    write_bytes(path, ggsq_bytes(memory_bytes([c.stream()])))
    for options, status, parts in (
            (("--head-dim=48",), 0, ("H 4",)),
            ((), 3, ("192 elements", "give --heads or --head-dim")),
            (("--head-dim=50",), 3, ("--head-dim is 50", "192 elements")),
            (("--head-dim=6",), 0, ("H 32", "D 4")),
            (("--heads=3",), 3, ("values of 128 elements", "3 heads")),
            (("--heads=4", "--head-dim=32"), 3, ("--head-dim is 32", "has 48")),
            (("--heads=4", "--set=heads=2"), 3, ("--heads is 4", "has 2")),
            (("--set=heads=4,4",), 2, ("heads=4,4", "1 cache")),
            (("--set=heads=0",), 2, ("heads=0",)),
            (("--set=heads=",), 2, ("heads is ''",)),
            (("--set=heads=4,",), 2, ("heads=4,",))):
        r = kvtool("describe", *options, path)
        tap.ok(r.code == status and all(p in r.out + r.err for p in parts),
               f"options {options}", r)


def check_holes(tmp):
    """What several groups lack is a line a group."""
    state = next(s for s in map(State, range(STATES))
                 if len(s.caches) == 2 and s.caches[1].first)
    path = f"{tmp}/state.bin"
    write_bytes(path, state.data)
    r = kvtool("describe", state.asked[0], path)
    lines = [l.strip().split(":")[0] for l in r.out.splitlines() if " missing in " in l]
    tap.equal(lines, [f"{state.caches[1].first} missing in g1.{half}" for half in "kv"],
              "tokens that two groups lack")


# ---- other formats ----------------------------------------------------------


def half(name, kv, heads, dim, layers=(0, 1), kind="full_attention", **more):
    return {"id": name, "kind": kind, "dtype": "uint8", "layout": "L B S H D",
            "tokens_per_slot": 1, "layer_ids": list(layers),
            "sizes": {"layers": len(layers), "num_blocks": 2, "slots": 4,
                      "block_size": 4, "num_kv_heads": heads, "content": dim},
            "content": [[kv, dim]], **more}


def open_groups(tmp, *groups):
    """A safetensors file of groups that describes itself."""
    arrays, manifest = {}, {"format": "kvtool-manifest", "groups": list(groups)}
    for g in groups:
        s = g["sizes"]
        shape = [s["layers"], 2, 4, s["num_kv_heads"], s["content"]]
        arrays[g["id"]] = np.arange(np.prod(shape)).astype(np.uint8).reshape(shape)
    write_bytes(f"{tmp}/groups.safetensors",
                safetensors_bytes({k: ("U8", a) for k, a in arrays.items()},
                                  {"kvtool": json.dumps(manifest)}))
    return f"{tmp}/groups.safetensors"


def check_groups(tmp):
    """Keys and values of one layer, by names or by layers."""
    for what, status, groups in (
            ("2 and 2 heads", 0, [half("g0.k", "k", 2, 8), half("g0.v", "v", 2, 4)]),
            ("2 and 1 heads", 3, [half("g0.k", "k", 2, 8), half("g0.v", "v", 1, 8)]),
            ("other names", 3, [half("keys", "k", 2, 8), half("values", "v", 4, 4)]),
            ("values first", 3, [half("a.v", "v", 3, 8), half("a.k", "k", 2, 8)]),
            ("some layers in common", 3, [half("p", "k", 2, 8, (0, 1, 2)),
                                          half("q", "v", 1, 8, (2, 3))]),
            ("no layer in common", 0, [half("p", "k", 2, 8, (0, 1)),
                                       half("q", "v", 1, 8, (2, 3))]),
            ("two kinds of cache that count from 0", 0, [
                half("g0.k", "k", 2, 8), half("g0.v", "v", 2, 4),
                half("g1.k", "k", 4, 8), half("g1.v", "v", 4, 4)]),
            ("the second of them", 3, [
                half("g0.k", "k", 2, 8), half("g0.v", "v", 2, 4),
                half("g1.k", "k", 4, 8), half("g1.v", "v", 2, 8)]),
            ("another kind", 0, [half("p", "k", 2, 8),
                                 half("q", "v", 1, 8, kind="sliding_window", window=9)]),
            ("other heads of as many", 3, [
                half("g0.k", "k", 2, 8, total_kv_heads=4),
                half("g0.v", "v", 2, 4, total_kv_heads=4, head_start=2)])):
        path = open_groups(tmp, *groups)
        r = kvtool("describe", path)
        tap.ok(r.code == status and (not status or "same heads" in r.err),
               f"groups: {what}", r)
        r = kvtool("fsck", path)
        tap.ok((r.code == 0) == (not status) and ("kv.heads" in r.out) == bool(status),
               f"fsck: {what}", r)


def check_caches(tmp):
    """DeepSeek without its latents, minicpm3: transformers has keys wider than values."""
    rng = np.random.default_rng(3)
    for seed in range(20):
        H, T, L = 2 * rng.integers(1, 5), rng.integers(1, 40), rng.integers(1, 4)
        dk, dv = rng.choice(np.arange(1, 9), 2, replace=False) * 8
        arrays = {f"layers.{l}.{name}": rng.integers(0, 1 << 16, (1, H, T, d), np.uint16)
                  for l in range(L) for name, d in (("keys", dk), ("values", dv))}
        path = f"{tmp}/cache.safetensors"
        write_bytes(path, safetensors_bytes({k: ("F16", a) for k, a in arrays.items()}))
        for rank in range(2):
            r = runs(f"cache {seed}, rank {rank}", "slice", "-f", "--from=transformers",
                     f"--tp={rank}/2", "-o", f"{tmp}/out.safetensors", path)
            if r.code:
                continue
            groups = groups_of(f"{tmp}/out.safetensors")
            part = slice(rank * H // 2, (rank + 1) * H // 2)
            good = all(np.array_equal(
                groups[f"g0.{n[0]}"][l, :T].view(np.uint16),
                arrays[f"layers.{l}.{n}"][0, part].swapaxes(0, 1))
                for l in range(L) for n in ("keys", "values"))
            tap.ok(good, f"cache {seed}, rank {rank}: the heads of keys and of values")


oracle.run(check_states, check_sentences, check_holes, check_groups, check_caches)
