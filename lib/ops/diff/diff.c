/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.c - two passes over a pair: are they equal, and if not, by how much
 *
 * In: a pair, whose views are two arrays of equal slots.  Both passes cut it into
 * chunks, some layers x some segments, and read of either side the box of blocks that
 * these segments are in.
 *
 * The first pass (scan) compares bytes and ends at the first that differ.  Where both
 * sides store a digest of each cell, it compares those instead and reads the tiles
 * only for their checksums: a digest says what was written, a checksum that it is
 * still there.  It is left out where equal values may have other bits.
 *
 * The second (measure) decodes every element, unless the first has said enough.
 * Findings of a chunk enter those of the pair in the order of the chunks, so that
 * floating sums do not depend on threads.
 *
 * Cost: each pass reads what both sides hold once, with one chunk of either side in
 * memory for each thread.
 */
#include "lib/ops/diff/internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/print.h"

struct pass {
	struct diff_result *out;
	const struct diff_pair *p;
	struct kvt_cut cut;			/* of layers and segments */
	bool cells;			/* both sides have digests of whole blocks */
	int64_t slot_bytes[NSIDES];	/* of one slot: heads, keys and values */
	int64_t page_bytes[NSIDES];
	int64_t slot_elements;
	atomic_bool differs;
	int64_t by_digest;
	int64_t nworst;
	int64_t most_slots;		/* of a segment */
	const bool *table;		/* [DIFF_AXES] */
	bool firsts;
};

enum { BUFFER_A, BUFFER_B, BUFFER_CELLS };

static int64_t element_bytes(const struct pass *c)
{
	return c->p->group[SIDE_A]->dtype->elem;
}

/* ---- chunks ------------------------------------------------------------- */

/* Layers and segments, and the blocks of a side that these are in. */
struct chunk {
	int64_t layer, end_layer, segment, end_segment;
	struct kvt_box box[NSIDES];
	uint8_t *bytes[NSIDES];
};

/* 'worker' NULL: no bytes are wanted. */
static struct chunk chunk_of(const struct pass *c, struct kvt_worker *worker, int64_t i)
{
	struct kvt_box cut = kvt_cut_box(&c->cut, i);
	struct chunk chunk = {
		.layer = cut.begin[KVT_AXIS_L], .end_layer = cut.end[KVT_AXIS_L],
		.segment = cut.begin[KVT_AXIS_B], .end_segment = cut.end[KVT_AXIS_B],
	};

	for (int s = 0; s < NSIDES; s++) {
		int64_t first = c->p->segment[chunk.segment].at[s];
		int64_t last = c->p->segment[chunk.end_segment - 1].at[s];

		chunk.bytes[s] = worker ? worker->buffer[s] : NULL;
		chunk.box[s] = kvt_box_whole(&kvt_dump_group(c->p->view[s], 0)->shape);
		box_take(&chunk.box[s], KVT_AXIS_L, chunk.layer,
			 chunk.end_layer - chunk.layer);
		box_take(&chunk.box[s], KVT_AXIS_B, first, last + 1 - first);
	}
	return chunk;
}

static const uint8_t *slots_at(const struct pass *c, const struct chunk *chunk, int side,
			       int64_t layer, const struct diff_segment *segment)
{
	const struct kvt_box *box = &chunk->box[side];
	int64_t nblocks = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B];
	int64_t page = (layer - chunk->layer) * nblocks + segment->at[side] -
		       box->begin[KVT_AXIS_B];

	return chunk->bytes[side] + page * c->page_bytes[side] +
	       segment->slot[side] * c->slot_bytes[side];
}

static enum kvt_status read_chunk(struct kvt_worker *worker, const struct pass *c,
				  const struct chunk *chunk, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++) {
		struct kvt_error why = { "" };

		status = kvt_read(worker, c->p->view[s], 0, &chunk->box[s],
				  &c->p->read[s], chunk->bytes[s], &why);
		if (status)
			kvt_fail_about(err, status, c->p->side[s]->name, &why);
	}
	return status;
}

