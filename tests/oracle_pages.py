#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_pages.py - pages of kvtool view in a browser: what they say is what kvtool says

With a folder as argument it writes a picture of each page there.
"""
import json
import random
import re
import shlex
import sys

import numpy as np

import oracle
from browser import CHROMIUM, Browser
from oracle import kvtool, tap

KV = oracle.DATA
CELLS = 200


def dumps(tmp):
    """{name: operands} of what is drawn."""
    nhd = f"{KV}/s260k/paged_bs16/packed_nhd.bf16.npy"
    out = {"plain": [nhd], "rocm": [f"{KV}/s260k/paged_bs16/rocm_x.bf16.npy"],
           "cpu": [f"{KV}/s260k/paged_bs16/cpu_vec.bf16.npy"],
           "mla": [f"{KV}/mla144/paged_bs16/mla_blsc.bf16.npy"],
           "states": [f"{KV}/mamba2g4/tp1_SD/rank0.npy"],
           "ranks": [f"{KV}/s260k/tp4/rank{r}.packed_hnd.bf16.safetensors" for r in range(4)]}
    kvtool("mutate", "-q", "--fault=swap-kv,layer=2", nhd, f"{tmp}/bad.npy")
    out["bug"] = [nhd, f"{tmp}/bad.npy"]
    kvtool("mutate", "-q", "--fault=swap-heads,a=0,b=2", nhd, f"{tmp}/heads.npy")
    out["heads"] = [nhd, f"{tmp}/heads.npy"]
    kvtool("convert", "-q", nhd, f"{tmp}/stored.h5")
    out["stored"] = [f"{tmp}/stored.h5"]
    kvtool("mutate", "-q", "--fault=shift-tokens,by=1", nhd, f"{tmp}/shifted.npy")
    out["shifted"] = [nhd, f"{tmp}/shifted.npy"]
    x = np.zeros((3, 5, 4, 2, 2, 8), np.float16)
    x[1, 2] = np.nan
    np.save(f"{tmp}/broken.npy", x)
    out["groups"] = ["--head-dim=16", f"{KV}/../engines/llama.cpp/lfm2.fa0_u0.ggsn"]
    out["broken"] = ["--layout=LBSHKD", "--blocks-of=A=1-3:12", "--all", f"{tmp}/broken.npy"]
    np.save(f"{tmp}/many.npy", np.ones((10000, 3, 1, 8), np.float16))
    out["many layers"] = ["--layout=mla", f"{tmp}/many.npy"]
    np.save(f"{tmp}/one.npy", np.ones((1, 1, 1, 1, 2, 8), np.float16))
    out["one token"] = ["--layout=LBSHKD", f"{tmp}/one.npy"]
    return out


MARKS = """[...document.querySelectorAll('svg.pic')].flatMap((svg, i) =>
    [...svg.querySelectorAll('rect')].filter(r => r.getBoundingClientRect().width > 0).map((r, j) => [i, j]))"""


def say_all(browser, marks):
    """What many marks say, as if the pointer went over them: [words, what a click gives]."""
    return browser.run(f"""{json.dumps(marks)}.map(([picture, mark]) => {{
        const svg = document.querySelectorAll('svg.pic')[picture], r = svg.querySelectorAll('rect')[mark];
        const says = svg.closest('figure, .figures').querySelector('.says');
        svg.dispatchEvent(new PointerEvent('pointermove'));
        r.dispatchEvent(new PointerEvent('pointermove', {{ bubbles: true }}));
        const words = says.textContent;
        let copied = "";
        const clipboard = navigator.clipboard;
        Object.defineProperty(navigator, 'clipboard', {{ value: undefined, configurable: true }});
        r.dispatchEvent(new MouseEvent('click', {{ bubbles: true }}));
        Object.defineProperty(navigator, 'clipboard', {{ value: clipboard, configurable: true }});
        return [words, says.textContent];
    }})""")


def say(browser, picture, mark):
    """The words of a mark when the pointer is on it."""
    box = browser.run(f"""(() => {{
        const svg = document.querySelectorAll('svg.pic')[{picture}], r = svg.querySelectorAll('rect')[{mark}];
        r.scrollIntoView({{ block: 'center', inline: 'center' }});
        const b = r.getBoundingClientRect();
        return [b.x + b.width / 2, b.y + b.height / 2];
    }})()""")
    browser.hover(1, 1)
    browser.hover(*box)
    return browser.run(f"document.querySelectorAll('svg.pic')[{picture}].closest('figure, .figures').querySelector('.says').textContent")


def look(browser, name, operands, tmp, pictures):
    page = f"{tmp}/{name}.html"
    r = kvtool("view", "-f", "-o", page, *operands)
    if not tap.ok(r.code == 0, f"{name}: a page", r.err):
        return
    for width in (1600, 1100, 600):
        browser.open(page, width=width)
        tap.equal(browser.messages(), [], f"{name}: nothing on the console at {width}")
        tap.ok(browser.run("document.documentElement.scrollWidth <= innerWidth"),
               f"{name}: no wider than {width}")
    some = random.Random(7).choices(browser.run(MARKS), k=12)
    bad = [words for _, words in say_all(browser, some) if "kvtool where " in words and
           kvtool("where", *shlex.split(words[words.index("kvtool where "):])[2:]).code]
    tap.equal(bad, [], f"{name}: commands that are copied can be run")
    browser.open(page, zoom=1.5)
    tap.ok(browser.run("document.documentElement.scrollWidth <= innerWidth"), f"{name}: at 1.5 zoom")
    browser.open(page)
    light = browser.run("getComputedStyle(document.body).backgroundColor")
    if pictures:
        browser.picture(f"{pictures}/{name.replace(' ', '_')}.png")
    tap.ok(browser.pdf().startswith(b"%PDF"), f"{name}: prints")
    browser.open(page, dark=True)
    tap.ok(browser.run("getComputedStyle(document.body).backgroundColor") != light, f"{name}: dark")
    if pictures:
        browser.picture(f"{pictures}/{name.replace(' ', '_')}_dark.png")


def keyboard(browser, tmp):
    browser.open(f"{tmp}/plain.html")
    browser.run("document.querySelector('svg.pic').focus()")
    says = "document.querySelector('svg.pic').parentNode.querySelector('.says').textContent"
    browser.press("ArrowRight")
    first = browser.run(says)
    browser.press("ArrowRight")
    second = browser.run(says)
    browser.press("ArrowDown")
    third = browser.run(says)
    tap.ok("token 0, head 0, keys" in first and "token 0, head 0, values" in second and
           "token 2, head 0, values" in third, "arrow keys go from cell to cell",
           [first, second, third])
    browser.press("Enter")
    browser.run("new Promise(done => setTimeout(done, 200))")
    tap.ok("kvtool where " in browser.run(says), "enter gives the command", browser.run(says))
    browser.press("Tab")
    tap.ok(browser.run("document.activeElement !== document.body"), "tab goes on")


def opening(browser, tmp):
    """A pool of more blocks than boxes is drawn by ranges, which open."""
    np.save(f"{tmp}/pool.npy", np.zeros((1, 10000, 1, 8), np.float16))
    kvtool("view", "-f", "-o", f"{tmp}/pool.html", "--layout=mla", "--blocks-of=A=7-5000:4994",
           f"{tmp}/pool.npy")
    browser.open(f"{tmp}/pool.html")
    i = browser.run("[...document.querySelectorAll('svg.pic')].findIndex(s => s.getAttribute('aria-label') === 'the pool')")
    words = say(browser, i, 1)
    tap.ok(words == "blocks 5 to 6: unused, holds nothing live; blocks 7 to 9: of A (a click opens them)", "a range says what is in it", words)
    browser.run(f"document.querySelectorAll('svg.pic')[{i}].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    words = [say(browser, i + 1, k) for k in (1, 2)]
    tap.ok(words == ["block 6: unused, holds nothing live", "block 7: of A"], "and opens", words)


def commands(browser, tmp):
    """Cells of the block: where says the same byte of memory; numbers: peek is among them."""
    browser.open(f"{tmp}/plain.html")
    rng = random.Random(4)
    marks = rng.choices([m for m in browser.run(MARKS) if m[0] == 0], k=CELLS)
    said = say_all(browser, marks)
    tap.equal([say(browser, *m) for m in marks[:20]], [words for words, _ in said[:20]], "under a real pointer, too")
    bad = []
    for words, command in said:
        words_byte = int(re.match(r"byte ([\d,]+)", words).group(1).replace(",", ""))
        asked = shlex.split(command[command.index("kvtool where"):])[2:]
        r = kvtool("where", "--json", *asked)
        got = r.json if r.code == 0 else {}
        memory = got.get("matches", [{}])[0].get("memory_offset")
        if memory != words_byte:
            bad.append(f"{words} / {command}: {memory} {r.err}")
    tap.equal(bad[:3], [], f"{CELLS} cells of the block are where kvtool where says")


def pool(browser, operands, tmp):
    """Blocks of the pool: whose, which tokens and at which byte, as where says."""
    browser.open(f"{tmp}/plain.html")
    picture = browser.run("[...document.querySelectorAll('svg.pic')].findIndex(s => s.getAttribute('aria-label') === 'the pool')")
    rng, bad, asked = random.Random(6), [], {}
    blocks = kvtool("view", "--json", *operands).json["dumps"][0]["groups"][0]["shape"]["B"]
    for b in [rng.randrange(blocks) for _ in range(CELLS)]:
        say(browser, picture, b)
        # at once: what is told moves the picture, and another block under the pointer
        words, told = browser.run(f"""(() => {{
            const svg = document.querySelectorAll('svg.pic')[{picture}];
            svg.dispatchEvent(new MouseEvent('click', {{ bubbles: true }}));
            return [svg.parentNode.querySelector('.says').textContent,
                    svg.closest('section').querySelector(':scope > p:last-child').textContent];
        }})()""")
        command = told[told.index("kvtool where"):]
        if command not in asked:
            r = kvtool("where", "--json", *shlex.split(command)[2:])
            asked[command] = r.json["matches"][0] if r.code == 0 else {}
        got = asked[command]
        who = {(q["id"] if "id" in q else q["request"], q["token"]) for q in got.get("requests", [])}
        mine = {(w, int(t)) for t, w in re.findall(r"tokens? (\d+)(?: to \d+)? of (\w+)", told)}
        if who != mine or f"byte {got.get('offset', -1):,} of the file" not in words:
            bad.append(f"{words} / {told}: {got}")
    tap.equal(bad[:2], [], f"{CELLS} blocks of the pool are whose and where kvtool where says")


def maps(browser, name, tmp, pattern, want):
    """Numbers that cells say, against 'want' of the words' groups."""
    browser.open(f"{tmp}/{name}.html")
    marks, rng, bad = browser.run(MARKS), random.Random(5), []
    found = [f for words, _ in say_all(browser, marks) if (f := re.match(pattern, words))]
    seen = min(len(found), CELLS)
    for f in rng.sample(found, seen):
        if not want(f):
            bad.append(f.group(0))
    tap.ok(seen >= 20 and not bad, f"{seen} cells of {name} say what kvtool says", bad[:5])


