/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h - when the batches of one transfer are posted, on the wire, done
 *
 * A rank posts its batches one after the other.  Batches that meet at the card
 * of a source or a destination share it.  Copies through buffers, if any, come
 * before and after, one at a time on each rank.
 */
#ifndef KVTOOL_SIM_CLOCK_H
#define KVTOOL_SIM_CLOCK_H

#include "lib/ops/transfer/posts.h"

/* Nanoseconds from the start of the transfer. */
struct clock_batch {
	int64_t ready;			/* its bytes are where they can be read */
	int64_t post, posted;		/* the poster is busy from, to */
	int64_t begin, arrived;		/* on the wire from, to */
	int64_t end;			/* arrived, and copied to its place */
	int64_t closed;			/* the closed form, of the batch alone */
};

struct clock_times {
	struct clock_batch *batch;	/* owned; one each of posts->batch */
	bool alone;			/* no two batches have a rank in common */
	int64_t end, closed;		/* the last of them; the longest of them */
	int64_t posting;		/* the poster that is busy longest */
	double worst;			/* largest |end - closed| / closed */
};

KVT_MUST_CHECK enum kvt_status
clock_run(struct clock_times *out, const struct posts *posts,
	  const struct posts_how *how, struct kvt_error *err);
void clock_free(struct clock_times *times);

#endif
