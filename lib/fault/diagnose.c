/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diagnose.c - which fault makes one cache of the other?
 *
 * Every row of the table is held against the window (check.c), those that need a map of
 * what lies where after the others.  If none explains it, the heads that differ are
 * looked at alone, as those of one rank of 2, of 3, ...; a fault of tensor parallelism
 * hits no others.  If that does not help either, several things are wrong: what explains
 * most of it, exactly, is found in the same places.  What no row predicts element by
 * element has no name.
 *
 * That second search is by far the longer one.  Who asks for one fault waits for it only
 * where that fault, tested alone, has an answer.
 */
#include "lib/kvt/fault.h"

#include <string.h>

#include "lib/fault/search.h"

/* ---- what differs ------------------------------------------------------- */

static void grow(struct kvt_difference *d, const int64_t at[KVT_NAXES])
{
	if (!d->count++)
		memcpy(d->first, at, sizeof(d->first));
	for (int a = 0; a < KVT_NAXES; a++) {
		if (d->count == 1 || at[a] < d->where.begin[a])
			d->where.begin[a] = at[a];
		if (d->count == 1 || at[a] >= d->where.end[a])
			d->where.end[a] = at[a] + 1;
	}
}

/* One row of D. */
static void compare_row(struct kvt_difference *out, const struct kvt_window *w,
			const uint8_t *a, const uint8_t *b, int64_t at[KVT_NAXES])
{
	const int64_t n = w->shape.n[KVT_AXIS_D], elem = w->shape.elem;

	out->live += n;
	if (!memcmp(a, b, (size_t)(n * elem)))
		return;
	for (int64_t d = 0; d < n; d++) {
		at[KVT_AXIS_D] = d;
		if (!kvt_fault_same(w, a + d * elem, b + d * elem))
			grow(out, at);
	}
	at[KVT_AXIS_D] = 0;
}

static bool is_empty(const struct kvt_shape *shape)
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (!shape->n[a])
			return true;
	return false;
}

void kvt_window_compare(struct kvt_difference *out, const struct kvt_window *w,
			const void *expected, const void *suspect)
{
	int64_t at[KVT_NAXES] = { 0 };

	memset(out, 0, sizeof(*out));
	if (is_empty(&w->shape))
		return;
	do {
		int64_t i = kvt_fault_offset(w, at);

		if (kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]))
			compare_row(out, w, (const uint8_t *)expected + i,
				    (const uint8_t *)suspect + i, at);
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_L, KVT_AXIS_K));
}

/* ---- room --------------------------------------------------------------- */

static int64_t round_up(int64_t n)
{
	return (n + 7) & ~(int64_t)7;
}

static int64_t count_buckets(int64_t nblocks)
{
	int64_t n = 1;

	while (n < nblocks)
		n *= 2;
	return n;
}

static int64_t largest(const int64_t *n)
{
	int64_t most = n[KVT_AXIS_L] > n[KVT_AXIS_B] ? n[KVT_AXIS_L] : n[KVT_AXIS_B];

	return most > n[KVT_AXIS_H] ? most : n[KVT_AXIS_H];
}

/* Maps of layers, blocks and heads, a second one, chains of blocks, and pages. */
static int64_t count_indices(const int64_t *n)
{
	return n[KVT_AXIS_L] + 2 * n[KVT_AXIS_B] + n[KVT_AXIS_H] + largest(n) +
	       count_buckets(n[KVT_AXIS_B]) + n[KVT_AXIS_L] * n[KVT_AXIS_B];
}

enum kvt_status kvt_diagnose_scratch(int64_t *out, const struct kvt_window *w,
				     struct kvt_error *err)
{
	const int64_t *n = w->shape.n;
	enum kvt_status status = kvt_fault_check_window(w, err);

	if (status)
		return status;
	*out = n[KVT_AXIS_L] * n[KVT_AXIS_K] * (int64_t)sizeof(struct fault_span) +
	       count_indices(n) * (int64_t)sizeof(int64_t) +
	       round_up(n[KVT_AXIS_L] * n[KVT_AXIS_B]) +
	       round_up(n[KVT_AXIS_S] * n[KVT_AXIS_H] * n[KVT_AXIS_K]) +
	       n[KVT_AXIS_L] + n[KVT_AXIS_B] + n[KVT_AXIS_H] + n[KVT_AXIS_K];
	return KVT_OK;
}

static void *take(uint8_t **room, int64_t nbytes)
{
	uint8_t *out = *room;

	*room += nbytes;
	return out;
}

