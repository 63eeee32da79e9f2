#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
test_interop.py - other HDF5 programs read kvtool's snapshots, and it theirs

h5py, h5dump and h5repack use the filter plugin of the build.  What an element
should be comes from the dump that was converted; where it is in a dataset,
from the labels of its dimensions alone.  TAP on stdout.
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import oracle                                               # noqa: E402

# HDF5 looks at this once, when it is loaded.
PLUGINS = os.path.join(os.path.dirname(oracle.KVTOOL), "plugin")
os.environ["HDF5_PLUGIN_PATH"] = PLUGINS

import numpy as np                                          # noqa: E402
try:
    import h5py                                             # noqa: E402
except ImportError:
    print("1..0 # SKIP this needs the package python3-h5py")
    sys.exit(0)

tap = oracle.Tap()

DUMPS = (
    "s260k/paged_bs16/packed_nhd.bf16", "s260k/paged_bs16/packed_nhd.fp16",
    "s260k/paged_bs16/packed_nhd.fp32", "s260k/paged_bs16/blocks_first_hnd.bf16",
    "s260k/paged_bs16/crosslayer_blocks_first.bf16",
    "s260k/paged_bs16/cpu_vec.bf16", "gqa64/paged_bs16/packed_hnd.bf16",
    "gqa64/paged_bs16/rocm_x.bf16", "mla144/paged_bs16/mla_lbsc.bf16",
)

# What an axis is called, whole or in parts, in the order of Dump.cells.
AXES = (("kv",), ("layer",), ("block",), ("state", "tap"), ("head",),
        ("dim", "content", "channel"))


def labels_of(data):
    return [a.decode() if isinstance(a, bytes) else a
            for a in data.attrs["DIMENSION_LABELS"]]


def bits_of(data):
    """The elements as they are: no conversion to what h5py would show."""
    out = np.empty(data.shape, f"u{data.id.get_type().get_size()}")
    data.id.read(h5py.h5s.ALL, h5py.h5s.ALL, out, mtype=data.id.get_type())
    return out


def semantic(array, labels):
    """[K, L, B, S, H, D], whatever order the labels say."""
    order, shape = [], []
    for names in AXES:
        parts = [i for name in names for i in
                 ([labels.index(name)] if name in labels else
                  [labels.index(name + end) for end in ("_outer", "_inner")
                   if name + end in labels])]
        order += parts
        shape.append(int(np.prod([array.shape[i] for i in parts])))
    assert sorted(order) == list(range(len(labels))), labels
    return array.transpose(order).reshape(shape)


def cells_of(path):
    with h5py.File(path, "r") as f:
        group = f["groups/g0"]
        names = ["data"] if "data" in group else ["data_k", "data_v"]
        planes = [semantic(bits_of(group[n]), labels_of(group[n]))
                  for n in names]
    return np.concatenate(planes)


def run(*args):
    p = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True,
                       timeout=120, text=True)
    return oracle.Result(args, p.returncode, p.stdout, p.stderr)


def digest(path):
    r = oracle.kvtool("digest", path)
    return r.out.split()[0] if r.code == 0 else r


# ---- h5py -------------------------------------------------------------------

def check_h5py(dump, snap):
    tap.ok(np.array_equal(cells_of(snap), dump.cells),
           f"{dump.name}: h5py reads every bit")
    with h5py.File(snap, "r") as f:
        group = f["groups/g0"]
        data = group["data" if "data" in group else "data_v"]
        shown, bits = data[...], bits_of(data)
        dims = [d.label for d in data.dims]
        kind = group.attrs["dtype"].decode()
        told = f.attrs["format"].decode()
    values = {"bfloat16": lambda: (bits.astype("u4") << 16).view("f4"),
              "float16": lambda: bits.view("f2"),
              "float32": lambda: bits.view("f4")}[dump.dtype]()
    tap.ok(np.array_equal(shown, values, equal_nan=True),
           f"{dump.name}: h5py shows the values")
    tap.ok(told == "kvtool-kv-snapshot" and kind == dump.dtype and
           len(set(dims)) == shown.ndim and "layer" in dims,
           f"{dump.name}: h5py shows what it is", (told, kind, dims))


def check_flipped_bit(snap, bad):
    shutil.copy(snap, bad)
    with h5py.File(bad, "r") as f:
        name = next(n for n in ("data", "data_k") if n in f["groups/g0"])
        data = f["groups/g0"][name]
        chunk = data.id.get_chunk_info(data.id.get_num_chunks() // 2)
    found = 0
    for at in (0, chunk.size // 2, chunk.size - 1):
        flip(bad, chunk.byte_offset + at)
        try:
            with h5py.File(bad, "r") as f:
                f["groups/g0"][name][...]
        except OSError:
            found += 1
        flip(bad, chunk.byte_offset + at)
    tap.equal(found, 3, "a flipped bit is an error in h5py, not data")
    with h5py.File(bad, "r") as f:
        tap.ok(f["groups/g0"][name][...].size, "and only the flipped bit was")


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x04]))


def check_without_plugin(snap):
    """That the points above depend on the plugin and on nothing else."""
    code = ("import h5py, sys\n"
            "with h5py.File(sys.argv[1], 'r') as f:\n"
            "    g = f['groups/g0']\n"
            "    try:\n"
            "        g[[n for n in g if n.startswith('data')][0]][...]\n"
            "    except OSError:\n"
            "        print('refused')\n")
    p = subprocess.run([sys.executable, "-c", code, snap], timeout=120,
                       env=dict(os.environ, HDF5_PLUGIN_PATH="/nonexistent"),
                       capture_output=True, text=True)
    tap.equal(p.stdout.strip(), "refused",
              "without the plugin h5py reads no data")


