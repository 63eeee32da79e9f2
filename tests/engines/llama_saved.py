#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
llama_saved.py - what kvtool describe says of a slot, against llama.cpp itself

Text: each token's piece, as llama.cpp has it of the same vocabulary.  What a context must
be like that takes a state back: a context that is so takes it, and one that is not in one
thing does not.
"""
import ctypes
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import gguf
import llama_cpp as L
import llama_engine as E
from foreign_files import F16, Cells, ggsq_bytes, memory_bytes
from llama_models import MODELS, VOCABULARY, Shape, make
from proof import Proof
from plain_files import shown, write_bytes

proof = Proof("llama.cpp", f"in llama-cpp-python {L.__version__}")
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


# ---- text ---------------------------------------------------------------------------

def byte_letters():
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (b for b in range(256) if b not in printed)
    return [chr(b) if b in printed else None for b in range(256)], list(others)


def bpe():
    letters, others = byte_letters()
    for i, b in enumerate(others):
        letters[b] = chr(256 + i)
    words = ["".join(letters[b] for b in s.encode()) for s in
             (" Once", "upon", " a", "\n\n", "B\u00e4r", "\u4e2d\u6587", "\U0001f999")]
    tokens = letters + words + ["<|end|>", "<|im_start|>", "not used"]
    return "gpt2", tokens, [NORMAL] * (256 + len(words)) + [CONTROL, USER, UNUSED]


def sentences():
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + [
        "\u2581", "\u2581Once", "\u2581upon\u2581a", "time", "\u00e9", "\u2581\u2581",
        "a\u2581b", "\u2581user", "none"]
    return "llama", tokens, [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + \
        [NORMAL] * 7 + [USER, UNUSED]


def write_vocabulary(path, model, tokens, kinds):
    w = gguf.GGUFWriter(path, "llama")
    for add, n in ((w.add_block_count, 1), (w.add_context_length, 64),
                   (w.add_embedding_length, 4), (w.add_feed_forward_length, 8),
                   (w.add_head_count, 1), (w.add_vocab_size, len(tokens))):
        add(n)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model(model)
    w.add_token_list(tokens)
    w.add_token_types(kinds)
    if model == "gpt2":
        w.add_tokenizer_pre("gpt-2")
        w.add_token_merges(["a b"])
    else:
        w.add_token_scores([0.0] * len(tokens))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def pieces(path):
    """What llama.cpp makes of every token, of special ones, too."""
    how = L.llama_model_default_params()
    how.vocab_only = True
    model = L.llama_model_load_from_file(path.encode(), how)
    if not model:
        raise RuntimeError(f"llama.cpp does not load {path}: {''.join(E.said)}")
    vocab = L.llama_model_get_vocab(model)
    out, room = [], ctypes.create_string_buffer(1024)
    for i in range(L.llama_vocab_n_tokens(vocab)):
        n = L.llama_token_to_piece(vocab, i, room, 1024, 0, True)
        out.append(room.raw[:max(n, 0)])
    L.llama_model_free(model)
    return out


def check_text(row, name, path):
    made = pieces(path)
    r = random.Random(proof.seed)
    for ids in list(range(len(made))), [r.randrange(len(made)) for _ in range(2000)]:
        state = os.path.join(proof.work, "listed.ggsq")
        rows = [[bytes(8)] * len(ids)]
        write_bytes(state,
                    ggsq_bytes(memory_bytes([Cells([(t, [0]) for t in range(len(ids))],
                                                   rows, rows, (F16, F16))]),
                               3, ids))
        got = proof.must("describe", "--json", "--token-ids", "--set=heads=1",
                         f"--model={path}", state)
        row.ok(got.json["requests"][0]["text"] == shown(b"".join(made[i] for i in ids)),
               f"{name}: {len(ids)} tokens")


def text():
    with proof.row("the text of ids is what llama.cpp makes of each token",
                   "vocabularies of gpt2 and llama") as row:
        for vocabulary in bpe(), sentences():
            path = os.path.join(proof.work, f"{vocabulary[0]}.gguf")
            check_text(row, vocabulary[0], write_vocabulary(path, *vocabulary))


# ---- who takes a state back ------------------------------------------------------------

def as_said(need):
    """How a context is started that is just what is needed."""
    streams = need["streams"] or 1
    sequences = streams if streams > 1 else max(need["sequences"], 1)
    return {"tokens": max(need["tokens"], 256), "k": need["type_k"] or "f16",
            "v": need["type_v"] or need["type_k"] or "f16",
            "flash": need["flash_attention"] == "on", "sequences": sequences,
            "unified": streams == 1 and sequences > 1}


def others(need, how, form):
    """The same but for one thing, each of which is needed."""
    wide = 256 * how["sequences"] if not how["unified"] else 256
    if need["tokens"] > wide:
        yield "fewer tokens", {**how, "tokens": wide}
    if need["type_k"]:
        yield "keys of another type", {**how, "k": "f32" if how["k"] == "f16" else "f16"}
        if how["v"] == "f16":
            yield "the other attention", {**how, "flash": not how["flash"]}
    if need["type_v"] and how["flash"]:
        yield "values of another type", {**how, "v": "f32"}
    if need["streams"]:
        yield "another number of streams", {
            **how, "sequences": how["sequences"] + 1, "unified": False}
    if form == "ggsn" and how["unified"]:
        yield "too few sequences", {**how, "sequences": how["sequences"] - 1,
                                    "unified": how["sequences"] > 2}


def takes(path, how, state):
    e = E.Engine(path, **how)
    try:
        return e.load(state)
    finally:
        e.close()


def check_restore(row, name, path, said, how):
    words = random.Random(proof.seed + 2)
    e = E.Engine(path, tokens=2048, **how)
    for s in range(how["sequences"]):
        e.decode([words.randrange(VOCABULARY) for _ in range(250)], 0, (s,))
        e.decode([words.randrange(VOCABULARY) for _ in range(50 + s)], 250, (s,))
    for form in "ggsq", "ggsn":
        state = os.path.join(proof.work, f"taken.{form}")
        (e.save_sequence if form == "ggsq" else e.save)(state, [1])
        need = proof.must("describe", "--json", *said, state).json["saved"]["restore"]
        what = f"{name}, {how}, {form}"
        fits = as_said(need)
        row.ok(takes(path, fits, state), f"{what}: {need} is enough")
        for word, other in others(need, fits, form):
            row.ok(not takes(path, other, state), f"{what}: {word} is refused")
    e.close()


def restore():
    shape = Shape(proof.seed)
    for name in "gqa", "gemma3", "jamba", "mamba":
        path = os.path.join(proof.work, f"{name}.gguf")
        make(name, path, shape)
        said = [] if name == "mamba" else [f"--head-dim={shape.dim}"]
        with proof.row("a context takes a state back that is as describe says, and none "
                       "that is not", MODELS[name][2]) as row:
            for how in ({"k": "f16", "flash": True, "sequences": 1},
                        {"k": "f16", "flash": False, "sequences": 3},
                        {"k": "q8_0", "flash": True, "sequences": 2, "unified": True}):
                check_restore(row, name, path, said, how)


def main():
    text()
    restore()
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
