/* SPDX-License-Identifier: Apache-2.0 */
/* test_canonical_page.c - a page of all ranks, as vLLM #48408 offloads it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lib/kvt/connect.h"

/* ---- pages of all ranks --------------------------------------------------- */

struct page_case {
	const char *what;
	bool heads_first;
	int64_t total, ranks, rank;
	int64_t src, dst, run, n, src_stride, dst_stride;
};

/* 4 states of 8 bytes a head */
static struct page_case pages[] = {
	{ "NHD, 4 heads on 2, rank 0", false, 4, 2, 0, 0, 0, 16, 4, 16, 32 },
	{ "NHD, 4 heads on 2, rank 1", false, 4, 2, 1, 0, 16, 16, 4, 16, 32 },
	{ "HND, 4 heads on 2, rank 0", true, 4, 2, 0, 0, 0, 64, 1, 0, 0 },
	{ "HND, 4 heads on 2, rank 1", true, 4, 2, 1, 0, 64, 64, 1, 0, 0 },
	{ "NHD, 2 heads on 4, rank 1", false, 2, 4, 1, 0, 0, 8, 4, 8, 16 },
	{ "NHD, 2 heads on 4, rank 2", false, 2, 4, 2, 0, 8, 8, 4, 8, 16 },
	{ "HND, 2 heads on 4, rank 1", true, 2, 4, 1, 0, 0, 32, 1, 0, 0 },
	{ "HND, 2 heads on 4, rank 3", true, 2, 4, 3, 0, 32, 32, 1, 0, 0 },
};

static void test_page(void **state)
{
	const struct page_case *c = *state;
	struct kvt_spec whole = {
		.kind = KVT_FULL_ATTENTION, .block_size = 4, .num_heads = c->total,
		.total_heads = c->total, .replication = 1,
		.tokens_per_state = { 1, 1 }, .state_content_size = 8,
	}, spec;
	struct kvt_side side = { &spec, { c->ranks, c->rank } };
	struct kvt_plan plan;
	struct kvt_error err = { "" };

	if (kvt_spec_share(&spec, &whole, side.rank, &err) ||
	    kvt_canonical_page_plan(&plan, &side, c->heads_first, NULL, &err))
		fail_msg("%s", err.text);
	assert_int_equal(plan.src_offset, c->src);
	assert_int_equal(plan.dst_offset, c->dst);
	assert_int_equal(plan.run, c->run);
	assert_int_equal(kvt_plan_nruns(&plan), c->n);
	if (c->n > 1) {
		assert_int_equal(plan.nloops, 1);
		assert_int_equal(plan.src_stride[0], c->src_stride);
		assert_int_equal(plan.dst_stride[0], c->dst_stride);
	}
}

/* A latent of 16 bytes on 2 context parallel ranks; then turns of 2. */
static void test_cp_page(void **state)
{
	static const int64_t want[2][2][4] = {
		{ { 0, 32, 64, 96 }, { 16, 48, 80, 112 } },
		{ { 0, 16, 64, 80 }, { 32, 48, 96, 112 } },
	};
	struct kvt_spec spec = {
		.kind = KVT_MLA, .block_size = 4, .num_heads = 1, .total_heads = 1,
		.replication = 2, .tokens_per_state = { 1, 1 }, .state_content_size = 16,
	};

	(void)state;
	for (int turn = 1; turn <= 2; turn++)
		for (int rank = 0; rank < 2; rank++) {
			struct kvt_side side = { &spec, { 2, rank } };
			struct kvt_cp cp = { 2, rank, turn };
			struct kvt_plan plan;
			struct kvt_plan_walk w;
			int64_t at = 0;

			assert_false(kvt_canonical_page_plan(&plan, &side, true, &cp,
							     NULL));
			assert_int_equal(plan.run, 16 * turn);
			kvt_plan_walk_start(&w, &plan);
			for (; !w.done; kvt_plan_walk_next(&w), at += turn) {
				assert_int_equal(w.src, 16 * at);
				assert_int_equal(w.dst, want[turn - 1][rank][at]);
			}
			assert_int_equal(at, 4);
		}
}

