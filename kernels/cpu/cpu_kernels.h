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

/*
 * Two inner loops and the runs in them, as one leaf call sees them.
 *
 * 'ahead' and 'near' say how far behind what is read now, in bytes, something
 * lies that will be read soon; 0 if that is not known.  A leaf asks for it while
 * it works: asking for a whole block at once leaves the memory idle afterwards.
 */
struct cpu_inner {
	int64_t run;
	int64_t nd, d_src, d_dst;	/* the loop that is fastest in dst */
	int64_t ns, s_src, s_dst;	/* the one that is fastest in src */
	int64_t ahead, near;
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
	/* Runs from LINE bytes on, around the caches, in any alignment. */
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
extern const struct cpu_isa kvt_cpu_isa_sse2, kvt_cpu_isa_avx2, kvt_cpu_isa_avx512;
#endif

/* The reference: one memcpy() per run. */
void kvt_cpu_copy_ref(void *dst, const void *src, const struct kvt_plan *plan);

/* Block by block with plain stores, for what fits the caches. */
void kvt_cpu_copy_blocks(void *dst, const void *src, const struct kvt_plan *plan,
		     const struct cpu_isa *isa);

/* The same around the caches, for what does not. */
void kvt_cpu_copy_stream(void *dst, const void *src, const struct kvt_plan *plan,
		     const struct cpu_isa *isa);

/* The kernel for work of 'nbytes' that comes in several plans. */
const struct kvt_kernel *kvt_cpu_choose_for(int64_t nbytes);

#endif
