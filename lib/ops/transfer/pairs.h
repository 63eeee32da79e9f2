/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairs.h - the batches of a transfer, one a pair of ranks, and their times
 *
 * A pair is one batch with the operations of all groups.  The destination posts
 * it, as a connector does that pulls; what it posts for several sources it posts
 * in turn.  Batches that meet at a card share it fairly, and one that is alone
 * takes what the closed form says.
 */
#ifndef KVTOOL_SIM_PAIRS_H
#define KVTOOL_SIM_PAIRS_H

#include "lib/kvt/link.h"
#include "lib/ops/transfer/transfer.h"

struct sim_batch {
	int64_t src_rank, dst_rank;
	int64_t ops, bytes;
	int64_t link_ops;		/* as the link cuts them */
	/* nanoseconds from the start of the transfer */
	int64_t post, posted;		/* the poster is busy from, to */
	int64_t begin, end;		/* the card is */
};

struct sim_pairs {
	int64_t n, room;
	struct sim_batch *batch;	/* owned; by destination, then source */
	int64_t src_ranks, dst_ranks;
	int64_t ops, bytes, duration;
};

KVT_MUST_CHECK enum kvt_status
sim_pairs_count(struct sim_pairs *out, const struct sim *sim, enum kvt_scope scope,
		const struct kvt_link *link, struct kvt_error *err);

/*
 * Replaces the operations by such of at most 'chunk' bytes: what is left if each
 * side gathers into, and scatters out of, a buffer of that size.
 */
void sim_pairs_stage(struct sim_pairs *pairs, int64_t chunk,
		     const struct kvt_link *link);

KVT_MUST_CHECK enum kvt_status
sim_pairs_time(struct sim_pairs *pairs, const struct kvt_link *link,
	       struct kvt_error *err);

void sim_pairs_free(struct sim_pairs *pairs);

#endif
