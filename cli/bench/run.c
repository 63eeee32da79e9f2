/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - one copy, timed on the CPU or on a GPU, and checked
 *
 * Each contender copies the same noise, after poison, and must give what the reference
 * gives; times are sorted, and the median is told.
 */
#include "cli/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/gpu_host.h"
#include "lib/kvt/kernels.h"
#include "print/out/signals.h"
#include "lib/base/order.h"

/* The buffers of a case; those of the device are where a GPU is. */
struct stage {
	const struct bench *b;
	struct bench_plan plan;
	struct kvt_device *gpu;		/* NULL: the CPU */
	uint8_t *src, *dst, *want;	/* of the host */
	void *gpu_src, *gpu_dst;
	void *begin, *end;
};

/* ---- contenders --------------------------------------------------------- */

static enum kvt_status on_cpu(const struct stage *s, enum contender who)
{
	const struct kvt_plans *plans = &s->plan.plans;

	switch (who) {
	case BENCH_COPY:
		memcpy(s->dst, s->src, (size_t)s->plan.dst_bytes);
		break;
	case BENCH_BEST:
		kvt_cpu_copy_all(s->dst, s->src, plans);
		break;
	default:
		for (int i = 0; i < plans->count; i++)
			kvt_cpu_kernel(0)->copy(s->dst, s->src, &plans->plan[i]);
	}
	return KVT_OK;
}

static enum kvt_status on_gpu(const struct stage *s, enum contender who,
			      struct kvt_error *err)
{
	const struct kvt_plans *plans = &s->plan.plans;
	enum kvt_status status = KVT_OK;

	if (who == BENCH_COPY)
		return kvt_device_copy_within(s->gpu, s->gpu_dst, s->gpu_src,
					      s->plan.dst_bytes, NULL, err);
	for (int i = 0; !status && i < plans->count; i++)
		status = kvt_gpu_copy(s->gpu, who == BENCH_BEST ? GPU_BEST : GPU_NAIVE,
				      s->gpu_dst, s->gpu_src, &plans->plan[i], NULL,
				      err);
	return status;
}

double bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static enum kvt_status time_gpu(double *seconds, const struct stage *s,
				enum contender who, struct kvt_error *err)
{
	enum kvt_status status;
	double ms;

	if ((status = kvt_device_event_record(s->gpu, s->begin, NULL, err)) ||
	    (status = on_gpu(s, who, err)) ||
	    (status = kvt_device_event_record(s->gpu, s->end, NULL, err)) ||
	    (status = kvt_device_event_elapsed(&ms, s->gpu, s->begin, s->end, err)))
		return status;
	*seconds = ms / 1e3;
	return KVT_OK;
}

static enum kvt_status time_one(double *seconds, const struct stage *s,
				enum contender who, struct kvt_error *err)
{
	double start = bench_now();

	if (s->gpu)
		return time_gpu(seconds, s, who, err);
	on_cpu(s, who);
	*seconds = bench_now() - start;
	return KVT_OK;
}

/* ---- is it right? ------------------------------------------------------- */

/* Poison, copy, compare with the reference. */
static enum kvt_status check(const struct stage *s, const struct bench_case *c,
			     enum contender who, struct kvt_error *err)
{
	const int64_t n = s->plan.dst_bytes;
	enum kvt_status status = KVT_OK;

	memset(s->dst, 0xa5, (size_t)n);
	if (!s->gpu)
		on_cpu(s, who);
	else if ((status = kvt_device_fill(s->gpu, s->gpu_dst, 0xa5, n, NULL, err)) ||
		 (status = on_gpu(s, who, err)) ||
		 (status = kvt_device_copy_out(s->gpu, s->dst, s->gpu_dst, n, NULL,
					       err)) ||
		 (status = kvt_device_wait(s->gpu, NULL, err)))
		return status;
	if (!memcmp(s->dst, s->want, (size_t)n))
		return KVT_OK;
	return kvt_fail(err, KVT_SYSTEM, "%s: the %s kernel copied wrong bytes", c->name,
			who == BENCH_BEST ? "chosen" : "plainest");
}

/* ---- one case ----------------------------------------------------------- */

static enum kvt_status time_all(struct bench_result *out, const struct stage *s,
				struct kvt_error *err)
{
	const int n = s->b->rounds;
	double *took = malloc((size_t)n * BENCH_NCONTENDERS * sizeof(*took));
	enum kvt_status status = KVT_OK;

