/* SPDX-License-Identifier: Apache-2.0 */
/* sweep_why.c - what breaks the runs of a deployment, and which deployments */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/print/html.h"
#include "lib/ops/transfer/sweep.h"

const char *sweep_cause_name(enum sweep_cause cause)
{
	static const char *const name[] = {
		"tp", "block_size", "layout", "placement", "scope", "none",
	};

	return name[cause];
}

/* ---- one row ------------------------------------------------------------- */

/* Where the slowest part of an axis stands; nfactors if it has extent 1. */
static int place_of(const struct kvt_view *view, enum kvt_axis axis)
{
	int best = view->nfactors;

	for (int i = 0; i < view->nfactors; i++)
		if (view->factor[i].axis == axis &&
		    (best == view->nfactors ||
		     view->factor[i].stride > view->factor[best].stride))
			best = i;
	return best;
}

static bool inside(const struct kvt_view *view, enum kvt_axis axis, enum kvt_axis of)
{
	int a = place_of(view, axis), b = place_of(view, of);

	return a < view->nfactors && b < view->nfactors &&
	       view->factor[a].stride < view->factor[b].stride;
}

/* Whether what lies inside an axis is all moved; if not, which part of it is. */
static bool partial(struct sweep_break *b, const struct kvt_xfer *x,
		    const struct kvt_pair *pair, bool source)
{
	const struct kvt_view *view = source ? &x->src.views.view[0] :
					       &x->dst.views.view[0];
	enum kvt_axis unit = pair->exchange.axis;
	int64_t heads = 0;

	for (int i = 0; i < pair->exchange.count; i++)
		heads += pair->exchange.range[i].count;
	b->at_source = source;
	if (inside(view, unit, b->axis) && heads < view->shape.n[unit]) {
		b->cause = SWEEP_TP;
		b->channels = unit == KVT_AXIS_D;
		b->part = heads;
		b->of = view->shape.n[unit];
		return true;
	}
	if (inside(view, KVT_AXIS_S, b->axis) && !x->src.spec.nparts &&
	    x->entry[0].count < view->shape.n[KVT_AXIS_S]) {
		b->cause = SWEEP_BLOCKS;
		b->part = x->entry[0].count;
		b->of = view->shape.n[KVT_AXIS_S];
		return true;
	}
	return false;
}

/* Whether two axes are in the other order on the other side. */
static bool reordered(const struct kvt_xfer *x)
{
	const struct kvt_view *s = &x->src.views.view[0], *d = &x->dst.views.view[0];

	for (int a = 0; a < KVT_NAXES; a++)
		for (int b = 0; b < KVT_NAXES; b++)
			if (inside(s, a, b) && inside(d, b, a))
				return true;
	return false;
}

static void explain(struct sweep_break *b, const struct kvt_xfer *x, int why)
{
	const struct kvt_view *view = &x->src.views.view[0];
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_pair pair;

	b->cause = SWEEP_PLACE;
	if (why == KVT_BREAK_SCOPE)
		b->cause = SWEEP_SCOPE;
	else if (b->axis != KVT_AXIS_B && kvt_pair_next(&pair, &walk, x) &&
		 (b->axis != KVT_AXIS_L || inside(view, KVT_AXIS_L, KVT_AXIS_B))) {
		if (why != KVT_BREAK_DESTINATION && partial(b, x, &pair, true))
			return;
		if (why != KVT_BREAK_SOURCE && reordered(x))
			b->cause = SWEEP_ORDER;
		else if (why != KVT_BREAK_SOURCE)
			partial(b, x, &pair, false);
	}
}

enum kvt_status sweep_why(struct sweep_break *out, const struct sim *sim,
			  enum kvt_scope scope, struct kvt_error *err)
{
	struct sweep_break most = { .cause = SWEEP_WHOLE };
	struct sim_figures f;
	enum kvt_status status = sim_figures_init(&f, err);

	if (status)
		return status;
	for (int g = 0; !status && g < sim->ngroups; g++) {
		int why = -1;

		memset(&f.tally, 0, sizeof(f.tally));
		f.sizes.n = 0;
		if ((status = sim_count(&f, &sim->group[g], scope, err)))
			break;
		for (int a = 0; a < KVT_NAXES; a++)
			for (int w = 0; w < KVT_NBREAKS; w++)
				if (f.tally.breaks[a][w] > most.ops) {
					most = (struct sweep_break){
						.axis = a, .ops = f.tally.breaks[a][w] };
					why = w;
				}
		if (why >= 0)
			explain(&most, &sim->group[g].xfer, why);
	}
	sim_figures_free(&f);
	*out = most;
	return status;
}

/* ---- all rows ------------------------------------------------------------ */

struct sentence {
	char *text;
	size_t room, n;
};

static void say(struct sentence *s, const char *words)
{
	size_t len = strlen(words);

	if (len >= s->room - s->n)
		len = s->room - s->n - 1;
	memcpy(s->text + s->n, words, len);
	s->text[s->n += len] = '\0';
}

static void name_of(char *out, size_t room, const struct sweep_row *r)
{
	if (strcmp(r->layout[0], r->layout[1]))
		snprintf(out, room, "%s to %s", r->layout[0], r->layout[1]);
	else
		snprintf(out, room, "%s", r->layout[0]);
}

static bool same_layouts(const struct sweep_row *a, const struct sweep_row *b)
{
	return !strcmp(a->layout[0], b->layout[0]) && !strcmp(a->layout[1], b->layout[1]);
}

