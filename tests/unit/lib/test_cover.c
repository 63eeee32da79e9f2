/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cover.c - plans that cover a buffer, and plans broken on purpose
 *
 * That true plans pass is also checked by test_plan_random.c, for thousands.
 */
#include "lib/kvt/kvt.h"
#include "tests/unit/tests.h"

enum { HUGE_N = 1 << 30 };

/* Loops are written as they are in a plan: n, strides of the destination. */
static struct cover_case {
	const char *what;
	int64_t nbytes;
	struct kvt_plans plans;
	const char *says;	/* NULL: covered */
} cases[] = {
	{ "one run", 100, { 1, { { .run = 100 } } }, NULL },
	{ "nothing of nothing", 0, { 1, { { .run = 0 } } }, NULL },
	{ "no plan for nothing", 0, { .count = 0 }, NULL },
	{ "nothing of something", 1, { 1, { { .run = 0 } } }, "byte 0 is never written" },
	{ "loops, fastest last", 60,
	  { 1, { { .nloops = 2, .n = { 3, 2 }, .dst_stride = { 20, 10 }, .run = 10 } } },
	  NULL },
	{ "loops in any order", 60,
	  { 1, { { .nloops = 2, .n = { 2, 3 }, .dst_stride = { 10, 20 }, .run = 10 } } },
	  NULL },
	{ "a loop of one entry, whatever its stride", 10,
	  { 1, { { .nloops = 1, .n = { 1 }, .dst_stride = { 7 }, .run = 10 } } }, NULL },
	{ "2^60 runs are proved, not walked", INT64_C(1) << 60,
	  { 1, { { .nloops = 2, .n = { HUGE_N, HUGE_N },
		   .dst_stride = { HUGE_N, 1 }, .run = 1 } } }, NULL },
	{ "a run that stops early", 101, { 1, { { .run = 100 } } },
	  "byte 100 is never written" },
	{ "a run that goes on", 99, { 1, { { .run = 100 } } },
	  "byte 99, behind the last" },
	{ "a late start", 100, { 1, { { .run = 99, .dst_offset = 1 } } },
	  "byte 0 is never written" },
	{ "an early start", 100, { 1, { { .run = 101, .dst_offset = -1 } } },
	  "before the first" },
	{ "a stride too large", 60,
	  { 1, { { .nloops = 2, .n = { 3, 2 }, .dst_stride = { 20, 11 }, .run = 10 } } },
	  "byte 10 is never written" },
	{ "a stride too small", 60,
	  { 1, { { .nloops = 2, .n = { 3, 2 }, .dst_stride = { 20, 9 }, .run = 10 } } },
	  "byte 9 is written twice" },
	{ "an outer stride too small", 60,
	  { 1, { { .nloops = 2, .n = { 3, 2 }, .dst_stride = { 15, 10 }, .run = 10 } } },
	  "byte 15 is written twice" },
	{ "an outer stride too large", 70,
	  { 1, { { .nloops = 2, .n = { 3, 2 }, .dst_stride = { 25, 10 }, .run = 10 } } },
	  "byte 20 is never written" },
	{ "a stride of 0", 10,
	  { 1, { { .nloops = 1, .n = { 2 }, .dst_stride = { 0 }, .run = 10 } } },
	  "byte 0 is written twice" },
	{ "a negative stride", 20,
	  { 1, { { .nloops = 1, .n = { 2 }, .dst_stride = { -10 }, .dst_offset = 10,
		   .run = 10 } } }, "stride -10" },
	{ "a loop of no entries", 20,
	  { 1, { { .nloops = 1, .n = { 0 }, .dst_stride = { 10 }, .run = 10 } } },
	  "0 entries" },
	{ "an entry missing", 30,
	  { 1, { { .nloops = 1, .n = { 2 }, .dst_stride = { 10 }, .run = 10 } } },
	  "byte 20 is never written" },
	{ "strides beyond 2^63", 100,
	  { 1, { { .nloops = 1, .n = { 3 }, .dst_stride = { INT64_MAX / 2 },
		   .run = 8 } } },
	  "beyond 2^63" },
	{ "an offset beyond 2^63", 100,
	  { 1, { { .dst_offset = INT64_MAX, .run = 8 } } }, "beyond 2^63" },

	{ "keys, then values", 100,
	  { 2, { { .run = 60 }, { .run = 40, .dst_offset = 60 } } }, NULL },
	{ "values, then keys", 100,
	  { 2, { { .run = 60, .dst_offset = 40 }, { .run = 40 } } }, NULL },
	{ "no values, and none needed", 60,
	  { 2, { { .run = 60 }, { .run = 0 } } }, NULL },
	{ "keys beside values", 80,
	  { 2, { { .nloops = 1, .n = { 4 }, .dst_stride = { 20 }, .run = 10 },
		 { .nloops = 1, .n = { 4 }, .dst_stride = { 20 }, .run = 10,
		   .dst_offset = 10 } } }, NULL },
	{ "keys beside values, their loops cut differently", 80,
	  { 2, { { .nloops = 3, .n = { 2, 2, 5 }, .dst_stride = { 40, 20, 2 }, .run = 2 },
		 { .nloops = 2, .n = { 4, 2 }, .dst_stride = { 20, 5 }, .run = 5,
		   .dst_offset = 10 } } }, NULL },
	{ "keys wider than values", 60,
	  { 2, { { .nloops = 1, .n = { 4 }, .dst_stride = { 15 }, .run = 10 },
		 { .nloops = 1, .n = { 4 }, .dst_stride = { 15 }, .run = 5,
		   .dst_offset = 10 } } }, NULL },
	{ "keys beside values, twice", 160,
	  { 2, { { .nloops = 2, .n = { 2, 4 }, .dst_stride = { 80, 20 }, .run = 10 },
		 { .nloops = 2, .n = { 2, 4 }, .dst_stride = { 80, 20 }, .run = 10,
		   .dst_offset = 10 } } }, NULL },
	{ "a gap between keys and values", 101,
	  { 2, { { .run = 60 }, { .run = 40, .dst_offset = 61 } } },
	  "byte 60 is never written" },
	{ "values over keys", 100,
	  { 2, { { .run = 60 }, { .run = 41, .dst_offset = 59 } } },
	  "byte 59 is written twice" },
	{ "values in the place of keys", 100,
	  { 2, { { .run = 100 }, { .run = 100 } } }, "byte 0 is written twice" },
	{ "no values", 100, { 2, { { .run = 50 }, { .run = 0 } } },
	  "byte 50 is never written" },
	{ "keys without their values", 80,
	  { 1, { { .nloops = 1, .n = { 4 }, .dst_stride = { 20 }, .run = 10 } } },
	  "byte 10 is never written" },
	{ "values one entry short", 80,
	  { 2, { { .nloops = 1, .n = { 4 }, .dst_stride = { 20 }, .run = 10 },
		 { .nloops = 1, .n = { 3 }, .dst_stride = { 20 }, .run = 10,
		   .dst_offset = 10 } } }, "repeat differently" },
	{ "values too narrow for their gaps", 80,
	  { 2, { { .nloops = 1, .n = { 4 }, .dst_stride = { 20 }, .run = 10 },
		 { .nloops = 1, .n = { 4 }, .dst_stride = { 20 }, .run = 9,
		   .dst_offset = 10 } } }, "byte 19 is never written" },
	{ "values too wide for their gaps", 80,
	  { 2, { { .nloops = 1, .n = { 4 }, .dst_stride = { 20 }, .run = 10 },
		 { .nloops = 1, .n = { 4 }, .dst_stride = { 20 }, .run = 11,
		   .dst_offset = 10 } } }, "byte 20 is written twice" },
	{ "pairs that overlap", 140,
	  { 2, { { .nloops = 2, .n = { 2, 4 }, .dst_stride = { 60, 20 }, .run = 10 },
		 { .nloops = 2, .n = { 2, 4 }, .dst_stride = { 60, 20 }, .run = 10,
		   .dst_offset = 10 } } }, "byte 60 is written twice" },
};

