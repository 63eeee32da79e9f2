/* SPDX-License-Identifier: Apache-2.0 */
/* hashes.h - are the hashes of events those of their tokens? */
#ifndef KVT_WHY_HASHES_H
#define KVT_WHY_HASHES_H

#include "lib/ops/events/replay.h"
#include "lib/ops/why/why.h"

struct kvt_why_differs {
	int64_t event, batch, sequence;
	struct kvt_block_id id;
};

struct kvt_why_hashes {
	const struct kvt_cache_replay *replay;
	const struct kvt_prefix_key *key;	/* salt and LoRA are those of events */
	struct kvt_prefix *prefix;		/* by the block's index; nbytes 0: none */
	size_t room;
	int64_t same, unknown;			/* blocks; unknown: not told */
	int64_t ndiffers;
	struct kvt_why_differs *differs;
};

/* After the replay has taken the event. */
KVT_MUST_CHECK enum kvt_status
kvt_why_hashes_take(struct kvt_why_hashes *h, const struct kvt_cache_event *event,
		    struct kvt_error *err);
void kvt_why_hashes_free(struct kvt_why_hashes *h);

#endif
