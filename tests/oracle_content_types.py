#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_content_types.py - every content type: random bytes, and the numbers in them

A model in numpy knows each form by itself: widths, planes, codings, orders of scales,
rotations (as products with a matrix).  convert --decode must give the same float64, bit for
bit; only keys of turboquant, whose norm is a sum of rounded squares, are held to 1e-12 and
to levels that are written down here with six digits.
"""
import json
import os
import subprocess

import numpy as np

import content_model as model
from encoder_model import BOOK, ggml_bytes
from oracle import (SHARE, kvtool, refused, run, runs, safetensors_tensors, sizes, tap,
                    write_json)

rows_read = 0
modelled = set()

# of which oracle_content.py has a model, and whose numbers kvtool does not read
ELSEWHERE = {"fp8-ds-mla", "int8-per-token-head", "fp8-per-token-head"}
BYTES = {"mla-per-token-head", "nvfp4"}


# ---- codings ----------------------------------------------------------------

def e2m1(code):
    """A sign, two bits of exponent, one of mantissa."""
    code = code.astype(int)
    e, m = code >> 1 & 3, code & 1
    value = np.where(e > 0, (1 + m / 2) * 2.0 ** (e - 1), m / 2)
    return np.where(code & 8, -value, value)


def codes(data, bits):
    """The numbers of so many bits in each row, the lowest bit of the first byte first."""
    stream = np.unpackbits(data, axis=-1, bitorder="little")
    stream = stream.reshape(data.shape[:-1] + (-1, bits)).astype(int)
    return (stream << np.arange(bits)).sum(-1)


def e4m3(data):
    return model.FP8["e4m3fn"](data)


def power(data):
    return np.ldexp(1.0, data.astype(int) - 127)


def f16(data):
    return np.ascontiguousarray(data).view("<f2").astype(np.float64)


def each(numbers, scales):
    """Numbers times scales, of which there are fewer."""
    n = numbers.shape[-1] // scales.shape[-1]
    return numbers * np.repeat(scales, n, axis=-1)


def sylvester(n):
    i = np.arange(n)
    odd = np.array([[bin(a & b).count("1") & 1 for a in i] for b in i])
    return 1.0 - 2.0 * odd


# ---- random bytes -----------------------------------------------------------

def any_bytes(rng, n, width):
    return rng.integers(0, 256, (n, width), dtype=np.uint8)


def any_power(rng, n, width):
    return rng.integers(100, 150, (n, width), dtype=np.uint8)


def any_scale(rng, n, width):
    """fp8 that are not negative."""
    return rng.integers(0, 0x7f, (n, width), dtype=np.uint8)


def any_f16(rng, n, least=-4.0):
    return rng.uniform(least, 4, (n, 1)).astype("<f2").view(np.uint8)


# ---- forms: planes of rows, and numbers -------------------------------------

def mla_fp8(rng, n, nope, rope):
    data = model.some_fp8(rng, (n, nope + rope))
    return [data], e4m3(data)


def dsv32_nvfp4(rng, n):
    data, rope = any_bytes(rng, n, 256), model.some_fp8(rng, (n, 64))
    scale = any_scale(rng, n, 32)
    order = [8 * (s & 3) + (s >> 2) for s in range(32)]
    values = each(e2m1(codes(data, 4)), e4m3(scale)[:, order])
    return [np.concatenate([data, rope, scale], -1)], \
        np.concatenate([values, e4m3(rope)], -1)


def nope(rng, n, reserved=0):
    data, scale = model.some_fp8(rng, (n, 512)), model.some_f32(rng, (n, 4))
    return [np.concatenate([data, scale, any_bytes(rng, n, reserved)], -1)], \
        each(e4m3(data), model.f32(scale))


def dsv4(rng, n):
    data, rope = model.some_fp8(rng, (n, 448)), model.some_bf16(rng, (n, 64))
    scale = any_power(rng, n, 8)
    return [np.concatenate([data, rope], -1), scale], np.concatenate(
        [each(e4m3(data), power(scale[:, :7])), model.bf16(rope)], -1)


def dsv4_nvfp4(rng, n):
    data, rope = any_bytes(rng, n, 224), model.some_bf16(rng, (n, 64))
    scale = np.concatenate([any_scale(rng, n, 28), any_bytes(rng, n, 4)], -1)
    values = each(e2m1(codes(data, 4)), e4m3(scale[:, :28]))
    return [np.concatenate([data, rope], -1), scale], \
        np.concatenate([values, model.bf16(rope)], -1)


def dsv41(rng, n):
    data, scale = model.some_fp8(rng, (n, 512)), any_power(rng, n, 16)
    return [data, scale], each(e4m3(data), power(scale))


def four_bits(rng, n, numbers, group, kind):
    data = any_bytes(rng, n, numbers // 2)
    scale = (any_power if kind is power else any_scale)(rng, n, numbers // group)
    return [data, scale], each(e2m1(codes(data, 4)), kind(scale))


def indexer(rng, n):
    data, scale = model.some_fp8(rng, (n, 128)), model.some_f32(rng, (n, 1))
    return [data, scale], e4m3(data) * model.f32(scale)


def pooled(rng, n):
    planes, values = indexer(rng, n)
    return planes, values @ sylvester(128) / np.sqrt(128)


def tail(rng, n):
    keys, gates = model.some_bf16(rng, (n, 128)), model.some_bf16(rng, (n, 128))
    return [keys, gates], np.concatenate([model.bf16(keys), model.bf16(gates)], -1)


def compressor(rng, n):
    data = model.some_f32(rng, (n, 1024))
    return [data], model.f32(data)


def qsa(rng, n):
    key = model.some_bf16(rng, (n, 128))
    return [np.concatenate([key, any_bytes(rng, n, 24)], -1)], model.bf16(key)


def joined(form):
    planes, values = form
    return [np.concatenate(planes, -1)], values


# ---- heads ------------------------------------------------------------------

SIGNS = np.unpackbits(np.frombuffer(bytes.fromhex(
    "4f6531597253fefec943dd9ae3d501297e2edaad7ddc0a2aede62fb3fa3dfba0"
    "33c7894d2c1c6aeaa447562765323fe68961e3f38ffb9c4c91dbfa6c62ca46ae"), np.uint8))


def int4(rng, n, D):
    data, word = any_bytes(rng, n, D // 2), model.some_f32(rng, (n, 1)).view("<u4")
    zero, scale = (word & 15).astype(float), (word & ~np.uint32(15)).view("<f4")
    y = (codes(data, 4) - zero) * scale.astype(float)
    b = D & -D
    x = y.reshape(n, D // b, b) @ sylvester(b) / b
    x = x * (1.0 - 2.0 * SIGNS[:b])
    return [np.concatenate([data, word.view(np.uint8)], -1)], x.reshape(n, D)


LEVELS = {
    3: [0.021654, 0.066790, 0.118721, 0.190066],
    4: [0.011352, 0.034307, 0.058061, 0.083301, 0.111039, 0.143002, 0.182827, 0.241382],
}


def tq_values(rng, n, D, bits):
    data = any_bytes(rng, n, D * bits // 8)
    scale, least = any_f16(rng, n, 0), any_f16(rng, n)
    return np.concatenate([data, scale, least], -1), \
        codes(data, bits) * f16(scale) + f16(least)


def turboquant(rng, n, D, key, value):
    v, values = tq_values(rng, n, D, value)
    if key == 8:
        k = model.some_fp8(rng, (n, D))
        keys = e4m3(k)
    else:
        k, norm = any_bytes(rng, n, D * key // 8), any_f16(rng, n, 0.1)
        table = np.array([-x for x in LEVELS[key][::-1]] + LEVELS[key])
        y = table[codes(k, key)]
        y = y / np.sqrt((y * y).sum(-1, keepdims=True))
        keys = f16(norm) * (y @ sylvester(D) / np.sqrt(D))
        k = np.concatenate([k, norm], -1)
    row = np.concatenate([k, v], -1)
    if row.shape[-1] % 2:
        row = np.concatenate([row, any_bytes(rng, n, 1)], -1)
    return [row], np.stack([keys, values], 1)


def ultraquant(rng, n, D):
    halves = []
    for _ in range(2):
        # so near to each other that sums are exact
        data, scale = any_bytes(rng, n, D // 2), any_power(rng, n, D // 32) % 20 + 110
        scale[rng.random(scale.shape) < 0.2] = 0
        factor = np.where(scale > 0, power(scale), 0.0)
        halves.append((data, scale, each(e2m1(codes(data, 4)), factor)))
    keys = halves[0][2] @ sylvester(D) / np.sqrt(D)
    return [np.concatenate([x for h in halves for x in h[:2]], -1)], \
        np.stack([keys, halves[1][2]], 1)


def as_type(values, of):
    """Rounded to the type, as float64."""
    with np.errstate(over="ignore"):
        if of == "bfloat16":
            return model.bf16(model.to_bf16(values).view(np.uint8))
        return values.astype({"float16": "<f2", "float32": "<f4"}[of]).astype(np.float64)


def some_of(rng, n, width, of):
    """Numbers of a type, as bytes and as float64; some too small for it, some too large."""
    low, high = (-7, 3.3) if of == "float16" else (-44, 36)
    size = np.where(rng.random((n, 1)) < .5, 0, rng.uniform(low, high, (n, 1)))
    values = as_type(rng.standard_normal((n, width)) * 4 * 10.0 ** size, of)
    bits = model.to_bf16(values) if of == "bfloat16" else \
        values.astype({"float16": "<f2", "float32": "<f4"}[of])
    return bits.view(np.uint8), values


def affine(rng, n, D, bits, group, of):
    """A row is codes, scales and biases; the product is rounded, and the sum is."""
    data = any_bytes(rng, n, D * bits // 8)
    scale, scales = some_of(rng, n, D // group, of)
    bias, biases = some_of(rng, n, D // group, of)
    values = as_type(each(codes(data, bits), scales), of) + np.repeat(biases, group, -1)
    return [np.concatenate([data, scale, bias], -1)], as_type(values, of)


def mlx_float(rng, n, D, bits, group):
    data = any_bytes(rng, n, D // 2) if bits == 4 else model.some_fp8(rng, (n, D))
    scale = (any_scale if group == 16 else any_power)(rng, n, D // group)
    numbers = e2m1(codes(data, 4)) if bits == 4 else e4m3(data)
    factor = e4m3(scale) if group == 16 else power(scale)
    return [np.concatenate([data, scale], -1)], as_type(each(numbers, factor), "bfloat16")


def scaled_fp8(rng, n, D, of):
    data, scale = model.some_fp8(rng, (n, D)), model.some_f32(rng, (n, 1))
    # products next to the middle between two numbers: a float32 is the middle itself
    middle = 1 + 2.0 ** {"bfloat16": -8, "float16": -11, "float32": -24}[of]
    near = np.float32(middle / 1.125).view(np.uint32) + np.arange(-4, 4)
    data[:8], scale[:8] = 0x39, near.astype("<u4")[:, None].view(np.uint8)
    values = as_type(e4m3(data) * model.f32(scale), "float32")
    return [np.concatenate([data, scale], -1)], as_type(values, of)


def ggml(rng, n, D, name):
    """Blocks of 32: scale, minimum, highest bits, then the others; see ggml-common.h."""
    m, least, high, low = n * D // 32, b"", b"", None
    scale = any_f16(rng, m)
    scale[0] = [1, 0x80]                    # the least that is negative
    parts = [scale]
    if name[-1] == "1":
        least = any_f16(rng, m)
        parts.append(least)
    if name[:2] == "q5":
        high = any_bytes(rng, m, 4)
        parts.append(high)
    low = any_bytes(rng, m, 32 if name == "q8_0" else 16)
    row = np.concatenate(parts + [low], -1)
    if name == "q8_0":
        number = low.view(np.int8).astype(int)
    else:
        number = np.concatenate([low & 15, low >> 4], -1).astype(int)
    if name[:2] == "q5":
        number |= codes(high, 1) << 4
    if name == "iq4_nl":
        number = np.array(BOOK)[number]
    elif name[-1] == "0" and name != "q8_0":
        number -= 8 if name == "q4_0" else 16
    values = number * f16(scale)
    if len(least):
        values = (values + f16(least)).astype("<f4").astype(np.float64)
    return [row.reshape(n, -1)], values.reshape(n, D)


def turned(values, turn):
    """Of keys and values in turn, each in the model's basis."""
    out = values.reshape(-1, 2, values.shape[-1]).copy()
    for kv in range(2):
        x = out[:, kv].reshape(-1, turn[kv])
        out[:, kv] = (x @ sylvester(turn[kv]) / np.sqrt(turn[kv])).reshape(out[:, kv].shape)
    return out.reshape(values.shape)


