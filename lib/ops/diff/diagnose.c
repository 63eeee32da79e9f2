/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diagnose.c - which known fault makes B of A?
 *
 * A fault happened to the blocks of B, and may have taken data from any of them: so
 * a diagnosis looks at an excerpt of B's pool, all of it or as much around the first
 * deviation as fits in memory (32 MiB a side, or an eighth of the limit).  What should
 * be there comes from A, through the segments of the pair; of slots that no segment
 * covers nothing is known, unless A has the same pool.  kvt_diagnose() then holds the
 * prediction of each known fault against B.
 *
 * Both sides of an excerpt are dense arrays in the order of a struct kvt_window: the
 * elements as they are, or float32 where the types or scales of the sides differ.
 */
#include "lib/ops/diff/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ops/fault/window.h"

static const int64_t most_bytes = 32 << 20;	/* of one side */

/* A part of both sides in memory, side by side. */
struct excerpt {
	const struct diff_result *r;
	const struct diff_pair *p;
	int64_t limit;			/* bytes of one side */
	bool same_pool;			/* block i of A is block i of B */
	int64_t layer, block;		/* where the window begins */
	struct kvt_window window;
	uint8_t *use;
	int64_t *prev, *next, *request, *entry, *layer_ids, *block_ids;
	uint8_t *data[NSIDES], *scratch;
};

/* ---- which layers and blocks -------------------------------------------- */

static bool is_same_pool(const struct diff_pair *p)
{
	const struct kvt_group *a = p->group[SIDE_A], *b = p->group[SIDE_B];

	if (a->shape.n[KVT_AXIS_S] != b->shape.n[KVT_AXIS_S] ||
	    a->shape.n[KVT_AXIS_B] != b->shape.n[KVT_AXIS_B])
		return false;
	for (int64_t i = 0; i < a->shape.n[KVT_AXIS_B]; i++)
		if (kvt_block_id(a, i) != kvt_block_id(b, i))
			return false;
	for (int64_t i = 0; i < p->nsegments; i++)
		if (p->segment[i].block[SIDE_A] != p->segment[i].block[SIDE_B])
			return false;
	return true;
}

/* All of them, or as many around the first difference as fit. */
static void choose(struct excerpt *x)
{
	const struct deviation *first = &x->r->first;
	int64_t layer = first->key[KVT_AXIS_L], *n = x->window.shape.n;
	int64_t at = x->p->ordered[first->key[KVT_AXIS_B]];
	int64_t block = x->p->segment[at].block[SIDE_B];
	int64_t page = x->window.shape.elem, most;

	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		page *= n[a];
	if (page * n[KVT_AXIS_L] * n[KVT_AXIS_B] > x->limit) {
		x->layer = layer > 0 ? layer - 1 : 0;
		n[KVT_AXIS_L] -= x->layer;
		if (n[KVT_AXIS_L] > 3)
			n[KVT_AXIS_L] = 3;
	}
	most = x->limit / (page * n[KVT_AXIS_L]) + 1;
	if (n[KVT_AXIS_B] > most) {
		x->block = block > most / 2 ? block - most / 2 : 0;
		if (x->block > n[KVT_AXIS_B] - most)
			x->block = n[KVT_AXIS_B] - most;
		n[KVT_AXIS_B] = most;
	}
}

/* As an index of the window, or that it is not there. */
static int64_t inside(const struct excerpt *x, int64_t block)
{
	block -= x->block;
	return block >= 0 && block < x->window.shape.n[KVT_AXIS_B] ? block : KVT_NOT_HERE;
}

/* ---- facts -------------------------------------------------------------- */

static void make_use(struct excerpt *x)
{
	const struct diff_pair *p = x->p;
	int64_t null = kvt_null_block(kvt_dump_snapshot(p->side[SIDE_B]->dump),
				      p->number[SIDE_B]);
	int64_t slots = x->window.shape.n[KVT_AXIS_S];

	memset(x->use, x->same_pool ? KVT_STALE : KVT_UNSEEN,
	       (size_t)(x->window.shape.n[KVT_AXIS_B] * slots));
	/* compared by blocks it is as good as any other */
	if (p->by_tokens && null >= 0 && inside(x, null) >= 0)
		memset(x->use + inside(x, null) * slots, KVT_NULL_BLOCK, (size_t)slots);
	for (int64_t i = 0; i < p->nsegments; i++) {
		const struct diff_segment *segment = &p->segment[i];
		int64_t to = inside(x, segment->block[SIDE_B]);

		if (to >= 0)
			memset(x->use + to * slots + segment->slot[SIDE_B], KVT_LIVE,
			       (size_t)segment->count);
	}
}

