#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""What stacks post, held against plain loops over every byte (TAP).

Small transfers at random: the list of operations of 'transfer-sim time --csv', and
the counts of --json, must be those that the rules below give.  Refusals too.
"""
import csv
import io
import os
import random

import oracle
from oracle import SHARE, kvtool, tap

CASES = 600 // SHARE
ELEM = 2
LAYOUTS = {'hnd': 'LBHSKD', 'nhd': 'LBSHKD', 'blshc': 'BLSHKD', 'bhlsc': 'BHLSKD',
           'BLHSC': 'BLHSKD', 'LBKHSD': 'LBKHSD', 'LKBSHD': 'LKBSHD',
           'head-halves': 'LBHKSD', 'cross-layer-head': 'BLHKSD'}


class Side:
    def __init__(self, rng, layers, heads, dim, tokens, like=None):
        self.layout = like.layout if like and rng.random() < 0.9 else \
            rng.choice(list(LAYOUTS))
        self.tp = like.tp if like and rng.random() < 0.6 else \
            rng.choice([n for n in (1, 2, 4) if n <= heads])
        self.size = like.size if like and rng.random() < 0.7 else rng.choice([2, 3, 4, 6])
        self.heads = heads // self.tp
        n = -(-tokens // self.size)
        self.pool = 2 * n + rng.randrange(4)
        start = rng.randrange(self.pool - n + 1)
        row = list(range(start, start + n))
        self.ids = rng.choice([row, row, row[::-1], rng.sample(range(self.pool), n)])
        extent = {'L': layers, 'B': self.pool, 'H': self.heads, 'S': self.size,
                  'K': 2, 'D': dim}
        self.extent = extent
        self.stride, step = {}, ELEM
        for axis in reversed(LAYOUTS[self.layout]):
            self.stride[axis] = step
            step *= extent[axis]

    def at(self, **index):
        return sum(self.stride[axis] * i for axis, i in index.items())

    def option(self):
        return 'layout=%s,tp=%d,block-size=%d,pool=%d,ids=list:%s' % (
            self.layout, self.tp, self.size, self.pool, ':'.join(map(str, self.ids)))


class Refused(Exception):
    pass


def one_run(offsets):
    offsets = sorted(offsets)
    if offsets != list(range(offsets[0], offsets[0] + ELEM * len(offsets), ELEM)):
        raise Refused
    return offsets[0], ELEM * len(offsets)


def is_run(offsets):
    try:
        one_run(offsets)
        return True
    except Refused:
        return False


def same_layout(src, dst):
    """Of the axes that both have several of."""
    a, b = ([axis for axis in LAYOUTS[side.layout]
             if axis != 'D' and src.extent[axis] > 1 and dst.extent[axis] > 1]
            for side in (src, dst))
    return a == b


def whole_rows(side, dim):
    """vLLM registers the row of a block where a layer's page is not [heads][slots]."""
    order = LAYOUTS[side.layout]
    if side.extent['L'] < 2 or order[0] != 'B':
        return False
    page = part(side, [0], 0, range(side.heads), [0, 1], dim)
    swapped = order.index('S') < order.index('H')
    return not is_run(page.values()) or (swapped and side.heads > 1 and side.size > 1)


def part(side, layers, block, heads, ks, dim):
    """Offsets of what moves of one block, by what they are."""
    return {(l, h, s, k, d): side.at(L=l, B=block, H=heads.start + h, S=s, K=k, D=d)
            for l in layers for h in range(len(heads)) for s in range(side.size)
            for k in ks for d in range(dim)}


def descriptor(src, dst, permuted):
    a, n = one_run(src.values())
    b, m = one_run(dst.values())
    if not permuted and any(src[i] - a != dst[i] - b for i in src):
        raise Refused
    return a, b, n, m


