# SPDX-License-Identifier: Apache-2.0
"""
transformers_caches.py - caches of transformers: what kvtool reads of them is what the
model handed over, and what kvtool writes a model goes on with

Models have random weights.  The oracle of every element is the argument of the
cache's own update(); that of a round trip are the model's logits and its next tokens.
"""
import os
import random
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import safetensors.torch
import torch
import transformers
from transformers import cache_utils

import dumps
import page
from proof import Proof
from plain_files import read_json

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                "contrib"))
import kvtool_capture

FROM = "--from=transformers"
DTYPES = {torch.float32: ("<u4", "float32"), torch.bfloat16: ("<u2", "bfloat16"),
          torch.float16: ("<u2", "float16")}
OF_BITS = {"<u4": np.int32, "<u2": np.int16}


def bits(tensor):
    """The same bytes as unsigned integers of numpy."""
    kind = DTYPES[tensor.dtype][0]
    same = torch.int32 if kind == "<u4" else torch.int16
    return tensor.detach().contiguous().view(same).numpy().view(kind)


def tensor_of(array, dtype):
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array.view(OF_BITS[DTYPES[dtype][0]])).view(dtype)


# ---- models ------------------------------------------------------------------

class Shape:
    """Of seed 0 as it stands; any other seed draws its own."""

    def __init__(self, seed):
        r = random.Random(seed)

        def draw(usual, *more):
            return r.choice((usual,) + more) if seed else usual

        self.layers = draw(3, 2, 4)
        self.heads = draw(4, 2)
        self.dim = draw(16, 8, 32)
        self.tokens = draw(53, 67, 91)
        self.window = draw(12, 9, 20)
        self.new = 24

    def common(self, heads=None):
        heads = heads or self.heads
        return dict(hidden_size=64, intermediate_size=96, num_attention_heads=8,
                    num_hidden_layers=self.layers, num_key_value_heads=heads,
                    vocab_size=211, initializer_range=0.25, eos_token_id=None,
                    bos_token_id=None, pad_token_id=0)


def llama(shape, heads=None):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        **shape.common(heads), head_dim=shape.dim))


def mqa(shape):
    return llama(shape, heads=1)


def gemma3(shape):
    kinds = ["sliding_attention"] * (shape.layers - 1) + ["full_attention"]
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        **shape.common(), head_dim=shape.dim, sliding_window=shape.window,
        layer_types=kinds))


def mistral(shape):
    return transformers.MistralForCausalLM(transformers.MistralConfig(
        **shape.common(), head_dim=shape.dim, sliding_window=shape.window))


def deepseek(shape):
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        **shape.common(8), moe_intermediate_size=32, n_routed_experts=4, n_group=1,
        topk_group=1, num_experts_per_tok=2, q_lora_rank=None, kv_lora_rank=2 * shape.dim,
        qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16))


def qwen3_next(shape):
    kinds = ["linear_attention", "full_attention"] * 2
    return transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(
        **{**shape.common(2), "num_hidden_layers": 4}, head_dim=shape.dim,
        layer_types=kinds, linear_num_value_heads=4, linear_num_key_heads=2,
        linear_key_head_dim=16, linear_value_head_dim=8, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=32))


def falcon_h1(shape):
    return transformers.FalconH1ForCausalLM(transformers.FalconH1Config(
        **shape.common(), head_dim=shape.dim, mamba_d_ssm=64, mamba_n_heads=4,
        mamba_d_head=16, mamba_n_groups=1, mamba_d_state=16, mamba_expand=1))


