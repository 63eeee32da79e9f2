#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
oracle_transformers.py - caches that transformers made and torch.save() wrote hold
what the model handed to them

The oracle arrays were taken where a model calls its cache; see record.py beside
them.  What kvtool reads of the file is looked at in a snapshot, by h5py.
"""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle                                               # noqa: E402

os.environ["HDF5_PLUGIN_PATH"] = os.path.join(os.path.dirname(oracle.KVTOOL), "plugin")

import numpy as np                                          # noqa: E402
try:
    import h5py                                             # noqa: E402
except ImportError:
    print("1..0 # SKIP this needs the package python3-h5py")
    sys.exit(0)
from oracle import Tap, kvtool                              # noqa: E402

tap = Tap()
HERE = os.path.abspath(os.environ.get("KVT_ENGINES", "testdata/engines"))
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
    ("5.23.0/dynamic_list.pt", [FROM], WINDOW, None),
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
        labels = ["dim" if l == "content" else l for l in labels]
        bits = bits_of(g["data"])
        for i, axis in enumerate(("layer", "kv", "block", "head", "state", "dim")):
            if axis not in labels:
                bits, labels = np.expand_dims(bits, i), labels[:i] + [axis] + labels[i:]
        assert labels == ["layer", "kv", "block", "head", "state", "dim"], labels
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
    r = kvtool("convert", "-f", *options, file, f"{tmp}/x.h5")
    if not tap.ok(r.code == 0, f"{path} is read", r):
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


def main():
    oracle.need_program_and_data()
    with oracle.workdir() as tmp:
        for sample in SAMPLES:
            check(*sample, tmp)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