static int64_t chunk_elements(const struct pass *c, const struct chunk *chunk)
{
	int64_t nslots = 0;

	for (int64_t i = chunk->segment; i < chunk->end_segment; i++)
		nslots += c->p->segment[i].count;
	return nslots * (chunk->end_layer - chunk->layer) * c->slot_elements;
}

/* What the first leaf that a view reads has: how it is cut and laid out. */
struct leaf_group {
	const struct kvt_tiling *tiling;
	const struct kvt_layout *layout;
};

static struct leaf_group leaf_of_view(const struct kvt_dump *view)
{
	struct leaf_group out = { NULL, &kvt_dump_group(view, 0)->layout };
	const struct kvt_dump *leaf;

	for (int i = 0; (leaf = kvt_dump_leaf(view, i)); i++) {
		int from = kvt_dump_leaf_group(view, i, 0);

		if (from < 0)
			continue;
		out.tiling = kvt_dump_tiling(leaf, from);
		out.layout = &kvt_dump_group(leaf, from)->layout;
		break;
	}
	return out;
}

static bool has_proven_cells(const struct kvt_dump *view)
{
	const struct kvt_tiling *tiling = leaf_of_view(view).tiling;

	return kvt_dump_has_cells(view, 0) && kvt_dump_cells_proven(view, 0) && tiling &&
	       tiling->fletcher32;
}

static void cut_pair(struct pass *c, int64_t limit)
{
	const struct leaf_group a = leaf_of_view(c->p->view[SIDE_A]);
	const struct leaf_group b = leaf_of_view(c->p->view[SIDE_B]);
	struct kvt_group group = *kvt_dump_group(c->p->view[SIDE_A], 0);
	int64_t big = c->page_bytes[SIDE_A];

	if (big < c->page_bytes[SIDE_B])
		big = c->page_bytes[SIDE_B];
	group.layout = *a.layout;
	/* boxes are made of segments, and a segment is in one block of either side */
	group.shape = (struct kvt_shape){ .n = { c->p->nlayers, c->p->nsegments, 1, 1, 1,
						 big }, .elem = 1 };
	c->cut = kvt_cut_choose(&group, a.tiling, b.layout, b.tiling, limit);
}

static struct kvt_work work_of(struct pass *c, kvt_work_fn *fn, const char *label)
{
	int64_t pages = c->cut.layers * c->cut.blocks;
	struct kvt_work work = { .fn = fn, .context = c, .label = label,
			     .part = c->p->index, .count = c->cut.nboxes,
			     .total_bytes = diff_pair_elements(c->p) * element_bytes(c) };

	for (int s = 0; s < NSIDES; s++) {
		work.buffer_bytes[s] = pages * c->page_bytes[s];
		kvt_work_reads(&work, c->p->view[s], 0, &c->cut, &c->p->read[s]);
	}
	return work;
}

/* ---- first pass: equal or not ------------------------------------------- */

/* Do digests say that all blocks of the chunk are equal? */
static enum kvt_status same_cells(bool *same, struct kvt_worker *worker,
				  const struct pass *c, const struct chunk *chunk,
				  struct kvt_error *err)
{
	int64_t row = c->p->nheads * c->p->nkv;
	int64_t room = c->cut.layers * c->cut.blocks * row, nblocks[NSIDES];
	uint64_t *cells[NSIDES];
	enum kvt_status status = KVT_OK;

	cells[SIDE_A] = (uint64_t *)(void *)worker->buffer[BUFFER_CELLS];
	cells[SIDE_B] = cells[SIDE_A] + room;
	for (int s = 0; !status && s < NSIDES; s++) {
		const struct kvt_box *box = &chunk->box[s];

		nblocks[s] = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B];
		status = kvt_read_cells(c->p->view[s], 0, box, cells[s], err);
	}
	*same = !status;
	for (int64_t l = 0; *same && l < chunk->end_layer - chunk->layer; l++)
		for (int64_t i = chunk->segment; *same && i < chunk->end_segment; i++) {
			const uint64_t *cell[NSIDES];

			for (int s = 0; s < NSIDES; s++) {
				int64_t at = c->p->segment[i].at[s] -
					     chunk->box[s].begin[KVT_AXIS_B];

				cell[s] = cells[s] + (l * nblocks[s] + at) * row;
			}
			*same = !memcmp(cell[SIDE_A], cell[SIDE_B],
					(size_t)row * sizeof(**cell));
		}
	return status;
}

