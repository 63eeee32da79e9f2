# SPDX-License-Identifier: Apache-2.0
"""
vllm_layouts.py - which backend of which release could have written a cache, by its source

For each release every backend of the registry is taken out of the source text of the
wheel (vllm_source.py) and asked on each device: does it accept the configuration, and
where do the bytes of a layer lie, by the shape, the stride order, the customised spec and
the layouts that it declares.  kvtool must say the same of dumps in every layout that has a
name and in random ones.  What tests/oracle_backends.py reads is printed anew by

    vllm_layouts.py facts FOLDER-OF-A-WHEEL... >testdata/vllm_layouts.tsv

What Python does not say is written down: three backends let kernels reinterpret a page.
"""
import ast
import importlib.util
import itertools
import json
import os
import random
import re
import sys
import types

from proof import Proof
from plain_files import read_text, write_json
from vllm_source import Anything, Release

NS = types.SimpleNamespace
DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "uint8": 1, "int8": 1,
          "float8_e4m3fn": 1, "float8_e5m2": 1, "int32": 4, "int64": 8, "bool": 1}


# ---- the device and the libraries that vLLM asks --------------------------------------

class Dtype(str):
    """torch.bfloat16 and its like."""

    @property
    def itemsize(self):
        return DTYPES[self]


class Torch(Anything):
    def __getattr__(self, name):
        name = {"half": "float16", "float": "float32"}.get(name, name)
        if name in DTYPES:
            return Dtype(name)
        return Dtype if name == "dtype" else super().__getattr__(name)


class Platform(Anything):
    def __init__(self, kind, capability):
        super().__init__("platform")
        self.kind, self.capability = kind, capability

    def is_cuda(self):
        return self.kind == "cuda"

    def is_rocm(self):
        return self.kind == "rocm"

    def is_cpu(self):
        return self.kind == "cpu"

    def is_cuda_alike(self):
        return self.kind in ("cuda", "rocm")

    def is_xpu(self):
        return False

    is_tpu = is_out_of_tree = is_unspecified = is_xpu

    def get_device_capability(self, device_id=0):
        return self.capability

    def has_device_capability(self, wanted, device_id=0):
        if self.capability is None:
            return False
        wanted = wanted if isinstance(wanted, tuple) else divmod(wanted, 10)
        return tuple(self.capability) >= tuple(wanted)

    def is_device_capability(self, wanted, device_id=0):
        wanted = wanted if isinstance(wanted, tuple) else divmod(wanted, 10)
        return self.capability is not None and tuple(self.capability) == tuple(wanted)

    def is_device_capability_family(self, wanted, device_id=0):
        return self.capability is not None and self.capability.major == wanted // 10

    def fp8_dtype(self):
        return Dtype("float8_e4m3fn")


class Aiter(Anything):
    """rocm_aiter_ops: switched on where its shuffle is asked for."""

    def __init__(self, shuffle):
        super().__init__("aiter")
        self.shuffle = shuffle

    def is_enabled(self):
        return self.shuffle

    def mla_decode_supports_non_causal(self):
        return True

    def is_shuffle_kv_cache_enabled(self):
        return self.shuffle


class Environment(Anything):
    """vllm.envs: nothing is set."""

    def __getattr__(self, name):
        return None


# cards of ROCm, and the capability that PyTorch gives them
GFX = {"gfx90a": "9.0", "gfx942": "9.4", "gfx950": "9.5", "gfx1100": "11.0",
       "gfx1201": "12.0"}


