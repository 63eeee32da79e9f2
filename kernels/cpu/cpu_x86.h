/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_x86.h - leaves for x86-64, written once for all vector widths
 *
 * A file includes this with TARGET defined to the attribute of its instruction
 * set, and says which leaves it wants: TILES_16 TILES_32 PAST(32) STREAM(32).
 * Widths are in bytes, elements in bits.
 */
#ifndef CPU_X86_H
#define CPU_X86_H

#include "kernels/cpu/cpu_kernels.h"

#include <immintrin.h>
#include <string.h>

/* ---- vectors ------------------------------------------------------------ */

/*
 * LOAD takes 16 bytes each from p, p + step, ...: one row per 128-bit lane, so
 * that interleaving, which never leaves a lane, is the same at every width.
 */
#define VEC_16			__m128i
#define ANY_16(p)		_mm_loadu_si128((const __m128i *)(p))
#define LOAD_16(p, step)	ANY_16(p)
#define STORE_16(p, v)		_mm_storeu_si128((__m128i *)(p), v)
#define PAST_16(p, v)		_mm_stream_si128((__m128i *)(p), v)
#define LO_16(bits, a, b)	_mm_unpacklo_epi##bits(a, b)
#define HI_16(bits, a, b)	_mm_unpackhi_epi##bits(a, b)

#define VEC_32			__m256i
#define ANY_32(p)		_mm256_loadu_si256((const __m256i *)(p))
#define LOAD_32(p, step)						\
	_mm256_inserti128_si256(_mm256_castsi128_si256(ANY_16(p)),	\
				ANY_16((p) + (step)), 1)
#define STORE_32(p, v)		_mm256_storeu_si256((__m256i *)(p), v)
#define PAST_32(p, v)		_mm256_stream_si256((__m256i *)(p), v)
#define LO_32(bits, a, b)	_mm256_unpacklo_epi##bits(a, b)
#define HI_32(bits, a, b)	_mm256_unpackhi_epi##bits(a, b)

#define VEC_64			__m512i
#define ANY_64(p)		_mm512_loadu_si512(p)
#define LOAD_64(p, step)						\
	_mm512_inserti64x4(_mm512_castsi256_si512(LOAD_32(p, step)),	\
			   LOAD_32((p) + 2 * (step), step), 1)
#define STORE_64(p, v)		_mm512_storeu_si512(p, v)
#define PAST_64(p, v)		_mm512_stream_si512((__m512i *)(p), v)
#define LO_64(bits, a, b)	_mm512_unpacklo_epi##bits(a, b)
#define HI_64(bits, a, b)	_mm512_unpackhi_epi##bits(a, b)

/* ---- transposing -------------------------------------------------------- */

/*
 * A tile has N = 16 bytes / element columns and N rows per lane.  Interleaving
 * row i with row i + N/2 is a perfect shuffle: it rotates the bits of an
 * element's number (row, column) by one, so log2(N) of them swap the two.
 */
#define PAIR(w, bits, y, x, i, half)					\
	y[2 * (i)] = LO_##w(bits, x[i], x[(i) + (half)]);		\
	y[2 * (i) + 1] = HI_##w(bits, x[i], x[(i) + (half)]);

#define SHUFFLE_2(w, bits, y, x)					\
	PAIR(w, bits, y, x, 0, 1)
#define SHUFFLE_4(w, bits, y, x)					\
	PAIR(w, bits, y, x, 0, 2) PAIR(w, bits, y, x, 1, 2)
#define SHUFFLE_8(w, bits, y, x)					\
	PAIR(w, bits, y, x, 0, 4) PAIR(w, bits, y, x, 1, 4)		\
	PAIR(w, bits, y, x, 2, 4) PAIR(w, bits, y, x, 3, 4)
#define SHUFFLE_16(w, bits, y, x)					\
	PAIR(w, bits, y, x, 0, 8) PAIR(w, bits, y, x, 1, 8)		\
	PAIR(w, bits, y, x, 2, 8) PAIR(w, bits, y, x, 3, 8)		\
	PAIR(w, bits, y, x, 4, 8) PAIR(w, bits, y, x, 5, 8)		\
	PAIR(w, bits, y, x, 6, 8) PAIR(w, bits, y, x, 7, 8)

