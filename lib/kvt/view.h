/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - where the elements of a layout are in memory, and the way back
 *
 * Layouts, slices, blocks and tiles are all views.  What may be wrong with one
 * that came from a file is found by kvt_view_end(), once; nothing else checks.
 */
#ifndef KVT_VIEW_H
#define KVT_VIEW_H

#include "lib/kvt/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- views -------------------------------------------------------------- */

/*
 * One term of an address: ((index[axis] / div) % n) * stride.  An axis without
 * a factor has extent 1.
 */
struct kvt_factor {
	enum kvt_axis axis;
	int64_t div, n, stride;
};

enum { KVT_MAX_FACTORS = 12 };

/*
 * A box of KV-cache elements inside some buffer.  Layouts, slices, blocks and
 * tiles are all views; they differ only in how they were made.
 */
struct kvt_view {
	struct kvt_shape shape;
	int64_t offset;			/* of the element with all indices 0 */
	int nfactors;			/* slowest first as the layout has them */
	struct kvt_factor factor[KVT_MAX_FACTORS];
};

/*
 * What a layout makes of a shape: one view, or one for keys and one for
 * values (each with K extent 1) where the planes differ.
 */
struct kvt_views {
	int count;			/* 1 or 2 */
	int first_k;			/* K index of view[0] */
	struct kvt_view view[2];
	int64_t nbytes;			/* of the dense buffer that holds them */
};

/*
 * The dense buffer that holds just 'box' of a cache with this layout; indices
 * inside the views start at 0.  Separate planes follow each other, keys first.
 * Fails (KVT_BAD_INPUT) if a split does not divide its axis, if an axis that
 * the layout lacks has an extent above 1, or if the size overflows.  The box
 * must cover all of a split axis (S or D).
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_layout_views(struct kvt_views *out, const struct kvt_layout *layout,
		 const struct kvt_box *box, int64_t elem,
		 struct kvt_error *err);

/*
 * The part of 'in' with begin <= index < end along 'axis', renumbered from 0.
 * On a split axis the range must be a union of whole inner parts, or lie
 * inside one of them; otherwise KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_view_narrow(struct kvt_view *out, const struct kvt_view *in,
		enum kvt_axis axis, int64_t begin, int64_t end,
		struct kvt_error *err);

/* Narrow along every axis, in every view; 'box' counts from the views' own 0. */
KVT_MUST_CHECK enum kvt_status
kvt_views_narrow(struct kvt_views *out, const struct kvt_views *in,
		 const struct kvt_box *box, struct kvt_error *err);

/* Byte offset of one element; the index must lie inside the shape. */
KVT_API int64_t kvt_view_at(const struct kvt_view *view, const int64_t index[KVT_NAXES]);

/*
 * The inverse: the element that byte 'offset' is part of.  False if none is
 * there: before the view, behind it, or in a gap that its strides leave.  The
 * view must have passed kvt_view_end().  This takes one step a factor where no
 * index reaches into the next one of a slower axis, as in every layout, padded
 * or not; in other views it searches.  Where elements overlap, one is found.
 */
bool kvt_view_find(const struct kvt_view *view, int64_t offset,
		   int64_t index[KVT_NAXES]);

/* The same two for views that belong together; indices count from their box. */
/* How many of K there are, in one plane or in two. */
int64_t kvt_views_kv(const struct kvt_views *views);
KVT_API int64_t kvt_views_at(const struct kvt_views *views,
			     const int64_t index[KVT_NAXES]);
bool kvt_views_find(const struct kvt_views *views, int64_t offset,
		    int64_t index[KVT_NAXES]);

/*
 * Replace the stride of an unsplit axis, for padded pages and shared tensors:
 * there strides come from a descriptor, never from extents.
 */
KVT_API void kvt_view_set_stride(struct kvt_view *view, enum kvt_axis axis,
			 int64_t stride);

/* The stride of an unsplit axis; 0 if it has no factor. */
int64_t kvt_view_stride(const struct kvt_view *view, enum kvt_axis axis);

/*
 * One past the last byte of the view, 0 if it is empty.  Refuses
 * (KVT_BAD_INPUT) a negative offset or stride and an end beyond 2^63.  A view
 * with strides from a file must pass here, and its end be compared with the
 * buffer, before anything else is done with it.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_view_end(int64_t *out, const struct kvt_view *view, struct kvt_error *err);

#ifdef __cplusplus
}
#endif

#endif
