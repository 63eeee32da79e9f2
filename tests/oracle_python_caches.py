#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_python_caches.py - caches and tensors as they are in a notebook

Objects shaped as the caches of transformers, tuples and tensors are read and compared
with numpy, which also works out what differs by layer and by head.  Numbers of types that
numpy lacks are read without ml_dtypes.  What is refused is said in words of Python.
"""
import base64
import contextlib
import glob
import html.parser
import inspect
import io
import os
import random
import re
import subprocess
import sys
import tempfile
import types
import xml.dom.minidom

sys.modules["ml_dtypes"] = None             # an import of it fails

import numpy as np
import foreign_files as ff
import oracle
from oracle import raises, read_text, tap, write_bytes
import kvtool as kv
from kvtool import _native


class Layer:
    def __init__(self, keys, values, **more):
        self.keys, self.values = keys, values
        vars(self).update(more)


class Cache:
    """transformers' of today."""

    def __init__(self, pairs, seen=None):
        self.layers = [Layer(*p) for p in pairs]
        self.seen = seen

    def get_seq_length(self):
        return self.layers[0].keys.shape[2] if self.seen is None else np.array(self.seen)


class OldCache:
    """That of before 4.54."""

    def __init__(self, pairs):
        self.key_cache, self.value_cache = [k for k, _ in pairs], [v for _, v in pairs]


def drawn(r, rows=1, dtype=np.float32):
    shape = (rows, r.randint(1, 4), r.randint(1, 40), 2 * r.randint(1, 8))
    g = np.random.default_rng(r.randrange(1 << 30))
    return [(g.standard_normal(shape).astype(dtype), g.standard_normal(shape).astype(dtype))
            for _ in range(r.randint(1, 5))]


def changed(r, pairs):
    out = [tuple(half.copy() for half in pair) for pair in pairs]
    for _ in range(r.randint(1, 4)):
        half = r.choice(out)[r.randrange(2)]
        at = tuple(r.randrange(n) for n in half.shape)
        half[at] += r.choice([0.5, -3, 1e-3])
    return out


# ---- caches ----

def caches():
    r, wrong = random.Random(7), []
    for i in range(200):
        rows = r.choice([1, 1, 2, 3])
        pairs = drawn(r, rows, r.choice([np.float32, np.float16]))
        form = r.choice([Cache, OldCache, tuple])
        d = kv.from_tensors(form(pairs))
        layer, half = r.randrange(len(pairs)), r.randrange(2)
        want = pairs[layer][half].swapaxes(1, 2)
        want = want.reshape((-1,) + want.shape[2:])     # rows, one after the other
        got = d.read(layer=layer, kv="kv"[half])
        n = pairs[0][0].shape[2]
        if not np.array_equal(got, want) or len(d.requests) != (rows == 1) or \
                rows == 1 and d.requests["0"].tokens != n:
            wrong.append((i, form.__name__, got.shape, want.shape))
        counts = [r.randint(1, n) for _ in range(rows)]
        d = kv.from_tensors(form(pairs), num_tokens=counts)
        for row, count in enumerate(counts):
            want = pairs[layer][half][row].swapaxes(0, 1)[:count]
            if not np.array_equal(d.read(layer=layer, kv="kv"[half], request=str(row)), want):
                wrong.append((i, "row", row))
    tap.ok(not wrong, "200 caches of 1 to 3 sequences are read as numpy has them", wrong)
    pairs = drawn(r)
    room = [tuple(np.concatenate([h, np.zeros_like(h)], 2) for h in p) for p in pairs]
    n = pairs[0][0].shape[2]
    d = kv.from_tensors(Cache(room, seen=n))
    tap.ok(d.requests["0"].tokens == n and kv.diff(d, Cache(pairs)).same,
           "of a cache with room left what is filled is read")
    for what, cache, words in [
            ("one that dropped tokens", Cache(pairs, seen=n + 1), "a window"),
            ("an empty one", Cache([]), "no layers"),
            ("a layer without keys", Cache([(None, None)], seen=0), "layer 0"),
            ("a layer of a recurrent state", Cache([pairs[0], (np.zeros((1, 4, 3)),) * 2]),
             "layer 1"),
            ("layers of other lengths", Cache([pairs[0], tuple(h[:, :, :-1] for h in (
                np.zeros((1, 1, 9, 2), "f4"),) * 2)], seen=n + 9), "torch.save"),
            ("layers of other heads", Cache([pairs[0], tuple(np.concatenate([h, h], 1)
                                                             for h in pairs[0])]), "others")]:
        tap.ok(words in raises(kv.UsageError, lambda c=cache: kv.from_tensors(c)),
               f"without torch: {what} is refused")
    for name, value in (("_quantized_keys", object()), ("is_sliding", True),
                        ("sliding_window", 8), ("states", {0: pairs[0][0]})):
        other = Cache(pairs)
        setattr(other.layers[0], name, value)
        tap.ok("torch.save() writes it" in raises(kv.UsageError,
                                                   lambda: kv.from_tensors(other)),
               f"without torch: one with {name} is refused")


# ---- caches of torch, as files and in memory ----

