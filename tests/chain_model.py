# SPDX-License-Identifier: Apache-2.0
"""
chain_model.py - dumps made of dumps, in numpy

What slice, merge, reblock, graft and replace must yield, on whole arrays and plain
lists, after kvtool-slice(1), kvtool-merge(1), kvtool-reblock(1), kvtool-copy-blocks(1)
and kvtool-manifest(5); the digests of the result after kvtool-digest(1).  A dump is
never shared: every step copies all of it.  Nothing here knows parts, spans, tiles or
boxes, which is what the program is built of.

Refused(status) is raised where a page says that the program refuses.
"""
import copy
import re

import numpy as np

from kvd1 import cell_hashes, fold, hash_rows, weight

MISMATCH, USAGE, BAD_INPUT, UNSUPPORTED = 1, 2, 3, 4
L, B, S, H, K, D = range(6)


class Refused(Exception):
    def __init__(self, status, why):
        super().__init__(why)
        self.status = status


def bad(why):
    raise Refused(BAD_INPUT, why)


def up(n, by):
    return -(-n // by)


# ---- a dump -----------------------------------------------------------------

class Group:
    """
    data[L, B, S, H, K, D] of unsigned elements.  layers and blocks are their ids in
    the model and in the pool; null is a position, -1: none.  tps is the tokens of a
    slot, -1: all of a request.  valid is how many slots of each block live tokens
    are in, None: not known.
    """

    def __init__(self, **said):
        self.id = said["id"]
        self.kind = said["kind"]
        self.layout = said["layout"]
        self.layers, self.names = said["layer_ids"], said["layer_names"]
        self.blocks = said["block_ids"]
        self.head, self.total = said["head_start"], said["total_heads"]
        self.replicas = said["replication"]
        self.size, self.tps = said["block_size"], said["tokens_per_slot"]
        self.window, self.retained = said["window"], said["retained"]
        self.null, self.valid = said["null"], said["block_valid"]
        # [name, start, length, start in the model]
        self.parts = said["components"]
        self.data = said["data"]

    @property
    def n(self):
        return self.data.shape

    @property
    def recurrent(self):
        return self.tps < 1

    def half(self):
        """"k" or "v" of keys or values alone, else None."""
        if self.n[K] == 1 and len(self.parts) == 1 and self.parts[0][0] in ("k", "v"):
            return self.parts[0][0]
        return None

    def forgets(self):
        if self.kind in ("mla", "opaque"):
            return self.window > 0
        return self.kind in ("sliding_window", "chunked_local", "rswa")

    def holds(self, slots):
        """Do the splits of its layout fit blocks of so many slots?"""
        for word in self.layout.split():
            if re.match(r"S[/%]", word):
                x = 16 // self.data.itemsize if word[2:] == "x" else int(word[2:])
                if slots % x:
                    return False
        return True

    def keep_plane(self, k):
        if self.layout.startswith("K:"):
            self.layout = self.layout[2:].split(" V:")[k]

    def facts(self):
        """All that is compared but for the data."""
        return {"id": self.id, "kind": self.kind, "shape": list(self.n),
                "layer_ids": self.layers, "layer_names": self.names,
                "block_ids": self.blocks, "head_start": self.head,
                "total_heads": self.total, "replication": self.replicas,
                "block_size": self.size, "tokens_per_slot": self.tps,
                "window": self.window, "retained": self.retained, "null": self.null,
                "block_valid": self.valid,
                "components": self.parts}


class Request:
    """blocks[g] are positions in group g; holes are [group, begin, end]."""

    def __init__(self, id, tokens, first, prompt, blocks, holes):
        self.id, self.tokens, self.first, self.prompt = id, tokens, first, prompt
        self.blocks, self.holes = blocks, holes

    def cut_holes(self, begin, end):
        self.holes = [[g, max(b, begin), min(e, end)] for g, b, e in self.holes
                      if max(b, begin) < min(e, end)]

    def facts(self):
        return {"id": self.id, "tokens": self.tokens, "first": self.first,
                "blocks": self.blocks, "holes": sorted(self.holes)}


class Dump:
    def __init__(self, groups, requests, tp=(1, 0)):
        self.groups, self.requests, self.tp = groups, requests, tuple(tp)

    def copy(self):
        return copy.deepcopy(self)

    def facts(self):
        return {"tp": list(self.tp), "groups": [g.facts() for g in self.groups],
                "requests": [r.facts() for r in self.requests]}

    @property
    def nbytes(self):
        return sum(g.data.nbytes for g in self.groups)

    def complete(self):
        """Counts live slots where the tables tell and nothing else does."""
        for i, g in enumerate(self.groups):
            if g.valid is None and self.tell(g, i):
                g.valid = [0] * g.n[B]
                for r in self.requests:
                    t = Table(g, i, r, False)
                    for at in range(t.begin, t.end):
                        b = r.blocks[i][t.entry(at)]
                        if b != g.null and not t.in_hole(at):
                            g.valid[b] = max(g.valid[b], at % g.n[S] + 1)
        return self

    def tell(self, g, i):
        if g.recurrent or g.window or g.kind in ("sliding_window", "chunked_local",
                                                 "rswa"):
            return False
        return any(r.blocks[i] for r in self.requests) and all(
            len(r.blocks[i]) >= up(r.first % g.size + r.tokens, g.size)
            for r in self.requests if r.tokens)


# ---- which slots of a request are live ---------------------------------------

def dead_tokens(g, request, end):
    """[begin, end) of the tokens that nothing computed later looks at."""
    w = g.window
    if not g.forgets() or w < 1:
        return 0, 0
    if g.kind == "chunked_local":
        return 0, end - end % w
    if g.kind == "rswa":
        p = request.prompt
        return (p, end - w) if p > 0 and end - w > p else (0, 0)
    return 0, max(0, max(0, end - w + 1) - g.retained)


class Table:
    """
    The slots of a request in a group: at() is where the one of a position is.
    'strict' leaves out null blocks and dead slots, as version 2 of the digest does.
    """

    def __init__(self, g, i, request, strict):
        self.g, self.request, self.strict, self.i = g, request, strict, i
        self.blocks = request.blocks[i]
        n = len(self.blocks)
        self.first, self.dead = 0, (0, 0)
        if g.recurrent:
            self.begin, self.end = 0, n
            return
        each, end = g.n[S], request.first + request.tokens
        self.first = request.first // g.size
        if strict:
            gone = up(end, g.size) - self.first - n
            if gone > 0 and n and g.window > 0 and g.kind != "rswa":
                self.first += gone
            b, e = dead_tokens(g, request, end)
            self.dead = up(b, g.tps), e // g.tps
        self.begin = max(request.first // g.tps, self.first * each)
        self.end = min(up(end, g.tps), (self.first + n) * each)

    def entry(self, at):
        return at if self.g.recurrent else at // self.g.n[S] - self.first

    def in_hole(self, at):
        if self.g.recurrent:
            return False
        tokens = range(at * self.g.tps, (at + 1) * self.g.tps)
        first, end = self.request.first, self.request.first + self.request.tokens
        tokens = [t for t in tokens if first <= t < end]
        return all(any(g == self.i and b <= t < e for g, b, e in self.request.holes)
                   for t in tokens)

    def needed(self, at):
        if not self.strict or self.g.recurrent:
            return True
        return not self.dead[0] <= at < self.dead[1] and not (
            self.request.holes and self.in_hole(at))

    def is_null(self, at):
        return self.g.null >= 0 and self.blocks[self.entry(at)] == self.g.null

    def live(self):
        """[(position, block, slot)]"""
        each = 1 if self.g.recurrent else self.g.n[S]
        return [(at, self.blocks[self.entry(at)], at % each)
                for at in range(self.begin, self.end)
                if self.needed(at) and not (self.strict and self.is_null(at))]

    def names_null(self):
        each = 1 if self.g.recurrent else self.g.n[S]
        return any(b == self.g.null and (self.first + j) * each < self.end
                   for j, b in enumerate(self.blocks) if self.g.null >= 0)


def version(dump, i):
    """2 if the live slots of a group are not all that its tables name."""
    g = dump.groups[i]
    return 2 if g.forgets() or any(
        any(h[0] == i for h in r.holes) or Table(g, i, r, True).names_null()
        for r in dump.requests) else 1


# ---- digests ------------------------------------------------------------------

def cells(g):
    """Content hashes [L, B, S, N, 2], and head and component of each of the N."""
    rows = g.data
    if g.kind == "mamba_conv":
        rows = rows.transpose(L, B, H, K, D, S)
        number = {"x": 3, "B": 4, "C": 5}
        head, component = np.arange(g.n[D]), np.full(g.n[D], 7)
        for name, start, length, whole in g.parts:
            head[start:start + length] = whole + np.arange(length)
            component[start:start + length] = number.get(name, 7)
        shape = g.n[L], g.n[B], 1, g.n[D], 2
    else:
        half = g.half()
        kinds = [6] if g.kind == "mamba_ssm" else ["kv".index(half)] if half else \
            [2] if g.n[K] == 1 else [0, 1]
        head = np.repeat(np.arange(g.n[H]) + g.head, g.n[K])
        component = np.tile(kinds, g.n[H])
        shape = g.n[L], g.n[B], g.n[S], g.n[H] * g.n[K], 2
    rows = np.ascontiguousarray(rows).reshape(-1, rows.shape[-1])
    return hash_rows(rows.view(np.uint8)).reshape(shape), head, component


def placed(g, content, head, component, at):
    """Sum of the cells at [(position, slot, block, slot in the block)]."""
    if not at:
        return np.zeros(2, dtype=np.uint64)
    position, slot, block, here = (np.array(x) for x in zip(*at))
    return fold(cell_hashes(
        content[:, block, here], np.array(g.layers).reshape(-1, 1, 1),
        position.reshape(-1, 1), slot.reshape(-1, 1), head, component))


def digests(dump):
    """(tokens or None, blocks) as kvtool digest prints them."""
    blocks, tokens = (np.zeros(2, dtype=np.uint64) for _ in "ab")
    newest = 1
    for i, g in enumerate(dump.groups):
        hashed = cells(g)
        slots = range(hashed[0].shape[2])
        blocks += placed(g, *hashed, [(g.blocks[b], s, b, s) for b in range(g.n[B])
                                      for s in slots])
        v = version(dump, i)
        newest = max(newest, v)
        for r in dump.requests:
            live = Table(g, i, r, v == 2).live()
            tokens += weight(r.id) * placed(g, *hashed,
                                            [(at, 0, b, s) for at, b, s in live])
    return (f"kvd{newest}:tokens:{int(tokens[1]):016x}{int(tokens[0]):016x}"
            if dump.requests or not dump.groups else None,
            f"kvd1:blocks:{int(blocks[1]):016x}{int(blocks[0]):016x}")


# ---- slice --------------------------------------------------------------------

def owned(units, size, rank):
    if units % size == 0:
        return rank * (units // size), (rank + 1) * (units // size)
    if size % units == 0:
        unit = rank // (size // units)
        return unit, unit + 1
    bad(f"{units} heads, {size} ranks")


def given(units, size, rank, others, other):
    """
    [begin, end) of what a rank sends to one of 'others': each unit that is wanted
    comes once, from the first rank that holds it of those at its place.
    """
    mine, wanted = owned(units, size, rank), owned(units, others, other)
    first, count = (other * size // others, size // others) if size >= others else \
        (other * size // others, 1)
    out = [u for u in range(*wanted) if mine[0] <= u < mine[1] and rank == next(
        c for c in range(first, first + count)
        if owned(units, size, c)[0] <= u < owned(units, size, c)[1])]
    return (out[0], out[-1] + 1) if out else None


def component_names(g):
    if g.kind == "mamba_ssm":
        return ["ssm"]
    if g.half():
        return [g.half()]
    if g.n[K] == 2:
        return ["k", "v"]
    return [p[0] for p in g.parts] if g.kind == "mamba_conv" else []


class Slice:
    """
    What is wanted: sets of ids, or None for all.  heads and tokens are (a, b), tp is
    (size, rank), 'to' another rank that it sends to, groups the groups of B and C of
    a convolution state.
    """

    def __init__(self, layers=None, blocks=None, heads=None, tokens=None,
                 requests=None, components=None, tp=None, groups=None, to=None):
        self.layers, self.blocks, self.heads = layers, blocks, heads
        self.tokens, self.requests, self.components = tokens, requests, components
        self.tp, self.groups, self.to = tp, groups, to

    def of(self, dump):
        out = dump.copy()
        self.check(dump)
        before = {r.id: r for r in dump.requests}
        if self.requests is not None:
            out.requests = [r for r in out.requests if r.id in self.requests]
        if self.tokens is not None:
            self.cut_tokens(out)
        self.cut_groups(out)
        for g in out.groups:
            self.cut_width(g, dump)
        if self.tp is not None:
            out.tp = tuple(self.tp)
        out.requests = [r for r in out.requests if self.remains(out, r, before[r.id])]
        return out.complete()

    def check(self, dump):
        def some(wanted, have, what):
            if wanted is not None and not wanted <= have:
                bad(f"no {what} {sorted(wanted - have)}")
        some(self.layers, {i for g in dump.groups for i in g.layers}, "layer")
        some(self.blocks, {i for g in dump.groups for i in g.blocks}, "block")
        some(self.components, {c for g in dump.groups for c in component_names(g)},
             "component")
        some(self.requests, {r.id for r in dump.requests}, "request")
        if self.to is None:
            return
        if dump.tp[0] == self.tp[0] and dump.tp[1] != self.tp[1]:
            bad("another rank")
        for g in dump.groups:
            if g.kind.startswith("mamba") or g.kind == "opaque":
                raise NotImplementedError
            if not self.wants(g):
                continue
            owned(g.total, *self.to)
            span = self.gives(g)
            if dump.tp == tuple(self.tp) and span and \
                    not g.head <= span[0] < span[1] <= g.head + g.n[H]:
                bad("not all that the rank sends")

    def gives(self, g):
        """Heads of the model; None: nothing."""
        return given(g.total, *self.tp, *self.to)

    def wants(self, g):
        return (self.layers is None or bool(self.layers & set(g.layers))) and \
            (self.components is None or
             bool(self.components & set(component_names(g))))

    # tokens

    def cut_tokens(self, out):
        a, b = self.tokens
        if not out.requests:
            bad("no requests")
        if a < min(r.first for r in out.requests) or \
                b > max(r.first + r.tokens for r in out.requests):
            bad("no such token")
        for r in out.requests:
            if a >= r.first + r.tokens or b <= r.first or not r.tokens:
                r.blocks = [[] for _ in r.blocks]
                r.tokens, r.holes = 0, []
                continue
            begin, end = max(a, r.first), min(b, r.first + r.tokens)
            for i, g in enumerate(out.groups):
                if r.blocks[i] and self.wants(g):
                    self.cut_table(g, i, r, begin, end)
            r.cut_holes(begin, end)
            r.first, r.tokens = begin, end - begin
        for g in out.groups:
            if not g.recurrent and not g.window:
                g.valid = None

    @staticmethod
    def cut_table(g, i, r, begin, end):
        last = r.first + r.tokens
        if (begin, end) != (r.first, last):
            if g.recurrent:
                bad("all groups are recurrent")
            if begin % g.tps or (end % g.tps and end != last):
                bad("inside a slot")
        if g.recurrent:
            return
        was = Table(g, i, r, True)
        a = max(begin // g.size - was.first, 0)
        b = (end - 1) // g.size - was.first + 1
        table = r.blocks[i]
        r.blocks[i] = []
        if b > len(table) or a >= b:
            return
        shorter = Request(r.id, end - begin, begin, r.prompt, list(r.blocks), r.holes)
        shorter.blocks[i] = table[a:b]
        if Slice.has_all(g, i, shorter):
            r.blocks[i] = table[a:b]

    @staticmethod
    def has_all(g, i, r):
        """Has a table all that a group with a window needs of such a request?"""
        if not g.window and not g.forgets():
            return True
        t = Table(g, i, r, True)
        wanted = range(r.first // g.tps, t.begin)
        if any(not t.dead[0] <= at < t.dead[1] for at in wanted):
            return False
        return not any(t.needed(at) and t.is_null(at) for at in range(t.begin, t.end))

    # layers and blocks

    def cut_groups(self, out):
        kept = []
        some = self.requests is not None or self.tokens is not None
        for i, g in enumerate(out.groups):
            ls = [l for l, x in enumerate(g.layers)
                  if self.layers is None or x in self.layers]
            used = {b for r in out.requests for b in r.blocks[i]}
            bs = [b for b, x in enumerate(g.blocks)
                  if (self.blocks is None or x in self.blocks) and
                  (not some or b in used)]
            if not self.wants(g) or not ls or not bs or \
                    (self.to is not None and not self.gives(g)):
                continue
            kept.append(i)
            g.data = g.data[ls][:, bs]
            g.layers, g.names = [g.layers[l] for l in ls], [g.names[l] for l in ls]
            g.blocks = [g.blocks[b] for b in bs]
            g.valid = g.valid and [g.valid[b] for b in bs]
            g.null = bs.index(g.null) if g.null in bs else -1
            for r in out.requests:
                self.renumber(g, i, r, bs)
        if not kept and self.to is None:
            bad("nothing remains")
        out.groups = [out.groups[i] for i in kept]
        for r in out.requests:
            r.blocks = [r.blocks[i] for i in kept]
            r.holes = [[kept.index(g), b, e] for g, b, e in r.holes if g in kept]

    @staticmethod
    def renumber(g, i, r, bs):
        table = []
        for b in r.blocks[i]:
            if b not in bs:
                break
            table.append(bs.index(b))
        whole = len(table) == len(r.blocks[i])
        r.blocks[i] = table
        if whole:
            return
        if g.window:
            r.blocks[i] = []
        elif g.size:
            room = len(table) * g.size - r.first % g.size
            r.tokens = min(r.tokens, max(room, 0))

    def remains(self, out, r, before):
        if r.tokens < before.tokens:
            for i, g in enumerate(out.groups):
                if g.size and not g.window:
                    del r.blocks[i][up(r.first % g.size + r.tokens, g.size):]
            r.cut_holes(r.first, r.first + r.tokens)
        return any(r.blocks) or not any(before.blocks)

    # heads, channels, components

    def cut_width(self, g, whole):
        if self.heads is not None:
            if g.kind == "mamba_conv":
                bad("channels")
            self.take_heads(g, *self.heads)
        elif self.tp is not None and tuple(self.tp) != whole.tp:
            if g.kind == "mamba_conv":
                self.take_channels(g, whole)
            else:
                self.take_rank(g)
        if self.to is not None:
            self.take_heads(g, *self.gives(g))
        if self.components is None:
            return
        if g.kind == "mamba_conv":
            self.take_parts(g)
        elif g.n[K] == 2 and len(self.components & {"k", "v"}) == 1:
            half = (self.components & {"k", "v"}).pop()
            k = "kv".index(half)
            g.data = g.data[..., k:k + 1, :]
            g.keep_plane(k)
            g.parts = [[half, 0, g.n[D], 0]]

    @staticmethod
    def take_heads(g, a, b):
        if a < g.head or b > g.head + g.n[H] or a >= b:
            bad("no such head")
        g.data = g.data[:, :, :, a - g.head:b - g.head]
        g.head = a

    def take_rank(self, g):
        size, rank = self.tp
        if g.kind == "opaque":
            raise Refused(UNSUPPORTED, "opaque")
        if g.kind == "mamba_ssm" and g.total % size:
            bad("state heads")
        a, b = owned(g.total, size, rank)
        g.replicas = size // g.total if size > g.total else 1
        self.take_heads(g, a, b)

    def take_channels(self, g, whole):
        """x evenly, of B and C the groups that its share of x uses."""
        size, rank = self.tp
        if not self.groups or [p[0] for p in g.parts] != ["x", "B", "C"] or \
                whole.tp != (1, 0):
            raise NotImplementedError
        take, parts, at = [], [], 0
        for name, start, length, first in g.parts:
            units = length if name == "x" else self.groups
            a, b = owned(units, size, rank)
            a, b = a * (length // units), b * (length // units)
            take += range(start + a, start + b)
            parts.append([name, at, b - a, first + a])
            at += b - a
        g.data, g.parts = g.data[..., take], parts

    def take_parts(self, g):
        take, parts, at = [], [], 0
        for name, start, length, first in g.parts:
            if name in self.components:
                take += range(start, start + length)
                parts.append([name, at, length, first])
                at += length
        g.data, g.parts = g.data[..., take], parts


# ---- merge --------------------------------------------------------------------

def merge(dumps):
    """In any order of the ranks."""
    ranks = sorted(dumps, key=lambda d: d.tp[1])
    if [d.tp for d in ranks] != [(len(ranks), i) for i in range(len(ranks))]:
        bad("not all ranks")
    first = ranks[0]
    for d in ranks:
        if len(d.groups) != len(first.groups):
            bad("groups")
        for a, b in zip(first.groups, d.groups):
            check_same(a, b)
        if [r.facts() for r in d.requests] != [r.facts() for r in first.requests]:
            bad("requests")
    out = first.copy()
    for i, g in enumerate(out.groups):
        if g.kind == "mamba_conv":
            join_channels(g, [d.groups[i] for d in ranks])
        else:
            join_heads(g, [d.groups[i] for d in ranks])
        g.head, g.replicas = 0, 1
    out.tp = 1, 0
    return out


def check_same(a, b):
    x, y = a.facts(), b.facts()
    for f in (x, y):
        for key in ("head_start", "replication", "components"):
            del f[key]
        del f["shape"][5 if a.kind == "mamba_conv" else 3]
    if x != y or a.data.dtype != b.data.dtype or len(a.parts) != len(b.parts):
        bad("ranks differ")


def join_heads(g, ranks):
    data = np.zeros(g.n[:H] + (g.total,) + g.n[K:], g.data.dtype)
    if g.kind == "opaque" and len(ranks) > 1:
        raise Refused(UNSUPPORTED, "opaque")
    for i, r in enumerate(ranks):
        if (r.head, r.head + r.n[H]) != owned(g.total, len(ranks), i):
            bad("not its heads")
        data[:, :, :, r.head:r.head + r.n[H]] = r.data
    g.data = data


def join_channels(g, ranks):
    """Each part from end to end; what several ranks hold counts once."""
    portions, parts, at = [], [], 0
    for i, part in enumerate(g.parts):
        held = {r.parts[i][3]: r.data[..., r.parts[i][1]:][..., :r.parts[i][2]]
                for r in ranks}
        length = 0
        for begin in sorted(held):
            if begin != min(held) + length:
                bad("channels")
            length += held[begin].shape[-1]
            portions.append(held[begin])
        parts.append([part[0], at, length, min(held)])
        at += length
    g.data, g.parts = np.concatenate(portions, axis=-1), parts


# ---- reblock ------------------------------------------------------------------

class Reblock:
    def __init__(self, size, compact=False, stale=None):
        self.size, self.compact, self.stale = size, compact, stale

    def of(self, dump):
        out = dump.copy()
        if all(g.recurrent for g in dump.groups):
            bad("no blocks of tokens")
        if any(r.first for r in dump.requests):
            raise Refused(UNSUPPORTED, "does not begin at 0")
        for i, g in enumerate(dump.groups):
            self.group(dump, g, i, out)
        return out.complete()

    def group(self, dump, g, i, out):
        if not g.recurrent and self.size % g.tps:
            bad("slots of several tokens")
        tables = any(r.blocks[i] for r in dump.requests)
        if g.recurrent and not (self.compact and tables):
            return
        self.old, self.new = g.n[S], g.n[S] if g.recurrent else self.size // g.tps
        self.tables = [r.blocks[i] for r in dump.requests]
        self.count = [self.slots(g, r, i) for r in dump.requests]
        self.used = self.used_slots(g) if tables else None
        if not tables and (self.compact or self.stale == "zero"):
            bad("no tables")
        if not self.compact and self.in_place(g, dump, i):
            if self.new != self.old or self.stale == "zero":
                self.regroup(g, i, dump, out)
        elif not tables:
            bad("no tables")
        else:
            self.check_windows(g, i, dump)
            self.gather(g, i, out)

    def slots(self, g, r, i):
        """Slots of a request that its table holds."""
        had = len(r.blocks[i])
        if g.recurrent or not had:
            return had * self.old
        slots = up(r.tokens, g.tps)
        lost = up(slots, self.old) - had
        return slots - lost * self.old if lost > 0 else slots

    def used_slots(self, g):
        """live[b]: slots of a block before the last that a request needs."""
        live = [0] * g.n[B]
        for table, count in zip(self.tables, self.count):
            mine = [b for b in table[:up(count, self.old)] if b != g.null]
            if len(set(mine)) < len(mine):
                bad("a block twice")
            for n, b in enumerate(table[:up(count, self.old)]):
                live[b] = max(live[b], min(self.old, count - n * self.old))
        return live

    def lost(self, g, r, i):
        """Entries that a window has lost in front; negative: allocated ahead."""
        return up(up(r.tokens, g.tps), self.old) - len(r.blocks[i])

    def in_place(self, g, dump, i):
        if self.old % self.new == 0:
            return True
        if self.new % self.old:
            return False
        k = self.new // self.old
        ids = g.blocks
        if g.n[B] % k or any(ids[b] != ids[b - b % k] + b % k or
                             ids[b - b % k] % k for b in range(g.n[B])):
            return False
        if self.used is None:
            return True
        for r in dump.requests:
            table, lost = r.blocks[i], self.lost(g, r, i)
            if table and lost > 0 and lost % k:
                return False
            for n, b in enumerate(table):
                if (g.null >= 0 and b // k == g.null // k) or \
                        (n % k == 0 and b % k) or (n % k and b != table[n - 1] + 1):
                    return False
        return g.null < 0 or g.null % k == 0

    def check_windows(self, g, i, dump):
        for r in dump.requests:
            n = len(r.blocks[i])
            if n and not g.recurrent and self.new != self.old and \
                    (r.tokens - 1) // g.size >= n:
                bad("only the end of a window")

    def put(self, g, after, rows, null):
        """rows[b] = (block, slot) or None for each slot of the new block b."""
        data = np.zeros((g.n[L], len(rows), self.new) + g.n[H:], g.data.dtype)
        for b, row in enumerate(rows):
            for s, where in enumerate(row):
                if where:
                    data[:, b, s] = g.data[:, where[0], where[1]]
        if not g.holds(self.new):
            raise Refused(UNSUPPORTED, "the layout splits slots")
        after.data, after.null, after.valid = data, null, None
        if not g.recurrent:
            after.size = self.new * g.tps

    def regroup(self, g, i, dump, out):
        slots = g.n[B] * self.old
        rows = [[divmod(n, self.old) for n in range(at, at + self.new)]
                for at in range(0, slots, self.new)]
        if self.stale == "zero":
            rows = [[(b, s) if b == g.null or s < self.used[b] else None
                     for b, s in row] for row in rows]
        after = out.groups[i]
        null = g.null * self.old // self.new if g.null >= 0 else -1
        if self.new > self.old and self.used is None:
            null = -1
        # of one that was cut the first portion stays, of several the first names all
        after.blocks = [g.blocks[n // self.old] * self.old // self.new +
                        n % self.old // self.new for n in range(0, slots, self.new)]
        for r, now in zip(dump.requests, out.requests):
            table = []
            for n in range(0, len(r.blocks[i]) * self.old, self.new):
                b = r.blocks[i][n // self.old]
                at = 0 if b == g.null else n % self.old
                table.append((b * self.old + at) // self.new)
            if table and self.new != self.old:
                ahead = max(self.lost(g, r, i), 0) * self.old // self.new
                del table[max(up(up(r.tokens, g.tps), self.new) - ahead, 0):]
            now.blocks[i] = table
        self.put(g, after, rows, null)

    def gather(self, g, i, out):
        """Slot by slot; requests share a block if one begins as the other does."""
        blocks = [] if g.null < 0 else [None]
        for now, table, count in zip(out.requests, self.tables, self.count):
            held = [(b, s) for b in table for s in range(self.old)]
            slots, now.blocks[i] = held[:count], []
            for n in range(0, count, self.new):
                part, rest = slots[n:n + self.new], held[n:n + self.new]
                if g.null >= 0 and all(b == g.null for b, _ in part):
                    now.blocks[i].append(0)
                    continue
                found = self.find(blocks, part)
                if found is None:
                    found = len(blocks)
                    blocks.append((part, rest))
                elif len(part) > len(blocks[found][0]):
                    blocks[found] = part, rest
                now.blocks[i].append(found)
        rows = []
        for block in blocks:
            row = [(g.null, s) for s in range(min(self.old, self.new))] \
                if block is None else block[self.stale == "keep"]
            rows.append(row + [None] * (self.new - len(row)))
        after = out.groups[i]
        after.blocks = list(range(len(rows)))
        self.put(g, after, rows, 0 if g.null >= 0 else -1)

    @staticmethod
    def find(blocks, part):
        """The newest that begins as this one does."""
        for i in reversed(range(len(blocks))):
            have = blocks[i][0] if blocks[i] else []
            n = min(len(have), len(part))
            if n and have[:n] == part[:n]:
                return i
        return None


# ---- graft, replace -------------------------------------------------------------

def graft(base, donor, spans):
    """
    spans[g] = (group of the donor, [(block, slot, block, slot, count)], given), from
    the donor's to the base's; layers are the same by their ids.  'given' is None, or
    an axis and [(there, here, count)] along it.
    """
    out = base.copy()
    for g, (i, rows, some) in spans.items():
        mine, other = out.groups[g], donor.groups[i]
        here = {(b, s) for _, _, b, at, n in rows for s in range(at, at + n)}
        if len(here) < sum(row[4] for row in rows):
            bad("a slot twice")
        layers = [other.layers.index(x) for x in mine.layers]
        axis, ranges = some or (D, [(0, 0, mine.n[D])])
        there, here = (np.concatenate([np.arange(r[k], r[k] + r[2]) for r in ranges])
                       for k in (0, 1))
        # what is given last of one dump may be read first of the same
        data = mine.data.copy()
        for sb, ss, db, ds, n in rows:
            to = np.moveaxis(data[:, db, ds:ds + n], axis - 1, -1)
            to[..., here] = np.moveaxis(other.data[layers, sb, ss:ss + n], axis - 1,
                                        -1)[..., there]
        mine.data = data
    return out


def replace(dump, g, data):
    out = dump.copy()
    out.groups[g].data = data.copy()
    return out
