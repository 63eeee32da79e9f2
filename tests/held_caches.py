# SPDX-License-Identifier: Apache-2.0
"""
held_caches.py - the cache that transformers made, and the one that kvtool says it makes

A layer is a dictionary: its class under "type", a window under "sliding_window", and
each tensor's shape with its type at the end.  Layers stand in runs, [count, layer].
"""
TOKENS = 7


def spread(runs):
    return [layer for count, layer in runs for _ in range(count)]


def said(answer):
    """The layers of 'kvtool size --engine=transformers --json', written the same way."""
    layers = []
    for one in answer["cache_layers"]:
        layer = {"type": one["type"]}
        if one["sliding_window"] is not None:
            layer["sliding_window"] = one["sliding_window"]
        for t in one["tensors"]:
            shape = t["shape"] + ["torch." + t["dtype"]]
            if t["index"] is None:
                layer[t["name"]] = shape
            else:
                layer.setdefault(t["name"], []).append(shape)
        layers.append(layer)
    return layers


def first_difference(answer, cache, runs):
    """'' where both are the same, else a sentence."""
    got, want = said(answer), spread(runs)
    if answer["cache"] != cache:
        return f"a {answer['cache']}, expected a {cache}"
    if len(got) != len(want):
        return f"{len(got)} layers, expected {len(want)}"
    for i, (a, b) in enumerate(zip(got, want)):
        if a != b:
            return f"layer {i} is {a}, expected {b}"
    return ""
