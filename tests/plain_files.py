# SPDX-License-Identifier: Apache-2.0
"""
plain_files.py - files as bytes, text, JSON and safetensors, with nothing but Python

Shared by the oracles and by the scripts of engines/, which run where little is installed.
"""
import json


def read_bytes(path):
    with open(path, "rb") as f:
        return f.read()


def write_bytes(path, data):
    with open(path, "wb") as f:
        f.write(data)
    return path


def patch(path, at, data):
    """Other bytes at a place of a file."""
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(data)


def flip(path, at=None, bits=1):
    """Some bits of one byte are others: by default the lowest of the one in the middle."""
    data = read_bytes(path)
    at = len(data) // 2 if at is None else at % len(data)
    patch(path, at, bytes([data[at] ^ bits]))


def read_text(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def read_json(path):
    return json.loads(read_bytes(path))


def write_json(path, value):
    write_text(path, json.dumps(value))


def safetensors_parts(path):
    """The header of a safetensors file, and the bytes behind it."""
    raw = read_bytes(path)
    n = 8 + int.from_bytes(raw[:8], "little")
    return json.loads(raw[8:n]), raw[n:]


def headed(header, data):
    """A safetensors file: its header, padded as safetensors' own, and the bytes."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def shown(raw):
    """As a text of JSON: each byte that is no UTF-8, and a NUL, is U+FFFD."""
    out = ""
    while raw:
        for n in range(1, 5):
            try:
                c = raw[:n].decode()
                break
            except UnicodeDecodeError:
                c = ""
        if c == "\0" or not c:
            c, n = "\ufffd", 1
        out, raw = out + c, raw[n:]
    return out
