/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_replay.c - requests over a link against times computed by hand
 *
 * A token has 1024 bytes, a batch costs 1 us, operations nothing, and the wire moves
 * one byte a nanosecond: a request of 32 tokens takes 33768 ns alone.
 */
#include "sim/ops/events.h"
#include "sim/ops/replay.h"
#include "tests/unit/tests.h"

/* ---- the queue of events --------------------------------------------------- */

static void test_queue(void)
{
	enum { N = 1000 };
	struct events events = { 0 };
	uint32_t x = 1;
	struct event last = { .at = -1 };

	for (int i = 0; i < N; i++) {
		x = x * 1664525u + 1013904223u;
		assert_true(events_push(&events, (struct event){ .at = x >> 26,
								 .request = i }));
		if (i % 3 == 2) {	/* what is pushed later may be due earlier */
			struct event e = events_pop(&events);

			for (int64_t k = 0; k < events.n; k++)
				assert_true(events.heap[k].at > e.at ||
					    (events.heap[k].at == e.at &&
					     events.heap[k].serial > e.serial));
		}
	}
	while (events.n) {
		struct event e = events_pop(&events);

		assert_true(e.at > last.at ||
			    (e.at == last.at && e.request > last.request));
		last = e;
	}
	events_free(&events);
}

/* ---- requests ---------------------------------------------------------------- */

static const struct kvt_batch_how posts = {
	.posting = { .stack = KVT_STACK_RFC }, .share = KVT_SHARE_FAIR,
	.link = { .name = "hand", .overlap = 1, .setup_ns = 1000, .rate = 1000000000 },
};

static struct kvt_model_group group;
static struct kvt_model_transfer from;

static int set_up(void **state)
{
	(void)state;
	if (kvt_model_group_parse(&group, "gqa:layers=2,heads=2,head-dim=64,elem=2",
				  NULL))
		return 1;
	from = (struct kvt_model_transfer){
		.group = &group, .ngroups = 1,
		.src = { .ranks = 1, .block_size = 16, .ids = { .words = "contig" } },
	};
	if (kvt_layout_parse(&from.src.layout, "hnd", NULL))
		return 1;
	from.dst = from.src;
	return 0;
}

enum { LATER = 10000 };			/* the second request arrives */

struct expected {
	enum kvt_replay_outcome outcome;
	int64_t start, end;
};

static const struct row {
	const char *what;
	int n;				/* requests: of 32 tokens, then of 16 */
	struct kvt_replay_how how;	/* without posts; 0: the default below */
	struct expected is[2];
	int64_t retries, failed, arrived, retried, abandoned;
} rows[] = {
	{ "one", 1, { 0 }, { { KVT_REPLAY_DONE, 0, 33768 } }, .arrived = 32768 },
	/* from 11000 to 43768 both move half a byte a nanosecond */
	{ "two at once", 2, { 0 },
	  { { KVT_REPLAY_DONE, 0, 50152 }, { KVT_REPLAY_DONE, LATER, 43768 } },
	  .arrived = 49152 },
	{ "one at a time", 2, { .concurrent = 1 },
	  { { KVT_REPLAY_DONE, 0, 33768 }, { KVT_REPLAY_DONE, 33768, 51152 } },
	  .arrived = 49152 },
	{ "prefill of 1 us a token", 1, { .prefill = 1000000 },
	  { { KVT_REPLAY_DONE, 32000, 65768 } }, .arrived = 32768 },
	/* the halves are ready after 16 us and 32 us, and meet from 33000 to 33768 */
	{ "in two pieces", 1, { .prefill = 1000000, .pieces = 2 },
	  { { KVT_REPLAY_DONE, 16000, 49768 } }, .arrived = 32768 },
	{ "the lease ends", 1, { .lease_ns = 10000 },
	  { { KVT_REPLAY_EXPIRED, 0, 10000 } }, .abandoned = 9000 },
	{ "one of two rails is lost", 1, { .rails = 2, .down_at = 11000,
					   .down_until = 1000000 },
	  { { KVT_REPLAY_DONE, 0, 56536 } }, .arrived = 32768 },
	/* lost at 5000, then nine times the timeout */
	{ "the peer dies", 1, { .dead_at = 5000, .timeout_ns = 100 },
	  { { KVT_REPLAY_FAILED, 0, 5900 } }, .retries = 9, .failed = 10,
	  .abandoned = 4000 },
	{ "all is lost", 1, { .drop = 1, .timeout_ns = 1000 },
	  { { KVT_REPLAY_FAILED, 0, 10 * 33768 + 9 * 1000 } }, .retries = 9,
	  .failed = 10, .retried = 10 * 32768 },
	/* found at once, so without the timeout */
	{ "all is damaged", 1, { .corrupt = 1, .timeout_ns = 1000 },
	  { { KVT_REPLAY_FAILED, 0, 10 * 33768 } }, .retries = 9, .failed = 10,
	  .retried = 10 * 32768 },
};