/* Are the tiles of both sides those that the digests are of? */
static enum kvt_status check_tiles(struct kvt_worker *worker, const struct pass *c,
				   const struct chunk *chunk, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++) {
		struct kvt_error why = { "" };

		status = kvt_check_tiles(worker, c->p->view[s], 0, &chunk->box[s],
					    &why);
		if (status)
			kvt_fail_about(err, status, c->p->side[s]->name, &why);
	}
	return status;
}

static bool same_bytes(const struct pass *c, const struct chunk *chunk)
{
	for (int64_t l = chunk->layer; l < chunk->end_layer; l++)
		for (int64_t i = chunk->segment; i < chunk->end_segment; i++) {
			const struct diff_segment *segment = &c->p->segment[i];

			if (memcmp(slots_at(c, chunk, SIDE_A, l, segment),
				   slots_at(c, chunk, SIDE_B, l, segment),
				   (size_t)(segment->count * c->slot_bytes[SIDE_A])))
				return false;
		}
	return true;
}

/* The result of a box. */
struct scanned {
	int64_t differs, by_digest;
};

/* kvt_merge_fn */
static bool take_scanned(void *context, int64_t i, const void *result, int64_t nbytes)
{
	const struct scanned *found = result;
	struct pass *c = context;

	(void)i;
	if (nbytes != sizeof(*found))
		return false;
	if (found->differs)
		atomic_store(&c->differs, true);
	c->by_digest += found->by_digest;
	return true;
}

static enum kvt_status scan_box(struct kvt_worker *worker, void *context, int64_t i,
				struct kvt_error *err)
{
	struct pass *c = context;
	struct chunk chunk = chunk_of(c, worker, i);
	struct scanned *found = memset(worker->result, 0, sizeof(*found));
	enum kvt_status status = KVT_OK;
	bool same = false;

	worker->nresult = sizeof(*found);
	if (atomic_load(&c->differs))
		return KVT_OK;		/* one difference says it */
	if (c->cells && (status = same_cells(&same, worker, c, &chunk, err)))
		return status;
	if (same && (status = check_tiles(worker, c, &chunk, err)))
		return status;
	found->by_digest = same ? chunk_elements(c, &chunk) : 0;
	if (!same && !(status = read_chunk(worker, c, &chunk, err)) &&
	    !same_bytes(c, &chunk)) {
		found->differs = 1;
		atomic_store(&c->differs, true);
	}
	kvt_worker_progress(worker, chunk_elements(c, &chunk) * element_bytes(c));
	return status;
}

static enum kvt_status scan(struct pass *c, const struct kvt_run *run,
			    struct kvt_error *err)
{
	struct kvt_work work = work_of(c, scan_box, "comparing");
	enum kvt_status status;

	work.merge = take_scanned;
	work.result_bytes = sizeof(struct scanned);
	if (c->cells)
		work.buffer_bytes[BUFFER_CELLS] =
			2 * c->cut.layers * c->cut.blocks * c->p->nheads *
			c->p->nkv * (int64_t)sizeof(uint64_t);
	status = kvt_work_run(&work, run, err);
	c->out->equal = !status && !atomic_load(&c->differs);
	c->out->by_digest = c->by_digest;
	return status;
}

/* ---- second pass: by how much, and where -------------------------------- */

/*
 * Findings of one box: its result.  Whatever there is one of for each slot is in the
 * order of the segments of the box.
 */
