/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patterns.c - words of eight bytes, whose elements are all looked at together
 *
 * An element is NaN or infinite where its exponent is all ones, that is where its bits
 * without the sign are at least some limit.  So adding what lacks from the limit to the
 * sign's place sets the sign's bit in those and in no other, and carries into no
 * neighbour: five operations on a word, whatever the elements are, and no branch.
 */
#include "lib/ops/numbers/numbers.h"

#include <string.h>

/* For each byte of an element the same, or for all its bytes together. */
#define EACH_1(x) (UINT64_C(0x0101010101010101) * (x))
#define EACH_2(x) (UINT64_C(0x0001000100010001) * (x))
#define EACH_4(x) (UINT64_C(0x0000000100000001) * (x))
#define EACH_8(x) (UINT64_C(1) * (x))

struct pattern {
	const char *type;
	uint64_t flip, mask, lacks;
	uint64_t always;		/* 0: only if the highest bit is set, too */
	uint64_t high;
};

#define SIGNED(type, each, high, limit) \
	{ type, 0, each((high) - 1), each((high) - (limit)), ~UINT64_C(0), each(high) }
/* Of eight bits a single one is NaN: 'bits', whose highest is set. */
#define SINGLE(type, bits) \
	{ type, EACH_1(0x7f & ~(bits)), EACH_1(0x7f), EACH_1(1), 0, EACH_1(0x80) }

static const struct pattern patterns[] = {
	SIGNED("bfloat16", EACH_2, 0x8000, 0x7f80),
	SIGNED("float16", EACH_2, 0x8000, 0x7c00),
	SIGNED("float32", EACH_4, 0x80000000, 0x7f800000),
	SIGNED("float32_and_zero", EACH_4, 0x80000000, 0x7f800000),
	SIGNED("float64", EACH_8, 0x8000000000000000, 0x7ff0000000000000),
	SIGNED("float8_e4m3fn", EACH_1, 0x80, 0x7f),
	SIGNED("float8_e5m2", EACH_1, 0x80, 0x7c),
	SINGLE("float8_e4m3fnuz", 0x80),
	SINGLE("float8_e5m2fnuz", 0x80),
	SINGLE("float8_e8m0", 0xff),
	SINGLE("float8_e8m0_or_0", 0xff),
};
enum { NPATTERNS = sizeof(patterns) / sizeof(patterns[0]) };

int kvt_pattern_find(const char *type)
{
	for (int i = 0; i < NPATTERNS; i++)
		if (!strcmp(patterns[i].type, type))
			return i;
	return -1;
}

/* ---- rows ------------------------------------------------------------------- */

/* Words somewhere in memory, as many as AVX2 takes at once; of SSE2 it is two halves. */
typedef uint64_t words_at __attribute__((vector_size(32), may_alias, aligned(1)));
enum { WORDS = sizeof(words_at) / sizeof(uint64_t) };

/* Always a part of what is compiled for several processors. */
#define PART static inline __attribute__((always_inline))

PART struct kvt_seen_rows look(const uint8_t *bytes, int64_t n, int64_t stride, int rows,
			       const struct pattern *pattern)
{
	const struct pattern p = *pattern;
	struct kvt_seen_rows seen = { 0, 0 };

	for (int i = 0; i < rows; i++, bytes += stride) {
		const words_at *words = (const words_at *)(const void *)bytes;
		const int64_t whole = n / (int64_t)sizeof(words_at);
		words_at any = { 0 }, odd = { 0 }, w = { 0 };

		for (int64_t j = 0; j < whole; j++) {
			any |= words[j];
			odd |= (((words[j] ^ p.flip) & p.mask) + p.lacks) &
			       (words[j] | p.always);
		}
		/* zeros are numbers in every type */
		memcpy(&w, words + whole, (size_t)(n % (int64_t)sizeof(words_at)));
		any |= w;
		odd |= (((w ^ p.flip) & p.mask) + p.lacks) & (w | p.always);
		for (int j = 1; j < WORDS; j++) {
			any[0] |= any[j];
			odd[0] |= odd[j];
		}
		seen.any |= (uint64_t)(any[0] != 0) << i;
		seen.odd |= (uint64_t)((odd[0] & p.high) != 0) << i;
	}
	return seen;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static struct kvt_seen_rows
look_avx2(const uint8_t *bytes, int64_t n, int64_t stride, int rows,
	  const struct pattern *pattern)
{
	return look(bytes, n, stride, rows, pattern);
}
#endif

struct kvt_seen_rows kvt_look_at_rows(const uint8_t *bytes, int64_t n, int64_t stride,
				      int rows, int pattern)
{
	static const struct pattern none = { .type = "" };
	const struct pattern *p = pattern < 0 ? &none : &patterns[pattern];

#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2"))
		return look_avx2(bytes, n, stride, rows, p);
#endif
	return look(bytes, n, stride, rows, p);
}
