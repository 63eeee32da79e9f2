/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_sums.c - what became of the requests of a trace, in figures
 *
 * Percentiles are interpolated between neighbours, as numpy and vLLM do it.  Figures
 * of transfers are in the whole microseconds that vLLM has, and in the histograms of
 * its NIXL connector, so that both can be laid side by side.
 */
#include "sim/ops/replay.h"
#include "lib/base/order.h"

#include <stdlib.h>

/* ---- sums ------------------------------------------------------------------ */

/* Of n sorted values; 0 if there are none. */
static double percentile(const int64_t *v, int64_t n, double p)
{
	double at = p / 100 * (double)(n - 1);
	int64_t i = (int64_t)at;

	if (n < 1)
		return 0;
	if (i + 1 >= n)
		return (double)v[n - 1];
	return (double)v[i] + (double)(v[i + 1] - v[i]) * (at - (double)i);
}

/* Sorts 'v'. */
static struct kvt_spread spread_of(int64_t *v, int64_t n)
{
	double sum = 0;

	qsort(v, (size_t)n, sizeof(*v), kvt_by_int64);
	for (int64_t i = 0; i < n; i++)
		sum += (double)v[i];
	return (struct kvt_spread){ percentile(v, n, 50), percentile(v, n, 90),
				percentile(v, n, 99), n ? sum / (double)n : 0 };
}

int64_t kvt_replay_kv_part(const struct kvt_replay_request *q)
{
	return q->end - q->ready;
}

double kvt_replay_attainment(const struct kvt_replay *s, int64_t slo_ns)
{
	int64_t in_time = 0;

	for (int64_t i = 0; i < s->n; i++)
		in_time += s->request[i].outcome == KVT_REPLAY_DONE &&
			   kvt_replay_kv_part(&s->request[i]) <= slo_ns;
	return (double)in_time / (double)s->n;
}

static void sum_requests(struct kvt_replay_sums *t, const struct kvt_replay *s,
			 int64_t slo_ns, int64_t *v)
{
	double sum = 0, squares = 0;
	int64_t n = 0, m = 0;

	for (int64_t i = 0; i < s->n; i++) {
		const struct kvt_replay_request *q = &s->request[i];
		double x;

		t->done += q->outcome == KVT_REPLAY_DONE;
		t->failed += q->outcome == KVT_REPLAY_FAILED;
		t->expired += q->outcome == KVT_REPLAY_EXPIRED;
		t->retries += q->retries;
		t->bytes += q->bytes;
		t->pinned += (double)q->bytes * (double)kvt_replay_kv_part(q) / 1e9;
		if (q->outcome != KVT_REPLAY_DONE)
			continue;
		v[n++] = kvt_replay_kv_part(q);
		if (!slo_ns || kvt_replay_kv_part(q) <= slo_ns)
			t->good += q->bytes;
		if (q->end <= q->start || !q->bytes)
			continue;
		x = (double)q->bytes / (double)(q->end - q->start);
		sum += x;
		squares += x * x;
		m++;
	}
	t->kv = spread_of(v, n);
	t->jain = m ? sum * sum / ((double)m * squares) : 1;
	for (int64_t i = n = 0; i < s->n; i++)
		if (s->request[i].outcome == KVT_REPLAY_DONE)
			v[n++] = s->request[i].start - s->request[i].first;
	t->wait = spread_of(v, n);
}

static void sum_transfers(struct kvt_replay_sums *t, const struct kvt_replay *s,
			  int64_t *v)
{
	int64_t n = s->ntransfers;

	for (int64_t i = 0; i < n; i++) {
		const struct kvt_replay_transfer *x = &s->transfer[i];

		v[i] = x->duration / 1000;	/* vLLM has whole microseconds */
		t->xfer_ns += (double)v[i] * 1e3;
		t->mib += (double)x->bytes / 1048576;
		t->descriptors += (double)x->descriptors;
	}
	t->xfer = spread_of(v, n);
	for (int64_t i = 0; i < n; i++)
		v[i] = s->transfer[i].posting / 1000;
	t->posting = spread_of(v, n);
}

enum kvt_status kvt_replay_sum(struct kvt_replay_sums *t, const struct kvt_replay *s,
			       double rate, int64_t slo_ns, struct kvt_error *err)
{
	int64_t most = s->n > s->ntransfers ? s->n : s->ntransfers, *v;

	*t = (struct kvt_replay_sums){ .seconds = (double)(s->end - s->begin) / 1e9 };
	if (!(v = malloc((size_t)(most + 1) * sizeof(*v))))
		return kvt_no_memory(err, NULL);
	sum_requests(t, s, slo_ns, v);
	sum_transfers(t, s, v);
	free(v);
	for (int64_t i = 0; i < s->nnics && rate > 0 && t->seconds > 0; i++) {
		double use = s->nic_bytes[i] / (rate * t->seconds);

		t->use_mean += use / (double)s->nnics;
		if (use > t->use_most)
			t->use_most = use;
	}
	return KVT_OK;
}

/* ---- histograms ------------------------------------------------------------ */

/* Whole microseconds, as vLLM has them. */
static double duration_of(const struct kvt_replay_transfer *t)
{
	return (double)(t->duration / 1000) / 1e6;
}

static double posting_of(const struct kvt_replay_transfer *t)
{
	return (double)(t->posting / 1000) / 1e6;
}

static double bytes_of(const struct kvt_replay_transfer *t)
{
	return (double)t->bytes;
}

static double descriptors_of(const struct kvt_replay_transfer *t)
{
	return (double)t->descriptors;
}

static const struct {
	const char *name;
	double (*value)(const struct kvt_replay_transfer *);
	double bound[KVT_MOST_BOUNDS];	/* 0 ends them */
} histograms[KVT_REPLAY_HISTOGRAMS] = {
	{ "vllm:nixl_xfer_time_seconds", duration_of,
	  { .005, .01, .025, .05, .075, .1, .2, .3, .5, .75, 1, 5 } },
	{ "vllm:nixl_post_time_seconds", posting_of,
	  { .001, .005, .01, .025, .05, .075, .1, .2, .3, .5, .75, 1, 5 } },
	{ "vllm:nixl_bytes_transferred", bytes_of,
	  { 2048, 8192, 32768, 131072, 524288, 2097152, 8388608, 33554432, 134217728,
	    536870912, 2147483648, 8589934592 } },
	{ "vllm:nixl_num_descriptors", descriptors_of,
	  { 10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000 } },
};

void kvt_replay_histogram(struct kvt_histogram *out, const struct kvt_replay *s, int i)
{
	*out = (struct kvt_histogram){ .name = histograms[i].name };
	for (int b = 0; b < KVT_MOST_BOUNDS; b++)
		out->bound[b] = histograms[i].bound[b];
	for (int64_t t = 0; t < s->ntransfers; t++) {
		double x = histograms[i].value(&s->transfer[t]);

		out->sum += x;
		for (int b = 0; b < KVT_MOST_BOUNDS && out->bound[b] > 0; b++)
			out->count[b] += x <= out->bound[b];
	}
}
