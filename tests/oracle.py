# SPDX-License-Identifier: Apache-2.0
"""
oracle.py - where the bytes of a KV cache are, said a second time

Shared by the oracle tests.  Nothing here knows how kvtool works: addresses on
the source side come from the address_map of a dump's sidecar, those on the
destination side from the axis strings that a layout is documented with.
"""
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

from plain_files import (flip, patch, read_bytes, read_json, read_text, safetensors_parts,
                         write_bytes, write_json, write_text)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("KVT_BUILD", "build"))
KVTOOL = os.path.abspath(os.environ.get("KVTOOL", "build/kvtool"))
DATA = os.path.abspath(os.environ.get("KVT_DATA", "testdata/kv"))
# What engines wrote; another folder may have more of it.
ENGINES = os.path.abspath(os.environ.get("KVT_ENGINES", "testdata/engines"))
# Of who imports the module kvtool after this one.
sys.path.insert(1, f"{ROOT}/python")
os.environ.setdefault("KVTOOL", KVTOOL)
os.environ.setdefault("KVTOOL_LIBRARY", f"{BUILD}/libkvt.so.0")
FULL = os.environ.get("KVT_FULL", "0") not in ("", "0")
# A program with sanitizers runs where another one has proven the values already: of cases
# that are alike, and many, it gets one of so many.
FEW = os.environ.get("KVT_FEW", "0") not in ("", "0")
SHARE = 4 if FEW else 1


# ---- TAP --------------------------------------------------------------------

def python_module():
    """kvtool's module, or None where sanitizers made no shared library for it."""
    if not os.path.exists(os.environ["KVTOOL_LIBRARY"]):
        return None
    import kvtool as module
    return module


class Tap:
    """Counts test points; the plan comes last, so a dead script has none."""

    def __init__(self):
        self.count = self.failed = 0

    def ok(self, good, name, why=""):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}")
        if not good and why:
            for line in str(why).splitlines()[:12]:
                print(f"#   {line}")
        sys.stdout.flush()
        return bool(good)

    def equal(self, got, want, name):
        return self.ok(got == want, name, f"got  {got}\nwant {want}")

    def skip(self, name, why):
        return self.ok(True, f"{name} # SKIP {why}")

    def done(self):
        print(f"1..{self.count}")
        return 1 if self.failed else 0


tap = Tap()


def run(*checks):
    """All of a test: its checks, each with a folder of its own if it takes one."""
    need_program_and_data()
    for check in checks:
        with workdir() as tmp:
            check(*[tmp][:check.__code__.co_argcount])
    sys.exit(tap.done())


def bail(why):
    print(f"Bail out! {why}")
    sys.exit(1)


def need_program_and_data():
    if not os.access(KVTOOL, os.X_OK):
        bail(f"{KVTOOL}: no such program")
    if not os.path.isdir(DATA):
        bail(f"{DATA}: no such folder")


class Result:
    def __init__(self, args, code, out, err):
        self.args, self.code, self.out, self.err = args, code, out, err

    def __str__(self):
        return (f"{' '.join(self.args)}\nexit {self.code}\n"
                f"{self.out[-400:]}{self.err[-400:]}")

    @property
    def json(self):
        return json.loads(self.out)


_runs = itertools.count()


def environment():
    """To look for leaks takes a third of a short run with sanitizers: one of SHARE does."""
    if next(_runs) % SHARE == 0:
        return None
    return dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") +
                ":detect_leaks=0")


def kvtool(*args, folder=None):
    args = [str(a) for a in args]
    try:
        p = subprocess.run([KVTOOL] + args, stdin=subprocess.DEVNULL, cwd=folder,
                           capture_output=True, timeout=600, env=environment())
    except subprocess.TimeoutExpired:
        return Result(args, "timeout", "", "")
    return Result(args, p.returncode, p.stdout.decode(errors="replace"),
                  p.stderr.decode(errors="replace"))


