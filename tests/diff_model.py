# SPDX-License-Identifier: Apache-2.0
"""
diff_model.py - what kvtool diff must find, in numpy

Sides bring elements and their file offsets through the sidecars' address maps;
Expected puts two of them in one order and computes every figure of --json again.
"""
import os

import numpy as np

import oracle
from kvd1 import connector_cells
from oracle import kvtool, read_json, values


# ---- values ----------------------------------------------------------------------

def ranks(bits):
    top = 1 << (8 * bits.itemsize - 1)
    b = bits.astype(np.int64)
    return np.where(b & top, -(b & (top - 1)), b)


# ---- sides ------------------------------------------------------------------

class Side:
    """rows(request) = bits [T, L, H, K, D] and file offsets of the same shape."""

    def __init__(self, name, operands, dtype, slots, tokens, bits, offsets, head0):
        self.name, self.operands, self.dtype = name, operands, dtype
        self.blocks = None              # of each request, if they are known
        self.slots, self.tokens, self.head0 = slots, tokens, head0
        self.bits, self.offsets = bits, offsets


def rows_of(dump, array, request):
    return dump.tokens(array, request).transpose(2, 1, 3, 0, 4)


def data_start(dump):
    return os.path.getsize(dump.path) - dump.nelements * dump.itemsize


def dump_side(dump, path=None):
    at = dump.offsets * dump.itemsize + data_start(dump)
    side = Side(dump.name, [path or dump.path], dump.dtype, dump.dims["S"],
                dump.ntokens, {r: rows_of(dump, dump.cells, r) for r in dump.tables},
                {r: rows_of(dump, at, r) for r in dump.tables}, dump.head_start)
    side.blocks = dump.tables
    return side


def ranks_side(name, dumps):
    bits = {r: np.concatenate([rows_of(d, d.cells, r) for d in dumps], axis=2)
            for r in dumps[0].tables}
    return Side(name, [d.path for d in reversed(dumps)], dumps[0].dtype,
                dumps[0].dims["S"], dumps[0].ntokens, bits, None, 0)


def connector_side(top, heads):
    side = read_json(f"{top}/layout.json")
    bits = {}
    for folder in sorted(side["requests"]):
        cells = connector_cells(f"{top}/{folder}", side["shape"], heads)
        bits[folder] = cells.transpose(1, 0, 2, 3, 4)
    tokens = {f: b.shape[0] for f, b in bits.items()}
    s = Side(top[len(oracle.DATA) + 1:], [top], "bfloat16", 16, tokens, bits, None, 0)
    s.names = {f: r["request"] for f, r in side["requests"].items()}
    return s


# ---- what must come out -----------------------------------------------------

