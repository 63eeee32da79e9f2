/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_block.c - walking a plan in blocks that fit the first-level cache
 *
 * In destination order a short run uses 2 of the 64 bytes that its source line
 * brings in, and the line is gone when its neighbour is wanted.  A block takes
 * enough of the loops that are fast in the source, too, to use lines up.
 */
#include "kernels/cpu/cpu_kernels.h"

#include <string.h>

enum {
	BLOCK     = 4096,	/* bytes; measured: half or twice is slower */
	STAGE_MAX = 16384,	/* a line by a line, both rounded up to 127 */
};

/* ---- shape of a block --------------------------------------------------- */

/* Entries of loop 'i' that make 'extent' bytes into 'want'. */
static int64_t entries(const struct kvt_plan *plan, int i, int64_t extent,
		       int64_t want)
{
	int64_t n = (want + extent - 1) / extent;

	return n < plan->n[i] ? n : plan->n[i];
}

/* Bytes that the loops n[] of a plan write in one go. */
static int64_t row_bytes(const struct kvt_plan *plan, const int64_t n[])
{
	int64_t row = plan->run;

	for (int i = plan->nloops - 1; i >= 0; i--) {
		if (n[i] > 1 && plan->dst_stride[i] != row)
			break;
		row *= n[i];
	}
	return row;
}

/* The loop whose source stride is 'extent'; -1 if there is none. */
static int loop_at(const struct kvt_plan *plan, int64_t extent)
{
	for (int i = plan->nloops - 1; i >= 0; i--)
		if (plan->src_stride[i] == extent)
			return i;
	return -1;
}

/* Of at most about BLOCK bytes. */
void kvt_cpu_shape_block(int64_t n[], const struct kvt_plan *plan)
{
	int64_t extent = plan->run, bytes = plan->run;
	int i;

	for (i = 0; i < plan->nloops; i++)
		n[i] = 1;
	for (i = plan->nloops - 1; i >= 0 && extent < CPU_LINE &&
	     plan->dst_stride[i] == extent; i--) {
		n[i] = entries(plan, i, extent, CPU_LINE);
		extent *= n[i];
		bytes *= n[i];
	}
	extent = plan->run;
	while (extent < CPU_LINE && (i = loop_at(plan, extent)) >= 0) {
		int64_t more = entries(plan, i, extent, CPU_LINE);

		if (more > n[i]) {
			bytes = bytes / n[i] * more;
			n[i] = more;
		}
		extent *= plan->n[i];
	}
	for (i = plan->nloops - 1; i >= 0; i--) {
		int64_t more = n[i] * (BLOCK / bytes > 1 ? BLOCK / bytes : 1);

		if (more > plan->n[i])
			more = plan->n[i];
		bytes = bytes / n[i] * more;
		n[i] = more;
		if (more < plan->n[i])
			break;
	}
}

/* ---- walking ------------------------------------------------------------ */

static void clip(struct cpu_walk *walk, int i)
{
	int64_t left = walk->plan->n[i] - walk->at[i];

	walk->box.n[i] = left < walk->step[i] ? left : walk->step[i];
}

void kvt_cpu_walk_start(struct cpu_walk *walk, const struct kvt_plan *plan,
			const int64_t step[])
{
	*walk = (struct cpu_walk){ .plan = plan, .box = *plan };
	memcpy(walk->step, step, sizeof(walk->step));
	for (int i = 0; i < plan->nloops; i++)
		clip(walk, i);
}

void kvt_cpu_walk_next(struct cpu_walk *walk)
{
	for (int i = walk->plan->nloops - 1; i >= 0; i--) {
		int64_t n = walk->box.n[i];

		walk->at[i] += n;
		walk->box.src_offset += n * walk->plan->src_stride[i];
		walk->box.dst_offset += n * walk->plan->dst_stride[i];
		if (walk->at[i] < walk->plan->n[i]) {
			clip(walk, i);
			return;
		}
		walk->box.src_offset -= walk->at[i] * walk->plan->src_stride[i];
		walk->box.dst_offset -= walk->at[i] * walk->plan->dst_stride[i];
		walk->at[i] = 0;
		clip(walk, i);
	}
	walk->done = true;
}

