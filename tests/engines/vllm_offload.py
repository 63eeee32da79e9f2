# SPDX-License-Identifier: Apache-2.0
"""
vllm_offload.py - one vLLM engine on a CPU that stores and loads caches

    python vllm_offload.py JOB.json

runs the requests of a job in an engine of its own and leaves a result beside it: the
tokens, those from the engine's own cache if it is asked again, how many of each prompt
were loaded, the hashes of blocks, and what the engine handed to the operation that
writes its cache, which is the oracle of what is stored.

vLLM's offloading moves blocks by CUDA streams.  HostSpec is its own specification
with memmove in their place; everything else, which decides what lies where in a file,
is vLLM's: pointers, rows, tiers, names.
"""
import ctypes
import dataclasses
import hashlib
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1", "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": HERE,
}
if __name__ == "__main__":
    # before vllm is imported, here and in the processes that it starts
    os.environ.update(SETTINGS)

import torch
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


# ---- blocks without a GPU -----------------------------------------------------------

class Posing(torch.Tensor):
    """Memory of the CPU backend, where a GPU's is asked for."""

    is_cuda = True


class Stream(torch.cpu.Stream):
    """Copies are done when they are asked for, so nothing is ever waited for."""

    def wait_event(self, event):
        pass


class Event:
    def record(self, stream):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 1.0


