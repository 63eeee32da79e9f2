#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_self.py [--root=FOLDER] [--list=FILE] [--random=A:B] - a dump equals itself

Every dump of testdata/kv, every line of testdata/engines/samples.tsv and some dumps
of random shape are read twice, compared with themselves, written in every format
that can hold them, cut and put together again, and given every layout and block size
and their own again.  Each time diff finds nothing, the digests are those of the
source (of a random dump those that its values have) and fsck is no worse.  What
cannot be done is refused with one sentence and writes nothing.

That such a test bites is tried first: one bit is flipped in what was written, and
each kind of check must see it.  By default a dump takes its turn with some of the
ways, one of formats, folders and block sizes, and either cuts or layouts; KVT_FULL=1
takes all, and more random dumps; KVT_FEW=1 every sixteenth dump.  --root and --list
name another folder and its list, as samples.tsv is one; --random other dumps by their
numbers.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import zlib

import oracle
import store_trees as st
from foreign_files import Tensor, npz_bytes, torch_bytes
from oracle import DATA, FULL, SHARE, flip, kvtool, read_json, tap
from random_dumps import Dump

ENGINES = os.path.abspath(f"{DATA}/../engines")
OWN = ("h5", "npy", "bin", "safetensors")
# Generations of vLLM's folders, and what each has to be told beside its heads.
FOLDERS = {"vllm-2025": [], "vllm-2026-05": [], "vllm-2026-07": [], "vllm-mla": []}
STEPS = ("read", "formats", "folders", "cuts", "layouts", "blocks")

# What a file may say otherwise than the dump it was made of: how and where it is
# stored, not what is in it.
STORAGE = {"file", "format", "file_bytes", "data_bytes", "ratio", "manifest", "proof",
           "source_format", "tables_proven", "note"}
GROUP_STORAGE = {"tiling", "checksum", "content_cells", "content_cells_proven",
                 "data_bytes", "page_bytes", "page_offset", "memory"}


# ---- the dumps ----------------------------------------------------------------

