/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache_event.h - what an engine publishes of its prefix cache, one event at a time
 *
 * vLLM and SGLang tell subscribers which blocks they keep and which they have dropped:
 * BlockStored, BlockRemoved, AllBlocksCleared (vllm/distributed/kv_events.py and
 * sglang/srt/disaggregation/kv_events.py).  formats/events reads recordings of them,
 * lib/ops/events replays those; see kvtool-why(1).
 */
#ifndef KVT_CACHE_EVENT_H
#define KVT_CACHE_EVENT_H

#include <stddef.h>
#include <string.h>

#include "lib/kvt/base.h"

/*
 * A hash as it was published: all its bytes; or 8, the most significant first, of an
 * integer.  vLLM's are the last 8 bytes of the hash, SGLang's the first 8.
 */
struct kvt_block_id {
	uint8_t nbytes, bytes[32];
};

static inline bool kvt_block_id_equal(const struct kvt_block_id *a,
				      const struct kvt_block_id *b)
{
	return a->nbytes == b->nbytes && !memcmp(a->bytes, b->bytes, a->nbytes);
}

/* Is it that of a hash of n bytes?  Whole, or one end of it: n >= 8. */
static inline bool kvt_block_id_is(const struct kvt_block_id *id, const uint8_t *hash,
				   size_t n)
{
	if (id->nbytes == n)
		return !memcmp(id->bytes, hash, n);
	return id->nbytes == 8 && n > 8 &&
	       (!memcmp(id->bytes, hash + n - 8, 8) || !memcmp(id->bytes, hash, 8));
}

enum kvt_cache_event_kind {
	KVT_CACHE_BATCH,		/* goes before the events of each batch */
	KVT_CACHE_STORED,
	KVT_CACHE_REMOVED,
	KVT_CACHE_CLEARED,
};

/* Lists and texts belong to whoever made the event. */
struct kvt_cache_event {
	enum kvt_cache_event_kind kind;
	int64_t number, batch;		/* from 1 on; of BATCH the last one */
	int64_t sequence;		/* of the batch, as its publisher counts; or -1 */
	double time;			/* of the batch, seconds; NaN: not given */
	int64_t rank;			/* of data parallelism; -1: not given */
	int64_t group;			/* of layers; -1: not given */
	const char *topic, *medium, *owner, *kind_of_cache;	/* "": not given */
	size_t nblocks;
	const struct kvt_block_id *block;
	/* the rest is of STORED */
	bool has_parent, has_tokens;	/* without: only where blocks are is told */
	struct kvt_block_id parent;
	int64_t block_size;
	size_t ntokens, nextra;		/* nextra: SIZE_MAX if not given */
	const int64_t *token;		/* of a pair (speculative bigrams) the first */
	const char *lora;		/* "": none, or not told */
	const char *salt;		/* likewise; of the first block */
	bool has_extra;			/* the first hash is of more than tokens */
};

#endif
