/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - does this fault, with some arguments, explain what differs?
 *
 * A fault hits or spares parts: pages, rows of a slot, ... (struct fault).  A
 * part that differs anywhere must be what the fault predicts everywhere; one
 * element that is not refutes it.  So all but one hypothesis end early.  A partial
 * search leaves such a part to other faults, and tries only what explains some of a
 * few rows that differ.
 */
#include <string.h>

#include "lib/fault/search.h"

/* ---- one hypothesis with its arguments ---------------------------------- */

enum { DIFFERS = 1, SPOILT };		/* of a part */

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

/* Rows of flagged parts; in a partial search a wrong one spoils its part. */
static bool check_rows(struct kvt_hypothesis *h, const struct search *s,
		       const struct fault *f, int64_t at[KVT_NAXES], bool *spoilt)
{
	const struct kvt_window *w = s->c.window;

	*spoilt = false;
	do {
		uint8_t *flag = part_of(s, f, at);

		if (*flag != DIFFERS ||
		    !kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]) ||
		    check_row(h, s, f, at))
			continue;
		if (!s->partial)
			return false;
		at[KVT_AXIS_D] = 0;
		*flag = SPOILT;
		*spoilt = true;
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_S, KVT_AXIS_K));
	return true;
}

/* What differs in parts that are as predicted. */
static void strike(const struct search *s, const struct fault *f, int64_t at[KVT_NAXES])
{
	const struct kvt_window *w = s->c.window;

	do {
		int64_t row = kvt_fault_offset(w, at);

		if (*part_of(s, f, at) != DIFFERS ||
		    !kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]) ||
		    !memcmp(s->c.expected + row, s->c.suspect + row, (size_t)s->c.cell))
			continue;
		s->layer[at[KVT_AXIS_L]] = s->block[at[KVT_AXIS_B]] = 1;
		s->head[s->head_begin + at[KVT_AXIS_H]] = s->kv[at[KVT_AXIS_K]] = 1;
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_S, KVT_AXIS_K));
}

