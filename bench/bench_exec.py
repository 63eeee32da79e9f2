#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench_exec.py - transfer-sim exec of one request between layouts and TP sizes

Writes a dump of KVT_BENCH_MIB (1024) in KVT_BENCH_DIR, then carries transfers out.
Seconds are the program's own: reading, moving and writing, without sync; peak
memory is the kernel's accounting of the whole command, verification included.
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("KVT_BUILD", os.path.join(ROOT, "build"))
KVTOOL = os.path.join(os.path.abspath(BUILD), "kvtool")
MIB = int(os.environ.get("KVT_BENCH_MIB", "1024"))
LAYERS, SLOTS, HEADS, DIM = 32, 16, 8, 128
BLOCKS = max(8, MIB * 2**20 // (LAYERS * SLOTS * HEADS * 2 * DIM * 2))


def make_dump(path):
    """An npy of noise with one request that has every block."""
    shape = (LAYERS, BLOCKS, SLOTS, HEADS, 2, DIM)
    head = str({"descr": "<u2", "fortran_order": False, "shape": shape})
    head = head.ljust(117) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little"))
        f.write(head.encode())
        for _ in range(LAYERS):
            f.write(os.urandom(BLOCKS * SLOTS * HEADS * 2 * DIM * 2))
    with open(path[:-4] + ".json", "w") as f:
        json.dump({
            "file": os.path.basename(path), "layout": "nhd",
            "dtype": "bfloat16", "npy_dtype": "<u2",
            "sizes": {"layers": LAYERS, "num_blocks": BLOCKS,
                      "block_size": SLOTS, "num_kv_heads": HEADS,
                      "head_dim": DIM},
            "block_table": {"A": list(range(BLOCKS))},
            "num_tokens": {"A": BLOCKS * SLOTS}}, f)


def measure(source, folder, dst, threads):
    command = [KVTOOL, "transfer-sim", "exec", "--json", "-q", "-f",
               "--no-sync", f"--threads={threads}", f"--dst={dst}",
               "-o", f"{folder}/out.%r.npy", source]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"bench: {' '.join(command)}: status {status}")
    done = json.loads(out)
    for rank in range(done["dst_ranks"]):
        for ending in ("npy", "json"):
            os.unlink(f"{folder}/out.{rank}.{ending}")
    return done["bytes"], done["seconds"], usage.ru_maxrss / 1024


def main():
    print(f"exec of {MIB} MiB, nhd, TP 1, blocks of {SLOTS}; GB/s of data moved")
    with tempfile.TemporaryDirectory(
            dir=os.environ.get("KVT_BENCH_DIR")) as folder:
        source = f"{folder}/source.npy"
        make_dump(source)
        for dst in ("layout=nhd,ids=contig", "layout=hnd,ids=random:1",
                    "layout=hnd,tp=4,block-size=64,ids=scatter"):
            for threads in 1, 2:
                nbytes, seconds, peak = measure(source, folder, dst, threads)
                print(f"  {dst:42} {threads} threads {seconds:7.2f} s "
                      f"{nbytes / seconds / 1e9:6.2f} GB/s, peak {peak:4.0f} MiB")


if __name__ == "__main__":
    main()
