#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_rings.py - each slot is numbered as the token that it holds, or nothing is read:
caches of mlx-lm, mlx-vlm and oMLX, made up here by the rules of their classes in
each form that they were saved in, read with and without options
"""
import json
import random

import numpy as np

import oracle
from foreign_files import npz_bytes, safetensors_bytes, torch_bytes
from oracle import SHARE, kvtool, refused, runs, tap, write_bytes

CASES, H, D = 200 // SHARE, 2, 4


# ---- caches: which token each slot holds, -1 none ---------------------------


class Grown:
    """All tokens, with room for more."""
    name, kind = "KVCache", "kv"

    def __init__(self, rng):
        self.slots, self.offset, self.step = [], 0, rng.choice((1, 4, 8))

    def give(self, n):
        at = self.offset
        while len(self.slots) < at + n:
            self.slots += [-1] * self.step
        self.slots[at:at + n] = range(at, at + n)
        self.offset += n

    def numbers(self, form):
        return [self.offset] if form == "whole" else []


class Ring:
    """The first 'keep' and the newest; when it is full the oldest make room."""
    name, kind = "RotatingKVCache", "rotating_kv"

    def __init__(self, rng):
        self.slots, self.offset, self.next = [], 0, 0
        self.keep = rng.choice((0, 0, 2, 4))
        self.most = rng.randint(self.keep + 2, 14)
        self.step = rng.choice((2, 5, 256))

    def in_order(self):
        if self.next == len(self.slots):
            return self.slots
        if self.next < self.offset:
            return (self.slots[:self.keep] + self.slots[self.next:] +
                    self.slots[self.keep:self.next])
        return self.slots[:self.next]

    def cut(self, slots, n):
        return slots[:self.keep] + slots[n + self.keep:] if n > 0 else slots

    def give(self, n):
        new = list(range(self.offset, self.offset + n))
        if n > 1:
            old = self.in_order()
            self.slots = self.cut(old, len(old) - self.most + 1) + new
            self.next = len(self.slots)
        else:
            if self.offset >= len(self.slots) and len(self.slots) < self.most:
                self.slots = self.slots + [-1] * min(self.step, self.most - self.offset)
                self.next = self.offset
            if len(self.slots) > self.most:
                self.slots = self.cut(self.slots, len(self.slots) - self.most)
                self.next = self.most
            if self.next == self.most:
                self.next = self.keep
            self.slots[self.next:self.next + 1] = new
            self.next += 1
        self.offset += n

    def numbers(self, form):
        return {"cut5": [self.keep, self.most, 256, self.offset, self.next],
                "cut4": [self.keep, self.most, self.offset, self.next],
                "whole": [self.offset, self.keep, self.most, self.next]}.get(form)


class Chunked(Grown):
    """The last tokens of a chunk, from the first slot on."""
    name, kind, most = "ChunkedKVCache", "chunked_kv", 6

    def give(self, n):
        held = [t for t in self.slots if t >= 0][-self.most:]
        held += range(self.offset, self.offset + n)
        self.offset += n
        self.start = self.offset - len(held)
        self.slots = held + [-1] * (self.step - 1)

    def numbers(self, form):
        return [self.offset, self.most, self.start] if form == "whole" else \
            [self.most, self.start]


class Padded(Grown):
    """A batch of rows that are padded on the left."""
    name, kind = "BatchKVCache", "batch_kv"

    def give(self, n):
        super().give(n)
        self.slots = [-1, -1] + [t for t in self.slots if t >= 0]


FORMS = "cut5", "cut4", "whole", "exact", "omlx"


def save(caches, form, values):
    """The file of a program: what it writes of these layers."""
    tensors, meta, scalars = {}, {}, [""]
    names = {"exact": "c{}_{}", "omlx": "layer_{}_state_{}"}.get(form, "{}.{}")
    for l, c in enumerate(caches):
        slots = c.slots
        if form.startswith("cut") and c.offset < len(slots):
            slots = slots[:c.offset]
        if form == "exact" and type(c) is Grown:
            slots = slots[:c.offset]
        for half in range(2):
            tensors[names.format(l, "kv"[half] if form == "exact" else half)] = (
                "F32", values(l, half, slots))
        if form.startswith("cut"):
            meta[f"2.{l}"] = c.name
            said = c.numbers(form)
            meta |= {f"0.{l}.{i}": str(n) for i, n in enumerate(said)}
            if not said:
                meta[f"0.{l}"] = ""
        elif form == "whole":
            meta[f"1.{l}"] = c.name
            for i, n in enumerate(c.numbers(form)):
                tensors[f"{l}.{i + 2}"] = ("I32", np.array(n, np.int32))
                scalars.append(f"{l}.{i + 2}")
        elif form == "exact":
            meta[f"c{l}_kind"], meta[f"c{l}_offset"] = c.kind, str(c.offset)
            if type(c) is Ring:
                meta |= {f"c{l}_keep": str(c.keep), f"c{l}_max_size": str(c.most),
                         f"c{l}_idx": str(c.next)}
    if form.startswith("cut"):
        meta["1.model"] = "tiny"
    elif form == "whole":
        meta |= {"0.model": "tiny", "2.0": ""}
        for i, name in enumerate(scalars[1:], 1):
            meta |= {f"2.{i}.0": name, f"2.{i}.1": "scalar"}
    elif form == "exact":
        meta |= {"layout": "exact_cache_v1", "num_entries": str(len(caches))}
    else:
        meta |= {"layer_cache_types": json.dumps([c.name for c in caches]),
                 "token_count": str(max(c.offset for c in caches))}
    return safetensors_bytes(tensors, meta), names


def content(seed):
    """values(layer, half, tokens) -> [1, H, slots, D]; zeros in slots of none"""
    draw = np.random.default_rng(seed)
    all_of = draw.standard_normal((4, 2, H, 128, D)).astype(np.float32)

    def values(l, half, slots):
        a = all_of[l, half][:, np.maximum(slots, 0)] * (np.array(slots) >= 0)[:, None]
        return a[None].astype(np.float32)

    return values


def tokens_of(path, *options):
    """What kvtool tells of a file: {(layer, half): {token: [H, D]}}, or the refusal."""
    manifest, tensors, r = oracle.in_kv_order(path, *options)
    if not manifest:
        return None, r
    out = {}
    for g in manifest.get("groups", [manifest]):
        of, shape, raw = tensors[g.get("id", "g0") if len(tensors) > 1 else "kv_cache"]
        if of == "BF16":
            raw = (np.frombuffer(raw, "<u2").astype("<u4") << 16).tobytes()
        a = np.frombuffer(raw, np.float16 if of == "F16" else np.float32)
        a = a.astype(np.float32).reshape(shape)             # L K B S H D
        table = g.get("block_table", manifest.get("block_table"))["0"]
        a = a[:, :, table].reshape(*a.shape[:2], -1, *a.shape[4:])
        n, first = manifest["num_tokens"]["0"], manifest.get("first_token", {}).get("0", 0)
        holes = g.get("holes", manifest.get("holes", {})).get("0", [])
        size = g.get("sizes", manifest.get("sizes"))["block_size"]
        begin = max(first, first + n - g.get("window", 1 << 40) + 1)
        for i, l in enumerate(g["layer_ids"]):
            for half in range(2):
                out[l, half] = {t: a[i, half, t - first // size * size]
                                for t in range(begin, first + n)
                                if not any(b <= t < e for b, e in holes)}
    return out, r


def holds(got, cache, values):
    """Is each token that is told one of the cache's, and none left out that a window has?"""
    for (l, half), told in got.items():
        c = cache[l]
        held = {t: c.slots.index(t) for t in c.slots if t >= 0}
        if not set(told) <= set(held):
            return False
        window = c.most - 1 if type(c) is Chunked or (type(c) is Ring and not c.keep) \
            else c.offset
        if not {t for t in held if t >= c.offset - window} <= set(told):
            return False
        whole = values(l, half, c.slots)[0]
        if not all(np.array_equal(v, whole[:, held[t]]) for t, v in told.items()):
            return False
    return True