static void divide(struct search *s, const int64_t *n, void *scratch)
{
	const int64_t size = sizeof(int64_t);
	uint8_t *room = scratch;

	s->c.span = take(&room, n[KVT_AXIS_L] * n[KVT_AXIS_K] *
				(int64_t)sizeof(*s->c.span));
	for (int a = 0; a < KVT_NAXES; a++)
		if (a == KVT_AXIS_L || a == KVT_AXIS_B || a == KVT_AXIS_H)
			s->c.map[a].from = take(&room, n[a] * size);
	s->other_map = take(&room, largest(n) * size);
	s->chain = take(&room, n[KVT_AXIS_B] * size);
	s->nbuckets = count_buckets(n[KVT_AXIS_B]);
	s->bucket = take(&room, s->nbuckets * size);
	s->page_differs = take(&room, n[KVT_AXIS_L] * n[KVT_AXIS_B] * size);
	s->page_at_all = take(&room, round_up(n[KVT_AXIS_L] * n[KVT_AXIS_B]));
	s->part_differs = take(&room, round_up(n[KVT_AXIS_S] * n[KVT_AXIS_H] *
					       n[KVT_AXIS_K]));
	s->layer = take(&room, n[KVT_AXIS_L]);
	s->block = take(&room, n[KVT_AXIS_B]);
	s->head = take(&room, n[KVT_AXIS_H]);
	s->kv = take(&room, n[KVT_AXIS_K]);
}

/* ---- what differs in a window ------------------------------------------- */

static int64_t position_of(const struct kvt_window *w, const int64_t at[KVT_NAXES])
{
	return !w->entry ? 0 : w->entry[at[KVT_AXIS_B]] * w->shape.n[KVT_AXIS_S] +
			       at[KVT_AXIS_S];
}

/* One more element that differs. */
static void mark(struct search *s, const int64_t at[KVT_NAXES], bool first)
{
	const struct kvt_window *w = s->c.window;
	int64_t offset = s->c.has_memory ? kvt_views_at(&s->c.memory, at) : 0;
	int64_t token = position_of(w, at), k = at[KVT_AXIS_K];

	if (first)
		memcpy(s->c.seed, at, sizeof(s->c.seed));
	if (first || offset < s->c.tail)
		s->c.tail = offset;
	if (first || token < s->c.token)
		s->c.token = token;
	if (first || k < s->c.kv_begin)
		s->c.kv_begin = k;
	if (first || k >= s->c.kv_end)
		s->c.kv_end = k + 1;
	s->page_differs[at[KVT_AXIS_L] * w->shape.n[KVT_AXIS_B] + at[KVT_AXIS_B]]++;
}

/* Below a page of a layer; how many elements differed before it. */
static int64_t mark_page(struct search *s, int64_t at[KVT_NAXES], int64_t count)
{
	const struct kvt_window *w = s->c.window;
	const int64_t elem = w->shape.elem;

	do {
		int64_t row = kvt_fault_offset(w, at);

		if (!kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]) ||
		    !memcmp(s->c.expected + row, s->c.suspect + row, (size_t)s->c.cell))
			continue;
		for (int64_t d = 0; d < s->c.dim; d++) {
			at[KVT_AXIS_D] = d;
			if (!kvt_fault_same(w, s->c.expected + row + d * elem,
					    s->c.suspect + row + d * elem))
				mark(s, at, !count++);
		}
		at[KVT_AXIS_D] = 0;
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_S, KVT_AXIS_K));
	return count;
}

/*
 * How many elements differ, and where first in several orders.  Shares of the window
 * are many: what is the same in all of it is not looked at again.
 */
static int64_t mark_pages(struct search *s)
{
	const struct kvt_shape *shape = &s->c.window->shape;
	const int64_t npages = shape->n[KVT_AXIS_L] * shape->n[KVT_AXIS_B];
	int64_t at[KVT_NAXES] = { 0 }, count = 0;

	memset(s->page_differs, 0, (size_t)npages * sizeof(*s->page_differs));
	do {
		if (s->page_at_all[at[KVT_AXIS_L] * shape->n[KVT_AXIS_B] +
				   at[KVT_AXIS_B]])
			count = mark_page(s, at, count);
	} while (kvt_fault_next(at, shape, KVT_AXIS_L, KVT_AXIS_B));
	return count;
}

static bool row_differs(const struct search *s, const int64_t at[KVT_NAXES])
{
	const struct kvt_window *w = s->c.window;
	int64_t row = kvt_fault_offset(w, at);

	if (!kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]))
		return false;
	for (int64_t i = row; i < row + s->c.cell; i += w->shape.elem)
		if (!kvt_fault_same(w, s->c.expected + i, s->c.suspect + i))
			return true;
	return false;
}

