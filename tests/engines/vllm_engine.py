# SPDX-License-Identifier: Apache-2.0
"""
vllm_engine.py - a vLLM engine on a CPU whose cache can be looked at

One engine a process.  What the engine hands to the operation that writes its cache is
recorded, and is the oracle of what the cache holds.
"""
import os
import subprocess
import sys

from proof import Proof

HERE = os.path.dirname(os.path.abspath(__file__))
CONTRIB = os.path.join(HERE, "..", "..", "contrib")
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1", "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": os.pathsep.join([HERE, CONTRIB]),
}

# before vllm is imported, here and in the processes that it starts
for key, value in SETTINGS.items():
    os.environ.setdefault(key, value)
sys.path[:0] = [HERE, CONTRIB]


def each_case(cases, prove):
    """
    main() of a script: each case in a process of its own, which has it in KVT_CASE and
    does prove(proof, case).  That returns True where a case proves nothing by itself.
    """
    case = os.environ.get("KVT_CASE")
    if case is None:
        failed = 0
        for case in cases:
            p = subprocess.run([sys.executable, *sys.argv], check=False,
                               env={**os.environ, "KVT_CASE": case})
            if p.returncode:
                print(f"not ok - {case} ended with {p.returncode}", flush=True)
                failed = 1
        return failed
    import vllm
    proof = Proof("vLLM", vllm.__version__)
    nothing = prove(proof, case)
    code = proof.done()
    sys.stdout.flush()
    # the engine's threads need not be waited for
    os._exit(0 if nothing else code)


def make(model, dtype, block_size=None, blocks=24, **more):
    """An LLM without tokenizer; block_size None: the engine's own choice."""
    from vllm import LLM
    if block_size:
        more["block_size"] = block_size
    args = {"max_model_len": 256, "max_num_seqs": 4, "enable_prefix_caching": False,
            "async_scheduling": False, "num_gpu_blocks_override": blocks, **more}
    return LLM(model=model, dtype=dtype, skip_tokenizer_init=True, enforce_eager=True,
               disable_log_stats=True, seed=0, **args)


class Run:
    """Requests in one engine, step by step."""

    def __init__(self, llm, prompts, tokens):
        from vllm import SamplingParams
        self.engine, self.out = llm.llm_engine, {}
        how = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True,
                             detokenize=False)
        for name, ids in prompts.items():
            self.engine.add_request(name, {"prompt_token_ids": ids}, how)

    def step(self, n=1):
        for _ in range(n):
            for said in self.engine.step():
                self.out[said.request_id] = list(said.outputs[0].token_ids)
        return self

    def finish(self):
        while self.engine.has_unfinished_requests():
            self.step()
        return self.out


def core(llm):
    return llm.llm_engine.engine_core.engine_core


def everywhere(llm, function, *args):
    """What function(worker, *args) returns in the process of each rank."""
    return core(llm).model_executor.collective_rpc(function, args=args)


def _caches(worker):
    """{layer name: tensor, or list of states}, as the layers of a worker use them."""
    out = {}
    context = worker.model_runner.vllm_config.compilation_config.static_forward_context
    for name, layer in context.items():
        cache = getattr(layer, "kv_cache", None)
        if isinstance(cache, (list, tuple)) and len(cache) == 1:
            cache = cache[0]
        if cache is not None:
            out[name] = cache
    return out


def _clear(worker):
    for cache in _caches(worker).values():
        for tensor in cache if isinstance(cache, (list, tuple)) else [cache]:
            tensor.zero_()


def clear(llm):
    """Nothing is left of what the engine computed."""
    everywhere(llm, _clear)


# ---- what the engine hands to the operations that write its cache -------------------

# {address of a layer's cache: {slot: (key, value)}}, or {slot: latent}, in a worker.
# Groups of layers may lie in the same memory, but no slot belongs to two of them.
_WRITTEN = {}


def _watch_one(module, name, see):
    real = getattr(module, name, None)
    if real is None:
        return

    def watched(*args, **more):
        see(*args, **more)
        return real(*args, **more)

    setattr(module, name, watched)


def _see_attention(key, value, key_cache, value_cache, slots, *_, **__):
    held = _WRITTEN.setdefault(key_cache.data_ptr(), {})
    for i, slot in enumerate(slots.tolist()):
        if slot >= 0:
            held[slot] = (key[i].clone(), value[i].clone())


def _see_latent(kv_c, k_pe, kv_cache, slots, *_, **__):
    import torch
    held = _WRITTEN.setdefault(kv_cache.data_ptr(), {})
    for i, slot in enumerate(slots.tolist()):
        if slot >= 0:
            held[slot] = torch.cat([kv_c[i].flatten(), k_pe[i].flatten()]).clone()


def _watch(_):
    from vllm import _custom_ops as ops
    _watch_one(ops, "cpu_attn_reshape_and_cache", _see_attention)
    _watch_one(ops, "concat_and_cache_mla", _see_latent)
    try:
        from vllm.v1.attention.backends.mla import cpu_mla
    except ImportError:         # before vLLM 0.30
        return
    for item in vars(cpu_mla).values():
        if "do_kv_cache_update" in getattr(item, "__dict__", {}):
            _watch_one(item, "do_kv_cache_update", lambda _, *args: _see_latent(*args))


def _fetch(worker):
    written, states = {}, {}
    for name, cache in _caches(worker).items():
        if isinstance(cache, (list, tuple)):
            states[name] = [tensor.clone() for tensor in cache]
        else:
            written[name] = _WRITTEN.get(cache.data_ptr(), {})
    return written, states


class Written:
    """The oracle: what the engine wrote, from the start of this on."""

    def __init__(self, llm):
        self.llm = llm
        everywhere(llm, _watch)

    def fetch(self):
        """{layer: {slot: (key, value) or latent}}, {layer: [states]}; of rank 0."""
        return everywhere(self.llm, _fetch)[0]