struct found {
	int64_t *nworst;
	struct diff_sums *by_head;		/* [layers][nheads] */
	struct heat *by_segment;		/* [layers][segments] */
	struct heat *by_half;			/* [layers][nkv] */
	struct heat *by_slot, *by_dim;		/* [slots]; [content], if wanted */
	uint8_t *bad_slot, *bad_dim;		/* [slots]; [content] */
	struct deviation *head_first, *segment_first;	/* of each of these, if wanted */
	struct deviation *first, *worst;	/* the last has only nworst */
	struct findings findings;
};

/* Where the next n things of 'size' bytes begin; all begin at multiples of 8. */
static void *after(uint8_t *bytes, int64_t *at, int64_t n, size_t size)
{
	int64_t begin = *at;

	*at += (n * (int64_t)size + 7) / 8 * 8;
	return bytes ? bytes + begin : NULL;
}

/* The places in a result, and the most bytes that it has; 'bytes' NULL: these alone. */
static struct found found_at(const struct pass *c, void *bytes, int64_t *nbytes)
{
	const bool *table = c->table;
	int64_t slots = c->cut.blocks * c->most_slots, at = 0;
	struct found f;

	f.nworst = after(bytes, &at, 1, sizeof(*f.nworst));
	f.by_head = after(bytes, &at, c->cut.layers * c->p->nheads, sizeof(*f.by_head));
	f.by_segment = after(bytes, &at, c->cut.layers * c->cut.blocks,
			     sizeof(*f.by_segment));
	f.by_half = after(bytes, &at, c->cut.layers * c->p->nkv, sizeof(*f.by_half));
	f.by_slot = after(bytes, &at, table[DIFF_TOKEN] ? slots : 0, sizeof(*f.by_slot));
	f.by_dim = after(bytes, &at, table[DIFF_DIM] ? c->p->content : 0,
			 sizeof(*f.by_dim));
	f.head_first = after(bytes, &at, c->firsts ? c->cut.layers * c->p->nheads : 0,
			     sizeof(*f.head_first));
	f.segment_first = after(bytes, &at, c->firsts ? c->cut.layers * c->cut.blocks : 0,
				sizeof(*f.segment_first));
	f.bad_slot = after(bytes, &at, slots, 1);
	f.bad_dim = after(bytes, &at, c->p->content, 1);
	f.first = after(bytes, &at, 1, sizeof(*f.first));
	f.worst = after(bytes, &at, c->nworst, sizeof(*f.worst));
	f.findings = (struct findings){ .worst = f.worst, .room = c->nworst,
					.bad_dim = f.bad_dim,
					.by_dim = table[DIFF_DIM] ? f.by_dim : NULL };
	*nbytes = at;
	return f;
}

static int64_t found_bytes(const struct pass *c)
{
	int64_t nbytes;

	found_at(c, NULL, &nbytes);
	return nbytes;
}

static struct found found_init(const struct pass *c, struct kvt_worker *worker)
{
	int64_t nbytes = found_bytes(c);

	return found_at(c, memset(worker->result, 0, (size_t)nbytes), &nbytes);
}

/* All slots of a segment in one layer; the first of them is slot 'at' of the box. */
static void measure_segment(const struct pass *c, struct found *f,
			    const struct chunk *chunk, int64_t layer,
			    const struct diff_segment *segment, int64_t at,
			    struct heat *heat)
{
	const struct diff_pair *p = c->p;
	const uint8_t *a = slots_at(c, chunk, SIDE_A, layer, segment);
	const uint8_t *b = slots_at(c, chunk, SIDE_B, layer, segment);
	int64_t head = (layer - chunk->layer) * p->nheads, mine = heat - f->by_segment;
	struct heat *half = f->by_half + (layer - chunk->layer) * p->nkv;

