#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
manual.py OUT PAGE... - the manual as a folder of pages for a browser

PAGE is a page of the manual, which mandoc renders.  Documents in Markdown and notebooks,
those of the root and of docs/, are rendered beside them; what they link to is copied, under
its own path.  index.html finds a page by task, symptom, format, engine and command: the
lists are those of the program and of the pages.  No page needs a script or a network.  The
style is that of kvtool view, and manual.css for what only the manual has.
"""
import glob
import html
import json
import os
import re
import shutil
import subprocess
import sys

import markdown

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KVTOOL = os.environ.get("KVTOOL", f"{ROOT}/build/kvtool")
STYLE = ["print/page/colours.css", "print/page/page.css", "scripts/manual.css"]
PARTS = ["stories", "tasks", "symptoms", "formats", "engines", "commands", "concepts", "library"]

FRAME = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="style.css">
</head>
<body>
<nav class="top"><a class="home" href="index.html">kvtool</a>
{nav}
</nav>
<main>
{body}
</main>
</body>
</html>
"""


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT,
                          encoding="utf-8").stdout


def words(markup):
    """The text of some markup, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", markup)).split())


def slug(text):
    return re.sub(r"[^\w.]+", "-", text).strip("-")


class Page:
    """file; title, and what it is in a line; group of the index"""

    def __init__(self, file, title, what, body, group):
        self.file, self.title, self.what, self.group = file, title, what, group
        self.body = body


# ---- the manual ----------------------------------------------------------------------

def anchored(body):
    """Headings and terms that mandoc gives no anchor have one, so that a list can lead there."""
    seen = set(re.findall(r' id="([^"]*)"', body))

    def heading(m):
        name = slug(words(m[3]))
        seen.add(name)
        return f'<{m[1]}{m[2]} id="{name}"><a class="permalink" href="#{name}">{m[3]}</a></{m[1]}>'

    def term(m):
        name = slug(words(m[1]))
        if " id=" in m[1] or not name or name in seen:
            return m[0]
        seen.add(name)
        return f'<dt id="{name}">{m[1]}</dt>'
    body = re.sub(r'<(h[23])( class="S[hs]")>(.*?)</\1>', heading, body, flags=re.S)
    return re.sub(r"<dt>(.*?)</dt>", term, body, flags=re.S)


def contents(body):
    """The sections of a page."""
    found = re.findall(r'<h([23]) class="S[hs]" id="([^"]*)"[^>]*>(.*?)</h', body, re.S)
    return '<nav class="toc">\n<ul>\n' + "".join(
        f'<li class="h{depth}"><a href="#{name}">{html.escape(words(text))}</a></li>\n'
        for depth, name, text in found) + "</ul>\n</nav>\n"


def manual(path, ours):
    """A page by mandoc: its title and line of NAME above, sections one level down."""
    name, section = os.path.basename(path).rsplit(".", 1)
    title = f"{name}({section})"
    group = {"1": "commands", "3": "library"}.get(section, "concepts")
    part_of = re.match(r"\.so man\d/(.*)\.(\d)$", read(path).strip())
    if part_of:
        to = f'<a href="{part_of[1]}.{part_of[2]}.html">{part_of[1]}({part_of[2]})</a>'
        return Page(f"{name}.{section}.html", title, f"see {part_of[1]}({part_of[2]})",
                    f"<article>\n<h1>{title}</h1>\n<p>A part of {to}.</p>\n</article>", group)
    body = run("mandoc", "-T", "html", "-O", "fragment,man=%N.%S.html", path)
    what = words(re.search(r'<span class="Nd">(.*?)</span>', body, re.S)[1])
    body = re.sub(r'<table class="(?:head|foot)">.*?</table>\n?', "", body, flags=re.S)
    body = re.sub(r'<section class="Sh">\n<h1 class="Sh" id="NAME">.*?</section>\n', "", body,
                  count=1, flags=re.S)
    # what a term of a list has where it has nothing
    body = re.sub(r'\n *<dd style="width: auto;">&#x00A0;</dd>', "", body)
    body = re.sub(r"(</?h)2\b", r"\g<1>3", body)
    body = re.sub(r"(</?h)1\b", r"\g<1>2", body)
    body = re.sub(r'(<table class="Bl-column.*?</table>)', r'<div class="wide">\1</div>', body,
                  flags=re.S)

    def elsewhere(m):
        # pages of other programs are not here; a name that looks like ours must be
        file = m[1]
        return m[0] if file in ours or file.startswith("kvt") else f'<span class="Xr">{m[2]}</span>'
    # a section "in" or "of" the page that comes next is one of that page
    body = re.sub(r'(<a class="Sx" href=")(#[^"]*">[^<]*</a>\s+(?:in|of)\s+<a class="Xr" href="([^"]*)")',
                  r"\1\3\2", body)
    body = anchored(re.sub(r'<a class="Xr" href="([^"]*)">(.*?)</a>', elsewhere, body))
    head = f'<header><h1>{title}</h1>\n<p class="lead">{html.escape(what)}</p></header>\n'
    return Page(f"{name}.{section}.html", title, what,
                f'<div class="manual">\n{head}{contents(body)}<article>\n{body}</article>\n</div>',
                group)


# ---- documents ------------------------------------------------------------------------

def linked(markup, ours):
    """name(1) leads to that page, and so does the first command of a line of code."""
    def command(m):
        first, both = f"{m[1]}-{m[2]}", f"{m[1]}-{m[2]}-{m[3]}"
        for file, text in ((f"{both}.1.html", m[0]), (f"{first}.1.html", f"{m[1]} {m[2]}"),
                           (f"{m[1]}-{m[3]}.7.html", m[0])):
            if file in ours:
                return f'<a href="{file}">{text}</a>{m[0][len(text):]}'
        return m[0]
    markup = re.sub(r"(?<=<code>)(kvtool) ([a-z][a-z-]*)(?: ([a-z]+)\b)?", command, markup)
    parts = re.split(r"(<pre>.*?</pre>|<a\b.*?</a>|<[^>]*>)", markup, flags=re.S)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"\b(kvt\w*(?:-[\w-]+)?)\((\d)\)", lambda m:
                          f'<a href="{m[1]}.{m[2]}.html">{m[0]}</a>'
                          if f"{m[1]}.{m[2]}.html" in ours else m[0], parts[i])
    return "".join(parts)


def name_of(path):
    """The page of a document in Markdown, of a notebook; None: it is no page."""
    base, ext = os.path.splitext(os.path.basename(path))
    return {".md": f"{base}.html", ".ipynb": f"{base}.ipynb.html"}.get(ext)


def moved(markup, folder, copies):
    """Links of a document in folder lead to pages; another file is copied, a folder no link."""
    def target(m):
        path, _, part = m[3].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return m[0]
        path = os.path.normpath(os.path.join(folder, path))
        if os.path.isdir(os.path.join(ROOT, path)):
            return f"<{m[1]}"
        to = name_of(path)
        if not to:
            to = path
            copies.add(path)
        return f'<{m[1]}{m[2]}="{to}{"#" + part if part else ""}"'
    return re.sub(r'<((?:a|img)\b[^>]*?)( href| src)="([^"]*)"', target, markup)


def from_markdown(text):
    """Of a block's first line only the language is known to the renderer."""
    text = re.sub(r"^( *```[a-z]+) .*$", r"\1", text, flags=re.M)
    body = markdown.markdown(text, extensions=["tables", "fenced_code", "toc", "sane_lists"],
                             output_format="html")
    return re.sub(r"<table>(.*?)</table>", framed, body, flags=re.S)


