/* SPDX-License-Identifier: Apache-2.0 */
/* link_fit.h - the figures of a link out of measured batches */
#ifndef KVTOOL_LINK_FIT_H
#define KVTOOL_LINK_FIT_H

#include "cli/measured.h"
#include "lib/kvt_link.h"

struct link_error {
	double mean, most;		/* of |predicted / measured - 1| */
};

/*
 * The link that predicts 'row' best: least squares of the logarithm, so that
 * short times count as much as long ones.  'overlap' below 0 tries all four.
 * Sets the figures of 'out' and leaves its words alone.
 */
void link_fit(struct kvt_link *out, const struct measured_row *row, int n, int overlap);

/* How well a link predicts the rows. */
struct link_error link_errors(const struct kvt_link *link, const struct measured_row *row,
			      int n);

/* Predicted over measured, minus 1. */
double link_residual(const struct kvt_link *link, const struct measured_row *row);

#endif
