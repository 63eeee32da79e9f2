/* SPDX-License-Identifier: Apache-2.0 */
/* map.c - what a source is made of, and its stored tiles and cells */
#include "lib/dump/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file may say all but what its bytes are, or which fp8. */
static bool lacks_content(const struct kvt_dump *reader, const struct kvt_hints *hints)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(reader);
	const struct kvt_content *is = &s->group[0].content;
	struct kvt_content told;

	if (!hints->content_type || s->ngroups > 1 ||
	    !kvt_content_find(&told, hints->content_type))
		return false;
	return is->type ? is->type == told.type && !is->fp8 && told.fp8 :
			  !strcmp(s->group[0].dtype->name, "uint8");
}

enum kvt_status open_as_told(struct kvt_dump **out, const char *name,
			     const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_hints facts = { .facts = hints->facts };
	struct kvt_error why;
	enum kvt_status status = kvt_open(out, name, &facts, &why);

	/* facts of the other input's format */
	if (status == KVT_USAGE && hints->facts.n)
		status = kvt_open(out, name, NULL, &why);
	if (status == KVT_SYSTEM)
		return kvt_fail(err, status, "%s", why.text);
	if (!status && !lacks_content(*out, hints))
		return KVT_OK;
	if (!status)
		kvt_dump_close(*out);
	return kvt_open(out, name, hints, err);
}

enum kvt_status refuse_own_file(const char *path, const struct kvt_dump *reader,
				struct kvt_error *err)
{
	struct stat st;

	if (!stat(path, &st) && kvt_dump_has_file(reader, st.st_dev, st.st_ino))
		return kvt_fail(err, KVT_USAGE, "%s belongs to the input", path);
	return KVT_OK;
}

struct source source_whole(struct kvt_dump **reader)
{
	return (struct source){ .nreaders = 1, .reader = reader, .whole = true };
}

static int64_t *count_up(int64_t n)
{
	int64_t *list = calloc((size_t)n + 1, sizeof(*list));

	for (int64_t i = 0; list && i < n; i++)
		list[i] = i;
	return list;
}

enum kvt_status source_map_whole(struct source_group *map, const struct kvt_group *group,
				 int index, struct kvt_error *err)
{
	map->from = index;
	map->nparts = 1;
	map->part = calloc(1, sizeof(*map->part));
	map->layer = count_up(group->shape.n[KVT_AXIS_L]);
	map->block = count_up(group->shape.n[KVT_AXIS_B]);
	if (!map->part || !map->layer || !map->block)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	map->part->heads.count = group->shape.n[KVT_AXIS_H];
	map->part->kv.count = group->shape.n[KVT_AXIS_K];
	map->part->nruns = 1;
	map->part->run[0].count = group->shape.n[KVT_AXIS_D];
	return KVT_OK;
}

static void free_lists(struct source_group *map)
{
	free(map->layer);
	free(map->block);
	free(map->first);
	free(map->span);
	free(map->part);
}

void source_free(struct source *source)
{
	if (source->whole)
		return;
	kvt_snapshot_free(&source->snapshot);
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		struct source_group *graft = source->group[g].graft;

		if (graft)
			free_lists(graft);
		free(graft);
		free_lists(&source->group[g]);
	}
	memset(source->group, 0, sizeof(source->group));
}

const struct kvt_snapshot *source_snapshot(const struct source *source)
{
	return source->whole ? kvt_dump_snapshot(source->reader[0]) :
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
		return kvt_dump_tiling(source->reader[0], group);
	return source->group[group].tiling.nbytes ? &source->group[group].tiling :
						    NULL;
}

bool source_has_cells(const struct source *source, int group)
{
	if (is_overlaid(source, group))
		return false;
	return source->whole ? kvt_dump_has_cells(source->reader[0], group) :
			       source->group[group].has_cells;
}

bool source_cells_proven(const struct source *source, int group)
{
	return source->whole ? kvt_dump_proven(source->reader[0])->cells[group] :
			       source->group[group].cells_proven;
}

bool source_is_scattered(const struct source *source, int group)
{
	const struct source_group *map = &source->group[group];

	return !source->whole && map->first &&
	       kvt_dump_tiling(reader_of(source, map->part), map->from);
}

/* ---- which tiles are tiles of the source -------------------------------- */

