#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_dealt.py - transfer-sim between ranks that deal tokens out, byte for byte

Random sides of both kinds: TP, DCP, chunks, blocks, ids, layouts.  The memory of each rank
of the source is filled with numbers that say layer, token, head and byte; the operations
of --ops copy them, and each rank of the destination must then hold what it would hold if
it had computed its tokens itself.
"""
import random

import numpy as np

import oracle
from oracle import FULL, kvtool, refused, sizes, tap, write_bytes, write_json


class Side:
    """What one engine allocates: [layer][block][head][slot] or [slot][head] of rows."""

    def __init__(self, rng, heads, tokens):
        self.dcp = rng.choice((1, 1, 2, 3, 4))
        copies = rng.choice((1, 2))
        if heads == 1:
            self.tp = self.dcp * copies
        elif self.dcp > 1:
            self.tp = heads * self.dcp * copies
        else:
            self.tp = rng.choice((1, heads, heads * 2))
        self.chunk = rng.choice((1, 1, 2, 4))
        self.block = self.chunk * rng.choice((2, 3, 4))
        self.layout = rng.choice(("hnd", "nhd"))
        n = -(-tokens // (self.block * self.dcp))
        self.pool = n + rng.randint(1, 4)
        self.ids = rng.sample(range(self.pool), n)
        self.heads = heads

    def text(self):
        return (f"layout={self.layout},tp={self.tp},dcp={self.dcp},block-size={self.block},"
                f"interleave={self.chunk},pool={self.pool},"
                f"ids=list:{':'.join(map(str, self.ids))}")

    def own_heads(self, rank):
        """Which heads of the model; more ranks than heads hold them in groups."""
        if self.tp >= self.heads:
            return [rank * self.heads // self.tp]
        each = self.heads // self.tp
        return list(range(rank * each, (rank + 1) * each))

    def memory(self, rank, layers, row, tokens, filled):
        """Of a rank: 'filled' tokens have their numbers, all else is -1."""
        own = self.own_heads(rank)
        out = np.full((layers, self.pool, len(own), self.block, row), -1, dtype=np.int64)
        for t in filled:
            if t >= tokens or t // self.chunk % self.dcp != rank % self.dcp:
                continue
            at = t // (self.chunk * self.dcp) * self.chunk + t % self.chunk
            block, slot = self.ids[at // self.block], at % self.block
            for h, head in enumerate(own):
                for layer in range(layers):
                    first = ((layer * tokens + t) * self.heads + head) * row
                    out[layer, block, h, slot] = np.arange(first, first + row)
        return out if self.layout == "hnd" else out.transpose(0, 1, 3, 2, 4)


def run(src, dst, spec, layers, row, tokens, cached):
    words = ["transfer-sim", f"--spec={spec}", "-t", tokens, "--cached", cached,
             f"--src={src.text()}", f"--dst={dst.text()}"]
    r = kvtool(*words, "--ops")
    what = f"{spec} {tokens} from {cached}: {src.text()} -> {dst.text()}"
    if not tap.ok(r.code == 0, what, r):
        return
    old = [src.memory(i, layers, row, tokens, range(tokens)).flatten()
           for i in range(src.tp)]
    new = [dst.memory(i, layers, row, tokens, []).flatten() for i in range(dst.tp)]
    wrote = [np.zeros(len(m), dtype=int) for m in new]
    names = r.out.splitlines()[0].split(",")
    for line in r.out.splitlines()[1:]:
        op = dict(zip(names, line.split(",")))
        s, d = int(op["src_rank"]), int(op["dst_rank"])
        a, b, n = (int(op[k]) for k in ("src_off", "dst_off", "len"))
        new[d][b:b + n] = old[s][a:a + n]
        wrote[d][b:b + n] += 1
    want = [dst.memory(i, layers, row, tokens, range(cached, tokens)).flatten()
            for i in range(dst.tp)]
    tap.ok(all((w == g).all() for w, g in zip(want, new)) and
           all((w == (m >= 0)).all() for w, m in zip(wrote, want)), f"{what}: the bytes")
    r = kvtool(*words, "--json")
    groups = r.json["groups"]
    tap.equal({(g["src"]["dcp_size"], g["dst"]["dcp_size"]) for g in groups},
              {(src.dcp, dst.dcp)}, f"{what}: JSON")
    if src.dcp != dst.dcp:
        r = kvtool("transfer-sim", "time", *words[1:], "--emulate=nixl")
        tap.ok(r.code in (3, 4) and "no block is moved whole" in r.err,
               f"{what}: NIXL cannot", r)


def check_refused():
    for words, code, why in (
            (["--spec=mla:layers=1,latent=8", "--dst=tp=4,dcp=3"], 3, "does not divide"),
            (["--spec=gqa:layers=1,heads=4,head-dim=8", "--dst=tp=8,dcp=4"], 3,
             "cannot hold 4 heads"),
            (["--spec=mla:layers=1,latent=8", "--dst=tp=4,dcp=4,interleave=3"], 3,
             "interleave=3 does not divide"),
            (["--spec=sliding-window:layers=1,heads=1,head-dim=8,window=64",
              "--dst=tp=2,dcp=2"], 4, "cannot share"),
            (["--spec=mla:layers=1,latent=8", "--dst=tp=4,dcp=4",
              "--replica-map=modulo"], 4, "modulo"),
            (["--spec=compressed:layers=1,heads=1,head-dim=8,ratio=4",
              "--dst=tp=4,dcp=4"], 4, "one token"),
            ([f"{oracle.DATA}/s260k/paged_bs16/packed_nhd.bf16.npy", "--dst=tp=2,dcp=2"], 4,
             "of a model's sides")):
        refused(f"refused: {why}", code, why, "transfer-sim", *words)


def check_dumps(tmp):
    """Dumps of ranks that deal tokens out have slots of their own."""
    files = []
    for tp, dcp in ((1, 1), (2, 2), (2, 1)):
        files.append(f"{tmp}/tp{tp}dcp{dcp}.bin")
        write_bytes(files[-1], bytes(16 * 4 * 8))
        write_json(files[-1].replace(".bin", ".json"),
                   {"file": files[-1].rsplit("/", 1)[1], "layout": "LBSC", "kind": "mla",
                    "dtype": "uint8", "tp_size": tp, "dcp_size": dcp,
                    "sizes": sizes(L=1, B=4, S=16, C=8), "num_tokens": {"A": 40},
                    "block_table": {"A": [2, 0, 1]}})
    for a in files:
        for b in files:
            r = kvtool("transfer-sim", a, b)
            alike = a == b or "dcp2" not in a + b
            tap.ok(r.code == 0 if alike else r.code == 4 and "was dealt" in r.err,
                   f"{a[len(tmp) + 1:]} to {b[len(tmp) + 1:]}", r)


def main(tmp):
    check_dumps(tmp)
    rng = random.Random(41)
    for _ in range(400 if FULL else 60):
        heads = rng.choice((1, 1, 2, 4))
        layers, tokens = rng.randint(1, 2), rng.randint(1, 40)
        row = 4 if heads == 1 else 8
        spec = f"mla:layers={layers},latent=4,elem=1" if heads == 1 else \
            f"gqa:layers={layers},heads={heads},head-dim=4,elem=1"
        run(Side(rng, heads, tokens), Side(rng, heads, tokens), spec, layers, row, tokens,
            rng.choice((0, 0, rng.randrange(tokens))))
    r = kvtool("transfer-sim", "-m", "deepseek-v3", "--dst=tp=4,dcp=4", "-t", 2048, "--json")
    groups = r.json["groups"]
    tap.equal([(g["group"], g["slots"], g["dst"]["dcp_rank"]) for g in groups],
              [("attn", 512, 0), ("attn.2", 512, 1), ("attn.3", 512, 2), ("attn.4", 512, 3)],
              "a quarter of the tokens for each rank")
    check_refused()


oracle.run(main)
