# SPDX-License-Identifier: Apache-2.0
"""
vllm_server.py - captures of a server that is not changed, by kvtool_capture's connector

In one process with every write to the cache recorded: chunked prefill, shared prefixes,
preemption, windows, steps that overlap.  As the server of vLLM with one rank and two: ordered
by a file and by a signal while requests run, and held against transformers.
"""
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import vllm_engine as engine
import kvtool_capture
import models
import page
from plain_files import read_text, write_text
from vllm_tokens import Plain, compare_written, compare_forward, real_tables

NEW = 900


def connector(base):
    """As kvtool-dumps(7) has it, but for where files go."""
    said = page.connector("vllm-server")
    said["kv_connector_extra_config"]["capture_path"] = base
    return said


def wait_for(path, seconds=60):
    """Files are written beside the engine, and appear whole."""
    end = time.time() + seconds
    while not os.path.exists(path):
        if time.time() > end:
            raise RuntimeError(f"{path} was not written")
        time.sleep(0.05)
    return path


# ---- in one process --------------------------------------------------------------

def small(proof, family, base, **more):
    path, _ = models.make(family, proof.seed, "float32",
                          os.path.join(proof.work, "models"))
    args = {"enable_prefix_caching": True, "max_num_batched_tokens": 64,
            "max_num_seqs": 3, "async_scheduling": None,
            "kv_transfer_config": connector(base), **more}
    llm = engine.make(path, "float32", 32, **args)
    return llm, engine.Written(llm)


class Captures:
    """Orders a capture and compares what came of it."""

    def __init__(self, proof, row, llm, written, base, folder):
        self.proof, self.row, self.llm = proof, row, llm
        self.written, self.base, self.folder = written, base, folder
        self.count = 0

    def take(self, run, what, **wanted):
        write_text(f"{self.base}.now", json.dumps(wanted) if wanted else "")
        run.step()
        path = wait_for(f"{self.base}.{self.count}.rank0.safetensors")
        self.count += 1
        self.row.ok(not os.path.exists(f"{self.base}.now"), f"{what}: the order is taken")
        r = self.proof.kvtool("fsck", path)
        self.row.ok(r.code == 0, f"{what}: fsck is content", r)
        plain = Plain(self.proof, path, self.folder)
        compare_written(self.row, plain, self.written, real_tables(self.llm))
        return kvtool_capture.read(path)[0]


def prove_steps(proof, family):
    folder = proof.folder(f"steps-{family}")
    base = os.path.join(folder, "kv")
    llm, written = small(proof, family, base)
    on = f"{models.FAMILIES[family]}, connector, overlapping steps"
    with proof.row("captures in the middle of a run are what the engine wrote", on) as row:
        c = Captures(proof, row, llm, written, base, folder)
        prompt = models.prompt(150, proof.seed)
        run = engine.Run(llm, {"a": prompt}, 60)
        for i in range(3):
            said = c.take(run, f"chunk {i} of a prefill")
        row.ok(0 < said["num_tokens"]["a"] <= 150, "a prefill under way or just done",
               said["num_tokens"])
        run.step(4)
        c.take(run, "decoding")
        more = engine.Run(llm, {"b": prompt[:128] + models.prompt(20, 9)}, 60)
        more.step(3)
        said = c.take(more, "two requests with one prefix")
        row.equal(set(said["num_tokens"]), {"a", "b"}, "ids as the user gave them")
        row.equal({n: i[:-8] for n, i in said["engine"]["request_ids"].items()},
                  {"a": "a-", "b": "b-"}, "and the engine's are kept beside")
        said = c.take(more, "one request of two", requests=["b"])
        row.equal(set(said["num_tokens"]), {"b"}, "only that one")
        if family == "window":
            more.step(30)
            said = c.take(more, "after a window has passed")
            group = next(g for g in said["groups"] if g["kind"] == "sliding_window")
            row.ok(said["null_block"] == 0 and group["block_table"]["a"][0] == 0,
                   "blocks that the window has passed are the null block", group)
            row.equal({g.get("pool") for g in said["groups"]}, {"pool0"},
                      "both groups in one pool")
        said = c.take(more, "all blocks", blocks="all")
        held = [b for g in said["groups"] for b in
                g.get("block_ids", range(g["sizes"]["num_blocks"]))]
        row.equal(sorted(set(held)), list(range(24)), "each block of the pool")
        row.ok(len(held) <= 24 + (len(said["groups"]) - 1), "each block once", held)
        more.finish()


