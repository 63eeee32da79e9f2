#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_mutations.py - does the digest notice?

Damages dumps on purpose: single bits, heads, tokens, layers, keys and values in
each other's place.  Both the program and kvd1.py must find the same new value,
and the tokens digest must see exactly what belongs to a live token.
"""
import copy
import os

import numpy as np

import oracle
from kvd1 import SCOPES, attention_pool, table_live, text, whole
from oracle import FULL, tap, write_json


class Patient:
    """A dump to damage: writes changed cells under the same name elsewhere."""

    def __init__(self, dump, tmp):
        self.dump, self.tmp, self.count = dump, tmp, 0
        self.before = whole(dump.path)

    def write(self, cells, side=None):
        d = self.dump
        folder = f"{self.tmp}/patient{self.count}"
        self.count += 1
        os.mkdir(folder)
        bits = np.empty(d.nelements, oracle.UNSIGNED[d.itemsize])
        bits[d.offsets] = cells
        path = f"{folder}/{os.path.basename(d.path)}"
        np.save(path, bits.reshape(d.side["file_shape"]))
        write_json(path[:-4] + ".json", side or d.side)
        return path

    def check(self, name, cells, changed, side=None):
        """'changed' = do (tokens, blocks) have to differ from before?"""
        tables = side["block_table"] if side else None
        pool = attention_pool(self.dump, cells, tables)
        after = whole(self.write(cells, side))
        name = f"{self.dump.name}: {name}"
        for i, scope in enumerate(SCOPES):
            want = text(scope, pool.expected(scope, "whole")[""])
            tap.equal(after[i], want, f"{name}: {scope} as computed")
            tap.ok((after[i] != self.before[i]) == changed[i],
                   f"{name}: {scope} {'changes' if changed[i] else 'stays'}",
                   f"before {self.before[i]}\nafter  {after[i]}")


def live_slots(dump):
    """bool [B, S]: does any request have a token there?"""
    live = np.zeros((dump.dims["B"], dump.dims["S"]), bool)
    for block, slot in table_live(dump.tables, dump.ntokens, dump.dims["S"]).values():
        live[block, slot] = True
    return live


def check_flips(patient, count, seed):
    """Single bits, anywhere in the array."""
    rng = np.random.default_rng(seed)
    live = live_slots(patient.dump)
    for _ in range(count):
        cells = patient.dump.cells.copy()
        at = tuple(int(rng.integers(n)) for n in cells.shape)
        bit = int(rng.integers(8 * cells.itemsize))
        cells[at] ^= cells.dtype.type(1 << bit)
        k, l, b, s, h, d = at
        patient.check(f"bit {bit} of k/v {k} layer {l} block {b} slot {s} "
                      f"head {h} element {d}", cells,
                      (bool(live[b, s]), True))


def swap(cells, a, b):
    out = cells.copy()
    out[a], out[b] = cells[b], cells[a]
    return out


def check_swaps(patient):
    """index = [k/v, layer, block, slot, head]"""
    d = patient.dump
    a, b = d.tables["A"], d.tables["B"]
    S, every = d.dims["S"], slice(None)

    def at(request, t, k=every, l=every, h=every):
        return (k, l, d.tables[request][t // S], t % S, h)

    last = d.dims["L"] - 1
    cases = [("two layers", (every, 0), (every, last)),
             ("two layers of one token", at("A", 40, l=0), at("A", 40, l=last)),
             ("two tokens of a request", at("A", 33), at("A", 34)),
             ("two tokens a block apart", at("A", 33), at("A", 33 + S)),
             ("two requests at one position", at("A", 40), at("B", 40)),
             ("two blocks of a request", (every, every, a[2]),
              (every, every, a[3])),
             ("two blocks of two requests", (every, every, a[2]),
              (every, every, b[2]))]
    if not d.latent:
        cases += [
            ("two heads", (every, every, every, every, 0),
             (every, every, every, every, 1)),
            ("two heads of one token", at("A", 40, h=0), at("A", 40, h=1)),
            ("two heads of a layer", (every, 1, every, every, 0),
             (every, 1, every, every, 1)),
            ("keys and values", (0,), (1,)),
            ("key and value of one token", at("B", 37, k=0), at("B", 37, k=1))]
    for name, i, j in cases:
        patient.check(f"swap {name}", swap(d.cells, i, j), (True, True))


def check_moves(patient):
    """Blocks that move with their table stay the same tokens."""
    d = patient.dump
    order = np.random.default_rng(7).permutation(d.dims["B"])
    cells = np.empty_like(d.cells)
    cells[:, :, order] = d.cells
    side = copy.deepcopy(d.side)
    side["block_table"] = {r: [int(order[b]) for b in t] for r, t in d.tables.items()}
    side["null_block"] = int(order[d.side["null_block"]])
    if "free_blocks" in side:
        side["free_blocks"] = [int(order[b]) for b in side["free_blocks"]]
    side.pop("shared_prefix", None)
    patient.check("blocks in another order, tables too", cells, (False, True), side)


def check_names(dump, tmp):
    """A digest belongs to request ids: two that change places show."""
    side = copy.deepcopy(dump.side)
    for table in (side["block_table"], side["num_tokens"]):
        table["A"], table["B"] = table["B"], table["A"]
    path = Patient(dump, tmp).write(dump.cells, side)
    before, after = whole(dump.path), whole(path)
    tap.ok(None not in before + after and after[0] != before[0],
           f"{dump.name}: swap two request ids: tokens changes")
    tap.ok(None not in before + after and after[1] == before[1],
           f"{dump.name}: swap two request ids: blocks stays")


def main(tmp):
    dumps = {d.name: d for d in oracle.attention_dumps()}
    for n, name in enumerate(("gqa64/paged_bs16/packed_nhd.bf16",
                              "mla144/paged_bs16/mla_blsc.bf16",
                              "gqa64/paged_bs16/rocm_x.bf16")):
        os.mkdir(f"{tmp}/p{n}")
        patient = Patient(dumps[name], f"{tmp}/p{n}")
        check_flips(patient, 200 if FULL else 12, 100 + n)
        check_swaps(patient)
        check_moves(patient)
    os.mkdir(f"{tmp}/ids")
    check_names(dumps["gqa64/paged_bs16/packed_nhd.bf16"], f"{tmp}/ids")


oracle.run(main)
