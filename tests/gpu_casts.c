/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_casts.c - casts on a device are those of the CPU, bit for bit
 *
 * Every input of 16 and of 8 bits and as many random float32, of all pairs of types, with
 * factors and without; then plans of any loops, runs and alignment.  What the CPU's own
 * are held against is tests/oracle_cast.py.
 */
#include "tests/gpu_check.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/kvt/cast.h"

enum { ALL = 65536, LOOPS = 7, PAIRS = 40, CASES = 600, POISON = 0x96 };

static const char *const names[] = { "float32", "float16", "bfloat16", "float8_e4m3fn",
				     "float8_e4m3fnuz", "float8_e5m2" };
enum { NTYPES = sizeof(names) / sizeof(names[0]) };

/* What the CPU makes of it, run by run. */
static void expect(struct gpu_buffer *dst, const struct gpu_buffer *src,
		   const struct kvt_device_cast *c,
		   const struct kvt_device_factors *factors)
{
	struct kvt_plan_walk w;

	for (kvt_plan_walk_start(&w, &c->plan); !w.done; kvt_plan_walk_next(&w)) {
		struct kvt_device_factors f = { 1, 1 };
		int64_t at = 0;

		for (int i = 0; i < c->plan.nloops; i++)
			at += w.i[i] * c->step[i];
		if (factors)
			f = factors[at];
		kvt_cpu_cast_with(kvt_cpu_cast_kernel(0),
				  gpu_expect(dst) + w.dst * c->to->elem, c->to,
				  gpu_expect(src) + w.src * c->from->elem, c->from,
				  c->plan.run, f.times, f.by);
	}
}

/* The cast, with factors or NULL; 'dst' is poisoned, and the host has what must come. */
static bool runs_well(struct gpu_test *t, struct gpu_buffer *dst,
		      const struct gpu_buffer *src, struct kvt_device_cast *c,
		      const struct kvt_device_factors *factors, int nfactors)
{
	struct kvt_error err = { "" };
	void *room = NULL;
	bool ok = true;

	expect(dst, src, c, factors);
	if (factors)
		ok = gpu_good(kvt_device_alloc(&room, t->device, nfactors *
					       (int64_t)sizeof(*factors), &err), &err) &&
		     gpu_good(kvt_device_copy_in(t->device, room, factors, nfactors *
						 (int64_t)sizeof(*factors), NULL,
						 &err), &err);
	c->factors = room;
	ok = ok && gpu_good(kvt_device_cast(t->device, gpu_at(dst), gpu_at(src), c, NULL,
					    &err), &err) &&
	     gpu_buffer_same(dst, t, "cast");
	if (!ok && t->executor)
		printf("# executor: %s\n", t->exec_trouble());
	kvt_device_free(t->device, room);
	return ok;
}

/* ---- all inputs --------------------------------------------------------- */

/* Every one of 8 and 16 bits, random ones of 32, among them many of each kind. */
static bool fill(struct gpu_buffer *src, struct gpu_test *t, const struct kvt_dtype *from)
{
	struct kvt_error err = { "" };

	for (int64_t i = 0; i < ALL; i++) {
		uint32_t bits = from->elem < 4 ? (uint32_t)i : (uint32_t)check_random();

		/* exponents around those of small types, where random ones seldom are */
		if (from->elem == 4 && i % 2)
			bits = (bits & 0x807fffff) |
			       (uint32_t)(96 + check_below(64)) << 23;
		if (from->elem == 4 && i % 64 == 0)
			bits |= 0x7f800000;
		memcpy(gpu_expect(src) + i * from->elem, &bits, (size_t)from->elem);
	}
	return gpu_good(kvt_device_copy_in(t->device, gpu_at(src), gpu_expect(src),
					   src->nbytes, NULL, &err), &err) &&
	       gpu_good(kvt_device_wait(t->device, NULL, &err), &err);
}

static bool all_inputs(struct gpu_test *t, const struct kvt_dtype *from,
		       const struct kvt_dtype *to, bool scaled)
{
	const struct kvt_device_factors factors = { 0.75f, 0.0321f };
	struct kvt_device_cast c = { .to = to, .from = from, .plan = { .run = ALL } };
	struct gpu_buffer src, dst;
	bool ok;

	if (!gpu_buffer_new(&src, t, ALL * from->elem, -1) ||
	    !gpu_buffer_new(&dst, t, ALL * to->elem, POISON))
		return false;
	ok = fill(&src, t, from) &&
	     runs_well(t, &dst, &src, &c, scaled ? &factors : NULL, 1);
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
	return ok;
}