static void near(const char *what, int i, const char *field, int64_t is, int64_t expected)
{
	if (llabs(is - expected) > 2)
		fail_msg("%s: request %d: %s is %lld, expected %lld", what, i, field,
			 (long long)is, (long long)expected);
}

static struct kvt_replay_how how_of(const struct row *row)
{
	struct kvt_replay_how how = row->how;

	how.posts = &posts;
	how.pieces = how.pieces ? how.pieces : 1;
	how.concurrent = how.concurrent ? how.concurrent : 64;
	how.lease_ns = how.lease_ns ? how.lease_ns : INT64_C(480000000000);
	how.rails = how.rails ? how.rails : 1;
	how.down_at = how.down_at ? how.down_at : -1;
	how.dead_at = how.dead_at ? how.dead_at : -1;
	return how;
}

static void test_times(void **state)
{
	struct kvt_request_sizes sizes;

	(void)state;
	ok(kvt_request_sizes_init(&sizes, &from, &posts, NULL));
	for (size_t i = 0; i < LENGTH(rows); i++) {
		const struct row *row = &rows[i];
		struct kvt_trace_row request[] = {
			{ .tokens = 32, .bytes = -1, .cached = -1 },
			{ .arrival = LATER, .tokens = 16, .bytes = -1, .cached = -1 },
		};
		const struct kvt_trace trace = { .n = row->n, .row = request };
		const struct kvt_replay_how how = how_of(row);
		struct kvt_replay r;

		ok(kvt_replay_run(&r, &trace, &sizes, &how, NULL));
		for (int n = 0; n < row->n; n++) {
			near(row->what, n, "outcome", r.request[n].outcome * 10,
			     row->is[n].outcome * 10);
			near(row->what, n, "start", r.request[n].start, row->is[n].start);
			near(row->what, n, "end", r.request[n].end, row->is[n].end);
		}
		near(row->what, 0, "retries", r.request[0].retries * 10,
		     row->retries * 10);
		near(row->what, -1, "failed", r.failed_transfers * 10, row->failed * 10);
		near(row->what, -1, "arrived", r.arrived_bytes, row->arrived);
		near(row->what, -1, "retried", r.retried_bytes, row->retried);
		near(row->what, -1, "abandoned", r.abandoned_bytes, row->abandoned);
		kvt_replay_free(&r);
	}
	kvt_request_sizes_free(&sizes);
}

/* ---- sizes -------------------------------------------------------------------- */

/* What is extrapolated is what a plan of just so many tokens has. */
static void test_sizes(void **state)
{
	struct kvt_model_transfer one = from;
	struct kvt_request_sizes sizes;
	struct kvt_batch batch;

	(void)state;
	one.dst.block_size = 48;
	one.dst.layout = one.src.layout;
	one.dst.ids.words = "scatter";
	ok(kvt_request_sizes_init(&sizes, &one, &posts, NULL));
	assert_int_equal(sizes.unit, 48);
	assert_int_equal(sizes.slots, 48);
	for (int64_t tokens = 1; tokens <= 6 * sizes.unit; tokens++) {
		struct kvt_transfer_plan plan;
		struct kvt_batches b;

		one.tokens = tokens;
		ok(kvt_transfer_of_model(&plan, &one, NULL));
		ok(kvt_batches_count(&b, &plan, &posts, NULL));
		ok(kvt_request_sizes_get(&batch, &sizes, tokens, NULL));
		assert_int_equal(b.n, 1);
		assert_int_equal(batch.bytes, 1024 * tokens);
		assert_int_equal(batch.bytes, b.batch[0].bytes);
		assert_int_equal(batch.ops, b.batch[0].ops);
		assert_int_equal(batch.merged, b.batch[0].merged);
		kvt_batches_free(&b);
		kvt_transfer_free(&plan);
	}
	kvt_request_sizes_free(&sizes);
}

/* ---- hits of prefixes --------------------------------------------------------- */

