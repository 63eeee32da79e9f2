#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
llama_types.py - quantised caches of llama.cpp, number by number

The oracle of blocks is ggml itself, through the libraries of llama-cpp-python: to_float
of a type, and from_float of the CPU backend, which is what a cache is written with.  That
of rotation is the environment of a context: it is on or off, and a state of float16 of the
same tokens tells kvtool, which is not told, which of both it was.
"""
import ctypes
import os
import random
import subprocess
import sys

import numpy as np

import llama_cpp
import llama_engine as E
from llama_models import VOCABULARY, Shape, make
from proof import Proof
from plain_files import read_bytes, write_bytes, write_json

proof = Proof("llama.cpp", f"in llama-cpp-python {llama_cpp.__version__}")
ROTATES = llama_cpp.__version__ != "0.3.16"
IDS = {"q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20}
E.TYPES.update(IDS)
BLOCKS, SWITCH = 1000000, "LLAMA_ATTN_ROT_DISABLE"


# ---- ggml ---------------------------------------------------------------------

class Traits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("block", ctypes.c_int64),
                ("interleaved", ctypes.c_int64), ("size", ctypes.c_size_t),
                ("quantised", ctypes.c_bool), ("to_float", ctypes.c_void_p),
                ("from_float_ref", ctypes.c_void_p)]


class CpuTraits(ctypes.Structure):
    _fields_ = [("from_float", ctypes.c_void_p)]


CONVERT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def library(name):
    folder = os.path.join(os.path.dirname(llama_cpp.__file__), "lib")
    return ctypes.CDLL(os.path.join(folder, f"libggml-{name}.so"), ctypes.RTLD_GLOBAL)


def functions(name):
    """Bytes of a block, its decoder, its encoder, and those that are no backend's."""
    base, cpu = library("base"), library("cpu")
    cpu.ggml_cpu_init()
    base.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    cpu.ggml_get_type_traits_cpu.restype = ctypes.POINTER(CpuTraits)
    t = base.ggml_get_type_traits(IDS[name]).contents
    base.ggml_quantize_chunk.restype = ctypes.c_size_t
    base.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                                         *[ctypes.c_int64] * 3, ctypes.c_void_p]
    chunk = CONVERT(lambda x, y, n: base.ggml_quantize_chunk(IDS[name], x, y, 0, n // 32,
                                                             32, None))
    return t.size, CONVERT(t.to_float), \
        CONVERT(cpu.ggml_get_type_traits_cpu(IDS[name]).contents.from_float), \
        {"from_float_ref": CONVERT(t.from_float_ref), "ggml_quantize_chunk": chunk}


def convert(function, rows, count, dtype, width):
    out = np.empty((len(rows), width), dtype)
    function(rows.ctypes.data, out.ctypes.data, len(rows) * count)
    return out


def read_by_kvtool(name, blocks):
    path = os.path.join(proof.folder("blocks"), "blocks.npy")
    cells = blocks.reshape(2, -1, 16, 1, 2, blocks.shape[-1])
    np.save(path, cells)
    write_json(path[:-4] + ".json",
               {"layout": "L B S H K D", "content_type": name, "kind": "full_attention",
                "sizes": {"layers": 2, "num_blocks": cells.shape[1], "block_size": 16,
                          "num_kv_heads": 1, "head_dim": blocks.shape[-1]}})
    out = path[:-4] + ".numbers.npy"
    proof.must("convert", "-f", "-q", "--decode=float32", path, out)
    return np.load(out).reshape(-1, 32)


def decoders():
    rng = np.random.default_rng(proof.seed)
    for name in IDS:
        with proof.row("numbers of quantised blocks are ggml's, bit by bit",
                       f"{name}; {BLOCKS} blocks of random bytes") as row:
            size, to_float, _, _ = functions(name)
            blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
            want = convert(to_float, blocks, 32, np.float32, 32)
            got = read_by_kvtool(name, blocks)
            nan = np.isnan(want)
            row.ok(np.array_equal(np.isnan(got), nan), "what is no number is none")
            bad = (got.view(np.uint32) != want.view(np.uint32)) & ~nan
            row.ok(not bad.any(), "all others have the same bits", f"{bad.sum()} differ")


