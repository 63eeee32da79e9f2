#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_llama.py - state files of llama.cpp have the digest of the cache they were
made of, in every way that builds have written them
"""
import random
import struct

import numpy as np

import oracle
from foreign_files import (BF16, F16, F32, Q4_0, Q8_0, Cells, ggsn_bytes, ggsq_bytes,
                           memory_bytes, recurrent_bytes, sequence_bytes, u32)
from kvd1 import by_request, whole
from oracle import kvtool, refused, runs, tap, write_bytes


def rows(a):
    """[L, T, ...] -> [L][T] bytes"""
    return [[t.tobytes() for t in layer] for layer in a]


def stream(dump, requests, order=None, **how):
    """The tokens of some requests in one stream; tokens in common are one cell."""
    cells, k, v, place = [], [], [], {}
    for number, r in requests:
        tokens = dump.tokens(dump.cells, r)
        block = dump.tables[r]
        for t in range(dump.ntokens[r]):
            where = block[t // dump.dims["S"]], t % dump.dims["S"]
            if where in place:
                cells[place[where]][1].append(number)
                continue
            place[where] = len(cells)
            cells.append((t, [number]))
            k.append(tokens[0, :, t])
            v.append(tokens[-1, :, t])
    if order == "shuffled":
        new = list(range(len(cells)))
        random.Random(5).shuffle(new)
        cells, k, v = ([x[i] for i in new] for x in (cells, k, v))
    k, v = (rows(np.stack(x, axis=1)) for x in (k, v))
    return Cells(cells, k, None if dump.latent else v, **how)


def check_readings(tmp):
    """Every version, and whatever else a build may have done."""
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    want = by_request(dump.path)
    all_of = list(enumerate(dump.tables))
    one = [stream(dump, all_of)]
    turned = [stream(dump, all_of, elem=2)]
    each = [stream(dump, [pair]) for pair in all_of]
    extra = {n: [stream(dump, all_of, extra=n)] for n in (8, 12)}
    cases = {
        "version 9": ggsn_bytes(memory_bytes(one), tokens=range(30)),
        "version 9, values transposed": ggsn_bytes(memory_bytes(turned)),
        "version 9, cells shuffled": ggsn_bytes(memory_bytes(
            [stream(dump, all_of, order="shuffled")])),
        "version 9, shuffled and transposed": ggsn_bytes(memory_bytes(
            [stream(dump, all_of, order="shuffled", elem=2)])),
        "version 9, a stream a sequence": ggsn_bytes(memory_bytes(
            [*each, Cells([], [], [])])),
        "version 9, two numbers more a cell": ggsn_bytes(memory_bytes(extra[8])),
        "version 9 without streams": ggsn_bytes(memory_bytes(one, False)),
        "version 9 with outputs": ggsn_bytes(memory_bytes(one, False), outputs=3),
        "version 9 with no outputs": ggsn_bytes(memory_bytes(one), outputs=0),
        "version 10": ggsn_bytes(memory_bytes(one), version=10),
        "version 10, three numbers more": ggsn_bytes(memory_bytes(extra[12]),
                                                     version=10),
        "ggsq 2": ggsq_bytes(memory_bytes(one), tokens=[1, 2, 3]),
        "ggsq 3": ggsq_bytes(memory_bytes(extra[12]), version=3),
        "a sequence out of memory": sequence_bytes(memory_bytes(turned)),
    }
    for name, data in cases.items():
        path = write_bytes(f"{tmp}/state.bin", data)
        tap.equal(by_request(path, "--heads=4"), want, name)
    tap.equal(by_request(path, "--head-dim=8", "--block-size=7"), want,
              "heads by their width, blocks of 7")
    return cases


def check_transposed(tmp):
    """What is said of the layout is where the bytes are."""
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    path = write_bytes(f"{tmp}/state.bin",
                       ggsn_bytes(memory_bytes([stream(dump, [(0, "A")], elem=2)])))
    for kv, letter in enumerate("kv"):
        at = f"request=0,token=69,layer=3,head=2,kv={letter},dim=4"
        r = kvtool("where", "--json", f"--at={at}", "--heads=4", path)
        want = int(dump.tokens(dump.cells, "A")[kv, 3, 69, 2, 4])
        offset = r.json["matches"][0]["offset"] if r.code == 0 else -2
        with open(path, "rb") as f:
            f.seek(max(offset, 0))
            got = int.from_bytes(f.read(2), "little")
        tap.equal(got, want, f"transposed: the byte of {at}")
    for to in "nhd", "hnd", "rocm-paged":
        r = kvtool("relayout", "-f", "--verify", f"--to={to}", "--heads=4", "-o",
                   f"{tmp}/out.h5", path)
        tap.ok(r.code == 0 and by_request(f"{tmp}/out.h5") == by_request(
            path, "--heads=4"), f"transposed: relayout to {to}", r)


def check_latent(tmp):
    dump = oracle.dump("mla144/paged_bs16/mla_lbsc.bf16")
    held = stream(dump, list(enumerate(dump.tables)))
    path = write_bytes(f"{tmp}/state.bin", ggsq_bytes(memory_bytes([held])))
    tap.equal(by_request(path), by_request(dump.path), "latent rows, no values")


def made_up(shape, seed):
    some = np.random.default_rng(seed).integers(0, 1 << 16, shape, np.uint16)
    return some & 0xfbff		# a bit of every exponent is not set: no NaN


def snapshot_of(path, tmp, *options):
    """Groups and requests as a safetensors header of kvtool's has them."""
    r = kvtool("convert", "-f", *options, path, f"{tmp}/out.safetensors")
    if r.code:
        return None, r
    out = f"{tmp}/out.safetensors"
    return (oracle.manifest_in(out), oracle.safetensors_tensors(out)), r


