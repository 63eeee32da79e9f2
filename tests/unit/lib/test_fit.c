/* SPDX-License-Identifier: Apache-2.0 */
/* test_fit.c - bytes of requests on a rank, and how many tokens fit */
#include "lib/kvt/model.h"
#include "tests/unit/tests.h"

static void size_of(struct kvt_model_size *out, int n, const char *const *groups,
		    int64_t tp)
{
	const struct kvt_deployment d = { .tp = tp, .block_size = 16,
					  .cache_dtype = "bfloat16", .apart = true,
					  .release = KVT_NEWEST_RELEASE };
	struct kvt_model model = { .ngroups = n };

	for (int i = 0; i < n; i++)
		if (kvt_model_group_parse(&model.group[i], groups[i], &why))
			fail_msg("%s: %s", groups[i], why.text);
	ok(kvt_model_size(out, &model, &d, &why));
}

/* Two layers of 8 heads of 128: 2 x 8 x 128 x 2 bytes a token and a layer. */
static const char *const full[] = { "gqa:layers=2,heads=8,head-dim=128" };
static const char *const mixed[] = {
	"gqa:layers=2,heads=8,head-dim=128",
	"sliding-window:layers=3,heads=8,head-dim=128,window=100",
};

static void test_sums(void)
{
	struct kvt_model_size size;
	struct kvt_model_sums sums;

	size_of(&size, 1, full, 2);
	sums = kvt_model_sums(&size);
	assert_true(sums.token == 2 * 4096 / 2);
	assert_true(sums.all_ranks == 2 * 4096);
	assert_true(sums.unique == 2 * 4096);
	assert_true(sums.window == 0 && !sums.windows && !sums.states);
	/* 16 ranks of 8 heads: each head is listed twice */
	size_of(&size, 1, full, 16);
	sums = kvt_model_sums(&size);
	assert_true(sums.token == 2 * 4096 / 8);
	assert_true(sums.all_ranks == 2 * 2 * 4096);
	assert_true(sums.unique == 2 * 4096);
}

/* A window is no part of what grows; it takes its most blocks at most. */
static void test_window(void)
{
	struct kvt_model_size size;
	struct kvt_model_sums sums;

	size_of(&size, 2, mixed, 1);
	sums = kvt_model_sums(&size);
	assert_true(sums.token == 2 * 4096 * 2 / 2);
	assert_true(sums.window == 3 * 4096);
	assert_int_equal(sums.windows, 3 * 4096 * 16 * size.group[1].most_blocks);
	/* 100 tokens touch 7 blocks, or 8 if they do not begin with one */
	assert_in_range(size.group[1].most_blocks, 7, 8);
	assert_int_equal(kvt_model_request(&size, 1), (2 + 3) * 4096 * 16);
	assert_int_equal(kvt_model_request(&size, 16), (2 + 3) * 4096 * 16);
	assert_int_equal(kvt_model_request(&size, 17), 2 * (2 + 3) * 4096 * 16);
	assert_int_equal(kvt_model_request(&size, 16000),
			 2 * 4096 * 16000 + sums.windows);
}

/* Against a search that tries one number of tokens after the other. */
static void test_tokens(void)
{
	struct kvt_model_size size;

	size_of(&size, 2, mixed, 1);
	for (int64_t nbytes = 0; nbytes < 3 << 20; nbytes += 30011) {
		int64_t n = -1;

		while (kvt_model_request(&size, n + 1) <= nbytes)
			n++;
		assert_int_equal(kvt_model_tokens(&size, nbytes), n);
		assert_int_equal(kvt_model_fit(&size, 3 * nbytes + 2, 3), n);
	}
}

static void test_ends(void)
{
	static const char *const window[] = {
		"sliding-window:layers=1,heads=1,head-dim=8,window=16" };
	struct kvt_model_size size;

	size_of(&size, 1, window, 1);
	assert_int_equal(kvt_model_tokens(&size, INT64_C(1) << 40), KVT_ANY_TOKENS);
	size_of(&size, 1, full, 1);
	assert_int_equal(kvt_model_tokens(&size, 0), 0);
	assert_int_equal(kvt_model_fit(&size, 2 * 4096 * 16, 2), 0);
	assert_int_equal(kvt_model_fit(&size, 2 * 4096 * 2 * 16, 2), 16);
}

TESTS("fit",
	NAMED(test_sums, "sums of a group with replicas"),
	NAMED(test_window, "a window"),
	NAMED(test_tokens, "tokens that fit"),
	NAMED(test_ends, "none, and any number"))
