# SPDX-License-Identifier: Apache-2.0
"""
lmcache_stores.py - chunks that LMCache's own backends wrote and read

No server and no GPU: the classes of the backends are driven directly.  Of the GDS
backend the memory and the copy of the GPU are replaced by those of the host.
"""
import asyncio
import ctypes
import json
import os
import random
import sys
import threading
import time
import types
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["LMCACHE_TRACK_USAGE"] = "false"
os.environ["PYTHONHASHSEED"] = "0"

import lmcache
import numpy as np
import torch
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import (FSL2Adapter,
                                                              FSL2AdapterConfig)
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.multiprocess.token_hasher import TokenHasher
from lmcache.v1.protocol import init_remote_metadata_info
from lmcache.v1.storage_backend import gds_backend
from lmcache.v1.storage_backend.connector.fs_connector import FSConnector
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend
try:
    from lmcache.v1.storage_backend.raw_block import core as raw_block
    from lmcache.v1.storage_backend.raw_block import key_codec
except ImportError:                     # before 0.5
    raw_block = None
from lmcache.v1.token_database import ChunkedTokenDatabase

import dumps
import page
from proof import Proof
from plain_files import write_json, write_text

NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
MODEL = "org/tiny"
SECONDS = 60


def bits(tensor):
    tensor = tensor.detach().contiguous()
    wide = tensor.dtype == torch.float32
    return tensor.view(torch.int32 if wide else torch.int16).numpy().view(
        "<u4" if wide else "<u2")


def wait(ready, what):
    end = time.monotonic() + SECONDS
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.005)


# ---- what is stored -----------------------------------------------------------

class Cache:
    """Two requests of random keys and values: cells [K, L, T, H, D]."""

    def __init__(self, seed, latent=False):
        r = random.Random(seed)

        def draw(usual, *more):
            return r.choice((usual,) + more) if seed else usual

        self.chunk = draw(16, 32, 24)
        self.layers = draw(3, 2, 5)
        self.heads = 1 if latent else draw(4, 2, 8)
        self.dim = draw(16, 8, 32) + (24 if latent else 0)
        self.halves = 1 if latent else 2
        self.dtype = draw(torch.bfloat16, torch.float32, torch.float16)
        generator = torch.Generator().manual_seed(seed)
        self.cells, self.ids = {}, {}
        for i, name in enumerate("AB"):
            n = self.chunk * (3 + i) + 5 + 2 * i
            self.cells[name] = torch.randn(
                self.halves, self.layers, n, self.heads, self.dim,
                generator=generator).to(self.dtype)
            self.ids[name] = torch.randint(3, 30000, (n,), generator=generator)

    def share(self, world, worker):
        """What one of 'world' tensor parallel workers has of each request."""
        n = self.heads // world
        return {r: c[:, :, :, worker * n:(worker + 1) * n] for r, c in self.cells.items()}


