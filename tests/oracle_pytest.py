#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""oracle_pytest.py - runs tests/python by pytest, and tells each test as TAP"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
try:
    import pytest                                           # noqa: F401
except ImportError:
    print("1..0 # SKIP this needs the package python3-pytest")
    sys.exit(0)

env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"),
       "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
env.setdefault("KVTOOL", os.path.abspath("build/kvtool"))
env.setdefault("KVTOOL_LIBRARY", os.path.join(
    os.path.abspath(env.get("KVT_BUILD", "build")), "libkvt.so.0"))
with tempfile.TemporaryDirectory() as tmp:
    p = subprocess.run([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider",
                        f"--basetemp={os.path.join(tmp, 'base')}", "-c", os.devnull,
                        "--rootdir", tmp, os.path.join(HERE, "python")],
                       cwd=tmp, env=env, capture_output=True, text=True, check=False)
count = 0
for name, result in re.findall(r"::(\w+(?:\[.*?\])?) (PASSED|FAILED|ERROR|SKIPPED)", p.stdout):
    count += 1
    print(f"{'ok' if result == 'PASSED' else 'not ok'} {count} - {name}")
if p.returncode or not count:
    sys.stderr.write(p.stdout[-8000:] + p.stderr[-2000:])
print(f"1..{count}")
sys.exit(p.returncode if count else 1)
