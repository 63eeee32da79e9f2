/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_clock.c - the times of batches against figures computed by hand
 *
 * The link: 1 us of setup, 10 ns an operation of which 4 keep the poster, then one
 * byte a nanosecond, nothing at once.  A batch of 100 operations and 5000 bytes takes
 * 1000 + 1000 + 5000 ns alone, and while it flows it takes 5/6 of a card.
 */
#include "sim/ops/batches.h"
#include "tests/unit/tests.h"

static const struct kvt_link link = {
	.name = "hand", .overlap = 1, .setup_ns = 1000, .op_ps = 10000, .post_ps = 4000,
	.rate = 1000000000,
};

enum { MOST = 3 };

struct expected {
	int64_t ready, post, posted, begin, arrived, end;
};

struct row {
	const char *what;
	int64_t src[MOST], dst[MOST];	/* ranks of each batch */
	int n;
	struct kvt_batch_how how;	/* without the link */
	bool alone;
	int64_t posting, closed;
	struct expected batch[MOST];
};

static const struct row rows[] = {
	{ "one", { 0 }, { 0 }, 1, { .share = KVT_SHARE_FAIR }, true, 400, 7000,
	  { { 0, 0, 400, 1000, 7000, 7000 } } },
	/* the second is posted after the first; from 1400 on they share a card */
	{ "one destination pulls", { 0, 1 }, { 0, 0 }, 2, { .share = KVT_SHARE_FAIR },
	  false, 800, 7000,
	  { { 0, 0, 400, 1000, 10733, 10733 }, { 0, 400, 800, 1400, 11133, 11133 } } },
	{ "its sources push", { 0, 1 }, { 0, 0 }, 2,
	  { .share = KVT_SHARE_FAIR, .push = true }, false, 400, 7000,
	  { { 0, 0, 400, 1000, 11000, 11000 }, { 0, 0, 400, 1000, 11000, 11000 } } },
	{ "a source pushes to two", { 0, 0 }, { 0, 1 }, 2,
	  { .share = KVT_SHARE_FAIR, .push = true }, false, 800, 7000,
	  { { 0, 0, 400, 1000, 10733, 10733 }, { 0, 400, 800, 1400, 11133, 11133 } } },
	{ "the busiest poster is not the last", { 0, 1, 2 }, { 0, 0, 1 }, 3,
	  { .share = KVT_SHARE_NONE }, false, 800, 7000,
	  { { 0, 0, 400, 1000, 7000, 7000 }, { 0, 400, 800, 1400, 7400, 7400 },
	    { 0, 0, 400, 1000, 7000, 7000 } } },
	{ "nothing is shared", { 0, 1 }, { 0, 0 }, 2, { .share = KVT_SHARE_NONE },
	  false, 800, 7000,
	  { { 0, 0, 400, 1000, 7000, 7000 }, { 0, 400, 800, 1400, 7400, 7400 } } },
	{ "no rank in common", { 0, 1 }, { 0, 1 }, 2, { .share = KVT_SHARE_FAIR },
	  true, 400, 7000,
	  { { 0, 0, 400, 1000, 7000, 7000 }, { 0, 0, 400, 1000, 7000, 7000 } } },
	/* a source copies 2500 ns for each batch, in turn; so does each destination */
	{ "buffers", { 0, 0 }, { 0, 1 }, 2,
	  { .share = KVT_SHARE_FAIR, .stage = 4096, .copy_rate = 2000000000 }, false,
	  400, 12000,
	  { { 2500, 2500, 2900, 3500, 11833, 14333 },
	    { 5000, 5000, 5400, 6000, 14333, 16833 } } },
	/* both sources copy at once, the destination out in turn */
	{ "buffers of a destination", { 0, 1 }, { 0, 0 }, 2,
	  { .share = KVT_SHARE_FAIR, .push = true, .stage = 4096,
	    .copy_rate = 2000000000 }, false, 400, 12000,
	  { { 2500, 2500, 2900, 3500, 13500, 16000 },
	    { 2500, 2500, 2900, 3500, 13500, 18500 } } },
	/* Little: 100 ops of 1 us, 10 at once, and 600 ns of their own time */
	{ "a window", { 0 }, { 0 }, 1,
	  { .share = KVT_SHARE_FAIR, .window = 10, .latency_ps = 1000000 }, true, 400,
	  11600, { { 0, 0, 400, 1000, 11600, 11600 } } },
};