class Case:
    """A model, a cache that it filled, and what it handed to that cache."""

    def __init__(self, seed, make, dtype=torch.float32, slots=False, rows=1, pad=None):
        torch.manual_seed(seed)
        self.shape = Shape(seed)
        self.model = make(self.shape).eval().to(dtype)
        self.model.generation_config.eos_token_id = None
        self.dtype, self.rows, self.pad = dtype, rows, pad
        self.tokens = self.shape.tokens
        self.slots = self.tokens + self.shape.new + 7 if slots else None
        self.prompt = torch.randint(3, 211, (rows, self.tokens))
        self.lengths = [self.tokens] + [self.tokens - 11 * r for r in range(1, rows)] \
            if pad else [self.tokens] * rows
        self.heard = {}
        self.cache = self.filled()

    def empty(self):
        if self.slots:
            return cache_utils.StaticCache(config=self.model.config,
                                           max_cache_len=self.slots)
        return cache_utils.DynamicCache(config=self.model.config)

    def mask(self):
        mask = torch.ones(self.rows, self.tokens, dtype=torch.long)
        for r, n in enumerate(self.lengths):
            gap = slice(0, self.tokens - n) if self.pad == "left" else slice(n, None)
            mask[r, gap] = 0
        return mask

    def filled(self):
        """All but three tokens at once, the rest one by one: windows have moved on."""
        cache, kind = self.empty(), cache_utils.Cache
        inner, begin = kind.update, self.tokens - 3

        def update(this, keys, values, layer, *more, **named):
            if this is cache:
                self.heard.setdefault(layer, []).append((keys.clone(), values.clone()))
            return inner(this, keys, values, layer, *more, **named)

        kind.update = update
        try:
            for a, b in [(0, begin)] + [(t, t + 1) for t in range(begin, self.tokens)]:
                with torch.no_grad():
                    out = self.model(self.prompt[:, a:b], past_key_values=cache,
                                     attention_mask=self.mask()[:, :b], use_cache=True)
        finally:
            kind.update = inner
        self.next = out.logits[:, -1:].argmax(-1)
        self.heard = {l: [torch.cat(half, 2) for half in zip(*steps)]
                      for l, steps in self.heard.items()}
        return cache

    def oracle(self, row, layer, half):
        """[T, H, D] of the tokens of a row, without padding."""
        all_ = self.heard[layer][half][row].transpose(0, 1)
        n = self.lengths[row]
        return bits(all_[-n:] if self.pad == "left" else all_[:n])

    def untold(self):
        """Options for a saved object; before 5.0 a static cache did not keep its count."""
        kept = any(getattr(layer, "cumulative_length", None) is not None
                   for layer in self.cache.layers)
        return [f"--set=slots={self.tokens}"] if self.slots and not kept else []

    def windows(self):
        kinds = getattr(self.model.config, "layer_types", None) or []
        width = getattr(self.model.config, "sliding_window", None)
        if not width:
            return {}
        return {l: width for l in range(self.shape.layers)
                if not kinds or kinds[l] == "sliding_attention"}

    def pairs(self):
        return [(l.keys, l.values) for l in self.cache.layers]

    def stacked(self):
        return [torch.stack([p[i] for p in self.pairs()]) for i in (0, 1)]


# ---- ways to save a cache ------------------------------------------------------

def flat(names):
    """Tensors by name: names holds a pattern for keys and one for values."""
    def save(case, path):
        named = {n.format(l=l): t.contiguous() for l, pair in enumerate(case.pairs())
                 for n, t in zip(names, pair)}
        safetensors.torch.save_file(named, path)
    return save


def stack_safetensors(case, path):
    keys, values = case.stacked()
    safetensors.torch.save_file({"keys": keys.contiguous(),
                                 "values": values.contiguous()}, path)


def npz(case, path):
    np.savez(path, **{f"layers.{l}.{n}": bits(t) for l, pair in enumerate(case.pairs())
                      for n, t in zip(("keys", "values"), pair)})


def torch_of(what):
    return lambda case, path: torch.save(what(case), path)


ITERATED = "of list(cache)"             # which a static cache does not offer

