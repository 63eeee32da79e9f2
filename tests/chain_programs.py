# SPDX-License-Identifier: Apache-2.0
"""
chain_programs.py - dumps to begin chains with, and who makes dumps of them

Files asks kvtool, a file for each step; Driver asks build/tests/chain, which keeps
dumps in memory.  Both take what chain_model.py takes, and say what became of it: a
status, and the number or path of the new dump.
"""
import json
import os
import random
import subprocess

import numpy as np

import oracle
import random_dumps
from chain_model import Dump, Group, Request
from oracle import UNSIGNED, kvtool, read_json

AXES = "LBSHKD"
UINT = dict(UNSIGNED) | {8: np.uint64}


# ---- leaves -------------------------------------------------------------------

class Leaf:
    """A file and what describes it; 'truth' its groups' data if known."""

    def __init__(self, name, path, hints=(), truth=None):
        self.name, self.path, self.hints, self.truth = name, path, hints, truth
        self.dump = self.handle = None


ENGINES = "testdata/engines"
REAL = [
    ("transformers", f"{ENGINES}/transformers/5.23.0/dynamic.pt", ()),
    ("transformers window", f"{ENGINES}/transformers/5.23.0/window_static.pt", ()),
    ("transformers latent", f"{ENGINES}/transformers/4.57.6/latent.pt", ()),
    ("llama.cpp mamba", f"{ENGINES}/llama.cpp/mamba.fa0_u0.s1.ggsq", ()),
    ("llama.cpp latent", f"{ENGINES}/llama.cpp/mla.fa0_u0.ggsn", ()),
    ("llama.cpp hole", f"{ENGINES}/llama.cpp/s260k.hole.ggsn", ("heads=4",)),
    ("llama.cpp streams", f"{ENGINES}/llama.cpp/s260k.streams4.ggsn", ("heads=4",)),
    ("llama.cpp window", f"{ENGINES}/llama.cpp/gemma2.fa0_u0.ggsn", ("heads=2",)),
    ("lmcache disk", f"{ENGINES}/lmcache/local_disk",
     ("layers=5", "heads=4", "head-dim=8")),
    ("lmcache gds", f"{ENGINES}/lmcache/gds", ("heads=4",)),
    ("lmcache latent", f"{ENGINES}/lmcache/fs_meta_mla", ()),
    ("sglang", f"{ENGINES}/sglang/page_first",
     ("layers=5", "block-size=16", "heads=4", "head-dim=8", "dtype=bfloat16",
      "layout=KLBSHD")),
    ("offload", f"{ENGINES}/vllm/offload_gemma3_bs32/root",
     ("layout=cpu-vec", "heads=2", "head-dim=32")),
]


def real_leaves():
    for name, path, hints in REAL:
        yield Leaf(name, path, hints)
    for d in oracle.attention_dumps():
        yield Leaf(d.name, d.path, (), [d.cells.transpose(1, 2, 3, 4, 0, 5)])
    for s in oracle.sidecars("mamba2g4"):
        yield Leaf(s[len(oracle.DATA) + 1:-5],
                   os.path.join(os.path.dirname(s), read_json(s)["file"]))


class Made(random_dumps.Dump):
    """Windows and holes, too."""

    def __init__(self, seed):
        super().__init__(seed)
        rng = random.Random(seed ^ 0xc4a1)
        self.windows, self.holes = {}, {}
        for g in self.groups:
            if g.kind == "full_attention" and rng.random() < .15:
                self.windows[g.name] = rng.randint(1, 3 * g.n["S"])
        for name, (tokens, _) in self.requests.items():
            if rng.random() < .1 and tokens > 3:
                begin = self.first.get(name, 0) + rng.randrange(1, tokens - 1)
                self.holes[name] = [[begin, rng.randint(
                    begin + 1, self.first.get(name, 0) + tokens - 1)]]

    def manifest(self):
        m = super().manifest()
        for g, said in zip(self.groups, m.get("groups", [m])):
            if g.name in self.windows:
                said |= {"kind": "sliding_window", "window": self.windows[g.name]}
        if self.holes and self.requests:
            m["holes"] = self.holes
        return m

    def truth(self):
        return [g.bits.reshape(-1).view(UINT[g.type[1]]).reshape(g.bits.shape[:-1])
                for g in self.groups]


def convert(*args):
    r = kvtool("convert", "-q", "--no-sync", *args)
    if r.code:
        oracle.bail(r)
    return args[-1]


