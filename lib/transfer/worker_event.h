/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker_event.h - what a log of a connector's workers says, one event at a time
 *
 * vLLM asks every worker of a step which transfers it has finished and which blocks
 * it could not load, and aggregates the answers.  formats/log reads such logs,
 * lib/ops/workers replays them; see kvtool-workers(1).
 */
#ifndef KVT_WORKER_EVENT_H
#define KVT_WORKER_EVENT_H

#include <stddef.h>

#include "lib/kvt/connect.h"

enum kvt_event_kind {
	KVT_EVENT_HEAD,			/* how many workers there are */
	KVT_EVENT_WORKER,		/* the report of one worker in a step */
	KVT_EVENT_NO_OUTPUT,		/* the rank whose output is used had none */
	KVT_EVENT_AGGREGATED,		/* the engine's own aggregate of the step */
	KVT_EVENT_SCHEDULED,		/* what the scheduler decided before the step */
};

enum { KVT_MAX_WORKERS = 65536 };

/* Lists belong to whoever made the event. */
struct kvt_worker_event {
	enum kvt_event_kind kind;
	int64_t step, worker;		/* -1: not of this kind */
	int64_t workers;		/* of a head */
	int64_t output_rank;		/* of a head; -1: not given */
	int64_t expected;		/* expected_finished_count; 0: not given */
	size_t nids[KVT_NDIRECTIONS], nfailed, nfresh, nblocks;
	/* requests, never "": reported, or awaited by the scheduler */
	const char *const *ids[KVT_NDIRECTIONS];
	const char *const *failed;	/* of which receiving failed */
	const char *const *fresh;	/* new in a scheduler output */
	const int64_t *blocks;		/* invalid ones, 0 or more each */
	bool silent;			/* of a worker: it had no output */
	const void *json;		/* all of the line, for formats/log/extras.h */
};

#endif
