#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_examples.py - messages that say what to type: each is provoked, what it says is typed

A command in a message is run as it stands; an option is put before what was typed.  It
must do its work, or get past what the message was about.  Every sentence in the sources
that has such an example must have a row here, or a reason in LEFT.
"""
import glob
import os
import re
import shlex
import subprocess

import numpy as np

import oracle
from foreign_files import Tensor, torch_bytes
from oracle import DATA, KVTOOL, kvtool, read_text, tap, write_bytes, write_json

SIZES = ["--layers=32", "--block-size=16", "--heads=4", "--head-dim=8"]
EXAMPLE = re.compile(r"for example|such as '?(?:--[a-z-]+=|kvtool )|'kvtool [a-z]|"
                     r": kvtool [a-z]+|(?:see|use|or|with) kvtool [a-z]+ [^%\"]*[A-Za-z]")
# what was typed, the place of the sentence; and where that is not clear what it says to
# add or to type instead, and the whole line
ROWS = [
    ("expect", "expect.c: expected write, check"),
    ("expect compare", "expect.c: compare: expected two contracts"),
    ("expect check", "expect.c: check: expected a contract and dumps"),
    ("expect layout --backend=NONE", "layout.c: --backend is '%.40s', which is no backend"),
    ("expect connector None", "connector.c: '%.60s' is no connector"),
    ("expect layout --release=0.22 nhd.npy", "layout.c: in release %s the backend decides"),
    ("diff", "diff.c: expected two dumps", "kvtool diff whole.npy : rank*.safetensors",
     "kvtool diff whole.npy : rank*.safetensors"),
    ("nhd.npy", "main.c: '%.100s' is a file"),
    ("nope", "main.c: unknown command", "kvtool help", "kvtool help"),
    ("diff --plot=x.svg nhd.npy hnd.npy", "opt_mistakes.c: .txt, such as --heatmap",
     "--heatmap=where.svg", "kvtool diff --heatmap=where.svg nhd.npy hnd.npy"),
    ("diff nhd.npy hnd.npy --where=3", "opt_mistakes.c: a coordinate is an operand"),
    ("describe --of-group=g1 nhd.npy", "opt.c: --%s is '%.100s', expected %s, such as g1",
     "g1:heads=8,head-dim=64", "kvtool describe --of-group=g1:heads=8,head-dim=64 nhd.npy"),
    ("slice --request=A alone.npy x.npy", "slice.c: ; and which blocks the request has",
     "--blocks-of=A=5,2,9:40", "kvtool slice --request=A --layout=nhd --dtype=bf16 "
     "--blocks-of=A=5,2,9:40 alone.npy x.npy"),
    ("mutate --fault=zzzzzzzzz nhd.npy x.npy", "mutate.c: ; see kvtool help faults"),
    ("mutate nhd.npy x.npy", "mutate.c: --fault=NAME (see"),
    ("relayout nhd.npy -o x.npy", "relayout.c: --to=LAYOUT (see"),
    ("convert --format=none nhd.npy x", "formats.c: ; see kvtool help formats"),
    ("convert nhd.npy x.none", "commit.c: %s: no format has this ending"),
    ("describe --dtype=zzzzzzzz nhd.npy", "dtype.c: ; see kvtool help dtypes"),
    ("describe --content-type=a,b nhd.npy", "content_names.c: content type '%.60s' is no"),
    ("describe --content-type=none nhd.npy", "content_names.c: ; see kvtool help contents"),
    ("describe --content-type=fp8_none nhd.npy",
     "content_names.c: content type '%.60s' is not known"),
    ("convert groups.npy -", "rewrite.c: %s: has %d groups, and one array"),
    ("convert --shard-dir=shards nhd.npy x.h5", "drive.c: --shard-dir needs --shard"),
    ("size --spec=gqa:layers=4,heads=8,head-dim=128 --cache-dtype=auto",
     "size.c: the model's type is not known", "--cache-dtype=bfloat16",
     "kvtool size --spec=gqa:layers=4,heads=8,head-dim=128 --cache-dtype=bfloat16"),
    ("size --on-disk=nhd.npy --tokens=64 --requests=2 --model=llama-3.1-8b", "size_sample.c: --on-disk: group %s of "
     "%s is not compressed"),
    ("size --on-disk=dump.h5 --tokens=64 --requests=2 --model=llama-3.1-8b", "size_sample.c: --on-disk: group %s of "
     "%s has %lld blocks"),
    ("size --spec=llama", "model_text.c: '%.60s', expected a ':' after the kind"),
    ("size --spec=gqa:layers=4,heads=8,head-dim=128 --cache-dtype=none",
     "model.c: there is no cache type"),
    ("transfer-sim", "options.c: or the dumps of both sides; such as"),
    ("transfer-sim sweep", "options.c: such as 'kvtool transfer-sim %s "
     "--model=llama-3.1-8b --tps"),
    ("transfer-sim replay --synthetic=1,100", "options.c: --spec%s; such as"),
    ("transfer-sim replay --model=llama-3.1-8b --src=tp=4 --dst=tp=8",
     "replay.c: expected a trace"),
    ("transfer-sim trace.jsonl", "options.c: a trace is replayed"),
    ("transfer-sim dump.h5", "options.c: expected the dump of a destination"),
    ("transfer-sim --model=llama-3.1-8b --src=foo --dst=tp=2",
     "options.c: expected KEY=VALUE, such as layout", "tp=4",
     "kvtool transfer-sim --model=llama-3.1-8b --src=tp=4 --dst=tp=2"),
    ("transfer-sim --model=llama-3.1-8b --heads=3 --src=tp=1 --dst=tp=2",
     "options.c: --%s is of dumps; other"),
    ("size --spec=none:layers=4", "model_text.c: 'kvtool help specs'"),
    ("transfer-sim exec", "exec.c: , and the dumps of the source"),
    ("transfer-sim exec -o x%r.h5", "exec.c: expected the dumps of the source, all ranks"),
    ("transfer-sim exec -o x%r.h5 dump.h5", "exec.c: expected the dumps of all ranks"),
    ("transfer-sim topology", "topology.c: expected --local and --remote"),
    ("transfer-sim topology --local=tp=4,heads=8,backend=NONE --remote=tp=2",
     "topology.c: --local: backend is"),
    ("describe --layout=nhd " + " ".join(SIZES) + " raw.bin",
     "fit.c: %s: the element type is not known"),
    ("describe --from=transformers keys.pt", "layers.c: %s: has only tensor"),
    ("diff bare.npy bigger.npy", "slots.c: %s: block sizes differ", "--blocks-of=A=5,2,9:40",
     "kvtool diff --by=tokens --blocks-of=A=5,2,9:40 bare.npy bigger.npy"),
    ("transfer-sim bare.npy --dst=tp=2", "dumps.c: %s and %s have no request in common: the "
     "first has no requests", "--blocks-of=A=5,2,9:40",
     "kvtool transfer-sim --blocks-of=A=5,2,9:40 bare.npy --dst=tp=2"),
    ("describe moved.npy",
     "proof.c: data: kvtool convert --trust-manifest", "kvtool convert --trust-manifest",
     "kvtool convert --trust-manifest moved.npy x.npy"),
    ("why", "why.c: expected two prompts"),
    ("convert --cache-dtype=foo nhd.npy x.h5",
     "cast.c: is neither an element type nor a content type"),
    ("describe changed.npy", "proof.c: purpose: kvtool convert --trust-manifest",
     "kvtool convert --trust-manifest", "kvtool convert --trust-manifest changed.npy x.npy"),
]
# without operands they do something, or ask for what a row has
RUNS = ("bench", "workers", "size", "transfer-sim", "diff", "expect")
ALSO = ["opt.c: expected %s; for example", "expect.c: expected write, check",
        "size.c: %s: give a type, such as"]
# sentences whose example is not run here
LEFT = {
    "events.c: to be in a medium of files at the end": "no recording of events is here",
    "attend.c: layers that differ have no queries": "no dump of queries is here",
    "attend_plan.c: is compared by blocks, which do not say": "as slots.c says it",
    "bench.c: measure commands on files": "the help of an option",
    "transfer_sim.c: usage: ": "the help of a command",
    "transfer_sim.c: Without a mode it is": "the help of a command",
    "transfer_sim.c: says what --spec takes": "the help of a command",
    "specs.c: A model's config.json says": "the end of help specs",
    "receive.c: --group=%s, for example": "dumps of two groups are there no example",
    "virtual.c: use kvtool reduce --one-file": "virtual datasets of other programs",
    "copy_blocks.c: : kvtool reblock makes": "copy_blocks.bats does what it says",
    "case.c: kvtool diff ends with status": "what is left of a fault always differs",
    "nest.c: heads cannot be sent out": "a layout whose heads overlap, which no file has",
}


def world():
    """The files that examples name."""
    n = [32, 64, 16, 4, 2, 8]
    rng = np.random.default_rng(1)
    table = {"A": list(range(1, 21)), "B": list(range(21, 41))}
    a = (rng.standard_normal(n).astype("<f4").view("<u4") >> 16).astype("<u2")
    manifest = {"layout": "nhd", "dtype": "bfloat16", "block_table": table,
                "num_tokens": {"A": 320, "B": 315}}

    def dump(name, array, more=manifest):
        np.save(name, array)
        write_json(name.replace(".npy", ".json"), {**more, "file": name})

    dump("nhd.npy", a)
    dump("dump.npy", a)
    run("relayout", "--to=hnd", "-o", "hnd.npy", "nhd.npy")
    for name in ("snapshot", "dump", "from", "base", "prefill"):
        run("convert", "nhd.npy", f"{name}.h5")
    run("convert", "hnd.npy", "hnd.h5")
    run("convert", "--format=vllm-2026-07", "nhd.npy", "requests")
    for i in range(2):
        run("slice", f"--tp={i}/2", "-o", f"rank{i}.h5", "nhd.npy")
        run("convert", f"rank{i}.h5", f"rank{i}.safetensors")
        run("convert", f"--shard={i}/2", "--shard-dir=shards", "nhd.npy", "whole.h5")
    run("convert", "nhd.npy", "whole.npy")
    for name in ("cache", "old", "new"):
        run("expect", "write", "dump.h5", f"{name}.kvc")
    run("convert", "nhd.npy", "good.h5")
    run("mutate", "-q", "--fault=swap-kv,layer=3,block=5", "good.h5", "bad.h5")
    np.save("bare.npy", a)
    np.save("alone.npy", a)
    bare = {"layout": "nhd", "dtype": "bfloat16"}
    dump("bare.npy", a, bare)
    dump("bigger.npy", a.reshape(32, 32, 32, 4, 2, 8), bare)
    dump("moved.npy", a)
    subprocess.run("sed -i s/moved.npy/gone.npy/ moved.json; cp whole.npy changed.npy;"
                   "sed s/whole.npy/changed.npy/ whole.json >changed.json;"
                   "printf x | dd of=changed.npy bs=1 seek=5000 conv=notrunc status=none",
                   shell=True, check=True)
    mamba = f"{DATA}/mamba2g4/tp1_SD/rank0.npy"
    subprocess.run(["cp", mamba, "groups.npy"], check=True)
    oracle.copy_manifest(mamba, "groups.npy")
    write_bytes("raw.bin", a.tobytes())
    write_bytes("dump.bin", rng.bytes(32 * 8 * 16 * 8 * 128 * 2 * 2))
    write_json("empty.json",
               {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
                "num_key_value_heads": 4, "hidden_size": 64})
    write_bytes("keys.pt",
                torch_bytes({"keys": Tensor("HalfStorage",
                                            np.zeros((2, 2, 1, 4, 9, 8), "<u2"))}))
    with open("trace.jsonl", "w") as f:
        f.write('{"timestamp": 0, "input_length": 100, "output_length": 5, "hash_ids": [1]}\n')


def run(*args):
    r = kvtool(*args)
    assert r.code == 0, r
    return r


# ---- examples ---------------------------------------------------------------

def commands_of(text):
    """Commands that a message has."""
    text = text.replace(" ('-' is standard input)", "")
    found = re.findall(r"'(kvtool [a-z][^']*)'|(kvtool [a-z-]+(?: (?:[^;,)(]|,(?! ))*)?)", text)
    out = [(a or b).strip() for a, b in found]
    return [c for c in out if re.match(r"kvtool (?:help )?[a-z]+", c)]


def options_of(text):
    part = re.split(r"such as |give |expected ", text)[-1]
    return re.findall(r"--[a-z-]+=[^\s;)']+?(?=,? |,?$|[;)'])", part)


def typed(line):
    return subprocess.run(["bash", "-c", line.replace("kvtool", shlex.quote(KVTOOL), 1)],
                          capture_output=True, text=True, errors="replace", timeout=600)


def look(said, quote=None, line=None):
    """What is wrong with the example of what this says."""
    r = typed(f"kvtool {said}")
    if quote and quote not in r.stderr:
        return f"does not say {quote}: {r.stderr}"
    if r.returncode == 0:
        return f"was accepted: {r.stdout[:200]}"
    first = r.stderr.strip().removeprefix("kvtool")
    examples = [line] if line else commands_of(first.split(": ", 1)[-1])
    if not examples:
        options = options_of(first.strip())
        word, *rest = said.split(" ", 1)
        mode = word + (" " + rest[0].split(" ", 1)[0] if word in (
            "transfer-sim", "expect") and rest and not rest[0].startswith("-") and
            rest[0].split(" ")[0].isalpha() else "")
        examples = [f"kvtool {mode} {' '.join(options)} {said[len(mode):].strip()}"] \
            if options else []
    if not examples:
        return f"has no example: {first}"
    wrong = []
    for line in examples[:1]:
        again = typed(line)
        ok = again.returncode in (0, 1) or "exists; --force" in again.stderr or (
            again.returncode == 3 and again.stderr.split(":")[2:] != r.stderr.split(":")[2:])
        if not ok:
            wrong.append(f"{first}\n  $ {line}\n  {again.returncode}: {again.stderr[:400]}")
    return "\n".join(wrong)


def clean():
    for path in set(glob.glob("*")) - KEPT:
        subprocess.run(["rm", "-rf", path], check=True)


# ---- sources ----------------------------------------------------------------

def sentences():
    """(file, text) of each literal with an example."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = [f for room in ("cli", "sim", "print", "formats", "lib")
             for f in glob.glob(f"{root}/{room}/**/*.c", recursive=True)]
    for path in sorted(files):
        text = read_text(path)
        text = re.sub(r"\.(?:examples|summary|how)\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"\s*)+", "", text)
        for m in re.finditer(r"\"((?:[^\"\\\n]|\\.)*)\"", text):
            if EXAMPLE.search(m.group(1)):
                yield os.path.basename(path), m.group(1)


def is_of(row, name, text):
    place, words = row.split(": ", 1)
    return place == name and words in text.replace("\\n", " ")


def uncovered():
    have = [row[1] for row in ROWS] + ALSO + list(LEFT)
    return [f"{name}: {text}" for name, text in sentences()
            if not any(is_of(row, name, text) for row in have)]


def main(folder):
    global KEPT
    where = os.getcwd()
    os.chdir(folder)
    world()
    KEPT = set(glob.glob("*"))
    names = kvtool("--list-commands").out.split()
    tap.ok(len(names) >= 20, "there are commands", names)
    for name in names:
        r = typed(f"kvtool {name} --none </dev/null")
        if r.returncode == 2 and name not in RUNS:
            tap.equal(look(f"{name} </dev/null"), "", f"{name} without operands")
            clean()
    for said, _, *how in ROWS:
        tap.equal(look(said, *how), "", said)
        clean()
    os.chdir(where)
    missing = uncovered()
    tap.ok(not missing, "every sentence with an example has a row", "\n".join(missing))


oracle.run(main)