def has(text, words):
    """Whether words are in a text: a string, or each of some."""
    return all(w in text for w in ((words,) if isinstance(words, str) else words))


def runs(name, *args, says="", folder=None):
    """A test point: the program ends with 0, and prints these words.  What it said."""
    r = kvtool(*args, folder=folder)
    tap.ok(r.code == 0 and has(r.out, says), name, r)
    return r


def complains(r, status, words):
    """Whether it ended with this status and these words, in one sentence without a stop."""
    return r.code == status and r.err.count("\n") == 1 and has(r.err, words) and \
        not re.search(r"[^.]\.\n$", r.err)


def refused(name, status, words, *args, folder=None):
    """A test point: the program ends with this status, and complains in these words."""
    r = kvtool(*args, folder=folder)
    return tap.ok(complains(r, status, words), name, r)


def raises(error, call, *words):
    """The sentence of an exception of that class with these words; '' if none came."""
    try:
        call()
    except error as e:
        return str(e) if has(str(e), words) else ""
    return ""


def ranks_of(path, size, out, *options):
    """Slices of all tensor parallel ranks of a dump; %d in their name is the rank."""
    for rank in range(size):
        kvtool("slice", "-f", "--tp-size", size, "--tp-rank", rank, *options, "-o",
               out % rank, path)
    return [out % rank for rank in range(size)]


def unprove(snapshot):
    """
    What h5py is about to change is no longer what kvtool wrote: then it may not say
    so, as a snapshot of version 1.0 does not.
    """
    snapshot.attrs["format_version"] = np.array([1, 0], "<u4")
    del snapshot.attrs["tables_checksum"]
    return snapshot


def workdir():
    """
    A folder that goes away with the object.  In memory if possible: kvtool
    waits for the disk after each file, a thousand times here.
    """
    memory = "/dev/shm"
    in_memory = "TMPDIR" not in os.environ and os.access(memory, os.W_OK)
    return tempfile.TemporaryDirectory(prefix="kvt-oracle-",
                                       dir=memory if in_memory else None)


# ---- values -----------------------------------------------------------------

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}
ITEMSIZE = {"bfloat16": 2, "float16": 2, "float32": 4}


def small_float(exponent, mantissa, bias, nan):
    """Values of all 256 codes of an fp8 type without infinities."""
    code = np.arange(256)
    e, m = code >> mantissa & (1 << exponent) - 1, code & (1 << mantissa) - 1
    value = np.where(e > 0, (1 + m / (1 << mantissa)) * 2.0 ** (e - bias),
                     m / (1 << mantissa) * 2.0 ** (1 - bias))
    value = np.where(code & 0x80, -value, value)
    value[nan] = np.nan
    return value


E4M3 = small_float(4, 3, 7, [0x7f, 0xff])


def values(bits, dtype):
    """What bits of a type mean; others than these are float8_e4m3fn."""
    if dtype not in ITEMSIZE:
        return E4M3[bits]
    if dtype == "bfloat16":
        bits = bits.astype(np.uint32) << 16
    with np.errstate(invalid="ignore"):
        return bits.view(np.float16 if dtype == "float16" else np.float32).astype(float)


def round_to(numbers, dtype):
    """fp32 rounded once, to nearest even, as bits."""
    if dtype == "bfloat16":
        u = np.ascontiguousarray(numbers, np.float32).view(np.uint32).astype(np.uint64)
        return ((u + 0x7fff + ((u >> 16) & 1)) >> 16).astype(np.uint16)
    if dtype == "float16":
        return numbers.astype(np.float16).view(np.uint16)
    return numbers.astype(np.float32).view(np.uint32)


# ---- axis strings -----------------------------------------------------------

