/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h - replaying what workers report, and what is found wrong with it */
#ifndef KVTOOL_WORKERS_H
#define KVTOOL_WORKERS_H

#include "cli/json_out.h"
#include "formats/log/workers.h"

enum workers_problem {
	PROBLEM_INCOMPLETE,		/* the log ends before the count does */
	PROBLEM_EXCEEDED,		/* a report after the last one */
	PROBLEM_REPEATED,		/* a worker reports for another one */
	PROBLEM_LOST,			/* reported, and the engine does not know */
	PROBLEM_INVENTED,		/* not reported, and the engine knows it */
};
const char *workers_problem_name(enum workers_problem problem);

/* What the replay finds out, in the order of the log.  worker -1: no single one. */
struct workers_listener {
	void *arg;
	void (*finished)(void *arg, int64_t step, enum kvt_direction direction,
			 const char *id, int64_t reports, int64_t since);
	void (*invalid)(void *arg, int64_t step, int64_t block);
	void (*problem)(void *arg, enum workers_problem problem, int64_t step,
			int64_t worker, const char *id, const char *text);
};

struct workers_totals {
	int64_t workers, steps, finished, invalid, problems;
};

/*
 * Reads the log from 'in' to its end.  KVT_BAD_INPUT names the line that is
 * malformed; problems are no failure.
 */
KVT_MUST_CHECK enum kvt_status
workers_replay(struct workers_totals *out, FILE *in, const char *name,
	       const struct workers_listener *listener, struct kvt_error *err);

#endif
