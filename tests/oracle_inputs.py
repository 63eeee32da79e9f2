#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_inputs.py - no output replaces what its own run reads

Which options name a file to be written is asked of the program: each command and mode
prints its options, and one with FILE, DIR or OUT in it that is not sorted here into
read and written is a failure, as is one that is written and that no command below gives.

What a run reads is asked of the system: a preloaded library (tests/fault_shim.c) notes
what is opened.  Each of these files is then named as the output, with --force: as it is,
by other paths, by a hard link, by a symbolic link, and as the manifest beside a raw
file; of each folder that is read, a new member.  Each must be refused with status 2 and
one sentence, and every file be there as it was.
"""
import concurrent.futures
import hashlib
import os
import re
import shutil
import subprocess
import sys

from oracle import (DATA, KVTOOL, bail, need_program_and_data, read_bytes, read_json, tap,
                    workdir, write_bytes, write_json)

SHIM = os.path.join(os.environ.get("KVT_BUILD", "build"), "fault_shim.so")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
ENGINES = os.path.join(DATA, "..", "engines")
S260K = os.path.join(DATA, "s260k")
NHD = os.path.join(S260K, "paged_bs16", "packed_nhd.bf16")

# ---- options ------------------------------------------------------------------

READ = {"manifest", "model", "draft-model", "config", "models", "link", "trace",
        "secret-file", "slot-mapping", "blocks-of", "seq-lens", "on-disk",
        "prompt"}
WRITTEN = {"output", "heatmap", "html", "svg", "trace-out", "report", "write-manifest",
           "shard-dir", "out-dir"}
# A folder of its own is made there, and goes away; and what is only hashed.
OWN = {("bench", "files"), ("prefix", "lora"), ("why", "lora")}


def run(*words, folder=None, env=None):
    return subprocess.run([KVTOOL, *words], cwd=folder, capture_output=True, timeout=600,
                          stdin=subprocess.DEVNULL, env=dict(os.environ, **(env or {})))


def sanitized():
    return re.search(rb"__[at]san_init", read_bytes(KVTOOL)) is not None


def lines(*words):
    return run(*words).stdout.decode().split("\n")


def commands():
    for command in filter(None, lines("--list-commands")):
        yield command
        if command in ("transfer-sim", "expect"):
            yield from (f"{command} {m}" for m in lines(command, "--list-modes") if m)


def options():
    """(command, option) of all that take the name of a file, or of a folder."""
    for command in commands():
        for line in lines(*command.split(), "--help"):
            found = re.match(r" +(?:-., )?--([a-z-]+)=(\S+)", line)
            if found and re.search(r"\b(FILE|DIR|OUT|PATH)\b", found[2]):
                yield command, found[1]


def check_options(given):
    found = set(options())
    unsorted = {o for o in found if o[1] not in READ | WRITTEN and o not in OWN}
    tap.ok(len(found) > 60, "the program says its options", len(found))
    tap.equal(unsorted, set(), "each is known to be read or written")
    # a shard writes alike whatever it does
    written = {o for o in found if o[1] in WRITTEN - {"shard-dir"}}
    tap.equal(written - given, set(), "each that is written is tried")

# ---- commands -----------------------------------------------------------------


class Case:
    """A command that writes {out}; what it must have read, in words of its folder."""

    def __init__(self, option, words, ending, reads):
        self.command = " ".join(words.split()[:2 if words.startswith("transfer-sim") else 1])
        self.option, self.words, self.ending = option, words, ending
        self.reads = set(reads.split())
        self.dump = "--format=hdf5" in words
        self.folder = words.startswith("shrink")  # what is written is one

    def run(self, place, out, **more):
        return run(*(w.replace("{out}", out) for w in self.words.split()), folder=place,
                   **more)


H5 = "-f --format=hdf5"
CASES = [Case(*c) for c in (
    ("output", f"relayout {H5} --to=hnd -o {{out}} in.npy", ".h5", "in.npy in.json"),
    ("output", f"convert {H5} in.npy {{out}}", ".h5", "in.npy in.json"),
    ("output", f"convert {H5} -o {{out}} --manifest=m.json bare.npy", ".h5",
     "bare.npy m.json"),
    ("output", f"convert {H5} -o {{out}} whole.h5", ".h5",
     "whole.h5 parts/part-0-000000.h5"),
    ("output", f"convert {H5} -o {{out}} state.safetensors", ".h5", "state.safetensors"),
    ("output", f"import {H5} --layout=nhd --block-size=16 -o {{out}} conn", ".h5",
     "conn/ conn/2954a22378714c64c09915a037978a7d/model.layers.1.self_attn.attn.safetensors"),
    ("output", f"import {H5} --layout=cpu-vec --heads=4 --head-dim=32 --set=tp-size=1 "
     "-o {out} rows", ".h5", "rows/"),
    ("output", f"slice {H5} --layers=0 -o {{out}} in.npy", ".h5", "in.npy in.json"),
    ("output", f"reblock {H5} --block-size=32 -o {{out}} in.npy", ".h5", "in.npy in.json"),
    ("output", f"merge {H5} -o {{out}} r0.npy r1.npy", ".h5", "r0.npy r0.json r1.npy"),
    ("output", f"mutate {H5} --fault=swap-kv,layer=1 -o {{out}} in.npy", ".h5",
     "in.npy in.json"),
    ("output", "shrink -f -o {out} in.npy bad.h5", "", "in.npy in.json bad.h5"),
    ("output", f"copy-blocks {H5} --blocks=39:40 -o {{out}} in.npy in.h5", ".h5",
     "in.npy in.json in.h5"),
    ("output", f"transfer-sim exec -f -o {{out}} in.npy to.npy", ".h5",
     "in.npy in.json to.npy to.json"),
    ("output", f"transfer-sim wire -f -o {{out}} in.npy to.npy", ".h5",
     "in.npy in.json to.npy to.json"),
    ("output", f"transfer-sim receive {H5} --ratio=2 -o {{out}} hnd.npy", ".h5",
     "hnd.npy hnd.json"),
    ("output", "transfer-sim report -f --dst=tp=2 --link=link.json -o {out} in.npy",
     ".json", "in.npy in.json link.json"),
    ("html", "transfer-sim report -f -m model.json --dst=tp=2 --html={out}", ".html",
     "model.json"),
    ("svg", "transfer-sim report -f --dst=tp=2 --html=page.html --svg={out} in.npy", ".svg",
     "in.npy in.json"),
    ("trace-out", "transfer-sim report -f --manifest=m.json --dst=tp=2 --trace-out={out} "
     "bare.npy", ".json", "bare.npy m.json"),
    ("output", "transfer-sim emit -f -m model.json --dst=tp=2 -o {out}", ".csv",
     "model.json"),
    ("output", "transfer-sim emit -f --format=nixl-strided --dst=tp=2 -o {out} in.npy",
     ".json", "in.npy in.json"),
    ("output", "transfer-sim calibrate -f -o {out} bench.csv", ".json", "bench.csv"),
    ("heatmap", "diff -f --heatmap={out} in.npy bad.h5", ".svg", "in.npy in.json bad.h5"),
    ("output", "view -f -o {out} in.npy bad.h5", ".html", "in.npy in.json bad.h5"),
    ("heatmap", "diff -f --heatmap={out} --layout=nhd --block-size=16 conn : conn",
     ".csv", "conn/"),
    ("output", "expect write -f -o {out} in.npy", ".kvc", "in.npy in.json"),
    ("output", "expect write -f in.npy {out}", ".kvc", "in.npy in.json"),
    ("report", "expect check -f --report=tap={out} c.kvc in.npy whole.h5", ".tap",
     "c.kvc in.npy in.json whole.h5 parts/part-0-000000.h5"),
    ("report", "expect check -f --layout=nhd --block-size=16 --report=junit={out} "
     "c.kvc conn", ".xml", "c.kvc conn/"),
    ("write-manifest", "guess --write-manifest={out} --layers=2 --block-size=16 "
     "--heads=4 --head-dim=8 raw.bin", ".json", "raw.bin"),
)]


def retitle(folder, name, file):
    """The manifest of in.npy as one of another file."""
    side = read_json(os.path.join(folder, "in.json"))
    side["file"] = file
    write_json(os.path.join(folder, name), side)


def make_inputs(place):
    def kvtool(words):
        p = run(*words.split(), folder=place)
        if p.returncode:
            bail(f"{words}: {p.stderr.decode()}")

    def take(source, name):
        copy = shutil.copytree if os.path.isdir(source) else shutil.copy
        copy(source, os.path.join(place, name))

    kvtool(f"slice -q --layers=0:2 --request=C -o in.npy {NHD}.npy")
    take(os.path.join(place, "in.npy"), "bare.npy")
    retitle(place, "m.json", "bare.npy")
    kvtool("convert -q in.npy in.h5")
    kvtool("convert -q in.npy state.safetensors")
    kvtool("convert -q in.npy to.npy")
    kvtool("convert -q --format=raw in.npy raw.bin")
    os.unlink(os.path.join(place, "raw.bin.json"))
    kvtool("relayout -q --to=hnd -o hnd.npy in.npy")
    for r in range(2):
        kvtool(f"slice -q --tp-size=2 --tp-rank={r} -o r{r}.npy in.npy")
    kvtool("mutate -q --fault=swap-kv,layer=1,block=39 -o bad.h5 in.npy")
    kvtool("expect write -o c.kvc in.npy")
    kvtool("relayout -q --to=hnd --shard=0/1 --shard-dir=parts -o whole.h5 in.h5")
    kvtool("reduce parts")
    take(os.path.join(S260K, "connector", "example_2026_07"), "conn")
    take(os.path.join(ENGINES, "vllm", "offload_tp1_vec_bs32", "root"), "rows")
    take(os.path.join(ROOT, "models", "llama-3.1-8b.json"), "model.json")
    take(os.path.join(ROOT, "testdata", "measured", "nixlbench.log"), "bench.csv")
    kvtool("transfer-sim calibrate -o link.json bench.csv")


def tree(folder):
    """Every name, and what is behind it."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(at, name)
            if os.path.islink(path):
                what = os.readlink(path)
            elif os.path.isdir(path):
                what = "folder"
            else:
                what = hashlib.md5(read_bytes(path)).hexdigest()
            found[os.path.relpath(path, folder)] = what
    return found