/* Parts that fill a row in order. */
static int row_parts(struct kvt_row_part *out, const struct diff_pair *p)
{
	const struct kvt_group *g = p->group[SIDE_A];
	int64_t start = 0;
	int n = p->nruns > 1 ? p->nruns : g->ncomponents;

	for (int i = 0; i < n; i++) {
		int64_t at = p->nruns > 1 ? p->run[i].at : g->component[i].start;

		out[i].start = start;
		out[i].length = p->nruns > 1 ? p->run[i].count : g->component[i].length;
		if (at != start || out[i].length < 1)
			return 0;
		start += out[i].length;
	}
	return start == p->content ? n : 0;
}

/* What bounds the error of a value that was rounded, if that is allowed for. */
static void set_tolerance(struct kvt_window *w, const struct diff_result *r)
{
	const struct diff_tolerance *t = &r->meter->tolerance;

	if (t->has[T_ATOL])
		w->atol = t->value[T_ATOL];
	if (t->has[T_RTOL])
		w->rtol = t->value[T_RTOL];
	if (!r->meter->bits && w->atol <= 0 && w->rtol <= 0)
		tolerance_of_types(&w->atol, &w->rtol, r->pair, r->meter->scale);
}

static enum kvt_status set_facts(struct excerpt *x, struct kvt_error *err)
{
	const struct diff_pair *p = x->p;
	const struct kvt_group *b = p->group[SIDE_B];
	const struct kvt_snapshot *snapshot = kvt_dump_snapshot(p->side[SIDE_B]->dump);
	struct kvt_window *w = &x->window;
	int64_t nblocks = w->shape.n[KVT_AXIS_B];
	int g = p->number[SIDE_B];
	enum kvt_status status = KVT_OK;

	make_use(x);
	if (snapshot->nrequests) {
		kvt_window_neighbours(x->prev, snapshot, g, x->block, nblocks, -1);
		kvt_window_neighbours(x->next, snapshot, g, x->block, nblocks, 1);
		w->prev = x->prev;
		w->next = x->next;
		status = kvt_window_tables(w, x->request, x->entry, snapshot, g, x->block,
					   nblocks, err);
	}
	for (int64_t l = 0; l < w->shape.n[KVT_AXIS_L]; l++)
		x->layer_ids[l] = kvt_diff_layer(x->r, x->layer + l);
	for (int64_t i = 0; i < nblocks; i++)
		x->block_ids[i] = (int64_t)kvt_block_id(b, x->block + i);
	w->use = x->use;
	w->layer_ids = x->layer_ids;
	w->block_ids = x->block_ids;
	w->head_start = b->head_start + p->head[SIDE_B];
	w->nparts = row_parts(w->part, p);
	set_tolerance(w, x->r);
	/* addresses need all of the memory, as it was */
	if (x->r->meter->bits && !memcmp(w->shape.n, b->shape.n, sizeof(b->shape.n))) {
		w->layout = &b->layout;
		w->page_bytes = b->page_offset ? 0 : b->page_bytes;
	}
	return status;
}

/* ---- data --------------------------------------------------------------- */

/* One slot of a layer of the window, as it is or as float32. */
static void put_slot(const struct excerpt *x, int side, int64_t layer, uint8_t *to,
		     const uint8_t *from)
{
	const struct meter *m = x->r->meter;
	int64_t nk = x->window.shape.n[KVT_AXIS_K], n = x->window.shape.n[KVT_AXIS_D];
	int64_t nh = x->window.shape.n[KVT_AXIS_H];

	if (m->bits) {
		memcpy(to, from, (size_t)(nh * nk * n * x->window.shape.elem));
		return;
	}
	for (int64_t i = 0; i < nh * nk * n; i++) {
		int k = (int)(m->first_kv + i / n % nk);
		double scale = meter_scale(m, side, x->layer + layer, i / n / nk, k);
		double number;
		float value;

		meter_values(m, side, k, scale, from, 0, 1, &number);
		value = (float)number;
		memcpy(to, &value, sizeof(value));
		to += sizeof(value);
		from += m->dtype[side]->elem;
	}
}

