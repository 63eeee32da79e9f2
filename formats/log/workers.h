/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h - logs of what workers report, see kvtool-workers(1) */
#ifndef KVT_LOG_WORKERS_H
#define KVT_LOG_WORKERS_H

#include <stdio.h>

#include "lib/transfer/worker_event.h"

/* One line of a log; its event may be read until kvt_log_free(). */
struct kvt_log_line {
	struct kvt_worker_event event;
	void *json, *lists;
};

/*
 * 'text' need not end with a zero.  KVT_BAD_INPUT where it is no JSON, or holds a
 * key that means nothing there: a misspelled one would be a report that is lost.
 */
KVT_MUST_CHECK enum kvt_status
kvt_log_parse(struct kvt_log_line *out, const char *text, size_t nbytes,
	      const char *name, struct kvt_error *err);
void kvt_log_free(struct kvt_log_line *line);

/*
 * Hands every event of the log to 'take', in order; blank lines are none.  A failure,
 * also that of 'take', ends the reading and is told with the number of its line.
 */
typedef enum kvt_status kvt_event_fn(void *context, const struct kvt_worker_event *event,
				     struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_log_read(FILE *in, const char *name, kvt_event_fn *take, void *context,
	     struct kvt_error *err);

#endif
