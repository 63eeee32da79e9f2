#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_foreign.py - files that other programs write have the digest of the cache
they were made of
"""

import numpy as np

import oracle
from foreign_files import Tensor, npz_bytes, safetensors_bytes, torch_bytes
from kvd1 import by_request, whole
from oracle import kvtool, refused, tap, write_bytes, write_json


# ---- arrays of an engine's blocks -------------------------------------------

def sidecar(path, dump):
    """What the array files of testdata/ have beside them, but for the array."""
    keys = ("block_table", "num_tokens", "null_block", "model")
    write_json(path.rsplit(".", 1)[0] + ".json", {k: dump.side[k] for k in keys})


def check_blocks(tmp):
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    want = whole(dump.path)
    nhd = dump.cells.transpose(1, 2, 3, 4, 0, 5)        # L B S H K D
    names = dump.side["layer_names"]
    heads = ("--heads", 4, "--head-dim", 8)

    path = write_bytes(f"{tmp}/a.npz", npz_bytes(dict(zip(names, nhd))))
    sidecar(path, dump)
    tap.equal(whole(path, "--layout=nhd", "--dtype=bf16", *heads), want,
              "npz: an array for each layer")
    named = {f"at{i}end": a for i, a in enumerate(nhd)} | {"more": np.zeros(3)}
    path = write_bytes(f"{tmp}/n.npz", npz_bytes(named))
    sidecar(path, dump)
    tap.equal(whole(path, "--layout=nhd", "--dtype=bf16", *heads, "--set",
                    "names=at{l}end"), want, "npz: names that are told")
    path = write_bytes(f"{tmp}/one.npz", npz_bytes({"kv": nhd}))
    sidecar(path, dump)
    tap.equal(whole(path, "--layout=nhd", "--dtype=bf16"), want, "npz: one array")

    kinds = {"tensors": lambda a: Tensor("BFloat16Storage", a),
             "strided tensors": lambda a: Tensor("BFloat16Storage", a, (0, 2, 1, 3))}
    for what, make in kinds.items():
        layers = [make(a.reshape(48, 16, 4, 16)) for a in nhd]
        layout = "--layout=hnd" if what != "tensors" else "--layout=nhd"
        for kind, o in ("dict", dict(zip(names, layers))), ("list", layers), \
                ("dict with more", {"block_size": 16, "layers": layers}):
            path = write_bytes(f"{tmp}/t.pt", torch_bytes(o))
            sidecar(path, dump)
            tap.equal(whole(path, layout, "--head-dim=8"), want,
                      f"torch: a {kind} of {what}")


# ---- transformers -----------------------------------------------------------

def padded(dump, left):
    """Keys and values [L, batch, H, T, D] of all requests, with rubbish around."""
    tokens = [dump.tokens(dump.cells, r) for r in dump.tables]
    most = max(t.shape[2] for t in tokens)
    K, L, _, H, D = tokens[0].shape
    out = np.full((K, L, len(tokens), H, most, D), 0xabcd, tokens[0].dtype)
    for i, t in enumerate(tokens):
        n = t.shape[2]
        where = slice(most - n, most) if left else slice(0, n)
        out[:, :, i, :, where] = t.transpose(0, 1, 3, 2, 4)
    return out


def check_transformers(tmp):
    for model in "s260k", "gqa64":
        dump = oracle.dump(f"{model}/paged_bs16/packed_nhd.bf16")
        want = by_request(dump.path)
        n = ",".join(str(dump.ntokens[r]) for r in dump.tables)
        for left in False, True:
            k, v = padded(dump, left)
            told = ["--from=transformers", "--set", f"tokens={n}",
                    "--set", f"padding={'left' if left else 'right'}"]
            L = range(len(k))
            named = {f"layers.{l}.{x}": ("BF16", a[l])
                     for l in L for x, a in (("k", k), ("v", v))}
            odd = {f"{x}0{l}z": ("BF16", a[l])
                   for l in L for x, a in (("first", k), ("second", v))}
            odd["mask"] = ("U8", np.zeros(3, np.uint8))
            pairs = tuple((Tensor("BFloat16Storage", k[l]),
                           Tensor("BFloat16Storage", v[l])) for l in L)
            lists = {x: [Tensor("BFloat16Storage", a[l]) for l in L]
                     for x, a in (("key_cache", k), ("value_cache", v))}
            arrays = {f"{x}_{l}": a[l] for l in L for x, a in (("k", k), ("v", v))}
            stacks = tuple(Tensor("BFloat16Storage", a) for a in (k, v))
            side = "left" if left else "right"
            for what, name, data, more in (
                    ("safetensors", "n.safetensors", safetensors_bytes(named), []),
                    ("safetensors, odd names", "o.safetensors",
                     safetensors_bytes(odd),
                     ["--set", "names=first{l}z,second{l}z", "--block-size=7"]),
                    ("torch, a tuple of pairs", "p.pt", torch_bytes(pairs), []),
                    ("torch, two lists", "l.pt", torch_bytes(lists), []),
                    ("torch, a tuple of all layers", "s.pt", torch_bytes(stacks),
                     ["--set", "axes=LBHTD"]),
                    ("npz, two arrays", "s.npz", npz_bytes({"arr_0": k, "arr_1": v}),
                     ["--dtype=bf16", "--set", "axes=LBHTD"]),
                    ("npz", "a.npz", npz_bytes(arrays), ["--dtype=bf16"])):
                path = write_bytes(f"{tmp}/{name}", data)
                tap.equal(by_request(path, *told, *more), want,
                          f"{model}, padding {side}: {what}")
    r = kvtool("relayout", "--from=transformers", "--set", f"tokens={n}", "--to=nhd",
               "--verify", "-o", f"{tmp}/out.h5", f"{tmp}/n.safetensors")
    r2 = kvtool("describe", f"{tmp}/n.safetensors")
    tap.ok(r.code == 0, "relayout of a transformers cache", r)
    tap.ok(r2.code == 3, "axes of batch and heads are not guessed", r2)


def check_types(tmp):
    """Keys and values of two types of floats are groups, with the bytes of each."""
    k = np.arange(2 * 20 * 4, dtype=np.float32).reshape(1, 2, 20, 4)
    v = np.arange(2 * 20 * 4, dtype=np.uint16).reshape(1, 2, 20, 4)
    path, out = f"{tmp}/types.pt", f"{tmp}/types.safetensors"
    write_bytes(path, torch_bytes([(Tensor("FloatStorage", k + l),
                                    Tensor("BFloat16Storage", v + l)) for l in range(3)]))
    r = kvtool("convert", "-f", "--from=transformers", "--block-size=20", path, out)
    groups = oracle.written_groups(out)[1] if r.code == 0 else {}
    got = {name: (t[0], t[2]) for name, (_, t) in groups.items()}
    # of each layer one block, of heads, slots and elements
    want = {name: (of, b"".join((a + l)[0].astype(a.dtype).tobytes()
                                for l in range(3)))
            for name, of, a in (("g0.k", "F32", k), ("g0.v", "BF16", v))}
    tap.ok(got == want, "keys and values of two types are groups", r)


def check_refusals(tmp):
    a = np.zeros((1, 2, 5, 4), np.float32)
    two = {f"layers.0.{x}": ("F32", a) for x in "kv"}
    path = write_bytes(f"{tmp}/two.safetensors", safetensors_bytes(two))
    for tokens, status in (("6", 2), ("x", 2), ("1,2", 2), ("5,", 2), ("5", 0), ("0", 0)):
        r = kvtool("describe", "--from=transformers", "--set", f"tokens={tokens}", path)
        tap.ok(r.code == status, f"transformers: tokens={tokens}", r)
    for option, status in (("--layout=nhd", 3), ("--skip=8", 2), ("--heads=3", 3),
                           ("--heads=2", 0), ("--layers=2", 3), ("--dtype=bf16", 3)):
        r = kvtool("describe", "--from=transformers", option, path)
        tap.ok(r.code == status, f"transformers: {option}", r)
    for what, tensors, status, part in (
            ("no values", {"l.0.k": ("F32", a)}, 3, "do not distinguish"),
            ("a window", {**two, **{f"layers.1.{x}": ("F32", a[:, :, :3])
                                    for x in "kv"}}, 3, "window=4"),
            ("no heads", {f"l.0.{x}": ("F32", np.zeros((1, 0, 1 << 40, 4), np.float32))
                          for x in "kv"}, 3, "no heads"),
            ("rows of nothing", {f"l.0.{x}": ("F32", np.zeros((1 << 40, 2, 0, 4),
                                                              np.float32))
                                 for x in "kv"}, 3, "without data"),
            ("three axes", {f"l.0.{x}": ("F32", a[0]) for x in "kv"}, 3, "--set=axes=HTD if"),
            ("values of another width",
             {"l.0.k": ("F32", a), "l.0.v": ("F32", a[..., :2])}, 0, ""),
            ("values of fewer tokens",
             {"l.0.k": ("F32", a), "l.0.v": ("F32", a[:, :, :2])}, 4, "differ"),
            ("a layer that keeps nothing", {f"l.{l}.{x}": ("F32", a) for l in (0, 2)
                                            for x in "kv"}, 0, "")):
        path = write_bytes(f"{tmp}/no.safetensors", safetensors_bytes(tensors))
        r = kvtool("describe", "--from=transformers", path)
        tap.ok(r.code == status and part in r.err and
               r.err.count("\n") == (status != 0), f"transformers: {what}", r)


def check_torch_refusals(tmp):
    a = Tensor("HalfStorage", np.zeros((2, 3, 4, 8), np.uint16))
    n = a.bits.nbytes
    for what, changed, status, part in (
            ("nothing wrong", {}, 0, ""),
            ("a storage cut short", {"cache_data_0": bytes(n - 1)}, 3, "storage"),
            ("a storage too long", {"cache_data_0": bytes(n + 2)}, 3, "storage"),
            ("no storage", {"cache_data_0": None}, 3, "no member"),
            ("big-endian", {"cache_byteorder": b"big"}, 4, "little"),
            ("an old file without a byte order", {"cache_byteorder": None}, 0, ""),
            ("TorchScript", {"cache_constants.pkl": b"x"}, 4, "TorchScript"),
            ("two pickles", {"other_data.pkl": b"x"}, 3, "other/data.pkl"),
            ("no pickle", {"cache_data.pkl": None}, 4, "neither"),
            ("no tensors", {"cache_data.pkl": b"\x80\x02}."}, 3, "no tensors"),
            ("a storage by itself", {"cache_data.pkl": b"\x80\x02(X\7\0\0\0storage"
                                     b"ctorch\nHalfStorage\nX\1\0\0\0" b"0X\3\0\0\0cpu"
                                     b"K\1tQ."}, 4, "storage")):
        path = write_bytes(f"{tmp}/r.pt", torch_bytes({"layers.0": a, "layers.1": a}, **changed))
        r = kvtool("describe", "--layout=nhd", "--head-dim=4", path)
        tap.ok(r.code == status and part in r.err and
               r.err.count("\n") == (status != 0), f"torch: {what}", r)
    loop = b"\x80\x02]q\0" + b"h\0a" * 3 + b"."
    deep = b"\x80\x02Nq\0" + b"".join(b"h%c\x86q%c" % (i, i + 1) for i in range(60)) + b"."
    wide = b"\x80\x02((((Nq\0" + b"".join(b"h%c" % i * 999 + b"tq%c" % (i + 1)
                                         for i in range(4)) + b"."
    for what, data in ("a list in itself", loop), ("tuples in tuples", deep), \
            ("a tuple 10^12 times", wide):
        path = write_bytes(f"{tmp}/r.pt", torch_bytes({}, **{"cache_data.pkl": data}))
        refused(f"torch: {what}", 4, "nested", "describe", path)


oracle.run(check_blocks, check_transformers, check_types, check_refusals, check_torch_refusals)
