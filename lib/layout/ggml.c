/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ggml.c - blocks of ggml from 32 numbers, as its CPU backend makes those of a cache
 *
 * In: float32.  Out: scale, minimum and codes, whose places are the content's.  All is
 * float32 arithmetic in the order of ggml's, one operation a statement, so that no
 * compiler joins two.  On x86 the backend's q8_0 divides 127 by the largest number and
 * rounds ties to even; ggml's reference, and ARM, divide once more, and the reference
 * rounds ties away: some numbers in 10^6 differ by a step.  The other types are the
 * reference's everywhere.
 */
#include "lib/layout/cast_bits.h"
#include "lib/layout/content_types.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Compiled for each instruction set, with what is known of its type. */
#define EACH static inline __attribute__((always_inline))

enum { N = GGML_BLOCK };

/* Bits without the sign; those of NaN, which is larger than nothing, are 0. */
EACH int32_t magnitude(float x)
{
	int32_t u = cast_bits_of(x) & 0x7fffffff;

	return cast_pick(u > 0x7f800000, 0, u);
}

EACH int32_t largest(const float *x)
{
	int32_t most = 0;

	for (int i = 0; i < N; i++) {
		int32_t u = magnitude(x[i]);

		most = u > most ? u : most;
	}
	return most;
}

/* The one that is farthest from 0, with its sign; the first of them. */
EACH float farthest(const float *x)
{
	int32_t most = largest(x), first = N;

	for (int i = 0; i < N; i++) {
		int32_t here = cast_pick(magnitude(x[i]) == most, i, N);

		first = here < first ? here : first;
	}
	return most ? x[first] : 0;
}

EACH float inverse(float d)
{
	return d > 0 || d < 0 ? 1.0f / d : 0.0f;
}

/* Cut to a whole number up to 'most'; what is none is 0, as x86 has it. */
EACH uint8_t whole(float x, int32_t most)
{
	int32_t u = cast_bits_of(x), i;

	/* above 0 and below 128 */
	i = (int32_t)cast_float_of(cast_pick(u > 0 && u < 0x43000000, u, 0));
	return (uint8_t)cast_pick(i < most, i, most);
}

/* Codes around the middle of 2 * half: the farthest number is exact. */
EACH void centred(struct ggml_block *out, const float *x, int half)
{
	float d = farthest(x) / (float)-half, id = inverse(d);
	float middle = (float)half + 0.5f;

	out->scale = d;
	for (int i = 0; i < N; i++) {
		float scaled = x[i] * id;
		float moved = scaled + middle;

		out->code[i] = whole(moved, 2 * half - 1);
	}
}

/* Bits in the order of the numbers; of NaN it is 'instead'. */
EACH int32_t ordered(float x, int32_t instead)
{
	int32_t u = cast_bits_of(x), place = u ^ (u >> 31 & 0x7fffffff);

	return cast_pick((u & 0x7fffffff) > 0x7f800000, instead, place);
}

/* Of two zeros the first is the least, whatever its sign. */
EACH float first_zero(const float *x)
{
	int i = 0;

	while (i < N - 1 && !(x[i] <= 0 && x[i] >= 0))
		i++;
	return x[i];
}

/* From the least to the largest number, both exact. */
EACH void spread(struct ggml_block *out, const float *x, int most)
{
	const int32_t top = cast_bits_of(FLT_MAX), bottom = ordered(-FLT_MAX, 0);
	int32_t low = top, high = bottom;
	float least, range, d, id;

	for (int i = 0; i < N; i++) {
		int32_t l = ordered(x[i], top), h = ordered(x[i], bottom);

		low = l < low ? l : low;
		high = h > high ? h : high;
	}
	least = cast_float_of(low ^ (low >> 31 & 0x7fffffff));
	if (least <= 0 && least >= 0)
		least = first_zero(x);
	range = cast_float_of(high ^ (high >> 31 & 0x7fffffff)) - least;
	d = range / (float)most;
	id = inverse(d);
	out->scale = d;
	out->added = least;
	for (int i = 0; i < N; i++) {
		float above = x[i] - least;
		float scaled = above * id;
		float moved = scaled + 0.5f;

		out->code[i] = whole(moved, most);
	}
}

EACH void block_q4_0(struct ggml_block *out, const float *x)
{
	centred(out, x, 8);
}

EACH void block_q5_0(struct ggml_block *out, const float *x)
{
	centred(out, x, 16);
}

EACH void block_q4_1(struct ggml_block *out, const float *x)
{
	spread(out, x, 15);
}

EACH void block_q5_1(struct ggml_block *out, const float *x)
{
	spread(out, x, 31);
}

EACH void block_q8_0(struct ggml_block *out, const float *x)
{
	float most = cast_float_of(largest(x));
	float id = most > 0 ? 127.0f / most : 0.0f;

	out->scale = most / 127.0f;
	/* a sum with 1.5 * 2^23 has the whole number in its last bits */
	for (int i = 0; i < N; i++) {
		float scaled = x[i] * id;
		int32_t u = cast_bits_of(scaled);
		int32_t finite = (u & 0x7fffffff) < 0x7f800000;
		float sum = cast_float_of(cast_pick(finite, u, 0)) + 12582912.0f;

		out->code[i] = (uint8_t)(cast_bits_of(sum) - cast_bits_of(12582912.0f));
	}
}

