#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_shards.py - shards of a command, joined, are the command

The plain run is the oracle: for each command and each number of shards, in any order,
kvtool reduce must print the same bytes and end with the same status.  What units there
must be is worked out here from the sizes of the data.  Virtual datasets are read by h5py.
Shards are killed at random times (KVT_KILLS of them) and run again; how many units are
done again is counted.
"""
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time

import numpy as np
import xxhash

from oracle import (DATA, FEW, KVTOOL, flip, kvtool, read_bytes, read_json, run, sizes,
                    tap, write_bytes, write_json)

LAYERS, BLOCKS, HEADS, SLOTS, DIM = 5, 160, 4, 64, 128
KILLS = int(os.environ.get("KVT_KILLS", "1" if FEW else "4"))
COUNTS = (3,) if FEW else (1, 2, 3, 7)
MIB = 1 << 20


def make_data():
    """Files that are mostly zeros: 5 layers of 25 MiB, one with other numbers."""
    rng = np.random.default_rng(5)
    shape = (LAYERS, BLOCKS, 2, HEADS, SLOTS, DIM)
    a = np.zeros(shape, np.uint16)
    a[:, ::7] = rng.integers(0x3C00, 0x4000, a[:, ::7].shape, np.uint16)
    np.save("a.npy", a)
    blocks = rng.permutation(np.arange(1, BLOCKS)).tolist()
    manifest = {"file": "a.npy", "layout": "L B K H S D", "dtype": "float16",
                "sizes": sizes(L=LAYERS, B=BLOCKS, S=SLOTS, H=HEADS, D=DIM),
                "block_table": {"A": blocks[:40], "B": blocks[30:90]},
                "num_tokens": {"A": 40 * SLOTS - 3, "B": 60 * SLOTS}, "null_block": 0}
    write_json("a.json", manifest)
    b = a.copy()
    b[3, 150, 1, 2, 9, 77] = 0x5000
    np.save("b.npy", b)
    manifest["file"] = "b.npy"
    write_json("b.json", manifest)
    os.link("b.npy", "c.npy")
    manifest["file"] = "c.npy"          # under other names
    for key in ("block_table", "num_tokens"):
        manifest[key] = {f"run-{k}": v for k, v in manifest[key].items()}
    write_json("c.json", manifest)
    for r in range(2):
        must("slice", "-q", f"--tp={r}/2", "-o", f"r{r}.h5", "a.npy")
    shutil.copy("r0.h5", "damaged.h5")
    flip("damaged.h5")
    write_bytes("short.h5", read_bytes("r0.h5")[:100])
    must("expect", "write", "--digest", "-q", "-o", "r0.kvc", "r0.h5")
    return a


def must(*args):
    r = kvtool(*args)
    if r.code:
        raise SystemExit(f"Bail out! {r}")
    return r


def shard(words, i, n, folder="d"):
    return kvtool(*words, f"--shard={i}/{n}", f"--shard-dir={folder}")


def shards(words, n, folder="d"):
    shutil.rmtree(folder, ignore_errors=True)
    for i in random.sample(range(n), n):
        r = shard(words, i, n, folder)
        # a dump that is none is said by each shard, too, which does the others
        if r.code != (3 if "short.h5" in words else 0):
            return r
    return None


def same(words, counts=COUNTS):
    plain = kvtool(*words)
    for n in counts:
        bad = shards(words, n)
        got = bad or kvtool("reduce", "d")
        tap.ok(not bad and (got.code, got.out, got.err) ==
               (plain.code, plain.out, plain.err),
               f"{' '.join(words)}: {n} shards say the same, status {plain.code}",
               f"{got}\n--- plain\n{plain}")


COMMANDS = [
    "digest r0.h5 a.npy r1.h5",
    "digest --json --by=block a.npy",
    "digest --by=request damaged.h5 r1.h5",
    "digest short.h5 a.npy",
    "diff --json a.npy b.npy",
    "diff --json --table=layer,head,token,dim,kv,block,request a.npy b.npy",
    "diff --table=token,dim,request --by=tokens r0.h5 : b.npy --common",
    "diff --tolerance=atol=1,cosine=0.5 a.npy b.npy",
    "diff a.npy : r0.h5 r1.h5",
    "diff a.npy c.npy",
    "diff -q b.npy a.npy",
    "fsck --json r0.h5 r1.h5 damaged.h5",
    "fsck a.npy r1.h5",
    "expect check --json r0.kvc r0.h5 r1.h5 damaged.h5",
    "transfer-sim sweep --json -m llama-3.1-8b --tps=2:4 --stage=1M --copy-rate=9",
]


def units_of(folder):
    out = []
    for path in sorted(glob.glob(f"{folder}/*.unit")):
        with open(path, "rb") as f:
            out.append(json.loads(f.readline()))
    return out


def check_list():
    """128 MiB in a file are units of 64 MiB of 4 MiB boxes: each box is in one."""
    shards(["digest", "a.npy", "b.npy"], 3)
    job = read_json("d/job.json")
    per_pass = {}
    for u in units_of("d"):
        per_pass.setdefault((u["input"], u["part"]), []).append((u["begin"], u["end"]))
    size = LAYERS * BLOCKS * 2 * HEADS * SLOTS * DIM * 2
    tap.equal(job["bytes"], 2 * size, "the list has the bytes of the data")
    tap.equal(job["unit_bytes"], 64 * MIB, "units are of 64 MiB")
    for key, ranges in per_pass.items():
        flat = [b for begin, end in sorted(ranges) for b in range(begin, end)]
        tap.ok(len(ranges) > 1 and flat == list(range(len(flat))),
               f"pass {key}: each box is in one unit", ranges)
    before = {p: open(p, "rb").read() for p in glob.glob("d/*.unit")}
    shards(["digest", "a.npy", "b.npy"], 5, "other")
    after = {p.replace("other", "d"): open(p, "rb").read()
             for p in glob.glob("other/*.unit")}
    tap.ok(before == after, "units do not depend on the number of shards")


def refused(name, want, *args):
    r = kvtool(*args)
    tap.ok(r.code == 3 and want in r.err and r.err.count("\n") == 1 and not r.out,
           f"refused: {name}", r)


def forged(unit, change, nbytes=None):
    """With another header, so many bytes of its result, and the digest of that."""
    header, rest = unit[:-33].split(b"\n", 1)
    header = json.dumps({**json.loads(header), **change}, separators=(",", ":")).encode()
    data = header + b"\n" + rest[:nbytes]
    return data + xxhash.xxh3_128_hexdigest(data).encode() + b"\n"


def check_refusals():
    words = ["digest", "a.npy", "b.npy"]
    shards(words, 2)
    path = sorted(glob.glob("d/*.unit"))[1]
    good = open(path, "rb").read()
    os.remove(path)
    refused("a unit is missing", "unit 1 of 4 is not done", "reduce", "d")
    for at in range(0, len(good), max(1, len(good) // 5)):
        bad = bytearray(good)
        bad[at] ^= 4
        write_bytes(path, bad)
        refused(f"byte {at} of a unit is another", "unit 1 of 4", "reduce", "d")
    write_bytes(path, good[:-20])
    refused("a unit is cut short", "digest", "reduce", "d")
    r = shard(words, 0, 2)
    tap.ok("1 done now, 1 before" in r.out, "its shard does that unit, and no other", r)
    shards(["digest", "b.npy", "a.npy"], 2, "e")
    refused("folders of two commands", "different commands", "reduce", "d", "e")
    refused("a folder that is given twice", "both in d and in ./d", "reduce", "d", "./d")
    refused("no folder of shards", "job.json", "reduce", ".")
    r = shard(["digest", "b.npy"], 0, 2)
    tap.ok(r.code == 3 and "another command" in r.err, "another command in the folder", r)
    os.utime("b.npy", (1, 1))
    refused("an input that has changed", "inputs have changed", "reduce", "d")
    r = shard(words, 0, 2)
    tap.ok(r.code == 3 and "have changed" in r.err, "and by its shard", r)


def check_again():
    """What cannot be opened has no list; what could not be read is read again."""
    shutil.rmtree("d", ignore_errors=True)
    r = kvtool("digest", "--shard=0/1", "--shard-dir=d", "later.npy", "a.npy")
    tap.ok(r.code == 5 and "later.npy: cannot open" in r.err and not os.path.exists("d"),
           "a file that is not there: nothing is begun", r)
    words = ["digest", "damaged.h5"]
    r = shard(words, 0, 1)
    tap.ok(" 1 done now, 0 before" in r.out, "a unit with damaged data is done", r)
    tap.equal(kvtool("reduce", "d").code, 3, "its verdict is that of all")
    r = shard(words, 0, 1)
    tap.ok(" 1 done now, 0 before" in r.out, "and it is done again", r)


def check_hostile():
    """Results with other bytes and a right digest say something, and crash nothing."""
    rng = random.Random(9)
    real = f"{DATA}/s260k/paged_bs16/packed_nhd.bf16.npy"
    must("mutate", "-q", "--fault=swap-heads,a=0,b=2", real, "faulty.npy")
    for text in (f"diff --json {real} faulty.npy", "fsck r0.h5 a.npy", "digest a.npy",
                 "transfer-sim sweep --json -m llama-3.1-8b --tps=2:4"):
        shards(text.split(), 1)
        units = sorted(glob.glob("d/*.measuring.unit") or glob.glob("d/*.unit"))
        bad = []
        for _ in range(60):
            path = rng.choice(units)
            good = open(path, "rb").read()
            unit = bytearray(good)
            begin, end = good.index(b"\n") + 1, len(good) - 33
            for _ in range(rng.randint(1, 4)):
                # of diff, elements are at the end
                at = rng.randrange(rng.choice((begin, max(begin, end - 500))), end)
                unit[at] = rng.choice((0, 127, 128, 255, rng.randrange(256)))
            write_bytes(path, forged(bytes(unit), {}))
            r = kvtool("reduce", "d")
            if r.code not in (0, 1, 3):
                bad.append(r)
            write_bytes(path, good)
        tap.ok(not bad, f"{text}: 60 forged results", "\n".join(map(str, bad[:2])))


def check_headers():
    """A header that does not fit the list, or its bytes, is none of this unit."""
    shards(["digest", "a.npy", "b.npy"], 1)
    path = "d/000001.unit"
    good = open(path, "rb").read()
    tap.equal(forged(good, {}), good, "a unit is what forged() makes")
    for change in ({"begin": 0}, {"begin": -1}, {"end": 1 << 62}, {"bytes": 2**63 - 1},
                   {"bytes": -8}, {"status": 2**32}, {"status": 77}, {"status": 5},
                   {"begin": 2**63 - 1, "end": 2**63 - 1}, {"end": 16}, {"pass": "other"},
                   {"pass": None}, {"unit": 2}, {"job": ""}, {"status": -1},
                   {"begin": 10**7, "end": 10**7 + 1}):
        write_bytes(path, forged(good, change))
        refused(f"a unit with {change}", "unit 1 of 4", "reduce", "d")
    nbytes = len(good[:-33].split(b"\n", 1)[1])
    for cut in (8, 16, nbytes - 8):
        write_bytes(path, forged(good, {"bytes": cut}, cut))
        r = kvtool("reduce", "d")
        tap.ok(r.code == 3 and "a.npy: hashing: the result of boxes 16 to" in r.err and
               "a.npy" not in r.out, f"a unit with {cut} bytes of its result", r)


def virtual(name, *sources, axes=None):
    """The snapshot in parts, whose data are these (path, dataset, shape, box) instead."""
    import h5py
    shutil.copy("out.h5", name)
    with h5py.File(name, "r+") as f:
        old = f["groups/g0/data"]
        layout = h5py.VirtualLayout(old.shape, old.dtype)
        for path, dataset, shape, box in sources:
            layout[box] = h5py.VirtualSource(path, dataset, shape)
        kept = dict(old.attrs)
        del f["groups/g0/data"]
        new = f["groups/g0"].create_virtual_dataset("data", layout)
        for key, value in kept.items():
            new.attrs[key] = value
    return kvtool("digest", name)


def check_virtual():
    """Files that name other files: only snapshots below their folder, as boxes."""
    import h5py
    clear()
    words = "convert a.npy out.h5".split()
    must(*words)
    plain = must("digest", "out.h5").out
    clear()
    shards(words, 2)
    must("reduce", "d")
    with h5py.File("out.h5") as f:
        bounds = [(s, *s.vspace.get_select_bounds())
                  for s in f["groups/g0/data"].virtual_sources()]
    sources = [(s.file_name, s.dset_name, tuple(h - l + 1 for l, h in zip(low, high)),
                tuple(slice(l, h + 1) for l, h in zip(low, high)))
               for s, low, high in bounds]
    same = virtual("again.h5", *sources)
    tap.ok(len(sources) > 1 and same.out == plain.replace("out.h5", "again.h5"),
           "what h5py wrote again is the same", f"{plain}\n{same}")
    path, dataset, shape, box = sources[0]
    rest = sources[1:]
    nan = [("nested", [("out.h5", "/groups/g0/data", (LAYERS,) + shape[1:], (
        slice(0, LAYERS),) + box[1:])], "virtual dataset is of a virtual dataset"),
           ("itself", [("itself.h5", "/groups/g0/data", (LAYERS,) + shape[1:], (
               slice(0, LAYERS),) + box[1:])], "not in its file's folder"),
           ("root", [(os.path.abspath(path), dataset, shape, box), *rest],
            "not in its file's folder"),
           ("upwards", [(f"d/../{path}", dataset, shape, box), *rest], "not in its file's folder"),
           ("missing", rest, "the parts have"),
           ("twice", [*sources[:2], sources[1], *sources[2:]], "two parts have"),
           ("swapped", [(path, dataset, shape, (slice(LAYERS - shape[0], LAYERS),) + box[1:]),
                        (*rest[0][:3], (slice(0, LAYERS - shape[0]),) + box[1:])],
            "other layers or blocks"),
           ("other", [(path, "/groups/g1/data", shape, box), *rest], "not its one group"),
           ("gone", [("d/gone.h5", dataset, shape, box), *rest], "cannot open")]
    for name, these, sentence in nan:
        r = virtual(f"{name}.h5", *these)
        tap.ok(r.code in (3, 4, 5) and sentence in r.err and not r.out and
               r.err.count("\n") == 1, f"virtual datasets: {name}: refused", r)
    flip(path)
    r = kvtool("digest", "out.h5")
    tap.ok(r.code == 3 and not r.out and path in r.err, "damage in a part is found", r)
    os.unlink(path)
    shutil.copy("r0.h5", path)
    r = kvtool("digest", "out.h5")
    tap.ok(r.code in (3, 4) and not r.out, "so is another file in its place", r)


def check_written(a):
    import h5py
    os.environ.setdefault("HDF5_PLUGIN_PATH", must("--plugin-dir").out.strip())
    cases = [
        ("convert a.npy out.h5", lambda x: a),
        ("relayout --to=hnd --verify a.npy out.h5", None),
        ("reblock --block-size=32 --verify a.npy out.h5", None),
        ("slice --layers=1:4 --verify a.npy out.h5", lambda x: a[1:4]),
        ("convert --uncompressed a.npy out.h5", lambda x: a),
        ("merge -o out.h5 r0.h5 r1.h5", lambda x: a),
        ("convert a.npy out.safetensors", None),
        ("copy-blocks --blocks=3:9 -o out.npy a.npy b.npy", None),
    ]
    for text, want in cases:
        words = text.split()
        out = [w for w in words if w.startswith("out.")][0]
        for n in (3,) if FEW else (1, 3):
            clear()
            must(*words)
            os.rename(out, "plain")
            clear()
            bad = shards(words, n)
            virtual = None
            if out == "out.h5":
                virtual = kvtool("reduce", "d")
                r = kvtool("diff", "--deep", out, "plain")
                one, two = ([kvtool(c, x).out.replace(x, "") for c in ("digest", "fsck")]
                            for x in (out, "plain"))
                tap.ok(not r.code and one == two,
                       f"{text}: kvtool reads the parts of {n} as one dump",
                       f"{r}\n{one}\n{two}")
                if want:
                    with h5py.File(out) as f:
                        x = f["groups/g0/data"][...]
                    tap.ok(np.array_equal(x.view(np.uint16), want(x)),
                           f"{text}: h5py reads the parts of {n} as one array")
                clear()
            one = kvtool("reduce", "--one-file", "d")
            tap.ok(not bad and not one.code and (not virtual or not virtual.code) and
                   open(out, "rb").read() == open("plain", "rb").read(),
                   f"{text}: one file of {n} shards has the same bytes", bad or one)
            os.remove("plain")
    check_virtual()
    clear()
    shards("convert a.npy out.h5".split(), 2)
    part = sorted(glob.glob("d/part-*.h5"))[0]
    flip(part)
    refused("a part that has changed", "not what was written", "reduce", "d")
    r = shard("convert a.npy out.h5".split(), 0, 2)
    tap.ok("1 done now" in r.out, "its shard writes that part again", r)


def clear():
    for name in glob.glob("out.*"):
        os.remove(name)


def check_kills():
    """What a killed shard has done is not done again, and all is what it was."""
    words = ["digest", "a.npy", "b.npy", "r0.h5", "r1.h5"]
    plain = kvtool(*words)
    shutil.rmtree("d", ignore_errors=True)
    began = time.time()
    shard(words, 1, 2)
    takes = time.time() - began
    rng = random.Random(11)
    redone = 0
    for k in range(KILLS):
        shutil.rmtree("d")
        shard(words, 0, 2)
        before = len(units_of("d"))
        p = subprocess.Popen([KVTOOL, *words, "--shard=1/2", "--shard-dir=d"],
                             stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, takes))
        p.send_signal(signal.SIGKILL)
        p.wait()
        had = len(units_of("d")) - before
        r = kvtool(*words, "--json", "--shard=1/2", "--shard-dir=d")
        tap.ok(r.code == 3, "with another option it is another command", r)
        r = shard(words, 1, 2)
        now = len(units_of("d")) - before
        line = f"{now - had} done now, {had} before"
        got = kvtool("reduce", "d")
        redone += now - had
        tap.ok(line in r.out and (got.out, got.code) == (plain.out, 0),
               f"killed after {had} of {now} units: only the others are done again",
               f"{r}\n{got}")
    print(f"# {redone} units done after {KILLS} kills")


def main():
    random.seed(3)
    with tempfile.TemporaryDirectory() as folder:      # too much for memory
        os.chdir(folder)
        a = make_data()
        for text in COMMANDS:
            same(text.split())
        check_list()
        check_headers()
        check_written(a)
        check_kills()
        check_refusals()
        check_again()
        check_hostile()
        os.chdir("/")


run(main)
