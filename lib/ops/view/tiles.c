/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiles.c - how much of the file each layer takes, where tiles are compressed
 *
 * An index of the file says how large a tile is: none is read.  A row is what one tile
 * has of the axis of layers, or several of these where there are many; of its tiles
 * every so many-th is looked up, so that time does not grow with the dump.
 */
#include <stdlib.h>

#include "lib/kvt/tile.h"
#include "lib/ops/view/view.h"

enum { MOST_ROWS = 128 };

/* Tiles along each axis, and of all axes but that of layers. */
struct grid {
	int64_t n[KVT_NAXES], each;
};

static struct grid grid_of(const struct kvt_group *group, const struct kvt_tiling *tiling)
{
	struct grid grid = { .each = 1 };

	for (int a = 0; a < KVT_NAXES; a++) {
		grid.n[a] = (group->shape.n[a] + tiling->n[a] - 1) / tiling->n[a];
		if (a != KVT_AXIS_L)
			grid.each *= grid.n[a];
	}
	return grid;
}

/* The i-th tile of row 'l' of the grid. */
static void begin_of(int64_t begin[KVT_NAXES], const struct grid *grid,
		     const struct kvt_tiling *tiling, int64_t l, int64_t i)
{
	for (int a = KVT_NAXES - 1; a >= 0; a--) {
		begin[a] = l * tiling->n[a];
		if (a == KVT_AXIS_L)
			continue;
		begin[a] = i % grid->n[a] * tiling->n[a];
		i /= grid->n[a];
	}
}

static int64_t plain_bytes(const struct kvt_group *group, const struct kvt_tiling *tiling,
			   const int64_t begin[KVT_NAXES])
{
	int64_t bytes = group->shape.elem;

	for (int a = 0; a < KVT_NAXES; a++) {
		int64_t left = group->shape.n[a] - begin[a];

		bytes *= left < tiling->n[a] ? left : tiling->n[a];
	}
	return bytes;
}

static enum kvt_status look_up(struct kvt_view_row *row, const struct kvt_dump *dump,
			       int g, const int64_t begin[KVT_NAXES],
			       struct kvt_error *err)
{
	struct kvt_extent extent;
	enum kvt_status status = kvt_find_tile(dump, g, begin, &extent, err);

	if (status)
		return status;
	row->least = row->seen && row->least < extent.nbytes ? row->least : extent.nbytes;
	row->most = row->most > extent.nbytes ? row->most : extent.nbytes;
	row->seen++;
	row->stored += extent.nbytes;
	row->plain += plain_bytes(kvt_dump_group(dump, g), kvt_dump_tiling(dump, g),
				  begin);
	return KVT_OK;
}

/* Rows [first, end) of the grid; 'most' of their tiles. */
static enum kvt_status fill_row(struct kvt_view_row *row, const struct kvt_dump *dump,
				int g, const struct grid *grid, int64_t first,
				int64_t end, int64_t most, struct kvt_error *err)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(dump, g);
	struct kvt_view_axis chosen = { (end - first) * grid->each, 0 };
	enum kvt_status status = KVT_OK;

	row->layer = first * tiling->n[KVT_AXIS_L];
	row->tiles = chosen.total;
	chosen.n = chosen.total < most ? chosen.total : most;
	for (int64_t i = 0; !status && i < chosen.n; i++) {
		int64_t begin[KVT_NAXES], at = kvt_view_member(&chosen, i);

		begin_of(begin, grid, tiling, first + at / grid->each, at % grid->each);
		status = look_up(row, dump, g, begin, err);
	}
	return status;
}

enum kvt_status kvt_view_tiles(struct kvt_view_tiles *tiles, const struct kvt_dump *dump,
			       int g, int64_t most, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct kvt_view_axis rows;
	struct grid grid;

	*tiles = (struct kvt_view_tiles){ kvt_dump_tiling(dump, g), 0, NULL };
	if (!tiles->tiling)
		return KVT_OK;
	grid = grid_of(kvt_dump_group(dump, g), tiles->tiling);
	if (!grid.each || !grid.n[KVT_AXIS_L])
		return KVT_OK;
	rows.total = grid.n[KVT_AXIS_L];
	rows.n = rows.total < MOST_ROWS ? rows.total : MOST_ROWS;
	most = most / rows.n > 1 ? most / rows.n : 1;
	if (!(tiles->row = calloc((size_t)rows.n, sizeof(*tiles->row))))
		return kvt_no_memory(err, NULL);
	while (!status && tiles->nrows < rows.n) {
		int64_t i = tiles->nrows++;

		status = fill_row(&tiles->row[i], dump, g, &grid,
				  kvt_view_member(&rows, i),
				  kvt_view_member(&rows, i + 1), most, err);
	}
	return status;
}

void kvt_view_tiles_free(struct kvt_view_tiles *tiles)
{
	free(tiles->row);
	*tiles = (struct kvt_view_tiles){ 0 };
}
