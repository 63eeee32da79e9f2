/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend.c - kvt_diff_attend(): queries go over the keys and values of both sides
 *
 * The work is cut into boxes: a layer, a request, some heads of keys and some queries,
 * as many as there is room for the scores of:
 *
 *   [side][head of keys][head of its queries][query][position], float32
 *
 * A box reads the keys of its heads once, of either side, then the values; blocks by
 * blocks, so what is decoded of a side is little, however long the request.  Sums of a
 * box enter the cells in the order of the boxes: figures do not depend on threads.
 */
#include "lib/ops/diff/attend_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

enum { RAW, SCORES, ROOM };		/* buffers of a worker */
enum { TOGETHER = 16, READ_BYTES = 1 << 20 };	/* keys decoded; bytes read, at once */

/* What is done at once. */
struct attend_box {
	int of;
	int64_t layer, request;		/* in the list */
	int64_t head, nheads;		/* of keys */
	int64_t query, nqueries;
};

struct attend {
	struct diff_attention *out;
	int64_t nboxes;
	struct attend_box *box;		/* owned */
	int64_t scores, rows, dim, rank;	/* the most of a box */
	int64_t raw, blocks;		/* bytes, blocks that are read at once */
	int64_t limit;			/* bytes of scores */
};

/* A box at work. */
struct work {
	struct kvt_worker *worker;
	const struct attend *a;
	const struct attend_box *box;
	const struct diff_attended *of;
	const struct attend_request *request;
	int64_t rows;
	float *score[NSIDES], *query, *decoded, *sum;
	double *output[NSIDES], *number;
	struct diff_attend_cell *row;
	uint8_t *valid;
	int side;
	bool values;			/* not keys */
};

/* ---- boxes ---------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t block_bytes(const struct diff_pair *p, int side, int64_t nheads)
{
	return p->slots[side] * nheads * p->stored[side] * p->group[side]->dtype->elem;
}

static void measure_box(struct attend *a, const struct diff_attended *of,
			const struct attend_box *box, int64_t span)
{
	int64_t rows = box->nheads * of->ratio * box->nqueries, bytes;
	const struct kvt_group *g = of->own->group < 0 ? NULL :
				    kvt_dump_group(of->own->queries, of->own->group);

	a->scores = a->scores > rows * span ? a->scores : rows * span;
	a->rows = a->rows > rows ? a->rows : rows;
	a->dim = a->dim > of->dim ? a->dim : of->dim;
	a->rank = a->rank > of->rank ? a->rank : of->rank;
	for (int s = 0; s < 2 * NSIDES; s++) {
		const struct diff_pair *p = s < NSIDES ? of->key : of->value;

		bytes = block_bytes(p, s % NSIDES, box->nheads);
		a->raw = a->raw > bytes ? a->raw : bytes;
	}
	bytes = g ? g->dtype->elem * of->dim * box->nheads * of->ratio : 0;
	a->raw = a->raw > bytes ? a->raw : bytes;
}

static enum kvt_status add_box(struct attend *a, struct attend_box box,
			       struct kvt_error *err)
{
	const struct diff_attended *of = &a->out->of[box.of];

	if (!KVT_GROW(&a->box, a->nboxes))
		return kvt_no_memory(err, NULL);
	a->box[a->nboxes++] = box;
	measure_box(a, of, &box, of->own->request[box.request].span);
	return KVT_OK;
}

/* As many heads as there is room for with all queries; else of one head some queries. */
static enum kvt_status cut_request(struct attend *a, struct attend_box box,
				   struct kvt_error *err)
{
	const struct diff_attended *of = &a->out->of[box.of];
	const struct attend_request *q = &of->own->request[box.request];
	/* scores, and beside them a query and two outputs */
	int64_t row = 2 * q->span * 4 + of->dim * 4 + 2 * of->rank * 8 +
		      (int64_t)sizeof(struct diff_attend_cell);
	int64_t room = a->limit / (row * of->ratio);
	enum kvt_status status = KVT_OK;

	if (!room)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: the scores of a query over %lld tokens need %s, an eighth of --mem-limit is less; give more",
				of->key->id, LL(q->span),
				kvt_size_string(row * of->ratio).s);
	box.nqueries = least(q->n, room);
	box.nheads = least(of->nheads, room / (box.nqueries ? box.nqueries : 1));
	for (box.head = 0; !status && box.head < of->nheads; box.head += box.nheads) {
		struct attend_box part = box;

		part.nheads = least(box.nheads, of->nheads - box.head);
		for (part.query = 0; !status && part.query < q->n;
		     part.query += box.nqueries) {
			part.nqueries = least(box.nqueries, q->n - part.query);
			status = add_box(a, part, err);
		}
	}
	return status;
}

