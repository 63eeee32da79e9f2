/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank.c - all layouts that fit, in the order in which the data has them
 *
 * First the element type; then every preset that the dump opens with is measured on
 * the same sample.  Layouts that put the same bytes in the same places are one
 * candidate.  The winner has the most gain; of those with the same channels under
 * other names, which have the same gain but for rounding, the most kinship.  The
 * confidence is the least of what speaks against doubting it: gain over the needed
 * one, the lead over each other candidate, the lead of the type.
 *
 * If the answer stands, orders of axes that have no name are tried on a smaller
 * sample: when one of them beats the winner, the right layout has no name,
 * and there is no answer.  Nor is there one where pages lie in another order than the
 * winner has them, which pages.c finds.
 *
 * Cost: a sample is read for each of some 20 presets and up to 60 orders.
 */
#include "lib/ops/guess/impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what fits ---------------------------------------------------------- */

static bool same_bytes(const struct kvt_guess_candidate *a,
		       const struct kvt_guess_candidate *b)
{
	struct kvt_plans plans;

	if (memcmp(a->group.shape.n, b->group.shape.n, sizeof(a->group.shape.n)) ||
	    kvt_plans_init(&plans, &a->views, &b->views, NULL))
		return false;
	for (int i = 0; i < plans.count; i++)
		if (plans.plan[i].nloops ||
		    plans.plan[i].src_offset != plans.plan[i].dst_offset)
			return false;
	return true;
}

/* Is this layout a candidate, or does it put the bytes where one of them does? */
static void find_same(const struct kvt_guess *g, struct kvt_guess_candidate *c)
{
	for (int i = 0; i < g->ncandidates && c->same < 0; i++)
		if (g->candidate[i].same < 0 && same_bytes(&g->candidate[i], c))
			c->same = i;
}

static bool is_listed(const struct kvt_guess *g, const struct kvt_layout *layout)
{
	for (int i = 0; i < g->ncandidates; i++)
		if (kvt_layout_equal(&g->candidate[i].layout, layout))
			return true;
	return false;
}

/* One opaque vector a slot: layouts of keys and values have nothing to add. */
static bool is_latent(const struct kvt_guess_candidate *c)
{
	const int64_t *n = c->group.shape.n;

	return n[KVT_AXIS_K] == 1 && n[KVT_AXIS_H] == 1;
}

/*
 * Are the sizes known apart from the axes of the array, by options or as pages that are
 * packed fit, or the same in all that has them?  Where each layout has its own, their
 * measures do not compare.
 */
static bool sizes_are_said(const struct kvt_guess *g, const struct kvt_hints *h)
{
	const int64_t *first = g->candidate->group.shape.n;
	bool said = h->block_size && (h->spec || (h->heads && h->head_dim &&
						  (h->layers || h->blocks)));
	bool alike = true;

	for (int i = 0; i < g->ncandidates; i++) {
		const struct kvt_guess_candidate *c = &g->candidate[i];

		said |= c->layout.nplanes == 2;
		alike &= !memcmp(c->group.shape.n, first, sizeof(c->group.shape.n));
	}
	return (said && alike) ||
	       (h->content && h->block_size && (h->layers || h->blocks));
}

static enum kvt_status add_candidate(struct kvt_guess *g, struct guess_sample *s,
				     const struct kvt_preset *preset,
				     struct kvt_error *err)
{
	struct kvt_guess_candidate *c = &g->candidate[g->ncandidates];
	struct kvt_layout layout;
	struct kvt_dump *dump;
	enum kvt_status status;

	if (g->ncandidates == KVT_GUESS_CANDIDATES ||
	    kvt_layout_parse(&layout, preset->axes, NULL) || is_listed(g, &layout))
		return KVT_OK;
	status = kvt_guess_open(&dump, c, s, preset->axes, err);
	if (status)
		return status == KVT_SYSTEM ? status : KVT_OK;
	/* a file may have one order under several names, or in its strides */
	if ((!preset->latent && is_latent(c)) || is_listed(g, &c->layout)) {
		kvt_dump_close(dump);
		return KVT_OK;
	}
	find_same(g, c);
	if (c->same < 0)
		status = kvt_guess_read(c, s, dump, err);
	kvt_dump_close(dump);
	if (!status)
		g->ncandidates++;
	return status;
}

