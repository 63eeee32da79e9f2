/* SPDX-License-Identifier: Apache-2.0 */
/* half.h - the keys or the values of a box in memory, by address */
#ifndef KVT_OPS_COMPARE_HALF_H
#define KVT_OPS_COMPARE_HALF_H

#include "lib/dump/read.h"
#include "lib/ops/compare/terms.h"

/*
 * What verifying commands read of either side: addresses are sums of terms, so
 * that nothing that made one side out of the other is used to compare them.
 */
struct half {
	const struct placed *at;
	struct kvt_view view;
	struct terms terms;		/* free with terms_free() */
};

/* 'k' counts in the box; elem is bytes of an element. */
KVT_MUST_CHECK enum kvt_status
half_init(struct half *out, const struct placed *at, int k, int64_t elem,
	  struct kvt_error *err);

/* Where the head at 'index' of the file begins; K and D of it do not count. */
const uint8_t *half_at(const struct half *half, const int64_t index[KVT_NAXES]);

#endif
