/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - what a source is made of, and its stored tiles and cells */
#include "cli/source.h"

#include <stdlib.h>
#include <string.h>

struct source source_whole(struct kvt_reader **reader)
{
	return (struct source){ .nreaders = 1, .reader = reader, .whole = true };
}

void source_free(struct source *source)
{
	if (source->whole)
		return;
	kvt_snapshot_free(&source->snapshot);
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		free(source->group[g].layer);
		free(source->group[g].block);
		free(source->group[g].first);
		free(source->group[g].span);
		free(source->group[g].part);
	}
	memset(source->group, 0, sizeof(source->group));
}

const struct kvt_snapshot *source_snapshot(const struct source *source)
{
	return source->whole ? kvt_reader_snapshot(source->reader[0]) :
			       &source->snapshot;
}

/* What the readers have stored of such a group is not wanted. */
static bool is_overlaid(const struct source *source, int group)
{
	return source->overlay && source->overlay->group == group;
}

const struct kvt_tiling *source_tiling(const struct source *source, int group)
{
	if (is_overlaid(source, group))
		return NULL;
	if (source->whole)
		return kvt_reader_tiling(source->reader[0], group);
	return source->group[group].tiling.nbytes ? &source->group[group].tiling :
						    NULL;
}

bool source_has_cells(const struct source *source, int group)
{
	if (is_overlaid(source, group))
		return false;
	return source->whole ? kvt_reader_has_cells(source->reader[0], group) :
			       source->group[group].has_cells;
}

bool source_is_scattered(const struct source *source, int group)
{
	const struct source_group *map = &source->group[group];

	return !source->whole && map->first &&
	       kvt_reader_tiling(reader_of(source, map->part), map->from);
}

/* ---- which tiles are tiles of the source -------------------------------- */

/* Is each tile of a part of the list one of the reader, as full as it is there? */
static bool list_keeps_tiles(const int64_t *map, int64_t begin, int64_t end,
			     int64_t count, int64_t extent, int64_t tile)
{
	for (int64_t i = begin; i < end; i += tile) {
		int64_t want = count - i < tile ? count - i : tile;
		int64_t have = extent - map[i] < tile ? extent - map[i] : tile;

		if (map[i] % tile || want != have)
			return false;
		for (int64_t j = 1; j < want; j++)
			if (map[i + j] != map[i] + j)
				return false;
	}
	return true;
}

static bool run_keeps_tiles(const struct source_run *run, int64_t here,
			    int64_t there, int64_t tile)
{
	bool ends = run->at + run->count == here && run->from + run->count == there;

	return run->at % tile == 0 && run->from % tile == 0 &&
	       (run->count % tile == 0 || ends);
}

static bool whole_content(const struct source_part *part,
			  const struct kvt_group *here,
			  const struct kvt_group *there)
{
	const struct source_run *run = &part->run[0];

	return part->nruns == 1 && !run->at && !run->from &&
	       run->count == here->shape.n[KVT_AXIS_D] &&
	       run->count == there->shape.n[KVT_AXIS_D];
}

static bool part_keeps_tiles(const struct source *source, int g,
			     const struct source_part *part,
			     const struct kvt_tiling *tiling)
{
	const struct source_group *map = &source->group[g];
	const struct kvt_group *here = &source->snapshot.group[g];
	struct kvt_reader *reader = reader_of(source, part);
	const struct kvt_group *there = reader_group(reader, map->from);
	const struct kvt_tiling *own = kvt_reader_tiling(reader, map->from);
	const int64_t *n = tiling->n;

	return own && !memcmp(own->n, n, sizeof(own->n)) &&
	       whole_content(part, here, there) &&
	       kvt_tiling_same_codec(own, tiling) &&
	       kvt_layout_equal(&there->layout, &here->layout) &&
	       run_keeps_tiles(&part->heads, here->shape.n[KVT_AXIS_H],
			       there->shape.n[KVT_AXIS_H], n[KVT_AXIS_H]) &&
	       run_keeps_tiles(&part->kv, here->shape.n[KVT_AXIS_K],
			       there->shape.n[KVT_AXIS_K], n[KVT_AXIS_K]);
}

static bool axis_has_tiles(const struct source *source, int group,
			   enum kvt_axis axis, const int64_t *map,
			   const struct kvt_box *box)
{
	const struct source_group *g = &source->group[group];
	const struct kvt_group *here = &source->snapshot.group[group];
	struct kvt_reader *reader = reader_of(source, &g->part[0]);

	return list_keeps_tiles(map, box->begin[axis], box->end[axis],
				here->shape.n[axis],
				reader_group(reader, g->from)->shape.n[axis],
				g->tiling.n[axis]);
}

