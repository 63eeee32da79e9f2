/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c - boxes of dumps: through lists of layers, blocks, heads and channels
 *
 * A dump that is a leaf as it is has its box read straight into the caller's buffer,
 * or decoded tile by tile.  Of a derived one each part reads the layers and blocks that
 * its leaf has together (leaf_read.c) into the worker's range buffer, and copies runs
 * of them to where they stand in the box; so what a part does not want is not read, and
 * a tile is decoded once a box.
 */
#include "lib/dump/map.h"

#include <stdlib.h>
#include <string.h>

enum { WORKED_BESIDE = 64 << 10 };

/* ---- boxes of a dump ------------------------------------------------------- */

static bool same_order(const struct map_part *part, const struct kvt_layout *layout)
{
	return kvt_layout_equal(&part_group(part)->layout, layout);
}

/* Of a full box, all of S, H, K and D. */
static int64_t box_bytes(const struct kvt_cut *cut, const struct kvt_group *here)
{
	int64_t nbytes = here->shape.elem * cut->layers * cut->blocks;

	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		nbytes *= here->shape.n[a];
	return nbytes;
}

/* A box of the part on its device, and beside it what is said of layers and heads. */
static void work_needs_device(struct kvt_work *work, const struct map_part *part,
			      int64_t nelements)
{
	const struct kvt_leaf_ops *ops = part->leaf->ops;
	const int64_t elem = ops->worked_on ? ops->worked_on(part->leaf, part->group) : 0;

	if (elem && work->worked_bytes < nelements * elem + WORKED_BESIDE)
		work->worked_bytes = nelements * elem + WORKED_BESIDE;
}

void kvt_work_reads(struct kvt_work *work, const struct kvt_dump *dump, int group,
		    const struct kvt_cut *cut, const struct kvt_layout *layout)
{
	const struct map_group *map = &dump->group[group];

	const struct kvt_group *here = kvt_dump_group(dump, group);

	/* without elements extents may be anything */
	for (int a = 0; a < KVT_NAXES; a++)
		if (!here->shape.n[a])
			return;
	if (layout && !kvt_layout_equal(layout, &here->layout) &&
	    work->device_bytes < box_bytes(cut, here))
		work->device_bytes = box_bytes(cut, here);
	if (!layout)
		layout = &here->layout;
	for (int p = 0; p < map->nparts; p++) {
		const struct map_part *part = &map->part[p];

		work_needs_device(work, part, box_bytes(cut, here) / here->shape.elem);
		if (map->whole && (part_tiling(part) || same_order(part, layout)))
			work_needs_tiles(work, part_tiling(part));
		else if (part->spans)
			work_needs_spans(work, part->leaf, part->group, cut->layers,
					 cut->blocks *
					 kvt_dump_group(dump,
							group)->shape.n[KVT_AXIS_S]);
		else
			work_needs_ranges(work, part->leaf, part->group, cut->layers,
					  cut->blocks);
	}
}

/* Neighbours in both: to where they stand in the box, channel by channel. */
static enum kvt_status put_runs(struct kvt_worker *worker, const struct placed *dst,
				const struct placed *src, const struct ranges *p,
				const struct map_part *part, struct kvt_error *err)
{
	const struct kvt_segment heads = segment_clip(&part->heads, &dst->box,
						      KVT_AXIS_H);
	const struct kvt_segment kv = segment_clip(&part->kv, &dst->box, KVT_AXIS_K);
	struct kvt_box to = p->here, from = range_there(p);
	enum kvt_status status = KVT_OK;

	box_take(&to, KVT_AXIS_H, heads.at, heads.count);
	box_take(&from, KVT_AXIS_H, heads.from, heads.count);
	box_take(&to, KVT_AXIS_K, kv.at, kv.count);
	box_take(&from, KVT_AXIS_K, kv.from, kv.count);
	for (int i = 0; !status && i < part->nchannels; i++) {
		struct kvt_segment c = segment_clip(&part->channels[i], &dst->box,
						    KVT_AXIS_D);

		if (!c.count)
			continue;
		box_take(&to, KVT_AXIS_D, c.at, c.count);
		box_take(&from, KVT_AXIS_D, c.from, c.count);
		status = copy_part(worker, dst, &to, src, &from,
				   part_group(part)->shape.elem, err);
	}
	return status;
}

static const int64_t *list_of(const struct map_list *list)
{
	return list ? list->at : NULL;
}

