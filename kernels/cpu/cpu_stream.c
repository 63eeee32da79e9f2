/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_stream.c - copies that go around the caches
 *
 * Snapshots are larger than the caches and not read back at once.  A plain
 * store to a line that is not cached reads it first: a third of the traffic.
 */
#include "kernels/cpu/cpu_kernels.h"

enum {
	MEDIUM_RUN = 256,
	LONG_RUN   = 1024,	/* from here two partial lines are cheap */
	HUGE_RUN   = 256 << 10,	/* jumps no longer count */
};

/* Loops in the order of the source: what is read is what memory offers. */
static void sort_by_source(struct kvt_plan *plan)
{
	for (int i = 1; i < plan->nloops; i++) {
		int64_t n = plan->n[i], src = plan->src_stride[i];
		int64_t dst = plan->dst_stride[i];
		int j = i;

		for (; j > 0 && plan->src_stride[j - 1] < src; j--) {
			plan->n[j] = plan->n[j - 1];
			plan->src_stride[j] = plan->src_stride[j - 1];
			plan->dst_stride[j] = plan->dst_stride[j - 1];
		}
		plan->n[j] = n;
		plan->src_stride[j] = src;
		plan->dst_stride[j] = dst;
	}
}

/*
 * Runs of a line and more need no block.  Memory runs ahead of a reader page by
 * page and past the end of what it reads: four pages in turn keep it busy, and
 * waste less at a jump.  What is best at which length is measured.
 */
static void choose_turns(struct cpu_inner *in, bool aligned)
{
	if (in->run < MEDIUM_RUN) {
		in->by = aligned && in->run % CPU_LINE == 0 ? CPU_BY_FOUR : CPU_BY_RUN;
		in->ahead = in->near = 1024;
	} else if (in->run < 2 * CPU_PAGE) {
		in->ahead = in->near = in->d_src;
	} else if (in->run < HUGE_RUN) {
		in->by = CPU_BY_PAGES;
	} else {
		in->ahead = CPU_PAGE;
		in->near = 512;
	}
}

static void stream_runs(char *dst, const char *src, const struct kvt_plan *plan,
			const struct cpu_isa *isa, bool aligned)
{
	struct kvt_plan sorted = *plan;
	struct cpu_nest nest;

	if (plan->run < MEDIUM_RUN)
		sort_by_source(&sorted);
	kvt_cpu_nest_init(&nest, &sorted, isa);
	nest.leaf = isa->stream;
	choose_turns(&nest.in, aligned);
	kvt_cpu_nest_run(dst + plan->dst_offset, src + plan->src_offset, &nest);
}

/* Do all blocks begin with a line?  Loops below a line stay within it. */
static bool lines_only(const char *dst, const struct kvt_plan *plan)
{
	uint64_t bits = (uint64_t)(uintptr_t)dst + (uint64_t)plan->dst_offset;

	for (int i = 0; i < plan->nloops; i++)
		if (plan->dst_stride[i] >= CPU_LINE)
			bits |= (uint64_t)plan->dst_stride[i];
	return bits % CPU_LINE == 0;
}

void kvt_cpu_copy_stream(void *dst, const void *src,
			 const struct kvt_plan *plan, const struct cpu_isa *isa)
{
	const bool aligned = lines_only(dst, plan);

	if (plan->run == 0)
		return;
	if (plan->run >= LONG_RUN || (aligned && plan->run % CPU_LINE == 0))
		stream_runs(dst, src, plan, isa, aligned);
	else if (kvt_cpu_blocks_have_lines(plan))
		kvt_cpu_copy_in_blocks(dst, src, plan, isa, true, aligned);
	else
		kvt_cpu_copy_blocks(dst, src, plan, isa);
	isa->fence();
}
