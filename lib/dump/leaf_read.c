/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_read.c - boxes of one leaf: arrays, tiles, memory
 *
 * What a leaf has together is read together: of an array neighbours, of tiles those
 * of a row.  A range stays in the worker's buffer until another one is read, so that
 * several dumps over one leaf read what they share once.
 */
#include "lib/dump/map.h"
#include "lib/dump/seen.h"
#include "lib/tile/codec.h"

#include <assert.h>
#include <string.h>

#include "lib/base/grow.h"

struct kvt_leaf *leaf_of(const struct kvt_dump *dump)
{
	assert(dump->is_leaf);
	return dump->leaf[0];
}

/* ---- ranges ------------------------------------------------------------- */

static int64_t at_of(const int64_t *list, int64_t i)
{
	return list ? list[i] : i;
}

static int64_t run_end(const int64_t *list, int64_t i, int64_t end, int64_t tile)
{
	int64_t j = i + 1;

	if (!list)		/* as it is: to the end, or to that of the tile */
		return tile && (i / tile + 1) * tile < end ? (i / tile + 1) * tile : end;
	if (list[i] < 0)
		return j;
	if (tile)
		while (j < end && list[j] >= 0 && list[j] / tile == list[i] / tile)
			j++;
	else
		while (j < end && list[j] == list[j - 1] + 1)
			j++;
	return j;
}

struct ranges ranges_of(const struct kvt_box *box, const int64_t *layer,
			const int64_t *block, const struct kvt_tiling *tiling)
{
	struct ranges p = { .all = *box, .here = *box, .layer = layer, .block = block };

	if (tiling) {
		p.tile[0] = tiling->n[KVT_AXIS_L];
		p.tile[1] = tiling->n[KVT_AXIS_B];
	}
	/* as if the row of blocks before the first had just ended */
	p.here.end[KVT_AXIS_L] = box->begin[KVT_AXIS_L];
	return p;
}

bool range_next(struct ranges *p)
{
	const int64_t *begin = p->all.begin, *end = p->all.end;

	p->here.begin[KVT_AXIS_B] = p->here.end[KVT_AXIS_B];
	if (p->here.begin[KVT_AXIS_B] == end[KVT_AXIS_B]) {
		p->here.begin[KVT_AXIS_L] = p->here.end[KVT_AXIS_L];
		if (p->here.begin[KVT_AXIS_L] == end[KVT_AXIS_L] ||
		    begin[KVT_AXIS_B] == end[KVT_AXIS_B])
			return false;
		p->here.end[KVT_AXIS_L] = run_end(p->layer, p->here.begin[KVT_AXIS_L],
						  end[KVT_AXIS_L], p->tile[0]);
		p->here.begin[KVT_AXIS_B] = begin[KVT_AXIS_B];
	}
	p->here.end[KVT_AXIS_B] = run_end(p->block, p->here.begin[KVT_AXIS_B],
					  end[KVT_AXIS_B], p->tile[1]);
	return true;
}

bool range_is_there(const struct ranges *p)
{
	return at_of(p->layer, p->here.begin[KVT_AXIS_L]) >= 0 &&
	       at_of(p->block, p->here.begin[KVT_AXIS_B]) >= 0;
}

/* From the least index to the greatest: inside a tile they need not ascend. */
static void map_range(struct kvt_box *box, enum kvt_axis axis, const int64_t *list,
		      int64_t begin, int64_t end)
{
	int64_t least = at_of(list, begin), most = at_of(list, end - 1);

	for (int64_t i = begin; list && i < end; i++) {
		least = list[i] < least ? list[i] : least;
		most = list[i] > most ? list[i] : most;
	}
	box_take(box, axis, least, most + 1 - least);
}

struct kvt_box range_there(const struct ranges *p)
{
	struct kvt_box box = p->here;

	map_range(&box, KVT_AXIS_L, p->layer, p->here.begin[KVT_AXIS_L],
		  p->here.end[KVT_AXIS_L]);
	map_range(&box, KVT_AXIS_B, p->block, p->here.begin[KVT_AXIS_B],
		  p->here.end[KVT_AXIS_B]);
	return box;
}

/* ---- boxes of a leaf ------------------------------------------------------- */

enum kvt_status leaf_load_tile(const struct kvt_leaf *leaf, int group,
			       const int64_t begin[KVT_NAXES], struct kvt_stored *out,
			       struct kvt_error *err)
{
	struct kvt_extent extent;
	enum kvt_status status = leaf->ops->find_tile(leaf, group, begin, &extent, err);

	if (status || (status = leaf->ops->load_tile(leaf, &extent, out, err)) ||
	    !leaf->held[group] || !kvt_stored_bare(out, leaf_tiling(leaf, group)))
		return status;
	return held_tile(leaf, group, begin, out, err);
}

