#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
check_html.py [OUT] - the manual in a browser: pages, links, index (TAP)

What make html writes is written twice.  Every page of the manual and every document must be
there, every link must lead to a page and to a place in it, nothing may come from elsewhere,
and the index must have what the program lists.  In a browser, where there is one, a few pages,
with KVT_FULL=1 all, say nothing on the console and are no wider than a phone.  That the
rules bite is tried on pages that break them.
"""
import filecmp
import glob
import html.parser
import importlib.util
import os
import shutil
import subprocess
import sys
import urllib.parse

import oracle
from browser import CHROMIUM, Browser
from oracle import KVTOOL, kvtool, read_text, tap, write_text

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("KVT_BUILD", f"{ROOT}/build"))
SOURCES = sorted(glob.glob(f"{ROOT}/man/*.[1357]") + glob.glob(f"{BUILD}/man3/*.3"))
MOST = 3 << 20
VOID = {"area", "br", "col", "hr", "img", "input", "link", "meta", "wbr"}


class Look(html.parser.HTMLParser):
    """ids, links and what is wrong of one page; text, and that of each part with an id."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.wrong, self.open, self.text = [], [], [], [], ""
        self.feed(read_text(path))
        self.wrong += [f"{t} is not closed" for t in self.open]
        self.wrong += [f"id {i} twice" for i in set(self.ids) if self.ids.count(i) > 1]

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        for name in ("href", "src"):
            if name in attrs:
                self.links.append(attrs[name])
                if tag != "a" and ":" in attrs[name].split("/")[0] and attrs[name][:5] != "data:":
                    self.wrong.append(f"{tag} loads {attrs[name]}")
        if tag == "script":
            self.wrong.append("a script")

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"line {self.getpos()[0]}: {tag} closes nothing")
            self.open = []

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] == "p" and "\n- " in data:
            self.wrong.append(f"line {self.getpos()[0]}: a list without an empty line before it")


def look(folder):
    """({page: Look}, what is wrong with them)"""
    pages = {os.path.basename(p): Look(p) for p in sorted(glob.glob(f"{folder}/*.html"))}
    wrong = [f"{name}: {w}" for name, page in pages.items() for w in page.wrong]
    reached, todo = set(), ["index.html"]
    for name, page in pages.items():
        for link in page.links:
            target, _, part = urllib.parse.unquote(link).partition("#")
            target = target or name
            if ":" in target.split("/")[0]:
                continue
            if not os.path.isfile(f"{folder}/{target}"):
                wrong.append(f"{name}: {link} is not there")
            elif part and target in pages and part not in pages[target].ids:
                wrong.append(f"{name}: {link} has no such place")
    while todo:
        name = todo.pop()
        if name in pages and name not in reached:
            reached.add(name)
            todo += [link.partition("#")[0] for link in pages[name].links]
    return pages, wrong + [f"{name}: nothing leads there" for name in pages if name not in reached]


def bites(tmp):
    """Each of these pages breaks one rule."""
    planted = {"link": '<a href="gone.html">a</a>', "place": '<a href="#gone">a</a>',
               "twice": '<p id="a">a</p><p id="a">b</p>', "script": "<script>a</script>",
               "elsewhere": '<img src="https://example.org/a.png" alt="">',
               "closed": "<p>a<b>b</p>", "list": "<p>a:\n- b</p>"}
    os.makedirs(f"{tmp}/planted")
    for name, body in {**planted, "alone": "", "index": "".join(
            f'<a href="{n}.html">{n}</a>' for n in planted)}.items():
        write_text(f"{tmp}/planted/{name}.html", f"<html><body>{body}</body></html>")
    wrong = look(f"{tmp}/planted")[1]
    found = {w.split(".html")[0] for w in wrong}
    tap.equal(sorted(found), sorted([*planted, "alone"]), "what is wrong with a page is found")


def generate(out, **env):
    p = subprocess.run([f"{ROOT}/scripts/manual.py", out, *SOURCES], stderr=subprocess.PIPE,
                       env={**os.environ, "KVTOOL": KVTOOL, **env}, cwd=os.path.dirname(out),
                       check=False)
    return p.returncode == 0, p.stderr.decode()


