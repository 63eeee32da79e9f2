#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
bench_shards.py - one command by several processes: shards, kvtool-mpi, and the model

KVT_BENCH_FILES (8) dumps of KVT_BENCH_MIB (512) MiB each with a request, in KVT_BENCH_DIR,
which for the rates of kvtool(1) should be memory.  Each row is the least of
KVT_BENCH_ROUNDS (3): the plain command with two threads; n shards of a thread, two at a
time, and kvtool reduce; kvtool-mpi with n ranks, where it was built; what kvtool size
--plan says.  diff and relayout have one dump of half the bytes.  All must print the same,
and what they write must have the same digest.
"""
import json
import os
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
BLOCK = 4 * 16 * 8 * 2 * 128 * 2        # bytes: layers, tokens, heads, K and V, dim, bf16


def make_dump(folder, name, mib):
    blocks = (mib << 20) // BLOCK
    path = os.path.join(folder, f"{name}.bin")
    with open(path, "wb") as f:
        for _ in range(mib):
            f.write(os.urandom(1 << 20))
    with open(os.path.join(folder, f"{name}.json"), "w", encoding="ascii") as f:
        json.dump({"file": f"{name}.bin", "layout": "nhd", "dtype": "bfloat16",
                   "sizes": {"layers": 4, "num_blocks": blocks, "block_size": 16,
                             "num_kv_heads": 8, "head_dim": 128},
                   "block_table": {"A": list(range(blocks))},
                   "num_tokens": {"A": 16 * blocks}}, f)
    return path


def copy_of(path):
    """The same bytes under another name."""
    other = path.replace(".bin", "-copy.bin")
    os.link(path, other)
    with open(path[:-4] + ".json", encoding="ascii") as f:
        text = f.read().replace(os.path.basename(path), os.path.basename(other))
    with open(other[:-4] + ".json", "w", encoding="ascii") as f:
        f.write(text)
    return other


class Took:
    """Wall and processor seconds, and the MiB of the largest process."""

    def __init__(self):
        self.began, self.wall, self.cpu, self.mib = time.perf_counter(), 0, 0, 0

    def start(self, *args, out=subprocess.DEVNULL):
        return subprocess.Popen(args, stdout=out, stderr=subprocess.PIPE)

    def end(self, p):
        out = p.stdout.read() if p.stdout else b""
        why = p.stderr.read()
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        if p.returncode not in (0, 1):
            sys.exit(why.decode())
        self.cpu += used.ru_utime + used.ru_stime
        self.mib = max(self.mib, used.ru_maxrss >> 10)
        self.wall = time.perf_counter() - self.began
        return out

    def run(self, *args):
        return self.end(self.start(*args, out=subprocess.PIPE))


def plain(took, words, _n, _folder):
    return took.run(KVTOOL, words[0], "--threads=2", *words[1:])


def shards(took, words, n, folder):
    """Two at a time, as two processors have it; then all are joined."""
    for first in range(0, n, 2):
        for p in [took.start(KVTOOL, words[0], "--threads=1", f"--shard={i}/{n}",
                             f"--shard-dir={folder}", *words[1:])
                  for i in range(first, min(first + 2, n))]:
            took.end(p)
    return took.run(KVTOOL, "reduce", *(["--one-file"] if "-o" in words else []), folder)


def ranks(took, words, n, folder):
    more = ["--one-file", f"--shard-dir={folder}"] if "-o" in words else []
    return took.run("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(n), MPI,
                    words[0], *more, *words[1:])


def row(what, act, words, n, folder, best=None, model=""):
    """The least of the rounds; the output of each is right."""
    least = None
    for _ in range(ROUNDS):
        shutil.rmtree(folder, ignore_errors=True)
        took = Took()
        out = act(took, words, n, folder)
        if "-o" in words:
            made = words[words.index("-o") + 1]
            out += Took().run(KVTOOL, "digest", made).split()[0]
            os.unlink(made)
        if best and out != best[0]:
            sys.exit(f"{what}: another output than the plain command's")
        least = took if not least or took.wall < least.wall else least
    ratio = f"{best[1] / least.wall:8.2f}" if best else "        "
    print(f"  {what:20} {least.wall:8.2f} {least.cpu:8.2f} {least.mib:6} {ratio} {model:>8}",
          flush=True)
    return out, least.wall


def times_of(words, folder, seconds):
    print(words[0])
    best = row("plain, 2 threads", plain, words, 1, folder)
    for n in (1, 2, 3, 4, 7):
        row(f"{n} shards and reduce", shards, words, n, folder, best, seconds.get(n, ""))
    for n in (1, 2, 4) if os.path.exists(MPI) else ():
        row(f"mpirun -n {n}", ranks, words, n, folder, best)


def modelled(name, rates, names):
    planned = json.loads(Took().run(
        KVTOOL, "size", f"--plan={rates}", f"--job={name}", "--time=0.001", "-j",
        *names))["times"]
    return {t["shards"]: f"{t['seconds']:.2f}" for t in planned}


def main():
    top = tempfile.mkdtemp(prefix="kvtool-shards-", dir=os.environ.get("KVT_BENCH_DIR"))
    folder, out = os.path.join(top, "shards"), os.path.join(top, "out.h5")
    try:
        print(f"{FILES} files of {MIB} MiB; seconds, processor seconds, MiB of a process, "
              "times as fast as plain, seconds by the model")
        # one after the other: memory that was never used before is slow
        half = make_dump(top, "half", MIB * FILES // 2)
        times_of(["relayout", "-q", "--to=hnd", "-o", out, half], folder, {})
        times_of(["diff", half, copy_of(half)], folder, {})
        shutil.rmtree(top)
        os.mkdir(top)
        names = [make_dump(top, str(i), MIB) for i in range(FILES)]
        rates = os.path.join(top, "rates.json")
        with open(rates, "wb") as f:
            f.write(Took().run(KVTOOL, "bench", f"--files={top}", "--json"))
        for words in (["digest", *names], ["fsck", "--json", *names]):
            times_of(words, folder, modelled(words[0], rates, names))
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
