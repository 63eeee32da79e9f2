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
	LINE       = 64,
	BLOCK      = 4096,	/* bytes; measured: half or twice is slower */
	STAGE_MAX  = 16384,	/* a line by a line, both rounded up to 127 */
	MEDIUM_RUN = 256,
	LONG_RUN   = 1024,	/* from here two partial lines are cheap */
};

/* ---- nests -------------------------------------------------------------- */

/* The loops around a leaf, slowest first. */
struct nest {
	struct cpu_inner in;
	cpu_leaf *leaf;
	const struct cpu_isa *isa;	/* of the leaf */
	int nloops;
	int64_t n[KVT_MAX_LOOPS], src[KVT_MAX_LOOPS], dst[KVT_MAX_LOOPS];
};

/* Which loop, if any, runs along the source. */
static int source_loop(const struct kvt_plan *box)
{
	for (int i = box->nloops - 2; i >= 0; i--)
		if (box->n[i] > 1 && box->src_stride[i] == box->run)
			return i;
	return -1;
}

static int log2_of(int64_t run)
{
	int log2 = 0;

	while (log2 < 5 && run != 1 << log2)
		log2++;
	return log2;
}

/*
 * 'box' is a plan whose loops may have one entry; the offsets do not matter.
 * The last loop becomes the inner one along the destination.
 */
static void nest_init(struct nest *nest, const struct kvt_plan *box,
		      const struct cpu_isa *isa)
{
	const int last = box->nloops - 1, s = source_loop(box);
	const int log2 = log2_of(box->run);

	*nest = (struct nest){
		.in = { .run = box->run, .nd = 1, .ns = 1 }, .leaf = kvt_cpu_rows,
	};
	if (last >= 0) {
		nest->in.nd = box->n[last];
		nest->in.d_src = box->src_stride[last];
		nest->in.d_dst = box->dst_stride[last];
	}
	if (s >= 0) {
		nest->in.ns = box->n[s];
		nest->in.s_src = box->src_stride[s];
		nest->in.s_dst = box->dst_stride[s];
		while (isa->narrower && nest->in.nd * box->run < isa->width)
			isa = isa->narrower;
		nest->isa = isa;
		if (log2 < 5 && nest->in.nd > 1 && nest->in.d_dst == box->run)
			nest->leaf = isa->tile[log2];
	}
	for (int i = 0; i < last; i++) {
		if (i == s || box->n[i] == 1)
			continue;
		nest->n[nest->nloops] = box->n[i];
		nest->src[nest->nloops] = box->src_stride[i];
		nest->dst[nest->nloops++] = box->dst_stride[i];
	}
	if (!nest->nloops)
		nest->n[nest->nloops++] = 1;
}

static void nest_run(char *dst, const char *src, const struct nest *nest)
{
	const int inner = nest->nloops - 1;
	int64_t at[KVT_MAX_LOOPS] = { 0 };
	int i;

	do {
		for (int64_t k = 0; k < nest->n[inner]; k++)
			nest->leaf(dst + k * nest->dst[inner],
				   src + k * nest->src[inner], &nest->in);
		for (i = inner - 1; i >= 0; i--) {
			dst += nest->dst[i];
			src += nest->src[i];
			if (++at[i] < nest->n[i])
				break;
			dst -= nest->dst[i] * nest->n[i];
			src -= nest->src[i] * nest->n[i];
			at[i] = 0;
		}
	} while (i >= 0);
}

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