static void near(const char *what, int i, const char *field, int64_t is, int64_t expected)
{
	if (llabs(is - expected) > 2)
		fail_msg("%s: batch %d: %s is %lld, expected %lld", what, i, field,
			 (long long)is, (long long)expected);
}

static void test_times(void)
{
	for (size_t r = 0; r < LENGTH(rows); r++) {
		const struct row *row = &rows[r];
		struct kvt_batch batch[MOST];
		struct kvt_batches batches = { .n = row->n, .batch = batch,
					       .src_ranks = MOST, .dst_ranks = MOST };
		struct kvt_batch_how how = row->how;
		struct kvt_batch_times t;
		int64_t end = 0;

		for (int i = 0; i < row->n; i++)
			batch[i] = (struct kvt_batch){ .src_rank = row->src[i],
						       .dst_rank = row->dst[i],
						       .ops = 100, .bytes = 5000 };
		how.link = link;
		ok(kvt_clock_run(&t, &batches, &how, NULL));
		for (int i = 0; i < row->n; i++) {
			const struct kvt_batch_time *is = &t.batch[i];
			const struct expected *e = &row->batch[i];

			near(row->what, i, "ready", is->ready, e->ready);
			near(row->what, i, "post", is->post, e->post);
			near(row->what, i, "posted", is->posted, e->posted);
			near(row->what, i, "begin", is->begin, e->begin);
			near(row->what, i, "arrived", is->arrived, e->arrived);
			near(row->what, i, "end", is->end, e->end);
			end = e->end > end ? e->end : end;
		}
		near(row->what, -1, "end", t.end, end);
		near(row->what, -1, "closed", t.closed, row->closed);
		near(row->what, -1, "posting", t.posting, row->posting);
		assert_int_equal(t.alone, row->alone);
		if (row->alone && t.worst > 1e-3)
			fail_msg("%s: alone, and %g off the closed form", row->what,
				 t.worst);
		kvt_clock_free(&t);
	}
}

/* An infinite rate leaves nothing to share. */
static void test_plain(void)
{
	struct kvt_batch batch[2] = {
		{ .src_rank = 0, .ops = 100, .bytes = 5000 },
		{ .src_rank = 1, .ops = 100, .bytes = 5000 },
	};
	const struct kvt_batches batches = { .n = 2, .batch = batch, .src_ranks = 2,
					     .dst_ranks = 1 };
	struct kvt_link infinite = link;
	struct kvt_batch_times t;

	infinite.rate = 0;
	ok(kvt_clock_run_plain(&t, &batches, &infinite, NULL));
	near("infinite", 0, "end", t.batch[0].end, 2000);
	near("infinite", 1, "end", t.batch[1].end, 2400);
	kvt_clock_free(&t);
	ok(kvt_clock_run_plain(&t, &batches, &link, NULL));
	near("finite", 1, "end", t.end, 11133);
	kvt_clock_free(&t);
}

/* ---- what is counted -------------------------------------------------------- */

static void test_uniform(void)
{
	struct kvt_batch_how how = {
		.posting = { .stack = KVT_STACK_RFC, .slice = 3000 },
	};
	struct kvt_batches b;

	ok(kvt_batches_uniform(&b, 10, 8192, &how, NULL));
	assert_int_equal(b.n, 1);
	assert_int_equal(b.sum.merged, 10);
	assert_int_equal(b.sum.ops, 30);	/* 3000, 3000, 2192 */
	assert_int_equal(b.sum.bytes, 81920);
	kvt_batches_free(&b);
	how.stage = 32768;			/* 2 buffers of 11 slices, a rest of 6 */
	ok(kvt_batches_uniform(&b, 10, 8192, &how, NULL));
	assert_int_equal(b.sum.ops, 28);
	kvt_batches_free(&b);
	assert_int_equal(kvt_batches_uniform(&b, INT64_MAX, 2, &how, NULL),
			 KVT_BAD_INPUT);
}

TESTS("clock",
	TEST(test_times), TEST(test_plain), TEST(test_uniform))
