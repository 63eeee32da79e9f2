/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_slice.c - parts of dumps, against elements that say where they are
 *
 * Ids, tables and ranges of components of each part are written out by hand; each
 * element must then be the one that they name.
 */
#include "tests/unit/dump/places.h"

static const int64_t attention[] = { 4, 6, 4, 4, 2, 3 };

/* Layers 0, 2, 4, 6; blocks 10 to 15; requests a in 10, 11, 12 and b in 13, 15. */
static void describe_attention(struct kvt_snapshot *s)
{
	static const uint32_t layers[] = { 0, 2, 4, 6 };
	static const uint64_t blocks[] = { 10, 11, 12, 13, 14, 15 };
	struct kvt_group *g = new_group(s, "g0", KVT_FULL_ATTENTION, "LBKSHD", attention);

	number_layers(g, layers);
	number_blocks(g, blocks);
	add_request(s, "a", 10, 3, (const uint32_t[]){ 0, 1, 2 });
	add_request(s, "b", 7, 2, (const uint32_t[]){ 3, 5 });
}

static struct placed_dump make_attention(void)
{
	struct kvt_snapshot s;

	kvt_snapshot_init(&s);
	describe_attention(&s);
	return number_dump(&s, 0);
}

/*
 * Also layers 1 and 3: eight channels x, and two groups of two channels each of B
 * and C; four heads of an SSM state.  Their blocks are 10 and 13.
 */
static struct placed_dump make_hybrid(void)
{
	static const int64_t conv_n[] = { 2, 2, 3, 1, 1, 16 }, ssm_n[] = { 2, 2, 1, 4, 1,
	5 };
	static const uint32_t layers[] = { 1, 3 };
	static const uint64_t blocks[] = { 10, 13 };
	struct kvt_snapshot s;
	struct kvt_group *conv;

	kvt_snapshot_init(&s);
	describe_attention(&s);
	conv = new_group(&s, "conv", KVT_MAMBA_CONV, "conv-sd", conv_n);
	add_part(conv, "x", 0, 8, 0);
	add_part(conv, "B", 8, 4, 8);
	add_part(conv, "C", 12, 4, 12);
	new_group(&s, "ssm", KVT_MAMBA_SSM, "ssm", ssm_n);
	for (int g = 1; g < 3; g++) {
		number_layers(&s.group[g], layers);
		number_blocks(&s.group[g], blocks);
		for (uint32_t r = 0; r < 2; r++) {
			s.request[r].blocks[g] = malloc(sizeof(r));
			s.request[r].blocks[g][0] = r;
			s.request[r].nblocks[g] = 1;
		}
	}
	return number_dump(&s, 0);
}

static struct kvt_dump *slice(const struct kvt_dump *dump,
			      const struct kvt_slice_options *options)
{
	struct kvt_dump *out = NULL;

	ok(kvt_dump_slice(&out, dump, options, &why));
	return out;
}

static void refused(const struct kvt_dump *dump, const struct kvt_slice_options *options,
		    enum kvt_status status, const char *part)
{
	struct kvt_dump *out = NULL;

	expect(kvt_dump_slice(&out, dump, options, &why), status, part);
	assert_null(out);
}

#define RANGES(n_, ...) { .n = (n_), .range = (const struct kvt_range[]){ __VA_ARGS__ } }
#define NAMES(n_, ...) { .n = (n_), .s = (const char *const[]){ __VA_ARGS__ } }

/* ---- layers and blocks -------------------------------------------------- */

static void test_layers(void)
{
	const struct kvt_slice_options options = { .layers = RANGES(1, { 2, 5 }) };
	struct placed_dump whole = make_hybrid();
	struct kvt_dump *part = slice(whole.dump, &options);

	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 3);
	expect_layers(kvt_dump_group(part, 0), 2, (const uint32_t[]){ 2, 4 });
	expect_layers(kvt_dump_group(part, 1), 1, (const uint32_t[]){ 3 });
	expect_layers(kvt_dump_group(part, 2), 1, (const uint32_t[]){ 3 });
	assert_int_equal(kvt_dump_group(part, 0)->shape.n[NB], 6);
	expect_table(part, 0, 0, 3, (const uint32_t[]){ 0, 1, 2 });
	check_places(part, 0);
	kvt_dump_close(part);
	drop_dump(&whole);
}

