#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_sim_emit.py - what transfer-sim emit prints, read by others

Each list that it prints is turned into the bytes it moves, and these are held
against a walk over every byte from the definitions.
"""
import itertools
import json
import random
import re

from oracle import kvtool, run, tap
from sim_cases import csv_ops, random_case


# ---- readers -------------------------------------------------------------------

class Moves(dict):
    """Bytes of each pair; one that is written twice is noticed."""

    def add(self, pair, src, dst, n):
        mine = self.setdefault(pair, {})
        for i in range(n):
            assert src + i not in mine, "a byte is read twice"
            mine[src + i] = dst + i


def read_ops(ops):
    moves = Moves()
    for o in ops:
        moves.add((o["src_rank"], o["dst_rank"]), o["src_off"], o["dst_off"], o["len"])
    return moves


def read_csv(text):
    return read_ops(csv_ops(text))


def read_jsonl(text):
    return read_ops(map(json.loads, text.splitlines()))


def flatten(columns, rows):
    for row in rows:
        d = dict(zip(columns, row))
        assert d.get("stride", 1) > 0 and d.get("count", 1) > 0, "no stride is below 1"
        for i in range(d.get("count", 1)):
            yield d["addr"] + i * d.get("stride", 0), d["len"], d["dev"]


def read_lists(text):
    moves, o = Moves(), json.loads(text)
    for pair in o["pairs"]:
        src = list(flatten(o["columns"], pair["src"]))
        dst = list(flatten(o["columns"], pair["dst"]))
        assert len(src) == len(dst), "lists of different length"
        for (a, n, sdev), (b, m, ddev) in zip(src, dst):
            assert n == m and sdev == pair["src_rank"] and ddev == pair["dst_rank"]
            moves.add((sdev, ddev), a, b, n)
    return moves


def read_regions(text):
    moves = Moves()
    for pair in json.loads(text)["pairs"]:
        for r in pair["regions"]:
            places = [(r["src_off"], r["dst_off"])]
            for n, ss, ds in r["loops"]:
                places = [(a + i * ss, b + i * ds) for a, b in places for i in range(n)]
            for a, b in places:
                moves.add((pair["src_rank"], pair["dst_rank"]), a, b, r["run"])
    return moves


READERS = {"csv": read_csv, "jsonl": read_jsonl, "nixl": read_lists,
           "nixl-strided": read_lists, "regions": read_regions}


def emit_test():
    rng = random.Random(4)
    bad = dict.fromkeys(READERS, "")
    matrix = ""
    for _ in range(40):
        args, sides, want = random_case(rng)
        scope = rng.choice(["max", "rfc", "layer"])
        for name, reader in READERS.items():
            r = kvtool("transfer-sim", "emit", *args, f"--format={name}",
                       f"--scope={scope}")
            try:
                if r.code != 0 or reader(r.out) != want:
                    bad[name] = bad[name] or f"{' '.join(args)}\n{r.err}"
            except (AssertionError, ValueError, KeyError) as why:
                bad[name] = bad[name] or f"{' '.join(args)}\n{why!r}"
        r = kvtool("transfer-sim", "emit", *args, "--format=kvbench-matrix")
        rows = [[int(x) for x in line.split()] for line in r.out.splitlines()]
        n = sides[0].tp + sides[1].tp
        full = [[len(want.get((y, x - sides[0].tp), ())) for x in range(n)]
                for y in range(n)]
        if rows != full:
            matrix = " ".join(args)
    for name in READERS:
        tap.ok(not bad[name], f"emit: {name} moves the bytes that it should, 40 cases",
               bad[name])
    tap.ok(not matrix, "emit: the matrix has the bytes of each pair, 40 cases", matrix)


def place_test():
    """The layers, tokens and heads of an operation are those of its bytes."""
    rng, bad = random.Random(5), ""
    for _ in range(40):
        args, (src, dst), want = random_case(rng)
        layers, heads = (int(re.search(f"{k}=([0-9]+)", args[0])[1])
                         for k in ("layers", "heads"))
        tokens = int(args[1].split("=")[1])
        r = kvtool("transfer-sim", "emit", *args,
                   f"--scope={rng.choice(['max', 'rfc', 'layer'])}")
        lines = [json.loads(line) for line in
                 kvtool("transfer-sim", "emit", *args, "--format=jsonl").out.splitlines()]
        pairs = sorted(want, key=lambda p: (p[1], p[0]))
        what = {}
        for rank in range(src.tp):
            for head in range(src.first[rank], src.first[rank] + src.held):
                for at in itertools.product(range(layers), range(tokens), [head]):
                    start = src.at(at[0], at[1], head - src.first[rank], 0)
                    what.update({(rank, start + i): at for i in range(src.content)})
        for o in csv_ops(r.out) + lines:
            all_of = [what[o["src_rank"], o["src_off"] + i] for i in range(o["len"])]
            least, most = map(min, zip(*all_of)), map(max, zip(*all_of))
            box = [n for a, z in zip(least, most) for n in (a, z - a + 1)]
            if (box != [o[k] for k in ("layer0", "layers", "token0", "tokens", "head0",
                                       "heads")]
                    or pairs[o["pair"]] != (o["src_rank"], o["dst_rank"])):
                bad = bad or f"{' '.join(args)}\n{o}\n{box}"
    tap.ok(not bad, "emit: operations say what of the model they carry, 40 cases", bad)


def bench_test():
    args = ["--spec=gqa:layers=3,heads=4,head-dim=8", "--tokens=32",
            "--src=layout=nhd,tp=2", "--dst=tp=4"]
    r = kvtool("transfer-sim", "emit", *args, "--format=nixlbench")
    keys = dict(re.match(r"(\w+) = (.*)", line).groups()
                for line in r.out.splitlines() if not line.startswith("#"))
    # a head of a slot is 2 x 8 elements of 2 bytes; 3 layers of 32 slots a pair
    tap.equal([keys["start_block_size"], keys["max_block_size"], keys["start_batch_size"],
               keys["max_batch_size"], keys["total_buffer_size"], keys["backend"]],
              ["32", "32", "96", "96", str(32 * 96), '"UCX"'],
              "emit: nixlbench has the size and the number of the operations")
    r = kvtool("transfer-sim", "emit", *args, "--format=kvbench-yaml",
               "--matrix-file=m/x.txt")
    tap.ok('matrix_file: "m/x.txt"' in r.out and "isl: 32" in r.out,
           "emit: the YAML names its matrix", r)


run(emit_test, place_test, bench_test)
