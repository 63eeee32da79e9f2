#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_receive.py - transfer-sim receive and topology

Receive: vLLM's two functions on blocks of 0, 1, 2, ..., as they were run, by the plan
that is printed and by the dump that is written; then random blocks against numpy.
Topology: cases whose answers the engine's classes gave.
"""
import os
import random

import numpy as np

import oracle
from oracle import kvtool, refused, tap

rng = random.Random(5)


# ---- what the engine's functions gave -------------------------------------------

# blocks, heads, slots, bytes; ids; ratio; what becomes of 0, 1, 2, ... in storage order
BLKSIZE = [
    ((1, 2, 4, 1), [0], 2, [0, 1, 4, 5, 2, 3, 6, 7]),
    ((1, 2, 4, 1), [0], 4, [0, 2, 4, 6, 1, 3, 5, 7]),
    ((1, 2, 4, 1), [0], 1, list(range(8))),
    ((1, 1, 4, 1), [0], 2, list(range(4))),
    ((2, 2, 4, 1), [1], 2, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]),
    ((2, 2, 4, 1), [1, 0], 2, [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]),
    ((1, 2, 2, 2), [0], 2, [0, 1, 4, 5, 2, 3, 6, 7]),
    ((1, 2, 6, 1), [0], 3, [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]),
    ((1, 2, 4, 1), [0], 3, None),
    ((1, 2, 4, 1), [0, 0], 2, [0, 1, 4, 5, 2, 3, 6, 7]),
    ((1, 2, 4, 1), [], 2, None),
]
AND_LAYOUT = [
    ((1, 2, 4, 1), [0], 2, [0, 2, 1, 3, 4, 6, 5, 7]),
    ((1, 2, 4, 1), [0], 4, list(range(8))),
    ((1, 2, 4, 1), [0], 1, [0, 4, 1, 5, 2, 6, 3, 7]),
    ((1, 1, 4, 1), [0], 2, list(range(4))),
    ((2, 2, 4, 1), [1], 2, [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 9, 11, 12, 14, 13, 15]),
    ((2, 2, 4, 1), [1, 0], 2, [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15]),
    ((1, 2, 2, 2), [0], 2, list(range(8))),
    ((1, 2, 6, 1), [0], 3, [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11]),
    ((1, 2, 4, 1), [0], 3, None),
    ((1, 2, 4, 1), [0, 0], 2, [0, 2, 1, 3, 4, 6, 5, 7]),
    ((1, 2, 4, 1), [], 2, None),
]


def by_plan(shape, ids, ratio, to):
    """By the runs that are printed, done here."""
    blocks, heads, slots, content = shape
    r = kvtool("transfer-sim", "receive", "-j", f"--heads={heads}", f"--to={to}",
               f"--block-size={slots}", f"--content-size={content}", f"--ratio={ratio}")
    if r.code:
        return None
    plan = r.json
    page, n = heads * slots * content, plan["run_bytes"]
    out = list(range(blocks * page))
    for b in set(ids):
        for run in plan["runs"]:
            for i in range(n):
                out[b * page + run["to"] + i] = b * page + run["from"] + i
    return out


def by_dump(folder, data, layout, ids, ratio, *more):
    """Bytes of the dump that is written: one layer, content of one tensor."""
    blocks, heads, slots, content = data.shape if layout == "hnd" else \
        np.moveaxis(data, 1, 2).shape
    raw, out = os.path.join(folder, "in.bin"), os.path.join(folder, "out.bin")
    data.tofile(raw)
    r = kvtool("transfer-sim", "receive", "-q", "-f", f"--ratio={ratio}",
               f"--layout={layout}", "--dtype=uint8", "--layers=1",
               f"--blocks={','.join(map(str, ids))}", f"--block-size={slots}",
               f"--heads={heads}", f"--content-size={content}", "--format=raw",
               "--from=raw", *more, "-o", out, raw)
    if r.code:
        return r
    return np.fromfile(out, np.uint8)


def test_tables(folder):
    for name, table, to, layout in (("blksize", BLKSIZE, "hnd", "hnd"),
                                    ("blksize_and_layout", AND_LAYOUT, "nhd", "nhd")):
        for shape, ids, ratio, want in table:
            what = f"{name}: {shape} {ids} ratio {ratio}"
            if ids:
                tap.equal(by_plan(shape, ids, ratio, to), want, f"{what}: the plan")
            data = np.arange(np.prod(shape), dtype=np.uint8)
            blocks, heads, slots, content = shape
            data = data.reshape((blocks, heads, slots, content) if to == "hnd" else
                                (blocks, slots, heads, content))
            got = by_dump(folder, data, layout, ids, ratio)
            if want is None:
                tap.ok(not isinstance(got, np.ndarray) and got.code in (2, 3),
                       f"{what}: refused", got)
            else:
                tap.ok(isinstance(got, np.ndarray) and got.tolist() == want,
                       f"{what}: the dump", got)


# ---- random blocks -----------------------------------------------------------------

def received(block, heads, slots, ratio, to):
    """What a block must become, from its definition: r small blocks of [H][n]."""
    small = block.reshape(ratio, heads, slots // ratio, -1)
    whole = np.concatenate(list(small), axis=1)          # [H][S]
    return (whole if to == "hnd" else whole.swapaxes(0, 1)).reshape(-1)


def test_random(folder):
    wrong, n = [], 150
    for i in range(n):
        to = rng.choice(("hnd", "nhd"))
        ratio, heads = rng.choice((1, 2, 3, 4, 8)), rng.randint(1, 6)
        slots, content = ratio * rng.randint(1, 5), rng.randint(1, 9)
        blocks = rng.randint(1, 5)
        ids = sorted(rng.sample(range(blocks), rng.randint(1, blocks)))
        shape = (blocks, heads, slots, content) if to == "hnd" else \
            (blocks, slots, heads, content)
        data = np.frombuffer(rng.randbytes(int(np.prod(shape))), np.uint8).reshape(shape)
        want = data.reshape(blocks, -1).copy()
        for b in ids:
            want[b] = received(want[b], heads, slots, ratio, to)
        layout = "hnd" if to == "hnd" else "nhd"
        got = by_dump(folder, data, layout, ids, ratio)
        if not isinstance(got, np.ndarray) or (got != want.reshape(-1)).any():
            wrong.append((shape, to, ratio, ids, got))
            continue
        back = by_dump(folder, got.reshape(shape), layout, ids, ratio, "--undo")
        if not isinstance(back, np.ndarray) or (back != data.reshape(-1)).any():
            wrong.append((shape, to, ratio, ids, "undo", back))
    tap.ok(not wrong, f"{n} random dumps, there and back", "\n".join(map(str, wrong[:3])))


# ---- topology ----------------------------------------------------------------------

# --local, --remote: handshake, attention, mamba, all, slots, offset, consumers
TOPOLOGY = [
    ("tp=4,heads=8,rank=1", "tp=2", [0], [0], [], [0], [0], 1, 2),
    ("tp=2,heads=8,rank=1", "tp=4", [2, 3], [2, 3], [], [2, 3], [0, 1], 0, 1),
    ("tp=1,heads=2", "tp=4", [0, 1, 2, 3], [0, 2], [], [0, 2], [0, 1], 0, 1),
    ("tp=1,heads=2,mamba", "tp=4", [0, 1, 2, 3], [0, 2], [0, 1, 2, 3], [0, 1, 2, 3],
     [0, 0, 1, 1], 0, 1),
    ("tp=8,heads=4,rank=5", "tp=2", [1], [1], [], [1], [0], 0, 4),
    ("tp=2,mla,rank=1", "tp=4", [2, 3], [2], [], [2], [0], 0, 1),
    ("tp=1,mla", "tp=4,dcp=4", [0, 1, 2, 3], [0, 1, 2, 3], [], [0, 1, 2, 3],
     [3, 3, 3, 3], 0, 1),
    ("tp=4,dcp=4,mla,rank=3", "tp=2,dcp=2", [1], [1], [], [1], [0], 0, 2),
]
KEYS = ("handshake_ranks", "attention_ranks", "mamba_ranks", "all_ranks",
        "attention_slots", "rank_offset_factor", "local_consumers")


def topology(local, *remotes):
    r = kvtool("transfer-sim", "topology", "-j", f"--local={local}",
               *[f"--remote={x}" for x in remotes])
    return (r.json["remotes"] if r.code == 0 else None), r


def test_topology():
    for local, remote, *want in TOPOLOGY:
        remotes, r = topology(local, remote)
        got = [remotes[0]["ranks"][0][k] for k in KEYS] if remotes else r
        tap.equal(got, want, f"{local} from {remote}")
    remotes, r = topology("tp=2,heads=8,engine=d", "engine=p,pp=0,tp=1,layers=0:16",
                          "engine=p,pp=1,tp=4,layers=16:32,block-len=4096",
                          "engine=q,tp=2,block-size=8")
    tap.equal([(x["engine"], x["pp_rank"], x["tp_ratio"], x["block_size_ratio"],
                x["end_layer"], len(x["ranks"])) for x in remotes],
              [("p", 0, 2, 1, 16, 2), ("p", 1, -2, 1, 32, 2), ("q", 0, 1, 2, 0, 2)],
              "several engines and pipeline ranks at once")
    tap.equal(remotes[1]["ranks"][0]["log_line"],
              "TransferTopology(tp_ratio=-2, num_kv_heads=8, local_tp=2, remote_tp=4, "
              "remote_pp=1, local_dcp=1, remote_dcp=1, local_rank=0, "
              "remote_block_len=4096)", "the line of the engine's log")
    for local, remotes, code, text in (
            ("tp=2,heads=8", ["tp=3"], 3, "remote TP size 3 is not a multiple"),
            ("tp=2,heads=8", ["block-size=24"], 3,
             "local block size 16 is not a multiple of the remote one, 24"),
            ("tp=2,heads=8,engine=a", ["engine=a"], 3, "'a' is the engine itself"),
            ("tp=2,heads=8", ["engine=a", "engine=a"], 3, "two of pipeline rank 0"),
            ("tp=2,heads=8,rank=2", ["tp=2"], 3, "TP rank is 2, expected 0 to 1"),
            ("tp=2", ["tp=2"], 2, "heads=N is missing"),
            ("tp=2,hed=8", ["tp=2"], 2, "--local: there is no key 'hed'"),
            ("tp=2,heads=8", ["layers=16"], 2, "layers is '16', expected two numbers, such as 0:16"),
            ("tp=x,heads=8", ["tp=2"], 2, "tp is 'x', expected a whole number"),
            ("tp=2,heads=8,mla=1", ["tp=2"], 2, "mla is '1', expected no value")):
        _, r = topology(local, *remotes)
        tap.ok(r.code == code and text in r.err and not r.out, f"refused: {text}", r)
    refused("nothing said", 2, "expected --local and --remote", "transfer-sim",
            "topology")


def test_refused(folder):
    raw = os.path.join(folder, "x.bin")
    np.zeros(64, np.uint8).tofile(raw)
    size = ("--layers=1", "--block-size=4", "--heads=2", "--content-size=1",
            "--dtype=uint8", "--from=raw")
    for args, code, text in (
            (["--ratio=2"], 2, "expected a dump, or --heads"),
            ([*size[1:4]], 2, "--ratio=N is missing"),
            (["--ratio=2", *size[1:4], "--to=lhbsc"], 2, "expected hnd or nhd"),
            (["--ratio=2", *size[1:4], "--blocks=1"], 2, "are for a dump"),
            (["--ratio=3", *size[1:4]], 3, "4 slots are not 3 blocks of one size"),
            (["--ratio=2", *size, "--layout=hnd", raw], 2, "an output is missing"),
            (["--ratio=2", *size, "--layout=hnd", "--blocks=9", raw, "o.bin"], 2,
             "has no block 9"),
            (["--ratio=2", *size, "--layout=hnd", "--blocks=", raw, "o.bin"], 2,
             "--blocks is empty"),
            (["--ratio=2", *size, "--layout=lhbsc", raw, "o.bin"], 4,
             "expected heads, slots and content"),
            (["--ratio=2", *size, "--layout=hnd", "--group=x", raw, "o.bin"], 2,
             "has no group 'x'"),
            (["--ratio=2", *size, "--layout=hnd", "--to=hnd", raw, "o.bin"], 2,
             "--to is for no dump")):
        r = kvtool("transfer-sim", "receive", *args, folder=folder)
        tap.ok(r.code == code and text in r.err and
               not os.path.exists(os.path.join(folder, "o.bin")), f"refused: {text}", r)


oracle.run(test_tables, test_random, test_refused, test_topology)
