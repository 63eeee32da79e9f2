/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - one line on standard error while people wait
 *
 * Shown only on a terminal that can rewrite a line, drawn at most ten times a
 * second, and gone at the end.  Not locked: the caller has a lock already, or
 * one thread.
 */
#ifndef KVT_PROGRESS_H
#define KVT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool shown;
	const char *label;		/* borrowed */
	int64_t total, done;		/* bytes */
	int64_t began, drawn;		/* monotonic nanoseconds */
	bool on_screen;
};

void progress_start(struct progress *p, const char *label, int64_t total,
		    bool quiet);
void progress_add(struct progress *p, int64_t nbytes);
/* Removes the line.  Also before anything else is printed on stderr. */
void progress_end(struct progress *p);

#endif
