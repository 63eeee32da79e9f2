/* SPDX-License-Identifier: Apache-2.0 */
/* reblock.h - private to the files of reblock; live_slots() serves its proof, too */
#ifndef KVT_REBLOCK_H
#define KVT_REBLOCK_H

#include "lib/derived/derive.h"

/* One group on its way; sizes are in slots. */
struct regroup {
	const struct kvt_snapshot *from;
	struct kvt_snapshot *to;
	int index;
	int64_t size, slots;		/* of a block, before and after */
	bool keep_stale;
	uint32_t *live;			/* [B] slots with tokens; NULL: not known */
	struct step_group *map;
	struct kvt_reblocked *said;
	int64_t nspans;
};

static inline const struct kvt_group *group_before(const struct regroup *g)
{
	return &g->from->group[g->index];
}

/* More than any pool has: a file that needs them promises too much. */
enum { MAX_ENTRIES = 1 << 28 };

/* Slots of a request that its table holds; recurrent ones are all live. */
int64_t live_slots(const struct kvt_group *group, const struct kvt_request *request,
		   int index);
KVT_MUST_CHECK enum kvt_status
add_span(struct regroup *g, struct map_span span, struct kvt_error *err);

/* KVT_OK, or 'why' says what stands against it. */
KVT_MUST_CHECK enum kvt_status
can_regroup(const struct regroup *g, struct kvt_error *why);
KVT_MUST_CHECK enum kvt_status
regroup(struct regroup *g, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
gather(struct regroup *g, struct kvt_error *err);

/* Of groups that shared no block none is to be shared: when all are done. */
KVT_MUST_CHECK enum kvt_status
number_pools(struct kvt_snapshot *to, const struct kvt_snapshot *from,
	     const struct kvt_reblocked *said, struct kvt_error *err);

#endif
