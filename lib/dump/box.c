/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box.c - boxes and tiles of a group: cutting, walking, copying between them
 *
 * A box is a range on each axis.  A copy is two placed boxes (a layout, the box that a
 * buffer has, its bytes), narrowed to what is copied, and a plan between these views.
 * The plan of the last copy is kept: most copies of a pass are the same one elsewhere.
 */
#include "lib/dump/read.h"

#include <stdlib.h>
#include <string.h>

#include "lib/run/device.h"

struct kvt_box tile_box(const struct kvt_tiling *tiling, const int64_t begin[KVT_NAXES])
{
	struct kvt_box box;

	for (int a = 0; a < KVT_NAXES; a++) {
		box.begin[a] = begin[a];
		box.end[a] = begin[a] + tiling->n[a];
	}
	return box;
}

struct kvt_box box_cut(const struct kvt_box *box, const struct kvt_shape *shape)
{
	struct kvt_box cut = *box;

	for (int a = 0; a < KVT_NAXES; a++)
		if (cut.end[a] > shape->n[a])
			cut.end[a] = shape->n[a];
	return cut;
}

struct kvt_box box_inside(const struct kvt_box *inner, const struct kvt_box *outer)
{
	struct kvt_box box;

	for (int a = 0; a < KVT_NAXES; a++) {
		box.begin[a] = inner->begin[a] - outer->begin[a];
		box.end[a] = inner->end[a] - outer->begin[a];
	}
	return box;
}

bool box_common(struct kvt_box *out, const struct kvt_box *a, const struct kvt_box *b)
{
	for (int i = 0; i < KVT_NAXES; i++) {
		out->begin[i] = a->begin[i] > b->begin[i] ? a->begin[i] : b->begin[i];
		out->end[i] = a->end[i] < b->end[i] ? a->end[i] : b->end[i];
		if (out->begin[i] >= out->end[i])
			return false;
	}
	return true;
}

/* From one box of a view to another of the same extents; both count in their views. */
static enum kvt_status plan_copy(struct kvt_plans *out, const struct kvt_views *dst,
				 const struct kvt_box *to, const struct kvt_views *src,
				 const struct kvt_box *from, struct kvt_error *err)
{
	struct kvt_views d, s;
	enum kvt_status status;

	if ((status = kvt_views_narrow(&d, dst, to, err)) ||
	    (status = kvt_views_narrow(&s, src, from, err)))
		return status;
	return kvt_plans_init(out, &d, &s, err);
}

enum kvt_status copy_views(struct kvt_worker *worker, const struct placed *dst,
			   const struct kvt_box *to, const struct kvt_views *src,
			   const struct kvt_box *from, const uint8_t *bytes,
			   int64_t elem, struct kvt_error *err)
{
	struct kvt_box in_dst = box_inside(to, &dst->box);
	struct kvt_views views;
	struct kvt_plans plans;
	enum kvt_status status;

	if ((status = kvt_layout_views(&views, dst->layout, &dst->box, elem, err)) ||
	    (status = plan_copy(&plans, &views, &in_dst, src, from, err)))
		return status;
	return plans_run(worker, dst->bytes, views.nbytes, bytes, &plans, err);
}

/* ---- the same copy elsewhere ------------------------------------------------ */

/* A copy, and all that its plan depends on but for where it begins. */
struct copied {
	struct kvt_layout dst_layout, src_layout;
	int64_t dst_n[KVT_NAXES], src_n[KVT_NAXES], part_n[KVT_NAXES];
	int64_t elem;
	struct kvt_views dst, src;
	struct kvt_box to, from;	/* in these */
	struct kvt_plans plans;
};

static bool has_extents(const int64_t n[KVT_NAXES], const struct kvt_box *box)
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (n[a] != box->end[a] - box->begin[a])
			return false;
	return true;
}

static void take_extents(int64_t n[KVT_NAXES], const struct kvt_box *box)
{
	for (int a = 0; a < KVT_NAXES; a++)
		n[a] = box->end[a] - box->begin[a];
}

/* One order, in which an index of an axis adds the same whatever it is counted from. */
static bool is_even(const struct kvt_layout *layout, const struct kvt_views *views)
{
	const struct kvt_view *view = &views->view[0];
	int factors[KVT_NAXES] = { 0 };

	for (int i = 0; i < view->nfactors; i++)
		if (++factors[view->factor[i].axis] > 1 || view->factor[i].div > 1)
			return false;
	return layout->nplanes == 1;
}

