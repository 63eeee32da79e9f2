#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_digest.py - what kvtool digest prints, against kvd1.py

Every form over every dump, then what must be equal (layouts, block sizes, ranks
that add up, connector generations, formats) and what must not.
"""
import copy
import os

import numpy as np

import oracle
from kvd1 import (BYS, MASK, SCOPES, MambaDump, attention_pool, connector_pool, lanes_of,
                  printed, text, whole)
from oracle import FULL, kvtool, tap, write_json


def compare(name, got, want):
    """Two {label: value}."""
    for label in sorted(set(got) | set(want)):
        if got.get(label) != want.get(label):
            tap.ok(False, name, f"{label or 'whole'}: got {got.get(label)}, "
                   f"expected {want.get(label)}")
            return
    tap.ok(len(want) > 0, f"{name} ({len(want)})")


def check_file(name, path, pool, bys=BYS, scopes=SCOPES, hints=()):
    for by in bys:
        for scope in scopes:
            want = pool.expected(scope, by)
            if want is None:
                continue
            got, said = printed(path, "--scope", scope, "--by", by, *hints)
            if not tap.ok(got is not None, f"{name}: {scope} by {by}: exit 0", said):
                continue
            compare(f"{name}: {scope} by {by}", got.get(scope, {}),
                    {k: text(scope, v) for k, v in want.items()})


def check_plain(name, path, pool):
    """Without options: one line for each scope, tokens first."""
    r = kvtool("digest", path)
    want = "".join(f"{text(s, pool.expected(s, 'whole')[''])}  {path}\n" for s in SCOPES)
    tap.equal(r.out, want, f"{name}: the two lines")


def check_json(name, path, pool):
    for by in ("whole", "request", "head", "block"):
        r = kvtool("digest", "--json", "--by", by, path)
        try:
            said = r.json
            said = said[0] if isinstance(said, list) else said
            got = {}
            for row in said["digests"]:
                label = " ".join(f"{k}={row[k]}" for k in
                                 ("request", "layer", "head", "block")
                                 if k in row)
                got.setdefault(row["scope"], {})[label] = row["value"]
                if row["by"] != by:
                    raise ValueError(f"by {row['by']}, expected {by}")
            if said["kvtool_json"] != 2 or said["file"] != path:
                raise ValueError("kvtool_json or file is wrong")
        except (ValueError, KeyError, IndexError) as e:
            tap.ok(False, f"{name}: --json --by {by}", f"{e!r}\n{r}")
            continue
        for scope in SCOPES:
            want = pool.expected(scope, by)
            if want is not None:
                compare(f"{name}: --json {scope} by {by}", got.get(scope, {}),
                        {k: text(scope, v) for k, v in want.items()})


# ---- what must be equal, and what must not ----------------------------------

def check_dumps(dumps, pools):
    seen = set()
    for d in dumps:
        # all forms once for each shape and type; the rest whole
        kind = (d.model, d.folder, d.dtype)
        first = FULL or kind not in seen
        seen.add(kind)
        check_file(d.name, d.path, pools[d.name], BYS if first else ("whole", "request"))
    for d in dumps[:1] + dumps[-1:]:
        check_plain(d.name, d.path, pools[d.name])
        check_json(d.name, d.path, pools[d.name])


def check_same(dumps):
    """One set of values, many files: the printed digests themselves agree."""
    by_kind = {}
    for d in dumps:
        if not d.folder.startswith("tp"):
            by_kind.setdefault((d.model, d.folder, d.dtype), []).append(d)
    for kind, members in by_kind.items():
        values = {whole(d.path) for d in members}
        tap.ok(len(values) == 1 and all(values.copy().pop()),
               f"{' '.join(kind)}: one digest for {len(members)} layouts",
               values)
    tokens = {k: whole(v[0].path)[0] for k, v in by_kind.items()}
    tap.ok(tokens["s260k", "paged_bs16", "bfloat16"] ==
           tokens["s260k", "paged_bs32", "bfloat16"],
           "s260k: block size 16 and 32 have one tokens digest")


def in_type(dump, dtype, tmp):
    """What the model computed, laid out as in 'dump' but of another type."""
    bits = oracle.UNSIGNED[oracle.ITEMSIZE[dtype]]
    other = copy.copy(dump)
    other.dtype, other.cells = dtype, np.zeros(dump.cells.shape, bits)
    for r, table in dump.tables.items():
        t = np.arange(dump.ntokens[r])
        block, slot = np.array(table)[t // dump.dims["S"]], t % dump.dims["S"]
        other.cells[:, :, block, slot] = other.canonical(r)
    array = np.empty(dump.nelements, bits)
    array[dump.offsets] = other.cells
    other.path = f"{tmp}/{dtype}.npy"
    np.save(other.path, array.reshape(dump.side["file_shape"]))
    write_json(f"{tmp}/{dtype}.json",
               dict(dump.side, file=f"{dtype}.npy", dtype=dtype,
                    npy_dtype=array.dtype.str))
    return other


def check_types(dump, tmp):
    """Values that differ by rounding alone have other digests."""
    tokens = set()
    for dtype in ("bfloat16", "float16", "float32"):
        other = in_type(dump, dtype, tmp)
        check_file(f"{dump.model} as {dtype}", other.path,
                   attention_pool(other), ("whole",))
        tokens.add(whole(other.path)[0])
    tap.ok(len(tokens) == 3 and None not in tokens,
           f"{dump.model}: three element types, three digests", tokens)


def check_ranks(name, whole_path, rank_paths):
    """Digests of disjoint heads add up to that of all of them."""
    total = [0, 0]
    for path in rank_paths:
        value = whole(path)[0]
        if value is None:
            tap.ok(False, name, f"{path}: no digest")
            return
        total = [(a + b) & MASK for a, b in zip(total, lanes_of(value))]
    value = whole(whole_path)[0]
    tap.equal(text("tokens", total), value, name)


def check_parallel(dumps, mamba):
    tp1 = next(d for d in dumps if d.name == "s260k/paged_bs16/packed_nhd.bf16")
    for folder in ("tp2", "tp4"):
        check_ranks(f"s260k: ranks of {folder} add up", tp1.path,
                    [d.path for d in dumps if d.folder == folder])
    one = {m.folder: m for m in mamba}
    for folder in ("tp2_SD", "tp4_DS"):
        check_ranks(f"mamba2g4: ranks of {folder} add up",
                    one["tp1_SD"].path,
                    [m.path for m in mamba if m.folder == folder])


def check_mamba(mamba):
    for m in mamba:
        check_file(m.name, m.path, m.pool(),
                   BYS if FULL or m.folder in ("tp1_SD", "tp4_DS")
                   else ("whole", "request", "layer"))
    both = {whole(m.path) for m in mamba if m.folder.startswith("tp1")}
    tap.ok(len(both) == 1 and all(both.copy().pop()),
           "mamba2g4: SD and DS have one digest", both)


# ---- connector folders ------------------------------------------------------

def check_connectors(pools):
    base = {"s260k": "s260k/paged_bs16/packed_nhd.bf16",
            "gqa64": "gqa64/paged_bs16/packed_nhd.bf16",
            "mla144": "mla144/paged_bs16/mla_lbsc.bf16"}
    values = set()
    for model, paged in base.items():
        tops = [f"{oracle.DATA}/{model}/connector"]
        if model != "mla144":
            tops = [f"{tops[0]}/{g}" for g in sorted(os.listdir(tops[0]))]
        for top in tops:
            pool = connector_pool(top, model)
            name = top[len(oracle.DATA) + 1:]
            for folder, (_, slot) in pool.live.items():
                truth = pools[paged].tokens(pool.names[folder])
                tap.ok(np.array_equal(pool.tokens(folder),
                                      truth[:, :len(slot)]),
                       f"evaluator: {name}: {pool.names[folder]} is what the "
                       "paged cache holds")
            check_file(name, top, pool, ("whole", "request", "layer", "head"),
                       ("tokens",), pool.hints)
            if model == "s260k":
                values.add(whole(top, *pool.hints)[0])
    tap.ok(len(values) == 1 and None not in values,
           "s260k: three connector generations, one digest", values)


# ---- after a conversion -----------------------------------------------------

def check_converted(dumps, pools, tmp):
    """The digest does not see formats and layouts."""
    for n, d in enumerate(dumps if FULL else dumps[::5]):
        presets = (("mla", "mla-cross") if d.latent else
                   ("bhlsc", "rocm-paged", "cross-kv-head"))
        for preset in presets:
            for ending in (".h5", ".safetensors", ".npy", ".bin"):
                if ending == ".h5" and preset == "rocm-paged" and not FULL:
                    continue
                # a manifest of their own for .npy and .bin
                out = f"{tmp}/{n}.{preset}-{ending[1:]}{ending}"
                kvtool("relayout", "--to", preset, "-o", out, d.path)
                check_file(f"{d.name} -> {preset} {ending}", out,
                           pools[d.name], ("whole",))


def main(tmp):
    dumps = oracle.attention_dumps()
    pools = {d.name: attention_pool(d) for d in dumps}
    mamba = [MambaDump(s) for s in oracle.sidecars("mamba2g4")]
    check_dumps(dumps, pools)
    check_same(dumps)
    check_parallel(dumps, mamba)
    check_mamba(mamba)
    check_connectors(pools)
    # in nhd, whose order does not depend on the type
    check_types(next(d for d in dumps if d.layout == "nhd"), tmp)
    check_converted(dumps, pools, tmp)


oracle.run(main)
