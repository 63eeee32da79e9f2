/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transfer_refuse.c - transfers that cannot be, and plans that are wrong: each
 * is refused with the number that is, and the proof is shown to fail
 */
#include "lib/kvt/transfer.h"
#include "tests/unit/tests.h"

enum { POOL = 8, SLOTS = 4 };

/* 4 heads of 2 x 8 bytes, 4 tokens a block. */
static struct kvt_spec attention(int64_t heads)
{
	return (struct kvt_spec){ .kind = KVT_FULL_ATTENTION, .block_size = SLOTS,
				  .total_heads = heads, .elem = 1,
				  .tokens_per_slot = { 1, 1 }, .ncontent = 2,
				  .content = { 2, 8 }, .content_size = 16 };
}

/* Channels of x and of B and C, and their taps. */
static struct kvt_spec conv(int64_t heads, int64_t groups, int64_t taps)
{
	return (struct kvt_spec){ .kind = KVT_MAMBA_CONV, .block_size = SLOTS,
				  .total_heads = heads, .elem = 1,
				  .tokens_per_slot = { -1, 1 }, .ncontent = 2,
				  .content = { 2, taps }, .content_size = 2 * taps,
				  .nparts = 3,
				  .part = { { "x", heads, 2, false },
					    { "B", groups, 1, false },
					    { "C", groups, 1, false } } };
}

static enum kvt_status make(struct kvt_xfer_side *out, const struct kvt_spec *spec,
			    int64_t ranks, const char *axes, struct kvt_error *err)
{
	struct kvt_layout layout;

	if (kvt_layout_parse(&layout, axes, NULL))
		fail_msg("%s is no layout", axes);
	return kvt_xfer_side_init(out, spec, ranks, &layout, 2, POOL, NULL, 0, err);
}

static struct kvt_xfer_side side(const struct kvt_spec *spec, int64_t ranks,
				 const char *axes)
{
	struct kvt_xfer_side out;

	ok(make(&out, spec, ranks, axes, &why));
	return out;
}

/* ---- one side ----------------------------------------------------------- */

static void test_side(void)
{
	static const struct {
		int64_t ranks, layers, pool, offset, stride;
		const char *axes, *says;
	} rows[] = {
		{ 1, 0, 8, 0, 0, "L B S H C", "there are 0 layers, expected 1 to" },
		{ 1, INT64_MAX, 8, 0, 0, "L B S H C", "layers, expected 1 to" },
		{ 0, 2, 8, 0, 0, "L B S H C", "there are 0 ranks, expected 1 to" },
		{ 1 << 20, 2, 8, 0, 0, "L B S H C", "ranks, expected 1 to" },
		{ 1, 2, 0, 0, 0, "L B S H C", "there are 0 blocks in the pool" },
		{ 1, 2, INT64_C(1) << 32, 0, 0, "L B S H C", "expected 1 to 2^32 - 1" },
		{ 1, 2, 8, 0, 64, "L B S/2 H S%2 C", "the slot axis is split" },
		{ 1, 2, 8, INT64_MAX, 0, "L B S H C", "reaches outside 0 to 2^63" },
		{ 3, 2, 8, 0, 0, "L B S H C", "3" },
	};
	struct kvt_spec spec = attention(4);

	for (size_t i = 0; i < LENGTH(rows); i++) {
		int64_t strides[KVT_NAXES] = { [KVT_AXIS_S] = rows[i].stride };
		struct kvt_layout layout;
		struct kvt_xfer_side out;

		ok(kvt_layout_parse(&layout, rows[i].axes, NULL));
		expect(kvt_xfer_side_init(&out, &spec, rows[i].ranks, &layout,
					  rows[i].layers, rows[i].pool, strides,
					  rows[i].offset, &why), KVT_BAD_INPUT,
		       rows[i].says);
	}
	assert_null(kvt_scope_name(KVT_NSCOPES));
}