/* Segments of one side, and the slots of the window that they are. */
struct excerpt_read {
	const struct excerpt *x;
	struct diff_pair pair;		/* with segments and a view of its own */
	int side;
	int64_t each;			/* segments of a box */
};

static void put_segments(const struct excerpt_read *r, int64_t first, int64_t last,
			 const uint8_t *bytes, int64_t nread)
{
	const struct excerpt *x = r->x;
	const int64_t *n = x->window.shape.n;
	int64_t row = n[KVT_AXIS_H] * n[KVT_AXIS_K] * n[KVT_AXIS_D];
	int64_t from_row = row * x->r->meter->dtype[r->side]->elem;
	int64_t to_row = row * x->window.shape.elem;
	int64_t slots = r->pair.group[r->side]->shape.n[KVT_AXIS_S];

	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++)
		for (int64_t i = first; i < last; i++) {
			const struct diff_segment *segment = &r->pair.segment[i];
			int64_t page = l * nread + segment->at[r->side] -
				       r->pair.segment[first].at[r->side];
			const uint8_t *from = bytes + from_row *
				(page * slots + segment->slot[r->side]);
			int64_t block = l * n[KVT_AXIS_B] +
					inside(x, segment->block[SIDE_B]);
			uint8_t *to = x->data[r->side] + to_row *
				(block * n[KVT_AXIS_S] + segment->slot[SIDE_B]);

			for (int64_t s = 0; s < segment->count; s++)
				put_slot(x, r->side, l, to + s * to_row,
					 from + s * from_row);
		}
}

static enum kvt_status read_some(struct kvt_worker *worker, void *context, int64_t i,
				 struct kvt_error *err)
{
	const struct excerpt_read *r = context;
	const struct kvt_dump *view = r->pair.view[r->side];
	int64_t first = i * r->each, last = first + r->each, begin, count;
	struct kvt_box box = kvt_box_whole(&kvt_dump_group(view, 0)->shape);
	enum kvt_status status;

	if (last > r->pair.nsegments)
		last = r->pair.nsegments;
	begin = r->pair.segment[first].at[r->side];
	count = r->pair.segment[last - 1].at[r->side] + 1 - begin;
	box_take(&box, KVT_AXIS_B, begin, count);
	if ((status = kvt_read(worker, view, 0, &box, &kvt_layout_slots,
			       worker->buffer[0], err)))
		return status;
	/* a slot that two requests share is the same one twice */
	kvt_worker_lock(worker);
	put_segments(r, first, last, worker->buffer[0], count);
	kvt_worker_unlock(worker);
	return KVT_OK;
}

static enum kvt_status run_reading(struct excerpt_read *r, const struct kvt_run *run,
				   struct kvt_error *err)
{
	const struct kvt_dump *view;
	struct kvt_work work = { .fn = read_some, .context = r };
	struct kvt_cut cut = { .layers = r->pair.nlayers };
	struct kvt_shape shape;
	int64_t page;
	enum kvt_status status = pair_views(&r->pair, err);

	if (status)
		return status;
	view = r->pair.view[r->side];
	shape = kvt_dump_group(view, 0)->shape;
	shape.n[KVT_AXIS_B] = 1;
	if ((status = kvt_shape_nbytes(&page, &shape, err)))
		return status;
	r->each = (r->x->limit / 16) / page + 1;
	cut.blocks = r->each;
	work.count = (r->pair.nsegments + r->each - 1) / r->each;
	work.buffer_bytes[0] = r->each * page;
	kvt_work_reads(&work, view, 0, &cut, &kvt_layout_slots);
	return kvt_work_run(&work, run, err);
}

