#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_llama_saved.py - what describe says of a slot: tokens and their text, windows,
recurrent states, and what a context must be like that takes it back

A reader and a decoder of this file's own say the same of the same bytes: of vocabularies
in GGUFs that it writes, and of states that engines wrote.
"""
import os
import random
import struct

import gguf_headers as G
import oracle
from foreign_files import F16, Cells, ggsq_bytes, memory_bytes
from oracle import kvtool, read_bytes, refused, tap, write_bytes
from plain_files import shown
from oracle_llama_engine import ENGINES, NEW, OLD, options_of, runs, state_of
from oracle_llama_made import MODELS, write_gguf

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


# ---- vocabularies ---------------------------------------------------------------------

def letters():
    """The characters that bytes are in a byte-level vocabulary."""
    printed = [*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in printed]
    return {b: chr(b) for b in printed} | {b: chr(256 + i) for i, b in enumerate(others)}


def tokens_of(path):
    """A second reader of GGUFs: model, kinds, tokens."""
    with open(path, "rb") as f:
        d = f.read(1 << 24)
    order = "<" if d[4] else ">"
    at, out = 24, {}
    count = struct.unpack_from(order + "Q", d, 16)[0]
    forms = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q",
             11: "q", 12: "d"}

    def number(form):
        nonlocal at
        (x,) = struct.unpack_from(order + form, d, at)
        at += struct.calcsize(form)
        return x

    def text():
        nonlocal at
        n = number("Q")
        at += n
        return d[at - n:at]

    def value(kind):
        if kind == 9:
            of, n = number("I"), number("Q")
            return [value(of) for _ in range(n)]
        return text() if kind == 8 else number(forms[kind])
    for _ in range(count):
        name = text().decode()
        out[name] = value(number("I"))
    return (out["tokenizer.ggml.model"].decode(), out.get("tokenizer.ggml.token_type"),
            out["tokenizer.ggml.tokens"], out.get("tokenizer.ggml.pre", b"").decode())


def decode(path, ids):
    model, kinds, tokens, pre = tokens_of(path)
    byte = {c: b for b, c in letters().items()}
    out = b""
    for i in ids:
        kind, token = kinds[i] if kinds else NORMAL, tokens[i]
        if kind == BYTE:
            out += bytes([int(token[3:5], 16)])
        elif kind in (UNKNOWN, CONTROL, USER):
            out += token
        elif kind == NORMAL and (model == "llama" or pre == "gemma4"):
            out += token.replace("\u2581".encode(), b" ")
        elif kind == NORMAL:
            out += b"".join(bytes([byte[c]]) if c in byte else c.encode()
                            for c in token.decode())
    return out


def vocabularies():
    r = random.Random(4)
    by = letters()
    words = ["".join(by[b] for b in s.encode()) for s in
             (" Once", " upon", "\n", "\t\t", " ein B\u00e4r", "\u4e2d\u6587",
              "\U0001f999", "don't")]
    yield "gpt2", {}, [*by.values(), *words, "<|im_end|>", "<0x41>", " added token",
                       "\u4e2d", "nothing"], \
        [NORMAL] * 256 + [NORMAL] * len(words) + [CONTROL, BYTE, USER, NORMAL, UNUSED]
    sentences = ["\u2581Once", "\u2581upon\u2581a", "\u2581\u2581\u2581", "time",
                 "\u00e9", "\U0001d11e", "a\u2581"]
    bytes_of = [f"<0x{b:02X}>" for b in range(256)]
    yield "llama", {}, ["<unk>", "<s>", "</s>", *bytes_of, *sentences, "\u2581user"], \
        [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(sentences) + [USER]
    yield "llama", {}, [f"\u2581{i}" for i in range(50)], None
    yield "gpt2", {"tokenizer.ggml.pre": "gemma4"}, ["\u2581a", "<0x0a>", "\u0120", "b"], \
        [NORMAL, BYTE, NORMAL, NORMAL]
    yield "gpt2", {}, ["".join(r.choice([*by.values()]) for _ in range(r.randrange(9)))
                       for _ in range(400)], None


def slot_of(path, ids):
    """A state whose list is these ids, one for each position."""
    row = [[bytes(8)] * len(ids)]
    cells = [(t, [0]) for t in range(len(ids))]
    write_bytes(path,
                ggsq_bytes(memory_bytes([Cells(cells, row, row, (F16, F16))]), 3, ids))
    return path


def write_vocabulary(path, model, more, tokens, kinds, **how):
    keys = {**G.keys(1, 4, 1, 1), "tokenizer.ggml.model": model, **more,
            "tokenizer.ggml.tokens": G.Typed(G.STRING, tokens)}
    if kinds:
        keys["tokenizer.ggml.token_type"] = G.Typed(G.I32, kinds)
    return G.write(path, G.Model("llama", keys, [], 0), **how)


def check_text(tmp):
    r = random.Random(9)
    for i, (model, more, tokens, kinds) in enumerate(vocabularies()):
        gguf = write_vocabulary(f"{tmp}/v{i}.gguf", model, more, tokens, kinds,
                                big=i == 1)
        # a model is behind the header, of which nothing is read
        os.truncate(gguf, 1 << 36)
        for ids in (list(range(len(tokens))),
                    [r.randrange(len(tokens)) for _ in range(500)]):
            slot = slot_of(f"{tmp}/slot.ggsq", ids)
            want = shown(decode(gguf, ids))
            p = kvtool("describe", "--json", "--token-ids", f"--model={gguf}", slot)
            said = p.json["requests"][0] if p.code == 0 else {}
            tap.ok(said.get("text") == want and said["token_ids"] == ids,
                   f"{model} {i}: text of {len(ids)} ids", f"{want!r}\n{p}")
        q = kvtool("describe", "--json", f"--model={gguf}", slot)
        told = kvtool("describe", "--json", "--token-ids", "--heads=1", slot)
        said = told.json["requests"][0]
        tap.ok('"token_ids"' not in q.out and '"text"' not in q.out and
               said["text"] is None and "--model=" in said["no_text"],
               f"{model} {i}: nothing unasked, no text without a GGUF", q)
    # some ids of which no vocabulary can be
    refused("ids of another model are refused", 3,
            ("it is of another model", "has 4 tokens"), "describe", "--token-ids",
            f"--model={tmp}/v3.gguf", slot)
    other = write_vocabulary(f"{tmp}/bert.gguf", "bert", {}, ["a"], None)
    r = kvtool("describe", "--token-ids", f"--model={other}", slot)
    tap.ok(r.code == 0 and "not known" in r.out and "tokenizer 'bert'" in r.out,
           "a tokenizer that is not known is named", r)
    two = write_vocabulary(f"{tmp}/two.gguf", "llama", {}, ["a", "b"], [NORMAL])
    refused("kinds of other tokens", 3, "of another length", "describe", "--token-ids",
            f"--model={two}", slot)


# ---- slots ------------------------------------------------------------------------------

TYPES = {0: "f32", 1: "f16", 2: "q4_0", 8: "q8_0", 30: "bf16"}
SAMPLES = [(NEW, n) for n in (
    "gemma2.fa0_u0.ggsn", "gemma2.fa0_u0.s1.ggsq", "jamba.fa0_u0.ggsn", "lfm2.fa0_u0.ggsn",
    "lfm2swa.fa0_u0.s1.ggsq", "mamba.fa0_u0.ggsn", "mla.fa0_u0.s1.ggsq",
    "qwen2vl.fa0_u0.ggsn", "r64.q4_0_fa1.ggsn", "s260k.hole.ggsn", "s260k.shifted.s0.ggsq",
    "s260k.kq8_vf16_fa0.seq", "s260k.streams4.s3.ggsq", "s260k.streams4.ggsn",
    "s260k.unified_shared.ggsn", "s260k.unified_shared.s1.ggsq")] + [
    (OLD, n) for n in ("lfm2.ggsq", "mamba.ggsn", "s260k.two.ggsn")]


def fields_of(data, state):
    """Of each cache: streams, most cells of one, types of keys and values, turned."""
    out = []
    heads = {0x6767736e: 12, 0x67677371: 12}
    at = 8 if struct.unpack_from("<I", data)[0] not in heads else \
        12 + 4 * struct.unpack_from("<I", data, 8)[0]
    if state.whole:
        at += 4 + len(state.arch)
        if struct.unpack_from("<I", data, 4)[0] == 9:      # outputs
            at += 4 + 4 * struct.unpack_from("<I", data, at)[0]
            for _ in range(2):
                at += 8 + 4 * struct.unpack_from("<Q", data, at)[0]
    for cache in state.caches:
        streams = struct.unpack_from("<I", data, at)[0]
        at, most, kinds, turned = at + 4, 0, [None, None], False
        for s in range(streams):
            n = struct.unpack_from("<I", data, at)[0]
            at, most = at + 4, max(most, n)
            if not n:
                continue
            for c in range(n):
                at += 8 + state.extra + 4 * struct.unpack_from("<I", data, at + 4)[0]
            turned, layers = struct.unpack_from("<2I", data, at)
            at += 8
            for kv in range(2 if any(x[3] for x in cache.values()) else 1):
                for _ in range(layers):
                    kinds[kv] = struct.unpack_from("<i", data, at)[0]
                    if kv and turned:
                        elem, wide = struct.unpack_from("<2I", data, at + 4)
                        size = elem * wide
                    else:
                        size = struct.unpack_from("<Q", data, at + 4)[0]
                    at += 12 + n * size
        out.append((streams, most, [TYPES.get(k) for k in kinds], bool(turned)))
    return out


def restore_of(data, state):
    caches = fields_of(data, state)
    streams = max([c[0] for c in caches], default=0)
    types = next((c[2] for c in reversed(caches) if c[2][0]), [None, None])
    windows = [c[1] for c in caches[1:]]
    return {"streams": streams or None,
            "sequences": max(state.sequences()) + 1 if state.whole else 1,
            "tokens": max([c[1] for c in caches], default=0) * max(streams, 1),
            "window_cells": windows[0] if windows and windows[0] else None,
            "type_k": types[0], "type_v": types[1],
            "flash_attention": types[0] and ("off" if caches[0][3] else "on")}


def windows_of(state, groups):
    """What a request has of the second cache behind its last gap."""
    out = []
    for q in state.sequences() if "g1" in groups else []:
        end = state.span(q)[1]
        have, begin = state.of(1, q), end
        while begin - 1 in have:
            begin -= 1
        out.append({"group": "g1", "request": str(q), "begin": begin, "end": end})
    return out


def check_slots():
    for folder, name in SAMPLES:
        path = f"{ENGINES}/{folder}/{name}"
        data = read_bytes(path)
        state = state_of(folder, name, data)
        r = kvtool("describe", "--json", *options_of(folder, name), path)
        if not tap.ok(r.code == 0, f"{folder}/{name} is described", r):
            continue
        said = r.json
        slot, groups = said["saved"], [g["id"] for g in said["groups"]]
        tap.equal(slot["restore"], restore_of(data, state), f"{folder}/{name}: restore")
        got = [{k: w[k] for k in ("group", "request", "begin", "end")}
               for w in slot["windows"]]
        tap.equal(got, windows_of(state, groups), f"{folder}/{name}: windows")
        tap.equal(sorted((s["sequence"], s["position"]) for s in slot["states"]),
                  sorted((q, x[0]) for x in state.states.values() for q in x[1]),
                  f"{folder}/{name}: states")
        tap.equal([slot["listed"], {q["id"] for q in said["requests"]}],
                  [len(state.tokens), {str(q) for q in state.sequences()}],
                  f"{folder}/{name}: listed, sequences")
        tap.equal([h for q in said["requests"] for h in holes_said(q)],
                  [h for q in state.sequences() for h in holes_of(state, q, groups)],
                  f"{folder}/{name}: holes")


def holes_said(request):
    return [[request["id"], h["group"], h["begin"], h["end"]] for h in request["holes"]]


def holes_of(state, q, groups):
    """Of each group the positions that its cache lacks and another one has."""
    begin, end = state.span(q)
    if begin == end or len(state.of(0, q) if state.caches else []) == 0:
        return []
    return [[str(q), g, *h] for g in groups if g[0] == "g"
            for h in runs(set(range(begin, end)) - set(state.of(int(g[1]), q)))]


def check_words(tmp):
    sample = lambda name: f"{ENGINES}/{NEW}/{name}"
    gemma = G.write(f"{tmp}/gemma3.gguf", G.Model("gemma3", {
        **G.keys(8, 128, 4, 2), "attention.key_length": 64, "attention.value_length": 64,
        "attention.sliding_window": 32}, [], 0))
    mamba = write_gguf(f"{tmp}/mamba.gguf", "mamba")
    assert "mamba" in MODELS
    for says, *args in (
            ("layers with a window alone: taken with LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY",
             f"--model={gemma}", sample("gemma3.fa1_swafull0.partial.seq")),
            ("and the rest of the sequence, which is not in this part",
             f"--model={gemma}", sample("gemma3.fa1_swafull0.partial.seq")),
            ("of layers with a window alone, or without its first 48 tokens", "--heads=2",
             sample("gemma3.fa1_swafull0.partial.seq")),
            ("of just 4 sequences with cells of their own, of 240 tokens or more; flash "
             "attention off, keys f16, values f16", "--heads=4",
             sample("s260k.streams4.ggsn")),
            ("of 3 sequences or more with unified cells", "--heads=4",
             sample("s260k.unified_shared.ggsn")),
            ("60 token ids, which are not one for each position", "--heads=4",
             sample("s260k.shifted.s0.ggsq")),
            ("60 token ids, one for each position", "--heads=4",
             sample("s260k.hole.s0.ggsq")),
            ("16 of 16 that it needs", "--head-dim=64", "--set=window=16",
             sample("gemma2.fa0_u0.s1.ggsq")),
            ("of sequence 0 after position 39, of sequence 1 after position 20",
             f"--model={mamba}", sample("mamba.fa0_u0.ggsn"))):
        r = kvtool("describe", *args)
        tap.ok(r.code == 0 and says in r.out, says, r)
    r = kvtool("describe", "--token-ids", "--heads=4", sample("s260k.shifted.s0.ggsq"))
    tap.ok("ids       list: 1 403 " in r.out, "the list is shown if it is asked for", r)
    for turn, word in (("hadamard", "rotation of 64 undone"), ("none", "not rotated")):
        r = kvtool("describe", "--heads=2", f"--set=rotation={turn}", "--peek=request=0",
                   sample("r64.q4_0_fa1.ggsn"))
        tap.ok(f"decoded, {word}, from 0:" in r.out, f"--peek: {word}", r)


oracle.run(check_text, check_slots, check_words)
