/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_box.c - one box from one dump to another
 *
 * Encoding happens in any order; the tiles wait in the worker's buffer until
 * all earlier boxes are written, so that the file does not depend on timing or
 * on the number of threads.
 */
#include "cli/transfer_box.h"

#include <string.h>

#include "formats/digest.h"
#include "kernels/kernels.h"

const struct kvt_layout cell_layout = {
	.nplanes = 1,
	.plane = { { .nparts = 6, .part = {
		{ KVT_AXIS_L, KVT_WHOLE, 0 }, { KVT_AXIS_B, KVT_WHOLE, 0 },
		{ KVT_AXIS_H, KVT_WHOLE, 0 }, { KVT_AXIS_K, KVT_WHOLE, 0 },
		{ KVT_AXIS_S, KVT_WHOLE, 0 }, { KVT_AXIS_D, KVT_WHOLE, 0 },
	} } },
};

/* The box at hand: where its bytes are and how far its buffer is filled. */
struct moving {
	const struct transfer *x;
	struct kvt_box box;
	struct placed source;		/* the dense box; not used tile to tile */
	uint64_t *cells;		/* NULL: not wanted */
	uint8_t *filled;		/* end of the tiles in buffer[1] */
	struct waiting *waiting;	/* what they are */
	int64_t nwaiting;
};

/* ---- cells -------------------------------------------------------------- */

static uint64_t *cell_at(const struct moving *m, const int64_t at[KVT_NAXES])
{
	const int64_t *n = m->x->from->shape.n;
	int64_t l = at[KVT_AXIS_L] - m->box.begin[KVT_AXIS_L];
	int64_t b = at[KVT_AXIS_B] - m->box.begin[KVT_AXIS_B];
	int64_t nb = m->box.end[KVT_AXIS_B] - m->box.begin[KVT_AXIS_B];

	return m->cells + ((l * nb + b) * n[KVT_AXIS_H] + at[KVT_AXIS_H]) *
			  n[KVT_AXIS_K] + at[KVT_AXIS_K];
}

/* Hash the cells of a piece that holds all of S and D; 'spare' has its size. */
static enum kvt_status hash_cells(const struct moving *m,
				  const struct placed *piece,
				  const struct kvt_box *part, uint8_t *spare,
				  struct kvt_error *err)
{
	const int64_t elem = m->x->from->shape.elem, *n = m->x->from->shape.n;
	const int64_t cell = n[KVT_AXIS_S] * n[KVT_AXIS_D] * elem;
	struct placed canonical = { &cell_layout, *part, spare };
	enum kvt_status status = copy_box(&canonical, piece, part, elem, err);
	int64_t at[KVT_NAXES] = { 0 };

	if (status)
		return status;
	for (at[0] = part->begin[0]; at[0] < part->end[0]; at[0]++)
	for (at[1] = part->begin[1]; at[1] < part->end[1]; at[1]++)
	for (at[3] = part->begin[3]; at[3] < part->end[3]; at[3]++)
	for (at[4] = part->begin[4]; at[4] < part->end[4]; at[4]++) {
		*cell_at(m, at) = kvt_cell_hash(spare, cell);
		spare += cell;
	}
	return KVT_OK;
}

/* ---- tiles that wait ---------------------------------------------------- */

static struct kvt_stored next_room(struct moving *m)
{
	return (struct kvt_stored){
		.bytes = m->filled,
		.capacity = kvt_stored_bound(m->x->dst_tiling),
	};
}

static void keep(struct moving *m, const int64_t begin[KVT_NAXES],
		 const struct kvt_stored *stored)
{
	struct waiting *waiting = &m->waiting[m->nwaiting++];

	memcpy(waiting->begin, begin, sizeof(waiting->begin));
	waiting->nbytes = stored->nbytes;
	waiting->filter_mask = stored->filter_mask;
	m->filled += stored->nbytes;
}

/* In turn: the order of these calls is that of the file. */
static enum kvt_status place_waiting(struct worker *worker, struct moving *m,
				     struct kvt_error *err)
{
	struct kvt_writer *writer = m->x->t->writer;
	uint8_t *at = worker->buffer[1];