/* In the leaf, with the heads, keys and values of the box that the part has. */
static struct kvt_box box_there(const struct ranges *p, const struct map_part *part,
				const struct kvt_box *box)
{
	const struct kvt_segment heads = segment_clip(&part->heads, box, KVT_AXIS_H);
	const struct kvt_segment kv = segment_clip(&part->kv, box, KVT_AXIS_K);
	struct kvt_box there = range_there(p);

	box_take(&there, KVT_AXIS_H, heads.from, heads.count);
	box_take(&there, KVT_AXIS_K, kv.from, kv.count);
	box_take(&there, KVT_AXIS_D, 0, part_group(part)->shape.n[KVT_AXIS_D]);
	return there;
}

static bool is_beside(const struct map_part *part, const struct kvt_box *box)
{
	return !segment_clip(&part->heads, box, KVT_AXIS_H).count ||
	       !segment_clip(&part->kv, box, KVT_AXIS_K).count;
}

static bool ends_rows(const struct kvt_box *there, const struct kvt_tiling *tiling,
		      const struct kvt_shape *shape, enum kvt_axis axis)
{
	return there->begin[axis] % tiling->n[axis] == 0 &&
	       (there->end[axis] % tiling->n[axis] == 0 ||
		there->end[axis] == shape->n[axis]);
}

/*
 * Do whole rows of tiles go over as they lie, so that no tile is wanted again?  Then
 * how far: shift[].
 */
static bool goes_over(int64_t shift[KVT_NAXES], struct kvt_box *there,
		      const struct ranges *p, const struct map_part *part,
		      const struct kvt_box *box)
{
	const struct kvt_tiling *tiling = part_tiling(part);
	const struct kvt_shape *shape = &part_group(part)->shape;
	struct ranges near = ranges_of(&p->here, p->layer, p->block, NULL);
	struct kvt_segment c;

	if (!tiling || part->nchannels != 1 || !range_next(&near) ||
	    memcmp(&near.here, &p->here, sizeof(p->here)) ||
	    !ends_rows(there, tiling, shape, KVT_AXIS_L) ||
	    !ends_rows(there, tiling, shape, KVT_AXIS_B))
		return false;
	c = segment_clip(&part->channels[0], box, KVT_AXIS_D);
	box_take(there, KVT_AXIS_D, c.from, c.count);
	for (int a = 0; a < KVT_NAXES; a++)
		shift[a] = p->here.begin[a] - there->begin[a];
	shift[KVT_AXIS_H] = part->heads.at - part->heads.from;
	shift[KVT_AXIS_K] = part->kv.at - part->kv.from;
	shift[KVT_AXIS_D] = c.at - c.from;
	return c.count > 0;
}

static enum kvt_status read_part(struct kvt_worker *worker, const struct map_part *part,
				 const struct placed *dst, struct kvt_error *err)
{
	struct ranges p = ranges_of(&dst->box, list_of(part->layers),
				    list_of(part->blocks), part_tiling(part));
	enum kvt_status status = KVT_OK;

	if (is_beside(part, &dst->box))
		return KVT_OK;
	while (!status && range_next(&p)) {
		struct ranges near = ranges_of(&p.here, p.layer, p.block, NULL);
		int64_t shift[KVT_NAXES];
		struct kvt_box there;
		struct placed src;

		if (!range_is_there(&p))
			continue;
		there = box_there(&p, part, &dst->box);
		if (!worker_work(worker)->share &&
		    goes_over(shift, &there, &p, part, &dst->box)) {
			status = read_tiles(worker, part->leaf, part->group, &there, dst,
					    shift, err);
			continue;
		}
		status = read_around(&src, worker, part->leaf, part->group, &there, err);
		while (!status && range_next(&near))
			status = put_runs(worker, dst, &src, &near, part, err);
	}
	return status;
}

/* Would blocks in their order here go back and forth between rows of tiles? */
static bool is_shuffled(const struct map_part *part, const struct kvt_box *box)
{
	const struct kvt_tiling *tiling = part_tiling(part);
	int64_t row = -1;

	for (int64_t b = box->begin[KVT_AXIS_B];
	     tiling && part->blocks && b < box->end[KVT_AXIS_B]; b++) {
		int64_t there = part->blocks->at[b];

		if (there < 0)
			continue;
		if (there / tiling->n[KVT_AXIS_B] < row)
			return true;
		row = there / tiling->n[KVT_AXIS_B];
	}
	return false;
}

static enum kvt_status read_box(struct kvt_worker *worker, const struct kvt_dump *dump,
				int group, const struct placed *dst,
				struct kvt_error *err)
{
	const struct map_group *map = &dump->group[group];
	struct kvt_shape shape = kvt_box_shape(&dst->box,
					       kvt_dump_group(dump, group)->shape.elem);
	enum kvt_status status = KVT_OK;
	int64_t nbytes;

