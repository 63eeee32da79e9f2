# SPDX-License-Identifier: Apache-2.0
"""
vllm_tokens.py - caches of a running vLLM go through kvtool and back, and the engine
goes on with the same tokens

Each case is an engine in a process of its own: this script runs itself with --case.
"""
import os
import sys

import vllm_engine as engine
import models
import page
from plain_files import read_json, write_json

# name: family, element type, type of the cache, tokens of a block (0: the engine's)
CASES = {
    "gqa-fp32": ("gqa", "float32", "auto", 32),
    "gqa-bf16": ("gqa", "bfloat16", "auto", 64),
    "gqa-fp8": ("gqa", "bfloat16", "fp8_e4m3", 32),
    "mqa-fp32": ("mqa", "float32", "auto", 64),
    "mla-bf16": ("mla", "bfloat16", "auto", 0),
    "window-fp32": ("window", "float32", "auto", 32),
    "mamba-fp32": ("mamba", "float32", "auto", 0),
    "gdn-bf16": ("gdn", "bfloat16", "auto", 0),
}
# what a version cannot run without a GPU: its first two numbers, cases and why
NOT_HERE = {
    "0.26": {"mla-bf16": "this version has no latent attention on a CPU",
             "mamba-fp32": "this version asks for Triton on a CPU",
             "gdn-bf16": "this version mixes types on a CPU and stops"},
    "0.22": {"mla-bf16": "this version has no latent attention on a CPU",
             "mamba-fp32": "this version does not know the name of the layers"},
}
PROMPTS = (150, 50)
NEW_TOKENS = 60
STEPS = 4

FAULTS = ["swap-heads", "copy-head", "swap-heads-slots", "swap-kv", "split-kv",
          "rope-pairs", "x-packing", "shift-tokens", "shift-blocks", "stale-block",
          "wrong-layer", "zero-block", "zero-tail", "byte-order", "flip-bits,count=64",
          "scale,factor=2", "conv-order"]


def words(case):
    family, dtype, cache, block = CASES[case]
    short = {"float32": "fp32", "bfloat16": "bf16"}[dtype]
    return f"{models.FAMILIES[family]}, {short if cache == 'auto' else cache}"


def prompts(seed):
    return {f"req-{i}": models.prompt(n + 3 * seed, 100 * seed + i)
            for i, n in enumerate(PROMPTS)}


def start(proof, case, block=None, **more):
    """The engine of a case, and its model's path and shape."""
    family, dtype, cache, own = CASES[case]
    path, shape = models.make(family, proof.seed, dtype, os.path.join(proof.work, "models"))
    if cache != "auto":
        more["kv_cache_dtype"] = cache
    return engine.make(path, dtype, block or own, **more), path, shape


def bits(array):
    """Elements as integers of their size: NaN is a value like others."""
    import numpy
    kind = {1: numpy.uint8, 2: numpy.uint16, 4: numpy.uint32}[array.dtype.itemsize]
    return numpy.ascontiguousarray(array).view(kind)


def numpy_of(tensor):
    """A tensor's elements as integers."""
    import torch
    tensor = tensor.detach().contiguous()
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return bits(tensor.view(kind).numpy())


# ---- what kvtool makes of a capture ----------------------------------------------