def opened(case, place, out):
    """Files and folders of 'place' that the run reads, which works."""
    # sanitizers want to be loaded first: then only what is said here
    if sanitized():
        return case.run(place, out), case.reads
    log = place + ".opened"
    p = case.run(place, out, env={"LD_PRELOAD": SHIM, "FAULT_OPENED": log})
    found = set()
    with open(log, encoding="utf-8", errors="replace") as f:
        for line in f:
            path = os.path.realpath(os.path.join(place, line.rstrip("\n")))
            inside = os.path.relpath(path, os.path.realpath(place))
            if not inside.startswith("..") and ".tmp-" not in inside:
                found.add(inside)
    os.unlink(log)
    # an operand that is a folder
    found.update(w + "/" for w in case.words.split() if os.path.isdir(os.path.join(place, w)))
    return p, {f for f in found if f.endswith("/") or os.path.isfile(os.path.join(place, f))}


def names_of(case, place, read):
    """Names of 'read', which links are made for; of a folder, names in it."""
    path = os.path.join(place, read)
    if read.endswith("/"):
        yield read + "new" + case.ending
        yield "./" + read + "new" + case.ending
        yield os.path.join(place, read, "new" + case.ending)
        os.symlink(read, os.path.join(place, "way"))
        yield "way/new" + case.ending
        below = [d for d in os.listdir(path) if os.path.isdir(os.path.join(path, d))]
        yield from (read + d + "/new" + case.ending for d in below[:1])
        return
    yield read
    yield "./" + read
    yield path
    os.symlink(".", os.path.join(place, "way"))
    yield "way/" + read
    os.link(path, os.path.join(place, "hard" + case.ending))
    yield "hard" + case.ending
    os.symlink(read, os.path.join(place, "soft" + case.ending))
    yield "soft" + case.ending