class World:
    """A release on a device, with all libraries or none: what code of vLLM finds there."""

    def __init__(self, root, on, connector=False, libraries=True, gfx="gfx942", fa=None):
        kind, _, rest = on.partition(":")
        self.on, self.fa, self.cache_layout = on, fa, "NHD"
        transfer = NS(is_kv_transfer_instance=True) if connector else None
        config = NS(model_config=None, kv_transfer_config=transfer, cache_config=None,
                    parallel_config=NS(prefill_context_parallel_size=1,
                                       decode_context_parallel_size=1),
                    attention_config=NS(flash_attn_version=fa,
                                        use_trtllm_attention=None))
        self.config = config
        said = lambda value: lambda *args, **kwargs: value
        standins = {
            "torch": Torch("torch"), "logger": Anything("logger"), "envs": Environment(),
            "rocm_aiter_ops": Aiter("shuffle" in rest),
            "get_kv_cache_layout": lambda: self.cache_layout,
            "get_current_vllm_config": said(config),
            "get_current_vllm_config_or_none": said(config),
            "get_dtype_size": lambda dtype: DTYPES[dtype],
            "is_fa_version_supported": said(libraries),
            "fa_version_unsupported_reason": said(""),
            "is_flash_attn_varlen_func_available": said(libraries),
            "_flashmla_C_AVAILABLE": libraries,
            "_flashmla_extension_C_AVAILABLE": libraries,
            "_aiter_mla_non_causal_asm_kernels": said(libraries),
            ("vllm.utils.flashinfer", "has_"): said(libraries),
            "get_b12x_paged_attention": said(NS(is_supported=said(True)) if libraries
                                             else None),
            "on_mi3xx": said(gfx in ("gfx942", "gfx950")),
            "on_gfx12x": said(gfx == "gfx1201"),
            "is_rdna": said(gfx in ("gfx1100", "gfx1201")), "get_cdna_version": said(3),
        }
        self.release = Release(root, standins)
        self.DeviceCapability = self.get("vllm.platforms.interface.DeviceCapability")
        number = {"cuda": rest, "rocm": GFX.get(gfx)}.get(kind)
        capability = self.DeviceCapability(*map(int, number.split("."))) if number else None
        standins["current_platform"] = Platform(kind, capability)
        self.capability = capability

    def get(self, path):
        return self.release.get(path)

    def backends(self):
        """Name: its class, or None where the release has no code."""
        enum = self.release.module("vllm.v1.attention.backends.registry").nodes
        out = {}
        for node in enum["AttentionBackendEnum"][-1].body:
            if isinstance(node, ast.Assign):
                path = ast.literal_eval(node.value)
                known = path and self.release.path(path.rsplit(".", 1)[0])
                out[node.targets[0].id] = self.get(path) if known else None
        return out


# ---- does it accept a configuration? --------------------------------------------------

def reasons(world, backend, c):
    """validate_configuration(), of what this release asks."""
    world.config.parallel_config.decode_context_parallel_size = 1 + c.dcp
    # the one that looks for DCP itself, and only beside a model that it would take
    looks = backend.get_name() == "FLASH_ATTN_MLA_SPARSE"
    model = NS(index_topk=64)
    world.config.model_config = NS(hf_config=model, hf_text_config=model) if looks else None
    asked = dict(
        head_size=c.head, dtype=Dtype(c.dtype), kv_cache_dtype=c.cache, block_size=c.block,
        use_mla=c.mla, has_sink=c.sinks, use_sparse=c.sparse, use_mm_prefix=c.mm_prefix,
        use_per_head_quant_scales=c.head_scales, device_capability=world.capability,
        attn_type=c.type, has_sliding_window=c.sliding_window,
        use_non_causal=c.non_causal, use_batch_invariant=c.batch_invariant,
        use_kv_connector=c.connector, use_pcp=c.pcp, use_dcp=c.dcp, use_rswa=c.rswa,
        use_adaptive_verification=c.adaptive_verification)
    code = backend.validate_configuration.__func__.__code__
    known = code.co_varnames[:code.co_argcount]
    return backend.validate_configuration(**{k: v for k, v in asked.items() if k in known})


# ---- where do bytes lie? ---------------------------------------------------------------

HEADS = 7


def axes_of(backend, c):
    """A letter for each dimension of a shape: what makes it grow."""
    def shape(blocks=3, block=c.block, heads=1 if c.mla else HEADS, head=c.head):
        return backend.get_kv_cache_shape(blocks, block, heads, head,
                                          cache_dtype_str=c.cache)
    whole = shape()
    grown = {"B": shape(blocks=5), "S": shape(block=16 * c.block)}
    if not c.mla:
        grown["H"] = shape(heads=HEADS + 2)
    out = []
    for i, n in enumerate(whole):
        letter = next((a for a, other in grown.items() if other[i] != n), None)
        out.append({None: "K" if n == 2 and i < len(whole) - 1 else "D",
                    "H": "H" if n == HEADS else "KH"}.get(letter, letter))
    # what lies in a slot of a head, or of all, where keys and values have no axis
    if "K" not in "".join(out):
        out[-1] = "C"
    return out