class Torch:
    """As much of torch as is asked: tensors on the CPU, and what save() writes."""

    class Tensor:
        is_sparse = is_quantized = False
        layout = "torch.strided"
        device = types.SimpleNamespace(type="cpu")

        def __init__(self, bits, storage):
            self.bits, self.storage, self.shape = bits, storage, bits.shape
            self.dtype = {"FloatStorage": "torch.float32", "LongStorage": "torch.int64",
                          "ByteStorage": "torch.uint8"}.get(storage, "torch.float16")

        def is_neg(self):
            return False

        def element_size(self):
            return self.bits.itemsize

        def data_ptr(self):
            return self.bits.ctypes.data

        def stride(self):
            return [s // self.bits.itemsize for s in self.bits.strides]

        def float(self):
            return self.bits

        def tolist(self):
            return self.bits.tolist()

        def __len__(self):
            return len(self.bits)

        def __getitem__(self, at):
            return Torch.Tensor(self.bits[at], self.storage)

    @staticmethod
    def tensor(rows):
        return Torch.Tensor(np.array(rows, "<i8"), "LongStorage")

    @staticmethod
    def save(thing, f):
        f.write(ff.torch_bytes(Torch.written(thing)))

    @staticmethod
    def written(thing):
        if isinstance(thing, Torch.Tensor):
            return ff.Tensor(thing.storage, thing.bits)
        if isinstance(thing, (list, tuple)):
            return type(thing)(map(Torch.written, thing))
        if isinstance(thing, dict):
            return {k: Torch.written(v) for k, v in thing.items()}
        if hasattr(thing, "made_of"):
            return ff.Object(thing.made_of.name, Torch.written(vars(thing)),
                             thing.made_of.module)
        return getattr(thing, "raw", thing)

    @staticmethod
    def read(thing):
        """The object that such a file is of."""
        if isinstance(thing, ff.Tensor):
            return Torch.Tensor(thing.bits, thing.storage)
        if isinstance(thing, (list, tuple)):
            return type(thing)(map(Torch.read, thing))
        if isinstance(thing, dict):
            return {k: Torch.read(v) for k, v in thing.items()}
        if isinstance(thing, ff.Object):
            made = type(thing.name, (), {"made_of": thing})()
            vars(made).update({k: Torch.read(v) for k, v in thing.attributes.items()})
            return made
        return types.SimpleNamespace(raw=thing) if isinstance(
            thing, (ff.Name, ff.Wrapper, ff.Parameter)) else thing


def answer(call):
    """What a dump says and holds, or what error there is."""
    try:
        d = call()
    except kv.Error as e:
        return type(e)
    groups = [(g.id, g.kind, g.dtype, g.layers, g.heads, g.dim, g.window, g.layer_ids,
               g.state_shape) for g in d.groups]
    requests = {r.id: (r.tokens, r.first_token) for r in d.requests.values()}
    return groups, requests, d.digest() if requests else d.digest("blocks")


def in_memory(tmp):
    try:
        from oracle_transformers import OBJECTS
    except SystemExit:                      # h5py is missing, which that test needs
        return
    sys.modules["torch"], wrong, kinds = Torch, [], set()
    for what, made, options, *_ in OBJECTS:
        facts = dict(o.partition("=")[::2] for o in options if "=" in o)
        write_bytes(f"{tmp}/o.pt", ff.torch_bytes(made))
        want = answer(lambda: kv.open(f"{tmp}/o.pt", facts=facts))
        got = answer(lambda: kv.from_tensors(Torch.read(made), facts=facts) if facts else
                     kv.from_tensors(Torch.read(made)))
        if got != want and not (isinstance(want, type) and what in (
                "rows", "one without a number")):   # whose blocks are read without requests
            wrong.append((what, want, got))
        kinds |= set() if isinstance(want, type) else {g[1] for g in want[0]}
    tap.ok(not wrong and len(kinds) > 4, f"{len(OBJECTS)} objects of {len(kinds)} kinds are "
           "read as what torch.save() writes of them", wrong)
    object_of_numbers()
    containers()
    del sys.modules["torch"]


def object_of_numbers():
    """An error names no file that nobody has, and one of pickle is told."""
    layer = ff.Object("DynamicSlidingWindowLayer", {
        "keys": ff.Tensor("FloatStorage", np.ones((2, 2, 3, 4), "f4")),
        "values": ff.Tensor("FloatStorage", np.ones((2, 2, 3, 4), "f4")),
        "cumulative_length": 9, "sliding_window": 4})
    cache = Torch.read(ff.Object("DynamicCache", {"layers": [layer]}))
    said = raises(kv.BadInput, lambda: kv.from_tensors(cache))
    tap.ok('tokens=N or [N, N...], and padding="left"' in said and
           "decoder_" not in said and said.startswith("the cache") and
           "attention_mask=" in said and "/proc" not in said,
           "what is missing is asked for by arguments", said)
    half = ff.Tensor("FloatStorage", np.ones((1, 2, 5, 4), "f4"))
    own = Torch.read(ff.Object("DynamicCache", {"layers": [
        ff.Object("OwnLayer", {"keys": half, "values": half}, "__main__")]}))
    said = raises(kv.Error, lambda: kv.from_tensors(own))
    again = re.search(r"give (tuple\(.*layers\))", said)
    tap.ok(again and kv.from_tensors(eval(again.group(1), {"cache": own})).requests[
        "0"].tokens == 5, "of a class that nobody knows its pairs are asked for", said)
    both = Torch.read(ff.Object("EncoderDecoderCache", {}))
    both.self_attention_cache = both.cross_attention_cache = cache
    said = raises(kv.BadInput, lambda: kv.from_tensors(both, attention_mask=[[1] * 9] * 2))
    tap.ok("; or decoder_attention_mask=" in said, "of two caches the other mask is named", said)
    cache.layers[0].stream = lambda: 0
    said = raises(kv.Unsupported, lambda: kv.from_tensors(cache))
    tap.ok("torch.save() cannot write the DynamicCache" in said, "what pickle refuses", said)
    for name, value in (("block_table", {"r": [0]}), ("kind", "mla"), ("latent", True)):
        said = raises(kv.UsageError, lambda: kv.from_tensors(cache, **{name: value}))
        tap.ok(f"{name}= is for" in said, f"{name}= is not for it", said)


def containers():
    """What may be a cache is looked into; what may be an engine's is asked about."""
    half = Torch.Tensor(np.ones((1, 2, 5, 4), "<f4"), "FloatStorage")
    for what, thing, words in [
            ("layers of an engine", [half, half], "give layout="),
            ("named ones", {"model.layers.0.attn": half}, "give layout="),
            ("pairs", [(half, half)], "axes"),
            ("names of a cache", {"layers.0.keys": half, "layers.0.values": half}, "axes"),
            ("lists of a cache", {"key_cache": [half], "value_cache": [half]}, "axes")]:
        said = raises(kv.Error, lambda: kv.from_tensors(thing))
        tap.ok(words in said, f"{what}: {words}", said)
    told = kv.from_tensors([(half, half)], format="transformers", facts={"axes": "BHTD"})
    tap.ok(told.requests["0"].tokens == 5, "what a message tells to give is taken")
    tap.ok(told.plot("largest", kv="k").values.tolist() == [[1, 1]] and
           "<img" in told._repr_html_() and "memory.h5" in told.view().html,
           "what was read as a file that is gone by its name is drawn")
    page = told.view().html
    tap.ok("d.write(&#x27;memory.h5&#x27;, compress=False)" in page and '"file":"memory.h5"' in page,
           "a page of what is in memory says where its commands find it", page[:3000])
    with tempfile.TemporaryDirectory() as folder:
        told.write(f"{folder}/memory.h5", compress=False)
        r = subprocess.run([oracle.KVTOOL, "where", "memory.h5", "layer=0,block=0,slot=0,head=0,kv=k,dim=0"], cwd=folder,
                           stdout=subprocess.PIPE, check=False)
        tap.ok(r.returncode == 0, "and there they do")
    report = kv.diff(told, told.slice(heads=1), common=True)
    del told
    tap.ok("gone" in raises(kv.UsageError, report.view), "and not looked for once it is gone")
    said = raises(kv.BadInput, lambda: kv.diff([(half, half)], [(half, half)]))
    tap.ok(said.startswith("a: ") and "from_tensors() takes these" in said,
           "diff() says who takes that", said)


def padded(tmp):
    """Masks, counts and sides: where tensors lie, and as a file of all of it has them."""
    r, wrong = random.Random(12), []
    for i in range(150):
        rows, dtype = r.choice([1, 2, 3]), np.float32
        pairs = drawn(r, rows, dtype)
        n = pairs[0][0].shape[2]
        counts = [r.randint(1, n) for _ in range(rows)]
        side = r.choice(["left", "right"])
        mask = np.array([[0] * (n - c) + [1] * c if side == "left" else
                         [1] * c + [0] * (n - c) for c in counts])
        begin = [n - c if side == "left" else 0 for c in counts]
        form = r.choice([Cache, OldCache, tuple])(pairs)
        told = r.choice([{"attention_mask": mask}, {"attention_mask": mask.astype(bool)},
                         {"attention_mask": mask.tolist(), "padding": side},
                         {"attention_mask": mask, "tokens": counts},
                         {"tokens": counts, "padding": side}])
        d = kv.from_tensors(form, **told)
        for row, (count, first) in enumerate(zip(counts, begin)):
            q = d.requests[str(row)]
            want = pairs[-1][1][row].swapaxes(0, 1)[first:first + count]
            if (q.tokens, q.first_token) != (count, 0) or not np.array_equal(
                    d.read(layer=len(pairs) - 1, kv="v", request=str(row)), want):
                wrong.append((i, row, told, q))
        copy = f"{tmp}/{i}.h5"
        d.write(copy, sync=False)
        if kv.diff(d, copy).differs or kv.diff(copy, d.reblock(r.choice([3, 16]))).differs:
            wrong.append((i, "written"))
        sys.modules["torch"] = Torch
        layers = [ff.Object("DynamicLayer", dict(zip(("keys", "values"), (
            ff.Tensor("FloatStorage", half) for half in pair)))) for pair in pairs]
        live = {"past_key_values": Torch.read(ff.Object("DynamicCache", {"layers": layers})),
                "attention_mask": Torch.tensor(mask)}
        if answer(lambda: d)[1:] != answer(lambda: kv.from_tensors(live))[1:]:
            wrong.append((i, "file", answer(lambda: d), answer(lambda: kv.from_tensors(live))))
        del sys.modules["torch"]
    tap.ok(not wrong, "150 batches with padding, told in five ways, and as a file", wrong)
    pair = tuple(np.ones((2, 1, 4, 2), "f4") for _ in range(2))
    given = types.SimpleNamespace(past_key_values=Cache(pairs), logits=None)
    tap.ok(kv.from_tensors(given, **told).digest() == d.digest(), "what a model gave back")
    given = types.SimpleNamespace(past_key_values=None, logits=pair[0])
    said = raises(kv.UsageError, lambda: kv.from_tensors(given))
    tap.ok("use_cache=True" in said, "what one gave back without a cache", said)
    given = types.SimpleNamespace(cache_params=Cache((pair,)), logits=pair[0])
    tap.ok(len(kv.from_tensors(given, tokens=4).requests) == 2, "one of Mamba")
    said = raises(kv.UsageError, lambda: kv.from_tensors("cache.pt"))
    tap.ok("kvtool.open()" in said, "a path is not what is in a file", said)
    for what, error, words, told in [
            ("a hole", kv.BadInput, "between", {"attention_mask": [[1, 0, 1, 1]] * 2}),
            ("twos", kv.UsageError, "0 and 1", {"attention_mask": [[1, 2, 1, 1]] * 2}),
            ("a row", kv.UsageError, "1 rows", {"attention_mask": [[1] * 4]}),
            ("the other side", kv.BadInput, "other side",
             {"attention_mask": [[0, 1, 1, 1]] * 2, "padding": "right"}),
            ("other counts", kv.BadInput, "by tokens=",
             {"attention_mask": [[0, 1, 1, 1]] * 2, "tokens": 4}),
            ("too many", kv.UsageError, "0 to 4", {"tokens": [5, 1]}),
            ("one of two", kv.UsageError, "2 sequences", {"tokens": [3]}),
            ("a side alone", kv.UsageError, "how much", {"padding": "left"}),
            ("a table and counts", kv.UsageError, "exclude",
             {"block_table": {"a": [0]}, "tokens": 3}),
            ("no side", kv.UsageError, "'left' or 'right'", {"padding": "middle"}),
            ("both counts", kv.UsageError, "exclude", {"tokens": 3, "num_tokens": [3, 3]}),
            ("of tensors", kv.UsageError, "is for a cache", {"tokens": 3, "layout": "BHDS"}),
            ("another argument", kv.UsageError, "is for a cache",
             {"skip": 3, "layout": "BHDS"}),
            ("an argument that is none", TypeError, "from_tensors() got", {"slots": 3})]:
        said = raises(error, lambda: kv.from_tensors((pair,), **told))
        tap.ok(words in said, f"padding: {what}", said)


# ---- compared ----

def cosine(a, b):
    if np.array_equal(a, b):
        return 1.0
    a, b = a.astype("f8").ravel(), b.astype("f8").ravel()
    return float(a @ b / (np.sqrt(a @ a) * np.sqrt(b @ b)))


def compared(tmp):
    r, wrong, kinds = random.Random(8), [], set()
    for i in range(150):
        pairs = drawn(r, r.choice([1, 2]))
        other = changed(r, pairs)
        sides = []
        for j, p in enumerate((pairs, other)):
            path = f"{tmp}/{i}.{j}.h5"
            kind = r.choice(["cache", "tuple", "dump", "path", "old"])
            kinds.add(kind)
            if kind == "path":
                kv.from_tensors(Cache(p)).write(path, sync=False)
            sides.append({"cache": lambda: Cache(p), "tuple": lambda: tuple(p),
                          "dump": lambda: kv.from_tensors(Cache(p)), "path": lambda: path,
                          "old": lambda: OldCache(p)}[kind]())
        a, b = np.array(pairs), np.array(other)         # [L, K, B, H, S, D]
        report = kv.diff(*sides, diagnose=False)
        heads = report.by_head
        if report.groups[0].unequal != (a != b).sum() or \
                heads.max_abs.shape != (a.shape[0], a.shape[3]):
            wrong.append((i, "unequal"))
        for l in range(a.shape[0]):
            one = report.by_layer[l]
            good = np.isclose(one.cosine, cosine(a[l], b[l]), atol=1e-12) and \
                np.isclose(one.max_abs, np.abs(a[l].astype("f8") - b[l]).max()) and \
                one.elements == a[l].size and one.outside == (a[l] != b[l]).sum()
            for h in range(a.shape[3]):
                x, y = a[l, :, :, h], b[l, :, :, h]
                good &= np.isclose(heads.cosine[l, h], cosine(x, y), atol=1e-12) and \
                    heads.outside[l, h] == (x != y).sum() and np.isclose(
                        heads.rel_l2[l, h], np.linalg.norm(x.astype("f8") - y) /
                        np.linalg.norm(x.astype("f8")))
            if not good:
                wrong.append((i, l))
        wrong += [(i, axis) for axis in wrong_rows(report, a, b)]
    tap.ok(not wrong and len(kinds) == 5,
           "150 pairs of caches, tuples, dumps and paths: all, by layer, head, token and so on", wrong)
    pairs = drawn(r)
    equal = kv.diff(Cache(pairs), Cache(pairs))
    tap.ok(equal.same and set(equal.by_head.cosine.ravel()) == {1.0} and
           equal.by_layer.elements.sum() == equal.groups[0].elements,
           "where all is equal, parts say so")
    tap.ok(set(equal.by_token.cosine) == {1.0} and not equal.by_dim.max_abs.any() and
           equal.by_kv.elements.sum() == equal.by_token.elements.sum() ==
           equal.groups[0].elements, "and rows")
    tap.ok("no 'cosines'" in raises(AttributeError, lambda: equal.by_layer.cosines),
           "a column that is none")
    tensors_and_scales()


def wrong_rows(report, a, b):
    """Tokens, dims, keys and values, of [L, K, B, H, S, D]: those that are not as here."""
    a, b, wrong = a.astype("f8"), b.astype("f8"), []
    tokens = np.moveaxis(np.stack((a, b)), (3, 5), (1, 2)).reshape(
        2, a.shape[2] * a.shape[4], -1)
    dims = np.stack((a, b)).reshape(2, -1, a.shape[5]).swapaxes(1, 2)
    halves = np.moveaxis(np.stack((a, b)), 2, 1).reshape(2, 2, -1)
    for name, (x, y) in (("token", tokens), ("dim", dims), ("kv", halves)):
        got = getattr(report, f"by_{name}")
        n = len(x)
        want = np.arange(n) % a.shape[4] if name == "token" else np.arange(n)
        place = "slot" if name == "token" and not got[0].request else name
        if len(got) != n or not ((getattr(got, place) == want).all() and
                (got.outside == (x != y).sum(1)).all() and
                (got.elements == x[0].size).all() and
                np.allclose(got.max_abs, np.abs(x - y).max(1)) and
                np.allclose(got.cosine, [cosine(p, q) for p, q in zip(x, y)]) and
                np.allclose(got.rel_l2, np.linalg.norm(x - y, axis=1) /
                            np.linalg.norm(x, axis=1))):
            wrong.append(name)
    return wrong


def tensors_and_scales():
    a = np.random.default_rng(3).standard_normal((2, 5, 4, 3, 8)).astype("f4")
    b = a.copy()
    b[1, 4, 2, 1, 7] += 1
    turned = np.ascontiguousarray(b.transpose(1, 3, 0, 2, 4)).transpose(2, 0, 3, 1, 4)
    report = kv.diff([a], [turned], layout="KBSHD")
    e = report.elements[0]
    tap.ok(report.groups[0].unequal == 1 and (e.block, e.slot, e.head, e.kv, e.dim) ==
           ((4, 4), (2, 2), 1, 1, 7) and str(report).startswith("a and b: differ"),
           "tensors of other strides are compared by their axes", report)
    for shape in ((5, 4, 3), (5, 4, 3, 8), (2, 5, 4, 3, 8), (3, 2, 5, 4, 3, 8)):
        t = np.zeros(shape, "f4")
        said = raises(kv.UsageError, lambda t=t: kv.diff(t, t))
        layout = re.search(r'layout="(\w+)"', said)
        tap.ok(said.startswith("a: ") and layout and len(layout.group(1)) == t.ndim,
               f"{t.ndim} dimensions: a layout is asked for", said)
    tap.ok("int is no dump" in raises(kv.UsageError, lambda: kv.diff(3, a)) and
           "int is no dump" in raises(kv.UsageError, lambda: kv.from_tensors(3, layout="B")),
           "a number is no cache")
    half = (a.astype("f8") / 2).astype("f4")
    tap.ok(kv.diff([a], [half], layout="KBSHD", exact=True, scale_b=2).same and
           kv.diff([half], [a], layout="KBSHD", exact=True, scale_a=(2, 2)).same and
           kv.diff([a], [np.stack([half[0], a[1]])], layout="KBSHD", exact=True,
                   scale_b=(2, 1)).same and
           kv.diff([a], [half], layout="KBSHD", exact=True, scale_b=(2, 1)).differs,
           "scales of a side, of keys and of values")
    for two in (np.float32(2), np.array(2), np.array([2, 2.0]), [2]):
        tap.ok(kv.diff([a], [half], layout="KBSHD", exact=True, scale_b=two).same,
               f"a scale {two!r}")
    for scale in (0, -1, float("nan"), (1, 2, 3), "2", np.ones(3), []):
        tap.ok(raises(kv.UsageError, lambda s=scale: kv.diff([a], [a], layout="KBSHD",
                                                             scale_a=s)), f"scale {scale}")
    one, other = (kv.from_tensors([a], layout="KBSHD", block_table={n: [3, 1]})
                  for n in ("x", "y"))
    found = kv.diff(one, other)
    tap.ok(found.same and "x of A is y of B" in found.paired[0] and found.paired[0] in str(found),
           "requests of other names are paired by what they hold", found)
    other = kv.from_tensors([-a], layout="KBSHD", block_table={"y": [3, 1]})
    said = raises(kv.BadInput, lambda: kv.diff(one, other))
    tap.ok("match=" in said and kv.diff(one, other, match={"x": "y"}).differs,
           "and by match where these do not say", said)
    report = kv.diff([a], [b], layout="KBSHD", tolerance="auto")
    tap.ok("allows no rounding" in str(report) and "allows" not in str(
        kv.diff([a], [b], layout="KBSHD")), "what auto is for one type is said", report)
    report = kv.diff([a], [b + np.float32(1e-3)], layout="KBSHD", atol=0.01, most=0)
    tap.ok("; 1 are outside the tolerance" in str(report), "and how many are outside", report)


def mixed(tmp):
    """Every kind of side against every other."""
    r, wrong, seen = random.Random(16), [], set()
    for i in range(120):
        pairs = drawn(r, 1)
        other = changed(r, pairs)
        n = pairs[0][0].shape[2]
        count = sum(int((a != b).sum()) for p, q in zip(pairs, other) for a, b in zip(p, q))
        names, sides, layouts = [], [], []
        for j, p in enumerate((pairs, other)):
            path = f"{tmp}/m{j}.h5"
            kv.from_tensors(Cache(p)).write(path, sync=False, overwrite=True)
            # [K, B, S, H, D] of each layer, and one of all in another order of memory
            five = [np.stack(pair).swapaxes(2, 3) for pair in p]
            kind, side, layout = r.choice([
                ("cache", Cache(p), None), ("tuple", tuple(p), None), ("path", path, None),
                ("dump", kv.open(path), None), ("list", five, "KBSHD"),
                ("pairs", [(k.swapaxes(1, 2), v.swapaxes(1, 2)) for k, v in p], "BSHD"),
                ("one", np.stack(five).transpose(1, 0, 2, 4, 3, 5), "KLBHSD"),
                ("dict", dict(enumerate(five)), "KBSHD"),
                ("model", types.SimpleNamespace(past_key_values=Cache(p)), None)])
            names.append(kind)
            sides.append(side)
            layouts.append(layout)
        given = layouts[0] if layouts[0] == layouts[1] else layouts[0] or layouts[1] \
            if None in layouts and r.random() < .5 else tuple(layouts)
        report = kv.diff(*sides, layout=given, by="blocks" if "path" not in names and
                         "dump" not in names else "auto", diagnose=False)
        seen.add(tuple(names))
        if report.groups[0].unequal != count or report.differs is False:
            wrong.append((names, given, report.groups[0].unequal, count, n))
    tap.ok(not wrong and len(seen) > 40, f"{len(seen)} mixtures of sides", wrong)
    a = np.zeros((2, 3, 4, 2, 8), "f4")
    for layout in (("KBSHD",), 3, ["KBSHD", None]):
        said = raises(kv.UsageError, lambda: kv.diff([a], [a], layout=layout))
        tap.ok("layout" in said and "Traceback" not in said, f"layout={layout}", said)
    tap.ok("a: " in raises(kv.UsageError, lambda: kv.diff([a], [a], layout=(None, "KBSHD"))),
           "the side that lacks a layout is named")
    same = kv.from_tensors([a], layout="KBSHD")
    report = kv.diff(same, kv.from_tensors([a + 1], layout="KBSHD"))
    tap.ok(str(report).startswith("a and b: differ"), "sides of one name are a and b", report)
    d = kv.open(os.path.join(oracle.ROOT, "testdata/engines/transformers/5.24.0/falcon_h1.pt"))
    for side, words in ((d, "both are bfloat16 and float32, of"), (d.decode(), "float32 in ssm, of"),
                        (d.decode("float64"), "")):
        note = kv.diff(d, side, tolerance="auto").note
        tap.ok(words in note and bool(words) == bool(note), "auto of several groups", note)
    other = kv.diff(d, d, scale_b=2, exact=True, most=1)
    words = {e.group: str(e).split(", element")[0] for e in other.elements}
    tap.ok(re.fullmatch(r"layer \d, entry 0 of 0", words["conv"]) and
           re.fullmatch(r"layer \d, entry 0 of 0, head \d", words["ssm"]) and
           [e.state for e in other.elements] == [not d.group(e.group).block_size
                                                 for e in other.elements],
           "a state has no token, and channels have no heads", words)


def asserted():
    """In pytest: a cache as it is, where a dump was asked for."""
    from kvtool.pytest_plugin import assert_same_kv
    pairs = drawn(random.Random(11))
    assert_same_kv(Cache(pairs), tuple(pairs))
    failed = raises(BaseException, lambda: assert_same_kv(
        Cache(pairs), [(k + 1, v) for k, v in pairs], tolerance=2))
    tap.ok("layout=" in failed, "assert_same_kv() takes caches, and asks of tensors", failed)
    failed = raises(BaseException, lambda: assert_same_kv(
        Cache(pairs), tuple((k + 1, v) for k, v in pairs)))
    tap.ok("unequal" in failed or "differ" in failed, "and says what differs", failed)


# ---- read ----

def numbers():
    """All bits of types that numpy lacks, as float32."""
    bits = np.arange(1 << 16, dtype="<u2").reshape(2, 8, 16, 4, 64)
    d = kv.from_tensors([bits], layout="KBSHD", dtype="bfloat16")
    want = (bits.astype("<u4") << 16).view("<f4").reshape(2, 1, 128, 4, 64)
    for dtype in ("float32", np.float32, np.dtype("f4"), "float64", "f4", "<f8", float):
        got = d.read(dtype=dtype)
        tap.ok(got.dtype == np.dtype(dtype) and np.array_equal(got, want, equal_nan=True),
               f"bfloat16 as {dtype}")
    got = d.read(blocks=[2, 3], kv="v", layer=0, dtype="float32")
    tap.ok(np.array_equal(got, want[1, 0].reshape(8, 16, 4, 64)[2:4], equal_nan=True),
           "of blocks, a list of neighbours")
    data, shape, name = d.read_bytes(tokens=5, dtype="float32")
    tap.ok(name == "float32" and np.array_equal(np.frombuffer(data, "<f4").reshape(shape),
                                                want[:, :, 5], equal_nan=True), "as bytes")
    eight = bits.view("u1")[..., :64].copy()
    eight[:] = np.arange(eight.size, dtype="u4").astype("u1").reshape(eight.shape)
    d = kv.from_tensors([eight], layout="KBSHD", dtype="float8_e4m3fn")
    e, m = (eight >> 3 & 15).astype(int), (eight & 7).astype(float)
    want = np.where(e > 0, 2.0 ** (e - 7) * (1 + m / 8), m * 2.0 ** -9)
    want = np.where((eight & 127) == 127, np.nan, np.where(eight > 127, -want, want))
    tap.ok(np.array_equal(d.read(dtype="float32").ravel(), want.ravel(), equal_nan=True),
           "fp8")
    said = raises(kv.Unsupported, d.read)
    tap.ok('read(dtype="float32")' in said and "bits=True" in said,
           "without it ml_dtypes is missed, and what does without is named", said)
    for what, call in [("another type", lambda: d.read(dtype="bfloat16")),
                       ("a table that is a list", lambda: kv.from_tensors(
                           [bits], layout="KBSHD", block_table=[1])),
                       ("tokens without blocks", lambda: kv.from_tensors(
                           [bits], layout="KBSHD", num_tokens=[1])),
                       ("bits and a type", lambda: d.read(dtype="float32", bits=True)),
                       ("blocks and heads apart", lambda: d.read(
                           blocks=[0, 2], heads=[0, 2], bits=True)),
                       ("bytes of blocks apart", lambda: d.read_bytes(blocks=[0, 2])),
                       ("no blocks", lambda: d.read(blocks=[], bits=True)),
                       ("a mask of heads", lambda: d.read(heads=[True, False], bits=True)),
                       ("True as a layer", lambda: d.read(layer=True, bits=True)),
                       ("another half", lambda: d.read(kv="q", bits=True)),
                       ("blocks in words", lambda: d.read(blocks="0")),
                       ("half a block", lambda: d.read(blocks=0.5)),
                       ("a slot too many", lambda: d.read(tokens=128))]:
        tap.ok(raises(kv.UsageError, call), f"{what}: refused")


class Shown(html.parser.HTMLParser):
    """Is it balanced, are there only tags and attributes that need nothing else?"""

    def __init__(self, text):
        super().__init__()
        self.open, self.bad, self.cells, self.rows, self.pictures = [], [], [], 0, []
        self.feed(text)
        self.bad += self.open

    def handle_starttag(self, tag, attrs):
        if tag == "img":                # a picture that holds itself
            src = dict(attrs).get("src", "")
            start = "data:image/svg+xml;base64,"
            svg = base64.b64decode(src[len(start):], validate=True).decode()
            self.pictures.append(svg)
            if not src.startswith(start) or set(dict(attrs)) != {"alt", "src"} or \
                    "<script" in svg:
                self.bad.append((tag, attrs))
            xml.dom.minidom.parseString(svg)
            return
        self.open.append(tag)
        self.rows += tag == "tr"
        for name, value in attrs:
            if name != "style" or re.search(r"url|#|(?<!-)color *:|black|white", value):
                self.bad.append((tag, name, value))
        if tag not in ("div", "b", "table", "thead", "tbody", "tr", "th", "td"):
            self.bad.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.bad.append(tag)

    def handle_data(self, data):
        self.cells.append(data)


def notebook(tmp):
    r, wrong = random.Random(15), []
    for i in range(40):
        pairs = drawn(r, r.choice([1, 2]))
        d = kv.from_tensors(Cache(pairs))
        cells = np.array(pairs).transpose(1, 0, 2, 4, 3, 5)     # [K, L, B, S, H, D]
        if d.shape != cells.shape or len(d) != len(pairs) or not d or \
                not np.array_equal(np.asarray(d), cells) or np.asarray(d).dtype != "f4" or \
                not np.array_equal(np.array(d, "f8"), cells.astype("f8")) or \
                not np.array_equal(np.asarray(d, "i4"), cells.astype("i4")):
            wrong.append((i, d.shape, cells.shape))
    tap.ok(not wrong, "40 dumps as arrays, with shape and len()", wrong)
    bits = np.arange(1 << 12, dtype="<u2").reshape(2, 2, 16, 4, 16)
    d = kv.from_tensors([bits], layout="KBSHD", dtype="bfloat16")
    want = (bits.astype("<u4") << 16).view("<f4")[:, None]
    tap.ok(np.array_equal(np.asarray(d, "f4"), want) and "float32" in raises(
        kv.Unsupported, lambda: np.asarray(d)), "an array of bfloat16, as float32")
    tap.ok("copies" in raises(ValueError, lambda: d.__array__(copy=False)), "without a copy")
    name = '<script>alert("x")&amp;\u202e</script>'
    path = f"{tmp}/<b>&.npy"
    pool = np.zeros((2, 5, 4, 3, 8), "f4")
    np.save(path, pool)
    d = kv.open(path, layout="KBSHD", blocks_of={name: [1, 2]})
    other = kv.from_tensors([pool + 1], layout="KBSHD", block_table={name: [1, 2]})
    several = kv.open(os.path.join(oracle.ROOT, "testdata/engines/transformers/5.23.0/"
                                                "dynamic.pt"))
    many = kv.from_tensors([pool], layout="KBSHD",
                           block_table={str(i): [1] for i in range(90)})
    report = kv.diff(d, other, tolerance="auto")
    for what, thing, words in [
            ("a dump", d, [path, name, "KBSHD"]), ("several groups", several, ["g1"]),
            ("90 requests", many, ["and 40 more"]), ("a report", report, [name]),
            ("equal", kv.diff(d, d), ["the same"]), ("layers", report.by_layer, ["all"]),
            ("heads", report.by_head, ["cosine"]), ("halves", report.by_kv, ["values", "keys"]),
            ("tokens", report.by_token, [f"token 3 of {name}"])]:
        shown = Shown(thing._repr_html_())
        said = "".join(shown.cells)
        tap.ok(not shown.bad and shown.rows > 1 and all(w in said for w in words) and
               "-1" not in shown.cells and len(shown.pictures) == (
                   what not in ("equal", "layers", "heads", "halves", "tokens")),
               f"HTML of {what}: tables that need nothing, and escaped", (shown.bad, said))
    tap.ok("shapes of their own: g0 (2, 2, 3, 16, 2, 4), g1" in raises(
        kv.UsageError, lambda: several.shape) and len(several) == 3 and 'group="g0"' in raises(
            kv.UsageError, lambda: np.asarray(several)), "of several groups each is an array")
    d.close()
    tap.ok("closed" in d._repr_html_(), "HTML of a dump that is closed")


def slots():
    """Of a pool without requests: rows of all blocks."""
    r, wrong = random.Random(9), []
    pool = np.arange(2 * 6 * 4 * 3 * 2, dtype="f4").reshape(2, 6, 4, 3, 2)
    d = kv.from_tensors([pool], layout="KBSHD")
    rows = pool.reshape(2, 24, 3, 2)
    for _ in range(300):
        begin = r.randrange(24)
        end = r.randint(begin + 1, 24)
        if not np.array_equal(d.read(layer=0, tokens=slice(begin, end)), rows[:, begin:end]):
            wrong.append((begin, end))
    tap.ok(not wrong and np.array_equal(d.read(layer=0, kv="k"), rows[0]) and
           np.array_equal(d.read(layer=0, kv="v", tokens=-1), rows[1, -1]),
           "300 spans of slots of a pool", wrong)
    state = kv.from_tensors([pool], layout="KBSHD", block_size=8)
    tap.ok("blocks=0" in raises(kv.UsageError, lambda: state.read(layer=0)),
           "where slots are not tokens, blocks are asked for")
    tap.ok("block_table=" in raises(kv.BadInput, lambda: d.slice(tokens=3)),
           "tokens of a part need requests, and it is said how they are named")


def said_of(r, n, lists=True):
    """An argument that says a part of n, and what that takes of an array."""
    i, j = sorted(r.sample(range(n + 1), 2))
    numbers = [r.randrange(-n, n) for _ in range(r.randint(1, 4))]
    one = r.randrange(-n, n)
    forms = [(None, slice(None)), (one, one), (np.int64(one), one), (slice(i, j), slice(i, j)),
             ((i, j), slice(i, j)), (range(i, j), slice(i, j)), (slice(i, None), slice(i, n)),
             (slice(i - n, None), slice(i, n))]
    if lists:
        forms += [(numbers, numbers), (np.array(numbers), numbers),
                  (list(range(i, j)), slice(i, j))] * 2
    return r.choice(forms)


def taken(array, parts):
    """Each part of its axis, lists as well, and then the axes of single numbers away."""
    for axis, part in enumerate(parts):
        if not isinstance(part, int):
            array = array.take(part, axis) if isinstance(part, list) else \
                array[(slice(None),) * axis + (part,)]
    return array[tuple(p if isinstance(p, int) else slice(None) for p in parts)]


def reads():
    """Any part in any words: of a request, of slots, and of blocks."""
    r, wrong = random.Random(14), []
    for i in range(600):
        layers, blocks, slots, heads, dim = (r.randint(2, 5) for _ in range(5))
        pool = np.random.default_rng(i).standard_normal(
            (2, layers, blocks, slots, heads, dim)).astype("f4")
        table = r.sample(range(blocks), r.randint(1, blocks))
        how = r.choice(["blocks", "tokens", "slots"])
        d = kv.from_tensors([np.ascontiguousarray(layer.transpose(1, 2, 0, 3, 4))
                             for layer in pool.transpose(1, 0, 2, 3, 4, 5)], layout="BSKHD",
                            block_table={"0": table} if how == "tokens" else None)
        cells = pool[:, :, table] if how == "tokens" else pool
        if how != "blocks":
            cells = cells.reshape(2, layers, -1, heads, dim)
        one = r.randrange(4)                        # what may be a list
        which, parts = {}, []
        half, want = r.choice([(None, slice(None)), ("k", 0), ("v", 1), ("values", 1), (0, 0)])
        for j, (name, n) in enumerate([("layer", layers), (how.replace("slots", "tokens"),
                                                           cells.shape[2]), ("heads", heads)]):
            which[name], part = said_of(r, n, one == j)
            parts.append(part)
        if how == "blocks":
            which["blocks"] = slice(None) if which["blocks"] is None else which["blocks"]
            parts.insert(2, slice(None))
        elif how == "tokens":
            which["request"] = r.choice([None, "0", 0])
        got = d.read(kv=half, **which)
        if not np.array_equal(got, taken(cells, [want, *parts])):
            wrong.append((i, how, which, got.shape))
    tap.ok(not wrong, "600 parts of pools, said in numbers, slices, ranges and lists", wrong[:3])


def groups_of_a_layer():
    """Of layers with a window what is still there; of a layer in several groups its half."""
    root = os.path.join(oracle.ROOT, "testdata", "engines", "transformers")
    for name in ("5.23.0/dynamic", "4.57.6/latent"):
        d = kv.open(f"{root}/{name}.pt")
        rows = np.load(f"{root}/{name}.npy").view("<f4")[0]         # [L, T, H, K, D]
        wrong = []
        for layer in range(len(rows)):
            for half, kv_ in enumerate("kv"):
                got = d.read(layer=layer, kv=kv_)
                n, dim = got.shape[0], got.shape[2]
                want = rows[layer, len(rows[layer]) - n:, :, half, :dim]
                if not np.array_equal(got, want) or n != (
                        7 if name == "5.23.0/dynamic" and layer < 2 else len(rows[layer])):
                    wrong.append((layer, kv_, got.shape))
        tap.ok(not wrong, f"{name}: each layer by its number", wrong)
        first, last = (d.read(layer=at, kv="k") for at in (-1, len(rows) - 1))
        tap.ok(np.array_equal(first, last), f"{name}: the last layer is -1")
    said = raises(kv.UsageError, lambda: d.read(layer=0))
    tap.ok("group= one of g0.k, g0.v" in said and np.array_equal(
        d.read(group="g0.v", layer=0), d.read(group=1, layer=0)), "groups have numbers", said)


# ---- words ----

#: options of commands that Python has not, by the room that says them
OF_COMMANDS = {
    "formats/model/": "size, and models of --model", "sim/ops/": "transfer-sim",
    "lib/ops/fit/": "describe --fit", "lib/prefix/": "prefix and why",
    "lib/ops/guess/": "guess", "lib/ops/where/": "where",
    "lib/run/device_pool.c": "--device", "lib/ops/fault/limit.c": "mutate"}
#: options that no argument stands for, and what they are of
WITHOUT = {"row-ranks": "never given here", "row-form": "likewise",
           "cache-dtype": "kvtool convert", "rotation": "kvtool convert",
           "one-file": "kvtool reduce", "sample": "kvtool fsck",
           "trust-manifest": "a whole command", "to": "a whole command",
           "a": "two files of a command", "b": "two files of a command"}


def literals(root):
    """Every text of the library, those that the compiler joins as one."""
    for path in sorted(glob.glob(f"{root}/lib/**/*.c", recursive=True) +
                       glob.glob(f"{root}/formats/**/*.c", recursive=True)):
        text = re.sub(r'"\s*\n\s*"', "", read_text(path))
        for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text):
            if re.search(r"(?<![\w-])--[a-z]", literal):
                yield os.path.relpath(path, root), literal


