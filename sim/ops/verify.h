/* SPDX-License-Identifier: Apache-2.0 */
/* verify.h - the digest that both sides of a transfer have: verify_digests.c */
#ifndef KVT_OPS_COMPARE_TRANSFER_H
#define KVT_OPS_COMPARE_TRANSFER_H

#include "lib/ops/compare/pairs.h"
#include "sim/ops/exec.h"

/* Do all tokens of both sides move?  Then their digests are equal. */
bool same_requests(const struct kvt_sides *sides);
/* KVT_MISMATCH: a live token of b has another place in a than the pairs say. */
KVT_MUST_CHECK enum kvt_status
check_all_paired(const struct slot_pairs *pairs, struct pairs_side a,
		 struct pairs_side b, struct kvt_error *err);
/* The sums of all groups of [after->n] ranks, into out->digest. */
void add_digests(struct kvt_verified *out, const struct kvt_ranks *after,
		 const struct digests *of);

#endif