def of_shape(world, backend, c):
    """Until 0.31: layouts by get_kv_cache_shape() and stride orders."""
    out, axes = set(), axes_of(backend, c)
    required = backend.get_required_kv_cache_layout()
    for world.cache_layout in [required] if required else ["NHD", "HND"]:
        inner = "".join(axes[i] for i in order(backend, False, len(axes)))
        out.add("L" + inner)
        if axes[0] == "K":
            # beside states, whose blocks are whole pages, K is strided inside of B
            out.add("L" + inner.replace("KB", "BK", 1))
        if crosses(backend, len(axes)):
            layered = ["L", *axes]
            out.add("".join(layered[i] for i in order(backend, True, len(layered))))
    return out


def order(backend, layers, n):
    """The stride order, or none, as the runner asks for it."""
    try:
        out = backend.get_kv_cache_stride_order(include_num_layers_dimension=layers)
    except NotImplementedError:
        return range(n)
    assert sorted(out) == list(range(n)), (backend, out, n)
    return out


def crosses(backend, n):
    """Whether a connector may have blocks of all layers in one piece."""
    if hasattr(backend, "indexes_kv_by_block_stride"):
        return backend.indexes_kv_by_block_stride()
    try:
        out = backend.get_kv_cache_stride_order(include_num_layers_dimension=True)
    except NotImplementedError:
        return False
    return len(out) == n + 1 and out[0] != 0


def of_spec(world, backend, c):
    """Since 0.32: of the customised spec and the layouts that are declared."""
    interface = "vllm.v1.kv_cache_interface."
    KVCacheLayout = world.get("vllm.v1.kv_cache_layout.KVCacheLayout")
    AttentionSpec = world.get(interface + "AttentionSpec")
    mode = world.get(interface + "get_kv_quant_mode")(c.cache)
    dtype = Dtype(c.dtype if mode == 0 else "uint8")
    if c.mla:
        spec = AttentionSpec(block_size=c.block, num_kv_heads=1, head_size=c.head,
                             head_size_v=0, dtype=dtype, kv_quant_mode=mode)
    else:
        spec = AttentionSpec(block_size=c.block, num_kv_heads=HEADS, head_size=c.head,
                             dtype=dtype, kv_quant_mode=mode)
    spec = backend.customize_spec(spec)
    slots = {1: "", HEADS: "H", 2: "K", 2 * HEADS: "KH"}[spec.num_heads]
    content = "C" if slots in ("", "H") else "D"
    if slots == "K":
        assert spec.state_content_bytes == HEADS * c.head * dtype.itemsize
        content = "HD"
    declared = backend.supported_kv_cache_layouts()
    axes = {"L": "L", "B": "B", "H": slots, "N": "S", "C": content}
    return {"".join(axes[a] for a in layout.name)
            for layout in (KVCacheLayout if declared is None else declared)}


# Kernels that reinterpret the pages of keys and of values, which a backend calls when:
#   PagedAttention.split_kv_cache() in do_kv_cache_update() of RocmAttentionImpl;
#   reshape_and_cache_shuffle_triton() of rocm_aiter_fa.py if the shuffle is on;
#   cpu_attn_reshape_and_cache(), by the name of _get_attn_isa().
PAGED = "K:{0}HD/xSx V:{0}HDS"
SHUFFLE = "K:{0}HD/xSx V:{0}HS/xDS%x"


def written(world, name, backend, c):
    """Layouts of the bytes, as axes or names."""
    try:
        where = (of_spec if hasattr(backend, "supported_kv_cache_layouts") else
                 of_shape)(world, backend, c)
    except (AssertionError, ValueError):        # it refuses such a cache
        return set()
    if name in ("MINIMAX_M3_SPARSE", "CUTLASS_MSA", "TRITON_MSA") and \
            "shuffle" in world.on:
        return set()            # pages of 16 in a page: an order that has no name
    if name in ("ROCM_ATTN", "ROCM_SEGMENTED_ATTN"):
        return {PAGED.format(w[:3]) for w in where}
    if name == "ROCM_AITER_FA" and "shuffle" in world.on:
        # with K and V side by side, or in blocks that it takes for dense ones, the two
        # are written over each other
        module = world.release.module("vllm.v1.attention.backends.rocm_aiter_fa")
        dense = "k_cache_block_stride" not in module.arguments(
            "reshape_and_cache_shuffle_kernel")
        return {SHUFFLE.format(w[:3]) for w in where
                if "K" in w[:3] and not (dense and w[1] == "B")}
    if name == "CPU_ATTN":
        return {f"cpu-{order}" + "-kv-first" * (w[1] == "K")
                for order in cpu_orders(world, c) for w in where if w[1:3] != "BK"}
    return where


