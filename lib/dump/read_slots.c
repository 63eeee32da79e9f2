/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_slots.c - blocks whose slots come from blocks of another size
 *
 * Spans of slots that a box wants are sorted by where they lie in the leaf and
 * read in ranges: of tiles, those of one row of tiles; of arrays, neighbouring
 * blocks, or a part of one long block.  A range is read once and its spans are
 * copied to where they belong; along a split S axis only whole inner parts, or
 * slots inside one, are evenly spaced, so a copy stops at their ends.
 */
#include "lib/dump/map.h"

#include <stdlib.h>
#include <string.h>

/* ---- slots that are read together --------------------------------------- */

static int by_place(const void *a, const void *b)
{
	const struct target_span *x = a, *y = b;

	if (x->span.block != y->span.block)
		return x->span.block < y->span.block ? -1 : 1;
	if (x->span.slot != y->span.slot)
		return x->span.slot < y->span.slot ? -1 : 1;
	return 0;
}

/* How a flat group is read: whole blocks, or slots of one block if it is long. */
struct reach {
	int64_t blocks, slots;		/* of a range at most; slots 0: whole blocks */
};

static struct reach reach_of(const struct kvt_group *group, int64_t rows)
{
	int64_t slots = group->shape.n[KVT_AXIS_S];

	if (slots > rows && !splits_of(&group->layout, group->shape.elem).most)
		return (struct reach){ 1, rows };
	return (struct reach){ rows > slots ? rows / slots : 1, 0 };
}

static int64_t span_end(const struct target_span *w)
{
	return (int64_t)w->span.slot + w->span.count;
}

/* The end of the range that begins with w[0]; 'there' becomes where it is. */
static int64_t range_end(struct kvt_box *there, const struct target_span *w, int64_t n,
			 const struct kvt_group *group,
			 const struct kvt_tiling *tiling, const struct reach *reach)
{
	int64_t slots = group->shape.n[KVT_AXIS_S], first = w->span.block;
	int64_t tile = tiling ? tiling->n[KVT_AXIS_B] : 0;
	int64_t last = first, begin = w->span.slot, end = span_end(w), i = 1;

	for (; i < n; i++) {
		int64_t block = w[i].span.block, slot = w[i].span.slot;

		if (tile ? block / tile != first / tile :
		    reach->slots ? block != first || slot > end ||
				    span_end(&w[i]) - begin > reach->slots :
				    block > last + 1 || block - first >= reach->blocks)
			break;
		last = block;
		if (span_end(&w[i]) > end)
			end = span_end(&w[i]);
	}
	box_take(there, KVT_AXIS_B, first, last + 1 - first);
	if (!tile && reach->slots)
		box_take(there, KVT_AXIS_S, begin, end - begin);
	else
		box_take(there, KVT_AXIS_S, 0, slots);
	return i;
}

/* 'there' holds the heads, keys and values, and channels that are wanted. */
static enum kvt_status walk_spans(struct kvt_worker *worker, const struct kvt_leaf *leaf,
				  int group, struct kvt_box there,
				  struct target_span *wanted, int64_t n, int64_t rows,
				  spans_fn *fn, void *context, struct kvt_error *err)
{
	const int64_t layers[2] = { there.begin[KVT_AXIS_L], there.end[KVT_AXIS_L] };
	const struct kvt_group *from = &leaf->snapshot.group[group];
	const struct kvt_tiling *tiling = leaf_tiling(leaf, group);
	int64_t step = tiling ? tiling->n[KVT_AXIS_L] : layers[1] - layers[0], end;
	struct reach reach = reach_of(from, rows);
	enum kvt_status status;

	qsort(wanted, (size_t)n, sizeof(*wanted), by_place);
	for (int64_t l = layers[0]; l < layers[1]; l = end) {
		/* a range never leaves a row of tiles */
		end = tiling ? (l / step + 1) * step : l + step;
		if (end > layers[1])
			end = layers[1];
		box_take(&there, KVT_AXIS_L, l, end - l);
		for (int64_t i = 0; i < n; ) {
			struct spans_read read = { .layers = { l, end },
						   .wanted = wanted + i };

			read.n = range_end(&there, read.wanted, n - i, from, tiling,
					   &reach);
			if ((status = read_around(&read.src, worker, leaf, group,
						  &there, err)) ||
			    (status = fn(context, &read, err)))
				return status;
			i += read.n;
		}
	}
	return KVT_OK;
}

