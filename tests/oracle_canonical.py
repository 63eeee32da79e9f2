#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_canonical.py - describe --canonical against the allocation done in numpy

The buffer of all positions is made as vLLM #37885 makes it: bytes in a row, seen
as (positions, *shape) permuted by the stride order and permuted back.  Offsets
and strides of each layer are then those of numpy's view.  The conditions are
asked again here, in plain words.  The pool has the rows that a file says, or one for
each block id up to the greatest, however many blocks a group has.
"""
import random

import numpy as np

import oracle
from oracle import DATA, kvtool, tap, write_json

ATTENTION = ("full_attention", "sliding_window", "chunked_local", "mla", "cross")


# ---- said again -------------------------------------------------------------

def page_of(g):
    n = g["dims"]
    page = n["S"] * n["H"] * n["K"] * n["D"] * g["itemsize"]
    return g.get("page_bytes") or page


def reasons(groups):
    """All of them, in the order in which they are listed."""
    out = set()
    if any(g["kind"] not in ATTENTION for g in groups):
        out.add("non_attention_group")
    if len({page_of(g) for g in groups}) > 1:
        out.add("page_size_differs")
    sizes = [next(page_of(g) for g in groups if i < g["dims"]["L"])
             for i in range(max(g["dims"]["L"] for g in groups))]
    if len(set(sizes)) > 1:
        out.add("tensor_size_differs")
    before = None
    for g in groups:
        order = g["order"]
        if not order:
            out.add("no_stride_order")
            continue
        if "L" not in order:
            out.add("layer_axis_missing")
            continue
        if order[0] != "B":
            out.add("blocks_not_outermost")
        if before is not None and not fits(order, before, g):
            out.add("stride_order_differs")
        before = before or order
    return out


def fits(order, first, g):
    """Is the first group's stride order this one's, too?  Axes of 1 are nowhere."""
    return [a for a in order.replace("C", "KD") if g["dims"][a] > 1] == \
        [a for a in first.replace("C", "KD") if g["dims"][a] > 1]


def blocks_of(groups):
    """One for each id up to the greatest."""
    return 1 + max((max(g.get("ids") or range(g["dims"]["B"]), default=-1)
                    for g in groups))


def layer_views(g, positions, row):
    """(offset, strides) in bytes of each position, out of numpy's own view."""
    n, order = g["dims"], g["order"].replace("C", "KD")
    shape = [positions if a == "L" else n[a] for a in order]
    buffer = np.empty(int(np.prod(shape)) * g["itemsize"], np.uint8)
    cells = buffer.view(oracle.UNSIGNED[g["itemsize"]]).reshape(shape)
    cells = np.moveaxis(cells, order.index("L"), 0)
    rest = order.replace("L", "")
    out = []
    for i in range(g["dims"]["L"]):
        layer = cells[i]
        offset = (layer.__array_interface__["data"][0] -
                  buffer.__array_interface__["data"][0])
        strides = {a: s for a, s, m in zip(rest, layer.strides, layer.shape) if m > 1}
        if "B" in strides:
            strides["B"] += row - page_of(g) * positions
        out.append((offset, strides))
    return out


# ---- checking ---------------------------------------------------------------

def check(path, groups, name, *args, rows=None):
    """'rows' are those of the file, and their bytes; None: it is no such tensor."""
    r = kvtool("describe", "--canonical", "--json", *args, path)
    if r.code:
        return tap.ok(False, name, r)
    got, want = r.json["canonical"], reasons(groups)
    if not tap.equal(set(got["reasons"]), want, f"{name}: reasons") or want:
        return tap.equal((got["applies"], got["first_reason"] in want),
                         (not want, bool(want)), f"{name}: the first of them")
    page, positions = page_of(groups[0]), max(g["dims"]["L"] for g in groups)
    blocks, row = rows or (blocks_of(groups), page * positions)
    tap.equal([got[k] for k in ("applies", "blocks", "page_bytes", "positions",
                                "row_bytes", "bytes")],
              [True, blocks, page, positions, row, row * blocks], f"{name}: sizes")
    for g, ref in zip(groups, got["references"]):
        tap.equal((ref["group"], ref["tensor"], ref["row_bytes"]),
                  (g["id"], 0, row), f"{name}: {g['id']}")
        for i, (layer, (offset, strides)) in enumerate(
                zip(ref["layers"], layer_views(g, positions, row))):
            there = {a: layer["strides"][a] for a in strides}
            run = g["order"].startswith("BL")
            tap.equal((layer["position"], layer["offset"], there,
                       layer["one_run"]), (i, offset, strides, run),
                      f"{name}: {g['id']} layer {i}")
        tap.equal(len(ref["layers"]), g["dims"]["L"], f"{name}: layers")
    return None


