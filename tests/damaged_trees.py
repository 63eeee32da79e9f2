#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
damaged_trees.py - folders of engines' stores that lie (TAP)

Whatever is wrong with sizes, names, descriptions or entries ends in status 3 (4
where it may be right elsewhere) and one sentence that names the file or the
thing, within a gigabyte of address space.
"""
import hashlib
import json
import os
import resource
import subprocess

import numpy as np

import oracle
from oracle import tap
import store_trees as st
from foreign_files import npy_bytes

DIMS = {"K": 2, "L": 3, "B": 4, "S": 8, "H": 2, "D": 4}
CELLS = np.arange(2 * 3 * 4 * 8 * 2 * 4, dtype=np.uint16).reshape(
    [DIMS[a] for a in st.AXES])
NAMES = [f"layers.{i}" for i in range(3)]
GEOMETRY = ["--dtype=bf16", "--block-size=8", "--heads=2", "--head-dim=4"]


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


def describe(*args):
    # a sanitizer reserves more than any limit
    bounded = None if "-fsanitize" in os.environ.get("KVT_CFLAGS", "") else limit
    p = subprocess.run([oracle.KVTOOL, "describe", *args], stdin=subprocess.DEVNULL,
                       capture_output=True, timeout=600, preexec_fn=bounded)
    return p.returncode, p.stderr.decode(errors="replace")


def refused(name, code, part, *args):
    got, err = describe(*args)
    tap.ok(got == code and err.count("\n") == 1 and part in err, name,
           f"exit {got}, expected {code} and '{part}'\n{err}")


# ---- what every kind of folder has ----------------------------------------------

def hicache(path):
    st.write_hicache(path, CELLS, "hicache-page-first", "m")
    return path, ["--layout=hicache-page-first", *GEOMETRY], path


def offload(path):
    config = st.offload_config([(8, NAMES)], model="m")
    st.write_offload(path, config, CELLS, "SHKD")
    return path, ["--layout=nhd", *GEOMETRY[2:]], f"{path}/{st.offload_base(config)}_r0"


def trtllm(path):
    st.write_trtllm(path, CELLS, range(4))
    return path, GEOMETRY, path


def flexkv(path):
    st.write_flexkv(path, CELLS, "LKBSHD", files=2)
    return path, ["--layout=flexkv:LAYERFIRST", "--layers=3",
                  "--set=placement=consecutive", *GEOMETRY], path


def kvbm(path):
    for l in range(3):
        st.put(f"{path}/layer{l}.bin", st.ordered(CELLS[:, l:l + 1], "BKSHD"))
    st.put(path + ".json", json.dumps(st.kvbm_descriptor(
        DIMS, ("BlockIsFirstDim", "OperationalNHD"))).encode())
    return path, ["--from=kvbm", f"--manifest={path}.json", "--dtype=bf16"], path


def layers(path):
    for l in range(3):
        st.put(f"{path}/layer_{l}.npy", npy_bytes(CELLS[:, l]))
    return path, ["--layout=kv-first-nhd", "--dtype=bf16"], path


def damage_files(make):
    """One file of the folder, in all ways; the folder is made anew each time."""
    def cut(f, raw):
        st.put(f, raw[:-1])

    def longer(f, raw):
        st.put(f, raw + b"\0")

    def empty(f, _):
        st.put(f, b"")

    def doubled(f, raw):
        st.put(f, raw + raw)

    def link(f, _):
        os.rename(f, f + ".tmp")
        os.symlink(os.path.basename(f) + ".tmp", f)

    def fifo(f, _):
        os.unlink(f)
        os.mkfifo(f)

    def stranger(f, raw):
        st.put(os.path.join(os.path.dirname(f), "README"), raw)

    for change in (cut, longer, empty, doubled, link, fifo, stranger):
        for last in (False, True):
            with oracle.workdir() as work:
                path, args, folder = make(os.path.join(work, "in"))
                if change is cut and not last:
                    code, err = describe(*args, path)
                    tap.ok(code == 0, f"{make.__name__}: sound", err)
                files = sorted(n for n in st.tree(folder))
                f = os.path.join(folder, files[-1 if last else 0])
                change(f, st.get(f))
                refused(f"{make.__name__}: {'last' if last else 'first'} file: "
                        f"{change.__name__}", 3, "in", *args, path)


# ---- numbers that lie -----------------------------------------------------------

WRONG = [0, -1, 2**31, 2**63 - 1, 2**64, 1.5, "7", [], {}, True]


def lying_offload():
    base = st.offload_config([(8, NAMES)], model="m")
    changes = [({key: value}, f"{key} {value!r}") for value in WRONG
               for key in ("gpu_blocks_per_file", "tp_size", "pp_size", "dcp_size",
                           "pcp_size")]
    changes += [({"kv_cache_groups": g}, f"groups {str(g)[:40]}") for g in (
        [{}], [7], [{"block_size": 8}], [{"layer_names": NAMES}],
        [{"block_size": 2**40, "layer_names": NAMES}],
        [{"block_size": 8, "layer_names": [1, 2]}],
        [{"block_size": 8, "layer_names": NAMES * 999}],
        [{"block_size": 8, "layer_names": NAMES}] * 33)]
    changes += [({"model_name": None}, "no model"), ({"model_name": 1}, "model 1"),
                ({"canonical_format": "v1-hnd"}, "another family")]
    for change, name in changes:
        config = dict(base, **change)
        with oracle.workdir() as work:
            st.write_offload(work, dict(base), CELLS, "SHKD")
            old = os.path.join(work, st.offload_base(base))
            # the folder gets the digest that the lie has
            canonical = json.dumps(config, sort_keys=True, separators=(",", ":"))
            new = f"{work}/m_" + hashlib.sha256(canonical.encode()).hexdigest()[:12]
            os.rename(old, new)
            os.rename(old + "_r0", new + "_r0")
            st.put(new + "/config.json", json.dumps(config, indent=2).encode())
            code, err = describe("--layout=nhd", *GEOMETRY[2:], work)
            tap.ok(code in (3, 4) and err.count("\n") == 1, f"offload: {name}",
                   f"exit {code}\n{err}")


def lying_kvbm():
    base = st.kvbm_descriptor(DIMS, "OperationalNHD")
    raw = st.ordered(CELLS, "BLKSHD")
    changes = [("layout_config", key, value) for value in WRONG
               for key in ("num_blocks", "num_layers", "outer_dim", "page_size",
                           "inner_dim", "dtype_width_bytes", "num_heads", "alignment")]
    changes += [(None, "version", v) for v in (0, 2, -1, "1", None, 2**40)]
    changes += [(None, "layout_type_details", v) for v in (
        None, {}, [], {"Other": {}}, {"FullyContiguous": {}, "LayerSeparate": {}},
        {"FullyContiguous": {"kv_block_layout": "Sideways"}},
        {"FullyContiguous": {"kv_block_layout": {"Custom": ["Page"] * 4}}},
        {"FullyContiguous": {"kv_block_layout": {"Custom": ["Page", "Head"]}}},
        {"LayerSeparate": {"block_dim": "Third", "kv_block_layout": "OperationalNHD"}},
        {"LayerSeparate": {"block_dim": "BlockIsFirstDim",
                           "kv_block_layout": "UniversalTP"}})]
    for where, key, value in changes:
        if key == "alignment" and value == 2**31:
            continue            # an alignment that says nothing of this file
        said = json.loads(json.dumps(base))
        (said[where] if where else said)[key] = value
        with oracle.workdir() as work:
            st.put(work + "/t", raw)
            st.put(work + "/d.json", json.dumps(said).encode())
            code, err = describe("--from=kvbm", f"--manifest={work}/d.json",
                                 "--dtype=bf16", work + "/t")
            tap.ok(code in (3, 4) and err.count("\n") == 1,
                   f"kvbm: {key} {str(value)[:50]}", f"exit {code}\n{err}")
    with oracle.workdir() as work:
        st.put(work + "/t", raw)
        text = json.dumps(base).encode()
        bad = 0
        for n in range(0, len(text), 7):
            st.put(work + "/d.json", text[:n])
            code, err = describe("--from=kvbm", f"--manifest={work}/d.json",
                                 "--dtype=bf16", work + "/t")
            bad += code != 3 or err.count("\n") != 1
        tap.equal(bad, 0, "kvbm: a descriptor cut anywhere")


# ---- names and options ----------------------------------------------------------

def odd_names():
    with oracle.workdir() as work:
        path, args, _ = hicache(work + "/in")
        deep = path + "/a" * 14
        st.put(deep + "/x.bin", b"")
        refused("a deep folder", 3, "more levels", *args, "--from=hicache", path)
    with oracle.workdir() as work:
        path, args, _ = hicache(work + "/in")
        refused("two readings of one geometry", 3, "give --layers, --heads, --head-dim",
                "--layout=hicache-page-first", "--dtype=bf16", "--block-size=8", path)
        refused("a fact of another format", 2, "--set of format hicache: there is no key", *args,
                "--set=placement=interleaved", path)
        refused("a rank that is not there", 3, "holds no rank '3_4'", *args,
                "--set=rank=3_4", path)
        refused("a layout HiCache has not", 3, "no pages in layout", *GEOMETRY,
                "--layout=nhd", path)
        refused("more blocks than files", 3, "--blocks is 5, but group g0 has 4", *args, "--blocks=5",
                path)


def main():
    for make in (hicache, offload, trtllm, flexkv, kvbm, layers):
        damage_files(make)
    lying_offload()
    lying_kvbm()
    odd_names()


oracle.run(main)
