# SPDX-License-Identifier: Apache-2.0
"""
foreign_files.py - files of other programs, byte by byte

Written from the descriptions of the formats; no library that reads or writes
them is used, and nothing of kvtool.
"""
import struct
import zlib

import numpy as np

from plain_files import headed


# ---- zip, npy, npz ----------------------------------------------------------

def zip_bytes(members, late=False, align=0):
    """
    Stored members {name: bytes}.  late: sizes follow the bytes, as torch has
    them; align: the bytes of each begin at a multiple of it, through padding.
    """
    out, directory = bytearray(), bytearray()
    flags = 8 if late else 0
    for name, data in members.items():
        n, at, crc = name.encode(), len(out), zlib.crc32(data)
        pad = b""
        if align:
            room = -(at + 30 + len(n) + 4) % align
            pad = b"FB" + struct.pack("<H", room) + b"Z" * room
        sizes = (0, 0, 0) if late else (crc, len(data), len(data))
        out += struct.pack("<IHHHHHIIIHH", 0x04034b50, 0, flags, 0, 0, 0,
                           *sizes, len(n), len(pad)) + n + pad + data
        if late:
            out += struct.pack("<IIII", 0x08074b50, crc, len(data), len(data))
        directory += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 0, 0, flags,
                                 0, 0, 0, crc, len(data), len(data), len(n), 0,
                                 0, 0, 0, 0, at) + n
    end = struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, len(members), len(members),
                      len(directory), len(out), 0)
    return bytes(out + directory + end)


def npy_bytes(a):
    text = f"{{'descr': '{a.dtype.str}', 'fortran_order': False, 'shape': {a.shape}}}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() +
            np.ascontiguousarray(a).tobytes())


def npz_bytes(arrays):
    return zip_bytes({f"{n}.npy": npy_bytes(a) for n, a in arrays.items()})


# ---- torch.save() -----------------------------------------------------------

class Tensor:
    """Elements of a storage: name of its class, array, axes in memory order; or of bytes
    that a type of torch is named for."""

    def __init__(self, storage, bits, permute=None, dtype=None):
        self.storage, self.dtype = storage, dtype
        self.bits = np.ascontiguousarray(bits)
        view = self.bits.transpose(permute) if permute else self.bits
        self.shape = view.shape
        self.stride = [s // bits.itemsize for s in view.strides]


class Parameter:
    """A tensor that a module would learn."""

    def __init__(self, tensor):
        self.tensor = tensor


class Object:
    """Of a class of transformers.cache_utils, or of the module given."""

    def __init__(self, name, attributes, module="transformers.cache_utils"):
        self.name, self.attributes, self.module = name, attributes, module


class Name:
    """A class or a type by itself: "torch.bfloat16"."""

    def __init__(self, name):
        self.module, _, self.name = name.rpartition(".")


class Wrapper:
    """A tensor without elements, of a class of a quantiser."""

    def __init__(self, name, dtype, shape, attributes):
        self.cls, self.dtype = Name(name), Name(f"torch.{dtype}")
        self.shape, self.attributes = shape, attributes


class Pickler:
    def __init__(self):
        self.storages = {}

    def number(self, n):
        if 0 <= n < 256:
            return b"K" + struct.pack("<B", n)
        if n >= 1 << 31:
            return b"\x8a\x08" + struct.pack("<q", n)
        return b"J" + struct.pack("<i", n)

    def text(self, s):
        return b"X" + struct.pack("<I", len(s)) + s.encode()

    def tuple(self, parts):
        return b"(" + b"".join(parts) + b"t"

    def tensor(self, t):
        key = str(len(self.storages))
        self.storages[key] = t.bits.tobytes()
        of = f"torch\n{t.storage}" if t.storage else "torch.storage\nUntypedStorage"
        storage = self.tuple([
            self.text("storage"), f"c{of}\n".encode(),
            self.text(key), self.text("cpu"),
            self.number(t.bits.size if t.storage else t.bits.nbytes)]) + b"Q"
        version, more = ("v3", [f"ctorch\n{t.dtype}\n".encode()]) if t.dtype else ("v2", [])
        return f"ctorch._utils\n_rebuild_tensor_{version}\n".encode() + self.tuple([
            storage, self.number(0), self.tuple(map(self.number, t.shape)),
            self.tuple(map(self.number, t.stride)), b"\x89",
            b"ccollections\nOrderedDict\n)R", *more]) + b"R"

    def name(self, n):
        return f"c{n.module}\n{n.name}\n".encode()

    def wrapper(self, w):
        stride = [int(np.prod(w.shape[i + 1:])) for i in range(len(w.shape))]
        made = self.tuple([self.name(w.cls), self.name(w.dtype), self.any(tuple(w.shape)),
                           self.any(tuple(stride)), self.number(0),
                           b"ctorch.serialization\n_get_layout\n" +
                           self.text("torch.strided") + b"\x85R",
                           b"ctorch\ndevice\n" + self.text("cpu") + b"\x85R", b"\x89"])
        return b"ctorch._tensor\n_rebuild_from_type_v2\n" + self.tuple([
            b"ctorch._utils\n_rebuild_wrapper_subclass\n", self.name(w.cls), made,
            self.any(w.attributes)]) + b"R"

    def any(self, o):
        if isinstance(o, Parameter):
            return b"ctorch._utils\n_rebuild_parameter\n" + self.tuple([
                self.tensor(o.tensor), b"\x88", b"ccollections\nOrderedDict\n)R"]) + b"R"
        if isinstance(o, (Name, Wrapper)):
            return self.name(o) if isinstance(o, Name) else self.wrapper(o)
        if isinstance(o, bool):
            return b"\x88" if o else b"\x89"
        if isinstance(o, Tensor):
            return self.tensor(o)
        if isinstance(o, Object):
            return f"c{o.module}\n{o.name}\n".encode() + b")\x81" + \
                self.any(o.attributes) + b"b"
        if o is None:
            return b"N"
        if isinstance(o, dict):
            return b"}(" + b"".join(self.any(k) + self.any(v)
                                    for k, v in o.items()) + b"u"
        if isinstance(o, list):
            return b"](" + b"".join(map(self.any, o)) + b"e"
        if isinstance(o, tuple):
            return self.tuple(map(self.any, o))
        return self.text(o) if isinstance(o, str) else self.number(o)


def torch_bytes(o, prefix="cache", **changed):
    """changed: members in the place of those there are; None: left out"""
    p = Pickler()
    members = {f"{prefix}/data.pkl": b"\x80\x02" + p.any(o) + b"."}
    members |= {f"{prefix}/data/{k}": b for k, b in p.storages.items()}
    members[f"{prefix}/byteorder"] = b"little"
    members[f"{prefix}/version"] = b"3\n"
    members |= {n.replace("_", "/"): b for n, b in changed.items()}
    members = {n: b for n, b in members.items() if b is not None}
    return zip_bytes(members, late=True, align=64)


# ---- safetensors ------------------------------------------------------------

def safetensors_bytes(tensors, metadata=None):
    """{name: (type, array)}, and what the header says besides"""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (kind, a) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(a.shape),
                        "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    return headed(header, b"".join(np.ascontiguousarray(a).tobytes()
                                   for _, a in tensors.values()))