def heads(operands):
    v = kvtool("view", "--json", *operands).json["dumps"][0]["groups"][0]
    n = v["numbers"]

    def want(found):
        layer, head, part, said = found.groups()
        i = (v["components"].index(part) * len(n["layers"]) + int(layer)) * len(n["heads"]) + int(head)
        return abs(float(said) - n["by_head"]["rms"][i]) <= 0.006 * abs(n["by_head"]["rms"][i])
    return want


def shares(operands):
    d = kvtool("diff", "--json", *operands).json["groups"][0]
    cells = {(c["layer"], c["head"]): c for c in d["by_head"]}

    def want(found):
        layer, head, said = int(found.group(1)), int(found.group(2)), found.group(3)
        cell = cells.get((layer, head))
        if not cell:
            return said == "equal"
        return said.replace(",", "").startswith(f"{cell['different']} of {cell['compared']} differ")
    return want


# What somebody wants to know, the page of which dump tells it, in which section, the mark to
# point at or to click (its picture and number) or None: all that the section says; the answer.
QUESTIONS = [
    ("Which blocks does B share with A, and which tokens are in them?", "plain", "The pool", ("the pool", 14, True),
     r"Block 14: tokens 16 to 31 of A; tokens 16 to 31 of B"),
    ("Is it one head, or all of them?", "heads", "Where they differ", ("share that differs by layer and head", 9, False),
     r"layer 2, head 1: equal"),
    ("Which heads, then?", "heads", "Where they differ", ("share that differs by layer and head", 10, False),
     r"layer 2, head 2: 11,015 of 11,024 differ"),
    ("Would fp8 hold for layer 3?", "plain", "The numbers", None, r"layer 3, keys[\s\S]*?e4m3: 0\.0476 % outside"),
    ("Why is a head slower to send from NHD than from HND?", "plain", "Block 13", None,
     r"nhd LBSHC\s+1 run of bytes; of a token 1 run, of a head 16 runs[\s\S]*hnd LBHSC\s+1 run of bytes; of a token 4 runs, of a head 1 run"),
    ("Where does block 20 begin in the file, and whose is it?", "plain", "The pool", ("the pool", 20, False),
     r"block 20: of A; begins at byte 41,088 of the file"),
    ("Which layer and head has the largest keys?", "plain", "The numbers", ("root mean square of keys", 4, False),
     r"layer 1, head 0, keys: root mean square 7\.49"),
    ("Is anything NaN, and where?", "broken", "What fsck finds", None, r"live\.nonfinite: group=g0,layer=1,block=2,slot=0,head=0,kv=k,dim=0"),
    ("Which number is the first that differs, and at which byte?", "bug", "Where they differ", None,
     r"first: layer 2, token 0 of A, block 13 slot 0, head 0, key, element 0: \S+ and \S+, at bytes \d+ and \d+"),
    ("Is one rank unlike the others?", "ranks", "Beside each other", ("root mean square of keys", 1, False),
     r"layer 1, head 0, keys: root mean square 7\.49"),
    ("Which layer is compressed least?", "stored", "What is stored", ("bytes in the file by layer", 4, False),
     r"layer 4: 66\.4 KiB in the file of 96\.0 KiB, ratio 1\.44; 8 tiles"),
]


