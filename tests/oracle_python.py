#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_python.py - the Python module against numpy

What a dump holds is taken from the address map in its sidecar, by numpy alone.  What
the module reads of files, of tensors in memory and of derived dumps has to be that,
element by element; what it writes, kvtool compares.
"""
import gc
import json
import os
import random
import signal
import threading
import time

import numpy as np
import oracle
from oracle import DATA, kvtool, raises, runs, tap
import kvtool as kv

SLICES = 10000
FILES = ["packed_nhd.bf16", "packed_hnd.bf16", "packed_bhlsc.bf16", "rocm_x.bf16",
         "aiter_shuffle.bf16", "cpu_vec.bf16", "kv_first_nhd.bf16", "packed_nhd.fp32",
         "packed_nhd.fp16", "crosslayer_blocks_first.bf16"]


def dump_of(name):
    return oracle.Dump("s260k", f"{DATA}/s260k/paged_bs16/{name}.json")


# ---- random reads ---------------------------------------------------------------------

def draw_span(r, n):
    """A slice of [0, n) as Python has it, and whether it is one index."""
    begin = r.randrange(n)
    end = r.randrange(begin + 1, n + 1)
    shape = r.randrange(4)
    if shape == 0:
        return begin, slice(begin, begin + 1), True
    if shape == 1:
        return None, slice(0, n), False
    if shape == 2 and end < n:
        return slice(begin, end - n), slice(begin, end), False
    return slice(begin, end), slice(begin, end), False


def wanted(dump, request, layer, tokens, half, heads, drops):
    """[k, layer, token, head, d] by the table of the request."""
    table = dump.tables[request]
    size = dump.dims["S"]
    at = np.arange(tokens.start, tokens.stop)
    cells = dump.cells[half, layer][:, :, np.array(table)[at // size], at % size]
    cells = cells[:, :, :, heads]
    return cells[tuple(0 if d else slice(None) for d in drops)]


def one_read(r, held, opened):
    name = r.choice(FILES)
    dump, d = held[name], opened[name]
    request = r.choice(sorted(dump.tables))
    n = dump.side["num_tokens"][request]
    layer, layers, one_layer = draw_span(r, dump.dims["L"])
    tokens, span, one_token = draw_span(r, n)
    heads, head, one_head = draw_span(r, dump.dims["H"])
    half = r.choice([None, "k", "v"])
    got = d.read(layer=layer, tokens=tokens, heads=heads, kv=half, request=request,
                 bits=True)
    halves = slice(0, 2) if half is None else slice("kv".index(half), "kv".index(half) + 1)
    want = wanted(dump, request, layers, span, halves, head,
                  (half is not None, one_layer, one_token, one_head, False))
    return got.shape == want.shape and np.array_equal(got, want), \
        f"{name} {request} layer={layer} tokens={tokens} heads={heads} kv={half}"


def random_reads():
    r = random.Random(1)
    held = {n: dump_of(n) for n in FILES}
    opened = {n: kv.open(held[n].path) for n in FILES}
    wrong = []
    for _ in range(SLICES):
        good, what = one_read(r, held, opened)
        if not good:
            wrong.append(what)
    tap.ok(not wrong, f"{SLICES} random reads of files are what numpy reads",
           "\n".join(wrong))
    wrong = []
    for name in FILES:
        whole = opened[name].read(blocks=slice(None), bits=True)
        if not np.array_equal(whole, held[name].cells):
            wrong.append(name)
    tap.ok(not wrong, "blocks of all files, too", wrong)
    for d in opened.values():
        d.close()


# ---- tensors in memory ----------------------------------------------------------------

def tensor_cases(cells):
    """(what, tensors, layout) of the same cache [K, L, B, S, H, D]; arrays of odd strides."""
    _, layers = cells.shape[:2]
    wide = np.zeros(cells.shape[:4] + (cells.shape[4] + 2, cells.shape[5] + 3), cells.dtype)
    wide[..., 1:-1, :-3] = cells
    cut = wide[..., 1:-1, :-3]
    packed = np.ascontiguousarray(np.moveaxis(cells, 0, 4)).reshape(
        cells.shape[1:5] + (-1,))
    x = 16 // cells.itemsize
    keys, values = cells
    split = keys.reshape(keys.shape[:4] + (-1, x)).transpose(0, 1, 3, 4, 2, 5)
    yield "a list of layers", [cells[:, l] for l in range(layers)], "KBSHD"
    yield "layers of odd strides", {l: cut[:, l] for l in range(layers)}, "KBSHD"
    yield "layers that were transposed", \
        {f"model.layers.{l}.attn": np.ascontiguousarray(cells[:, l].transpose(1, 3, 0, 2, 4))
         for l in range(layers)}, "BHKSD"
    yield "keys and values in one dimension", list(packed), "BSHC"
    yield "a preset, with its L left out", list(packed), "nhd"
    yield "one tensor of all layers", packed, "nhd"
    yield "one view of all layers", np.ascontiguousarray(
        cells.transpose(2, 1, 0, 3, 4, 5)).transpose(1, 2, 0, 3, 4, 5), "LKBSHD"
    yield "pairs of tensors", {l: (keys[l], values[l]) for l in range(layers)}, "BSHD"
    yield "pairs of views", {l: (cut[0, l].swapaxes(1, 2), cut[1, l].swapaxes(1, 2))
                             for l in range(layers)}, "BHSD"
    yield "split elements", [np.stack([split[l], np.ascontiguousarray(
        values[l].reshape(values[l].shape[:3] + (-1, x)).transpose(0, 2, 3, 1, 4))])
        for l in range(layers)], "K B H D/x S x"
    yield "Fortran order", {l: np.asfortranarray(cells[:, l]) for l in range(layers)}, "KBSHD"


def in_memory():
    dump = dump_of("packed_nhd.fp16")
    cells = dump.cells.view(np.float16)
    facts = {"block_table": dump.tables, "num_tokens": dump.side["num_tokens"]}
    for what, tensors, layout in tensor_cases(cells):
        d = kv.from_tensors(tensors, layout=layout, **facts)
        good = np.array_equal(d.read(blocks=slice(None), bits=True), dump.cells)
        part = d.read(layer=3, request="A", tokens=slice(60, 99), kv="v", bits=True)
        good &= np.array_equal(part, wanted(
            dump, "A", slice(3, 4), slice(60, 99), slice(1, 2), slice(None),
            (True, True, False, False, False)))
        report = kv.diff(d, dump.path)
        tap.ok(good and report.same and d.digest() == kv.open(dump.path).digest(),
               f"{what} ({layout}): read, compared, the same digest", report)
    packed()
    in_place(cells)
    d = kv.from_tensors([cells[:, l] for l in range(cells.shape[1])], layout="KBSHD",
                        **facts)
    tap.ok(d.read(layer=0, tokens=slice(0, 4), request="A", kv="k").dtype == np.float16,
           "a type that numpy has is read as that type")
    latents(cells)
    masks_and_dimensions(cells)
    one_layer(cells)
    refusals(cells)
    alive(cells, facts)


def packed():
    """Memory whose shape says nothing, as kernels pack it: by the name of its layout."""
    for name in ("rocm_x.bf16", "aiter_shuffle.bf16", "cpu_vec.bf16", "packed_hnd.bf16",
                 "kv_first_nhd.bf16"):
        dump = dump_of(name)
        layers = np.load(dump.path).reshape(dump.dims["L"], -1)
        size = {"block_size": dump.dims["S"], "heads": dump.dims["H"],
                "head_dim": dump.dims["D"], "dtype": "bfloat16"}
        d = kv.from_tensors(list(layers), layout=dump.layout, block_table=dump.tables,
                            num_tokens=dump.side["num_tokens"], **size)
        tap.ok(np.array_equal(d.read(blocks=slice(None), bits=True), dump.cells) and
               kv.diff(d, dump.path).same, f"bytes in layout {dump.layout}")
    for what, change in [("no whole blocks", {"heads": 5}), ("no block size", {"block_size": 0})]:
        tap.ok(raises(kv.UsageError, lambda c=change: kv.from_tensors(
            list(layers), layout=dump.layout, **{**size, **c})), f"{what}: refused")


def in_place(cells):
    """Blocks of a tensor are not copied."""
    d = kv.from_tensors([cells[:, l] for l in range(cells.shape[1])], layout="KBSHD")
    got = d.read(layer=2, kv="v", blocks=slice(3, 9), heads=slice(1, 3))
    tap.ok(np.shares_memory(got, cells) and np.array_equal(got, cells[1, 2, 3:9, :, 1:3]) and
           not got.flags.writeable, "blocks of a tensor are its own memory")
    part = d.slice(layers=2)
    d.close()
    tap.ok(np.array_equal(part.read(layer=2, kv="v", blocks=slice(3, 9)), cells[1, 2, 3:9]),
           "those of a derived dump are copied")
    data, shape, _ = part.read_bytes(layer=2, kv="k", blocks=4)
    tap.ok(np.array_equal(np.frombuffer(data, np.float16).reshape(shape), cells[0, 2, 4]),
           "and are bytes for who has no numpy")


def latents(cells):
    rows = np.ascontiguousarray(cells[0, :, :, :, 0, :])        # [L, B, S, D]
    d = kv.from_tensors(list(rows), layout="BSC", latent=True, kind="mla",
                        block_table={"r": [3, 1]}, num_tokens={"r": 20})
    want = np.concatenate([rows[2, 3], rows[2, 1]])[:20]
    got = d.read(layer=2, request="r", heads=0)
    tap.ok(np.array_equal(got, want) and d.groups[0].kind == "mla" and
           not d.groups[0].has_values, "latents have one content", d.groups)


class MaskedTensor:
    """As much of torch's as is asked."""
    shape, dtype = (1,), "float16"

    def get_mask(self):
        return [True]


