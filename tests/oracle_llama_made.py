#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_llama_made.py - states of llama.cpp that are written by a GGUF's keys alone

With the context that a sample was made in they are, byte by byte, what the sample as the
template gives; and the engine's own file again where that is of one sequence, in the
order of its positions, with its tokens.
"""
import os

import gguf_headers as G
import oracle
from foreign_files import F16, Cells, ggsn_bytes, memory_bytes
from oracle import kvtool, read_bytes, refused, runs, tap, write_bytes, write_text
from oracle_llama_engine import ENGINES, NEW, OLD, options_of
from oracle_llama_write import template


# heads, heads of keys, width of a head, layers, width of the model, and further keys
RECURRENT = {"ssm.conv_kernel": 4, "ssm.state_size": 16}
MODELS = {
    "s260k": ("llama", 8, 4, 8, 5, 64, {}),
    "r64": ("llama", 4, 2, 64, 4, 128, {}),
    "gemma2": ("gemma2", 4, 2, 64, 4, 128, {"attention.sliding_window": 16}),
    "qwen2vl": ("qwen2vl", 4, 2, 32, 3, 128, {}),
    "lfm2": ("lfm2", 4, [0, 0, 2, 0, 2, 0], 32, 6, 128, {"shortconv.l_cache": 3}),
    "lfm2swa": ("lfm2", 4, [0, 0, 2, 0, 2, 0], 32, 6, 128,
                {"shortconv.l_cache": 3, "attention.sliding_window": 16}),
    "mamba": ("mamba", 0, 0, 0, 3, 64,
              {**RECURRENT, "ssm.inner_size": 128, "ssm.time_step_rank": 4}),
    "jamba": ("jamba", 4, [0, 2, 0, 2], 32, 4, 128,
              {**RECURRENT, "ssm.inner_size": 256, "ssm.time_step_rank": 8}),
    "mla": ("deepseek2", 4, 1, 0, 3, 128,
            {"attention.key_length": 80, "attention.value_length": 64,
             "attention.key_length_mla": 48, "attention.value_length_mla": 32}),
}
# sample, what --context says, whether it is the engine's own file again
CASES = [
    (NEW, "gemma2.fa0_u0.ggsn", "flash-attn=off,sequences=2", False),
    (NEW, "gemma2.fa0_u0.s1.ggsq", "flash-attn=off,sequences=2", False),
    (NEW, "jamba.fa0_u0.ggsn", "flash-attn=off,sequences=2", False),
    (NEW, "lfm2.fa0_u0.ggsn", "flash-attn=off,sequences=2", False),
    (NEW, "lfm2.fa0_u0.s0.ggsq", "flash-attn=off,sequences=2", True),
    (NEW, "lfm2swa.fa0_u0.ggsn", "flash-attn=off,sequences=2", False),
    (NEW, "lfm2swa.fa0_u0.s1.ggsq", "flash-attn=off,sequences=2", True),
    (NEW, "mamba.fa0_u0.ggsn", "sequences=2", False),
    (NEW, "mamba.fa0_u0.s1.ggsq", "", True),
    (NEW, "mla.fa0_u0.ggsn", "flash-attn=off,sequences=2", False),
    (NEW, "mla.fa0_u0.s1.ggsq", "flash-attn=off,sequences=2", True),
    (NEW, "r64.q4_0_fa1.ggsn", "", True),
    (NEW, "s260k.hole.ggsn", "flash-attn=on", True),
    (NEW, "s260k.hole.s0.ggsq", "unified,version=3", True),
    (NEW, "s260k.streams4.ggsn", "flash-attn=off,sequences=4", True),
    (NEW, "s260k.streams4.s3.ggsq", "sequences=4,flash-attn=off,type-k=f16", True),
    (NEW, "s260k.unified_shared.ggsn", "unified,sequences=4", True),
    (NEW, "s260k.unified_shared.s1.ggsq", "", True),
    (OLD, "lfm2.ggsn", "flash-attn=off,version=9", False),
    (OLD, "lfm2.ggsq", "flash-attn=off,version=2", True),
    (OLD, "mamba.ggsn", "version=9", False),
    (OLD, "mamba.ggsq", "version=2", True),
    (OLD, "s260k.two.ggsn", "flash-attn=off,sequences=2,version=9", False),
    (OLD, "s260k.two.ggsq", "flash-attn=off,sequences=2,version=2", True),
]


def read(path):
    return read_bytes(path)


def write_gguf(path, name, **more):
    arch, heads, kv, dim, layers, width, extra = MODELS[name]
    keys = G.keys(layers, width, heads, kv)
    if dim:
        keys.update({"attention.key_length": dim, "attention.value_length": dim})
    return G.write(path, G.Model(arch, {**keys, **extra, **more}, [], 0))


def without_outputs(data):
    """A ggsn of version 9 as it is if no logits are kept."""
    at = 12 + 4 * int.from_bytes(data[8:12], "little")
    at += 4 + int.from_bytes(data[at:at + 4], "little")
    end = at + 4 + 4 * int.from_bytes(data[at:at + 4], "little")
    for _ in range(2):
        end += 8 + 4 * int.from_bytes(data[end:end + 8], "little")
    return data[:at] + bytes(20) + data[end:]


def check_samples(tmp, models):
    for folder, name, context, own in CASES:
        path, form = f"{ENGINES}/{folder}/{name}", name[-4:]
        dump, out = f"{tmp}/dump.h5", f"{tmp}/made.bin"
        r = runs(f"{folder}/{name} is read", "convert", "-q", "-f",
                 *options_of(folder, name), path, dump)
        if r.code:
            continue
        r = runs(f"{folder}/{name} is written by a GGUF", "convert", "-q", "-f",
                 "--verify", f"--format={form}", dump, out,
                 f"--model={models[name.split('.', maxsplit=1)[0]]}",
                 *[f"--context={context}"] * (context != ""))
        if r.code:
            continue
        made = read(out)
        r = kvtool("convert", "-q", "-f", f"--format={form}", f"--template={path}", dump,
                   out)
        want = read(out)
        if form == "ggsn" and folder == OLD:
            want = without_outputs(want)
        tap.ok(r.code == 0 and made == want, f"{folder}/{name}: as by a template", r)
        if own:
            tap.ok(made == read(path), f"{folder}/{name}: as the engine wrote it")


def check_foreign(tmp, models):
    """What comes from vLLM: keys are put in pairs for a llama, as the GGUF says it is."""
    base = f"{oracle.DATA}/s260k/paged_bs16/kv_first_nhd.bf16.npy"
    like = template(f"{tmp}/like.ggsn", 5, 64, "ggsn", "llama")
    by = {"template": [f"--template={like}"],
          "GGUF": [f"--model={models['s260k']}", "--context=unified"]}
    for how, said in by.items():
        runs(f"a dump of vLLM is written by a {how}", "convert", "-q", "-f", "--verify",
             "--format=ggsn", base, f"{tmp}/{how}.ggsn", *said)
    tap.ok(read(f"{tmp}/GGUF.ggsn") == read(f"{tmp}/template.ggsn"), "as by a template")


def check_layers(tmp):
    """Layers with other numbers of heads, of one width: the GGUF has a number for each."""
    gguf = G.write(f"{tmp}/deci.gguf", G.MODELS["deci"])
    rows = [[bytes([10 * layer + t + kv]) * (64 * heads) for t in range(5)]
            for kv in (0, 100) for layer, heads in enumerate((2, 1, 4))]
    state = ggsn_bytes(memory_bytes([Cells([(t, [0]) for t in range(5)], rows[:3],
                                           rows[3:], (F16, F16))]), 10, [], "deci")
    path, dump, out = (f"{tmp}/layers.{e}" for e in ("ggsn", "h5", "made"))
    write_bytes(path, state)
    r = kvtool("convert", "-q", "-f", "--head-dim=32", path, dump)
    s = kvtool("convert", "-q", "-f", "--verify", "--format=ggsn", f"--model={gguf}", dump,
               out)
    tap.ok(r.code == s.code == 0 and read(out) == state,
           "layers with other numbers of heads", f"{r}\n{s}")


# ---- what is said, and what is refused ----------------------------------------------

def check_use(tmp, models):
    dump = f"{tmp}/use.h5"
    kvtool("convert", "-q", "-f", "--heads=4", f"{ENGINES}/{NEW}/s260k.hole.s0.ggsq", dump)
    for context, says in (
            ("", "ggsq 3 (default) of llama, keys f16, values f16, flash attention on "
             "(default), one sequence, or unified cells (default)"),
            ("version=3,flash-attn=off,sequences=4", "ggsq 3 of llama, keys f16, values "
             "f16, flash attention off, 4 sequences with cells of their own\n"),
            ("unified", "flash attention on (default), one sequence, or unified cells\n")):
        runs(f"says what it took: {context or 'nothing'}", "convert", "-f",
             "--format=ggsq", f"--model={models['s260k']}", dump, f"{tmp}/use.ggsq",
             *[f"--context={context}"] * (context != ""), says=says)


def check_refusals(tmp, models):
    dump, two, image = f"{tmp}/hole.h5", f"{tmp}/two.h5", f"{tmp}/image.h5"
    for name, out, said in (("s260k.hole.s0.ggsq", dump, "--heads=4"),
                            ("s260k.streams4.ggsn", two, "--heads=4"),
                            ("qwen2vl.fa0_u0.s1.ggsq", image, "--head-dim=32")):
        kvtool("convert", "-q", "-f", said, f"{ENGINES}/{NEW}/{name}", out)
    gguf = {arch: G.write(f"{tmp}/{arch}.gguf", G.MODELS[arch])
            for arch in ("gpt-oss", "deepseek2")}
    gguf["other"] = write_gguf(f"{tmp}/other.gguf", "s260k", **{"block_count": 4})
    gguf["gaps"] = write_gguf(f"{tmp}/gaps.gguf", "s260k",
                              **{"block_count": 6,
                                 "attention.head_count_kv": [4, 0, 4, 4, 4, 4]})
    gguf["new"] = G.write(f"{tmp}/new.gguf", G.Model(
        "newest", G.keys(5, 64, 8, 4), [], 0))
    write_text(f"{tmp}/config.json",
               '{"model_type": "llama", "num_hidden_layers": 5, "hidden_size": 64,'
               '"num_attention_heads": 8, "num_key_value_heads": 4}')
    gguf["config"] = f"{tmp}/config.json"
    gguf.update(models)
    out = f"{tmp}/no.bin"
    for code, says, source, form, model, context in (
            (2, "is no GGUF", dump, "ggsq", "config", ""),
            (2, "there is no key 'cells'", dump, "ggsq", "s260k", "cells=3"),
            (2, "expected on or off", dump, "ggsq", "s260k", "flash-attn=auto"),
            (2, "type-v is 'q3_k'", dump, "ggsq", "s260k", "type-v=q3_k"),
            (2, "flash attention only", dump, "ggsq", "s260k",
             "type-v=q8_0,flash-attn=off"),
            (4, "kvtool writes 2 and 3", dump, "ggsq", "s260k", "version=4"),
            (2, "give --context=unified", two, "ggsn", "s260k", ""),
            (3, "for 2 sequences, and the dump has one with number 3", two, "ggsn",
             "s260k", "sequences=2"),
            (4, "architecture newest, which kvtool does not know", dump, "ggsq", "new",
             ""),
            (4, "architecture llama, with layers that have rows of no elements", dump,
             "ggsq", "gaps", ""),
            (3, "layers", dump, "ggsq", "other", ""),
            (4, "architecture qwen2vl, whose cells builds", image, "ggsq", "qwen2vl",
             "version=2"),
            (4, "several positions", image, "ggsq", "qwen2vl", "")):
        r = kvtool("convert", f"--format={form}", f"--model={gguf[model]}", "-o", out,
                   *[f"--context={context}"] * (context != ""), source)
        tap.ok(r.code == code and says in r.err and not os.path.exists(out),
               f"status {code}, {says}", r)
    # latents of another width than the model's are told before the writer asks
    mla = f"{tmp}/mla.h5"
    kvtool("convert", "-q", "-f", f"{ENGINES}/{NEW}/mla.fa0_u0.s1.ggsq", mla)
    for model, context, says in (("mla", "version=2", "latents builds of that version"),
                                 ("deepseek2", "", "latents")):
        r = kvtool("convert", "--format=ggsq", f"--model={gguf[model]}", mla, "-o", out,
                   *[f"--context={context}"] * (context != ""))
        tap.ok(r.code in (3, 4) and says in r.err and not os.path.exists(out),
               f"{model} is refused", r)
    refused("a template has a context", 2, "is for --model", "convert", "--format=ggsq",
            "--context=unified", dump, "-o", out,
            f"--template={ENGINES}/{NEW}/s260k.hole.s0.ggsq")


def main(tmp):
    models = {n: write_gguf(f"{tmp}/{n}.gguf", n) for n in MODELS}
    check_samples(tmp, models)
    check_foreign(tmp, models)
    check_layers(tmp)
    check_use(tmp, models)
    check_refusals(tmp, models)


if __name__ == "__main__":
    oracle.run(main)
