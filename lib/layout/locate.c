/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locate.c - from a byte back to the element that it belongs to
 *
 * In: a view and an offset.  Out: the coordinates, or that no element is there.  Factors
 * are digits, the largest stride first: a digit is right only if what is left is within
 * the reach of all factors behind it.  If strides nest, as in every layout, that is one
 * value each, and the search goes straight down; of strides that do not all are tried.
 */
#include "lib/kvt/view.h"

#include <string.h>

/* Factors by falling stride, and how many bytes each and all behind it reach. */
struct ladder {
	int n;
	const struct kvt_factor *f[KVT_MAX_FACTORS];
	int64_t reach[KVT_MAX_FACTORS + 1];
};

static void ladder_add(struct ladder *l, const struct kvt_factor *f)
{
	int i = l->n++;

	for (; i > 0 && l->f[i - 1]->stride < f->stride; i--)
		l->f[i] = l->f[i - 1];
	l->f[i] = f;
}

static void ladder_init(struct ladder *l, const struct kvt_view *view)
{
	l->n = 0;
	/* what has one index, or one place for all, has index 0 */
	for (int i = 0; i < view->nfactors; i++)
		if (view->factor[i].n > 1 && view->factor[i].stride > 0)
			ladder_add(l, &view->factor[i]);
	l->reach[l->n] = view->shape.elem;
	for (int i = l->n - 1; i >= 0; i--)
		l->reach[i] = l->reach[i + 1] + (l->f[i]->n - 1) * l->f[i]->stride;
}

/*
 * 'rest' bytes are left for the factors from 'i' on.  Only indices that leave
 * no more than the others reach can be right: at most one, if strides nest.
 */
static bool descend(const struct ladder *l, int i, int64_t rest, int64_t index[KVT_NAXES])
{
	const struct kvt_factor *f;
	int64_t least, at;

	if (i == l->n)
		return rest < l->reach[i];
	f = l->f[i];
	least = rest < l->reach[i + 1] ? 0 : (rest - l->reach[i + 1]) / f->stride + 1;
	at = rest / f->stride;
	if (at > f->n - 1)
		at = f->n - 1;
	for (; at >= least; at--) {
		index[f->axis] += at * f->div;
		if (descend(l, i + 1, rest - at * f->stride, index))
			return true;
		index[f->axis] -= at * f->div;
	}
	return false;
}

bool kvt_view_find(const struct kvt_view *view, int64_t offset, int64_t index[KVT_NAXES])
{
	int64_t found[KVT_NAXES] = { 0 };
	struct ladder l;

	for (int a = 0; a < KVT_NAXES; a++)
		if (view->shape.n[a] < 1)
			return false;
	if (offset < view->offset)
		return false;
	ladder_init(&l, view);
	if (!descend(&l, 0, offset - view->offset, found))
		return false;
	memcpy(index, found, sizeof(found));
	return true;
}

int64_t kvt_views_at(const struct kvt_views *views, const int64_t index[KVT_NAXES])
{
	int64_t inside[KVT_NAXES];

	if (views->count < 2)
		return kvt_view_at(&views->view[0], index);
	memcpy(inside, index, sizeof(inside));
	inside[KVT_AXIS_K] = 0;
	return kvt_view_at(&views->view[index[KVT_AXIS_K]], inside);
}

bool kvt_views_find(const struct kvt_views *views, int64_t offset,
		    int64_t index[KVT_NAXES])
{
	for (int i = 0; i < views->count; i++)
		if (kvt_view_find(&views->view[i], offset, index)) {
			index[KVT_AXIS_K] += i;
			return true;
		}
	return false;
}