# ---- comparing --------------------------------------------------------------

def write(path, cells, content, layout, **said):
    """cells[L, B, S, H, K, D], in the order of 'layout'."""
    L, B, S, H, K, D = cells.shape
    modelled.add(content.split("/")[0])
    np.save(path, cells)
    write_json(path[:-4] + ".json",
               {"layout": layout, "content_type": content,
                "sizes": {"layers": L, "num_blocks": B,
                          "block_size": said.pop("tokens", S), "num_kv_heads": H,
                          "head_dim" if K == 2 else "content": D},
                **said})


def decoded(path, *options):
    """The numbers of a dump as kvtool writes them, and what it says of them."""
    r = kvtool("convert", "-f", "-q", "--verify", "--decode=float64", *options, path,
               path[:-4] + ".f64.npy")
    if r.code:
        return None, r
    out = kvtool("describe", "--json", path[:-4] + ".f64.npy")
    return np.load(path[:-4] + ".f64.npy"), out.json["groups"][0]


def compare(name, path, want, near=0, *options):
    """want[L, B, S, H, K, D]; 'near' is how far keys may be."""
    global rows_read
    got, said = decoded(path, *options)
    if not tap.ok(got is not None, f"{name}: is decoded", said):
        return
    rows_read += want.size // want.shape[-1]
    shape = (said["layers"], said["blocks"], said["slots"], said["heads"], said["kv"],
             said["dim"])
    if not tap.equal(shape, want.shape, f"{name}: its shape"):
        return
    got = got.reshape(want.shape)
    same = got.view("<u8") == np.ascontiguousarray(want + 0.0).view("<u8")
    same |= (got == 0) & (want == 0)        # a product with a matrix loses the sign
    if near:
        same |= np.abs(got - want) <= near * np.abs(want).max()
    at = np.argwhere(~same)
    tap.ok(not len(at), f"{name}: {want.size} numbers are the model's",
           f"{len(at)} differ, first at {at[:1]}: {got[~same][:3]} {want[~same][:3]}")


