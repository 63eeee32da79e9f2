/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_check.h - what the parts of check_kernels share */
#ifndef KERNEL_CHECK_H
#define KERNEL_CHECK_H

#include "tests/kernel_pool.h"

#include <stddef.h>

/* ---- random numbers ----------------------------------------------------- */

/* splitmix64: a seed gives the same cases on every machine. */
void check_seed(uint64_t seed);
uint64_t check_random(void);
int64_t check_below(int64_t n);		/* 0 .. n - 1 */

/* ---- cases -------------------------------------------------------------- */

/* One axis, or one part of S or D, as a buffer has it; slowest first. */
struct side_part {
	int axis;
	int64_t div, mod;	/* its index is (index / div) % mod */
	int64_t room;		/* places; more than are used if narrowed */
	int64_t first;		/* the place of index 0 */
};

struct side {
	int nparts;
	struct side_part part[KVT_NAXES + 2];
	int64_t nbytes;		/* of the buffer, used or not */
};

/* A random copy: what is copied, and where both buffers have it. */
struct check_case {
	int64_t n[KVT_NAXES], elem;
	struct side src, dst;
	struct kvt_plan plan;		/* from lib/, under test as well */
};

/*
 * A copy of at most about 'most' bytes whose elements have 'elem' bytes; 0: a
 * random size.  False if lib/ made no plan of it; 'err' says why.
 */
bool case_random(struct check_case *c, int64_t most, int64_t elem,
		 struct kvt_error *err);

/* The definition, from coordinates alone. */
void case_copy(uint8_t *dst, const uint8_t *src, const struct check_case *c);

void case_print(const struct check_case *c);

/* ---- memory ------------------------------------------------------------- */

/* 'size' bytes, a multiple of pages, between pages that nobody may touch. */
struct arena {
	uint8_t *bytes;
	size_t size;
};

struct arena arena_new(size_t size);
void arena_free(struct arena *arena);

/* ---- benchmark ---------------------------------------------------------- */

enum { BENCH_MAX_ROUNDS = 99 };

struct bench_options {
	int64_t mib;			/* of each buffer */
	bool json;
	int rounds;
	bool one_thread;		/* only the columns of one thread */
	const char *kernel;		/* one more column; NULL: none */
	const char *only;		/* cases whose name holds this; NULL: all */
};
int kernel_bench(const struct bench_options *options);

/* One benchmark case: what is to be done, and who does it. */
struct work {
	char *dst;
	const char *src;
	int64_t nbytes;
	int nplans;			/* more than one: a plan per block */
	struct kvt_plan *plan;
	const struct kvt_kernel *kernel;
	struct kernel_pool *pool, *alone;	/* of two threads, of one */
};

/*
 * Plans the i-th case for buffers of 'nbytes' into work->plan, which has room
 * for BENCH_MAX_PLANS.  Its name; NULL past the last one.
 */
enum { BENCH_MAX_PLANS = 65536 };
const char *bench_case_name(int i);
void bench_case_plan(struct work *work, int i, int64_t nbytes);

/* Ends the program: a benchmark that cannot run has no result. */
void check_bail_out(const char *why);

#endif
