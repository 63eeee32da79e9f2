#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_windows.py - what a request no longer needs counts for nothing

Windows, chunks, R-SWA: which tokens are dead is written down here a second time,
with the tables that the managers of vLLM 0.32 made.  What is dead, or in the null
block, is overwritten: no digest, no diff, no verdict of fsck may change.  What is
live is changed, and all of them must.  Then groups that lie in one pool.
"""
import json

import numpy as np

import oracle
from oracle import kvtool, refused, runs, sizes, tap, write_json, write_text
from kvd1 import KEY, VALUE, cell_hashes, fold, hash_rows, weight

L, B, S, H, D = 2, 12, 4, 2, 3


def dead_tokens(group, n, prompt=0):
    """The set of tokens that nothing looks at once n are in the cache."""
    w = group["window"]
    if group["kind"] == "chunked_local":
        return set(range(n // w * w))
    if group["kind"] == "rswa":
        return set(range(prompt, n - w)) if prompt else set()
    # the next token, n, sees itself and the w - 1 before it
    return set(range(n - w + 1 - group.get("retained_tokens", 0)))


def cells_of(seed):
    """bfloat16 bits, none of them zero: [L, B, S, H, K, D]."""
    return np.random.default_rng(seed).integers(
        1, 0x7f00, (L, B, S, H, 2, D)).astype("<u2")


def group_of(kind, window, table, **more):
    return {"kind": kind, "window": window, "layout": "nhd", "dtype": "bfloat16",
            "sizes": sizes(L=L, B=B, S=S, H=H, D=D), "block_table": {"A": table}, **more}


def write(path, cells, said):
    """One file of one or several groups' arrays."""
    arrays = cells if isinstance(cells, list) else [cells]
    with open(f"{path}.bin", "wb") as f:
        for array in arrays:
            f.write(array.tobytes())
    write_json(f"{path}.json", {"file": path.rsplit("/", 1)[1] + ".bin", **said})
    return f"{path}.bin"


def digest(path, *options):
    r = kvtool("digest", "--scope=tokens", *options, path)
    return r.out.split("  ")[0] if r.code == 0 else str(r)


