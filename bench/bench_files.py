#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench_files.py - kvtool on files, against cp and the scripts people write

Every command runs as a process of its own, warm cache, in turns (A B C A B C
...), so that a slow minute of the machine hits all of them.  Figures are the
median over the rounds; CPU and peak memory are the kernel's own accounting.
KVT_BENCH_MIB sets the size (1024), KVT_BENCH_DIR the place of the files,
KVT_BENCH_ROUNDS the number of rounds (3).  KVT_BENCH_OLD, a kvtool of another
version, takes turns in what checksums cost; "checksums" as the only argument asks for
that alone, "exec" for transfers, "fsck" for it beside digest, "cast" for other types beside
relayout, "ratios" for transfers and all else that is held against rows of kvtool's own or
the parts of a conversion.
"""
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("KVT_BUILD", os.path.join(ROOT, "build")))
KVTOOL = os.path.join(BUILD, "kvtool")
MIB = int(os.environ.get("KVT_BENCH_MIB", "1024"))
ROUNDS = int(os.environ.get("KVT_BENCH_ROUNDS", "3"))
LAYERS, SLOTS, HEADS, DIM = 32, 16, 8, 128
NPY_TO_H5 = "kvtool relayout npy to h5, --no-sync"
RECODED = "kvtool relayout h5 to rocm-paged, --no-sync"
BLOCKS = max(8, MIB * 2**20 // (LAYERS * SLOTS * HEADS * 2 * DIM * 2))


def bf16(np, x):
    """Round float32 to the bits of bfloat16, to nearest, ties to even."""
    u = x.view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def make_cache(path):
    """In a process of its own: what this one has touched would count as the peak
    memory of all its children."""
    subprocess.run([sys.executable, __file__, "--make", path], check=True)


def write_cache(path):
    """A cache with the statistics of keys and values: channels of different
    scale, keys with a mean that rotates with the position, independent noise."""
    import numpy as np

    shape = (LAYERS, BLOCKS, SLOTS, HEADS, 2, DIM)
    out = np.lib.format.open_memmap(path, "w+", "<u2", shape)
    rng = np.random.default_rng(7)
    turn = np.arange(BLOCKS * SLOTS)[:, None] * 10000.0 ** (-np.arange(DIM) / DIM)
    turn = np.cos(turn).astype(np.float32).reshape(BLOCKS, SLOTS, 1, DIM)
    for layer in range(LAYERS):
        scale = rng.lognormal(0, 0.7, (2, HEADS, DIM)).astype(np.float32)
        for kv in range(2):
            x = rng.standard_normal((BLOCKS, SLOTS, HEADS, DIM), dtype=np.float32)
            x *= scale[kv]
            if kv == 0:
                x += turn * scale[0] * 2
            out[layer, :, :, :, kv] = bf16(np, x)
    out.flush()


def run(command):
    """(wall seconds, CPU seconds, peak MiB) of one process that must succeed."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"bench: {' '.join(command)}: exit {process.returncode}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def remove(path):
    """The output of a round, and the manifest that an npy has beside it."""
    for name in (path, path and os.path.splitext(path)[0] + ".json"):
        if name and os.path.exists(name):
            os.unlink(name)


