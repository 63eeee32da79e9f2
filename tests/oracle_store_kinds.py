#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
oracle_store_kinds.py - stores without an index, and with their own, read back

Files are painted here, byte by byte, with random cells; what must come out of them is
known from how they were painted.  Nothing here knows kvtool.
"""
import json
import os
import random
import shutil
import sys

sys.dont_write_bytecode = True

import numpy as np

import store_files as sf
from oracle import Tap, kvtool, workdir

tap = Tap()
SHAPE = (2, 2, 8, 2, 4)                         # K, L, T, H, D
SAID = ["--layout=KLSHD", "--layers=2", "--heads=2", "--head-dim=4", "--dtype=float16"]


def cells(r, tokens=SHAPE[2], shape=SHAPE):
    shape = shape[:2] + (tokens,) + shape[3:]
    bits = np.frombuffer(r.randbytes(2 * int(np.prod(shape))), np.uint16)
    return (bits & 0x3bff | 1).reshape(shape)       # numbers, and none is zero


def read(path, *options):
    """{request: cells [K, L, T, H, D]} as kvtool has them; or its refusal."""
    out = path.rstrip("/") + ".out.npy"
    r = kvtool("relayout", "--no-sync", "-f", "-q", "--to=KLBSHD", *options, "-o", out,
               path)
    if r.code:
        return r
    with open(out[:-4] + ".json") as f:
        side = json.load(f)
    array = np.load(out).view(np.uint16)
    size = array.shape[3]
    array = array.reshape(array.shape[:2] + (-1,) + array.shape[-2:])
    return {name: np.concatenate([array[:, :, b * size:(b + 1) * size] for b in blocks],
                                 axis=2)[:, :, :side["num_tokens"][name]]
            for name, blocks in side["block_table"].items()}


def same(name, got, want):
    good = isinstance(got, dict) and got.keys() == want.keys() and \
        all(np.array_equal(got[k], want[k]) for k in want)
    tap.ok(good, name, got if not isinstance(got, dict) else
           f"got {sorted(got)}\nwant {sorted(want)}")


def refused(name, status, words, *args):
    r = kvtool(*args)
    tap.ok(r.code == status and all(w in r.out + r.err for w in words), name, r)


# ---- records of Mooncake without kv_cache.meta ------------------------------------

def paint(r, crc, writes, size=1 << 18):
    """
    A kv_cache.data after so many writes at random places, and what is whole of it:
    {key: cells} of the newest record of each key that no later one touched.  After many
    writes all other bytes are noise.
    """
    data = bytearray(size)
    places = []
    for seq in range(writes):
        key, value = f"k{r.randrange(writes)}", cells(r)
        record = sf.record(key, value.tobytes(), seq, crc)
        at = 512 * r.randrange((size - len(record)) // 512)
        data[at:at + len(record)] = record
        places = [p for p in places if p[1] <= at or p[0] >= at + len(record)]
        places.append((at, at + len(record), key, value))
    for at in range(0, size, 512) if writes > 30 else []:
        if not any(p[0] < at + 512 and at < p[1] for p in places):
            data[at:at + 512] = r.randbytes(512)
    return data, {key: value for _, _, key, value in places}


def scanned(top):
    for seed in range(12):
        r = random.Random(seed)
        data, want = paint(r, seed % 2, 8 + 4 * seed)
        folder = f"{top}/scan{seed}"
        sf.write(f"{folder}/kv_cache.data", bytes(data))
        same(f"{len(want)} records {'with' if seed % 2 else 'without'} checksums, found "
             f"without kv_cache.meta, seed {seed}", read(folder, *SAID), want)
    r = random.Random(99)
    one = {f"k{i}": cells(r) for i in range(3)}
    sf.offset_store(f"{top}/three", {k: v.tobytes() for k, v in one.items()})
    same("with kv_cache.meta", read(f"{top}/three", *SAID), one)
    os.unlink(f"{top}/three/kv_cache.meta")
    same("and without", read(f"{top}/three", *SAID), one)
    path = f"{top}/three/kv_cache.data"
    with open(path, "r+b") as f:
        f.seek(8192 + 4096 + 100)
        f.write(b"x")
    del one["k0"]
    same("a damaged record is none", read(f"{top}/three", *SAID), one)
    refused("fsck says so", 0, ["store.stale", "1 records of kv_cache.data",
                                "found by scanning"], "fsck", *SAID, f"{top}/three")
    os.truncate(path, os.path.getsize(path) - 4096 - 3840 - 9)
    del one["k2"]
    same("nor one that was cut", read(f"{top}/three", *SAID), one)
    sf.write(f"{top}/noise/kv_cache.data", random.Random(7).randbytes(1 << 16))
    refused("noise", 3, ["holds no value"], "describe", *SAID, f"{top}/noise")
    head = sf.record("k", bytes(100000), 1)[:4096]
    sf.write(f"{top}/vain/kv_cache.data", (head[:20] + b"abcd" + head[24:512]) * 400)
    refused("heads without records", 3, ["holds no value"], "describe", *SAID,
            f"{top}/vain")


def main():
    with workdir() as top:
        scanned(top)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
