#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_plan.py - how many shards, worked out a second time; a thousand workers

The work list and the model of kvtool size --plan are written down here as
kvtool-cluster(7) has them.  Then units are handed to simulated workers of which some are
slow or die: the figures of bench/RESULTS.md are what comes out here.
"""
import heapq
import os
import random

from oracle import kvtool, read_text, refused, run, sizes, tap, write_json

MIB = 1 << 20
UNIT, MOST = 64 * MIB, 16384
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench",
                    "RESULTS.md")

# ---- the list and the model ---------------------------------------------------


def units_of(passes):
    """passes: (boxes, bytes); the bytes of each unit, in the order of the list."""
    unit = UNIT
    while sum(b for _, b in passes) // unit > MOST:
        unit *= 2
    out = []
    for boxes, nbytes in passes:
        each = max(1, unit // (nbytes // boxes))
        for i in range(0, boxes, each):
            end = min(boxes, i + each)
            out.append(nbytes * end // boxes - nbytes * i // boxes)
    return out


def owners(units, n):
    total, at, out = sum(units), 0, []
    for b in units:
        out.append(min(n - 1, (2 * at + b) * n // (2 * total)))
        at += b
    return out


def model(units, n, rate, threads, rates):
    shards = [0.0] * n
    for b, owner in zip(units, owners(units, n)):
        shards[owner] += b / rate / threads + rates["unit_seconds"]
    return (2 * rates["start_seconds"] + max(shards) + len(units) * rates["unit_seconds"])


def make_dump(name, layers, blocks):
    """Zeros that take no disk: blocks of 64 KiB, so that a box is 64 of them."""
    with open(name + ".bin", "wb") as f:
        f.truncate(layers * blocks * 65536)
    write_json(name + ".json",
               {"file": name + ".bin", "layout": "nhd", "dtype": "bfloat16",
                "sizes": sizes(L=layers, B=blocks, S=16, H=8, D=128)})
    return layers * blocks // 64, layers * blocks * 65536


def check_model():
    rates = {"start_seconds": 0.01, "unit_seconds": 0.002}
    for i, key in enumerate(("digest", "digest_hdf5", "diff", "fsck", "fsck_hdf5",
                             "write", "write_hdf5")):
        rates[key + "_bytes_per_second"] = (i + 1) * 1e8
    write_json("rates.json", {"rates": rates})
    rng = random.Random(4)
    for case in range(6):
        files, passes = [], []
        for i in range(rng.randint(1, 4)):
            files.append(f"c{case}f{i}.bin")
            passes.append(make_dump(files[-1][:-4], rng.randint(1, 6),
                                    64 * rng.randint(1, 40)))
        units = units_of(passes)
        job, rate = rng.choice([("digest", 1e8), ("diff", 3e8), ("fsck", 4e8),
                                ("convert", 7e8)])
        threads, limit = rng.randint(1, 3), rng.uniform(0.1, 3)
        r = kvtool("size", "--plan=rates.json", f"--job={job}", f"--threads={threads}",
                   f"--time={limit}", "--json", *files)
        got = r.json
        want = [n for n in range(1, len(units) + 1)
                if model(units, n, rate, threads, rates) <= limit]
        tap.equal((got["units"], got["bytes"], got["shards"], r.code),
                  (len(units), sum(units), want[0] if want else None,
                   0 if want else 1), f"{job} of {len(files)} files in {limit:.2f} s")
        tap.ok(all(abs(t["seconds"] - model(units, t["shards"], rate, threads, rates)) <
                   1e-9 for t in got["times"]), "the times of its table", got)
    refused("rates that are none", 3, "bench --files=DIR --json", "size",
            "--plan=c0f0.json", "--time=1", "c0f0.bin")


# ---- a thousand workers ---------------------------------------------------------

WORKERS, UNITS = 1000, 16384


def speeds(seed):
    """Seconds that a unit takes each worker: 1, of 2 % of them 4; the last dies."""
    rng = random.Random(seed)
    return [4.0 if rng.random() < 0.02 else 1.0 for _ in range(WORKERS)]


def fixed(speed, own, dies_at=None):
    """Each does its units; who dies has those that it finished before."""
    ends, left = [], []
    for w, units in enumerate(own):
        t = 0.0
        for u in units:
            t += speed[w]
            if w == WORKERS - 1 and dies_at is not None and t > dies_at:
                left.append(u)
        if not (w == WORKERS - 1 and dies_at is not None):
            ends.append(t)
    return max(ends), left


def handed_out(speed):
    """Whoever is free gets the next unit."""
    free = [(0.0, w) for w in range(WORKERS)]
    end = 0.0
    for _ in range(UNITS):
        t, w = heapq.heappop(free)
        t += speed[w]
        end = max(end, t)
        heapq.heappush(free, (t, w))
    return end


def simulate():
    units = [1] * UNITS
    own = [[] for _ in range(WORKERS)]
    for u, owner in enumerate(owners(units, WORKERS)):
        own[owner].append(u)
    same = [1.0] * WORKERS
    slow = speeds(7)
    even = fixed(same, own)[0]
    static = fixed(slow, own)[0]
    # when the fast ones are through, the slow are given up: their shares begin again on
    # other machines, or all ranks of an MPI job take what is left
    given_up = [max(0, len(mine) - int(even // slow[w])) for w, mine in enumerate(own)]
    again = even + max(given_up)
    resumed = even + -(-sum(given_up) // WORKERS)
    died, left = fixed(same, own, dies_at=8.5)
    return {"ideal": UNITS / WORKERS, "equal": even, "slow": static, "again": again,
            "resumed": resumed, "mpi": handed_out(slow), "dead": died + len(left), "redone": len(left)}


def check_page(figures):
    text = read_text(PAGE)
    for key, value in figures.items():
        tap.ok(f"{value:g} s" in text or f"{value:g} units" in text,
               f"the page has {value:g} ({key})")


def main(folder):
    os.chdir(folder)
    check_model()
    os.chdir("/")
    figures = simulate()
    print("#", figures)
    tap.ok(figures["resumed"] < figures["mpi"] < figures["again"] < figures["slow"],
           "what is handed out waits least for the slow")
    check_page(figures)


run(main)
