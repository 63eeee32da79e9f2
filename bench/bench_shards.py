#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
bench_shards.py - one command by several processes: shards, kvtool-mpi, and the model

KVT_BENCH_FILES (8) dumps of KVT_BENCH_MIB (512) MiB each with a request, in KVT_BENCH_DIR,
which for the rates of kvtool(1) should be memory.  Each row is the least of
KVT_BENCH_ROUNDS (3): the plain command with two threads; n shards of a thread, two at a
time, and kvtool reduce; kvtool-mpi with n ranks, where it was built; what kvtool size
--plan says.  All must print the same.
"""
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KVTOOL = os.path.abspath(os.environ.get("KVTOOL", os.path.join(ROOT, "build/kvtool")))
MPI = os.path.join(os.path.dirname(KVTOOL), "kvtool-mpi")
FILES = int(os.environ.get("KVT_BENCH_FILES", "8"))
MIB = int(os.environ.get("KVT_BENCH_MIB", "512"))
ROUNDS = int(os.environ.get("KVT_BENCH_ROUNDS", "3"))
JOBS = [("digest", ["digest"]), ("fsck", ["fsck", "--json"])]
BLOCK = 4 * 16 * 8 * 2 * 128 * 2        # bytes: layers, tokens, heads, K and V, dim, bf16


def make_dumps(folder):
    names = []
    blocks = (MIB << 20) // BLOCK
    for i in range(FILES):
        names.append(os.path.join(folder, f"{i}.bin"))
        with open(names[-1], "wb") as f:
            for _ in range(MIB):
                f.write(os.urandom(1 << 20))
        with open(names[-1][:-4] + ".json", "w", encoding="ascii") as f:
            json.dump({"file": f"{i}.bin", "layout": "nhd", "dtype": "bfloat16",
                       "sizes": {"layers": 4, "num_blocks": blocks, "block_size": 16,
                                 "num_kv_heads": 8, "head_dim": 128},
                       "block_table": {"A": list(range(blocks))},
                       "num_tokens": {"A": 16 * blocks}}, f)
    return names


def run(*args):
    return subprocess.run(args, capture_output=True, check=False).stdout


def processor():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def shards(command, names, n, folder):
    """Two at a time, as two processors have it; then all are joined."""
    shutil.rmtree(folder, ignore_errors=True)
    for first in range(0, n, 2):
        started = [subprocess.Popen(
            [KVTOOL, *command, "--quiet", "--threads=1", f"--shard={i}/{n}",
             f"--shard-dir={folder}", *names], stdout=subprocess.DEVNULL)
            for i in range(first, min(first + 2, n))]
        for p in started:
            p.wait()
    return run(KVTOOL, "reduce", folder)


def ranks(command, names, n):
    return run("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(n), MPI,
               *command, *names)


def row(what, plain, act, model=""):
    """The least of the rounds, and its processor time; the output of each is right."""
    best = None
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), processor()
        out = act()
        took = time.perf_counter() - wall, processor() - cpu
        best = min(best or took, took)
        if plain is not None and out != plain[0]:
            sys.exit(f"{what}: another output than the plain command's")
    ratio = f"{plain[1] / best[0]:8.2f}" if plain else "        "
    print(f"  {what:24} {best[0]:8.2f} {best[1]:8.2f} {ratio} {model:>8}", flush=True)
    return out, best[0]


def main():
    top = tempfile.mkdtemp(prefix="kvtool-shards-", dir=os.environ.get("KVT_BENCH_DIR"))
    try:
        names = make_dumps(top)
        rates = os.path.join(top, "rates.json")
        with open(rates, "wb") as f:
            f.write(run(KVTOOL, "bench", f"--files={top}", "--json"))
        print(f"{FILES} files of {MIB} MiB; seconds, processor seconds, times as fast as "
              "plain, seconds by the model")
        for name, command in JOBS:
            print(name)
            plain = row("plain, 2 threads", None,
                        lambda: run(KVTOOL, *command, "--threads=2", *names))
            planned = json.loads(run(KVTOOL, "size", f"--plan={rates}", f"--job={name}",
                                     "--time=0.001", "-j", *names))["times"]
            seconds = {t["shards"]: f"{t['seconds']:.2f}" for t in planned}
            for n in (1, 2, 4):
                row(f"{n} shards and reduce", plain,
                    lambda: shards(command, names, n, os.path.join(top, "shards")),
                    seconds.get(n, ""))
            for n in (1, 2) if os.path.exists(MPI) else ():
                row(f"mpirun -n {n}", plain, lambda: ranks(command, names, n))
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
