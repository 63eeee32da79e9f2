#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_chains.py - dumps made of dumps made of dumps, against numpy

A chain is up to four random steps (slice, merge of ranks cut before, reblock, graft,
replace) over a random dump: real ones of engines, made ones in several formats,
arrays in memory.  Its end must be what chain_model.py says: every element, tables
and ids, digests, and what is refused must be refused, with the same status.

usage: oracle_chains.py [--through-files] [--chains=N] [--seed=N] [--only=N]

2000 chains run in build/tests/chain, which holds no file between the steps, and 60
through files: each step is a call of kvtool.  --through-files: only these.
--only=N: the chain of this number alone.

So that a test that sees nothing is seen, some chains are looked at again with one
thing made wrong: of what the model says, or of the map that the dump is.
"""
import argparse
import collections
import os
import random
import re

import numpy as np

import chain_model as model
import oracle
from chain_model import Reblock, Refused, Slice
from chain_programs import (Driver, Files, in_layout, made_leaves, real_leaves,
                            tiled_leaves)
from kvd1 import xxhash
from oracle import SHARE, tap


# ---- steps ---------------------------------------------------------------------------

def some(rng, ids):
    ids = list(ids)
    if rng.random() < .4:
        a = rng.randrange(len(ids))
        return set(ids[a:rng.randint(a + 1, len(ids))])
    return set(rng.sample(ids, rng.randint(1, len(ids))))


def draw_slice(rng, d):
    s = Slice()
    wrong = rng.random() < .04
    for what in rng.sample(["layers", "blocks", "heads", "tokens", "requests",
                            "components", "tp"], rng.choice([1, 1, 2, 3])):
        if what == "layers":
            s.layers = some(rng, sorted({i for g in d.groups for i in g.layers}))
            s.layers |= {97} if wrong else set()
        elif what == "blocks":
            s.blocks = some(rng, sorted({i for g in d.groups for i in g.blocks}))
            s.blocks |= {9999} if wrong else set()
        elif what == "heads" and s.tp is None:
            g = rng.choice(d.groups)
            a = g.head + rng.randrange(g.n[model.H])
            s.heads = a, rng.randint(a + 1, g.head + g.n[model.H]) + wrong
        elif what == "tp" and s.heads is None:
            size = rng.choice([1, 2, 2, 4, 8])
            s.tp, s.groups = (size, rng.randrange(size)), conv_groups(d)
            if rng.random() < .2:
                size = rng.choice([1, 2, 4])
                s.to = size, rng.randrange(size)
        elif what == "requests" and d.requests:
            s.requests = some(rng, [r.id for r in d.requests])
            s.requests |= {"nobody"} if wrong else set()
        elif what == "tokens" and any(r.tokens for r in d.requests):
            kept = [r for r in d.requests if s.requests is None or r.id in s.requests]
            r = rng.choice(kept or d.requests)
            a = r.first + rng.randrange(max(r.tokens, 1))
            s.tokens = a, rng.randint(a + 1, max(a + 1, r.first + r.tokens))
        elif what == "components":
            names = sorted({c for g in d.groups for c in model.component_names(g)})
            s.components = {rng.choice(names)} if names else {"k"}
            s.components |= {"zz"} if wrong else set()
    return s


def conv_groups(d):
    return 4 if any(g.kind == "mamba_conv" for g in d.groups) else None


class Step:
    """What it is called, what it yields, and how a program is asked for it."""

    def __init__(self, name, model_of, ask):
        self.name, self.model, self.ask = name, model_of, ask
        self.prepare = self.spans = None


def said(s):
    return " ".join(f"{k}={v}" for k, v in vars(s).items()
                    if k in ("layers", "blocks", "heads", "tokens", "requests",
                             "components", "tp", "to", "size", "compact", "stale")
                    and v not in (None, False))


def slice_step(rng, d, run):
    s = draw_slice(rng, d)
    return Step(f"slice {said(s)}", lambda: s.of(d), lambda h: run.slice(h, s))


def merge_step(rng, d, run):
    size = rng.choice([2, 2, 4])
    whole = d.tp == (1, 0) and all(g.total % size * (size % g.total) == 0 and
                                   g.n[model.H] == g.total for g in d.groups)
    if not whole and rng.random() < .8:
        return None
    ranks = [Slice(tp=(size, i), groups=conv_groups(d)) for i in range(size)]
    rng.shuffle(ranks)
    if rng.random() < .06:
        ranks.pop()
    elif rng.random() < .06:
        ranks[0] = ranks[-1]

    def ask(h):
        handles, out = [], None
        for s in ranks:
            code, part, why = run.slice(h, s)
            if code:
                out = code, None, why
                break
            handles.append(part)
        out = out or run.merge(handles)
        for part in handles:
            run.close(part)
        return out
    return Step(f"merge of {[s.tp for s in ranks]}",
                lambda: model.merge([s.of(d) for s in ranks]), ask)


def reblock_step(rng, d, run):
    sizes = [g.size for g in d.groups if not g.recurrent] or [16]
    size = rng.choice(sizes)
    size = rng.choice([size, 2 * size, 4 * size, max(size // 2, 1), max(size // 4, 1),
                       1, 2, 3, 4, 5, 8, 24])
    r = Reblock(size, rng.random() < .3, rng.choice([None, None, "keep", "zero"]))
    return Step(f"reblock {said(r)}", lambda: r.of(d), lambda h: run.reblock(h, r))


def whole_blocks(rng, d):
    """The same ids in every group, of the dump itself."""
    pairs = None
    # copy-blocks finds the partner of a group by its kind and a layer
    if len({(g.kind, layer) for g in d.groups for layer in g.layers}) < \
            sum(len(g.layers) for g in d.groups):
        return None
    for g in d.groups:
        if pairs is None:
            n = rng.randint(1, len(g.blocks))
            pairs = list(zip((rng.choice(g.blocks) for _ in range(n)),
                             rng.sample(g.blocks, n)))
        pairs = [(a, b) for a, b in pairs if a in g.blocks and b in g.blocks]
    return {i: (i, [(g.blocks.index(a), 0, g.blocks.index(b), 0, g.n[model.S])
                    for a, b in pairs], None) for i, g in enumerate(d.groups)} \
        if pairs else None


def graft_step(rng, d, run):
    spans = whole_blocks(rng, d)
    if not spans:
        return None
    return Step("graft of itself", lambda: model.graft(d, d, spans),
                lambda h: run.graft(h, h, spans, (d, d)))


def some_spans(rng, mine, other):
    """No slot of the base twice; any of the donor's, into other places."""
    rows, (blocks, size) = [], mine.n[model.B:model.H]
    for b in rng.sample(range(blocks), rng.randint(1, blocks)):
        at = 0
        while at < size:
            n = rng.randint(1, size - at)
            if rng.random() < .7:
                rows.append((rng.randrange(other.n[model.B]),
                             rng.randint(0, size - n), b, at, n))
            at += n
    rng.shuffle(rows)
    return rows


