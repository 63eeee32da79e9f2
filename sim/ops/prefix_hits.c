/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefix_hits.c - what of each request of a trace earlier ones have brought already
 *
 * One pass over all hash ids, with a set of those seen: open addressing, at most half
 * full.
 */
#include "sim/ops/replay.h"

#include <stdlib.h>

/* Hash ids that were seen.  0 is a free bucket, so ids are kept plus one. */
struct seen {
	uint64_t *bucket;
	uint64_t mask;
};

/* True if it was there before. */
static bool see(struct seen *seen, int64_t id)
{
	uint64_t key = (uint64_t)id + 1, at = key * 0x9e3779b97f4a7c15u >> 20;

	for (; seen->bucket[at & seen->mask]; at++)
		if (seen->bucket[at & seen->mask] == key)
			return true;
	seen->bucket[at & seen->mask] = key;
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
	uint64_t buckets = 64;

	while (buckets < 2 * (uint64_t)t->nhashes)
		buckets *= 2;
	seen.mask = buckets - 1;
	if (!(seen.bucket = calloc(buckets, sizeof(*seen.bucket))))
		return kvt_no_memory(err, NULL);
	for (int64_t n = 0; n < t->n; n++)
		tokens[n] = hits(&seen, t, &t->row[n]);
	free(seen.bucket);
	return KVT_OK;
}
