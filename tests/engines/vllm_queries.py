# SPDX-License-Identifier: Apache-2.0
"""
vllm_queries.py - the queries that kvtool_capture hears in a running vLLM are those that
its attention computes with

The oracle is the engine's own output of attention: of queries and cache, both as they
were captured, numpy computes it again.  Each case is an engine in a process of its own.
"""
import os
import sys

import vllm_engine as engine
import models

CASES = {"gqa-fp32": ("gqa", "float32", 32), "gqa-bf16": ("gqa", "bfloat16", 64),
         "mqa-fp32": ("mqa", "float32", 64), "window-fp32": ("window", "float32", 32)}
KEPT = 8


def _watch_outputs(worker):
    """{layer: {request: output of its last token}}, as forward() of a layer returns it."""
    from vllm.forward_context import get_forward_context
    context = worker.model_runner.vllm_config.compilation_config.static_forward_context
    worker.outputs = {}
    for name, layer in context.items():
        def listen(_, args, out, name=name, layer=layer):
            said = get_forward_context().attn_metadata
            said = said.get(name) if isinstance(said, dict) else said
            if said is None:
                return
            ends = said.query_start_loc.tolist()[1:]
            out = out.reshape(out.shape[0], layer.num_heads, -1).double().numpy()
            for request, end in zip(worker.model_runner.input_batch.req_ids, ends):
                worker.outputs.setdefault(int(name.split(".")[2]), {})[request] = \
                    out[end - 1].copy()
        layer.register_forward_hook(listen)


def _outputs(worker):
    return worker.outputs


def rows(manifest, data, id_, request):
    """[layers, tokens, heads, content] of a group that kvtool laid out as nhd."""
    import numpy
    group = next(g for g in manifest["groups"] if g["id"] == id_)
    n = group["sizes"]
    raw = data[id_]
    if group["dtype"] == "bfloat16":
        raw = (raw.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    else:
        raw = raw.view(numpy.float32)
    cells = raw.reshape(n["layers"], n["num_blocks"], n.get("block_size", 1),
                        n["num_kv_heads"], -1)
    ids = group.get("block_ids", list(range(n["num_blocks"])))
    table = [ids.index(b) for b in group["block_table"][request] if b in ids]
    flat = cells[:, table].reshape(n["layers"], -1, *cells.shape[3:])
    return dict(zip(group["layer_ids"], flat.astype(float))), group


def attend(q, keys, values, scale, first):
    import numpy
    ratio = len(q) // keys.shape[1]
    out = []
    for head, x in enumerate(q):
        s = keys[first:, head // ratio] @ x * scale
        w = numpy.exp(s - s.max())
        out.append(w @ values[first:, head // ratio] / w.sum())
    return numpy.array(out)


def prove(proof, case):
    import numpy
    import kvtool_capture
    family, dtype, block = CASES[case]
    path, _ = models.make(family, proof.seed, dtype, os.path.join(proof.work, "models"))
    llm = engine.make(path, dtype, block)
    kvtool_capture.hear_queries(llm, KEPT)
    engine.everywhere(llm, _watch_outputs)
    prompts = {f"req-{i}": models.prompt(n, i) for i, n in enumerate((100, 37))}
    engine.Run(llm, prompts, 30).step(5)
    folder = proof.folder(case)
    kvtool_capture.capture_vllm(llm, os.path.join(folder, "kv"), queries=True)
    outputs, = engine.everywhere(llm, _outputs)
    queries = os.path.join(folder, "kv.rank0.queries.safetensors")
    with proof.row("queries and cache, as captured, give the engine's attention outputs",
                   f"{models.FAMILIES[family]}, {dtype}") as row:
        plain = os.path.join(folder, "plain.safetensors")
        proof.must("relayout", "-f", "-q", "--to=nhd", "-o", plain,
                   os.path.join(folder, "kv.rank0.safetensors"))
        said, data = kvtool_capture.read(plain)
        asked, of_queries = kvtool_capture.read(queries)
        most = 0
        for group in said["groups"]:
            for name in said["num_tokens"]:
                most = max(most, check(row, (said, data), (asked, of_queries), group,
                                       name, outputs))
        row.ok(most < (2e-2 if dtype == "bfloat16" else 1e-5), "outputs", most)
        row.figure(f"largest difference {most:.1e}")
        r = proof.kvtool("diff", f"--attention={queries}", plain, plain)
        row.ok(r.code == 0 and "nothing changes" in r.out, "kvtool takes them", r)
        b = os.path.join(folder, "b.safetensors")
        proof.must("mutate", "-q", "-f", "--fault=scale,factor=2", "-o", b, plain)
        r = proof.kvtool("diff", f"--attention={queries}", "--no-diagnosis", plain, b)
        row.ok(r.code == 1 and f"{KEPT * 2} queries of" in r.out, "and goes over them", r)


def check(row, cache, heard, group, name, outputs):
    import numpy
    both, own = rows(*cache, group["id"], name)
    tokens = cache[0]["num_tokens"][name]
    dim = both[group["layer_ids"][0]].shape[-1] // 2
    scale = dict(w.split("=") for w in heard[0]["note"].split(" ")[1].split(","))["scale"]
    most = 0
    request = next(r for r in next(iter(outputs.values())) if r.startswith(name))
    for layer, cells in both.items():
        of_layer = next(g for g in heard[0]["groups"] if layer in g["layer_ids"])
        q, _ = rows(*heard, of_layer["id"], name)
        row.equal(heard[0]["first_token"][name] + heard[0]["num_tokens"][name], tokens,
                  f"{name}, layer {layer}: they end with the last token")
        first = max(0, tokens - group["window"]) if group.get("window") else 0
        skip = tokens - cells.shape[0]
        out = attend(q[layer][-1], cells[:tokens, :, :dim], cells[:tokens, :, dim:],
                     float(scale), max(0, first - max(0, skip)))
        most = max(most, numpy.abs(out - outputs[layer][request]).max())
    return most


if __name__ == "__main__":
    sys.exit(engine.each_case(CASES, prove))