def prove_preemption(proof, _):
    folder = proof.folder("preempted")
    base = os.path.join(folder, "kv")
    llm, written = small(proof, "gqa", base, num_gpu_blocks_override=9,
                         enable_prefix_caching=False, max_num_batched_tokens=256)
    with proof.row("preempted requests are not captured",
                   "grouped heads, fp32, connector") as row:
        c = Captures(proof, row, llm, written, base, folder)
        run = engine.Run(llm, {f"r{i}": models.prompt(110, i) for i in range(2)}, 100)
        scheduler, steps = engine.core(llm).scheduler, 0
        run.step(4)
        while len(scheduler.running) > 1 and steps < 90:
            run.step()
            steps += 1
        row.ok(steps < 90, f"a request was preempted after {steps} steps")
        said = c.take(run, "one runs, one waits")
        row.equal(len(said["num_tokens"]), 1, "only what runs")


def rename_backend(_, name):
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    CPUAttentionBackend.__name__ = name


def prove_refusal(proof, _):
    """A backend that the module does not know is named, and the engine goes on."""
    folder = proof.folder("unknown")
    path, _ = models.make("gqa", proof.seed, "float32", os.path.join(proof.work, "models"))
    llm = engine.make(path, "float32", 32)
    run = engine.Run(llm, {"a": models.prompt(50, 0)}, 8).step(2)
    with proof.row("an unknown backend is an error that names it",
                   "a renamed CPU_ATTN") as row:
        engine.everywhere(llm, rename_backend, "NewAttentionBackend")
        try:
            kvtool_capture.capture_vllm(llm, os.path.join(folder, "x"))
            said = "nothing"
        except RuntimeError as error:
            said = str(error)
        engine.everywhere(llm, rename_backend, "CPUAttentionBackend")
        row.ok("NewAttentionBackend is not known" in said, "named", said)
        row.equal(os.listdir(folder), [], "nothing is written")
        row.equal(len(run.finish()["a"]), 8, "the engine goes on")


# ---- as a server -----------------------------------------------------------------

