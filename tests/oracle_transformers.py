#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_transformers.py - caches that transformers made and torch.save() wrote hold
what the model handed to them

The oracle arrays were taken where a model calls its cache; see record.py beside
them.  What kvtool reads of the file is looked at in a snapshot, by h5py.
"""
import os
import sys

import oracle                                               # noqa: E402

os.environ["HDF5_PLUGIN_PATH"] = os.path.join(os.path.dirname(oracle.KVTOOL), "plugin")

import numpy as np                                          # noqa: E402
try:
    import h5py                                             # noqa: E402
except ImportError:
    print("1..0 # SKIP this needs the package python3-h5py")
    sys.exit(0)
from foreign_files import (Name, Object, Parameter, Tensor, Wrapper, npz_bytes,  # noqa: E402
                           safetensors_bytes, torch_bytes)
from oracle import kvtool, read_json, refused, runs, tap, write_bytes  # noqa: E402

HERE = oracle.ENGINES
FROM = "--from=transformers"
WINDOW = {8: (0, 1)}                # layers of the small Gemma 3 that have one
ALL = {8: (0, 1, 2)}
ROWS = ["llama/row0.canonical.LTHKD.bf16bits", "llama/row1.canonical.LTHKD.bf16bits"]
LEFT = ["llama/leftpad_row0.canonical", "llama/leftpad_row1.canonical"]
BOTH = ["--set=tokens=37"]
PAD6 = ["--set=tokens=19,13", "--set=padding=left"]
SLOTS = ["--set=slots=19"]

# file, options, layers by window, oracle (of that name where there is none)
SAMPLES = [
    ("5.23.0/llama/dynamic_cache_object.pt", BOTH, {}, ROWS),
    ("5.23.0/llama/iter_cache.pt", [FROM] + BOTH, {}, ROWS),
    ("5.23.0/llama/static_legacy.pt", [FROM] + BOTH, {}, ROWS),
    ("5.23.0/llama/stacked.safetensors", [FROM] + BOTH, {}, ROWS),
    ("5.23.0/llama/leftpad.pt",
     [FROM, "--set=tokens=37,20", "--set=padding=left"], {}, LEFT),
    ("5.23.0/dynamic.pt", [], WINDOW, None),
    ("5.23.0/dynamic_short.pt", [], WINDOW, None),
    ("5.23.0/dynamic_leftpad.pt", PAD6, WINDOW, None),
    ("5.23.0/dynamic_list.pt", [], WINDOW, None),
    ("5.23.0/dynamic_pairs.pt", [FROM, "--set=window=8"], WINDOW, None),
    ("5.23.0/dynamic_state.pt", [], WINDOW, None),
    ("5.23.0/dynamic_lists.pt", [FROM], {}, None),
    ("5.23.0/dynamic_beside.pt", [], WINDOW, None),
    ("5.23.0/static.pt", [], WINDOW, None),
    ("5.23.0/static_grown.pt", [], WINDOW, None),
    ("5.23.0/static_short.pt", [], WINDOW, None),
    ("5.23.0/static_leftpad.pt", PAD6, WINDOW, None),
    ("5.23.0/static_pairs.pt", [FROM, "--set=window=8"] + SLOTS, WINDOW, None),
    ("5.23.0/full_static.pt", [], {}, None),
    ("5.23.0/window_dynamic.pt", [], ALL, None),
    ("5.23.0/window_static.pt", [], ALL, None),
    ("5.23.0/encoder_decoder.pt",
     ["--set=names=self_attention_cache.layers.{l}.keys,"
      "self_attention_cache.layers.{l}.values"], {}, None),
    ("4.57.6/dynamic.pt", [], WINDOW, None),
    ("4.57.6/static.pt", [], WINDOW, None),
    ("4.57.6/full_static.pt", SLOTS, {}, None),
    ("4.57.6/window_dynamic.pt", [], ALL, None),
    ("4.57.6/latent.pt", [], {}, None),
    ("4.54.1/dynamic.pt", [], {}, None),
    ("4.54.1/static.pt", SLOTS, WINDOW, None),
    ("4.54.1/static_grown.pt", SLOTS, WINDOW, None),
    ("4.54.1/static_leftpad.pt", PAD6 + SLOTS, WINDOW, None),
    ("4.54.1/window_static.pt", SLOTS, ALL, None),
    ("4.54.1/full_static.pt", SLOTS, {}, None),
    ("4.52.4/full_dynamic.pt", [], {}, None),
    ("4.52.4/static.pt", SLOTS, WINDOW, None),
    ("4.52.4/static_grown.pt", SLOTS, WINDOW, None),
    ("4.52.4/full_static.pt", ["--set=tokens=19"], {}, None),
    ("4.52.4/window_static.pt", SLOTS, ALL, None),
    ("4.45.2/full_dynamic.pt", [], {}, None),
    ("4.45.2/full_static.pt", SLOTS, {}, None),
]


# ---- a snapshot -------------------------------------------------------------

def bits_of(data):
    out = np.empty(data.shape, f"u{data.id.get_type().get_size()}")
    data.id.read(h5py.h5s.ALL, h5py.h5s.ALL, out, mtype=data.id.get_type())
    return out


class Group:
    """cells[L, K, B, H, S, D] as bits; the number of each layer in the model"""

    def __init__(self, file, name):
        g = file["groups"][name]
        labels = [l if isinstance(l, str) else l.decode()
                  for l in g["data"].attrs["DIMENSION_LABELS"]]
        words = {"content": "dim", "channel": "dim", "tap": "state"}
        labels = [words.get(l, l) for l in labels]
        bits = bits_of(g["data"])
        for i, axis in enumerate(("layer", "kv", "block", "head", "state", "dim")):
            if axis not in labels:
                bits, labels = np.expand_dims(bits, i), labels[:i] + [axis] + labels[i:]
        order = ["layer", "kv", "block", "head", "state", "dim"]
        bits = bits.transpose([labels.index(l) for l in order])
        self.cells, self.size = bits, bits.shape[4]
        self.layers = g["layer_ids"][()].tolist() if "layer_ids" in g else \
            list(range(bits.shape[0]))
        self.window = int(g.attrs.get("window", 0))
        self.halves = {"k": (0,), "v": (1,)}.get(name.partition(".")[2], (0, 1))

    def tokens(self, table, first, begin, end):
        """[L, T, H, K, D] of the positions from 'begin' to 'end'"""
        at = np.arange(begin, end)
        block = table[at // self.size - first // self.size]
        return self.cells[:, :, block, :, at % self.size].transpose(1, 0, 3, 2, 4)


def check(path, options, windows, names, tmp):
    file = f"{HERE}/transformers/{path}"
    r = runs(f"{path} is read", "convert", "-f", *options, file, f"{tmp}/x.h5")
    if r.code:
        return
    folder = os.path.dirname(file) if not names else os.path.join(
        os.path.dirname(os.path.dirname(file)))
    if names:
        rows = [np.load(f"{folder}/{n}.npy") for n in names]
    else:
        rows = list(np.load(file.rsplit(".", 1)[0] + ".npy").view("<u4"))
    wrong = []
    with h5py.File(f"{tmp}/x.h5") as f:
        groups = {n: Group(f, n) for n in f["groups"]}
        for r, row in enumerate(rows):
            wrong += check_row(f, groups, r, row, options)
    tap.equal(wrong, [], f"{path}: what the model handed over")
    want = {l: w for w, layers in windows.items() for l in layers}
    got = {l: g.window for g in groups.values() for l in g.layers if g.window}
    tap.equal(got, {l: w for l, w in want.items()}, f"{path}: windows")
    layers = sorted((l, h) for g in groups.values() for l in g.layers for h in g.halves)
    tap.equal(layers, sorted((l, h) for l in range(len(rows[0])) for h in (0, 1)),
              f"{path}: every layer once")


# ---- layers of all kinds ------------------------------------------------------

# file, groups by id with what each has of the model's layers; minimax's own oracle has no
# states: those are compared with the tensors of the file
KINDS = {
    "qwen3_next": {"g0": [1, 3], "conv": [0, 2], "ssm": [0, 2]},
    "static_qwen3_next": {"g0": [1, 3], "conv": [0, 2], "ssm": [0, 2]},
    "falcon_h1": {"g0": [0, 1, 2, 3], "conv": [0, 1, 2, 3], "ssm": [0, 1, 2, 3]},
    "jamba": {"g0": [1, 3], "conv": [0, 2], "ssm": [0, 2]},
    "mamba": {"conv": [0, 1, 2, 3], "ssm": [0, 1, 2, 3]},
    "minimax": {"g0": [1, 3], "ssm": [0, 2]},
    "glm_moe_dsa": {"g0": [0, 1, 2, 3], "indexer": [0, 1, 2, 3]},
    "deepseek_v3": {"g0": [0, 1, 2, 3]},
    "t5": {"g0": [0, 1], "cross": [0, 1]},
    "4.57.6/lfm2": {"g0": [1, 3], "conv": [0, 2]},
    "4.46.3/mamba": {"conv": [0, 1, 2, 3], "ssm": [0, 1, 2, 3]},
}


def values_of(group):
    """What the bits of a group are, in float32."""
    bits = group.cells
    return (bits.astype("<u4") << 16).view("<f4") if bits.dtype.itemsize == 2 else \
        bits.view("<f4")


def of_tokens(f, group, name, request, n):
    """[L, T, H, K, D] of the first n tokens"""
    group.cells = values_of(group)
    return group.tokens(f["requests"][request]["block_table"][name][()], 0, 0, n)


def wanted(oracle_of, name, layer):
    """What the library held of a layer, as the group has it."""
    at = {"g0": "", "cross": "cross."}.get(name, "")
    if name == "g0" and f"self.{layer}.keys" in oracle_of:
        at = "self."
    if name == "indexer":
        return oracle_of[f"{layer}.indexer_keys"][0][:, None, None, :]
    if name == "conv":
        return oracle_of[f"{layer}.conv_states.0"][0].T
    if name == "ssm":
        state = oracle_of.get(f"{layer}.recurrent_states.0")
        return None if state is None else state[0].reshape(state.shape[1], -1)
    keys, values = (oracle_of[f"{at}{layer}.{x}"][0].transpose(1, 0, 2)
                    for x in ("keys", "values"))
    length = oracle_of.get(f"{layer}.cumulative_length")
    if length is not None:
        keys, values = keys[:int(length)], values[:int(length)]
    if keys.shape[-1] != values.shape[-1]:                  # a latent, one row
        return np.concatenate([keys, values], -1)[:, :, None]
    return np.stack([keys, values], 2)


def check_kinds(tmp, model):
    path = model if "/" in model else f"5.24.0/{model}"
    file = f"{HERE}/transformers/{path}.pt"
    r = runs(f"{path} is read", "convert", "-f", file, f"{tmp}/x.h5")
    if r.code:
        return
    with np.load(file.replace(".pt", ".oracle.npz")) as z:
        held = {k: z[k] for k in z.files}
    wrong, compared = [], 0
    with h5py.File(f"{tmp}/x.h5") as f:
        groups = {n: Group(f, n) for n in f["groups"]}
        tap.equal({n: g.layers for n, g in groups.items()}, KINDS[model],
                  f"{path}: groups")
        for name, g in groups.items():
            want = [wanted(held, name, l) for l in g.layers]
            if want[0] is None:
                continue
            if name in ("conv", "ssm"):
                got = values_of(g)[:, 0, 0]                 # [L, H, S, D]
                got = got[:, 0] if name == "conv" else got[:, :, 0]
            else:
                request = "1" if name == "cross" else "0"
                got = of_tokens(f, g, name, request, len(want[0]))
            wrong += [f"{name} of layer {l}" for l, a, b in zip(g.layers, got, want)
                      if a.shape != b.shape or not np.array_equal(a, b)]
            compared += len(want)
    tap.ok(not wrong and compared, f"{path}: what the library held", wrong)
    runs(f"{path}: equal to its snapshot", "diff", "-q", file, f"{tmp}/x.h5")
    runs(f"{path}: sound", "fsck", "-q", file)


# ---- DeepSeek V4 ----------------------------------------------------------------

# what a group is called, what the library calls it, and where its rows begin, by the
# number of rows of 'rate' tokens
V4 = {"g0": (None, None, None),
      "comp": ("compressed_kv", "compressor", lambda n, rate: 0),
      "indexer": ("compressed_kv", "indexer", lambda n, rate: 0)}
for _id, _key in ("", "compressor"), ("i", "indexer"):
    for _half in "kv", "gate":
        V4[f"{_id}buf.{_half}"] = f"buffer_{_half}", _key, lambda n, rate: n * rate
        V4[f"{_id}old.{_half}"] = f"overlap_{_half}", _key, lambda n, rate: (n - 1) * rate


def check_v4(tmp, model, tokens):
    file = f"{HERE}/transformers/5.24.0/{model}.pt"
    r = runs(f"5.24.0/{model} is read", "convert", "-f", file, f"{tmp}/x.h5")
    if r.code:
        return
    with np.load(file.replace(".pt", ".oracle.npz")) as z:
        held = {k: z[k] for k in z.files}
    left = {k for k, v in held.items() if v.size and ("_kv." in k or "_gate." in k or
                                                      k.endswith(".keys"))}
    wrong, holes = [], {}
    with h5py.File(f"{tmp}/x.h5") as f:
        for name in f["groups"]:
            g = Group(f, name)
            attribute, key, begin = V4[name.rstrip("1") if name != "g1" else name]
            cells = values_of(g)[:, 0, :, 0]                # [L, B, S, D]
            table = f["requests"]["0/block_table"][name][()]
            rows = cells[:, table].reshape(len(g.layers), -1, cells.shape[-1])
            for l, got in zip(g.layers, rows):
                if not attribute:
                    name_of, start = f"{l}.keys", tokens - held[f"{l}.keys"].shape[2]
                    want = held[name_of][0, 0]
                else:
                    name_of, n = f"{l}.{attribute}.{key}", held[f"{l}.entry_count.{key}"]
                    start, want = begin(n, held[f"{l}.compress_rate"]), held[name_of][0]
                left.discard(name_of)
                if not np.array_equal(got[start:start + len(want)], want):
                    wrong.append(name_of)
        q = f["requests"]["0"]
        tap.equal(int(q.attrs["num_computed_tokens"]), tokens, f"5.24.0/{model}: tokens")
    tap.equal((wrong, sorted(left)), ([], []), f"5.24.0/{model}: what the library held")
    runs(f"5.24.0/{model}: equal to its snapshot", "diff", "-q", file, f"{tmp}/x.h5")
    r = kvtool("fsck", file)
    tap.ok(r.code == 0 and "warning" not in r.out, f"5.24.0/{model}: sound", r)
    sums = {kvtool("digest", p).out.split()[0] for p in (file, f"{tmp}/x.h5")}
    tap.equal(len(sums), 1, f"5.24.0/{model}: the digest of its snapshot is the same")


def check_compressed(tmp):
    for model, tokens in (("deepseek_v4", 23), ("deepseek_v4_short", 5),
                          ("deepseek_v4_exact", 32)):
        check_v4(tmp, model, tokens)
    for what, o, options, status, part in COMPRESSED:
        run(f"{tmp}/o.pt", torch_bytes(o), f"compressed: {what}", options, status, part,
            asked=False)
# ---- codes of a quantiser -----------------------------------------------------

# file, what it says of itself
CODED = {
    "5.24.0/hqq1": "HQQ codes of 1 bit", "5.24.0/hqq3": "HQQ codes of 3 bits",
    "5.24.0/hqq4": "HQQ codes of 4 bits", "5.24.0/quanto4": "quanto codes of 4 bits",
}
DECODE = {"bfloat16": lambda b: (b.astype("<u4") << 16).view("<f4"),
          "float16": lambda b: b.view("<f2").astype("<f4"), "float32": lambda b: b.view("<f4")}


def check_coded(tmp, name, said):
    """What the library decodes, to the last bit, and the newest tokens behind it."""
    file = f"{HERE}/transformers/{name}.pt"
    with np.load(file.replace(".pt", ".oracle.npz")) as z:
        held = {k: z[k] for k in z.files}
    for size in (16, 5):
        options = [f"--block-size={size}"]
        r = runs(f"{name} is read, {size} tokens a block", "convert", "-f", *options,
                 file, f"{tmp}/x.h5")
        if r.code:
            return
        d = kvtool("describe", "--json", *options, file).json
        tap.equal(d["decoded"], said, f"{name}: says what was decoded")
        wrong = []
        with h5py.File(f"{tmp}/x.h5") as f:
            g = Group(f, "g0")
            g.cells = DECODE[d["groups"][0]["dtype"]](g.cells)
            n = held["0.keys"].shape[2]
            got = g.tokens(f["requests"]["0"]["block_table"]["g0"][()], 0, 0, n)
            for l in g.layers:
                for k, half in enumerate(("keys", "values")):
                    want = held[f"{l}.{half}"][0].transpose(1, 0, 2)
                    if not np.array_equal(got[l][:, :, k].view("<u4"), want.view("<u4")):
                        wrong.append(f"{half} of layer {l}")
        tap.equal(wrong, [], f"{name}: what the library decodes")
        r = kvtool("describe", f"{tmp}/x.h5")
        tap.ok(f"decoded from {said}" in r.out, f"{name}: a snapshot says it, too", r)
        for other in (file, f"{tmp}/x.h5"):
            runs(f"{name}: equal to itself and its snapshot", "diff", "-q", *options,
                 file, other)
    runs(f"{name}: sound", "fsck", "-q", file)


def check_where(tmp):
    """An element that is decoded has no bytes, but a place in the engine's tensor."""
    file, at = f"{HERE}/transformers/5.24.0/hqq4.pt", "layer=0,block=0,slot=3,head=1,kv=v,dim=2"
    r = kvtool("where", "--json", file, at)
    tap.ok(r.code == 0 and '"memory_offset"' in r.out and '"file_offset"' not in r.out,
           "where: no offset in the file", r)
    refused("where: a byte is no element", 4, "packed together", "where", file, "5000")


