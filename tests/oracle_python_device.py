#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_python_device.py - tensors on a GPU as dumps, against numpy

The library is one whose kernels the executor runs, and the executor is its driver
(tests/gpu_executor.h); where there is a GPU, "--device=cuda" takes the library as it is
built.  Memory is made with the library's own functions, and numpy has the same array:
what the module reads of it must be that, whatever strides, layouts and pieces.
"""
import ctypes
import os
import random
import subprocess
import sys
import tempfile
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "python")]
BUILD = os.path.abspath(os.environ.get("KVT_BUILD", "build"))
REAL = [a for a in sys.argv[1:] if a.startswith("--device=")]
VENDORS = [REAL[0].split("=")[1]] if REAL else ["cuda", "hip"]

os.environ.setdefault("KVTOOL_LIBRARY", os.path.join(
    BUILD, "libkvt.so.0" if REAL else "tests/standin/libkvt.so.0"))

CASES = 300


def again():
    """This program anew, with the executor where drivers are looked for."""
    with tempfile.TemporaryDirectory() as tmp:
        for name in ("libcuda.so.1", "libamdhip64.so.7"):
            os.symlink(os.path.join(BUILD, "gpu_executor.so"), os.path.join(tmp, name))
        env = {k: v for k, v in os.environ.items() if "VISIBLE_DEVICES" not in k}
        env.update(LD_LIBRARY_PATH=tmp, KVT_DEVICE_TEST="1")
        return subprocess.run([sys.executable, "-B", __file__, *sys.argv[1:]], env=env,
                              check=False).returncode


if __name__ == "__main__" and not REAL and "KVT_DEVICE_TEST" not in os.environ:
    sys.exit(again())

import numpy as np                                          # noqa: E402
from oracle import raises, run, tap                         # noqa: E402
import kvtool as kv                                         # noqa: E402
from kvtool import _native, _tensors                        # noqa: E402

lib = _native.lib
for function, arguments in (
        ("alloc", [ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_int64]),
        ("copy_in", [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                     ctypes.c_void_p])):
    getattr(lib, f"kvt_device_{function}").argtypes = [
        *arguments, ctypes.POINTER(_native.ErrorText)]
lib.kvt_device_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
lib.kvt_device_free.restype = None


class OnDevice:
    """An array's memory on a device, with the strides that it has in numpy."""

    def __init__(self, vendor, array, stream=None):
        self.device = _tensors._device(f"{vendor}:0")
        low = array
        while low.base is not None:
            low = low.base
        self.array, size = array, low.nbytes
        self.base = _native.make("kvt_device_alloc", self.device, max(1, size))
        _native.call("kvt_device_copy_in", self.device, self.base, low.ctypes.data, size,
                     None)
        _native.call("kvt_device_wait", self.device, None)
        self.shape, self.dtype, self.kind = array.shape, array.dtype, \
            {"cuda": 2, "hip": 10}[vendor]
        at = self.base + array.ctypes.data - low.ctypes.data
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (at, True),
            "strides": array.strides, "version": 3, "stream": stream}

    def __dlpack_device__(self):
        return self.kind, 0

    def __del__(self):
        lib.kvt_device_free(self.device, self.base)


# ---- reads ------------------------------------------------------------------------------

ORDERS = ["KBSHD", "BKSHD", "BSHKD", "HBSKD", "BHSDK", "SBHKD"]


def draw(r):
    """A layer's array in some memory order, as numpy indexes it: (array, layout)."""
    n = {"K": 2, "B": r.randint(1, 9), "S": r.choice([1, 4, 16]), "H": r.randint(1, 4),
         "D": r.choice([1, 8, 24])}
    order = r.choice(ORDERS)
    whole = [n[a] + r.randint(0, 2) for a in order]
    dtype = r.choice(["u1", "<u2", "<f4"])
    memory = np.frombuffer(r.randbytes(int(np.prod(whole)) * np.dtype(dtype).itemsize),
                           dtype).copy().reshape(whole)
    cut = memory[tuple(slice(w - n[a], w) for w, a in zip(whole, order))]
    axes = list(range(5))
    r.shuffle(axes)
    return cut.transpose(axes), "".join(order[a] for a in axes), n