/* ---- the layout --------------------------------------------------------- */

static int by_gain(const void *a, const void *b)
{
	const struct kvt_guess_candidate *x = a, *y = b;

	if ((x->same < 0) != (y->same < 0))
		return x->same < 0 ? -1 : 1;
	return (x->is.gain < y->is.gain) - (x->is.gain > y->is.gain);
}

/* 'same' counts candidates, which are about to move. */
static void sort_candidates(struct kvt_guess *g)
{
	struct kvt_layout of[KVT_GUESS_CANDIDATES];

	for (int i = 0; i < g->ncandidates; i++)
		if (g->candidate[i].same >= 0)
			of[i] = g->candidate[g->candidate[i].same].layout;
	for (int i = 0, n = g->ncandidates; i < n; i++)
		g->candidate[i].evidence = i;
	qsort(g->candidate, (size_t)g->ncandidates, sizeof(*g->candidate), by_gain);
	for (int i = 0; i < g->ncandidates; i++) {
		struct kvt_guess_candidate *c = &g->candidate[i];

		for (int j = 0; c->same >= 0 && j < g->ncandidates; j++)
			if (g->candidate[j].same < 0 &&
			    kvt_layout_equal(&g->candidate[j].layout,
					     &of[(int)c->evidence])) {
				c->same = j;
				break;
			}
		c->evidence = 0;
	}
}

/* Of those with the same channels, the one whose heads are most akin. */
static void choose_winner(struct kvt_guess *g)
{
	struct kvt_guess_candidate *c = g->candidate, best;
	int winner = 0;

	for (int i = 1; i < g->ncandidates && c[i].same < 0; i++)
		if (kvt_guess_same_channels(&c[0].is, &c[i].is) &&
		    c[i].is.kinship > c[winner].is.kinship)
			winner = i;
	best = c[winner];
	memmove(c + 1, c, (size_t)winner * sizeof(*c));
	c[0] = best;
	for (int i = 0; i < g->ncandidates; i++) {
		if (c[i].same == winner)
			c[i].same = 0;
		else if (c[i].same >= 0 && c[i].same < winner)
			c[i].same++;
	}
}

static void judge_layouts(struct kvt_guess *g, const struct kvt_hints *h)
{
	struct kvt_guess_candidate *c = g->candidate;
	double needed;

	sort_candidates(g);
	needed = kvt_guess_gain_needed(&c[0].is);
	choose_winner(g);
	/* data that no layout makes any order in speaks for none */
	g->confidence = fmin(g->confidence, fmax(c[0].is.gain, 0) / needed);
	for (int i = 1; i < g->ncandidates && c[i].same < 0; i++) {
		c[i].evidence = kvt_guess_evidence(&c[0].is, &c[i].is, needed);
		g->confidence = fmin(g->confidence, c[i].evidence);
	}
	if (c[0].is.live_blocks < GUESS_LEAST_BLOCKS) {
		g->confidence = 0;
		kvt_guess_doubt(g, "fewer than 4 blocks of the sample have data");
	}
	if (!sizes_are_said(g, h)) {
		g->confidence = 0;
		g->needs_sizes = true;
		kvt_guess_doubt(g,
				"its axes can be read in several ways; give --layers, --block-size, --heads and --head-dim (or --content-size)");
	}
	if (g->confidence < 1)
		kvt_guess_doubt(g,
				"the data does not distinguish the first of these layouts from the next");
}

/* ---- orders without a name ---------------------------------------------- */

/* Read for each order that has no name, unless blocks are larger. */
enum { BEYOND_NBYTES = 1 << 19, BEYOND_BLOCKS = 8 };

