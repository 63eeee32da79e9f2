# SPDX-License-Identifier: Apache-2.0
"""
kvtool: KV caches of LLM inference engines, opened, compared, cut and converted

    import kvtool

    d = kvtool.open("cache.h5")
    d.groups, d.requests, d.layout
    keys = d.read(layer=3, request="A", tokens=slice(0, 64), kv="k")

    live = kvtool.from_tensors(kv_caches, layout="KBSHD", block_table={"A": [5, 9, 2]})
    print(kvtool.diff(live, "reference.h5"))

Shapes are in elements, sizes in bytes; axes have the letters of kvtool-layouts(7).
Importing this loads libkvt and nothing else.
"""
from ._dump import Dump, Finding, Group, Request, merge, open
from ._native import (BadInput, Error, KvtoolWarning, Mismatch, SystemFailure,
                      Unsupported, UsageError, VERSION as __version__)
from ._program import hdf5_plugin_path, program, run
from ._report import ElementDifference, GroupDifference, Report, diff
from ._tensors import from_tensors

__all__ = [
    "BadInput", "Dump", "ElementDifference", "Error", "Finding", "Group",
    "GroupDifference", "KvtoolWarning", "Mismatch", "Report", "Request",
    "SystemFailure", "Unsupported", "UsageError", "__version__", "diff", "from_tensors",
    "hdf5_plugin_path", "merge", "open", "program", "run",
]
