/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.c - one box of a group into a writer, as an array or in ranges
 *
 *	gather	box -> tile -> its bytes in the file	any thread, any order
 *	wait	encoded tiles of a box, one after the other in memory
 *	place	offsets of all of them			in turn: box i after box i - 1
 *	write	neighbours together			any thread
 *
 * Only placing is in turn, and it moves no data.  So the file is the same whatever the
 * number of threads, and nobody waits for a disk while another could be placed.  An
 * array has its place from the start and is written at once.  Cells, the hashes that a
 * digest is made of, are taken from the plain bytes on the way.
 */
#include "lib/ops/write/put.h"

#include <string.h>

#include "lib/run/device.h"
#include "lib/tile/hash.h"

static const struct kvt_group *group_of(const struct put *put)
{
	return &kvt_writer_snapshot(put->writer)->group[put->group];
}

static const struct kvt_tiling *tiling_of(const struct put *put)
{
	return kvt_writer_tiling(put->writer, put->group);
}

struct put_room put_room(const struct kvt_writer *writer, int group,
			 const struct kvt_cut *cut)
{
	const struct kvt_tiling *tiling = kvt_writer_tiling(writer, group);
	const int64_t *n = cut->shape.n;
	int64_t tiles = 1;
	struct put_room room = { .cells = 0 };

	if (kvt_writer_has_cells(writer, group))
		room.cells = cut->layers * cut->blocks * n[KVT_AXIS_H] * n[KVT_AXIS_K] *
			     (int64_t)sizeof(uint64_t);
	for (int a = 0; tiling && a < KVT_NAXES; a++) {
		int64_t most = a == KVT_AXIS_L && cut->layers < n[a] ? cut->layers :
			       a == KVT_AXIS_B && cut->blocks < n[a] ? cut->blocks : n[a];

		tiles *= (most + tiling->n[a] - 1) / tiling->n[a];
	}
	if (tiling) {
		const struct kvt_snapshot *s = kvt_writer_snapshot(writer);

		room.in_cell_order = tile_in_cell_order(&s->group[group].layout, tiling);
		room.stored = tiles * kvt_stored_bound(tiling);
		room.waiting = tiles * (int64_t)sizeof(struct waiting);
	}
	return room;
}

/* ---- cells -------------------------------------------------------------- */

static uint64_t *cell_at(const struct put *put, const int64_t at[KVT_NAXES])
{
	const int64_t *n = group_of(put)->shape.n;
	int64_t l = at[KVT_AXIS_L] - put->box.begin[KVT_AXIS_L];
	int64_t b = at[KVT_AXIS_B] - put->box.begin[KVT_AXIS_B];
	int64_t nb = put->box.end[KVT_AXIS_B] - put->box.begin[KVT_AXIS_B];

	return put->cells + ((l * nb + b) * n[KVT_AXIS_H] + at[KVT_AXIS_H]) *
			    n[KVT_AXIS_K] + at[KVT_AXIS_K];
}

enum kvt_status put_hash(struct kvt_worker *worker, const struct put *put,
			 const struct placed *range, const struct kvt_box *part,
			 uint8_t *spare, struct kvt_error *err)
{
	const struct kvt_shape *shape = &group_of(put)->shape;
	const int64_t cell = shape->n[KVT_AXIS_S] * shape->n[KVT_AXIS_D] * shape->elem;
	struct placed canonical = { &cell_layout, *part, spare };
	const uint8_t *bytes = spare;
	int64_t at[KVT_NAXES] = { 0 };
	enum kvt_status status;

	if (put->in_cell_order && !memcmp(part, &range->box, sizeof(*part)) &&
	    kvt_layout_equal(range->layout, &group_of(put)->layout))
		bytes = range->bytes;
	else if ((status = copy_box(worker, &canonical, range, part, shape->elem, err)))
		return status;
	for (at[0] = part->begin[0]; at[0] < part->end[0]; at[0]++)
	for (at[1] = part->begin[1]; at[1] < part->end[1]; at[1]++)
	for (at[3] = part->begin[3]; at[3] < part->end[3]; at[3]++)
	for (at[4] = part->begin[4]; at[4] < part->end[4]; at[4]++) {
		*cell_at(put, at) = kvt_cell_hash(bytes, cell);
		bytes += cell;
	}
	return KVT_OK;
}

/* ---- tiles -------------------------------------------------------------- */

struct kvt_stored put_next(struct put *put)
{
	if (!put->nwaiting)
		put->filled = put->stored;
	return (struct kvt_stored){
		.bytes = put->filled, .capacity = kvt_stored_bound(tiling_of(put)),
	};
}

void put_keep(struct put *put, const int64_t begin[KVT_NAXES],
	      const struct kvt_stored *stored)
{
	struct waiting *waiting = &put->waiting[put->nwaiting++];

	memcpy(waiting->begin, begin, sizeof(waiting->begin));
	waiting->nbytes = stored->nbytes;
	waiting->filter_mask = stored->filter_mask;
	put->filled += stored->nbytes;
}