def words():
    """Every message of the library that names an option of an input, said in Python."""
    root, left, seen = oracle.ROOT, [], set()
    known = set(_native.HINTS)
    for f in (kv.open, kv.from_tensors, kv.diff, kv.Dump.slice, kv.Dump.write,
              kv.Dump.astype, kv.Dump.reblock, kv.Dump.read):
        known |= set(inspect.signature(f).parameters)
    unused, calls = dict(WITHOUT), set()
    for path, literal in literals(root):
        said = _native.in_python(re.sub("(%s)+--", "--", literal).replace("-%c", "-a"))
        seen.add(literal)
        plain = re.sub(r"kvtool [a-z-]+(?: [^;\s]*[^;,\s])*", "", said)
        left += [(path, said) for name in re.findall(r"\b([a-z_]+)=(?=[\"{ ,;)]|$)", said)
                 if name not in known and f"{name}=" not in literal]
        if not path.startswith(tuple(OF_COMMANDS)):
            left += [(path, said) for option in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", plain)
                     if option not in WITHOUT]
        for option in re.findall(r"--([a-z][a-z-]*)", said):
            unused.pop(option, None)
        left += [(path, said) for option in re.findall(r"--([a-z-]+)", plain)
                 if option in _native.OPTIONS]
        left += [(path, literal) for _ in re.findall(r"--(?!set )[a-z-]+ (?:%|\d)", literal)
                 if not path.startswith(tuple(OF_COMMANDS))]
        one = r'[a-z_]+=(?:\{[^{}]*\}|"[^"]*"|\d+|True)'
        calls |= set(re.findall(f"(?<![a-z_]){one}(?:,? {one})*", said))
    for call in calls:
        try:
            compile(f"open({call})", "said", "eval")
        except SyntaxError:
            left.append(call)
    tap.ok(len(calls) > 30, f"{len(calls)} examples are valid in a call")
    tap.ok(len(seen) > 100 and not left, f"{len(seen)} messages name arguments", left)
    tap.ok(not unused, "each option that has no argument is still said", unused)
    for said, want in [
            ("give --heads, 4 or --head-dim=8", "give heads=, 4 or head_dim=8"),
            ("--from=mlx, or --set=names=x.", 'format="mlx", or facts={"names": "x"}.'),
            ("give --set arch=x or", 'give facts={"arch": "x"} or'),
            ("--blocks-of=A=5,2,9:40 says", 'blocks_of={"A": "5,2,9:40"} says'),
            ("--tolerance=atol=X, --exact", "atol=X, exact=True"),
            ("type: kvtool relayout --to=nhd -o OUT IN", "type: kvtool relayout --to=nhd -o OUT IN"),
            ("--as-is writes; leave out --one-file",
             "as_is=True writes; leave out --one-file"),
            ("give it with --mamba-groups", "give it with mamba_groups="),
            ("kvtool size takes it, and --model beside", "kvtool size takes it, and model= beside"),
            ("listed in the order of the ranks, add --in-order", "listed in the order of the "
             "ranks, add tp=(rank, size)"),
            ("--from=transformers --set=axes=BHTD --set=window=8 if",
             'format="transformers", facts={"axes": "BHTD", "window": "8"} if'),
            ("/proc/self/fd/7: the file does not record", "the cache does not record")]:
        tap.equal(_native.in_python(said), want, f"'{said}' in Python")


