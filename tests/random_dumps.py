# SPDX-License-Identifier: Apache-2.0
"""
random_dumps.py - dumps of all shapes, and what each of them holds

A dump is drawn from a number: kinds of groups, extents, element types, orders of
axes, part of the layers, heads and blocks of a model, tables that share blocks,
requests that have lost their first tokens, ids that are no positions, keys and
values in groups of their own, blocks that have names.  It is written as a raw or safetensors file with a manifest,
and its digests follow from the values alone, by the definition of kvtool-digest(1).
"""
import copy
import json
import random

import numpy as np

from kvd1 import CONTENT, KEY, VALUE, cell_hashes, fold, hash_rows, text, weight
from oracle import write_bytes, write_json
from plain_files import headed

# name, bytes of an element, type in safetensors
TYPES = [("float16", 2, "F16"), ("bfloat16", 2, "BF16"), ("float32", 4, "F32"),
         ("float64", 8, "F64"), ("float8_e4m3fn", 1, "F8_E4M3"), ("int8", 1, "I8"),
         ("uint16", 2, "U16"), ("int32", 4, "I32"), ("uint64", 8, "U64"),
         ("bool", 1, "BOOL"), ("float8_e8m0", 1, "F8_E8M0")]


PAGES = ["KLBSHD", "KBSLHD", "KBLSHD", "KBHSLD", "LBKSHD", "BLKHSD"]


