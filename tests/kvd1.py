# SPDX-License-Identifier: Apache-2.0
"""
kvd1.py - the digest of kvtool-digest(1), written down a second time

Hashes every cell of a dump from its sidecar and from the definition alone; the
program's own output is only read, by printed() and whole().
"""
import os
import re
import sys

import numpy as np

import oracle
from oracle import kvtool, read_json

try:
    import xxhash
except ImportError:
    print("1..0 # SKIP this needs the package python3-xxhash")
    sys.exit(0)

KEY, VALUE, CONTENT, CONV_X, CONV_B, CONV_C, SSM = range(7)
MASK = (1 << 64) - 1


# ---- the definition ---------------------------------------------------------

def hash_rows(rows):
    """XXH3-128 of each row of bytes: [n, 2] = low and high lane."""
    n, size = rows.shape
    data = memoryview(np.ascontiguousarray(rows).reshape(-1))
    out = np.empty((n, 2), dtype=np.uint64)
    for i in range(n):
        h = xxhash.xxh3_128_intdigest(data[i * size:(i + 1) * size])
        out[i] = h & MASK, h >> 64
    return out


def cell_hashes(content, *fields):
    """content [..., 2] and the five fields, broadcast to content's shape."""
    message = np.empty(content.shape[:-1] + (7,), dtype="<u8")
    message[..., :2] = content
    for i, field in enumerate(fields):
        message[..., 2 + i] = field
    shape = content.shape
    return hash_rows(message.reshape(-1, 7).view(np.uint8)).reshape(shape)


def weight(request):
    h = xxhash.xxh3_128_intdigest(request.encode())
    return np.array([h & MASK | 1, h >> 64 | 1], dtype=np.uint64)


def fold(hashes):
    """Lane sums modulo 2^64 over all but the last axis."""
    return hashes.reshape(-1, 2).sum(axis=0, dtype=np.uint64)


def lanes_of(value):
    """What text() was given."""
    bits = value.split(":")[2]
    return int(bits[16:], 16), int(bits[:16], 16)


def text(scope, lanes):
    return f"kvd1:{scope}:{int(lanes[1]):016x}{int(lanes[0]):016x}"


class Pool:
    """
    content[L, B, S, N, 2] with the head and the component of each of the N
    cells of a slot; live[request] = (block, slot) of each position.
    """

    def __init__(self, content, head, component, live):
        self.content, self.head, self.component = content, head, component
        self.live = live
        self._made = {}

    def blocks(self):
        """Hashes [L, B, S, N, 2] at pool positions."""
        if "blocks" not in self._made:
            L, B, S, _ = self.content.shape[:4]
            self._made["blocks"] = cell_hashes(
                self.content, np.arange(L).reshape(-1, 1, 1, 1),
                np.arange(B).reshape(-1, 1, 1), np.arange(S).reshape(-1, 1),
                self.head, self.component)
        return self._made["blocks"]

    def tokens(self, request):
        """Hashes [L, T, N, 2] at the positions of a request."""
        if request not in self._made:
            block, slot = self.live[request]
            content = self.content[:, block, slot]
            L, T = content.shape[:2]
            self._made[request] = cell_hashes(
                content, np.arange(L).reshape(-1, 1, 1),
                np.arange(T).reshape(-1, 1), 0, self.head, self.component)
        return self._made[request]

    def requests(self):
        return {f"request={r}": fold(self.tokens(r)) for r in self.live}

    def weighted(self, part):
        out = np.zeros(2, dtype=np.uint64)
        for r in self.live:
            out += weight(r) * fold(part(self.tokens(r)))
        return out

    def heads(self):
        return sorted(set(self.head.tolist()))

    def expected(self, scope, by):
        """{label: lanes}; None where the two do not go together."""
        L = range(self.content.shape[0])
        if scope == "tokens":
            take = self.weighted
        else:
            def take(part):
                return fold(part(self.blocks()))
        if by == "whole":
            return {"": take(lambda h: h)}
        if by == "layer":
            return {f"layer={l}": take(lambda h: h[l]) for l in L}
        if by == "head":
            return {f"layer={l} head={n}":
                    take(lambda h: h[l][..., self.head == n, :])
                    for l in L for n in self.heads()}
        if by == "request" and scope == "tokens":
            return self.requests()
        if by == "block":
            return {f"block={b}": self.of_block(scope, b)
                    for b in range(self.content.shape[1])}
        return None

    def of_block(self, scope, b):
        if scope == "blocks":
            return fold(self.blocks()[:, b])
        out = np.zeros(2, dtype=np.uint64)
        for r, (block, _) in self.live.items():
            out += weight(r) * fold(self.tokens(r)[:, block == b])
        return out


SCOPES = ("tokens", "blocks")
BYS = ("whole", "request", "layer", "head", "block")


# ---- pools out of dumps -----------------------------------------------------