class Endless(list):
    """A pool that always has one more."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def __bool__(self):
        return True

    def pop(self):
        return self.make()

    def append(self, item):
        pass


def copy(src, dst, sizes, is_src_access_order_any=False):
    for a, b, n in zip(src.tolist(), dst.tolist(), sizes.tolist()):
        ctypes.memmove(b, a, n)


class HostSpec(TieringOffloadingSpec):
    def create_worker(self, kv_caches):
        posing = [dataclasses.replace(t, tensor=t.tensor.as_subclass(Posing))
                  for t in kv_caches.tensors]
        worker = super().create_worker(dataclasses.replace(kv_caches, tensors=posing))
        for handler in (worker._store_handler, worker._load_handler):
            handler._swap_blocks_batch = copy
            handler._stream_pool = Endless(Stream)
            handler._event_pool = Endless(Event)
        return worker

    def get_worker(self, kv_caches):
        if not self._worker:
            self._worker = self.create_worker(kv_caches)
        return self._worker


# ---- what is written to the cache, in each worker -----------------------------------

written, kinds = {}, set()


def watch(worker):
    """Keeps what the engine hands to the operations that write its cache."""
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.mla.cpu_mla import CPUMLAImpl
    attention, latent = ops.cpu_attn_reshape_and_cache, CPUMLAImpl.do_kv_cache_update

    def note(cache, slots, values):
        values = values.detach().clone()
        if values.dtype == torch.bfloat16:
            values = values.view(torch.uint16)
        written.setdefault(cache.data_ptr(), []).append(
            (slots.flatten().tolist(), values.numpy()))

    def see_attention(key, value, key_cache, value_cache, slots, isa, *args, **more):
        kinds.add(isa)
        note(key_cache, slots, torch.stack([key, value], 2))
        return attention(key, value, key_cache, value_cache, slots, isa, *args, **more)

    def see_latent(self, kv_c, k_pe, cache, slots, *args, **more):
        both = torch.cat([kv_c, k_pe.squeeze(1)], -1)
        note(cache, slots, both[:, None, None, :])
        return latent(self, kv_c, k_pe, cache, slots, *args, **more)

    ops.cpu_attn_reshape_and_cache = see_attention
    CPUMLAImpl.do_kv_cache_update = see_latent


def taken(worker):
    """{layer: {slot: values}} since it was last asked for, and the kinds of memory."""
    runner = getattr(worker, "worker", worker).model_runner
    context = runner.vllm_config.compilation_config.static_forward_context
    out = {}
    for name, layer in context.items():
        cache = getattr(layer, "kv_cache", None)
        if isinstance(cache, (list, tuple)):
            cache = cache[0]
        if cache is not None:
            # layers of several groups may lie in one memory, in slots of their own
            out[name] = {slot: v for slots, values in written.get(cache.data_ptr(), [])
                         for slot, v in zip(slots, values) if slot >= 0}
    written.clear()
    return out, sorted(kinds)


def pages(worker, wanted):
    """SHA-256 of the bytes of blocks: wanted are lists of a layer and block ids."""
    runner = getattr(worker, "worker", worker).model_runner
    context = runner.vllm_config.compilation_config.static_forward_context
    out = []
    for layer, blocks in wanted:
        cache = context[layer].kv_cache
        cache = cache[0] if isinstance(cache, (list, tuple)) else cache
        out.append([hashlib.sha256(cache[b].contiguous().view(torch.uint8).numpy()
                                   .tobytes()).hexdigest() for b in blocks])
    return out


def mapped(worker):
    """What vLLM shares between ranks, and leaves behind."""
    with open("/proc/self/maps", encoding="utf-8") as f:
        return sorted({line.split()[-1] for line in f if "/dev/shm/vllm_" in line})


# ---- the engine ------------------------------------------------------------------------

AGAIN = ".again"


class Engine:
    def __init__(self, job):
        from vllm import LLM
        args = dict(model=job["model"], dtype=job["dtype"],
                    block_size=job["block_size"], num_gpu_blocks_override=32,
                    max_model_len=256, max_num_seqs=4, enforce_eager=True,
                    skip_tokenizer_init=True, disable_log_stats=True, seed=0,
                    async_scheduling=False, enable_prefix_caching=True)
        if job["hash"]:
            args["prefix_caching_hash_algo"] = job["hash"]
        if job["tp"] > 1:
            args.update(tensor_parallel_size=job["tp"], distributed_executor_backend="mp")
        if job["connector"]:
            args["kv_transfer_config"] = {"kv_role": "kv_both",
                                          "engine_id": f"engine-{os.getpid()}",
                                          **job["connector"]}
            # ExampleConnector knows one group of layers only
            args["disable_hybrid_kv_cache_manager"] = not job["root"]
        self.salt = job["salt"]
        self.engine = LLM(**args).llm_engine
        self.core = self.engine.engine_core.engine_core
        self.workers = self.core.model_executor
        self.groups = self.core.scheduler.kv_cache_config.kv_cache_groups
        self.workers.collective_rpc(watch)
        self.tokens, self.cached, self.hashes, self.values = {}, {}, {}, {}
        self.kinds, self.plan, self.own = [], [], job["prompts"]
        self.tables, self.pages = {}, {}
        schedule = self.core.scheduler.schedule

        def planned(*args, **more):
            out = schedule(*args, **more)
            self.note(out)
            return out

        self.core.scheduler.schedule = planned

    def note(self, output):
        """Which tokens go where in this step."""
        scheduler = self.core.scheduler
        for name, n in output.num_scheduled_tokens.items():
            request = scheduler.requests[name]
            tables = scheduler.kv_cache_manager.get_block_ids(name)
            # the engine appends eight digits to the names of requests
            short = name.rsplit("-", 1)[0]
            self.tables[short] = [list(t) for t in tables]
            self.plan.append((short, request.num_computed_tokens - n, n, tables))
            self.hashes[short] = [h.hex() for h in request.block_hashes]

    def add(self, name, prompt, tokens):
        from vllm import SamplingParams
        asked = {"prompt_token_ids": prompt}
        if self.salt:
            asked["cache_salt"] = self.salt
        self.engine.add_request(name, asked, SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False))

    def run(self):
        end = time.time() + 200
        while self.engine.has_unfinished_requests():
            for out in self.engine.step():
                self.tokens[out.request_id] = list(out.outputs[0].token_ids)
                self.cached[out.request_id] = out.num_cached_tokens
            if self.plan:
                self.take()
            else:
                # the threads that read files, and other ranks, need the processor
                time.sleep(.005)
            if time.time() > end:
                raise RuntimeError("requests do not end")

    def run_again(self, prompts, tokens):
        """The same prompts from the cache that the engine has computed itself."""
        self.run_alone({f"{name}{AGAIN}": p for name, p in prompts.items()}, tokens)

    def run_alone(self, prompts, tokens):
        """One after the other: the last bits of sums hang on who else is in a batch."""
        for name, prompt in prompts.items():
            self.add(name, prompt, tokens)
            self.run()
            self.look([name] if name in self.own else [])

    def take(self):
        ranks = self.workers.collective_rpc(taken)
        self.kinds = ranks[0][1]
        for name, first, n, tables in self.plan:
            for group, table in zip(self.groups, tables):
                size = group.kv_cache_spec.block_size
                slots = [table[t // size] * size + t % size
                         for t in range(first, first + n)]
                for layer in group.layer_names:
                    at = self.values.setdefault(name, {}).setdefault(layer, {})
                    for t, slot in enumerate(slots, first):
                        at[t] = [values[layer][slot] for values, _ in ranks]
        self.plan.clear()

    def look(self, names):
        """
        The bytes of the blocks that a prompt fills, {request: {layer: {n: ...}}}: of
        requests that were the last to run, as blocks are used again.
        """
        for name in names:
            prompt = self.own[name]
            for group, table in zip(self.groups, self.tables[name]):
                n = (len(prompt) - 1) // group.kv_cache_spec.block_size
                # windows let go of blocks, which the null block stands for then
                held = [(i, b) for i, b in enumerate(table[:n]) if b]
                ranks = self.workers.collective_rpc(pages, args=(
                    [[layer, [b for _, b in held]] for layer in group.layer_names],))
                for at, layer in enumerate(group.layer_names):
                    self.pages.setdefault(name, {})[layer] = {
                        i: [rank[at][k] for rank in ranks]
                        for k, (i, _) in enumerate(held)}

    def drain(self, root):
        """Steps until no more files come: tiers store when the engine does something."""
        seen, same = -1, 0
        while same < 3:
            self.add(f"filler-{time.time_ns()}", [1, 2, 3, 4, 5], 2)
            self.run()
            time.sleep(.3)
            count = sum(len(files) for _, _, files in os.walk(root))
            same = same + 1 if count == seen else 0
            seen = count

    def result(self, path):
        import numpy as np
        arrays = {}
        for name, layers in self.values.items():
            if name not in self.own:
                continue
            for layer, at in layers.items():
                first = min(at)
                assert sorted(at) == list(range(first, first + len(at)))
                # ranks side by side are the heads, but for latents, which all have
                latent = at[first][0].shape[1] == 1 and len(at[first]) == 1
                rows = [at[t][0] if latent else np.concatenate(at[t], 0)
                        for t in sorted(at)]
                arrays[f"{name}|{layer}|{first}"] = np.stack(rows)
        np.savez(path + ".npz", **arrays)
        with open(path, "w", encoding="ascii") as f:
            json.dump({"tokens": {n: self.tokens[n] for n in self.own},
                       "again": {n: self.tokens.get(n + AGAIN) for n in self.own},
                       "cached": {n: self.cached[n] for n in self.own},
                       "hashes": {n: self.hashes[n] for n in self.own},
                       "kinds": self.kinds, "pages": self.pages,
                       "groups": [{"layers": list(g.layer_names),
                                   "block_size": g.kv_cache_spec.block_size}
                                  for g in self.groups]}, f)


def main(path):
    with open(path, encoding="ascii") as f:
        job = json.load(f)
    engine = Engine(job)
    if job["again"]:
        for name, prompt in job["prompts"].items():
            engine.add(name, prompt, job["max_tokens"])
        engine.run()
        engine.look(job["prompts"])
        engine.run_again(job["prompts"], job["max_tokens"])
    else:
        engine.run_alone(job["prompts"], job["max_tokens"])
    if job["root"]:
        engine.drain(job["root"])
    engine.result(job["result"])
    left = sum(engine.workers.collective_rpc(mapped), mapped(None))
    engine.engine.engine_core.shutdown()
    for path in set(left):
        if os.path.exists(path):
            os.unlink(path)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    # by its name, which the processes of other ranks know it by
    import vllm_offload
    vllm_offload.main(sys.argv[1])
