/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiles.c - what follows from the parts of a group: which stored tiles and cells stay
 *
 * Parts are disjoint, so counting is a proof: a box has stored tiles if its parts keep
 * as many tiles as it has, and every element comes from somewhere if the parts have as
 * many.  The tiles that a part keeps are a product along the axes, so each axis is
 * counted by itself.
 */
#include "lib/dump/map.h"

#include <string.h>

/* ---- tiles as runs of a box ---------------------------------------------------- */

/* Is there one of many in a tile, so that the order in it is that without the axis? */
static bool is_single(const struct kvt_tiling *tiling, const struct kvt_shape *shape,
		      enum kvt_axis axis)
{
	return (axis == KVT_AXIS_L || axis == KVT_AXIS_H || axis == KVT_AXIS_K) &&
	       tiling->n[axis] == 1 && shape->n[axis] > 1;
}

struct kvt_layout tile_runs(const struct kvt_layout *layout,
			    const struct kvt_tiling *tiling,
			    const struct kvt_shape *shape)
{
	struct kvt_layout out = { .nplanes = 1 };
	const struct kvt_order *from = &layout->plane[0];
	struct kvt_order *to = &out.plane[0];

	if (layout->nplanes != 1)
		return *layout;
	for (int inner = 0; inner < 2; inner++)
		for (int i = 0; i < from->nparts; i++)
			if (is_single(tiling, shape, from->part[i].axis) == !inner)
				to->part[to->nparts++] = from->part[i];
	return out;
}

uint8_t *tile_run_at(const struct placed *box, const struct kvt_layout *runs,
		     const struct kvt_tiling *tiling, const int64_t begin[KVT_NAXES])
{
	struct kvt_shape shape = kvt_box_shape(&box->box, tiling->elem);
	int64_t at[KVT_NAXES];
	struct kvt_views views;
	bool inside = false;

	if (runs->nplanes != 1 || !kvt_layout_equal(box->layout, runs))
		return NULL;
	for (int i = 0; i < runs->plane[0].nparts; i++) {
		enum kvt_axis a = runs->plane[0].part[i].axis;

		/* one of each, then a range, then all of each */
		if (!inside && tiling->n[a] == 1)
			continue;
		if (inside && tiling->n[a] != shape.n[a])
			return NULL;
		inside = true;
	}
	for (int a = 0; a < KVT_NAXES; a++) {
		at[a] = begin[a] - box->box.begin[a];
		if (at[a] < 0 || at[a] + tiling->n[a] > shape.n[a])
			return NULL;
	}
	if (kvt_layout_views(&views, runs, &box->box, tiling->elem, NULL))
		return NULL;
	return box->bytes + kvt_views_at(&views, at);
}

/* ---- tiles as cells ------------------------------------------------------------ */

const struct kvt_layout cell_layout = {
	.nplanes = 1,
	.plane = { { .nparts = 6, .part = {
		{ KVT_AXIS_L, KVT_WHOLE, 0 }, { KVT_AXIS_B, KVT_WHOLE, 0 },
		{ KVT_AXIS_H, KVT_WHOLE, 0 }, { KVT_AXIS_K, KVT_WHOLE, 0 },
		{ KVT_AXIS_S, KVT_WHOLE, 0 }, { KVT_AXIS_D, KVT_WHOLE, 0 },
	} } },
};

bool tile_in_cell_order(const struct kvt_layout *layout, const struct kvt_tiling *tiling)
{
	const struct kvt_box box = tile_box(tiling, (const int64_t[KVT_NAXES]){ 0 });
	struct kvt_views tile, cells;
	struct kvt_plans plans;

	return layout->nplanes == 1 &&
	       !kvt_layout_views(&tile, layout, &box, tiling->elem, NULL) &&
	       !kvt_layout_views(&cells, &cell_layout, &box, tiling->elem, NULL) &&
	       !kvt_plans_init(&plans, &cells, &tile, NULL) && plans.count == 1 &&
	       !plans.plan[0].nloops && plans.plan[0].run == tiling->nbytes;
}