/* Blocks of the pool as they are, or the slots that the pair has in common. */
static bool make_segments(struct excerpt_read *r, bool pool)
{
	const struct excerpt *x = r->x;
	const struct diff_pair *p = x->p;
	int64_t n = pool ? x->window.shape.n[KVT_AXIS_B] : p->nsegments;
	struct diff_segment *to = calloc((size_t)n + 1, sizeof(*to));

	r->pair.segment = to;
	r->pair.nsegments = 0;
	for (int64_t i = 0; to && i < n; i++) {
		int64_t b = x->block + i;

		if (pool)
			*to = (struct diff_segment){ .block = { x->same_pool ? b : 0, b },
				.count = x->window.shape.n[KVT_AXIS_S] };
		else if (inside(x, p->segment[i].block[SIDE_B]) >= 0)
			*to = p->segment[i];
		else
			continue;
		for (int s = 0; s < NSIDES; s++)
			to->at[s] = !r->pair.nsegments ? 0 : to[-1].at[s] +
				    (to[-1].block[s] != to->block[s]);
		to++;
		r->pair.nsegments++;
	}
	return r->pair.segment != NULL;
}

static enum kvt_status read_side(const struct excerpt *x, int side, bool pool,
				 const struct kvt_run *run, struct kvt_error *err)
{
	struct excerpt_read r = { .x = x, .pair = *x->p, .side = side };
	enum kvt_status status;

	memset(r.pair.view, 0, sizeof(r.pair.view));
	r.pair.nlayers = x->window.shape.n[KVT_AXIS_L];
	for (int s = 0; s < NSIDES; s++)
		r.pair.layer[s] += x->layer;
	status = make_segments(&r, pool) ? run_reading(&r, run, err) :
					kvt_no_memory(err, NULL);
	for (int s = 0; s < NSIDES; s++)
		kvt_dump_close(r.pair.view[s]);
	free(r.pair.segment);
	return status;
}

/* ---- all of it ---------------------------------------------------------- */

/* Free with excerpt_free() in any case. */
static enum kvt_status excerpt_init(struct excerpt *x, const struct diff_result *r,
				    const struct kvt_run *run, struct kvt_error *err)
{
	int64_t limit = run->memory ? run->memory / 8 : most_bytes;
	const struct diff_pair *p = r->pair;
	struct kvt_window *w = &x->window;
	size_t nblocks, nlayers;

	*x = (struct excerpt){ .r = r, .p = p, .same_pool = is_same_pool(p),
			       .limit = limit < most_bytes ? limit : most_bytes };
	w->dtype = r->meter->bits ? r->meter->dtype[SIDE_A] : kvt_dtype_find("float32");
	w->kind = p->group[SIDE_B]->kind;
	w->shape = p->group[SIDE_B]->shape;
	w->shape.n[KVT_AXIS_L] = p->nlayers;
	w->shape.n[KVT_AXIS_H] = p->nheads;
	w->shape.n[KVT_AXIS_K] = p->nkv;
	w->shape.n[KVT_AXIS_D] = p->content;
	w->shape.elem = w->dtype->elem;
	choose(x);
	nblocks = (size_t)w->shape.n[KVT_AXIS_B];
	nlayers = (size_t)w->shape.n[KVT_AXIS_L];
	x->use = calloc(nblocks * (size_t)w->shape.n[KVT_AXIS_S] + 1, 1);
	x->prev = calloc(nblocks + 1, sizeof(*x->prev));
	x->next = calloc(nblocks + 1, sizeof(*x->next));
	x->request = calloc(nblocks + 1, sizeof(*x->request));
	x->entry = calloc(nblocks + 1, sizeof(*x->entry));
	x->block_ids = calloc(nblocks + 1, sizeof(*x->block_ids));
	x->layer_ids = calloc(nlayers + 1, sizeof(*x->layer_ids));
	if (!x->use || !x->prev || !x->next || !x->request || !x->entry ||
	    !x->block_ids || !x->layer_ids)
		return kvt_no_memory(err, NULL);
	return set_facts(x, err);
}

static enum kvt_status excerpt_data(struct excerpt *x, const struct kvt_run *run,
				    struct kvt_error *err)
{
	enum kvt_status status;
	int64_t nbytes, need;

