#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_llama_engine.py - states that llama.cpp wrote, and made ones of the same
kinds, are read cell by cell: what a reader of this file's own finds there, and the
arrays that were taken from the engine's memory, are what kvtool hands on
"""
import glob
import os
import random
import struct
import sys

import numpy as np

import oracle
from foreign_files import (F16, F32, Q8_0, Cells, ggsn_bytes, ggsq_bytes, memory_bytes,
                           recurrent_bytes, sequence_bytes)
from oracle import kvtool, read_bytes, refused, tap, write_bytes

ENGINES = f"{os.path.dirname(oracle.DATA)}/engines"
GGSN, GGSQ, SEQUENCE = 0x6767736e, 0x67677371, 0xaf143cd8


# ---- a reader of our own ----------------------------------------------------

class State:
    """caches: [{(stream, cell): (position, ids, k rows, v rows)}], states likewise"""

    def __init__(self, data, caches, values=True, recurrent=False, extra=0,
                 outputs=False):
        self.d, self.o, self.extra = data, 0, extra
        magic = self.take("<I")
        self.whole, self.owner = magic == GGSN, 0
        self.tokens, self.arch = [], ""
        if magic in (GGSN, GGSQ):
            self.take("<I")
            n = self.take("<I")
            self.tokens = [self.take("<i") for _ in range(n)]
        elif magic == SEQUENCE:
            self.owner = self.take("<i")
        else:
            self.o = 0
        if self.whole:
            self.arch = self.skip(self.take("<I")).decode()
        if outputs:
            self.skip(4 * self.take("<I"))
            self.skip(4 * self.take("<Q"))
            self.skip(4 * self.take("<Q"))
        self.caches = [self.cache(values) for _ in range(caches)]
        self.states = self.recurrent() if recurrent else {}
        assert self.o == len(data), "the reader of this test is wrong"
        named = [i for c in self.caches for x in c.values() for i in x[1]]
        if named and not self.whole:
            self.owner = named[0]
        for c in [*self.caches, self.states]:
            for x in c.values():
                x[1].extend([] if x[1] else [self.owner])

    def take(self, form):
        (v,) = struct.unpack_from(form, self.d, self.o)
        self.o += struct.calcsize(form)
        return v

    def skip(self, n):
        self.o += n
        return self.d[self.o - n:self.o]

    def cells(self, n, extra):
        out = []
        for _ in range(n):
            position, ids = self.take("<i"), self.take("<I")
            self.skip(extra)
            out.append((position, [self.take("<i") for _ in range(ids)]))
        return out

    def cache(self, values):
        out = {}
        for stream in range(self.take("<I")):
            n = self.take("<I")
            if not n:
                continue
            cells = self.cells(n, self.extra)
            turned, layers = self.take("<I"), self.take("<I")
            k, v = [], []
            for _ in range(layers):
                self.take("<i")
                k.append(self.rows(self.take("<Q"), n))
            for _ in range(layers if values else 0):
                self.take("<i")
                if not turned:
                    v.append(self.rows(self.take("<Q"), n))
                    continue
                elem, width = self.take("<I"), self.take("<I")
                a = np.frombuffer(self.skip(elem * width * n), f"V{elem}")
                v.append([x.tobytes() for x in a.reshape(width, n).T])
            for i, (position, ids) in enumerate(cells):
                out[stream, i] = (position, ids, [x[i] for x in k], [x[i] for x in v])
        return out

    def rows(self, width, n):
        return [self.skip(width) for _ in range(n)]

    def recurrent(self):
        n = self.take("<I")
        cells, rows = self.cells(n, 0), []
        self.take("<I")
        self.take("<I")
        while self.o < len(self.d):
            self.take("<i")
            rows.append(self.rows(self.take("<Q"), n))
        half = len(rows) // 2
        return {(0, i): (p, ids, [x[i] for x in rows[:half]],
                         [x[i] for x in rows[half:]])
                for i, (p, ids) in enumerate(cells)}

    def sequences(self):
        return sorted({i for c in [*self.caches, self.states]
                       for x in c.values() for i in x[1]})

    def of(self, cache, sequence):
        """position: (key of the cell, k, v)"""
        return {x[0]: (key, x[2], x[3]) for key, x in self.caches[cache].items()
                if sequence in x[1]}

    def span(self, sequence):
        at = [p for i in range(len(self.caches)) for p in self.of(i, sequence)]
        if at:
            return min(at), max(at) + 1
        return 0, 1 + max(x[0] for x in self.states.values() if sequence in x[1])


# ---- what kvtool makes of it ------------------------------------------------

def runs(missing):
    out = []
    for p in sorted(missing):
        if out and out[-1][1] == p:
            out[-1][1] = p + 1
        else:
            out.append([p, p + 1])
    return out


class Read:
    """The dump that kvtool writes of a state, groups as [L, kv, B, S, bytes]."""

    def __init__(self, path, tmp, options):
        out = f"{tmp}/read.safetensors"
        self.r = kvtool("relayout", "-q", "-f", "--to=kv-first-nhd", "-o", out,
                        *options, path)
        self.good = self.r.code == 0
        if not self.good:
            return
        self.m, groups = oracle.written_groups(out)
        self.group = {name: g for name, (g, _) in groups.items()}
        self.bytes = {}
        for name, (g, (_, _, raw)) in groups.items():
            n = g.get("sizes") or self.m["sizes"]
            blocks = n["num_blocks"]
            if name in ("r", "s"):
                self.bytes[name] = np.frombuffer(raw, np.uint8).reshape(
                    n["layers"], blocks, -1)
                continue
            kv = 1 if g["kind"] == "mla" or "." in name else 2
            self.bytes[name] = np.frombuffer(raw, np.uint8).reshape(
                n["layers"], kv, blocks, n["block_size"], -1)

    def field(self, name, key):
        return self.group[name].get(key, self.m.get(key, {}))


def check_tokens(what, state, read, name, cache, planes):
    """Every position of every sequence in one group, and nothing else."""
    a, wrong = read.bytes[name], []
    size = a.shape[3]
    seen, used = {}, set()
    for q in state.sequences():
        first, end = state.span(q)
        have = state.of(cache, q)
        table = read.field(name, "block_table")[str(q)]
        missing = set(range(first, end)) - set(have)
        if read.field(name, "holes").get(str(q), []) != runs(missing):
            wrong.append(f"holes of {q}: {read.field(name, 'holes')}")
        if len(table) != (end - 1) // size - first // size + 1:
            wrong.append(f"table of {q} has {len(table)} entries")
            continue
        for p in range(first // size * size, end):
            block = table[p // size - first // size]
            got = a[:, :, block, p % size]
            want = 0
            if p in have:
                want = np.stack([np.frombuffer(b"".join(have[p][1 + v]), np.uint8)
                                 .reshape(len(have[p][1 + v]), -1) for v in planes], 1)
            if not np.array_equal(got, np.broadcast_to(want, got.shape)):
                wrong.append(f"sequence {q}, position {p}")
        for i, block in enumerate(table):
            base = (first // size + i) * size
            key = tuple((s, have[base + s][0]) for s in range(size) if base + s in have)
            if seen.setdefault(key, block) != block and key:
                wrong.append(f"sequence {q}, entry {i} is not shared")
            if key:
                used.add(block)
    null = read.m.get("null_block")
    if len(used) + (null is not None) != a.shape[2]:
        wrong.append(f"{a.shape[2]} blocks, {len(used)} in use, null block {null}")
    if null is not None and a[:, :, null].any():
        wrong.append("the null block is not zero")
    tap.ok(not wrong, f"{what}: tokens of {name}", "; ".join(wrong[:3]))


def check_states(what, state, read):
    wrong, null = [], read.m.get("null_block")
    for kind, name in ((2, "r"), (3, "s")):
        for (_, cell), x in state.states.items():
            rows = b"".join(x[kind])
            if not rows:
                continue
            block = cell + (null is not None)
            if read.bytes[name][:, block].tobytes() != rows:
                wrong.append(f"cell {cell} of {name}")
            for q in x[1]:
                if read.field(name, "block_table").get(str(q)) != [block]:
                    wrong.append(f"{name} of sequence {q}: "
                                 f"{read.field(name, 'block_table')}")
    tap.ok(not wrong, f"{what}: states", "; ".join(wrong[:3]))


def check_ids(what, state, read):
    sequences = state.sequences()
    want = {}
    if len(sequences) == 1 and len(state.tokens) == state.span(sequences[0])[1]:
        first, end = state.span(sequences[0])
        want = {str(sequences[0]): state.tokens[first:end]}
    tap.equal(read.m.get("token_ids", {}), want, f"{what}: token ids by position")


def check(what, path, options, state, tmp):
    """All of a file; the dump, where it was read."""
    read = Read(path, tmp, options)
    if not tap.ok(read.good, f"{what}: is read", read.r):
        return None
    lengths = {str(q): state.span(q) for q in state.sequences()}
    tap.equal(read.m["num_tokens"], {q: e - b for q, (b, e) in lengths.items()},
              f"{what}: requests")
    tap.equal(read.m.get("first_token", {}), {q: b for q, (b, _) in lengths.items() if b},
              f"{what}: first tokens")
    for i, cache in enumerate(state.caches):
        rows = next(iter(cache.values()))[2:] if cache else ([], [])
        if not rows[0]:
            continue
        apart = f"g{i}.k" in read.group
        parts = [(f"g{i}.k", [0]), (f"g{i}.v", [1])] if apart else \
            [(f"g{i}", [0, 1] if rows[1] else [0])]
        for name, planes in parts:
            check_tokens(what, state, read, name, i, planes)
    if state.states:
        check_states(what, state, read)
    check_ids(what, state, read)
    r = kvtool("diff", *options, path, path)
    tap.ok(r.code == 0, f"{what}: equal to itself", r)
    r = kvtool("fsck", *options, path)
    first = read.m.get("first_token", {})
    odd = any(hole[0] > first.get(q, 0) or read.group[n]["kind"] != "sliding_window"
              for n in read.group for q, holes in read.field(n, "holes").items()
              for hole in holes)
    tap.ok(r.code == 0 and ("request.missing" in r.out) == odd,
           f"{what}: fsck tells what is missing", r)
    return read


# ---- samples ----------------------------------------------------------------

OLD, NEW = "llama.cpp-0.3.16", "llama.cpp"
HEAD_DIM = {"s260k": 8, "gemma2": 64, "gemma3": 64, "qwen2vl": 32, "jamba": 32,
            "lfm2": 32, "lfm2swa": 32, "r64": 64}
HOW = {"gemma2": {"caches": 2}, "gemma3": {"caches": 2}, "mla": {"values": False},
       "qwen2vl": {"extra": 12}, "mamba": {"caches": 0, "recurrent": True},
       "jamba": {"recurrent": True}, "lfm2": {"recurrent": True},
       "lfm2swa": {"caches": 2, "recurrent": True}}


def options_of(folder, name):
    model = name.split(".")[0]
    dim = HEAD_DIM.get(model)
    if ".kq8" in name and dim == 8:
        dim = 32                        # a block of q8_0, which is all heads
    out = [f"--head-dim={dim}"] if dim else []
    if folder == OLD and name.endswith(".seq"):
        out.append("--from=llama.cpp")
    if folder == OLD and model == "mamba" and not name.endswith(".ggsn"):
        out += ["--set", "memory=recurrent"]
    return out


def state_of(folder, name, data):
    how = {"caches": 1, **HOW.get(name.split(".")[0], {})}
    if ".partial." in name:
        how["caches"] = 1
    return State(data, outputs=folder == OLD and name.endswith(".ggsn"), **how)


def digests(path, *options):
    r = kvtool("digest", *options, path)
    return [line.split()[0] for line in r.out.splitlines()] if r.code == 0 else str(r)


def check_moved(what, path, options, tmp):
    """Written, cut out whole, in another layout and back it is the same."""
    want = digests(path, *options)
    tap.ok(want == digests(path, *options) and len(want) == 2, f"{what}: two digests",
           want)
    whole, turned = f"{tmp}/whole.h5", f"{tmp}/turned.h5"
    for out, command, source, *how in (
            (whole, "convert", path, *options),
            (f"{tmp}/whole.safetensors", "convert", whole),
            (f"{tmp}/slice.h5", "slice", whole),
            (turned, "relayout", whole, "--to=hnd"),
            (f"{tmp}/back.h5", "relayout", turned, "--to=nhd")):
        to = [source, out] if command == "convert" else ["-o", out, source]
        r = kvtool(command, "-q", "-f", *how, *to)
        tap.ok(r.code == 0 and digests(out) == want,
               f"{what}: the same by {command} to {os.path.basename(out)}", r)


def check_canonical(what, base, state):
    """The reader of this test agrees with what was taken from the engine's memory."""
    for file in sorted(glob.glob(f"{base}.canonical_K.npy") +
                       glob.glob(f"{base}.c*.canonical_K.npy")):
        part = file[len(base) + 1:].split(".")
        cache, q = (int(part[0][1:]), int(part[1][1:])) if len(part) > 3 else (0, 0)
        if cache >= len(state.caches) or q not in state.sequences():
            continue
        have = state.of(cache, q)
        for kv, letter in ((1, "K"), (2, "V")):
            want = np.load(file.replace("_K.npy", f"_{letter}.npy"))
            got = np.stack([np.stack([np.frombuffer(have[p][kv][layer], np.uint8)
                                      for p in sorted(have)])
                            for layer in range(want.shape[0])])
            # a window keeps the last ones only, in a file of one sequence
            want = want.reshape(*want.shape[:2], -1)[:, -got.shape[1]:]
            tap.ok(np.array_equal(got, want), f"{what}: cache {cache}, sequence {q} is "
                   f"the engine's {letter}")