/* Is it that copy, from and to another place of boxes like those? */
static bool is_same(const struct copied *last, const struct placed *dst,
		    const struct kvt_box *to, const struct placed *src, int64_t elem)
{
	return has_extents(last->part_n, to) && has_extents(last->dst_n, &dst->box) &&
	       has_extents(last->src_n, &src->box) && last->elem == elem &&
	       kvt_layout_equal(&last->dst_layout, dst->layout) &&
	       kvt_layout_equal(&last->src_layout, src->layout);
}

static int64_t moved(const struct kvt_views *views, const int64_t now[KVT_NAXES],
		     const int64_t before[KVT_NAXES])
{
	return kvt_views_at(views, now) - kvt_views_at(views, before);
}

/* Out of memory, or no plan for elsewhere: then there is none to go on from. */
static void keep_copy(struct kvt_worker *worker, const struct copied *copy)
{
	bool even = is_even(&copy->dst_layout, &copy->dst) &&
		    is_even(&copy->src_layout, &copy->src);

	if (even && !worker->copied)
		worker->copied = malloc(sizeof(*copy));
	if (worker->copied && even)
		*worker->copied = *copy;
}

enum kvt_status copy_part(struct kvt_worker *worker, const struct placed *dst,
			  const struct kvt_box *to, const struct placed *src,
			  const struct kvt_box *from, int64_t elem, struct kvt_error *err)
{
	const struct copied *last = worker ? worker->copied : NULL;
	struct copied copy = {
		.to = box_inside(to, &dst->box), .from = box_inside(from, &src->box),
	};
	struct kvt_plans plans;
	enum kvt_status status;

	if (last && is_same(last, dst, to, src, elem)) {
		plans = last->plans;
		plans.plan[0].dst_offset += moved(&last->dst, copy.to.begin,
						  last->to.begin);
		plans.plan[0].src_offset += moved(&last->src, copy.from.begin,
						  last->from.begin);
		return plans_run(worker, dst->bytes, last->dst.nbytes, src->bytes, &plans,
				 err);
	}
	if ((status = kvt_layout_views(&copy.dst, dst->layout, &dst->box, elem, err)) ||
	    (status = kvt_layout_views(&copy.src, src->layout, &src->box, elem, err)) ||
	    (status = plan_copy(&copy.plans, &copy.dst, &copy.to, &copy.src, &copy.from,
				err)))
		return status;
	copy.dst_layout = *dst->layout;
	copy.src_layout = *src->layout;
	copy.elem = elem;
	take_extents(copy.part_n, to);
	take_extents(copy.dst_n, &dst->box);
	take_extents(copy.src_n, &src->box);
	if (worker)
		keep_copy(worker, &copy);
	return plans_run(worker, dst->bytes, copy.dst.nbytes, src->bytes, &copy.plans,
			 err);
}

enum kvt_status copy_box(struct kvt_worker *worker, const struct placed *dst,
			 const struct placed *src, const struct kvt_box *part,
			 int64_t elem, struct kvt_error *err)
{
	return copy_part(worker, dst, part, src, part, elem, err);
}

/* The tile that the box begins in. */
static int64_t first_tile(const struct kvt_tiling *tiling, const struct kvt_box *box,
			  int axis)
{
	return box->begin[axis] - box->begin[axis] % tiling->n[axis];
}

enum kvt_status each_tile(struct kvt_worker *worker, const struct kvt_tiling *tiling,
			  const struct kvt_box *box, tile_fn *fn, void *context,
			  struct kvt_error *err)
{
	int64_t at[KVT_NAXES];

	for (int a = 0; a < KVT_NAXES; a++) {
		if (box->begin[a] >= box->end[a])
			return KVT_OK;
		at[a] = first_tile(tiling, box, a);
	}
	for (;;) {
		enum kvt_status status = fn(worker, context, at, err);
		int a = KVT_NAXES - 1;

		if (status)
			return status;
		for (; a >= 0; a--) {
			at[a] += tiling->n[a];
			if (at[a] < box->end[a])
				break;
			at[a] = first_tile(tiling, box, a);
		}
		if (a < 0)
			return KVT_OK;
	}
}

/* ---- split axes -------------------------------------------------------------- */

struct splits splits_of(const struct kvt_layout *layout, int64_t elem)
{
	struct splits out = { 0, 0 };

	for (int p = 0; p < layout->nplanes; p++)
		for (int i = 0; i < layout->plane[p].nparts; i++) {
			const struct kvt_part *part = &layout->plane[p].part[i];
			int64_t n = part->split ? part->split : elem < 16 ? 16 / elem : 1;

			if (part->axis != KVT_AXIS_S || part->kind == KVT_WHOLE)
				continue;
			out.least = out.least && out.least < n ? out.least : n;
			out.most = out.most > n ? out.most : n;
		}
	return out;
}
