#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_guess.py - how often kvtool guess is right, on real and made-up caches

Every dump of testdata/kv is asked about with its sidecar withheld, under less
and more that is said; then caches made up here, whose layout is drawn at random.
The answer is compared by the place of each element: layouts with the same bytes
are one answer.  A wrong answer above the threshold fails, and so do fewer right
ones than were recorded.  KVT_FULL=1 makes up more.

Then the rows of pages are put in another order, and what says the layout left as it
is: guess gives no answer and names the order, doctor contradicts what is said; and of
nothing that is right does it say so.
"""
import json
import os

import numpy as np

import oracle
from oracle import DATA, FULL, SHARE, kvtool, read_bytes, tap, write_bytes, write_json


# right answers of the dumps, by what is said; see kvtool-guess(1).  Without
# KVT_FULL one level is asked about all dumps, the others about every fourth.
if FULL:
    RECORDED = {"size": 0, "type": 0, "shape": 28, "shape, type": 28,
                "array": 0, "array, shape": 29}
    MADE_UP, COUNT = {"plain": 80, "weak": 39, "alike": 78}, 100
else:
    RECORDED = {"size": 0, "type": 0, "shape": 28 // SHARE, "shape, type": 7,
                "array": 0, "array, shape": 8}
    MADE_UP, COUNT = {"plain": 2, "weak": 0, "alike": 1}, 5


# ---- asking -----------------------------------------------------------------

def ask(path, *args):
    """(told, layout, dims, exit status); layout None if there is no answer."""
    r = kvtool("guess", "--json", *args, path)
    if r.code not in (0, 3) or r.code == 3 and not r.out:
        return r.code == 3 and "declined" or f"failed: {r}", None
    answer = r.json
    if answer["told"] != (r.code == 0):
        return f"failed: told and status disagree: {r}", None
    if answer["told"] != (answer["confidence"] >= 1 and not answer["why_not"]):
        return f"failed: told and confidence disagree: {r}", None
    return ("told" if answer["told"] else "declined"), answer


def is_true(answer, offsets, dims, dtype):
    """Does the answer put every element where it is?"""
    args = dict(a[2:].split("=", 1) for a in answer["candidates"][0]["arguments"])
    said = {"L": int(args["layers"]), "S": int(args["block-size"]),
            "H": int(args["heads"]), "K": 1 if "content-size" in args else 2,
            "D": int(args.get("content-size") or args["head-dim"])}
    if args["dtype"] != dtype or any(dims[a] != n for a, n in said.items()):
        return False
    name = args["layout"]
    if name == "ssm":
        return False
    return np.array_equal(
        oracle.preset_offsets(name, dims, oracle.ITEMSIZE[dtype]), offsets)


def outcome(path, args, offsets, dims, dtype):
    how, answer = ask(path, *args)
    if how == "told":
        return "right" if is_true(answer, offsets, dims, dtype) else "wrong"
    return how


# ---- the real ones ----------------------------------------------------------

def shape_args(dims):
    return [f"--layers={dims['L']}", f"--block-size={dims['S']}",
            f"--heads={dims['H']}",
            f"--{'head-dim' if dims['K'] == 2 else 'content'}={dims['D']}"]


def real_dumps(tmp):
    table = {level: [] for level in RECORDED}
    for i, d in enumerate(oracle.attention_dumps()):
        if i % SHARE:
            continue
        raw = f"{tmp}/dump.bin"
        write_bytes(raw, oracle.array_bytes(d.path))
        shape, dtype = shape_args(d.dims), [f"--dtype={d.dtype}"]
        levels = {"size": [], "type": dtype, "shape": shape, "shape, type": shape + dtype}
        if not FULL and i % 4:
            levels = {"shape": shape}
        row = {k: outcome(raw, v, d.offsets, d.dims, d.dtype) for k, v in levels.items()}
        os.unlink(raw)
        bare = f"{tmp}/dump{os.path.splitext(d.path)[1]}"
        with open(d.path, "rb") as f, open(bare, "wb") as g:
            g.write(f.read())
        if "type" not in levels:
            table["shape"].append((d.name, row["shape"]))
            continue
        row["array"] = outcome(bare, [], d.offsets, d.dims, d.dtype)
        row["array, shape"] = outcome(bare, shape, d.offsets, d.dims, d.dtype)
        os.unlink(bare)
        for k, v in row.items():
            table[k].append((d.name, v))
    for d in sorted(os.listdir(f"{DATA}/mamba2g4")):
        if d == "canonical":
            continue
        bare = f"{tmp}/page.npy"
        data = read_bytes(f"{DATA}/mamba2g4/{d}/rank0.npy")
        write_bytes(bare, data)
        # no layout that guess knows is right here
        how, _ = ask(bare)
        table["array"].append((d, "wrong" if how == "told" else how))
        os.unlink(bare)
    return table


def check_table(title, table, least):
    print(f"# {title:14} {'right':>6} {'declined':>9} {'wrong':>6}")
    for level, rows in table.items():
        count = {w: sum(r[1] == w for r in rows) for w in ("right", "declined", "wrong")}
        print(f"# {level:14} {count['right']:6} {count['declined']:9} "
              f"{count['wrong']:6}")
        odd = [r for r in rows if r[1] not in ("right", "declined")]
        tap.ok(not odd, f"{title}, {level}: none is wrong", odd)
        tap.ok(count["right"] >= least[level],
               f"{title}, {level}: at least {least[level]} right",
               [r[0] for r in rows if r[1] == "declined"])


# ---- made up ----------------------------------------------------------------

def tokens(rng, n, heads, rho):
    """Unit normal [n, ...heads], neighbours correlated by rho."""
    x = rng.standard_normal((n,) + heads)
    for t in range(1, n):
        x[t] = rho * x[t - 1] + np.sqrt(1 - rho * rho) * x[t]
    return x


def rotate(x, halves):
    """RoPE over [T, L, H, D], by halves or by adjacent pairs."""
    n, d = x.shape[0], x.shape[3]
    angle = np.arange(n)[:, None] * 10000.0 ** (-np.arange(d // 2) / (d // 2))
    c, s = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None]
    out = np.empty_like(x)
    one = np.s_[..., :d // 2] if halves else np.s_[..., 0::2]
    two = np.s_[..., d // 2:] if halves else np.s_[..., 1::2]
    out[one] = x[one] * c - x[two] * s
    out[two] = x[one] * s + x[two] * c
    return out


def make_up(rng, kind):
    """Cells [K, L, B, S, H, D] and dims."""
    heads, d, block = (int(rng.choice(c)) for c in (
        (1, 2, 3, 4, 8), (16, 32, 64, 80, 128), (16, 32, 64)))
    layers = int(rng.choice((1, 2, 4, 6)))
    blocks = int(np.clip(200000 // (layers * heads * d * 2 * block), 6, 24))
    n = blocks * block
    dims = {"L": layers, "B": blocks, "S": block, "H": heads, "K": 2, "D": d}
    each = (layers, heads, d)
    if kind == "noise":
        kv = rng.standard_normal((2, n) + each)
    else:
        how = {"plain": 0.7, "weak": 0.15, "alike": 0.4}[kind]
        kv = np.stack([tokens(rng, n, each, rng.choice((0, 0.3, 0.6))) for _ in range(2)])
        scale = np.exp(how * rng.standard_normal((2,) + each))
        mean = 2 * how * rng.standard_normal((2,) + each)
        mean *= rng.random((2,) + each) < 0.3
        if kind != "alike":
            scale[1] = np.exp(0.3 * how * rng.standard_normal(each) - 0.8)
            scale[1] *= np.exp(0.1 * rng.standard_normal((layers, heads, 1)))
            mean[1] = 0
        kv = (kv + mean[:, None]) * scale[:, None]
        kv[0] = rotate(kv[0], rng.random() < 0.5)
        if rng.random() < 0.3:	# the first token draws attention: outliers
            kv[0, 0] *= 20
    cells = kv.reshape(2, blocks, block, *each).transpose(0, 3, 1, 2, 4, 5)
    cells = np.ascontiguousarray(cells)
    if kind == "noise":
        return cells, dims
    if rng.random() < 0.5:
        cells[:, :, 0] = 0
    if rng.random() < 0.5:
        cells[:, :, -1, block // 2:] = 0
    return cells, dims


def made_up(tmp, rng, kind, count, alarms):
    rows = []
    for i in range(count):
        cells, dims = make_up(rng, kind)
        dtype = str(rng.choice(("bfloat16", "float16", "float32")))
        item = oracle.ITEMSIZE[dtype]
        names = [n for n in (*oracle.ONE_PLANE, *oracle.TWO_PLANES)
                 if oracle.legal(n, dims, item)]
        layout = str(rng.choice(names))
        offsets = oracle.preset_offsets(layout, dims, item)
        flat = np.empty(cells.size, oracle.UNSIGNED[item])
        flat[offsets] = oracle.round_to(cells, dtype)
        path = f"{tmp}/made.bin"
        flat.tofile(path)
        args = shape_args(dims)
        if i % 2:
            args.append(f"--dtype={dtype}")
        rows.append((f"{layout} {dtype} {dims}",
                     outcome(path, args, offsets, dims, dtype)))
        found = contradiction(path, f"--layout={layout}", f"--dtype={dtype}",
                              *shape_args(dims))
        if found:
            alarms.append((kind, rows[-1][0], found))
        oracle._cache.clear()
    return rows


# ---- pages in another order --------------------------------------------------

def contradiction(path, *args):
    """What doctor says of the order of rows in pages; None: nothing."""
    r = kvtool("doctor", "--json", *args, path)
    if r.code > 1:
        return f"failed: {r}"
    found = r.json["files"][0]["pages"]
    return found and (found["fault"], found["arguments"])


def out_of_order(cells):
    """Cells [K, L, B, S, H, D] whose pages were read in an order they do not have."""
    orders = [("split-kv", "way={},rows=0", "SHK", "KSH")]
    if cells.shape[4] > 1:
        orders += [("swap-heads-slots", "way={}", "SH", "HS"),
                   ("split-kv", "way={},rows=1", "HSK", "KHS"),
                   ("split-kv", "way={},rows=2", "SK", "KS")]
    for fault, args, *order in orders:
        for way in 0, 1:
            lie, said = order[::1 - 2 * way]
            rest = "LB" + "".join(a for a in "KSH" if a not in lie)
            at = ["KLBSHD".index(a) for a in rest + lie + "D"]
            to = ["KLBSHD".index(a) for a in rest + said + "D"]
            x = cells.transpose(at).reshape([cells.shape[a] for a in to])
            yield fault, args.format(way), x.transpose(np.argsort(to))


def beside(d, path, x):
    """The dump with these cells, and all that it says of itself."""
    flat = np.empty(d.nelements, x.dtype)
    flat[d.offsets] = x
    data = read_bytes(d.path)
    write_bytes(path, data[:len(data) - flat.nbytes] + flat.tobytes())
    write_json(os.path.splitext(path)[0] + ".json",
               dict(d.side, file=os.path.basename(path)))


def pages(tmp):
    """Of real dumps all are told, by their names, and nothing of those that are sound."""
    counts = {"sound": 0, "faults": 0, "told": 0, "arrays": 0, "guessed": 0}
    wrong = []
    for i, d in enumerate(oracle.attention_dumps()):
        if d.latent or not FULL and i % 8:
            continue
        path = f"{tmp}/pages{os.path.splitext(d.path)[1]}"
        found = contradiction(d.path)
        counts["sound"] += 1
        if found:
            wrong.append((d.name, "sound", found))
        for fault, args, x in out_of_order(d.cells):
            beside(d, path, x)
            found = contradiction(path)
            counts["faults"] += 1
            counts["told"] += found == (fault, args)
            os.unlink(f"{tmp}/pages.json")
            if found != (fault, args):
                wrong.append((d.name, fault, args, found))
            # where keys and values are packed apart, half of it may be in order
            if fault != "swap-heads-slots" or d.layout not in oracle.ONE_PLANE:
                continue
            how, answer = ask(path, *shape_args(d.dims))
            named = answer and answer["pages"] and answer["pages"]["fault"] == fault
            counts["arrays"] += 1
            counts["guessed"] += bool(named)
            if how == "told" and not is_true(answer, d.offsets, d.dims, d.dtype):
                wrong.append((d.name, fault, args, how))
    print(f"# pages: {counts}")
    tap.ok(not wrong, "pages in another order are told, and no sound ones", wrong)
    tap.ok(counts["sound"] and counts["guessed"], "guess tells them, too", counts)


def without_a_name(tmp, rng, count):
    """Real data in an order that has no preset: every answer is wrong."""
    dumps = [d for d in oracle.attention_dumps() if not d.latent]
    known = {tuple(oracle.ONE_PLANE[n].replace("C", "KD")) for n in oracle.ONE_PLANE}
    rows = []
    while len(rows) < count:
        d = dumps[int(rng.integers(len(dumps)))]
        order = "".join(rng.permutation(list("LBSHK"))) + "D"
        # blocks and slots swapped leave every channel what it is; and with
        # one of something, such an order is another one that has a name
        if order.index("S") < order.index("B"):
            continue
        offsets = oracle.preset_offsets(order, d.dims, d.itemsize)
        if tuple(order) in known or any(
                oracle.legal(n, d.dims, d.itemsize) and
                np.array_equal(oracle.cached_offsets(n, d.dims, d.itemsize),
                               offsets)
                for n in (*oracle.ONE_PLANE, *oracle.SEPARATE)):
            continue
        flat = np.empty(d.cells.size, d.cells.dtype)
        flat[offsets] = d.cells
        flat.tofile(f"{tmp}/order.bin")
        rows.append((f"{d.name} as {order}",
                     outcome(f"{tmp}/order.bin",
                             shape_args(d.dims) + [f"--dtype={d.dtype}"],
                             offsets, d.dims, d.dtype)))
    return rows


# ---- the same data in any container ------------------------------------------

def safetensors(path, arrays):
    head, at = {}, 0
    for name, x in arrays.items():
        head[name] = {"dtype": "F16", "shape": x.shape, "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    head = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        f.writelines(x.tobytes() for x in arrays.values())


# shapes that engines declare of pages whose bytes have another order
DECLARED = "LKBSHD", "LKBHSD", "LBKSHD"


def ruled_out(answer, axes, extents):
    """Candidates whose extents, or those that an engine declares, are not the array's."""
    size = dict(zip(axes, extents))
    for c in answer["candidates"]:
        planes = [p.split(":")[-1] for p in c["layout"].split()]
        if not all(p.isalpha() for p in planes) or len(set(planes)) > 1:
            if axes not in DECLARED:
                yield c["layout"]
            continue
        order = ("" if len(planes) == 1 else "K") + planes[0]
        if sorted(order) == sorted(axes) and [size[a] for a in order] != list(extents):
            yield c["layout"]


