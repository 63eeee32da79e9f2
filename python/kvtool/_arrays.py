# SPDX-License-Identifier: Apache-2.0
"""Element types by name, and bytes as arrays of whoever is there: numpy, torch"""
from __future__ import annotations

import ctypes
import importlib
import sys
from typing import Any, List, Optional, Sequence, Tuple

from ._native import Dtype, Unsupported, UsageError, lib, path_bytes, text


def _found(name: str) -> Optional[Dtype]:
    """The library's row of a type, by any of its names."""
    found = lib.kvt_dtype_find(path_bytes(name))
    return found.contents if found else None


def _type(name: str) -> Dtype:
    found = _found(name)
    if found is None:
        raise Unsupported(f"elements of type {name}")
    return found


def itemsize(dtype: str) -> int:
    """Bytes of one element of a type."""
    return int(_type(dtype).elem)


def proper(dtype: str) -> str:
    """kvtool's own of the names of a type."""
    return text(_type(dtype).name)


def name_of(dtype: Any) -> str:
    """kvtool's name of a type of numpy, ml_dtypes or torch, or of such a name."""
    name = str(getattr(dtype, "name", None) or dtype).replace("torch.", "")
    found = _found(name)
    if found is None:
        raise UsageError(f"elements of type {name}; give dtype=")
    return text(found.name)


def plain_name(dtype: Any) -> str:
    """Of a type of numpy or torch, of one of Python, or of any name that numpy knows."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or \
        str(dtype).replace("torch.", "")
    try:
        import numpy
        return str(numpy.dtype(name).name)
    except (ImportError, TypeError):
        return str(name)


def empty(n: int) -> Any:
    """A buffer of n bytes; numpy's are not filled with zeros first."""
    try:
        import numpy
    except ImportError:
        return bytearray(n)
    return numpy.empty(n, numpy.uint8)


def address(data: Any) -> int:
    """Of the first byte of what empty() made."""
    if isinstance(data, bytearray):
        return ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data)) \
            if data else 0
    return int(data.ctypes.data)


def with_drops(index: Sequence[Any], drops: Sequence[bool]) -> Tuple[Any, ...]:
    """The index of an array that takes the only entry of axes that are to go."""
    out: List[Any] = []
    for i, drop in zip(index, drops):
        begin = i.start or 0
        out.append(begin if drop else i)
    return tuple(out)


def _numpy_type(dtype: str) -> Any:
    import numpy
    row = _type(dtype)
    if not row.ml_dtypes:
        return numpy.dtype(text(row.npy))
    try:
        ml_dtypes: Any = importlib.import_module("ml_dtypes")
        return numpy.dtype(getattr(ml_dtypes, text(row.ml_dtypes)))
    except (ImportError, AttributeError):
        raise Unsupported(
            f'numpy has no {dtype}: read(dtype="float32") gives the same numbers, bits=True '
            "the bits; or install ml_dtypes, the newest, or use read_torch()") from None


def _torch_type(dtype: str) -> Any:
    torch: Any = importlib.import_module("torch")
    name = text(_type(dtype).torch)
    if not hasattr(torch, name):
        raise Unsupported(f"this torch has no {dtype}")
    return getattr(torch, name)


_CLASSES: List[Any] = []


def _array_class() -> Any:
    """numpy.ndarray with to_torch(); made once numpy is there."""
    if not _CLASSES:
        numpy: Any = importlib.import_module("numpy")

        class Array(numpy.ndarray):  # type: ignore[misc]
            """A numpy array that knows the way to torch, also of bfloat16 and fp8."""

            def to_torch(self) -> Any:
                """The same memory as a torch.Tensor, if it can share it."""
                return _torch_of(self, self.dtype.name)

        _CLASSES.append(Array)
    return _CLASSES[0]


class _Memory:
    """Memory of a tensor, as numpy asks for it; keeps the tensor alive."""

    def __init__(self, tensor: Any, address: int, shape: Tuple[int, ...],
                 strides: Tuple[int, ...], size: int) -> None:
        self._tensor = tensor
        self.__array_interface__ = {"data": (address, True), "shape": shape,
                                    "strides": strides, "typestr": f"|V{size}",
                                    "version": 3}


