/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_random.c - thousands of plans, each element of each one checked
 *
 * A plan is executed by a plain walk that notes, for each byte of the
 * destination, which byte of the source came there.  Where it should have come
 * from is read off the axis strings, without lib/.
 */
#include "lib/kvt/kvt.h"
#include "tests/fewer.h"
#include "tests/unit/lib/axis_oracle.h"
#include "tests/unit/lib/random_layout.h"
#include "tests/unit/tests.h"

enum { TRIALS = 400, MAX_BYTES = 1 << 17 };

/* What one trial is about. */
struct trial {
	int number;
	char src[200], dst[200];
	int64_t n[6], elem;	/* of the larger buffer */
	struct kvt_box box;	/* that part of it is copied */
	bool merge;		/* the destination is the larger one */
};

static int64_t from[MAX_BYTES];	/* source offset by destination offset */
static unsigned char writes[MAX_BYTES];
static int64_t walked;

/* ---- executing ---------------------------------------------------------- */

static void note(int64_t dst, int64_t src, int64_t run)
{
	for (int64_t i = 0; i < run; i++) {
		if (dst + i < 0 || dst + i >= MAX_BYTES)
			fail_msg("a write at byte %lld", (long long)(dst + i));
		from[dst + i] = src + i;
		writes[dst + i]++;
	}
	walked += run;
}

static void execute(const struct kvt_plan *plan, int loop, int64_t dst, int64_t src)
{
	if (loop == plan->nloops) {
		note(dst, src, plan->run);
		return;
	}
	for (int64_t i = 0; i < plan->n[loop]; i++)
		execute(plan, loop + 1, dst + i * plan->dst_stride[loop],
			src + i * plan->src_stride[loop]);
}

/* The walk of lib/ must be the same, run by run, in destination order. */
static void check_walk(const struct kvt_plan *plan)
{
	struct kvt_plan_walk walk;
	int64_t last = -1, count = 0;

	for (kvt_plan_walk_start(&walk, plan); !walk.done; kvt_plan_walk_next(&walk)) {
		assert_true(walk.dst > last);
		assert_int_equal(from[walk.dst], walk.src);
		last = walk.dst + plan->run - 1;
		count++;
	}
	assert_int_equal(count, kvt_plan_nruns(plan));
}

/* Simplest form: no loop continues where the next faster one stops. */
static void check_simple(const struct kvt_plan *plan)
{
	int64_t src = plan->run, dst = plan->run;

	for (int i = plan->nloops - 1; i >= 0; i--) {
		assert_true(plan->n[i] >= 2);
		assert_false(plan->src_stride[i] == src && plan->dst_stride[i] == dst);
		assert_true(plan->dst_stride[i] >= (i + 1 < plan->nloops ?
						    plan->dst_stride[i + 1] : plan->run));
		src = plan->src_stride[i] * plan->n[i];
		dst = plan->dst_stride[i] * plan->n[i];
	}
}

/* ---- checking ----------------------------------------------------------- */

static int64_t bytes_of(const int64_t n[6], int64_t elem)
{
	return n[0] * n[1] * n[2] * n[3] * n[4] * n[5] * elem;
}

/* Every element of the box, by the strings; every byte once. */
static void check_elements(const struct trial *t)
{
	int64_t index[6] = { 0 }, part[6], first = t->box.begin[KVT_AXIS_K];

	for (int a = 0; a < 6; a++)
		part[a] = t->box.end[a] - t->box.begin[a];
	do {
		int64_t there[6], large, small, src, dst;

		for (int a = 0; a < 6; a++)
			there[a] = t->box.begin[a] + index[a];
		large = oracle_at(t->merge ? t->dst : t->src, t->n, t->elem, 0, there);
		small = oracle_at(t->merge ? t->src : t->dst, part, t->elem, first,
				  index);
		src = t->merge ? small : large;
		dst = t->merge ? large : small;
		for (int i = 0; i < t->elem; i++) {
			if (from[dst + i] != src + i || writes[dst + i] != 1)
				fail_msg("trial %d, '%s' to '%s': byte %lld is written "
					 "%d times, from %lld, not %lld",
					 t->number, t->src, t->dst, (long long)dst + i,
					 writes[dst + i], (long long)from[dst + i],
					 (long long)src + i);
		}
	} while (oracle_next(index, part));
	assert_int_equal(walked, bytes_of(part, t->elem));
}

static void check_plans(const struct trial *t, const struct kvt_plans *plans,
			uint64_t *seed)
{
	int nparts = 1 + random_below(seed, 20);

	/* shares together are the whole */
	walked = 0;
	memset(writes, 0, sizeof(writes));
	for (int p = 0; p < plans->count; p++)
		for (int i = 0; i < nparts; i++) {
			struct kvt_plan part = kvt_plan_part(&plans->plan[p], i, nparts);

			execute(&part, 0, part.dst_offset, part.src_offset);
		}
	check_elements(t);

	walked = 0;
	memset(writes, 0, sizeof(writes));
	for (int p = 0; p < plans->count; p++) {
		const struct kvt_plan *plan = &plans->plan[p];

		execute(plan, 0, plan->dst_offset, plan->src_offset);
		check_walk(plan);
		check_simple(plan);
	}
	check_elements(t);
}

/* A dense destination is covered; one byte more or less, or a part, is not. */
static void check_cover(const struct trial *t, const struct kvt_plans *plans)
{
	int64_t all = bytes_of(t->n, t->elem);

	if (t->merge && walked < all) {
		expect(kvt_plans_cover(plans, all, &why), KVT_MISMATCH, NULL);
		return;
	}
	if (kvt_plans_cover(plans, walked, &why))
		fail_msg("trial %d, '%s' to '%s': %s", t->number, t->src, t->dst,
			 why.text);
	expect(kvt_plans_cover(plans, walked + 1, &why), KVT_MISMATCH, NULL);
	expect(kvt_plans_cover(plans, walked - 1, &why), KVT_MISMATCH, NULL);
}

