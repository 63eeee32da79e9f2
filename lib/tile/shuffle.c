/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shuffle.c - the byte shuffle and the Fletcher-32 of stored tiles
 *
 * The inner loops of the shuffle have constant trip counts: that is what gcc and clang
 * need to vectorize them at -O2.  Each is compiled a second time for AVX2, which is
 * chosen at run time: it shuffles twice and adds three times as fast as SSE2.
 */
#include "lib/tile/zstd_frame.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "words are taken from memory as they are");

/* ---- byte shuffle ------------------------------------------------------- */

enum { RUN = 64 };		/* elements that the inner loops take at once */

/*
 * Loops of a few instructions: across lines of the instruction cache they take up to
 * twice as long, and any change elsewhere in the program moves them.
 */
#define HOT __attribute__((aligned(64)))

/* A part of what is compiled for several processors. */
#define PART static inline __attribute__((always_inline))

/*
 * A word anywhere in memory.  To copy words into an array first would keep a processor
 * waiting that stores less at once than it loads.
 */
typedef uint16_t word_at __attribute__((may_alias, aligned(1)));

/* Even bytes of 2 * RUN to 'even', odd ones to 'odd'. */
PART void split(uint8_t *restrict even, uint8_t *restrict odd,
		const uint8_t *restrict src)
{
	const word_at *word = (const word_at *)(const void *)src;

	/* Narrowing words vectorizes; picking every second byte does not. */
	for (int i = 0; i < RUN; i++)
		even[i] = (uint8_t)(word[i] & 0xff);
	for (int i = 0; i < RUN; i++)
		odd[i] = (uint8_t)(word[i] >> 8);
}

PART void merge(uint8_t *restrict dst, const uint8_t *restrict even,
		  const uint8_t *restrict odd)
{
	for (int i = 0; i < RUN; i++) {
		dst[2 * i] = even[i];
		dst[2 * i + 1] = odd[i];
	}
}

/*
 * RUN elements of 2, 4 or 8 bytes.  A stage turns each of g groups of bytes
 * into two; group q becomes q and q + g, so that the last stage numbers its
 * groups as the planes, which are 'n' bytes apart.
 */
PART void shuffle_run(uint8_t *dst, const uint8_t *src, int64_t n, int elem)
{
	uint8_t buf[2][8 * RUN];
	int half = elem * RUN / 2;

	for (int g = 1, flip = 0; 2 * g < elem; g *= 2, half /= 2, flip ^= 1) {
		uint8_t *out = buf[flip];

		for (int q = 0; q < g; q++)
			for (int i = 0; i < half; i += RUN)
				split(out + q * half + i, out + (q + g) * half + i,
				      src + 2 * (q * half + i));
		src = out;
	}
	for (int q = 0; q < elem / 2; q++)
		split(dst + q * n, dst + (q + elem / 2) * n, src + 2 * q * RUN);
}

PART void unshuffle_run(uint8_t *dst, const uint8_t *src, int64_t n, int elem)
{
	uint8_t buf[2][8 * RUN];
	int half = RUN, flip = 0;
	int64_t plane = n;

	for (int g = elem / 2; g > 0; g /= 2, half *= 2, flip ^= 1) {
		uint8_t *out = g == 1 ? dst : buf[flip];

		for (int q = 0; q < g; q++)
			for (int i = 0; i < half; i += RUN)
				merge(out + 2 * (q * half + i), src + q * plane + i,
				      src + (q + g) * plane + i);
		src = out;
		plane = 2 * half;
	}
}

/* Elements that the runs do not take: any size, or the last few. */
static void shuffle_rest(uint8_t *dst, const uint8_t *src, int64_t first,
			 int64_t n, int64_t elem)
{
	for (int64_t p = 0; p < elem; p++)
		for (int64_t i = first; i < n; i++)
			dst[p * n + i] = src[i * elem + p];
}

static void unshuffle_rest(uint8_t *dst, const uint8_t *src, int64_t first,
			   int64_t n, int64_t elem)
{
	for (int64_t i = first; i < n; i++)
		for (int64_t p = 0; p < elem; p++)
			dst[i * elem + p] = src[p * n + i];
}