ONE_PLANE = {
    "nhd": "LBSHC", "hnd": "LBHSC", "blshc": "BLSHC", "blhsc": "BLHSC",
    "bhlsc": "BHLSC", "lhbsc": "LHBSC",
    "kv-first-nhd": "LKBSHD", "kv-first-hnd": "LKBHSD",
    "blocks-first-nhd": "LBKSHD", "blocks-first-hnd": "LBKHSD",
    "flex-split": "LBSKHD", "head-halves": "LBHKSD",
    "cross-nhd": "BLKSHD", "cross-hnd": "BLKHSD", "cross-flex": "BLSKHD",
    "cross-head": "BHLKSD", "cross-kv-head": "BKHLSD",
    "cross-layer-head": "BLHKSD",
    "hicache-layer-first": "KLBSHD", "hicache-page-first": "KBSLHD",
    "hicache-page-first-direct": "KBLSHD", "hicache-page-head": "KBHSLD",
}
LATENT = {"mla": "LBSC", "mla-cross": "BLSC"}

# order of keys, order of values, where K stands in what both begin with
TWO_PLANES = {
    "rocm-paged": ("L B H D/x S x", "L B H D S", "L K B"),
    "rocm-paged-page": ("L B H D/x S x", "L B H D S", "L B K"),
    "aiter-shuffle-kv-first": ("L B H D/x S x", "L B H S/x D S%x", "L K B"),
    "aiter-shuffle": ("L B H D/x S x", "L B H S/x D S%x", "L B K"),
    "cpu-vec": ("L B H D S", "L B H S D", "L B H K"),
    "cpu-amx": ("L B H S/16 D/2 S%16 D%2", "L B H D/16 S/2 D%16 S%2",
                "L B H K"),
    "cpu-neon-bf16": ("L B H S/8 D/4 S%8 D%4", "L B H D/2 S/4 D%2 S%4",
                      "L B H K"),
    "cpu-vec-kv-first": ("L B H D S", "L B H S D", "L K B"),
    "cpu-amx-kv-first": ("L B H S/16 D/2 S%16 D%2",
                         "L B H D/16 S/2 D%16 S%2", "L K B"),
    "cpu-neon-bf16-kv-first": ("L B H S/8 D/4 S%8 D%4",
                               "L B H D/2 S/4 D%2 S%4", "L K B"),
}
SEPARATE = {
    "sglang-pool": ("L B S H D", "L B S H D"),
    "flashinfer-pair-nhd": ("L B S H D", "L B S H D"),
    "flashinfer-pair-hnd": ("L B H S D", "L B H S D"),
}
SIX = ("nhd", "hnd", "blshc", "blhsc", "bhlsc", "lhbsc")


class Illegal(Exception):
    """The layout does not fit these extents."""


def parse_order(text, x):
    """[(axis, part, n)]: part is "" for a whole axis, "/" outer, "%" inner."""
    words = text.split() if " " in text else list(text)
    parts = []
    for word in words:
        if word == "x":
            parts.append(("D", "%", x))
        elif len(word) > 1:
            n = x if word[2:] == "x" else int(word[2:])
            parts.append((word[0], word[1], n))
        elif word == "C":
            parts += [("K", "", 0), ("D", "", 0)]
        else:
            parts.append((word, "", 0))
    return parts


def order_terms(parts, dims):
    """[(axis, div, mod, stride)] in elements, and the extent of it all."""
    terms, stride = [], 1
    for axis, part, n in reversed(parts):
        extent = dims[axis]
        if part and extent % n:
            raise Illegal(f"{axis} {extent} is no multiple of {n}")
        if part == "/":
            terms.append((axis, n, 0, stride))
            extent //= n
        elif part == "%":
            terms.append((axis, 1, n, stride))
            extent = n
        else:
            terms.append((axis, 1, 0, stride))
        stride *= extent
    return terms, stride


AXES = "LBSHD"


def walk(terms, dims):
    """Offset of every [L, B, S, H, D], in elements."""
    out = np.zeros([dims[a] for a in AXES], dtype=np.int64)
    for axis, div, mod, stride in terms:
        if axis == "K":
            continue
        i = np.arange(dims[axis], dtype=np.int64) // div
        if mod:
            i %= mod
        shape = [1] * len(AXES)
        shape[AXES.index(axis)] = -1
        out = out + (i * stride).reshape(shape)
    return out