def slices():
    """Parts by ids, open and from the end; heads and tokens are neighbours."""
    r, wrong = random.Random(18), []
    pool = np.random.default_rng(5).standard_normal((6, 2, 8, 4, 5, 2)).astype("f4")
    d = kv.from_tensors(dict(enumerate(pool)), layout="KBSHD", block_table={"A": range(8)})
    for i in range(200):
        said, parts = zip(*(said_of(r, n, False) for n in (6, 8, 5)))
        which = dict(zip(("layers", "blocks", "heads"), said))
        whole = [slice(p, p + 1 or None) if isinstance(p, int) else p for p in parts]
        want = pool[whole[0]][:, :, whole[1]][:, :, :, :, whole[2]]
        got = d.slice(**which)
        if not np.array_equal(np.asarray(got), want.transpose(1, 0, 2, 3, 4, 5)):
            wrong.append((which, got.shape, want.shape))
    tap.ok(not wrong, "200 slices by numbers, ranges and from the end", wrong[:3])
    part = d.slice(layers=(2, 5))
    tap.ok(part.slice(layers=slice(3, None)).groups[0].layer_ids == (3, 4) and
           part.slice(layers=[-1, 2]).groups[0].layer_ids == (2, 4) and
           d.slice(tokens=slice(-5, None)).requests["A"].tokens == 5 and
           d.slice(heads=[1, 2, 3]).groups[0].heads == 3, "by numbers of the model")
    for which in ({"heads": [0, 2]}, {"tokens": [1, 5]}, {"layers": []}, {"layers": "0"},
                  {"layers": 1.0}, {"blocks": slice(0, 8, 2)}, {"layers": (1, 2, 3)},
                  {"heads": True}):
        tap.ok(raises(kv.UsageError, lambda: d.slice(**which)), f"a slice of {which}")


