/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - which layer, block or head of the expected cache lies where in the suspect?
 *
 * Along one axis, in a slice across the others that differs: each index of the suspect
 * that is not what it should be is looked up in the expected cache.  Blocks are many,
 * so they are joined by a hash of their first row.  A few slices are tried, for another
 * fault may have spoilt one.  What comes out is a proposal, which the rows of moves.c
 * turn into a fault, and the diagnosis checks in all of the window.
 */
#include <string.h>

#include "lib/fault/search.h"

enum { SLICES = 6, MOST_ALIKE = 64, MOST_SCANNED = 1 << 24 };

/* A slice, and what is looked for in it. */
struct join {
	const struct search *s;
	enum kvt_axis axis;
	int64_t at[KVT_NAXES];		/* of the slice; the axis is 0 */
};

/* ---- are two the same --------------------------------------------------- */

static bool is_seen(const struct kvt_window *w, int64_t block, int64_t slot)
{
	return !w->use || w->use[block * w->shape.n[KVT_AXIS_S] + slot] != KVT_UNSEEN;
}

static bool same_row(const struct kvt_window *w, const uint8_t *a, const uint8_t *b)
{
	const int64_t elem = w->shape.elem, nbytes = w->shape.n[KVT_AXIS_D] * elem;

	if (!memcmp(a, b, (size_t)nbytes))
		return true;
	if (w->atol <= 0 && w->rtol <= 0)
		return false;
	for (int64_t i = 0; i < nbytes; i += elem)
		if (!kvt_fault_same(w, a + i, b + i))
			return false;
	return true;
}

/* Is number 'to' of the suspect what number 'from' was, where both are known? */
static bool is_like(const struct join *j, int64_t to, int64_t from)
{
	const struct fault_case *c = &j->s->c;
	const struct kvt_window *w = c->window;
	struct kvt_shape shape = w->shape;
	int64_t a[KVT_NAXES], b[KVT_NAXES], compared = 0;

	if (j->axis == KVT_AXIS_H)
		shape.n[KVT_AXIS_H] = 1;
	shape.n[KVT_AXIS_K] = c->kv_end - c->kv_begin;
	memcpy(b, j->at, sizeof(b));
	do {
		int64_t row[KVT_NAXES];

		memcpy(row, b, sizeof(row));
		row[KVT_AXIS_K] += c->kv_begin;
		memcpy(a, row, sizeof(a));
		a[j->axis] = from;
		row[j->axis] = to;
		if (!kvt_fault_is_live(w, row[KVT_AXIS_B], row[KVT_AXIS_S]) ||
		    !is_seen(w, a[KVT_AXIS_B], a[KVT_AXIS_S]))
			continue;
		compared++;
		if (!same_row(w, c->expected + kvt_fault_offset(w, a),
			      c->suspect + kvt_fault_offset(w, row)))
			return false;
	} while (kvt_fault_next(b, &shape, KVT_AXIS_S, KVT_AXIS_K));
	return compared > 0;
}

/* Nobody can tell from where zeros come. */
static bool is_zero(const struct join *j, int64_t from)
{
	const struct fault_case *c = &j->s->c;
	struct kvt_shape shape = c->window->shape;
	int64_t at[KVT_NAXES];

	memcpy(at, j->at, sizeof(at));
	at[j->axis] = from;
	if (j->axis == KVT_AXIS_H)
		shape.n[KVT_AXIS_H] = from + 1;
	do {
		const uint8_t *row = c->expected + kvt_fault_offset(c->window, at);

		for (int64_t i = 0; i < c->cell; i++)
			if (row[i])
				return false;
		if (j->axis == KVT_AXIS_H)	/* of this head alone */
			at[KVT_AXIS_H] = from;
	} while (kvt_fault_next(at, &shape, KVT_AXIS_S, KVT_AXIS_K));
	return true;
}

/* ---- who is like this one ----------------------------------------------- */

static uint64_t hash(const uint8_t *bytes, int64_t n)
{
	uint64_t h = 0x9e3779b97f4a7c15u;

	for (int64_t i = 0; i < n; i++)
		h = (h ^ bytes[i]) * 0x100000001b3u;
	return h ^ h >> 29;
}

static int64_t *bucket(const struct join *j, const uint8_t *side, int64_t block)
{
	const struct fault_case *c = &j->s->c;
	int64_t at[KVT_NAXES];

	memcpy(at, j->at, sizeof(at));
	at[KVT_AXIS_B] = block;
	at[KVT_AXIS_K] = c->kv_begin;
	return &j->s->bucket[hash(side + kvt_fault_offset(c->window, at), c->cell) &
			     (uint64_t)(j->s->nbuckets - 1)];
}

static bool is_exact(const struct kvt_window *w)
{
	return w->atol <= 0 && w->rtol <= 0;
}

