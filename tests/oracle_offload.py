#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_offload.py - rows of vLLM's file-system tier against what the engine put in

Trees that vLLM wrote are read and held against the keys and values that the
engine was given; trees of kinds that no sample has are made from their
description in store_trees.py.  Written again, a tree has the same bytes.  So is
what the ExampleConnector of a CPU engine wrote, which has no index either.
"""
import glob
import json
import os
import shutil

import numpy as np

import oracle
from oracle import complains, patch, read_json, refused, runs, sizes, tap, write_json
import store_trees as st

oracle.need_program_and_data()
RNG = np.random.default_rng(7)
ENGINES = os.environ.get("KVT_ENGINES", f"{oracle.ENGINES}/vllm")


# ---- what kvtool reads ----------------------------------------------------------

def read(said, root, work, to="nhd"):
    """{group: (array, names of blocks, of layers)}, or the run that failed."""
    out = os.path.join(work, "out")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    run = oracle.kvtool("relayout", "-q", "--no-sync", "--format=safetensors",
                        f"--to={to}", *said, "-o", out + "/x.safetensors", root)
    if run.code:
        return run
    size = {"F32": "<f4", "BF16": "<u2", "F16": "<u2", "U8": "u1"}
    return {name: (np.frombuffer(raw, size[dtype]).reshape(shape), group["block_names"],
                   group["layer_names"]) for name, (group, (dtype, shape, raw)) in
            oracle.written_groups(out + "/x.safetensors")[1].items()}


def by_name(groups):
    return {g: {name: array[:, b] for b, name in enumerate(names)}
            for g, (array, names, _) in groups.items()}


# ---- trees that vLLM wrote ------------------------------------------------------

SAMPLES = {
    "offload_tp1_vec_bs32":
        ("cpu-vec", "--heads=4", "--head-dim=32", "--set=tp-size=1"),
    "offload_tp2_vec_bs32":
        ("cpu-vec", "--heads=4", "--head-dim=32", "--set=tp-size=2"),
    "offload_tp1_vec_bs32_chunk2":
        ("cpu-vec", "--heads=4", "--head-dim=32", "--set=tp-size=1"),
    "offload_tp2_canonical": ("cpu-vec", "--heads=4", "--head-dim=32"),
    "offload_tp1_amx_canonical": ("cpu-amx", "--heads=4", "--head-dim=32"),
    "offload_tp1_pad_mqa80":
        ("cpu-vec", "--heads=1", "--head-dim=80", "--set=tp-size=1"),
    "offload_tp2_mqa80": ("cpu-vec", "--heads=1", "--head-dim=80"),
    "offload_gemma3_bs32": ("cpu-vec", "--heads=2", "--head-dim=32"),
}


def equal_to_oracle(folder, groups):
    """All blocks of order.json, and how many that were."""
    order = read_json(folder + "/order.json")["order"]
    found, count = by_name(groups), 0
    for key, names in order.items():
        prompt, group = key.rsplit("_", 1)
        want = np.load(f"{folder}/oracle_{prompt}_{group}.npy")
        size = want.shape[1] // len(names)
        per_file = max(int(n.split(":")[1]) for names in order.values()
                       for n in names if n) + 1
        for i, name in enumerate(names):
            if name is None:
                continue
            mine = found[group][name if per_file > 1 else name.split(":")[0]]
            block = want[:, i * size:(i + 1) * size]
            if not np.array_equal(mine.reshape(block.shape).view(np.uint8),
                                  np.ascontiguousarray(block).view(np.uint8)):
                return f"{key} block {i} differs", count
            count += 1
    return None, count


def sample(name, layout, *said):
    folder = os.path.join(ENGINES, name)
    root = folder + "/root"
    said = [f"--layout={layout}", *said]
    with oracle.workdir() as work:
        groups = read(said, root, work)
        if isinstance(groups, oracle.Result):
            tap.ok(False, f"{name}: read", groups)
            return
        why, count = equal_to_oracle(folder, groups)
        tap.ok(not why and count, f"{name}: {count} blocks equal to the oracle", why)
        again = os.path.join(work, "again")
        run = oracle.kvtool("convert", "-q", "--no-sync", "--verify", "--format=offload",
                            *said, root, again)
        tap.ok(run.code == 0 and st.tree(again) == st.tree(root),
               f"{name}: written again, byte for byte", run)
        run = oracle.kvtool("convert", "-q", "--no-sync", *said, root, work + "/s.h5")
        shutil.rmtree(again, ignore_errors=True)
        back = oracle.kvtool("convert", "-q", "--no-sync", "--format=offload",
                             work + "/s.h5", again)
        tap.ok(back.code == 0 and st.tree(again) == st.tree(root),
               f"{name}: and by way of a snapshot", f"{run}\n{back}")
        runs(f"{name}: fsck", "fsck", *said, root,
             says=("looked at", "no list of its files"))
        agnostic = [a for a in said if "tp-size" in a]
        if agnostic:
            said.remove(agnostic[0])
            refused(f"{name}: TP is asked for", 3, "--set tp-size=N", "describe", *said,
                    root)


def latents():
    """No oracle of the engine: the file is layer, token, content."""
    root = os.path.join(ENGINES, "offload_mla_bf16_bs32/root")
    said = ["--layout=mla", "--content=576"]
    with oracle.workdir() as work:
        found = by_name(read(said, root, work, "mla"))["g0"]
        good = bool(found)
        for path in glob.glob(root + "/*/*/*/*.bin"):
            mine = found.pop(os.path.basename(path)[:-4])
            good = good and np.array_equal(
                mine.reshape(-1), np.fromfile(path, np.uint16)[:mine.size])
        tap.ok(good and not found, "offload_mla_bf16_bs32: every element")
        again = os.path.join(work, "again")
        run = oracle.kvtool("convert", "-q", "--no-sync", "--verify", "--format=offload",
                            *said, root, again)
        tap.ok(run.code == 0 and st.tree(again) == st.tree(root),
               "offload_mla_bf16_bs32: written again, byte for byte", run)


# ---- the ExampleConnector of a CPU engine ---------------------------------------

def example():
    """Two blocks of 32 of a request; rows are of the packed block."""
    root = os.path.join(ENGINES, "example_vec_bs32/root")
    want = np.load(os.path.join(ENGINES, "example_vec_bs32/oracle_0.npy"))[:, :64]
    request = "f762fcf564a3e667c593ce4fe36b33a9"
    with oracle.workdir() as work:
        refused("rows of what is asked for", 3, "--layout=nhd, or cpu-vec", "describe",
                root)
        refused("a generation does not say it", 3, "--layout=nhd, or cpu-vec", "describe",
                "--from=vllm-2026-07", "--block-size=32", root)
        refused("and no block size is assumed", 3, "--block-size", "describe",
                "--layout=cpu-vec", root)
        run = oracle.kvtool("relayout", "-q", "--no-sync", "--verify", "--to=nhd",
                            "--layout=cpu-vec", "--block-size=32", "-o", work + "/x.npy",
                            f"{root}/{request}")
        tap.ok(run.code == 0 and
               np.array_equal(np.load(work + "/x.npy").reshape(want.shape), want),
               "example_vec_bs32: equal to the oracle", run)
        run = oracle.kvtool("convert", "-q", "--no-sync", "--verify",
                            "--format=vllm-2026-07", "--layout=cpu-vec",
                            "--block-size=32", root, work + "/again")
        names = sorted(st.tree(root))
        ours = st.tree(work + "/again") if run.code == 0 else {}
        tap.ok(sorted(ours) == names and
               all(data_of(ours[n]) == data_of(st.tree(root)[n]) for n in names),
               "example_vec_bs32: written again", run)
        runs("example_vec_bs32: fsck", "fsck", "--layout=cpu-vec", "--block-size=32",
             root)


def data_of(raw):
    """The bytes behind the header of a safetensors file."""
    return raw[8 + int.from_bytes(raw[:8], "little"):]


def packed_rows():
    """Other packings and sizes, whose rows begin and end inside of their tiles."""
    for layout, shapes in (("cpu-vec", ((32, 32), (32, 80), (64, 16), (16, 64))),
                           ("cpu-amx", ((32, 32), (32, 64), (64, 128)))):
        keys, values, _ = oracle.TWO_PLANES[layout]
        for slots, dim in shapes:
            c = RNG.integers(1, 1 << 16, (2, 3, 2, slots, 3, dim), dtype=np.uint16)
            with oracle.workdir() as work:
                for l in range(3):
                    rows = b"".join(packed_block(c[:, l, b], keys, values)
                                    for b in range(2))
                    put_tensor(f"{work}/t/r/layers.{l}.safetensors",
                               (2 * slots, 3, 2 * dim), rows)
                run = oracle.kvtool("relayout", "-q", "--no-sync", "--to=LBSHKD",
                                    f"--layout={layout}", f"--block-size={slots}", "-o",
                                    work + "/x.npy", work + "/t")
                tap.ok(run.code == 0 and
                       np.array_equal(np.load(work + "/x.npy").reshape(
                           3, 2, slots, 3, 2, dim), c.transpose(1, 2, 3, 4, 0, 5)),
                       f"rows of {layout}, {slots} slots of {dim}", run)


def packed_block(cells, keys, values):
    """[K, S, H, D] of one block in the backend's order, cut into rows of 2 D."""
    _, slots, heads, dim = cells.shape
    page = []
    for h in range(heads):
        for k, order in ((0, keys), (1, values)):
            page.append(split_order(cells[k, :, h], order))
    page = np.concatenate(page).reshape(heads, slots, 2 * dim)
    return np.ascontiguousarray(page.transpose(1, 0, 2)).tobytes()


