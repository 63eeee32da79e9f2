# SPDX-License-Identifier: Apache-2.0
"""
What transformers calls past_key_values, in any of its forms

Layers of keys and values of one shape are read where they lie.  Everything else that a
cache may hold (windows, recurrent states, codes of a quantiser, latents, two caches) is
known to the library from what torch.save() writes: it is written into a file in memory,
and opened as any other.  So an object and its file cannot have different answers.
"""
from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _arrays
from ._dump import Dump, open as open_dump
from ._native import BadInput, Error, Unsupported, UsageError

#: classes of torch's tensors that hold every token in order, and nothing else
_PLAIN = ("DynamicLayer", "StaticLayer", "DynamicCache", "StaticCache")


class Cache(NamedTuple):
    """Of each layer keys and values [batch, head, token, element], all of one shape."""

    pairs: List[Tuple[Any, Any]]
    tokens: int                     # of each sequence, of as many as there is room for


def is_tensor(tensors: Any) -> bool:
    """One array or tensor, of whatever library."""
    return hasattr(tensors, "shape") and hasattr(tensors, "dtype")


def is_object(tensors: Any) -> bool:
    """A cache, or a layer of another one, by its attributes."""
    return not is_tensor(tensors) and any(hasattr(tensors, name) for name in (
        "layers", "key_cache", "self_attention_cache", "conv_states", "ssm_states"))


def is_cache(tensors: Any) -> bool:
    """What needs no layout: a cache, a tuple of pairs, what a model gave back."""
    return is_object(tensors) or _is_pairs(tensors) or \
        (not is_tensor(tensors) and given_back(tensors) is not tensors) or \
        isinstance(tensors, Mapping) and any(
            is_object(value) or _is_pairs(value) for value in tensors.values())


def _is_pairs(tensors: Any) -> bool:
    """The old form of a cache: a tuple of tuples (keys, values)."""
    return isinstance(tensors, tuple) and bool(tensors) and all(
        isinstance(t, tuple) and len(t) == 2 and all(
            is_tensor(half) and len(half.shape) == 4 for half in t) for t in tensors)


def _is_simple(value: Any) -> bool:
    """Not a state: a number, a name, a counter, a type or a device of torch."""
    if is_tensor(value):
        return all(n == 1 for n in value.shape)
    return value is None or isinstance(value, (bool, int, float, str)) or \
        type(value).__module__ == "torch" or \
        (isinstance(value, (tuple, list, dict)) and not value)


def _more_of(thing: Any, *known: str) -> str:
    """What a layer has besides keys, values and counters; "": nothing."""
    for name, value in getattr(thing, "__dict__", {}).items():
        if name not in known and not _is_simple(value):
            return str(name)
    sliding = getattr(thing, "is_sliding", False) or \
        getattr(thing, "sliding_window", None) is not None
    return "a window" if sliding else ""


def plain_of(tensors: Any) -> Tuple[Optional[Cache], str]:
    """The cache, if all of it is keys and values of one shape; else why it is not."""
    more = ""
    if _is_pairs(tensors):
        pairs, layers = list(tensors), []
    elif hasattr(tensors, "layers") and not is_tensor(tensors):
        layers = list(tensors.layers)
        pairs = [(getattr(layer, "keys", None), getattr(layer, "values", None))
                 for layer in layers]
    elif hasattr(tensors, "key_cache") and hasattr(tensors, "value_cache"):
        pairs, layers = list(zip(tensors.key_cache, tensors.value_cache)), []
        more = _more_of(tensors, "key_cache", "value_cache")
    else:
        return None, f"{type(tensors).__name__} is no plain cache"
    if not pairs:
        return None, "the cache has no layers yet"
    for i, layer in enumerate(layers):
        more = more or _more_of(layer, "keys", "values")
        if more:
            return None, f"layer {i} of the cache has {more}"
    if more:
        return None, f"the cache has {more}"
    return _of_pairs(tensors, layers, pairs)


