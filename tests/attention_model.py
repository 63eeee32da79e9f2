# SPDX-License-Identifier: Apache-2.0
"""
attention_model.py - what kvtool diff --attention must say, in numpy

Random caches of every kind whose tokens attend to one another, written in random
layouts, types and block sizes, with queries in a dump of their own; and what happens to
each query, in float64.  The softmax itself can be given: tests/engines has torch's.
"""
import json
import os

import numpy as np

from oracle import E4M3, ITEMSIZE, round_to, values, write_json

KINDS = ("full_attention", "sliding_window", "chunked_local", "rswa", "mla", "cross")


# ---- numbers as types have them --------------------------------------------------

def stored(x, dtype):
    """float64 as bits of a type, and the numbers that these are."""
    if dtype in ITEMSIZE:
        bits = round_to(x, dtype)
    else:
        finite = np.where(np.isnan(E4M3), 1e9, E4M3)
        order = np.argsort(finite[:127])
        table = finite[:127][order]
        at = np.clip(np.searchsorted(table, abs(x)), 1, len(table) - 1)
        at -= abs(x) - table[at - 1] < table[at] - abs(x)
        bits = (order[at] | (np.signbit(x) << 7)).astype(np.uint8)
    return bits, values(bits, dtype)


def save(path, array, manifest):
    np.save(path, array)
    write_json(path[:-3] + "json", {"file": os.path.basename(path), **manifest})


