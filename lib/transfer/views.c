/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views.c - do two elements of a side share a byte?
 *
 * Loops by ascending stride: if each steps over all that the ones before it reach, no
 * two elements meet.  Two planes do not meet if one ends, in every turn of the loops
 * that step over both, before the other begins.  What is not shown so is refused: it may
 * overlap.
 */
#include "lib/transfer/xfer.h"

#include <string.h>

/* One loop over the bytes of a view. */
struct pace {
	int64_t n, stride;
};

static int collect(struct pace *out, const struct kvt_view *view, int64_t above,
		   int64_t upto)
{
	int n = 0;

	for (int i = 0; i < view->nfactors; i++) {
		struct pace p = { view->factor[i].n, view->factor[i].stride };
		int j = n;

		if (p.n < 2 || p.stride <= above || p.stride > upto)
			continue;
		for (; j > 0 && out[j - 1].stride > p.stride; j--)
			out[j] = out[j - 1];
		out[j] = p;
		n++;
	}
	return n;
}

/* Grows 'reach', the bytes from the first to the last, by loops around it. */
static bool reach_over(int64_t *reach, const struct pace *pace, int n)
{
	for (int i = 0; i < n; i++) {
		if (pace[i].stride < *reach)
			return false;
		*reach += (pace[i].n - 1) * pace[i].stride;
	}
	return true;
}

/* Of two planes, what steps over the one steps over the other, too. */
static bool planes_disjoint(const struct kvt_views *views)
{
	const struct kvt_view *a = &views->view[0], *b = &views->view[1];
	struct pace inner[2][KVT_MAX_FACTORS], outer[2][KVT_MAX_FACTORS];
	int64_t apart, reach[2] = { a->shape.elem, b->shape.elem };
	int n[2];

	if (b->offset < a->offset) {
		a = &views->view[1];
		b = &views->view[0];
	}
	apart = b->offset - a->offset;
	n[0] = collect(outer[0], a, apart, INT64_MAX);
	n[1] = collect(outer[1], b, apart, INT64_MAX);
	if (n[0] != n[1] ||
	    memcmp(outer[0], outer[1], (size_t)n[0] * sizeof(outer[0][0])) ||
	    !reach_over(&reach[0], inner[0], collect(inner[0], a, -1, apart)) ||
	    !reach_over(&reach[1], inner[1], collect(inner[1], b, -1, apart)) ||
	    reach[0] > apart)
		return false;
	reach[1] += apart;
	return reach_over(&reach[1], outer[0], n[0]);
}

enum kvt_status kvt_views_disjoint(const struct kvt_views *views, struct kvt_error *err)
{
	struct pace pace[KVT_MAX_FACTORS];
	int64_t reach = views->view[0].shape.elem;
	int n = collect(pace, &views->view[0], -1, INT64_MAX);

	if (views->count == 2 ? planes_disjoint(views) : reach_over(&reach, pace, n))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"strides step into what lies between: elements overlap or interleave");
}
