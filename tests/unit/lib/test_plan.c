/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c - plans worked out by hand: loops, runs, shares, refusals */
#include "lib/kvt/kvt.h"
#include "tests/unit/lib/views_of.h"
#include "tests/unit/tests.h"

/* Of 'heads' of a source to all of a dense destination. */
static struct kvt_plans plans_of(const char *src, const char *dst,
				 const struct kvt_shape *shape,
				 const int64_t heads[2])
{
	struct kvt_views from = views_of(src, shape), to;
	struct kvt_box box = kvt_box_whole(shape);
	struct kvt_shape part = *shape;
	struct kvt_plans plans = { .count = 0 };

	box.begin[KVT_AXIS_H] = heads[0];
	box.end[KVT_AXIS_H] = heads[1];
	part.n[KVT_AXIS_H] = heads[1] - heads[0];
	to = views_of(dst, &part);
	ok(kvt_views_narrow(&from, &from, &box, &why));
	ok(kvt_plans_init(&plans, &to, &from, &why));
	return plans;
}

/* ---- loops -------------------------------------------------------------- */

static struct plan_case {
	const char *what, *src, *dst;
	struct kvt_shape shape;
	int64_t heads[2];
	int which;		/* plan: of keys, of values */
	struct kvt_plan plan;	/* nloops, n, src, dst, run, offsets */
} cases[] = {
	{ "one layout: a single run", "nhd", "nhd",
	  { { 2, 3, 4, 5, 2, 32 }, 1 }, { 0, 5 }, 0,
	  { 0, { 0 }, { 0 }, { 0 }, 7680, 0, 0 } },
	{ "NHD to HND: one slot of one head", "nhd", "hnd",
	  { { 2, 3, 4, 5, 2, 32 }, 1 }, { 0, 5 }, 0,
	  { 3, { 6, 5, 4 }, { 1280, 64, 320 }, { 1280, 256, 64 }, 64, 0, 0 } },
	{ "MLA has one head, so HND is NHD", "nhd", "hnd",
	  { { 2, 3, 4, 1, 1, 1152 }, 1 }, { 0, 1 }, 0,
	  { 0, { 0 }, { 0 }, { 0 }, 27648, 0, 0 } },
	{ "one token: nothing left to permute", "nhd", "hnd",
	  { { 1, 1, 1, 8, 2, 128 }, 1 }, { 0, 8 }, 0,
	  { 0, { 0 }, { 0 }, { 0 }, 2048, 0, 0 } },
	{ "keys first to packed: blocks, slots and heads fuse",
	  "kv-first-nhd", "nhd",
	  { { 2, 3, 4, 5, 2, 32 }, 1 }, { 0, 5 }, 0,
	  { 3, { 2, 60, 2 }, { 3840, 32, 1920 }, { 3840, 64, 32 }, 32, 0, 0 } },
	{ "two of four heads, NHD to HND", "nhd", "hnd",
	  { { 1, 2, 2, 4, 2, 2 }, 1 }, { 1, 3 }, 0,
	  { 3, { 2, 2, 2 }, { 32, 4, 16 }, { 16, 8, 4 }, 4, 4, 0 } },
	{ "two of four heads, HND to HND: a run a block", "hnd", "hnd",
	  { { 1, 2, 2, 4, 2, 2 }, 1 }, { 1, 3 }, 0,
	  { 1, { 2 }, { 32 }, { 16 }, 16, 8, 0 } },
	{ "packed to paged keys: 16 bytes a run", "nhd", "rocm-paged",
	  { { 1, 2, 4, 1, 2, 16 }, 2 }, { 0, 1 }, 0,
	  { 3, { 2, 2, 4 }, { 256, 16, 64 }, { 128, 64, 16 }, 16, 0, 0 } },
	{ "packed to paged values: an element a run", "nhd", "rocm-paged",
	  { { 1, 2, 4, 1, 2, 16 }, 2 }, { 0, 1 }, 1,
	  { 3, { 2, 16, 4 }, { 256, 2, 64 }, { 128, 8, 2 }, 2, 32, 256 } },
	{ "an axis split alike on both sides is not cut", "L B H D/8 S D%8",
	  "L B H D/8 S D%8",
	  { { 1, 2, 4, 1, 1, 16 }, 2 }, { 0, 1 }, 0,
	  { 0, { 0 }, { 0 }, { 0 }, 256, 0, 0 } },
	{ "splits by 8 and by 4 nest", "L B H D/8 S D%8", "L B H D/4 S D%4",
	  { { 1, 1, 4, 1, 1, 16 }, 1 }, { 0, 1 }, 0,
	  { 3, { 2, 2, 4 }, { 32, 4, 8 }, { 32, 16, 4 }, 4, 0, 0 } },
	{ "no heads: nothing to copy", "nhd", "hnd",
	  { { 1, 2, 2, 4, 2, 2 }, 1 }, { 2, 2 }, 0,
	  { 0, { 0 }, { 0 }, { 0 }, 0, 8, 0 } },
};

