#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_reblock.py - what kvtool reblock writes, against plain lists of tokens

Where every slot of the new pool must come from is worked out with Python lists;
cells come from a sidecar's address map, those of the output from the axis string
that a layout is documented with.
"""
import random

import numpy as np

import oracle
from kvd1 import whole
from oracle import (FULL, SHARE, array_bytes, kvtool, legal, manifest_of, place,
                    preset_offsets, refused, runs, safetensors_tensors, tap, write_bytes,
                    write_json)

SIZES = (1, 2, 3, 4, 5, 8, 16, 24, 32, 48, 64, 100)
MODES = ((), ("--compact",), ("--stale", "keep"), ("--stale", "zero"),
         ("--compact", "--stale", "keep"))


# ---- what must come out -----------------------------------------------------

class Plan:
    """
    rows[b] = (block, slot) of each slot of new block b, None where zeros are;
    tables by request.  'size' and 'new' count slots, 'live' has those of each
    request, 'null' is a block or None.
    """

    def __init__(self, nblocks, size, tables, live, null, new, options):
        self.nblocks, self.size, self.new = nblocks, size, new
        self.tables, self.live, self.null = tables, live, null
        self.stale = options[options.index("--stale") + 1] \
            if "--stale" in options else None
        self.regrouped = "--compact" not in options and self.in_place()
        if self.regrouped:
            self.regroup()
        else:
            self.gather()

    def in_place(self):
        if self.size % self.new == 0:
            return True
        if self.new % self.size:
            return False
        k = self.new // self.size
        if self.nblocks % k or (self.null is not None and self.null % k):
            return False
        for table in self.tables.values():
            for i in range(0, len(table), k):
                part = table[i:i + k]
                if part[0] % k or part != list(range(part[0], part[0] + len(part))):
                    return False
                if self.null is not None and part[0] == self.null:
                    return False
        return True

    def row(self, n):
        return n // self.size, n % self.size

    def regroup(self):
        used = {(self.null, s) for s in range(self.size)}
        for r, table in self.tables.items():
            used |= {(table[t // self.size], t % self.size) for t in range(self.live[r])}
        total = self.nblocks * self.size
        flat = [self.row(n) for n in range(total)]
        if self.stale == "zero":
            flat = [x if x in used else None for x in flat]
        self.rows = [flat[n:n + self.new] for n in range(0, total, self.new)]
        self.null_after = None if self.null is None else \
            self.null * self.size // self.new
        self.after = {}
        for r, table in self.tables.items():
            slots = [b * self.size + s for b in table for s in range(self.size)]
            if self.new != self.size:  # nothing behind the last token
                slots = slots[:self.live[r]]
            # the null block is one block still, the first that it became
            self.after[r] = [self.null_after if n // self.size == self.null else
                             n // self.new for n in slots[::self.new]]

    def gather(self):
        """Token by token; a block is shared if one begins as the other does."""
        self.null_after = None if self.null is None else 0
        blocks = [] if self.null is None else [None]
        self.after = {}
        for r, table in self.tables.items():
            held = [(b, s) for b in table for s in range(self.size)]
            slots, out = held[:self.live[r]], []
            for n in range(0, len(slots), self.new):
                part, rest = slots[n:n + self.new], held[n:n + self.new]
                if all(b == self.null for b, _ in part):
                    out.append(0)
                    continue
                found = None
                for i, (have, _) in reversed(list(enumerate(
                        x or ([], []) for x in blocks))):
                    m = min(len(have), len(part))
                    if m and have[:m] == part[:m]:
                        found = i
                        break
                if found is None:
                    found = len(blocks)
                    blocks.append((part, rest))
                elif len(part) > len(blocks[found][0]):
                    blocks[found] = (part, rest)
                out.append(found)
            self.after[r] = out
        self.rows = []
        for block in blocks:
            if block is None:
                row = [(self.null, s) for s in range(min(self.size, self.new))]
            else:
                row = block[self.stale == "keep"]
            self.rows.append(row + [None] * (self.new - len(row)))

    def cells(self, cells):
        """cells[K, L, B, S, H, D] of the new pool."""
        K, L, _, _, H, D = cells.shape
        out = np.zeros((K, L, len(self.rows), self.new, H, D), cells.dtype)
        b = [[x[0] if x else 0 for x in row] for row in self.rows]
        s = [[x[1] if x else 0 for x in row] for row in self.rows]
        keep = np.array([[x is not None for x in row] for row in self.rows])
        out[:] = cells[:, :, np.array(b), np.array(s)]
        out[:, :, ~keep] = 0
        return out


def judge(name, r, path, plan, cells, layout, itemsize):
    if not tap.ok(r.code == 0, f"{name}: exit 0", r):
        return
    want = plan.cells(cells)
    m = manifest_of(path)
    tables = {q: t for q, t in m.get("block_table", {}).items() if t}
    expected = {q: t for q, t in plan.after.items() if t}
    if not tap.equal((tables, m.get("null_block"), m["sizes"]["block_size"]),
                     (expected, plan.null_after, plan.new), f"{name}: tables"):
        return
    raw = array_bytes(path)
    tap.ok(raw == place(want, layout, itemsize), f"{name}: every byte of the pool", r)
    K, L, B, S, H, D = want.shape
    dims = {"K": K, "L": L, "B": B, "S": S, "H": H, "D": D}
    got = np.frombuffer(raw, cells.dtype)[preset_offsets(layout, dims, itemsize)]
    good = True
    for q, table in plan.tables.items():
        t = np.arange(plan.live[q])
        # in the null block there is no token to keep
        t = t[np.array(table, int)[t // plan.size] != plan.null]
        old = cells[:, :, np.array(table, int)[t // plan.size], t % plan.size]
        new = got[:, :, np.array(tables.get(q, []), int)[t // S], t % S]
        good &= np.array_equal(old, new)
    tap.ok(good, f"{name}: every token is what it was")


# ---- real dumps -------------------------------------------------------------

SPLIT = {"aiter-shuffle": 8, "aiter-shuffle-kv-first": 8}


def check_dumps(dumps, tmp):
    for n, d in enumerate(dumps):
        digest = whole(d.path)[0]
        for i, size in enumerate(SIZES):
            if n % 3 and (n + i) % 2 and not FULL:
                continue
            modes = MODES if FULL else MODES[:1] if (n + i) % 2 else \
                (MODES[0], MODES[1 + (n + i) // 2 % 4])
            for options in modes:
                name = f"{d.name} to {size} {' '.join(options)}"
                out = f"{tmp}/out.npy"
                r = kvtool("reblock", "-f", "--verify", "-b", size, *options, "-o",
                           out, d.path)
                if size % SPLIT.get(d.layout, 1):
                    tap.equal(r.code, 4, f"{name}: refused, S is split")
                    continue
                plan = Plan(d.dims["B"], d.dims["S"], d.tables, d.ntokens, 0, size,
                            options)
                judge(name, r, out, plan, d.cells, d.layout, d.itemsize)
                if (n + i) % 4 == 0 or FULL:
                    tap.equal(whole(out)[0], digest, f"{name}: digest of the tokens")


def check_siblings(dumps, tmp):
    """The same tokens in blocks of 32, written by another program."""
    bs16 = next(d for d in dumps if d.name == "s260k/paged_bs16/packed_nhd.bf16")
    bs32 = next(d for d in dumps if d.folder == "paged_bs32")
    for d, other in ((bs16, bs32), (bs32, bs16)):
        size = other.dims["S"]
        out = f"{tmp}/sibling.h5"
        r = kvtool("reblock", "-f", "-b", size, "--compact", "-o", out, d.path)
        tap.equal((r.code, whole(out)[0]), (0, whole(other.path)[0]),
                  f"{d.name} in blocks of {size} has the digest of {other.name}")
        kvtool("convert", "-f", out, f"{tmp}/sibling.npy")
        tables = manifest_of(f"{tmp}/sibling.npy")["block_table"]
        cells = np.frombuffer(array_bytes(f"{tmp}/sibling.npy"), d.cells.dtype)
        dims = dict(d.dims, S=size, B=cells.size // (
            d.nelements // d.dims["B"] // d.dims["S"] * size))
        cells = cells[preset_offsets(d.layout, dims, d.itemsize)]
        for q in other.tables:
            t = np.arange(other.ntokens[q])
            got = cells[:, :, np.array(tables[q])[t // size], t % size]
            tap.ok(np.array_equal(got, other.tokens(other.cells, q)) and
                   np.array_equal(got, other.canonical(q)),
                   f"{d.name} in blocks of {size}: {q} has the bytes of {other.name}")


# ---- random pools -----------------------------------------------------------

class Random:
    """A pool with shared prefixes, reserved blocks and a null block or none."""

    def __init__(self, rng, tmp):
        self.size = rng.choice([1, 2, 3, 4, 6, 8, 16, 32])
        self.layout = rng.choice(["nhd", "hnd", "bhlsc", "kv-first-nhd", "lhbsc",
                                  "blocks-first-hnd", "rocm-paged", "cpu-vec",
                                  "cpu-amx", "cpu-neon-bf16", "aiter-shuffle"])
        B = rng.randrange(4, 40)
        self.null = rng.choice([0, 0, None, B - 1])
        free = [b for b in range(B) if b != self.null]
        if rng.random() < 0.7:
            rng.shuffle(free)
        self.tables, self.live = {}, {}
        for q in "ABCDE"[:rng.randrange(1, 6)]:
            table = []
            if self.tables and rng.random() < 0.6:
                other = rng.choice(sorted(self.tables))
                table = self.tables[other][:rng.randrange(len(self.tables[other]) + 1)]
            elif self.null is not None and rng.random() < 0.3:
                table = [self.null] * rng.randrange(1, 5)
            for _ in range(rng.randrange(0, 9)):
                if free:
                    table = table + [free.pop(0)]
            if not table:
                continue
            self.tables[q] = table
            self.live[q] = rng.randrange(1, len(table) * self.size + 1)
        L, H = rng.randrange(1, 4), rng.randrange(1, 4)
        self.dims = {"L": L, "B": B, "S": self.size, "H": H, "K": 2, "D": 32}
        if not legal(self.layout, self.dims, 2):
            self.layout = "hnd"
        self.cells = np.random.default_rng(rng.randrange(1 << 30)).integers(
            0, 1 << 16, (2, L, B, self.size, H, 32)).astype(np.uint16)
        self.path = f"{tmp}/random.npy"
        np.save(self.path, np.frombuffer(place(self.cells, self.layout, 2), "<u2"))
        side = {"file": "random.npy", "layout": self.layout, "dtype": "bfloat16",
                "sizes": oracle.sizes(L=L, B=B, S=self.size, H=H, D=32),
                "block_table": self.tables, "num_tokens": self.live}
        if self.null is not None:
            side["null_block"] = self.null
        write_json(f"{tmp}/random.json", side)


def check_random(tmp):
    rng = random.Random(29)
    for n in range(600 if FULL else 150 // SHARE):
        d = Random(rng, tmp)
        new = rng.choice(SIZES[:10] + (d.size, 2 * d.size, 4 * d.size))
        options = rng.choice(MODES)
        if not d.tables:
            continue
        plan = Plan(d.dims["B"], d.size, d.tables, d.live, d.null, new, options)
        name = (f"random {n}: {d.layout} {d.size} to {new} {' '.join(options)}"
                f"{' regrouped' if plan.regrouped else ''}")
        out, path = f"{tmp}/r.npy", d.path
        if n % 2:
            path = f"{tmp}/r.h5"
            kvtool("convert", "-f", "--tile", rng.choice(["64", "256", "1K"]),
                   d.path, path)
        if n % 4 == 3 and legal(d.layout, dict(d.dims, S=new), 2):
            r = kvtool("reblock", "-f", "--json", "--verify", "-b", new, *options,
                       "-o", f"{tmp}/r2.h5", path)
            v = kvtool("describe", "--verify", f"{tmp}/r2.h5")
            tap.ok(r.code == 0 and v.code == 0, f"{name}: its cells", f"{r}{v}")
            r = kvtool("convert", "-f", f"{tmp}/r2.h5", out)
        else:
            r = kvtool("reblock", "-f", "--verify", "-b", new, *options, "-o", out,
                       path, "--mem-limit", rng.choice(["256M", "8M"]))
        if legal(d.layout, dict(d.dims, S=new), 2):
            judge(name, r, out, plan, d.cells, d.layout, 2)
        else:
            tap.equal(r.code, 4, f"{name}: refused, S is split")


# ---- chains -----------------------------------------------------------------

def tokens_of(path, size, live, lost=None):
    """The tokens of each request, and how many entries its table has."""
    m, out = manifest_of(path), {}
    n = m["sizes"]
    dims = {"L": n["layers"], "B": n["num_blocks"], "S": size,
            "H": n["num_kv_heads"], "K": 2, "D": n["head_dim"]}
    cells = np.frombuffer(array_bytes(path), np.uint16)[preset_offsets("nhd", dims, 2)]
    for q, table in m.get("block_table", {}).items():
        first = (lost or {}).get(q, 0)
        t = np.arange(first, live[q])
        at = (t - first) // size
        out[q] = len(table), cells[:, :, np.array(table, int)[at], t % size]
    return out


def check_chains(tmp):
    """However blocks were cut before: ceil(tokens / size) entries, the same tokens."""
    rng = random.Random(31)
    for n in range(60 if FULL else 25 // SHARE):
        d = Random(rng, tmp)
        while d.layout != "nhd" or d.null is not None or not d.tables:
            d = Random(rng, tmp)
        chain = [d.size * rng.choice([1, 2, 4, 8]) // rng.choice([1, 2, 4]) or 1
                 for _ in range(rng.randrange(2, 6))] + [d.size]
        want = {q: c for q, (_, c) in tokens_of(d.path, d.size, d.live).items()}
        here, good, cut = d.path, True, False
        for i, size in enumerate(chain):
            out = f"{tmp}/chain{i % 2}.npy"
            r = kvtool("reblock", "-f", "-b", size, *rng.choice(MODES[:2]), "-o", out,
                       here)
            cut |= size != d.size
            got = tokens_of(out, size, d.live) if r.code == 0 else {}
            good &= set(got) == set(want) and all(
                (not cut or k == -(-d.live[q] // size)) and np.array_equal(c, want[q])
                for q, (k, c) in got.items())
            here = out
        tap.ok(good, f"chain {n}: {d.size} to {' '.join(map(str, chain))}", r)


def check_windows(tmp):
    """The last blocks alone: they must begin where a larger block does."""
    dims = {"L": 2, "B": 8, "S": 4, "H": 2, "K": 2, "D": 8}
    cells = np.random.default_rng(5).integers(0, 1 << 16, (2, 2, 8, 4, 2, 8))
    np.save(f"{tmp}/w.npy", np.frombuffer(
        place(cells.astype(np.uint16), "nhd", 2), "<u2"))
    for tokens, table, new, code in ((20, [2, 3, 4, 5], 8, 3), (20, [2, 3, 4], 8, 0),
                                     (20, [2, 3, 4, 5], 2, 0), (18, [5, 1, 7], 1, 0),
                                     (20, [4, 5], 16, 3), (21, [4, 5], 16, 0)):
        write_json(f"{tmp}/w.json",
                   {"file": "w.npy", "layout": "nhd", "dtype": "bfloat16",
                    "kind": "sliding_window", "window": 8,
                    "sizes": oracle.sizes(L=2, B=8, S=4, H=2, D=8),
                    "block_table": {"A": table}, "num_tokens": {"A": tokens}})
        r = kvtool("reblock", "-f", "--verify", "-b", new, "-o", f"{tmp}/w2.npy",
                   f"{tmp}/w.npy")
        name = f"a window of {tokens} tokens, {len(table)} blocks left, to {new}"
        tap.ok(r.code == code, f"{name}: status {code}", r)
        if r.code or code:
            continue
        lost = {"A": (-(-tokens // 4) - len(table)) * 4}
        want = tokens_of(f"{tmp}/w.npy", 4, {"A": tokens}, lost)["A"]
        got = tokens_of(f"{tmp}/w2.npy", new, {"A": tokens}, lost)["A"]
        tap.ok(np.array_equal(got[1], want[1]), f"{name}: its tokens", r)
        tap.equal(got[0], -(-tokens // new) - lost["A"] // new, f"{name}: entries")


# ---- groups -----------------------------------------------------------------

def check_groups(tmp):
    """Two sizes of blocks, slots of 4 tokens, and states."""
    rng = np.random.default_rng(3)
    tables = {"A": [5, 2, 7], "B": [5, 3], "C": [1]}
    tokens = {"A": 41, "B": 20, "C": 16}
    wide = {"A": [1, 2], "B": [1], "C": [3]}
    last = {"A": [2, 6], "B": [4], "C": []}
    spec = [("g0", "full_attention", 16, 1, 8, tables), ("big", "full_attention", 32,
            1, 4, wide), ("few", "mla", 16, 4, 8, tables),
            ("ssm", "mamba_ssm", 0, -1, 8, last)]
    groups, parts, cells = [], [], {}
    for name, kind, size, tps, B, table in spec:
        S = size // tps if tps > 0 else 1
        H, K = (1, 1) if kind == "mla" else (2, 2)
        if kind == "mamba_ssm":
            H, K = 2, 1
        c = rng.integers(0, 1 << 16, (K, 2, B, S, H, 4)).astype(np.uint16)
        cells[name] = (c, table, tps, S, B)
        axes = "LBSC" if kind == "mla" else "LBSHC"
        parts.append(place(c, axes, 2))
        sizes = oracle.sizes(L=2, B=B, S=size or 64, H=H)
        sizes["content" if K == 1 else "head_dim"] = 4
        groups.append({"id": name, "kind": kind, "layout": axes, "dtype": "bfloat16",
                       "tokens_per_slot": tps, "sizes": sizes,
                       "block_table": table})
    write_bytes(f"{tmp}/groups.bin", b"".join(parts))
    write_json(f"{tmp}/groups.json",
               {"file": "groups.bin", "null_block": 0, "num_tokens": tokens,
                "groups": groups})
    before = whole(f"{tmp}/groups.bin")[0]
    tap.ok(before is not None, "four groups in one file",
           kvtool("digest", f"{tmp}/groups.bin"))
    for new in (4, 8, 16, 24, 32, 64):
        for options in ((), ("--compact",)):
            name = f"four groups to {new} {' '.join(options)}"
            r = runs(f"{name}: exit 0", "reblock", "-f", "--verify", "-b", new, *options,
                     "-o", f"{tmp}/out.safetensors", f"{tmp}/groups.bin")
            if r.code:
                continue
            tap.equal(whole(f"{tmp}/out.safetensors")[0], before, f"{name}: digest")
            want = {}
            for group, (c, table, tps, S, B) in cells.items():
                live = {q: -(-tokens[q] // tps) if tps > 0 else len(t)
                        for q, t in table.items()}
                if tps < 0 and not options:
                    want[group] = place(c, "LBSHC", 2)
                    continue
                plan = Plan(B, S, table, live, 0, new // tps if tps > 0 else 1, options)
                want[group] = place(plan.cells(c), "LBSHC", 2)
            got = {n: t[2] for n, t in safetensors_tensors(
                f"{tmp}/out.safetensors").items()}
            tap.ok(got == want, f"{name}: every byte")
    refused("6 tokens are no slots of 4", 3, "slots of 4", "reblock", "-f", "-b", 6, "-o",
            f"{tmp}/never.bin", f"{tmp}/groups.bin")


# ---- stored tiles -----------------------------------------------------------

def check_moved(d, tmp):
    """Tiles of 8 blocks stay what they are wherever the pool stays in place."""
    src = f"{tmp}/tiles.h5"
    kvtool("convert", "--tile", "2K", d.path, src)
    runs("a snapshot with tiles of 8 blocks", "describe", "--json", src)
    for size, moves in ((1, 1), (4, 1), (8, 1), (16, 1), (24, 0), (64, 0)):
        out = f"{tmp}/moved.h5"
        r = kvtool("reblock", "-f", "--json", "-b", size, "-o", out, src)
        g = r.json["groups"][0] if r.code == 0 else {}
        tap.equal((g.get("tiles", 0) > 0, g.get("tiles_moved")),
                  (True, g.get("tiles") if moves else 0),
                  f"tiles to {size}: {'all' if moves else 'none'} move")
        runs(f"tiles to {size}: every cell has its checksum", "describe", "--verify", out)
        kvtool("reblock", "-f", "-b", 16, "--json", "-o", f"{tmp}/back.h5", out)
        kvtool("convert", "-f", f"{tmp}/back.h5", f"{tmp}/back.npy")
        if moves:
            tap.ok(array_bytes(f"{tmp}/back.npy") == array_bytes(d.path),
                   f"tiles to {size} and back: every byte")


def check_ends(d, tmp):
    """A pool that ends inside a tile of the input does not take the rest along."""
    cases = [(list(range(8, 16)), 16, True), (list(range(8, 16)), 32, True),
             (list(range(8, 14)), 16, False), (list(range(4, 12)), 16, False),
             (list(range(40, 48)), 64, True), (list(range(8, 24)), 8, True)]
    for table, size, moves in cases:
        side = {k: v for k, v in d.side.items()
                if k not in ("null_block", "free_blocks", "address_map")}
        side.update(file=d.path, block_table={"A": table},
                    num_tokens={"A": 16 * len(table)})
        write_json(f"{tmp}/ends.json", side)
        kvtool("convert", "-f", "--tile", "2K", "--manifest", f"{tmp}/ends.json",
               d.path, f"{tmp}/ends.h5")
        r = kvtool("reblock", "-f", "--json", "--compact", "-b", size, "-o",
                   f"{tmp}/ends.out.h5", f"{tmp}/ends.h5")
        name = f"blocks {table[0]} to {table[-1]} alone, in blocks of {size}"
        g = r.json["groups"][0] if r.code == 0 else {}
        tap.equal((g.get("tiles", 0) > 0, g.get("tiles_moved")),
                  (True, g.get("tiles") if moves else 0),
                  f"{name}: {'all tiles' if moves else 'no tile'} moved")
        r = kvtool("convert", "-f", f"{tmp}/ends.out.h5", f"{tmp}/ends.npy")
        plan = Plan(d.dims["B"], 16, {"A": table}, {"A": 16 * len(table)}, None,
                    size, ("--compact",))
        judge(name, r, f"{tmp}/ends.npy", plan, d.cells, d.layout, d.itemsize)


def main(tmp):
    dumps = oracle.attention_dumps()
    first = next(d for d in dumps if d.name == "s260k/paged_bs16/packed_nhd.bf16")
    check_dumps(dumps, tmp)
    check_siblings(dumps, tmp)
    check_random(tmp)
    check_chains(tmp)
    check_windows(tmp)
    check_groups(tmp)
    check_moved(first, tmp)
    check_ends(first, tmp)


oracle.run(main)