def containers(tmp, rng):
    """As many layers as heads: no shape tells which of the two is which."""
    size = {"L": 4, "K": 2, "B": 64, "S": 16, "H": 4, "D": 32}
    channel = (2, 4, 1, 1, 4, 32)
    kv = rng.standard_normal((2, 4, 64, 16, 4, 32)) * rng.lognormal(0, 0.7, channel)
    kv = (kv + 0.8 * rng.standard_normal(channel)).astype(np.float16)
    for axes in ("LKBSHD", "LKBHSD", "LBKSHD", "LBKHSD", "KLBSHD"):
        x = np.ascontiguousarray(kv.transpose(["KLBSHD".index(a) for a in axes]))
        np.save(f"{tmp}/one.npy", x)
        safetensors(f"{tmp}/one.safetensors", {"kv": x})
        names = ["one.npy", "one.safetensors"]
        if axes[0] == "L":
            layers = {f"layers.{i}": layer for i, layer in enumerate(x)}
            np.savez(f"{tmp}/each.npz", **layers)
            safetensors(f"{tmp}/each.safetensors", layers)
            names += ["each.npz", "each.safetensors"]
        said = {}
        for name in names:
            _, answer = ask(f"{tmp}/{name}", *shape_args(size))
            said[name] = (answer["told"], answer["candidates"][0]["layout"],
                          answer["confidence"])
            tap.ok(not list(ruled_out(answer, axes, x.shape)),
                   f"{name} of {axes}: ranks nothing that its shape rules out",
                   list(ruled_out(answer, axes, x.shape)))
        tap.ok(set(said.values()) == {(True, axes, said["one.npy"][2])},
               f"{axes}: each container has the same answer", said)


def main(tmp):
    rng = np.random.default_rng(7)
    check_table("real dumps", real_dumps(tmp), RECORDED)
    alarms = []
    table = {kind: made_up(tmp, rng, kind, COUNT, alarms) for kind in MADE_UP}
    check_table("made up", table, MADE_UP)
    table = {"noise": made_up(tmp, rng, "noise", COUNT, alarms),
             "order unnamed": without_a_name(tmp, rng, COUNT)}
    for kind, rows in table.items():
        odd = [r for r in rows if r[1] != "declined"]
        print(f"# {kind}: {len(rows) - len(odd)} of {len(rows)} declined")
        tap.ok(not odd, f"{kind} is declined", odd)
    tap.ok(not alarms, "doctor contradicts no layout that is right", alarms)
    pages(tmp)
    containers(tmp, rng)


oracle.run(main)