/* From x[] back to x[], with y[] as scratch. */
#define TRANSPOSE_1(w, bits, x, y)	(void)y;
#define TRANSPOSE_2(w, bits, x, y)					\
	SHUFFLE_2(w, bits, y, x) x[0] = y[0]; x[1] = y[1];
#define TRANSPOSE_4(w, bits, x, y)					\
	SHUFFLE_4(w, bits, y, x) SHUFFLE_4(w, bits, x, y)
#define TRANSPOSE_8(w, bits, x, y)					\
	SHUFFLE_8(w, bits, y, x) SHUFFLE_8(w, bits, x, y)		\
	SHUFFLE_8(w, bits, y, x)					\
	x[0] = y[0]; x[1] = y[1]; x[2] = y[2]; x[3] = y[3];		\
	x[4] = y[4]; x[5] = y[5]; x[6] = y[6]; x[7] = y[7];
#define TRANSPOSE_16(w, bits, x, y)					\
	SHUFFLE_16(w, bits, y, x) SHUFFLE_16(w, bits, x, y)		\
	SHUFFLE_16(w, bits, y, x) SHUFFLE_16(w, bits, x, y)

#define GET(w, i)	x[i] = LOAD_##w(from + (i) * in->d_src, N * in->d_src);
#define PUT(w, i)	STORE_##w(to + (i) * in->s_dst, x[i]);
#define PUT_PAST(w, i)	PAST_##w(to + (i) * in->s_dst, x[i]);

#define EACH_1(F, w)	F(w, 0)
#define EACH_2(F, w)	EACH_1(F, w) F(w, 1)
#define EACH_4(F, w)	EACH_2(F, w) F(w, 2) F(w, 3)
#define EACH_8(F, w)	EACH_4(F, w) F(w, 4) F(w, 5) F(w, 6) F(w, 7)
#define EACH_16(F, w)							\
	EACH_8(F, w) F(w, 8) F(w, 9) F(w, 10) F(w, 11)			\
	F(w, 12) F(w, 13) F(w, 14) F(w, 15)

/*
 * Whole tiles along destination rows, then the columns that are left, then the
 * rows: those by the next narrower tile.  A tile reads 16 bytes of each row.
 * Strides stay in memory on purpose: in variables, their multiples are computed
 * ahead and spilled, which is slower.
 */
#define TILE(name, put, w, bits, columns, narrower)			\
TARGET static void name##_##w##_##bits(char *dst, const char *src,	\
				       const struct cpu_inner *in)	\
{									\
	enum { N = columns, ROWS = (w) / 16 * N, ELEM = (bits) / 8 };	\
	const int64_t nd = in->nd / ROWS * ROWS, ns = in->ns / N * N;	\
	struct cpu_ask *shared = in->ask;				\
	struct cpu_ask ask = { 0 };					\
									\
	if (shared)							\
		ask = *shared;						\
	for (int64_t b = 0; b < in->nb; b++) {				\
		const char *column = src + b * in->b_src;		\
		char *row = dst + b * in->b_dst;			\
									\
		for (int64_t s = 0; s < ns; s += N) {			\
			const char *from = column;			\
			char *to = row;					\
									\
			for (int64_t d = 0; d < nd; d += ROWS) {	\
				VEC_##w x[N], y[N];			\
									\
				for (int i = 0; shared && i < ROWS; i += 4) \
					cpu_ask_line(&ask);		\
				EACH_##columns(GET, w)			\
				TRANSPOSE_##columns(w, bits, x, y)	\
				EACH_##columns(put, w)			\
				from += ROWS * in->d_src;		\
				to += ROWS * ELEM;			\
			}						\
			column += N * ELEM;				\
			row += N * in->s_dst;				\
		}							\
	}								\
	if (shared)							\
		*shared = ask;						\
	if (nd && ns < in->ns) {					\
		struct cpu_inner rest = *in;				\
									\
		rest.nd = nd;						\
		rest.ns = in->ns - ns;					\
		kvt_cpu_tile_rest(dst + ns * in->s_dst, src + ns * ELEM, &rest); \
	}								\
	if (nd < in->nd) {						\
		struct cpu_inner rest = *in;				\
									\
		rest.nd = in->nd - nd;					\
		narrower(dst + nd * ELEM, src + nd * in->d_src, &rest);	\
	}								\
}