# name, ending, writer, does it hold the object, one shape of all layers needed
WAYS = [
    ("torch.save of the cache", "pt", torch_of(lambda c: c.cache), True, False),
    ("of a dict with the cache", "pt",
     torch_of(lambda c: {"step": 3, "cache": c.cache, "ids": [1, 2]}), True, False),
    ("of the cache's attributes", "pt",
     torch_of(lambda c: c.cache.__dict__), True, False),
    ("of a tuple of pairs", "pt", torch_of(lambda c: tuple(c.pairs())), False, False),
    ("of a list of pairs", "pt", torch_of(lambda c: c.pairs()), False, False),
    (ITERATED, "pt", torch_of(lambda c: list(c.cache)), False, False),
    ("of two lists", "pt", torch_of(lambda c: {
        "key_cache": [k for k, _ in c.pairs()],
        "value_cache": [v for _, v in c.pairs()]}), False, False),
    ("of two stacked tensors", "pt",
     torch_of(lambda c: dict(zip(("keys", "values"), c.stacked()))), False, True),
    ("safetensors layers.0.keys", "safetensors",
     flat(("layers.{l}.keys", "layers.{l}.values")), False, False),
    ("safetensors key_cache.0", "safetensors",
     flat(("key_cache.{l}", "value_cache.{l}")), False, False),
    ("safetensors past_key_values.0.key", "safetensors",
     flat(("past_key_values.{l}.key", "past_key_values.{l}.value")), False, False),
    ("safetensors of two stacked tensors", "safetensors", stack_safetensors, False, True),
    ("numpy.savez", "npz", npz, False, False),
]


def said(case, way, ending, is_object):
    """What the file does not say."""
    out = [] if is_object else [FROM]
    if ending == "npz":
        out.append(f"--dtype={DTYPES[case.dtype][1]}")
    if case.rows > 1:
        out.append("--set=tokens=" + ",".join(map(str, case.lengths)))
    if case.pad:
        out.append(f"--set=padding={case.pad}")
    if is_object:
        return out + case.untold()
    if case.slots or len(case.windows()) == case.shape.layers:
        out.append(f"--set=slots={case.tokens}")
    if case.windows() and (way != ITERATED or len(next(iter(case.cache))) < 3):
        out.append(f"--set=window={case.shape.window}")
    return out


def halves_of(case, dump, request, layer):
    """Keys, values and the first token; a latent and its rope values lie in one row."""
    keys, values, begin = dump.layer(request, layer)
    if keys is not None and values is None:
        keys, values = np.split(keys, [case.heard[layer][0].shape[-1]], axis=-1)
    return keys, values, begin


def wrong(case, dump, row, layer):
    """What of a layer is not what the model handed over; '' if nothing."""
    got = halves_of(case, dump, str(row), layer)
    begin = got[2]
    window = case.windows().get(layer)
    want = max(0, case.lengths[row] - window + 1) if window else 0
    if begin != want:
        return f"begins at token {begin}, not {want}"
    for half in (0, 1):
        right = case.oracle(row, layer, half)[begin:]
        if got[half] is None or got[half].shape != right.shape:
            return f"{'kv'[half]}: {getattr(got[half], 'shape', None)}, not {right.shape}"
        if not np.array_equal(got[half], right):
            return f"{'kv'[half]}: {np.sum(got[half] != right)} elements differ"
    return ""


def check_dump(row_, case, dump, name):
    for r in range(case.rows):
        for layer in range(case.shape.layers):
            bad = wrong(case, dump, r, layer)
            row_.ok(not bad, f"{name}: row {r}, layer {layer}", bad)


def reads(proof, on, case):
    one_shape = len({k.shape for k, _ in case.pairs()}) == 1
    folder = proof.folder("saved")
    ways = [w for w in WAYS if (one_shape or not w[4]) and
            (hasattr(case.cache, "__iter__") or w[0] != ITERATED)]
    with proof.row(f"elements of a cache saved in {len(ways)} ways", on) as row:
        for i, (name, ending, save, is_object, _) in enumerate(ways):
            path = os.path.join(folder, f"{i}.{ending}")
            save(case, path)
            dump = dumps.read(proof, path, *said(case, name, ending, is_object))
            check_dump(row, case, dump, name)
        in_memory(proof, row, case)


def in_memory(proof, row, case):
    """The object itself, told by its mask, and by numbers."""
    build = os.path.dirname(proof.program)
    os.environ["KVTOOL_LIBRARY"] = os.path.join(build, "libkvt.so.0")
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                 "python"))
    import kvtool as module
    facts = {"facts": {"slots": case.tokens}} if case.untold() and case.windows() else {}
    for name, told in (("mask", {"attention_mask": case.mask()}),
                       ("numbers", {"tokens": case.lengths, "padding": case.pad})):
        dump = module.from_tensors(case.cache, **told, **facts)
        for r in range(case.rows):
            for layer in range(case.shape.layers):
                row.ok(in_memory_is(case, dump, r, layer), f"in memory, by {name}: row {r}, "
                       f"layer {layer}")


