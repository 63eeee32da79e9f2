# SPDX-License-Identifier: Apache-2.0
"""
llama_engine.py - llama.cpp by its C interface, and what it stores in its caches

A callback of the scheduler (cb_eval) sees each node of the graph when it has been
computed.  Those that store rows in a cache (SET_ROWS, or CPY of states) have the rows as
a source, in float32: that is what the engine computed, before it became an element of
the cache's type and before any file was written.
"""
import ctypes
import os

# one way of storing rows for all builds; some of 2025 have it off
os.environ["LLAMA_SET_ROWS"] = "1"

import llama_cpp as L
import numpy as np

F32, F16, Q4_0, Q8_0, BF16 = 0, 1, 2, 8, 30
TYPES = {"f32": F32, "f16": F16, "bf16": BF16, "q8_0": Q8_0, "q4_0": Q4_0}

L.llama_backend_init()


said = []


@L.llama_log_callback
def hear(_level, text, _data):
    said.append(text.decode(errors="replace"))
    del said[:-20]


L.llama_log_set(hear, ctypes.c_void_p(0))
ggml = ctypes.CDLL(os.path.join(os.path.dirname(L.__file__), "lib", "libggml-base.so"))
ggml.ggml_op_name.restype = ctypes.c_char_p
ggml.ggml_backend_tensor_get.argtypes = [ctypes.c_void_p, ctypes.c_void_p,
                                         ctypes.c_size_t, ctypes.c_size_t]
ggml.ggml_backend_tensor_get.restype = None
ggml.ggml_nbytes.argtypes, ggml.ggml_nbytes.restype = [ctypes.c_void_p], ctypes.c_size_t


class Tensor(ctypes.Structure):
    """struct ggml_tensor, up to its name"""
    _fields_ = [("type", ctypes.c_int), ("buffer", ctypes.c_void_p),
                ("ne", ctypes.c_int64 * 4), ("nb", ctypes.c_size_t * 4),
                ("op", ctypes.c_int), ("op_params", ctypes.c_int32 * 16),
                ("flags", ctypes.c_int32), ("src", ctypes.c_void_p * 10),
                ("view_src", ctypes.c_void_p), ("view_offs", ctypes.c_size_t),
                ("data", ctypes.c_void_p), ("name", ctypes.c_char * 64)]


def elements(address):
    """A float32 tensor as an array, its fastest axis last."""
    t = Tensor.from_address(address)
    if t.type != F32:
        raise RuntimeError(f"{t.name} is of type {t.type}, not float32")
    raw = (ctypes.c_uint8 * ggml.ggml_nbytes(address))()
    ggml.ggml_backend_tensor_get(address, raw, 0, len(raw))
    return np.lib.stride_tricks.as_strided(
        np.frombuffer(raw, np.float32), list(t.ne)[::-1], list(t.nb)[::-1]).copy()


class Spy:
    """
    k, v: {layer: {(sequence, position): row}} of what was stored; r, s: {layer:
    {sequence: array}} of the states stored last
    """

    def __init__(self):
        self.k, self.v, self.r, self.s = {}, {}, {}, {}
        self.where = []                 # of the tokens of the batch in work
        self.failed = None
        self.callback = L.ggml_backend_sched_eval_callback(self.seen)

    def seen(self, address, ask, _):
        try:
            return self.look(address, ask)
        except Exception as error:      # ctypes would only print it
            self.failed = self.failed or error
            return False

    def look(self, address, ask):
        t = Tensor.from_address(address)
        if ggml.ggml_op_name(t.op) not in (b"SET_ROWS", b"CPY") or not t.view_src:
            return False if ask else True
        name = Tensor.from_address(t.view_src).name.decode()
        if not name.startswith("cache_"):
            return False if ask else True
        if ask:
            return True
        kind, layer = name[len("cache_"):].split("_l")
        x = elements(t.src[0])
        if kind in "kv":
            rows = x.reshape(len(self.where), -1)
            stored = getattr(self, kind).setdefault(int(layer), {})
            for place, row in zip(self.where, rows):
                for at in place:
                    stored[at] = row
        else:
            stored = getattr(self, kind).setdefault(int(layer), {})
            for sequence, _ in self.where[0]:
                stored[sequence] = x.reshape(-1)
        return True