enum kvt_status each_spans(struct kvt_worker *worker, const struct kvt_leaf *leaf,
			   int group, const int64_t layers[2], struct target_span *wanted,
			   int64_t n, int64_t rows, spans_fn *fn, void *context,
			   struct kvt_error *err)
{
	struct kvt_box there = kvt_box_whole(&leaf->snapshot.group[group].shape);

	box_take(&there, KVT_AXIS_L, layers[0], layers[1] - layers[0]);
	return walk_spans(worker, leaf, group, there, wanted, n, rows, fn, context, err);
}

void work_needs_spans(struct kvt_work *work, const struct kvt_leaf *leaf, int group,
		      int64_t layers, int64_t rows)
{
	const struct kvt_shape *shape = &leaf->snapshot.group[group].shape;
	struct reach reach = reach_of(&leaf->snapshot.group[group], rows);
	int64_t nbytes = shape->elem * layers * reach.slots;

	if (leaf_tiling(leaf, group) || !reach.slots) {
		work_needs_ranges(work, leaf, group, layers, reach.blocks);
		return;
	}
	for (int a = KVT_AXIS_H; a < KVT_NAXES; a++)
		nbytes *= shape->n[a];
	if (work->buffer_bytes[RANGE_BUFFER] < nbytes)
		work->buffer_bytes[RANGE_BUFFER] = nbytes;
}

/* ---- a part that is spans --------------------------------------------------- */

struct filling {
	struct kvt_worker *worker;
	const struct placed *dst;
	const struct map_part *part;
	struct kvt_segment heads, kv;	/* of the part, those in the box */
	int64_t layer;			/* here, of the first of those that are read */
	int64_t from;			/* in the leaf */
	int64_t elem;
};

/*
 * Where S is split a copy must be of whole inner parts, or stay inside one, in
 * every plane and on both sides: only those slots are evenly spaced.
 */
static int64_t copy_end(const struct kvt_layout *layout, int64_t elem, int64_t slot,
			int64_t count)
{
	struct splits splits = splits_of(layout, elem);
	int64_t left;

	if (!splits.most)
		return count;
	if (slot % splits.most == 0 && count >= splits.most)
		return count - count % splits.most;
	left = splits.least - slot % splits.least;
	return left < count ? left : count;
}

static enum kvt_status put_channels(const struct filling *f, const struct placed *src,
				    struct kvt_box to, struct kvt_box from,
				    struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < f->part->nchannels; i++) {
		struct kvt_segment c = segment_clip(&f->part->channels[i], &f->dst->box,
						    KVT_AXIS_D);

		if (!c.count)
			continue;
		box_take(&to, KVT_AXIS_D, c.at, c.count);
		box_take(&from, KVT_AXIS_D, c.from, c.count);
		status = copy_part(f->worker, f->dst, &to, src, &from, f->elem, err);
	}
	return status;
}

