#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
check_circles.py [FOLDER...] - who calls whom: no circles, and no room one above it

Of files that do, none can be read, tested or moved without the others.  A file uses
another if its object needs a symbol that the other's defines: a function that it
calls, or names in a table.  Circles are the strongly connected components of that
graph, over all FOLDERs (those of the program) together.  Objects are those of
$KVT_BUILD; what is inline in a header is nobody's.  check_layers.sh asks the same of
includes; a call may go where no include does, through a declaration in lib/kvt.

That such a test bites is tried first, on circles that are planted.
"""
import os
import subprocess
import sys
import tempfile

from oracle import ROOT, run, tap

BUILD = os.environ.get("KVT_BUILD", f"{ROOT}/build")

# ---- who uses whom ------------------------------------------------------------

def objects(build, root, folders):
    """Objects of sources that are there: one that was moved leaves its own behind."""
    for folder in folders:
        for where, _, names in os.walk(f"{build}/{folder}"):
            for name in sorted(names):
                source = os.path.relpath(f"{where}/{name[:-2]}.c", build)
                if name.endswith(".o") and os.path.exists(f"{root}/{source}"):
                    yield source, f"{where}/{name}"


def graph(files):
    """{source: {source it uses: a symbol}}"""
    source_of = {path: source for source, path in files}
    home, needs, uses = {}, [], {source: {} for source in source_of.values()}
    for line in subprocess.run(["nm", "-A", "-g", "-P", *source_of], check=True, text=True,
                               stdout=subprocess.PIPE).stdout.splitlines():
        path, symbol = line.split(": ", 1)
        name, kind = symbol.split()[:2]
        if kind in "Uwv":
            needs.append((source_of[path], name))
        else:
            home[name] = source_of[path]
    for source, name in needs:
        if home.get(name, source) != source:
            uses[source].setdefault(home[name], name)
    return uses


def circles(uses):
    """Strongly connected components of two files or more (Tarjan)."""
    index, low, stack, out = {}, {}, [], []

    def visit(a):
        index[a] = low[a] = len(index)
        stack.append(a)
        for b in uses[a]:
            if b not in index:
                visit(b)
                low[a] = min(low[a], low[b])
            elif b in stack:
                low[a] = min(low[a], index[b])
        if low[a] == index[a]:
            at = stack.index(a)
            if len(stack) - at > 1:
                out.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10000)
    for a in sorted(uses):
        if a not in index:
            visit(a)
    return sorted(out)


def describe(circle, uses):
    return "\n".join(f"{a} needs {uses[a][b]} of {b}"
                     for a in circle for b in circle if b in uses[a])


# ---- rooms --------------------------------------------------------------------

def rooms():
    """{room: what it may use}, {room: the room that it is part of}, of rooms.txt"""
    below, part_of = {}, {}
    with open(f"{ROOT}/tests/rooms.txt", encoding="utf-8") as f:
        for line in f:
            line = line.partition("#")[0]
            name, colon, uses = line.partition(":")
            if colon:
                below[name] = {r for use in uses.split() for r in below[use] | {use}}
            elif line.strip():
                name, _, parts = line.partition(" = ")
                part_of.update(dict.fromkeys(parts.split(), name))
    return below, part_of


BELOW, PART_OF = rooms()
NAMES = sorted([*BELOW, *PART_OF], key=len, reverse=True)


def room(source):
    headers = os.path.dirname(source) + "/*.h"
    if source.endswith(".h") and headers in BELOW:
        return headers
    name = next((n for n in NAMES if source.startswith(n + "/") or source == n), source)
    return PART_OF.get(name, name)


def upwards(uses):
    """Calls into a room that is not below the caller's."""
    return [f"{a} needs {symbol} of {b}" for a in sorted(uses) for b, symbol in uses[a].items()
            if room(a) != room(b) and room(b) not in BELOW.get(room(a), set())]


# ---- planted ones -------------------------------------------------------------

PLANTED = [
    ("finds two files that call each other", True,
     {"a": "int b(void); int a(void) { return b(); }",
      "b": "int a(void); int b(void) { return a(); }"}),
    ("finds a circle through a third", True,
     {"a": "int b(void); int a(void) { return b(); }",
      "b": "int c(void); int b(void) { return c(); }",
      "c": "int a(void); int c(void) { return a(); }"}),
    ("finds a circle through a table", True,
     {"a": "int b(void); int (*const a[1])(void) = { b };",
      "b": "extern int (*const a[1])(void); int b(void) { return a[0](); }"}),
    ("leaves files alone that both use a third", False,
     {"a": "int b(void), c(void); int a(void) { return b() + c(); }",
      "b": "int c(void); int b(void) { return c(); }",
      "c": "int c(void) { return 1; }"}),
    ("leaves a function alone that calls itself", False,
     {"a": "int b(int); int a(int n) { return n ? a(n - 1) : b(n); }",
      "b": "int b(int n) { return n ? b(n - 1) : 0; }"}),
]


def planted_rooms(room_a):
    """Do files of a room that call one of each other room break the rule where they should?"""
    def file(r):
        part = next((p for p, whole in PART_OF.items() if whole == r), r)
        return part.replace("*", "a") if "*" in part else part + "/a.c"

    for room_b in BELOW:
        uses = {file(room_a): {file(room_b): "a_symbol"}, file(room_b): {}}
        if len(upwards(uses)) != (room_b != room_a and room_b not in BELOW[room_a]):
            yield room_b


def planted(sources):
    with tempfile.TemporaryDirectory() as tree:
        os.mkdir(f"{tree}/lib")
        for name, text in sources.items():
            with open(f"{tree}/lib/{name}.c", "w") as f:
                f.write(text + "\n")
            subprocess.run([os.environ.get("CC", "cc"), "-O0", "-c", "-o",
                            f"{tree}/lib/{name}.o", f"{tree}/lib/{name}.c"], check=True)
        return circles(graph(objects(tree, tree, ["lib"])))


# ---- all of it ----------------------------------------------------------------

def main():
    for name, bad, sources in PLANTED:
        tap.ok(bool(planted(sources)) == bad, name)
    for a in BELOW:
        wrong = list(planted_rooms(a))
        tap.ok(not wrong, f"knows what {a} may call, and finds what not", " ".join(wrong))
    uses = graph(objects(BUILD, ROOT, sys.argv[1:] or ["formats", "lib", "kernels", "print", "sim", "cli"]))
    tap.ok(len(uses) > 50, "there are objects", f"{BUILD} has {len(uses)} of them")
    found = [a for a in uses if room(a) not in BELOW]
    tap.ok(not found, "each is in a room", "\n".join(found))
    found = circles(uses)
    tap.ok(not found, "no files call each other in a circle",
           "\n\n".join(describe(c, uses) for c in found))
    found = upwards(uses)
    tap.ok(not found, "no room calls one above it", "\n".join(found))


run(main)