def some_numbers(rng):
    """Of all sizes, with ties, zeros and offsets."""
    x = rng.standard_normal((BLOCKS, 32)) * 10.0 ** rng.uniform(-6, 3, (BLOCKS, 1))
    top = np.abs(x).max(-1, keepdims=True)
    x[1::6] = np.round(x[1::6] / top[1::6] * 127) / 2
    x[2::6] += 5 * top[2::6]
    x[3::6] *= rng.random(x[3::6].shape) < .1
    x[4::6] = x[4::6].astype(np.float16)
    return np.ascontiguousarray(x, np.float32)


def encoders():
    program = os.path.join(os.path.dirname(proof.program), "tests", "reference",
                           "encode_content")
    rng = np.random.default_rng(proof.seed + 1)
    for name in IDS:
        with proof.row("blocks are written as the CPU backend writes them, bit by bit",
                       f"{name}; {BLOCKS} blocks of all sizes, ties, zeros") as row:
            size, to_float, from_float, others = functions(name)
            x = some_numbers(rng)
            want = convert(from_float, x, 32, np.uint8, size)
            r = subprocess.run([program, name, "32"], input=x.tobytes(),
                               capture_output=True, check=True)
            got = np.frombuffer(r.stdout, np.uint8).reshape(BLOCKS, size)
            same = (got == want).all(-1)
            if name == "iq4_nl":        # codes of zeros are what was there before
                same |= (np.abs(x).max(-1) < 1e-15) & (got[:, :2] == want[:, :2]).all(-1)
            row.ok(same.all(), "all bytes", f"{(~same).sum()} differ: {x[~same][:1]}")
            error = [((convert(to_float, np.ascontiguousarray(b), 32, np.float32, 32) - x)
                      .astype(float) ** 2).sum(-1) for b in (got, want)]
            row.ok((error[0] <= error[1] * (1 + 1e-12)).all(), "no block is farther off")
            for called, other in others.items():
                there = convert(other, x, 32, np.uint8, size)
                # codes of a block without scale are what was there before
                same = (there == want).all(-1) | ~want[:, :2].any(-1) & ~there[:, :2].any(-1)
                row.figure(f"{called} differs in {(~same).sum()} blocks")


# ---- rotation -------------------------------------------------------------------

def state(shape, path, tokens, k, v, on):
    os.environ[SWITCH] = "0" if on else "1"
    engine = E.Engine(path, k=k, v=v, flash=True)
    engine.decode(tokens)
    out = os.path.join(proof.work, f"{shape.dim}.{k}.{v}.{on}.ggsq")
    engine.save_sequence(out, tokens)
    engine.close()
    return out


def expected(dim, kind, on, half):
    """What is to be found: numbers that are rotated together; None: not asked."""
    if kind == "f16" or dim % 64:
        return None
    return 1 if not on or not ROTATES else 64 if half else dim & -dim


def found(plain, coded, dim):
    r = proof.kvtool("diff", "--json", "--no-diagnosis", "--tolerance=cosine=0.5",
                     f"--head-dim={dim}", plain, coded)
    halves = [None, None]
    for g in r.json["groups"] if r.code in (0, 1) else []:
        for i, half in enumerate(("keys", "values")):
            if g["basis"] and g["basis"][half]:
                b = g["basis"][half]
                halves[i] = b["turn"] if b["found"] else "not found"
    return r, halves


def torn(row, shape, path, tokens, k, v, plain):
    """
    Heads that blocks do not divide: builds that rotate refuse them, older ones attend to
    the wrong bytes, so that keys and values of the first layer alone are those of others.
    """
    try:
        coded = state(shape, path, tokens, k, v, True)
    except RuntimeError as error:
        row.ok(ROTATES and "does not divide" in str(error),
               f"{k} and {v}: the engine makes no such cache", error)
        return
    row.ok(not ROTATES, f"{k} and {v}: the engine makes such a cache")
    first = [os.path.join(proof.work, f"first.{n}.h5") for n in "ab"]
    for source, out in zip((plain, coded), first):
        numbers = os.path.join(proof.work, "numbers.h5")
        proof.must("convert", "-q", "-f", "--decode=float32", f"--head-dim={shape.dim}",
                   source, numbers)
        proof.must("slice", "-q", "-f", "--layers=0", "-o", out, numbers)
    r = proof.kvtool("diff", "--tolerance=cosine=0.98", *first)
    row.ok(r.code == 0, f"{k} and {v}: numbers of the first layer, which nobody rotated",
           r)


