/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reblock.h - a dump whose blocks have another size, as a source
 *
 * Either the pool is cut anew where it lies (regrouped: every state keeps its
 * place in memory), or the states of each request are put into blocks of their
 * own (gathered: blocks are numbered in the order of requests and tokens).
 */
#ifndef KVTOOL_REBLOCK_H
#define KVTOOL_REBLOCK_H

#include "lib/dump/map.h"

enum reblock_how { REBLOCK_KEPT, REBLOCK_REGROUPED, REBLOCK_GATHERED };

/* What to do with states that hold no token of a request. */
enum stale { STALE_DEFAULT, STALE_KEEP, STALE_ZERO };

/* What became of a group. */
struct reblock_group {
	enum reblock_how how;
	struct kvt_error why;		/* why it is gathered and not regrouped */
	int64_t size_before, blocks_before, blocks_after;
	int64_t dropped;		/* blocks that no request uses, left out */
	int64_t copied;			/* states that were shared and no longer are */
	int64_t stale, stale_kept;	/* states; only where requests are known */
};

struct reblock {
	int64_t block_size;		/* tokens */
	bool compact;			/* gather, even if nothing forces to */
	enum stale stale;
	/* that the output will have, where the input's cannot hold such blocks */
	const struct kvt_layout *layout;
	struct reblock_group group[KVT_MAX_GROUPS];	/* filled by reblock_source() */
};

/* The source must be freed, also its reader by the caller. */
KVT_MUST_CHECK enum kvt_status
reblock_source(struct source *out, struct kvt_dump **reader, struct reblock *reblock,
	       struct kvt_error *err);

/*
 * Reads both again and compares the states of every request, through the tables
 * of both files; of a pool that was regrouped, all that lie in the same place.
 */
KVT_MUST_CHECK enum kvt_status
reblock_verify(struct kvt_dump *before, struct kvt_dump *after,
	       const struct reblock *reblock, const struct kvt_run *run,
	       struct kvt_error *err);

/* ---- between the files of reblock --------------------------------------- */

/* One group on its way; sizes are in states. */
struct regroup {
	const struct kvt_snapshot *from;
	struct kvt_snapshot *to;
	int index;
	int64_t size, states;		/* of a block, before and after */
	bool keep_stale;
	uint32_t *live;			/* [B] states with tokens; NULL: not known */
	struct source_group *map;
	struct reblock_group *said;
	int64_t nspans, room;
};

static inline const struct kvt_group *group_before(const struct regroup *g)
{
	return &g->from->group[g->index];
}

/* More than any pool has: a file that needs them promises too much. */
enum { MAX_ENTRIES = 1 << 28 };

/* States of a request that its table holds; recurrent ones are all live. */
int64_t live_states(const struct kvt_group *group, const struct kvt_request *request,
		    int index);
KVT_MUST_CHECK enum kvt_status
add_span(struct regroup *g, struct source_span span, struct kvt_error *err);

/* KVT_OK, or 'why' says what stands against it. */
KVT_MUST_CHECK enum kvt_status
can_regroup(const struct regroup *g, struct kvt_error *why);
KVT_MUST_CHECK enum kvt_status
regroup(struct regroup *g, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
gather(struct regroup *g, struct kvt_error *err);

#endif