def is_plain(c, form):
    """Slot i is token i, or the file says which one it is."""
    return type(c) in (Grown, Ring) or (type(c) is Chunked and
                                        form in ("cut5", "cut4", "whole"))


def make(seed):
    rng = random.Random(seed)
    form = FORMS[seed % len(FORMS)]
    classes = rng.choice(([Ring], [Ring, Grown], [Grown], [Ring, Ring, Grown],
                          [Chunked, Grown], [Padded] if form != "omlx" else [Ring]))
    caches = [c(rng) for c in classes]
    for n in rng.choice(([5], [21], [1] * 9, [3, 1, 1], [2] + [1] * 20, [9, 1, 1, 7],
                         [11] + [1] * rng.randint(1, 12), [4, 6, 1, 1, 1])):
        for c in caches:
            c.give(n)
    return rng, form, caches


def check_generated(tmp):
    wrong, read, refused = [], 0, 0
    for seed in range(CASES):
        rng, form, caches = make(seed)
        values = content(seed)
        data, names = save(caches, form, values)
        path = f"{tmp}/c.safetensors"
        write_bytes(path, data)
        halves = "kv" if form == "exact" else (0, 1)
        told = "--set=names=" + ",".join(names.format("{l}", h) for h in halves)
        # oMLX says of a ring that it is one, and not where it stands
        good = all(is_plain(c, form) for c in caches) and (
            form != "omlx" or not any(isinstance(c, Ring) for c in caches))
        slots = len(caches[0].slots)
        for options in ((), (told,), (told, f"--set=slots={slots}"),
                        (told, f"--set=window={slots}"),
                        (told, f"--set=window={slots + 1}",
                         f"--set=slots={caches[0].offset}")):
            got, r = tokens_of(path, "--from=transformers", *options)
            if got is None:
                refused += 1
                if r.code not in (2, 3, 4) or (good and len(options) < 2) or (
                        "does not record how many" in r.err):
                    wrong.append(f"{seed} {form} {options}: {r}")
                continue
            read += 1
            if not holds(got, caches, values):
                wrong.append(f"{seed} {form} {options}: other tokens than "
                             f"{[c.slots for c in caches]}")
            if not good:
                wrong.append(f"{seed} {form} {options}: {caches[0].slots} was read")
        if not good:
            r = kvtool("describe", "--layout=K:LBHSD V:LBHSD", "--block-size=1", told,
                       path)
            if not r.code:
                wrong.append(f"{seed} {form}: read as blocks: {r}")
    tap.equal(wrong[:3], [], f"{CASES} caches of programs of mlx")
    tap.ok(read > CASES / 2 and refused > CASES, f"{read} were read and {refused} refused")


