# SPDX-License-Identifier: Apache-2.0
"""
leaks.py FOLDER N [lose] - opens good and bad files, and uses what opens, N times in all;
"lose" forgets what one of them gave

Run by scripts/valgrind.sh, which looks for memory that libkvt lost.
"""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                "python"))
import kvtool

DATA = "testdata/kv/s260k/paged_bs16/"
GOOD = [DATA + n for n in ("packed_nhd.fp16.npy", "rocm_x.bf16.npy", "packed_hnd.bf16.npy")]


def bad_files(folder):
    """Cut, empty and foreign files, and one whose manifest is no JSON."""
    out = []
    with open(GOOD[0], "rb") as f:
        whole = f.read()
    for name, data, manifest in [("cut.npy", whole[:1000], None), ("empty.npy", b"", None),
                                 ("zero.h5", b"\x89HDF\r\n\x1a\n" + bytes(200), None),
                                 ("text.pt", b"PK\x03\x04 no zip", None),
                                 ("json.npy", whole, b"{\"layout\": ["),
                                 ("long.safetensors", b"\xff" * 64, None)]:
        path = os.path.join(folder, name)
        with open(path, "wb") as f:
            f.write(data)
        if manifest:
            with open(path[:-4] + ".json", "wb") as f:
                f.write(manifest)
        out.append(path)
    return out + [os.path.join(folder, "none.npy")]


def use(d, i, folder):
    """Something of each kind, in turns."""
    request = next(iter(d.requests))
    d.read(layer=1, request=request, bits=True)
    if i % 50 == 0:
        part = d.slice(layers=(0, 2))
        part.reblock(32).read(layer=1, request=request, bits=True)
        part.write(os.path.join(folder, "out.h5"), overwrite=True, sync=False)
        d.digest()
        d.fsck()
        kvtool.diff(d, part, common=True)
    if i % 7 == 0:
        cells = np.zeros((2, 3, 4, 2, 8), np.float16)
        kvtool.from_tensors([cells], layout="KBSHD", block_table={"r": [1]}).digest()
    try:
        d.read(layer=99, request=request)
    except kvtool.Error:
        pass


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    files = GOOD + bad_files(folder)
    opened = refused = 0
    for i in range(count):
        try:
            with kvtool.open(files[i % len(files)]) as d:
                use(d, i, folder)
                opened += 1
        except kvtool.Error:
            refused += 1
    if sys.argv[3:] == ["lose"]:
        with kvtool.open(GOOD[0]) as d, d._handle as handle:
            kvtool._native.lib.kvt_snapshot_json(
                kvtool._native.lib.kvt_dump_snapshot(handle))
    print(f"{opened} opened, {refused} refused")


main()