class Group:
    """bits[L, B, S, H, K, D, byte]; ids of the model and of the pool."""

    def __init__(self, rng, name, taken, pool):
        self.name, self.pool, self.names = name, pool, None
        self.kind = rng.choice(["full_attention"] * 5 + ["mla"])
        latent = self.kind == "mla"
        self.type = rng.choice(TYPES)
        n = {"L": rng.randint(1, 4), "B": len(pool), "S": rng.choice([1, 2, 4, 16]),
             "H": 1 if latent else rng.randint(1, 4), "K": 1 if latent else 2,
             "D": rng.choice([1, 2, 8, 6, 32])}
        self.n = n
        self.half = None if latent else rng.choice([None] * 6 + ["k", "v"])
        free = [i for i in range(12) if i not in taken]
        self.layers = sorted(rng.sample(free, n["L"]))
        if rng.random() < .3:
            rng.shuffle(self.layers)
        taken.update(self.layers)
        self.total, self.first = n["H"], 0
        if not latent and rng.random() < .3:
            self.total = n["H"] * rng.choice([2, 4])
            self.first = n["H"] * rng.randrange(self.total // n["H"])
        self.draw(rng)

    def draw(self, rng):
        """The order of axes and the values."""
        n = self.n
        if self.half:
            n["K"] = 1
        self.axes = [a for a in "LBSHKD" if not (a == "K" and n["K"] == 1)
                     and not (a == "H" and self.kind == "mla")]
        if rng.random() < .7:
            rng.shuffle(self.axes)
        bits = np.random.default_rng(rng.getrandbits(32)).integers(
            0, 256, [n[a] for a in "LBSHKD"] + [self.type[1]], dtype=np.uint8)
        self.bits = bits & 1 if self.type[0] == "bool" else bits

    def other_half(self, rng, name):
        """The values of the same layers, if this holds keys, or the reverse."""
        other = copy.copy(self)
        other.name, other.n = name, dict(self.n, D=rng.choice([1, 2, 8, 6, 32]))
        other.half = {"k": "v", "v": "k"}[self.half]
        other.type = rng.choice(TYPES)
        other.draw(rng)
        return other

    def name_blocks(self, rng):
        """As pages of a store, in the order of their names."""
        self.names = sorted(f"{rng.getrandbits(256):064x}" for _ in self.pool)
        if self.kind == "mla":
            self.axes = list(rng.choice(["LBSD", "BSLD", "BLSD"]))
        elif not self.half:
            self.axes = list(rng.choice(PAGES))

    def data(self):
        """The bytes in the order of the layout."""
        order = ["LBSHKD".index(a) for a in self.axes]
        rest = [i for i in range(6) if i not in order]
        return np.ascontiguousarray(self.bits.transpose(order + rest + [6])).tobytes()

    def shape(self):
        return [self.n[a] for a in self.axes]

    def component(self):
        if self.kind == "mla":
            return np.array([CONTENT])
        return np.array({None: [KEY, VALUE], "k": [KEY], "v": [VALUE]}[self.half])

    def manifest(self):
        n, latent = self.n, self.kind == "mla"
        m = {"id": self.name, "kind": self.kind, "layout": "".join(self.axes),
             "dtype": self.type[0], "layer_ids": self.layers,
             "layer_names": [f"model.layers.{i}.attn" for i in self.layers],
             "block_ids": self.pool,
             "sizes": {"layers": n["L"], "num_blocks": n["B"], "block_size": n["S"],
                       "num_kv_heads": n["H"],
                       "content" if latent or self.half else "head_dim": n["D"]}}
        if self.names:
            m["block_names"] = self.names
        if self.half:
            m["content"] = [[self.half, n["D"]]]
        if self.total != n["H"]:
            m |= {"total_kv_heads": self.total, "head_start": self.first,
                  "head_count": n["H"]}
        return m

    def hashes(self, layers, blocks, slots, position, slot):
        """Sum of the cells [L, T, H, K] at pairs of block and slot."""
        n = self.n
        cells = self.bits[:, blocks, slots]
        rows = cells.reshape(-1, n["D"] * self.type[1])
        content = hash_rows(rows).reshape(n["L"], len(blocks), n["H"], n["K"], 2)
        return fold(cell_hashes(
            content, np.array(layers).reshape(-1, 1, 1, 1),
            np.array(position).reshape(-1, 1, 1), np.array(slot).reshape(-1, 1, 1),
            (np.arange(n["H"]) + self.first).reshape(-1, 1), self.component()))


class Dump:
    def __init__(self, seed):
        rng = random.Random(seed)
        count = rng.choice([1, 1, 1, 2, 3])
        named = count == 1 and rng.random() < .3
        blocks = rng.randint(1, 9)
        pool = list(range(blocks)) if named else sorted(rng.sample(range(40), blocks))
        taken = set()
        self.groups = [Group(rng, f"g{i}", taken, pool) for i in range(count)]
        first = self.groups[0]
        if count == 1 and first.half and rng.random() < .7:
            self.groups.append(first.other_half(rng, "g1"))
            count = 2
        elif named:
            first.name_blocks(rng)
        self.pool = pool
        self.null = pool[0] if rng.random() < .4 else None
        self.requests, self.first = {}, {}
        for r in range(rng.choice([0, 1, 1, 2, 3])):
            self.add_request(rng, f"req-{r}")
        self.single = count == 1 and rng.random() < .6
        self.seed = seed

    def add_request(self, rng, name):
        """Its tables begin as those of another do, or use blocks nobody has."""
        used = {b for _, tables in self.requests.values() for b in tables[0]}
        free = [b for b in self.pool if b not in used and b != self.null]
        rng.shuffle(free)
        size = self.groups[0].n["S"]
        if any(g.n["S"] != size for g in self.groups) or not free:
            return
        start = []
        if self.requests and rng.random() < .5:
            other = rng.choice(list(self.requests))
            tokens, tables = self.requests[other]
            if other not in self.first:
                start = tables[0][:rng.randint(0, tokens // size)]
        table = start + free[:rng.randint(1, len(free))]
        tokens = len(table) * size - rng.randrange(size)
        if rng.random() < .2 and not start:
            # its first blocks are gone, and perhaps some tokens of the one after
            lost = rng.randrange(min(size, tokens))
            self.first[name] = rng.randrange(3) * size + lost
            tokens -= lost
        self.requests[name] = tokens, [table] * len(self.groups)

    def manifest(self):
        m = {"model": f"random-{self.seed}"}
        if self.null is not None:
            m["null_block"] = self.null
        if self.requests:
            m["num_tokens"] = {r: n for r, (n, _) in self.requests.items()}
            m["block_table"] = {r: t[0] for r, (_, t) in self.requests.items()}
            m["first_token"] = self.first
        if len(self.groups) == 1:
            return self.groups[0].manifest() | m
        return m | {"groups": [g.manifest() for g in self.groups]}

    def write(self, folder):
        """A raw file and its manifest, or a safetensors file; returns its path."""
        data = [g.data() for g in self.groups]
        path = f"{folder}/r{self.seed}"
        if self.single:
            write_bytes(f"{path}.bin", data[0])
            write_json(f"{path}.bin.json",
                       self.manifest() | {"file": f"r{self.seed}.bin"})
            return f"{path}.bin"
        head, at = {"__metadata__": {"kvtool": json.dumps(self.manifest())}}, 0
        for g, d in zip(self.groups, data):
            name = g.name if len(data) > 1 else "kv_cache"
            head[name] = {"dtype": g.type[2], "shape": g.shape(),
                          "data_offsets": [at, at + len(d)]}
            at += len(d)
        write_bytes(f"{path}.safetensors", headed(head, b"".join(data)))
        return f"{path}.safetensors"

    def digests(self):
        """{scope: digest}, from the values alone."""
        blocks = np.zeros(2, dtype=np.uint64)
        for g in self.groups:
            b, s = np.divmod(np.arange(g.n["B"] * g.n["S"]), g.n["S"])
            blocks += g.hashes(g.layers, b, s, np.array(self.pool)[b], s)
        out = {"blocks": text("blocks", blocks)}
        if not self.requests:
            return out
        tokens = np.zeros(2, dtype=np.uint64)
        for name, (n, tables) in self.requests.items():
            mine = np.zeros(2, dtype=np.uint64)
            first = self.first.get(name, 0)
            for g, table in zip(self.groups, tables):
                t = np.arange(n) + first
                at = np.array([self.pool.index(b) for b in table])
                at = at[(t // g.n["S"]) - first // g.n["S"]]
                mine += g.hashes(g.layers, at, t % g.n["S"], t, np.zeros(n, int))
            tokens += weight(name) * mine
        return out | {"tokens": text("tokens", tokens)}
