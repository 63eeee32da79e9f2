/* SPDX-License-Identifier: Apache-2.0 */
/* test_owner.c - heads and tokens against lists that are dealt out by hand */
#include "lib/kvt/spec.h"
#include "tests/unit/tests.h"

/* ---- who holds what: SPECS of the engines, written down ------------------ */

static const struct {
	int64_t heads, ranks;
	int64_t first[16];		/* of each rank; the next rank's first */
	int64_t each;
} owners[] = {
	{ 8, 1,  { 0 }, 8 },
	{ 8, 2,  { 0, 4 }, 4 },
	{ 8, 4,  { 0, 2, 4, 6 }, 2 },
	{ 8, 8,  { 0, 1, 2, 3, 4, 5, 6, 7 }, 1 },
	{ 8, 16, { 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7 }, 1 },
	{ 4, 2,  { 0, 2 }, 2 },
	{ 4, 8,  { 0, 0, 1, 1, 2, 2, 3, 3 }, 1 },
	{ 4, 16, { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3 }, 1 },
	{ 2, 4,  { 0, 0, 1, 1 }, 1 },
	{ 2, 8,  { 0, 0, 0, 0, 1, 1, 1, 1 }, 1 },
	{ 1, 4,  { 0, 0, 0, 0 }, 1 },
	{ 6, 3,  { 0, 2, 4 }, 2 },
	{ 3, 12, { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2 }, 1 },
};

static void test_owned(void)
{
	for (size_t i = 0; i < LENGTH(owners); i++)
		for (int64_t r = 0; r < owners[i].ranks; r++) {
			struct kvt_rank rank = { owners[i].ranks, r };
			struct kvt_range got;

			assert_false(kvt_owned(&got, owners[i].heads, rank, NULL));
			assert_int_equal(got.begin, owners[i].first[r]);
			assert_int_equal(got.end - got.begin, owners[i].each);
		}
}

/* Deal cards: every rank gets heads/ranks in turn, or every head ranks/heads. */
static void deal(int *first, int *each, int heads, int ranks)
{
	int at = 0;

	*each = heads >= ranks ? heads / ranks : 1;
	if (heads >= ranks)
		for (int r = 0; r < ranks; r++, at += *each)
			first[r] = at;
	else
		for (int h = 0; h < heads; h++)
			for (int copy = 0; copy < ranks / heads; copy++)
				first[at++] = h;
}

static void test_owned_all(void)
{
	int first[64], each;

	for (int heads = 1; heads <= 32; heads++)
		for (int ranks = 1; ranks <= 64; ranks++) {
			bool legal = heads % ranks == 0 || ranks % heads == 0;

			if (legal)
				deal(first, &each, heads, ranks);
			for (int r = 0; r < ranks; r++) {
				struct kvt_rank rank = { ranks, r };
				struct kvt_range got;
				int status = kvt_owned(&got, heads, rank, NULL);

				assert_int_equal(status, legal ? KVT_OK : KVT_BAD_INPUT);
				if (!legal)
					continue;
				assert_int_equal(got.begin, first[r]);
				assert_int_equal(got.end, first[r] + each);
			}
		}
}

static void test_refused(void)
{
	static const struct {
		int64_t heads, ranks, index;
		const char *says;
	} bad[] = {
		{ 6, 4, 0, "6 heads cannot be divided evenly among 4 ranks" },
		{ 4, 6, 0, "4 heads cannot be divided evenly among 6 ranks" },
		{ 0, 1, 0, "there are 0 heads" },
		{ -1, 1, 0, "there are -1 heads" },
		{ 4, 0, 0, "there are 0 ranks" },
		{ 4, 4, 4, "rank is 4, expected 0 to 3" },
		{ 4, 4, -1, "rank is -1, expected 0 to 3" },
		{ 1, INT64_MAX, 0, "ranks, expected 1 to" },
		{ INT64_MAX, 1, 0, "heads, expected 1 to" },
	};

	for (size_t i = 0; i < LENGTH(bad); i++) {
		struct kvt_rank rank = { bad[i].ranks, bad[i].index };
		struct kvt_range got = { 7, 7 };

		expect(kvt_owned(&got, bad[i].heads, rank, &why), KVT_BAD_INPUT,
		       bad[i].says);
		assert_int_equal(got.begin, 7);
	}
}

static void test_replicated(void)
{
	assert_false(kvt_is_replicated(8, 4));
	assert_false(kvt_is_replicated(8, 8));	/* ranks / heads is 1, too */
	assert_true(kvt_is_replicated(8, 16));
	assert_false(kvt_is_replicated(1, 1));
	assert_true(kvt_is_replicated(1, 2));
}

/* ---- who gives what to whom ---------------------------------------------- */

struct pair {
	int src, dst, begin, end;	/* heads of the model */
};

