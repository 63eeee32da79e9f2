#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_diagnose.py - is every planted fault found, located and named?

Plants each fault of kvtool mutate in real dumps.  What is written must be what
fault_model.py says, bit for bit; diff must find it where it is.  If just one
fault of the model explains the difference, diff must say its name in 95 of 100
cases; whatever it names must be what was planted.
"""
import collections
import itertools
import os

import numpy as np

import fault_model
import oracle
from fault_model import Cache
from kvd1 import MambaDump
from oracle import FEW, FULL, array_bytes, kvtool, tap
from oracle_slice import States

ENOUGH = 0.95

FAULTS = ("swap-heads", "copy-head", "rank-map", "swap-heads-slots", "swap-kv",
          "split-kv", "rope-pairs", "x-packing", "conv-order", "conv-parts",
          "shift-tokens", "shift-blocks", "stale-block", "wrong-layer", "padding",
          "kernel-stride", "zero-block", "zero-kv", "zero-tail", "byte-order", "flip-bits",
          "scale", "saturate", "nan")
QUICK = ("s260k/paged_bs16/packed_nhd.bf16", "s260k/paged_bs16/rocm_x.bf16",
         "s260k/paged_bs16/packed_nhd.fp32", "s260k/tp2/rank1.packed_nhd.bf16",
         "gqa64/paged_bs16/packed_hnd.bf16", "mla144/paged_bs16/mla_blsc.bf16",
         "mamba2g4/tp1_SD/rank0", "mamba2g4/tp4_DS/rank2")[::2 if FEW else 1]


# ---- dumps ------------------------------------------------------------------

class Patient:
    """A group of a dump: its cache, and how to read it from a file like it."""

    def __init__(self, name, path, group, cache, read, first_head, channels=None):
        self.name, self.path, self.group = name, path, group
        self.cache, self.read, self.first_head = cache, read, first_head
        self.channels = channels or range(cache.n[5])	# of the model


def attention(d):
    live = np.zeros((d.dims["B"], d.dims["S"]), bool)
    for r, table in d.tables.items():
        for t in range(d.ntokens[r]):
            live[table[t // d.dims["S"]], t % d.dims["S"]] = True
    offsets = d.offsets.transpose(1, 2, 3, 4, 0, 5)

    def read(path):
        bits = np.frombuffer(array_bytes(path), oracle.UNSIGNED[d.itemsize])
        return bits[offsets]

    parts = [n for _, n in d.side["content"]] if d.latent else ()
    cache = Cache(read(d.path), d.dtype, "mla" if d.latent else "attention", live,
                  d.tables, offsets, parts=parts)
    return Patient(d.name, d.path, "g0", cache, read, d.head_start)


def dense(shape):
    """Offsets of an array whose axes are in this order already."""
    return np.arange(int(np.prod(shape))).reshape(shape)


def states(d):
    """A page has two groups: taps of channels, and heads of states."""
    side, group = d.side, {}
    live = np.zeros((d.page.shape[1], 1), bool)
    for table in side["block_table"].values():
        live[table] = True
    bounds = [side["conv"][p] for p in ("x", "B", "C")]

    def conv(path):
        s = States(at(path))		# [L, B, channels, taps]
        return s.conv.transpose(0, 1, 3, 2)[:, :, :, None, None, :]

    def ssm(path):
        s = States(at(path))
        bits = np.ascontiguousarray(s.ssm).view(np.uint32)
        return bits.reshape(*s.ssm.shape[:3], -1)[:, :, None, :, None, :]

    def at(path):
        copy = object.__new__(MambaDump)
        copy.side = side
        copy.page = np.load(path).reshape(d.page.shape)
        return copy

    taps = conv(d.path)
    if side["conv_layout"] == "DS":
        n = taps.shape
        offsets = dense((n[0], n[1], n[5], n[2])).transpose(0, 1, 3, 2)
        offsets = offsets[:, :, :, None, None, :]
    else:
        offsets = dense(taps.shape)
    group["conv"] = Cache(taps, "bfloat16", "conv", live.repeat(taps.shape[2], 1),
                          side["block_table"], offsets,
                          parts=[e - b for b, e in bounds])
    heads = ssm(d.path)
    group["ssm"] = Cache(heads, "float32", "ssm", live, side["block_table"],
                         dense(heads.shape))
    channels = [n for part in ("x", "B", "C")
                for n in range(*side["conv"]["global_" + part])]
    yield Patient(f"{d.name} conv", d.path, "conv", group["conv"], conv, 0, channels)
    yield Patient(f"{d.name} ssm", d.path, "ssm", group["ssm"], ssm,
                  side["ssm"]["heads"][0])


def patients():
    for m in ("s260k", "gqa64", "mla144"):
        for sidecar in oracle.sidecars(m):
            name = sidecar[len(oracle.DATA) + 1:-5]
            if FULL or name in QUICK:
                yield attention(oracle.Dump(m, sidecar))
    for sidecar in oracle.sidecars("mamba2g4"):
        if FULL or sidecar[len(oracle.DATA) + 1:-5] in QUICK:
            yield from states(MambaDump(sidecar))


# ---- one fault in one dump --------------------------------------------------

def expected_where(p, differs):
    at = np.argwhere(differs)
    first, last = at.min(0), at.max(0)
    keys = ("layers", "blocks", "slots", "heads", "kvs", "dims")
    where = {k: [int(a), int(b)] for k, a, b in zip(keys, first, last)}
    where["heads"] = [n + p.first_head for n in where["heads"]]
    where["states"] = where["slots"]		# its old name
    return where


def one_bit_each(c, suspect):
    """How many elements differ by one bit."""
    bits = c.bits ^ suspect
    return int(((bits != 0) & ((bits & (bits - 1)) == 0) & c.live).sum())


def check_planted(p, name, said, suspect, found):
    """What was written, and what was said of it, are what the model has."""
    c = p.cache
    arguments = dict(said["arguments"])
    arguments.pop("factor", None)
    arguments.pop("cut", None)
    for k in ("a", "b", "to") + (("from",) if "to" in arguments else ()):
        if k in arguments:
            arguments[k] -= p.first_head
    differs = (c.bits != suspect) & c.live
    # a strike at one block, or one that chooses by chance, is explained instead
    predicted = [P for n, a, P, _, _ in c.predictions
                 if n == said["fault"] and a == arguments and
                 n not in ("zero-block", "zero-kv")]
    if predicted:			# what is not known stays, or is padding
        as_asked = np.all((predicted[0] == suspect) | ~c.live)
    elif said["fault"] == "flip-bits":
        as_asked = differs.sum() == arguments["count"] == one_bit_each(c, suspect)
    else:
        as_asked = said["fault"] in [n for n, _ in found]
    return tap.ok(as_asked and said["changed"] == int(differs.sum()) and
                  said["where"] == expected_where(p, differs),
                  f"{name}: planted",
                  f"{said}\nmodel says {found} {expected_where(p, differs)}")


def check_fault(p, fault, seed, tmp, table):
    name = f"{p.name}: {fault}, seed {seed}"
    out = f"{tmp}/out{os.path.splitext(p.path)[1]}"
    r = kvtool("mutate", f"--fault={fault}", f"--seed={seed}", "--json", "-f",
               f"--group={p.group}", "--no-sync", "-o", out, p.path)
    if r.code == 4:
        return False
    if not tap.ok(r.code == 0, f"{name}: mutate", r):
        return True
    said = r.json
    suspect = p.read(out)
    found = fault_model.explanations(p.cache, suspect)
    if check_planted(p, name, said, suspect, found):
        judge(p, name, said, {n for n, _ in found}, suspect, out, table)
    return True


def first_in_order(p, differs):
    """By layer, then by request and token, then as the elements stand in a row."""
    c = p.cache
    layer = int(np.flatnonzero(differs.any(axis=(1, 2, 3, 4, 5)))[0])
    slots = c.n[2] if c.tokens() else 1
    for table in c.tables.values():
        for token in range(len(table) * slots):
            block, slot = table[token // slots], token % slots
            here = differs[layer, block, slot:slot + 1 if c.tokens() else None]
            if here.any():
                s, h, k, d = (int(i[0]) for i in np.nonzero(here))
                return [layer, block, slot + s, h + p.first_head, k, p.channels[d]]
    return None


def located(p, found, suspect):
    """diff shows the first element, and which heads of which layers differ."""
    c = p.cache
    differs = (c.bits != suspect) & c.live
    wrong = [g for g in found["groups"] if g["result"] != "equal"]
    if [g["id"] for g in wrong] != [p.group]:
        return False
    f = wrong[0]["first"]
    shown = [f["layer"], f["b"]["block"], f["b"]["slot"], f["head"] or 0,
             f["kv"] or 0, f["dim"]]
    heads = {(m["layer"], m["head"]) for m in wrong[0]["by_head"]}
    want = {(int(l), int(h) + p.first_head)
            for l, h in np.argwhere(differs.any(axis=(1, 2, 4, 5)))}
    return shown == first_in_order(p, differs) and heads == want


def diagnosed(p, found):
    for g in found["groups"]:
        if g["id"] == p.group and g["diagnosis"]:
            return g["diagnosis"]["decided"]
    return None


def judge(p, name, said, names, suspect, out, table):
    r = kvtool("diff", "--json", p.path, out)
    row = table[said["fault"]]
    row["planted"] += 1
    if not tap.ok(r.code == 1, f"{name}: found", r):
        return
    row["found"] += 1
    found = r.json
    row["located"] += tap.ok(located(p, found, suspect), f"{name}: located",
                             f"{said}\n{r.out[:3000]}")
    diagnosis = diagnosed(p, found)
    if names == {said["fault"]}:
        row["distinct"] += 1
        row["named"] += diagnosis == said["fault"]
    wrong = diagnosis not in (None, said["fault"]) or \
        (diagnosis and names != {said["fault"]})
    row["wrong"] += bool(wrong)
    tap.ok(not wrong, f"{name}: no wrong name",
           f"named {diagnosis}, explained by {sorted(names)}")
    if names == {said["fault"]} and diagnosis != said["fault"]:
        print(f"# {name}: not named")


# ---- limited ----------------------------------------------------------------

def live_of(c, request):
    """[B, S] of the tokens of a request that have a slot."""
    out = np.zeros(c.n[1:3], bool)
    out[c.tables[request]] = True
    return out & c.live[0, :, :, 0, 0, 0]


def parts_of(p):
    """What --only says, the box that it means, and the request."""
    whole, n = [slice(None)] * 6, p.cache.n
    last = n[3] - n[3] // 2, n[3]
    if n[3] > 1:
        yield (f"heads={last[0] + p.first_head}:{last[1] + p.first_head}",
               whole[:3] + [slice(*last)] + whole[4:], None)
    if n[0] > 1:
        yield "layers=1:2", [slice(1, 2)] + whole[1:], None
    if n[4] == 2:
        yield "kv=v", whole[:4] + [slice(1, 2)] + whole[5:], None
    yield f"request={max(p.cache.tables)}", whole, max(p.cache.tables)


def limited_name(p, box, request, suspect):
    """Is the rest as it was, and which faults of the part alone explain it?"""
    c, box = p.cache, tuple(box)
    live = live_of(c, request) if request else c.live[0, :, :, 0, 0, 0]
    rest = suspect.copy()
    if request:
        rest[:, c.tables[request]] = c.bits[:, c.tables[request]]
    else:
        rest[box] = c.bits[box]
    part = Cache(c.bits[box], c.dtype, c.kind, live, c.tables, c.offsets[box],
                 parts=c.parts)
    return np.array_equal(rest, c.bits), \
        {n for n, _ in fault_model.explanations(part, suspect[box])}


def check_limited(p, tmp):
    done = 0
    for only, box, request in parts_of(p):
        for fault in FAULTS:
            out = f"{tmp}/out{os.path.splitext(p.path)[1]}"
            r = kvtool("mutate", f"--fault={fault}", f"--only={only}", "--seed=1",
                       "-qf", f"--group={p.group}", "--no-sync", "-o", out, p.path)
            if r.code in (3, 4):		# it cannot happen there, or changes nothing
                continue
            suspect = p.read(out)
            spared, names = limited_name(p, box, request, suspect)
            if fault == "flip-bits" and one_bit_each(p.cache, suspect) == 1:
                names.add(fault)		# if it is a low one, diff cannot know
            tap.ok(r.code == 0 and spared and fault in names,
                   f"{p.name}: {fault} of {only} alone", f"{r}\n{spared} {names}")
            done += 1
    tap.ok(done > 20, f"{p.name}: {done} faults can be limited")


# ---- all of them ------------------------------------------------------------

COLUMNS = ("planted", "found", "located", "distinct", "named", "wrong")


def print_table(table):
    print(f"# {'fault':18}" + "".join(f"{c:>10}" for c in COLUMNS))
    rows = [(f, table[f]) for f in FAULTS]
    rows.append(("all", sum((r for _, r in rows), collections.Counter())))
    for name, row in rows:
        print(f"# {name:18}" + "".join(f"{row[c]:10}" for c in COLUMNS))


def main(tmp):
    table = collections.defaultdict(collections.Counter)
    seeds = range(1, 6 if FULL else 2)
    for p in patients():
        done = [check_fault(p, f, s, tmp, table) for f in FAULTS for s in seeds]
        tap.ok(sum(done) > len(done) // 3, f"{p.name}: most faults apply")
    for p in itertools.islice(patients(), 0, None, 3):
        if p.cache.tokens():
            check_limited(p, tmp)
    print_table(table)
    for fault in FAULTS:
        tap.ok(table[fault]["distinct"], f"{fault}: planted where it can be told")
    named, distinct = (sum(r[c] for r in table.values()) for c in ("named", "distinct"))
    tap.ok(named >= ENOUGH * distinct, f"{named} of {distinct} faults that can be "
           "told are named")


oracle.run(main)
