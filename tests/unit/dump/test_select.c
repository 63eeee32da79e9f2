/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_select.c - explicit indices, a group of other bytes, and leaves of memory
 */
#include "tests/unit/fixture.h"

static const int64_t extents[] = { 3, 4, 2, 3, 2, 4 };

/* Two groups of one shape; who 0. */
static struct kvt_dump *make(void)
{
	struct kvt_snapshot *s = new_snapshot();

	new_group(s, "g0", KVT_FULL_ATTENTION, "LBKSHD", extents);
	number_layers(&s->group[0], (const uint32_t[]){ 4, 5, 6 });
	new_group(s, "g1", KVT_FULL_ATTENTION, "BLHSKD", extents);
	number_layers(&s->group[1], (const uint32_t[]){ 7, 8, 9 });
	add_request(s, "a", 3, IDS(3, 1));
	add_table(s, 1, IDS(0, 2));
	return number_dump(s, 0);
}

/* ---- select ------------------------------------------------------------- */

static const int64_t layers[] = { 2, 0, 2 }, blocks[] = { 3, 0 };

/* Layers twice, blocks backwards, heads from the second on, and values only. */
static void test_indices(void)
{
	static const struct kvt_segment channels[] = { { 0, 2, 2 }, { 2, 0, 1 } };
	static const int64_t wanted[] = { 3, 2, 2, 2, 1, 3 }, channel_of[] = { 2, 3, 0 };
	const struct kvt_select select = {
		.group = 1, .nlayers = 3, .nblocks = 2, .layer = layers, .block = blocks,
		.heads = { 0, 1, 2 }, .kv = { 0, 1, 1 }, .nchannels = 2,
		.channel = channels,
	};
	struct kvt_dump *dump = make();
	struct kvt_dump *out;

	ok(kvt_dump_select(&out, dump, &select, &why));
	keep_dump(out);
	assert_int_equal(kvt_dump_snapshot(out)->ngroups, 1);
	assert_int_equal(kvt_dump_snapshot(out)->nrequests, 0);
	expect_shape(kvt_dump_group(out, 0), wanted);
	assert_null(kvt_dump_group(out, 0)->layer_ids);
	assert_true(kvt_layout_equal(&kvt_dump_group(out, 0)->layout,
				     &kvt_dump_group(dump, 1)->layout));
	EXPECT_NUMBERS(out, 0, i, place_number(0, 7 + layers[i[NL]], blocks[i[NB]], i[NS],
					       1 + i[NH], 1, channel_of[i[ND]]));
}

/* A gap between channels, and heads that the dump does not have. */
static void test_short(void)
{
	static const struct kvt_segment gap[] = { { 0, 0, 1 }, { 3, 1, 1 } };
	static const struct kvt_segment whole[] = { { 0, 0, 4 } };
	struct kvt_select select = {
		.group = 0, .nlayers = 3, .nblocks = 2, .layer = layers, .block = blocks,
		.heads = { 0, 0, 3 }, .kv = { 0, 0, 2 }, .nchannels = 2, .channel = gap,
	};
	struct kvt_dump *dump = make(), *out = NULL;

	expect(kvt_dump_select(&out, dump, &select, &why), KVT_BAD_INPUT,
	       "slots of g0 lack 12 elements");	/* 3 heads, k and v, 2 channels */
	select.nchannels = 1;
	select.channel = whole;
	select.heads = (struct kvt_segment){ 0, 1, 3 };
	expect(kvt_dump_select(&out, dump, &select, &why), KVT_BAD_INPUT,
	       "slots of g0 lack 8 elements");	/* one head */
	assert_null(out);
}

/* ---- replace ------------------------------------------------------------ */