def in_memory_is(case, dump, r, layer):
    want = [case.oracle(r, layer, half) for half in (0, 1)]
    if len(dump.groups) == 1 and not dump.groups[0].has_values:     # a latent, one row
        got = dump.read(layer=layer, request=r, bits=True)
        return np.array_equal(got, np.concatenate(want, -1))
    got = [dump.read(layer=layer, request=r, kv=half, bits=True) for half in (0, 1)]
    window = case.windows().get(layer)
    begin = max(0, case.lengths[r] - window + 1) if window else 0
    return all(np.array_equal(a, b[begin:]) for a, b in zip(got, want))


# ---- what kvtool writes, a model goes on with -----------------------------------

def greedy(case, cache):
    """Logits of the next step, and the tokens after it."""
    import copy
    mask = torch.ones(1, case.tokens + 1, dtype=torch.long)
    with torch.no_grad():
        logits = case.model(case.next, past_key_values=copy.deepcopy(cache),
                            attention_mask=mask, use_cache=True).logits
        ids = case.model.generate(torch.cat([case.prompt, case.next], 1),
                                  attention_mask=mask, past_key_values=cache,
                                  do_sample=False, max_new_tokens=case.shape.new)
    return bits(logits), ids[0, case.tokens + 1:].tolist()


def cache_of(case, layers):
    """A cache of [(keys, values)], each [T, H, D] of bits, with T the last tokens."""
    cache = case.empty()
    for l, pair in enumerate(layers):
        keys, values = (tensor_of(half, case.dtype).transpose(0, 1)[None].contiguous()
                        for half in pair)
        cache.update(keys, values, l)
        if hasattr(cache.layers[l], "sliding_window"):
            cache.layers[l].cumulative_length = case.tokens
    return cache


def layers_of(case, dump):
    return [halves_of(case, dump, "0", l)[:2] for l in range(case.shape.layers)]


def halves(cells):
    """Of [L, 2, 1, H, T, D]."""
    return [tuple(half[0].transpose(1, 0, 2) for half in layer) for layer in cells]


def sidecar(path):
    """Shape and type of what lies in a file without a header."""
    name = path[:-4] + ".json" if path.endswith(".npy") else path + ".json"
    side = read_json(name)
    n = side["sizes"]
    assert side["layout"] == "LKBHSD", side["layout"]
    return (n["layers"], 2, n["num_blocks"], n["num_kv_heads"], n["block_size"],
            n["head_dim"])


def by_safetensors(case, path):
    return halves(bits(safetensors.torch.load_file(path)["kv_cache"]))


def by_numpy(case, path):
    return halves(np.load(path).view(DTYPES[case.dtype][0]).reshape(sidecar(path)))


def by_bytes(case, path):
    return halves(np.fromfile(path, DTYPES[case.dtype][0]).reshape(sidecar(path)))


def by_h5py(case, path):
    import h5py
    kind = DTYPES[case.dtype][0]
    with h5py.File(path) as f:
        (group,) = f["groups"].values()
        data = group["data"]
        axes = [a if isinstance(a, str) else a.decode()
                for a in data.attrs["DIMENSION_LABELS"]]
        cells = np.empty(data.shape, kind)
        data.id.read(h5py.h5s.ALL, h5py.h5s.ALL, cells, mtype=data.id.get_type())
    order = ["layer", "kv", "block", "head", "state", "dim"]
    return halves(cells.transpose([axes.index(a) for a in order]))


def by_folder(shape):
    """A file a layer; 'shape' makes [T, H, D] keys and values of its tensor."""
    def load(case, path):
        out = []
        for l in range(case.shape.layers):
            file = os.path.join(path, "0", f"layers.{l}.keys.safetensors")
            cells = bits(safetensors.torch.load_file(file)["kv_cache"])
            out.append(shape(cells, case.shape.heads))
        return out
    return load


