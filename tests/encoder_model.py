# SPDX-License-Identifier: Apache-2.0
"""
encoder_model.py - rows of contents from numbers, in numpy

Float32, an operation a line, as the engines' kernels are; what is nearest is looked for
in a table of all numbers of a type, in ascending order, and of the middles between them.
A NaN counts for no scale; it is NaN of fp8, the largest of 4 bits, 0 of int8.
"""
import numpy as np

F = np.float32


class Type:
    """Codes from 0 up to the largest, and what they are in float64, which has all."""
    def __init__(self, bits, fraction, bias, infinity, minus, nan):
        self.bits, self.fraction, self.infinity, self.minus = bits, fraction, infinity, minus
        self.nan, self.word = nan, np.uint16 if bits == 16 else np.uint8
        codes = np.arange(1 << (bits - 1), dtype=np.int64)
        exponent, rest = codes >> fraction, codes & ((1 << fraction) - 1)
        self.value = np.where(exponent > 0, (1 << fraction) + rest, rest) * \
            2.0 ** (np.maximum(exponent, 1) - bias - fraction)
        self.top = len(codes) - 1 - ((1 << fraction) if infinity else bits == 8 and minus)
        self.table = self.value[:self.top + 1]
        self.middle = (self.table[:-1] + self.table[1:]) / 2

    def encode(self, x):
        """x: float32.  What is too large is the largest, or of 16 bits infinity."""
        size = np.abs(x.astype(np.float64))
        low = np.searchsorted(self.middle, size, side="left")
        high = np.searchsorted(self.middle, size, side="right")
        code = np.where(low == high, low, np.where(low % 2 == 0, low, high))
        if self.bits == 16:     # what is half a step too large is infinite
            step = self.table[-1] - self.table[-2]
            code = np.where(size >= self.table[-1] + step / 2, self.top + 1, code)
        code = np.where(np.isnan(x), self.nan, code)
        sign = np.signbit(x).astype(np.int64) << (self.bits - 1)
        if self.bits == 4:      # of which none is a NaN
            sign = np.where(np.isnan(x), 0, sign)
        code = code | sign if self.minus else np.where(code == 0, 0, code | sign)
        return code.astype(self.word)

    def decode(self, codes):
        magnitude = codes.astype(np.int64) & ((1 << (self.bits - 1)) - 1)
        sign = np.where(codes.astype(np.int64) >> (self.bits - 1), -1.0, 1.0)
        with np.errstate(invalid="ignore"):
            x = np.where(magnitude <= self.top, self.value[magnitude], np.nan)
            if self.infinity:
                x = np.where(magnitude == self.top + 1, np.inf, x)
            x = x * sign
        x = np.where(np.isnan(x), np.copysign(np.nan, sign), x)
        if not self.minus:
            x = np.where(codes == self.nan, np.nan, x)
        return x.astype(np.float32)


ALL = {
    "float16": Type(16, 10, 15, True, True, 0x7e00),
    "bfloat16": Type(16, 7, 127, True, True, 0x7fc0),
    "float8_e4m3fn": Type(8, 3, 7, False, True, 0x7f),
    "float8_e4m3fnuz": Type(8, 3, 8, False, False, 0x80),
    "float8_e5m2": Type(8, 2, 15, True, True, 0x7f),
    "float4_e2m1": Type(4, 1, 1, False, True, 7),
}
E4M3, E2M1 = ALL["float8_e4m3fn"], ALL["float4_e2m1"]
LARGEST = {"e4m3fn": F(448), "e4m3fnuz": F(224), "e5m2": F(57344)}


def as_type(x, name):
    if name == "float32":
        return x.astype(F)
    return ALL[name].decode(ALL[name].encode(x.astype(F)))


def raw(x):
    return np.ascontiguousarray(x).view(np.uint8)


def nibbles(codes):
    return (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)


def largest(x):
    return np.where(np.isnan(x), F(0), np.abs(x)).max(-1)


def tiles(x, n):
    return x.reshape(*x.shape[:-1], -1, n)


def flat(codes):
    return codes.reshape(*codes.shape[:-2], -1)


# ---- numbers that have a scale -------------------------------------------------

def power_above(x):
    """The exponent of the least power of two that is not less; of 0 it is 0."""
    fraction, exponent = np.frexp(x.astype(np.float64))
    exponent = np.where(fraction == .5, exponent - 1, exponent)
    exponent = np.where(x > 0, np.where(np.isinf(x), 127, exponent), 0)
    return np.clip(exponent, -127, 127)