/* Rows here and there in pages that differ, not always the first of a page. */
static void choose_seeds(struct search *s)
{
	const struct kvt_shape *shape = &s->c.window->shape;
	int64_t npages = shape->n[KVT_AXIS_L] * shape->n[KVT_AXIS_B], differ = 0, n = 0;

	for (int64_t page = 0; page < npages; page++)
		differ += s->page_differs[page] > 0;
	s->nseeds = 0;
	for (int64_t page = 0; page < npages && s->nseeds < MAX_SEEDS; page++) {
		int64_t at[KVT_NAXES] = { 0 }, skip = s->nseeds;

		if (!s->page_differs[page] || n++ * MAX_SEEDS < s->nseeds * differ)
			continue;
		at[KVT_AXIS_L] = page / shape->n[KVT_AXIS_B];
		at[KVT_AXIS_B] = page % shape->n[KVT_AXIS_B];
		do {
			if (!row_differs(s, at))
				continue;
			memcpy(s->seed[s->nseeds], at, sizeof(at));
			if (!skip--)
				break;
		} while (kvt_fault_next(at, shape, KVT_AXIS_S, KVT_AXIS_K));
		s->nseeds++;
	}
}

/* ---- one window --------------------------------------------------------- */

/* All of it, or the heads of a rank; the memory is that of all heads. */
struct share {
	int64_t tp, rank;
	struct kvt_window window;
};

static void take_share(struct share *out, const struct kvt_window *w, int64_t tp,
		       int64_t rank)
{
	int64_t each = w->shape.n[KVT_AXIS_H] / tp;

	*out = (struct share){ tp, rank, *w };
	if (tp == 1)
		return;
	out->window.array = &w->shape;
	out->window.shape.n[KVT_AXIS_H] = each;
	out->window.head_start += rank * each;
	out->window.layout = NULL;
}

static bool is_move(const struct fault *f)
{
	return f >= kvt_move_faults && f < kvt_move_faults + NMOVES;
}

/* Some of them, those that need maps or the others. */
static void test_rows(struct kvt_diagnosis *out, struct search *s, bool moves)
{
	const struct fault *f;

	for (int i = 0; (f = kvt_fault_row(i)); i++)
		if (s->only && s->only != &f->says)
			out->hypothesis[i] = (struct kvt_hypothesis){ .fault = &f->says };
		else if (is_move(f) == moves)
			kvt_fault_test(&out->hypothesis[i], s, f);
}

static bool explains_all(const struct kvt_diagnosis *d)
{
	for (int i = 0; i < d->nhypotheses; i++)
		if (d->hypothesis[i].verdict == KVT_EXPLAINS && !d->hypothesis[i].unknown)
			return true;
	return false;
}

/* Looks at this window from now on; how many of its elements differ. */
static int64_t enter(struct search *s, const struct share *share,
		     const uint8_t *expected, const uint8_t *suspect)
{
	const struct kvt_window *w = &share->window;
	const struct fault_case room = s->c;
	int64_t begin[KVT_NAXES] = { [KVT_AXIS_H] = share->rank *
						    w->shape.n[KVT_AXIS_H] };
	int64_t offset = kvt_fault_offset(w, begin);

	kvt_fault_case_init(&s->c, w, expected + offset, suspect + offset);
	s->c.partial = s->partial;
	s->c.span = room.span;
	for (int a = 0; a < KVT_NAXES; a++)
		s->c.map[a].from = room.map[a].from;
	s->head_begin = begin[KVT_AXIS_H];
	return s->ndiffer = mark_pages(s);
}

static void join_axes(struct search *s)
{
	kvt_fault_join(s, KVT_AXIS_L);
	kvt_fault_join(s, KVT_AXIS_B);
	kvt_fault_join(s, KVT_AXIS_H);
}

/* Indices of heads count from the first of the whole window. */
static void shift_heads(struct kvt_hypothesis *h, int64_t begin)
{
	for (int i = 0; i < KVT_FAULT_ARGS; i++)
		if (h->fault->arg[i].axis == 'H')
			h->args.n[i] += begin;
}

/* ---- all that differs --------------------------------------------------- */

/* Has a map an explanation that leaves nothing unknown? */
static bool is_mapped(const struct kvt_diagnosis *d)
{
	for (int i = 0; i < d->nhypotheses; i++)
		if (is_move(kvt_fault_row(i)) && !d->hypothesis[i].unknown &&
		    d->hypothesis[i].verdict == KVT_EXPLAINS)
			return true;
	return false;
}

