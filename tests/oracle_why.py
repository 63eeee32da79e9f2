#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_why.py - kvtool why: each thing that it names, planted; and nothing where all is sound

Caches of why_model.py publish; prompts are those that they had.  In each case one thing is
made wrong - an event, a prompt's salt, a file - and kvtool must name it, with its event,
and nothing else.  Beside each stands a sound case, of which nothing may be said.
KVT_SEED=N draws others, KVT_CASES=N more of each.
"""
import json
import os
import random

import prefix_model as names
import why_model as model
from oracle import kvtool, tap, workdir, write_bytes

SEED = int(os.environ.get("KVT_SEED", "1"))
CASES = int(os.environ.get("KVT_CASES", "4"))
folder = workdir()
count = 0
NOTES = {"stored-twice", "copy-stays", "restart"}


def put(data, ending):
    global count
    count += 1
    path = os.path.join(folder.name, f"{count}.{ending}")
    write_bytes(path, data)
    return path


def ask(*args):
    r = kvtool("why", "--json", *args)
    try:
        return r, json.loads(r.out)
    except ValueError:
        return r, {}


def tokens(rng, n):
    return [rng.randrange(70000) for _ in range(n)]


def drawn(rng, **more):
    """A cache with a dozen prompts behind it, and those prompts."""
    size = rng.choice([2, 4, 8])
    how = {"algorithm": rng.choice(["sha256", "sha256_cbor"]),
           "seed": rng.choice([None, "0", "7"])}
    engine = rng.choice(["vllm", "vllm-0.30"])
    cache = model.Cache(lambda t, **key: names.vllm(engine, t, size, **how, **key), size,
                        **{"room": 30, "rank": rng.choice([None, 0]), **more})
    prompts = []
    for _ in range(12):
        base = rng.choice(prompts)[:size * rng.randrange(1, 5)] if prompts and \
            rng.random() < 0.6 else []
        prompts.append(base + tokens(rng, size * rng.randrange(3, 8) + rng.randrange(size)))
        cache.request(prompts[-1])
    rule = [f"--engine={engine}", f"--block-size={size}", f"--hash={how['algorithm']}"]
    rule += [f"--seed={how['seed']}"] if how["seed"] else []
    return cache, prompts, rule


def option(prompt, name="p"):
    return f"--prompt={name}=" + ",".join(map(str, prompt))


# ---- events --------------------------------------------------------------------------

def find(rng, cache, want):
    """One of the events that are so: (number, batch, event)."""
    return rng.choice([x for x in model.numbered(cache.batches) if want(x[2])])


def is_stored(e):
    return e["type"] == "BlockStored" and e["medium"] == "GPU"


def number_of(cache, event):
    return next(n for n, _, e in model.numbered(cache.batches) if e is event)


def random_hash(rng):
    return rng.randbytes(32).hex()


def insert(cache, batch, after, event):
    batch["events"].insert(batch["events"].index(after) + 1, event)
    return number_of(cache, event)


def removal(rng, cache):
    return find(rng, cache, lambda e: e["type"] == "BlockRemoved")


def plant_lost(rng, cache):
    i = rng.randrange(1, len(cache.batches) - 1)
    del cache.batches[i]
    before = sum(len(b["events"]) for b in cache.batches[:i])
    return before, None


def plant_again(rng, cache):
    i = rng.randrange(2, len(cache.batches))
    cache.batches.insert(i, cache.batches[i - 1])
    return sum(len(b["events"]) for b in cache.batches[:i]), None


def plant_unstored(rng, cache):
    _, b, e = find(rng, cache, is_stored)
    h = random_hash(rng)
    return insert(cache, b, e, {"type": "BlockRemoved", "block_hashes": [h],
                                "medium": "GPU", "group_idx": e["group_idx"]}), h


def plant_elsewhere(rng, cache):
    _, b, e = find(rng, cache, is_stored)
    h = rng.choice(e["block_hashes"])
    return insert(cache, b, e, {
        "type": "BlockRemoved", "block_hashes": [h],
        "medium": rng.choice([None, "DISK", "STORAGE"]),
        "group_idx": e["group_idx"]}), h


def plant_other_group(rng, cache):
    _, b, e = find(rng, cache, is_stored)
    h = rng.choice(e["block_hashes"])
    return insert(cache, b, e, {"type": "BlockRemoved", "block_hashes": [h],
                                "medium": "GPU", "group_idx": 7}), h


def plant_twice(rng, cache):
    _, b, e = removal(rng, cache)
    return insert(cache, b, e, dict(e)), e["block_hashes"][0]


def plant_copy(rng, cache):
    """Computed anew, and one of both goes: vLLM's last block of a prompt."""
    _, b, e = find(rng, cache, is_stored)
    again = {**e, "block_hashes": e["block_hashes"][-1:],
             "parent_block_hash": (([e["parent_block_hash"]] + e["block_hashes"])[-2]),
             "token_ids": e["token_ids"][-e["block_size"]:]}
    insert(cache, b, e, again)
    return insert(cache, b, again, {
        "type": "BlockRemoved", "block_hashes": e["block_hashes"][-1:], "medium": "GPU",
        "group_idx": e["group_idx"]}), e["block_hashes"][-1]


