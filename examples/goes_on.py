# SPDX-License-Identifier: Apache-2.0
"""
goes_on.py [--tokens] DUMP [REQUEST] - what stories260K writes when it goes on from a cache

It stands in for an engine: a whole Llama of 260,000 parameters (testdata/kv/model), in
plain Python.  The keys and values of the prompt come from the dump, and none is computed
anew; what the dump says of its layout is believed, as an engine believes its own.
"""
import argparse
import json
import math
import os
import struct
import subprocess
import tempfile
from operator import add, mul

DATA = f"{os.path.dirname(os.path.abspath(__file__))}/../testdata/kv"
KVTOOL = os.environ.get("KVTOOL", "kvtool")


# ---- the cache --------------------------------------------------------------------

def converted(dump, request):
    """The request as kvtool writes it for transformers: the header and the data."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/request.safetensors"
        subprocess.run([KVTOOL, "convert", "-q", "--format=transformers",
                        f"--request={request}", dump, path], check=True)
        with open(path, "rb") as f:
            head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            return head, f.read()


def vectors(entry, data):
    """[head][token], of a tensor of bfloat16: the upper half of a float."""
    _, heads, tokens, size = entry["shape"]
    bits = struct.unpack_from(f"<{heads * tokens * size}H", data, entry["data_offsets"][0])
    words = struct.pack(f"<{len(bits)}I", *(b << 16 for b in bits))
    numbers = struct.unpack(f"<{len(bits)}f", words)
    rows = [numbers[i:i + size] for i in range(0, len(numbers), size)]
    return [rows[h * tokens:(h + 1) * tokens] for h in range(heads)]


def cache_of(dump, request, tokens):
    """[layer][head] is (keys, values), of the first tokens."""
    head, data = converted(dump, request)
    layers = sum(name.endswith(".keys") for name in head)
    sides = [[vectors(head[f"layers.{i}.{side}"], data) for side in ("keys", "values")]
             for i in range(layers)]
    return [[(k[:tokens], v[:tokens]) for k, v in zip(*both)] for both in sides]


# ---- the model --------------------------------------------------------------------

def dot(a, b):
    return sum(map(mul, a, b))


def times(rows, x):
    return [dot(row, x) for row in rows]


def norm(x, weight):
    scale = 1 / math.sqrt(dot(x, x) / len(x) + 1e-5)
    return [v * scale * w for v, w in zip(x, weight)]


def turned(x, position, size):
    """Heads after rotation: neighbours are the pairs."""
    out = []
    for i in range(0, len(x), 2):
        angle = position / 10000 ** (i % size / size)
        cos, sin = math.cos(angle), math.sin(angle)
        out += [x[i] * cos - x[i + 1] * sin, x[i] * sin + x[i + 1] * cos]
    return [tuple(out[i:i + size]) for i in range(0, len(out), size)]


class Model:
    """The checkpoint of llama2.c: seven numbers, then all matrices in a fixed order."""

    def __init__(self, path):
        with open(path, "rb") as f:
            dim, hidden, layers, self.heads, kv_heads, words, _ = struct.unpack("<7i", f.read(28))
            self.size = dim // self.heads

            def rows(count, width=dim):
                return [struct.unpack(f"<{width}f", f.read(4 * width)) for _ in range(count)]
            self.words, self.norms = rows(words), [rows(layers)]
            self.query, self.key, self.value, self.out = (
                [rows(n * self.size) for _ in range(layers)]
                for n in (self.heads, kv_heads, kv_heads, self.heads))
            self.norms += [rows(layers)]
            self.gate = [rows(hidden) for _ in range(layers)]
            self.down = [rows(dim, hidden) for _ in range(layers)]
            self.up = [rows(hidden) for _ in range(layers)]
            self.norms += rows(1)

    def attend(self, query, keys, values):
        scores = [s / math.sqrt(self.size) for s in times(keys, query)]
        most = max(scores)
        weights = [math.exp(s - most) for s in scores]
        total = sum(weights)
        return [s / total for s in times(zip(*values), weights)]

    def attention(self, i, y, position, cache):
        """Adds the token to the cache of layer i, and looks at all that are there."""
        value = times(self.value[i], y)
        for h, key in enumerate(turned(times(self.key[i], y), position, self.size)):
            cache[h][0].append(key)
            cache[h][1].append(value[h * self.size:(h + 1) * self.size])
        queries = turned(times(self.query[i], y), position, self.size)
        seen = [v for h, query in enumerate(queries)
                for v in self.attend(query, *cache[h * len(cache) // self.heads])]
        return times(self.out[i], seen)

    def feed_forward(self, i, y):
        gate = [g / (1 + math.exp(-g)) for g in times(self.gate[i], y)]
        return times(self.down[i], list(map(mul, gate, times(self.up[i], y))))

    def next(self, token, position, caches):
        """The likeliest token behind this one."""
        x = self.words[token]
        for i, cache in enumerate(caches):
            y = self.attention(i, norm(x, self.norms[0][i]), position, cache)
            x = list(map(add, x, y))
            x = list(map(add, x, self.feed_forward(i, norm(x, self.norms[1][i]))))
        logits = times(self.words, norm(x, self.norms[2]))
        return logits.index(max(logits))


def vocabulary(path):
    with open(path, "rb") as f:
        f.read(4)
        while length := f.read(8):
            yield f.read(struct.unpack("<fi", length)[1]).decode(errors="replace")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tokens", action="store_true", help="print numbers, not words")
    p.add_argument("--count", type=int, default=35)
    p.add_argument("dump")
    p.add_argument("request", nargs="?", default="B")
    args = p.parse_args()
    model = Model(f"{DATA}/model/stories260K.bin")
    words = [w.replace("<0x0A>", "\n") for w in vocabulary(f"{DATA}/model/tok512.bin")]
    with open(f"{DATA}/s260k/canonical/requests.json", encoding="ascii") as f:
        prompt = json.load(f)["token_ids"][args.request]
    # the last token of the prompt is fed to the model, the others are in the cache
    caches = cache_of(args.dump, args.request, len(prompt) - 1)
    said = [prompt[-1]]
    for position in range(len(prompt) - 1, len(prompt) - 1 + args.count):
        said.append(model.next(said[-1], position, caches))
    if args.tokens:
        print(*said[1:])
    else:
        print("".join(words[t] for t in said[1:]).strip())


if __name__ == "__main__":
    main()