def check_samples(tmp, top):
    for folder in NEW, OLD:
        for path in sorted(glob.glob(f"{top}/{folder}/*.ggs?") +
                           glob.glob(f"{top}/{folder}/*.seq")):
            name = os.path.basename(path)
            if ".empty" in name:
                continue
            state = state_of(folder, name, read_bytes(path))
            what = f"{folder}/{name}"
            base = path.rsplit(".", 1)[0]
            if base[-3:-1] == ".s":
                base = base[:-3]
            check_canonical(what, base, state)
            check(what, path, options_of(folder, name), state, tmp)
            check_moved(what, path, options_of(folder, name), tmp)


def check_empty():
    files = sorted(glob.glob(f"{ENGINES}/{NEW}/s260k.empty*.ggs?"))
    r = kvtool("describe", files[0])
    tap.ok(r.code == 0 and "holds     nothing" in r.out, "an empty state is described", r)
    r = kvtool("describe", "--json", files[0])
    tap.ok(r.code == 0 and r.json["groups"] == [], "also as JSON", r)
    for path in files:
        r = kvtool("digest", path)
        zero = "kvd1:tokens:" + 32 * "0"
        tap.ok(r.code == 0 and r.out.startswith(zero), "its digest is that of nothing", r)
        for other in files:
            r = kvtool("diff", path, other)
            tap.ok(r.code == 0 and r.out == "equal: both are empty\n", "equal to another",
                   r)
    refused("but not to one that is not", 3, "A is empty", "diff", "--heads=4", files[0],
            f"{ENGINES}/{NEW}/s260k.hole.ggsn")
    refused("nothing can be taken from it", 3, "empty state", "slice", "-o",
            "/dev/null/x.h5", files[0])