def group_of(dump, order=None, **more):
    return {"id": "g0", "dims": dump.dims, "itemsize": dump.itemsize,
            "order": order, "kind": "mla" if dump.latent else "full_attention",
            **more}


def real_dumps():
    orders = {**oracle.ONE_PLANE, **oracle.LATENT}
    for d in oracle.attention_dumps():
        check(d.path, [group_of(d, orders.get(d.layout))], d.name)
        for layout in ("cross-nhd", "bhlsc", "kv-first-nhd"):
            if not d.latent:
                check(d.path, [group_of(d, orders[layout])],
                      f"{d.name} as {layout}", f"--canonical-layout={layout}")
    path = f"{DATA}/mamba2g4/tp1_DS/rank0.npy"
    r = kvtool("describe", "--canonical", "--json", path)
    got = r.json["canonical"] if r.code == 0 else {}
    tap.ok("non_attention_group" in got.get("reasons", []) and
           got["first_reason"] == "non_attention_group", "pages of Mamba", r)


# ---- hybrid models ----------------------------------------------------------

def write_hybrid(tmp, groups, rows=None):
    """A raw file of zeros with a manifest; returns its path."""
    path = f"{tmp}/hybrid.bin"
    nbytes = sum(page_of(g) * g["dims"]["B"] * g["dims"]["L"] for g in groups)
    side = {"file": "hybrid.bin", "groups": []}
    if rows:
        side["rows"], side["row_bytes"] = rows
        nbytes = rows[0] * rows[1]
    with open(path, "wb") as f:
        f.truncate(nbytes)
    for g in groups:
        n = g["dims"]
        side["groups"].append({"id": g["id"], "kind": g["kind"], "layout": g["layout"],
                               "dtype": "float16" if g["itemsize"] == 2 else "float32",
                               "sizes": oracle.sizes(L=n["L"], B=n["B"], S=n["S"],
                                                     H=n["H"], D=n["D"]),
                               "layer_names": [f"{g['id']}.{i}" for i in range(n["L"])]})
        if g.get("ids"):
            side["groups"][-1]["block_ids"] = g["ids"]
    write_json(f"{tmp}/hybrid.json", side)
    return path


def hybrid(order, layers, blocks=10, s=(16, 16, 16), h=(4, 4, 4), kinds=None, itemsize=2):
    return [{"id": ("full", "sw", "swb")[i], "layout": o, "itemsize": itemsize,
             "order": o.replace("N", "S"),
             "kind": (kinds or ("full_attention", "sliding_window",
                                "sliding_window"))[i],
             "dims": {"L": layers[i], "B": blocks, "S": s[i], "H": h[i],
                      "K": 2, "D": 8}}
            for i, o in enumerate(order if isinstance(order, tuple)
                                  else (order,) * len(layers))]


HYBRIDS = {
    "three groups, blocks then layers": hybrid("BLKSHD", (2, 2, 2)),
    "three groups, heads before layers": hybrid("BHLKSD", (2, 2, 2)),
    "packed": hybrid("BLSHC", (3, 2, 1)),
    "packed, heads first": hybrid("BHLSC", (1, 5)),
    "unequal blocks, equal pages": hybrid("BLHSC", (2, 2), s=(16, 32), h=(4, 2)),
    "float32": hybrid("BLSHC", (4,), itemsize=4),
    "pages differ": hybrid("BLSHC", (2, 2), h=(4, 2)),
    "pages and tensors differ": hybrid("BLSHC", (1, 3), h=(4, 2)),
    "orders differ": hybrid(("BLSHC", "BHLSC"), (2, 2)),
    "slots or heads first": hybrid(("BLSHC", "BLHSC"), (2, 2)),
    "vLLM's names of them": hybrid(("BLNHC", "BLHNC"), (2, 2)),
    "one order by two names": hybrid(("BLHNC", "BLHSC"), (2, 2)),
    "keys and values apart in one": hybrid(("BLSHC", "BLKSHD"), (2, 2)),
    "one head, whatever the name": hybrid(("BLSHC", "BLHSC"), (2, 2), h=(1, 1)),
    "the last of three": hybrid(("BLHSC", "BLHSC", "BLSHC"), (1, 1, 1)),
    "layers outermost": hybrid("LBSHC", (2, 2)),
    "one group without blocks first": hybrid(("BLSHC", "LBSHC"), (2, 2)),
    "states of Mamba": hybrid("BLSHC", (2, 2),
                              kinds=("full_attention", "opaque")),
}


