#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_shrink.py - is a case right, is it the smallest, and whose is it?

Dumps are made in numpy, damaged in numpy, and shrunk.  Values of the case, read with
h5py, must be those of the whole at the numbers that the case says, bit for bit; diff must
see a difference in it, and the fault that explains the whole, if there is one.  Then each
layer, request and block is left out by kvtool slice, and a token and a head at either end:
nothing must be left of the difference, or of the fault.  Names that the dumps had, of any
kind, must not be in any file of the case.
"""
import glob
import json
import os
import re
import sys

import numpy as np

from oracle import KVTOOL, kvtool, read_bytes, read_json, run, tap, write_json, write_text

os.environ["HDF5_PLUGIN_PATH"] = os.environ.get("KVT_PLUGIN_DIR", "build/plugin")
os.environ["PATH"] = os.path.dirname(KVTOOL) + ":" + os.environ["PATH"]

import h5py                                                  # noqa: E402


L, B, S, H, D = 6, 24, 4, 5, 8
REQUESTS = {"secret-one": (21, 41), "secret-two": (3, 30), "secret-three": (0, 12)}
SECRET = ("secret", "classified-model", "ghost.layers", "private-note", "whose-pool")


def tables(rng):
    """Blocks of each request, all different; block 0 is nobody's."""
    free = list(rng.permutation(np.arange(1, B)))
    out = {}
    for name, (_, ntokens) in REQUESTS.items():
        n = -(-ntokens // S)
        out[name], free = [int(b) for b in free[:n]], free[n:]
    return out


def write(path, values, blocks):
    """[L, B, S, H, 2, D] of float16, and its manifest, full of names."""
    np.save(path, values.reshape(L, B, S, H, 2 * D))
    side = {"file": os.path.basename(path), "layout": "nhd", "dtype": "float16",
            "sizes": {"layers": L, "num_blocks": B, "block_size": S, "num_kv_heads": H,
                      "head_dim": D},
            "model": "classified-model", "note": "private-note", "pool": "whose-pool",
            "layer_names": [f"ghost.layers.{i}" for i in range(L)]}
    if blocks:
        side["block_table"] = blocks
        side["num_tokens"] = {name: REQUESTS[name][1] for name in blocks}
        side["token_ids"] = {name: list(range(70000, 70000 + REQUESTS[name][1]))
                             for name in blocks}
    write_json(path[:-4] + ".json", side)


# ---- faults, on [L, B, S, H, 2, D] --------------------------------------------------

def slots(blocks, name, begin, end):
    return [(blocks[name][t // S], t % S) for t in range(begin, end)]


def exchanged_heads(v, blocks, rng):
    a, b = sorted(rng.choice(H, 2, replace=False))
    l = rng.integers(L)
    v[l][:, :, [a, b]] = v[l][:, :, [b, a]]


def swap_kv(v, blocks, rng):
    v[:] = v[:, :, :, :, ::-1].copy()


def one_bit(v, blocks, rng):
    name = rng.choice(list(blocks))
    b, s = slots(blocks, name, 0, REQUESTS[name][1])[rng.integers(REQUESTS[name][1])]
    at = (rng.integers(L), b, s, rng.integers(H), rng.integers(2), rng.integers(D))
    v.view(np.uint16)[at] ^= 1


def lost_tokens(v, blocks, rng):
    for b, s in slots(blocks, "secret-one", 17, 30):
        v[2, b, s, 2:4] = 0


def wrong_layer(v, blocks, rng):
    a, b = rng.choice(L, 2, replace=False)
    v[a] = v[b]


def noise_in_two(v, blocks, rng):
    for l, name in ((1, "secret-two"), (4, "secret-three")):
        for b, s in slots(blocks, name, 5, 9):
            v[l, b, s] += 1


FAULTS = (exchanged_heads, exchanged_heads, swap_kv, one_bit, one_bit, lost_tokens,
          wrong_layer, noise_in_two)

# ---- the case ---------------------------------------------------------------------


def fault_of(a, b):
    """(exit status, the fault that explains it, or None)"""
    r = kvtool("diff", "--json", a, b)
    if r.code not in (0, 1):
        return r.code, None
    text = kvtool("diff", a, b).out
    found = re.search(r"^  fault +([a-z-]+)[: ]", text, re.M)
    return r.code, found[1] if found and found[1] not in ("none", "several") else None


def check_values(name, path, whole, values, blocks):
    with h5py.File(path, "r") as f:
        groups = []
        f.visititems(lambda n, o: groups.append(o.parent) if n.endswith("/data") else None)
        group = groups[0]
        data = group["data"][...]
        layers = group["layer_ids"][...] if "layer_ids" in group else np.arange(L)
        ids = group["block_ids"][...] if "block_ids" in group else np.arange(B)
        first = int(group.attrs["head_start"])
    n = len(layers), len(ids), S, -1, 2, D
    data = data.view(np.uint16).reshape(n)
    want = values.view(np.uint16)[layers][:, ids][:, :, :, first:first + data.shape[3]]
    tap.ok(np.array_equal(data, want), f"{name}: values of {os.path.basename(path)}",
           f"layers {layers}, blocks {ids}, heads from {first}")


def smaller(case):
    """(what is left out, options of slice) of everything that can be left out alone."""
    d = json.loads(kvtool("describe", "--json", "--blocks", f"{case}/a.h5").out or
                   kvtool("describe", "--json", f"{case}/a.h5").out)
    group = d["groups"][0]

    def but(ids):
        for out in ids if len(ids) > 1 else ():
            yield out, ",".join(str(i) for i in ids if i != out)

    layers = group["layer_ids"] or list(range(group["layers"]))
    yield from ((f"layer {i}", f"--layers={rest}") for i, rest in but(layers))
    with h5py.File(f"{case}/a.h5", "r") as f:
        groups = []
        f.visititems(lambda n, o: groups.append(o.parent) if n.endswith("/data") else None)
        ids = [int(i) for i in groups[0]["block_ids"][...]]
    yield from ((f"block {i}", f"--blocks={rest}") for i, rest in but(ids))
    names = [r["id"] for r in d["requests"]]
    for out in names if len(names) > 1 else ():
        yield f"request {out}", [f"--request={n}" for n in names if n != out]
    start, n = group["head_start"], group["heads"]
    if n > 1:
        yield "the first head", f"--heads={start + 1}:{start + n}"
        yield "the last head", f"--heads={start}:{start + n - 1}"
    begin = min(r["first_token"] for r in d["requests"])
    end = max(r["first_token"] + r["tokens"] for r in d["requests"])
    if end - begin > 1:
        yield "the first token", f"--tokens={begin + 1}:{end}"
        yield "the last token", f"--tokens={begin}:{end - 1}"


def check_smallest(name, case, fault):
    wrong, n = [], 0
    for what, options in smaller(case):
        n += 1
        options = options if isinstance(options, list) else [options]
        parts = []
        for side in "ab":
            parts.append(f"{case}/less-{side}.h5")
            r = kvtool("slice", "-qf", "--no-sync", *options, "-o", parts[-1],
                       f"{case}/{side}.h5")
            if r.code:
                break
        if r.code:
            continue
        status, left = fault_of(*parts)
        if status == 1 and (not fault or left == fault):
            wrong.append(what)
    for path in glob.glob(f"{case}/less-*"):
        os.unlink(path)
    tap.equal(wrong, [], f"{name}: nothing can be left out alone (of {n})")


def check_names(name, case):
    found = []
    for path in sorted(glob.glob(f"{case}/*")):
        data = read_bytes(path)
        found += [(os.path.basename(path), s) for s in SECRET if s.encode() in data]
    text = kvtool("describe", "--json", f"{case}/a.h5").out
    found += [s for s in SECRET if s in text]
    tap.equal(found, [], f"{name}: no name of the whole is in it")
    with h5py.File(f"{case}/a.h5", "r") as f:
        ids = []
        f.visit(lambda n: ids.append(n) if "token_ids" in n else None)
    tap.equal(ids, [], f"{name}: nor ids of tokens")


def check_fault(tmp, number, fault, seed):
    rng = np.random.default_rng(seed)
    blocks = tables(rng)
    good = rng.standard_normal((L, B, S, H, 2, D)).astype(np.float16)
    bad = good.copy()
    fault(bad, blocks, rng)
    a, b, case = f"{tmp}/a{number}.npy", f"{tmp}/b{number}.npy", f"{tmp}/case{number}"
    name = f"{fault.__name__} {number}"
    write(a, good, blocks)
    write(b, bad, blocks)
    status, cause = fault_of(a, b)
    if not tap.equal(status, 1, f"{name}: the whole differs"):
        return
    r = kvtool("shrink", "--json", "-o", case, a, b)
    if not tap.equal(r.code, 0, f"{name}: shrink"):
        print(r.err)
        return
    said = r.json
    tap.equal(said["fault"], cause, f"{name}: it keeps the fault {cause}")
    tap.equal(fault_of(f"{case}/a.h5", f"{case}/b.h5"), (1, cause),
              f"{name}: and diff finds it in the case")
    check_values(name, f"{case}/a.h5", a, good, blocks)
    check_values(name, f"{case}/b.h5", b, bad, blocks)
    check_names(name, case)
    check_smallest(name, case, cause)


# ---- with a command, and what else a dump can be ----------------------------------


def check_while(tmp):
    """A program that fails where a layer, a head and a token meet."""
    rng = np.random.default_rng(9)
    blocks = tables(rng)
    values = rng.standard_normal((L, B, S, H, 2, D)).astype(np.float16)
    b, s = slots(blocks, "secret-two", 13, 14)[0]
    values[3, b, s, 2, 1, 5] = np.nan
    write(f"{tmp}/nan.npy", values, blocks)
    write_text(f"{tmp}/look.py",
               "import os, sys\nimport h5py, numpy as np\n" "def look(n, o):\n"
               "    if n.endswith('/data') and np.isnan(o[...].astype(float)).any():\n"
               "        sys.exit(9)\n" "if os.environ['A'].endswith('npy'):\n"
               "    sys.exit(9)\n" "h5py.File(os.environ['A'], 'r').visititems(look)\n")
    r = kvtool("shrink", "--json", "-o", f"{tmp}/nan",
               f"--while={sys.executable} {tmp}/look.py", f"{tmp}/nan.npy")
    if not tap.equal(r.code, 0, "a program that looks at values"):
        return print(r.err)
    said = r.json
    tap.equal((said["status"], said["after"]["layers"], said["after"]["heads"],
               said["after"]["blocks"], said["after"]["tokens"]), (9, 1, 1, 1, 1),
              "it is left with one of each")
    check_values("nan", f"{tmp}/nan/a.h5", None, values, blocks)
    check_names("nan", f"{tmp}/nan")


def check_pool(tmp):
    """Without requests: by blocks, which are the only ones that differ."""
    rng = np.random.default_rng(5)
    good = rng.standard_normal((L, B, S, H, 2, D)).astype(np.float16)
    bad = good.copy()
    bad[2, 7], bad[2, 19] = good[2, 19], good[2, 7]
    for name, values in ("pa", good), ("pb", bad):
        write(f"{tmp}/{name}.npy", values, {})
    r = kvtool("shrink", "--json", "-o", f"{tmp}/pool", f"{tmp}/pa.npy", f"{tmp}/pb.npy")
    tap.equal(r.code, 0, "a pool without requests")
    after = r.json["after"]
    tap.ok(after["layers"] == 1 and after["blocks"] <= 2, "it is left with its blocks", after)
    check_values("pool", f"{tmp}/pool/a.h5", None, good, {})
    check_values("pool", f"{tmp}/pool/b.h5", None, bad, {})


def check_layouts(tmp):
    """Sides of other formats and layouts, and --tokens."""
    rng = np.random.default_rng(6)
    blocks = tables(rng)
    good = rng.standard_normal((L, B, S, H, 2, D)).astype(np.float16)
    bad = good.copy()
    exchanged_heads(bad, blocks, rng)
    write(f"{tmp}/la.npy", good, blocks)
    write(f"{tmp}/lb.npy", bad, blocks)
    kvtool("relayout", "-q", "--to=hnd", f"{tmp}/lb.npy", f"{tmp}/lb.safetensors")
    kvtool("relayout", "-q", "--to=cross-hnd", f"{tmp}/la.npy", f"{tmp}/la.h5")
    r = kvtool("shrink", "--json", "--tokens", "-o", f"{tmp}/lay", f"{tmp}/la.h5",
               f"{tmp}/lb.safetensors")
    tap.equal(r.code, 0, "two formats and layouts")
    tap.equal(r.json["fault"], "swap-heads", "the fault is that of the whole")
    tap.equal(fault_of(f"{tmp}/lay/a.h5", f"{tmp}/lay/b.h5"), (1, "swap-heads"),
              "and of the case")
    with h5py.File(f"{tmp}/lay/a.h5", "r") as f:
        ids = []
        f.visititems(lambda n, o: ids.extend(o[...].ravel()) if "token_ids" in n else None)
    tap.ok(len(ids) == 1 and ids[0] >= 70000, "--tokens keeps the ids of what is left", ids)


def check_paired(tmp):
    """Requests that B knows by other names are those of A in the case, too."""
    rng = np.random.default_rng(3)
    blocks = tables(rng)
    good = rng.standard_normal((L, B, S, H, 2, D)).astype(np.float16)
    bad = good.copy()
    bad[3][:, :, [1, 3]] = bad[3][:, :, [3, 1]]
    write(f"{tmp}/na.npy", good, blocks)
    write(f"{tmp}/nb.npy", bad, blocks)
    side = read_json(f"{tmp}/nb.json")
    del side["token_ids"]
    for key in "block_table", "num_tokens":
        side[key] = {f"{name}-5e1f{i}": side[key][name] for i, name in enumerate(REQUESTS)}
    write_json(f"{tmp}/nb.json", side)
    cause = fault_of(f"{tmp}/na.npy", f"{tmp}/nb.npy")
    tap.equal(cause, (1, "swap-heads"), "other names: the whole pairs")
    r = kvtool("shrink", "--json", "-o", f"{tmp}/paired", f"{tmp}/na.npy", f"{tmp}/nb.npy")
    if not tap.equal(r.code, 0, "other names: shrink"):
        return print(r.err)
    after = r.json["after"]
    tap.equal((after["requests"], after["tokens"]), (1, 1), "requests are left out of both")
    tap.equal(fault_of(f"{tmp}/paired/a.h5", f"{tmp}/paired/b.h5"), cause,
              "and the one that is left pairs by its new name")
    check_names("paired", f"{tmp}/paired")


def check_cost(tmp):
    """Two of the layers matter; what is looked at in all is a few times the whole."""
    rng = np.random.default_rng(4)
    blocks = tables(rng)
    write(f"{tmp}/cost.npy", rng.standard_normal((L, B, S, H, 2, D)).astype(np.float16),
          blocks)
    write_text(f"{tmp}/weigh.py",
               "import os, subprocess, sys, json\n" "a = os.environ['A']\n"
               "d = json.loads(subprocess.run([sys.argv[2], 'describe', '--json', a],\n"
               "                              capture_output=True).stdout)\n"
               "g = d['groups'][0]\n" "print(g['layers'] * g['blocks'] * g['heads'], "
               "file=open(sys.argv[1], 'a'))\n"
               "ids = g['layer_ids'] or list(range(g['layers']))\n"
               "sys.exit(7 if {1, 4} <= set(ids) else 0)\n")
    r = kvtool("shrink", "--json", "-o", f"{tmp}/cost",
               f"--while={sys.executable} {tmp}/weigh.py {tmp}/sizes {KVTOOL}",
               f"{tmp}/cost.npy")
    if not tap.equal(r.code, 0, "two layers that matter together"):
        return print(r.err)
    tap.equal(r.json["after"]["layers"], 2, "are left")
    with open(f"{tmp}/sizes", encoding="utf-8") as f:
        sizes = [int(line) for line in f]
    tap.ok(sum(sizes) < 5 * sizes[0], "halves of all axes come before single layers",
           f"{sum(sizes) / sizes[0]:.1f} times the whole, in {len(sizes)} parts")


def main(tmp):
    for number, fault in enumerate(FAULTS):
        check_fault(tmp, number, fault, 100 + number)
    check_while(tmp)
    check_pool(tmp)
    check_layouts(tmp)
    check_paired(tmp)
    check_cost(tmp)


run(main)
