/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - where the elements of a layout are in memory
 *
 * In: the order of axes, a shape.  Out: an offset and factors, and element (l, b, ..) is
 * at
 *
 *	offset + sum over factors of  index[axis] / div % n * stride	bytes
 *
 * An axis that is split has two factors.  Elements of 4 bytes, B 2, S 4, D 8, in the
 * order "B D/4 S D%4", which engines write with an x:
 *
 *	axis	B	D	S	D
 *	div	1	4	1	1
 *	n	2	2	4	4
 *	stride	128	64	16	4
 *
 * Dense strides are the products of what is inside.  Narrowing changes the offset and
 * the n of the outermost factor of an axis, or fixes that one and goes on inside it; a
 * range that cuts through a group that the layout keeps together is refused.  Whatever a
 * size is multiplied by is checked before, so no address overflows behind
 * kvt_view_end().
 */
#include "lib/kvt/view.h"
#include "lib/layout/words.h"

#include <assert.h>
#include <string.h>

/* ---- from an order to addresses ----------------------------------------- */

/* Extent and divisor of one letter, for this shape. */
static enum kvt_status measure_part(struct kvt_factor *out, const struct kvt_part *part,
				    const struct kvt_shape *shape, struct kvt_error *err)
{
	int64_t n = shape->n[part->axis], split = part->split;

	*out = (struct kvt_factor){ .axis = part->axis, .div = 1, .n = n };
	if (part->kind == KVT_WHOLE)
		return KVT_OK;
	if (!split)
		split = shape->elem < 16 ? 16 / shape->elem : 1;
	if (n % split)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s extent %lld is not a multiple of the split %lld",
				kvt_axis_name(part->axis), LL(n), LL(split));
	if (part->kind == KVT_OUTER) {
		out->div = split;
		out->n = n / split;
	} else {
		out->n = split;
	}
	return KVT_OK;
}

/* An axis that the order lacks is nowhere in memory: there can be only one. */
static enum kvt_status check_axes(const struct kvt_order *order,
				  const struct kvt_shape *shape, struct kvt_error *err)
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (shape->n[a] > 1 && kvt_order_find(order, (enum kvt_axis)a) < 0)
			return kvt_fail(err, KVT_BAD_INPUT,
					"the layout has no %s axis (%c), but the %s extent is %lld, not 1",
					kvt_axis_name((enum kvt_axis)a),
					kvt_axis_letter((enum kvt_axis)a),
					kvt_axis_name((enum kvt_axis)a), LL(shape->n[a]));
	return KVT_OK;
}

/* Dense strides, fastest part last; '*nbytes' is the size of it all. */
static enum kvt_status view_of_order(struct kvt_view *out, int64_t *nbytes,
				     const struct kvt_order *order,
				     const struct kvt_shape *shape, struct kvt_error *err)
{
	int64_t stride = shape->elem;
	enum kvt_status status;

	if ((status = kvt_shape_nbytes(nbytes, shape, err)) ||
	    (status = check_axes(order, shape, err)))
		return status;
	*out = (struct kvt_view){ .shape = *shape, .nfactors = order->nparts };
	for (int i = order->nparts - 1; i >= 0; i--) {
		struct kvt_factor *f = &out->factor[i];

		if ((status = measure_part(f, &order->part[i], shape, err)))
			return status;
		f->stride = stride;
		/*
		 * The product of all parts is the shape's; only a shape of no
		 * data can have an inner part that is larger than its axis.
		 */
		if (f->n > 1 && __builtin_mul_overflow(stride, f->n, &stride))
			return kvt_fail(err, KVT_BAD_INPUT,
					"shape is larger than 2^63 bytes");
	}
	return KVT_OK;
}