def random_pool(rng):
    """Groups of one model that divide the ids of a pool, and a tensor that has them."""
    layout = rng.choice(("BLSHC", "BLHSC", "BHLSC", "BLKSHD"))
    layers = [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
    groups = hybrid(layout, layers, s=(rng.choice((2, 4)),) * 3, h=(rng.randint(1, 3),) * 3)
    ids = rng.sample(range(rng.randint(12, 40)), 12)
    cuts = sorted(rng.sample(range(1, 12), len(groups) - 1)) + [12]
    for g, begin, end in zip(groups, [0, *cuts], cuts):
        g["ids"] = ids[begin:end] if rng.random() < 0.5 else sorted(ids[begin:end])
        g["dims"]["B"] = end - begin
    row = page_of(groups[0]) * max(layers)
    return groups, (max(ids) + 1 + rng.choice((0, 0, 1, 5)),
                    row + rng.choice((0, 0, 2, 64)))


def pools(tmp):
    rng = random.Random(8)
    for i in range(165):
        groups, rows = random_pool(rng)
        check(write_hybrid(tmp, groups), groups, f"ids {i}")
        check(write_hybrid(tmp, groups, rows), groups, f"rows {i}", rows=rows)


def kernel_blocks(tmp):
    """Blocks that a kernel sees as several: the allocator's buffer has theirs."""
    rng = random.Random(9)
    for i in range(60):
        k, r = rng.choice((2, 4, 8)), rng.choice((2, 3, 4))
        rest = rng.choice(("LHS", "LSH", "HLS"))
        layout = " ".join(["B", f"S/{k}"] + [f"S%{k}" if a == "S" else a for a in rest] +
                          ["C"])
        layers = [rng.randint(2, 3) for _ in range(rng.randint(1, 3))]
        groups = hybrid(layout, layers, s=(k * r,) * 3, h=(rng.randint(2, 3),) * 3)
        ids = rng.sample(range(20), 12)
        for n, g in enumerate(groups):
            g["ids"] = ids[n * 4:n * 4 + 4]
            g["dims"]["B"] = 4
        row = page_of(groups[0]) * max(layers) + rng.choice((0, 64))
        path = write_hybrid(tmp, groups, (20, row))
        out = kvtool("describe", "--canonical", "--json", path).json
        got = out["canonical"]
        n = {**groups[0]["dims"], "L": max(layers), "S": k, "r": r}
        order = "r" + rest + "KD"
        buffer = np.empty([n[a] for a in order], np.uint16)
        axes = {a: s for a, s in zip(order, buffer.strides) if n[a] > 1}
        want = {"B": row, "kernel_block": axes.pop("r"), **axes}
        step = want.pop("L")
        tap.equal((got["applies"], got["blocks"], got["row_bytes"],
                   out["groups"][0]["kernel_block_size"]), (True, 20, row, k),
                  f"kernel {i}: sizes")
        for g, ref in zip(groups, got["references"]):
            for l, layer in enumerate(ref["layers"]):
                tap.equal((layer["offset"], layer["one_run"], {
                    a: layer["strides"][a] for a in want}), (l * step, False, want),
                    f"kernel {i}: {g['id']} layer {l}")


def vector(tmp):
    """The numbers of the pull request's own test."""
    path = write_hybrid(tmp, HYBRIDS["three groups, blocks then layers"])
    o = kvtool("describe", "--canonical", "--json", path).json
    layer = o["canonical"]["references"][0]["layers"][1]
    at = {"K": 1, "B": 3, "S": 5, "H": 2}
    tap.equal(layer["offset"] + sum(layer["strides"][a] * i
                                    for a, i in at.items()), 15712,
              "full.1, block 3, V, token 5, head 2 is byte 15712")


def main(tmp):
    real_dumps()
    for name, groups in HYBRIDS.items():
        check(write_hybrid(tmp, groups), groups, name)
    vector(tmp)
    uneven = hybrid("BLSHC", (2, 2))
    uneven[1]["dims"]["B"] = 7
    check(write_hybrid(tmp, uneven), uneven, "unequal numbers of blocks")
    pools(tmp)
    kernel_blocks(tmp)


oracle.run(main)
