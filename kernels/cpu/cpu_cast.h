/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_cast.h - casts of elements, written once for all instruction sets
 *
 * A file includes this with TARGET defined to the attribute of its instruction set.  A
 * chunk is float32 in between, and stays in the first cache.  Counts are whole steps,
 * whose loops have a fixed count, so that compilers make vectors of them.
 */
#ifndef CPU_CAST_H
#define CPU_CAST_H

#include "kernels/cpu/cpu_kernels.h"

#include <string.h>

enum { CAST_CHUNK = 1024, CAST_STEP = 64 };

#define CAST_LOOP(id, name, type) \
TARGET static void cast_load_##id(float *restrict out, const void *restrict from, int n) \
{ \
	const char *restrict byte = from; \
	\
	for (; n > 0; n -= CAST_STEP, out += CAST_STEP) \
		for (int i = 0; i < CAST_STEP; i++, byte += sizeof(type)) { \
			type element; \
			\
			memcpy(&element, byte, sizeof(type)); \
			out[i] = cast_from_##id(element); \
		} \
} \
TARGET static void cast_store_##id(void *restrict to, const float *restrict in, int n) \
{ \
	char *restrict byte = to; \
	\
	for (; n > 0; n -= CAST_STEP, in += CAST_STEP) \
		for (int i = 0; i < CAST_STEP; i++, byte += sizeof(type)) { \
			type element = (type)cast_to_##id(in[i]); \
			\
			memcpy(byte, &element, sizeof(type)); \
		} \
}

#define CAST_ROW(id, name, type) { cast_load_##id, cast_store_##id },

#define CAST_ISA(isa) \
CAST_ELEMENTS(CAST_LOOP) \
TARGET static void cast_scale(float *restrict x, int n, float times, float by) \
{ \
	for (; n > 0; n -= CAST_STEP, x += CAST_STEP) \
		for (int i = 0; i < CAST_STEP; i++) \
			x[i] = x[i] * times / by; \
} \
TARGET static int32_t cast_largest(const float *x, int n) \
{ \
	int32_t most[CAST_STEP] = { 0 }, out = 0; \
	\
	for (; n > 0; n -= CAST_STEP, x += CAST_STEP) \
		for (int i = 0; i < CAST_STEP; i++) { \
			const int32_t u = cast_bits_of(x[i]) & 0x7fffffff; \
			\
			most[i] = cast_pick(u > most[i], u, most[i]); \
		} \
	for (int i = 0; i < CAST_STEP; i++) \
		out = most[i] > out ? most[i] : out; \
	return out; \
} \
const struct cpu_caster kvt_cpu_caster_##isa = { \
	.type = { CAST_ELEMENTS(CAST_ROW) }, .scale = cast_scale, \
	.largest = cast_largest, \
};

#endif
