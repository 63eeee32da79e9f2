/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers.h - replaying what the workers of a connector report
 *
 * Events go in one by one, in the order of the log; what they amount to is told to
 * a listener while they do.
 */
#ifndef KVT_WORKERS_H
#define KVT_WORKERS_H

#include "lib/transfer/worker_event.h"

enum kvt_worker_problem {
	KVT_REPORTS_INCOMPLETE,		/* the log ends before the count does */
	KVT_REPORTS_EXCEEDED,		/* a report after the last one */
	KVT_REPORTS_REPEATED,		/* a worker reports for another one */
	KVT_REPORTS_LOST,		/* reported, and the engine does not know */
	KVT_REPORTS_INVENTED,		/* not reported, and the engine knows it */
	KVT_REPORTS_NONE,		/* awaited, and no worker reports it */
	KVT_REPORTS_BOTH,		/* sent and received in one step */
};
/* "incomplete", ... */
const char *kvt_worker_problem_name(enum kvt_worker_problem problem);

/* All of these must be there.  'id' is valid during the call. */
struct kvt_workers_listener {
	void *context;
	/* Enough workers have reported the request; the first did so in step 'since'. */
	void (*finished)(void *context, int64_t step, enum kvt_direction direction,
			 const char *id, int64_t reports, int64_t since);
	/* it is finished in this step, and a worker said that receiving failed */
	void (*failed)(void *context, int64_t step, const char *id);
	void (*invalid)(void *context, int64_t step, int64_t block);
	/* At the end: new in a scheduler output, and in no report. */
	void (*unnamed)(void *context, int64_t step, const char *id);
	/* worker -1: no single one; id NULL: it is about a block. */
	void (*problem)(void *context, enum kvt_worker_problem problem, int64_t step,
			int64_t worker, const char *id, const char *text);
};

struct kvt_workers_totals {
	int64_t workers, steps, finished, invalid, problems;
	int64_t scheduled, unnamed;	/* new requests, and those in no report */
};

/* The replay of one log.  'listener' is borrowed. */
struct kvt_workers;
KVT_MUST_CHECK enum kvt_status
kvt_workers_new(struct kvt_workers **out, const struct kvt_workers_listener *listener,
		struct kvt_error *err);
void kvt_workers_free(struct kvt_workers *w);	/* NULL is allowed */
/* From here on each new request of a scheduler output is awaited in that direction. */
void kvt_workers_await(struct kvt_workers *w, enum kvt_direction direction);

/* KVT_BAD_INPUT: no log has this event here; problems are told and are no failure. */
KVT_MUST_CHECK enum kvt_status
kvt_workers_take(struct kvt_workers *w, const struct kvt_worker_event *event,
		 struct kvt_error *err);

/* After the last event: tells of what is incomplete. */
KVT_MUST_CHECK enum kvt_status
kvt_workers_end(struct kvt_workers_totals *out, struct kvt_workers *w,
		struct kvt_error *err);

#endif
