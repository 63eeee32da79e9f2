#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
damaged_archives.py - one wrong bit in an archive of numpy or torch

Members of zip archives have a CRC-32 of all of their bytes.  Whatever reads data must
hold it; flipped.py says what may come of a bit that is wrong.
"""
import io
import json
import os
import random
import struct
import warnings
import zipfile

import numpy as np
import oracle
from flipped import Victim
from oracle import (FULL, SHARE, kvtool, read_bytes, refused, sizes, tap, write_bytes,
                    write_json)

TORCH = f"{oracle.ROOT}/testdata/engines/transformers"
SHAPE = (2, 12, 16, 2, 2, 128)          # L B S H K D: ranges of 64 KiB, and a rest
rng = random.Random(10)


# ---- files ------------------------------------------------------------------

class Pipe(io.RawIOBase):
    """Cannot be gone back in: sizes and checksums follow the bytes of a member."""

    def __init__(self, path):
        self.f = open(path, "wb")

    def writable(self):
        return True

    def write(self, data):
        return self.f.write(data)

    def close(self):
        self.f.close()
        super().close()


def savez(path, arrays, streamed=False, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(Pipe(path) if streamed else path, "w", method) as z:
        for name, a in arrays.items():
            with z.open(f"{name}.npy", "w") as f:
                np.lib.format.write_array(f, a)
        if streamed:
            z.fp.flush()


def manifest(path, dtype="float16"):
    layers, blocks, slots, heads, _, dim = SHAPE
    write_json(os.path.splitext(path)[0] + ".json",
               {"file": os.path.basename(path), "layout": "nhd", "dtype": dtype,
                "sizes": sizes(L=layers, B=blocks, S=slots, H=heads, D=dim),
                "block_table": {"A": [3, 1, 4], "B": [5, 9]},
                "num_tokens": {"A": 40, "B": 32}})


class Archive(Victim):
    """Named places of a zip archive."""

    def __init__(self, name, path, tmp, commands, out="out.npy"):
        self.name = name
        sound = f"{tmp}/sound{os.path.splitext(path)[1]}"
        write_bytes(sound, read_bytes(path))
        if os.path.exists(os.path.splitext(path)[0] + ".json"):
            oracle.copy_manifest(path, sound)
        super().__init__(path, commands, f"{tmp}/{out}", sound=sound)
        tap.ok(not self.unread, f"{name}: all commands take the sound file", self.unread)

    def put(self, data):
        write_bytes(self.path, data)

    def members(self):
        """(name, first byte of the data, end of it)"""
        with zipfile.ZipFile(io.BytesIO(self.bytes)) as z:
            for m in z.infolist():
                n, extra = struct.unpack_from("<HH", self.bytes, m.header_offset + 26)
                begin = m.header_offset + 30 + n + extra
                yield m, begin, begin + m.file_size

    def bits(self):
        """Of each class of place: data, headers of arrays, of members, the directory."""
        end = 0
        for m, begin, after in self.members():
            yield "header", 8 * rng.randrange(m.header_offset, begin) + rng.randrange(8)
            if after > begin:
                data = begin + 128 if m.filename.endswith(".npy") else begin
                yield "first byte", 8 * begin + rng.randrange(8)
                yield "last byte", 8 * after - 1
                for _ in range((40 if after - begin > 1 << 16 else 4) // SHARE):
                    yield "data", 8 * rng.randrange(data, after) + rng.randrange(8)
            end = after
        for _ in range(12):
            yield "directory", 8 * rng.randrange(end, len(self.bytes)) + rng.randrange(8)

    def flip_all(self):
        self.flip(self.name, self.bits(), (0, 1, 3, 4),
                  lambda where, commands: commands if FULL or where == "data" else
                  rng.sample(commands, 3))


# ---- what stays cheap, and what is told ---------------------------------------

def bad_data(victim, name):
    """The file with one bit of the last byte of that member wrong."""
    after = next(a for m, _, a in victim.members() if m.filename.endswith(name))
    data = bytearray(victim.bytes)
    data[after - 1] ^= 16
    victim.put(data)


def told(victim, names):
    """All damaged members, those that the cache has no data in, too."""
    data = bytearray(victim.bytes)
    for m, _, after in victim.members():
        if m.filename.endswith(names):
            data[after - 1] ^= 16
    victim.put(data)
    r = kvtool("fsck", "--json", victim.path)
    found = [f["problem"] for f in r.json["files"][0]["findings"]
             if f["name"] == "tile.damaged"]
    tap.ok(r.code == 1 and len(found) == len(names) and
           all(any(n in f and "CRC-32" in f for f in found) for n in names),
           f"{victim.name}: fsck names all damaged members", r)
    victim.put(victim.bytes)


def untouched(tmp):
    """A member that is not read is not checked, but by fsck; describe reads no data."""
    path = f"{tmp}/two.npz"
    savez(path, {f"layers.{l}": np.full(SHAPE[1:], l + 1, "f2") for l in range(2)})
    manifest(path)
    v = Archive("two layers", path, tmp, ["digest -q {path}"])
    bad_data(v, "layers.1.npy")
    for args, code in ((("describe",), 0), (("fsck", "--fast"), 0), (("digest",), 3),
                       (("slice", "-f", "--layers=0", "-o", f"{tmp}/one.npy"), 0),
                       (("slice", "-f", "--layers=1", "-o", f"{tmp}/one.npy"), 3),
                       (("fsck",), 1)):
        r = kvtool(*args, path)
        tap.ok(r.code == code and ("layers.1.npy is" in r.out + r.err) == (code > 0),
               f"layer 1 damaged: {args[0]} {' '.join(args[1:2])}: {code}", r)
    r = kvtool("describe", "--json", path)
    tap.equal(r.json["groups"][0]["checksum"], "crc32", "checksum is crc32")
    for args, looked in ((), True), (("--fast",), False):
        sound = f"{TORCH}/4.57.6/dynamic.pt"
        a, b = kvtool("fsck", *args, sound), kvtool("fsck", "--json", *args, sound)
        tap.ok(("checksums of all members" in a.out) == looked and
               json.loads(b.out)["files"][0]["looked_at"]["member_checksums"] == looked,
               f"fsck {' '.join(args)}says whether it looked at members", a)


def no_checksums(tmp):
    """torch.serialization.set_crc32_options(False): 0 stands for none."""
    path = f"{tmp}/none.pt"
    data = bytearray(read_bytes(f"{TORCH}/4.57.6/dynamic.pt"))
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        for m in z.infolist():
            struct.pack_into("<I", data, m.header_offset + 14, 0)
            n, extra = struct.unpack_from("<HH", data, m.header_offset + 26)
            after = m.header_offset + 30 + n + extra + m.file_size
            if data[after:after + 4] == b"PK\7\x08":
                struct.pack_into("<I", data, after + 4, 0)
        at = z.start_dir
        for m in z.infolist():
            struct.pack_into("<I", data, at + 16, 0)
            at += 46 + sum(struct.unpack_from("<HHH", data, at + 28))
    write_bytes(path, data)
    a, b = kvtool("digest", path), kvtool("digest", f"{TORCH}/4.57.6/dynamic.pt")
    tap.ok(a.code == 0 and a.out.split()[0] == b.out.split()[0],
           "an archive without checksums is read", a)
    r = kvtool("describe", "--json", path)
    tap.equal(r.json["groups"][0]["checksum"], None, "it says so")


# ---- all --------------------------------------------------------------------

COMMON = ["digest -q {path}", "diff -q {sound} {path}", "convert -q -f {path} {out}",
          "fsck -q {path}", "describe --verify {path}", "describe --stats {path}"]
BLOCKS = ["relayout -q -f --verify --to=hnd {path} {out}",
          "slice -q -f --layers=1 {path} {out}", "slice -q -f --request=A {path} {out}",
          "reblock -q -f --block-size=8 {path} {out}",
          "describe --peek=layer=1,request=A,token=33 {path}"]


def main(tmp):
    warnings.simplefilter("ignore")
    whole = np.random.default_rng(3).standard_normal(SHAPE).astype("f2")
    for name, streamed in (("stored", False), ("streamed", True)):
        path = f"{tmp}/{name}.npz"
        savez(path, {"kv": whole}, streamed)
        manifest(path)
        Archive(f"npz, {name}", path, tmp, COMMON + BLOCKS).flip_all()
        os.remove(f"{tmp}/sound.json")
    path = f"{tmp}/deflated.npz"
    savez(path, {"kv": whole}, method=zipfile.ZIP_DEFLATED)
    manifest(path)
    refused("deflated members are refused", 4, "savez()", "digest", path)
    for name in ("4.57.6/dynamic", "5.23.0/dynamic", "4.57.6/window_dynamic"):
        path = f"{tmp}/torch.pt"
        write_bytes(path, read_bytes(f"{TORCH}/{name}.pt"))
        v = Archive(f"torch, {name}", path, tmp, COMMON, "out.h5")
        v.flip_all()
        told(v, ("/data/0", "/data/3", "/version"))
    untouched(tmp)
    no_checksums(tmp)


oracle.run(main)