# ---- the tools of HDF5 ------------------------------------------------------

def have(tool):
    if shutil.which(tool):
        return True
    tap.ok(True, f"{tool} # SKIP this needs the package hdf5-tools")
    return False


def check_h5dump(dump, snap):
    """Its exit status says nothing, so the numbers are compared."""
    with h5py.File(snap, "r") as f:
        data = f["groups/g0/data"]
        last = [n - 1 for n in data.shape[:-1]] + [0]
        count = [1] * (data.ndim - 1) + [data.shape[-1]]
        want = data[tuple(last[:-1])]
    r = run("h5dump", "-y", "-w", "0", "-m", "%.9g", "-d", "/groups/g0/data",
            "-s", ",".join(map(str, last)), "-c", ",".join(map(str, count)),
            snap)
    body = re.search(r"DATA \{(.*?)\}", r.out, re.S)
    got = np.array([float(x) for x in re.findall(r"[-+.\w]+", body.group(1))]
                   if body else [], "f4")
    tap.ok(np.array_equal(got, want.astype("f4")),
           f"{dump.name}: h5dump prints the values", r)


def check_h5repack(dump, snap, tmp):
    packed = f"{tmp}/repacked.h5"
    ways = {"as it is": [], "without filters": ["-f", "NONE"],
            "with zstd at level 7": ["-f", "UD=32015,0,1,7"],
            "with shuffle and zstd": ["-f", "SHUF", "-f", "UD=32015,0,1,3"]}
    for how, options in ways.items():
        if os.path.exists(packed):
            os.remove(packed)
        r = run("h5repack", *options, snap, packed)
        tap.ok(r.code == 0 and np.array_equal(cells_of(packed), dump.cells),
               f"{dump.name}: h5repack {how}, h5py reads the same", r)
        if how != "as it is":
            # filters on its small tables, which kvtool refuses
            continue
        tap.equal(digest(packed), digest(snap),
                  f"{dump.name}: h5repack {how}, kvtool reads the same")


def check_h5repack_of_data(dump, tmp):
    """Another program's zstd chunks: of an uncompressed snapshot's data."""
    plain, packed = f"{tmp}/plain.h5", f"{tmp}/packed.h5"
    r = oracle.kvtool("convert", "-q", "--uncompressed", dump.path, plain)
    tap.ok(r.code == 0 and np.array_equal(cells_of(plain), dump.cells),
           f"{dump.name}: h5py reads an uncompressed snapshot", r)
    with h5py.File(plain, "r") as f:
        chunk = "x".join(map(str, (1, 1) + f["groups/g0/data"].shape[2:]))
    r = run("h5repack", "-l", f"groups/g0/data:CHUNK={chunk}", "-f",
            "groups/g0/data:SHUF", "-f", "groups/g0/data:UD=32015,0,1,3",
            "-f", "groups/g0/data:FLET", plain, packed)
    tap.equal(digest(packed), digest(plain),
              f"{dump.name}: kvtool reads chunks that h5repack made")


def check_half_blocks(dump, tmp):
    """Another program's chunks of half a block, and no cells: kvtool makes them."""
    plain, halves, out = f"{tmp}/p.h5", f"{tmp}/halves.h5", f"{tmp}/out.h5"
    r = oracle.kvtool("convert", "-q", "--uncompressed", dump.path, plain)
    with h5py.File(plain, "r+") as f:
        oracle.unprove(f)
        shape = f["groups/g0/data"].shape
        del f["groups/g0/content_digest"]
    chunk = "x".join(map(str, (1, 1, shape[2] // 2) + shape[3:]))
    run("h5repack", "-l", f"groups/g0/data:CHUNK={chunk}", "-f",
        "groups/g0/data:UD=32015,0,1,3", plain, halves)
    r = oracle.kvtool("convert", "-q", halves, out)
    tap.ok(r.code == 0 and np.array_equal(cells_of(out), dump.cells),
           f"{dump.name}: chunks of half a block are converted", r)
    r = oracle.kvtool("describe", "--verify", out)
    tap.ok(r.code == 0, f"{dump.name}: and the cells made of them are right", r)


def main():
    oracle.need_program_and_data()
    with oracle.workdir() as tmp:
        snap = f"{tmp}/snap.h5"
        for name in DUMPS:
            model = name.split("/")[0]
            dump = oracle.Dump(model, f"{oracle.DATA}/{name}.json")
            r = oracle.kvtool("convert", "-q", "--force", dump.path, snap)
            if not tap.ok(r.code == 0, f"{name}: converted", r):
                continue
            check_h5py(dump, snap)
        dump = oracle.Dump("s260k", f"{oracle.DATA}/{DUMPS[0]}.json")
        oracle.kvtool("convert", "-q", "--force", dump.path, snap)
        check_flipped_bit(snap, f"{tmp}/bad.h5")
        check_without_plugin(snap)
        if have("h5dump"):
            check_h5dump(dump, snap)
        if have("h5repack"):
            check_h5repack(dump, snap, tmp)
            check_h5repack_of_data(dump, tmp)
            check_half_blocks(dump, tmp)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