	if (!took)
		return kvt_no_memory(err, NULL);
	for (int r = 0; !status && r < n; r++)
		for (int i = 0; !status && i < BENCH_NCONTENDERS; i++) {
			if (interrupted)
				status = kvt_fail(err, KVT_SYSTEM, "interrupted");
			else
				status = time_one(&took[i * n + r], s, i, err);
		}
	for (int i = 0; !status && i < BENCH_NCONTENDERS; i++) {
		qsort(took + i * n, (size_t)n, sizeof(*took), kvt_by_double);
		out->seconds[i] = took[i * n + n / 2];
	}
	free(took);
	return status;
}

static void name_kernels(struct bench_result *out, const struct stage *s)
{
	const struct kvt_plans *plans = &s->plan.plans;
	const char *last = NULL;
	size_t used = 0;

	for (int i = 0; i < plans->count; i++) {
		const struct kvt_plan *p = &plans->plan[i];
		const char *name = s->gpu ?
			kvt_gpu_kernel_name(kvt_gpu_choice(p, s->gpu_dst, s->gpu_src)) :
			kvt_cpu_choose(p)->name;

		if (last && !strcmp(last, name))
			continue;
		snprintf(out->kernel + used, sizeof(out->kernel) - used, "%s%s",
			 last ? "+" : "", name);
		used = strlen(out->kernel);
		last = name;
	}
}

/* Noise: zeros would be faster than data is. */
static void fill(uint8_t *bytes, int64_t n)
{
	uint64_t x = 0x9e3779b97f4a7c15u;

	for (int64_t i = 0; i < n; i++) {
		if (i % 8 == 0) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
		}
		bytes[i] = (uint8_t)(x >> i % 8 * 8);
	}
}

static enum kvt_status open_gpu(struct stage *s, struct kvt_error *err)
{
	enum kvt_status status;

	if ((status = kvt_device_alloc(&s->gpu_src, s->gpu, s->plan.src_bytes, err)) ||
	    (status = kvt_device_alloc(&s->gpu_dst, s->gpu, s->plan.dst_bytes, err)))
		return status == KVT_SYSTEM ? KVT_UNSUPPORTED : status;
	if ((status = kvt_device_event_new(&s->begin, s->gpu, err)) ||
	    (status = kvt_device_event_new(&s->end, s->gpu, err)) ||
	    (status = kvt_device_copy_in(s->gpu, s->gpu_src, s->src, s->plan.src_bytes,
					 NULL, err)))
		return status;
	return kvt_device_wait(s->gpu, NULL, err);
}

static enum kvt_status open_stage(struct stage *s, struct kvt_error *err)
{
	const struct kvt_plans *plans = &s->plan.plans;

	s->src = malloc((size_t)s->plan.src_bytes);
	s->dst = malloc((size_t)s->plan.dst_bytes);
	s->want = malloc((size_t)s->plan.dst_bytes);
	if (!s->src || !s->dst || !s->want)
		return kvt_no_memory(err, NULL);
	fill(s->src, s->plan.src_bytes);
	for (int i = 0; i < plans->count; i++)
		kvt_cpu_kernel(0)->copy(s->want, s->src, &plans->plan[i]);
	s->gpu = s->b->device ? device_pool_gpu(s->b->device) : NULL;
	return s->gpu ? open_gpu(s, err) : KVT_OK;
}

static void close_stage(struct stage *s)
{
	if (s->gpu) {
		kvt_device_free(s->gpu, s->gpu_src);
		kvt_device_free(s->gpu, s->gpu_dst);
		kvt_device_event_free(s->gpu, s->begin);
		kvt_device_event_free(s->gpu, s->end);
	}
	free(s->src);
	free(s->dst);
	free(s->want);
}

enum kvt_status bench_run(struct bench_result *out, const struct bench *bench,
			  const struct bench_case *c, struct kvt_error *err)
{
	struct stage s = { .b = bench };
	enum kvt_status status = bench_plan_init(&s.plan, c, bench->nbytes, err);

	if (status)
		return status;
	*out = (struct bench_result){ .what = c, .run = s.plan.plans.plan[0].run,
				      .nbytes = s.plan.dst_bytes };
	for (int i = 1; i < s.plan.plans.count; i++)
		if (s.plan.plans.plan[i].run < out->run)
			out->run = s.plan.plans.plan[i].run;
	if (!(status = open_stage(&s, err)) &&
	    !(status = check(&s, c, BENCH_NAIVE, err)) &&
	    !(status = check(&s, c, BENCH_BEST, err))) {
		name_kernels(out, &s);
		status = time_all(out, &s, err);
	}
	close_stage(&s);
	return status;
}