class Expected:
    """Both sides as [rows, L, H, K, D], rows in the order of A's requests."""

    def __init__(self, a, b, match=None, scale=(1, 1), allowed=None):
        match = match or {r: r for r in a.bits if r in b.bits}
        self.a, self.b, self.label, self.column, self.block = a, b, [], [], []
        bits, offsets, columns = [[], []], [[], []], {}
        for ra, rb in match.items():
            n = min(len(a.bits[ra]), len(b.bits[rb]))
            for s, (side, r) in enumerate(((a, ra), (b, rb))):
                bits[s].append(side.bits[r][:n])
                if side.offsets:
                    offsets[s].append(side.offsets[r][:n])
            cut = sorted({*range(0, n, a.slots), *range(0, n, b.slots), n})
            for begin, end in zip(cut, cut[1:]):
                columns[f"{ra}:{begin}-{end - 1}"] = len(columns)
                self.column += [f"{ra}:{begin}-{end - 1}"] * (end - begin)
            self.label += [(ra, t) for t in range(n)]
            self.block += [tuple(side.blocks and side.blocks[r][t // side.slots]
                                 for side, r in ((a, ra), (b, rb))) for t in range(n)]
        self.columns = columns
        self.bits = [np.concatenate(x) for x in bits]
        self.offsets = [np.concatenate(x) if x else None for x in offsets]
        self.measure(scale, allowed)

    def measure(self, scale, allowed):
        dtype = self.a.dtype, self.b.dtype
        a, b = (values(x, d) * s for x, d, s in zip(self.bits, dtype, scale))
        both_nan = np.isnan(a) & np.isnan(b)
        finite = np.isfinite(a) & np.isfinite(b)
        if dtype[0] == dtype[1] and scale[0] == scale[1]:
            unequal = self.bits[0] != self.bits[1]
        else:
            unequal = ~((a == b) | both_nan)
        with np.errstate(invalid="ignore"):
            error = np.where(finite, np.abs(a - b),
                             np.where(both_nan | (a == b), 0, np.inf))
        self.bad = unequal
        if allowed:
            with np.errstate(invalid="ignore"):
                close = error <= allowed[0] + allowed[1] * np.abs(a)
            self.bad = ~(finite & close | both_nan | (a == b))
        self.finite, self.error, self.unequal = finite, error, unequal
        self.va, self.vb = a, b

    def metrics(self):
        f = self.finite
        a, b, d = self.va[f], self.vb[f], self.va[f] - self.vb[f]
        out = {"different": int(self.unequal.sum()),
               "nonfinite": int((~f).sum()),
               "nonfinite_different": int(np.isinf(self.error[~f]).sum()),
               "max_abs": float(np.abs(d).max()),
               "rel_l2": float(np.sqrt((d @ d) / (a @ a))) if d.any() else 0.0,
               "cosine": float(a @ b / np.sqrt((a @ a) * (b @ b))),
               "pcc": float(np.corrcoef(a, b)[0, 1])}
        if not d.any():
            out["cosine"] = out["pcc"] = 1.0
        return out

    def max_ulp(self):
        if self.a.dtype != self.b.dtype:
            return None
        ulp = np.abs(ranks(self.bits[0]) - ranks(self.bits[1]))
        return int(ulp[~(np.isnan(self.va) | np.isnan(self.vb))].max())

    def spot(self, at):
        row, layer, head, k, dim = at
        request, token = self.label[row]
        digits = [2 * x.itemsize for x in self.bits]
        return {"layer": layer, "request": request, "token": token,
                "head": head + max(self.a.head0, self.b.head0), "dim": dim,
                "abs": None if np.isinf(self.error[at]) else float(self.error[at]),
                "bits": [f"0x{int(x[at]):0{n}x}" for x, n in zip(self.bits, digits)],
                "offset": [None if o is None else int(o[at]) for o in self.offsets]}

    def worst(self, n):
        at = np.argwhere(self.bad)
        at = at[np.lexsort((at[:, 4], at[:, 3], at[:, 2], at[:, 0], at[:, 1]))]
        order = np.argsort(-self.error[tuple(at.T)], kind="stable")[:n]
        return [self.spot(tuple(int(i) for i in x)) for x in at[order]]

    def first(self):
        at = np.argwhere(self.bad)
        if not len(at):
            return None
        at = at[np.lexsort((at[:, 4], at[:, 3], at[:, 2], at[:, 0], at[:, 1]))]
        return self.spot(tuple(int(i) for i in at[0]))

    def cells(self, keep):
        """{key: (compared, different, max_abs, rel_l2)} where any is different."""
        out = {}
        for key, part in keep:
            bad = self.bad[part]
            if not bad.any():
                continue
            f = self.finite[part]
            a = self.va[part][f]
            d = a - self.vb[part][f]
            rel = float(np.sqrt((d @ d) / (a @ a))) if d.any() else 0.0
            out[key] = (bad.size, int(bad.sum()),
                        float(np.abs(d).max()) if d.size else 0.0, rel)
        return out

    def by_head(self):
        L, H = self.bad.shape[1:3]
        first = max(self.a.head0, self.b.head0)
        return self.cells((((l, h + first), np.s_[:, l, h])
                           for l in range(L) for h in range(H)))

    def by_position(self):
        column = np.array(self.column)
        return self.cells((((l, c), (np.nonzero(column == c)[0], l))
                           for l in range(self.bad.shape[1])
                           for c in self.columns))


    # tables: what is left when all axes but one are summed up

    def parts(self, axis):
        """{key of a row: index of its elements in [rows, L, H, K, D]}"""
        L, H, K, D = self.bad.shape[1:]
        head0 = max(self.a.head0, self.b.head0)
        if axis == "layer":
            return {l: np.s_[:, l] for l in range(L)}
        if axis == "head":
            return {h + head0: np.s_[:, :, h] for h in range(H)}
        if axis == "kv":
            return {k: np.s_[:, :, :, k] for k in range(K)} if K > 1 else {}
        if axis == "dim":
            return {d: np.s_[..., d] for d in range(D)}
        key = {"token": self.label, "request": [r for r, _ in self.label],
               "block": [a for a, _ in self.block]}[axis]
        rows = {}
        for i, k in enumerate(key):
            rows.setdefault(k, []).append(i)
        return {k: np.array(i) for k, i in rows.items()}

    def table(self, axis):
        """{key: numbers as --json has them} of rows where anything differs"""
        out = {}
        for key, part in self.parts(axis).items():
            f, bad = self.finite[part], self.bad[part]
            a, b = self.va[part][f], self.vb[part][f]
            d = a - b
            lost = int(np.isinf(self.error[part][~f]).sum())
            if not (bad.any() or lost or d.any()):
                continue
            aa, bb, dd = a @ a, b @ b, d @ d
            out[key] = {
                "compared": bad.size, "different": int(bad.sum()),
                "share": float(bad.sum() / bad.size), "nonfinite_different": lost,
                "max_abs": float(np.abs(d).max()) if d.size else 0.0,
                "rel_l2": (float(np.sqrt(dd / aa)) if aa else None) if dd else 0.0,
                "cosine": (float(a @ b / np.sqrt(aa * bb)) if aa and bb else None)
                          if dd else 1.0}
        return out

    def where(self):
        """{axis: set of what has a bad element}, and those where everything has one"""
        out, whole = {}, set()
        for name, axis in (("layers", "layer"), ("heads", "head"), ("tokens", "token"),
                           ("kv", "kv"), ("dims", "dim"), ("blocks", "block")):
            if axis == "block" and not self.a.blocks:
                continue
            parts = self.parts(axis)
            out[name] = {k for k, p in parts.items() if self.bad[p].any()}
            if parts and len(out[name]) == len(parts):
                whole.add(name)
        if self.b.blocks:
            out["blocks_b"] = {b for i, (_, b) in enumerate(self.block)
                               if self.bad[i].any()}
        return out, whole


# ---- comparing --------------------------------------------------------------

TABLES = ("layer", "head", "token", "dim", "kv", "block", "request")


def near(x, y):
    if isinstance(x, float) and isinstance(y, float):
        return abs(x - y) <= 1e-9 * max(abs(x), abs(y), 1e-3)
    return x == y


def spot_said(o):
    return {"layer": o["layer"], "request": o["request"], "token": o["token"],
            "head": o["head"], "dim": o["dim"], "abs": o["abs"],
            "bits": [o["a"]["bits"], o["b"]["bits"]],
            "offset": [o["a"]["offset"], o["b"]["offset"]]}


def same_spot(got, want):
    for side in range(2):
        if want["offset"][side] is None:
            got["offset"][side] = None
    return all(near(got[k], want[k]) for k in want)


def row_key(axis, row):
    return (row["request"], row["token"]) if axis == "token" else row[axis]


def badness(row):
    rel = row["rel_l2"]
    return (row["nonfinite_different"], np.inf if rel is None else rel, row["share"])


def not_worse(x, y):
    """Is row x no worse than y, as far as two orders of adding can tell?"""
    return x <= y or (x[0] == y[0] and near(x[1], y[1]))


def wrong_table(axis, rows, want, limit):
    if len(rows) != min(limit or len(want), len(want)):
        return f"table of {axis}: {len(rows)} rows, expected {len(want)} or {limit}"
    left, last = dict(want), None
    for row in rows:
        expected = left.pop(row_key(axis, row), None)
        if expected is None or not all(near(row[k], expected[k]) for k in expected):
            return f"table of {axis}: {row}, expected {expected}"
        if last and not not_worse(badness(row), badness(last)):
            return f"table of {axis}: {row} comes after {last}"
        last = row
    if last and any(not not_worse(badness(r), badness(last)) for r in left.values()):
        return f"table of {axis}: a worse row is left out"
    return ""


def wrong_where(where, e):
    sets, whole = e.where()
    if not e.bad.any():
        return "" if where is None else f"where is {where}, and nothing differs"
    for key, want in sets.items():
        got = [((s["request"], t) if key == "tokens" else t) for s in where[key]
               for t in (range(s["first"], s["last"] + 1) if key == "tokens" else
                         range(s[0], s[1] + 1))]
        if len(got) != len(set(got)) or set(got) != want:
            return f"where: {key} are {where[key]}, expected {want}"
    if not e.a.blocks:
        whole |= set(where["all"]) & {"blocks"}
    if set(where["all"]) != whole:
        return f"where: all of {where['all']}, expected {whole}"
    return ""


def wrong_tables(group, e, limit):
    """Is anything of "where" or "tables" not as numpy has it?  "" if all is."""
    for axis in group["tables"]:
        if axis == "block" and not e.a.blocks:
            continue
        said = wrong_table(axis, group["tables"][axis], e.table(axis), limit)
        if said:
            return said
    return wrong_where(group["where"], e)


def wrong(group, e, ntop):
    """What is not as numpy has it; "" if all is."""
    m = group["metrics"]
    for key, want in e.metrics().items():
        if not near(m[key], want):
            return f"{key} is {m[key]}, expected {want}"
    if m["max_ulp"] != e.max_ulp():
        return f"max_ulp is {m['max_ulp']}, expected {e.max_ulp()}"
    if group["elements"] != e.bad.size:
        return f"{group['elements']} elements, expected {e.bad.size}"
    want = e.first()
    got = group["first"] and spot_said(group["first"])
    if (got is None) != (want is None) or (want and not same_spot(got, want)):
        return f"first is {got}, expected {want}"
    worst = [spot_said(s) for s in group["worst"]]
    expected = e.worst(ntop)
    if len(worst) != len(expected) or \
            not all(map(same_spot, worst, expected)):
        return f"worst are {worst}, expected {expected}"
    for name, key, want in (("by_head", "head", e.by_head()),
                            ("by_position", "position", e.by_position())):
        got = {(c["layer"], c[key]): (c["compared"], c["different"], c["max_abs"],
                                      c["rel_l2"]) for c in group[name]}
        if set(got) != set(want) or \
                any(not near(x, y) for k in want for x, y in zip(got[k], want[k])):
            return f"{name} is {str(got)[:300]}, expected {str(want)[:300]}"
    return ""


def diff(a, b, *options):
    r = kvtool("diff", "--json", *options, *a.operands, ":", *b.operands)
    try:
        return r, r.json
    except ValueError:
        return r, None
