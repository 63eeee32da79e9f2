#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
check_docs.py [FILE...] - every command that the documents in Markdown show (TAP)

A document is run from its first line to its last, in one shell and one folder that
begins as a copy of testdata/, examples/ and contrib/, as a reader would type it:

    ```console          "$ command" is run, and must print the lines after it; without
                        such lines it must succeed
    | words | `kvtool ...` |
                        a row of a table, of two or three columns: the command must
                        succeed, or end with N where the words say "(status N)"
    ```sh run-by="make check-fresh"
                        is not run here, but by what it names: that must be there, and so
                        must what the lines call: targets of make, scripts, commands and
                        options of kvtool

Blocks of another language need no mark.  A block of shell without one, and an indented
block, fail.  What stands in the text as `make X`, `kvtool X` or the path of a file is
looked up.  Of man/kvtool-dumps.7, which tells how a dump comes out of an engine, each
block is run by the script that is named above it, or said to be run by nobody; what it
calls of kvtool is there.  That the test bites is tried first, on a document that is wrong.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KVTOOL = os.path.realpath(os.environ.get("KVTOOL", f"{ROOT}/build/kvtool"))
# Folders of what is built, or of another program.
NOT_OURS = re.compile(r"build|dist$|\.")
COPIED = ["testdata", "examples", "contrib"]
END = "==== end of"


def documents():
    """All in Markdown, those that a reader sees first before those in folders."""
    found = []
    for where, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if not NOT_OURS.match(f)]
        found += [os.path.relpath(os.path.join(where, f), ROOT)
                  for f in files if f.endswith(".md")]
    return sorted(found, key=lambda f: (f.count("/"), f))


# ---- what a document shows ----------------------------------------------------------

class Command:
    """One line to run, with what it has to print (None: anything) and its status."""

    def __init__(self, line, text, wanted=None, status=None):
        self.line, self.text, self.wanted, self.status = line, text, wanted, status


class Document:
    """commands to run; shown: (line, command, by whom it is run); wrong: what is unmarked."""

    def __init__(self, name, text):
        self.name, self.commands, self.shown, self.wrong = name, [], [], []
        self.spans = []
        fence, before = None, ""
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("```"):
                fence = None if fence is not None else line.strip()[3:].strip()
                if fence is not None:
                    self.check_fence(number, fence)
            elif fence is not None:
                self.in_fence(number, fence, line)
            else:
                self.in_text(number, line, before)
            before = line

    def check_fence(self, number, fence):
        kind = fence.split(" ")[0]
        if kind == "console" or kind not in ("", "sh", "bash", "shell"):
            return
        if not re.search(r'run-by="[^"]+"', fence):
            self.wrong.append(f"line {number}: ```{fence}: nothing says who runs this: "
                              "console, or run-by=\"...\"")

    def in_fence(self, number, fence, line):
        if fence == "console":
            if line.startswith("$ "):
                self.commands.append(Command(number, line[2:]))
            elif not self.commands:
                self.wrong.append(f"line {number}: printed by no command")
            else:
                last = self.commands[-1]
                last.wanted = (last.wanted or "") + line + "\n"
        elif "run-by=" in fence and line.strip():
            by = re.search(r'run-by="([^"]+)"', fence).group(1)
            if fence.split(" ")[0] in ("sh", "bash"):
                self.shown.append((number, line.strip(), by))

    def in_text(self, number, line, before):
        if line.startswith("    ") and not before.strip():
            self.wrong.append(f"line {number}: an indented block, which nothing runs")
        cells = [c.strip() for c in line.strip().strip("|").split(" | ")]
        run = line.startswith("|") and len(cells) in (2, 3) and \
            re.fullmatch(r"`(kvtool [^`]*)`", cells[-1])
        if run:
            status = re.search(r"\(status (\d)\b", " ".join(cells[:-1]))
            self.commands.append(Command(number, run.group(1), None,
                                         int(status.group(1)) if status else 0))
        self.spans += [(number, s) for s in re.findall(r"`([^`]+)`", line)]


# ---- running ------------------------------------------------------------------------

