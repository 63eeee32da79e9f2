/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_backend.c - which kernels the host has, and which one a plan gets */
#include "kernels/cpu/cpu_kernels.h"

#include <stddef.h>

enum { STREAM_FROM = 32 << 20 };

static bool always(void)
{
	return true;
}

#define BLOCKS(isa)							\
static void copy_##isa(void *dst, const void *src,			\
		       const struct kvt_plan *plan)			\
{									\
	cpu_copy_blocks(dst, src, plan, &cpu_isa_##isa);		\
}
#define STREAMS(isa)							\
static void copy_##isa##_stream(void *dst, const void *src,		\
				const struct kvt_plan *plan)		\
{									\
	cpu_copy_stream(dst, src, plan, &cpu_isa_##isa);		\
}

BLOCKS(plain)
#if defined(__x86_64__)
BLOCKS(sse2) BLOCKS(avx2) BLOCKS(avx512)
STREAMS(sse2) STREAMS(avx2) STREAMS(avx512)

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") &&
	       __builtin_cpu_supports("avx512dq");
}
#endif

static const struct kvt_kernel kernels[] = {
	{ "ref",           always,     NULL, cpu_copy_ref },
	{ "plain",         always,     NULL, copy_plain },
#if defined(__x86_64__)
	{ "sse2",          always,     NULL, copy_sse2 },
	{ "avx2",          has_avx2,   NULL, copy_avx2 },
	{ "avx512",        has_avx512, NULL, copy_avx512 },
	{ "sse2-stream",   always,     NULL, copy_sse2_stream },
	{ "avx2-stream",   has_avx2,   NULL, copy_avx2_stream },
	{ "avx512-stream", has_avx512, NULL, copy_avx512_stream },
#endif
};
enum { NKERNELS = sizeof(kernels) / sizeof(kernels[0]) };

const struct kvt_kernel *kvt_cpu_kernel(int i)
{
	return i >= 0 && i < NKERNELS ? &kernels[i] : NULL;
}

const struct kvt_kernel *kvt_cpu_choose(const struct kvt_plan *plan)
{
	int level = has_avx512() ? 2 : has_avx2() ? 1 : 0;

	if (kvt_plan_nbytes(plan) >= STREAM_FROM)
		return &kernels[5 + level];
	return &kernels[2 + level];
}

void kvt_cpu_copy(void *dst, const void *src, const struct kvt_plan *plan)
{
	kvt_cpu_choose(plan)->copy(dst, src, plan);
}

void kvt_cpu_copy_all(void *dst, const void *src, const struct kvt_plans *plans)
{
	for (int i = 0; i < plans->count; i++)
		kvt_cpu_copy(dst, src, &plans->plan[i]);
}
