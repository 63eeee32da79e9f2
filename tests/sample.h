/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample.h - dumps for tests: every element is a hash of its coordinates, so
 * that whatever reads it can tell what should be there
 *
 * It needs no cmocka, as fuzzers have none; unit tests have it by tests/unit/fixture.h.
 */
#ifndef KVT_TESTS_SAMPLE_H
#define KVT_TESTS_SAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "lib/kvt/tile.h"
#include "lib/kvt/write.h"
#include "tests/temporary.h"

/*
 * The bits of the element at index[], low bytes first.  Of types of several bytes no
 * value is NaN: a bit of the exponent is not set.
 */
static inline uint64_t sample_element(int group, const int64_t index[KVT_NAXES])
{
	uint64_t x = (uint64_t)group + 1;

	for (int a = 0; a < KVT_NAXES; a++) {
		x = (x ^ (uint64_t)index[a]) * 0x9e3779b97f4a7c15u;
		x ^= x >> 29;
	}
	return x * 0xbf58476d1ce4e5b9u >> 3 & 0xfbfffbfffbfffbffu;
}

/* The next index inside 'box', D fastest; false after the last. */
static inline bool sample_next(int64_t index[KVT_NAXES],
			       const struct kvt_box *box)
{
	for (int a = KVT_NAXES - 1; a >= 0; a--) {
		if (++index[a] < box->end[a])
			return true;
		index[a] = box->begin[a];
	}
	return false;
}

static inline int64_t sample_count(const struct kvt_box *box)
{
	int64_t n = 1;

	for (int a = 0; a < KVT_NAXES; a++)
		n *= box->end[a] - box->begin[a];
	return n;
}

/*
 * Fills (or, with 'check', compares) the dense buffer of 'box'; what lies
 * beyond the shape is padding, zero.  False if something differs.
 */
static inline bool sample_box(uint8_t *buf, const struct kvt_group *group, int g,
			      const struct kvt_box *box, bool check)
{
	int64_t index[KVT_NAXES], at[KVT_NAXES];
	size_t elem = (size_t)group->shape.elem;
	struct kvt_views views;

	if (kvt_layout_views(&views, &group->layout, box, group->shape.elem, NULL))
		return false;
	if (sample_count(box) == 0)
		return true;
	memcpy(index, box->begin, sizeof(index));
	do {
		const struct kvt_view *view = &views.view[0];
		uint64_t bits = sample_element(g, index);
		uint8_t *p;

		for (int a = 0; a < KVT_NAXES; a++) {
			at[a] = index[a] - box->begin[a];
			if (index[a] >= group->shape.n[a])
				bits = 0;
		}
		if (views.count == 2) {
			view = &views.view[at[KVT_AXIS_K]];
			at[KVT_AXIS_K] = 0;
		}
		p = buf + kvt_view_at(view, at);
		if (check && memcmp(p, &bits, elem)) {
			fprintf(stderr,
				"group %d: wrong at l %d b %d s %d h %d k %d d %d\n",
				g, (int)index[0], (int)index[1], (int)index[2],
				(int)index[3], (int)index[4], (int)index[5]);
			return false;
		}
		if (!check)
			memcpy(p, &bits, elem);
	} while (sample_next(index, box));
	return true;
}

/* XXH64 of one cell: its slots, each with its content. */
static inline uint64_t sample_cell(const struct kvt_group *group, int g,
				   int64_t l, int64_t b, int64_t h, int64_t k)
{
	struct kvt_box box = {
		.begin = { l, b, 0, h, k, 0 },
		.end = { l + 1, b + 1, group->shape.n[KVT_AXIS_S], h + 1, k + 1,
			 group->shape.n[KVT_AXIS_D] },
	};
	XXH64_state_t *state = XXH64_createState();
	int64_t index[KVT_NAXES];
	uint64_t value;

	XXH64_reset(state, 0);
	memcpy(index, box.begin, sizeof(index));
	do {
		uint64_t bits = sample_element(g, index);

		XXH64_update(state, &bits, (size_t)group->shape.elem);
	} while (sample_next(index, &box));
	value = XXH64_digest(state);
	XXH64_freeState(state);
	return value;
}

/* The box that the tile at begin[] covers, padding included. */
static inline struct kvt_box sample_tile_box(const struct kvt_tiling *tiling,
					     const int64_t begin[KVT_NAXES])
{
	struct kvt_box box;

	for (int a = 0; a < KVT_NAXES; a++) {
		box.begin[a] = begin[a];
		box.end[a] = begin[a] + tiling->n[a];
	}
	return box;
}

/* The next tile, in the order of the axes; false after the last. */
static inline bool sample_next_tile(int64_t begin[KVT_NAXES],
				    const struct kvt_tiling *tiling,
				    const struct kvt_shape *shape)
{
	for (int a = KVT_NAXES - 1; a >= 0; a--) {
		begin[a] += tiling->n[a];
		if (begin[a] < shape->n[a])
			return true;
		begin[a] = 0;
	}
	return false;
}

static inline bool sample_is_empty(const struct kvt_shape *shape)
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (shape->n[a] == 0)
			return true;
	return false;
}

/* ---- writing ------------------------------------------------------------ */

