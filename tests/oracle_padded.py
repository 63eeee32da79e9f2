#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_padded.py - heads that an engine has padded to 128 elements: describe says it where
zeros show it, and only there; what is read without the padding is what was put in
"""
import random

import numpy as np

import oracle
from foreign_files import Tensor, npz_bytes, safetensors_bytes, torch_bytes
from oracle import kvtool, refused, runs, tap, write_bytes

CASES = 40
FORMS = "pt", "npz", "safetensors"
WORDS = "as of heads that were padded"


def save(form, layers):
    if form == "pt":
        return torch_bytes([Tensor("FloatStorage", a) for a in layers])
    named = {f"layers.{i}": a for i, a in enumerate(layers)}
    return npz_bytes(named) if form == "npz" else safetensors_bytes(
        {n: ("F32", a) for n, a in named.items()})


def make(rng, width, padded):
    l, b, s, h = (rng.randint(2, 4), rng.randint(1, 5), rng.randint(1, 4), rng.randint(1, 3))
    draw = np.random.default_rng(rng.randrange(1 << 30))
    rows = draw.standard_normal((l, b, s, h, 2, padded)).astype(np.float32)
    rows[..., width:] = 0
    if b > 1 and rng.random() < .5:
        rows[:, 0] = 0                              # a block that nothing is in yet
    return rows, b, s, h


def case(tmp, seed):
    rng = random.Random(seed)
    padded = rng.choice((128, 256))
    width = rng.choice((64, 80, 96, 112, padded, padded - 8))
    rows, b, s, h = make(rng, width, padded)
    path = f"{tmp}/{FORMS[seed % 3]}.bin"
    write_bytes(path, save(FORMS[seed % 3], list(rows)))
    r = kvtool("describe", "--layout=nhd", path)
    seen = padded - width >= 16 and rows.any()
    if r.code or (WORDS in r.out) != seen or (seen and f"--head-dim={width} " not in r.out):
        return f"{width} of {padded}: {r}"
    if width == padded:
        return None
    r = kvtool("convert", "-f", "--layout=nhd", f"--set=padded={padded}",
               f"--head-dim={width}", path, f"{tmp}/out.npy")
    if r.code:
        return f"{width} of {padded}: {r}"
    got = np.load(f"{tmp}/out.npy")
    want = rows[..., :width]
    return None if got.size == want.size and np.array_equal(got.reshape(want.shape), want) \
        else f"{width} of {padded}: differs"


def check_refused(tmp):
    rows, b, s, h = make(random.Random(2), 64, 128)
    path = f"{tmp}/r.npz"

    def write(a):
        write_bytes(path, save("npz", a))

    write(list(rows))
    for what, options, status, word in (
            ("no size", ("--set=padded=128",), 2, "--head-dim"),
            ("as many", ("--set=padded=128", "--head-dim=128"), 2, "fewer"),
            ("rows of another length", ("--set=padded=96", "--head-dim=64"), 3, "96"),
            ("no number", ("--set=padded=x", "--head-dim=64"), 2, "padded")):
        refused(f"refused: {what}", status, word, "describe", "--layout=nhd", *options,
                path)
    rows[-1, -1, -1, -1, -1, 100] = 1
    write(list(rows))
    refused("refused: it is not zero", 3, ("no padding", f"layers.{len(rows) - 1}"),
            "describe", "--layout=nhd", "--set=padded=128", "--head-dim=64", path)
    r = kvtool("fsck", "--layout=nhd", "--set=padded=128", "--head-dim=80", path)
    tap.ok(r.code == 3 and "element 80" in r.err + r.out, "and fsck says so", r)
    rows[-1, -1, -1, -1, -1, 100] = 0
    write(list(rows))
    runs("fsck says what was not looked at", "fsck", "--layout=nhd", "--set=padded=128",
         "--head-dim=64", path, says="some rows")


def main(tmp):
    wrong = [f"{seed}: {why}" for seed in range(CASES) if (why := case(tmp, seed))]
    tap.equal(wrong[:3], [], f"{CASES} caches with and without padding")
    check_refused(tmp)


oracle.run(main)