def rotation():
    words = random.Random(proof.seed)
    tokens = [words.randrange(VOCABULARY) for _ in range(45)]
    kinds = [(t, t) for t in IDS] + [("q8_0", "f16"), ("f16", "q8_0"), ("q4_0", "q8_0")]
    for dim in (32, 64, 80, 96, 128, 192, 256):
        shape = Shape(proof.seed)
        shape.dim, shape.layers, shape.width, shape.hidden = dim, 2, 64, 64
        path = os.path.join(proof.work, f"rotation{dim}.gguf")
        with proof.row("diff finds whether a quantised cache is rotated",
                       f"llama, {dim} numbers a head; six types, keys or values alone; "
                       f"{SWITCH} 0 and 1") as row:
            make("gqa", path, shape)
            plain = state(shape, path, tokens, "f16", "f16", True)
            for k, v in kinds:
                for on in (True, False):
                    if dim % 32:
                        torn(row, shape, path, tokens, k, v, plain)
                        continue
                    coded = state(shape, path, tokens, k, v, on)
                    want = [expected(dim, t, on, i) for i, t in enumerate((k, v))]
                    r, got = found(plain, coded, dim)
                    row.ok(got == want and r.code == 0, f"{k} and {v}, {on}: "
                           f"{['not asked' if w is None else w for w in want]}",
                           f"{got} {r}")
                    r = proof.kvtool("fsck", f"--head-dim={dim}", coded)
                    row.ok(r.code == 0 and ("content.rotation" in r.out) ==
                           (want != [None, None]), "fsck warns where it cannot tell", r)


def latents():
    words = random.Random(proof.seed)
    tokens = [words.randrange(VOCABULARY) for _ in range(45)]
    with proof.row("latents of MLA are not rotated", "deepseek2; q8_0, rows of 128") as row:
        shape = Shape(proof.seed)
        shape.latent = 96
        path = os.path.join(proof.work, "latents.gguf")
        make("mla", path, shape)
        on = read_bytes(state(shape, path, tokens, "q8_0", "q8_0", True))
        row.ok(read_bytes(state(shape, path, tokens, "q8_0", "q8_0", False)) == on,
               "the files are the same, whatever the switch")


# ---- what a program gets ----------------------------------------------------------

def copies():
    words = random.Random(proof.seed)
    tokens = [words.randrange(VOCABULARY) for _ in range(45)]
    for name in ("gqa", "gemma3", "jamba", "mamba", "mla"):
        with proof.row("what llama_state_get_data() returns is what the file holds",
                       f"{name}") as row:
            shape = Shape(proof.seed)
            path = os.path.join(proof.work, f"{name}.gguf")
            make(name, path, shape)
            engine = E.Engine(path, flash=name != "mamba")
            engine.decode(tokens)
            n = llama_cpp.llama_state_get_size(engine.context)
            raw = (ctypes.c_uint8 * n)()
            n = llama_cpp.llama_state_get_data(engine.context, raw, n)
            copy = os.path.join(proof.work, f"{name}.bin")
            write_bytes(copy, bytes(raw)[:n])
            own = engine.save(os.path.join(proof.work, f"{name}.ggsn"), tokens)
            engine.close()
            # that of before keeps a second copy of the latents, as values
            options = [] if name == "mamba" or name == "mla" and ROTATES else \
                ["--heads=1" if name == "mla" else f"--head-dim={shape.dim}"]
            r = proof.kvtool("diff", *options, copy, own)
            row.ok(r.code == 0, "all groups are equal", r)
            r = proof.kvtool("describe", "--json", *options, copy)
            row.ok(r.code == 0 and r.json["source_format"] == "llama.cpp state 0",
                   "and it is told as what it is", r)


def main():
    decoders()
    encoders()
    rotation()
    latents()
    copies()
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