static void test_cover(void **state)
{
	const struct cover_case *c = *state;

	expect(kvt_plans_cover(&c->plans, c->nbytes, &why),
	       c->says ? KVT_MISMATCH : KVT_OK, c->says);
}

/*
 * Every plan of up to three short loops, against a table of counted writes:
 * small enough to try them all.
 */
static void count_writes(unsigned char writes[64], const struct kvt_plan *plan)
{
	const int64_t *n = plan->n, *stride = plan->dst_stride;

	for (int64_t i = 0; i < n[0]; i++)
		for (int64_t j = 0; j < n[1]; j++)
			for (int64_t k = 0; k < plan->run; k++)
				writes[plan->dst_offset + i * stride[0] +
				       j * stride[1] + k]++;
}

static bool is_covered(const struct kvt_plans *plans, int64_t nbytes)
{
	unsigned char writes[64] = { 0 };

	for (int p = 0; p < plans->count; p++)
		count_writes(writes, &plans->plan[p]);
	for (int64_t i = 0; i < 64; i++)
		if (writes[i] != (i < nbytes))
			return false;
	return true;
}

/* Digits of a number choose the plan: run 1-2, n 1-3, strides 0-6, offset 0-2. */
static struct kvt_plan plan_of(int *number)
{
	struct kvt_plan plan = { .nloops = 2 };

