/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.c - two passes over a pair: are they equal, and if not, by how much
 *
 * The first compares digests where both sides store them, then bytes, and ends
 * at the first that differ.  A digest says what was written; what is there now, the
 * checksums of the tiles do, which are read for that.  The second, in
 * diff_measure.c, decodes every element.
 */
#include "lib/ops/diff/diff_run.h"

#include <stdlib.h>
#include <string.h>

/* ---- boxes -------------------------------------------------------------- */

struct part part_of(const struct comparing *c, struct worker *worker, int64_t i)
{
	struct kvt_box cut = cut_box(&c->cut, i);
	struct part part = {
		.layer = cut.begin[KVT_AXIS_L], .end_layer = cut.end[KVT_AXIS_L],
		.span = cut.begin[KVT_AXIS_B], .end_span = cut.end[KVT_AXIS_B],
		.bytes = { worker->buffer[BUFFER_A], worker->buffer[BUFFER_B] },
	};

	for (int s = 0; s < NSIDES; s++) {
		int64_t first = c->p->span[part.span].at[s];
		int64_t last = c->p->span[part.end_span - 1].at[s];

		part.box[s] = kvt_box_whole(&c->p->view[s].snapshot.group[0].shape);
		box_take(&part.box[s], KVT_AXIS_L, part.layer,
			 part.end_layer - part.layer);
		box_take(&part.box[s], KVT_AXIS_B, first, last + 1 - first);
	}
	return part;
}

const uint8_t *states_at(const struct comparing *c, const struct part *part, int side,
			 int64_t layer, const struct span *span)
{
	const struct kvt_box *box = &part->box[side];
	int64_t nblocks = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B];
	int64_t page = (layer - part->layer) * nblocks + span->at[side] -
		       box->begin[KVT_AXIS_B];

	return part->bytes[side] + page * c->page_bytes[side] +
	       span->state[side] * c->state_bytes[side];
}

enum kvt_status read_part(struct worker *worker, const struct comparing *c,
			  const struct part *part, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++) {
		struct kvt_error why = { "" };

		status = source_read_box(worker, &c->p->view[s], 0, &part->box[s],
					 part->bytes[s], &why);
		if (status)
			kvt_fail_about(err, status, c->p->side[s]->name, &why);
	}
	return status;
}

int64_t part_elements(const struct comparing *c, const struct part *part)
{
	int64_t nstates = 0;

	for (int64_t i = part->span; i < part->end_span; i++)
		nstates += c->p->span[i].count;
	return nstates * (part->end_layer - part->layer) * c->state_elements;
}

struct work work_of(struct comparing *c, work_fn *fn, const char *label)
{
	int64_t pages = c->cut.layers * c->cut.blocks;
	struct work work = { .fn = fn, .context = c, .label = label,
			     .count = c->cut.nboxes,
			     .total_bytes = pair_elements(c->p) * element_bytes(c) };

	for (int s = 0; s < NSIDES; s++) {
		work.buffer_bytes[s] = pages * c->page_bytes[s];
		work_needs_source(&work, &c->p->view[s], 0, &c->cut);
	}
	return work;
}

/* ---- equal or not ------------------------------------------------------- */

/* Do digests say that all blocks of the part are equal? */
static enum kvt_status same_cells(bool *same, struct worker *worker,
				  const struct comparing *c, const struct part *part,
				  struct kvt_error *err)
{
	int64_t row = c->p->nheads * c->p->nkv;
	int64_t room = c->cut.layers * c->cut.blocks * row, nblocks[NSIDES];
	uint64_t *cells[NSIDES];
	enum kvt_status status = KVT_OK;