	if (map->whole)
		return read_leaf(worker, map->part->leaf, map->part->group, dst, err);
	if (map->sparse) {
		if ((status = kvt_shape_nbytes(&nbytes, &shape, err)))
			return status;
		memset(dst->bytes, 0, (size_t)nbytes);
	}
	for (int p = 0; !status && p < map->nparts; p++)
		status = map->part[p].spans || is_shuffled(&map->part[p], &dst->box) ?
			 read_spans(worker, &map->part[p], dst, err) :
			 read_part(worker, &map->part[p], dst, err);
	return status;
}

/*
 * A device is worth its while for whole boxes, not for the tiles and runs that they
 * are put together of: so the box comes first, in the order of the dump, and then
 * the device permutes it.
 */
enum kvt_status kvt_read(struct kvt_worker *worker, const struct kvt_dump *dump,
			 int group,
			 const struct kvt_box *box, const struct kvt_layout *layout,
			 void *buf, struct kvt_error *err)
{
	const struct kvt_group *here = kvt_dump_group(dump, group);
	struct placed dst = { layout ? layout : &here->layout, *box, buf };
	struct placed own = { &here->layout, *box, worker->unordered };
	enum kvt_status status;

	if (!own.bytes || kvt_layout_equal(own.layout, dst.layout))
		return read_box(worker, dump, group, &dst, err);
	if ((status = read_box(worker, dump, group, &own, err)))
		return status;
	return copy_box(worker, &dst, &own, box, here->shape.elem, err);
}

struct alone {
	const struct kvt_dump *dump;
	int group;
	const struct kvt_box *box;
	const struct kvt_layout *layout;
	void *buf;
};

static enum kvt_status read_alone(struct kvt_worker *worker, void *context, int64_t i,
				  struct kvt_error *err)
{
	const struct alone *a = context;

	(void)i;
	return kvt_read(worker, a->dump, a->group, a->box, a->layout, a->buf, err);
}

enum kvt_status kvt_dump_read(const struct kvt_dump *dump, int group,
			      const struct kvt_box *box, const struct kvt_layout *layout,
			      void *buf, struct kvt_error *err)
{
	const struct kvt_run run = { .threads = 1, .memory = INT64_MAX };
	struct alone alone = { dump, group, box, layout, buf };
	struct kvt_work work = { .fn = read_alone, .context = &alone, .count = 1 };
	struct kvt_cut cut = {
		.layers = box->end[KVT_AXIS_L] - box->begin[KVT_AXIS_L],
		.blocks = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B],
	};

	if (group < 0 || group >= kvt_dump_snapshot(dump)->ngroups)
		return kvt_fail(err, KVT_USAGE, "%s: has no group %d",
				kvt_dump_path(dump), group);
	cut.shape = kvt_dump_group(dump, group)->shape;
	kvt_work_reads(&work, dump, group, &cut, layout);
	return kvt_work_run(&work, &run, err);
}

/* ---- stored tiles and cells -------------------------------------------------- */

static bool segment_has(const struct kvt_segment *s, int64_t i)
{
	return i >= s->at && i < s->at + s->count;
}

static int64_t block_there(const struct map_part *part, int64_t b)
{
	const struct map_spans *spans = part->spans;

	if (!spans)
		return list_at(part->blocks, b);
	return spans->first[b] < spans->first[b + 1] ?
	       (int64_t)spans->span[spans->first[b]].block : -1;
}

/* The part that has the tile at begin[], and where it begins there; NULL: none. */
static const struct map_part *part_of_tile(int64_t at[KVT_NAXES],
					   const struct kvt_dump *dump, int group,
					   const int64_t begin[KVT_NAXES],
					   struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);

	for (int p = 0; group >= 0 && group < s->ngroups && p < dump->group[group].nparts;
	     p++) {
		const struct map_part *part = &dump->group[group].part[p];

		memcpy(at, begin, KVT_NAXES * sizeof(*at));
		at[KVT_AXIS_L] = list_at(part->layers, begin[KVT_AXIS_L]);
		at[KVT_AXIS_B] = block_there(part, begin[KVT_AXIS_B]);
		at[KVT_AXIS_H] += part->heads.from - part->heads.at;
		at[KVT_AXIS_K] += part->kv.from - part->kv.at;
		if (at[KVT_AXIS_L] >= 0 && at[KVT_AXIS_B] >= 0 &&
		    segment_has(&part->heads, begin[KVT_AXIS_H]) &&
		    segment_has(&part->kv, begin[KVT_AXIS_K]) && part_tiling(part))
			return part;
	}
	kvt_fail(err, KVT_USAGE, "%s: group %d has no such tile", kvt_dump_path(dump),
		 group);
	return NULL;
}

enum kvt_status kvt_read_tile(const struct kvt_dump *dump, int group,
			      const int64_t begin[KVT_NAXES], struct kvt_stored *out,
			      struct kvt_error *err)
{
	int64_t at[KVT_NAXES];
	const struct map_part *part = part_of_tile(at, dump, group, begin, err);