	for (int64_t s = 0; s < segment->count; s++) {
		struct diff_sums slot = { 0 };

		for (int64_t h = 0; h < p->nheads; h++)
		for (int64_t k = 0; k < p->nkv; k++) {
			const int64_t key[KVT_NAXES] = { layer, segment->ordinal, s, h,
							 k };
			struct deviation first = { .set = false };
			struct diff_sums sums = { 0 };

			f->findings.first = &first;
			f->findings.sums = &sums;
			meter_run(c->out->meter, a, b, p->content, key, &f->findings);
			a += p->stored[SIDE_A] * p->group[SIDE_A]->dtype->elem;
			b += p->stored[SIDE_B] * p->group[SIDE_B]->dtype->elem;
			kvt_deviation_keep(f->first, &first);
			if (c->firsts) {
				kvt_deviation_keep(&f->head_first[head + h], &first);
				kvt_deviation_keep(&f->segment_first[mine], &first);
			}
			sums_add(&f->by_head[head + h], &sums);
			sums_add(&slot, &sums);
			heat_add_sums(&half[k], &sums);
		}
		heat_add_sums(heat, &slot);
		f->bad_slot[at + s] |= slot.outside > 0;
		if (c->table[DIFF_TOKEN])
			heat_add_sums(&f->by_slot[at + s], &slot);
	}
}

static int64_t column_of(const struct diff_result *r, int64_t ordinal)
{
	return ordinal * r->ncolumns / r->pair->nsegments;
}

/* What a box has of each slot of a segment; the first of them is slot 'at' of it. */
static void merge_slots(struct diff_result *out, const struct found *f,
			const struct diff_segment *segment, int64_t at)
{
	for (int64_t s = 0; s < segment->count; s++) {
		out->bad_slot[segment->before + s] |= f->bad_slot[at + s];
		if (out->by_slot)
			kvt_heat_add(&out->by_slot[segment->before + s],
				   &f->by_slot[at + s]);
	}
}

static void merge_slices(struct diff_result *out, const struct chunk *chunk,
			 const struct found *f)
{
	int64_t nkv = out->pair->nkv, n = (chunk->end_layer - chunk->layer) * nkv;

	for (int64_t i = 0; i < n; i++) {
		kvt_heat_add(&out->by_kv[i % nkv], &f->by_half[i]);
		kvt_heat_add(&out->by_half[chunk->layer * nkv + i], &f->by_half[i]);
	}
	for (int64_t d = 0; d < out->pair->content; d++) {
		out->bad_dim[d] |= f->bad_dim[d];
		if (out->by_dim)
			kvt_heat_add(&out->by_dim[d], &f->by_dim[d]);
	}
}

static void merge_found(struct diff_result *out, const struct pass *c,
			const struct chunk *chunk, const struct found *f)
{
	const struct diff_pair *p = c->p;
	int64_t nsegments = chunk->end_segment - chunk->segment, at = 0;

	for (int64_t i = 0; i < nsegments; i++) {
		const struct diff_segment *segment = &p->segment[chunk->segment + i];

		merge_slots(out, f, segment, at);
		at += segment->count;
	}
	merge_slices(out, chunk, f);
	for (int64_t l = chunk->layer; l < chunk->end_layer; l++) {
		int64_t local = l - chunk->layer;

		for (int64_t h = 0; h < p->nheads; h++) {
			const struct diff_sums *sums = &f->by_head[local * p->nheads + h];

			sums_add(&out->sums, sums);
			heat_add_sums(&out->by_head[l * p->nheads + h], sums);
			if (c->firsts)
				kvt_deviation_keep(&out->head_first[l * p->nheads + h],
					       &f->head_first[local * p->nheads + h]);
		}
		for (int64_t i = 0; i < nsegments; i++) {
			int64_t ordinal = p->segment[chunk->segment + i].ordinal;
			int64_t column = column_of(out, ordinal);

			kvt_heat_add(&out->by_segment[l * out->ncolumns + column],
				   &f->by_segment[local * nsegments + i]);
			kvt_heat_add(&out->by_part[ordinal],
				   &f->by_segment[local * nsegments + i]);
			if (c->firsts)
				kvt_deviation_keep(&out->segment_first[l * out->ncolumns +
								   column],
					       &f->segment_first[local * nsegments + i]);
		}
	}
	kvt_deviation_keep(&out->first, f->first);
	for (int64_t i = 0; i < *f->nworst; i++)
		worst_insert(out->worst, &out->nworst, c->nworst, &f->worst[i]);
}