def check_rows(tmp, name, form, kind="mla"):
    """One row a slot."""
    (cells,), values = form
    path = f"{tmp}/rows.npy"
    write(path, cells.reshape(2, 5, 48, 1, 1, -1), name, "mla", kind=kind)
    compare(name, path, values.reshape(2, 5, 48, 1, 1, -1))


def paged(planes, L, B, pages, rows):
    """Each page: all of one plane, then all of the next."""
    return np.concatenate([p.reshape(L, B, pages, -1) for p in planes], -1)


def check_pages(tmp, name, form, ratio, page=0):
    """As engines have it: an array of rows; 'page': rows of a kernel's page."""
    planes, values = form
    rows = page or 48
    width = sum(p.shape[-1] for p in planes)
    path, pages = f"{tmp}/pages.npy", 48 // rows
    cells = paged(planes, 2, 5, pages, rows).reshape(2, 5, 48, 1, 1, width)
    said = f"{name}/{page}" if page else name
    write(path, cells, said, "mla", tokens=48 * ratio, tokens_per_slot=ratio)
    compare(said, path, values.reshape(2, 5, 48, 1, 1, -1))
    group = kvtool("describe", "--json", path).json["groups"][0]
    tap.equal((group["slots"], group["tokens_per_slot"], group["rows"],
               group["row_tokens"]), (pages, rows * ratio, rows, ratio),
              f"{said}: {pages} pages of {rows} rows, {ratio} tokens each")