def table_live(tables, ntokens, slots):
    live = {}
    for r, table in tables.items():
        t = np.arange(ntokens[r])
        live[r] = (np.array(table)[t // slots], t % slots)
    return live


def attention_content(cells):
    """cells[K, L, B, S, H, D] -> content [L, B, S, H * K, 2]."""
    K, L, B, S, H, D = cells.shape
    rows = cells.transpose(1, 2, 3, 4, 0, 5).reshape(-1, D)
    rows = np.ascontiguousarray(rows).view(np.uint8)
    return hash_rows(rows).reshape(L, B, S, H * K, 2)


def attention_axes(heads, first, latent):
    if latent:
        return np.zeros(1, int), np.array([CONTENT])
    return (np.repeat(np.arange(heads) + first, 2), np.tile([KEY, VALUE], heads))


def attention_pool(dump, cells=None, tables=None):
    cells = dump.cells if cells is None else cells
    head, component = attention_axes(dump.dims["H"], dump.head_start, dump.latent)
    return Pool(attention_content(cells), head, component,
                table_live(tables or dump.tables, dump.ntokens,
                           dump.dims["S"]))


def conv_cells(page, conv):
    """[L, B, channels, taps] as bits, taps oldest first."""
    L, B = page.shape[:2]
    start, shape = conv["byte_offset"], conv["shape"]
    raw = page[:, :, start:start + 2 * shape[0] * shape[1]]
    taps_last = conv["axes"][0] == "dim"
    cells = np.ascontiguousarray(raw).view("<u2").reshape(L, B, *shape)
    return cells if taps_last else cells.transpose(0, 1, 3, 2)


def conv_heads(conv):
    """Index of each channel in the whole model, and the part it belongs to."""
    head, component = [], []
    for code, part in ((CONV_X, "x"), (CONV_B, "B"), (CONV_C, "C")):
        begin, end = conv[part]
        first = conv["global_" + part][0]
        head += range(first, first + end - begin)
        component += [code] * (end - begin)
    return head, component


class MambaDump:
    def __init__(self, sidecar):
        self.side = read_json(sidecar)
        self.name = sidecar[len(oracle.DATA) + 1:-5]
        self.folder = os.path.basename(os.path.dirname(sidecar))
        self.path = os.path.join(os.path.dirname(sidecar), self.side["file"])
        self.page = np.load(self.path).reshape(
            self.side["sizes"]["layers"], self.side["sizes"]["num_blocks"], -1)

    def pool(self):
        side = self.side
        conv = conv_cells(self.page, side["conv"])
        head, component = conv_heads(side["conv"])
        at, (heads, dim, state) = (side["ssm"]["byte_offset"], side["ssm"]["shape"])
        ssm = np.ascontiguousarray(self.page[:, :, at:at + 4 * heads * dim * state])
        L, B, channels, taps = conv.shape
        content = np.concatenate([
            hash_rows(np.ascontiguousarray(conv).view(np.uint8)
                      .reshape(-1, 2 * taps)).reshape(L, B, 1, channels, 2),
            hash_rows(ssm.reshape(-1, 4 * dim * state))
            .reshape(L, B, 1, heads, 2)], axis=3)
        head += range(*side["ssm"]["heads"])
        component += [SSM] * heads
        live = {r: (np.array(t), np.zeros(len(t), int))
                for r, t in side["block_table"].items()}
        return Pool(content, np.array(head), np.array(component), live)


def connector_cells(path, shape, heads):
    """[L, T, H, K, D] of a request as bits; shape as layout.json words it."""
    layers = []
    names = sorted(os.listdir(path),
                   key=lambda n: [int(x) for x in re.findall(r"\d+", n)])
    for name in names:
        (_, extents, raw), = oracle.safetensors_tensors(f"{path}/{name}").values()
        a = np.frombuffer(raw, np.uint16).reshape(extents)
        if shape.startswith("[2,"):
            a = a.reshape(2, extents[1], heads, -1).transpose(1, 2, 0, 3)
        elif shape.startswith("[tokens, 2,"):
            a = a.transpose(0, 2, 1, 3)
        elif heads:
            a = a.reshape(extents[0], heads, 2, -1)
        else:
            a = a.reshape(extents[0], 1, 1, -1)
        layers.append(a)
    return np.stack(layers)


def connector_pool(top, model):
    """All requests side by side: a pool of one block as long as the tokens."""
    side = read_json(f"{top}/layout.json")
    heads = {"s260k": 4, "gqa64": 2, "mla144": 0}[model]
    cells, live, at = [], {}, 0
    for folder in sorted(side["requests"]):
        c = connector_cells(f"{top}/{folder}", side["shape"], heads)
        n = c.shape[1]
        if n != side["requests"][folder]["stored_tokens"]:
            raise ValueError(f"{top}/{folder}: {n} tokens")
        live[folder] = (np.zeros(n, int), np.arange(at, at + n))
        at += n
        cells.append(c)
    cells = np.concatenate(cells, axis=1)[:, None].transpose(4, 0, 1, 2, 3, 5)
    head, component = attention_axes(heads, 0, heads == 0)
    pool = Pool(attention_content(cells), head, component, live)
    pool.names = {f: r["request"] for f, r in side["requests"].items()}
    # [2, T, H*D] does not show H, and T, 2, X may be 2 heads or K and V
    pool.hints = ["--heads", str(heads), "--block-size=16"] if heads else \
        ["--block-size=16"]
    # [T, H, 2*D] may be rows of packed blocks
    if top.endswith("2026_07"):
        pool.hints.append("--layout=nhd")
    return pool


# ---- what the program says --------------------------------------------------

LINE = re.compile(r"(kvd[12]:(\w+):[0-9a-f]{32})  (?:([^/]*=[^/]*)  )?(.*)")


def printed(path, *options):
    """({scope: {label: value}}, what it said)"""
    r = kvtool("digest", *options, path)
    found = {}
    for line in r.out.splitlines():
        m = LINE.fullmatch(line)
        if not m or m[4] != str(path):
            return None, f"line '{line}' of {r}"
        found.setdefault(m[2], {})[m[3] or ""] = m[1]
    return (found if r.code == 0 else None), str(r)


def by_request(path, *options):
    """The digests of the requests, in the order of the file, without names."""
    r = kvtool("digest", "--scope=tokens", "--by=request", *options, path)
    lines = [line.split()[0] for line in r.out.splitlines()]
    return lines if r.code == 0 and lines else str(r)


def whole(path, *options):
    """(tokens, blocks) as printed; None where there is none."""
    found, _ = printed(path, *options)
    found = found or {}
    return tuple(found.get(s, {}).get("") for s in SCOPES)