def told_by_messages(tmp):
    """What a message tells to give is an argument, and does it."""
    root = os.path.join(oracle.ROOT, "testdata", "engines")
    d = kv.open(f"{root}/transformers/5.24.0/falcon_h1.pt")
    part = d.slice(components="ssm")
    tap.ok([g.id for g in part.groups] == ["ssm"] and np.array_equal(
        part.read(layer=2), d.read(group="ssm", layer=2)) and "k, v, ssm" in raises(
            kv.BadInput, lambda: d.slice(components=["k", "x"])), "components of a slice")
    tap.ok("mamba_groups is -1" in raises(kv.UsageError, lambda: d.slice(mamba_groups=-1)),
           "a number that is none")
    d = kv.open(f"{root}/llama.cpp/qwen2vl.fa0_u0.ggsn", head_dim=16).slice(requests="0")
    said = raises(kv.Error, lambda: d.write(f"{tmp}/o.safetensors", format="transformers"))
    d.write(f"{tmp}/o.safetensors", format="transformers", as_is=True)
    tap.ok("as_is=True writes" in said and len(kv.open(f"{tmp}/o.safetensors")) == len(d),
           "as_is= of write()", said)
    like = f"{root}/llama.cpp/s260k.hole.s0.ggsq"
    d = kv.open(like, heads=4)
    said = raises(kv.UsageError, lambda: d.write(f"{tmp}/o.ggsq"))
    d.write(f"{tmp}/o.ggsq", template=like, as_is=True)
    with open(like, "rb") as a, open(f"{tmp}/o.ggsq", "rb") as b:
        tap.ok('template="STATE"' in said and a.read() == b.read(),
               "template= of write(), which gives the engine's own file again", said)
    several = kv.open(f"{root}/llama.cpp/s260k.streams4.ggsn", heads=4)
    said = raises(kv.BadInput, lambda: several.write(f"{tmp}/p.ggsq", template=like))
    tap.ok("this dump has 3" in said, "a state of one sequence is of one request", said)
    pools = [kv.from_tensors([np.zeros((2, 3, 4, 2, 8), "f4")], layout="KBSHD", **more)
             for more in ({}, {})]
    said = raises(kv.BadInput, lambda: kv.merge(pools))
    tap.ok("--" not in said, "merge() of ranks without numbers names no option", said)