static enum kvt_status put_span(const struct filling *f, const struct spans_read *read,
				const struct target_span *w, struct kvt_error *err)
{
	struct kvt_box to = f->dst->box, from = read->src.box;
	int64_t nlayers = read->layers[1] - read->layers[0], done = 0, count;

	box_take(&to, KVT_AXIS_L, f->layer + read->layers[0] - f->from, nlayers);
	box_take(&from, KVT_AXIS_L, read->layers[0], nlayers);
	box_take(&to, KVT_AXIS_B, w->to, 1);
	box_take(&from, KVT_AXIS_B, w->span.block, 1);
	box_take(&to, KVT_AXIS_H, f->heads.at, f->heads.count);
	box_take(&from, KVT_AXIS_H, f->heads.from, f->heads.count);
	box_take(&to, KVT_AXIS_K, f->kv.at, f->kv.count);
	box_take(&from, KVT_AXIS_K, f->kv.from, f->kv.count);
	for (; done < w->span.count; done += count) {
		int64_t at = w->span.at + done, slot = w->span.slot + done;
		enum kvt_status status;

		count = copy_end(read->src.layout, f->elem, slot, w->span.count - done);
		count = copy_end(f->dst->layout, f->elem, at, count);
		box_take(&to, KVT_AXIS_S, at, count);
		box_take(&from, KVT_AXIS_S, slot, count);
		if ((status = put_channels(f, &read->src, to, from, err)))
			return status;
	}
	return KVT_OK;
}

static enum kvt_status put_spans(void *context, const struct spans_read *read,
				 struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < read->n; i++)
		status = put_span(context, read, &read->wanted[i], err);
	return status;
}

/* Whole blocks of a box, which the part may lack. */
static struct target_span *blocks_in(int64_t *n, const struct map_part *part,
				     const struct kvt_box *box)
{
	int64_t begin = box->begin[KVT_AXIS_B], end = box->end[KVT_AXIS_B];
	int64_t first = box->begin[KVT_AXIS_S], last = box->end[KVT_AXIS_S];
	struct target_span *wanted = malloc(((size_t)(end - begin) + 1) *
					    sizeof(*wanted));

	*n = 0;
	for (int64_t b = begin; wanted && b < end; b++) {
		int64_t there = list_at(part->blocks, b);

		if (there >= 0)
			wanted[(*n)++] = (struct target_span){
				{ (uint32_t)there, (uint32_t)first, (uint32_t)first,
				  (uint32_t)(last - first) }, b,
			};
	}
	return wanted;
}

/* The spans of the blocks of a box, as far as they are inside its slots. */
static struct target_span *spans_in(int64_t *n, const struct map_spans *spans,
				    const struct kvt_box *box)
{
	int64_t begin = box->begin[KVT_AXIS_B], end = box->end[KVT_AXIS_B];
	int64_t room = spans->first[end] - spans->first[begin];
	struct target_span *wanted = malloc(((size_t)room + 1) * sizeof(*wanted));

	*n = 0;
	for (int64_t b = begin; wanted && b < end; b++)
		for (int64_t i = spans->first[b]; i < spans->first[b + 1]; i++) {
			struct map_span s = spans->span[i];
			int64_t at = s.at, stop = (int64_t)s.at + s.count;

			if (at < box->begin[KVT_AXIS_S])
				at = box->begin[KVT_AXIS_S];
			if (stop > box->end[KVT_AXIS_S])
				stop = box->end[KVT_AXIS_S];
			if (at >= stop)
				continue;
			s.slot += (uint32_t)(at - s.at);
			s.at = (uint32_t)at;
			s.count = (uint32_t)(stop - at);
			wanted[(*n)++] = (struct target_span){ s, b };
		}
	return wanted;
}

/* wanted_fn: either, of a part. */
static struct target_span *wanted_of(int64_t *n, const void *context,
				     const struct kvt_box *box)
{
	const struct map_part *part = context;

	return part->spans ? spans_in(n, part->spans, box) : blocks_in(n, part, box);
}

/* Layers that follow each other in the leaf, too, from l on. */
static int64_t layers_end(const struct map_list *layers, int64_t l, int64_t end)
{
	int64_t next = l + 1;

	while (next < end && list_at(layers, l) >= 0 &&
	       list_at(layers, next) == list_at(layers, next - 1) + 1)
		next++;
	return next;
}