static inline enum kvt_status
sample_store_tile(struct kvt_writer *writer, int g, const int64_t begin[KVT_NAXES],
		  const struct kvt_stored *stored, struct kvt_error *err)
{
	int64_t offset = 0;
	enum kvt_status status = kvt_place_tile(writer, g, begin, stored, &offset, err);

	return status ? status : kvt_write_tiles(writer, stored->bytes, stored->nbytes,
						 offset, err);
}

static inline enum kvt_status
sample_write_tiles(struct kvt_writer *writer, int g,
		   const struct kvt_group *group, struct kvt_error *err)
{
	const struct kvt_tiling *tiling = kvt_writer_tiling(writer, g);
	struct kvt_stored stored = { .capacity = kvt_stored_bound(tiling) };
	uint8_t *tile = malloc((size_t)tiling->nbytes);
	struct kvt_codec_scratch *scratch = NULL;
	int64_t begin[KVT_NAXES] = { 0 };
	enum kvt_status status = kvt_codec_scratch_new(&scratch, err);

	stored.bytes = malloc((size_t)stored.capacity);
	do {
		struct kvt_box box = sample_tile_box(tiling, begin);

		if (status)
			break;
		if (!sample_box(tile, group, g, &box, false))
			status = kvt_fail(err, KVT_BAD_INPUT, "no such tile");
		else if (!(status = kvt_encode(&stored, tile, tiling, scratch,
					       err)))
			status = sample_store_tile(writer, g, begin, &stored, err);
	} while (!status && sample_next_tile(begin, tiling, &group->shape));
	kvt_codec_scratch_free(scratch);
	free(stored.bytes);
	free(tile);
	return status;
}

static inline enum kvt_status
sample_write_cells(struct kvt_writer *writer, int g,
		   const struct kvt_group *group, struct kvt_error *err)
{
	struct kvt_box box = kvt_box_whole(&group->shape);
	const int64_t *n = group->shape.n;
	int64_t count = n[KVT_AXIS_L] * n[KVT_AXIS_B] * n[KVT_AXIS_H] *
			n[KVT_AXIS_K], i = 0;
	uint64_t *cells = malloc((size_t)count * sizeof(*cells));
	enum kvt_status status;

	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++)
		for (int64_t b = 0; b < n[KVT_AXIS_B]; b++)
			for (int64_t h = 0; h < n[KVT_AXIS_H]; h++)
				for (int64_t k = 0; k < n[KVT_AXIS_K]; k++)
					cells[i++] = sample_cell(group, g, l, b,
								 h, k);
	status = kvt_store_cells(writer, g, &box, cells, err);
	free(cells);
	return status;
}

static inline enum kvt_status
sample_write_group(struct kvt_writer *writer, int g,
		   const struct kvt_group *group, struct kvt_error *err)
{
	struct kvt_box box = kvt_box_whole(&group->shape);
	enum kvt_status status = KVT_OK;
	int64_t nbytes = 0;

	if (sample_is_empty(&group->shape))
		return KVT_OK;
	if (kvt_writer_tiling(writer, g)) {
		status = sample_write_tiles(writer, g, group, err);
	} else if (!(status = kvt_shape_nbytes(&nbytes, &group->shape, err))) {
		uint8_t *buf = malloc((size_t)nbytes);

		sample_box(buf, group, g, &box, false);
		status = kvt_write_box(writer, g, &box, buf, err);
		free(buf);
	}
	if (!status && kvt_writer_has_cells(writer, g))
		status = sample_write_cells(writer, g, group, err);
	return status;
}

/* Writes all of 'snapshot' to 'path' and commits it. */
static inline enum kvt_status
sample_write(const char *path, const struct kvt_snapshot *snapshot,
	     const struct kvt_create_options *options, struct kvt_error *err)
{
	struct kvt_writer *writer = NULL;
	enum kvt_status status;

	if ((status = kvt_create(&writer, path, options, snapshot, err)))
		return status;
	for (int g = 0; g < snapshot->ngroups && !status; g++)
		status = sample_write_group(writer, g, &snapshot->group[g], err);
	if (!status)
		status = kvt_commit(writer, err);
	kvt_close_writer(writer);
	return status;
}

/* ---- one group ---------------------------------------------------------- */

/* A group of this layout and type; KVT_BAD_INPUT if there is none. */
static inline enum kvt_status
sample_group(struct kvt_group *out, const char *layout, const char *dtype,
	     const int64_t n[KVT_NAXES], struct kvt_error *err)
{
	struct kvt_group group = { .id = "g0", .kind = KVT_FULL_ATTENTION };
	enum kvt_status status;

	if ((status = kvt_layout_parse(&group.layout, layout, err)))
		return status;
	if (!(group.dtype = kvt_dtype_find(dtype)))
		return kvt_fail(err, KVT_USAGE, "unknown dtype '%s'", dtype);
	memcpy(group.shape.n, n, sizeof(group.shape.n));
	group.shape.elem = group.dtype->elem;
	group.block_size = n[KVT_AXIS_S];
	group.tokens_per_slot = 1;
	group.total_heads = n[KVT_AXIS_H];
	group.replication = 1;
	*out = group;
	return KVT_OK;
}

#endif
