#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_parts.py - slices by tokens, by component and for transfers, against numpy

What must come out is cut with plain loops out of the cells of the whole dump,
which come from its sidecar.
"""
import json
import os

import numpy as np

import oracle
from kvd1 import (KEY, VALUE, MASK, MambaDump, attention_content, cell_hashes, fold,
                  lanes_of, printed, text, whole)
from oracle import FULL, array_bytes, kvtool, manifest_of, place, refused, runs, tap
from oracle_slice import States, owned


def total(parts, scope):
    """The sum of the digests of some files."""
    out = [0, 0]
    for part in parts:
        value = whole(part)[("tokens", "blocks").index(scope)]
        out = [(a + b) & MASK for a, b in zip(out, lanes_of(value))]
    return text(scope, out)


# ---- tokens -----------------------------------------------------------------

def expected_tokens(d, request, a, b):
    """What digest --by request must say of positions a to b, from the definition."""
    t = np.arange(a, b)
    block = np.array(d.tables[request])[t // d.dims["S"]]
    content = attention_content(d.cells)[:, block, t % d.dims["S"]]
    heads = d.dims["H"]
    L, T = content.shape[:2]
    return text("tokens", fold(cell_hashes(
        content, np.arange(L).reshape(-1, 1, 1), t.reshape(-1, 1), 0,
        np.repeat(np.arange(heads), 2), np.tile([KEY, VALUE], heads))))


def check_cut(d, request, a, b, ending, tmp):
    S, name = d.dims["S"], f"{d.name} {request} tokens {a}:{b} to {ending}"
    out = f"{tmp}/t.{ending}"
    r = runs(f"{name}: exit 0", "slice", "-f", "--verify", "--request", request,
             "--tokens", f"{a}:{b}", "-o", out, d.path)
    if r.code:
        return
    table = d.tables[request][a // S:(b - 1) // S + 1]
    used = sorted(set(table))
    said = kvtool("describe", "--json", "--block-tables", out).json
    q, g = said["requests"][0], said["groups"][0]
    tap.equal((len(said["requests"]), q["first_token"], q["tokens"],
               q["block_tables"][0], g["block_ids"]),
              (1, a, b - a, table, used), f"{name}: what it says of itself")
    if ending == "npy":
        tap.ok(array_bytes(out) == place(d.cells[:, :, used], d.layout, d.itemsize),
               f"{name}: the bytes")
    found, why = printed(out, "--by", "request")
    tap.ok(found and found["tokens"] == {f"request={request}":
                                         expected_tokens(d, request, a, b)},
           f"{name}: the digest is that of these positions", why)


def check_tokens(d, tmp):
    for request, a, b in (("A", 0, 1), ("A", 100, 200), ("A", 16, 32), ("A", 31, 33),
                          ("A", 420, 421), ("B", 5, 188), ("C", 64, 80)):
        for ending in ("npy", "h5", "safetensors") if FULL else ("npy", "h5"):
            check_cut(d, request, a, b, ending, tmp)
    cuts = [0, 7, 32, 33, 80, 188, 300, 421]
    for ending in ("npy", "h5", "safetensors"):
        parts = []
        for a, b in zip(cuts, cuts[1:]):
            parts.append(f"{tmp}/c{a}.{ending}")
            kvtool("slice", "-f", "--tokens", f"{a}:{b}", "-o", parts[-1], d.path)
        tap.equal(total(parts, "tokens"), whole(d.path)[0],
                  f"digests of tokens add up, {ending}")
    # a part of a part, by the positions of the whole
    kvtool("slice", "-f", "--tokens", "50:250", "-o", f"{tmp}/once.h5", d.path)
    for out, source in (("twice", f"{tmp}/once.h5"), ("direct", d.path)):
        kvtool("slice", "-f", "--request", "A", "--tokens", "90:130", "-o",
               f"{tmp}/{out}.npy", source)
    tap.ok(array_bytes(f"{tmp}/twice.npy") == array_bytes(f"{tmp}/direct.npy") and
           whole(f"{tmp}/twice.npy") == whole(f"{tmp}/direct.npy"),
           "tokens of tokens are those of the whole")
    # by blocks, from a dump that begins later: what precedes the first lost block
    kvtool("slice", "-f", "--blocks", ",".join(map(str, d.tables["A"][3:9])), "-o",
           f"{tmp}/cut.npy", f"{tmp}/once.h5")
    m = manifest_of(f"{tmp}/cut.npy")
    tap.equal((m.get("first_token"), m["num_tokens"]), ({"A": 50}, {"A": 9 * 16 - 50}),
              "blocks of a dump that begins with token 50")
    ranks = oracle.ranks_of(f"{tmp}/once.h5", 2, f"{tmp}/r%d.h5")
    r = kvtool("merge", "-f", "--verify", "-o", f"{tmp}/merged.h5", *ranks)
    tap.ok(r.code == 0 and whole(f"{tmp}/merged.h5") == whole(f"{tmp}/once.h5"),
           "ranks of some tokens are merged", r)
    # where knows the position, and finds it again
    refused("where: a token that was left out", 2, "", "where", "--at",
            "request=A,token=77,layer=2,head=1,kv=v,dim=3", f"{tmp}/twice.npy")
    r = kvtool("where", "--json", "--at",
               "request=A,token=107,layer=2,head=1,kv=v,dim=3", f"{tmp}/twice.npy")
    at = r.json["matches"][0]["offset"] if r.code == 0 else 0
    r = kvtool("where", "--offset", at, f"{tmp}/twice.npy")
    tap.ok("A token 107" in r.out, "where: a token by its position, and back", r)


# ---- components of attention ------------------------------------------------

def check_halves(dumps, tmp):
    for d in dumps:
        if d.latent or d.folder.startswith("tp"):
            continue
        for tiled in (False, True):
            path = d.path
            if tiled:
                path = f"{tmp}/h.h5"
                kvtool("convert", "-f", d.path, path)
            halves = []
            for k, name in enumerate("kv"):
                halves.append(f"{tmp}/{name}.h5")
                r = kvtool("slice", "-f", "--verify", "--component", name, "-o",
                           halves[-1], path)
                label = f"{d.name} {'tiled' if tiled else 'flat'}: {name} alone"
                tap.ok(r.code == 0 and "verified" in r.out, label, r)
                r = kvtool("relayout", "-f", "--to", "LBHSD", "-o", f"{tmp}/h.npy",
                           halves[-1])
                want = d.cells[k].transpose(0, 1, 3, 2, 4)
                tap.ok(r.code == 0 and array_bytes(f"{tmp}/h.npy") ==
                       np.ascontiguousarray(want).tobytes(), f"{label}: the bytes", r)
            tap.equal((total(halves, "tokens"), total(halves, "blocks")),
                      whole(d.path), f"{d.name}: digests of keys and values add up")


def check_half_ranks(d, tmp):
    """Values alone are dealt to ranks, merged and refused like both."""
    kvtool("slice", "-f", "--component", "v", "-o", f"{tmp}/v.h5", d.path)
    ranks = oracle.ranks_of(f"{tmp}/v.h5", 8, f"{tmp}/v%d.h5")
    r = kvtool("merge", "-f", "--verify", "-o", f"{tmp}/all.h5", *ranks)
    tap.ok(r.code == 0 and whole(f"{tmp}/all.h5") == whole(f"{tmp}/v.h5"),
           "values of 8 ranks are merged", r)
    kvtool("slice", "-f", "--component", "k", "--tp-size", 8, "--tp-rank", 3, "-o",
           ranks[3], d.path)
    refused("keys of a rank among values", 3, "v3.h5", "merge", "-f", "-o",
            f"{tmp}/never.h5", *ranks)


# ---- transfers of attention -------------------------------------------------

def give(heads, ns, s, nd, d):
    """Heads that s gives to d: each to its taker from the first that may."""
    mine = range(*owned(heads, nd, d))
    if nd % ns == 0 or heads == 1:
        givers = [d * ns // nd]
    elif ns % nd == 0:
        givers = range(d * (ns // nd), (d + 1) * (ns // nd))
    else:
        givers = range(ns)
    taken = set()
    for g in givers:
        now = [h for h in range(*owned(heads, ns, g)) if h in mine and h not in taken]
        if g == s:
            return now
        taken.update(now)
    return []


def check_pair(d, source, ns, s, nd, t, tmp):
    """One pair of ranks; returns the heads that arrived."""
    name = f"{d.name}: {s} of {ns} to {t} of {nd}"
    out = f"{tmp}/x.npy"
    if os.path.exists(out):
        os.unlink(out)
    heads = give(d.side.get("total_kv_heads", d.dims["H"]), ns, s, nd, t)
    r = kvtool("slice", "-f", "--for-transfer", "--src-tp", ns, "--src-rank", s,
               "--dst-tp", nd, "--dst-rank", t, "-o", out, source)
    if not heads:
        tap.ok(r.code == 0 and "sends nothing" in r.out and not os.path.exists(out),
               f"{name}: nothing", r)
        return []
    if tap.ok(r.code == 0 and os.path.exists(out), f"{name}: exit 0", r):
        m = manifest_of(out)
        tap.ok(array_bytes(out) == place(d.cells[:, :, :, :, heads], d.layout,
                                         d.itemsize) and
               (m["head_start"], m["head_count"], m["tp_size"], m["tp_rank"]) ==
               (heads[0], len(heads), ns, s), f"{name}: heads {heads}", m)
    return heads


def check_transfers(d, tmp):
    """All pairs, of the whole dump and of the dump of the rank that sends."""
    sizes = (1, 2, 4, 8) if FULL else (2, 4, 8)
    for ns in sizes:
        for nd in sizes:
            for t in range(nd):
                got = []
                for s in range(ns):
                    source = d.path
                    if (s + t) % 2:
                        source = f"{tmp}/rank.h5"
                        kvtool("slice", "-f", "--tp-size", ns, "--tp-rank", s, "-o",
                               source, d.path)
                    got += check_pair(d, source, ns, s, nd, t, tmp)
                tap.equal(got, list(range(*owned(d.dims["H"], nd, t))),
                          f"{d.name}: {ns} to {nd}: rank {t} gets each head once")


# ---- recurrent states -------------------------------------------------------

def check_state_parts(m, tmp):
    """x, B, C and the SSM states apart, of the whole and of ranks."""
    states = States(m)
    inter, part = states.inter, states.part
    where = {"x": (0, inter), "B": (inter, part), "C": (inter + part, part)}
    files = []
    for name, (start, count) in where.items():
        files.append(f"{tmp}/{name}.npy")
        r = kvtool("slice", "-f", "--verify", "--component", name, "-o", files[-1],
                   m.path)
        want = states.conv[:, :, start:start + count]
        want = want if states.ds else want.transpose(0, 1, 3, 2)
        tap.ok(r.code == 0 and array_bytes(files[-1]) ==
               np.ascontiguousarray(want).tobytes() and
               [(c["name"], c["global_start"]) for c in
                manifest_of(files[-1])["content"]] == [(name, start)],
               f"{m.folder}: {name} alone", r)
    files.append(f"{tmp}/ssm.npy")
    r = kvtool("slice", "-f", "--verify", "--component", "ssm", "-o", files[-1], m.path)
    tap.ok(r.code == 0 and array_bytes(files[-1]) == states.ssm.tobytes(),
           f"{m.folder}: ssm alone", r)
    tap.equal((total(files, "tokens"), total(files, "blocks")), whole(m.path),
              f"{m.folder}: digests of the parts add up")
    r = kvtool("slice", "-f", "--component", "x", "--component", "C", "-o",
               f"{tmp}/xC.h5", m.path)
    for name, options in (("B", ["--component", "B"]),
                          ("x and C", ["--component", "x", "--component", "C"])):
        ranks = oracle.ranks_of(m.path, 4, f"{tmp}/p%d.h5", "--mamba-groups", 2, *options)
        r = kvtool("merge", "-f", "--verify", "-o", f"{tmp}/again.npy", *ranks)
        kvtool("slice", "-f", *options, "-o", f"{tmp}/once.npy", m.path)
        tap.ok(r.code == 0 and array_bytes(f"{tmp}/again.npy") ==
               array_bytes(f"{tmp}/once.npy") and
               whole(f"{tmp}/again.npy") == whole(f"{tmp}/once.npy"),
               f"{m.folder}: {name} of 4 ranks merged", r)


def check_state_transfers(m, tmp):
    """What all give one rank is that rank's: channels once, from their places."""
    states = States(m)
    heads = states.ssm.shape[2]
    for groups in (1, 2, 4):
        for ns, nd in ((1, 4), (4, 2), (2, 8), (8, 2), (4, 4)):
            for t in range(nd if FULL else min(nd, 2)):
                got, got_heads = [], []
                for s in range(ns):
                    out = f"{tmp}/s.h5"
                    if os.path.exists(out):
                        os.unlink(out)
                    r = kvtool("slice", "-f", "--for-transfer", "--src-tp", ns,
                               "--src-rank", s, "--dst-tp", nd, "--dst-rank", t,
                               "--mamba-groups", groups, "-o", out, m.path)
                    if r.code or not os.path.exists(out):
                        tap.ok("sends nothing" in r.out, f"{s} gives nothing", r)
                        continue
                    kvtool("slice", "-f", "--component", "ssm", "-o", f"{tmp}/s.npy", out)
                    h = manifest_of(f"{tmp}/s.npy")
                    a, n = h["head_start"], h["head_count"]
                    got_heads += range(a, a + n)
                    tap.ok(array_bytes(f"{tmp}/s.npy") ==
                           states.ssm[:, :, a:a + n].tobytes(),
                           f"{m.folder}: {s} of {ns} to {t} of {nd}: states {a}, {n}")
                    names = [c["name"] for c in json.loads(kvtool(
                        "describe", "--json", out).out)["groups"][0]["components"]]
                    for name in names:
                        kvtool("slice", "-f", "--component", name, "-o",
                               f"{tmp}/s.npy", out)
                        c = manifest_of(f"{tmp}/s.npy")["content"][0]
                        a, n = c["global_start"], c["length"]
                        want = states.conv[:, :, a:a + n]
                        want = want if states.ds else want.transpose(0, 1, 3, 2)
                        tap.ok(array_bytes(f"{tmp}/s.npy") ==
                               np.ascontiguousarray(want).tobytes(),
                               f"{m.folder}: {s} of {ns} to {t} of {nd}: {name} {a}")
                        got += range(a, a + n)
                x0, x1 = (n * states.inter // nd for n in (t, t + 1))
                g0, g1 = owned(groups, nd, t)
                rows = states.part // groups
                b = range(states.inter + g0 * rows, states.inter + g1 * rows)
                tap.equal((sorted(got), sorted(got_heads)),
                          (sorted([*range(x0, x1), *b,
                                   *(n + states.part for n in b)]),
                           list(range(*owned(heads, nd, t)))),
                          f"{m.folder}: {groups} groups, {ns} to {nd}: rank {t} has "
                          "each channel and head once")


def main(tmp):
    dumps = oracle.attention_dumps()
    mamba = [MambaDump(s) for s in oracle.sidecars("mamba2g4")]
    nhd = next(d for d in dumps if d.name == "s260k/paged_bs16/packed_nhd.bf16")
    rocm = next(d for d in dumps if d.name == "s260k/paged_bs16/rocm_x.bf16")
    check_tokens(nhd, tmp)
    check_halves(dumps if FULL else dumps[::4] + [rocm], tmp)
    check_half_ranks(nhd, tmp)
    check_transfers(nhd, tmp)
    for m in mamba:
        if m.folder.startswith("tp1"):
            check_state_parts(m, tmp)
            check_state_transfers(m, tmp)
            if not FULL:
                break


if __name__ == "__main__":
    oracle.run(main)