def questions(browser, tmp, pictures):
    """Each is answered by one look at a page."""
    for i, (question, name, heading, mark, answer) in enumerate(QUESTIONS, 1):
        browser.open(f"{tmp}/{name}.html")
        section = f"[...document.querySelectorAll('section')].find(s => s.querySelector('h2').textContent.startsWith('{heading}'))"
        browser.run(f"{section}.scrollIntoView()")
        said = browser.run(f"{section}.innerText")
        if mark:
            label, number, click = mark
            picture = browser.run(f"""[...document.querySelectorAll('svg.pic')].indexOf(
                {section}.querySelector("svg.pic[aria-label='{label}']"))""")
            said = say(browser, picture, browser.run(f"""[...document.querySelectorAll('svg.pic')[{picture}].querySelectorAll('rect')]
                .indexOf([...document.querySelectorAll('svg.pic')[{picture}].querySelectorAll('rect:not(.r)')][{number}])""")
                       if label.startswith("bytes") else number)
            if click:
                browser.run(f"document.querySelectorAll('svg.pic')[{picture}].dispatchEvent(new MouseEvent('click', {{ bubbles: true }}))")
                said = browser.run(f"{section}.innerText")
        if pictures:
            browser.picture(f"{pictures}/question_{i}.png", whole=False)
        tap.ok(re.search(answer, said), question, repr(said[-300:]))


