# SPDX-License-Identifier: Apache-2.0
"""
check_faults.py [--seconds N] [--stride N] [--list] [NAME...]: what the program does
when a call of the system fails or falls short

Each command of COMMANDS is run once to count its calls, and then again and again:
the n-th call of a kind fails, alone or with all that follow, for n from 1 to the
last one (of allocations every STRIDE-th).  --seconds takes a random sample, with one
seed, for about so long.  Right is

  - status 0, and files and standard output as without the fault; or
  - another status and one sentence, old outputs as they were, and nothing else.

A process that is killed must leave each name with an old or a new file; where a dump
has two files of which one is old, opening it must be refused.  One that is told to
end leaves all as it was, or goes on to status 0 if the outputs have their names.
Deaths by an allocation that libhdf5 asked for are counted apart, be they in it or
later, by a heap that it broke: what they leave is what the next run names.  Not for sanitizers, which want to be loaded first.
"""
import argparse
import collections
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

KVTOOL = os.environ["KVTOOL"]
SHIM = os.path.join(os.environ["KVT_BUILD"], "fault_shim.so")
# libraries that HDF5's brings print what fails as they are loaded, which is not ours
OPENED = [line.split()[1].rstrip(",") for line in subprocess.run(
    [KVTOOL, "--version"], check=True, capture_output=True, text=True).stdout.splitlines()
          if line.startswith("HDF5 ") and "opened" in line]
PRELOAD = " ".join(["../shim.so", *OPENED])
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testdata", "kv")
S260K = os.path.join(DATA, "s260k")

# ---- commands ---------------------------------------------------------------

# name: inputs, outputs that are there before, the command, what the file system lacks
COMMANDS = {
    "npy-to-h5": ("in.npy in.json", "", "convert in.npy out.h5"),
    "npy-to-h5-flat": ("in.npy in.json", "", "convert --uncompressed in.npy out.h5"),
    "h5-to-npy": ("in.h5", "", "convert in.h5 out.npy"),
    "h5-to-safetensors": ("in.h5", "", "convert --verify in.h5 out.safetensors"),
    "relayout-over-pair": ("in.npy in.json", "out.npy out.json",
                           "relayout -f --verify --to=bhlsc -o out.npy in.npy"),
    "relayout-over-h5": ("in.h5", "out.h5", "relayout -f --to=hnd -o out.h5 in.h5"),
    # NFS and others know no exchange of names, some no second name of a file
    "without-exchange": ("in.h5", "out.h5", "relayout -f --to=hnd -o out.h5 in.h5",
                         "renameat2"),
    "without-links": ("in.npy in.json", "out.npy out.json",
                      "relayout -f --to=bhlsc -o out.npy in.npy", "renameat2,link"),
    "new-without-links": ("in.h5", "", "convert in.h5 out.npy", "renameat2,link"),
    "relayout-no-sync": ("in.h5", "", "relayout --no-sync --to=bhlsc -o out.npy in.h5"),
    "reblock": ("in.npy in.json", "", "reblock --verify --block-size=32 -o out.h5 in.npy"),
    "slice": ("in.h5", "out.npy out.json",
              "slice -f --request=C --tokens=10:40 -o out.npy in.h5"),
    "merge": ("r0.h5 r1.h5", "", "merge --verify -o out.npy r0.h5 r1.h5"),
    "copy-blocks": ("in.h5", "", "copy-blocks --blocks=39:40 -o out.h5 in.h5 in.h5"),
    "mutate": ("in.h5", "", "mutate --fault=swap-heads,a=0,b=2,layer=1 -o out.h5 in.h5"),
    "digest": ("in.h5", "", "digest in.h5"),
    "digest-npy": ("in.npy in.json", "", "digest in.npy"),
    "diff": ("in.npy in.json in.h5", "", "diff --deep in.npy in.h5"),
    "diff-heatmap": ("in.h5 bad.h5", "", "diff --heatmap=map.csv in.h5 bad.h5"),
    "fsck": ("in.h5", "", "fsck in.h5"),
    "describe": ("in.h5", "", "describe --json --verify in.h5"),
    "import": ("connector/", "", "import --layout=nhd --block-size=16 -o out.h5 connector"),
    "to-connector": ("in.h5", "", "convert --format=vllm-2026-07 in.h5 out"),
    "to-hicache": ("named.h5", "", "convert --format=hicache named.h5 out"),
    "to-offload": ("rows/", "", "convert --format=offload --row-ranks=2 --layout=cpu-vec "
                   "--heads=4 --head-dim=32 --set=tp-size=1 rows out"),
    "from-llama": ("holes.ggsn", "", "convert --heads=4 holes.ggsn out.h5"),
    "from-torch": ("cache.pt", "", "convert cache.pt out.h5"),
    "exec-ranks": ("in.h5", "out0.h5 out1.h5",
                   "transfer-sim exec -f --dst=tp=2,layout=hnd,block-size=32 "
                   "-o out%r.h5 in.h5"),
    "exec-pairs": ("in.npy in.json", "", "transfer-sim exec --dst=tp=2,layout=hnd "
                   "-o out%r.npy in.npy"),
    "report": ("", "out.html", "transfer-sim report -f --model=llama-3.1-8b "
               "--tokens=32 --src=layout=hnd,tp=2 --dst=tp=4 --html=out.html "
               "--trace-out=out.json"),
    # of shards each file is an output of its own, and the next run makes what is missing
    "shard": ("in.h5 in.npy in.json", "", "digest --shard=0/1 --shard-dir=new in.h5 in.npy"),
    "shard-goes-on": ("in.h5 in.npy in.json begun/", "",
                      "digest --shard=1/2 --shard-dir=begun in.h5 in.npy"),
    "shard-writes": ("in.h5", "", "relayout --to=hnd --shard=0/1 --shard-dir=new -o "
                     "part.h5 in.h5"),
    "reduce": ("in.h5 in.npy in.json done/", "", "reduce done"),
    "reduce-snapshot": ("in.h5 parts/", "", "reduce parts"),
    "virtual": ("whole.h5 parts/", "", "convert --verify whole.h5 out.npy"),
    "reduce-one-file": ("in.h5 parts/", "", "reduce --one-file parts"),
    "expect-write": ("in.h5", "out.kvc", "expect write -f --digest -o out.kvc in.h5"),
    "expect-check": ("in.h5 c.kvc", "", "expect check --report=junit=out.xml "
                     "--report=tap=out.tap c.kvc in.h5"),
}

