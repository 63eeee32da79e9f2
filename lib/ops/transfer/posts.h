/* SPDX-License-Identifier: Apache-2.0 */
/*
 * posts.h - what a stack posts for a transfer, and the link it posts it on
 *
 * Modes that know time share these options.  A batch is what one pair of ranks
 * exchanges: the operations of all groups, posted together.
 */
#ifndef KVTOOL_SIM_POSTS_H
#define KVTOOL_SIM_POSTS_H

#include "cli/link_file.h"
#include "lib/kvt/run.h"
#include "lib/kvt/stack.h"
#include "lib/ops/transfer/transfer.h"

/* ---- what was said ------------------------------------------------------ */

struct posts_args {
	const char *emulate, *coalesce;
	bool force, descending;
	int64_t sge, slice, stage;
	const char *copy_rate;		/* 10^9 bytes a second */
	const char *link, *overlap, *setup, *op, *post, *rate, *latency;
	int64_t rails, threads, window;
	const char *share;
	bool push;
};

#define POSTS_OPTS(a) \
	{ "emulate", 0, OPT_STRING, &(a)->emulate, "STACK", \
	  "whose operations: nixl, nixl-packed, mooncake, rfc, layer, max; default rfc" }, \
	{ "force", 'f', OPT_FLAG, &(a)->force, NULL, \
	  "count scope layer where the stack would refuse, and warn" }, \
	{ "coalesce", 0, OPT_STRING, &(a)->coalesce, "HOW", \
	  "merge neighbours: stack (default: as it does), off, nixl, full" }, \
	{ "merge-descending", 0, OPT_FLAG, &(a)->descending, NULL, \
	  "where neighbours are merged, also those that descend" }, \
	{ "sge", 0, OPT_COUNT, &(a)->sge, "N", \
	  "gather up to N pieces into an operation that writes one run" }, \
	{ "slice", 0, OPT_SIZE, &(a)->slice, "SIZE", \
	  "cut operations longer than this; default: as the link does" }, \
	{ "stage", 0, OPT_SIZE, &(a)->stage, "SIZE", \
	  "copy through buffers of this size on both sides; needs --copy-rate" }, \
	{ "copy-rate", 0, OPT_STRING, &(a)->copy_rate, "GB/S", \
	  "of the copies into and out of these buffers" }, \
	{ "link", 0, OPT_STRING, &(a)->link, "NAME|FILE", \
	  "what it goes over; 'list' prints the presets" }, \
	{ "overlap-power", 0, OPT_STRING, &(a)->overlap, "1|2|4|inf", \
	  "of the link: how far posting and the wire overlap" }, \
	{ "setup", 0, OPT_STRING, &(a)->setup, "US", \
	  "of the link: microseconds a batch" }, \
	{ "op", 0, OPT_STRING, &(a)->op, "NS", \
	  "of the link: nanoseconds an operation" }, \
	{ "post", 0, OPT_STRING, &(a)->post, "NS", \
	  "of these: what keeps the poster busy" }, \
	{ "rate", 0, OPT_STRING, &(a)->rate, "GB/S", \
	  "of the link: 10^9 bytes a second" }, \
	{ "latency", 0, OPT_STRING, &(a)->latency, "NS", \
	  "until a completion is seen; counts with --window" }, \
	{ "rails", 0, OPT_COUNT, &(a)->rails, "N", \
	  "so many of these links side by side" }, \
	{ "threads", 0, OPT_COUNT, &(a)->threads, "N", "that post" }, \
	{ "window", 0, OPT_COUNT, &(a)->window, "N", \
	  "operations that may be outstanding; default: all" }, \
	{ "share", 0, OPT_STRING, &(a)->share, "fair|fifo|none", \
	  "how batches that meet at a card share it; default fair" }, \
	{ "push", 0, OPT_FLAG, &(a)->push, NULL, \
	  "sources post, as in SGLang; default: destinations, as in vLLM" }

/* ... read and checked. */
struct posts_how {
	struct kvt_run run;		/* whom to warn */
	struct kvt_posting posting;
	bool force, push;
	int64_t stage, copy_rate;	/* bytes, bytes a second */
	struct link_file file;
	struct kvt_link link;		/* with everything that overrides it */
	int64_t latency_ps, window;
	enum kvt_share share;
};
KVT_MUST_CHECK enum kvt_status
posts_take(struct posts_how *out, const struct posts_args *args, struct kvt_error *err);

/* The link as it is for one batch: a window may slow it down. */
struct kvt_link posts_link(const struct posts_how *how, int64_t ops, int64_t bytes);

/* Both into an object of --json. */
void posts_put(struct json_out *out, json_t *object, const struct posts_how *how);

/* ---- what is posted ----------------------------------------------------- */

struct posts_batch {
	int64_t src_rank, dst_rank;
	int64_t listed, merged;		/* before and after the stack merges */
	int64_t ops, bytes;		/* as they are posted */
};

struct posts {
	int64_t n, room;
	struct posts_batch *batch;	/* owned; by destination, then source */
	int64_t src_ranks, dst_ranks;
	struct posts_batch sum;
};

/*
 * Of all groups.  What the stack refuses is KVT_BAD_INPUT, or one sentence on
 * standard error and scope layer where that is forced.
 */
KVT_MUST_CHECK enum kvt_status
posts_count(struct posts *out, const struct sim *sim, const struct posts_how *how,
	    struct kvt_error *err);

/* One batch of 'ops' operations of 'size' bytes, between one pair of ranks. */
KVT_MUST_CHECK enum kvt_status
posts_uniform(struct posts *out, int64_t ops, int64_t size, const struct posts_how *how,
	      struct kvt_error *err);
void posts_free(struct posts *posts);

/* The posting that is counted for a group, with force applied. */
KVT_MUST_CHECK enum kvt_status
posts_start(struct kvt_posts *out, const struct sim_group *group,
	    const struct kvt_pair *pair, const struct posts_how *how,
	    struct kvt_error *err);

#endif
