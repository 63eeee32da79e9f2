#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_where.py - elements to bytes and back, against sidecars, the shapes of
connector files, pages laid out here, and h5py

Coordinates are random but the same in every run.  Thirty-two of them go into
one call, so that the whole takes seconds.
"""
import os
import random
import struct

import numpy as np

import oracle
from oracle import DATA, kvtool, read_json, runs, tap, values, write_json

# before h5py is there: it looks only once
os.environ["HDF5_PLUGIN_PATH"] = os.path.abspath(
    os.environ.get("KVT_PLUGIN_DIR", "build/plugin"))
try:
    import h5py
except ImportError:
    h5py = None

rng = random.Random(3)
BATCH = 32


def where(path, *args):
    """(result, places); no places unless the command succeeded."""
    r = kvtool("where", "--json", *args, path)
    return r, r.json["matches"] if r.code == 0 else []


def data_begin(path):
    """Bytes before the data of a file of one array."""
    with open(path, "rb") as f:
        head = f.read(10)
        if head[:6] == b"\x93NUMPY":
            return 10 + struct.unpack("<H", head[8:10])[0]
        return 8 + struct.unpack("<Q", head[:8])[0]


def first_wrong(got, want):
    """Of two lists of dictionaries, in the keys of the second."""
    for g, w in zip(got, want):
        bad = {k: (g.get(k), w[k]) for k in w if g.get(k) != w[k]}
        if bad:
            return f"got, wanted: {bad}\nin {g}"
    return "" if len(got) == len(want) else f"{len(got)} of {len(want)} places"


def same(r, got, want, name):
    why = first_wrong(got, want) if r.code == 0 else r
    return tap.ok(not why, name, why)


def at_text(c):
    return "--at=" + ",".join(f"{k}={v}" for k, v in c.items() if v is not None)


def there_and_back(path, coordinates, offsets, elem, header, name):
    """
    Each coordinate is at its offset; a random byte of it leads back.  The
    dictionaries hold what the answer must, besides the offset.  The file is
    'header' bytes and then what the engine had.
    """
    keys = ("group", "layer", "block", "slot", "head", "kv", "dim")
    options = [at_text({k: c.get(k) for k in keys}) for c in coordinates]
    want = [dict(c, offset=o, byte=0, region="element")
            for c, o in zip(coordinates, offsets)]
    for w in want:
        w["memory_offset"] = w["offset"] - header
    r, got = where(path, *options)
    same(r, got, want, f"{name}: there")
    byte = [rng.randrange(elem) for _ in coordinates]
    options = [f"--offset={o + b}" for o, b in zip(offsets, byte)]
    for w, b in zip(want, byte):
        for k in ("byte", "offset", "memory_offset"):
            w[k] += b
    r, got = where(path, *options)
    same(r, got, want, f"{name}: and back")


# ---- paged dumps ------------------------------------------------------------

def tenants(dump, block, slot):
    """[(request, token)] by the sidecar's tables, and what the slot holds."""
    size, out = dump.dims["S"], []
    for request, table in dump.tables.items():
        for i, b in enumerate(table):
            token = i * size + slot
            if b == block and token < dump.ntokens[request]:
                out.append((request, token))
    if block == dump.side.get("null_block"):
        return "null", []
    return ("live" if out else "stale"), sorted(out)


def choose(dump):
    """Random coordinates, the corners among them."""
    d = dump.dims
    yield dict.fromkeys("LBSHKD", 0)
    yield {a: d[a] - 1 for a in "LBSHKD"}
    for _ in range(BATCH - 2):
        yield {a: rng.randrange(d[a]) for a in "LBSHKD"}


def check_dump(dump):
    base, coordinates, offsets = data_begin(dump.path), [], []
    for c in choose(dump):
        element = dump.offsets[tuple(c[a] for a in "KLBSHD")]
        holds, lives = tenants(dump, c["B"], c["S"])
        offsets.append(base + int(element) * dump.itemsize)
        coordinates.append({
            "layer": c["L"], "block": c["B"], "slot": c["S"],
            "head": dump.head_start + c["H"], "local_head": c["H"],
            "kv": None if dump.latent else "kv"[c["K"]], "dim": c["D"],
            "layer_name": dump.side["layer_names"][c["L"]],
            "holds": holds,
            "requests": [{"id": q, "token": t, "tokens": 1, "seen": None}
                         for q, t in lives]})
    there_and_back(dump.path, coordinates, offsets, dump.itemsize, base, dump.name)
    check_tokens(dump, base)


