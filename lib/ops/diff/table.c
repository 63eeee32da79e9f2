/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - a result, summed up along one axis, and the places on each that differ
 *
 * In: what the second pass has summed of each layer and head, slot, segment, element of a
 * slot, and of keys and values.  Out: rows, which say what they are of in the model and
 * in the pools; and of each axis the ranges of indices that have a difference anywhere.
 *
 * A row is worse than another if it has more that is finite on one side only, then by
 * rel-l2, which is not finite where A is zeros, then by the share that is bad.
 */
#include "lib/ops/diff/internal.h"
#include "lib/base/order.h"

#include <stdlib.h>
#include <string.h>

static const char *const axis_names[DIFF_AXES] = {
	[DIFF_LAYER] = "layer", [DIFF_HEAD] = "head", [DIFF_TOKEN] = "token",
	[DIFF_DIM] = "dim", [DIFF_KV] = "kv", [DIFF_BLOCK] = "block",
	[DIFF_REQUEST] = "request",
};

const char *kvt_diff_axis_name(enum diff_axis axis)
{
	return axis_names[axis];
}

/* ---- ids ---------------------------------------------------------------- */

static const struct diff_segment *segment_at(const struct diff_result *r, int64_t ordinal)
{
	return &r->pair->segment[r->pair->ordered[ordinal]];
}

static const char *request_of(const struct diff_result *r, const struct diff_segment *s)
{
	return s->request < 0 ? NULL :
	       kvt_dump_snapshot(r->pair->side[SIDE_A]->dump)->request[s->request].id;
}

static int64_t block_of(const struct diff_result *r, const struct diff_segment *s,
			int side)
{
	return (int64_t)kvt_block_id(r->pair->group[side], s->block[side]);
}

/* Tokens of a slot; a state is one entry, whatever it has of slots. */
static int64_t tokens_each(const struct diff_pair *p)
{
	return p->recurrent ? 1 : p->group[SIDE_A]->tokens_per_slot;
}

/* Slots of a segment that are told apart. */
static int64_t steps_of(const struct diff_pair *p, const struct diff_segment *s)
{
	return p->recurrent ? 1 : s->count;
}

/* How many there are on an axis; 0: the pair does not have it. */
static int64_t extent_of(const struct diff_result *r, enum diff_axis axis)
{
	const struct diff_pair *p = r->pair;
	const int64_t n[DIFF_AXES] = {
		[DIFF_LAYER] = p->nlayers, [DIFF_DIM] = p->content,
		[DIFF_HEAD] = p->group[SIDE_A]->kind == KVT_MAMBA_CONV ? 0 : p->nheads,
		[DIFF_TOKEN] = p->recurrent ? p->nsegments : p->nslots,
		[DIFF_KV] = p->half < 0 ? 0 : p->nkv, [DIFF_BLOCK] = p->nsegments,
		[DIFF_REQUEST] = p->nsegments && p->segment[0].request >= 0 ?
				 p->nsegments : 0,
	};

	return n[axis];
}

/* ---- rows --------------------------------------------------------------- */

/* 'heat' NULL: nothing was measured, because all is equal. */
static struct diff_row row_of(const struct heat *heat, int64_t at, int64_t id)
{
	return (struct diff_row){ .heat = heat ? heat[at] : (struct heat){ 0 }, .id = id,
				  .slot = -1, .block = { -1, -1 } };
}

/* Of layers (with 'layers') or heads. */
static void rows_of_heads(struct diff_table *out, const struct diff_result *r,
			  bool layers)
{
	int64_t nheads = r->pair->nheads;

	for (int64_t i = 0; i < out->total; i++)
		out->row[i] = row_of(NULL, i, layers ? kvt_diff_layer(r, i) :
							 kvt_diff_head(r, i));
	for (int64_t i = 0; r->by_head && i < r->pair->nlayers * nheads; i++)
		kvt_heat_add(&out->row[layers ? i / nheads : i % nheads].heat,
			     &r->by_head[i]);
}

static void rows_of_tokens(struct diff_table *out, const struct diff_result *r)
{
	const struct diff_pair *p = r->pair;
	struct diff_row *row = out->row;

	for (int64_t i = 0; i < p->nsegments; i++) {
		const struct diff_segment *s = segment_at(r, i);

		for (int64_t at = 0; at < steps_of(p, s); at++, row++) {
			*row = row_of(p->recurrent ? r->by_part : r->by_slot,
				      p->recurrent ? i : s->before + at,
				      s->request < 0 ? -1 :
				      (s->position + at) * tokens_each(p));
			row->request = request_of(r, s);
			row->page = kvt_diff_page(p, s);
			row->slot = s->slot[SIDE_A] + at;
			for (int side = 0; side < NSIDES; side++)
				row->block[side] = block_of(r, s, side);
		}
	}
}