def random_reads(vendor, seed):
    r, wrong = random.Random(seed), []
    for case in range(CASES):
        array, layout, n = draw(r)
        others = [array] + [np.array(array[::-1]) for _ in range(r.randint(0, 2))]
        name = {"uint8": "uint8", "uint16": "uint16", "float32": "float32"}[
            array.dtype.name]
        where = [OnDevice(vendor, a) if r.random() < 0.8 else a for a in others]
        d = kv.from_tensors(where, layout=layout, dtype=name)
        layer = r.randrange(len(others))
        first = r.randrange(n["B"])
        last = r.randint(first + 1, n["B"])
        got = d.read(layer=layer, blocks=slice(first, last)).tobytes()
        want = others[layer].transpose([layout.index(a) for a in "KBSHD"])[:, first:last]
        if got != np.ascontiguousarray(want).tobytes():
            wrong.append((case, layout, array.shape, array.strides))
        d.close()
    tap.equal(wrong, [], f"{vendor}: {CASES} arrays of random strides and orders")


def pieces(vendor):
    """More than a stage holds, a block that alone is more, and all at once."""
    r = np.random.default_rng(7)
    big = r.integers(0, 255, (2, 3, 40, 16, 8, 128), np.uint16)    # 3 layers, 7.5 MiB each
    more = {"layout": "KLBSHD", "dtype": "float16", "block_table": {"a": range(40)}}
    d = kv.from_tensors(OnDevice(vendor, big), **more)
    same = kv.from_tensors(big, **more)
    tap.equal(d.digest(), same.digest(), f"{vendor}: digest of 45 MiB, all layers at once")
    tap.ok(kv.diff(d, same).same, f"{vendor}: diff against the host's array")
    block = r.integers(0, 255, (2, 2, 512, 16, 300), np.uint16)
    d = kv.from_tensors([OnDevice(vendor, block)], layout="KBSHD", dtype="float16")
    tap.equal(d.read(layer=0, blocks=slice(1, 2)).view(np.uint16).tobytes(),
              np.ascontiguousarray(block[:, 1:2]).tobytes(),
              f"{vendor}: blocks of 9.4 MiB")
    wide = r.integers(0, 255, (2, 1, 2048, 16, 300), np.uint16)
    d = kv.from_tensors([OnDevice(vendor, wide)], layout="KBSHD", dtype="float16")
    tap.equal(d.read(layer=0, blocks=slice(0, 1)).view(np.uint16).tobytes(),
              wide.tobytes(), f"{vendor}: a block of 37 MiB, more than a stage")


def packed(vendor):
    """Orders that cut axes: as the kernels pack them."""
    r = np.random.default_rng(3)
    host = r.integers(0, 255, (2, 6, 8, 16, 64), np.uint16)
    reference = kv.from_tensors([host], layout="KBHSD", dtype="float16",
                                block_table={"a": [3, 0, 5]})
    with tempfile.TemporaryDirectory() as tmp:
        for layout in ("rocm-paged", "cpu-vec", "hnd"):
            path = os.path.join(tmp, layout + ".npy")
            reference.write(path, layout=layout)
            memory = np.fromfile(path, np.uint16)[-host.size:].reshape(6, -1)
            d = kv.from_tensors([OnDevice(vendor, memory)], layout=layout,
                                dtype="float16", block_size=16, heads=8, head_dim=64,
                                block_table={"a": [3, 0, 5]})
            tap.ok(kv.diff(d, reference).same, f"{vendor}: memory of {layout}")


def derived(vendor):
    r = np.random.default_rng(5)
    layers = [r.integers(0, 255, (2, 12, 16, 4, 32), np.uint16) for _ in range(3)]
    table = {"a": [7, 2, 11], "b": [0, 5]}
    more = {"layout": "KBSHD", "dtype": "float16", "block_table": table}
    there = kv.from_tensors([OnDevice(vendor, x) for x in layers], **more)
    here = kv.from_tensors(layers, **more)
    with tempfile.TemporaryDirectory() as tmp:
        a, b = os.path.join(tmp, "a.h5"), os.path.join(tmp, "b.h5")
        there.slice(heads=slice(1, 3)).write(a, layout="hnd")
        here.slice(heads=slice(1, 3)).write(b, layout="hnd")
        tap.ok(kv.diff(a, b).same, f"{vendor}: slice and write")
        tap.equal(kv.open(a).digest(), kv.open(b).digest(), f"{vendor}: and its digest")
    tap.equal(there.read(layer=1, request="a", kv="v", tokens=slice(3, 40)).tobytes(),
              here.read(layer=1, request="a", kv="v", tokens=slice(3, 40)).tobytes(),
              f"{vendor}: tokens of a request")
    planted = [x.copy() for x in layers]
    planted[2][1, 7, 3, 2, 5] ^= 0x4000
    bad = kv.from_tensors([OnDevice(vendor, x) for x in planted], **more)
    tap.ok(not kv.diff(bad, here).same, f"{vendor}: one flipped bit is found")