def refused(case, place, out, want, base):
    p = case.run(place, out)
    after = tree(place)
    # what breaks a contract is said before the report is written
    told = p.stderr.count(b"\n") == 1 or case.option == "report"
    if p.returncode == want and told and after == base:
        return None
    differs = [n for n in set(after) | set(base) if after.get(n) != base.get(n)]
    return f"{case.words} as {out}: status {p.returncode}: {p.stderr.decode()}{differs}"


class Beside(Case):
    """The same to a raw file: the manifest beside it is {out}.json."""

    def __init__(self, case):
        super().__init__(case.option, case.words.replace("=hdf5", "=raw"), ".json",
                         " ".join(case.reads))

    def run(self, place, out, **more):
        return super().run(place, out[:-5], **more)


def fresh(inputs, parent, name):
    place = os.path.join(parent, name)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(inputs, place, symlinks=True)
    return place


def try_case(inputs, parent, number, case):
    """(what was tried, what was wrong)"""
    place = fresh(inputs, parent, f"case{number}")
    before = tree(place)
    p, read = opened(case, place, "fresh" + case.ending)
    new = {n for n in tree(place) if n not in before}
    wrong = []
    if p.returncode not in (0, 1) or "fresh" + case.ending not in new:
        wrong.append(f"{case.words}: status {p.returncode}: {p.stderr.decode()}")
    if case.reads - read:
        wrong.append(f"{case.words}: does not read {case.reads - read} of {read}")
    # what is not of the input is replaced as always
    if case.option != "write-manifest" and not case.folder:
        write_bytes(os.path.join(place, "fresh" + case.ending), b"old")
        p = case.run(place, "fresh" + case.ending)
        if p.returncode not in (0, 1) or tree(place)["fresh" + case.ending] == \
                hashlib.md5(b"old").hexdigest():
            wrong.append(f"{case.words}: replaces nothing: {p.stderr.decode()}")
    tried = 0
    for one in [case] + [Beside(case)] * case.dump:
        for f in sorted(read):
            if isinstance(one, Beside) and not f.endswith(".json"):
                continue
            place = fresh(inputs, parent, f"case{number}")
            for out in names_of(one, place, f):
                if isinstance(one, Beside) and not os.path.exists(os.path.join(place, out)):
                    continue
                tried += 1
                # guess never replaces anything, and says that first
                again = refused(one, place, out, 2, tree(place))
                if again:
                    wrong.append(again)
                    place = fresh(inputs, parent, f"case{number}")
                    break
    shutil.rmtree(place)
    return tried, wrong