static enum kvt_status cut_all(struct attend *a, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; i < a->out->n; i++) {
		struct diff_attended *of = &a->out->of[i];

		for (int64_t l = 0; !of->equal && l < of->nlayers; l++)
			for (int64_t r = 0; !status && r < of->nrequests; r++)
				status = cut_request(a, (struct attend_box){
						     .of = i, .layer = l, .request = r },
						     err);
		/* what is equal attends alike */
		for (int64_t c = 0; of->equal && c < of->nlayers * of->nheads * of->ratio;
		     c++)
			of->cell[c].n = of->nqueries;
	}
	return status;
}

/* ---- reading -------------------------------------------------------------- */

/* Numbers of one slot and head of the box as float32. */
static void decode(const struct work *w, int64_t h, const uint8_t *bytes, float *out)
{
	const struct meter *m = w->of->own->meter[w->values];
	int64_t n = w->values ? w->of->rank : w->of->dim;
	int k = (int)(m->first_kv + w->of->own->kv[w->values]);
	double scale = meter_scale(m, w->side, w->of->layer[w->box->layer],
				   w->box->head + h, k);

	meter_values(m, w->side, k, scale, bytes, 0, n, w->number);
	for (int64_t d = 0; d < n; d++)
		out[d] = (float)w->number[d];
}

/* What row 'row' sees of the n tokens from 'at' on, which are decoded. */
static void use_row(const struct work *w, int64_t row, const struct kvt_range *sees,
		    int64_t at, int64_t n)
{
	const struct diff_attended *of = w->of;
	int64_t begin = sees->begin > at ? sees->begin : at;
	int64_t end = least(sees->end, at + n);
	float *score = w->score[w->side] + row * w->request->span + begin;

	if (begin >= end)
		return;
	if (w->values)
		attend_mix(w->output[w->side] + row * of->rank, w->sum, score,
			   w->decoded + (begin - at) * of->rank, end - begin, of->rank);
	else
		attend_score(score, w->query + row * of->dim,
			     w->decoded + (begin - at) * of->dim, end - begin, of->dim,
			     of->scale, of->cap);
}

/* Keys or values of n tokens in a row, of head h of the box, decoded; 'at': the first. */
static void use(const struct work *w, int64_t h, int64_t at, int64_t n)
{
	int64_t each = w->of->ratio * w->box->nqueries;

	for (int64_t i = 0; i < each; i++) {
		const struct attend_query *q =
			&w->request->query[w->box->query + i % w->box->nqueries];
		int64_t row = h * each + i;
		struct kvt_range sees[2];

		if (w->values && w->valid[row] != 3)
			continue;
		attend_sees(sees, w->of->own, w->request, q->position);
		for (int r = 0; r < 2; r++)
			use_row(w, row, &sees[r], at, n);
	}
}

/* All of a segment in the box that 'bytes' begins at. */
static void use_segment(const struct work *w, const struct diff_segment *segment,
			const uint8_t *bytes)
{
	const struct diff_pair *p = w->values ? w->of->value : w->of->key;
	int64_t head = p->stored[w->side] * p->group[w->side]->dtype->elem;
	int64_t slot = head * w->box->nheads, n = w->values ? w->of->rank : w->of->dim;
	int64_t at = segment->position - w->request->base;

	for (int64_t s = 0; s < segment->count; s += TOGETHER)
		for (int64_t h = 0; h < w->box->nheads; h++) {
			int64_t count = least(TOGETHER, segment->count - s);

			for (int64_t i = 0; i < count; i++)
				decode(w, h, bytes + (s + i) * slot + h * head,
				       w->decoded + i * n);
			use(w, h, at + s, count);
		}
}

/* Segments from 'first' on that are the request's and neighbours: before which one. */
static int64_t end_of_run(const struct work *w, const struct diff_pair *p, int64_t first)
{
	int64_t room = w->a->blocks, i = first;

	while (i < p->nsegments && p->segment[i].request == w->request->request &&
	       p->segment[i].at[w->side] - p->segment[first].at[w->side] < room)
		i++;
	return i;
}

