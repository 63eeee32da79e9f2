# SPDX-License-Identifier: Apache-2.0
"""
kvtool: KV caches of LLM inference engines, opened, compared, cut and converted

>>> import kvtool
>>> d = kvtool.open("cache.npy")
>>> d.layout, d.groups[0].dtype, list(d.requests)
('LBSHC', 'bfloat16', ['A', 'B', 'C'])
>>> d.read(layer=3, request="A", tokens=slice(0, 64), kv="k", bits=True).shape
(64, 4, 8)
>>> d.write("hnd.h5", layout="hnd")
>>> print(kvtool.diff("hnd.h5", d))
hnd.h5 and cache.npy: the same
g0: equal, 220480 elements

Shapes are in elements, sizes in bytes; axes have the letters of kvtool-layouts(7).
Importing this loads libkvt and nothing else.
"""
from ._dump import Dump, Finding, Group, Request, merge, open
from ._native import (BadInput, Error, KvtoolWarning, Mismatch, SystemFailure,
                      Unsupported, UsageError, VERSION as __version__)
from ._program import hdf5_plugin_path, program, run
from ._report import ElementDifference, GroupDifference, Report, diff
from ._tensors import from_tensors
from ._view import Plot, View

__all__ = [
    "BadInput", "Dump", "ElementDifference", "Error", "Finding", "Group",
    "GroupDifference", "KvtoolWarning", "Mismatch", "Plot", "Report", "Request",
    "SystemFailure", "Unsupported", "UsageError", "View", "__version__", "diff", "from_tensors",
    "hdf5_plugin_path", "merge", "open", "program", "run",
]