def expected_digest(version, cells, table, positions):
    """The definition: a hash for each layer, position, head and component."""
    at = np.array([table[t // S] for t in positions], dtype=int)
    slots = cells[:, at, np.array(positions, dtype=int) % S]
    rows = np.ascontiguousarray(slots).view(np.uint8).reshape(-1, 2 * D)
    content = hash_rows(rows).reshape(L, len(positions), H, 2, 2)
    hashes = cell_hashes(content, np.arange(L).reshape(-1, 1, 1, 1),
                         np.array(positions).reshape(-1, 1, 1), 0,
                         np.arange(H).reshape(-1, 1), np.array([KEY, VALUE]))
    lanes = weight("A") * fold(hashes)
    return f"kvd{version}:tokens:{int(lanes[1]):016x}{int(lanes[0]):016x}"


def findings(path, *options):
    r = kvtool("fsck", "--json", *options, path)
    found = [f for report in r.json["files"] for f in report["findings"]]
    return r, [f["name"] for f in found]


# ---- one group ---------------------------------------------------------------

SLIDING, CHUNKS, RSWA = "sliding_window", "chunked_local", "rswa"

# kind, window, tokens, table of the manager, and what else is said
CASES = (
    (SLIDING, 8, 11, [0, 2, 3, 4, 5, 6], {}),
    (SLIDING, 8, 12, [0, 2, 3, 4, 5, 6], {}),
    (SLIDING, 8, 15, [0, 0, 3, 4, 5, 6], {}),
    (SLIDING, 8, 20, [0, 0, 0, 4, 5, 6], {}),
    (SLIDING, 1, 17, [0, 0, 0, 0, 5], {}),
    (SLIDING, 5, 3, [7], {}),
    (SLIDING, 4, 14, [0, 0, 3, 4], {"retained_tokens": 3}),
    (SLIDING, 4, 14, [1, 2, 3, 4], {"retained_tokens": 3}),
    (CHUNKS, 8, 7, [1, 2, 3, 4, 5, 6], {}),
    (CHUNKS, 8, 8, [0, 0, 3, 4, 5, 6], {}),
    (CHUNKS, 8, 15, [0, 0, 3, 4, 5, 6], {}),
    (CHUNKS, 8, 16, [0, 0, 0, 0, 5, 6], {}),
    (CHUNKS, 6, 7, [0, 2, 3], {}),
    (CHUNKS, 7, 23, [0, 0, 0, 0, 0, 6], {}),
    (RSWA, 8, 16, [1, 2, 3, 4], {"prompt": 6}),
    (RSWA, 8, 20, [1, 2, 0, 4, 5], {"prompt": 6}),
    (RSWA, 8, 32, [1, 2, 0, 0, 0, 0, 7, 8], {"prompt": 6}),
    ("mla", 6, 15, [0, 0, 3, 4], {}),
)


def said_of(kind, window, n, table, more):
    more = dict(more)
    prompt = more.pop("prompt", 0)
    said = {**group_of(kind, window, table, **more), "num_tokens": {"A": n},
            "null_block": 0}
    if prompt:
        said["prompt_tokens"] = {"A": prompt}
    return said, prompt


def check_case(tmp, kind, window, n, table, more):
    said, prompt = said_of(kind, window, n, table, more)
    name = f"{kind} {window}, {n} tokens"
    cells, dead = cells_of(n), dead_tokens(said, n, prompt)
    live = [t for t in range(n) if t not in dead]
    if kind == "mla":			# keys and values all the same here
        said["total_kv_heads"] = H
    path = write(f"{tmp}/a", cells, said)
    tap.equal(digest(path), expected_digest(2, cells, table, live),
              f"{name}: the digest is that of the live tokens")
    tap.equal(digest(path, "--kvd=1"),
              expected_digest(1, cells, table, list(range(n))),
              f"{name}: the one of before is what it was")
    # all that is not live becomes something else
    other = cells_of(1000 + n)
    for t in live:
        other[:, table[t // S], t % S] = cells[:, table[t // S], t % S]
    changed = write(f"{tmp}/b", other, said)
    tap.equal(digest(changed), digest(path), f"{name}: what is dead counts for nothing")
    runs(f"{name}: nor in diff", "diff", path, changed, says=f"{len(live)} token")
    r, found = findings(changed)
    tap.ok(r.code == 0 and set(found) <= {"stale.slots", "null.nonzero", "table.spare"},
           f"{name}: nor in fsck", f"{found} {r}")
    check_kept(tmp, name, path, said, cells, live)
    if live:
        check_live(tmp, name, path, said, cells, live)


def check_kept(tmp, name, path, said, cells, live):
    """Other formats say the same, and a slice of everything is everything."""
    n, table = said["num_tokens"]["A"], said["block_table"]["A"]
    want = digest(path)
    for end in ("h5", "safetensors"):
        kvtool("convert", "-f", path, f"{tmp}/c.{end}")
        tap.equal(digest(f"{tmp}/c.{end}"), want, f"{name}: as {end}")
        r = kvtool("convert", "-f", f"{tmp}/c.{end}", f"{tmp}/d.npy")
        tap.equal(digest(f"{tmp}/d.npy"), want, f"{name}: and back")
    if not live:
        return
    r = kvtool("slice", "-f", f"--tokens=0:{n}", "-o", f"{tmp}/s.h5", path)
    tap.ok(r.code == 0 and digest(f"{tmp}/s.h5") == want,
           f"{name}: a slice of all tokens", r)
    r = kvtool("transfer-sim", "exec", "-f", "--fill=7", "--dst", "tp=2,block-size=8",
               "-o", f"{tmp}/t%r.h5", path)
    kvtool("merge", "-f", "-o", f"{tmp}/t.h5", f"{tmp}/t0.h5", f"{tmp}/t1.h5")
    moved = len(live) * L * H * 2 * D * 2
    tap.ok(r.code == 0 and digest(f"{tmp}/t.h5") == want and f"{moved} B" in r.out,
           f"{name}: a transfer moves just the {len(live)} live tokens", r)


def check_live(tmp, name, path, said, cells, live):
    """The first and the last live token are live: nobody may overlook them."""
    table = said["block_table"]["A"]
    for t in {live[0], live[-1]}:
        other = cells.copy()
        other[1, table[t // S], t % S, 1, 1, 2] ^= 1
        changed = write(f"{tmp}/b", other, said)
        r = kvtool("diff", path, changed)
        tap.ok(r.code == 1 and f"token {t}," in r.out and
               digest(changed) != digest(path), f"{name}: token {t} is live", r)
        holds = json.loads(kvtool("where", "--json",
                                  f"--at=layer=0,head=0,kv=k,dim=0,"
                                  f"block={table[t // S]},slot={t % S}", path).out)
        tap.ok('"live"' in json.dumps(holds), f"{name}: where finds token {t} live")
        null = {**said, "block_table": {"A": [0 if i == t // S else b
                                              for i, b in enumerate(table)]}}
        _, found = findings(write(f"{tmp}/b", cells, null))
        tap.ok("table.null-block" in found, f"{name}: token {t} cannot be in the null "
               "block", found)
    dead = [t for t in range(said["num_tokens"]["A"]) if t not in live and table[t // S]]
    for t in dead[:1]:
        holds = kvtool("where", "--json",
                       f"--at=layer=0,head=0,kv=k,dim=0,"
                                  f"block={table[t // S]},slot={t % S}", path).out
        tap.ok('"stale"' in holds, f"{name}: where finds token {t} dead", holds)


def check_digest(tmp, value, path):
    write_text(f"{tmp}/contract", f"kvtool-contract 1\ndigest.tokens = {value}\n")
    return kvtool("expect", "check", f"{tmp}/contract", path)


def check_contract(tmp):
    """A contract may have the digest of before, or that of now."""
    said, _ = said_of(SLIDING, 8, 20, [0, 0, 0, 4, 5, 6], {})
    path = write(f"{tmp}/a", cells_of(11), said)
    for version in ("1", "2"):
        value = digest(path, f"--kvd={version}")
        r = check_digest(tmp, value, path)
        tap.ok(r.code == 0 and value.startswith(f"kvd{version}:"),
               f"a contract with kvd{version}", r)
    r = check_digest(tmp, f"kvd1:tokens:{32 * '0'}", path)
    tap.ok(r.code == 1, "a contract with another kvd1", r)


def check_unknown(tmp):
    """Who does not know the window, or the prompt, lets nothing die but null blocks."""
    cells = cells_of(5)
    for kind, window, more in ((SLIDING, 0, {}), (RSWA, 8, {})):
        table, n = [1, 0, 0, 4, 5], 18
        said, _ = said_of(kind, window, n, table, more)
        path = write(f"{tmp}/a", cells, said)
        live = [t for t in range(n) if table[t // S]]
        tap.equal(digest(path), expected_digest(2, cells, table, live),
                  f"{kind}: nothing but the null block is dead")
        _, found = findings(path)
        tap.ok("table.null-block" not in found, f"{kind}: which may be anywhere", found)


def check_end_of_table(tmp):
    """A table may be the end of one: its last entry is that of the last token."""
    cells, n = cells_of(6), 18
    said, _ = said_of(SLIDING, 6, n, [3, 4, 5], {})
    path = write(f"{tmp}/a", cells, said)
    live = list(range(n - 5, n))
    tap.equal(digest(path), expected_digest(2, cells, [None, None, 3, 4, 5], live),
              "the end of a table: tokens keep their positions")
    whole, _ = said_of(SLIDING, 6, n, [0, 0, 3, 4, 5], {})
    runs("the end of a table is equal to all of it", "diff", path,
         write(f"{tmp}/b", cells, whole))


def check_full(tmp):
    """Full attention keeps its digests, also one that was told of a window."""
    cells, n, table = cells_of(7), 18, [3, 7, 5, 1, 2]
    for more in ({}, {"window": 4}):
        said = {**group_of("full_attention", 0, table), "num_tokens": {"A": n}, **more}
        path = write(f"{tmp}/a", cells, said)
        tap.equal(digest(path), expected_digest(1, cells, table, list(range(n))),
                  f"full attention {more}: every token counts, as before")


# ---- several groups, one pool ------------------------------------------------

def three_groups(pools, tables, **more):
    kinds = ((SLIDING, 6), (CHUNKS, 8), ("full_attention", 0))
    groups = []
    for i, (kind, window) in enumerate(kinds):
        group = group_of(kind, window, tables[i], id=f"g{i}")
        group["layer_ids"] = [i, i + 3]
        group["layer_names"] = [f"layers.{i}", f"layers.{i + 3}"]
        if not window:
            del group["window"]
        if pools[i]:
            group["pool"] = pools[i]
        groups.append({**group, **more})
    return {"groups": groups, "num_tokens": {"A": 18}, "null_block": 0}


TABLES = ([0, 0, 0, 4, 5], [0, 0, 0, 0, 6], [1, 2, 3, 7, 8])


def check_pool(tmp):
    overlaid = cells_of(8)		# all groups see the same bytes
    cells = [overlaid] * 3
    path = write(f"{tmp}/a", cells, three_groups(["p", "p", "p"], TABLES))
    r, found = findings(path)
    tap.ok(r.code == 0 and set(found) <= {"null.nonzero"},
           "three groups in one pool: nothing stale, shared or repeated", found)
    r, found = findings(write(f"{tmp}/b", cells, three_groups(["", "", ""], TABLES)))
    tap.ok("stale.slots" in found and r.code == 0, "three pools: each has stale slots")
    for i, j, what in ((0, 2, "a window and full attention"), (0, 1, "two windows"),
                       (1, 2, "chunks and full attention")):
        tables = [list(t) for t in TABLES]
        tables[i][-1] = tables[j][-1]
        r, found = findings(write(f"{tmp}/b", cells, three_groups("ppp", tables)))
        tap.ok(r.code == 1 and found.count("table.shared") == 1,
               f"a block of {what} at once", r)
        r, found = findings(write(f"{tmp}/b", cells, three_groups("pqr", tables)))
        tap.ok(r.code == 0 and "table.shared" not in found,
               f"pools of their own: {what} may both have it", r)
    check_pool_kept(tmp, path)


def check_pool_kept(tmp, path):
    for end in ("h5", "safetensors"):
        kvtool("convert", "-f", path, f"{tmp}/c.{end}")
        said = kvtool("describe", "--json", f"{tmp}/c.{end}").json
        tap.equal([(g["pool"], g["null_block"]) for g in said["groups"]],
                  [("p", 0)] * 3, f"pool and null block in {end}")
        tap.equal(digest(f"{tmp}/c.{end}"), digest(path), f"its digest in {end}")
    r, found = findings(f"{tmp}/c.h5")
    tap.ok(r.code == 0 and set(found) <= {"null.nonzero"}, "a snapshot of it", found)
    r = kvtool("slice", "-f", "--layers=0,3", "-o", f"{tmp}/s.h5", path)
    r, found = findings(f"{tmp}/s.h5")
    tap.ok(r.code == 0 and "layers.gap" not in found and "layers.chosen" in found,
           "a group that was chosen has no gap", found)


def check_used_blocks(tmp):
    """Of used blocks alone the null block is in the groups that use it."""
    cells = [cells_of(9)[:, b] for b in ([0, 4, 5], [0, 6], [1, 2, 3, 7, 8])]

    def said(null, own):
        out = three_groups(["p", "p", "p"], TABLES)
        for group, array, ids in zip(out["groups"], cells,
                                     ([0, 4, 5], [0, 6], [1, 2, 3, 7, 8])):
            group["sizes"] = {**group["sizes"], "num_blocks": array.shape[1]}
            group["block_ids"] = ids
            if 0 in ids and own:
                group["null_block"] = 0
        out["null_block"] = null
        if null is None:
            del out["null_block"]
        return out

    want = digest(write(f"{tmp}/a", [cells_of(9)] * 3, three_groups("ppp", TABLES)))
    for null, own, what in ((0, False, "said once"), (None, True, "said by groups"),
                            (0, True, "said by both")):
        path = write(f"{tmp}/b", cells, said(null, own))
        r, found = findings(path)
        tap.ok(r.code == 0 and not set(found) & {"table.repeated", "table.shared"},
               f"used blocks, the null block {what}: fsck", f"{found} {r}")
        tap.equal(digest(path), want, f"used blocks, the null block {what}: digest")
        kvtool("convert", "-f", path, f"{tmp}/c.h5")
        kvtool("convert", "-f", f"{tmp}/c.h5", f"{tmp}/c.safetensors")
        tap.equal((digest(f"{tmp}/c.h5"), digest(f"{tmp}/c.safetensors")), (want, want),
                  f"used blocks, the null block {what}: kept")
    bad = said(None, False)
    bad["groups"][2]["null_block"] = 0
    refused("a group's own null block must be there", 3,
            "g2: null block 0 is not in block_ids", "describe",
            write(f"{tmp}/b", cells, bad))


def check_stale_table(tmp):
    """A worker's table has numbers that others were given since."""
    cells = cells_of(10)
    said, _ = said_of(SLIDING, 6, 18, [4, 5, 3, 4, 5], {})
    r, found = findings(write(f"{tmp}/a", cells, said))
    tap.ok(r.code == 1 and found.count("table.repeated") == 2,
           "a stale table is found", found)
    said, _ = said_of(SLIDING, 6, 18, [0, 0, 3, 4, 5], {})
    said["block_table"]["B"] = [0, 7, 3, 4, 8]
    said["num_tokens"]["B"] = 17
    r, found = findings(write(f"{tmp}/a", cells, said))
    tap.ok(r.code == 0 and "table.shared" not in found,
           "before a shared block one window may have passed", found)


def main(tmp):
    for case in CASES:
        check_case(tmp, *case)
    for check in (check_contract, check_unknown, check_end_of_table, check_full, check_pool,
                  check_used_blocks, check_stale_table):
        check(tmp)


if __name__ == "__main__":
    oracle.run(main)