struct reading {
	const struct kvt_leaf *leaf;
	int group;
	const struct kvt_box *box;	/* of the leaf */
	const struct placed *dst;
	const int64_t *shift;		/* from there to dst */
};

/* What of a tile is in a box that need not end where tiles do. */
static struct kvt_box box_shared(const struct kvt_box *a, const struct kvt_box *b)
{
	struct kvt_box out = *a;

	for (int i = 0; i < KVT_NAXES; i++) {
		if (out.begin[i] < b->begin[i])
			out.begin[i] = b->begin[i];
		if (out.end[i] > b->end[i])
			out.end[i] = b->end[i];
	}
	return out;
}

static enum kvt_status read_tile(struct kvt_worker *worker, void *context,
				 const int64_t begin[KVT_NAXES], struct kvt_error *err)
{
	const struct reading *r = context;
	const struct kvt_group *group = &r->leaf->snapshot.group[r->group];
	const struct kvt_tiling *tiling = leaf_tiling(r->leaf, r->group);
	struct kvt_stored stored = { .bytes = worker->stored,
				     .capacity = kvt_stored_bound(tiling) };
	struct placed tile = { &group->layout, tile_box(tiling, begin), worker->tile };
	struct kvt_box part = box_shared(&tile.box, r->box), to = part;
	uint8_t *in_place = NULL;
	enum kvt_status status;

	for (int a = 0; a < KVT_NAXES; a++)
		box_take(&to, a, part.begin[a] + r->shift[a],
			 part.end[a] - part.begin[a]);
	if (!memcmp(&part, &tile.box, sizeof(part)))
		in_place = tile_run_at(r->dst, &r->leaf->runs[r->group], tiling,
				       to.begin);
	if ((status = leaf_load_tile(r->leaf, r->group, begin, &stored, err)) ||
	    (status = kvt_decode(in_place ? in_place : worker->tile, &stored, tiling,
				 worker->scratch, err)))
		return status;
	seen_tile(worker_work(worker)->seen, r->leaf, r->group, begin,
		  in_place ? in_place : worker->tile);
	return in_place ? KVT_OK :
	       copy_part(worker, r->dst, &to, &tile, &part, group->shape.elem, err);
}

enum kvt_status read_tiles(struct kvt_worker *worker, const struct kvt_leaf *leaf,
			   int group, const struct kvt_box *box, const struct placed *dst,
			   const int64_t shift[KVT_NAXES], struct kvt_error *err)
{
	struct reading reading = { leaf, group, box, dst, shift };

	return each_tile(worker, leaf_tiling(leaf, group), box, read_tile, &reading, err);
}

static enum kvt_status read_array(struct kvt_worker *worker, const struct kvt_leaf *leaf,
				  int group, const struct kvt_box *box, void *buf,
				  struct kvt_error *err)
{
	enum kvt_status status = worker_touches(worker, leaf, err);

	if (status)
		return status;
	if (leaf->ops->read_by)
		return leaf->ops->read_by(worker, leaf, group, box, buf, err);
	return (leaf->held[group] ? held_box : leaf->ops->read_box)(leaf, group, box,
								    buf, err);
}

static const void *bytes_of(const struct kvt_leaf *leaf, int group)
{
	return leaf->ops->bytes ? leaf->ops->bytes(leaf, group) : NULL;
}

/* All of dst, which has another order than the leaf unless that has tiles. */
enum kvt_status read_leaf(struct kvt_worker *worker, const struct kvt_leaf *leaf,
			  int group, const struct placed *dst, struct kvt_error *err)
{
	const struct kvt_group *from = &leaf->snapshot.group[group];
	const int64_t shift[KVT_NAXES] = { 0 };
	enum kvt_status status;
	struct placed src;

	if (leaf_tiling(leaf, group))
		return read_tiles(worker, leaf, group, &dst->box, dst, shift, err);
	if (!bytes_of(leaf, group) && kvt_layout_equal(&from->layout, dst->layout))
		return read_array(worker, leaf, group, &dst->box, dst->bytes, err);
	if ((status = read_around(&src, worker, leaf, group, &dst->box, err)))
		return status;
	return copy_box(worker, dst, &src, &dst->box, from->shape.elem, err);
}

/* The range that holds just this box; dumps that share ranges ask for them in turn. */
static uint8_t *find_kept(struct kvt_worker *w, const struct kvt_leaf *leaf, int group,
			  const struct kvt_box *box)
{
	for (int i = 0; i < w->nkept; i++) {
		int at = (w->kept_next + i) % w->nkept;
		const struct range_kept *p = &w->kept[at];

		if (p->leaf != leaf || p->group != group ||
		    memcmp(&p->box, box, sizeof(*box)))
			continue;
		w->kept_next = at + 1;
		return w->buffer[RANGE_BUFFER] + p->at;
	}
	return NULL;
}