enum kvt_status read_spans(struct kvt_worker *worker, const struct map_part *part,
			   const struct placed *dst, struct kvt_error *err)
{
	const struct kvt_box *box = &dst->box;
	const struct kvt_group *there = part_group(part);
	struct filling f = { worker, dst, part, segment_clip(&part->heads, box,
							     KVT_AXIS_H),
			     segment_clip(&part->kv, box, KVT_AXIS_K), 0, 0,
			     there->shape.elem };
	int64_t rows = (box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B]) *
		       (box->end[KVT_AXIS_S] - box->begin[KVT_AXIS_S]), n, next;
	enum kvt_status status = KVT_OK;
	struct target_span *wanted;

	if (!f.heads.count || !f.kv.count)
		return KVT_OK;
	if (!(wanted = wanted_of(&n, part, box)))
		return kvt_no_memory(err, NULL);
	for (int64_t l = box->begin[KVT_AXIS_L]; !status && l < box->end[KVT_AXIS_L];
	     l = next) {
		struct kvt_box from = kvt_box_whole(&there->shape);

		next = layers_end(part->layers, l, box->end[KVT_AXIS_L]);
		f.layer = l;
		f.from = list_at(part->layers, l);
		if (f.from < 0)
			continue;
		box_take(&from, KVT_AXIS_L, f.from, next - l);
		box_take(&from, KVT_AXIS_H, f.heads.from, f.heads.count);
		box_take(&from, KVT_AXIS_K, f.kv.from, f.kv.count);
		status = walk_spans(worker, part->leaf, part->group, from, wanted, n,
				    rows, put_spans, &f, err);
	}
	free(wanted);
	return status;
}

/* ---- rows of tiles ---------------------------------------------------------- */

bool dump_tiles_of_a_head(const struct kvt_dump *dump, int group)
{
	const struct map_group *map = &dump->group[group];

	for (int p = 0; p < map->nparts; p++) {
		const struct kvt_tiling *tiling = part_tiling(&map->part[p]);

		if (tiling ? tiling->n[KVT_AXIS_H] > 1 : map->part[p].leaf->path != NULL)
			return false;
	}
	return true;
}

const struct kvt_tiling *dump_leaf_tiling(const struct kvt_dump *dump, int group)
{
	const struct map_group *map = &dump->group[group];

	for (int p = 0; p < map->nparts; p++)
		if (part_tiling(&map->part[p]))
			return part_tiling(&map->part[p]);
	return NULL;
}

int64_t rows_of_cut(const struct kvt_cut *cut, int64_t nblocks, int64_t tile,
		    wanted_fn *wanted_in, const void *context)
{
	int64_t *seen = calloc((size_t)(nblocks / tile) + 1, sizeof(*seen)), sum = 0;

	if (!seen)
		return -1;
	for (int64_t i = 0; sum >= 0 && i < cut->nboxes; i++) {
		struct kvt_box box = kvt_cut_box(cut, i);
		struct target_span *wanted;
		int64_t n;

		if (box.begin[KVT_AXIS_L])
			break;		/* all layers have the same blocks */
		wanted = wanted_in(&n, context, &box);
		for (int64_t w = 0; wanted && w < n; w++) {
			int64_t row = wanted[w].span.block / tile;

			sum += seen[row] != i + 1;
			seen[row] = i + 1;
		}
		if (!wanted)
			sum = -1;
		free(wanted);
	}
	free(seen);
	return sum;
}

int64_t dump_rows(const void *context, const struct kvt_cut *cut)
{
	const struct dump_rows *of = context;
	const struct map_group *map = &of->dump->group[of->group];
	int64_t sum = 0;

	for (int p = 0; sum >= 0 && p < map->nparts; p++) {
		const struct map_part *part = &map->part[p];
		const struct kvt_tiling *tiling = part_tiling(part);
		int64_t nblocks = part_group(part)->shape.n[KVT_AXIS_B], n = 0;

		if (tiling)
			n = rows_of_cut(cut, nblocks, tiling->n[KVT_AXIS_B], wanted_of,
					part);
		sum = n < 0 ? -1 : sum + n;
	}
	return sum;
}
