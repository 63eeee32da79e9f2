#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
suite.py - runs real engines beside kvtool and writes what was proven

    make check-engines [ENGINES="vllm-0.32 nixl"] [SEED=7] [ENGINE_DIR=build/engines]

Each engine has a virtual environment, made from requirements/ENGINE.txt, whose every
package is named with version and hash; it is made again when that file changes.  An
engine that cannot be installed here is a named skip.  Results go to results.tsv, and
from there into man/kvtool-engines.7, so that the page is what the suite wrote.

    suite.py run [--engine=NAME]... [--seed=N] [--dir=DIR] [--no-record]
    suite.py lock NAME PACKAGE==VERSION...   resolves and writes requirements/NAME.txt
    suite.py page                            prints the page of results.tsv
    suite.py list
"""
import argparse
import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RESULTS = os.path.join(HERE, "results.tsv")
PAGE = os.path.join(ROOT, "man", "kvtool-engines.7")
COLUMNS = ["suite", "engine", "version", "what", "on", "result", "points", "figure",
           "date"]

# name of the environment, seconds a script may take, scripts
ENGINES = [
    ("vllm-0.32", 1800, ["vllm_tokens.py", "vllm_stores.py"]),
    ("vllm-0.26", 900, ["vllm_layouts.py"]),
    ("vllm-0.22", 900, ["vllm_layouts.py"]),
    ("transformers", 900, ["transformers_caches.py"]),
    ("lmcache", 900, ["lmcache_stores.py"]),
    ("sglang", 900, ["sglang_pages.py"]),
    ("mooncake", 900, ["mooncake_stores.py"]),
    ("llama.cpp", 1800, ["llama_states.py"]),
    ("nixl", 900, ["nixl_lists.py"]),
]


def say(text):
    print(text, flush=True)


def requirements(name):
    return os.path.join(HERE, "requirements", f"{name}.txt")


# ---- environments ------------------------------------------------------------

def environment(name, folder):
    """The Python of an engine's environment, made where it is missing or outdated."""
    wanted = requirements(name)
    env = os.path.join(folder, "env", name)
    python = os.path.join(env, "bin", "python")
    mark = os.path.join(env, "made-from")
    with open(wanted, "rb") as f:
        sha = hashlib.sha256(f.read()).hexdigest()
    if os.path.exists(mark):
        with open(mark, encoding="ascii") as f:
            if f.read() == sha:
                return python
    shutil.rmtree(env, ignore_errors=True)
    os.makedirs(os.path.dirname(env), exist_ok=True)
    log = os.path.join(folder, f"{name}.install.log")
    with open(log, "wb") as out:
        # the interpreter of the system, whichever one runs this script
        for args in ([sys.executable, "-m", "venv", env],
                     [python, "-m", "pip", "install", "--no-deps", "--require-hashes",
                      "--disable-pip-version-check", "--no-input", "-r", wanted]):
            if subprocess.run(args, stdout=out, stderr=out, check=False).returncode:
                raise RuntimeError(f"cannot be installed, see {log}")
    with open(mark, "w", encoding="ascii") as f:
        f.write(sha)
    return python


def lock(name, packages):
    """Resolves packages in an empty environment and writes what came of it."""
    scratch = os.path.join(ROOT, "build", "engines", "lock")
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    env = os.path.join(scratch, "env")
    report = os.path.join(scratch, "report.json")
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    subprocess.run([os.path.join(env, "bin", "python"), "-m", "pip", "install",
                    "--dry-run", "--ignore-installed", "--report", report, *packages],
                   check=True, stdout=subprocess.DEVNULL)
    write_lock(name, packages, report)


def write_lock(name, packages, report):
    """From a report of pip, which holds the hash of each file it chose."""
    with open(report, encoding="utf-8") as f:
        installed = json.load(f)["install"]
    with open(requirements(name), "w", encoding="ascii") as f:
        f.write(f"# suite.py lock {name} {' '.join(packages)}\n")
        for item in sorted(installed, key=lambda i: i["metadata"]["name"].lower()):
            sha = item["download_info"]["archive_info"]["hashes"]["sha256"]
            f.write(f"{item['metadata']['name']}=={item['metadata']['version']} "
                    f"--hash=sha256:{sha}\n")


# ---- running -----------------------------------------------------------------

def run_script(python, name, script, limit, args):
    work = os.path.join(args.dir, "work", name)
    rows = os.path.join(args.dir, f"{name}.rows")
    command = [python, os.path.join(HERE, script), f"--work={work}",
               f"--kvtool={os.path.join(ROOT, 'build', 'kvtool')}", f"--rows={rows}",
               f"--seed={args.seed}"]
    log = os.path.join(args.dir, f"{name}.{script[:-3]}.log")
    with open(log, "wb") as err:
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err,
                             start_new_session=True)
        try:
            out, _ = p.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, 9)
            out, _ = p.communicate()
            out += f"not ok - {script} took more than {limit} s\n".encode()
        finally:
            # engines leave workers behind that wait for a parent that has gone
            try:
                os.killpg(p.pid, 9)
            except ProcessLookupError:
                pass
    text = out.decode(errors="replace")
    print(text, end="", flush=True)
    if p.returncode:
        say(f"# {script} ended with {p.returncode}; what it wrote is in {log}")
    if p.returncode and not any(t.startswith("not ok") for t in text.splitlines()):
        say(f"not ok - {script} ended with {p.returncode}")
        return 1
    return sum(t.startswith("not ok") for t in text.splitlines())


