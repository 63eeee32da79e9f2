#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
oracle_one_layer.py - the tensor of one layer as engines index it, alone, in a list or a
dict, in npy, npz, torch and safetensors: the layout that wrote it is among those that the
message lists, with its sizes, and with that layout each element is where numpy has it
"""
import json
import os
import random
import re
import sys

sys.dont_write_bytecode = True

import numpy as np

import oracle
from foreign_files import Tensor, npy_bytes, npz_bytes, safetensors_bytes, torch_bytes
from oracle import Tap, kvtool

tap = Tap()
CASES = 240
# what an engine indexes of a layer; with C keys and values of a head side by side
LAYERS = {"kv-first-nhd": "KBSHD", "kv-first-hnd": "KBHSD", "blocks-first-nhd": "BKSHD",
          "blocks-first-hnd": "BKHSD", "flex-split": "BSKHD", "head-halves": "BHKSD",
          "nhd": "BSHC", "hnd": "BHSC", "mla": "BSC"}
SIZES = re.compile(r"(?:^|, )([a-z0-9-]+) \((\d+)(?: layers?)?, (\d+)(?: blocks)? of (\d+)"
                   r"(?: tokens)?, (?:rows of (\d+)|(\d+)(?: heads)? of (\d+))\)")


def extents(rng):
    n = {"B": rng.choice((7, 24, 64)), "S": rng.choice((4, 16)), "H": rng.choice((3, 8)),
         "D": rng.choice((16, 64)), "K": 2}
    return n | {"C": 2 * n["D"]}


def files(rng, layers):
    """Containers of it: name, bytes, is it one tensor."""
    half = [Tensor("HalfStorage", a) for a in layers]
    one = layers[0]
    yield "npy", npy_bytes(one), True
    yield "npz", npz_bytes({"arr_0": one}), True
    yield "pt", torch_bytes(half[0]), True
    yield "safetensors", safetensors_bytes({"kv": ("F16", one)}), True
    yield "list.pt", torch_bytes(half), False
    name = rng.choice(("layers.{}", "model.layers.{}.self_attn.attn", "kv_{}", "{}"))
    names = [name.format(i) for i in range(len(layers))]
    yield "dict.pt", torch_bytes(dict(zip(names, half))), False
    yield "dict.safetensors", safetensors_bytes(
        {n: ("F16", a) for n, a in zip(names, layers)}), False
    yield "dict.npz", npz_bytes(dict(zip(names, layers))), False


def named(text):
    """{layout: [layers, blocks, tokens, heads, dim]} of what a message lists."""
    part = re.search(r"could be (.*): give", text)
    found = SIZES.findall(part.group(1)) if part else []
    return {f[0]: [int(f[1]), int(f[2]), int(f[3]), int(f[5] or 1), int(f[6] or f[4])]
            for f in found}


def look(seed, folder):
    """What is wrong of one case in all its containers, and how many there were."""
    rng = random.Random(seed)
    name = rng.choice(list(LAYERS))
    axes, n = LAYERS[name], extents(rng)
    count, bad, cases = rng.randint(2, 3), [], 0
    shape = [n[a] for a in axes]
    layers = [np.frombuffer(rng.randbytes(2 * int(np.prod(shape))), "<f2").reshape(shape)
              for _ in range(count)]
    for form, data, single in files(rng, layers):
        cases += 1
        path = f"{folder}/x.{form}"
        with open(path, "wb") as f:
            f.write(data)
        dim = n["C"] if name == "mla" else n["D"]
        want = [1 if single else count, n["B"], n["S"], 1 if name == "mla" else n["H"], dim]
        r = kvtool("describe", path)
        listed = named(r.err)
        if r.code != 3 or listed.get(name) != want and " more: give" not in r.err:
            bad.append(f"seed {seed}, {form}, {name}, {want}: {r.code} {r.err}")
        for said in (name, axes):
            r = kvtool("describe", "--json", f"--layout={said}", path)
            if r.code:
                bad.append(f"seed {seed}, {form} --layout={said}: {r.err}")
                continue
            g = json.loads(r.out)["groups"][0]
            got = [g["layers"], g["blocks"], g["slots"], g["heads"], g["dim"]]
            if got != want:
                bad.append(f"seed {seed}, {form} --layout={said}: {got}, not {want}")
        out = f"{folder}/out.npy"
        r = kvtool("convert", "-f", f"--layout={name}", path, out)
        used = layers[:1] if single else layers
        if r.code or np.load(out).tobytes() != b"".join(a.tobytes() for a in used):
            bad.append(f"seed {seed}, {form}, {name}: other elements {r.err}")
    return bad, cases


def main():
    oracle.need_program_and_data()
    bad, cases, seed = [], 0, 0
    with oracle.workdir() as folder:
        while cases < CASES:
            wrong, n = look(seed, folder)
            bad += wrong
            cases += n
            seed += 1
    tap.equal(bad[:5], [], f"{cases} tensors of a layer, or of several")
    tap.done()


if __name__ == "__main__":
    main()
