/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batches.h - what a stack posts for a transfer on a link, and when it is done
 *
 * A batch is what one pair of ranks exchanges: the operations of all groups, posted
 * together.  batches.c counts them, clock.c tells the time.
 */
#ifndef KVT_OPS_BATCHES_H
#define KVT_OPS_BATCHES_H

#include "lib/kvt/link.h"
#include "lib/kvt/run.h"
#include "lib/kvt/stack.h"
#include "sim/ops/transfer.h"

/* A zeroed one posts scope rfc of a link that takes no time. */
struct kvt_batch_how {
	struct kvt_run run;		/* whom to warn */
	struct kvt_posting posting;
	bool force;			/* what the stack refuses counts as scope layer */
	bool push;			/* sources post; else destinations pull */
	int64_t stage, copy_rate;	/* bytes of a buffer, 0: none; bytes a second */
	struct kvt_link link;		/* its words are borrowed */
	int64_t latency_ps, window;	/* until a completion is seen; ops, 0: all */
	enum kvt_share share;
};

/* The link as it is for one batch: a window may slow it down. */
struct kvt_link kvt_batch_link(const struct kvt_batch_how *how, int64_t ops,
			       int64_t bytes);

/* ---- what is posted: batches.c -------------------------------------------- */

struct kvt_batch {
	int64_t src_rank, dst_rank;
	int64_t listed, merged;		/* ops before and after the stack merges */
	int64_t ops, bytes;		/* as they are posted: cut for the link */
};

struct kvt_batches {
	int64_t n;
	struct kvt_batch *batch;	/* owned; by destination, then source */
	int64_t src_ranks, dst_ranks;
	struct kvt_batch sum;
};

/*
 * Of all groups.  What the stack refuses is KVT_BAD_INPUT, or a warning and scope
 * layer where that is forced.
 */
KVT_MUST_CHECK enum kvt_status
kvt_batches_count(struct kvt_batches *out, const struct kvt_transfer_plan *transfer,
		  const struct kvt_batch_how *how, struct kvt_error *err);

/* Under a scope, cut as the link says; NULL: not cut. */
KVT_MUST_CHECK enum kvt_status
kvt_batches_of_scope(struct kvt_batches *out, const struct kvt_transfer_plan *transfer,
		     enum kvt_scope scope, const struct kvt_link *link,
		     struct kvt_error *err);

/* One batch of 'ops' operations of 'size' bytes, between one pair of ranks. */
KVT_MUST_CHECK enum kvt_status
kvt_batches_uniform(struct kvt_batches *out, int64_t ops, int64_t size,
		    const struct kvt_batch_how *how, struct kvt_error *err);
void kvt_batches_free(struct kvt_batches *posts);

/* The posting that is counted for a group, with force applied. */
KVT_MUST_CHECK enum kvt_status
kvt_batch_start(struct kvt_posts *out, const struct kvt_transfer_group *group,
		const struct kvt_pair *pair, const struct kvt_batch_how *how,
		struct kvt_error *err);

/* ---- when: clock.c --------------------------------------------------------- */

/* Nanoseconds from the start of the transfer. */
struct kvt_batch_time {
	int64_t ready;			/* its bytes are where they can be read */
	int64_t post, posted;		/* the poster is busy from, to */
	int64_t begin, arrived;		/* on the wire from, to */
	int64_t end;			/* arrived, and copied to its place */
	int64_t closed;			/* the closed form, of the batch alone */
};

struct kvt_batch_times {
	struct kvt_batch_time *batch;	/* owned; one each of posts->batch */
	bool alone;			/* no two batches have a rank in common */
	int64_t end, closed;		/* the last of them; the longest of them */
	int64_t posting;		/* the poster that is busy longest */
	double worst;			/* largest |end - closed| / closed */
};

KVT_MUST_CHECK enum kvt_status
kvt_clock_run(struct kvt_batch_times *out, const struct kvt_batches *posts,
	      const struct kvt_batch_how *how, struct kvt_error *err);

/* On a plain link: destinations pull, cards are shared fairly, all is one window. */
KVT_MUST_CHECK enum kvt_status
kvt_clock_run_plain(struct kvt_batch_times *out, const struct kvt_batches *posts,
		    const struct kvt_link *link, struct kvt_error *err);
void kvt_clock_free(struct kvt_batch_times *times);

#endif
