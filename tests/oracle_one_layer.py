#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_one_layer.py - tensors as engines index them, of one layer, of each or of all, alone,
in a list or a dict, in npy, npz, torch and safetensors: the layout that wrote the bytes is
among those that the message lists, with its sizes; with that layout each element is where
numpy has it; and what guess tries is what the message lists
"""
import os
import random
import re

import numpy as np

import oracle
import oracle_names
from foreign_files import Tensor, npy_bytes, npz_bytes, safetensors_bytes, torch_bytes
from oracle import FULL, SHARE, kvtool, tap, write_bytes

SEEDS = 12 if FULL else 1
LEAST = 200 // SHARE
GUESSED = ("x.pt", "x.list.pt", "x.tuple.pt", "x.tuples.pt")    # one of each arrangement
# What an engine indexes: with C keys and values of a head side by side, T tokens that are
# in no blocks, 1 an axis of one head.
LAYER = [("kv-first-nhd", "KBSHD"), ("kv-first-hnd", "KBHSD"),
         ("blocks-first-nhd", "BKSHD"), ("blocks-first-hnd", "BKHSD"),
         ("flex-split", "BSKHD"), ("head-halves", "BHKSD"), ("nhd", "BSHC"),
         ("hnd", "BHSC"), ("kv-first-nhd", "KTHD"), ("mla", "BSC"), ("mla", "T1C"),
         ("rocm-paged", "KBSHD"), ("rocm-paged-page", "KBSHD"),
         ("aiter-shuffle-kv-first", "KBSHD"), ("aiter-shuffle", "BKSHD"),
         ("cpu-vec", "BHSC"), ("cpu-amx", "BHSC"), ("cpu-neon-bf16", "BHSC"),
         ("cpu-vec-kv-first", "KBHSD"), ("cpu-amx-kv-first", "KBHSD"),
         ("cpu-neon-bf16-kv-first", "KBHSD")]
ALL = [("nhd", "LBSHC"), ("hnd", "LBHSC"), ("blshc", "BLSHC"), ("blhsc", "BLHSC"),
       ("bhlsc", "BHLSC"), ("lhbsc", "LHBSC"), ("kv-first-nhd", "LKBSHD"),
       ("blocks-first-hnd", "LBKHSD"), ("cross-nhd", "BLKSHD"), ("cross-hnd", "BLKHSD"),
       ("cross-flex", "BLSKHD"), ("cross-head", "BHLKSD"), ("cross-kv-head", "BKHLSD"),
       ("cross-layer-head", "BLHKSD"), ("hicache-layer-first", "KLTHD"),
       ("hicache-layer-first", "KLBSHD"), ("hicache-page-first", "KTLHD"),
       ("hicache-page-first", "KBSLHD"), ("hicache-page-first-direct", "KBLSHD"),
       ("hicache-page-head", "KBHSLD"), ("mla", "LBSC"), ("mla-cross", "BLSC")]
# of one layer its blocks could be layers, of so many blocks of one token
LAYERS = [("mla", "BS1C"), ("mla", "B1SC")]
PAIR = [("sglang-pool", "THD"), ("sglang-pool", "BSHD"), ("flashinfer-pair-hnd", "BHSD"),
        ("transformers", "1HTD")]
PAIRS = [("sglang-pool", "LBSHD"), ("flashinfer-pair-hnd", "LBHSD")]	# of all layers
# The axes of a tensor, and the order in which they lie: torch saves strides.
STRIDED = [("kv-first-nhd", "KBSHD", "KBHSD"), ("blocks-first-nhd", "BKSHD", "BKHSD"),
           ("blocks-first-nhd", "BKSHD", "BSKHD"), ("hnd", "BHSC", "BSHC")]
ENTRY = re.compile(r"(?:^|, )([a-z0-9/-]+) \((\d+)(?: layers?)?, (?:(\d+)(?: blocks?)? of )?"
                   r"(\d+)(?: tokens?)?, (?:rows of (\d+)|(\d+)(?: heads?)? of (\d+))\)")


def extents(rng):
    n = {"L": rng.choice((3, 5)), "B": rng.choice((7, 24, 40)), "S": rng.choice((16, 32)),
         "H": rng.choice((3, 8)), "D": rng.choice((32, 64)), "K": 2, "1": 1}
    return n | {"C": 2 * n["D"], "T": n["B"] * n["S"]}


def is_latent(layout):
    return layout in oracle.LATENT


class Case:
    """Bytes of one layout, in tensors of the shape that an engine gives them."""

    def __init__(self, rng, layout, axes, memory=None):
        self.layout, self.axes, self.n = layout, axes, extents(rng)
        self.memory = memory
        if layout == "transformers":
            self.n["B"] = 1
        k = 1 if is_latent(layout) else 2
        dim = self.n["C"] if is_latent(layout) else self.n["D"]
        heads = 1 if is_latent(layout) else self.n["H"]
        shape = (k, self.n["L"], self.n["B"], self.n["S"], heads, dim)
        self.x = np.frombuffer(rng.randbytes(2 * int(np.prod(shape))), "<u2").reshape(shape)

    def sizes(self, layers):
        """As a message has them: without blocks where they are not in the shape."""
        n, latent = self.n, is_latent(self.layout)
        blocks = [n["T"], 1] if self.axes == "T1C" else \
            [None, n["T"]] if "T" in self.axes else [n["B"], n["S"]]
        return [layers, *blocks, 1 if latent else n["H"], n["C"] if latent else n["D"]]

    def of(self, first, end):
        """Tensors of these layers: one, or keys and values."""
        x = self.x[:, first:end]
        k, l, b, s, h, d = x.shape
        dims = {"K": k, "L": l, "B": b, "S": s, "H": h, "D": d}
        if self.memory:
            shape = [self.n[a] for a in self.memory]
            layout = "L" + self.memory.replace("C", "KD")
        else:
            shape = [self.n[a] if a != "L" else l for a in self.axes]
            layout = self.layout
        flat = np.zeros(x.size, "<u2")
        flat[oracle.preset_offsets(layout, dims, 2).reshape(-1)] = x.reshape(-1)
        if layout in oracle.SEPARATE:
            return [a.reshape(shape).view("<f2") for a in np.split(flat, 2)]
        return [flat.reshape(shape).view("<f2")]

    def caches(self, first, end):
        """What transformers has of layers: keys and values, [1, heads, tokens, elements]."""
        x = self.x[:, first:end].transpose(0, 1, 4, 2, 3, 5)
        return x.reshape(2, end - first, 1, self.n["H"], -1, self.n["D"]).view("<f2")

    def tensor(self, a):
        if not self.memory:
            return Tensor("HalfStorage", a)
        return Tensor("HalfStorage", a, [self.memory.index(c) for c in self.axes])

    def options(self):
        blocks = [f"--block-size={self.n['S']}"] if "T" in self.axes else []
        return [f"--layout={self.layout}"] + blocks


# ---- containers -------------------------------------------------------------

NAMES = ("layers.{}", "model.layers.{}.self_attn.attn", "kv_{}", "{}")


def dense(c, arrays, form):
    named = {n: ("F16", a) for n, a in arrays.items()}
    return {"npz": lambda: npz_bytes(arrays), "safetensors": lambda: safetensors_bytes(named),
            "pt": lambda: torch_bytes({n: c.tensor(a) for n, a in arrays.items()})}[form]()


def one_tensor(c, a):
    """Containers of it: form, bytes."""
    yield "pt", torch_bytes(c.tensor(a))
    if not c.memory:
        yield "npy", npy_bytes(a)
        yield "npz", npz_bytes({"arr_0": a})
        yield "safetensors", safetensors_bytes({"kv": ("F16", a)})


def of_layers(c, arrays, rng):
    yield "list.pt", torch_bytes([c.tensor(a) for a in arrays])
    name = rng.choice(NAMES)
    arrays = {name.format(i): a for i, a in enumerate(arrays)}
    for form in ("pt",) if c.memory else ("pt", "npz", "safetensors"):
        yield f"dict.{form}", dense(c, arrays, form)


def one_pair(c, k, v):
    if c.layout != "transformers":
        yield "tuple.pt", torch_bytes((c.tensor(k), c.tensor(v)))
        yield "two.npz", npz_bytes({"arr_0": k, "arr_1": v})
    for form in ("pt", "npz", "safetensors"):
        yield f"dict.{form}", dense(c, {"k": k, "v": v}, form)


def of_pairs(c, pairs, rng):
    t = [(c.tensor(k), c.tensor(v)) for k, v in pairs]
    name = rng.choice(NAMES)
    yield "tuples.pt", torch_bytes(t)
    yield "dict of tuples.pt", torch_bytes({name.format(i): x for i, x in enumerate(t)})
    yield "dict of lists.pt", torch_bytes({"k": [x[0] for x in t], "v": [x[1] for x in t]})
    arrays = {f"{name.format(i)}.{w}": a for i, x in enumerate(pairs)
              for w, a in zip(("k", "v"), x)}
    for form in ("pt", "npz", "safetensors"):
        yield f"dict.{form}", dense(c, arrays, form)


# ---- what kvtool makes of it ------------------------------------------------

def named(text):
    """{layout: sizes} of what a message lists; whether it lists all."""
    part = re.search(r"could be (.*)$", text.strip())
    found = ENTRY.findall(part.group(1)) if part else []
    return {name: [int(f[1]), int(f[2]) if f[2] else None, int(f[3]), int(f[5] or 1),
                   int(f[6] or f[4])]
            for f in found for name in f[0].split("/")}, not re.search(r" and \d+ more$",
                                                                      text.strip())


def wrong_values(c, path, first, end):
    to = c.layout if is_latent(c.layout) else "LKBSHD"
    out = path + ".out.npy"
    r = kvtool("relayout", "-f", f"--to={to}", *c.options(), "-o", out, path)
    want = c.x[:, first:end]
    if is_latent(c.layout):
        want = want[0][:, :, :, 0]
        want = want if c.layout == "mla" else want.transpose(1, 0, 2, 3)
    else:
        want = want.transpose(1, 0, 2, 3, 4, 5)
    return r.err if r.code or np.load(out).tobytes() != want.tobytes() and "values" else ""


def orders():
    """{name: axis string} of the presets."""
    lines = [re.split(r"  +", l) for l in kvtool("help", "layouts").out.splitlines()[1:]]
    return {l[0]: l[1] for l in lines if l[0] and len(l) > 1}


def wrong_guess(listed, path, of):
    """What guess tries against what was listed; for blocks that nothing tells it asks."""
    r = kvtool("guess", "--json", path)
    if r.code not in (0, 3):
        return str(r)
    told = {of[name] for name, n in listed.items() if n[1] is not None}
    tried = [{c["layout"], *c["same_bytes"]} for c in
             (r.json["candidates"] if r.out else [])]
    if told - set().union(*tried) or any(not told & same for same in tried):
        return f"listed {sorted(told)}, tried {tried}: {r.err}"
    return ""


def look(c, path, first, end, of):
    """What is wrong with a file of these layers."""
    r = kvtool("describe", path)
    if c.layout == "transformers":
        if r.code != 3 or "--set=axes=BHTD" not in r.err and "--set=axes=LBHTD" not in r.err \
                and "--set=axes=LHTD" not in r.err:
            return f"not asked for: {r}"
        axes = re.search(r"--set=axes=(L?B?)HTD", r.err).group(1) + "HTD"
        got, r = oracle_names.read(path, 1, ["--from=transformers", f"--set=axes={axes}"])
        want = c.caches(first, end)
        good = got and len(got) == 2 * (end - first) and all(
            np.array_equal(a, want[k, l - min(x[0] for x in got), 0].view("<u2")
                           .transpose(1, 0, 2)) for (l, k, _), a in got.items())
        return "" if good else f"other values: {r}"
    listed, whole = named(r.err)
    want = c.sizes(end - first)
    if r.code != 3 or listed.get(c.layout) != want:
        return f"not {want}: {r.code} {r.err}"
    wrong = wrong_values(c, path, first, end)
    if not wrong and whole and not c.memory and path.endswith(GUESSED):
        wrong = wrong_guess(listed, path, of)
    return wrong


def files(c, rng, arrangement):
    n = c.n["L"]
    if c.layout == "transformers":
        pairs = [c.caches(i, i + 1)[:, 0] for i in range(n)]
    elif arrangement == "pair":
        pairs = [c.of(i, i + 1) for i in range(n)]
    if arrangement == "all":
        yield from ((*x, 0, n) for x in one_tensor(c, *c.of(0, n)))
    elif arrangement == "pairs":
        yield from ((*x, 0, n) for x in one_pair(c, *c.of(0, n)))
    elif arrangement == "pair":
        yield from ((*x, 0, 1) for x in one_pair(c, *pairs[0]))
        yield from ((*x, 0, n) for x in of_pairs(c, pairs, rng))
    else:
        if arrangement == "layer":
            yield from ((*x, 0, 1) for x in one_tensor(c, *c.of(0, 1)))
        yield from ((*x, 0, n) for x in of_layers(c, [c.of(i, i + 1)[0] for i in range(n)],
                                                 rng))


def written(folder):
    """Arrays of planes that kvtool wrote, without their manifests, are not misread."""
    rng = random.Random("planes")
    for layout in oracle.TWO_PLANES:
        c = Case(rng, "nhd", "LBSHC")
        n = [c.n[a] for a in "LBSHD"]
        path, packed = f"{folder}/plain.npy", f"{folder}/packed.npy"
        write_bytes(path, npy_bytes(c.of(0, c.n["L"])[0]))
        r = kvtool("relayout", "-f", "--layout=nhd", f"--to={layout}", "-o", packed, path)
        os.unlink(f"{folder}/packed.json")
        d = kvtool("describe", "--json", f"--layout={layout}", packed)
        g = d.json["groups"][0] if not d.code else {}
        got = [g.get(k) for k in ("layers", "blocks", "slots", "heads", "dim")]
        tap.ok(not r.code and (d.code == 3 or got == n), f"{layout} as kvtool writes it",
               f"{got}, not {n}: {r} {d}")


def main(folder):
    of = orders()
    rows = [("layer", *x) for x in LAYER] + [("all", *x) for x in ALL] + \
        [("pair", *x) for x in PAIR] + [("pairs", *x) for x in PAIRS] + \
        [("layer", *x) for x in STRIDED] + [("layers", *x) for x in LAYERS]
    total = 0
    for seed in range(SEEDS):
        for arrangement, *row in rows[::SHARE]:
            rng, bad, cases = random.Random(f"{seed} {row}"), [], 0
            c = Case(rng, *row)
            for form, data, first, end in files(c, rng, arrangement):
                path = f"{folder}/x.{form.replace(' ', '-')}"
                write_bytes(path, data)
                why = look(c, path, first, end, of)
                cases += 1
                if why:
                    bad.append(f"{form}: {why}")
            total += cases
            tap.equal(bad[:2], [], f"seed {seed}: {' '.join(row)}, {cases} files")
    written(folder)
    tap.ok(total >= LEAST, f"{total} files, at least {LEAST}")


oracle.run(main)