def some_ranges(rng, here, there):
    """Disjoint in the base, any of the donor: [(there, here, count)]."""
    out, at = [], 0
    while at < here and len(out) < 3:
        n = rng.randint(1, min(here - at, there))
        if rng.random() < .7:
            out.append((rng.randint(0, there - n), at, n))
        at += n
    rng.shuffle(out)
    return out


def some_given(rng, mine, other):
    """What of the heads, or of the channels of a convolution state."""
    axis = model.D if mine.kind == "mamba_conv" else model.H
    if mine.n[axis] == other.n[axis] and rng.random() < .6:
        return None
    ranges = some_ranges(rng, mine.n[axis], other.n[axis])
    return (axis, ranges) if ranges else False


def noise(rng, d):
    return [np.random.default_rng(rng.getrandbits(32)).integers(
        0, 256, g.n + (g.data.itemsize,), dtype=np.uint8).view(g.data.dtype)
        .reshape(g.n) for g in d.groups]


def other_dump(rng, d, run, h):
    """(handle, Dump, own?) of one like this: itself, noise, or a constant."""
    how = rng.random()
    if how < .3:
        return h, d, False
    other = d.copy()
    if how < .5:
        fill = rng.choice([0, 0x3c])
        handle = run.constant(h, fill)
        for g in other.groups:
            g.data = np.full(g.n + (g.data.itemsize,), fill, np.uint8).view(
                g.data.dtype).reshape(g.n)
    else:
        arrays = noise(rng, d)
        handle = run.memory(h, arrays, d)
        for g, a in zip(other.groups, arrays):
            g.data = a
    if handle[0]:
        raise ValueError(handle)
    if rng.random() < .3:
        # a donor that is derived itself
        s = Slice(blocks=some(rng, other.groups[0].blocks))
        if not all(g.kind == "mamba_conv" for g in d.groups):
            g = other.groups[0]
            first = g.head + rng.randrange(g.n[model.H])
            s.heads = first, rng.randint(first + 1, g.head + g.n[model.H])
        try:
            part = s.of(other)
        except Refused:
            return handle[1], other, True
        if len(part.groups) == len(d.groups):
            code, derived, why = run.slice(handle[1], s)
            if code:
                raise ValueError(why)
            run.close(handle[1])
            return derived, part, True
    return handle[1], other, True