/* ---- two sides ---------------------------------------------------------- */

static void refused(const struct kvt_xfer_side *src, const struct kvt_xfer_side *dst,
		    enum kvt_status status, const char *says)
{
	struct kvt_block_span entry[] = { { .count = SLOTS } };
	struct kvt_xfer x;

	expect(kvt_xfer_init(&x, src, dst, entry, 1, &why), status, says);
}

static void test_sides(void)
{
	struct kvt_spec spec = attention(4), other, half = attention(4);
	struct kvt_xfer_side a = side(&spec, 2, "L B S H C"), b = a;

	b.replicas = KVT_MODULO;
	refused(&a, &b, KVT_BAD_INPUT,
		"in groups on one side and by modulo on the other");
	b = a;
	b.views.view[0].shape.n[KVT_AXIS_L] = 3;
	refused(&a, &b, KVT_BAD_INPUT,
		"the number of layers is 2 on the source and 3 on the destination");
	other = attention(8);
	b = side(&other, 2, "L B S H C");
	refused(&a, &b, KVT_BAD_INPUT, "8");
	b = a;
	b.views.view[0].shape.elem = 2;
	refused(&a, &b, KVT_BAD_INPUT, "the element size is 1 on the source and 2");
	b = side(&spec, 2, "L B S H K D");
	b.views.view[0].shape.n[KVT_AXIS_K] = 1;
	refused(&a, &b, KVT_BAD_INPUT, "the number of keys and values a slot is 2 ");
	b = side(&half, 2, "L B S H C");
	b.views.view[0].shape.n[KVT_AXIS_D] = 4;
	refused(&a, &b, KVT_BAD_INPUT, "the number of elements of a head is 8 ");
	/* what a caller put there must not let two elements share a byte */
	b = a;
	b.views.view[0].factor[1].stride = 8;
	refused(&a, &b, KVT_BAD_INPUT, "");
	b.views.view[0].factor[1].stride = INT64_MAX;
	refused(&b, &a, KVT_BAD_INPUT, "");
}

static void test_slots(void)
{
	struct kvt_spec four = conv(8, 4, 4), three = conv(8, 4, 3);
	struct kvt_xfer_side a = side(&four, 1, "L B D S");
	struct kvt_xfer_side b = side(&three, 1, "L B D S");
	struct kvt_block_span entry[] = { { .count = 1 } };
	struct kvt_xfer x;

	expect(kvt_xfer_init(&x, &a, &b, entry, 1, &why), KVT_BAD_INPUT, "");
	b = a;
	b.views.view[0].shape.n[KVT_AXIS_S] = 3;
	expect(kvt_xfer_init(&x, &a, &b, entry, 1, &why), KVT_BAD_INPUT,
	       "the number of taps is 4 on the source and 3 on the destination");
	/* 16 ranks replicate 8 heads twice and 4 groups four times */
	a = side(&four, 16, "L B D S");
	a.replicas = KVT_MODULO;
	expect(kvt_xfer_init(&x, &a, &a, entry, 1, &why), KVT_UNSUPPORTED,
	       "4 of B and 8 others cannot both be replicated by modulo");
}

static void test_planar(void)
{
	struct kvt_spec spec = attention(1);
	struct kvt_xfer_side a, b;
	struct kvt_block_span entry[] = { { .src_block = 5, .count = 3 } };
	struct kvt_xfer x;

	spec.planar = true;
	a = b = side(&spec, 1, "L B S H C");
	expect(kvt_xfer_init(&x, &a, &b, entry, 1, &why), KVT_UNSUPPORTED,
	       "3 of 4 slots of block 5 cannot be moved");
	spec.block_size = 2;
	b = side(&spec, 1, "L B S H C");
	entry[0].count = 2;
	expect(kvt_xfer_init(&x, &a, &b, entry, 1, &why), KVT_UNSUPPORTED,
	       "blocks of 4 slots cannot be cut to blocks of 2");
}

