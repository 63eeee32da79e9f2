#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_releases.py - what is said of vLLM, by release: one truth wherever one asks

The same question is put to expect backend, to a contract, to help layouts, to
transfer-sim time --emulate and to guess; answers must not contradict each other, and
rows by hand, from the sources of each release, say what some of them must be.
"""
import itertools
import os
import re

import numpy as np

import oracle
from oracle import kvtool, tap, write_text

RELEASES = ("0.22", "0.24", "0.26", "0.32")
LAYOUTS = ("nhd hnd blshc blhsc bhlsc lhbsc kv-first-nhd kv-first-hnd blocks-first-nhd "
           "blocks-first-hnd flex-split cross-nhd cross-hnd cross-flex cross-head "
           "cross-kv-head rocm-paged rocm-paged-page aiter-shuffle "
           "aiter-shuffle-kv-first cpu-vec cpu-amx cpu-vec-kv-first sglang-pool").split()


def dump(tmp, layout, block=16, dim=128, heads=4):
    """An empty file that is two layers of this layout, and its options."""
    path = os.path.join(tmp, f"{block}-{dim}-{heads}.bin")
    if not os.path.exists(path):
        np.zeros(2 * 3 * block * heads * 2 * dim, np.uint16).tofile(path)
    return [path, f"--layout={layout}", "--dtype=bf16", "--layers=2", f"--heads={heads}",
            f"--block-size={block}", f"--head-dim={dim}"]


def possible(args, *more):
    r = kvtool("expect", "backend", "-j", *args, *more)
    if r.code:
        return None
    group = r.json["groups"][0]
    out = {r.json["release"]: [b["backend"] for b in group["backends"] if b["possible"]]}
    out |= {o["release"]: o["possible"] for o in group["other_releases"]}
    return out


# ---- one truth -------------------------------------------------------------------

def names():
    r = kvtool("expect", "backend", "-j")
    return [b["backend"] for b in r.json["groups"][0]["backends"]]


def test_contracts(tmp):
    """Layouts, block sizes and backends: a contract is met where expect backend says."""
    wrong, n, alone, backends = [], 0, 0, names()
    blocks = [(layout, 16) for layout in LAYOUTS] + [("cpu-vec", 32), ("nhd", 64),
                                                   ("blocks-first-nhd", 64)]
    for layout, block in blocks:
        args = dump(tmp, layout, block)
        could = possible(args)
        contract = os.path.join(tmp, "two.kvc")
        for pair in [*zip(backends[::2], backends[1::2], strict=True),
                     ("FLASH_ATTN", "HPC_ATTN"), ("B12X", "TRITON_ATTN")]:
            with open(contract, "w") as f:
                f.write("kvtool-contract 1\n")
                f.writelines(f"group {g}\nbackend = {b}\n"
                             for g, b in zip(("g0", "*"), pair, strict=True))
            r = kvtool("expect", "check", "-j", contract, *args)
            result = r.json["files"][0]
            together = set()        # the releases of those that hold so far
            for backend, clause in zip(pair, result["clauses"], strict=True):
                want = [release for release in RELEASES if backend in could[release]]
                holds = bool(want) and (not together or bool(together & set(want)))
                together = together & set(want) if together and want else \
                    together | set(want)
                alone += bool(want) and not holds
                n += 1
                if clause["releases"] != want or clause["holds"] != holds:
                    wrong.append((layout, block, backend, clause["releases"], want))
            if result["releases"] != sorted(together):
                wrong.append((layout, block, pair, result["releases"], together))
        # the release that is asked does not change the others
        older = possible(args, "--release=0.22")
        if older != could:
            wrong.append((layout, block, "asked from 0.22"))
    tap.ok(n > 1100 and not wrong, f"{n} contracts and expect backend agree", wrong[:5])
    tap.ok(alone, f"{alone} clauses hold alone, in no release of the one before")


def test_connectors(tmp):
    """equal_tp and unequal_tp of a contract, and what NIXL's stack would move."""
    wrong, n = [], 0
    for layout, equal in itertools.product(LAYOUTS, (True, False)):
        args = dump(tmp, layout, 16, 128, 8)
        contract = os.path.join(tmp, "tp.kvc")
        write_text(contract,
                   "kvtool-contract 1\ngroup g0\nconnector = "
                   f"{'' if equal else 'un'}equal_tp\n")
        for release in RELEASES:
            check = kvtool("expect", "check", f"--release={release}", contract, *args)
            time = kvtool("transfer-sim", "time",
                          "--spec=gqa:layers=2,heads=8,head-dim=128",
                          "--cache-dtype=bfloat16", "-t64", f"--src=layout={layout},tp=2",
                          f"--dst=tp={2 if equal else 4}", "--emulate=nixl",
                          f"--release={release}")
            n += 1
            if (check.code == 0) != (time.code == 0):
                wrong.append((layout, equal, release, check.code, time.code, time.err))
        check = kvtool("expect", "check", contract, *args)
        time = kvtool("transfer-sim", "time", "--spec=gqa:layers=2,heads=8,head-dim=128",
                      "--cache-dtype=bfloat16", "-t64", f"--src=layout={layout},tp=2",
                      f"--dst=tp={2 if equal else 4}", "--emulate=nixl")
        if (check.code == 0) != (time.code == 0):
            wrong.append((layout, equal, "any", check.code, time.code))
    tap.ok(n > 150 and not wrong, f"{n} verdicts of contract and emulation agree", wrong[:5])


