#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
damaged_repacked.py - snapshots whose data another program has stored again

Repacking may leave out the filters that have checksums, or make one run of the chunks.
Such data is read if it is what content_digest says, and with one bit flipped anywhere no
command ends with status 0 and something else.  Without a digest it is refused.
"""
import random
import sys

import oracle
from flipped import Victim
from oracle import FULL, kvtool, tap

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(f"1..0 # SKIP python3-{missing.name} is not installed")
    sys.exit(0)

rng = random.Random(66)
DATA = b"data"


def repack(path, plain, chunk=None, shuffle=False, fletcher=False):
    """The data of another file, which has it as it is, with other storage."""
    with h5py.File(plain, "r") as f, h5py.File(path, "r+") as g:
        old, to = f["groups/g0/data"].id, g["groups/g0"]
        axes = to["data"].attrs["axes"]
        bits = np.empty(old.shape, "u2")
        old.read(h5py.h5s.ALL, h5py.h5s.ALL, bits, mtype=old.get_type())
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if chunk:
            dcpl.set_chunk(chunk(old.shape))
        if shuffle:
            dcpl.set_shuffle()
        if fletcher:
            dcpl.set_fletcher32()
        del to["data"]
        space = h5py.h5s.create_simple(old.shape, (
            *old.shape[:1], h5py.h5s.UNLIMITED, *old.shape[2:]) if chunk else old.shape)
        new = h5py.h5d.create(to.id, DATA, old.get_type(), space, dcpl)
        new.write(h5py.h5s.ALL, h5py.h5s.ALL, bits, mtype=old.get_type())
        h5py.Dataset(new).attrs.create("axes", axes)


def blocks(shape):
    return (1, 7, *shape[2:])


def heads(shape):
    return (1, 4, shape[2], 1, 1, shape[5]) if len(shape) == 6 else (1, 4, *shape[2:])


def halves(shape):
    return (1, 1, shape[2] // 2, *shape[3:])


KINDS = {
    "chunks as they are": {"chunk": blocks},
    "chunks of a head": {"chunk": heads},
    "shuffled chunks": {"chunk": blocks, "shuffle": True},
    "one run": {},
}
COMMANDS = ["digest -q {path}", "diff -q {sound} {path}", "convert -q -f {path} {out}",
            "convert -q -f --uncompressed {path} {out}", "fsck -q {path}",
            "describe --verify {path}", "describe --stats {path}",
            "relayout -q -f --verify --to=hnd {path} {out}",
            "slice -q -f --layers=1 {path} {out}", "slice -q -f --request={id} {path} {out}",
            "slice -q -f --tp=2 --tp-rank=1 {path} {out}",
            "reblock -q -f --block-size=8 {path} {out}",
            "describe --peek=layer=1,request={id},token=3 {path}"]


class Snapshot(Victim):
    """One whose data lies in some extents, among which bits are drawn."""

    def __init__(self, tmp, path, sound):
        told = kvtool("describe", "--json", path).json
        super().__init__(path, COMMANDS, f"{tmp}/out.h5", sound=sound,
                         id=told["requests"][0]["id"])

    def extents(self):
        with h5py.File(self.path, "r") as f:
            d = f["groups/g0/data"].id
            if d.get_offset() is not None:
                return [(d.get_offset(), d.get_offset() + d.get_storage_size())]
            return [(c.byte_offset, c.byte_offset + c.size)
                    for c in map(d.get_chunk_info, range(d.get_num_chunks()))]

    def flip_some(self, name, n):
        tap.ok(not self.unread, f"{name}: read as it is", self.unread)
        ends = [rng.choice(self.extents()) for _ in range(n)]
        self.flip(name, [("data", 8 * rng.randrange(*e) + rng.randrange(8)) for e in ends],
                  (0, 1, 3))


def refused(path, name, status):
    r, d = kvtool("digest", "-q", path), kvtool("describe", path)
    tap.ok(r.code == status and d.code == 0 and
           (not status or "its data has no checksum" in r.err and len(r.err) < 500),
           f"{name}: {status}", r)


def main(tmp):
    source = f"{oracle.DATA}/s260k/paged_bs16/packed_nhd.bf16.npy"
    plain, path = f"{tmp}/plain.h5", f"{tmp}/packed.h5"
    kvtool("convert", "-q", "--uncompressed", source, plain)

    def make(*options, **storage):
        kvtool("convert", "-q", "-f", *options, source, path)
        repack(path, plain, **storage)
    for name, storage in KINDS.items():
        make(**storage)
        Snapshot(tmp, path, plain).flip_some(name, 60 if FULL else 6)
        with h5py.File(path, "r+") as f:
            oracle.unprove(f)
            del f["groups/g0/content_digest"].attrs["checksum"]
        Snapshot(tmp, path, plain).flip_some(f"{name}, of version 1.0", 20 if FULL else 2)
        make("--no-digest", **storage)
        refused(path, f"{name}, no digest", 4)
        with h5py.File(path, "r+") as f:
            oracle.unprove(f)
        refused(path, f"{name}, of version 1.0, no digest",
                4 if "chunk" in storage else 0)
    make(chunk=halves)
    refused(path, "chunks of half a block", 4)
    make("--no-digest", chunk=halves, fletcher=True)
    refused(path, "chunks of half a block, with Fletcher-32", 0)


oracle.run(main)
