/* SPDX-License-Identifier: Apache-2.0 */
/* test_connector.c - ratios, ranks, predicates and received blocks of vLLM */
#include "lib/kvt/connect.h"
#include "tests/unit/tests.h"

/* ---- ratios and ranks ---------------------------------------------------- */

static void test_tp_ratio(void)
{
	static const struct {
		int64_t local, remote, ratio;	/* 0: refused */
		const char *says;
	} rows[] = {
		{ 4, 4, 1, "" }, { 8, 2, 4, "" }, { 2, 8, -4, "" }, { 1, 3, -3, "" },
		{ 6, 4, 0, "local TP size 6 is not a multiple of the remote one, 4" },
		{ 4, 6, 0, "remote TP size 6 is not a multiple of the local one, 4" },
		{ 0, 4, 0, "TP size is 0 here" }, { 4, -1, 0, "-1 on the other side" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		int64_t ratio = 0;

		assert_int_equal(kvt_tp_ratio(&ratio, rows[i].local, rows[i].remote,
					      &why),
				 rows[i].ratio ? KVT_OK : KVT_BAD_INPUT);
		assert_int_equal(ratio, rows[i].ratio);
		assert_non_null(strstr(why.text, rows[i].says));
	}
}

static void test_block_ratio(void)
{
	static const int64_t rows[][3] = {
		{ 16, 4, 4 }, { 16, 16, 1 }, { 16, 32, 0 }, { 24, 16, 0 }, { 16, 0, 0 },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		int64_t ratio = 0;

		assert_int_equal(kvt_block_size_ratio(&ratio, rows[i][0], rows[i][1],
						      NULL),
				 rows[i][2] ? KVT_OK : KVT_BAD_INPUT);
		assert_int_equal(ratio, rows[i][2]);
	}
}

static void test_target_ranks(void)
{
	static const struct {
		int64_t local, remote, rank, begin, end;
	} rows[] = {
		{ 4, 4, 3, 3, 4 }, { 8, 2, 3, 0, 1 }, { 8, 2, 4, 1, 2 },
		{ 8, 2, 7, 1, 2 }, { 2, 8, 0, 0, 4 }, { 2, 8, 1, 4, 8 },
		{ 1, 3, 0, 0, 3 },
	};
	struct kvt_range got;

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_rank rank = { rows[i].local, rows[i].rank };

		assert_false(kvt_target_ranks(&got, rank, rows[i].remote, NULL));
		assert_int_equal(got.begin, rows[i].begin);
		assert_int_equal(got.end, rows[i].end);
	}
	assert_int_equal(kvt_target_ranks(&got, (struct kvt_rank){ 4, 0 }, 6, NULL),
			 KVT_BAD_INPUT);
	assert_int_equal(kvt_target_ranks(&got, (struct kvt_rank){ 4, 4 }, 4, NULL),
			 KVT_BAD_INPUT);
}

/* ---- predicates ---------------------------------------------------------- */

struct layout_case {
	const char *what, *layout;
	struct kvt_shape shape;
	bool blocks_first, splits;
};

#define SHAPE { { 3, 5, 16, 4, 2, 64 }, 2 }
static struct layout_case layouts[] = {
	{ "kv-first-nhd", "kv-first-nhd", SHAPE, false, true },
	{ "kv-first-hnd", "kv-first-hnd", SHAPE, false, true },
	{ "blocks-first-nhd", "blocks-first-nhd", SHAPE, true, false },
	{ "blocks-first-hnd", "blocks-first-hnd", SHAPE, true, false },
	{ "packed nhd, which a mock of 4 dimensions hides", "nhd", SHAPE, true, false },
	{ "packed hnd", "hnd", SHAPE, true, false },
	{ "rocm-paged", "rocm-paged", SHAPE, false, true },
	{ "rocm-paged-page", "rocm-paged-page", SHAPE, true, false },
	{ "cpu, halves of a head", "head-halves", SHAPE, true, false },
	{ "cross-layer, blocks outermost", "BHLSC", SHAPE, true, false },
	{ "heads before blocks", "LHBSC", SHAPE, false, false },
	{ "heads before blocks, but one head", "LHBSC",
	  { { 3, 5, 16, 1, 2, 64 }, 2 }, true, false },
	{ "keys and values in own buffers", "K:LBSHD V:LBSHD", SHAPE, false, true },
	{ "a latent", "LBSC", { { 3, 5, 64, 1, 1, 576 }, 2 }, true, false },
	{ "a latent in an order with K", "kv-first-nhd",
	  { { 3, 5, 64, 1, 1, 576 }, 2 }, true, false },
	{ "one block", "kv-first-nhd", { { 3, 1, 16, 4, 2, 64 }, 2 }, false, true },
};

static void test_layout(void **state)
{
	const struct layout_case *c = *state;
	struct kvt_layout layout;

	ok(kvt_layout_parse(&layout, c->layout, &why));
	assert_int_equal(kvt_blocks_first(&layout, &c->shape), c->blocks_first);
	assert_int_equal(kvt_splits_k_and_v(&layout, &c->shape), c->splits);
}

/* ---- received blocks ----------------------------------------------------- */

