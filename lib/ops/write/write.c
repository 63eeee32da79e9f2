/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - one box of each dump into its writer
 *
 * A box is done tile by tile where plan.c found tiles that both sides have, else it is
 * read whole, in the order of the destination, and put.  Hashes of cells come from the
 * source if it proves them, or are made of what goes by; if both are there they must
 * agree.
 */
#include "lib/ops/write/plan.h"

#include <stdlib.h>
#include <string.h>

#include "lib/dump/seen.h"
#include "lib/run/device.h"

/* What the workers get: the same box of a group of all writers. */
struct transfer {
	const struct transform *t;
	struct put_room room;		/* of one writer */
	int group;
	const struct kvt_group *from, *to;
	struct kvt_layout order;	/* of a box that tiles are made of */
	const struct kvt_tiling *src_tiling, *dst_tiling;	/* NULL: flat */
};

/* The box at hand. */
struct moving {
	const struct transfer *x;
	int writer;			/* which of them, and of the sources */
	struct put put;
	struct placed source;		/* the dense box; not used tile to tile */
};

static const struct kvt_dump *source_of(const struct moving *m)
{
	return m->x->t->source[m->writer];
}

/* ---- one tile ----------------------------------------------------------- */

/* Both sides have this tile and the same bytes in it. */
static enum kvt_status move_tile(struct kvt_worker *worker, void *context,
				 const int64_t begin[KVT_NAXES], struct kvt_error *err)
{
	struct moving *m = context;
	const struct transfer *x = m->x;
	struct kvt_stored stored = put_next(&m->put);
	/* that the tile moves is to say that it is in the other order, too */
	struct placed tile = { &x->to->layout, tile_box(x->src_tiling, begin),
			       worker->tile };
	struct kvt_box part = box_cut(&tile.box, &x->from->shape);
	enum kvt_status status;

	if ((status = kvt_read_tile(source_of(m), x->group, begin, &stored, err)))
		return status;
	put_keep(&m->put, begin, &stored);
	if (!m->put.make_cells)
		return kvt_stored_check(&stored, x->src_tiling, err);
	/* decoding checks that, too */
	if ((status = kvt_decode(worker->tile, &stored, x->src_tiling,
				 worker->scratch, err)))
		return status;
	return put_hash(worker, &m->put, &tile, &part, worker->spare, err);
}

/* The same tile on both sides, in another order inside. */
static enum kvt_status recode_tile(struct kvt_worker *worker, void *context,
				   const int64_t begin[KVT_NAXES], struct kvt_error *err)
{
	struct moving *m = context;
	const struct transfer *x = m->x;
	struct kvt_stored stored = { .bytes = worker->stored,
				     .capacity = kvt_stored_bound(x->src_tiling) };
	enum kvt_status status;

	if ((status = kvt_read_tile(source_of(m), x->group, begin, &stored, err)) ||
	    (status = kvt_decode(worker->spare, &stored, x->src_tiling,
				 worker->scratch, err)))
		return status;
	status = plans_run(worker, worker->tile, x->dst_tiling->nbytes, worker->spare,
			   &unit_at(&x->t->step[x->group], begin)->plans, err);
	return status ? status : put_tile(worker, &m->put, begin, worker->tile, err);
}

static enum kvt_status same_tile(struct kvt_worker *worker, void *context,
				 const int64_t begin[KVT_NAXES], struct kvt_error *err)
{
	const struct moving *m = context;
	const struct unit *unit = unit_at(&m->x->t->step[m->x->group], begin);

	return (unit->moves ? move_tile : recode_tile)(worker, context, begin, err);
}

/* ---- one box ------------------------------------------------------------ */

/* Cells that the source file has need no hashing. */
static enum kvt_status fetch_cells(const struct moving *m, struct kvt_error *err)
{
	const struct transfer *x = m->x;

