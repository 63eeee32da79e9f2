/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whose_judge.c - what the rows that repeat say of the order of a file
 *
 * An order is claimed where parts with repeats are just those that it has the first
 * layer in, and where chance would do that less than once in LEAST_ODDS; of the orders
 * of slots and heads the one in which rows repeat in whole tokens.
 */
#include "formats/vllm/whose_impl.h"

#include <math.h>
#include <stdlib.h>

enum {
	LEAST_LEFT = 2,			/* tokens that speak against an order */
	MANY = 10,			/* files, of which one may be foreign */
};
#define LEAST_ODDS 50.0

const struct whose_page kvt_whose_pages[WHOSE_PAGES] = {
	{ "NHK", KVT_WHOSE_NHD }, { "KNH", KVT_WHOSE_NHD }, { "NKH", KVT_WHOSE_NHD },
	{ "HNK", KVT_WHOSE_HND }, { "KHN", KVT_WHOSE_HND }, { "HKN", KVT_WHOSE_HND },
};

const struct kvt_whose_order *kvt_whose_order_at(const struct kvt_whose *w, int i)
{
	return i >= 0 && i < w->norders ? &w->order[i] : NULL;
}

/* ---- chance ---------------------------------------------------------------- */

static double log_choose(int64_t n, int64_t k)
{
	double sum = 0;

	for (int64_t i = 0; i < k; i++)
		sum += log((double)(n - i) / (double)(k - i));
	return sum;
}

static bool is_within(const struct kvt_whose *w, const uint64_t *a, const uint64_t *b)
{
	for (int64_t i = 0; i < w->words; i++)
		if (a[i] & ~b[i])
			return false;
	return true;
}

/* Parts in pairs, of each head of a page one: how many have a bit. */
static int64_t count_pairs(const struct kvt_whose *w, const uint64_t *bits)
{
	const uint64_t even = UINT64_C(0x5555555555555555);
	int64_t n = 0;

	for (int64_t i = 0; i < w->words; i++)
		n += __builtin_popcountll((bits[i] | bits[i] >> 1) & even);
	return n;
}

/* That parts in random order have all of a block's marks in one of the orders. */
static double odds_of(const struct kvt_whose *w, const uint64_t *set)
{
	return exp(log_choose(w->shape.layers * w->shape.heads,
			      count_pairs(w, set) / w->shape.blocks)) / w->norders;
}

/* Are they all within, and so many that it is no less likely than a whole block? */
static bool fits(const struct kvt_whose *w, const uint64_t *marks, const uint64_t *set)
{
	int64_t n = count_pairs(w, marks), size = count_pairs(w, set);

	return is_within(w, marks, set) && odds_of(w, set) >= LEAST_ODDS &&
	       log_choose(w->parts / 2, n) - log_choose(size, n) + 1e-9 >=
	       log_choose(w->shape.layers * w->shape.heads, size / w->shape.blocks);
}

/* ---- tokens ---------------------------------------------------------------- */

/*
 * Rows that repeat, but not in tokens that repeat whole: none in the right order, but
 * for those that were rounded otherwise.  In a wrong one, a token's rows are of several.
 * Keys of the first layer repeat where files of two orders have a token at one position.
 */
static int64_t left_over(const struct kvt_whose *w, const struct counts *count, int order,
			 enum kvt_whose_page page)
{
	int64_t least = INT64_MAX;

	for (int p = 0; p < WHOSE_PAGES; p++) {
		int i = order * WHOSE_PAGES + p;
		int64_t left = (int64_t)count->again - count->keys[i] -
			       count->tokens[i] * w->shape.heads;

		if (page && kvt_whose_pages[p].page != page)
			continue;
		if (count->tokens[i] && left < least)
			least = left;
	}
	return least < INT64_MAX ? least : count->again;
}

/* Of two numbers of rows left over, is the first one clearly less? */
static bool is_less(const struct kvt_whose *w, const struct counts *count, int64_t a,
		    int64_t b)
{
	return a * 10 <= count->again && b >= LEAST_LEFT * w->shape.heads && b >= 4 * a;
}

/* ---- a file ---------------------------------------------------------------- */

/*
 * The one order whose first layer has all the marks; of several, for some have the same
 * parts, the one in which tokens repeat whole.
 */