static void test_plan(void **state)
{
	const struct plan_case *c = *state;
	struct kvt_plans plans = plans_of(c->src, c->dst, &c->shape, c->heads);
	const struct kvt_plan *plan = &plans.plan[c->which];
	int64_t runs = c->plan.run > 0;

	assert_int_equal(plan->nloops, c->plan.nloops);
	for (int i = 0; i < plan->nloops; i++) {
		assert_int_equal(plan->n[i], c->plan.n[i]);
		assert_int_equal(plan->src_stride[i], c->plan.src_stride[i]);
		assert_int_equal(plan->dst_stride[i], c->plan.dst_stride[i]);
		runs *= c->plan.n[i];
	}
	assert_int_equal(plan->run, c->plan.run);
	if (plan->run) {
		assert_int_equal(plan->src_offset, c->plan.src_offset);
		assert_int_equal(plan->dst_offset, c->plan.dst_offset);
	}
	assert_int_equal(kvt_plan_nruns(plan), runs);
	assert_int_equal(kvt_plan_nbytes(plan), runs * c->plan.run);
}

/* ---- run counts --------------------------------------------------------- */

/*
 * LAYOUTS 12.2: runs of one block of four, in place on both sides.  Two cells
 * are left out (0): there runs also join at the corners of layers, which no
 * nest of loops says.
 */
static const char *const packed[6] = {
	"nhd", "hnd", "lhbsc", "blshc", "blhsc", "bhlsc",
};
static const int64_t runs[6][6] = {
	{  3, 48, 48,  3, 48, 48 },
	{ 48,  3,  6, 48,  3,  6 },
	{ 48,  6,  6, 48,  6,  6 },
	{  3, 48, 48,  1,  0, 48 },
	{ 48,  3,  6,  0,  1,  6 },
	{ 48,  6,  6, 48,  6,  1 },
};

static void check_runs(int src, int dst)
{
	const struct kvt_shape shape = { .n = { 3, 4, 8, 2, 1, 4 }, .elem = 1 };
	struct kvt_views from = views_of(packed[src], &shape);
	struct kvt_views to = views_of(packed[dst], &shape);
	struct kvt_box box = kvt_box_whole(&shape);
	struct kvt_plans plans;

	box.begin[KVT_AXIS_B] = 1;
	box.end[KVT_AXIS_B] = 2;
	ok(kvt_views_narrow(&from, &from, &box, &why));
	ok(kvt_views_narrow(&to, &to, &box, &why));
	ok(kvt_plans_init(&plans, &to, &from, &why));
	if (kvt_plan_nruns(&plans.plan[0]) != runs[src][dst])
		fail_msg("%s to %s: %d runs, expected %d", packed[src], packed[dst],
			 (int)kvt_plan_nruns(&plans.plan[0]), (int)runs[src][dst]);
}

static void test_runs(void)
{
	for (int src = 0; src < 6; src++)
		for (int dst = 0; dst < 6; dst++)
			if (runs[src][dst])
				check_runs(src, dst);
}

/* ---- refusals ----------------------------------------------------------- */

