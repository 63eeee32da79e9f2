/* SPDX-License-Identifier: Apache-2.0 */
/* replay_impl.h - what the files of a replay share */
#ifndef KVT_CACHE_REPLAY_IMPL_H
#define KVT_CACHE_REPLAY_IMPL_H

#include "lib/ops/events/replay.h"

struct cache_publisher {
	char *topic;
	int64_t rank, sequence;		/* of its last batch; -1: none, or no numbers */
	int64_t gap;			/* events up to this one may be out of date */
	bool late, skip;		/* skip: this batch came before */
};

/* Decimated as it grows: all of it is kept, then every second, and so on. */
enum { CACHE_SAMPLES = 256 };
struct cache_samples {
	struct kvt_cache_sample at[CACHE_SAMPLES];
	int n;
	int64_t every, skipped;
};

struct kvt_cache_replay {
	kvt_cache_finding_fn *tell;
	void *context;
	struct kvt_cache_totals totals;
	struct cache_publisher *publisher;
	struct kvt_cache_place *place;
	int64_t npublishers, nplaces, now;	/* 'now': the publisher of this batch */
	struct kvt_cache_block **bucket;	/* open addressing; a power of two */
	struct kvt_cache_block **all;		/* in the order of first mention */
	size_t nblocks, room;
	struct cache_samples samples;
	int64_t changes;
	struct kvt_error *err;
	const struct kvt_cache_event *event;	/* the one that is taken */
};

/* ---- blocks.c ----------------------------------------------------------- */

/* The block, made where it is new; NULL: out of memory. */
struct kvt_cache_block *cache_block(struct kvt_cache_replay *r, int64_t publisher,
				    const struct kvt_block_id *id);
/* What is known of it in a place, made likewise. */
struct kvt_cache_copy *cache_copy(struct kvt_cache_block *block, int64_t place);
/* The place of this event, made likewise; -1: out of memory. */
int64_t cache_place(struct kvt_cache_replay *r, const struct kvt_cache_event *event);
int64_t cache_publisher(struct kvt_cache_replay *r, const struct kvt_cache_event *event);
void cache_free(struct kvt_cache_replay *r);

/* ---- samples.c ---------------------------------------------------------- */

void cache_sample(struct kvt_cache_replay *r, const struct kvt_cache_event *event);

#endif
