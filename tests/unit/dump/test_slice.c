/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_slice.c - parts of dumps, against elements that say where they are
 *
 * Ids, tables and ranges of components of each part are written out by hand; each
 * element must then be the one that they name.
 */
#include "tests/unit/fixture.h"

static const int64_t attention[] = { 4, 6, 4, 4, 2, 3 };

/* Layers 0, 2, 4, 6; blocks 10 to 15; requests a in 10, 11, 12 and b in 13, 15. */
static void describe_attention(struct kvt_snapshot *s)
{
	struct kvt_group *g = new_group(s, "g0", KVT_FULL_ATTENTION, "LBKSHD", attention);

	number_layers(g, (const uint32_t[]){ 0, 2, 4, 6 });
	number_blocks(g, (const uint64_t[]){ 10, 11, 12, 13, 14, 15 });
	add_request(s, "a", 10, IDS(0, 1, 2));
	add_request(s, "b", 7, IDS(3, 5));
}

static struct kvt_dump *make_attention(void)
{
	struct kvt_snapshot *s = new_snapshot();

	describe_attention(s);
	return number_dump(s, 0);
}

/*
 * Also layers 1 and 3: eight channels x, and two groups of two channels each of B
 * and C; four heads of an SSM state.  Their blocks are 10 and 13.
 */
static struct kvt_dump *make_hybrid(void)
{
	static const int64_t conv_n[] = { 2, 2, 3, 1, 1, 16 }, ssm_n[] = { 2, 2, 1, 4, 1,
	5 };
	static const uint64_t blocks[] = { 10, 13 };
	struct kvt_snapshot *s = new_snapshot();
	struct kvt_group *conv;

	describe_attention(s);
	conv = new_group(s, "conv", KVT_MAMBA_CONV, "conv-sd", conv_n);
	add_part(conv, "x", 0, 8, 0);
	add_part(conv, "B", 8, 4, 8);
	add_part(conv, "C", 12, 4, 12);
	new_group(s, "ssm", KVT_MAMBA_SSM, "ssm", ssm_n);
	for (int g = 1; g < 3; g++) {
		number_layers(&s->group[g], (const uint32_t[]){ 1, 3 });
		number_blocks(&s->group[g], blocks);
		for (uint32_t r = 0; r < 2; r++) {
			s->request[r].blocks[g] = malloc(sizeof(r));
			s->request[r].blocks[g][0] = r;
			s->request[r].nblocks[g] = 1;
		}
	}
	return number_dump(s, 0);
}

/* Each element of it is the one that its tables name. */
static struct kvt_dump *slice(const struct kvt_dump *dump,
			      const struct kvt_slice_options *options)
{
	struct kvt_dump *out = NULL;

	ok(kvt_dump_slice(&out, dump, options, &why));
	check_places(out, 0);
	return keep_dump(out);
}

static void refused(const struct kvt_dump *dump, const char *part,
		    const struct kvt_slice_options *options)
{
	struct kvt_dump *out = NULL;

	expect(kvt_dump_slice(&out, dump, options, &why), KVT_BAD_INPUT, part);
	assert_null(out);
}

#define SLICE(dump, ...) slice(dump, &(struct kvt_slice_options){ __VA_ARGS__ })
#define REFUSED(dump, part, ...)							\
	refused(dump, part, &(struct kvt_slice_options){ __VA_ARGS__ })
#define RANGES(...) { LENGTH(((struct kvt_range[]){ __VA_ARGS__ })),			\
		      (const struct kvt_range[]){ __VA_ARGS__ } }
#define NAMES(...) { LENGTH(((const char *[]){ __VA_ARGS__ })),				\
		     (const char *const[]){ __VA_ARGS__ } }

/* ---- layers and blocks -------------------------------------------------- */

static void test_layers(void)
{
	struct kvt_dump *part = SLICE(make_hybrid(), .layers = RANGES({ 2, 5 }));

	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 3);
	expect_layers(kvt_dump_group(part, 0), IDS(2, 4));
	expect_layers(kvt_dump_group(part, 1), IDS(3));
	expect_layers(kvt_dump_group(part, 2), IDS(3));
	assert_int_equal(kvt_dump_group(part, 0)->shape.n[NB], 6);
	expect_table(part, 0, 0, IDS(0, 1, 2));
}