def in_place(views: Sequence[Any], box: Any, axes: Sequence[int]) -> Any:
    """
    The box as an array over a tensor's own memory, if one tensor has all of it and no
    axis is split; else None.
    """
    for part, tensor, view in views:
        if any(box.begin[a] < part.begin[a] or box.end[a] > part.end[a] for a in axes):
            continue
        strides = {f.axis: f.stride for f in view.factor[:view.nfactors]}
        if len(strides) != view.nfactors or \
                any(f.div != 1 for f in view.factor[:view.nfactors]):
            return None
        try:
            import numpy
        except ImportError:
            return None
        at = tensor.address + view.offset + sum(
            (box.begin[a] - part.begin[a]) * strides.get(a, 0) for a in axes)
        shape = tuple(box.end[a] - box.begin[a] for a in axes)
        return numpy.asarray(_Memory(tensor.keep, at, shape,
                                     tuple(strides.get(a, 0) for a in axes),
                                     tensor.size))
    return None


def to_numpy(data: Any, shape: Tuple[int, ...], index: Tuple[Any, ...],
             dtype: str) -> Any:
    """The part 'index' of an array of that shape."""
    import numpy
    if getattr(data, "dtype", None) is not None and data.dtype.kind == "V":
        array = data.view(_numpy_type(dtype))[index]
    else:
        array = numpy.frombuffer(data, _numpy_type(dtype)).reshape(shape)[index]
    return array.view(_array_class())


def _torch_of(array: Any, dtype: str) -> Any:
    import numpy
    torch: Any = importlib.import_module("torch")
    size = itemsize(dtype)
    plain = numpy.asarray(array).view({1: "u1", 2: "i2", 4: "i4", 8: "i8"}[size])
    return torch.from_numpy(plain).view(_torch_type(dtype))


def to_torch(data: Any, shape: Tuple[int, ...], index: Tuple[Any, ...],
             dtype: str) -> Any:
    """The same as a torch.Tensor over the same memory."""
    torch: Any = importlib.import_module("torch")
    element = _torch_type(dtype)
    if getattr(data, "dtype", None) is not None and data.dtype.kind == "V":
        data = bytearray(data.tobytes())
    if not len(data):  # pylint: disable=use-implicit-booleaness-not-len
        return torch.empty(shape, dtype=element)[index]
    flat = torch.frombuffer(data, dtype=torch.uint8)
    return flat.view(element).reshape(shape)[index]


def joined(library: str, arrays: Sequence[Any], axis: int) -> Any:
    """Arrays of numpy or tensors of torch, one after the other along an axis."""
    if len(arrays) == 1:
        return arrays[0]
    if library == "numpy":
        import numpy
        return numpy.concatenate(arrays, axis).view(_array_class())
    torch: Any = importlib.import_module("torch")
    size = arrays[0].element_size()     # torch does not join all types that it has
    plain = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return torch.cat([a.contiguous().view(plain) for a in arrays], axis) \
        .view(arrays[0].dtype)


def to_bytes(data: Any, shape: Tuple[int, ...], index: Tuple[Any, ...], dtype: str
             ) -> Tuple[bytearray, Tuple[int, ...], str]:
    """The same without numpy: bytes, their shape, the name of their type."""
    if getattr(data, "dtype", None) is not None and data.dtype.kind == "V":
        data = bytearray(data.tobytes())
    view = memoryview(data).cast("B") if not isinstance(data, bytearray) else \
        memoryview(data)
    size = itemsize(dtype)
    strides = [size] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    ranges, kept = [], []
    at: Any
    for at, n in zip(index, shape):
        one = isinstance(at, int)
        begin, end, _ = (at, at + 1, 1) if one else at.indices(n)
        ranges.append(range(begin, end))
        if not one:
            kept.append(end - begin)
    # only the axis of tokens is ever cut: rows before it, one run in each
    cut = next((a for a, r in enumerate(ranges) if len(r) != shape[a]), len(shape))
    out = bytearray()
    if cut == len(shape):
        out += view
    else:
        rows = 1
        for n in shape[:cut]:
            rows *= n
        step = strides[cut] * shape[cut]
        for row in range(rows):
            out += view[row * step + ranges[cut].start * strides[cut]:
                        row * step + ranges[cut].stop * strides[cut]]
    return out, tuple(kept), dtype


def is_torch(tensor: Any) -> bool:
    """Without importing torch: who has a tensor has it imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)
