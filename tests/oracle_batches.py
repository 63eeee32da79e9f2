#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_batches.py - rows of a batch are requests of their own lengths, and the caches of a
CacheList are groups of their own, in prompt caches of mlx-lm

What mlx-lm wrote is held against what it gave of each row and part; what is made up here
against the rules of its classes, in both forms; and numbers that do not fit are refused.
"""
import random


import oracle
import oracle_transformers as of
from foreign_files import safetensors_bytes
from oracle import kvtool, refused, runs, tap, write_bytes

import h5py
import numpy as np

H, D = 2, 4
HERE = f"{oracle.ENGINES}/mlx"


# ---- what is told --------------------------------------------------------------


class Told:
    """A file of rows by the groups of kvtool, in float32."""

    def __init__(self, path, tmp, *options):
        self.r = kvtool("convert", "-f", *options, path, f"{tmp}/x.h5")
        self.groups, self.rows = {}, []
        if self.r.code:
            return
        with h5py.File(f"{tmp}/x.h5") as f:
            for name in f["groups"]:
                g = of.Group(f, name)
                g.cells = self.values_of(g.cells)
                self.groups[name] = g
            for r in range(len(f["requests"])):
                q = f["requests"][str(r)]
                first = int(q.attrs.get("first_token", 0))
                end = first + int(q.attrs["num_computed_tokens"])
                tables = {n: q["block_table"][n][()] for n in self.groups}
                self.rows.append((first, end, tables))

    @staticmethod
    def values_of(bits):
        return bits.view("<f2" if bits.dtype.itemsize == 2 else "<f4").astype("<f4")

    def row(self, name, layer, r, n):
        """[H, n, K, D] of the newest n tokens of a row, as far as it has a window"""
        g, (first, end, tables) = self.groups[name], self.rows[r]
        n = min(n, end, g.window - 1 if g.window else n)
        got = g.tokens(tables[name], first, end - n, end)
        return got[g.layers.index(layer)].transpose(1, 0, 2, 3)

    def wrong(self, name, layer, r, halves, given):
        """halves: [H, n, D] of the newest n of the tokens that a row was given"""
        if self.rows[r][1] != given:
            return [f"row {r} has {self.rows[r][1]} tokens, not {given}"]
        halves = [h for h in halves if h.shape[-1]]
        alike = len({h.shape for h in halves}) == 1
        want = np.stack(halves, 2) if alike else np.concatenate(halves, -1)[:, :, None]
        if not given:
            return []
        got = self.row(name, layer, r, want.shape[1])
        want = want[:, want.shape[1] - got.shape[1]:]
        return [] if np.array_equal(got, want) else [f"{name} {layer} of row {r}"]


# ---- what mlx-lm wrote -----------------------------------------------------------

# sample: groups with where the oracle has their layers, "LAYER" or "LAYER.PART"
SAMPLES = {
    "chunk.031": {"g0": ["0"], "g1": ["1"]},
    "chunk.032": {"g0": ["0"], "g1": ["1"]},
    "list_latents.031": {"g0": ["0.0", "1.0"], "g1": ["0.1", "1.1"]},
    "list_indexed.031": {"g0": ["0.0", "1.0", "2.0"], "indexer": ["1.1", "2.1"]},
    "list_indexed.032": {"g0": ["0.0", "1.0", "2.0"], "indexer": ["1.1", "2.1"]},
    "list_ring.031": {"g0": ["0.0", "1.0"], "g1": ["0.1", "1.1"]},
    "list_ring.032": {"g0": ["0.0", "1.0"], "g1": ["0.1", "1.1"]},
    "list_states.031": {"g0": ["0.1", "1.1"], "conv": ["0.0"], "ssm": ["0.0"]},
    "list_states.032": {"g0": ["0.1", "1.1"], "conv": ["0.0"], "ssm": ["0.0"]},
    "batch_turned.031": {"g0": ["0"], "g1": ["1"]},
    "batch_turned.032": {"g0": ["0"], "g1": ["1"]},
    "batch_long.031": {"g0": ["0"], "g1": ["1"]},
    "batch_filtered.032": {"g0": ["0"], "g1": ["1"]},
    "batch_merged.032": {"g0": ["0"], "g1": ["1"], "conv": ["2"], "ssm": ["2"]},
}


def of_sample(told, held, name, at):
    """Wrong rows of a layer of attention."""
    layer, wrong = int(at.split(".")[0]), []
    if f"{at}.0.offset" in held:                            # a batch
        for r in range(len(told.rows)):
            halves = [held[f"{at}.{r}.{x}"] for x in ("keys", "values")]
            wrong += told.wrong(name, layer, r, halves, int(held[f"{at}.{r}.offset"]))
        return wrong
    halves = [held[f"{at}.{x}"][0] for x in ("keys", "values")]
    if name == "indexer":
        halves = halves[:1]
    return told.wrong(name, layer, 0, halves, told.rows[0][1])


def of_state(told, held, name, at):
    layer = at.split(".")[0]
    want = held[f"{at}.{name}"]
    got = told.groups[name].cells[told.groups[name].layers.index(int(layer)), 0]
    if name == "conv":                                      # [B, H, S, D]
        got = got[:, 0]
    return [] if np.array_equal(got.reshape(want.shape), want) else [f"{name} of {at}"]


def check_samples(tmp):
    for sample, groups in SAMPLES.items():
        path = f"{HERE}/{sample}.safetensors"
        with np.load(f"{HERE}/{sample}.oracle.npz") as z:
            held = {k: z[k] for k in z.files}
        told = Told(path, tmp)
        if not tap.equal(sorted(told.groups), sorted(groups), f"{sample}: groups"):
            tap.ok(False, f"{sample} is read", told.r)
            continue
        wrong = []
        for name, layers in groups.items():
            for at in layers:
                wrong += (of_state if name in ("conv", "ssm") else of_sample)(
                    told, held, name, at)
        tap.ok(not wrong, f"{sample}: what mlx-lm held", wrong)
        for command in ("fsck", "-q"), ("diff", "-q", path):
            runs(f"{sample}: {command[0]}", *command, path)
        sums = {kvtool("digest", p).out.split()[-2] for p in (path, f"{tmp}/x.h5")}
        tap.equal(len(sums), 1, f"{sample}: the digest of its snapshot is the same")


# ---- DeepSeek V4.1 -----------------------------------------------------------------

V41 = {"g": "window", "comp": "compress_kv", "indexer": "index_k", "buf.kv": "pending_kv",
       "buf.gate": "pending_gate"}


def check_v41(tmp):
    """A window, rows of 1 and 2 tokens in some layers, and what waits."""
    for sample in "v41.032", "v41_short.032":
        path, wrong = f"{HERE}/{sample}.safetensors", []
        with np.load(f"{HERE}/{sample}.oracle.npz") as z:
            held = {k: z[k] for k in z.files}
        left = {k for k in held if not k.endswith(("offset", "ratio"))}
        told = Told(path, tmp)
        for name, g in told.groups.items():
            tables = told.rows[0][2]
            rows = g.cells[:, 0, :, 0][:, tables[name]]     # [L, B, S, D]
            for l, got in zip(g.layers, rows.reshape(len(rows), -1, rows.shape[-1])):
                what = f"{l}.{V41[name.rstrip('012')]}"
                want, end = held[what][0], int(held["0.offset"])
                at = 0 if name.startswith(("comp", "indexer")) else end - len(want)
                left.discard(what)
                if not np.array_equal(got[at:at + len(want)], want):
                    wrong.append(what)
        tap.equal((wrong, sorted(left)), ([], []), f"{sample}: what mlx-lm held")
        r = kvtool("fsck", path)
        tap.ok(r.code == 0 and "warning" not in r.out, f"{sample}: sound", r)
        runs(f"{sample}: equal to its snapshot", "diff", "-q", path, f"{tmp}/x.h5")
    tensors = oracle.safetensors_tensors(f"{HERE}/v41.032.safetensors")
    types = {"F16": "<f2", "F32": "<f4", "I32": "<i4"}
    good = {n: (t, np.frombuffer(raw, types[t]).reshape(shape))
            for n, (t, shape, raw) in tensors.items()}
    meta = {f"1.{l}": "LayerCache" for l in range(4)} | {"2.0": ""}
    for what, name, a in (("a row too many", "1.1", np.zeros((1, 9, 8), "<f2")),
                          ("keys of other rows", "1.2", np.zeros((1, 6, 4), "<f2")),
                          ("more that waits", "1.3", np.zeros((1, 2, 8), "<f4")),
                          ("other tokens", "1.5", np.array(14, "<i4")),
                          ("fewer than the window", "0.5", np.array(7, "<i4")),
                          ("-1 tokens", "1.5", np.array(-1, "<i4")),
                          ("no rows", "1.1", np.zeros((1, 7, 2, 4), "<f2"))):
        of_type = {"<f2": "F16", "<f4": "F32", "<i4": "I32"}[a.dtype.str]
        write_bytes(f"{tmp}/h.safetensors",
                    safetensors_bytes(good | {name: (of_type, a)}, meta))
        refused(f"V4.1: {what}", 4, "LayerCache", "describe", f"{tmp}/h.safetensors")


# ---- batches by the rules of their classes ------------------------------------------


class Batch:
    """Rows that are padded on the left and end together; slots hold (row's) tokens."""
    name = "BatchKVCache"

    def __init__(self, rng, padding):
        self.rows = [[-1] * p for p in padding]
        self.slots, self.padding, self.step = 0, list(padding), rng.choice((1, 4, 8))
        self.given = [-p for p in padding]
        self.held = [[] for _ in padding]                   # slot to token, -1 none

    def give(self, n):
        for r, slots in enumerate(self.held):
            del slots[self.slots:]
            slots += range(self.given[r], self.given[r] + n)
            slots += [-1] * (-(self.slots + n) % self.step)
            self.given[r] += n
        self.slots += n

    def numbers(self, form):
        return [] if form == "cut" else [("I32", self.slots)]

    def cut(self):
        return self.slots


class BatchRing(Batch):
    """The newest 'most' of them; what is written in place begins anew when it is full."""
    name = "BatchRotatingKVCache"

    def __init__(self, rng, padding):
        super().__init__(rng, padding)
        self.most, self.next, self.count, self.turned = rng.randint(3, 9), 0, 0, False

    def in_order(self, slots):
        return slots[self.next:] + slots[:self.next] if self.turned else slots[:self.next]

    def give(self, n):
        if n > 1:
            lost = 0
            for r, slots in enumerate(self.held):
                old = self.in_order(slots)
                lost = max(len(old) - self.most + 1, 0) if old else 0
                self.held[r] = old[lost:] + list(range(self.given[r], self.given[r] + n))
            self.turned = False
            self.next = len(self.held[0])
            self.padding = [p - lost for p in self.padding]
        else:
            room = len(self.held[0])
            if self.count >= room and room < self.most:
                more = min(self.step, self.most - self.count)
                self.held = [s + [-1] * more for s in self.held]
                self.next = self.count
            elif room > self.most:
                self.held = [s[room - self.most:] for s in self.held]
                self.padding = [p - (room - self.most) for p in self.padding]
                self.next = self.most
            if self.next == self.most:
                self.turned, self.next = True, 0
            if self.turned:
                self.padding = [p - 1 for p in self.padding]
            for r, slots in enumerate(self.held):
                slots[self.next] = self.given[r]
            self.next += 1
        self.given = [g + n for g in self.given]
        self.count += n

    def numbers(self, form):
        turned = str(self.turned) if form == "cut" else ("BOOL", self.turned)
        if form == "cut":
            return [str(n) for n in (self.most, self.count, self.next)] + [turned]
        return [("I32", n) for n in (self.most, self.count, self.next)] + [turned]

    def cut(self):
        return min(self.count, len(self.held[0]))


def array(dtype, n):
    return dtype, np.array(n, np.bool_ if dtype == "BOOL" else np.int32)


def save(caches, form, values, change=None):
    """As mlx-lm 0.31 ("cut") or 0.32 ("whole") writes it."""
    tensors, meta = {}, {}
    for l, c in enumerate(caches):
        end = c.cut() if form == "cut" else len(c.held[0])
        for half in range(2):
            tensors[f"{l}.{half}"] = "F32", np.stack(
                [values(l, half, r, slots[:end]) for r, slots in enumerate(c.held)])
        tensors[f"{l}.2"], tensors[f"{l}.3"] = array("I32", c.given), \
            array("I32", c.padding)
        if form == "cut":
            meta |= {"2." + str(l): c.name, "1.model": "tiny"}
            said = c.numbers(form)
            meta |= {f"0.{l}.{i}": n for i, n in enumerate(said)} or {f"0.{l}": ""}
        else:
            meta |= {"1." + str(l): c.name, "0.model": "tiny", "2.0": ""}
            tensors |= {f"{l}.{i + 4}": array(*n) for i, n in enumerate(c.numbers(form))}
    if change:
        change(tensors, meta)
    return safetensors_bytes(tensors, meta)


def content(seed):
    """values(layer, half, row, tokens) -> [H, slots, D]"""
    draw = np.random.default_rng(seed)
    all_of = draw.standard_normal((3, 2, 4, H, 80, D)).astype(np.float32)

    def values(l, half, r, tokens):
        at = np.array(tokens, dtype=int)
        return (all_of[l, half, r][:, np.maximum(at, 0)] *
                (at >= 0)[:, None]).astype(np.float32)

    return values


def make(seed):
    rng = random.Random(seed)
    padding = [rng.randint(0, 6) for _ in range(rng.randint(1, 4))]
    padding[0] = 0
    classes = rng.choice(([Batch], [BatchRing], [BatchRing, Batch],
                          [BatchRing, Batch, Batch]))
    caches = [c(rng, padding) for c in classes]
    for n in rng.choice(([7], [9, 1, 1], [7] + [1] * 12, [8, 5, 1], [1] * 9, [11, 3, 4],
                         [2, 2, 6], [12, 1, 1, 5, 1, 1])):
        for c in caches:
            c.give(n)
    return caches


def check_generated(tmp):
    path, wrong = f"{tmp}/b.safetensors", []
    for seed in range(160):
        caches, values = make(seed), content(seed)
        form = ("cut", "whole")[seed % 2]
        write_bytes(path, save(caches, form, values))
        told = Told(path, tmp)
        if told.r.code:
            wrong.append(f"{seed} {form}: {told.r}")
            continue
        for l, c in enumerate(caches):
            name = next(n for n, g in told.groups.items() if l in g.layers)
            for r, slots in enumerate(c.held):
                held = sorted(t for t in slots[:c.slots or None] if t >= 0)
                halves = [values(l, half, r, held) for half in range(2)]
                wrong += [f"{seed} {form}: {w}" for w in told.wrong(
                    name, l, r, halves, max(c.given[r], 0))]
    tap.equal(wrong[:3], [], "160 batches")


def check_one_row(tmp):
    """A row of a batch is what the same prompt is by itself."""
    values = content(3)
    both = [BatchRing(random.Random(1), [0, 3]), Batch(random.Random(1), [0, 3])]
    one = [BatchRing(random.Random(1), [0]), Batch(random.Random(1), [0])]
    for n in (9, 1, 1, 1):
        for c in both:
            c.give(n)
    for n in (6, 1, 1, 1):
        for c in one:
            c.give(n)
    write_bytes(f"{tmp}/two.safetensors", save(both, "whole", values))
    write_bytes(f"{tmp}/one.safetensors",
                save(one, "cut", lambda l, half, r, t: values(l, half, 1, t)))
    runs("a row by itself", "slice", "-f", "--request=1", "-o", f"{tmp}/row.h5",
         f"{tmp}/two.safetensors")
    runs("equals the prompt that was run alone", "diff", "--match=1=0", f"{tmp}/row.h5",
         f"{tmp}/one.safetensors")


# ---- what is refused -----------------------------------------------------------------


def put(name, what):
    return lambda tensors, meta: tensors.update({name: what}) if what else \
        tensors.pop(name)


def note(name, text):
    return lambda tensors, meta: meta.update({name: text})


# what, form, change, status, a part of what is said
HOSTILE = [
    ("no padding", "whole", put("0.3", None), 4, "BatchRotatingKVCache"),
    ("padding of another length", "whole", put("0.3", array("I32", [0])), 4, "Batch"),
    ("padding that is no number", "whole", put("0.3", ("F32", np.zeros(3, "f4"))), 4,
     "Batch"),
    ("padding beyond the slots", "whole", put("1.3", array("I32", [0, 2, 99])), 4,
     "BatchKVCache"),
    ("padding below zero", "whole", put("1.3", array("I32", [0, -1, 5])), 4,
     "BatchKVCache"),
    ("more tokens than slots", "whole", put("1.2", array("I32", [11, 9, 60])), 4,
     "BatchKVCache"),
    ("2^31 tokens of a ring", "whole", put("0.2", array("I32", [11, 9, (1 << 31) - 1])),
     3, "row 2 another number"),
    ("layers that disagree", "whole", put("0.2", array("I32", [12, 9, 6])), 3,
     "row 0 another number"),
    ("a slot that is not there", "whole", put("0.6", array("I32", 99)), 4, "Batch"),
    ("more slots than there are", "whole", put("1.4", array("I32", 99)), 4, "Batch"),
    ("a ring of nothing", "whole", put("0.4", array("I32", 0)), 4, "Batch"),
    ("turned before it is full", "whole", put("0.4", array("I32", 7)), 4, "Batch"),
    ("numbers that are missing", "whole", put("0.7", None), 4, "Batch"),
    ("turned, or not", "cut", note("0.0.3", "Perhaps"), 4, "Batch"),
    ("a number that is none", "cut", note("0.0.2", "-1"), 4, "Batch"),
]


def check_hostile(tmp):
    path = f"{tmp}/h.safetensors"
    ring = BatchRing(random.Random(4), [0, 2, 5])
    ring.most = 6
    plain = Batch(random.Random(4), [0, 2, 5])
    for n in (7, 1, 1, 1, 1):
        ring.give(n)
        plain.give(n)
    for what, form, change, status, part in HOSTILE:
        write_bytes(path, save([ring, plain], form, content(1), change))
        r = kvtool("describe", path)
        tap.ok(r.code == status and part in r.err and r.err.count("\n") == 1, what, r)
    write_bytes(path, save([ring, plain], "whole", content(1)))
    for options, status, part in ((["tokens=11,9,6"], 0, "6 tokens"),
                                  (["tokens=11,9,7"], 3, "row 2 has 6 tokens"),
                                  (["slots=12"], 3, "11 slots"),
                                  (["padding=right"], 3, "padding")):
        r = kvtool("describe", *(f"--set={o}" for o in options), path)
        tap.ok(r.code == status and part in r.out + r.err, f"options: {options[0]}", r)


def listed(name, change=None):
    """A CacheList of two, with its first array changed."""
    draw = np.random.default_rng(2)
    word = np.array([ord(c) for c in name], np.int32)
    tensors = {f"0.{j}.0.{i}": ("F32", draw.standard_normal((1, H, 5, D)).astype("f4"))
               for i in range(2) for j in range(2)}
    tensors |= {f"0.{j}.0.2": array("I32", 5) for j in range(2)}
    tensors |= {f"0.{j}.1": ("I32", word) for j in range(2)}
    meta = {"1.0": "CacheList", "2.0": "", "2.1.0": "0.0.1", "2.1.1": "string"}
    if change:
        change(tensors, meta)
    return safetensors_bytes(tensors, meta)


def check_lists(tmp):
    path = f"{tmp}/l.safetensors"
    for what, name, change, status, part in (
            ("two caches of one kind", "KVCache", None, 0, "g1 "),
            ("of a class that is not known", "OtherCache", None, 4, "OtherCache"),
            ("of quantised ones", "QuantizedKVCache", None, 4, "QuantizedKVCache"),
            ("a name of control characters", "\1KVCache", None, 4, "unknown cache"),
            ("a name of 99 letters", "K" * 99, None, 4, "unknown cache"),
            ("no name", "KVCache", put("0.1.1", None), 4, "unknown cache"),
            ("no values", "KVCache", put("0.1.0.1", None), 3, "pair of keys"),
            ("no keys", "KVCache", put("0.0.0.0", None), 3, "pair of keys"),
            ("an array beside the parts", "KVCache",
             put("0.7", ("F32", np.zeros((1, H, 5, D), "f4"))), 4, "unnamed parts"),
            ("of other lengths", "KVCache", put("0.1.0.2", array("I32", 4)), 3,
             "received 5 tokens")):
        write_bytes(path, listed(name, change))
        r = kvtool("describe", path)
        tap.ok(r.code == status and part in r.out + r.err, f"lists: {what}", r)
    write_bytes(path, listed("KVCache"))
    r = kvtool("describe", "--set=names={l}.0.0.0,{l}.0.0.1", path)
    tap.ok(r.code == 0 and "g1 " not in r.out, "lists: one part, by its names", r)


oracle.run(check_samples, check_generated, check_one_row, check_v41, check_hostile,
           check_lists)
