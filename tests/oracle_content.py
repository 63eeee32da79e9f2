#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_content.py - packed contents: moved exactly, never torn

Rows and pages come from content_model.py, which writes and reads each type by
itself; where they lie in a layout says oracle.py.
"""
import os
import random

import h5py
import numpy as np

import content_model as model
from oracle import (LATENT, ONE_PLANE, SEPARATE, TWO_PLANES, array_bytes, kvtool, legal,
                    manifest_of, place, refused, run, runs, safetensors_tensors, tap,
                    unprove, write_json)


class Packed:
    """A dump with a manifest, in any layout."""

    def __init__(self, content, cells, values, **said):
        self.content, self.cells, self.values, self.said = content, cells, values, said
        self.K, self.L, self.B, self.S, self.H, self.D = cells.shape
        self.dims = dict(zip("KLBSHD", cells.shape))

    def write(self, path, layout, cells=None):
        cells = self.cells if cells is None else cells
        K, L, B, S, H, D = cells.shape
        np.save(path, np.frombuffer(place(cells, layout, 1), np.uint8))
        side = {"file": os.path.basename(path), "layout": layout,
                **({"content_type": self.content} if self.content else {}),
                "tokens_per_slot": 1,
                "sizes": {"layers": L, "num_blocks": B, "block_size": S,
                          "num_kv_heads": H, "head_dim" if K == 2 else "content": D},
                **self.said}
        write_json(path[:-4] + ".json", side)
        return path


def attention(content, rng, D=24, S=16, L=2, B=4, H=4, **said):
    kind = "int8" if content.startswith("int8") else content.split("/")[1]
    return Packed(content, *model.per_token_head(rng, L, B, S, H, D, kind), **said)


def said_of(path):
    r = kvtool("describe", "--json", path)
    return r.json["groups"][0] if r.code == 0 else {"content_type": r}


def data_of(path):
    """All tensors of a file, in its order; of planes the keys come first."""
    if path.endswith(".npy"):
        return array_bytes(path)
    return b"".join(t[2] for _, t in sorted(safetensors_tensors(path).items()))


def moved(name, r, out, want, content):
    if tap.ok(r.code == 0, f"{name}: exit 0", r):
        tap.ok(data_of(out) == want, f"{name}: every byte in its place")
        tap.equal(said_of(out)["content_type"], content, f"{name}: and it is {content}")


# ---- layouts ----------------------------------------------------------------

def check_relayout(d, layouts, rng, tmp):
    """Into each layout from any other; all have one digest."""
    digests = set()
    for layout in layouts:
        start = rng.choice([n for n in layouts if n not in SEPARATE])
        path = d.write(f"{tmp}/from.npy", start)
        apart = layout in SEPARATE
        out = f"{tmp}/to.{'safetensors' if apart else 'npy'}"
        r = kvtool("relayout", "-f", "-q", "--verify", "--to", layout, "-o", out, path)
        name = f"{d.content}: {start} to {layout}"
        moved(name, r, out, place(d.cells, layout, 1), d.content)
        digests.add(kvtool("digest", "--scope=blocks", out).out.split()[0])
    tap.equal(len(digests), 1, f"{d.content}: one digest in {len(layouts)} layouts")


def check_torn(d, tmp):
    """Layouts that put something inside a row, or cut it."""
    path = d.write(f"{tmp}/torn.npy", "nhd")
    for layout in TWO_PLANES:
        if not legal(layout, d.dims, 1):
            continue
        refused(f"{d.content}: {layout} is refused", 4, "does not keep the rows",
                "relayout", "-f", "--to", layout, "-o", f"{tmp}/x.npy", path)
        d.write(f"{tmp}/claims.npy", layout)
        refused(f"{d.content}: a dump that claims {layout} is refused", 3,
                "does not keep the rows", "describe", f"{tmp}/claims.npy")


# ---- parts ------------------------------------------------------------------

def check_parts(d, tmp):
    path = d.write(f"{tmp}/whole.npy", "nhd")
    out = f"{tmp}/part.npy"
    r = kvtool("slice", "-f", "--heads=1:3", "--blocks=1:4", "-o", out, path)
    moved(f"{d.content}: heads and blocks", r, out,
          place(d.cells[:, :, 1:4, :, 1:3], "nhd", 1), d.content)
    r = kvtool("slice", "-f", "--component=v", "-o", out, path)
    moved(f"{d.content}: values alone", r, out,
          d.cells[1].transpose(0, 1, 2, 3, 4).tobytes(), d.content)
    r = kvtool("reblock", "-f", "--verify", "--block-size=32", "-o", out, path)
    wide = d.cells.reshape(d.K, d.L, d.B // 2, 32, d.H, d.D)
    moved(f"{d.content}: blocks of 32", r, out, place(wide, "nhd", 1), d.content)
    ranks = []
    for rank in range(2):
        ranks.append(f"{tmp}/rank{rank}.safetensors")
        runs(f"{d.content}: rank {rank} of 2", "slice", "-f", "--tp-size=2",
             f"--tp-rank={rank}", "-o", ranks[-1], path)
    r = kvtool("merge", "-f", "--verify", "-o", out, *ranks)
    moved(f"{d.content}: ranks joined", r, out, place(d.cells, "nhd", 1), d.content)
    other = Packed("int4-per-token-head", d.cells, None, **d.said)
    kvtool("slice", "-f", "--tp-size=2", "--tp-rank=1", "-o", ranks[1],
           other.write(f"{tmp}/other.npy", "nhd"))
    r = kvtool("merge", "-f", "-o", out, *ranks)
    tap.ok(r.code == 3 and "element type" in r.err, f"{d.content}: or are no ranks", r)


def check_formats(d, layout, tmp):
    path = d.write(f"{tmp}/origin.npy", layout)
    runs(f"{d.content}: into a snapshot", "convert", "-f", "--verify", path,
         f"{tmp}/a.h5")
    runs(f"{d.content}: into safetensors", "convert", "-f", "--verify", f"{tmp}/a.h5",
         f"{tmp}/b.safetensors")
    r = kvtool("convert", "-f", "--verify", f"{tmp}/b.safetensors", f"{tmp}/c.npy")
    moved(f"{d.content}: and back", r, f"{tmp}/c.npy", array_bytes(path), d.content)
    for name in ("a.h5", "b.safetensors"):
        tap.equal(said_of(f"{tmp}/{name}")["content_type"], d.content,
                  f"{d.content}: {name} says so")


# ---- pages of planes --------------------------------------------------------

def check_page(d, tokens, rows, row, tmp):
    """As engines have it, an array of rows; as one page; never cut."""
    name = d.content
    array = d.cells.reshape(d.L, d.B, rows, row)
    np.save(f"{tmp}/rows.npy", array)
    hints = ("--layout=mla", f"--content-type={name}", f"--block-size={tokens}")
    runs(f"{name}: rows become a page", "convert", "-f", "--verify", *hints,
         f"{tmp}/rows.npy", f"{tmp}/page.h5")
    said = said_of(f"{tmp}/page.h5")
    tap.equal((said["slots"], said["tokens_per_slot"], said["dim"], said["rows"]),
              (1, tokens, rows * row, rows), f"{name}: of one slot")
    r = kvtool("relayout", "-f", "--to=mla-cross", "-o", f"{tmp}/c.npy", f"{tmp}/page.h5")
    moved(f"{name}: mla-cross", r, f"{tmp}/c.npy",
          np.ascontiguousarray(array.transpose(1, 0, 2, 3)).tobytes(), name)
    r = kvtool("slice", "-f", "--blocks=1:3", "-o", f"{tmp}/c.npy", f"{tmp}/page.h5")
    moved(f"{name}: some blocks", r, f"{tmp}/c.npy", array[:, 1:3].tobytes(), name)
    # pages of a kernel of which none can have more rows may share a block
    for size in (tokens // 2, *((tokens * 2,) if rows < 64 else ())):
        r = kvtool("reblock", "-f", f"--block-size={size}", "-o", f"{tmp}/x.npy",
                   f"{tmp}/page.h5")
        tap.ok(r.code == 4 and "cannot be divided" in r.err,
               f"{name}: blocks of {size} are refused", r)
    refused(f"{name}: slots outside blocks", 4, "one run of bytes", "convert", "-f",
            "--layout=LSBC", *hints[1:], f"--blocks={d.B}", f"--layers={d.L}",
            "--from=raw", "--skip=128", f"{tmp}/rows.npy", f"{tmp}/x.h5")


# ---- planes as groups of a page ---------------------------------------------

def plane(name, part, dtype, width, at, page, sizes, layout):
    return {"id": name, "kind": "full_attention", "dtype": dtype, "layout": layout,
            "sizes": {**sizes, "content": width}, "page_bytes": page,
            "page_offset": at, "content": [[part, width]]}


def swizzled(scales):
    """The order of tensor cores: [S/4][E][S%4]."""
    L, B, H, S, E = scales.shape
    return scales.reshape(L, B, H, S // 4, 4, E).transpose(0, 1, 2, 3, 5, 4)


def check_nvfp4(rng, tmp):
    """Data and scales of keys, then of values, whose scales are swizzled."""
    L, B, S, H, D = 2, 4, 16, 2, 64
    E, widths = D // 16, (D // 2, D // 16, D // 2, D // 16)
    planes = [rng.integers(0, 256, (L, B, H, S, w), dtype=np.uint8) for w in widths]
    ends = np.cumsum([H * S * w for w in widths])
    page = int(ends[-1])
    stored = planes[:3] + [swizzled(planes[3])]
    np.save(f"{tmp}/nv.npy", np.concatenate([p.reshape(L, B, -1) for p in stored], -1))
    sizes = {"layers": L, "num_blocks": B, "block_size": S, "num_kv_heads": H}
    names = (("k-data", "k", "uint8"), ("k-scales", "k", "float8_e4m3fn"),
             ("v-data", "v", "uint8"), ("v-scales", "v", "float8_e4m3fn"))
    groups = [plane(*n, w, int(e) - H * S * w, page, sizes, "hnd")
              for n, w, e in zip(names, widths, ends)]
    groups[3]["layout"] = "L B H S/4 D S%4"
    write_json(f"{tmp}/nv.json", {"groups": groups})

    def holds(name, r, path, want):
        if tap.ok(r.code == 0, f"nvfp4: {name}", r):
            got = safetensors_tensors(path)
            tap.ok(all(got[n[0]][2] == w.tobytes() for n, w in zip(names, want)),
                   f"nvfp4: {name}: every plane")

    out = f"{tmp}/nv.safetensors"
    r = kvtool("relayout", "-f", "--verify", "--to=hnd", "-o", out, f"{tmp}/nv.npy")
    holds("scales in order", r, out, planes)
    r = kvtool("slice", "-f", "--tp-size=2", "--tp-rank=1", "-o", out, f"{tmp}/nv.npy")
    holds("a head", r, out, [np.ascontiguousarray(p[:, :, 1:]) for p in stored])
    r = kvtool("reblock", "-f", "--verify", "--block-size=32", "-o", out, f"{tmp}/nv.npy")
    wide = [p.reshape(L, B // 2, 2, H, S, -1).transpose(0, 1, 3, 2, 4, 5)
            .reshape(L, B // 2, H, 2 * S, -1) for p in planes]
    holds("blocks of 32", r, out, wide[:3] + [swizzled(wide[3])])


# ---- refusals ---------------------------------------------------------------

def check_refusals(d, tmp):
    path = d.write(f"{tmp}/good.npy", "mla")
    side = manifest_of(path)

    def refused(code, says, name, **other):
        write_json(f"{tmp}/good.json", {**side, **other})
        r = kvtool("describe", path)
        tap.ok(r.code == code and says in r.err, f"refused: {name}", r)
        return kvtool("fsck", path)

    refused(4, "unknown content_type 'fp7'", "an unknown name", content_type="fp7")
    for word in ("fp8_ds_mla", "nvfp4_ds_mla"):
        refused(3, "means several contents", word, content_type=word)
    for size in ("528", "288", "352", "656", "584", "132"):
        refused(3, "no name of a content", f"{size} bytes", content_type=size)
    for size in ("368", "432", "304", "416", "b12x"):
        refused(4, "is not read: only", f"what a fork has: {size}", content_type=size)
    r = refused(3, "expected uint8 for fp8-ds-mla", "another type", dtype="float8_e4m3fn")
    tap.ok(r.code == 1 and "error: content.type" in r.out, "fsck names it", r)
    refused(3, "content_type", "no string", content_type=7)
    sizes = dict(side["sizes"])
    sizes.update(content=328, num_blocks=2 * d.B)
    r = refused(3, "expected 656 each", "half rows", sizes=sizes)
    tap.ok(r.code == 1 and "error: content.row" in r.out, "fsck names it", r)
    sizes.update(content=656, num_blocks=d.B)
    r = refused(3, "does not keep the rows", "torn rows", sizes=sizes, layout="LBDS")
    tap.ok(r.code == 1 and "error: content.torn" in r.out, "fsck names it", r)
    sizes.update(content=656, num_blocks=d.B // 2, num_kv_heads=2)
    refused(3, "has no heads", "two heads", sizes=sizes, layout="nhd")
    write_json(f"{tmp}/good.json", side)
    r = kvtool("describe", "--content-type=indexer", path)
    tap.ok(r.code == 3 and "--content-type is indexer, but group g0 has fp8-ds-mla" in r.err,
           "refused: another than it says", r)
    r = kvtool("describe", "--content-type=fp9", path)
    tap.ok(r.code == 2 and "help contents" in r.err, "refused: no such name", r)
    rng = np.random.default_rng(5)
    a = Packed("mla-per-token-head", *model.opaque(rng, 1, d.L, d.B, d.S, 1, 656),
               kind="mla")
    a.write(f"{tmp}/other.npy", "mla")
    r = kvtool("copy-blocks", "--blocks=0:0", "-f", "-o", f"{tmp}/x.npy",
               f"{tmp}/other.npy", path)
    tap.ok(r.code == 3 and "mla-per-token-head" in r.err,
           "refused: blocks of another content", r)


def check_meaning(d, tmp):
    """What other commands make of it."""
    path = d.write(f"{tmp}/rows.npy", "mla")
    header = os.path.getsize(path) - d.cells.size
    for byte, says in ((0, "nope 0 (float8_e4m3fn, byte 0)"),
                       (519, "scales 1 (float32, byte 3)"),
                       (655, "rope 63 (bfloat16, byte 1)")):
        runs(f"byte {byte} of a row is {says}", "where",
             f"--offset={header + 5 * 656 + byte}", path, says=says)
    r = kvtool("expect", "write", path)
    tap.ok("content_type = fp8-ds-mla\n" in r.out and
           "backend = FLASHINFER_MLA_SPARSE_SM120 | FLASHMLA_SPARSE\n" in r.out,
           "a contract names it, and who writes it", r)
    r = kvtool("describe", "--expect", "content_type=indexer", path)
    tap.ok(r.code == 1, "an expectation that does not hold", r)
    r = kvtool("describe", "--dtype=fp8-ds-mla", path)
    tap.ok(r.code == 2 and "--content-type=fp8-ds-mla" in r.err, "it is no dtype", r)
    refused("nor is a word for several", 2, "give one of fp8-ds-mla, glm53-nope-656",
            "describe", "--dtype=fp8_ds_mla", path)
    side = manifest_of(path)
    write_json(f"{tmp}/rows.json",
               {**side, "block_table": {"A": [1, 0]}, "num_tokens": {"A": 100}})
    refused("a transfer tears nothing", 4, "does not keep the rows", "transfer-sim",
            "exec", "-f", "--dst=tp=1,layout=L B H D/x S x", "-o", f"{tmp}/x.h5", path)
    r = kvtool("transfer-sim", "exec", "-f", "--dst=tp=1,layout=mla-cross", "-o",
               f"{tmp}/x.h5", path)
    tap.ok(r.code == 0 and said_of(f"{tmp}/x.h5")["content_type"] == d.content,
           "a transfer keeps the content", r)


def check_snapshot(d, tmp):
    """The attribute, as another program may write it."""
    path, said = d.write(f"{tmp}/said.npy", "mla"), f"{tmp}/said.h5"

    def with_attribute(value):
        kvtool("convert", "-f", path, said)
        with h5py.File(said, "a") as f:
            unprove(f)
            group = f["groups/g0"]
            tap.ok(group.attrs["content_type"] == d.content.encode(),
                   "the attribute is there")
            del group.attrs["content_type"]
            if value is not None:
                group.attrs["content_type"] = value
        return kvtool("describe", said)

    r = with_attribute(np.bytes_("FP8-DS-MLA"))
    tap.ok(r.code == 0 and "mla, fp8-ds-mla\n" in r.out, "in capitals", r)
    r = with_attribute(np.bytes_("fp8_ds_mla"))
    tap.ok(r.code == 3 and "means several contents" in r.err, "a word for several", r)
    r = with_attribute(np.bytes_("V32"))
    tap.ok(r.code == 0 and "mla, fp8-ds-mla\n" in r.out, "a word of an engine", r)
    r = with_attribute(np.bytes_("fp7"))
    tap.ok(r.code == 4 and "content_type 'fp7' is not known" in r.err, "unknown", r)
    r = with_attribute(3)
    tap.ok(r.code == 3 and "content_type" in r.err, "no text", r)
    r = with_attribute(np.bytes_("indexer"))
    tap.ok(r.code == 3 and "one page of planes" in r.err, "rows that are no page", r)
    r = with_attribute(None)
    tap.ok(r.code == 0 and "mla, uint8\n" in r.out, "bytes of which nobody says more", r)
    runs("but the user", "describe", "--content-type=fp8-ds-mla/e4m3fnuz", said,
         says="mla, fp8-ds-mla/e4m3fnuz\n")


def main(tmp):
    rng, draw = np.random.default_rng(20), random.Random(20)
    ds = Packed("fp8-ds-mla", *model.ds_mla(rng, 2, 4, 64, "e4m3fn"), kind="mla")
    int8 = attention("int8-per-token-head", rng)
    check_relayout(int8, [*ONE_PLANE, *SEPARATE], draw, tmp)
    check_relayout(ds, list(LATENT), draw, tmp)
    check_torn(attention("int8-per-token-head", rng, D=28, S=32), tmp)
    check_parts(int8, tmp)
    check_parts(attention("fp8-per-token-head/e5m2", rng, D=8), tmp)
    check_formats(int8, "hnd", tmp)
    check_formats(ds, "mla", tmp)
    for name, D in (("turboquant-4bit-nc", 134), ("turboquant-k8v4", 196)):
        row = Packed(name, *model.opaque(rng, 1, 2, 4, 16, 4, D), kind="full_attention")
        check_formats(row, "nhd", tmp)
    for name, tokens, rows in (("indexer", 64, 64), ("dsv4-indexer/e4m3fn", 64, 16)):
        p = Packed(name, *model.indexer(rng, 2, 4, rows, "e4m3fn"))
        check_page(p, tokens, rows, 132, tmp)
    p = Packed("dsv4-c4a/e4m3fnuz", *model.dsv4(rng, 2, 4, 16, "e4m3fnuz"))
    check_page(p, 64, 16, 584, tmp)
    p = Packed("nvfp4", *model.opaque(rng, 1, 2, 4, 1, 1, 16 * 144))
    check_page(p, 16, 16, 144, tmp)
    check_nvfp4(rng, tmp)
    check_refusals(ds, tmp)
    check_meaning(ds, tmp)
    check_snapshot(ds, tmp)


if __name__ == "__main__":
    run(main)
