/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_merge.c - dumps of ranks as one, and which do not belong together
 *
 * Ranks are described by hand, not sliced, so that merge is not held against slice;
 * the last test does that.
 */
#include "tests/unit/dump/places.h"

enum { MOST_RANKS = 8 };

/* 4 heads of attention, dealt to 'size' ranks. */
static struct kvt_group *describe_rank(struct kvt_snapshot *s, int64_t size, int64_t rank)
{
	int64_t heads = size > 4 ? 1 : 4 / size;
	const int64_t n[] = { 2, 4, 2, heads, 2, 3 };
	struct kvt_group *g;

	kvt_snapshot_init(s);
	set_rank(s, size, rank);
	g = new_group(s, "g0", KVT_FULL_ATTENTION, "LBKSHD", n);
	g->total_heads = 4;
	g->head_start = rank * 4 / size;
	g->replication = size > 4 ? size / 4 : 1;
	add_request(s, "a", 5, 3, (const uint32_t[]){ 2, 0, 1 });
	return g;
}

/* Of 8 channels x and two groups of 2 channels of B and C, what one of 4 ranks has. */
static void describe_states(struct kvt_snapshot *s, int64_t rank)
{
	static const int64_t conv_n[] = { 1, 2, 3, 1, 1, 6 };
	int64_t group = rank / 2;
	struct kvt_group *conv;

	kvt_snapshot_init(s);
	set_rank(s, 4, rank);
	conv = new_group(s, "conv", KVT_MAMBA_CONV, "conv-sd", conv_n);
	add_part(conv, "x", 0, 2, 2 * rank);
	add_part(conv, "B", 2, 2, 8 + 2 * group);
	add_part(conv, "C", 4, 2, 12 + 2 * group);
}

struct ranks {
	int n;
	struct placed_dump at[MOST_RANKS];
};

static struct ranks make_ranks(int n)
{
	struct ranks ranks = { .n = n };

	for (int r = 0; r < n; r++) {
		struct kvt_snapshot s;

		describe_rank(&s, n, r);
		ranks.at[r] = number_dump(&s, r % 4);
	}
	return ranks;
}

static void drop_ranks(struct ranks *ranks)
{
	for (int r = 0; r < ranks->n; r++)
		drop_dump(&ranks->at[r]);
}

static const char *const names[] = {
	"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7",
};

/* Those of order[], whose names are those of their ranks. */
static enum kvt_status merge(struct kvt_dump **out, const struct ranks *ranks,
			     const int *order, int n, struct kvt_error *err)
{
	const struct kvt_dump *dumps[MOST_RANKS];
	const char *called[MOST_RANKS];

	for (int i = 0; i < n; i++) {
		dumps[i] = ranks->at[order[i]].dump;
		called[i] = names[order[i]];
	}
	return kvt_dump_merge(out, dumps, called, n, err);
}

static void refused(const struct ranks *ranks, const int *order, int n,
		    enum kvt_status status, const char *part)
{
	struct kvt_dump *out = NULL;

	expect(merge(&out, ranks, order, n, &why), status, part);
	assert_null(out);
}

/* Each element is that of the rank that is said to have it. */
static void check_owners(const struct kvt_dump *dump, const int *owner_of_head)
{
	const struct kvt_group *g = kvt_dump_group(dump, 0);
	struct kvt_box all = kvt_box_whole(&g->shape);
	uint32_t *numbers = read_numbers(dump, 0), *at = numbers;
	int64_t i[KVT_NAXES] = { 0 };

	do
		expect_number(*at++, number_of(g, owner_of_head[i[NH]] % 4, i), i);
	while (next_index(i, &all));
	free(numbers);
}

/* ---- what belongs together ---------------------------------------------- */

