#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench_start.py - how long a program takes that has next to nothing to do

Each command KVT_BENCH_STARTS times (1000), in turns, beside samtools and h5dump where they
are installed: the least and the median of the wall time and the median of the CPU time, in
ms, and the libraries loaded.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("KVT_BUILD", os.path.join(HERE, "../build"))
KVTOOL = os.environ.get("KVTOOL", os.path.join(BUILD, "kvtool"))
OPENING = os.path.join(BUILD, "kvtool_opening")
STARTS = int(os.environ.get("KVT_BENCH_STARTS", "1000"))
QUIET = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
LAYOUT = "--layout=kv-first-nhd"


def start(command):
    """Wall and CPU seconds; no shell, and no copy of this process."""
    begin = time.perf_counter()
    child = os.posix_spawn(command[0], command, os.environ, file_actions=QUIET)
    _, status, used = os.wait4(child, 0)
    wall = time.perf_counter() - begin
    if status:
        sys.exit(f"{' '.join(command)}: status {os.waitstatus_to_exitcode(status)}")
    return wall, used.ru_utime + used.ru_stime


def libraries(command):
    run = subprocess.run(command, env=dict(os.environ, LD_DEBUG="files"), check=True,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return sum(b"calling init: " in line and b"ld-linux" not in line
               for line in run.stderr.splitlines())


def commands(npy, snapshot):
    subprocess.run([KVTOOL, "convert", "-q", LAYOUT, npy, snapshot], check=True)
    yield "true", [shutil.which("true")]
    yield "kvtool --version", [KVTOOL, "--version"]
    yield "kvtool describe, npy", [KVTOOL, "describe", LAYOUT, npy]
    yield "kvtool describe, snapshot", [KVTOOL, "describe", snapshot]
    if os.path.exists(OPENING):
        yield "HDF5 opened: --version", [OPENING, "--version"]
        yield "HDF5 opened: describe, snapshot", [OPENING, "describe", snapshot]
    for name, *words in (("samtools", "--version"), ("h5dump", "-H", snapshot)):
        if shutil.which(name):
            yield f"{name} {words[0]}", [shutil.which(name), *words]


def main():
    place = tempfile.mkdtemp(prefix="kvt-bench-", dir=os.environ.get("KVT_BENCH_DIR"))
    try:
        npy = os.path.join(place, "kv.npy")
        np.save(npy, np.random.default_rng(7).random((2, 2, 8, 16, 4, 8)).astype(np.float16))
        all_of_them = list(commands(npy, os.path.join(place, "kv.h5")))
        times = {name: [] for name, _ in all_of_them}
        for _ in range(STARTS):
            for name, command in all_of_them:
                times[name].append(start(command))
        print(f"{'':34}{'least':>8}{'median':>8}{'CPU':>8}{'libraries':>11}")
        for name, command in all_of_them:
            wall, cpu = (sorted(1000 * t for t in column) for column in zip(*times[name]))
            middle = len(wall) // 2
            print(f"{name:34}{wall[0]:8.2f}{wall[middle]:8.2f}{cpu[middle]:8.2f}"
                  f"{libraries(command):11}")
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