static enum kvt_status read_run(const struct work *w, const struct diff_pair *p,
				int64_t first, int64_t end, struct kvt_error *err)
{
	const struct kvt_dump *view = p->view[w->side];
	struct kvt_box box = kvt_box_whole(&kvt_dump_group(view, 0)->shape);
	int64_t block = p->segment[first].at[w->side];
	int64_t page = block_bytes(p, w->side, w->box->nheads);
	uint8_t *raw = w->worker->buffer[RAW];
	struct kvt_error why = { "" };
	enum kvt_status status;

	box_take(&box, KVT_AXIS_L, w->of->layer[w->box->layer], 1);
	box_take(&box, KVT_AXIS_B, block, p->segment[end - 1].at[w->side] + 1 - block);
	box_take(&box, KVT_AXIS_H, w->box->head, w->box->nheads);
	box_take(&box, KVT_AXIS_K, w->of->own->kv[w->values], 1);
	status = kvt_read(w->worker, view, 0, &box, &kvt_layout_slots, raw, &why);
	if (status)
		return kvt_fail_about(err, status, p->side[w->side]->name, &why);
	for (int64_t i = first; i < end; i++)
		use_segment(w, &p->segment[i],
			    raw + (p->segment[i].at[w->side] - block) * page +
			    p->segment[i].slot[w->side] *
			    (page / p->slots[w->side]));
	return KVT_OK;
}

static enum kvt_status use_side(struct work *w, int side, bool values,
				struct kvt_error *err)
{
	const struct diff_pair *p = values ? w->of->value : w->of->key;
	enum kvt_status status = KVT_OK;

	w->side = side;
	w->values = values;
	for (int64_t i = 0, end; !status && i < p->nsegments; i = end) {
		end = i + 1;
		if (p->segment[i].request != w->request->request)
			continue;
		end = end_of_run(w, p, i);
		status = read_run(w, p, i, end, err);
	}
	return status;
}

/* ---- queries -------------------------------------------------------------- */

static void put_query(struct work *w, int64_t h, int64_t i, const float *numbers)
{
	int64_t row = h * w->box->nqueries + i;

	memcpy(w->query + row * w->of->dim, numbers, (size_t)w->of->dim * sizeof(float));
}

/* Query i of the box, of all its heads: out of the dump, or the key of A. */
static enum kvt_status read_query(struct work *w, int64_t i, struct kvt_error *err)
{
	const struct diff_attended *of = w->of;
	const struct attend_query *q = &w->request->query[w->box->query + i];
	bool real = of->own->group >= 0;
	const struct kvt_dump *from = real ? of->own->queries : of->key->view[SIDE_A];
	int group = real ? of->own->group : 0;
	const struct kvt_group *g = kvt_dump_group(from, group);
	int64_t n = w->box->nheads * of->ratio, each = g->shape.n[KVT_AXIS_D] *
						       g->shape.elem;
	struct kvt_box box = kvt_box_whole(&g->shape);
	const uint8_t *at = w->worker->buffer[RAW];
	enum kvt_status status;

	box_take(&box, KVT_AXIS_L, of->own->from[w->box->layer], 1);
	box_take(&box, KVT_AXIS_B, q->block, 1);
	box_take(&box, KVT_AXIS_S, q->slot, 1);
	box_take(&box, KVT_AXIS_H, (real ? of->own->query_head : 0) +
				   w->box->head * of->ratio, n);
	box_take(&box, KVT_AXIS_K, 0, 1);
	if ((status = kvt_read(w->worker, from, group, &box, &kvt_layout_slots,
			       w->worker->buffer[RAW], err)))
		return status;
	for (int64_t h = 0; h < n; h++, at += each) {
		for (int64_t d = 0; real && d < of->dim; d++)
			w->decoded[d] = (float)kvt_dtype_decode(g->dtype,
							at + d * g->shape.elem);
		if (!real)
			decode(w, h, at, w->decoded);
		put_query(w, h, i, w->decoded);
	}
	return KVT_OK;
}

static enum kvt_status read_queries(struct work *w, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	w->side = SIDE_A;
	w->values = false;
	for (int64_t i = 0; !status && i < w->box->nqueries; i++)
		status = read_query(w, i, err);
	return status;
}

/* ---- a box ---------------------------------------------------------------- */

/* Weights of all rows, between keys and values. */
static void weigh(struct work *w)
{
	int64_t span = w->request->span, n = w->box->nqueries;
	int64_t all = w->of->nheads * w->of->ratio;

	for (int64_t row = 0; row < w->rows; row++) {
		const struct attend_query *q =
			&w->request->query[w->box->query + row % n];
		const float *sink = w->of->own->sink;
		struct kvt_range sees[2];
		struct attend_scores s = { .sees = sees };

		if (sink)
			s.sink = sink + w->box->layer * all +
				 w->box->head * w->of->ratio + row / n;
		attend_sees(sees, w->of->own, w->request, q->position);
		for (int side = 0; side < NSIDES; side++)
			s.side[side] = w->score[side] + row * span;
		w->row[row] = (struct diff_attend_cell){ .seen = q->seen,
							 .missing = q->missing };
		w->valid[row] = (uint8_t)attend_weigh(&w->row[row], &s);
	}
}