	if (!m->put.cells || m->put.make_cells)
		return KVT_OK;
	return kvt_read_cells(source_of(m), x->group, &m->put.box, m->put.cells, err);
}

static enum kvt_status cells_differ(const struct moving *m, int64_t i,
				    struct kvt_error *err)
{
	const struct kvt_group *group = m->x->from;
	const int64_t *n = group->shape.n, *begin = m->put.box.begin;
	int64_t nb = m->put.box.end[KVT_AXIS_B] - begin[KVT_AXIS_B];
	int64_t head = i / n[KVT_AXIS_K] % n[KVT_AXIS_H];
	int64_t page = i / n[KVT_AXIS_K] / n[KVT_AXIS_H];

	return kvt_fail(err, KVT_BAD_INPUT,
			"group %s: layer %lld block %llu head %lld kv %lld does not match content_digest of the input; kvtool fsck lists all differences", group->id,
			LL(begin[KVT_AXIS_L] + page / nb),
			(unsigned long long)kvt_block_id(
				group, begin[KVT_AXIS_B] + page % nb), LL(head),
			LL(i % n[KVT_AXIS_K]));
}

/* What was hashed, against cells of the source that have no checksum. */
static enum kvt_status hold_cells(const struct moving *m, struct kvt_error *err)
{
	const struct transfer *x = m->x;
	const struct kvt_box *box = &m->put.box;
	const int64_t *n = x->from->shape.n;
	int64_t count = (box->end[KVT_AXIS_L] - box->begin[KVT_AXIS_L]) *
			(box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B]) *
			n[KVT_AXIS_H] * n[KVT_AXIS_K];
	enum kvt_status status;
	uint64_t *cells;

	if (!x->t->step[x->group].hold_cells ||
	    !kvt_dump_has_cells(source_of(m), x->group))
		return KVT_OK;
	if (!(cells = malloc((size_t)count * sizeof(*cells) + 1)))
		return kvt_no_memory(err, NULL);
	status = kvt_read_cells(source_of(m), x->group, box, cells, err);
	for (int64_t i = 0; !status && i < count; i++)
		if (cells[i] != m->put.cells[i])
			status = cells_differ(m, i, err);
	free(cells);
	return status;
}

/* In a box that is dense in its group's order. */
static enum kvt_status spoil(const struct moving *m, const struct placed *at,
			     struct kvt_error *err)
{
	const struct spoiled *spoil = m->x->t->spoil;
	int64_t index[KVT_NAXES];
	struct kvt_views views;
	enum kvt_status status;

	if (!spoil || spoil->writer != m->writer || spoil->group != m->x->group)
		return KVT_OK;
	for (int a = 0; a < KVT_NAXES; a++) {
		if (spoil->index[a] < at->box.begin[a] ||
		    spoil->index[a] >= at->box.end[a])
			return KVT_OK;
		index[a] = spoil->index[a] - at->box.begin[a];
	}
	if ((status = kvt_layout_views(&views, at->layout, &at->box,
				       m->x->to->shape.elem, err)))
		return status;
	at->bytes[kvt_views_at(&views, index)] ^= 0xff;
	return KVT_OK;
}

/* Some heads at once, so that what is read is still in the cache when it is encoded. */
static enum kvt_status fill_strips(struct kvt_worker *worker, struct moving *m,
				   struct kvt_error *err)
{
	const struct kvt_box box = m->put.box;
	int64_t end = box.end[KVT_AXIS_H], step = m->x->t->step[m->x->group].strip, next;
	enum kvt_status status = KVT_OK;

	for (int64_t h = box.begin[KVT_AXIS_H]; !status && h < end; h = next) {
		struct placed strip = { m->source.layout, box, m->source.bytes };

		next = h + step < end ? h + step : end;
		box_take(&strip.box, KVT_AXIS_H, h, next - h);
		m->put.box = strip.box;
		if (!(status = kvt_read(worker, source_of(m), m->x->group, &strip.box,
					strip.layout, strip.bytes, err)) &&
		    !(status = spoil(m, &strip, err)))
			status = put_dense(worker, &m->put, &strip, err);
	}
	m->put.box = box;
	return status;
}

