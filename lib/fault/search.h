/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - a diagnosis that is under way; private to lib/fault */
#ifndef KVT_FAULT_SEARCH_H
#define KVT_FAULT_SEARCH_H

#include "lib/fault/fault.h"

enum { MAX_SEEDS = 16 };

struct search {
	struct fault_case c;
	const struct kvt_fault *only;	/* row that is tested; NULL: all */
	int64_t ndiffer;		/* elements, of all pages */
	int64_t *page_differs;		/* [L][B]: elements */
	uint8_t *page_at_all;		/* [L][B], in all of the window */
	uint8_t *part_differs;		/* [S][H][K] */

	/* join.c: blocks by a hash of their first row, and a second map */
	int64_t nbuckets, *bucket, *chain, *other_map;

	/*
	 * A part that is not as predicted does not refute the fault, but is left to
	 * others; rows that differ, here and there, say what is worth checking.
	 */
	bool partial;
	int nseeds;
	int64_t seed[MAX_SEEDS][KVT_NAXES];

	/* What the struct kvt_struck of the diagnosis shows; of the whole window. */
	bool striking;
	uint8_t *layer, *block, *head, *kv;
	int64_t head_begin;		/* of the window in it */
};

/* ---- check.c ------------------------------------------------------------ */

/* Does the fault explain the window, or for a partial search, what of it? */
void kvt_fault_test(struct kvt_hypothesis *out, struct search *s, const struct fault *f);
/* Checks the arguments that 'h' has already; counts are those of them afterwards. */
bool kvt_fault_check_args(struct kvt_hypothesis *h, const struct search *s,
			  const struct fault *f);

/* ---- join.c, moves.c ---------------------------------------------------- */

/* Fills the map of an axis, and says what it is. */
void kvt_fault_join(struct search *s, enum kvt_axis axis);
/* 'taken' is room for an index of each. */
void kvt_fault_name_moves(struct fault_case *c, enum kvt_axis axis, int64_t *taken);

#endif
