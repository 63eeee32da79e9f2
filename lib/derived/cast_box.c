/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_box.c - the elements of a box as those of another type
 *
 * They stay where their layout has them.  The CPU casts runs that have one scale; a
 * device is given the scales of the box as a table, and its loops step through that.
 */
#include "lib/derived/cast_box.h"

#include <stdlib.h>
#include <string.h>

#include "lib/run/device.h"
#include "lib/kvt/cast.h"
#include "lib/kvt/kernels.h"

static float scale_of(const struct kvt_group *group, const struct cast_scales *told,
		      int64_t l, int64_t h, int64_t k)
{
	struct kvt_group said = { .scales = told->scale, .scale_heads = told->heads,
				  .head_start = group->head_start };
	int half = kvt_group_half(group);

	return told->scale ? kvt_group_scale(&said, l, h, half < 0 ? k : half) :
			     kvt_group_scale(group, l, h, k);
}

struct kvt_device_factors cast_factors(const struct cast_job *p, int64_t l, int64_t h,
				       int64_t k)
{
	return (struct kvt_device_factors){
		.times = scale_of(p->from, p->times, l, h, k),
		.by = scale_of(p->to, p->by, l, h, k),
	};
}

/* ---- loops over a box ------------------------------------------------------------ */

/* How far a step along an axis goes in a table of factors. */
struct steps {
	int64_t of[KVT_NAXES];
};

/* A loop over a box, and how far a round of it goes in the table. */
struct loop {
	int64_t n, stride, step;
};

/* Those that are more than 1, nearest in memory first, neighbours joined. */
static int sort_loops(struct loop out[KVT_MAX_FACTORS], const struct kvt_view *view,
		      const struct steps *steps)
{
	int n = 0, kept = 0;

	for (int i = 0; i < view->nfactors; i++) {
		const struct kvt_factor *f = &view->factor[i];
		struct loop loop = { f->n, f->stride, steps->of[f->axis] * f->div };
		int at = n;

		if (loop.n < 2)
			continue;
		for (; at && out[at - 1].stride > loop.stride; at--)
			out[at] = out[at - 1];
		out[at] = loop;
		n++;
	}
	for (int i = 0; i < n; i++) {
		struct loop *last = kept ? &out[kept - 1] : NULL;

		if (last && out[i].stride == last->n * last->stride &&
		    out[i].step == last->n * last->step)
			last->n *= out[i].n;
		else
			out[kept++] = out[i];
	}
	return kept;
}

/* ---- on the CPU ------------------------------------------------------------------ */

static void cast_run(const struct cast_job *p, int64_t at, int64_t n, float times,
		     float by)
{
	kvt_cpu_cast(p->dst + at * p->to->shape.elem, p->to->dtype,
		     p->src + at * p->from->shape.elem, p->from->dtype, n, times, by);
}

/* A view of elements of one byte, which are all of one scale. */
static void cast_view(const struct cast_job *p, const struct kvt_view *view, float times,
		      float by)
{
	const struct steps none = { { 0 } };
	struct loop f[KVT_MAX_FACTORS];
	int64_t index[KVT_MAX_FACTORS] = { 0 }, at = view->offset, run = 1;
	int n = sort_loops(f, view, &none), first = n && f[0].stride == 1, i;

	if (first)
		run = f[0].n;
	do {
		cast_run(p, at, run, times, by);
		for (i = first; i < n; i++) {
			at += f[i].stride;
			if (++index[i] < f[i].n)
				break;
			at -= f[i].n * f[i].stride;
			index[i] = 0;
		}
	} while (i < n);
}

static bool same_factors(struct kvt_device_factors a, struct kvt_device_factors b)
{
	return !memcmp(&a, &b, sizeof(a));
}

static bool one_scale(const struct cast_job *p, const struct kvt_box *box)
{
	struct kvt_device_factors first = cast_factors(p, box->begin[KVT_AXIS_L],
						       box->begin[KVT_AXIS_H],
						       box->begin[KVT_AXIS_K]);

	for (int64_t l = box->begin[KVT_AXIS_L]; l < box->end[KVT_AXIS_L]; l++)
		for (int64_t h = box->begin[KVT_AXIS_H]; h < box->end[KVT_AXIS_H]; h++)
			for (int64_t k = box->begin[KVT_AXIS_K];
			     k < box->end[KVT_AXIS_K]; k++)
				if (!same_factors(first, cast_factors(p, l, h, k)))
					return false;
	return true;
}

/* Elements of a layer, head (-1: all) and half. */
static enum kvt_status cast_part(const struct cast_job *p, const struct kvt_views *views,
				 const struct kvt_box *box, int64_t l, int64_t h,
				 int64_t k, struct kvt_error *err)
{
	struct kvt_box part;
	struct kvt_views narrow;
	struct kvt_device_factors f = cast_factors(p, l, h < 0 ? box->begin[KVT_AXIS_H] :
								 h, k);
	enum kvt_status status;

	for (int a = 0; a < KVT_NAXES; a++) {
		part.begin[a] = 0;
		part.end[a] = box->end[a] - box->begin[a];
	}
	box_take(&part, KVT_AXIS_L, l - box->begin[KVT_AXIS_L], 1);
	box_take(&part, KVT_AXIS_K, k - box->begin[KVT_AXIS_K], 1);
	if (h >= 0)
		box_take(&part, KVT_AXIS_H, h - box->begin[KVT_AXIS_H], 1);
	if ((status = kvt_views_narrow(&narrow, views, &part, err)))
		return status;
	for (int i = 0; i < narrow.count; i++)
		if (narrow.view[i].shape.n[KVT_AXIS_K] > 0)
			cast_view(p, &narrow.view[i], f.times, f.by);
	return KVT_OK;
}

