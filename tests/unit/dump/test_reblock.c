/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reblock.c - blocks of another size: tables by hand, slots one by one
 *
 * Where a slot of the old pool stands in the new one is written out for each case, as
 * the old block of each of its positions; the rest reads as zero.
 */
#include "tests/unit/fixture.h"
#include "tests/unit/random.h"

#define NONE 255		/* no slot of the old pool stands here */

/* A pool of one group of blocks of 'size' tokens. */
static struct kvt_snapshot *describe(int64_t blocks, int64_t size)
{
	const int64_t n[] = { 2, blocks, size, 2, 2, 2 };

	return snapshot_of("LBKSHD", n);
}

static struct kvt_dump *reblock(struct kvt_reblocked *said, const struct kvt_dump *dump,
				const struct kvt_reblock_options *options)
{
	struct kvt_reblocked all[KVT_MAX_GROUPS];
	struct kvt_dump *out = NULL;

	ok(kvt_dump_reblock(&out, all, dump, options, &why));
	*said = all[0];
	return keep_dump(out);
}

static void refused(const struct kvt_snapshot *pool, enum kvt_status status,
		    const char *part, const struct kvt_reblock_options *options)
{
	struct kvt_reblocked all[KVT_MAX_GROUPS];
	struct kvt_dump *out = NULL;

	expect(kvt_dump_reblock(&out, all, number_dump(pool, 0), options, &why), status,
	       part);
	assert_null(out);
}

#define REFUSED(pool, status, part, ...)						\
	refused(pool, status, part, &(struct kvt_reblock_options){ __VA_ARGS__ })

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
}

/* ---- by hand ------------------------------------------------------------ */

struct table {
	int64_t ntokens;
	int n;
	uint32_t block[6];
};