def pair_list(stack, src, dst, layers, dim, tokens, mine, theirs):
    """The stack's list before merging, each with its region."""
    packed = stack == 'nixl-packed'
    if packed and layers > 1 and not (src.stride['B'] > src.stride['L'] and
                                      dst.stride['B'] > dst.stride['L']):
        raise Refused
    if src.size != dst.size and (stack != 'nixl' or dst.size % src.size):
        raise Refused
    if src.tp % dst.tp and dst.tp % src.tp:
        raise Refused
    if stack == 'nixl':
        if dst.tp < src.tp and src.size != dst.size or not same_layout(src, dst):
            raise Refused
        packed = whole_rows(src, dim) or whole_rows(dst, dim)
        if packed and (src.tp != dst.tp or src.size != dst.size):
            raise Refused
    split = not packed and any(s.layout in ('LBKHSD', 'LKBSHD') for s in (src, dst))
    out = []
    for layer in [range(layers)] if packed else [[l] for l in range(layers)]:
        for ks in ([0], [1]) if split else ([0, 1],):
            for i in range(-(-tokens // src.size)):
                at = i * src.size
                a = part(src, layer, src.ids[i], mine, ks, dim)
                b = part(dst, layer, dst.ids[at // dst.size], theirs, ks, dim)
                permuted = src.size != dst.size
                s, d, n, m = descriptor(a, b, permuted)
                if permuted:
                    d += at % dst.size // src.size * n
                out.append((s, d, n, (layer[0], ks[0])))
    return out


def merge(ops, descending):
    out = []
    for s, d, n, region in ops:
        if out and out[-1][3] == region:
            a, b, m, _ = out[-1]
            if a + m == s and b + m == d:
                out[-1] = (a, b, m + n, region)
                continue
            if descending and s + n == a and d + n == b:
                out[-1] = (s, d, m + n, region)
                continue
        out.append((s, d, n, region))
    return out


def gather(ops, most):
    out, ranges = [], 0
    for s, d, n, _ in ops:
        if out and ranges < most and out[-1][1] + out[-1][2] == d:
            out[-1] = (out[-1][0], out[-1][1], out[-1][2] + n)
            ranges += 1
        else:
            out.append((s, d, n))
            ranges = 1
    return out


def cut(ops, size):
    out = []
    for s, d, n in ops:
        while size and n > size:
            out.append((s, d, size))
            s, d, n = s + size, d + size, n - size
        out.append((s, d, n))
    return out


def heads_of(side, rank):
    return range(rank * side.heads, (rank + 1) * side.heads)


def expected(case):
    src, dst = case['src'], case['dst']
    lists, listed, merged = [], 0, 0
    for r in range(dst.tp):
        for q in range(src.tp):
            both = sorted(set(heads_of(src, q)) & set(heads_of(dst, r)))
            if not both:
                continue
            mine = range(both[0] - q * src.heads, both[-1] + 1 - q * src.heads)
            theirs = range(both[0] - r * dst.heads, both[-1] + 1 - r * dst.heads)
            ops = pair_list(case['stack'], src, dst, case['layers'], case['dim'],
                            case['tokens'], mine, theirs)
            listed += len(ops)
            if case['coalesce'] != 'off':
                ops = merge(ops, case['descending'])
            merged += len(ops)
            lists += [(q, r) + op for op in cut(gather(ops, case['sge']), case['slice'])]
    return lists, listed, merged


def run(case, output):
    words = ['transfer-sim', 'time', output, '--link=infinite', '--rate=1',
             '--emulate=' + case['stack'], '--coalesce=' + case['coalesce'],
             '--sge=%d' % case['sge'], '--tokens=%d' % case['tokens'],
             '--spec=gqa:layers=%d,heads=%d,head-dim=%d' % (
                 case['layers'], case['heads'], case['dim']),
             '--src=' + case['src'].option(), '--dst=' + case['dst'].option()]
    if case['descending']:
        words.append('--merge-descending')
    if case['slice']:
        words.append('--slice=%d' % case['slice'])
    return kvtool(*words)


def draw(rng):
    case = {'layers': rng.randrange(1, 4), 'heads': rng.choice([2, 4]),
            'dim': rng.choice([1, 2]), 'tokens': rng.randrange(1, 20),
            'stack': rng.choice(['nixl', 'nixl', 'mooncake', 'nixl-packed']),
            'coalesce': rng.choice(['stack', 'stack', 'off', 'nixl']),
            'descending': rng.random() < 0.3, 'sge': rng.choice([1, 1, 2, 5]),
            'slice': rng.choice([0, 0, 24, 64])}
    shape = case['layers'], case['heads'], case['dim'], case['tokens']
    case['src'] = Side(rng, *shape)
    case['dst'] = Side(rng, *shape, like=case['src'])
    if case['stack'] == 'nixl-packed':
        case['dst'] = case['src']
    return case


def compare(case):
    done = run(case, '--csv')
    try:
        want, listed, merged = expected(case)
    except Refused:
        assert done.code == 3, (done.out, done.err)
        assert len(done.err.splitlines()) == 1
        return 'refused'
    assert done.code == 0, done.err
    rows = list(csv.DictReader(io.StringIO(done.out)))
    got = [tuple(int(row[k]) for k in ('src_rank', 'dst_rank', 'src_off', 'dst_off', 'len'))
           for row in rows]
    assert got == want, (got, want)
    last = {}
    for row in rows:
        times = [int(row[k]) for k in ('t_start', 't_end')]
        assert last.get(row['pair'], 0) <= times[0] <= times[1]
        last[row['pair']] = times[1]
    o = run(case, '--json').json
    r = o['request']
    assert (r['descriptors_listed'], r['num_descriptors'], r['posted_ops']) == \
        (listed, merged, len(want)), (r, listed, merged)
    assert r['bytes_transferred'] == sum(op[4] for op in want)
    assert [last[str(i)] for i in range(len(last))] == \
        [p['wire_ns_end'] for p in o['rank_pairs']]
    return 'merged' if merged < listed else 'plain'


# ---- a contract and the stack ------------------------------------------------

# vLLM's names of its layouts.  LHBNC is registered head by head there, which
# nothing here does: no backend that has it can be used with a connector.
VLLM = {'LBHNC', 'LBNHC', 'LHBNC', 'BLHNC', 'BLNHC', 'BHLNC'}


def may(name, layers, unequal):
    """is_block_contiguous, of axes that there are several of; blocks of a layer."""
    order = [a for a in name if a != 'L' or layers > 1]
    return ''.join(order[-3:]) == 'HNC' if unequal else name != 'LHBNC'


def agreement(folder):
    """What a contract says of a dump, and what nixl does to a transfer of it."""
    wrong = []
    for layers in (1, 3):
        path = os.path.join(folder, 'zeros.bin')
        with open(path, 'wb') as f:
            f.truncate(layers * 8 * 16 * 4 * 2 * 8 * 2)
        for name in sorted(VLLM):
            for clause, tp in (('equal_tp', 1), ('unequal_tp', 2)):
                if name == 'LHBNC' and clause == 'unequal_tp' and layers == 1:
                    continue
                want = may(name, layers, tp > 1) and may(name, layers, False)
                told = kvtool('describe', '--layout=' + name, '--dtype=bfloat16',
                              '--layers=%d' % layers, '--blocks=8', '--block-size=16',
                              '--heads=4', '--head-dim=8', '--expect',
                              'connector=' + clause, path).code == 0
                done = kvtool('transfer-sim', 'time', '--emulate=nixl', '--tokens=64',
                              '--spec=gqa:layers=%d,heads=4,head-dim=8' % layers,
                              '--src=tp=1,layout=' + name, '--dst=tp=%d' % tp).code == 0
                if (told, done) != (want, want):
                    wrong.append((name, layers, clause, told, done))
    return wrong


def main(folder):
    rng = random.Random(11)
    seen, failed = {}, []
    for i in range(CASES):
        case = draw(rng)
        try:
            how = case['stack'], compare(case)
            seen[how] = seen.get(how, 0) + 1
        except AssertionError as e:
            failed.append('case %d: %s %s -> %s: %s' % (
                i, {k: v for k, v in case.items() if k not in ('src', 'dst')},
                case['src'].option(), case['dst'].option(), str(e)[:600]))
    few = 2 // SHARE
    print('# ' + ', '.join('%s %s: %d' % (*k, n) for k, n in sorted(seen.items())))
    tap.ok(not failed, '%d random transfers' % CASES, '\n'.join(failed))
    tap.ok(all(seen.get((s, h), 0) > few for s in ('nixl', 'mooncake')
               for h in ('refused', 'merged', 'plain')) and
           seen.get(('nixl-packed', 'merged'), 0) + seen.get(('nixl-packed', 'plain'), 0) > few,
           'every outcome among them')
    wrong = agreement(folder)
    tap.ok(not wrong, 'contracts and nixl agree on the layouts of vLLM', wrong)


oracle.run(main)
