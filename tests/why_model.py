# SPDX-License-Identifier: Apache-2.0
"""
why_model.py - a prefix cache that publishes events as vLLM and SGLang do, and no other

Blocks have the names of prefix_model.py.  A cache has groups of layers, memory that
evicts what was used longest ago, last blocks first, and perhaps a medium below it that
keeps copies.  Its events are lists of dicts, which are changed to plant what no sound
cache tells, and then written in one of the encodings that recordings have.
"""
import json
import struct

# ---- MessagePack ---------------------------------------------------------------------


def msgpack(x):
    if x is None or isinstance(x, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[x]
    if isinstance(x, float):
        return b"\xcb" + struct.pack(">d", x)
    if isinstance(x, int):
        if -32 <= x < 128:
            return struct.pack("b", x)
        for tag, form in ((0xcc, "B"), (0xcd, ">H"), (0xce, ">I"), (0xcf, ">Q"),
                          (0xd0, "b"), (0xd1, ">h"), (0xd2, ">i"), (0xd3, ">q")):
            try:
                return bytes([tag]) + struct.pack(form, x)
            except struct.error:
                continue
        raise OverflowError(x)

    def head(n, small, short, *tags):
        if n < small[1]:
            return bytes([small[0] | n])
        forms = [">B", ">H", ">I"][3 - len(tags):] if not short else [">B", ">H", ">I"]
        for tag, form in zip(tags, forms):
            try:
                return bytes([tag]) + struct.pack(form, n)
            except struct.error:
                continue
        raise OverflowError(n)
    if isinstance(x, str):
        b = x.encode()
        return head(len(b), (0xa0, 32), True, 0xd9, 0xda, 0xdb) + b
    if isinstance(x, bytes):
        return head(len(x), (0, 0), True, 0xc4, 0xc5, 0xc6) + x
    if isinstance(x, (list, tuple)):
        return head(len(x), (0x90, 16), False, 0xdc, 0xdd) + b"".join(map(msgpack, x))
    return head(len(x), (0x80, 16), False, 0xde, 0xdf) + \
        b"".join(msgpack(k) + msgpack(v) for k, v in x.items())


# ---- events as they are published -------------------------------------------------------

STORED = ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
          "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"]
REMOVED = ["block_hashes", "medium", "group_idx"]


def published_hash(h, form):
    """Of hex: all bytes of it, vLLM's last 8 as a number, SGLang's first 8 with a sign."""
    if h is None:
        return None
    b = bytes.fromhex(h)
    if form == "bytes":
        return b
    if form == "sglang":
        return struct.unpack(">q", b[:8])[0]
    return int.from_bytes(b[-8:], "big")


def published(event, form, shape):
    """An event as a map, without what is not there; or as an array."""
    fields = {"BlockStored": STORED, "BlockRemoved": REMOVED}.get(event["type"], [])
    out = {}
    for name in fields:
        value = event.get(name)
        if name == "block_hashes":
            value = [published_hash(h, form) for h in value]
        elif name == "parent_block_hash":
            value = published_hash(value, form)
        out[name] = value
    if shape == "map":
        keep = ("parent_block_hash", "lora_id", "medium", "lora_name")
        return {"type": event["type"],
                **{k: v for k, v in out.items() if v is not None or k in keep}}
    values = list(out.values())
    while values and values[-1] is None:
        values.pop()
    return [event["type"], *values]


def record(batches, rng, form=None):
    """Bytes of a file that has these batches: {seq, ts, rank, events}."""
    form = form or rng.choice(["bytes", "vllm"])
    shape = rng.choice(["map", "array"])
    frame = rng.choice(["topic", "seq"])
    text = rng.random() < 0.4
    out = []
    for b in batches:
        batch = [b["ts"], [published(e, form, shape) for e in b["events"]]]
        if b["rank"] is not None:
            batch.append(b["rank"])
        x = [b["seq"], "kv-events", batch] if frame == "topic" else [b["seq"], batch]
        if text:
            if frame == "topic":
                x = {"seq": b["seq"], "topic": "kv-events", "batch": batch}
            x = json.dumps(x, default=lambda v: v.hex()) + "\n"
        out.append(x.encode() if text else msgpack(x))
    return b"".join(out)


def short(h):
    """What a problem's hash must end with, in whatever form it was published."""
    return h[-16:]


# ---- a cache ---------------------------------------------------------------------------------

class Cache:
    """Of one rank; 'below' is a medium that keeps copies of what memory evicts."""

    def __init__(self, names, size, room=64, groups=1, below=None, rank=None):
        self.names, self.size, self.room, self.groups = names, size, room, groups
        self.below, self.rank = below, rank
        self.have = {}                  # (group, hash): [used, parent]
        self.under = {}
        self.seq = self.clock = 0
        self.batches, self.events = [], []

    def tell(self, kind, **more):
        self.events.append({"type": kind, **more})

    def evict(self, group):
        mine = {h for g, h in self.have if g == group}
        parents = {self.have[group, h][1] for h in mine}
        h = min(mine - parents, key=lambda h: self.have[group, h][0])
        del self.have[group, h]
        self.tell("BlockRemoved", block_hashes=[h], medium="GPU", **self.group(group))

    def group(self, g):
        return {"group_idx": g if self.groups > 1 else None}

    def store(self, group, tokens, names, first, medium="GPU", lora=None, salt=None):
        extra = None
        if salt or lora:
            extra = [([["cache_salt", salt]] if salt and i == 0 else None)
                     for i in range(first, len(names))]
        self.tell("BlockStored", block_hashes=names[first:],
                  parent_block_hash=names[first - 1] if first else None,
                  token_ids=tokens[first * self.size:len(names) * self.size],
                  block_size=self.size, lora_id=None, medium=medium, lora_name=lora,
                  extra_keys=extra, kv_cache_spec_kind="full_attention",
                  **self.group(group))

    def request(self, tokens, lora=None, salt=None, **key):
        """A prompt: what is there is used again, the rest is stored."""
        names = list(self.names(tokens, salt=salt, lora=lora, **key))
        if not names:
            return
        for g in range(self.groups):
            first = 0
            while first < len(names) and (g, names[first]) in self.have:
                first += 1
            for h in names[:first]:
                self.clock += 1
                self.have[g, h][0] = self.clock
            for i in range(first, len(names)):
                self.clock += 1
                self.have[g, names[i]] = [self.clock, names[i - 1] if i else None]
            if first < len(names):
                self.store(g, tokens, names, first, lora=lora and lora[0], salt=salt)
            if self.below and not g:
                low = [h for h in names if h not in self.under]
                if low:
                    i = names.index(low[0])
                    self.under.update(dict.fromkeys(names[i:]))
                    self.store(g, tokens, names, i, self.below, lora and lora[0], salt)
        for g in range(self.groups):
            while sum(x == g for x, _ in self.have) > self.room:
                self.evict(g)
        self.end()

    def clear(self):
        self.have.clear()
        self.tell("AllBlocksCleared")
        self.end()

    def end(self):
        self.batches.append({"seq": self.seq, "ts": 1000.0 + self.seq / 4,
                             "rank": self.rank, "events": self.events})
        self.seq += 1
        self.events = []


def numbered(batches):
    """(number, batch, event) of all, as kvtool counts them."""
    n = 0
    for b in batches:
        for e in b["events"]:
            n += 1
            yield n, b, e