def check_cases(inputs, parent):
    total = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        work = [pool.submit(try_case, inputs, parent, n, c) for n, c in enumerate(CASES)]
        for case, one in zip(CASES, work):
            tried, wrong = one.result()
            total += tried
            tap.ok(tried and not wrong, f"{case.words}: {tried} names of what it reads",
                   "\n".join(wrong))
    tap.ok(total > 300, f"{total} outputs tried")

# ---- shards -------------------------------------------------------------------


def check_shards(inputs, parent):
    """Results of shards are what reduce reads; a shard writes into no folder it reads."""
    place = fresh(inputs, parent, "shards")
    part = "parts/part-0-000000.h5"
    for out in (part, "./" + part, "parts/job.json", "parts/000000.unit", "hard.h5"):
        place = fresh(inputs, parent, "shards")
        os.link(os.path.join(place, part), os.path.join(place, "hard.h5"))
        shutil.rmtree(os.path.join(place, "parts"))
        words = f"relayout -q -f --format=hdf5 --to=hnd -o {out} in.h5"
        run(*words.split(), "--shard=0/1", "--shard-dir=parts", folder=place)
        if out == "hard.h5":
            os.unlink(os.path.join(place, out))
            os.link(os.path.join(place, part), os.path.join(place, out))
        base = tree(place)
        for more in [], ["--one-file"]:
            p = run("reduce", *more, "parts", folder=place)
            tap.ok(p.returncode == 2 and tree(place) == base,
                   f"reduce {' '.join(more)} to {out}", p.stderr.decode())
    for folder in ("conn/new", "conn", "./conn/new"):
        place = fresh(inputs, parent, "shards")
        base = tree(place)
        p = run("digest", "--layout=nhd", "--block-size=16", "--shard=0/1",
                f"--shard-dir={folder}", "conn", folder=place)
        tap.ok(p.returncode == 2 and tree(place) == base, f"--shard-dir={folder} of conn",
               p.stderr.decode())

