#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_llama_write.py - states of llama.cpp that kvtool writes: with itself as the
template a state is the engine's own file again, byte by byte; with another one a reader
of the tests' own finds the cells of the dump in it, and what else the template says
"""
import glob
import os
import random
import struct
import sys

import numpy as np

import oracle
from foreign_files import BF16, F16, F32, Cells, ggsn_bytes, ggsq_bytes, memory_bytes
from oracle import Dump, kvtool, read_bytes, tap, write_bytes
from oracle_llama_engine import (ENGINES, NEW, OLD, State, options_of, random_state,
                                 state_of)


def convert(source, template, out, form, *options):
    return kvtool("convert", "-q", "-f", "--verify", f"--format={form}",
                  f"--template={template}", *options, source, out)


def read(path):
    return read_bytes(path)


def snapshot(path, tmp, *options):
    out = f"{tmp}/{os.path.basename(path)}.h5"
    r = kvtool("convert", "-q", "-f", *options, path, out)
    if r.code:
        raise RuntimeError(str(r))
    return out


# ---- the engine's own file --------------------------------------------------

def check_itself(tmp, top):
    """Through a snapshot and back; without token ids in it those of the template."""
    for folder in NEW, OLD:
        for path in sorted(glob.glob(f"{top}/{folder}/*.ggs?")):
            name = os.path.basename(path)
            if ".empty" in name:
                continue
            dump = snapshot(path, tmp, *options_of(folder, name))
            out, form = f"{tmp}/again.bin", name[-4:]
            r = convert(dump, path, out, form, "--as-is")
            tap.ok(r.code == 0 and read(out) == read(path),
                   f"{folder}/{name} is written again, byte by byte", r)


# ---- another template -------------------------------------------------------

def cells_of(state, q):
    """Of each cache {position: rows}, and the states."""
    return [{p: x[1:] for p, x in state.of(i, q).items()}
            for i in range(len(state.caches))], \
        [x[2:] for x in state.states.values() if q in x[1]]


# source, template, of one sequence or of all, option
PAIRS = [
    (NEW, "s260k.hole.s0.ggsq", NEW, "s260k.shifted.s0.ggsq", "ggsq"),
    (NEW, "s260k.streams4.s3.ggsq", NEW, "s260k.unified_shared.s1.ggsq", "ggsq"),
    (NEW, "s260k.unified_shared.s1.ggsq", NEW, "s260k.streams4.s3.ggsq", "ggsq"),
    (NEW, "s260k.hole.ggsn", NEW, "s260k.streams4.ggsn", "ggsn"),
    (NEW, "s260k.streams4.ggsn", NEW, "s260k.hole.ggsn", "ggsn"),
    (NEW, "s260k.unified_shared.ggsn", NEW, "s260k.streams4.ggsn", "ggsn"),
    # of all, and of one, of a build that has no streams, and outputs in front
    (NEW, "s260k.hole.ggsn", OLD, "s260k.two.ggsn", "ggsn"),
    (NEW, "s260k.hole.s0.ggsq", OLD, "s260k.two.ggsq", "ggsq"),
    (OLD, "s260k.two.ggsq", NEW, "s260k.hole.s0.ggsq", "ggsq"),
    (OLD, "s260k.two.ggsn", NEW, "s260k.unified_shared.ggsn", "ggsn"),
    # of a state of all sequences
    (NEW, "s260k.hole.s0.ggsq", NEW, "s260k.streams4.ggsn", "ggsq"),
    (NEW, "s260k.hole.s0.ggsq", OLD, "s260k.two.ggsn", "ggsq"),
    # windows, latents, recurrent layers
    (NEW, "gemma2.fa0_u0.s1.ggsq", NEW, "gemma2.fa0_u0.ggsn", "ggsq"),
    (NEW, "mla.fa0_u0.ggsn", NEW, "mla.fa0_u0.ggsn", "ggsn"),
    (NEW, "mamba.fa0_u0.s1.ggsq", NEW, "mamba.fa0_u0.ggsn", "ggsq"),
    (NEW, "lfm2.fa0_u0.s0.ggsq", NEW, "lfm2.fa0_u0.ggsn", "ggsq"),
    (OLD, "lfm2.ggsn", OLD, "lfm2.ggsq", "ggsq"),
]


def check_others(tmp):
    for folder, name, other, template, form in PAIRS:
        dump = snapshot(f"{ENGINES}/{folder}/{name}", tmp, *options_of(folder, name))
        like, out = f"{ENGINES}/{other}/{template}", f"{tmp}/{template[:-4]}{form}"
        fits = [] if len(state_of(folder, name, read(f"{ENGINES}/{folder}/{name}"))
                         .sequences()) == 1 or form == "ggsn" else ["--request=0"]
        r = convert(dump, like, out, form, *fits)
        what = f"{folder}/{name} as {other}/{template}"
        if not tap.ok(r.code == 0, f"{what}: is written", r):
            continue
        want = state_of(folder, name, read(f"{ENGINES}/{folder}/{name}"))
        got = state_of(other, template[:-4] + form, read(out))
        wrong = [q for q in want.sequences() if cells_of(got, q) != cells_of(want, q)]
        tap.ok(got.sequences() == want.sequences() and not wrong,
               f"{what}: sequences {got.sequences()} have the dump's cells", str(wrong))
        head, first = read(like)[:8], read(out)[:8]
        if template.endswith(form):
            tap.ok(head == first, f"{what}: version {first}")
        else:
            tap.equal(struct.unpack("<2I", first),
                      (0x67677371, struct.unpack("<2I", head)[1] - 7), f"{what}: version")
        if form == "ggsn":
            tap.equal(got.arch, state_of(other, template, read(like)).arch,
                      f"{what}: architecture")


def check_positions(tmp):
    """Of text all positions of M-RoPE are one; the third number of a cell is its token."""
    ids, rows = [9, 4, 7, 300], [[bytes([201 + i] * 32) for i in range(4)]] * 2
    for extra, version in (12, 3), (8, 2):
        def state(tokens, ids):
            memory = bytearray(memory_bytes([Cells([(p, [9]) for p in range(tokens)],
                                                   [r[:tokens] for r in rows],
                                                   [r[:tokens] for r in rows],
                                                   (F16, F16), extra)]))
            for p in range(tokens):
                struct.pack_into("<3i" if extra > 8 else "<2i", memory,
                                 8 + p * (12 + extra) + 8,
                                 *[p, p, ids[p]][:extra // 4])
            return ggsq_bytes(bytes(memory), version, ids[:tokens])
        paths = f"{tmp}/text.ggsq", f"{tmp}/one.ggsq"
        for path, data in zip(paths, (state(4, ids), state(1, [3]))):
            write_bytes(path, data)
        dump, out = snapshot(paths[0], tmp, "--heads=1"), f"{tmp}/again.ggsq"
        r = convert(dump, paths[1], out, "ggsq")
        tap.ok(r.code == 0 and read(out) == read(paths[0]),
               f"positions and tokens of text, {extra} bytes more in a cell", r)
        r = convert(dump, paths[1], out, "ggsq", "--as-is")
        tap.ok(r.code == 3 and "other positions" in r.err, "a template of other tokens",
               r)


# ---- other engines ----------------------------------------------------------

def template(path, layers, width, form, arch="llama", streams=1, kind=BF16):
    row = [[bytes(width)]] * layers
    empty = [Cells([], [], [], (kind, kind))] * (streams - 1)
    memory = memory_bytes([Cells([(0, [0])], row, row, (kind, kind)), *empty])
    write_bytes(path,
                ggsq_bytes(memory, 3, [7]) if form == "ggsq"
                else ggsn_bytes(memory, 10, [7], arch))
    return path


def in_pairs(row, dim):
    """Halves of each head, which become the first and the second ones of pairs."""
    a = np.frombuffer(row, np.uint16).reshape(-1, 2, dim // 2)
    return a.transpose(0, 2, 1).tobytes()


def check_foreign(tmp):
    base = f"{oracle.DATA}/s260k/paged_bs16/kv_first_nhd.bf16"
    dump = Dump("s260k", base + ".json")
    layers, dim = dump.dims["L"], dump.dims["D"]
    width = 2 * dump.dims["H"] * dim
    for form, arch, said, pairs in (
            ("ggsn", "llama", [], True), ("ggsn", "qwen3", [], False),
            ("ggsn", "nobody", ["--key-order=pairs"], True),
            ("ggsn", "nobody", ["--key-order=halves"], False),
            ("ggsn", "llama", ["--as-is"], False), ("ggsn", "streams", ["--as-is"], False),
            ("ggsq", "", ["--key-order=pairs"], True)):
        like = template(f"{tmp}/like.bin", layers, width, form, arch,
                        4 if arch == "streams" else 1)
        one = list(dump.tables)[1]
        out = f"{tmp}/foreign.{form}"
        r = convert(base + ".npy", like, out, form, *said,
                    *([f"--request={one}"] if form == "ggsq" else []))
        what = f"a dump of vLLM as {form} of {arch} {' '.join(said)}"
        if not tap.ok(r.code == 0, f"{what}: is written", r):
            continue
        got, wrong = State(read(out), 1), []
        for q, name in enumerate([one] if form == "ggsq" else list(dump.tables)):
            tokens, have = dump.tokens(dump.cells, name), got.of(0, q)
            if sorted(have) != list(range(dump.ntokens[name])):
                wrong.append(f"positions of {name}")
                continue
            for p, (_, k, v) in have.items():
                want_k = [x.tobytes() for x in tokens[0, :, p]]
                if pairs:
                    want_k = [in_pairs(x, dim) for x in want_k]
                if k != want_k or v != [x.tobytes() for x in tokens[1, :, p]]:
                    wrong.append(f"{name}, token {p}")
        tap.ok(not wrong, f"{what}: keys and values of {len(list(dump.tables))} requests",
               "; ".join(wrong[:3]))


def check_windows(tmp):
    """Layers 0 and 1 with a window and 2 without are two caches, which count from 0."""
    base = f"{ENGINES}/transformers/5.23.0/dynamic"
    x, row = np.load(base + ".npy")[0], [bytes(32), bytes(32)]
    one = [Cells([(0, [0]), (1, [0])], [row] * n, [row] * n, (F32, F32)) for n in (1, 2)]
    like, out = f"{tmp}/like.ggsn", f"{tmp}/out.ggsn"
    for arch, pairs in ("gemma3", False), ("llama", True):
        write_bytes(like,
                    ggsn_bytes(memory_bytes(one[:1]) + memory_bytes(one[1:]), 10, [7, 8],
                               arch))
        r = convert(base + ".pt", like, out, "ggsn")
        if not tap.ok(r.code == 0, f"windows of transformers as {arch}: written, verified",
                      r):
            continue
        got, wrong = State(read(out), 2), []
        for cache, layers, first in (0, (2,), 0), (1, (0, 1), 11):
            have = got.of(cache, 0)
            if sorted(have) != list(range(first, 19)):
                wrong.append(f"cache {cache} has {sorted(have)}")
                continue
            # llama-server asks for a window of cells before the next one, of which the
            # first is masked already; transformers has let go of it
            have.pop(first if cache else None, None)
            for p, (_, *rows) in have.items():
                for kv, own in enumerate(rows):
                    want = x[list(layers), p, :, kv]
                    if pairs and not kv:
                        want = want.reshape(-1, 2, 2, 2).swapaxes(-1, -2)
                    if b"".join(own) != want.tobytes():
                        wrong.append(f"cache {cache}, token {p}, {kv}")
        tap.ok(not wrong, f"windows of transformers as {arch}: its keys and values",
               "; ".join(wrong[:3]))


# ---- made ones --------------------------------------------------------------

def damaged(data, rng):
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 3])):
        how, at = rng.random(), rng.randrange(min(len(out), 400))
        if how < .5:
            out[at] = rng.choice([0, 1, 2, 255, rng.randrange(256)])
        elif how < .75:
            del out[rng.randrange(len(out)):]
        else:
            out[at:at] = bytes(rng.choice([1, 4]))
        if not out:
            return b""
    return bytes(out)


def check_random(tmp):
    """Cells in any order, streams, holes: again as they were; damage is no template."""
    crashed = []
    for seed in range(200 if os.environ.get("KVT_FULL") else 20):
        rng = random.Random(seed)
        data, options, state = random_state(rng, seed)
        form = {b"nsgg": "ggsn", b"qsgg": "ggsq"}.get(data[:4])
        if not form:
            continue
        path, out = f"{tmp}/made.bin", f"{tmp}/again.bin"
        write_bytes(path, data)
        dump = snapshot(path, tmp, *options)
        r = convert(dump, path, out, form, "--as-is")
        # states of another position than the last, and cells without layers, are made up
        plain = not state.states and all(next(iter(c.values()))[2] for c in state.caches)
        tap.ok(not plain or r.code == 0 and read(out) == data,
               f"made {seed} is written again", r)
        for i in range(10):
            write_bytes(f"{tmp}/bad.bin", damaged(data, random.Random(f"{seed}/{i}")))
            r = kvtool("convert", "-q", "-f", f"--format={form}", dump, out,
                       f"--template={tmp}/bad.bin")
            if r.code not in (0, 3, 4) or not r.err != (r.code == 0):
                crashed.append(f"{seed}/{i}: {r}")
    tap.ok(not crashed, "a damaged template is refused, or fits", "\n".join(crashed[:2]))


# ---- what is refused --------------------------------------------------------

def check_refusals(tmp):
    hole = snapshot(f"{ENGINES}/{NEW}/s260k.hole.s0.ggsq", tmp, "--heads=4")
    vllm = f"{oracle.DATA}/s260k/paged_bs16/kv_first_nhd.bf16.npy"
    first = next(iter(Dump("s260k", vllm[:-3] + "json").tables))
    bf16 = template(f"{tmp}/bf16.ggsn", 5, 64, "ggsn")
    four = template(f"{tmp}/four.ggsq", 4, 64, "ggsq", kind=F16)
    wide = template(f"{tmp}/wide.ggsq", 5, 128, "ggsq", kind=F16)
    one = template(f"{tmp}/one.ggsq", 5, 64, "ggsq")
    sample = lambda name: f"{ENGINES}/{NEW}/{name}"
    out = f"{tmp}/no.ggsq"
    for code, says, source, form, more in (
            (2, "needs --template=STATE", hole, "ggsq", []),
            (2, "go with --format=ggsq", hole, "npy", [f"--template={one}"]),
            (2, "go with --format=ggsq", hole, "hdf5", ["--key-order=pairs"]),
            (5, "cannot open", hole, "ggsq", [f"--template={tmp}/none"]),
            (3, "not a state file", hole, "ggsq", [f"--template={hole}"]),
            (3, "holds a token at least", hole, "ggsq",
             [f"--template={sample('s260k.empty.s0.ggsq')}"]),
            (4, "save_file()", hole, "ggsn", [f"--template={four}"]),
            (4, "save_file()", hole, "ggsq",
             [f"--template={sample('s260k.kq8_vf16_fa0.seq')}"]),
            (3, "layers, and", hole, "ggsq", [f"--template={four}"]),
            (3, "bytes, and layer 0", hole, "ggsq", [f"--template={wide}"]),
            (4, "keys of float16", hole, "ggsq", [f"--template={one}"]),
            (3, "of two models", hole, "ggsq",
             [f"--template={sample('mla.fa0_u0.s1.ggsq')}"]),
            (3, "memory=attention", hole, "ggsq",
             [f"--template={sample('mamba.fa0_u0.s1.ggsq')}"]),
            (3, "keys of 5 layers, and", hole, "ggsn",
             [f"--template={sample('gemma2.fa0_u0.ggsn')}"]),
            (2, "expected pairs or halves", vllm, "ggsn",
             [f"--template={bf16}", "--key-order=x"]),
            (2, "comes from llama.cpp", hole, "ggsq",
             [f"--template={sample('s260k.hole.s0.ggsq')}", "--key-order=pairs"]),
            (4, "give --key-order=pairs", vllm, "ggsq",
             [f"--template={one}", f"--request={first}"]),
            (3, "give --request=NAME", vllm, "ggsq", [f"--template={one}"])):
        r = kvtool("convert", f"--format={form}", "-o", out, *more, source)
        tap.ok(r.code == code and says in r.err and not os.path.exists(out),
               f"status {code}, {says}", r)
    image = snapshot(sample("qwen2vl.fa0_u0.s1.ggsq"), tmp, "--head-dim=32")
    r = convert(image, sample("qwen2vl.fa0_u0.ggsn"), out, "ggsq", "--request=1")
    tap.ok(r.code == 4 and "several positions" in r.err, "M-RoPE needs token ids", r)


def main(tmp):
    check_itself(tmp, sys.argv[1] if len(sys.argv) > 1 else ENGINES)
    check_others(tmp)
    check_positions(tmp)
    check_foreign(tmp)
    check_windows(tmp)
    check_random(tmp)
    check_refusals(tmp)


if __name__ == "__main__":
    oracle.run(main)
