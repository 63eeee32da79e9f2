/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carries.c - what of the model an operation carries
 *
 * The bytes of an op are a range of a block's addresses.  The loops of the view,
 * slowest first, are the digits of a number whose value is the address; a range
 * between two such numbers is a few boxes: the digits up to the first that differs,
 * and of both ends what is left in the loops inside.  The answer is the span of all
 * boxes on each axis, so at most 2 * KVT_MAX_FACTORS + 1 boxes an op; slots are
 * looked up by block in a sorted list of the entries.
 */
#include "sim/ops/transfer.h"

#include <stdlib.h>

static int by_block(const void *a, const void *b)
{
	const struct kvt_held_slots *x = a, *y = b;

	return x->block != y->block ? (x->block > y->block) - (x->block < y->block) :
				      (x->slot > y->slot) - (x->slot < y->slot);
}

enum kvt_status kvt_op_index_init(struct kvt_op_index *out,
				  const struct kvt_transfer_group *g,
				  struct kvt_error *err)
{
	*out = (struct kvt_op_index){ g, malloc(((size_t)g->norder + 1) *
					     sizeof(*out->held)) };
	if (!out->held)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < g->norder; i++)
		out->held[i] = (struct kvt_held_slots){ g->order[i].src_block,
						     g->order[i].src_slot,
						     g->order[i].count, g->slot[i] };
	qsort(out->held, (size_t)g->norder, sizeof(*out->held), by_block);
	return KVT_OK;
}

void kvt_op_index_free(struct kvt_op_index *places)
{
	free(places->held);
	places->held = NULL;
}

/* ---- from the first byte to the last ------------------------------------- */

/* The loops of a view, slowest first; digit by digit, what an index is. */
struct loops {
	int n;
	struct kvt_factor factor[KVT_MAX_FACTORS];
};

static struct loops loops_of(const struct kvt_view *view)
{
	struct loops l = { 0 };

	for (int i = 0; i < view->nfactors; i++) {
		int at = l.n;

		if (view->factor[i].n < 2)
			continue;
		for (; at > 0 && l.factor[at - 1].stride < view->factor[i].stride; at--)
			l.factor[at] = l.factor[at - 1];
		l.factor[at] = view->factor[i];
		l.n++;
	}
	return l;
}

static int64_t digit(const struct loops *l, int i, const int64_t index[KVT_NAXES])
{
	return index[l->factor[i].axis] / l->factor[i].div % l->factor[i].n;
}

/* Are the digits after i the least, or the greatest, that there are? */
static bool ends_at(const struct loops *l, int i, const int64_t index[KVT_NAXES],
		    bool greatest)
{
	for (i++; i < l->n; i++)
		if (digit(l, i, index) != (greatest ? l->factor[i].n - 1 : 0))
			return false;
	return true;
}

struct box {
	int64_t lo[KVT_NAXES], hi[KVT_NAXES];	/* both are in it */
};

/* Digits of 'index' before i, lo to hi there, and all after it. */
static struct box box_at(const struct loops *l, const int64_t index[KVT_NAXES], int i,
			 int64_t lo, int64_t hi)
{
	struct box b = { { 0 }, { 0 } };

	for (int j = 0; j < l->n; j++) {
		const struct kvt_factor *f = &l->factor[j];
		int64_t from = j < i ? digit(l, j, index) : j == i ? lo : 0;
		int64_t to = j < i ? from : j == i ? hi : f->n - 1;

		b.lo[f->axis] += from * f->div;
		b.hi[f->axis] += to * f->div;
	}
	return b;
}

enum { MOST_BOXES = 2 * KVT_MAX_FACTORS + 1 };

/*
 * All elements from 'a' to 'z': with the first digit that differs between those
 * of both, and of each end what is left in the loops inside of it.
 */
static int cut_boxes(struct box out[MOST_BOXES], const struct loops *l,
		     const int64_t a[KVT_NAXES], const int64_t z[KVT_NAXES])
{
	int k = 0, n = 0;
	int64_t lo, hi;

	while (k < l->n && digit(l, k, a) == digit(l, k, z))
		k++;
	if (k == l->n) {
		out[0] = box_at(l, a, k, 0, 0);
		return 1;
	}
	lo = digit(l, k, a) + !ends_at(l, k, a, false);
	hi = digit(l, k, z) - !ends_at(l, k, z, true);
	if (lo <= hi)
		out[n++] = box_at(l, a, k, lo, hi);
	for (int j = k + 1; !ends_at(l, j - 1, a, false); j++) {
		lo = digit(l, j, a) + !ends_at(l, j, a, false);
		if (lo < l->factor[j].n)
			out[n++] = box_at(l, a, j, lo, l->factor[j].n - 1);
	}
	for (int j = k + 1; !ends_at(l, j - 1, z, true); j++) {
		hi = digit(l, j, z) - !ends_at(l, j, z, true);
		if (hi >= 0)
			out[n++] = box_at(l, z, j, 0, hi);
	}
	return n;
}