/* A group of which nothing remains is gone, and tables follow those that move up. */
static void test_groups_move_up(void)
{
	struct kvt_dump *part = SLICE(make_hybrid(),
				      .layers = RANGES({ 1, 2 }, { 3, 4 }));

	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 2);
	assert_string_equal(kvt_dump_group(part, 0)->id, "conv");
	assert_string_equal(kvt_dump_group(part, 1)->id, "ssm");
	expect_table(part, 1, 0, IDS(1));
	expect_table(part, 1, 1, IDS(1));
	assert_int_equal(kvt_dump_snapshot(part)->request[1].nblocks[2], 0);
}

/* So do names, and holes of tokens. */
static void test_names_and_holes(void)
{
	static const char *const layers[] = { "one", "two", "three", "four" };
	const struct kvt_request *q;
	struct kvt_dump *part;
	const struct kvt_group *left;
	struct kvt_snapshot *s = new_snapshot();
	struct kvt_group *g;

	new_group(s, "g0", KVT_FULL_ATTENTION, "LBKSHD", attention);
	g = new_group(s, "g1", KVT_FULL_ATTENTION, "LBKSHD", attention);
	number_layers(g, (const uint32_t[]){ 4, 5, 6, 7 });
	g->layer_names = calloc(4, sizeof(*g->layer_names));
	for (int l = 0; l < 4; l++)
		g->layer_names[l] = strdup(layers[l]);
	g->block_names = calloc(6, sizeof(*g->block_names));
	for (int b = 0; b < 6; b++)
		g->block_names[b] = strdup((char[]){ (char)('a' + b), '\0' });
	add_request(s, "r", 8, IDS(0, 3));
	add_table(s, 1, IDS(2, 1));
	assert_true(kvt_request_add_hole(&s->request[0], 0, 1, 3));
	assert_true(kvt_request_add_hole(&s->request[0], 1, 4, 6));
	part = SLICE(number_dump(s, 0), .layers = RANGES({ 5, 6 }, { 7, 8 }),
		     .blocks = RANGES({ 1, 3 }));
	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 1);
	left = kvt_dump_group(part, 0);
	assert_string_equal(left->layer_names[0], "two");
	assert_string_equal(left->layer_names[1], "four");
	assert_string_equal(left->block_names[0], "b");
	assert_string_equal(left->block_names[1], "c");
	expect_table(part, 0, 0, IDS(1, 0));
	q = &kvt_dump_snapshot(part)->request[0];
	assert_int_equal(q->nholes, 1);
	assert_int_equal(q->hole[0].group, 0);
	assert_int_equal(q->hole[0].begin, 4);
	assert_int_equal(q->hole[0].end, 6);
}

/* Of a, eight tokens are left; of b, nothing. */
static void test_blocks(void)
{
	struct kvt_dump *part = SLICE(make_hybrid(), .blocks = RANGES({ 10, 12 }));

	expect_blocks(kvt_dump_group(part, 0), IDS64(10, 11));
	expect_blocks(kvt_dump_group(part, 1), IDS64(10));
	expect_blocks(kvt_dump_group(part, 2), IDS64(10));
	assert_int_equal(kvt_dump_snapshot(part)->nrequests, 1);
	expect_tokens(part, 0, "a", 0, 8);
	expect_table(part, 0, 0, IDS(0, 1));
	expect_table(part, 0, 1, IDS(0));
}

/* Ids that the dump did not list are its positions from then on. */
static void test_ids_are_kept(void)
{
	struct kvt_dump *part, *inner;
	struct kvt_snapshot *s = snapshot_of("BLKSHD", attention);

	part = SLICE(number_dump(s, 0), .layers = RANGES({ 1, 3 }),
		     .blocks = RANGES({ 1, 3 }, { 4, 5 }));
	expect_layers(kvt_dump_group(part, 0), IDS(1, 2));
	expect_blocks(kvt_dump_group(part, 0), IDS64(1, 2, 4));
	inner = SLICE(part, .layers = RANGES({ 2, 3 }), .blocks = RANGES({ 4, 5 }));
	drop_now(part);		/* what was made of it holds the leaf */
	expect_layers(kvt_dump_group(inner, 0), IDS(2));
	expect_blocks(kvt_dump_group(inner, 0), IDS64(4));
}