/* A group of which nothing remains is gone, and tables follow those that move up. */
static void test_groups_move_up(void)
{
	const struct kvt_slice_options options = {
		.layers = RANGES(2, { 1, 2 }, { 3, 4 }),
	};
	struct placed_dump whole = make_hybrid();
	struct kvt_dump *part = slice(whole.dump, &options);

	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 2);
	assert_string_equal(kvt_dump_group(part, 0)->id, "conv");
	assert_string_equal(kvt_dump_group(part, 1)->id, "ssm");
	expect_table(part, 1, 0, 1, (const uint32_t[]){ 1 });
	expect_table(part, 1, 1, 1, (const uint32_t[]){ 1 });
	assert_int_equal(kvt_dump_snapshot(part)->request[1].nblocks[2], 0);
	check_places(part, 0);
	kvt_dump_close(part);
	drop_dump(&whole);
}

/* So do names, and holes of tokens. */
static void test_names_and_holes(void)
{
	static const char *const layers[] = { "one", "two", "three", "four" };
	const struct kvt_slice_options options = {
		.layers = RANGES(2, { 5, 6 }, { 7, 8 }), .blocks = RANGES(1, { 1, 3 }),
	};
	struct placed_dump whole;
	const struct kvt_request *q;
	struct kvt_dump *part;
	const struct kvt_group *left;
	struct kvt_snapshot s;
	struct kvt_group *g;

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, "LBKSHD", attention);
	g = new_group(&s, "g1", KVT_FULL_ATTENTION, "LBKSHD", attention);
	number_layers(g, (const uint32_t[]){ 4, 5, 6, 7 });
	g->layer_names = calloc(4, sizeof(*g->layer_names));
	for (int l = 0; l < 4; l++)
		g->layer_names[l] = strdup(layers[l]);
	g->block_names = calloc(6, sizeof(*g->block_names));
	for (int b = 0; b < 6; b++)
		g->block_names[b] = strdup((char[]){ (char)('a' + b), '\0' });
	add_request(&s, "r", 8, 2, (const uint32_t[]){ 0, 3 });
	add_table(&s, 1, 2, (const uint32_t[]){ 2, 1 });
	assert_true(kvt_request_add_hole(&s.request[0], 0, 1, 3));
	assert_true(kvt_request_add_hole(&s.request[0], 1, 4, 6));
	whole = number_dump(&s, 0);
	part = slice(whole.dump, &options);
	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 1);
	left = kvt_dump_group(part, 0);
	assert_string_equal(left->layer_names[0], "two");
	assert_string_equal(left->layer_names[1], "four");
	assert_string_equal(left->block_names[0], "b");
	assert_string_equal(left->block_names[1], "c");
	expect_table(part, 0, 0, 2, (const uint32_t[]){ 1, 0 });
	q = &kvt_dump_snapshot(part)->request[0];
	assert_int_equal(q->nholes, 1);
	assert_int_equal(q->hole[0].group, 0);
	assert_int_equal(q->hole[0].begin, 4);
	assert_int_equal(q->hole[0].end, 6);
	check_places(part, 0);
	kvt_dump_close(part);
	drop_dump(&whole);
}

/* Of a, eight tokens are left; of b, nothing. */
static void test_blocks(void)
{
	const struct kvt_slice_options options = { .blocks = RANGES(1, { 10, 12 }) };
	struct placed_dump whole = make_hybrid();
	struct kvt_dump *part = slice(whole.dump, &options);

	expect_blocks(kvt_dump_group(part, 0), 2, (const uint64_t[]){ 10, 11 });
	expect_blocks(kvt_dump_group(part, 1), 1, (const uint64_t[]){ 10 });
	expect_blocks(kvt_dump_group(part, 2), 1, (const uint64_t[]){ 10 });
	assert_int_equal(kvt_dump_snapshot(part)->nrequests, 1);
	expect_tokens(part, 0, "a", 0, 8);
	expect_table(part, 0, 0, 2, (const uint32_t[]){ 0, 1 });
	expect_table(part, 0, 1, 1, (const uint32_t[]){ 0 });
	check_places(part, 0);
	kvt_dump_close(part);
	drop_dump(&whole);
}