/* ---- plans -------------------------------------------------------------- */

/*
 * Loops whose order is another one in the destination, with room between runs or none,
 * and factors by some of them.
 */
static void random_plan(struct kvt_device_cast *c, int64_t n[2], int *nfactors)
{
	struct kvt_plan *p = &c->plan;
	int64_t src, dst, pair = 1;

	/* multiples of 8 with gaps of such, so that wide accesses come up, or any */
	const int64_t grain = check_below(2) ? 8 : 1;

	p->run = grain * (1 + check_below(check_below(4) ? 12 : 70)) + check_below(grain);
	p->nloops = (int)check_below(LOOPS + 1);
	src = p->run + check_below(3) * grain;
	dst = p->run + check_below(3) * grain;
	src = (src + grain - 1) / grain * grain;
	dst = (dst + grain - 1) / grain * grain;
	for (int i = p->nloops - 1; i >= 0; i--) {
		p->n[i] = 2 + check_below(p->nloops > 4 ? 1 : 3);
		p->src_stride[i] = src;
		src *= p->n[i];
		if (!check_below(3) || pair * p->n[i] > PAIRS)
			continue;
		c->step[i] = pair;
		pair *= p->n[i];
	}
	for (int i = 0; i < p->nloops; i++) {
		p->dst_stride[i] = dst;
		dst *= p->n[i];
	}
	p->src_offset = check_below(2) * grain;
	p->dst_offset = check_below(3) * grain;
	n[0] = p->src_offset + src;
	n[1] = p->dst_offset + dst;
	*nfactors = (int)pair;
}

static bool random_case(struct gpu_test *t)
{
	struct kvt_device_cast c = {
		.to = kvt_dtype_find(names[check_below(NTYPES)]),
		.from = kvt_dtype_find(names[check_below(NTYPES)]),
	};
	struct kvt_device_factors factors[PAIRS];
	struct gpu_buffer src, dst;
	int64_t n[2];
	int nfactors;
	bool ok;

	random_plan(&c, n, &nfactors);
	for (int i = 0; i < nfactors; i++)
		factors[i] = (struct kvt_device_factors){
			check_below(2) ? 1 : 0.01f * (float)(1 + check_below(400)),
			check_below(2) ? 1 : 0.01f * (float)(1 + check_below(400)) };
	if (!gpu_buffer_new(&src, t, n[0] * c.from->elem, -1) ||
	    !gpu_buffer_new(&dst, t, n[1] * c.to->elem, POISON))
		return false;
	t->device->blocks_max = 1 + check_below(9);
	t->device->launch_max = check_below(3) ? INT_MAX : 1 + check_below(40);
	ok = runs_well(t, &dst, &src, &c, check_below(4) ? factors : NULL, nfactors);
	if (!ok)
		printf("# --seed=%llu: %s to %s, run %lld, %d loops\n",
		       (unsigned long long)t->seed, c.from->name, c.to->name,
		       (long long)c.plan.run, c.plan.nloops);
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
	return ok;
}

static void check_refused(struct gpu_test *t)
{
	const struct kvt_device_cast c = { .to = kvt_dtype_find("float64"),
					   .from = kvt_dtype_find("bfloat16") };
	struct kvt_error err = { "" };

	gpu_point(kvt_device_cast(t->device, NULL, NULL, &c, NULL, &err) ==
		  KVT_UNSUPPORTED && strstr(err.text, "float64"),
		  "a type that no kernel casts is refused");
}

void gpu_check_casts(struct gpu_test *t)
{
	const int64_t blocks = t->device->blocks_max;
	const int64_t cases = t->cases < CASES ? t->cases : CASES;
	int64_t i;
	bool ok = true;

	for (int f = 0; f < NTYPES; f++) {
		for (int to = 0; to < NTYPES; to++)
			for (int scaled = 0; scaled < 2; scaled++)
				ok = all_inputs(t, kvt_dtype_find(names[f]),
						kvt_dtype_find(names[to]), scaled) && ok;
		gpu_point(ok, "every %s, or %d of them, as each type", names[f], ALL);
	}
	for (i = 0; i < cases && ok; i++)
		ok = random_case(t);
	gpu_point(ok, "%lld casts of random plans and factors", (long long)i);
	t->device->blocks_max = blocks;
	t->device->launch_max = INT_MAX;
	check_refused(t);
}