def check_ambiguous():
    for name in "mamba.ggsq", "mamba.seq":
        path = f"{ENGINES}/{OLD}/{name}"
        refused(f"{name} may be two things, and the option is named", 3,
                "--set memory=attention or memory=recurrent", "describe",
                "--from=llama.cpp", path)
    refused("it is no third", 3, "memory=hybrid", "describe", "--set", "memory=hybrid",
            f"{ENGINES}/{OLD}/mamba.ggsq")
    refused("bytes without a beginning are taken for nothing", 3, "", "describe",
            f"{ENGINES}/{OLD}/mamba.seq")
    refused("a bad fact", 2, "attention, recurrent or hybrid", "describe", "--set",
            "memory=x", f"{ENGINES}/{OLD}/mamba.ggsq")


def check_recurrent(tmp):
    """A bit of a state changes the digest of its sequence; slices keep the state."""
    for folder, name in ((NEW, "lfm2.fa0_u0.s0.ggsq"), (NEW, "mamba.fa0_u0.s1.ggsq"),
                         (OLD, "lfm2.ggsq"), (NEW, "jamba.fa0_u0.ggsn")):
        path, options = f"{ENGINES}/{folder}/{name}", options_of(folder, name)
        data = bytearray(read_bytes(path))
        state = state_of(folder, name, bytes(data))
        last = sorted(state.states)[-1]
        row = state.states[last][3][-1] or state.states[last][2][-1]
        data[data.rindex(row) + 3] ^= 1
        write_bytes(f"{tmp}/flipped.bin", data)
        lines = [[line.split("  ")[0] for line in kvtool(
            "digest", "--by=request", *options, p).out.splitlines()]
            for p in (path, f"{tmp}/flipped.bin")]
        owner = state.sequences().index(state.states[last][1][0])
        tap.ok(lines[0][owner] != lines[1][owner] and
               lines[0][:owner] == lines[1][:owner],
               f"{name}: digest sees a flipped state", str(lines))
        r = kvtool("diff", *options, path, f"{tmp}/flipped.bin")
        tap.ok(r.code == 1, f"{name}: so does diff", r)
        q = str(state.sequences()[-1])
        kvtool("convert", "-q", "-f", *options, path, f"{tmp}/whole.h5")
        r = kvtool("slice", "-q", "-f", f"--request={q}", "-o", f"{tmp}/slice.h5",
                   f"{tmp}/whole.h5")
        d = kvtool("describe", "--json", f"{tmp}/slice.h5").json
        names = [g["id"] for g in d["groups"]]
        tap.ok(r.code == 0 and ("s" in names or "r" in names),
               f"{name}: a slice of the request keeps its state", f"{r} {names}")


