/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_plans.c - random plans on a device, by every kernel that takes them */
#include "tests/gpu_check.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 4096, ROOM = 256 << 10, LONGEST = 1152, FAILURES = 5, POISON = 0xa5 };

static const struct {
	enum gpu_method method;
	const char *name;
} methods[] = {
	{ GPU_BEST, "the choice" }, { GPU_SPREAD, "spread" },
	{ GPU_LANES, "lanes" }, { GPU_TILE, "tile" }, { GPU_NAIVE, "naive" },
};
enum { NMETHODS = sizeof(methods) / sizeof(methods[0]) };

static struct counts {
	int64_t ran[NMETHODS], failed[NMETHODS];
	int64_t kernel[GPU_NKERNELS];	/* plans that the choice gave it */
	bool run_seen[LONGEST + 1];
} counts;

/* Grids of a block, of several, of all; launches of a part, or of all. */
static void random_limits(struct gpu_test *t)
{
	static const int64_t blocks[] = { 1, 2, 5, 64 };

	t->device->blocks_max = blocks[check_below(4)];
	t->device->launch_max = check_below(4) ? INT_MAX : 256 + check_below(2048);
}

static bool run_one(struct gpu_test *t, int m, struct gpu_buffer *dst,
		    const struct gpu_buffer *src, const struct kvt_plan *plan)
{
	struct kvt_error err = { "" };
	enum kvt_status status;

	random_limits(t);
	status = kvt_gpu_copy(t->device, methods[m].method, gpu_at(dst), gpu_at(src),
			      plan, NULL, &err);
	/* a part of a plan may have no tile although the plan has one */
	if (status == KVT_UNSUPPORTED && methods[m].method == GPU_TILE)
		return true;
	counts.ran[m]++;
	return gpu_good(status, &err) && gpu_buffer_same(dst, t, methods[m].name);
}

/* All methods on poison; the definition has written dst->host. */
static bool run_all(struct gpu_test *t, struct gpu_buffer *dst,
		    const struct gpu_buffer *src, const struct kvt_plan *plan)
{
	const int choice = kvt_gpu_choice(plan, gpu_at(dst), gpu_at(src));
	struct kvt_error err = { "" };
	bool ok = true;

	counts.kernel[choice >= 0 ? choice : 0] += choice >= 0;
	if (plan->run <= LONGEST)
		counts.run_seen[plan->run] = true;
	for (int m = 0; m < NMETHODS; m++) {
		/* the same poison as what the host has where nothing is copied */
		if (!gpu_good(kvt_device_fill(t->device, dst->device, POISON,
					      dst->before + dst->nbytes + dst->after,
					      NULL, &err), &err))
			return false;
		if (run_one(t, m, dst, src, plan))
			continue;
		counts.failed[m]++;
		ok = false;
		if (t->executor)
			printf("# executor: %s\n", t->exec_trouble());
	}
	return ok;
}

/* ---- plans of lib/, against coordinates --------------------------------- */

static bool random_case(struct gpu_test *t, int64_t i)
{
	const int64_t elem = i % 2 ? 1 + i / 2 % LONGEST : 0;
	struct gpu_buffer src, dst;
	struct kvt_error err = { "" };
	struct check_case c;
	bool ok;

	do {
		if (!case_random(&c, elem + check_below(MOST), elem, &err))
			check_bail_out(err.text);
	} while (c.src.nbytes > ROOM || c.dst.nbytes > ROOM);
	if (!gpu_buffer_new(&src, t, c.src.nbytes, -1) ||
	    !gpu_buffer_new(&dst, t, c.dst.nbytes, POISON))
		return false;
	case_copy(gpu_expect(&dst), gpu_expect(&src), &c);
	ok = run_all(t, &dst, &src, &c.plan);
	if (!ok) {
		printf("# --seed=%llu, case %lld\n", (unsigned long long)t->seed,
		       (long long)i);
		case_print(&c);
	}
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
	return ok;
}

/* ---- runs of every length ----------------------------------------------- */

/*
 * Two loops that change places, with room or without between the runs, in at
 * most one step: the plainest plan whose run is what is asked for.
 */
static bool swapped(struct gpu_test *t, int64_t run)
{
	const int64_t gap[2] = { check_below(4) ? 0 : check_below(20),
				 check_below(4) ? 0 : check_below(20) };
	const int64_t s = run + gap[0], d = run + gap[1];
	const int64_t a = 2 + check_below(run < 64 ? 40 : 4), b = 2 + check_below(9);
	const struct kvt_plan plan = {
		.run = run, .nloops = 2, .n = { a, b },
		.src_stride = { s, s * a }, .dst_stride = { d * b, d },
	};
	struct gpu_buffer src, dst;
	bool ok;

	/* not one byte behind the last run */
	if (!gpu_buffer_new(&src, t, s * a * b - gap[0], -1) ||
	    !gpu_buffer_new(&dst, t, d * a * b - gap[1], POISON))
		return false;
	for (int64_t i = 0; i < a; i++)
		for (int64_t j = 0; j < b; j++)
			memcpy(gpu_expect(&dst) + (i * b + j) * d,
			       gpu_expect(&src) + (j * a + i) * s, (size_t)run);
	ok = run_all(t, &dst, &src, &plan);
	if (!ok)
		printf("# --seed=%llu, run %lld, %lld by %lld, gaps %lld and %lld\n",
		       (unsigned long long)t->seed, (long long)run, (long long)a,
		       (long long)b, (long long)gap[0], (long long)gap[1]);
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
	return ok;
}