def masks_and_dimensions(cells):
    """What a mask hides, and a dimension that is not there, are not read as if they were."""
    keys, masked = np.moveaxis(cells[:, 0], 0, 3), np.ma.masked_less(cells[:, 0], 0)
    same = np.ma.array(cells[:, 0])
    whole = {"blocks": slice(None), "bits": True}
    tap.ok(np.array_equal(kv.from_tensors([same], layout="KBSHD").read(**whole),
                          kv.from_tensors([cells[:, 0]], layout="KBSHD").read(**whole)),
           "an array that could have a mask and has none is read")
    cases = [(f"a masked array, {where}", lambda t=t: kv.from_tensors(t, layout="KBSHD"),
              kv.Unsupported, "masked")
             for where, t in (("alone", [masked]), ("among others", [cells[:, 0], masked]),
                              ("with nothing masked", [np.ma.array(cells[:, 0], mask=False,
                                                                   shrink=False)]),
                              ("of torch", [MaskedTensor()]))]
    cases.append(("a masked half", lambda: kv.from_tensors(
        [(cells[0, 0], masked[1])], layout="KBSHD"), kv.Unsupported, "masked"))
    cases.append(("masked memory of a packed layout", lambda: kv.from_tensors(
        [masked], layout="cpu-vec", block_size=16, heads=1, head_dim=8), kv.Unsupported,
        "masked"))
    for axes in ("BSHKD", "KBSHD", "BKHSD", "BSHC", "nhd", "hnd", "blocks-first-nhd",
                 "K B H D/x S x"):
        few = keys[..., 0]                      # [B, S, H, K]
        while few.ndim >= (4 if axes in ("BSHC", "nhd", "hnd") else 5):
            few = few[..., 0]
        while few.ndim > 1:
            cases.append((f"{few.ndim} dimensions in {axes}", lambda t=few, a=axes:
                          kv.from_tensors([t], layout=a), kv.UsageError, "dimensions"))
            few = few[..., 0]
    for what, call, error, words in cases:
        tap.ok(raises(error, call, words), f"{what} is refused")
    c = np.ascontiguousarray(keys).reshape(keys.shape[:3] + (-1,))
    want = kv.from_tensors([keys], layout="BSHKD").read(**whole)
    tap.ok(all(np.array_equal(kv.from_tensors([c], layout=a).read(**whole), want)
               for a in ("BSHC", "nhd")),
           "keys and values in one dimension are C")