class Engine:
    """What backends of LMCache ask for: configuration, metadata, memory, a loop."""

    def __init__(self, cache, world=1, worker=0, groups=None, extra=None, **more):
        latent = cache.halves == 1
        self.cache, self.format = cache, MemoryFormat.KV_2LTD
        if latent:
            self.format = MemoryFormat.KV_MLA_FMT
        self.config = LMCacheEngineConfig.from_defaults(
            chunk_size=cache.chunk, local_cpu=True, max_local_cpu_size=0.05,
            save_unfull_chunk=True, extra_config=extra or {}, **more)
        self.metadata = LMCacheMetadata(
            model_name=MODEL, world_size=world, local_world_size=world, worker_id=worker,
            local_worker_id=worker, kv_dtype=cache.dtype, chunk_size=cache.chunk,
            kv_shape=(cache.layers, cache.halves, cache.chunk, cache.heads // world,
                      cache.dim), use_mla=latent)
        if groups:
            self.split_layers(groups)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.memory = LocalCPUBackend(self.config, self.metadata, dst_device="cpu")

    def split_layers(self, groups):
        """Layers in several arrays of a chunk, as models of unlike layers have them."""
        cache, real = self.cache, type(self.metadata)

        class Grouped(real):
            def get_num_groups(self):
                return len(groups)

            def get_dtypes(self):
                return [cache.dtype] * len(groups)

            def get_shapes(self, num_tokens=None):
                return [torch.Size([2, len(g), num_tokens or cache.chunk,
                                    cache.heads * cache.dim]) for g in groups]

        self.metadata.__class__ = Grouped

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(SECONDS)

    def object(self, tensors, kind=None):
        """A memory object of LMCache that holds these arrays."""
        shapes = [t.shape for t in tensors]
        types = [t.dtype for t in tensors]
        if len(tensors) == 1:
            shapes, types = shapes[0], types[0]
        o = self.memory.allocate(shapes, types, fmt=kind or self.format)
        for i, t in enumerate(tensors):
            (o.get_tensor(i) if len(tensors) > 1 else o.tensor).copy_(t)
        return o

    def chunks(self, full_only=False):
        """(request, first token, key of LMCache, cells of the chunk), in order."""
        world, worker = self.metadata.world_size, self.metadata.worker_id
        base = ChunkedTokenDatabase(self.config, self.metadata)
        for name, cells in self.cache.share(world, worker).items():
            for first, end, key in base.process_tokens(self.cache.ids[name]):
                if end - first == self.cache.chunk or not full_only:
                    yield name, first, key, cells[:, :, first:end]


def as_2ltd(cells):
    return cells.flatten(3)


# ---- the backends ---------------------------------------------------------------
#
# A store writes chunks of an Engine into a folder, and gives back what LMCache itself
# loads from there, in another instance of the backend.

class Disk:
    """LocalDiskBackend: bytes alone; the index is in memory."""
    full_only, ending = False, ".pt"

    def __init__(self, engine, folder):
        self.engine, self.folder = engine, folder
        engine.config.local_disk, engine.config.max_local_disk_size = folder + "/", 0.1
        self.backend = LocalDiskBackend(engine.config, engine.loop, engine.memory, "cpu",
                                        None, engine.metadata)

    def put(self, key, tensor, kind=None):
        self.backend.submit_put_task(key, self.engine.object([tensor], kind))
        wait(lambda: not self.backend.exists_in_put_tasks(key), "write of a chunk")

    def get(self, key, shape, kind=None):
        dtype = self.engine.cache.dtype
        size = int(np.prod(shape)) * dtype.itemsize
        self.backend.insert_key(key, size, torch.Size(shape), dtype,
                                kind or self.engine.format)
        return self.backend.get_blocking(key)

    def path(self, key):
        return self.backend._key_to_path(key)


class Fs:
    """FSConnector, with a header of each chunk or without."""
    header = True

    def __init__(self, engine, folder):
        self.engine, self.full_only = engine, not self.header
        engine.config.extra_config["save_chunk_meta"] = self.header
        init_remote_metadata_info(engine.metadata.get_num_groups())
        self.backend = FSConnector(engine.loop, engine.memory, engine.config,
                                   base_paths_str=folder)

    def put(self, key, *tensors):
        self.engine.run(self.backend.put(key, self.engine.object(tensors)))

    def get(self, key, shape):
        return self.engine.run(self.backend.get(key))

    def path(self, key):
        return str(self.backend._get_file_path(key))


class FsBare(Fs):
    header = False