static void test_not_there(void)
{
	struct kvt_dump *whole = make_hybrid();

	REFUSED(whole, "7 among the 6 from 0 to 6", .layers = RANGES({ 6, 8 }));
	REFUSED(whole, "0 among the 6 from 10 to 15", .blocks = RANGES({ 0, 11 }));
	REFUSED(whole, "nothing of the dump remains", .layers = RANGES({ 1, 2 }),
		.blocks = RANGES({ 11, 12 }));
}

static void test_no_layers(void)
{
	static const int64_t none[] = { 0, 6, 4, 4, 2, 3 };
	struct kvt_dump *dump;
	struct kvt_snapshot *s = snapshot_of("LBKSHD", none);

	ok(kvt_dump_of_constant(&dump, s, 0, &why));
	keep_dump(dump);
	REFUSED(dump, "g0 has no layers", .layers = { .n = 0 });
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

static void test_heads(void)
{
	const struct kvt_slice_options options = { .heads = RANGES({ 1, 3 }) };
	struct kvt_dump *whole = make_attention(), *hybrid = make_hybrid();
	struct kvt_dump *part = slice(whole, &options);

	expect_heads(part, 1, 2, 1);
	REFUSED(whole, "heads 3 to 4, the dump has 0 to 3", .heads = RANGES({ 3, 5 }));
	REFUSED(part, "heads 0 to 1, the dump has 1 to 2", .heads = RANGES({ 0, 2 }));
	refused(hybrid, "convolution state has no heads", &options);
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
	struct kvt_dump *whole = make_attention();

	for (size_t i = 0; i < LENGTH(cases); i++) {
		struct kvt_dump *part = SLICE(whole, .rank = cases[i].rank);
		const struct kvt_parallel *p = &kvt_dump_snapshot(part)->parallel;

		expect_heads(part, cases[i].first, cases[i].count, cases[i].replication);
		if (cases[i].rank.size > 1) {
			assert_int_equal(p->tp_size, cases[i].rank.size);
			assert_int_equal(p->tp_rank, cases[i].rank.index);
			assert_true(kvt_dump_snapshot(part)->has_parallel);
		}
	}
	REFUSED(whole, "g0: ", .rank = { 3, 0 });
}

static void test_rank_of_a_rank(void)
{
	const struct kvt_slice_options quarter = { .rank = { 4, 3 } };
	struct kvt_dump *outer = SLICE(make_attention(), .rank = { 2, 1 }), *inner,
		*again;

	inner = slice(outer, &quarter);
	expect_heads(inner, 3, 1, 1);
	again = slice(inner, &quarter);		/* it is that already */
	expect_heads(again, 3, 1, 1);
	REFUSED(outer, "rank 1 of 4 holds heads 1 to 1, the dump has 2 to 3",
		.rank = { 4, 1 });
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
	struct kvt_dump *whole = make_hybrid();
	struct kvt_dump *part = SLICE(whole, .rank = { 4, 2 }, .mamba_groups = 2);

	assert_int_equal(kvt_dump_group(part, 1)->shape.n[ND], 6);
	assert_int_equal(kvt_dump_group(part, 1)->ncomponents, 3);
	expect_part(part, 1, 0, "x", 0, 2, 4);
	expect_part(part, 1, 1, "B", 2, 2, 10);
	expect_part(part, 1, 2, "C", 4, 2, 14);
	assert_int_equal(kvt_dump_group(part, 2)->head_start, 2);
	assert_int_equal(kvt_dump_group(part, 2)->shape.n[NH], 1);
	REFUSED(whole, "give it with --mamba-groups", .rank = { 4, 2 });
	REFUSED(whole, "--mamba-groups is 3, which does not divide the 4 channels of B",
		.rank = { 4, 2 }, .mamba_groups = 3);
}

/* Pages are as small as what is left of them. */
static void test_pages_shrink(void)
{
	struct kvt_dump *whole, *part;
	struct kvt_snapshot *s = new_snapshot();

	new_group(s, "g0", KVT_FULL_ATTENTION, "LBKSHD", attention)->page_bytes =
		4 * 4 * 2 * 3 * 4 + 64;
	s->group[0].page_offset = 32;
	whole = number_dump(s, 0);
	part = SLICE(whole, .rank = { 2, 0 });
	assert_int_equal(kvt_dump_group(part, 0)->page_bytes, 4 * 2 * 2 * 3 * 4);
	assert_int_equal(kvt_dump_group(part, 0)->page_offset, 0);
	part = SLICE(whole, .layers = RANGES({ 0, 2 }));
	assert_int_equal(kvt_dump_group(part, 0)->page_offset, 32);	/* as it was */
}

/* ---- requests and tokens ------------------------------------------------ */

static void test_requests(void)
{
	struct kvt_dump *whole = make_hybrid();
	struct kvt_dump *part = SLICE(whole, .requests = NAMES("b"));

	assert_int_equal(kvt_dump_snapshot(part)->nrequests, 1);
	expect_tokens(part, 0, "b", 0, 7);
	expect_blocks(kvt_dump_group(part, 0), IDS64(13, 15));
	expect_blocks(kvt_dump_group(part, 1), IDS64(13));
	expect_table(part, 0, 0, IDS(0, 1));
	expect_table(part, 0, 2, IDS(0));
	REFUSED(whole, "no request 'zebra'", .requests = NAMES("b", "zebra"));
}

static void test_tokens(void)
{
	const struct kvt_slice_options middle = { .tokens = RANGES({ 2, 6 }) };
	const struct kvt_slice_options second = { .tokens = RANGES({ 4, 8 }) };
	struct kvt_dump *whole = make_attention(), *hybrid = make_hybrid();
	struct kvt_dump *part = slice(whole, &middle);

	expect_tokens(part, 0, "a", 2, 4);
	expect_tokens(part, 1, "b", 2, 4);
	expect_blocks(kvt_dump_group(part, 0), IDS64(10, 11, 13, 15));
	expect_table(part, 0, 0, IDS(0, 1));
	expect_table(part, 1, 0, IDS(2, 3));

	part = slice(whole, &second);
	expect_tokens(part, 0, "a", 4, 4);
	expect_tokens(part, 1, "b", 4, 3);
	expect_blocks(kvt_dump_group(part, 0), IDS64(11, 15));
	expect_table(part, 1, 0, IDS(1));
	/* of these tokens, those that are there */
	refused(part, "no token 2, the requests have tokens 4 to 7", &middle);

	REFUSED(whole, "no token 10, the requests have tokens 0 to 9",
		.tokens = RANGES({ 0, 11 }));
	refused(hybrid, "one state stands for all tokens", &second);
}

static void test_token_ids_and_holes(void)
{
	struct kvt_dump *part;
	const struct kvt_request *q;
	struct kvt_snapshot *s = snapshot_of("LBKSHD", attention);

	add_request(s, "a", 10, IDS(4, 0, 2));
	s->request[0].token_ids = calloc(10, sizeof(int32_t));
	s->request[0].ntoken_ids = 10;
	for (int32_t i = 0; i < 10; i++)
		s->request[0].token_ids[i] = 100 + i;
	assert_true(kvt_request_add_hole(&s->request[0], 0, 1, 2));
	assert_true(kvt_request_add_hole(&s->request[0], 0, 4, 6));
	assert_true(kvt_request_add_hole(&s->request[0], 0, 8, 10));
	part = SLICE(number_dump(s, 0), .tokens = RANGES({ 5, 9 }));
	q = &kvt_dump_snapshot(part)->request[0];
	assert_int_equal(q->ntoken_ids, 4);
	assert_int_equal(q->token_ids[0], 105);
	assert_int_equal(q->token_ids[3], 108);
	assert_int_equal(q->nholes, 2);
	assert_int_equal(q->hole[0].begin, 5);
	assert_int_equal(q->hole[0].end, 6);
	assert_int_equal(q->hole[1].begin, 8);
	assert_int_equal(q->hole[1].end, 9);
	expect_blocks(kvt_dump_group(part, 0), IDS64(0, 2));
	expect_table(part, 0, 0, IDS(0, 1));
}

static void test_nobody_knows_tokens(void)
{
	struct kvt_snapshot *s = snapshot_of("LBKSHD", attention);

	REFUSED(number_dump(s, 0), "the dump has no requests",
		.tokens = RANGES({ 0, 1 }));
}

/* A table whose first block a window has passed, and the null block in its place. */
static void test_null_block(void)
{
	struct kvt_dump *whole, *part;
	struct kvt_snapshot *s = new_snapshot();

	new_group(s, "g0", KVT_SLIDING_WINDOW, "LBKSHD", attention)->window = 6;
	add_request(s, "w", 14, IDS(4, 1, 2, 3));
	s->null_block = 4;
	whole = number_dump(s, 0);
	part = SLICE(whole, .blocks = RANGES({ 1, 5 }));
	assert_int_equal(kvt_null_block(kvt_dump_snapshot(part), 0), 3);
	expect_table(part, 0, 0, IDS(3, 0, 1, 2));
	expect_tokens(part, 0, "w", 0, 14);
	/* without its end, what a window holds is nothing */
	part = SLICE(whole, .blocks = RANGES({ 1, 3 }, { 4, 5 }));
	assert_int_equal(kvt_null_block(kvt_dump_snapshot(part), 0), 2);
	assert_int_equal(kvt_dump_snapshot(part)->nrequests, 0);
	part = SLICE(whole, .blocks = RANGES({ 1, 4 }));
	assert_int_equal(kvt_null_block(kvt_dump_snapshot(part), 0), -1);
	assert_int_equal(kvt_dump_snapshot(part)->nrequests, 0);
}

/* The last two of the three blocks that a window has left. */
static void test_tokens_of_a_window(void)
{
	struct kvt_dump *part;
	struct kvt_snapshot *s = new_snapshot();

	new_group(s, "g0", KVT_SLIDING_WINDOW, "LBKSHD", attention)->window = 8;
	add_request(s, "w", 14, IDS(5, 2, 3));
	part = SLICE(number_dump(s, 0), .tokens = RANGES({ 8, 14 }));
	expect_blocks(kvt_dump_group(part, 0), IDS64(2, 3));
	expect_tokens(part, 0, "w", 8, 6);
	expect_table(part, 0, 0, IDS(0, 1));
}

/* ---- components --------------------------------------------------------- */

static void test_keys_and_values(void)
{
	const struct kvt_slice_options keys = { .components = NAMES("k") };
	static const int64_t half[] = { 4, 6, 4, 4, 1, 3 };
	struct kvt_dump *whole = make_attention();
	struct kvt_dump *part = SLICE(whole, .components = NAMES("v"));

	expect_shape(kvt_dump_group(part, 0), half);
	assert_int_equal(kvt_group_half(kvt_dump_group(part, 0)), 1);
	refused(part, "no component 'k', the dump has v", &keys);
	part = slice(whole, &keys);
	assert_int_equal(kvt_group_half(kvt_dump_group(part, 0)), 0);
	part = SLICE(whole, .components = NAMES("v", "k"));
	expect_shape(kvt_dump_group(part, 0), attention);
	REFUSED(whole, "no component 'w', the dump has k, v", .components = NAMES("w"));
}

/* What is made of dumps is held to the same rule as a file: one layer, the same heads. */
static void test_joined_halves(void)
{
	struct kvt_dump *whole = make_attention();
	const struct kvt_dump *parts[] = {
		SLICE(whole, .components = NAMES("k"), .heads = RANGES({ 0, 1 })),
		SLICE(whole, .components = NAMES("v")),
	};
	struct kvt_patch patch[2] = { { .group = 0 }, { .group = 1 } };
	struct kvt_dump *out = NULL;
	struct kvt_snapshot info;

	kvt_snapshot_init(&info);
	info.ngroups = 2;
	for (int i = 0; i < 2; i++) {
		info.group[i] = *kvt_dump_group(parts[i], 0);
		strcpy(info.group[i].id, i ? "g0.v" : "g0.k");
		patch[i].nlayers = info.group[i].shape.n[NL];
		patch[i].nblocks = info.group[i].shape.n[NB];
	}
	expect(kvt_dump_join(&out, &info, parts, patch, 2, &why), KVT_BAD_INPUT,
	       "expected the same heads");
}

/* Attention and the SSM state are none of these; parts keep their order. */
static void test_parts(void)
{
	struct kvt_dump *whole = make_hybrid();
	struct kvt_dump *part = SLICE(whole, .components = NAMES("C", "x")), *inner;

	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 1);
	assert_int_equal(kvt_dump_group(part, 0)->shape.n[ND], 12);
	assert_int_equal(kvt_dump_group(part, 0)->ncomponents, 2);
	expect_part(part, 0, 0, "x", 0, 8, 0);
	expect_part(part, 0, 1, "C", 8, 4, 12);
	inner = SLICE(part, .components = NAMES("C"));
	expect_part(inner, 0, 0, "C", 0, 4, 12);
	part = SLICE(whole, .components = NAMES("C", "x"), .rank = { 2, 1 },
		     .mamba_groups = 2);
	expect_part(part, 0, 0, "x", 0, 4, 4);
	expect_part(part, 0, 1, "C", 4, 2, 14);
}