static enum kvt_status measure_order(struct kvt_guess_candidate *c,
				     struct guess_sample *s,
				     const char *order, struct kvt_error *err)
{
	struct kvt_dump *dump;
	enum kvt_status status = kvt_guess_open(&dump, c, s, order, err);

	if (status)
		return status;
	status = kvt_guess_read(c, s, dump, err);
	kvt_dump_close(dump);
	return status;
}

static void exchange(char *a, char *b)
{
	char t = *a;

	*a = *b;
	*b = t;
}

/* The next order of letters by the alphabet; false after the last. */
static bool next_order(char *letters, int n)
{
	int i = n - 2, j = n - 1;

	while (i >= 0 && letters[i] >= letters[i + 1])
		i--;
	if (i < 0)
		return false;
	while (letters[j] <= letters[i])
		j--;
	exchange(letters + i, letters + j);
	for (i++, j = n - 1; i < j; i++, j--)
		exchange(letters + i, letters + j);
	return true;
}

/*
 * An order that nobody is known to write has to lead clearly; but with the same channels,
 * where kinship alone decides, the winner has to be ahead of it.
 */
static bool leads(const struct kvt_guess_measures *a, const struct kvt_guess_measures *b)
{
	if (kvt_guess_same_channels(a, b))
		return a->kinship > b->kinship;
	return a->gain - b->gain > kvt_guess_gain_needed(b);
}

/*
 * Of a smaller sample, which may be of few layers: another order then has other
 * channels there.  So what leads is measured once more as the winner was.
 */
static enum kvt_status try_order(struct kvt_guess *g, struct guess_sample *few,
				 const struct guess_sample *all, const char *order,
				 struct kvt_guess_measures *best,
				 struct kvt_guess_measures *best_of_few,
				 struct kvt_error *err)
{
	struct guess_sample s = *all;
	struct kvt_guess_candidate c, again;
	enum kvt_status status;

	status = measure_order(&c, few, order, err);
	if (status || !leads(&c.is, best_of_few))
		return status;
	if ((status = measure_order(&again, &s, order, err)) || !leads(&again.is, best))
		return status;
	*best_of_few = c.is;
	*best = again.is;
	g->better = c.layout;
	g->has_better = true;
	return KVT_OK;
}

/*
 * The right layout may have no name; the best of the wrong ones must not pass for
 * it then.  A smaller sample will do, of the winner too.
 */
static enum kvt_status look_beyond(struct kvt_guess *g, const struct guess_sample *all,
				   struct kvt_error *err)
{
	bool latent = g->candidate[0].group.shape.n[KVT_AXIS_K] == 1;
	char order[8], letters[] = "BHKLS", opaque[] = "BHLS";
	char *letter = latent ? opaque : letters;
	const struct kvt_guess_candidate *winner = &g->candidate[0];
	struct kvt_guess_measures best = winner->is;
	struct guess_sample s = *all;
	struct kvt_guess_candidate c;
	int64_t few;
	enum kvt_status status;

	few = winner->views.nbytes / winner->group.shape.n[KVT_AXIS_L] /
	      winner->group.shape.n[KVT_AXIS_B] * BEYOND_BLOCKS;
	if (s.nbytes > BEYOND_NBYTES && s.nbytes > few)
		s.nbytes = few > BEYOND_NBYTES ? few : BEYOND_NBYTES;
	if ((status = measure_order(&c, &s, kvt_layout_string(&winner->layout).s, err)))
		return status;
	do {
		/* slots outside of blocks leave every channel what it is */
		if (strchr(letter, 'S') < strchr(letter, 'B'))
			continue;
		snprintf(order, sizeof(order), "%sD", letter);
		if (latent)
			order[4] = 'C';
		status = try_order(g, &s, all, order, &best, &c.is, err);
		if (status == KVT_SYSTEM)
			return status;
	} while (next_order(letter, (int)strlen(letter)));
	return KVT_OK;
}

/* ---- orders that the shape rules out ------------------------------------- */