/* Ids that the dump did not list are its positions from then on. */
static void test_ids_are_kept(void)
{
	const struct kvt_slice_options first = {
		.layers = RANGES(1, { 1, 3 }), .blocks = RANGES(2, { 1, 3 }, { 4, 5 }),
	}, second = { .layers = RANGES(1, { 2, 3 }), .blocks = RANGES(1, { 4, 5 }) };
	struct placed_dump whole;
	struct kvt_dump *part, *inner;
	struct kvt_snapshot s;

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, "BLKSHD", attention);
	whole = number_dump(&s, 0);
	part = slice(whole.dump, &first);
	expect_layers(kvt_dump_group(part, 0), 2, (const uint32_t[]){ 1, 2 });
	expect_blocks(kvt_dump_group(part, 0), 3, (const uint64_t[]){ 1, 2, 4 });
	check_places(part, 0);
	inner = slice(part, &second);
	kvt_dump_close(part);		/* what was made of it holds the leaf */
	expect_layers(kvt_dump_group(inner, 0), 1, (const uint32_t[]){ 2 });
	expect_blocks(kvt_dump_group(inner, 0), 1, (const uint64_t[]){ 4 });
	check_places(inner, 0);
	kvt_dump_close(inner);
	drop_dump(&whole);
}

static void test_not_there(void)
{
	const struct kvt_slice_options layer = { .layers = RANGES(1, { 6, 8 }) };
	const struct kvt_slice_options block = { .blocks = RANGES(1, { 0, 11 }) };
	const struct kvt_slice_options nothing = {
		.layers = RANGES(1, { 1, 2 }), .blocks = RANGES(1, { 11, 12 }),
	};
	struct placed_dump whole = make_hybrid();

	refused(whole.dump, &layer, KVT_BAD_INPUT, "7 among the 6 from 0 to 6");
	refused(whole.dump, &block, KVT_BAD_INPUT, "0 among the 6 from 10 to 15");
	refused(whole.dump, &nothing, KVT_BAD_INPUT, "nothing of the dump remains");
	drop_dump(&whole);
}

static void test_no_layers(void)
{
	static const int64_t none[] = { 0, 6, 4, 4, 2, 3 };
	const struct kvt_slice_options options = { .layers = { .n = 0 } };
	struct kvt_dump *dump;
	struct kvt_snapshot s;

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, "LBKSHD", none);
	ok(kvt_dump_of_constant(&dump, &s, 0, &why));
	refused(dump, &options, KVT_BAD_INPUT, "g0 has no layers");
	kvt_dump_close(dump);
}

/* ---- heads and ranks ---------------------------------------------------- */

static void expect_heads(const struct kvt_dump *dump, int64_t first, int64_t count,
			 int64_t replication)
{
	const struct kvt_group *g = kvt_dump_group(dump, 0);

	assert_int_equal(g->head_start, first);
	assert_int_equal(g->shape.n[NH], count);
	assert_int_equal(g->total_heads, 4);
	assert_int_equal(g->replication, replication);
}

static void test_heads(void **state)
{
	const struct kvt_slice_options options = { .heads = RANGES(1, { 1, 3 }) };
	const struct kvt_slice_options beyond = { .heads = RANGES(1, { 3, 5 }) };
	struct placed_dump whole = make_attention(), hybrid = make_hybrid();
	struct kvt_dump *part = slice(whole.dump, &options);

	(void)state;
	expect_heads(part, 1, 2, 1);
	check_places(part, 0);
	refused(whole.dump, &beyond, KVT_BAD_INPUT,
		"heads 3 to 4, the dump has 0 to 3");
	refused(part, &(struct kvt_slice_options){ .heads = RANGES(1, { 0, 2 }) },
		KVT_BAD_INPUT, "heads 0 to 1, the dump has 1 to 2");
	refused(hybrid.dump, &options, KVT_BAD_INPUT, "convolution state has no heads");
	kvt_dump_close(part);
	drop_dump(&whole);
	drop_dump(&hybrid);
}

