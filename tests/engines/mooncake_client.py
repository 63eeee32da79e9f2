# SPDX-License-Identifier: Apache-2.0
"""
mooncake_client.py SETUP OPERATIONS - a client of a Mooncake store, in its own process

SETUP is JSON for setup(); OPERATIONS a file of [name, key, file, ...], whose arrays are
bits in npy files.  A line of JSON is printed with what each operation gave; the client
stays, as its memory is the store's, until its input ends.
"""
import json
import os
import sys
import time

import numpy as np
import torch
from mooncake.store import MooncakeDistributedStore

SECONDS = 60
HEARTBEATS = 2.5        # what is put before the disk is mounted may never get there


def tensor(path, dtype):
    array = np.load(path)
    signed = array.view({4: np.int32, 2: np.int16}[array.dtype.itemsize])
    return torch.from_numpy(signed).view(getattr(torch, dtype))


def save(value, path):
    """Bits of a tensor that the store gave; whether it gave one."""
    if value is None:
        return False
    wide = value.element_size() == 4
    np.save(path, value.contiguous().view(torch.int32 if wide else torch.int16).numpy())
    return True


def put_bytes(store, key, path):
    with open(path, "rb") as f:
        return store.put(key, f.read())


def get_bytes(store, key, path):
    with open(path, "wb") as f:
        return f.write(store.get(key))


def find(store, key):
    """A store that begins reads its disk meanwhile."""
    end = time.monotonic() + SECONDS
    while store.is_exist(key) != 1:
        if time.monotonic() > end:
            sys.exit(f"{key} is not found again")
        time.sleep(0.1)
    return True


OPERATIONS = {
    "put": put_bytes,
    "put_tensor": lambda s, key, path, dtype: s.put_tensor(key, tensor(path, dtype)),
    "put_shards": lambda s, key, path, dtype, size, axis:
        s.put_tensor_with_tp(key, tensor(path, dtype), 0, size, axis),
    "load": lambda s, key, path: s.load_tensor_from_safetensor(key, path) is not None,
    "get": get_bytes,
    "get_tensor": lambda s, key, path: save(s.get_tensor(key), path),
    "find": find,
}


def main():
    store = MooncakeDistributedStore()
    code = store.setup(json.loads(sys.argv[1]))
    if code:
        sys.exit(f"setup() gave {code}")
    time.sleep(HEARTBEATS)
    with open(sys.argv[2], encoding="utf-8") as f:
        for name, *arguments in json.load(f):
            print("\n" + json.dumps(["gave", OPERATIONS[name](store, *arguments)]))
    print('\n["done"]', flush=True)
    sys.stdin.read()
    store.close()
    os._exit(0)                         # threads of the store end nothing by themselves


if __name__ == "__main__":
    main()
