#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_sim_views.py - what transfer-sim report writes, read by others

The page and the trace are read with Python's parsers, and held against the list
of operations; the page is drawn by a browser where one is installed.
"""
import os
import random
import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from html.parser import HTMLParser
from xml.etree import ElementTree

from oracle import kvtool, read_bytes, read_json, read_text, run, tap
from sim_cases import AXES, csv_ops, random_case


# ---- the page ------------------------------------------------------------------

VOID = {"meta", "rect", "line"}


class Page(HTMLParser):
    """Collects what a test asks for, and what no page may have."""

    def __init__(self, text):
        super().__init__()
        self.open, self.problems, self.ids, self.rects = [], [], set(), []
        self.map, self.text = None, text
        self.feed(text)
        self.close()
        if self.open:
            self.problems.append(f"left open: {self.open}")

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        for key, value in attrs.items():
            if key in ("src", "href", "xlink:href") or "url(" in (value or ""):
                self.problems.append(f"<{tag}> asks for {value}")
            if key.startswith("on"):
                self.problems.append(f"<{tag}> has a script")
        if tag in ("script", "link", "iframe", "img"):
            self.problems.append(f"<{tag}>")
        if "id" in attrs:
            if attrs["id"] in self.ids:
                self.problems.append(f"id {attrs['id']} twice")
            self.ids.add(attrs["id"])
        if tag == "svg":
            self.map = attrs.get("aria-labelledby", "").split("-t")[0]
            for name in attrs.get("aria-labelledby", "none").split():
                self.problems += [] if name.endswith(("-t", "-d")) else [name]
        if tag == "rect" and "data-op" in attrs:
            self.rects.append((self.map, int(attrs["data-at"]), int(attrs["data-n"]),
                               int(attrs["data-op"])))
        if tag not in VOID or (tag == "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag and tag == "rect":
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> where nothing of it is open")


def pictures(text):
    for svg in re.findall(r"<svg.*?</svg>", text, re.S):
        root = ElementTree.fromstring(svg)
        yield root, root.findtext("title"), root.findtext("desc")


def check_page(text):
    page = Page(text)
    why = list(page.problems)
    for root, title, desc in pictures(text):
        if not title or not desc or root.get("role") != "img":
            why.append("a picture without a title, a description or a role")
        for rect in root.iter("rect"):
            if any(float(rect.get(k)) < 0 for k in ("x", "y", "width", "height")):
                why.append("a rectangle of negative size")
    if "http" in text:
        why.append("it speaks of the network")
    return page, why


SVG = "{http://www.w3.org/2000/svg}"


def check_svg(text, page):
    """The picture alone has what the page has, and its parts do not overlap."""
    root, why = ElementTree.fromstring(text), []
    rects, ids, parts = [], [], []
    for picture in root.findall(SVG + "svg"):
        name = picture.get("aria-labelledby").split("-t")[0]
        box = [int(picture.get(k)) for k in ("x", "y", "width", "height")]
        parts.append(box)
        if picture.get("viewBox") != f"0 0 {box[2]} {box[3]}":
            why.append(f"{name} is scaled")
        rects += [(name, *(int(r.get(k)) for k in ("data-at", "data-n", "data-op")))
                  for r in picture.iter(SVG + "rect") if r.get("data-op")]
    for e in root.iter():
        ids.append(e.get("id"))
        if e.tag in (SVG + "script", SVG + "image") or any("href" in k for k in e.attrib):
            why.append(f"it has a {e.tag}")
    width, height = int(root.get("width")), int(root.get("height"))
    for a in parts:
        if a[0] + a[2] > width or a[1] + a[3] > height:
            why.append(f"{a} is outside of {width} x {height}")
        why += [f"{a} lies over {b}" for b in parts if a is not b and
                a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and
                a[1] < b[1] + b[3] and b[1] < a[1] + a[3]]
    ids = [i for i in ids if i]
    if rects != page.rects or len(set(ids)) != len(ids) or set(ids) != page.ids:
        why.append("it has not the pictures of the page")
    if text.count("http") != 1:
        why.append("it speaks of the network")
    return why


def svg_test(folder):
    html, svg = (os.path.join(folder, f"hybrid.{k}") for k in ("html", "svg"))
    r = kvtool("transfer-sim", "report", "-m", "nemotron-h-8b", "--conv=ds", "-t", "100",
               "--src=layout=nhd,tp=2", "--dst=tp=4", f"--html={html}", f"--svg={svg}")
    with open(html) as f, open(svg) as g:
        page, why = check_page(f.read())
        why += check_svg(g.read(), page)
    tap.ok(r.code == 0 and not why and len(page.rects) > 100,
           "report: groups of a hybrid model, as a page and as a picture", f"{r}{why}")


def map_test(folder):
    """Each coloured range lies in the operation that it names, and none is missing."""
    rng, bad, ranges, whole = random.Random(7), "", 0, 0
    for i in range(12):
        args, sides, want = random_case(rng)
        scope = rng.choice(["max", "rfc", "layer"])
        path = os.path.join(folder, f"map{i}.html")
        r = kvtool("transfer-sim", "report", *args, f"--scope={scope}", f"--html={path}",
                   f"--svg={path}.svg")
        pair = min(want, key=lambda p: (p[1], p[0]))
        ops = csv_ops(kvtool("transfer-sim", "emit", *args, f"--scope={scope}").out)
        ops = [(o["src_off"], o["dst_off"], o["len"]) for o in ops
               if (o["src_rank"], o["dst_rank"]) == pair]
        with open(path) as f, open(path + ".svg") as g:
            page, why = check_page(f.read())
            why += check_svg(g.read(), page)
        if r.code or why:
            bad = bad or f"{' '.join(args)}\n{r.err}{why}"
        block = min(sides[0].ids)
        moved = {0: set(), 1: set()}
        for name, at, n, op in page.rects:
            side = int(name[-1])
            start = ops[op][side] if op >= 0 else None
            if op >= 0 and not start <= at <= at + n <= start + ops[op][2]:
                bad = bad or f"{' '.join(args)}\nrange {at}+{n} is not in {ops[op]}"
            if op >= 0:
                moved[side] |= set(range(at, at + n))
            ranges += 1
        inside = {a for a in want[pair] if in_block(sides[0], a, block)}
        shown = re.findall(r">([0-9,]+) of ([0-9,]+) rows", page.text)[0]
        if not moved[0] <= inside or (shown[0] == shown[1] and moved[0] != inside):
            bad = bad or (f"{' '.join(args)}\n{len(moved[0])} bytes, of the block "
                          f"{len(inside)} move")
        whole += shown[0] == shown[1]
    tap.ok(not bad and ranges > 100 and whole > 3,
           f"report: block maps name the operation of each byte, {ranges} ranges", bad)


def in_block(side, address, block):
    order = AXES[side.layout]
    for axis in order[:order.index("B")]:
        address %= side.stride[axis]
    return address // side.stride["B"] == block


def size_test(folder):
    path = os.path.join(folder, "large.html")
    r = kvtool("transfer-sim", "report", "-m", "llama-3.1-405b", "-t", "131072",
               "--src=layout=nhd,tp=8,ids=random:1", "--dst=tp=4,block-size=48",
               f"--html={path}")
    text = read_text(path)
    _, why = check_page(text)
    tap.ok(r.code == 0 and len(text) < 2000000 and not why,
           f"report: 63 GiB make a page of {len(text) >> 10} KiB", f"{r}{why}")
    path = os.path.join(folder, "ranks.html")
    r = kvtool("transfer-sim", "report", "-m", "deepseek-r1", "--dst=tp=200",
               f"--html={path}")
    text = read_text(path)
    page, why = check_page(text)
    tap.ok(r.code == 0 and len(text) < 2000000 and not why and "ranks-t" in page.ids
           and "ranks from" in text, "report: 200 ranks are bundled", f"{r}{why}")


def screenshot_test(folder, kind):
    browser = shutil.which("chromium")
    if not browser:
        tap.skip(f"report: {kind} drawn by a browser", "this needs the package chromium")
        return
    html, png = os.path.join(folder, f"shot.{kind}"), os.path.join(folder, f"{kind}.png")
    kvtool("transfer-sim", "report", "-m", "llama-3.1-70b", "--src=layout=nhd,tp=4",
           "--dst=tp=8", f"--{kind}={html}")
    with tempfile.TemporaryDirectory() as home:
        p = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu",
                            "--hide-scrollbars", "--window-size=1180,1600",
                            "--enable-logging=stderr", f"--user-data-dir={home}",
                            f"--screenshot={png}", f"file://{html}"], timeout=60,
                           capture_output=True, env={**os.environ, "HOME": home})
    log = p.stderr.decode(errors="replace")
    console = [line for line in log.splitlines() if ":CONSOLE" in line]
    colours = png_colours(png) if os.path.exists(png) else set()
    # the ten colours of operations, grey, ink: a page that failed has a handful
    tap.ok(len(colours) > 12 and not console and (0x3b, 0x78, 0xe0) in colours,
           f"report: {kind} drawn by a browser", f"{len(colours)} colours\n{console}\n{log[-500:]}")


def png_colours(path):
    """The colours of an image of 8 bits a channel."""
    data = read_bytes(path)
    at, packed, size = 8, b"", None
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        if kind == b"IHDR":
            size = struct.unpack(">IIBB", body[:10])
        if kind == b"IDAT":
            packed += body
        at += n + 12
    width, height, _, mode = size
    step = 4 if mode == 6 else 3
    raw, line, above, colours = zlib.decompress(packed), width * step, None, set()
    above = bytearray(line)
    for y in range(height):
        filt = raw[y * (line + 1)]
        row = bytearray(raw[y * (line + 1) + 1:(y + 1) * (line + 1)])
        unfilter(filt, row, above, step)
        for x in range(0, line, 7 * step):
            colours.add(tuple(row[x:x + 3]))
        above = row
    return colours


def unfilter(filt, row, above, step):
    if filt == 0:
        return
    for i in range(len(row)):
        left = row[i - step] if i >= step else 0
        up, corner = above[i], above[i - step] if i >= step else 0
        if filt == 1:
            add = left
        elif filt == 2:
            add = up
        elif filt == 3:
            add = (left + up) // 2
        else:
            p = left + up - corner
            add = min((abs(p - left), 0, left), (abs(p - up), 1, up),
                      (abs(p - corner), 2, corner))[2]
        row[i] = (row[i] + add) & 255


# ---- the trace -----------------------------------------------------------------

def check_trace(trace, duration):
    why, threads, flows = [], {}, {}
    named = {(e["pid"], e["tid"]) for e in trace if e["name"] == "thread_name"}
    for e in trace:
        if e["ph"] == "X":
            threads.setdefault((e["pid"], e["tid"]), []).append(
                (e["ts"], e["ts"] + e["dur"], e["args"]["bytes"], e["args"]["ops"]))
        if e["ph"] in "stf":
            flows.setdefault(e["id"], []).append((e["ts"], e["ph"]))
        if not 0 <= e["ts"] <= duration + .001:
            why.append(f"an event outside of the transfer: {e}")
    for where, slices in threads.items():
        slices.sort()
        if where not in named:
            why.append(f"thread {where} has no name")
        for a, b in zip(slices, slices[1:]):
            if a[1] > b[0] + .0015:
                why.append(f"slices overlap on {where}: {a} {b}")
    for steps in flows.values():
        if [p for _, p in steps] != ["s", "t", "f"] or steps != sorted(
                steps, key=lambda s: s[0]):
            why.append(f"an arrow goes {steps}")
    return why, threads


def trace_test(folder):
    for name, args, most in [
            ("few", ["--spec=gqa:layers=2,heads=4,head-dim=8", "-t", "40",
                     "--src=layout=nhd,tp=4", "--dst=tp=2"], 20000),
            ("many", ["-m", "llama-3.1-8b", "--src=layout=nhd,tp=8", "--dst=tp=2",
                      "--link=vllm-nixl-rc"], 100)]:
        path = os.path.join(folder, name)
        r = kvtool("transfer-sim", "report", *args, f"--trace-out={path}",
                   f"--trace-max={most}")
        o = read_json(path)
        why, threads = check_trace(o["traceEvents"], o["otherData"]["duration_ns"] / 1000)
        plan = kvtool("transfer-sim", *(a for a in args if "--link" not in a),
                      "--json").json
        want = (sum(g["bytes"] for g in plan["groups"]),
                sum(g["scopes"]["rfc"]["ops"] for g in plan["groups"]))
        src = {g["src"]["ranks"] for g in plan["groups"]}.pop()
        kinds = {"posted": lambda p, t: p >= src and t == 0, "sent": lambda p, t: p < src,
                 "received": lambda p, t: p >= src and t > 0}
        for kind, mine in kinds.items():
            slices = [s for (p, t), all in threads.items() if mine(p, t) for s in all]
            if (sum(s[2] for s in slices), sum(s[3] for s in slices)) != want:
                why.append(f"not all is {kind}")
            if len(slices) > most + 64:
                why.append(f"{len(slices)} slices are {kind}")
        tap.ok(r.code == 0 and not why, f"report: a trace of {name} operations",
               "\n".join(why) + r.err)


def screenshots_test(folder):
    screenshot_test(folder, "html")
    screenshot_test(folder, "svg")


run(map_test, svg_test, size_test, screenshots_test, trace_test)
