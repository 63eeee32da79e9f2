/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - what became of the requests of a trace, as text and as JSON
 *
 *	synthetic: 50 requests in 14.537 s, 157697 tokens, 27.9 % of them at the ...
 *	milliseconds of a request       median       90 %       99 %       mean
 *	  cache moved after             6.613     11.310     11.803      6.581
 *	transfers of a rank, as vLLM logs them:
 *	  Num successful transfers=50, Avg xfer time (ms)=6.581, P90 xfer time ...
 *
 *	{.., "num_requests": 2, "done": 2, .., "kv_ttft_ns": {"p50": 3129516, ..}, ..,
 *	 "vllm": {.., "metrics": [{"name": .., "buckets": [{"le": 0.005, ..}]}]},
 *	 "requests": [{"request": 0, "outcome": "done", .., "invalid_block_ids": []}]}
 *
 * Labels and units of vLLM's parts are those of its log line and its Prometheus metrics.
 * A request that was not done has the ids of all blocks that it was to move.
 */
#include "sim/print/transfer.h"

#include "lib/base/print.h"
#include "sim/print/link.h"

static double per(double x, double y)
{
	return y > 0 ? x / y : 0;
}

static enum kvt_status sum_up(struct kvt_replay_sums *out, const struct replay_report *r,
			      struct kvt_error *err)
{
	return kvt_replay_sum(out, r->replay, (double)r->how->posts->link.rate, r->slo_ns,
			      err);
}

/* ---- text ------------------------------------------------------------------ */

static void print_spread(const char *name, const struct kvt_spread *s)
{
	plainf("  %-24s %10.3f %10.3f %10.3f %10.3f\n", name, s->p50 / 1e6, s->p90 / 1e6,
	       s->p99 / 1e6, s->mean / 1e6);
}

/* The labels of vLLM's log line, in its order. */
static void print_vllm(const struct kvt_replay_sums *t, const struct kvt_replay *s)
{
	double n = (double)s->ntransfers;

	plainf("transfers of a rank, as vLLM logs them:\n"
	       "  Num successful transfers=%lld, Avg xfer time (ms)=%.3f, "
	       "P90 xfer time (ms)=%.3f,\n  Avg post time (ms)=%.3f, P90 post time (ms)=%.3f, "
	       "Avg MB per transfer=%.3f,\n  Throughput (MB/s)=%.3f, "
	       "Avg number of descriptors=%.1f\n",
	       LL(s->ntransfers), t->xfer.mean / 1e3, t->xfer.p90 / 1e3,
	       t->posting.mean / 1e3, t->posting.p90 / 1e3, per(t->mib, n),
	       per(t->mib, t->xfer_ns / 1e9), per(t->descriptors, n));
}

static void print_failed(const struct replay_report *r)
{
	int64_t step = r->scattered ? 2 : 1;

	for (int64_t i = 0; i < r->replay->n; i++) {
		const struct kvt_replay_request *q = &r->replay->request[i];
		int64_t blocks =
			(q->moved_tokens + r->sizes->slots - 1) / r->sizes->slots;

		if (q->outcome == KVT_REPLAY_DONE)
			continue;
		plainf("  request %lld %s after %.3f ms, %lld %s: invalid block ids "
		       "0 to %lld%s\n", LL(i), q->outcome == KVT_REPLAY_FAILED ? "failed" : "expired",
		       (double)kvt_replay_kv_part(q) / 1e6, LL(q->retries),
		       q->retries == 1 ? "retry" : "retries", LL((blocks - 1) * step),
		       r->scattered ? ", every second one" : "");
	}
}

static void print_how(const struct replay_report *r)
{
	const struct kvt_batch_how *how = r->how->posts;

	plainf("  link   %s%s, figures %s\n", how->link.name,
	       assumed_link(r->assumed, how->posting.stack).s,
	       kvt_quality_name(how->link.quality));
	plainf("  stack  %s%s; at most %lld request%s at once\n",
	       kvt_stack_name(how->posting.stack), assumed_stack(r->assumed).s,
	       LL(r->how->concurrent), plural(r->how->concurrent));
	plainf("  ranks  %s post%s; those that meet at a network card share it: %s\n",
	       how->push ? "sources" : "destinations", how->push ? " (push)" : " (pull)",
	       kvt_share_name(how->share));
}

