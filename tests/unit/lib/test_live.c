/* SPDX-License-Identifier: Apache-2.0 */
/* test_live.c - dead tokens, against what the managers of vLLM 0.32 answered */
#include "lib/kvt/kvt.h"
#include "tests/unit/tests.h"

#define SLIDING(w, e) { .kind = KVT_SLIDING_WINDOW, .window = w, .retained = e }
#define CHUNKS(c) { .kind = KVT_CHUNKED_LOCAL, .window = c }
#define RSWA(w, p) { .kind = KVT_RSWA, .window = w, .prompt = p }

enum { NCOUNTS = 12 };
static const int64_t computed[NCOUNTS] = { 0, 1, 7, 8, 9, 16, 127, 128, 129, 8191, 8192,
					   8193 };
static const struct {
	struct kvt_retention keep;
	int64_t dead[NCOUNTS];
} rows[] = {
	{ SLIDING(4, 0), { 0, 0, 4, 5, 6, 13, 124, 125, 126, 8188, 8189, 8190 } },
	{ SLIDING(128, 0), { 0, 0, 0, 0, 0, 0, 0, 1, 2, 8064, 8065, 8066 } },
	{ SLIDING(128, 3), { 0, 0, 0, 0, 0, 0, 0, 0, 0, 8061, 8062, 8063 } },
	{ CHUNKS(8), { 0, 0, 0, 8, 8, 16, 120, 128, 128, 8184, 8192, 8192 } },
	{ CHUNKS(8192), { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8192, 8192 } },
	{ { .kind = KVT_MAMBA_SSM },
	  { 0, 0, 6, 7, 8, 15, 126, 127, 128, 8190, 8191, 8192 } },
	{ { .kind = KVT_MLA, .window = 4 },
	  { 0, 0, 4, 5, 6, 13, 124, 125, 126, 8188, 8189, 8190 } },
	/* a window of full attention frees nothing; an unknown one says nothing */
	{ { .kind = KVT_FULL_ATTENTION, .window = 128 }, { 0 } },
	{ { .kind = KVT_CROSS }, { 0 } },
	{ { .kind = KVT_MLA }, { 0 } },
	{ SLIDING(0, 0), { 0 } },
	{ CHUNKS(0), { 0 } },
};

static void test_dead(void)
{
	for (size_t i = 0; i < LENGTH(rows); i++)
		for (int n = 0; n < NCOUNTS; n++) {
			struct kvt_range dead = kvt_dead_tokens(&rows[i].keep,
								computed[n]);

			assert_int_equal(dead.begin, 0);
			assert_int_equal(dead.end, rows[i].dead[n]);
		}
}

/* Between the end of the prompt and the window. */
static void test_gap(void)
{
	static const struct {
		struct kvt_retention keep;
		int64_t n, begin, end;
	} gaps[] = {
		{ RSWA(8, 6), 13, 0, 0 },  { RSWA(8, 6), 14, 0, 0 },
		{ RSWA(8, 6), 16, 6, 8 },  { RSWA(8, 6), 20, 6, 12 },
		{ RSWA(8, 6), 32, 6, 24 }, { RSWA(8, 40), 32, 0, 0 },
		{ RSWA(8, 0), 32, 0, 0 },  { RSWA(0, 6), 32, 0, 0 },
	};

	for (size_t i = 0; i < LENGTH(gaps); i++) {
		struct kvt_range dead = kvt_dead_tokens(&gaps[i].keep, gaps[i].n);

		assert_int_equal(dead.begin, gaps[i].begin);
		assert_int_equal(dead.end, gaps[i].end);
	}
}

/* Numbers that a file may have: no sum of them overflows. */
static void test_extremes(void)
{
	const struct kvt_retention all[] = {
		SLIDING(INT64_MAX, INT64_MAX), SLIDING(1, INT64_MAX),
		CHUNKS(INT64_MAX - 1), RSWA(INT64_MAX, INT64_MAX),
	};
	const struct kvt_retention least = SLIDING(1, 0);

	for (size_t i = 0; i < LENGTH(all); i++)
		assert_int_equal(kvt_dead_tokens(&all[i], INT64_MAX - 2).end, 0);
	assert_int_equal(kvt_dead_tokens(&least, INT64_MAX).end, INT64_MAX);
}