def made_leaves(tmp, count):
    """Each as it was written and in one format of kvtool's."""
    for seed in range(count):
        d = Made(seed)
        path = d.write(tmp)
        yield Leaf(f"random {seed}", path, (), d.truth())
        how = [(("--tile", "64"), "h5"), (("--tile", "512"), "h5"), ((), "h5"),
               (("--no-digest",), "h5"), (("--uncompressed",), "h5"),
               ((), "safetensors"), ((), "npy")][seed % 7]
        if how[1] == "npy" and len(d.groups) > 1:
            continue
        out = f"{tmp}/c{seed}.{how[1]}"
        yield Leaf(f"random {seed} {' '.join(how[0])} {how[1]}",
                   convert(*how[0], path, out), (), d.truth())


def tiled_leaves(tmp):
    """Real dumps in small tiles, so that they are cut and moved."""
    for n, d in enumerate(oracle.attention_dumps()):
        if n % 3 == 0:
            tile = ("512", "2K", "16K")[n % 2]
            yield Leaf(f"{d.name} tiles of {tile}",
                       convert("--tile", tile, d.path, f"{tmp}/t{n}.h5"), (),
                       [d.cells.transpose(1, 2, 3, 4, 0, 5)])


# ---- from what a program says to a Dump -------------------------------------------

def dump_of(said, arrays):
    """'said' as the driver prints it; arrays[g] are bytes in the order of AXES."""
    groups = []
    for g, raw in zip(said["groups"], arrays):
        shape, ids = g["shape"], g
        g = dict(g, data=np.frombuffer(raw, UINT[g["elem"]]).reshape(shape))
        if g["layer_ids"] is None:
            g["layer_ids"] = list(range(shape[0]))
        if ids["block_ids"] is None:
            g["block_ids"] = list(range(shape[1]))
        groups.append(Group(**g))
    requests = [Request(r["id"], r["tokens"], r["first"], r["prompt"], r["blocks"],
                        r["holes"]) for r in said["requests"]]
    return Dump(groups, requests, said["tp"])