ERRORS = {
    "write": "ENOSPC EIO EINTR short eof", "pwrite": "ENOSPC EIO EINTR short eof",
    "writev": "ENOSPC EIO short eof", "pwritev": "ENOSPC EIO short eof",
    "read": "EIO EINTR short eof", "pread": "EIO EINTR short eof",
    "open": "EACCES EMFILE", "openat": "EACCES EMFILE", "fstat": "EIO", "stat": "EIO",
    "mmap": "ENOMEM", "malloc": "ENOMEM", "calloc": "ENOMEM", "realloc": "ENOMEM",
    "ftruncate": "ENOSPC EIO EINTR", "fsync": "EIO ENOSPC", "fdatasync": "EIO",
    "close": "EIO EINTR", "mkdir": "ENOSPC EACCES", "rmdir": "EIO", "link": "EIO EPERM",
    "rename": "EIO ENOSPC EINVAL EXDEV", "unlink": "EIO", "opendir": "EMFILE",
    "fopen": "EACCES EMFILE", "fwrite": "ENOSPC", "fflush": "ENOSPC",
    "fclose": "ENOSPC", "pthread_create": "EAGAIN",
}
KILLS = ("pwrite", "write", "ftruncate", "fsync", "rename", "unlink", "mkdir", "rmdir",
         "close")
ALLOCATIONS = ("malloc", "calloc", "realloc")
# what is told when the outputs have their names already
AFTERWARDS = ("fwrite", "fflush", "fclose", "write", "unlink", "rmdir", "malloc",
              "calloc", "realloc", "close")

# ---- files ------------------------------------------------------------------


def kvtool(*words, cwd):
    subprocess.run([KVTOOL, *words], cwd=cwd, check=True, stdout=subprocess.DEVNULL)