def plant_parent(rng, cache):
    n, _, e = find(rng, cache, lambda e: is_stored(e) and e["parent_block_hash"])
    e["parent_block_hash"] = random_hash(rng)
    return n, e["parent_block_hash"]


def plant_partial(rng, cache):
    """A boundary inside a block, whose parent is one that was never told of."""
    _, b, e = find(rng, cache, is_stored)
    parent = random_hash(rng)
    return insert(cache, b, e, {**e, "block_hashes": [random_hash(rng)], "block_size": 1,
                                "parent_block_hash": parent, "token_ids": [5]}), parent


def plant_parent_group(rng, cache):
    _, b, e = find(rng, cache, is_stored)
    h = e["block_hashes"][-1]
    return insert(cache, b, e, {
        **e, "block_hashes": [random_hash(rng)], "parent_block_hash": h, "group_idx": 5,
        "token_ids": e["token_ids"][:e["block_size"]]}), h


def plant_parent_removed(rng, cache):
    _, b, e = removal(rng, cache)
    h = e["block_hashes"][0]
    stored = find(rng, cache, is_stored)[2]
    return insert(cache, b, e, {
        **stored, "block_hashes": [random_hash(rng)], "parent_block_hash": h,
        "group_idx": e["group_idx"], "token_ids": stored["token_ids"][:stored["block_size"]]}), h


def plant_differs(rng, cache):
    _, b, e = find(rng, cache, lambda e: is_stored(e) and len(e["block_hashes"]) > 2)
    return insert(cache, b, e, {
        **e, "block_hashes": e["block_hashes"][2:3],
        "parent_block_hash": e["block_hashes"][0],
        "token_ids": e["token_ids"][:e["block_size"]]}), e["block_hashes"][2]


def plant_span(rng, cache):
    """A block that was skipped: its hash is not there, its tokens are."""
    places = {}
    for n, _, e in model.numbered(cache.batches):
        for h in {e.get("parent_block_hash"), *e.get("block_hashes", [])}:
            places.setdefault(h, []).append((e["type"], n, e))
    alone = [(n, h) for n, _, e in model.numbered(cache.batches) if is_stored(e)
             for h in e["block_hashes"][1:]
             if [t for t, _, _ in places[h]].count("BlockStored") == 1]
    number, h = rng.choice(alone)
    for kind, _, e in places[h]:        # nothing is told of it then
        e["block_hashes"].remove(h)
        if kind == "BlockStored":
            first = e["block_hashes"][0]
    return number, first


def plant_short(rng, cache):
    n, _, e = find(rng, cache, is_stored)
    e["token_ids"] = e["token_ids"][:-1]
    return n, e["block_hashes"][0]


def plant_extra(rng, cache):
    n, _, e = find(rng, cache, is_stored)
    e["extra_keys"] = [None] * (len(e["block_hashes"]) + 1)
    return n, e["block_hashes"][0]


EVENT_PLANTS = [
    ("batch-lost", plant_lost), ("batch-again", plant_again),
    ("removed-unstored", plant_unstored), ("removed-elsewhere", plant_elsewhere),
    ("removed-elsewhere", plant_other_group), ("removed-twice", plant_twice),
    ("removed-copy", plant_copy), ("parent-unknown", plant_parent),
    ("parent-unknown", plant_partial), ("parent-group", plant_parent_group),
    ("parent-removed", plant_parent_removed), ("parent-differs", plant_differs),
    ("span", plant_span), ("span", plant_short), ("extra-keys", plant_extra),
]


def problems(said):
    return [(p["problem"], p["event"], p["hash"]) for p in said.get("problems", [])
            if not p["note"]]


