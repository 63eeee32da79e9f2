#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
notebook_page.py - docs/python.ipynb as a page in Markdown, with its pictures

The notebook is the source.  Tables of HTML become tables, pictures files of docs/pictures,
and what a frame holds is drawn by a browser (scripts/pictures.py).  A cell that shows a
picture says in its metadata what is on it, "alt".

    scripts/notebook_page.py            writes docs/python.md and the pictures
"""
import base64
import html.parser
import json
import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOTEBOOK = os.path.join(ROOT, "docs", "python.ipynb")
PAGE = os.path.join(ROOT, "docs", "python.md")
PICTURES = os.path.join(ROOT, "docs", "pictures")
BY = 'run-by="make check-engines"'
HEAD = "<!-- Written by scripts/notebook_page.py from docs/python.ipynb. -->\n"
SVG = "data:image/svg+xml;base64,"


def load(path=NOTEBOOK):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def text_of(lines):
    """What may be a list of lines in a notebook."""
    return lines if isinstance(lines, str) else "".join(lines)


class Shown(html.parser.HTMLParser):
    """Of HTML that kvtool shows: lines of text, tables, pictures, pages in frames."""

    def __init__(self, text):
        super().__init__()
        self.parts, self.row = [], None     # ("text" | "table" | "svg" | "frame", what)
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "table":
            self.parts.append(("table", []))
        elif tag == "tr":
            self.row = []
            self.parts[-1][1].append(self.row)
        elif tag in ("th", "td"):
            self.row.append(["", "right" in attrs.get("style", "")])
        elif tag == "img" and attrs["src"].startswith(SVG):
            self.parts.append(("svg", base64.b64decode(attrs["src"][len(SVG):])))
        elif tag == "iframe":
            self.parts.append(("frame", attrs["srcdoc"]))
        elif tag == "div":
            self.parts.append(("text", ""))
        elif tag == "b":
            self.handle_data("**")

    def handle_endtag(self, tag):
        if tag == "tr":
            self.row = None
        elif tag == "b":
            self.handle_data("**")

    def handle_data(self, data):
        if self.row:
            self.row[-1][0] += data
        elif self.parts and self.parts[-1][0] == "text":
            self.parts[-1] = ("text", self.parts[-1][1] + data)


def table(rows):
    """Without the columns in which nothing stands."""
    kept = [i for i in range(len(rows[0])) if any(row[i][0] for row in rows[1:])]
    lines = ["| " + " | ".join(row[i][0].replace("|", "\\|") for i in kept) + " |" for row in rows]
    sides = ["---:" if rows[1][i][1] else "---" for i in kept]
    return "\n".join([lines[0], "|" + "|".join(sides) + "|", *lines[1:]])


class Page:
    """text: the page; pictures: {name: bytes}; frames: {name: the page to be drawn}."""

    def __init__(self, notebook):
        self.pictures, self.frames, out = {}, {}, []
        for cell in notebook["cells"]:
            source = text_of(cell["source"])
            if cell["cell_type"] == "markdown":
                out.append(source)
                continue
            out.append(f"```python {BY}\n{source}\n```")
            for output in cell["outputs"]:
                out += self.shown(cell, output)
        self.text = HEAD + "\n\n".join(out) + "\n"

    def shown(self, cell, output):
        data = output.get("data", {})
        if "image/png" in data:
            return [self.picture(cell, "png", base64.b64decode(text_of(data["image/png"])))]
        if "text/html" in data:
            return [self.part(cell, *part) for part in Shown(text_of(data["text/html"])).parts]
        text = text_of(output.get("text", data.get("text/plain", ""))).rstrip("\n")
        return [f"```text {BY}\n{text}\n```"]

    def picture(self, cell, ending, data, kind="pictures"):
        name = f"python-{cell['id']}.{ending}"
        getattr(self, kind)[name] = data
        return f"![{cell['metadata']['alt']}](pictures/{name})"

    def part(self, cell, kind, what):
        if kind == "frame":
            return self.picture(cell, "png", what, "frames")
        return self.picture(cell, "svg", what) if kind == "svg" else \
            table(what) if kind == "table" else what


def main():
    page = Page(load())
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(page.text)
    for name, data in page.pictures.items():
        with open(os.path.join(PICTURES, name), "wb") as f:
            f.write(data)
    print(f"docs/python.md, {len(page.pictures)} pictures; scripts/pictures.py draws "
          f"{', '.join(page.frames)}")


if __name__ == "__main__":
    main()
