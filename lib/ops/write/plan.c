/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - decide how the bytes of each group travel, and let them
 *
 *	tiles on both sides, alike, one order inside	moved as they are stored
 *	tiles on both sides, alike, another order	decoded, permuted, encoded
 *	anything else					boxes are read, cut, put
 *
 * In: dumps and writers.  Out: for each group the boxes (lib/dump/cut.c), and for a
 * tile, or a box, one plan from the source's order to the destination's, which must
 * cover the destination exactly (lib/layout/cover.c) before a byte is written.
 */
#include "lib/ops/write/plan.h"

#include <string.h>

#include "lib/dump/seen.h"

/* Hashes of what was seen have this part of the memory at most. */
enum { SEEN_SHARE = 8 };

/*
 * One unit of work: a tile where the destination has them, else a box.  Keys and
 * values may have orders of their own, so each has a unit if it has tiles.
 */
static struct kvt_box unit_box(const struct transform *t, int group, int i)
{
	const struct kvt_group *from = &kvt_dump_snapshot(t->source[0])->group[group];
	const struct kvt_tiling *tiling = kvt_writer_tiling(t->writer[0], group);
	const int64_t origin[KVT_NAXES] = { [KVT_AXIS_K] = i };

	if (tiling)
		return tile_box(tiling, origin);
	if (t->step[group].cut.nboxes)
		return kvt_cut_box(&t->step[group].cut, 0);
	return kvt_box_whole(&from->shape);
}

const struct unit *unit_at(const struct group_step *step, const int64_t begin[KVT_NAXES])
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

static int64_t count_tiles(const struct kvt_shape *shape, const struct kvt_tiling *tiling)
{
	int64_t n = 1;

	for (int a = 0; a < KVT_NAXES; a++)
		n *= (shape->n[a] + tiling->n[a] - 1) / tiling->n[a];
	return n;
}

/* In boxes that the sources have as they are. */
static int64_t count_direct(const struct transform *t, int group)
{
	const struct group_step *step = &t->step[group];
	int64_t n = 0;

	for (int64_t i = 0; step->direct && i < step->cut.nboxes; i++) {
		struct kvt_box box = kvt_cut_box(&step->cut, i);
		struct kvt_shape shape = kvt_box_shape(&box, 1);

		for (int w = 0; w < t->n; w++)
			if (kvt_dump_has_tiles(t->source[w], group, &box))
				n += count_tiles(&shape,
						 kvt_writer_tiling(t->writer[w], group));
	}
	return n;
}