def prove_events(rng, name, plant):
    """
    The planted thing alone is told; and without it, nothing.  Memory below would still
    have a parent that is removed; what was stored behind two parents has two copies.
    """
    simple = plant in (plant_parent_removed, plant_span)
    below = None if simple else rng.choice([None, "CPU"])
    cache, _, _ = drawn(rng, below=below, groups=1 if simple else rng.choice([1, 2]))
    r, said = ask(put(model.record(cache.batches, rng), "events"))
    tap.ok(r.code == 0 and not problems(said), f"{name}: sound", r)
    event, h = plant(rng, cache)
    r, said = ask(put(model.record(cache.batches, rng), "events"))
    got = [g for g in problems(said) if name != "parent-differs" or g[0] != "removed-copy"]
    good = len(got) == 1 and got[0][:2] == (name, event) and \
        (h is None or got[0][2].endswith(model.short(h)))
    tap.ok(r.code == 1 and good, f"{name}: event {event}", f"{got}\nwant {h}\n{r}")


def prove_hash(rng):
    """A token of an event is not the one that was hashed."""
    cache, prompts, rule = drawn(rng)
    r, said = ask(*rule, put(model.record(cache.batches, rng), "events"))
    tap.ok(r.code == 0 and said["counts"].get("hash") is None, "hash: sound", r)
    n, _, e = find(rng, cache, is_stored)
    i = rng.randrange(len(e["token_ids"]))
    e["token_ids"][i] ^= 1
    r, said = ask(*rule, put(model.record(cache.batches, rng), "events"))
    got = problems(said)
    want = e["block_hashes"][i // e["block_size"]]
    tap.ok(got and got[0][:2] == ("hash", n) and got[0][2].endswith(model.short(want)) and
           {g[0] for g in got} == {"hash"}, "hash: the event of the token", f"{got}\n{r}")


def tree_of(hashes):
    count_before = put(b"", "x")
    root = count_before[:-2]
    for h in hashes:
        os.makedirs(f"{root}/m_0/{h[:3]}/{h[3:5]}_g0", exist_ok=True)
        write_bytes(f"{root}/m_0/{h[:3]}/{h[3:5]}_g0/{h}.bin", b"x")
    return root


def prove_files(rng):
    """What is told to be in files is there; then one is not."""
    cache, _, _ = drawn(rng, below="STORAGE")
    path = put(model.record(cache.batches, rng), "events")
    root = tree_of(cache.under)
    r, said = ask(path, root)
    tap.ok(r.code == 0 and not problems(said), "no-file: sound", r)
    h = rng.choice(list(cache.under))
    os.unlink(f"{root}/m_0/{h[:3]}/{h[3:5]}_g0/{h}.bin")
    r, said = ask(path, root)
    got = problems(said)
    inside = any(h in e["block_hashes"][:-1] for _, _, e in model.numbered(cache.batches)
                 if e["type"] == "BlockStored" and e["medium"] == "STORAGE")
    tap.ok(len(got) == 1 and got[0][0] == ("not-alone" if inside else "no-file") and
           got[0][2].endswith(model.short(h)), "no-file: the one that is gone",
           f"{got}\n{h}\n{r}")


def prove_chunks(rng):
    """Chunks of two or more blocks, told as if each block could be found alone."""
    cache, _, _ = drawn(rng, below="STORAGE")
    last = [e["block_hashes"][-1] for _, _, e in model.numbered(cache.batches)
            if e["type"] == "BlockStored" and e["medium"] == "STORAGE"]
    r, said = ask("--all", put(model.record(cache.batches, rng), "events"), tree_of(last))
    got = {g[2][-16:] for g in problems(said) if g[0] == "not-alone"}
    want = {h[-16:] for h in cache.under if h not in last}
    tap.ok(got == want and {g[0] for g in problems(said)} <= {"not-alone"},
           "not-alone: all but the last of each chunk", r)


# ---- prompts and events --------------------------------------------------------------

def one(said):
    return said["prompts"][0] if said.get("prompts") else {}


def hit_rate(cache, prompt):
    """Of the time from the first batch to the last, and of the prompt's blocks."""
    have, hashes, area, before = set(), list(cache.names(prompt)), 0, None
    for b in cache.batches:
        if before is not None:
            n = next((i for i, h in enumerate(hashes) if h not in have), len(hashes))
            area += n * (b["ts"] - before)
        before = b["ts"]
        for e in b["events"]:
            if e["type"] == "BlockStored":
                have.update(e["block_hashes"])
            else:
                have.difference_update(e["block_hashes"])
    return area / (before - cache.batches[0]["ts"]) / len(hashes)


def prove_there(rng):
    cache, prompts, rule = drawn(rng)
    path = put(model.record(cache.batches, rng), "events")
    for prompt in prompts[-3:]:
        r, said = ask(*rule, option(prompt), path)
        want = 0
        for h in cache.names(prompt):
            if (0, h) not in cache.have:
                break
            want += 1
        tap.equal(one(said).get("reachable"), want, "blocks of a prompt that are there")
        tap.ok(abs(one(said)["hit_rate"] - hit_rate(cache, prompt)) < 1e-9, "its hit rate",
               f"{hit_rate(cache, prompt)}\n{r}")


def prove_sglang(rng):
    """The first 8 bytes of a hash, as a number with a sign."""
    size = rng.choice([1, 4])
    cache = model.Cache(lambda t, lora=None, **key: names.sglang(t, size, **key), size)
    prompts = [tokens(rng, size * 6 + 1) for _ in range(4)]
    for p in prompts:
        cache.request(p)
    path = put(model.record(cache.batches, rng, "sglang"), "events")
    rule = ["--engine=sglang", f"--block-size={size}"]
    r, said = ask(*rule, option(prompts[2]), path)
    p = one(said)
    tap.ok(r.code == 0 and p["reachable"] == len(prompts[2]) // size and
           not problems(said), "SGLang's", r)
    r, said = ask(*rule, "--salt=s1", option(prompts[2]), path)
    tap.ok(r.code == 1 and one(said)["near"] == ["salt"], "SGLang's without a salt", r)


def prove_evicted(rng):
    cache, prompts, rule = drawn(rng)
    path = put(model.record(cache.batches, rng), "events")
    hashes = {i: list(cache.names(p)) for i, p in enumerate(prompts)}
    gone = [(i, h) for i, hs in hashes.items()
            for h in [next((h for h in hs if (0, h) not in cache.have), None)] if h]
    i, h = rng.choice(gone)
    event = max(n for n, _, e in model.numbered(cache.batches)
                if e["type"] == "BlockRemoved" and h in e["block_hashes"])
    r, said = ask(*rule, option(prompts[i]), path)
    p = one(said)
    tap.ok(r.code == 1 and p.get("why") == "evicted" and p["event"] == event,
           f"evicted by event {event}", r)
    cache.clear()
    cleared = sum(len(b["events"]) for b in cache.batches)
    r, said = ask(*rule, option(prompts[-1]),
                  put(model.record(cache.batches, rng), "events"))
    p = one(said)
    tap.ok(p.get("why") == "cleared" and p["event"] == cleared, "cleared", r)


def prove_never(rng):
    """Another last token: the block that it is in was never stored."""
    cache, prompts, rule = drawn(rng)
    path = put(model.record(cache.batches, rng), "events")
    prompt = list(prompts[-1])
    size = cache.size
    at = rng.randrange(len(prompt) // size * size)
    prompt[at] ^= 1
    r, said = ask(*rule, option(prompt), path)
    p = one(said)
    tap.ok(p.get("why") == "never-stored" and p["reachable"] == at // size and
           p["token"] == at and p["near"] == [], f"token {at}", f"{p}\n{r}")


def prove_other_group(rng):
    cache, prompts, rule = drawn(rng, groups=2, room=200)
    h = list(cache.names(prompts[-1]))
    for b in cache.batches:             # the last one was stored in group 0 alone
        b["events"] = [e for e in b["events"] if not (
            e["type"] == "BlockStored" and e["group_idx"] == 1 and
            h[-1] in e["block_hashes"])]
    r, said = ask(*rule, option(prompts[-1]),
                  put(model.record(cache.batches, rng), "events"))
    got = {p["group"]: p["why"] for p in said.get("prompts", [])}
    tap.equal(got, {0: "all-there", 1: "other-group"}, "another group")


def prove_rule(rng, part):
    """The cache is by another rule than the one that was told; that one is named."""
    size = rng.choice([4, 8])
    truth = {"algorithm": "sha256", "seed": "0"}
    told = {"--seed": "0", "--hash": "sha256", "--block-size": size, "--engine": "vllm"}
    key, engine = {}, "vllm"
    if part == "seed":
        truth["seed"] = rng.choice(["42", "1234", None])
    elif part == "hash":
        truth["algorithm"] = "sha256_cbor"
    elif part == "salt":
        key["salt"] = "s1"
    elif part == "salt-told":
        told["--salt"] = "s2"
    elif part == "lora":
        engine = told["--engine"] = "vllm-0.30"
        key["lora"] = ("a", "/p")
    elif part == "lora-told":
        told["--lora"] = "b=/p/b"
    elif part == "block-size":
        told["--block-size"] = size * 2
    elif part == "engine":
        key["salt"] = told["--salt"] = "s1"
        engine = "vllm-0.30"
    cache = model.Cache(lambda t, **k: names.vllm(engine, t, size, **truth, **k), size)
    prompts = [tokens(rng, size * 6) for _ in range(3)]
    for p in prompts:
        cache.request(p, **key)
    path = put(model.record(cache.batches, rng), "events")
    r, said = ask(*[f"{k}={v}" for k, v in told.items()], option(prompts[1]), path)
    p = one(said)
    tap.ok(r.code == 1 and p.get("near") == [part.split("-told")[0]] and
           p["reachable"] == 0, f"by another {part}", f"{p}\n{r}")
    root = tree_of([h for q in prompts for h in cache.names(q, **key)])
    r, said = ask(*[f"{k}={v}" for k, v in told.items()], option(prompts[1]), root)
    p = one(said)
    unknown = part in ("salt", "lora")  # no tree says which salts or LoRAs there are
    tap.ok(r.code == 1 and p.get("near") == ([] if unknown else [part.split("-told")[0]]),
           f"a tree by another {part}", f"{p}\n{r}")


# ---- trees ----------------------------------------------------------------------------

def prove_tree(rng):
    cache, prompts, rule = drawn(rng)
    prompt = max(prompts, key=len)
    hashes = list(cache.names(prompt))
    root = tree_of(hashes)
    r, said = ask(*rule, option(prompt), root)
    tap.ok(r.code == 0 and one(said)["why"] == "all-there", "all files there", r)
    gone = sorted(rng.sample(range(len(hashes)), 2))
    for i in gone:
        h = hashes[i]
        os.unlink(f"{root}/m_0/{h[:3]}/{h[3:5]}_g0/{h}.bin")
    r, said = ask(*rule, option(prompt), root)
    p = one(said)
    there = [i for run in p.get("runs", []) if run["there"]
             for i in range(run["begin"], run["end"])]
    tap.ok(r.code == 1 and p["missing"] == gone[0] and p["reachable"] == gone[0] and
           there == [i for i in range(len(hashes)) if i not in gone], "missing files", r)


# ---- two prompts ------------------------------------------------------------------------

def prove_pair(rng, part):
    size = rng.choice([2, 4, 16])
    rule = ["--engine=vllm", "--seed=0", f"--block-size={size}"]
    a = tokens(rng, size * rng.randrange(3, 9) + rng.randrange(size))
    b, more, at, token = list(a), [], 0, None
    if part == "token":
        token = rng.randrange(len(a) // size * size)
        b[token] ^= 1
        at = token // size
    elif part == "not-full":
        del b[rng.randrange(size, len(a) // size * size):]
        at = len(b) // size
    elif part == "pictures":
        begin = rng.randrange(len(a) // size * size - 1)
        rule.append(f"--item=pic:{begin}-{begin + 2}")
        more, at = ["--other=no-item"], begin // size
    else:
        more = {"salt": ["--other=salt=s1"], "seed": ["--other=seed=1"],
                "lora": ["--other=lora=a=/p/a"], "hash": ["--other=hash=sha256_cbor"],
                "block-size": [f"--other=block-size={2 * size}"],
                "engine": ["--other=engine=sglang", "--other=no-seed"]}[part]
    r, said = ask(*rule, *more, option(a, "a"), option(b, "b"))
    causes = said.get("causes")
    good = causes == [part] or (part == "engine" and causes and "engine" in causes)
    tap.ok(r.code == 1 and good and said["same_blocks"] == at and said["token"] == token,
           f"two prompts: {part}", f"{said}\n{r}")
    r, said = ask(*rule, option(a, "a"), option(a, "b"))
    tap.ok(r.code == 0 and said["causes"] == [], f"two prompts: no {part}", r)


PAIRS = ["token", "not-full", "pictures", "salt", "seed", "lora", "hash", "block-size",
         "engine"]
RULES = ["seed", "hash", "salt", "salt-told", "lora", "lora-told", "block-size", "engine"]

for case in range(CASES):
    draw = random.Random(f"{SEED} {case}")
    for problem, planted in EVENT_PLANTS:
        prove_events(draw, problem, planted)
    for proof in (prove_hash, prove_files, prove_chunks, prove_there, prove_sglang,
                  prove_evicted, prove_never, prove_other_group, prove_tree):
        proof(draw)
    for what in RULES:
        prove_rule(draw, what)
    for what in PAIRS:
        prove_pair(draw, what)
tap.done()
