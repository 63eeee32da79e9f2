/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_held.c - data without a checksum of its own, held against content cells
 *
 * A repacking program may leave out the filters that have checksums, or make one run of
 * tiles.  The hashes of cells in the same file are of all that data, whatever its form:
 * so cells are read whole, hashed and compared before anybody sees them.  Without them
 * such data is refused.  Costs memory for another tile or box and for a page; no file
 * that kvtool writes comes here.
 */
#include "lib/dump/map.h"

#include <stdlib.h>
#include <string.h>

#include "lib/tile/hash.h"

static const struct kvt_group *group_of(const struct kvt_leaf *leaf, int group)
{
	return &leaf->snapshot.group[group];
}

/* Are these all slots and elements of the cells that the box has some of? */
static bool has_whole_cells(const struct kvt_box *box, const struct kvt_shape *shape)
{
	return !box->begin[KVT_AXIS_S] && box->end[KVT_AXIS_S] == shape->n[KVT_AXIS_S] &&
	       !box->begin[KVT_AXIS_D] && box->end[KVT_AXIS_D] == shape->n[KVT_AXIS_D];
}

static enum kvt_status refuse(const struct kvt_leaf *leaf, int group,
			      struct kvt_error *err)
{
	return kvt_fail(err, KVT_UNSUPPORTED,
			"%s: group %s: its data has no checksum: neither Fletcher-32, nor zstd frames with one, nor a content_digest of whole tiles; convert it again from where it came from, or repack it with Fletcher-32",
			leaf->path, group_of(leaf, group)->id);
}

static enum kvt_status differs(const struct kvt_leaf *leaf, int group,
			       const int64_t at[KVT_NAXES], struct kvt_error *err)
{
	const struct kvt_group *g = group_of(leaf, group);

	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: group %s: data is damaged at layer %lld, block %llu, head %lld, kv %lld: it has no checksum of its own, and does not match content_digest", leaf->path, g->id, LL(at[KVT_AXIS_L]),
			(unsigned long long)kvt_block_id(g, at[KVT_AXIS_B]),
			LL(g->head_start + at[KVT_AXIS_H]), LL(at[KVT_AXIS_K]));
}

/* ---- comparing ------------------------------------------------------------ */

/* One layer and block of 'box', into 'page' in cell order. */
static enum kvt_status compare_page(const struct kvt_leaf *leaf, int group,
				    const struct placed *src, const struct kvt_box *box,
				    uint8_t *page, const uint64_t *cells,
				    struct kvt_error *err)
{
	const struct kvt_shape *shape = &group_of(leaf, group)->shape;
	const int64_t cell = shape->n[KVT_AXIS_S] * shape->n[KVT_AXIS_D] * shape->elem;
	const struct placed dst = { &cell_layout, *box, page };
	enum kvt_status status = copy_box(NULL, &dst, src, box, shape->elem, err);
	int64_t at[KVT_NAXES];

	memcpy(at, box->begin, sizeof(at));
	for (; !status && at[KVT_AXIS_H] < box->end[KVT_AXIS_H]; at[KVT_AXIS_H]++)
		for (at[KVT_AXIS_K] = box->begin[KVT_AXIS_K];
		     !status && at[KVT_AXIS_K] < box->end[KVT_AXIS_K];
		     at[KVT_AXIS_K]++, page += cell)
			if (kvt_cell_hash(page, cell) != *cells++)
				status = differs(leaf, group, at, err);
	return status;
}