# ---- state files of llama.cpp -----------------------------------------------

F32, F16, BF16, Q4_0, Q8_0 = 0, 1, 30, 2, 8


def u32(*numbers):
    return struct.pack(f"<{len(numbers)}I", *numbers)


class Cells:
    """
    One stream: k[L][cells] and v[L][cells] rows as bytes, and the sequences and
    position of each cell.  v None: there are no values.
    """

    def __init__(self, cells, k, v, kind=(BF16, BF16), extra=0, elem=0):
        self.cells, self.k, self.v = cells, k, v
        self.kind, self.extra = kind, extra
        self.elem = elem                # of transposed values; 0: they are not

    def bytes(self):
        out = [u32(len(self.cells))]
        if not self.cells:
            return out[0]
        for position, sequences in self.cells:
            out += [u32(position, len(sequences)), b"\x07" * self.extra, u32(*sequences)]
        out.append(u32(self.elem > 0, len(self.k)))
        for rows in self.k:
            out.append(struct.pack("<iQ", self.kind[0], len(rows[0])))
            out += rows
        for rows in self.v or []:
            if not self.elem:
                out.append(struct.pack("<iQ", self.kind[1], len(rows[0])))
                out += rows
                continue
            width = len(rows[0]) // self.elem
            out.append(struct.pack("<iII", self.kind[1], self.elem, width))
            turned = np.frombuffer(b"".join(rows), f"V{self.elem}")
            out.append(turned.reshape(len(rows), width).T.tobytes())
        return b"".join(out)


def memory_bytes(streams, counted=True):
    return (u32(len(streams)) if counted else b"") + b"".join(s.bytes() for s in streams)


def recurrent_bytes(cells=((5, [0]),), r=None, s=None, layers=None):
    """cells and float32 states [L, cells, n] of two kinds"""
    r = np.zeros((2, len(cells), 2), np.float32) if r is None else r
    s = np.ones((2, len(cells), 3), np.float32) if s is None else s
    out = u32(len(cells)) + b"".join(u32(p, len(ids), *ids) for p, ids in cells)
    out += u32(0, layers or len(r))
    for rows in [*r, *s]:
        out += struct.pack("<iQ", F32, rows[0].nbytes) + rows.tobytes()
    return out


def ggsn_bytes(memory, version=9, tokens=(), arch="llama", outputs=None):
    out = u32(0x6767736e, version, len(tokens), *tokens, len(arch)) + arch.encode()
    if outputs is not None:
        out += u32(outputs, *range(outputs))
        out += struct.pack("<Q", 10 * outputs) + b"\0\0\x80\x3f" * 10 * outputs
        out += struct.pack("<Q", 0)
    return out + memory


def ggsq_bytes(memory, version=2, tokens=()):
    return u32(0x67677371, version, len(tokens), *tokens) + memory


def sequence_bytes(memory):
    return u32(0xaf143cd8, 0) + memory