static enum kvt_status two_planes(struct kvt_views *out, const struct kvt_layout *layout,
				  const struct kvt_shape *shape,
				  const struct kvt_box *box, struct kvt_error *err)
{
	bool joined = kvt_order_find(&layout->plane[0], KVT_AXIS_K) >= 0;
	int64_t begin = box->begin[KVT_AXIS_K], end = box->end[KVT_AXIS_K];
	int64_t nk = end - begin, at = 0, nbytes;
	enum kvt_status status;

	if (begin < 0 || end > 2 || begin >= end)
		return kvt_fail(err, KVT_BAD_INPUT,
				"kv range %lld:%lld is outside the two planes",
				LL(begin), LL(end));
	out->first_k = (int)begin;
	for (int i = 0; i < nk; i++) {
		struct kvt_view *view = &out->view[i];
		struct kvt_shape plane = *shape;

		if (!joined)
			plane.n[KVT_AXIS_K] = 1;
		status = view_of_order(view, &nbytes,
				       &layout->plane[out->first_k + i], &plane, err);
		if (status)
			return status;
		if (joined) {
			status = kvt_view_narrow(view, view, KVT_AXIS_K, i, i + 1, err);
			if (status)
				return status;
			out->nbytes = nbytes;
		} else {
			view->offset = at;
			at += nbytes;
			out->nbytes = at;
		}
	}
	out->count = (int)nk;
	return KVT_OK;
}

enum kvt_status kvt_layout_views(struct kvt_views *out, const struct kvt_layout *layout,
				 const struct kvt_box *box, int64_t elem,
				 struct kvt_error *err)
{
	struct kvt_shape shape = kvt_box_shape(box, elem);
	struct kvt_views views = { .count = 1 };
	enum kvt_status status;
	int64_t whole;

	/* before anything is multiplied, planes included */
	if ((status = kvt_shape_nbytes(&whole, &shape, err)))
		return status;
	if (layout->nplanes == 2)
		status = two_planes(&views, layout, &shape, box, err);
	else
		status = view_of_order(&views.view[0], &views.nbytes,
				       &layout->plane[0], &shape, err);
	if (layout->nplanes == 1)
		views.first_k = (int)box->begin[KVT_AXIS_K];
	if (!status)
		*out = views;
	return status;
}

/* ---- narrowing ---------------------------------------------------------- */

static struct kvt_factor *outermost(struct kvt_view *view, enum kvt_axis axis)
{
	struct kvt_factor *found = NULL;

	for (int i = 0; i < view->nfactors; i++) {
		struct kvt_factor *f = &view->factor[i];

		if (f->axis == axis && (!found || f->div > found->div))
			found = f;
	}
	return found;
}

enum kvt_status kvt_view_narrow(struct kvt_view *out, const struct kvt_view *in,
				enum kvt_axis axis, int64_t begin, int64_t end,
				struct kvt_error *err)
{
	struct kvt_view view = *in;
	int64_t extent = in->shape.n[axis], b = begin, e = end;

	if (begin < 0 || end < begin || end > extent)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s range %lld:%lld is outside 0:%lld",
				kvt_axis_name(axis), LL(begin), LL(end), LL(extent));
	view.shape.n[axis] = end - begin;
	if (begin == end) {	/* nothing is where groups cannot be cut, too */
		for (int i = 0; i < view.nfactors; i++)
			if (view.factor[i].axis == axis)
				view.factor[i].n = 0;
		*out = view;
		return KVT_OK;
	}
	while (b != 0 || e != extent) {
		struct kvt_factor *f = outermost(&view, axis);

		assert(f);	/* an axis without a factor has extent 1 */
		if (b % f->div == 0 && e % f->div == 0) {
			view.offset += b / f->div * f->stride;
			f->n = (e - b) / f->div;
			break;
		}
		if (b / f->div != (e - 1) / f->div)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s range %lld:%lld cuts through groups of %lld that the layout keeps together",
					kvt_axis_name(axis), LL(begin),
					LL(end), LL(f->div));
		/* inside one outer index: that one is fixed, go on inside it */
		view.offset += b / f->div * f->stride;
		extent = f->div;
		b %= extent;
		e = (e - 1) % extent + 1;
		view.nfactors--;
		memmove(f, f + 1, (size_t)(view.factor + view.nfactors - f) * sizeof(*f));
	}
	*out = view;
	return KVT_OK;
}