def framed(m):
    """A table of two columns is narrow enough for a phone; a wider one scrolls by itself."""
    if m[1].count("<th") - m[1].count("<thead") == 2:
        return f'<table class="index">{m[1]}</table>'
    return f'<div class="wide">{m[0]}</div>'


def output(out):
    """What a cell of a notebook left: the richest form that needs no script."""
    data = {k: "".join(v) for k, v in out.get("data", {}).items() if isinstance(v, (str, list))}
    if "text/html" in data:
        return f'<div class="wide">{data["text/html"]}</div>\n'
    if "image/svg+xml" in data:
        return f'<figure>{data["image/svg+xml"]}</figure>\n'
    if "image/png" in data:
        return f'<figure><img alt="" src="data:image/png;base64,{data["image/png"].strip()}"></figure>\n'
    text = "".join(out.get("text", "")) or data.get("text/plain", "") or \
        "\n".join(out.get("traceback", []))
    return f"<pre>{html.escape(text)}</pre>\n" if text else ""


def from_notebook(text):
    body = ""
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            body += from_markdown(source) + "\n"
        elif cell["cell_type"] == "code":
            body += f'<pre class="input">{html.escape(source)}</pre>\n'
            body += "".join(map(output, cell["outputs"]))
    return body


def document(path, ours, copies):
    render = from_markdown if path.endswith(".md") else from_notebook
    body = linked(moved(render(read(path)), os.path.dirname(path), copies), ours)
    found = re.search(r"<h1\b[^>]*>(.*?)</h1>", body, re.S)
    title = (words(found[1]) if found else path) + (" (notebook)" if path.endswith(".ipynb") else "")
    what = re.search(r"<p>(.*?)</p>", body, re.S)
    # its first sentence
    what = re.split(r"(?<=\.)\s", words(what[1]), maxsplit=1)[0] if what else ""
    return Page(name_of(path), title, what, f'<article class="document">\n{body}\n</article>',
                "stories" if path.startswith("docs/") else "project")


# ---- the index ------------------------------------------------------------------------

def table(rows):
    return '<table class="index">\n' + "".join(
        f"<tr><td>{a}</td><td>{b}</td></tr>\n" for a, b in rows) + "</table>\n"


def part(name, title, body, ours):
    return f'<section class="card" id="{name}">\n<h2>{title}</h2>\n{linked(body, ours)}</section>\n'


def link(page, text=None):
    return f'<a href="{page.file}">{html.escape(text or page.title)}</a>'


