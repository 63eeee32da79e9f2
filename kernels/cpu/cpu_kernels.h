/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_kernels.h - what the CPU kernels share; nobody else includes it
 *
 * A kernel walks a plan block by block.  A block is a nest: three inner
 * loops, which a leaf function runs without looking left or right, and the loops
 * around them.  Only leaves depend on the instruction set.
 */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include "lib/kvt/kernels.h"
#include "lib/layout/cast_bits.h"

enum { CPU_LINE = 64, CPU_PAGE = 4096 };

/*
 * Asks memory for lines that are read later: one line each of 'rows' rows that
 * are 'step' apart, then the next line of each.  Memory fetches ahead by page:
 * several pages in turn keep it busy.  Whoever copies a line asks for one.
 */
struct cpu_ask {
	const char *at, *end;		/* the next line; behind the rows */
	int64_t step, back;		/* to the next row; to the first one again */
	bool near;			/* into the first-level cache */
};

static inline void cpu_ask_line(struct cpu_ask *ask)
{
	if (ask->near)
		__builtin_prefetch(ask->at, 0, 3);
	else
		__builtin_prefetch(ask->at, 0, 2);
	ask->at += ask->step;
	if (ask->at >= ask->end)
		ask->at -= ask->back;
}

/*
 * The inner loops and the runs in them, as one leaf call sees them: a call for
 * each few lines costs as much as what it does.
 *
 * A leaf asks for what is read later while it works, a line a line: asking for
 * a whole block at once leaves memory idle later.
 */
struct cpu_inner {
	int64_t run;
	int64_t nd, d_src, d_dst;	/* the loop that is fastest in dst */
	int64_t ns, s_src, s_dst;	/* the one that is fastest in src */
	int64_t nb, b_src, b_dst;	/* the one around them */
	struct cpu_ask *ask;		/* NULL: all is at hand */
};

typedef void cpu_leaf(char *dst, const char *src, const struct cpu_inner *in);

/* What one instruction set brings. */
struct cpu_isa {
	int width;			/* of its vectors, in bytes */
	const struct cpu_isa *narrower;	/* for rows below 'width'; or NULL */
	/*
	 * tile[i] transposes runs of 1 << i bytes: d_dst == s_src == run, so
	 * both sides have whole lines to offer.  past[i] does so around the
	 * caches: whole tiles only, and rows of dst aligned to 'width'.
	 */
	cpu_leaf *tile[5], *past[5];
	/* Runs of a line or more, around the caches, in any alignment. */
	cpu_leaf *stream;
	/* Orders what went around the caches before anything that follows. */
	void (*fence)(void);
};

/* nd * ns runs of any length, by plain stores. */
void kvt_cpu_rows(char *dst, const char *src, const struct cpu_inner *in);

/* The tile leaf of last resort, and what remains beside whole tiles. */
void kvt_cpu_tile_rest(char *dst, const char *src, const struct cpu_inner *in);

extern const struct cpu_isa kvt_cpu_isa_plain;
#if defined(__x86_64__)
extern const struct cpu_isa kvt_cpu_isa_sse2, kvt_cpu_isa_avx2;
extern const struct cpu_isa kvt_cpu_isa_avx512;
#endif

/* The loops around a leaf, slowest first. */
struct cpu_nest {
	struct cpu_inner in;
	cpu_leaf *leaf;
	const struct cpu_isa *isa;	/* of the leaf */
	int nloops;
	int64_t n[KVT_MAX_LOOPS], src[KVT_MAX_LOOPS], dst[KVT_MAX_LOOPS];
};

/*
 * 'box' is a plan whose loops may have one entry; its offsets do not matter.
 * The last loop becomes the inner one along the destination; the leaf is a tile
 * where another one runs along the source, else kvt_cpu_rows().
 */
void kvt_cpu_nest_init(struct cpu_nest *nest, const struct kvt_plan *box,
		       const struct cpu_isa *isa);
void kvt_cpu_nest_run(char *dst, const char *src, const struct cpu_nest *nest);

/* Index into the tiles of an instruction set; 5: there is none. */
int kvt_cpu_log2(int64_t run);

/* All blocks of a plan in destination order; 'box' is the current one. */
struct cpu_walk {
	const struct kvt_plan *plan;
	int64_t step[KVT_MAX_LOOPS], at[KVT_MAX_LOOPS];
	struct kvt_plan box;
	bool done;
};

/* step[]: entries of each loop that a block has, where so many are left. */
void kvt_cpu_walk_start(struct cpu_walk *walk, const struct kvt_plan *plan,
			const int64_t step[]);
void kvt_cpu_walk_next(struct cpu_walk *walk);

/* n[] becomes the loops of one block that fits the first-level cache. */
void kvt_cpu_shape_block(int64_t n[], const struct kvt_plan *plan);

/* Does a block of this plan write whole lines? */
bool kvt_cpu_blocks_have_lines(const struct kvt_plan *plan);

/*
 * What is done per block.  A line written around the caches must be written
 * whole and at once, or it costs a read as well.  Tiles that fill lines go out
 * from registers.  Anything else is put together in a small buffer first.
 */
struct cpu_passes {
	const struct cpu_isa *isa;
	bool stream;			/* around the caches */
	bool aligned;			/* each row of dst begins with a line */
	struct cpu_ask *ask;		/* NULL: for nothing */
	/* given up to here; the rest comes per shape of a block */
	bool ready, staged;
	int64_t n[KVT_MAX_LOOPS];	/* of the blocks that all this is for */
	struct cpu_nest gather, flush;
};

/* Block by block; 'step' as kvt_cpu_shape_block() gave it. */
void kvt_cpu_copy_in_blocks(char *dst, const char *src,
			    const struct kvt_plan *plan, const int64_t step[],
			    struct cpu_passes *passes);

/* The reference: one memcpy() per run. */
void kvt_cpu_copy_ref(void *dst, const void *src, const struct kvt_plan *plan);

/* By plain stores, for what fits the caches. */
void kvt_cpu_copy_blocks(void *dst, const void *src,
			 const struct kvt_plan *plan, const struct cpu_isa *isa);

/* The same around the caches, for what does not. */
void kvt_cpu_copy_stream(void *dst, const void *src,
			 const struct kvt_plan *plan, const struct cpu_isa *isa);

/* The kernel for work of 'nbytes' that comes in several plans. */
const struct kvt_kernel *kvt_cpu_choose_for(int64_t nbytes);

/* ---- casts -------------------------------------------------------------- */

/* Whole steps of cpu_cast.h. */
struct cpu_caster {
	struct {
		void (*load)(float *restrict out, const void *restrict from, int n);
		void (*store)(void *restrict to, const float *restrict in, int n);
	} type[CAST_NELEMENTS];
	void (*scale)(float *restrict x, int n, float times, float by);
	int32_t (*largest)(const float *x, int n);	/* bits, without signs */
};

extern const struct cpu_caster kvt_cpu_caster_plain, kvt_cpu_caster_avx2,
			       kvt_cpu_caster_avx512;

#endif