def rows_2025(cells, heads):
    return tuple(half.reshape(len(half), heads, -1) for half in cells)


def rows_2026_05(cells, heads):
    return cells[:, 0], cells[:, 1]


def rows_2026_07(cells, heads):
    return tuple(np.split(cells, 2, axis=-1))


# format, name of the file, options, reader that knows the library alone
WRITTEN = [
    ("safetensors", "a.safetensors", [], by_safetensors),
    ("npy", "a.npy", [], by_numpy),
    ("raw", "a.bin", [], by_bytes),
    ("hdf5, compressed", "a.h5", [], by_h5py),
    ("hdf5, uncompressed", "b.h5", ["--uncompressed"], by_h5py),
    ("folder vllm-2025", "f25", ["--format=vllm-2025"], by_folder(rows_2025)),
    ("folder vllm-2026-05", "f05", ["--format=vllm-2026-05"], by_folder(rows_2026_05)),
    ("folder vllm-2026-07", "f07", ["--format=vllm-2026-07"], by_folder(rows_2026_07)),
]


def goes_on(row, case, cache, want, name):
    logits, ids = greedy(case, cache)
    row.ok(np.array_equal(logits, want[0]), f"{name}: logits, bit by bit",
           f"{np.sum(logits != want[0])} differ")
    row.equal(ids, want[1], f"{name}: the next {case.shape.new} tokens")


def saved(proof, case):
    path = os.path.join(proof.folder("written"), "cache.pt")
    torch.save(case.cache, path)
    return path, greedy(case, case.cache)


def writes(proof, on, case):
    """Each format that a library other than kvtool reads; one block has all tokens."""
    path, want = saved(proof, case)
    folder = os.path.dirname(path)
    with proof.row(f"generation goes on from what kvtool wrote, {len(WRITTEN)} formats",
                   on) as row:
        row.ok(len(set(want[1])) > 4, "the tokens are not all alike", str(want[1]))
        for name, file, options, load in WRITTEN:
            out = os.path.join(folder, file)
            proof.must("convert", "-q", f"--block-size={case.tokens}", *options,
                       *case.untold(), path, out)
            goes_on(row, case, cache_of(case, load(case, out)), want, name)


def layouts(proof):
    """Names of the orders of keys and values that are one array of whole axes."""
    out = []
    for line in proof.must("help", "layouts").out.splitlines()[1:]:
        name, axes = (line.split() + ["", ""])[:2]
        if set("LBSH") <= set(axes) and set(axes) <= set("LBSHKDC") and axes not in \
                {a for _, a in out} and ("K" in axes) != ("C" in axes):
            out.append((name, axes))
    return out


def orders(proof, on, case):
    path, want = saved(proof, case)
    out = os.path.join(os.path.dirname(path), "order.safetensors")
    known = layouts(proof)
    with proof.row(f"generation goes on from {len(known)} memory layouts", on) as row:
        for name, axes in known:
            proof.must("relayout", "-f", "-q", f"--to={name}", "--block-size=16", "-o",
                       out, path)
            dump = dumps.Dump(out)
            row.equal(dump.groups[0].layout, axes, f"{name}: its axes")
            goes_on(row, case, cache_of(case, layers_of(case, dump)), want, name)


def returns(proof, on, case):
    """Through a snapshot, and where requests are whole blocks of another size."""
    path, want = saved(proof, case)
    last = os.path.join(os.path.dirname(path), "a.h5")
    steps = ["a snapshot"] + ["blocks of 8"] * (len(case.windows()) < case.shape.layers)
    with proof.row(f"generation goes on after {' and '.join(steps)}", on) as row:
        proof.must("convert", "-q", path, last)
        if len(steps) > 1:
            proof.must("reblock", "-q", "--block-size=8", "-o", last[:-4] + "b.h5", last)
            last = last[:-4] + "b.h5"
        dump = dumps.read(proof, last)
        check_dump(row, case, dump, steps[-1])
        goes_on(row, case, cache_of(case, layers_of(case, dump)), want, steps[-1])


