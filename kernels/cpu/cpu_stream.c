/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_stream.c - copies that go around the caches
 *
 * Snapshots are larger than the caches and not read back at once.  A plain
 * store to a line that is not cached reads it first: a third of the traffic.
 *
 * A plan is walked in slabs of the source that fit the second-level cache.  While
 * one is copied, in whatever order suits the destination, the next one is asked
 * for, its pages in turn: that, and not the order of the copy, is what memory
 * sees.
 */
#include "kernels/cpu/cpu_kernels.h"

#include <stddef.h>
#include <string.h>

/* All of them measured. */
enum {
	MEDIUM_RUN = 256,
	LONG_RUN   = 1024,	/* from here two partial lines are cheap */
	SMALL_SLAB = 32 << 10,	/* bytes, about: of short runs */
	LARGE_SLAB = 64 << 10,
};

static int64_t slab_bytes(const struct kvt_plan *plan)
{
	return plan->run < MEDIUM_RUN ? SMALL_SLAB : LARGE_SLAB;
}

/* ---- slabs -------------------------------------------------------------- */

/* A run of many pages becomes a loop over parts of whole lines, if any divide it. */
static void split_run(struct kvt_plan *plan)
{
	int64_t least = plan->run / LARGE_SLAB;

	if (least < 2 || plan->nloops == KVT_MAX_LOOPS)
		return;
	for (int64_t n = least; n < 2 * least; n++) {
		if (plan->run % (n * CPU_LINE))
			continue;
		plan->run /= n;
		plan->n[plan->nloops] = n;
		plan->src_stride[plan->nloops] = plan->run;
		plan->dst_stride[plan->nloops++] = plan->run;
		return;
	}
}

/* The loop of the least source stride from 'extent' on; -1: none. */
static int next_loop(const struct kvt_plan *plan, int64_t extent)
{
	int best = -1;

	for (int i = 0; i < plan->nloops; i++)
		if (plan->src_stride[i] >= extent &&
		    (best < 0 || plan->src_stride[i] < plan->src_stride[best]))
			best = i;
	return best;
}

/* The loops of a slab, and how its lines are asked for. */
struct slab {
	int64_t n[KVT_MAX_LOOPS];
	int64_t rows, step;
	bool near;			/* short runs: a line is read part by part */
};

/*
 * Loops that make the source dense, until it is large enough.  What is dense for
 * less than a page is one row of several.
 */
static struct slab choose_slab(const struct kvt_plan *plan)
{
	const int64_t large = slab_bytes(plan);
	struct slab slab = { .step = CPU_PAGE, .near = plan->run < MEDIUM_RUN };
	int64_t extent = plan->run;
	int i;

	for (i = 0; i < plan->nloops; i++)
		slab.n[i] = 1;
	while (extent < large && (i = next_loop(plan, extent)) >= 0 &&
	       plan->src_stride[i] == extent) {
		int64_t want = (large + extent - 1) / extent;

		slab.n[i] = want < plan->n[i] ? want : plan->n[i];
		extent *= slab.n[i];
		if (slab.n[i] < plan->n[i])
			break;
	}
	slab.rows = (extent + CPU_PAGE - 1) / CPU_PAGE;
	if (extent < CPU_PAGE && i >= 0 && plan->src_stride[i] > extent) {
		int64_t want = large / extent;

		slab.n[i] = want < plan->n[i] ? want : plan->n[i];
		slab.step = plan->src_stride[i];
		slab.rows = slab.n[i];
	}
	return slab;
}

static void ask_from(struct cpu_ask *ask, const char *at, const struct slab *slab)
{
	ask->at = at;
	ask->end = at + slab->rows * slab->step;
	ask->step = slab->step;
	ask->back = slab->rows * slab->step - CPU_LINE;
	ask->near = slab->near;
}

/* ---- one slab ----------------------------------------------------------- */

/* Do all blocks begin with a line?  Loops below a line stay within it. */
static bool lines_only(const char *dst, const struct kvt_plan *plan)
{
	uint64_t bits = (uint64_t)(uintptr_t)dst + (uint64_t)plan->dst_offset;

	for (int i = 0; i < plan->nloops; i++)
		if (plan->dst_stride[i] >= CPU_LINE)
			bits |= (uint64_t)plan->dst_stride[i];
	return bits % CPU_LINE == 0;
}

/* How slabs are copied; all but the last of a loop have one shape. */
struct streaming {
	struct cpu_passes passes;
	bool ready;
	int64_t n[KVT_MAX_LOOPS];	/* of the slabs that the rest is for */
	enum { BY_RUN, BY_BLOCK, BY_PLAIN_BLOCK } how;
	struct cpu_nest runs;
	int64_t step[KVT_MAX_LOOPS];	/* of blocks */
};

static void prepare(struct streaming *s, const struct kvt_plan *slab)
{
	if (s->ready && !memcmp(s->n, slab->n, sizeof(s->n)))
		return;
	s->ready = true;
	memcpy(s->n, slab->n, sizeof(s->n));
	if (slab->run >= LONG_RUN ||
	    (s->passes.aligned && slab->run % CPU_LINE == 0)) {
		s->how = BY_RUN;
		kvt_cpu_nest_init(&s->runs, slab, s->passes.isa);
		s->runs.leaf = s->passes.isa->stream;
	} else if (kvt_cpu_blocks_have_lines(slab)) {
		s->how = BY_BLOCK;
		kvt_cpu_shape_block(s->step, slab);
	} else {
		s->how = BY_PLAIN_BLOCK;
	}
}

static void copy_slab(char *dst, const char *src, const struct kvt_plan *slab,
		      struct streaming *s)
{
	prepare(s, slab);
	switch (s->how) {
	case BY_RUN:
		s->runs.in.ask = s->passes.ask;
		kvt_cpu_nest_run(dst + slab->dst_offset, src + slab->src_offset,
				 &s->runs);
		break;
	case BY_BLOCK:
		kvt_cpu_copy_in_blocks(dst, src, slab, s->step, &s->passes);
		break;
	case BY_PLAIN_BLOCK:
		kvt_cpu_copy_blocks(dst, src, slab, s->passes.isa);
		break;
	}
}

void kvt_cpu_copy_stream(void *dst, const void *src,
			 const struct kvt_plan *plan, const struct cpu_isa *isa)
{
	struct streaming s = { .passes = { .isa = isa, .stream = true,
					   .aligned = lines_only(dst, plan) } };
	struct kvt_plan parts = *plan;
	struct cpu_ask ask;
	struct cpu_walk walk;
	struct slab slab;

	if (plan->run == 0)
		return;
	split_run(&parts);
	slab = choose_slab(&parts);
	kvt_cpu_walk_start(&walk, &parts, slab.n);
	while (!walk.done) {
		struct kvt_plan box = walk.box;

		kvt_cpu_walk_next(&walk);
		ask_from(&ask, (const char *)src + walk.box.src_offset, &slab);
		s.passes.ask = walk.done ? NULL : &ask;
		copy_slab(dst, src, &box, &s);
	}
	isa->fence();
}