def k_stride(terms):
    return next((t[3] for t in terms if t[0] == "K"), 0)


def preset_offsets(name, dims, itemsize):
    """
    Element offsets [K, L, B, S, H, D] of a preset; separate planes follow each
    other.  dims["K"] is 1 for opaque content.
    """
    x = 16 // itemsize
    if name in SEPARATE:
        keys, nkeys = order_terms(parse_order(SEPARATE[name][0], x), dims)
        values, _ = order_terms(parse_order(SEPARATE[name][1], x), dims)
        return np.stack([walk(keys, dims), nkeys + walk(values, dims)])
    if name in TWO_PLANES:
        planes, join = TWO_PLANES[name][:2], TWO_PLANES[name][2].split()
        out = []
        for k, text in enumerate(planes):
            parts = parse_order(text, x)
            parts.insert(join.index("K"), ("K", "", 0))
            terms, _ = order_terms(parts, dims)
            out.append(walk(terms, dims) + k * k_stride(terms))
        return np.stack(out)
    text = ONE_PLANE.get(name) or LATENT.get(name) or name
    terms, _ = order_terms(parse_order(text, x), dims)
    return np.stack([walk(terms, dims) + k * k_stride(terms) for k in range(dims["K"])])


def place(cells, layout, itemsize):
    """The bytes of cells[K, L, B, S, H, D] in this layout."""
    out = np.zeros(cells.size, cells.dtype)
    out[preset_offsets(layout, dict(zip("KLBSHD", cells.shape)), itemsize)] = cells
    return out.tobytes()


def map_offsets(address_map, dims):
    """The same from a sidecar's address_map."""
    out = []
    for component in ("C",) if "C" in address_map else ("K", "V"):
        m = address_map[component]
        terms = [("D" if t[0] == "C" else t[0],) + tuple(t[1:]) for t in m["terms"]]
        out.append(m["base"] + walk(terms, dims))
    return np.stack(out)


_cache = {}


def cached_offsets(name, dims, itemsize):
    key = (name, tuple(sorted(dims.items())), itemsize)
    if key not in _cache:
        _cache[key] = preset_offsets(name, dims, itemsize)
    return _cache[key]


def legal(name, dims, itemsize):
    try:
        cached_offsets(name, dims, itemsize)
    except Illegal:
        return False
    return True


# ---- files ------------------------------------------------------------------

def manifest_of(path):
    """What stands beside a dump; a test that lacks it has failed before."""
    return read_json(os.path.splitext(path)[0] + ".json")


def sizes(**extents):
    """'sizes' of a manifest: of axes L, B, S, H, and D or C."""
    names = {"L": "layers", "B": "num_blocks", "S": "block_size", "H": "num_kv_heads",
             "D": "head_dim", "C": "content"}
    return {names[axis]: n for axis, n in extents.items()}


def copy_manifest(dump, copy):
    """The manifest beside a dump, which has no checksum, for a copy of the dump."""
    write_json(os.path.splitext(copy)[0] + ".json",
               {**manifest_of(dump), "file": os.path.basename(copy)})


def safetensors_tensors(path):
    """{name: (dtype, shape, bytes)} in file order."""
    header, data = safetensors_parts(path)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
            for name, t in header.items() if name != "__metadata__"}


def manifest_in(path):
    """What kvtool says in the header of a safetensors file."""
    return json.loads(safetensors_parts(path)[0]["__metadata__"]["kvtool"])


def written_groups(path):
    """The manifest in a safetensors file of kvtool's; {id: (of a group, its tensor)}."""
    manifest, tensors = manifest_in(path), safetensors_tensors(path)
    groups = {g.get("id", "g0"): g for g in manifest.get("groups", [manifest])}
    return manifest, {name: (g, tensors[name if name in tensors else "kv_cache"])
                      for name, g in groups.items()}


