# SPDX-License-Identifier: Apache-2.0
"""
planted.py FOLDER - a cache that is right, and what goes wrong with such, by numpy alone

The files that kvtool-symptoms(7) names, made of the one whose path without its ending is
in KVT_GOOD: layers, blocks, slots, heads, K and V, elements.
"""
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
GOOD = os.environ.get("KVT_GOOD", os.path.join(
    HERE, "../testdata/kv/s260k/paged_bs16/packed_nhd.bf16"))


def write(folder, name, bits, side, **more):
    np.save(os.path.join(folder, name + ".npy"), bits)
    side = dict(side, file=name + ".npy", **more)
    side.pop("address_map", None)
    with open(os.path.join(folder, name + ".json"), "w") as f:
        json.dump(side, f)


def e4m3(x):
    codes = np.arange(0x7f)
    e, m = codes >> 3, codes & 7
    table = np.where(e > 0, (1 + m / 8) * 2.0 ** (e - 7), m / 8 * 2.0 ** -6)
    at = np.clip(np.searchsorted(table, np.abs(x)), 0, len(table) - 1)
    return (at + 128 * (x < 0)).astype(np.uint8)


def main(folder):
    good = np.load(GOOD + ".npy")
    with open(GOOD + ".json") as f:
        side = json.load(f)
    numbers = (good.astype(np.uint32) << 16).view(np.float32)
    tables = side["block_table"]
    first, second = tables["A"], tables["B"]
    write(folder, "good", good, side)
    np.save(os.path.join(folder, "unknown.npy"), good)

    x = good.copy()
    x[2] = x[2, :, :, :, ::-1]
    write(folder, "bad", x, side)
    write(folder, "swapped", x, side)

    # pages of head after head, taken for slot after slot
    write(folder, "turned", good.swapaxes(2, 3).reshape(good.shape), side)

    x = good.copy()
    x[:, :, :, 2:] = 0
    write(folder, "rank1-bad", x, side)

    x = good.copy()
    x[3, first[4], 5, 1, 0] = 0x7fc0
    write(folder, "nan", x, side)

    x = good.copy()
    for to, of in zip(first[4:], first[3:]):
        x[:, to] = good[:, of]
    write(folder, "shifted", x, side)

    x = good.copy()
    x[:, second[5]] = good[:, first[2]]
    write(folder, "twice", x, side)

    x = good.copy()
    x[:, second[3]] = good[:, first[8]] ^ 0x0040
    write(folder, "stale", x, side)

    x = good.copy()
    x[3:] = 0
    write(folder, "zeros", x, side)

    x = numbers.copy()
    x[2, ..., 0, :] /= 32
    write(folder, "scaled", (x.view(np.uint32) >> 16).astype(np.uint16), side)

    write(folder, "fp8", e4m3(np.clip(numbers * 64, -448, 448)), side,
          dtype="float8_e4m3fn", npy_dtype="|u1")
    write(folder, "fp16", numbers.astype(np.float16), side, dtype="float16", npy_dtype="<f2")


if __name__ == "__main__":
    main(sys.argv[1])