def check_tokens(dump, base):
    """By request and token instead of block and slot."""
    options, want = [], []
    for _ in range(BATCH):
        request = rng.choice(sorted(dump.tables))
        token = rng.randrange(dump.ntokens[request])
        c = {a: rng.randrange(dump.dims[a]) for a in "LHKD"}
        block = dump.tables[request][token // dump.dims["S"]]
        slot = token % dump.dims["S"]
        element = dump.offsets[c["K"], c["L"], block, slot, c["H"], c["D"]]
        options.append(at_text({
            "request": request, "token": token, "layer": c["L"],
            "local_head": c["H"], "dim": c["D"],
            "kv": None if dump.latent else "kv"[c["K"]]}))
        want.append({"block": block, "slot": slot,
                     "offset": base + int(element) * dump.itemsize})
    r, got = where(dump.path, *options)
    same(r, got, want, f"{dump.name}: tokens of requests")


def check_edges(dump):
    """One byte to either side of the data, and of its first element."""
    base = data_begin(dump.path)
    end = base + dump.nelements * dump.itemsize
    r, got = where(dump.path, *(f"--offset={o}" for o in (
        0, base - 1, base, end - 1, end, end + 10 ** 12)))
    same(r, got, [{"region": "header"}, {"region": "header"},
                  {"region": "element", "byte": 0},
                  {"region": "element", "byte": dump.itemsize - 1},
                  {"region": "beyond"}, {"region": "beyond"}],
         f"{dump.name}: the borders of the data")


# ---- pages of recurrent states ----------------------------------------------

def page_byte(side, base, c):
    """File offset of an element of a page, by the sidecar's numbers."""
    blocks, page = side["sizes"]["num_blocks"], side["page_bytes"]
    at = base + (c["layer"] * blocks + c["block"]) * page
    if c["group"] == "ssm":
        n = side["ssm"]["shape"]
        inner = c["local_head"] * n[1] * n[2] + c["dim"]
        return at + side["ssm"]["byte_offset"] + 4 * inner
    # [taps, channels] or [channels, taps]
    n = side["conv"]["shape"]
    sd = side["conv_layout"] == "SD"
    inner = (c["slot"] * n[1] + c["dim"] if sd else c["dim"] * n[1] + c["slot"])
    return at + side["conv"]["byte_offset"] + 2 * inner


def seen_by(side, block):
    for request, table in side["block_table"].items():
        if block in table:
            seen = side["tokens_seen"][request][table.index(block)]
            return [{"id": request, "token": None, "tokens": None, "seen": seen}]
    return []


def page_coordinates(side):
    conv, ssm = side["conv"], side["ssm"]
    sd = side["conv_layout"] == "SD"
    taps, channels = conv["shape"] if sd else conv["shape"][::-1]
    for i in range(BATCH):
        c = {"group": "conv" if i % 2 else "ssm",
             "layer": rng.randrange(side["sizes"]["layers"]),
             "block": rng.randrange(side["sizes"]["num_blocks"]), "kv": None}
        c["holds"] = ("null" if c["block"] == side["null_block"] else
                      "live" if seen_by(side, c["block"]) else "stale")
        c["requests"] = seen_by(side, c["block"])
        if i % 2:
            c.update(slot=rng.randrange(taps), dim=rng.randrange(channels))
            part = next(p for p in "xBC" if c["dim"] < conv[p][1])
            inside = c["dim"] - conv[part][0]
            c.update(part=part, part_dim=inside,
                     global_dim=conv["global_" + part][0] + inside)
        else:
            heads, a, b = ssm["shape"]
            local = rng.randrange(heads)
            c.update(slot=0, local_head=local, dim=rng.randrange(a * b),
                     head=ssm["heads"][0] + local)
        yield c


def check_pages(path, side, name):
    base = data_begin(path)
    for group, elem in (("ssm", 4), ("conv", 2)):
        coordinates = [c for c in page_coordinates(side) if c["group"] == group]
        there_and_back(path, coordinates,
                       [page_byte(side, base, c) for c in coordinates], elem,
                       base, f"{name}: {group}")


def check_padding(source, side, tmp):
    """The same pages, with room behind what they hold."""
    pages = np.load(source).reshape(side["file_shape"])
    used, more = side["page_bytes"], 100
    path = f"{tmp}/padded.npy"
    np.save(path, np.pad(pages, [(0, 0)] * 4 + [(0, more)]))
    side = dict(side, page_bytes=used + more, file="padded.npy",
                file_shape=side["file_shape"][:4] + [used + more])
    write_json(f"{tmp}/padded.json", side)
    check_pages(path, side, "padded pages")
    base, blocks = data_begin(path), side["sizes"]["num_blocks"]
    options, want = [], []
    for page in (0, 1, 7, side["sizes"]["layers"] * blocks - 1):
        for byte in (used - 1, used, used + more - 1):
            options.append(f"--offset={base + page * (used + more) + byte}")
            want.append({"layer": page // blocks, "block": page % blocks})
            want[-1].update({"region": "element", "group": "ssm", "byte": 3}
                            if byte < used else
                            {"region": "padding", "group": "conv",
                             "page_byte": byte})
    r, got = where(path, *options)
    same(r, got, want, "padded pages: padding begins and ends")
    end = base + side["sizes"]["layers"] * blocks * (used + more)
    r, got = where(path, f"--offset={end}", f"--offset={base - 1}")
    same(r, got, [{"region": "beyond"}, {"region": "header"}],
         "padded pages: what is around them")
    check_memory_of_pages(path, side, base, tmp)


def check_memory_of_pages(path, side, base, tmp):
    """The engine's tensor is the same, whatever file the pages went to."""
    coordinates = list(page_coordinates(side))
    keys = ("group", "layer", "block", "slot", "head", "kv", "dim")
    options = [at_text({k: c.get(k) for k in keys}) for c in coordinates]
    offsets = [page_byte(side, base, c) - base for c in coordinates]
    want = [{"memory_offset": o} for o in offsets]
    for ending in ("safetensors", "h5"):
        copy = f"{tmp}/pages.{ending}"
        kvtool("convert", "-q", path, copy)
        r, got = where(copy, *options)
        same(r, got, want, f"padded pages as {ending}: in memory")
        r, got = where(copy, "--memory", *(f"--offset={o}" for o in offsets))
        same(r, got, [{k: c[k] for k in c if k not in ("part_dim", "kv")}
                      for c in coordinates],
             f"padded pages as {ending}: from memory")


# ---- connector folders ------------------------------------------------------

# elements from the start of a tensor: k, token, head, dim; tokens, heads, width
SHAPES = {
    "shared_storage_2025": lambda k, t, h, d, T, H, D:
        ((k * T + t) * H + h) * D + d,
    "example_2026_05": lambda k, t, h, d, T, H, D:
        ((t * 2 + k) * H + h) * D + d,
    "example_2026_07": lambda k, t, h, d, T, H, D:
        (t * H + h) * 2 * D + k * D + d,
    "mla": lambda k, t, h, d, T, H, D: t * D + d,
}


def check_folder(path, shape, heads, width, latent):
    name, options, want = os.path.relpath(path, DATA), [], []
    ids = sorted(n for n in os.listdir(path) if os.path.isdir(f"{path}/{n}"))
    for _ in range(BATCH):
        request = rng.choice(ids)
        layer = rng.randrange(len(os.listdir(f"{path}/{request}")))
        file = f"{request}/model.layers.{layer}.self_attn.attn.safetensors"
        _, dims, _ = next(iter(oracle.safetensors_tensors(f"{path}/{file}").values()))
        ntokens = dims[1] if dims[0] == 2 and len(dims) == 3 else dims[0]
        k, t = rng.randrange(1 if latent else 2), rng.randrange(ntokens)
        h, d = rng.randrange(heads), rng.randrange(width)
        options.append(at_text({"request": request, "token": t, "dim": d,
                                "layer": layer, "head": h,
                                "kv": None if latent else "kv"[k]}))
        want.append({"file": file, "dim": d, "head": h, "layer": layer,
                     "kv": None if latent else "kv"[k], "holds": "live",
                     "requests": [{"id": request, "token": t, "tokens": 1,
                                   "seen": None}],
                     "offset": data_begin(f"{path}/{file}") +
                     2 * SHAPES[shape](k, t, h, d, ntokens, heads, width)})
    hints = ["--block-size=16"] + ([] if latent else [f"--heads={heads}"])
    hints += ["--layout=nhd"] if shape == "example_2026_07" else []
    r, got = where(path, *hints, *options)
    same(r, got, want, f"{name}: file and byte of a token")
    r, got = where(path, *hints, *(f"--offset={w['file']}:{w['offset']}" for w in want))
    same(r, got, want, f"{name}: and back")


# ---- tiles ------------------------------------------------------------------

# The labels of a snapshot; its format says state for a slot.
AXIS = {"layer": "L", "block": "B", "state": "S", "head": "H", "kv": "K",
        "dim": "D", "content": "D"}


def check_tiles(dump, tmp):
    """The bytes that a tile has there are the element's."""
    path, name = f"{tmp}/tiles.h5", f"{dump.name} .h5"
    r = runs(f"{name}: written", "convert", "-q", dump.path, path)
    if r.code:
        return
    chosen = list(choose(dump))
    options = [at_text({
        "layer": c["L"], "block": c["B"], "slot": c["S"],
        "local_head": c["H"], "kv": None if dump.latent else "kv"[c["K"]],
        "dim": c["D"]}) for c in chosen]
    r, got = where(path, *options)
    want = [int(dump.offsets[tuple(c[a] for a in "KLBSHD")]) * dump.itemsize
            for c in chosen]
    same(r, got, [{"memory_offset": o, "offset": None} for o in want],
         f"{name}: offsets in memory")
    r, back = where(path, "--memory", *(f"--offset={o}" for o in want))
    same(r, back, [{k: g[k] for k in g if k not in ("option", "query")}
                   for g in got], f"{name}: and back")
    wrong, telling = [], 0
    with h5py.File(path) as f:
        data = f["groups/g0/data"]
        labels = [AXIS[a.decode() if isinstance(a, bytes) else a]
                  for a in data.attrs["DIMENSION_LABELS"]]
        for g, c in zip(got, chosen):
            begin = [g["tile"]["begin"][a] for a in labels]
            box = data[tuple(slice(b, b + n) for b, n in zip(begin, data.chunks))]
            tile = np.zeros(data.chunks, box.dtype)
            tile[tuple(slice(0, n) for n in box.shape)] = box
            at, rest = divmod(g["tile"]["byte"], dump.itemsize)
            bits = dump.cells[tuple(c[a] for a in "KLBSHD")]
            value = float(values(bits.reshape(1), dump.dtype)[0])
            good = (float(tile.ravel()[at]) == value and not rest and
                    tile.size * dump.itemsize == g["tile"]["bytes"] and
                    not any(b % n for b, n in zip(begin, data.chunks)))
            telling += value != 0
            wrong += [] if good else [g]
    # the null block and blocks never used are zeros: those tell nothing
    tap.ok(len(got) == BATCH and not wrong and telling > BATCH // 3,
           f"{name}: the tile holds the element there", wrong[:1] or telling)


# ---- all of it --------------------------------------------------------------

def main(tmp):
    dumps = oracle.attention_dumps()
    for dump in dumps:
        check_dump(dump)
        check_edges(dump)
    pages = list(oracle.sidecars("mamba2g4"))
    for sidecar in pages:
        side = read_json(sidecar)
        check_pages(os.path.join(os.path.dirname(sidecar), side["file"]), side,
                    os.path.relpath(sidecar, DATA)[:-5])
    for shape in ("shared_storage_2025", "example_2026_05", "example_2026_07"):
        check_folder(f"{DATA}/s260k/connector/{shape}", shape, 4, 8, False)
    check_folder(f"{DATA}/gqa64/connector/example_2026_07", "example_2026_07",
                 2, 64, False)
    check_folder(f"{DATA}/mla144/connector", "mla", 1, 144, True)
    sidecar = next(s for s in pages if "tp2_SD" in s)
    side = read_json(sidecar)
    check_padding(os.path.join(os.path.dirname(sidecar), side["file"]), side, tmp)
    for dump in dumps:
        if not h5py or dump.layout not in ("nhd", "hnd", "mla"):
            continue
        check_tiles(dump, tmp)
        os.unlink(f"{tmp}/tiles.h5")
    if not h5py:
        tap.skip("tiles", "this needs the package python3-h5py")


oracle.run(main)
