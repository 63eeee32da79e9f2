# SPDX-License-Identifier: Apache-2.0
# A request begins in one vLLM engine and goes on in another; see vllm_migrate.sh.
# usage: vllm_migrate.py MODEL BLOCK_SIZE capture|continue PATH
import os
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"   # the scheduler is in this process
import kvtool_capture
from vllm import LLM, SamplingParams

if __name__ == "__main__":      # workers of some versions import this file
    model, block_size, role, path = sys.argv[1:]
    llm = LLM(model, block_size=int(block_size), max_model_len=512, enforce_eager=True,
              skip_tokenizer_init=True, async_scheduling=False,
              num_gpu_blocks_override=32)
    llm.llm_engine.add_request("story", {"prompt_token_ids": list(range(100))},
                               SamplingParams(temperature=0, max_tokens=40,
                                              ignore_eos=True, detokenize=False))
    llm.llm_engine.step()
    if role == "capture":
        kvtool_capture.capture_vllm(llm, path)
    else:
        kvtool_capture.restore_vllm(llm, path)   # in place of what it computed itself
    while llm.llm_engine.has_unfinished_requests():
        for out in llm.llm_engine.step():
            tokens = out.outputs[0].token_ids
    print(*tokens)