/* ---- from rank to rank -------------------------------------------------- */

static void test_transfer(void)
{
	const struct kvt_slice_options gives = { .rank = { 2, 0 }, .to = { 4, 1 } };
	struct kvt_dump *whole = make_attention();
	struct kvt_dump *part = slice(whole, &gives), *rank;

	expect_heads(part, 1, 1, 1);
	part = SLICE(whole, .rank = { 2, 0 }, .to = { 4, 2 });
	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 0);
	part = SLICE(whole, .rank = { 4, 3 }, .to = { 2, 1 });
	expect_heads(part, 3, 1, 1);
	rank = SLICE(whole, .rank = { 2, 1 });
	refused(rank, "the dump is that of rank 1 of 2, not of rank 0", &gives);
}

/* Of two ranks that hold one head, one gives it. */
static void test_transfer_of_replicas(void)
{
	int given[4] = { 0 };

	for (int r = 0; r < 8; r++) {
		struct kvt_dump *part = SLICE(make_attention(), .rank = { 8, r },
					      .to = { 1, 0 });

		if (kvt_dump_snapshot(part)->ngroups) {
			assert_int_equal(kvt_dump_group(part, 0)->head_start, r / 2);
			given[r / 2]++;
			}
	}
	for (int h = 0; h < 4; h++)
		assert_int_equal(given[h], 1);
}

