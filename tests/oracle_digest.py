#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
oracle_digest.py - kvtool-digest(1) computed a second time, from the definition

Reads the dumps through their sidecars, hashes every cell itself (python3-xxhash)
and compares each digest the program prints, then damages dumps on purpose and
expects both sides to notice the same thing.
"""
import copy
import json
import os
import re
import sys

sys.dont_write_bytecode = True

import numpy as np

import oracle
from oracle import FULL, Tap, kvtool

try:
    import xxhash
except ImportError:
    print("1..0 # SKIP python3-xxhash is not installed")
    sys.exit(0)

tap = Tap()
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


def text(scope, lanes):
    return f"kvd1:{scope}:{int(lanes[1]):016x}{int(lanes[0]):016x}"


class Pool:
    """
    content[L, B, S, N, 2] with the head and the component of each of the N
    cells of a state; live[request] = (block, state) of each position.
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
            block, state = self.live[request]
            content = self.content[:, block, state]
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
        if by == "block" and scope == "blocks":
            return {f"block={b}": fold(self.blocks()[:, b])
                    for b in range(self.content.shape[1])}
        return None


SCOPES = ("tokens", "blocks")
BYS = ("whole", "request", "layer", "head", "block")


# ---- pools out of dumps -----------------------------------------------------

def table_live(tables, ntokens, states):
    live = {}
    for r, table in tables.items():
        t = np.arange(ntokens[r])
        live[r] = (np.array(table)[t // states], t % states)
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
    return (np.repeat(np.arange(heads) + first, 2),
            np.tile([KEY, VALUE], heads))


def attention_pool(dump, cells=None, tables=None):
    cells = dump.cells if cells is None else cells
    head, component = attention_axes(dump.dims["H"], dump.head_start,
                                     dump.latent)
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


def conv_heads(conv, ranks):
    """Index of each channel inside its part of the whole model."""
    head, component, begin_of_part = [], [], 0
    for code, part in ((CONV_X, "x"), (CONV_B, "B"), (CONV_C, "C")):
        begin, end = conv[part]
        first = conv["global_" + part][0] - begin_of_part
        head += range(first, first + end - begin)
        component += [code] * (end - begin)
        begin_of_part += ranks * (end - begin)  # every rank holds a share
    return head, component


class MambaDump:
    def __init__(self, sidecar):
        with open(sidecar) as f:
            self.side = json.load(f)
        self.name = sidecar[len(oracle.DATA) + 1:-5]
        self.folder = os.path.basename(os.path.dirname(sidecar))
        self.path = os.path.join(os.path.dirname(sidecar), self.side["file"])
        self.page = np.load(self.path).reshape(
            self.side["sizes"]["layers"], self.side["sizes"]["num_blocks"], -1)

    def pool(self):
        side = self.side
        conv = conv_cells(self.page, side["conv"])
        head, component = conv_heads(side["conv"], side["tp_size"])
        at, (heads, dim, state) = side["ssm"]["byte_offset"], side["ssm"]["shape"]
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


# ---- the program ------------------------------------------------------------

LINE = re.compile(r"(kvd1:(\w+):[0-9a-f]{32})  (?:([^/]*=[^/]*)  )?(.*)")


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


def whole(path, *options):
    """(tokens, blocks) as printed; None where there is none."""
    found, _ = printed(path, *options)
    found = found or {}
    return tuple(found.get(s, {}).get("") for s in SCOPES)


def compare(name, got, want):
    """Two {label: value}."""
    for label in sorted(set(got) | set(want)):
        if got.get(label) != want.get(label):
            tap.ok(False, name, f"{label or 'whole'}: got {got.get(label)}, "
                   f"expected {want.get(label)}")
            return
    tap.ok(len(want) > 0, f"{name} ({len(want)})")


def check_file(name, path, pool, bys=BYS, scopes=SCOPES):
    for by in bys:
        for scope in scopes:
            want = pool.expected(scope, by)
            if want is None:
                continue
            got, said = printed(path, "--scope", scope, "--by", by)
            if not tap.ok(got is not None, f"{name}: {scope} by {by}: exit 0",
                          said):
                continue
            compare(f"{name}: {scope} by {by}", got.get(scope, {}),
                    {k: text(scope, v) for k, v in want.items()})


def check_plain(name, path, pool):
    """Without options: one line for each scope, tokens first."""
    r = kvtool("digest", path)
    want = "".join(f"{text(s, pool.expected(s, 'whole')[''])}  {path}\n"
                   for s in SCOPES)
    tap.equal(r.out, want, f"{name}: the two lines")


def check_json(name, path, pool):
    for by in ("whole", "request", "head", "block"):
        r = kvtool("digest", "--json", "--by", by, path)
        try:
            said = json.loads(r.out)
            said = said[0] if isinstance(said, list) else said
            got = {}
            for row in said["digests"]:
                label = " ".join(f"{k}={row[k]}" for k in
                                 ("request", "layer", "head", "block")
                                 if k in row)
                got.setdefault(row["scope"], {})[label] = row["value"]
                if row["by"] != by:
                    raise ValueError(f"by {row['by']}, expected {by}")
            if said["kvtool_json"] != 1 or said["file"] != path:
                raise ValueError("kvtool_json or file is wrong")
        except (ValueError, KeyError, IndexError) as e:
            tap.ok(False, f"{name}: --json --by {by}", f"{e!r}\n{r}")
            continue
        for scope in SCOPES:
            want = pool.expected(scope, by)
            if want is not None:
                compare(f"{name}: --json {scope} by {by}", got.get(scope, {}),
                        {k: text(scope, v) for k, v in want.items()})


# ---- what must be equal, and what must not ----------------------------------

def check_dumps(dumps, pools):
    seen = set()
    for d in dumps:
        # all forms once for each shape and type; the rest whole
        kind = (d.model, d.folder, d.dtype)
        first = FULL or kind not in seen
        seen.add(kind)
        check_file(d.name, d.path, pools[d.name],
                   BYS if first else ("whole", "request"))
    for d in dumps[:1] + dumps[-1:]:
        check_plain(d.name, d.path, pools[d.name])
        check_json(d.name, d.path, pools[d.name])


def check_same(dumps):
    """One set of values, many files: the printed digests themselves agree."""
    by_kind = {}
    for d in dumps:
        if not d.folder.startswith("tp"):
            by_kind.setdefault((d.model, d.folder, d.dtype), []).append(d)
    for kind, members in by_kind.items():
        values = {whole(d.path) for d in members}
        tap.ok(len(values) == 1 and all(values.copy().pop()),
               f"{' '.join(kind)}: one digest for {len(members)} layouts",
               values)
    tokens = {k: whole(v[0].path)[0] for k, v in by_kind.items()}
    tap.ok(tokens["s260k", "paged_bs16", "bfloat16"] ==
           tokens["s260k", "paged_bs32", "bfloat16"],
           "s260k: block size 16 and 32 have one tokens digest")
    kinds = {tokens["s260k", "paged_bs16", t]
             for t in ("bfloat16", "float16", "float32")}
    tap.equal(len(kinds), 3, "s260k: three element types, three digests")


def lanes(value):
    bits = value.split(":")[2]
    return int(bits[16:], 16), int(bits[:16], 16)


def check_ranks(name, whole_path, rank_paths):
    """Digests of disjoint heads add up to that of all of them."""
    total = [0, 0]
    for path in rank_paths:
        value = whole(path)[0]
        if value is None:
            tap.ok(False, name, f"{path}: no digest")
            return
        total = [(a + b) & MASK for a, b in zip(total, lanes(value))]
    value = whole(whole_path)[0]
    tap.equal(text("tokens", total), value, name)


def check_parallel(dumps, mamba):
    tp1 = next(d for d in dumps if d.name == "s260k/paged_bs16/packed_nhd.bf16")
    for folder in ("tp2", "tp4"):
        check_ranks(f"s260k: ranks of {folder} add up", tp1.path,
                    [d.path for d in dumps if d.folder == folder])
    one = {m.folder: m for m in mamba}
    for folder in ("tp2_SD", "tp4_DS"):
        check_ranks(f"mamba2g4: ranks of {folder} add up",
                    one["tp1_SD"].path,
                    [m.path for m in mamba if m.folder == folder])


def check_mamba(mamba):
    for m in mamba:
        check_file(m.name, m.path, m.pool(),
                   BYS if FULL or m.folder in ("tp1_SD", "tp4_DS")
                   else ("whole", "request", "layer"))
    both = {whole(m.path) for m in mamba if m.folder.startswith("tp1")}
    tap.ok(len(both) == 1 and all(both.copy().pop()),
           "mamba2g4: SD and DS have one digest", both)


# ---- connector folders ------------------------------------------------------

def connector_cells(path, shape, heads):
    """[L, T, H, K, D] of one request as bits; shape as layout.json words it."""
    layers = []
    names = sorted(os.listdir(path),
                   key=lambda n: [int(x) for x in re.findall(r"\d+", n)])
    for name in names:
        (_, extents, raw), = oracle.safetensors_tensors(
            f"{path}/{name}").values()
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
    with open(f"{top}/layout.json") as f:
        side = json.load(f)
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
    return pool


def check_connectors(pools):
    base = {"s260k": "s260k/paged_bs16/packed_nhd.bf16",
            "gqa64": "gqa64/paged_bs16/packed_nhd.bf16",
            "mla144": "mla144/paged_bs16/mla_lbsc.bf16"}
    values = set()
    for model, paged in base.items():
        tops = [f"{oracle.DATA}/{model}/connector"]
        if model != "mla144":
            tops = [f"{tops[0]}/{g}" for g in sorted(os.listdir(tops[0]))]
        for top in tops:
            pool = connector_pool(top, model)
            name = top[len(oracle.DATA) + 1:]
            for folder, (_, state) in pool.live.items():
                truth = pools[paged].tokens(pool.names[folder])
                tap.ok(np.array_equal(pool.tokens(folder),
                                      truth[:, :len(state)]),
                       f"evaluator: {name}: {pool.names[folder]} is what the "
                       "paged cache holds")
            check_file(name, top, pool, ("whole", "request", "layer", "head"),
                       ("tokens",))
            if model == "s260k":
                values.add(whole(top)[0])
    tap.ok(len(values) == 1 and None not in values,
           "s260k: three connector generations, one digest", values)


# ---- after a conversion -----------------------------------------------------

def check_converted(dumps, pools, tmp):
    """The digest does not see formats and layouts."""
    for n, d in enumerate(dumps if FULL else dumps[::5]):
        presets = (("mla", "mla-cross") if d.latent else
                   ("bhlsc", "rocm-paged", "cross-kv-head"))
        for preset in presets:
            for ending in (".h5", ".safetensors", ".npy", ".bin"):
                if ending == ".h5" and preset == "rocm-paged" and not FULL:
                    continue
                out = f"{tmp}/{n}.{preset}{ending}"
                kvtool("relayout", "--to", preset, "-o", out, d.path)
                check_file(f"{d.name} -> {preset} {ending}", out,
                           pools[d.name], ("whole",))


# ---- damage -----------------------------------------------------------------

class Patient:
    """A dump to damage: writes changed cells under the same name elsewhere."""

    def __init__(self, dump, tmp):
        self.dump, self.tmp, self.count = dump, tmp, 0
        self.before = whole(dump.path)

    def write(self, cells, side=None):
        d = self.dump
        folder = f"{self.tmp}/patient{self.count}"
        self.count += 1
        os.mkdir(folder)
        bits = np.empty(d.nelements, oracle.UNSIGNED[d.itemsize])
        bits[d.offsets] = cells
        path = f"{folder}/{os.path.basename(d.path)}"
        np.save(path, bits.reshape(d.side["file_shape"]))
        with open(path[:-4] + ".json", "w") as f:
            json.dump(side or d.side, f)
        return path

    def check(self, name, cells, changed, side=None):
        """'changed' = do (tokens, blocks) have to differ from before?"""
        tables = side["block_table"] if side else None
        pool = attention_pool(self.dump, cells, tables)
        after = whole(self.write(cells, side))
        name = f"{self.dump.name}: {name}"
        for i, scope in enumerate(SCOPES):
            want = text(scope, pool.expected(scope, "whole")[""])
            tap.equal(after[i], want, f"{name}: {scope} as computed")
            tap.ok((after[i] != self.before[i]) == changed[i],
                   f"{name}: {scope} {'changes' if changed[i] else 'stays'}",
                   f"before {self.before[i]}\nafter  {after[i]}")


def live_states(dump):
    """bool [B, S]: does any request have a token there?"""
    live = np.zeros((dump.dims["B"], dump.dims["S"]), bool)
    for block, state in table_live(dump.tables, dump.ntokens,
                                   dump.dims["S"]).values():
        live[block, state] = True
    return live


def check_flips(patient, count, seed):
    """Single bits, anywhere in the array."""
    rng = np.random.default_rng(seed)
    live = live_states(patient.dump)
    for _ in range(count):
        cells = patient.dump.cells.copy()
        at = tuple(int(rng.integers(n)) for n in cells.shape)
        bit = int(rng.integers(8 * cells.itemsize))
        cells[at] ^= cells.dtype.type(1 << bit)
        k, l, b, s, h, d = at
        patient.check(f"bit {bit} of k/v {k} layer {l} block {b} state {s} "
                      f"head {h} element {d}", cells,
                      (bool(live[b, s]), True))


def swap(cells, a, b):
    out = cells.copy()
    out[a], out[b] = cells[b], cells[a]
    return out


def check_swaps(patient):
    """index = [k/v, layer, block, state, head]"""
    d = patient.dump
    a, b = d.tables["A"], d.tables["B"]
    S, every = d.dims["S"], slice(None)

    def at(request, t, k=every, l=every, h=every):
        return (k, l, d.tables[request][t // S], t % S, h)

    last = d.dims["L"] - 1
    cases = [("two layers", (every, 0), (every, last)),
             ("two layers of one token", at("A", 40, l=0), at("A", 40, l=last)),
             ("two tokens of a request", at("A", 33), at("A", 34)),
             ("two tokens a block apart", at("A", 33), at("A", 33 + S)),
             ("two requests at one position", at("A", 40), at("B", 40)),
             ("two blocks of a request", (every, every, a[2]),
              (every, every, a[3])),
             ("two blocks of two requests", (every, every, a[2]),
              (every, every, b[2]))]
    if not d.latent:
        cases += [
            ("two heads", (every, every, every, every, 0),
             (every, every, every, every, 1)),
            ("two heads of one token", at("A", 40, h=0), at("A", 40, h=1)),
            ("two heads of a layer", (every, 1, every, every, 0),
             (every, 1, every, every, 1)),
            ("keys and values", (0,), (1,)),
            ("key and value of one token", at("B", 37, k=0), at("B", 37, k=1))]
    for name, i, j in cases:
        patient.check(f"swap {name}", swap(d.cells, i, j), (True, True))


def check_moves(patient):
    """Blocks that move with their table stay the same tokens."""
    d = patient.dump
    order = np.random.default_rng(7).permutation(d.dims["B"])
    cells = np.empty_like(d.cells)
    cells[:, :, order] = d.cells
    side = copy.deepcopy(d.side)
    side["block_table"] = {r: [int(order[b]) for b in t]
                           for r, t in d.tables.items()}
    side["null_block"] = int(order[d.side["null_block"]])
    if "free_blocks" in side:
        side["free_blocks"] = [int(order[b]) for b in side["free_blocks"]]
    side.pop("shared_prefix", None)
    patient.check("blocks in another order, tables too", cells, (False, True),
                  side)


def check_names(dump, tmp):
    """A digest belongs to request ids: two that change places show."""
    side = copy.deepcopy(dump.side)
    for table in (side["block_table"], side["num_tokens"]):
        table["A"], table["B"] = table["B"], table["A"]
    path = Patient(dump, tmp).write(dump.cells, side)
    before, after = whole(dump.path), whole(path)
    tap.ok(None not in before + after and after[0] != before[0],
           f"{dump.name}: swap two request ids: tokens changes")
    tap.ok(None not in before + after and after[1] == before[1],
           f"{dump.name}: swap two request ids: blocks stays")


def main():
    oracle.need_program_and_data()
    dumps = oracle.attention_dumps()
    pools = {d.name: attention_pool(d) for d in dumps}
    mamba = [MambaDump(s) for s in oracle.sidecars("mamba2g4")]
    check_dumps(dumps, pools)
    check_same(dumps)
    check_parallel(dumps, mamba)
    check_mamba(mamba)
    check_connectors(pools)
    by_name = {d.name: d for d in dumps}
    with oracle.workdir() as tmp:
        check_converted(dumps, pools, tmp)
        for n, name in enumerate(("gqa64/paged_bs16/packed_nhd.bf16",
                                  "mla144/paged_bs16/mla_blsc.bf16",
                                  "gqa64/paged_bs16/rocm_x.bf16")):
            os.mkdir(f"{tmp}/p{n}")
            patient = Patient(by_name[name], f"{tmp}/p{n}")
            check_flips(patient, 200 if FULL else 12, 100 + n)
            check_swaps(patient)
            check_moves(patient)
        os.mkdir(f"{tmp}/ids")
        check_names(by_name["gqa64/paged_bs16/packed_nhd.bf16"], f"{tmp}/ids")
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
