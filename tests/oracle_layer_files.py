#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_layer_files.py - a folder with a file for each layer: every element is where numpy
has it, and files that are not the layers of one cache are refused by name
"""
import os
import random
import re

import numpy as np

import oracle
from foreign_files import Tensor, npy_bytes, npz_bytes, safetensors_bytes, torch_bytes
from oracle import kvtool, read_bytes, tap, write_bytes

ENDINGS = ".npy", ".npz", ".pt", ".pth", ".safetensors"
NAMES = ("layer_{}", "{}", "kv_layer{:02d}", "model.layers.{}.self_attn.attn", "rank0_layer_{}")


def half(a):
    return Tensor("HalfStorage", a)


def contents(ending, named):
    """A file with these arrays; a single one needs no name."""
    if ending == ".npy":
        return npy_bytes(*named.values())
    if ending == ".npz":
        return npz_bytes(named)
    if ending == ".safetensors":
        return safetensors_bytes({n: ("F16", a) for n, a in named.items()})
    one = len(named) == 1
    return torch_bytes(half(*named.values()) if one else {n: half(a) for n, a in named.items()})


def write(folder, files):
    os.makedirs(folder)
    for name, data in files.items():
        write_bytes(f"{folder}/{name}", data)
    return folder


def values(path, tmp, *options):
    """All elements as LBSHKD, through a file of bytes in that order; or what was said."""
    raw = f"{tmp}/out.raw"
    run = kvtool("relayout", "--to=LBSHKD", "--format=raw", *options, path, raw)
    if run.code:
        return run.err
    data = read_bytes(raw)
    os.remove(raw)
    os.remove(raw + ".json")
    return data


def cases(rng, tmp):
    for case in range(60):
        layers, blocks, slots, heads, dim = (rng.randint(2, 12), rng.randint(2, 5), 4, 3, 8)
        a = np.frombuffer(rng.randbytes(2 * layers * 2 * blocks * slots * heads * dim), "<f2")
        a = a.reshape(layers, 2, blocks, slots, heads, dim)	# LKBSHD
        want = a.transpose(0, 2, 3, 4, 1, 5).tobytes()
        ending, name = rng.choice(ENDINGS), rng.choice(NAMES)
        arrangement = rng.choice(("whole", "pair", "apart"))
        if arrangement == "pair" and ending == ".npy":
            arrangement = "apart"
        if arrangement == "whole":
            files = {name.format(i) + ending: contents(ending, {"kv": a[i]})
                     for i in range(layers)}
        elif arrangement == "pair":
            files = {name.format(i) + ending: contents(ending, {"k": a[i, 0], "v": a[i, 1]})
                     for i in range(layers)}
        else:
            files = {f"{name.format(i)}.{'kv'[k]}{ending}": contents(ending, {"x": a[i, k]})
                     for i in range(layers) for k in range(2)}
        folder = write(f"{tmp}/{case}", files)
        said = ["--layout=kv-first-nhd"] if arrangement == "whole" else [
            "--layout=K:LBSHD V:LBSHD", f"--block-size={slots}", f"--heads={heads}",
            f"--head-dim={dim}"]
        got = values(folder, tmp, *said)
        tap.ok(got == want, f"{arrangement}, {name}{ending}, {layers} layers",
               got if isinstance(got, str) else "other bytes")


def refused(tmp):
    one = npy_bytes(np.zeros((2, 3, 4, 2, 8), "<f2"))
    pt = torch_bytes(half(np.zeros((2, 3, 4, 2, 8), "<f2")))
    other = npy_bytes(np.zeros((2, 3, 4, 2, 4), "<f2"))
    for what, files, says in (
            ("ranks", {"rank0.npy": one, "rank1.npy": one}, "a number of a rank"),
            ("steps", {"kv_step_3.npy": one, "kv_step_4.npy": one}, "a number of a step"),
            ("one missing", {f"l{i}.npy": one for i in (0, 1, 3)}, "has no file of layer 2"),
            ("no numbers", {"a.npy": one, "b.npy": one}, "cannot tell the layer"),
            ("twice", {"layers.1.npy": one, "layers.01.npy": one}, "are both layer 1"),
            ("two shapes", {"l0.npy": one, "l1.npy": other}, "differ in shape or type"),
            ("two kinds", {"l0.npy": one, "l1.pt": pt}, "l1.pt: is not a .npy file"),
            ("a stranger", {"l0.npy": one, "README": b"x"}, "README: is not a .npy file"),
            ("cut", {"l0.npy": one, "l1.npy": one[:-2]}, "after the header"),
            ("empty", {"l0.npy": one, "l1.npy": b""}, "l1.npy"),
            ("three tensors", {f"l{i}.npz": npz_bytes(dict.fromkeys(
                "abc", np.zeros((2, 3, 4, 2, 8), "<f2"))) for i in range(2)},
             "has 3 tensors; a file of a layer has one")):
        folder = write(f"{tmp}/{what}", files)
        run = kvtool("describe", "--layout=kv-first-nhd", folder)
        tap.ok(run.code == 3 and says in run.err, f"refused: {what}", run.err)
    folder = write(f"{tmp}/connector", {"README": b"x", "model.layers.0.safetensors":
        safetensors_bytes({"kv_cache": ("F16", np.zeros((8, 2, 2, 8), "<f2"))})})
    run = kvtool("describe", "--block-size=4", folder)
    tap.ok(run.code == 0 and "connector: folder" in run.out,
           "a folder of the connector, with another file in it", run.out + run.err)
    # every fourth layer has attention: the others have no file
    folder = write(f"{tmp}/hybrid", {f"l{i}.npy": one for i in (3, 7, 11)})
    run = kvtool("describe", "--layout=kv-first-nhd", folder)
    tap.ok(run.code == 0, "layers at equal distances", run.err)


def places(tmp):
    """The place of a byte names the file; a byte that a checksum covers is noticed."""
    rng = np.random.default_rng(5)
    a = rng.standard_normal((3, 2, 3, 4, 2, 8)).astype("<f2")
    folder = write(f"{tmp}/places", {f"layer_{i}.npy": npy_bytes(a[i]) for i in range(3)})
    run = kvtool("where", "--layout=kv-first-nhd", folder,
                 "layer=2,block=1,slot=3,head=1,kv=v,dim=5")
    at = 128 + 2 * int(np.ravel_multi_index((1, 1, 3, 1, 5), a.shape[1:]))
    tap.ok(run.code == 0 and "layer_2.npy" in run.out and str(at) in run.out,
           "where names the file and the byte", run.out + run.err)
    saved = torch_bytes(half(a[0]))
    flipped = bytearray(saved)
    flipped[saved.index(a[0].tobytes()) + 7] ^= 16
    folder = write(f"{tmp}/flipped", {"l0.pt": saved, "l1.pt": bytes(flipped)})
    run = kvtool("digest", "--layout=kv-first-nhd", folder)
    tap.ok(run.code == 3 and "l1.pt" in run.err, "a flipped bit of an archive",
           run.out + run.err)


def beside(tmp):
    """A list of layers and a few other tensors: told how to leave these out."""
    rng = np.random.default_rng(6)
    a = rng.standard_normal((3, 2, 3, 4, 2, 8)).astype("<f2")
    arrays = {f"kv.{i}": a[i] for i in range(3)} | {
        "block_table": np.array([[2, 0], [1, 0]], "<i4"), "seq_lens": np.array([8, 3], "<i4")}
    folder = write(f"{tmp}/beside", {"with.npz": npz_bytes(arrays)})
    run = kvtool("describe", f"{folder}/with.npz")
    option = re.search(r"--set=names=\S+", run.err)
    tap.ok(run.code == 3 and option and "4 of" not in run.err and "3 of 4" in run.err,
           "layers beside a block table: asked", run.err)
    got = values(f"{folder}/with.npz", tmp, "--layout=kv-first-nhd", option.group(0))
    tap.ok(got == a.transpose(0, 2, 3, 4, 1, 5).tobytes(), "and read as told",
           got if isinstance(got, str) else "other bytes")


def main(tmp):
    cases(random.Random(11), tmp)
    refused(tmp)
    places(tmp)
    beside(tmp)


oracle.run(main)
