#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_planes.py - rows of latents whose parts are two tensors of a layer, as vLLM on Ascend
keeps them: a latent of each token in one, its rotary part in the other; what is read must be
the rows that both make together
"""
import random

import numpy as np

import oracle
from foreign_files import Tensor, npz_bytes, safetensors_bytes, torch_bytes
from oracle import kvtool, tap, write_bytes

CASES = 60
FORMS = "pt list", "pt dict", "npz", "npz stacked", "safetensors"


def planes(rng, l, b, s, widths, split, heads):
    """[layer][plane] as it is in memory, and all rows [L, B, S, C]"""
    draw = np.random.default_rng(rng.randrange(1 << 30))
    rows = draw.standard_normal((l, b, s, sum(widths))).astype(np.float32)
    at, out = 0, [[] for _ in range(l)]
    for w in widths:
        part = rows[..., at:at + w]
        at += w
        for i in range(l):
            a = part[i]
            if split:                               # the elements in runs of 'split'
                a = a.reshape(b, s, w // split, split).transpose(0, 2, 1, 3)
            elif heads:
                a = a[:, :, None]
            out[i].append(np.ascontiguousarray(a))
    return out, rows


def save(form, made):
    n = len(made)
    if form == "pt list":
        return torch_bytes([tuple(Tensor("FloatStorage", a) for a in pair) for pair in made])
    if form == "pt dict":
        return torch_bytes({f"model.layers.{i}.self_attn.attn":
                            tuple(Tensor("FloatStorage", a) for a in pair)
                            for i, pair in enumerate(made)})
    if form == "npz":
        return npz_bytes({f"layers.{i}.{h}": made[i][j] for i in range(n)
                          for j, h in enumerate(("k", "v"))})
    if form == "npz stacked":
        return npz_bytes({h: np.stack([pair[j] for pair in made])
                          for j, h in enumerate(("k", "v"))})
    return safetensors_bytes({f"l{i}.{h}": ("F32", made[i][j]) for i in range(n)
                              for j, h in enumerate(("nope", "pe"))})


def case(tmp, seed):
    rng = random.Random(seed)
    form = FORMS[seed % len(FORMS)]
    l, b, s = (rng.randint(1, 4) for _ in range(3))
    split = rng.choice((0, 0, 4))
    widths = [4 * w for w in rng.sample(range(1, 9), 2)] if split else \
        rng.sample(range(1, 40), 2)
    made, rows = planes(rng, l, b, s, widths, split, rng.random() < .7)
    path = f"{tmp}/p.bin"
    write_bytes(path, save(form, made))
    options = ["--layout=L B D/4 S D%4", "--heads=1", f"--blocks={b}", f"--block-size={s}",
               f"--content-size={sum(widths)}"] if split else ["--layout=mla"]
    if form == "safetensors":
        options.append("--set=names=l{l}.nope,l{l}.pe")
    flat = f"{tmp}/p.npy"
    r = kvtool("relayout", "-f", "--to=mla", *options, path, "-o", flat)
    if r.code:
        return f"{form} {split}: {r}"
    got = np.load(flat)
    return None if np.array_equal(got.reshape(rows.shape), rows) else f"{form} {split}: differs"


def check_refused(tmp):
    rng = random.Random(1)
    made, _ = planes(rng, 2, 3, 4, (8, 3), 0, True)
    path = f"{tmp}/r.npz"

    def write(change):
        pairs = [change(i, *pair) for i, pair in enumerate(made)]
        write_bytes(path, save("npz", pairs))

    for what, change, options, word in (
            ("nothing said", lambda i, k, v: (k, v), (), "--layout"),
            ("heads", lambda i, k, v: (k, v), ("--layout=nhd",), "differ"),
            ("other slots, too", lambda i, k, v: (k, v[:, :2]), ("--layout=mla",), "differ"),
            ("another type", lambda i, k, v: (k, v.astype(np.float16)), ("--layout=mla",),
             "differ"),
            ("another width later", lambda i, k, v: (k, v[..., :3 - i]), ("--layout=mla",),
             "differ"),
            ("both of one width", lambda i, k, v: (k, k), ("--layout=mla",), "together"),
            ("another size", lambda i, k, v: (k, v), ("--layout=mla", "--content-size=12"), "12")):
        write(change)
        r = kvtool("describe", *options, path)
        tap.ok(r.code == 3 and word in r.err and r.err.count("\n") == 1,
               f"refused: {what}", r)


def main(tmp):
    wrong = [f"{seed}: {why}" for seed in range(CASES) if (why := case(tmp, seed))]
    tap.equal(wrong[:3], [], f"{CASES} caches of two planes")
    check_refused(tmp)


oracle.run(main)