class Case:
    """One dump: the words of the command line that open it, and where they are said."""

    def __init__(self, name, path, options=(), folder=None, refused=None):
        self.name, self.path, self.options = name, path, list(options)
        self.folder, self.refused = folder, refused
        self.digests = None             # what it holds, where that is known
        self.turn = zlib.crc32(name.encode())

    def some(self, every, n):
        """n of them, others for another dump; all of them in a full run."""
        if FULL or n >= len(every):
            return list(every)
        first = self.turn % len(every)
        return [every[(first + i * len(every) // n) % len(every)] for i in range(n)]


def made_dumps():
    """What lies below testdata/kv and says itself what it is."""
    for folder, below, files in sorted(os.walk(DATA)):
        below.sort()
        for f in sorted(files):
            path = os.path.join(folder, f)
            name = os.path.relpath(path, DATA)
            if "connector" in folder:
                continue
            if f.endswith(".safetensors") or f.endswith(".npy") and \
                    os.path.exists(path[:-3] + "json"):
                yield Case(name, path)
        if os.path.basename(folder) == "connector":
            for d in below:
                path = os.path.join(folder, d)
                if any(os.path.isdir(f"{path}/{r}") for r in os.listdir(path)):
                    said = ["--heads=4"] if "2025" in d else \
                        ["--from=vllm-2026-07", "--layout=nhd"] if "2026_07" in d else []
                    yield Case(os.path.relpath(path, DATA), path, ["--block-size=16", *said])
            if any(f.endswith(".safetensors") for d in below
                   for f in os.listdir(f"{folder}/{d}")):
                yield Case(os.path.relpath(folder, DATA), folder, ["--block-size=16"])


def foreign_dumps(folder):
    """The cache of testdata as other programs keep it, where no sample does."""
    dump = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
    shape = ["--dtype=bf16", "--block-size=16", "--heads=4", "--head-dim=8"]
    st.write_trtllm(f"{folder}/trtllm", dump.cells, range(48))
    yield Case("trtllm", f"{folder}/trtllm", shape)
    st.write_flexkv(f"{folder}/flexkv", dump.cells, "BLKSHD", 2, 3, 4)
    yield Case("flexkv", f"{folder}/flexkv",
               [*shape, "--layers=5", "--layout=flexkv:BLOCKFIRST", "--set=round-robin=4",
                "--set=placement=consecutive"])
    st.put(f"{folder}/kvbm.raw", st.ordered(dump.cells, "BHLKSD"))
    st.put(f"{folder}/kvbm.json",
           json.dumps(st.kvbm_descriptor(dump.dims, "UniversalTP")).encode())
    yield Case("kvbm", f"{folder}/kvbm.raw", ["--from=kvbm", "--dtype=bf16",
                                              f"--manifest={folder}/kvbm.json"])
    layers = dump.cells.transpose(1, 2, 3, 4, 0, 5)         # L B S H K D
    st.put(f"{folder}/a.npz", npz_bytes({f"layer.{i}": a for i, a in enumerate(layers)}))
    yield Case("npz", f"{folder}/a.npz", ["--layout=nhd", *shape])
    st.put(f"{folder}/a.pt", torch_bytes([Tensor("BFloat16Storage", a.reshape(48, 16, 4, 16))
                                          for a in layers]))
    yield Case("torch", f"{folder}/a.pt", ["--layout=nhd", *shape])


def drawn_dumps(folder, numbers):
    for i in numbers:
        dump = Dump(i)
        case = Case(f"random {i}", dump.write(folder))
        case.digests = dump.digests()
        yield case


def listed_dumps(root, path):
    """Lines of a list: path, options, what holds it, what it is."""
    with open(path) as f:
        lines = [line.rstrip("\n").split("\t") for line in f if line.strip()]
    for dump, options, held, *_ in lines[1:]:
        said = [] if options == "-" else shlex.split(options)
        words = held.split()
        refused = int(words[1]) if words[:1] == ["refused"] else None
        yield Case(" ".join([dump] + said), dump, said, root, refused)


# ---- what the program offers ----------------------------------------------------

def all_layouts():
    """A name for each order of axes."""
    names = {}
    for line in kvtool("help", "layouts").out.splitlines()[1:]:
        if not line or line.startswith("vllm:"):
            break
        axes = line[27:].split("  ")[0]
        names.setdefault(axes, line.split()[0])
    return list(names.values())


# ---- one dump ---------------------------------------------------------------------

def flip_bit(path):
    """One bit of one live element, behind the back of every checksum."""
    if os.path.isdir(path):
        return flip(sorted(os.path.join(folder, f)
                           for folder, _, files in os.walk(path) for f in files)[-1], -1)
    bad = f"{path}.bad{os.path.splitext(path)[1]}"
    r = kvtool("mutate", "-fq", "--no-sync", "--fault=flip-bits,count=1", "-o", bad, path)
    return bad if r.code == 0 else path


class Walk:
    """All that is tried with a dump; what went wrong, by step."""

    def __init__(self, case, folder, spoil=None):
        self.case, self.folder, self.spoil = case, folder, spoil
        self.problems = {step: [] for step in STEPS}
        self.done = {step: 0 for step in STEPS}     # what was not refused
        self.step = "read"
        self.base = f"{folder}/base.h5"

    def bad(self, what, result=""):
        self.problems[self.step].append(f"{what}\n{result}".rstrip())

    def run(self, *args):
        return kvtool(*args, folder=self.case.folder)

    def object_of(self, *args):
        """The object that a command prints, or None."""
        r = self.run(*args)
        try:
            if r.code == 0:
                return json.loads(r.out)
        except ValueError:
            pass
        self.bad("no JSON" if r.code == 0 else "failed", r)
        return None

    def write(self, out, *args):
        """
        Where the output is.  None if it was refused as it should be, or not and
        noted; then nothing may be there.
        """
        out = f"{self.folder}/{out}"
        r = self.run(*args, "-f", "--no-sync", *(["-o", out] if args[0] != "convert"
                                                 else [out]))
        if r.code == 0:
            self.done[self.step] += 1
            if self.spoil == self.step:
                return flip_bit(out) or out
            return out
        if r.code not in (3, 4) or r.err.count("\n") != 1 or r.out:
            self.bad("neither done nor refused in a sentence", r)
        if os.path.exists(out):
            self.bad("refused, and written", r)
        return None

    # What a file holds.

    def digests(self, path, *options):
        r = self.run("digest", "--json", *options, path)
        try:
            return {d["scope"]: d["value"] for d in json.loads(r.out)["digests"]}
        except ValueError:
            return {"failed": str(r)}

    def faults(self, path, *options):
        """Errors and warnings by name."""
        r = self.run("fsck", "--json", *options, path)
        try:
            found = json.loads(r.out)["files"][0]["findings"]
        except (ValueError, LookupError):
            return {"failed: " + str(r)}
        return {f["name"] for f in found if f["severity"] != "note"}

    def identity(self, path, *options):
        d = self.object_of("describe", "--json", *options, path)
        if not d:
            return None
        return {k: v for k, v in d.items() if k not in STORAGE and k != "groups"} | {
            "groups": [{k: v for k, v in g.items() if k not in GROUP_STORAGE}
                       for g in d["groups"]]}

    def same(self, path, *options, scopes=None, what=""):
        """path holds what the dump holds, in the scopes that it keeps."""
        scopes = [s for s in scopes or self.content if s in self.content]
        what = what or os.path.basename(path)
        for scope in scopes:
            r = self.run("diff", "--deep", "--no-diagnosis", f"--by={scope}", *options,
                         self.base, path)
            if r.code:
                self.bad(f"{what}: differs by {scope}", r)
        got = self.digests(path, *options)
        for scope in scopes:
            if got.get(scope) != self.content[scope]:
                self.bad(f"{what}: another digest: {got}, not {self.content[scope]}")
        worse = self.faults(path, *options) - self.found
        if worse:
            self.bad(f"{what}: fsck: {' '.join(sorted(worse))}")

    # The steps.

    def read(self):
        """Twice the same, and equal to itself."""
        c = self.case
        mine = (*c.options, c.path)
        first, again = (self.run("describe", "--json", *mine) for _ in range(2))
        if c.refused:
            if first.code != c.refused or first.err.count("\n") != 1:
                self.bad(f"not refused with {c.refused}", first)
            return False
        try:
            self.about = json.loads(first.out)
        except ValueError:
            self.bad("no JSON", first)
            return False
        if self.spoil == "read":
            again.out = again.out.replace("1", "2", 1)
        if first.out != again.out:
            self.bad("described in two ways", again)
        self.content = self.digests(c.path, *c.options)
        if self.content != self.digests(c.path, *c.options):
            self.bad("two digests")
        r = self.run("diff", "--json", *c.options, c.path, c.path)
        if r.code or json.loads(r.out)["result"] != "equal":
            self.bad("differs from itself", r)
        if c.digests and c.digests != self.content:
            self.bad(f"digests are {self.content}, by the values {c.digests}")
        self.found = self.faults(c.path, *c.options)
        made = self.write("base.h5", "convert", "--verify", *mine)
        if not made:
            if self.about["groups"]:        # else there is nothing to write
                self.bad("cannot be made a snapshot")
            return False
        for scope in self.content:
            r = self.run("diff", f"--by={scope}", "--deep", *c.options, c.path, made)
            if r.code:
                self.bad(f"differs from its snapshot by {scope}", r)
        self.same(made)
        return not self.problems["read"]

    def formats(self):
        """Each format of kvtool's own keeps all that the dump says."""
        want = self.identity(self.base)
        for ending in OWN:
            out = self.write(f"own.{ending}", "convert", self.base)
            if out:
                self.same(out)
                got = self.identity(out)
                if got and got != want:
                    self.bad(f"{ending}: says something else\n{apart(want, got)}")

    def geometry(self):
        """What a folder of pages has to be told."""
        g = self.about["groups"][0]
        said = [f"--layout={g['layout']}", f"--dtype={g['dtype']}",
                f"--block-size={g['block_size']}"]
        if g["content_type"]:
            said += [f"--content-type={g['content_type']}"]
        if g["kv"] != 2:
            return said + [f"--content={g['dim']}"]
        if g["total_heads"] != g["heads"]:
            said += ["--set", f"total-heads={g['total_heads']}"]
        return said + [f"--heads={g['heads']}", f"--head-dim={g['dim']}"]

    def tree(self, out, name):
        """What a tree has to be told: of ranks only if it asks for them."""
        said = [f"--from={name}", *self.geometry()]
        if "--set tp-size=" not in self.run("describe", *said, out).err:
            return said
        return said + [next((o for o in self.case.options if "tp-size=" in o),
                            "--set=tp-size=1")]

    def folders(self):
        """Folders of engines, which keep the tokens or the blocks."""
        g = self.about["groups"][0]
        packed = [f"--content-type={g['content_type']}"] if g["content_type"] else []
        for name, said in FOLDERS.items():
            out = self.write(name, "convert", f"--format={name}", self.base)
            if out:
                if name == "vllm-2026-07":      # of a CPU engine: rows of packed blocks
                    cpu = [n for n in g["layout_names"] if n in ("cpu-vec", "cpu-amx")]
                    said = [f"--layout={cpu[0] if cpu else 'nhd'}"]
                self.same(out, f"--from={name}", f"--block-size={g['block_size']}", *said,
                          *([] if name == "vllm-mla" else [f"--heads={g['heads']}"]),
                          *packed, scopes=("tokens",))
        for name in "hicache", "offload", "llmd":
            out = self.write(name, "convert", f"--format={name}", self.base)
            if out and self.in_order():
                self.same(out, *self.tree(out, name), scopes=("blocks",))

    def in_order(self):
        """Such files have no numbers: blocks are numbered in the order of names."""
        raw = self.write("names.bin", "convert", self.base)
        if not raw:
            return self.about["format"] == "offload"
        said = read_json(f"{raw}.json")
        return said["block_names"] == sorted(said["block_names"]) and "block_ids" not in said

    def ids(self, by):
        d = self.object_of("digest", f"--by={by}", "--json", self.base) or {"digests": []}
        return ",".join(map(str, sorted({p[by] for p in d["digests"]})))

    def cuts(self):
        """All of it is cut out, or all parts are and are joined again."""
        groups = self.about["groups"]
        first = min(g["head_start"] for g in groups)
        last = max(g["head_start"] + g["heads"] for g in groups)
        requests = [f"--request={r['id']}" for r in self.about["requests"]]
        least = min([r["first_token"] for r in self.about["requests"]], default=0)
        most = max([r["first_token"] + r["tokens"] for r in self.about["requests"]],
                   default=0)
        whole = {"layers": [f"--layers={self.ids('layer')}"],
                 "blocks": [f"--blocks={self.ids('block')}"],
                 "heads": [f"--heads={first}:{last}"],
                 "tokens": [f"--tokens={least}:{most}"],
                 "requests": requests}
        scopes = {"tokens": ("tokens",), "requests": ("tokens",)}
        for what in self.case.some(list(whole), 2):
            cut = whole[what]
            if not (cut and most if what in scopes else cut[0].split("=")[1]):
                continue                    # there is none
            out = self.write(f"{what}.h5", "slice", *cut, self.base)
            if out:
                self.same(out, scopes=scopes.get(what))
        if FULL or self.case.turn % 2:
            self.join("ranks", [["--tp-size=2", f"--tp-rank={r}"] for r in (0, 1)])

    def join(self, what, parts):
        outs = [self.write(f"{what}{i}.h5", "slice", *part, self.base)
                for i, part in enumerate(parts)]
        if all(outs):
            out = self.write(f"{what}.h5", "merge", *outs)
            if out:
                self.same(out)

    def layouts(self):
        """Another layout holds the same; brought back, the same bytes."""
        mine = [g["layout"] for g in self.about["groups"]]
        if not self.write("straight.npy", "convert", self.base) or len(mine) > 1:
            mine = None
        for to in self.case.some(all_layouts(), 2):
            out = self.write(f"{to}.h5", "relayout", f"--to={to}", self.base)
            if not out:
                continue
            self.same(out)
            back = mine and self.write("back.npy", "relayout", f"--to={mine[0]}", out)
            if back and not equal_bytes(f"{self.folder}/straight.npy", back):
                self.bad(f"{to}: other bytes when brought back")

    def blocks(self):
        """Blocks of another size hold the same tokens; regrouped, the same pool."""
        sizes = {g["block_size"] for g in self.about["groups"]}
        size = max(sizes)
        for to in self.case.some([2 * size, size // 2, 1, 24, 3 * size, 7, 4], 2):
            if not to or to == size:
                continue
            out = self.write(f"bs{to}.h5", "reblock", f"--block-size={to}", self.base)
            if out and "tokens" in self.content:
                self.same(out, scopes=("tokens",))
            if out and len(sizes) == 1:
                out = self.write(f"bs{to}b.h5", "reblock", f"--block-size={size}", out)
                if out:
                    self.same(out, scopes=("tokens",) if "tokens" in self.content else None)

    def all(self):
        if self.read():
            turn = self.case.turn // 2
            taken = (("formats", "folders", "blocks")[turn % 3], ("cuts", "layouts")[turn // 3 % 2])
            for step in STEPS[1:]:
                if step not in taken and not FULL and self.spoil != step:
                    continue
                self.step = step
                getattr(self, step)()
        return self


def equal_bytes(a, b):
    with open(a, "rb") as f, open(b, "rb") as g:
        return f.read() == g.read()


def apart(want, got):
    """The keys that differ, with both values."""
    lines = []
    for k in want:
        if want[k] == got.get(k):
            continue
        if k == "groups":
            lines += [apart(w, g) for w, g in zip(want[k], got[k])]
        else:
            lines.append(f"{k}: {str(want[k])[:200]}, now {str(got.get(k))[:200]}")
    return "\n".join(lines)


def walk(case, spoil=None):
    with oracle.workdir() as folder:
        return Walk(case, folder, spoil).all()


# ---- the test -----------------------------------------------------------------------

def check_bite():
    """A flipped bit, or another number, is seen by the step in which it happens."""
    case = Case("bite", f"{DATA}/s260k/paged_bs16/packed_nhd.bf16.npy")
    for step in STEPS:
        seen = walk(case, step).problems[step]
        tap.ok(seen, f"the test bites: {step}", "one bit was flipped and nothing said so")


def report(done):
    for step in STEPS:
        problems = done.problems[step]
        if done.done[step] or problems or step == "read":
            tap.ok(not problems, f"{done.case.name}: {step}, {done.done[step]} written",
                   "\n".join(problems))


# ---- the list ---------------------------------------------------------------------------

# What lies beside samples and is none: see the README of the folder.
BESIDE = re.compile(r"oracle|^hf_|canonical|facts|order|^README|^LICENSE|^samples\.tsv$|\.py$")
MOST_BYTES = 10 << 20


def check_list(root, lines):
    """The list names all there is, all that it names is there, and it is not much."""
    named = {os.path.normpath(c.path) for c in lines}
    stems = {os.path.splitext(p)[0] for p in named}
    files = [os.path.relpath(os.path.join(d, f), root)
             for d, _, found in os.walk(root) for f in found]
    tap.equal([p for p in sorted(named) if not os.path.exists(f"{root}/{p}")], [],
              "samples.tsv: what it names is there")

    def is_named(path):
        stem, ending = os.path.splitext(path)
        if BESIDE.search(os.path.basename(path)) or \
                ending in (".json", ".npy") and stem in stems:
            return True
        while path and path not in named:
            path = os.path.dirname(path)
        return path != ""

    tap.equal([p for p in sorted(files) if not is_named(p)], [],
              "samples.tsv: names all there is")
    size = sum(os.path.getsize(f"{root}/{p}") for p in files)
    tap.ok(size <= MOST_BYTES, "samples: 10 MiB are enough", f"{size} bytes")


def cases_of(args, folder):
    path = args.list or f"{args.root}/samples.tsv"
    if args.random:
        first, last = map(int, args.random.split(":"))
        yield from drawn_dumps(folder, range(first, last))
        return
    if not args.list:
        yield from made_dumps()
        yield from foreign_dumps(folder)
        yield from drawn_dumps(folder, range(300 if FULL else 30))
    if args.list or os.path.exists(path):
        yield from listed_dumps(os.path.abspath(args.root), path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=ENGINES)
    parser.add_argument("--list")
    parser.add_argument("--random")
    args = parser.parse_args()
    if not args.list and not args.random:
        check_bite()
        if os.path.exists(f"{args.root}/samples.tsv"):
            check_list(args.root, list(listed_dumps(args.root, f"{args.root}/samples.tsv")))
    with oracle.workdir() as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(walk, list(cases_of(args, folder))[::SHARE ** 2]):
            report(done)


if __name__ == "__main__":
    oracle.run(main)