static bool loses(const struct sweep *sweep, int64_t i, enum sweep_cause cause)
{
	const struct sweep_row *r = &sweep->row[i];

	return r->why.cause == cause && !r->stage && !r->refused[0] &&
	       r->ns != sweep->row[0].ns;
}

/* What is broken inside a block has been named; where it ends is no news then. */
static bool named_before(const struct sweep *sweep, int64_t i, enum sweep_cause cause)
{
	for (int64_t j = 0; j < sweep->n; j++) {
		if (!same_layouts(&sweep->row[j], &sweep->row[i]))
			continue;
		if (j < i && loses(sweep, j, cause))
			return true;
		for (int c = 0; cause >= SWEEP_PLACE && c < (int)cause; c++)
			if (loses(sweep, j, (enum sweep_cause)c))
				return true;
	}
	return false;
}

/* The first that loses so and was not named before; from i on, or -1. */
static int64_t next_loser(const struct sweep *sweep, enum sweep_cause cause, int64_t i)
{
	for (; i < sweep->n; i++)
		if (loses(sweep, i, cause) && !named_before(sweep, i, cause))
			return i;
	return -1;
}

/* The names of the losers with this cause, each once. */
static void say_losers(struct sentence *s, const struct sweep *sweep,
		       enum sweep_cause cause)
{
	int64_t i = next_loser(sweep, cause, 0);
	const char *before = "";

	for (; i >= 0; i = next_loser(sweep, cause, i + 1)) {
		char name[160];

		name_of(name, sizeof(name), &sweep->row[i]);
		say(s, before);
		say(s, name);
		before = ", ";
	}
}

static void say_cause(struct sentence *s, const struct sweep *sweep,
		      enum sweep_cause cause)
{
	static const char *const start[] = {
		"different TP breaks ", "different block sizes break ",
		"different orders of axes break ", "in ", "in ", "",
	};
	int64_t first = next_loser(sweep, cause, 0);
	const struct sweep_break *b;
	char words[256] = "";

	if (first < 0 || cause == SWEEP_WHOLE)
		return;
	b = &sweep->row[first].why;
	say(s, s->n ? "; " : "");
	say(s, start[cause]);
	say_losers(s, sweep, cause);
	if (cause >= SWEEP_PLACE)
		snprintf(words, sizeof(words), " a run ends with each %s",
			 kvt_axis_name(b->axis));
	else if (cause == SWEEP_TP)
		snprintf(words, sizeof(words), " (a run ends at a %s: %lld of %lld %s "
				"of a "
			 "%s rank move)", kvt_axis_name(b->axis), (long long)b->part,
			 (long long)b->of, b->channels ? "channels" : "heads",
			 b->at_source ? "source" : "destination");
	else if (cause == SWEEP_BLOCKS)
		snprintf(words, sizeof(words), " (a run ends at a %s: %lld of %lld "
				"states "
			 "of a %s block go together)", kvt_axis_name(b->axis),
			 (long long)b->part, (long long)b->of,
			 b->at_source ? "source" : "destination");
	else
		snprintf(words, sizeof(words), " (a run ends at a %s)",
			 kvt_axis_name(b->axis));
	say(s, words);
}

/* Whether all rows whose two sides differ in both ways are broken inside. */
static bool nothing_survives(const struct sweep *sweep)
{
	int64_t both = 0;

	for (int64_t i = 0; i < sweep->n; i++) {
		const struct sweep_row *r = &sweep->row[i];

		if (r->tp[0] == r->tp[1] || r->block_size[0] == r->block_size[1] ||
		    r->stage || r->refused[0])
			continue;
		if (r->why.cause > SWEEP_ORDER)
			return false;
		both++;
	}
	return both > 0;
}

/* Why the first row is first; nothing if no other is slower. */
static void say_winner(struct sentence *s, const struct sweep *sweep)
{
	const struct sweep_row *best = &sweep->row[0];
	bool slower = false;
	char name[160], words[1024];

	for (int64_t i = 1; i < sweep->n; i++)
		slower |= sweep->row[i].refused[0] || sweep->row[i].ns > best->ns;
	if (!slower || best->refused[0])
		return;
	name_of(name, sizeof(name), best);
	snprintf(words, sizeof(words), "%s%s is fastest: %s operation%s, ", name,
		 best->stage ? " through buffers" : "", human_count(best->ops).s,
		 plural(best->ops));
	say(s, words);
	if (best->stage)
		snprintf(words, sizeof(words), "as large as the buffers");
	else if (best->why.cause == SWEEP_WHOLE)
		snprintf(words, sizeof(words), "one for each pair of ranks");
	else
		snprintf(words, sizeof(words), "most of which end at a %s",
			 kvt_axis_name(best->why.axis));
	say(s, words);
}

void sweep_sentence(char *out, size_t room, const struct sweep *sweep)
{
	char why[1536] = "";
	struct sentence s = { out, room, 0 }, losers = { why, sizeof(why), 0 };

	out[0] = '\0';
	say_winner(&s, sweep);
	for (int c = 0; c < SWEEP_NCAUSES; c++)
		say_cause(&losers, sweep, (enum sweep_cause)c);
	if (nothing_survives(sweep))
		say(&losers, "; where both differ no layout here keeps its runs whole");
	if (sweep->row[0].refused[0])
		say(&losers, "all are refused");
	else if (!losers.n && !s.n)
		say(&losers, sweep->n > 1 ? "all are equally fast" :
					    "there is nothing to compare");
	if (why[0] >= 'a' && why[0] <= 'z')
		why[0] = (char)(why[0] - 'a' + 'A');
	say(&s, s.n && losers.n ? ". " : "");
	say(&s, why);
	say(&s, ".");
}
