# SPDX-License-Identifier: Apache-2.0
"""
store_files.py - files as LMCache and Mooncake write them, from their descriptions

Arrays are [K, L, T, H, D] of bits, K 1 for a latent.  Nothing here knows kvtool.
"""
import hashlib
import json
import os
import struct
import urllib.parse

import numpy as np

LMCACHE_TYPES = {"float16": 1, "bfloat16": 3, "float32": 4, "uint8": 6}
LMCACHE_WORDS = {"float16": "half", "bfloat16": "bfloat16", "float32": "float",
                 "uint8": "uint8"}
SAFETENSORS = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "uint8": "U8"}
TORCH_OF_MOONCAKE = {"float32": 0, "uint8": 3, "float16": 11, "bfloat16": 12}


def write(path, *parts):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        for p in parts:
            f.write(p)


# ---- chunks -----------------------------------------------------------------

def chunk_ids(token_ids, ntokens, size):
    """[(hash of all tokens up to the end, first, end)] of each chunk."""
    out = []
    for first in range(0, ntokens, size):
        end = min(first + size, ntokens)
        prefix = np.array(token_ids[:end], "<i8").tobytes()
        out.append((hashlib.sha256(prefix).hexdigest()[:16], first, end))
    return out


# ---- LMCache ----------------------------------------------------------------

def lmcache_array(cells, fmt):
    """The chunk as LMCache's MemoryFormat has it, and the shape it says."""
    k, layers, tokens, heads, dim = cells.shape
    if fmt == 1:
        return cells, (2, layers, tokens, heads * dim)
    if fmt == 2:
        return cells[:, 0].transpose(1, 0, 2, 3), (tokens, 2, heads * dim)
    if fmt == 3:
        return cells[:, 0], (2, tokens, heads * dim)
    return cells, (1, layers, tokens, dim)


def lmcache_key(model, world, worker, chunk, dtype, layer=None, tags=""):
    key = f"{model}@{world}@{worker}@{chunk}@{LMCACHE_WORDS[dtype]}"
    if layer is not None:
        key += f"@{layer}"
    return key + (f"@{tags}" if tags else "")


def raw(array):
    return np.ascontiguousarray(array).tobytes()


def fs_header(arrays, fmt, dtypes, shapes, pad="zeros"):
    """Seven integers, or two and five for each array."""
    out = struct.pack("<ii", sum(map(len, arrays)), fmt)
    for dtype, shape in zip(dtypes, shapes):
        shape = list(shape)
        more = 4 - len(shape)
        shape = shape + [0] * more if pad == "zeros" else [1] * more + shape
        out += struct.pack("<5i", LMCACHE_TYPES[dtype], *shape)
    return out


def gds_header(arrays, fmt, dtypes, shapes, version="1"):
    entry = {"dtype": SAFETENSORS[dtypes[0]], "shape": list(shapes[0]),
             "data_offsets": [0, sum(map(len, arrays))], "fmt": fmt,
             "__metadata__": {"lmcache_version": version}}
    if len(arrays) > 1:
        entry["shapes"] = [list(s) for s in shapes]
        entry["dtypes"] = [SAFETENSORS[d] for d in dtypes]
    text = json.dumps({"kvcache": entry}).encode()
    return struct.pack("<Q", 4088) + text + b" " * (4088 - len(text))


def lmcache_file(folder, backend, key, chunk, arrays, fmt, dtypes, shapes, pad="zeros"):
    """One chunk, or one layer of it, as a backend keeps it."""
    arrays = [raw(a) for a in arrays]
    if backend == "disk":
        write(f"{folder}/{key.replace('/', '-')}.pt", *arrays)
    elif backend == "fs-bare":
        write(f"{folder}/{key.replace('/', '-')}.data", *arrays)
    elif backend == "fs":
        write(f"{folder}/{key.replace('/', '-')}.data",
              fs_header(arrays, fmt, dtypes, shapes, pad), *arrays)
    else:
        ending = ".weka1" if backend == "weka" else ".kvcache.safetensors"
        number = str(int(chunk, 16))
        path = (f"{folder}/{number[:2]}/{number[2:4]}/"
                f"{urllib.parse.quote(key, safe='')}{ending}")
        head = gds_header(arrays, fmt, dtypes, shapes)
        write(path, head, *arrays)
        write(path + ".metadata", head)


def lmcache_dump(folder, backend, requests, token_ids, size, dtype, fmt,
                 model="org/model", world=1, worker=0, tags="", pad="zeros"):
    """
    requests {name: cells}; returns {name: [hash]}, which is what a user must
    know to put them together again.
    """
    order = {}
    for name, cells in requests.items():
        order[name] = []
        for chunk, first, end in chunk_ids(token_ids[name], cells.shape[2], size):
            order[name].append(chunk)
            part = cells[:, :, first:end]
            layers = range(cells.shape[1]) if fmt in (2, 3) else [None]
            for layer in layers:
                one = part if layer is None else part[:, layer:layer + 1]
                array, shape = lmcache_array(one, fmt)
                key = lmcache_key(model, world, worker, chunk, dtype, layer, tags)
                lmcache_file(folder, backend, key, chunk, [array], fmt, [dtype],
                             [shape], pad)
    return order