/* Fewer ranks than heads, as many, and more: then neighbours hold one head. */
static void test_ranks(void)
{
	static const struct {
		struct kvt_rank rank;
		int64_t first, count, replication;
	} cases[] = {
		{ { 1, 0 }, 0, 4, 1 }, { { 2, 1 }, 2, 2, 1 }, { { 4, 3 }, 3, 1, 1 },
		{ { 8, 3 }, 1, 1, 2 }, { { 8, 4 }, 2, 1, 2 }, { { 16, 15 }, 3, 1, 4 },
	};
	struct placed_dump whole = make_attention();

	for (size_t i = 0; i < LENGTH(cases); i++) {
		const struct kvt_slice_options options = { .rank = cases[i].rank };
		struct kvt_dump *part = slice(whole.dump, &options);
		const struct kvt_parallel *p = &kvt_dump_snapshot(part)->parallel;

		expect_heads(part, cases[i].first, cases[i].count, cases[i].replication);
		if (cases[i].rank.size > 1) {
			assert_int_equal(p->tp_size, cases[i].rank.size);
			assert_int_equal(p->tp_rank, cases[i].rank.index);
			assert_true(kvt_dump_snapshot(part)->has_parallel);
		}
		check_places(part, 0);
		kvt_dump_close(part);
	}
	refused(whole.dump, &(struct kvt_slice_options){ .rank = { 3, 0 } },
		KVT_BAD_INPUT, "g0: ");
	drop_dump(&whole);
}

static void test_rank_of_a_rank(void)
{
	const struct kvt_slice_options half = { .rank = { 2, 1 } };
	const struct kvt_slice_options quarter = { .rank = { 4, 3 } };
	const struct kvt_slice_options other = { .rank = { 4, 1 } };
	struct placed_dump whole = make_attention();
	struct kvt_dump *outer = slice(whole.dump, &half), *inner, *again;

	inner = slice(outer, &quarter);
	expect_heads(inner, 3, 1, 1);
	check_places(inner, 0);
	again = slice(inner, &quarter);		/* it is that already */
	expect_heads(again, 3, 1, 1);
	check_places(again, 0);
	refused(outer, &other, KVT_BAD_INPUT,
		"rank 1 of 4 holds heads 1 to 1, the dump has 2 to 3");
	kvt_dump_close(again);
	kvt_dump_close(inner);
	kvt_dump_close(outer);
	drop_dump(&whole);
}

static void expect_part(const struct kvt_dump *dump, int g, int i, const char *name,
			int64_t start, int64_t length, int64_t global_start)
{
	const struct kvt_component *c = &kvt_dump_group(dump, g)->component[i];

	assert_true(i < kvt_dump_group(dump, g)->ncomponents);
	assert_string_equal(c->name, name);
	assert_int_equal(c->start, start);
	assert_int_equal(c->length, length);
	assert_int_equal(c->global_start, global_start);
}

/* x is dealt by channels; B and C by groups, of which four ranks hold each twice. */
static void test_rank_of_states(void)
{
	struct kvt_slice_options options = { .rank = { 4, 2 }, .mamba_groups = 2 };
	struct placed_dump whole = make_hybrid();
	struct kvt_dump *part = slice(whole.dump, &options);

	assert_int_equal(kvt_dump_group(part, 1)->shape.n[ND], 6);
	assert_int_equal(kvt_dump_group(part, 1)->ncomponents, 3);
	expect_part(part, 1, 0, "x", 0, 2, 4);
	expect_part(part, 1, 1, "B", 2, 2, 10);
	expect_part(part, 1, 2, "C", 4, 2, 14);
	assert_int_equal(kvt_dump_group(part, 2)->head_start, 2);
	assert_int_equal(kvt_dump_group(part, 2)->shape.n[NH], 1);
	check_places(part, 0);
	kvt_dump_close(part);

	options.mamba_groups = 0;
	refused(whole.dump, &options, KVT_BAD_INPUT, "give it with --mamba-groups");
	options.mamba_groups = 3;
	refused(whole.dump, &options, KVT_BAD_INPUT,
		"--mamba-groups is 3, which does not divide the 4 channels of B");
	drop_dump(&whole);
}

