/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - what an operation may use, and whom it tells
 *
 * Plain values and callbacks, nothing else: the library reads no environment,
 * installs no signal handler and prints nothing.  A zeroed struct is a quiet run
 * on the CPU with the default memory.
 */
#ifndef KVT_RUN_H
#define KVT_RUN_H

#include "lib/kvt/kvt.h"

struct kvt_device_pool;
struct kvt_sharing;

struct kvt_run {
	int threads;			/* 0: one a usable processor, at most 16 */
	int64_t memory;			/* bytes of all workers together; 0: 256 MiB */
	struct kvt_device_pool *device;	/* borrowed; NULL: the CPU permutes */

	void *context;			/* first argument of each callback */
	/*
	 * Asked by every worker before each box, so from several threads at once.
	 * True ends the run with KVT_SYSTEM, "interrupted".  NULL: never.
	 */
	bool (*cancelled)(void *context);
	/*
	 * One call at a time, by any thread.  'what' is a constant ("converting");
	 * 'done' 0 begins a phase of 'total' bytes.  'what' NULL ends it, also where
	 * the phase failed.  NULL: not reported.
	 */
	void (*progress)(void *context, const char *what, int64_t done, int64_t total);
	/* One sentence that changes no result.  NULL: not reported. */
	void (*warn)(void *context, const char *text);
	const struct kvt_sharing *share;	/* NULL: all is done here */
	int64_t about;			/* with that: the number of the input at hand */
};

/* Calls run->warn, if it is there, with a sentence of at most 511 characters. */
void kvt_run_warn(const struct kvt_run *run, const char *format, ...) KVT_PRINTF(2, 3);

/* Processors that this process may run on; at least 1. */
KVT_API int kvt_usable_cpus(void);

#endif
