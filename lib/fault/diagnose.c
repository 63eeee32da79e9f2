/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diagnose.c - which fault makes one cache of the other?
 *
 * A fault hits or spares parts: pages, rows of a slot, ... (struct fault).  A
 * part that differs anywhere must be what the fault predicts everywhere; one
 * element that is not refutes it.  So all but one hypothesis end early.
 */
#include "lib/kvt/fault.h"

#include <string.h>

#include "lib/fault/fault.h"

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

/* ---- one hypothesis with its arguments ---------------------------------- */

struct search {
	struct fault_case c;
	uint8_t *page_differs;		/* [L][B] */
	uint8_t *part_differs;		/* [S][H][K] */
};

/* Elements as predicted; false: one is not. */
static bool check_row(struct kvt_hypothesis *h, const struct search *s,
		      const struct fault *f, int64_t at[KVT_NAXES])
{
	const struct kvt_window *w = s->c.window;
	uint8_t value[8];

	for (int64_t d = 0; d < w->shape.n[KVT_AXIS_D]; d++) {
		int64_t i;
		bool differs;

		at[KVT_AXIS_D] = d;
		i = kvt_fault_offset(w, at);
		differs = !kvt_fault_same(w, s->c.expected + i, s->c.suspect + i);
		if (!kvt_fault_value(value, &s->c, f, &h->args, at)) {
			h->unknown += differs;
			continue;
		}
		if (!kvt_fault_same(w, value, s->c.suspect + i))
			return false;
		h->explained += differs;
		h->matched++;
	}
	at[KVT_AXIS_D] = 0;
	return true;
}

/* The flag of the part that a row belongs to. */
static uint8_t *part_of(const struct search *s, const struct fault *f,
			const int64_t at[KVT_NAXES])
{
	const int64_t *n = s->c.window->shape.n;
	int64_t i = 0;

	for (int a = KVT_AXIS_S; a < KVT_AXIS_D; a++)
		i = i * n[a] + (f->part & 1U << a ? at[a] : 0);
	return &s->part_differs[i];
}

/* Which parts of the page differ at all? */
static void mark_parts(const struct search *s, const struct fault *f,
		       int64_t at[KVT_NAXES])
{
	const struct kvt_window *w = s->c.window;
	const int64_t *n = w->shape.n, elem = w->shape.elem;

	memset(s->part_differs, (f->part & ALL_AT_ONCE) != 0,
	       (size_t)(n[KVT_AXIS_S] * n[KVT_AXIS_H] * n[KVT_AXIS_K]));
	do {
		int64_t row = kvt_fault_offset(w, at);
		uint8_t *flag = part_of(s, f, at);

		if (*flag || !kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]))
			continue;
		for (int64_t i = row; i < row + s->c.cell && !*flag; i += elem)
			*flag = !kvt_fault_same(w, s->c.expected + i, s->c.suspect + i);
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_S, KVT_AXIS_K));
}

static bool check_page(struct kvt_hypothesis *h, const struct search *s,
		       const struct fault *f, int64_t at[KVT_NAXES])
{
	const struct kvt_window *w = s->c.window;

	mark_parts(s, f, at);
	do {
		if (*part_of(s, f, at) &&
		    kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]) &&
		    !check_row(h, s, f, at))
			return false;
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_S, KVT_AXIS_K));
	return true;
}

/* The first element that differs refutes most arguments. */
static bool survives_seed(const struct kvt_hypothesis *h, const struct search *s,
			  const struct fault *f)
{
	const struct kvt_window *w = s->c.window;
	uint8_t value[8];

	return !kvt_fault_value(value, &s->c, f, &h->args, s->c.seed) ||
	       kvt_fault_same(w, value, s->c.suspect + kvt_fault_offset(w, s->c.seed));
}

/* Counts of 'h' are those of these arguments afterwards. */
static bool check_args(struct kvt_hypothesis *h, const struct search *s,
		       const struct fault *f)
{
	const struct kvt_shape *shape = &s->c.window->shape;
	int64_t at[KVT_NAXES] = { 0 };

	h->tried++;
	h->explained = h->unknown = h->matched = 0;
	if (!survives_seed(h, s, f))
		return false;
	do {
		bool differs = s->page_differs[at[KVT_AXIS_L] * shape->n[KVT_AXIS_B] +
					       at[KVT_AXIS_B]];

		if ((differs || (f->part & ALL_AT_ONCE)) && !check_page(h, s, f, at))
			return false;
	} while (kvt_fault_next(at, shape, KVT_AXIS_L, KVT_AXIS_B));
	/* what nobody can check must not carry the verdict */
	return h->explained > 0 && h->unknown <= h->explained;
}

/* ---- all arguments of a fault ------------------------------------------- */

/* Advance the arguments through their ranges; false past the last ones. */
static bool next_args(struct kvt_fault_args *args, const struct search *s,
		      const struct fault *f)
{
	for (int i = KVT_FAULT_ARGS - 1; i >= 0; i--) {
		struct kvt_range range;

		if (!f->says.arg[i].name)
			continue;
		range = f->range(&s->c, i);
		if (++args->n[i] < range.end)
			return true;
		args->n[i] = range.begin;
	}
	return false;
}

