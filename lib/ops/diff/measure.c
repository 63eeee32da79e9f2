/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c - the second pass over a pair: by how much, and where
 *
 * Findings of a box enter those of the pair in the order of the boxes, so that
 * sums do not depend on threads.
 */
#include "lib/ops/diff/diff_run.h"

#include <stdlib.h>
#include <string.h>

/* ---- one box ------------------------------------------------------------ */

/* Findings of one box, in a worker's buffer. */
struct found {
	struct sums *by_head;		/* [layers][nheads] */
	struct heat *by_span;		/* [layers][spans] */
	struct spot *first, *top;
	struct findings findings;
};

static int64_t found_bytes(const struct comparing *c)
{
	return c->cut.layers * c->p->nheads * (int64_t)sizeof(struct sums) +
	       c->cut.layers * c->cut.blocks * (int64_t)sizeof(struct heat) +
	       (c->ntop + 1) * (int64_t)sizeof(struct spot);
}

static struct found found_init(const struct comparing *c, struct worker *worker)
{
	uint8_t *p = memset(worker->buffer[BUFFER_FOUND], 0, (size_t)found_bytes(c));
	struct found f = { .by_head = (struct sums *)(void *)p };

	f.by_span = (struct heat *)(void *)(f.by_head + c->cut.layers * c->p->nheads);
	f.first = (struct spot *)(void *)(f.by_span + c->cut.layers * c->cut.blocks);
	f.top = f.first + 1;
	f.findings = (struct findings){ .first = f.first, .top = f.top, .room = c->ntop };
	return f;
}

static void heat_add(struct heat *to, const struct sums *from)
{
	to->n += from->n;
	to->bad += from->outside;
	if (to->max_abs < from->max_abs)
		to->max_abs = from->max_abs;
	to->dd += from->dd;
	to->aa += from->aa;
}

static void heat_merge(struct heat *to, const struct heat *from)
{
	heat_add(to, &(struct sums){ .n = from->n, .outside = from->bad, .dd = from->dd,
				     .aa = from->aa, .max_abs = from->max_abs });
}

/* All states of a span in one layer. */
static void measure_span(const struct comparing *c, struct found *f,
			 const struct part *part, int64_t layer, const struct span *span,
			 struct heat *heat)
{
	const struct pair *p = c->p;
	const uint8_t *a = states_at(c, part, SIDE_A, layer, span);
	const uint8_t *b = states_at(c, part, SIDE_B, layer, span);
	struct sums *heads = f->by_head + (layer - part->layer) * p->nheads;

	for (int64_t s = 0; s < span->count; s++)
	for (int64_t h = 0; h < p->nheads; h++) {
		struct sums sums = { 0 };

		f->findings.sums = &sums;
		for (int64_t k = 0; k < p->nkv; k++) {
			const int64_t key[KVT_NAXES] = { layer, span->ordinal, s, h, k };

			meter_run(&c->out->meter, a, b, p->content, key, &f->findings);
			a += p->stored[SIDE_A] * p->group[SIDE_A]->dtype->elem;
			b += p->stored[SIDE_B] * p->group[SIDE_B]->dtype->elem;
		}
		sums_add(&heads[h], &sums);
		heat_add(heat, &sums);
	}
}

static void merge_found(struct result *out, const struct comparing *c,
			const struct part *part, const struct found *f)
{
	const struct pair *p = c->p;
	int64_t nspans = part->end_span - part->span;

	for (int64_t l = part->layer; l < part->end_layer; l++) {
		int64_t local = l - part->layer;

		for (int64_t h = 0; h < p->nheads; h++) {
			const struct sums *sums = &f->by_head[local * p->nheads + h];

			sums_add(&out->sums, sums);
			heat_add(&out->by_head[l * p->nheads + h], sums);
		}
		for (int64_t i = 0; i < nspans; i++) {
			int64_t ordinal = p->span[part->span + i].ordinal;
			int64_t column = result_column(out, ordinal);

			heat_merge(&out->by_span[l * out->ncolumns + column],
				   &f->by_span[local * nspans + i]);
		}
	}
	if (f->first->set && (!out->first.set || spot_before(f->first, &out->first)))
		out->first = *f->first;
	for (int64_t i = 0; i < f->findings.ntop; i++)
		spots_offer(out->top, &out->ntop, c->ntop, &f->top[i]);
}

static enum kvt_status measure_box(struct worker *worker, void *context, int64_t i,
				   struct kvt_error *err)
{
	struct comparing *c = context;
	struct part part = part_of(c, worker, i);
	int64_t nspans = part.end_span - part.span;
	struct found f = found_init(c, worker);
	enum kvt_status status = read_part(worker, c, &part, err);

	if (status)
		return status;
	for (int64_t l = part.layer; l < part.end_layer; l++)
		for (int64_t j = 0; j < nspans; j++)
			measure_span(c, &f, &part, l, &c->p->span[part.span + j],
				     &f.by_span[(l - part.layer) * nspans + j]);
	if (!pipeline_turn(worker, i))
		return KVT_OK;
	merge_found(c->out, c, &part, &f);
	pipeline_unlock(worker);
	pipeline_progress(worker, part_elements(c, &part) * element_bytes(c));
	return KVT_OK;
}

/* ---- all of them -------------------------------------------------------- */

int64_t result_column(const struct result *r, int64_t ordinal)
{
	return ordinal * r->ncolumns / r->pair->nspans;
}

int64_t column_begin(const struct result *r, int64_t column)
{
	return (column * r->pair->nspans + r->ncolumns - 1) / r->ncolumns;
}

enum kvt_status measure_all(struct comparing *c, const struct kvt_run *run,
			    struct kvt_error *err)
{
	struct result *out = c->out;
	int64_t nlayers = c->p->nlayers;
	struct work work = work_of(c, measure_box, "measuring");
	enum kvt_status status;

	out->ncolumns = c->p->nspans < MAX_COLUMNS ? c->p->nspans : MAX_COLUMNS;
	out->by_head = calloc((size_t)(nlayers * c->p->nheads), sizeof(*out->by_head));
	out->by_span = calloc((size_t)(nlayers * out->ncolumns), sizeof(*out->by_span));
	out->top = calloc((size_t)c->ntop + 1, sizeof(*out->top));
	if (!out->by_head || !out->by_span || !out->top)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	work.buffer_bytes[BUFFER_FOUND] = found_bytes(c);
	if ((status = pipeline_run(&work, run, err)))
		return status;
	out->measured = true;
	out->by_digest = 0;
	out->equal = !out->sums.unequal;
	return KVT_OK;
}