def check_shards(tmp):
    """Blocks that mlx-vlm keeps: as many tokens as hashes, from the first block on."""
    values = content(1)
    for what, parent, blocks, status in (("first", 0, 2, 0), ("later", 77, 2, 4),
                                         ("negative", -5, 1, 4), ("a gap", 0, 3, 4)):
        slots = list(range(blocks * 8)) + [-1] * (32 - blocks * 8)
        meta = {"layout": "layer_major_v2", "block_size": "8", "num_layers": "2",
                "block_hashes": ",".join(str(-n - 1) for n in range(blocks)),
                "b0_meta": json.dumps({"block_hash": -1, "parent_hash": parent}),
                "b1_meta": json.dumps({"block_hash": -2, "parent_hash": -1}),
                "b2_meta": json.dumps({"block_hash": -3, "parent_hash": -9})}
        path = f"{tmp}/s.safetensors"
        write_bytes(path,
                    safetensors_bytes({f"{n}{l}": ("F32", values(l, h, slots)) for l in
                                       range(2) for h,
                                       n in enumerate("kv")},
                                      meta))
        got, r = tokens_of(path, "--from=transformers")
        good = got is not None and not r.code and all(
            np.array_equal([a[t] for t in range(blocks * 8)],
                           values(l, h, slots[:blocks * 8])[0].swapaxes(0, 1))
            for (l, h), a in got.items())
        tap.ok(good if not status else r.code == status and "later" in r.err,
               f"a shard: {what}", r)