class Engine:
    """A context of a model; what it stores is in spy."""

    def __init__(self, path, k="f16", v=None, flash=False, sequences=1, unified=False,
                 whole_window=False, tokens=256):
        # the model is freed with its engine
        how = L.llama_model_default_params()
        how.n_gpu_layers = 0
        self.model = L.llama_model_load_from_file(path.encode(), how)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}: {''.join(said)}")
        self.spy = Spy()
        c = L.llama_context_default_params()
        c.n_ctx, c.n_batch, c.n_ubatch, c.n_seq_max = tokens, 256, 256, sequences
        c.n_threads = c.n_threads_batch = 1
        c.type_k, c.type_v = TYPES[k], TYPES[v or k]
        c.offload_kqv, c.swa_full, c.kv_unified = False, whole_window, unified
        c.cb_eval = self.spy.callback
        if hasattr(c, "flash_attn_type"):
            c.flash_attn_type = int(flash)
        else:
            c.flash_attn = flash
        self.context = L.llama_init_from_model(self.model, c)
        if not self.context:
            raise RuntimeError(f"llama.cpp makes no such context: {''.join(said)}")
        self.memory = L.llama_get_memory(self.context)
        self.words = L.llama_vocab_n_tokens(L.llama_model_get_vocab(self.model))

    def close(self):
        L.llama_free(self.context)
        L.llama_model_free(self.model)

    def decode(self, tokens, first=0, sequences=(0,)):
        """Logits of the last token."""
        b = L.llama_batch_init(len(tokens), 0, len(sequences))
        b.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            b.token[i], b.pos[i], b.n_seq_id[i] = token, first + i, len(sequences)
            for j, s in enumerate(sequences):
                b.seq_id[i][j] = s
            b.logits[i] = i == len(tokens) - 1
        self.spy.where = [[(s, first + i) for s in sequences] for i in range(len(tokens))]
        code = L.llama_decode(self.context, b)
        L.llama_batch_free(b)
        if code or self.spy.failed:
            raise self.spy.failed or RuntimeError(f"llama_decode: {code}")
        row = L.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(row, (self.words,)).copy()

    def go_on(self, token, position, n, sequence=0):
        """The n tokens that come next, and all logits of them."""
        out, seen = [], []
        for i in range(n):
            logits = self.decode([token], position + i, (sequence,))
            token = int(logits.argmax())
            out.append(token)
            seen.append(logits.tobytes())
        return out, seen

    # ---- its files

    def save(self, path, tokens):
        a = (L.llama_token * len(tokens))(*tokens)
        if not L.llama_state_save_file(self.context, path.encode(), a, len(tokens)):
            raise RuntimeError("llama_state_save_file failed")
        return path

    def save_sequence(self, path, tokens, sequence=0):
        a = (L.llama_token * len(tokens))(*tokens)
        if not L.llama_state_seq_save_file(self.context, path.encode(), sequence, a,
                                           len(tokens)):
            raise RuntimeError("llama_state_seq_save_file failed")
        return path

    def sequence_bytes(self, sequence=0):
        n = L.llama_state_seq_get_size(self.context, sequence)
        raw = (ctypes.c_uint8 * n)()
        if L.llama_state_seq_get_data(self.context, raw, n, sequence) != n:
            raise RuntimeError("llama_state_seq_get_data failed")
        return bytes(raw)

    def load(self, path):
        a, n = (L.llama_token * 4096)(), ctypes.c_size_t()
        with open(path, "rb") as f:
            whole = f.read(4) == b"nsgg"
        if whole:
            good = L.llama_state_load_file(self.context, path.encode(), a, 4096,
                                           ctypes.byref(n))
        else:
            good = L.llama_state_seq_load_file(self.context, path.encode(), 0, a, 4096,
                                               ctypes.byref(n))
        return bool(good)

    def remove(self, sequence, first, end):
        if not L.llama_memory_seq_rm(self.memory, sequence, first, end):
            raise RuntimeError("llama_memory_seq_rm failed")

    def copy(self, source, to, first, end):
        L.llama_memory_seq_cp(self.memory, source, to, first, end)

    def first(self, sequence):
        """The first position that all caches of a sequence have."""
        return L.llama_memory_seq_pos_min(self.memory, sequence)


# ---- elements of a cache's type ---------------------------------------------

def bfloat16(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7fff + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def q8_0(x, by_division):
    """
    Blocks of 32 numbers: a float16 and 32 int8.  Builds find the factor by one
    division or by two, by the processor.
    """
    b = np.ascontiguousarray(x, np.float32).reshape(*x.shape[:-1], -1, 32)
    most = np.abs(b).max(-1, keepdims=True)
    d = most / np.float32(127)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.float32(127) / most if by_division else np.float32(1) / d
    factor = np.where(most > 0, factor, np.float32(0))
    out = np.empty(b.shape[:-1] + (34,), np.uint8)
    out[..., :2] = d.astype(np.float16).view(np.uint8)
    out[..., 2:] = np.rint(b * factor).astype(np.int8).view(np.uint8)
    return out.reshape(*x.shape[:-1], -1)


def stored(x, type_name):
    """Rows of float32 as the bytes a cache has of them: all that are possible."""
    if type_name == "q8_0":
        return [q8_0(x, True), q8_0(x, False)]
    as_type = {"f32": lambda a: a, "f16": lambda a: a.astype(np.float16),
               "bf16": bfloat16}[type_name]
    return [np.ascontiguousarray(as_type(x)).view(np.uint8)]