/* Room for one more; those before it go where there is none beside them. */
static enum kvt_status keep(struct range_kept **out, struct kvt_worker *w, int64_t nbytes,
			    struct kvt_error *err)
{
	w->kept_bytes = (w->kept_bytes + 63) / 64 * 64;		/* whole cache lines */
	if (w->kept_bytes + nbytes > worker_work(w)->buffer_bytes[RANGE_BUFFER])
		w->nkept = w->kept_next = w->kept_bytes = 0;
	if (!KVT_GROW(&w->kept, w->nkept))
		return kvt_no_memory(err, NULL);
	*out = &w->kept[w->nkept];
	(*out)->at = w->kept_bytes;
	return KVT_OK;
}

/* What is read for the box: whole tiles; of a block all that several dumps have of it. */
static struct kvt_box box_around(const struct kvt_worker *worker,
				 const struct kvt_tiling *tiling,
				 const struct kvt_shape *shape, const struct kvt_box *box)
{
	struct kvt_box out = *box;

	for (int a = 0; tiling && a < KVT_NAXES; a++) {
		int64_t n = tiling->n[a];

		out.begin[a] = box->begin[a] / n * n;
		out.end[a] = (box->end[a] + n - 1) / n * n;
	}
	for (int a = KVT_AXIS_H; !tiling && worker_work(worker)->share && a < KVT_NAXES;
	     a++)
		box_take(&out, a, 0, shape->n[a]);
	return box_cut(&out, shape);
}

enum kvt_status read_around(struct placed *out, struct kvt_worker *worker,
			    const struct kvt_leaf *leaf, int group,
			    const struct kvt_box *box, struct kvt_error *err)
{
	const struct kvt_tiling *tiling = leaf_tiling(leaf, group);
	const struct kvt_group *from = &leaf->snapshot.group[group];
	const void *bytes = bytes_of(leaf, group);
	struct range_kept *kept = NULL;
	struct kvt_shape shape;
	enum kvt_status status;
	int64_t nbytes;

	out->layout = &from->layout;
	if (bytes) {
		out->box = kvt_box_whole(&from->shape);
		out->bytes = (uint8_t *)(uintptr_t)bytes;	/* only read */
		return KVT_OK;
	}
	if (tiling)
		out->layout = &leaf->runs[group];
	out->box = box_around(worker, tiling, &from->shape, box);
	if ((out->bytes = find_kept(worker, leaf, group, &out->box)))
		return KVT_OK;
	shape = kvt_box_shape(&out->box, from->shape.elem);
	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)) ||
	    (status = keep(&kept, worker, nbytes, err)))
		return status;
	out->bytes = worker->buffer[RANGE_BUFFER] + kept->at;
	status = tiling ? read_leaf(worker, leaf, group, out, err) :
		 read_array(worker, leaf, group, &out->box, out->bytes, err);
	if (status)
		return status;
	kept->leaf = leaf;
	kept->group = group;
	kept->box = out->box;
	worker->kept_next = ++worker->nkept;
	worker->kept_bytes += nbytes;
	return KVT_OK;
}

void work_needs_tiles(struct kvt_work *work, const struct kvt_tiling *tiling)
{
	if (!tiling)
		return;
	if (work->tile_bytes < tiling->nbytes)
		work->tile_bytes = tiling->nbytes;
	if (work->stored_bytes < kvt_stored_bound(tiling))
		work->stored_bytes = kvt_stored_bound(tiling);
}

void work_needs_ranges(struct kvt_work *work, const struct kvt_leaf *leaf, int group,
		       int64_t layers, int64_t blocks)
{
	const struct kvt_tiling *tiling = leaf_tiling(leaf, group);
	const struct kvt_shape *shape = &leaf->snapshot.group[group].shape;
	int64_t nbytes = shape->elem;

	if (bytes_of(leaf, group))
		return;
	/* a range never leaves a row of tiles */
	layers = tiling ? tiling->n[KVT_AXIS_L] : layers;
	blocks = tiling ? tiling->n[KVT_AXIS_B] : blocks;
	nbytes *= layers < shape->n[KVT_AXIS_L] ? layers : shape->n[KVT_AXIS_L];
	nbytes *= blocks < shape->n[KVT_AXIS_B] ? blocks : shape->n[KVT_AXIS_B];
	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		nbytes *= shape->n[a];
	if (work->buffer_bytes[RANGE_BUFFER] < nbytes)
		work->buffer_bytes[RANGE_BUFFER] = nbytes;
	work_needs_tiles(work, tiling);
}
