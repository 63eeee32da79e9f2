# SPDX-License-Identifier: Apache-2.0
"""
mooncake_stores.py - stores on disk that Mooncake's own master and clients wrote

All on loopback, over TCP.  Clients offload what they hold to disk; a new master and a
new client find it there again, which is how Mooncake itself reads what kvtool reads.
"""
import importlib.metadata
import json
import os
import random
import select
import socket
import subprocess
import sys
import time

import mooncake
import numpy as np
import torch

import dumps
import page
from proof import Proof, free_port
from plain_files import read_bytes, write_json, write_text

HERE = os.path.dirname(os.path.abspath(__file__))
MASTER = os.path.join(os.path.dirname(mooncake.__file__), "mooncake_master")
# wheels before 0.3.13.post1 ask for this library of CUDA 12, and do not have it
CUDA = os.path.join(os.path.dirname(os.path.dirname(mooncake.__file__)), "nvidia",
                    "cuda_runtime", "lib")
PACKAGE = "mooncake-transfer-engine-non-cuda"
NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
SECONDS = 90
ENVIRONMENT = {
    **({"LD_LIBRARY_PATH": CUDA} if os.path.isdir(CUDA) else {}),
    "MOONCAKE_OFFLOAD_BUCKET_KEYS_LIMIT": "4",
    "MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS": "1",
    "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES": str(8 << 20),
    "MOONCAKE_OFFSET_PERSIST_MODE": "strict",
}


def bits(tensor):
    wide = tensor.dtype == torch.float32
    return tensor.contiguous().view(torch.int32 if wide else torch.int16).numpy().view(
        "<u4" if wide else "<u2")


# ---- a store ------------------------------------------------------------------

def takes(flag):
    """Whether the master of this release has a flag."""
    return f"-{flag} " in subprocess.run(
        [MASTER, "--help"], capture_output=True, text=True, check=False,
        env={**os.environ, **ENVIRONMENT}).stdout


