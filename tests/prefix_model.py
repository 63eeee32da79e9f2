# SPDX-License-Identifier: Apache-2.0
"""
prefix_model.py - what engines call the blocks of a prompt, said a second time

Pickles are Python's own, hash() is that of the Python that runs this, with a process of
its own where PYTHONHASHSEED counts; CBOR and BLAKE3 are written out here; XXH3 is that of
libxxhash, by ctypes.  Facts: vLLM 0.26.0 and 0.32.0, LMCache 0.5.6, SGLang 0.5.23.
"""
import ctypes
import functools
import hashlib
import pickle
import struct
import subprocess
import sys

# ---- bytes ---------------------------------------------------------------------


def cbor(x):
    def head(kind, n):
        if n < 24:
            return bytes([kind << 5 | n])
        log = next(k for k in range(4) if n < 1 << (8 << k))
        return bytes([kind << 5 | 24 + log]) + n.to_bytes(1 << log, "big")
    if x is None:
        return b"\xf6"
    if isinstance(x, int):
        return head(0, x) if x >= 0 else head(1, -1 - x)
    if isinstance(x, bytes):
        return head(2, len(x)) + x
    if isinstance(x, str):
        return head(3, len(x.encode())) + x.encode()
    return head(4, len(x)) + b"".join(map(cbor, x))


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


@functools.cache
def xxh3():
    lib = ctypes.CDLL("libxxhash.so.0")
    lib.XXH3_128bits.restype = Hash128
    lib.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return lib.XXH3_128bits


def xxhash(data):
    h = xxh3()(data, len(data))
    return struct.pack(">QQ", h.high, h.low)


IV = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19]
ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
M32 = 0xffffffff


def blake3(data):
    def compress(cv, block, counter, n, flags):
        m = list(struct.unpack("<16I", block.ljust(64, b"\0")))
        v = cv[:8] + IV[:4] + [counter & M32, counter >> 32, n, flags]

        def quarter(a, b, c, d, x, y):
            for word, r, s in ((x, 16, 12), (y, 8, 7)):
                v[a] = (v[a] + v[b] + word) & M32
                v[d] ^= v[a]
                v[d] = (v[d] >> r | v[d] << (32 - r)) & M32
                v[c] = (v[c] + v[d]) & M32
                v[b] ^= v[c]
                v[b] = (v[b] >> s | v[b] << (32 - s)) & M32
        for _ in range(7):
            for i in range(4):
                quarter(i, 4 + i, 8 + i, 12 + i, m[2 * i], m[2 * i + 1])
            for i in range(4):
                quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4,
                        m[8 + 2 * i], m[9 + 2 * i])
            m = [m[i] for i in ORDER]
        return [v[i] ^ v[i + 8] for i in range(8)]

    def tree(data, first, root):
        if len(data) <= 1024:
            cv, blocks = IV, [data[i:i + 64] for i in range(0, len(data), 64)] or [b""]
            for i, b in enumerate(blocks):
                last = i == len(blocks) - 1
                cv = compress(cv, b, first, len(b), (i == 0) | last << 1 |
                              (8 if last and root else 0))
            return cv
        left = 1024
        while 2 * left < len(data):
            left *= 2
        both = tree(data[:left], first, False) + \
            tree(data[left:], first + left // 1024, False)
        return compress(IV, struct.pack("<16I", *both), 0, 64, 4 | (8 if root else 0))
    return struct.pack("<8I", *tree(data, 0, True))


@functools.cache
def hash_of_seed(seed):
    out = subprocess.run([sys.executable, "-c", "import sys; print(hash(sys.argv[1]))", seed],
                         env={"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, check=True)
    return int(out.stdout)


# ---- names ---------------------------------------------------------------------

DIGEST = {
    "sha256": lambda x: hashlib.sha256(pickle.dumps(x, protocol=5)).digest(),
    "sha256_cbor": lambda x: hashlib.sha256(cbor(x)).digest(),
    "xxhash": lambda x: xxhash(pickle.dumps(x, protocol=5)),
    "xxhash_cbor": lambda x: xxhash(cbor(x)),
}
NONE_SEED = "vllm-none-hash"


def extras(engine, begin, end, salt=None, lora=None, items=()):
    tagged = engine == "vllm"
    out = []
    if lora:
        out.append(("lora", *lora) if tagged else lora[0])
    for name, first, last in items:
        if first < end and last > begin:
            out.append(("mm", name, first - begin) if tagged else (name, first - begin))
    if salt and begin == 0:
        out.append(("cache_salt", salt) if tagged else salt)
    return tuple(out) or None


def vllm(engine, tokens, size, algorithm="sha256", seed=None, **key):
    digest = DIGEST[algorithm]
    parent = digest(seed if seed is not None else NONE_SEED)
    for at in range(0, len(tokens) - size + 1, size):
        parent = digest((parent, tuple(tokens[at:at + size]),
                         extras(engine, at, at + size, **key)))
        yield parent.hex()


def lmcache(tokens, size, algorithm="builtin", seed=None):
    """seed None: where vLLM cannot be imported."""
    def fold(x):
        return int.from_bytes(x[:8], "big")
    if algorithm == "builtin":
        parent = 0 if seed is None else hash_of_seed(seed)
    else:
        parent = fold(DIGEST[algorithm](seed))
    for at in range(0, len(tokens), size):
        x = (parent, tuple(tokens[at:at + size]), ())
        parent = hash(x) if algorithm == "builtin" else fold(DIGEST[algorithm](x))
        yield f"{parent:x}"


def lmcache_mp(tokens, size, algorithm="blake3", seed=None):
    if algorithm != "blake3":
        yield from vllm("vllm", tokens, size, algorithm, seed)
        return
    parent = blake3(bytes(12))
    for at in range(0, len(tokens) - size + 1, size):
        parent = blake3(parent + struct.pack(f">{size}I", *tokens[at:at + size]))
        yield parent.hex()


def sglang(tokens, size, salt=None, extra_key=None, event=False):
    prior = b""
    if event and salt is not None:
        prior = hashlib.sha256(b"sglang-cache-salt-v1\0" + salt.encode()).digest()
    elif not event and (salt is not None or extra_key is not None):
        h = hashlib.sha256(b"sglang-cache-namespace-v1")
        for part in (extra_key, salt):
            h.update(b"\0" if part is None else
                     b"\1" + struct.pack("<Q", len(part.encode())) + part.encode())
        prior = h.digest()
    for at in range(0, len(tokens) - size + 1, size):
        page = tokens[at:at + size]
        body = struct.pack(f"<{size}I", *page) if max(page) < 1 << 32 else \
            b"\xff" + struct.pack(f"<{size}Q", *page)
        prior = hashlib.sha256(prior + body).digest()
        yield str(struct.unpack(">q", prior[:8])[0]) if event else prior.hex()


# What others are held to: BLAKE3's own vectors, of bytes 0 to 250 again and again.
assert blake3(b"").hex()[:16] == "af1349b9f5f9a1a6"
assert blake3(bytes(i % 251 for i in range(1025))).hex()[:16] == "d00278ae47eb27b3"
