/* SPDX-License-Identifier: Apache-2.0 */
/* test_locate.c - tensors that groups share, take turns in, or have of their own */
#include "tests/unit/fixture.h"

/*
 * Two groups of 3 layers and 5 blocks whose pages have room for more: 1024
 * bytes of content in pages of 'page' bytes.
 */
static void two_groups(struct kvt_reader *r, int64_t page, int64_t second,
		       const char *layout)
{
	memset(r, 0, sizeof(*r));
	r->leaf.path = (char *)"made-up";
	kvt_snapshot_init(&r->leaf.snapshot);
	small_group(&r->leaf.snapshot, "a", layout, "bf16", false);
	small_group(&r->leaf.snapshot, "b", layout, "bf16", false);
	for (int g = 0; g < 2; g++)
		r->leaf.snapshot.group[g].page_bytes = page;
	r->leaf.snapshot.group[1].page_offset = second;
}

static int64_t offset_of(const struct kvt_reader *r, int group, int64_t layer,
			 int64_t block, int64_t *buffer)
{
	const int64_t index[KVT_NAXES] = { layer, block, 0, 0, 0, 1 };
	int64_t offset;

	ok(kvt_reader_locate(buffer, &offset, &r->leaf, KVT_MEMORY, group, index, &why));
	return offset;
}

static struct kvt_where place_at(const struct kvt_reader *r, int64_t buffer,
				 int64_t offset)
{
	struct kvt_where p;

	ok(kvt_reader_at(&p, &r->leaf, KVT_MEMORY, buffer, offset, &why));
	return p;
}

static void check_padding(const struct kvt_where *p, int group, int64_t layer,
			  int64_t block, int64_t byte)
{
	assert_int_equal(p->region, KVT_PADDING);
	assert_int_equal(p->group, group);
	assert_int_equal(p->index[NL], layer);
	assert_int_equal(p->index[NB], block);
	assert_int_equal(p->byte, byte);
}

/* Side by side in a page: one tensor, which needs no name. */
static void test_shared(void)
{
	struct kvt_reader r;
	struct kvt_where p;
	int64_t buffer;

	two_groups(&r, 2100, 1030, "nhd");
	assert_int_equal(offset_of(&r, 0, 1, 2, &buffer), 7 * 2100 + 2);
	assert_int_equal(buffer, 0);
	assert_int_equal(offset_of(&r, 1, 1, 2, &buffer), 7 * 2100 + 1030 + 2);
	assert_int_equal(buffer, 0);
	assert_null(kvt_reader_buffer_name(&r.leaf, KVT_MEMORY, 0));
	ok(kvt_reader_find_buffer(&buffer, &r.leaf, KVT_MEMORY, "b", NULL));
	assert_int_equal(buffer, 0);
	ok(kvt_reader_find_buffer(&buffer, &r.leaf, KVT_MEMORY, NULL, NULL));
	p = place_at(&r, 0, 7 * 2100 + 1030 + 3);
	assert_int_equal(p.region, KVT_ELEMENT);
	assert_int_equal(p.group, 1);
	assert_int_equal(p.index[NL], 1);
	assert_int_equal(p.index[NB], 2);
	assert_int_equal(p.index[ND], 1);
	assert_int_equal(p.byte, 1);
	assert_int_equal(p.begin, 0);
	assert_int_equal(p.end, 15 * 2100);
	p = place_at(&r, 0, 7 * 2100 + 1025);
	check_padding(&p, 0, 1, 2, 1025);
	p = place_at(&r, 0, 15 * 2100 - 1);
	check_padding(&p, 0, 2, 4, 2099);
	assert_int_equal(place_at(&r, 0, 15 * 2100).region, KVT_BEYOND);
}

