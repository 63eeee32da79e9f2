/* SPDX-License-Identifier: Apache-2.0 */
/* link_fit.h - the figures of a link out of measured batches */
#ifndef KVTOOL_LINK_FIT_H
#define KVTOOL_LINK_FIT_H

#include "lib/kvt/link.h"

/* A batch that somebody timed. */
struct kvt_measured {
	double n, bytes, us;		/* each above 0 */
	double post_us;			/* of it; 0: not known */
	int64_t line;
};

struct kvt_link_error {
	double mean, most;		/* of |predicted / measured - 1| */
};

/*
 * The link that predicts 'row' best: least squares of the logarithm, so that
 * short times count as much as long ones.  'overlap' below 0 tries all four.
 * Sets the figures of 'out' and leaves its words alone.
 */
void kvt_link_fit(struct kvt_link *out, const struct kvt_measured *row, int n,
		  int overlap);

/* How well a link predicts the rows. */
struct kvt_link_error kvt_link_errors(const struct kvt_link *link,
				      const struct kvt_measured *row, int n);

/* Predicted over measured, minus 1. */
double kvt_link_residual(const struct kvt_link *link, const struct kvt_measured *row);

#endif