/* Of several, those that know all of it, and that do not yield to the others. */
static void settle(struct kvt_diagnosis *d, const struct search *s)
{
	bool known = is_mapped(d), firm = false;

	d->nexplain = 0;
	for (int i = 0; i < d->nhypotheses; i++) {
		struct kvt_hypothesis *h = &d->hypothesis[i];
		const struct fault *f = kvt_fault_row(i);

		if (h->verdict == KVT_EXPLAINS && known && h->unknown)
			h->verdict = KVT_REFUTED;
		firm |= h->verdict == KVT_EXPLAINS && !f->yields;
	}
	for (int i = 0; i < d->nhypotheses; i++) {
		struct kvt_hypothesis *h = &d->hypothesis[i];
		const struct fault *f = kvt_fault_row(i);

		if (h->verdict == KVT_EXPLAINS && firm && f->yields)
			h->verdict = KVT_REFUTED;
		if (h->verdict != KVT_EXPLAINS)
			continue;
		shift_heads(h, s->head_begin);
		d->decided = d->nexplain++ ? NULL : h;
	}
}

/* The rank of 'tp' that has all heads that differ; -1: none has. */
static int64_t rank_with_all(const struct kvt_difference *d, int64_t heads, int64_t tp)
{
	int64_t first = d->where.begin[KVT_AXIS_H], last = d->where.end[KVT_AXIS_H] - 1;
	int64_t each = heads / tp;

	return heads % tp == 0 && first / each == last / each ? first / each : -1;
}

static void explain_all(struct kvt_diagnosis *out, struct search *s,
			const struct kvt_window *w, const uint8_t *expected,
			const uint8_t *suspect)
{
	int64_t heads = w->shape.n[KVT_AXIS_H];

	for (int64_t tp = 1; tp <= heads && !out->nexplain; tp++) {
		int64_t rank = rank_with_all(&out->difference, heads, tp);
		struct share share;

		if (rank < 0)
			continue;
		take_share(&share, w, tp, rank);
		enter(s, &share, expected, suspect);
		test_rows(out, s, false);
		if (!explains_all(out))
			join_axes(s);
		test_rows(out, s, true);
		settle(out, s);
		out->tp = tp;
		out->rank = rank;
	}
	if (out->nexplain)
		return;
	out->tp = 1;
	out->rank = 0;
}

/* ---- most of it --------------------------------------------------------- */

enum { LEAST_SHARE = 3 };		/* a third of what differs */

/* The best so far, and whether another fault is as good. */
struct best {
	int row;
	bool tied, yields;
	struct kvt_hypothesis h;
	struct share share;
};

static void compete(struct best *best, const struct kvt_diagnosis *d,
		    const struct share *share)
{
	for (int i = 0; i < d->nhypotheses; i++) {
		const struct kvt_hypothesis *h = &d->hypothesis[i];
		const struct fault *f = kvt_fault_row(i);
		bool yields = f->yields;

		if (h->verdict != KVT_EXPLAINS_PART || h->explained < best->h.explained)
			continue;
		if (h->explained == best->h.explained && !(best->yields && !yields)) {
			best->tied |= i != best->row && yields == best->yields;
			continue;
		}
		*best = (struct best){ .row = i, .yields = yields, .h = *h,
				       .share = *share };
	}
}

/* What it explains, once more, to show where that is. */
static void strike_best(struct best *best, struct search *s,
			const uint8_t *expected, const uint8_t *suspect)
{
	enter(s, &best->share, expected, suspect);
	choose_seeds(s);
	join_axes(s);
	s->striking = true;
	kvt_fault_check_args(&best->h, s, kvt_fault_row(best->row));
}

static void explain_most(struct kvt_diagnosis *out, struct search *s,
			 const struct kvt_window *w, const uint8_t *expected,
			 const uint8_t *suspect)
{
	int64_t heads = w->shape.n[KVT_AXIS_H];
	struct best best = { .row = -1 };

	s->partial = true;
	for (int64_t tp = 1; tp <= heads; tp++)
		for (int64_t rank = 0; heads % tp == 0 && rank < tp; rank++) {
			struct share share;

			take_share(&share, w, tp, rank);
			if (!enter(s, &share, expected, suspect))
				continue;
			choose_seeds(s);
			join_axes(s);
			test_rows(out, s, false);
			test_rows(out, s, true);
			compete(&best, out, &share);
		}
	for (int i = 0; i < out->nhypotheses; i++)
		if (out->hypothesis[i].verdict == KVT_EXPLAINS_PART)
			out->hypothesis[i].verdict = KVT_REFUTED;
	if (best.row < 0 || best.tied ||
	    best.h.explained * LEAST_SHARE < out->difference.count)
		return;
	strike_best(&best, s, expected, suspect);
	shift_heads(&best.h, s->head_begin);
	out->hypothesis[best.row] = best.h;
	out->decided = &out->hypothesis[best.row];
	out->tp = best.share.tp;
	out->rank = best.share.rank;
}

