/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.h - addresses summed from their definition, for comparing
 *
 * What the factors of a view add for each index is listed once; an address is then
 * the sum of six numbers.  No plan and no kernel has a part in it, so nothing that
 * made one side out of the other is used to compare them.
 */
#ifndef KVT_OPS_COMPARE_ADDRESS_H
#define KVT_OPS_COMPARE_ADDRESS_H

#include "lib/dump/read.h"

/* What each index adds to an address: at[axis][i], for one view. */
struct address_terms {
	int64_t *at[KVT_NAXES];
	int64_t *storage;
	bool dense;		/* elements of a head are neighbours, in order */
};

/* False: out of memory.  A zeroed struct can be freed. */
bool address_terms_init(struct address_terms *t, const struct kvt_view *view);
void address_terms_free(struct address_terms *t);

/* Where the elements of a head begin; at[KVT_AXIS_D] does not count. */
int64_t address_terms_offset(const struct address_terms *t, const int64_t at[KVT_NAXES]);

/* The keys or the values, whether they are a view of their own or not. */
KVT_MUST_CHECK enum kvt_status
views_half(struct kvt_view *out, const struct kvt_views *views, int k,
	  struct kvt_error *err);

/*
 * What verifying commands read of either side: addresses are sums of terms, so
 * that nothing that made one side out of the other is used to compare them.
 */
struct addresses {
	const struct placed *at;
	struct kvt_view view;
	struct address_terms terms;		/* free with address_terms_free() */
};

/* 'k' counts in the box; elem is bytes of an element. */
KVT_MUST_CHECK enum kvt_status
addresses_init(struct addresses *out, const struct placed *at, int k, int64_t elem,
	  struct kvt_error *err);

/* Where that block of that layer begins: L and B of 'index' count, in the dump. */
const uint8_t *address_of_block(const struct addresses *half,
				const int64_t index[KVT_NAXES]);

#endif