def check_holes(tmp):
    """They are told, and survive what is written, cut and put into other blocks."""
    path = f"{ENGINES}/{NEW}/s260k.hole.ggsn"
    r = kvtool("describe", "--heads=4", path)
    tap.ok("60 tokens in 4 blocks" in r.out and
           "12 missing in g0: tokens 8 to 19" in r.out, "describe shows a hole", r)
    d = kvtool("describe", "--json", "--heads=4", path).json
    tap.equal(d["requests"][0]["holes"], [{"group": "g0", "begin": 8, "end": 20}],
              "also as JSON")
    want = kvtool("digest", "--scope=tokens", "--heads=4", path).out.split()[0]
    for ending in "h5", "safetensors", "npy":
        out = f"{tmp}/hole.{ending}"
        r = kvtool("convert", "-q", "-f", "--heads=4", path, out) if ending != "npy" \
            else kvtool("relayout", "-q", "-f", "--to=nhd", "--heads=4", "-o", out, path)
        tap.ok(r.code == 0, f"a hole is written to {ending}", r)
        tap.equal(kvtool("digest", "--scope=tokens", out).out.split()[0], want,
                  f"and counts for nothing there: {ending}")
    r = kvtool("reblock", "-q", "-f", "--block-size=4", "-o", f"{tmp}/small.h5",
               f"{tmp}/hole.h5")
    tap.ok(r.code == 0 and kvtool("digest", "--scope=tokens", f"{tmp}/small.h5").out
           .split()[0] == want, "blocks of 4 keep it", r)
    r = kvtool("slice", "-q", "-f", "--tokens=4:12", "-o", f"{tmp}/part.h5",
               f"{tmp}/hole.h5")
    d = kvtool("describe", "--json", f"{tmp}/part.h5").json
    tap.equal(d["requests"][0]["holes"], [{"group": "g0", "begin": 8, "end": 12}],
              "a slice has what is left of it")
    whole = f"{ENGINES}/{NEW}/s260k.shifted.s0.ggsq"
    refused("one side has what the other lacks", 3, "--common", "diff", "--heads=4", path,
            whole)
    r = kvtool("diff", "--heads=4", "--common", path, whole)
    tap.ok("only in B: tokens 8 to 19 of request 0 in g0" in r.out, "and it is named", r)


