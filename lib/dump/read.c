/* SPDX-License-Identifier: Apache-2.0 */
/* read.c - reading data through lists of layers, blocks, heads and channels */
#include "lib/dump/map.h"

/* ---- pieces ------------------------------------------------------------- */

static int64_t span_end(const int64_t *map, int64_t i, int64_t end, int64_t tile)
{
	int64_t j = i + 1;

	if (map[i] < 0)
		return j;
	if (tile)
		while (j < end && map[j] >= 0 && map[j] / tile == map[i] / tile)
			j++;
	else
		while (j < end && map[j] == map[j - 1] + 1)
			j++;
	return j;
}

struct pieces pieces_of(const struct kvt_box *box, const int64_t *layer,
			const int64_t *block, const struct kvt_tiling *tiling)
{
	struct pieces p = { .all = *box, .here = *box, .layer = layer, .block = block };

	if (tiling) {
		p.tile[0] = tiling->n[KVT_AXIS_L];
		p.tile[1] = tiling->n[KVT_AXIS_B];
	}
	/* as if the row of blocks before the first had just ended */
	p.here.end[KVT_AXIS_L] = box->begin[KVT_AXIS_L];
	return p;
}

bool piece_next(struct pieces *p)
{
	const int64_t *begin = p->all.begin, *end = p->all.end;

	p->here.begin[KVT_AXIS_B] = p->here.end[KVT_AXIS_B];
	if (p->here.begin[KVT_AXIS_B] == end[KVT_AXIS_B]) {
		p->here.begin[KVT_AXIS_L] = p->here.end[KVT_AXIS_L];
		if (p->here.begin[KVT_AXIS_L] == end[KVT_AXIS_L] ||
		    begin[KVT_AXIS_B] == end[KVT_AXIS_B])
			return false;
		p->here.end[KVT_AXIS_L] = span_end(p->layer,
						   p->here.begin[KVT_AXIS_L],
						   end[KVT_AXIS_L], p->tile[0]);
		p->here.begin[KVT_AXIS_B] = begin[KVT_AXIS_B];
	}
	p->here.end[KVT_AXIS_B] = span_end(p->block, p->here.begin[KVT_AXIS_B],
					   end[KVT_AXIS_B], p->tile[1]);
	return true;
}

/* From the least index to the greatest: inside a tile they need not ascend. */
static void map_range(struct kvt_box *box, enum kvt_axis axis, const int64_t *map,
		      int64_t begin, int64_t end)
{
	int64_t least = map[begin], most = map[begin];

	for (int64_t i = begin; i < end; i++) {
		least = map[i] < least ? map[i] : least;
		most = map[i] > most ? map[i] : most;
	}
	box_take(box, axis, least, most + 1 - least);
}

struct kvt_box piece_there(const struct pieces *p)
{
	struct kvt_box box = p->here;

	map_range(&box, KVT_AXIS_L, p->layer, p->here.begin[KVT_AXIS_L],
		  p->here.end[KVT_AXIS_L]);
	map_range(&box, KVT_AXIS_B, p->block, p->here.begin[KVT_AXIS_B],
		  p->here.end[KVT_AXIS_B]);
	return box;
}

enum kvt_status read_around(struct placed *out, struct worker *worker,
			    struct kvt_dump *reader, int group,
			    const struct kvt_box *box, struct kvt_error *err)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(reader, group);
	const struct kvt_group *from = reader_group(reader, group);

	out->layout = &from->layout;
	out->box = *box;
	out->bytes = worker->buffer[SOURCE_BUFFER];
	for (int a = 0; tiling && a < KVT_NAXES; a++) {
		int64_t n = tiling->n[a];

		out->box.begin[a] = box->begin[a] / n * n;
		out->box.end[a] = (box->end[a] + n - 1) / n * n;
	}
	out->box = box_cut(&out->box, &from->shape);
	return read_box(worker, reader, group, &out->box, out->bytes, err);
}

void work_needs_pieces(struct work *work, const struct kvt_dump *reader, int group,
		       int64_t layers, int64_t blocks)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(reader, group);
	const struct kvt_shape *shape = &reader_group(reader, group)->shape;
	int64_t nbytes = shape->elem;

	/* a piece never leaves a row of tiles */
	layers = tiling ? tiling->n[KVT_AXIS_L] : layers;
	blocks = tiling ? tiling->n[KVT_AXIS_B] : blocks;
	nbytes *= layers < shape->n[KVT_AXIS_L] ? layers : shape->n[KVT_AXIS_L];
	nbytes *= blocks < shape->n[KVT_AXIS_B] ? blocks : shape->n[KVT_AXIS_B];
	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		nbytes *= shape->n[a];
	if (work->buffer_bytes[SOURCE_BUFFER] < nbytes)
		work->buffer_bytes[SOURCE_BUFFER] = nbytes;
	work_needs_tiles(work, tiling);
}

/* ---- a box of the source ------------------------------------------------ */

void work_needs_source(struct work *work, const struct source *source, int group,
		       const struct cut *cut)
{
	const struct source_group *map = &source->group[group];

	if (source->whole) {
		work_needs_tiles(work, kvt_dump_tiling(source->reader[0], group));
		return;
	}
	if (map->first) {
		work_needs_spans(work, reader_of(source, map->part), map->from,
				 cut->layers,
				 cut->blocks * cut->shape.n[KVT_AXIS_S]);
		return;
	}
	for (; map; map = map->graft)
		for (int p = 0; p < map->nparts; p++)
			work_needs_pieces(work, reader_of(source, &map->part[p]),
					  map->from, cut->layers, cut->blocks);
}