	for (int64_t i = 0; i < m->nwaiting; i++) {
		struct waiting *waiting = &m->waiting[i];
		struct kvt_stored stored = { .bytes = at, .capacity = waiting->nbytes,
					     .nbytes = waiting->nbytes,
					     .filter_mask = waiting->filter_mask };
		enum kvt_status status;

		status = kvt_place_tile(writer, m->x->group, waiting->begin, &stored,
					&waiting->offset, err);
		if (status)
			return status;
		at += waiting->nbytes;
	}
	if (m->cells)
		return kvt_store_cells(writer, m->x->group, &m->box, m->cells, err);
	return KVT_OK;
}

/* Out of turn, and as many neighbours at once as there are. */
static enum kvt_status write_waiting(struct worker *worker, const struct moving *m,
				     struct kvt_error *err)
{
	const uint8_t *at = worker->buffer[1];
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; i < m->nwaiting && !status; ) {
		int64_t offset = m->waiting[i].offset, end = offset;

		while (i < m->nwaiting && m->waiting[i].offset == end)
			end += m->waiting[i++].nbytes;
		status = kvt_write_tiles(m->x->t->writer, at, end - offset, offset,
					 err);
		at += end - offset;
	}
	return status;
}

/* ---- one tile ----------------------------------------------------------- */

/* Both sides have this tile and the same bytes in it. */
static enum kvt_status move_tile(struct worker *worker, void *context,
				 const int64_t begin[KVT_NAXES],
				 struct kvt_error *err)
{
	struct moving *m = context;
	const struct transfer *x = m->x;
	struct kvt_stored stored = next_room(m);
	struct placed tile = { &x->from->layout, tile_box(x->src_tiling, begin),
			       worker->tile };
	struct kvt_box part = box_cut(&tile.box, &x->from->shape);
	enum kvt_status status;

	if ((status = source_fetch_tile(worker, x->t->source, x->group, begin, &stored,
					err)) ||
	    (status = kvt_stored_check(&stored, x->src_tiling, err)))
		return status;
	keep(m, begin, &stored);
	if (!x->t->step[x->group].make_cells)
		return KVT_OK;
	if ((status = kvt_decode(worker->tile, &stored, x->src_tiling,
				 worker->scratch, err)))
		return status;
	return hash_cells(m, &tile, &part, worker->spare, err);
}

/* Encode worker->tile, which holds the plain bytes of the tile at begin. */
static enum kvt_status encode_tile(struct worker *worker, struct moving *m,
				   const int64_t begin[KVT_NAXES],
				   struct kvt_error *err)
{
	const struct transfer *x = m->x;
	struct placed tile = { &x->to->layout, tile_box(x->dst_tiling, begin),
			       worker->tile };
	struct kvt_box part = box_cut(&tile.box, &x->from->shape);
	struct kvt_stored stored = next_room(m);
	enum kvt_status status;

	status = kvt_encode(&stored, worker->tile, x->dst_tiling, worker->scratch,
			    err);
	if (status)
		return status;
	keep(m, begin, &stored);
	if (x->t->step[x->group].make_cells)
		return hash_cells(m, &tile, &part, worker->spare, err);
	return KVT_OK;
}

/* The same tile on both sides, in another order inside. */
static enum kvt_status recode_tile(struct worker *worker, void *context,
				   const int64_t begin[KVT_NAXES],
				   struct kvt_error *err)
{
	struct moving *m = context;
	const struct transfer *x = m->x;
	struct kvt_stored stored = { .bytes = worker->stored,
				     .capacity = kvt_stored_bound(x->src_tiling) };
	enum kvt_status status;

	if ((status = source_fetch_tile(worker, x->t->source, x->group, begin, &stored,
					err)) ||
	    (status = kvt_decode(worker->spare, &stored, x->src_tiling,
				 worker->scratch, err)))
		return status;
	kvt_cpu_copy_all(worker->tile, worker->spare,
			 &unit_at(&x->t->step[x->group], begin)->plans);
	return encode_tile(worker, m, begin, err);
}

static enum kvt_status same_tile(struct worker *worker, void *context,
				 const int64_t begin[KVT_NAXES],
				 struct kvt_error *err)
{
	const struct moving *m = context;
	const struct unit *unit = unit_at(&m->x->t->step[m->x->group], begin);

	return (unit->moves ? move_tile : recode_tile)(worker, context, begin, err);
}