static void test_hits(void)
{
	int64_t hash[] = { 1, 2, 1, 2, 3, 9, 2, 1, 1, 2, 3 };
	struct kvt_trace_row row[] = {
		{ .tokens = 1024, .cached = -1, .hash = 0, .nhashes = 2 },
		{ .tokens = 1500, .cached = -1, .hash = 2, .nhashes = 3 },
		{ .tokens = 1024, .cached = -1, .hash = 5, .nhashes = 2 },
		{ .tokens = 100, .cached = -1, .hash = 7, .nhashes = 1 },
		{ .tokens = 1500, .cached = 7, .hash = 8, .nhashes = 3 },
	};
	static const int64_t expected[] = {
		0, 1024, 0,		/* 2 was seen, but not after 9 */
		100, 7,			/* a last block in part; what the trace says */
	};
	const struct kvt_trace trace = { .n = 5, .row = row, .nhashes = 11,
					 .hash = hash };
	int64_t hits[5];

	ok(kvt_trace_hits(hits, &trace, NULL));
	for (int i = 0; i < 5; i++)
		assert_int_equal(hits[i], expected[i]);
}

/* ---- sums ---------------------------------------------------------------------- */

static void close_to(double is, double expected)
{
	double off = is - expected;

	if (off > 1e-9 * expected || -off > 1e-9 * expected)
		fail_msg("%.12g, expected %.12g", is, expected);
}

static void test_sums(void)
{
	struct kvt_replay_request request[] = {
		{ .outcome = KVT_REPLAY_DONE, .ready = 100, .first = 50, .start = 150,
		  .end = 1100, .bytes = 950, .retries = 1 },
		{ .outcome = KVT_REPLAY_DONE, .ready = 100, .first = 100, .start = 100,
		  .end = 2100, .bytes = 4000 },
		{ .outcome = KVT_REPLAY_DONE, .ready = 0, .end = 3000 },
		{ .outcome = KVT_REPLAY_DONE, .ready = 0, .end = 4000 },
		{ .outcome = KVT_REPLAY_EXPIRED, .ready = 0, .end = 9000, .bytes = 10 },
	};
	struct kvt_replay_transfer transfer[] = {
		{ 6000999, 1000, 2048, 10 }, { 4000000, 2999, 2049, 60000 },
		{ 2000000000, 3000, 1 << 20, 31 },
	};
	double nic[] = { 4500, 2250 };
	const struct kvt_replay r = {
		.n = 5, .request = request, .ntransfers = 3, .transfer = transfer,
		.end = 9000, .nnics = 2, .nic_bytes = nic,
	};
	struct kvt_replay_sums s;
	struct kvt_histogram h;

	ok(kvt_replay_sum(&s, &r, 1e9, 2500, NULL));
	assert_int_equal(s.done, 4);
	assert_int_equal(s.failed, 0);
	assert_int_equal(s.expired, 1);
	assert_int_equal(s.retries, 1);
	assert_int_equal(s.bytes, 4960);
	assert_int_equal(s.good, 4950);
	close_to(s.kv.p50, 2500);
	close_to(s.kv.p90, 3700);
	close_to(s.kv.p99, 3970);
	close_to(s.kv.mean, 2500);
	close_to(s.wait.mean, 25);
	close_to(s.xfer.p50, 6000);
	close_to(s.posting.mean, 2);
	close_to(s.use_most, .5);
	close_to(s.use_mean, .375);
	/* of rates 1 and 2: (1 + 2)^2 / (2 * (1 + 4)) */
	close_to(s.jain, .9);
	close_to(kvt_replay_attainment(&r, 2000), .4);

	kvt_replay_histogram(&h, &r, 0);
	assert_string_equal(h.name, "vllm:nixl_xfer_time_seconds");
	assert_int_equal(h.count[0], 1);	/* up to 5 ms */
	assert_int_equal(h.count[1], 2);
	assert_int_equal(h.count[10], 2);	/* up to 1 s */
	assert_int_equal(h.count[11], 3);
	close_to(h.sum, 2.01);
	kvt_replay_histogram(&h, &r, 2);
	assert_int_equal(h.count[0], 1);	/* up to 2 KiB, with it */
	kvt_replay_histogram(&h, &r, 3);
	assert_int_equal(h.count[0], 1);
	assert_int_equal(h.count[13], 2);	/* one is above all bounds */
}

TESTS("replay",
	TEST(test_queue),
	AROUND(test_times, set_up, NULL),
	AROUND(test_sizes, set_up, NULL),
	TEST(test_hits), TEST(test_sums))
