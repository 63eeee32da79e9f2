#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_import.py - folders of engines' stores against writers and readers made
from their descriptions (TAP)

What is imported has the digest of the dump that the folder was made of; what is
exported is the folder again, byte for byte; what is converted and exported says
the same to a reader that knows the description alone.
"""
import json
import os

import numpy as np

import oracle
from oracle import complains, read_text, refused, runs, tap
import store_trees as st

oracle.need_program_and_data()
DUMP = oracle.dump("s260k/paged_bs16/packed_nhd.bf16")
LATENT = oracle.dump("mla144/paged_bs16/mla_lbsc.bf16")
MODEL = "org/stories-260K"


def digest(*args):
    run = oracle.kvtool("digest", "-q", "--scope=blocks", *args)
    return run.out.split()[0] if run.code == 0 and run.out else str(run)


WANT = {d.model: digest(d.path) for d in (DUMP, LATENT)}


def geometry(dump, layout, heads=None):
    out = [f"--layout={layout}", "--dtype=bf16", f"--block-size={dump.dims['S']}"]
    if dump.latent:
        return out + [f"--content={dump.dims['D']}"]
    return out + [f"--heads={heads or dump.dims['H']}", f"--head-dim={dump.dims['D']}"]


def round_trip(name, folder, dump, args, form, work):
    """Read where it lies, imported, exported."""
    snapshot, back = os.path.join(work, "s.h5"), os.path.join(work, "back")
    tap.equal(digest(*args, folder), WANT[dump.model], f"{name}: digest")
    run = oracle.kvtool("import", "-q", "--no-sync", *args, "-o", snapshot, folder)
    tap.ok(run.code == 0 and digest(snapshot) == WANT[dump.model],
           f"{name}: imported", run)
    run = oracle.kvtool("convert", "-q", "--no-sync", "--verify", f"--format={form}",
                        snapshot, back)
    tap.ok(run.code == 0 and st.tree(back) == st.tree(folder),
           f"{name}: exported again", run)


# ---- HiCache ------------------------------------------------------------------

def hicache(layout, dump):
    rank = "" if dump.latent else "_0_1"
    with oracle.workdir() as work:
        folder = os.path.join(work, "in")
        st.write_hicache(folder, dump.cells, layout, MODEL, rank)
        round_trip(f"hicache {layout}", folder, dump, geometry(dump, layout), "hicache",
                   work)


def hicache_relayout():
    with oracle.workdir() as work:
        folder, out = os.path.join(work, "in"), os.path.join(work, "out")
        st.write_hicache(folder, DUMP.cells, "hicache-layer-first", MODEL)
        run = oracle.kvtool("relayout", "-q", "--no-sync", "--to=hicache-page-head",
                            "--format=hicache", *geometry(DUMP, "hicache-layer-first"),
                            "-o", out, folder)
        tap.ok(run.code == 0 and
               np.array_equal(st.read_hicache(out, DUMP.dims, "hicache-page-head",
                                              MODEL.replace("/", "-")), DUMP.cells),
               "hicache: relayout to another of its layouts", run)


def hicache_ranks():
    """Four ranks in one folder to two in another."""
    with oracle.workdir() as work:
        folder = os.path.join(work, "in")
        for r in range(4):
            st.write_hicache(folder, DUMP.cells[:, :, :, :, r:r + 1],
                             "hicache-page-first", MODEL, f"_{r}_4")
        said = geometry(DUMP, "hicache-page-first", 1) + ["--set=total-heads=4"]
        refused("hicache: ranks in one folder are a conflict", 3,
                ("ranks '0_4' and '1_4'", "--set rank="), "import", *said, "-o",
                work + "/x.h5", folder)
        for r in range(4):
            oracle.kvtool("import", "-q", "--no-sync", *said, f"--set=rank={r}_4", "-o",
                          f"{work}/r{r}.h5", folder)
        run = oracle.kvtool("merge", "-q", "--no-sync", "-o", work + "/all.h5",
                            *[f"{work}/r{r}.h5" for r in range(4)])
        tap.ok(run.code == 0 and digest(work + "/all.h5") == WANT[DUMP.model],
               "hicache: its ranks merge", run)
        for r in range(2):
            one, out = f"{work}/half{r}.h5", f"{work}/half{r}"
            oracle.kvtool("slice", "-q", "--no-sync", "--tp-size=2", f"--tp-rank={r}",
                          "-o", one, work + "/all.h5")
            run = oracle.kvtool("convert", "-q", "--no-sync", "--format=hicache", one,
                                out)
            dims = dict(DUMP.dims, H=2)
            tap.ok(run.code == 0 and
                   np.array_equal(st.read_hicache(out, dims, "hicache-page-first",
                                                  MODEL.replace("/", "-"), f"_{r}_2"),
                                  DUMP.cells[:, :, :, :, 2 * r:2 * r + 2]),
                   f"hicache: rank {r} of 2 exported", run)


def hicache_pools():
    with oracle.workdir() as work:
        folder = os.path.join(work, "in")
        st.write_hicache(folder, DUMP.cells, "hicache-page-first", MODEL)
        st.write_hicache(folder, DUMP.cells[:, :2, :7], "hicache-page-first", MODEL,
                         pool=".draft_swa")
        said = geometry(DUMP, "hicache-page-first")
        run = oracle.kvtool("describe", *said, folder)
        tap.ok(complains(run, 3, "pools 'kv' and 'draft_swa'") or
               complains(run, 3, "pools 'draft_swa' and 'kv'"),
               "hicache: pools in one folder are a conflict", run)
        tap.equal(digest(*said, "--set=pool=kv", folder), WANT[DUMP.model],
                  "hicache: the pool of keys and values")
        back = os.path.join(work, "back")
        run = oracle.kvtool("convert", "-q", "--no-sync", "--format=hicache", *said,
                            "--set=pool=draft_swa", folder, back)
        mine = {n: b for n, b in st.tree(folder).items() if ".draft_swa_" in n}
        tap.ok(run.code == 0 and st.tree(back) == mine, "hicache: another pool", run)


# ---- the offload tree -----------------------------------------------------------

NAMES = [f"model.layers.{i}.self_attn.attn" for i in range(5)]
ORDERS = {"nhd": "SHKD", "hnd": "HSKD", "blocks-first-nhd": "KSHD", "BLKHSD": "KHSD"}


def offload(name, layout, dump=DUMP, per_file=1, pad=0, later=False, names=None,
            llmd=False):
    order = "SD" if dump.latent else ORDERS[layout]
    config = st.offload_config([(16, names or NAMES[:dump.dims["L"]])],
                               blocks_per_file=per_file)
    if later:
        config = dict(st.renamed(config), parallel_agnostic=False,
                      canonical_format="v1-" + ("nhd" if order[0] == "S" else "hnd"))
    with oracle.workdir() as work:
        root = os.path.join(work, "in")
        st.write_offload(root, config, dump.cells, order, pad=pad)
        said = [a for a in geometry(dump, layout)
                if "dtype" not in a and "block-size" not in a]
        said += ["--from=llmd"] if llmd else []
        if pad:
            step = st.ordered(dump.cells[:, :1, :1], order)
            refused(f"offload {name}: not read in part", 3,
                    ("bytes, expected", "--set block-bytes"), "describe", *said, root)
            said += [f"--set=block-bytes={len(step) + pad}"]
            tap.equal(digest(*said, root), WANT[dump.model], f"offload {name}: digest")
            return
        round_trip(f"offload {name}", root, dump, said, "offload", work)


def offload_ranks():
    """Two ranks to four, as an engine of four would look for them."""
    with oracle.workdir() as work:
        root = os.path.join(work, "in")
        config = st.offload_config([(16, NAMES)], tp=2)
        for r in range(2):
            st.write_offload(root, config, DUMP.cells[:, :, :, :, 2 * r:2 * r + 2],
                             "SHKD", rank=r)
        said = ["--layout=nhd", "--heads=2", "--head-dim=8", "--set=total-heads=4"]
        refused("offload: ranks in one tree are a conflict", 3,
                ("ranks '", "--set rank="), "describe", *said, root)
        base = os.path.join(root, st.offload_base(config))
        for r in range(2):
            runs(f"offload: the folder of rank {r}", "import", "-q", "--no-sync", *said,
                 "-o", f"{work}/{r}.h5", f"{base}_r{r}")
        run = oracle.kvtool("merge", "-q", "--no-sync", "-o", work + "/all.h5",
                            work + "/0.h5", work + "/1.h5")
        tap.ok(run.code == 0 and digest(work + "/all.h5") == WANT[DUMP.model],
               "offload: its ranks merge", run)
        oracle.kvtool("slice", "-q", "--no-sync", "--tp-size=4", "--tp-rank=3", "-o",
                      work + "/3.h5", work + "/all.h5")
        run = oracle.kvtool("relayout", "-q", "--no-sync", "--verify", "--to=hnd",
                            "--format=offload", "-o", work + "/out", work + "/3.h5")
        config["tp_size"] = 4
        tap.ok(run.code == 0 and
               np.array_equal(st.read_offload(work + "/out", config,
                                              dict(DUMP.dims, H=1), "HSKD", rank=3),
                              DUMP.cells[:, :, :, :, 3:]),
               "offload: rank 3 of 4 in another layout", run)


def offload_replicas():
    """Latent content is the same on all ranks, which then merge into it."""
    with oracle.workdir() as work:
        root = os.path.join(work, "in")
        config = st.offload_config([(16, NAMES[:3])], tp=2)
        for r in range(2):
            st.write_offload(root, config, LATENT.cells, "SD", rank=r)
            runs(f"offload: rank {r} of latent content", "import", "-q", "--no-sync",
                 "--layout=mla", "--content=144", f"--set=rank={r}", "-o",
                 f"{work}/{r}.h5", root)
        run = oracle.kvtool("merge", "-q", "--no-sync", "-o", work + "/all.h5",
                            work + "/0.h5", work + "/1.h5")
        tap.ok(run.code == 0 and digest(work + "/all.h5") == WANT[LATENT.model],
               "offload: ranks of latent content merge", run)


def offload_no_groups():
    """The tier that keeps whole blocks does not say which layers they have."""
    with oracle.workdir() as work:
        root = os.path.join(work, "in")
        config = dict(st.offload_config([(16, NAMES)], dtype="auto"), kv_cache_groups=[])
        st.write_offload(root, config, DUMP.cells, "SHKD")
        refused("offload: no groups, so layers are asked for", 3,
                "give --dtype, --layers, --block-size, --head-dim", "describe",
                "--layout=nhd", "--heads=4", root)
        round_trip("offload without groups", root, DUMP,
                   geometry(DUMP, "nhd") + ["--layers=5"], "offload", work)


def offload_groups():
    with oracle.workdir() as work:
        root, back = os.path.join(work, "in"), os.path.join(work, "back")
        config = st.offload_config([(16, NAMES[:2]), (16, NAMES[2:])])
        st.write_offload(root, config, DUMP.cells[:, :2], "SHKD")
        st.write_offload(root, config, DUMP.cells[:, 2:, :11], "SHKD", group=1)
        said = ["--layout=nhd", "--heads=4"]
        run = oracle.kvtool("convert", "-q", "--no-sync", "--format=offload", *said, root,
                            back)
        tap.ok(run.code == 0 and st.tree(back) == st.tree(root),
               "offload: two groups there and back", run)
        run = oracle.kvtool("convert", "-q", "--no-sync", *said, "--set=group=1", root,
                            work + "/one.npy")
        tap.ok(run.code == 0 and
               np.array_equal(np.load(work + "/one.npy").reshape(-1),
                              np.frombuffer(st.ordered(DUMP.cells[:, 2:, :11],
                                                       "BLSHKD"), np.uint16)),
               "offload: one group of two", run)


def offload_wrong():
    with oracle.workdir() as work:
        root = os.path.join(work, "in")
        config = st.offload_config([(16, NAMES)])
        st.write_offload(root, config, DUMP.cells, "SHKD")
        refused("offload: the sentence lists what is missing", 3,
                "give --layout, --heads, --head-dim", "describe", root)
        other = st.offload_config([(16, NAMES)], model="other/model")
        st.write_offload(root, other, DUMP.cells[:, :, :2], "SHKD")
        said = ["--layout=nhd", "--heads=4"]
        refused("offload: two caches in one root", 3, ("caches '", "--set cache="),
                "describe", *said, root)
        tap.equal(digest(*said, "--set=cache=" + st.offload_base(config), root),
                  WANT[DUMP.model], "offload: one cache of two")
        path = os.path.join(root, st.offload_base(config), "config.json")
        st.put(path, st.get(path).replace(b"16", b"32"))
        refused("offload: a config that was changed", 3, "its digest is", "describe",
                *said, os.path.dirname(path))


# ---- TensorRT-LLM, FlexKV, KVBM -------------------------------------------------

def trtllm():
    for dump in (DUMP, LATENT):
        said = [a for a in geometry(dump, "") if "layout" not in a]
        with oracle.workdir() as work:
            st.write_trtllm(work + "/in", dump.cells, range(dump.dims["B"]))
            tap.equal(digest(*said, work + "/in"), WANT[dump.model],
                      f"trtllm: {dump.model}")
    with oracle.workdir() as work:
        ids = [3, 11, 200, 7, 40]
        said = [a for a in geometry(DUMP, "") if "layout" not in a]
        st.write_trtllm(work + "/in", DUMP.cells[:, :, :5], ids)
        st.write_trtllm(work + "/in", DUMP.cells[:, :, :5], ids, pool=1)
        refused("trtllm: two pools", 3, ("pools '", "--set pool="), "describe", *said,
                work + "/in")
        run = oracle.kvtool("convert", "-q", "--no-sync", *said, "--set=pool=1",
                            work + "/in", work + "/a.npy")
        want = DUMP.cells[:, :, np.argsort(ids)]
        side = read_text(work + "/a.json")
        tap.ok(run.code == 0 and "200" in side and
               np.load(work + "/a.npy").tobytes() == st.ordered(want, "BLKHSD"),
               "trtllm: blocks by their ids", run)


FLEXKV = {"flexkv:LAYERFIRST": "LKBSHD", "flexkv:BLOCKFIRST": "BLKSHD",
          "flexkv:LAYERBLOCK": "LBKSHD"}


def flexkv():
    for layout, axes in FLEXKV.items():
        for devices, files, turn, mixed in ((1, 1, 1, False), (1, 4, 1, False),
                                            (1, 4, 1, True), (2, 3, 4, False),
                                            (3, 2, 2, True)):
            said = geometry(DUMP, layout) + [f"--layers={DUMP.dims['L']}"]
            if devices > 1:
                said.append(f"--set=round-robin={turn}")
            if files > 1:
                said.append("--set=placement=" + ("interleaved" if mixed else
                                                  "consecutive"))
            with oracle.workdir() as work:
                st.write_flexkv(work, DUMP.cells, axes, devices, files, turn, mixed)
                tap.equal(digest(*said, work), WANT[DUMP.model],
                          f"{layout}: {devices} devices, {files} files, {said[-1]}")
    with oracle.workdir() as work:
        st.write_flexkv(work, DUMP.cells, "LKBSHD", 2, 2)
        said = geometry(DUMP, "flexkv:LAYERFIRST") + ["--layers=5"]
        refused("flexkv: asks for round-robin", 3, "2 devices; give --set round-robin",
                "describe", *said, work)
        refused("flexkv: asks for the placement", 3,
                "2 files on a device; give --set placement=", "describe", *said,
                "--set=round-robin=1", work)
        os.remove(work + "/disk1/flexkv_ssdcache_12ab_1_0.bin")
        refused("flexkv: a file is missing", 3, "has 3 files of 2 devices", "describe",
                *said, "--set=round-robin=1", work)


KVBM = {"OperationalNHD": "BLKSHD", "OperationalHND": "BLKHSD", "UniversalTP": "BHLKSD",
        "Universal": "BHLKSD", "UniversalPP": "BLHKSD"}


def kvbm_case(name, dump, kind, write, *more, want=None, **descriptor):
    """write(folder, path) makes files; a folder is read if it makes one."""
    with oracle.workdir() as work:
        path, side = os.path.join(work, "tier"), os.path.join(work, "d.json")
        write(path)
        st.put(side, json.dumps(st.kvbm_descriptor(dump.dims, kind, **descriptor))
               .encode())
        args = ["--from=kvbm", f"--manifest={side}", "--dtype=bf16", *more, path]
        if want is None:
            tap.equal(digest(*args), WANT[dump.model], f"kvbm {name}")
        else:
            run = oracle.kvtool("describe", *args)
            tap.ok(complains(run, want[0], want[1:]), f"kvbm {name}", run)


def kvbm():
    def whole(axes, dump=DUMP, extra=0):
        return lambda path: st.put(path, st.ordered(dump.cells, axes) + bytes(extra))

    def apart(axes):
        def write(path):
            for l in range(DUMP.dims["L"]):
                st.put(f"{path}/layer_{l}.bin", st.ordered(DUMP.cells[:, l:l + 1], axes))
        return write

    for name, axes in KVBM.items():
        kvbm_case(name, DUMP, name, whole(axes))
    custom = {"Custom": ["Page", "Head", "Outer", "Layer"]}
    kvbm_case("custom order", DUMP, custom, whole("BSHKLD"))
    kvbm_case("latent", LATENT, "OperationalNHD", whole("BLSD", LATENT))
    kvbm_case("heads said", DUMP, "OperationalHND", whole("BLKHSD"), "--heads=4",
              heads=False)
    kvbm_case("unknown order said", DUMP, "Unknown", whole("BLKHSD"),
              "--layout=kvbm:OperationalHND")
    kvbm_case("layers apart", DUMP, ("BlockIsFirstDim", "OperationalNHD"), apart("BKSHD"))
    kvbm_case("layers apart, blocks second", DUMP,
              ("BlockIsSecondDim", "OperationalHND"), apart("KBHSD"))
    kvbm_case("aligned", DUMP, "OperationalNHD", whole("BLKSHD", extra=4096 - 491520 % 4096
                                                      if 491520 % 4096 else 32768),
              alignment=4096, size=491520 + (4096 - 491520 % 4096
                                             if 491520 % 4096 else 32768))
    kvbm_case("no heads", DUMP, "OperationalNHD", whole("BLKSHD"), heads=False,
              want=(3, "32 elements in an unknown number of heads; give --heads"))
    kvbm_case("other heads", DUMP, "OperationalNHD", whole("BLKSHD"), "--heads=8",
              want=(3, "--heads is 8, but group g0 has 4"))
    kvbm_case("heads that do not fit", DUMP, "OperationalNHD", whole("BLKSHD"),
              "--heads=5", heads=False,
              want=(3, "--heads is 5, but tokens have 32 elements"))
    kvbm_case("another order", DUMP, "OperationalNHD", whole("BLKSHD"),
              "--layout=kvbm:OperationalHND", want=(3, "--layout is"))
    kvbm_case("unknown order", DUMP, "Unknown", whole("BLKSHD"),
              want=(3, "give --layout"))
    kvbm_case("a byte more", DUMP, "OperationalNHD", whole("BLKSHD", extra=1),
              want=(3, "has 491521 bytes, expected 491520"))
    kvbm_case("another type", DUMP, "OperationalNHD", whole("BLKSHD"), itemsize=4,
              want=(3, "elements have 4 bytes, but dtype bfloat16 has 2"))


def main():
    for layout in st.HICACHE:
        hicache(layout, LATENT if layout in ("mla", "BSLC") else DUMP)
    hicache_relayout()
    hicache_ranks()
    hicache_pools()
    for layout in ORDERS:
        offload(layout, layout)
    offload("latent", "mla", LATENT)
    offload("files of 4", "nhd", per_file=4, llmd=True)
    offload("files of 7, a tail", "hnd", per_file=7)
    offload("later keys", "hnd", later=True, llmd=True)
    offload("a name beyond ASCII", "nhd", names=["layers.%d.\u00e9\u20ac" % i for i in range(5)])
    offload("longer rows", "nhd", pad=64)
    offload("longer rows of 4", "nhd", per_file=4, pad=64)
    offload_ranks()
    offload_replicas()
    offload_no_groups()
    offload_groups()
    offload_wrong()
    trtllm()
    flexkv()
    kvbm()


oracle.run(main)