def check_halves(tmp, name, D, form, near=0):
    """Key and value of a head in one row: 2 layers, 3 blocks, 16 slots, 2 heads."""
    (cells,), values = form
    path = f"{tmp}/halves.npy"
    write(path, cells.reshape(2, 3, 16, 2, 1, -1), name, "L B S H K D",
          kind="full_attention")
    compare(f"{name} of {D}", path, values.reshape(2, 3, 16, 2, 2, D), near)


def check_pairs(tmp, name, D, form):
    """A row for the key, one for the value."""
    (cells,), values = form
    path = f"{tmp}/pairs.npy"
    write(path, cells.reshape(2, 3, 16, 2, 2, -1), name, "L B S H K D",
          kind="full_attention")
    compare(f"{name} of {D}", path, values.reshape(2, 3, 16, 2, 2, D))


def check_ggml(tmp, rng):
    """Blocks, told to be rotated and not; heads that cut them; what is not said."""
    for name in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl"):
        for D, said, turn in ((32, "", None), (96, "", None), (64, "/plain", None),
                              (128, "/k128/v64", (128, 64)), (192, "/k64", (64, 1)),
                              (256, "/v64", (1, 64)), (256, "/k256/v64", (256, 64))):
            form, values = ggml(rng, 384, D, name)
            check_pairs(tmp, name + said, D,
                        (form, turned(values, turn) if turn else values))
        # 2 heads of 80 or of 192 numbers in a row that is not divided
        for D, said, turn in ((80, "/80", None), (192, "/192/k64/v64", (64, 64))):
            (cells,), values = ggml(rng, 384, 2 * D, name)
            path = f"{tmp}/whole.npy"
            write(path, cells.reshape(2, 3, 32, 1, 2, -1), name + said, "L B S H K D",
                  kind="full_attention")
            values = turned(values, turn) if turn else values
            want = values.reshape(2, 3, 32, 2, 2, D).transpose(0, 1, 2, 4, 3, 5)
            compare(f"{name}{said}: heads of a row", path, np.ascontiguousarray(want))
        # values alone: what is said of keys means nothing to them
        r = kvtool("slice", "-f", "-q", "--component=v", "-o", f"{tmp}/v.npy", path)
        compare(f"{name}: values of it", f"{tmp}/v.npy",
                np.ascontiguousarray(want[..., 1:, :]))
        (cells,), values = ggml(rng, 384, 128, name)
        write(path, cells.reshape(2, 3, 16, 2, 2, -1), name, "L B S H K D",
              kind="full_attention")
        got, r = decoded(path)
        tap.ok(got is None and r.code == 3 and f"{name}/plain if not, {name}/k128/v64 if" in
               r.err, f"{name}: whether it is rotated is not guessed", r)
        runs(f"{name}: but its bytes are compared", "diff", path, path)


def encoded(name, rows, *kv):
    program = os.path.join(os.environ.get("KVT_BUILD", "build"),
                           "tests/reference/encode_content")
    r = subprocess.run([program, name, str(rows.shape[-1]), *kv], input=rows.tobytes(),
                       capture_output=True, check=False)
    return np.frombuffer(r.stdout, np.uint8).reshape(len(rows), -1) \
        if r.returncode == 0 and r.stdout else r


def check_encoded(rng):
    """Numbers of all sizes, ties, zeros, offsets; rotated ones by their errors."""
    x = rng.standard_normal((10000, 32)) * 10 ** rng.uniform(-6, 3, (10000, 1))
    x[::5] = np.round(x[::5] / np.abs(x[::5]).max(-1, keepdims=True) * 127) / 2
    x[1::5] += 5 * np.abs(x[1::5]).max(-1, keepdims=True)
    x[2::5] *= rng.random((2000, 32)) < .1
    x = x.astype("<f4")
    for name in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl"):
        got, want = encoded(name, x), ggml_bytes(x, name)
        tap.ok(np.array_equal(got, want), f"{name}: {len(x)} blocks are ggml's",
               str(got) if not isinstance(got, np.ndarray) else
               f"{x[(got != want).any(-1)][:1]}")
    y = rng.standard_normal((300, 256)).astype("<f4")
    for D, said, kv, turn in ((256, "k256/v64", (), 256), (256, "k256/v64", ("v",), 64),
                              (192, "k64", (), 64), (192, "k64", ("v",), 1),
                              (128, "plain", (), 1), (96, "", (), 1)):
        rows = np.ascontiguousarray(y[:, :D])
        got = encoded(f"q8_0/{said}".rstrip("/"), rows, *kv)
        turned_rows = (rows.reshape(-1, turn).astype(float) @ sylvester(turn) /
                       np.sqrt(turn)).astype("<f4")
        want = ggml_bytes(turned_rows.reshape(-1, 32), "q8_0").reshape(len(rows), -1)
        tap.ok(np.array_equal(got, want), f"q8_0/{said} of {D} {kv}: rotated, then rounded",
               str(got))
    for name, says in (("q8_0", "is not said"), ("turboquant-4bit-nc", "order is the GPU's"),
                       ("int4-per-token-head", "order is the GPU's")):
        r = encoded(name, y[:, :64])
        tap.ok(not isinstance(r, np.ndarray) and says in r.stderr.decode(),
               f"{name}: not written", r)