def slots_step(rng, d, run):
    """Any slots of a dump in memory, of a constant, or of the dump itself."""
    donor = []

    def build(h):
        donor[:] = other_dump(rng, d, run, h)
        spans = {}
        for i, g in enumerate(d.groups):
            other = donor[1].groups[i]
            rows, given = some_spans(rng, g, other), some_given(rng, g, other)
            if rng.random() < .02 and rows:
                rows.append(rows[0])
            if rows and given is not False and rng.random() < .8:
                spans[i] = i, rows, given
        return spans

    def ask(h):
        out = run.graft(h, donor[0], step.spans, (d, donor[1]))
        if donor[2]:
            run.close(donor[0])
        return out
    step = Step("graft of slots", lambda: model.graft(d, donor[1], step.spans), ask)
    step.prepare = build
    return step


PLAIN = ["LBSHKD", "BLKHSD", "KLBSHD", "DHSBLK"]


def replace_step(rng, d, run):
    i = rng.randrange(len(d.groups))
    array = noise(rng, d)[i]
    layout = rng.choice(PLAIN)
    return Step(f"replace group {i}", lambda: model.replace(d, i, array),
                lambda h: run.replace(h, i, layout, array))


STEPS = [slice_step] * 5 + [merge_step] * 2 + [reblock_step] * 3 + [graft_step] * 2
MORE_STEPS = STEPS + [slots_step] * 3 + [replace_step]


# ---- one chain -------------------------------------------------------------------------

def differs(got, want, where=""):
    """The first path at which two trees differ; None: nowhere."""
    if isinstance(want, dict):
        for k in want:
            why = differs(got.get(k), want[k], f"{where}.{k}")
            # what nobody counted is no claim
            if why and not (k == "block_valid" and got.get(k) is None):
                return why
        return None
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for i, (a, b) in enumerate(zip(got, want)):
            why = differs(a, b, f"{where}[{i}]")
            if why:
                return why
        return None
    return None if got == want else f"{where}: got {got}, expected {want}"


def compare(run, handle, want):
    got = run.load(handle)
    why = differs(got.facts(), want.facts())
    if why:
        return why
    for g, w in zip(got.groups, want.groups):
        if not np.array_equal(g.data, w.data):
            at = tuple(int(x[0]) for x in np.nonzero(g.data != w.data))
            return f"{g.id}: element {at} is {g.data[at]}, expected {w.data[at]}"
    got, expected = list(run.digests(handle)), list(model.digests(want))
    return None if got == expected else f"digests {got}, expected {expected}"


def check_box(rng, run, handle, want, split):
    """A box of a group in some layout."""
    i = rng.randrange(len(want.groups))
    g = want.groups[i]
    box = []
    for axis, n in zip("LBSHKD", g.n):
        a = rng.randrange(n)
        # what a layout splits is read in whole parts
        box.append((0, n) if split and axis in "SD" else (a, rng.randint(a + 1, n)))
    layout = rng.choice(PLAIN)
    got = run.get("box", handle, i, *(f"{a}-{b}" for a, b in box), layout)[0]
    expected = in_layout(g.data[tuple(slice(a, b) for a, b in box)], layout)
    return None if got == expected else f"{g.id}: box {box} as {layout} differs"


