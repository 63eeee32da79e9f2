#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
pictures.py - the pictures of docs/pictures: pages of kvtool view, as a browser draws them

The names are those of dumps of tests/oracle_pages.py, and how much of each is shown.
"""
import glob
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "tests"))

import oracle
import oracle_pages
from browser import CHROMIUM, Browser

PICTURES = {"plain": 900, "bug": 640, "ranks": 760, "mla": 900}
MOST = 150000


def beside(folder, paths):
    """They and what tells of them in one folder: a picture names no path of who made it."""
    os.makedirs(folder)
    for path in paths:
        for file in [path, *glob.glob(f"{os.path.dirname(path)}/*.json")]:
            shutil.copy(file, folder)
    return folder


def main():
    if not CHROMIUM:
        sys.exit("pictures need a browser: install the package chromium")
    out = os.path.abspath(f"{HERE}/../docs/pictures")
    os.makedirs(out, exist_ok=True)
    with oracle.workdir() as tmp:
        os.makedirs(f"{tmp}/p")
        drawn, browser = oracle_pages.dumps(f"{tmp}/p"), Browser()
        try:
            for name, height in PICTURES.items():
                os.chdir(beside(f"{tmp}/{name}", drawn[name]))
                r = oracle.kvtool("view", "-o", f"{tmp}/{name}.html", *map(os.path.basename, drawn[name]))
                if r.code:
                    sys.exit(r.err)
                browser.open(f"{tmp}/{name}.html", width=1100, height=height)
                browser.picture(f"{out}/{name}.png", whole=False)
                size = os.path.getsize(f"{out}/{name}.png")
                print(f"docs/pictures/{name}.png: {size} bytes")
                if size > MOST:
                    sys.exit(f"{name}.png has more than {MOST} bytes: show less of it")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
