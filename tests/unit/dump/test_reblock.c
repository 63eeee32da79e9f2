/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reblock.c - blocks of another size: tables by hand, slots one by one
 *
 * Where a slot of the old pool stands in the new one is written out for each case, as
 * the old block of each of its positions; the rest reads as zero.
 */
#include "tests/unit/dump/places.h"
#include "tests/unit/random.h"

#define NONE 255		/* no slot of the old pool stands here */

/* A pool of one group of blocks of 'size' tokens. */
static struct kvt_group *describe(struct kvt_snapshot *s, int64_t blocks, int64_t size)
{
	const int64_t n[] = { 2, blocks, size, 2, 2, 2 };

	kvt_snapshot_init(s);
	return new_group(s, "g0", KVT_FULL_ATTENTION, "LBKSHD", n);
}

static struct kvt_dump *reblock(struct kvt_reblocked *said, const struct kvt_dump *dump,
				const struct kvt_reblock_options *options)
{
	struct kvt_reblocked all[KVT_MAX_GROUPS];
	struct kvt_dump *out = NULL;

	ok(kvt_dump_reblock(&out, all, dump, options, &why));
	*said = all[0];
	return out;
}

static void refused(const struct kvt_dump *dump,
		    const struct kvt_reblock_options *options,
		    enum kvt_status status, const char *part)
{
	struct kvt_reblocked all[KVT_MAX_GROUPS];
	struct kvt_dump *out = NULL;

	expect(kvt_dump_reblock(&out, all, dump, options, &why), status, part);
	assert_null(out);
}

/* rows[]: of each slot here, block * old size + slot there; or NONE. */
static void check_rows(const struct kvt_dump *dump, const struct kvt_dump *old,
		       const uint8_t *rows)
{
	const struct kvt_group *here = kvt_dump_group(dump, 0);
	const struct kvt_group *there = kvt_dump_group(old, 0);
	struct kvt_box all = kvt_box_whole(&here->shape);
	uint32_t *numbers = read_numbers(dump, 0), *at = numbers;
	int64_t i[KVT_NAXES] = { 0 }, size = there->shape.n[NS];

	do {
		int64_t row = rows[i[NB] * here->shape.n[NS] + i[NS]], j[KVT_NAXES];

		memcpy(j, i, sizeof(j));
		j[NB] = row / size;
		j[NS] = row % size;
		expect_number(*at++, row == NONE ? 0 : number_of(there, 0, j), i);
	} while (next_index(i, &all));
	free(numbers);
}

/* ---- a pool that stays where it is -------------------------------------- */

