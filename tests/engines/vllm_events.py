# SPDX-License-Identifier: Apache-2.0
"""
vllm_events.py - cache events of a real engine, recorded as contrib/ does, and kvtool why

An engine publishes, the recorder that users get subscribes.  A sound run has no problem;
each hash follows from its tokens by kvtool's rule; what kvtool says of a prompt is what
the engine's own block pool says of its hashes.
"""
import os
import subprocess
import sys
import time

import vllm_engine as engine
import models
from proof import free_port
from plain_files import write_json

RECORDER = os.path.join(engine.CONTRIB, "kvtool_events.py")
BLOCK = 32


class Recorded:
    """An engine that publishes, and the recorder beside it."""

    def __init__(self, proof, family, name, blocks, **more):
        self.proof, self.folder = proof, proof.folder(name)
        self.path = os.path.join(self.folder, "events.msgpack")
        port = free_port()
        with open(os.path.join(self.folder, "recorder.log"), "wb") as log:
            self.recorder = subprocess.Popen(
                [sys.executable, RECORDER, f"tcp://127.0.0.1:{port}", self.path, "kv"],
                stdout=log, stderr=log)
        model, _ = models.make(family, proof.seed, "float32",
                               os.path.join(proof.work, "models"))
        from vllm.config import KVEventsConfig
        self.llm = engine.make(model, "float32", BLOCK, blocks=blocks,
                               enable_prefix_caching=True, kv_events_config=KVEventsConfig(
                                   enable_kv_cache_events=True, publisher="zmq",
                                   endpoint=f"tcp://*:{port}", topic="kv"), **more)
        time.sleep(2)                   # a subscription takes a moment to arrive

    def run(self, prompts, tokens=3):
        """One after the other; and until what is published has been written."""
        for name, ids in prompts.items():
            engine.Run(self.llm, {name: ids}, tokens).finish()

    def end(self):
        size, still = -1, 0
        while still < 4:
            time.sleep(0.5)
            now = os.path.getsize(self.path) if os.path.exists(self.path) else 0
            still, size = still + 1 if now == size else 0, now
        self.recorder.terminate()
        self.recorder.wait()
        return self.path

    def resident(self, prompts):
        """{name: how many of its first blocks the engine's pool has}, by its own hashes."""
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher
        from vllm.v1.request import Request
        from vllm import SamplingParams
        scheduler = engine.core(self.llm).scheduler
        pool = scheduler.kv_cache_manager.block_pool
        hasher = get_request_block_hasher(BLOCK, self.hash_function())
        out = {}
        for name, ids in prompts.items():
            request = Request(request_id=name, prompt_token_ids=ids, pooling_params=None,
                              sampling_params=SamplingParams(max_tokens=1),
                              block_hasher=hasher)
            n = 0
            for block_hash in request.block_hashes:
                if pool.get_cached_block(block_hash, [0]) is None:
                    break
                n += 1
            out[name] = n
        return out

    def hash_function(self):
        from vllm.utils.hashing import get_hash_fn_by_name
        config = self.llm.llm_engine.vllm_config.cache_config
        return get_hash_fn_by_name(config.prefix_caching_hash_algo)


def ask(proof, path, prompts, folder, *more):
    options = []
    for name, ids in prompts.items():
        file = os.path.join(folder, f"{name}.json")
        write_json(file, ids)
        options.append(f"--prompt={name}={file}")
    r = proof.kvtool("why", "--json", *options, *more, path)
    return r, r.json if r.out else {}


def prove(proof, algorithm, on):
    rule = ["--engine=vllm", f"--block-size={BLOCK}", f"--hash={algorithm}"]
    seed = os.environ.get("PYTHONHASHSEED")
    rule += [f"--seed={seed}"] if seed else []
    r = Recorded(proof, "gqa", f"events-{algorithm}", 24,
                 prefix_caching_hash_algo=algorithm)
    first = models.prompt(150, proof.seed)
    prompts = {"a": first, "b": first[:100] + models.prompt(60, 5),
               "c": models.prompt(200, 7), "d": models.prompt(40, 8)}
    r.run(prompts)
    with proof.row("a sound run of cache events has no problem", on) as row:
        more = {f"e{i}": models.prompt(190, 20 + i) for i in range(3)}
        r.run(more)
        prompts |= more
        want = r.resident(prompts)
        path = r.end()
        alone = proof.kvtool("why", "--json", path)
        row.ok(alone.code == 0, "events alone", alone)
        row.ok(alone.json["counts"] == {}, "nothing found, no note", alone)
        said, got = ask(proof, path, prompts, r.folder, *rule)
        row.ok(said.code in (0, 1), "with prompts", said)
        row.equal({p["prompt"]: p["reachable"] for p in got["prompts"]}, want,
                  "what is there of each prompt, as the engine's pool has it")
        row.equal(got["counts"], {}, "each hash is that of its tokens")
        gone = {p["prompt"]: p["why"] for p in got["prompts"]}
        row.ok("evicted" in gone.values(), "some prompt was evicted", gone)
        row.ok(gone["e2"] == "all-there", "the last one is there", gone)
        text = proof.kvtool("why", *rule, f"--prompt={r.folder}/a.json", path)
        row.figure(f"{got['events']} events of {got['blocks']} blocks")
        row.ok("0 cannot be told" in text.out, "all hashes were worked out", text)
    with proof.row("what changes a name is found by the names that are there", on) as row:
        other = {"sha256": "sha256_cbor", "sha256_cbor": "sha256"}[algorithm]
        for wrong, part in (("--seed=7", "seed"), (f"--hash={other}", "hash"),
                            ("--salt=s1", "salt"), ("--block-size=16", "block-size")):
            said, got = ask(proof, path, {"e2": prompts["e2"]}, r.folder, *rule, wrong)
            row.ok(said.code == 1 and part in got["prompts"][0]["near"], wrong, said)


