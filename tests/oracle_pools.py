#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_pools.py - pools and ranks of HiCache folders, broken on purpose

Folders of random models, ranks and pools, sound or with one break planted: a page
missing in a pool or a rank, a page of a pool without keys and values, pages of another
size.  fsck must name the rule, the page and the pool, and nothing else; in a sound
folder nothing, whatever holes its windows and states have.
"""
import hashlib
import os
import random

import numpy as np

from oracle import FULL, kvtool, run, tap, write_bytes

ALL = ["indexer", "draft", "deepseek_v4_c4", "deepseek_v4_c4_indexer",
       "deepseek_v4_c4_indexer_scale", "deepseek_v4_c128_rope"]
TRAILING = ["mamba", "swa", "draft_swa", "deepseek_v4_c4_state"]
PAGE = (2, 8, 2, 2, 4)                          # K, S, L, H, D of a rank
SAID = ["--layout=hicache-page-first", "--dtype=float16", "--block-size=8", "--layers=2",
        "--heads=2", "--head-dim=4", "--set=pool=kv"]


class Folder:
    """{(pool, rank): {hash: bytes}} of one model."""

    def __init__(self, r):
        self.r = r
        self.model = r.choice(["org-m", "m_1_b", "a-b_2"])
        self.pages = [hashlib.sha256(r.randbytes(8)).hexdigest()
                      for _ in range(r.randrange(6, 20))]
        tp, pp = r.choice([1, 2, 4]), r.choice([1, 1, 2])
        self.latent = r.random() < 0.3
        self.ranks = [f"_{t}_{tp}" + (f"_{pp}_{p}" if pp > 1 else "")
                      for t in range(tp) for p in range(pp)]
        self.kv = [f"_{pp}_{p}" if pp > 1 else "" for p in range(pp)] \
            if self.latent else self.ranks
        if self.latent and pp > 1:              # states of ranks go with no stage
            self.ranks = self.kv
        self.all = r.sample(ALL, r.randrange(0, 3))
        self.trailing = r.sample(TRAILING, r.randrange(0, 3))
        self.sets = {}
        for pool in ["kv"] + self.all:
            size = 512 if pool == "kv" else 32 * r.randrange(1, 9)
            for rank in self.kv:
                self.sets[pool, rank] = {h: size for h in self.pages}
        for pool in self.trailing:
            size = 16 * r.randrange(1, 9)
            for rank in self.ranks:
                kept = r.sample(self.pages, r.randrange(1, len(self.pages)))
                self.sets[pool, rank] = {h: size for h in kept}

    def write(self, path):
        os.makedirs(path)
        for (pool, rank), pages in self.sets.items():
            for h, size in pages.items():
                name = f"{h}{'' if pool == 'kv' else '.' + pool}_{self.model}{rank}.bin"
                bits = np.frombuffer(self.r.randbytes(size), np.uint16) & 0x3bff | 1
                write_bytes(os.path.join(path, name), bits.tobytes())

    # each break: (rule, words of the text), or None where the folder has no such pool

    def missing(self):
        pools = [s for s in self.sets if s[0] == "kv" and len(self.kv) > 1 or
                 s[0] in self.all]
        if not pools:
            return None
        s = self.r.choice(pools)
        h = self.r.choice(self.pages)
        del self.sets[s][h]
        return "pool.missing", [f"page {h} is not in pool {s[0]}", s[1][1:]]

    def several(self):
        """The count of a pool: some of its pages are gone."""
        first = self.missing()
        if not first:
            return None
        s = next(s for s in self.sets if s[0] == "kv" or s[0] in self.all
                 if len(self.sets[s]) < len(self.pages))
        left = self.sets[s]
        del left[self.r.choice(sorted(left))]
        return "pool.missing", [f"which has {len(left)} of {len(self.pages)} pages"], 2

    def orphan(self):
        pools = [s for s in self.sets if s[0] != "kv"]
        if not pools:
            return None
        s = self.r.choice(pools)
        h = hashlib.sha256(b"orphan").hexdigest()
        self.sets[s][h] = next(iter(self.sets[s].values()))
        return "pool.orphan", [f"page {h} is in pool {s[0]}", "no keys and values"]

    def size(self):
        s = self.r.choice([s for s in self.sets if len(self.sets[s]) > 2])
        h = self.r.choice(sorted(self.sets[s]))
        usual = self.sets[s][h]
        self.sets[s][h] = self.r.choice([usual // 2, usual + 16, usual * 2])
        return "pool.size", [f"page {h} of pool {s[0]}",
                             f"has {self.sets[s][h]} bytes, most have {usual}"]

    def rank_size(self):
        """All pages of one rank: it ran with another geometry."""
        # stages have layers of their own; of two ranks nothing says which is wrong
        pools = [s for s in self.sets if s[0] != "kv" and "_4" in s[1][2:4]]
        if not pools:
            return None
        s = self.r.choice(pools)
        usual = next(iter(self.sets[s].values()))
        self.sets[s] = {h: usual * 2 for h in self.sets[s]}
        return "pool.size", [f"{usual * 2}", f"{usual}", f"pool {s[0]} of rank"]


def partial(top):
    """A pool that was switched on late: its pages are no measure of the others."""
    folder = Folder(random.Random(3))
    folder.all = ["indexer"]
    folder.sets = {s: p for s, p in folder.sets.items() if s[0] == "kv"}
    half = folder.pages[:len(folder.pages) // 2]
    for rank in folder.kv:
        folder.sets["indexer", rank] = {h: 64 for h in half}
    folder.write(f"{top}/partial")
    result, found = looked(f"{top}/partial", folder)
    tap.ok(result.code == 0 and {n for n, _ in found} == {"pool.partial"} and
           all(f"has {len(half)} of {len(folder.pages)} pages" in t for _, t in found),
           "a pool that most pages lack", f"{result}\n{found}")


# ---- workers of LMCache --------------------------------------------------------

def lmcache_workers(top):
    """Chunks of 2 or 4 workers in one folder, of both kinds of keys; one break or none."""
    for seed in range(20):
        r = random.Random(seed)
        world, l2 = r.choice([2, 4]), r.random() < 0.5
        chunks = [f"{r.getrandbits(62):x}" for _ in range(r.randrange(2, 6))]
        folder = f"{top}/workers{seed}"
        broken, gone = r.choice(chunks), r.randrange(world)
        kind = [None, "missing", "size"][seed % 3]
        os.makedirs(folder)
        for w in range(world):
            for c in chunks:
                name = f"m@0x{world << 24 | w << 16 | world << 8 | w:08x}@0@{c}.data" \
                    if l2 else f"m@{world}@{w}@{c}@half.pt"
                tokens = 8
                if c == broken and w == gone and kind == "missing":
                    continue
                if c == broken and w == gone and kind == "size":
                    tokens = 16
                bits = np.frombuffer(r.randbytes(64 * tokens), np.uint16) & 0x3bff | 1
                write_bytes(os.path.join(folder, name), bits.tobytes())
        other = (gone + 1) % world
        result = kvtool("fsck", "--json", "--layers=2", "--heads=2", "--head-dim=4",
                        "--dtype=float16", f"--set=worker={other}",
                        f"--set=total-heads={2 * world}", folder)
        found = result.json["files"][0]["findings"]
        found = [(f["name"], f["problem"]) for f in found if f["name"] != "file.short"]
        words = {"missing": f"chunk {broken} is of worker",
                 "size": f"chunk {broken} has"}.get(kind)
        tap.ok(found == [] if not kind else
               {n for n, _ in found} == {f"pool.{kind}"} and all(words in t for _, t in found)
               and any(f"worker {gone}" in t for _, t in found),
               f"workers of LMCache, {kind or 'sound'}, seed {seed}", f"{result}\n{found}")


def looked(path, folder):
    rank = ["--set=rank=" + folder.kv[0][1:]] if folder.kv[0] else []
    if folder.kv[0].count("_") >= 2 and not folder.latent:
        tp = int(folder.kv[0].split("_")[2])
        rank.append(f"--set=total-heads={2 * tp}")
    r = kvtool("fsck", "--json", *SAID, *rank, path)
    try:
        found = r.json["files"][0]["findings"]
    except (ValueError, KeyError, IndexError):
        return r, None
    return r, [(f["name"], f["problem"]) for f in found]


def main(top):
    breaks = [Folder.missing, Folder.several, Folder.orphan, Folder.size, Folder.rank_size]
    times = 4 if FULL else 1
    for seed in range(40 * times):
        r = random.Random(seed)
        folder = Folder(r)
        folder.write(f"{top}/sound{seed}")
        result, found = looked(f"{top}/sound{seed}", folder)
        tap.ok(result.code == 0 and found == [], f"a sound folder, seed {seed}: "
               f"{folder.kv} {folder.all} {folder.trailing}", f"{result}\n{found}")
    done = seed = 0
    while done < 40 * times:
        seed += 1
        r = random.Random(1000 + seed)
        folder = Folder(r)
        said = breaks[done % len(breaks)](folder)
        if not said:
            continue
        done += 1
        rule, words, *n = said
        folder.write(f"{top}/broken{seed}")
        result, found = looked(f"{top}/broken{seed}", folder)
        of = [t for name, t in found or [] if name == rule]
        others = [f for f in found or [] if f[0] != rule]
        tap.ok(len(of) == (n or [1])[0] and not others and
               all(w in of[0] for w in words) and
               result.code == (0 if rule == "pool.orphan" else 1),
               f"{breaks[(done - 1) % len(breaks)].__name__}, seed {seed}: {words}",
               f"{result}\n{found}")
    partial(top)
    lmcache_workers(top)


run(main)
