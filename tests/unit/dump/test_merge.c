/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_merge.c - dumps of ranks as one, and which do not belong together
 *
 * Ranks are described by hand, not sliced, so that merge is not held against slice;
 * the last test does that.
 */
#include "tests/unit/fixture.h"

enum { MOST_RANKS = 8 };

/* 4 heads of attention, dealt to 'size' ranks. */
static struct kvt_snapshot *describe_rank(int64_t size, int64_t rank)
{
	int64_t heads = size > 4 ? 1 : 4 / size;
	const int64_t n[] = { 2, 4, 2, heads, 2, 3 };
	struct kvt_snapshot *s = snapshot_of("LBKSHD", n);

	set_rank(s, size, rank);
	s->group[0].total_heads = 4;
	s->group[0].head_start = rank * 4 / size;
	s->group[0].replication = size > 4 ? size / 4 : 1;
	add_request(s, "a", 5, IDS(2, 0, 1));
	return s;
}

/* Of 8 channels x and two groups of 2 channels of B and C, what one of 4 ranks has. */
static struct kvt_snapshot *describe_states(int64_t rank)
{
	static const int64_t conv_n[] = { 1, 2, 3, 1, 1, 6 };
	struct kvt_snapshot *s = new_snapshot();
	int64_t group = rank / 2;
	struct kvt_group *conv;

	set_rank(s, 4, rank);
	conv = new_group(s, "conv", KVT_MAMBA_CONV, "conv-sd", conv_n);
	add_part(conv, "x", 0, 2, 2 * rank);
	add_part(conv, "B", 2, 2, 8 + 2 * group);
	add_part(conv, "C", 4, 2, 12 + 2 * group);
	return s;
}

struct ranks {
	struct kvt_dump *at[MOST_RANKS];
};

static struct ranks make_ranks(int n)
{
	struct ranks ranks;

	for (int r = 0; r < n; r++)
		ranks.at[r] = number_dump(describe_rank(n, r), r % 4);
	return ranks;
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
		dumps[i] = ranks->at[order[i]];
		called[i] = names[order[i]];
	}
	return kvt_dump_merge(out, dumps, called, n, err);
}

static struct kvt_dump *merged(const struct ranks *ranks, int n, const int *order)
{
	struct kvt_dump *out;

	ok(merge(&out, ranks, order, n, &why));
	return keep_dump(out);
}

#define ORDER(...) LENGTH(((const int[]){ __VA_ARGS__ })), (const int[]){ __VA_ARGS__ }

static void refused(enum kvt_status status, const char *part, const struct ranks *ranks,
		    int n, const int *order)
{
	struct kvt_dump *out = NULL;

	expect(merge(&out, ranks, order, n, &why), status, part);
	assert_null(out);
}

/* Each element is that of the rank that is said to have it. */
static void check_owners(const struct kvt_dump *dump, const int *owner_of_head)
{
	EXPECT_NUMBERS(dump, 0, i, number_of(kvt_dump_group(dump, 0),
					     owner_of_head[i[NH]] % 4, i));
}

/* ---- what belongs together ---------------------------------------------- */

static void test_any_order(void)
{
	static const int orders[][4] = { { 0, 1, 2, 3 }, { 3, 1, 0, 2 }, { 2, 3, 1, 0 } };
	static const int64_t whole[] = { 2, 4, 2, 4, 2, 3 };
	struct ranks ranks = make_ranks(4);

	for (int i = 0; i < 3; i++) {
		struct kvt_dump *all = merged(&ranks, 4, orders[i]);
		const struct kvt_snapshot *s = kvt_dump_snapshot(all);

		expect_shape(&s->group[0], whole);
		assert_int_equal(s->group[0].head_start, 0);
		assert_int_equal(s->group[0].total_heads, 4);
		assert_int_equal(s->parallel.tp_size, 1);
		assert_int_equal(s->parallel.tp_rank, 0);
		expect_tokens(all, 0, "a", 0, 5);
		expect_table(all, 0, 0, IDS(2, 0, 1));
		check_owners(all, (const int[]){ 0, 1, 2, 3 });
	}
}

