/* SPDX-License-Identifier: Apache-2.0 */
/* read_states.c - blocks of a source whose states come from blocks of another size */
#include "lib/dump/map.h"

#include <stdlib.h>
#include <string.h>

/* ---- states that are read together -------------------------------------- */

static int by_place(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	if (x->span.block != y->span.block)
		return x->span.block < y->span.block ? -1 : 1;
	if (x->span.state != y->span.state)
		return x->span.state < y->span.state ? -1 : 1;
	return 0;
}

/* States of the inner parts of S, which planes may split differently. */
struct splits {
	int64_t least, most;		/* 0: S is not split */
};

static struct splits splits_of(const struct kvt_layout *layout, int64_t elem)
{
	struct splits out = { 0, 0 };

	for (int p = 0; p < layout->nplanes; p++)
		for (int i = 0; i < layout->plane[p].nparts; i++) {
			const struct kvt_part *part = &layout->plane[p].part[i];
			int64_t n = part->split ? part->split :
				    elem < 16 ? 16 / elem : 1;

			if (part->axis != KVT_AXIS_S || part->kind == KVT_WHOLE)
				continue;
			out.least = out.least && out.least < n ? out.least : n;
			out.most = out.most > n ? out.most : n;
		}
	return out;
}

/* How a flat group is read: whole blocks, or states of one block if it is long. */
struct reach {
	int64_t blocks, states;		/* of a piece at most; states 0: whole blocks */
};

static struct reach reach_of(const struct kvt_group *group, int64_t rows)
{
	int64_t states = group->shape.n[KVT_AXIS_S];

	if (states > rows && !splits_of(&group->layout, group->shape.elem).most)
		return (struct reach){ 1, rows };
	return (struct reach){ rows > states ? rows / states : 1, 0 };
}

static int64_t span_end(const struct wanted *w)
{
	return (int64_t)w->span.state + w->span.count;
}

/* The end of the piece that begins with w[0]; 'there' becomes where it is. */
static int64_t piece_end(struct kvt_box *there, const struct wanted *w, int64_t n,
			 const struct kvt_group *group,
			 const struct kvt_tiling *tiling, const struct reach *reach)
{
	int64_t states = group->shape.n[KVT_AXIS_S], first = w->span.block;
	int64_t tile = tiling ? tiling->n[KVT_AXIS_B] : 0;
	int64_t last = first, begin = w->span.state, end = span_end(w), i = 1;

	for (; i < n; i++) {
		int64_t block = w[i].span.block, state = w[i].span.state;

		if (tile ? block / tile != first / tile :
		    reach->states ? block != first || state > end ||
				    span_end(&w[i]) - begin > reach->states :
				    block > last + 1 || block - first >= reach->blocks)
			break;
		last = block;
		if (span_end(&w[i]) > end)
			end = span_end(&w[i]);
	}
	box_take(there, KVT_AXIS_B, first, last + 1 - first);
	if (!tile && reach->states)
		box_take(there, KVT_AXIS_S, begin, end - begin);
	else
		box_take(there, KVT_AXIS_S, 0, states);
	return i;
}

enum kvt_status each_spans(struct worker *worker, struct kvt_dump *reader, int group,
			   const int64_t layers[2], struct wanted *wanted, int64_t n,
			   int64_t rows, spans_fn *fn, void *context,
			   struct kvt_error *err)
{
	const struct kvt_group *from = reader_group(reader, group);
	const struct kvt_tiling *tiling = kvt_dump_tiling(reader, group);
	int64_t step = tiling ? tiling->n[KVT_AXIS_L] : layers[1] - layers[0], end;
	struct reach reach = reach_of(from, rows);
	struct kvt_box there = kvt_box_whole(&from->shape);
	enum kvt_status status;