def check_others(tmp):
    """Arrays of a layer that are no keys and values: read, or named, and never left out."""
    rng = np.random.default_rng(4)
    kv = {f"{n}{h}": ("F32", rng.standard_normal((1, 2, 5, 4)).astype(np.float32))
          for n in ("c0_", "layer_0_state_") for h in ("k", "v", "0", "1")}
    conv = ("F32", rng.standard_normal((1, 3, 8)).astype(np.float32))
    ssm = ("F32", rng.standard_normal((1, 2, 4, 4)).astype(np.float32))
    exact = {"layout": "exact_cache_v1", "num_entries": "2", "c0_kind": "kv",
             "c0_offset": "5"}
    blocks = {"layer_cache_types": json.dumps(["KVCache", "ArraysCache"]),
              "token_count": "5"}
    ours = {n: kv[n] for n in ("c0_k", "c0_v")}
    theirs = {n: kv[n] for n in ("layer_0_state_0", "layer_0_state_1")}
    cases = [
        ("states of mlx-vlm", ours | {"c1_s0": conv, "c1_s1": ssm},
         exact | {"c1_kind": "arrays"}, ("conv ", "ssm ")),
        ("states of oMLX", theirs | {"layer_1_state_0": conv, "layer_1_state_1": ssm}, blocks,
         ("conv ", "ssm ")),
        ("keys of an indexer", ours | {"c0_index_keys": ("F32", kv["c0_k"][1][:, :1])},
         exact | {"c0_kind": "minimax_m3"}, ("indexer ",)),
        ("a list of caches", ours | {"c1_e0_k": kv["c0_k"], "c1_e0_v": kv["c0_v"]},
         exact | {"c1_kind": "cache_list"}, "cache_list"),
        ("a third state", ours | {"c1_s0": conv, "c1_s2": ssm}, exact | {"c1_kind": "arrays"},
         "arrays"),
        ("another class", theirs | {"layer_1_state_0": conv},
         blocks | {"layer_cache_types": json.dumps(["KVCache", "PoolingCache"])},
         "PoolingCache"),
        ("scales beside keys", ours | {"c0_scale": conv}, exact, "c0_scale"),
        ("an array of no layer", ours | {"extra": conv}, exact, "extra"),
    ]
    path = f"{tmp}/o.safetensors"
    for what, tensors, meta, told in cases:
        write_bytes(path, safetensors_bytes(tensors, meta))
        r = kvtool("describe", path)
        good = r.code == 4 and told in r.err if isinstance(told, str) else (
            r.code == 0 and all(f"\n  {t}" in r.out for t in told))
        tap.ok(good, f"beside keys and values: {what}", r)


def check_words(tmp):
    """What is said, and to whom."""
    rng = random.Random(3)
    ring = Ring(rng)
    ring.keep, ring.most = 4, 12
    for n in [9] + [1] * 14:
        ring.give(n)
    values = content(2)
    for form in FORMS:
        data, _ = save([ring], form, values)
        path = f"{tmp}/w.safetensors"
        write_bytes(path, data)
        r = kvtool("describe", "--from=transformers", path)
        if form == "omlx":                      # which does not say where it stands
            tap.ok(r.code == 3 and "12 slots" in r.err and r.err.count("\n") == 1,
                   f"a ring that has begun anew, {form}", r)
        else:
            tap.ok(r.code == 0 and "11 missing in g0: tokens 4 to 14" in r.out,
                   f"a ring that has begun anew, {form}", r)
        asked = r
        r = kvtool("describe", path)
        tap.ok((r.code, r.out, r.err) == (asked.code, asked.out, asked.err),
               f"known by its metadata, {form}", r)
    quantised = Grown(rng)
    quantised.name = "QuantizedKVCache"
    quantised.give(5)
    tensors = {f"0.{h}.{p}": ("U32", np.zeros((1, 2, 8, 1), np.uint32))
               for h in range(2) for p in range(3)}
    tensors |= {"0.2": ("I32", np.array(5, np.int32))}
    path = f"{tmp}/q.safetensors"
    write_bytes(path, safetensors_bytes(tensors, {"1.0": "QuantizedKVCache", "2.0": ""}))
    r = kvtool("describe", "--from=transformers", path)
    tap.ok(r.code == 4 and "QuantizedKVCache" in r.err, "a quantised one", r)
    runs("its packed numbers, as many as tokens", "describe", "--from=transformers",
         "--set=names={l}.0.0,{l}.1.0", "--dtype=int32", path, says="5 tokens")
    quantised.name = "OtherCache"
    data, _ = save([quantised], "whole", values)
    write_bytes(path, data)
    r = kvtool("describe", "--from=transformers", path)
    tap.ok(r.code == 4 and "OtherCache" in r.err, "a class that is not known", r)