def check_itself(tmp):
    """Keys and values that are groups of their own are compared with their like."""
    latent = f"{HERE}/transformers/4.57.6/latent.pt"
    runs("halves of unlike widths equal themselves", "diff", latent, latent,
         says=("g0.k: equal", "g0.v: equal"))
    kvtool("convert", latent, f"{tmp}/halves.safetensors")
    runs("and what is written of them to safetensors", "diff", latent,
         f"{tmp}/halves.safetensors")


def check_row(f, groups, r, row, options):
    """row[L, T, H, 2, D], padding included where it stands on the left"""
    request, wrong = f["requests"][str(r)], []
    first = int(request.attrs.get("first_token", 0))
    end = first + int(request.attrs["num_computed_tokens"])
    if "--set=padding=left" in options:
        row = row[:, row.shape[1] - end:]
    if row.shape[1] != end:
        wrong.append(f"row {r} has {end} tokens")
    for name, g in groups.items():
        begin = max(end - g.window + 1, 0) if g.window else 0
        if begin < first:
            wrong.append(f"row {r} begins at {first}")
        got = g.tokens(request["block_table"][name][()], first, begin, end)
        want = row[g.layers, begin:end][..., list(g.halves), :got.shape[-1]]
        if not np.array_equal(got, want):
            wrong.append(f"row {r}, group {name}: {np.sum(got != want)} elements")
    return wrong