static bool has_heads(const struct cast_job *p)
{
	return p->from->scale_heads > 1 || p->times->heads > 1 || p->by->heads > 1;
}

static enum kvt_status cast_here(const struct cast_job *p, const struct kvt_box *box,
				 const struct kvt_layout *layout, int64_t count,
				 struct kvt_error *err)
{
	bool heads = has_heads(p);
	struct kvt_views views;
	enum kvt_status status;

	if (one_scale(p, box)) {
		struct kvt_device_factors f = cast_factors(p, box->begin[KVT_AXIS_L],
							   box->begin[KVT_AXIS_H],
							   box->begin[KVT_AXIS_K]);

		cast_run(p, 0, count, f.times, f.by);
		return KVT_OK;
	}
	/* places count elements */
	status = kvt_layout_views(&views, layout, box, 1, err);
	for (int64_t l = box->begin[KVT_AXIS_L]; !status && l < box->end[KVT_AXIS_L]; l++)
		for (int64_t k = box->begin[KVT_AXIS_K];
		     !status && k < box->end[KVT_AXIS_K]; k++) {
			if (!heads)
				status = cast_part(p, &views, box, l, -1, k, err);
			for (int64_t h = box->begin[KVT_AXIS_H];
			     heads && !status && h < box->end[KVT_AXIS_H]; h++)
				status = cast_part(p, &views, box, l, h, k, err);
		}
	return status;
}

/* ---- on a device ---------------------------------------------------------------- */

static int64_t extent(const struct kvt_box *box, enum kvt_axis axis)
{
	return box->end[axis] - box->begin[axis];
}

/*
 * Factors of the box, [L][K][H] or without heads, and how its indices step through them;
 * NULL: out of memory.
 */
static struct kvt_device_factors *make_table(int64_t *n, struct steps *steps,
					     const struct cast_job *p,
					     const struct kvt_box *box)
{
	const int64_t heads = has_heads(p) ? extent(box, KVT_AXIS_H) : 1;
	struct kvt_device_factors *table, *at;

	*n = extent(box, KVT_AXIS_L) * extent(box, KVT_AXIS_K) * heads;
	*steps = (struct steps){ { 0 } };
	steps->of[KVT_AXIS_L] = extent(box, KVT_AXIS_K) * heads;
	steps->of[KVT_AXIS_K] = heads;
	steps->of[KVT_AXIS_H] = heads > 1;
	if (!(table = at = malloc((size_t)*n * sizeof(*table))))
		return NULL;
	for (int64_t l = box->begin[KVT_AXIS_L]; l < box->end[KVT_AXIS_L]; l++)
		for (int64_t k = box->begin[KVT_AXIS_K]; k < box->end[KVT_AXIS_K]; k++)
			for (int64_t h = 0; h < heads; h++)
				*at++ = cast_factors(p, l, box->begin[KVT_AXIS_H] + h, k);
	return table;
}

static struct kvt_device_cast plan_view(const struct cast_job *p,
					const struct kvt_view *view,
					const struct steps *steps)
{
	struct kvt_device_cast out = { .to = p->to->dtype, .from = p->from->dtype };
	struct loop f[KVT_MAX_FACTORS];
	int n = sort_loops(f, view, steps), first = n && f[0].stride == 1 && !f[0].step;

	out.plan.run = first ? f[0].n : 1;
	out.plan.src_offset = out.plan.dst_offset = view->offset;
	out.plan.nloops = n - first;
	for (int i = 0; i < out.plan.nloops; i++) {
		const struct loop *loop = &f[n - 1 - i];

		out.plan.n[i] = loop->n;
		out.plan.src_stride[i] = out.plan.dst_stride[i] = loop->stride;
		out.step[i] = loop->step;
	}
	return out;
}

/* *done is false where the CPU has to do it. */
static enum kvt_status cast_there(bool *done, struct kvt_worker *worker,
				  const struct cast_job *p, const struct kvt_box *box,
				  const struct kvt_layout *layout, int64_t count,
				  struct kvt_error *err)
{
	struct device_casts all = {
		.dst = p->dst, .dst_bytes = count * p->to->shape.elem,
		.src = p->src, .src_bytes = count * p->from->shape.elem,
	};
	struct kvt_device_factors *table;
	struct kvt_views views;
	struct steps steps;
	enum kvt_status status;

	*done = false;
	if (!worker || kvt_cast_element(p->from->dtype) < 0 ||
	    kvt_cast_element(p->to->dtype) < 0)
		return KVT_OK;
	if ((status = kvt_layout_views(&views, layout, box, 1, err)))
		return status;
	if (!(table = make_table(&all.nfactors, &steps, p, box)))
		return kvt_no_memory(err, NULL);
	all.factors = table;
	all.count = views.count;
	for (int i = 0; i < views.count; i++) {
		all.cast[i] = plan_view(p, &views.view[i], &steps);
		/* a view of two is all keys, or all values */
		all.first[i] = i * steps.of[KVT_AXIS_K];
	}
	status = casts_run(done, worker, &all, err);
	free(table);
	return status;
}

enum kvt_status cast_elements(struct kvt_worker *worker, const struct cast_job *p,
			      const struct kvt_box *box, const struct kvt_layout *layout,
			      int64_t count, struct kvt_error *err)
{
	bool done;
	enum kvt_status status = cast_there(&done, worker, p, box, layout, count, err);

	return status || done ? status : cast_here(p, box, layout, count, err);
}