static void test_any_order(void)
{
	static const int orders[][4] = { { 0, 1, 2, 3 }, { 3, 1, 0, 2 }, { 2, 3, 1, 0 } };
	static const int64_t whole[] = { 2, 4, 2, 4, 2, 3 };
	struct ranks ranks = make_ranks(4);

	for (int i = 0; i < 3; i++) {
		const struct kvt_snapshot *s;
		struct kvt_dump *all;

		ok(merge(&all, &ranks, orders[i], 4, &why));
		s = kvt_dump_snapshot(all);
		expect_shape(&s->group[0], whole);
		assert_int_equal(s->group[0].head_start, 0);
		assert_int_equal(s->group[0].total_heads, 4);
		assert_int_equal(s->parallel.tp_size, 1);
		assert_int_equal(s->parallel.tp_rank, 0);
		expect_tokens(all, 0, "a", 0, 5);
		expect_table(all, 0, 0, 3, (const uint32_t[]){ 2, 0, 1 });
		check_owners(all, (const int[]){ 0, 1, 2, 3 });
		kvt_dump_close(all);
	}
	drop_ranks(&ranks);
}

/* The first rank of those that hold a head gives it. */
static void test_replicas(void)
{
	static const int order[] = { 7, 6, 5, 4, 3, 2, 1, 0 };
	struct ranks ranks = make_ranks(8);
	struct kvt_dump *all;

	ok(merge(&all, &ranks, order, 8, &why));
	assert_int_equal(kvt_dump_group(all, 0)->shape.n[NH], 4);
	assert_int_equal(kvt_dump_group(all, 0)->replication, 1);
	check_owners(all, (const int[]){ 0, 2, 4, 6 });
	kvt_dump_close(all);
	drop_ranks(&ranks);
}

/* One rank of one is the whole. */
static void test_alone(void)
{
	struct ranks ranks = make_ranks(1);
	struct kvt_dump *all;

	ok(merge(&all, &ranks, (const int[]){ 0 }, 1, &why));
	kvt_dump_close(ranks.at[0].dump);	/* its numbers stay */
	ranks.at[0].dump = NULL;
	check_owners(all, (const int[]){ 0, 0, 0, 0 });
	kvt_dump_close(all);
	drop_ranks(&ranks);
}

/* B and C are there twice; x is dealt to all. */
static void test_conv_states(void)
{
	static const int owner[16] = { 0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 2, 2, 0, 0, 2, 2 };
	struct ranks ranks = { .n = 4 };
	const struct kvt_group *g;
	struct kvt_dump *all;
	struct kvt_box box;
	uint32_t *numbers, *at;
	int64_t i[KVT_NAXES] = { 0 };

	for (int r = 0; r < 4; r++) {
		struct kvt_snapshot s;

		describe_states(&s, r);
		ranks.at[r] = number_dump(&s, r);
	}
	ok(merge(&all, &ranks, (const int[]){ 1, 3, 2, 0 }, 4, &why));
	g = kvt_dump_group(all, 0);
	assert_int_equal(g->shape.n[ND], 16);
	assert_int_equal(g->ncomponents, 3);
	for (int c = 0; c < 3; c++) {
		static const int64_t start[] = { 0, 8, 12 }, length[] = { 8, 4, 4 };

		assert_int_equal(g->component[c].start, start[c]);
		assert_int_equal(g->component[c].length, length[c]);
		assert_int_equal(g->component[c].global_start, start[c]);
	}
	box = kvt_box_whole(&g->shape);
	numbers = at = read_numbers(all, 0);
	do
		expect_number(*at++, number_of(g, owner[i[ND]], i), i);
	while (next_index(i, &box));
	free(numbers);
	kvt_dump_close(all);
	drop_ranks(&ranks);
}

/* ---- what does not ------------------------------------------------------ */

static void test_missing_and_doubled(void)
{
	struct ranks ranks = make_ranks(4), other = make_ranks(2);

	refused(&ranks, (const int[]){ 3, 0, 1 }, 3, KVT_BAD_INPUT,
		"r3 is one of 4 ranks, and none of the files is rank 2");
	refused(&ranks, (const int[]){ 2, 0, 1 }, 3, KVT_BAD_INPUT,
		"r0 is one of 4 ranks, and none of the files is rank 3");
	refused(&ranks, (const int[]){ 0, 1, 1, 3 }, 4, KVT_BAD_INPUT,
		"r1 and r1 are both rank 1 of 4");
	ranks.n = 2;	/* of other sizes */
	drop_dump(&ranks.at[2]);
	drop_dump(&ranks.at[3]);
	drop_dump(&ranks.at[1]);
	ranks.at[1] = other.at[1];
	refused(&ranks, (const int[]){ 0, 1 }, 2, KVT_BAD_INPUT,
		"r1 is one of 2 ranks, but r0 is one of 4");
	drop_ranks(&ranks);
	drop_dump(&other.at[0]);
}