/* Results come from files, too: is it an element of the pair, or none? */
static bool is_deviation(const struct deviation *d, const struct diff_pair *p)
{
	const int64_t n[KVT_NAXES] = {
		p->nlayers, p->nsegments, INT64_MAX, p->nheads, p->nkv, p->content,
	};
	uint8_t set;

	memcpy(&set, &d->set, sizeof(set));
	if (set > 1)
		return false;
	for (int a = 0; set && a < KVT_NAXES; a++)
		if (d->key[a] < 0 || d->key[a] >= n[a])
			return false;
	return !set || d->key[KVT_AXIS_S] <
		       p->segment[p->ordered[d->key[KVT_AXIS_B]]].count;
}

static bool are_deviations(const struct found *f, const struct pass *c)
{
	int64_t heads = c->firsts ? c->cut.layers * c->p->nheads : 0;
	int64_t segments = c->firsts ? c->cut.layers * c->cut.blocks : 0;
	bool good = is_deviation(f->first, c->p);

	for (int64_t i = 0; good && i < *f->nworst; i++)
		good = is_deviation(&f->worst[i], c->p) && f->worst[i].set;
	for (int64_t i = 0; good && i < heads; i++)
		good = is_deviation(&f->head_first[i], c->p);
	for (int64_t i = 0; good && i < segments; i++)
		good = is_deviation(&f->segment_first[i], c->p);
	return good;
}

/* kvt_merge_fn */
static bool take_found(void *context, int64_t i, const void *result, int64_t nbytes)
{
	const struct pass *c = context;
	const struct chunk chunk = chunk_of(c, NULL, i);
	int64_t most, least;
	struct found f = found_at(c, (void *)(uintptr_t)result, &most);

	least = most - c->nworst * (int64_t)sizeof(*f.worst);

	if (nbytes < least || *f.nworst < 0 || *f.nworst > c->nworst ||
	    nbytes != least + *f.nworst * (int64_t)sizeof(*f.worst) ||
	    !are_deviations(&f, c))
		return false;
	merge_found(c->out, c, &chunk, &f);
	return true;
}

static enum kvt_status measure_box(struct kvt_worker *worker, void *context, int64_t i,
				   struct kvt_error *err)
{
	struct pass *c = context;
	struct chunk chunk = chunk_of(c, worker, i);
	int64_t nsegments = chunk.end_segment - chunk.segment;
	struct found f = found_init(c, worker);
	enum kvt_status status = read_chunk(worker, c, &chunk, err);

	if (status)
		return status;
	for (int64_t l = chunk.layer; l < chunk.end_layer; l++)
		for (int64_t j = 0, at = 0; j < nsegments; j++) {
			const struct diff_segment *segment =
				&c->p->segment[chunk.segment + j];

			measure_segment(c, &f, &chunk, l, segment, at,
					&f.by_segment[(l - chunk.layer) * nsegments + j]);
			at += segment->count;
		}
	*f.nworst = f.findings.nworst;
	worker->nresult = (uint8_t *)(f.worst + *f.nworst) - worker->result;
	kvt_worker_progress(worker, chunk_elements(c, &chunk) * element_bytes(c));
	return KVT_OK;
}

/* A table of slots, or of all of a slot, is in memory as a whole. */
int64_t kvt_diff_table_bytes(const struct diff_pair *p, enum diff_axis axis)
{
	int64_t rows = axis == DIFF_TOKEN ? p->nslots : axis == DIFF_DIM ? p->content : 0;

	return rows * (int64_t)(sizeof(struct heat) + sizeof(struct diff_row));
}

static enum kvt_status check_tables(const struct pass *c, const struct kvt_run *run,
				    struct kvt_error *err)
{
	int64_t limit = kvt_run_memory(run);

