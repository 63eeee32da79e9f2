/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.c - the loops of a pair of ranks, by the strides of the source
 *
 * If each loop steps over all that is inside of it, walking them from the
 * slowest stride to the fastest meets the bytes of the source in ascending order.
 * That is what makes one pass enough: runs can only join their neighbours in it.
 */
#include "lib/layout/loops.h"
#include "lib/transfer/xfer.h"

#include <string.h>

/* ---- the views of a pair ------------------------------------------------ */

static enum kvt_status cut_heads(struct kvt_view *view, int64_t begin, int64_t count,
				 struct kvt_error *err)
{
	return kvt_view_narrow(view, view, KVT_AXIS_H, begin, begin + count, err);
}

static enum kvt_status plane_of(struct kvt_view *out, const struct kvt_views *views,
				int k, int nplanes, struct kvt_error *err)
{
	if (views->count == 2 || nplanes == 1) {
		*out = views->view[k];
		return KVT_OK;
	}
	return kvt_view_narrow(out, &views->view[0], KVT_AXIS_K, k, k + 1, err);
}

enum kvt_status kvt_nest_views(struct kvt_both *out, const struct kvt_nest *nest,
			       int k, struct kvt_error *err)
{
	const struct kvt_exchange_range *range = &nest->exchange.range[0];
	enum kvt_status status;

	if ((status = plane_of(&out->src, &nest->xfer->src.views, k, nest->nplanes,
			       err)) ||
	    (status = plane_of(&out->dst, &nest->xfer->dst.views, k, nest->nplanes, err)))
		return status;
	if (nest->exchange.axis != KVT_AXIS_H)
		return KVT_OK;
	if ((status = cut_heads(&out->src, range->src, range->count, err)))
		return status;
	return cut_heads(&out->dst, range->dst, range->count, err);
}

/* ---- levels ------------------------------------------------------------- */

static void add_level(struct kvt_nest *nest, int k, struct kvt_level level)
{
	struct kvt_level *l = nest->level[k];
	int at = nest->nlevels[k]++;

	for (; at > 0 && l[at - 1].src < level.src; at--)
		l[at] = l[at - 1];
	l[at] = level;
}

static void insert_level(struct kvt_nest *nest, int k, int at, struct kvt_level level)
{
	struct kvt_level *l = nest->level[k];

	memmove(l + at + 1, l + at, (size_t)(nest->nlevels[k] - at) * sizeof(*l));
	l[at] = level;
	nest->nlevels[k]++;
}

/* An axis without a factor has one index and no stride. */
static int64_t stride_of(const struct kvt_view *view, enum kvt_axis axis)
{
	for (int i = 0; i < view->nfactors; i++)
		if (view->factor[i].axis == axis && view->factor[i].div == 1)
			return view->factor[i].stride;
	return 0;
}

static bool is_split(const struct kvt_view *view, enum kvt_axis axis)
{
	int n = 0;

	for (int i = 0; i < view->nfactors; i++)
		n += view->factor[i].axis == axis;
	return n > 1;
}

static enum kvt_status add_axis(struct kvt_nest *nest, int k, const struct kvt_both *v,
				enum kvt_axis axis, struct kvt_error *err)
{
	struct kvt_loop loop[2 * KVT_MAX_FACTORS];
	int n = 0;
	enum kvt_status status = kvt_axis_loops(loop, &n, &v->dst, &v->src, axis, err);

	if (status)
		return status;
	for (int i = 0; i < n; i++)
		add_level(nest, k, (struct kvt_level){
			.kind = KVT_LEVEL_PLAIN, .axis = axis, .div = loop[i].div,
			.n = loop[i].n, .src = loop[i].src,
			.dst = { loop[i].dst, loop[i].dst } });
	return KVT_OK;
}

/* By the order and not by strides: with one channel these would not tell. */
static bool taps_outside(const struct kvt_view *view)
{
	for (int i = 0; i < view->nfactors; i++)
		if (view->factor[i].axis == KVT_AXIS_S ||
		    view->factor[i].axis == KVT_AXIS_D)
			return view->factor[i].axis == KVT_AXIS_S;
	return false;
}

/* The channels of a conv state; with taps outside of them each tap is a slice. */
static enum kvt_status add_ranges(struct kvt_nest *nest, const struct kvt_both *v,
				  struct kvt_error *err)
{
	int64_t src = stride_of(&v->src, KVT_AXIS_D);
	int64_t dst = stride_of(&v->dst, KVT_AXIS_D);
	bool cut = taps_outside(&v->src) || taps_outside(&v->dst);