def one_layer(cells):
    """One tensor, whose layout has L and which has not, is one layer, as a file of it is."""
    c = np.moveaxis(cells[:, 0], 0, 3)          # [B, S, H, K, D]
    c = np.ascontiguousarray(c).reshape(c.shape[:3] + (-1,))
    whole = {"blocks": slice(None), "bits": True}
    for tensor, layout, alone in (
            (cells[:, 0], "kv-first-nhd", "KBSHD"), (cells[:, 0], "LKBSHD", "KBSHD"),
            (np.moveaxis(cells[:, 0], 0, 1), "blocks-first-nhd", "BKSHD"),
            (np.moveaxis(cells[:, 0], 3, 2), "kv-first-hnd", "KBHSD"), (c, "nhd", "BSHC"),
            (np.moveaxis(cells[:, 0], 0, 3), "LBSHKD", "BSHKD")):
        d = kv.from_tensors(tensor, layout=layout, block_table={"r": [1]})
        want = kv.from_tensors([tensor], layout=alone, block_table={"r": [1]})
        tap.ok(d.groups[0].layers == 1 and kv.diff(d, want).same and
               np.array_equal(d.read(**whole), want.read(**whole)),
               f"one tensor of {alone} in {layout} is one layer")
    # one that has L keeps all its layers
    every = np.moveaxis(cells, 1, 0)
    d = kv.from_tensors(every, layout="kv-first-nhd", block_table={"r": [1]})
    tap.ok(d.groups[0].layers == every.shape[0], "a tensor with L keeps all layers")
    for tensor, layout, words in ((cells[:, 0], "blocks-first-nhd", "expected 2"),
                                  (cells[0, 0], "kv-first-nhd", "dimensions")):
        tap.ok(raises(kv.UsageError, lambda t=tensor, l=layout:
                       kv.from_tensors(t, layout=l), words),
               f"{tensor.shape} in {layout} is refused")


