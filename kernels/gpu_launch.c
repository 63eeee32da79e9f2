/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_launch.c - from a plan to launches of kernels
 *
 *	tile	two loops that swap what is fastest go through shared memory
 *	lanes	threads share a run, of runs that are long
 *	spread	a thread has units of many short runs
 *
 * The width of a unit, 16 bytes down to 1, follows from all strides and both addresses,
 * and from that and the plan which it is: best().  Figures: bench/GPU.md.
 */
#include "kernels/gpu_host.h"

#include <string.h>

enum {
	LANES_FROM  = 128,	/* units of a run from which threads share it */
	LANES_MOST  = 7,	/* log2 */
	LANES_LEAST = 3,
};

static const char *const kernel_names[] = {
#define NAME(name, type, dims) "kvt_" #name,
	GPU_KERNELS(NAME)
#undef NAME
};

const char *kvt_gpu_kernel_name(int kernel)
{
	return kernel_names[kernel];
}

/* All that a copy is about; the plan and what has become of it stay apart. */
struct job {
	struct kvt_device *device;
	enum gpu_method method;
	char *dst;
	const char *src;
	void *stream;
	int loop;			/* through tables; -1: none is */
	const int32_t *src_table, *dst_table;	/* either may be NULL */
};

enum kvt_status kvt_gpu_launch(struct kvt_device *d, int kernel, int64_t nblocks,
			       void *args[], void *stream, struct kvt_error *err)
{
	int code = d->driver.context_set(d->context);

	if (nblocks > d->blocks_max)
		nblocks = d->blocks_max;
	if (!code)
		code = d->driver.launch(d->kernel[kernel], (unsigned)nblocks, 1, 1,
					GPU_THREADS, 1, 1, 0, stream, args, NULL);
	return code ? kvt_gpu_failed(d, code, err) : KVT_OK;
}

static enum kvt_status launch(const struct job *job, int kernel, int64_t nblocks,
			      void *arguments, struct kvt_error *err)
{
	char *dst = job->dst;
	const char *src = job->src;
	const int32_t *tables[2] = { job->src_table, job->dst_table };
	void *args[] = { &dst, &src, arguments, &tables[0], &tables[1] };

	return kvt_gpu_launch(job->device, kernel, nblocks, args, job->stream, err);
}

/* ---- which kernel ------------------------------------------------------- */

/* Of a family that starts with three for 16 bytes, by loops. */
static int of_family(int first, int width, int nloops)
{
	if (width == 16)
		return first + (nloops > 2) + (nloops > 4);
	return first + (width == 8 ? 3 : width == 4 ? 4 : width == 2 ? 5 : 6);
}

static int of_width(int first, int width)
{
	return first + (width == 16 ? 0 : width == 8 ? 1 : width == 4 ? 2 :
			width == 2 ? 3 : 4);
}

static enum gpu_method best(const struct kvt_plan *plan, const void *dst,
			    const void *src)
{
	struct gpu_tile tile;

	if (kvt_gpu_tile_init(&tile, plan, dst, src) && kvt_gpu_tile_pays(&tile))
		return GPU_TILE;
	return plan->run / kvt_gpu_width(plan, dst, src) >= LANES_FROM ?
		GPU_LANES : GPU_SPREAD;
}

int kvt_gpu_choice(const struct kvt_plan *plan, const void *dst, const void *src)
{
	const int width = kvt_gpu_width(plan, dst, src);

	if (!kvt_plan_nbytes(plan))
		return -1;
	switch (best(plan, dst, src)) {
	case GPU_TILE:
		return of_width(GPU_tile_16, width);
	case GPU_LANES:
		return of_family(GPU_lanes_16_2, width, plan->nloops);
	default:
		return of_family(GPU_spread_16_2, width, plan->nloops);
	}
}

/* ---- one launch --------------------------------------------------------- */

static int64_t ceiling(int64_t a, int64_t b)
{
	return a / b + (a % b != 0);
}

static enum kvt_status run_spread(const struct job *job, const struct kvt_plan *plan,
				  struct kvt_error *err)
{
	const int width = kvt_gpu_width(plan, job->dst, job->src);
	struct gpu_copy c = { .units = (uint32_t)(plan->run / width) };

	kvt_gpu_dims_init(&c.dims, plan, -1, -1);
	kvt_gpu_div_init(&c.per_run, c.units);
	c.total = (uint32_t)(kvt_plan_nbytes(plan) / width);
	return launch(job, of_family(GPU_spread_16_2, width, plan->nloops),
		      ceiling(c.total, GPU_THREADS * GPU_BATCH), &c, err);
}

/* Threads that share a run, so that each takes a batch of it. */
static uint32_t lanes_log2(int64_t units)
{
	uint32_t log2 = LANES_LEAST;

	while (log2 < LANES_MOST && ((int64_t)GPU_BATCH << log2) < units)
		log2++;
	return log2;
}

