/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefix_hits.c - what of each request of a trace earlier ones have brought already
 *
 * One pass over all hash ids, with a set of those seen: open addressing, at most half
 * full.
 */
#include "lib/ops/transfer/replay.h"

#include <stdlib.h>

/* Hash ids that were seen.  0 is a free slot, so ids are kept plus one. */
struct seen {
	uint64_t *slot;
	uint64_t mask;
};

/* True if it was there before. */
static bool see(struct seen *seen, int64_t id)
{
	uint64_t key = (uint64_t)id + 1, at = key * 0x9e3779b97f4a7c15u >> 20;

	for (; seen->slot[at & seen->mask]; at++)
		if (seen->slot[at & seen->mask] == key)
			return true;
	seen->slot[at & seen->mask] = key;
	return false;
}

static int64_t hits(struct seen *seen, const struct kvt_trace *t,
		    const struct kvt_trace_row *row)
{
	bool leading = true;
	int64_t tokens = 0;

	for (int64_t i = 0; i < row->nhashes; i++) {
		leading = see(seen, t->hash[row->hash + i]) && leading;
		if (leading)
			tokens += KVT_TRACE_BLOCK;
	}
	if (row->cached >= 0)
		return row->cached;
	/* the last block need not be full */
	return tokens < row->tokens ? tokens : row->tokens;
}

enum kvt_status kvt_trace_hits(int64_t *tokens, const struct kvt_trace *t,
			       struct kvt_error *err)
{
	struct seen seen = { NULL, 0 };
	uint64_t slots = 64;

	while (slots < 2 * (uint64_t)t->nhashes)
		slots *= 2;
	seen.mask = slots - 1;
	if (!(seen.slot = calloc(slots, sizeof(*seen.slot))))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t n = 0; n < t->n; n++)
		tokens[n] = hits(&seen, t, &t->row[n]);
	free(seen.slot);
	return KVT_OK;
}