def peeks(operands):
    """The first element of a cell that differs: both numbers as --peek has them, both bytes as where."""
    kv = {"key": "k", "value": "v"}

    def want(found):
        layer, block, slot, head, part, dim, a, b, at_a, at_b = found.groups()
        place = f"layer={layer},block={block},slot={slot},head={head},kv={kv[part]},dim={dim}"
        for path, number, at in zip(operands, (a, b), (at_a, at_b)):
            peek = kvtool("describe", "--json", f"--peek={place}", path).json["peeks"][0]
            byte = kvtool("where", "--json", path, place).json["matches"][0]["offset"]
            x = peek["fields"][0]["values"][0]
            if abs(float(number) - x) > 0.006 * abs(x) or int(at.replace(",", "")) != byte:
                return False
        return True
    return want


def main(tmp):
    if not CHROMIUM:
        tap.skip("pages in a browser", "this needs the package chromium")
        return
    pictures = sys.argv[1] if len(sys.argv) > 1 else None
    browser = Browser()
    try:
        drawn = dumps(tmp)
        for name, operands in drawn.items():
            look(browser, name, operands, tmp, pictures)
        keyboard(browser, tmp)
        opening(browser, tmp)
        commands(browser, tmp)
        pool(browser, drawn["plain"], tmp)
        maps(browser, "plain", tmp, r"layer (\d+), head (\d+), (\w+): root mean square (\S+)",
             heads(drawn["plain"]))
        questions(browser, tmp, pictures)
        maps(browser, "bug", tmp, r"layer (\d+), head (\d+): (.*)", shares(drawn["bug"]))
        maps(browser, "shifted", tmp, r"layer (\d+), .*; first block (\d+) slot (\d+), head (\d+), (\w+), "
             r"element (\d+): (\S+) and (\S+), at bytes ([\d,]+) and ([\d,]+)", peeks(drawn["shifted"]))
    finally:
        browser.close()


if __name__ == "__main__":
    oracle.run(main)