def prove_offload(proof, per_file, on):
    """
    The file tier tells, and its files are looked for.  Where a file has several blocks, each
    is told as if it could be found, and only the last one's name is one of a file.
    """
    import vllm_stores
    import vllm_offload     # noqa: F401: the specification that the engine imports
    root = proof.folder(f"tree-{per_file}")
    said = vllm_stores.offloading(root, per_file, self_describing_kv_events=True)
    said["kv_connector_extra_config"]["secondary_tiers"][0]["enable_kv_events"] = True
    r = Recorded(proof, "gqa", f"offload-{per_file}", 24, kv_transfer_config=said)
    prompts = {"a": models.prompt(150, 1), "b": models.prompt(200, 2),
               "c": models.prompt(90, 3)}
    r.run(prompts, 16)
    r.run({"a": prompts["a"]}, 4)
    time.sleep(1)
    path = r.end()
    with proof.row("files are told of as they are", on) as row:
        alone = proof.kvtool("why", "--json", path)
        row.ok(alone.code == 0, "events alone", alone)
        places = {p["medium"]: p for p in alone.json["media"]}
        row.ok({"GPU", "CPU", "STORAGE"} <= set(places), "in three media", places)
        both = proof.kvtool("why", "--json", "--all", path, root)
        found = both.json
        row.equal(set(found["counts"]) - {"copy-stays", "stored-twice"},
                  {"not-alone"} if per_file > 1 else set(), "what no file has")
        options = ["--engine=vllm", f"--prompt=b={r.folder}/b.json"]
        write_json(f"{r.folder}/b.json", prompts["b"])
        tree = proof.kvtool("why", "--json", *options, root)
        row.ok(tree.code == 0, "each file of a prompt, by its config.json alone", tree)
        wrong = proof.kvtool("why", "--json", *options, "--seed=5", root)
        row.ok(wrong.json["prompts"][0]["near"] == ["seed"], "another seed", wrong)
        row.figure(f"{found['events']} events, {found['counts']}")


def prove_window(proof, on):
    """A group with a window tells of tokens whose blocks it has let go of, to this day."""
    r = Recorded(proof, "window", "window", 64, max_num_batched_tokens=96)
    a = models.prompt(150, 1)
    r.run({"a": a, "b": a[:100] + models.prompt(60, 2), "c": models.prompt(230, 3)}, 20)
    with proof.row("spans that leave out blocks are named", on) as row:
        said = proof.kvtool("why", "--json", "--all", r.end())
        found = said.json["problems"]
        kinds = {p["problem"] for p in found if not p["note"]}
        row.ok(said.code == 1 and "span" in kinds, "a span", said)
        row.ok(kinds <= {"span", "parent-group", "parent-unknown"}, "and nothing else", kinds)
        row.ok(all("group 0" in p["text"] for p in found if p["problem"] == "span"),
               "in the group that has the window", said)
        row.figure(f"{sum(p['problem'] == 'span' for p in found)} spans")


def prove_case(proof, case):
    if case.startswith("offload"):
        n = int(case[-1])
        prove_offload(proof, n, f"offloading, {n} block{'s' if n > 1 else ''} a file")
    elif case == "window":
        prove_window(proof, models.FAMILIES[case])
    else:
        prove(proof, case, f"grouped heads, {case}, 24 blocks")


if __name__ == "__main__":
    cases = ["sha256", "sha256_cbor", "offload:1", "offload:2", "window"]
    sys.exit(engine.each_case(cases, prove_case))