#define TILES(w, n8, n16, n32, n64, n128)				\
	TILE(tile, PUT, w, 8, 16, n8)   TILE(tile, PUT, w, 16, 8, n16)	\
	TILE(tile, PUT, w, 32, 4, n32)  TILE(tile, PUT, w, 64, 2, n64)	\
	TILE(tile, PUT, w, 128, 1, n128)
#define TILES_16							\
	TILES(16, kvt_cpu_tile_rest, kvt_cpu_tile_rest, kvt_cpu_tile_rest, \
	      kvt_cpu_tile_rest, kvt_cpu_tile_rest)
#define TILES_32							\
	TILES(32, tile_16_8, tile_16_16, tile_16_32, tile_16_64, tile_16_128)
#define TILES_64							\
	TILES(64, tile_32_8, tile_32_16, tile_32_32, tile_32_64, tile_32_128)

#define PAST(w)								\
	TILE(past, PUT_PAST, w, 8, 16, kvt_cpu_tile_rest)		\
	TILE(past, PUT_PAST, w, 16, 8, kvt_cpu_tile_rest)		\
	TILE(past, PUT_PAST, w, 32, 4, kvt_cpu_tile_rest)		\
	TILE(past, PUT_PAST, w, 64, 2, kvt_cpu_tile_rest)		\
	TILE(past, PUT_PAST, w, 128, 1, kvt_cpu_tile_rest)

/* ---- streaming ---------------------------------------------------------- */

#define COPY_LINE(w)							\
	do {								\
		VEC_##w v[64 / (w)];					\
									\
		for (int i = 0; i < 64 / (w); i++)			\
			v[i] = ANY_##w(src + at + i * (w));		\
		for (int i = 0; i < 64 / (w); i++)			\
			PAST_##w(dst + at + i * (w), v[i]);		\
	} while (0)

#define STREAM(w)							\
TARGET __attribute__((always_inline)) static inline void		\
stream_run_##w(char *dst, const char *src, int64_t run, struct cpu_ask *ask) \
{									\
	int64_t at = -(uintptr_t)dst % 64;				\
									\
	if (at) {							\
		at = at < run ? at : run;				\
		memcpy(dst, src, (size_t)at);				\
	}								\
	for (; run - at >= 64; at += 64) {				\
		cpu_ask_line(ask);					\
		COPY_LINE(w);						\
	}								\
	if (at < run)							\
		memcpy(dst + at, src + at, (size_t)(run - at));		\
}									\
									\
TARGET static void stream_##w(char *dst, const char *src,		\
			      const struct cpu_inner *in)		\
{									\
	const struct cpu_inner n = *in;					\
	struct cpu_ask ask = { src, src + 1, 0, 0, false };		\
									\
	if (n.ask)							\
		ask = *n.ask;						\
	for (int64_t b = 0; b < n.nb; b++) {				\
		for (int64_t s = 0; s < n.ns; s++) {			\
			char *to = dst + b * n.b_dst + s * n.s_dst;	\
			const char *from = src + b * n.b_src + s * n.s_src; \
									\
			for (int64_t d = 0; d < n.nd; d++)		\
				stream_run_##w(to + d * n.d_dst,	\
					       from + d * n.d_src, n.run, &ask); \
		}							\
	}								\
	if (n.ask)							\
		*n.ask = ask;						\
}									\

static void fence(void)
{
	_mm_sfence();
}

#define ISA(w, narrower_isa)						\
	{								\
		.width = w, .narrower = narrower_isa,			\
		.tile = { tile_##w##_8, tile_##w##_16, tile_##w##_32,	\
			  tile_##w##_64, tile_##w##_128 },		\
		.past = { past_##w##_8, past_##w##_16, past_##w##_32,	\
			  past_##w##_64, past_##w##_128 },		\
		.stream = stream_##w,					\
		.fence = fence,						\
	}

#endif