static struct by_hand {
	const char *what;
	int64_t blocks, size, window;		/* of the pool */
	uint64_t ids[6];			/* if the first is any */
	bool has_null;
	int64_t null, null_after;
	struct table request[2], after[2];
	struct kvt_reblock_options options;
	enum kvt_reblock_how how;
	int64_t blocks_after, stale, stale_kept, dropped, copied;
	uint8_t rows[16];
} by_hand[] = {
	/* a pool that stays where it is: of block 0 three slots are stale, all of 1 */
	{ "blocks 0 to 2 of 4 become 0 to 5 of 2", 3, 4, .ids = { 7, 3, 9 },
	  .request = { { 5, 2, { 2, 0 } } }, .after = { { 5, 3, { 4, 5, 0 } } },
	  .options = { .block_size = 2 }, .how = KVT_REGROUPED,
	  .blocks_after = 6, .stale = 3 + 4, .stale_kept = 7,
	  .rows = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 } },
	{ "blocks 0 to 5 of 2 become 0 to 2 of 4", 6, 2, .ids = { 6, 7, 2, 3, 10, 11 },
	  .request = { { 5, 4, { 4, 5, 0, 1 } }, { 1, 1, { 2 } } },
	  .after = { { 5, 2, { 2, 0 } }, { 1, 1, { 1 } } },
	  .options = { .block_size = 4 }, .how = KVT_REGROUPED,
	  .blocks_after = 3, .stale = 6, .stale_kept = 6,
	  .rows = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 } },
	{ "what holds no token is zero, if that is wanted", 4, 4,
	  .has_null = true, .null = 3, .null_after = 6,
	  .request = { { 5, 2, { 1, 0 } } }, .after = { { 5, 3, { 2, 3, 0 } } },
	  .options = { .block_size = 2, .stale = KVT_STALE_ZERO }, .how = KVT_REGROUPED,
	  .blocks_after = 8, .stale = 3 + 4,
	  .rows = { 0, NONE, NONE, NONE, 4, 5, 6, 7, NONE, NONE, NONE, NONE, 12, 13, 14,
		    15 } },
	{ "in blocks of the same size, too", 4, 4,
	  .has_null = true, .null = 3, .null_after = 3,
	  .request = { { 5, 2, { 1, 0 } } }, .after = { { 5, 2, { 1, 0 } } },
	  .options = { .block_size = 4, .stale = KVT_STALE_ZERO }, .how = KVT_REGROUPED,
	  .blocks_after = 4, .stale = 3 + 4,
	  .rows = { 0, NONE, NONE, NONE, 4, 5, 6, 7, NONE, NONE, NONE, NONE, 12, 13, 14,
		    15 } },
	{ "half of the null block is none; entries of it are its first half", 4, 4, 4,
	  .has_null = true, .null = 1, .null_after = 2,
	  .request = { { 12, 3, { 1, 2, 3 } } },
	  .after = { { 12, 6, { 2, 2, 4, 5, 6, 7 } } },
	  .options = { .block_size = 2 }, .how = KVT_REGROUPED,
	  .blocks_after = 8, .stale = 4, .stale_kept = 4,
	  .rows = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 } },
	/* gathered: 1 and 4 are dropped, the third slot of block 2 is copied */
	{ "neither divides the other: b shares the slots that a has", 5, 3,
	  .request = { { 4, 2, { 2, 0 } }, { 5, 2, { 2, 3 } } },
	  .after = { { 4, 2, { 0, 1 } }, { 5, 3, { 0, 2, 3 } } },
	  .options = { .block_size = 2 }, .how = KVT_GATHERED,
	  .blocks_after = 4, .stale = 2 + 1 + 6, .dropped = 2, .copied = 1,
	  .rows = { 6, 7, 8, 0, 8, 9, 10, NONE } },
	{ "to larger blocks", 4, 3,
	  .request = { { 4, 2, { 1, 0 } }, { 5, 2, { 1, 3 } } },
	  .after = { { 4, 1, { 0 } }, { 5, 2, { 1, 2 } } },
	  .options = { .block_size = 4 }, .how = KVT_GATHERED,
	  .blocks_after = 3, .stale = 2 + 3 + 1, .dropped = 1, .copied = 3,
	  .rows = { 3, 4, 5, 0, 3, 4, 5, 9, 10, NONE, NONE, NONE } },
	{ "what stands after the last token comes along, if that is wanted", 4, 3,
	  .request = { { 4, 2, { 1, 0 } }, { 5, 2, { 1, 3 } } },
	  .after = { { 4, 1, { 0 } }, { 5, 2, { 1, 2 } } },
	  .options = { .block_size = 4, .stale = KVT_STALE_KEEP }, .how = KVT_GATHERED,
	  .blocks_after = 3, .stale = 2 + 3 + 1, .stale_kept = 1, .dropped = 1,
	  .copied = 3, .rows = { 3, 4, 5, 0, 3, 4, 5, 9, 10, 11, NONE, NONE } },
	{ "of the same size, and none that nobody uses", 5, 2,
	  .request = { { 4, 2, { 2, 0 } }, { 4, 2, { 2, 4 } } },
	  .after = { { 4, 2, { 0, 1 } }, { 4, 2, { 0, 2 } } },
	  .options = { .block_size = 2, .compact = true }, .how = KVT_GATHERED,
	  .blocks_after = 3, .stale = 4, .dropped = 2, .rows = { 4, 5, 0, 1, 8, 9 } },
	{ "the null block is the first one then", 4, 3, 2,
	  .has_null = true, .null = 1, .null_after = 0,
	  .request = { { 5, 2, { 1, 2 } } }, .after = { { 5, 2, { 0, 1 } } },
	  .options = { .block_size = 3, .compact = true }, .how = KVT_GATHERED,
	  .blocks_after = 2, .stale = 1 + 6, .dropped = 2,
	  .rows = { 3, 4, 5, 6, 7, NONE } },
};