	if ((status = kvt_shape_nbytes(&nbytes, &x->window.shape, err)) ||
	    (status = kvt_diagnose_scratch(&need, &x->window, err)))
		return status;
	for (int s = 0; s < NSIDES; s++)
		x->data[s] = calloc((size_t)nbytes + 1, 1);
	x->scratch = malloc((size_t)need + 1);
	if (!x->data[SIDE_A] || !x->data[SIDE_B] || !x->scratch)
		return kvt_no_memory(err, NULL);
	if ((status = read_side(x, SIDE_B, true, run, err)))
		return status;
	return read_side(x, SIDE_A, x->same_pool, run, err);
}

static void excerpt_free(struct excerpt *x)
{
	for (int s = 0; s < NSIDES; s++)
		free(x->data[s]);
	free(x->use);
	free(x->prev);
	free(x->next);
	free(x->request);
	free(x->entry);
	free((void *)x->window.table);
	free(x->layer_ids);
	free(x->block_ids);
	free(x->scratch);
}

/* ---- hypotheses --------------------------------------------------------- */

/* Of values that were converted the bits mean nothing. */
static void drop_faults_of_bits(struct kvt_diagnosis *d)
{
	static const char *const names[] = { "byte-order", "flip-bits" };

	d->nexplain = 0;
	d->decided = NULL;
	for (int i = 0; i < d->nhypotheses; i++) {
		struct kvt_hypothesis *h = &d->hypothesis[i];

		for (int j = 0; j < 2; j++)
			if (!strcmp(h->fault->name, names[j]))
				h->verdict = KVT_NOT_TESTED;
		if (h->verdict == KVT_EXPLAINS)
			d->decided = d->nexplain++ ? NULL : h;
		else if (h->verdict == KVT_EXPLAINS_PART)
			d->decided = h;
	}
}

/* ---- what is said of it ------------------------------------------------- */

/* NULL if all n of them are struck, which is no limit. */
static const uint8_t *limit(const uint8_t *struck, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (!struck[i])
			return struck;
	return NULL;
}

/* Requests that have a block that was struck. */
static enum kvt_status limit_requests(struct diff_diagnosis *d, const struct excerpt *x,
				      struct kvt_error *err)
{
	const struct kvt_window *w = &x->window;
	uint8_t *struck = calloc((size_t)w->ntables + 1, 1);

	d->requests = struck;
	if (!struck)
		return kvt_no_memory(err, NULL);
	for (int64_t t = 0; t < w->ntables; t++)
		for (int64_t e = 0; e < w->table[t].n; e++)
			struck[t] |= d->found.struck.block[w->table[t].block[e]];
	d->only_requests = limit(struck, w->ntables);
	return KVT_OK;
}

static enum kvt_status set_limits(struct diff_diagnosis *d, const struct excerpt *x,
				  struct kvt_error *err)
{
	const struct kvt_struck *struck = &d->found.struck;
	const struct diff_pair *p = x->p;
	const int64_t *n = x->window.shape.n;

	d->only_heads = limit(struck->head, n[KVT_AXIS_H]);
	d->only_kv = limit(struck->kv, n[KVT_AXIS_K]);
	if (n[KVT_AXIS_L] == p->nlayers)
		d->only_layers = limit(struck->layer, n[KVT_AXIS_L]);
	if (p->by_tokens && n[KVT_AXIS_B] == p->group[SIDE_B]->shape.n[KVT_AXIS_B])
		return limit_requests(d, x, err);
	return KVT_OK;
}

static int64_t id_of(const struct diff_diagnosis *d, const struct kvt_window *w,
		     char axis, int64_t i)
{
	const struct kvt_fault_arg arg = { .axis = axis };

	if (axis == 'H')
		i += d->found.rank * (w->shape.n[KVT_AXIS_H] / d->found.tp);
	return kvt_fault_id(&arg, w, i);
}

static void append(struct kvt_text *text, size_t *at, const char *format, ...)
	KVT_PRINTF(3, 4);