def cpu_orders(world, c):
    """The order of a page, by the name of the instructions that write it."""
    out = set()
    module = world.release.module("vllm.v1.attention.backends.cpu_attn")
    archs = world.get("vllm.platforms.interface.CpuArchEnum")
    for arch, amx in [(a, a is archs.X86 and x) for a in archs for x in (True, False)]:
        module.space["current_platform"] = NS(get_cpu_architecture=lambda a=arch: a)
        module.space["_riscv_supports_rvv"] = lambda: True
        module.space["torch"] = Cpu(amx)
        try:
            isa = module._get_attn_isa(Dtype(c.dtype), c.block, c.head, c.cache)
        except NotImplementedError:
            continue
        out.add("amx" if isa == "amx" else "vec")
        # the C++ of neon has an order of its own where bfloat16 has matrix instructions
        if isa == "neon" and c.dtype == "bfloat16":
            out.add("neon-bf16")
    return out


class Cpu(Torch):
    """torch, on a processor with all that is asked of it but AMX."""

    def __init__(self, amx):
        super().__init__("torch")
        self.cpu = NS(_is_amx_tile_supported=lambda: amx, _is_avx512_supported=lambda: True)


# ---- verdicts -----------------------------------------------------------------

DEVICES = ["cuda:8.0", "cuda:8.9", "cuda:9.0", "cuda:10.0", "cuda:10.3", "cuda:12.0", "rocm"]
FLAGS = {"mla": "mla", "sparse": "sparse", "sinks": "sinks", "sliding_window": "window",
         "connector": "connector", "mm_prefix": "mm-prefix", "head_scales": "head-scales",
         "rswa": "rswa", "non_causal": "non-causal", "batch_invariant": "batch-invariant",
         "pcp": "pcp", "dcp": "dcp", "adaptive_verification": "adaptive-verification"}
PLAIN = dict.fromkeys(FLAGS, False) | {
    "head": 128, "dtype": "bfloat16", "cache": "auto", "block": 64, "type": "decoder"}

# what the version of a library decides beside the device; kvtool counts it as supported
FLASH = ("attention sinks", "partial multimodal", "per-head quant", "kv_cache_dtype",
         "FP8 KV cache requires", "mm_prefix (Prefix", "head_size", "sink not supported on",
         "FLASH_ATTN:")
DECIDED = {"FLASH_ATTN": FLASH, "FLASH_ATTN_DIFFKV": FLASH, "TRITON_FLASH_ATTN": FLASH}


# whose kernels are of one maker alone; validate_configuration() need not say so
NVIDIA = ("FLASHINFER", "TRITON_FLASH", "FLASHMLA", "FLASH_ATTN_MLA", "CUTLASS", "TOKENSPEED",
          "B12X", "HPC_ATTN")
OTHERS = ("CPU_", "AMX_", "XPU_")


def runs_on(name, on):
    """Kernels of another maker are not there to be asked."""
    if on is None:
        return True
    return not name.startswith(OTHERS + (NVIDIA if on.startswith("rocm") else ("ROCM_",)))


class Source:
    """A release, on each device with all libraries or none."""

    def __init__(self, root):
        self.root, self.known = root, {}

    def worlds(self, on, connector):
        key = (on, connector)
        if key not in self.known:
            self.known[key] = []
            for device in [on] if on else DEVICES:
                rocm = device.startswith("rocm")
                for shuffle, gfx, lib, fa in itertools.product(
                        ("", ":shuffle") if rocm else ("",), GFX if rocm else ("",),
                        (True, False), (None,) if rocm else (None, 3, 4)):
                    world = World(self.root, device + shuffle, connector, lib, gfx, fa)
                    self.known[key].append((world, world.backends()))
        return self.known[key]

    def names(self):
        return list(self.worlds("cuda:9.0", False)[0][1])

    def where(self, name):
        """FILE:LINE of its class."""
        world, backends = self.worlds("cuda:9.0", False)[0]
        cls = backends[name]
        return cls and world.release.where(cls)

    def verdict(self, on, name, c, layout=None):
        """
        Could it have this cache (in this layout) on some such device?  And the reasons
        and layouts that say so; None: a library decides.
        """
        said, decided = set(), False
        for connector in (True,) if c.connector else (False, True):
            for world, backends in self.worlds(on, connector):
                backend = backends.get(name)
                # which FlashAttention is told to be used concerns those that use it
                if backend is None or (world.fa and "FLASH_ATTN" not in name):
                    continue
                why = reasons(world, backend, c)
                where = set() if why and not layout else written(world, name, backend, c)
                said |= set(why) or {"writes " + " ".join(sorted(where))}
                # a key and its value next to each other are one content
                if layout is not None and re.sub("KD$", "C", layout) not in where:
                    continue
                if not why:
                    return True, said
                decided |= all(r.startswith(DECIDED.get(name, "-")) for r in why)
        return (None if decided else False), said