enum kvt_status kvt_views_narrow(struct kvt_views *out, const struct kvt_views *in,
				 const struct kvt_box *box, struct kvt_error *err)
{
	struct kvt_views views = *in;
	int64_t k0 = box->begin[KVT_AXIS_K], k1 = box->end[KVT_AXIS_K];
	int first = 0;

	if (in->count == 2) {
		/* each view holds one K: choose views instead of cutting them */
		if (k0 < 0 || k1 > 2 || k0 >= k1)
			return kvt_fail(err, KVT_BAD_INPUT,
					"kv range %lld:%lld is outside 0:2",
					LL(k0), LL(k1));
		first = (int)k0;
		views.count = (int)(k1 - k0);
	}
	views.first_k = in->first_k + (int)k0;
	for (int i = 0; i < views.count; i++) {
		struct kvt_view view = in->view[first + i];

		for (int a = 0; a < KVT_NAXES; a++) {
			enum kvt_status status;

			if (a == KVT_AXIS_K && in->count == 2)
				continue;
			status = kvt_view_narrow(&view, &view, a, box->begin[a],
						 box->end[a], err);
			if (status)
				return status;
		}
		views.view[i] = view;
	}
	*out = views;
	return KVT_OK;
}

int64_t kvt_view_at(const struct kvt_view *view, const int64_t index[KVT_NAXES])
{
	int64_t at = view->offset;

	for (int i = 0; i < view->nfactors; i++) {
		const struct kvt_factor *f = &view->factor[i];

		/* n is 0 where there is no data; asking is harmless then */
		if (f->n > 1)
			at += index[f->axis] / f->div % f->n * f->stride;
	}
	return at;
}

void kvt_view_set_stride(struct kvt_view *view, enum kvt_axis axis, int64_t stride)
{
	for (int i = 0; i < view->nfactors; i++)
		if (view->factor[i].axis == axis) {
			assert(view->factor[i].div == 1);
			view->factor[i].stride = stride;
		}
}

int64_t kvt_view_stride(const struct kvt_view *view, enum kvt_axis axis)
{
	for (int i = 0; i < view->nfactors; i++)
		if (view->factor[i].axis == axis)
			return view->factor[i].stride;
	return 0;
}

int64_t kvt_views_kv(const struct kvt_views *views)
{
	return views->count == 2 ? 2 : views->view[0].shape.n[KVT_AXIS_K];
}

enum kvt_status kvt_view_end(int64_t *out, const struct kvt_view *view,
			     struct kvt_error *err)
{
	int64_t end = view->offset, reach, slack;
	bool beyond = view->offset < 0 ||
		      __builtin_add_overflow(end, view->shape.elem, &end);

	for (int i = 0; i < view->nfactors; i++) {
		const struct kvt_factor *f = &view->factor[i];

		if (f->stride < 0)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s stride is %lld, expected 0 or more",
					kvt_axis_name(f->axis), LL(f->stride));
		if (f->n == 0)
			continue;
		/* walks step one stride too far before they turn back */
		beyond |= __builtin_mul_overflow(f->n, f->stride, &reach) ||
			  __builtin_add_overflow(end, reach, &slack);
		if (!beyond)
			end = slack - f->stride;
	}
	if (beyond)
		return kvt_fail(err, KVT_BAD_INPUT,
				"view at byte %lld reaches outside 0 to 2^63 bytes",
				LL(view->offset));
	for (int a = 0; a < KVT_NAXES; a++)
		if (view->shape.n[a] == 0)
			end = 0;
	*out = end;
	return KVT_OK;
}