class Second:
    """The file adapter of the second level; keys are objects' keys."""
    full_only, salt = True, ""

    def __init__(self, engine, folder):
        self.engine = engine
        self.backend = FSL2Adapter(FSL2AdapterConfig(folder))
        meta = engine.metadata
        rank = ObjectKey.ComputeKVRank(meta.world_size, meta.worker_id, meta.world_size,
                                       meta.worker_id)
        hasher, self.keys = TokenHasher(engine.cache.chunk), {}
        for name, first, key, _ in engine.chunks(full_only=True):
            hashes = hasher.compute_chunk_hashes(engine.cache.ids[name].tolist())
            self.keys[key] = ObjectKey(hashes[first // engine.cache.chunk], MODEL, rank,
                                       cache_salt=self.salt)

    def put(self, key, tensor):
        done = {}

        def ready():
            done.update(self.backend.pop_completed_store_tasks())
            return task in done
        task = self.backend.submit_store_task([self.keys[key]],
                                              [self.engine.object([tensor])])
        wait(ready, "write of a chunk")

    def get(self, key, shape):
        into = self.engine.object([torch.zeros(shape, dtype=self.engine.cache.dtype)])
        task, got = self.backend.submit_load_task([self.keys[key]], [into]), []

        def ready():
            result = self.backend.query_load_result(task)
            got.extend([] if result is None else [result])
            return got
        wait(ready, "read of a chunk")
        return into if got[0].test(0) else None

    def path(self, key):
        return str(self.backend._key_to_path(self.keys[key]))


class SecondSalted(Second):
    salt = "tenant-1"


class FileDevice:
    """What LMCache's extension in Rust does for raw_block, on a file."""

    def __init__(self, path, **_):
        self.fd = os.open(path, os.O_RDWR)

    def size_bytes(self):
        return os.fstat(self.fd).st_size

    def pwrite_from_buffer(self, offset, buf, payload, total):
        data = bytes(memoryview(buf).cast("B")[:payload])
        os.pwrite(self.fd, data.ljust(total, b"\0"), offset)

    def pread_into(self, offset, buf, payload, total):
        memoryview(buf).cast("B")[:payload] = os.pread(self.fd, total, offset)[:payload]

    def close(self):
        os.close(self.fd)


class Slots:
    """raw_block's own engine, with keys of objects or, legacy, of the engine."""

    def __init__(self, engine, path, legacy):
        self.engine, self.legacy = engine, legacy
        second = Second(engine, os.path.dirname(path))
        self.full_only, self.keys = not legacy, second.keys
        if not os.path.exists(path):
            with open(path, "wb") as f:
                f.truncate(8 << 20)
        with mock.patch.dict(sys.modules, lmcache_rust_raw_block_io=types.SimpleNamespace(
                RawBlockDevice=FileDevice)):
            self.core = raw_block.RawBlockCore(raw_block.RawBlockCoreConfig(
                device_path=path, capacity_bytes=0, block_align=4096, header_bytes=4096,
                slot_bytes=256 << 10, use_odirect=False, enable_zero_copy=False,
                meta_total_bytes=1 << 20, meta_magic=b"LMCIDX01", meta_version=1,
                meta_checkpoint_interval_sec=60, meta_idle_quiet_ms=0,
                meta_enable_periodic=False, meta_verify_on_load=True),
                key_namespace="legacy" if legacy else "object")

    def spec(self, key):
        return key_codec.encode_legacy_key(key) if self.legacy else \
            key_codec.encode_object_key(self.keys[key])

    def put(self, key, tensor):
        done = self.core.put_many([self.spec(key)], [self.engine.object([tensor])])
        assert done.results == [True], done

    def get(self, key, shape):
        into = self.engine.object([torch.zeros(shape, dtype=self.engine.cache.dtype)])
        done = self.core.load_many_into([self.spec(key).encoded], [into])
        return into if done[0] else None

    def hash(self, key):
        return self.spec(key).encoded.split("@")[3]


class HostGds(gds_backend.GdsBackend):
    """The backend with memory of the host."""
    memory = None
    _use_noatime = True         # set after the scan that needs it has begun

    def initialize_allocator(self, config, metadata):
        return self.memory


def host_copy(to, source, n, _):
    ctypes.memmove(to, source, n.value)
    return 0


class HostRuntime:
    """In the place of CUDA's library, which releases before 0.5 load by its name."""
    cudaMemcpy = staticmethod(host_copy)

    def __init__(self, _):
        pass


class Gds:
    full_only, suffix = False, gds_backend._DATA_FILE_SUFFIX

    def __init__(self, engine, folder):
        self.engine, engine.config.gds_path = engine, folder
        engine.config.use_gds = False
        HostGds.memory = engine.memory.memory_allocator
        with mock.patch.multiple(gds_backend, create=True,
                                 _load_gpu_memcpy=lambda: host_copy,
                                 _DATA_FILE_SUFFIX=self.suffix), \
                mock.patch.object(ctypes, "CDLL", HostRuntime):
            self.backend = HostGds(engine.config, engine.metadata, engine.loop, "cuda")
        self.backend._scan_metadata_future.result(SECONDS)

    def put(self, key, tensor):
        self.backend.submit_put_task(key, self.engine.object([tensor])).result(SECONDS)
        wait(lambda: not self.backend.save_metadata_tasks, "write of a header")

    def get(self, key, shape):
        return self.backend.get_blocking(key)

    def path(self, key):
        return self.backend._key_to_path(key)[0]


class Weka(Gds):
    suffix = gds_backend._WEKA_DATA_FILE_SUFFIX


def hash_of(store, key):
    """What kvtool calls a chunk: its hash, as the name of its file has it."""
    if isinstance(store, Second):
        return store.keys[key].chunk_hash.hex()
    return key.to_string().split("@")[3]


def order_file(folder, store, chunks):
    """Which chunks are a request; nothing in LMCache's files says it."""
    lines = {}
    for name, _, key, _ in chunks:
        lines.setdefault(name, []).append(hash_of(store, key))
    path = folder + ".order"
    with open(path, "w", encoding="ascii") as f:
        f.writelines(f"{name} {' '.join(h)}\n" for name, h in lines.items())
    return path


# ---- LMCache writes, kvtool reads -------------------------------------------------

def compare(row, cache, dump, chunks, cells, name):
    """Each request, each layer, from its first token to its last one in a chunk."""
    ends = {}
    for request, first, _, part in chunks:
        ends[request] = first + part.shape[2]
    for request, end in ends.items():
        for layer in range(cache.layers):
            keys, values, begin = dump.layer(request, layer)
            got = [keys] if cache.halves == 1 else [keys, values]
            want = [bits(h[layer, :end]) for h in cells[request]]
            good = begin == 0 and all(map(np.array_equal, got, want))
            row.ok(good, f"{name}, request {request}, layer {layer}: {end} tokens",
                   f"{[getattr(g, 'shape', None) for g in got]}, "
                   f"wanted {[w.shape for w in want]}")


def load_back(row, store, chunks):
    """What kvtool is held against is also what LMCache loads."""
    good = 0
    for _, _, key, cells in chunks:
        tensor = as_2ltd(cells)
        got = store.get(key, tensor.shape)
        good += got is not None and np.array_equal(bits(got.tensor.reshape(tensor.shape)),
                                                   bits(tensor))
    row.equal(good, len(chunks), "LMCache loads the chunks itself")


def facts(cache, heads=None, layers=True, dtype=False, layout=None):
    """What files do not say."""
    out = ["--content", cache.dim] if cache.halves == 1 else \
        ["--heads", heads or cache.heads, "--head-dim", cache.dim]
    if layers:
        out += ["--layers", cache.layers]
    if dtype:
        out += ["--dtype", NAMES[cache.dtype]]
    return out + (["--layout", layout] if layout else [])


def plain(proof, on, cache, kind, options):
    folder = proof.folder("store")
    engine = Engine(cache)
    store = kind(engine, folder)
    chunks = list(engine.chunks(store.full_only))
    with proof.row("chunks that LMCache wrote", on) as row:
        for _, _, key, cells in chunks:
            store.put(key, as_2ltd(cells))
        load_back(row, kind(engine, folder), chunks)
        order = order_file(folder, store, chunks)
        dump = dumps.read(proof, folder, *options, f"--set=order={order}")
        compare(row, cache, dump, chunks, cache.cells, "elements")
    with proof.row("kvtool names the chunks of a prompt as LMCache does", on) as row:
        asked = prompts_file(folder, cache)
        dump = dumps.read(proof, folder, *options, f"--prompt={asked}")
        compare(row, cache, dump, chunks, cache.cells, "elements by prompt")
        said = ["--engine=lmcache-mp"] if isinstance(store, Second) else \
            ["--engine=lmcache", "--without-vllm"]
        r = proof.must("prefix", "--json", f"--block-size={cache.chunk}",
                       f"--prompt={asked}", *said)
        for p in r.json["prompts"]:
            want = [hash_of(store, key) for name, _, key, _ in chunks
                    if name == p["name"]]
            row.equal([b["hash"] for b in p["blocks"]][:len(want)], want,
                      f"names of {p['name']}")


def prompts_file(folder, cache):
    path = folder + ".prompts.json"
    write_json(path, {name: ids.tolist() for name, ids in cache.ids.items()})
    return path


def raw_blocks(proof, cache):
    """Slots of one file: half of them before a checkpoint, then all; then one given away."""
    for legacy in False, True:
        folder = proof.folder("slots")
        path = os.path.join(folder, "slots.bin")
        engine = Engine(cache)
        store = Slots(engine, path, legacy)
        chunks = list(engine.chunks(store.full_only))
        on = f"raw_block, {'legacy' if legacy else 'objects'}, a file as device, " \
            f"{NAMES[cache.dtype]}"
        with proof.row("chunks that LMCache wrote", on) as row:
            for i, (_, _, key, cells) in enumerate(chunks):
                store.put(key, as_2ltd(cells))
                if i % 3 == 0:
                    store.core.checkpoint_now()
            store.core.close()
            load_back(row, Slots(engine, path, legacy), chunks)
            lines = {}
            for name, _, key, _ in chunks:
                lines.setdefault(name, []).append(store.hash(key))
            with open(path + ".order", "w", encoding="ascii") as f:
                f.writelines(f"{n} {' '.join(h)}\n" for n, h in lines.items())
            said = facts(cache, layers=False) + [f"--set=order={path}.order"]
            compare(row, cache, dumps.read(proof, path, *said), chunks, cache.cells,
                    "elements")
            again = Slots(engine, path, legacy)
            first, last = chunks[0][2], chunks[-1][2]
            again.core.delete_many([again.spec(first).encoded])
            again.core._index.pop(again.spec(last).encoded)
            again.put(last, as_2ltd(chunks[-1][3]))     # in the slot of the first
            listed = proof.must("describe", "-j", *facts(cache, layers=False), path).out
            names = {q["id"] for q in json.loads(listed)["requests"]}
            row.ok(again.hash(first) not in names and len(names) == len(chunks) - 1,
                   "a slot that was given away is left out", sorted(names))


def layerwise(proof, cache):
    """A file a layer; the order in one is not in its name."""
    for kind, axes, turn in [
            (MemoryFormat.KV_2TD, "LKBSHD", lambda c: c.flatten(2)),
            (MemoryFormat.KV_T2D, "LBSKHD", lambda c: c.transpose(0, 1).flatten(2))]:
        folder = proof.folder("store")
        engine = Engine(cache, use_layerwise=True)
        store = Disk(engine, folder)
        chunks = list(engine.chunks())
        on = f"local disk, layerwise, {kind.name}, {NAMES[cache.dtype]}"
        with proof.row("chunks that LMCache wrote", on) as row:
            for _, _, key, cells in chunks:
                for l, k in enumerate(key.split_layers(cache.layers)):
                    store.put(k, turn(cells[:, l]), kind)
            order = order_file(folder, store, chunks)
            dump = dumps.read(proof, folder, *facts(cache, layers=False, layout=axes),
                              f"--set=order={order}")
            compare(row, cache, dump, chunks, cache.cells, "elements")


def workers(proof, cache, kind, on, options):
    """Two tensor parallel workers in one folder: each rank, and their merge."""
    folder, order = proof.folder("store"), None
    merged, *ranks = (os.path.join(proof.folder("ranks"), f"{n}.h5")
                      for n in ("all", 0, 1))
    with proof.row("chunks of two tensor parallel workers", on) as row:
        for worker in (0, 1):
            engine = Engine(cache, 2, worker)
            store = kind(engine, folder)
            chunks = list(engine.chunks(store.full_only))
            for _, _, key, cells in chunks:
                store.put(key, as_2ltd(cells))
            order = order_file(folder, store, chunks)
        for worker in (0, 1):
            said = [*options, f"--set=order={order}", f"--set=worker={worker}",
                    f"--set=total-heads={cache.heads}"]
            dump = dumps.read(proof, folder, *said)
            compare(row, cache, dump, chunks, cache.share(2, worker), f"worker {worker}")
            proof.must("import", "-q", *said, "-o", ranks[worker], folder)
        proof.must("merge", "-q", "-o", merged, *ranks)
        compare(row, cache, dumps.read(proof, merged), chunks, cache.cells, "merged")


def two_groups(proof, cache):
    """Layers in two arrays of each chunk."""
    groups = [list(range(0, cache.layers - 1)), [cache.layers - 1]]
    folder = proof.folder("store")
    engine = Engine(cache, groups=groups)
    store = Fs(engine, folder)
    chunks = list(engine.chunks())
    with proof.row("chunks that LMCache wrote",
                   f"FS connector, two groups of layers, {NAMES[cache.dtype]}") as row:
        for _, _, key, cells in chunks:
            store.put(key, *[as_2ltd(cells[:, g]).contiguous() for g in groups])
        order = order_file(folder, store, chunks)
        dump = dumps.read(proof, folder, *facts(cache, layers=False),
                          f"--set=order={order}")
        row.equal(len(dump.groups), 2, "groups")
        for g, layers in zip(dump.groups, groups):
            # which layers of the model an array has is not in it: they count from 0
            for name, cells in cache.cells.items():
                for i, l in enumerate(layers):
                    got, _ = g.tokens(name, i)
                    row.ok(np.array_equal(got, bits(cells[:, l])),
                           f"{g.id}, request {name}, layer {l}")


# ---- kvtool writes, LMCache reads ---------------------------------------------------

def raw_chunk(proof, snapshot, block, axes, out, layer=None):
    """The bytes of one block of a snapshot, in another order."""
    part = snapshot + ".part.h5"
    only = [] if layer is None else [f"--layers={layer}"]
    proof.must("slice", "-f", "-q", "--no-sync", f"--blocks={block}", *only, "-o", part,
               snapshot)
    proof.must("relayout", "-f", "-q", "--no-sync", f"--to={axes}", "--format=raw", "-o",
               out, part)


def written(proof, on, cache, kind, axes, layered=None):
    """
    Chunks go from LMCache's FS connector through a snapshot in NHD blocks to another
    backend: kvtool makes their bytes, a user gives them the names of LMCache.
    """
    source, folder = proof.folder("store"), proof.folder("written")
    engine = Engine(cache)
    origin = Fs(engine, source)
    chunks = list(engine.chunks(full_only=True))
    for _, _, key, cells in chunks:
        origin.put(key, as_2ltd(cells))
    snapshot = os.path.join(proof.folder("snapshot"), "a.h5")
    engine = Engine(cache)
    store = kind(engine, folder)
    with proof.row("LMCache loads chunks whose bytes kvtool wrote", on) as row:
        proof.must("import", "-q", "--to=nhd", *facts(cache, layers=False), "-o",
                   snapshot, source)
        names = dumps.read(proof, snapshot).groups[0].names
        for _, first, key, cells in chunks:
            block = names.index(hash_of(origin, key))
            if layered is None:
                parts = [(None, key, as_2ltd(cells))]
            else:
                fmt, turn = layered
                parts = [(l, k, turn(cells[:, l]))
                         for l, k in enumerate(key.split_layers(cache.layers))]
            for layer, k, want in parts:
                path = store.path(k)
                raw_chunk(proof, snapshot, block, axes, path, layer)
                os.unlink(path + ".json")
                got = store.get(k, want.shape, *([layered[0]] if layered else []))
                row.ok(got is not None and np.array_equal(
                    bits(got.tensor.reshape(want.shape)), bits(want)),
                    f"{hash_of(origin, key)}, layer {layer}")


# ---- all -----------------------------------------------------------------------

def configuration(proof, cache):
    """The file that kvtool-dumps(7) shows, but for the folder."""
    folder = proof.folder("configuration")
    shown = page.block("lmcache").split("\n$ ")[0].split("\n", 1)[1]
    path = os.path.join(folder, "lmcache.yaml")
    write_text(path, shown.replace("/var/tmp/lmcache", folder))
    with proof.row("the configuration of kvtool-dumps(7) is taken", "local disk") as row:
        config = LMCacheEngineConfig.from_file(path)
        config.validate()
        row.equal((config.local_disk, config.chunk_size), (folder + "/", 256),
                  "folder and tokens of a chunk")
        engine = Engine(cache)
        disk = LocalDiskBackend(config, engine.loop, engine.memory, "cpu", None,
                                engine.metadata)
        row.equal(os.path.normpath(disk.path), folder, "where the backend writes")


def main():
    torch.set_num_threads(1)
    proof = Proof("LMCache", lmcache.__version__)
    cache, latent = Cache(proof.seed), Cache(proof.seed, latent=True)
    kind = NAMES[cache.dtype]
    bare, said = facts(cache), facts(cache, layers=False)

    configuration(proof, cache)
    plain(proof, f"local disk, {kind}", cache, Disk, bare)
    plain(proof, f"FS connector, header, {kind}", cache, Fs, said)
    plain(proof, f"FS connector, no header, {kind}", cache, FsBare, bare)
    plain(proof, f"FS adapter of the second level, {kind}", cache, Second,
          facts(cache, dtype=True))
    plain(proof, f"FS adapter of the second level, salted keys, {kind}", cache,
          SecondSalted, facts(cache, dtype=True))
    plain(proof, f"GDS, host memory for the GPU's, {kind}", cache, Gds, said)
    plain(proof, f"Weka, host memory for the GPU's, {kind}", cache, Weka, said)
    plain(proof, f"FS connector, header, MLA, {kind}", latent, Fs, [])
    plain(proof, f"local disk, MLA, {kind}", latent, Disk, facts(latent))
    if raw_block:
        raw_blocks(proof, cache)
    layerwise(proof, cache)
    two_groups(proof, cache)
    half = cache.heads // 2
    workers(proof, cache, Fs, f"FS connector, header, {kind}",
            facts(cache, heads=half, layers=False))
    workers(proof, cache, Disk, f"local disk, {kind}", facts(cache, heads=half))

    written(proof, f"local disk, {kind}", cache, Disk, "KLBSHD")
    written(proof, f"FS connector, no header, {kind}", cache, FsBare, "KLBSHD")
    written(proof, f"FS adapter of the second level, {kind}", cache, Second, "KLBSHD")
    written(proof, f"local disk, layerwise, KV_2TD, {kind}", cache, Disk, "LKBSHD",
            (MemoryFormat.KV_2TD, lambda c: c.flatten(2)))
    written(proof, f"local disk, layerwise, KV_T2D, {kind}", cache, Disk, "LBSKHD",
            (MemoryFormat.KV_T2D, lambda c: c.transpose(0, 1).flatten(2)))
    proof.skip("whole stores that kvtool wrote", "all backends",
               "kvtool reads stores of LMCache and writes none; headers of the FS "
               "connector and of GDS are LMCache's own")
    proof.skip("chunks in S3, Redis and other servers", "LMCache",
               "need servers that are not here; kvtool reads copies of their objects")
    return proof.done()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)                      # threads of LMCache wait for ever