/* Pages are as small as what is left of them. */
static void test_pages_shrink(void)
{
	const struct kvt_slice_options options = { .rank = { 2, 0 } };
	struct placed_dump whole;
	struct kvt_dump *part;
	struct kvt_snapshot s;

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, "LBKSHD", attention)->page_bytes =
		4 * 4 * 2 * 3 * 4 + 64;
	s.group[0].page_offset = 32;
	whole = number_dump(&s, 0);
	part = slice(whole.dump, &options);
	assert_int_equal(kvt_dump_group(part, 0)->page_bytes, 4 * 2 * 2 * 3 * 4);
	assert_int_equal(kvt_dump_group(part, 0)->page_offset, 0);
	kvt_dump_close(part);
	part = slice(whole.dump, &(struct kvt_slice_options){
			.layers = RANGES(1, { 0, 2 }) });
	assert_int_equal(kvt_dump_group(part, 0)->page_offset, 32);	/* as it was */
	kvt_dump_close(part);
	drop_dump(&whole);
}

/* ---- requests and tokens ------------------------------------------------ */

static void test_requests(void)
{
	const struct kvt_slice_options options = { .requests = NAMES(1, "b") };
	const struct kvt_slice_options unknown = { .requests = NAMES(2, "b", "zebra") };
	struct placed_dump whole = make_hybrid();
	struct kvt_dump *part = slice(whole.dump, &options);

	assert_int_equal(kvt_dump_snapshot(part)->nrequests, 1);
	expect_tokens(part, 0, "b", 0, 7);
	expect_blocks(kvt_dump_group(part, 0), 2, (const uint64_t[]){ 13, 15 });
	expect_blocks(kvt_dump_group(part, 1), 1, (const uint64_t[]){ 13 });
	expect_table(part, 0, 0, 2, (const uint32_t[]){ 0, 1 });
	expect_table(part, 0, 2, 1, (const uint32_t[]){ 0 });
	check_places(part, 0);
	kvt_dump_close(part);
	refused(whole.dump, &unknown, KVT_BAD_INPUT, "no request 'zebra'");
	drop_dump(&whole);
}

static void test_tokens(void **state)
{
	const struct kvt_slice_options middle = { .tokens = RANGES(1, { 2, 6 }) };
	const struct kvt_slice_options second = { .tokens = RANGES(1, { 4, 8 }) };
	const struct kvt_slice_options beyond = { .tokens = RANGES(1, { 0, 11 }) };
	struct placed_dump whole = make_attention(), hybrid = make_hybrid();
	struct kvt_dump *part = slice(whole.dump, &middle);

	(void)state;
	expect_tokens(part, 0, "a", 2, 4);
	expect_tokens(part, 1, "b", 2, 4);
	expect_blocks(kvt_dump_group(part, 0), 4, (const uint64_t[]){ 10, 11, 13, 15 });
	expect_table(part, 0, 0, 2, (const uint32_t[]){ 0, 1 });
	expect_table(part, 1, 0, 2, (const uint32_t[]){ 2, 3 });
	check_places(part, 0);
	kvt_dump_close(part);

	part = slice(whole.dump, &second);
	expect_tokens(part, 0, "a", 4, 4);
	expect_tokens(part, 1, "b", 4, 3);
	expect_blocks(kvt_dump_group(part, 0), 2, (const uint64_t[]){ 11, 15 });
	expect_table(part, 1, 0, 1, (const uint32_t[]){ 1 });
	check_places(part, 0);
	/* of these tokens, those that are there */
	refused(part, &middle, KVT_BAD_INPUT,
		"no token 2, the requests have tokens 4 to 7");
	kvt_dump_close(part);

	refused(whole.dump, &beyond, KVT_BAD_INPUT,
		"no token 10, the requests have tokens 0 to 9");
	refused(hybrid.dump, &second, KVT_BAD_INPUT, "one state stands for all tokens");
	drop_dump(&whole);
	drop_dump(&hybrid);
}