static void test_forgets(void)
{
	const struct kvt_retention yes[] = { SLIDING(0, 0), CHUNKS(8), RSWA(8, 0),
					     { .kind = KVT_MLA, .window = 128 },
					     { .kind = KVT_OPAQUE, .window = 8 } };
	const struct kvt_retention no[] = { { .kind = KVT_FULL_ATTENTION, .window = 8 },
					    { .kind = KVT_MLA }, { .kind = KVT_CROSS },
					    { .kind = KVT_MAMBA_CONV },
					    { .kind = KVT_OPAQUE } };

	for (size_t i = 0; i < LENGTH(yes); i++)
		assert_true(kvt_retention_forgets(&yes[i]));
	for (size_t i = 0; i < LENGTH(no); i++)
		assert_false(kvt_retention_forgets(&no[i]));
}

/* By trying every request length: live tokens, in blocks counted one by one. */
static int64_t count_blocks(const struct kvt_retention *keep, int64_t size)
{
	int64_t most = 0;

	for (int64_t n = 1; n < 400; n++) {
		/* what n - 1 tokens leave alive is there while the next is computed */
		int64_t first = kvt_dead_tokens(keep, n - 1).end;
		int64_t blocks = (n - 1) / size - first / size + 1;

		most = blocks > most ? blocks : most;
	}
	return most;
}

static void test_most_blocks(void)
{
	static const int64_t sizes[] = { 1, 2, 3, 4, 5, 8, 16 };

	for (size_t i = 0; i < LENGTH(sizes); i++)
		for (int64_t w = 1; w < 40; w++) {
			const struct kvt_retention sliding = SLIDING(w, 0);
			const struct kvt_retention more = SLIDING(w, 3);
			const struct kvt_retention chunks = CHUNKS(w);

			assert_int_equal(kvt_most_blocks(&sliding, sizes[i]),
					 count_blocks(&sliding, sizes[i]));
			assert_int_equal(kvt_most_blocks(&more, sizes[i]),
					 count_blocks(&more, sizes[i]));
			assert_int_equal(kvt_most_blocks(&chunks, sizes[i]),
					 count_blocks(&chunks, sizes[i]));
		}
}

/* Blocks all of whose tokens are dead; as tables of the managers had holes. */
static void test_freed(void)
{
	static const struct {
		struct kvt_retention keep;
		int64_t block, computed, first, end;	/* of blocks that were freed */
	} freed[] = {
		{ SLIDING(8, 0), 4, 11, 0, 1 }, { SLIDING(8, 0), 4, 12, 0, 1 },
		{ SLIDING(8, 0), 4, 15, 0, 2 }, { SLIDING(8, 0), 4, 20, 0, 3 },
		{ CHUNKS(8), 4, 7, 0, 0 },      { CHUNKS(8), 4, 8, 0, 2 },
		{ CHUNKS(8), 4, 15, 0, 2 },     { CHUNKS(8), 4, 16, 0, 4 },
		{ CHUNKS(6), 4, 6, 0, 1 },      /* half of the next is dead */
		{ RSWA(8, 6), 4, 16, 2, 2 },    { RSWA(8, 6), 4, 20, 2, 3 },
		{ RSWA(8, 6), 4, 32, 2, 6 },
	};

	for (size_t i = 0; i < LENGTH(freed); i++) {
		int64_t b = freed[i].block;
		struct kvt_range dead = kvt_dead_tokens(&freed[i].keep,
							freed[i].computed);
		int64_t first = (dead.begin + b - 1) / b, end = dead.end / b;

		assert_int_equal(first, freed[i].first);
		assert_int_equal(end, freed[i].end);
	}
}

TESTS("live",
	TEST(test_dead), TEST(test_gap), TEST(test_freed), TEST(test_extremes),
	TEST(test_forgets), TEST(test_most_blocks))