	cells[SIDE_A] = (uint64_t *)(void *)worker->buffer[BUFFER_CELLS];
	cells[SIDE_B] = cells[SIDE_A] + room;
	for (int s = 0; !status && s < NSIDES; s++) {
		const struct kvt_box *box = &part->box[s];

		nblocks[s] = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B];
		status = source_fetch_cells(&c->p->view[s], 0, box, cells[s], err);
	}
	*same = !status;
	for (int64_t l = 0; *same && l < part->end_layer - part->layer; l++)
		for (int64_t i = part->span; *same && i < part->end_span; i++) {
			const uint64_t *cell[NSIDES];

			for (int s = 0; s < NSIDES; s++) {
				int64_t at = c->p->span[i].at[s] -
					     part->box[s].begin[KVT_AXIS_B];

				cell[s] = cells[s] + (l * nblocks[s] + at) * row;
			}
			*same = !memcmp(cell[SIDE_A], cell[SIDE_B],
					(size_t)row * sizeof(**cell));
		}
	return status;
}

/* Are the tiles of both sides those that the digests are of? */
static enum kvt_status check_tiles(struct worker *worker, const struct comparing *c,
				   const struct part *part, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++) {
		struct kvt_error why = { "" };

		status = source_check_tiles(worker, &c->p->view[s], 0, &part->box[s],
					    &why);
		if (status)
			kvt_fail_about(err, status, c->p->side[s]->name, &why);
	}
	return status;
}

static bool same_bytes(const struct comparing *c, const struct part *part)
{
	for (int64_t l = part->layer; l < part->end_layer; l++)
		for (int64_t i = part->span; i < part->end_span; i++) {
			const struct span *span = &c->p->span[i];

			if (memcmp(states_at(c, part, SIDE_A, l, span),
				   states_at(c, part, SIDE_B, l, span),
				   (size_t)(span->count * c->state_bytes[SIDE_A])))
				return false;
		}
	return true;
}

static enum kvt_status scan_box(struct worker *worker, void *context, int64_t i,
				struct kvt_error *err)
{
	struct comparing *c = context;
	struct part part = part_of(c, worker, i);
	enum kvt_status status = KVT_OK;
	bool same = false;

	if (atomic_load(&c->differs))
		return KVT_OK;
	if (c->cells && (status = same_cells(&same, worker, c, &part, err)))
		return status;
	if (same && (status = check_tiles(worker, c, &part, err)))
		return status;
	if (same)
		atomic_fetch_add(&c->by_digest, part_elements(c, &part));
	else if (!(status = read_part(worker, c, &part, err)) && !same_bytes(c, &part))
		atomic_store(&c->differs, true);
	pipeline_progress(worker, part_elements(c, &part) * element_bytes(c));
	return status;
}

/* ---- a pair ------------------------------------------------------------- */

static const struct kvt_tiling *tiling_of(const struct source *view)
{
	return kvt_dump_tiling(reader_of(view, &view->group[0].part[0]),
				 view->group[0].from);
}

/* Do digests say what is there: do both they and the tiles have checksums? */
static bool has_proven_cells(const struct source *view)
{
	const struct kvt_tiling *tiling = tiling_of(view);

	return source_has_cells(view, 0) && source_cells_proven(view, 0) && tiling &&
	       tiling->fletcher32;
}

static void cut_pair(struct comparing *c, int64_t limit)
{
	const struct source *a = &c->p->view[SIDE_A], *b = &c->p->view[SIDE_B];
	const struct kvt_group *flat_b =
		reader_group(reader_of(b, &b->group[0].part[0]), b->group[0].from);
	struct kvt_group group = a->snapshot.group[0];
	int64_t big = c->page_bytes[SIDE_A];

	if (big < c->page_bytes[SIDE_B])
		big = c->page_bytes[SIDE_B];
	group.layout = reader_group(reader_of(a, &a->group[0].part[0]),
				    a->group[0].from)->layout;
	/* boxes are made of spans, and a span is in one block of either side */
	group.shape = (struct kvt_shape){ .n = { c->p->nlayers, c->p->nspans, 1, 1, 1,
						 big }, .elem = 1 };
	c->cut = cut_choose(&group, tiling_of(a), &flat_b->layout, tiling_of(b), limit);
}