def _of_pairs(tensors: Any, layers: Sequence[Any], pairs: List[Tuple[Any, Any]]
              ) -> Tuple[Optional[Cache], str]:
    for i, pair in enumerate(pairs):
        if not all(is_tensor(half) and len(half.shape) == 4 for half in pair):
            return None, (f"layer {i} of the cache holds no keys and values [batch, head, "
                          "token, element]")
    first = tuple(pairs[0][0].shape)
    for i, pair in enumerate(pairs):
        for half in pair:
            if tuple(half.shape) != first:
                return None, f"layer {i} of the cache has {tuple(half.shape)}, others {first}"
    if _arrays.is_torch(pairs[0][0]) and not isinstance(tensors, tuple):
        for thing in (tensors, *layers):
            if type(thing).__name__ not in _PLAIN:
                return None, f"{type(thing).__name__} may hold more than keys and values"
        if not hasattr(tensors, "get_seq_length"):
            return None, "the cache does not know its length"
    try:
        seen = int(tensors.get_seq_length()) if hasattr(tensors, "get_seq_length") else \
            int(first[2])
    except (AttributeError, TypeError) as error:    # made by another release
        return None, f"the cache does not know its length: {error}"
    if seen > first[2]:
        return None, f"the cache has had {seen} tokens and holds {first[2]} (a window)"
    return Cache(pairs, seen), ""


def has_zeros(cache: Cache) -> bool:
    """
    Of several sequences, does one begin or end with zeros in the first layer: padding of
    a cache that was put together of single ones, which the library looks for.
    """
    if not cache.tokens or len(cache.pairs[0][0]) < 2:
        return False
    for at in (0, cache.tokens - 1):
        found: Any = True
        for half in cache.pairs[0]:
            row = half[:, :, at]
            row = row.float() if _arrays.is_torch(row) else row
            found = found & (row == 0).reshape(len(row), -1).all(1)
        if bool(found.any()):
            return True
    return False


# ---- rows --------------------------------------------------------------------------

def _numbers(mask: Any) -> List[List[int]]:
    rows: List[List[int]] = mask.tolist() if hasattr(mask, "tolist") else \
        [list(row) for row in mask]
    if not all(isinstance(row, list) and all(n in (0, 1) for n in row) for row in rows):
        raise UsageError("attention_mask holds other numbers than 0 and 1, expected "
                         "[batch, tokens] of them")
    return rows


def _masked(row: Sequence[int], seen: int, number: int) -> Tuple[int, int]:
    """What it has no number for was given later, and is a token."""
    tokens = [i for i in range(seen) if i >= len(row) or row[i]]
    if not tokens:
        return seen, seen
    if tokens[-1] - tokens[0] + 1 != len(tokens):
        raise BadInput(f"by attention_mask row {number} has padding between its tokens; "
                       "give tokens= to take slots as tokens")
    return tokens[0], tokens[-1] + 1


def spans(cache: Cache, mask: Any, tokens: Any, padding: Optional[str]
          ) -> List[Tuple[int, int]]:
    """The slots of each sequence that are tokens."""
    rows, seen = len(cache.pairs[0][0]), cache.tokens
    if mask is not None:
        numbers = _numbers(mask)
        if len(numbers) != rows:
            raise UsageError(f"attention_mask has {len(numbers)} rows, the cache {rows} "
                             "sequences")
        out = [_masked(row, seen, i) for i, row in enumerate(numbers)]
        for i, (begin, end) in enumerate(out):
            if begin < end and padding and (end < seen if padding == "left" else begin):
                raise BadInput(f"by attention_mask the padding of row {i} is on the other "
                               f"side than padding={padding!r}")
            if tokens is not None and _counts(tokens, rows, seen)[i] != end - begin:
                raise BadInput(f"row {i} has {end - begin} tokens by attention_mask, but "
                               f"{_counts(tokens, rows, seen)[i]} by tokens=")
        return out
    counts = _counts(tokens, rows, seen)
    return [(seen - n, seen) if padding == "left" else (0, n) for n in counts]


def _counts(tokens: Any, rows: int, seen: int) -> List[int]:
    """One number for all sequences, or one for each."""
    counts = [int(n) for n in tokens] if hasattr(tokens, "__iter__") else \
        [int(tokens)] * rows
    if len(counts) != rows:
        raise UsageError(f"tokens has {len(counts)} numbers, the cache {rows} sequences")
    for n in counts:
        if not 0 <= n <= seen:
            raise UsageError(f"tokens has {n}, expected 0 to {seen}")
    return counts


