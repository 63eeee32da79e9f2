/* SPDX-License-Identifier: Apache-2.0 */
/* loops.h - the loops over one axis of two views; private to lib/ */
#ifndef KVT_LAYOUT_LOOPS_H
#define KVT_LAYOUT_LOOPS_H

#include "lib/kvt/view.h"

/* One part of an axis: (index / div) % n, and its stride on both sides. */
struct kvt_loop {
	int64_t div, n, src, dst;
};

/*
 * Appends the loops over 'axis' to loop[*count], split where either side splits
 * it; none if the extent is 1.  Both views have the same extent.
 */
KVT_MUST_CHECK enum kvt_status
kvt_axis_loops(struct kvt_loop *loop, int *count, const struct kvt_view *dst,
	       const struct kvt_view *src, enum kvt_axis axis, struct kvt_error *err);

#endif
