#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_strides.py - tensors of torch whose memory has another order than their indices:
what describe says of the order of memory is numpy's, and each element is read, and
found by 'where', as the index says
"""
import random
import re

import numpy as np

import oracle
from foreign_files import Tensor, torch_bytes
from oracle import kvtool, tap, write_bytes

CASES = 80
# axes as engines index them, with the letters of one layer
INDEXED = {"kv-first-nhd": "KBSHD", "blocks-first-nhd": "BKSHD", "nhd": "BSHC",
           "hnd": "BHSC", "kv-first-hnd": "KBHSD", "mla": "BSC"}


def sizes(rng):
    n = dict(zip("LBSHD", (rng.randint(1, 3), rng.randint(2, 5), rng.choice((3, 4, 6)),
                           rng.choice((2, 5)), rng.choice((8, 10)))))
    return {**n, "K": 2, "C": 2 * n["D"]}


def memory_axes(rng, axes):
    """Another order, which keeps the innermost or not."""
    order = list(range(len(axes)))
    while True:
        rng.shuffle(order)
        if rng.random() < .7:
            order.remove(len(axes) - 1)
            order.append(len(axes) - 1)
        if order != list(range(len(axes))):
            return order


def look(rng, folder, seed):
    name = rng.choice(list(INDEXED))
    axes, n = INDEXED[name], sizes(rng)
    form = rng.choice(("one", "layers", "all"))
    if form == "all":
        axes = "L" + axes
    if form != "layers":
        n["L"] = 1 if form == "one" else n["L"]
    order = memory_axes(rng, axes)
    shape = [n[a] for a in axes]
    whole = np.arange(int(np.prod(shape)) * (n["L"] if form == "layers" else 1), dtype="<u2")
    layers = np.split(whole, n["L"]) if form == "layers" else [whole]
    # dense in memory order, indexed in the other
    tensors = [Tensor("HalfStorage", a.reshape([shape[i] for i in order]),
                      [order.index(i) for i in range(len(axes))]) for a in layers]
    views = [t.bits.transpose([order.index(i) for i in range(len(axes))]) for t in tensors]
    path = f"{folder}/t.pt"
    write_bytes(path,
                torch_bytes(tensors[0] if form != "layers"
                            else rng.choice((tensors,
                                             {f"layers.{i}": t for i,
                                              t in enumerate(tensors)}))))
    said = ["--layout=" + name]
    r = kvtool("describe", "--json", *said, path)
    if r.code:
        return f"{form} {name} {order}: {r.err}"
    g = r.json["groups"][0]
    big = [a for a in order if shape[a] > 1]
    # axes of extent 1 stand anywhere
    there = [a for a in "LBSHKD" if a != "K" or name != "mla"]
    want = "".join(a for i in order for a in axes[i].replace("C", "KD")
                   if a in there and n[a] > 1)
    got = "".join(a for a in g["layout"].replace("C", "KD") if a in there and n[a] > 1)
    prefix = "L" if form == "layers" and n["L"] > 1 else ""
    moved = big != sorted(big)
    if moved and (got != prefix + want or not g["indexed_layout"]) or \
            not moved and g["indexed_layout"]:
        return f"{form} {name} {axes} {order}: {g['layout']} of {g['indexed_layout']}"
    # every element where the index says: written again in the order of indices
    out = f"{folder}/out.npy"
    r = kvtool("relayout", "-f", *said, f"--to={name}", path, out)
    if r.code:
        return f"{form} {name} {order}: {r.err}"
    if np.load(out).tobytes() != b"".join(np.ascontiguousarray(v).tobytes() for v in views):
        return f"{form} {name} {order}: other elements"
    # and the bytes of one are in the file where 'where' says
    at = {a: rng.randrange(n[a]) for a in "LBSHKD"}
    if name == "mla":
        at |= {"H": 0, "K": 0, "D": rng.randrange(n["C"])}
    words = f"layer={at['L']},block={at['B']},slot={at['S']},head={at['H']}," \
            f"kv={at['K']},dim={at['D']}"
    if name == "mla":
        words = f"layer={at['L']},block={at['B']},slot={at['S']},dim={at['D']}"
    r = kvtool("where", "--json", *said, path, words)
    if r.code:
        return f"{form} {name} {order}: where {words}: {r.err}"
    offset = int(re.search(r'"offset": (\d+)', r.out).group(1))
    at["C"] = at["D"] if name == "mla" else at["K"] * n["D"] + at["D"]
    view = views[at["L"] if form == "layers" else 0]
    element = view[tuple(at[a] for a in axes)]
    with open(path, "rb") as f:
        f.seek(offset)
        if f.read(2) != element.tobytes():
            return f"{form} {name} {order}: where {words} is not at {offset}"
    return None


def main(folder):
    bad = [why for why in (look(random.Random(seed), folder, seed)
                           for seed in range(CASES)) if why]
    tap.equal(bad[:5], [], f"{CASES} tensors in another order than their indices")
    # the words of a contract judge memory
    a = np.zeros((2, 4, 3, 5, 8), "<u2")
    write_bytes(f"{folder}/hnd.pt",
                torch_bytes(Tensor("HalfStorage", a, (0, 1, 3, 2, 4))))
    for layout, code in (("kv-first-hnd", 0), ("kv-first-nhd", 1)):
        r = kvtool("describe", "--layout=kv-first-nhd", f"--expect-layout={layout}",
                   "hnd.pt", folder=folder)
        tap.equal(r.code, code, f"expected {layout}: {code}")
    r = kvtool("describe", "--layout=kv-first-nhd", "hnd.pt", folder=folder)
    tap.ok("LKBHSD (kv-first-hnd" in r.out and "indexed   LKBSHD (kv-first-nhd" in r.out,
           "both orders are shown", r.out)
    # with gaps there is no other order
    gaps = Tensor("HalfStorage", a, (0, 1, 3, 2, 4))
    gaps.stride[0] += 16
    gaps.bits = np.zeros(2 * 4 * 3 * 5 * 8 + 200, "<u2")
    write_bytes(f"{folder}/gaps.pt", torch_bytes(gaps))
    r = kvtool("describe", "--json", "--layout=kv-first-nhd", "gaps.pt", folder=folder)
    tap.ok(r.code == 0 and not r.json["groups"][0]["indexed_layout"],
           "rows with gaps keep the order of indices", r.err)


oracle.run(main)
