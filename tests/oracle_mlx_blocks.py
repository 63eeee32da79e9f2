#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_mlx_blocks.py - folders of blocks that mlx-vlm and oMLX would have kept, made up
here: trees of prefixes, cut into files in any order, some of them lost; each request must
hold the tokens from its first block to one that none follows, and no other block is in one
"""
import hashlib
import json
import os
import random
import shutil

import numpy as np

import oracle
from foreign_files import safetensors_bytes
from oracle import kvtool, read_bytes, refused, runs, tap, write_bytes
from plain_files import headed

CASES = 160 // oracle.SHARE
TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}


# ---- what is kept -----------------------------------------------------------


class Model:
    """Layers, the heads and widths of each, and a type."""

    def __init__(self, rng):
        h, d = rng.choice((1, 2, 3)), rng.choice((4, 8))
        kinds = {"plain": (h, d, d), "latent": (1, 8, 2), "apart": (2, 4, 6)}
        self.kind = rng.choice(("plain", "plain", "plain", "latent", "apart", "two"))
        first = kinds.get(self.kind, (h, d, d))
        other = (h + 1, d, d) if self.kind == "two" else first
        self.layers = [rng.choice((first, other)) for _ in range(rng.randint(1, 4))]
        self.type = rng.choice(list(TYPES))

    def values(self, seed, tokens):
        """[layer][half] -> [heads, tokens, elements]"""
        draw = np.random.default_rng(seed)
        bits = "u4" if self.type == "F32" else "u2"
        return [[draw.integers(1, 15000, (h, tokens, d)).astype(bits).view(TYPES[self.type])
                 for d in (k, v)] for h, k, v in self.layers]


class Block:
    def __init__(self, rng, model, parent, size):
        self.parent, self.size, self.children = parent, size, 0
        self.hash = rng.randrange(-1 << 63, 1 << 63) or 1
        self.ids = [rng.randrange(1 << 20) for _ in range(size)]
        self.values = model.values(rng.randrange(1 << 30), size)

    def chain(self):
        return (self.parent.chain() if self.parent else []) + [self]


def grow(rng, model, size):
    """A forest: most blocks continue the newest one, some begin anew or elsewhere."""
    blocks = []
    for _ in range(rng.randint(1, 14)):
        pick = rng.random()
        parent = None if not blocks or pick < .15 else (
            blocks[-1] if pick < .7 else rng.choice(blocks))
        blocks.append(Block(rng, model, parent, size))
    return blocks


# ---- files of mlx-vlm -------------------------------------------------------


def signed(n):
    return (n & (1 << 64) - 1).to_bytes(8, "little")


def arrays_of(model, parts, slots):
    """[layer][half] -> [1, heads, slots, elements], zeros behind the tokens"""
    out = []
    for l, (h, *widths) in enumerate(model.layers):
        out.append([])
        for half, d in enumerate(widths):
            a = np.zeros((1, h, slots, d), TYPES[model.type])
            at = 0
            for values in parts:
                n = values[l][half].shape[1]
                a[0, :, at:at + n] = values[l][half]
                at += n
            out[-1].append(a)
    return out


def shard(rng, model, blocks, size, major="layer"):
    room = -(-(len(blocks) * size + 1) // 8) * 8
    arrays = arrays_of(model, [b.values for b in blocks], room)
    if major == "token":
        tensors = {f"{n}_all": (model.type, np.stack([a[h][0].transpose(1, 0, 2)
                                                      for a in arrays], 1))
                   for h, n in enumerate("kv")}
    else:
        tensors = {f"{n}{l}": (model.type, arrays[l][h])
                   for l in range(len(arrays)) for h, n in enumerate("kv")}
    meta = {"layout": f"{major}_major_v2", "block_size": str(size),
            "num_layers": str(len(model.layers)), "segment_index": "0",
            "block_hashes": ",".join(str(b.hash) for b in blocks)}
    for i, b in enumerate(blocks):
        meta[f"b{i}_meta"] = json.dumps({
            "block_hash": b.hash, "parent_hash": b.parent.hash if b.parent else 0,
            "extra_hash": 0, "token_ids": b.ids})
    names = list(tensors)
    rng.shuffle(names)
    name = hashlib.sha256(b"".join(signed(b.hash) for b in blocks)).hexdigest()[:32]
    return f"shard_{name}.safetensors", safetensors_bytes({n: tensors[n] for n in names},
                                                          meta)


class Exact:
    """A whole cache, as a chain of one."""

    def __init__(self, rng, model):
        self.size, self.hash = rng.randint(1, 30), rng.randrange(1 << 60)
        self.ids = [rng.randrange(1 << 20) for _ in range(self.size)]
        self.values = model.values(rng.randrange(1 << 30), self.size)
        self.name = "exact_" + hashlib.sha256(signed(self.hash)).hexdigest()[:32]

    def chain(self):
        return [self]

    def file(self, model, kind="kv", **more):
        arrays = arrays_of(model, [self.values], self.size)
        meta = {"layout": "exact_cache_v1", "cache_hash": str(self.hash),
                "token_ids": ",".join(map(str, self.ids)),
                "num_entries": str(len(model.layers))}
        for l in range(len(model.layers)):
            meta |= {f"c{l}_kind": kind, f"c{l}_offset": str(self.size)} | {
                f"c{l}_{k}": str(v) for k, v in more.items()}
        return self.name + ".safetensors", safetensors_bytes(
            {f"c{l}_{n}": (model.type, arrays[l][h])
             for l in range(len(arrays)) for h, n in enumerate("kv")}, meta)


# ---- files of oMLX ----------------------------------------------------------


def omlx_hash(b):
    return hashlib.sha256(signed(b.hash)).hexdigest()


def omlx(model, b, version=3, name="tiny"):
    arrays = arrays_of(model, [b.values], b.size)
    words = ("state_0", "state_1") if version > 2 else ("keys", "values")
    tensors = {f"layer_{l}_{words[h]}": (model.type, arrays[l][h])
               for l in range(len(arrays)) for h in range(2)}
    meta = {"omlx_cache_format_version": str(version), "block_hash": omlx_hash(b),
            "token_count": str(b.size), "num_layers": str(len(arrays)),
            "model_name": name, "block_size": str(b.size),
            "layer_cache_types": json.dumps(["KVCache"] * len(arrays)),
            "layer_meta_states": json.dumps([[]] * len(arrays))}
    h = omlx_hash(b)
    return f"{h[0]}/{h}.safetensors", safetensors_bytes(tensors, meta)


def put(folder, name, data):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_bytes(path, data)
    return path


# ---- what kvtool says -------------------------------------------------------


def read(path, *options):
    """{request: (first, ids, [layer][half] -> [heads, tokens, elements])}, refusal, groups"""
    out = path.rstrip("/") + ".out.safetensors"
    r = kvtool("convert", "-f", *options, path, out)
    if r.code:
        return None, r, None
    manifest, groups = oracle.written_groups(out)
    layers, requests = {}, {}
    for g, (of, _, raw) in groups.values():
        s = g.get("sizes", manifest.get("sizes"))
        n = len(g["layer_ids"])
        a = np.frombuffer(raw, TYPES[of])
        table = g.get("block_table", manifest.get("block_table")) or {}
        halves = {"k": [0], "v": [1]}.get(g.get("id", "g0").partition(".")[2])
        if g["layout"] == "LBSC":
            a = a.reshape(n, 1, -1, 1, s["block_size"], a.size // (
                n * s["num_blocks"] * s["block_size"]))
            halves = ["row"]
        else:
            k = 1 if halves else 2
            a = a.reshape(n, k, s["num_blocks"], s["num_kv_heads"], s["block_size"], -1)
            halves = halves or [0, 1]
        for q, blocks in table.items():
            for i, l in enumerate(g["layer_ids"]):
                for j, half in enumerate(halves):
                    b = a[i, j][blocks]
                    rows = b.transpose(1, 0, 2, 3).reshape(b.shape[1], -1, b.shape[3])
                    layers.setdefault(q, {})[l, half] = rows[:, :manifest["num_tokens"][q]]
    for q, n in manifest.get("num_tokens", {}).items():
        requests[q] = (manifest.get("first_token", {}).get(q, 0),
                       manifest.get("token_ids", {}).get(q), layers[q])
    return requests, r, [g for g, _ in groups.values()]


def is_same(got, model, chain, first, ids=True):
    want_ids = [i for b in chain for i in b.ids] if ids else None
    if got[0] != first or got[1] != want_ids:
        return False
    for l, (h, k, v) in enumerate(model.layers):
        want = [np.concatenate([b.values[l][half] for b in chain], 1) for half in (0, 1)]
        if (l, "row") in got[2]:
            want = [np.concatenate(want, 2)]
        here = [got[2].get((l, half)) for half in ((0, 1) if len(want) > 1 else ("row",))]
        if any(a is None or a.shape != b.shape or a.tobytes() != b.tobytes()
               for a, b in zip(here, want)):
            return False
    return True


# ---- random folders ---------------------------------------------------------


def deal(rng, blocks):
    """Runs for files: of blocks that need not follow each other, some twice."""
    order = blocks[:]
    if rng.random() < .5:
        rng.shuffle(order)
    out = []
    while order:
        n = rng.randint(1, 5)
        out.append(order[:n])
        order = order[n:]
    if rng.random() < .2:
        out.append(rng.sample(blocks, min(2, len(blocks))))
    return out


def vlm_case(folder, seed):
    """Why it is wrong, or None."""
    rng = random.Random(seed)
    model, size = Model(rng), rng.choice((1, 4, 16))
    blocks, files = grow(rng, model, size), []
    for run in deal(rng, blocks):
        major = "token" if model.kind in ("plain", "latent") and rng.random() < .2 else "layer"
        files.append((run, shard(rng, model, run, size, major)))
    lost = [f for f in files if rng.random() < .2] if rng.random() < .5 else []
    kept = [f for f in files if f not in lost] or files
    here = {b.hash: b for run, _ in kept for b in run}
    below = f"{folder}/cache{seed % 3}" if rng.random() < .5 else folder
    for _, (name, data) in kept:
        put(below, name, data)
    caches = [Exact(rng, model) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
    for c in caches:
        put(below, *c.file(model))
    return check_tree(rng, folder, model, size, here, caches)


def check_tree(rng, folder, model, size, here, caches):
    leaves = [b for b in here.values() if not any(o.parent is b for o in here.values())]
    whole = {str(b.hash): (b.chain(), 0) for b in leaves
             if all(p.hash in here for p in b.chain())}
    tops, before = {}, {}
    for b in here.values():
        part = [b]
        while part[0].parent and part[0].parent.hash in here:
            part.insert(0, part[0].parent)
        tops[b.hash] = part
    missing = sorted({p[0].parent.hash for p in tops.values() if p[0].parent})
    orphans = [b for b in here.values() if tops[b.hash][0].parent]
    want = whole | {c.name: ([c], 0) for c in caches}
    options = []
    if missing and rng.random() < .5:
        for h in missing:
            before[h] = size * rng.randint(0, 3)
        options = ["--set=before=" + ",".join(f"{h}:{n}" for h, n in before.items())]
        want |= {str(b.hash): (tops[b.hash], before[tops[b.hash][0].parent.hash])
                 for b in leaves if tops[b.hash][0].parent}
    got, r, groups = read(folder, *options)
    if got is None:
        return f"{r}"
    if set(got) != set(want):
        return f"requests {sorted(got)}, expected {sorted(want)}"
    wrong = [q for q, (chain, first) in want.items()
             if not is_same(got[q], model, chain, first)]
    if wrong:
        return f"{wrong}: other tokens, {model.kind} {model.type} {options}"
    said = kvtool("describe", *options, folder)
    lost = len(orphans) if not before else 0
    if said.code or (f"{lost} block" in said.out.partition("unproven")[2]) != bool(lost):
        return f"{lost} orphans: {said}"
    return None


def omlx_case(folder, seed):
    rng = random.Random(seed)
    model, size = Model(rng), rng.choice((4, 16))
    blocks = grow(rng, model, size)
    for b in blocks:
        put(folder, *omlx(model, b, rng.choice((2, 3, 5))))
    got, r, _ = read(folder)
    want = {omlx_hash(b): [b] for b in blocks}
    if got is None or set(got) != set(want) or not all(
            is_same(got[q], model, chain, 0, False) for q, chain in want.items()):
        return f"each alone: {r}"
    leaves = [b for b in blocks if not any(o.parent is b for o in blocks)]
    order = put(folder + "-", "order", "".join(
        f"q{i} {' '.join(omlx_hash(p) for p in b.chain())}\n"
        for i, b in enumerate(leaves)).encode())
    got, r, _ = read(folder, f"--set=order={order}")
    if got is None or len(got) != len(leaves) or not all(
            is_same(got[f"q{i}"], model, b.chain(), 0, False)
            for i, b in enumerate(leaves)):
        return f"in order: {r}"
    return None


def check_random(tmp):
    for what, case in (("mlx-vlm", vlm_case), ("oMLX", omlx_case)):
        wrong = []
        for seed in range(CASES):
            folder = f"{tmp}/t"
            os.makedirs(folder)
            why = case(folder, seed)
            if why:
                wrong.append(f"{seed}: {why}")
            shutil.rmtree(folder)
            shutil.rmtree(folder + "-", ignore_errors=True)
        tap.equal(wrong[:3], [], f"{CASES} folders of {what}")


# ---- one by one -------------------------------------------------------------


def fixed(tmp, name="d", size=4):
    """Three blocks of a request in a file each, and their model."""
    rng = random.Random(5)
    model = Model(rng)
    model.layers, model.type, model.kind = [(2, 4, 4)] * 2, "F16", "plain"
    a = Block(rng, model, None, size)
    b = Block(rng, model, a, size)
    c = Block(rng, model, b, size)
    folder = f"{tmp}/{name}"
    shutil.rmtree(folder, ignore_errors=True)
    paths = [put(folder, *shard(rng, model, [x], size)) for x in (a, b, c)]
    return folder, paths, (a, b, c), model, rng


def change(path, old, new, count=1):
    data = read_bytes(path)
    assert old in data, (path, old)
    write_bytes(path, data.replace(old, new, count))


def header(path, edit, tensors=False):
    """Writes the file anew with other metadata, or tensors."""
    head, data = oracle.safetensors_parts(path)
    edit(head if tensors else head["__metadata__"])
    write_bytes(path, headed(head, data))


def check_damage(tmp):
    """Every damaged file is named, and nothing is read."""
    folder, paths, blocks, model, rng = fixed(tmp)
    name = os.path.basename(paths[1])

    def meta(key, value):
        return lambda m: m.update({key: value}) if value is not None else m.pop(key)

    def inner(key, value):
        def edit(m):
            b = json.loads(m["b0_meta"])
            b.update({key: value}) if value is not None else b.pop(key)
            m["b0_meta"] = json.dumps(b)
        return edit

    def tensor(key, new):
        return lambda head: head.update({new: head.pop(key)})

    cases = [
        ("no blocks", meta("block_hashes", ""), "block_hashes"),
        ("no list of hashes", meta("block_hashes", "12x"), "numbers with commas"),
        ("a comma too many", meta("block_hashes", f"{blocks[1].hash},"), "numbers with commas"),
        ("a hash of 65 bits", meta("block_hashes", str(1 << 64)), "numbers with commas"),
        ("another hash", meta("block_hashes", "12"), "in b0_meta"),
        ("blocks of no tokens", meta("block_size", "0"), "block_size"),
        ("no size of blocks", meta("block_size", None), "missing"),
        ("larger blocks", meta("block_size", "4096"), "token_ids"),
        ("blocks past the arrays", lambda m: (meta("block_size", "4096")(m),
                                              inner("token_ids", None)(m)), "slots"),
        ("no parent", inner("parent_hash", None), "parent_hash"),
        ("a parent in words", inner("parent_hash", "x"), "parent_hash"),
        ("nothing of a block", meta("b0_meta", None), "b0_meta"),
        ("no JSON of a block", meta("b0_meta", "{"), "b0_meta"),
        ("a token less", inner("token_ids", [1, 2, 3]), "token_ids"),
        ("another layout", meta("layout", "layer_major_v9"), "neither layout nor"),
        ("both hashes changed", lambda m: (meta("block_hashes", "12")(m),
                                           inner("block_hash", 12)(m)), "renamed"),
        ("a tensor of nothing", tensor("v1", "w1"), "k1"),
        ("a layer less", lambda h: (tensor("v1", "x7")(h), tensor("k1", "y7")(h)), "7"),
        ("another layer", lambda h: (tensor("v1", "v7")(h), tensor("k1", "k7")(h)), "7"),
    ]
    for what, edit, word in cases:
        fixed(tmp)
        header(paths[1], edit, "tensor" in what or "layer" in what)
        r = kvtool("describe", folder)
        tap.ok(r.code == 3 and word in r.err and name in r.err and r.err.count("\n") == 1,
               f"refused: {what}", r)
    fixed(tmp)
    os.truncate(paths[1], os.path.getsize(paths[1]) - 1)
    refused("refused: a file that was cut", 3, name, "describe", folder)
    fixed(tmp)
    put(folder, "notes.txt", b"mine")
    refused("refused: a file of somebody else", 3, "notes.txt", "describe", folder)
    fixed(tmp)
    header(paths[0], inner("parent_hash", blocks[2].hash))
    refused("refused: a circle", 3, "follows itself", "describe", folder)


def check_words(tmp):
    folder, paths, blocks, model, rng = fixed(tmp)
    a, b, c = blocks
    runs("a request of three files", "describe", folder,
         says=(f"{c.hash}: 12 tokens in 3 blocks", "mlx-blocks", "unused"))
    # --- the one in the middle is lost
    os.unlink(paths[1])
    runs("what follows a block that is not there", "describe", folder,
         says=(f"{a.hash}: 4 tokens in 1 block", "1 unused",
               f"the first is {c.hash}, after {b.hash}", f"before={b.hash}:N"))
    runs("and fsck says so", "fsck", folder,
         says=f"the first is {c.hash}, after {b.hash}")
    r = kvtool("describe", f"--set=before={b.hash}:8", folder)
    tap.ok(r.code == 0 and f"{c.hash}: 4 tokens" in r.out and "8" in r.out and
           "of no request" not in r.out, "with the tokens before it", r)
    for said, why in ((f"{b.hash}:6", "multiple of 4"), (f"{b.hash}", "expected BLOCK"),
                      ("7:4", "no block follows a missing one 7"),
                      (f"{b.hash}:x", "expected BLOCK"), (f"{b.hash}:8,7:4", "missing one 7")):
        refused(f"before={why}", 2, why, "describe", f"--set=before={said}", folder)
    # --- one file alone
    runs("a first file alone", "describe", paths[0], says=f"{a.hash}: 4 tokens")
    r = kvtool("describe", paths[2])
    tap.ok(r.code == 0 and "requests" not in r.out and "1 block is of no request" in r.out,
           "a later file alone", r)
    # --- leftovers
    data = read_bytes(paths[0])
    put(folder, os.path.basename(paths[0]).replace(".safetensors", ".77-140.safetensors"),
        data[:99])
    runs("a file that was not finished", "fsck", folder, says="file.leftover")


def check_choices(tmp):
    """Two caches in one folder, two models, caches that are more than keys and values."""
    root = f"{tmp}/two"
    for name in ("one", "other"):
        folder, _, blocks, model, rng = fixed(tmp, f"two/{name}")
    r = kvtool("describe", root)
    tap.ok(r.code == 3 and "--set cache=" in r.err.replace("=cache", " cache"),
           "two caches: asked", r)
    runs("one of two caches", "describe", "--set=cache=other", root, says="12 tokens")
    put(f"{root}/one", *Exact(rng, model).file(model, "rotating_kv", keep=4, max_size=12,
                                               idx=7))
    runs("a ring beside shards is said", "describe", f"{root}/one",
         says=("1 whole cache", "exact_"))
    for b, name in zip(blocks, ("a", "b", "a")):
        put(f"{tmp}/models", *omlx(model, b, name=name))
    refused("two models: asked", 3, ("model", "'a'", "'b'"), "describe", f"{tmp}/models")
    r = kvtool("describe", "--set=model=b", f"{tmp}/models")
    tap.ok(r.code == 0 and "model     b" in r.out and r.out.count("16 tokens") <= 1,
           "one of two models", r)
    for old, word in ((b'"KVCache\\", \\"KVCache', "RotatingKVCache"),):
        folder = f"{tmp}/ring"
        name, data = omlx(model, blocks[0])
        path = put(folder, name, data)
        header(path, lambda m: m.update(layer_cache_types=json.dumps(["KVCache", word])))
        refused("a layer of another class", 4, (word, os.path.basename(name)), "describe",
                folder)
    path = put(f"{tmp}/name", f"a/{'a' * 64}.safetensors", data)
    refused("another name", 3, ("renamed", "aaaa"), "describe", f"{tmp}/name")


oracle.run(check_random, check_damage, check_words, check_choices)