/* Batches of all lanes that a run needs. */
static int64_t chunks(int64_t units)
{
	return ceiling(units, (int64_t)GPU_BATCH << lanes_log2(units));
}

static enum kvt_status run_lanes(const struct job *job, const struct kvt_plan *plan,
				 struct kvt_error *err)
{
	const int width = kvt_gpu_width(plan, job->dst, job->src);
	const int64_t units = plan->run / width;
	struct gpu_copy c = { .units = (uint32_t)units,
			      .lanes_log2 = lanes_log2(units) };
	int kernel = of_family(GPU_lanes_16_2, width, plan->nloops);

	kvt_gpu_dims_init(&c.dims, plan, job->loop, -1);
	if (job->loop >= 0) {
		/* the kernel looks for it where the slowest loop is */
		kernel = of_width(GPU_blocks_16_6, width);
		kvt_gpu_div_init(&c.dims.div[0], (uint32_t)plan->n[job->loop]);
		c.dims.src[0] = plan->src_stride[job->loop];
		c.dims.dst[0] = plan->dst_stride[job->loop];
	}
	kvt_gpu_div_init(&c.per_run, (uint32_t)chunks(units));
	c.total = (uint32_t)(kvt_plan_nruns(plan) * chunks(units)) << c.lanes_log2;
	return launch(job, kernel, ceiling(c.total, GPU_THREADS), &c, err);
}

static enum kvt_status run_tile(const struct job *job, const struct kvt_plan *plan,
				struct kvt_error *err)
{
	const int width = kvt_gpu_width(plan, job->dst, job->src);
	struct gpu_tile t;

	if (!kvt_gpu_tile_init(&t, plan, job->dst, job->src))
		return kvt_fail(err, KVT_UNSUPPORTED, "no tile fits this plan");
	return launch(job, of_width(GPU_tile_16, width),
		      ceiling(t.tiles, t.per_block), &t, err);
}

/* The loops are checked by what is checked with it: no width but 2 and 1. */
static enum kvt_status run_naive(const struct job *job, const struct kvt_plan *plan,
				 struct kvt_error *err)
{
	const int width = kvt_gpu_width(plan, job->dst, job->src) > 1 ? 2 : 1;
	struct gpu_naive c = { .total = kvt_plan_nbytes(plan) / width,
			       .per_run = plan->run / width,
			       .ndims = plan->nloops };

	memcpy(c.n, plan->n, sizeof(c.n));
	memcpy(c.src, plan->src_stride, sizeof(c.src));
	memcpy(c.dst, plan->dst_stride, sizeof(c.dst));
	return launch(job, width == 2 ? GPU_naive_2 : GPU_naive_1,
		      ceiling(c.total, GPU_THREADS), &c, err);
}

/* ---- as many launches as it takes --------------------------------------- */

/* What a launch counts in 32 bits, at most. */
static int64_t work_of(const struct job *job, const struct kvt_plan *plan,
		       enum gpu_method method)
{
	const int width = kvt_gpu_width(plan, job->dst, job->src);
	const int64_t units = plan->run / width;

	if (method != GPU_LANES)	/* a tile has fewer than it has units */
		return kvt_plan_nruns(plan) * units;
	return (kvt_plan_nruns(plan) * chunks(units)) << lanes_log2(units);
}

static enum kvt_status run_plan(const struct job *job, struct kvt_plan plan,
				struct kvt_error *err)
{
	static enum kvt_status (*const run[])(const struct job *job,
			const struct kvt_plan *plan, struct kvt_error *err) = {
		[GPU_SPREAD] = run_spread, [GPU_LANES] = run_lanes,
		[GPU_TILE] = run_tile, [GPU_NAIVE] = run_naive,
	};
	enum gpu_method method = job->method;
	struct job here = *job;

	if (method == GPU_BEST)
		method = best(&plan, job->dst, job->src);
	if (method != GPU_NAIVE &&
	    work_of(job, &plan, method) > job->device->launch_max) {
		for (int half = 0; half < 2; half++) {
			enum kvt_status status = run_plan(job,
				kvt_plan_part(&plan, half, 2), err);

			if (status)
				return status;
		}
		return KVT_OK;
	}
	if (!kvt_plan_nbytes(&plan))
		return KVT_OK;
	here.dst += plan.dst_offset;
	here.src += plan.src_offset;
	plan.dst_offset = plan.src_offset = 0;
	return run[method](&here, &plan, err);
}

/* The i-th entry of the slowest loop. */
static struct kvt_plan entry(const struct kvt_plan *plan, int64_t i)
{
	struct kvt_plan out = *plan;

	out.nloops--;
	memmove(out.n, plan->n + 1, sizeof(out.n) - sizeof(out.n[0]));
	memmove(out.src_stride, plan->src_stride + 1,
		sizeof(out.n) - sizeof(out.n[0]));
	memmove(out.dst_stride, plan->dst_stride + 1,
		sizeof(out.n) - sizeof(out.n[0]));
	out.src_offset += i * plan->src_stride[0];
	out.dst_offset += i * plan->dst_stride[0];
	return out;
}