def test_help(tmp):
    """help layouts names a backend for a release where the table of the others does."""
    text = re.sub(r"\n +", " ", kvtool("help", "layouts").out)
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    for layout in LAYOUTS:
        said = {}
        for releases, who in re.findall(r"vLLM ((?:0\.\d+(?:, )?)+): ([^;]*)",
                                        rows[layout]):
            for release in releases.split(", "):
                said.setdefault(release, set()).update(who.split(", "))
        wrong = []
        for block, dim in ((16, 128), (64, 128), (32, 256), (128, 128)):
            could = possible(dump(tmp, layout, block, dim)) or {}
            for release, who in could.items():
                if not any("any without" in w for w in said.get(release, ())):
                    wrong += [(release, b) for b in who if b not in said.get(release, ())]
        tap.equal(wrong, [], f"help layouts: {layout}")


# ---- by hand ---------------------------------------------------------------------

# a layout, and who could have it there: of what heads of 128 and blocks of 16 allow
WRITERS = [
    ("kv-first-hnd", "0.22", "FLASH_ATTN"), ("kv-first-hnd", "0.24", ""),
    ("blocks-first-nhd", "0.24", "FLASH_ATTN TRITON_ATTN ROCM_AITER_FA FLASHINFER "
     "ROCM_AITER_UNIFIED_ATTN"),
    ("blocks-first-nhd", "0.32", ""),
    ("flex-split", "0.24", "FLEX_ATTENTION"), ("flex-split", "0.26", ""),
    ("rocm-paged", "0.32", "ROCM_ATTN ROCM_SEGMENTED_ATTN"),
    ("lhbsc", "0.32", "FLASH_ATTN FLASH_ATTN_DIFFKV TRITON_ATTN TRITON_ATTN_DIFFKV "
     "ROCM_AITER_FA FLASHINFER ROCM_AITER_UNIFIED_ATTN"),
    ("lhbsc", "0.26", ""),
    ("aiter-shuffle", "0.32", "ROCM_AITER_FA"), ("aiter-shuffle", "0.26", ""),
    ("aiter-shuffle", "0.24", "ROCM_AITER_FA"),
    ("aiter-shuffle-kv-first", "0.32", "ROCM_AITER_FA"),
    ("cpu-vec-kv-first", "0.22", "CPU_ATTN"), ("cpu-vec", "0.26", "CPU_ATTN"),
    ("cpu-vec", "0.32", ""),                            # blocks of 32
]


def test_writers(tmp):
    for layout, release, who in WRITERS:
        got = possible(dump(tmp, layout), f"--release={release}")[release]
        tap.equal(" ".join(got), who, f"{layout} in {release}")