def run(document, folder):
    """[(status, printed)] of the commands, in one shell."""
    for name in COPIED:
        shutil.copytree(os.path.join(ROOT, name), os.path.join(folder, name),
                        copy_function=shutil.copyfile)
    # of a tree that cannot be written
    for where, folders, _ in os.walk(folder):
        for name in folders:
            os.chmod(os.path.join(where, name), 0o755)
    script = []
    for i, c in enumerate(document.commands):
        script += [f"eval {shlex.quote(c.text)} 2>&1", f'printf "%s {i} %s\\n" "{END}" $?']
    path = f"{os.path.dirname(KVTOOL)}:{os.environ['PATH']}"
    p = subprocess.run(["bash", "-s"], input="\n".join(script).encode(), cwd=folder,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1200,
                       env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", "KVTOOL": KVTOOL},
                       check=False)
    text, out = p.stdout.decode(errors="replace"), []
    for i in range(len(document.commands)):
        printed, found, text = text.partition(f"{END} {i} ")
        status, _, text = text.partition("\n")
        out.append((int(status), printed) if found else (None, printed))
    return out


def wrong_of(command, status, printed):
    """Why a command is not as the document says; '' if it is."""
    if status is None:
        return f"was not run\n{printed}"
    if command.wanted is None:
        expected = command.status or 0
        return "" if status == expected else \
            f"status {status}, expected {expected}\n{printed}"
    if printed.rstrip("\n") == command.wanted.rstrip("\n"):
        return ""
    return f"printed\n{printed}expected\n{command.wanted}"


# ---- what is not run ----------------------------------------------------------------

def targets():
    with open(os.path.join(ROOT, "Makefile"), encoding="ascii") as f:
        return set(re.findall(r"^([a-z-]+(?: [a-z-]+)*):", f.read(), re.M))


TARGETS = {t for line in targets() for t in line.split()}
LISTS = {}


def kvtool_lists(*args):
    if args not in LISTS:
        p = subprocess.run([KVTOOL, *args], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, check=False)
        LISTS[args] = p.stdout.decode().split() if p.returncode == 0 else []
    return LISTS[args]


def unknown_of_kvtool(words):
    """A command or option that is not there."""
    if len(words) < 2 or not re.fullmatch(r"[a-z][a-z-]*", words[1]):
        return ""
    if words[1] == "help":
        return ""
    if words[1] not in kvtool_lists("--list-commands"):
        return f"kvtool has no command {words[1]}"
    modes = kvtool_lists(words[1], "--list-modes")
    known = set(kvtool_lists(words[1], "--list-options"))
    for mode in modes:
        known |= set(kvtool_lists(words[1], mode, "--list-options"))
    for word in words[2:]:
        option = word.split("=")[0]
        if option.startswith("--") and option != "--" and option not in known:
            return f"kvtool {words[1]} has no option {option}"
    return ""


def unknown(text):
    """What a line of shell, or a span in the text, calls that is not there."""
    text = re.sub(r"\s#.*", "", text)
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    while words and re.fullmatch(r"[A-Za-z_]+=.*", words[0]):
        words = words[1:]
    if not words:
        return ""
    if words[0] == "kvtool":
        return unknown_of_kvtool(words)
    if words[0] == "make":
        for word in words[1:]:
            if word in ("&&", "||", ";", "|"):
                break
            if not re.search(r"[=/$]|^-|^X$", word) and word not in TARGETS:
                return f"make has no target {word}"
        return ""
    for word in words[:2] if "NAME" not in text else []:
        if re.fullmatch(r"(tests|scripts|bench|lib|formats|cli|print|sim|kernels|contrib|examples|"
                        r"models|testdata|man|\.ci)/[A-Za-z0-9_./-]*", word) and \
                not os.path.exists(os.path.join(ROOT, word)):
            return f"{word} is not there"
    return ""


# ---- TAP -------------------------------------------------------------------------------

class Tap:
    count = failed = 0

    def ok(self, good, name, why=""):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}")
        for line in str(why).splitlines() if not good else []:
            print(f"#   {line}")
        sys.stdout.flush()

    def skip(self, name, why):
        self.count += 1
        print(f"ok {self.count} - {name} # SKIP {why}")


def look_up(tap, document):
    """What is said but not run."""
    missing = [f"line {n}: {why}" for n, s in document.spans if (why := unknown(s))]
    tap.ok(not missing, f"{document.name}: what the text names is there",
           "\n".join(missing))
    tap.ok(not document.wrong, f"{document.name}: each block says who runs it",
           "\n".join(document.wrong))
    wrong = [f"line {n}: {text}: {why}" for n, text, by in document.shown
             if (why := unknown(text) or unknown(by))]
    tap.ok(not wrong, f"{document.name}: what others run exists", "\n".join(wrong))
    for by in sorted({by for _, _, by in document.shown}):
        lines = [(n, text) for n, text, who in document.shown if who == by]
        for number, text in lines:
            print(f"# {document.name}:{number}: {text}")
        tap.skip(f"{document.name}: {len(lines)} commands", f"run by {by}")


