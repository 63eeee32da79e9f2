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
#include "lib/ops/diff/pass.h"

#include <stdlib.h>
#include <string.h>

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

		status = kvt_check_tiles(worker, c->p->view[s], 0, &chunk->box[s], &why);
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

			if (memcmp(pass_slots_at(c, chunk, SIDE_A, l, segment),
				   pass_slots_at(c, chunk, SIDE_B, l, segment),
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
	struct chunk chunk = pass_chunk(c, worker, i);
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
	found->by_digest = same ? pass_elements(c, &chunk) : 0;
	if (!same && !(status = pass_read(worker, c, &chunk, err)) &&
	    !same_bytes(c, &chunk)) {
		found->differs = 1;
		atomic_store(&c->differs, true);
	}
	kvt_worker_progress(worker, pass_elements(c, &chunk) * element_bytes(c));
	return status;
}

static enum kvt_status scan(struct pass *c, const struct kvt_run *run,
			    struct kvt_error *err)
{
	struct kvt_work work = pass_work(c, scan_box, "comparing");
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
		return kvt_no_memory(err, NULL);
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
		   pass_proven_cells(p->view[SIDE_A]) &&
		   pass_proven_cells(p->view[SIDE_B]);
	c->slot_elements = p->nheads * p->nkv * p->content;
	for (int64_t i = 0; i < p->nsegments; i++)
		if (c->most_slots < p->segment[i].count)
			c->most_slots = p->segment[i].count;
	pass_cut(c, limit / 8);
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
		status = pass_measure(&c, &options->run, err);
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
