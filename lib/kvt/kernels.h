/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - running plans
 *
 * A kernel copies what a plan says and interprets nothing.  The reference
 * kernel is the definition of a strided copy; every other one must leave the
 * same bytes behind, and no byte outside the plan's runs may change.
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

#ifdef __cplusplus
}
#endif

#endif