static int by_block(const void *a, const void *b)
{
	const struct diff_row *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

/* Of segments in one block of A one row; it names a block of B if they are in one. */
static void rows_of_blocks(struct diff_table *out, const struct diff_result *r)
{
	struct diff_row *row = out->row;
	int64_t n = 0;

	for (int64_t i = 0; i < out->total; i++) {
		const struct diff_segment *s = segment_at(r, i);

		row[i] = row_of(r->by_part, i, block_of(r, s, SIDE_A));
		row[i].page = kvt_diff_page(r->pair, s);
		for (int side = 0; side < NSIDES; side++)
			row[i].block[side] = block_of(r, s, side);
	}
	qsort(row, (size_t)out->total, sizeof(*row), by_block);
	for (int64_t i = 0; i < out->total; i++) {
		if (!n || row[n - 1].id != row[i].id) {
			row[n++] = row[i];
			continue;
		}
		kvt_heat_add(&row[n - 1].heat, &row[i].heat);
		if (row[n - 1].block[SIDE_B] != row[i].block[SIDE_B])
			row[n - 1].block[SIDE_B] = -1;
	}
	out->total = n;
}

/* Segments of a request follow each other. */
static void rows_of_requests(struct diff_table *out, const struct diff_result *r)
{
	int64_t n = 0, last = -1;

	for (int64_t i = 0; i < out->total; i++) {
		const struct diff_segment *s = segment_at(r, i);

		if (s->request == last) {
			if (r->by_part)
				kvt_heat_add(&out->row[n - 1].heat, &r->by_part[i]);
			continue;
		}
		last = s->request;
		out->row[n] = row_of(r->by_part, i, -1);
		out->row[n++].request = request_of(r, s);
	}
	out->total = n;
}

static void rows_of_slices(struct diff_table *out, const struct diff_result *r, bool dims)
{
	for (int64_t i = 0; i < out->total; i++)
		out->row[i] = dims ? row_of(r->by_dim, i, kvt_diff_dim(r, i)) :
				     row_of(r->by_kv, i, r->pair->half + i);
}

static double norm_ratio(const struct heat *h)
{
	return kvt_diff_rel_l2(&(struct diff_sums){ .dd = h->dd, .aa = h->aa });
}

/* Rows of equal worth stay in the order of the axis, in which 'slot' is their place. */
static int worse_first(const void *a, const void *b)
{
	const struct diff_row *const *x = a, *const *y = b;
	const struct heat *p = &(*x)->heat, *q = &(*y)->heat;
	double left = norm_ratio(p), right = norm_ratio(q);

	if (p->lost != q->lost)
		return p->lost > q->lost ? -1 : 1;
	if (left > right || left < right)
		return left > right ? -1 : 1;
	left = (double)p->bad / (double)p->n;
	right = (double)q->bad / (double)q->n;
	if (left > right || left < right)
		return left > right ? -1 : 1;
	return *x < *y ? -1 : *x > *y;
}

static bool has_difference(const struct heat *h)
{
	return h->bad || h->lost || h->dd > 0;
}

static bool sort_rows(struct diff_table *out)
{
	struct diff_row **at = calloc((size_t)out->total + 1, sizeof(*at));
	struct diff_row *row = calloc((size_t)out->total + 1, sizeof(*row));
	bool made = at && row;

	out->n = 0;
	for (int64_t i = 0; made && i < out->total; i++)
		if (has_difference(&out->row[i].heat))
			at[out->n++] = &out->row[i];
	if (made && out->n)
		qsort(at, (size_t)out->n, sizeof(struct diff_row *), worse_first);
	for (int64_t i = 0; made && i < out->n; i++)
		row[i] = *at[i];
	free(at);
	free(made ? out->row : row);
	out->row = made ? row : out->row;
	return made;
}

bool kvt_diff_table(struct diff_table *out, const struct diff_result *r,
		    enum diff_axis axis, bool sorted)
{
	*out = (struct diff_table){ .total = extent_of(r, axis) };
	if (!(out->row = calloc((size_t)out->total + 1, sizeof(*out->row))))
		return false;
	if (out->total <= 0)
		return true;
	if (axis == DIFF_LAYER || axis == DIFF_HEAD)
		rows_of_heads(out, r, axis == DIFF_LAYER);
	else if (axis == DIFF_TOKEN)
		rows_of_tokens(out, r);
	else if (axis == DIFF_BLOCK)
		rows_of_blocks(out, r);
	else if (axis == DIFF_REQUEST)
		rows_of_requests(out, r);
	else
		rows_of_slices(out, r, axis == DIFF_DIM);
	out->n = out->total;
	return !sorted || sort_rows(out);
}

void kvt_diff_table_free(struct diff_table *table)
{
	free(table->row);
}

/* ---- where -------------------------------------------------------------- */

/* A place on an axis. */
struct place {
	int64_t id;
	bool bad;
};

/* Adds what begins behind the last one, if it goes on there. */
static void add_span(struct diff_spans *to, const char *request, int64_t first,
		     int64_t last)
{
	struct diff_span *end = to->span + to->n - 1;

	to->count += last - first + 1;
	if (to->n && end->request == request && end->last + 1 == first)
		end->last = last;
	else
		to->span[to->n++] = (struct diff_span){ request, first, last };
}

/* Several places of one id are one. */
static bool list_places(struct diff_spans *out, struct place *place, int64_t n)
{
	if (!place || !(out->span = calloc((size_t)n + 1, sizeof(*out->span))))
		return false;
	if (n)
		qsort(place, (size_t)n, sizeof(*place), kvt_by_int64);
	for (int64_t i = 0, end; i < n; i = end) {
		bool bad = false;

		for (end = i; end < n && place[end].id == place[i].id; end++)
			bad |= place[end].bad;
		out->total++;
		if (bad)
			add_span(out, NULL, place[i].id, place[i].id);
	}
	return true;
}

static bool is_bad(const struct diff_result *r, enum diff_axis axis, int64_t i)
{
	int64_t nheads = r->pair->nheads, step = axis == DIFF_LAYER ? 1 : nheads;
	const struct heat *h = r->by_head + (axis == DIFF_LAYER ? i * nheads : i);
	int64_t n = axis == DIFF_LAYER ? nheads : r->pair->nlayers;
	bool bad = false;

	if (axis == DIFF_DIM)
		return r->bad_dim[i];
	if (axis == DIFF_KV)
		return r->by_kv[i].bad > 0;
	for (; n; n--, h += step)
		bad |= h->bad > 0;
	return bad;
}

static int64_t id_on(const struct diff_result *r, enum diff_axis axis, int64_t i)
{
	return axis == DIFF_LAYER ? kvt_diff_layer(r, i) :
	       axis == DIFF_HEAD ? kvt_diff_head(r, i) :
	       axis == DIFF_DIM ? kvt_diff_dim(r, i) : r->pair->half + i;
}

static bool list_axis(struct diff_spans *out, const struct diff_result *r,
		      enum diff_axis axis)
{
	int64_t n = extent_of(r, axis);
	struct place *place = calloc((size_t)n + 1, sizeof(*place));
	bool made;

	for (int64_t i = 0; place && i < n; i++)
		place[i] = (struct place){ id_on(r, axis, i), is_bad(r, axis, i) };
	made = list_places(out, place, n);
	free(place);
	return made;
}

static bool list_blocks(struct diff_spans *out, const struct diff_result *r, int side)
{
	int64_t n = r->pair->nsegments;
	struct place *place = calloc((size_t)n + 1, sizeof(*place));
	bool made;

	for (int64_t i = 0; place && i < n; i++)
		place[i] = (struct place){ block_of(r, segment_at(r, i), side),
					   r->by_part[i].bad > 0 };
	made = list_places(out, place, n);
	free(place);
	return made;
}

/* Two passes: how many spans there are at most, then these. */
static bool list_tokens(struct diff_spans *out, const struct diff_result *r)
{
	const struct diff_pair *p = r->pair;
	int64_t each = tokens_each(p), most = 0;

	for (int64_t i = 0; i < p->nslots; i++)
		most += r->bad_slot[i] && (!i || !r->bad_slot[i - 1]);
	most += p->nsegments;		/* one may begin with each */
	if (!(out->span = calloc((size_t)most + 1, sizeof(*out->span))))
		return false;
	for (int64_t i = 0; i < p->nsegments; i++) {
		const struct diff_segment *s = segment_at(r, i);

		for (int64_t at = 0; s->request >= 0 && at < steps_of(p, s); at++) {
			int64_t token = (s->position + at) * each;

			out->total += each;
			if (p->recurrent ? r->by_part[i].bad > 0 :
					   r->bad_slot[s->before + at])
				add_span(out, request_of(r, s), token, token + each - 1);
		}
	}
	return true;
}

/* Of each block of A once, where both sides have a name for it, and the same. */
static bool list_pages(struct diff_where *out, const struct diff_result *r)
{
	const struct diff_pair *p = r->pair;
	bool made, *listed = calloc((size_t)p->group[SIDE_A]->shape.n[KVT_AXIS_B] + 1,
				    sizeof(*listed));

	out->page = calloc((size_t)p->nsegments + 1, sizeof(*out->page));
	for (int64_t i = 0; listed && out->page && i < p->nsegments; i++) {
		const struct diff_segment *s = segment_at(r, i);
		const char *page = kvt_diff_page(p, s);

		if (!page || !r->by_part[i].bad || listed[s->block[SIDE_A]])
			continue;
		listed[s->block[SIDE_A]] = true;
		out->page[out->npages++] = page;
	}
	made = listed && out->page;
	free(listed);
	return made;
}

bool kvt_diff_where(struct diff_where *out, const struct diff_result *r)
{
	static const enum diff_axis plain[] = { DIFF_LAYER, DIFF_HEAD, DIFF_DIM,
						DIFF_KV };
	bool made = true;

	*out = (struct diff_where){ 0 };
	for (int i = 0; made && i < 4; i++)
		made = list_axis(&out->on[plain[i]], r, plain[i]);
	return made && list_tokens(&out->on[DIFF_TOKEN], r) &&
	       list_blocks(&out->on[DIFF_BLOCK], r, SIDE_A) &&
	       list_blocks(&out->on[DIFF_BLOCKS_OF_B], r, SIDE_B) && list_pages(out, r);
}

void kvt_diff_where_free(struct diff_where *where)
{
	for (int i = 0; i < DIFF_LISTS; i++)
		free(where->on[i].span);
	free(where->page);
}
