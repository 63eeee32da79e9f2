/* SPDX-License-Identifier: Apache-2.0 */
/* events.h - what kvtool why found in a recording, and its printing */
#ifndef KVTOOL_WHY_EVENTS_H
#define KVTOOL_WHY_EVENTS_H

#include "cli/why/why.h"
#include "lib/ops/why/files.h"
#include "lib/ops/why/hashes.h"

/* A finding that is kept, to be printed. */
struct why_finding {
	struct kvt_cache_finding f;
	struct kvt_block_id id;
	char *text;
};

/* Of one prompt in one group: what to say of its first block that is not there. */
struct why_reason {
	struct kvt_why_instead instead;
	struct kvt_why_near near;
};

struct why_replay {
	struct why *w;
	struct kvt_cache_replay *replay;
	struct kvt_why_watch watch;
	struct kvt_why_hashes hashes;
	struct kvt_why_files files;
	struct why_reason *reason;	/* prompts times 'reasons' */
	int reasons;
	struct why_finding *finding;
	size_t nfindings;
	bool out_of_memory;
	struct kvt_cache_event last;
};

/* The reason of prompt i, in its place k. */
static inline struct why_reason *
why_reason_at(const struct why_replay *r, int64_t i, int k)
{
	return &r->reason[i * r->reasons + k];
}

/* As it is written: hex; what was an integer in SGLang or vLLM, 16 digits of it. */
struct human why_id(const struct kvt_block_id *id);
/* "0.6 of the time" of a prompt's blocks there; below 0: no times are known. */
double why_hit_rate(const struct why_replay *r, const struct kvt_why_watched *p,
		    const struct kvt_why_seen_in *in);

void why_print_events(const struct why_replay *r);
void why_put_events(struct why_replay *r);

#endif