static enum kvt_status fill_tiles(struct kvt_worker *worker, struct moving *m,
				  struct kvt_error *err)
{
	const struct transfer *x = m->x;
	const struct kvt_box *box = &m->put.box;

	if (x->t->step[x->group].direct &&
	    kvt_dump_has_tiles(source_of(m), x->group, box))
		return each_tile(worker, x->dst_tiling, box, same_tile, m, err);
	return fill_strips(worker, m, err);
}

static enum kvt_status fill_flat(struct kvt_worker *worker, struct moving *m,
				 struct kvt_error *err)
{
	const struct transfer *x = m->x;
	struct placed target = { &x->to->layout, m->put.box, worker->buffer[1] };
	enum kvt_status status;

	if ((status = kvt_read(worker, source_of(m), x->group, &m->put.box,
			       &x->to->layout, target.bytes, err)) ||
	    (status = spoil(m, &target, err)))
		return status;
	return put_dense(worker, &m->put, &target, err);
}

static struct moving moving_of(struct kvt_worker *worker, const struct transfer *x,
			       int writer, const struct kvt_box *box)
{
	const struct put_room *room = &x->room;
	bool tiled = x->dst_tiling;

	return (struct moving){
		.x = x, .writer = writer,
		.put = {
			.writer = x->t->writer[writer], .group = x->group, .box = *box,
			.cells = room->cells ? (uint64_t *)(void *)(worker->buffer[2] +
				 writer * room->cells) : NULL,
			.make_cells = x->t->step[x->group].make_cells,
			.in_cell_order = room->in_cell_order,
			.sorted = tiled ? NULL : worker->buffer[3],
			.stored = worker->buffer[1] + writer * room->stored,
			.waiting = tiled ? (struct waiting *)(void *)(worker->buffer[3] +
				   writer * room->waiting) : NULL,
		},
		.source = { &x->order, *box, worker->buffer[0] },
	};
}

static enum kvt_status fill(struct kvt_worker *worker, struct moving *m,
			    struct kvt_error *err)
{
	enum kvt_status status;

	if ((status = fetch_cells(m, err)) ||
	    (status = (m->x->dst_tiling ? fill_tiles : fill_flat)(worker, m, err)))
		return status;
	return hold_cells(m, err);
}

/* A kvt_work_fn; the context is a struct transfer. */
static enum kvt_status transfer_box(struct kvt_worker *worker, void *context, int64_t i,
				    struct kvt_error *err)
{
	const struct transfer *x = context;
	struct kvt_box box = kvt_cut_box(&x->t->step[x->group].cut, i);
	struct kvt_shape shape = kvt_box_shape(&box, x->from->shape.elem);
	struct put *put = calloc((size_t)x->t->n, sizeof(*put));
	enum kvt_status status = KVT_OK;
	int64_t nbytes;

	if (!put)
		return kvt_no_memory(err, NULL);
	for (int w = 0; !status && w < x->t->n; w++) {
		struct moving m = moving_of(worker, x, w, &box);

		status = fill(worker, &m, err);
		put[w] = m.put;
	}
	if (!status)
		status = put_finish(worker, put, x->t->n, i, err);
	free(put);
	if (status || (status = kvt_shape_nbytes(&nbytes, &shape, err)))
		return status;
	kvt_worker_progress(worker, nbytes * x->t->n);
	return KVT_OK;
}

/* ---- all boxes of all groups ---------------------------------------------------- */

/*
 * Buffers: 0 source box, where tiles are made of it, 1 destination box
 * or its stored tiles, 2 cells, 3 the list of the tiles; without tiles the box in
 * the order that cells are hashed in.  What waits for its turn is there once a writer.
 */