# ---- what a file does not say -----------------------------------------------

def tensor(*shape):
    n = int(np.prod(shape))
    return Tensor("FloatStorage", np.arange(1, n + 1, dtype=np.float32).reshape(shape))


def number(n):
    return Tensor("LongStorage", np.array(n, np.int64))


def layer(name, slots, rows=1, **more):
    return Object(name, {"keys": tensor(rows, 2, slots, 4),
                         "values": tensor(rows, 2, slots, 4), **more})


def cache(*layers, name="DynamicCache"):
    return Object(name, {"layers": list(layers), "offloading": 0})


def static(slots, seen, rows=1):
    return layer("StaticLayer", slots, rows, cumulative_length=number(seen))


def sliding(slots, seen, window):
    return layer("DynamicSlidingWindowLayer", slots, cumulative_length=seen,
                 sliding_window=window)


def rolled(slots, seen):
    return layer("StaticSlidingWindowLayer", slots, cumulative_length=number(0),
                 cumulative_length_int=seen)


NOTHING = Object("DynamicLayer", {"keys": None, "values": None})


def linear(conv=None, state=None, name="LinearAttentionLayer", **more):
    return Object(name, {"conv_states": conv or {}, "recurrent_states": state or {},
                         **more})


def states(rows, taps=4, heads=2):
    return linear({0: tensor(rows, 6, taps)}, {0: tensor(rows, heads, 3, 5)})


def both(what, slots, rows=1, **more):
    return layer(f"LinearAttentionAnd{what}AttentionLayer", slots, rows,
                 conv_states={0: tensor(rows, 6, 4)},
                 recurrent_states={0: tensor(rows, 2, 3, 5)}, **more)


