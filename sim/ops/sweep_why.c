/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep_why.c - what breaks the runs of a deployment
 *
 * The tally says along which axis most operations end, and which side does not go
 * on.  The reason follows from the views: the source does not go on because what lies
 * inside that axis moves in part (TP, block sizes), the destination because its axes
 * are in another order.
 */
#include "sim/ops/sweep.h"

#include <string.h>

/* The factor that is the slowest part of an axis; nfactors if it has extent 1. */
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
static bool partial(struct kvt_sweep_break *b, const struct kvt_xfer *x,
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
		b->cause = KVT_SWEEP_TP;
		b->channels = unit == KVT_AXIS_D;
		b->part = heads;
		b->of = view->shape.n[unit];
		return true;
	}
	if (inside(view, KVT_AXIS_S, b->axis) && !x->src.spec.nparts &&
	    x->entry[0].count < view->shape.n[KVT_AXIS_S]) {
		b->cause = KVT_SWEEP_BLOCKS;
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

static void explain(struct kvt_sweep_break *b, const struct kvt_xfer *x, int why)
{
	const struct kvt_view *view = &x->src.views.view[0];
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_pair pair;

	b->cause = KVT_SWEEP_PLACE;
	if (why == KVT_BREAK_SCOPE)
		b->cause = KVT_SWEEP_SCOPE;
	else if (b->axis != KVT_AXIS_B && kvt_pair_next(&pair, &walk, x) &&
		 (b->axis != KVT_AXIS_L || inside(view, KVT_AXIS_L, KVT_AXIS_B))) {
		if (why != KVT_BREAK_DESTINATION && partial(b, x, &pair, true))
			return;
		if (why != KVT_BREAK_SOURCE && reordered(x))
			b->cause = KVT_SWEEP_ORDER;
		else if (why != KVT_BREAK_SOURCE)
			partial(b, x, &pair, false);
	}
}

enum kvt_status kvt_sweep_why(struct kvt_sweep_break *out,
			      const struct kvt_transfer_plan *transfer,
			      enum kvt_scope scope, struct kvt_error *err)
{
	struct kvt_sweep_break most = { .cause = KVT_SWEEP_WHOLE };
	struct kvt_figures f;
	enum kvt_status status = kvt_figures_init(&f, err);

	if (status)
		return status;
	for (int g = 0; !status && g < transfer->ngroups; g++) {
		int why = -1;

		memset(&f.tally, 0, sizeof(f.tally));
		f.sizes.n = 0;
		if ((status = kvt_figures_add(&f, &transfer->group[g], scope, err)))
			break;
		for (int a = 0; a < KVT_NAXES; a++)
			for (int w = 0; w < KVT_NBREAKS; w++)
				if (f.tally.breaks[a][w] > most.ops) {
					most = (struct kvt_sweep_break){
						.axis = a, .ops = f.tally.breaks[a][w] };
					why = w;
				}
		if (why >= 0)
			explain(&most, &transfer->group[g].xfer, why);
	}
	kvt_figures_free(&f);
	*out = most;
	return status;
}