static void test_by_hand(void **state)
{
	const struct by_hand *c = *state;
	struct kvt_snapshot *s = describe(c->blocks, c->size);
	const struct kvt_group *g;
	struct kvt_reblocked said;
	struct kvt_dump *pool, *out;

	if ((s->group[0].window = c->window))
		s->group[0].kind = KVT_SLIDING_WINDOW;
	if (c->ids[0])
		number_blocks(&s->group[0], c->ids);
	if (c->has_null)
		s->null_block = c->null;
	for (int r = 0; r < 2 && c->request[r].n; r++)
		add_request(s, r ? "b" : "a", c->request[r].ntokens, c->request[r].n,
			    c->request[r].block);
	pool = number_dump(s, 0);
	out = reblock(&said, pool, &c->options);
	g = kvt_dump_group(out, 0);
	assert_int_equal(said.how, c->how);
	assert_int_equal(said.size_before, c->size);
	assert_int_equal(said.blocks_before, c->blocks);
	assert_int_equal(said.blocks_after, c->blocks_after);
	assert_int_equal(said.stale, c->stale);
	assert_int_equal(said.stale_kept, c->stale_kept);
	assert_int_equal(said.dropped, c->dropped);
	assert_int_equal(said.copied, c->copied);
	assert_int_equal(g->block_size, c->options.block_size);
	assert_int_equal(g->shape.n[NB], c->blocks_after);
	/* a block of several has the id of the first, counted in blocks of its size */
	assert_int_equal(g->block_ids != NULL, c->ids[0] != 0);
	for (int64_t b = 0; g->block_ids && b < g->shape.n[NB]; b++)
		assert_int_equal(g->block_ids[b],
				 (c->ids[b * g->block_size / c->size] *
				  (uint64_t)c->size +
				  (uint64_t)(b * g->block_size % c->size)) /
				 (uint64_t)g->block_size);
	assert_int_equal(kvt_null_block(kvt_dump_snapshot(out), 0),
			 c->has_null ? c->null_after : -1);
	for (int r = 0; r < 2 && c->after[r].n; r++) {
		expect_table(out, r, 0, c->after[r].n, c->after[r].block);
		expect_tokens(out, r, r ? "b" : "a", 0, c->after[r].ntokens);
	}
	check_rows(out, pool, c->rows);
}

static void test_why_gathered(void)
{
	struct kvt_snapshot *s = describe(5, 3);
	struct kvt_reblocked said;

	add_request(s, "a", 4, IDS(2, 0));
	reblock(&said, number_dump(s, 0),
		&(struct kvt_reblock_options){ .block_size = 2 });
	assert_non_null(strstr(said.why.text, "neither of 3 and 2 divides the other"));
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
	uint8_t *rows = room((size_t)(nblocks * slots));

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
}

static void test_random(void)
{
	for (int round = 0; round < 400; round++) {
		struct kvt_reblock_options options = { .compact = true };
		struct kvt_reblocked said;
		struct kvt_snapshot *s;
		struct kvt_dump *pool;
		int64_t blocks, size;

		seed = (uint64_t)round;
		blocks = 1 + below(12);
		size = 1 + below(6);
		options.block_size = 1 + below(9);
		s = describe(blocks, size);
		random_tables(s, blocks, size);
		pool = number_dump(s, 0);
		check_tokens(reblock(&said, pool, &options), pool);
		let_go();
	}
}

/* ---- there and back ----------------------------------------------------- */

static void test_there_and_back(void)
{
	static const int64_t sizes[] = { 1, 2, 4, 8 };
	struct kvt_snapshot *s = describe(6, 8);
	struct kvt_reblocked said;
	struct kvt_dump *pool;

	add_request(s, "a", 19, IDS(4, 0, 5));
	add_request(s, "b", 16, IDS(4, 1));
	pool = number_dump(s, 0);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		const struct kvt_reblock_options there = { .block_size = sizes[i] };
		const struct kvt_reblock_options back = { .block_size = 8 };
		struct kvt_dump *small = reblock(&said, pool, &there), *out;

		assert_int_equal(kvt_dump_snapshot(small)->request[0].nblocks[0],
				 (19 + sizes[i] - 1) / sizes[i]);
		out = reblock(&said, small, &back);
		drop_now(small);
		assert_int_equal(said.how, sizes[i] == 8 ? KVT_KEPT : KVT_REGROUPED);
		expect_table(out, 0, 0, IDS(4, 0, 5));
		expect_table(out, 1, 0, IDS(4, 1));
		assert_int_equal(kvt_dump_group(out, 0)->block_size, 8);
		check_places(out, 0);
	}
}