void replay_text(const struct replay_report *r)
{
	const struct kvt_replay *s = r->replay;
	struct kvt_replay_sums t;

	if (sum_up(&t, r, NULL))
		return;
	plainf("%s: %lld request%s in %.3f s, %lld token%s, "
	       "%.1f %% of them at the destination already\n",
	       r->trace, LL(s->n), plural(s->n), t.seconds, LL(s->tokens),
	       plural(s->tokens),
	       100 * per((double)s->hit_tokens, (double)s->tokens));
	print_how(r);
	plainf("milliseconds of a request %12s %10s %10s %10s\n", "median", "90 %",
	       "99 %", "mean");
	print_spread("cache moved after", &t.kv);
	print_spread("of it waiting in queue", &t.wait);
	plainf("requests: %lld done, %lld failed, %lld expired; at most %lld at once\n",
	       LL(t.done), LL(t.failed), LL(t.expired), LL(s->peak));
	plainf("  %s moved, %.3f GB/s over the whole time (%.3f GB/s of requests in "
	       "time)\n",
	       kvt_size_string(t.bytes).s, per((double)t.bytes / 1e9, t.seconds),
	       per((double)t.good / 1e9, t.seconds));
	if (r->slo_ns)
		plainf("  %.2f %% of them were moved within %.3f ms\n",
		       100 * kvt_replay_attainment(s, r->slo_ns),
		       (double)r->slo_ns / 1e6);
	plainf("  network cards %.2f %% busy (the busiest %.2f %%)\n", 100 * t.use_mean,
	       100 * t.use_most);
	plainf("  fairness %.4f (Jain's index of the requests' rates: 1 if all are "
	       "alike)\n", t.jain);
	plainf("  blocks held at the source until they were moved: %.3f GB-seconds\n",
	       t.pinned / 1e9);
	if (r->faults) {
		plainf("faults: %lld transfer%s failed, %lld %s, %s sent again, "
		       "%s given up on the way\n",
		       LL(s->failed_transfers), plural(s->failed_transfers),
		       LL(t.retries), t.retries == 1 ? "retry" : "retries",
		       kvt_size_string(s->retried_bytes).s,
		       kvt_size_string(s->abandoned_bytes).s);
		print_failed(r);
	}
	print_vllm(&t, s);
}

/* ---- JSON ------------------------------------------------------------------ */

static void put_spread(struct json_out *out, json_t *object, const char *key,
		       const struct kvt_spread *s)
{
	json_t *o = json_put_object(out, object, key);

	json_put_int(out, o, "p50", (int64_t)(s->p50 + 0.5));
	json_put_int(out, o, "p90", (int64_t)(s->p90 + 0.5));
	json_put_int(out, o, "p99", (int64_t)(s->p99 + 0.5));
	json_put_int(out, o, "mean", (int64_t)(s->mean + 0.5));
}

static double rounded(double x, double unit)
{
	return (double)(int64_t)(x * unit + 0.5) / unit;
}

static void put_histogram(struct json_out *out, json_t *list,
			  const struct kvt_histogram *h,
			  int64_t n)
{
	json_t *o = json_append_object(out, list), *buckets;

	json_put_text(out, o, "name", h->name);
	json_put_int(out, o, "count", n);
	json_put_real(out, o, "sum", h->sum);
	buckets = json_put_array(out, o, "buckets");
	for (int b = 0; b < KVT_MOST_BOUNDS && h->bound[b] > 0; b++) {
		json_t *bucket = json_append_object(out, buckets);

		json_put_real(out, bucket, "le", h->bound[b]);
		json_put_int(out, bucket, "count", h->count[b]);
	}
}

static void put_counter(struct json_out *out, json_t *list, const char *name, int64_t n)
{
	json_t *o = json_append_object(out, list);

	json_put_text(out, o, "name", name);
	json_put_int(out, o, "count", n);
}

/* What vLLM gives to Prometheus. */
static void put_metrics(struct json_out *out, json_t *object, const struct kvt_replay *s,
			int64_t expired)
{
	json_t *list = json_put_array(out, object, "metrics");

	for (int i = 0; i < KVT_REPLAY_HISTOGRAMS; i++) {
		struct kvt_histogram h;

		kvt_replay_histogram(&h, s, i);
		put_histogram(out, list, &h, s->ntransfers);
	}
	put_counter(out, list, "vllm:nixl_num_failed_transfers", s->failed_transfers);
	put_counter(out, list, "vllm:nixl_num_kv_expired_reqs", expired);
}

static void put_vllm(struct json_out *out, const struct kvt_replay_sums *t,
		     const struct kvt_replay *s)
{
	json_t *o = json_put_object(out, out->root, "vllm");
	double n = (double)s->ntransfers;

	json_put_int(out, o, "num_successful_transfers", s->ntransfers);
	json_put_real(out, o, "avg_xfer_time_ms", rounded(t->xfer.mean / 1e3, 1e3));
	json_put_real(out, o, "p90_xfer_time_ms", rounded(t->xfer.p90 / 1e3, 1e3));
	json_put_real(out, o, "avg_post_time_ms", rounded(t->posting.mean / 1e3, 1e3));
	json_put_real(out, o, "p90_post_time_ms", rounded(t->posting.p90 / 1e3, 1e3));
	json_put_real(out, o, "avg_mb_per_transfer", rounded(per(t->mib, n), 1e3));
	json_put_real(out, o, "throughput_mb_s",
		      rounded(per(t->mib, t->xfer_ns / 1e9), 1e3));
	json_put_real(out, o, "avg_num_descriptors", rounded(per(t->descriptors, n), 10));
	json_put_int(out, o, "num_failed_transfers", s->failed_transfers);
	json_put_int(out, o, "num_kv_expired_reqs", t->expired);
	put_metrics(out, o, s, t->expired);
}