static void test_replace(void)
{
	struct kvt_dump *dump = make();
	const struct kvt_group *g = kvt_dump_group(dump, 0);
	struct kvt_box all = kvt_box_whole(&g->shape);
	uint32_t *numbers = room((size_t)box_bytes(g, &all));
	struct kvt_group there = *g;
	int64_t i[KVT_NAXES] = { 0 };
	struct kvt_dump *out;

	ok(kvt_layout_parse(&there.layout, "HDBLKS", NULL));
	do
		numbers[dense_at(&there, &all, i) / 4] = number_of(g, 3, i);
	while (next_index(i, &all));
	ok(kvt_dump_replace(&out, dump, 0, &there.layout, numbers, &why));
	keep_dump(out);
	same_snapshot(kvt_dump_snapshot(out), kvt_dump_snapshot(dump));
	EXPECT_NUMBERS(out, 0, j, number_of(g, 3, j));
	EXPECT_NUMBERS(out, 1, j, number_of(kvt_dump_group(dump, 1), 0, j));
}

static void test_replace_refused(void)
{
	struct made *m = make_dump(snapshot_of("LBKSHD", extents), placed, 0);
	struct kvt_dump *out = NULL;
	struct kvt_layout layout;

	ok(kvt_layout_parse(&layout, "LBKHDS", NULL));
	expect(kvt_dump_replace(&out, m->dump, 2, &layout, m->bytes[0], &why),
	       KVT_USAGE, "there is no group 2");
	expect(kvt_dump_replace(&out, m->dump, -1, &layout, m->bytes[0], &why),
	       KVT_USAGE, "there is no group -1");
	ok(kvt_layout_parse(&layout, "L B K H S/4 D S%4", NULL));
	expect(kvt_dump_replace(&out, m->dump, 0, &layout, m->bytes[0], &why),
	       KVT_BAD_INPUT, "group g0: layout");
	assert_null(out);
}

/* ---- leaves ------------------------------------------------------------- */

static void test_memory(void)
{
	struct kvt_dump *dump = make();
	const struct kvt_dump *leaf;
	int64_t there[KVT_NAXES], i[KVT_NAXES] = { 1, 2, 1, 2, 0, 3 }, buffer, offset;
	int group = -1;

	check_places(dump, 0);
	assert_string_equal(kvt_dump_format(dump), "memory");
	assert_string_equal(kvt_dump_path(dump), "");
	assert_int_equal(kvt_dump_files(dump), 0);
	assert_null(kvt_dump_tiling(dump, 0));
	assert_false(kvt_dump_has_cells(dump, 0));
	assert_ptr_equal(kvt_dump_leaf(dump, 0), dump);
	assert_null(kvt_dump_leaf(dump, 1));
	leaf = kvt_dump_trace(dump, 1, i, &group, there);
	assert_ptr_equal(leaf, dump);
	assert_int_equal(group, 1);
	assert_memory_equal(i, there, sizeof(i));
	expect(kvt_dump_locate(&buffer, &offset, dump, KVT_FILES, 0, i, &why),
	       KVT_UNSUPPORTED, NULL);
}

/* What is said of the bytes is checked. */
static void test_memory_refused(void)
{
	const void *bytes[KVT_MAX_GROUPS] = { extents };
	struct kvt_dump *out = NULL;
	struct kvt_snapshot *s = new_snapshot();

	new_group(s, "g0", KVT_FULL_ATTENTION, "LBKSHD", extents)->block_size = 3;
	expect(kvt_dump_of_memory(&out, s, bytes, &why), KVT_BAD_INPUT,
	       "group g0: 2 slots a block, expected 3");
	expect(kvt_dump_of_constant(&out, s, 0, &why), KVT_BAD_INPUT,
	       "group g0: 2 slots a block, expected 3");
	assert_null(out);
}

static void test_constant(void)
{
	struct kvt_snapshot *s = snapshot_of("LBKSHD", extents);
	struct kvt_dump *dump;

	ok(kvt_dump_of_constant(&dump, s, 0xc3, &why));
	keep_dump(dump);
	drop_now(s);		/* it was copied */
	assert_string_equal(kvt_dump_format(dump), "constant");
	EXPECT_NUMBERS(dump, 0, i, 0xc3c3c3c3);
}

TESTS("select",
	TEST(test_indices), TEST(test_short), TEST(test_replace),
	TEST(test_replace_refused), TEST(test_memory), TEST(test_memory_refused),
	TEST(test_constant))
