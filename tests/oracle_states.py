#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_states.py - the shape of recurrent states goes through everything

Random states: a conv state of channels and taps, an SSM state whose heads hold one, two
or three extents.  Whatever a dump is made into, state_shape stays what numpy has, h5py
finds it beside the old attributes, and what contradicts it is refused.
"""
import random

import h5py
import numpy as np

import oracle
from oracle import kvtool, read_json, refused, runs, tap, write_bytes, write_json
from oracle_groups import write_raw


def make(path, rng, shape, page):
    """conv [channels, taps] and ssm 'shape', as two arrays or as pages of an engine."""
    layers, blocks, taps = rng.randint(1, 3), rng.randint(1, 4), rng.randint(2, 4)
    parts = [8 * shape[0], 8, 8]
    order = rng.choice(("SD", "DS"))
    ends = np.cumsum([0] + parts).tolist()
    conv = [sum(parts), taps]
    sizes = oracle.sizes(L=layers, B=blocks, S=16)
    data = np.random.default_rng(rng.randint(0, 1 << 30))
    held = conv if order == "DS" else conv[::-1]
    arrays = [data.integers(0, 256, (layers, blocks, *s, 2), dtype=np.uint8)
              for s in (held, shape)]
    if page:
        arrays = [a.reshape(layers, blocks, -1) for a in arrays]
        write_bytes(path, np.concatenate(arrays, axis=2).tobytes())
        said = {"file": path.rsplit("/", 1)[1], "layout": "mamba-page",
                "conv_layout": order, "sizes": sizes,
                "page_bytes": arrays[0].shape[2] + arrays[1].shape[2],
                "conv": {"byte_offset": 0, "dtype": "float16", "shape": held,
                         **{n: ends[i:i + 2] for i, n in enumerate("xBC")}},
                "ssm": {"byte_offset": arrays[0].shape[2], "dtype": "float16",
                        "shape": shape}}
        write_json(path.replace(".bin", ".json"), said)
        return conv
    same = {"dtype": "float16", "tokens_per_slot": -1}
    write_raw(path, arrays, [
        {"id": "conv", "kind": "mamba_conv", "layout": "conv-" + order.lower(), **same,
         "sizes": sizes, "state_shape": conv, "head_count": 1,
         "content": [[n, parts[i]] for i, n in enumerate("xBC")]},
        {"id": "ssm", "kind": "mamba_ssm", "layout": "ssm", "sizes": sizes, **same,
         "state_shape": shape, "total_kv_heads": shape[0]}])
    return conv


def shapes(path):
    r = kvtool("describe", "--json", path)
    return [g["state_shape"] for g in r.json["groups"]] if r.code == 0 else r


def check_ranks(tmp, path, conv, shape, what):
    ranks = []
    for rank in range(2):
        ranks.append(f"{tmp}/rank{rank}.h5")
        kvtool("slice", "-f", "--tp-size", 2, "--tp-rank", rank, "--mamba-groups", 8,
               "-o", ranks[-1], path)
        tap.equal(shapes(ranks[-1]), [[conv[0] // 2, conv[1]],
                                      [shape[0] // 2, *shape[1:]]], f"{what}: a rank")
    kvtool("merge", "-f", "-o", f"{tmp}/all.h5", *ranks)
    tap.equal(shapes(f"{tmp}/all.h5"), [conv, shape], f"{what}: merged")


def check_round(tmp, rng, number):
    shape = [2 * rng.randint(1, 4)] + [rng.randint(1, 6) for _ in range(number % 3 + 1)]
    path = f"{tmp}/s{number}.bin"
    conv = make(path, rng, shape, number % 2)
    what = f"{number}: {conv}, {shape}"
    tap.equal(shapes(path), [conv, shape], f"{what}: as it is")
    r = kvtool("describe", path)
    tap.ok(f"state     {conv[0]} channels of {conv[1]} taps\n" in r.out and
           f"state     {shape[0]} heads of {' x '.join(map(str, shape[1:]))}\n" in r.out,
           f"{what}: in words", r)
    made = path
    one = ["npy", "bin"] if number % 2 else []      # of pages; else it has two arrays
    for ext in rng.choices(["h5", "safetensors"] + one, k=3):
        made, before = f"{tmp}/s{number}.{rng.randint(0, 1 << 40)}.{ext}", made
        kvtool("convert", "-f", "-o", made, before)
    tap.equal(shapes(made), [conv, shape], f"{what}: converted three times")
    kvtool("convert", "-f", path, f"{tmp}/one.h5")
    with h5py.File(f"{tmp}/one.h5") as f:
        groups = [f["groups"][g].attrs for g in ("conv", "ssm")]
        tap.equal([g["state_shape"].tolist() for g in groups], [conv, shape],
                  f"{what}: h5py")
        tap.equal([g["num_heads"] * g["state_content_size"] for g in groups],
                  [conv[0] * 2, int(np.prod(shape)) * 2], f"{what}: the old names stay")
    check_ranks(tmp, path, conv, shape, what)


def edited(tmp, source, **changes):
    """A copy of a dump whose manifest says something else of the SSM state."""
    out = f"{tmp}/edited.bin"
    with open(source, "rb") as f, open(out, "wb") as g:
        g.write(f.read())
    said = read_json(source.replace(".bin", ".json"))
    said["file"] = "edited.bin"
    ssm = said["groups"][1]
    for key, value in changes.items():
        ssm.pop(key) if value is None else ssm.update({key: value})
    write_json(f"{tmp}/edited.json", said)
    return out


def check_refused(tmp, rng):
    path = f"{tmp}/r.bin"
    conv = make(path, rng, [4, 3, 5], False)
    sizes = oracle.sizes(H=4, C=15, L=None, B=None, S=16)
    sizes = {**sizes, **read_json(path.replace(".bin", ".json"))["groups"][1]["sizes"]}
    for shape, why in (([4, 3, 6], "state_shape is 18"), ([4, 0, 5], "state_shape is 0"),
                       ([4], "has 1 extents"), ([4, 1, 3, 5, 1], "has 5 extents"),
                       ([2, 15], "state_shape is 2"), ([4, 1 << 40, 1 << 40], "overflows"),
                       ([4, -3, -5], "state_shape is -3"), ("4,3,5", "state_shape")):
        refused(f"{shape} is refused", 3, why, "describe",
                edited(tmp, path, sizes=sizes, state_shape=shape))
    bare = edited(tmp, path, sizes=sizes, state_shape=None)
    tap.equal(shapes(bare), [conv, None], "a manifest of before: what it does not say")
    kvtool("convert", "-f", bare, f"{tmp}/bare.h5")
    tap.equal(shapes(f"{tmp}/bare.h5"), [conv, None], "converted, unknown still")
    runs("known against unknown: the bytes are compared", "diff", path, f"{tmp}/bare.h5")
    refused("diff: transposed", 3, "3 x 5 in A and 5 x 3 in B", "diff", path,
            edited(tmp, path, sizes=sizes, state_shape=[4, 5, 3]))
    spec = "mamba2-ssm:heads=4,head-dim={},state-size={}"
    for a, b, code in ((3, 5, 0), (5, 3, 3)):
        r = kvtool("describe", f"--spec={spec.format(a, b)},elem=2", path)
        tap.equal(r.code, code, f"--spec of {a} x {b}")


def check_snapshots(tmp, rng):
    conv = make(f"{tmp}/h.bin", rng, [4, 3, 5], False)
    for group, shape, code in (("ssm", [4, 3, 5], 0), ("ssm", [4, 3, 6], 3),
                               ("ssm", [2, 3, 5], 3), ("ssm", [4], 3),
                               ("ssm", [4, 15, 1, 1, 1], 3), ("ssm", [4, 0, 5], 3),
                               ("ssm", [4, 1 << 63, 5], 3), ("conv", conv[::-1], 3),
                               ("conv", conv + [1], 3), ("conv", conv, 0)):
        kvtool("convert", "-f", f"{tmp}/h.bin", f"{tmp}/h.h5")
        with h5py.File(f"{tmp}/h.h5", "r+") as f:
            attrs = f["groups"][group].attrs
            del attrs["state_shape"]
            attrs.create("state_shape", shape, dtype="<u8")
        r = kvtool("describe", f"{tmp}/h.h5")
        tap.equal(r.code, code, f"snapshot: {group} {shape}")
    with h5py.File(f"{tmp}/h.h5", "r+") as f:
        for group in ("conv", "ssm"):
            del f["groups"][group].attrs["state_shape"]
    tap.equal(shapes(f"{tmp}/h.h5"), [conv, None], "a snapshot of before")


def main(tmp):
    rng = random.Random(31)
    for number in range(24):
        check_round(tmp, rng, number)
    check_refused(tmp, rng)
    check_snapshots(tmp, rng)


oracle.run(main)