	return part ? leaf_load_tile(part->leaf, part->group, at, out, err) : KVT_USAGE;
}

enum kvt_status kvt_find_tile(const struct kvt_dump *dump, int group,
			      const int64_t begin[KVT_NAXES], struct kvt_extent *out,
			      struct kvt_error *err)
{
	int64_t at[KVT_NAXES];
	const struct map_part *part = part_of_tile(at, dump, group, begin, err);

	return part ? part->leaf->ops->find_tile(part->leaf, part->group, at, out, err) :
		      KVT_USAGE;
}

struct cells {
	uint64_t *out, *spare;
	const struct kvt_box *box;
	const int64_t *n;		/* extents of the group */
};

/* Of neighbouring layers and blocks of one part. */
static enum kvt_status read_cells(const struct cells *c, const struct map_part *part,
				  const struct ranges *p, struct kvt_error *err)
{
	const struct kvt_box *box = c->box;
	struct kvt_box there = box_there(p, part, box);
	int64_t nb = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B];
	const uint64_t *spare = c->spare;
	enum kvt_status status;

	if ((status = part->leaf->ops->fetch_cells(part->leaf, part->group, &there,
						   c->spare, err)))
		return status;
	for (int64_t l = p->here.begin[0]; l < p->here.end[0]; l++)
		for (int64_t b = p->here.begin[1]; b < p->here.end[1]; b++) {
			int64_t page = (l - box->begin[0]) * nb + b - box->begin[1];

			for (int64_t h = 0; h < part->heads.count; h++) {
				int64_t at = page * c->n[KVT_AXIS_H] + part->heads.at + h;

				memcpy(c->out + at * c->n[KVT_AXIS_K] + part->kv.at,
				       spare, (size_t)part->kv.count * sizeof(*spare));
				spare += part->kv.count;
			}
		}
	return KVT_OK;
}

enum kvt_status kvt_read_cells(const struct kvt_dump *dump, int group,
			       const struct kvt_box *box, uint64_t *cells,
			       struct kvt_error *err)
{
	struct cells c = { .out = cells, .box = box };
	enum kvt_status status = KVT_OK;
	int64_t count = 1;

	if (!kvt_dump_has_cells(dump, group))
		return kvt_fail(err, KVT_USAGE, "%s: no group %d that can be read so",
				kvt_dump_path(dump), group);
	if (dump->group[group].whole) {
		const struct map_part *part = dump->group[group].part;

		return part->leaf->ops->fetch_cells(part->leaf, part->group, box, cells,
						    err);
	}
	c.n = kvt_dump_group(dump, group)->shape.n;
	for (int a = 0; a < KVT_NAXES; a++)
		if (a != KVT_AXIS_S && a != KVT_AXIS_D)
			count *= box->end[a] - box->begin[a];
	if (!(c.spare = malloc((size_t)count * sizeof(*c.spare) + 1)))
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < dump->group[group].nparts; i++) {
		const struct map_part *part = &dump->group[group].part[i];
		struct ranges p = ranges_of(box, list_of(part->layers),
					    list_of(part->blocks), NULL);

		while (!status && range_next(&p))
			if (range_is_there(&p))
				status = read_cells(&c, part, &p, err);
	}
	free(c.spare);
	return status;
}

struct checking {
	const struct map_part *part;
};

static enum kvt_status check_tile(struct kvt_worker *worker, void *context,
				  const int64_t begin[KVT_NAXES], struct kvt_error *err)
{
	const struct map_part *part = ((const struct checking *)context)->part;
	const struct kvt_tiling *tiling = part_tiling(part);
	struct kvt_stored stored = { .bytes = worker->stored,
				     .capacity = kvt_stored_bound(tiling) };
	enum kvt_status status = leaf_load_tile(part->leaf, part->group, begin, &stored,
						err);

	return status ? status : kvt_stored_check(&stored, tiling, err);
}

enum kvt_status kvt_check_tiles(struct kvt_worker *worker, const struct kvt_dump *dump,
				int group, const struct kvt_box *box,
				struct kvt_error *err)
{
	const struct map_group *map = &dump->group[group];
	enum kvt_status status = KVT_OK;

	for (int i = 0; i < map->nparts; i++) {
		struct checking c = { &map->part[i] };
		struct ranges p = ranges_of(box, list_of(c.part->layers),
					    list_of(c.part->blocks), part_tiling(c.part));

		if (is_beside(c.part, box))
			continue;
		while (!status && range_next(&p)) {
			struct kvt_box there;

			if (!range_is_there(&p))
				continue;
			there = box_there(&p, c.part, box);
			status = each_tile(worker, part_tiling(c.part), &there,
					   check_tile, &c, err);
		}
	}
	return status;
}
