/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - running plans, and casts
 *
 * A kernel copies what a plan says and interprets nothing.  The reference
 * kernel is the definition of a strided copy; every other one must leave the
 * same bytes behind, and no byte outside the plan's runs may change.  A cast
 * makes elements of another type in their order; plain C is its definition.
 */
#ifndef KVT_KERNELS_H
#define KVT_KERNELS_H

#include "lib/kvt/kvt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dst and src must not overlap. */
typedef void kvt_copy_fn(void *dst, const void *src, const struct kvt_plan *plan);

struct kvt_kernel {
	const char *name;		/* "ref", "avx2", ... */
	bool (*runs_here)(void);	/* does this CPU have what it needs? */
	/* Can it do this plan (run length, strides)?  NULL: every plan. */
	bool (*takes)(const struct kvt_plan *plan);
	kvt_copy_fn *copy;
};

/* The i-th CPU kernel, the reference first; NULL past the last one. */
const struct kvt_kernel *kvt_cpu_kernel(int i);

/*
 * The best kernel of this CPU for this plan: by run length, strides and
 * size (beyond the caches the destination is written around them).
 */
const struct kvt_kernel *kvt_cpu_choose(const struct kvt_plan *plan);

/* Runs the plan with the chosen kernel on the calling thread. */
void kvt_cpu_copy(void *dst, const void *src, const struct kvt_plan *plan);

/* The same for one or two plans. */
void kvt_cpu_copy_all(void *dst, const void *src, const struct kvt_plans *plans);

/* ---- casts -------------------------------------------------------------- */

struct kvt_cast_kernel {
	const char *name;		/* "plain", "avx2", ... */
	bool (*runs_here)(void);
};

/* The i-th one, plain C first; NULL past the last one. */
const struct kvt_cast_kernel *kvt_cpu_cast_kernel(int i);

/*
 * n elements as elements of another float of at most 4 bytes, each times 'times' and
 * then divided by 'by', in float32: lib/kvt/cast.h says how they are rounded.  dst and
 * src must not overlap.  On the calling thread, by the best kernel of this CPU.
 */
void kvt_cpu_cast(void *dst, const struct kvt_dtype *to, const void *src,
		  const struct kvt_dtype *from, int64_t n, float times, float by);
/* The largest magnitude of them: infinity is larger than all, NaN than that. */
float kvt_cpu_largest(const void *src, const struct kvt_dtype *from, int64_t n);
/* By a kernel that runs here. */
void kvt_cpu_cast_with(const struct kvt_cast_kernel *kernel, void *dst,
		       const struct kvt_dtype *to, const void *src,
		       const struct kvt_dtype *from, int64_t n, float times, float by);

#ifdef __cplusplus
}
#endif

#endif
