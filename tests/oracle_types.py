#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_types.py - a type that the library has a row of is one everywhere

What lists types beside the table of lib/layout/dtype.c is compared with it, and a dump of
each type goes through every format that takes all of them, and through Python.
"""
import ast
import os
import re
import subprocess
import sys
import types

import numpy as np

from foreign_files import Tensor, torch_bytes
from oracle import ROOT, kvtool, read_text, run, tap, write_bytes
import kvtool as kv
from kvtool import _arrays, _native

#: of formats and specs, which are no element types of dumps
OTHERS = {"F4", "F6_E2M3", "F6_E3M2", "float4_e2m1", "uint1", "uint2", "uint3", "uint4", "uint5",
          "uint6", "fp8", "int4", "float8", "fp8_inc", "torch.storage", "torch.serialization"}
LITERAL = re.compile(r'"((?:b?float|u?int|fp|bf|f|i|u)[0-9]+(?:_[a-z0-9]+)?|bool|half'
                     r'|double|torch\.[a-z0-9]+)"', re.I)


def table():
    """All rows, as dictionaries."""
    out, i = [], 0
    while (row := _native.lib.kvt_dtype_at(i)):
        out.append({name: getattr(row.contents, name) for name, _ in _native.Dtype._fields_})
        out[-1] |= {k: v.decode() for k, v in out[-1].items() if isinstance(v, bytes)}
        i += 1
    return out


# ---- other lists -------------------------------------------------------------------

def check_lists(rows):
    told = [line.split()[:4] for line in kvtool("help", "dtypes").out.splitlines()[1:]]
    tap.equal(told, [[r["name"], str(r["elem"]), r["safetensors"] or "-", r["npy"]]
                     for r in rows], "help dtypes prints the table")
    names = next(ast.literal_eval(node.value) for node in
                 ast.parse(read_text(os.path.join(ROOT,
                                                  "contrib/kvtool_capture.py"))).body
                 if isinstance(node, ast.Assign) and node.targets[0].id == "_TYPES")
    tap.equal(dict(sorted(names.items())), dict(sorted(
        (r["torch"], r["safetensors"]) for r in rows if r["torch"] and r["safetensors"])),
              "contrib/kvtool_capture.py captures every type of torch")
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "lib", "formats", "cli", "print", "sim"],
                           check=True, capture_output=True, text=True).stdout.split()
    strange = set()
    for name in files:
        if name.endswith((".c", ".h")) and os.path.exists(os.path.join(ROOT, name)):
            strange |= {(name, word) for word in
                        LITERAL.findall(read_text(os.path.join(ROOT, name)))
                        if word not in OTHERS and
                        not _native.lib.kvt_dtype_find(word.encode())}
    tap.ok(files and not strange, "a type that the sources name is in the table",
           sorted(strange))


# ---- one type ----------------------------------------------------------------------

def files_of(row, bits):
    """(format, file) of the same cache: kvtool writes two, numpy and torch one each."""
    raw = write_bytes("r.bin", bits.tobytes())
    size = dict(zip(("blocks", "block-size", "heads"), bits.shape))
    told = [f"--{k}={n}" for k, n in size.items()] + [
        "--layout=nhd", "--layers=1", f"--head-dim={bits.shape[3] // 2}",
        f"--dtype={row['name']}"]
    for ending in ("safetensors", "h5"):
        made = kvtool("convert", "-f", "--no-sync", *told, raw, f"c.{ending}")
        if made.code:
            yield ending, str(made)
        else:
            yield ending, kv.open(f"c.{ending}")
    np.save("c.npy", bits[None].view(np.dtype(row["npy"])))
    yield "npy", kv.open("c.npy", layout="nhd", dtype=row["name"])
    if row["torch"]:
        write_bytes("c.pt", torch_bytes({"layers.0": Tensor(None, bits, dtype=row["torch"])}))
        yield "torch", kv.open("c.pt", layout="nhd", heads=bits.shape[2],
                               block_size=bits.shape[1], blocks=bits.shape[0],
                               head_dim=bits.shape[3] // 2)


def check_files(row, rng):
    bits = rng.integers(0, 255, (3, 4, 2, 6, row["elem"]), dtype=np.uint8)
    bits = bits.view(f"u{row['elem']}")[..., 0]             # B S H C
    want = bits.reshape(3, 4, 2, 2, 3).transpose(3, 0, 1, 2, 4)[:, None]
    for what, dump in files_of(row, bits):
        good = not isinstance(dump, str) and dump.groups[0].dtype == row["name"] and \
            np.array_equal(dump.read(blocks=slice(None), bits=True), want)
        tap.ok(good, f"{row['name']}: read from {what}", dump if isinstance(dump, str) else
               (dump.groups[0].dtype, dump.read(blocks=slice(None), bits=True), want))


def check_python(row):
    """The array has the type that numpy or ml_dtypes has; torch is asked for its own."""
    bits = np.arange(48, dtype=f"u{row['elem']}").reshape(1, 2, 3, 2, 4)
    d = kv.from_tensors([bits], layout="KBSHD", dtype=row["name"])
    asked = []

    class Module(types.ModuleType):
        """Has every name, and keeps which was asked for."""
        def __getattr__(self, name):
            asked.append(name)
            return bits.dtype

    sys.modules["ml_dtypes"] = Module("ml_dtypes")
    try:
        got = d.read(blocks=slice(None))
    finally:
        del sys.modules["ml_dtypes"]
    own = np.dtype(row["npy"])
    tap.ok(got.tobytes() == bits.tobytes() and
           (asked == [row["ml_dtypes"]] if row["ml_dtypes"] else
            not asked and got.dtype == own), f"{row['name']}: an array", (asked, got.dtype))
    for name in filter(None, (row["torch"], row["ml_dtypes"], *filter(
            None, (a and a.decode() for a in row["alias"])))):
        tap.ok(_arrays.name_of(name) == row["name"] and
               _arrays.name_of(f"torch.{name}") == row["name"] and
               kv.from_tensors([bits], layout="KBSHD", dtype=name).groups[0].dtype ==
               row["name"], f"{row['name']}: {name} is that")
    data = d.read_bytes(blocks=slice(None))
    tap.ok(data[0] == bits.tobytes() and data[2] == row["name"],
           f"{row['name']}: bytes", data[1:])


def main(folder):
    rows, rng, before = table(), np.random.default_rng(5), os.getcwd()
    check_lists(rows)
    os.chdir(folder)
    for row in rows:
        check_files(row, rng)
        check_python(row)
    os.chdir(before)


run(main)
