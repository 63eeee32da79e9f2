/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - two views of one shape become a fused strided copy
 *
 * In: where elements are in the source, and where in the destination.  Out: runs of bytes
 * and at most KVT_MAX_LOOPS loops around them, each with a stride on either side.
 *
 *	1  each axis is cut wherever a factor of either view begins: a loop a part, with
 *	   one stride in each.  Cuts must divide each other, or the copy is refused.
 *	2  loops are sorted by their stride in the destination, so that writes ascend
 *	3  from the fastest on a loop joins the one before, if on both sides it goes on
 *	   where that ends: stride = n * stride of the other.  The innermost is a run.
 *
 * Steps 2 and 3 change the order in which elements are visited, and none of the pairs of
 * addresses: so a plan copies each element once, whatever was fused.  A plan of two
 * planes is two of these.  Cost: a few loops, however large the shape.
 */
#include "lib/kvt/plan.h"
#include "lib/layout/loops.h"

#include <string.h>

/* ---- common parts of two views ------------------------------------------ */

/* Stride, on one side, of the part of 'axis' that begins at 'div'. */
static int64_t stride_at(const struct kvt_view *view, enum kvt_axis axis, int64_t div)
{
	for (int i = 0; i < view->nfactors; i++) {
		const struct kvt_factor *f = &view->factor[i];

		if (f->axis == axis && div >= f->div && div < f->div * f->n)
			return f->stride * (div / f->div);
	}
	return 0;
}

static int add_cuts(int64_t cut[], int ncuts, const struct kvt_view *view,
		    enum kvt_axis axis)
{
	for (int i = 0; i < view->nfactors; i++) {
		int64_t div = view->factor[i].div;
		int at = 0;

		if (view->factor[i].axis != axis || view->factor[i].n < 2)
			continue;
		while (at < ncuts && cut[at] < div)
			at++;
		if (at < ncuts && cut[at] == div)
			continue;
		memmove(cut + at + 1, cut + at, (size_t)(ncuts - at) * sizeof(*cut));
		cut[at] = div;
		ncuts++;
	}
	return ncuts;
}

/* The loops over one axis, split where either side splits it. */
enum kvt_status kvt_axis_loops(struct kvt_loop *loop, int *count,
			       const struct kvt_view *dst, const struct kvt_view *src,
			       enum kvt_axis axis, struct kvt_error *err)
{
	int64_t cut[2 * KVT_MAX_FACTORS], n = src->shape.n[axis];
	int ncuts;

	if (n < 2)
		return KVT_OK;
	ncuts = add_cuts(cut, 0, src, axis);
	ncuts = add_cuts(cut, ncuts, dst, axis);
	for (int i = 0; i < ncuts; i++) {
		int64_t next = i + 1 < ncuts ? cut[i + 1] : n;

		if (next % cut[i])
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s is split by %lld on one side and by %lld on the other, which do not nest",
					kvt_axis_name(axis), LL(cut[i]), LL(next));
		if (next == cut[i])
			continue;
		loop[(*count)++] = (struct kvt_loop){ cut[i], next / cut[i],
			stride_at(src, axis, cut[i]), stride_at(dst, axis, cut[i]) };
	}
	return KVT_OK;
}

/* ---- planning ----------------------------------------------------------- */

static bool faster(const struct kvt_loop *a, const struct kvt_loop *b)
{
	return a->dst != b->dst ? a->dst < b->dst : a->src < b->src;
}

static void sort_fastest_first(struct kvt_loop *loop, int count)
{
	for (int i = 1; i < count; i++) {
		struct kvt_loop x = loop[i];
		int j = i;

		for (; j > 0 && faster(&x, &loop[j - 1]); j--)
			loop[j] = loop[j - 1];
		loop[j] = x;
	}
}

/*
 * loop[0..fused] is the answer so far.  The next loop joins the last one if it
 * continues where that one stops, on both sides.
 */
static int fuse(struct kvt_loop *loop, int count)
{
	int fused = 0;

	for (int i = 1; i < count; i++) {
		struct kvt_loop *last = &loop[fused];

		if (loop[i].src == last->src * last->n &&
		    loop[i].dst == last->dst * last->n)
			last->n *= loop[i].n;
		else
			loop[++fused] = loop[i];
	}
	return fused;
}

static enum kvt_status same_shape(const struct kvt_view *dst, const struct kvt_view *src,
				  struct kvt_error *err)
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (src->shape.n[a] != dst->shape.n[a])
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s extent is %lld in the source and %lld in the destination",
					kvt_axis_name((enum kvt_axis)a),
					LL(src->shape.n[a]), LL(dst->shape.n[a]));
	if (src->shape.elem != dst->shape.elem)
		return kvt_fail(err, KVT_BAD_INPUT,
				"elements have %lld bytes in the source and %lld in the destination",
				LL(src->shape.elem), LL(dst->shape.elem));
	return KVT_OK;
}