/* 4 heads on 2 ranks, each token on one of 3: every byte of the page, by hand. */
static void test_cp_heads(void **state)
{
	enum { HEADS = 4, STATES = 6, C = 8, CP = 3, TURN = 2 };
	struct kvt_spec whole = {
		.kind = KVT_FULL_ATTENTION, .block_size = STATES, .num_heads = HEADS,
		.total_heads = HEADS, .replication = 1, .tokens_per_state = { 1, 1 },
		.state_content_size = C,
	}, spec;

	(void)state;
	for (int heads_outside = 0; heads_outside < 2; heads_outside++)
	for (int rank = 0; rank < 2; rank++)
	for (int c = 0; c < CP; c++) {
		struct kvt_side side = { &spec, { 2, rank } };
		struct kvt_cp cp = { CP, c, TURN };
		int to[STATES * 2 * C], bytes = 0;
		struct kvt_plan plan;
		struct kvt_plan_walk w;

		assert_false(kvt_spec_share(&spec, &whole, side.rank, NULL));
		assert_false(kvt_canonical_page_plan(&plan, &side, heads_outside, &cp,
						     NULL));
		kvt_plan_walk_start(&w, &plan);
		for (; !w.done; kvt_plan_walk_next(&w))
			for (int i = 0; i < plan.run; i++, bytes++)
				to[w.src + i] = (int)w.dst + i;
		assert_int_equal(bytes, STATES * 2 * C);
		for (int h = 0; h < 2; h++)
		for (int s = 0; s < STATES; s++) {
			int head = 2 * rank + h, t = s / TURN * CP * TURN + c * TURN +
						     s % TURN;
			int from = heads_outside ? h * STATES + s : s * 2 + h;
			int want = heads_outside ? head * STATES * CP + t :
						   t * HEADS + head;

			assert_int_equal(to[from * C], want * C);
			assert_int_equal(to[from * C + C - 1], want * C + C - 1);
		}
	}
}

static void test_page_refused(void **state)
{
	static const struct {
		enum kvt_kind kind;
		int64_t ratio;
		bool planar;
		int64_t interleave;
		enum kvt_status status;
	} rows[] = {
		{ KVT_MLA, 1, false, 1, KVT_OK },
		{ KVT_MLA, 4, false, 1, KVT_UNSUPPORTED },
		{ KVT_MLA, 1, true, 1, KVT_UNSUPPORTED },
		{ KVT_MAMBA_SSM, -1, false, 1, KVT_UNSUPPORTED },
		{ KVT_MLA, 1, false, 3, KVT_BAD_INPUT },
		{ KVT_MLA, 1, false, 16, KVT_BAD_INPUT },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvt_spec spec = {
			.kind = rows[i].kind, .block_size = 8, .num_heads = 1,
			.total_heads = 1, .replication = 1, .planar = rows[i].planar,
			.tokens_per_state = { rows[i].ratio, 1 },
			.state_content_size = 16,
		};
		struct kvt_side side = { &spec, { 1, 0 } };
		struct kvt_cp cp = { 2, 0, rows[i].interleave };
		struct kvt_plan plan;

		assert_int_equal(kvt_canonical_page_plan(&plan, &side, false, &cp, NULL),
				 rows[i].status);
	}
}

#define TEST(f, sentence) { sentence, f, NULL, NULL, NULL }

int main(void)
{
	enum { N = sizeof(pages) / sizeof(pages[0]) };
	static const struct CMUnitTest more[] = {
		TEST(test_cp_page, "context parallel ranks in a page of all"),
		TEST(test_cp_heads, "heads and tokens of all ranks in a page"),
		TEST(test_page_refused, "contents that are no rows of bytes"),
	};
	enum { M = sizeof(more) / sizeof(more[0]) };
	struct CMUnitTest tests[N + M] = { { 0 } };

	for (int i = 0; i < N; i++)
		tests[i] = (struct CMUnitTest){ .name = pages[i].what,
			.test_func = test_page, .initial_state = &pages[i] };
	memcpy(tests + N, more, sizeof(more));
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("canonical page", tests, NULL, NULL);
}