bool source_has_tiles(const struct source *source, int group,
		      const struct kvt_box *box)
{
	const struct source_group *map = &source->group[group];

	/* of blocks made of spans, all tiles stay or none */
	if (map->first)
		return map->tiling.nbytes > 0;
	return source->whole ||
	       (axis_has_tiles(source, group, KVT_AXIS_L, map->layer, box) &&
		axis_has_tiles(source, group, KVT_AXIS_B, map->block, box));
}

void source_seal(struct source *source)
{
	for (int g = 0; g < source->snapshot.ngroups; g++) {
		struct source_group *map = &source->group[g];
		const struct kvt_group *here = &source->snapshot.group[g];
		const struct kvt_tiling *tiling =
			kvt_reader_tiling(reader_of(source, &map->part[0]), map->from);
		bool tiled = tiling != NULL;

		if (map->first) {
			/* a cell is of a block, so none of them stays */
			tiled = spans_keep_tiles(&map->tiling, source, g);
			if (!tiled)
				map->tiling.nbytes = 0;
			continue;
		}
		map->has_cells = true;
		for (int p = 0; p < map->nparts; p++) {
			const struct source_part *part = &map->part[p];
			struct kvt_reader *reader = reader_of(source, part);
			const struct kvt_group *there = reader_group(reader, map->from);

			map->has_cells &=
				kvt_reader_has_cells(reader, map->from) &&
				whole_content(part, here, there);
			tiled = tiled && part_keeps_tiles(source, g, part, tiling);
		}
		if (tiled)
			map->tiling = *tiling;
	}
}

/* ---- stored tiles and cells --------------------------------------------- */

enum kvt_status source_fetch_tile(struct worker *worker,
				  const struct source *source, int group,
				  const int64_t begin[KVT_NAXES],
				  struct kvt_stored *out, struct kvt_error *err)
{
	const struct source_group *map = &source->group[group];
	const struct source_part *part = map->part;
	int64_t at[KVT_NAXES], head = begin[KVT_AXIS_H];

	if (source->whole)
		return fetch_tile(worker, source->reader[0], group, begin, out, err);
	while (head < part->heads.at || head >= part->heads.at + part->heads.count)
		part++;
	memcpy(at, begin, sizeof(at));
	at[KVT_AXIS_L] = map->layer[begin[KVT_AXIS_L]];
	at[KVT_AXIS_B] = map->first ? map->span[map->first[begin[KVT_AXIS_B]]].block :
				      map->block[begin[KVT_AXIS_B]];
	at[KVT_AXIS_H] = head - part->heads.at + part->heads.from;
	at[KVT_AXIS_K] = begin[KVT_AXIS_K] - part->kv.at + part->kv.from;
	return fetch_tile(worker, reader_of(source, part), map->from, at, out, err);
}

/* Cells of consecutive layers and blocks of one part. */
static enum kvt_status fetch_cell_piece(const struct source *source, int group,
					const struct source_part *part,
					const struct pieces *p, uint64_t *spare,
					uint64_t *cells, struct kvt_error *err)
{
	const struct source_group *map = &source->group[group];
	const int64_t *n = source->snapshot.group[group].shape.n;
	const struct kvt_box *box = &p->all;
	struct kvt_box there = piece_there(p);
	int64_t nb = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B];
	int64_t row = part->heads.count * n[KVT_AXIS_K];
	enum kvt_status status;

	box_take(&there, KVT_AXIS_H, part->heads.from, part->heads.count);
	box_take(&there, KVT_AXIS_K, part->kv.from, part->kv.count);
	if ((status = kvt_fetch_cells(reader_of(source, part), map->from, &there,
				      spare, err)))
		return status;
	for (int64_t l = p->here.begin[0]; l < p->here.end[0]; l++)
		for (int64_t b = p->here.begin[1]; b < p->here.end[1]; b++) {
			int64_t page = (l - box->begin[0]) * nb + b - box->begin[1];
			int64_t at = page * n[KVT_AXIS_H] + part->heads.at;

			memcpy(cells + at * n[KVT_AXIS_K], spare,
			       (size_t)row * sizeof(*cells));
			spare += row;
		}
	return KVT_OK;
}

enum kvt_status source_fetch_cells(const struct source *source, int group,
				   const struct kvt_box *box, uint64_t *cells,
				   struct kvt_error *err)
{
	const struct source_group *map = &source->group[group];
	enum kvt_status status = KVT_OK;
	int64_t count = 1;
	uint64_t *spare;

	if (source->whole)
		return kvt_fetch_cells(source->reader[0], group, box, cells, err);
	for (int a = 0; a < KVT_NAXES; a++)
		if (a != KVT_AXIS_S && a != KVT_AXIS_D)
			count *= box->end[a] - box->begin[a];
	if (!(spare = malloc((size_t)count * sizeof(*spare) + 1)))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; i < map->nparts; i++) {
		struct pieces p = pieces_of(box, map->layer, map->block, NULL);

		while (!status && piece_next(&p))
			status = fetch_cell_piece(source, group, &map->part[i], &p,
						  spare, cells, err);
	}
	free(spare);
	return status;
}