def per_token_head(x, fp8):
    kind = ALL["float8_" + fp8]
    scale = np.maximum((largest(x) / LARGEST[fp8]).astype(F), F(1e-6))[..., None]
    by = (F(1) / scale).astype(F)
    return np.concatenate([kind.encode((x * by).astype(F)), raw(scale)], -1)


def int8_per_token_head(x):
    scale = np.maximum((largest(x) / F(127)).astype(F), F(1e-6))[..., None]
    y = (x * (F(1) / scale).astype(F)).astype(F)
    y = np.where(y >= 0, (y + F(.5)).astype(F), (y - F(.5)).astype(F))
    y = np.trunc(np.clip(np.where(np.isnan(y), 0, y), -128, 127))
    return np.concatenate([y.astype(np.int8).view(np.uint8), raw(scale)], -1)


def ds_mla(x, rope):
    t = tiles(x[..., :512], 128)
    scale = np.maximum((largest(t) / F(448)).astype(F), np.finfo(F).tiny)
    codes = flat(E4M3.encode((t / scale[..., None]).astype(F)))
    end = raw(ALL["bfloat16"].encode(x[..., 512:])) if rope else \
        np.zeros((*x.shape[:-1], 128), np.uint8)
    return np.concatenate([codes, raw(scale), end], -1)


def four_bits(t, scale, inverse):
    """Codes of tiles over a scale that is kept as fp8, and it."""
    kept = E4M3.encode(scale)
    s = E4M3.decode(kept)[..., None]
    if inverse:
        by = np.where(s > 0, (F(1) / s).astype(F), F(0))
        y = (t * by).astype(F)
    else:
        y = np.where(s > 0, (t / s).astype(F), F(0))
    return nibbles(flat(E2M1.encode(y))), kept


def nvfp4_ds_mla(x):
    t = tiles(x[..., :512], 16)
    scale = np.maximum((largest(t) * F(1 / 6)).astype(F), F(2.0 ** -9))
    data, kept = four_bits(t, scale, True)
    order = np.argsort([8 * (s & 3) + (s >> 2) for s in range(32)])
    return np.concatenate([data, E4M3.encode(x[..., 512:]), kept[..., order]], -1)


def nvfp4(x):
    """Of a key or a value: data, and scales in order."""
    t = tiles(x, 16)
    return four_bits(t, (largest(t) * F(1 / 6)).astype(F), True)


def powers(x, n, fp8):
    t = tiles(x, n)
    most = np.maximum(largest(t), F(1e-4))
    exponent = power_above((most / LARGEST[fp8]).astype(F))
    y = (t / np.exp2(exponent.astype(np.float64)).astype(F)[..., None]).astype(F)
    return flat(ALL["float8_" + fp8].encode(y)), (exponent + 127).astype(np.uint8)


def dsv4(x, fp8):
    """Planes: numbers and the rotary part; scales and a zero."""
    codes, scale = powers(x[..., :448], 64, fp8)
    rope = raw(ALL["bfloat16"].encode(x[..., 448:]))
    return [np.concatenate([codes, rope], -1),
            np.concatenate([scale, np.zeros_like(scale[..., :1])], -1)]


def dsv41(x, fp8):
    return list(powers(x, 32, fp8))


def dsv41_fp4(x):
    t = tiles(x, 16)
    scale = np.maximum((largest(t) * F(1 / 6)).astype(F), F(2.0 ** -9))
    return list(four_bits(t, scale, False))


def transformers_fp8(x, scale):
    by = np.broadcast_to(np.asarray(scale, F), x.shape[:-1])[..., None]
    return np.concatenate([E4M3.encode((x / by).astype(F)), raw(by)], -1)


# ---- mlx ------------------------------------------------------------------------

LUT = np.concatenate([E2M1.value, -E2M1.value]).astype(F)


