/* SPDX-License-Identifier: Apache-2.0 */
/* box.c - boxes and tiles of a group: cutting, reading, copying between them */
#include "lib/dump/pipeline.h"

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

enum kvt_status copy_part(struct worker *worker, const struct placed *dst,
			  const struct kvt_box *to, const struct placed *src,
			  const struct kvt_box *from, int64_t elem,
			  struct kvt_error *err)
{
	struct kvt_box in_dst = box_inside(to, &dst->box);
	struct kvt_box in_src = box_inside(from, &src->box);
	struct kvt_views d, s;
	struct kvt_plans plans;
	enum kvt_status status;
	int64_t nbytes;

	if ((status = kvt_layout_views(&d, dst->layout, &dst->box, elem, err)) ||
	    (status = kvt_layout_views(&s, src->layout, &src->box, elem, err)))
		return status;
	nbytes = d.nbytes;
	if ((status = kvt_views_narrow(&d, &d, &in_dst, err)) ||
	    (status = kvt_views_narrow(&s, &s, &in_src, err)) ||
	    (status = kvt_plans_init(&plans, &d, &s, err)))
		return status;
	return plans_run(worker, dst->bytes, nbytes, src->bytes, &plans, err);
}

enum kvt_status copy_box(struct worker *worker, const struct placed *dst,
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

enum kvt_status each_tile(struct worker *worker, const struct kvt_tiling *tiling,
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

enum kvt_status fetch_tile(struct worker *worker, struct kvt_dump *reader,
			   int group, const int64_t begin[KVT_NAXES],
			   struct kvt_stored *stored, struct kvt_error *err)
{
	(void)worker;
	return kvt_fetch_tile(reader, group, begin, stored, err);
}

/* What of a tile is in a box that need not end where tiles do. */
static struct kvt_box box_shared(const struct kvt_box *a, const struct kvt_box *b)
{
	struct kvt_box out = *a;

	for (int i = 0; i < KVT_NAXES; i++) {
		if (out.begin[i] < b->begin[i])
			out.begin[i] = b->begin[i];
		if (out.end[i] > b->end[i])
			out.end[i] = b->end[i];
	}
	return out;
}

struct reading {
	struct kvt_dump *reader;
	int group;
	const struct kvt_box *box;
	uint8_t *buf;
};

static enum kvt_status read_tile(struct worker *worker, void *context,
				 const int64_t begin[KVT_NAXES],
				 struct kvt_error *err)
{
	const struct reading *r = context;
	const struct kvt_group *group =
		&kvt_dump_snapshot(r->reader)->group[r->group];
	const struct kvt_tiling *tiling = kvt_dump_tiling(r->reader, r->group);
	struct kvt_stored stored = { .bytes = worker->stored,
				     .capacity = kvt_stored_bound(tiling) };
	struct placed tile = { &group->layout, tile_box(tiling, begin), worker->tile };
	struct placed whole = { &group->layout, *r->box, r->buf };
	struct kvt_box part = box_shared(&tile.box, r->box);
	enum kvt_status status;

	if ((status = fetch_tile(worker, r->reader, r->group, begin, &stored, err)) ||
	    (status = kvt_decode(worker->tile, &stored, tiling, worker->scratch,
				 err)))
		return status;
	return copy_box(worker, &whole, &tile, &part, group->shape.elem, err);
}

enum kvt_status read_box(struct worker *worker, struct kvt_dump *reader,
			 int group, const struct kvt_box *box, uint8_t *buf,
			 struct kvt_error *err)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(reader, group);
	struct reading reading = { reader, group, box, buf };

	if (!tiling)
		return kvt_read_box(reader, group, box, buf, err);
	return each_tile(worker, tiling, box, read_tile, &reading, err);
}

void work_needs_tiles(struct work *work, const struct kvt_tiling *tiling)
{
	if (!tiling)
		return;
	if (work->tile_bytes < tiling->nbytes)
		work->tile_bytes = tiling->nbytes;
	if (work->stored_bytes < kvt_stored_bound(tiling))
		work->stored_bytes = kvt_stored_bound(tiling);
}