# ---- questions ----------------------------------------------------------------

# names that kvtool has for orders of pages, and axes
LAYOUTS = {"rocm-paged": PAGED.format("LKB"), "rocm-paged-page": PAGED.format("LBK"),
           "aiter-shuffle": SHUFFLE.format("LBK"),
           "aiter-shuffle-kv-first": SHUFFLE.format("LKB")}
LAYOUTS |= {n: n for n in (
    "LBSHC LBHSC BLSHC BLHSC BHLSC LHBSC LKBSHD LKBHSD LBKSHD LBKHSD LBSKHD LBHKSD BLKSHD "
    "BLKHSD BLSKHD BHLKSD BKHLSD BLHKSD KLBSHD cpu-vec cpu-vec-kv-first cpu-amx "
    "cpu-amx-kv-first cpu-neon-bf16 cpu-neon-bf16-kv-first").split()}
LATENT = ["LBSC", "BLSC", "LSBC"]


def random_question(rng):
    """(configuration, layout or None)"""
    c = NS(**PLAIN)
    c.mla = rng.random() < 0.3
    c.sparse = rng.random() < (0.4 if c.mla else 0.1)
    c.head = rng.choice([512, 576, 576, 320] if c.mla else [64, 80, 112, 128, 128, 256])
    c.block = rng.choice([16, 32, 48, 64, 64, 128, 256])
    c.dtype = rng.choice(["bfloat16"] * 4 + ["float16", "float32"])
    if rng.random() < 0.3:
        c.cache = rng.choice(["bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2",
                              "fp8_ds_mla", "nvfp4", "nvfp4_ds_mla", "int8_per_token_head",
                              "turboquant_4bit_nc", "ultraquant_4bit"])
    c.connector = rng.random() < 0.3
    for flag in ("sinks", "sliding_window", "mm_prefix", "head_scales", "rswa",
                 "non_causal", "pcp", "dcp", "adaptive_verification"):
        setattr(c, flag, rng.random() < 0.06)
    # what a quantised cache's content is the dump would have to say, too
    if c.cache != "auto" or rng.random() < 0.2:
        return c, None
    if c.mla:
        return c, rng.choice(LATENT)
    return c, rng.choice(list(LAYOUTS) + ["".join(rng.sample("LBKSHD", 6))])


def write_dump(path, c, layout):
    """Zeros, and the manifest that says what they are."""
    sizes = {"layers": 2, "num_blocks": 3, "block_size": c.block}
    sizes |= {"content": c.head} if c.mla else {"num_kv_heads": 4, "head_dim": c.head}
    values = 6 * c.block * c.head * (1 if c.mla else 8)
    with open(path, "wb") as f:
        f.truncate(values * DTYPES[c.dtype])
    write_json(path + ".json", {"layout": layout, "dtype": c.dtype, "sizes": sizes})


def words_of(c, release, on, path):
    """The command line that asks it of kvtool."""
    words = ["expect", "backend", "--json", f"--release={release}"]
    words += [f"--with={word}" for flag, word in FLAGS.items() if getattr(c, flag)]
    words += [f"--on={on}"] if on else []
    if path:
        return words + [path]
    return words + [f"--head-dim={c.head}", f"--dtype={c.dtype}",
                    f"--block-size={c.block}", f"--cache-dtype={c.cache}"]


def answers(text):
    """{backend: whether it is possible}, and why not"""
    rows = json.loads(text)["groups"][0]["backends"]
    return {r["backend"]: r["possible"] for r in rows}, \
        {r["backend"]: r["reason"] for r in rows}


