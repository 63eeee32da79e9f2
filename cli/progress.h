/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - a run that people watch: one line on standard error while they wait
 *
 * Shown only on a terminal that can rewrite a line, drawn at most ten times a
 * second, and gone at the end.  There is one, as there is one standard error.
 */
#ifndef KVT_PROGRESS_H
#define KVT_PROGRESS_H

#include "lib/kvt/run.h"

/*
 * What --threads, --mem-limit and -q say (0, 0, false: nothing).  Signals end the
 * run, warnings go to standard error as complain(context, ...) does.
 */
struct kvt_run run_watched(int64_t threads, int64_t memory, bool quiet);

/* So many of 'what' by now, of a number that is not known; what NULL: it is over. */
void progress_count(const char *what, int64_t n);

/*
 * Of several dumps, what is done from now on is of the i-th of n, from 0: shares of all
 * that are done by then and that it is itself.  It is read and written in 'passes'.
 */
struct progress_part {
	int i, n, passes;
	double before, share;
};
void progress_among(const struct progress_part *part);

#endif
