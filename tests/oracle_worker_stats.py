#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_worker_stats.py - kvtool workers: stats, events, failures, scheduler outputs

First what vLLM's own classes gave (KVOutputAggregator, LMCacheKVEvents, yield_req_data);
then random steps against a second implementation of the rules, below.
"""
import collections
import json
import os
import random

import oracle
from oracle import kvtool, tap

rng = random.Random(23)
NIXL = ["transfer_duration", "post_duration", "bytes_transferred", "num_descriptors",
        "num_failed_transfers", "num_failed_notifications", "num_failed_handshakes",
        "num_kv_expired_reqs", "num_notifications_after_expiry"]
TOLD = [k for k in NIXL if k not in ("post_duration", "bytes_transferred",
                                     "num_descriptors")]


def run(folder, lines):
    path = os.path.join(folder, "log")
    with open(path, "w", encoding="ascii") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)
    r = kvtool("workers", "-j", path)
    return (json.loads(r.out) if r.code in (0, 1) else None), r


def steps(*of_steps, head=None):
    """Lines of a log: a list of reports of workers for each step."""
    lines = [{"workers": max(len(s) for s in of_steps), **(head or {})}]
    for i, reports in enumerate(of_steps):
        lines += [{"step": i, "worker": w, **r} for w, r in enumerate(reports)]
    return lines


def stats(data, name="S", rule="numbers", **more):
    if data is None:
        return {}
    return {"kv_connector_stats": {"class": name, "rule": rule, "data": data, **more}}


def events(*of_worker):
    return [{} if e is None else {"kv_cache_events": e} for e in of_worker]


def stored(h, parent=None, **more):
    return {"type": "BlockStored", "block_hashes": [h], "parent_block_hash": parent,
            "token_ids": [1, 2], "block_size": 2, "lora_id": None, "medium": "CPU",
            "lora_name": None, **more}


# ---- stats ------------------------------------------------------------------------

def sub(data):
    return stats(data, "Sub", bases=["S"])


# reports of the workers; what comes out, or the word of the error
STATS = [
    ("none, none", [{}, {}], None),
    ("none, {a:2}", [{}, stats({"a": 2})], {"a": 2}),
    ("{a:1}, {a:2,b:1}", [stats({"a": 1}), stats({"a": 2, "b": 1})], {"a": 3, "b": 1}),
    ("{a:1}, {a:10}, {a:100}", [stats({"a": n}) for n in (1, 10, 100)], {"a": 111}),
    ("{a:1}, none, {a:100}", [stats({"a": 1}), {}, stats({"a": 100})], {"a": 101}),
    ("a subclass second", [stats({"a": 1}), sub({"a": 1})], "AssertionError"),
    ("a subclass first", [sub({"a": 1}), stats({"a": 1})], {"a": 2}),
    ("{}, {}", [stats({}), stats({})], {}),
    ("{a:1}, {a:5}", [stats({"a": 1}), stats({"a": 5})], {"a": 6}),
    ("an output that is none", [stats({"a": 1}), {"output": False}], "AssertionError"),
    ("the base class", [stats({"a": 1}, "KVConnectorStats", "none")] * 2,
     "NotImplementedError"),
]


def nixl(data):
    return {"kv_connector_stats": {"class": "NixlKVConnectorStats", "data": data}}


def offload(types, data):
    return {"kv_connector_stats": {"class": "OffloadingConnectorStats",
                                   "data": {"types": types, "data": data}}}


def multi(**of_id):
    return {"kv_connector_stats": {"class": "MultiKVConnectorStats", "data": {
        k: v["kv_connector_stats"] for k, v in of_id.items()}}}


FULL1, FULL2 = {k: [1] for k in NIXL}, {k: [2, 3] for k in NIXL}
REAL = [
    ("Nixl: lists are joined", [nixl(FULL1), nixl(FULL2)], {k: [1, 2, 3] for k in NIXL}),
    ("Nixl: an empty one", [nixl(FULL1), nixl({})], FULL1),
    ("Nixl: the empty one first", [nixl({}), nixl(FULL2)],
     {k: [2, 3] for k in NIXL}),
    ("Nixl: an unknown key", [nixl({"a": [1]}), nixl(FULL2)], "KeyError"),
    ("Nixl: without a transfer or a failure nothing counts",
     [nixl(FULL1), nixl({k: [9] if k == "num_descriptors" else [] for k in NIXL})], FULL1),
    ("offloading: a counter", [offload({"m": "counter"}, {"m": [[["a"], 3]]}),
                               offload({"m": "counter"}, {"m": [[["a"], 4], [["b"], 4]]})],
     {"types": {"m": "counter"}, "data": {"m": [[["a"], 7], [["b"], 4]]}}),
    ("offloading: a gauge", [offload({"m": "gauge"}, {"m": [[["a"], 3]]}),
                             offload({"m": "gauge"}, {"m": [[["a"], 4], [["b"], 4]]})],
     {"types": {"m": "gauge"}, "data": {"m": [[["a"], 4], [["b"], 4]]}}),
    ("offloading: a histogram",
     [offload({"m": "histogram"}, {"m": [[["a"], [1.0]]]}),
      offload({"m": "histogram"}, {"m": [[["a"], [2.0, 3.0]], [["b"], [2.0, 3.0]]]})],
     {"types": {"m": "histogram"},
      "data": {"m": [[["a"], [1.0, 2.0, 3.0]], [["b"], [2.0, 3.0]]]}}),
    ("offloading: a key without a type", [offload({}, {}), offload({}, {"q": [[[], 1]]})],
     "AssertionError"),
    ("Mooncake: lists", [{"kv_connector_stats": {
        "class": "MooncakeKVConnectorStats", "data": {k: [n] for k in (
            "transfer_duration", "bytes_transferred", "num_descriptors",
            "num_failed_transfers", "num_failed_recvs", "num_kv_expired_reqs")}}}
        for n in (1, 2)],
     {k: [1, 2] for k in ("transfer_duration", "bytes_transferred", "num_descriptors",
                          "num_failed_transfers", "num_failed_recvs",
                          "num_kv_expired_reqs")}),
    ("several connectors", [multi(A=nixl(FULL1)), multi(A=nixl(FULL2), B=nixl(FULL1))],
     {"A": {"class": "NixlKVConnectorStats", "data": {k: [1, 2, 3] for k in NIXL}},
      "B": {"class": "NixlKVConnectorStats", "data": FULL1}}),
    ("several, of other classes", [multi(A=nixl(FULL1)), multi(A=offload({}, {}))],
     "AssertionError"),
]


def test_stats(folder):
    for what, reports, want in STATS + REAL:
        out, r = run(folder, steps(reports))
        if not tap.ok(out is not None, f"stats: {what}: a log", r):
            continue
        if isinstance(want, str):
            tap.ok(r.code == 1 and not out["stats"] and
                   [p["problem"] for p in out["problems"]] == ["raised"] and
                   want in out["problems"][0]["text"], f"stats: {what}", r)
        else:
            tap.equal([s["data"] for s in out["stats"]], [] if want is None else [want],
                      f"stats: {what}")
    out, _ = run(folder, [{"workers": 2}, {"step": 0, "output": False},
                          {"step": 0, "worker": 1, **stats({"a": 1})}])
    tap.equal(out["stats"], [], "stats: no output of the rank that counts")
    lines = steps([stats({"a": 1}), stats({"a": 2})])
    mine = {"class": "S", "data": {"a": 3}}
    for name, theirs, want in (("the same", mine, 0), ("null", None, 1),
                               ("others", {"class": "S", "data": {"a": 4}}, 1)):
        _, r = run(folder, lines + [{"step": 0, "aggregated": {
            "kv_connector_stats": theirs}}])
        tap.equal(r.code, want, f"stats: the engine has {name}")


# ---- events -----------------------------------------------------------------------

GONE = {"type": "BlockRemoved", "block_hashes": [1], "medium": "CPU"}
S1, S2 = stored(1), stored(2)
EVENTS = [
    ("none", [None, None], None),
    ("{1}, {1}", [[S1], [S1]], (2, 2, [S1])),
    ("{1}, {2}", [[S1], [S2]], (2, 2, [])),
    ("{1}, {1,2}", [[S1], [S1, S2]], (2, 3, [S1])),
    ("none, {1}", [None, [S1]], (1, 1, [S1])),
    ("{1}, none", [[S1], None], (1, 1, [S1])),
    ("three workers", [[S1, S2], [S1], [S1, S2]], (3, 5, [S1])),
    ("one worker twice", [[S1, S1], [S2]], (2, 3, [S1])),
    ("removed and stored", [[GONE, S1], [GONE, S1]], (2, 4, [GONE, S1])),
    ("other parents", [[stored(1, 5)], [stored(1, 6)]], (2, 2, [])),
    ("another lora_name", [[S1], [stored(1, lora_name="x")]], (2, 2, [])),
    ("a key that is null is missing", [[S1], [stored(1, group_idx=None)]], (2, 2, [S1])),
    ("empty containers", [[], []], (2, 0, [])),
]


def test_events(folder):
    for what, of_worker, want in EVENTS:
        out, r = run(folder, steps(events(*of_worker)))
        got = [(e["workers"], e["events"], e["common"]) for e in out["events"]]
        tap.equal(got, [] if want is None else [want], f"events: {what}")
    lines = steps(events([S1, S2], [S1]))
    for theirs, want in (([S1], 0), ([], 1), ([S1, S2], 1), ([S2], 1)):
        _, r = run(folder, lines + [{"step": 0, "aggregated": {
            "kv_cache_events": theirs}}])
        tap.equal(r.code, want, f"events: the engine has {len(theirs)}")


# ---- failures ---------------------------------------------------------------------

def test_failed(folder):
    out, _ = run(folder, steps([{"finished_recving": ["r3"], "failed_recving": ["r3"]},
                                {"finished_recving": ["r3"]}]))
    tap.equal(out["failed"], [{"step": 0, "request": "r3"}], "failed by one, seen by both")
    out, r = run(folder, steps([{"finished_recving": ["r4"], "failed_recving": ["r4"]}, {}],
                               [{}, {"finished_recving": ["r4"]}]))
    tap.equal((out["failed"], r.code, [f["step"] for f in out["finished"]]),
              ([{"step": 1, "request": "r4"}], 0, [1]), "failed first, finished later")
    out, r = run(folder, steps([{"failed_recving": ["x"]}, {}]))
    tap.ok(r.code == 1 and out["problems"][0]["problem"] == "incomplete",
           "failed and never finished", r)
    lines = steps([{"finished_recving": ["r"], "failed_recving": ["r"]},
                   {"finished_recving": ["r"]}])
    for theirs, want in ((["r"], []), ([], ["lost"]), (["r", "q"], ["invented"])):
        out, _ = run(folder, lines + [{"step": 0, "aggregated": {
            "finished_recving": ["r"], "failed_recving": theirs}}])
        tap.equal([p["problem"] for p in out["problems"]], want,
                  f"failed: the engine has {theirs}")
    out, _ = run(folder, [{"workers": 1}, {"step": 0, "output": False},
                          {"step": 0, "worker": 0, "failed_recving": ["r"]}])
    tap.equal([p["problem"] for p in out["problems"]], ["lost"], "failed without output")


# ---- requests ---------------------------------------------------------------------

def scheduled(new, ids, blocks, resumed):
    return {"scheduler_output": {
        "scheduled_new_reqs": [{"req_id": a, "block_ids": b} for a, b in new],
        "scheduled_cached_reqs": {"req_ids": ids, "new_block_ids": blocks,
                                  "resumed_req_ids": resumed}}}


REQUESTS = [
    ("empty", ([], [], [], []), []),
    ("one new", ([("a", [[1, 2]])], [], [], []), [("a", [[1, 2]], False)]),
    ("two groups", ([("a", [[1, 2], [3]])], [], [], []), [("a", [[1, 2], [3]], False)]),
    ("an empty table", ([("a", [[]])], [], [], []), [("a", [[]], False)]),
    ("cached, no new block", ([], ["b"], [None], []), [("b", None, False)]),
    ("cached, a new block", ([], ["b"], [[[7]]], []), [("b", [[7]], False)]),
    ("cached, resumed", ([], ["b"], [[[7, 8]]], ["b"]), [("b", [[7, 8]], True)]),
    ("new, cached and resumed", ([("a", [[1]])], ["b", "c"], [None, [[9]]], ["c"]),
     [("a", [[1]], False), ("b", None, False), ("c", [[9]], True)]),
    ("lists of unequal length", ([], ["b", "c"], [[[9]]], []), [("b", [[9]], False)]),
    ("a resumed id that is not there", ([], ["b"], [None], ["z"]), [("b", None, False)]),
    ("new and cached", ([("a", [[1]])], ["a"], [[[2]]], []),
     [("a", [[1]], False), ("a", [[2]], False)]),
]


def told(out):
    return [(q["request"], q["block_ids"], q["preempted"]) for q in out["requests"]]


def test_requests(folder):
    for what, args, want in REQUESTS:
        out, r = run(folder, [{"workers": 1}, {"step": 0, **scheduled(*args)},
                              {"step": 0, "worker": 0}])
        tap.equal((told(out), r.code), (want, 0), f"requests: {what}")
    out, _ = run(folder, [{"workers": 1}, {"step": 3, **scheduled([], [], [], [])},
                          {"step": 3, "output": False}])
    tap.equal(out["steps"], 1, "a scheduler's output before a step without output")


# ---- refused ----------------------------------------------------------------------

def test_refused(folder):
    one = {"step": 0, "worker": 0}
    for line, code, text in (
            ({**one, "kv_connector_stats": {"data": {}}}, 3, "has no class"),
            ({**one, "kv_connector_stats": {"class": "X", "data": {}}}, 4,
             "it is not known how X adds up"),
            ({**one, **nixl({"a": 1})}, 3, "is not what such an object has"),
            ({**one, **stats({"a": "1"})}, 3, "is not what such an object has"),
            ({**one, **offload({"m": 1}, {})}, 3, "is not what such an object has"),
            ({**one, **offload({}, {"m": [[1, 2]]})}, 3, "is not what such an object has"),
            ({**one, **multi(A={"kv_connector_stats": {"class": "X"}})}, 4,
             "it is not known how X adds up"),
            ({**one, "kv_cache_events": {}}, 3, "kv_cache_events is not an array"),
            ({**one, "kv_cache_events": [1]}, 3, "something that is not an object"),
            ({"step": 0, "aggregated": {"kv_cache_events": 1}}, 3, "is not an array"),
            ({**one, "output": True}, 3, "output is not false"),
            ({"step": 0, "scheduler_output": {}}, 3, "scheduled_new_reqs is not an array"),
            ({"step": 0, **scheduled([("a", [1])], [], [], [])}, 3, "no block_ids"),
            ({"step": 0, **scheduled([("a", [["x"]])], [], [], [])}, 3, "no block_ids"),
            ({"step": 0, **scheduled([], [1], [], [])}, 3, "scheduled_cached_reqs needs"),
            ({"step": 0, **scheduled([], ["a"], [3], [])}, 3, "new_block_ids has"),
            ({"step": 0, "scheduler_output": {}, "worker": 0}, 3, "unknown key 'worker'")):
        out, r = run(folder, [{"workers": 1}, line])
        tap.ok(out is None and r.code == code and text in r.err and "line 2" in r.err,
               f"refused: {text}", r)
    _, r = run(folder, [{"workers": 1}, {"step": 5, **scheduled([], [], [], [])},
                        {"step": 4, "worker": 0}])
    tap.ok(r.code == 3 and "steps are not in ascending order" in r.err, "steps", r)


# ---- random steps -----------------------------------------------------------------

def add(first, later):
    """The rules once more; raises what the engine raises."""
    if later["class"] != first["class"]:
        raise AssertionError
    a, b = first["data"], later["data"]
    if first["class"] == "NixlKVConnectorStats":
        if not b or not any(b[k] for k in TOLD):
            return
        for k, v in b.items():
            a[k] += v
    elif first["class"] == "OffloadingConnectorStats":
        for k, pairs in b["data"].items():
            kind = b["types"][k]
            a["types"].setdefault(k, kind)
            mine = {tuple(labels): v for labels, v in a["data"].get(k, [])}
            for labels, v in pairs:
                labels = tuple(labels)
                mine[labels] = v if kind == "gauge" or labels not in mine else \
                    mine[labels] + v
            a["data"][k] = [[list(labels), v] for labels, v in mine.items()]
    else:
        for k, v in b.items():
            if k in a:
                add(a[k], v)
            else:
                a[k] = v


def random_stats(kind):
    if kind == "nixl":
        return nixl({} if rng.random() < 0.2 else
                    {k: [rng.randint(0, 9) for _ in range(rng.randint(0, 2))]
                     for k in NIXL})
    if kind == "offload":
        names = rng.sample(["c", "g", "h"], rng.randint(0, 3))
        types = {"c": "counter", "g": "gauge", "h": "histogram"}
        return offload({n: types[n] for n in names}, {
            n: [[list(labels), [rng.randint(0, 9)] if n == "h" else rng.randint(0, 9)]
                for labels in rng.sample([(), ("a",), ("a", "b")], rng.randint(1, 3))]
            for n in names})
    return multi(**{i: random_stats(i) for i in rng.sample(["nixl", "offload"],
                                                          rng.randint(0, 2))})


def filled(s):
    if s["class"] == "NixlKVConnectorStats" and not s["data"]:
        s["data"] = {k: [] for k in NIXL}
    if s["class"] == "MultiKVConnectorStats":
        for inner in s["data"].values():
            filled(inner)
    return s


def test_random(folder):
    lines, want, n = [{"workers": 4}], [], 3000
    for step in range(n):
        kind = rng.choice(["nixl", "offload", "multi"])
        first, bag, workers, pending = None, collections.Counter(), 0, []
        if rng.random() < 0.3:
            ids = rng.sample("abcdef", rng.randint(0, 4))
            blocks = [rng.choice([None, [[rng.randint(0, 9)]]]) for _ in ids]
            blocks = blocks[:rng.randint(0, len(ids))]
            resumed = rng.sample("abcdefgh", 2)
            new = [(i, [[1], [2, 3]]) for i in rng.sample("xyz", rng.randint(0, 2))]
            lines.append({"step": step, **scheduled(new, ids, blocks, resumed)})
            pending = [(i, b, False) for i, b in new] + [
                (i, b, i in resumed) for i, b in zip(ids, blocks)]
        for worker in range(4):
            line = {"step": step, "worker": worker}
            if rng.random() < 0.7:
                line.update(random_stats(kind))
                mine = filled(json.loads(json.dumps(line["kv_connector_stats"])))
                if first is None:
                    first = mine
                else:
                    add(first, mine)
            if rng.random() < 0.7:
                some = [rng.choice([S1, S2, GONE, stored(3, 1)])
                        for _ in range(rng.randint(0, 3))]
                line["kv_cache_events"] = some
                bag.update(json.dumps(e) for e in some)
                workers += 1
            lines.append(line)
        want.append((first["data"] if first else None, workers, sum(bag.values()),
                     [json.loads(e) for e, c in bag.items() if c == workers], pending))
    out, r = run(folder, lines)
    got = [[None, 0, 0, [], []] for _ in range(n)]
    for s in out["stats"]:
        got[s["step"]][0] = s["data"]
    for e in out["events"]:
        got[e["step"]][1:4] = [e["workers"], e["events"], e["common"]]
    for q in out["requests"]:
        got[q["step"]][4].append((q["request"], q["block_ids"], q["preempted"]))
    wrong = [i for i in range(n) if tuple(got[i]) != want[i]]
    tap.ok(not wrong and r.code == 0, f"{n} random steps",
           f"{wrong[:5]}\n" + "\n".join(f"{got[i]}\n{want[i]}" for i in wrong[:2]))


oracle.run(test_stats, test_events, test_failed, test_requests, test_refused, test_random)
