/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - the same numbers in each run: 'seed' decides all that follow */
#ifndef KVT_TESTS_UNIT_RANDOM_H
#define KVT_TESTS_UNIT_RANDOM_H

#include <stdint.h>

static uint64_t seed;

/* 0 to n - 1. */
static inline int64_t below(int64_t n)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (int64_t)((seed >> 33) % (uint64_t)n);
}

#endif
