# SPDX-License-Identifier: Apache-2.0
"""
proof.py - what the scripts of this folder share: rows of proofs, kvtool, elements

A script runs in the environment of one engine and is given, by suite.py:

    python SCRIPT --work=DIR --kvtool=PATH --rows=FILE [--seed=N]

It proves rows; a row is one sentence of kvtool-engines(7) and holds as many points as
were checked.  Points are printed as TAP; rows are appended to FILE, one JSON object a
line.  A row that raises has failed, and the next one is tried.
"""
import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import traceback

# Where plain_files.py is, which oracles have too.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Row:
    """One proof: what is proven, on which model or format, and its points."""

    def __init__(self, proof, what, on):
        self.proof, self.what, self.on = proof, what, on
        self.points = self.failed = 0
        self.figures = []

    def ok(self, good, name, why=""):
        """One point. why: text or Result, printed when it fails."""
        self.points += 1
        self.failed += not good
        self.proof.point(good, f"{self.what} ({self.on}): {name}", why)
        return bool(good)

    def equal(self, got, want, name):
        return self.ok(got == want, name, f"got  {got}\nwant {want}")

    def figure(self, text):
        """Something measured that the table shows: '3.1 GB/s'."""
        self.figures.append(text)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None and issubclass(kind, Exception):
            self.ok(False, f"ended by {kind.__name__}",
                    "".join(traceback.format_exception(kind, error, trace))[-3000:])
        elif kind is not None:
            return False
        if self.points == 0:
            self.ok(False, "nothing was checked")
        self.proof.write(self.what, self.on, "failed" if self.failed else "ok",
                         self.points, "; ".join(self.figures))
        return True


class Proof:
    """The rows of one engine in one version."""

    def __init__(self, engine, version):
        p = argparse.ArgumentParser()
        p.add_argument("--work", required=True)
        p.add_argument("--kvtool", required=True)
        p.add_argument("--rows", required=True)
        p.add_argument("--seed", type=int, default=0)
        args = p.parse_args()
        self.engine, self.version, self.seed = engine, version, args.seed
        self.work = os.path.abspath(args.work)
        self.rows = os.path.abspath(args.rows)
        self.program = os.path.abspath(args.kvtool)
        self.count = self.failed = 0
        os.makedirs(self.work, exist_ok=True)

    def point(self, good, name, why=""):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}")
        if not good:
            for line in str(why).splitlines()[-30:]:
                print(f"#   {line}")
        sys.stdout.flush()

    def write(self, what, on, result, points, figure):
        with open(self.rows, "a", encoding="ascii") as f:
            f.write(json.dumps({"engine": self.engine, "version": self.version,
                                "what": what, "on": on, "result": result,
                                "points": points, "figure": figure}) + "\n")

    def row(self, what, on):
        return Row(self, what, on)

    def skip(self, what, on, why):
        """A row that this machine or this version cannot prove; why is in the table."""
        self.count += 1
        print(f"ok {self.count} - {what} ({on}) # SKIP {why}")
        self.write(what, on, "skipped", 0, why)

    def folder(self, name):
        """An empty folder of the script's own."""
        path = os.path.join(self.work, name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        return path

    def kvtool(self, *args, folder=None):
        args = [self.program] + [str(a) for a in args]
        p = subprocess.run(args, stdin=subprocess.DEVNULL, cwd=folder,
                           capture_output=True, timeout=600)
        return Result(args, p.returncode, p.stdout.decode(errors="replace"),
                      p.stderr.decode(errors="replace"))

    def must(self, *args, folder=None):
        """kvtool that has to end with 0."""
        r = self.kvtool(*args, folder=folder)
        if r.code != 0:
            raise RuntimeError(f"kvtool failed\n{r}")
        return r

    def done(self):
        print(f"1..{self.count}")
        return 1 if self.failed or not self.count else 0


class Result:
    def __init__(self, args, code, out, err):
        self.args, self.code, self.out, self.err = args, code, out, err

    def __str__(self):
        return (f"{' '.join(self.args)}\nexit {self.code}\n"
                f"{self.out[-1500:]}{self.err[-1500:]}")

    @property
    def json(self):
        return json.loads(self.out)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tokens_of(proof, dump, request, folder):
    """
    What kvtool says that a dump holds of one request: [layers, tokens, heads, k/v,
    elements], read from plain NHD blocks of that request alone, as the bytes are.
    numpy has no bfloat16: such elements come as uint16.
    """
    import numpy as np
    out = os.path.join(folder, "tokens.npy")
    one = os.path.join(folder, "one.h5")
    proof.must("slice", "-f", "-q", f"--request={request}", "-o", one, dump)
    proof.must("relayout", "-f", "-q", "--to=nhd", "-o", out, one)
    with open(out[:-4] + ".json", encoding="ascii") as f:
        side = json.load(f)
    group = side["groups"][0] if "groups" in side else side
    n = group["sizes"]
    ids = group.get("block_ids", list(range(n["num_blocks"])))
    cells = np.load(out).reshape(n["layers"], n["num_blocks"], n["block_size"],
                                 n.get("num_kv_heads", 1), -1,
                                 n.get("head_dim") or n["content"])
    table = group.get("block_table", side.get("block_table"))[request]
    flat = cells[:, [ids.index(b) for b in table]]
    flat = flat.reshape((n["layers"], -1) + cells.shape[3:])
    return flat[:, :side["num_tokens"][request]]
