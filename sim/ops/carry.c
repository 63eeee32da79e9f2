/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carry.c - a transfer whose bytes come op by op, box by box, into new files
 *
 * A box is the same blocks of all ranks of the destination, so that the source is
 * read once for them.  For each: what is there already, or the fill; then, for each
 * part of the plan that writes there, the blocks of the source that it reads (a
 * window, window.c) and its copies; then spoiling, if that was asked for; then all
 * ranks are written, in the order of boxes.  How a group is cut into boxes: cut.c.
 * The bytes moved are counted and held against the plan.
 */
#include "sim/ops/exec.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/ops/write/put.h"

/* One group of all ranks. */
struct carrying {
	const struct kvt_sides *sides;
	struct kvt_writer **writer;	/* one a rank */
	int group;			/* of the destination */
	struct kvt_cut cut;
	struct put_room room;		/* of one rank */
	const struct kvt_op_place *corrupt;	/* NULL: nothing */
	kvt_carry_fn *fn;
	void *context;
	int64_t moved;			/* under the pipeline's lock */
};

/* ---- one box --------------------------------------------------------- */

static enum kvt_status spoil(const struct carrying *c, int rank, const struct placed *to,
			     int64_t elem, struct kvt_error *err)
{
	int64_t at[KVT_NAXES];
	struct kvt_views views;
	enum kvt_status status;

	if (!c->corrupt || c->corrupt->rank != rank || c->corrupt->group != c->group)
		return KVT_OK;
	for (int a = 0; a < KVT_NAXES; a++) {
		int64_t i = c->corrupt->index[a];

		if (i < to->box.begin[a] || i >= to->box.end[a])
			return KVT_OK;
		at[a] = i - to->box.begin[a];
	}
	if ((status = kvt_layout_views(&views, to->layout, &to->box, elem, err)))
		return status;
	to->bytes[kvt_views_at(&views, at)] ^= 0xff;
	return KVT_OK;
}

/* The box as it was. */
static enum kvt_status read_before(struct kvt_worker *worker, const struct carrying *c,
				   int rank, const struct placed *to, int64_t nbytes,
				   struct kvt_error *err)
{
	const struct kvt_ranks *dst = &c->sides->dst;

	if (!dst->made)
		return kvt_read(worker, dst->file[rank].reader, c->group, &to->box, NULL,
				to->bytes, err);
	memset(to->bytes, c->sides->fill, (size_t)nbytes);
	return KVT_OK;
}

static enum kvt_status move_parts(struct kvt_worker *worker, const struct carrying *c,
				  const struct kvt_box *box, int64_t *moved,
				  struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int p = 0; !status && p < c->sides->transfer.ngroups; p++) {
		struct kvt_carry_box part = kvt_carry_box_of(c->sides, p, box);

		part.rank_bytes = c->cut.box_bytes;
		if (c->sides->transfer.group[p].dst_group == c->group && part.nspans)
			status = c->fn(c->context, worker, &part, worker->buffer[0],
				       moved, err);
	}
	return status;
}

static struct put put_of(struct kvt_worker *worker, const struct carrying *c, int rank,
			 const struct kvt_box *box)
{
	const struct put_room *room = &c->room;
	bool tiled = room->waiting;

	return (struct put){
		.writer = c->writer[rank], .group = c->group, .box = *box,
		.cells = room->cells ? (uint64_t *)(void *)(worker->buffer[2] +
							    rank * room->cells) : NULL,
		.make_cells = room->cells, .in_cell_order = room->in_cell_order,
		.sorted = tiled ? NULL : worker->buffer[3],
		/* the window has done its work by then */
		.stored = worker->buffer[1] + rank * room->stored,
		.waiting = tiled ? (struct waiting *)(void *)(worker->buffer[3] +
							      rank * room->waiting) :
				   NULL,
	};
}

static enum kvt_status put_ranks(struct kvt_worker *worker, const struct carrying *c,
				 const struct kvt_box *box, int64_t i,
				 struct kvt_error *err)
{
	const struct kvt_group *g = &kvt_ranks_snapshot(&c->sides->dst,
							0)->group[c->group];
	struct placed to = { &g->layout, *box, worker->buffer[0] };
	int n = c->sides->dst.n;
	struct put *put = calloc((size_t)n, sizeof(*put));
	enum kvt_status status = KVT_OK;

	if (!put)
		return kvt_no_memory(err, NULL);
	for (int r = 0; !status && r < n; r++, to.bytes += c->cut.box_bytes) {
		put[r] = put_of(worker, c, r, box);
		if (!(status = spoil(c, r, &to, g->shape.elem, err)))
			status = put_dense(worker, &put[r], &to, err);
	}
	if (!status)
		status = put_finish(worker, put, n, i, err);
	free(put);
	return status;
}