static bool first_args(struct kvt_fault_args *args, const struct search *s,
		       const struct fault *f)
{
	memset(args, 0, sizeof(*args));
	for (int i = 0; i < KVT_FAULT_ARGS && f->says.arg[i].name; i++) {
		struct kvt_range range = f->range(&s->c, i);

		if (range.begin >= range.end)
			return false;
		args->n[i] = range.begin;
	}
	return true;
}

static void try_args(struct kvt_hypothesis *out, const struct search *s,
		     const struct fault *f)
{
	struct kvt_hypothesis h = { .fault = &f->says };

	out->verdict = KVT_REFUTED;
	if (!first_args(&h.args, s, f))
		return;
	do {
		if (f->valid && !f->valid(&s->c, &h.args))
			continue;
		if (check_args(&h, s, f) && !out->nargs++) {
			*out = h;
			out->verdict = KVT_EXPLAINS;
			out->nargs = 1;
		}
	} while (next_args(&h.args, s, f));
	out->tried = h.tried;
}

static void test_fault(struct kvt_hypothesis *out, struct search *s,
		       const struct fault *f)
{
	*out = (struct kvt_hypothesis){ .fault = &f->says };
	if (!f->applies(&s->c))
		return;
	if (f->explains)
		f->explains(out, &s->c);
	else
		try_args(out, s, f);
	if (out->verdict != KVT_EXPLAINS)
		out->explained = out->unknown = out->matched = 0;
}

/* ---- the whole ---------------------------------------------------------- */

static int64_t round_up(int64_t n)
{
	return (n + 7) & ~(int64_t)7;
}

enum kvt_status kvt_diagnose_scratch(int64_t *out, const struct kvt_window *w,
				     struct kvt_error *err)
{
	const int64_t *n = w->shape.n;
	enum kvt_status status = kvt_fault_check_window(w, err);

	if (status)
		return status;
	*out = n[KVT_AXIS_L] * n[KVT_AXIS_K] * (int64_t)sizeof(struct fault_span) +
	       round_up(n[KVT_AXIS_L] * n[KVT_AXIS_B]) +
	       round_up(n[KVT_AXIS_S] * n[KVT_AXIS_H] * n[KVT_AXIS_K]);
	return KVT_OK;
}

/* Which pages differ, and where memory does first. */
static void mark_pages(struct search *s)
{
	const struct kvt_window *w = s->c.window;
	int64_t at[KVT_NAXES] = { 0 };

	memset(s->page_differs, 0, (size_t)(w->shape.n[KVT_AXIS_L] *
					    w->shape.n[KVT_AXIS_B]));
	do {
		int64_t i = kvt_fault_offset(w, at), offset;

		if (!kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]) ||
		    kvt_fault_same(w, s->c.expected + i, s->c.suspect + i))
			continue;
		s->page_differs[at[KVT_AXIS_L] * w->shape.n[KVT_AXIS_B] +
				at[KVT_AXIS_B]] = 1;
		offset = s->c.has_memory ? kvt_views_at(&s->c.memory, at) : 0;
		if (s->c.tail < 0 || offset < s->c.tail)
			s->c.tail = offset;
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_L, KVT_AXIS_D));
}

static struct search start(const struct kvt_window *w, const void *expected,
			   const void *suspect, void *scratch)
{
	const int64_t *n = w->shape.n;
	uint8_t *free_bytes;
	struct search s;

	kvt_fault_case_init(&s.c, w, expected, suspect);
	s.c.span = scratch;
	free_bytes = (uint8_t *)(s.c.span + n[KVT_AXIS_L] * n[KVT_AXIS_K]);
	s.page_differs = free_bytes;
	s.part_differs = free_bytes + round_up(n[KVT_AXIS_L] * n[KVT_AXIS_B]);
	return s;
}

enum kvt_status kvt_diagnose(struct kvt_diagnosis *out, const struct kvt_window *w,
			     const void *expected, const void *suspect, void *scratch,
			     struct kvt_error *err)
{
	const struct fault *f;
	struct search s;
	enum kvt_status status = kvt_fault_check_window(w, err);

	if (status)
		return status;
	memset(out, 0, sizeof(*out));
	kvt_window_compare(&out->difference, w, expected, suspect);
	if (!out->difference.count)
		return KVT_OK;
	s = start(w, expected, suspect, scratch);
	memcpy(s.c.seed, out->difference.first, sizeof(s.c.seed));
	mark_pages(&s);
	for (; (f = kvt_fault_row(out->nhypotheses)); out->nhypotheses++) {
		struct kvt_hypothesis *h = &out->hypothesis[out->nhypotheses];

		test_fault(h, &s, f);
		if (h->verdict == KVT_EXPLAINS && !out->nexplain++)
			out->decided = h;
	}
	if (out->nexplain != 1)
		out->decided = NULL;
	return KVT_OK;
}