enum kvt_status put_tile(struct kvt_worker *worker, struct put *put,
			 const int64_t begin[KVT_NAXES], uint8_t *plain,
			 struct kvt_error *err)
{
	const struct kvt_group *to = group_of(put);
	struct placed tile = { &to->layout, tile_box(tiling_of(put), begin), plain };
	struct kvt_box part = box_cut(&tile.box, &to->shape);
	struct kvt_stored stored = put_next(put);
	enum kvt_status status;

	status = kvt_encode(&stored, plain, tiling_of(put), worker->scratch, err);
	if (status)
		return status;
	put_keep(put, begin, &stored);
	return put->make_cells ?
	       put_hash(worker, put, &tile, &part, worker->spare, err) : KVT_OK;
}

struct gathering {
	struct put *put;
	const struct placed *from;
	struct kvt_layout runs;
};

static enum kvt_status gather_tile(struct kvt_worker *worker, void *context,
				   const int64_t begin[KVT_NAXES], struct kvt_error *err)
{
	const struct gathering *g = context;
	const struct kvt_tiling *tiling = tiling_of(g->put);
	const struct kvt_group *to = group_of(g->put);
	struct placed tile = { &to->layout, tile_box(tiling, begin), worker->tile };
	struct kvt_box part = box_cut(&tile.box, &to->shape);
	uint8_t *run = worker->device ? NULL : tile_run_at(g->from, &g->runs, tiling,
							   begin);
	enum kvt_status status;

	if (run)
		return put_tile(worker, g->put, begin, run, err);
	if (memcmp(&part, &tile.box, sizeof(part)))	/* padding is zeros */
		memset(worker->tile, 0, (size_t)tiling->nbytes);
	status = copy_box(worker, &tile, g->from, &part, to->shape.elem, err);
	return status ? status : put_tile(worker, g->put, begin, worker->tile, err);
}

/* ---- boxes -------------------------------------------------------------- */

/* A device that there is gets the box once for all of them. */
static enum kvt_status put_tiles(struct kvt_worker *worker, struct put *put,
				 const struct placed *from, struct kvt_error *err)
{
	struct kvt_shape shape = kvt_box_shape(&from->box, group_of(put)->shape.elem);
	struct gathering gathering = {
		put, from, tile_runs(&group_of(put)->layout, tiling_of(put),
				     &group_of(put)->shape),
	};
	enum kvt_status status;
	int64_t nbytes;

	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)) ||
	    (status = device_hold(worker, from->bytes, nbytes, err)))
		return status;
	status = each_tile(worker, tiling_of(put), &put->box, gather_tile, &gathering,
			   err);
	device_drop(worker);
	return status;
}

enum kvt_status put_dense(struct kvt_worker *worker, struct put *put,
			  const struct placed *from, struct kvt_error *err)
{
	enum kvt_status status;

	if (tiling_of(put))
		return put_tiles(worker, put, from, err);
	if (put->cells && put->make_cells &&
	    (status = put_hash(worker, put, from, &put->box, put->sorted, err)))
		return status;
	return kvt_write_box(put->writer, put->group, &put->box, from->bytes, err);
}

static enum kvt_status place(struct put *put, struct kvt_error *err)
{
	uint8_t *at = put->stored;

	for (int64_t i = 0; i < put->nwaiting; i++) {
		struct waiting *waiting = &put->waiting[i];
		struct kvt_stored stored = { .bytes = at, .capacity = waiting->nbytes,
					     .nbytes = waiting->nbytes,
					     .filter_mask = waiting->filter_mask };
		enum kvt_status status;

		status = kvt_place_tile(put->writer, put->group, waiting->begin, &stored,
					&waiting->offset, err);
		if (status)
			return status;
		at += waiting->nbytes;
	}
	if (put->cells)
		return kvt_store_cells(put->writer, put->group, &put->box, put->cells,
				       err);
	return KVT_OK;
}

/* As many neighbours at once as there are. */
static enum kvt_status write_waiting(const struct put *put, struct kvt_error *err)
{
	const uint8_t *at = put->stored;
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; i < put->nwaiting && !status; ) {
		int64_t offset = put->waiting[i].offset, end = offset;

		while (i < put->nwaiting && put->waiting[i].offset == end)
			end += put->waiting[i++].nbytes;
		status = kvt_write_tiles(put->writer, at, end - offset, offset, err);
		at += end - offset;
	}
	return status;
}

enum kvt_status put_finish(struct kvt_worker *worker, struct put *put, int nputs,
			   int64_t i, struct kvt_error *err)
{
	bool in_turn = nputs && tiling_of(put);
	enum kvt_status status = KVT_OK;

	if (in_turn && !kvt_worker_turn(worker, i))
		return KVT_OK;
	for (int p = 0; !status && p < nputs; p++)
		status = place(&put[p], err);
	if (in_turn && status)
		kvt_worker_unlock(worker);
	else if (in_turn)
		kvt_worker_pass(worker, i);
	for (int p = 0; !status && p < nputs; p++)
		status = write_waiting(&put[p], err);
	return status;
}