/* The same box of all ranks, so that the source is read once for them. */
static enum kvt_status carry_box(struct kvt_worker *worker, void *context, int64_t i,
				 struct kvt_error *err)
{
	struct carrying *c = context;
	const struct kvt_group *g = &kvt_ranks_snapshot(&c->sides->dst,
							0)->group[c->group];
	struct kvt_box box = kvt_cut_box(&c->cut, i);
	struct kvt_shape shape = kvt_box_shape(&box, g->shape.elem);
	struct placed to = { &g->layout, box, worker->buffer[0] };
	enum kvt_status status;
	int64_t nbytes, moved = 0;

	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)))
		return status;
	for (int r = 0; !status && r < c->sides->dst.n; r++) {
		status = read_before(worker, c, r, &to, nbytes, err);
		to.bytes += c->cut.box_bytes;
	}
	if (status || (status = move_parts(worker, c, &box, &moved, err)) ||
	    (status = put_ranks(worker, c, &box, i, err)))
		return status;
	kvt_worker_lock(worker);
	c->moved += moved;
	kvt_worker_unlock(worker);
	kvt_worker_progress(worker, nbytes * c->sides->dst.n);
	return KVT_OK;
}

/* ---- all groups of all ranks ----------------------------------------- */

/* Beside what reading takes: all ranks, and what is written of them. */
static void needs_ranks(struct kvt_work *work, const struct carrying *c)
{
	int64_t n = c->sides->dst.n;

	work->buffer_bytes[0] = n * c->cut.box_bytes;
	if (work->buffer_bytes[1] < n * c->room.stored)
		work->buffer_bytes[1] = n * c->room.stored;
	work->buffer_bytes[2] = n * c->room.cells;
	work->buffer_bytes[3] = n * c->room.waiting;
	if (c->room.cells && !c->room.waiting)
		work->buffer_bytes[3] = c->cut.box_bytes;
	work_needs_tiles(work, kvt_writer_tiling(c->writer[0], c->group));
}

static enum kvt_status carry_group(struct kvt_carried *out, struct carrying *c,
				   const struct kvt_carry_how *how, struct kvt_error *err)
{
	const struct kvt_group *g = &kvt_ranks_snapshot(&c->sides->dst,
							0)->group[c->group];
	struct kvt_work work = { .fn = carry_box, .context = c, .label = "moving" };
	enum kvt_status status;
	int64_t memory;

	c->moved = 0;
	if ((status = kvt_shape_nbytes(&work.total_bytes, &g->shape, err)) ||
	    (status = kvt_carry_cut(&c->cut, &work, c->sides, c->group,
				    kvt_writer_tiling(c->writer[0], c->group),
				    how->run.memory, err)))
		return status;
	work.total_bytes *= c->sides->dst.n;
	c->room = put_room(c->writer[0], c->group, &c->cut);
	needs_ranks(&work, c);
	memory = kvt_work_memory(&work, &how->run);
	out->boxes += c->cut.nboxes;
	out->memory = memory > out->memory ? memory : out->memory;
	if (work.total_bytes)
		status = kvt_work_run(&work, &how->run, err);
	out->bytes += c->moved;
	return status;
}

/* What arrived must be what the plan says, byte for byte. */
static enum kvt_status check_bytes(const struct kvt_sides *sides, int64_t moved,
				   struct kvt_error *err)
{
	int64_t want;
	enum kvt_status status = kvt_sides_nbytes(&want, sides, err);

	if (status)
		return status;
	return moved == want ? KVT_OK :
	       kvt_fail(err, KVT_MISMATCH, "%lld bytes were moved, expected %lld",
			LL(moved), LL(want));
}

double kvt_seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* All outputs are complete before the first of them gets its name. */
static enum kvt_status carry_all(struct kvt_carried *out, struct carrying *c,
				 const struct kvt_carry_how *how, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (; !status && c->group < kvt_ranks_snapshot(&c->sides->dst,
							0)->ngroups; c->group++)
		status = carry_group(out, c, how, err);
	if (!status)
		status = check_bytes(c->sides, out->bytes, err);
	for (int r = 0; !status && r < out->n; r++)
		status = kvt_finish(c->writer[r], err);
	return status;
}

enum kvt_status kvt_carry_out(struct kvt_carried *out, const struct kvt_sides *sides,
			      const struct kvt_carry_how *how, struct kvt_error *err)
{
	struct carrying c = { .sides = sides, .writer = out->writer,
			      .corrupt = how->corrupt, .fn = how->fn,
			      .context = how->context };
	double start = kvt_seconds_now();
	enum kvt_status status = carry_all(out, &c, how, err);

	out->seconds = kvt_seconds_now() - start;
	return status;
}

void kvt_carried_free(struct kvt_carried *carried)
{
	for (int r = 0; carried->writer && r < carried->n; r++)
		kvt_close_writer(carried->writer[r]);
	free(carried->writer);
}