	if (is_split(&v->src, KVT_AXIS_D) || is_split(&v->dst, KVT_AXIS_D))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"the channels of a conv state are split");
	for (int i = 0; i < nest->nlevels[0]; i++)
		if (nest->level[0][i].axis == KVT_AXIS_S)
			nest->level[0][i].cut = cut;
	add_level(nest, 0, (struct kvt_level){
		.kind = KVT_LEVEL_RANGES, .axis = KVT_AXIS_D, .div = 1,
		.n = v->src.shape.n[KVT_AXIS_D], .src = src, .dst = { dst, dst } });
	return KVT_OK;
}

static void add_blocks(struct kvt_nest *nest, int k, const struct kvt_both *v)
{
	for (int i = 0; !nest->taps && i < v->src.nfactors; i++) {
		const struct kvt_factor *f = &v->src.factor[i];

		if (f->axis == KVT_AXIS_S && f->n > 1)
			add_level(nest, k, (struct kvt_level){
				.kind = KVT_LEVEL_SLOT, .axis = KVT_AXIS_S,
				.div = f->div, .n = f->n, .src = f->stride });
	}
	add_level(nest, k, (struct kvt_level){
		.kind = KVT_LEVEL_BLOCK, .axis = KVT_AXIS_B, .div = 1,
		.n = v->src.shape.n[KVT_AXIS_B],
		.src = stride_of(&v->src, KVT_AXIS_B) });
}

/*
 * Once a block is chosen, its entries say which slots move; the innermost part
 * of S is walked with them.
 */
static enum kvt_status add_entries(struct kvt_nest *nest, int k, struct kvt_error *err)
{
	struct kvt_level *l = nest->level[k];
	struct kvt_level entry = { .kind = KVT_LEVEL_ENTRY, .axis = KVT_AXIS_S,
				   .div = 1, .n = 1 };
	int last = 0;
	int64_t div = INT64_MAX;

	for (int i = 0; i < nest->nlevels[k]; i++) {
		if (l[i].kind == KVT_LEVEL_BLOCK || l[i].kind == KVT_LEVEL_SLOT)
			last = i;
		if (l[i].kind != KVT_LEVEL_SLOT)
			continue;
		if (l[i].div > div)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"the source has the inner part of the slot axis outside of the outer one");
		div = l[i].div;
	}
	if (l[last].kind == KVT_LEVEL_SLOT) {
		l[last].kind = KVT_LEVEL_ENTRY;
		return KVT_OK;
	}
	entry.src = l[last].src;	/* never stepped by: it keeps the order */
	insert_level(nest, k, last + 1, entry);
	return KVT_OK;
}

static enum kvt_status add_levels(struct kvt_nest *nest, int k, const struct kvt_both *v,
				  struct kvt_error *err)
{
	static const enum kvt_axis plain[] = { KVT_AXIS_L, KVT_AXIS_H, KVT_AXIS_K };
	enum kvt_status status;

	for (int i = 0; i < 3; i++)
		if ((status = add_axis(nest, k, v, plain[i], err)))
			return status;
	if (nest->taps && (status = add_axis(nest, k, v, KVT_AXIS_S, err)))
		return status;
	if (nest->exchange.axis == KVT_AXIS_D)
		status = add_ranges(nest, v, err);
	else
		status = add_axis(nest, k, v, KVT_AXIS_D, err);
	if (status)
		return status;
	add_blocks(nest, k, v);
	return add_entries(nest, k, err);
}

/* ---- two planes --------------------------------------------------------- */

static bool same_level(const struct kvt_level *a, const struct kvt_level *b)
{
	return a->kind == b->kind && a->axis == b->axis && a->div == b->div &&
	       a->n == b->n && a->src == b->src;
}

/*
 * The destination may split an axis for keys and not for values, or the other
 * way round: cut level 'at' of plane k as 'like' is.
 */
static void split_level(struct kvt_nest *nest, int k, int at,
			const struct kvt_level *like)
{
	struct kvt_level *l = &nest->level[k][at], inner = *l;
	int64_t m = like->div / l->div;

	if (l->kind != KVT_LEVEL_PLAIN || l->axis != like->axis || m < 2 ||
	    l->n != like->n * m)
		return;
	l->div = like->div;
	l->n = like->n;
	l->src *= m;
	l->dst[0] *= m;
	l->dst[1] *= m;
	inner.n = m;
	insert_level(nest, k, at + 1, inner);
}