/* ---- the whole ---------------------------------------------------------- */

/* All that differs. */
static void strike_all(struct search *s)
{
	const struct kvt_window *w = s->c.window;
	int64_t at[KVT_NAXES] = { 0 };

	do {
		if (!s->page_differs[at[KVT_AXIS_L] * w->shape.n[KVT_AXIS_B] +
				     at[KVT_AXIS_B]] || !row_differs(s, at))
			continue;
		s->layer[at[KVT_AXIS_L]] = s->block[at[KVT_AXIS_B]] = 1;
		s->head[at[KVT_AXIS_H]] = s->kv[at[KVT_AXIS_K]] = 1;
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_L, KVT_AXIS_K));
}

/* Which pages differ in any of their heads. */
static void mark_at_all(struct search *s, const struct kvt_window *w,
			const uint8_t *expected, const uint8_t *suspect)
{
	const int64_t npages = w->shape.n[KVT_AXIS_L] * w->shape.n[KVT_AXIS_B];
	struct share whole;

	memset(s->page_at_all, 1, (size_t)npages);
	take_share(&whole, w, 1, 0);
	enter(s, &whole, expected, suspect);
	for (int64_t i = 0; i < npages; i++)
		s->page_at_all[i] = s->page_differs[i] > 0;
}

static enum kvt_axis axis_of(char name)
{
	return name == 'L' ? KVT_AXIS_L : name == 'B' ? KVT_AXIS_B : KVT_AXIS_H;
}

static void show_struck(struct kvt_diagnosis *out, struct search *s,
			const struct kvt_window *w, const uint8_t *expected,
			const uint8_t *suspect)
{
	struct share whole;

	take_share(&whole, w, 1, 0);
	if (!out->decided || out->decided->verdict != KVT_EXPLAINS_PART) {
		enter(s, &whole, expected, suspect);
		strike_all(s);
	}
	if (out->decided && out->decided->fault->moves)
		out->from = s->c.map[axis_of(out->decided->fault->moves)].from;
	out->struck = (struct kvt_struck){ s->layer, s->block, s->head, s->kv };
}

static enum kvt_status diagnose(struct kvt_diagnosis *out, const struct kvt_fault *only,
				const struct kvt_window *w, const void *expected,
				const void *suspect, void *scratch, struct kvt_error *err)
{
	struct search s = { .only = only };
	const int64_t *n = w->shape.n;
	enum kvt_status status = kvt_fault_check_window(w, err);

	if (status)
		return status;
	memset(out, 0, sizeof(*out));
	kvt_window_compare(&out->difference, w, expected, suspect);
	if (!out->difference.count)
		return KVT_OK;
	divide(&s, n, scratch);
	memset(s.layer, 0, (size_t)(n[KVT_AXIS_L] + n[KVT_AXIS_B] + n[KVT_AXIS_H] +
				    n[KVT_AXIS_K]));
	mark_at_all(&s, w, expected, suspect);
	while (kvt_fault_row(out->nhypotheses))
		out->nhypotheses++;
	explain_all(out, &s, w, expected, suspect);
	if (!out->nexplain)
		explain_most(out, &s, w, expected, suspect);
	show_struck(out, &s, w, expected, suspect);
	return KVT_OK;
}

enum kvt_status kvt_diagnose(struct kvt_diagnosis *out, const struct kvt_window *w,
			     const void *expected, const void *suspect, void *scratch,
			     struct kvt_error *err)
{
	return diagnose(out, NULL, w, expected, suspect, scratch, err);
}

enum kvt_status kvt_diagnose_only(struct kvt_diagnosis *out,
				  const struct kvt_fault *fault,
				  const struct kvt_window *w, const void *expected,
				  const void *suspect, void *scratch,
				  struct kvt_error *err)
{
	enum kvt_status status = diagnose(out, fault, w, expected, suspect, scratch, err);

	return status || !out->decided ? status :
	       kvt_diagnose(out, w, expected, suspect, scratch, err);
}