/* Neighbours in both: to where they stand in the box, part by part. */
static enum kvt_status put_runs(struct worker *worker, const struct placed *dst,
				const struct placed *src, const struct pieces *p,
				const struct source_part *part, int64_t elem,
				struct kvt_error *err)
{
	struct kvt_box to = p->here, from = piece_there(p);

	box_take(&to, KVT_AXIS_H, part->heads.at, part->heads.count);
	box_take(&from, KVT_AXIS_H, part->heads.from, part->heads.count);
	box_take(&to, KVT_AXIS_K, part->kv.at, part->kv.count);
	box_take(&from, KVT_AXIS_K, part->kv.from, part->kv.count);
	for (int i = 0; i < part->nruns; i++) {
		const struct source_run *run = &part->run[i];
		enum kvt_status status;

		box_take(&to, KVT_AXIS_D, run->at, run->count);
		box_take(&from, KVT_AXIS_D, run->from, run->count);
		if ((status = copy_part(worker, dst, &to, src, &from, elem, err)))
			return status;
	}
	return KVT_OK;
}

static enum kvt_status read_piece(struct worker *worker, const struct source *source,
				  const struct source_group *map,
				  const struct placed *dst,
				  const struct pieces *p,
				  const struct source_part *part,
				  struct kvt_error *err)
{
	struct kvt_dump *reader = reader_of(source, part);
	const struct kvt_shape *shape = &reader_group(reader, map->from)->shape;
	struct pieces near = pieces_of(&p->here, p->layer, p->block, NULL);
	struct kvt_box there = piece_there(p);
	enum kvt_status status;
	struct placed src;

	box_take(&there, KVT_AXIS_H, part->heads.from, part->heads.count);
	box_take(&there, KVT_AXIS_K, part->kv.from, part->kv.count);
	box_take(&there, KVT_AXIS_D, 0, shape->n[KVT_AXIS_D]);
	status = read_around(&src, worker, reader, map->from, &there, err);
	while (!status && piece_next(&near))
		status = put_runs(worker, dst, &src, &near, part, shape->elem, err);
	return status;
}

static enum kvt_status read_map(struct worker *worker, const struct source *source,
				const struct source_group *map, const struct placed *dst,
				struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; i < map->nparts; i++) {
		const struct source_part *part = &map->part[i];
		struct pieces p = pieces_of(&dst->box, map->layer, map->block,
					    kvt_dump_tiling(reader_of(source, part),
							      map->from));

		while (!status && piece_next(&p))
			if (piece_is_there(&p))
				status = read_piece(worker, source, map, dst, &p, part,
						    err);
	}
	return status;
}

enum kvt_status source_read_box(struct worker *worker, const struct source *source,
				int group, const struct kvt_box *box, uint8_t *buf,
				struct kvt_error *err)
{
	const struct source_group *map = &source->group[group];
	const struct overlay *overlay = source->overlay;
	const struct kvt_group *to = &source_snapshot(source)->group[group];
	struct placed dst = { &to->layout, *box, buf };
	enum kvt_status status = KVT_OK;

	if (overlay && overlay->group == group) {
		struct placed all = { overlay->layout, kvt_box_whole(&to->shape),
				      overlay->bytes };

		return copy_box(worker, &dst, &all, box, to->shape.elem, err);
	}
	if (source->whole)
		return read_box(worker, source->reader[0], group, box, buf, err);
	if (map->first)
		return read_spans(worker, source, group, box, buf, err);
	/* what is grafted comes last, over what was there */
	for (; !status && map; map = map->graft)
		status = read_map(worker, source, map, &dst, err);
	return status;
}

/* ---- tiles as they are stored ------------------------------------------- */

struct checking {
	struct kvt_dump *reader;
	int group;
};

static enum kvt_status check_tile(struct worker *worker, void *context,
				  const int64_t begin[KVT_NAXES],
				  struct kvt_error *err)
{
	const struct checking *c = context;
	const struct kvt_tiling *tiling = kvt_dump_tiling(c->reader, c->group);
	struct kvt_stored stored = { .bytes = worker->stored,
				     .capacity = kvt_stored_bound(tiling) };
	enum kvt_status status = fetch_tile(worker, c->reader, c->group, begin, &stored,
					    err);

	return status ? status : kvt_stored_check(&stored, tiling, err);
}

enum kvt_status source_check_tiles(struct worker *worker, const struct source *source,
				   int group, const struct kvt_box *box,
				   struct kvt_error *err)
{
	const struct source_group *map = &source->group[group];
	enum kvt_status status = KVT_OK;

	for (; map; map = map->graft)
		for (int i = 0; i < map->nparts; i++) {
			const struct source_part *part = &map->part[i];
			struct checking c = { reader_of(source, part), map->from };
			const struct kvt_tiling *tiling = kvt_dump_tiling(c.reader,
									    c.group);
			struct pieces p = pieces_of(box, map->layer, map->block, tiling);

			while (!status && piece_next(&p)) {
				struct kvt_box there = piece_there(&p);

				box_take(&there, KVT_AXIS_H, part->heads.from,
					 part->heads.count);
				box_take(&there, KVT_AXIS_K, part->kv.from,
					 part->kv.count);
				if (piece_is_there(&p))
					status = each_tile(worker, tiling, &there,
							   check_tile, &c, err);
			}
		}
	return status;
}