/* Whole cells of a box that 'src' has. */
static enum kvt_status compare(const struct kvt_leaf *leaf, int group,
			       const struct placed *src, const struct kvt_box *box,
			       struct kvt_error *err)
{
	const struct kvt_shape *shape = &group_of(leaf, group)->shape;
	const int64_t heads = box->end[KVT_AXIS_H] - box->begin[KVT_AXIS_H];
	const int64_t rows = heads * (box->end[KVT_AXIS_K] - box->begin[KVT_AXIS_K]);
	const int64_t pages = (box->end[KVT_AXIS_L] - box->begin[KVT_AXIS_L]) *
			      (box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B]);
	uint64_t *cells = calloc((size_t)(pages * rows) + 1, sizeof(*cells)), *at = cells;
	uint8_t *page = malloc((size_t)(rows * shape->n[KVT_AXIS_S] *
					shape->n[KVT_AXIS_D] * shape->elem) + 1);
	struct kvt_box one = *box;
	enum kvt_status status;

	if (!cells || !page)
		status = kvt_no_memory(err, leaf->path);
	else
		status = leaf->ops->fetch_cells(leaf, group, box, cells, err);
	for (int64_t l = box->begin[KVT_AXIS_L]; !status && l < box->end[KVT_AXIS_L]; l++)
		for (int64_t b = box->begin[KVT_AXIS_B];
		     !status && b < box->end[KVT_AXIS_B]; b++, at += rows) {
			box_take(&one, KVT_AXIS_L, l, 1);
			box_take(&one, KVT_AXIS_B, b, 1);
			status = compare_page(leaf, group, src, &one, page, at, err);
		}
	free(page);
	free(cells);
	return status;
}

/* ---- tiles and arrays ------------------------------------------------------ */

enum kvt_status held_tile(const struct kvt_leaf *leaf, int group,
			  const int64_t begin[KVT_NAXES], const struct kvt_stored *stored,
			  struct kvt_error *err)
{
	const struct kvt_tiling *tiling = leaf_tiling(leaf, group);
	const struct kvt_group *g = group_of(leaf, group);
	struct placed tile = { &g->layout, tile_box(tiling, begin), NULL };
	const struct kvt_box box = box_cut(&tile.box, &g->shape);
	struct kvt_codec_scratch *scratch = NULL;
	enum kvt_status status;

	if (!leaf->ops->has_cells(leaf, group) || !has_whole_cells(&box, &g->shape))
		return refuse(leaf, group, err);
	if ((status = kvt_codec_scratch_new(&scratch, err)))
		return status;
	if (!(tile.bytes = malloc((size_t)tiling->nbytes)))
		status = kvt_no_memory(err, leaf->path);
	else if (!(status = kvt_decode(tile.bytes, stored, tiling, scratch, err)))
		status = compare(leaf, group, &tile, &box, err);
	kvt_codec_scratch_free(scratch);
	free(tile.bytes);
	return status;
}

enum kvt_status held_box(const struct kvt_leaf *leaf, int group,
			 const struct kvt_box *box, void *buf, struct kvt_error *err)
{
	const struct kvt_group *g = group_of(leaf, group);
	const struct placed out = { &g->layout, *box, buf };
	struct placed whole = out;
	struct kvt_shape shape;
	enum kvt_status status;
	int64_t nbytes;

	if (!leaf->ops->has_cells(leaf, group))
		return refuse(leaf, group, err);
	if (has_whole_cells(box, &g->shape)) {
		status = leaf->ops->read_box(leaf, group, box, buf, err);
		return status ? status : compare(leaf, group, &out, box, err);
	}
	box_take(&whole.box, KVT_AXIS_S, 0, g->shape.n[KVT_AXIS_S]);
	box_take(&whole.box, KVT_AXIS_D, 0, g->shape.n[KVT_AXIS_D]);
	shape = kvt_box_shape(&whole.box, g->shape.elem);
	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)))
		return status;
	if (!(whole.bytes = malloc((size_t)nbytes + 1)))
		return kvt_no_memory(err, leaf->path);
	if (!(status = leaf->ops->read_box(leaf, group, &whole.box, whole.bytes, err)) &&
	    !(status = compare(leaf, group, &whole, &whole.box, err)))
		status = copy_box(NULL, &out, &whole, box, g->shape.elem, err);
	free(whole.bytes);
	return status;
}
