# SPDX-License-Identifier: Apache-2.0
"""
content_model.py - packed contents, made and read by numpy from the documented bytes

Every type is made of random bytes where any byte is legal, so that a byte in a
wrong place shows, and read here into the float64 that each number stands for.
Rows are cells[K, L, B, S, H, D]; pages of planes have S = 1.
"""
import numpy as np


# ---- element types ----------------------------------------------------------

def fp8(bits, exponent, bias, flavour):
    """Numbers of an 8-bit float: sign, exponent, the rest mantissa."""
    bits = bits.astype(np.int64)
    mantissa = 7 - exponent
    sign = np.where(bits & 0x80, -1.0, 1.0)
    e, m = bits >> mantissa & (1 << exponent) - 1, bits & (1 << mantissa) - 1
    value = np.where(e > 0, np.ldexp(1 + m / 2.0 ** mantissa, e - bias),
                     np.ldexp(m / 2.0 ** mantissa, 1 - bias))
    if flavour == "fn":
        value = np.where(bits & 0x7f == 0x7f, np.nan, value)
    elif flavour == "fnuz":
        value = np.where(bits == 0x80, np.nan, value)
    else:
        top = e == (1 << exponent) - 1
        value = np.where(top, np.where(m > 0, np.nan, np.inf), value)
    return sign * value


FP8 = {
    "e4m3fn": lambda b: fp8(b, 4, 7, "fn"), "e4m3fnuz": lambda b: fp8(b, 4, 8, "fnuz"),
    "e5m2": lambda b: fp8(b, 5, 15, "ieee"), "e5m2fnuz": lambda b: fp8(b, 5, 16, "fnuz"),
}


def bf16(b):
    """The last axis holds pairs of bytes."""
    return (np.ascontiguousarray(b).view("<u2").astype("<u4") << 16) \
        .view("<f4").astype(np.float64)


def f32(b):
    return np.ascontiguousarray(b).view("<f4").astype(np.float64)


def some_fp8(rng, shape):
    """Numbers of every flavour: no byte that is NaN or infinite in one of them."""
    b = rng.integers(0, 0x7c, shape, dtype=np.uint8)
    sign = rng.integers(0, 2, shape, dtype=np.uint8) << 7
    return np.where(b > 0, b | sign, b).astype(np.uint8)


def some_f32(rng, shape):
    return rng.uniform(0.001, 2, shape).astype("<f4").view(np.uint8)


def some_bf16(rng, shape):
    bits = rng.standard_normal(shape).astype("<f4").view("<u4") >> 16
    return bits.astype("<u2").view(np.uint8)


# ---- rows -------------------------------------------------------------------

def ds_mla(rng, L, B, S, flavour):
    """512 fp8, 4 scales for 128 of them each, 64 bf16."""
    n = (1, L, B, S, 1)
    nope, scale, rope = some_fp8(rng, n + (512,)), some_f32(rng, n + (4,)), \
        some_bf16(rng, n + (64,))
    values = FP8[flavour](nope).reshape(n + (4, 128)) * f32(scale)[..., None]
    return np.concatenate([nope, scale, rope], -1), \
        np.concatenate([values.reshape(n + (512,)), bf16(rope)], -1)


def per_token_head(rng, L, B, S, H, D, kind):
    """D numbers of a byte and a float32, for keys and for values."""
    n = (2, L, B, S, H)
    q = some_fp8(rng, n + (D,)) if kind in FP8 else \
        rng.integers(0, 256, n + (D,), dtype=np.uint8)
    scale = some_f32(rng, n + (1,))
    numbers = FP8[kind](q) if kind in FP8 else q.view(np.int8).astype(np.float64)
    return np.concatenate([q, scale], -1), numbers * f32(scale)


def opaque(rng, K, L, B, S, H, D):
    return rng.integers(0, 256, (K, L, B, S, H, D), dtype=np.uint8), None


# ---- pages ------------------------------------------------------------------

def page(parts, L, B):
    return np.concatenate([p.reshape(1, L, B, 1, 1, -1) for p in parts], -1)


def indexer(rng, L, B, rows, flavour):
    """All numbers of the block, then all scales."""
    q, scale = some_fp8(rng, (L, B, rows, 128)), some_f32(rng, (L, B, rows, 1))
    return page([q, scale], L, B), FP8[flavour](q) * f32(scale)


def dsv4(rng, L, B, rows, flavour):
    """448 fp8 and 64 bf16 a row, behind them 7 powers of two and a byte a row."""
    q, rope = some_fp8(rng, (L, B, rows, 448)), some_bf16(rng, (L, B, rows, 64))
    scale = rng.integers(110, 140, (L, B, rows, 8), dtype=np.uint8)
    factor = np.ldexp(1.0, scale[..., :7].astype(int) - 127)
    values = FP8[flavour](q).reshape(L, B, rows, 7, 64) * factor[..., None]
    return page([np.concatenate([q, rope], -1), scale], L, B), \
        np.concatenate([values.reshape(L, B, rows, 448), bf16(rope)], -1)


# ---- quantising -------------------------------------------------------------

def nearest(values, flavour):
    """The bytes whose numbers are nearest to these."""
    table = FP8[flavour](np.arange(256, dtype=np.uint8))
    finite = np.flatnonzero(np.isfinite(table))
    finite = finite[np.argsort(table[finite], kind="stable")]
    numbers = table[finite]
    i = np.clip(np.searchsorted(numbers, values), 1, len(numbers) - 1)
    below = values - numbers[i - 1] < numbers[i] - values
    return finite[np.where(below, i - 1, i)].astype(np.uint8)


def to_bf16(values):
    """The bits of bfloat16 nearest to these, ties to even."""
    bits = values.astype("<f4").view("<u4")
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2")


def quantised_ds_mla(values, flavour):
    """Rows of 656 bytes for rows of 576 numbers, a scale for the largest of 128."""
    n = values.shape[:-1]
    groups = values[..., :512].reshape(n + (4, 128))
    top = FP8[flavour](np.uint8([0x7b]))[0]
    scale = (np.abs(groups).max(-1) / top).astype("<f4")
    q = nearest(groups / scale[..., None].astype(float), flavour)
    rope = to_bf16(values[..., 512:])
    return np.concatenate([q.reshape(n + (512,)), scale.view(np.uint8),
                           rope.view(np.uint8)], -1)


def quantised_int8(values):
    """A row of D bytes and a scale for each of D numbers."""
    scale = (np.abs(values).max(-1, keepdims=True) / 127).astype("<f4")
    q = np.clip(np.rint(values / scale), -127, 127).astype(np.int8)
    return np.concatenate([q.view(np.uint8), scale.view(np.uint8)], -1)
