/* SPDX-License-Identifier: Apache-2.0 */
/* rank.c - all layouts that fit, in the order in which the data has them */
#include "lib/ops/guess/guess.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what fits ---------------------------------------------------------- */

static bool same_bytes(const struct guess_candidate *a, const struct guess_candidate *b)
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
static void find_same(const struct guess *g, struct guess_candidate *c)
{
	for (int i = 0; i < g->ncandidates && c->same < 0; i++)
		if (g->candidate[i].same < 0 && same_bytes(&g->candidate[i], c))
			c->same = i;
}

static bool is_listed(const struct guess *g, const struct kvt_layout *layout)
{
	for (int i = 0; i < g->ncandidates; i++)
		if (kvt_layout_equal(&g->candidate[i].layout, layout))
			return true;
	return false;
}

/* One opaque vector a state: layouts of keys and values have nothing to add. */
static bool is_latent(const struct guess_candidate *c)
{
	const int64_t *n = c->group.shape.n;

	return n[KVT_AXIS_K] == 1 && n[KVT_AXIS_H] == 1;
}

/*
 * Are the sizes known apart from the axes of the array?  Its shape gives those of
 * one plane only, and may be one that the engine declared and does not use.
 */
static bool sizes_are_said(const struct guess *g)
{
	const struct kvt_hints *h = &g->sample.hints;
	bool planes = false;

	for (int i = 0; i < g->ncandidates; i++)
		planes |= g->candidate[i].layout.nplanes == 2;
	return planes || (h->content && h->block_size && (h->layers || h->blocks));
}

static enum kvt_status add_candidate(struct guess *g, const struct kvt_preset *preset,
				     struct kvt_error *err)
{
	struct guess_candidate *c = &g->candidate[g->ncandidates];
	struct kvt_layout layout;
	struct kvt_dump *reader;
	enum kvt_status status;

	if (g->ncandidates == GUESS_MAX_CANDIDATES ||
	    kvt_layout_parse(&layout, preset->axes, NULL) || is_listed(g, &layout))
		return KVT_OK;
	status = guess_open(&reader, c, &g->sample, preset->axes, err);
	if (status)
		return status == KVT_SYSTEM ? status : KVT_OK;
	if (!preset->latent && is_latent(c)) {
		kvt_dump_close(reader);
		return KVT_OK;
	}
	find_same(g, c);
	if (c->same < 0)
		status = guess_read(c, &g->sample, reader, err);
	kvt_dump_close(reader);
	if (!status)
		g->ncandidates++;
	return status;
}

/* ---- the layout --------------------------------------------------------- */

void guess_say(struct guess *g, const char *text)
{
	if (!g->why_not[0])
		snprintf(g->why_not, sizeof(g->why_not), "%s", text);
}

double guess_gain_needed(const struct guess_measures *m)
{
	double states = m->live_slots > 0 ? (double)m->live_slots : 1;

	return fmax(GUESS_LEAST_GAIN, GUESS_GAIN_STATES / states);
}

/* With the same channels under other names both sums are the same, but for order. */
bool guess_same_channels(const struct guess_measures *a, const struct guess_measures *b)
{
	return fabs(a->gain - b->gain) < 1e-7;
}

static int by_gain(const void *a, const void *b)
{
	const struct guess_candidate *x = a, *y = b;

	if ((x->same < 0) != (y->same < 0))
		return x->same < 0 ? -1 : 1;
	return (x->is.gain < y->is.gain) - (x->is.gain > y->is.gain);
}