static struct refuse_case {
	const char *what, *src, *dst;
	struct kvt_shape from, to;
	enum kvt_status status;
	const char *says;
} refusals[] = {
	{ "two shapes", "nhd", "hnd", { { 2, 2, 2, 3, 2, 2 }, 1 },
	  { { 2, 2, 2, 2, 2, 2 }, 1 }, KVT_BAD_INPUT, "head extent is 3" },
	{ "two element sizes", "nhd", "hnd", { { 2, 2, 2, 2, 2, 2 }, 1 },
	  { { 2, 2, 2, 2, 2, 2 }, 2 }, KVT_BAD_INPUT, "1 bytes in the source" },
	{ "keys and values to values only", "nhd", "hnd", { { 2, 2, 2, 2, 2, 2 }, 1 },
	  { { 2, 2, 2, 2, 1, 2 }, 1 }, KVT_BAD_INPUT, "kv extent is 2" },
	{ "values only to two planes", "nhd", "sglang-pool", { { 2, 2, 2, 2, 1, 2 }, 1 },
	  { { 2, 2, 2, 2, 2, 2 }, 1 }, KVT_BAD_INPUT, "kv range" },
	{ "splits by 4 and by 6", "S/4 H S%4 C", "S/6 H S%6 C",
	  { { 1, 1, 12, 2, 1, 2 }, 1 }, { { 1, 1, 12, 2, 1, 2 }, 1 },
	  KVT_UNSUPPORTED, "by 4 on one side and by 6" },
	{ "splits that do not nest, but nothing to copy", "S/4 H S%4 C", "S/6 H S%6 C",
	  { { 1, 1, 12, 0, 1, 2 }, 1 }, { { 1, 1, 12, 0, 1, 2 }, 1 }, KVT_OK, "" },
};

static void test_refuse(void **state)
{
	const struct refuse_case *c = *state;
	struct kvt_views from = views_of(c->src, &c->from);
	struct kvt_views to = views_of(c->dst, &c->to);
	struct kvt_plans plans;

	expect(kvt_plans_init(&plans, &to, &from, &why), c->status, c->says);
}

/* ---- shares ------------------------------------------------------------- */

static struct part_case {
	const char *what;
	struct kvt_plan plan;
	int nparts;
	int64_t bytes[8];	/* of each share */
} parts[] = {
	{ "one part is everything",
	  { .nloops = 1, .n = { 5 }, .src_stride = { 9 }, .dst_stride = { 8 }, .run = 8 },
	  1, { 40 } },
	{ "ten entries in three parts",
	  { .nloops = 1, .n = { 10 }, .src_stride = { 9 }, .dst_stride = { 8 },
	    .run = 8 },
	  3, { 24, 24, 32 } },
	{ "one entry each",
	  { .nloops = 1, .n = { 4 }, .src_stride = { 9 }, .dst_stride = { 8 }, .run = 8 },
	  4, { 8, 8, 8, 8 } },
	{ "a short outer loop: parts share its entries",
	  { .nloops = 2, .n = { 2, 8 }, .src_stride = { 100, 9 },
	    .dst_stride = { 64, 8 }, .run = 8 },
	  8, { 16, 16, 16, 16, 16, 16, 16, 16 } },
	{ "three entries for four parts: two share one",
	  { .nloops = 2, .n = { 3, 8 }, .src_stride = { 100, 9 },
	    .dst_stride = { 64, 8 }, .run = 8 },
	  4, { 32, 32, 64, 64 } },
	{ "a run is cut at multiples of 64",
	  { .run = 300 }, 2, { 128, 172 } },
	{ "more parts than a run has units",
	  { .run = 100 }, 4, { 0, 64, 0, 36 } },
	{ "nothing", { .run = 0 }, 2, { 0, 0 } },
};

static void test_part(void **state)
{
	const struct part_case *c = *state;

	for (int i = 0; i < c->nparts; i++) {
		struct kvt_plan part = kvt_plan_part(&c->plan, i, c->nparts);

		assert_int_equal(kvt_plan_nbytes(&part), c->bytes[i]);
	}
}

/* n * part does not fit 64 bits, and yet nothing is lost. */
static void test_large_part(void)
{
	const struct kvt_plan plan = {
		.nloops = 1, .n = { INT64_C(1) << 60 }, .src_stride = { 1 },
		.dst_stride = { 1 }, .run = 1,
	};
	int64_t next = 0;

	for (int i = 0; i < 100; i++) {
		struct kvt_plan part = kvt_plan_part(&plan, i, 100);

		assert_int_equal(part.dst_offset, next);
		next += kvt_plan_nbytes(&part);
	}
	assert_int_equal(next, INT64_C(1) << 60);
}

TESTS("plan",
	EACH(cases, test_plan),
	NAMED(test_runs, "runs of one block from and to packed layouts"),
	EACH(refusals, test_refuse), EACH(parts, test_part),
	NAMED(test_large_part, "shares of 2^60 runs"))
