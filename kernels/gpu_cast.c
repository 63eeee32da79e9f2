/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_cast.c - casts on a device: from a plan of elements to launches
 *
 * Threads take 4 or 8 elements each where every run begins at a multiple of that, so
 * that the wider side is accessed by 16 bytes; the rest of a run, and runs that begin
 * anywhere, go element by element, and byte by byte where not even those are aligned.
 */
#include "kernels/gpu_host.h"

#include <string.h>

#include "lib/kvt/cast.h"

static int kernel_of(const struct kvt_device_cast *cast)
{
	const int64_t from = cast->from->elem, to = cast->to->elem;

	/* a half of 1, 2 and 4 bytes is 0, 1 and 2 */
	return GPU_cast_1_1 + 3 * (int)(from / 2) + (int)(to / 2);
}

/* Are all runs of a side, whose elements have 'elem' bytes, multiples of 'n' of them? */
static bool is_aligned(const void *base, int64_t offset, const int64_t stride[],
		       const struct kvt_plan *plan, int64_t elem, int64_t n)
{
	int64_t bits = offset;

	for (int i = 0; i < plan->nloops; i++)
		bits |= stride[i];
	return !(bits % n) && !((uintptr_t)base % (uintptr_t)(elem * n));
}

static bool both_aligned(const struct kvt_device_cast *cast, const void *dst,
			 const void *src, int64_t n)
{
	const struct kvt_plan *p = &cast->plan;

	return is_aligned(dst, p->dst_offset, p->dst_stride, p, cast->to->elem, n) &&
	       is_aligned(src, p->src_offset, p->src_stride, p, cast->from->elem, n);
}

static int64_t works_of(const struct kvt_device_cast *cast, const void *dst,
			const void *src, int64_t *each)
{
	const int64_t run = cast->plan.run;

	*each = GPU_CAST_EACH(cast->from->elem, cast->to->elem);
	if (!both_aligned(cast, dst, src, *each))
		*each = 1;
	return run / *each + (run % *each != 0);
}

static enum kvt_status launch(struct kvt_device *device, char *dst, const char *src,
			      const struct kvt_device_cast *cast, void *stream,
			      struct kvt_error *err)
{
	const struct kvt_plan *p = &cast->plan;
	const struct kvt_device_factors *factors = cast->factors;
	int64_t each, works = works_of(cast, dst, src, &each);
	struct gpu_cast c = {
		.run = p->run, .each = (uint32_t)each,
		.total = (uint32_t)(works * kvt_plan_nruns(p)),
		.from = (uint32_t)kvt_cast_element(cast->from),
		.to = (uint32_t)kvt_cast_element(cast->to),
		.bytes = !both_aligned(cast, dst, src, 1),
	};
	void *args[] = { &dst, &src, &c, &factors };

	kvt_gpu_dims_init(&c.dims, p, -1, -1);
	kvt_gpu_div_init(&c.per_run, (uint32_t)works);
	for (int i = 0; factors && i < p->nloops; i++)
		c.factor[GPU_DIMS - p->nloops + i] = cast->step[i];
	dst += p->dst_offset * cast->to->elem;
	src += p->src_offset * cast->from->elem;
	return kvt_gpu_launch(device, kernel_of(cast),
			      ((int64_t)c.total + GPU_THREADS - 1) / GPU_THREADS, args,
			      stream, err);
}

/* The i-th entry of the slowest loop. */
static struct kvt_device_cast entry(const struct kvt_device_cast *cast, int64_t i)
{
	const size_t rest = (KVT_MAX_LOOPS - 1) * sizeof(int64_t);
	struct kvt_device_cast out = *cast;

	out.plan.nloops--;
	out.plan.src_offset += i * cast->plan.src_stride[0];
	out.plan.dst_offset += i * cast->plan.dst_stride[0];
	if (out.factors)
		out.factors += i * cast->step[0];
	memmove(out.plan.n, cast->plan.n + 1, rest);
	memmove(out.plan.src_stride, cast->plan.src_stride + 1, rest);
	memmove(out.plan.dst_stride, cast->plan.dst_stride + 1, rest);
	memmove(out.step, cast->step + 1, rest);
	return out;
}

/* A run alone that is more than a launch counts. */
static enum kvt_status launch_parts(struct kvt_device *device, void *dst,
				    const void *src, const struct kvt_device_cast *cast,
				    int64_t most, void *stream, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int64_t at = 0; !status && at < cast->plan.run; at += most) {
		struct kvt_device_cast part = *cast;

		part.plan.src_offset += at;
		part.plan.dst_offset += at;
		part.plan.run = cast->plan.run - at < most ? cast->plan.run - at : most;
		status = launch(device, dst, src, &part, stream, err);
	}
	return status;
}

static enum kvt_status run_loops(struct kvt_device *device, void *dst, const void *src,
				 const struct kvt_device_cast *cast, void *stream,
				 struct kvt_error *err)
{
	int64_t each, works = works_of(cast, dst, src, &each);
	enum kvt_status status = KVT_OK;

	if (!cast->plan.nloops)
		return launch_parts(device, dst, src, cast, device->launch_max * each,
				    stream, err);
	if (cast->plan.nloops <= GPU_DIMS &&
	    works <= device->launch_max / kvt_plan_nruns(&cast->plan))
		return launch(device, dst, src, cast, stream, err);
	for (int64_t i = 0; !status && i < cast->plan.n[0]; i++) {
		const struct kvt_device_cast inner = entry(cast, i);

		status = run_loops(device, dst, src, &inner, stream, err);
	}
	return status;
}

enum kvt_status kvt_device_cast(struct kvt_device *device, void *dst, const void *src,
				const struct kvt_device_cast *cast, void *stream,
				struct kvt_error *err)
{
	const struct kvt_dtype *types[2] = { cast->from, cast->to };

	for (int i = 0; i < 2; i++)
		if (kvt_cast_element(types[i]) < 0)
			return kvt_fail(err, KVT_UNSUPPORTED, "%s: %s is not cast there",
					device->vendor->name, types[i]->name);
	if (!kvt_plan_nbytes(&cast->plan))
		return KVT_OK;
	return run_loops(device, dst, src, cast, stream, err);
}
