#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_causes.py - does diff name the cause of a difference, and never a wrong one?

Faults that numpy makes in small dumps (cause_model.py), each alone and limited to the
heads of a rank, a layer, a request, keys or values; two at once; and differences that
no fault makes, of which none may be claimed.  A name is right if its fault predicts the
very same bytes; the limit must be said, and all that is said of where must be so.

oracle_causes.py CAUSE LIMIT SEED FOLDER writes that case into FOLDER instead.
"""
import collections
import concurrent.futures
import json
import os
import sys

import numpy as np

import cause_model as model
import oracle
from cause_model import CAUSES, H, L, Planted, decode, encode, make, plant
from oracle import SHARE, kvtool, tap

SEEDS = 4 // SHARE
NOISE = 80 // SHARE				# of each kind
PAIRS = 64 // SHARE
THREADS = 3
SLACK = {"factor": .1}			# fp8 tells no more of it
# The bars: 0.95 of the faults and of the pairs, and nothing wrong.
NAMED_RIGHTLY, PAIRS_RIGHTLY = 0.95, 0.95
NAMED_WRONGLY, NOISE_CLAIMED = 0, 0


# ---- one comparison ---------------------------------------------------------

class Diagnosis:
    """What diff --json says of the cause."""

    def __init__(self, text):
        group = json.loads(text)["groups"][0]
        d = group["diagnosis"] or {}
        self.different = group["metrics"]["different"]
        self.name = d.get("decided")
        self.names = {f["fault"] for f in d.get("faults", [])}
        fault = next((f for f in d.get("faults", []) if f["fault"] == self.name), {})
        self.explained = fault.get("explained", 0)
        self.only = fault.get("only") or {}
        words = dict(w.split("=", 1) for w in fault.get("arguments", "").split(",")
                     if "=" in w)
        self.args = {k: float(v) for k, v in words.items()
                     if v.replace(".", "").replace("-", "").isdigit()}
        self.text = f"{self.name} {fault.get('arguments', '')} {self.only or ''} " \
                    f"{self.explained} of {self.different}"


def compare(folder, a, b, *options):
    r = kvtool("diff", "--json", "--top=0", *options, a, b, folder=folder)
    assert r.code in (0, 1), r
    return Diagnosis(r.out) if r.code else None


def compare_caches(tmp, name, a, bits, other=None):
    """What diff says of a cache and of what became of it."""
    paths = f"{tmp}/{name}.a.npy", f"{tmp}/{name}.b.npy"
    a.write(paths[0])
    (other or a.like(bits)).write(paths[1])
    try:
        return compare(tmp, *paths)
    finally:
        for p in paths:
            os.unlink(p)
            os.unlink(p[:-4] + ".json")


# ---- faults -----------------------------------------------------------------

def is_tail(p):
    """From the first byte that differs on all that is live is zero."""
    order = {"nhd": "LBSHKD", "hnd": "LBHSKD", "blocks-first-nhd": "LBKSHD",
             "cross-nhd": "BLKSHD", "kv-first-nhd": "LKBSHD", "mla": "LBSHKD"}
    axes = ["LBSHKD".index(a) for a in order[p.cache.layout]]
    live = np.broadcast_to(p.cache.live()[None, :, :, None, None, None], p.bits.shape)
    differs = p.differs().transpose(axes).reshape(-1)
    tail = p.bits.transpose(axes).reshape(-1)[differs.argmax():]
    return not tail[live.transpose(axes).reshape(-1)[differs.argmax():]].any()


def accepted_of(p):
    """Names and limits that are right: the planted ones, and what is equal to them."""
    out = list(p.accepted)
    if {"zero-block", "zero-kv"} & {n for n, _ in out} and is_tail(p):
        out.append(("zero-tail", None))
    return out


def says_truth(p, d):
    """Every limit that is said is where the difference is."""
    axes = p.axes()
    return all(set(ids) == axes[a] for a, ids in d.only.items() if a in axes)


def is_all(p, axis):
    """A limit that spares nothing need not be said."""
    n = p.cache.bits.shape
    whole = {"heads": n[H], "layers": n[L], "kv": 2,
             "requests": len(p.cache.tables)}[axis]
    return len(p.axes()[axis]) == whole


def judge(p, d):
    """right, none, wrong, or that the limit is not said."""
    if d.name is None:			# several may be equal, then all are right
        equal = {name for name, _ in accepted_of(p)}
        return "right" if d.names and d.names <= equal else "none"
    limits = [limit for name, limit in accepted_of(p) if name == d.name]
    args_wrong = any(k in d.args and abs(d.args[k] - v) > abs(v) * SLACK.get(k, 0)
                     for k, v in p.args.items())
    if not limits or args_wrong or not says_truth(p, d):
        return "wrong"
    if any(x is None or x in d.only or is_all(p, x) for x in limits):
        return "right"
    return "no limit"


def seed_of(cause, limit, seed):
    return [seed, *f"{cause.__name__} {limit}".encode()]


def planted(cause, limit, seed):
    """The case of that seed; None if no dump of some can have it."""
    rng = np.random.default_rng(seed_of(cause, limit, seed))
    for _ in range(30):
        p = plant(make(rng), cause, limit, rng)
        if p and p.differs().any():
            return p
    return None


def check_fault(job):
    tmp, cause, limit, seed = job
    p = planted(cause, limit, seed)
    if p is None:
        return job, None, None, None
    d = compare_caches(tmp, f"{cause.__name__}-{limit}-{seed}", p.cache, p.bits)
    return job, p, d, judge(p, d)


def cases():
    for cause, limits in CAUSES:
        for limit in [None] + limits.split():
            for seed in range(SEEDS):
                yield cause, limit, seed


COLUMNS = ("right", "no limit", "none", "wrong")


def check_faults(pool, tmp):
    table = collections.defaultdict(collections.Counter)
    for job, p, d, verdict in pool.map(check_fault, [(tmp, *c) for c in cases()]):
        if p is None:
            continue
        _, cause, limit, seed = job
        table[cause.__name__, limit][verdict] += 1
        if verdict == "wrong" or os.environ.get("KVT_VERBOSE") and verdict != "right":
            print(f"# {verdict}: {cause.__name__} {limit} {seed}: {d.text}; planted "
                  f"{p.accepted} {p.args}")
    return table


def print_table(table):
    print(f"# {'cause':18}{'limited to':>12}" + "".join(f"{c:>10}" for c in COLUMNS))
    for (cause, limit), row in table.items():
        print(f"# {cause:18}{limit or '-':>12}" +
              "".join(f"{row[c] or '-':>10}" for c in COLUMNS))


# ---- another pool -----------------------------------------------------------

def check_moved(job):
    """The same fault, in a pool where other blocks hold the tokens."""
    tmp, cause, limit = job
    p = planted(cause, limit, SEEDS)
    if p is None or cause is model.shift_pool:
        return job, None, None, None
    moved, to = p.cache.like(p.bits).moved(np.random.default_rng(SEEDS))
    if cause in (model.swap_blocks, model.stale_block):		# ids are those of B
        p.args = {k: int(to[int(v)]) for k, v in p.args.items()}
    if cause is model.swap_blocks:
        p.args = dict(zip("ab", sorted(p.args.values())))
    d = compare_caches(tmp, f"moved-{cause.__name__}-{limit}", p.cache, None, moved)
    return job, p, d, judge(p, d)


def check_pools(pool, tmp):
    count = collections.Counter()
    jobs = [(tmp, cause, limit) for cause, limits in CAUSES
            for limit in [None] + limits.split()[:2]]
    for job, p, d, verdict in pool.map(check_moved, jobs):
        if p is None:
            continue
        count[verdict] += 1
        if verdict == "wrong" or os.environ.get("KVT_VERBOSE") and verdict != "right":
            print(f"# in another pool, {verdict}: {job[1].__name__} {job[2]}: {d.text}; "
                  f"planted {p.accepted} {p.args}")
    return count


# ---- two at once ------------------------------------------------------------

def two_at_once(seed):
    """A large fault in most layers or in half of the heads, a small one elsewhere."""
    rng = np.random.default_rng([seed, 2])
    large = [model.swap_kv, model.permute_heads, model.zero_all, model.scale,
             model.heads_slots, model.shift_tokens, model.permute_table,
             model.rotate_heads]
    small = [model.stale_block, model.zero_block, model.swap_blocks, model.nan]
    while True:
        c = make(rng, "mha")
        one, two = large[seed % len(large)], small[rng.integers(len(small))]
        limit = (None, "heads", "requests")[seed % 3]
        if limit == "heads" and one is model.permute_heads:
            limit = None
        p = plant(c, one, limit, rng)
        if not p:
            continue
        # the second one strikes what the first one made, in one layer
        q = plant(c.like(p.bits), two, "layers", rng)
        if not q or (q.bits == p.bits).all():
            continue
        both = Planted(c, q.bits, p.accepted, p.args)
        explained = int((p.differs() & both.differs() & (p.bits == q.bits)).sum())
        if explained > 2 * int((both.differs() & (p.bits != q.bits)).sum()):
            return both, explained / int(both.differs().sum())


def check_pair(job):
    tmp, seed = job
    p, share = two_at_once(seed)
    d = compare_caches(tmp, f"two-{seed}", p.cache, p.bits)
    names = {n for n, _ in p.accepted}
    if d.name is None:
        verdict = "none"
    elif d.name not in names:
        verdict = "wrong"
    elif abs(d.explained / d.different - share) > .01:
        verdict = "share"
    else:
        verdict = "right"
    return seed, p, d, verdict, share


def check_pairs(pool, tmp):
    count = collections.Counter()
    for seed, p, d, verdict, share in pool.map(check_pair,
                                               [(tmp, s) for s in range(PAIRS)]):
        count[verdict] += 1
        if verdict in ("wrong", "share") or os.environ.get("KVT_VERBOSE"):
            print(f"# two at once, {verdict}: seed {seed}: {d.text}; planted "
                  f"{p.accepted}, share {share:.3f}")
    return count


# ---- noise ------------------------------------------------------------------

def rounded_down(x, dtype):
    """Towards zero, as a cast that cuts bits."""
    near = encode(x, dtype)
    return np.where(np.abs(decode(near, dtype)) > np.abs(x), near - 1, near) \
        .astype(near.dtype)


def noise_of(kind, rng):
    """A cache, and the same computed otherwise."""
    dtype = str(rng.choice(["bfloat16", "float8_e4m3fn", "float16", "float8_e5m2"]))
    if kind == "order of sums":
        dtype = str(rng.choice(["float32", "bfloat16", "float16"]))
    c = make(rng, None, dtype)
    x = decode(c.bits, dtype)
    step = {"float32": 2e-7, "float16": 1e-3, "bfloat16": 8e-3, "float8_e4m3fn": .12,
            "float8_e5m2": .25}[dtype]
    exact = x * (1 + rng.uniform(-.5, .5, x.shape) * step)
    if kind == "cut":
        return c.like(encode(exact, dtype)), rounded_down(exact, dtype)
    if kind == "order of sums":
        return c, encode(x * (1 + rng.standard_normal(x.shape) * step), dtype)
    if kind == "small noise in a layer":
        y = x.copy()
        y[rng.integers(len(y))] *= 1 + rng.standard_normal(x[0].shape) * step
        return c, encode(y, dtype)
    if kind == "another prompt":
        other = encode(rng.standard_normal(x.shape), dtype)
        other[:, 0] = 0
        return c, other
    bits, used = c.bits.copy(), model.in_use(c)		# single elements
    for _ in range(int(rng.integers(1, 20))):
        at = (int(rng.integers(x.shape[0])), int(rng.choice(used)),
              *(int(rng.integers(n)) for n in x.shape[2:]))
        y = encode(rng.standard_normal(1), dtype)[0]
        if bin(int(y ^ bits[at])).count("1") > 1:
            bits[at] = y
    return c, bits


KINDS_OF_NOISE = ("cut", "order of sums", "small noise in a layer", "single elements",
                  "another prompt")


def check_noise(job):
    tmp, kind, seed = job
    rng = np.random.default_rng([seed, *kind.encode()])
    while True:
        c, bits = noise_of(kind, rng)
        if Planted(c, bits, [], {}).differs().any():
            break
    d = compare_caches(tmp, f"noise-{kind.replace(' ', '-')}-{seed}", c, bits)
    return kind, seed, d


def check_noises(pool, tmp):
    claimed = collections.Counter()
    jobs = [(tmp, kind, seed) for kind in KINDS_OF_NOISE for seed in range(NOISE)]
    for kind, seed, d in pool.map(check_noise, jobs):
        claimed[kind] += d.name is not None
        if d.name:
            print(f"# claimed: {kind} {seed}: {d.text}")
    return claimed, len(jobs)


# ---- types that differ ------------------------------------------------------

def check_types(tmp):
    """What a forgotten scale makes of bf16 values that are stored as fp8."""
    for factor, name in ((64.0, "saturate"), (4.0, "scale")):
        c = make(np.random.default_rng(int(factor)), "gqa", "bfloat16")
        x = decode(c.bits, c.dtype) * (8.0 if name == "saturate" else 1.0)
        a = c.like(encode(x, "bfloat16"))
        fp8 = model.Cache(encode(np.clip(x * factor, -448, 448), "float8_e4m3fn"),
                          "float8_e4m3fn", c.tables, c.tokens, c.layout)
        a.write(f"{tmp}/a.npy")
        fp8.write(f"{tmp}/b.npy")
        d = compare(tmp, "a.npy", "b.npy", "--tolerance=auto", "--scale-b=1")
        tap.ok(d and d.name == name and abs(d.args["factor"] / factor - 1) < .1,
               f"{name} by {factor:g} where bf16 became fp8", d and d.text)


# ---- all of it --------------------------------------------------------------

def write_case(cause, limit, seed, folder):
    cause = next(c for c, _ in CAUSES if c.__name__ == cause)
    p = planted(cause, None if limit in ("-", "None") else limit, int(seed))
    os.makedirs(folder, exist_ok=True)
    p.cache.write(f"{folder}/a.npy")
    p.cache.like(p.bits).write(f"{folder}/b.npy")
    print(p.accepted, p.args, {k: sorted(v) for k, v in p.axes().items()})


def main():
    if len(sys.argv) == 5:
        return write_case(*sys.argv[1:])
    with oracle.workdir() as tmp, \
            concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        table = check_faults(pool, tmp)
        print_table(table)
        moved = check_pools(pool, tmp)
        pairs = check_pairs(pool, tmp)
        claimed, noises = check_noises(pool, tmp)
        check_types(tmp)
    all_of = sum(table.values(), collections.Counter())
    total = sum(all_of.values())
    print(f"# {total} faults: {dict(all_of)}; two at once: {dict(pairs)}; "
          f"claimed of noise: {sum(claimed.values())} of {noises}")
    tap.ok(total >= 400 // SHARE, f"{total} faults were planted")
    tap.ok(all_of["right"] >= NAMED_RIGHTLY * total,
           f"{all_of['right']} of {total} faults are named with their limit")
    tap.ok(all_of["wrong"] <= NAMED_WRONGLY, f"{all_of['wrong']} are named wrongly")
    tap.ok(sum(moved.values()) >= 90 and not moved["wrong"] and
           moved["right"] >= NAMED_RIGHTLY * sum(moved.values()),
           f"in another pool of blocks {moved['right']} of {sum(moved.values())} are")
    tap.ok(sum(pairs.values()) >= 50 // SHARE and pairs["right"] >= PAIRS_RIGHTLY * PAIRS,
           f"of two at once the larger is named, with its share: {pairs['right']}")
    tap.ok(sum(claimed.values()) <= NOISE_CLAIMED,
           f"{noises} differences that are no fault: {sum(claimed.values())} claimed")


oracle.run(main)