def split_order(array, order):
    """[S, D] in an order such as "L B H S/16 D/2 S%16 D%2"."""
    parts = [p for p in order.split() if p[0] in "SD"]
    size = {"S": array.shape[0], "D": array.shape[1]}
    inner = {p[0]: int(p[2:]) for p in parts if "%" in p}
    s, d = inner.get("S", 1), inner.get("D", 1)
    cut = array.reshape(size["S"] // s, s, size["D"] // d, d)
    place = {"S": 0, "D": 2, "S/": 0, "S%": 1, "D/": 2, "D%": 3}
    axes = [place[p[:2]] for p in parts]
    axes += [a for a in range(4) if a not in axes]
    return cut.transpose(axes).reshape(-1)


def put_tensor(path, shape, raw):
    head = json.dumps({"kv_cache": {"dtype": "BF16", "shape": shape,
                                    "data_offsets": [0, len(raw)]}}).encode()
    st.put(path, len(head).to_bytes(8, "little") + head + raw)


# ---- trees made from their description ------------------------------------------

NAMES = [f"model.layers.{i}.self_attn.attn" for i in range(16)]
PAGES = {"LBNHC": "LBSHKD", "LBHNC": "LBHSKD", "BLNHC": "BLSHKD", "BLHNC": "BLHSKD",
         "BHLNC": "BHLSKD"}


def cells(layers, blocks, heads=4, slots=16, dim=24, kv=2):
    shape = (kv, layers, blocks, slots, heads, dim)
    return RNG.integers(1, 1 << 16, shape, dtype=np.uint16)


def config(groups, per_file=1, **more):
    """'groups': lists of layers."""
    out = st.renamed(st.offload_config(
        [(16, [NAMES[i] for i in layers]) for layers in groups],
        blocks_per_file=per_file))
    out.update(more)
    return out


def geometry(layout, heads=4, dim=24):
    return [f"--layout=vllm:{layout}", f"--heads={heads}", f"--head-dim={dim}"]


def same(groups, want):
    """'want': {group id: cells}"""
    if isinstance(groups, oracle.Result):
        return False
    for g, c in want.items():
        array, names, _ = groups[g]
        mine = array.reshape(c.shape[1], c.shape[2], c.shape[3], c.shape[4], c.shape[0],
                             c.shape[5])
        if len(names) != c.shape[2] or \
                not np.array_equal(mine, c.transpose(1, 2, 3, 4, 0, 5)):
            return False
    return set(groups) == set(want)


def check(name, root, said, want, work, again=True, to="nhd"):
    groups = read(said, root, work, to)
    tap.ok(same(groups, want), name, groups)
    if not again:
        return
    out = os.path.join(work, "again")
    run = oracle.kvtool("convert", "-q", "--no-sync", "--verify", "--format=offload",
                        *said, root, out)
    tap.ok(run.code == 0 and st.tree(out) == st.tree(root), f"{name}: written again", run)


def layouts_and_ranks():
    for layout, order in PAGES.items():
        for tp, per_file in ((1, 1), (2, 4), (4, 2)):
            c = cells(3, 8)
            conf = config([range(3)], per_file)
            with oracle.workdir() as work:
                st.write_rows(work + "/t", conf, c, order, tp)
                check(f"{layout}, TP {tp}, {per_file} blocks a file", work + "/t",
                      geometry(layout) + [f"--set=tp-size={tp}"], {"g0": c}, work)


def unequal_groups():
    """Groups begin at one place; what a smaller one leaves over is stale."""
    members = [[0, 4, 8], [1, 2, 3], [5, 6]]
    for layout in ("LBNHC", "BLHNC", "BHLNC"):
        for tp, per_file in ((1, 1), (2, 2)):
            conf = config(members, per_file, parallel_agnostic=False, tp_size=tp)
            with oracle.workdir() as work:
                want = {}
                for g, layers in enumerate(members):
                    c = want[f"g{g}"] = cells(len(layers), 2 * (g + 1))
                    st.write_rows(work + "/t", conf, c, PAGES[layout], tp, group=g,
                                  layers=3)
                said = geometry(layout)
                check(f"three groups, {layout}, TP {tp}", work + "/t", said, want, work,
                      again=False)
                one = read([*said, "--set=group=2"], work + "/t", work)
                tap.ok(same(one, {"g2": want["g2"]}),
                       f"the smallest group alone, {layout}, TP {tp}", one)
                oracle.kvtool("convert", "-q", "--no-sync", "--format=offload", *said,
                              work + "/t", work + "/u")
                groups = read(said, work + "/u", work)
                tap.ok(same(groups, want), f"written and read, {layout}, TP {tp}", groups)


def group_numbers():
    """Groups that are not stored are in no config, but count."""
    conf = config([[0, 2], [1, 3]], parallel_agnostic=False)
    with oracle.workdir() as work:
        a, b = cells(2, 2), cells(2, 3)
        st.write_rows(work + "/t", conf, a, PAGES["LBNHC"], group=1)
        st.write_rows(work + "/t", conf, b, PAGES["LBNHC"], group=3)
        check("groups 1 and 3 of a config of two", work + "/t", geometry("LBNHC"),
              {"g1": a, "g3": b}, work)
        groups = read(geometry("LBNHC"), work + "/t", work)
        tap.equal([g[2] for g in groups.values()],
                  [[NAMES[0], NAMES[2]], [NAMES[1], NAMES[3]]], "and of their layers")
        st.write_rows(work + "/t", conf, b, PAGES["LBNHC"], group=4)
        refused("three of a config of two", 3, ("3 groups", "lists 2"), "describe",
                *geometry("LBNHC"), work + "/t")


def replicas():
    for tp in (4, 8):
        c = cells(2, 3, heads=2)
        conf = config([range(2)], parallel_agnostic=False, tp_size=tp)
        with oracle.workdir() as work:
            st.write_rows(work + "/t", conf, c, PAGES["LBHNC"], tp)
            said = geometry("LBHNC", heads=2)
            check(f"2 heads in {tp} ranks", work + "/t", said, {"g0": c}, work)
            path = glob.glob(work + "/t/*_r0/*/*/*.bin")[0]
            patch(path, 3 * 2 * 16 * 48 * 2 // 2 + 5, bytes(5))
            run = oracle.kvtool("fsck", *said, work + "/t")
            tap.ok(run.code == 1 and "ranks.replicas" in run.out,
                   f"copies that differ, TP {tp}", run)
    c = cells(2, 3, heads=1, kv=1, dim=40)
    conf = config([range(2)], parallel_agnostic=False, tp_size=2)
    with oracle.workdir() as work:
        st.write_rows(work + "/t", conf, c, "LBSD", 2, latent=True)
        check("two copies of latents", work + "/t", ["--layout=mla", "--content=40"],
              {"g0": c}, work, to="mla")
    conf = config([range(2)], replicated_layout=True, parallel_agnostic=False)
    with oracle.workdir() as work:
        st.write_rows(work + "/t", conf, c, "LBSD", 1, latent=True)
        check("one copy of latents", work + "/t", ["--layout=mla", "--content=40"],
              {"g0": c}, work, to="mla")


def canonical():
    for layout, family in (("LBNHC", "nhd"), ("LBHNC", "hnd")):
        conf = config([[0, 2], [1]], 2, canonical_format="v1-" + family)
        with oracle.workdir() as work:
            want = {"g0": cells(2, 4), "g1": cells(1, 2)}
            for g in range(2):
                st.write_rows(work + "/t", conf, want[f"g{g}"], PAGES[layout], 2, group=g,
                              layers=2, canonical=True, junk=b"\0")
            check(f"canonical {family}, two groups", work + "/t", geometry(layout), want,
                  work)
            other = "LBHNC" if layout == "LBNHC" else "LBNHC"
            refused(f"{family} is not {other}", 3, "canonical_format", "describe",
                    *geometry(other), work + "/t")
        conf = config([range(2)], canonical_format="v1-" + family)
        with oracle.workdir() as work:
            c = cells(2, 3, heads=2)
            st.write_rows(work + "/t", conf, c, PAGES[layout], 8, canonical=True)
            said = geometry(layout, heads=2)
            refused(f"canonical {family} of 8 ranks: room for copies is asked for", 3,
                    ("bytes, expected", "tp-size"), "describe", *said, work + "/t")
            check(f"canonical {family}, 2 heads of 8 ranks", work + "/t",
                  said + ["--set=tp-size=8"], {"g0": c}, work)


def padding():
    c, conf = cells(3, 4), config([range(3)], 2)
    page = 16 * 2 * 48 * 2
    with oracle.workdir() as work:
        st.write_rows(work + "/t", conf, c, PAGES["LBNHC"], 2, block_bytes=page + 96)
        said = geometry("LBNHC") + ["--set=tp-size=2"]
        refused("pages that are longer are not read without a word", 3,
                ("has", "expected", "block-bytes"), "describe", *said, work + "/t")
        check("padded pages", work + "/t", said + [f"--set=block-bytes={page + 96}"],
              {"g0": c}, work, again=False)
    with oracle.workdir() as work:
        st.write_rows(work + "/t", conf, c, PAGES["LBNHC"], 2, align=65536)
        check("pages of 64 KiB of the machine", work + "/t",
              said + ["--set=row-align=65536"], {"g0": c}, work)


# ---- what is refused ------------------------------------------------------------

def refusals():
    c, conf = cells(3, 4), config([range(3)], 2)
    with oracle.workdir() as work:
        root = work + "/t"
        st.write_rows(root, conf, c, PAGES["LBNHC"], 2)
        good = geometry("LBNHC") + ["--set=tp-size=2"]
        for name, said, parts in (
                ("without TP", geometry("LBNHC"), ["--set tp-size=N"]),
                ("half the heads", geometry("LBNHC", heads=2) + good[-1:],
                 ["36864 bytes, expected 20480", "2 ranks x 3 layers x 2 blocks of 1536"]),
                ("twice the heads", geometry("LBNHC", heads=8) + good[-1:],
                 ["36864 bytes, expected 73728"]),
                ("half the dimension", geometry("LBNHC", dim=12) + good[-1:],
                 ["36864 bytes, expected 20480"]),
                ("a share of the heads", good + ["--set=total-heads=8"],
                 ["the heads of all ranks"]),
                ("3 ranks of 4 heads", geometry("LBNHC") + ["--set=tp-size=3"],
                 ["4 heads cannot be divided among 3 ranks"]),
                ("8 ranks of 4 heads", geometry("LBNHC") + ["--set=tp-size=8"],
                 ["4 heads cannot be divided among 8 ranks"])):
            for command in ("describe", "fsck"):
                run = oracle.kvtool(command, *said, root)
                tap.ok(run.code == 3 and all(p in run.err + run.out for p in parts),
                       f"{command}: {name}", run)
        refused("a layout that no row can have", 4, "cannot have layout", "describe",
                "--layout=hicache-layer-first", *good[1:], root)
        path = sorted(glob.glob(root + "/*_r0/*/*/*.bin"))[0]
        os.truncate(path, 32768)
        refused("a file that was cut", 3, "32768 bytes, expected 36864", "describe",
                *good, root)
    with oracle.workdir() as work:
        # 3 layers x 16 x 4 x 46 x 2 = 17664 bytes and zeros up to 20480
        c = cells(3, 2, dim=23)
        st.write_rows(work + "/t", config([range(3)]), c, PAGES["LBNHC"])
        tp = "--set=tp-size=1"
        refused("less than what is stored, in one length", 3, "are not zero", "describe",
                *geometry("LBNHC", dim=22), tp, work + "/t")
        run = oracle.kvtool("fsck", *geometry("LBNHC", dim=22), tp, work + "/t")
        tap.ok(run.code == 1 and run.out.count("row.tail") == 2, "fsck names all files",
               run)
    for name, more, parts, code in (
            ("pipeline ranks", {"pp_size": 2, "parallel_agnostic": False},
             "pp_size is 2", 4),
            ("context ranks", {"dcp_size": 2, "tp_size": 2, "parallel_agnostic": False},
             "dcp_size 2", 4),
            ("canonical, not for every TP",
             {"canonical_format": "v1-nhd", "tp_size": 2, "parallel_agnostic": False},
             "not for every TP", 4),
            ("another family", {"canonical_format": "v2-nhd"}, "v2-nhd", 4),
            ("no truth", {"parallel_agnostic": 1}, "neither true nor false", 3),
            ("another TP", {"tp_size": 2, "parallel_agnostic": False},
             "tp_size is 2, but 1 was given", 3)):
        with oracle.workdir() as work:
            conf = config([range(3)], **more)
            st.write_rows(work + "/t", conf, cells(3, 1), PAGES["LBNHC"])
            refused(name, code, parts, "describe", *geometry("LBNHC"), "--set=tp-size=1",
                    work + "/t")


def wrong_trees():
    one = ["--set=tp-size=1"]
    both = config([range(3)], 2)
    unlike = st.renamed(st.offload_config([(16, NAMES[:2]), (32, NAMES[2:4])]))
    for name, conf, said, code, parts in (
            ("two numbers of blocks a file", dict(both, gpu_blocks_per_file=4),
             geometry("LBNHC") + one, 3,
             ["gpu_blocks_per_file is 4, but blocks_per_file is 2"]),
            ("a group that is not there", both, geometry("LBNHC") + one + ["--set=group=7"],
             3, ["holds no blocks of this group"]),
            ("a canonical tree, blocks outermost",
             dict(both, canonical_format="v1-nhd"), geometry("BLNHC") + one, 3,
             ["is canonical, so layers must be outermost"]),
            # 16 slots of 4 heads, twice 24 numbers of 2 bytes
            ("blocks of less than they need", both,
             geometry("LBNHC") + one + ["--set=block-bytes=100"], 3,
             ["needs 6144 bytes, more than the given 100"]),
            ("groups of other blocks", unlike,
             geometry("LBNHC") + one + ["--set=block-bytes=12288"], 3,
             ["6144 bytes in g0 and 12288 in g1", "give one --set group"])):
        with oracle.workdir() as work:
            for g in range(len(conf["kv_cache_groups"])):
                own = conf["kv_cache_groups"][g]
                st.write_rows(work + "/t", conf, cells(
                    len(own["layer_names"]), 4, slots=own["tokens_per_block"]),
                    PAGES["LBNHC"], group=g, block_bytes=6144 * len(conf["kv_cache_groups"]))
            run = oracle.kvtool("describe", *said, work + "/t")
            tap.ok(complains(run, code, parts), f"refused: {name}", run)
    with oracle.workdir() as work:
        st.write_rows(work + "/t", both, cells(3, 4), PAGES["LBNHC"])
        shutil.rmtree(glob.glob(work + "/t/*_r0")[0])
        refused("refused: a config without a rank", 3, ("has no folder", "_r0 of a rank"),
                "describe", *geometry("LBNHC"), *one, work + "/t")
    with oracle.workdir() as work:
        # a tree with no file left is one, too, wherever it is entered
        st.write_rows(work + "/t", both, cells(3, 4), PAGES["LBNHC"])
        for f in glob.glob(work + "/t/*_r0/*/*/*.bin"):
            os.remove(f)
        for folder in (work + "/t", work + "/t/", *glob.glob(work + "/t/*")):
            for more in [], [*geometry("LBNHC"), *one]:
                refused(f"refused: emptied, {os.path.basename(folder)}, {len(more)}", 3,
                        "holds no blocks: no file of a hash", "describe", *more, folder)
    with oracle.workdir() as work:
        old = st.offload_config([(16, NAMES[:2])])
        st.write_offload(work + "/t", old, cells(2, 2), "SHKD", rank=5)
        refused("refused: a rank too many", 3, "rank 5 of a config with 1", "describe",
                "--from=llmd", *geometry("LBNHC"), "--set=rank=5", work + "/t")


def no_trees():
    """Dumps that no tree can hold."""
    size = sizes(L=2, B=3, S=4, H=2, D=8)
    group = {"layout": "nhd", "dtype": "bf16", "sizes": size,
             "block_names": [st.block_name(i) for i in range(3)]}
    more = dict(group, sizes=dict(size, num_kv_heads=4))
    for name, said, form, part in (
            ("a long name", dict(group, model="m" * 220), "offload",
             "the model's name is too long for that of a folder"),
            ("groups of other heads", {"model": "m", "groups": [group, more]}, "offload",
             "groups g0 and g1 have different block sizes"),
            ("groups of other names", {"model": "m", "groups": [dict(group, id="full")]}, "llmd",
             "group full: groups of an offload tree are g0, g1"),
            ("70000 ranks", dict(group, model="m"), "offload", "70000 ranks are more than")):
        with oracle.workdir() as work:
            st.put(work + "/d.bin", bytes(1536 * (3 if "layout" not in said and
                                                  len(said["groups"]) > 1 else 1)))
            st.put(work + "/d.bin.json", json.dumps(said).encode())
            run = oracle.kvtool("convert", "-q", f"--format={form}",
                                *(["--row-ranks=70000"] if "ranks" in name else []),
                                work + "/d.bin", work + "/x")
            tap.ok(complains(run, 4, part) and not os.path.exists(work + "/x"),
                   f"not written: {name}", run)


def writers():
    """Older keys are llm-d's and vLLM's: the bytes differ, so one has to say."""
    conf = st.offload_config([(16, NAMES[:4])], blocks_per_file=2)
    c = cells(4, 4, dim=32)
    with oracle.workdir() as work:
        root = work + "/t"
        st.write_offload(root, conf, c, "SHKD")
        said = geometry("LBNHC", dim=32)
        refused("older keys: the writer is asked for", 3,
                ("--from=llmd", "--from=vllm-offload"), "describe", *said, root)
        for fact, part in (("tp-size=2", "tp_size is 1, but 2 was given"),
                           ("row-align=4096", "no row-align")):
            refused(f"llm-d: {fact}", 3, part, "describe", *said, "--from=llmd",
                    f"--set={fact}", root)
        groups = read([*said, "--from=llmd"], root, work)
        tap.ok(same(groups, {"g0": c}), "older keys: llm-d", groups)
    with oracle.workdir() as work:
        few = st.offload_config([(16, NAMES[:2])], blocks_per_file=4)
        f = cells(2, 3)
        st.write_offload(work + "/t", few, f, "SHKD")
        refused("llm-d: beginnings of ranges that are missing, or longer blocks", 3,
                ("no file has all 4 blocks", "--set block-bytes=6144"), "describe",
                "--from=llmd", *geometry("LBNHC"), work + "/t")
        groups = read(["--from=llmd", *geometry("LBNHC"), "--set=block-bytes=6144"],
                      work + "/t", work)
        tap.ok(same(groups, {"g0": f}), "llm-d: the last blocks of a range", groups)
        for heads in (2, 8):
            run = oracle.kvtool("fsck", "--from=llmd", *geometry("LBNHC", heads=heads),
                                "--set=block-bytes=6144" if heads == 8 else "-q", work + "/t")
            tap.ok(run.code == 3, f"llm-d: fsck, {heads} heads of 4", run)
    with oracle.workdir() as work:
        root = work + "/t"
        st.write_rows(root, conf, c, PAGES["LBNHC"], 2)
        check("older keys: vLLM until 0.25", root,
              said + ["--from=vllm-offload", "--set=tp-size=2"], {"g0": c}, work)
        os.rename(glob.glob(root + "/*_r0")[0], glob.glob(root + "/*_r0")[0][:-1] + "1")
        refused("rows of another rank", 3, "is of rank 1", "describe", *said,
                "--from=vllm-offload", root)
    conf = config([range(2)])
    with oracle.workdir() as work:
        c = cells(2, 2)
        st.write_rows(work + "/t", conf, c, PAGES["LBNHC"])
        oracle.kvtool("convert", "-q", "--no-sync", *geometry("LBNHC"),
                      "--set=tp-size=1", work + "/t", work + "/s.h5")
        run = oracle.kvtool("convert", "-q", "--no-sync", "--verify", "--format=llmd",
                            work + "/s.h5", work + "/l")
        old = st.offload_config([(16, NAMES[:2])])
        tap.ok(run.code == 0 and
               np.array_equal(st.read_offload(work + "/l", old,
                                              dict(zip(st.AXES, c.shape)), "SHKD"), c),
               "rows become a tree of llm-d", run)
        oracle.kvtool("slice", "-q", "--no-sync", "--tp-size=2", "--tp-rank=0", "-o",
                      work + "/r.h5", work + "/s.h5")
        refused("one rank makes no row", 4, "merge them first", "convert", "-q",
                "--no-sync", "--format=offload", work + "/r.h5", work + "/x")
        refused("a layout without rows is not written", 4, "cannot have layout",
                "relayout", "-q", "--no-sync", "--to=KLBSHD", "--format=offload", "-o",
                work + "/x", work + "/s.h5")


def other_ranks():
    """A tree for another TP is what vLLM would have written with that."""
    with oracle.workdir() as work:
        for heads, tp, more in ((4, 2, {}), (4, 4, {}), (2, 4, {"parallel_agnostic": False,
                                                                "tp_size": 4})):
            c = cells(3, 4, heads=heads)
            a, b, got = (f"{work}/{n}{heads}{tp}" for n in ("a", "b", "c"))
            st.write_rows(a, config([range(3)], 2), c, PAGES["LBHNC"], 1)
            st.write_rows(b, config([range(3)], 2, **more), c, PAGES["LBHNC"], tp)
            run = oracle.kvtool("convert", "-q", "--no-sync", "--verify",
                                "--format=offload", f"--row-ranks={tp}",
                                *geometry("LBHNC", heads=heads), "--set=tp-size=1", a, got)
            tap.ok(run.code == 0 and st.tree(got) == st.tree(b),
                   f"{heads} heads of one rank become rows of {tp}", run)
        refused("3 ranks of 2 heads", 3, "cannot be divided among 3 ranks", "convert",
                "--row-ranks=3", "--format=offload", *geometry("LBHNC", heads=heads),
                "--set=tp-size=1", a, work + "/x")
        c = cells(2, 3, heads=1, kv=1, dim=40)
        pair = (config([range(2)], parallel_agnostic=False),
                config([range(2)], replicated_layout=True))
        for i, conf in enumerate(pair):
            st.write_rows(f"{work}/m{i}", conf, c, "LBSD", latent=True)
        for i in range(2):
            run = oracle.kvtool("convert", "-q", "--no-sync", "--verify", "-f",
                                "--format=offload", f"--row-ranks={1 if i else 2}",
                                "--layout=mla", "--content=40", f"{work}/m{i}",
                                f"{work}/n{i}")
            tap.ok(run.code == 0 and st.tree(f"{work}/n{i}") == st.tree(f"{work}/m{1 - i}"),
                   f"latents for {1 if i else 2} ranks", run)
        for form in ("llmd", "hdf5"):
            refused(f"{form} has no rows", 2, "files of several ranks", "convert",
                    "--row-ranks=2", f"--format={form}", *geometry("LBHNC", heads=heads),
                    "--set=tp-size=1", a, work + "/x")


def other_forms():
    """Canonical trees and those of ranks become each other, as the engine wrote both."""
    with oracle.workdir() as work:
        trees = {}
        for name in ("offload_tp2_vec_bs32", "offload_tp2_canonical"):
            trees[name] = os.path.join(ENGINES, name, "root")
        said = ["--layout=cpu-vec", "--heads=4", "--head-dim=32"]
        ranks, canonical = trees.values()
        for form, more, a, b in (("canonical", ["--set=tp-size=2"], ranks, canonical),
                                 ("ranks", ["--row-ranks=2"], canonical, ranks)):
            got = work + "/" + form
            run = oracle.kvtool("convert", "-q", "--no-sync", "--verify", "--format=offload",
                                f"--row-form={form}", *said, *more, a, got)
            tap.ok(run.code == 0 and st.tree(got) == st.tree(b),
                   f"rows become those of {form}, as vLLM wrote them", run)
        for layout, family in (("LBNHC", "v1-nhd"), ("LBHNC", "v1-hnd")):
            c = cells(3, 4)
            a, b = work + "/a" + layout, work + "/b" + layout
            st.write_rows(a, config([range(3)], 2), c, PAGES[layout], 4)
            st.write_rows(b, config([range(3)], 2, canonical_format=family), c,
                          PAGES[layout], 4, canonical=True)
            for i, (form, more) in enumerate((("canonical", ["--set=tp-size=4"]),
                                              ("ranks", ["--row-ranks=4"]))):
                run = oracle.kvtool("convert", "-q", "--no-sync", "--verify", "-f",
                                    "--format=offload", f"--row-form={form}",
                                    *geometry(layout), *more, (a, b)[i],
                                    f"{work}/got{form}{layout}")
                got = st.tree(f"{work}/got{form}{layout}")
                tap.ok(run.code == 0 and got == st.tree((b, a)[i]),
                       f"{layout} to {form}", run)
        for args, code, part in (
                (["--row-form=x", "--format=offload"], 2, "expected canonical or ranks"),
                (["--row-form=ranks", "--format=hdf5"], 2, "--row-form are only for offload"),
                (["--row-form=ranks", "--format=llmd"], 2, "leave out --row-ranks")):
            refused(f"refused: {args}", code, part, "convert", *args, *geometry("LBNHC"),
                    "--set=tp-size=4", work + "/aLBNHC", work + "/x")
        st.write_rows(work + "/o", config([range(3)], 2), cells(3, 4), PAGES["BLNHC"], 2)
        refused("blocks outermost", 3, "layers must be outermost", "convert",
                "--row-form=canonical", "--format=offload", *geometry("BLNHC"),
                "--set=tp-size=2", work + "/o", work + "/x")


def other_blocks():
    """Blocks of another size, with names of their own: the tree that has such blocks."""
    for per_file in (1, 2):
        with oracle.workdir() as work:
            c = cells(3, 4)
            a, b, got = (f"{work}/{n}" for n in "abc")
            st.write_rows(a, config([range(3)]), c, PAGES["LBNHC"], block_bytes=8192)
            small = st.renamed(st.offload_config([(8, NAMES[:3])],
                                                 blocks_per_file=per_file))
            st.write_rows(b, small, c.reshape(2, 3, 8, 8, 4, 24), PAGES["LBNHC"])
            oracle.kvtool("reblock", "-q", "--no-sync", "-b", "8", "-o", work + "/x.npy",
                          *geometry("LBNHC"), "--set=tp-size=1", "--set=block-bytes=8192",
                          a)
            side = read_json(work + "/x.json")
            side["block_names"] = [
                st.block_name(i - i % per_file) + (f":{i % per_file}" if per_file > 1
                                                   else "") for i in range(8)]
            write_json(work + "/x.json", side)
            run = oracle.kvtool("convert", "-q", "--no-sync", "--verify",
                                "--format=offload", work + "/x.npy", got)
            tap.ok(run.code == 0 and st.tree(got) == st.tree(b),
                   f"blocks of half the size, {per_file} a file", run)
            if per_file == 1:
                other_order(work, side)


def other_order(work, side):
    """A store has blocks in the order of their names, a dump in its own."""
    side["block_names"].reverse()
    write_json(work + "/x.json", side)
    runs("blocks whose names do not ascend are verified by name", "convert", "-q",
         "--no-sync", "--verify", "--format=offload", work + "/x.npy", work + "/d")
    one, two = (read(how, work + f, work) for how, f in
                (([], "/x.npy"), (geometry("LBNHC") + ["--set=tp-size=1"], "/d")))
    same_order = [two["g0"][1].index(name) for name in one["g0"][1]]
    tap.ok(np.array_equal(one["g0"][0], two["g0"][0][:, same_order]),
           "and each is in the file of its name")


def parts_of_chunks():
    conf = config([range(2)], 4)
    with oracle.workdir() as work:
        st.write_rows(work + "/t", conf, cells(2, 8), PAGES["LBNHC"])
        said = geometry("LBNHC") + ["--set=tp-size=1"]
        oracle.kvtool("convert", "-q", "--no-sync", *said, work + "/t", work + "/s.h5")
        oracle.kvtool("slice", "-q", "--no-sync", "--blocks=4:8", "-o", work + "/a.h5",
                      work + "/s.h5")
        run = oracle.kvtool("convert", "-q", "--no-sync", "--format=offload",
                            work + "/a.h5", work + "/a")
        whole = {n: b for n, b in st.tree(work + "/t").items()
                 if st.block_name(4) in n or n.endswith(".json")}
        tap.ok(run.code == 0 and st.tree(work + "/a") == whole, "one file of two", run)
        oracle.kvtool("slice", "-q", "--no-sync", "--blocks=5:8", "-o", work + "/b.h5",
                      work + "/s.h5")
        refused("a part of a row is not written", 4, "all of them", "convert", "-q",
                "--no-sync", "--format=offload", work + "/b.h5", work + "/b")


def leftovers():
    conf = config([range(2)])
    with oracle.workdir() as work:
        st.write_rows(work + "/t", conf, cells(2, 2), PAGES["LBNHC"])
        path = glob.glob(work + "/t/*_r0/*/*/*.bin")[0]
        base = work + "/t/" + st.offload_base(conf)
        for name in (path + "_123456789.tmp", base + "/.o_direct_probe_7.tmp"):
            st.put(name, b"")
        run = oracle.kvtool("fsck", *geometry("LBNHC"), "--set=tp-size=1", work + "/t")
        tap.ok(run.code == 0 and run.out.count("file.leftover") == 2 and
               "_123456789.tmp" in run.out and ".o_direct_probe_7.tmp" in run.out,
               "leftovers are named", run)
        run = oracle.kvtool("fsck", "--json", *geometry("LBNHC"), "--set=tp-size=1",
                            work + "/t")
        looked = run.json["files"][0]["looked_at"]
        size = sum(len(b) for b in st.tree(work + "/t").values())
        tap.equal((looked["files"], looked["bytes"], looked["groups"], looked["blocks"],
                   looked["data"], looked["missing_files_noticed"]),
                  (3, size, 1, 2, True, False), "fsck says what it looked at")


def main():
    for name, said in SAMPLES.items():
        sample(name, *said)
    latents()
    example()
    packed_rows()
    layouts_and_ranks()
    unequal_groups()
    group_numbers()
    replicas()
    canonical()
    padding()
    refusals()
    wrong_trees()
    no_trees()
    writers()
    other_ranks()
    other_forms()
    other_blocks()
    parts_of_chunks()
    leftovers()


oracle.run(main)
