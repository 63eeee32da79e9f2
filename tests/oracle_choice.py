#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_choice.py - expect backend, layout and connector against what vLLM 0.32 answers

The tables were made by calling the engine's own functions on a CPU, and are copied here.
Rows marked SOURCE are of backends that no CPU can import: they were read.
"""
import json
import os
import re

from oracle import DATA, kvtool, run, tap


# ---- the reasons of all backends ------------------------------------------------

TEXT = {"h": "head_size not supported", "d": "dtype not supported",
        "c": "kv_cache_dtype not supported", "b": "block_size not supported",
        "n": "non-MLA not supported", "s": "non-sparse not supported",
        "C": "compute capability not supported", "0": "not implemented in this release of vLLM",
        "M": "MLA not supported", "k": "KV connector not supported",
        "q": "per-head quant scales not supported",
        "V": "FLASHINFER_MLA_SPARSE_DSV4 requires SM10x or SM12x"}

# heads of 128, bfloat16, auto, blocks of 16 on 9.0; what per-head scales of fp8 add,
# less the answers that the installed flash-attn decides; layouts, - where any will do
BACKENDS = """
FLASH_ATTN - ? -
FLASH_ATTN_DIFFKV - ? -
TRITON_ATTN - q -
TRITON_ATTN_DIFFKV - q -
TRITON_FLASH_ATTN h ? LBNHC,LBHNC,BLNHC,BLHNC,BHLNC,LHBNC
ROCM_ATTN - q LHBNC,LBHNC
ROCM_SEGMENTED_ATTN - q LHBNC,LBHNC
ROCM_AITER_MLA n q -
ROCM_AITER_TRITON_MLA n q -
ROCM_AITER_FA - q LBHNC,LHBNC
ROCM_AITER_MLA_SPARSE ns q LBNHC,LBHNC,BLHNC
XPU_MLA_SPARSE hns cq -
TORCH_SDPA 0 - -
FLASHINFER - q -
TRITON_FLASHINFER hbC q LBNHC,LBHNC,BLNHC,BLHNC,BHLNC,LHBNC
FLASHINFER_MLA hbnC q -
TOKENSPEED_MLA hcbnC q -
FLASHINFER_MLA_SPARSE hbnsC q -
FLASHINFER_MLA_SPARSE_SM120 hbnsC q -
FLASHINFER_MLA_SPARSE_SM90 hbns q -
TRITON_MLA n q -
CUTLASS_MLA hbnC q -
FLASHMLA hbn q -
FLASHMLA_SPARSE hbns q -
FLASHMLA_SPARSE_DSV4 hbns q -
FLASHINFER_MLA_SPARSE_DSV4 hbnsCV q -
ROCM_FLASHMLA_SPARSE_DSV4 hbns q -
FLASHMLA_SPARSE_DSV41 hbns q -
FLASHINFER_MLA_SPARSE_DSV41 hbnsCV q -
FLASHMLA_MEGA_ATTN_DSV41 hbnsC q -
B12X bC q LBHNC,BLHNC
FLASH_ATTN_MLA hn cq -
FLASH_ATTN_MLA_SPARSE bns cqF -
MINIMAX_M3_SPARSE cbs q -
CUTLASS_MSA cbs q -
TRITON_MSA cbs q -
NO_ATTENTION 0 - -
FLEX_ATTENTION - cq LBNHC
HPC_ATTN b cq LBNHC
ROCM_AITER_UNIFIED_ATTN - q LBHNC,LHBNC
CPU_ATTN b q LBHNC
CPU_MLA hn cq -
AMX_MLA hbn cq -
TURBOQUANT c q LBNHC
ULTRAQUANT c q LBNHC
CUSTOM 0 - -
"""
TEXT["F"] = ("FlashAttention MLA Sparse currently supports only FP16/BF16 KV cache")


def backends(*args):
    r = kvtool("expect", "backend", "-j", *args)
    if r.code:
        return {}, r
    group = r.json["groups"][0]
    return {b["backend"]: b for b in group["backends"]}, group


def ask_each(*args):
    """On an H100 those that are CUDA's, and the others where no device is said: the engine's
    functions look at no platform, and kvtool says that it is another one."""
    there, other = backends(*args, "--on=cuda:9.0")[0], backends(*args)[0]
    for name, b in there.items():
        if re.match("(ROCM|CPU|AMX|XPU)_", name):
            tap.ok(re.fullmatch(r"runs on (ROCm|CPUs|XPUs) only", b["reason"] or ""),
                   f"{name}: not on an H100", b)
            there[name] = other[name]
    return there


def test_backends():
    base = ("--head-dim=128", "--dtype=bfloat16", "--block-size=16")
    plain, connected, scaled = (
        ask_each(*base, f"--cache-dtype={kv}", *more) for kv, *more in
        (("auto",), ("auto", "--with=connector"), ("fp8", "--with=head-scales")))
    rows = [line.split() for line in BACKENDS.split("\n") if line]
    tap.equal(list(plain), [r[0] for r in rows], "the 46 names, in the engine's order")
    for name, letters, added, layouts in rows:
        want = [TEXT[c] for c in letters if c != "-"]
        got = plain[name]
        tap.equal(got["reasons"], want, f"{name}: reasons")
        tap.equal((got["possible"], got["reason"]), (not want, want[0] if want else None),
                  f"{name}: the one reason")
        more = [TEXT["k"]] if name in ("ROCM_ATTN", "ROCM_SEGMENTED_ATTN") else []
        tap.equal([w for w in connected[name]["reasons"] if w not in want], more,
                  f"{name}: with a connector")
        if added != "?":
            # fp8 is no 'auto': what that was refused for is not asked again
            tap.equal([w for w in scaled[name]["reasons"] if w not in want],
                      [TEXT[c] for c in added if c != "-" and TEXT[c] not in want],
                      f"{name}: fp8 with a scale for each head")
        r = kvtool("expect", "layout", "-j", f"--backend={name}")
        tap.equal(",".join(json.loads(r.out)["possible"]), layouts if layouts != "-" else
                  "LBNHC,LBHNC,BLNHC,BLHNC,BHLNC,LHBNC", f"{name}: layouts")


# ---- who is asked first --------------------------------------------------------

GQA = "FLASH_ATTN, FLASHINFER, TRITON_ATTN, FLEX_ATTENTION, TURBOQUANT"
GQA100 = "FLASHINFER, FLASH_ATTN, TRITON_ATTN, FLEX_ATTENTION, TURBOQUANT"
MLA90 = "FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA, TRITON_MLA, "
MLA100 = ("FLASHINFER_MLA, TOKENSPEED_MLA, CUTLASS_MLA, FLASH_ATTN_MLA, FLASHMLA, "
          "TRITON_MLA, ")
LAST = "TRITON_ATTN, TURBOQUANT, ULTRAQUANT"
ORDERS = [
    ("cuda:8.0", "", GQA), ("cuda:9.0", "", GQA), ("cuda:12.0", "", GQA),
    ("cuda:9.0", "connector", GQA), ("cuda:10.0", "connector", GQA100),
    ("cuda:9.0", "mm-prefix", "TRITON_FLASH_ATTN, " + GQA),
    ("cuda:10.0", "", GQA100),
    ("cuda:10.0", "mm-prefix", "TRITON_FLASHINFER, " + GQA100),
    ("cuda:10.0", "non-causal", GQA),
    ("cuda:9.0", "mla", MLA90 + "FLASH_ATTN_MLA_SPARSE, FLASHMLA_SPARSE, "
     "FLASHINFER_MLA_SPARSE_SM90"),
    ("cuda:9.0", "mla head=512", MLA90 + "FLASHINFER_MLA_SPARSE_SM90, "
     "FLASH_ATTN_MLA_SPARSE, FLASHMLA_SPARSE"),
    ("cuda:10.0", "mla heads=128", MLA100 + "FLASHMLA_SPARSE, FLASHINFER_MLA_SPARSE"),
    ("cuda:10.0", "mla heads=16", MLA100 + "FLASHINFER_MLA_SPARSE, FLASHMLA_SPARSE"),
    ("cuda:10.0", "mla cache=fp8", MLA100 + "FLASHINFER_MLA_SPARSE, FLASHMLA_SPARSE"),
    ("cuda:12.0", "mla", "TRITON_MLA, FLASHINFER_MLA_SPARSE_SM120"),
    ("rocm", "", "ROCM_ATTN, " + LAST), ("rocm", "connector", LAST),
    ("rocm", "encoder-decoder", LAST),
    ("rocm:aiter,mha", "", "ROCM_ATTN, ROCM_AITER_FA, ROCM_AITER_UNIFIED_ATTN, " + LAST),
    ("rocm:aiter,mha", "connector", "ROCM_AITER_FA, ROCM_AITER_UNIFIED_ATTN, " + LAST),
    ("rocm:aiter", "connector", "ROCM_AITER_UNIFIED_ATTN, " + LAST),
    ("rocm:rdna", "", "ROCM_AITER_UNIFIED_ATTN, ROCM_ATTN, " + LAST),
    ("rocm:rdna", "connector", "ROCM_AITER_UNIFIED_ATTN, " + LAST),
    ("rocm", "mla", "TRITON_MLA"),
    ("rocm:mla", "mla connector", "ROCM_AITER_MLA, TRITON_MLA, ROCM_AITER_TRITON_MLA"),
    ("rocm:aiter", "mla sparse", "ROCM_AITER_MLA_SPARSE"),
]
OPTIONS = {"head": "--head-dim", "heads": "--query-heads", "cache": "--cache-dtype"}


def test_orders():
    for on, words, want in ORDERS:
        args = [f"{OPTIONS[w.split('=')[0]]}={w.split('=')[1]}" if "=" in w else
                f"--with={w}" for w in words.split()]
        _, group = backends(f"--on={on}", *args)
        tap.equal(", ".join(group["asked"]), want, f"{on} {words}: the order")
        able = [b["backend"] for b in group["backends"] if b["possible"]]
        first = [name for name in group["asked"] if name in able]
        tap.equal(group["taken"], first[0] if first else None, f"{on} {words}: taken")


# ---- connectors ----------------------------------------------------------------

CONNECTORS = {
    "DecodeBenchConnector": "- - - -", "ExampleConnector": "- - - -",
    "ExampleHiddenStatesConnector": "LBNHC LBNHC LBNHC LBNHC",
    "FlexKVConnectorV1": "- - - -", "HF3FSKVConnector": "- - - -",
    "HiSparseConnector": "BLHNC BLHNC BLHNC BLHNC",
    "LMCacheConnectorV1": "- - - -",
    "LMCacheMPConnector": "- - - -",            # SOURCE
    "MoRIIOConnector": "- - - -",               # SOURCE
    "MooncakeConnector": "LBHNC - - LBHNC", "MooncakeStoreConnector": "- - - -",
    "MultiConnector": "- - - -", "NixlConnector": "LBHNC - - LBHNC",
    "NixlPullConnector": "LBHNC - - LBHNC", "NixlPushConnector": "LBHNC - - LBHNC",
    "OffloadingConnector": "LBHNC LBHNC LBHNC BLHNC",
    "SimpleCPUOffloadConnector": "- - - -",
}
MULTI = [("Nixl", "LBHNC", "none"), ("Nixl Example", "LBHNC", "none"),
         ("Nixl Offloading", "LBHNC", "LBHNC"),
         ("Nixl ExampleHiddenStates", 3, "LBNHC"), ("Example", "none", "none"),
         ("", "none", "none")]


def test_connectors():
    rows = kvtool("expect", "connector", "-j").json["connectors"]
    tap.equal([r["connector"] for r in rows], list(CONNECTORS), "names of connectors")
    for r in rows:
        got = [r[k] or "-" for k in ("plain", "mla", "no_model", "hisparse")]
        tap.equal(" ".join(got), CONNECTORS[r["connector"]], r["connector"])
    for names, plain, mla in MULTI:
        args = [f"--connector={n}Connector" for n in names.split()]
        for want, more in ((plain, []), (mla, ["--with=mla"])):
            r = kvtool("expect", "layout", "-j", *args, *more)
            got = r.code if r.code else json.loads(r.out)["connector"] or "none"
            tap.equal(got, want, f"together: {names} {more}")
    r = kvtool("expect", "connector", "NixlConnector", "ExampleHiddenStatesConnector")
    tap.ok(r.code == 1 and "conflict  LBNHC" in r.out and "NixlConnector asks for LBHNC" in r.err and
           "ExampleHiddenStatesConnector for LBNHC" in r.err, "who disagrees", r)


# ---- one layout for all ----------------------------------------------------------

ALL = "LBNHC LBHNC BLNHC BLHNC BHLNC LHBNC"
MIXED = ["--shape=8,16,65536", "--shape=1,16,4096"]
NIXL = "--connector=NixlConnector"
CHOICES = [
    ("default", [], "LBNHC"),
    ("two workers agree", [f"--worker={ALL}"] * 2, "LBNHC"),
    ("workers disagree", ["--worker=LBHNC", "--worker=LBNHC"], 3),
    ("an empty list", ["--worker="], 3),
    ("HND", ["--request=HND"], "LBHNC"), ("NHD", ["--request=NHD"], "LBNHC"),
    ("BLHNC", ["--request=BLHNC"], "BLHNC"), ("XYZ", ["--request=XYZ"], 2),
    ("not supported", ["--worker=LBHNC", "--request=NHD"], 3),
    ("Nixl", [NIXL], "LBHNC"), ("Nixl, MLA", [NIXL, "--with=mla"], "LBNHC"),
    ("Nixl, only LBNHC", [NIXL, "--worker=LBNHC"], "LBNHC"),
    ("a request beats it", [NIXL, "--request=NHD"], "LBNHC"),
    ("offloading", ["--connector=OffloadingConnector"], "LBHNC"),
    ("mixed shapes", MIXED, "LBNHC"),
    ("mixed shapes, only LHBNC", MIXED + ["--worker=LHBNC"], 3),
    ("mixed shapes leave the rest", MIXED + ["--worker=LHBNC BLHNC"], "BLHNC"),
    ("sharded and whole", ["--shape=1,16,4096,dcp", "--shape=1,16,8192,whole"], "BLNHC"),
    ("of one page", ["--shape=1,16,4096,dcp", "--shape=1,16,4096,whole"], "LBNHC"),
    ("none with blocks outermost", ["--shape=1,16,4096,dcp", "--shape=1,16,8192,whole",
                                    "--worker=LBHNC"], 3),
    ("already resolved", ["--resolved=BHLNC", "--request=NHD"], "BHLNC"),
]
WHY = {"Nixl": "connector", "Nixl, only LBNHC": "dropped", "default": "first",
       "HND": "requested", "already resolved": "resolved"}
# lists of backends and what is in all of them, as vLLM orders it
COMMON = [
    (["FLASH_ATTN"], ALL), (["FLASH_ATTN", "TRITON_ATTN"], ALL),
    (["CPU_ATTN"], "LBHNC"), (["B12X", "FLASH_ATTN"], "LBHNC BLHNC"),
    (["B12X", "B12X"], "LBHNC BLHNC"), (["ROCM_ATTN", "CPU_ATTN"], "LBHNC"),
    (["ROCM_ATTN", "ROCM_AITER_FA"], "LBHNC LHBNC"),
    (["CPU_ATTN", "FLEX_ATTENTION"], 3),
    (["B12X", "ROCM_AITER_MLA_SPARSE"], "LBHNC BLHNC"),
]


def test_layouts():
    for what, args, want in CHOICES:
        r = kvtool("expect", "layout", "-j", *args)
        got = r.code if r.code else r.json["layout"]
        tap.equal(got, want, f"layout: {what}")
        if what in WHY:
            tap.equal(r.json["why"], WHY[what], f"layout: why, {what}")
    for names, want in COMMON:
        r = kvtool("expect", "layout", "-j", *[f"--backend={n}" for n in names])
        got = r.code if r.code else " ".join(r.json["possible"])
        tap.equal(got, want, f"layouts of {', '.join(names)}")


# ---- fresh blocks ----------------------------------------------------------------

ZEROING = [
    ("one full", "bfloat16", False), ("full and sliding of one type",
                                      "bfloat16 bfloat16", False),
    ("bf16 and fp8", "bfloat16 float8_e4m3fn:fp8", True),
    ("Mamba alone", "mamba", True), ("full and Mamba", "bfloat16 mamba", True),
    ("Mamba in host memory", "mamba::host", True),
    ("fp8 in host memory", "bfloat16 float8_e4m3fn:fp8:host", False),
    ("two codings in bytes", "uint8:nvfp4 uint8:turboquant_4bit_nc", True),
    ("MLA and its indexer", "bfloat16 uint8", True),
    ("a ring and MLA", "float32 uint8", True), ("HiSparse's hot part", "other", False),
]


def test_zeroing():
    for what, caches, want in ZEROING:
        args = [f"--cache={c}" for c in caches.split()]
        got = kvtool("expect", "layout", "-j", *args).json["zeroing"]
        tap.equal(got, want, f"zeroing: {what}")
    got = kvtool("expect", "layout", "-j").json["zeroing"]
    tap.equal(got, None, "zeroing: of no cache nothing is said")


# ---- dumps -----------------------------------------------------------------------

def test_dumps():
    folders = ("s260k/paged_bs16", "mla144/paged_bs16", "gqa64/paged_bs16")
    dumps = [f"{folder}/{name}" for folder in folders
             for name in sorted(os.listdir(os.path.join(DATA, folder)))
             if name.endswith((".npy", ".safetensors"))]
    for dump in dumps:
        path = os.path.join(DATA, dump)
        r = kvtool("expect", "layout", "-j", path)
        groups = r.json["groups"]
        tap.equal(r.code, 0 if all(g["agrees"] for g in groups) else 1,
                  f"{dump}: the status is what it says")
        r = kvtool("expect", "backend", "-j", path)
        for group in r.json["groups"]:
            rows = group["backends"]
            tap.equal(len(rows), 46, f"{dump}: all backends")
            tap.equal([b["backend"] for b in rows
                       if b["possible"] != (not b["reasons"]) or
                       b["reason"] != (b["reasons"] or [None])[0]], [],
                      f"{dump}: a reason against each that is not possible, and no other")
    tap.ok(len(dumps) > 10, "there are dumps")


run(test_backends, test_orders, test_connectors, test_layouts, test_zeroing, test_dumps)