static void append(struct kvt_text *text, size_t *at, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (*at < sizeof(text->s))
		*at += (size_t)vsnprintf(text->s + *at, sizeof(text->s) - *at, format,
					 args);
	va_end(args);
}

enum { MOST_NAMED = 3 };

/* "block 5 of B is block 6 of A, 6 is 5, in 8 of 8 layers" */
static void say_moves(struct diff_diagnosis *d, const struct kvt_window *w)
{
	const char axis = d->found.decided->fault->moves;
	const char *what = axis == 'L' ? "layer" : axis == 'B' ? "block" : "head";
	int64_t n = axis == 'L' ? w->shape.n[KVT_AXIS_L] : axis == 'B' ?
		    w->shape.n[KVT_AXIS_B] : w->shape.n[KVT_AXIS_H] / d->found.tp;
	int64_t named = 0, layers = 0;
	size_t at = 0;

	for (int64_t i = 0; i < n; i++) {
		int64_t from = d->found.from[i];

		if (from < 0 || from == i)
			continue;
		if (++named > MOST_NAMED) {
			append(&d->says, &at, ", ...");
			break;
		}
		if (named == 1)
			append(&d->says, &at, "%s %lld of B is %s %lld of A", what,
			       LL(id_of(d, w, axis, i)), what,
			       LL(id_of(d, w, axis, from)));
		else
			append(&d->says, &at, ", %lld is %lld",
			       LL(id_of(d, w, axis, i)), LL(id_of(d, w, axis, from)));
	}
	for (int64_t l = 0; l < w->shape.n[KVT_AXIS_L]; l++)
		layers += d->found.struck.layer[l];
	if (axis != 'L')
		append(&d->says, &at, " in %lld of %lld layers", LL(layers),
		       LL(w->shape.n[KVT_AXIS_L]));
}

/* Takes over the scratch, which the findings point into. */
static enum kvt_status describe(struct diff_diagnosis *d, struct excerpt *x,
				struct kvt_error *err)
{
	d->scratch = x->scratch;
	x->scratch = NULL;
	d->layers = x->window.shape.n[KVT_AXIS_L];
	d->blocks = x->window.shape.n[KVT_AXIS_B];
	for (int i = 0; i < d->found.nhypotheses; i++)
		d->args[i] = kvt_fault_text(d->found.hypothesis[i].fault,
					    &d->found.hypothesis[i].args, &x->window);
	if (!x->r->meter->bits)
		drop_faults_of_bits(&d->found);
	if (!d->found.difference.count)
		return KVT_OK;
	if (d->found.decided && d->found.decided->fault->moves && d->found.from)
		say_moves(d, &x->window);
	return set_limits(d, x, err);
}

static enum kvt_status find_fault(struct kvt_diagnosis *out, const struct excerpt *x,
				  const struct kvt_fault *only, struct kvt_error *err)
{
	const uint8_t *a = x->data[SIDE_A], *b = x->data[SIDE_B];

	return only ? kvt_diagnose_only(out, only, &x->window, a, b, x->scratch, err) :
		      kvt_diagnose(out, &x->window, a, b, x->scratch, err);
}

enum kvt_status kvt_diff_diagnose(struct diff_result *r, const struct kvt_fault *only,
				  const struct kvt_run *run, struct kvt_error *err)
{
	struct diff_diagnosis *d = calloc(1, sizeof(*d));
	struct excerpt x;
	enum kvt_status status, unread = KVT_OK;

	r->diagnosis = d;
	if (!d)
		return kvt_no_memory(err, NULL);
	if (!(status = excerpt_init(&x, r, run, err)) &&
	    !(unread = status = excerpt_data(&x, run, err)) &&
	    !(status = find_fault(&d->found, &x, only, err)))
		status = describe(d, &x, err);
	excerpt_free(&x);
	/* who asks for one fault is told what could not be read: that is no answer */
	if (!status || status == KVT_SYSTEM || (only && unread))
		return status;
	/* what was compared is sound, whatever is wrong with the rest of the pool */
	kvt_run_warn(run, "no diagnosis: %.400s", err->text);
	diagnosis_free(d);
	r->diagnosis = NULL;
	if (err)
		err->text[0] = '\0';
	return KVT_OK;
}