def check_window(tmp):
    """Two caches, the second with the last tokens of other layers only."""
    L, T, H, D, W = 2, 53, 2, 8, 21
    full = [made_up((L, T, H * D), s) for s in (1, 2)]
    some = [made_up((L + 1, W, H * D), s) for s in (3, 4)]
    cells = [(t, [0]) for t in range(T)]
    memory = b"".join(memory_bytes([Cells(c, rows(k), rows(v), (F16, F16))])
                      for c, (k, v) in ((cells, full), (cells[-W:], some)))
    path = write_bytes(f"{tmp}/state.bin", ggsn_bytes(memory))
    found, r = snapshot_of(path, tmp, "--heads=2")
    if not tap.ok(found, "two caches are two groups", r):
        return
    manifest, tensors = found
    groups = {g.get("id", "g0"): g for g in manifest["groups"]}
    tap.equal((groups["g1"]["kind"], "window" in groups["g1"]),
              ("sliding_window", False), "the second one has a window, nobody knows which")
    for name, arrays, first in ("g0", full, 0), ("g1", some, T - W):
        _, shape, raw = tensors[name]
        a = np.frombuffer(raw, np.uint16).reshape(shape)     # L K B H? S D
        table = np.array(groups[name]["block_table"]["0"])
        order = manifest["groups"][0]["layout"]
        t = np.arange(first, T)
        a = a.reshape(a.shape[0], 2, -1, 16, H, D)
        got = a[:, :, table[t // 16], t % 16]                # L K T H D
        want = np.stack(arrays, axis=1).reshape(got.shape)
        tap.ok(np.array_equal(got, want), f"rows of {name} ({order})")
    runs("fsck finds nothing", "fsck", "--heads=2", path)
    r = kvtool("convert", "-f", "--heads=2", f"--set=window={W}", path, f"{tmp}/out.h5")
    d = kvtool("describe", "--json", f"{tmp}/out.h5")
    tap.equal(d.json["groups"][1].get("window"), W, "but one may be said")
    refused("none that needs more than there is", 3, f"needs token {T - W - 1}",
            "describe", "--heads=2", f"--set=window={W + 1}", path)


def check_uneven(tmp):
    """Layers of one cache whose heads are not as many: each kind is a group."""
    T, D = 19, 8
    cells = [(t, [0]) for t in range(T)]
    for heads in ([1, 2, 1, 1, 3], [2, 2, 1, 2, 1, 1, 2], [4, 1], [1, 1, 2]):
        for turned in (0, 2):
            k = [made_up((1, T, h * D), 10 + l) for l, h in enumerate(heads)]
            v = [made_up((1, T, h * D), 50 + l) for l, h in enumerate(heads)]
            held = Cells(cells, *([rows(a)[0] for a in half] for half in (k, v)),
                         (F16, F16), elem=turned)
            path = write_bytes(f"{tmp}/state.bin",
                               ggsq_bytes(memory_bytes([held]), version=3))
            name = f"heads {heads}" + ", transposed" * (turned > 0)
            found, r = snapshot_of(path, tmp, f"--head-dim={D}", f"--block-size={T}")
            if not tap.ok(found, f"{name}: is read", r):
                continue
            manifest, tensors = found
            kinds = list(dict.fromkeys(heads))
            tap.equal([g["id"] for g in manifest["groups"]],
                      ["g0" + "abc"[i] for i in range(len(kinds))], f"{name}: groups")
            for i, h in enumerate(kinds):
                mine = [l for l, n in enumerate(heads) if n == h]
                g = manifest["groups"][i]
                tap.equal((g["layer_ids"], g["layer_names"]),
                          (mine, [f"layers.{l}" for l in mine]), f"{name}: which layers")
                r = kvtool("relayout", "-f", "-q", "--to=kv-first-nhd", "-o",
                           f"{tmp}/one.safetensors", f"{tmp}/out.safetensors")
                one = oracle.safetensors_tensors(f"{tmp}/one.safetensors")
                want = np.stack([[k[l][0], v[l][0]] for l in mine])
                tap.ok(one[g["id"]][2] == want.tobytes(), f"{name}: {h} heads", r)
            runs(f"{name}: nothing is strange", "fsck", f"--head-dim={D}", path,
                 says="clean")
            refused(f"{name}: one number of heads", 3, "may be true of some only",
                    "describe", "--heads=2", path)
    k = [made_up((1, T, h * D), 10 + l) for l, h in enumerate(range(1, 29))]
    held = Cells(cells, *([rows(a)[0] for a in k] for _ in "kv"), (F16, F16))
    path = write_bytes(f"{tmp}/state.bin", ggsq_bytes(memory_bytes([held]), version=3))
    refused("too many kinds of layers", 4, "layers of more kinds", "describe",
            f"--head-dim={D}", path)


def check_quantised(tmp):
    """Blocks of 34 bytes for 32 elements, two heads of 64: 68 bytes a head."""
    L, T, H, n = 2, 32, 2, 68
    k, v = (made_up((L, T, H * n // 2), s).view(np.uint8) for s in (7, 8))
    cells = [(t, [0]) for t in range(T)]
    held = Cells(cells, rows(k), rows(v), (Q8_0, Q8_0))
    path = write_bytes(f"{tmp}/state.bin", ggsq_bytes(memory_bytes([held])))
    plain = np.stack([k, v]).reshape(2, L, 2, 16, H, n).transpose(1, 2, 3, 4, 0, 5)
    write_bytes(f"{tmp}/plain.bin", np.ascontiguousarray(plain).tobytes())
    same = whole(f"{tmp}/plain.bin", "--layout=nhd", "--dtype=uint8", "--layers=2",
                 "--blocks=2", "--block-size=16", "--heads=2", f"--head-dim={n}")
    tap.equal(whole(path, "--heads=2")[1], same[1], "quantised rows are bytes")
    runs("a head is a block", "describe", "--heads=4", path, says="q8_0")
    runs("quantised rows move", "relayout", "-f", "--verify", "--heads=2", "--to=hnd",
         "-o", f"{tmp}/out.h5", path)
    refused("but not apart", 4, "contiguous", "relayout", "-f", "--heads=2",
            "--to=L B K H D S", "-o", f"{tmp}/out.h5", path)
    held = Cells(cells, rows(k), None, (Q8_0, Q8_0))
    latent = write_bytes(f"{tmp}/latent.bin", ggsq_bytes(memory_bytes([held])))
    runs("quantised latent rows", "fsck", latent)
    runs("heads that would tear blocks apart stay one row", "describe", "--heads=8", path,
         says=("q8_0/16", "S 16 x D 136"))
    for fact, code, says in (("none", 0, "q8_0/plain"), ("hadamard", 0, "q8_0/k64/v64"),
                             ("k", 0, "q8_0/k64"), ("v64", 0, "q8_0/v64"),
                             ("k512/v64", 3, "rotated by 512"), ("k3", 2, "expected none")):
        r = kvtool("describe", "--heads=2", f"--set=rotation={fact}", path)
        tap.ok(r.code == code and says in r.out + r.err, f"rotation={fact}", r)
    runs("fsck cannot tell", "fsck", "--heads=2", path, says="warning: content.rotation")

    values = made_up((L, T, 64), 9)
    held = Cells(cells, rows(k), rows(values), (Q8_0, F16))
    path = write_bytes(f"{tmp}/state.bin", ggsq_bytes(memory_bytes([held])))
    found, r = snapshot_of(path, tmp, "--heads=2")
    if tap.ok(found, "keys and values of different types", r):
        manifest, tensors = found
        tap.equal([g["id"] for g in manifest["groups"]], ["g0.k", "g0.v"],
                  "they are groups of their own")
        tap.ok(tensors["g0.k"][2] == k.tobytes() and
               tensors["g0.v"][2] == values.tobytes(), "and have their bytes")


# ---- rotation ---------------------------------------------------------------

def sylvester(n):
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h / np.sqrt(n)


def blocks(x, bits):
    """q8_0 or q4_0 of rows of numbers, rounded as well as anybody may."""
    b = x.reshape(*x.shape[:-1], -1, 32)
    top = np.take_along_axis(b, np.abs(b).argmax(-1)[..., None], -1)
    d = (np.abs(top) / 127 if bits == 8 else top / -8).astype("<f2")
    q = np.rint(b / d.astype(float))
    if bits == 8:
        q = q.clip(-127, 127).astype(np.int8).view(np.uint8)
    else:
        q = (q + 8).clip(0, 15).astype(np.uint8)
        q = q[..., :16] | q[..., 16:] << 4
    out = np.concatenate([d.view(np.uint8), q], -1)
    return out.reshape(*x.shape[:-1], -1)


def rotated(x, dim, by):
    return (x.reshape(-1, by) @ sylvester(by)).reshape(x.shape) if by > 1 else x


def slots_of(found):
    return {h: (b["found"], b["turn"]) for g in found["groups"] if g["basis"]
            for h in ("keys", "values") for b in [g["basis"][h]] if b}


def check_rotation(tmp):
    """Told and found, keys and values apart, against the numbers in float32."""
    L, T, H = 2, 40, 2
    rng = np.random.default_rng(77)
    cells = [(t, [0]) for t in range(T)]
    plain, coded = f"{tmp}/plain.bin", f"{tmp}/coded.bin"

    def put(path, k, v, types):
        write_bytes(path,
                    ggsq_bytes(memory_bytes([Cells(cells, rows(k), rows(v), types)]),
                               version=3))

    for dim in (32, 64, 96, 128, 192, 256):
        x = [rng.standard_normal((L, T, H * dim)).astype("<f4") for _ in range(2)]
        put(plain, *x, (F32, F32))
        own = dim & -dim if dim % 64 == 0 else 1, 64 if dim % 64 == 0 else 1
        for bits, code in ((8, Q8_0), (4, Q4_0)):
            for turn in ((1, 1), own, (own[0], 1), (1, own[1])):
                k, v = (blocks(rotated(x[i], dim, turn[i]), bits) for i in range(2))
                put(coded, k, v, (code, code))
                name = f"{dim}, {bits} bits, rotated by {turn}"
                r = kvtool("diff", "--json", "--tolerance=auto", f"--head-dim={dim}",
                           plain, coded)
                want = {"keys": (True, turn[0]), "values": (True, turn[1])} \
                    if dim % 64 == 0 else {}
                tap.ok(r.code == 0 and slots_of(r.json) == want, f"{name}: found", r)
                told = "/".join(f"{h}{n}" for h, n in zip("kv", turn) if n > 1) or "none"
                r = kvtool("convert", "-f", "-q", "--decode=float64", f"--set=rotation={told}",
                           f"--head-dim={dim}", coded, f"{tmp}/told.safetensors")
                s = kvtool("diff", "--json", "--exact", f"--head-dim={dim}",
                           f"{tmp}/told.safetensors", coded)
                tap.ok(r.code == 0 and s.code == 0 and slots_of(s.json) == want,
                       f"{name}: told is what is found, to the bit", s)
        # one half alone is quantised
        for half in range(2):
            k, v = (blocks(rotated(a, dim, own[i]), 8) if i == half else
                    a.astype("<f2").view(np.uint8) for i, a in enumerate(x))
            put(coded, k, v, (Q8_0, F16) if half == 0 else (F16, Q8_0))
            r = kvtool("diff", "--json", "--tolerance=auto", f"--head-dim={dim}", plain,
                       coded)
            want = {("keys", "values")[half]: (True, own[half])} if dim % 64 == 0 else {}
            tap.ok(r.code == 0 and slots_of(r.json) == want, f"{dim}: {'kv'[half]} alone",
                   r)
            r = kvtool("fsck", f"--head-dim={dim}", coded)
            tap.equal((r.code, r.out.count("content.rotation")), (0, int(dim % 64 == 0)),
                      f"{dim}: fsck warns where it cannot tell")
    put(coded, *(blocks(rotated(a, dim, 64), 4) for a in x), (Q4_0, Q4_0))
    for fact, code, says in (
            ("hadamard", 1, "g0: differs"), ("none", 1, "g0: differs"),
            ("k64/v64", 0, "g0: within tolerance"), ("k512/v64", 3, "rotated by 512"),
            ("k3", 2, "expected none, hadamard"), ("k/", 2, "expected none"),
            ("k1", 2, "expected none"), ("v64/k64/", 2, "expected none"),
            ("k64/k64", 2, "expected none"), ("x64", 2, "expected none"),
            ("k64k64", 2, "expected none")):
        r = kvtool("diff", "--tolerance=auto", f"--head-dim={dim}",
                   f"--b=set=rotation={fact}", plain, coded)
        tap.ok(r.code == code and says in r.out + r.err, f"rotation={fact}", r)
    refused("of float32 nothing is rotated", 2, "neither keys nor values are quantised",
            "describe", f"--head-dim={dim}", "--set=rotation=none", plain)
    other = [rng.standard_normal((L, T, H * dim)) for _ in range(2)]
    put(coded, *(blocks(a, 8) for a in other), (Q8_0, Q8_0))
    r = kvtool("diff", "--tolerance=auto", f"--head-dim={dim}", plain, coded)
    tap.ok(r.code == 1 and r.out.count("none found, taken as stored") == 2,
           "other numbers: no basis is found, and that is said", r)
    put(plain, *(blocks(a, 4) for a in other), (Q4_0, Q4_0))
    refused("neither side says it", 3, "is not said", "diff", "--tolerance=auto",
            f"--head-dim={dim}", plain, coded)
    runs("told of both", "diff", "--tolerance=rel-l2=.2", f"--head-dim={dim}",
         "--set=rotation=hadamard", plain, coded,
         says="rotated hadamard in A, hadamard in B")
    # builds that wrote outputs are older than rotation
    held = Cells(cells, *(rows(blocks(a, 8)) for a in other), (Q8_0, Q8_0))
    write_bytes(coded, ggsn_bytes(memory_bytes([held]), outputs=1))
    r = kvtool("describe", f"--head-dim={dim}", coded)
    s = kvtool("describe", f"--head-dim={dim}", "--set=rotation=k64", coded)
    tap.ok("q8_0/plain" in r.out and "q8_0/k64" in s.out, "outputs tell, unless told", r)
    # 4 heads of 80 numbers, 2.5 blocks each
    x = [rng.standard_normal((L, T, 4 * 80)).astype("<f4") for _ in range(2)]
    put(plain, *x, (F32, F32))
    put(coded, *(blocks(a, 8) for a in x), (Q8_0, Q8_0))
    r = kvtool("convert", "-f", "-q", "--decode=float32", "--heads=4", coded,
               f"{tmp}/rows.h5")
    s = kvtool("diff", "--tolerance=rel-l2=.01", "--heads=4", plain, f"{tmp}/rows.h5")
    tap.ok(r.code == 0 and s.code == 0 and "4 heads x 160" in s.out,
           "heads that cut blocks are told apart as numbers", s)
    refused("how, is said", 3, "convert --decode=float32 of B", "diff",
            "--tolerance=auto", "--heads=4", plain, coded)
    for args in (["--heads=0:1"], ["--tp-size=2", "--tp-rank=1"]):
        refused(f"{args[0]}: not divided", 4, "4 heads are one row", "slice", "-f",
                "--head-dim=80", *args, "-o", f"{tmp}/part.h5", coded)
    put(coded, blocks(x[0], 8), x[1].astype("<f2").view(np.uint8), (Q8_0, F16))
    for args in (["fsck"], ["digest"], ["describe", "--stats"]):
        runs(f"keys in rows, values by head: {args[0]}", *args, "--heads=4", coded)


def check_states(tmp):
    """Recurrent layers, alone and beside a cache; of more layers than have any."""
    L, T = 3, 20
    k, v = (made_up((2, T, 16), s) for s in (1, 2))
    cells = [(t, [7]) for t in range(T)]
    r, s = (np.random.default_rng(n).standard_normal((L, 2, 5 + n), np.float32)
            for n in (1, 2))
    states = recurrent_bytes([(19, [7]), (4, [3])], r, s, layers=9)
    memory = memory_bytes([Cells(cells, rows(k), rows(v), (F16, F16))])
    for what, data, options in (("alone", states, ()),
                                ("beside a cache", memory + states, ("--heads=2",))):
        path = write_bytes(f"{tmp}/state.bin", ggsn_bytes(data, version=10))
        found, why = snapshot_of(path, tmp, *options)
        if not tap.ok(found, f"states {what}", why):
            continue
        manifest, tensors = found
        got = [np.frombuffer(tensors[g][2], np.float32).reshape(L, -1, a.shape[2])
               for g, a in (("r", r), ("s", s))]
        tap.ok(np.array_equal(got[0][:, -2:], r) and np.array_equal(got[1][:, -2:], s),
               f"states {what}: their bytes")
        tables = manifest["groups"][-1]["block_table"]
        null = what != "alone"      # of tokens that sequence 3 does not have
        tap.equal((tables, manifest["num_tokens"]),
                  ({"3": [1 + null], "7": [null]}, {"3": 5, "7": T}),
                  f"states {what}: requests")
    none = np.zeros((L, 2, 0), np.float32)
    path = write_bytes(f"{tmp}/state.bin",
                       ggsn_bytes(recurrent_bytes([(19, [7]), (4, [3])], r, none),
                                  version=10))
    q = kvtool("fsck", path)
    d = kvtool("describe", path)
    tap.ok(q.code == 0 and d.out.count("opaque") == 1,
           "convolution states without others", d)


def check_tokens(tmp):
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    memory = memory_bytes([stream(dump, [(0, "C")])])
    n = dump.ntokens["C"]
    for what, tokens, known in (("ids", range(n), True), ("too few", range(n - 1), False),
                                ("too many", range(n + 1), False),
                                ("a blob", [0x31415926 + i for i in range(n)], False)):
        path = write_bytes(f"{tmp}/state.bin", ggsq_bytes(memory, tokens=list(tokens)))
        found, r = snapshot_of(path, tmp, "--heads=4")
        ids = found and found[0].get("token_ids", {}).get("0")
        tap.ok(found and bool(ids) == known and (not known or ids == list(tokens)),
               f"numbers stored with the state: {what}", r)


def check_refusals(tmp):
    small = made_up((2, 3, 8), 1)
    cells = [(t, [0]) for t in range(3)]
    good = Cells(cells, rows(small), rows(small))

    def state(memory, **how):
        return ggsn_bytes(memory, **how)

    uneven = Cells(cells, rows(small)[:1] + rows(small[1:, :, :4]), rows(small))
    for what, data, status, part in (
            ("version 8", state(memory_bytes([good]), version=8), 4, "version 8"),
            ("version 11", state(memory_bytes([good]), version=11), 4, "9 or 10"),
            ("ggsq 4", ggsq_bytes(memory_bytes([good]), version=4), 4, "2 or 3"),
            ("states, or a cache of one token", state(recurrent_bytes()), 3,
             "can be read as"),
            ("states of different widths", state(recurrent_bytes(
                r=[np.zeros((1, n), np.float32) for n in (2, 3)]), version=10), 4,
             "differ"),
            ("layers of different widths", state(memory_bytes([uneven])), 3,
             "may be true of some only; give --head-dim"),
            ("an unknown type", state(memory_bytes(
                [Cells(cells, rows(small), rows(small), (99, 99))])), 4, "99"),
            ("cells without layers", state(memory_bytes([Cells(cells, [], [])])), 3,
             "3 cells, but no layers"),
            ("nothing", state(b""), 3, "fits the length"),
            ("a byte more", state(memory_bytes([good]) + b"x"), 3,
             "may end at byte 313, but the file has 314 bytes")):
        path = write_bytes(f"{tmp}/state.bin", data)
        r = kvtool("describe", "--heads=2", path)
        tap.ok(r.code == status and part in r.err and r.err.count("\n") == 1,
               f"refused: {what}", r)
    path = write_bytes(f"{tmp}/state.bin", state(memory_bytes([good])))
    for options, status, part in (((), 3, "--heads"), (("--heads=3",), 3, "--heads is 3, but tokens have 8"),
                                  (("--heads=2", "--head-dim=5"), 3, "5"),
                                  (("--heads=2", "--layout=nhd"), 3, "--layout")):
        refused(f"options {options}", status, part, "describe", *options, path)


# ---- what is whole of a file, and whose it is ---------------------------------

def ik_bytes(k, v, words, version=3, values=0):
    """One sequence of ik_llama.cpp: no streams, no sequences, words behind the rows."""
    out = u32(0x67677371, version, 0, len(k[0]))
    out += b"".join(u32(t, 0) for t in range(len(k[0]))) + u32(values, len(k))
    for half in (k, v)[:1 + (values < 2)]:
        for layer in half:
            out += struct.pack("<iQ", F16, len(layer[0])) + b"".join(layer)
    return out + u32(*words)


def check_wholeness(tmp):
    L, T = 3, 9
    k, v = (made_up((L, T, 16), s) for s in (1, 2))
    cells = [(t, [0]) for t in range(T)]
    cache = Cells(cells, rows(k), rows(v), (F16, F16))
    good = ggsq_bytes(memory_bytes([cache]), version=3, tokens=range(T))
    path = write_bytes(f"{tmp}/state.bin", good)
    want = by_request(path, "--heads=2")

    # a program's own copy of what ggsn has behind the tokens
    for version, how in ((9, {"outputs": 2}), (9, {}), (10, {})):
        whole_state = ggsn_bytes(memory_bytes([cache], version == 10 or not how),
                                 version=version, **how)[12:]
        write_bytes(path, whole_state)
        r = kvtool("describe", "--json", "--heads=2", path)
        out = r.json if r.code == 0 else {}
        tap.ok(by_request(path, "--heads=2") == want and out["model"] == "llama" and
               out["source_format"] == "llama.cpp state 0",
               f"llama_state_get_data(), as of version {version} {how}", r)

    # cut anywhere: no byte of it is read as something else, and the first that lacks is said
    row, start = 32 * T, len(good) - 2 * L * (12 + 32 * T)
    cells_at = 12 + 4 * T + 8
    for n in range(0, len(good), 5):
        write_bytes(path, good[:n])
        r = kvtool("describe", "--heads=2", path)
        layer, left = divmod(n - start, 12 + row)
        says = "is empty" if not n else "no format" if n < 8 else ""
        if n > start and left >= 12:
            half = "values" if layer >= L else "keys"
            whole = f"keys of all layers and values of {layer - L}" if layer >= L else \
                f"keys of {layer} layers, no values"
            says = f"it has {n} bytes, but {half} of layer {layer % L} of {L} would end " \
                   f"at byte {start + (layer + 1) * (12 + row)}; whole are {whole}, and " \
                   f"{(left - 12) // 32} of {T} rows of this layer"
        elif 12 <= n < 12 + 4 * T:
            says = f"it has {n} bytes, and {(n - 12) // 4} of its {T} token ids"
        elif cells_at + 12 <= n < cells_at + 12 * T:
            says = f"{(n - cells_at) // 12} of {T} are whole, {T} token ids before them"
        tap.ok(r.code == 3 and says in r.err, f"cut to {n} bytes of {len(good)}", r)
    for data, says in (
            (good + good, f"a state file of {len(good)} bytes, then another one: it has "
                          f"{2 * len(good)} bytes"),
            (good + bytes(7), f"may end at byte {len(good)}, but the file has "
                              f"{len(good) + 7} bytes")):
        write_bytes(path, data)
        refused(says, 3, says, "describe", "--heads=2", path)
    hollow = u32(0xaf143cd8, 0) + memory_bytes([cache])
    end = len(hollow) - 2 * L * (12 + row)
    parts = [hollow[end + i * (12 + row):][:12] for i in range(2 * L)]
    write_bytes(path, hollow[:end] + b"".join(parts))
    refused("rows that stayed on a device", 3, "LLAMA_STATE_SEQ_FLAGS_ON_DEVICE",
            "describe", "--heads=2", path)
    write_bytes(path,
                u32(0xaf143cd8, 0) +
                recurrent_bytes([(8, [])],
                                *(np.ones((2, 1, 5), np.float32) for _ in "rs")))
    r = kvtool("describe", path)
    tap.ok(r.code == 0 and "states alone: of a recurrent model, or a part" in r.out and
           r.out.count("after token 8 of request 0; nothing earlier can be restored") == 2,
           "states alone, and of which token", r)
    late = [(t + 20, [0]) for t in range(T)]
    write_bytes(path,
                u32(0xaf143cd8, 0) +
                memory_bytes([Cells(late, rows(k), rows(v), (F16, F16))]))
    r = kvtool("describe", "--heads=2", path)
    s = kvtool("describe", "--heads=2", "--set=window=9", path)
    tap.ok("or without its first 20 tokens" in r.out and "window alone" not in s.out,
           "a window alone, or a sequence without its beginning", r)


def check_forks(tmp):
    L, T = 2, 7
    k, v = (rows(made_up((L, T, 16), s)) for s in (1, 2))
    generator = b" ".join(b"%d" % n for n in
                          np.random.default_rng(3).integers(0, 2 ** 32, 625))
    session = ggsn_bytes(b"", version=10) + \
        u32(len(generator)) + generator + bytes(20) + ik_bytes(k, v, [0])[12:]
    for what, data in (
            ("3, since 2026-02", ik_bytes(k, v, [0])), ("a session", session),
            ("3, with two words", ik_bytes(k, v, [0, 0])),
            ("3, with states", ik_bytes(k, v, [1]) + bytes(40)),
            ("3, without values", ik_bytes(k, v, [0], values=2)),
            ("3, of windows", u32(0x67677371, 3, 0, 0x53574143) + bytes(64)),
            ("4, since 2026-07", ik_bytes(k, v, [0, 0], version=4))):
        path = write_bytes(f"{tmp}/state.bin", data)
        refused(f"ik_llama.cpp: {what}", 4, "ik_llama.cpp", "describe", "--heads=2", path)
    # its older layout is that of llama.cpp
    path = write_bytes(f"{tmp}/state.bin", ik_bytes(k, v, [], version=2))
    runs("version 2 of both is one layout", "describe", "--heads=2", path,
         says="7 tokens")


oracle.run(check_readings, check_transposed, check_latent, check_window, check_uneven,
           check_quantised, check_rotation, check_states, check_tokens, check_refusals,
           check_wholeness, check_forks)
