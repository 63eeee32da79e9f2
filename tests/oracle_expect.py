#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_expect.py - layout contracts: what is written holds, what is broken is told

What a contract says of a dump is computed again from the sidecar's address_map.
Then each clause that there is is broken, alone, and the report must name its line
and no other.  JUnit goes through an XML parser and TAP through prove.
"""
import json
import os
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as xml

import numpy as np

import oracle
from oracle import (DATA, flip, kvtool, read_bytes, read_text, refused, runs, tap,
                    write_bytes, write_text)

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli/expect/keys.c")
NHD = f"{DATA}/s260k/paged_bs16/packed_nhd.bf16.npy"
HND = f"{DATA}/s260k/paged_bs16/packed_hnd.bf16.npy"
ROCM = f"{DATA}/s260k/paged_bs16/rocm_x.bf16.npy"
MLA = f"{DATA}/mla144/paged_bs16/mla_lbsc.bf16.npy"
PAGES = f"{DATA}/mamba2g4/tp2_SD/rank1.npy"
WORK = tempfile.TemporaryDirectory()
FOLDER = f"{WORK.name}/folder.h5"	# of a connector
RANK = f"{DATA}/s260k/tp4/rank1.packed_hnd.bf16.safetensors"


def known_keys():
    """Every clause that the program has."""
    text = read_text(SOURCE)
    text = text[text.index("keys[] = {"):text.index("enum { NKEYS")]
    return re.findall(r'(?:\{|INT\(|IS\(|OF_RANK\()\s*"([a-z_.]+)"', text)


class Contract:
    def __init__(self, tmp):
        self.path = f"{tmp}/c.kvc"

    def put(self, *lines):
        write_text(self.path,
                   "kvtool-contract 1\n" + "".join(line + "\n" for line in lines))

    def check(self, dump, *options):
        """(status, [(line, sentence)])"""
        r = kvtool("expect", "check", *options, self.path, dump)
        pattern = re.compile(rf"kvtool expect: {re.escape(self.path)}:(\d+): "
                             rf"{re.escape(dump)}: (.*)")
        found = [pattern.match(line) for line in r.err.splitlines()]
        return r, [(int(m[1]), m[2]) for m in found if m]


# ---- what is written --------------------------------------------------------

def stride_of(m, axis, itemsize):
    """Bytes from one index to the next, where the axis is whole in the map."""
    terms = [t for t in m["terms"] if t[0] == axis]
    if len(terms) != 1 or terms[0][2] or terms[0][1] != 1:
        return None
    return terms[0][3] * itemsize


def check_written(d, contract):
    """Facts of the sidecar against the clauses, by key."""
    r = kvtool("expect", "write", "--pool", d.path)
    clauses = dict(line.split(" = ", 1) for line in r.out.splitlines()
                   if " = " in line and line[0] != "#")
    atleast = dict(line.split(" >= ", 1) for line in r.out.splitlines()
                   if " >= " in line and line[0] != "#")
    want = {"layers": d.dims["L"], "blocks": d.dims["B"], "heads": d.dims["H"],
            "block_size": d.dims["S"], "dtype": d.dtype,
            "dim" if d.latent else "head_dim": d.dims["D"],
            "head_start": d.head_start, "model": d.side["model"],
            "total_heads": d.side.get("total_kv_heads", d.dims["H"])}
    tap.equal({k: clauses.get(k) for k in want}, {k: str(v) for k, v in want.items()},
              f"{d.name}: the facts of the sidecar")
    maps = d.side["address_map"]
    wrong, compared = [], 0
    for component, key in (("C", "strides"), ("K", "strides"), ("K", "strides.keys"),
                           ("V", "strides.values")):
        if component not in maps or key not in clauses:
            continue
        for word in clauses[key].split():
            axis, value = word.split(":")
            want = stride_of(maps[component], "C" if component == "C" and
                             axis == "D" else axis, d.itemsize)
            if axis == "K":
                want = (maps["V"]["base"] - maps["K"]["base"]) * d.itemsize
            if want is not None:
                compared += 1
                wrong += [(key, word, want)] if want != int(value) else []
    tap.ok(compared > 2 and not wrong, f"{d.name}: {compared} strides", wrong)
    # where blocks begin, for every block of every layer
    first = d.offsets[:, :, :, 0, 0, 0] * d.itemsize
    begins = first[:1] if d.layout in ("nhd", "hnd") else first.min(axis=0)[None]
    bits = int(np.bitwise_or.reduce(begins.reshape(-1) - begins.min()))
    tap.ok(int(atleast["alignment"]) <= bits & -bits and
           bits % int(atleast["alignment"]) == 0, f"{d.name}: the alignment",
           (atleast, bits))
    write_text(contract.path, r.out)
    r, broken = contract.check(d.path)
    tap.ok(r.code == 0 and not broken, f"{d.name}: holds to its own contract", r)


# ---- each clause, broken ----------------------------------------------------

# key: [(dump, group, clause that holds, clause that does not)]
CLAUSES = {
    "format": [(NHD, None, "= npy", "= hdf5")],
    "model": [(NHD, None, "= stories260K | other", "!= stories260K"),
              (NHD, None, '= "stories260K" # why', '= "stories260k"')],
    "groups": [(PAGES, None, "= conv   ssm", "= ssm conv"),
               (NHD, None, "= g0", "= g0 g1")],
    "null_block": [(NHD, None, "= 0", "= null"),
                   (FOLDER, None, "= null", "= 0")],
    "tp_size": [(RANK, None, "= 4", "= 2"), (NHD, None, "= 1", ">= 2")],
    "tp_rank": [(RANK, None, "<= 1", "!= 0 | 1"), (PAGES, None, "= 1", "= 0")],
    "pp_size": [(NHD, None, "= 1", "= 2")], "pp_rank": [(NHD, None, "= 0", "= 1")],
    "dp_size": [(NHD, None, "= 1", "= 2")], "dp_rank": [(NHD, None, "= 0", "= 1")],
    "dcp_size": [(NHD, None, "= 1", "= 2")], "dcp_rank": [(NHD, None, "= 0", "= 1")],
    "digest.tokens": [(NHD, None, "= kvd1:tokens:b73809ebc064eb21a0cc395e4393a5c6",
                       "= kvd1:tokens:b73809ebc064eb21a0cc395e4393a5c7")],
    "digest.blocks": [(ROCM, None, "= kvd1:blocks:2fa29c9119798910a820130433af43cf",
                       "= kvd1:blocks:00000000000000000000000000000000")],
    "kind": [(MLA, "g0", "= mla", "= full_attention"),
             (PAGES, "*", "= mamba_conv | mamba_ssm", "= opaque")],
    "layout": [(NHD, "g0", "= nhd", "= hnd"), (NHD, "g0", "= rfc:0,1,2,3,4",
                                              "= vllm:0,1,2,3,4"),
               (ROCM, "g0", "= rocm-paged", "= LBSHC | aiter-shuffle"),
               # one head: NHD and HND are the same bytes
               (RANK, "g0", "= nhd", "= blshc")],
    "dtype": [(NHD, "g0", "= bf16", "= float16"), (PAGES, "ssm", "= float32", "= bf16")],
    "content_type": [(NHD, "g0", "= null", "= fp8-ds-mla")],
    "strides": [(NHD, "g0", "= B:2048 D:2", "= B:2048 D:4"),
                (NHD, "g0", "= L:98304", "= H:512"),
                (PAGES, "conv", "= L:56064 B:9344", "= B:1152"),
                (NHD, "g0", "= S:128 | S:32", "= S:32 | S:64")],
    "strides.keys": [(ROCM, "g0", "= S:16 D%8:2", "= D:2"),
                     (ROCM, "g0", "= D/8:256", "= D/4:256")],
    "strides.values": [(ROCM, "g0", "= D:32 S:2", "= S:16")],
    "head_dim": [(NHD, "g0", "= 8", "= 16")],
    "layers": [(NHD, "g0", ">= 5", ">= 6")], "blocks": [(NHD, "g0", "<= 48", "<= 47")],
    "slots": [(NHD, "g0", "= 16", "= 32")], "heads": [(RANK, "g0", "= 1", "= 4")],
    "kv": [(MLA, "g0", "= 1", "= 2")], "dim": [(MLA, "g0", "= 144", "= 128")],
    "block_size": [(NHD, "g0", "= 16 | 32", "= 32 | 64")],
    "tokens_per_slot": [(PAGES, "conv", "= -1", "= 1")],
    "total_heads": [(RANK, "g0", "= 4", "= 1")],
    "head_start": [(RANK, "g0", "= 1", "= 0")],
    "replication": [(RANK, "g0", "= 1", "= 2")],
    "window": [(NHD, "g0", "= null", ">= 1")],
    "page_bytes": [(PAGES, "*", "= 9344", "= 9352")],
    "page_offset": [(PAGES, "ssm", "= 1152", "= 0")],
    "alignment": [(NHD, "g0", ">= 2048", ">= 4096"), (PAGES, "*", "= 128", ">= 256")],
    "element_bytes": [(NHD, "g0", "= 2", "= 4")],
    "bytes_per_token": [(NHD, "g0", "= 640", "= 641")],
    "bytes_per_block": [(NHD, "g0", "= 2048", "= 2049")],
    "bytes_per_layer": [(NHD, "g0", "= 98304", "<= 98303")],
    "data_bytes": [(NHD, "g0", "= 491520", "!= 491520")],
    "layer_compact": [(NHD, "g0", "= true", "= false")],
    "block_compact": [(ROCM, "g0", "= false", "= true")],
    "block_contiguous": [(HND, "g0", "= true", "= false")],
    "block_outermost": [(HND, "g0", "= false", "= true")],
    "head_run": [(NHD, "g0", "= false", "= true")],
    "kernel_split_neutral": [(NHD, "g0", "= true", "= false")],
    "layer_names": [(NHD, "g0", "= model.layers.*.self_attn.attn",
                     "= model.layers.*.attention"), (PAGES, "*", "= *.mixer", "= *mix"),
                    (NHD, "g0", "= *.0.* | *.1.* | *.2.* | *.3.* | *.4.*",
                     "= *.0.* | *.1.* | *.2.* | *.3.*")],
    "layer_ids": [(FOLDER, "g0", "= 0:5", "= 0:4,5"),
                  (FOLDER, "g0", "= 0,1,2:5",
                   "= 0:6"), (FOLDER, "g0",
                              "!= 0:4", "= 1:5,0")],
    "parts": [(PAGES, "conv", "= x:0+128@128 B:128+32@288  C:160+32@352",
               "= x:0+128 B:128+32@288 C:160+32@352")],
    "backend": [(NHD, "g0", "= FLASH_ATTN", "= FLASHINFER"),     # head size 8
                (NHD, "g0", "= FLASH_ATTN@packed", "= FLASH_ATTN@blocks-first"),
                (NHD, "g0", "= TRITON_ATTN | FLEX_ATTENTION", "= FLASHMLA"),
                (ROCM, "g0", "!= FLASH_ATTN", "= FLASH_ATTN"),
                (PAGES, "conv", "!= FLASH_ATTN", "= FLASH_ATTN"),
                (MLA, "g0", "= TRITON_MLA", "= FLASH_ATTN")],
    "supports_kv_connector": [(NHD, "g0", "= FLASH_ATTN", "= ROCM_ATTN")],
    "connector": [(HND, "g0", "= unequal_tp", "!= equal_tp"),
                  (NHD, "g0", "= equal_tp", "= unequal_tp"),
                  (ROCM, "g0", "= equal_tp", "!= unequal_tp")],
}


def check_clauses(contract):
    for key, cases in CLAUSES.items():
        for dump, group, good, bad in cases:
            name = f"{os.path.basename(dump)}: {key} {bad}"
            lines = [f"group {group}"] if group else []
            line = len(lines) + 2
            contract.put(*lines, f"{key} {good}")
            r, broken = contract.check(dump)
            tap.ok(r.code == 0 and not broken, f"{name}: {good} holds", r)
            contract.put(*lines, f"\t{key}{bad}")
            r, broken = contract.check(dump)
            sentence = f"{key} is " if group is None else f": {key} is "
            tap.ok(r.code == 1 and broken and not r.out and
                   all(at == line and sentence in ": " + text and "expected" in text
                       for at, text in broken), f"{name}: broken, with its line", r)
            if key.startswith("digest"):
                continue
            # describe asks the same
            for clause, want in ((good, 0), (bad, 1)):
                dotted = key if group in (None, "*") else f"{group}.{key}"
                r = kvtool("describe", "-j", "--expect", f"{dotted} {clause}", dump)
                if "#" not in clause:
                    tap.equal(r.code, want, f"{name}: describe --expect {clause}")
    # what no dump can break: check_releases(); no sample has it: check_kernel_blocks()
    missing = set(known_keys()) - set(CLAUSES) - {"release", "kernel_block_size"}
    tap.ok(len(known_keys()) > 45 and not missing, "every clause was broken", missing)
    page = os.path.join(os.path.dirname(SOURCE), "../../man/kvtool-contract.5")
    text = read_text(page)
    missing = [k for k in known_keys() if not re.search(rf"\b{re.escape(k)}\b", text)]
    tap.ok(not missing, "the page has every clause", missing)


def check_releases(contract):
    """A release, said by the contract or by an option, decides what is true of vLLM."""
    rows = [(NHD, "backend = FLASH_ATTN", "0.26 0.32"),
            (NHD, "backend = FLASH_ATTN@0.26", "0.26"),
            (NHD, "backend = FLEX_ATTENTION", "0.26 0.32"),
            (ROCM, "backend = ROCM_ATTN", ""),          # heads of 8
            (NHD, "connector = equal_tp", "0.22 0.24 0.26 0.32"),
            (ROCM, "connector = unequal_tp", "0.22 0.24"),
            (NHD, "supports_kv_connector = ROCM_AITER_UNIFIED_ATTN", "0.32"),
            (NHD, "supports_kv_connector = ROCM_AITER_FA", "0.22 0.24 0.26 0.32")]
    for dump, clause, want in rows:
        contract.put("group g0", clause)
        r = kvtool("expect", "check", "-j", contract.path, dump)
        got = json.loads(r.out)["files"][0]["clauses"][-1]["releases"]
        tap.equal(" ".join(got), want, f"{clause}: releases")
        r, _ = contract.check(dump)
        tap.ok(not want or f"of vLLM {', '.join(want.split())})" in r.out,
               f"{clause}: they are named", r)
        for release in ("0.22", "0.24", "0.26", "0.32"):
            code = 0 if release in want.split() else 1
            r = kvtool("expect", "check", f"--release={release}", contract.path, dump)
            tap.equal(r.code, code, f"{clause}: --release={release}")
            contract.put(f"release = {release}", "group g0", clause)
            r, broken = contract.check(dump)
            tap.ok(r.code == code and [at for at, _ in broken] == [4] * code,
                   f"{clause}: release = {release}", r)
            contract.put("group g0", clause)
    contract.put("group g0", "backend = FLEX_ATTENTION@0.26 | FLASH_ATTN@0.32",
                 "connector = equal_tp", "supports_kv_connector = FLASH_ATTN@0.32")
    runs("all clauses together", "expect", "check", contract.path, NHD,
         says="(3 clauses; of vLLM 0.32)")
    contract.put("group g0", "backend = FLASH_ATTN@0.32", "connector = equal_tp",
                 "group *", "backend = FLEX_ATTENTION@0.26",
                 "supports_kv_connector = FLASH_ATTN@0.24")
    r, broken = contract.check(NHD)
    tap.ok(r.code == 1 and [at for at, _ in broken] == [6] and
           "backend is of vLLM 0.26, expected one release for all clauses, of 0.32 by "
           "those before it" in r.err, "each clause in a release of its own", r)
    r = kvtool("expect", "check", "-j", contract.path, NHD)
    tap.equal(json.loads(r.out)["files"][0]["releases"], [], "none of all of them")
    contract.put("group g0", "backend != ROCM_ATTN", "backend = FLASH_ATTN@0.32")
    tap.equal(contract.check(NHD)[0].code, 0, "what is not in any release, and what is in one")
    contract.put("release = 0.24 | 0.26", "group g0", "backend = FLASH_ATTN")
    tap.equal(contract.check(NHD)[0].code, 0, "one of two releases")
    for line, text in (("release = 0.25", "expected a release of vLLM such as 0.32"),
                       ("release != 0.26", "only = makes sense")):
        contract.put(line)
        refused(f"{line} is refused", 3, text, "expect", "check", contract.path, NHD)
    contract.put("group g0", "backend = FLASHINFER")
    refused("--on", 2, "--on is 'cuda:10', expected cuda:9.0", "expect", "check",
            "--on=cuda:10", contract.path, NHD)


def check_alone(contract):
    """One line of a long contract is changed: it alone is told; or it goes."""
    r = kvtool("expect", "write", "--pool", "--digest", PAGES)
    lines = r.out.splitlines()
    wrong, n = [], 0
    for i, line in enumerate(lines):
        m = re.match(r"([a-z_.]+) (=|>=) (\d+)$", line)
        if not m:
            continue
        n += 1
        changed = lines[1:i] + [f"{m[1]} {m[2]} {int(m[3]) + 1}"] + lines[i + 1:]
        contract.put(*changed)
        r, broken = contract.check(PAGES)
        if r.code != 1 or [at for at, _ in broken] != [i + 1]:
            wrong.append((line, broken, r.code))
        contract.put(*(lines[1:i] + lines[i + 1:]))
        if contract.check(PAGES)[0].code:
            wrong.append(("without", line))
    tap.ok(n > 20 and not wrong, f"{n} clauses changed or left out, one at a time", wrong)


# ---- what is no contract ----------------------------------------------------

def check_malformed(contract, tmp):
    head = "kvtool-contract 1\n"
    cases = [
        ("", 1, "is empty"), ("# only\n", 2, "is empty"),
        ("model = a\n", 1, "kvtool-contract 1"),
        ("kvtool-contract one\n", 1, "kvtool-contract 1"),
        (head + "modle = a\n", 2, "did you mean 'model'?"),
        (head + "group g0\n\nlayuot = nhd\n", 4, "did you mean 'layout'?"),
        (head + "group g0\nsomething_else = 1\n", 3, "kvtool-contract(5)"),
        (head + "layout = nhd\n", 2, "clause of a group"),
        (head + "group g0\nmodel = a\n", 3, "clause of the dump"),
        (head + "group g0\ngroup g0\n", 3, "listed twice"),
        (head + "group g0 g1\n", 2, "one group"),
        (head + "group g0\nlayers = 5\nlayers = 5\n", 4, "first on line 3"),
        (head + "model\n", 2, "not a clause"), (head + "model == a\n", 2, ""),
        (head + "model =\n", 2, "empty"), (head + "model = a | | b\n", 2, "empty"),
        (head + 'model = "a\n', 2, "quotes"), (head + 'model = a"b"\n', 2, "quotes"),
        (head + 'model = "a" b\n', 2, "quotes"),
        (head + "group g0\nlayers = five\n", 3, "whole number"),
        (head + "group g0\nlayers = 9999999999999999999\n", 3, "whole number"),
        (head + "group g0\nlayers >= 4 | 5\n", 3, "only one number"),
        (head + "group g0\nlayout >= nhd\n", 3, "only one number"),
        (head + "group g0\nlayout = hdn\n", 3, "hdn"),
        (head + "group g0\nlayout = 0,1,3,2,4\n", 3, "rfc:"),
        (head + "group g0\ndtype = bf17\n", 3, "element type"),
        (head + "group g0\nkind = attention\n", 3, "kind"),
        (head + "group g0\nhead_run = yes\n", 3, "true or false"),
        (head + "group g0\nstrides = L98304\n", 3, "strides"),
        (head + "group g0\nstrides = Q:3\n", 3, "strides"),
        (head + "group g0\nlayer_ids = 5:3\n", 3, "ranges"),
        (head + "group g0\nlayer_ids = 1-3\n", 3, "ranges"),
        (head + "group g0\nparts = x:0\n", 3, "parts"),
        (head + "group g0\nbackend = FLASH_ATN\n", 3, "did you mean 'FLASH_ATTN'?"),
        (head + "group g0\nbackend = FLASH_ATTN@later\n", 3, "backend"),
        (head + "group g0\nconnector = maybe\n", 3, "equal_tp"),
        (head + "digest.tokens = kvd1:tokens:12\n", 2, "digest"),
        (head + "digest.tokens = kvd1:blocks:" + 32 * "0" + "\n", 2, "another scope"),
        (head + "model = a\0b\n", 2, "control"), (head + "model = \x1b[31m\n", 2,
                                                  "control"),
    ]
    for text, line, part in cases:
        write_text(contract.path, text)
        r = kvtool("expect", "check", contract.path, NHD)
        tap.ok(r.code == 3 and r.err.startswith(
            f"kvtool expect: {contract.path}:{line}: ") and part in r.err and
               r.err.count("\n") == 1 and not r.out, f"refused: {text[-40:]!r}", r)
    write_text(contract.path, "kvtool-contract 2\nnew words\n")
    refused("a later version is valid, but not here", 4, "", "expect", "check",
            contract.path, NHD)
    write_bytes(contract.path, b"kvtool-contract 1\r\ngroup g0\r\nlayout = nhd\r\n")
    tap.equal(kvtool("expect", "check", contract.path, NHD).code, 0,
              "lines may end as on Windows")
    write_bytes(f"{tmp}/big", b"#" * (1 << 20) + b"\n")
    refused("more than 1 MiB is no contract", 3, "1048576", "expect", "check",
            f"{tmp}/big", NHD)


# ---- no data is read --------------------------------------------------------

def check_no_data(contract, tmp):
    """A damaged tile is noticed by a digest clause and by nothing else."""
    path = f"{tmp}/damaged.h5"
    kvtool("convert", "-f", NHD, path)
    contract.put("digest.tokens = kvd1:tokens:b73809ebc064eb21a0cc395e4393a5c6")
    tap.equal(contract.check(path)[0].code, 0, "the digest of a snapshot")
    flip(path, read_bytes(path).index(b"\x28\xb5\x2f\xfd") + 200)
    r = contract.check(path)[0]
    tap.ok(r.code == 3, "a digest clause reads the data", r)
    contract.put("model = stories260K", "group *", "layout = nhd")
    r = contract.check(path)[0]
    tap.ok(r.code == 0, "without one nothing is read", r)


# ---- reports ----------------------------------------------------------------

def check_reports(contract, tmp):
    odd = f"{tmp}/a&b <\"'> \x01#%: \u00e9.npy"
    shutil.copyfile(HND, odd)
    oracle.copy_manifest(HND, odd)
    contract.put("model = stories260K", "group g0", "layout = nhd", "layers = 6",
                 "dtype = bfloat16", 'layer_names = "<&>"')
    junit, taps = f"{tmp}/r.xml", f"{tmp}/r.tap"
    r = kvtool("expect", "check", "--report", f"junit={junit}", "--report",
               f"tap={taps}", contract.path, NHD, odd, f"{tmp}/nothing")
    tap.equal(r.code, 5, "the worst status wins")
    root = xml.parse(junit).getroot()
    suites = root.findall("testsuite")
    tap.equal([(s.get("tests"), s.get("failures"), s.get("errors")) for s in suites],
              [("5", "2", "0"), ("5", "3", "0"), ("1", "0", "1")], "JUnit: the counts")
    cases = [c for s in suites for c in s.findall("testcase")]
    failed = [c for c in cases if c.find("failure") is not None]
    tap.equal([int(c.get("line")) for c in failed], [5, 7, 4, 5, 7], "JUnit: the lines")
    tap.ok(all(c.get("file") == contract.path for c in failed), "JUnit: the file")
    tap.equal(suites[1].get("name"), odd.replace("\x01", "?"), "JUnit: odd names")
    tap.ok("expected <&>" in failed[1].find("failure").get("message"),
           "JUnit: the sentence", failed[1].find("failure").attrib)
    p = subprocess.run(["prove", "-v", "--exec", "cat", taps], capture_output=True,
                       text=True, errors="replace")
    tap.ok(p.returncode and "Failed 6/11 subtests" in p.stdout, "TAP: prove counts",
           p.stdout[-600:])
    r = kvtool("expect", "check", "--report=tap=-", contract.path, NHD)
    whole = read_text(taps).splitlines()
    tap.equal(r.out.splitlines()[2:], whole[2:7], "TAP on standard output is the same")
    contract.put("model = stories260K", "group g0", "layout = nhd | hnd")
    kvtool("expect", "check", "-f", "--report", f"tap={taps}", contract.path, NHD, HND)
    p = subprocess.run(["prove", "--exec", "cat", taps], capture_output=True, text=True)
    tap.ok(p.returncode == 0 and "Tests=4" in p.stdout, "TAP: prove is content",
           p.stdout + p.stderr)
    contract.put("group g0", "layout = hnd", "layers = 6")
    r = kvtool("expect", "check", "--github", contract.path, NHD)
    lines = r.out.splitlines()
    tap.ok(len(lines) == 2 and lines[0].startswith(
        f"::error file={contract.path},line=3,title=layout contract::{NHD}: g0: layout "),
           "annotations", r)
    r = kvtool("expect", "check", "--github", contract.path, odd)
    tap.ok("%25: " in r.out and "\x01" not in r.out, "annotations are escaped", r)
    r = kvtool("expect", "check", "--json", contract.path, NHD, HND)
    o = r.json
    tap.equal([(f["holds"], [(c["line"], c["group"], c["clause"], c["holds"],
                              c["expected"]) for c in f["clauses"]])
               for f in o["files"]],
              [(False, [(3, "g0", "layout", False, "LBHSC"),
                        (4, "g0", "layers", False, "6")]),
               (False, [(3, "g0", "layout", True, "LBHSC"),
                        (4, "g0", "layers", False, "6")])], "JSON")
    left = [n for n in os.listdir(tmp) if ".tmp-" in n]
    tap.ok(not left, "no temporary file is left", left)


# ---- groups -----------------------------------------------------------------

def check_groups(contract):
    contract.put("group g0", "layers = 3", "group ssm", "layers = 3", "group *",
                 "layers = 4")
    r, broken = contract.check(PAGES)
    tap.ok(r.code == 1 and [at for at, _ in broken] == [2, 7, 7] and
           "conv ssm" in broken[0][1] and broken[1][1].startswith("conv: ") and
           broken[2][1].startswith("ssm: "), "a group that is not there, and all", r)


def check_kernel_blocks(contract, tmp):
    """Blocks that are two of a kernel's."""
    dump = f"{tmp}/kernel.npy"
    runs("blocks of 16 that are two of 8", "relayout", "-f", "--to=B L S/8 H S%8 C", "-o",
         dump, f"{NHD}")
    for clause, code in (("= 8", 0), ("= 16", 1)):
        contract.put("group g0", f"kernel_block_size {clause}")
        r, broken = contract.check(dump)
        tap.ok(r.code == code and len(broken) == code, f"kernel_block_size {clause}", r)


def main(tmp):
    kvtool("import", "-q", "--no-sync", "--layout=nhd", "--block-size=16", "-o", FOLDER,
           f"{DATA}/s260k/connector/example_2026_07")
    contract = Contract(tmp)
    for d in oracle.attention_dumps():
        check_written(d, contract)
    for side in oracle.sidecars("mamba2g4"):
        dump = side[:-4] + "npy"
        r = kvtool("expect", "write", "-f", "-o", contract.path, dump)
        tap.ok(r.code == 0 and not contract.check(dump)[1],
               f"{os.path.relpath(dump, DATA)}: holds to its own contract", r)
    check_clauses(contract)
    check_releases(contract)
    check_kernel_blocks(contract, tmp)
    check_alone(contract)
    check_malformed(contract, tmp)
    check_no_data(contract, tmp)
    check_reports(contract, tmp)
    check_groups(contract)


oracle.run(main)
