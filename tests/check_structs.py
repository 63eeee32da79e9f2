#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
check_structs.py - structs of the Python module lie as a C compiler lays them out

A program that is made here prints size and place of each field, from the headers.
These must have what scripts beside engines call, too: no other test runs those.
"""
import ctypes
import glob
import os
import re
import shlex
import subprocess
import tempfile

from oracle import ROOT, read_text, run, tap, write_text
from kvtool import _native

NAMES = {
    "ErrorText": "kvt_error", "Text": "kvt_text", "Range": "kvt_range",
    "Ranges": "kvt_ranges", "Names": "kvt_names", "Rank": "kvt_rank", "Shape": "kvt_shape",
    "Dtype": "kvt_dtype",
    "Box": "kvt_box", "Factor": "kvt_factor", "View": "kvt_view",
    "TensorPart": "kvt_tensor_part", "Views": "kvt_views", "Part": "kvt_part", "Order": "kvt_order",
    "Layout": "kvt_layout", "Facts": "kvt_facts", "Hints": "kvt_hints",
    "Hint": "kvt_hint", "Run": "kvt_run",
    "SliceOptions": "kvt_slice_options", "ReblockOptions": "kvt_reblock_options",
    "AsType": "kvt_astype",
    "Reblocked": "kvt_reblocked", "CreateOptions": "kvt_create_options",
    "DiffOptions": "kvt_diff_options", "DiffGroup": "kvt_diff_group",
    "DiffElement": "kvt_diff_element", "DiffTold": "kvt_diff_told",
    "DiffCell": "kvt_diff_cell",
    "DiffRow": "kvt_diff_row",
    "DiffPaired": "kvt_diff_paired",
    "DiffAttended": "kvt_diff_attended",
    "BrokenRule": "kvt_broken_rule",
}


def of_module():
    """{struct: (size, [(field, offset, size)])}"""
    out = {}
    for name, kind in vars(_native).items():
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and \
                kind is not ctypes.Structure:
            fields = [(f.rstrip("_"), getattr(kind, f).offset, getattr(kind, f).size)
                      for f, _ in kind._fields_]
            out[NAMES.get(name, name)] = (ctypes.sizeof(kind), fields)
    return out


def of_compiler(structs):
    lines = ['#include "lib/kvt/derive.h"', '#include "lib/kvt/ops.h"',
             '#include "lib/kvt/write.h"', "#include <stdio.h>", "int main(void)", "{"]
    for name, (_, fields) in structs.items():
        lines.append(f'\tprintf("{name} . 0 %zu\\n", sizeof(struct {name}));')
        for field, _, _ in fields:
            lines.append(f'\tprintf("{name} {field} %zu %zu\\n", '
                         f"offsetof(struct {name}, {field}), "
                         f"sizeof(((struct {name} *)0)->{field}));")
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "structs.c")
        write_text(path, "\n".join(lines + ["\treturn 0;", "}", ""]))
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=c11",
                        "-D_DEFAULT_SOURCE", "-I", ROOT, "-o", path[:-2], path],
                       check=True)
        out = {}
        for line in subprocess.run([path[:-2]], check=True, capture_output=True,
                                   text=True).stdout.splitlines():
            name, field, offset, size = line.split()
            if field == ".":
                out[name] = (int(size), [])
            else:
                out[name][1].append((field, int(offset), int(size)))
        return out


def words(pattern):
    return set(re.findall(r"\bkvt_\w+", "".join(
        read_text(f) for f in glob.glob(f"{ROOT}/{pattern}", recursive=True))))


def main():
    asked, there = words("tests/engines/*.py"), words("lib/**/*.h") | words("formats/**/*.h")
    tap.ok(len(asked) > 20 and not asked - there, f"{len(asked)} names in scripts beside engines",
           sorted(asked - there))
    mine = of_module()
    tap.equal(sorted(mine), sorted(NAMES.values()), "each struct has a name in C")
    theirs = of_compiler(mine)
    for name in sorted(mine):
        size, fields = mine[name]
        end = max(o + n for _, o, n in fields)
        # a field that the module lacks would leave more than padding behind
        tap.ok(mine[name] == theirs[name] and size - end < 8, f"struct {name}",
               f"module   {mine[name]}\ncompiler {theirs[name]}")
    mine["kvt_box"][1][0] = ("begin", 8, 48)
    tap.ok(mine != theirs, "another place is noticed")


run(main)
