/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut.c - how a group is cut into boxes that threads work on one at a time
 *
 * In: extents, tiles and orders of both sides, the most bytes of a box.  Out: layers and
 * blocks of a box.  Boxes end where tiles of both sides do, so that no tile is decoded or
 * encoded twice, and grow first along the axis in which flat files have their bytes
 * together; of two files that disagree, along both.
 */
#include "lib/dump/read.h"
#include "lib/layout/words.h"

/*
 * About the second level cache of two cores: large enough for long reads, small
 * enough that a box is still in the cache when it is encoded.
 */
enum { BOX_BYTES = 4 << 20 };

int64_t kvt_cut_limit(const struct kvt_run *run, int n)
{
	int64_t limit = run->memory ? run->memory / 4 : BOX_BYTES;

	return (limit < BOX_BYTES ? limit : BOX_BYTES) / n;
}

static int64_t grow(int64_t now, int64_t extent, int64_t factor)
{
	if (factor < 1)
		factor = 1;
	return now * factor < extent ? now * factor : (extent > now ? extent : now);
}

struct kvt_cut kvt_cut_choose(const struct kvt_group *group,
		      const struct kvt_tiling *src_tiling,
		      const struct kvt_layout *dst_layout,
		      const struct kvt_tiling *dst_tiling, int64_t box_limit)
{
	const struct kvt_shape *shape = &group->shape;
	struct kvt_cut cut = { .shape = *shape, .layers = 1, .blocks = 1 };
	int64_t limit = box_limit < BOX_BYTES ? box_limit : BOX_BYTES;
	int64_t page = shape->elem, nl = shape->n[KVT_AXIS_L];
	int64_t nb = shape->n[KVT_AXIS_B], room;
	bool from_blocks, to_blocks, by_layer, by_block;

	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		page *= shape->n[a];
	if (page < 1)
		page = 1;
	if (src_tiling) {
		cut.layers = src_tiling->n[KVT_AXIS_L];
		cut.blocks = src_tiling->n[KVT_AXIS_B];
	}
	if (dst_tiling) {
		cut.layers = kvt_lcm(cut.layers, dst_tiling->n[KVT_AXIS_L]);
		cut.blocks = kvt_lcm(cut.blocks, dst_tiling->n[KVT_AXIS_B]);
	}

	/* which way a flat side wants it; tiles do not care */
	from_blocks = kvt_order_blocks_first(&group->layout.plane[0]);
	to_blocks = dst_layout && kvt_order_blocks_first(&dst_layout->plane[0]);
	by_layer = (!src_tiling && from_blocks) ||
		   (dst_layout && !dst_tiling && to_blocks);
	by_block = (!src_tiling && !from_blocks) ||
		   (dst_layout && !dst_tiling && !to_blocks);
	room = limit / (page * cut.layers * cut.blocks);
	if (by_layer && by_block) {
		while (room >= 4 && (cut.layers < nl || cut.blocks < nb)) {
			cut.layers = grow(cut.layers, nl, 2);
			cut.blocks = grow(cut.blocks, nb, 2);
			room = limit / (page * cut.layers * cut.blocks);
		}
	} else if (by_layer) {
		cut.layers = grow(cut.layers, nl, room);
		cut.blocks = grow(cut.blocks, nb,
				  limit / (page * cut.layers * cut.blocks));
	} else {
		cut.blocks = grow(cut.blocks, nb, room);
		cut.layers = grow(cut.layers, nl,
				  limit / (page * cut.layers * cut.blocks));
	}
	/* growing stops at the extent, which need not be a multiple of a tile */
	cut.nboxes = ((nl + cut.layers - 1) / cut.layers) *
		     ((nb + cut.blocks - 1) / cut.blocks);
	cut.box_bytes = page * cut.layers * cut.blocks;
	return cut;
}

/* As 'least', but with 'across' boxes for the blocks, all of about one size. */
static struct kvt_cut cut_across(const struct kvt_cut *least, int64_t across)
{
	int64_t nl = least->shape.n[KVT_AXIS_L], nb = least->shape.n[KVT_AXIS_B];
	int64_t each = (nb + across - 1) / across, unit = least->blocks;
	struct kvt_cut cut = *least;

	if (each < 1)
		each = 1;	/* of no blocks */
	cut.blocks = (each + unit - 1) / unit * unit;
	cut.box_bytes = least->box_bytes / unit * cut.blocks;
	cut.nboxes = ((nl + cut.layers - 1) / cut.layers) *
		     ((nb + cut.blocks - 1) / cut.blocks);
	return cut;
}

enum kvt_status kvt_cut_gather(struct kvt_cut *cut, const struct kvt_cut *least,
			       int64_t box_limit, kvt_cut_rows_fn *rows,
			       const void *context, struct kvt_error *err)
{
	int64_t nb = least->shape.n[KVT_AXIS_B];
	int64_t across = (nb + least->blocks - 1) / least->blocks;
	struct kvt_cut wider = cut_across(least, 1);
	int64_t now = rows(context, cut), best = rows(context, &wider);

	while (best >= 0 && now > best + best / 4 && across > 1) {
		across = (across + 1) / 2;
		wider = cut_across(least, across);
		if (wider.box_bytes > box_limit)
			break;
		if (wider.box_bytes < cut->box_bytes)
			continue;	/* it is as large already, of more layers */
		*cut = wider;
		now = rows(context, cut);
	}
	return now < 0 || best < 0 ? kvt_no_memory(err, NULL) : KVT_OK;
}

struct kvt_box kvt_cut_box(const struct kvt_cut *cut, int64_t i)
{
	struct kvt_box box = kvt_box_whole(&cut->shape);
	int64_t across = (cut->shape.n[KVT_AXIS_B] + cut->blocks - 1) / cut->blocks;

	box.begin[KVT_AXIS_L] = i / across * cut->layers;
	box.begin[KVT_AXIS_B] = i % across * cut->blocks;
	box.end[KVT_AXIS_L] = box.begin[KVT_AXIS_L] + cut->layers;
	box.end[KVT_AXIS_B] = box.begin[KVT_AXIS_B] + cut->blocks;
	return box_cut(&box, &cut->shape);
}
