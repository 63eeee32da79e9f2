#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
pictures.py - the pictures of docs/pictures: pages of kvtool, as a browser draws them

PICTURES are of dumps of tests/oracle_pages.py, by name, and how much of each is shown.
STORIES are documents that tests/check_docs.py runs: of the pages that their commands write,
maybe from some part of the page on.  CELLS are of docs/python.ipynb, whose frames hold pages.
"""
import glob
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "tests"))

import check_docs
import notebook_page
import oracle
import oracle_pages
from browser import CHROMIUM, Browser

PICTURES = {"plain": 900, "bug": 640, "ranks": 760, "mla": 900}
STORIES = {"docs/nonsense.md": [("nonsense", "incident/bug.html", 640)],
           "docs/plan.md": [("plan_pool", "plan/pool.html", 230, "svg[aria-label='the pool']")] +
           [(f"plan_{layout}", f"plan/{layout}.html", 880) for layout in ("nhd", "hnd", "bhlsc")]}
CELLS = {"python-view": 560, "python-fault-page": 480}
MOST = 150000


def beside(folder, paths):
    """They and what tells of them in one folder: a picture names no path of who made it."""
    os.makedirs(folder)
    for path in paths:
        for file in [path, *glob.glob(f"{os.path.dirname(path)}/*.json")]:
            shutil.copy(file, folder)
    return folder


def draw(browser, page, name, height, begin=None):
    picture = f"{HERE}/../docs/pictures/{name}.png"
    browser.open(page, width=1100, height=height)
    if begin:
        browser.run(f'document.querySelector("{begin}").closest("section").scrollIntoView()')
    browser.picture(picture, whole=False)
    size = os.path.getsize(picture)
    print(f"docs/pictures/{name}.png: {size} bytes")
    if size > MOST:
        sys.exit(f"{name}.png has more than {MOST} bytes: show less of it")


def draw_dumps(browser, tmp):
    os.makedirs(f"{tmp}/p")
    drawn = oracle_pages.dumps(f"{tmp}/p")
    for name, height in PICTURES.items():
        os.chdir(beside(f"{tmp}/{name}", drawn[name]))
        r = oracle.kvtool("view", "-o", f"{tmp}/{name}.html", *map(os.path.basename, drawn[name]))
        if r.code:
            sys.exit(r.err)
        draw(browser, f"{tmp}/{name}.html", name, height)


def draw_stories(browser, tmp):
    for document, pages in STORIES.items():
        folder = f"{tmp}/{os.path.basename(document)}"
        os.makedirs(folder)
        with open(f"{HERE}/../{document}", encoding="utf-8") as f:
            check_docs.run(check_docs.Document(document, f.read()), folder)
        for name, page, *shown in pages:
            draw(browser, f"{folder}/{page}", name, *shown)


def draw_cells(browser, tmp):
    for name, page in notebook_page.Page(notebook_page.load()).frames.items():
        name = os.path.splitext(name)[0]
        with open(f"{tmp}/{name}.html", "w", encoding="utf-8") as f:
            f.write(page)
        draw(browser, f"{tmp}/{name}.html", name, CELLS[name])


def main():
    if not CHROMIUM:
        sys.exit("pictures need a browser: install the package chromium")
    os.makedirs(f"{HERE}/../docs/pictures", exist_ok=True)
    with oracle.workdir() as tmp:
        browser = Browser()
        try:
            draw_dumps(browser, tmp)
            draw_stories(browser, tmp)
            draw_cells(browser, tmp)
        finally:
            browser.close()


if __name__ == "__main__":
    main()
