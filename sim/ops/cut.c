/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut.c - how a destination is cut into boxes that are moved one at a time
 *
 * A box should be about as large as a cache, and its window of the source must fit
 * with it into a quarter of a thread's memory: boxes are halved until both hold.
 * Where the source is stored in tiles, narrow boxes decode the same tile again and
 * again: kvt_cut_gather().
 */
#include "sim/ops/exec.h"

#include <stdlib.h>

/* The group of the source that goes to this one. */
static int source_of(const struct kvt_sides *sides, int group)
{
	for (int p = 0; p < sides->transfer.ngroups; p++)
		if (sides->transfer.group[p].dst_group == group)
			return sides->transfer.group[p].src_group;
	return 0;
}

/* The most blocks of the source that one box of a layer needs. */
static enum kvt_status window_blocks(int64_t *out, const struct kvt_sides *sides,
				     int group, const struct kvt_cut *cut,
				     struct kvt_error *err)
{
	*out = 1;
	for (int64_t i = 0; i < cut->nboxes; i++) {
		struct kvt_box box = kvt_cut_box(cut, i);

		if (box.begin[KVT_AXIS_L])
			break;		/* all layers have the same blocks */
		for (int p = 0; p < sides->transfer.ngroups; p++) {
			struct kvt_carry_box part = kvt_carry_box_of(sides, p, &box);
			struct kvt_carry_window w;
			enum kvt_status status;

			if (sides->transfer.group[p].dst_group != group || !part.nspans)
				continue;
			if ((status = kvt_carry_window_init(&w, &part, err)))
				return status;
			*out = w.nblocks > *out ? w.nblocks : *out;
			kvt_carry_window_free(&w);
		}
	}
	return KVT_OK;
}

static int64_t window_bytes(const struct kvt_sides *sides, int group, int64_t layers,
			    int64_t blocks)
{
	const struct kvt_snapshot *src = kvt_ranks_snapshot(&sides->src, 0);
	const struct kvt_shape *shape = &src->group[source_of(sides, group)].shape;
	int64_t nbytes = shape->elem * layers * blocks;

	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		nbytes *= shape->n[a];
	return nbytes;
}

static int64_t limit_of(int64_t mem_limit)
{
	return mem_limit ? mem_limit : 256 << 20;
}

int64_t kvt_carry_window_room(int64_t mem_limit)
{
	return limit_of(mem_limit) / 4;
}

/*
 * The window, as much again where it is read in parts, and the box of all ranks,
 * as much again where it is written in parts.
 */
static bool fits(const struct kvt_sides *sides, int group, const struct kvt_cut *cut,
		 int64_t blocks, int64_t limit)
{
	return window_bytes(sides, group, cut->layers, blocks) +
	       sides->dst.n * cut->box_bytes <= limit / 4;
}

/* ---- a source in tiles ------------------------------------------------- */

/* A group of the destination. */
struct arriving {
	const struct kvt_sides *sides;
	int group;
};

/* wanted_fn: the entries of all parts that write to the box. */
static struct target_span *wanted_in(int64_t *n, const void *context,
				     const struct kvt_box *box)
{
	const struct arriving *to = context;
	const struct kvt_transfer_plan *plan = &to->sides->transfer;
	struct target_span *out;
	int64_t room = 0;

	for (int p = 0; p < plan->ngroups; p++)
		room += kvt_carry_box_of(to->sides, p, box).nspans;
	*n = 0;
	if (!(out = calloc((size_t)room + 1, sizeof(*out))))
		return NULL;
	for (int p = 0; p < plan->ngroups; p++) {
		struct kvt_carry_box part = kvt_carry_box_of(to->sides, p, box);

		for (int64_t i = 0; plan->group[p].dst_group == to->group &&
				    i < part.nspans; i++)
			out[(*n)++].span.block = (uint32_t)part.span[i].src_block;
	}
	return out;
}

static int64_t tile_rows(const void *context, const struct kvt_cut *cut)
{
	const struct arriving *to = context;
	const struct kvt_dump *src = to->sides->src.file[0].reader;
	int from = source_of(to->sides, to->group);

	return rows_of_cut(cut, kvt_dump_group(src, from)->shape.n[KVT_AXIS_B],
			   kvt_dump_tiling(src, from)->n[KVT_AXIS_B], wanted_in, to);
}

/* Wider boxes where narrow ones decode the same tiles again, if these fit, too. */
static enum kvt_status gather(struct kvt_cut *cut, int64_t *blocks,
			      const struct kvt_sides *sides, int group,
			      const struct kvt_tiling *tiling, int64_t limit,
			      struct kvt_error *err)
{
	const struct arriving to = { sides, group };
	const struct kvt_group *g = &kvt_ranks_snapshot(&sides->dst, 0)->group[group];
	const struct kvt_tiling *src = kvt_dump_tiling(sides->src.file[0].reader,
						       source_of(sides, group));
	struct kvt_cut wider = *cut, least;
	enum kvt_status status;
	struct kvt_tiling row;
	int64_t more;

	if (!src)
		return KVT_OK;
	row = *src;
	row.n[KVT_AXIS_B] = 1;
	least = kvt_cut_choose(g, &row, &g->layout, tiling, 0);
	if ((status = kvt_cut_gather(&wider, &least, limit / 8 / sides->dst.n, tile_rows,
				     &to, err)) ||
	    (status = window_blocks(&more, sides, group, &wider, err)))
		return status;
	if (fits(sides, group, &wider, more, limit)) {
		*cut = wider;
		*blocks = more;
	}
	return KVT_OK;
}

enum kvt_status kvt_carry_cut(struct kvt_cut *cut, struct kvt_work *work,
			      const struct kvt_sides *sides, int group,
			      const struct kvt_tiling *tiling, int64_t mem_limit,
			      struct kvt_error *err)
{
	const struct kvt_group *g = &kvt_ranks_snapshot(&sides->dst, 0)->group[group];
	int64_t limit = limit_of(mem_limit), last = 0;
	int64_t room = limit / 8 < 4 << 20 ? limit / 8 : 4 << 20;
	int from = source_of(sides, group);
	enum kvt_status status;
	int64_t blocks;

	for (room /= sides->dst.n; ; room /= 2) {
		*cut = kvt_cut_choose(g, NULL, &g->layout, tiling, room);
		if ((status = window_blocks(&blocks, sides, group, cut, err)))
			return status;
		if (fits(sides, group, cut, blocks, limit) || room < 2 ||
		    cut->box_bytes == last)
			break;
		last = cut->box_bytes;
	}
	if ((status = gather(cut, &blocks, sides, group, tiling, limit, err)))
		return status;
	work->count = cut->nboxes;
	work->buffer_bytes[1] = window_bytes(sides, group, cut->layers, blocks);
	for (int i = 0; i < sides->src.n; i++)
		work_needs_ranges(work, leaf_of(sides->src.file[i].reader), from,
				  cut->layers, blocks);
	for (int i = 0; !sides->dst.made && i < sides->dst.n; i++)
		work_needs_tiles(work, kvt_dump_tiling(sides->dst.file[i].reader, group));
	return KVT_OK;
}