def parts_of(snapshot):
    """CPU seconds of one core: decompressing, permuting, compressing all of it."""
    done = subprocess.run([os.path.join(BUILD, "bench", "bench_codec"), "--parts",
                           snapshot], check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def print_floors(parts, copy, walls, cpus):
    """What the parts need if they are spread over all cores, and nothing else."""
    cores = len(os.sched_getaffinity(0))
    decode, permute, encode = (statistics.median(p) for p in zip(*parts))
    print(f"  CPU s of one core: decompress {decode:.2f}, permute {permute:.2f}, "
          f"compress {encode:.2f}, cp of the snapshot {copy:.2f}")
    for name, work in ((NPY_TO_H5, permute + encode),
                       (RECODED, decode + permute + encode)):
        floor = work + copy
        print(f"  {name}: {floor:.2f} CPU s of parts, kvtool {cpus[name]:.2f}: "
              f"{cpus[name] / floor:.2f}x; on {cores} cores {floor / cores:.2f} s, "
              f"kvtool {walls[name]:.2f} s: {walls[name] / floor * cores:.2f}x")
    print()


def print_ratios(walls, cpus, pairs):
    """(row, what it is measured by): how many times its wall time, and its CPU time."""
    for name, base in pairs:
        print(f"  {name}: {walls[name] / walls[base]:.2f} times {base} "
              f"(CPU {cpus[name] / cpus[base]:.2f})")
    print()


def table(title, rows, base, each_round=lambda: None):
    """rows: (name, command, output).  Each runs ROUNDS times, interleaved."""
    seen = {name: [] for name, _, _ in rows}
    for _ in range(ROUNDS):
        for name, command, output in rows:
            remove(output)
            seen[name].append(run(command))
        each_round()
    print(f"{title}\n  {'':44} {'wall s':>8} {'min':>7} {'CPU s':>7} "
          f"{'MiB':>6} {'x ' + base:>9}")
    wall = {n: statistics.median(r[0] for r in runs) for n, runs in seen.items()}
    cpu = {n: statistics.median(r[1] for r in runs) for n, runs in seen.items()}
    for name, runs in seen.items():
        print(f"  {name:44} {wall[name]:8.3f} {min(r[0] for r in runs):7.3f} "
              f"{cpu[name]:7.2f} {max(r[2] for r in runs):6.0f} "
              f"{wall[name] / wall[base]:8.2f}x")
    print()
    return wall, cpu


WHOLE_ARRAY = """
import h5py, numpy as np, sys
src, dst = sys.argv[1:]
with h5py.File(src) as f:
    d = f["groups/g0/data"]
    x = np.empty(d.shape, "u2"); d.id.read(h5py.h5s.ALL, h5py.h5s.ALL, x, mtype=d.id.get_type())
    y = np.ascontiguousarray(x.transpose(0, 1, 3, 2, 4, 5))
    with h5py.File(dst, "w") as g:
        g.create_dataset("data", data=y, chunks=(1, 8, 1, 16, 1, 128), shuffle=True,
                         compression=32015, compression_opts=(3,))
"""
BY_LAYER = """
import h5py, numpy as np, sys
src, dst = sys.argv[1:]
with h5py.File(src) as f, h5py.File(dst, "w") as g:
    d = f["groups/g0/data"]
    l, b, s, h, k, e = d.shape
    o = g.create_dataset("data", (l, b, h, s, k, e), "u2", chunks=(1, 8, 1, 16, 1, 128),
                         shuffle=True, compression=32015, compression_opts=(3,))
    x = np.empty((1,) + d.shape[1:], "u2")
    for i in range(l):
        sp = d.id.get_space(); sp.select_hyperslab((i, 0, 0, 0, 0, 0), x.shape)
        d.id.read(h5py.h5s.create_simple(x.shape), sp, x, mtype=d.id.get_type())
        o[i:i + 1] = x.transpose(0, 1, 3, 2, 4, 5)
"""
FROM_NPY = """
import h5py, numpy as np, sys
src, dst = sys.argv[1:]
x = np.load(src)
with h5py.File(dst, "w") as g:
    g.create_dataset("data", data=x.transpose(0, 1, 3, 2, 4, 5), chunks=(1, 8, 1, 16, 1, 128),
                     shuffle=True, compression=32015, compression_opts=(3,))
"""
READ_BITS = """
import h5py, numpy as np, sys
def bits(d, first, count):
    n = d.shape[:3] + (count,) + d.shape[4:]
    x = np.empty(n, "u2"); sp = d.id.get_space()
    sp.select_hyperslab((0, 0, 0, first, 0, 0), n)
    d.id.read(h5py.h5s.create_simple(n), sp, x, mtype=d.id.get_type())
    return x
def write(path, x):
    with h5py.File(path, "w") as g:
        g.create_dataset("data", data=x, chunks=(1, 8, 16, 1, 1, 128), shuffle=True,
                         compression=32015, compression_opts=(3,))
"""
ONE_RANK = READ_BITS + """
with h5py.File(sys.argv[1]) as f:
    d = f["groups/g0/data"]; h = d.shape[3] // 4
    write(sys.argv[2], bits(d, h, h))
"""
ALL_RANKS = READ_BITS + """
parts = []
for path in sys.argv[2:]:
    with h5py.File(path) as f:
        d = f["groups/g0/data"]; parts.append(bits(d, 0, d.shape[3]))
write(sys.argv[1], np.concatenate(parts, axis=3))
"""


REBLOCK = """
import h5py, numpy as np, sys
src, dst = sys.argv[1:]
with h5py.File(src) as f, h5py.File(dst, "w") as g:
    d = f["groups/g0/data"]
    l, b, s, h, k, e = d.shape
    o = g.create_dataset("data", (l, b // 4, 4 * s, h, k, e), "u2",
                         chunks=(1, 2, 4 * s, 1, 1, e), shuffle=True,
                         compression=32015, compression_opts=(3,))
    x = np.empty((1,) + d.shape[1:], "u2")
    for i in range(l):
        sp = d.id.get_space(); sp.select_hyperslab((i, 0, 0, 0, 0, 0), x.shape)
        d.id.read(h5py.h5s.create_simple(x.shape), sp, x, mtype=d.id.get_type())
        o[i:i + 1] = x.reshape(1, b // 4, 4 * s, h, k, e)
"""


def write_tables(path, npy):
    """Eight requests whose blocks lie scattered over the pool."""
    ids = list(range(1, BLOCKS))
    random.Random(5).shuffle(ids)
    each = len(ids) // 8
    with open(path, "w") as f:
        json.dump({"file": os.path.basename(npy), "layout": "nhd",
                   "dtype": "bfloat16", "null_block": 0,
                   "sizes": {"layers": LAYERS, "num_blocks": BLOCKS,
                             "block_size": SLOTS, "num_kv_heads": HEADS,
                             "head_dim": DIM},
                   "block_table": {str(r): ids[r * each:(r + 1) * each]
                                   for r in range(8)},
                   "num_tokens": {str(r): each * SLOTS - 5 for r in range(8)}}, f)


def python(script, *args):
    return ["/usr/bin/python3", "-c", script, *args]


def bench_ranks(at, nhd):
    """Stored tiles of one head each: nothing is decoded but by the scripts."""
    ranks = [at(f"rank{r}.h5") for r in range(4)]
    for r, path in enumerate(ranks):
        subprocess.run([KVTOOL, "slice", "-q", "--no-sync", "--tp-size=4",
                        f"--tp-rank={r}", "-o", path, nhd], check=True)
    one = [KVTOOL, "slice", "-q", "--tp-size=4", "--tp-rank=1", "-o"]
    table("slice: one TP rank of 4", [
        ("cp of the rank", ["cp", ranks[1], at("a")], at("a")),
        ("kvtool slice", [*one, at("s.h5"), nhd], at("s.h5")),
        ("kvtool slice --no-sync", [*one, at("t.h5"), "--no-sync", nhd], at("t.h5")),
        ("kvtool slice --for-transfer, 1 of 4 to 2 of 8",
         [KVTOOL, "slice", "-q", "--for-transfer", "--src-tp=4", "--src-rank=1",
          "--dst-tp=8", "--dst-rank=2", "-o", at("u.h5"), nhd], at("u.h5")),
        ("h5py + numpy", python(ONE_RANK, nhd, at("e.h5")), at("e.h5")),
    ], "kvtool slice")
    join = [KVTOOL, "merge", "-q", "-o"]
    table("merge of 4 ranks", [
        ("cp of the whole", ["cp", nhd, at("a")], at("a")),
        ("cat of the ranks", ["sh", "-c", 'o=$1; shift; cat "$@" >"$o"', "-", at("b"),
                              *ranks], at("b")),
        ("kvtool merge", [*join, at("m.h5"), *ranks], at("m.h5")),
        ("kvtool merge --no-sync", [*join, at("n.h5"), "--no-sync", *ranks],
         at("n.h5")),
        ("h5py + numpy", python(ALL_RANKS, at("e.h5"), *ranks), at("e.h5")),
    ], "kvtool merge")


RATIOS = sys.argv[1:] == ["ratios"]


def beside(*rows):
    """Rows that no ratio needs."""
    return () if RATIOS else rows


def bench_recoding(at, npy, nhd):
    """Every byte compressed: beside the parts that this is made of."""
    described = ["--layout=nhd", "--dtype=bfloat16"]
    parts = []
    walls, cpus = table("npy -> snapshot (every byte compressed)", [
        *beside(("cp of the npy", ["cp", npy, at("a")], at("a"))),
        ("cp of the snapshot", ["cp", nhd, at("b")], at("b")),
        *beside(("kvtool relayout npy to h5",
                 [KVTOOL, "relayout", "-q", *described, "--to=hnd", "-o", at("c.h5"),
                  npy], at("c.h5")),
                ("kvtool relayout npy to h5, one thread",
                 [KVTOOL, "relayout", "-q", "--threads=1", *described, "--to=hnd", "-o",
                  at("d.h5"), npy], at("d.h5"))),
        (NPY_TO_H5,
         [KVTOOL, "relayout", "-q", "--no-sync", *described, "--to=hnd", "-o",
          at("g.h5"), npy], at("g.h5")),
        (RECODED,
         [KVTOOL, "relayout", "-q", "--no-sync", "--to=rocm-paged", "-o",
          at("r.h5"), nhd], at("r.h5")),
        *beside(("kvtool relayout npy to npy",
                 [KVTOOL, "relayout", "-q", *described, "--to=hnd", "-o", at("n.npy"),
                  npy], at("n.npy")),
                ("h5py + numpy, same filters", python(FROM_NPY, npy, at("e.h5")),
                 at("e.h5"))),
    ], NPY_TO_H5, lambda: parts.append(parts_of(nhd)))
    print_floors(parts, cpus["cp of the snapshot"], walls, cpus)


def bench_reblock(at, npy, nhd):
    """Stored tiles that move, and blocks that lie anywhere."""
    write_tables(at("tables.json"), npy)
    used = at("used.h5")
    subprocess.run([KVTOOL, "convert", "-q", "--manifest", at("tables.json"), npy,
                    used], check=True)
    walls, cpus = table("blocks of 16 to blocks of 64", [
        *beside(("cp", ["cp", nhd, at("a")], at("a"))),
        ("kvtool reblock, a pool (moves stored tiles)",
         [KVTOOL, "reblock", "-q", "--block-size=64", "-o", at("c.h5"), nhd],
         at("c.h5")),
        *beside(("kvtool reblock --no-sync",
                 [KVTOOL, "reblock", "-q", "--no-sync", "--block-size=64", "-o",
                  at("g.h5"), nhd], at("g.h5")),
                ("kvtool reblock --no-sync --no-digest",
                 [KVTOOL, "reblock", "-q", "--no-sync", "--no-digest", "--block-size=64",
                  "-o", at("h.h5"), nhd], at("h.h5"))),
        ("kvtool reblock, scattered tables",
         [KVTOOL, "reblock", "-q", "--block-size=64", "-o", at("d.h5"), used],
         at("d.h5")),
        *beside(("h5py + numpy, a pool, layer by layer",
                 python(REBLOCK, nhd, at("f.h5")), at("f.h5"))),
    ], "kvtool reblock, a pool (moves stored tiles)")
    print_ratios(walls, cpus, [("kvtool reblock, scattered tables",
                                "kvtool reblock, a pool (moves stored tiles)")])


def bench_checking(at, npy, nhd):
    """All numbers looked at, and checksums, beside reading and hashing them."""
    plain = at("plain.h5")
    subprocess.run([KVTOOL, "convert", "-q", "--uncompressed", nhd, plain], check=True)
    rows, pairs = [], []
    for name, source in (("npy", ["--layout=nhd", "--dtype=bfloat16", npy]),
                         ("snapshot", [nhd]), ("uncompressed", [plain])):
        for command in ("digest", "fsck"):
            rows.append((f"kvtool {command}, {name}", [KVTOOL, command, "-q", *source],
                         None))
        pairs.append((f"kvtool fsck, {name}", f"kvtool digest, {name}"))
    walls, cpus = table("fsck beside digest", rows, "kvtool digest, snapshot")
    print_ratios(walls, cpus, pairs)
    os.unlink(plain)


def bench_cast(at, npy):
    """Numbers as another type beside a relayout of the same bytes."""
    described = ["--layout=nhd", "--dtype=bfloat16", npy]
    write = [KVTOOL, "relayout", "-q", "-f", "--no-sync", "--to=hnd", "-o"]
    base = "kvtool relayout npy to npy"
    rows = [("cp of the npy", ["cp", npy, at("a")], at("a")),
            (base, [*write, at("n.npy"), *described], at("n.npy"))]
    for name, options in (
            ("float16", ["--cache-dtype=float16"]),
            ("fp8, scale told", ["--cache-dtype=fp8", "--scale=0.05"]),
            ("fp8, scale=auto", ["--cache-dtype=fp8", "--scale=auto"]),
            ("fp8, scale=auto-heads", ["--cache-dtype=fp8", "--scale=auto-heads"]),
            ("fp8, scale told, one thread",
             ["--cache-dtype=fp8", "--scale=0.05", "--threads=1"]),
            ("nothing else, one thread", ["--threads=1"])):
        rows.append((f"the same as {name}", [*write, at("f.npy"), *options, *described],
                     at("f.npy")))
    convert = [KVTOOL, "convert", "-q", "-f", "--no-sync", "-o", at("q.npy")]
    rows.append(("kvtool convert npy to npy as q8_0/plain",
                 [*convert, "--cache-dtype=q8_0/plain", *described], at("q.npy")))
    walls, cpus = table("other types, NHD to HND", rows, base)
    print_ratios(walls, cpus, [(name, base) for name, _, _ in rows[2:]])


def bench_exec(at, npy):
    """One request that has every block, into another layout and TP size."""
    source, tables = at("source.npy"), at("source.json")
    os.link(npy, source)
    with open(tables, "w") as f:
        json.dump({"file": "source.npy", "layout": "nhd", "dtype": "bfloat16",
                   "sizes": {"layers": LAYERS, "num_blocks": BLOCKS,
                             "block_size": SLOTS, "num_kv_heads": HEADS,
                             "head_dim": DIM},
                   "block_table": {"A": list(range(BLOCKS))},
                   "num_tokens": {"A": BLOCKS * SLOTS}}, f)
    packed = at("source.h5")
    subprocess.run([KVTOOL, "convert", "-q", source, packed], check=True)
    run = [KVTOOL, "transfer-sim", "exec", "-q", "-f", "--no-sync", "-o"]
    relayout = [KVTOOL, "relayout", "-q", "-f", "--no-sync", "--verify", "--to=hnd", "-o"]
    dst = "--dst=layout=hnd,ids=random:1"
    tp4 = "--dst=layout=hnd,tp=4,block-size=64"
    by_npy = "kvtool relayout --verify npy to npy"
    by_h5 = "kvtool relayout --verify h5 to h5"
    walls, cpus = table("transfer-sim exec, every byte moved, written and verified", [
        ("cp of the npy", ["cp", source, at("a")], at("a")),
        (by_npy, [*relayout, at("n.npy"), source], at("n.npy")),
        ("exec npy to npy", [*run, at("x.npy"), dst, source],
         at("x.npy")),
        ("exec npy to 4 ranks, blocks of 64",
         [*run, at("y%r.npy"), tp4, source], at("y0.npy")),
        (by_h5, [*relayout, at("n.h5"), packed], at("n.h5")),
        ("exec h5 to h5", [*run, at("x.h5"), dst, packed],
         at("x.h5")),
        ("exec h5 to 4 ranks, blocks of 64", [*run, at("y%r.h5"), tp4, packed],
         at("y0.h5")),
    ], by_npy)
    print_ratios(walls, cpus, [("exec npy to npy", by_npy),
                               ("exec npy to 4 ranks, blocks of 64", by_npy),
                               ("exec h5 to h5", by_h5),
                               ("exec h5 to 4 ranks, blocks of 64", by_h5)])


def bench_ratios(at, npy, nhd):
    """What kvtool takes beside what it cannot do without, without scripts."""
    subprocess.run([KVTOOL, "convert", "-q", "--layout=nhd", "--dtype=bfloat16", npy,
                    nhd], check=True)
    bench_recoding(at, npy, nhd)
    for name in ("b", "g.h5", "r.h5"):
        remove(at(name))
    bench_reblock(at, npy, nhd)
    for name in ("c.h5", "d.h5", "used.h5"):
        remove(at(name))
    bench_exec(at, npy)


def bench_checksums(at, npy):
    """What it costs to hold what is read against checksums, and to make them."""
    described = ["--layout=nhd", "--dtype=bfloat16"]
    rows = []
    for tool, mark in ((os.environ.get("KVT_BENCH_OLD"), "old "), (KVTOOL, "")):
        if not tool:
            continue
        packed, plain = at(f"{mark.strip()}packed.h5"), at(f"{mark.strip()}plain.h5")
        for path, how in ((packed, []), (plain, ["--uncompressed"])):
            subprocess.run([tool, "convert", "-q", *how, *described, npy, path],
                           check=True)
        write = [tool, "relayout", "-q", "--no-sync", "--to=hnd", "-o", at("o.h5")]
        rows += [
            (f"{mark}relayout, stored tiles", [*write, packed], at("o.h5")),
            (f"{mark}relayout, uncompressed", [*write, "--uncompressed", plain],
             at("o.h5")),
            (f"{mark}digest, compressed", [tool, "digest", "-q", packed], None),
            (f"{mark}digest, uncompressed", [tool, "digest", "-q", plain], None),
        ]
    # what is compared stands together
    rows.sort(key=lambda row: row[0].removeprefix("old "))
    table("checksums of what is read and written", rows, "digest, compressed")


def main():
    base = os.environ.get("KVT_BENCH_DIR")
    work = tempfile.mkdtemp(prefix="kvt-bench-", dir=base)
    os.environ["HDF5_PLUGIN_PATH"] = os.path.join(BUILD, "plugin")

    def at(name):
        return os.path.join(work, name)

    try:
        npy, nhd = at("nhd.npy"), at("nhd.h5")
        make_cache(npy)
        if sys.argv[1:] == ["exec"]:
            bench_exec(at, npy)
            return
        if sys.argv[1:] == ["cast"]:
            bench_cast(at, npy)
            return
        if sys.argv[1:] == ["ratios"]:
            bench_ratios(at, npy, nhd)
            return
        described = ["--layout=nhd", "--dtype=bfloat16"]
        if sys.argv[1:] == ["fsck"]:
            subprocess.run([KVTOOL, "convert", "-q", *described, npy, nhd], check=True)
            bench_checking(at, npy, nhd)
            return
        bench_checksums(at, npy)
        if sys.argv[1:] == ["checksums"]:
            return
        subprocess.run([KVTOOL, "convert", "-q", *described, npy, nhd], check=True)
        raw, packed = os.path.getsize(npy), os.path.getsize(nhd)
        print(f"cache: bf16 [{LAYERS},{BLOCKS},{SLOTS},{HEADS},2,{DIM}], "
              f"{raw / 2**20:.0f} MiB, snapshot {packed / 2**20:.0f} MiB "
              f"(ratio {raw / packed:.3f}); {ROUNDS} rounds, median\n")

        table("NHD -> HND, snapshot to snapshot", [
            ("cp", ["cp", nhd, at("a")], at("a")),
            ("cp, then sync", ["sh", "-c", 'cp "$0" "$1" && sync "$1"', nhd, at("b")],
             at("b")),
            ("kvtool relayout (moves stored tiles)",
             [KVTOOL, "relayout", "-q", "--to=hnd", "-o", at("c.h5"), nhd], at("c.h5")),
            ("kvtool relayout --no-sync",
             [KVTOOL, "relayout", "-q", "--no-sync", "--to=hnd", "-o", at("g.h5"), nhd],
             at("g.h5")),
            ("kvtool relayout, one thread",
             [KVTOOL, "relayout", "-q", "--threads=1", "--to=hnd", "-o", at("d.h5"),
              nhd], at("d.h5")),
            ("h5py + numpy, whole array", python(WHOLE_ARRAY, nhd, at("e.h5")),
             at("e.h5")),
            ("h5py + numpy, layer by layer", python(BY_LAYER, nhd, at("f.h5")),
             at("f.h5")),
        ], "kvtool relayout (moves stored tiles)")

        bench_recoding(at, npy, nhd)
        bench_reblock(at, npy, nhd)

        for name in os.listdir(work):
            if name not in ("nhd.npy", "nhd.h5"):
                os.unlink(at(name))
        bench_ranks(at, nhd)
        for name in os.listdir(work):
            if name not in ("nhd.npy", "nhd.h5"):
                os.unlink(at(name))
        bench_exec(at, npy)
        for name in os.listdir(work):
            if name not in ("nhd.npy", "nhd.h5"):
                os.unlink(at(name))
        bench_cast(at, npy)
        for name in os.listdir(work):
            if name not in ("nhd.npy", "nhd.h5"):
                os.unlink(at(name))
        bench_checking(at, npy, nhd)
        table("reading", [
            ("cat of the snapshot", ["cat", nhd], None),
            ("kvtool digest, snapshot", [KVTOOL, "digest", "-q", nhd], None),
            ("kvtool digest, npy", [KVTOOL, "digest", "-q", *described, npy], None),
            ("kvtool describe --verify", [KVTOOL, "describe", "--verify", nhd], None),
            ("kvtool describe", [KVTOOL, "describe", nhd], None),
            ("h5dump -H", ["h5dump", "-H", nhd], None),
            ("kvtool --version", [KVTOOL, "--version"], None),
        ], "kvtool describe")

        hnd, plain, again = at("hnd.h5"), at("plain.h5"), at("again.h5")
        subprocess.run([KVTOOL, "relayout", "-q", "--to=hnd", "-o", hnd, nhd], check=True)
        for name in (plain, again):
            subprocess.run([KVTOOL, "convert", "-q", "--uncompressed", nhd, name],
                           check=True)
        rows = [
            ("kvtool diff, full depth, NHD and HND",
             [KVTOOL, "diff", "-q", "--deep", nhd, hnd], None),
            ("kvtool diff, by digest, NHD and HND", [KVTOOL, "diff", "-q", nhd, hnd],
             None),
            ("kvtool diff, full depth, one thread",
             [KVTOOL, "diff", "-q", "--deep", "--threads=1", nhd, hnd], None),
            ("kvtool diff, full depth, npy and HND",
             [KVTOOL, "diff", "-q", "--deep", *described, npy, hnd], None),
            ("cmp of two copies, uncompressed", ["cmp", plain, again], None),
        ]
        if shutil.which("h5diff"):
            # it cannot compare two layouts: these are twice the same
            rows += [("h5diff, uncompressed, NHD twice", ["h5diff", plain, again], None)]
        table("equal snapshots", rows, "kvtool diff, full depth, NHD and HND")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        write_cache(sys.argv[2])
    else:
        main()
