#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_partners.py - which request is which, where names do not say

Dumps of random requests are made here, in numpy, and told again under other names: in other
blocks, block sizes, layouts and types, with noise, with faults.  Who made them knows which
request is which.  A pair that is told must be that one; where contents are told apart all
must be paired; where two requests hold the same, or nothing tells, status 3 must name the
option to type, and with that option the two must be comparable.
"""
import os
import re

import numpy as np

from oracle import FULL, kvtool, run, sizes, tap, write_json

L, H, D = 4, 2, 16
TYPES = {"float32": np.float32, "float16": np.float16}


def drawn(r, lengths, prefix=0):
    """Requests [tokens, L, H, K, D]; the first 'prefix' tokens are the same."""
    common = r.standard_normal((prefix, L, H, 2, D))
    shift = 20 * r.standard_normal((1, L, H, 2, D))         # all tokens have it
    return [np.concatenate((common[:n], r.standard_normal((max(n - prefix, 0), L, H, 2, D))))
            + shift for n in lengths]


def write(r, name, requests, slots=16, layout="L B S H K D", dtype="float32"):
    """{name of a request: tokens}, in blocks that are drawn."""
    need = {k: -(-len(v) // slots) for k, v in requests.items()}
    blocks = iter(r.permutation(np.arange(1, sum(need.values()) + 3)).tolist())
    tables = {k: [next(blocks) for _ in range(n)] for k, n in need.items()}
    cells = np.zeros((L, sum(need.values()) + 3, slots, H, 2, D), TYPES[dtype])
    for k, v in requests.items():
        for t, token in enumerate(v):
            cells[:, tables[k][t // slots], t % slots] = token
    order = ["LBSHKD".index(c) for c in layout.split()]
    np.save(name, np.ascontiguousarray(cells.transpose(order)))
    write_json(name[:-3] + "json",
               {"file": name, "layout": layout, "dtype": dtype, "null_block": 0,
                "sizes": sizes(L=L, B=cells.shape[1], S=slots, H=H, D=D),
                "block_table": tables,
                "num_tokens": {k: len(v) for k, v in requests.items()}})


def suffix(r):
    return "".join(r.choice(list("0123456789abcdef"), 8))


def paired(name, *options):
    result = kvtool("diff", "--json", "--no-diagnosis", *options, "a.npy", "b.npy")
    o = result.json if result.out else None
    pairs = {p["a"]: p["b"] for p in o["paired"]} if o else {}
    return result, o, pairs


# ---- told apart by what they hold ---------------------------------------------

def check_contents(r):
    for i in range(60 if FULL else 30):
        n = int(r.integers(1, 6))
        lengths = r.integers(12, 300, n)
        requests = drawn(r, lengths, prefix=int(r.choice([0, 0, 8, 200])))
        lengths = [len(x) for x in requests]
        noise = r.choice([0, 0, 1e-3, 3e-2])
        others = [x + noise * r.standard_normal(x.shape) for x in requests]
        fault = r.choice(["none", "keys", "layer", "blocks"])
        for x in others:
            if fault == "keys":
                x[:, :, :, 0] = 0
            if fault == "layer":
                x[:, L - 1] = x[:, L - 1, ::-1]
            if fault == "blocks" and len(x) > 96:
                x[16:48] = r.standard_normal(x[16:48].shape)
        one = {f"run-{suffix(r)}": x for x in requests}
        two = {f"{i}{suffix(r)}": x for x in others}
        want = dict(zip(one, two))
        two = {k: two[k] for k in r.permutation(list(two))}
        types = r.choice(list(TYPES), 2)
        write(r, "a.npy", one, int(r.choice([16, 8])), "L B S H K D", types[0])
        write(r, "b.npy", two, int(r.choice([16, 24])), "K B L H S D", types[1])
        result, o, got = paired(i, "--exact")
        # what ends alike too early, or in the fault, may be asked; never be wrong
        wrong = {a: b for a, b in got.items() if want[a] != b}
        least = min(lengths) > 216
        asked = result.code == 3 and "--match=" in result.err
        tap.ok(not wrong and (got == want or (asked and not least)) and
               (o is None or o["groups"][0]["elements"] ==
                sum(len(x) for x in requests) * L * H * 2 * D),
               f"{n} requests, noise {noise}, fault {fault}: {len(got)} are paired", result)
        result = kvtool("diff", "--exact", *[f"--match={a}={b}" for a, b in want.items()],
                        "a.npy", "b.npy")
        tap.ok(result.code in (0, 1) and " of A is " not in result.out,
               "who says all pairs is told none", result)


# ---- names that are one but for the end -----------------------------------------

def check_suffixes(r):
    """Contents that have nothing in common: names alone."""
    one = {f"cmpl-{i}-{suffix(r)}": x for i, x in enumerate(drawn(r, [20, 30, 40]))}
    two = {f"cmpl-{i}-{suffix(r)}": x for i, x in enumerate(drawn(r, [20, 30, 40]))}
    write(r, "a.npy", one)
    write(r, "b.npy", dict(reversed(list(two.items()))))
    result, o, got = paired("suffixes")
    tap.ok(got == dict(zip(one, two)) and {p["by"] for p in o["paired"]} == {"name"},
           "random ends of names are left away", result)
    text = kvtool("diff", "a.npy", "b.npy").out
    tap.ok(text.count("names that are one but for the end") == 3, "and it is said", text)
    for first, second in (("run-1", "run-2"), ("a1", "b1"), ("req-abcdef", "req-fedcba"),
                          ("7-12345", "7-54321")):
        write(r, "a.npy", {first: drawn(r, [40])[0]})
        write(r, "b.npy", {second: drawn(r, [40])[0]})
        result, _, _ = paired(first)
        tap.ok(result.code == 3 and f"--match={first}={second} " in result.err,
               f"{first} and {second} are not known to be one", result)
    x, y = drawn(r, [40, 40])
    write(r, "a.npy", {"r1-aaaa": x, "r2-bbbb": y})
    write(r, "b.npy", {"r1-cccc": y, "r2-dddd": x})
    _, _, got = paired("contents")
    tap.ok(got == {"r1-aaaa": "r2-dddd", "r2-bbbb": "r1-cccc"}, "contents count before names",
           got)
    write(r, "b.npy", {"r1-aaaa": y, "r2-dddd": y})
    result, o, got = paired("equal")
    tap.ok(got == {"r2-bbbb": "r2-dddd"} and result.code == 1,
           "equal names count before contents", result)


# ---- what must be asked ----------------------------------------------------------

def check_asked(r):
    x, y, z, other = drawn(r, [60, 60, 60, 60])
    for name, one, two in (
            ("two that hold the same", {"p": x, "q": x}, {"s": x, "t": x}),
            ("one of two that hold the same", {"p": x}, {"s": x, "t": x}),
            ("half of either", {"p": x, "q": y}, {"s": np.concatenate((x[:30], y[30:])),
                                                 "t": np.concatenate((y[:30], x[30:]))}),
            ("another one", {"p": x}, {"s": z}),
            ("the same beginning alone", {"p": x}, {"s": np.concatenate((x[:40], z[40:]))}),
            ("names for a shell", {"p q": x}, {"s;t": z})):
        write(r, "a.npy", one)
        write(r, "b.npy", two)
        result, _, got = paired(name)
        line = re.findall(r"--match=(?:'[^']*'|[^ ]+)", result.err)
        tap.ok(result.code == 3 and not got and line, f"{name}: asked", result)
        line = [m.replace("'", "") for m in line]
        result, _, _ = paired(name, "--common", *line)
        tap.ok(result.code in (0, 1), f"{name}: what is asked can be typed", result)
    write(r, "a.npy", {"p": x, "q": y, "same": z})
    write(r, "b.npy", {"s": x, "same": z, "other": other})
    result, _, got = paired("left")
    tap.ok(result.code == 3 and "--match=q=other " in result.err, "one is left", result)
    result, o, got = paired("left", "--common")
    tap.ok(result.code == 0 and got == {"p": "s"} and len(o["only_one_side"]) == 2,
           "one is left, and both are told", result)
    many = {f"a{i}": v for i, v in enumerate(drawn(r, [20] * 140))}
    write(r, "a.npy", many)
    write(r, "b.npy", {f"b{k}": v for k, v in many.items()})
    result, _, _ = paired("many")
    tap.ok(result.code == 3 and "--match=a0=ba0 " in result.err, "280 are too many", result)


def main(work):
    r = np.random.default_rng(35)
    os.chdir(work)
    check_contents(r)
    check_suffixes(r)
    check_asked(r)
    os.chdir("/")


run(main)