# NHD and HND apart, by what a device or a connector asks
CONDITIONS = [
    ("lhbsc", "ROCM_AITER_UNIFIED_ATTN", ["--with=connector"], False),
    ("hnd", "ROCM_AITER_UNIFIED_ATTN", ["--with=connector"], True),
    ("nhd", "FLASHINFER", ["--on=cuda:10.0"], False),
    ("bhlsc", "FLASHINFER", ["--on=cuda:10.3"], False),
    ("lhbsc", "FLASHINFER", ["--on=cuda:10.0"], False),
    ("blhsc", "FLASHINFER", ["--on=cuda:10.0"], True),
    ("nhd", "FLASHINFER", ["--on=cuda:9.0"], True),
    ("nhd", "FLASHINFER", ["--on=cuda:10.0", "--release=0.26"], False),
    ("blocks-first-nhd", "FLASHINFER", ["--on=cuda:10.0", "--release=0.24"], False),
    ("blocks-first-hnd", "FLASHINFER", ["--on=cuda:10.0", "--release=0.24"], True),
    ("hnd", "ROCM_AITER_FA", ["--on=rocm:shuffle"], False),
    ("aiter-shuffle", "ROCM_AITER_FA", ["--on=rocm:shuffle"], True),
]


def test_conditions(tmp):
    for layout, backend, more, want in CONDITIONS:
        could = possible(dump(tmp, layout), *more)
        release = next((m[10:] for m in more if m.startswith("--release=")), "0.32")
        tap.equal(backend in could[release], want, f"{backend} {layout} {' '.join(more)}")


GQA = "FLASH_ATTN, FLASHINFER, TRITON_ATTN, FLEX_ATTENTION, TURBOQUANT"
MLA = "FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA, TRITON_MLA, "
GQA100 = "FLASHINFER, FLASH_ATTN, TRITON_ATTN, FLEX_ATTENTION, TURBOQUANT"
ORDERS = [
    ("0.22", "cuda:9.0", "mm-prefix", GQA), ("0.22", "cuda:10.0", "non-causal", GQA100),
    ("0.26", "cuda:10.0", "non-causal", GQA), ("0.26", "cuda:10.0", "mm-prefix", GQA100),
    ("0.22", "cuda:9.0", "mla", MLA + "FLASHMLA_SPARSE"),
    ("0.22", "cuda:12.0", "mla", MLA + "FLASHMLA_SPARSE"),
    ("0.24", "cuda:12.0", "mla", "TRITON_MLA, FLASHINFER_MLA_SPARSE_SM120"),
    ("0.26", "cuda:9.0", "mla", MLA + "FLASH_ATTN_MLA_SPARSE, FLASHMLA_SPARSE"),
    ("0.22", "rocm", "connector", "ROCM_ATTN, TRITON_ATTN, TURBOQUANT"),
    ("0.24", "rocm", "connector", "TRITON_ATTN, TURBOQUANT"),
    ("0.24", "rocm", "encoder-decoder", "ROCM_ATTN, TRITON_ATTN, TURBOQUANT"),
    ("0.26", "rocm", "encoder-decoder", "TRITON_ATTN, TURBOQUANT"),
    ("0.26", "rocm:rdna", "window", "ROCM_ATTN, TRITON_ATTN, TURBOQUANT"),
]


def test_orders():
    for release, on, word, want in ORDERS:
        r = kvtool("expect", "backend", "-j", f"--release={release}", f"--on={on}",
                   f"--with={word}")
        tap.equal(", ".join(r.json["groups"][0]["asked"]), want,
                  f"{release} on {on}, {word}: the order")


def test_guess(tmp):
    path = os.path.join(oracle.DATA, "s260k/paged_bs16/packed_nhd.bf16.npy")
    bare = os.path.join(tmp, "bare.bin")
    np.load(path).tofile(bare)
    sizes = ["--layers=5", "--heads=4", "--head-dim=8", "--block-size=16", "--dtype=bf16"]
    r = kvtool("guess", "-j", bare, *sizes)
    writers = {w["release"]: w["possible"] for w in r.json["writers"]}
    tap.equal(writers, possible([bare, "--layout=nhd", *sizes]), "guess: who wrote it")
    r = kvtool("guess", bare, "--release=0.26", *sizes)
    tap.ok("vLLM 0.26" in r.out and "vLLM 0.32" not in r.out, "guess: one release", r)


oracle.run(test_contracts, test_connectors, test_help, test_writers, test_conditions,
           test_orders, test_guess)