static void test_token_ids_and_holes(void)
{
	const struct kvt_slice_options options = { .tokens = RANGES(1, { 5, 9 }) };
	struct placed_dump whole;
	struct kvt_dump *part;
	const struct kvt_request *q;
	struct kvt_snapshot s;

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, "LBKSHD", attention);
	add_request(&s, "a", 10, 3, (const uint32_t[]){ 4, 0, 2 });
	s.request[0].token_ids = calloc(10, sizeof(int32_t));
	s.request[0].ntoken_ids = 10;
	for (int32_t i = 0; i < 10; i++)
		s.request[0].token_ids[i] = 100 + i;
	assert_true(kvt_request_add_hole(&s.request[0], 0, 1, 2));
	assert_true(kvt_request_add_hole(&s.request[0], 0, 4, 6));
	assert_true(kvt_request_add_hole(&s.request[0], 0, 8, 10));
	whole = number_dump(&s, 0);
	part = slice(whole.dump, &options);
	q = &kvt_dump_snapshot(part)->request[0];
	assert_int_equal(q->ntoken_ids, 4);
	assert_int_equal(q->token_ids[0], 105);
	assert_int_equal(q->token_ids[3], 108);
	assert_int_equal(q->nholes, 2);
	assert_int_equal(q->hole[0].begin, 5);
	assert_int_equal(q->hole[0].end, 6);
	assert_int_equal(q->hole[1].begin, 8);
	assert_int_equal(q->hole[1].end, 9);
	expect_blocks(kvt_dump_group(part, 0), 2, (const uint64_t[]){ 0, 2 });
	expect_table(part, 0, 0, 2, (const uint32_t[]){ 0, 1 });
	kvt_dump_close(part);
	drop_dump(&whole);
}

static void test_nobody_knows_tokens(void)
{
	const struct kvt_slice_options options = { .tokens = RANGES(1, { 0, 1 }) };
	struct placed_dump whole;
	struct kvt_snapshot s;

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, "LBKSHD", attention);
	whole = number_dump(&s, 0);
	refused(whole.dump, &options, KVT_BAD_INPUT, "the dump has no requests");
	drop_dump(&whole);
}

/* A table whose first block a window has passed, and the null block in its place. */
static void test_null_block(void)
{
	const struct kvt_slice_options with = { .blocks = RANGES(1, { 1, 5 }) };
	const struct kvt_slice_options without = { .blocks = RANGES(1, { 1, 4 }) };
	struct placed_dump whole;
	struct kvt_dump *part;
	struct kvt_snapshot s;

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_SLIDING_WINDOW, "LBKSHD", attention)->window = 6;
	add_request(&s, "w", 14, 4, (const uint32_t[]){ 4, 1, 2, 3 });
	s.null_block = 4;
	whole = number_dump(&s, 0);
	part = slice(whole.dump, &with);
	assert_int_equal(kvt_null_block(kvt_dump_snapshot(part), 0), 3);
	expect_table(part, 0, 0, 4, (const uint32_t[]){ 3, 0, 1, 2 });
	expect_tokens(part, 0, "w", 0, 14);
	check_places(part, 0);
	kvt_dump_close(part);
	/* without its end, what a window holds is nothing */
	part = slice(whole.dump, &(struct kvt_slice_options){
			.blocks = RANGES(2, { 1, 3 }, { 4, 5 }) });
	assert_int_equal(kvt_null_block(kvt_dump_snapshot(part), 0), 2);
	assert_int_equal(kvt_dump_snapshot(part)->nrequests, 0);
	kvt_dump_close(part);
	part = slice(whole.dump, &without);
	assert_int_equal(kvt_null_block(kvt_dump_snapshot(part), 0), -1);
	assert_int_equal(kvt_dump_snapshot(part)->nrequests, 0);
	kvt_dump_close(part);
	drop_dump(&whole);
}

