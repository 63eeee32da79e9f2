#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_workers.py - kvtool workers against a second replay of made-up logs

Logs are drawn at random, sound or with faults of which each must be found.  The
replay here keeps dictionaries and follows the rules as kvtool-workers(1) has
them; the four traces with which vLLM's own class was tried come first.
"""
import json
import os
import random

import oracle
from oracle import FULL, kvtool, tap, write_text

rng = random.Random(11)
KEYS = ("finished_sending", "finished_recving")


# ---- a second replay --------------------------------------------------------

def replay(lines):
    """(finished, invalid blocks, problems as sorted (problem, what, step))."""
    workers = lines[0]["workers"]
    expected = lines[0].get("expected_finished_count") or workers
    left, started, who, ended, awaited = {}, {}, {}, {}, {}
    rank = lines[0].get("output_rank", 0)
    finished, invalid, problems = [], [], []
    for step in sorted({l["step"] for l in lines[1:]}):
        here = [l for l in lines[1:] if l["step"] == step]
        silent = {l.get("worker", rank) for l in here if "output" in l}
        dropped = rank in silent
        if silent and not dropped:
            problems.append(("raised", "-", step))
        done, blocks = set(), set()
        for line in here:
            for key, names in line.get("awaited", {}).items():
                for name in names:
                    awaited.setdefault((key, name), step)
        for line in here:
            if "worker" not in line or "output" in line:
                continue
            w = line["worker"]
            if not dropped and line.get("expected_finished_count"):
                expected = line["expected_finished_count"]
            for key in KEYS:
                for name in line.get(key) or []:
                    what = (key, name)
                    if dropped:
                        problems.append(("lost", name, step))
                        continue
                    if what not in left:
                        if what in ended:
                            problems.append(("exceeded", name, step))
                        left[what] = [expected, expected]
                        started[what], who[what] = step, set()
                    elif w in who[what] and left[what][1] <= workers:
                        problems.append(("repeated", name, step))
                    who[what].add(w)
                    left[what][0] -= 1
                    if left[what][0] == 0:
                        finished.append((step, key, name, left[what][1], started[what]))
                        ended[what] = step
                        done.add(what)
                        del left[what]
                        awaited.pop(what, None)
            for b in line.get("invalid_block_ids") or []:
                if dropped:
                    problems.append(("lost", b, step))
                elif b not in blocks:
                    blocks.add(b)
                    invalid.append((step, b))
        problems += [("both", n, step) for k, n in done
                     if k == KEYS[0] and (KEYS[1], n) in done]
        for line in here:
            if "aggregated" not in line:
                continue
            got = line["aggregated"] or {}
            ids = {(k, n) for k in KEYS for n in got.get(k) or []}
            theirs = set(got.get("invalid_block_ids") or [])
            problems += [("invented", n, step) for k, n in ids - done]
            problems += [("lost", n, step) for k, n in done - ids]
            problems += [("invented", b, step) for b in theirs - blocks]
            problems += [("lost", b, step) for b in blocks - theirs]
    last = max((l["step"] for l in lines[1:] if "awaited" not in l), default=-1)
    problems += [("none", n, last) for k, n in awaited if (k, n) not in left]
    problems += [("incomplete", n, last) for k, n in left]
    return finished, invalid, sorted(problems, key=str)


def block_of(text):
    """The block that a problem without a request is about, if any."""
    if "invalid block" not in text:
        return "-"
    return int(text.split("invalid block ")[1].split(":")[0])


def compare(tmp, lines, name):
    path = f"{tmp}/log.jsonl"
    write_text(path, "".join(json.dumps(l) + "\n" for l in lines))
    r = kvtool("workers", "--json", path)
    finished, invalid, problems = replay(lines)
    if r.code != (1 if problems else 0):
        return tap.ok(False, name, f"wanted {problems}\n{r}")
    o = r.json
    got = ([(f["step"], f["direction"], f["request"], f["reports"], f["since"])
            for f in o["finished"]],
           [(b["step"], b["block"]) for b in o["invalid_blocks"]],
           sorted(((p["problem"], p["request"] if p["request"] is not None
                    else block_of(p["text"]), p["step"])
                   for p in o["problems"]), key=str))
    return tap.equal(got, (finished, invalid, problems), name)


# ---- logs -------------------------------------------------------------------

TRACES = {
    "two workers": (2, [(1, 0, 0, [], ["a"]), (2, 1, 0, [], ["a"])],
                    [(2, "a")]),
    "a count that changes": (4, [
        (1, 0, 0, [], ["b"]), (2, 0, 1, [], ["c"]), (2, 1, 0, [], ["b"]),
        (3, 0, 0, [], ["b"]), (3, 1, 0, [], ["b"])], [(2, "c"), (3, "b")]),
    "a count before ids": (3, [
        (1, 0, 0, [], ["d"]), (1, 1, 1, [], ["d", "e"])], [(1, "e")]),
    "directions apart": (2, [
        (1, 0, 0, ["x"], []), (1, 1, 0, [], ["x"]), (2, 0, 0, ["x"], [])],
        [(2, "x")]),
}


def traces(tmp):
    for name, (start, reports, emitted) in TRACES.items():
        lines = [{"workers": 2, "expected_finished_count": start}]
        for step, worker, count, sent, received in reports:
            line = {"step": step, "worker": worker, "finished_sending": sent,
                    "finished_recving": received}
            if count:
                line["expected_finished_count"] = count
            lines.append(line)
        compare(tmp, lines, f"trace: {name}")
        got = [(f[0], f[2]) for f in replay(lines)[0]]
        tap.equal(got, emitted, f"trace: {name}: as upstream's class")


def sound_log(workers, requests):
    """Every worker reports each request once, in a step of its own."""
    steps = {}
    for i in range(requests):
        first = rng.randrange(20)
        key = rng.choice(KEYS)
        for w in range(workers):
            at = steps.setdefault(first + rng.randrange(4), {})
            at.setdefault(w, {}).setdefault(key, []).append(f"req-{i}")
    for at in steps.values():
        for report in at.values():
            if rng.random() < 0.2:
                report["invalid_block_ids"] = rng.sample(range(50), 3)
    lines = [{"workers": workers}]
    for step in sorted(steps):
        lines += [{"step": step, "worker": w, **steps[step][w]}
                  for w in sorted(steps[step])]
    return lines


def with_aggregates(lines):
    """What an engine that loses nothing would have said of each step."""
    finished, invalid, _ = replay(lines)
    out = [lines[0]]
    for step in sorted({l["step"] for l in lines[1:]}):
        out += [l for l in lines[1:] if l["step"] == step]
        said = {k: [f[2] for f in finished if f[0] == step and f[1] == k] for k in KEYS}
        said["invalid_block_ids"] = [b for s, b in invalid if s == step]
        out.append({"step": step, "aggregated": said})
    return out


def drop_report(lines):
    line = rng.choice([l for l in lines if any(l.get(k) for k in KEYS)])
    del line[next(k for k in KEYS if line.get(k))][0]


def repeat_report(lines):
    line = rng.choice([l for l in lines if any(l.get(k) for k in KEYS)])
    ids = line[next(k for k in KEYS if line.get(k))]
    ids.append(ids[0])


def lose_output(lines):
    step = rng.choice([l["step"] for l in lines[1:] if any(l.get(k) for k in KEYS)])
    at = next(i for i, l in enumerate(lines) if l.get("step") == step)
    lines.insert(at, {"step": step, "output": False})


def lose_block(lines):
    said = [l["aggregated"] for l in lines[1:] if "aggregated" in l
            and l["aggregated"]["invalid_block_ids"]]
    if said:
        rng.choice(said)["invalid_block_ids"].pop()
    return bool(said)


def invent(lines):
    said = rng.choice([l["aggregated"] for l in lines[1:] if "aggregated" in l])
    said["finished_sending"].append("nobody")


def silence(lines):
    """The rank whose output is used has none, said after the ranks before it."""
    lines[0]["output_rank"] = rng.randrange(1, lines[0]["workers"])
    said = [l for l in lines[1:] if l.get("worker", 0) < lines[0]["output_rank"] and
            any(l.get(k) for k in KEYS)]
    if not said:
        return False
    step = rng.choice(said)["step"]
    lines[:] = [l for l in lines if (l.get("step"), l.get("worker")) !=
                (step, lines[0]["output_rank"])]
    at = max(i for i, l in enumerate(lines) if l.get("step") == step and
             l.get("worker", 99) < lines[0]["output_rank"])
    lines.insert(at + 1, {"step": step, "worker": lines[0]["output_rank"],
                          "output": False})
    return True


def await_nobody(lines):
    lines.insert(1, {"step": 0, "awaited": {rng.choice(KEYS): ["nobody"]}})


def finish_both(lines):
    """A request that finished one way finishes the other way in the same step."""
    step, key, name, *_ = rng.choice(replay(lines)[0])
    other = KEYS[1 - KEYS.index(key)]
    at = next(i for i, l in enumerate(lines) if l.get("step") == step)
    lines[:] = [l for l in lines if l.get("step") != step or "worker" not in l and
                "aggregated" not in l]
    lines[at:at] = [{"step": step, "worker": w, key: [name], other: [name]}
                    for w in range(lines[0]["workers"])]


FAULTS = {"the rank that counts is silent": silence,
          "a request is awaited for nothing": await_nobody,
          "both ways in one step": finish_both,
          "a report is dropped": drop_report,
          "a report comes twice": repeat_report,
          "a step has no output": lose_output,
          "a block is lost": lose_block,
          "an id is invented": invent}


def random_log():
    """Anything that is well formed, sense or no sense."""
    workers = rng.randrange(1, 5)
    lines = [{"workers": workers, "expected_finished_count": rng.randrange(0, 6)}]
    if rng.random() < 0.7:
        lines[0]["output_rank"] = rng.randrange(workers)
    for step in sorted(rng.sample(range(30), 8)):
        if rng.random() < 0.3:
            lines.append({"step": step, "awaited": {
                rng.choice(KEYS): rng.choices("abcdefgh", k=2)}})
        if rng.random() < 0.2:
            lines.append({"step": step, "output": False})
        for w in sorted(rng.sample(range(workers), rng.randrange(workers + 1))):
            line = {"step": step, "worker": w}
            if rng.random() < 0.15:
                lines.append({**line, "output": False})
                continue
            for key in KEYS:
                if rng.random() < 0.6:
                    line[key] = [rng.choice("abcdef") for _ in range(rng.randrange(4))]
            if rng.random() < 0.3:
                line["invalid_block_ids"] = [rng.randrange(9) for _ in range(3)]
            if rng.random() < 0.2:
                line["expected_finished_count"] = rng.randrange(4)
            lines.append(line)
    return lines


def main(tmp):
    if not os.access(oracle.KVTOOL, os.X_OK):
        oracle.bail(f"{oracle.KVTOOL}: no such program")
    traces(tmp)
    for i in range(40 if FULL else 8):
        lines = sound_log(rng.randrange(1, 9), 30)
        tap.equal(replay(lines)[2], [], f"sound log {i} is sound")
        compare(tmp, with_aggregates(lines), f"sound log {i}")
    for fault, plant in FAULTS.items():
        for i in range(20 if FULL else 4):
            lines = with_aggregates(sound_log(rng.randrange(2, 9), 30))
            if plant(lines) is False:
                continue
            tap.ok(replay(lines)[2], f"{fault} {i}: is a problem")
            compare(tmp, lines, f"{fault} {i}")
    for i in range(300 if FULL else 40):
        compare(tmp, random_log(), f"any log {i}")


oracle.run(main)