	qsort(wanted, (size_t)n, sizeof(*wanted), by_place);
	for (int64_t l = layers[0]; l < layers[1]; l = end) {
		/* a piece never leaves a row of tiles */
		end = tiling ? (l / step + 1) * step : l + step;
		if (end > layers[1])
			end = layers[1];
		box_take(&there, KVT_AXIS_L, l, end - l);
		for (int64_t i = 0; i < n; ) {
			struct spans_read read = { .layers = { l, end },
						   .wanted = wanted + i };

			read.n = piece_end(&there, read.wanted, n - i, from, tiling,
					   &reach);
			if ((status = read_around(&read.src, worker, reader, group,
						  &there, err)) ||
			    (status = fn(context, &read, err)))
				return status;
			i += read.n;
		}
	}
	return KVT_OK;
}

void work_needs_spans(struct work *work, const struct kvt_dump *reader, int group,
		      int64_t layers, int64_t rows)
{
	const struct kvt_shape *shape = &reader_group(reader, group)->shape;
	struct reach reach = reach_of(reader_group(reader, group), rows);
	int64_t nbytes = shape->elem * layers * reach.states;

	if (kvt_dump_tiling(reader, group) || !reach.states) {
		work_needs_pieces(work, reader, group, layers, reach.blocks);
		return;
	}
	for (int a = KVT_AXIS_H; a < KVT_NAXES; a++)
		nbytes *= shape->n[a];
	if (work->buffer_bytes[SOURCE_BUFFER] < nbytes)
		work->buffer_bytes[SOURCE_BUFFER] = nbytes;
}

/* ---- a box of the source ------------------------------------------------ */

struct filling {
	struct worker *worker;
	struct placed dst;
	int64_t elem;
};

/*
 * Where S is split a copy must be of whole inner parts, or stay inside one, in
 * every plane and on both sides: only those states are evenly spaced.
 */
static int64_t copy_end(const struct kvt_layout *layout, int64_t elem, int64_t state,
			int64_t count)
{
	struct splits splits = splits_of(layout, elem);
	int64_t left;

	if (!splits.most)
		return count;
	if (state % splits.most == 0 && count >= splits.most)
		return count - count % splits.most;
	left = splits.least - state % splits.least;
	return left < count ? left : count;
}