class Master:
    def __init__(self, log, *options):
        self.port = free_port()
        # where the release before 0.3.13 has no such flag it listens everywhere
        here = ["--metrics_host=127.0.0.1"] * takes("metrics_host")
        with open(log, "ab") as out:
            # pylint: disable=consider-using-with
            self.process = subprocess.Popen(
                [MASTER, f"--rpc_port={self.port}", "--rpc_address=127.0.0.1",
                 *here, f"--metrics_port={free_port()}", *options],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                env={**os.environ, **ENVIRONMENT})
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"the master does not answer, see {log}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Client:
    """Runs operations and stays, until 'with' ends."""

    def __init__(self, store, master, operations, tenant="default"):
        setup = {"local_hostname": f"127.0.0.1:{free_port()}",
                 "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "rdma_devices": "",
                 "global_segment_size": str(32 << 20),
                 "local_buffer_size": str(16 << 20), "tenant_id": tenant,
                 "master_server_addr": f"127.0.0.1:{master.port}"}
        if store.descriptor:
            setup |= {"enable_ssd_offload": "true", "ssd_offload_path": store.folder}
        path = store.folder + ".operations"
        write_json(path, operations)
        with open(store.log, "ab") as err:
            # pylint: disable=consider-using-with
            self.process = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "mooncake_client.py"),
                 json.dumps(setup), path], env={**os.environ, **store.environment},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err)
        self.gave = self.results(store.log)

    def results(self, log):
        """What each operation gave; the library prints to the same place."""
        out, begin, text = [], time.monotonic(), b""
        while time.monotonic() < begin + SECONDS:
            if not select.select([self.process.stdout], [], [], 1)[0]:
                continue
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            text += more
            *lines, text = text.split(b"\n")
            for line in lines:
                if line.startswith(b'["gave"'):
                    out.append(json.loads(line)[1])
                if line == b'["done"]':
                    return out
            if not more:
                break
        self.process.kill()
        raise RuntimeError(f"a client ended or hangs, see {log}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Store:
    def __init__(self, proof, name, descriptor, environment=(), tenants=("default",)):
        self.name, self.descriptor, self.tenants = name, descriptor, tenants
        self.folder = proof.folder(f"store.{name.replace(' ', '-')}")
        self.log = os.path.join(proof.work, "mooncake.log")
        self.environment = {**ENVIRONMENT, **dict(environment)}
        self.master = []
        if len(tenants) > 1:
            self.master = ["--enable_multi_tenants=true",
                           f"--tenant_quota_connector_uri={self.quotas()}"]
        if descriptor:
            self.master.append("--enable_offload=true")
            self.environment["MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR"] = \
                f"{descriptor}_storage_backend"
        else:
            # as kvtool-dumps(7) has it, but for the folder
            self.master += [word.replace("=store", f"={self.folder}")
                            for word in page.commands("mooncake")[0][1:]]

    def quotas(self):
        """A master of several tenants takes those that have a quota."""
        path = self.folder + ".quotas"
        with open(path, "w", encoding="ascii") as f:
            f.write("version: 1\ntenants:\n")
            f.writelines(f"  - name: {t}\n    quota: {32 << 20}\n" for t in self.tenants)
        return path

    def lacks(self, keys, tenant):
        """Keys that neither the name of a file has nor the text of one that has keys."""
        names, tables = set(), b""
        for at, _, files in os.walk(self.folder):
            for n in files:
                names.add(n)
                if n.endswith((".meta", ".data")):
                    tables += read_bytes(os.path.join(at, n))
        start = f"{tenant}_" if self.descriptor else ""
        return [k for k in keys if start + k.replace("/", "_") not in names and
                f"{tenant}\0{k}".encode() not in tables]

    def settle(self, operations, tenant):
        """Clients write behind: all keys have to be there, and then nothing changes."""
        keys = [k for name, key, *_ in operations for k in
                ([f"{key}_tp_{r}" for r in (0, 1)] if name == "put_shards" else [key])]
        end = time.monotonic() + SECONDS
        while left := self.lacks(keys, tenant):
            if time.monotonic() > end:
                raise TimeoutError(f"never on disk: {left[:5]} of {len(keys)}")
            time.sleep(0.5)
        time.sleep(1.5)                 # more than a heartbeat

    def put(self, operations):
        """Operations of one tenant after another; what they gave."""
        gave = []
        for tenant in self.tenants:
            # a master goes on using the memory of a client that has gone for a while
            with Master(self.log, *self.master) as master, \
                    Client(self, master, operations[tenant], tenant) as client:
                gave += client.gave
                self.settle(operations[tenant], tenant)
        return gave

    def get(self, operations, keys, tenant="default"):
        """The same of a new master and a new client, once that has found the keys."""
        with Master(self.log, *self.master) as master, \
                Client(self, master, [["find", k] for k in keys] + operations,
                       tenant) as client:
            return client.gave


# ---- what is stored -------------------------------------------------------------

class Cache:
    """A request of each tenant, cut into runs of tokens: cells [K, L, T, H, D]."""

    def __init__(self, seed):
        r = random.Random(seed)

        def draw(usual, *more):
            return r.choice((usual,) + more) if seed else usual

        self.run, self.count = draw(16, 8, 32), draw(4, 8)
        self.layers, self.heads = draw(3, 2, 4), draw(4, 2, 8)
        self.dim = draw(8, 16, 32)
        self.dtype = draw(torch.bfloat16, torch.float32, torch.float16)
        generator = torch.Generator().manual_seed(seed)
        shape = (2, self.layers, self.run * self.count, self.heads, self.dim)
        self.cells = {t: torch.randn(shape, generator=generator).to(self.dtype)
                      for t in ("default", "team-a")}
        self.ids = [r.randrange(1 << 60) for _ in range(self.count)]

    def runs(self, tenant):
        for i in range(self.count):
            yield i, self.cells[tenant][:, :, i * self.run:(i + 1) * self.run]

    def key(self, i):
        """As LMCache calls a chunk."""
        return f"org/tiny@1@0@{self.ids[i]:x}@{NAMES[self.dtype]}"

    def operations(self, folder, tenant):
        """Tensors, shards along heads, bytes, chunks of LMCache."""
        out = []
        for i, cells in self.runs(tenant):
            path = os.path.join(folder, f"{tenant}-{i:04d}")
            np.save(path + ".npy", bits(cells))
            bits(cells).tofile(path + ".bin")
            kind = NAMES[self.dtype]
            out += [["put_tensor", f"t-{i:04d}", path + ".npy", kind],
                    ["put_shards", f"tp-{i:04d}", path + ".npy", kind, 2, 3],
                    ["put", f"raw-{i:04d}", path + ".bin"],
                    ["put", self.key(i), path + ".bin"]]
        return out

    def order(self, folder):
        """Which values are a request, in the order of their tokens."""
        path = os.path.join(folder, "order")
        for name, keys in [(p, [f"{p}{i:04d}" for i in range(self.count)])
                           for p in ("t-", "tp-", "raw-")] + \
                [("lm", [f"{x:x}" for x in self.ids])]:
            write_text(f"{path}.{name}", f"all {' '.join(keys)}\n")
        return path

    def facts(self):
        return ["--layers", self.layers, "--heads", self.heads, "--head-dim", self.dim]


AXES = ["--layout", "KLSHD"]


def check(row, cache, dump, cells, name):
    for layer in range(cache.layers):
        keys, values, begin = dump.layer("all", layer)
        good = begin == 0 and np.array_equal(keys, bits(cells[0, layer])) and \
            np.array_equal(values, bits(cells[1, layer]))
        row.ok(good, f"{name}, layer {layer}", f"{keys.shape}, wanted {cells.shape}")


def reads(proof, row, cache, store, order, tenant, told):
    """Each kind of value that the store holds."""
    cells, half = cache.cells[tenant], cache.heads // 2
    said = [f"--set=tenant={tenant}"] if told else []
    raw = AXES + cache.facts() + ["--dtype", NAMES[cache.dtype]]
    for name, options, prefix, which in [
            ("tensors", AXES, "t-", "t-"), ("bytes", raw, "raw-", "raw-"),
            ("chunks of LMCache", cache.facts(), "org/tiny@", "lm")]:
        if not told and which == "lm":
            prefix = "org_tiny@"        # names of files have lost the slash
        dump = dumps.read(proof, store.folder, *options, *said, f"--set=keys={prefix}",
                          f"--set=order={order}.{which}")
        check(row, cache, dump, cells, f"{tenant}, {name}")
    merged, *ranks = (os.path.join(proof.folder("ranks"), f"{n}.h5")
                      for n in ("all", 0, 1))
    for rank in (0, 1):
        options = [*AXES, *said, "--set=keys=tp-", f"--set=tp-rank={rank}",
                   f"--set=order={order}.tp-"]
        dump = dumps.read(proof, store.folder, *options)
        check(row, cache, dump, cells[:, :, :, rank * half:(rank + 1) * half],
              f"{tenant}, shard {rank}")
        proof.must("import", "-q", *options, "-o", ranks[rank], store.folder)
    proof.must("merge", "-q", "-o", merged, *ranks)
    check(row, cache, dumps.read(proof, merged), cells, f"{tenant}, shards merged")


def found_again(proof, row, cache, store, tenant):
    """What kvtool is held against is also what Mooncake loads from that folder."""
    folder = proof.folder("again")
    keys = [f"t-{i:04d}" for i in range(cache.count)]
    store.get([["get_tensor", k, os.path.join(folder, k + ".npy")] for k in keys], keys,
              tenant)
    good = sum(np.array_equal(np.load(os.path.join(folder, f"t-{i:04d}.npy")).view(
        bits(cells).dtype), bits(cells)) for i, cells in cache.runs(tenant))
    row.equal(good, cache.count, f"{tenant}: Mooncake finds its tensors again")


def one_store(proof, cache, store):
    folder = proof.folder("values")
    order = cache.order(folder)
    operations = {t: cache.operations(folder, t) for t in store.tenants}
    on = f"{store.name}, {NAMES[cache.dtype]}"
    with proof.row("values that Mooncake wrote to disk", on) as row:
        gave = store.put(operations)
        row.equal(gave, [0] * len(gave), "what the store's own puts gave")
        for tenant in store.tenants:
            reads(proof, row, cache, store, order, tenant, bool(store.descriptor))
        if store.descriptor:
            found_again(proof, row, cache, store, store.tenants[-1])


# ---- kvtool writes, Mooncake reads ------------------------------------------------

# layout that kvtool writes, the axes of its tensor as the cells [K, L, T, H, D] have them
LAYOUTS = {"nhd": (1, 2, 3, 0, 4), "hnd": (1, 3, 2, 0, 4), "KLBSHD": (0, 1, 2, 3, 4),
           "LKBSHD": (1, 0, 2, 3, 4)}


def writes(proof, cache):
    """
    A cache in one block, which kvtool writes as safetensors and as bytes in several
    orders, is loaded by the store, offloaded, found again, and read by kvtool.
    """
    folder, store = proof.folder("written"), Store(proof, "back", "file_per_key")
    cells = cache.cells["default"]
    source = os.path.join(folder, "source.npy")
    np.save(source, bits(cells)[:, :, None])
    operations, wanted = [], {}
    with proof.row("values that kvtool wrote, loaded and stored by Mooncake",
                   f"safetensors and bytes, {NAMES[cache.dtype]}") as row:
        for i, (layout, turn) in enumerate(LAYOUTS.items()):
            out = os.path.join(folder, f"{i}.safetensors")
            said = ["--layout=KLBSHD", f"--dtype={NAMES[cache.dtype]}"]
            proof.must("relayout", "-q", *said, f"--to={layout}", "-o", out, source)
            proof.must("relayout", "-q", *said, f"--to={layout}", "--format=raw", "-o",
                       out[:-12] + ".bin", source)
            wanted[i] = bits(cells).transpose(turn)
            operations += [["load", f"s-{i}", out], ["put", f"b-{i}", out[:-12] + ".bin"]]
        gave = store.put({"default": operations})
        row.equal(gave, [True, 0] * len(LAYOUTS), "the store loads them")
        keys = [o[1] for o in operations]
        store.get([["get_tensor" if k[0] == "s" else "get", k, os.path.join(folder, k)]
                   for k in keys], keys)
        for i, layout in enumerate(LAYOUTS):
            got = np.load(os.path.join(folder, f"s-{i}.npy")).view(wanted[i].dtype)
            row.ok(np.array_equal(got.ravel(), wanted[i].ravel()),
                   f"{layout}: tensor of a new client")
            got = np.fromfile(os.path.join(folder, f"b-{i}"), wanted[i].dtype)
            row.ok(np.array_equal(got, wanted[i].ravel()),
                   f"{layout}: bytes of a new client")
        i = list(LAYOUTS).index("KLBSHD")
        dump = dumps.read(proof, store.folder, *AXES, *cache.facts(),
                          f"--dtype={NAMES[cache.dtype]}", f"--set=keys=b-{i}")
        group = dump.groups[0]
        row.ok(np.array_equal(group.cells[:, :, 0].transpose(1, 0, 2, 3, 4),
                              bits(cells)), "and read by kvtool from the store")


# ---- all --------------------------------------------------------------------------

CRC = "MOONCAKE_OFFSET_RECORD_CRC"
STORES = [
    # name, descriptor, environment, tenants
    ("buckets", "bucket", {}, ("default", "team-a")),
    ("a file per key", "file_per_key", {}, ("default", "team-a")),
    ("offset allocator, checksums", "offset_allocator", {CRC: "1"}, ("default",)),
    ("offset allocator, no checksums", "offset_allocator", {CRC: "0"}, ("default",)),
    ("root_fs_dir, values alone", "", {}, ("default",)),
]


def main():
    torch.set_num_threads(1)
    proof = Proof("Mooncake", importlib.metadata.version(PACKAGE))
    cache = Cache(proof.seed)
    for store in STORES:
        one_store(proof, cache, Store(proof, *store))
    writes(proof, cache)
    proof.skip("whole stores that kvtool wrote", "all backends",
               "kvtool reads stores of Mooncake and writes none")
    proof.skip("stores on 3FS, NVMe-KV devices and S3", "Mooncake",
               "need servers or devices that are not here, and kvtool reads none")
    return proof.done()


if __name__ == "__main__":
    sys.exit(main())