def write_groups(path, groups, manifest):
    """safetensors of several arrays, each a group: [(manifest of it, array)]."""
    header, at, said = {}, 0, []
    kinds = {1: "U8", 2: "BF16", 4: "F32"}
    for i, (fields, array) in enumerate(groups):
        name = fields.setdefault("id", f"g{i}")
        dtype = {"float16": "F16", "float8_e4m3fn": "F8_E4M3"}.get(
            fields["dtype"], kinds[array.itemsize])
        header[name] = {"dtype": dtype, "shape": array.shape,
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
        said.append(fields)
    header["__metadata__"] = {"kvtool": json.dumps({**manifest, "groups": said})}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, array in groups:
            f.write(np.ascontiguousarray(array).tobytes())


# ---- a case -----------------------------------------------------------------------

class Case:
    """One content, twice, with queries.  .keys[side][request]: [L, T, H, D]."""

    def __init__(self, rng, work):
        self.rng, self.work = rng, work
        self.kind = rng.choice(KINDS)
        self.mla = self.kind == "mla"
        self.layers = rng.randint(1, 3)
        self.heads = 1 if self.mla else rng.choice((1, 2, 3))
        self.ratio = rng.choice((1, 2, 4))
        self.dim = rng.choice((8, 20, 64))
        self.rank = self.dim - rng.choice((2, 4)) if self.mla else self.dim
        self.apart = not self.mla and rng.random() < 0.3
        if self.apart:
            self.rank = rng.choice((8, 24))
        self.tokens = {f"r{i}": rng.randint(9, 70) for i in range(rng.randint(1, 3))}
        self.prompt = {r: rng.randint(1, n) for r, n in self.tokens.items()}
        self.window = 0 if self.kind in ("full_attention", "cross") else \
            rng.choice((0, 7, 16)) if self.mla else rng.choice((5, 8, 16))
        if self.kind == "chunked_local":        # of a whole chunk nothing is held
            self.tokens = {r: n + (n % self.window == 0) for r, n in self.tokens.items()}
        self.scale = rng.choice((None, 0.2, 0.05)) or (0.1 if self.mla else None)
        self.cap = rng.choice((0, 0, 5.0, 30.0))
        self.proxy = rng.random() < 0.2
        self.sinks = not self.proxy and rng.random() < 0.3
        self.layer_ids = [2 * i + 1 for i in range(self.layers)]
        self.numpy = np.random.default_rng(rng.randrange(1 << 30))
        self.draw()

    def draw(self):
        r, np_rng, size = self.rng, self.numpy, self.rng.choice((0.5, 1.0, 2.0))
        self.types = [r.choice(("float32", "float16", "bfloat16")),
                      r.choice(("float32", "float16", "bfloat16", "float8_e4m3fn"))]
        if self.mla and self.types[1] == "float8_e4m3fn":
            self.types[1] = "bfloat16"
        noise = r.choice((0, 0.01, 0.3))
        first = {q: (np_rng.normal(0, size, (self.layers, n, self.heads, self.dim)),
                     np_rng.normal(0, size, (self.layers, n, self.heads, self.rank)))
                 for q, n in self.tokens.items()}
        self.keys, self.values, self.bits = [{}, {}], [{}, {}], [{}, {}]
        for side in (0, 1):
            for q, (k, v) in first.items():
                if self.mla:
                    v = k[..., :self.rank]
                if side:
                    k = k + np_rng.normal(0, 1, k.shape) * noise * size
                    v = k[..., :self.rank] if self.mla else \
                        v + np_rng.normal(0, 1, v.shape) * noise * size
                kb, self.keys[side][q] = stored(k, self.types[side])
                vb, self.values[side][q] = stored(v, self.types[side])
                self.bits[side][q] = kb, vb
        heads = self.heads * self.ratio
        self.at, self.queries = {}, {}
        for q, n in self.tokens.items():
            if self.proxy:
                continue
            # of a chunk and a window only those at the end are held
            begin = n - 1 - r.randrange(min(n, 12)) if self.kind in \
                ("chunked_local", "rswa") else r.randrange(n)
            end = n if self.kind in ("chunked_local", "rswa") else \
                r.randint(begin + 1, min(n, begin + 12))
            self.at[q] = range(begin, end)
            x = np_rng.normal(0, 1, (self.layers, len(self.at[q]), heads, self.dim))
            self.queries[q] = x.astype(np.float32).astype(float)
        if self.proxy:
            self.stand_in()
        self.sink = np_rng.normal(0, 2, (self.layers, heads)).astype(np.float32) \
            if self.sinks else None

    def stand_in(self):
        self.ratio, self.sample = 1, self.rng.choice((1, 3, 64))
        for q, n in self.tokens.items():
            held = self.held_of(q)
            count = min(self.sample, held.sum())
            step = held.sum() // count
            at = [t for t in range(n) if held[t] and (n - 1 - t) % step == 0
                  and (n - 1 - t) // step < count]
            self.at[q] = at
            self.queries[q] = self.keys[0][q][:, at]

    # ---- files

    def place(self, tokens, slots):
        """Blocks of each request, out of order, behind a null block."""
        counts = {q: -(-n // slots) for q, n in tokens.items()}
        ids = list(range(1, 1 + sum(counts.values())))
        self.rng.shuffle(ids)
        tables, at = {}, 0
        for q, n in counts.items():
            tables[q] = ids[at:at + n]
            at += n
        return tables, 1 + len(ids)

    def group(self, side, half, tables, slots, nblocks, fields):
        """(manifest, array): half 0 keys, 1 values, 2 both, 3 a latent."""
        width = {0: self.dim, 1: self.rank, 2: self.dim, 3: self.dim}[half]
        k = 2 if half == 2 else 1
        some = next(iter(self.bits[side].values()))[0]
        a = np.zeros((self.layers, nblocks, slots, self.heads, k, width), some.dtype)
        for q, n in self.tokens.items():
            t = np.arange(n)
            where = np.array(tables[q])[t // slots], t % slots
            for i in range(k):
                part = self.bits[side][q][1 if half == 1 else i]
                a[:, :, :, :, i][:, where[0], where[1]] = part
        letters = "LBSHKD" if k == 2 else "LBSHD"
        if k == 1:
            a = a[:, :, :, :, 0]
        order = list(range(1, len(letters)))
        self.rng.shuffle(order)
        order = [0] + order if self.rng.random() < 0.7 else order + [0]
        sizes = {"layers": self.layers, "num_blocks": nblocks, "block_size": slots,
                 "num_kv_heads": self.heads,
                 ("head_dim" if k == 2 else "content"): width}
        said = {"layout": "".join(letters[i] for i in order), "dtype": self.types[side],
                "kind": self.kind, "sizes": sizes, "layer_ids": self.layer_ids,
                "block_table": tables, "null_block": 0, **fields}
        if half < 2:
            said["content"] = [["kv"[half], width]]
        elif half == 3:
            said["content"] = [["kv_c", self.rank], ["k_pe", self.dim - self.rank]]
        if self.window:
            # what has left the window is in the files; the sides hold it, too
            said.update(window=self.window, retained_tokens=10 ** 6)
        if self.kind in ("chunked_local", "rswa"):
            del said["retained_tokens"]
        return said, a.transpose(order)

    def write_side(self, side):
        slots = self.rng.choice((1, 4, 16))
        tables, nblocks = self.place(self.tokens, slots)
        halves = (0, 1) if self.apart else (3,) if self.mla else (2,)
        path = os.path.join(self.work, f"{'ab'[side]}.safetensors")
        if self.types[side] == "float8_e4m3fn":
            self.scale_of = [0.5, 1.5]
        groups = [self.group(side, half, tables, slots, nblocks, {}) for half in halves]
        write_groups(path, groups, {
            "num_tokens": self.tokens, "prompt_tokens": self.prompt})
        return path

    def write_queries(self):
        groups, blocks, tables, first = [], [], {}, {}
        for q, at in self.at.items():
            tables[q] = list(range(len(blocks), len(blocks) + len(at)))
            first[q] = at[0]
            blocks += list(self.queries[q].swapaxes(0, 1))
        a = np.array(blocks).astype(np.float32).swapaxes(0, 1)
        L, B, H, D = a.shape
        groups.append(({"layout": "LBHD", "dtype": "float32", "kind": "full_attention",
                        "sizes": {"layers": L, "num_blocks": B, "block_size": 1,
                                  "num_kv_heads": H, "content": D},
                        "content": [["q", D]], "layer_ids": self.layer_ids,
                        "block_table": tables}, a))
        if self.sinks:
            groups.append(({"id": "sinks", "layout": "LBHD", "dtype": "float32",
                            "kind": "opaque",
                            "sizes": {"layers": L, "num_blocks": 1, "block_size": 1,
                                      "num_kv_heads": H, "content": 1},
                            "layer_ids": self.layer_ids, "block_table": {}},
                           self.sink[:, None, :, None]))
        path = os.path.join(self.work, "q.safetensors")
        write_groups(path, groups, {"num_tokens": {q: len(at) for q, at in
                                                   self.at.items()},
                                    "first_token": first})
        return path

    def write(self):
        """Operands and options of kvtool diff."""
        sides = [self.write_side(s) for s in (0, 1)]
        attend = []
        if self.scale:
            attend.append(f"scale={self.scale}")
        if self.cap:
            attend.append(f"cap={self.cap}")
        if self.proxy:
            attend.append(f"sample={self.sample}")
        options = ["--attention" + ("" if self.proxy else f"={self.write_queries()}")]
        if attend:
            options.append("--attend=" + ",".join(attend))
        if self.types[0] != self.types[1]:
            options.append("--tolerance=atol=1e9")
        if self.types[1] == "float8_e4m3fn":
            options.append("--scale-b=1")
        return sides + options

    # ---- what must come out

    def seen(self, q, position):
        n = self.tokens[q]
        t = np.arange(n)
        if self.kind == "cross":
            return np.ones(n, bool)
        see = t <= position
        if self.kind == "chunked_local":
            see &= t >= position // self.window * self.window
        elif self.kind == "rswa":
            see &= (t > position - self.window) | (t < self.prompt[q])
        elif self.window:
            see &= t > position - self.window
        return see

    def held_of(self, q):
        """Tokens that are compared: others have left a chunk, or a window."""
        n = self.tokens[q]
        t = np.arange(n)
        if self.kind == "chunked_local":
            return t >= n // self.window * self.window
        if self.kind == "rswa":
            return (t < self.prompt[q]) | (t >= n - self.window)
        return t >= 0

    def expected(self, softmax=None):
        """{(layer, head): (queries, [change], [rel], dd, aa, surely, perhaps)}"""
        out = {}
        scale = self.scale or self.dim ** -0.5
        for l in range(self.layers):
            for h in range(self.heads * self.ratio):
                out[self.layer_ids[l], h] = self.of_head(l, h, scale,
                                                         softmax or self.softmax)
        return out

    def of_head(self, l, h, scale, softmax):
        change, rel, dd, aa, surely, perhaps = [], [], 0, 0, 0, 0
        sink = None if self.sink is None else self.sink[l, h]
        for q, positions in self.at.items():
            held = self.held_of(q)
            for i, p in enumerate(positions):
                if not held[p]:
                    continue
                see = self.seen(q, p) & held
                x = self.queries[q][l, i, h]
                k = [self.keys[s][q][l, see, h // self.ratio] for s in (0, 1)]
                v = [self.values[s][q][l, see, h // self.ratio] for s in (0, 1)]
                done = [softmax(x, k[s], v[s], scale, self.cap, sink) for s in (0, 1)]
                (sa, wa, oa), (sb, wb, ob) = done
                change.append(abs(wa - wb).sum() / 2)
                d, a = ((oa - ob) ** 2).sum(), (oa ** 2).sum()
                dd, aa = dd + d, aa + a
                rel.append(np.sqrt(d / a) if d else 0)
                lost = sb.max() - sb[sa >= sa.max() - 1e-5]
                surely += (lost > 1e-5).all()
                perhaps += (lost > -1e-5).any() and sb.max() - lost.max() < sb.max()
        return len(change), change, rel, dd, aa, surely, max(surely, perhaps)

    @staticmethod
    def softmax(q, k, v, scale, cap, sink):
        s = k @ q * scale
        if cap:
            s = cap * np.tanh(s / cap)
        every = s if sink is None else np.append(s, float(sink))
        w = np.exp(every - every.max())
        w /= w.sum()
        return s, w, w[:len(s)] @ v

    def wrong(self, said, softmax=None):
        """What kvtool said, held against it; "" if all is well, and the largest error."""
        most, cells = 0.0, {}
        for group in said["groups"]:
            for cell in group["cells"]:
                cells[cell["layer"], cell["head"]] = cell
        want = self.expected(softmax)
        if set(cells) != set(want):
            return f"cells {sorted(cells)}, expected {sorted(want)}", most
        for key, (n, change, rel, dd, aa, surely, perhaps) in want.items():
            cell = cells[key]
            if cell["queries"] != n:
                return f"{key}: {cell['queries']} queries, expected {n}", most
            if not n:
                continue
            pairs = {"change": np.mean(change), "change_max": max(change),
                     "rel_l2": np.sqrt(dd / aa) if dd else 0, "worst": max(rel)}
            for name, right in pairs.items():
                error = abs(cell[name] - right)
                most = max(most, error)
                if error > 1e-5:
                    return f"{key} {name}: {cell[name]}, expected {right}", most
            top = round(cell["top_changed"] * n)
            if not surely <= top <= perhaps:
                return f"{key}: top changes {top} of {n}, not {surely}-{perhaps}", most
        return "", most
