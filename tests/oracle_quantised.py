#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_quantised.py - caches that a library quantised: bytes are kept, numbers are its own

Samples of mlx-lm and transformers are held against what mx.dequantize() and _dequantize()
gave, bit for bit.  Others are made up here, in each form that mlx-lm saved them in, of any
bits, shape and type, and read whole, sliced, in other layouts and blocks; and files whose
parts do not fit each other must be refused, with a word about what does not.
"""
import os


import numpy as np

import content_model as model
from foreign_files import Object, Tensor, safetensors_bytes, torch_bytes
from oracle import ENGINES, kvtool, refused, run, runs, tap, write_bytes, written_groups

NUMPY = {"F16": "<f2", "F32": "<f4"}
LONG = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
BITS, GROUPS, FORMS = (2, 3, 4, 5, 6, 8), (32, 64, 128), ("cut4", "cut3", "whole")


# ---- numbers ----------------------------------------------------------------

def rounded(values, kind):
    """To the type, as float64."""
    if kind == "BF16":
        return model.bf16(model.to_bf16(values).view(np.uint8)).reshape(values.shape)
    return values.astype(NUMPY[kind]).astype(np.float64)


def stored(values, kind):
    return model.to_bf16(values) if kind == "BF16" else values.astype(NUMPY[kind])


def packed(codes, bits):
    """Words of 32 bits: a stream of codes, the lowest bit first."""
    stream = (codes[..., None] >> np.arange(bits) & 1).astype(np.uint8)
    stream = stream.reshape(codes.shape[:-1] + (-1,))
    return np.packbits(stream, axis=-1, bitorder="little").view("<u4")


class Half:
    """Keys or values of a layer: any numbers, or those nearest to 'near'."""

    def __init__(self, rng, shape, bits, group, kind, near=None):
        fewer = shape[:-1] + (shape[-1] // group,)
        self.bits, self.group, self.kind = bits, group, kind
        if near is None:
            scales = rounded(rng.standard_normal(fewer), kind)
            biases = rounded(rng.standard_normal(fewer) * 3, kind)
            codes = rng.integers(0, 1 << bits, shape)
        else:
            g = near.reshape(fewer + (group,))
            biases = rounded(g.min(-1), kind)
            scales = rounded(np.maximum((g.max(-1) - biases) / ((1 << bits) - 1), 1e-3), kind)
            codes = np.rint((g - biases[..., None]) / scales[..., None])
            codes = np.clip(codes, 0, (1 << bits) - 1).astype(int).reshape(shape)
        self.parts = [("U32", packed(codes, bits)), (kind, stored(scales, kind)),
                      (kind, stored(biases, kind))]
        each = [np.repeat(x, group, -1) for x in (scales, biases)]
        self.numbers = rounded(rounded(codes * each[0], kind) + each[1], kind)


def save(layers, form, room=0):
    """layers: (keys, values) of Half, or a plain array pair; 'room': slots not yet filled."""
    tensors, meta, scalars = {}, {"model": "made"}, 0
    for l, pair in enumerate(layers):
        tokens = pair[0].numbers.shape[2]
        said = [tokens, pair[0].group, pair[0].bits]
        for half in range(2):
            for i, (kind, a) in enumerate(pair[half].parts):
                if form == "whole" and room:
                    a = np.concatenate([a, np.zeros_like(a[:, :, :1]).repeat(room, 2)], 2)
                tensors[f"{l}.{half}.{i}"] = (kind, a)
        if form == "whole":
            meta[f"1.{l}"] = "QuantizedKVCache"
            for i, n in enumerate(said):
                tensors[f"{l}.{i + 2}"] = ("I32", np.array(n, np.int32))
                meta[f"2.{scalars + 1}.0"], scalars = f"{l}.{i + 2}", scalars + 1
        else:
            meta[f"2.{l}"] = "QuantizedKVCache"
            for i, n in enumerate(([256] if form == "cut4" else []) + said):
                meta[f"0.{l}.{i}"] = str(n)
    if form == "whole":
        meta["2.0"] = ""
    return tensors, meta


# ---- what kvtool reads ------------------------------------------------------

def groups_of(path, *options):
    r = kvtool("describe", "--json", *options, path)
    return r.json["groups"] if r.code == 0 else r


def decoded(tmp, path, *options):
    """{layer: [keys and values, head, token, element]} as kvtool decodes them, or why not."""
    out, found = f"{tmp}/decoded.safetensors", {}
    r = kvtool("convert", "-f", "-q", "--verify", "--decode=float64", *options, path, out)
    if r.code:
        return r
    for g, (_, shape, raw) in written_groups(out)[1].values():
        if g["kind"].startswith("mamba"):
            continue
        a = np.frombuffer(raw, "<f8").reshape(shape)
        if g["layout"] == "LBSC":
            a = a[:, None, :, None]
        elif a.ndim == 5:                       # LBHSD
            a = a[:, None]
        a = a.transpose(0, 1, 3, 2, 4, 5)
        a = a.reshape(a.shape[:3] + (-1, a.shape[-1]))
        for i, l in enumerate(g["layer_ids"]):
            found.setdefault(l, []).extend(a[i])
    return found


def compare(tmp, path, want, name, *options):
    """want: {layer: (keys, values)}, each [head, token, element]."""
    got = decoded(tmp, path, *options)
    if not tap.ok(isinstance(got, dict), f"{name}: is read and decoded", got):
        return
    wrong = [f"layer {l} {'kv'[i]}" for l, pair in want.items() for i, w in enumerate(pair)
             if l not in got or got[l][i].shape[0] != w.shape[0] or
             not np.array_equal(got[l][i][:, :w.shape[1]], w)]
    tap.ok(not wrong and want.keys() == got.keys(),
           f"{name}: {sum(w.size for p in want.values() for w in p)} numbers", wrong)


# ---- samples ----------------------------------------------------------------

SAMPLES = ["mlx/llama_q8.026.safetensors", "mlx/mlx0.32.2_q4_f16.safetensors",
           "mlx/quant_floats.032.safetensors",
           "transformers/5.24.0/quant_fp8.pt", "transformers/5.24.0/fp8_types.pt"] + [
    f"mlx/quant{bits}_{form}.safetensors" for bits in (234, 568)
    for form in ("bf16.032", "f16.028", "f32.026")]


def oracle_of(path):
    """{layer: (keys, values)}, [head, token, element], as the library dequantised them."""
    with np.load(os.path.splitext(path)[0] + ".oracle.npz") as z:
        held = {k: z[k].astype(np.float64) for k in z.files}
    if "K" in held:
        return {l: (held["K"][l], held["V"][l]) for l in range(len(held["K"]))}
    ending = "_dequantized" if "0.keys_dequantized" in held else ""
    layers = sorted({int(k.split(".")[0]) for k in held})
    return {l: tuple(held[f"{l}.{n}{ending}"].reshape((-1,) +
                     held[f"{l}.{n}{ending}"].shape[-2:]) for n in ("keys", "values"))
            for l in layers}


def check_kept(tmp, path, name):
    """Snapshot, safetensors and another layout have the bytes; and all is sound."""
    asked = kvtool("digest", path)
    digest = [line.split()[0] for line in asked.out.splitlines()]
    for command, out in (("convert", "x.h5"), ("convert", "y.safetensors"),
                         ("relayout", "z.h5")):
        r = kvtool(command, "-f", "-q", *(["--to=nhd"] if command == "relayout" else []),
                   path, f"{tmp}/{out}")
        again = kvtool("digest", f"{tmp}/{out}")
        tap.ok(r.code == 0 and [line.split()[0] for line in again.out.splitlines()] == digest,
               f"{name}: {command} to {out} keeps its digest", f"{r} {again}")
        runs(f"{name}: equal to that", "diff", "-q", path, f"{tmp}/{out}")
    runs(f"{name}: sound", "fsck", "-q", path)


def check_samples(tmp):
    for name in SAMPLES:
        compare(tmp, f"{ENGINES}/{name}", oracle_of(f"{ENGINES}/{name}"), name)
        check_kept(tmp, f"{ENGINES}/{name}", name)


# ---- caches made here -------------------------------------------------------

def numbers_of(pair):
    return tuple(h.numbers[0] for h in pair)


def check_forms(tmp, rng):
    """Any bits, group, type, heads and tokens; several contents in a file."""
    path = f"{tmp}/a.safetensors"
    for n in range(30):
        form, heads, tokens = FORMS[n % 3], int(rng.integers(1, 4)), int(rng.integers(1, 40))
        layers = []
        for l in range(int(rng.integers(1, 4))):
            bits, group = int(rng.choice(BITS)), int(rng.choice(GROUPS))
            dim, kind = group * int(rng.integers(1, 4)), rng.choice(list(LONG))
            layers.append([Half(rng, (1, heads, tokens, dim), bits, group, kind)
                           for _ in range(2)])
        tensors, meta = save(layers, form, int(rng.integers(0, 20)))
        write_bytes(path, safetensors_bytes(tensors, meta))
        compare(tmp, path, {l: numbers_of(p) for l, p in enumerate(layers)},
                f"{form}, {heads} heads, {tokens} tokens, {len(layers)} layers")
        said = groups_of(path)
        contents = {f"mlx-affine/{p[0].bits}/{p[0].group}/{LONG[p[0].kind]}"
                    for p in layers}
        tap.equal(isinstance(said, list) and {g["content_type"] for g in said}, contents,
                  f"{form}: its contents by name")


def check_shapes(tmp, rng):
    """Keys and values of different widths, latents, several rows of a batch."""
    path = f"{tmp}/a.safetensors"
    pair = [Half(rng, (1, 2, 9, d), 4, 32, "BF16") for d in (96, 64)]
    write_bytes(path, safetensors_bytes(*save([pair], "whole", 7)))
    compare(tmp, path, {0: numbers_of(pair)}, "keys wider than values")
    pair = [Half(rng, (1, 1, 9, d), 8, 64, "F16") for d in (512, 64)]
    write_bytes(path, safetensors_bytes(*save([pair], "cut3")))
    want = np.concatenate([h.numbers[0] for h in pair], -1)
    got = decoded(tmp, path)
    tap.ok(isinstance(got, dict) and np.array_equal(got[0][0][:, :9], want),
           "a latent and its rotary part are one row", got)
    said = groups_of(path)
    tap.equal((said[0]["kind"], said[0]["content_type"]), ("mla", "mlx-affine/8/64/float16"),
              "of MLA")
    pair = [Half(rng, (3, 2, 9, 64), 5, 32, "F32") for d in range(2)]
    write_bytes(path, safetensors_bytes(*save([pair], "whole", 3)))
    want = [np.concatenate([np.pad(row, ((0, 0), (0, 7), (0, 0))) for row in h.numbers], 1)
            for h in pair]
    got = decoded(tmp, path, "--set=tokens=9,9,9")
    same = [np.array_equal(g.reshape(2, 3, 16, 64)[:, :, :9], w.reshape(2, 3, 16, 64)[:, :, :9])
            for g, w in zip(got[0], want)] if isinstance(got, dict) else []
    tap.ok(same == [True, True], "three rows of a batch", got if not same else same)


def check_mixed(tmp, rng):
    """A file with plain layers and states, and its arrays by the names they have."""
    path = f"{tmp}/a.safetensors"
    pair = [Half(rng, (1, 2, 9, 64), 6, 32, "F16") for _ in range(2)]
    plain = rng.standard_normal((2, 1, 2, 9, 64)).astype("<f2")
    for form in ("cut4", "cut3"):
        tensors, meta = save([pair], form)
        tensors |= {"1.0": ("F16", plain[0]), "1.1": ("F16", plain[1]),
                    "2.0": ("F16", np.ones((1, 3, 20), "<f2"))}
        meta |= {"2.1": "KVCache", "2.2": "ArraysCache"}
        write_bytes(path, safetensors_bytes(tensors, meta))
        said = groups_of(path)
        tap.equal([(g["id"], g["content_type"], g["layer_ids"]) for g in said]
                  if isinstance(said, list) else said,
                  [("g0", "mlx-affine/6/32/float16", [0]), ("g1", None, [1]),
                   ("conv", None, [2])], f"{form}: plain layers and states beside it")
        got = decoded(tmp, path)
        tap.ok(isinstance(got, dict) and all(
            np.array_equal(a[:, :9], b) for l, b2 in ((0, numbers_of(pair)), (1, plain[:, 0]))
            for a, b in zip(got[l], b2)), f"{form}: both are what they were", got)
    runs("scales alone, where they are asked for", "describe",
         "--set=names={l}.0.1,{l}.1.1", path, says="float16")


def check_commands(tmp, rng):
    """What slices and other blocks hold, and how far numbers are from what they were."""
    path, out = f"{tmp}/a.safetensors", f"{tmp}/b.h5"
    near = [[rng.standard_normal((1, 4, 37, 64)) for _ in range(2)] for l in range(3)]
    near = [[rounded(x, "BF16") for x in pair] for pair in near]
    layers = [[Half(rng, x.shape, 8, 32, "BF16", x) for x in pair] for pair in near]
    write_bytes(path, safetensors_bytes(*save(layers, "whole", 5)))
    for options, layer, head, token in (
            (["--heads=1:3"], slice(0, 3), slice(1, 3), slice(0, 37)),
            (["--layers=1:3"], slice(1, 3), slice(0, 4), slice(0, 37)),
            (["--tokens=16:32"], slice(0, 3), slice(0, 4), slice(16, 32)),
            (["--heads=2", "--layers=2", "--tokens=0:16"], slice(2, 3), slice(2, 3),
             slice(0, 16))):
        runs(f"slice {' '.join(options)}", "slice", "-f", "-q", *options, "-o", out, path)
        compare(tmp, out, {l: tuple(h.numbers[0][head, token] for h in layers[l])
                           for l in range(3)[layer]}, f"slice {' '.join(options)}")
    for size in (8, 32):
        runs(f"blocks of {size}", "reblock", "-f", "-q", f"--block-size={size}", "-o",
             out, path)
        compare(tmp, out, {l: numbers_of(p) for l, p in enumerate(layers)},
                f"blocks of {size}")
    for to, code in (("L B S H K D", 0), ("L B H D/x S K x", 4)):
        r = kvtool("relayout", "-f", "-q", f"--to={to}", "-o", f"{tmp}/c.h5", path)
        tap.ok(r.code == code, f"relayout to {to}: status {code}", r)
    plain = f"{tmp}/plain.safetensors"
    tensors = {f"{l}.{i}": ("BF16", model.to_bf16(x))
               for l, pair in enumerate(near) for i, x in enumerate(pair)}
    write_bytes(plain, safetensors_bytes(tensors, {f"2.{l}": "KVCache" for l in range(3)}))
    worst = max(np.abs(h.numbers - x).max() for p, q in zip(layers, near)
                for h, x in zip(p, q))
    for a, b in ((path, plain), (plain, path)):
        runs("numbers are as near as they were rounded", "diff",
             f"--tolerance=atol={worst}", a, b)
        r = kvtool("diff", f"--tolerance=atol={worst * .99}", a, b)
        tap.ok(r.code == 1 and f"max abs {worst:.5g}" in r.out, "and no nearer", r)
    refused("no tolerance follows", 4, "give a tolerance", "diff", "--tolerance=auto",
            path, plain)
    fewer = f"{tmp}/fewer.safetensors"
    low = [[Half(rng, x.shape, 4, 64, "BF16", x) for x in pair] for pair in near]
    write_bytes(fewer, safetensors_bytes(*save(low, "cut4")))
    worst = max(np.abs(h.numbers - x.numbers).max() for p, q in zip(layers, low)
                for h, x in zip(p, q))
    r = kvtool("diff", f"--tolerance=atol={worst}", path, fewer)
    again = kvtool("diff", f"--tolerance=atol={worst * .99}", path, fewer)
    tap.ok((r.code, again.code) == (0, 1), "8 bits against 4", f"{r} {again}")
    at = layers[1][1].numbers[0, 2, 21, 5:9]
    r = kvtool("describe", "--json",
               "--peek=layer=1,block=1,slot=5,head=2,kv=1,dim=5,count=4", path)
    peek = r.json["peeks"][0]["fields"][0]["values"] if r.code == 0 else r
    tap.equal(peek, at.tolist(), "--peek shows numbers")
    fields = groups_of(path)[0]["fields"]
    tap.equal([fields[0][k] for k in ("scale", "added", "product", "result")],
              ["scales", "biases", "bfloat16", "bfloat16"], "JSON says how they are made")
    refused("what to type is what works", 3, "--tolerance=atol=X", "diff", path, plain)


# ---- transformers -----------------------------------------------------------

STORAGE = {"BF16": "BFloat16Storage", "F16": "HalfStorage", "F32": "FloatStorage"}


def fp8_layer(rng, tokens, kind, heads=2, dim=16, **changed):
    """The object, and the numbers of keys and values."""
    attributes, numbers = {}, []
    for name in ("keys", "values"):
        codes = model.some_fp8(rng, (1, heads, tokens, dim))
        scale = rng.uniform(0.001, 2, ()).astype("<f4")
        product = (model.FP8["e4m3fn"](codes) * np.float64(scale)).astype("<f4")
        numbers.append(rounded(product.astype(np.float64), kind)[0])
        attributes[name] = Tensor(STORAGE[kind], np.zeros(0, "<u2" if kind != "F32" else "<f4"))
        attributes[f"_quantized_{name}"] = (Tensor(None, codes, None, "float8_e4m3fn"),
                                            Tensor("FloatStorage", scale))
    attributes |= {"cumulative_length": tokens} | changed
    return Object("Fp8QuantizedLayer", attributes), tuple(numbers)


def fp8_cache(*layers):
    return torch_bytes(Object("QuantizedCache", {"layers": list(layers)}))


def check_fp8(tmp, rng):
    path = f"{tmp}/a.pt"
    for n in range(6):
        tokens = int(rng.integers(1, 40))
        made = [fp8_layer(rng, tokens, str(rng.choice(list(LONG))), 1 + n % 3)
                for _ in range(3)]
        write_bytes(path, fp8_cache(*[m[0] for m in made]))
        compare(tmp, path, {l: m[1] for l, m in enumerate(made)}, f"fp8, {tokens} tokens")
    check_kept(tmp, path, "fp8")
    codes = Tensor(None, np.zeros((1, 2, 5, 16), np.uint8), None, "float8_e5m2")
    one = Tensor("FloatStorage", np.ones((), "<f4"))
    two = Tensor("FloatStorage", np.ones(2, "<f4"))
    good = Tensor(None, np.zeros((1, 2, 5, 16), np.uint8), None, "float8_e4m3fn")
    for name, changed, code, says in (
            ("another fp8", {"_quantized_keys": (codes, one)}, 4, "float8_e5m2"),
            ("two scales", {"_quantized_keys": (good, two)}, 3, "other rows"),
            ("a scale of float16", {"_quantized_keys": (
                good, Tensor("HalfStorage", np.ones((), "<u2")))}, 3, "float16"),
            ("no scale", {"_quantized_keys": (good, None)}, 4, "scale"),
            ("three parts", {"_quantized_values": (good, one, one)}, 4, "scale"),
            ("tokens beside codes", {"keys": Tensor(
                "FloatStorage", np.ones((1, 2, 5, 16), "<f4"))}, 4, "empty"),
            ("no type of numbers", {"keys": None}, 4, "bfloat16"),
            ("values of another type", {"values": Tensor(
                "HalfStorage", np.zeros(0, "<u2"))}, 4, "differ in shape or type"),
            ("fewer values", {"_quantized_values": (Tensor(
                None, np.zeros((1, 2, 4, 16), np.uint8), None, "float8_e4m3fn"), one)}, 4,
             "differ in shape or type")):
        write_bytes(path, fp8_cache(fp8_layer(rng, 5, "BF16", **changed)[0]))
        r = kvtool("describe", path)
        tap.ok(r.code == code and says in r.err and r.err.count("\n") == 1,
               f"fp8: {name} is refused", r)


# ---- damage -----------------------------------------------------------------

def check_damage(tmp, rng):
    path = f"{tmp}/a.safetensors"
    for form in FORMS:
        pair = [Half(rng, (1, 2, 9, 128), 4, 64, "F16") for _ in range(2)]
        first = {"cut4": "0.0.2", "cut3": "0.0.1"}.get(form)

        def number(i, n):
            """The group is number 0, bits are number 1, tokens number -1."""
            if form == "whole":
                return {f"0.{3 + i}": ("I32", np.array(n, np.int32))}
            return {first[:-1] + str(int(first[-1]) + i): str(n)}

        def try_one(name, code, says, change=None, drop=()):
            """'change' replaces or adds tensors, or texts of the metadata."""
            tensors, meta = save([pair], form)
            for key, value in (change or {}).items():
                (meta if isinstance(value, str) else tensors)[key] = value
            for key in drop:
                (meta if key in meta else tensors).pop(key, None)
            write_bytes(path, safetensors_bytes(tensors, meta))
            r = kvtool("describe", path)
            tap.ok(r.code == code and says in r.err + r.out and r.err.count("\n") <= 1,
                   f"{form}: {name}", r)

        scales, biases = pair[0].parts[1], pair[0].parts[2]
        gone = [f"0.{i}" for i in (3, 4)] if form == "whole" else \
            [f"0.0.{i}" for i in range(4)]
        try_one("as it is", 0, "mlx-affine/4/64/float16")
        try_one("other bits", 3, "8 bits", number(1, 8))
        try_one("another group", 3, "groups of 32", number(0, 32))
        try_one("no bits", 3, "0 bits", number(1, 0))
        try_one("1 bit", 3, "1 bits", number(1, 1))
        try_one("bits of 2^31-1", 3, "2147483647", number(1, 2 ** 31 - 1))
        try_one("more tokens than slots", 3, "99 tokens", number(-1, 99))
        try_one("fewer tokens", 0, "5 tokens", number(-1, 5))
        if form == "whole":     # else numbers and arrays have the same names here
            try_one("no numbers, which fit several", 3, "does not say how many bits",
                    drop=gone)
            try_one("neither scales nor biases", 4, "nothing", drop=["0.0.1", "0.0.2"])
            try_one("no scales", 4, "nothing", drop=["0.0.1"])
            try_one("no biases", 4, "F16", drop=["0.0.2"])
            try_one("no values", 3, "no values", drop=["0.1.0", "0.1.1", "0.1.2"])
        try_one("scales of other rows", 3, "other rows",
                {"0.0.1": ("F16", scales[1][:, :1])})
        try_one("scales of fewer tokens", 3, "other rows",
                {"0.0.1": ("F16", scales[1][:, :, :8])})
        try_one("one scale", 4, "scales of F16", {"0.0.1": ("F16", scales[1][0, 0, 0, 0])})
        try_one("more scales", 3, "are not codes of 4 bits",
                {"0.0.1": ("F16", scales[1].repeat(2, -1))})
        try_one("more biases", 3, "no head vector",
                {"0.0.2": ("F16", biases[1].repeat(2, -1))})
        try_one("2^40 biases of no head", 3, "elements for each row",
                {f"0.0.{i}": (k, np.zeros((1, 0, 9, n or a.shape[-1]), a.dtype))
                 for i, ((k, a), n) in enumerate(zip(pair[0].parts, (0, 0, 1 << 40)))})
        try_one("biases of another type", 3, "BF16", {"0.0.2": ("BF16", biases[1])})
        try_one("scales of float64", 4, "F64",
                {"0.0.1": ("F64", scales[1].astype("<f8"))})
        try_one("codes of int32", 4, "I32", {"0.0.0": ("I32", pair[0].parts[0][1])})
        try_one("a word too many", 3, "are not codes of 4 bits",
                {"0.0.0": ("U32", np.zeros((1, 2, 9, 17), "<u4"))})
        try_one("values of other bits", 3, "are not codes of 4 bits",
                {"0.1.0": ("U32", np.zeros((1, 2, 9, 32), "<u4"))})
        try_one("codes without heads", 3, "heads", {
            f"0.{h}.{i}": (k, a[:, :0]) for h in range(2)
            for i, (k, a) in enumerate(pair[h].parts)})
        try_one("a plain array beside them", 3, "two tensors named 0.0",
                {"0.0": ("F16", np.zeros((1, 2, 9, 64), "<f2"))})
    # 3 bits in groups of 32 are 96 bits a scale, and nothing else is
    pair = [Half(rng, (1, 2, 9, 64), 3, 32, "F16") for _ in range(2)]
    tensors, meta = save([pair], "whole")
    for i in (3, 4):
        del tensors[f"0.{i}"]
    write_bytes(path, safetensors_bytes(tensors, meta))
    compare(tmp, path, {0: numbers_of(pair)}, "bits that only one coding can have")


def main(tmp):
    rng = np.random.default_rng(33)
    check_samples(tmp)
    check_forms(tmp, rng)
    check_shapes(tmp, rng)
    check_mixed(tmp, rng)
    check_commands(tmp, rng)
    check_fp8(tmp, rng)
    check_damage(tmp, rng)


run(main)
