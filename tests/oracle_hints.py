#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_hints.py - what is said of an input agrees with it and changes nothing, or is refused

Every readable dump of oracle_self.py, and one that was written in each format, is opened
with options that say what describe says of it: it and its digest stay as they are.  Then
with each option that says anything else: status 2 or 3 and a sentence of one form.  The
options are those of --help, so a new one that this test cannot say wrongly is told.
"""
import concurrent.futures
import json
import os
import re

import oracle
import oracle_self
from oracle import DATA, FULL, SHARE, kvtool, tap
from oracle_self import Case

ALIASES = {"page-size": "block-size", "tokens-per-block": "block-size",
           "content": "content-size"}
# What these formats leave to the user, or say of the model and not of its cache.
CHOSEN = {("block-size", f) for f in ("llama", "transformers", "mlx", "lmcache",
                                      "mooncake", "folder")} | {("dtype", "offload")}
OTHERWISE = (r": has \d+ bytes(, expected| of data, but) |a key and a value of --head-dim elements, or|"
             r"no axis of tokens in order|, expected uint8 for|: has \d+ bytes, not a multiple|for the kv extent, not 2|"
             r": these files have no header: |: the number of layers is not known; ")
SINGLE = re.compile(r"^[LBSHKDC]+$")


def input_options():
    text = kvtool("describe", "--help").out.split("\nfor inputs that", 1)[1]
    return re.findall(r"^      --([a-z-]+)", text, re.M)


# ---- what may be said of a group ---------------------------------------------------

def halves(g):
    """Of keys and values: which, "kv", "k" or "v"; "" of anything else."""
    names = "".join(c["name"] for c in g["components"] or [])
    return "kv" if g["kv"] == 2 else names if names in ("k", "v") else ""


def facts(g):
    """What describe says, by the names of options; None: the group has no such thing."""
    heads = g["heads"] > 1 or g["kind"] not in ("opaque", "mamba_conv", "mamba1_conv")
    return {"layers": g["layers"], "blocks": g["blocks"], "heads": g["heads"] if heads else None,
            "block-size": g["block_size"] or None,
            "head-dim": g["dim"] if "k" in halves(g) else None,
            "content-size": None if halves(g) else g["dim"],
            "dtype": g["dtype"], "layout": g["layout"], "content-type": g["content_type"]}


def other_layout(g):
    """Axes that put some byte elsewhere, or None."""
    n = {"L": g["layers"], "B": g["blocks"], "S": g["slots"], "H": g["heads"],
         "K": g["kv"], "D": g["dim"], "C": g["kv"] * g["dim"]}
    if not SINGLE.match(g["layout"]):
        return "LBSHC"
    full = g["layout"].replace("C", "KD" if g["kv"] == 2 else "D")
    full += "".join(a for a in "LBSHKD" if a not in full)
    return full[::-1] if sum(n[a] > 1 for a in full) > 1 else None


def wrong(name, groups):
    """A value that no group has, or None."""
    every = [facts(g).get(name) for g in groups]
    if name == "dtype":
        return next(t for t in ("float64", "float32") if t not in every)
    if name == "layout":
        return next((o for o in map(other_layout, groups) if o), None) if groups else "LBSHC"
    if name == "content-type":
        return "fp8-ds-mla" if "fp8-ds-mla" not in every else "indexer/e4m3fn"
    if name in ("layers", "blocks", "block-size", "heads", "head-dim", "content-size"):
        return str(max([v or 0 for v in every], default=0) + 60)
    if name == "model" and groups and not any(g["kv"] == 2 for g in groups):
        return None                     # states and rows of bytes are of any model
    return {"spec": "gqa:layers=77,heads=64,head-dim=77", "skip": "9",
            "manifest": "/nonexistent.json", "model": os.path.abspath("testdata/config/gemma-3-4b.gguf")}.get(name)


def in_groups(groups):
    """Options that say all of all groups: for all where that is one, or of each."""
    out, own = [], {}
    for name in facts(groups[0]) if groups else []:
        every = {g["id"]: facts(g)[name] for g in groups}
        said = {k: v for k, v in every.items() if v is not None}
        if len(set(said.values())) == 1 and (name != "content-type" or len(groups) == 1):
            out.append(f"--{name}={next(iter(said.values()))}")
        else:
            for k, v in said.items():
                own.setdefault(k, []).append(f"{name}={v}")
    return out + [f"--of-group={k}:{','.join(v)}" for k, v in own.items()]


# ---- dumps --------------------------------------------------------------------------

def written_dumps(folder):
    """One dump in every format that kvtool writes."""
    source = f"{DATA}/s260k/paged_bs16/packed_nhd.bf16.npy"
    shape = ["--dtype=bf16", "--block-size=16", "--heads=4", "--head-dim=8", "--layers=5"]
    said = {"hicache": ["--layout=hicache-page-first", *shape[:-1]],
            "hicache-page-head": shape[:-1],
            "offload": ["--from=vllm-fs", "--layout=nhd", *shape[:-1], "--set=tp-size=1"],
            "vllm-2025": ["--block-size=16", "--heads=4"], "vllm-2026-05": ["--block-size=16"],
            "vllm-2026-07": ["--block-size=16", "--layout=nhd"]}
    for name in ("h5", "npy", "bin", "safetensors", "canonical", *said):
        out = f"{folder}/written.{name}" if name not in said else f"{folder}/w-{name}"
        if not kvtool("convert", *([f"--format={name}"] if name in said else []),
                      source, out).code:
            yield Case(f"written {name}", out, [] if name not in said else
                       said[name] if name.startswith(("hicache", "offload"))
                       else [f"--from={name}", *said[name]])
    merged = f"{DATA}/mamba2g4/tp2_SD/rank1.npy"
    kvtool("convert", merged, f"{folder}/hybrid.h5")
    yield Case("hybrid h5", f"{folder}/hybrid.h5")


# ---- the test -----------------------------------------------------------------------

def look(case, *more):
    return kvtool("describe", "--json", *case.options, *more, case.path, folder=case.folder)


def held(text):
    """What describe prints, but that a length alone tells of an extent that was not given."""
    about = json.loads(text)
    about.pop("unnoticed", None)
    return about


def sweep(case, options):
    """Problems of a dump; None: it cannot be read."""
    base = look(case)
    if base.code:
        return None
    about, bad = json.loads(base.out), []
    groups, given = about["groups"], {ALIASES.get(n, n) for n in re.findall(
        r"--([a-z-]+)", " ".join(case.options))}
    agreeing = in_groups(groups)
    again = look(case, *agreeing)
    digests = [kvtool("digest", *case.options, *o, case.path, folder=case.folder)
               for o in ([], agreeing)]
    if again.code or held(again.out) != held(base.out) or \
            (digests[0].code, digests[0].out) != (digests[1].code, digests[1].out):
        bad.append(f"{agreeing}: {again.err}{digests[1].err}")
    if "--of-group" in " ".join(agreeing) and len(groups) > 1:
        one = groups[0]["id"]
        r = look(case, f"--of-group={one}:layers={groups[0]['layers'] + 1}")
        if r.code != 3 or f"but group {one} has " not in r.err:
            bad.append(f"--of-group: {r.code} {r.err}")
    for name in options:
        value, plain = wrong(name, groups), ALIASES.get(name, name)
        if value is None or plain in given or (plain, about["format"]) in CHOSEN or \
                not groups and name in ("heads", "head-dim", "model"):
            continue
        r = look(case, f"--{name}={value}")
        form = rf"kvtool describe: .*: --{plain}( is .*)?, but .*\n"
        # without a header only the length speaks against it, or another option
        free = (given or name == "skip") and re.search(OTHERWISE, r.err) or \
            name == "model" and "window=1024 needs token" in r.err
        if r.out or not (r.code in (2, 3) and (re.fullmatch(form, r.err) or free)) \
                and not (name == "manifest" and r.code == 5):   # there is no such file
            bad.append(f"--{name}={value}: {r.code} {r.err or r.out[:80]}")
    return bad


def main():
    options = input_options()
    sayable = [o for o in options if wrong(ALIASES.get(o, o), [])]
    tap.equal(sorted(set(options) - set(sayable)),
              ["blocks-of", "from", "of-group", "prompt", "seq-lens", "set",
               "slot-mapping", "trust-manifest"], "every option can be wrong")
    with oracle.workdir() as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        cases = [*oracle_self.made_dumps(), *oracle_self.foreign_dumps(folder),
                 *oracle_self.drawn_dumps(folder, range(40 if FULL else 8)),
                 *written_dumps(folder),
                 *oracle_self.listed_dumps(oracle_self.ENGINES,
                                           f"{oracle_self.ENGINES}/samples.tsv")][::SHARE]
        read = 0
        for case, bad in zip(cases, pool.map(lambda c: sweep(c, sayable), cases)):
            read += bad is not None
            tap.ok(not bad, case.name, "\n".join(bad or []))
        tap.ok(read > 150 // SHARE, "most of them can be read", f"{read} of {len(cases)}")


oracle.run(main)