def tasks():
    """What kvtool help how prints, up to an empty line: a question, and below it what to type."""
    rows = []
    for line in run(KVTOOL, "help", "how").split("\n\n")[0].splitlines():
        if not line.startswith(" "):
            rows.append([html.escape(line), ""])
        else:
            rows[-1][1] += "<br>".join(f"<code>{html.escape(c)}</code>"
                                       for c in re.split(r" {4,}|; (?=kvtool )", line.strip()))
    return table(rows)


def symptoms(page):
    """The terms of kvtool-symptoms(7), below its headings."""
    body = ""
    for title, text in re.findall(r"<h3 [^>]*>(.*?)</h3>(.*?)</section>", page.body, re.S):
        body += f"<h3>{html.escape(words(title))}</h3>\n<ul>\n" + "".join(
            f'<li><a href="{page.file}#{name}">{html.escape(words(term))}</a></li>\n'
            for name, term in re.findall(r'<dt id="([^"]*)">(.*?)</dt>', text, re.S)) + "</ul>\n"
    return body


def sections(page):
    """{word of a heading: anchor} and [(heading, anchor)]"""
    found = [(words(text), name) for name, text in
             re.findall(r'<h3 class="Ss" id="([^"]*)">(.*?)</h3>', page.body, re.S)]
    return {w: name for text, name in found for w in re.split(r"[ ,]+", text)}, found


def formats(page):
    anchors, _ = sections(page)
    rows = []
    for line in run(KVTOOL, "help", "formats").splitlines()[1:]:
        name, can, what = line.split(None, 2)
        rows.append((f'<a href="{page.file}#{anchors[name]}">{name}</a>',
                     f'{html.escape(what)} <span class="dim">{can.replace("-", "")}</span>'))
    return table(rows)


def listed(pages):
    return table((link(p), html.escape(p.what)) for p in pages)


def in_order(pages):
    """Commands as the program lists them, each with the pages of its modes behind it."""
    order = ["kvtool"] + [f"kvtool-{c}" for c in run(KVTOOL, "--list-commands").split()]

    def key(page):
        name = page.title[:-3]
        main = max((o for o in order if name == o or name.startswith(o + "-")), key=len)
        return order.index(main) if main != "kvtool" or name == main else len(order), name
    return sorted(pages, key=key)


def index(pages, ours):
    by = {p.file: p for p in pages}

    def of(group):
        return [p for p in pages if p.group == group]
    dumps = by["kvtool-dumps.7.html"]
    engines = "<ul class=\"columns\">\n" + "".join(
        f'<li><a href="{dumps.file}#{name}">{html.escape(text)}</a></li>\n'
        for text, name in sections(dumps)[1]) + "</ul>\n"
    parts = [
        ("stories", "Stories", listed(of("stories")) if of("stories") else ""),
        ("tasks", "I want to know, or to do", tasks()),
        ("symptoms", "Something is wrong", symptoms(by["kvtool-symptoms.7.html"])),
        ("formats", "Formats of files", formats(by["kvtool-formats.7.html"])),
        ("engines", "A dump from this engine", engines),
        ("commands", "Commands", listed(in_order(of("commands")))),
        ("concepts", "Concepts, and forms of files", listed(of("concepts"))),
        ("library", "The library in C", listed(of("library"))),
        ("project", "The project", listed(of("project")))]
    version = run(KVTOOL, "--version").split("\n", 1)[0]
    top = f'<header><h1>{version}</h1>\n<p class="lead">{html.escape(by["kvtool.1.html"].what)}</p></header>\n'
    return Page("index.html", "kvtool: the manual", "", top + "".join(
        part(*p, ours) for p in parts if p[2]), "")


def write(out, page, parts):
    nav = "\n".join(['<a href="README.html">read first</a>'] + [
        f'<a href="index.html#{p}">{p}</a>' for p in parts])
    with open(os.path.join(out, page.file), "w", encoding="utf-8") as f:
        f.write(FRAME.format(title=html.escape(page.title), nav=nav, body=page.body))


def main():
    out, sources = sys.argv[1], sorted(sys.argv[2:], key=os.path.basename)
    documents = sorted(os.path.relpath(p, ROOT) for p in glob.glob(f"{ROOT}/*.md") +
                       glob.glob(f"{ROOT}/docs/*.md") + glob.glob(f"{ROOT}/docs/*.ipynb"))
    ours, copies = {f"{os.path.basename(p)}.html" for p in sources}, set()
    pages = [manual(os.path.abspath(p), ours) for p in sources] + \
        [document(p, ours, copies) for p in documents]
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    first = index(pages, ours)
    parts = [p for p in PARTS if f'id="{p}"' in first.body]
    for page in [first, *pages]:
        write(out, page, parts)
    with open(f"{out}/style.css", "w", encoding="ascii") as f:
        f.write("".join(map(read, STYLE)))
    for path in sorted(copies):
        os.makedirs(os.path.dirname(f"{out}/{path}"), exist_ok=True)
        shutil.copyfile(f"{ROOT}/{path}", f"{out}/{path}")


if __name__ == "__main__":
    main()