	plan.run = 1 + *number % 2;
	*number /= 2;
	for (int i = 0; i < 2; i++) {
		plan.n[i] = 1 + *number % 3;
		*number /= 3;
		plan.dst_stride[i] = *number % 7;
		*number /= 7;
	}
	plan.dst_offset = *number % 3;
	*number /= 3;
	return plan;
}

enum { NPLANS = 2 * 3 * 7 * 3 * 7 * 3 };

static void test_all_single(void)
{
	int covered = 0;

	for (int i = 0; i < NPLANS; i++) {
		int number = i;
		struct kvt_plans plans = { .count = 1 };

		plans.plan[0] = plan_of(&number);
		for (int64_t nbytes = 0; nbytes < 20; nbytes++) {
			bool is = is_covered(&plans, nbytes);

			assert_int_equal(kvt_plans_cover(&plans, nbytes, NULL),
					 is ? KVT_OK : KVT_MISMATCH);
			covered += is;
		}
	}
	assert_true(covered > 20);
}

static bool same_loops(const struct kvt_plan *a, const struct kvt_plan *b)
{
	return a->run == b->run && !memcmp(a->n, b->n, sizeof(a->n)) &&
	       !memcmp(a->dst_stride, b->dst_stride, sizeof(a->dst_stride));
}

/*
 * A pair that is said to cover does.  The other way round this holds for pairs
 * that repeat alike, and layouts make no others.  Steps of 7 save time and keep
 * the pairs that differ in their offsets only, which are 882 apart.
 */
static void test_all_pairs(void)
{
	int covered = 0, alike = 0;

	for (int i = 0; i < NPLANS; i++)
		for (int j = i % 7; j < NPLANS; j += 7) {
			int a = i, b = j;
			struct kvt_plans plans = { .count = 2 };
			int64_t nbytes;
			bool is, ok;

			plans.plan[0] = plan_of(&a);
			plans.plan[1] = plan_of(&b);
			nbytes = kvt_plan_nbytes(&plans.plan[0]) +
				 kvt_plan_nbytes(&plans.plan[1]);
			is = is_covered(&plans, nbytes);
			ok = !kvt_plans_cover(&plans, nbytes, NULL);
			assert_true(is || !ok);
			if (same_loops(&plans.plan[0], &plans.plan[1])) {
				assert_int_equal(ok, is);
				alike += is;
			}
			covered += ok;
		}
	assert_true(covered > 100 && alike > 20);
}

TESTS("cover",
	EACH(cases, test_cover),
	NAMED(test_all_single, "all small plans, against counted writes"),
	NAMED(test_all_pairs, "pairs of small plans, against counted writes"))
