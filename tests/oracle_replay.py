#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Replays and faults, held against a second account of each request (TAP).

Where batches do not hinder each other, the time of a request follows from the
formula of the link and from who posts when.  Percentiles are numpy's.
"""
import datetime
import json
import os
import random

import numpy as np

from oracle import kvtool, run, tap

MODEL = ['--spec=gqa:layers=4,heads=2,head-dim=8']
ROW = 4 * 2 * 2 * 8 * 2		# bytes of a token


def replay(*words, mode='replay'):
    done = kvtool('transfer-sim', mode, '--json', '--requests', *MODEL, *words)
    assert done.code == 0, done
    return done.json


def make_trace(path, rng, n):
    rows, at, known = [], 0, [[]]
    for _ in range(n):
        at += rng.choice([0, 1, 3, 40])
        tokens = rng.randrange(1, 3000)
        prefix = rng.choice(known)
        want = -(-tokens // 512)
        ids = (prefix + [rng.randrange(10 ** 9) for _ in range(want)])[:want]
        if len(prefix) > want:
            ids = prefix[:want]
        if rng.random() < 0.2:		# a hit behind a miss is none
            ids = [rng.randrange(10 ** 9)] + ids[1:]
        known.append(ids)
        rows.append({'timestamp': at, 'input_length': tokens, 'output_length': 1,
                     'hash_ids': ids})
    with open(path, 'w') as f:
        f.writelines(json.dumps(row) + '\n' for row in rows)
    return rows


def moved_tokens(rows):
    seen, out = set(), []
    for row in rows:
        lead = 0
        while lead < len(row['hash_ids']) and row['hash_ids'][lead] in seen:
            lead += 1
        seen.update(row['hash_ids'])
        out.append(max(0, row['input_length'] - 512 * lead))
    return out


# setup 20 us, 1 us an operation of which 0.4 us posting, 1 GB/s, no overlap
LINK = ['--link=infinite', '--overlap-power=1', '--setup=20', '--op=1000', '--post=400',
        '--rate=1', '--share=none', '--concurrent=100000']


def alone(path, rows, prefill):
    words = ['--trace=' + path, '--emulate=nixl', '--src=ids=scatter', *LINK]
    if prefill:
        words.append('--prefill-rate=%d' % prefill)
    o = replay(*words)
    moved = moved_tokens(rows)
    ready = [row['timestamp'] * 10 ** 6 + (round(m * 1e9 / prefill) if prefill else 0)
             for row, m in zip(rows, moved)]
    free, ends, posts = 0, {}, {}
    for i in sorted(range(len(rows)), key=lambda i: (ready[i], i)):
        if not moved[i]:
            ends[i] = rows[i]['timestamp'] * 10 ** 6
            continue
        ops = 4 * -(-moved[i] // 16)		# whole blocks, one a layer
        posts[i] = max(ready[i], free)
        free = posts[i] + 400 * ops
        ends[i] = posts[i] + 20000 + 1000 * ops + ops * 16 * ROW // 4
    got = o['requests']
    bad = [(g, ends[i], ready[i]) for i, g in enumerate(got)
           if g['moved_tokens'] != moved[i] or abs(g['end_ns'] - ends[i]) > 2 or
           g['bytes'] != (-(-moved[i] // 16)) * 16 * ROW or g['outcome'] != 'done']
    tap.ok(not bad, 'each request alone, prefill rate %s' % prefill, bad)
    figures(o, posts)


def figures(o, posts):
    rs = o['requests']
    kv = [r['end_ns'] - r['ready_ns'] for r in rs]
    wait = [r['start_ns'] - r['first_ready_ns'] for r in rs]
    bad = []
    for key, v in (('kv_ttft_ns', kv), ('queue_wait_ns', wait)):
        for p in (50, 90, 99):
            if abs(o[key]['p%d' % p] - np.percentile(v, p)) > 1:
                bad.append((key, p, o[key], np.percentile(v, p)))
        if abs(o[key]['mean'] - np.mean(v)) > 1:
            bad.append((key, 'mean'))
    span = (max(r['end_ns'] for r in rs) - rs[0]['arrival_ns']) / 1e9
    total = sum(r['bytes'] for r in rs)
    rates = np.array([r['bytes'] / (r['end_ns'] - r['start_ns']) for r in rs if r['bytes']])
    want = {
        'bytes': total, 'bytes_transferred': total, 'done': len(rs),
        'cached_tokens': sum(r['tokens'] - r['moved_tokens'] for r in rs),
        'rate_gbps': total / 1e9 / span,
        'nic_utilisation': total / 1e9 / span,
        'jain_fairness': rates.sum() ** 2 / (len(rates) * (rates ** 2).sum()),
        'pinned_byte_seconds': sum(r['bytes'] * k / 1e9 for r, k in zip(rs, kv)),
    }
    bad += [(k, o[k], v) for k, v in want.items() if abs(o[k] - v) > 1e-9 * max(1, abs(v))]
    if posts:
        us = np.array([(rs[i]['end_ns'] - at) // 1000 for i, at in posts.items()])
        mib = np.array([rs[i]['bytes'] / 2 ** 20 for i in posts])
        log = {'num_successful_transfers': len(us), 'avg_xfer_time_ms': us.mean() / 1e3,
               'p90_xfer_time_ms': np.percentile(us, 90) / 1e3,
               'avg_mb_per_transfer': mib.mean(),
               'throughput_mb_s': mib.sum() / (us.sum() / 1e6)}
        # one microsecond where a rounded nanosecond decides
        bad += [(k, o['vllm'][k], v) for k, v in log.items()
                if abs(o['vllm'][k] - v) > 2e-3 * max(1, v / 1e2)]
    tap.ok(not bad, 'percentiles, sums, and figures as vLLM computes them', bad)


BOUNDS = {'xfer_time_seconds': [.005, .01, .025, .05, .075, .1, .2, .3, .5, .75, 1, 5],
          'bytes_transferred': [2 ** i for i in range(11, 35, 2)],
          'num_descriptors': [10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000,
                              20000, 50000]}
BOUNDS['post_time_seconds'] = [.001] + BOUNDS['xfer_time_seconds']


def metrics(path):
    """Histograms over one batch a request, on a link that is slow and exact."""
    o = replay('--trace', path, '--link=infinite', '--op=700000', '--post=300000',
               '--rate=0.001', '--overlap-power=1', '--concurrent=1')
    rs = [r for r in o['requests'] if r['bytes']]
    o = o['vllm']
    got = {m['name'].removeprefix('vllm:nixl_'): m for m in o['metrics']}
    bad = [k for k, v in BOUNDS.items() if [b['le'] for b in got[k]['buckets']] != v]
    values = {'xfer_time_seconds': [(r['end_ns'] - r['start_ns']) // 1000 / 1e6 for r in rs],
              'bytes_transferred': [r['bytes'] for r in rs]}
    for k, v in values.items():
        want = [sum(x <= b for x in v) for b in BOUNDS[k]]
        if ([b['count'] for b in got[k]['buckets']] != want or got[k]['count'] != len(rs)
                or abs(got[k]['sum'] - sum(v)) > 1e-6 * sum(v)):
            bad.append((k, got[k], want))
    for k, factor in (('num_descriptors', 1), ('post_time_seconds', 3e-4)):
        n = round(got['num_descriptors']['sum'])
        if abs(got[k]['sum'] - n * factor) > 1e-3 * n * factor or not n:
            bad.append((k, got[k]))
        if got[k]['buckets'][-1]['count'] > len(rs) or not got[k]['buckets'][-1]['count']:
            bad.append((k, got[k]))
    if got['num_failed_transfers']['count'] or got['num_kv_expired_reqs']['count']:
        bad.append('failed')
    tap.ok(not bad and rs, 'the histograms of vLLM', bad)


def queue(path):
    """One at a time over a link that knows bytes only: each waits for the last."""
    o = replay('--trace=' + path, '--link=infinite', '--rate=0.01', '--concurrent=1',
               '--lease=1000000')
    free, bad = 0, []
    for r in o['requests']:
        start = max(r['ready_ns'], free) if r['bytes'] else r['arrival_ns']
        end = start + r['bytes'] * 100
        if r['bytes']:
            free = end
        if abs(r['start_ns'] - start) > 50 or abs(r['end_ns'] - end) > 50:
            bad.append((r, start, end))
    tap.ok(not bad and o['peak_concurrency'] == 1, 'a queue of one', bad)


def overlapped(path):
    """The last quarter of the layers leaves when the prompt is computed."""
    words = ['--trace=' + path, '--link=infinite', '--rate=1', '--share=none', '--push']
    whole = replay(*words, '--prefill-rate=100000')
    parts = replay(*words, '--prefill-rate=100000', '--overlap=layers:1')
    bad = [(a, b) for a, b in zip(whole['requests'], parts['requests'])
           if a['ready_ns'] != b['ready_ns'] or a['bytes'] != b['bytes'] or
           abs((b['end_ns'] - b['ready_ns']) * 4 - (a['end_ns'] - a['ready_ns'])) > 16]
    tap.ok(not bad and parts['bytes_transferred'] == whole['bytes'], 'layers overlap', bad)


def conserved(o, name):
    rs = o['requests']
    bad = [r for r in rs if r['outcome'] not in ('done', 'failed', 'expired') or
           (r['outcome'] == 'done') != (r['arrived_bytes'] == r['bytes']) or
           (r['outcome'] == 'done') == bool(r['invalid_block_ids']) or
           r['end_ns'] < r['arrival_ns']]
    sums = [(o[a], sum(r[b] for r in rs)) for a, b in (
        ('bytes', 'bytes'), ('bytes_transferred', 'arrived_bytes'),
        ('retried_bytes', 'retried_bytes'), ('retries', 'retries'))]
    sums += [(o[k], sum(r['outcome'] == k for r in rs)) for k in ('done', 'failed', 'expired')]
    sums.append((o['vllm']['num_kv_expired_reqs'], o['expired']))
    tap.ok(not bad and all(a == b for a, b in sums), name, (bad, sums))


def faults(path):
    words = ['--trace=' + path, '--emulate=nixl', '--src=tp=2,ids=scatter', '--dst=tp=1',
             '--rate=2']
    seen = set()
    for more in (['--drop=0.1'], ['--corrupt=0.3'], ['--drop=0.8', '--timeout=0.01'],
                 ['--peer-dead=0.3'], ['--nic-down=0@0.1+1', '--lease=20'],
                 ['--nic-down=1@0.1+1', '--rails=2'], ['--drop=1', '--lease=3'],
                 ['--corrupt=0.2', '--peer-dead=0.4', '--lease=5', '--push',
                  '--prefill-rate=9000', '--overlap=layers:2']):
        o = replay(*words, *more, '--seed=5', mode='faults')
        conserved(o, 'nothing is lost: ' + ' '.join(more))
        seen |= {k for k in ('done', 'failed', 'expired', 'retries', 'abandoned_bytes')
                 if o[k]}
        if more == ['--drop=1', '--lease=3']:
            tap.ok(o['done'] == sum(not r['bytes'] for r in o['requests']),
                   'nothing arrives over a link that loses all', o['done'])
        if more == ['--corrupt=0.3']:
            n = o['vllm']['num_successful_transfers']
            share = o['retries'] / (n + o['retries'])
            tap.ok(abs(share - 0.3) < 0.09 and o['failed'] == 0, 'chance is as told', share)
    tap.ok(seen == {'done', 'failed', 'expired', 'retries', 'abandoned_bytes'},
           'every outcome among them', seen)


def flexkv(path, rng):
    """Events as its tracer writes them; what is loaded, and when, by Python's dates."""
    at, lines, want, open_tasks = datetime.datetime(2027, 12, 31, 23, 40), [], [], {}
    first = None

    def event(kind, data):
        lines.append({'timestamp': at.isoformat(), 'event_type': kind,
                      'component': 'KVManager', 'data': data})

    def load(tokens, slots):
        nonlocal first
        first = first or at
        want.append((tokens, slots, (at - first) // datetime.timedelta(microseconds=1)))

    event('config', {'model_config': {'num_layers': 4}})
    for task in range(300):
        at += datetime.timedelta(microseconds=rng.choice([0, 1, 500000, 10 ** 6, 10 ** 7]))
        kind = rng.choice(['GET', 'PUT', 'GET_MATCH', 'PUT_MATCH'])
        tokens = rng.randint(1, 40)
        slots = rng.randint(0, tokens)
        event('request', {'request_type': kind, 'request_id': task, 'dp_client_id': 0,
                          'token_ids': [rng.randint(0, 9) for _ in range(tokens)],
                          'slot_mapping': list(range(slots)), 'token_mask': None})
        if kind == 'GET':
            load(tokens, slots)
        elif kind.endswith('MATCH'):
            open_tasks[task] = kind, tokens
        if open_tasks and rng.random() < 0.3:
            chosen = rng.sample(sorted(open_tasks), min(2, len(open_tasks)))
            mine = [list(range(rng.randint(0, open_tasks[i][1]))) for i in chosen]
            event('launch_tasks', {'task_ids': chosen + [10 ** 6],
                                   'slot_mappings': mine + [[1]]})
            for i, m in zip(chosen, mine):
                if open_tasks[i][0] == 'GET_MATCH' and m:
                    load(open_tasks[i][1], len(m))
        event('wait', {'wait_type': 'wait', 'task_ids': [task], 'timeout': None})
    with open(path, 'w') as f:
        f.writelines(json.dumps(x, separators=(',', ':')) + '\n' for x in lines)
    o = replay('--trace', path, '--concurrent=9999')
    got = [(r['tokens'], r['moved_tokens'], r['arrival_ns']) for r in o['requests']]
    tap.ok(got == [(t, s, 1000 * us) for t, s, us in want] and len(got) > 100,
           'the loads of a FlexKV trace', f'{got[:3]} {want[:3]}')


def vllm_log(path, rng):
    """Two engines that log every ten seconds; a request is two transfers."""
    lines, want, left, at = [], [], 0, datetime.datetime(2028, 2, 28, 23, 58, 50)
    for i in range(40):
        for engine in range(2):
            n, mib = rng.choice([0, 1, 2, 7]), rng.randint(1, 64) / 64
            lines.append(f'(EngineCore_DP{engine} pid=7) INFO {at:%m-%d %H:%M:%S} '
                         f'[metrics.py:103] KV Transfer metrics: Num successful transfers='
                         f'{n}, Avg xfer time (ms)=0.312, Avg MB per transfer={mib}\n')
            lines.append(f'INFO {at:%m-%d %H:%M:%S} [loggers.py] Engine 00{engine}: idle\n')
            left += n
            for k in range(left // 2):
                want.append((i * 10 ** 10 + 10 ** 10 * k // (left // 2),
                             int(mib * 2 ** 21), max(1, round(mib * 2 ** 21 / ROW))))
            left %= 2
        at += datetime.timedelta(seconds=10)
    with open(path, 'w') as f:
        f.writelines(lines)
    o = replay('--trace', path, '--dst=tp=2', '--concurrent=9999')
    got = [(r['arrival_ns'], r['bytes'], r['tokens']) for r in o['requests']]
    tap.ok(got == sorted(want) and len(got) > 60, 'the transfers of a log of vLLM',
           f'{got[:4]} {sorted(want)[:4]}')


def main(tmp):
    rng = random.Random(4)
    path = os.path.join(tmp, 'trace.jsonl')
    rows = make_trace(path, rng, 90)
    alone(path, rows, 0)
    alone(path, rows, 30000)
    metrics(path)
    queue(path)
    overlapped(path)
    faults(path)
    flexkv(path, rng)
    vllm_log(path, rng)


run(main)