def mlx_float(x, mode):
    """As mx.quantize of a bfloat16 array computes on a CPU."""
    x = as_type(x, "bfloat16")
    t = tiles(x, 16 if mode == "nvfp4" else 32)
    scale = as_type(largest(t) / F(448 if mode == "mxfp8" else 6), "bfloat16")
    if mode == "nvfp4":
        kept = E4M3.encode(scale)
        s = E4M3.decode(kept)
    else:
        exponent = power_above(scale)
        kept, s = (exponent + 127).astype(np.uint8), np.exp2(exponent.astype(float)).astype(F)
    y = as_type(np.where(s[..., None] > 0, t / s[..., None], F(0)), "bfloat16")
    if mode == "mxfp8":
        return np.concatenate([flat(E4M3.encode(y)), kept], -1)
    distance = np.abs((y[..., None] - LUT).astype(F))
    code = np.where(np.isfinite(y), np.where(np.isnan(distance), np.inf, distance)
                    .argmin(-1), 0).astype(np.uint8)
    return np.concatenate([nibbles(flat(code)), kept], -1)


def affine(x, bits, group, name):
    """As mlx: codes of a group from the end that is farther from 0."""
    g = tiles(as_type(x, name), group)
    low, high, n = g.min(-1), g.max(-1), F((1 << bits) - 1)
    mask = np.abs(low) > np.abs(high)
    scale = np.maximum(((high - low).astype(F) / n).astype(F), F(1e-7))
    scale = np.where(mask, scale, -scale).astype(F)
    edge = np.where(mask, low, high)
    q = np.rint((edge / scale).astype(F))
    scale = np.where(q != 0, edge / np.where(q != 0, q, 1), scale).astype(F)
    bias = np.where(q != 0, edge, F(0)).astype(F)
    code = np.rint(((g - bias[..., None]).astype(F) / scale[..., None]).astype(F))
    code = flat(np.clip(code, 0, n).astype(np.uint8))
    bit = (code[..., None] >> np.arange(bits, dtype=np.uint8)) & 1
    packed = np.packbits(bit.reshape(*x.shape[:-1], -1), axis=-1, bitorder="little")
    ends = [v if name == "float32" else ALL[name].encode(v) for v in (scale, bias)]
    return np.concatenate([packed] + [raw(v) for v in ends], -1)


# ---- ggml -----------------------------------------------------------------------

BOOK = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def signed_most(x):
    return np.take_along_axis(x, np.abs(x).argmax(-1)[:, None], -1) + np.float32(0)


def over(a, b):
    with np.errstate(all="ignore"):
        return np.where(b != 0, (a / b).astype("<f4"), np.float32(0))


def ggml_bytes(x, name):
    """Blocks of float32 as ggml's CPU backend writes them: float32, step by step."""
    x, f = x.astype("<f4"), np.float32
    m, least, parts = signed_most(x), None, []
    if name == "q8_0":
        d = np.abs(m) / f(127)
        q = np.rint(x * over(f(127), np.abs(m))).astype(np.int8).view(np.uint8)
    elif name[-1] == "0":
        half = 8 if name == "q4_0" else 16
        d = m / f(-half)
        q = np.minimum((x * over(f(1), d) + f(half + .5)).astype(int), 2 * half - 1)
    elif name[-1] == "1":
        most = 15 if name == "q4_1" else 31
        # of zeros the first, whatever their signs
        least, largest = (np.take_along_axis(x, i[:, None], -1)
                          for i in (x.argmin(-1), x.argmax(-1)))
        d = (largest - least) / f(most)
        q = np.minimum(((x - least) * over(f(1), d) + f(.5)).astype(int), most)
    else:
        book = np.array(BOOK, "<f4")
        scaled = over(f(1), m / book[0]) * x
        q = np.searchsorted(book, scaled, "right").clip(1, 15)
        q = np.where(scaled - book[q - 1] < book[q] - scaled, q - 1, q)
        q = np.where(scaled <= book[0], 0, np.where(scaled >= book[15], 15, q))
        up = down = np.zeros(len(x), "<f4")
        for i in range(32):
            w, v = x[:, i] * x[:, i], book[q[:, i]]
            up, down = up + w * v * x[:, i], down + w * v * v
        d = np.where(np.abs(m) < 1e-15, np.float32(0), over(up, down)[:, None])
        q[np.abs(m)[:, 0] < 1e-15] = 0
    parts.append(d.astype("<f2").view(np.uint8))
    if least is not None:
        parts.append(least.astype("<f2").view(np.uint8))
    q = q.astype(np.uint8)
    if name[:2] == "q5":
        parts.append(np.packbits(q >> 4, axis=-1, bitorder="little"))
    parts.append(q if name == "q8_0" else q[:, :16] & 15 | q[:, 16:] << 4)
    return np.concatenate(parts, -1)