/* ---- trials ------------------------------------------------------------- */

static struct row {
	const char *what;
	enum random_kind src, dst;
	bool merge;
	bool cut_slots;		/* also cut S and D, which may be refused */
} rows[] = {
	{ "one plane to one plane", RANDOM_ONE, RANDOM_ONE, false, false },
	{ "one plane to two that meet", RANDOM_ONE, RANDOM_JOINED, false, false },
	{ "two planes that meet to one", RANDOM_JOINED, RANDOM_ONE, false, false },
	{ "two planes to two others", RANDOM_JOINED, RANDOM_JOINED, false, false },
	{ "two buffers to one plane", RANDOM_APART, RANDOM_ONE, false, false },
	{ "one plane to two buffers", RANDOM_ONE, RANDOM_APART, false, false },
	{ "two buffers to planes that meet", RANDOM_APART, RANDOM_JOINED, false, false },
	{ "merged into one plane", RANDOM_ONE, RANDOM_ONE, true, false },
	{ "merged into two planes", RANDOM_ONE, RANDOM_JOINED, true, false },
	{ "two planes merged into one", RANDOM_JOINED, RANDOM_ONE, true, false },
	{ "merged into two buffers", RANDOM_JOINED, RANDOM_APART, true, false },
	{ "some slots, some of D", RANDOM_ONE, RANDOM_ONE, false, true },
	{ "some slots, some of D, two planes", RANDOM_JOINED, RANDOM_ONE, false, true },
	{ "some slots, some of D, merged", RANDOM_ONE, RANDOM_JOINED, true, true },
};

static void random_range(int64_t *begin, int64_t *end, int64_t n, uint64_t *seed)
{
	*begin = random_below(seed, (int)n);
	*end = *begin + 1 + random_below(seed, (int)(n - *begin));
}

static void random_trial(struct trial *t, const struct row *row, uint64_t *seed)
{
	static const int some[] = { 1, 2, 4, 6, 8, 12, 16, 24 };
	struct random_shape shape;

	for (int a = 0; a < 4; a++)
		t->n[a] = 1 + random_below(seed, 3);
	t->n[KVT_AXIS_S] = some[random_below(seed, 8)];
	t->n[KVT_AXIS_K] = 2;
	t->n[KVT_AXIS_D] = some[random_below(seed, 8)];
	t->elem = 1 << random_below(seed, 3);
	t->merge = row->merge;
	for (int a = 0; a < 6; a++) {
		bool cut = row->cut_slots || (a != KVT_AXIS_S && a != KVT_AXIS_D);

		t->box.begin[a] = 0;
		t->box.end[a] = t->n[a];
		if (cut && random_below(seed, 2))
			random_range(&t->box.begin[a], &t->box.end[a], t->n[a], seed);
	}
	shape.elem = t->elem;
	shape.s = t->n[KVT_AXIS_S];
	shape.d = t->n[KVT_AXIS_D];
	random_layout(t->src, row->src, &shape, seed);
	random_layout(t->dst, row->dst, &shape, seed);
}

/* The larger buffer cut to the box, and the dense box. */
static enum kvt_status make_views(struct kvt_views *large, struct kvt_views *small,
				  const struct trial *t, struct kvt_error *err)
{
	struct kvt_shape shape = { .elem = t->elem };
	struct kvt_layout layout[2];
	struct kvt_box whole;
	enum kvt_status status;

	memcpy(shape.n, t->n, sizeof(shape.n));
	whole = kvt_box_whole(&shape);
	if (kvt_layout_parse(&layout[0], t->merge ? t->dst : t->src, err) ||
	    kvt_layout_parse(&layout[1], t->merge ? t->src : t->dst, err) ||
	    kvt_layout_views(large, &layout[0], &whole, t->elem, err))
		fail_msg("trial %d: %s", t->number, err->text);
	assert_int_equal(large->nbytes, bytes_of(t->n, t->elem));
	if ((status = kvt_views_narrow(large, large, &t->box, err)))
		return status;
	return kvt_layout_views(small, &layout[1], &t->box, t->elem, err);
}

/* False if the trial was refused, which only some may be. */
static bool run_trial(const struct trial *t, const struct row *row, uint64_t *seed)
{
	struct kvt_views large, small;
	struct kvt_plans plans;
	enum kvt_status status = make_views(&large, &small, t, &why);

	if (status && !row->cut_slots)
		fail_msg("trial %d: %s", t->number, why.text);
	if (status)
		return false;
	status = t->merge ? kvt_plans_init(&plans, &large, &small, &why)
			  : kvt_plans_init(&plans, &small, &large, &why);
	if (status) {
		/* of the splits in use, only 6 does not nest with others */
		assert_int_equal(status, KVT_UNSUPPORTED);
		assert_true(row->cut_slots || strstr(t->src, "/6") ||
			    strstr(t->dst, "/6"));
		return false;
	}
	check_plans(t, &plans, seed);
	check_cover(t, &plans);
	return true;
}

static void test_row(void **state)
{
	const struct row *row = *state;
	uint64_t seed = (uint64_t)(row - rows) + 1;
	int done = 0, trials = fewer(TRIALS);

	for (int number = 0; done < trials; number++) {
		struct trial t = { .number = number };

		assert_true(number < 20 * trials);
		random_trial(&t, row, &seed);
		done += run_trial(&t, row, &seed);
	}
}

TESTS("plan_random",
	EACH(rows, test_row))