/* A kernel has GPU_DIMS loops; those outside are run here. */
static enum kvt_status run_loops(const struct job *job, const struct kvt_plan *plan,
				 struct kvt_error *err)
{
	if (plan->nloops <= GPU_DIMS || job->method == GPU_NAIVE)
		return run_plan(job, *plan, err);
	for (int64_t i = 0; i < plan->n[0]; i++) {
		const struct kvt_plan inner = entry(plan, i);
		enum kvt_status status = run_loops(job, &inner, err);

		if (status)
			return status;
	}
	return KVT_OK;
}

enum kvt_status kvt_gpu_copy(struct kvt_device *device, enum gpu_method method,
			     void *dst, const void *src,
			     const struct kvt_plan *plan, void *stream,
			     struct kvt_error *err)
{
	const struct job job = { .device = device, .method = method, .dst = dst,
				 .src = src, .stream = stream, .loop = -1 };

	return run_loops(&job, plan, err);
}

enum kvt_status kvt_device_copy(struct kvt_device *device, void *dst,
				const void *src, const struct kvt_plan *plan,
				void *stream, struct kvt_error *err)
{
	return kvt_gpu_copy(device, GPU_BEST, dst, src, plan, stream, err);
}

static enum kvt_status check_blocks(const struct job *job, const struct kvt_plan *plan,
				    struct kvt_error *err)
{
	const char *name = job->device->vendor->name;

	if (job->loop < 0 || job->loop >= plan->nloops)
		return kvt_fail(err, KVT_USAGE, "%s: loop %d of a plan that has %d",
				name, job->loop, plan->nloops);
	if (plan->nloops > GPU_DIMS)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: blocks of a plan of %d loops, at most %d are supported", name,
				plan->nloops, (int)GPU_DIMS);
	if (work_of(job, plan, GPU_LANES) / plan->n[job->loop] >
	    job->device->launch_max)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: a block of %lld bytes is more than one launch copies", name,
				(long long)(kvt_plan_nbytes(plan) /
					    plan->n[job->loop]));
	return KVT_OK;
}

/* Cut along the loop of the tables; a side without one moves on by itself. */
static enum kvt_status run_blocks(const struct job *job, const struct kvt_plan *plan,
				  struct kvt_error *err)
{
	const int64_t n = plan->n[job->loop];
	const int64_t most = job->device->launch_max /
			     (work_of(job, plan, GPU_LANES) / n);
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; i < n && !status; i += most) {
		struct kvt_plan part = *plan;
		struct job here = *job;

		part.n[job->loop] = n - i < most ? n - i : most;
		part.src_offset = part.dst_offset = 0;
		here.src += plan->src_offset;
		here.dst += plan->dst_offset;
		if (job->src_table)
			here.src_table += i;
		else
			here.src += i * plan->src_stride[job->loop];
		if (job->dst_table)
			here.dst_table += i;
		else
			here.dst += i * plan->dst_stride[job->loop];
		status = run_lanes(&here, &part, err);
	}
	return status;
}

enum kvt_status kvt_device_copy_blocks(struct kvt_device *device, void *dst,
				       const void *src, const struct kvt_plan *plan,
				       int loop, const int32_t *src_table,
				       const int32_t *dst_table, void *stream,
				       struct kvt_error *err)
{
	const struct job job = { .device = device, .method = GPU_LANES, .dst = dst,
				 .src = src, .stream = stream, .loop = loop,
				 .src_table = src_table, .dst_table = dst_table };
	enum kvt_status status;

	if (!kvt_plan_nbytes(plan))
		return KVT_OK;
	status = check_blocks(&job, plan, err);
	return status ? status : run_blocks(&job, plan, err);
}

enum kvt_status kvt_device_copy_runs(struct kvt_device *device, void *dst,
				     const void *src,
				     const struct kvt_device_run *list,
				     int64_t count, int64_t typical, void *stream,
				     struct kvt_error *err)
{
	const uint32_t log2 = typical >= 2048 ? 5 : typical >= 512 ? 4 : 3;
	const int64_t most = device->launch_max >> log2;
	struct job job = { .device = device, .dst = dst, .src = src,
			   .stream = stream };
	enum kvt_status status = KVT_OK;

	_Static_assert(sizeof(*list) == sizeof(struct gpu_run), "one struct");
	for (int64_t i = 0; i < count && !status; i += most) {
		const int64_t here = count - i < most ? count - i : most;
		struct gpu_list c = { (uint32_t)(here << log2), log2 };

		/* the list stands where the others have their first table */
		job.src_table = (const int32_t *)(const void *)(list + i);
		status = launch(&job, GPU_list, ceiling(c.total, GPU_THREADS), &c,
				err);
	}
	return status;
}