/* In runs; both return how many elements they took. */
PART int64_t shuffle_runs(uint8_t *dst, const uint8_t *src, int64_t n, int elem)
{
	int64_t i = 0;

	for (; i + RUN <= n; i += RUN)
		shuffle_run(dst + i, src + i * elem, n, elem);
	return i;
}

PART int64_t unshuffle_runs(uint8_t *dst, const uint8_t *src, int64_t n, int elem)
{
	int64_t i = 0;

	for (; i + RUN <= n; i += RUN)
		unshuffle_run(dst + i * elem, src + i, n, elem);
	return i;
}

typedef int64_t runs_fn(uint8_t *dst, const uint8_t *src, int64_t n, int64_t elem);

/* A size that is a constant unrolls the stages. */
PART int64_t shuffle_sizes(uint8_t *dst, const uint8_t *src, int64_t n, int64_t elem)
{
	return elem == 2 ? shuffle_runs(dst, src, n, 2) :
	       elem == 4 ? shuffle_runs(dst, src, n, 4) :
	       elem == 8 ? shuffle_runs(dst, src, n, 8) : 0;
}

PART int64_t unshuffle_sizes(uint8_t *dst, const uint8_t *src, int64_t n, int64_t elem)
{
	return elem == 2 ? unshuffle_runs(dst, src, n, 2) :
	       elem == 4 ? unshuffle_runs(dst, src, n, 4) :
	       elem == 8 ? unshuffle_runs(dst, src, n, 8) : 0;
}

/* ---- Fletcher-32 -------------------------------------------------------- */

/*
 * HDF5 adds up big-endian words and folds carries back every 360 words.  That
 * leaves each sum as its residue modulo 65535, where 0 stands for a sum of
 * nothing but zeros and any other multiple of 65535 is 0xffff.  So the words
 * may be added in any grouping; and as a byte swap is a multiplication by 256
 * modulo 65535, it is done once, at the end.
 */
struct sums {
	uint64_t s1, s2;	/* residues below 65535 */
	bool nonzero;
};

enum {
	LANES = 16,
	STEPS = 360,		/* 0xffff * 360 * 361 / 2 fits 32 bits */
};

/* Half of the lanes: the widest that AVX2 adds at once. */
typedef uint16_t words __attribute__((vector_size(LANES)));
typedef uint32_t lanes __attribute__((vector_size(2 * LANES)));

/*
 * LANES words in each of 'steps' steps.  In vectors and with names for all four sums:
 * as loops over arrays gcc 12 makes a third of the speed of it.
 */
PART void
add_steps(struct sums *sums, const uint8_t *bytes, int64_t steps)
{
	lanes a_low = { 0 }, a_high = { 0 }, b_low = { 0 }, b_high = { 0 };
	uint32_t a[LANES], b[LANES];
	uint64_t t1 = 0, t2 = 0;

	for (int64_t j = 0; j < steps; j++, bytes += 2 * LANES) {
		words low, high;

		memcpy(&low, bytes, sizeof(low));
		memcpy(&high, bytes + sizeof(low), sizeof(high));
		a_low += __builtin_convertvector(low, lanes);
		a_high += __builtin_convertvector(high, lanes);
		b_low += a_low;
		b_high += a_high;
	}
	memcpy(a, &a_low, sizeof(a_low));
	memcpy(a + LANES / 2, &a_high, sizeof(a_high));
	memcpy(b, &b_low, sizeof(b_low));
	memcpy(b + LANES / 2, &b_high, sizeof(b_high));
	/* b counts a word once a step; the second sum does once a word. */
	for (int i = 0; i < LANES; i++) {
		t1 += a[i];
		t2 += (uint64_t)LANES * b[i] - (uint64_t)i * a[i];
	}
	sums->s2 = (sums->s2 + (uint64_t)(steps * LANES) * sums->s1 + t2) % 65535;
	sums->s1 = (sums->s1 + t1) % 65535;
	sums->nonzero |= t1 != 0;
}

typedef void add_steps_fn(struct sums *sums, const uint8_t *bytes, int64_t steps);

static void add_word(struct sums *sums, uint16_t word)
{
	sums->s1 = (sums->s1 + word) % 65535;
	sums->s2 = (sums->s2 + sums->s1) % 65535;
	sums->nonzero |= word != 0;
}