enum kvt_status kvt_plan_init(struct kvt_plan *out, const struct kvt_view *dst,
			      const struct kvt_view *src, struct kvt_error *err)
{
	struct kvt_plan plan = {
		.src_offset = src->offset, .dst_offset = dst->offset,
	};
	/* the run, and a loop for each part of an axis on either side */
	struct kvt_loop loop[2 * KVT_MAX_FACTORS + 1] = {
		{ 1, src->shape.elem, 1, 1 }
	};
	enum kvt_status status;
	int count = 1, fused;

	if ((status = same_shape(dst, src, err)))
		return status;
	for (int a = 0; a < KVT_NAXES; a++)
		if (src->shape.n[a] == 0) {	/* nothing to copy */
			*out = plan;
			return KVT_OK;
		}
	for (int a = 0; a < KVT_NAXES; a++)
		if ((status = kvt_axis_loops(loop, &count, dst, src, a, err)))
			return status;
	sort_fastest_first(loop + 1, count - 1);
	fused = fuse(loop, count);
	if (fused > KVT_MAX_LOOPS)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"the copy needs %d loops, at most %d are supported",
				fused, KVT_MAX_LOOPS);

	plan.run = loop[0].n;
	plan.nloops = fused;
	for (int i = 0; i < fused; i++) {
		plan.n[i] = loop[fused - i].n;
		plan.src_stride[i] = loop[fused - i].src;
		plan.dst_stride[i] = loop[fused - i].dst;
	}
	*out = plan;
	return KVT_OK;
}

/* View of the i-th K; a view that holds both is cut. */
static enum kvt_status view_of_k(struct kvt_view *out, const struct kvt_views *views,
				 int i, struct kvt_error *err)
{
	if (views->count == 2) {
		*out = views->view[i];
		return KVT_OK;
	}
	return kvt_view_narrow(out, &views->view[0], KVT_AXIS_K, i, i + 1, err);
}

enum kvt_status kvt_plans_init(struct kvt_plans *out, const struct kvt_views *dst,
			       const struct kvt_views *src, struct kvt_error *err)
{
	struct kvt_plans plans = { .count = dst->count > src->count ?
					    dst->count : src->count };
	enum kvt_status status;

	if (dst->count == src->count) {
		for (int i = 0; i < plans.count; i++) {
			status = kvt_plan_init(&plans.plan[i], &dst->view[i],
					       &src->view[i], err);
			if (status)
				return status;
		}
		*out = plans;
		return KVT_OK;
	}
	for (int i = 0; i < plans.count; i++) {
		struct kvt_view d, s;

		if ((status = view_of_k(&d, dst, i, err)) ||
		    (status = view_of_k(&s, src, i, err)) ||
		    (status = kvt_plan_init(&plans.plan[i], &d, &s, err)))
			return status;
	}
	*out = plans;
	return KVT_OK;
}

/* ---- counting, cutting, walking ----------------------------------------- */

int64_t kvt_plan_nruns(const struct kvt_plan *plan)
{
	int64_t runs = plan->run > 0;

	for (int i = 0; i < plan->nloops; i++)
		runs *= plan->n[i];
	return runs;
}

int64_t kvt_plan_nbytes(const struct kvt_plan *plan)
{
	return kvt_plan_nruns(plan) * plan->run;
}

/* Where share 'part' of 'n' things begins; n * part could overflow. */
static int64_t share(int64_t n, int part, int nparts)
{
	return n / nparts * part + n % nparts * part / nparts;
}

/*
 * Cutting only the slowest loop would leave threads idle where it is short, so
 * a loop of fewer entries than parts is peeled: each part takes one entry of it
 * and the parts of one entry share the loops inside.
 */
struct kvt_plan kvt_plan_part(const struct kvt_plan *plan, int part, int nparts)
{
	struct kvt_plan out = *plan;

	while (nparts > 1) {
		int64_t n = out.nloops ? out.n[0] : 1, begin, end;
		bool alone = n >= nparts;	/* nobody shares my entries */
		int entry, from, to;

		if (!out.nloops) {	/* one run: cut it at multiples of 64 */
			int64_t units = (out.run + 63) / 64;

			begin = share(units, part, nparts) * 64;
			end = share(units, part + 1, nparts) * 64;
			if (end > out.run)
				end = out.run;
			out.src_offset += begin;
			out.dst_offset += begin;
			out.run = end > begin ? end - begin : 0;
			return out;
		}
		if (alone) {
			begin = share(n, part, nparts);
			end = share(n, part + 1, nparts);
		} else {
			entry = (int)(part * n / nparts);
			from = (int)((entry * (int64_t)nparts + n - 1) / n);
			to = (int)(((entry + 1) * (int64_t)nparts + n - 1) / n);
			begin = entry;
			end = entry + 1;
			part -= from;
			nparts = to - from;
		}
		out.src_offset += begin * out.src_stride[0];
		out.dst_offset += begin * out.dst_stride[0];
		if (end - begin > 1) {
			out.n[0] = end - begin;
			return out;
		}
		out.nloops--;
		memmove(out.n, out.n + 1, sizeof(out.n) - sizeof(out.n[0]));
		memmove(out.src_stride, out.src_stride + 1,
			sizeof(out.n) - sizeof(out.n[0]));
		memmove(out.dst_stride, out.dst_stride + 1,
			sizeof(out.n) - sizeof(out.n[0]));
		if (alone)
			return out;
	}
	return out;
}

void kvt_plan_walk_start(struct kvt_plan_walk *walk, const struct kvt_plan *plan)
{
	*walk = (struct kvt_plan_walk){ .plan = plan, .src = plan->src_offset,
					.dst = plan->dst_offset,
					.done = plan->run == 0 };
}

void kvt_plan_walk_next(struct kvt_plan_walk *walk)
{
	const struct kvt_plan *plan = walk->plan;

	for (int i = plan->nloops - 1; i >= 0; i--) {
		walk->src += plan->src_stride[i];
		walk->dst += plan->dst_stride[i];
		if (++walk->i[i] < plan->n[i])
			return;
		walk->src -= plan->src_stride[i] * plan->n[i];
		walk->dst -= plan->dst_stride[i] * plan->n[i];
		walk->i[i] = 0;
	}
	walk->done = true;
}
