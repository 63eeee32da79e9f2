#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
check_notebook.py - docs/python.ipynb without torch: its form, and the page made of it

'make check-engines' runs the notebook.  Here: it was run from top to bottom, without an error,
shows no path and no time of a machine, calls of kvtool what is there, and docs/python.md
and its pictures are what scripts/notebook_page.py makes of it.  That this bites is tried
on copies that are wrong.
"""
import ast
import copy
import inspect
import os
import re
import sys

from oracle import ROOT, run, tap

sys.path.insert(1, f"{ROOT}/scripts")
import kvtool
import notebook_page
from kvtool._report import Report
from kvtool._view import View
from notebook_page import text_of

MOST = 400000
OF_A_MACHINE = re.compile(r"(?<![\w.>/-])/(?:bin|dev|etc|home|opt|proc|root|run|srv|tmp|usr|var|work)/\w"
                          r"|\b\d\d:\d\d:\d\d\b|\b0x[0-9a-f]{6,}|\b20\d\d-\d\d-\d\d\b")
OBJECTS = (kvtool.Dump, Report, View)


def code(notebook):
    return [c for c in notebook["cells"] if c["cell_type"] == "code"]


# ---- what may be wrong ----------------------------------------------------------------

def form(nb):
    """What is wrong with it as a notebook that was run."""
    ids = [c["id"] for c in nb["cells"]]
    if (nb["nbformat"], nb["nbformat_minor"]) != (4, 5) or len(set(ids)) < len(ids):
        yield "not of format 4.5 with an id for each cell"
    if [c["execution_count"] for c in code(nb)] != list(range(1, len(code(nb)) + 1)):
        yield "was not run from top to bottom"
    for cell in code(nb):
        for o in cell["outputs"]:
            if o["output_type"] not in ("stream", "display_data", "execute_result") or \
                    o.get("name") == "stderr":
                yield f"{cell['id']}: {o['output_type']} {o.get('name', '')}"
        last = ast.parse(text_of(cell["source"])).body[-1]
        shows = isinstance(last, ast.Expr) and not text_of(cell["source"]).rstrip().endswith(";") \
            and not ast.unparse(last).startswith("print(")
        if shows and not any(o["output_type"] == "execute_result" for o in cell["outputs"]):
            yield f"{cell['id']}: shows nothing"


def machine(nb):
    """Paths and times; those in what is drawn, too."""
    for cell in code(nb):
        for o in cell["outputs"]:
            texts = [text_of(o.get("text", ""))]
            for kind, data in o.get("data", {}).items():
                if kind.startswith("text/"):
                    texts.append(text_of(data))
                    texts += [p.decode() if isinstance(p, bytes) else str(p)
                              for _, p in notebook_page.Shown(text_of(data)).parts]
            yield from (f"{cell['id']}: {found.group()}" for text in texts
                        if (found := OF_A_MACHINE.search(re.sub(r'base64,[^"]*', "", text))))


def takes(function, call):
    """Are the arguments of a call among those of a function?"""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return any(p.kind == p.VAR_KEYWORD for p in parameters.values()) or \
        all(k.arg in parameters for k in call.keywords)


def calls(nb):
    """What is called of kvtool that is not there, or with arguments that are not."""
    for cell in code(nb):
        for node in ast.walk(ast.parse(text_of(cell["source"]))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            of, name = ast.unparse(node.func.value), node.func.attr
            found = [getattr(kvtool, name, None)] if of == "kvtool" else \
                [getattr(c, name) for c in OBJECTS if hasattr(c, name)] if "kvtool." in of else []
            if "kvtool" in of and not any(f and takes(f, node) for f in found):
                yield f"{cell['id']}: {ast.unparse(node)}"


def page(nb):
    """What of the page and its pictures is not of this notebook."""
    made = notebook_page.Page(nb)
    with open(notebook_page.PAGE, encoding="utf-8") as f:
        if f.read() != made.text:
            yield "docs/python.md is of another notebook: run scripts/notebook_page.py"
    there = {f for f in os.listdir(notebook_page.PICTURES) if f.startswith("python-")}
    wanted = set(made.pictures) | set(made.frames)
    yield from (f"docs/pictures/{name}: {'missing' if name in wanted else 'of nothing'}"
                for name in sorted(there ^ wanted))
    for name in sorted(there & set(made.pictures)):
        with open(os.path.join(notebook_page.PICTURES, name), "rb") as f:
            if f.read() != made.pictures[name]:
                yield f"docs/pictures/{name}: not what the notebook shows"


RULES = (form, machine, calls, page)


# ---- does it bite? ---------------------------------------------------------------------

def unrun(cell):
    cell["execution_count"] = None


def failed(cell):
    cell["outputs"] = [{"output_type": "error", "ename": "E", "evalue": "", "traceback": []}]


def silent(cell):
    cell["outputs"] = []


def path(cell):
    cell["outputs"][0]["text"] = ["kept in /tmp/x/cache.h5\n"]


def other_name(cell):
    cell["source"] = text_of(cell["source"]).replace("from_tensors", "of_tensors")


def other_option(cell):
    cell["source"] = text_of(cell["source"]).replace("atol=", "tolerant=")


def other_text(cell):
    cell["outputs"][0]["text"] = ["another number\n"]


def other_picture(cell):
    cell["outputs"][-1]["data"]["image/png"] = "AAAA"


PLANTED = [("model", unrun, form), ("save", failed, form), ("read", silent, form),
           ("save", path, machine), ("first", other_name, calls), ("by-layer", other_option, calls),
           ("eager", other_text, page), ("plot", other_picture, page)]


def main():
    nb = notebook_page.load()
    for rule in RULES:
        wrong = list(rule(nb))
        tap.ok(not wrong, f"docs/python.ipynb: {rule.__doc__.splitlines()[0].rstrip('.')}: nothing",
               "\n".join(wrong))
    size = os.path.getsize(notebook_page.NOTEBOOK)
    tap.ok(size < MOST, f"it has less than {MOST} bytes", size)
    for name, change, rule in PLANTED:
        wrong = copy.deepcopy(nb)
        change(next(c for c in wrong["cells"] if c["id"] == name))
        tap.ok(list(rule(wrong)), f"found where it is wrong: {name}, {change.__name__}")


run(main)