def backends(proof, source, release, rng):
    path = os.path.join(proof.folder("layouts"), "dump.bin")
    with proof.row("which backend could have a cache, and could have written a dump",
                   f"{CASES} random configurations, devices and layouts") as row:
        verdicts = 0
        for i in range(CASES):
            on = rng.choice([None, *DEVICES])
            c, layout = random_question(rng)
            if layout:
                write_dump(path, c, layout)
            r = proof.kvtool(*words_of(c, release, on, path if layout else None))
            if r.code:
                row.ok(False, f"case {i}: {c}", r)
                continue
            got, why = answers(r.out)
            wrong = []
            for name in source.names():
                want, said = source.verdict(on, name, c, LAYOUTS.get(layout, layout)) \
                    if runs_on(name, on) else (False, {"runs elsewhere"})
                verdicts += want is not None
                if want not in (None, got.get(name, False)):
                    wrong.append(f"{name}: kvtool {got.get(name)} ({why.get(name)}), "
                                 f"{source.where(name)} {want} {sorted(said)}")
            row.ok(not wrong, f"case {i} on {on}, {layout}: {c}", "\n".join(wrong))
        row.figure(f"{verdicts} verdicts")


def pages_of_cpu(proof, source, release):
    path = os.path.join(proof.folder("layouts"), "dump.bin")
    with proof.row("which pages CPU_ATTN could have",
                   "each order of a page, type, block size and head size") as row:
        for layout, dtype, block, head in itertools.product(
                [n for n in LAYOUTS if n.startswith("cpu")],
                ("bfloat16", "float16", "float32"), (16, 32, 48, 64), (64, 80, 112, 128)):
            c = NS(**PLAIN | {"dtype": dtype, "block": block, "head": head})
            write_dump(path, c, layout)
            r = proof.kvtool(*words_of(c, release, None, path))
            got = not r.code and answers(r.out)[0]["CPU_ATTN"]
            want, said = source.verdict("cuda:9.0", "CPU_ATTN", c, LAYOUTS[layout])
            row.ok(not r.code and got == want,
                   f"{layout} of {dtype}, {block} tokens and heads of {head}",
                   f"kvtool {got}, source {want} {sorted(said)}")


CASES = 300


def release_of(root):
    return re.search(r"version = '([0-9.]+)",
                     read_text(os.path.join(root, "vllm", "_version.py")))[1]


# ---- facts ------------------------------------------------------------------------------

FACTS = ["release", "backend", "class", "config", "on", "connector", "layouts"]


def bases():
    """Configurations, the plainest first."""
    for cache, mla, sparse, head, block in itertools.product(
            ("auto", "bfloat16", "fp8", "turboquant_4bit_nc", "ultraquant_4bit"),
            (False, True), (False, True), (128, 256, 512, 576), (64, 128, 256, 16)):
        yield NS(**PLAIN | {"cache": cache, "mla": mla, "sparse": sparse, "head": head,
                            "block": block})


def fact(source, on, name, c):
    """Layouts on some such device, or None where each refuses the configuration."""
    out = None
    for connector in (True,) if c.connector else (False, True):
        for world, found in source.worlds(on, connector):
            if (world.fa and "FLASH_ATTN" not in name) or reasons(world, found[name], c):
                continue
            out = (out or set()) | written(world, name, found[name], c)
    return out


def facts(roots):
    """
    testdata/vllm_layouts.tsv: of each backend one configuration that it takes.
    What runs on no GPU is asked without one, "-".
    """
    print("\t".join(FACTS))
    for root in roots:
        source, release = Source(root), ".".join(release_of(root).split(".")[:2])
        for name in source.names():
            if source.worlds("cuda:9.0", False)[0][1][name] is None:
                continue
            devices = [on for on in DEVICES if runs_on(name, on)] or [None]
            c = next(c for c in bases() if any(fact(source, on, name, c) is not None
                                               for on in devices))
            rows = {}
            for on, c.connector in itertools.product(
                    DEVICES if devices[0] else [None, *DEVICES], (False, True)):
                names = fact(source, on, name, c) if runs_on(name, on) else None
                said = "refused" if names is None else " | ".join(sorted(names)) or "none"
                rows.setdefault((c.connector, said), []).append(on or "-")
            for (connector, said), ons in rows.items():
                print("\t".join([
                    release, name, source.where(name) or "-",
                    f"{'mla' if c.mla else 'gqa'} {'sparse' if c.sparse else 'dense'} "
                    f"{c.head} {c.block} {c.cache}", " ".join(ons),
                    "yes" if connector else "any", said]))


def main():
    if sys.argv[1:2] == ["facts"]:
        facts(sys.argv[2:])
        return 0
    root = os.path.dirname(os.path.dirname(importlib.util.find_spec("vllm").origin))
    number = release_of(root)
    proof = Proof("vLLM", number)
    release = ".".join(number.split(".")[:2])
    source = Source(root)
    backends(proof, source, release, random.Random(proof.seed))
    pages_of_cpu(proof, source, release)
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