/* ---- tiles of blocks of another size ------------------------------------------ */

/* Inside a tile, are the slots of neighbouring blocks neighbours? */
static bool joins_blocks(const struct kvt_layout *layout, const struct kvt_tiling *tiling)
{
	struct kvt_shape shape = { .elem = tiling->elem };

	memcpy(shape.n, tiling->n, sizeof(shape.n));
	shape.n[KVT_AXIS_B] = shape.n[KVT_AXIS_S] = 2;
	return !splits_of(layout, tiling->elem).most &&
	       kvt_layout_predicates(layout, &shape).kernel_split_neutral;
}

/* Are the blocks begin to end full of slots that follow each other there? */
static bool in_a_row(const struct map_spans *map, int64_t begin, int64_t end,
		     int64_t slots, int64_t size)
{
	const struct map_span *span = map->span + map->first[begin];
	int64_t row = (int64_t)span->block * size + span->slot;

	for (int64_t b = begin; b < end; b++) {
		int64_t at = 0;

		for (int64_t i = map->first[b]; i < map->first[b + 1]; i++) {
			span = &map->span[i];
			if (span->at != at || (int64_t)span->block * size +
					      span->slot != row)
				return false;
			at += span->count;
			row += span->count;
		}
		if (at != slots)
			return false;
	}
	return true;
}

static bool spans_keep_tiles(struct kvt_tiling *out, const struct map_part *part,
		      const struct kvt_group *here)
{
	const struct map_spans *map = part->spans;
	const struct kvt_group *there = part_group(part);
	const struct kvt_tiling *own = part_tiling(part);
	int64_t size = there->shape.n[KVT_AXIS_S], slots = here->shape.n[KVT_AXIS_S];
	int64_t rows, step, nblocks = here->shape.n[KVT_AXIS_B];

	if (!own || own->n[KVT_AXIS_S] != size || !joins_blocks(&there->layout, own) ||
	    !kvt_layout_equal(&there->layout, &here->layout))
		return false;
	rows = own->n[KVT_AXIS_B] * size;
	if (rows % slots)
		return false;
	step = rows / slots;
	for (int64_t b = 0; b < nblocks; b += step) {
		const struct map_span *first = map->span + map->first[b];
		int64_t end = b + step < nblocks ? b + step : nblocks;
		int64_t left = there->shape.n[KVT_AXIS_B] - first->block;

		if (map->first[b] == map->first[b + 1] || first->at || first->slot ||
		    first->block % own->n[KVT_AXIS_B])
			return false;
		if (left > own->n[KVT_AXIS_B])
			left = own->n[KVT_AXIS_B];
		if (left * size != (end - b) * slots ||
		    !in_a_row(map, b, end, slots, size))
			return false;
	}
	*out = *own;
	out->n[KVT_AXIS_B] = step;
	out->n[KVT_AXIS_S] = slots;
	return true;
}

/* ---- what follows from the parts ------------------------------------------- */

static bool is_all(const struct kvt_segment *segment, int64_t here, int64_t there)
{
	return !segment->at && !segment->from && segment->count == here &&
	       segment->count == there;
}

static bool has_whole_content(const struct map_part *part, const struct kvt_group *here)
{
	return part->nchannels == 1 &&
	       is_all(&part->channels[0], here->shape.n[KVT_AXIS_D],
		      part_group(part)->shape.n[KVT_AXIS_D]);
}

static int64_t count_list(const struct map_list *list, int64_t n)
{
	int64_t count = 0;

	if (!list)
		return n;
	for (int64_t i = 0; i < list->n; i++)
		count += list->at[i] >= 0;
	return count;
}

