/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut.c - how a destination is cut into boxes that are moved one at a time
 *
 * A box should be about as large as a cache, and its window of the source must fit
 * with it into a quarter of a thread's memory: boxes are halved until both hold.
 * Where the source is stored in tiles, narrow boxes decode the same tile again and
 * again: they are widened while they decode more than twice what one box would.
 */
#include "lib/ops/transfer/exec.h"

/* What the boxes of one layer need of the source. */
struct spread {
	int64_t blocks;			/* the most that one box needs */
	int64_t rows;			/* of tiles, over all boxes; 0: it is flat */
};

/* The group of the source that goes to this one. */
static int source_of(const struct kvt_sides *sides, int group)
{
	for (int p = 0; p < sides->transfer.ngroups; p++)
		if (sides->transfer.group[p].dst_group == group)
			return sides->transfer.group[p].src_group;
	return 0;
}

static const struct kvt_tiling *source_tiling_of(const struct kvt_sides *sides, int group)
{
	return kvt_dump_tiling(sides->src.file[0].reader, source_of(sides, group));
}

static void add_window(struct spread *s, const struct kvt_carry_window *w,
		       const struct kvt_tiling *tiling)
{
	int64_t n = tiling ? tiling->n[KVT_AXIS_B] : 0;

	s->blocks = w->nblocks > s->blocks ? w->nblocks : s->blocks;
	for (int64_t i = 0; n && i < w->nblocks; i++)
		s->rows += !i || w->block[i] / n != w->block[i - 1] / n;
}

static enum kvt_status spread_of(struct spread *out, const struct kvt_sides *sides,
				 int group, const struct kvt_cut *cut,
				 struct kvt_error *err)
{
	*out = (struct spread){ 1, 0 };
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
			add_window(out, &w, source_tiling_of(sides, group));
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
 * The window, as much again where it is read in pieces, and the box of all ranks,
 * as much again where it is written in pieces.
 */
static bool fits(const struct kvt_sides *sides, int group, const struct kvt_cut *cut,
		 const struct spread *s, int64_t limit)
{
	return window_bytes(sides, group, cut->layers, s->blocks) +
	       sides->dst.n * cut->box_bytes <= limit / 4;
}

/*
 * Where each box of a source in tiles reads most of it, wider ones decode less
 * twice.
 */
static enum kvt_status widen(struct kvt_cut *cut, struct spread *s,
			     const struct kvt_sides *sides, int group, int64_t limit,
			     struct kvt_error *err)
{
	int64_t nb = cut->shape.n[KVT_AXIS_B];
	struct kvt_cut wider = *cut, all = *cut;
	enum kvt_status status;
	struct spread least;

	kvt_cut_widen(&all, INT64_MAX);
	if (!s->rows || (status = spread_of(&least, sides, group, &all, err)))
		return s->rows ? status : KVT_OK;
	while (s->rows > 2 * least.rows && wider.blocks < nb) {
		struct spread more;

		kvt_cut_widen(&wider, 2 * wider.box_bytes);
		if ((status = spread_of(&more, sides, group, &wider, err)))
			return status;
		if (!fits(sides, group, &wider, &more, limit))
			break;
		*cut = wider;
		*s = more;
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
	struct spread s;

	for (room /= sides->dst.n; ; room /= 2) {
		*cut = kvt_cut_choose(g, NULL, &g->layout, tiling, room);
		if ((status = spread_of(&s, sides, group, cut, err)))
			return status;
		if (fits(sides, group, cut, &s, limit) || room < 2 ||
		    cut->box_bytes == last)
			break;
		last = cut->box_bytes;
	}
	if ((status = widen(cut, &s, sides, group, limit, err)))
		return status;
	work->count = cut->nboxes;
	work->buffer_bytes[1] = window_bytes(sides, group, cut->layers, s.blocks);
	for (int i = 0; i < sides->src.n; i++)
		work_needs_pieces(work, leaf_of(sides->src.file[i].reader), from,
				  cut->layers,
				  s.blocks);
	for (int i = 0; !sides->dst.made && i < sides->dst.n; i++)
		work_needs_tiles(work, kvt_dump_tiling(sides->dst.file[i].reader,
							 group));
	return KVT_OK;
}
