#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
check_circles.py [FOLDER...] - who calls whom: no circles, and no room one above it

Of files that do, none can be read, tested or moved without the others.  A file uses
another if its object needs a symbol that the other's defines: a function that it
calls, or names in a table.  Circles are the strongly connected components of that
graph, over all FOLDERs (formats, lib, kernels and cli) together.  Objects are those of
$KVT_BUILD; what is inline in a header is nobody's.  check_layers.sh asks the same of
includes; a call may go where no include does, through a declaration in lib/kvt.

That such a test bites is tried first, on circles that are planted.
"""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
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

PURE = ("lib/base", "lib/hash", "lib/layout", "lib/model", "lib/transfer", "lib/vllm", "lib/fault")
BELOW = {
    "pure": set(), "lib/tile": {"pure"}, "kernels": {"pure"},
    "lib/prefix": {"pure", "lib/tile"},
    "lib/dump": {"pure", "lib/tile", "kernels"},
    "formats": {"pure", "lib/tile", "lib/prefix", "lib/dump"},
    "lib/ops": {"pure", "lib/tile", "kernels", "lib/prefix", "lib/dump"},
    "cli": {"pure", "lib/tile", "lib/prefix", "kernels", "lib/dump", "formats", "lib/ops"},
}


def room(source):
    folders = source.split("/")
    name = "/".join(folders[:2]) if folders[0] == "lib" else folders[0]
    return "pure" if name in PURE else name


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


# A file of each room that calls one of each room that is not below its own.
def planted_rooms():
    folder = {"pure": "lib/layout"}
    files = {f"{folder.get(r, r)}/{r.replace('/', '_')}.c": r for r in BELOW}
    for a in files:
        for b in files:
            if files[a] != files[b]:
                uses = {f: {} for f in files}
                uses[a][b] = "a_symbol"
                yield files[a], files[b], upwards(uses)


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
    count, failed = 0, False

    def ok(name, holds, why=""):
        nonlocal count, failed
        count += 1
        failed |= not holds
        print(f"{'ok' if holds else 'not ok'} {count} - {name}")
        for line in why.splitlines() if not holds else ():
            print(f"#   {line}", file=sys.stderr)

    for name, bad, sources in PLANTED:
        ok(name, bool(planted(sources)) == bad)
    for a, b, found in planted_rooms():
        if b not in BELOW[a]:
            ok(f"finds a call from {a} to {b}", len(found) == 1)
        elif found:
            ok(f"leaves a call from {a} to {b} alone", False)
    uses = graph(objects(BUILD, ROOT, sys.argv[1:] or ["formats", "lib", "kernels", "cli"]))
    ok("there are objects", len(uses) > 50, f"{BUILD} has {len(uses)} of them")
    found = circles(uses)
    ok("no files call each other in a circle", not found,
       "\n\n".join(describe(c, uses) for c in found))
    found = upwards(uses)
    ok("no room calls one above it", not found, "\n".join(found))
    print(f"1..{count}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
