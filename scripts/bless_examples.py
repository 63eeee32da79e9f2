#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
bless_examples.py FILE... - writes what the examples of pages and documents print now

For a change that changes output.  FILE is a page of man/ or a document that
tests/check_docs.py runs.  A command that shows output gets that of today; one that
shows none is left alone, as is one that was not run, and is named.  Look at git diff
before you commit it: this makes every example pass, the wrong ones, too.
"""
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import check_docs


def plain(line):
    return line.replace("\\&", "").replace("\\-", "-").replace("\\e", "\\")


def mdoc(line):
    line = line.replace("\\", "\\e")
    return "\\&" + line if line[:1] in (".", "'") else line


class Shown:
    """A command of a block: lines[first:end] of the file are what it prints."""

    def __init__(self, text, first):
        self.text, self.first, self.end = text, first, first


def blocks_of_page(lines):
    """Literal blocks of EXAMPLES, each a list of Shown."""
    examples, block = False, None
    for i, line in enumerate(lines):
        if line.startswith(".Sh "):
            examples = line == ".Sh EXAMPLES"
        elif line.startswith(".Bd -literal") and examples:
            block = []
        elif line == ".Ed" and block is not None:
            yield block
            block = None
        elif block is not None and line.startswith("$ "):
            block.append(Shown(plain(line[2:]), i + 1))
        elif block:
            block[-1].end = i + 1


def blocks_of_document(lines):
    """All that is run of a document is one block."""
    block, fence = [], None
    for i, line in enumerate(lines):
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
        elif fence == "console" and line.startswith("$ "):
            block.append(Shown(line[2:], i + 1))
        elif fence == "console" and block:
            block[-1].end = i + 1
        elif fence is None and (row := re.search(r"\| `(kvtool [^`]*)` \|$", line)):
            block.append(Shown(row.group(1), i + 1))
    yield block


def commands_of(block, lines):
    """As check_examples.sh runs them: 'cat FILE' makes a file that is not there."""
    for c in block:
        text = "\n".join(map(plain, lines[c.first:c.end])) + "\n"
        name = re.fullmatch(r"cat ([a-z]\S*)", c.text)
        run = c.text if not name else \
            f"[ -e {name[1]} ] || printf %s {check_docs.shlex.quote(text)} >{name[1]}; {c.text}"
        yield check_docs.Command(0, run)


def bless(path):
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    is_page = not path.endswith(".md")
    changed = []
    for block in (blocks_of_page if is_page else blocks_of_document)(lines):
        document = check_docs.Document(path, "")
        document.commands = list(commands_of(block, lines))
        with tempfile.TemporaryDirectory() as folder:
            results = check_docs.run(document, folder)
        for c, (status, printed) in zip(block, results):
            if status is None:
                print(f"{path}:{c.first}: was not run: {c.text}", file=sys.stderr)
            elif c.end > c.first:
                changed.append((c, printed.rstrip("\n").split("\n")))
    for c, printed in reversed(changed):
        lines[c.first:c.end] = [mdoc(p) for p in printed] if is_page else printed
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines))


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: bless_examples.py FILE...")
    for path in sys.argv[1:]:
        bless(path)
    return subprocess.run(["git", "--no-pager", "diff", "--stat", "--", *sys.argv[1:]],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