	for (int axis = 0; axis < DIFF_AXES; axis++) {
		int64_t nbytes = kvt_diff_table_bytes(c->p, axis);

		if (c->table[axis] && nbytes > limit / 2)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: a table of %lld %ss needs %s, more than half of the %s of --mem-limit; slice the dumps, or give more",
					c->p->id, LL(axis == DIFF_TOKEN ? c->p->nslots :
									  c->p->content),
					kvt_diff_axis_name(axis),
					kvt_size_string(nbytes).s,
					kvt_size_string(limit).s);
	}
	return KVT_OK;
}

/* Of everything that a pair has one of for each: n of 'size' bytes, all zeros. */
static void *zeros(int64_t n, size_t size)
{
	return calloc((size_t)n + 1, size);
}

static enum kvt_status start_result(struct pass *c, struct kvt_error *err)
{
	const struct diff_pair *p = c->p;
	struct diff_result *out = c->out;

	out->ncolumns = p->nsegments < DIFF_MAX_COLUMNS ? p->nsegments : DIFF_MAX_COLUMNS;
	out->by_head = zeros(p->nlayers * p->nheads, sizeof(*out->by_head));
	out->by_segment = zeros(p->nlayers * out->ncolumns, sizeof(*out->by_segment));
	out->by_part = zeros(p->nsegments, sizeof(*out->by_part));
	out->worst = zeros(c->nworst, sizeof(*out->worst));
	out->by_half = zeros(p->nlayers * p->nkv, sizeof(*out->by_half));
	out->bad_slot = zeros(p->nslots, 1);
	out->bad_dim = zeros(p->content, 1);
	if (c->table[DIFF_TOKEN])
		out->by_slot = zeros(p->nslots, sizeof(*out->by_slot));
	if (c->table[DIFF_DIM])
		out->by_dim = zeros(p->content, sizeof(*out->by_dim));
	if (c->firsts) {
		out->head_first = zeros(p->nlayers * p->nheads, sizeof(*out->head_first));
		out->segment_first = zeros(p->nlayers * out->ncolumns,
					   sizeof(*out->segment_first));
	}
	if (!out->head_first != !c->firsts || !out->segment_first != !c->firsts ||
	    !out->by_half || !out->by_head || !out->by_segment || !out->by_part ||
	    !out->worst || !out->bad_slot || !out->bad_dim ||
	    !out->by_slot != !c->table[DIFF_TOKEN] || !out->by_dim != !c->table[DIFF_DIM])
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	return KVT_OK;
}

static enum kvt_status measure(struct pass *c, const struct kvt_run *run,
			       struct kvt_error *err)
{
	struct diff_result *out = c->out;
	struct kvt_work work = work_of(c, measure_box, "measuring");
	enum kvt_status status;

	if ((status = check_tables(c, run, err)) || (status = start_result(c, err)))
		return status;
	work.merge = take_found;
	work.result_bytes = found_bytes(c);
	work.follows = "comparing";
	if ((status = kvt_work_run(&work, run, err)))
		return status;
	out->measured = true;
	out->by_digest = 0;
	out->equal = !out->sums.unequal;
	return KVT_OK;
}

/* ---- the verdict --------------------------------------------------------- */

/* Is a term of the whole pair broken?  Not a number is worse than any bound. */
static bool broken(enum diff_term term, const struct diff_tolerance *t,
		   const struct diff_sums *s)
{
	switch (term) {
	case T_MAX_ABS:
		return !(s->max_abs <= t->value[term]);
	case T_REL_L2:
		return !(kvt_diff_rel_l2(s) <= t->value[term]);
	case T_COSINE:
		return !(kvt_diff_cosine(s) >= t->value[term]);
	case T_PCC:
		return !(kvt_diff_pcc(s) >= t->value[term]);
	case T_ATTENTION:	/* attend.c */
		return false;
	default:
		return s->outside > 0;
	}
}

static void judge(struct diff_result *out)
{
	const struct diff_tolerance *t = &out->tolerance;

	out->broken = NTERMS;
	/* what is finite on one side only is in no sum, and never near */
	out->differs = (!out->equal && !t->given) || out->sums.lost ||
		       (out->rounding && out->sums.outside);
	for (int i = 0; !out->equal && i < NTERMS; i++)
		if (t->has[i] && broken(i, t, &out->sums)) {
			out->differs = true;
			out->broken = i;
			return;
		}
}

