#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_names.py - caches that people save by names of their own, in any container

Each is made here: names, container, order of axes, gaps between layers, type.  It is read
as numpy has it by layer, or the message has an option that, given as it is printed, makes
that true; no reading is wrong.
"""
import random
import re

import numpy as np                                          # noqa: E402
import oracle                                               # noqa: E402
from foreign_files import Tensor, npz_bytes, safetensors_bytes, torch_bytes  # noqa: E402
from oracle import SHARE, kvtool, refused, runs, tap, write_bytes, write_json  # noqa: E402

CASES = 400 // SHARE
TYPES = {"F32": (np.float32, "FloatStorage"), "F16": (np.float16, "HalfStorage"),
         "BF16": (np.uint16, "BFloat16Storage")}

# Of keys and values, known by themselves; {l} is the layer.
KNOWN = [("past_key_values.{l}.key", "past_key_values.{l}.value"),
         ("present.{l}.key", "present.{l}.value"), ("past.{l}.key", "past.{l}.value"),
         ("past_key_self_{l}", "past_value_self_{l}")]
# These may be anybody's.
OTHER = [("layers.{l}.keys", "layers.{l}.values"), ("key_cache.{l}", "value_cache.{l}"),
         ("layers.{l}.self_attn.k", "layers.{l}.self_attn.v"), ("k{l}", "v{l}"),
         ("model.layers.{l}.k_cache", "model.layers.{l}.v_cache"),
         ("kv.7.{l}.K", "kv.7.{l}.V"), ("block_{l}_key", "block_{l}_value"),
         ("cache/{l}/0", "cache/{l}/1"), ("K_{l}", "V_{l}")]


class Cache:
    """pairs: {layer: (keys, values)}, [B, H, T, D] as bits"""

    def __init__(self, rng):
        self.kind = rng.choice(list(TYPES))
        layers = list(range(rng.randint(1, 5)))
        if rng.random() < .6:
            layers = sorted(rng.sample(range(12), rng.randint(1, 5)))
        heads, tokens = rng.choice(((2, 5), (3, 23), (8, 2), (1, 9), (2, 300), (5, 257)))
        self.shape = (rng.choice((1, 1, 1, 2)), heads, tokens, 4)
        draw = np.random.default_rng(rng.randrange(1 << 30))
        self.pairs = {l: tuple(draw.integers(1, 30000, self.shape).astype(
            f"u{4 if self.kind == 'F32' else 2}") for _ in range(2)) for l in layers}

    def saved(self, axes):
        """{layer: (keys, values)} with these axes; fused ones alone"""
        order = ["BHTD".index(a) for a in axes if a != "K"]
        out = {l: [a.transpose(order) for a in kv] for l, kv in self.pairs.items()}
        return out if "K" not in axes else {l: np.stack(kv) for l, kv in out.items()}


def in_names(c, axes, names):
    arrays = {}
    for l, kv in c.saved(axes).items():
        arrays |= {n.format(l=l): a for n, a in zip(names, kv)} if len(names) == 2 else {
            names[0].format(l=l): kv}
    return arrays


def in_safetensors(c, arrays):
    return safetensors_bytes({n: (c.kind, a) for n, a in arrays.items()})


def in_npz(c, arrays):
    return npz_bytes({n: np.ascontiguousarray(a).view(TYPES[c.kind][0])
                      for n, a in arrays.items()})


def in_dict(c, arrays):
    return torch_bytes({n: tensor(c, a) for n, a in arrays.items()})


def tensor(c, a):
    return Tensor(TYPES[c.kind][1], a)


def nested(c, axes, form):
    """What torch.save() is given, and how its tensors are named."""
    saved = c.saved(axes)
    rows = [saved.get(l) for l in range(max(saved) + 1)]
    t = [None if r is None else tensor(c, r) if "K" in axes else
         [tensor(c, a) for a in r] for r in rows]
    dense = all(r is not None for r in rows)
    if form == "legacy":
        return tuple((None, None) if x is None else tuple(x) for x in t), "{l}.k,{l}.v"
    if form == "lists":
        return t, "{l}.0,{l}.1"
    if form == "by number":
        return {l: tuple(x) for l, x in enumerate(t) if x}, "{l}.k,{l}.v"
    if form == "dicts":
        return {"layers": [None if x is None else {"k": x[0], "v": x[1]} for x in t],
                "step": 3, "model": "any"}, "layers.{l}.k,layers.{l}.v"
    if form == "two lists":
        return [[None if x is None else x[i] for x in t] for i in range(2)], "0.{l},1.{l}"
    if form == "words":
        return {w: [None if x is None else x[i] for x in t]
                for i, w in enumerate(("key_cache", "value_cache"))}, \
            "key_cache.{l},value_cache.{l}"
    assert form == "fused", form
    return (t if dense else {l: x for l, x in enumerate(t) if x}), None


NESTED = ["legacy", "lists", "by number", "dicts", "two lists", "words"]


def make(seed):
    """A file, the order of its axes, its names, whether it needs no question."""
    rng = random.Random(seed)
    c = Cache(rng)
    how = rng.choice(("known", "other", "other", "nested", "nested", "fused"))
    axes = rng.choice(("BHTD", "BTHD"))
    if how == "nested":
        form = rng.choice(NESTED)
        o, names = nested(c, axes, form)
        return c, torch_bytes(o), axes, names, form
    if how == "fused":
        axes = "K" + axes
        if rng.random() < .5:
            return c, torch_bytes(nested(c, axes, "fused")[0]), axes, "{l}", "fused"
        arrays = in_names(c, axes, [rng.choice(("layers.{l}.kv", "kv_{l}"))])
        names = None
    else:
        pair = rng.choice(KNOWN if how == "known" else OTHER)
        axes = "BHTD" if how == "known" else axes
        arrays, names = in_names(c, axes, pair), ",".join(pair)
    save = rng.choice((in_safetensors, in_dict) + (in_npz,) * (c.kind != "BF16"))
    return c, save(c, arrays), axes, names, f"{how} {save.__name__}"


# ---- what kvtool makes of it ------------------------------------------------

def read(path, rows, options):
    """{(layer, half, row): [T, H, D] as bits}, or the refusal"""
    manifest, tensors, r = oracle.in_kv_order(path, *options)
    if not manifest:
        return None, r
    of, shape, raw = tensors["kv_cache"]
    a = np.frombuffer(raw, "<u4" if of == "F32" else "<u2").reshape(shape)
    out = {}
    for row in range(rows):
        n, table = manifest["num_tokens"][str(row)], manifest["block_table"][str(row)]
        t = a[:, :, table].reshape(*a.shape[:2], -1, *a.shape[4:])[:, :, :n]
        ids = manifest.get("layer_ids", list(range(len(t))))
        out |= {(l, k, row): t[i, k] for i, l in enumerate(ids) for k in range(2)}
    return out, r


def is_right(got, c):
    want = {(l, k, row): a[row].transpose(1, 0, 2) for l, kv in c.pairs.items()
            for k, a in enumerate(kv) for row in range(c.shape[0])}
    return got.keys() == want.keys() and all(np.array_equal(got[x], want[x])
                                             for x in want)


def told(message, axes, names):
    """The options of a message that say what is true; as they are printed."""
    lines = [l.split() for l in re.findall(r"(?:--\S+ ?)+", message.replace(",  ", " "))]
    lines = [[o.rstrip(",") for o in line] for line in lines]
    for line in lines:
        said = dict(o.removeprefix("--set=").split("=", 1) for o in line if
                    o.startswith("--set="))
        if said.get("axes", axes) == axes and names in (None, said.get("names", names)) \
                and set(said) & {"axes", "names"}:
            return line
    return None


def answer(c, axes, names, path):
    """Reads, is asked, answers; the questions there were, and what is wrong."""
    options, asked = [], 0
    while asked < 4:
        got, r = read(path, c.shape[0], options)
        if got is not None:
            return asked, None if is_right(got, c) else "read wrongly"
        if r.code != 3 or r.err.count("\n") != 1:
            return asked, f"refused: {r}"
        asked += 1
        both = r.err + r.err.replace("HTD", "THD") if "(THD: tokens first)" in r.err else r.err
        line = told(both, axes, names)
        if line and "--set=axes=BTHD" in r.err and axes == "BTHD" and not any(
                "axes=" in o for o in line):
            line.append("--set=axes=BTHD")
        if line is None and "tokens=" in r.err:
            line = [f"--set=tokens={c.shape[2]}"]
        if line is None and "or --layout" not in r.err and "could be" in r.err:
            line = ["--from=transformers", f"--set=axes={axes}"]    # blocks, by its look
        if line is None:
            return asked, f"no option for {axes} {names}: {r}"
        options += [o for o in line if o not in options]
    return asked, f"asks again and again: {r}"


def check_generated(tmp):
    wrong, silent, questions = [], 0, 0
    for seed in range(CASES):
        c, data, axes, names, what = make(seed)
        path = f"{tmp}/c"
        write_bytes(path, data)
        asked, bad = answer(c, axes, names, path)
        known = what.startswith("known")
        silent += not asked
        questions += asked
        if not bad and known and asked > (c.shape[0] > 1):
            bad = "asked, although names say it"
        if bad:
            wrong.append(f"{seed} {what} {axes} {c.shape} {list(c.pairs)}: {bad}")
    tap.equal(wrong[:3], [], f"{CASES} caches by names")
    tap.ok(silent > CASES / 8 and questions > CASES / 2,
           f"{silent} needed no question, the others {questions}")


def stacked(rng, c, axes, form):
    """A file of all layers at once, and the axes of its tensors."""
    keys, values = (np.stack([kv[i] for kv in c.saved(axes).values()]) for i in range(2))
    if form in ("one", "keys first"):
        arrays = {"past_key_values": np.stack((keys, values), form == "one")}
        axes = ("LK" if form == "one" else "KL") + axes
    else:
        pair = ("arr_0", "arr_1") if form == "two" else ("keys", "values")
        arrays, axes = dict(zip(pair, (keys, values))), "L" + axes
    if form == "tuple":
        return torch_bytes(tuple(tensor(c, a) for a in arrays.values())), axes
    save = rng.choice((in_safetensors, in_dict) + (in_npz,) * (c.kind != "BF16"))
    return save(c, arrays), axes


def check_stacked(tmp):
    wrong, silent = [], 0
    for seed in range(max(CASES // 4, 100)):
        rng = random.Random(f"stacked {seed}")
        c = Cache(rng)
        # two would look like keys and values
        c.pairs = dict(enumerate(list(c.pairs.values())[:1 if len(c.pairs) == 2 else 5]))
        form = rng.choice(("one", "keys first", "two", "tuple", "named"))
        data, axes = stacked(rng, c, rng.choice(("BHTD", "BTHD")), form)
        asked, bad = answer(c, axes, None, write_bytes(f"{tmp}/c", data))
        silent += not asked
        if bad or (not asked and form != "named"):
            wrong.append(f"{seed} {form} {axes} {c.shape} {len(c.pairs)}: {asked}, {bad}")
    tap.equal(wrong[:3], [], "caches in one tensor or two")
    tap.ok(silent, f"{silent} of them have a shape that says it")


# ---- what is beside, and what names do not prove -----------------------------

def f32(*shape):
    n = int(np.prod(shape))
    return "F32", np.arange(1, n + 1, dtype=np.float32).reshape(shape)


def i64(*numbers):
    return "I64", np.array(numbers, np.int64)


PAIRS = {f"layers.{l}.{x}": f32(1, 2, 5, 4) for l in (1, 3) for x in "kv"}
NAMES = "--set=names=layers.{l}.k,layers.{l}.v"
FROM = "--from=transformers"
ONNX = {f"present.{l}.{x}": f32(1, 2, 5, 4) for l in (1, 3) for x in ("key", "value")}
TWO = {f"past_key_values.{l}.{of}.{x}": f32(1, 2, n, 4) for l in (0, 1)
       for of, n in (("decoder", 5), ("encoder", 9)) for x in ("key", "value")}

# what, tensors, metadata, options, status, a part of what is said
BESIDE = [
    ("gaps of a hybrid model", {**ONNX, **{f"present_conv.{l}": f32(1, 6, 3)
                                           for l in (0, 2)}}, {}, [], 0, "conv "),
    ("logits beside known names", {**ONNX, "logits": f32(1, 5, 9)}, {}, [], 0, "5 tokens"),
    ("known names of two caches", {**ONNX, **{
        n.replace("present", "past"): a for n, a in ONNX.items()}}, {}, [], 3,
     "names=past.{l}.key,past.{l}.value or"),
    ("keys of known names alone", {"past.0.key": f32(1, 2, 5, 4),
                                   "past.1.key": f32(1, 2, 5, 4)}, {}, [], 3, "give"),
    ("an encoder and a decoder", TWO, {}, [], 0, "0.cross: 9 tokens"),
    ("and something else", {**TWO, "x": f32(1, 2, 5, 4)}, {}, [], 3, "give"),
    ("a manifest is not needed, but a layout is obeyed", ONNX, {},
     ["--layout=K:LBHSD V:LBHSD", "--block-size=5", "--heads=2", "--head-dim=4"], 0,
     "safetensors"),
    ("tensors beside", {**PAIRS, "mask": i64([1] * 5)}, {}, [], 3, f"{FROM} {NAMES}"),
    ("tensors that are left out", {**PAIRS, "mask": i64([1] * 5)}, {}, [FROM, NAMES], 0,
     "unproven"),
    ("positions in order", {**PAIRS, "positions": i64(0, 1, 2, 3, 4)}, {}, [FROM, NAMES], 0,
     "5 tokens"),
    ("positions of a ring", {**PAIRS, "positions": i64(5, 6, 2, 3, 4)}, {}, [FROM, NAMES],
     3, "by positions"),
    ("positions that begin later", {**PAIRS, "positions": i64(2, 3, 4, 5, 6)}, {},
     [FROM, NAMES], 3, "by positions"),
    ("as many tokens as slots", {**PAIRS, "layers.1.offset": i64(5)}, {}, [FROM, NAMES], 0,
     "5 tokens"),
    ("more tokens than slots", {**PAIRS, "layers.1.offset": i64(9)}, {}, [FROM, NAMES], 3,
     "by layers.1.offset"),
    ("a class in the metadata", PAIRS, {"class": "RotatingKVCache"}, [FROM, NAMES], 3,
     "--set=ring=no"),
    ("a class that is told otherwise", PAIRS, {"class": "RotatingKVCache"},
     [FROM, NAMES, "--set=ring=no"], 0, "5 tokens"),
    ("sinks in the metadata", PAIRS, {"num_sink_tokens": "4"}, [FROM, NAMES], 3,
     "num_sink_tokens"),
    ("no sinks", PAIRS, {"num_sink_tokens": "0", "note": "a string"}, [FROM, NAMES], 0,
     "5 tokens"),
    ("a ring that is none", PAIRS, {}, [FROM, "--set=ring=2"], 3, "no layer has fewer"),
    ("a ring beyond its slots", PAIRS, {}, [FROM, "--set=ring=6", "--set=slots=9"], 2,
     "has 5 slots"),
    ("a ring of words", PAIRS, {}, [FROM, "--set=ring=x"], 2, "expected no, NEXT"),
    ("axes of words", PAIRS, {}, [FROM, "--set=axes=BHSD"], 2, "axes is 'BHSD'"),
    ("axes without tokens", PAIRS, {}, [FROM, "--set=axes=BHD"], 2, "axes is 'BHD'"),
    ("an axis twice", PAIRS, {}, [FROM, "--set=axes=BBTD"], 2, "axes is 'BBTD'"),
    ("too few axes", PAIRS, {}, [FROM, "--set=axes=HTD"], 3, "4 axes, expected HTD"),
    ("layers in tensors of layers", PAIRS, {}, [FROM, "--set=axes=LHTD"], 2, "one layer"),
    ("halves in tensors of halves", {n: f32(2, 2, 5, 4) for n in PAIRS}, {},
     [FROM, "--set=axes=KHTD"], 2, "two tensors"),
    ("three halves", {f"past_{l}": f32(3, 1, 2, 5, 4) for l in range(2)}, {},
     [FROM, "--set=axes=KBHTD"], 3, "3 halves"),
    ("heads that no model has", {n: f32(1, 300, 2, 4) for n in PAIRS}, {}, [FROM], 3,
     "give --set=axes=BTHD"),
    ("without a batch", {n: f32(2, 5, 4) for n in PAIRS}, {}, [FROM, "--set=axes=HTD"], 0,
     "5 tokens"),
    ("a latent without heads", {n: f32(1, 5, 8 if n[-1] == "k" else 2) for n in PAIRS}, {},
     [FROM, "--set=axes=BTD"], 0, "mla"),
    ("one tensor", {"kv": f32(3, 2, 1, 2, 5, 4)}, {}, [FROM], 3, "--set=axes=LKBHTD"),
    ("one tensor, and axes", {"kv": f32(3, 2, 1, 2, 5, 4)}, {},
     [FROM, "--set=axes=LKBHTD"], 0, "L 3"),
    ("a pair without numbers", {x: f32(3, 2, 5, 4) for x in "kv"}, {}, [], 3,
     "axes=LTHD if 2 tokens of 5 heads"),
    ("a pair of layers", {x: f32(3, 2, 5, 4) for x in "kv"}, {}, [FROM, "--set=axes=LTHD"],
     0, "L 3"),
    ("a pair of one layer", {x: f32(1, 2, 5, 4) for x in "kv"}, {},
     [FROM, "--set=axes=BHTD"], 0, "L 1"),
]


def check_beside(tmp):
    path = f"{tmp}/b.safetensors"
    for what, tensors, metadata, options, status, part in BESIDE:
        write_bytes(path, safetensors_bytes(tensors, metadata))
        r = kvtool("describe", *options, path)
        tap.ok(r.code == status and part in r.out + r.err and
               r.err.count("\n") == (status != 0), what, r)
    config = f"{tmp}/config.json"
    write_json(config,
               {"model_type": "mistral", "num_hidden_layers": 4, "hidden_size": 8,
                "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4,
                "sliding_window": 5, "torch_dtype": "float32"})
    write_bytes(path,
                safetensors_bytes({f"layers.{l}.{x}": f32(1, 2, 5, 4) for l in range(4)
                                   for x in "kv"}))
    refused("a model's window", 3, "by the window of the model", "describe", FROM,
            f"--model={config}", path)


def check_rings(tmp):
    """Slots that were used again, in tensors by name: the user says where they stand."""
    wrong = []
    for seed in range(40):
        rng = random.Random(seed)
        keep, size = rng.choice((0, 0, 2)), rng.randint(4, 9)
        seen = size + rng.randint(1, 20)
        slots, at = list(range(size)), keep
        for token in range(size, seen):
            at = keep if at == size else at
            slots[at], at = token, at + 1
        tokens = np.random.default_rng(seed).standard_normal((2, 2, 2, seen, 4)).astype("f4")
        path = f"{tmp}/r"
        with open(path, "wb") as f:
            f.write(safetensors_bytes({f"layers.{l}.{x}": ("F32", tokens[l, k][None][:, :, slots])
                                       for l in range(2) for k, x in enumerate("kv")}))
        r = kvtool("convert", "-f", FROM, f"--set=slots={seen}",
                   f"--set=ring={at}" + (f",{keep}" if keep else ""), path,
                   path + ".safetensors")
        if r.code:
            wrong.append(f"{seed}: {r}")
            continue
        r = kvtool("relayout", "-f", "--to=LKBSHD", "-o", path + ".flat.safetensors",
                   path + ".safetensors")
        m, groups = oracle.written_groups(path + ".flat.safetensors")
        _, shape, raw = groups["g0"][1]
        a = np.frombuffer(raw, "<f4").reshape(shape)[:, :, m["block_table"]["0"]]
        a = a.reshape(2, 2, -1, 2, 4)
        first = m.get("first_token", {}).get("0", 0)
        for t in slots:
            # a window of so many tokens sees one less before it
            if not keep and t < seen - size + 1:
                continue
            if not np.array_equal(a[:, :, t - first // 16 * 16], tokens[..., t, :]):
                wrong.append(f"{seed}: token {t} of {slots}, next {at}, keep {keep}")
    tap.equal(wrong[:3], [], "rings that the user tells")


def check_gaps(tmp):
    """Layers have the model's numbers, whatever there is between them."""
    by_name, by_list = f"{tmp}/n.safetensors", f"{tmp}/n.pt"
    write_bytes(by_name, safetensors_bytes(PAIRS))
    rows = [None if l not in (1, 3) else tuple(
        Tensor("FloatStorage", PAIRS[f"layers.{l}.{x}"][1]) for x in "kv")
        for l in range(4)]
    write_bytes(by_list, torch_bytes(rows))
    runs("a gap is a layer of None", "diff", "-q", FROM, by_name, by_list)
    r = kvtool("describe", "--json", FROM, by_name)
    tap.equal(r.json["groups"][0]["layer_ids"], [1, 3], "numbers of the model")
    runs("a layer by its number", "slice", "-f", FROM, "--layers=3", "-o", f"{tmp}/s.h5",
         by_name)
    r = kvtool("describe", "--json", f"{tmp}/s.h5")
    tap.equal(r.json["groups"][0]["layer_ids"], [3], "and its number stays")
    r = kvtool("slice", "-f", FROM, "--layers=2", "-o", f"{tmp}/s.h5", by_name)
    tap.ok(r.code != 0 and "no layer 2" in r.err, "a layer that is not there", r)


def check_damaged(tmp):
    """Bytes of headers and pickles changed, and files cut: an answer, and no crash."""
    wrong = []
    for seed in range(CASES // 2):
        rng = random.Random(seed)
        data = bytearray(make(seed % 40)[1])
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(min(len(data), 700))
            data[at if rng.random() < .8 else -at - 1] = rng.choice(
                (0, 0xff, rng.randrange(256), ord("9"), ord("{")))
        if rng.random() < .2:
            del data[rng.randrange(len(data)):]
        write_bytes(f"{tmp}/d", data)
        for options in ([], [FROM]):
            r = kvtool("describe", *options, f"{tmp}/d")
            if r.code not in (0, 3, 4) or r.err.count("\n") != (r.code != 0):
                wrong.append(f"{seed} {options}: {r}")
    tap.equal(wrong[:3], [], "damaged files")


if __name__ == "__main__":
    oracle.run(check_generated, check_stacked, check_beside, check_rings, check_gaps, check_damaged)