/* ---- blocks ------------------------------------------------------------- */

/* Do whole tiles fill whole lines?  Half a line is one if its half follows. */
static bool fills_lines(const struct cpu_nest *nest)
{
	const int64_t width = nest->isa->width, columns = 16 / nest->in.run;

	return nest->in.nd % (width / 16 * columns) == 0 &&
	       nest->in.ns % columns == 0 &&
	       (width == CPU_LINE || (nest->in.s_dst == width &&
				      nest->in.ns * width % CPU_LINE == 0));
}

/* The buffer holds the block densely; rows of it are rows of dst. */
static void stage_init(struct cpu_passes *p, const struct kvt_plan *box)
{
	struct kvt_plan in = *box, out = *box;
	int64_t bytes = box->run;

	out.run = row_bytes(box, box->n);
	for (int i = box->nloops - 1; i >= 0; i--) {
		in.dst_stride[i] = out.src_stride[i] = bytes;
		bytes *= in.n[i];
		if (bytes <= out.run)
			out.n[i] = 1;
	}
	kvt_cpu_nest_init(&p->gather, &in, p->isa);
	kvt_cpu_nest_init(&p->flush, &out, p->isa);
	p->flush.leaf = p->isa->stream;
}

static void passes_init(struct cpu_passes *p, const struct kvt_plan *box)
{
	if (p->ready && !memcmp(p->n, box->n, sizeof(p->n)))
		return;
	p->ready = true;
	p->staged = false;
	memcpy(p->n, box->n, sizeof(p->n));
	kvt_cpu_nest_init(&p->gather, box, p->isa);
	if (!p->stream)
		return;
	if (p->aligned && p->gather.leaf != kvt_cpu_rows &&
	    fills_lines(&p->gather)) {
		p->gather.leaf = p->gather.isa->past[kvt_cpu_log2(box->run)];
		return;
	}
	p->staged = true;
	stage_init(p, box);
}

/* Rows ask for nothing themselves. */
static void ask_for(struct cpu_ask *ask, const struct kvt_plan *box)
{
	for (int64_t i = kvt_plan_nbytes(box) / CPU_LINE; ask && i > 0; i--)
		cpu_ask_line(ask);
}

void kvt_cpu_copy_in_blocks(char *dst, const char *src,
			    const struct kvt_plan *plan, const int64_t step[],
			    struct cpu_passes *p)
{
	_Alignas(CPU_LINE) char stage[STAGE_MAX];
	struct cpu_walk walk;

	for (kvt_cpu_walk_start(&walk, plan, step); !walk.done;
	     kvt_cpu_walk_next(&walk)) {
		const char *from = src + walk.box.src_offset;
		char *to = dst + walk.box.dst_offset;

		passes_init(p, &walk.box);
		p->gather.in.ask = p->ask;
		if (p->gather.leaf == kvt_cpu_rows)
			ask_for(p->ask, &walk.box);
		kvt_cpu_nest_run(p->staged ? stage : to, from, &p->gather);
		if (p->staged)
			kvt_cpu_nest_run(to, stage, &p->flush);
	}
}

bool kvt_cpu_blocks_have_lines(const struct kvt_plan *plan)
{
	int64_t n[KVT_MAX_LOOPS];

	kvt_cpu_shape_block(n, plan);
	return row_bytes(plan, n) >= CPU_LINE;
}

void kvt_cpu_copy_blocks(void *dst, const void *src,
			 const struct kvt_plan *plan, const struct cpu_isa *isa)
{
	struct cpu_passes passes = { .isa = isa };
	struct cpu_nest nest;
	int64_t step[KVT_MAX_LOOPS];

	if (plan->run == 0)
		return;
	if (plan->run < CPU_LINE) {
		kvt_cpu_shape_block(step, plan);
		kvt_cpu_copy_in_blocks(dst, src, plan, step, &passes);
		return;
	}
	kvt_cpu_nest_init(&nest, plan, isa);
	nest.leaf = kvt_cpu_rows;
	kvt_cpu_nest_run((char *)dst + plan->dst_offset,
		     (const char *)src + plan->src_offset, &nest);
}