static void other_block_size(struct kvt_snapshot *s)
{
	s->group[0].block_size = 4;
	s->group[0].tokens_per_slot = 2;
}

static void other_layers(struct kvt_snapshot *s)
{
	number_layers(&s->group[0], (const uint32_t[]){ 0, 2 });
}

static void other_kind(struct kvt_snapshot *s)
{
	s->group[0].kind = KVT_SLIDING_WINDOW;
}

static void other_window(struct kvt_snapshot *s)
{
	s->group[0].window = 4;
}

static void other_extent(struct kvt_snapshot *s)
{
	s->group[0].shape.n[ND] = 2;
}

static void other_table(struct kvt_snapshot *s)
{
	s->request[0].blocks[0][1] = 1;
}

static void other_tokens(struct kvt_snapshot *s)
{
	s->request[0].ntokens = 6;
}

static void other_request(struct kvt_snapshot *s)
{
	s->request[0].id[0] = 'b';
}

static void other_null(struct kvt_snapshot *s)
{
	s->null_block = 3;
}

static void other_model(struct kvt_snapshot *s)
{
	s->model = strdup("another");
}

static void other_stage(struct kvt_snapshot *s)
{
	s->parallel.pp_size = 2;
	s->parallel.pp_rank = 1;
}

static void other_heads(struct kvt_snapshot *s)
{
	s->group[0].shape.n[NH] = 1;
}

static void context_parallel(struct kvt_snapshot *s)
{
	s->parallel.dcp_size = 2;
}

static void no_layers(struct kvt_snapshot *s)
{
	s->group[0].shape.n[NL] = 0;
}

static void opaque(struct kvt_snapshot *s)
{
	s->group[0].kind = KVT_OPAQUE;
}

/* Rank 1 says something else, or both say what cannot be merged. */
static void test_unlike(void)
{
	static const struct {
		void (*change)(struct kvt_snapshot *s);
		bool both;
		enum kvt_status status;
		const char *text;
	} cases[] = {
		{ other_block_size, false, KVT_BAD_INPUT,
		  "r0 and r1 differ: g0: block size is 2 in one and 4 in the other" },
		{ other_layers, false, KVT_BAD_INPUT, "r0 and r1 differ: g0: layer" },
		{ other_kind, false, KVT_BAD_INPUT, "r0 and r1 differ: g0: kind" },
		{ other_window, false, KVT_BAD_INPUT, "window is 0 in one and 4 in the" },
		{ other_extent, false, KVT_BAD_INPUT, "extent is 3 in one and 2 in the" },
		{ other_table, false, KVT_BAD_INPUT, "r0 and r1 differ: " },
		{ other_tokens, false, KVT_BAD_INPUT, "r0 and r1 differ: " },
		{ other_request, false, KVT_BAD_INPUT,
		  "a: the other has a different request at this index" },
		{ other_null, false, KVT_BAD_INPUT, "null block is -1 in one and 3 in" },
		{ other_model, false, KVT_BAD_INPUT, "r0 and r1 differ: model" },
		{ other_stage, false, KVT_BAD_INPUT, "pp size is 1 in one and 2 in the" },
		{ other_heads, false, KVT_BAD_INPUT,
		  "r1: g0: heads 2 to 2, but rank 1 of 2 holds 2 to 3" },
		{ context_parallel, true, KVT_UNSUPPORTED,
		  "r0: rank 0 of 2 context parallel ranks" },
		{ no_layers, true, KVT_BAD_INPUT, "r0: g0 has no layers" },
		{ opaque, true, KVT_UNSUPPORTED,
		  "g0: it is not known how opaque content is divided among ranks" },
	};

	for (size_t i = 0; i < LENGTH(cases); i++) {
		struct ranks ranks = { .n = 2 };

		for (int r = 0; r < 2; r++) {
			struct kvt_snapshot s;

			describe_rank(&s, 2, r);
			if (r || cases[i].both)
				cases[i].change(&s);
			ok(kvt_dump_of_constant(&ranks.at[r].dump, &s, 0, &why));
			kvt_snapshot_free(&s);
		}
		refused(&ranks, (const int[]){ 1, 0 }, 2, cases[i].status, cases[i].text);
		drop_ranks(&ranks);
	}
}

