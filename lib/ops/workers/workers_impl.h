/* SPDX-License-Identifier: Apache-2.0 */
/* workers_impl.h - what the parts of the replay share */
#ifndef KVTOOL_WORKERS_IMPL_H
#define KVTOOL_WORKERS_IMPL_H

#include "lib/ops/workers/workers.h"

#define LL(x) ((long long)(x))

/* A request in one direction. */
struct entry {
	char *id;
	enum kvt_direction direction;
	struct kvt_countdown countdown;
	int64_t since, finished;	/* step of the first and the last report */
	bool engine_has;		/* the engine's own line of that step has it */
	uint8_t *from;			/* bitmap of the workers of this round */
};

/*
 * Invalid blocks of one step: slots of another step are free, so that a new step
 * begins without clearing them.
 */
struct blocks {
	struct block_slot {
		int64_t id, step;	/* a step is stored plus 1; 0: never used */
		bool engine_has;
	} *slot;			/* open addressing; 'room' is a power of two */
	int64_t *id;			/* in the order of the log */
	size_t n, room, id_room;
};

struct replay {
	const char *name;
	const struct workers_listener *tell;
	struct workers_totals *totals;
	struct kvt_error *err;
	int64_t line, step, worker, expected;
	bool dropped, closed;		/* this step: no output; aggregated was seen */
	struct entry **slot;		/* open addressing; 'room' is a power of two */
	size_t nentries, room;
	struct entry **emitted;		/* of this step */
	size_t nemitted, emitted_room;
	struct blocks invalid;		/* of this step */
};

enum kvt_status workers_no_memory(struct replay *r);
void workers_problem(struct replay *r, enum workers_problem which, int64_t worker,
		     const char *id, const char *format, ...) KVT_PRINTF(5, 6);

/* ---- counting: workers_count.c ------------------------------------------ */

KVT_MUST_CHECK enum kvt_status
workers_report(struct replay *r, const char *id, enum kvt_direction direction);
/* NULL if nobody has reported it. */
struct entry *workers_entry(const struct replay *r, const char *id,
			    enum kvt_direction direction);
/* The end of the log: countdowns that run. */
void workers_incomplete(struct replay *r);
void workers_free(struct replay *r);

/* ---- blocks, and the engine's own account: workers_engine.c -------------- */

KVT_MUST_CHECK enum kvt_status
workers_report_blocks(struct replay *r, const struct kvt_log_line *line);
void workers_compare(struct replay *r, const struct kvt_log_line *line);

#endif