def nvfp4(rng, D, swizzled):
    """Pages of 2 heads and 16 tokens: keys, their scales, values, theirs."""
    L, B, H, S, E = 2, 3, 2, 16, D // 16
    parts, halves = [], []
    for side in range(2):
        data = any_bytes(rng, L * B * H * S, D // 2)
        scale = any_scale(rng, L * B * H * S, E)
        halves.append(each(e2m1(codes(data, 4)), e4m3(scale)).reshape(L, B, H, S, D))
        scale = scale.reshape(L, B, H, S // 4, 4, E)
        if swizzled and side:
            scale = scale.transpose(0, 1, 2, 3, 5, 4)
        parts += [data.reshape(L, B, -1), np.ascontiguousarray(scale).reshape(L, B, -1)]
    return np.concatenate(parts, -1), \
        np.stack(halves, -2).transpose(0, 1, 3, 2, 4, 5)      # L B S H K D


def check_nvfp4(tmp, rng):
    for D in (32, 64, 128, 256):
        for name, swizzled in (("nvfp4-plain", False), ("nvfp4-sm100", True)):
            if swizzled and D < 64:
                continue        # scales are swizzled in fours
            cells, want = nvfp4(rng, D, swizzled)
            path = f"{tmp}/nvfp4.npy"
            write(path, cells.reshape(2, 3, 1, 1, 1, -1), f"{name}/{D}", "mla", tokens=16,
                  tokens_per_slot=16)
            compare(f"{name}/{D}", path, want)
            scaled = want * np.reshape([0.5, 3.0], (2, 1))
            compare(f"{name}/{D} and the layer's scales", path, scaled, 0, "--scale=0.5,3")
    write(f"{tmp}/nvfp4.npy", cells.reshape(2, 3, 1, 1, 1, -1), "nvfp4_4over6", "mla",
          tokens=16, tokens_per_slot=16)
    got, r = decoded(f"{tmp}/nvfp4.npy")
    tap.ok(got is None and r.code == 4 and "nvfp4-plain/N or nvfp4-sm100/N" in r.err,
           "nvfp4_4over6: which order is not guessed", r)


# ---- kernel pages -----------------------------------------------------------

def check_kernel_pages(tmp, rng):
    """A block of GLM-5.3: 1152 tokens, pooled by 4, pages of 32 rows."""
    planes, values = pooled(rng, 2 * 3 * 288)
    cells = paged(planes, 2, 3, 9, 32)
    path = f"{tmp}/kernel.npy"
    write(path, cells.reshape(2, 3, 288, 1, 1, 132), "kpool-indexer/32", "mla",
          tokens=1152, tokens_per_slot=4)
    compare("kpool-indexer/32 of 288 rows", path, values.reshape(2, 3, 288, 1, 1, 128))
    write(f"{tmp}/unsaid.npy", cells.reshape(2, 3, 288, 1, 1, 132), "kpool-indexer", "mla",
          tokens=1152, tokens_per_slot=4)
    refused("a block with more rows than a page of any kernel is refused", 3,
            ("at most 64", "kpool-indexer/64"), "describe", f"{tmp}/unsaid.npy")
    r = kvtool("convert", "-f", "-q", "--content-type=kpool-indexer/7", "--layout=mla",
               "--block-size=1152", path, f"{tmp}/x.h5")
    tap.ok(r.code in (2, 3), "nor do pages of 7 rows fill it", r)
    write(f"{tmp}/block.npy", cells.reshape(2, 3, 1, 1, 1, -1), "kpool-indexer/32", "mla",
          tokens=1152, tokens_per_slot=1152)
    compare("a block of bytes, pages of 32 rows", f"{tmp}/block.npy",
            values.reshape(2, 3, 288, 1, 1, 128))
    write(f"{tmp}/block.npy", cells.reshape(2, 3, 1, 1, 1, -1), "kpool-indexer", "mla",
          tokens=1152, tokens_per_slot=1152)
    refused("which is refused without a number", 3, "at most 64", "describe",
            f"{tmp}/block.npy")
    r = kvtool("reblock", "-f", "-q", "--verify", "--block-size=128", "-o",
               f"{tmp}/small.npy", path)
    tap.ok(r.code == 0 and np.array_equal(np.load(f"{tmp}/small.npy").ravel(),
                                          cells.ravel()), "blocks of one page", r)
    compare("blocks of one page", f"{tmp}/small.npy",
            values.reshape(2, 27, 32, 1, 1, 128))
    for size in (64, 192):
        refused(f"blocks of {size} tokens", 4, "cannot be divided", "reblock", "-f",
                f"--block-size={size}", "-o", f"{tmp}/x.npy", path)
    out = kvtool("describe", "--json", "--peek=layer=1,block=2,slot=8,row=31,count=4", path)
    peek = out.json["peeks"][0]["fields"][0]["values"] if not out.code else out
    tap.ok(np.allclose(peek, values.reshape(2, 3, 288, 128)[1, 2, 287, :4], 1e-14, 0),
           "a row of the last page", peek)


# ---- what V4 and V4.1 write -------------------------------------------------

def quantised(x, group):
    """fp8 and powers of two, rounded up, for 'group' numbers each."""
    g = x.reshape(x.shape[:-1] + (-1, group))
    top = np.maximum(np.abs(g).max(-1), 1e-4)
    e = np.ceil(np.log2(top / 448))
    table = e4m3(np.arange(127, dtype=np.uint8))
    a = np.abs(g) / 2.0 ** e[..., None]
    i = np.clip(np.searchsorted(table, a), 1, 126)
    low, high = a - table[i - 1], table[i] - a
    i = np.where((low < high) | ((low == high) & ((i - 1) % 2 == 0)), i - 1, i)
    return (i | np.where(g < 0, 0x80, 0)).astype(np.uint8).reshape(x.shape), \
        (e + 127).astype(np.uint8)


def check_writer(tmp):
    """The rows that vLLM's own function wrote, at slots 0, 66 and 5 of pages of 64."""
    x = np.arange(512) / 16 - 12
    x = model.bf16(model.to_bf16(np.stack([x, x, 0 * x])).view(np.uint8))
    x[1] *= -0.25
    wants = {
        584: (["7a7a79797a7a7b00", "7878777778787900", "69" * 7 + "00"],
              "9c419c419d419e419e419e419f41a041", [16, 16, 16, 16.125]),
        528: (["7a7a7a7979787879797a7a7a7a7b7b7b", "78787877777676777778787878797979",
               "69" * 16], "7a" * 16, [16, 16, 16, 16]),
    }
    for width, (scales, last, middle) in wants.items():
        group, n = (64, 448) if width == 584 else (32, 512)
        q, s = quantised(x[:, :n], group)
        if width == 584:
            q = np.concatenate([q, model.to_bf16(x[:, n:]).view(np.uint8)], -1)
            s = np.concatenate([s, np.zeros((3, 1), np.uint8)], -1)
        tap.equal(q[0, :16].tobytes().hex(), "fc" * 9 + "fb" * 7, f"{width}: first bytes")
        tap.equal(q[0, -16:].tobytes().hex(), last, f"{width}: last bytes")
        tap.equal([r.tobytes().hex() for r in s], scales, f"{width}: scales")
        data, scale = np.full((128, q.shape[1]), 0xee, np.uint8), \
            np.full((128, s.shape[1]), 0x7f, np.uint8)
        for row, slot in enumerate((0, 66, 5)):
            data[slot], scale[slot] = q[row], s[row]
        name = "dsv4-swa/e4m3fn" if width == 584 else "dsv41"
        cells = paged([data, scale], 1, 2, 1, 64).reshape(1, 2, 64, 1, 1, width)
        write(f"{tmp}/w.npy", cells, name, "mla")
        got, said = decoded(f"{tmp}/w.npy")
        if not tap.ok(got is not None, f"{width}: decoded", said):
            continue
        got = got.reshape(128, 512)
        tap.equal(got[0, :4].tolist(), [-12.0] * 4, f"{width}: first numbers")
        tap.equal(got[0, 447:451].tolist(), middle, f"{width}: numbers 447 to 450")
        tap.ok(not got[5].any(), f"{width}: a row of zeros")
        tap.ok(np.abs(got[66] - x[1]).max() <= 0.25, f"{width}: slot 66", got[66][:4])


# ---- differences ------------------------------------------------------------

def rotation(r):
    group = json.loads(r.out)["groups"][0] if r.out.startswith("{") else {}
    said = group.get("rotation")
    return said and (said["a"], said["b"], said["undone"])


def check_diff(tmp, rng):
    """Rotated vectors against numbers of the model, against themselves, against others."""
    (cells,), values = int4(rng, 384, 64)
    shape = (2, 3, 16, 2, 2, -1)
    a, b, other = (f"{tmp}/{n}.npy" for n in ("a", "b", "other"))
    write(a, cells.reshape(shape), "int4_per_token_head", "L B S H K D",
          kind="full_attention")
    kvtool("convert", "-f", "-q", "--decode=float64", a, b)
    r = kvtool("diff", "--exact", "--json", a, b)
    tap.equal((r.code, rotation(r)), (0, ("signed_hadamard", "none", True)),
              "int4 is what its numbers are, rotated back")
    runs("and the text says so", "diff", "--exact", b, a,
         says="rotated none in A, signed_hadamard in B: undone")
    r = kvtool("diff", "--json", a, a)
    tap.equal((r.code, rotation(r)), (0, ("signed_hadamard", "signed_hadamard", False)),
              "bytes of one rotated content are compared as stored")
    codes_as_numbers = codes(cells[:, :32], 4).astype("<f8")
    np.save(other, codes_as_numbers.reshape(shape))
    write_json(f"{tmp}/other.json",
               {"layout": "L B S H K D", "dtype": "float64", "kind": "full_attention",
                "sizes": sizes(L=2, B=3, S=16, H=2, D=64)})
    r = kvtool("diff", "--exact", a, other)
    tap.ok(r.code == 1, "codes are no numbers of the model", r)
    r = kvtool("diff", "--exact", "--json", b, other)
    tap.ok(r.code == 1 and r.json["groups"][0]["rotation"] is None,
           "where nothing is rotated, nothing is said", r)
    refused("no tolerance follows from a rotated vector", 4,
            "is not known; give a tolerance", "diff", "--tolerance=auto", a, b)
    runs("but one can be given", "diff", "--tolerance=atol=1e-3", a, b)
    (cells,), values = turboquant(rng, 192, 64, 4, 4)
    write(a, cells.reshape(2, 3, 16, 2, 1, -1), "turboquant_4bit_nc", "L B S H K D",
          kind="full_attention")
    kvtool("convert", "-f", "-q", "--decode=float64", a, b)
    planes, values = dsv41(rng, 480)
    write(other, paged(planes, 2, 5, 1, 48).reshape(2, 5, 48, 1, 1, 528), "V41", "mla")
    kvtool("convert", "-f", "-q", "--decode=float64", other, f"{tmp}/numbers.npy")
    for x, y, which in ((a, b, "A"), (b, a, "B"), (other, f"{tmp}/numbers.npy", "A")):
        refused("slots of another shape: what to type", 3,
                f"kvtool convert --decode=float32 of {which}", "diff", "--exact", x, y)
    r = kvtool("diff", "--json", a, a)
    tap.equal((r.code, rotation(r)), (0, ("hadamard", "hadamard", False)), "turboquant")


# ---- other floats ---

def check_floats(tmp, rng):
    """Numbers of one type as those of another, rounded once, or refused."""
    a = rng.standard_normal((2, 2, 3, 4, 2, 8)).astype(np.float32) * 300
    a.flat[:4] = 65519, -65519, 1e-7, 0
    path = f"{tmp}/floats.npy"
    def convert(name):
        np.save(path, a)
        r = kvtool("convert", "-q", "-f", "--layout=LKBSHD", "--dtype=float32",
                   f"--decode={name}", path, f"{tmp}/out.safetensors")
        return r, next(iter(safetensors_tensors(f"{tmp}/out.safetensors")
                            .values()))[2] if r.code == 0 else b""
    r, raw = convert("float16")
    tap.ok(r.code == 0 and raw == a.astype(np.float16).tobytes(), "float32 as float16", r)
    u = a.view(np.uint32)
    r, raw = convert("bfloat16")
    tap.ok(r.code == 0 and raw == ((u + 0x7fff + ((u >> 16) & 1)) >> 16)
           .astype(np.uint16).tobytes(), "float32 as bfloat16", r)
    a.flat[5] = 65520
    r, _ = convert("float16")
    tap.ok(r.code == 3 and "65520, which float16 cannot hold" in r.err,
           "but not what is too large", r)


# ---- refusals ---------------------------------------------------------------

def check_refused(tmp, rng):
    (cells,), _ = dsv32_nvfp4(rng, 480)
    path = f"{tmp}/refused.npy"
    write(path, cells.reshape(2, 5, 48, 1, 1, -1), "nvfp4-ds-mla", "mla", kind="mla")
    for args, says in ((["--decode=int8"], "float32, float64, float16"),
                       (["--decode=float8_e4m3fn"], "float32, float64, float16"),
                       (["--decode=fp7"], "is not an element type"),
                       (["--scale=2"], "--scale is for --decode"),
                       (["--decode=float32", "--scale=0"], "--scale is")):
        refused(f"refused: {' '.join(args)}", 2, says, "convert", "-f", *args, path,
                f"{tmp}/x.npy")
    write(path, cells.reshape(2, 5, 48, 1, 1, -1), "mla-per-token-head", "mla", kind="mla")
    r = kvtool("convert", "-f", "--decode=float32", path, f"{tmp}/x.npy")
    tap.ok(r.code == 4 and "cannot be read" in r.err and
           not os.path.exists(f"{tmp}/x.npy"), "refused: what nobody knows", r)
    for layout in ("LBDS", "L B D/16 S D%16"):
        write(path, cells.reshape(2, 5, 48, 1, 1, -1), "nvfp4-ds-mla", layout, kind="mla")
        refused(f"refused: rows torn by {layout}", 3, "does not keep the rows",
                "describe", path)


def check_torn(tmp, rng):
    """No part of a page, and no share of a rank that is not known, is cut out."""
    cells, _ = nvfp4(rng, 128, False)
    path = f"{tmp}/torn.npy"
    requests = {"block_table": {"A": [0, 1, 2]}, "num_tokens": {"A": 40}}
    write(path, cells.reshape(2, 3, 1, 1, 1, -1), "nvfp4-plain/128", "mla", tokens=16,
          tokens_per_slot=16, **requests)
    for args, code, says in (
            (["--heads=0:1"], 4, "holds all heads"),
            (["--tp-size=2", "--tp-rank=1"], 4, "divided among ranks"),
            (["--tokens=0:5"], 3, "within a slot of 16"),
            (["--component=v"], 3, "no component")):
        refused(f"nvfp4: {args[0]} tears nothing", code, says, "slice", "-f", *args, "-o",
                f"{tmp}/x.npy", path)
    for name, width, ratio in (("dsv41", 528, 2), ("dsv41-fp4", 288, 1),
                               ("dsv4-nvfp4", 384, 4)):
        cells = any_bytes(rng, 2 * 3 * 64, width)
        write(path, cells.reshape(2, 3, 64, 1, 1, width), name, "mla", tokens=64 * ratio,
              tokens_per_slot=ratio, block_table={"A": [2, 0]}, num_tokens={"A": 65 * ratio})
        refused(f"{name}: a row alone", 3, "within a slot", "slice", "-f",
                f"--tokens=0:{ratio}", "-o", f"{tmp}/x.npy", path)
        for size in (32 * ratio, 128 * ratio):
            refused(f"{name}: blocks of {size} tokens", 4, "cannot be divided", "reblock",
                    "-f", f"--block-size={size}", "-o", f"{tmp}/x.npy", path)
        r = kvtool("slice", "-f", "-q", "--tp-size=2", "--tp-rank=1", "-o",
                   f"{tmp}/x.safetensors", path)
        said = kvtool("describe", "--json", f"{tmp}/x.safetensors")
        group = said.json["groups"][0]
        tap.ok(r.code == 0 and (group["replication"], group["content_type"]) == (2, name),
               f"{name}: each rank has all of it", group)
        r = kvtool("relayout", "-f", "--to=LBCS", "-o", f"{tmp}/x.npy", path)
        tap.ok(r.code in (2, 4) or np.array_equal(np.load(f"{tmp}/x.npy").ravel(),
                                                  np.load(path).ravel()),
               f"{name}: a page stays whole", r)


def check_single(tmp, rng):
    """float32 is the float64, rounded; numbers of one type need no content type."""
    (cells,), values = dsv32_nvfp4(rng, 480)
    path = f"{tmp}/single.npy"
    write(path, cells.reshape(2, 5, 48, 1, 1, -1), "nvfp4-ds-mla", "mla", kind="mla")
    r = kvtool("convert", "-f", "-q", "--decode=float32", path, f"{tmp}/f32.npy")
    tap.ok(r.code == 0 and np.array_equal(np.load(f"{tmp}/f32.npy").ravel(),
                                          values.astype("<f4").ravel()), "float32", r)
    r = kvtool("convert", "-f", "-q", "--decode=float32", path, f"{tmp}/f32.h5")
    again = kvtool("diff", "--exact", path, f"{tmp}/f32.h5")
    tap.ok(r.code == 0 and again.code == 0, "and the same to diff", again)
    r = kvtool("convert", "-f", "-q", "--decode=float64", f"{tmp}/f32.h5", f"{tmp}/d.npy")
    tap.ok(r.code == 0 and np.array_equal(np.load(f"{tmp}/d.npy").ravel(),
                                          values.astype("<f4").ravel()), "of float32", r)


def check_all_modelled():
    """A row of the table that nothing here knows would be believed as it is."""
    names = {line.split()[0] for line in
             kvtool("help", "contents").out.split("\n\n")[0].splitlines()
             if line[:1].strip()}
    tap.equal(names - modelled - ELSEWHERE - BYTES, set(),
              f"each of {len(names)} contents has a model")


def main(tmp):
    rng = np.random.default_rng(41)
    for name, form in (
            ("mla-fp8", mla_fp8(rng, 480, 512, 64)),
            ("dsv4-fp8", mla_fp8(rng, 480, 448, 64)),
            ("nvfp4-ds-mla", dsv32_nvfp4(rng, 480)), ("glm53-nope", nope(rng, 480)),
            ("glm53-nope-656", nope(rng, 480, 128)),
            ("dsv41-row", joined(dsv41(rng, 480))),
            ("dsv41-fp4-row", joined(four_bits(rng, 480, 512, 16, e4m3))),
            ("indexer-nvfp4", joined(four_bits(rng, 480, 128, 16, e4m3))),
            ("dsv41-ring", compressor(rng, 480)), ("qsa-ring", qsa(rng, 480))):
        check_rows(tmp, name, form)
    for name, make, ratio in (
            ("dsv4-swa/e4m3fn", dsv4, 1), ("dsv4/e4m3fn", dsv4, 2),
            ("dsv4-c4a/e4m3fn", dsv4, 4),
            ("dsv4-nvfp4", dsv4_nvfp4, 4), ("dsv41", dsv41, 2),
            ("dsv41-fp4", lambda r, n: four_bits(r, n, 512, 16, e4m3), 1),
            ("indexer/e4m3fn", indexer, 1), ("dsv4-indexer/e4m3fn", indexer, 4),
            ("dsv41-indexer/e4m3fn", indexer, 2),
            ("indexer-mxfp4", lambda r, n: four_bits(r, n, 128, 32, power), 2),
            ("kpool-indexer", pooled, 4), ("kpool-tail", tail, 1)):
        check_pages(tmp, name, make(rng, 480), ratio)
        check_pages(tmp, name, make(rng, 480), ratio, 16)
    check_pages(tmp, "dsv4-c128a/e4m3fn", dsv4(rng, 480), 128, 2)
    for D in (2, 8, 24, 64, 96, 128, 256, 576):
        check_pairs(tmp, "int4-per-token-head", D, int4(rng, 384, D))
    for D in (8, 32, 64, 128, 256):
        for name, key, value in (("turboquant-k8v4/e4m3fn", 8, 4),
                                 ("turboquant-4bit-nc", 4, 4),
                                 ("turboquant-k3v4-nc", 3, 4),
                                 ("turboquant-3bit-nc", 3, 3)):
            check_halves(tmp, name, D, turboquant(rng, 192, D, key, value),
                         0 if key == 8 else 6e-5)
    for D in (32, 64, 128, 256):
        check_halves(tmp, "ultraquant-4bit", D, ultraquant(rng, 192, D))
    for of in ("bfloat16", "float16", "float32"):
        for bits in (2, 3, 4, 5, 6, 8):
            for group in (32, 64, 128)[:3 if SHARE == 1 else 1]:
                check_pairs(tmp, f"mlx-affine/{bits}/{group}/{of}", 2 * group,
                            affine(rng, 384, 2 * group, bits, group, of))
        check_pairs(tmp, f"transformers-fp8/{of}", 40, scaled_fp8(rng, 384, 40, of))
    for name, bits, group in (("mlx-mxfp4", 4, 32), ("mlx-mxfp8", 8, 32),
                              ("mlx-nvfp4", 4, 16)):
        check_pairs(tmp, name, 96, mlx_float(rng, 384, 96, bits, group))
    check_ggml(tmp, rng)
    check_encoded(rng)
    check_nvfp4(tmp, rng)
    check_kernel_pages(tmp, rng)
    check_writer(tmp)
    check_diff(tmp, rng)
    check_floats(tmp, np.random.default_rng(7))
    check_refused(tmp, rng)
    check_torn(tmp, rng)
    check_single(tmp, rng)
    check_all_modelled()
    tap.ok(rows_read >= 10000, f"{rows_read} rows were decoded")


if __name__ == "__main__":
    run(main)
