#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench_import.py - a folder of small files against cat of them

A HiCache folder of 64 KiB pages, warm cache.  KVT_BENCH_MIB sets its size
(1024), KVT_BENCH_DIR its place, KVT_BENCH_ROUNDS the number of rounds (3).
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

import bench_files as bench

LAYERS, SLOTS, HEADS, DIM = 4, 16, 2, 128
PAGE = 2 * LAYERS * SLOTS * HEADS * DIM * 2
PAGES = max(16, bench.MIB * 2**20 // PAGE * 16000 // 16384)
SAID = ["--from=hicache-page-first", "--dtype=bf16", f"--block-size={SLOTS}",
        f"--heads={HEADS}", f"--head-dim={DIM}"]


def make_pages(folder):
    """In a process of its own, as numpy's memory would be this one's."""
    subprocess.run([sys.executable, __file__, "--make", folder], check=True)


def write_pages(folder):
    import numpy as np

    rng = np.random.default_rng(7)
    scale = rng.lognormal(0, 0.7, (2, 1, LAYERS, HEADS, DIM)).astype(np.float32)
    for i in range(PAGES):
        x = rng.standard_normal((2, SLOTS, LAYERS, HEADS, DIM), dtype=np.float32)
        name = hashlib.sha256(b"%d" % i).hexdigest() + "_model_0_1.bin"
        with open(os.path.join(folder, name), "wb") as f:
            f.write(bench.bf16(np, x * scale).tobytes())


def main():
    place = tempfile.mkdtemp(prefix="kvt-bench-", dir=os.environ.get("KVT_BENCH_DIR"))
    folder, out = os.path.join(place, "in"), os.path.join(place, "out.h5")
    kvtool = [bench.KVTOOL]
    try:
        os.mkdir(folder)
        make_pages(folder)
        wall, cpu = bench.table(
            f"{PAGES} files of {PAGE} bytes", [
                ("cat", ["sh", "-c", f"cd {folder} && cat * >/dev/null"], None),
                ("kvtool convert --format=null",
                 kvtool + ["convert", "-q", "--format=null", *SAID, folder, out], None),
                ("kvtool describe", kvtool + ["describe", *SAID, folder], None),
                ("kvtool import --no-sync, uncompressed",
                 kvtool + ["import", "-q", "--no-sync", "--uncompressed", *SAID, "-o",
                           out, folder], out),
                ("kvtool import --no-sync",
                 kvtool + ["import", "-q", "--no-sync", *SAID, "-o", out, folder], out),
            ], "cat")
        reads = "kvtool convert --format=null"
        print(f"  kvtool reads the files at {wall['cat'] / wall[reads] * 100:.0f} % of "
              f"cat's speed, with {cpu[reads]:.2f} CPU s to its {cpu['cat']:.2f}; the "
              "rest of import is zstd and writing\n")
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        write_pages(sys.argv[2])
    else:
        main()
