/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - what a cache had of prompts, over the time of a recording of its events
 */
#ifndef KVT_WHY_WATCH_H
#define KVT_WHY_WATCH_H

#include "lib/ops/events/replay.h"
#include "lib/ops/why/why.h"

/* Why a block is not there. */
enum kvt_why_gone {
	KVT_WHY_ALL_THERE,		/* it is: all blocks that have names are */
	KVT_WHY_NEVER,			/* no event stored it, in any group */
	KVT_WHY_EVICTED,		/* it was there */
	KVT_WHY_CLEARED,		/* likewise, and AllBlocksCleared came */
	KVT_WHY_OTHER_GROUP,		/* only another group has, or had, it */
	KVT_WHY_OTHER_RANK,		/* likewise another publisher */
	KVT_WHY_NGONE,
};
const char *kvt_why_gone_name(enum kvt_why_gone gone);	/* "evicted" */

/* A prompt in one group of one publisher: where requests ask for it. */
struct kvt_why_seen_in {
	int64_t publisher, group;
	const struct kvt_cache_block **block;	/* owned; those that were told, by now */
	int64_t now, best;		/* blocks from the first on */
	int64_t best_event;		/* from which on it had the best */
	double area, since;		/* blocks times seconds, until 'since' */
	enum kvt_why_gone gone;		/* of block 'now', at the end */
	int64_t event;			/* that removed it, or stored it elsewhere; 0 */
	int64_t elsewhere;		/* the place; -1 */
	int64_t after;			/* blocks behind it that are there, in vain */
};

struct kvt_why_watched {
	struct kvt_why_chain chain;
	struct kvt_why_seen_in *in;
	int nin;
};

struct kvt_why_watch {
	const struct kvt_cache_replay *replay;
	struct kvt_why_watched *prompt;
	int64_t nprompts, changes;
};

/* 'prompt' is borrowed. */
KVT_MUST_CHECK enum kvt_status
kvt_why_watch_new(struct kvt_why_watch *out, const struct kvt_cache_replay *replay,
		  const struct kvt_why_prompt *prompt, int64_t n, struct kvt_error *err);
void kvt_why_watch_free(struct kvt_why_watch *watch);

/* Before each batch: what there was until then; and at the end, when 'event' is last. */
KVT_MUST_CHECK enum kvt_status
kvt_why_watch_look(struct kvt_why_watch *watch, const struct kvt_cache_event *event,
		   struct kvt_error *err);
/* Fills in why the first missing block of each is not there. */
void kvt_why_watch_end(struct kvt_why_watch *watch);

/* Was it ever stored, by any publisher?  'context' is the replay. */
bool kvt_why_was_stored(void *context, const struct kvt_prefix *prefix);

/* What the cache had in the place of a missing block; numbers are of events, 0: none. */
struct kvt_why_instead {
	const struct kvt_why_prompt *prompt;
	const struct kvt_why_chain *chain;
	int64_t missing;		/* the block */
	/* out: the same tokens by another name */
	int64_t same;
	int64_t same_block_size;
	char lora[100], salt[100];
	bool has_extra;
	/* and the other tokens that agree longest */
	int64_t other, token;		/* token: the first that differs, of the prompt */
};
/* Looks at one event of a second reading. */
void kvt_why_instead(struct kvt_why_instead *out, const struct kvt_cache_event *event);

#endif
