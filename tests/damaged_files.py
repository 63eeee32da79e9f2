#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
damaged_files.py - every byte of a file may be wrong

Flips bits all over a small dump in each format and feeds lying headers and
manifests to kvtool.  Whatever happens, the program ends by itself with a status
it documents and one sentence, and never says 'done' for other values than it
was given (a flat format has no checksum: there a flip inside the data is data).
"""
import json
import os
import struct

import numpy as np

import oracle
from oracle import FULL, kvtool, read_bytes, tap, write_bytes, write_json

SHAPE = (2, 3, 16, 2, 2, 8)     # L B S H K D, nhd
NBYTES = int(np.prod(SHAPE)) * 2
MANIFEST = {"file": "in.npy", "layout": "nhd", "dtype": "bfloat16", "npy_dtype": "<u2",
            "file_shape": list(SHAPE), "file_axes": ["L", "B", "S", "H", "K", "D"],
            "sizes": oracle.sizes(L=2, B=3, S=16, H=2, D=8), "model": "made",
            "layer_names": ["layers.0.attn", "layers.1.attn"],
            "block_table": {"A": [1, 2], "B": [2]}, "num_tokens": {"A": 20, "B": 16},
            "null_block": 0}


def say(r):
    return f"exit {r.code}: {r.err.strip()[:200] or r.out.strip()[:200]}"


def sound(r, findings=False):
    """Did the program refuse the way it should: status, one sentence?"""
    lines = r.err.splitlines()
    return (r.code in (3, 4) and (len(lines) == 1 or findings and lines) and
            all(line.startswith("kvtool") and not line.endswith(".")
                for line in lines))


# ---- flipped bits -----------------------------------------------------------

class Victim:
    """A dump whose file is rewritten with one bit changed, again and again."""

    def __init__(self, tmp, name, values, *options):
        self.path, self.values = f"{tmp}/{name}", values
        self.out = f"{tmp}/out.npy"
        r = kvtool("convert", *options, f"{tmp}/in.npy", self.path)
        self.made = tap.ok(r.code == 0, f"{name}: made", r)
        if self.made:
            self.bytes = read_bytes(self.path)
        self.counts = {}

    def put(self, data):
        write_bytes(self.path, data)

    def convert(self):
        """(result, values or None)"""
        r = kvtool("convert", "-f", self.path, self.out)
        if r.code:
            return r, None
        return r, oracle.array_bytes(self.out)

    def judge(self, checked, verify):
        """What is wrong with how the present file is taken; None if nothing."""
        r, values = self.convert()
        self.counts[r.code] = self.counts.get(r.code, 0) + 1
        if r.code and not sound(r):
            return say(r)
        if checked and values is not None and values != self.values:
            return "convert: exit 0, other values"
        if verify:
            r = kvtool("describe", "--verify", self.path)
            # 1: sound, but no longer what the content cells say
            if r.code not in (0, 1) and not sound(r, findings=True):
                return f"describe: {say(r)}"
            if r.code == 0 and values is not None and values != self.values:
                return "describe --verify: exit 0, other values"
        return None


def check_flips(victim, name, where, step, checked, verify):
    """One bit in every step-th byte of 'where'; the bit moves along."""
    if not victim.made:
        return
    wrong = []
    offsets = list(where)[::1 if FULL else step]
    for n, at in enumerate(offsets):
        data = bytearray(victim.bytes)
        data[at] ^= 1 << (n * 5 % 8)
        victim.put(bytes(data))
        why = victim.judge(checked, verify)
        if why:
            wrong.append(f"byte {at} bit {n * 5 % 8}: {why}")
    victim.put(victim.bytes)
    tap.ok(not wrong, f"{name}: {len(offsets)} single bits, "
           f"exits {dict(sorted(victim.counts.items(), key=str))}",
           "\n".join(wrong))


def heaps(victim):
    """
    Offsets in HDF5's global heaps that hold something: lengths and text of
    strings, which libhdf5 keeps without a checksum and trusts.
    """
    data, found, at = victim.bytes, [], victim.bytes.find(b"GCOL")
    while at >= 0:
        size = struct.unpack("<Q", data[at + 8:at + 16])[0]
        found += [i for i in range(at, min(at + size, len(data))) if data[i]]
        at = data.find(b"GCOL", at + 4)
    return found


def flat_header(victim):
    return range(len(victim.bytes) - NBYTES)


def flips(tmp, values):
    v = Victim(tmp, "zstd.h5", values)
    if v.made:
        check_flips(v, "snapshot", range(len(v.bytes)), 53, True, False)
        check_flips(v, "strings of a snapshot", heaps(v), 1, True, False)
        check_flips(v, "snapshot, verified", range(len(v.bytes)), 211, True, True)
    v = Victim(tmp, "plain.h5", values, "--uncompressed")
    if v.made:
        check_flips(v, "uncompressed snapshot, verified", range(len(v.bytes)),
                    211, False, True)
    for name in ("flat.safetensors", "flat.npy"):
        v = Victim(tmp, name, values)
        if v.made:
            check_flips(v, f"header of {name}", flat_header(v), 3, False, False)


# ---- npy headers ------------------------------------------------------------

def npy(descr="'<u2'", fortran="False", shape=str(SHAPE), version=(1, 0),
        length=None, text=None, data=bytes(NBYTES)):
    text = text or (f"{{'descr': {descr}, 'fortran_order': {fortran}, "
                    f"'shape': {shape}, }}")
    head = text.encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    n = len(head) if length is None else length
    size = struct.pack("<H" if version[0] == 1 else "<I", n)
    return b"\x93NUMPY" + bytes(version) + size + head + data


NPY = [
    ("version 9", npy(version=(9, 0)), (3, 4)),
    ("header longer than the file", npy(length=65535), (3,)),
    ("header of no length", npy(length=0), (3,)),
    ("version 2 header of 4 GiB", npy(version=(2, 0), length=4294967295), (3,)),
    ("Python objects", npy(descr="'|O'"), (3, 4)),
    ("a structured type", npy(descr="[('a', '<u2')]"), (3, 4)),
    ("big-endian", npy(descr="'>u2'"), (3, 4)),
    ("a type of another width", npy(descr="'<u4'"), (3,)),
    ("a type that is none", npy(descr="'<q9'"), (3, 4)),
    ("negative extent", npy(shape="(-2, 3, 16, 2, 2, 8)"), (3,)),
    ("too large an extent", npy(shape="(2, 3, 16, 2, 2, 9)"), (3,)),
    ("too small an extent", npy(shape="(2, 3, 16, 2, 2, 7)"), (3,)),
    ("extents whose product overflows",
     npy(shape="(4294967296, 4294967296, 16, 2, 2, 8)"), (3,)),
    ("an extent of 40 digits", npy(shape="(" + "9" * 40 + ",)"), (3,)),
    ("another order of extents", npy(shape="(3, 2, 16, 2, 2, 8)"), (3,)),
    ("no shape", npy(text="{'descr': '<u2', 'fortran_order': False}"), (3,)),
    ("two shapes", npy(text="{'descr': '<u2', 'fortran_order': False, "
                       f"'shape': {SHAPE}, 'shape': (1,)}}"), (3,)),
    ("an expression", npy(shape="(2, 3, 8 + 8, 2, 2, 8)"), (3,)),
    ("no dict", npy(text="42"), (3,)),
    ("an open dict", npy(text="{'descr': '<u2', 'fortran_order': False, "
                         "'shape': (2, 3, 16, 2, 2, 8"), (3,)),
    ("an open string", npy(text="{'descr': '<u2, 'fortran_order': False, "
                           f"'shape': {SHAPE}}}"), (3,)),
    ("data after the array", npy(data=bytes(NBYTES + 2)), (3,)),
    ("fewer data than the shape", npy(data=bytes(NBYTES - 2)), (3,)),
]


# ---- safetensors headers ----------------------------------------------------

def st(header, data=bytes(NBYTES), length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    n = len(text) if length is None else length
    return struct.pack("<Q", n) + text + data


def tensor(**other):
    t = {"dtype": "BF16", "shape": list(SHAPE), "data_offsets": [0, NBYTES]}
    t.update(other)
    return {"kv_cache": t}


SAFETENSORS = [
    ("header longer than the file", st(tensor(), length=1 << 20)),
    ("header of 2^63 bytes", st(tensor(), length=1 << 63)),
    ("header of 2^64 - 1 bytes", st(tensor(), length=(1 << 64) - 1)),
    ("header of no length", st(tensor(), length=0)),
    ("no JSON", st(b"hello")),
    ("JSON that is no object", st([1, 2])),
    ("JSON cut short", st(json.dumps(tensor()).encode()[:-3])),
    ("a key twice", st(b'{"kv_cache":{"dtype":"BF16","shape":[2,3,16,2,2,8],'
                       b'"data_offsets":[0,6144]},"kv_cache":{"dtype":"BF16",'
                       b'"shape":[0],"data_offsets":[6144,6144]}}')),
    ("JSON a million deep", st(b"[" * 1000000)),
    ("no tensors", st({}, b"")),
    ("end before the beginning", st(tensor(data_offsets=[NBYTES, 0]))),
    ("end after the file", st(tensor(data_offsets=[0, NBYTES + 2]))),
    ("offsets beyond 2^63", st(tensor(data_offsets=[1 << 63, (1 << 63) + 1]))),
    ("negative offsets", st(tensor(data_offsets=[-NBYTES, 0]))),
    ("fractional offsets", st(tensor(data_offsets=[0.0, float(NBYTES)]))),
    ("three offsets", st(tensor(data_offsets=[0, 1, 2]))),
    ("a shape that does not fill them", st(tensor(shape=[2, 3, 16, 2, 2, 7]))),
    ("a shape whose product overflows",
     st(tensor(shape=[1 << 32, 1 << 32, 16, 2, 2, 8]))),
    ("a negative extent", st(tensor(shape=[-2, -3, 16, 2, 2, 8]))),
    ("100,000 extents", st(tensor(shape=[1] * 100000))),
    ("a type that is none", st(tensor(dtype="BF17"))),
    ("a type of another width", st(tensor(dtype="F32"))),
    ("a type that is a number", st(tensor(dtype=16))),
    ("a hole before the data", st(tensor(data_offsets=[2, NBYTES + 2]),
                                  bytes(NBYTES + 2))),
    ("bytes after the data", st(tensor(), bytes(NBYTES + 2))),
    ("tensors that overlap",
     st({"layers.0": {"dtype": "BF16", "shape": [3, 16, 2, 2, 8],
                      "data_offsets": [0, NBYTES // 2]},
         "layers.1": {"dtype": "BF16", "shape": [3, 16, 2, 2, 8],
                      "data_offsets": [2, NBYTES // 2 + 2]}},
        bytes(NBYTES // 2 + 2))),
    ("metadata that is no text",
     st(dict(tensor(), __metadata__={"layout": 3}))),
]


# ---- manifests --------------------------------------------------------------

def changed(**other):
    return json.dumps(dict(MANIFEST, **other)).encode()


def sizes(**other):
    return changed(sizes=dict(MANIFEST["sizes"], **other))


MANIFESTS = [
    ("nothing", b""),
    ("no JSON", b"{"),
    ("no object", b"[]"),
    ("a key twice", changed()[:-1] + b', "layout": "hnd"}'),
    ("text after the end", changed() + b"x"),
    ("JSON a million deep", b'{"a":' * 1000000),
    ("an unknown layout", changed(layout="ndh")),
    ("a bare tuple", changed(layout="0,1,2,3,4")),
    ("a layout that is a number", changed(layout=7)),
    ("a layout of latent content", changed(layout="K L B S D")),
    ("an unknown type", changed(dtype="bfloat17")),
    ("a type of another width", changed(dtype="float32")),
    ("more layers than the file", sizes(layers=3)),
    ("fewer layers than the file", sizes(layers=1)),
    ("layers that do not fit 64 bits", changed()
     .replace(b'"layers": 2', b'"layers": 100000000000000000000')),
    ("layers as a fraction", sizes(layers=2.5)),
    ("layers as text", sizes(layers="2")),
    ("negative layers", sizes(layers=-2)),
    ("extents whose product overflows",
     sizes(layers=1 << 40, num_blocks=1 << 40)),
    ("no layers at all", sizes(layers=0)),
    ("a block beyond the pool",
     changed(block_table={"A": [1, 3], "B": [2]})),
    ("a block of -1", changed(block_table={"A": [1, -1], "B": [2]})),
    ("a block of 2^32", changed(block_table={"A": [1, 1 << 32], "B": [2]})),
    ("a block as text", changed(block_table={"A": [1, "2"], "B": [2]})),
    ("more tokens than blocks", changed(num_tokens={"A": 33, "B": 16})),
    ("negative tokens", changed(num_tokens={"A": -1, "B": 16})),
    ("tokens of nobody", changed(num_tokens={"A": 20, "B": 16, "C": 1})),
    ("too few layer names", changed(layer_names=["layers.0.attn"])),
    ("a null block beyond the pool", changed(null_block=3)),
    ("a rank beyond the size", changed(
        tp_size=2, tp_rank=2, total_kv_heads=4, head_start=2, head_count=2,
        replicas=1)),
    ("heads beyond those of the model", changed(
        tp_size=2, tp_rank=1, total_kv_heads=3, head_start=2, head_count=2,
        replicas=1)),
    ("a shape that is not the file's",
     changed(file_shape=[3, 2, 16, 2, 2, 8])),
]


def check_refused(name, tmp, file, data, sidecar, codes=(3,)):
    write_bytes(f"{tmp}/{file}", data)
    if sidecar is not None:
        write_bytes(f"{tmp}/{file[:file.rindex('.')]}.json", sidecar)
    out = f"{tmp}/refused.h5"
    r = kvtool("convert", f"{tmp}/{file}", out)
    tap.ok(sound(r) and r.code in codes and not os.path.exists(out), name, say(r))
    if os.path.exists(out):
        os.unlink(out)


def lies(tmp):
    manifest = json.dumps(MANIFEST).encode()
    os.mkdir(f"{tmp}/lies")
    tmp = f"{tmp}/lies"
    for name, data, codes in NPY:
        check_refused(f"npy: {name}", tmp, "in.npy", data, manifest, codes)
    for name, data in SAFETENSORS:
        check_refused(f"safetensors: {name}", tmp, "in.safetensors", data,
                      changed(file="in.safetensors"), (3, 4))
    for name, text in MANIFESTS:
        check_refused(f"manifest: {name}", tmp, "in.npy", npy(), text)
    # and the honest ones are taken, so that nothing above is refused for
    # another reason than its own
    for file, data in (("in.npy", npy()), ("in.safetensors", st(tensor()))):
        write_bytes(f"{tmp}/{file}", data)
        write_bytes(f"{tmp}/in.json", changed(file=file))
        r = kvtool("convert", "-f", f"{tmp}/{file}", f"{tmp}/honest.h5")
        tap.ok(r.code == 0, f"an honest {file} is taken", say(r))


def main(tmp):
    # compressible as caches are: like exponents, unlike mantissas
    values = oracle.round_to(np.random.default_rng(1).normal(size=SHAPE), "bfloat16")
    values[:, 0] = 0
    np.save(f"{tmp}/in.npy", values)
    write_json(f"{tmp}/in.json", MANIFEST)
    flips(tmp, values.tobytes())
    lies(tmp)


oracle.run(main)
