/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_plan.h - what host and device agree on: the kernels and their arguments
 *
 * Read by C, nvcc, clang for AMD and the executor of the tests: plain structs
 * of fixed width, nothing else.
 */
#ifndef GPU_PLAN_H
#define GPU_PLAN_H

#include <stdint.h>

/*
 * Every kernel instance, once, as X(name, type of an access, dims).  From these
 * lists come the entry points of the device code, the executor's table and the
 * host's.
 *
 *   spread  threads follow each other through the destination
 *   lanes   threads share a run, each takes several accesses of it
 *   blocks  lanes, with the slowest loop taken through block tables
 *   tile    whole rows of the source into shared memory, out as whole rows
 *   list    (source, destination, length), lanes to each
 *   cast    elements of another type than the source's, which has the access;
 *           dims are the bytes of one of the destination
 *   naive   the plainest: one element a thread, 64-bit divisions
 */
#define GPU_SPREAD_KERNELS(X)		\
	X(spread_16_2, gpu_unit16, 2)	\
	X(spread_16_4, gpu_unit16, 4)	\
	X(spread_16_6, gpu_unit16, 6)	\
	X(spread_8_6, uint64_t, 6)	\
	X(spread_4_6, uint32_t, 6)	\
	X(spread_2_6, uint16_t, 6)	\
	X(spread_1_6, uint8_t, 6)
#define GPU_LANES_KERNELS(X)		\
	X(lanes_16_2, gpu_unit16, 2)	\
	X(lanes_16_4, gpu_unit16, 4)	\
	X(lanes_16_6, gpu_unit16, 6)	\
	X(lanes_8_6, uint64_t, 6)	\
	X(lanes_4_6, uint32_t, 6)	\
	X(lanes_2_6, uint16_t, 6)	\
	X(lanes_1_6, uint8_t, 6)
#define GPU_BLOCKS_KERNELS(X)		\
	X(blocks_16_6, gpu_unit16, 6)	\
	X(blocks_8_6, uint64_t, 6)	\
	X(blocks_4_6, uint32_t, 6)	\
	X(blocks_2_6, uint16_t, 6)	\
	X(blocks_1_6, uint8_t, 6)
#define GPU_TILE_KERNELS(X)		\
	X(tile_16, gpu_unit16, 6)	\
	X(tile_8, uint64_t, 6)		\
	X(tile_4, uint32_t, 6)		\
	X(tile_2, uint16_t, 6)		\
	X(tile_1, uint8_t, 6)
#define GPU_LIST_KERNELS(X)		\
	X(list, gpu_unit16, 0)
#define GPU_CAST_KERNELS(X)		\
	X(cast_1_1, uint8_t, 1)		\
	X(cast_1_2, uint8_t, 2)		\
	X(cast_1_4, uint8_t, 4)		\
	X(cast_2_1, uint16_t, 1)	\
	X(cast_2_2, uint16_t, 2)	\
	X(cast_2_4, uint16_t, 4)	\
	X(cast_4_1, uint32_t, 1)	\
	X(cast_4_2, uint32_t, 2)	\
	X(cast_4_4, uint32_t, 4)
#define GPU_NAIVE_KERNELS(X)		\
	X(naive_2, uint16_t, 12)	\
	X(naive_1, uint8_t, 12)
#define GPU_KERNELS(X)							\
	GPU_SPREAD_KERNELS(X) GPU_LANES_KERNELS(X) GPU_BLOCKS_KERNELS(X) \
	GPU_TILE_KERNELS(X) GPU_LIST_KERNELS(X) GPU_CAST_KERNELS(X)	\
	GPU_NAIVE_KERNELS(X)

enum {
	GPU_DIMS        = 6,		/* loops of one launch */
	GPU_NAIVE_DIMS  = 12,
	GPU_THREADS     = 256,		/* of every block */
	GPU_BATCH       = 4,		/* loads a thread has in flight */
	GPU_TILE_BYTES  = 16384,	/* shared memory that holds tiles */
	GPU_TILE_PLACES = 64,		/* tiles in it, at most */
};

/*
 * Division by n as a multiplication and a shift, exact for x < 2^31:
 * q = (high half of x * mul + x) >> shift.
 */
struct gpu_div {
	uint32_t n, mul, shift;
};

/* The loops around what a thread or a tile does, slowest first; unused ones
   come first and have one entry. */
struct gpu_dims {
	struct gpu_div div[GPU_DIMS];
	uint32_t unused;		/* keeps the next on 8 bytes everywhere */
	uint32_t unused_too;
	int64_t src[GPU_DIMS], dst[GPU_DIMS];
};

/* spread, lanes and blocks */
struct gpu_copy {
	struct gpu_dims dims;
	uint32_t total;			/* threads' worth of work, < 2^31 */
	uint32_t units;			/* accesses of a run */
	struct gpu_div per_run;		/* spread: units; lanes: chunks of a run */
	uint32_t lanes_log2;		/* lanes: threads that share a run */
};

/*
 * A tile is td entries of the loop that is fastest in the destination (d) by ts
 * of the one that is fastest in the source (s).  Shared memory holds td rows,
 * 'pitch' bytes apart, as the source has them.
 */
struct gpu_tile {
	struct gpu_dims dims;		/* loops around d and s */
	int64_t src_d, dst_s;		/* d in the source, s in the destination */
	uint32_t tiles;			/* in all, < 2^31 */
	uint32_t per_block;		/* that shared memory holds at once */
	uint32_t nd, ns, td, ts;
	uint32_t run, pitch, tile_pitch;
	uint32_t wide_in, wide_out;	/* rows by 16 bytes, or by the unit? */
	struct gpu_div tiles_d, tiles_s;	/* tiles along d and s */
	struct gpu_div row_in, rows_in;		/* accesses of a row read; td */
	struct gpu_div row_out, rows_out;	/* of a row written; ts */
	struct gpu_div units;			/* units of a run */
};

/* One entry of a list; offsets count from the two base addresses. */
struct gpu_run {
	int64_t src, dst, len;
};

struct gpu_list {
	uint32_t total;			/* entries times lanes, < 2^31 */
	uint32_t lanes_log2;
};

/* Runs and strides are of elements.  Round k of loop i: factors k * factor[i] further. */
struct gpu_cast {
	struct gpu_dims dims;
	int64_t run;
	int64_t factor[GPU_DIMS];
	uint32_t total;			/* threads' worth of work, < 2^31 */
	uint32_t each;			/* elements of one: GPU_CAST_EACH(), or 1 */
	struct gpu_div per_run;		/* such works of a run */
	uint32_t from, to;		/* enum cast_element */
	uint32_t bytes;			/* elements are not aligned: byte by byte */
};

/* What a thread takes at once where all runs are aligned to it, by bytes of elements. */
#define GPU_CAST_EACH(from, to)	((from) == 4 || (to) == 4 ? 4 : 8)

struct gpu_naive {
	int64_t total;			/* elements */
	int64_t per_run;
	int64_t n[GPU_NAIVE_DIMS], src[GPU_NAIVE_DIMS], dst[GPU_NAIVE_DIMS];
	int64_t ndims;
};

#endif