/* Of two planes, an op that is in both is more than the end of one. */
static int find_boxes(struct box out[MOST_BOXES], const struct kvt_views *views,
		      const struct kvt_op *op)
{
	int64_t a[KVT_NAXES], z[KVT_NAXES];
	struct loops l;

	if (!kvt_views_find(views, op->src, a) ||
	    !kvt_views_find(views, op->src + op->len - 1, z))
		return 0;
	l = loops_of(&views->view[views->count == 2 ? a[KVT_AXIS_K] : 0]);
	if (views->count == 2 && a[KVT_AXIS_K] != z[KVT_AXIS_K]) {
		out[0] = box_at(&l, a, -1, 0, 0);
		return 1;
	}
	return cut_boxes(out, &l, a, z);
}

/* ---- slots --------------------------------------------------------------- */

/* The first entry of a block or of one after it. */
static int64_t first_held(const struct kvt_op_index *p, int64_t block)
{
	int64_t low = 0, high = p->group->norder;

	while (low < high) {
		int64_t mid = low + (high - low) / 2;

		if (p->held[mid].block < block)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Extends the slots of 'w' by those in a box; 'last' is the last of them. */
static void add_slots(struct kvt_op_content *w, int64_t *last,
		      const struct kvt_op_index *p, const struct box *b)
{
	bool recurrent = p->group->xfer.src.spec.tokens_per_slot.num < 0;
	int64_t lo = recurrent ? 0 : b->lo[KVT_AXIS_S];
	int64_t hi = recurrent ? 0 : b->hi[KVT_AXIS_S];

	for (int64_t i = first_held(p, b->lo[KVT_AXIS_B]); i < p->group->norder; i++) {
		const struct kvt_held_slots *h = &p->held[i];
		int64_t from = h->slot > lo ? h->slot : lo;
		int64_t to = h->slot + h->count - 1 < hi ? h->slot + h->count - 1 : hi;

		if (h->block > b->hi[KVT_AXIS_B])
			break;
		if (from > to)
			continue;
		from += h->at - h->slot;
		to += h->at - h->slot;
		if (*last < 0 || from < w->slot)
			w->slot = from;
		if (to > *last)
			*last = to;
	}
}

/* ---- all of it ----------------------------------------------------------- */

static const char *slice_of(const struct kvt_exchange *ex, int64_t channel)
{
	for (int i = 0; i < ex->count; i++)
		if (channel >= ex->range[i].src &&
		    channel < ex->range[i].src + ex->range[i].count)
			return ex->range[i].part;
	return "all";
}

/* The axis of all boxes together. */
static int64_t span(int64_t *first, const struct box *box, int n, enum kvt_axis axis)
{
	int64_t last = box[0].hi[axis];

	*first = box[0].lo[axis];
	for (int i = 1; i < n; i++) {
		if (box[i].lo[axis] < *first)
			*first = box[i].lo[axis];
		if (box[i].hi[axis] > last)
			last = box[i].hi[axis];
	}
	return last - *first + 1;
}

struct kvt_op_content kvt_op_content(const struct kvt_op_index *p,
				     const struct kvt_pair *pair, const struct kvt_op *op)
{
	const struct kvt_exchange *ex = &pair->exchange;
	struct kvt_op_content w = { .slice = "all" };
	enum kvt_axis axis = ex->axis == KVT_AXIS_H ? KVT_AXIS_H : KVT_AXIS_D;
	struct box box[MOST_BOXES];
	int n = find_boxes(box, &p->group->xfer.src.views, op);
	int64_t last = -1;

	if (!n)
		return w;
	w.layers = span(&w.layer, box, n, KVT_AXIS_L);
	w.heads = span(&w.head, box, n, axis);
	w.slice = axis == KVT_AXIS_H ? "head" : slice_of(ex, w.head);
	if (axis == KVT_AXIS_H)
		w.head += pair->global - ex->range[0].src;
	for (int i = 0; i < n; i++)
		add_slots(&w, &last, p, &box[i]);
	w.slots = last < 0 ? 0 : last - w.slot + 1;
	return w;
}