/* The last two of the three blocks that a window has left. */
static void test_tokens_of_a_window(void)
{
	const struct kvt_slice_options options = { .tokens = RANGES(1, { 8, 14 }) };
	struct placed_dump whole;
	struct kvt_dump *part;
	struct kvt_snapshot s;

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_SLIDING_WINDOW, "LBKSHD", attention)->window = 8;
	add_request(&s, "w", 14, 3, (const uint32_t[]){ 5, 2, 3 });
	whole = number_dump(&s, 0);
	part = slice(whole.dump, &options);
	expect_blocks(kvt_dump_group(part, 0), 2, (const uint64_t[]){ 2, 3 });
	expect_tokens(part, 0, "w", 8, 6);
	expect_table(part, 0, 0, 2, (const uint32_t[]){ 0, 1 });
	check_places(part, 0);
	kvt_dump_close(part);
	drop_dump(&whole);
}

/* ---- components --------------------------------------------------------- */

static void test_keys_and_values(void)
{
	const struct kvt_slice_options values = { .components = NAMES(1, "v") };
	const struct kvt_slice_options keys = { .components = NAMES(1, "k") };
	const struct kvt_slice_options both = { .components = NAMES(2, "v", "k") };
	const struct kvt_slice_options other = { .components = NAMES(1, "w") };
	static const int64_t half[] = { 4, 6, 4, 4, 1, 3 };
	struct placed_dump whole = make_attention();
	struct kvt_dump *part = slice(whole.dump, &values);

	expect_shape(kvt_dump_group(part, 0), half);
	assert_int_equal(kvt_group_half(kvt_dump_group(part, 0)), 1);
	check_places(part, 0);
	refused(part, &keys, KVT_BAD_INPUT, "no component 'k', the dump has v");
	kvt_dump_close(part);
	part = slice(whole.dump, &keys);
	assert_int_equal(kvt_group_half(kvt_dump_group(part, 0)), 0);
	check_places(part, 0);
	kvt_dump_close(part);
	part = slice(whole.dump, &both);
	expect_shape(kvt_dump_group(part, 0), attention);
	check_places(part, 0);
	kvt_dump_close(part);
	refused(whole.dump, &other, KVT_BAD_INPUT, "no component 'w', the dump has k, v");
	drop_dump(&whole);
}

/* What is made of dumps is held to the same rule as a file: one layer, the same heads. */
static void test_joined_halves(void)
{
	const struct kvt_slice_options values = { .components = NAMES(1, "v") };
	const struct kvt_slice_options keys = {
		.components = NAMES(1, "k"),
		.heads = { 1, &(struct kvt_range){ 0, 1 } },
	};
	struct placed_dump whole = make_attention();
	const struct kvt_dump *parts[] = { slice(whole.dump, &keys),
					   slice(whole.dump, &values) };
	struct kvt_patch patch[2] = { { .group = 0 }, { .group = 1 } };
	struct kvt_dump *out = NULL;
	struct kvt_snapshot info;

	kvt_snapshot_init(&info);
	info.ngroups = 2;
	for (int i = 0; i < 2; i++) {
		const struct kvt_group *g = kvt_dump_group(parts[i], 0);

		info.group[i] = *g;
		strcpy(info.group[i].id, i ? "g0.v" : "g0.k");
		patch[i].nlayers = g->shape.n[KVT_AXIS_L];
		patch[i].nblocks = g->shape.n[KVT_AXIS_B];
	}
	expect(kvt_dump_join(&out, &info, parts, patch, 2, &why), KVT_BAD_INPUT,
	       "expected the same heads");
	for (int i = 0; i < 2; i++)
		kvt_dump_close((struct kvt_dump *)parts[i]);
	drop_dump(&whole);
}

/* Attention and the SSM state are none of these; parts keep their order. */
static void test_parts(void)
{
	const struct kvt_slice_options options = { .components = NAMES(2, "C", "x") };
	const struct kvt_slice_options ranked = {
		.components = NAMES(2, "C", "x"), .rank = { 2, 1 }, .mamba_groups = 2,
	};
	const struct kvt_slice_options one = { .components = NAMES(1, "C") };
	struct placed_dump whole = make_hybrid();
	struct kvt_dump *part = slice(whole.dump, &options), *inner;

	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 1);
	assert_int_equal(kvt_dump_group(part, 0)->shape.n[ND], 12);
	assert_int_equal(kvt_dump_group(part, 0)->ncomponents, 2);
	expect_part(part, 0, 0, "x", 0, 8, 0);
	expect_part(part, 0, 1, "C", 8, 4, 12);
	check_places(part, 0);
	inner = slice(part, &one);
	expect_part(inner, 0, 0, "C", 0, 4, 12);
	check_places(inner, 0);
	kvt_dump_close(inner);
	kvt_dump_close(part);
	part = slice(whole.dump, &ranked);
	expect_part(part, 0, 0, "x", 0, 4, 4);
	expect_part(part, 0, 1, "C", 4, 2, 14);
	check_places(part, 0);
	kvt_dump_close(part);
	drop_dump(&whole);
}

