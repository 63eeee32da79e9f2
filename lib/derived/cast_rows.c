/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_rows.c - rows of a content from boxes of numbers, for leaf_cast.c
 *
 * The box is as kvt_layout_slots has it, so the numbers of a row are one run; a row has
 * those of a key, of a value, or of both.  Where slots become a page, it is the page's
 * row head * slots + slot.
 */
#include "lib/derived/leaf_cast.h"

#include <stdlib.h>
#include <string.h>

#include "lib/kvt/kernels.h"

struct kvt_box cast_rows_box(const struct cast_rows *r, const struct kvt_group *from,
			     const struct kvt_box *box)
{
	const struct kvt_packing *p = &r->caster->packing;
	const int64_t *n = from->shape.n;
	struct kvt_box there = *box;

	box_take(&there, KVT_AXIS_S, box->begin[KVT_AXIS_S] * r->page,
		 (box->end[KVT_AXIS_S] - box->begin[KVT_AXIS_S]) * r->page);
	if (p->content.type->planar)
		box_take(&there, KVT_AXIS_H, 0, n[KVT_AXIS_H]);
	if (p->halves > 1)
		box_take(&there, KVT_AXIS_K, 0, n[KVT_AXIS_K]);
	box_take(&there, KVT_AXIS_D, 0, n[KVT_AXIS_D]);
	return there;
}

/* A row whose numbers 'at', of the box that is there, are the last of. */
static enum kvt_status put_row(const struct cast_job *p, const struct cast_rows *r,
			       const int64_t *at, float by, struct kvt_error *err)
{
	bool planar = r->caster->packing.content.type->planar;
	bool halves = r->caster->packing.halves > 1;
	int64_t to[KVT_NAXES], half = kvt_group_half(p->from);
	int64_t row = planar ? at[KVT_AXIS_H] * r->page + at[KVT_AXIS_S] % r->page : 0;
	struct kvt_error why;
	enum kvt_status status;
	uint8_t *bytes;

	memcpy(to, at, sizeof(to));
	to[KVT_AXIS_S] /= r->page;
	if (planar)
		to[KVT_AXIS_H] = 0;
	if (halves)
		to[KVT_AXIS_K] = 0;
	if (half < 0)
		half = r->there->begin[KVT_AXIS_K] + at[KVT_AXIS_K];
	bytes = p->dst + kvt_views_at(&r->views, to);
	(r->one_by_one ? kvt_cast_prove : kvt_cast_row)(r->caster, bytes, row, r->numbers,
							half, by);
	status = kvt_cast_holds(r->caster, bytes, r->numbers, &why);
	return status ? kvt_fail(err, status, "%s: %s", p->to->id, why.text) : KVT_OK;
}

static enum kvt_status cast_slots(const struct cast_job *p, const struct cast_rows *r,
				  struct kvt_error *err)
{
	static const enum kvt_axis axes[] = { KVT_AXIS_K, KVT_AXIS_H, KVT_AXIS_S,
					      KVT_AXIS_B, KVT_AXIS_L };
	enum { NAXES = sizeof(axes) / sizeof(axes[0]) };
	int64_t at[KVT_NAXES] = { 0 }, dim = p->from->shape.n[KVT_AXIS_D];
	int64_t halves = r->caster->packing.halves;
	const uint8_t *row = p->src;
	enum kvt_status status = KVT_OK;
	int a = 0;

	for (; !status && a < NAXES; row += dim * p->from->shape.elem) {
		int64_t k = at[KVT_AXIS_K];
		struct kvt_device_factors f = cast_factors(
			p, r->there->begin[KVT_AXIS_L] + at[KVT_AXIS_L],
			r->there->begin[KVT_AXIS_H] + at[KVT_AXIS_H],
			r->there->begin[KVT_AXIS_K] + k);

		kvt_cpu_cast(r->numbers + (halves > 1 ? k * dim : 0),
			     kvt_dtype_find("float32"), row, p->from->dtype, dim, f.times,
			     1);
		if (k >= halves - 1)
			status = put_row(p, r, at, f.by, err);
		for (a = 0; a < NAXES; a++) {
			if (++at[axes[a]] < r->there->end[axes[a]] -
					    r->there->begin[axes[a]])
				break;
			at[axes[a]] = 0;
		}
	}
	return status;
}

enum kvt_status cast_rows_of(const struct cast_job *p, struct cast_rows *r,
			     const struct kvt_box *box, struct kvt_error *err)
{
	enum kvt_status status = kvt_layout_views(&r->views, &p->to->layout, box, 1, err);

	if (status)
		return status;
	r->numbers = malloc((size_t)r->caster->n * sizeof(*r->numbers) + 1);
	if (!r->numbers)
		return kvt_no_memory(err, NULL);
	status = cast_slots(p, r, err);
	free(r->numbers);
	return status;
}