# ---- as torch.save() writes it -------------------------------------------------------

#: how rows are told to open(), and how here
_TOLD = 'facts={"tokens": "N"} or "N,N...", and "padding": "left" if the padding is first'
_PAIRS = ("save [(l.keys, l.values) for l in cache.layers]",
          "give tuple((l.keys, l.values) for l in cache.layers)")
_HERE = 'tokens=N or [N, N...], and padding="left" if the padding is first'


class _File:
    """A file in memory, for as long as somebody reads it."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("kvtool", os.MFD_CLOEXEC)
        self.path = f"/proc/self/fd/{self.fd}"

    def __del__(self) -> None:
        os.close(self.fd)


def is_savable(tensors: Any, told: bool) -> bool:
    """
    An object, or a container of some; of torch's tensors [b, h, t, d] alone only one that
    is named or shaped as a cache is, or told about: others may be an engine's, and large.
    """
    if "torch" not in sys.modules or is_tensor(tensors):
        return False
    if not isinstance(tensors, (Mapping, list, tuple)):
        return hasattr(tensors, "__dict__")
    named = list(tensors.items()) if isinstance(tensors, Mapping) else \
        [("", item) for item in tensors]
    for name, item in named:
        alone = is_tensor(item) and not (told or "key" in str(name))
        for leaf in item if isinstance(item, (list, tuple)) else [item]:
            if not is_tensor(leaf):
                if hasattr(leaf, "__dict__") or isinstance(leaf, Mapping):
                    return True
            elif not alone and _arrays.is_torch(leaf) and len(leaf.shape) == 4:
                return True
    return False


def given_back(tensors: Any) -> Any:
    """The cache of what a model gave back; other things as they are."""
    if is_tensor(tensors) or is_object(tensors):
        return tensors
    for name in ("cache", "past_key_values", "cache_params"):
        if getattr(tensors, name, None) is not None:
            return getattr(tensors, name)
    if hasattr(tensors, "past_key_values") or hasattr(tensors, "cache_params"):
        raise UsageError(f"the {type(tensors).__name__} has no cache: call the model with "
                         "use_cache=True")
    return tensors


def saved(tensors: Any, masks: Mapping[str, Any], told: Mapping[str, Any]) -> Dump:
    """What the library reads of a file of torch.save(): all groups of a cache, copied."""
    torch: Any = importlib.import_module("torch")
    file = _File()
    left = ["attention_mask="] if "attention_mask" not in masks else []
    if hasattr(tensors, "self_attention_cache") and "decoder_attention_mask" not in masks:
        left.append("decoder_attention_mask=")
    if masks:
        tensors = {"past_key_values": tensors, **{
            name: mask if _arrays.is_torch(mask) else torch.tensor(_numbers(mask))
            for name, mask in masks.items()}}
    with os.fdopen(os.dup(file.fd), "wb") as f:
        try:
            torch.save(tensors, f)
        except Exception as error:          # pickle passes on what any object raises
            raise Unsupported(f"torch.save() cannot write the {type(tensors).__name__}, "
                              f"which is how it is read: {error}") from None
    try:
        dump = open_dump(file.path, **told)
    except Error as error:
        here = _HERE + "".join(f"; or {name}" for name in left)
        raise type(error)(str(error).replace(_TOLD, here).replace(*_PAIRS)) from None
    # pylint: disable=protected-access
    dump._keep, dump._name = (file,), "memory"
    dump._source = dump._again = None       # the path is this process's, for as long as file
    return dump


def words_of(tokens: Any, padding: Optional[str]) -> Dict[str, str]:
    """The same as facts, which the library holds against what is saved."""
    facts = {}
    if tokens is not None:
        facts["tokens"] = ",".join(str(int(n)) for n in tokens) \
            if hasattr(tokens, "__iter__") else str(int(tokens))
    if padding is not None:
        facts["padding"] = padding
    return facts