/* The first rank of those that hold a head gives it. */
static void test_replicas(void)
{
	struct ranks ranks = make_ranks(8);
	struct kvt_dump *all = merged(&ranks, ORDER(7, 6, 5, 4, 3, 2, 1, 0));

	assert_int_equal(kvt_dump_group(all, 0)->shape.n[NH], 4);
	assert_int_equal(kvt_dump_group(all, 0)->replication, 1);
	check_owners(all, (const int[]){ 0, 2, 4, 6 });
}

/* One rank of one is the whole. */
static void test_alone(void)
{
	struct made *m = make_dump(describe_rank(1, 0), placed, 0);
	struct ranks ranks = { { m->dump } };
	struct kvt_dump *all = merged(&ranks, ORDER(0));

	kvt_dump_close(m->dump);	/* its numbers stay */
	m->dump = NULL;
	check_owners(all, (const int[]){ 0, 0, 0, 0 });
}

/* B and C are there twice; x is dealt to all. */
static void test_conv_states(void)
{
	static const int owner[16] = { 0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 2, 2, 0, 0, 2, 2 };
	static const int64_t start[] = { 0, 8, 12 }, length[] = { 8, 4, 4 };
	struct ranks ranks;
	const struct kvt_group *g;
	struct kvt_dump *all;

	for (int r = 0; r < 4; r++)
		ranks.at[r] = number_dump(describe_states(r), r);
	all = merged(&ranks, ORDER(1, 3, 2, 0));
	g = kvt_dump_group(all, 0);
	assert_int_equal(g->shape.n[ND], 16);
	assert_int_equal(g->ncomponents, 3);
	for (int c = 0; c < 3; c++) {
		assert_int_equal(g->component[c].start, start[c]);
		assert_int_equal(g->component[c].length, length[c]);
		assert_int_equal(g->component[c].global_start, start[c]);
	}
	EXPECT_NUMBERS(all, 0, i, number_of(g, owner[i[ND]], i));
}

/* ---- what does not ------------------------------------------------------ */

static void test_missing_and_doubled(void)
{
	struct ranks ranks = make_ranks(4);

	refused(KVT_BAD_INPUT, "r3 is one of 4 ranks, and none of the files is rank 2",
		&ranks, ORDER(3, 0, 1));
	refused(KVT_BAD_INPUT, "r0 is one of 4 ranks, and none of the files is rank 3",
		&ranks, ORDER(2, 0, 1));
	refused(KVT_BAD_INPUT, "r1 and r1 are both rank 1 of 4", &ranks,
		ORDER(0, 1, 1, 3));
	ranks.at[1] = make_ranks(2).at[1];
	refused(KVT_BAD_INPUT, "r1 is one of 2 ranks, but r0 is one of 4", &ranks,
		ORDER(0, 1));
}

static void other_layers(struct kvt_snapshot *s)
{
	number_layers(&s->group[0], (const uint32_t[]){ 0, 2 });
}
static void other_table(struct kvt_snapshot *s) { s->request[0].blocks[0][1] = 1; }
static void other_tokens(struct kvt_snapshot *s) { s->request[0].ntokens = 6; }
static void other_request(struct kvt_snapshot *s) { s->request[0].id[0] = 'b'; }
static void other_model(struct kvt_snapshot *s) { s->model = strdup("another"); }

