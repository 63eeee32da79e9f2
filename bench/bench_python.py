#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
bench_python.py - the keys of one layer of one request: the module against h5py

A snapshot of KVT_BENCH_MIB (1024) MiB, and a request that has half of its blocks, in the
order of the pool or scattered.  Each reads in a process of its own, warm cache, in turns;
h5py in the quickest of three ways: the whole layer, the request's blocks of it, and, by
its low level, the keys of the layer without making float32 of them.  Import
and opening are in the time of the first read, others are the quickest of the rest.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "python")]
BUILD = os.path.abspath(os.environ.get("KVT_BUILD", os.path.join(ROOT, "build")))
os.environ.setdefault("KVTOOL_LIBRARY", os.path.join(BUILD, "libkvt.so.0"))
os.environ.setdefault("HDF5_PLUGIN_PATH", os.path.join(BUILD, "plugin"))
ROUNDS = int(os.environ.get("KVT_BENCH_ROUNDS", "3"))
REPEAT = 5

CHILD = """
import json, resource, sys, time
start = time.perf_counter()
import numpy as np
how, path, layer, blocks = sys.argv[1], sys.argv[2], 7, json.loads(sys.argv[3])
if how == "kvtool":
    import kvtool
    d = kvtool.open(path)
    read = lambda: d.read(layer=layer, request="r", kv="k", bits=True)
else:
    import h5py
    data = h5py.File(path)["groups/g0/data"]
    order = np.argsort(blocks)
    back = np.argsort(order)
    if how == "h5py, bits by its low level":
        def read():
            n = data.shape
            out = np.empty((n[1], n[2], n[3], n[5]), np.uint16)
            space = data.id.get_space()
            space.select_hyperslab((layer, 0, 0, 0, 0, 0), (1,) + n[1:4] + (1, n[5]))
            data.id.read(h5py.h5s.create_simple(out.shape), space, out,
                         mtype=data.id.get_type())
            return out[blocks].reshape(-1, HEADS, DIM)
    elif how == "h5py, whole layer":
        read = lambda: data[layer][blocks][:, :, :, 0].reshape(-1, HEADS, DIM)
    else:
        some = np.array(blocks)[order]
        read = lambda: data[layer, some, :, :, 0][back].reshape(-1, HEADS, DIM)
def timed():
    begin = time.perf_counter()
    x = read()
    return time.perf_counter() - begin, x
_, x = timed()
first = time.perf_counter() - start
rest = min(timed()[0] for _ in range(REPEAT))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
if x.dtype == np.uint16:        # h5py makes float32 of bfloat16, which numpy has not
    x = (x.astype(np.uint32) << 16).view(np.float32)
weight = np.arange(1, x.size + 1) % 1009
print(json.dumps([first, rest, peak, float((x.ravel().astype(float) * weight).sum()),
                  list(x.shape)]))
"""


def child(how, path, blocks):
    import bench_files
    code = CHILD.replace("HEADS", str(bench_files.HEADS)).replace(
        "DIM", str(bench_files.DIM)).replace("REPEAT", str(REPEAT))
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")}
    p = subprocess.run([sys.executable, "-c", code, how, path, json.dumps(blocks)],
                       check=True, capture_output=True, text=True, env=env)
    return json.loads(p.stdout)


def snapshot(folder, blocks):
    """The cache of the other bench, with one request, as a snapshot."""
    import bench_files as b
    npy = os.path.join(folder, "a.npy")
    out = os.path.join(folder, "a.h5")
    b.make_cache(npy)
    with open(npy[:-4] + ".json", "w", encoding="ascii") as f:
        json.dump({"layout": "LBSHKD", "dtype": "bfloat16",
                   "sizes": {"layers": b.LAYERS, "num_blocks": b.BLOCKS,
                             "block_size": b.SLOTS, "num_kv_heads": b.HEADS,
                             "head_dim": b.DIM},
                   "block_table": {"r": blocks},
                   "num_tokens": {"r": len(blocks) * b.SLOTS}}, f)
    subprocess.run([b.KVTOOL, "convert", "-q", "--no-sync", npy, out], check=True)
    os.unlink(npy)
    return out


def main():
    import bench_files as b
    half = b.BLOCKS // 2
    print(f"{b.MIB} MiB snapshot, keys of a layer of {half * b.SLOTS} tokens, "
          f"median of {ROUNDS} rounds")
    for name, blocks in (("blocks in order", list(range(half))),
                         ("blocks scattered", random.Random(3).sample(range(b.BLOCKS),
                                                                      half))):
        with tempfile.TemporaryDirectory(dir=os.environ.get("KVT_BENCH_DIR")) as folder:
            path = snapshot(folder, blocks)
            ways = ["kvtool", "h5py, whole layer", "h5py, its blocks",
                    "h5py, bits by its low level"]
            seen = {w: [] for w in ways}
            for _ in range(ROUNDS):
                for way in ways:
                    seen[way].append(child(way, path, blocks))
            if len({(r[3], tuple(r[4])) for runs in seen.values() for r in runs}) != 1:
                sys.exit(f"bench: they read different things: {seen}")
        print(f"  {name:32} {'first s':>8} {'then s':>8} {'MiB':>6}")
        best = {}
        for way, runs in seen.items():
            first, rest, peak = (statistics.median(r[i] for r in runs) for i in range(3))
            best[way] = rest
            print(f"    {way:30} {first:8.3f} {rest:8.4f} {peak:6.0f}")
        peer = min(best[w] for w in ways[1:])
        print(f"    kvtool takes {best['kvtool'] / peer:.2f} times the quickest h5py\n")


if __name__ == "__main__":
    main()