/* ---- entries ------------------------------------------------------------ */

static struct kvt_block_span span(int64_t from, int64_t src_slot, int64_t to,
				  int64_t dst_slot, int64_t count)
{
	return (struct kvt_block_span){ .src_block = from, .src_slot = src_slot,
					.dst_block = to, .dst_slot = dst_slot,
					.count = count };
}

static void test_entries(void)
{
	const struct {
		struct kvt_block_span e[2];
		const char *says;
	} rows[] = {
		{ { span(8, 0, 0, 0, 4) },
		  "block id 8 of the source is outside its pool of 8" },
		{ { span(-1, 0, 0, 0, 4) }, "block id -1 of the source" },
		{ { span(0, 0, 9, 0, 4) }, "block id 9 of the destination" },
		{ { span(0, 1, 0, 0, 4) },
		  "slots 1:5 of block 0 of the source are outside 0:4" },
		{ { span(0, 0, 3, 2, 3) }, "slots 2:5 of block 3 of the destination" },
		{ { span(0, 0, 0, 0, 0) }, "slots 0:0 of block 0" },
		{ { span(0, 0, 1, 0, 4), span(0, 2, 2, 2, 2) },
		  "slot 2 of block 0 of the source goes to blocks 1 and 2" },
		{ { span(1, 0, 3, 0, 4), span(2, 3, 3, 3, 1) },
		  "slot 3 of block 3 of the destination is written from blocks 1 and 2" },
	};
	struct kvt_spec spec = attention(4);
	struct kvt_xfer_side a = side(&spec, 1, "L B S H C");

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_block_span e[2] = { rows[i].e[0], rows[i].e[1] };
		struct kvt_xfer x;

		expect(kvt_xfer_init(&x, &a, &a, e, 1 + (e[1].count > 0), &why),
		       KVT_BAD_INPUT, rows[i].says);
	}
}

static void test_no_room(void)
{
	static const uint32_t ids[] = { 1, 2 };
	struct kvt_block_table t = { ids, 2, SLOTS, POOL, 0 };
	struct kvt_block_span e[2];
	int64_t n = 0;

	expect(kvt_xfer_entries(e, &n, 1, &t, &t, 0, 8, &why), KVT_SYSTEM,
	       "there is room for 1 entries");
	assert_int_equal(n, 0);
	expect(kvt_xfer_entries(e, &n, 2, &t, &t, 0, 9, &why), KVT_BAD_INPUT, "");
	ok(kvt_xfer_entries(e, &n, 2, &t, &t, 0, 8, &why));
	assert_int_equal(n, 2);
}

static void test_amount(void)
{
	struct kvt_spec spec = attention(4);
	struct kvt_xfer_side a = side(&spec, 1, "L B S H C");
	struct kvt_block_span e[] = { span(0, 0, 0, 0, 4) };
	int64_t bytes, unique;
	struct kvt_xfer x;

	ok(kvt_xfer_init(&x, &a, &a, e, 1, &why));
	x.slots = INT64_MAX / 8;
	expect(kvt_xfer_nbytes(&bytes, &unique, &x, &why), KVT_BAD_INPUT,
	       "are more than 2^63 bytes");
}

/* ---- walks -------------------------------------------------------------- */

/* A plan between these, of which a test then changes what it likes. */
static struct kvt_xfer planned(struct kvt_block_span *e, const struct kvt_spec *spec,
			       const char *src, const char *dst)
{
	struct kvt_xfer_side a = side(spec, 1, src), b = side(spec, 1, dst);
	struct kvt_xfer x;

	*e = span(0, 0, 0, 0, spec->nparts ? 1 : 4);
	if (kvt_xfer_init(&x, &a, &b, e, 1, &why))
		fail_msg("%s: %s", src, why.text);
	return x;
}