# ---- folders of outputs --------------------------------------------------------

OUT_DIR = {"convert": "--format=npy", "relayout": "--to=hnd", "slice": "--layers=0",
           "reblock": "--block-size=32"}


def check_out_dirs(inputs, parent):
    """Names of outputs follow from those of inputs: each way that one leads to an input."""
    def link(old, new):
        return lambda p: (os.mkdir(p + "/d"), os.link(f"{p}/{old}", f"{p}/d/{new}"))

    ways = {
        "the input's own folder": (".", lambda p: None),
        "a way to it": ("d", lambda p: os.symlink(".", p + "/d")),
        "a hard link": ("d", link("in.npy", "in.npy")),
        "a hard link of another input": ("d", link("hnd.npy", "in.npy")),
        "a hard link of the manifest": ("d", link("in.json", "in.json")),
        "a symbolic link": ("d", lambda p: (os.mkdir(p + "/d"),
                                            os.symlink("../hnd.npy", p + "/d/in.npy"))),
    }
    for command, option in OUT_DIR.items():
        for name, (folder, prepare) in ways.items():
            place = fresh(inputs, parent, "out-dir")
            prepare(place)
            base = tree(place)
            p = run(command, "-f", option, f"--out-dir={folder}", "in.npy", "hnd.npy",
                    folder=place)
            after = tree(place)
            tap.ok(p.returncode == 2 and all(after[n] == base[n] for n in base),
                   f"{command} --out-dir: {name}", p.stderr.decode())
        place = fresh(inputs, parent, "out-dir")
        p = run(command, option, "--out-dir=d", "in.npy", "hnd.npy", folder=place)
        tap.ok(not p.returncode and {"d/in.npy", "d/hnd.npy"} <= set(tree(place)),
               f"{command} --out-dir of a folder of its own", p.stderr.decode())

# ---- two outputs ----------------------------------------------------------------


def check_twins(inputs, parent):
    place = fresh(inputs, parent, "twins")
    os.symlink(".", os.path.join(place, "way"))
    base = tree(place)
    report = "transfer-sim report -f in.npy --dst=tp=2".split()
    names = ("--html", "--svg", "--trace-out")
    forms = ("x.html", "./x.html", "way/x.html", os.path.join(place, "x.html"))
    for i, a in enumerate(names):
        for b in names[i + 1:]:
            for form in forms:
                p = run(*report, f"{a}=x.html", f"{b}={form}", folder=place)
                tap.ok(p.returncode == 2 and p.stderr.count(b"\n") == 1 and
                       tree(place) == base, f"{a} and {b}={form}", p.stderr.decode())
    p = run(*report, "--html=-", "--svg=-", folder=place)
    tap.ok(p.returncode == 2 and not p.stdout, "standard output is one output", p.stderr)
    for other in ("junit", "tap"):
        p = run("expect", "check", "-f", "--report=tap=x", f"--report={other}=way/x",
                "c.kvc", "in.npy", folder=place)
        tap.ok(p.returncode == 2 and tree(place) == base, f"tap and {other} in one file",
               p.stderr.decode())
    p = run(*report, "--html=x.html", "--svg=x.svg", "--trace-out=x.json", folder=place)
    tap.ok(not p.returncode and {"x.html", "x.svg", "x.json"} <= set(tree(place)),
           "three names, three files", p.stderr.decode())


def main():
    need_program_and_data()
    check_options({(c.command, c.option) for c in CASES} |
                  {(c, "out-dir") for c in OUT_DIR})
    with workdir() as parent:
        inputs = os.path.join(parent, "inputs")
        os.mkdir(inputs)
        make_inputs(inputs)
        check_cases(inputs, parent)
        check_shards(inputs, parent)
        check_out_dirs(inputs, parent)
        check_twins(inputs, parent)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