def check_select(rng, run, handle, want, split):
    """Layers, blocks and segments of a group in any order."""
    i = rng.randrange(len(want.groups))
    g = want.groups[i]
    ls, bs = ([rng.randrange(n) for _ in range(rng.randint(1, n + 1))]
              for n in g.n[:model.S])
    heads, kv, dim = (segment(rng, n) for n in g.n[model.H:])
    dims = [(0, g.n[model.D])] if split else [dim]
    if g.kind == "mamba_conv":
        dims.append(segment(rng, g.n[model.D]))
    code, part, why = run.select(handle, i, ls, bs, heads, kv, dims)
    if code:
        return f"select: status {code}: {why}"
    shape = [len(ls), len(bs), g.n[model.S], heads[1], kv[1], sum(n for _, n in dims)]
    got = np.frombuffer(run.get("data", part)[0], g.data.dtype).reshape(shape)
    run.close(part)
    data = g.data[ls][:, bs][:, :, :, slice(heads[0], sum(heads))]
    data = data[:, :, :, :, slice(kv[0], sum(kv))]
    data = np.concatenate([data[..., a:a + n] for a, n in dims], axis=-1)
    return None if np.array_equal(got, data) else \
        f"{g.id}: layers {ls} blocks {bs} heads {heads} kv {kv} dims {dims} differ"


def segment(rng, n):
    a = rng.randrange(n)
    return a, rng.randint(1, n - a)


def check_stored(run, handle, want, tally, flip=0):
    """What moves undecoded is what is read; cells are hashes of what is read."""
    every, moved, wrong = map(int, run.get("tiles", handle, flip)[0].split())
    tally["tiles", "all"] += every
    tally["tiles", "moved"] += moved
    if wrong:
        return f"{wrong} of {moved} tiles that move are others"
    for i, g in enumerate(want.groups):
        got = np.frombuffer(run.get("cells", handle, i)[0], np.uint64)
        if not got.size:
            continue
        rows = np.ascontiguousarray(g.data.transpose(0, 1, 3, 4, 2, 5)).reshape(
            got.size, -1)
        expected = [xxhash.xxh64_intdigest(r.tobytes()) for r in rows]
        tally["cells", "compared"] += got.size
        if got.tolist() != expected:
            return f"{g.id}: stored cells are those of other data"
    return None


MAX_BYTES = 1 << 16


def family(leaf, leaves):
    """All ranks of the model that a leaf is one of."""
    m = re.fullmatch(r"(.*/tp\d[^/]*/rank)\d(.*)", leaf.name)
    return [x for x in leaves if m and
            re.fullmatch(rf"{m[1]}\d{re.escape(m[2])}", x.name)] or [leaf]


class Chain:
    def __init__(self, rng, leaf, run, tally):
        self.rng, self.run, self.tally = rng, run, tally
        self.dump, self.handle = leaf.dump, leaf.handle
        self.split = any(" " in g.layout for g in leaf.dump.groups)
        self.told, self.mine = [leaf.name], None
        self.steps = STEPS if isinstance(run, Files) else MORE_STEPS

    def join(self, ranks):
        """Begins with the dump that real ranks are parts of."""
        code, handle, why = self.run.merge([x.handle for x in ranks])
        if code:
            return f"merge of files: status {code}: {why}"
        self.told[0] += " and its other ranks"
        self.mine = self.handle = handle
        self.dump = model.merge([x.dump for x in ranks])
        return None

    def go(self, steps):
        """None, or why it failed."""
        # a large one is made small first
        while self.dump.nbytes > MAX_BYTES:
            why = self.step(slice_step)
            if why:
                return why
        for _ in range(steps):
            # a rank may send nothing to another
            why = self.dump.groups and self.step(self.rng.choice(self.steps))
            if why:
                return why
        return compare(self.run, self.handle, self.dump) or self.extras()

    def extras(self):
        if isinstance(self.run, Files) or not self.dump.groups:
            return None
        for _ in "ab":
            for check in check_box, check_select:
                why = check(self.rng, self.run, self.handle, self.dump, self.split)
                if why:
                    return why
        return check_stored(self.run, self.handle, self.dump, self.tally)

    def step(self, kind):
        step = kind(self.rng, self.dump, self.run)
        if step is None:
            return None
        if step.prepare:
            step.spans = step.prepare(self.handle)
        want, status = None, 0
        try:
            want = step.model()
        except Refused as e:
            status = e.status
        except NotImplementedError:
            return None
        self.told.append(step.name)
        code, handle, why = step.ask(self.handle)
        if code != status:
            return f"status {code}, expected {status}: {why}"
        self.tally[kind.__name__, status] += 1
        if not code:
            # what it was made of is gone before anything is read
            self.close()
            self.mine = handle
            self.dump, self.handle = want, handle
        return None

    def close(self):
        if self.mine is not None:
            self.run.close(self.mine)
        self.mine = None


# ---- would it see a fault? --------------------------------------------------------------