class Server:
    """
    The server, as `vllm serve` starts it: that command asks for the version of a package
    named vllm, which the CPU's is not.
    """

    def __init__(self, proof, path, base, ranks, port):
        self.url, self.base = f"http://127.0.0.1:{port}", base
        env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
               "VLLM_LOGGING_LEVEL": "WARNING"}
        self.log = os.path.join(os.path.dirname(base), "server.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "vllm.entrypoints.openai.api_server",
                 f"--model={path}", "--served-model-name=tiny", "--dtype=float32", "--block-size=32",
                 "--max-model-len=1024", "--enforce-eager", f"--port={port}",
                 "--host=127.0.0.1", f"--tensor-parallel-size={ranks}",
                 "--num-gpu-blocks-override=64", "--kv-transfer-config",
                 json.dumps(connector(base))],
                env=env, stdout=log, stderr=log, start_new_session=True)
        self.proof = proof

    def wait(self, seconds=240):
        end = time.time() + seconds
        while time.time() < end:
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2):
                    return self
            except OSError:
                time.sleep(0.5)
        with open(self.log, encoding="utf-8", errors="replace") as f:
            raise RuntimeError(f"the server did not start\n{f.read()[-2000:]}")

    def ask(self, ids, tokens, at=None, then=None):
        """Token ids of the answer, as they come; then() is called after at of them."""
        body = json.dumps({"model": "tiny", "prompt": ids, "max_tokens": tokens,
                           "temperature": 0, "ignore_eos": True, "stream": True,
                           "return_token_ids": True}).encode()
        request = urllib.request.Request(
            f"{self.url}/v1/completions", body, {"Content-Type": "application/json"})
        got = []
        with urllib.request.urlopen(request, timeout=120) as answer:
            for line in answer:
                text = line.decode().strip()
                if not text.startswith("data: {"):
                    continue
                for choice in json.loads(text[6:])["choices"]:
                    got += choice.get("token_ids") or []
                if at is not None and len(got) >= at:
                    then()
                    at = None
        return got

    def core(self):
        """The process of the engine's core, found by its name."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                name = read_text(f"/proc/{pid}/comm")
                if "EngineCor" in name and os.getpgid(int(pid)) == self.process.pid:
                    found.append(int(pid))
            except OSError:
                pass
        return found[0] if found else None

    def touch(self):
        """Orders a capture by a file."""
        with open(f"{self.base}.now", "w", encoding="ascii"):
            pass

    def signal(self):
        """Orders a capture by a signal."""
        os.kill(self.core(), signal.SIGUSR2)

    def stop(self):
        if self.process.poll() is not None:
            return
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)


def prove_server(proof, ranks):
    ranks = int(ranks)
    folder = proof.folder(f"server{ranks}")
    base = os.path.join(folder, "kv")
    path, _ = models.make("gqa", proof.seed, "float32", os.path.join(proof.work, "models"))
    server = Server(proof, path, base, ranks, 18400 + 2 * os.getpid() % 10000)
    try:
        server.wait()
        with proof.row("a running server is captured, its tokens do not change",
                       f"OpenAI server, TP {ranks}, by a file and by a signal") as row:
            prompt = models.prompt(90, proof.seed)
            quiet = server.ask(prompt, NEW)
            for number, order in enumerate((server.touch, server.signal)):
                got, files = taken(server, prompt, order, number, ranks, base)
                check_answer(proof, row, path, files, got, quiet, prompt,
                             order.__name__, folder)
            with open(server.log, encoding="utf-8", errors="replace") as f:
                row.ok("copied in" in f.read(), "the log says how long it stood still")
    finally:
        server.stop()


def taken(server, prompt, order, number, ranks, base):
    """
    The answer while which a capture was ordered, and its files.  On a busy machine an
    answer may be complete before this process has seen its beginning: again, then.
    """
    files = [f"{base}.{number}.rank{r}.safetensors" for r in range(ranks)]
    for _ in range(5):
        got = server.ask(prompt, NEW, 20, order)
        try:
            return got, [wait_for(f, 5) for f in files]
        except RuntimeError:
            pass
    raise RuntimeError(f"{files[0]} was not written")


def check_answer(proof, row, path, files, got, quiet, prompt, order, folder):
    row.ok(len(got) == NEW and got == quiet, f"{order}: the same {NEW} tokens")
    tables = [[g["block_table"] for g in kvtool_capture.read(f)[0]["groups"]]
              for f in files]
    counts = [kvtool_capture.read(f)[0]["num_tokens"] for f in files]
    row.ok(all(t == tables[0] for t in tables) and all(c == counts[0] for c in counts),
           f"{order}: all ranks took one step", counts)
    whole = files[0]
    if len(files) > 1:
        whole = os.path.join(folder, "whole.h5")
        proof.must("merge", "-f", "-q", "-o", whole, *files)
    plain = Plain(proof, whole, folder)
    (name, n), = plain.manifest["num_tokens"].items()
    row.ok(90 <= n < 90 + NEW, f"{order}: {n} tokens in the cache")
    # what ids the scheduler did not know yet when it ordered the copy
    plain.manifest["token_ids"] = {name: (prompt + got)[:n]}
    compare_forward(row, plain, path, "float32")


def prove_example(proof, _):
    """examples/vllm_migrate.sh, and that it notices a cache that is wrong."""
    folder = proof.folder("example")
    path, _ = models.make("gqa", proof.seed, "float32", os.path.join(proof.work, "models"))
    script = os.path.join(engine.HERE, "..", "..", "examples", "vllm_migrate.sh")
    # a kvtool that swaps keys and values on the way
    wrong = os.path.join(folder, "wrong")
    write_text(wrong,
               f"#!/bin/sh\nset -e\nfor last; do :; done\n"
               f"{proof.program} mutate -q -f --fault=swap-kv -o {folder}/bad.safetensors"
               f" \"$last\"\nset -- \"$1\" \"$2\" \"$3\" \"$4\" \"$5\" \"$6\"\n"
               f"exec {proof.program} \"$@\" {folder}/bad.safetensors\n")
    os.chmod(wrong, 0o755)
    with proof.row("the example runs: a request goes on in another engine",
                   "examples/vllm_migrate.sh") as row:
        for program, good in ((proof.program, True), (wrong, False)):
            p = subprocess.run(["sh", script, path], capture_output=True, check=False,
                               env={**os.environ, "PYTHON": sys.executable,
                                    "KVTOOL": program}, timeout=300)
            said = p.stdout.decode(errors="replace")
            row.ok((p.returncode == 0 and "the same 40 tokens" in said) == good,
                   "the same tokens" if good else "other tokens of a wrong cache",
                   said + p.stderr.decode(errors="replace")[-500:])


CASES = {"example:": prove_example, "steps:gqa": prove_steps, "steps:window": prove_steps,
         "preemption:": prove_preemption, "refusal:": prove_refusal,
         "server:1": prove_server, "server:2": prove_server}


def prove(proof, case):
    CASES[case](proof, case.split(":")[1])


if __name__ == "__main__":
    sys.exit(engine.each_case(CASES, prove))