/* The plan of one unit from the source's order to the destination's, proven. */
static enum kvt_status plan_unit(struct unit *unit, const struct kvt_layout *to,
				 const struct kvt_group *from, const struct kvt_box *box,
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

/* About a cache's size; larger where that decodes the tiles of a source less often. */
static enum kvt_status choose_cut(struct group_step *step, const struct transform *t,
				  int group, const struct kvt_group *to,
				  struct kvt_error *err)
{
	const struct kvt_dump *source = t->source[0];
	const struct kvt_group *from = kvt_dump_group(source, group);
	const struct kvt_tiling *src = kvt_dump_tiling(source, group);
	const struct kvt_tiling *dst = kvt_writer_tiling(t->writer[0], group);
	const struct dump_rows rows = { source, group };
	struct kvt_tiling row;
	struct kvt_cut least;

	step->cut = kvt_cut_choose(from, src, &to->layout, dst,
				   kvt_cut_limit(&t->run, t->n));
	if (src || !dump_leaf_tiling(source, group))
		return KVT_OK;
	row = *dump_leaf_tiling(source, group);
	row.n[KVT_AXIS_B] = 1;
	least = kvt_cut_choose(from, &row, &to->layout, dst, 0);
	return kvt_cut_gather(&step->cut, &least, kvt_cut_most(&t->run) / t->n, dump_rows,
			      &rows, err);
}

/* Are the tiles of what is read, all of it, and of what is written of one head? */
static bool by_heads(const struct transform *t, int group)
{
	const struct kvt_tiling *dst = kvt_writer_tiling(t->writer[0], group);
	bool single = dst && dst->n[KVT_AXIS_H] == 1 && !t->run.device;

	for (int i = 0; i < t->n; i++)
		single &= dump_tiles_of_a_head(t->source[i], group);
	return single;
}

/* As many heads of a wide box as are about a cache's size. */
static int64_t choose_strip(const struct transform *t, int group)
{
	const struct kvt_cut *cut = &t->step[group].cut;
	int64_t heads = cut->shape.n[KVT_AXIS_H], fit;

	if (heads < 2 || !cut->box_bytes || !by_heads(t, group))
		return heads;
	fit = kvt_cut_limit(&t->run, t->n) / (cut->box_bytes / heads);
	return fit < 1 ? 1 : fit < heads ? fit : heads;
}

static enum kvt_status plan_group(struct transform *t, int group,
				  const struct kvt_group *to, struct kvt_error *err)
{
	const struct kvt_group *from = &kvt_dump_snapshot(t->source[0])->group[group];
	const struct kvt_tiling *src = kvt_dump_tiling(t->source[0], group);
	const struct kvt_tiling *dst = kvt_writer_tiling(t->writer[0], group);
	struct group_step *step = &t->step[group];
	enum kvt_status status;
	bool direct = true, proven = true;

	if ((status = kvt_shape_nbytes(&step->data_bytes, &from->shape, err)))
		return status;
	for (int i = 0; i < t->n; i++) {
		const struct kvt_dump *source = t->source[i];

		direct &= same_extents(kvt_dump_tiling(source, group), dst);
		step->hold_cells |= kvt_dump_has_cells(source, group);
		proven &= kvt_dump_has_cells(source, group) &&
			  kvt_dump_cells_proven(source, group);
	}
	step->data_bytes *= t->n;
	if ((status = choose_cut(step, t, group, to, err)))
		return status;
	step->strip = choose_strip(t, group);
	step->ntiles = dst ? t->n * count_tiles(&from->shape, dst) : 0;
	step->nunits = dst && dst->n[KVT_AXIS_K] == 1 &&
		       from->shape.n[KVT_AXIS_K] == 2 ? 2 : 1;
	step->direct = direct && !t->spoil;
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
	step->make_cells = kvt_writer_has_cells(t->writer[0], group) &&
			   (!proven || t->spoil);
	step->hold_cells &= step->make_cells && !t->spoil;
	return KVT_OK;
}

/* Do all sources and writers agree with the first ones? */
static enum kvt_status check_alike(const struct transform *t, struct kvt_error *err)
{
	const struct kvt_snapshot *one = kvt_writer_snapshot(t->writer[0]);

	for (int i = 0; i < t->n; i++) {
		const struct kvt_snapshot *from = kvt_dump_snapshot(t->source[i]);
		const struct kvt_snapshot *to = kvt_writer_snapshot(t->writer[i]);
		bool alike = from->ngroups == one->ngroups && to->ngroups == one->ngroups;

		for (int g = 0; alike && g < one->ngroups; g++) {
			const struct kvt_tiling *a = kvt_writer_tiling(t->writer[0], g);
			const struct kvt_tiling *b = kvt_writer_tiling(t->writer[i], g);

			alike = !memcmp(&from->group[g].shape, &one->group[g].shape,
					sizeof(one->group[g].shape)) &&
				kvt_layout_equal(&from->group[g].layout,
						 &kvt_dump_group(t->source[0],
								 g)->layout) &&
				!memcmp(&to->group[g].shape, &one->group[g].shape,
					sizeof(one->group[g].shape)) &&
				kvt_layout_equal(&to->group[g].layout,
						 &one->group[g].layout) &&
				(a && b ? same_extents(a, b) : !a && !b);
		}
		if (!alike)
			return kvt_fail(err, KVT_USAGE,
					"output %d has another layout than the first",
					i + 1);
	}
	return KVT_OK;
}

enum kvt_status transform_plan(struct transform *t, struct kvt_error *err)
{
	const struct kvt_snapshot *to = kvt_writer_snapshot(t->writer[0]);
	enum kvt_status status = check_alike(t, err);

	for (int g = 0; !status && g < to->ngroups; g++)
		status = plan_group(t, g, &to->group[g], err);
	return status;
}

/* Is any tile of a source decoded? */
static bool decodes(const struct transform *t, int group)
{
	const struct group_step *step = &t->step[group];

	return !step->ntiles || tiles_that_move(step) < step->ntiles;
}

enum kvt_status transform_watch(struct transform *t, struct kvt_error *err)
{
	enum kvt_status status = seen_new(&t->seen, kvt_run_memory(&t->run) / SEEN_SHARE,
					  err);
	bool any = false;

	for (int g = 0; g < kvt_writer_snapshot(t->writer[0])->ngroups; g++)
		any |= decodes(t, g);
	for (int i = 0; !status && any && i < t->n; i++)
		status = seen_watch(t->seen, t->source[i], err);
	return status;
}