/*
 * Levels slower than the step from keys to values are common to both, but may
 * have two destinations; the others belong to one of them.
 */
static enum kvt_status add_plane(struct kvt_nest *nest, struct kvt_error *err)
{
	int64_t apart = nest->src_offset[1] - nest->src_offset[0];
	struct kvt_level plane = { .kind = KVT_LEVEL_PLANE, .axis = KVT_AXIS_K,
				   .div = 1, .n = 2 };
	int at = 0;

	nest->first_plane = apart < 0;
	plane.src = apart < 0 ? -apart : apart;
	for (; at < nest->nlevels[0] && nest->level[0][at].src > plane.src; at++) {
		struct kvt_level *a = &nest->level[0][at], *b = &nest->level[1][at];

		if (at < nest->nlevels[1]) {
			split_level(nest, 0, at, b);
			split_level(nest, 1, at, a);
		}
		if (at >= nest->nlevels[1] || !same_level(a, b))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"keys and values of the source interleave in different ways");
		a->dst[1] = b->dst[1];
		b->dst[0] = a->dst[0];
	}
	insert_level(nest, 0, at, plane);
	insert_level(nest, 1, at, plane);
	return KVT_OK;
}

/* ---- the nest ----------------------------------------------------------- */

/* A loop of one step is none; where a plane is chosen both planes have it. */
static void drop_single(struct kvt_nest *nest, int k)
{
	struct kvt_level *l = nest->level[k];
	int n = 0;

	for (int i = 0; i < nest->nlevels[k]; i++)
		if (l[i].kind != KVT_LEVEL_PLAIN || l[i].n > 1)
			l[n++] = l[i];
	nest->nlevels[k] = n;
}

/* Loops that continue the innermost run on both sides make it longer. */
static void fuse_inner(struct kvt_nest *nest, int k)
{
	while (nest->nlevels[k] > 0) {
		const struct kvt_level *l = &nest->level[k][nest->nlevels[k] - 1];

		if (l->kind != KVT_LEVEL_PLAIN || l->cut || l->axis == KVT_AXIS_L ||
		    l->src != nest->inner[k] || l->dst[0] != l->src ||
		    l->dst[1] != l->src)
			return;
		nest->inner[k] *= l->n;
		nest->nlevels[k]--;
	}
}

/* Does every level step over all that is inside of it? */
static enum kvt_status check_order(const struct kvt_nest *nest, int k,
				   struct kvt_error *err)
{
	int64_t reach = nest->inner[k];

	for (int i = nest->nlevels[k] - 1; i >= 0; i--) {
		const struct kvt_level *l = &nest->level[k][i];

		if (l->n < 2)
			continue;
		if (l->src < reach)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"the %s stride of the source is %lld, less than the %lld bytes it steps over: heads cannot be sent out of this layout; rewrite the source first: kvtool relayout --to=nhd -o OUT IN",
					kvt_axis_name(l->axis), LL(l->src), LL(reach));
		reach += (l->n - 1) * l->src;
	}
	return KVT_OK;
}

static bool needs_planes(const struct kvt_xfer *x)
{
	return x->src.views.count == 2 || x->dst.views.count == 2;
}

enum kvt_status kvt_nest_init(struct kvt_nest *out, const struct kvt_xfer *x,
			      const struct kvt_pair *pair, struct kvt_error *err)
{
	struct kvt_nest nest = { .xfer = x, .exchange = pair->exchange,
				 .nplanes = needs_planes(x) ? 2 : 1,
				 .taps = kvt_spec_axis(&x->src.spec) == KVT_AXIS_D };
	enum kvt_status status;

	if (nest.taps && nest.nplanes == 2)
		return kvt_fail(err, KVT_UNSUPPORTED, "a conv state has two planes");
	for (int k = 0; k < nest.nplanes; k++) {
		struct kvt_both v;

		if ((status = kvt_nest_views(&v, &nest, k, err)) ||
		    (status = add_levels(&nest, k, &v, err)))
			return status;
		nest.inner[k] = v.src.shape.elem;
		nest.src_offset[k] = v.src.offset;
		nest.dst_offset[k] = v.dst.offset;
	}
	if (nest.nplanes == 2 && (status = add_plane(&nest, err)))
		return status;
	for (int k = 0; k < nest.nplanes; k++) {
		drop_single(&nest, k);
		fuse_inner(&nest, k);
		if ((status = check_order(&nest, k, err)))
			return status;
	}
	*out = nest;
	return KVT_OK;
}
