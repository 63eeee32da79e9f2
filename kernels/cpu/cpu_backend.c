/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_backend.c - which kernels the host has, and which one a plan gets
 *
 *	ref				the definition, never chosen
 *	plain, sse2, avx2, avx512	by blocks
 *	sse2-stream ..			around the caches: from STREAM_FROM bytes on
 *
 * Of a kind a plan gets the last row that runs here, as the processor says at run time.
 * The bytes that count are those of all plans of a copy together.
 */
#include "kernels/cpu/cpu_kernels.h"

#include <stddef.h>

/*
 * Bytes from which the destination is written around the caches.  Measured with
 * warm buffers: at 16 MiB plain stores are 1.3 to 2 times as fast, at 32 MiB
 * the others 1.2 times, although the caches there are larger than both.
 */
enum { STREAM_FROM = 24 << 20 };

static bool always(void)
{
	return true;
}

#define BLOCKS(isa)							\
static void copy_##isa(void *dst, const void *src,			\
		       const struct kvt_plan *plan)			\
{									\
	kvt_cpu_copy_blocks(dst, src, plan, &kvt_cpu_isa_##isa);	\
}
#define STREAMS(isa)							\
static void copy_##isa##_stream(void *dst, const void *src,		\
				const struct kvt_plan *plan)		\
{									\
	kvt_cpu_copy_stream(dst, src, plan, &kvt_cpu_isa_##isa);	\
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

/* Within a kind the fastest comes last. */
static const struct kvt_kernel kernels[] = {
	{ "ref",           always,     NULL, kvt_cpu_copy_ref },
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
enum {
	NKERNELS     = sizeof(kernels) / sizeof(kernels[0]),
	FIRST_BLOCKS = 1,
	FIRST_STREAM = NKERNELS < 5 ? NKERNELS : 5,
};

const struct kvt_kernel *kvt_cpu_kernel(int i)
{
	return i >= 0 && i < NKERNELS ? &kernels[i] : NULL;
}

static const struct kvt_kernel *fastest(int first, int end)
{
	while (--end > first && !kernels[end].runs_here())
		;
	return &kernels[end];
}

const struct kvt_kernel *kvt_cpu_choose_for(int64_t nbytes)
{
	if (nbytes >= STREAM_FROM && FIRST_STREAM < NKERNELS)
		return fastest(FIRST_STREAM, NKERNELS);
	return fastest(FIRST_BLOCKS, FIRST_STREAM);
}

const struct kvt_kernel *kvt_cpu_choose(const struct kvt_plan *plan)
{
	return kvt_cpu_choose_for(kvt_plan_nbytes(plan));
}

void kvt_cpu_copy(void *dst, const void *src, const struct kvt_plan *plan)
{
	kvt_cpu_choose(plan)->copy(dst, src, plan);
}

void kvt_cpu_copy_all(void *dst, const void *src, const struct kvt_plans *plans)
{
	int64_t nbytes = 0;

	for (int i = 0; i < plans->count; i++)
		nbytes += kvt_plan_nbytes(&plans->plan[i]);
	for (int i = 0; i < plans->count; i++)
		kvt_cpu_choose_for(nbytes)->copy(dst, src, &plans->plan[i]);
}
