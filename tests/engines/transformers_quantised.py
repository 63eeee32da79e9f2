# SPDX-License-Identifier: Apache-2.0
"""
transformers_quantised.py - caches that HQQ and quanto have quantised: the numbers that
kvtool decodes are those that the library itself decodes, to the last bit

Keys and values are random, and so are heads, lengths, groups and types.  The oracle is
what the cache's next update() returns, which is what a model would go on with.
"""
import itertools
import json
import os
import random
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import hqq.core.quantize            # what it takes to import, no row should be blamed for
import numpy as np
import optimum.quanto
import torch
import transformers
from transformers import cache_utils

import dumps
from proof import Proof

WHAT = "decoded numbers are those that the library decodes"
TYPES = [torch.float32, torch.bfloat16, torch.float16]
SIGNED = {torch.float32: torch.int32, torch.bfloat16: torch.int16,
            torch.float16: torch.int16}
# backend, name in words, axes, bits; those of 5 and 6 the cache's class does not offer
KINDS = [("hqq", "HQQ", (0, 1), (1, 2, 3, 4, 5, 6, 8)),
         ("quanto", "quanto", (0, -1), (2, 4))]
FILLED = ["random", "outliers", "constant in places", "far from zero"]


def same(got, want):
    """Bits beside a tensor: each equal, or no number in both, whose bits vary by CPU."""
    kind = SIGNED[want.dtype]
    if got.shape != want.shape or got.dtype.itemsize != want.dtype.itemsize:
        return False
    signed = np.ascontiguousarray(got).view(f"<i{want.dtype.itemsize}")
    mine, want = torch.from_numpy(signed), want.detach().contiguous()
    equal = mine == want.view(kind)
    return bool((equal | (mine.view(want.dtype).isnan() & want.isnan())).all())


# what the libraries raise where groups do not divide, or rows do not fill bytes
CANNOT = (AssertionError, RuntimeError, ValueError)


class Case:
    """A cache of random keys and values; seeded, so that a failure can be made again."""

    def __init__(self, seed, backend, nbits, axes, dtype):
        draw = self.draw = random.Random(seed)
        torch.manual_seed(draw.randrange(1 << 31))
        self.backend, self.nbits, self.dtype = backend, nbits, dtype
        self.rows = draw.choice((1, 1, 2))
        self.heads, self.dim = draw.choice((1, 2, 3)), draw.choice((8, 16, 32))
        self.layers = draw.choice((1, 2))
        self.group = draw.choice((8, 16, 32, 64))
        self.filling = draw.choice(FILLED)
        self.tokens, self.cache = 0, self.empty(axes)
        # a prompt, and tokens behind it: none, some, or as many as are coded again
        for n in [8 * draw.randrange(1, 6)] + [1] * draw.choice((0, 3, 5, 8, 19)):
            self.add(n)

    def empty(self, axes):
        config = transformers.LlamaConfig(
            num_hidden_layers=self.layers, hidden_size=self.heads * self.dim,
            num_attention_heads=self.heads, vocab_size=32)
        offered = self.nbits if self.nbits not in (5, 6) else 8
        cache = cache_utils.QuantizedCache(
            self.backend, config, nbits=offered, axis_key=axes[0], axis_value=axes[1],
            q_group_size=self.group, residual_length=8)
        for layer in cache.layers:
            layer.nbits = self.nbits
        return cache

    def numbers(self, n):
        t = torch.randn(self.rows, self.heads, n, self.dim)
        if self.filling == "outliers":
            t = torch.where(torch.rand(t.shape) < 0.02, t * 300, t)
        elif self.filling == "constant in places":
            t[:, :, n // 2:] = self.draw.choice((0.0, 1.25, -3.0))
        elif self.filling == "far from zero":
            t = t * 0.01 + 40
        return t.to(self.dtype)

    def add(self, n):
        """Tokens to all layers; what update() returns, without them."""
        out = []
        for layer in range(self.layers):
            both = self.cache.update(self.numbers(n), self.numbers(n), layer)
            out.append([t[:, :, :self.tokens] for t in both])
        self.tokens += n
        return out

    def __str__(self):
        kind = str(self.dtype).removeprefix("torch.")
        return (f"{kind}, groups of {self.group}, {self.rows} x {self.heads} x "
                f"{self.tokens} x {self.dim}, {self.filling}")


def drawn(seed, *kind):
    """The first drawn case that the library can make; it may not decode it yet."""
    for attempt in range(100):
        try:
            return Case(f"{seed} {kind} {attempt}", *kind)
        except CANNOT:
            pass
    raise RuntimeError(f"the library makes no cache of {kind}")


def check(proof, row, case, word, name):
    """One file; False: neither the library nor kvtool can decode it."""
    path = os.path.join(proof.folder("quantised"), "cache.pt")
    torch.save(case.cache, path)
    said = [f"--set=tokens={','.join([str(case.tokens)] * case.rows)}"] * (case.rows > 1)
    name, count = f"{name}, {case}", case.tokens
    try:
        want = case.add(1)
    except CANNOT as error:
        r = proof.kvtool("describe", *said, path)
        row.ok(r.code in (3, 4), f"{name}: refused, as the library has it", f"{error}\n{r}")
        return False
    dump = dumps.read(proof, path, *said)
    for layer, r in itertools.product(range(case.layers), range(case.rows)):
        got = dump.layer(str(r), layer)
        for half in (0, 1):
            right = want[layer][half][r].transpose(0, 1)
            row.ok(len(right) == count and same(got[half], right),
                   f"{name}: row {r}, layer {layer}, {('keys', 'values')[half]}",
                   f"{got[half].shape}, {right.shape}")
    r = proof.must("describe", "--json", *said, path)
    row.equal(json.loads(r.out)["decoded"],
              f"{word} codes of {case.nbits} bit{'s' * (case.nbits > 1)}",
              f"{name}: says what was decoded")
    # of float16, scale times zero may overflow: the library says infinity, fsck names it
    finite = all(t.isfinite().all() for pair in want for t in pair)
    row.equal(proof.kvtool("fsck", "-q", *said, path).code, 0 if finite else 1,
              f"{name}: fsck is content, or finds what is not finite")
    written = os.path.join(proof.work, "read", "read.safetensors")
    row.equal(proof.kvtool("diff", "-q", *said, path, written).code, 0,
              f"{name}: equal to what is written of it")
    return True


def versions():
    return {"hqq": hqq.__version__, "quanto": optimum.quanto.__version__}


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    proof = Proof("transformers", transformers.__version__)
    os.environ["HDF5_PLUGIN_PATH"] = os.path.join(os.path.dirname(proof.program), "plugin")
    for backend, word, axes, widths in KINDS:
        for nbits in widths:
            on = f"{word} {versions()[backend]}, {nbits} bit{'s' * (nbits > 1)}, " \
                 "both axes, float32, bfloat16 and float16"
            files = refused = 0
            with proof.row(WHAT, on) as row:
                for pair in itertools.product(axes, repeat=2):
                    for dtype in TYPES:
                        case = drawn(proof.seed, backend, nbits, pair, dtype)
                        done = check(proof, row, case, word, f"axes {pair}")
                        files, refused = files + 1, refused + (not done)
                row.ok(refused < files, "some are decoded")
                row.figure(f"{files} files" + f", {refused} that the library cannot decode"
                           * (refused > 0))
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
