/* SPDX-License-Identifier: Apache-2.0 */
/* box.c - boxes and tiles of a group: cutting, walking, copying between them */
#include "lib/dump/read.h"

#include <string.h>

#include "lib/dump/device.h"

struct kvt_box tile_box(const struct kvt_tiling *tiling,
			const int64_t begin[KVT_NAXES])
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

enum kvt_status copy_views(struct kvt_worker *worker, const struct placed *dst,
			   const struct kvt_box *to, const struct kvt_views *src,
			   const struct kvt_box *from, const uint8_t *bytes,
			   int64_t elem, struct kvt_error *err)
{
	struct kvt_box in_dst = box_inside(to, &dst->box);
	struct kvt_views d, s;
	struct kvt_plans plans;
	enum kvt_status status;
	int64_t nbytes;

	if ((status = kvt_layout_views(&d, dst->layout, &dst->box, elem, err)))
		return status;
	nbytes = d.nbytes;
	if ((status = kvt_views_narrow(&d, &d, &in_dst, err)) ||
	    (status = kvt_views_narrow(&s, src, from, err)) ||
	    (status = kvt_plans_init(&plans, &d, &s, err)))
		return status;
	return plans_run(worker, dst->bytes, nbytes, bytes, &plans, err);
}

enum kvt_status copy_part(struct kvt_worker *worker, const struct placed *dst,
			  const struct kvt_box *to, const struct placed *src,
			  const struct kvt_box *from, int64_t elem,
			  struct kvt_error *err)
{
	struct kvt_box in_src = box_inside(from, &src->box);
	struct kvt_views views;
	enum kvt_status status;

	status = kvt_layout_views(&views, src->layout, &src->box, elem, err);
	return status ? status : copy_views(worker, dst, to, &views, &in_src, src->bytes,
					    elem, err);
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
			int64_t n = part->split ? part->split :
				    elem < 16 ? 16 / elem : 1;

			if (part->axis != KVT_AXIS_S || part->kind == KVT_WHOLE)
				continue;
			out.least = out.least && out.least < n ? out.least : n;
			out.most = out.most > n ? out.most : n;
		}
	return out;
}