/* ---- a pair ------------------------------------------------------------- */

static enum kvt_status start(struct diff_result *out, const struct diff_pair *p,
			     const struct diff_criteria *criteria, struct kvt_error *err)
{
	enum kvt_status status;

	*out = (struct diff_result){ .pair = p, .meter = calloc(1, sizeof(*out->meter)) };
	if (!out->meter)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	status = meter_init(out->meter, p, criteria, err);
	out->tolerance = out->meter->tolerance;
	out->rounding = out->meter->rounding;
	out->by_element = out->meter->by_element;
	out->has_ulp = out->meter->has_ulp;
	out->has_top = out->meter->top > 0;
	out->recoded = p->group[SIDE_B]->cast_from[0] ||
		       !kvt_group_same_type(p->group[SIDE_A], p->group[SIDE_B]);
	return status;
}

static void start_pass(struct pass *c, const struct diff_options *options)
{
	const struct diff_pair *p = c->p;
	int64_t limit = options->run.memory ? options->run.memory : INT64_MAX;

	for (int s = 0; s < NSIDES; s++) {
		const struct kvt_shape *shape = &kvt_dump_group(p->view[s], 0)->shape;

		c->slot_bytes[s] = p->nheads * shape->n[KVT_AXIS_K] * p->stored[s] *
				    shape->elem;
		c->page_bytes[s] = p->slots[s] * c->slot_bytes[s];
	}
	c->cells = !options->deep && !p->reordered &&
		   p->nkv == p->group[SIDE_A]->shape.n[KVT_AXIS_K] &&
		   p->nkv == p->group[SIDE_B]->shape.n[KVT_AXIS_K] &&
		   c->page_bytes[SIDE_A] == c->page_bytes[SIDE_B] &&
		   has_proven_cells(p->view[SIDE_A]) &&
		   has_proven_cells(p->view[SIDE_B]);
	c->slot_elements = p->nheads * p->nkv * p->content;
	for (int64_t i = 0; i < p->nsegments; i++)
		if (c->most_slots < p->segment[i].count)
			c->most_slots = p->segment[i].count;
	cut_pair(c, limit / 8);
}

enum kvt_status kvt_diff_compare(struct diff_result *out, const struct diff_pair *p,
				 const struct diff_criteria *criteria,
				 const struct diff_options *options,
				 struct kvt_error *err)
{
	struct pass c = { .out = out, .p = p, .nworst = options->nworst,
			  .table = options->table, .firsts = options->firsts };
	enum kvt_status status = start(out, p, criteria, err);
	bool enough;

	if (status)
		return status;
	if (!p->nsegments) {		/* no request needs a slot of it any more */
		out->equal = true;
		judge(out);
		return KVT_OK;
	}
	start_pass(&c, options);
	if (out->meter->bits && (status = scan(&c, &options->run, err)))
		return status;
	/* who wants just a yes or no has it; a tolerance may still forgive */
	enough = out->equal || (out->meter->bits && options->verdict_only &&
				!p->decoded && !out->tolerance.given);
	if (!enough)
		status = measure(&c, &options->run, err);
	judge(out);
	return status;
}

void kvt_diff_result_free(struct diff_result *result)
{
	if (result->meter)
		meter_free(result->meter);
	free(result->meter);
	free(result->worst);
	free(result->by_half);
	free(result->by_head);
	free(result->by_segment);
	free(result->by_part);
	free(result->bad_slot);
	free(result->bad_dim);
	free(result->by_slot);
	free(result->by_dim);
	free(result->head_first);
	free(result->segment_first);
	diagnosis_free(result->diagnosis);
}

void kvt_diff_results_free(struct diff_result *results, const struct diff_pairs *pairs)
{
	for (int i = 0; results && i < pairs->n; i++)
		kvt_diff_result_free(&results[i]);
	free(results);
}