/* ---- from rank to rank -------------------------------------------------- */

static void test_transfer(void)
{
	const struct kvt_slice_options gives = { .rank = { 2, 0 }, .to = { 4, 1 } };
	const struct kvt_slice_options nothing = { .rank = { 2, 0 }, .to = { 4, 2 } };
	const struct kvt_slice_options joins = { .rank = { 4, 3 }, .to = { 2, 1 } };
	struct placed_dump whole = make_attention();
	struct kvt_dump *part = slice(whole.dump, &gives), *rank;

	expect_heads(part, 1, 1, 1);
	check_places(part, 0);
	kvt_dump_close(part);
	part = slice(whole.dump, &nothing);
	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 0);
	kvt_dump_close(part);
	part = slice(whole.dump, &joins);
	expect_heads(part, 3, 1, 1);
	check_places(part, 0);
	kvt_dump_close(part);
	rank = slice(whole.dump, &(struct kvt_slice_options){ .rank = { 2, 1 } });
	refused(rank, &gives, KVT_BAD_INPUT,
		"the dump is that of rank 1 of 2, not of rank 0");
	kvt_dump_close(rank);
	drop_dump(&whole);
}

/* Of two ranks that hold one head, one gives it. */
static void test_transfer_of_replicas(void)
{
	struct placed_dump whole = make_attention();
	int given[4] = { 0 };

	for (int r = 0; r < 8; r++) {
		struct kvt_dump *part = slice(whole.dump, &(struct kvt_slice_options){
				.rank = { 8, r }, .to = { 1, 0 } });

		if (kvt_dump_snapshot(part)->ngroups) {
			assert_int_equal(kvt_dump_group(part, 0)->head_start, r / 2);
			given[r / 2]++;
			check_places(part, 0);
		}
		kvt_dump_close(part);
	}
	for (int h = 0; h < 4; h++)
		assert_int_equal(given[h], 1);
	drop_dump(&whole);
}

static void test_transfer_of_states(void)
{
	const struct kvt_slice_options options = {
		.rank = { 2, 1 }, .to = { 4, 3 }, .mamba_groups = 2,
	};
	struct placed_dump whole = make_hybrid();
	struct kvt_dump *part = slice(whole.dump, &options);

	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 3);
	expect_part(part, 1, 0, "x", 0, 2, 6);
	expect_part(part, 1, 1, "B", 2, 2, 10);
	expect_part(part, 1, 2, "C", 4, 2, 14);
	assert_int_equal(kvt_dump_group(part, 1)->shape.n[ND], 6);
	assert_int_equal(kvt_dump_group(part, 2)->head_start, 3);
	check_places(part, 0);
	kvt_dump_close(part);
	drop_dump(&whole);
}

TESTS("slice",
	TEST(test_layers),
	TEST(test_groups_move_up),
	TEST(test_names_and_holes),
	TEST(test_blocks),
	TEST(test_ids_are_kept),
	TEST(test_not_there),
	TEST(test_no_layers),
	WITH(NULL, test_heads),
	TEST(test_ranks),
	TEST(test_rank_of_a_rank),
	TEST(test_rank_of_states),
	TEST(test_pages_shrink),
	TEST(test_requests),
	WITH(NULL, test_tokens),
	TEST(test_token_ids_and_holes),
	TEST(test_nobody_knows_tokens),
	TEST(test_null_block),
	TEST(test_tokens_of_a_window),
	TEST(test_keys_and_values),
	TEST(test_joined_halves),
	TEST(test_parts),
	TEST(test_transfer),
	TEST(test_transfer_of_replicas),
	TEST(test_transfer_of_states))