static void no_walk(const struct kvt_xfer *x, const char *says)
{
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_nest nest;
	struct kvt_pair pair;

	assert_true(kvt_pair_next(&pair, &walk, x));
	expect(kvt_nest_init(&nest, x, &pair, &why), KVT_UNSUPPORTED, says);
}

/* What cannot be walked by ascending source offset. */
static void test_nests(void **state)
{
	struct kvt_spec spec = attention(4), channels = conv(8, 4, 4);
	struct kvt_block_span e;
	struct kvt_xfer x;

	(void)state;
	x = planned(&e, &spec, "L B S%2 H S/2 C", "L B S H C");
	no_walk(&x, "inner part of the slot axis outside of the outer one");
	x = planned(&e, &spec, "L B S H C", "L B S H C");
	for (int i = 0; i < x.src.views.view[0].nfactors; i++)
		if (x.src.views.view[0].factor[i].axis == KVT_AXIS_H)
			x.src.views.view[0].factor[i].stride = 5;
	no_walk(&x, "the head stride of the source is 5, less than the 8 bytes");
	/* keys and values a byte apart, though they are in different orders */
	x = planned(&e, &spec, "K:L K B H S D V:L K B S H D", "L B S H C");
	x.src.views.view[1].offset = x.src.views.view[0].offset + 1;
	no_walk(&x, "keys and values of the source interleave in different ways");
	x = planned(&e, &channels, "L B D/2 S D%2", "L B D S");
	no_walk(&x, "the channels of a conv state are split");
	x = planned(&e, &channels, "L B D S", "L B D S");
	x.src.views.count = 2;
	no_walk(&x, "a conv state has two planes");
}

/* ---- the proof ---------------------------------------------------------- */

/* A plan that was right, with something changed in it afterwards. */
static void test_proof(void)
{
	struct kvt_spec spec = attention(4), few = attention(2);
	struct kvt_xfer_side a = side(&spec, 2, "L B S H C");
	struct kvt_xfer_side b = side(&spec, 4, "L B H S C");
	struct kvt_block_span e[] = { span(0, 0, 0, 0, 4), span(3, 0, 5, 0, 2) };
	struct kvt_move moves[64];
	struct kvt_proof proof;
	struct kvt_xfer x, wrong;

	ok(kvt_xfer_init(&x, &a, &b, e, 2, &why));
	ok(kvt_xfer_prove(&proof, &x, moves, &why));
	/* an entry is lost: 4 ranks of 1 head, 2 layers, 16 bytes a slot */
	wrong = x;
	wrong.nentries = 1;
	expect(kvt_xfer_prove(&proof, &wrong, moves, &why), KVT_MISMATCH,
	       "rank 0 is written 128 bytes, but holds 192 of the 6 slots that move");
	/* a slot of one of them */
	e[1].count = 1;
	expect(kvt_xfer_prove(&proof, &x, moves, &why), KVT_MISMATCH,
	       "rank 0 is written 160 bytes, but holds 192");
	e[1].count = 3;
	expect(kvt_xfer_prove(&proof, &x, moves, &why), KVT_MISMATCH,
	       "rank 0 is written 224 bytes, but holds 192");
	e[1].count = 2;
	/* a layer that the views have and the plan has not */
	wrong = x;
	wrong.layers = 1;
	expect(kvt_xfer_prove(&proof, &wrong, moves, &why), KVT_MISMATCH,
	       "rank 0 is written 192 bytes, but holds 96");
	/* heads that only one side has */
	wrong = x;
	wrong.src.spec = few;
	assert_int_not_equal(kvt_xfer_prove(&proof, &wrong, moves, &why), KVT_OK);
	ok(kvt_xfer_prove(&proof, &x, moves, &why));
}

TESTS("transfer refuse",
	TEST(test_side), TEST(test_sides), TEST(test_slots), TEST(test_planar),
	TEST(test_entries), TEST(test_no_room), TEST(test_amount),
	WITH(NULL, test_nests), TEST(test_proof))