def check_windows(tmp):
    path = f"{ENGINES}/{NEW}/gemma2.fa0_u0.ggsn"
    d = kvtool("describe", "--json", "--heads=2", path).json
    g = d["groups"][1]
    tap.ok(g["kind"] == "sliding_window" and not g.get("window"),
           "no window is made up of cells", str(g.get("window")))
    r = kvtool("describe", "--heads=2", path)
    tap.ok("sliding_window of unknown length, float16" in r.out, "and that is said", r)
    d = kvtool("describe", "--json", "--heads=2", "--set", "window=16", path).json
    tap.equal(d["groups"][1].get("window"), 16, "one that is said is taken")
    short = f"{ENGINES}/{NEW}/gemma3.fa1_swafull0.partial.seq"
    d = kvtool("describe", "--json", "--heads=2", "--set", "window=32", short).json
    tap.equal((d["groups"][0]["kind"], d["requests"][0]["first_token"]),
              ("sliding_window", 48), "also of a single cache")


# ---- made ones --------------------------------------------------------------

def random_state(rng, seed):
    """Caches and states as engines could have them, and the options they need."""
    make = np.random.default_rng(seed)
    heads, dim = rng.choice([(1, 32), (2, 32), (4, 64)])
    kinds = rng.choice([(F16, F16), (F32, F32), (Q8_0, Q8_0), (Q8_0, F16)])
    wide = {F16: 2 * heads * dim, F32: 4 * heads * dim, Q8_0: heads * dim // 32 * 34}
    streams, extra = rng.choice([1, 1, 3]), rng.choice([0, 0, 12])
    values, turned = rng.random() < .9, kinds[1] != Q8_0 and rng.random() < .5
    window, one = rng.random() < .3, rng.random() < .3
    states, layers = rng.random() < .3, rng.choice([1, 3])
    sequences = sorted(rng.sample(range(9), 1 if one else rng.randint(1, 4)))
    cells = [[] for _ in range(streams)]
    shared = rng.randint(0, 40) if streams == 1 and not one else 0
    cells[0] += [(p, list(sequences)) for p in range(shared)]
    for q in sequences:
        begin = shared if shared else rng.choice([0, 0, 7, 33])
        end, gone = begin + rng.randint(1, 70), set()
        for _ in range(rng.choice([0, 0, 1, 3])):
            at = rng.randint(begin, end)
            gone |= set(range(at, at + rng.randint(1, 40)))
        here = [(p, [q]) for p in range(begin, end) if p not in gone or p == end - 1]
        cells[sequences.index(q) % streams] += here
    if rng.random() < .4:
        for c in cells:
            rng.shuffle(c)
    memory = b""
    for i in range(1 + window):
        mine = [[c for c in s if not i or c[0] >= 20 + shared] for s in cells]
        if i and not any(mine):
            mine = cells
        n = 0 if window and not i and rng.random() < .3 else layers
        out = []
        for s in mine:
            # no byte that would make a number NaN or infinite
            k, v = ([[make.integers(0, 120, wide[t], np.uint8).tobytes() for _ in s]
                     for _ in range(n)] for t in kinds)
            out.append(Cells(s, k, v if values else None, kinds, extra,
                             {F16: 2, F32: 4}[kinds[1]] if turned else 0))
        memory += memory_bytes(out)
    if states:
        r, s = (make.standard_normal((2, len(sequences), n), np.float32) for n in (3, 5))
        memory += recurrent_bytes([(5, [] if one else [q]) for q in sequences], r, s)
    kind = rng.choice([lambda m, t: ggsq_bytes(m, 3, t), lambda m, _: sequence_bytes(m)]) \
        if one else lambda m, t: ggsn_bytes(m, 10, t)
    data = kind(memory, [5 + i for i in range(rng.choice([0, 50, 120]))])
    options = [f"--heads={heads}"] if values else []
    options += [f"--block-size={rng.choice([1, 5, 16, 16, 32])}"]
    return data, options, State(data, 1 + window, values, states, extra)


def check_random(tmp):
    for seed in range(120 if os.environ.get("KVT_FULL") else 24):
        data, options, state = random_state(random.Random(seed), seed)
        write_bytes(f"{tmp}/made.bin", data)
        check(f"made {seed}", f"{tmp}/made.bin", options, state, tmp)


def check_repeated(tmp):
    """Cells of an image have one position: tokens are counted, and have no ids."""
    rows = [[bytes([i] * 16) for i in range(6)]]
    cells = Cells([(p, [0]) for p in (0, 1, 1, 1, 4, 5)], rows, rows, (F16, F16), 12)
    write_bytes(f"{tmp}/image.bin", ggsq_bytes(memory_bytes([cells]), 3, range(6)))
    r = kvtool("describe", "--json", "--heads=2", f"{tmp}/image.bin")
    q = r.json["requests"][0] if r.code == 0 else {}
    tap.ok(q.get("tokens") == 6 and q.get("holes") == [], "positions that repeat", r)


def check_far(tmp):
    """Memory is not that of positions."""
    rows = [[bytes(16)] * 2]
    cells = Cells([(0, [0]), (2**31 - 2, [0])], rows, rows, (F16, F16))
    write_bytes(f"{tmp}/far.bin", ggsq_bytes(memory_bytes([cells]), 3))
    refused("two cells far apart", 4, "2147483647 positions", "describe", "--heads=2",
            f"{tmp}/far.bin")


def main(tmp):
    if len(sys.argv) > 1:
        check_samples(tmp, sys.argv[1])
        return
    check_samples(tmp, ENGINES)
    check_empty()
    check_ambiguous()
    check_recurrent(tmp)
    check_holes(tmp)
    check_windows(tmp)
    check_random(tmp)
    check_repeated(tmp)
    check_far(tmp)


if __name__ == "__main__":
    oracle.run(main)
