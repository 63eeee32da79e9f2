# SPDX-License-Identifier: Apache-2.0
"""
vllm_engine.py - a vLLM engine on a CPU whose cache can be looked at

One engine a process.  What the engine hands to the operation that writes its cache is
recorded, and is the oracle of what the cache holds.
"""
import os
import sys

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


def runner(llm):
    worker = core(llm).model_executor.driver_worker
    return getattr(worker, "worker", worker).model_runner


def caches(llm):
    """{layer name: tensor, or list of states}, as the layers use them."""
    out = {}
    context = runner(llm).vllm_config.compilation_config.static_forward_context
    for name, layer in context.items():
        cache = getattr(layer, "kv_cache", None)
        if isinstance(cache, (list, tuple)) and len(cache) == 1:
            cache = cache[0]
        if cache is not None:
            out[name] = cache
    return out


def clear(llm):
    """Nothing is left of what the engine computed."""
    for cache in caches(llm).values():
        for tensor in cache if isinstance(cache, (list, tuple)) else [cache]:
            tensor.zero_()


class Written:
    """
    What the engine handed to the operations that write its cache: {address of a
    layer's cache: {slot: (key, value)}}, or {slot: latent}.  Groups of layers may lie
    in the same memory, but no slot belongs to two of them.
    """

    def __init__(self):
        from vllm import _custom_ops as ops
        self.at = {}
        self._watch(ops, "cpu_attn_reshape_and_cache", self._attention)
        self._watch(ops, "concat_and_cache_mla", self._latent)
        from vllm.v1.attention.backends.mla import cpu_mla
        for item in vars(cpu_mla).values():
            if "do_kv_cache_update" in getattr(item, "__dict__", {}):
                self._watch(item, "do_kv_cache_update",
                            lambda _, *args: self._latent(*args))

    @staticmethod
    def _watch(module, name, see):
        real = getattr(module, name, None)
        if real is None:
            return

        def watched(*args, **more):
            see(*args, **more)
            return real(*args, **more)

        setattr(module, name, watched)

    def _attention(self, key, value, key_cache, value_cache, slots, *_, **__):
        held = self.at.setdefault(key_cache.data_ptr(), {})
        for i, slot in enumerate(slots.tolist()):
            if slot >= 0:
                held[slot] = (key[i].clone(), value[i].clone())

    def _latent(self, kv_c, k_pe, kv_cache, slots, *_, **__):
        import torch
        held = self.at.setdefault(kv_cache.data_ptr(), {})
        for i, slot in enumerate(slots.tolist()):
            if slot >= 0:
                held[slot] = torch.cat([kv_c[i].flatten(), k_pe[i].flatten()]).clone()