/* ---- a code book ---------------------------------------------------------- */

/* That of coding.c. */
static const float value[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
				 1, 13, 25, 38, 53, 69, 89, 113 };

/* Of ascending values: the nearest, of two the greater. */
EACH int nearest(float x)
{
	int low = 0, high = 15;

	if (x <= value[0] || !isfinite(x))
		return 0;
	if (x >= value[15])
		return 15;
	while (high - low > 1) {
		int middle = (low + high) / 2;

		if (x < value[middle])
			high = middle;
		else
			low = middle;
	}
	return x - value[low] < value[high] - x ? low : high;
}

/*
 * The scale that is best for the codes, by squared distances weighted by the squares of
 * the numbers.
 */
EACH void block_iq4_nl(struct ggml_block *out, const float *x)
{
	float most = farthest(x), id, up = 0, down = 0;

	if (fabsf(most) < 1e-15f)
		return;
	id = most / value[0];
	id = 1 / id;
	for (int i = 0; i < N; i++) {
		float scaled = id * x[i], q, weight = x[i] * x[i], by, square;

		out->code[i] = (uint8_t)nearest(scaled);
		q = value[out->code[i]];
		by = weight * q;
		square = by * q;
		by = by * x[i];
		up += by;
		down += square;
	}
	out->scale = down > 0 ? up / down : 0.0f;
}

/* ---- bytes --------------------------------------------------------------- */

/* Of several blocks at once, which lie 'size' apart: conversions are vectors then. */
enum { STEP = 32 };

EACH void put_halves(uint8_t *to, const float *x, int64_t n, int size)
{
	int32_t bits[STEP];

	for (int i = 0; i < STEP; i++)
		bits[i] = cast_to_f16(x[i]);
	for (int64_t i = 0; i < n; i++, to += size) {
		to[0] = (uint8_t)bits[i];
		to[1] = (uint8_t)(bits[i] >> 8);
	}
}

/* Low halves before high ones, behind the highest bit of each if there are five. */
EACH void put_codes(uint8_t *to, const struct ggml_block *block, int bits)
{
	uint32_t high = 0;

	if (bits == 8) {
		memcpy(to, block->code, N);
		return;
	}
	if (bits == 5) {
		for (int i = 0; i < N; i++)
			high |= (uint32_t)(block->code[i] >> 4 & 1) << i;
		for (int b = 0; b < 4; b++)
			*to++ = (uint8_t)(high >> (8 * b));
	}
	for (int i = 0; i < N / 2; i++)
		to[i] = (uint8_t)((block->code[i] & 15) | block->code[N / 2 + i] << 4);
}

/* Name, bits of a code, is something added. */
#define GGML_TYPES(X, isa, target) \
X(q4_0, 4, 0, isa, target) X(q4_1, 4, 1, isa, target) X(q5_0, 5, 0, isa, target) \
X(q5_1, 5, 1, isa, target) X(q8_0, 8, 0, isa, target) X(iq4_nl, 4, 0, isa, target)

#define ROWS(type, bits, has_added, isa, target) \
target static void rows_##type##_##isa(uint8_t *to, const float *x, int64_t n) \
{ \
	enum { HEAD = (has_added) ? 4 : 2, SIZE = HEAD + N * (bits) / 8 }; \
	float scale[STEP] = { 0 }, added[STEP] = { 0 }; \
	\
	for (int64_t m; n > 0; n -= m, to += m * SIZE) { \
		m = n < STEP ? n : STEP; \
		for (int64_t i = 0; i < m; i++, x += N) { \
			struct ggml_block block; \
			\
			block.scale = 0; \
			if ((bits) == 4) \
				memset(block.code, 0, N); \
			block_##type(&block, x); \
			scale[i] = block.scale; \
			if (has_added) \
				added[i] = block.added; \
			put_codes(to + i * SIZE + HEAD, &block, bits); \
		} \
		put_halves(to, scale, m, SIZE); \
		if (has_added) \
			put_halves(to + 2, added, m, SIZE); \
	} \
}

GGML_TYPES(ROWS, plain, )
#if defined(__x86_64__)
GGML_TYPES(ROWS, avx2, __attribute__((target("avx2"))))
GGML_TYPES(ROWS, avx512, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))))

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#define CHOOSE(type) (has_avx512() ? rows_##type##_avx512 : \
		      has_avx2() ? rows_##type##_avx2 : rows_##type##_plain)
#else
#define CHOOSE(type) rows_##type##_plain
#endif

#define OFFER(type, bits, has_added, isa, target) \
void kvt_ggml_##type(struct ggml_block *out, const float *numbers) \
{ \
	block_##type(out, numbers); \
} \
void kvt_ggml_rows_##type(uint8_t *to, const float *numbers, int64_t blocks) \
{ \
	CHOOSE(type)(to, numbers, blocks); \
}
GGML_TYPES(OFFER, , )