static enum kvt_status put_span(const struct filling *f, const struct spans_read *read,
				const struct wanted *w, struct kvt_error *err)
{
	struct kvt_box to = f->dst.box, from = read->src.box;
	int64_t done = 0, count;

	box_take(&to, KVT_AXIS_L, read->layers[0], read->layers[1] - read->layers[0]);
	box_take(&from, KVT_AXIS_L, read->layers[0], read->layers[1] - read->layers[0]);
	box_take(&to, KVT_AXIS_B, w->to, 1);
	box_take(&from, KVT_AXIS_B, w->span.block, 1);
	for (; done < w->span.count; done += count) {
		int64_t at = w->span.at + done, state = w->span.state + done;
		enum kvt_status status;

		count = copy_end(read->src.layout, f->elem, state, w->span.count - done);
		count = copy_end(f->dst.layout, f->elem, at, count);
		box_take(&to, KVT_AXIS_S, at, count);
		box_take(&from, KVT_AXIS_S, state, count);
		if ((status = copy_part(f->worker, &f->dst, &to, &read->src, &from,
					f->elem, err)))
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

enum kvt_status read_spans(struct worker *worker, const struct source *source,
			   int group, const struct kvt_box *box, uint8_t *buf,
			   struct kvt_error *err)
{
	const struct source_group *map = &source->group[group];
	const struct kvt_group *here = &source->snapshot.group[group];
	int64_t states = here->shape.n[KVT_AXIS_S], filled = 0, n = 0;
	int64_t begin = box->begin[KVT_AXIS_B], end = box->end[KVT_AXIS_B];
	const int64_t layers[2] = { box->begin[KVT_AXIS_L], box->end[KVT_AXIS_L] };
	struct filling filling = { worker, { &here->layout, *box, buf },
				   here->shape.elem };
	int64_t room = map->first[end] - map->first[begin];
	struct wanted *wanted = malloc(((size_t)room + 1) * sizeof(*wanted));
	struct kvt_shape shape = kvt_box_shape(box, here->shape.elem);
	enum kvt_status status;
	int64_t nbytes;

	if (!wanted)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t b = begin; b < end; b++)
		for (int64_t i = map->first[b]; i < map->first[b + 1]; i++) {
			wanted[n++] = (struct wanted){ map->span[i], b };
			filled += map->span[i].count;
		}
	status = kvt_shape_nbytes(&nbytes, &shape, err);
	if (!status && filled < (end - begin) * states)
		memset(buf, 0, (size_t)nbytes);
	if (!status)
		status = each_spans(worker, reader_of(source, map->part), map->from,
				    layers, wanted, n, (end - begin) * states,
				    put_spans, &filling, err);
	free(wanted);
	return status;
}

/* ---- stored tiles ------------------------------------------------------- */

/* Inside a tile, are the states of neighbouring blocks neighbours? */
static bool joins_blocks(const struct kvt_layout *layout,
			 const struct kvt_tiling *tiling)
{
	struct kvt_shape shape = { .elem = tiling->elem };

	memcpy(shape.n, tiling->n, sizeof(shape.n));
	shape.n[KVT_AXIS_B] = shape.n[KVT_AXIS_S] = 2;
	return !splits_of(layout, tiling->elem).most &&
	       kvt_layout_predicates(layout, &shape).kernel_split_neutral;
}

/* Are the blocks begin to end full of states that follow each other there? */
static bool in_a_row(const struct source_group *map, int64_t begin, int64_t end,
		     int64_t states, int64_t size)
{
	const struct source_span *span = map->span + map->first[begin];
	int64_t row = (int64_t)span->block * size + span->state;

	for (int64_t b = begin; b < end; b++) {
		int64_t at = 0;

		for (int64_t i = map->first[b]; i < map->first[b + 1]; i++) {
			span = &map->span[i];
			if (span->at != at || (int64_t)span->block * size +
					      span->state != row)
				return false;
			at += span->count;
			row += span->count;
		}
		if (at != states)
			return false;
	}
	return true;
}

bool spans_keep_tiles(struct kvt_tiling *out, const struct source *source, int group)
{
	const struct source_group *map = &source->group[group];
	const struct kvt_group *here = &source->snapshot.group[group];
	struct kvt_dump *reader = reader_of(source, map->part);
	const struct kvt_group *there = reader_group(reader, map->from);
	const struct kvt_tiling *own = kvt_dump_tiling(reader, map->from);
	int64_t size = there->shape.n[KVT_AXIS_S], states = here->shape.n[KVT_AXIS_S];
	int64_t rows, step, nblocks = here->shape.n[KVT_AXIS_B];

	if (!own || own->n[KVT_AXIS_S] != size || !joins_blocks(&there->layout, own) ||
	    !kvt_layout_equal(&there->layout, &here->layout))
		return false;
	rows = own->n[KVT_AXIS_B] * size;
	if (rows % states)
		return false;
	step = rows / states;
	for (int64_t b = 0; b < nblocks; b += step) {
		const struct source_span *first = map->span + map->first[b];
		int64_t end = b + step < nblocks ? b + step : nblocks;
		int64_t left = there->shape.n[KVT_AXIS_B] - first->block;

		if (map->first[b] == map->first[b + 1] || first->at || first->state ||
		    first->block % own->n[KVT_AXIS_B])
			return false;
		if (left > own->n[KVT_AXIS_B])
			left = own->n[KVT_AXIS_B];
		if (left * size != (end - b) * states ||
		    !in_a_row(map, b, end, states, size))
			return false;
	}
	*out = *own;
	out->n[KVT_AXIS_B] = step;
	out->n[KVT_AXIS_S] = states;
	return true;
}
