# SPDX-License-Identifier: Apache-2.0
"""
page.py - the lines that kvtool-dumps(7) tells users to paste, to be run as they stand

A literal block of the page whose name is in the comment before it,

    .\\" run by tests/engines/SCRIPT.py: NAME

is run by that script.  tests/check_docs.py sees that each script asks for its blocks.
"""
import contextlib
import json
import os
import re
import shlex

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(HERE, "..", "..", "man", "kvtool-dumps.7")
MARK = re.compile(r'\.\\" run by (tests/engines/[a-z_]+\.py): ([a-z-]+)$')


def blocks():
    """{name: (script, text)} of the page."""
    out, mark, text = {}, None, None
    with open(PAGE, encoding="ascii") as f:
        for line in f.read().splitlines():
            found = MARK.match(line)
            if found:
                mark = found.groups()
            elif line.startswith(".Bd -literal") and mark:
                text = []
            elif line == ".Ed" and text is not None:
                out[mark[1]] = mark[0], "\n".join(text) + "\n"
                mark = text = None
            elif text is not None:
                text.append(line.replace("\\&", "").replace("\\-", "-")
                            .replace("\\e", "\\"))
    return out


def block(name):
    return blocks()[name][1]


@contextlib.contextmanager
def inside(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run_python(name, folder, **known):
    """Runs a block in a folder; what it knows by the time it ends."""
    with inside(folder):
        exec(compile(block(name), f"kvtool-dumps(7), {name}", "exec"), known)
    return known


def commands(name):
    """Lines behind '$', each a list of words; those that go on are joined."""
    text = re.sub(r"\\\n", " ", block(name))
    return [shlex.split(part, comments=True)
            for part in re.split(r"^\$ ", text, flags=re.M)[1:]]


def connector(name):
    """The value of --kv-transfer-config in a block."""
    for words in commands(name):
        if "--kv-transfer-config" in words:
            return json.loads(words[words.index("--kv-transfer-config") + 1])
    raise KeyError(f"{name}: no --kv-transfer-config")


def kvtool_of(name):
    """The commands of kvtool in a block, without the name of the program."""
    return [words[1:] for words in commands(name) if words[0] == "kvtool"]