static void run(unsigned char *dst, const unsigned char *src,
		enum kvt_receive which, const struct kvt_receive_block *block, bool back)
{
	struct kvt_plan plan;
	struct kvt_plan_walk walk;

	ok(kvt_receive_plan(&plan, which, block, back, &why));
	for (kvt_plan_walk_start(&walk, &plan); !walk.done; kvt_plan_walk_next(&walk))
		memcpy(dst + walk.dst, src + walk.src, (size_t)plan.run);
}

/* 2 heads, 4 slots, 2 small blocks: what the destination reads. */
static void test_receive_golden(void)
{
	static const unsigned char want[KVT_NRECEIVES][8] = {
		{ 0, 4, 1, 5, 2, 6, 3, 7 }, { 0, 1, 4, 5, 2, 3, 6, 7 },
		{ 0, 2, 1, 3, 4, 6, 5, 7 },
	};
	static const unsigned char units[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct kvt_receive_block block = { 2, 4, 1, 2 };

	for (int which = 0; which < KVT_NRECEIVES; which++) {
		unsigned char got[8], back[8];

		run(got, units, which, &block, false);
		assert_memory_equal(got, want[which], 8);
		run(back, got, which, &block, true);
		assert_memory_equal(back, units, 8);
		assert_non_null(strstr(kvt_receive_name(which), "kv_postprocess_"));
	}
}

/* The index rules, unit by unit, with content of several bytes. */
static void test_receive_all(void)
{
	unsigned char src[6 * 24 * 3], got[sizeof(src)];

	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (unsigned char)(i * 151 ^ i >> 3);
	for (int heads = 1; heads <= 6; heads++)
	for (int slots = 1; slots <= 24; slots++)
	for (int ratio = 1; ratio <= slots; ratio++) {
		struct kvt_receive_block block = { heads, slots, 3, ratio };
		int small = slots / ratio;

		if (slots % ratio)
			continue;
		for (int which = 0; which < KVT_NRECEIVES; which++) {
			run(got, src, which, &block, false);
			for (int h = 0; h < heads; h++)
			for (int s = 0; s < slots; s++) {
				int from = s / small * heads * small + h * small +
					   s % small;
				int to = s * heads + h;

				if (which == KVT_RECEIVE_LAYOUT)
					from = h * slots + s;
				if (which == KVT_RECEIVE_BLOCKS)
					to = h * slots + s;
				assert_memory_equal(got + 3 * to, src + 3 * from, 3);
			}
		}
	}
}

static void test_receive_refused(void)
{
	static const struct kvt_receive_block rows[] = {
		{ 0, 4, 1, 2 }, { 2, 0, 1, 2 }, { 2, 4, 0, 2 }, { 2, 4, 1, 0 },
		{ 2, 4, 1, 3 }, { 2, 4, INT64_MAX / 4, 2 },
	};
	struct kvt_plan plan;

	for (size_t i = 0; i < LENGTH(rows); i++)
		assert_int_equal(kvt_receive_plan(&plan, KVT_RECEIVE_BOTH, &rows[i],
						  false, NULL), KVT_BAD_INPUT);
	/* the layout alone asks for no ratio */
	ok(kvt_receive_plan(&plan, KVT_RECEIVE_LAYOUT, &rows[3], false, NULL));
}

/* ---- copying blocks ------------------------------------------------------ */

static void test_copy(void)
{
	static const uint32_t ids[] = { 3, 1, 2, 3, 9 };
	static const struct {
		struct kvt_block_table src, dst;
		const char *says;		/* "": accepted */
	} rows[] = {
		{ { ids, 3, 1, 8, 0 }, { ids + 1, 3, 1, 8, 0 }, "" },
		{ { ids, 4, 1, 8, 0 }, { ids, 4, 1, 8, 0 }, "block id 3 is listed "
							    "twice" },
		{ { ids, 3, 1, 8, 0 }, { ids, 2, 1, 8, 0 },
		  "3 source blocks and 2 destination blocks cannot be copied" },
		{ { ids, 0, 1, 8, 0 }, { ids, 0, 1, 8, 0 },
		  "0 source blocks and 0 destination blocks cannot be copied" },
		{ { ids, 3, 1, 3, 0 }, { ids, 3, 1, 8, 0 },
		  "source block id 3 is outside the pool of 3" },
		{ { ids, 1, 1, 8, 0 }, { ids + 4, 1, 1, 8, 0 },
		  "block id 9 is outside the pool of 8" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		uint8_t seen[1] = { 0 };

		assert_int_equal(kvt_copy_blocks_check(&rows[i].src, &rows[i].dst, seen,
						       &why),
				 *rows[i].says ? KVT_BAD_INPUT : KVT_OK);
		assert_string_equal(why.text, rows[i].says);
	}
}

TESTS("connector",
	EACH(layouts, test_layout),
	NAMED(test_tp_ratio, "tp_ratio"),
	NAMED(test_block_ratio, "block_size_ratio"),
	NAMED(test_target_ranks, "remote ranks of a local one"),
	NAMED(test_receive_golden, "received blocks as vLLM rearranges them"),
	NAMED(test_receive_all, "received blocks, unit by unit"),
	NAMED(test_receive_refused, "blocks that do not divide"),
	NAMED(test_copy, "lists that vLLM would silently ignore"))