def in_kv_order(path, *options):
    """What kvtool reads of a file, as LKBSHD: manifest, tensors; None where it refuses."""
    r = kvtool("convert", "-f", *options, path, path + ".out.safetensors")
    if r.code:
        return None, None, r
    flat = path + ".flat.safetensors"
    r = kvtool("relayout", "-f", "--to=LKBSHD", "-o", flat, path + ".out.safetensors")
    assert r.code == 0, r
    return manifest_in(flat), safetensors_tensors(flat), r


def array_bytes(path):
    """Everything a file of one array holds, in file order."""
    if path.endswith(".npy"):
        array = np.load(path)
        if not array.flags.c_contiguous:
            array = array.T
        return array.reshape(-1).view(np.uint8).tobytes()
    tensors = safetensors_tensors(path)
    if len(tensors) != 1:
        raise ValueError(f"{path}: {len(tensors)} tensors, expected 1")
    return next(iter(tensors.values()))[2]


class Dump:
    """An attention dump with its sidecar: cells[K, L, B, S, H, D] as bits."""

    def __init__(self, model, sidecar):
        self.model = model
        self.name = f"{model}/" + sidecar[len(f"{DATA}/{model}/"):-5]
        with open(sidecar) as f:
            side = self.side = json.load(f)
        self.path = os.path.join(os.path.dirname(sidecar), side["file"])
        self.folder = os.path.basename(os.path.dirname(sidecar))
        self.layout = side["layout"]
        self.dtype = side["dtype"]
        self.itemsize = ITEMSIZE[self.dtype]
        sizes = side["sizes"]
        self.latent = "content" in sizes
        self.dims = {
            "L": sizes["layers"], "B": sizes["num_blocks"],
            "S": sizes["block_size"], "H": sizes["num_kv_heads"],
            "K": 1 if self.latent else 2,
            "D": sizes["content" if self.latent else "head_dim"]}
        self.tables = side["block_table"]
        self.ntokens = side["num_tokens"]
        self.head_start = side.get("head_start", 0)
        self.offsets = map_offsets(side["address_map"], self.dims)
        bits = np.frombuffer(array_bytes(self.path), UNSIGNED[self.itemsize])
        self.nelements = bits.size
        self.cells = bits[self.offsets]

    def canonical(self, request):
        """Bits [K, L, T, H, D] that the model's own capture demands."""
        truth = np.load(f"{DATA}/{self.model}/canonical/{request}.fp32.npy")
        if self.latent:
            truth = truth[None, :, :, None, :]
        else:
            truth = truth.transpose(3, 0, 1, 2, 4)
        first = self.head_start
        return round_to(truth[:, :, :, first:first + self.dims["H"]], self.dtype)

    def tokens(self, cells, request):
        """[K, L, T, H, D] of a request out of cells."""
        t = np.arange(self.ntokens[request])
        block = np.array(self.tables[request])[t // self.dims["S"]]
        return cells[:, :, block, t % self.dims["S"]]

    def is_true(self, cells):
        return all(np.array_equal(self.tokens(cells, r), self.canonical(r))
                   for r in self.tables)


def dump(name):
    """One of testdata/kv by its name, MODEL/FOLDER/FILE."""
    return Dump(name.split("/")[0], f"{DATA}/{name}.json")


def sidecars(model, folders=None):
    for folder in sorted(os.listdir(f"{DATA}/{model}")):
        if folder in ("canonical", "connector"):
            continue
        if folders and folder not in folders:
            continue
        top = f"{DATA}/{model}/{folder}"
        for name in sorted(os.listdir(top)):
            if name.endswith(".json"):
                yield f"{top}/{name}"


def attention_dumps():
    return [Dump(m, s) for m in ("s260k", "gqa64", "mla144") for s in sidecars(m)]