def refusals(cells):
    one = [cells[:, 0]]
    for what, call, error, words in [
            ("a negative stride", lambda: kv.from_tensors([cells[:, 0, ::-1]],
                                                          layout="KBSHD"),
             kv.Unsupported, "negative stride"),
            ("the other byte order",
             lambda: kv.from_tensors([cells[:, 0].astype(">f2")], layout="KBSHD"),
             kv.Unsupported, "byte order"),
            ("another number of dimensions",
             lambda: kv.from_tensors([cells[0, 0]], layout="KBSHD"), kv.UsageError,
             "dimensions"),
            ("layers of other shapes",
             lambda: kv.from_tensors([cells[:, 0], cells[:, 1, :4]], layout="KBSHD"),
             kv.UsageError, "layer 1"),
            ("layers of other types",
             lambda: kv.from_tensors([cells[:, 0], cells[:, 1].astype(np.float32)],
                                     layout="KBSHD"), kv.UsageError, "float32"),
            ("what is no tensor", lambda: kv.from_tensors([[1, 2]], layout="KBSHD"),
             kv.UsageError, "no tensor"),
            ("a type without a name",
             lambda: kv.from_tensors([cells[:, 0].astype(np.complex64)], layout="KBSHD"),
             kv.UsageError, "complex64"),
            ("no tensors", lambda: kv.from_tensors([], layout="KBSHD"), kv.UsageError,
             "no tensors"),
            ("a block that is not there",
             lambda: kv.from_tensors(one, layout="KBSHD", block_table={"r": [999]}),
             kv.BadInput, "999"),
            ("a layout that is none", lambda: kv.from_tensors(one, layout="KBXHD"),
             kv.UsageError, "KBXHD"),
            ("a token that is not there",
             lambda: kv.from_tensors(one, layout="KBSHD", block_table={"r": [1]}).read(
                 layer=0, tokens=slice(0, 17)), kv.UsageError, "0:16"),
            ("a layer that is not there",
             lambda: kv.from_tensors(one, layout="KBSHD", block_table={"r": [1]}).read(
                 layer=7), kv.UsageError, "no layer 7")]:
        tap.ok(raises(error, call, words), f"{what} is refused")