def loads(proof, on, case):
    """Three lines, as kvtool prints them, make a cache of a safetensors file."""
    path, want = saved(proof, case)
    folder = os.path.dirname(path)
    with proof.row("generation goes on from the three lines that convert prints",
                   on) as row:
        r = proof.must("convert", "--verify", "--format=transformers", *case.untold(), path,
                       os.path.join(folder, "cache.safetensors"))
        lines = r.out.splitlines()[1:]
        row.equal(len(lines), 3, "how many there are")
        known = {"model": case.model}
        with page.inside(folder):
            exec("\n".join(lines), known)
        if case.slots:          # whose slots without a token count in sums, as zeros
            row.equal(greedy(case, known["cache"])[1], want[1], "the next tokens")
        else:
            goes_on(row, case, known["cache"], want, "DynamicCache")
        r = proof.kvtool("diff", "-q", *case.untold(), path,
                         os.path.join(folder, "cache.safetensors"))
        row.equal(r.code, 0, "kvtool finds them equal")


# ---- faults ---------------------------------------------------------------------

NOT_HERE = {"conv-order", "conv-parts"}         # of recurrent states
# one flip of the two lowest bits may be rounding, and diff gives it no name
MORE = {"flip-bits": ",count=8"}


def faults(proof):
    out = proof.must("help", "faults").out.splitlines()
    return [l.split()[0] for l in out
            if l[:1].isalpha() and not l.startswith(("All ", "What "))]


def broken(proof, on, case):
    path, want = saved(proof, case)
    folder, known = os.path.dirname(path), faults(proof)
    good = os.path.join(folder, "good.safetensors")
    proof.must("relayout", "-q", "--to=hnd", "-o", good, path)
    alone, tokens, logits, planted = 0, 0, 0, 0
    with proof.row("diff names each fault of mutate", on) as row:
        row.ok(len(known) > 15 and NOT_HERE <= set(known), "faults are known", str(known))
        goes_on(row, case, cache_of(case, layers_of(case, dumps.Dump(good))), want,
                "without a fault")
        for name in sorted(set(known) - NOT_HERE):
            bad = os.path.join(folder, "bad.safetensors")
            proof.must("mutate", "-f", "-q", f"--fault={name}{MORE.get(name, '')}",
                       f"--seed={proof.seed}", "-o", bad, good)
            r = proof.kvtool("diff", "--json", good, bad)
            said_ = r.json["groups"][0]["diagnosis"] or {}
            named = [f["fault"] for f in said_.get("faults", [])]
            row.ok(r.code == 1 and name in named, f"{name} is named", r)
            row.ok(said_.get("decided") in (None, name), f"{name}: no other name", r)
            alone += said_.get("decided") == name
            got = greedy(case, cache_of(case, layers_of(case, dumps.Dump(bad))))
            logits += not np.array_equal(got[0], want[0])
            tokens += got[1] != want[1]
            planted += 1
        row.figure(f"{alone} of {planted} named alone")
        row.figure(f"{tokens} of {planted} change the tokens, {logits} the logits")


# ---- all ------------------------------------------------------------------------

def held_by(case):
    return {f"model.layers.{i}": torch.stack(pair) for i, pair in enumerate(case.pairs())}


def manual(proof, on, case):
    """The lines of kvtool-dumps(7)."""
    folder = proof.folder("page")
    path = lambda name: os.path.join(folder, name)
    with proof.row("the lines of kvtool-dumps(7) save what the model handed over",
                   on) as row:
        known = page.run_python("transformers", folder, model=case.model,
                                input_ids=case.prompt)
        for i, args in enumerate(page.kvtool_of("transformers-read")):
            r = proof.kvtool(*args, folder=folder)
            row.ok(r.code == 0, f"line {i + 1} for the shell", r)
        # computed at once, so not bit by bit what tokens one by one gave
        row.ok(len(known["cache"].layers) == case.shape.layers, "all layers")
        case.cache = known["cache"]
        case.heard = {l: [t.detach() for t in pair] for l, pair in enumerate(case.pairs())}
        check_dump(row, case, dumps.read(proof, path("cache.pt")), "cache.pt")
        check_dump(row, case, dumps.read(proof, path("pairs.pt"), FROM), "pairs.pt")
        page.run_python("capture", folder, caches=held_by(case), tokens=case.tokens)
        check_dump(row, case, Named(dumps.read(proof, path("cache.safetensors"))),
                   "capture()")


