# SPDX-License-Identifier: Apache-2.0
"""
sim_cases.py - small transfers, and every byte of them from the definitions

What oracle_sim_emit.py and oracle_sim_views.py hold the outputs of transfer-sim
against.
"""
import csv

AXES = {"nhd": "LBSHC", "hnd": "LBHSC", "blshc": "BLSHC", "bhlsc": "BHLSC",
        "lhbsc": "LHBSC", "blhsc": "BLHSC"}


# ---- every byte, from the definitions -----------------------------------------

class Side:
    def __init__(self, layout, tp, block, ids, pool, layers, heads, content):
        self.layout, self.tp, self.block, self.ids, self.pool = \
            layout, tp, block, ids, pool
        self.content = content
        held = max(heads // tp, 1)
        self.first = [r * heads // tp for r in range(tp)]
        self.held = held
        extent = {"L": layers, "B": pool, "S": block, "H": held, "C": content}
        self.stride, step = {}, 1
        for axis in reversed(AXES[layout]):
            self.stride[axis] = step
            step *= extent[axis]

    def at(self, layer, token, head, byte):
        s = self.stride
        return (layer * s["L"] + self.ids[token // self.block] * s["B"]
                + token % self.block * s["S"] + head * s["H"] + byte * s["C"])

    def text(self):
        return (f"layout={self.layout},tp={self.tp},block-size={self.block},"
                f"pool={self.pool},ids=list:{':'.join(map(str, self.ids))}")


def owner(src, dst, rank, head):
    """The source rank that gives a head to a destination rank."""
    if dst.tp >= src.tp:
        return rank * src.tp // dst.tp
    q = src.tp // dst.tp
    for r in range(rank * q, rank * q + q):
        if src.first[r] <= head < src.first[r] + src.held:
            return r
    raise AssertionError("nobody has it")


def walk(src, dst, layers, tokens, content):
    moves = {}
    for rank in range(dst.tp):
        for head in range(dst.first[rank], dst.first[rank] + dst.held):
            giver = owner(src, dst, rank, head)
            pair = moves.setdefault((giver, rank), {})
            for layer in range(layers):
                for token in range(tokens):
                    for byte in range(content):
                        pair[src.at(layer, token, head - src.first[giver], byte)] = \
                            dst.at(layer, token, head - dst.first[rank], byte)
    return moves


def random_case(rng):
    heads, hd = rng.choice([1, 2, 4]), rng.choice([1, 2])
    layers, tokens = rng.randint(1, 3), rng.randint(1, 20)
    sides = []
    for _ in range(2):
        block = rng.randint(1, 7)
        n = -(-tokens // block)
        pool = n + rng.randint(0, 4)
        sides.append(Side(rng.choice(sorted(AXES)), rng.choice([1, 2, 4]), block,
                          rng.sample(range(pool), n), pool, layers, heads, 4 * hd))
    args = [f"--spec=gqa:layers={layers},heads={heads},head-dim={hd}",
            f"--tokens={tokens}", f"--src={sides[0].text()}", f"--dst={sides[1].text()}"]
    return args, sides, walk(*sides, layers, tokens, 4 * hd)


# ---- operations as they are printed ---------------------------------------------

def csv_ops(text):
    return [{k: v if k in ("group", "slice") else int(v) for k, v in o.items()}
            for o in csv.DictReader(text.splitlines())]