/* Elements of the group that the part has. */
static int64_t count_elements(const struct map_part *part, const struct kvt_group *here)
{
	const int64_t *n = here->shape.n;
	int64_t layers = count_list(part->layers, n[KVT_AXIS_L]), slots = 0;
	int64_t channels = 0;

	if (!part->spans)
		slots = count_list(part->blocks, n[KVT_AXIS_B]) * n[KVT_AXIS_S];
	for (int64_t i = 0; part->spans && i < part->spans->first[part->spans->nblocks];
	     i++)
		slots += part->spans->span[i].count;
	for (int i = 0; i < part->nchannels; i++)
		channels += part->channels[i].count;
	return layers * slots * part->heads.count * part->kv.count * channels;
}

/*
 * What is covered by other parts, or was left out by a list: it would say of its leaf
 * that it has elements, and stand in the way of the others' tiles and cells.
 */
static void drop_empty_parts(struct map_group *map, const struct kvt_group *here)
{
	int kept = 0;

	for (int p = 0; p < map->nparts; p++) {
		if (count_elements(&map->part[p], here))
			map->part[kept++] = map->part[p];
		else
			map_part_free(&map->part[p]);
	}
	map->nparts = kept;
}

static bool is_whole(const struct map_group *map, const struct kvt_group *here)
{
	const struct map_part *part = map->part;
	const int64_t *n;

	if (map->nparts != 1 || part->layers || part->blocks || part->spans)
		return false;
	n = part_group(part)->shape.n;
	return is_all(&part->heads, here->shape.n[KVT_AXIS_H], n[KVT_AXIS_H]) &&
	       is_all(&part->kv, here->shape.n[KVT_AXIS_K], n[KVT_AXIS_K]) &&
	       has_whole_content(part, here) &&
	       here->shape.n[KVT_AXIS_L] == n[KVT_AXIS_L] &&
	       here->shape.n[KVT_AXIS_B] == n[KVT_AXIS_B] &&
	       here->shape.n[KVT_AXIS_S] == n[KVT_AXIS_S];
}

static bool segment_keeps_tiles(const struct kvt_segment *s, int64_t here, int64_t there,
				int64_t tile)
{
	bool ends = s->at + s->count == here && s->from + s->count == there;

	return s->at % tile == 0 && s->from % tile == 0 && (s->count % tile == 0 || ends);
}

/* What tiles of the leaf are here, if lists of layers and blocks let them be. */
static void find_tiling(struct map_part *part, const struct kvt_group *here)
{
	const struct kvt_tiling *own = part_tiling(part);
	const struct kvt_group *there = part_group(part);
	const int64_t *n;

	part->tiling.nbytes = 0;
	if (!own || !has_whole_content(part, here) ||
	    !kvt_layout_equal(&there->layout, &here->layout))
		return;
	n = own->n;
	if (!segment_keeps_tiles(&part->heads, here->shape.n[KVT_AXIS_H],
				 there->shape.n[KVT_AXIS_H], n[KVT_AXIS_H]) ||
	    !segment_keeps_tiles(&part->kv, here->shape.n[KVT_AXIS_K],
				 there->shape.n[KVT_AXIS_K], n[KVT_AXIS_K]))
		return;
	if (!part->spans)
		part->tiling = *own;
	else if (!spans_keep_tiles(&part->tiling, part, here))
		part->tiling.nbytes = 0;
}

static bool same_tiles(const struct kvt_tiling *a, const struct kvt_tiling *b)
{
	return a->nbytes && b->nbytes && !memcmp(a->n, b->n, sizeof(a->n)) &&
	       kvt_tiling_same_codec(a, b);
}

static void seal_group(struct map_group *map, const struct kvt_group *here)
{
	const int64_t *n = here->shape.n;
	int64_t all = 1, has = 0;

	for (int a = 0; a < KVT_NAXES; a++)
		all *= n[a];
	if (all)
		drop_empty_parts(map, here);
	map->has_cells = map->cells_proven = map->nparts > 0;
	for (int p = 0; p < map->nparts; p++) {
		struct map_part *part = &map->part[p];
		const struct kvt_leaf *leaf = part->leaf;

		has += count_elements(part, here);
		find_tiling(part, here);
		if (!map->tiling.nbytes)
			map->tiling = part->tiling;
		/* a cell is of a block: none of blocks of another size */
		map->has_cells &= leaf->ops->has_cells && !part->spans &&
				  leaf->ops->has_cells(leaf, part->group) &&
				  has_whole_content(part, here);
		map->cells_proven &= leaf->proven.cells[part->group];
	}
	map->sparse = has < all;
	map->has_cells &= !map->sparse;
	map->cells_proven &= map->has_cells;
	map->whole = is_whole(map, here);
}