class Plain:
    """A dump as blocks of tokens, by kvtool relayout --to=nhd."""

    def __init__(self, proof, dump, folder):
        import kvtool_capture
        path = os.path.join(folder, "plain.safetensors")
        proof.must("relayout", "-f", "-q", "--to=nhd", "-o", path, dump)
        self.manifest, self.data = kvtool_capture.read(path)

    def tokens(self, group, request, kind):
        """
        [(token, [layers, heads, content])] of those that the request needs: kind is the
        type of integers to read elements as.
        """
        n, first = group["sizes"], 0
        tokens = self.manifest["num_tokens"][request]
        window = group.get("window")
        if group["kind"] == "sliding_window":
            first = max(0, tokens - window + 1)
        content = n.get("content") or 2 * n["head_dim"]
        cells = self.data[group["id"]].view(kind).reshape(
            n["layers"], n["num_blocks"], n["block_size"], n["num_kv_heads"], content)
        ids = group.get("block_ids", range(n["num_blocks"]))
        place = {b: i for i, b in enumerate(ids)}
        table = group["block_table"][request]
        for t in range(first, tokens):
            block = place[table[t // n["block_size"]]]
            yield t, cells[:, block, t % n["block_size"]]


def compare_written(row, plain, written, tables):
    """Every live element against what the engine handed to its cache."""
    import numpy
    import torch
    written, states = written.fetch()
    for group in plain.manifest["groups"]:
        if group["kind"] in ("mamba_conv", "mamba_ssm"):
            compare_states(row, plain, group, states, tables)
            continue
        number = tables["number"](group["layer_names"][0])
        size = {"float32": 4, "bfloat16": 2}.get(group["dtype"], 1)
        kind = {4: numpy.uint32, 2: numpy.uint16, 1: numpy.uint8}[size]
        for request in group["block_table"]:
            bad = counted = 0
            for t, cells in plain.tokens(group, request, kind):
                real = tables["ids"][request][number]
                block = tables["sizes"][number]
                slot = real[t // block] * block + t % block
                for name, cell in zip(group["layer_names"], cells):
                    held = written[name][slot]
                    if isinstance(held, tuple):
                        held = torch.cat([held[0], held[1]], -1)
                    if size == 1:
                        bad += fp8_off(cell, held)
                    else:
                        bad += int((numpy_of(held).reshape(cell.shape) != cell).sum())
                    counted += cell.size
            row.ok(bad == 0 and counted, f"{group['kind']}, {request}: {counted} elements",
                   f"{bad} of {counted} differ")


def fp8_off(cell, held):
    """
    How many codes are further than one from the rounded value: the engine truncates.
    """
    import torch
    want = held.to(torch.float8_e4m3fn).view(torch.uint8).reshape(cell.shape).numpy()
    step = abs((cell.astype(int) & 127) - (want.astype(int) & 127))
    return int(((step > 1) | ((cell ^ want) & 128 != 0) & (step + (cell & 127) > 1)).sum())


def compare_states(row, plain, group, states, tables):
    """Recurrent states against the views that the engine's layers have of them."""
    number = tables["number"](group["layer_names"][0])
    n = group["sizes"]
    which = 0 if group["kind"] == "mamba_conv" else 1
    for i, name in enumerate(group["layer_names"]):
        tensor = states[name][which]
        for request, table in group["block_table"].items():
            place = group["block_ids"].index(table[-1])
            data = plain.data[group["id"]].reshape(n["layers"], n["num_blocks"], -1)
            have = data[i, place]
            real = tables["ids"][request][number][0]
            row.ok(have.tobytes() == numpy_of(tensor[real]).tobytes() and have.any(),
                   f"{group['kind']} of {name}, {request}: {have.size} bytes")


def real_tables(llm):
    """The scheduler's own tables, by the names that users gave."""
    scheduler = engine.core(llm).scheduler
    groups = scheduler.kv_cache_config.kv_cache_groups
    return {
        "ids": {r.request_id.rsplit("-", 1)[0]:
                scheduler.kv_cache_manager.get_block_ids(r.request_id)
                for r in scheduler.running},
        "sizes": [g.kv_cache_spec.block_size for g in groups],
        "number": lambda name: [name in g.layer_names for g in groups].index(True)}


def compare_forward(row, plain, path, dtype):
    """Keys and values against a forward pass of transformers."""
    import numpy
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=getattr(torch, dtype), attn_implementation="eager").eval()
    worst = most = 0.0
    for request, ids in plain.manifest["token_ids"].items():
        with torch.no_grad():
            cache = model(torch.tensor([ids]), use_cache=True).past_key_values
        for group in plain.manifest["groups"]:
            for t, cells in plain.tokens(group, request, numpy.float32):
                for number, cell in zip(group["layer_ids"], cells):
                    layer = cache.layers[number]
                    at = t - len(ids) + layer.keys.shape[2]
                    want = torch.cat([layer.keys[0, :, at], layer.values[0, :, at]], -1)
                    worst = max(worst, float(numpy.abs(want.numpy() - cell).max()))
                    most = max(most, float(want.abs().max()))
        row.ok(worst <= 2e-4 * max(most, 1), f"{request}: largest difference {worst:.1e} of "
               f"values up to {most:.1f}")
    row.figure(f"largest difference {worst:.1e}")


# ---- chains ----------------------------------------------------------------------

def chain(proof, dump, out, block):
    """Through layouts, block sizes and formats and back to what the engine has."""
    import kvtool_capture
    folder = os.path.dirname(out)
    manifest, _ = kvtool_capture.read(dump)
    groups = manifest["groups"]
    kinds = {g["kind"] for g in groups}
    step = iter(range(100))

    def name(ending):
        return os.path.join(folder, f"chain{next(step)}.{ending}")

    ran = 0

    def run(command, *args, ending="h5"):
        nonlocal ran, dump
        to = name(ending)
        proof.must(command, "-f", "-q", *args, *([dump, to] if command == "convert" else
                                                 ["-o", to, dump]))
        dump, ran = to, ran + 1

    run("convert")
    if kinds == {"mla"}:
        run("relayout", "--to=mla-cross", "--verify")
        run("reblock", f"--block-size={block * 2}", "--stale=zero", ending="safetensors")
        run("relayout", "--to=mla")
        run("reblock", f"--block-size={block}", "--stale=zero", "--verify")
    elif kinds & {"mamba_conv"}:
        run("relayout", "--to=hnd", "--verify", ending="safetensors")
        run("convert")
    else:
        run("relayout", "--to=kv-first-nhd", "--verify")
        run("reblock", f"--block-size={block // 2}", "--verify", ending="safetensors")
        run("reblock", f"--block-size={block * 2}", "--stale=zero", "--verify")
        run("relayout", "--to=bhlsc" if len(groups) == 1 else "--to=hnd")
        run("reblock", f"--block-size={block}", "--stale=zero")
    layout = [g["layout"] for g in groups if g["kind"] not in ("mamba_conv", "mamba_ssm")]
    run("relayout", f"--to={layout[0]}", "--verify", ending="safetensors")
    os.replace(dump, out)
    return ran


def prove_engine(proof, case):
    """What one engine can prove."""
    import kvtool_capture
    family, dtype, cache, _ = CASES[case]
    llm, path, _ = start(proof, case)
    written = engine.Written(llm)
    folder = proof.folder(case)
    base = os.path.join(folder, "cap")
    dump = f"{base}.rank0.safetensors"
    asked, on = prompts(proof.seed), words(case)
    reference = engine.Run(llm, asked, NEW_TOKENS).finish()

    def begun(steps=STEPS):
        engine.clear(llm)
        return engine.Run(llm, asked, NEW_TOKENS).step(steps)

    # windows have passed some blocks by then
    steps = 45 if family == "window" else STEPS
    run = begun(steps)
    kvtool_capture.capture_vllm(llm, base)
    with proof.row("captured elements are what the engine wrote", on) as row:
        plain = Plain(proof, dump, folder)
        row.equal(proof.kvtool("fsck", dump).code, 0, "fsck is content")
        compare_written(row, plain, written, real_tables(llm))
    if dtype == "float32" and family in ("gqa", "mqa", "window"):
        with proof.row("captured elements are those of a forward pass of transformers",
                       on) as row:
            compare_forward(row, plain, path, dtype)
    sizes = [g["sizes"] for g in kvtool_capture.read(dump)[0]["groups"]]
    block = sizes[-1]["block_size"]
    with proof.row("zeroed caches change the tokens", on) as row:
        engine.clear(llm)
        row.ok(run.finish() != reference, "the engine goes on with other tokens")
    run = begun()
    kvtool_capture.capture_vllm(llm, base)
    with proof.row("through a chain of commands and back: identical tokens", on) as row:
        out = os.path.join(folder, "back.rank0.safetensors")
        n = chain(proof, dump, out, block)
        row.equal(proof.kvtool("diff", "-q", dump, out).code, 0, "diff finds nothing")
        engine.clear(llm)
        kvtool_capture.restore_vllm(llm, out[:-len(".rank0.safetensors")])
        got = run.finish()
        for name in asked:
            row.equal(got[name], reference[name], f"{name}: {NEW_TOKENS} tokens")
        row.figure(f"{n} commands")
    prove_faults(proof, case, llm, begun, base, reference, folder)


def prove_faults(proof, case, llm, begun, base, reference, folder):
    import kvtool_capture
    dump, bad = f"{base}.rank0.safetensors", os.path.join(folder, "bad")
    changed = planted = 0
    with proof.row("planted faults are named by diff", words(case)) as row:
        for fault in FAULTS:
            run = begun()
            kvtool_capture.capture_vllm(llm, base)
            wrong = f"{bad}.rank0.safetensors"
            r = proof.kvtool("mutate", "-f", "-q", f"--fault={fault}",
                             f"--seed={proof.seed}", "-o", wrong, dump)
            if r.code in (3, 4):        # this cache cannot have that fault
                run.finish()
                continue
            name = fault.split(",")[0]
            row.equal(r.code, 0, f"{name}: planted")
            r = proof.kvtool("diff", dump, wrong)
            row.ok(r.code == 1 and r.out.strip(), f"{name}: diff", r)
            kvtool_capture.restore_vllm(llm, bad)
            planted += 1
            changed += run.finish() != reference
        row.ok(changed, f"{changed} of {planted} faults change the tokens")
        row.figure(f"{changed} of {planted} change the tokens")


# ---- between engines -------------------------------------------------------------

def leave(proof, case, block, folder, name, **more):
    """A process that captures a run and goes on with it: its tokens are in a file."""
    import kvtool_capture
    llm, _, _ = start(proof, case, block, **more)
    asked = prompts(proof.seed)
    run = engine.Run(llm, asked, NEW_TOKENS).step(STEPS)
    kvtool_capture.capture_vllm(llm, os.path.join(folder, name))
    write_json(os.path.join(folder, f"{name}.tokens"), run.finish())


def enter(proof, case, block, folder, came, kvtool_args, on, **more):
    """A process that goes on with what another one left."""
    import kvtool_capture
    llm, _, _ = start(proof, case, block, **more)
    asked = prompts(proof.seed)
    ranks = more.get("tensor_parallel_size", 1)
    theirs = read_json(os.path.join(folder, f"{came}.tokens"))
    with proof.row("taken over by an engine of another deployment: identical tokens",
                   on) as row:
        mine = engine.Run(llm, asked, NEW_TOKENS).finish()
        run = engine.Run(llm, asked, NEW_TOKENS).step(STEPS)
        into = os.path.join(folder, f"into-{came}")
        for rank in range(ranks):
            out = f"{into}.rank{rank}.safetensors"
            for args in kvtool_args(rank, out):
                proof.must(*args)
        engine.clear(llm)
        kvtool_capture.restore_vllm(llm, into)
        got = run.finish()
        for name in asked:
            # where the two engines agree with each other, so must this one
            agree = next((i for i, (a, b) in enumerate(zip(mine[name], theirs[name]))
                          if a != b), NEW_TOKENS)
            row.ok(agree > STEPS and got[name][:agree] == mine[name][:agree],
                   f"{name}: {agree} of {NEW_TOKENS} tokens, as far as the engines agree",
                   f"got {got[name]}\nwant {mine[name]}")
        row.figure("the engines agree on all" if mine == theirs else
                   "as far as the engines agree")


def prove_migration(proof, case):
    """LEFT>ENTERED: blocks of 32 and 64 tokens, one rank and two."""
    how, part = case.split(":")[1:]
    folder = os.path.join(proof.work, f"migrate-{how}")
    os.makedirs(folder, exist_ok=True)
    two = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    a = os.path.join(folder, "a.rank{}.safetensors").format
    merged = os.path.join(folder, "merged.h5")
    plans = {
        "32to64": (32, {}, 64, {}, lambda r, out: [
            ("reblock", "-f", "-q", "--block-size=64", "--stale=zero", "--verify",
             "-o", out, a(0))]),
        "64to32": (64, {}, 32, {}, lambda r, out: [
            ("reblock", "-f", "-q", "--block-size=32", "--stale=zero", "--verify",
             "-o", out, a(0))]),
        "tp1to2": (32, {}, 32, two, lambda r, out: [
            ("slice", "-f", "-q", "--tp-size=2", f"--tp-rank={r}", "-o", out, a(0))]),
        "tp2to1": (32, two, 32, {}, lambda r, out: [
            ("merge", "-f", "-q", "-o", merged, a(0), a(1)),
            ("convert", "-f", "-q", merged, out)]),
    }
    left, more_left, entered, more_entered, commands = plans[how]
    if part == "leave":
        leave(proof, "gqa-fp32", left, folder, "a", **more_left)
        return
    ranks = {0: "TP 1", 2: "TP 2"}
    on = f"blocks of {left} to {entered}" if left != entered else \
        f"{ranks[2 if more_left else 0]} to {ranks[2 if more_entered else 0]}"
    enter(proof, "gqa-fp32", entered, folder, "a", commands, f"{on}, grouped heads, fp32",
          **more_entered)


# ---- what capture costs ----------------------------------------------------------

def prove_cost(proof, _):
    """How long the engine stands still: a copy of the blocks."""
    import time
    import kvtool_capture
    import numpy
    llm, _, _ = start(proof, "gqa-bf16", 64, blocks=4096, max_model_len=1024,
                      max_num_seqs=64, max_num_batched_tokens=4096)
    asked = {f"req-{i}": models.prompt(900, i) for i in range(60)}
    engine.Run(llm, asked, 50).step(20)
    base = os.path.join(proof.folder("cost"), "cap")
    with proof.row("the engine stands still for a copy of the live blocks",
                   "2 cores, memory of the host") as row:
        taken = [kvtool_capture.capture_vllm(llm, base)[0] for _ in range(4)][1:]
        size = taken[0]["bytes"]
        best = min(t["copy_seconds"] for t in taken)
        source, target = numpy.ones(size, "u1"), numpy.zeros(size, "u1")
        copies = []
        for _ in range(4):
            begin = time.perf_counter()
            target[:] = source
            copies.append(time.perf_counter() - begin)
        row.ok(size > 20 << 20, f"{size} bytes in {best:.4f} s", taken)
        row.equal(proof.kvtool("fsck", f"{base}.rank0.safetensors").code, 0, "fsck")
        row.figure(f"{size / best / 1e9:.1f} GB/s of {size >> 20} MiB, memcpy "
                   f"{size / min(copies) / 1e9:.1f}")


def prove_page(proof, _):
    """The lines of kvtool-dumps(7), in a folder that has the module beside it."""
    import kvtool_capture
    llm, _, _ = start(proof, "gqa-fp32")
    written = engine.Written(llm)
    folder = proof.folder("page")
    with proof.row("the lines of kvtool-dumps(7) make a dump of what the engine wrote",
                   "a script, grouped heads, fp32") as row:
        prompt = {"prompt_token_ids": models.prompt(90, proof.seed)}
        page.run_python("vllm-script", folder, llm=llm, prompt=prompt)
        path = os.path.join(folder, "kv.rank0.safetensors")
        row.equal(proof.kvtool("fsck", path).code, 0, "fsck is content")
        plain = Plain(proof, path, folder)
        row.equal(list(plain.manifest["num_tokens"]), ["first"], "one request")
        compare_written(row, plain, written, real_tables(llm))
        while llm.llm_engine.has_unfinished_requests():
            llm.llm_engine.step()
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        for name in "vllm-disk", "vllm-offload", "lmcache":
            said = page.connector(name)["kv_connector"]
            row.ok(said in KVConnectorFactory._registry, f"{said} is a connector")
        every = os.path.join(folder, "pool")
        kvtool_capture.capture_vllm(llm, every, blocks="all")
        r = proof.kvtool("describe", f"{every}.rank0.safetensors")
        row.ok(r.code == 0 and "\n  requests" not in r.out,
               "a whole pool, without requests", r)


OTHERS = [f"migrate:{how}:{part}" for how in ("32to64", "64to32", "tp1to2", "tp2to1")
          for part in ("leave", "enter")] + ["cost", "page"]


def prove(proof, case):
    import vllm
    why = NOT_HERE.get(".".join(vllm.__version__.split(".")[:2]), {}).get(case)
    if why:
        proof.skip("captured elements are what the engine wrote", words(case), why)
    elif case in CASES:
        prove_engine(proof, case)
    elif case == "cost":
        prove_cost(proof, case)
    elif case == "page":
        prove_page(proof, case)
    else:
        prove_migration(proof, case)
    return case.endswith("leave")


if __name__ == "__main__":
    sys.exit(engine.each_case([*CASES, *OTHERS], prove))
