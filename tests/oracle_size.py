#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_size.py - kvtool size against a second reading

Configs drawn at random, whose layers are walked one by one here, with every byte
counted from shapes.  (Known numbers: golden_size.py)
"""
import os
import random
import sys
import tempfile

from oracle import FULL, kvtool, tap, write_json

rng = random.Random(6)


# ---- a second reading -------------------------------------------------------

def share(units, tp):
    """Units on each rank; 0 if nobody knows."""
    if units % tp == 0:
        return units // tp
    return 1 if tp % units == 0 else 0


def cdiv(a, b):
    return -(-a // b)


class Plan:
    """What one request takes: a list of (bytes of a page, tokens, most blocks)."""

    def __init__(self):
        self.tokens, self.states = [], []


def layers_of(c):
    """One word a layer, by the rules of the family."""
    t, n = c["model_type"], c["num_hidden_layers"]
    if "layer_types" in c:
        out = ["full" if w == "attention" else w.replace("_attention", "")
               for w in c["layer_types"]]
    elif t == "jamba":
        out = ["full" if i % c["attn_layer_period"] == c["attn_layer_offset"] else
               "linear" for i in range(n)]
    elif t == "bamba":
        out = ["full" if i in c["attn_layer_indices"] else "linear" for i in range(n)]
    elif t == "nemotron_h":
        out = [{"M": "linear", "*": "full", "-": "", "E": ""}[x]
               for x in c["hybrid_override_pattern"]]
    elif t == "qwen3_next":
        out = ["full" if i % c["full_attention_interval"] ==
               c["full_attention_interval"] - 1 else "linear" for i in range(n)]
    elif t == "kimi_linear":
        out = ["full" if i + 1 in c["linear_attn_config"]["full_attn_layers"] else
               "linear" for i in range(n)]
    elif t == "lfm2":
        out = ["full" if i in c["full_attn_idxs"] else "linear" for i in range(n)]
    elif t == "minimax":
        out = ["linear" if i % 2 else "full" for i in range(n)]
    elif t == "gemma2":
        out = ["full" if i % 2 else "sliding" for i in range(n)]
    elif t == "gemma3_text":
        out = ["sliding" if (i + 1) % c["sliding_window_pattern"] else "full"
               for i in range(n)]
    elif t == "qwen3":
        out = ["sliding" if c["use_sliding_window"] and i >= c["max_window_layers"] else
               "full" for i in range(n)]
    elif t == "falcon_h1":
        out = ["both"] * n
    else:
        out = ["full"] * n
    keep = n - c.get("num_kv_shared_layers", 0)
    return [w if i < keep else "" for i, w in enumerate(out)]


def state_bytes(c, tp):
    """Bytes of the conv and the SSM state of a layer of one rank, or None."""
    t = c["model_type"]
    # the model's own type, but in nemotron_h
    ssm = {"float32": 4, "bfloat16": 2}[
        c.get("mamba_ssm_cache_dtype", "float32") if t == "nemotron_h" else "bfloat16"]
    if t == "jamba":
        inter = c["mamba_expand"] * c["hidden_size"]
        if inter % tp:
            return None
        return (inter // tp * (c["mamba_d_conv"] - 1) * 2 +
                inter // tp * c["mamba_d_state"] * ssm)
    if t == "kimi_linear":
        a = c["linear_attn_config"]
        if a["num_heads"] % tp:
            return None
        heads = a["num_heads"] // tp
        return (3 * heads * a["head_dim"] * (a["short_conv_kernel_size"] - 1) * 2 +
                heads * a["head_dim"] ** 2 * 4)
    if t == "lfm2":
        return c["hidden_size"] // tp * (c["conv_L_cache"] - 1) * 2
    if t == "minimax":
        return c["num_attention_heads"] // tp * c["head_dim"] ** 2 * 2
    if t == "qwen3_next":
        nk, nv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        if nk % tp or nv % tp:
            return None
        rows = (2 * nk * dk + nv * dv) // tp
        return (rows * (c["linear_conv_kernel_dim"] - 1) * 2 + nv // tp * dv * dk * ssm)
    if t == "nemotron_h":
        names = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size",
                 "conv_kernel")
    else:
        names = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state",
                 "mamba_d_conv")
    heads, dim, groups, n, kernel = (c[x] for x in names)
    if dim == "auto":
        dim = c["mamba_expand"] * c["hidden_size"] // heads
    if heads % tp or not share(groups, tp):
        return None
    rows = heads // tp * dim + 2 * share(groups, tp) * n
    return rows * (kernel - 1) * 2 + heads // tp * dim * n * ssm


def plan_of(c, tp, block, elem):
    """(block size, Plan), or None where the ranks cannot be served."""
    plan, words = Plan(), layers_of(c)
    if c["model_type"].startswith("deepseek"):
        row = c["kv_lora_rank"] + c["qk_rope_head_dim"]
        for _ in words:
            plan.tokens.append((row * elem * block, block, 0))
            if c["model_type"] == "deepseek_v32":
                plan.tokens.append((132 * block, block, 0))
        return block, plan
    latent = c["model_type"] == "kimi_linear"
    heads = share(c["num_key_value_heads"], tp)
    attention = any(w in ("full", "sliding", "chunked", "both") for w in words)
    recurrent = any(w in ("linear", "mamba", "both") for w in words)
    state = state_bytes(c, tp) if recurrent else 0
    if (attention and not heads and not latent) or state is None:
        return None
    token = 576 * elem if latent else heads * c["head_dim"] * 2 * elem
    if attention and recurrent:
        step = max(block, 128 if latent else 16)
        # also where a smaller block would hold the state
        block = max(block, next(n for n in range(step, 1 << 30, step) if n * token >= state))
        state = block * token
    for w in words:
        if w in ("full", "both"):
            plan.tokens.append((token * block, block, 0))
        if w == "sliding":
            # the most blocks that w tokens in a row can touch, by trying
            most = max((s + c["sliding_window"] - 1) // block - s // block + 1
                       for s in range(block))
            plan.tokens.append((token * block, block, most))
        if w == "chunked":
            most = max((s + c["attention_chunk_size"] - 1) // block - s // block + 1
                       for s in range(0, block * c["attention_chunk_size"],
                                      c["attention_chunk_size"]))
            plan.tokens.append((token * block, block, most))
        if w in ("linear", "mamba", "both"):
            plan.states.append(state)
    return block, plan


def request(plan, tokens):
    total = sum(plan.states)
    for page, block, most in plan.tokens:
        blocks = cdiv(tokens, block)
        total += page * (min(blocks, most) if most else blocks)
    return total


def made_up():
    pick = rng.choice
    n = rng.randint(1, 40)
    c = {"num_hidden_layers": n, "torch_dtype": "bfloat16",
         "num_attention_heads": 96, "num_key_value_heads": pick([1, 2, 3, 4, 8, 32]),
         "head_dim": pick([64, 80, 128, 256]), "hidden_size": pick([1024, 2048, 4096])}
    t = c["model_type"] = pick(["llama", "qwen3", "gemma3_text", "gpt_oss", "jamba",
                                "nemotron_h", "bamba", "falcon_h1", "qwen3_next",
                                "deepseek_v3", "deepseek_v32", "granitemoehybrid",
                                "llama4_text", "kimi_linear", "lfm2", "minimax",
                                "gemma2"])
    window = pick([1, 5, 16, 128, 1000, 1024])
    if t == "llama":
        c["num_kv_shared_layers"] = rng.randint(0, n - 1)
    elif t == "qwen3":
        c.update(use_sliding_window=pick([True, False]), sliding_window=window,
                 max_window_layers=rng.randint(0, n))
    elif t == "gemma3_text":
        c.update(sliding_window=window, sliding_window_pattern=rng.randint(1, 7))
    elif t == "gemma2":
        c.update(sliding_window=window)
    elif t == "kimi_linear":
        full = sorted(rng.sample(range(1, n + 1), rng.randint(0, n)))
        c.update(kv_lora_rank=512, qk_rope_head_dim=64, linear_attn_config={
            "full_attn_layers": full, "num_heads": pick([16, 32]), "head_dim": 128,
            "kda_layers": [i for i in range(1, n + 1) if i not in full],
            "short_conv_kernel_size": pick([3, 4])})
    elif t == "lfm2":
        c.update(conv_L_cache=pick([3, 4]),
                 full_attn_idxs=sorted(rng.sample(range(n), rng.randint(0, n))))
    elif t == "minimax":
        pass
    elif t == "gpt_oss":
        c.update(sliding_window=window, layer_types=[
            pick(["full_attention", "sliding_attention"]) for _ in range(n)])
    elif t == "llama4_text":
        c.update(attention_chunk_size=window, layer_types=[
            pick(["full_attention", "chunked_attention"]) for _ in range(n)])
    elif t == "jamba":
        period = rng.randint(1, 9)
        c.update(attn_layer_period=period, attn_layer_offset=rng.randrange(period),
                 mamba_d_state=16, mamba_d_conv=pick([2, 4]), mamba_expand=2)
    elif t == "qwen3_next":
        c.update(full_attention_interval=rng.randint(1, 5),
                 linear_num_key_heads=pick([4, 16]), linear_num_value_heads=pick([8, 32]),
                 linear_key_head_dim=64, linear_value_head_dim=pick([64, 128]),
                 linear_conv_kernel_dim=4)
    elif t.startswith("deepseek"):
        c.update(kv_lora_rank=pick([256, 512]), qk_rope_head_dim=64, index_head_dim=128)
    elif t == "nemotron_h":
        c.update(hybrid_override_pattern="".join(pick("M*-E") for _ in range(n - 1)) + "M",
                 mamba_num_heads=pick([16, 64]), mamba_head_dim=64, ssm_state_size=128,
                 n_groups=pick([1, 2, 8]), conv_kernel=4,
                 mamba_ssm_cache_dtype=pick(["float32", "bfloat16"]))
    else:
        heads = pick([16, 64])
        c.update(mamba_n_heads=heads, mamba_d_head="auto", mamba_n_groups=pick([1, 4]),
                 mamba_d_state=pick([128, 256]), mamba_d_conv=4, mamba_expand=2)
        if t == "bamba":
            c["attn_layer_indices"] = sorted(rng.sample(range(n), rng.randint(0, n)))
        if t == "granitemoehybrid":
            c["layer_types"] = [pick(["mamba", "attention", "full_attention"])
                                for _ in range(n)]
    return c


def check(path, c):
    """None, or what is wrong."""
    tps, block = [1, 2, 4, 8, 16], rng.choice([16, 32, 64])
    dtype, elem = rng.choice([("bfloat16", 2), ("fp8_e4m3", 1), ("float32", 4)])
    tokens, memory = rng.randint(1, 5000), rng.choice([1 << 20, 1 << 30, 1 << 33])
    requests = rng.randint(1, 4)
    r = kvtool("size", "--json", f"--cache-dtype={dtype}", f"--block-size={block}",
               f"--tokens={tokens}", f"--memory={memory}", f"--requests={requests}",
               path)
    first = plan_of(c, 1, block, elem)
    if not first[1].tokens and not first[1].states:
        return None if r.code == 3 else r
    if r.code:
        return r
    rows = {row["tp"]: row for row in r.json["sizes"]}
    for tp in tps:
        want, row = plan_of(c, tp, block, elem), rows[tp]
        if want is None or row["error"]:
            if want is not None or not row["error"]:
                return f"tp {tp}: {want and want[0]}, {row['error']}"
            continue
        if (row["block_size"], row["request_bytes"]) != \
           (want[0], request(want[1], tokens)):
            return (f"tp {tp}: block {row['block_size']}, request {row['request_bytes']}; "
                    f"here {want[0]}, {request(want[1], tokens)}")
        sums = (requests * request(want[1], tokens), tp * requests * request(want[1], tokens))
        if (row["requests_bytes"], row["all_ranks_requests_bytes"]) != sums:
            return f"tp {tp}: {requests} requests take {row['requests_bytes']}; here {sums}"
        each, fit = memory // requests, row["tokens"]
        if not row["fits"]:
            if request(want[1], 0) <= each:
                return f"tp {tp}: nothing fits; here {request(want[1], 0)} of {each}"
        elif fit is None:
            if request(want[1], 1 << 30) > each:
                return f"tp {tp}: not any number fits in {each}"
        elif request(want[1], fit) > each or request(want[1], fit + 1) <= each:
            return f"tp {tp}: {fit} tokens are not the most in {each}"
    return None


wrong = []
with tempfile.TemporaryDirectory() as folder:
    config_path = os.path.join(folder, "config.json")
    RUNS = 1500 if FULL else 250
    for _ in range(RUNS):
        config = made_up()
        write_json(config_path, config)
        why = check(config_path, config)
        if why:
            wrong.append(f"{config}: {why}")
tap.ok(not wrong, f"{RUNS} made-up models", "\n".join(wrong))
sys.exit(tap.done())