def lie_data(rng, want):
    g = rng.choice([g for g in want.groups])
    g.data = g.data.copy()
    at = tuple(rng.randrange(n) for n in g.n)
    g.data[at] = g.data[at] ^ g.data.dtype.type(1)
    return True


def lie_table(rng, want):
    rows = [r.blocks[i] for r in want.requests for i in range(len(want.groups))
            if r.blocks[i]]
    if rows:
        rng.choice(rows)[-1] += 1
    return bool(rows)


def lie_id(rng, want):
    rng.choice(want.groups).blocks[-1] += 1
    return True


def lie_tokens(rng, want):
    if want.requests:
        rng.choice(want.requests).tokens += 1
    return bool(want.requests)


LIES = (lie_data, lie_table, lie_id, lie_tokens)
SPOILS = ("layers", "blocks", "spans", "heads", "kv")


def check_lies(chain, rng, seen):
    """What the model says is made wrong, then what the program has."""
    run, handle = chain.run, chain.handle
    for lie in LIES:
        want = chain.dump.copy()
        if lie(rng, want):
            seen[lie.__name__, bool(compare(run, handle, want))] += 1
    if isinstance(run, Files) or chain.mine is None:
        return
    moved = collections.Counter()
    if check_stored(run, handle, chain.dump, moved, 1) or moved["tiles", "moved"]:
        seen["tiles", bool(check_stored(run, handle, chain.dump, moved, 1))] += 1
    for kind in rng.sample(SPOILS, len(SPOILS)):
        if not run.ask("spoil", handle, kind)[0]:
            seen[kind, bool(compare(run, handle, chain.dump))] += 1
            return


def all_seen(seen, kinds):
    """
    Each lie, each time; of spoiled maps some of each kind, for a wrong block may hold
    the same.
    """
    for kind in kinds:
        told, missed = seen[kind, True], seen[kind, False]
        tap.ok(told and (kind in SPOILS or not missed),
               f"{kind} made wrong: {told} times seen" +
               (f", {missed} times the same" if missed else ""))


# ---- all of it --------------------------------------------------------------------------

def load_leaf(leaf, run):
    leaf.handle = run.open(leaf)
    leaf.dump = run.load(leaf.handle).complete()
    for g, t in zip(leaf.dump.groups, leaf.truth or ()):
        tap.ok(np.array_equal(g.data, t), f"{leaf.name}: {g.id} as written")


def run_chains(numbers, seed, run, leaves, tally, alone):
    seen, good = collections.Counter(), 0
    for n in numbers:
        rng = random.Random(seed * 1000003 + n)
        leaf = rng.choice(leaves)
        ranks = family(leaf, leaves)
        for x in ranks:
            if x.dump is None:
                load_leaf(x, run)
        chain = Chain(rng, leaf, run, tally)
        rng.shuffle(ranks)
        why = chain.join(ranks) if len(ranks) > 1 and rng.random() < .5 else None
        why = why or chain.go(rng.randint(1, 4))
        if why or alone:
            tap.ok(not why, f"chain {n}: {'; '.join(chain.told)}", why)
        elif n % 5 == 0 and chain.dump.groups:
            check_lies(chain, rng, seen)
        good += not why
        chain.close()
        run.end()
    return seen, good


def run_all(count, args, tmp, run):
    tally = collections.Counter()
    leaves = list(real_leaves()) + list(made_leaves(tmp, 40)) + list(tiled_leaves(tmp))
    alone = args.only is not None
    numbers = [args.only] if alone else range(count)
    seen, good = run_chains(numbers, args.seed, run, leaves, tally, alone)
    who = type(run).__name__
    tap.ok(good == len(numbers),
           f"{who}: {good} of {len(numbers)} chains are what they must be")
    if not alone:
        kinds = [lie.__name__ for lie in LIES]
        all_seen(seen, kinds + ["tiles", *SPOILS] if who == "Driver" else kinds)
    for key, n in sorted(tally.items()):
        print(f"# {who}: {key[0]} {key[1]}: {n}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--through-files", action="store_true")
    parser.add_argument("--chains", type=int, default=2000 // SHARE)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    if not args.through_files:
        with oracle.workdir() as tmp:
            run_all(args.chains, args, tmp, Driver(os.environ.get("KVT_BUILD", "build")))
    if args.through_files or args.only is None:
        with oracle.workdir() as tmp:
            run_all(min(args.chains, 60 // SHARE), args, tmp, Files(tmp, random.Random(args.seed)))


oracle.run(main)