/* The result of a box: a cell for each of its heads of queries. */
static void judge_box(const struct work *w)
{
	struct diff_attend_cell *cell = (void *)w->worker->result;
	int64_t n = w->box->nqueries, heads = w->rows / n;

	memset(cell, 0, (size_t)heads * sizeof(*cell));
	for (int64_t row = 0; row < w->rows; row++)
		attend_judge(&cell[row / n], w->output[SIDE_A] + row * w->of->rank,
			     w->output[SIDE_B] + row * w->of->rank, w->of->rank,
			     w->valid[row], &w->row[row]);
	w->worker->nresult = heads * (int64_t)sizeof(*cell);
}

/* The next bytes of a room that begins at 'room', or of one that is not there yet. */
static void *next_part(uint8_t *room, int64_t *used, int64_t nbytes)
{
	uint8_t *part = room ? room + *used : NULL;

	*used += nbytes;
	return part;
}

/* What lies in the room of a worker, the widest first; its bytes. */
static int64_t place(struct work *w, const struct attend *a, uint8_t *room)
{
	int64_t widest = a->dim > a->rank ? a->dim : a->rank, used = 0;

	for (int s = 0; s < NSIDES; s++)
		w->output[s] = next_part(room, &used, a->rows * a->rank * 8);
	w->number = next_part(room, &used, widest * 8);
	w->row = next_part(room, &used, a->rows * (int64_t)sizeof(*w->row));
	w->query = next_part(room, &used, a->rows * a->dim * 4);
	w->decoded = next_part(room, &used, TOGETHER * widest * 4);
	w->sum = next_part(room, &used, a->rank * 4);
	w->valid = next_part(room, &used, a->rows);
	return used;
}

static void clear(struct work *w)
{
	int64_t n = w->rows * w->request->span;

	for (int s = 0; s < NSIDES; s++) {
		w->score[s] = (float *)(void *)w->worker->buffer[SCORES] + s * n;
		for (int64_t i = 0; i < n; i++)
			w->score[s][i] = -(float)INFINITY;	/* a token of neither */
		memset(w->output[s], 0, (size_t)(w->rows * w->of->rank) * sizeof(double));
	}
}

static enum kvt_status attend_one(struct kvt_worker *worker, void *context, int64_t i,
				  struct kvt_error *err)
{
	const struct attend *a = context;
	const struct attend_box *box = &a->box[i];
	const struct diff_attended *of = &a->out->of[box->of];
	struct work w = { .worker = worker, .a = a, .box = box, .of = of,
			  .request = &of->own->request[box->request],
			  .rows = box->nheads * of->ratio * box->nqueries };
	enum kvt_status status;

	place(&w, a, worker->buffer[ROOM]);
	clear(&w);
	if ((status = read_queries(&w, err)))
		return status;
	for (int s = 0; !status && s < NSIDES; s++)
		status = use_side(&w, s, false, err);
	if (status)
		return status;
	weigh(&w);
	for (int s = 0; !status && s < NSIDES; s++)
		status = use_side(&w, s, true, err);
	judge_box(&w);
	kvt_worker_progress(worker, w.rows * w.request->span);
	return status;
}

/* kvt_merge_fn */
static bool take_cells(void *context, int64_t i, const void *result, int64_t nbytes)
{
	const struct attend *a = context;
	const struct attend_box *box = &a->box[i];
	const struct diff_attended *of = &a->out->of[box->of];
	const struct diff_attend_cell *cell = result;
	int64_t heads = box->nheads * of->ratio;
	int64_t first = (box->layer * of->nheads + box->head) * of->ratio;

	if (nbytes != heads * (int64_t)sizeof(*cell))
		return false;
	for (int64_t h = 0; h < heads; h++)
		kvt_attend_add(&of->cell[first + h], &cell[h]);
	return true;
}

/* ---- all of it ------------------------------------------------------------ */

