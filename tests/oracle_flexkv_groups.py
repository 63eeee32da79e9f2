#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_flexkv_groups.py - blocks of several groups in FlexKV's SSD cache

Files are made as its transfer code computes places: in a block the shares of all ranks,
in a share the groups one after the other, in a group layers, keys and values, slots,
heads.  What kvtool makes of them is compared group by group.
"""
import random

import numpy as np

import store_files as sf
from oracle import kvtool, run, tap
from oracle_stores import sf_arrays

TYPES = {"float16": np.uint16, "uint8": np.uint8}


class Group:
    def __init__(self, r, latent):
        self.k = 1 if latent else 2
        self.layers, self.slots = r.randrange(1, 4), r.choice([4, 8])
        self.heads = 1 if latent else 4
        self.dim = r.choice([4, 6, 16])
        self.dtype = r.choice(list(TYPES))

    def fill(self, r, blocks):
        """[K, L, B, S, H, D]"""
        shape = (self.k, self.layers, blocks, self.slots, self.heads, self.dim)
        raw = r.randbytes(int(np.prod(shape)) * np.dtype(TYPES[self.dtype]).itemsize)
        bits = np.frombuffer(raw, TYPES[self.dtype]).reshape(shape)
        self.cells = bits & 0x3b | 1

    def said(self):
        size = f"content-size={self.dim}" if self.k == 1 else \
            f"heads={self.heads},head-dim={self.dim}"
        return (f"layout={'mla-cross' if self.k == 1 else 'flexkv:BLOCKFIRST'},"
                f"dtype={self.dtype},layers={self.layers},block-size={self.slots},{size}")


def one_block(groups, b, ranks):
    out = b""
    for rank in range(ranks):
        for g in groups:
            n = g.heads // ranks
            cells = g.cells[:, :, b, :, rank * n:(rank + 1) * n]
            out += np.ascontiguousarray(cells.transpose(1, 0, 2, 3, 4)).tobytes()
    return out


def write(folder, groups, blocks, ranks, devices, files, rr, interleaved):
    each = blocks // devices // files
    pools = {(d, f): [b""] * each for d in range(devices) for f in range(files)}
    for b in range(blocks):
        dev = b // rr % devices
        there = b // rr // devices * rr + b % rr
        f, at = (there % files, there // files) if interleaved else \
            (there // each, there % each)
        pools[dev, f][at] = one_block(groups, b, ranks)
    for (d, f), parts in pools.items():
        sf.write(f"{folder}/flexkv_ssdcache_0a1b2c_{d}_{f}.bin", *parts)


def main(top):
    for seed in range(16):
        r = random.Random(seed)
        ranks = r.choice([1, 1, 2, 4])
        groups = [Group(r, ranks == 1 and r.random() < 0.4)
                  for _ in range(r.randrange(2, 5))]
        devices, files, rr = r.choice([1, 2]), r.choice([1, 2]), r.choice([1, 2])
        interleaved = r.random() < 0.5
        blocks = devices * files * rr * r.randrange(1, 4)
        for g in groups:
            g.fill(r, blocks)
        folder = f"{top}/{seed}"
        write(folder, groups, blocks, ranks, devices, files, rr, interleaved)
        said = [f"--set=groups={len(groups)}", f"--set=tp-size={ranks}",
                f"--set=round-robin={rr}",
                f"--set=placement={'interleaved' if interleaved else 'consecutive'}"]
        said += [f"--of-group=g{i}:{g.said()}" for i, g in enumerate(groups)]
        result = kvtool("convert", "--no-sync", "-f", *said, folder,
                        f"{folder}.safetensors")
        got = sf_arrays(f"{folder}.safetensors") if not result.code else {}
        good = len(got) == len(groups)
        for i, g in enumerate(groups):
            want = g.cells.transpose(2, 1, 0, 3, 4, 5)
            good = good and np.array_equal(got.get(f"g{i}", np.zeros(0)).ravel(),
                                           want.ravel())
        tap.ok(good, f"{len(groups)} groups, {ranks} ranks, {devices} devices, "
               f"{files} files, seed {seed}", f"{result}\n{list(got)}")

    def refused(what, words, *args, status=3):
        r = kvtool("describe", *args, folder)
        tap.ok(r.code == status and all(w in r.err for w in words), what, r)

    more = said[:-1] + [said[-1].replace("layers=", "layers=1")]
    refused("a group of other sizes", ["not a multiple of", "block of these groups"],
            *more)
    refused("one group less", ["not a multiple"],
            *[s for s in said if f"g{len(groups) - 1}:" not in s
              and "groups=" not in s], f"--set=groups={len(groups) - 1}")
    refused("layers outermost", ["blocks of several groups are whole"],
            *[s.replace("BLOCKFIRST", "LAYERFIRST").replace("mla-cross", "mla")
              for s in said])
    refused("a number of ranks without groups", ["give --set groups=N"],
            "--set=tp-size=2", "--layout=flexkv:BLOCKFIRST", status=2)
    refused("ranks that cannot share heads", ["3 ranks cannot share"],
            *[s for s in said if "tp-size" not in s], "--set=tp-size=3")


run(main)