/* One behind the other's last byte is beside it, whichever comes first. */
static void test_neighbours(void)
{
	struct kvt_group *third;
	struct kvt_reader r;
	int64_t buffer;

	two_groups(&r, 2100, 1024, "nhd");
	offset_of(&r, 1, 1, 2, &buffer);
	assert_int_equal(buffer, 0);
	two_groups(&r, 2100, 0, "nhd");
	r.leaf.snapshot.group[0].page_offset = 1024;
	offset_of(&r, 1, 1, 2, &buffer);
	assert_int_equal(buffer, 0);
	/* a third one on the first: they take turns, all three */
	third = small_group(&r.leaf.snapshot, "c", "nhd", "bf16", false);
	third->page_bytes = 2100;
	third->page_offset = 1025;
	offset_of(&r, 1, 1, 2, &buffer);
	assert_int_equal(buffer, 1);
}

/* Pages of one block over all layers lie together. */
static void test_blocks_outermost(void)
{
	struct kvt_reader r;
	struct kvt_where p;
	int64_t buffer;

	two_groups(&r, 2100, 1024, "blshc");
	assert_int_equal(offset_of(&r, 0, 1, 2, &buffer), 7 * 2100 + 2);
	p = place_at(&r, 0, 11 * 2100 + 2050);
	check_padding(&p, 0, 2, 3, 2050);
}

/* What only one of both can hold at a time has no place in one tensor. */
static void test_turns(void)
{
	struct kvt_reader r;
	struct kvt_where p;
	int64_t buffer;

	two_groups(&r, 1100, 8, "nhd");
	for (int g = 0; g < 2; g++) {
		assert_int_equal(offset_of(&r, g, 1, 2, &buffer), 7 * 1100 + 8 * g + 2);
		assert_int_equal(buffer, g);
		p = place_at(&r, g, 7 * 1100 + 8 * g + 2);
		assert_int_equal(p.region, KVT_ELEMENT);
		assert_int_equal(p.group, g);
		p = place_at(&r, g, 7 * 1100 + 1099);
		check_padding(&p, g, 1, 2, 1099);
	}
	p = place_at(&r, 1, 3);
	check_padding(&p, 1, 0, 0, 3);
	assert_string_equal(kvt_reader_buffer_name(&r.leaf, KVT_MEMORY, 1), "b");
	expect(kvt_reader_find_buffer(&buffer, &r.leaf, KVT_MEMORY, NULL, &why),
	       KVT_USAGE, "has 2 tensors");
	ok(kvt_reader_find_buffer(&buffer, &r.leaf, KVT_MEMORY, "b", NULL));
	assert_int_equal(buffer, 1);
}

/* Without room to spare there are no pages, only arrays. */
static void test_dense(void)
{
	const int64_t beyond[KVT_NAXES] = { 0, 5 }, below[KVT_NAXES] = { 0, -1 };
	struct kvt_reader r;
	int64_t buffer, offset;

	two_groups(&r, 1024, 0, "bhlsc");
	/* (((2*2+0)*3+1)*16+0)*16+1 elements */
	assert_int_equal(offset_of(&r, 1, 1, 2, &buffer), 2 * (13 * 256 + 1));
	assert_int_equal(buffer, 1);
	assert_int_equal(place_at(&r, 1, 15 * 1024).region, KVT_BEYOND);
	expect(kvt_reader_locate(&buffer, &offset, &r.leaf, KVT_MEMORY, 0, beyond, &why),
	       KVT_USAGE, "outside group a");
	expect(kvt_reader_locate(&buffer, &offset, &r.leaf, KVT_MEMORY, 0, below, &why),
	       KVT_USAGE, "outside group a");
	expect(kvt_reader_locate(&buffer, &offset, &r.leaf, KVT_MEMORY, 2, beyond, &why),
	       KVT_USAGE, "no group 2");
}

/* Neither blocks nor bytes. */
static void test_empty(void)
{
	struct kvt_reader r;

	two_groups(&r, 2100, 1030, "nhd");
	r.leaf.snapshot.group[0].shape.n[NB] = r.leaf.snapshot.group[1].shape.n[NB] = 0;
	assert_int_equal(place_at(&r, 0, 0).region, KVT_BEYOND);
}

TESTS("place",
	TEST(test_shared), TEST(test_neighbours), TEST(test_blocks_outermost),
	TEST(test_turns), TEST(test_dense), TEST(test_empty))
