#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_regions.py - tables of registered regions: fsck and diff against made faults

Tables of nine kinds are made from random shapes, and faults as they were reported of
connectors are planted in them: each must be named for what it is, and sound tables must
raise no alarm.  Beside that, small tables with one number changed at random are judged a
second time, byte by byte over a map of what lies where.
"""
import copy
import json
import random

import oracle
from oracle import FULL, SHARE, kvtool, tap, write_bytes, write_json

rng = random.Random(7)
EACH = 120 if FULL else 60
KINDS = ("gqa", "split", "mla", "hybrid", "hybrid_apart", "packed", "row", "padded",
         "kernel", "segments", "states")


# ---- sound tables ------------------------------------------------------------

class Shape:
    """What is the same on both sides of a transfer."""

    def __init__(self, kind, rng):
        self.kind = kind
        self.layers = rng.randint(2, 6)
        self.heads = 1 if kind == "mla" else rng.choice((4, 8))
        self.head_bytes = 2 * rng.choice((64, 96, 128))     # a token, keys or values
        self.tokens = rng.choice((16, 32))
        self.ratio = rng.choice((2, 4, 8)) if kind == "kernel" else 1
        self.groups = rng.choice((2, 3)) if kind.startswith("hybrid") else 1
        self.padding = 64 * rng.randint(1, 9)
        self.pairing = rng.choice(("order", "layer"))
        self.ids = rng.choice(("kernel", "manager"))
        self.half_state = rng.random() < 0.5
        self.counts_padding = rng.random() < 0.5


def table(shape, tp=1, rank=0, rng=rng, role="prefill"):
    kind, blocks = shape.kind, rng.randint(3, 40)
    heads = shape.heads if kind == "mla" else shape.heads // tp
    base = rng.randrange(1 << 30, 1 << 46, 4096)
    half = shape.tokens * heads * shape.head_bytes
    page = half if kind == "mla" else 2 * half
    out = {"kvtool_regions": 1, "connector": "made", "role": role, "tp_size": tp,
           "tp_rank": rank, "pairing": shape.pairing,
           "groups": [{"id": g, "block_size": shape.tokens * shape.ratio,
                       "kernel_block_size": shape.tokens} for g in range(shape.groups)],
           "memory": [], "layers": [], "regions": []}

    def memory(length):
        nonlocal base
        at = base
        out["memory"].append({"base": at, "length": length})
        base += length + rng.choice((0, 4096))
        return at

    def layer(name, at, stride, length, **more):
        held = {"heads": heads, "first_head": 0 if kind == "mla" else rank * heads}
        out["layers"].append({"name": name, "base": at, "stride": stride,
                              "blocks": blocks, "block_len": length,
                              **(held if more.get("part") != "state" else {}), **more})

    def region(names, at, stride, length, **more):
        out["regions"].append({"base": at, "stride": stride, "blocks": blocks,
                               "block_len": length, "layers": names, **more})

    name = "model.layers.{}.self_attn.attn".format
    n = shape.layers
    if kind in ("gqa", "mla"):
        for i in range(n):
            at = memory(blocks * page)
            layer(name(i), at, page, page)
            region([name(i)], at, page, page, group=0)
    elif kind == "split":
        for i in range(n):
            for part in "kv":
                at = memory(blocks * half)
                layer(name(i), at, half, half, part=part)
                region([name(i)], at, half, half, part=part)
    elif kind in ("hybrid", "hybrid_apart"):
        for i in range(n):
            at = memory(blocks * page)
            names = [name(i * shape.groups + g) for g in range(shape.groups)]
            for g, one in enumerate(names):
                layer(one, at, page, page, group=g)
                if kind == "hybrid_apart":
                    region([one], at, page, page, group=g)
            if kind == "hybrid":
                region(names, at, page, page)
    elif kind in ("packed", "row"):
        at = memory(blocks * page * n)
        for i in range(n):
            layer(name(i), at + i * page, n * page, page)
            if kind == "packed":
                region([name(i)], at + i * page, n * page, page, group=0)
        if kind == "row":
            region([name(i) for i in range(n)] if rng.random() < 0.5 else [name(0)],
                   at, n * page, n * page)
    elif kind == "padded":
        stride = page + shape.padding
        for i in range(n):
            at = memory(blocks * stride)
            layer(name(i), at, stride, page, padded_block_len=stride)
            region([name(i)], at, stride, stride if shape.counts_padding else page)
    elif kind == "kernel":
        manager = blocks
        blocks *= shape.ratio
        for i in range(n):
            at = memory(blocks * page)
            layer(name(i), at, page, page)
            region([name(i)], at, page, page, ids=shape.ids)
            if shape.ids == "manager":
                out["regions"][-1].update(stride=page * shape.ratio, blocks=manager,
                                          block_len=page * shape.ratio)
    elif kind == "segments":
        for i in range(n):
            at = memory(blocks * page)
            one, whole = page // heads, heads
            for h in range(whole):
                heads = 1
                out_at = at + h * blocks * one
                layer(name(i), out_at, one, one)
                out["layers"][-1].update(heads=1, first_head=rank * whole + h)
                region([name(i)], out_at, one, one)
            heads = whole
    elif kind == "states":
        state = page // 2 if shape.half_state else page
        for i in range(n):
            at = memory(blocks * page)
            layer(name(2 * i), at, page, page, group=0)
            layer(f"model.layers.{2 * i + 1}.mixer", at, page, state, group=1,
                  part="state", padded_block_len=page)
            region([name(2 * i)], at, page, page, group=0)
            region([f"model.layers.{2 * i + 1}.mixer"], at, page, state, group=1,
                   part="state")
        out["groups"].append({"id": 1, "block_size": 64})
    return out


def sides(shape, rng=rng):
    """Prefill and decode: as many ranks, or more, or fewer."""
    tp = (1, 1)
    if shape.kind in ("gqa", "mla", "hybrid", "split", "hybrid_apart", "packed"):
        tp = rng.choice(((1, 1), (2, 2), (1, 2), (2, 1), (2, 4), (4, 1)))
    rank = rng.randrange(tp[0])
    lead = rank * tp[1] // tp[0]
    other = lead + (rng.randrange(tp[1] // tp[0]) if tp[1] > tp[0] else 0)
    return (table(shape, tp[0], rank, rng), table(shape, tp[1], other, rng, "decode"))


# ---- faults of one table ------------------------------------------------------

def pick(t, wanted=lambda r: True):
    return rng.choice([r for r in t["regions"] if wanted(r)])


def merged(t):
    """Regions folded by base though a layer there has other blocks (vllm #57661)."""
    r = pick(t)
    first = next(x for x in t["layers"] if x["name"] == r["layers"][0])
    one = dict(first, name="model.layers.99.indexer", group=7)
    length = first["block_len"]
    one.pop("heads", 0), one.pop("first_head", 0)
    one["block_len"] = length + 64 * rng.randint(1, 4)
    one["padded_block_len"] = one["block_len"]
    # the row is as long as the larger page asks, and so is that of the first layer
    for x in [first, one, r]:
        x["stride"] = one["block_len"]
    t["memory"] = []
    t["layers"].append(one)
    r["layers"] = r["layers"] + [one["name"]]
    r.pop("group", 0)


def merged_unnamed(t):
    """As NIXL's region_names has it: the first of the folded layers alone."""
    merged_stride(t)
    for r in t["regions"]:
        if len(r["layers"]) > 1:
            r["layers"], r["group"] = r["layers"][:1], 0


def merged_stride(t):
    """The same where the folded layer has a stride of its own, too."""
    r = pick(t)
    first = next(x for x in t["layers"] if x["name"] == r["layers"][0])
    one = dict(first, name="model.layers.99.indexer", group=7)
    one.pop("heads", 0), one.pop("first_head", 0)
    one["block_len"] = one["stride"] = one["padded_block_len"] = \
        64 * (first["stride"] // 128)
    t["layers"].append(one)
    r["layers"] = r["layers"] + [one["name"]]
    r.pop("group", 0)


def kernel_stride(t):
    """stride(0) of the kernel's block with the manager's ids, or reversed (#51718)."""
    r, ratio = pick(t), t["groups"][0]["block_size"] // t["groups"][0]["kernel_block_size"]
    if r["ids"] == "manager":
        r["stride"] //= ratio
    else:
        r["stride"] *= ratio


def kernel_blocks(t):
    """block_len of the wrong kind of block."""
    r, ratio = pick(t), t["groups"][0]["block_size"] // t["groups"][0]["kernel_block_size"]
    if r["ids"] == "manager":
        r["block_len"] //= ratio
    else:
        r["ids"] = "manager"


def swapped(t):
    """The region of keys lies where values do (kvcached #312)."""
    k = pick(t, lambda r: r.get("part") == "k")
    v = next(r for r in t["regions"] if r["layers"] == k["layers"] and r["part"] == "v")
    k["base"], v["base"] = v["base"], k["base"]


def as_packed(t):
    """Split on the engine's side, one packed region for both (kvcached #391)."""
    k = pick(t, lambda r: r.get("part") == "k")
    v = next(r for r in t["regions"] if r["layers"] == k["layers"] and r["part"] == "v")
    t["regions"].remove(v)
    k.update(part="kv", block_len=2 * k["block_len"], stride=2 * k["stride"],
             blocks=max(k["blocks"] // 2, 1))
    t["memory"] = []


def as_split(t):
    """Packed on the engine's side, two regions of the connector."""
    r = pick(t)
    v = dict(r, part="v", base=r["base"] + r["blocks"] * (r["block_len"] // 2))
    r["part"] = "k"
    for x in (r, v):
        x["block_len"] = x["stride"] = x["block_len"] // 2
    t["regions"].append(v)


def twice(t):
    r = pick(t)
    t["regions"].append(copy.deepcopy(r))


def missing(t):
    t["regions"].remove(pick(t))


def unpadded_stride(t):
    """Blocks one after another, as if pages had no padding."""
    r = pick(t)
    r["stride"] = r["block_len"] = next(
        x for x in t["layers"] if x["name"] == r["layers"][0])["block_len"]


def unpadded_memory(t):
    """Only contents were counted when memory was registered (vllm-ascend #16129)."""
    i = rng.randrange(len(t["memory"]))
    x = next(x for x in t["layers"] if x["base"] == t["memory"][i]["base"])
    t["memory"] = [m for m in t["memory"] if m["base"] <= t["memory"][i]["base"]]
    t["memory"][-1]["length"] = x["block_len"] * x["blocks"]


def short(t):
    r = pick(t)
    r["block_len"] -= 16 * rng.randint(1, 3)


def long(t):
    r = pick(t)
    r["block_len"] = r["stride"] + 64


def fewer(t):
    r = pick(t, lambda r: r["blocks"] > 1)
    r["blocks"] -= 1


def moved(t):
    r = pick(t)
    r["base"] += r["stride"]
    t["memory"] = []


def other_stride(t):
    r = pick(t)
    r["stride"] += 64
    t["memory"] = []


def overlay(t):
    """Two layers of one group in one place."""
    a, b = rng.sample(t["layers"], 2)
    b["base"] = a["base"]


def memory_twice(t):
    t["memory"].append(dict(t["memory"][0]))


def no_layers(t):
    t["layers"] = []
    for r in t["regions"]:
        del r["layers"]


def no_layers_overlap(t):
    no_layers(t)
    t["regions"].append(dict(t["regions"][0], base=t["regions"][0]["base"] + 1))
    t["memory"] = []


ONE = [     # fault, kinds that can have it, rule
    (merged, ("gqa", "mla"), "region.merged"),
    (merged_stride, ("gqa", "mla"), "region.merged"),
    (merged_unnamed, ("gqa", "mla"), "region.merged"),
    (kernel_stride, ("kernel",), "region.block-unit"),
    (kernel_blocks, ("kernel",), "region.block-unit"),
    (swapped, ("split",), "region.kv"),
    (as_packed, ("split",), "region.kv"),
    (as_split, ("gqa", "packed"), "region.kv"),
    (twice, ("gqa", "mla", "split", "hybrid_apart", "packed", "padded", "segments",
             "states"), "region.layer-twice"),
    (missing, ("gqa", "mla", "split", "hybrid_apart", "packed", "padded", "states"),
     "region.layer-missing"),
    (unpadded_stride, ("padded",), "region.padding"),
    (unpadded_memory, ("padded",), "region.unregistered"),
    (short, ("gqa", "mla", "split", "hybrid", "packed", "segments"), "region.block-len"),
    (long, ("gqa", "mla", "packed", "padded"), "region.block-len"),
    (fewer, ("gqa", "mla", "split", "hybrid", "packed"), "region.blocks"),
    (moved, ("gqa", "mla", "packed"), "region.base"),
    (other_stride, ("gqa", "mla", "packed"), "region.stride"),
    (overlay, ("gqa", "mla", "packed"), "region.overlay"),
    (memory_twice, ("gqa", "packed"), "region.memory"),
    (no_layers, ("gqa", "packed"), "region.no-layers"),
    (no_layers_overlap, ("gqa", "packed"), "region.overlap"),
]


# a warning and a note
HARMLESS = ("region.memory", "region.no-layers")


# ---- faults between two tables -------------------------------------------------

def ordered(kind):
    shape = Shape(kind, rng)
    shape.pairing = "order"
    return shape


def other_order(p, d):
    i = rng.randrange(len(d["regions"]) - 1)
    d["regions"][i], d["regions"][i + 1] = d["regions"][i + 1], d["regions"][i]


def kv_order(p, d):
    i = 2 * rng.randrange(len(d["regions"]) // 2)
    d["regions"][i], d["regions"][i + 1] = d["regions"][i + 1], d["regions"][i]


def one_fewer(p, d):
    rng.choice((p, d))["regions"].pop()


def layer_less(p, d):
    side = rng.choice((p, d))
    name = side["layers"][-1]["name"]
    side["layers"] = [x for x in side["layers"] if x["name"] != name]
    side["regions"] = [r for r in side["regions"] if r["layers"] != [name]]


def padding_once(p, d):
    for r in d["regions"]:
        x = next(x for x in d["layers"] if x["name"] == r["layers"][0])
        r["block_len"] = x["block_len"] if r["block_len"] > x["block_len"] else x["stride"]


def other_bytes(p, d):
    for t in (d,):
        for x in t["layers"] + t["regions"]:
            for key in ("stride", "block_len"):
                x[key] *= 2
        for m in t["memory"]:
            m["length"] *= 2
        base = {m["base"]: 2 * m["base"] for m in t["memory"]}
        for x in t["layers"] + t["regions"] + t["memory"]:
            x["base"] = base[x["base"]]


def names_turned(p, d):
    """Prefill and decode number their layers otherwise."""
    names = [x["name"] for x in d["layers"]]
    turn = dict(zip(names, names[1:] + names[:1]))
    for x in d["layers"]:
        x["name"] = turn[x["name"]]
    for r in d["regions"]:
        r["layers"] = [turn[n] for n in r["layers"]]


def later_block(p, d):
    """Prefill's ids begin at 1, decode's at 0."""
    for r in p["regions"]:
        r["base"] += r["stride"]
        r["blocks"] -= 1


def too_short(p, d):
    for r in p["regions"]:
        r["block_len"] -= 16


TWO = [
    (later_block, ("gqa", "mla", "packed"), "transfer.block"),
    (too_short, ("gqa", "split", "mla"), "transfer.block-len"),
    (other_order, ("gqa", "mla", "packed", "hybrid"), "transfer.layer"),
    (names_turned, ("gqa", "mla", "packed"), "transfer.layer"),
    (kv_order, ("split",), "transfer.kv"),
    (one_fewer, ("gqa", "split", "mla"), "transfer.count"),
    (layer_less, ("gqa", "mla"), "transfer.missing"),
    (padding_once, ("padded",), "transfer.padding"),
    (other_bytes, ("gqa", "mla"), "transfer.content"),
]


# ---- running -------------------------------------------------------------------

def write(tmp, name, t):
    path = f"{tmp}/{name}.json"
    write_json(path, t)
    return path


def rules(r):
    """Names of what was found; of diff in all three lists."""
    try:
        out = json.loads(r.out)
    except ValueError:
        return {f"no JSON: {r}"}
    lists = [out["files"]] if "files" in out else [out["a"], out["b"], out["transfer"]]
    return {f["name"] for l in lists for x in l for f in x["findings"]}


def check_sound(tmp):
    wrong = []
    for i in range(EACH):
        a, b = sides(Shape(KINDS[i % len(KINDS)], rng))
        pa, pb = write(tmp, "a", a), write(tmp, "b", b)
        for r in (kvtool("fsck", "--json", pa), kvtool("fsck", "--json", pb),
                  kvtool("diff", "--json", pa, pb)):
            if r.code or rules(r):
                wrong.append((KINDS[i % len(KINDS)], r.code, rules(r), str(r)))
        if kvtool("describe", pa).code:
            wrong.append("describe")
    tap.ok(not wrong, f"{EACH} sound pairs of {len(KINDS)} kinds: no alarm",
           "\n".join(map(str, wrong[:3])))


def check_planted(tmp):
    for fault, kinds, rule in ONE:
        wrong = []
        n = EACH // 6
        for i in range(n):
            t = table(Shape(kinds[i % len(kinds)], rng))
            fault(t)
            path = write(tmp, "a", t)
            r = kvtool("fsck", "--json", path)
            if r.code != (rule not in HARMLESS) or rule not in rules(r):
                wrong.append((kinds[i % len(kinds)], r.code, rules(r)))
        tap.ok(not wrong, f"{fault.__name__}: {n} of {n} are {rule}",
               "\n".join(map(str, wrong[:5])))
    for fault, kinds, rule in TWO:
        wrong = []
        n = EACH // 6
        for i in range(n):
            a, b = sides(ordered(kinds[i % len(kinds)]))
            fault(a, b)
            pa, pb = write(tmp, "a", a), write(tmp, "b", b)
            r = kvtool("diff", "--json", pa, pb)
            if r.code != 1 or rule not in rules(r):
                wrong.append((kinds[i % len(kinds)], r.code, rules(r), r.err[:200]))
        tap.ok(not wrong, f"{fault.__name__}: {n} of {n} are {rule}",
               "\n".join(map(str, wrong[:5])))


# ---- byte by byte ----------------------------------------------------------------

def holds(t, r, x):
    """Are all bytes of block i of a tensor in block i of the region?"""
    if r.get("part", "kv") not in ("kv", x.get("part", "kv")):
        return False
    if r.get("group", -1) not in (-1, x.get("group", 0)) and x["name"] not in r["layers"]:
        return False
    for b in range(x["blocks"]):
        at = x["base"] + b * x["stride"]
        have = set(range(r["base"] + b * r["stride"],
                         r["base"] + b * r["stride"] + r["block_len"]))
        if not have.issuperset(range(at, at + x["block_len"])):
            return False
    return True


def whole(t):
    return all(sum(holds(t, r, x) for r in t["regions"]) == 1 and
               next(r for r in t["regions"] if holds(t, r, x))["blocks"] == x["blocks"]
               for x in t["layers"])


def arrives(p, d):
    """Of each tensor of decode: does every byte come from the same one of prefill?"""
    n = 0
    for x in d["layers"]:
        i = next((i for i, r in enumerate(d["regions"]) if holds(d, r, x)), None)
        y = next((y for y in p["layers"] if (y["name"], y.get("part")) ==
                  (x["name"], x.get("part"))), None)
        if i is None or y is None or i >= len(p["regions"]):
            continue
        ours, theirs = d["regions"][i], p["regions"][i]
        same = ours["block_len"] == theirs["block_len"] and \
            x["block_len"] == y["block_len"]
        for b in range(min(x["blocks"], y["blocks"])):
            for k in range(x["block_len"]):
                into = x["base"] + b * x["stride"] + k - \
                    (ours["base"] + b * ours["stride"])
                same &= theirs["base"] + b * theirs["stride"] + into == \
                    y["base"] + b * y["stride"] + k
        n += same
    return n


def small(kind):
    shape = Shape(kind, rng)
    shape.heads, shape.head_bytes, shape.tokens, shape.padding = 1, 2, 2, 4
    shape.layers, shape.pairing = 2, "order"
    t = table(shape)
    t["memory"] = []
    return shape, t


def check_bytes(tmp):
    """One number of one region is changed: sound or not, whole or not, as bytes say."""
    wrong, n, faults = [], 400 if FULL else 150, 0
    for _ in range(n):
        kind = rng.choice(("gqa", "split", "packed", "padded", "hybrid_apart", "row"))
        shape, p = small(kind)
        d = table(shape, role="decode")
        d["memory"] = []
        r = rng.choice(p["regions"])
        if rng.random() < 0.8:
            key = rng.choice(("base", "stride", "block_len", "blocks"))
            r[key] = max(1, r[key] + rng.choice((-8, -4, -2, -1, 1, 2, 4, 8)))
        pp, dp = write(tmp, "p", p), write(tmp, "d", d)
        one, two = kvtool("fsck", "--json", pp), kvtool("diff", "--json", pp, dp)
        good = whole(p)
        faults += not good
        if one.code not in (0, 1) or (not good and one.code == 0):
            wrong.append(("fsck", kind, good, r, one))
        if good and one.code and rules(one) - {"region.block-len", "region.overlap"}:
            wrong.append(("fsck alarm", kind, rules(one), r))
        got = json.loads(two.out)["tensors_whole"] if two.code in (0, 1) else two
        if got != arrives(p, d) or (two.code == 0 and (not good or got < len(d["layers"]))):
            wrong.append(("diff", kind, got, arrives(p, d), r, p["layers"][:1]))
    tap.ok(not wrong, f"{n} changed tables, {faults} with a fault: as byte by byte",
           "\n".join(map(str, wrong[:4])))


# ---- damage ----------------------------------------------------------------------

def check_damage(tmp):
    """Any byte may be wrong: a documented status and one sentence, never more."""
    wrong, n = [], 600 if FULL else 200 // SHARE
    texts = [json.dumps(table(Shape(kind, rng))).encode() for kind in KINDS]
    for i in range(n):
        text = bytearray(rng.choice(texts))
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(20, len(text))
            what = rng.randrange(4)
            if what == 0:
                text[at] ^= 1 << rng.randrange(8)
            elif what == 1:
                text[at] = rng.choice(b'0123456789-,:[]{}"eE. ')
            elif what == 2:
                del text[at:at + rng.randrange(30)]
            else:
                text[at:at] = rng.choice((b"9" * 18, b"[" * 90, b"null", b"-1", b"1e9"))
            if len(text) < 30:
                break
        write_bytes(f"{tmp}/x.json", text)
        for command in (("fsck",), ("describe",), ("diff", f"{tmp}/x.json")):
            r = kvtool(*command, f"{tmp}/x.json")
            lines = r.err.splitlines()
            if r.code not in (0, 1, 3, 4) or len(lines) > 1 or \
                    (command[0] == "describe" and r.code and len(lines) != 1):
                wrong.append((command[0], r.code, r.err[:300], bytes(text[:2000])))
    tap.ok(not wrong, f"{n} damaged tables: refused, or read as what they say",
           "\n".join(map(str, wrong[:3])))


oracle.run(check_sound, check_planted, check_bytes, check_damage)