def dump_of_file(path):
    """Of a safetensors file of kvtool's, by the manifest in it."""
    m, found = oracle.written_groups(path)
    listed = [g for g, _ in found.values()]
    groups, arrays, tables = [], [], []
    for ident, (g, (_, _, raw)) in found.items():
        z = g["sizes"]
        tps = g.get("tokens_per_slot", g.get("tokens_per_state", 1))
        extent = {"L": z["layers"], "B": z["num_blocks"], "H": z["num_kv_heads"],
                  "K": 2 if "head_dim" in z else 1,
                  "S": z.get("slots", z["block_size"] // max(tps, 1)),
                  "D": z.get("head_dim", z.get("content"))}
        axes = [x for x in g["layout"].replace("C", "KD")]
        elem = len(raw) // int(np.prod([extent[x] for x in AXES]))
        array = np.frombuffer(raw, UINT[elem]).reshape([extent[x] for x in axes])
        rest = [x for x in AXES if x not in axes]
        array = array.reshape(list(array.shape) + [1] * len(rest)).transpose(
            [(axes + rest).index(x) for x in AXES])
        arrays.append(np.ascontiguousarray(array).tobytes())
        parts = [[p["name"], p["start"], p["length"], p["global_start"]]
                 if isinstance(p, dict) else p for p in g.get("content", [])]
        blocks = g.get("block_ids")
        known = blocks or list(range(extent["B"]))
        null = g.get("null_block", m.get("null_block"))
        groups.append({
            "id": ident, "kind": g.get("kind", "full_attention"), "elem": elem,
            "layout": g["layout"], "shape": [extent[x] for x in AXES],
            "layer_ids": g.get("layer_ids"), "layer_names": g["layer_names"],
            "block_ids": blocks, "block_valid": g.get("block_valid"),
            "head_start": g["head_start"], "total_heads": g["total_kv_heads"],
            "replication": g["replicas"], "block_size": z["block_size"],
            "tokens_per_slot": tps, "window": g.get("window", 0),
            "retained": g.get("retained_tokens", 0),
            "null": known.index(null) if null in known else -1,
            "components": parts})
        tables.append({r: [known.index(x) for x in t] for r, t in
                       g.get("block_table", m.get("block_table", {})).items()})
    requests = [{"id": r, "tokens": n, "first": m.get("first_token", {}).get(r, 0),
                 "prompt": m.get("prompt_tokens", {}).get(r, 0),
                 "blocks": [t.get(r, []) for t in tables],
                 "holes": [[i, b, e] for i, g in enumerate(listed) for b, e in
                           g.get("holes", m.get("holes", {})).get(r, [])]}
                for r, n in m.get("num_tokens", {}).items()]
    return dump_of({"groups": groups, "requests": requests,
                    "tp": [m.get("tp_size", 1), m.get("tp_rank", 0)]}, arrays)


# ---- chains through files -----------------------------------------------------------

def ranges(ids):
    return ",".join(map(str, sorted(ids)))


class Files:
    """Each dump is a file; each step a call of the program."""

    def __init__(self, tmp, rng):
        self.tmp, self.count, self.rng = tmp, 0, rng

    def new(self, dump=None):
        self.count += 1
        end = self.rng.choice(["h5", "h5", "safetensors"])
        return f"{self.tmp}/f{self.count}.{end}"

    def run(self, command, *args):
        out = self.new()
        tile = ["--tile", self.rng.choice(["64", "512", "4K"])] \
            if out.endswith("h5") else []
        r = kvtool(command, "-q", "--no-sync", *tile, *args[:-1], "-o", out, *args[-1])
        return (r.code, out, str(r))

    def open(self, leaf):
        out = f"{self.tmp}/leaf{self.count}.h5"
        self.count += 1
        r = kvtool("convert", "-q", "--no-sync",
                   *(f"--set={h[4:]}" if h.startswith("set=") else f"--{h}"
                     for h in leaf.hints), leaf.path, out)
        if r.code:
            raise ValueError(r)
        return out

    def load(self, path):
        out = f"{self.tmp}/load.safetensors"
        r = kvtool("convert", "-fq", "--no-sync", path, out)
        if r.code == 0 and " " in open(out, "rb").read(4000).decode("latin1"):
            again = f"{self.tmp}/load2.safetensors"
            if kvtool("relayout", "-fq", "--no-sync", "--to", "LBSHC", "-o", again,
                      out).code == 0:
                out = again
        if r.code:
            raise ValueError(r)
        return dump_of_file(out)

    def digests(self, path):
        r = kvtool("digest", path)
        found = [line.split()[0] for line in r.out.splitlines()]
        return (found if len(found) == 2 else [None] + found)

    def slice(self, path, s):
        args = []
        for option, ids in (("--layers", s.layers), ("--blocks", s.blocks)):
            args += [option, ranges(ids)] if ids is not None else []
        for option, pair in (("--heads", s.heads), ("--tokens", s.tokens)):
            args += [option, f"{pair[0]}:{pair[1]}"] if pair is not None else []
        for option, names in (("--request", s.requests), ("--component", s.components)):
            args += [x for n in sorted(names or ()) for x in (option, n)]
        if s.tp is not None:
            args += ["--tp-size", s.tp[0], "--tp-rank", s.tp[1]] if s.to is None else \
                ["--for-transfer", "--src-tp", s.tp[0], "--src-rank", s.tp[1],
                 "--dst-tp", s.to[0], "--dst-rank", s.to[1]]
        if s.groups:
            args += ["--mamba-groups", s.groups]
        return self.run("slice", *args, [path])

    def merge(self, paths):
        return self.run("merge", paths)

    def reblock(self, path, r):
        return self.run("reblock", "-b", r.size, *(["--compact"] if r.compact else []),
                        *(["--stale", r.stale] if r.stale else []), [path])

    def graft(self, base, donor, spans, dumps):
        """Whole blocks only, those with the same ids in every group."""
        mine, other = dumps
        pairs = {(other.groups[i].blocks[sb], mine.groups[g].blocks[db])
                 for g, (i, rows, _) in spans.items() for sb, _, db, _, _ in rows}
        return self.run("copy-blocks", "--blocks",
                        ",".join(f"{a}:{b}" for a, b in sorted(pairs)), [donor, base])

    def close(self, path):
        os.remove(path)
        for beside in (path + ".json", os.path.splitext(path)[0] + ".json"):
            if os.path.exists(beside):
                os.remove(beside)

    def end(self):
        pass


# ---- chains in one process ------------------------------------------------------------

class Driver:
    """build/tests/chain: see its head for the commands."""

    def __init__(self, build):
        self.kept = set()  # numbers of leaves, which stay open
        self.p = subprocess.Popen([f"{build}/tests/chain"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        self.next = 0

    def ask(self, *fields, payload=b"", results=0):
        """(status, message, the bytes that follow: 'results' times)"""
        self.p.stdin.write("\t".join(map(str, fields)).encode() + b"\n" + payload)
        self.p.stdin.flush()
        out, told = [], "0 "
        for _ in range(max(results, 1)):
            line = self.p.stdout.readline().decode(errors="replace")
            if not line:
                oracle.bail(f"chain ended with {self.p.wait()} in {fields[:3]}")
            code, _, told = line.rstrip("\n").partition(" ")
            if int(code) or not results:
                return int(code), told, out
            n = int(self.p.stdout.readline())
            out.append(self.p.stdout.read(n))
        return 0, told, out

    def get(self, *fields, results=1):
        code, told, out = self.ask(*fields, results=results)
        if code:
            raise ValueError(f"{' '.join(map(str, fields))}: {told}")
        return out

    def make(self, command, *fields, payload=b""):
        self.next = self.next % 15000 + 1
        while self.next in self.kept:
            self.next += 1
        code, told, _ = self.ask(command, self.next, *fields, payload=payload)
        return code, None if code else self.next, told

    def open(self, leaf):
        code, handle, why = self.make("open", leaf.path, *leaf.hints)
        if code:
            raise ValueError(f"{leaf.name}: {why}")
        self.kept.add(handle)
        return handle

    def load(self, handle):
        facts = json.loads(self.get("facts", handle)[0])
        return dump_of(facts, self.get("data", handle, results=len(facts["groups"]))
                       if facts["groups"] else [])

    def digests(self, handle):
        tokens, blocks = self.get("digests", handle)[0].decode().split()
        return [None if tokens == "-" else tokens, blocks]

    def slice(self, handle, s):
        args = [f"{name}={ranges(ids)}" for name, ids in
                (("layers", s.layers), ("blocks", s.blocks)) if ids is not None]
        args += [f"{name}={pair[0]}:{pair[1]}" for name, pair in
                 (("heads", s.heads), ("tokens", s.tokens)) if pair is not None]
        args += [f"request={r}" for r in sorted(s.requests or ())]
        args += [f"component={c}" for c in sorted(s.components or ())]
        args += [f"tp={s.tp[0]},{s.tp[1]}"] if s.tp is not None else []
        args += [f"to={s.to[0]},{s.to[1]}"] if s.to is not None else []
        args += [f"groups={s.groups}"] if s.groups else []
        return self.make("slice", handle, *args)

    def merge(self, handles):
        return self.make("merge", *handles)

    def reblock(self, handle, r):
        return self.make("reblock", handle, r.size, int(r.compact), r.stale or "-")

    def graft(self, base, donor, spans, _):
        def listed(rows, between):
            return between.join(".".join(map(str, r)) for r in rows)
        return self.make("graft", base, donor, *(
            f"{g}:{i}:{listed(rows, ',')}:" +
            (AXES[given[0]] + listed(given[1], ",") if given else "")
            for g, (i, rows, given) in spans.items()))

    def select(self, handle, g, layers, blocks, heads, kv, channels):
        def listed(pairs):
            return ",".join(f"{a}.{n}" for a, n in pairs)
        return self.make("select", handle, g, ",".join(map(str, layers)),
                         ",".join(map(str, blocks)), listed([heads]), listed([kv]),
                         listed(channels))

    def memory(self, like, arrays, dump):
        """A leaf like a dump; arrays[g] in the order of its layout."""
        data = b"".join(in_layout(a, g.layout) for a, g in zip(arrays, dump.groups))
        return self.make("memory", like, len(data), payload=data)

    def constant(self, like, fill):
        return self.make("constant", like, fill)

    def replace(self, handle, g, layout, array):
        data = in_layout(array, layout)
        return self.make("replace", handle, g, layout, len(data), payload=data)

    def close(self, handle):
        self.ask("close", handle)

    def end(self):
        self.ask("end")


def in_layout(array, layout):
    """The bytes of array[L, B, S, H, K, D] in an order of axes, as documented."""
    n = dict(zip(AXES, array.shape))
    if layout.startswith("K:"):
        keys, values = layout[2:].split(" V:")
        halves = [in_layout(array[..., k:k + 1, :], plane)
                  for k, plane in enumerate((keys, values))]
        words = keys.split() if " " in keys else list(keys)
        if "K" not in words:
            return b"".join(halves)
        # what stands before K is the same in both: they take turns
        before = int(np.prod([n[w] for w in words[:words.index("K")]], initial=1))
        return np.concatenate([np.frombuffer(h, np.uint8).reshape(before, -1)
                               for h in halves], axis=1).tobytes()
    terms, total = oracle.order_terms(oracle.parse_order(layout, 16 // array.itemsize), n)
    at = np.zeros([1] * 6, dtype=np.int64)
    for axis, div, mod, stride in terms:
        i = np.arange(n[axis]) // div
        i = (i % mod if mod else i) * stride
        at = at + i.reshape([-1 if a == axis else 1 for a in AXES])
    out = np.zeros(total, array.dtype)
    out[np.broadcast_to(at, array.shape)] = array
    return out.tobytes()
