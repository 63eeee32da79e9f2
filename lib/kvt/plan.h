/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - strided copies between two views
 *
 * Made once, run as often as wanted: by kernels.h on this processor, by device.h
 * on another, or run by run by whoever walks it.
 */
#ifndef KVT_PLAN_H
#define KVT_PLAN_H

#include "lib/kvt/view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- plans -------------------------------------------------------------- */

enum { KVT_MAX_LOOPS = 12 };

/*
 * A strided copy in its simplest equivalent form.  Relayout, slice, merge,
 * reblock and transfer all reduce to this; kernels see nothing else.
 *
 * 'run' bytes are contiguous on both sides.  Around them are 'nloops' loops,
 * slowest destination stride first, no two of which could be fused.
 */
struct kvt_plan {
	int     nloops;
	int64_t n[KVT_MAX_LOOPS];		/* each at least 2 */
	int64_t src_stride[KVT_MAX_LOOPS];
	int64_t dst_stride[KVT_MAX_LOOPS];
	int64_t run;				/* 0: nothing to copy */
	int64_t src_offset;
	int64_t dst_offset;
};

/*
 * Both views must have one shape (KVT_BAD_INPUT).  Splits of an axis on the
 * two sides must nest (one divides the other), else KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_plan_init(struct kvt_plan *out, const struct kvt_view *dst,
	      const struct kvt_view *src, struct kvt_error *err);

/* One plan, or one for keys and one for values. */
struct kvt_plans {
	int count;
	struct kvt_plan plan[2];
};

/* Of views that belong together; where one side has two, the other is taken apart. */
KVT_MUST_CHECK enum kvt_status
kvt_plans_init(struct kvt_plans *out, const struct kvt_views *dst,
	       const struct kvt_views *src, struct kvt_error *err);

/* How many runs, and bytes of all of them. */
int64_t kvt_plan_nruns(const struct kvt_plan *plan);
int64_t kvt_plan_nbytes(const struct kvt_plan *plan);

/*
 * Share 'part' of 'nparts' (0 based), cut along the slowest loops; shares
 * write disjoint bytes and together do all the work.  A share may be empty
 * (run 0).
 */
struct kvt_plan kvt_plan_part(const struct kvt_plan *plan, int part, int nparts);

/* Walks the runs of a plan in destination order. */
struct kvt_plan_walk {
	const struct kvt_plan *plan;	/* borrowed */
	int64_t i[KVT_MAX_LOOPS];
	int64_t src, dst;		/* offsets of the current run */
	bool done;
};
void kvt_plan_walk_start(struct kvt_plan_walk *walk, const struct kvt_plan *plan);
void kvt_plan_walk_next(struct kvt_plan_walk *walk);

/*
 * Proof that the plans write every byte of [0, nbytes) of the destination
 * exactly once and nothing else.  KVT_MISMATCH names what is wrong.  Keys and
 * values must lie one behind the other or alternate evenly, as all layouts
 * place them; what else might fit together is refused.
 */
KVT_MUST_CHECK enum kvt_status
kvt_plans_cover(const struct kvt_plans *plans, int64_t nbytes,
		struct kvt_error *err);

#ifdef __cplusplus
}
#endif

#endif