def run(args):
    args.dir = os.path.abspath(args.dir)
    os.makedirs(args.dir, exist_ok=True)
    begin, failed, skipped, took, rows = time.time(), 0, [], [], []
    wanted = args.engine or [e[0] for e in ENGINES]
    unknown = set(wanted) - {e[0] for e in ENGINES}
    if unknown:
        sys.exit(f"suite.py: no engine {', '.join(sorted(unknown))}; suite.py list")
    for name, limit, scripts in ENGINES:
        if name not in wanted:
            continue
        start = time.time()
        say(f"# ---- {name}")
        try:
            python = environment(name, args.dir)
        except (OSError, RuntimeError) as error:
            say(f"ok - {name} # SKIP {error}")
            skipped.append((name, str(error)))
            continue
        made = time.time()
        path = os.path.join(args.dir, f"{name}.rows")
        if os.path.exists(path):
            os.remove(path)
        failed += sum(run_script(python, name, s, limit, args) for s in scripts)
        took.append((name, made - start, time.time() - made))
        if os.path.exists(path):
            with open(path, encoding="ascii") as f:
                rows += [{"suite": name, **json.loads(line)} for line in f]
    if rows and args.record:
        record(rows)
    summary(rows, took, skipped, failed, time.time() - begin)
    return 1 if failed else 0


def summary(rows, took, skipped, failed, seconds):
    say("")
    say(f"{'engine':14} {'environment':>12} {'proofs':>8}")
    for name, made, ran in took:
        say(f"{name:14} {made:10.0f} s {ran:6.0f} s")
    say("")
    for r in rows:
        figure = f" [{r['figure']}]" if r["figure"] else ""
        say(f"{r['result']:8} {r['engine']} {r['version']}: {r['what']} "
            f"({r['on']}), {r['points']} points{figure}")
    for name, why in skipped:
        say(f"skipped  {name}: {why}")
    points = sum(r["points"] for r in rows)
    left = sum(r["result"] == "skipped" for r in rows)
    say(f"check-engines: {len(rows)} rows, {points} points, {failed} failed, "
        f"{left} rows skipped, {len(skipped)} engines skipped, {seconds:.0f} s")


# ---- results -----------------------------------------------------------------

def read_results():
    if not os.path.exists(RESULTS):
        return []
    with open(RESULTS, encoding="ascii") as f:
        lines = f.read().splitlines()
    return [dict(zip(COLUMNS, line.split("\t"))) for line in lines[1:]]


def record(rows):
    """New rows take the place of all that their environment had before."""
    today = datetime.date.today().isoformat()
    ran = {r["suite"] for r in rows}
    kept = [r for r in read_results() if r["suite"] not in ran]
    kept += [{**r, "date": today} for r in rows]
    place = {e[0]: i for i, e in enumerate(ENGINES)}
    kept.sort(key=lambda r: place.get(r["suite"], len(place)))
    with open(RESULTS, "w", encoding="ascii") as f:
        f.write("\t".join(COLUMNS) + "\n")
        for r in kept:
            f.write("\t".join(str(r[c]).replace("\t", " ") for c in COLUMNS) + "\n")
    with open(PAGE, "w", encoding="ascii") as f:
        f.write(page(read_results()))


def roff(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def page(rows):
    dates = [r["date"] for r in rows]
    out = [".\\\" SPDX-License-Identifier: Apache-2.0",
           ".\\\" written by tests/engines/suite.py from tests/engines/results.tsv",
           f".TH KVTOOL\\-ENGINES 7 {max(dates, default='')} kvtool",
           ".SH NAME", "kvtool\\-engines \\- what was proven with which engine",
           ".SH DESCRIPTION",
           "Each line was proven by running that engine beside kvtool, without a GPU, on",
           "small models with random weights, and was written by the run.",
           "Points are single comparisons.",
           "A line that says", ".I skipped", "was not proven, for the reason given.",
           ".PP", "To repeat the lines of one environment:", ".PP", ".in +4n", ".nf",
           "make check\\-engines ENGINES=\\fIenvironment\\fP", ".fi", ".in",
           ".SH PROOFS"]
    last = None
    for r in rows:
        head = f"{r['engine']} {r['version']}"
        if head != last:
            out.append(f".SS {roff(head)} ({roff(r['suite'])}, {roff(r['date'])})")
            last = head
        out.append(".TP")
        out.append(f"{roff(r['what'][0].upper() + r['what'][1:])} ({roff(r['on'])})")
        if r["result"] == "skipped":
            out.append(f"Skipped: {roff(r['figure'])}.")
        else:
            figure = f"; {roff(r['figure'])}" if r["figure"] else ""
            failed = ", FAILED" if r["result"] != "ok" else ""
            out.append(f"{r['points']} points{failed}{figure}.")
    out += [".SH SEE ALSO", ".BR kvtool (1),", ".BR kvtool\\-formats (7),",
            ".BR kvtool\\-layouts (7)"]
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description="runs real engines beside kvtool")
    sub = parser.add_subparsers(dest="command", required=True)
    p = sub.add_parser("run")
    p.add_argument("--engine", action="append")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--dir", default=os.path.join(ROOT, "build", "engines"))
    p.add_argument("--no-record", dest="record", action="store_false")
    p = sub.add_parser("lock")
    p.add_argument("name")
    p.add_argument("package", nargs="+")
    sub.add_parser("page")
    sub.add_parser("list")
    args = parser.parse_args()
    if args.command == "run":
        return run(args)
    if args.command == "lock":
        return lock(args.name, args.package)
    if args.command == "page":
        print(page(read_results()), end="")
        return 0
    for name, _, scripts in ENGINES:
        say(f"{name:14} {' '.join(scripts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