def make_inputs(folder):
    """Every input once: 10 to 100 KB each, with requests, tables and tiles."""
    nhd = os.path.join(S260K, "paged_bs16", "packed_nhd.bf16.npy")
    kvtool("slice", "-q", "--layers=0:2", "--request=C", "-o", "in.npy", nhd, cwd=folder)
    kvtool("convert", "-q", "in.npy", "in.h5", cwd=folder)
    kvtool("mutate", "-q", "--fault=swap-kv,layer=1,block=39", "-o", "bad.h5", "in.h5",
           cwd=folder)
    for r in range(2):
        kvtool("slice", "-q", "--tp-size=2", "--tp-rank=%d" % r, "-o", "r%d.h5" % r, "in.h5", cwd=folder)
    kvtool("expect", "write", "-o", "c.kvc", "in.h5", cwd=folder)
    shutil.copytree(os.path.join(S260K, "connector", "example_2026_07"),
                    os.path.join(folder, "connector"))
    engines = os.path.join(S260K, "..", "..", "engines")
    shutil.copytree(os.path.join(engines, "vllm", "offload_tp1_vec_bs32", "root"),
                    os.path.join(folder, "rows"))
    shutil.copy(os.path.join(engines, "llama.cpp", "s260k.hole.ggsn"),
                os.path.join(folder, "holes.ggsn"))
    shutil.copy(os.path.join(engines, "transformers", "5.23.0", "dynamic.pt"),
                os.path.join(folder, "cache.pt"))
    make_named(folder)
    for words in ("digest --shard=0/2 --shard-dir=begun in.h5 in.npy",
                  "digest --shard=0/1 --shard-dir=done in.h5 in.npy",
                  "relayout --to=hnd --shard=0/1 --shard-dir=parts -o whole.h5 "
                  "in.h5"):
        kvtool(*words.split(), cwd=folder)
    kvtool("reduce", "parts", cwd=folder)
    for name in ("out.npy", "out.json", "out.h5", "out0.h5", "out1.h5", "out.html",
                 "out.kvc"):
        path = os.path.join(folder, name)
        if name == "out.npy":
            kvtool("relayout", "-q", "--to=hnd", "-o", "out.npy", "in.npy", cwd=folder)
        elif not os.path.exists(path):
            if name.endswith(".h5"):
                shutil.copy(os.path.join(folder, "bad.h5"), path)
            else:
                with open(path, "w") as f:
                    f.write("old\n")


def make_named(folder):
    """A dump whose blocks have names, which is what a store needs."""
    with open(os.path.join(folder, "named.bin"), "wb") as f:
        f.write(random.Random(1).randbytes(768))
    with open(os.path.join(folder, "named.json"), "w") as f:
        json.dump({"layout": "hicache-page-first", "dtype": "bf16", "model": "org/m",
                   "sizes": {"layers": 2, "num_blocks": 3, "block_size": 4,
                             "num_kv_heads": 2, "head_dim": 4},
                   "block_names": ["%032x" % n for n in range(3)]}, f)
    kvtool("convert", "-q", "named.bin", "named.h5", cwd=folder)


def tree(folder):
    found = {}
    for at, folders, files in os.walk(folder):
        for name in folders:
            found[os.path.relpath(os.path.join(at, name), folder) + "/"] = "folder"
        for name in files:
            path = os.path.join(at, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, folder)] = hashlib.md5(f.read()).hexdigest()
    return found


