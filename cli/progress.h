/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - one line on standard error while people wait
 *
 * Shown only on a terminal that can rewrite a line, drawn at most ten times a
 * second, and gone at the end.  There is one, as there is one standard error;
 * callers hold the pipeline's lock or are alone.
 */
#ifndef KVT_PROGRESS_H
#define KVT_PROGRESS_H

#include <stdint.h>

/* Not with -q: then do not start, and the other two do nothing. */
void progress_start(const char *label, int64_t total_bytes);
void progress_add(int64_t nbytes);
/* Removes the line. */
void progress_end(void);

#endif