static void size_work(struct kvt_work *work, struct attend *a)
{
	struct work none = { .rows = 0 };

	a->blocks = a->raw ? least(READ_BYTES, a->limit / 4) / a->raw : 1;
	if (a->blocks < 1)
		a->blocks = 1;
	work->buffer_bytes[RAW] = a->raw * a->blocks;
	work->buffer_bytes[SCORES] = 2 * a->scores * 4;
	work->buffer_bytes[ROOM] = place(&none, a, NULL);
	work->result_bytes = a->rows * (int64_t)sizeof(struct diff_attend_cell);
	for (int i = 0; i < a->out->n; i++) {
		const struct diff_attended *of = &a->out->of[i];
		struct kvt_cut cut = { .layers = 1, .blocks = a->blocks, .nboxes = 1 };

		for (int s = 0; s < 2 * NSIDES; s++) {
			const struct diff_pair *p = s < NSIDES ? of->key : of->value;

			cut.shape = kvt_dump_group(p->view[s % NSIDES], 0)->shape;
			kvt_work_reads(work, p->view[s % NSIDES], 0, &cut,
				       &kvt_layout_slots);
		}
		if (of->own->group < 0)
			continue;
		cut.shape = kvt_dump_group(of->own->queries, of->own->group)->shape;
		cut.blocks = 1;
		kvt_work_reads(work, of->own->queries, of->own->group, &cut,
			       &kvt_layout_slots);
	}
}

/* One head of one layer is too far apart. */
static bool is_broken(const struct diff_attended *of, double most)
{
	for (int64_t i = 0; i < of->nlayers * of->nheads * of->ratio; i++)
		if (!(kvt_attend_error(&of->cell[i]) <= most))
			return true;
	return false;
}

/* What no query went over is not near for that reason. */
static enum kvt_status check_judged(const struct diff_attention *out,
				    const struct diff_result *r, int i,
				    struct kvt_error *err)
{
	bool other = r->rounding;
	int64_t layers = 0;

	for (int t = 0; t < NTERMS; t++)
		other |= t != T_ATTENTION && r->tolerance.has[t];
	for (int k = 0; k < out->n; k++)
		if (out->of[k].pair[0] == i || out->of[k].pair[1] == i)
			layers += out->of[k].nqueries ? out->of[k].nlayers : 0;
	if (other || r->equal || layers >= r->pair->nlayers)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: %lld of %lld layers that differ have no queries, and no other term says how much they may; add one, such as --tolerance=auto,attention=%g",
			r->pair->id, LL(r->pair->nlayers - layers), LL(r->pair->nlayers),
			r->tolerance.value[T_ATTENTION]);
}

static enum kvt_status judge(const struct diff_attention *out,
			     struct diff_result *results, const struct diff_pairs *pairs,
			     struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < pairs->n; i++) {
		const struct diff_tolerance *t = &results[i].tolerance;

		if (!t->has[T_ATTENTION])
			continue;
		for (int k = 0; k < out->n; k++) {
			const struct diff_attended *of = &out->of[k];

			if ((of->pair[0] == i || of->pair[1] == i) &&
			    is_broken(of, t->value[T_ATTENTION])) {
				results[i].differs = true;
				results[i].broken = T_ATTENTION;
			}
		}
		status = check_judged(out, &results[i], i, err);
	}
	return status;
}

enum kvt_status kvt_diff_attend(struct diff_attention *out, struct diff_result *results,
				const struct diff_pairs *pairs,
				const struct diff_attend_options *options,
				const struct kvt_run *run, struct kvt_error *err)
{
	struct attend a = { .out = out, .limit = kvt_run_memory(run) / 8 };
	struct kvt_work work = { .fn = attend_one, .context = &a, .merge = take_cells,
				 .label = "attending" };
	enum kvt_status status = attend_plan(out, results, pairs, options, err);

	if (!status && !(status = cut_all(&a, err))) {
		size_work(&work, &a);
		work.count = a.nboxes;
		for (int64_t i = 0; i < a.nboxes; i++) {
			const struct attend_box *box = &a.box[i];
			const struct diff_attended *of = &out->of[box->of];

			work.total_bytes += box->nheads * of->ratio * box->nqueries *
					    of->own->request[box->request].span;
		}
		status = kvt_work_run(&work, run, err);
	}
	free(a.box);
	return status ? status : judge(out, results, pairs, err);
}

static void own_free(struct attend_private *own, int64_t nrequests)
{
	for (int64_t r = 0; own && own->request && r <= nrequests; r++)
		free(own->request[r].query);
	if (!own)
		return;
	free(own->request);
	free(own->from);
	free(own->sink);
	free(own);
}

void kvt_diff_attention_free(struct diff_attention *attention)
{
	for (int i = 0; attention->of && i < attention->n; i++) {
		own_free(attention->of[i].own, attention->of[i].nrequests);
		free(attention->of[i].layer);
		free(attention->of[i].cell);
	}
	free(attention->of);
}
