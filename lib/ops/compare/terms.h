/* SPDX-License-Identifier: Apache-2.0 */
/* terms.h - addresses as sums of terms, for comparing without plans and kernels */
#ifndef KVT_OPS_COMPARE_TERMS_H
#define KVT_OPS_COMPARE_TERMS_H

#include "lib/kvt/kvt.h"

/* What each index adds to an address: at[axis][i], for one view. */
struct terms {
	int64_t *at[KVT_NAXES];
	int64_t *storage;
	bool dense;		/* elements of a head are neighbours, in order */
};

/* False: out of memory.  A zeroed struct can be freed. */
bool terms_init(struct terms *t, const struct kvt_view *view);
void terms_free(struct terms *t);

/* Where the elements of a head begin; at[KVT_AXIS_D] does not count. */
int64_t terms_offset(const struct terms *t, const int64_t at[KVT_NAXES]);

/* The keys or the values, whether they are a view of their own or not. */
KVT_MUST_CHECK enum kvt_status
view_of_k(struct kvt_view *out, const struct kvt_views *views, int k,
	  struct kvt_error *err);

#endif