/* ---- many loops --------------------------------------------------------- */

/* Loops of 2 whose order is reversed, more of them than a kernel has, too. */
static bool reversed(struct gpu_test *t, int nloops, int64_t run)
{
	const int64_t runs = (int64_t)1 << nloops;
	struct kvt_plan plan = { .run = run, .nloops = nloops };
	struct gpu_buffer src, dst;
	bool ok;

	for (int i = 0; i < nloops; i++) {
		plan.n[i] = 2;
		plan.src_stride[i] = run << i;
		plan.dst_stride[i] = run << (nloops - 1 - i);
	}
	if (!gpu_buffer_new(&src, t, runs * run, -1) ||
	    !gpu_buffer_new(&dst, t, runs * run, POISON))
		return false;
	for (int64_t i = 0; i < runs; i++) {
		int64_t back = 0;

		for (int bit = 0; bit < nloops; bit++)
			back |= (i >> bit & 1) << (nloops - 1 - bit);
		memcpy(gpu_expect(&dst) + i * run, gpu_expect(&src) + back * run,
		       (size_t)run);
	}
	ok = run_all(t, &dst, &src, &plan);
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
	return ok;
}

static void check_loops(struct gpu_test *t)
{
	static const int64_t runs[] = { 1, 2, 6, 8, 16, 48, 656, 2064 };
	bool ok = true;

	for (int nloops = 1; nloops <= 9 && ok; nloops++)
		for (int i = 0; i < 32 && i < t->cases && ok; i++)
			ok = reversed(t, nloops, runs[i % 8]);
	gpu_point(ok, "1 to 9 loops in reversed order");
}

/* ---- all of it ---------------------------------------------------------- */

static int64_t runs_missing(void)
{
	int64_t missing = 0;

	for (int64_t run = 1; run <= LONGEST; run++)
		missing += !counts.run_seen[run];
	return missing;
}

static void check_edges(struct gpu_test *t)
{
	const struct kvt_plan nothing = { .nloops = 1, .n = { 3 } };
	struct gpu_buffer src, dst;
	bool ok;

	ok = gpu_buffer_new(&src, t, 100000, -1) &&
	     gpu_buffer_new(&dst, t, 100000, POISON);
	ok = ok && run_all(t, &dst, &src, &nothing);
	for (int i = 0; i < 60 && i < t->cases && ok; i++) {
		struct kvt_plan one = { .src_offset = check_below(40),
					.dst_offset = check_below(40),
					.run = check_below(99900) };

		if (i % 2)
			one.src_offset = one.dst_offset;
		ok = gpu_buffer_poison(&dst, t, POISON);
		memcpy(gpu_expect(&dst) + one.dst_offset,
		       gpu_expect(&src) + one.src_offset, (size_t)one.run);
		ok = ok && run_all(t, &dst, &src, &one);
	}
	gpu_buffer_free(&src, t);
	gpu_buffer_free(&dst, t);
	gpu_point(ok, "one run of 0 to 99899 bytes, and no run at all");
}

void gpu_check_plans(struct gpu_test *t)
{
	/* a quick look leaves out lengths, and with them kernels */
	const int64_t step = t->cases < LONGEST ? LONGEST / t->cases : 1;
	const int64_t blocks = t->device->blocks_max;
	int64_t failed = 0, i;
	bool used = true;

	for (i = 0; i < t->cases && failed < FAILURES; i++)
		failed += !random_case(t, i);
	gpu_point(!failed, "%lld random plans are the definition, byte for byte",
		  (long long)i);
	for (i = failed = 0; i < LONGEST && failed < FAILURES; i += step)
		failed += !swapped(t, i + 1);
	gpu_point(!failed, "two loops swapped, for runs of 1 to %lld bytes",
		  (long long)i);
	check_edges(t);
	check_loops(t);
	if (step == 1)
		gpu_point(!runs_missing(), "no length from 1 to 1152 was left out");
	for (int m = 0; m < NMETHODS; m++)
		printf("# %s: %lld plans\n", methods[m].name, (long long)counts.ran[m]);
	for (int k = 0; k < GPU_blocks_16_6; k++) {
		if (!counts.kernel[k])
			printf("# no plan came to %s\n", kvt_gpu_kernel_name(k));
		used = used && counts.kernel[k];
	}
	for (int k = GPU_tile_16; k < GPU_list; k++)
		used = used && counts.kernel[k];
	if (step == 1)
		gpu_point(used, "each kernel for plans was chosen at least once");
	t->device->blocks_max = blocks;
	t->device->launch_max = INT_MAX;
}
