/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_kernels.h - what the CPU kernels share; nobody else includes it
 *
 * A kernel walks a plan block by block.  A block is a nest: two inner loops,
 * which a leaf function runs without looking left or right, and the loops
 * around them.  Only leaves depend on the instruction set.
 */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include "kernels/kernels.h"

enum { CPU_LINE = 64, CPU_PAGE = 4096 };

/* In what order 'stream' takes the lines of runs. */
enum cpu_turns {
	CPU_BY_RUN,			/* one run after the other */
	CPU_BY_FOUR,			/* four runs in turn, line by line */
	CPU_BY_PAGES,			/* the pages of a run in turn, line by line */
};

/*
 * Two inner loops and the runs in them, as one leaf call sees them.
 *
 * 'ahead' and 'near' say how far behind what is read now, in bytes, something
 * lies that will be read soon; 0 if that is not known.  A leaf asks for it
 * while it works: asking for a whole block at once leaves memory idle later.
 */
struct cpu_inner {
	int64_t run;
	int64_t nd, d_src, d_dst;	/* the loop that is fastest in dst */
	int64_t ns, s_src, s_dst;	/* the one that is fastest in src */
	int64_t ahead, near;
	enum cpu_turns by;
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

/* Does a block of this plan write whole lines? */
bool kvt_cpu_blocks_have_lines(const struct kvt_plan *plan);

/*
 * Block by block, around the caches if 'stream'; 'aligned' says that each row
 * of dst begins with a line.
 */
void kvt_cpu_copy_in_blocks(char *dst, const char *src,
			    const struct kvt_plan *plan,
			    const struct cpu_isa *isa, bool stream,
			    bool aligned);

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

#endif