def alive(cells, facts):
    """Memory lives as long as a dump that reads it."""
    copy = cells.copy()
    part = kv.from_tensors([copy[:, l] for l in range(copy.shape[1])], layout="KBSHD",
                           **facts).slice(layers=(1, 3)).reblock(32)
    del copy
    gc.collect()
    junk = [np.full(cells.size // 4, 7, np.uint8) for _ in range(64)]
    got = part.read(layer=2, request="B", bits=True)
    del junk
    want = kv.open(dump_of("packed_nhd.fp16").path).read(layer=2, request="B", bits=True)
    tap.ok(np.array_equal(got, want), "a derived dump keeps its tensors alive")


# ---- derived and written ----------------------------------------------------------------

def derived(tmp):
    dump = dump_of("packed_nhd.bf16")
    whole = kv.open(dump.path)
    size = dump.dims["S"]
    part = whole.slice(layers=[slice(1, 3), 4], requests=["A", "C"], tokens=(16, 300))
    got = part.read(layer=4, request="A", tokens=(16, 300), bits=True)
    want = wanted(dump, "A", slice(4, 5), slice(16, 300), slice(0, 2), slice(None),
                  (False, True, False, False, False))
    tap.ok(np.array_equal(got, want) and part.groups[0].layer_ids == (1, 2, 4),
           "a slice is the part that was asked for")
    ranks = [whole.slice(tp=(r, 4)) for r in (2, 0, 3, 1)]
    merged = kv.merge(ranks)
    tap.ok(kv.diff(merged, whole).same and merged.digest() == whole.digest(),
           "ranks, merged in any order, are the whole")
    for to in (8, 32, 64):
        d = whole.reblock(to)
        ok = kv.diff(d, whole).same and d.groups[0].block_size == to
        path = os.path.join(tmp, f"r{to}.h5")
        d.write(path)
        d.slice(layers=2).write(os.path.join(tmp, f"r{to}-part.npy"))
        tap.ok(ok and kv.diff(path, whole).same and size != to,
               f"blocks of {to}: the same tokens, in memory and written")
    for layout, name in [("hnd", "a.h5"), ("rocm-paged", "b.npy"), ("bhlsc", "c.safetensors"),
                         (None, "d.bin")]:
        path = os.path.join(tmp, name)
        whole.write(path, layout=layout)
        runs(f"what write() wrote as {layout}, {name}, kvtool diff calls equal", "diff",
             path, dump.path)
    path = os.path.join(tmp, "a.h5")
    before = os.stat(path).st_ino
    tap.ok(raises(kv.SystemFailure, lambda: whole.write(path), "exists") and
           os.stat(path).st_ino == before, "an existing file is not replaced")
    whole.write(path, overwrite=True)
    tap.ok(os.stat(path).st_ino != before, "but where it is told to")
    never_over_itself(tmp)
    tap.ok(raises(kv.UsageError, lambda: whole.write(os.path.join(tmp, "x.unknown"))) and
           sorted(os.listdir(tmp)) == sorted(n for n in os.listdir(tmp) if ".tmp-" not in n),
           "an unknown ending is refused, and nothing is left")


def never_over_itself(tmp):
    """A dump is not written over a file that it is of, however it was derived."""
    place = os.path.join(tmp, "itself")
    os.mkdir(place)

    def bytes_of():
        return {n: open(os.path.join(place, n), "rb").read() for n in os.listdir(place)}

    for name in ("s.h5", "s.npy", "s.safetensors", "s.bin"):
        path = os.path.join(place, name)
        kv.open(dump_of("packed_nhd.bf16").path).write(path)
        hard, soft = path.replace("s.", "hard."), path.replace("s.", "soft.")
        os.link(path, hard)
        os.symlink(name, soft)
        d = kv.open(path)
        ways = {"all": d, "slice": d.slice(layers=0), "reblock": d.reblock(32),
                "twice": d.slice(layers=(0, 4)).reblock(32).slice(layers=1),
                "merge": kv.merge([d])}
        d.close()
        before = bytes_of()
        del d
        for way, part in list(ways.items())[1:]:
            over = [raises(kv.UsageError, lambda p=p, part=part: part.write(
                p, overwrite=True), "belongs to the input") for p in (path, hard, soft)]
            tap.ok(all(over) and bytes_of() == before,
                   f"{name}: {way} is not written over it", over)
        ways = part = None
        kv.open(dump_of("packed_nhd.bf16").path).slice(layers=0).write(path, overwrite=True)
        tap.ok(bytes_of()[name] != before[name], f"{name}: once closed it may be replaced")


def numbers(tmp):
    """What a library quantised, as it dequantises it: mlx, and transformers' fp8."""
    for name, ending in (("mlx/quant568_bf16.032.safetensors", ""),
                         ("transformers/5.24.0/quant_fp8.pt", "_dequantized")):
        path, wrong, n = os.path.join(oracle.ENGINES, name), [], 0
        with kv.open(path) as d, np.load(os.path.splitext(path)[0] + ".oracle.npz") as z:
            for dtype in ("float32", "float64"):
                decoded = d.decode(dtype)
                for layer in sorted({int(k.split(".")[0]) for k in z.files}):
                    for half in ("keys", "values"):
                        got = decoded.read(layer=layer, kv=half[0])
                        want = z[f"{layer}.{half}{ending}"]
                        want = want.reshape((-1,) + want.shape[-2:]).swapaxes(0, 1)
                        n += 1
                        if got.dtype != dtype or not np.array_equal(got, want):
                            wrong.append((layer, half, dtype))
            tap.ok(n and not wrong, f"{name}: decode() of {n} halves", wrong)
            tap.ok(d.read(layer=0, kv="k").dtype == "uint8", f"{name}: read() gives bytes")
            tap.ok(raises(kv.UsageError, lambda: d.decode("bfloat16"), "float64"),
                   f"{name}: decode() to bfloat16 is refused")
    plain = kv.open(dump_of("packed_nhd.bf16").path)
    got, bits = plain.decode().read(layer=1, request="A"), plain.read(
        layer=1, request="A", bits=True)
    tap.ok(np.array_equal(got.view("<u4"), bits.astype("<u4") << 16),
           "decode() of elements of one type is their numbers")
    plain.decode().write(os.path.join(tmp, "numbers.h5"))
    tap.ok(not kv.diff(os.path.join(tmp, "numbers.h5"), plain, exact=True).differs,
           "and writes them")


def check_attention(path):
    """As the command says it, and bounded."""
    other = dump_of("packed_nhd.fp32").path
    r = kvtool("diff", "--json", "--attention", "--exact", "--no-diagnosis", path, other)
    cells = json.loads(r.out)["attention"]["groups"][0]["cells"]
    report = kv.diff(path, other, exact=True, attention=True, diagnose=False)
    tap.ok(np.allclose([[c[k] for k in ("layer", "head", "queries", "change", "rel_l2",
                                        "worst")] for c in cells],
                       [[p.layer, p.head, p.queries, p.change, p.rel_l2, p.worst]
                        for p in report.attention], rtol=1e-9) and
           report.attention.rel_l2.shape == (5, 4) and "layer 4 head 3" in
           repr(report.attention), "attention, as the command says it", report.attention)
    most = report.attention.rel_l2.max()
    tap.ok(kv.diff(path, other, attention=True, attend={"bound": most * 1.01}).same and
           kv.diff(path, other, attention=True, attend={"bound": most * 0.99}).differs,
           "attention, bounded")
    tap.ok(not len(kv.diff(path, other, exact=True).attention), "attention, not asked for")
    for wrong in ({"scales": 1}, {"scale": 0}):
        tap.ok(raises(kv.UsageError, lambda w=wrong: kv.diff(path, other, attention=True,
                                                              attend=w)),
               f"attend={wrong} is refused")


def told(tmp):
    good = dump_of("packed_nhd.bf16").path
    bad = os.path.join(tmp, "bad.npy")
    r = kvtool("mutate", "--fault=swap-kv,layer=2,block=17", good, bad)
    report = kv.diff(good, bad, most=3)
    group = report.groups[0]
    tap.ok(r.code == 0 and report.differs and group.fault == "swap-kv" and
           len(report.elements) == 3 and report.elements[0].layer == 2,
           "diff names the fault and the worst elements", report)
    # the same numbers as the program prints
    r = kvtool("diff", "--json", "--top=3", good, bad)
    import json
    g = json.loads(r.out)["groups"][0]
    tap.ok(g["metrics"]["different"] == group.unequal and g["elements"] == group.elements,
           "it counts what kvtool diff counts", r)
    tap.ok(raises(TypeError, lambda: bool(report), ".same"), "a report is not true or false")
    check_attention(good)
    tap.ok("differ" in str(report) and "<table" in report._repr_html_() and
           "<table" in kv.open(good)._repr_html_(), "reports and dumps show themselves")
    tap.ok(kv.diff(good, dump_of("packed_nhd.fp16").path, atol=0.1).same and
           raises(kv.BadInput, lambda: kv.diff(good, dump_of("packed_nhd.fp16").path)),
           "types that differ need a tolerance")
    findings = kv.open(bad).fsck()
    tap.ok(findings and {f.severity for f in findings} <= {"note", "warning", "error"} and
           all(f.rule in kvtool("fsck", "--list").out for f in findings),
           "fsck() has the rules of kvtool fsck", findings)
    seen = []
    kv.open(good).write(os.path.join(tmp, "p.h5"), progress=lambda *a: seen.append(a))
    tap.ok(seen and seen[-1][1] <= seen[-1][2], "progress is told", seen)


# ---- requests told ----

def blocks_told(tmp):
    """Of a pool that numpy saved: which block is whose."""
    pool = np.arange(2 * 8 * 4 * 3 * 4, dtype="<u2").view("<f2").reshape(2, 8, 4, 3, 4)
    np.save(f"{tmp}/pool.npy", pool)
    np.save(f"{tmp}/rows.npy", np.array([[5, 2, 0], [7, 0, 0]], "<i4"))
    want = pool[1][[5, 2]].reshape(8, 3, 4)[:7].tobytes()
    for blocks, more in (({"A": [5, 2], "0": "7"}, {"seq_lens": [7, 3]}),
                         ({"A": "5,2:7"}, {}), ({"A": np.array([5, 2])}, {"seq_lens": 7}),
                         (f"@{tmp}/rows.npy", {"seq_lens": "7,3"})):
        d = kv.open(f"{tmp}/pool.npy", layout="KBSHD", blocks_of=blocks, **more)
        name = "A" if isinstance(blocks, dict) else "0"
        got = d.read(kv="v", layer=0, request=name, bits=True)
        tap.equal(got.tobytes(), want, f"open(blocks_of={str(blocks).replace(tmp, '')})")
    tap.ok(raises(kv.UsageError, lambda: kv.open(
        f"{tmp}/pool.npy", layout="KBSHD", blocks_of={str(i): [1] for i in range(65)}),
        "at most 64"), "more requests than it takes are refused")


# ---- lifetimes --------------------------------------------------------------------------

def lifetimes():
    path = dump_of("packed_nhd.bf16").path
    d = kv.open(path)
    part = d.slice(layers=1)
    said = kv.open(path, heads=4, layout="nhd", facts=None, groups={"g0": {"layers": 5}})
    tap.equal(said.digest(), d.digest(), "what is said and true changes nothing")
    d.close()
    d.close()
    tap.ok(raises(kv.UsageError, d.digest, "closed") and "closed" in repr(d),
           "a closed dump is refused")
    tap.ok(part.read(layer=1, request="A", bits=True).size, "what was made of it is not")
    for what, call, error in [
            ("a file that is not there", lambda: kv.open("/none/such"), kv.SystemFailure),
            ("a layout that contradicts", lambda: kv.open(path, layout="bhlsc"), kv.BadInput),
            ("heads of a group", lambda: kv.open(path, groups={"g0": {"heads": 5}}),
             kv.BadInput),
            ("a group that is none", lambda: kv.open(path, groups={"g0": {}, "g1": {"heads": 4}}),
             kv.BadInput),
            ("what is not of a group", lambda: kv.open(path, groups={"g0": {"facts": {}}}),
             TypeError),
            ("an argument that is none", lambda: kv.open(path, hedas=4), TypeError),
            ("an option that is none", lambda: part.read_bytes(layers=1), TypeError),
            ("a request that is none", lambda: part.read(layer=1, request="Z"),
             kv.UsageError),
            # ctypes would cut these without a word
            ("a number beyond 2^63", lambda: kv.open(path, heads=1 << 70), kv.UsageError),
            ("one below 0", lambda: kv.open(path, heads=-4), kv.UsageError),
            ("a layer beyond 2^63", lambda: part.slice(layers=1 << 70), kv.UsageError),
            ("a path with a NUL", lambda: kv.open(path + "\0x"), kv.UsageError),
            ("a request with a NUL", lambda: part.slice(requests="A\0"), kv.UsageError),
            ("blocks of no token", lambda: part.reblock(0), kv.UsageError),
            ("less than no thread", lambda: part.digest(threads=-1), kv.UsageError),
            ("101 elements", lambda: kv.diff(part, part, most=101), kv.UsageError)]:
        tap.ok(raises(error, call) or error is TypeError and raises(TypeError, call),
               f"{what}: {error.__name__}")
    tap.ok(issubclass(kv.SystemFailure, OSError) and issubclass(kv.BadInput, ValueError) and
           kv.BadInput.status == 3, "exceptions are those of Python, too")
    forked(part)
    threads(path)


def forked(part):
    child = os.fork()
    if not child:
        try:
            part.read(layer=1, request="A", bits=True)
            os._exit(1)
        except kv.UsageError as e:
            os._exit(0 if "fork" in str(e) else 2)
        except BaseException:               # pylint: disable=broad-except
            os._exit(3)
    tap.equal(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0,
              "a dump of before a fork is refused in the child")
    tap.ok(part.read(layer=1, request="A", bits=True).size, "and read in the parent")


def threads(path):
    want = kv.open(path).read(layer=2, request="A", bits=True)
    d, wrong = kv.open(path), []

    def work(seed):
        r = random.Random(seed)
        for _ in range(60):
            try:
                begin = r.randrange(400)
                got = d.read(layer=2, request="A", tokens=slice(begin, begin + 20), bits=True)
                if not np.array_equal(got, want[:, begin:begin + 20]):
                    wrong.append(begin)
            except kv.UsageError as e:
                if "closed" not in str(e):
                    wrong.append(str(e))
    pool = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in pool:
        t.start()
    time.sleep(0.02)
    d.close()                               # while they read
    for t in pool:
        t.join()
    tap.ok(not wrong, "threads read the same, and a close while they do breaks nothing",
           wrong)


def doctests(tmp):
    """Examples in docstrings, in a folder that has the files they name."""
    import doctest
    import importlib
    source = dump_of("packed_nhd.bf16").path
    before = os.getcwd()
    folder = os.path.join(tmp, "doc")
    os.mkdir(folder)
    os.chdir(folder)
    try:
        for end in (".npy", ".json"):
            with open(source[:-4] + end, "rb") as f, open("cache" + end, "wb") as out:
                out.write(f.read())
        oracle.copy_manifest(source, "cache.npy")
        made = kvtool("mutate", "--fault=swap-kv,layer=2,block=17", "cache.npy", "bad.npy",
                      folder=folder)
        tap.equal(made.code, 0, "the files of the examples are made")
        for name in ("kvtool", "kvtool._dump", "kvtool._tensors", "kvtool._report",
                     "kvtool._view"):
            r = doctest.testmod(importlib.import_module(name))
            tap.ok(r.attempted and not r.failed, f"{r.attempted} examples in {name}", r)
    finally:
        os.chdir(before)


def interrupted(tmp):
    """^C at any time ends a call, leaves no part of a file, and breaks nothing."""
    big = np.zeros((2, 4, 512, 16, 4, 64), np.float16)
    d = kv.from_tensors([big[:, l] for l in range(4)], layout="KBSHD")
    folder = os.path.join(tmp, "cut")
    os.mkdir(folder)
    r, ended = random.Random(5), 0
    for _ in range(100):
        try:
            threading.Timer(r.random() * 0.03, os.kill, (os.getpid(), signal.SIGINT)).start()
            for _ in range(1000):
                d.write(os.path.join(folder, "cut.h5"), overwrite=True, sync=False)
        except KeyboardInterrupt:
            ended += 1
    tap.equal(ended, 100, "^C ends a write, each of 100 times")
    tap.ok(all(n == "cut.h5" for n in os.listdir(folder)), "and leaves no part of one",
           os.listdir(folder))


oracle.run(random_reads, in_memory, lifetimes, derived, numbers, told, blocks_told,
           doctests, interrupted)