static void test_transfer_of_states(void)
{
	struct kvt_dump *part = SLICE(make_hybrid(), .rank = { 2, 1 }, .to = { 4, 3 },
				      .mamba_groups = 2);

	assert_int_equal(kvt_dump_snapshot(part)->ngroups, 3);
	expect_part(part, 1, 0, "x", 0, 2, 6);
	expect_part(part, 1, 1, "B", 2, 2, 10);
	expect_part(part, 1, 2, "C", 4, 2, 14);
	assert_int_equal(kvt_dump_group(part, 1)->shape.n[ND], 6);
	assert_int_equal(kvt_dump_group(part, 2)->head_start, 3);
}

TESTS("slice",
	TEST(test_layers), TEST(test_groups_move_up), TEST(test_names_and_holes),
	TEST(test_blocks), TEST(test_ids_are_kept), TEST(test_not_there),
	TEST(test_no_layers), TEST(test_heads), TEST(test_ranks),
	TEST(test_rank_of_a_rank), TEST(test_rank_of_states), TEST(test_pages_shrink),
	TEST(test_requests), TEST(test_tokens), TEST(test_token_ids_and_holes),
	TEST(test_nobody_knows_tokens), TEST(test_null_block),
	TEST(test_tokens_of_a_window), TEST(test_keys_and_values),
	TEST(test_joined_halves), TEST(test_parts), TEST(test_transfer),
	TEST(test_transfer_of_replicas), TEST(test_transfer_of_states))