/* ---- refusals ----------------------------------------------------------- */

static void test_without_tables(void)
{
	struct kvt_snapshot *s = describe(3, 2);

	REFUSED(s, KVT_BAD_INPUT,
		"blocks of 2 can become blocks of 3 only with block tables",
		.block_size = 3);
	REFUSED(s, KVT_BAD_INPUT, "no request has a block table", .block_size = 1,
		.stale = KVT_STALE_ZERO);
	REFUSED(s, KVT_BAD_INPUT, "no request has a block table", .block_size = 2,
		.compact = true);
}

/* The end of a table that a window has left begins inside a block of three. */
static void test_windows(void)
{
	struct kvt_snapshot *s = describe(4, 2);
	struct kvt_reblocked said;

	s->group[0].window = 3;
	s->group[0].kind = KVT_SLIDING_WINDOW;
	add_request(s, "w", 7, IDS(3, 0, 2));
	REFUSED(s, KVT_BAD_INPUT, "the table of request w has only 3 of its 4 blocks",
		.block_size = 3);
	reblock(&said, number_dump(s, 0),
		&(struct kvt_reblock_options){ .block_size = 1 });
	assert_int_equal(said.how, KVT_REGROUPED);
}

static void test_tables(void)
{
	struct kvt_snapshot *s = describe(3, 2);

	number_blocks(&s->group[0], (const uint64_t[]){ 4, 5, 6 });
	add_request(s, "a", 4, IDS(1, 1));
	REFUSED(s, KVT_BAD_INPUT, "request a: block 5 of g0 is listed twice in its table",
		.block_size = 1);
	s = describe(3, 2);
	add_request(s, "a", 3, IDS(1, 2));
	s->request[0].first_token = 2;
	REFUSED(s, KVT_UNSUPPORTED, "request 'a' begins at token 2", .block_size = 1);
}

static void test_other_refusals(void)
{
	static const int64_t ssm[] = { 1, 2, 1, 2, 1, 2 };
	struct kvt_snapshot *s = new_snapshot();

	new_group(s, "ssm", KVT_MAMBA_SSM, "ssm", ssm);
	REFUSED(s, KVT_BAD_INPUT, "no group has blocks of tokens", .block_size = 3);
	s = describe(2, 2);
	s->group[0].tokens_per_slot = 2;
	s->group[0].block_size = 4;
	REFUSED(s, KVT_BAD_INPUT, "blocks of 3 tokens cannot hold slots of 2 tokens",
		.block_size = 3);
}

/* A layout that splits slots four by four holds no blocks of two. */
static void test_layout(void)
{
	struct kvt_snapshot *s = describe(2, 4);
	struct kvt_layout other;
	const struct kvt_reblock_options options = { .block_size = 2, .layout = &other };
	struct kvt_reblocked said;
	struct kvt_dump *pool, *out;

	ok(kvt_layout_parse(&s->group[0].layout, "L B K H S/4 D S%4", NULL));
	REFUSED(s, KVT_UNSUPPORTED, "cannot hold blocks of 2 slots", .block_size = 2);
	ok(kvt_layout_parse(&other, "BLKSHD", NULL));
	pool = number_dump(s, 0);
	out = reblock(&said, pool, &options);
	assert_true(kvt_layout_equal(&kvt_dump_group(out, 0)->layout, &other));
	check_rows(out, pool, (const uint8_t[]){ 0, 1, 2, 3, 4, 5, 6, 7 });
}

TESTS("reblock",
	EACH(by_hand, test_by_hand), TEST(test_why_gathered), TEST(test_random),
	TEST(test_there_and_back), TEST(test_without_tables), TEST(test_windows),
	TEST(test_tables), TEST(test_other_refusals), TEST(test_layout))