static bool check_page(struct kvt_hypothesis *h, const struct search *s,
		       const struct fault *f, int64_t at[KVT_NAXES])
{
	const struct kvt_hypothesis before = *h;
	bool spoilt;

	mark_parts(s, f, at);
	if (!check_rows(h, s, f, at, &spoilt))
		return false;
	while (spoilt) {			/* once more, for the counts */
		*h = before;
		check_rows(h, s, f, at, &spoilt);
	}
	if (s->striking)
		strike(s, f, at);
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

/* For a partial search: does it explain some of a few rows? */
static bool survives_rows(const struct search *s, const struct fault *f,
			  const struct kvt_fault_args *args)
{
	int found = 0;

	for (int i = 0; i < s->nseeds; i++) {
		struct kvt_hypothesis h = { .args = *args };
		int64_t at[KVT_NAXES];

		memcpy(at, s->seed[i], sizeof(at));
		found += check_row(&h, s, f, at) && h.explained;
	}
	return found > s->nseeds / 8;
}

/* What nobody can check must not carry the verdict. */
static bool is_guess(const struct kvt_hypothesis *h, const struct search *s)
{
	return h->unknown > s->ndiffer - h->unknown;
}

/* What of a block is known beforehand to come from outside, all or nothing. */
static int64_t missed_in(const struct search *s, const struct fault *f,
			 const struct kvt_fault_args *args, int64_t block)
{
	const struct kvt_shape *shape = &s->c.window->shape;
	int64_t n = 0;

	if (s->partial || !f->misses || !f->misses(&s->c, args, block))
		return 0;
	for (int64_t l = 0; l < shape->n[KVT_AXIS_L]; l++)
		n += s->page_differs[l * shape->n[KVT_AXIS_B] + block];
	return n;
}

/* Of pages that are hit as a whole the first and the last row refute most arguments. */
static bool survives_ends(const struct search *s, const struct fault *f,
			  const struct kvt_fault_args *args)
{
	const struct kvt_window *w = s->c.window;
	const int64_t *n = w->shape.n;
	struct kvt_hypothesis h = { .args = *args };

	for (int64_t i = 0; i < n[KVT_AXIS_L] * n[KVT_AXIS_B]; i++) {
		int64_t l = i / n[KVT_AXIS_B], b = i % n[KVT_AXIS_B];
		int64_t first[KVT_NAXES] = { l, b };
		int64_t last[KVT_NAXES] = { l, b, n[KVT_AXIS_S] - 1, n[KVT_AXIS_H] - 1,
					    n[KVT_AXIS_K] - 1 };

		if (s->page_differs[i] &&
		    ((kvt_fault_is_live(w, b, 0) && !check_row(&h, s, f, first)) ||
		     (kvt_fault_is_live(w, b, last[KVT_AXIS_S]) &&
		      !check_row(&h, s, f, last))))
			return false;
	}
	return true;
}

bool kvt_fault_check_args(struct kvt_hypothesis *h, const struct search *s,
			  const struct fault *f)
{
	const struct kvt_shape *shape = &s->c.window->shape;
	int64_t at[KVT_NAXES] = { 0 }, missed = 0;

	h->tried++;
	h->explained = h->unknown = h->matched = 0;
	if (s->partial ? !survives_rows(s, f, &h->args) : !survives_seed(h, s, f))
		return false;
	for (int64_t b = 0; f->misses && b < shape->n[KVT_AXIS_B]; b++)
		missed += missed_in(s, f, &h->args, b);
	if (missed > s->ndiffer - missed ||
	    (!s->partial && !f->part && !survives_ends(s, f, &h->args)))
		return false;
	do {
		bool differs = s->page_differs[at[KVT_AXIS_L] * shape->n[KVT_AXIS_B] +
					       at[KVT_AXIS_B]] > 0;

		if ((differs || (f->part & ALL_AT_ONCE)) &&
		    (!check_page(h, s, f, at) || is_guess(h, s)))
			return false;
	} while (kvt_fault_next(at, shape, KVT_AXIS_L, KVT_AXIS_B));
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
	int nargs = 0;

	out->verdict = KVT_REFUTED;
	if (!first_args(&h.args, s, f))
		return;
	do {
		if ((f->valid && !f->valid(&s->c, &h.args)) ||
		    !kvt_fault_check_args(&h, s, f))
			continue;
		if (!nargs++ || (s->partial && h.explained > out->explained)) {
			*out = h;
			out->verdict = s->partial ? KVT_EXPLAINS_PART : KVT_EXPLAINS;
		}
	} while (next_args(&h.args, s, f));
	out->nargs = nargs;
	out->tried = h.tried;
}

/* What a page that differs says of a factor, held against the others. */
static void try_factors(struct kvt_hypothesis *out, const struct search *s,
			const struct fault *f)
{
	const struct kvt_window *w = s->c.window;

	out->verdict = KVT_REFUTED;
	for (int i = 0; i < s->nseeds; i++) {
		const int64_t at[KVT_NAXES] = { s->seed[i][KVT_AXIS_L],
						s->seed[i][KVT_AXIS_B] };
		int64_t offset = kvt_fault_offset(w, at);
		struct kvt_hypothesis h = { .fault = &f->says };
		struct kvt_window page = *w;
		struct fault_case c;

		page.array = w->array ? w->array : &w->shape;
		page.shape.n[KVT_AXIS_L] = page.shape.n[KVT_AXIS_B] = 1;
		page.use = w->use ? w->use + at[KVT_AXIS_B] * s->c.slots : NULL;
		page.layout = NULL;
		kvt_fault_case_init(&c, &page, s->c.expected + offset,
				    s->c.suspect + offset);
		c.span = s->c.span;
		f->explains(&h, &c);
		if (h.verdict != KVT_EXPLAINS || !kvt_fault_check_args(&h, s, f) ||
		    h.explained <= out->explained)
			continue;
		*out = h;
		out->verdict = KVT_EXPLAINS_PART;
	}
}

void kvt_fault_test(struct kvt_hypothesis *out, struct search *s, const struct fault *f)
{
	*out = (struct kvt_hypothesis){ .fault = &f->says };
	if (!f->applies(&s->c) || (s->partial && f->part & ALL_AT_ONCE))
		return;
	if (f->explains && !s->partial)
		f->explains(out, &s->c);
	else if (f->explains && f->says.has_factor)
		try_factors(out, s, f);
	else if (f->explains)
		out->verdict = KVT_REFUTED;
	else
		try_args(out, s, f);
	if (out->verdict < KVT_EXPLAINS)
		out->explained = out->unknown = out->matched = 0;
}