def same(a, b):
    left = [os.path.relpath(p, a) for p in glob.glob(f"{a}/**", recursive=True) if os.path.isfile(p)]
    right = [os.path.relpath(p, b) for p in glob.glob(f"{b}/**", recursive=True) if os.path.isfile(p)]
    _, differ, errors = filecmp.cmpfiles(a, b, left, shallow=False)
    return sorted(left) == sorted(right) and not differ + errors


def index(page):
    """What the program lists, and every page of the manual, is in the index."""
    text = " ".join(page.text.split())
    how = kvtool("help", "how").out.splitlines()
    tasks = [line for line, after in zip(how, how[1:]) if not line.startswith(" ") and after.startswith(" ")]
    lines = kvtool("help", "symptoms").out.splitlines()
    symptoms = [line for line, after in zip(lines, lines[1:])
                if not line.startswith(" ") and after.startswith(" ")]
    tap.ok(len(tasks) > 20, "there are tasks", tasks)
    tap.equal([t for t in tasks if t not in text], [], "the index has each task")
    tap.ok(len(symptoms) > 20, "there are symptoms", symptoms)
    tap.equal([s for s in symptoms if s not in text], [], "the index has each symptom")
    names = [line.split()[0] for line in kvtool("help", "formats").out.splitlines()[1:]]
    parts = {link.partition("#")[2] for link in page.links
             if link.startswith("kvtool-formats.7.html#")}
    tap.equal([n for n in names if not any(n in p for p in parts)], [], "the index has each format")
    files = {f"{os.path.basename(p)}.html" for p in SOURCES}
    tap.equal(sorted(files - set(page.links)), [], "the index has each page of the manual")


def in_browser(out, pages):
    if not CHROMIUM:
        tap.skip("pages in a browser", "this needs the package chromium")
        return
    browser, wide, said = Browser(), [], []
    try:
        few = ["index.html", "README.html", "kvtool-engines.7.html", "kvtool-formats.7.html",
               "kvtool-json.5.html", "kvtool-size.1.html", "kvt_layout.3.html"]
        for i, name in enumerate(pages if oracle.FULL else few):
            browser.open(f"{out}/{name}", width=390, height=844, dark=i % 2)
            width = browser.call("Page.getLayoutMetrics")["cssContentSize"]["width"]
            wide += [f"{name}: {width}"] if width > 390 else []
            said += [f"{name}: {m}" for m in browser.messages()]
    finally:
        browser.close()
    tap.equal(wide, [], "no page is wider than a phone")
    tap.equal(said, [], "no page says anything on the console")


def main(tmp):
    if not importlib.util.find_spec("markdown") or not shutil.which("mandoc"):
        tap.skip("the manual in a browser", "this needs python3-markdown and mandoc")
        return
    bites(tmp)
    out = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else f"{tmp}/html"
    tap.ok(*(lambda r: (r[0], "the pages are written", r[1]))(generate(out)))
    generate(f"{tmp}/again", TZ="Pacific/Auckland", LC_ALL="C", PYTHONHASHSEED="7")
    tap.ok(same(out, f"{tmp}/again"), "the same bytes twice")
    pages, wrong = look(out)
    tap.equal(wrong, [], "links lead to pages, and pages are whole")
    wanted = {f"{os.path.basename(p)}.html" for p in SOURCES} | {
        os.path.basename(p)[:-3] + ".html" for p in glob.glob(f"{ROOT}/*.md") +
        glob.glob(f"{ROOT}/docs/*.md")}
    tap.ok(len(SOURCES) > 50 and wanted <= set(pages), "each page and document is there",
           sorted(wanted - set(pages)))
    index(pages["index.html"])
    size = sum(os.path.getsize(p) for p in glob.glob(f"{out}/**", recursive=True)
               if os.path.isfile(p))
    tap.ok(size < MOST, "all of it is small", f"{size} bytes, at most {MOST}")
    print(f"# {len(pages)} pages, {size} bytes")
    in_browser(out, pages)


oracle.run(main)