/* n[] becomes the loops of one block of at most about BLOCK bytes. */
static void shape_block(int64_t n[], const struct kvt_plan *plan)
{
	int64_t extent = plan->run, bytes = plan->run;
	int i;

	for (i = 0; i < plan->nloops; i++)
		n[i] = 1;
	for (i = plan->nloops - 1; i >= 0 && extent < LINE &&
	     plan->dst_stride[i] == extent; i--) {
		n[i] = entries(plan, i, extent, LINE);
		extent *= n[i];
		bytes *= n[i];
	}
	extent = plan->run;
	while (extent < LINE && (i = loop_at(plan, extent)) >= 0) {
		int64_t more = entries(plan, i, extent, LINE);

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

/* All blocks of a plan in destination order; 'box' is the current one. */
struct block_walk {
	const struct kvt_plan *plan;
	int64_t step[KVT_MAX_LOOPS], at[KVT_MAX_LOOPS];
	struct kvt_plan box;
	bool done;
};

static void block_clip(struct block_walk *walk, int i)
{
	int64_t left = walk->plan->n[i] - walk->at[i];

	walk->box.n[i] = left < walk->step[i] ? left : walk->step[i];
}

static void block_start(struct block_walk *walk, const struct kvt_plan *plan,
			const int64_t step[])
{
	*walk = (struct block_walk){ .plan = plan, .box = *plan };
	memcpy(walk->step, step, sizeof(walk->step));
	for (int i = 0; i < plan->nloops; i++)
		block_clip(walk, i);
}

static void block_next(struct block_walk *walk)
{
	for (int i = walk->plan->nloops - 1; i >= 0; i--) {
		int64_t n = walk->box.n[i];

		walk->at[i] += n;
		walk->box.src_offset += n * walk->plan->src_stride[i];
		walk->box.dst_offset += n * walk->plan->dst_stride[i];
		if (walk->at[i] < walk->plan->n[i]) {
			block_clip(walk, i);
			return;
		}
		walk->box.src_offset -= walk->at[i] * walk->plan->src_stride[i];
		walk->box.dst_offset -= walk->at[i] * walk->plan->dst_stride[i];
		walk->at[i] = 0;
		block_clip(walk, i);
	}
	walk->done = true;
}

/* ---- blocks ------------------------------------------------------------- */

/*
 * What is done per block.  A line written around the caches must be written
 * whole and at once, or it costs a read as well.  Tiles that fill lines go out
 * from registers.  Anything else is put together in a small buffer first.
 */
struct passes {
	const struct cpu_isa *isa;
	bool stream, aligned;		/* given; what follows comes per shape: */
	bool ready, staged;
	int64_t n[KVT_MAX_LOOPS];	/* of the blocks that all this is for */
	struct nest gather, flush;
};

/* Do whole tiles fill whole lines?  Half a line is one if its half follows. */
static bool fills_lines(const struct nest *nest)
{
	const int64_t width = nest->isa->width, columns = 16 / nest->in.run;

	return nest->in.nd % (width / 16 * columns) == 0 &&
	       nest->in.ns % columns == 0 &&
	       (width == LINE || (nest->in.s_dst == width &&
				  nest->in.ns * width % LINE == 0));
}

/* The buffer holds the block densely; rows of it are rows of dst. */
static void stage_init(struct passes *p, const struct kvt_plan *box)
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
	nest_init(&p->gather, &in, p->isa);
	nest_init(&p->flush, &out, p->isa);
	p->flush.leaf = p->isa->stream;
}

static void passes_init(struct passes *p, const struct kvt_plan *box)
{
	if (p->ready && !memcmp(p->n, box->n, sizeof(p->n)))
		return;
	p->ready = true;
	p->staged = false;
	memcpy(p->n, box->n, sizeof(p->n));
	nest_init(&p->gather, box, p->isa);
	if (!p->stream)
		return;
	if (p->aligned && p->gather.leaf != kvt_cpu_rows && fills_lines(&p->gather)) {
		p->gather.leaf = p->gather.isa->past[log2_of(box->run)];
		return;
	}
	p->staged = true;
	stage_init(p, box);
}

static void copy_passes(char *dst, const char *src, const struct kvt_plan *plan,
			struct passes *p, const int64_t step[])
{
	_Alignas(LINE) char stage[STAGE_MAX];
	struct block_walk walk;

	for (block_start(&walk, plan, step); !walk.done;) {
		const char *from = src + walk.box.src_offset;
		char *to = dst + walk.box.dst_offset;

		passes_init(p, &walk.box);
		block_next(&walk);
		p->gather.in.ahead = 0;
		if (p->stream && !walk.done)
			p->gather.in.ahead = src + walk.box.src_offset - from;
		nest_run(p->staged ? stage : to, from, &p->gather);
		if (p->staged)
			nest_run(to, stage, &p->flush);
	}
}

/* ---- the kernels -------------------------------------------------------- */

void kvt_cpu_copy_blocks(void *dst, const void *src, const struct kvt_plan *plan,
		     const struct cpu_isa *isa)
{
	struct passes passes = { .isa = isa };
	int64_t step[KVT_MAX_LOOPS] = { 0 };
	struct nest nest;

	if (!plan->run)
		return;
	if (plan->run < LINE) {
		shape_block(step, plan);
		copy_passes(dst, src, plan, &passes, step);
		return;
	}
	nest_init(&nest, plan, isa);
	nest.leaf = kvt_cpu_rows;
	nest_run((char *)dst + plan->dst_offset,
		 (const char *)src + plan->src_offset, &nest);
}

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
 * Runs of a line and more need no block.  How far ahead to ask is measured:
 * within a long run, in the next one, or, where those are short and so taken in
 * source order, behind it.
 */
static void stream_runs(char *dst, const char *src, const struct kvt_plan *plan,
			const struct cpu_isa *isa)
{
	struct kvt_plan sorted = *plan;
	struct nest nest;

	if (plan->run < MEDIUM_RUN)
		sort_by_source(&sorted);
	nest_init(&nest, &sorted, isa);
	nest.leaf = isa->stream;
	nest.in.ahead = nest.in.near = nest.in.d_src;
	if (plan->run < MEDIUM_RUN)
		nest.in.ahead = nest.in.near = 1024;
	if (plan->run >= 4096) {
		nest.in.ahead = 4096;
		nest.in.near = 512;
	}
	nest_run(dst + plan->dst_offset, src + plan->src_offset, &nest);
}

/* Do all blocks begin with a line?  Loops below a line stay within it. */
static bool lines_only(const char *dst, const struct kvt_plan *plan)
{
	uint64_t bits = (uint64_t)(uintptr_t)dst + (uint64_t)plan->dst_offset;

	for (int i = 0; i < plan->nloops; i++)
		if (plan->dst_stride[i] >= LINE)
			bits |= (uint64_t)plan->dst_stride[i];
	return bits % LINE == 0;
}

void kvt_cpu_copy_stream(void *dst, const void *src, const struct kvt_plan *plan,
		     const struct cpu_isa *isa)
{
	struct passes passes = { .isa = isa, .stream = true,
				 .aligned = lines_only(dst, plan) };
	int64_t step[KVT_MAX_LOOPS] = { 0 };

	if (!plan->run)
		return;
	shape_block(step, plan);
	if (plan->run >= LONG_RUN || (plan->run % LINE == 0 && passes.aligned)) {
		stream_runs(dst, src, plan, isa);
	} else if (row_bytes(plan, step) >= LINE) {
		copy_passes(dst, src, plan, &passes, step);
	} else {	/* no whole line to write */
		kvt_cpu_copy_blocks(dst, src, plan, isa);
		return;
	}
	isa->fence();
}