/* A tile of the destination, gathered from the dense box. */
static enum kvt_status gather_tile(struct worker *worker, void *context,
				   const int64_t begin[KVT_NAXES],
				   struct kvt_error *err)
{
	struct moving *m = context;
	const struct transfer *x = m->x;
	struct placed tile = { &x->to->layout, tile_box(x->dst_tiling, begin),
			       worker->tile };
	struct kvt_box part = box_cut(&tile.box, &x->from->shape);
	enum kvt_status status;

	if (memcmp(&part, &tile.box, sizeof(part)))	/* padding is zeros */
		memset(worker->tile, 0, (size_t)x->dst_tiling->nbytes);
	status = copy_box(&tile, &m->source, &part, x->from->shape.elem, err);
	return status ? status : encode_tile(worker, m, begin, err);
}

/* ---- one box ------------------------------------------------------------ */

/* Cells that the source file has need no hashing. */
static enum kvt_status fetch_cells(struct worker *worker, const struct moving *m,
				   struct kvt_error *err)
{
	const struct transfer *x = m->x;
	enum kvt_status status;

	pipeline_lock(worker);
	status = source_fetch_cells(x->t->source, x->group, &m->box, m->cells, err);
	pipeline_unlock(worker);
	return status;
}

static enum kvt_status fill_tiles(struct worker *worker, struct moving *m,
				  struct kvt_error *err)
{
	const struct transfer *x = m->x;
	const struct group_step *step = &x->t->step[x->group];
	bool direct = step->direct && source_has_tiles(x->t->source, x->group, &m->box);
	enum kvt_status status = KVT_OK;

	if (m->cells && !step->make_cells)
		status = fetch_cells(worker, m, err);
	if (!status && !direct)
		status = source_read_box(worker, x->t->source, x->group, &m->box,
				  m->source.bytes, err);
	if (status)
		return status;
	return each_tile(worker, x->dst_tiling, &m->box,
			 direct ? same_tile : gather_tile, m, err);
}

static enum kvt_status flat_cells(struct worker *worker, const struct moving *m,
				  struct kvt_error *err)
{
	const struct transfer *x = m->x;
	enum kvt_status status;

	if (x->t->step[x->group].make_cells)
		status = hash_cells(m, &m->source, &m->box, worker->buffer[3], err);
	else
		status = fetch_cells(worker, m, err);
	if (status)
		return status;
	pipeline_lock(worker);
	status = kvt_store_cells(x->t->writer, x->group, &m->box, m->cells, err);
	pipeline_unlock(worker);
	return status;
}

static enum kvt_status fill_flat(struct worker *worker, const struct moving *m,
				 struct kvt_error *err)
{
	const struct transfer *x = m->x;
	struct placed target = { &x->to->layout, m->box, worker->buffer[1] };
	enum kvt_status status;

	if ((status = source_read_box(worker, x->t->source, x->group, &m->box,
			       m->source.bytes, err)) ||
	    (status = copy_box(&target, &m->source, &m->box,
			       x->from->shape.elem, err)) ||
	    (m->cells && (status = flat_cells(worker, m, err))))
		return status;
	return kvt_write_box(x->t->writer, x->group, &m->box, target.bytes, err);
}

enum kvt_status transfer_box(struct worker *worker, void *context, int64_t i,
			     struct kvt_error *err)
{
	const struct transfer *x = context;
	struct moving m = {
		.x = x, .box = cut_box(&x->t->step[x->group].cut, i),
		.filled = worker->buffer[1],
		.waiting = (struct waiting *)(void *)worker->buffer[3],
		.cells = (uint64_t *)(void *)worker->buffer[2],
	};
	struct kvt_shape shape = kvt_box_shape(&m.box, x->from->shape.elem);
	enum kvt_status status;
	int64_t nbytes;

	m.source = (struct placed){ &x->from->layout, m.box, worker->buffer[0] };
	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)))
		return status;
	if (x->dst_tiling) {
		if ((status = fill_tiles(worker, &m, err)))
			return status;
		if (!pipeline_turn(worker, i))
			return KVT_OK;
		if ((status = place_waiting(worker, &m, err))) {
			pipeline_unlock(worker);
			return status;
		}
		pipeline_pass(worker, i);
		status = write_waiting(worker, &m, err);
	} else {
		status = fill_flat(worker, &m, err);
	}
	if (!status)
		pipeline_progress(worker, nbytes);
	return status;
}