/* The expected blocks by their first row, the lowest first. */
static void fill_buckets(const struct join *j)
{
	const struct search *s = j->s;

	for (int64_t i = 0; i < s->nbuckets; i++)
		s->bucket[i] = -1;
	for (int64_t b = s->c.window->shape.n[KVT_AXIS_B] - 1; b >= 0; b--) {
		int64_t *head;

		if (!is_seen(s->c.window, b, 0))
			continue;
		head = bucket(j, s->c.expected, b);
		s->chain[b] = *head;
		*head = b;
	}
}

/* If several are alike, the one that has this one's content in exchange. */
static int64_t find(const struct join *j, int64_t to)
{
	const struct search *s = j->s;
	bool hashed = j->axis == KVT_AXIS_B && is_exact(s->c.window);
	int64_t n = s->c.window->shape.n[j->axis], found = -1, tries = 0;
	int64_t i = hashed ? *bucket(j, s->c.suspect, to) : 0;

	for (; i >= 0 && i < n; i = hashed ? s->chain[i] : i + 1) {
		if (hashed && ++tries > MOST_ALIKE)
			break;
		if (i == to || !is_like(j, to, i) || is_zero(j, i))
			continue;
		if (is_like(j, i, to))
			return i;
		found = found < 0 ? i : found;
	}
	return found;
}

/* ---- all along the axis ------------------------------------------------- */

static bool has_live(const struct join *j, int64_t to)
{
	const struct kvt_window *w = j->s->c.window;
	int64_t block = j->axis == KVT_AXIS_B ? to : j->at[KVT_AXIS_B];

	for (int64_t s = 0; s < w->shape.n[KVT_AXIS_S]; s++)
		if (kvt_fault_is_live(w, block, s))
			return true;
	return false;
}

/* How many of those that differ were found, less those that were not. */
static int64_t join_slice(const struct join *j, int64_t *from)
{
	int64_t n = j->s->c.window->shape.n[j->axis], score = 0;

	if (j->axis == KVT_AXIS_B)
		fill_buckets(j);
	for (int64_t i = 0; i < n; i++) {
		from[i] = i;
		if (!has_live(j, i) || is_like(j, i, i))
			continue;
		from[i] = find(j, i);
		score += from[i] < 0 ? -1 : 1;
	}
	return score;
}

/* Slices that differ: blocks of a layer, layers of a block, heads of a page. */
static bool next_slice(struct join *j, int64_t *page, int64_t step)
{
	const struct search *s = j->s;
	const int64_t *n = s->c.window->shape.n;
	int64_t npages = n[KVT_AXIS_L] * n[KVT_AXIS_B];

	for (*page += step; *page < npages; ++*page) {
		int64_t b = *page % n[KVT_AXIS_B], l = *page / n[KVT_AXIS_B];

		if (!s->page_differs[*page])
			continue;
		memset(j->at, 0, sizeof(j->at));
		if (j->axis != KVT_AXIS_L)
			j->at[KVT_AXIS_L] = l;
		if (j->axis != KVT_AXIS_B)
			j->at[KVT_AXIS_B] = b;
		return true;
	}
	return false;
}

/* How often each came out; another fault may have spoilt one, but not most of them. */
struct slices {
	int n, count[SLICES], best;
	int64_t page[SLICES], score[SLICES];
	uint64_t hash[SLICES];
};

static void add_slice(struct slices *all, int64_t page, int64_t score, uint64_t h)
{
	int i = 0;

	while (i < all->n && all->hash[i] != h)
		i++;
	if (i == all->n) {
		all->page[i] = page;
		all->hash[i] = h;
		all->score[i] = score;
		all->count[i] = 0;
		all->n++;
	}
	all->count[i]++;
	if (all->count[i] > all->count[all->best] ||
	    (all->count[i] == all->count[all->best] &&
	     all->score[i] > all->score[all->best]))
		all->best = i;
}

void kvt_fault_join(struct search *s, enum kvt_axis axis)
{
	const struct kvt_window *w = s->c.window;
	struct join j = { .s = s, .axis = axis };
	struct fault_map *map = &s->c.map[axis];
	struct slices all = { .n = 0 };
	int64_t n = w->shape.n[axis], page = -1;
	int64_t step = 1 + w->shape.n[KVT_AXIS_L] * w->shape.n[KVT_AXIS_B] / SLICES;

	map->moves = MOVES_NOTHING;
	map->count = 0;
	if (n < 2 || (axis == KVT_AXIS_B && !is_exact(w) && n * n > MOST_SCANNED))
		return;
	for (int i = 0; i < SLICES && next_slice(&j, &page, i ? step : 1); i++) {
		int64_t score = join_slice(&j, map->from);

		add_slice(&all, page, score, hash((const uint8_t *)map->from,
						  n * (int64_t)sizeof(*map->from)));
	}
	if (!all.n)
		return;
	page = all.page[all.best] - 1;
	next_slice(&j, &page, 1);
	join_slice(&j, map->from);
	kvt_fault_name_moves(&s->c, axis, s->other_map);
}