static void put_requests(struct json_out *out, const struct replay_report *r)
{
	static const char *const how[] = { "waits", "moves", "done", "failed",
					   "expired" };
	json_t *list = json_put_array(out, out->root, "requests");

	for (int64_t i = 0; i < r->replay->n; i++) {
		const struct kvt_replay_request *q = &r->replay->request[i];
		int64_t blocks =
			(q->moved_tokens + r->sizes->slots - 1) / r->sizes->slots;
		json_t *o = json_append_object(out, list), *ids;

		json_put_int(out, o, "request", i);
		json_put_text(out, o, "outcome", how[q->outcome]);
		json_put_int(out, o, "tokens", q->tokens);
		json_put_int(out, o, "moved_tokens", q->moved_tokens);
		json_put_int(out, o, "bytes", q->bytes);
		json_put_int(out, o, "arrived_bytes", q->arrived);
		json_put_int(out, o, "arrival_ns", q->arrival);
		json_put_int(out, o, "first_ready_ns", q->first);
		json_put_int(out, o, "ready_ns", q->ready);
		json_put_int(out, o, "start_ns", q->start);
		json_put_int(out, o, "end_ns", q->end);
		json_put_int(out, o, "retries", q->retries);
		json_put_int(out, o, "retried_bytes", q->retried_bytes);
		ids = json_put_array(out, o, "invalid_block_ids");
		for (int64_t b = 0; b < blocks && q->outcome != KVT_REPLAY_DONE; b++)
			json_append_int(out, ids, r->scattered ? 2 * b : b);
	}
}

static void put_all(struct json_out *out, const struct replay_report *r,
		    const struct kvt_replay_sums *t)
{
	const struct kvt_replay *s = r->replay;
	json_t *o = out->root;

	json_put_int(out, o, "num_requests", s->n);
	json_put_int(out, o, "done", t->done);
	json_put_int(out, o, "failed", t->failed);
	json_put_int(out, o, "expired", t->expired);
	json_put_int(out, o, "tokens", s->tokens);
	json_put_int(out, o, "cached_tokens", s->hit_tokens);
	json_put_int(out, o, "span_ns", s->end - s->begin);
	json_put_int(out, o, "bytes", t->bytes);
	json_put_int(out, o, "bytes_transferred", s->arrived_bytes);
	json_put_int(out, o, "retried_bytes", s->retried_bytes);
	json_put_int(out, o, "abandoned_bytes", s->abandoned_bytes);
	json_put_int(out, o, "retries", t->retries);
	put_spread(out, o, "kv_ttft_ns", &t->kv);
	put_spread(out, o, "queue_wait_ns", &t->wait);
	json_put_real(out, o, "rate_gbps", per((double)t->bytes / 1e9, t->seconds));
	json_put_real(out, o, "goodput_gbps", per((double)t->good / 1e9, t->seconds));
	json_put_int(out, o, "slo_ns", r->slo_ns);
	json_put_real(out, o, "slo_attainment",
		      r->slo_ns ? kvt_replay_attainment(s, r->slo_ns) : 1);
	json_put_real(out, o, "nic_utilisation", t->use_mean);
	json_put_real(out, o, "nic_utilisation_max", t->use_most);
	json_put_real(out, o, "jain_fairness", t->jain);
	json_put_int(out, o, "peak_concurrency", s->peak);
	json_put_real(out, o, "pinned_byte_seconds", t->pinned);
}

enum kvt_status replay_json(const struct replay_report *r, struct kvt_error *err)
{
	struct json_out out;
	struct kvt_replay_sums t;
	enum kvt_status status = sum_up(&t, r, err);

	if (status)
		return status;
	json_start(&out);
	json_put_text(&out, out.root, "trace", r->trace);
	posting_put(&out, out.root, r->how->posts, r->assumed);
	json_put_int(&out, out.root, "concurrent", r->how->concurrent);
	json_put_int(&out, out.root, "prefill_rate", r->how->prefill);
	json_put_int(&out, out.root, "pieces", r->how->pieces);
	json_put_int(&out, out.root, "seed", (int64_t)r->how->seed);
	put_all(&out, r, &t);
	put_vllm(&out, &t, r->replay);
	if (r->requests)
		put_requests(&out, r);
	return json_print(&out, false, err);
}
