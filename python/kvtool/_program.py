# SPDX-License-Identifier: Apache-2.0
"""The program kvtool(1), for what the module leaves to it"""
from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ._native import UsageError

if TYPE_CHECKING:
    import subprocess


def program() -> str:
    """Path of the program: $KVTOOL, of this environment, or in $PATH."""
    import shutil
    named = os.environ.get("KVTOOL")
    if named:
        return named
    beside = os.path.join(os.path.dirname(sys.executable), "kvtool")
    found = beside if os.access(beside, os.X_OK) else shutil.which("kvtool")
    if not found:
        raise UsageError("the program kvtool is neither beside python nor in PATH; "
                         "KVTOOL names it")
    return found


def run(*arguments: Any, check: bool = False) -> "subprocess.CompletedProcess[str]":
    """Runs kvtool(1); its output is text in .stdout and .stderr, its status .returncode."""
    import subprocess
    return subprocess.run([program(), *map(os.fspath, map(_word, arguments))],
                          check=check, capture_output=True, text=True)


def _word(argument: Any) -> Any:
    return argument if hasattr(argument, "__fspath__") else str(argument)


def hdf5_plugin_path() -> str:
    """Folder of the zstd filter for other readers of HDF5 ($HDF5_PLUGIN_PATH)."""
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib",
                          "hdf5-plugin")
    if os.path.isdir(inside):
        return inside                   # of the wheel
    return run("--plugin-dir", check=True).stdout.rstrip("\n")