def check(tap, document):
    look_up(tap, document)
    if not document.commands:
        return
    with tempfile.TemporaryDirectory() as folder:
        results = run(document, folder)
    for command, (status, printed) in zip(document.commands, results):
        why = wrong_of(command, status, printed)
        tap.ok(not why, f"{document.name}:{command.line}: {command.text}", why)


# ---- lines for engines ------------------------------------------------------------------

PAGE = "man/kvtool-dumps.7"


def blocks_of(page):
    """[(line, script or None, name, text)] of literal blocks above EXAMPLES."""
    out, mark, text = [], (None, None), None
    for number, line in enumerate(page.splitlines(), 1):
        found = re.match(r'\.\\" run by (\S+): (\S+)$', line)
        if line == ".Sh EXAMPLES":
            break
        if found:
            mark = found.groups()
        elif line.startswith(".Bd -literal"):
            begin, text = number, []
        elif line == ".Ed" and text is not None:
            out.append((begin, *mark, "\n".join(text)))
            mark, text = (None, None), None
        elif text is not None:
            text.append(line.replace("\\e", "\\"))
    return out


def wrong_block(script, name, text):
    """Why a block is not what it says; '' if it is."""
    if script:
        path = os.path.join(ROOT, script)
        if not os.path.exists(path):
            return f"{script} is not there"
        with open(path, encoding="ascii") as f:
            if f'"{name}"' not in f.read():
                return f"{script} does not run {name}"
    for line in text.splitlines():
        if line.startswith("$ kvtool ") and (why := unknown(line[2:])):
            return why
    return ""


def check_page(tap, page):
    for number, script, name, text in blocks_of(page):
        first = next(t for t in text.splitlines() if t)
        why = wrong_block(script, name, text)
        line = f"{PAGE}:{number}: not run here: {first}".replace("#", "--")
        if why:
            tap.ok(False, line, why)
        else:
            tap.skip(line, f"run by {script}, make check-engines" if script else
                     "run by nobody, as the page says")


# ---- does it bite? -----------------------------------------------------------------------

PLANTED = """
```console
$ echo one
one
$ cd examples
$ echo right
wrong
$ false
$ ls samples.sh
samples.sh
```
| a | `kvtool --version` |
| b (status 2) | `kvtool describe --no-such-option` |
| c | `kvtool describe no-such-file` |
| d | e | `kvtool describe no-other-file` |
```
make
```
```sh run-by="make no-such-target"
make check
```
```sh run-by="make check"
kvtool describe --no-such-option
```
`make nothing`, `tests/no_such.py`, `kvtool frobnicate`
"""


PLANTED_PAGE = """
.\\" run by tests/engines/no_such.py: a
.Bd -literal
import a
.Ed
.\\" run by tests/engines/vllm_tokens.py: no-such-block
.Bd -literal
import a
.Ed
.Bd -literal
$ kvtool describe --no-such-option
.Ed
.Bd -literal
$ kvtool describe --json FILE
.Ed
.Sh EXAMPLES
"""


def try_itself(tap):
    wrong = [bool(wrong_block(*b[1:])) for b in blocks_of(PLANTED_PAGE)]
    tap.ok(wrong == [True, True, True, False],
           "blocks for engines that nobody runs, or that are wrong, are found", wrong)
    document = Document("planted", PLANTED)
    with tempfile.TemporaryDirectory() as folder:
        results = run(document, folder)
    bad = [c.text for c, r in zip(document.commands, results) if wrong_of(c, *r)]
    tap.ok(bad == ["echo right", "false", "kvtool describe no-such-file",
                   "kvtool describe no-other-file"],
           "planted commands and outputs that are wrong are found", bad)
    tap.ok(len(document.wrong) == 1, "a block without a mark is found", document.wrong)
    names = [s for _, s in document.spans if unknown(s)]
    tap.ok(names == ["kvtool describe --no-such-option", "make nothing",
                     "tests/no_such.py", "kvtool frobnicate"],
           "names of nothing are found", names)
    tap.ok([bool(unknown(t) or unknown(by)) for _, t, by in document.shown] ==
           [True, True], "runners and options of nothing are found", document.shown)


def main():
    tap = Tap()
    try_itself(tap)
    if len(sys.argv) < 2:
        with open(os.path.join(ROOT, PAGE), encoding="ascii") as f:
            check_page(tap, f.read())
    for name in sys.argv[1:] or documents():
        with open(os.path.join(ROOT, name), encoding="utf-8") as f:
            check(tap, Document(name, f.read()))
    print(f"1..{tap.count}")
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