static void doubt_pages(struct kvt_guess *g)
{
	const struct kvt_guess_pages *p = &g->pages;
	char text[512];

	if (!p->clear)
		snprintf(text, sizeof(text),
			 "the data does not distinguish the first of these layouts from one with its pages in another order");
	else if (p->is_layout)
		snprintf(text, sizeof(text),
			 "its shape says %s, but its data has the order of %s: %s",
			 kvt_layout_called(&p->said).s, kvt_layout_called(&p->layout).s,
			 p->text);
	else
		snprintf(text, sizeof(text),
			 "its shape says %s, but its data has pages in another order: %s",
			 kvt_layout_called(&p->said).s, p->text);
	kvt_guess_doubt(g, text);
	g->confidence = 0;
}

static enum kvt_status look_at_pages(struct kvt_guess *g, struct guess_sample *s,
				     struct kvt_error *err)
{
	struct kvt_guess_candidate *first = &g->candidate[0];
	struct kvt_guess_candidate c;
	struct kvt_dump *dump;
	enum kvt_status status;

	if ((status = kvt_guess_open(&dump, &c, s, kvt_layout_string(&first->layout).s,
				     err)))
		return status;
	status = kvt_guess_turn_pages(&g->pages, &c, s, dump, err);
	kvt_dump_close(dump);
	if (!status && g->pages.fault)
		doubt_pages(g);
	return status;
}

/* ---- all of it ---------------------------------------------------------- */

/* A dump that says its layout needs no guess, and one must not contradict it. */
static enum kvt_status refuse_stated(const struct kvt_guess_source *source,
				     struct kvt_error *err)
{
	const struct kvt_snapshot *s;
	struct kvt_dump *dump;
	struct kvt_error why = { "" };
	enum kvt_status status = source->open(&dump, source->context, &source->hints,
					      &why);

	if (status == KVT_SYSTEM)
		return kvt_fail(err, status, "%s", why.text);
	if (status)
		return KVT_OK;
	s = kvt_dump_snapshot(dump);
	status = kvt_fail(err, KVT_BAD_INPUT,
			  "%.300s: its layout is known: %s; there is nothing to guess",
			  source->name, s->ngroups > 1 ? "that of each group" :
			  kvt_layout_string(&s->group[0].layout).s);
	kvt_dump_close(dump);
	return status;
}

static enum kvt_status rank(struct kvt_guess *g, struct guess_sample *s,
			    struct kvt_error *err)
{
	const struct kvt_preset *preset;
	enum kvt_status status;
	char beyond[200];

	if ((status = kvt_guess_rank_types(g, s, err)))
		return status;
	kvt_guess_judge_types(g);
	s->unit = g->type[0].unit;
	s->hints.dtype = g->type[0].dtype->name;
	for (int i = 0; (preset = kvt_preset_at(i)); i++)
		if ((status = add_candidate(g, s, preset, err)))
			return status;
	if (!g->ncandidates)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: no layout with a name fits",
				s->source->name);
	judge_layouts(g, &s->hints);
	if (!g->why_not[0] && (status = look_beyond(g, s, err)))
		return status;
	if (g->has_better) {
		g->confidence = 0;
		snprintf(beyond, sizeof(beyond),
			 "axes in the order %.80s, which has no name, fit better than every named layout",
			 kvt_layout_string(&g->better).s);
		kvt_guess_doubt(g, beyond);
	}
	return g->why_not[0] ? KVT_OK : look_at_pages(g, s, err);
}

enum kvt_status kvt_guess(struct kvt_guess *out, const struct kvt_guess_source *source,
			  struct kvt_error *err)
{
	struct guess_sample s = { .source = source, .hints = source->hints,
				  .nbytes = source->nbytes };
	enum kvt_status status;

	*out = (struct kvt_guess){ .confidence = INFINITY };
	out->candidate = calloc(KVT_GUESS_CANDIDATES, sizeof(*out->candidate));
	if (!out->candidate)
		return kvt_no_memory(err, NULL);
	if (!(status = refuse_stated(source, err)))
		status = rank(out, &s, err);
	out->read = s.read;
	out->of = s.of;
	free(s.value);
	return status;
}

void kvt_guess_free(struct kvt_guess *g)
{
	free(g->candidate);
	g->candidate = NULL;
}
