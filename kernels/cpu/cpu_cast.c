/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_cast.c - which casts the host has, and chunks of elements through them
 *
 *	elements -> float32, a chunk -> * times * by -> elements
 *
 * Any pair of types goes through float32, so that there is a load and a store a type,
 * not a cast a pair.  Types without vector code are loaded and stored one by one.
 */
#define TARGET

#include "kernels/cpu/cpu_cast.h"

#include "lib/kvt/cast.h"

CAST_ISA(plain)

static bool always(void)
{
	return true;
}

#if defined(__x86_64__)
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

/* The fastest comes last. */
static const struct {
	struct kvt_cast_kernel kernel;
	const struct cpu_caster *caster;
} kernels[] = {
	{ { "plain",  always },     &kvt_cpu_caster_plain },
#if defined(__x86_64__)
	{ { "avx2",   has_avx2 },   &kvt_cpu_caster_avx2 },
	{ { "avx512", has_avx512 }, &kvt_cpu_caster_avx512 },
#endif
};
enum { NKERNELS = sizeof(kernels) / sizeof(kernels[0]) };

const struct kvt_cast_kernel *kvt_cpu_cast_kernel(int i)
{
	return i >= 0 && i < NKERNELS ? &kernels[i].kernel : NULL;
}

static int whole_steps(int64_t n)
{
	return (int)((n + CAST_STEP - 1) / CAST_STEP * CAST_STEP);
}

/*
 * A chunk, or the end of one; what is beside whole steps goes by a step of its own.  In
 * 'out' are zeros to the end of the last step.
 */
static void load(const struct cpu_caster *c, float *out, const struct kvt_dtype *from,
		 const char *src, int64_t n)
{
	int64_t whole = n / CAST_STEP * CAST_STEP, rest = n - whole;
	char room[CAST_STEP * 4];
	int type = kvt_cast_element(from);

	if (type < 0) {
		kvt_cast_load(out, from, src, n);
		for (int64_t i = n; i < whole_steps(n); i++)
			out[i] = 0;
		return;
	}
	c->type[type].load(out, src, (int)whole);
	if (!rest)
		return;
	memset(room, 0, sizeof(room));
	memcpy(room, src + whole * from->elem, (size_t)(rest * from->elem));
	c->type[type].load(out + whole, room, CAST_STEP);
}

static void store(const struct cpu_caster *c, char *dst, const struct kvt_dtype *to,
		  const float *in, int64_t n)
{
	int64_t whole = n / CAST_STEP * CAST_STEP, rest = n - whole;
	char room[CAST_STEP * 4];
	int type = kvt_cast_element(to);

	if (type < 0) {
		kvt_cast_store(dst, to, in, n);
		return;
	}
	c->type[type].store(dst, in, (int)whole);
	if (!rest)
		return;
	c->type[type].store(room, in + whole, CAST_STEP);
	memcpy(dst + whole * to->elem, room, (size_t)(rest * to->elem));
}

static const struct cpu_caster *caster_of(const struct kvt_cast_kernel *kernel)
{
	int i = NKERNELS - 1;

	while (i > 0 && &kernels[i].kernel != kernel &&
	       (kernel || !kernels[i].kernel.runs_here()))
		i--;
	return kernels[i].caster;
}

void kvt_cpu_cast_with(const struct kvt_cast_kernel *kernel, void *dst,
		       const struct kvt_dtype *to, const void *src,
		       const struct kvt_dtype *from, int64_t n, float times, float by)
{
	const struct cpu_caster *c = caster_of(kernel);
	float x[CAST_CHUNK];

	for (int64_t at = 0, m; at < n; at += m) {
		m = n - at < CAST_CHUNK ? n - at : CAST_CHUNK;
		load(c, x, from, (const char *)src + at * from->elem, m);
		if (times < 1 || times > 1 || by < 1 || by > 1)
			c->scale(x, whole_steps(m), times, by);
		store(c, (char *)dst + at * to->elem, to, x, m);
	}
}

void kvt_cpu_cast(void *dst, const struct kvt_dtype *to, const void *src,
		  const struct kvt_dtype *from, int64_t n, float times, float by)
{
	kvt_cpu_cast_with(NULL, dst, to, src, from, n, times, by);
}

float kvt_cpu_largest(const void *src, const struct kvt_dtype *from, int64_t n)
{
	const struct cpu_caster *c = caster_of(NULL);
	int32_t most = 0;

	for (int64_t at = 0, m; at < n; at += m) {
		float x[CAST_CHUNK];
		int32_t here;

		m = n - at < CAST_CHUNK ? n - at : CAST_CHUNK;
		load(c, x, from, (const char *)src + at * from->elem, m);
		here = c->largest(x, whole_steps(m));
		most = here > most ? here : most;
	}
	return cast_float_of(most);
}
