/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - decide how the bytes of each group travel, and let them */
#include "lib/ops/write/plan.h"

#include <string.h>


/*
 * One unit of work: a tile where the destination has them, else a box.  Keys and
 * values may have orders of their own, so each has a unit if it has tiles.
 */
static struct kvt_box unit_box(const struct transform *t, int group, int i)
{
	const struct kvt_group *from = &kvt_dump_snapshot(t->source)->group[group];
	const struct kvt_tiling *tiling = kvt_writer_tiling(t->writer, group);
	const int64_t origin[KVT_NAXES] = { [KVT_AXIS_K] = i };

	if (tiling)
		return tile_box(tiling, origin);
	if (t->step[group].cut.nboxes)
		return kvt_cut_box(&t->step[group].cut, 0);
	return kvt_box_whole(&from->shape);
}

const struct unit *unit_at(const struct group_step *step,
			   const int64_t begin[KVT_NAXES])
{
	return &step->unit[step->nunits == 2 && begin[KVT_AXIS_K] > 0];
}

int64_t tiles_that_move(const struct group_step *step)
{
	int64_t n = 0;

	for (int i = 0; i < step->nunits; i++)
		n += step->unit[i].moves ? step->ndirect / step->nunits : 0;
	return n;
}

static bool same_extents(const struct kvt_tiling *a, const struct kvt_tiling *b)
{
	return a && b && !memcmp(a->n, b->n, sizeof(a->n));
}

static bool is_one_run(const struct kvt_plans *plans, int64_t nbytes)
{
	return plans->count == 1 && plans->plan[0].nloops == 0 &&
	       plans->plan[0].run == nbytes;
}

static int64_t count_tiles(const struct kvt_shape *shape,
			   const struct kvt_tiling *tiling)
{
	int64_t n = 1;

	for (int a = 0; a < KVT_NAXES; a++)
		n *= (shape->n[a] + tiling->n[a] - 1) / tiling->n[a];
	return n;
}

/* In boxes that the source has as they are. */
static int64_t count_direct(const struct transform *t, int group)
{
	const struct group_step *step = &t->step[group];
	int64_t n = 0;

	for (int64_t i = 0; step->direct && i < step->cut.nboxes; i++) {
		struct kvt_box box = kvt_cut_box(&step->cut, i);
		struct kvt_shape shape = kvt_box_shape(&box, 1);

		if (kvt_dump_has_tiles(t->source, group, &box))
			n += count_tiles(&shape, kvt_writer_tiling(t->writer, group));
	}
	return n;
}

/* The plan of one unit from the source's order to the destination's, proven. */
static enum kvt_status plan_unit(struct unit *unit,
				 const struct kvt_layout *to,
				 const struct kvt_group *from,
				 const struct kvt_box *box,
				 struct kvt_error *err)
{
	struct kvt_views dst, src;
	enum kvt_status status;

	if ((status = kvt_layout_views(&dst, to, box, from->shape.elem, err)) ||
	    (status = kvt_layout_views(&src, &from->layout, box,
				       from->shape.elem, err)) ||
	    (status = kvt_plans_init(&unit->plans, &dst, &src, err)))
		return status;
	return kvt_plans_cover(&unit->plans, dst.nbytes, err);
}

static enum kvt_status plan_group(struct transform *t, int group,
				  const struct kvt_group *to,
				  struct kvt_error *err)
{
	const struct kvt_group *from = &kvt_dump_snapshot(t->source)->group[group];
	const struct kvt_tiling *src = kvt_dump_tiling(t->source, group);
	const struct kvt_tiling *dst = kvt_writer_tiling(t->writer, group);
	int64_t limit = t->run.memory ? t->run.memory : INT64_MAX;
	struct group_step *step = &t->step[group];
	enum kvt_status status;

	if ((status = kvt_shape_nbytes(&step->data_bytes, &from->shape, err)))
		return status;
	step->cut = kvt_cut_choose(from, src, &to->layout, dst, limit / 4);
	if (!src && kvt_dump_is_scattered(t->source, group))
		kvt_cut_widen(&step->cut, t->run.memory ? limit / 16 : 16 << 20);
	step->ntiles = dst ? count_tiles(&from->shape, dst) : 0;
	step->nunits = dst && dst->n[KVT_AXIS_K] == 1 &&
		       from->shape.n[KVT_AXIS_K] == 2 ? 2 : 1;
	step->direct = same_extents(src, dst);
	step->ndirect = count_direct(t, group);
	for (int i = 0; i < step->nunits; i++) {
		struct kvt_box box = unit_box(t, group, i);

		status = plan_unit(&step->unit[i], &to->layout, from, &box, err);
		if (status)
			return status;
		step->unit[i].moves = step->direct &&
				      kvt_tiling_same_codec(src, dst) &&
				      is_one_run(&step->unit[i].plans, dst->nbytes);
	}
	step->make_cells = kvt_writer_has_cells(t->writer, group) &&
			   !(kvt_dump_has_cells(t->source, group) &&
			     kvt_dump_cells_proven(t->source, group));
	step->hold_cells = step->make_cells && kvt_dump_has_cells(t->source, group);
	return KVT_OK;
}

enum kvt_status transform_plan(struct transform *t, struct kvt_error *err)
{
	const struct kvt_snapshot *to = kvt_writer_snapshot(t->writer);

	for (int g = 0; g < to->ngroups; g++) {
		enum kvt_status status = plan_group(t, g, &to->group[g], err);

		if (status)
			return status;
	}
	return KVT_OK;
}