def shown(tmp):
    """What 'kvtool help python' and kvtool-python(7) show, typed as it stands there."""
    os.chdir(tmp)
    pool = np.random.default_rng(4).standard_normal((2, 10, 16, 2, 8)).astype("f4")
    caches = [pool + i for i in range(4)]
    d = kv.from_tensors(caches, layout="KBSHD", block_table={"A": [1, 2], "req-1": [5, 9, 2]},
                        num_tokens={"req-1": 40})
    for name in ("snapshot.h5", "other.h5"):
        d.write(name, sync=False)
    d.slice(requests="req-1").write("reference.h5", sync=False)
    pairs = [tuple(np.random.default_rng(l).standard_normal((2, 3, 9, 8)).astype("f4")
                   for _ in "kv") for l in range(4)]
    mask = np.array([[0] * 2 + [1] * 7, [1] * 9])
    kv.from_tensors(Cache(pairs), attention_mask=mask).write("cache.h5", sync=False)
    os.rename("cache.h5", "cache.pt")           # what is in it counts
    model = types.SimpleNamespace(past_key_values=Cache(pairs))
    names = {"out": model, "eager": model, "sdpa": model, "mask": mask, "kvtool": kv,
             "numpy": np, "kv_caches": caches, "inputs": {"attention_mask": mask}}
    text = oracle.kvtool("help", "python").out.partition("Without it")[0]
    lines = re.findall(r"^  (?:>>>|\.\.\.) (.*)$", text, re.M)
    with contextlib.redirect_stdout(io.StringIO()):
        run = raises(BaseException, lambda: exec("\n".join(lines), dict(names)))
    tap.ok(not run and len(lines) > 9 and os.path.exists("live.h5"),
           f"{len(lines)} lines of help python", run)
    blocks = re.findall(r"^\.Bd -literal\n(.*?)^\.Ed",
                        read_text(f"{oracle.ROOT}/man/kvtool-python.7"),
                        re.M | re.S)
    for i, block in enumerate(blocks):
        with contextlib.redirect_stdout(io.StringIO()):
            run = raises(BaseException, lambda b=block: exec(b, dict(names)))
        tap.ok(not run, f"block {i} of the manual page", run)
    tap.ok(len(blocks) > 4, "there are such blocks")
    os.chdir(oracle.ROOT)


oracle.run(caches, asserted, numbers, slots, reads, slices, groups_of_a_layer, words,
           compared, padded, notebook, told_by_messages, mixed, in_memory, shown)
