#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_describe.py - what describe says of real dumps, against their sidecars,
numpy and files damaged on purpose
"""
import shutil

import numpy as np

import oracle
from oracle import flip, kvtool, runs, tap, values, walk

try:
    import h5py
except ImportError:
    h5py = None


def describe(path, *args):
    """(result, object); the object is None unless one was printed."""
    r = kvtool("describe", "--json", *args, path)
    try:
        return r, r.json
    except ValueError:
        return r, None


# ---- addresses --------------------------------------------------------------

def plane_terms(plane, elem):
    """[(axis, div, mod, stride)] in elements, from strides in bytes."""
    inner = {a["axis"]: a["extent"] for a in plane["axes"] if a["part"] == "inner"}
    terms = []
    for a in plane["axes"]:
        div = inner[a["axis"]] if a["part"] == "outer" else 1
        mod = a["extent"] if a["part"] == "inner" else 0
        terms.append((a["axis"], div, mod, a["stride"] // elem))
    return terms


def printed_offsets(group, dims):
    """Element offsets [K, L, B, S, H, D] that the JSON object describes."""
    elem, out = group["element_bytes"], []
    for plane in group["memory"]:
        terms = plane_terms(plane, elem)
        step = oracle.k_stride(terms)
        for k in range(dims["K"] if plane["holds"] == "all" else 1):
            out.append(plane["offset"] // elem + walk(terms, dims) + k * step)
    return np.stack(out)


def check_addresses(dump, group):
    got = printed_offsets(group, dump.dims)
    tap.ok(np.array_equal(got, dump.offsets),
           f"{dump.name}: the strides lead to every element")


# ---- sizes, blocks, requests ------------------------------------------------

def check_sizes(dump, group):
    d, e = dump.dims, dump.itemsize
    block = d["S"] * d["H"] * d["K"] * d["D"] * e
    want = {
        "layers": d["L"], "blocks": d["B"], "slots": d["S"],
        "heads": d["H"], "kv": d["K"], "dim": d["D"], "dtype": dump.dtype,
        "element_bytes": e, "bytes_per_block": block,
        "bytes_per_layer": block * d["B"],
        "data_bytes": block * d["B"] * d["L"],
        "bytes_per_token": block // d["S"] * d["L"],
        "layer_names": dump.side["layer_names"],
        "head_start": dump.head_start,
    }
    tap.equal({k: group[k] for k in want}, want, f"{dump.name}: sizes")


def check_blocks(dump, obj):
    group, tables = obj["groups"][0], dump.tables
    uses = {}
    for table in tables.values():
        for b in table:
            uses[b] = uses.get(b, 0) + 1
    unused = set(range(dump.dims["B"])) - set(uses) - {dump.side["null_block"]}
    got = [group[k] for k in ("blocks_used", "blocks_shared", "blocks_unused")]
    tap.equal(got, [len(uses), sum(n > 1 for n in uses.values()), len(unused)],
              f"{dump.name}: blocks in use, shared and unused")
    got = {r["id"]: (r["tokens"], r["block_tables"][0]) for r in obj["requests"]}
    tap.equal(got, {r: (dump.ntokens[r], tables[r]) for r in tables},
              f"{dump.name}: requests and their tables")


# ---- statistics -------------------------------------------------------------

def check_stats(name, rows, values, head_start=0):
    """rows as printed; values[K, L, B, S, H, D]."""
    good, why = len(rows) == np.prod([values.shape[i] for i in (0, 1, 4)]), ""
    for row in rows:
        k = 1 if row["component"] == "values" else 0
        v = values[k, row["layer"], :, :, row["head"] - head_start]
        finite = v[np.isfinite(v)]
        want = {"min": finite.min(), "max": finite.max(),
                "mean": finite.mean(), "std": finite.std()}
        counts = {"nan": np.isnan(v).sum(), "inf": np.isinf(v).sum(),
                  "zero_blocks": (v == 0).all(axis=(1, 2)).sum()}
        scale = max(abs(want["min"]), abs(want["max"]), 1e-30)
        near = all(abs(row[f] - want[f]) <= 1e-12 * scale for f in want)
        if not near or any(row[f] != counts[f] for f in counts):
            good, why = False, f"{row}\n{want} {counts}"
    tap.ok(good, name, why)


def check_odd_values(tmp):
    """NaN, infinities, zeros and a large mean, in a file of our own."""
    rng = np.random.default_rng(1)
    cells = (rng.standard_normal((2, 3, 4, 8, 2, 16)) + 1e4).astype(np.float32)
    cells[0, 0, 1, 2, 0, 3] = np.nan
    cells[1, 2, 3, 4, 1, 5:8] = np.inf
    cells[1, 2, 0, 0, 1, 0] = -np.inf
    cells[0, 1, 2] = 0
    path = f"{tmp}/odd.bin"
    cells.transpose(1, 2, 3, 4, 0, 5).tofile(path)  # L B S H K D
    r, obj = describe(path, "--stats", "--layout=nhd", "--dtype=float32",
                      "--layers=3", "--blocks=4", "--block-size=8",
                      "--heads=2", "--head-dim=16")
    if tap.ok(obj is not None, "odd values: printed", r):
        check_stats("odd values: NaN, infinities and zeros are counted",
                    obj["groups"][0]["stats"], cells.astype(float))


# ---- verification -----------------------------------------------------------

def chunks_of(path):
    """[(offset in the dataset, filter mask, address, size)], dataset name."""
    with h5py.File(path) as f:
        name = "groups/g0/data"
        data = f[name].id
        return [(c.chunk_offset, c.filter_mask, c.byte_offset, c.size)
                for c in (data.get_chunk_info(i)
                          for i in range(data.get_num_chunks()))], \
            [a.decode() if isinstance(a, bytes) else a
             for a in f[name].attrs["DIMENSION_LABELS"]]


def place(labels, offset):
    at = dict(zip(labels, offset))
    return (at["layer"], at["block"], at["head"],
            ("keys", "values")[at["kv"]] if "kv" in at else "content")


def places(findings):
    return [(f["layer"], f["block"], f["head"], f["component"]) for f in findings]


def check_damage(dump, tmp):
    sound, bad = f"{tmp}/sound.h5", f"{tmp}/bad.h5"
    r = runs("verify: a snapshot to work with", "convert", "-q", dump.path, sound)
    if r.code:
        return
    r, obj = describe(sound, "--verify")
    verify = obj["groups"][0]["verify"] if obj else {}
    chunks, labels = chunks_of(sound)
    cells = int(np.prod([dump.dims[a] for a in "LBHK"]))
    tap.ok(r.code == 0 and verify.get("tiles") == len(chunks) and
           verify.get("cells") == cells and not verify.get("findings"),
           "verify: a sound snapshot, all tiles and cells", r)

    # one bit in the middle of a stored chunk
    victim = chunks[len(chunks) // 2]
    shutil.copy(sound, bad)
    flip(bad, victim[2] + victim[3] // 2, 0x10)
    r, obj = describe(bad, "--verify")
    verify = obj["groups"][0]["verify"] if obj else {}
    tap.ok(r.code == 3 and verify.get("tiles_damaged") == 1 and
           places(verify["findings"]) == [place(labels, victim[0])],
           "verify: a flipped bit is found, and where", r)

    # two sound chunks in each other's place: only the cells can tell
    shutil.copy(sound, bad)
    a, b = chunks[1], chunks[-1]
    with h5py.File(bad, "r+") as f:
        data = f["groups/g0/data"].id
        stored = [data.read_direct_chunk(c[0]) for c in (a, b)]
        data.write_direct_chunk(a[0], stored[1][1], stored[1][0])
        data.write_direct_chunk(b[0], stored[0][1], stored[0][0])
    r, obj = describe(bad, "--verify")
    verify = obj["groups"][0]["verify"] if obj else {}
    (l1, _, h1, c1), (l2, _, h2, c2) = (place(labels, c[0]) for c in (a, b))
    k = {"keys": 0, "values": 1, "content": 0}
    # [B, S, D] of both; blocks that are equal in both, such as the null
    # block, do not differ
    one, other = dump.cells[k[c1], l1, :, :, h1], dump.cells[k[c2], l2, :, :, h2]
    n = int((one != other).any(axis=(1, 2)).sum())
    where = {(f[0],) + f[2:] for f in places(verify.get("findings", []))}
    tap.ok(r.code == 1 and verify["tiles_damaged"] == 0 and n and
           verify["cells_differing"] == 2 * n and
           where == {(l1, h1, c1), (l2, h2, c2)},
           "verify: swapped chunks differ from their cells", r)


# ---- all of it --------------------------------------------------------------

def main(tmp):
    dumps = oracle.attention_dumps()
    for dump in dumps:
        r, obj = describe(dump.path, "--stats", "--block-tables")
        if not tap.ok(r.code == 0 and obj, f"{dump.name}: described", r):
            continue
        group = obj["groups"][0]
        check_addresses(dump, group)
        check_sizes(dump, group)
        check_blocks(dump, obj)
        check_stats(f"{dump.name}: statistics", group["stats"],
                    values(dump.cells, dump.dtype), dump.head_start)
    one, many = (kvtool("describe", "--stats", f"--threads={n}",
                        "--mem-limit=8M", dumps[0].path) for n in (1, 4))
    tap.ok(one.code == 0 and one.out == many.out,
           "statistics do not depend on the number of threads", many)
    check_odd_values(tmp)
    if h5py:
        check_damage(next(d for d in dumps if d.model == "gqa64"), tmp)
    else:
        tap.skip("verify", "this needs the package python3-h5py")


oracle.run(main)
