#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_nonfinite.py - NaN, infinities and zeros, planted where they are known

Dumps of every element type and many layouts are made of finite numbers that are not
zero, with requests, slots that nobody uses and a null block.  Then something is planted,
and fsck must tell just that: where, by which name, and nothing else.  What is where, and
which bits are no number, is worked out here.
"""
import collections
import os

import numpy as np

import content_model as model
import oracle
from foreign_files import Q8_0, Cells, ggsq_bytes, memory_bytes
from oracle import (DATA, FULL, kvtool, place, read_json, runs, tap, write_bytes,
                    write_json)

CASES = 1000 if FULL else 240

# bits of NaN, of infinity; the mask of the exponent, which all numbers here have part of
TYPES = {
    "bfloat16": ("<u2", [0x7fc0, 0xffff, 0x7f81], [0x7f80, 0xff80]),
    "float16": ("<u2", [0x7e00, 0xfc01, 0x7fff], [0x7c00, 0xfc00]),
    "float32": ("<u4", [0x7fc00000, 0xff800001], [0x7f800000, 0xff800000]),
    "float64": ("<u8", [0x7ff8 << 48, 0xfff0 << 48 | 1], [0x7ff0 << 48, 0xfff0 << 48]),
    "float8_e4m3fn": ("u1", [0x7f, 0xff], []),
    "float8_e5m2": ("u1", [0x7d, 0x7f, 0xfe], [0x7c, 0xfc]),
    "float8_e4m3fnuz": ("u1", [0x80], []),
    "float8_e5m2fnuz": ("u1", [0x80], []),
}
# the highest that is finite, and what only looks like no number in another type
EDGES = {
    "bfloat16": [0x7f7f, 0xff7f, 0x7c01, 0x8000], "float16": [0x7bff, 0xfbff, 0x8000],
    "float32": [0x7f7fffff, 0x80000000], "float64": [0x7fe << 52, 1 << 63],
    "float8_e4m3fn": [0x7e, 0xfe, 0x7c, 0x80], "float8_e5m2": [0x7b, 0xfb, 0x80],
    "float8_e4m3fnuz": [0x7f, 0xff, 0x81], "float8_e5m2fnuz": [0x7f, 0xff, 0x7d],
}
LAYOUTS = ("nhd", "hnd", "blshc", "bhlsc", "lhbsc", "kv-first-nhd", "blocks-first-hnd",
           "flex-split", "head-halves", "cross-flex", "rocm-paged", "cpu-vec")
TABLES = {"A": [3, 6, 1], "B": [2, 7], "C": [5]}
NULL, NBLOCKS, SLOTS = 0, 9, 4
TOKENS = {"A": 10, "B": 7, "C": 3}
SAYS = {"live.nonfinite", "pool.nonfinite", "stale.nonfinite", "null.nonfinite",
        "layer.zero", "component.zero", "head.zero", "live.zero", "null.nonzero"}
SEVERITY = {"live.nonfinite": "error", "stale.nonfinite": "note",
            "null.nonfinite": "note", "null.nonzero": "note"}


def finite(rng, dtype, shape):
    """Any bits that are a number and not 0, among them the edges."""
    kind, nan, inf = TYPES[dtype]
    if np.dtype(kind).itemsize > 2:
        x = rng.standard_normal(shape).astype(kind.replace("u", "f"))
        bits = np.where(x == 0, 1, x).view(kind)
    else:
        top = 1 << 8 * np.dtype(kind).itemsize
        every = np.arange(top)
        low = every & (top // 2 - 1)
        bad = np.isin(every, nan + inf) | (every == 0)
        if dtype in ("bfloat16", "float16"):
            bad |= low >= inf[0]
        elif dtype == "float8_e5m2":
            bad |= low >= 0x7c
        bits = rng.choice(every[~bad], shape).astype(kind)
    flat = bits.reshape(-1)
    for edge in EDGES[dtype]:
        flat[rng.integers(flat.size)] = edge
    return bits


class Dump:
    """One group: cells[K, L, B, S, H, D] of some type, and who has the slots."""

    def __init__(self, rng, tmp, dtype, layout, known, shape, **said):
        self.dtype, self.layout, self.known, self.said = dtype, layout, known, said
        K, L, H, D = shape
        self.n = K, L, NBLOCKS, SLOTS, H, D
        self.path = f"{tmp}/d.npy"
        self.bits = finite(rng, dtype, self.n)
        self.live = np.zeros((NBLOCKS, SLOTS), bool)
        for r, table in TABLES.items():
            for t in range(TOKENS[r]):
                self.live[table[t // SLOTS], t % SLOTS] = True
        if known:
            self.bits[:, :, NULL] = 0

    def save(self):
        K, L, B, S, H, D = self.n
        kind = TYPES[self.dtype][0]
        np.save(self.path, np.frombuffer(place(self.bits, self.layout,
                                               np.dtype(kind).itemsize), kind))
        side = {"file": os.path.basename(self.path), "layout": self.layout,
                "dtype": self.dtype, **self.said,
                "sizes": {"layers": int(L), "num_blocks": B, "block_size": S,
                          "num_kv_heads": int(H),
                          "head_dim" if K == 2 else "content": int(D)}}
        if self.known:
            side.update(null_block=NULL, block_table=TABLES, num_tokens=TOKENS)
        write_json(self.path[:-4] + ".json", side)
        return self.path

    def at(self, layer, block, slot, head, kv, dim):
        K, H = self.n[0], self.n[4]
        return f"group=g0,layer={layer},block={block},slot={slot}" + \
            (f",head={head}" if H > 1 else "") + \
            (f",kv={'kv'[kv]}" if K > 1 else "") + f",dim={dim}"


def judge(name, path, want, *args):
    """Just these, each (name, at) as often as that; then what the text must say."""
    r = kvtool("fsck", "--json", *args, path)
    try:
        report = r.json["files"][0]
    except ValueError:
        return tap.ok(False, name, r)
    found = collections.Counter((f["name"], f["at"]) for f in report["findings"]
                                if f["name"] in SAYS)
    bad = [f for f in report["findings"]
           if f["name"] in SAYS and f["severity"] != SEVERITY.get(f["name"], "warning")]
    code = int(any(n == "live.nonfinite" for n, _ in want))
    return tap.ok(found == collections.Counter(want) and not bad and r.code == code,
                  name, f"{sorted((found - collections.Counter(want)).items())} too "
                  f"much, {sorted((collections.Counter(want) - found).items())} lacking"
                  f"\n{bad}\n{r}")


# ---- what is planted ----------------------------------------------------------

def slots_of(d, live):
    """[(block, slot)] of one kind; the null block is neither."""
    return [(b, s) for b in range(NBLOCKS) for s in range(SLOTS)
            if b != NULL and d.live[b, s] == live]


def plant_odd(d, rng, where):
    """One to three elements of one slot are NaN or infinite."""
    K, L, B, S, H, D = d.n
    kind, nan, inf = TYPES[d.dtype]
    layer = int(rng.integers(L))
    slots = {"live": slots_of(d, True), "unused": slots_of(d, False),
             "null": [(NULL, s) for s in range(SLOTS)]}[where]
    block, slot = slots[rng.integers(len(slots))]
    spots = sorted({(int(rng.integers(H)), int(rng.integers(K)), int(rng.integers(D)))
                    for _ in range(rng.integers(1, 4))})
    for h, k, i in spots:
        d.bits[k, layer, block, slot, h, i] = rng.choice(
            nan if not inf or rng.integers(2) else inf)
    h, k, i = spots[0]
    names = {"live": "live.nonfinite", "unused": "stale.nonfinite",
             "null": "null.nonfinite"}
    want = [(names[where] if d.known else "pool.nonfinite",
             d.at(layer, block, slot, h, k, i))]
    if where == "null" and d.known:
        want.append(("null.nonzero", f"group=g0,layer={layer},block={NULL},slot={slot}"))
    return want


def plant_slot(d, rng, kv=None):
    """A live slot without anything, or without its keys or values."""
    L = d.n[1]
    layer = int(rng.integers(L))
    block, slot = slots_of(d, True)[rng.integers(int(d.live.sum()))]
    at = f"group=g0,layer={layer},block={block},slot={slot}"
    if kv is None:
        d.bits[:, layer, block, slot] = 0
        return [("live.zero", at)]
    d.bits[kv, layer, block, slot] = 0
    return [("component.zero", f"{at},kv={'kv'[kv]}")]


def plant_layers(d, rng, kv=None, heads=None, request=None):
    """Some neighbouring layers, of all or of a request; all, or a part of it."""
    K, L, B, S, H, D = d.n
    first = int(rng.integers(L))
    last = int(rng.integers(first, L))
    blocks = TABLES[request] if request else range(d.known, B)
    k = slice(None) if kv is None else slice(kv, kv + 1)
    h = slice(None) if heads is None else slice(*heads)
    for b in blocks:
        d.bits[k, first:last + 1, b, :, h] = 0
    at = f"group=g0,layer={first}"
    if request is not None:
        at += f",request={request}"
    if heads is not None:
        at += f",head={heads[0]}"
    if kv is not None:
        at += f",kv={'kv'[kv]}"
    return [("head.zero" if heads else "layer.zero" if kv is None else "component.zero",
             at)]


def plant(d, rng):
    """(what, findings)"""
    H = d.n[4]
    some = sorted(rng.choice(H + 1, 2, replace=False).tolist())
    if H < 2 or some == [0, H]:
        some = None
    kv = [None, 0, 1][rng.integers(3)] if d.n[0] == 2 else None
    choices = ["odd", "odd", "odd", "layers", "sound"]
    choices += ["heads", "heads"] if some else []
    choices += ["slot"] if d.known else []
    choices += ["request"] if some and d.known else []
    what = choices[rng.integers(len(choices))]
    if what == "odd":
        where = ["live", "unused", "null"][rng.integers(3)]
        return f"not finite, {where}", plant_odd(d, rng, where)
    if what == "slot":
        return f"slot, kv {kv}", plant_slot(d, rng, kv)
    if what == "layers" and (d.known or d.n[1] > 1 or kv is not None):
        want = plant_layers(d, rng, kv)
        # nothing but zeros may be a pool that nobody uses yet
        return f"layers, kv {kv}", want if d.known or d.bits.any() else []
    if what == "heads":
        return f"heads {some}, kv {kv}", plant_layers(d, rng, kv, some)
    if what == "request":
        return f"heads {some} of B, kv {kv}", plant_layers(d, rng, kv, some, "B")
    return "sound", []


def fitting(L, H, D, itemsize):
    dims = {"K": 2, "L": L, "B": NBLOCKS, "S": SLOTS, "H": H, "D": D}
    return [layout for layout in LAYOUTS if oracle.legal(layout, dims, itemsize)]


def check_generated(tmp):
    rng = np.random.default_rng(11)
    for i in range(CASES):
        dtype = list(TYPES)[i % len(TYPES)]
        latent = rng.integers(6) == 0
        K, L = 1 if latent else 2, int(rng.integers(1, 5))
        H = 1 if latent else int(rng.choice([1, 2, 4]))
        D = 48 if latent else int(rng.choice([8, 24, 32]))
        layout = rng.choice(["mla", "mla-cross"] if latent else
                            fitting(L, H, D, np.dtype(TYPES[dtype][0]).itemsize))
        d = Dump(rng, tmp, dtype, str(layout), bool(rng.integers(4)), (K, L, H, D))
        what, want = plant(d, rng)
        threads = ("--threads=1",) if rng.integers(2) else ()
        judge(f"{i}: {dtype} {layout} {d.n}{'' if d.known else ', no tables'}: {what}",
              d.save(), want, *threads)


# ---- parts of a row -----------------------------------------------------------

def check_parts(tmp):
    """The parts of a latent row are told by their names."""
    rng = np.random.default_rng(5)
    for part, (begin, end) in {"kv_c": (0, 32), "k_pe": (32, 48)}.items():
        d = Dump(rng, tmp, "bfloat16", "mla", True, (1, 3, 1, 48), kind="mla",
                 content=[["kv_c", 32], ["k_pe", 16]])
        d.bits[..., begin:end] = 0
        judge(f"all {part} are zeros", d.save(), [("component.zero", "group=g0,layer=0")])
        r = kvtool("fsck", d.path)
        tap.ok(f"layer=0: {part}: zeros in every live slot of layers 0 to 2" in r.out,
               f"{part} is named", r)


def pack(tmp, content, cells, tables=TABLES, tokens=TOKENS, per_slot=1, block=SLOTS):
    K, L, B, S, H, D = cells.shape
    path = f"{tmp}/p.npy"
    np.save(path, np.frombuffer(place(cells, "nhd" if K == 2 else "blshc", 1), np.uint8))
    write_json(path[:-4] + ".json",
               {"file": "p.npy", "layout": "nhd" if K == 2 else "blshc",
                "content_type": content, "tokens_per_slot": per_slot, "null_block": NULL,
                "block_table": tables, "num_tokens": tokens,
                "sizes": {"layers": L, "num_blocks": B, "block_size": block,
                          "num_kv_heads": H, "head_dim" if K == 2 else "content": D}})
    return path


def put(cells, at, first, values):
    cells[at][..., first:first + len(values)] = list(values)


def check_packed(tmp):
    rng = np.random.default_rng(3)
    nan = np.array([np.nan], "<f4").tobytes()
    where = "group=g0,layer=1,block=6,slot=2"
    rows = model.ds_mla(rng, 2, NBLOCKS, SLOTS, "e4m3fn")[0]
    rows[:, :, NULL] = 0
    judge("fp8-ds-mla: sound", pack(tmp, "fp8-ds-mla", rows), [])
    for what, first, value in (("nope", 500, b"\x7f"), ("scales", 516, nan),
                               ("rope", 528 + 126, b"\x80\xff")):
        one = rows.copy()
        put(one, (0, 1, 6, 2, 0), first, value)
        path = pack(tmp, "fp8-ds-mla", one)
        judge(f"fp8-ds-mla: {what}", path, [("live.nonfinite", where)])
        r = kvtool("fsck", path)
        word = "infinity" if what == "rope" else "NaN"
        tap.ok(f"1 {word} in the {what}; request A, token 6" in r.out,
               f"fp8-ds-mla: {what} is named", r)
    one = rows.copy()
    one[0, :, 1:, :, 0, 512:528] = 0
    judge("fp8-ds-mla: no scales", pack(tmp, "fp8-ds-mla", one),
          [("component.zero", "group=g0,layer=0")])

    pairs = model.per_token_head(rng, 2, NBLOCKS, SLOTS, 4, 24, "e4m3fn")[0]
    pairs[:, :, NULL] = 0
    judge("fp8-per-token-head: sound", pack(tmp, "fp8-per-token-head/e4m3fn", pairs), [])
    one = pairs.copy()
    put(one, (1, 1, 6, 2, 3), 24, nan)
    judge("fp8-per-token-head: scale of a value",
          pack(tmp, "fp8-per-token-head/e4m3fn", one),
          [("live.nonfinite", f"{where},head=3,kv=v")])
    # the same byte without a type of fp8 is a number that nobody knows
    one = pairs.copy()
    put(one, (1, 1, 6, 2, 3), 3, b"\x7f")
    judge("fp8-per-token-head: a number",
          pack(tmp, "fp8-per-token-head/e4m3fn", one),
          [("live.nonfinite", f"{where},head=3,kv=v")])
    judge("fp8-per-token-head, which is not said: a number",
          pack(tmp, "fp8-per-token-head", one), [])


def check_blocks(tmp):
    """Scales of q8_0 stand in several places of a row, the last one of the file too."""
    rng = np.random.default_rng(5)
    heads, each, tokens = 3, 4, 7
    rows = rng.integers(1, 100, (2, tokens, heads, each, 34), np.uint8)
    for t, h, b in ((0, 0, 1), (0, 0, 3), (6, 2, 0), (6, 2, 2), (6, 2, 3)):
        rows[1, t, h, b, :2] = 0x01, 0x7e
    rows[1, 6, 2, 3, :2] = 0x00, 0x7c
    k, v = ([[row.tobytes() for row in half]] for half in rows)
    path = os.path.join(tmp, "blocks.bin")
    write_bytes(path,
                ggsq_bytes(memory_bytes([Cells([(t, [0]) for t in range(tokens)], k, v,
                                               (Q8_0, Q8_0))])))
    r = kvtool("fsck", f"--head-dim={32 * each}", "--set=rotation=none", path)
    found = [line.split("block=0,")[1] for line in r.out.splitlines()
             if "live.nonfinite" in line]
    what = "%s,kv=v: %s, the first here in the scales of values; request 0, token %d"
    tap.equal((r.code, found),
              (1, [what % ("slot=0,head=0", "2 NaN", 0),
                   what % ("slot=6,head=2", "2 NaN and 1 infinity", 6)]),
              "q8_0: scales that are no number are counted once")


def check_pages(tmp):
    """Rows of a page that no token is in may be anything."""
    rng = np.random.default_rng(4)
    nan = np.array([np.nan], "<f4").tobytes()
    pages = model.indexer(rng, 2, 4, 64, "e4m3fn")[0]
    pages[:, :, NULL] = 0
    tables, tokens = {"A": [2, 1]}, {"A": 64 + 10}
    for block, row, name in ((2, 63, "live"), (1, 9, "live"), (1, 10, "stale"),
                             (3, 0, "stale")):
        one = pages.copy()
        put(one, (0, 1, block, 0, 0), 64 * 128 + 4 * row, nan)
        judge(f"indexer: a scale of row {row} of block {block}",
              pack(tmp, "indexer/e4m3fn", one, tables, tokens, 64, 64),
              [(f"{name}.nonfinite",
                f"group=g0,layer=1,block={block},slot=0,row={row}")])


# ---- states -------------------------------------------------------------------

def check_states(tmp):
    """Of a real dump: a page has the taps, then the states."""
    stem = f"{DATA}/mamba2g4/tp1_SD/rank0"
    side = read_json(f"{stem}.json")
    side["file"] = "s.npy"
    pages = np.load(f"{stem}.npy").reshape(side["file_shape"])
    shape = pages.shape
    request, table = sorted(side["block_table"].items())[0]
    raw = pages.reshape(shape[0], shape[1], -1).view(np.uint8)
    conv = 2 * (side["conv"]["x"][1] - side["conv"]["x"][0]) if "x" in side["conv"] else 0

    def save(change):
        bad = raw.copy()
        change(bad[1, table[-1]])
        np.save(f"{tmp}/s.npy", bad.view(pages.dtype).reshape(shape))
        write_json(f"{tmp}/s.json", side)
        return f"{tmp}/s.npy"

    def last_float(page):
        page[-4:] = np.array([np.inf], "<f4").view(np.uint8)

    def first_tap(page):
        page[:2] = [0xc1, 0x7f]

    def clear(page):
        page[:] = 0

    at = f"layer=1,block={table[-1]},slot=0"
    judge("states: sound", save(lambda page: None), [])
    n = describe_heads(save(lambda page: None))
    judge("states: the last number of the last head", save(last_float),
          [("live.nonfinite", f"group=ssm,{at},head={n[0] - 1},dim={n[1] - 1}")])
    judge("states: the first tap", save(first_tap),
          [("live.nonfinite", f"group=conv,{at},dim=0")])
    judge("states: all zeros", save(clear),
          [("live.zero", f"group=conv,{at}"), ("live.zero", f"group=ssm,{at}")])
    r = kvtool("fsck", save(last_float))
    tap.ok(f"1 infinity; a recurrent state of request {request}" in r.out and conv,
           "states: the request is named", r)


def describe_heads(path):
    r = kvtool("describe", "--json", path)
    ssm = [g for g in r.json["groups"] if g["id"] == "ssm"][0]
    return ssm["heads"], ssm["dim"]


# ---- what else says it --------------------------------------------------------

def check_describe(tmp):
    """The same counts, of all slots, and a line of totals at the end."""
    rng = np.random.default_rng(9)
    d = Dump(rng, tmp, "float16", "hnd", True, (2, 3, 2, 16))
    live, unused = slots_of(d, True), slots_of(d, False)
    d.bits[:, :, ~d.live] = 0
    r = kvtool("fsck", d.save())
    tap.ok("tables, all data: zeros, NaN and infinity\n" in r.out, "what was looked at", r)
    d.bits[0, 2, live[5][0], live[5][1], 1, 7] = 0x7e01
    d.bits[1, 2, live[5][0], live[5][1], 1, 3] = 0xfc00
    d.bits[0, 0, unused[0][0], unused[0][1], 0, :] = 0x7e00
    path = d.save()
    g = kvtool("describe", "--stats", "--json", path).json["groups"][0]
    odd = g["nonfinite"]
    first = d.at(2, *live[5], 1, 0, 7)
    tap.equal((odd["nan"], odd["inf"], odd["slots"], odd["first"],
               odd["live"]["nan"], odd["live"]["inf"], odd["stale"]["nan"]),
              (17, 1, 2, first, 1, 1, 16), "describe --stats --json: by whose they are")
    tap.equal((sum(s["nan"] for s in g["stats"]), sum(s["inf"] for s in g["stats"])),
              (17, 1), "describe --stats --json: as in the table")
    r = kvtool("describe", "--stats", path)
    lines = r.out.splitlines()
    totals = [line.split() for line in lines if line.startswith(" total ")]
    tap.equal([(t[1], t[6:8]) for t in totals],
              [("keys", ["17", "0"]), ("values", ["0", "1"])],
              "describe --stats has totals of keys and of values")
    tap.equal([line.strip() for line in lines[-2:]],
              ["! odd     3 of 12 rows with NaN or infinities",
               f"17 NaN and 1 infinity in 2 slots, first at {first}"],
              "describe --stats ends with what is odd")
    numbers = d.bits.view("f2").astype(float)
    for k, t in enumerate(totals):
        x = numbers[k][np.isfinite(numbers[k])]
        tap.ok(np.allclose([float(v) for v in t[2:6]],
                           [x.min(), x.max(), x.mean(), x.std()], rtol=6e-4, atol=1e-6),
               f"totals of {t[1]} are those of all elements", t)
    runs("--peek takes the place of a finding", "describe", f"--peek={first},count=1",
         path, says="nan")
    r = kvtool("fsck", "--fast", path)
    tap.ok(r.code == 0 and "nonfinite" not in r.out and "; not at the data\n" in r.out,
           "--fast reads no data, and says so", r)


oracle.run(check_generated, check_parts, check_packed, check_blocks, check_pages,
           check_states, check_describe)