# What mlx-lm itself wrote: layers, and the first token that a ring still holds.
FILES = {"gemma3.026": [0, 0], "gemma3.032": [0, 0], "llama_bf16.026": [0, 0],
         "mlx0.28.3_kv_f16": [0, 0], "mlx0.28.3_rot12_f32": [0, 0]}
GONE = {"mlx0.28.3_rot12_f32": range(4, 15)}


def check_files(tmp):
    folder = f"{oracle.ENGINES}/mlx"
    for name, layers in FILES.items():
        with np.load(f"{folder}/{name}.oracle.npz") as z:
            held = {k: z[k] for k in z.files}
        path = f"{tmp}/m.safetensors"
        with open(f"{folder}/{name}.safetensors", "rb") as f, open(path, "wb") as out:
            out.write(f.read())
        got, r = tokens_of(path)
        wrong = [] if got else [r]
        for l in range(len(layers)):
            for half, (one, all_of) in enumerate((("keys", "K"), ("values", "V"))):
                want = held[all_of][l] if all_of in held else held[f"{l}.{one}"][0]
                told = got[l, half]
                wrong += [(l, half, t) for t in range(want.shape[1]) if (t in told) ==
                          (t in GONE.get(name, ()))] if "gemma" not in name else []
                wrong += [(l, half, t) for t, v in told.items()
                          if not np.array_equal(v, want[:, t])]
        tap.ok(not wrong, f"mlx-lm: {name}", wrong[:3])
        for command in ("fsck", "-q"), ("diff", "-q", path):
            runs(f"mlx-lm: {name}, {command[0]}", *command, path)


def arrays(**states):
    """A file of mlx-lm 0.32 with the states of a layer, and a layer of attention."""
    draw = np.random.default_rng(5)
    tensors = {f"0.0.{i}": ("F32", draw.standard_normal(s).astype(np.float32))
               for i, s in enumerate(states["shapes"])}
    tensors |= {f"0.{i}": ("F32", np.zeros(0, np.float32)) for i in (1, 2)}
    tensors |= {f"1.{i}": ("F32", draw.standard_normal((1, H, 8, D)).astype(np.float32))
                for i in range(2)}
    tensors["1.2"] = "I32", np.array(5, np.int32)
    meta = {"1.0": states.get("name", "ArraysCache"), "1.1": "KVCache", "2.0": "",
            "2.1.0": "0.1", "2.1.1": "none", "2.2.0": "1.2", "2.2.1": "scalar"}
    return tensors, safetensors_bytes(tensors, meta)


def check_states(tmp):
    """Recurrent states, taps before channels."""
    path = f"{tmp}/a.safetensors"
    tensors, data = arrays(shapes=[(1, 3, 12), (1, 4, 8, 6)])
    write_bytes(path, data)
    runs("states and attention", "convert", "-f", path, f"{tmp}/a.out.safetensors")
    out = oracle.safetensors_tensors(f"{tmp}/a.out.safetensors")
    tap.equal([out["conv"][2], out["ssm"][2]],
              [tensors["0.0.0"][1].tobytes(), tensors["0.0.1"][1].tobytes()],
              "states: every bit of both")
    r = kvtool("describe", path)
    tap.ok("memory    L 1 x B 1 x S 3 x D 12" in r.out and "H 4 x C 48" in r.out and
           "5 tokens in 1 block" in r.out, "states: what they are", r)
    for what, more, part in (
            ("of one axis too few", {"shapes": [(1, 12)]}, "ArraysCache"),
            ("a third one", {"shapes": [(1, 3, 12), (1, 4, 8, 6), (1, 4)]}, "ArraysCache"),
            ("of a list of caches", {"shapes": [(1, 3, 12)], "name": "CacheList"},
             "CacheList")):
        write_bytes(path, arrays(**more)[1])
        refused(f"states: {what}", 4, part, "describe", path)


oracle.run(check_generated, check_shards, check_others, check_words, check_files,
           check_states)