class Place:
    """A folder of its own for one thread, filled anew for each run."""

    def __init__(self, inputs, parent):
        self.inputs = inputs
        self.path = tempfile.mkdtemp(dir=parent)
        self.report = os.path.join(parent, os.path.basename(self.path) + ".report")

    def fill(self, command):
        for name in os.listdir(self.path):
            path = os.path.join(self.path, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        for name in (command[0] + " " + command[1]).split():
            source = os.path.join(self.inputs, name.rstrip("/"))
            target = os.path.join(self.path, name.rstrip("/"))
            if name.endswith("/"):
                shutil.copytree(source, target)
            else:
                shutil.copy2(source, target)    # shards know inputs by their times

    def run(self, command, fault=None):
        words = command[2]
        env = dict(os.environ, LC_ALL="C", LD_PRELOAD=PRELOAD, FAULT_REPORT=self.report,
                   SOURCE_DATE_EPOCH="0")
        if len(command) > 3:
            env["FAULT_LACKS"] = command[3]
        if fault:
            env.update(FAULT_CALL=fault[0], FAULT_NTH=str(fault[1]),
                       FAULT_EFFECT=fault[2])
            if fault[3]:
                env["FAULT_ON"] = "1"
        if os.path.exists(self.report):
            os.unlink(self.report)
        try:
            p = subprocess.run([KVTOOL, *words.split()], cwd=self.path, env=env,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, timeout=600)
        except subprocess.TimeoutExpired:
            return None, b"", b""
        return p.returncode, p.stdout, p.stderr

    def told(self):
        found = {}
        if os.path.exists(self.report):
            with open(self.report) as f:
                found = dict(line.split(None, 1) for line in f if " " in line)
        return {k: v.strip() for k, v in found.items()}

# ---- one case ---------------------------------------------------------------


class Baseline:
    def __init__(self, place, name):
        self.name, self.command = name, COMMANDS[name]
        place.fill(self.command)
        self.before = tree(place.path)
        self.status, self.out, err = place.run(self.command)
        self.counts = {k: int(v) for k, v in place.told().items() if v.isdigit()}
        self.after = tree(place.path)
        if self.status not in (0, 1):
            sys.exit("check_faults: %s: status %s: %s" %
                     (name, self.status, err.decode(errors="replace")))
        self.changed = [n for n in self.after if self.before.get(n) != self.after[n]]
        self.sharded = "--shard=" in self.command[2]
        self.snapshots = [n for n in self.changed if n.endswith(".h5")]
        for file in self.snapshots:
            shutil.copy(os.path.join(place.path, file), self.kept(place, file))

    def kept(self, place, file):
        return os.path.join(place.inputs,
                            "kept-" + self.name + "-" + file.replace("/", "-"))

    def same_cache(self, place, after):
        """Are all files as they should be, but for how a snapshot stores its tiles?
        One that finds no memory to compress a tile stores it as it is."""
        differ = [n for n in set(after) | set(self.after)
                  if after.get(n) != self.after.get(n)]
        # a unit has the digest of such a file
        differ = [n for n in differ if not (self.snapshots and n.endswith(".unit"))]
        return all(n in self.snapshots and n in after and not subprocess.run(
            [KVTOOL, "diff", "-q", "--deep", n, self.kept(place, n)], cwd=place.path,
            stderr=subprocess.DEVNULL).returncode and not subprocess.run(
            [KVTOOL, "fsck", "-q", n], cwd=place.path, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL).returncode for n in differ)


def is_leftover(name):
    return ".tmp-" in name


def old_or_new(base, after):
    """Which of the outputs are old, new, or neither."""
    found = set()
    for name in base.changed:
        now = after.get(name)
        found.add("new" if now == base.after[name] else
                  "old" if now == base.before.get(name) else "half")
    return found


def after_failure(base, place, fault, after, err):
    wrong = []
    # fsck says on standard output what it finds; expect, in its reports, too
    if not err.strip() and base.name != "fsck":
        wrong.append("says nothing")
    elif len(err.strip().splitlines()) > 2 and b"HDF5-DIAG" not in err:
        wrong.append("says more than a sentence")
    for name, value in base.before.items():
        if name not in base.changed and after.get(name) != value:
            wrong.append("input changed: " + name)
    stray = [n for n in after if n not in base.before and n not in base.after]
    # what no shard can go on with, and reduce does not know
    if base.sharded and "new/" in after and "new/job.json" not in after:
        stray.append("new/ without job.json")
    # who cannot remove anything can only say so
    if fault[0] in ("unlink", "rmdir") and fault[3] and b".tmp-" in err:
        stray = []
    if stray:
        wrong.append("stray " + " ".join(sorted(stray)[:3]))
    state = old_or_new(base, after)
    if base.name == "expect-check" and not any(base.before.get(n) for n in base.changed):
        state.discard("half")
    if base.sharded:
        state &= set() if looks_other(place, fault, err) else {"half"}
    if "half" in state or len(state) > 1:
        wrong.append("torn: " + " ".join(sorted(state)))
    elif state == {"new"} and fault[0] not in AFTERWARDS:
        wrong.append("failed, but the outputs are new")
    return wrong


def after_kill(base, place, after):
    """Old or new under each name; and of a dump with two files not one of each."""
    wrong = []
    for name in base.changed:
        if name.endswith("/") or is_leftover(name):
            continue
        if after.get(name) not in (base.after[name], base.before.get(name)):
            wrong.append("half a file: " + name)
    state = old_or_new(base, after)
    pairs = [n for n in base.changed if n.endswith(".npy")]
    for name in pairs:
        side = name[:-4] + ".json"
        kinds = {"new" if after.get(n) == base.after.get(n) else "old"
                 for n in (name, side)}
        if len(kinds) > 1 and name in after and side in after and len(state) > 1:
            p = subprocess.run([KVTOOL, "describe", name], cwd=place.path,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if p.returncode == 0:
                wrong.append("a mixed pair is read")
    return wrong


def named_by_next_run(base, place):
    """A folder that is left is named by the next run, which works."""
    for name in base.changed:
        path = os.path.join(place.path, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.unlink(path)
    status, _, err = place.run(base.command)
    if status != base.status:
        return ["the next run ends with %s" % status]
    if b"temporary folder of a kvtool" not in err:
        return ["the next run does not name what was left"]
    return []


def looks_other(place, fault, err):
    """Did files look other than they are?  To libhdf5 they do, where it has no memory."""
    return fault[2] in ("eof", "short") or fault[0] in ALLOCATIONS and (
        b"HDF5-DIAG" in err or "hdf5" in place.told().get("failed", ""))


def completed_by_next_run(base, place, fault, err):
    """A shard that did not come to its end is completed by the same command, unless its
    files looked shorter than they are, which is another job."""
    other = looks_other(place, fault, err)
    status, _, err = place.run(base.command)
    after = {n: v for n, v in tree(place.path).items() if not is_leftover(n)}
    if other and b"inputs have changed; choose another" in err:
        return []
    if status == base.status and (after == base.after or fault[0] in ALLOCATIONS and
                                  base.same_cache(place, after)):
        return []
    return ["the next run ends with %s: %s" % (status, err.decode(errors="replace"))]


def judge(base, place, fault, result):
    status, out, err = result
    after = tree(place.path)
    if status is None:
        return "hang", ["hangs"]
    if fault[2] == "kill":
        if status != -9:
            return "right", []
        wrong = after_kill(base, place, after)
        if base.sharded and not wrong:
            wrong = completed_by_next_run(base, place, fault, err)
        elif any(is_leftover(n) for n in after) and not wrong:
            wrong = named_by_next_run(base, place)
        return ("killed", []) if not wrong else ("torn", wrong)
    if base.sharded and fault[2] == "TERM" and status == -15:
        wrong = after_failure(base, place, fault, after, b"killed") or \
            completed_by_next_run(base, place, fault, err)
        return ("killed", []) if not wrong else ("torn", wrong)
    if fault[2] == "TERM" and status == -15:
        wrong = [n for n in set(after) | set(base.before)
                 if after.get(n) != base.before.get(n)]
        return ("killed", []) if not wrong else ("torn", ["left " + " ".join(wrong)])
    told = place.told()
    died = told.get("died", "")
    if status < 0 or status > 5 or died:
        wrong = after_kill(base, place, after)
        # what it breaks of the heap when its own memory fails may kill later callers
        if fault[0] in ALLOCATIONS and ("hdf5" in died or
                                        "hdf5" in told.get("failed", "")):
            # it ends the process by exit(), which leaves nothing; a signal may
            if status > 0 and any(is_leftover(n) for n in after):
                wrong.append("stray " + " ".join(filter(is_leftover, after)))
            if base.sharded and not wrong:
                wrong = completed_by_next_run(base, place, fault, err)
            elif any(is_leftover(n) for n in after) and not wrong:
                wrong = named_by_next_run(base, place)
            return ("in libhdf5", []) if not wrong else ("torn", wrong)
        return "death", ["dies with %d in %s" % (status, died)]
    # the verdict of a diff stands without its diagnosis, and without a list
    if status == 1 and after == base.after and (b"no diagnosis" in err or
                                                b"out of memory\n" in out):
        return "right", []
    # what is in a unit is said by who joins, and the next run reads it again
    if base.sharded and status == base.status and after != base.after and not (
            fault[0] in ALLOCATIONS and base.same_cache(place, after)):
        joined = subprocess.run([KVTOOL, "reduce", base.command[2].split("--shard-dir=")[1]
                                 .split()[0]], cwd=place.path, capture_output=True)
        wrong = completed_by_next_run(base, place, fault, err)
        if joined.returncode == 0:
            wrong.append("status 0, also of all of it")
        return ("wrong", wrong) if wrong else ("right", [])
    if status == base.status:
        if after != base.after and not (fault[0] in ALLOCATIONS and
                                        base.same_cache(place, after)):
            return "wrong", ["status %d, but files differ: %s" % (status, " ".join(
                sorted(n for n in set(after) | set(base.after)
                       if after.get(n) != base.after.get(n))[:4]))]
        if out != base.out:
            return "wrong", ["status %d, but another output" % status]
        return "right", []
    wrong = after_failure(base, place, fault, after, err)
    if base.sharded and not wrong:
        wrong = completed_by_next_run(base, place, fault, err)
    if not wrong:
        return "right", []
    kind = "stray" if any(w.startswith("stray") for w in wrong) else \
        "torn" if any("torn" in w or "input" in w for w in wrong) else "wrong"
    return kind, wrong

# ---- all of them ------------------------------------------------------------


def cases_of(base, stride):
    linkless = "link" in "".join(base.command[3:])
    for call, effects in ERRORS.items():
        step = stride if call in ALLOCATIONS else 1
        for n in range(1, base.counts.get(call, 0) + 1, step):
            for effect in effects.split():
                yield (call, n, effect, False)
                # a call that is interrupted for ever is no fault of anybody, and where
                # neither links nor renames work there is no way back
                if effect not in ("EINTR", "short") and not (call == "rename" and linkless):
                    yield (call, n, effect, True)
    if base.changed:
        for call in KILLS:
            for n in range(1, base.counts.get(call, 0) + 1):
                # for a moment the old file has no name there (kvtool(1))
                if not (call == "rename" and linkless and base.command[1]):
                    yield (call, n, "kill", False)
                yield (call, n, "TERM", False)


def worker(queue, bases, place, lock, totals, failures, until):
    while True:
        with lock:
            if not queue or (until and time.monotonic() > until):
                return
            name, fault = queue.pop()
        base = bases[name]
        place.fill(base.command)
        result = place.run(base.command, fault)
        kind, wrong = judge(base, place, fault, result)
        with lock:
            totals[name][kind] += 1
            if wrong:
                text = "%s: %s %d %s%s: status %s: %s: %s" % (
                    name, fault[0], fault[1], fault[2], " and on" if fault[3] else "",
                    result[0], "; ".join(wrong),
                    result[2].decode(errors="replace").strip()[-200:])
                failures.append(text)
                print("not ok: " + text, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--stride", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    parent = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        return run(args, parent)
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def run(args, parent):
    inputs = os.path.join(parent, "inputs")
    os.mkdir(inputs)
    make_inputs(inputs)
    # the loader takes a blank in a name for its end
    shutil.copy(SHIM, os.path.join(parent, "shim.so"))
    places = [Place(inputs, parent) for _ in range(args.jobs)]
    names = args.names or list(COMMANDS)
    bases = {name: Baseline(places[0], name) for name in names}
    queue = [(name, fault) for name in names
             for fault in cases_of(bases[name], args.stride)]
    if args.list:
        for name in names:
            print(name, sum(n == name for n, _ in queue), "cases,",
                  json.dumps({k: v for k, v in bases[name].counts.items() if v}))
        return 0
    random.Random(1).shuffle(queue)
    every = len(queue)
    totals = collections.defaultdict(collections.Counter)
    failures, lock = [], threading.Lock()
    until = time.monotonic() + args.seconds if args.seconds else 0
    threads = [threading.Thread(target=worker, args=(
        queue, bases, place, lock, totals, failures, until)) for place in places]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    kinds = ("right", "killed", "in libhdf5", "wrong", "torn", "stray", "death", "hang")
    print("%-20s" % "command" + "".join("%11s" % k for k in kinds))
    total = collections.Counter()
    for name in names:
        total.update(totals[name])
        print("%-20s" % name + "".join("%11d" % totals[name][k] for k in kinds))
    print("%-20s" % "all" + "".join("%11d" % total[k] for k in kinds))
    done = sum(total.values())
    print("# %d of %d cases, allocations by %d" % (done, every, args.stride))
    print("%d passed, %d failed" % (done - len(failures), len(failures)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