/* 'same' counts candidates, which are about to move. */
static void sort_candidates(struct guess *g)
{
	struct kvt_layout of[GUESS_MAX_CANDIDATES];

	for (int i = 0; i < g->ncandidates; i++)
		if (g->candidate[i].same >= 0)
			of[i] = g->candidate[g->candidate[i].same].layout;
	for (int i = 0, n = g->ncandidates; i < n; i++)
		g->candidate[i].evidence = i;
	qsort(g->candidate, (size_t)g->ncandidates, sizeof(*g->candidate), by_gain);
	for (int i = 0; i < g->ncandidates; i++) {
		struct guess_candidate *c = &g->candidate[i];

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
static void choose_winner(struct guess *g)
{
	struct guess_candidate *c = g->candidate, best;
	int winner = 0;

	for (int i = 1; i < g->ncandidates && c[i].same < 0; i++)
		if (guess_same_channels(&c[0].is, &c[i].is) &&
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

static double evidence(const struct guess_candidate *winner,
		       const struct guess_candidate *other, double needed)
{
	double lead = winner->is.gain - other->is.gain;
	double akin = winner->is.kinship - other->is.kinship;

	if (!guess_same_channels(&winner->is, &other->is))
		return lead / needed;
	return fmax(akin, 0) / winner->is.kinship_spread / GUESS_LEAST_KINSHIP;
}

static void judge_layouts(struct guess *g)
{
	struct guess_candidate *c = g->candidate;
	double needed;

	sort_candidates(g);
	needed = guess_gain_needed(&c[0].is);
	choose_winner(g);
	/* data that no layout makes any order in speaks for none */
	g->confidence = fmin(g->confidence, fmax(c[0].is.gain, 0) / needed);
	for (int i = 1; i < g->ncandidates && c[i].same < 0; i++) {
		c[i].evidence = evidence(&c[0], &c[i], needed);
		g->confidence = fmin(g->confidence, c[i].evidence);
	}
	if (c[0].is.live_blocks < GUESS_LEAST_BLOCKS) {
		g->confidence = 0;
		guess_say(g, "fewer than 4 blocks of the sample hold anything");
	}
	if (!sizes_are_said(g)) {
		g->confidence = 0;
		guess_say(g, "sizes are not said; give --layers, --block-size, "
			     "--heads and --head-dim or --content");
	}
	if (g->confidence < 1)
		guess_say(g, "the data does not tell the first of these layouts "
			     "from the next");
}

/* ---- all of it ---------------------------------------------------------- */

/* A dump that says its layout needs no guess, and one must not contradict it. */
static enum kvt_status refuse_stated(const struct guess *g, struct kvt_error *err)
{
	const struct kvt_snapshot *s;
	struct kvt_dump *reader;
	struct kvt_error why = { "" };
	enum kvt_status status = kvt_open(&reader, g->sample.path, &g->sample.hints,
					  &why);

	if (status == KVT_SYSTEM)
		return kvt_fail(err, status, "%s", why.text);
	if (status)
		return KVT_OK;
	s = kvt_dump_snapshot(reader);
	status = kvt_fail(err, KVT_BAD_INPUT,
			  "%.300s: says its layout itself: %s; there is nothing to guess",
			  g->sample.path, s->ngroups > 1 ? "that of each group" :
			  kvt_layout_string(&s->group[0].layout).s);
	kvt_dump_close(reader);
	return status;
}

enum kvt_status guess_rank(struct guess *g, struct kvt_error *err)
{
	const struct kvt_preset *preset;
	enum kvt_status status;

	g->confidence = INFINITY;
	g->candidate = calloc(GUESS_MAX_CANDIDATES, sizeof(*g->candidate));
	if (!g->candidate)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	if ((status = refuse_stated(g, err)) || (status = guess_rank_types(g, err)))
		return status;
	guess_judge_types(g);
	g->sample.unit = g->type[0].unit;
	g->sample.hints.dtype = g->type[0].dtype->name;
	for (int i = 0; (preset = kvt_preset_at(i)); i++)
		if ((status = add_candidate(g, preset, err)))
			return status;
	if (!g->ncandidates)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: no layout with a name fits",
				g->sample.path);
	judge_layouts(g);
	if (!g->why_not[0] && (status = guess_look_beyond(g, err)))
		return status;
	if (g->has_better) {
		g->confidence = 0;
		guess_say(g, "an order without a name fits better than all layouts "
			     "that have one");
	}
	return KVT_OK;
}

void guess_free(struct guess *g)
{
	free(g->candidate);
	free(g->sample.value);
}
