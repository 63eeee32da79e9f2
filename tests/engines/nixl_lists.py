# SPDX-License-Identifier: Apache-2.0
"""
nixl_lists.py - NIXL carries out the lists of kvtool transfer-sim emit

Two processes, each with an agent of its own, hold the ranks of a source and of a
destination in memory; UCX moves what the lists say.  What the destination then holds
is compared with numpy, which knows the addresses from the definition of the layouts,
and with what transfer-sim exec writes.  Then plans are timed, and the times held
against those that transfer-sim time predicts on a link calibrated here.
"""
import json
import math
import multiprocessing
import os
import random
import re
import sys
import time

os.environ.setdefault("NIXL_LOG_LEVEL", "WARN")

import numpy as np

from proof import Proof
from plain_files import write_json, write_text

GUARD = 4096            # bytes between the ranks of a process, that nothing may touch
CASES = 12              # of each kind of TP


# ---- a process that holds one side -----------------------------------------------

class Peer:
    """What the process does; each method answers one message."""

    def __init__(self, name):
        from nixl_cu12._api import nixl_agent, nixl_agent_config
        self.agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
        self.registered = self.other = None

    def hold(self, ranks):
        """Has the bytes of all ranks in one piece of memory, with guards between."""
        if self.registered:
            self.agent.deregister_memory(self.registered)
        starts, at = [], GUARD
        for raw in ranks:
            starts.append(at)
            at += -(-len(raw) // GUARD) * GUARD + GUARD
        self.memory = np.full(at, 0xa7, np.uint8)
        for start, raw in zip(starts, ranks):
            self.memory[start:start + len(raw)] = raw
        self.starts, self.sizes = starts, [len(raw) for raw in ranks]
        self.bases = [self.memory.ctypes.data + s for s in starts]
        self.registered = self.agent.register_memory(
            [(base, n, rank, "") for rank, (base, n)
             in enumerate(zip(self.bases, self.sizes))], "DRAM")
        return self.agent.get_agent_metadata(), self.bases

    def meet(self, metadata, bases):
        if self.other:
            self.agent.remove_remote_agent(self.other)
        name = self.agent.add_remote_agent(metadata)
        self.other = name.decode() if isinstance(name, bytes) else name
        self.their_bases = bases

    def prepare(self, op, mine, theirs):
        """A transfer of one pair of ranks, from offsets in either rank."""
        handles = []
        for who, rows, bases in (("NIXL_INIT_AGENT", mine, self.bases),
                                 (self.other, theirs, self.their_bases)):
            rows = np.array(rows, np.uint64)
            rows[:, 0] += np.array(bases, np.uint64)[rows[:, 2].astype(int)]
            handles.append(self.agent.prep_xfer_dlist(who, rows, "DRAM"))
        n = sum(row[4] if len(row) == 5 else 1 for row in mine)
        index = np.arange(n, dtype=np.int32)
        return self.agent.make_prepped_xfer(op, handles[0], index, handles[1], index, b"")

    def finish(self, transfer):
        state = self.agent.transfer(transfer)
        while state == "PROC":
            state = self.agent.check_xfer_state(transfer)
        if state != "DONE":
            raise RuntimeError(f"the transfer ended as {state}")

    def move(self, op, pairs):
        for mine, theirs in pairs:
            transfer = self.prepare(op, mine, theirs)
            self.finish(transfer)
            self.agent.release_xfer_handle(transfer)

    def clock(self, op, pairs, times):
        """Microseconds that the pairs take together, one after the other."""
        transfers = [self.prepare(op, *pair) for pair in pairs]
        took = []
        for _ in range(times):
            start = time.perf_counter_ns()
            for transfer in transfers:
                self.finish(transfer)
            took.append((time.perf_counter_ns() - start) / 1000)
        for transfer in transfers:
            self.agent.release_xfer_handle(transfer)
        return took

    def look(self):
        """The ranks, and whether all between them is as it was."""
        guard = np.ones(len(self.memory), bool)
        for start, n in zip(self.starts, self.sizes):
            guard[start:start + n] = False
        ranks = [self.memory[s:s + n].copy() for s, n in zip(self.starts, self.sizes)]
        return ranks, bool((self.memory[guard] == 0xa7).all())


def serve(name, pipe):
    peer = Peer(name)
    while True:
        word, *args = pipe.recv()
        if word == "end":
            # agents that the end of Python takes down bring the process down
            os._exit(0)
        try:
            pipe.send((getattr(peer, word)(*args), None))
        except Exception as error:
            pipe.send((None, f"{name}: {word}: {error!r}"))


class Peers:
    """Both processes, from outside."""

    def __init__(self):
        spawn = multiprocessing.get_context("spawn")
        self.pipes, self.processes = {}, []
        for name in ("src", "dst"):
            self.pipes[name], far = spawn.Pipe()
            p = spawn.Process(target=serve, args=(name, far), daemon=True)
            p.start()
            far.close()
            self.processes.append(p)

    def ask(self, name, *message):
        self.pipes[name].send(message)
        if not self.pipes[name].poll(120):
            raise RuntimeError(f"{name} did not answer to {message[0]}")
        answer, error = self.pipes[name].recv()
        if error:
            raise RuntimeError(error)
        return answer

    def hold(self, src, dst):
        held = {"src": self.ask("src", "hold", src), "dst": self.ask("dst", "hold", dst)}
        self.ask("src", "meet", *held["dst"])
        self.ask("dst", "meet", *held["src"])

    def run(self, word, op, pairs, *args):
        """READ is asked for by the destination, WRITE by the source."""
        order = ("dst", "src") if op == "READ" else ("src", "dst")
        return self.ask(order[0], word, op,
                        [[pair[o] for o in order] for pair in pairs], *args)

    def end(self):
        for pipe in self.pipes.values():
            pipe.send(("end",))
        for p in self.processes:
            p.join(30)


# ---- dumps, and where their elements are ------------------------------------------

PACKED = ["LBSHKD", "LBHSKD", "BLSHKD", "BLHSKD", "BHLSKD", "LHBSKD"]
APART = ["LKBSHD", "LKBHSD", "LBKSHD", "LBKHSD", "BLKHSD", "BKHLSD", "KLBSHD",
         "KBSLHD", "KBHSLD", "K:LKBHD/8SD%8 V:LKBHDS", "K:LBHKDS V:LBHKSD"]
LATENT = ["LBSD", "BLSD"]
TYPES = [("bfloat16", 2), ("float32", 4), ("float8_e4m3fn", 1)]
# kind, heads to choose from, layouts
KINDS = [("gqa", [2, 4, 8], PACKED), ("gqa", [2, 4, 8], APART), ("mqa", [1], PACKED),
         ("mqa", [1], APART), ("mla", [1], LATENT)]


def places(order, extent):
    """The element at [L, B, S, H, K, D] of one order of axes: its number."""
    parts = re.findall(r"([LBSHKD])(?:([/%])(\d+))?", order)
    sizes, keys = [], []
    for axis, sign, n in parts:
        n = int(n or 1)
        sizes.append({"": extent[axis], "/": extent[axis] // n, "%": n}[sign])
        keys.append(("LBSHKD".index(axis), sign == "%"))
    number = np.arange(math.prod(sizes)).reshape(sizes)
    number = number.transpose(sorted(range(len(keys)), key=keys.__getitem__))
    return number.reshape([extent[a] for a in "LBSHKD"])


def addresses(layout, extent):
    """The same of a layout, which may have keys and values in orders of their own."""
    if ":" not in layout:
        return places(layout, extent)
    keys, values = (p.split(":")[1] for p in layout.split())
    if "K" in keys:
        return np.concatenate([places(keys, extent)[:, :, :, :, :1],
                               places(values, extent)[:, :, :, :, 1:]], axis=4)
    half = dict(extent, K=1)
    k = places(keys, half)
    return np.concatenate([k, places(values, half) + k.size], axis=4)


class Side:
    """Dumps of all ranks of a deployment."""

    def __init__(self, rng, case, layout, tp, share):
        self.case, self.layout, self.tp = case, layout, tp
        self.block = rng.choice([4, 8, 16, 24])
        need = {r: -(-n // self.block) for r, n in case.tokens.items()}
        common = case.common // self.block if share else 0
        if case.common % self.block:
            common = 0
        self.pool = sum(need.values()) + rng.randint(1, 5)
        ids = rng.sample(range(self.pool), sum(need.values()))
        self.tables, at = {}, 0
        for r, n in need.items():
            first = self.tables["A"][:common] if r == "B" else []
            self.tables[r] = first + ids[at:at + n - len(first)]
            at += n - len(first)
        self.held = max(case.heads // tp, 1)
        self.first = [r * case.heads // tp for r in range(tp)]
        extent = {"L": case.layers, "B": self.pool, "S": self.block, "H": self.held,
                  "K": case.halves, "D": case.dim}
        self.at = addresses(layout, extent)

    def put(self, raw, rank, first=0):
        """Writes the elements of the requests, from a token on."""
        cells = raw.reshape(-1, self.case.bytes)
        for r, values in self.case.values.items():
            t = np.arange(first, self.case.tokens[r])
            where = self.at[:, np.array(self.tables[r])[t // self.block], t % self.block]
            heads = values[:, t, self.first[rank]:self.first[rank] + self.held]
            cells[where] = heads
        return raw

    def filled(self, seed):
        noise = np.random.default_rng(seed)
        n = self.at.size * self.case.bytes
        return [noise.integers(0, 256, n, dtype=np.uint8) for _ in range(self.tp)]

    def write(self, folder, name, ranks):
        """The files, with manifests; their names."""
        case, out = self.case, []
        sizes = {"layers": case.layers, "num_blocks": self.pool,
                 "block_size": self.block, "num_kv_heads": self.held}
        sizes.update({"content": case.dim} if case.kind == "mla"
                     else {"head_dim": case.dim})
        for rank, raw in enumerate(ranks):
            path = os.path.join(folder, f"{name}.{rank}.bin")
            raw.tofile(path)
            write_json(f"{path}.json",
                       {"layout": self.layout, "dtype": case.dtype, "sizes": sizes,
                        "kind": "mla" if case.kind == "mla" else "full_attention",
                        "tp_size": self.tp, "tp_rank": rank, "total_kv_heads": case.heads,
                        "head_start": self.first[rank], "head_count": self.held,
                        "replicas": max(self.tp // case.heads, 1),
                        "block_table": self.tables, "num_tokens": case.tokens})
            out.append(path)
        return out

    def __str__(self):
        return f"{self.layout} tp{self.tp} bs{self.block}"


class Case:
    """One or two requests of a small model, and two deployments that hold them."""

    def __init__(self, rng, number, unequal):
        self.kind, heads, layouts = KINDS[number % len(KINDS)]
        self.heads, self.layers = rng.choice(heads), rng.randint(1, 3)
        self.dtype, self.bytes = rng.choice(TYPES)
        self.dim, self.halves = rng.choice([8, 16, 24]), 1 if self.kind == "mla" else 2
        self.common = rng.choice([0, 48])
        self.tokens = {"A": self.common + rng.randint(1, 40)}
        if rng.random() < .5:
            self.tokens["B"] = self.common + rng.randint(1, 40)
        noise = np.random.default_rng(rng.getrandbits(32))
        self.values = {r: noise.integers(0, 256, (self.layers, n, self.heads,
                                                  self.halves, self.dim, self.bytes),
                                         dtype=np.uint8)
                       for r, n in self.tokens.items()}
        for values in self.values.values():
            values[:, :self.common] = self.values["A"][:, :self.common]
        tps = [1, 2, 4]
        tp = rng.choice(tps)
        other = rng.choice([n for n in tps if n != tp]) if unequal else tp
        self.src = Side(rng, self, rng.choice(layouts), tp, rng.random() < .5)
        self.dst = Side(rng, self, rng.choice(layouts), other, rng.random() < .5)
        self.cached = rng.choice([0, 0, rng.randrange(min(self.tokens.values()))])
        self.scope = rng.choice(["max", "rfc", "layer"])
        self.seed = rng.getrandbits(32)

    def __str__(self):
        return (f"{self.kind}, {self.heads} heads, {self.dtype}, {self.src} -> "
                f"{self.dst}, scope {self.scope}")


def lists_of(proof, style, *args):
    """The lists of each pair of ranks, as pairs of rows by side."""
    r = proof.must("transfer-sim", "emit", f"--format={style}", *args)
    return r.json["pairs"]


# ---- proofs ------------------------------------------------------------------------

def same(got, want):
    return all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


def faulty(pairs, size):
    """The lists, one piece of which goes elsewhere."""
    pairs = json.loads(json.dumps(pairs))
    row = next(row for pair in pairs for row in pair["dst"])
    row[0] += row[1] if row[0] + 2 * row[1] * (row[4:] or [1])[0] < size else -row[1]
    return pairs


def prepare(proof, number, unequal):
    """A case with the bytes that it has before and must have after."""
    rng = random.Random(f"{proof.seed} {number} {unequal}")
    case = Case(rng, number, unequal)
    folder = proof.folder("case")
    case.source = [case.src.put(raw, rank) for rank, raw
                   in enumerate(case.src.filled(case.seed))]
    case.before = case.dst.filled(case.seed + 1)
    case.after = [case.dst.put(raw.copy(), rank, case.cached)
                  for rank, raw in enumerate(case.before)]
    src = case.src.write(folder, "src", case.source)
    dst = case.dst.write(folder, "dst", case.before)
    proof.must("transfer-sim", "exec", "-q", "--no-sync", f"--cached={case.cached}",
               "-o", os.path.join(folder, "out.%r.bin"), *src, *dst)
    case.written = [np.fromfile(os.path.join(folder, f"out.{r}.bin"), np.uint8)
                    for r in range(case.dst.tp)]
    case.args = [f"--cached={case.cached}", f"--scope={case.scope}", src[0], dst[0]]
    return case


def carry_out(peers, op, case, pairs):
    peers.hold(case.source, case.before)
    peers.run("move", op, pairs)
    got, whole = peers.ask("dst", "look")
    kept, clean = peers.ask("src", "look")
    return got, whole and clean and same(kept, case.source)


def takes_strided(proof):
    """Rows of five numbers; releases before 1.5 take lists of three alone."""
    return tuple(map(int, proof.version.split(".")[:2])) >= (1, 5)


def prove_lists(proof, peers, style, unequal):
    words = "strided lists" if style == "nixl-strided" else "plain lists"
    what = f"NIXL carries out {words} as transfer-sim exec and numpy do"
    on = f"READ and WRITE, {'unequal' if unequal else 'equal'} TP"
    if style == "nixl-strided" and not takes_strided(proof):
        proof.skip(what, on, "this release takes no strided lists")
        return
    with proof.row(what, on) as row:
        moved = 0
        for number in range(CASES):
            case = prepare(proof, number, unequal)
            pairs = lists_of(proof, style, *case.args)
            moved += sum((r[4:] or [1])[0] for pair in pairs for r in pair["src"])
            row.ok(same(case.written, case.after), f"exec as numpy, {case}")
            for op in ("READ", "WRITE"):
                got, whole = carry_out(peers, op, case, pairs)
                row.ok(same(got, case.after), f"{op} as numpy, {case}")
                row.ok(same(got, case.written), f"{op} as exec, {case}")
                row.ok(whole, f"{op} touches nothing else, {case}")
        got, _ = carry_out(peers, "READ", case, faulty(pairs, len(case.before[0])))
        row.ok(not same(got, case.after), "a piece that goes elsewhere is seen")
        row.figure(f"{moved} operations each way")


# ---- time ----------------------------------------------------------------------------

# operations, bytes of each: what the link is fitted to
BATCHES = [(n, size) for n in (1, 16, 64, 256, 1024, 4096)
           for size in (1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20)
           if n * size <= 16 << 20]
MODEL = "--spec=gqa:layers=8,heads=8,head-dim=64"
# name, tokens, source, destination, style
PLANS = [
    ("hnd, scattered", 1024, "layout=hnd,ids=scatter", "ids=scatter", "nixl"),
    ("bhlsc, random ids", 1024, "layout=bhlsc,ids=random:{0}", "ids=random:{1}", "nixl"),
    ("hnd, tp 1 to 2", 1024, "layout=hnd,ids=random:{0}", "tp=2,ids=random:{1}", "nixl"),
    ("hnd, tp 4 to 2", 1024, "layout=hnd,tp=4,ids=random:{0}", "tp=2,ids=random:{1}",
     "nixl"),
    ("nhd, tp 1 to 2", 256, "layout=nhd,ids=random:{0}", "tp=2,ids=random:{1}", "nixl"),
    ("the same, strided", 256, "layout=nhd,ids=random:{0}", "tp=2,ids=random:{1}",
     "nixl-strided"),
    ("hnd, blocks of 16 to 64", 512, "layout=hnd,ids=random:{0}",
     "block-size=64,ids=random:{1}", "nixl"),
]


def reach(pairs, which):
    """How many bytes each rank needs for these lists."""
    ends = {}
    for pair in pairs:
        for row in pair[which]:
            stride, count = row[3:] or (0, 1)
            end = row[0] + stride * (count - 1) + row[1]
            ends[row[2]] = max(ends.get(row[2], 1), end)
    return [np.zeros(ends.get(r, 1), np.uint8) for r in range(max(ends) + 1)]


def clocked(peers, many, rounds=4, times=8):
    """
    The quickest run of each of many lists: what others do on this machine only adds,
    and rounds over all of them keep what comes in bursts from one of them alone.
    """
    best = [math.inf] * len(many)
    for _ in range(rounds):
        for i, pairs in enumerate(many):
            peers.hold(reach(pairs, "src"), reach(pairs, "dst"))
            best[i] = min([best[i]] + peers.run("clock", "READ", pairs, times))
    return best


def batch(n, size):
    """Pieces that lie apart, so that none are merged."""
    rows = [[2 * i * size, size, 0] for i in range(n)]
    return [{"src": rows, "dst": rows}]


def calibrate(proof, row, folder, took):
    """Fits a link to what the batches took."""
    lines = [f"{n},{n * size},{us:.3f}" for (n, size), us in zip(BATCHES, took)]
    path, link = os.path.join(folder, "nixl.csv"), os.path.join(folder, "link.json")
    write_text(path, "\n".join(["n,bytes,us"] + lines) + "\n")
    r = proof.must("transfer-sim", "calibrate", "--json", "--tolerance=1000",
                   "-o", link, path)
    fit = r.json
    row.ok(len(fit["rows"]) == len(BATCHES), "calibrate reads all batches", r)
    a = fit["link"]
    row.figure(f"link: setup {a['setup_us']:.1f} us, {a['op_ns']:.0f} ns an operation, "
               f"{a['rate_gbps']:.1f} GB/s, overlap {a['overlap']}, "
               f"{100 * fit['error']['mean']:.0f} % off its own batches")
    return link


def predict(proof, link, args):
    """Microseconds of all pairs, one after the other."""
    r = proof.must("transfer-sim", "time", "--json", "--emulate=rfc", "--coalesce=nixl",
                   f"--link={link}", *args)
    pairs = r.json["rank_pairs"]
    return (sum(p["closed_form_ns"] for p in pairs) / 1000,
            sum(p["posted_ops"] for p in pairs))


def prove_time(proof, peers):
    with proof.row("transfer-sim time predicts what NIXL takes",
                   f"{os.cpu_count()} cores, UCX through shared memory, READ, the "
                   "quickest of 32, pairs of ranks one after the other") as row:
        ids = proof.seed + 1, proof.seed + 2
        plans = [p for p in PLANS if p[-1] == "nixl" or takes_strided(proof)]
        args = [[MODEL, f"--tokens={tokens}", f"--src={src.format(*ids)}",
                 f"--dst={dst.format(*ids)}"] for _, tokens, src, dst, _ in plans]
        lists = [lists_of(proof, plan[-1], "--scope=rfc", *a)
                 for plan, a in zip(plans, args)]
        took = clocked(peers, [batch(*b) for b in BATCHES] + lists)
        link = calibrate(proof, row, proof.folder("time"), took)
        off = []
        for plan, a, measured in zip(plans, args, took[len(BATCHES):]):
            predicted, ops = predict(proof, link, a)
            error = predicted / measured - 1
            off.append(abs(error))
            row.ok(0 < measured < math.inf and ops > 0, f"{plan[0]}: timed")
            row.figure(f"{plan[0]}, {ops} operations: {measured:.0f} us, predicted "
                       f"{predicted:.0f}, {100 * error:+.0f} %")
        row.figure(f"mean error {100 * sum(off) / len(off):.0f} %, "
                   f"at most {100 * max(off):.0f} %")


def main():
    from importlib.metadata import version
    proof = Proof("NIXL", version("nixl-cu12"))
    peers = Peers()
    for style in ("nixl", "nixl-strided"):
        for unequal in (False, True):
            prove_lists(proof, peers, style, unequal)
    prove_time(proof, peers)
    peers.end()
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