static int claim(const struct kvt_whose *w, const struct counts *count)
{
	int64_t best = 0, second = INT64_MAX;
	int found = -1;

	for (int o = 0; o < w->norders; o++) {
		int64_t left = left_over(w, count, o, KVT_WHOSE_UNKNOWN);

		if (!is_within(w, count->marks, w->order[o].parts))
			continue;
		if (found < 0 || left < best) {
			second = found < 0 ? second : best;
			best = left;
			found = o;
		} else if (left < second) {
			second = left;
		}
	}
	if (found < 0 || (second < INT64_MAX && !is_less(w, count, best, second)))
		return -1;
	return fits(w, count->marks, w->order[found].parts) ||
	       fits(w, count->marks, w->order[found].halves) ? found : -1;
}

double kvt_whose_odds(const struct kvt_whose *w, int order)
{
	const struct kvt_whose_order *o = &w->order[order];

	return odds_of(w, is_within(w, w->every, o->halves) ? o->halves : o->parts);
}

/* In the wrong order only some rows of what is taken for a token repeat. */
static enum kvt_whose_page page_of(const struct kvt_whose *w, int order,
				   const struct counts *count)
{
	const struct kvt_whose_order *o = kvt_whose_order_at(w, order);
	int64_t nhd, hnd;

	/* with one head a page there is nothing to tell apart */
	if (!o || page_heads(&w->shape, o->family, o->ranks) == 1)
		return KVT_WHOSE_UNKNOWN;
	nhd = left_over(w, count, order, KVT_WHOSE_NHD);
	hnd = left_over(w, count, order, KVT_WHOSE_HND);
	return is_less(w, count, nhd, hnd) ? KVT_WHOSE_NHD :
	       is_less(w, count, hnd, nhd) ? KVT_WHOSE_HND : KVT_WHOSE_UNKNOWN;
}

enum kvt_whose_page kvt_whose_page(const struct kvt_whose *w, int64_t file, int order)
{
	return file < w->kept ? page_of(w, order, &w->count[file]) : KVT_WHOSE_UNKNOWN;
}

struct kvt_whose_answer kvt_whose_judge(const struct kvt_whose *w,
					const struct counts *count)
{
	int order = claim(w, count);

	return (struct kvt_whose_answer){ order, page_of(w, order, count) };
}

uint64_t kvt_whose_fitting(const struct kvt_whose *w, const struct counts *count)
{
	uint64_t out = 0;

	for (int o = 0; o < w->norders; o++)
		out |= (uint64_t)is_within(w, count->marks, w->order[o].parts) << o;
	return out;
}

uint64_t kvt_whose_fits(const struct kvt_whose *w, int64_t file)
{
	return file < w->kept ? kvt_whose_fitting(w, &w->count[file]) :
				w->fits[file - w->kept];
}

/* Nearly all files have half of their tokens in others, and this one has none. */
bool kvt_whose_strange(const struct kvt_whose *w, const struct counts *count)
{
	int64_t half = w->shape.blocks * w->shape.slots * w->shape.heads / 2;
	int64_t many = 0, n = w->nfiles < w->kept ? w->nfiles : w->kept;

	for (int64_t i = 0; i < n; i++)
		many += w->count[i].others >= half;
	return !count->others && n >= MANY && many * 10 >= n * 9;
}

struct kvt_whose_answer kvt_whose_file(const struct kvt_whose *w, int64_t file)
{
	return file < w->kept ? kvt_whose_judge(w, &w->count[file]) :
				w->answer[file - w->kept];
}

bool kvt_whose_is_foreign(const struct kvt_whose *w, int64_t file)
{
	return file < w->kept ? kvt_whose_strange(w, &w->count[file]) :
				w->foreign[file - w->kept];
}

struct kvt_whose_answer kvt_whose_all(const struct kvt_whose *w)
{
	struct counts all = { .marks = w->every };
	struct kvt_whose_answer out = { -1, KVT_WHOSE_UNKNOWN };

	all.tokens = calloc((size_t)(w->norders * WHOSE_PAGES), sizeof(*all.tokens));
	all.keys = calloc((size_t)(w->norders * WHOSE_PAGES), sizeof(*all.keys));
	for (int64_t f = 0; all.tokens && all.keys && f < w->nfiles && f < w->kept; f++) {
		all.again += w->count[f].again;
		for (int64_t i = 0; i < w->words; i++)
			w->every[i] |= w->count[f].marks[i];
		for (int i = 0; i < w->norders * WHOSE_PAGES; i++)
			all.tokens[i] += w->count[f].tokens[i];
		for (int i = 0; i < w->norders * WHOSE_PAGES; i++)
			all.keys[i] += w->count[f].keys[i];
	}
	if (all.tokens && all.keys)
		out = kvt_whose_judge(w, &all);
	free(all.tokens);
	free(all.keys);
	return out;
}
