/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - copies of the shapes of models, and what is timed of them */
#ifndef KVTOOL_BENCH_H
#define KVTOOL_BENCH_H

#include "lib/run/device.h"

/* ---- cases: cases.c ----------------------------------------------------- */

struct bench_case {
	const char *name, *from, *to;		/* layouts */
	int64_t slots, heads, kv, dims, elem;	/* of a block */
	int64_t joined;		/* blocks that become one; 0: they stay */
	int64_t shares;		/* of the heads, one of which is taken; 0: all are */
	const char *what;
};

/* The i-th, NULL past the last one. */
const struct bench_case *bench_case_at(int i);

struct bench_plan {
	struct kvt_plans plans;
	int64_t src_bytes, dst_bytes;
};

/* As many blocks as make about 'nbytes' of the destination, at least four. */
KVT_MUST_CHECK enum kvt_status
bench_plan_init(struct bench_plan *out, const struct bench_case *c, int64_t nbytes,
		struct kvt_error *err);

/* ---- timing: run.c ------------------------------------------------------ */

/* Seconds of a monotonic clock. */
double bench_now(void);

/*
 * The copy that is as fast as it gets (memcpy, or the driver's inside the device),
 * the kernel that is chosen for the plan, and the plainest one.
 */
enum contender { BENCH_COPY, BENCH_BEST, BENCH_NAIVE, BENCH_NCONTENDERS };

struct bench_result {
	const struct bench_case *what;
	int64_t run, nbytes;			/* nbytes are read, and written */
	char kernel[64];
	double seconds[BENCH_NCONTENDERS];	/* median */
};

struct bench {
	struct kvt_device_pool *device;			/* NULL: the CPU, one thread */
	int64_t nbytes;
	int rounds;
};

/*
 * Contenders take turns, for other things change, too.  KVT_SYSTEM if bytes are
 * wrong afterwards.
 */
KVT_MUST_CHECK enum kvt_status
bench_run(struct bench_result *out, const struct bench *bench,
	  const struct bench_case *c, struct kvt_error *err);

#endif