static uint32_t folded(uint64_t residue, bool nonzero)
{
	uint32_t sum = (uint32_t)(residue * 256 % 65535);

	return nonzero && sum == 0 ? 0xffff : sum;
}

static uint32_t fletcher32(const void *bytes, int64_t nbytes, add_steps_fn *add)
{
	const uint8_t *p = bytes;
	struct sums sums = { 0 };
	int64_t left = nbytes;

	while (left >= 2 * LANES) {
		int64_t steps = left / (2 * LANES);

		steps = steps < STEPS ? steps : STEPS;
		add(&sums, p, steps);
		p += steps * 2 * LANES;
		left -= steps * 2 * LANES;
	}
	for (; left >= 2; p += 2, left -= 2)
		add_word(&sums, (uint16_t)(p[0] | p[1] << 8));
	if (left)
		add_word(&sums, p[0]);	/* the high byte, before the swap */
	return folded(sums.s2, sums.nonzero) << 16 | folded(sums.s1, sums.nonzero);
}

/* ---- for the processor at hand ------------------------------------------- */

/* What is compiled for a kind of processor. */
struct loops {
	runs_fn *shuffle, *unshuffle;
	add_steps_fn *add_steps;
};

HOT static int64_t shuffle_plain(uint8_t *dst, const uint8_t *src, int64_t n,
				 int64_t elem)
{
	return shuffle_sizes(dst, src, n, elem);
}

HOT static int64_t unshuffle_plain(uint8_t *dst, const uint8_t *src, int64_t n,
				   int64_t elem)
{
	return unshuffle_sizes(dst, src, n, elem);
}

HOT static void add_steps_plain(struct sums *sums, const uint8_t *bytes, int64_t steps)
{
	add_steps(sums, bytes, steps);
}

static const struct loops plain = { shuffle_plain, unshuffle_plain, add_steps_plain };

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))

HOT AVX2 static int64_t shuffle_avx2(uint8_t *dst, const uint8_t *src, int64_t n,
				     int64_t elem)
{
	return shuffle_sizes(dst, src, n, elem);
}

HOT AVX2 static int64_t unshuffle_avx2(uint8_t *dst, const uint8_t *src, int64_t n,
				       int64_t elem)
{
	return unshuffle_sizes(dst, src, n, elem);
}

HOT AVX2 static void add_steps_avx2(struct sums *sums, const uint8_t *bytes,
				    int64_t steps)
{
	add_steps(sums, bytes, steps);
}

static const struct loops avx2 = { shuffle_avx2, unshuffle_avx2, add_steps_avx2 };
#endif

static const struct loops *fastest(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2"))
		return &avx2;
#endif
	return &plain;
}

static void shuffle(void *dst, const void *src, int64_t nbytes, int64_t elem,
		    const struct loops *loops)
{
	int64_t n = nbytes / elem;

	shuffle_rest(dst, src, loops->shuffle(dst, src, n, elem), n, elem);
}

static void unshuffle(void *dst, const void *src, int64_t nbytes, int64_t elem,
		      const struct loops *loops)
{
	int64_t n = nbytes / elem;

	unshuffle_rest(dst, src, loops->unshuffle(dst, src, n, elem), n, elem);
}

void kvt_shuffle(void *dst, const void *src, int64_t nbytes, int64_t elem)
{
	shuffle(dst, src, nbytes, elem, fastest());
}

void kvt_unshuffle(void *dst, const void *src, int64_t nbytes, int64_t elem)
{
	unshuffle(dst, src, nbytes, elem, fastest());
}

uint32_t kvt_fletcher32(const void *bytes, int64_t nbytes)
{
	return fletcher32(bytes, nbytes, fastest()->add_steps);
}

void kvt_shuffle_plain(void *dst, const void *src, int64_t nbytes, int64_t elem)
{
	shuffle(dst, src, nbytes, elem, &plain);
}

void kvt_unshuffle_plain(void *dst, const void *src, int64_t nbytes, int64_t elem)
{
	unshuffle(dst, src, nbytes, elem, &plain);
}

uint32_t kvt_fletcher32_plain(const void *bytes, int64_t nbytes)
{
	return fletcher32(bytes, nbytes, plain.add_steps);
}