# ---- whose memory it is -----------------------------------------------------------------

class FakeTorch(types.ModuleType):
    """As much of torch as is asked of a tensor on a GPU."""

    class Tensor:
        """A tensor whose memory is an OnDevice."""

        is_sparse = is_quantized = False
        layout = "torch.strided"

        def __init__(self, memory):
            self.memory, self.shape, self.dtype = memory, memory.shape, memory.dtype
            self.device = types.SimpleNamespace(type="cuda", index=0)

        def is_neg(self):
            return False

        def element_size(self):
            return self.dtype.itemsize

        def data_ptr(self):
            return self.memory.__cuda_array_interface__["data"][0]

        def stride(self):
            return tuple(s // self.dtype.itemsize for s in self.memory.array.strides)

    def __init__(self, vendor):
        super().__init__("torch")
        self.waited = 0
        self.version = types.SimpleNamespace(hip="6.0" if vendor == "hip" else None)
        self.cuda = types.SimpleNamespace(
            current_stream=lambda device: types.SimpleNamespace(synchronize=self._wait))

    def _wait(self):
        self.waited += 1


def of_torch(vendor):
    array = np.arange(2 * 4 * 16 * 2 * 8, dtype=np.float32).reshape(2, 4, 16, 2, 8)
    torch = FakeTorch(vendor)
    sys.modules["torch"] = torch
    try:
        d = kv.from_tensors({"model.layers.5.attn": FakeTorch.Tensor(
            OnDevice(vendor, array))}, layout="KBSHD")
        tap.equal((torch.waited, d.read(layer=5, blocks=2).tobytes()),
                  (1, np.ascontiguousarray(array[:, 2]).tobytes()),
                  f"{vendor}: a tensor of torch, whose stream was waited for")
        other = FakeTorch.Tensor(OnDevice(vendor, array))
        other.device.type = "xpu"
        tap.ok(raises(kv.Unsupported, lambda: kv.from_tensors([other], layout="KBSHD"),
                       ".cpu()"), f"{vendor}: one of another device is refused")
    finally:
        del sys.modules["torch"]


def streams_and_types(vendor):
    array = np.arange(2 * 4 * 16 * 2 * 8, dtype=np.float32).reshape(2, 4, 16, 2, 8)
    d = kv.from_tensors([OnDevice(vendor, array, stream=1)], layout="KBSHD")
    tap.equal(d.read(layer=0, blocks=0).tobytes(),
              np.ascontiguousarray(array[:, 0]).tobytes(), f"{vendor}: the default stream")
    swapped = OnDevice(vendor, array)
    swapped.__cuda_array_interface__["typestr"] = ">f4"
    tap.ok(raises(kv.Unsupported, lambda: kv.from_tensors([swapped], layout="KBSHD"),
                   ">f4"), f"{vendor}: another byte order is refused")
    elsewhere = OnDevice(vendor, array)
    elsewhere.kind = 4                          # OpenCL
    tap.ok(raises(kv.Unsupported, lambda: kv.from_tensors([elsewhere], layout="KBSHD"),
                   "DLPack type 4"), f"{vendor}: DLPack's other devices are refused")
    backwards = OnDevice(vendor, array[:, ::-1])
    tap.ok(raises(kv.Unsupported, lambda: kv.from_tensors([backwards], layout="KBSHD"),
                   "negative"), f"{vendor}: negative strides are refused")


def main():
    for vendor in VENDORS:
        random_reads(vendor, 11)
        pieces(vendor)
        packed(vendor)
        derived(vendor)
        of_torch(vendor)
        streams_and_types(vendor)


run(main)