/* Rank 1 says something else, or both say what cannot be merged. */
static struct unlike {
	const char *what;		/* a part of the message, too */
	struct set set[3];
	void (*change)(struct kvt_snapshot *s);
	enum kvt_status both;		/* if it is so of both */
} unlike[] = {
	{ "r0 and r1 differ: g0: block size is 2 in one and 4 in the other",
	  { SET(group[0].block_size, 4), SET(group[0].tokens_per_slot, 2) }, NULL, 0 },
	{ "r0 and r1 differ: g0: layer", .change = other_layers },
	{ "r0 and r1 differ: g0: kind", { SET(group[0].kind, KVT_SLIDING_WINDOW) }, NULL,
	  0 },
	{ "window is 0 in one and 4 in the", { SET(group[0].window, 4) }, NULL, 0 },
	{ "extent is 3 in one and 2 in the", { SET(group[0].shape.n[ND], 2) }, NULL, 0 },
	{ "r0 and r1 differ: ", .change = other_table },
	{ "r0 and r1 differ: ", .change = other_tokens },
	{ "a: the other has a different request at this index", .change = other_request },
	{ "null block is -1 in one and 3 in", { SET(null_block, 3) }, NULL, 0 },
	{ "r0 and r1 differ: model", .change = other_model },
	{ "pp size is 1 in one and 2 in the",
	  { SET(parallel.pp_size, 2), SET(parallel.pp_rank, 1) }, NULL, 0 },
	{ "r1: g0: heads 2 to 2, but rank 1 of 2 holds 2 to 3",
	  { SET(group[0].shape.n[NH], 1) }, NULL, 0 },
	{ "r0: rank 0 of 2 context parallel ranks", { SET(parallel.dcp_size, 2) }, NULL,
	  KVT_UNSUPPORTED },
	{ "r0: g0 has no layers", { SET(group[0].shape.n[NL], 0) }, NULL, KVT_BAD_INPUT },
	{ "g0: it is not known how opaque content is divided among ranks",
	  { SET(group[0].kind, KVT_OPAQUE) }, NULL, KVT_UNSUPPORTED },
};

static void test_unlike(void **state)
{
	const struct unlike *c = *state;
	struct ranks ranks;

	for (int r = 0; r < 2; r++) {
		struct kvt_snapshot *s = describe_rank(2, r);

		if (r || c->both) {
			set_numbers(s, c->set);
			if (c->change)
				c->change(s);
		}
		ok(kvt_dump_of_constant(&ranks.at[r], s, 0, &why));
		keep_dump(ranks.at[r]);
	}
	refused(c->both ? c->both : KVT_BAD_INPUT, c->what, &ranks, ORDER(1, 0));
}

/* A part that nobody has between two that somebody has, and one that somebody lacks. */
static void test_parts(void)
{
	for (int lacks = 0; lacks < 2; lacks++) {
		struct ranks ranks;

		for (int r = 0; r < 4; r++) {
			struct kvt_snapshot *s = describe_states(r);

			if (!lacks && r == 2)
				s->group[0].component[0].global_start = 6;
			if (lacks && r == 3)
				strcpy(s->group[0].component[2].name, "D");
			ranks.at[r] = number_dump(s, r);
		}
		refused(KVT_BAD_INPUT, lacks ? "r3: conv has no part 'C', which r0 has" :
			"r1 and r2: channels of part x end at 4 and continue at 6",
				&ranks,
			ORDER(0, 1, 2, 3));
	}
}

/* ---- there and back ----------------------------------------------------- */

/* Ranks of a whole, of which the first two are ranks of a half. */
static void test_slices(void)
{
	static const int64_t conv_n[] = { 1, 2, 3, 1, 1, 16 }, n[] = { 2, 3, 2, 4, 2, 3 };
	struct kvt_snapshot *s = snapshot_of("LBKSHD", n);
	struct kvt_group *conv = new_group(s, "conv", KVT_MAMBA_CONV, "conv-sd", conv_n);
	struct kvt_dump *whole, *half, *all;
	struct ranks ranks;

	add_part(conv, "x", 0, 8, 0);
	add_part(conv, "B", 8, 4, 8);
	add_part(conv, "C", 12, 4, 12);
	whole = number_dump(s, 0);
	ok(kvt_dump_slice(&half, whole, &(struct kvt_slice_options){
		    .rank = { 2, 0 }, .mamba_groups = 2 }, &why));
	keep_dump(half);
	for (int r = 0; r < 4; r++) {
		const struct kvt_slice_options options = { .rank = { 4, r },
							   .mamba_groups = 2 };

		ok(kvt_dump_slice(&ranks.at[r], r < 2 ? half : whole, &options, &why));
		keep_dump(ranks.at[r]);
	}
	all = merged(&ranks, ORDER(0, 1, 2, 3));
	same_group(kvt_dump_group(all, 0), kvt_dump_group(whole, 0));
	same_group(kvt_dump_group(all, 1), kvt_dump_group(whole, 1));
	check_places(all, 0);
}

TESTS("merge",
	TEST(test_any_order), TEST(test_replicas), TEST(test_alone),
	TEST(test_conv_states), TEST(test_missing_and_doubled), EACH(unlike, test_unlike),
	TEST(test_parts), TEST(test_slices))