static const struct {
	int heads, src, dst, npairs;
	struct pair pair[10];
} transfers[] = {
	{ 8, 4, 2, 4, { {0,0,0,2}, {1,0,2,4}, {2,1,4,6}, {3,1,6,8} } },
	{ 8, 2, 4, 4, { {0,0,0,2}, {0,1,2,4}, {1,2,4,6}, {1,3,6,8} } },
	{ 4, 4, 8, 8, { {0,0,0,1}, {0,1,0,1}, {1,2,1,2}, {1,3,1,2},
			{2,4,2,3}, {2,5,2,3}, {3,6,3,4}, {3,7,3,4} } },
	{ 4, 8, 4, 4, { {0,0,0,1}, {2,1,1,2}, {4,2,2,3}, {6,3,3,4} } },
	{ 4, 8, 2, 4, { {0,0,0,1}, {2,0,1,2}, {4,1,2,3}, {6,1,3,4} } },
	{ 2, 2, 4, 4, { {0,0,0,1}, {0,1,0,1}, {1,2,1,2}, {1,3,1,2} } },
	{ 2, 4, 2, 2, { {0,0,0,1}, {2,1,1,2} } },
	{ 2, 4, 8, 8, { {0,0,0,1}, {0,1,0,1}, {1,2,0,1}, {1,3,0,1},
			{2,4,1,2}, {2,5,1,2}, {3,6,1,2}, {3,7,1,2} } },
	{ 2, 8, 4, 4, { {0,0,0,1}, {2,1,0,1}, {4,2,1,2}, {6,3,1,2} } },
	/* a latent is one head that all hold */
	{ 1, 4, 8, 8, { {0,0,0,1}, {0,1,0,1}, {1,2,0,1}, {1,3,0,1},
			{2,4,0,1}, {2,5,0,1}, {3,6,0,1}, {3,7,0,1} } },
	{ 1, 8, 4, 4, { {0,0,0,1}, {2,1,0,1}, {4,2,0,1}, {6,3,0,1} } },
	{ 1, 3, 2, 2, { {0,0,0,1}, {1,1,0,1} } },
	/* neither divides the other: ascending */
	{ 6, 2, 3, 4, { {0,0,0,2}, {0,1,2,3}, {1,1,3,4}, {1,2,4,6} } },
	{ 6, 3, 2, 4, { {0,0,0,2}, {1,0,2,3}, {1,1,3,4}, {2,1,4,6} } },
	{ 2, 4, 6, 6, { {0,0,0,1}, {0,1,0,1}, {0,2,0,1},
			{2,3,1,2}, {2,4,1,2}, {2,5,1,2} } },
};

static void test_given(void)
{
	for (size_t i = 0; i < LENGTH(transfers); i++) {
		int n = 0;

		for (int d = 0; d < transfers[i].dst; d++)
			for (int s = 0; s < transfers[i].src; s++) {
				struct kvt_rank src = { transfers[i].src, s };
				struct kvt_rank dst = { transfers[i].dst, d };
				const struct pair *want = &transfers[i].pair[n];
				struct kvt_range got;

				assert_int_equal(kvt_given(&got, transfers[i].heads,
							   src, dst, NULL), 0);
				if (got.begin == got.end)
					continue;
				assert_true(n++ < transfers[i].npairs);
				assert_int_equal(s, want->src);
				assert_int_equal(d, want->dst);
				assert_int_equal(got.begin, want->begin);
				assert_int_equal(got.end, want->end);
			}
		assert_int_equal(n, transfers[i].npairs);
	}
}

/* Every head of every destination rank: once, from a rank that holds it. */
static void test_given_all(void)
{
	int sfirst[32], dfirst[32], seach, deach, ntested = 0;

	for (int heads = 1; heads <= 16; heads++)
	for (int ns = 1; ns <= 32; ns++)
	for (int nd = 1; nd <= 32; nd++) {
		if ((heads % ns && ns % heads) || (heads % nd && nd % heads))
			continue;
		deal(sfirst, &seach, heads, ns);
		deal(dfirst, &deach, heads, nd);
		ntested++;
		for (int d = 0; d < nd; d++) {
			int times[16] = { 0 };

			for (int s = 0; s < ns; s++) {
				struct kvt_rank src = { ns, s }, dst = { nd, d };
				struct kvt_range got;

				assert_false(kvt_given(&got, heads, src, dst, NULL));
				assert_true(got.begin <= got.end);
				if (got.begin < got.end) {
					assert_true(got.begin >= sfirst[s]);
					assert_true(got.end <= sfirst[s] + seach);
				}
				for (int64_t h = got.begin; h < got.end; h++)
					times[h]++;
			}
			for (int h = 0; h < heads; h++)
				assert_int_equal(times[h], h >= dfirst[d] &&
							   h < dfirst[d] + deach);
		}
	}
	assert_int_equal(ntested, 1935);
}

TESTS("owner",
	NAMED(test_owned, "heads of a rank, as engines deal them"),
	NAMED(test_owned_all, "1 to 32 heads on 1 to 64 ranks"),
	NAMED(test_refused, "heads that cannot be dealt are refused"),
	NAMED(test_replicated, "as many ranks as heads is no replication"),
	NAMED(test_given, "rank pairs and their heads"),
	NAMED(test_given_all, "every head arrives once, 1935 transfers"))
