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
	LINE      = 64,
	STAGE_MAX = 16384,	/* one line by one, both rounded up to 127 */
	STAGE     = 4096,	/* bytes of a block that is put together first, */
	BLOCK     = 8192,	/* and of one that is not; measured */
	LONG_RUN  = 1024,	/* from here two partial lines are cheap */
	PIECE     = 4096,	/* of a run longer than a block */
};

/* ---- nests -------------------------------------------------------------- */

/* The loops around a leaf, slowest first. */
struct nest {
	struct cpu_inner in;
	cpu_leaf *leaf;
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
		.in = { .run = box->run, .nd = 1, .ns = 1 }, .leaf = cpu_rows,
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

/* n[] becomes the loops of one block of at most about 'size' bytes. */
static void shape_block(int64_t n[], const struct kvt_plan *plan, int64_t size)
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
		int64_t more = n[i] * (size / bytes > 1 ? size / bytes : 1);

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

/* ---- the kernels -------------------------------------------------------- */

/* The lines that a leaf reads, as rows of 'bytes'. */
struct source_rows {
	int64_t count, bytes, step;
};

static struct source_rows rows_of(const struct cpu_inner *in)
{
	struct source_rows rows = { in->nd, in->run, in->d_src };

	if (in->s_src == in->run)
		rows.bytes *= in->ns;
	if (rows.step == rows.bytes) {
		rows.bytes *= rows.count;
		rows.count = 1;
	}
	return rows;
}

static void note_lines(char *dst, const char *src, const struct cpu_inner *in)
{
	struct source_rows rows = rows_of(in);
	int count = in->ahead->count;

	(void)dst;
	for (; rows.count > 0; rows.count--, src += rows.step)
		for (int64_t i = 0; i < rows.bytes && count < CPU_AHEAD; i += LINE)
			in->ahead->line[count++] = src + i;
	in->ahead->count = count;
}

static void ask_lines(char *dst, const char *src, const struct cpu_inner *in)
{
	struct source_rows rows = rows_of(in);

	(void)dst;
	for (; rows.count > 0; rows.count--, src += rows.step)
		for (int64_t i = 0; i < rows.bytes; i += LINE)
			__builtin_prefetch(src + i, 0, 2);
}

/*
 * What is done per block: see the next one coming, gather this one, and write
 * it out if it was staged.  Before a gather, all lines are asked for at once:
 * it has no stores to memory that would have to wait.
 */
struct passes {
	const struct cpu_isa *isa;
	bool stream, staged, ready;
	int64_t n[KVT_MAX_LOOPS];	/* of the blocks that these are for: */
	struct nest next, gather, flush;
	struct cpu_ahead ahead;
};

static void passes_init(struct passes *p, const struct kvt_plan *box)
{
	struct kvt_plan in = *box, out = *box;
	int64_t bytes = box->run;

	if (p->ready && !memcmp(p->n, box->n, sizeof(p->n)))
		return;
	p->ready = true;
	memcpy(p->n, box->n, sizeof(p->n));
	if (p->staged) {
		out.run = row_bytes(box, box->n);
		for (int i = box->nloops - 1; i >= 0; i--) {
			in.dst_stride[i] = out.src_stride[i] = bytes;
			bytes *= in.n[i];
			if (bytes <= out.run)
				out.n[i] = 1;
		}
		nest_init(&p->flush, &out, p->isa);
		p->flush.leaf = p->isa->stream;
	}
	nest_init(&p->gather, &in, p->isa);
	p->gather.in.ahead = p->flush.in.ahead = &p->ahead;
	p->next = p->gather;
	p->next.leaf = p->staged ? ask_lines : note_lines;
	if (p->stream && !p->staged)
		p->gather.leaf = p->isa->stream;
}

/*
 * A line written around the caches must be written whole and at once, or it
 * costs a read as well.  So, unless the runs are lines, a block is put together
 * in a small buffer and goes out from there in rows.
 */
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
		p->ahead.next = p->ahead.count = 0;
		if (p->stream && !walk.done)
			nest_run(to, src + walk.box.src_offset, &p->next);
		nest_run(p->staged ? stage : to, from, &p->gather);
		if (p->staged)
			nest_run(to, stage, &p->flush);
	}
}

/* One nest: runs are long enough to be read in any order. */
static void copy_direct(char *dst, const char *src, const struct kvt_plan *plan,
			const struct cpu_isa *isa, cpu_leaf *leaf)
{
	struct nest nest;

	nest_init(&nest, plan, isa);
	nest.leaf = leaf;
	nest_run(dst + plan->dst_offset, src + plan->src_offset, &nest);
}

void cpu_copy_blocks(void *dst, const void *src, const struct kvt_plan *plan,
		     const struct cpu_isa *isa)
{
	struct passes passes = { .isa = isa };
	int64_t step[KVT_MAX_LOOPS] = { 0 };

	if (!plan->run)
		return;
	if (plan->run >= LINE) {
		copy_direct(dst, src, plan, isa, cpu_rows);
		return;
	}
	shape_block(step, plan, BLOCK);
	copy_passes(dst, src, plan, &passes, step);
}

static bool lines_only(const char *dst, const struct kvt_plan *plan)
{
	uint64_t bits = (uint64_t)(uintptr_t)dst + (uint64_t)plan->dst_offset;

	bits |= (uint64_t)plan->run;
	for (int i = 0; i < plan->nloops; i++)
		bits |= (uint64_t)plan->dst_stride[i];
	return bits % LINE == 0;
}

/* A run that is longer than a block becomes a loop of pieces. */
static struct kvt_plan split_run(const struct kvt_plan *plan)
{
	struct kvt_plan out = *plan;

	if (plan->run <= PIECE || plan->run % PIECE ||
	    plan->nloops == KVT_MAX_LOOPS)
		return out;
	out.n[out.nloops] = plan->run / PIECE;
	out.src_stride[out.nloops] = out.dst_stride[out.nloops] = PIECE;
	out.nloops++;
	out.run = PIECE;
	return out;
}

void cpu_copy_stream(void *dst, const void *src, const struct kvt_plan *plan,
		     const struct cpu_isa *isa)
{
	const struct kvt_plan pieces = split_run(plan);
	struct passes passes = { .isa = isa, .stream = true };
	int64_t step[KVT_MAX_LOOPS] = { 0 };

	if (!plan->run)
		return;
	passes.staged = plan->run < LONG_RUN && !lines_only(dst, plan);
	shape_block(step, &pieces, passes.staged ? STAGE : BLOCK);
	if (row_bytes(&pieces, step) < LINE) {
		cpu_copy_blocks(dst, src, plan, isa);
		return;
	}
	copy_passes(dst, src, &pieces, &passes, step);
	isa->fence();
}
