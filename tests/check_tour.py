#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
check_tour.py - the tour of CONTRIBUTING.md names functions that there are, and the order
in which they are first called

The program's files that are named there are compiled once more, so that they log their
calls (tests/tour_log.c).  A file that does not have the function, and two steps that are
swapped, must be found, too.
"""
import os
import re
import subprocess
import sys

import oracle
from oracle import DATA, read_bytes, read_text, tap

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
TOUR = os.path.join(os.environ.get("KVT_BUILD", f"{ROOT}/build"), "tests", "kvtool_tour")
NHD = f"{DATA}/s260k/paged_bs16/packed_nhd.bf16.npy"
ANCHOR = "__cyg_profile_func_exit"
COMMANDS = {
    "describe": ["describe", NHD],
    "relayout": ["relayout", "--verify", "--to=hnd", NHD, "out.h5"],
    "diff": ["diff", NHD, f"{DATA}/s260k/paged_bs32/packed_nhd.bf16.npy"],
    "transfer-sim": ["transfer-sim", "exec", "--dst=tp=2,layout=hnd", "-o", "rank%r.h5", NHD],
}


def stops():
    """{command: [(file, function)]} of the document."""
    text = read_text(f"{ROOT}/CONTRIBUTING.md").split("## A tour\n")[1].split("\n## ")[0]
    out = {}
    for line in text.splitlines():
        if begins := re.match(r"`kvtool ([a-z-]+) ", line):
            steps = out.setdefault(begins[1], [])
        if row := re.match(r"\| (\d+) \| `([^`]+)` \| `(\w+)` \|", line):
            steps.append((row[2], row[3]))
            tap.equal(int(row[1]), len(steps), f"step {row[1]}: its number")
    return out


def symbols():
    """Addresses of functions from the anchor, and their names."""
    out = subprocess.run(["nm", TOUR], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in out.splitlines()]
    named = [(int(r[0], 16), r[2]) for r in rows if len(r) == 3 and r[1] in "tT"]
    anchor = next(a for a, name in named if name == ANCHOR)
    return {a - anchor: name.split(".")[0] for a, name in named}


def calls(folder, args, names):
    """Functions in the order of their first calls."""
    log = f"{folder}/log"
    subprocess.run([TOUR, *args], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "KVT_TOUR": log})
    data = read_bytes(log)
    os.unlink(log)
    ats = [int.from_bytes(data[i:i + 8], sys.byteorder, signed=True)
           for i in range(0, len(data), 8)]
    return list(dict.fromkeys(names[a] for a in ats if a in names))


def defines(path, function):
    return re.search(rf"^\w[\w *]*[ *]{function}\(", read_text(f"{ROOT}/{path}"),
                     re.M) is not None


def in_order(functions, called):
    places = [called.index(f) if f in called else -1 for f in functions]
    return -1 not in places and places == sorted(places)


def main(folder):
    tour, names = stops(), symbols()
    tap.equal(sorted(tour), sorted(COMMANDS), "the commands of the tour")
    for command, args in COMMANDS.items():
        steps = tour.get(command, [])
        functions = [function for _, function in steps]
        tap.equal(len(steps), 12, f"{command}: twelve steps")
        tap.equal([s for s in steps if not defines(*s)], [],
                  f"{command}: each file has its function")
        called = calls(folder, args, names)
        tap.ok(in_order(functions, called), f"{command}: they are called in this order",
               [(f, called.index(f) if f in called else None) for f in functions])
        swapped = [functions[1], functions[0], *functions[2:]]
        tap.ok(not in_order(swapped, called), f"{command}: two that are swapped")
    tap.ok(not defines("cli/main.c", "kvt_open"), "a file without the function")


oracle.run(main)
