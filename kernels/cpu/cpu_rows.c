/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_rows.c - leaves in plain C
 *
 * A memcpy() of a constant size is a load and a store; one of a variable size
 * is a call, which below 16 bytes costs 10 to 20 times the copy.
 */
#include "kernels/cpu/cpu_kernels.h"

#include <string.h>

/* Beyond this the library's copy is as good as ours. */
enum { LONG_RUN = 1024 };

/* ---- runs of one length ------------------------------------------------- */

#define ROWS(size)							\
static void rows_##size(char *dst, const char *src,			\
			const struct cpu_inner *in)			\
{									\
	for (int64_t d = 0; d < in->nd; d++)				\
		memcpy(dst + d * in->d_dst, src + d * in->d_src, size);	\
}
ROWS(1) ROWS(2) ROWS(4) ROWS(8) ROWS(16) ROWS(32) ROWS(64)

/* first <= run <= 2 * first: two copies that may overlap. */
#define ROWS_BETWEEN(first)						\
static void rows_from_##first(char *dst, const char *src,		\
			      const struct cpu_inner *in)		\
{									\
	const int64_t last = in->run - first;				\
									\
	for (int64_t d = 0; d < in->nd; d++) {				\
		memcpy(dst, src, first);				\
		memcpy(dst + last, src + last, first);			\
		dst += in->d_dst;					\
		src += in->d_src;					\
	}								\
}
ROWS_BETWEEN(2) ROWS_BETWEEN(4) ROWS_BETWEEN(8) ROWS_BETWEEN(16)
ROWS_BETWEEN(32)

static void rows_over_64(char *dst, const char *src, const struct cpu_inner *in)
{
	const int64_t last = in->run - 64;

	for (int64_t d = 0; d < in->nd; d++) {
		for (int64_t i = 0; i < last; i += 64)
			memcpy(dst + i, src + i, 64);
		memcpy(dst + last, src + last, 64);
		dst += in->d_dst;
		src += in->d_src;
	}
}

static void rows_long(char *dst, const char *src, const struct cpu_inner *in)
{
	for (int64_t d = 0; d < in->nd; d++)
		memcpy(dst + d * in->d_dst, src + d * in->d_src,
		       (size_t)in->run);
}

/* ---- by length ---------------------------------------------------------- */

/* The first row that is long enough; exact lengths stand before ranges. */
static const struct {
	int64_t from, to;
	cpu_leaf *rows;
} by_length[] = {
	{  1,  1, rows_1 },  {  2,  2, rows_2 },  {  4,  4, rows_4 },
	{  8,  8, rows_8 },  { 16, 16, rows_16 }, { 32, 32, rows_32 },
	{ 64, 64, rows_64 },
	{  2,  4, rows_from_2 },  {  4,  8, rows_from_4 },
	{  8, 16, rows_from_8 },  { 16, 32, rows_from_16 },
	{ 32, 64, rows_from_32 }, { 64, LONG_RUN - 1, rows_over_64 },
	{ LONG_RUN, INT64_MAX, rows_long },
};

void kvt_cpu_rows(char *dst, const char *src, const struct cpu_inner *in)
{
	int i = 0;

	while (in->run < by_length[i].from || in->run > by_length[i].to)
		i++;
	for (int64_t b = 0; b < in->nb; b++)
		for (int64_t s = 0; s < in->ns; s++)
			by_length[i].rows(dst + b * in->b_dst + s * in->s_dst,
					  src + b * in->b_src + s * in->s_src, in);
}

/* ---- the tile of last resort -------------------------------------------- */

/* Along the source, as the tiles do: its lines are read once. */
void kvt_cpu_tile_rest(char *dst, const char *src, const struct cpu_inner *in)
{
	struct cpu_inner row = {
		.run = in->run, .nd = in->ns, .d_src = in->s_src,
		.d_dst = in->s_dst, .ns = in->nd, .s_src = in->d_src,
		.s_dst = in->d_dst,
		.nb = in->nb, .b_src = in->b_src, .b_dst = in->b_dst,
	};

	kvt_cpu_rows(dst, src, &row);
}

const struct cpu_isa kvt_cpu_isa_plain = {
	.tile = { kvt_cpu_tile_rest, kvt_cpu_tile_rest, kvt_cpu_tile_rest,
		  kvt_cpu_tile_rest, kvt_cpu_tile_rest },
};
