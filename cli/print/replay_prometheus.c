/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_prometheus.c - a replay as the metrics that vLLM gives to Prometheus
 *
 * Names, units and bounds are those of vLLM's NIXL connector, so that both can be
 * laid side by side.  Buckets count all up to their bound, as Prometheus has it.
 */
#include "lib/ops/transfer/replay.h"

enum { MOST_BOUNDS = 16 };

/* Whole microseconds, as vLLM has them. */
static double duration_of(const struct serve_transfer *t)
{
	return (double)(t->duration / 1000) / 1e6;
}

static double posting_of(const struct serve_transfer *t)
{
	return (double)(t->posting / 1000) / 1e6;
}

static double bytes_of(const struct serve_transfer *t)
{
	return (double)t->bytes;
}

static double descriptors_of(const struct serve_transfer *t)
{
	return (double)t->descriptors;
}

static const struct histogram {
	const char *name;
	double (*value)(const struct serve_transfer *);
	double bound[MOST_BOUNDS];	/* 0 ends them */
} histograms[] = {
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

static void put_histogram(struct json_out *out, json_t *list, const struct histogram *h,
			  const struct serve *s)
{
	json_t *o = json_append_object(out, list), *buckets;
	int64_t count[MOST_BOUNDS] = { 0 };
	double sum = 0;

	for (int64_t i = 0; i < s->ntransfers; i++) {
		double x = h->value(&s->transfer[i]);

		sum += x;
		for (int b = 0; b < MOST_BOUNDS && h->bound[b] > 0; b++)
			count[b] += x <= h->bound[b];
	}
	json_put_text(out, o, "name", h->name);
	json_put_int(out, o, "count", s->ntransfers);
	json_put_real(out, o, "sum", sum);
	buckets = json_put_array(out, o, "buckets");
	for (int b = 0; b < MOST_BOUNDS && h->bound[b] > 0; b++) {
		json_t *bucket = json_append_object(out, buckets);

		json_put_real(out, bucket, "le", h->bound[b]);
		json_put_int(out, bucket, "count", count[b]);
	}
}

static void put_counter(struct json_out *out, json_t *list, const char *name, int64_t n)
{
	json_t *o = json_append_object(out, list);

	json_put_text(out, o, "name", name);
	json_put_int(out, o, "count", n);
}

void serve_put_metrics(struct json_out *out, json_t *object, const struct serve *s)
{
	json_t *list = json_put_array(out, object, "metrics");
	int64_t expired = 0;

	for (int64_t i = 0; i < s->n; i++)
		expired += s->request[i].how == SERVE_EXPIRED;
	for (size_t i = 0; i < sizeof(histograms) / sizeof(histograms[0]); i++)
		put_histogram(out, list, &histograms[i], s);
	put_counter(out, list, "vllm:nixl_num_failed_transfers", s->failed_transfers);
	put_counter(out, list, "vllm:nixl_num_kv_expired_reqs", expired);
}
