/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extras.h - what a log of workers has beside requests and blocks
 *
 * Stats, events and scheduler outputs are JSON throughout; they are put together here,
 * step by step, beside the replay of lib/ops/workers.
 */
#ifndef KVT_LOG_EXTRAS_H
#define KVT_LOG_EXTRAS_H

#include <jansson.h>

#include "lib/transfer/worker_event.h"

/* All of these must be there; the JSON is borrowed for the call. */
struct kvt_extras_listener {
	void *context;
	/* of a step: all workers' stats as one */
	void (*stats)(void *context, int64_t step, const json_t *stats);
	/* all events, and those that every worker with a container has */
	void (*events)(void *context, int64_t step, int64_t workers, int64_t all,
		       const json_t *common);
	/* blocks: an array for each group, or null */
	void (*request)(void *context, int64_t step, const char *id,
			const json_t *blocks, bool preempted);
	/* "raised": the engine fails there; "differs": its own result is another one */
	void (*problem)(void *context, const char *problem, int64_t step,
			int64_t worker, const char *text);
};

struct kvt_extras;
KVT_MUST_CHECK enum kvt_status
kvt_extras_new(struct kvt_extras **out, const struct kvt_extras_listener *listener,
	       struct kvt_error *err);
void kvt_extras_free(struct kvt_extras *extras);	/* NULL is allowed */

/* Events in the order of the log, as the replay takes them: after it, if it took one. */
KVT_MUST_CHECK enum kvt_status
kvt_extras_take(struct kvt_extras *extras, const struct kvt_worker_event *event,
		struct kvt_error *err);
/* After the last one. */
KVT_MUST_CHECK enum kvt_status
kvt_extras_end(struct kvt_extras *extras, struct kvt_error *err);

/* Is what a line has of these well formed?  'name' is for the message. */
KVT_MUST_CHECK enum kvt_status
kvt_extras_check(const json_t *line, const char *name, struct kvt_error *err);

#endif