static struct kvt_work group_work(const struct transform *t, struct transfer *ctx)
{
	const struct group_step *step = &t->step[ctx->group];
	const struct put_room *room = &ctx->room;
	struct kvt_work work = {
		.fn = transfer_box, .context = ctx, .count = step->cut.nboxes,
		.total_bytes = step->data_bytes, .seen = t->seen,
	};

	for (int i = 0; i < t->n; i++)
		kvt_work_reads(&work, t->source[i], ctx->group, &step->cut,
			       ctx->dst_tiling ? &ctx->order : &ctx->to->layout);
	if (t->n > 1) {
		/* all that the box has in any of them, once */
		work.share = true;
		if (work.buffer_bytes[RANGE_BUFFER] < t->n * step->cut.box_bytes)
			work.buffer_bytes[RANGE_BUFFER] = t->n * step->cut.box_bytes;
	}
	work_needs_tiles(&work, ctx->dst_tiling);
	if (step->ndirect < step->ntiles)
		work.buffer_bytes[0] = step->cut.box_bytes /
				       ctx->from->shape.n[KVT_AXIS_H] * step->strip;
	work.buffer_bytes[1] = ctx->dst_tiling ? t->n * room->stored :
						 step->cut.box_bytes;
	work.buffer_bytes[2] = t->n * room->cells;
	work.buffer_bytes[3] = t->n * room->waiting;
	if (room->cells && !ctx->dst_tiling)
		work.buffer_bytes[3] = step->cut.box_bytes;
	return work;
}

static struct transfer transfer_of(const struct transform *t, int group)
{
	const struct kvt_group *from = kvt_dump_group(t->source[0], group);
	const struct kvt_group *to = &kvt_writer_snapshot(t->writer[0])->group[group];
	const struct kvt_tiling *tiling = kvt_writer_tiling(t->writer[0], group);
	/* what is an array is read as it lies, and a device permutes */
	bool runs = tiling && dump_leaf_tiling(t->source[0], group) && !t->run.device;

	return (struct transfer){
		.t = t, .group = group,
		.order = runs ? tile_runs(&to->layout, tiling, &to->shape) :
				from->layout,
		.room = put_room(t->writer[0], group, &t->step[group].cut),
		.from = from, .to = to,
		.src_tiling = kvt_dump_tiling(t->source[0], group),
		.dst_tiling = tiling,
	};
}

int64_t transform_memory(const struct transform *t)
{
	int64_t most = 0;

	for (int g = 0; g < kvt_writer_snapshot(t->writer[0])->ngroups; g++) {
		struct transfer ctx = transfer_of(t, g);
		struct kvt_work work = group_work(t, &ctx);
		int64_t nbytes = kvt_work_memory(&work, &t->run);

		if (nbytes > most)
			most = nbytes;
	}
	return most + seen_bytes(t->seen);
}

enum kvt_status transform_run(struct transform *t, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int g = 0; !status && g < kvt_writer_snapshot(t->writer[0])->ngroups; g++) {
		struct transfer ctx = transfer_of(t, g);
		struct kvt_work work = group_work(t, &ctx);

		work.label = t->step[g].ntiles &&
			     tiles_that_move(&t->step[g]) == t->step[g].ntiles ?
			     "moving" : "converting";
		if (work.total_bytes)
			status = kvt_work_run(&work, &t->run, err);
	}
	for (int i = 0; !status && i < t->n; i++)
		status = kvt_finish(t->writer[i], err);
	return status;
}

enum kvt_status kvt_write(struct kvt_writer *const *writers,
			  const struct kvt_dump *const *dumps, int n,
			  const struct kvt_run *run, struct kvt_error *err)
{
	struct transform t = { .n = n, .source = dumps, .writer = writers };
	enum kvt_status status;

	if (run)
		t.run = *run;
	status = transform_plan(&t, err);
	return status ? status : transform_run(&t, err);
}