/* Blocks 0 to 2 of 4 become 0 to 5 of 2; the fifth token is the last. */
static void test_smaller(void)
{
	static const uint8_t rows[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
	const struct kvt_reblock_options options = { .block_size = 2 };
	struct kvt_reblocked said;
	struct placed_dump pool;
	struct kvt_dump *out;
	struct kvt_snapshot s;

	number_blocks(describe(&s, 3, 4), (const uint64_t[]){ 7, 3, 9 });
	add_request(&s, "a", 5, 2, (const uint32_t[]){ 2, 0 });
	pool = number_dump(&s, 0);
	out = reblock(&said, pool.dump, &options);
	assert_int_equal(said.how, KVT_REGROUPED);
	assert_int_equal(said.size_before, 4);
	assert_int_equal(said.blocks_before, 3);
	assert_int_equal(said.blocks_after, 6);
	assert_int_equal(said.stale, 3 + 4);		/* of block 0, and all of 1 */
	assert_int_equal(said.stale_kept, 7);
	assert_int_equal(kvt_dump_group(out, 0)->block_size, 2);
	expect_blocks(kvt_dump_group(out, 0), 6,
		      (const uint64_t[]){ 14, 15, 6, 7, 18, 19 });
	expect_table(out, 0, 0, 3, (const uint32_t[]){ 4, 5, 0 });
	expect_tokens(out, 0, "a", 0, 5);
	check_rows(out, pool.dump, rows);
	kvt_dump_close(out);
	drop_dump(&pool);
}

static void test_larger(void)
{
	static const uint8_t rows[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
	const struct kvt_reblock_options options = { .block_size = 4 };
	struct kvt_reblocked said;
	struct placed_dump pool;
	struct kvt_dump *out;
	struct kvt_snapshot s;

	number_blocks(describe(&s, 6, 2), (const uint64_t[]){ 6, 7, 2, 3, 10, 11 });
	add_request(&s, "a", 5, 4, (const uint32_t[]){ 4, 5, 0, 1 });
	add_request(&s, "b", 1, 1, (const uint32_t[]){ 2 });
	pool = number_dump(&s, 0);
	out = reblock(&said, pool.dump, &options);
	assert_int_equal(said.how, KVT_REGROUPED);
	expect_blocks(kvt_dump_group(out, 0), 3, (const uint64_t[]){ 3, 1, 5 });
	expect_table(out, 0, 0, 2, (const uint32_t[]){ 2, 0 });
	expect_table(out, 1, 0, 1, (const uint32_t[]){ 1 });
	check_rows(out, pool.dump, rows);
	kvt_dump_close(out);
	drop_dump(&pool);
}

/* What holds no token is zero, if that is wanted; the null block is as it was. */
static void test_zero(void)
{
	static const uint8_t rows[] = {
		0, NONE, NONE, NONE, 4, 5, 6, 7, NONE, NONE, NONE, NONE, 12, 13, 14, 15,
	};
	const struct kvt_reblock_options options = {
		.block_size = 2, .stale = KVT_STALE_ZERO,
	}, same = { .block_size = 4, .stale = KVT_STALE_ZERO };
	struct kvt_reblocked said;
	struct placed_dump pool;
	struct kvt_dump *out;
	struct kvt_snapshot s;

	describe(&s, 4, 4);
	s.null_block = 3;
	add_request(&s, "a", 5, 2, (const uint32_t[]){ 1, 0 });
	pool = number_dump(&s, 0);
	out = reblock(&said, pool.dump, &options);
	assert_int_equal(said.stale, 3 + 4);
	assert_int_equal(said.stale_kept, 0);
	assert_int_equal(kvt_null_block(kvt_dump_snapshot(out), 0), 6);
	expect_table(out, 0, 0, 3, (const uint32_t[]){ 2, 3, 0 });
	check_rows(out, pool.dump, rows);
	kvt_dump_close(out);
	out = reblock(&said, pool.dump, &same);
	expect_table(out, 0, 0, 2, (const uint32_t[]){ 1, 0 });
	check_rows(out, pool.dump, rows);
	kvt_dump_close(out);
	drop_dump(&pool);
}

/* Half of the null block is none; entries of it are its first half. */
static void test_null_is_cut(void)
{
	const struct kvt_reblock_options options = { .block_size = 2 };
	struct kvt_reblocked said;
	struct placed_dump pool;
	struct kvt_dump *out;
	struct kvt_snapshot s;

	describe(&s, 4, 4)->window = 4;
	s.group[0].kind = KVT_SLIDING_WINDOW;
	s.null_block = 1;
	add_request(&s, "a", 12, 3, (const uint32_t[]){ 1, 2, 3 });
	pool = number_dump(&s, 0);
	out = reblock(&said, pool.dump, &options);
	assert_int_equal(kvt_null_block(kvt_dump_snapshot(out), 0), 2);
	expect_table(out, 0, 0, 6, (const uint32_t[]){ 2, 2, 4, 5, 6, 7 });
	kvt_dump_close(out);
	drop_dump(&pool);
}

/* ---- gathered ----------------------------------------------------------- */

/* Neither of 3 and 2 divides the other: b shares the slots that a has, and has more. */
static void test_gathered(void)
{
	static const uint8_t rows[] = { 6, 7, 8, 0, 8, 9, 10, NONE };
	const struct kvt_reblock_options options = { .block_size = 2 };
	struct kvt_reblocked said;
	struct placed_dump pool;
	struct kvt_dump *out;
	struct kvt_snapshot s;

	describe(&s, 5, 3);
	add_request(&s, "a", 4, 2, (const uint32_t[]){ 2, 0 });
	add_request(&s, "b", 5, 2, (const uint32_t[]){ 2, 3 });
	pool = number_dump(&s, 0);
	out = reblock(&said, pool.dump, &options);
	assert_int_equal(said.how, KVT_GATHERED);
	assert_non_null(strstr(said.why.text, "neither of 3 and 2 divides the other"));
	assert_int_equal(said.blocks_after, 4);
	assert_int_equal(said.dropped, 2);		/* 1 and 4 */
	assert_int_equal(said.copied, 1);		/* the third slot of block 2 */
	assert_int_equal(said.stale, 2 + 1 + 6);
	assert_int_equal(said.stale_kept, 0);
	expect_table(out, 0, 0, 2, (const uint32_t[]){ 0, 1 });
	expect_table(out, 1, 0, 3, (const uint32_t[]){ 0, 2, 3 });
	assert_null(kvt_dump_group(out, 0)->block_ids);
	check_rows(out, pool.dump, rows);
	kvt_dump_close(out);
	drop_dump(&pool);
}

/* To larger blocks: what stands after the last token comes along, if that is wanted. */
static void test_gathered_larger(void)
{
	static const uint8_t zero[] = {
		3, 4, 5, 0, 3, 4, 5, 9, 10, NONE, NONE, NONE,
	};
	static const uint8_t keep[] = {
		3, 4, 5, 0, 3, 4, 5, 9, 10, 11, NONE, NONE,
	};
	struct kvt_reblock_options options = { .block_size = 4 };
	struct kvt_reblocked said;
	struct placed_dump pool;
	struct kvt_dump *out;
	struct kvt_snapshot s;

	describe(&s, 4, 3);
	add_request(&s, "a", 4, 2, (const uint32_t[]){ 1, 0 });
	add_request(&s, "b", 5, 2, (const uint32_t[]){ 1, 3 });
	pool = number_dump(&s, 0);
	out = reblock(&said, pool.dump, &options);
	expect_table(out, 0, 0, 1, (const uint32_t[]){ 0 });
	expect_table(out, 1, 0, 2, (const uint32_t[]){ 1, 2 });
	check_rows(out, pool.dump, zero);
	kvt_dump_close(out);
	options.stale = KVT_STALE_KEEP;
	out = reblock(&said, pool.dump, &options);
	assert_int_equal(said.stale_kept, 1);
	check_rows(out, pool.dump, keep);
	kvt_dump_close(out);
	drop_dump(&pool);
}

/* Blocks of the same size, one after the other, and none that nobody uses. */
static void test_compact(void)
{
	static const uint8_t rows[] = { 4, 5, 0, 1, 8, 9 };
	const struct kvt_reblock_options options = { .block_size = 2, .compact = true };
	struct kvt_reblocked said;
	struct placed_dump pool;
	struct kvt_dump *out;
	struct kvt_snapshot s;

	describe(&s, 5, 2);
	add_request(&s, "a", 4, 2, (const uint32_t[]){ 2, 0 });
	add_request(&s, "b", 4, 2, (const uint32_t[]){ 2, 4 });
	pool = number_dump(&s, 0);
	out = reblock(&said, pool.dump, &options);
	assert_int_equal(said.how, KVT_GATHERED);
	assert_int_equal(said.dropped, 2);
	assert_int_equal(said.copied, 0);
	expect_table(out, 0, 0, 2, (const uint32_t[]){ 0, 1 });
	expect_table(out, 1, 0, 2, (const uint32_t[]){ 0, 2 });
	check_rows(out, pool.dump, rows);
	kvt_dump_close(out);
	drop_dump(&pool);
}

/* The null block is the first one then, and blocks of nothing else are it. */
static void test_gathered_null(void)
{
	static const uint8_t rows[] = { 3, 4, 5, 6, 7, NONE };
	const struct kvt_reblock_options options = { .block_size = 3, .compact = true };
	struct kvt_reblocked said;
	struct placed_dump pool;
	struct kvt_dump *out;
	struct kvt_snapshot s;

	describe(&s, 4, 3)->window = 2;
	s.group[0].kind = KVT_SLIDING_WINDOW;
	s.null_block = 1;
	add_request(&s, "a", 5, 2, (const uint32_t[]){ 1, 2 });
	pool = number_dump(&s, 0);
	out = reblock(&said, pool.dump, &options);
	assert_int_equal(kvt_null_block(kvt_dump_snapshot(out), 0), 0);
	expect_table(out, 0, 0, 2, (const uint32_t[]){ 0, 1 });
	check_rows(out, pool.dump, rows);
	kvt_dump_close(out);
	drop_dump(&pool);
}

/* ---- random pools ------------------------------------------------------------ */

/* Tables that begin alike and part somewhere; no block twice in one. */
static void random_tables(struct kvt_snapshot *s, int64_t blocks, int64_t size)
{
	uint32_t table[4][12];
	int64_t n[4];

	for (int r = 0; r < 4; r++) {
		int64_t same = r ? below(n[r - 1] + 1) : 0;
		bool used[12] = { false };

		n[r] = 1 + below(blocks);
		for (int64_t i = 0; i < n[r]; i++) {
			table[r][i] = i < same ? table[r - 1][i] :
				      (uint32_t)below(blocks);
			while (used[table[r][i]])
				table[r][i] = (uint32_t)((table[r][i] + 1) % blocks);
			used[table[r][i]] = true;
		}
		add_request(s, (char[]){ (char)('a' + r), '\0' },
			    (n[r] - 1) * size + 1 + below(size), (int)n[r], table[r]);
	}
}

/*
 * Each token of each request is read where the new tables say, and what no token of a
 * request is in reads as zero.
 */
static void check_tokens(const struct kvt_dump *dump, const struct kvt_dump *old)
{
	const struct kvt_snapshot *from = kvt_dump_snapshot(old);
	const struct kvt_snapshot *to = kvt_dump_snapshot(dump);
	int64_t size = from->group[0].shape.n[NS], slots = to->group[0].shape.n[NS];
	int64_t nblocks = to->group[0].shape.n[NB];
	uint8_t *rows = malloc((size_t)(nblocks * slots));

	memset(rows, NONE, (size_t)(nblocks * slots));
	for (int64_t r = 0; r < from->nrequests; r++) {
		const struct kvt_request *a = &from->request[r], *b = &to->request[r];

		assert_int_equal(b->ntokens, a->ntokens);
		assert_int_equal(b->nblocks[0], (a->ntokens + slots - 1) / slots);
		for (int64_t t = 0; t < a->ntokens; t++) {
			int64_t row = b->blocks[0][t / slots] * slots + t % slots;
			int64_t block = a->blocks[0][t / size];
			uint8_t want = (uint8_t)(block * size + t % size);

			assert_true(rows[row] == NONE || rows[row] == want);
			rows[row] = want;
		}
	}
	check_rows(dump, old, rows);
	free(rows);
}

static void test_random(void)
{
	for (int round = 0; round < 400; round++) {
		struct kvt_reblock_options options = { .compact = true };
		struct kvt_reblocked said;
		int64_t blocks, size;
		struct placed_dump pool;
		struct kvt_dump *out;
		struct kvt_snapshot s;

		seed = (uint64_t)round;
		blocks = 1 + below(12);
		size = 1 + below(6);
		options.block_size = 1 + below(9);
		describe(&s, blocks, size);
		random_tables(&s, blocks, size);
		pool = number_dump(&s, 0);
		out = reblock(&said, pool.dump, &options);
		check_tokens(out, pool.dump);
		kvt_dump_close(out);
		drop_dump(&pool);
	}
}

/* ---- there and back ----------------------------------------------------- */

static void test_there_and_back(void)
{
	static const int64_t sizes[] = { 1, 2, 4, 8 };
	struct kvt_reblocked said;
	struct placed_dump pool;
	struct kvt_snapshot s;

	describe(&s, 6, 8);
	add_request(&s, "a", 19, 3, (const uint32_t[]){ 4, 0, 5 });
	add_request(&s, "b", 16, 2, (const uint32_t[]){ 4, 1 });
	pool = number_dump(&s, 0);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		const struct kvt_reblock_options there = { .block_size = sizes[i] };
		const struct kvt_reblock_options back = { .block_size = 8 };
		struct kvt_dump *small = reblock(&said, pool.dump, &there), *out;

		assert_int_equal(kvt_dump_snapshot(small)->request[0].nblocks[0],
				 (19 + sizes[i] - 1) / sizes[i]);
		out = reblock(&said, small, &back);
		kvt_dump_close(small);
		assert_int_equal(said.how, sizes[i] == 8 ? KVT_KEPT : KVT_REGROUPED);
		expect_table(out, 0, 0, 3, (const uint32_t[]){ 4, 0, 5 });
		expect_table(out, 1, 0, 2, (const uint32_t[]){ 4, 1 });
		assert_int_equal(kvt_dump_group(out, 0)->block_size, 8);
		check_places(out, 0);
		kvt_dump_close(out);
	}
	drop_dump(&pool);
}

/* ---- refusals ----------------------------------------------------------- */

static void test_without_tables(void)
{
	const struct kvt_reblock_options larger = { .block_size = 3 };
	const struct kvt_reblock_options zero = { .block_size = 1,
						  .stale = KVT_STALE_ZERO };
	const struct kvt_reblock_options compact = { .block_size = 2, .compact = true };
	struct placed_dump pool;
	struct kvt_snapshot s;

	describe(&s, 3, 2);
	pool = number_dump(&s, 0);
	refused(pool.dump, &larger, KVT_BAD_INPUT,
		"blocks of 2 can become blocks of 3 only with block tables");
	refused(pool.dump, &zero, KVT_BAD_INPUT, "no request has a block table");
	refused(pool.dump, &compact, KVT_BAD_INPUT, "no request has a block table");
	drop_dump(&pool);
}

/* The end of a table that a window has left begins inside a block of three. */
static void test_windows(void)
{
	const struct kvt_reblock_options options = { .block_size = 3 };
	const struct kvt_reblock_options smaller = { .block_size = 1 };
	struct kvt_reblocked said;
	struct placed_dump pool;
	struct kvt_snapshot s;

	describe(&s, 4, 2)->window = 3;
	s.group[0].kind = KVT_SLIDING_WINDOW;
	add_request(&s, "w", 7, 3, (const uint32_t[]){ 3, 0, 2 });
	pool = number_dump(&s, 0);
	refused(pool.dump, &options, KVT_BAD_INPUT,
		"the table of request w has only 3 of its 4 blocks");
	kvt_dump_close(reblock(&said, pool.dump, &smaller));
	assert_int_equal(said.how, KVT_REGROUPED);
	drop_dump(&pool);
}

static void test_twice(void)
{
	const struct kvt_reblock_options options = { .block_size = 1 };
	struct placed_dump pool;
	struct kvt_snapshot s;

	number_blocks(describe(&s, 3, 2), (const uint64_t[]){ 4, 5, 6 });
	add_request(&s, "a", 4, 2, (const uint32_t[]){ 1, 1 });
	pool = number_dump(&s, 0);
	refused(pool.dump, &options, KVT_BAD_INPUT,
		"request a: block 5 of g0 is listed twice in its table");
	drop_dump(&pool);
}

static void test_not_from_zero(void)
{
	const struct kvt_reblock_options options = { .block_size = 1 };
	struct placed_dump pool;
	struct kvt_snapshot s;

	describe(&s, 3, 2);
	add_request(&s, "a", 3, 2, (const uint32_t[]){ 1, 2 });
	s.request[0].first_token = 2;
	pool = number_dump(&s, 0);
	refused(pool.dump, &options, KVT_UNSUPPORTED, "request 'a' begins at token 2");
	drop_dump(&pool);
}

static void test_other_refusals(void)
{
	const struct kvt_reblock_options options = { .block_size = 3 };
	static const int64_t ssm[] = { 1, 2, 1, 2, 1, 2 };
	struct placed_dump pool;
	struct kvt_snapshot s;

	kvt_snapshot_init(&s);
	new_group(&s, "ssm", KVT_MAMBA_SSM, "ssm", ssm);
	pool = number_dump(&s, 0);
	refused(pool.dump, &options, KVT_BAD_INPUT, "no group has blocks of tokens");
	drop_dump(&pool);

	describe(&s, 2, 2);
	s.group[0].tokens_per_slot = 2;
	s.group[0].block_size = 4;
	pool = number_dump(&s, 0);
	refused(pool.dump, &options, KVT_BAD_INPUT,
		"blocks of 3 tokens cannot hold slots of 2 tokens");
	drop_dump(&pool);
}

/* A layout that splits slots four by four holds no blocks of two. */
static void test_layout(void)
{
	struct kvt_reblock_options options = { .block_size = 2 };
	struct kvt_reblocked said;
	struct placed_dump pool;
	struct kvt_layout other;
	struct kvt_dump *out;
	struct kvt_snapshot s;

	describe(&s, 2, 4);
	ok(kvt_layout_parse(&s.group[0].layout, "L B K H S/4 D S%4", NULL));
	pool = number_dump(&s, 0);
	refused(pool.dump, &options, KVT_UNSUPPORTED, "cannot hold blocks of 2 slots");
	ok(kvt_layout_parse(&other, "BLKSHD", NULL));
	options.layout = &other;
	out = reblock(&said, pool.dump, &options);
	assert_true(kvt_layout_equal(&kvt_dump_group(out, 0)->layout, &other));
	check_rows(out, pool.dump, (const uint8_t[]){ 0, 1, 2, 3, 4, 5, 6, 7 });
	kvt_dump_close(out);
	drop_dump(&pool);
}

TESTS("reblock",
	TEST(test_smaller),
	TEST(test_larger),
	TEST(test_zero),
	TEST(test_null_is_cut),
	TEST(test_gathered),
	TEST(test_gathered_larger),
	TEST(test_compact),
	TEST(test_gathered_null),
	TEST(test_random),
	TEST(test_there_and_back),
	TEST(test_without_tables),
	TEST(test_windows),
	TEST(test_twice),
	TEST(test_not_from_zero),
	TEST(test_other_refusals),
	TEST(test_layout))