void map_seal(struct kvt_dump *dump, const struct kvt_snapshot *s)
{
	for (int g = 0; g < s->ngroups; g++)
		seal_group(&dump->group[g], &s->group[g]);
}

/* ---- which tiles are tiles of leaves ---------------------------------------- */

static int64_t first_of(int64_t begin, int64_t tile)
{
	return (begin + tile - 1) / tile * tile;
}

/* Of tiles that begin in [begin, end), those that the list leaves as full as they are. */
static int64_t kept_by_list(const struct map_list *list, int64_t begin, int64_t end,
			    int64_t here, int64_t there, int64_t tile)
{
	int64_t kept = 0;

	for (int64_t i = first_of(begin, tile); i < end; i += tile) {
		int64_t first = list_at(list, i);
		int64_t want = here - i < tile ? here - i : tile;
		int64_t have = there - first < tile ? there - first : tile;
		bool keeps = first >= 0 && first % tile == 0 && want == have;

		for (int64_t j = 1; keeps && list && j < want; j++)
			keeps = list->at[i + j] == first + j;
		kept += keeps;
	}
	return kept;
}

static int64_t kept_by_segment(const struct kvt_segment *s, int64_t begin, int64_t end,
			       int64_t tile)
{
	int64_t b = begin > s->at ? begin : s->at;
	int64_t e = end < s->at + s->count ? end : s->at + s->count;

	b = first_of(b, tile);
	return b < e ? (e - b + tile - 1) / tile : 0;
}

static int64_t tiles_between(int64_t begin, int64_t end, int64_t tile)
{
	begin = first_of(begin, tile);
	return begin < end ? (end - begin + tile - 1) / tile : 0;
}

bool map_has_tiles(const struct map_group *map, const struct kvt_group *here,
		   const struct kvt_box *box)
{
	static const enum kvt_axis axes[] = { KVT_AXIS_L, KVT_AXIS_B, KVT_AXIS_H,
					      KVT_AXIS_K };
	const int64_t *b = box->begin, *e = box->end, *n = map->tiling.n;
	int64_t all = 1, kept = 0;

	if (!map->tiling.nbytes || map->whole)
		return map->tiling.nbytes > 0;
	for (int i = 0; i < 4; i++)
		all *= tiles_between(b[axes[i]], e[axes[i]], n[axes[i]]);
	for (int p = 0; p < map->nparts; p++) {
		const struct map_part *part = &map->part[p];
		const int64_t *there = part_group(part)->shape.n;
		int64_t blocks;

		if (!same_tiles(&part->tiling, &map->tiling))
			continue;
		/* of blocks that are spans all tiles stay, or none */
		blocks = part->spans ? tiles_between(b[KVT_AXIS_B], e[KVT_AXIS_B],
						     n[KVT_AXIS_B]) :
			 kept_by_list(part->blocks, b[KVT_AXIS_B], e[KVT_AXIS_B],
				      here->shape.n[KVT_AXIS_B], there[KVT_AXIS_B],
				      n[KVT_AXIS_B]);
		kept += blocks *
			kept_by_list(part->layers, b[KVT_AXIS_L], e[KVT_AXIS_L],
				     here->shape.n[KVT_AXIS_L], there[KVT_AXIS_L],
				     n[KVT_AXIS_L]) *
			kept_by_segment(&part->heads, b[KVT_AXIS_H], e[KVT_AXIS_H],
					n[KVT_AXIS_H]) *
			kept_by_segment(&part->kv, b[KVT_AXIS_K], e[KVT_AXIS_K],
					n[KVT_AXIS_K]);
	}
	return kept == all;
}