def l2_dump(folder, requests, token_ids, size, model="org/model", world=1,
            worker=0, salt=""):
    order = {}
    for name, cells in requests.items():
        order[name] = []
        for chunk, first, end in chunk_ids(token_ids[name], cells.shape[2], size):
            rank = world << 24 | worker << 16 | world << 8 | worker
            order[name].append(chunk)
            write(f"{folder}/{model.replace('/', '-SEP-')}@{rank:#010x}@0@{chunk}"
                  f"{'@' + salt if salt else ''}.data", raw(cells[:, :, first:end]))
    return order


def write_order(path, order):
    with open(path, "w") as f:
        f.write("# request, and its chunks in order\n\n")
        for name, chunks in order.items():
            f.write(f"{name} {' '.join(chunks)}\n")


# ---- Mooncake ---------------------------------------------------------------

def stored(key):
    """What the store calls a key."""
    return b"default\0" + key.encode()


def tensor_object(array, dtype, shape=None, axes=(), whole=None, gap=b""):
    """axes: (kind, rank, count, split dimension)."""
    shape = list(array.shape if shape is None else shape)
    data = raw(array)
    whole = list(whole or shape)
    head = struct.pack("<IHHiiIIQQ", 0x4d4f4f4e, 1, 304,
                       TORCH_OF_MOONCAKE[dtype], len(shape), int(bool(axes)), 0,
                       304 + len(gap), len(data))
    for s in whole, shape:
        head += struct.pack("<8q", *(s + [-1] * (8 - len(s))))
    head += struct.pack("<II", len(axes), 0)
    for i in range(4):
        kind, rank, count, dim = axes[i] if i < len(axes) else (0, 0, 0, 0)
        head += struct.pack("<6iq", kind, 0, rank, count, dim, 0, 0)
    assert len(head) == 304
    return head + gap + data


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def number(field, n):
    """Messages leave out what is 0."""
    return varint(field << 3) + varint(n) if n else b""


def text(field, s):
    return varint(field << 3 | 2) + varint(len(s)) + s


def file_per_key(folder, values):
    for key, value in values.items():
        h = hashlib.md5(key.encode()).digest()
        safe = "".join("_" if c in '\0/\\:*?"<>|' else c for c in stored(key).decode())
        write(f"{folder}/{chr(97 + h[0] % 16)}/{chr(97 + h[1] % 16)}/{safe}",
              text(1, stored(key)), text(2, value))


def bucket_meta(values):
    places, at = [], 0
    for key, value in values.items():
        places.append((at, len(stored(key)), len(value)))
        at += len(stored(key)) + len(value)
    out = number(1, at) + b"".join(text(2, stored(k)) for k in values)
    for place in places:
        out += text(3, b"".join(number(i + 1, n) for i, n in enumerate(place)))
    return out


def buckets(folder, values, each=3, padded=False):
    names = list(values)
    for i in range(0, len(names), each):
        some = {k: values[k] for k in names[i:i + each]}
        body = b"".join(stored(k) + v for k, v in some.items())
        if padded:
            body += bytes(-len(body) % 4096)
        write(f"{folder}/{1000 + i}.bucket", body)
        write(f"{folder}/{1000 + i}.meta", bucket_meta(some))


def crc32c(data, crc=0):
    crc ^= 0xffffffff
    for b in data:
        crc ^= b
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def record(key, value, seq, crc=True):
    key = stored(key)
    prefix = struct.pack("<IIQI", len(key), len(value), seq, int(crc))
    total = crc32c(prefix + key + value) if crc else 0
    head = prefix + struct.pack("<I", total) + key
    return head + bytes(-len(head) % 4096) + value


def checkpoint(nodes, seq, capacity, keys, version=3, spare=4):
    """nodes: [(first page, pages)]; some entries of the table are not in use."""
    table = [(0, 0, 0)] * spare + [(a, n, 1) for a, n in nodes]
    state = struct.pack("<QQQQQ", 0, 12, capacity, 0, len(nodes))
    state += struct.pack("<IIIII", capacity >> 12, len(table), 1 << 20, 0, 0)
    state += bytes(32) + b"\xff" * 1024 + struct.pack("<I", spare)
    for a, n, used in table:
        state += struct.pack("<IIIIII?3x", a, n, *[0xffffffff] * 4, bool(used))
    state += struct.pack(f"<{len(table)}I", *range(len(table)))
    out = number(1, version) + text(2, state) + number(3, seq)
    for i, key in enumerate(keys):
        out += text(4, number(1, i) + text(2, stored(key)))
    return out


def offset_store(folder, values, crc=True, later=()):
    """'later': keys written after the checkpoint, which is then not of them."""
    body, nodes = b"\xee" * 8192, []
    for i, (key, value) in enumerate(values.items()):
        seq = 1000 + i if key in later else i
        r = record(key, value, seq, crc)
        nodes.append((len(body) >> 12, -(-len(r) // 4096)))
        body += r + b"\xee" * (-len(r) % 4096) + b"\xdd" * 4096
    write(f"{folder}/kv_cache.data", body)
    write(f"{folder}/kv_cache.meta",
          checkpoint(nodes, len(values), len(body), list(values)))