def u8(*shape):
    n = int(np.prod(shape))
    return Tensor("ByteStorage", np.arange(n, dtype=np.uint8).reshape(shape))


def hqq(rest=None, seen=6, pending=None, codes=None, **changed):
    """5 tokens of 2 heads of 4 in groups of 4 along axis 0, and one that is not coded"""
    meta = {"nbits": 4, "group_size": 4, "shape": (1, 2, 5, 4), "scale": tensor(1, 10),
            "zero": tensor(1, 10), "axis": 0, "packing": "4bit_u8",
            "view_as_float": False, "compute_dtype": Name("torch.float32"), **changed}
    both = (codes or u8(2, 10), meta)
    if "packing" in changed and changed["packing"] == "8bit_u8":
        both = (u8(4, 10), meta)
    return Object("HQQQuantizedLayer", {
        "keys": rest or tensor(1, 2, 1, 4), "values": rest or tensor(1, 2, 1, 4),
        "_quantized_keys": both, "_quantized_values": both, "cumulative_length": seen,
        "_pending_beam_idx": pending, "quantizer": Name("hqq.core.quantize.Quantizer")})


def quanto_tensor(axis=0, bits=4, is_floating_point=False, size=4, packed_bits=4,
                  codes=None, shift=None, dtype="float32", shape=(1, 2, 5, 4)):
    """40 codes: 10 rows of 4, or 4 of 10 along the last axis"""
    at = "optimum.quanto.tensor."
    table, scale = ((10, 4), tensor(10, 1)) if axis == 0 else ((5, 8), tensor(1, 8))
    size = size if axis == 0 else 5
    kind = Object("qtype", {"name": "qint4", "bits": bits,
                            "is_floating_point": is_floating_point}, f"{at}qtype")
    data = Wrapper(f"{at}packed.PackedTensor", "uint8", table, {
        "_bits": packed_bits, "_data": codes or u8((table[0] + 1) // 2, table[1])})
    return Wrapper(f"{at}weights.qbits.WeightQBitsTensor", dtype, shape, {
        "_qtype": kind, "_axis": axis, "_data": data, "_scale": scale,
        "_shift": shift or scale, "_group_size": size})


def quanto(**changed):
    codes = quanto_tensor(**changed)
    return Object("QuantoQuantizedLayer", {
        "keys": tensor(1, 2, 1, 4), "values": tensor(1, 2, 1, 4), "_quantized_keys": codes,
        "_quantized_values": codes, "cumulative_length": 6})


def older(n):
    """Of transformers 4.42 to 4.53, with newest tokens of n layers."""
    rest, codes = [tensor(1, 2, 1, 4)] * n, [quanto_tensor()]
    return Object("QuantoQuantizedCache", {
        "key_cache": rest, "value_cache": rest, "_quantized_key_cache": codes,
        "_quantized_value_cache": codes})


def processed(n):
    """Of transformers 4.54 and 4.55, with n layers."""
    codes = [quanto_tensor()]
    by = Object("QuantoQuantizedCacheProcessor", {"_quantized_keys": codes,
                                                  "_quantized_values": codes})
    return Object("QuantoQuantizedCache", {"layers": [layer("DynamicLayer", 1)] * n,
                                           "cache_processor": by})


# what, object, options, status, a part of what is said on stdout or stderr
OBJECTS = [
    ("rows", cache(layer("DynamicLayer", 5, 2)), [], 3, "--set tokens="),
    ("rows that are told", cache(layer("DynamicLayer", 5, 2)), ["tokens=5,3"], 0,
     "3 tokens"),
    ("a static layer", cache(static(8, 5)), [], 0, "5 tokens"),
    ("one without a number", cache(layer("StaticLayer", 8)), [], 3, "--set slots="),
    ("one that is told", cache(layer("StaticLayer", 8)), ["slots=6"], 0, "6 tokens"),
    ("one that is told otherwise", cache(static(8, 5)), ["slots=6"], 3, "5 slots"),
    ("one with more tokens than slots", cache(static(8, 9)), [], 3, "8 slots"),
    ("layers that disagree", cache(static(8, 5), static(8, 6)), [], 3, "received 5 tokens"),
    ("layers of unlike lengths", cache(layer("DynamicLayer", 5),
                                       layer("DynamicLayer", 4)), [], 3, "received 5"),
    ("padding of a static cache on the left",
     cache(layer("StaticLayer", 8, 2)), ["tokens=5,3", "padding=left"], 3, "--set slots="),
    ("a window", cache(sliding(3, 9, 4), layer("DynamicLayer", 9)), [], 0, "9 tokens"),
    ("a window that lost tokens", cache(sliding(2, 9, 4), layer("DynamicLayer", 9)), [],
     3, "begins at 6"),
    ("a window of nothing", cache(sliding(3, 9, 0), layer("DynamicLayer", 9)), [], 3,
     "window of 0"),
    ("a window that holds more than there was", cache(sliding(5, 4, 8)), [], 3,
     "5 slots"),
    ("a window that the user tells", cache(sliding(3, 9, 4)), ["window=4"], 0,
     "from token 6 on"),
    ("a window that the user tells otherwise", cache(sliding(3, 9, 4)), ["window=5"], 3,
     "window of 4"),
    ("windows and no other layer", cache(sliding(3, 9, 4)), [], 0, "from token 6 on"),
    ("two windows", cache(sliding(3, 3, 4), sliding(3, 3, 8)), [], 0, "g1 "),
    ("2^62 tokens", cache(sliding(3, 1 << 62, 4)), [], 3, "at most"),
    ("a window that moved on", cache(rolled(4, 9), static(16, 9)), [], 0, "9 tokens"),
    ("a window that is not full", cache(rolled(4, 3), static(16, 3)), [], 0, "3 tokens"),
    ("layers that hold nothing", cache(NOTHING, layer("DynamicLayer", 5), NOTHING), [],
     0, "L 1"),
    ("no layer that holds anything", cache(NOTHING), [], 3, "holds nothing"),
    ("two caches", {"a": cache(layer("DynamicLayer", 5)),
                    "b": cache(layer("DynamicLayer", 6))}, [], 3, "holds 2 caches"),
    ("one of two caches", {"a": cache(layer("DynamicLayer", 5)),
                           "b": cache(layer("DynamicLayer", 6))},
     ["names=b.layers.{l}.keys,b.layers.{l}.values"], 0, "6 tokens"),
    ("keys without values", cache(Object("DynamicLayer", {"keys": tensor(1, 2, 5, 4),
                                                          "values": None})), [], 4,
     "nothing"),
    ("an older cache", Object("DynamicCache", {"key_cache": [tensor(1, 2, 5, 4)],
                                               "value_cache": [tensor(1, 2, 5, 4)]}),
     [], 0, "5 tokens"),
    ("an older hybrid cache",
     Object("HybridCache", {"key_cache": [tensor(1, 2, n, 4) for n in (4, 9)],
                            "value_cache": [tensor(1, 2, n, 4) for n in (4, 9)]}),
     ["slots=7"], 0, "4 tokens"),
    ("a quantised layer of an unknown kind", cache(Object("NewQuantizedLayer", {})), [], 4,
     "what its update() returns"),
    ("codes in no layer", cache(quanto_tensor()), [], 4, "outside a layer"),
    ("codes in a list of layers", [hqq(), hqq()], [], 0, "6 tokens"),
    ("a quantised layer that is empty", cache(layer("HQQQuantizedLayer", 5)), [], 0,
     "5 tokens"),
    ("HQQ", cache(hqq()), [], 0, "6 tokens"),
    ("HQQ of 3 bits along axis 1, which its own library cannot decode",
     cache(hqq(packing="3bit_32", nbits=3, axis=1)), [], 4, "3 bits along axis 1"),
    ("HQQ that is not packed", cache(hqq(packing=None)), [], 4, "another packing"),
    ("HQQ packed as floats", cache(hqq(view_as_float=True)), [], 4, "another packing"),
    ("HQQ of scales that are codes", cache(hqq(quant_scale=True)), [], 4, "are codes"),
    ("HQQ of more bits than its packing", cache(hqq(nbits=5)), [], 4, "other bits"),
    ("HQQ of fewer", cache(hqq(nbits=3)), [], 4, "other bits"),
    ("HQQ without groups", cache(hqq(group_size=None)), [], 4, "without groups"),
    ("HQQ of another axis", cache(hqq(axis=2)), [], 4, "without groups"),
    ("HQQ of groups that do not fit", cache(hqq(group_size=9)), [], 3, "divide"),
    ("HQQ of three axes", cache(hqq(shape=(2, 5, 4))), [], 3, "batch, heads"),
    ("HQQ of more tokens than codes", cache(hqq(shape=(1, 2, 500, 4))), [], 3,
     "each group"),
    ("HQQ of too many tokens", cache(hqq(shape=(1, 1 << 40, 1 << 40, 4))), [], 3,
     "batch, heads"),
    ("HQQ of codes that are cut off", cache(hqq(codes=u8(3, 8))), [], 3, "not as many"),
    ("HQQ of codes of another type", cache(hqq(codes=tensor(2, 8))), [], 4, "of bytes"),
    ("HQQ of scales for other groups", cache(hqq(scale=tensor(1, 4), zero=tensor(1, 4))),
     [], 3, "each group"),
    ("HQQ of zeros that are fewer", cache(hqq(zero=tensor(1, 4))), [], 3, "unlike shapes"),
    ("HQQ of whole scales", cache(hqq(scale=number(1))), [], 4, "two tables"),
    ("HQQ that computes otherwise", cache(hqq(compute_dtype=Name("torch.float16"))), [],
     4, "another type"),
    ("HQQ of fewer tokens than were given", cache(hqq(seen=7)), [], 3, "given 7"),
    ("HQQ and newest tokens of other heads", cache(hqq(rest=tensor(1, 3, 1, 4))), [], 3,
     "unlike shapes"),
    ("HQQ and newest tokens of whole numbers", cache(hqq(rest=u8(1, 2, 1, 4))), [], 4,
     "another float type"),
    ("HQQ whose rows are to be moved", cache(hqq(pending=number(0))), [], 4,
     "_pending_beam_idx"),
    ("HQQ of two widths", cache(hqq(), hqq(codes=u8(4, 8), packing="8bit_u8", nbits=8)),
     [], 4, "expected one kind"),
    ("quanto", cache(quanto()), [], 0, "6 tokens"),
    ("quanto along the last axis", cache(quanto(axis=-1)), [], 0, "6 tokens"),
    ("quanto of 8 bits", cache(quanto(bits=8)), [], 4, "qint2 and qint4"),
    ("quanto of floats", cache(quanto(is_floating_point=True)), [], 4, "qint2 and qint4"),
    ("quanto of another axis", cache(quanto(axis=1)), [], 4, "without groups"),
    ("quanto of groups that do not fit", cache(quanto(size=16)), [], 3, "divide"),
    ("quanto of bits that differ", cache(quanto(packed_bits=2)), [], 4,
     "packed otherwise"),
    ("quanto of codes that are cut off", cache(quanto(codes=u8(2, 4))), [], 3,
     "not as many"),
    ("quanto of shifts that are whole", cache(quanto(shift=u8(10, 1))), [], 4,
     "two tables"),
    ("quanto of a tensor of another type", cache(quanto(dtype="float16")), [], 4,
     "another type"),
    ("quanto of more tokens than codes", cache(quanto(shape=(1, 2, 50, 4))), [], 3,
     "each group"),
    ("an older cache of both, of layers that are None",
     Object("Qwen3NextDynamicCache", {"key_cache": [None, tensor(1, 2, 5, 4)],
                                      "value_cache": [None, tensor(1, 2, 5, 4)],
                                      "conv_states": [tensor(1, 6, 4), None],
                                      "recurrent_states": [tensor(1, 2, 3, 5), None]},
            "transformers.models.qwen3_next.modeling_qwen3_next"), [], 0, "5 tokens"),
    ("one whose empty tensors have rows",
     Object("Zamba2HybridDynamicCache", {"key_cache": [tensor(2, 0), tensor(2, 2, 5, 4)],
                                         "value_cache": [tensor(2, 0), tensor(2, 2, 5, 4)],
                                         "conv_states": {0: tensor(2, 6, 4)},
                                         "ssm_states": {0: tensor(2, 2, 3, 5),
                                                        1: tensor(2, 0)}},
            "transformers.models.zamba2.modeling_zamba2"), ["tokens=5"], 0, "5 tokens"),
    ("one with three convolutions of a layer",
     Object("OlmoHybridDynamicCache", {f"conv_states_{x}": [tensor(1, 6, 4), None]
                                       for x in "qkv"},
            "transformers.models.olmo_hybrid.modeling_olmo_hybrid"), [], 0, "conv2 "),
    ("states of all layers in one tensor",
     Object("MambaCache", {"conv_states": tensor(3, 1, 6, 4),
                           "ssm_states": tensor(3, 1, 6, 2)}), [], 0, "L 3"),
    ("one of a layer that has no elements",
     Object("MambaCache", {"conv_states": tensor(3, 1, 6, 0)}), [], 3, "layer of"),
    ("an older quantised cache", older(1), [], 0, "6 tokens"),
    ("one with codes of fewer layers", older(2), [], 3, "as many layers"),
    ("one with a processor of codes", processed(1), [], 0, "6 tokens"),
    ("one with codes of fewer layers than layers", processed(2), [], 3, "as many layers"),
    ("states do not say of how many tokens", cache(states(1)), [], 0, "blocks    1\n"),
    ("states, and how many", cache(states(2)), ["tokens=7,5"], 0, "5 tokens in 1 block"),
    ("a layer of both kinds", cache(both("Full", 5)), [], 0, "5 tokens in 1 block"),
    ("both, with a window", cache(both("SlidingWindow", 3, sliding_window=4,
                                       cumulative_length=9)), [], 0, "from token 6 on"),
    ("both, static", cache(both("StaticFull", 8, cumulative_length=number(5))), [], 0,
     "5 tokens"),
    ("both, a static window", cache(both("StaticSlidingWindow", 8,
                                         cumulative_length_int=5)), [], 0, "5 tokens"),
    ("states of two shapes", cache(states(1), states(1, 5, 3)), [], 0, "ssm1 "),
    ("two states of a layer", cache(linear({0: tensor(1, 6, 4), 1: tensor(1, 6, 4)})), [],
     0, "conv1 "),
    ("states of unlike batches", cache(states(1), states(2)), [], 3, "batch of 2"),
    ("states and keys of unlike batches", cache(states(1), layer("DynamicLayer", 5, 2)),
     ["tokens=5"], 3, "batch of 1"),
    ("a state without elements", cache(linear({0: tensor(1, 6, 0)})), [], 3, "no elements"),
    ("a state of one axis", cache(linear(None, {0: tensor(4)})), [], 3, "1 axes"),
    ("the 65th state", cache(linear({65: tensor(1, 6, 4)})), [], 3, "layer of"),
    ("states in lists", cache(linear([tensor(1, 6, 4)], [tensor(1, 2, 3, 5)])), [], 0,
     "ssm "),
    ("an indexer", cache(Object("DynamicIndexedLayer", {
        "keys": tensor(1, 1, 5, 8), "values": tensor(1, 1, 5, 2),
        "indexer_keys": tensor(1, 5, 4)})), [], 0, "indexer "),
    ("an indexer of other tokens", cache(Object("DynamicIndexedLayer", {
        "keys": tensor(1, 1, 5, 8), "values": tensor(1, 1, 5, 2),
        "indexer_keys": tensor(1, 4, 4)})), [], 3, "received 5"),
    ("keys of an index with heads", cache(Object("MiniMaxM3VLSparseCacheLayer", {
        "keys": tensor(1, 2, 5, 4), "values": tensor(1, 2, 5, 4),
        "idx_keys": tensor(1, 1, 5, 4)},
        "transformers.models.minimax_m3_vl.modeling_minimax_m3_vl")), [], 0, "indexer "),
    ("a cache with sinks", Object("SinkCache", {}), [], 4, "other positions"),
    ("a class of another module", Object("DynamicCache", {}, "evil"), [], 4,
     "evil.DynamicCache"),
    ("a model's output", Object("CausalLMOutputWithPast", {},
                                "transformers.modeling_outputs"), [], 4,
     "save [(l.keys, l.values) for l in cache.layers]"),
]


def beside(mask, rows=2, kind="LongStorage", name="attention_mask"):
    """A cache of 5 slots with a mask beside it."""
    bits = {"LongStorage": np.int64, "BoolStorage": np.uint8, "IntStorage": np.int32,
            "FloatStorage": np.float32}[kind]
    return {"past_key_values": cache(layer("DynamicLayer", 5, rows)),
            name: Tensor(kind, np.array(mask, bits))}


LEFTPAD, ONES = [[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]], [1, 1, 1, 1, 1]

# the same of masks; two rows are padded by 0 and 2 where nothing else is said
MASKS = [
    ("a mask", beside(LEFTPAD), [], 0, "1: 3 tokens"),
    ("of booleans", beside(LEFTPAD, kind="BoolStorage"), [], 0, "1: 3 tokens"),
    ("of 32 bits", beside(LEFTPAD, kind="IntStorage"), [], 0, "1: 3 tokens"),
    ("of floating point", beside(LEFTPAD, kind="FloatStorage"), [], 3, "--set tokens="),
    ("of a prompt that was gone on from", beside([[1, 1], [0, 1]]), [], 0, "1: 4 tokens"),
    ("with the next token", beside([ONES + [1], [0, 0, 1, 1, 1, 1]]), [], 0,
     "1: 3 tokens"),
    ("that pads on the right", beside([ONES, [1, 1, 1, 0, 0]]), [], 0, "1: 3 tokens"),
    ("that pads on both sides", beside([ONES, [0, 1, 1, 1, 0]]), [], 0, "1: 3 tokens"),
    ("of one row", beside([[0, 1, 1, 1, 1]], 1), [], 0, "0: 4 tokens"),
    ("of no tokens", beside([ONES, [0] * 5]), [], 0, "1: 0 tokens"),
    ("with padding between", beside([ONES, [1, 0, 1, 1, 1]]), [], 3, "between its tokens"),
    ("right of a prompt", beside([[1, 1], [1, 0]]), [], 3, "between its tokens"),
    ("with a 2", beside([ONES, [0, 2, 1, 1, 1]]), [], 3, "than 0 and 1"),
    ("with -1", beside([ONES, [0, -1, 1, 1, 1]]), [], 3, "than 0 and 1"),
    ("of other rows", beside([ONES]), [], 3, "--set tokens="),
    ("of four axes", beside([[[LEFTPAD[1]] * 5]] * 2), [], 3, "--set tokens="),
    ("and tokens", beside(LEFTPAD), ["tokens=5,3"], 0, "1: 3 tokens"),
    ("and other tokens", beside(LEFTPAD), ["tokens=5,4"], 3, "has 3 tokens"),
    ("and the other side", beside(LEFTPAD), ["padding=right"], 3, "on the left"),
    ("of something else", beside(LEFTPAD, name="mask"), [], 3, "--set tokens="),
    ("of the encoder", beside(LEFTPAD, name="decoder_attention_mask"), [], 3,
     "--set tokens="),
    ("that is nearer", {"a": beside([ONES, [0, 1, 1, 1, 1]]),
                        "attention_mask": beside(LEFTPAD)["attention_mask"]}, [], 0,
     "1: 4 tokens"),
    ("of another cache", {"a": beside([ONES] * 2)["past_key_values"],
                          "b": {"attention_mask": beside(LEFTPAD)["attention_mask"]}},
     [], 3, "--set tokens="),
]


def check_masks(tmp):
    for what, o, options, status, part in MASKS:
        run(f"{tmp}/o.pt", torch_bytes(o), f"masks: {what}", options, status, part,
            asked=False)
    pairs = {f"layers.0.{x}": ("F32", tensor(2, 2, 5, 4).bits) for x in ("keys", "values")}
    pairs["attention_mask"] = "I64", np.array(LEFTPAD, np.int64)
    run(f"{tmp}/o.st", safetensors_bytes(pairs), "masks: beside named tensors", [], 0,
        "1: 3 tokens")
    twice = Object("EncoderDecoderCache", {
        "self_attention_cache": cache(layer("DynamicLayer", 4, 2)),
        "cross_attention_cache": cache(layer("DynamicLayer", 5, 2))})
    both_of = {"cache": twice, "attention_mask": beside(LEFTPAD)["attention_mask"],
               "decoder_attention_mask": Tensor("LongStorage", np.array(
                   [[1] * 4, [0, 0, 0, 1]], np.int64))}
    run(f"{tmp}/o.pt", torch_bytes(both_of), "masks: of a decoder", [], 0, "1: 1 token ",
        asked=False)
    run(f"{tmp}/o.pt", torch_bytes(both_of), "masks: and of its encoder", [], 0,
        "1.cross: 3 tokens", asked=False)


def padded(left, right=(0, 0), layers=2, only=None):
    """Two rows of 7 slots, with zeros at the ends."""
    out = []
    for l in range(layers):
        t = [tensor(2, 2, 7, 4), tensor(2, 2, 7, 4)]
        for half in range(2):
            for r in range(2):
                if only in (None, (l, half)):
                    t[half].bits[r, :, :left[r]] = 0
                    t[half].bits[r, :, 7 - right[r]:] = 0
        out.append(Object("DynamicLayer", {"keys": t[0], "values": t[1]}))
    return cache(*out)


def check_zeros(tmp):
    """What was put together of single caches has no token where it has zeros."""
    for what, o, options, status, part in (
            ("on the left", padded((0, 3)), [], 0, "1: 4 tokens"),
            ("on the right", padded((0, 0), (2, 0)), [], 0, "0: 5 tokens"),
            ("on both sides", padded((0, 3), (1, 2)), [], 0, "1: 2 tokens"),
            ("of all of a row", padded((0, 7)), [], 0, "1: 0 tokens"),
            ("said", padded((0, 3)), [], 0, "were taken for padding"),
            ("of one layer", padded((0, 3), only=(0, 0)), [], 3, "--set tokens="),
            ("of no row", padded((0, 0)), [], 3, "--set tokens="),
            ("and what is told", padded((0, 3)), ["tokens=7,5", "padding=left"], 0,
             "1: 5 tokens")):
        run(f"{tmp}/z.pt", torch_bytes(o), f"zeros: {what}", options, status, part,
            asked=False)


def check_leftpad(tmp):
    """A row of a batch that generate() was given is what the prompt is by itself."""
    folder = f"{HERE}/transformers/5.24.0"
    with np.load(f"{folder}/leftpad_mask.oracle.npz") as z:
        held = {k: z[k] for k in z.files}
    runs("a batch and its mask are read", "convert", "-f", f"{folder}/leftpad_mask.pt",
         f"{tmp}/x.h5")
    wrong = []
    with h5py.File(f"{tmp}/x.h5") as f:
        g = Group(f, "g0")
        g.cells = values_of(g)
        for row, begin in enumerate(held["mask"].argmax(1)):
            table = f["requests"][str(row)]["block_table"]["g0"][()]
            end = held["0.keys"].shape[2] - begin
            got = g.tokens(table, 0, 0, end)                # [L, T, H, K, D]
            for l in g.layers:
                want = np.stack([held[f"{l}.{x}"][row, :, begin:] for x in
                                 ("keys", "values")], 2).swapaxes(0, 1)
                wrong += [] if np.array_equal(got[l], want) else [(row, l)]
    tap.equal(wrong, [], "rows of it are what the library held")
    pair = [f"{folder}/leftpad_mask.pt", f"{folder}/leftpad_alone.pt"]
    runs("and close to the prompt that was run alone", "diff", "-q", "--common",
         "--match=1=0", "--atol=1e-6", *pair)
    r = kvtool("diff", "-q", "--common", "--match=0=0", "--atol=1e-6", *pair)
    tap.ok(r.code, "which the other row is not", r)


V4_CLASS = "transformers.models.deepseek_v4.modeling_deepseek_v4"


def v4(seen, rate, rows=1, name="DeepseekV4HCACache", values=None, **change):
    """A layer of V4 that was given so many tokens, by the rules of its class."""
    n, keys = seen // rate, tensor(rows, 1, min(seen, 7), 8)
    buffers = {x: {"compressor": tensor(rows, seen - n * rate, 8)} for x in
               ("buffer_kv", "buffer_gate")} if seen % rate else {}
    return Object(name, {
        "keys": keys, "values": values or keys, "sliding_window": 8,
        "cumulative_length": seen, "compress_rate": rate,
        "buffer_kv": {"compressor": None}, "buffer_gate": {"compressor": None},
        "compressed_kv": {"compressor": tensor(rows, n, 8) if n else None},
        "entry_count": {"compressor": n}, **buffers, **change}, V4_CLASS)


def some(n, width=8):
    return {"compressor": tensor(1, n, width)}


COMPRESSED = [
    ("23 tokens of 4", cache(v4(23, 4)), [], 0, "3 missing in comp: tokens 20 to 22"),
    ("a row of 128 and none that waits", cache(v4(128, 128)), [], 0, "comp "),
    ("of no tokens a row", cache(v4(7, 128)), [], 0, "buf.kv "),
    ("a plain layer beside", cache(sliding(7, 23, 8), v4(23, 4)), [], 0, "g1 "),
    ("values unlike the keys", cache(v4(23, 4, values=Tensor("FloatStorage", np.ones(
        (1, 1, 7, 8), np.float32)))), [], 0, "sliding_window, float32"),
    ("two rows", cache(v4(23, 4, 2)), [], 3, "--set tokens="),
    ("two rows that are told", cache(v4(23, 4, 2)), ["tokens=23"], 0, "1: 23 tokens"),
    ("padding on the left", cache(v4(23, 4, 2)), ["tokens=23,20", "padding=left"], 4,
     "padding on the left of sequence 1"),
    ("one row too few", cache(v4(23, 4, entry_count={"compressor": 4})), [], 3,
     "has 4 rows of 4 tokens"),
    ("one row less than it says", cache(v4(23, 4, compressed_kv=some(4))), [], 3,
     "has 4 rows, but 5"),
    ("a buffer of more", cache(v4(23, 4, buffer_kv=some(4))), [], 3, "but 3"),
    ("no buffer", cache(v4(23, 4, buffer_gate={"compressor": None})), [], 3, "0 rows"),
    ("a buffer of two axes", cache(v4(23, 4, buffer_kv={"compressor": tensor(3, 8)})), [],
     3, "-1 rows"),
    ("a rate of 0", cache(v4(23, 4, compress_rate=0)), [], 3, "0 tokens of"),
    ("no rate", cache(v4(23, 4, compress_rate=None)), [], 3, "-1 tokens of"),
    ("2^62 tokens", cache(v4(23, 4, cumulative_length=1 << 62)), [], 3, "was given"),
    ("no count", cache(v4(23, 4, entry_count={})), [], 3, "-1 rows"),
    ("an overlap of another length", cache(v4(23, 4, overlap_kv=some(3))), [], 3, "but 4"),
    ("a row of other states", cache(v4(23, 4, overlap_kv=some(4), overlap_gate=some(4))),
     [], 0, "old.gate "),
    ("layers that were given unlike tokens", cache(v4(23, 4), v4(22, 4)), [], 3,
     "received 23"),
]


def run(path, data, what, options, status, part, asked=True):
    write_bytes(path, data)
    told = [f"--set={o}" for o in options]
    r = kvtool("describe", *([FROM] if asked else []), *told, path)
    tap.ok(r.code == status and part in r.out + r.err and
           r.err.count("\n") == (status != 0), what, r)


def check_objects(tmp):
    for what, o, options, status, part in OBJECTS:
        run(f"{tmp}/o.pt", torch_bytes(o), f"objects: {what}", options, status, part,
            asked=False)
    write_bytes(f"{tmp}/o.pt", torch_bytes([(None, None), (tensor(1, 2, 5, 4),) * 2]))
    kvtool("convert", "-f", FROM, f"{tmp}/o.pt", f"{tmp}/o.npy")
    tap.equal(read_json(f"{tmp}/o.json").get("layer_ids"), [1],
              "what is advised keeps the numbers")
    # 8 slots, which torch.compile() was told of: not the 8 tokens of a window of 9
    refused("a static cache keeps a window", 3, "window of 9", "describe", FROM,
            "--set=window=9", "--set=slots=19",
            f"{HERE}/transformers/5.23.0/static_pairs.pt")
    refused("an object is no blocks of an engine", 3, FROM, "describe", "--from=torch",
            f"{HERE}/transformers/5.23.0/static.pt")
    write_bytes(f"{tmp}/o.pt", torch_bytes([hqq(), hqq()]))
    refused("nor are layers with codes", 3, FROM, "describe", "--from=torch",
            "--layout=hnd", f"{tmp}/o.pt")


# A class of the tree, an object in itself, and calls with the wrong arguments.
PICKLES = [
    ("a class by itself", b"ctransformers.cache_utils\nDynamicCache\n.", 3),
    ("an object without attributes", b"ctransformers.cache_utils\nDynamicCache\n)\x81.",
     3),
    ("an object of arguments", b"ctransformers.cache_utils\nDynamicCache\nK\1\x85\x81.",
     3),
    ("attributes twice", b"ctransformers.cache_utils\nDynamicCache\n)\x81}b}b.", 4),
    ("attributes of a list", b"ctransformers.cache_utils\nDynamicCache\n0]}b.", 4),
    ("a cache in itself", b"ctransformers.cache_utils\nDynamicCache\n)\x81q\0}"
     b"X\6\0\0\0layersh\0sb.", 4),
    ("a tensor of another type", b"ctorch._tensor\n_rebuild_from_type_v2\n("
     b"ctransformers.cache_utils\nDynamicCache\nctorch\nTensor\n)}tR.", 3),
    ("a tensor of no arguments", b"ctorch._tensor\n_rebuild_from_type_v2\n("
     b"ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n)}tR.", 4),
    ("a parameter of no tensor", b"ctorch._utils\n_rebuild_parameter\n(N\x88NtR.", 3),
    ("a number cut off", b"G\0\0\0.", 3),
    ("a tensor that is wrapped by no class of a quantiser",
     b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_wrapper_subclass\n"
     b"ctransformers.cache_utils\nDynamicCache\n)}tR.", 3),
    ("a wrapped tensor of no attributes",
     b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_wrapper_subclass\n"
     b"coptimum.quanto.tensor.packed\nPackedTensor\n))tR.", 3),
    ("a call that makes what is wrapped", b"ctorch._utils\n_rebuild_wrapper_subclass\n("
     b"K\1K\1K\1K\1K\1K\1K\1K\1tR.", 3),
    ("a size that is no tuple", b"ctorch\nSize\nK\1\x85R.", 3),
]


def check_pickles(tmp):
    for what, code, status in PICKLES:
        run(f"{tmp}/p.pt", torch_bytes({}, **{"cache_data.pkl": b"\x80\2" + code}),
            f"pickles: {what}", [], status, "")


def check_plain(tmp):
    """Tensors by themselves."""
    def f32(*shape):
        return "F32", tensor(*shape).bits

    def file(data, *rest, **named):
        run(f"{tmp}/t", data, *rest, **named)

    pair = {"keys": f32(3, 1, 2, 5, 4), "values": f32(3, 1, 2, 5, 4)}
    stack = safetensors_bytes(pair)
    mask = safetensors_bytes({**pair, "mask": f32(5)})
    file(stack, "stacked", [], 0, "L 3")
    file(mask, "stacked, and more", [], 3, "--set names=")
    file(mask, "stacked, and names", ["names=keys,values"], 0, "L 3")
    file(mask, "stacked, and wrong names", ["names=keys,value"], 3, "keys,value")
    for k, v in ("K", "V"), ("k", "v"), ("key_cache", "value_cache"), \
            ("past_keys", "past_values"):
        file(safetensors_bytes({k: pair["keys"], v: pair["values"]}),
             f"stacked as {k} and {v}", [], 0, "L 3")
    file(safetensors_bytes({"keys": f32(3, 1, 2, 5, 4), "values": f32(2, 1, 2, 5, 4)}),
         "stacks of unlike heights", [], 3, "3 and 2 layers")
    file(torch_bytes((tensor(3, 1, 2, 5, 4), tensor(3, 1, 2, 5, 4))),
         "stacked in a tuple", [], 3, "--set names=")
    file(torch_bytes((tensor(3, 1, 2, 5, 4), tensor(3, 1, 2, 5, 4))),
         "stacked in a tuple, and names", ["names=0,1"], 0, "L 3")
    file(torch_bytes(tensor(3, 2, 1, 2, 5, 4)), "one tensor", [], 3, "expected separate")
    filled = tensor(1, 2, 8, 4).bits
    filled[:, :, 5:] = 0
    one = safetensors_bytes({"layers.0.keys": ("F32", filled),
                             "layers.0.values": ("F32", filled)})
    file(one, "zeros at the end", [], 3, "--set slots=")
    file(one, "zeros at the end, and slots", ["slots=5"], 0, "5 tokens")
    file(one, "zeros at the end, and tokens", ["tokens=5"], 0, "5 tokens")
    file(one, "what holds it is not named", [], 3, FROM, asked=False)
    two = {f"layers.{l}.{x}": f32(1, 2, n, 4) for l, n in ((0, 4), (1, 9)) for x in
           ("keys", "values")}
    file(safetensors_bytes(two), "a window", [], 3, "--set window=")
    file(safetensors_bytes(two), "a window that is told", ["window=5"], 0, "9 tokens")
    file(safetensors_bytes(two), "of a static cache", ["window=4"], 3, "--set slots=")
    file(safetensors_bytes(two), "and slots", ["window=4", "slots=7"], 0, "7 tokens")
    file(safetensors_bytes(two), "another window", ["window=7"], 3, "window of 7")
    file(npz_bytes({k: v[1] for k, v in two.items()}), "npz: a window", ["window=5"], 0,
         "9 tokens")
    file(torch_bytes([(Parameter(tensor(1, 2, 5, 4)),) * 2]), "parameters", [], 0, "L 1")
    file(torch_bytes([[tensor(1, 2, 5, 4)] * 2] * 2), "lists in lists, two of two", [],
         3, "--set=names={l}.0,{l}.1 or --set=names=0.{l},1.{l}")
    file(torch_bytes([[tensor(1, 2, 5, 4)] * 2] * 3), "lists in lists", [], 0, "L 3")
    file(torch_bytes([(None, None), (tensor(1, 2, 5, 4), tensor(1, 2, 5, 4))]),
         "a layer of None", [], 0, "L 1")


def main(tmp):
    for sample in SAMPLES:
        check(*sample, tmp)
    for model in KINDS:
        check_kinds(tmp, model)
    for name, said in CODED.items():
        check_coded(tmp, name, said)
    check_where(tmp)
    check_itself(tmp)
    check_objects(tmp)
    check_pickles(tmp)
    check_plain(tmp)
    check_masks(tmp)
    check_zeros(tmp)
    check_compressed(tmp)
    check_leftpad(tmp)


if __name__ == "__main__":
    oracle.run(main)