/* A part that nobody has between two that somebody has. */
static void test_gap_of_channels(void)
{
	struct ranks ranks = { .n = 4 };

	for (int r = 0; r < 4; r++) {
		struct kvt_snapshot s;

		describe_states(&s, r);
		if (r == 2)
			s.group[0].component[0].global_start = 6;
		ranks.at[r] = number_dump(&s, r);
	}
	refused(&ranks, (const int[]){ 0, 1, 2, 3 }, 4, KVT_BAD_INPUT,
		"r1 and r2: channels of part x end at 4 and continue at 6");
	drop_ranks(&ranks);
}

static void test_lacks_a_part(void)
{
	struct ranks ranks = { .n = 4 };

	for (int r = 0; r < 4; r++) {
		struct kvt_snapshot s;

		describe_states(&s, r);
		if (r == 3)
			strcpy(s.group[0].component[2].name, "D");
		ranks.at[r] = number_dump(&s, r);
	}
	refused(&ranks, (const int[]){ 0, 1, 2, 3 }, 4, KVT_BAD_INPUT,
		"r3: conv has no part 'C', which r0 has");
	drop_ranks(&ranks);
}

/* ---- there and back ----------------------------------------------------- */

/* Ranks of a whole, of which the first two are ranks of a half. */
static void test_slices(void)
{
	static const int64_t conv_n[] = { 1, 2, 3, 1, 1, 16 }, n[] = { 2, 3, 2, 4, 2, 3 };
	const struct kvt_dump *dumps[4];
	struct kvt_dump *rank[4], *half, *all;
	struct placed_dump whole;
	struct kvt_snapshot s;
	struct kvt_group *conv;

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, "LBKSHD", n);
	conv = new_group(&s, "conv", KVT_MAMBA_CONV, "conv-sd", conv_n);
	add_part(conv, "x", 0, 8, 0);
	add_part(conv, "B", 8, 4, 8);
	add_part(conv, "C", 12, 4, 12);
	whole = number_dump(&s, 0);
	ok(kvt_dump_slice(&half, whole.dump, &(struct kvt_slice_options){
		    .rank = { 2, 0 }, .mamba_groups = 2 }, &why));
	for (int r = 0; r < 4; r++) {
		const struct kvt_slice_options options = { .rank = { 4, r },
							   .mamba_groups = 2 };

		ok(kvt_dump_slice(&rank[r], r < 2 ? half : whole.dump, &options, &why));
		dumps[r] = rank[r];
	}
	ok(kvt_dump_merge(&all, dumps, names, 4, &why));
	same_group(kvt_dump_group(all, 0), kvt_dump_group(whole.dump, 0));
	same_group(kvt_dump_group(all, 1), kvt_dump_group(whole.dump, 1));
	check_places(all, 0);
	kvt_dump_close(all);
	for (int r = 0; r < 4; r++)
		kvt_dump_close(rank[r]);
	kvt_dump_close(half);
	drop_dump(&whole);
}

TESTS("merge",
	TEST(test_any_order),
	TEST(test_replicas),
	TEST(test_alone),
	TEST(test_conv_states),
	TEST(test_missing_and_doubled),
	TEST(test_unlike),
	TEST(test_gap_of_channels),
	TEST(test_lacks_a_part),
	TEST(test_slices))
