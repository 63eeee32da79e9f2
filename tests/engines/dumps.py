# SPDX-License-Identifier: Apache-2.0
"""
dumps.py - what kvtool reads of a file, as arrays of bits

kvtool writes the file anew as safetensors, whose header says everything, and that
is read here by hand: a state is looked up through the tables, as an engine would.
"""
import json
import os

import numpy as np

BITS = {"F64": "<u8", "F32": "<u4", "F16": "<u2", "BF16": "<u2", "F8_E4M3": "u1",
        "F8_E5M2": "u1", "U8": "u1"}
AXES = "LKBSHD"


def header(path):
    """The JSON of a safetensors file, and where its data begins."""
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        return json.loads(f.read(n)), 8 + n


class Group:
    """cells[L, K, B, S, H, D]; K is 1 where a state is no pair, or half of one."""

    def __init__(self, side, whole, cells):
        self.id, self.layout = side.get("id", "g0"), side["layout"]
        self.sizes, self.window = side["sizes"], side.get("window", 0)
        layers = side.get("layer_ids", list(range(self.sizes["layers"])))
        self.layers = {l: i for i, l in enumerate(layers)}
        names = [p["name"] if isinstance(p, dict) else p[0]
                 for p in side.get("content", [])]
        self.halves = {("k",): (0,), ("v",): (1,)}.get(tuple(names), (0, 1))
        self.ids = side.get("block_ids")
        self.names, self.valid = side.get("block_names"), side.get("block_valid")
        self.table = side.get("block_table", whole.get("block_table", {}))
        self.first = side.get("first_token", whole.get("first_token", {}))
        self.count = side.get("num_tokens", whole.get("num_tokens", {}))
        self.cells = self.ordered(cells)

    def ordered(self, cells):
        axes = self.layout.replace("C", "KD" if "head_dim" in self.sizes else "D")
        for a in AXES:
            if a not in axes:
                cells, axes = cells[None], a + axes
        return cells.transpose([axes.index(a) for a in AXES])

    def place(self, block):
        return self.ids.index(block) if self.ids else block

    def tokens(self, request, layer, begin=None):
        """[K, T, H, D] from token 'begin' on; the default is all that is held."""
        size, table = self.cells.shape[3], self.table[request]
        first = self.first.get(request, 0)
        end = first + self.count[request]
        if begin is None:
            begin = max(first, end - self.window + 1) if self.window else first
        at = np.arange(begin, end)
        blocks = np.array([self.place(b) for b in table])[at // size - first // size]
        return self.cells[self.layers[layer]][:, blocks, at % size], begin


def by_number(item):
    """g2 before g10."""
    return len(item[0]), item[0]


class Dump:
    def __init__(self, path):
        head, begin = header(path)
        side = json.loads(head.pop("__metadata__")["kvtool"])
        groups = side.get("groups", [side])
        self.side, self.groups = side, []
        for g, (name, t) in zip(groups, sorted(head.items(), key=by_number)):
            lo, hi = t["data_offsets"]
            cells = np.fromfile(path, BITS[t["dtype"]], offset=begin + lo,
                                count=(hi - lo) // np.dtype(BITS[t["dtype"]]).itemsize)
            self.groups.append(Group({"id": name, **g}, side, cells.reshape(t["shape"])))

    def layer(self, request, layer):
        """(keys or all, values, first token) of a layer, each [T, H, D]."""
        halves, begin = {}, 0
        for g in self.groups:
            if layer in g.layers:
                cells, begin = g.tokens(request, layer)
                halves.update(zip(g.halves, cells))
        return halves.get(0), halves.get(1), begin


def read(proof, path, *options, folder=None):
    """A Dump of what kvtool reads of 'path'."""
    folder = folder or os.path.join(proof.work, "read")
    os.makedirs(folder, exist_ok=True)
    out = os.path.join(folder, "read.safetensors")
    proof.must("convert", "-f", "-q", "--no-sync", *options, path, out)
    return Dump(out)
