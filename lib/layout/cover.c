/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cover.c - proves that plans write a buffer exactly once
 *
 * The loops of a plan, sorted by stride, grow one run from its first byte on: a loop
 * whose stride is the length so far makes it longer; a shorter one would write a byte
 * twice.  A longer one leaves a gap that no later loop can fill, for those step over it,
 * too: only another plan can, which begins where the run ends and repeats alike.  The
 * proof is done if all of them are one run, from byte 0 to the last.  It looks at loops,
 * never at bytes: its cost does not depend on the size.
 */
#include "lib/kvt/plan.h"

/*
 * The bytes that a plan writes, in the one form that equal sets share: 'run'
 * bytes at 'offset', repeated by loops that could not be fused, fastest first.
 * Loops of the source do not show; they are fused away where the destination
 * does not need them.
 */
struct span {
	int64_t offset, run;
	int nloops;
	int64_t n[KVT_MAX_LOOPS], stride[KVT_MAX_LOOPS];
};

static enum kvt_status written_twice(struct kvt_error *err, int64_t offset)
{
	return kvt_fail(err, KVT_MISMATCH, "byte %lld is written twice", LL(offset));
}

static enum kvt_status never_written(struct kvt_error *err, int64_t offset)
{
	return kvt_fail(err, KVT_MISMATCH, "byte %lld is never written", LL(offset));
}

/*
 * Refuses what lies outside any buffer, so that sums of offsets and strides
 * cannot overflow from here on.
 */
static enum kvt_status check_bounds(const struct kvt_plan *plan, struct kvt_error *err)
{
	int64_t last = plan->dst_offset;
	bool beyond = __builtin_add_overflow(last, plan->run, &last);

	if (plan->dst_offset < 0 || plan->run < 0)
		return kvt_fail(err, KVT_MISMATCH,
				"%lld bytes at byte %lld are written, before the first",
				LL(plan->run), LL(plan->dst_offset));
	for (int i = 0; i < plan->nloops; i++) {
		int64_t n = plan->n[i], stride = plan->dst_stride[i], reach;

		if (n < 1 || stride < 0)
			return kvt_fail(err, KVT_MISMATCH,
					"loop %d has %lld entries of stride %lld",
					i, LL(n), LL(stride));
		beyond |= __builtin_mul_overflow(n - 1, stride, &reach) ||
			  __builtin_add_overflow(last, reach, &last);
	}
	if (beyond)
		return kvt_fail(err, KVT_MISMATCH, "bytes beyond 2^63 are written");
	return KVT_OK;
}

/* Loops of more than one entry, smallest stride first. */
static void sort_loops(struct span *out, const struct kvt_plan *plan)
{
	*out = (struct span){ .offset = plan->dst_offset, .run = plan->run };
	for (int i = 0; i < plan->nloops; i++) {
		int64_t n = plan->n[i], stride = plan->dst_stride[i];
		int j = out->nloops;

		if (n == 1)
			continue;
		for (; j > 0 && out->stride[j - 1] > stride; j--) {
			out->n[j] = out->n[j - 1];
			out->stride[j] = out->stride[j - 1];
		}
		out->n[j] = n;
		out->stride[j] = stride;
		out->nloops++;
	}
}

/*
 * Loops that continue where the run ends make it longer; loops that continue
 * where a loop ends make that one longer.
 */
static enum kvt_status fuse_loops(struct span *s, struct kvt_error *err)
{
	int count = s->nloops;

	s->nloops = 0;
	for (int i = 0; i < count; i++) {
		int64_t *n = s->nloops ? &s->n[s->nloops - 1] : &s->run;
		int64_t step = s->nloops ? s->stride[s->nloops - 1] : 1, next;

		if (s->stride[i] < s->run)
			return written_twice(err, s->offset + s->stride[i]);
		if (!__builtin_mul_overflow(*n, step, &next) && s->stride[i] == next) {
			*n *= s->n[i];
			continue;
		}
		s->n[s->nloops] = s->n[i];
		s->stride[s->nloops++] = s->stride[i];
	}
	return KVT_OK;
}

static enum kvt_status span_of_plan(struct span *out, const struct kvt_plan *plan,
				    struct kvt_error *err)
{
	enum kvt_status status = check_bounds(plan, err);

	if (status)
		return status;
	sort_loops(out, plan);
	return fuse_loops(out, err);
}

static bool same_loops(const struct span *a, const struct span *b)
{
	if (a->nloops != b->nloops)
		return false;
	for (int i = 0; i < a->nloops; i++)
		if (a->n[i] != b->n[i] || a->stride[i] != b->stride[i])
			return false;
	return true;
}

/*
 * Keys and values fill each other's gaps only if they repeat alike, one right
 * behind the other.  A gap of the first can be filled by nobody else, because
 * its own loops step over it.
 */
static enum kvt_status join(struct span *out, const struct span *one,
			    const struct span *other, struct kvt_error *err)
{
	const struct span *a = one, *b = other;
	struct span both;
	enum kvt_status status;

	if (b->offset < a->offset) {
		a = other;
		b = one;
	}
	if (b->offset < a->offset + a->run)
		return written_twice(err, b->offset);
	if (b->offset > a->offset + a->run)
		return never_written(err, a->offset + a->run);
	if (!same_loops(a, b))
		return kvt_fail(err, KVT_MISMATCH,
				"the runs at bytes %lld and %lld repeat differently",
				LL(a->offset), LL(b->offset));
	both = *a;
	both.run += b->run;
	if (!(status = fuse_loops(&both, err)))
		*out = both;
	return status;
}

static enum kvt_status check_whole(const struct span *s, int64_t nbytes,
				   struct kvt_error *err)
{
	if (s->run > 0 && s->offset > 0)
		return never_written(err, 0);
	if (s->run > 0 && s->nloops > 0)
		return never_written(err, s->run);
	if (s->run < nbytes)
		return never_written(err, s->run);
	if (s->run > nbytes)
		return kvt_fail(err, KVT_MISMATCH,
				"byte %lld, behind the last, is written", LL(nbytes));
	return KVT_OK;
}

enum kvt_status kvt_plans_cover(const struct kvt_plans *plans, int64_t nbytes,
				struct kvt_error *err)
{
	struct span all = { .run = 0 };

	for (int i = 0; i < plans->count; i++) {
		struct span span;
		enum kvt_status status;

		if (plans->plan[i].run == 0)
			continue;
		if ((status = span_of_plan(&span, &plans->plan[i], err)))
			return status;
		if (all.run == 0)
			all = span;
		else if ((status = join(&all, &all, &span, err)))
			return status;
	}
	return check_whole(&all, nbytes, err);
}