static enum kvt_status scan(struct comparing *c, const struct kvt_run *run,
			    struct kvt_error *err)
{
	struct work work = work_of(c, scan_box, "comparing");
	enum kvt_status status;

	if (c->cells)
		work.buffer_bytes[BUFFER_CELLS] =
			2 * c->cut.layers * c->cut.blocks * c->p->nheads *
			c->p->nkv * (int64_t)sizeof(uint64_t);
	status = pipeline_run(&work, run, err);
	c->out->equal = !status && !atomic_load(&c->differs);
	c->out->by_digest = atomic_load(&c->by_digest);
	return status;
}

/* Is a term of the whole pair broken?  Not a number is worse than any bound. */
static bool broken(enum term term, const struct tolerance *t, const struct sums *s)
{
	switch (term) {
	case T_MAX_ABS:
		return !(s->max_abs <= t->value[term]);
	case T_REL_L2:
		return !(sums_rel_l2(s) <= t->value[term]);
	case T_COSINE:
		return !(sums_cosine(s) >= t->value[term]);
	case T_PCC:
		return !(sums_pcc(s) >= t->value[term]);
	default:
		return s->outside > 0;
	}
}

static void judge(struct result *out)
{
	const struct tolerance *t = &out->meter.tolerance;

	out->broken = NTERMS;
	/* what is finite on one side only is in no sum, and never near */
	out->differs = (!out->equal && !t->given) || out->sums.lost ||
		       (out->meter.rounding && out->sums.outside);
	for (int i = 0; !out->equal && i < NTERMS; i++)
		if (t->has[i] && broken(i, t, &out->sums)) {
			out->differs = true;
			out->broken = i;
			return;
		}
}

enum kvt_status pair_compare(struct result *out, const struct pair *p,
			     const struct judging *judging, const struct running *how,
			     struct kvt_error *err)
{
	int64_t limit = how->run.memory ? how->run.memory : INT64_MAX;
	struct comparing c = { .out = out, .p = p, .ntop = how->top };
	enum kvt_status status;
	bool enough;

	*out = (struct result){ .pair = p };
	if ((status = meter_init(&out->meter, p, judging, err)))
		return status;
	if (!p->nspans) {		/* no request needs a state of it any more */
		out->equal = true;
		judge(out);
		return KVT_OK;
	}
	for (int s = 0; s < NSIDES; s++) {
		const struct kvt_shape *shape = &p->view[s].snapshot.group[0].shape;

		c.state_bytes[s] = p->nheads * shape->n[KVT_AXIS_K] * p->stored[s] *
				   shape->elem;
		c.page_bytes[s] = shape->n[KVT_AXIS_S] * c.state_bytes[s];
	}
	c.cells = !how->deep && p->nkv == p->group[SIDE_A]->shape.n[KVT_AXIS_K] &&
		  p->nkv == p->group[SIDE_B]->shape.n[KVT_AXIS_K] &&
		  c.page_bytes[SIDE_A] == c.page_bytes[SIDE_B] &&
		  has_proven_cells(&p->view[SIDE_A]) &&
		  has_proven_cells(&p->view[SIDE_B]);
	c.state_elements = p->nheads * p->view[SIDE_A].snapshot.group[0]
						.shape.n[KVT_AXIS_K] * p->content;
	cut_pair(&c, limit / 8);
	if (out->meter.bits && (status = scan(&c, &how->run, err)))
		return status;
	/* who wants just a yes or no has it; a tolerance may still forgive */
	enough = out->equal || (out->meter.bits && how->verdict_only && !p->decoded &&
				!out->meter.tolerance.given);
	if (!enough)
		status = measure_all(&c, &how->run, err);
	judge(out);
	return status;
}

void result_free(struct result *result)
{
	meter_free(&result->meter);
	free(result->top);
	free(result->by_head);
	free(result->by_span);
	free(result->diagnosis);
}