class Named:
    """A dump whose only request has a name of its own."""

    def __init__(self, dump):
        self.dump = dump

    def layer(self, _, layer):
        return self.dump.layer("first", layer)


def captured(proof, on, case):
    """contrib/kvtool_capture.py of a cache in memory: a row of it is a block."""
    path = os.path.join(proof.folder("captured"), "cache.safetensors")
    held = held_by(case)
    rows = range(case.rows)
    kvtool_capture.capture(path, held, axes="KBHND", block_tables={str(r): [r] for r in rows},
                           num_tokens={str(r): case.lengths[r] for r in rows})
    with proof.row("captured elements are what the model handed over", on) as row:
        row.equal(proof.kvtool("fsck", path).code, 0, "fsck is content")
        check_dump(row, case, dumps.read(proof, path), "capture()")


def loads_all(proof, seed):
    half, short = torch.bfloat16, torch.float16
    for on, case in [
            ("GQA, float32", Case(seed, llama)),
            ("GQA, StaticCache, float16", Case(seed, llama, short, slots=True)),
            ("MQA, bfloat16", Case(seed, mqa, half)),
            ("windows and full attention, float32", Case(seed, gemma3)),
            ("windows alone, bfloat16", Case(seed, mistral, half))]:
        loads(proof, on, case)
    for on, make in [("gated delta net beside attention, float32", qwen3_next),
                     ("Mamba 2 and attention in each layer, float32", falcon_h1)]:
        if hasattr(cache_utils, "LinearAttentionLayer"):
            loads(proof, on, Case(seed, make))
        else:
            proof.skip("generation goes on from the three lines that convert prints", on,
                       "DynamicCache has no states before 5")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    proof = Proof("transformers", transformers.__version__)
    plugin = os.path.join(os.path.dirname(proof.program), "plugin")
    os.environ["HDF5_PLUGIN_PATH"] = plugin
    seed, half, short = proof.seed, torch.bfloat16, torch.float16

    gqa = "GQA, DynamicCache, float32"
    hybrid = "windows and full attention, DynamicCache, float32"
    for on, case in [
            (gqa, Case(seed, llama)),
            ("GQA, DynamicCache, bfloat16, two rows", Case(seed, llama, half, rows=2)),
            ("GQA, padded on the left", Case(seed, llama, rows=3, pad="left")),
            ("GQA, padded on the right", Case(seed, llama, rows=3, pad="right")),
            ("GQA, StaticCache, float16", Case(seed, llama, short, slots=True)),
            ("MQA, DynamicCache, float16", Case(seed, mqa, short)),
            (hybrid, Case(seed, gemma3)),
            ("windows and full attention, StaticCache, bfloat16",
             Case(seed, gemma3, half, slots=True)),
            ("windows alone, DynamicCache, bfloat16", Case(seed, mistral, half)),
            ("MLA, DynamicCache, bfloat16", Case(seed, deepseek, half))]:
        reads(proof, on, case)
    for on, case in [(gqa, Case(seed, llama)),
                     ("GQA, DynamicCache, bfloat16", Case(seed, llama, half)),
                     ("GQA, StaticCache, float16", Case(seed, llama, short, slots=True))]:
        writes(proof, on, case)
    loads_all(proof, seed)
    orders(proof, gqa, Case(seed, llama))
    for on, case in [("MQA, bfloat16", Case(seed, mqa, half)),
                     (hybrid, Case(seed, gemma3)),
                     ("windows alone, float32", Case(seed, mistral)),
                     ("MLA, bfloat16", Case(seed, deepseek, half))]:
        returns(proof, on, case)
    for on, case in [("GQA, DynamicCache, bfloat16, two rows, capture()",
                      Case(seed, llama, half, rows=2)),
                     ("GQA, StaticCache, float16, capture()",
                      Case(seed, llama, short, slots=True))]:
        captured(proof, on, case)
    manual(proof, "GQA, float32", Case(seed, llama))
    broken(proof, "GQA, float32", Case(seed, llama))
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