/* Is each tile of a part of the list one of the reader, as full as it is there? */
static bool list_keeps_tiles(const int64_t *map, int64_t begin, int64_t end,
			     int64_t count, int64_t extent, int64_t tile)
{
	for (int64_t i = begin; i < end; i += tile) {
		int64_t want = count - i < tile ? count - i : tile;
		int64_t have = extent - map[i] < tile ? extent - map[i] : tile;

		if (map[i] < 0 || map[i] % tile || want != have)
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
			     const struct source_group *map,
			     const struct source_part *part,
			     const struct kvt_tiling *tiling)
{
	const struct kvt_group *here = &source->snapshot.group[g];
	struct kvt_dump *reader = reader_of(source, part);
	const struct kvt_group *there = reader_group(reader, map->from);
	const struct kvt_tiling *own = kvt_dump_tiling(reader, map->from);
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
			   const struct source_group *map, enum kvt_axis axis,
			   const struct kvt_box *box)
{
	const struct kvt_group *here = &source->snapshot.group[group];
	struct kvt_dump *reader = reader_of(source, &map->part[0]);

	return list_keeps_tiles(axis == KVT_AXIS_L ? map->layer : map->block,
				box->begin[axis], box->end[axis],
				here->shape.n[axis],
				reader_group(reader, map->from)->shape.n[axis],
				map->tiling.n[axis]);
}

static bool map_has_tiles(const struct source *source, int group,
			  const struct source_group *map, const struct kvt_box *box)
{
	return axis_has_tiles(source, group, map, KVT_AXIS_L, box) &&
	       axis_has_tiles(source, group, map, KVT_AXIS_B, box);
}

/* Each tile is one of the reader or one of the graft's. */
static bool both_have_tiles(const struct source *source, int group,
			    const struct kvt_box *box)
{
	const struct source_group *map = &source->group[group];
	const int64_t *block = map->graft->block;
	int64_t end, tile = map->tiling.n[KVT_AXIS_B];
	struct kvt_box row = *box;

	for (int64_t b = box->begin[KVT_AXIS_B]; b < box->end[KVT_AXIS_B]; b = end) {
		bool grafted = false;

		end = b + tile < box->end[KVT_AXIS_B] ? b + tile :
							box->end[KVT_AXIS_B];
		for (int64_t i = b; i < end; i++)
			grafted |= block[i] >= 0;
		box_take(&row, KVT_AXIS_B, b, end - b);
		if (grafted && !map->graft->tiling.nbytes)
			return false;
		if (!map_has_tiles(source, group, grafted ? map->graft : map, &row))
			return false;
	}
	return true;
}

bool source_has_tiles(const struct source *source, int group,
		      const struct kvt_box *box)
{
	const struct source_group *map = &source->group[group];

	/* of blocks made of spans, all tiles stay or none */
	if (map->first)
		return map->tiling.nbytes > 0;
	if (source->whole)
		return true;
	return map->graft ? both_have_tiles(source, group, box) :
			    map_has_tiles(source, group, map, box);
}

/* Also says whether the cells of all parts can stand for those of the source. */
static bool parts_keep_tiles(const struct source *source, int g,
			     struct source_group *map, const struct kvt_tiling *tiling)
{
	const struct kvt_group *here = &source->snapshot.group[g];
	bool tiled = tiling != NULL;

	map->has_cells = map->cells_proven = true;
	for (int p = 0; p < map->nparts; p++) {
		const struct source_part *part = &map->part[p];
		struct kvt_dump *reader = reader_of(source, part);
		const struct kvt_group *there = reader_group(reader, map->from);

		map->has_cells &= kvt_dump_has_cells(reader, map->from) &&
				  whole_content(part, here, there);
		map->cells_proven &= kvt_dump_proven(reader)->cells[map->from];
		tiled = tiled && part_keeps_tiles(source, g, map, part, tiling);
	}
	return tiled;
}

void source_seal(struct source *source)
{
	for (int g = 0; g < source->snapshot.ngroups; g++) {
		struct source_group *map = &source->group[g];
		const struct kvt_tiling *tiling =
			kvt_dump_tiling(reader_of(source, &map->part[0]), map->from);

		if (map->first) {
			/* a cell is of a block, so none of them stays */
			if (!spans_keep_tiles(&map->tiling, source, g))
				map->tiling.nbytes = 0;
			continue;
		}
		if (parts_keep_tiles(source, g, map, tiling))
			map->tiling = *tiling;
		if (!map->graft)
			continue;
		if (parts_keep_tiles(source, g, map->graft, tiling))
			map->graft->tiling = *tiling;
		map->has_cells &= map->graft->has_cells;
		map->cells_proven &= map->graft->cells_proven;
	}
}

/* ---- stored tiles and cells --------------------------------------------- */

enum kvt_status source_fetch_tile(struct worker *worker,
				  const struct source *source, int group,
				  const int64_t begin[KVT_NAXES],
				  struct kvt_stored *out, struct kvt_error *err)
{
	const struct source_group *map = &source->group[group];
	int64_t at[KVT_NAXES], head = begin[KVT_AXIS_H];
	const struct source_part *part;

	if (source->whole)
		return fetch_tile(worker, source->reader[0], group, begin, out, err);
	if (map->graft && map->graft->block[begin[KVT_AXIS_B]] >= 0)
		map = map->graft;
	part = map->part;
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
					const struct source_group *map,
					const struct source_part *part,
					const struct pieces *p, uint64_t *spare,
					uint64_t *cells, struct kvt_error *err)
{
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
	for (; map; map = map->graft)
		for (int i = 0; i < map->nparts; i++) {
			struct pieces p = pieces_of(box, map->layer, map->block, NULL);

			while (!status && piece_next(&p))
				if (piece_is_there(&p))
					status = fetch_cell_piece(source, group, map,
								  &map->part[i], &p,
								  spare, cells, err);
		}
	free(spare);
	return status;
}
