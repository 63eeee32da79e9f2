#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_blocks_of.py - requests told on the command line: tables, lengths and slot
mappings as engines log them, in each form, give the tokens that numpy takes out of
the pool by the same table; what does not fit the pool or itself is refused
"""
import random

import numpy as np

import oracle
from oracle import kvtool, read_json, tap, write_json

CASES = 60 // oracle.SHARE
SIZES = ["--layout=KBSHD", "--dtype=float16"]


class Pool:
    """K, V of one layer, and requests that have some of its blocks."""

    def __init__(self, rng, folder):
        self.each, self.blocks = rng.choice((1, 4, 16)), rng.randint(6, 40)
        self.array = np.array([rng.getrandbits(16) & 0xbbff for _ in range(
            2 * self.blocks * self.each * 3 * 4)], "<u2").view("<f2").reshape(
            2, self.blocks, self.each, 3, 4)
        ids = rng.sample(range(self.blocks), self.blocks)
        self.tables, self.lengths = [], []
        for _ in range(rng.randint(1, 3)):
            n = rng.randint(1, max(1, len(ids) // 3))
            self.tables.append([ids.pop() for _ in range(n)])
            self.lengths.append(rng.randint((n - 1) * self.each + 1, n * self.each))
        self.path = f"{folder}/pool.npy"
        np.save(self.path, self.array)

    def tokens(self, r):
        """[2, tokens, heads, elements] of a request."""
        return np.stack([half[self.tables[r]].reshape(-1, 3, 4)[:self.lengths[r]]
                         for half in self.array])

    def slots(self, r):
        return [self.tables[r][t // self.each] * self.each + t % self.each
                for t in range(self.lengths[r])]


def runs(table):
    """3,5,6,7 as "3,5-7", sometimes."""
    out, i = [], 0
    while i < len(table):
        j = i
        while j + 1 < len(table) and table[j + 1] == table[j] + 1:
            j += 1
        out.append(str(table[i]) if i == j else f"{table[i]}-{table[j]}")
        i = j + 1
    return ",".join(out)


def forms(pool, rng, folder):
    """Ways to say it: name, options, names of the requests."""
    numbers = [str(i) for i in range(len(pool.tables))]
    names = ["A", "a=b", "x:1"][:len(numbers)]
    yield "words", [f"--blocks-of={n}={runs(t)}:{k}" for n, t, k in
                    zip(names, pool.tables, pool.lengths)], names
    lens = "--seq-lens=" + ",".join(map(str, pool.lengths))
    yield "words and lengths", [f"--blocks-of={n}={','.join(map(str, t))}" for n, t in
                                zip(names, pool.tables)] + [lens], names
    write_json(f"{folder}/rows.json", pool.tables)
    write_json(f"{folder}/lens.json", pool.lengths)
    yield "JSON rows", [f"--blocks-of=@{folder}/rows.json",
                        f"--seq-lens=@{folder}/lens.json"], numbers
    write_json(f"{folder}/named.json", dict(zip(names, pool.tables)))
    yield "JSON object", [f"--blocks-of=@{folder}/named.json", lens], names
    # as an engine's tensor: rows of one width, behind each whatever was there
    width = max(map(len, pool.tables)) + rng.randint(0, 4)
    rows = np.full((len(numbers), width), rng.choice((-1, 0, 7)), rng.choice(("<i4", "<i8")))
    for row, table in zip(rows, pool.tables):
        row[:len(table)] = table
    np.save(f"{folder}/rows.npy", rows)
    np.save(f"{folder}/lens.npy", np.array(pool.lengths, "<i4"))
    yield "npy rows", [f"--blocks-of=@{folder}/rows.npy",
                       f"--seq-lens=@{folder}/lens.npy"], numbers
    every = [s for r in range(len(numbers)) for s in pool.slots(r)]
    np.save(f"{folder}/slots.npy", np.array(every + [-1] * rng.randint(0, 3), "<i8"))
    yield "slots", [f"--slot-mapping={folder}/slots.npy", lens], numbers
    write_json(f"{folder}/slots.json", [pool.slots(r) for r in range(len(numbers))])
    yield "slots of each", [f"--slot-mapping={folder}/slots.json"], numbers


def look(pool, said, names, folder):
    """What is wrong, or None."""
    for r, name in enumerate(names):
        out = f"{folder}/out.npy"
        done = kvtool("slice", "-f", *SIZES, *said, f"--request={name}", pool.path, out)
        if done.code:
            return done.err
        told = read_json(f"{folder}/out.json")
        if told["num_tokens"] != {name: pool.lengths[r]}:
            return f"{name}: {told['num_tokens']}"
        ids = told["block_ids"]
        got = np.load(out)[:, [ids.index(b) for b in told["block_table"][name]]]
        got = got.reshape(2, -1, 3, 4)[:, :pool.lengths[r]]
        if got.tobytes() != pool.tokens(r).tobytes():
            return f"{name}: other tokens"
    return None


def sweep(folder):
    bad, n = [], 0
    for seed in range(CASES):
        rng = random.Random(seed)
        pool = Pool(rng, folder)
        for form, said, names in forms(pool, rng, folder):
            n += 1
            why = look(pool, said, names, folder)
            if why:
                bad.append(f"seed {seed}, {form}: {why}")
    tap.equal(bad[:5], [], f"{n} ways to say {CASES} tables give numpy's tokens")


def refusals(folder):
    pool = f"{folder}/pool.npy"
    np.save(pool, np.zeros((2, 8, 4, 3, 4), np.float16))
    files = {"padded.json": [[1, 2, 0, 0], [3, 0, 0, 0]], "text.json": {"A": "5"},
             "deep.json": [[[1]]], "minus.json": [[1, -1, 2]], "real.json": [[1.5]],
             "gap.json": [4, 5, 6, 7, 9], "middle.json": [6, 7]}
    for name, value in files.items():
        write_json(f"{folder}/{name}", value)
    np.save(f"{folder}/real.npy", np.zeros(4))
    np.save(f"{folder}/three.npy", np.zeros((1, 1, 1), np.int32))
    with open(f"{folder}/wide.npy", "wb") as f:
        head = b"{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999, 0), }"
        f.write(b"\x93NUMPY\x01\x00" + len(head + b"\n").to_bytes(2, "little") + head + b"\n")
    for said, code, words in (
            ("--blocks-of=A=8", 3, "position 8"), ("--blocks-of=A=", 2, "expected"),
            ("--blocks-of==5", 2, "expected"), ("--blocks-of=5", 2, "expected"),
            ("--blocks-of=A=5:", 2, "expected"), ("--blocks-of=A=5:0", 2, "expected"),
            ("--blocks-of=A=5-3", 2, "expected"), ("--blocks-of=A=1,,2", 2, "expected"),
            ("--blocks-of=A=0-9999999999", 3, "the dump has 8"),
            ("--blocks-of=A=5,5", 3, "has block 5 twice"),
            ("--blocks-of=A=5:5", 3, "do not fit into its 1 blocks of 4"),
            ("--blocks-of=A=5 --blocks-of=A=6", 2, "request A twice"),
            ("--seq-lens=4", 2, "--blocks-of or --slot-mapping"),
            ("--blocks-of=A=5 --seq-lens=4,4", 2, "2 lengths"),
            ("--blocks-of=A=5:3 --seq-lens=4", 2, "already"),
            ("--blocks-of=A=5 --seq-lens=x", 2, "--seq-lens is 'x'"),
            ("--blocks-of=A=5 --slot-mapping=@gap.json", 2, "give one"),
            ("--blocks-of=@padded.json", 3, "has block 0 twice"),
            ("--blocks-of=@text.json", 3, "not a list of whole numbers"),
            ("--blocks-of=@deep.json", 3, "not a whole number"),
            ("--blocks-of=@real.json", 3, "not a whole number"),
            ("--blocks-of=@minus.json", 3, "before the end of a row"),
            ("--blocks-of=@real.npy", 3, "not an array of whole numbers"),
            ("--blocks-of=@three.npy", 3, "not an array of whole numbers"),
            ("--blocks-of=@wide.npy", 3, "says of no request"), ("--blocks-of=@none.npy", 5, "none.npy"),
            ("--blocks-of=@pool.npy", 3, "not an array of whole numbers"),
            ("--slot-mapping=gap.json", 3, "slot 9, expected the first of a block"),
            ("--slot-mapping=middle.json", 3, "slot 6, expected the first of a block"),
            ("--slot-mapping=gap.json --seq-lens=9", 3, "says more"),
            ("--slot-mapping=gap.json --seq-lens=4", 3, "--seq-lens says 4")):
        r = kvtool("describe", *SIZES, *said.split(), "pool.npy", folder=folder)
        tap.ok(r.code == code and words in r.err, f"{said}: {code}", f"{r.code} {r.err}")
    kvtool("convert", "-f", *SIZES, "--blocks-of=A=5,2:7", "pool.npy", "pool.h5",
           folder=folder)
    for said, code in (("A=5,2:7", 0), ("A=2,5:7", 3), ("A=5,2:6", 3), ("B=5,2:7", 3)):
        r = kvtool("describe", f"--blocks-of={said}", "pool.h5", folder=folder)
        tap.ok(r.code == code, f"beside what a dump says, {said}: {code}", r.err)


oracle.run(sweep, refusals)
