/* SPDX-License-Identifier: Apache-2.0 */
/* test_blockmap.c - spans between block tables against one slot at a time */
#include "lib/kvt/connect.h"
#include "tests/unit/tests.h"

enum { POOL = 64 };

/* ---- written down -------------------------------------------------------- */

struct map_case {
	const char *what;
	int src_slots, dst_slots, begin, end;
	enum kvt_block_join join;
	uint32_t src[8], dst[8];
	struct kvt_block_span span[10];	/* count 0 ends them */
};

static struct map_case cases[] = {
	{ "one size: a span for each block", 4, 4, 0, 10, KVT_JOIN_NONE,
	  { 5, 6, 9 }, { 1, 2, 3 },
	  { { 5, 0, 1, 0, 4, 0 }, { 6, 0, 2, 0, 4, 0 }, { 9, 0, 3, 0, 2, 0 } } },
	{ "whole blocks in a row, and the rest", 4, 4, 0, 14, KVT_JOIN_BLOCKS,
	  { 5, 6, 9, 10 }, { 1, 2, 3, 4 },
	  { { 5, 0, 1, 0, 8, 2 }, { 9, 0, 3, 0, 4, 1 }, { 10, 0, 4, 0, 2, 0 } } },
	{ "blocks in a row on one side only", 4, 4, 0, 8, KVT_JOIN_BLOCKS,
	  { 5, 6 }, { 2, 1 }, { { 5, 0, 2, 0, 4, 1 }, { 6, 0, 1, 0, 4, 1 } } },
	{ "descending blocks are not in a row", 4, 4, 0, 8, KVT_JOIN_SLOTS,
	  { 6, 5 }, { 2, 1 }, { { 6, 0, 2, 0, 4, 0 }, { 5, 0, 1, 0, 4, 0 } } },
	{ "16 to 24: both sides end spans", 16, 24, 0, 48, KVT_JOIN_NONE,
	  { 0, 1, 2 }, { 0, 1 },
	  { { 0, 0, 0, 0, 16, 0 }, { 1, 0, 0, 16, 8, 0 },
	    { 1, 8, 1, 0, 8, 0 }, { 2, 0, 1, 8, 16, 0 } } },
	{ "16 to 24, pools that are one row", 16, 24, 0, 48, KVT_JOIN_SLOTS,
	  { 0, 1, 2 }, { 0, 1 }, { { 0, 0, 0, 0, 48, 0 } } },
	{ "4 to 6: 24 slots in 8 entries", 4, 6, 0, 24, KVT_JOIN_NONE,
	  { 0, 1, 2, 3, 4, 5 }, { 0, 1, 2, 3 },
	  { { 0, 0, 0, 0, 4, 0 }, { 1, 0, 0, 4, 2, 0 }, { 1, 2, 1, 0, 2, 0 },
	    { 2, 0, 1, 2, 4, 0 }, { 3, 0, 2, 0, 4, 0 }, { 4, 0, 2, 4, 2, 0 },
	    { 4, 2, 3, 0, 2, 0 }, { 5, 0, 3, 2, 4, 0 } } },
	{ "from the middle to the middle", 4, 8, 3, 9, KVT_JOIN_NONE,
	  { 7, 7, 8 }, { 2, 1 },
	  { { 7, 3, 2, 3, 1, 0 }, { 7, 0, 2, 4, 4, 0 }, { 8, 0, 1, 0, 1, 0 } } },
	{ "unequal sizes have no whole blocks", 4, 8, 0, 8, KVT_JOIN_BLOCKS,
	  { 0, 1 }, { 0 }, { { 0, 0, 0, 0, 4, 0 }, { 1, 0, 0, 4, 4, 0 } } },
	{ "a recurrent state is one slot", 1, 1, 0, 1, KVT_JOIN_BLOCKS,
	  { 30 }, { 2 }, { { 30, 0, 2, 0, 1, 1 } } },
	{ "nothing", 4, 4, 5, 5, KVT_JOIN_NONE, { 0 }, { 0 }, { { 0 } } },
};

static void test_map(void **state)
{
	const struct map_case *c = *state;
	struct kvt_block_table src = { c->src, 8, c->src_slots, POOL, 0 };
	struct kvt_block_table dst = { c->dst, 8, c->dst_slots, POOL, 0 };
	struct kvt_block_map map;
	struct kvt_block_span span;
	int n = 0;

	assert_int_equal(kvt_block_map_init(&map, &src, &dst, c->begin, c->end, NULL), 0);
	map.join = c->join;
	for (; kvt_block_map_next(&map, &span); n++)
		assert_memory_equal(&span, &c->span[n], sizeof(span));
	assert_int_equal(c->span[n].count, 0);
	assert_false(kvt_block_map_next(&map, &span));
}

/* ---- slot by slot -------------------------------------------------------- */

/* Ids with rows in them: a shuffle of runs of three. */
static void shuffle(uint32_t ids[POOL], unsigned seed)
{
	for (uint32_t i = 0; i < POOL; i++)
		ids[i] = i;
	for (unsigned i = POOL / 4 - 1; i > 0; i--) {
		unsigned j = (seed = seed * 1103515245u + 12345) >> 16 & 15;

		for (int k = 0; k < 3 && j <= i; k++) {
			uint32_t id = ids[4 * i + k];

			ids[4 * i + k] = ids[4 * j + k];
			ids[4 * j + k] = id;
		}
	}
}

struct slot_at {
	int64_t src_block, src_slot, dst_block, dst_slot;
};

static struct slot_at truth(const struct kvt_block_map *map, int64_t t)
{
	return (struct slot_at){
		map->src.ids[t / map->src.slots], t % map->src.slots,
		map->dst.ids[t / map->dst.slots], t % map->dst.slots,
	};
}

static bool same_entry(const struct kvt_block_map *map, int64_t a, int64_t b)
{
	return a / map->src.slots == b / map->src.slots &&
	       a / map->dst.slots == b / map->dst.slots;
}

/* May slot t stand in the same span as t - 1? */
static bool joined(const struct kvt_block_map *map, int64_t t, int64_t begin,
		   int64_t end)
{
	struct slot_at a = truth(map, t - 1), b = truth(map, t);
	int64_t s = map->src.slots, d = map->dst.slots, block = t / s * s;

	if (same_entry(map, t - 1, t))
		return true;
	if (map->join == KVT_JOIN_NONE)
		return false;
	if (map->join == KVT_JOIN_BLOCKS &&
	    (s != d || block - s < begin || block + s > end))
		return false;
	return b.src_block * s + b.src_slot == a.src_block * s + a.src_slot + 1 &&
	       b.dst_block * d + b.dst_slot == a.dst_block * d + a.dst_slot + 1;
}

static void check_map(struct kvt_block_map map, int64_t begin, int64_t end)
{
	struct kvt_block_span span;
	int64_t t = begin;

	while (kvt_block_map_next(&map, &span)) {
		assert_true(t < end && span.count > 0);
		if (t > begin)
			assert_false(joined(&map, t, begin, end));
		for (int64_t i = 0; i < span.count; i++, t++) {
			struct slot_at want = truth(&map, t);
			int64_t s = map.src.slots, d = map.dst.slots;

			if (i)
				assert_true(joined(&map, t, begin, end));
			assert_int_equal(span.src_block * s + span.src_slot + i,
					 want.src_block * s + want.src_slot);
			assert_int_equal(span.dst_block * d + span.dst_slot + i,
					 want.dst_block * d + want.dst_slot);
		}
		if (span.nblocks)
			assert_int_equal(span.nblocks * map.src.slots, span.count);
	}
	assert_int_equal(t, end);
}

static void test_all(void)
{
	uint32_t src_ids[POOL], dst_ids[POOL];
	unsigned seed = 1;

	for (int s = 1; s <= 8; s++)
	for (int d = 1; d <= 8; d++)
	for (int begin = 0; begin < 12; begin++)
	for (int end = begin; end <= POOL; end += 1 + end % 3) {
		struct kvt_block_table src = { src_ids, POOL, s, POOL, 0 };
		struct kvt_block_table dst = { dst_ids, POOL, d, POOL, 0 };
		struct kvt_block_map map;

		shuffle(src_ids, seed);
		shuffle(dst_ids, seed++ / 2);
		assert_false(kvt_block_map_init(&map, &src, &dst, begin, end, NULL));
		for (map.join = KVT_JOIN_NONE; map.join <= KVT_JOIN_SLOTS; map.join++)
			check_map(map, begin, end);
	}
}

/* ---- whole blocks and prefixes ------------------------------------------- */

static void test_whole(void)
{
	static const struct {
		int src_slots, dst_slots, dst_blocks, end, want;
	} rows[] = {
		{ 16, 16, 27, 421, 432 }, { 16, 16, 5, 80, 80 },
		{ 16, 24, 18, 421, 432 }, { 16, 8, 53, 421, 424 },
		{ 16, 16, 27, 0, 0 }, { 1, 16, 27, 421, 421 },
	};
	static const uint32_t ids[64];

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_block_table src = { ids, 27, rows[i].src_slots, 64, 0 };
		struct kvt_block_table dst = { ids, rows[i].dst_blocks,
					       rows[i].dst_slots, 64, 0 };

		assert_int_equal(kvt_block_map_whole(&src, &dst, rows[i].end),
				 rows[i].want);
	}
}

/* The destination has 8 of 20 slots; its table holds only the others. */
static void test_prefix(void)
{
	static const uint32_t src_ids[] = { 3, 1, 4, 15, 9 }, dst_ids[] = { 20, 30, 40 };
	struct kvt_block_table src = { src_ids, 5, 4, 64, 0 };
	struct kvt_block_table dst = { dst_ids, 3, 4, 64, 8 };
	struct kvt_block_map map;
	struct kvt_block_span span;

	assert_false(kvt_block_table_last(&src, &src, 3, NULL));
	assert_int_equal(src.first, 8);
	assert_false(kvt_block_map_init(&map, &src, &dst, 8, 20, NULL));
	for (int i = 0; i < 3; i++) {
		assert_true(kvt_block_map_next(&map, &span));
		assert_int_equal(span.src_block, src_ids[i + 2]);
		assert_int_equal(span.dst_block, dst_ids[i]);
		assert_int_equal(span.count, 4);
	}
	assert_false(kvt_block_map_next(&map, &span));
	assert_int_equal(kvt_block_map_init(&map, &src, &dst, 7, 20, &why),
			 KVT_BAD_INPUT);
	assert_string_equal(why.text, "slots 7:20 are not all in the source, whose 3 "
			    "blocks hold 8:20");
	expect(kvt_block_table_last(&src, &src, 4, &why), KVT_BAD_INPUT, NULL);
	expect(kvt_block_table_last(&src, &src, -1, &why), KVT_BAD_INPUT, NULL);
}

/* ---- refusals ------------------------------------------------------------ */

#define FINE { ids, 3, 4, 64, 0 }

static void test_refused(void)
{
	static const uint32_t ids[] = { 0, 1, 63, 64 };
	static const struct {
		struct kvt_block_table src, dst;
		int64_t begin, end;
		const char *says;
	} rows[] = {
		{ { ids, 4, 4, 64, 0 }, FINE, 0, 12,
		  "block id 64 of the source is outside its pool of 64" },
		{ FINE, { ids, 3, 4, 63, 0 }, 0, 12,
		  "block id 63 of the destination is outside its pool of 63" },
		{ FINE, FINE, 0, 13,
		  "slots 0:13 are not all in the source" },
		{ { ids, 3, 8, 64, 0 }, FINE, 0, 13,
		  "slots 0:13 are not all in the destination" },
		{ { ids, 3, 0, 64, 0 }, FINE, 0, 1, "3 blocks of 0 slots" },
		{ { ids, -1, 4, 64, 0 }, FINE, 0, 1, "-1 blocks" },
		{ { ids, 3, INT64_MAX, 64, 0 }, FINE, 0, 1, "3 blocks of" },
		{ { ids, 1, INT64_MAX / 8, 64, 0 }, FINE, 0, 1, "1 blocks of" },
		{ { ids, 3, 4, 64, -4 }, FINE, 0, 1, "3 blocks of" },
		{ FINE, FINE, -1, 1, "-1:1 are no range" },
		{ FINE, FINE, 2, 1, "2:1 are no range" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_block_map map;

		expect(kvt_block_map_init(&map, &rows[i].src, &rows[i].dst, rows[i].begin,
					  rows[i].end, &why), KVT_BAD_INPUT,
		       rows[i].says);
	}
}

static void test_ids(void)
{
	static const uint32_t ids[] = { 0, 7, 8, 63, 8, 64 };
	uint8_t seen[8] = { 0 };

	assert_false(kvt_block_ids_check(ids, 4, 64, seen, NULL));
	memset(seen, 0, sizeof(seen));
	assert_int_equal(kvt_block_ids_check(ids, 5, 64, seen, &why), KVT_BAD_INPUT);
	assert_string_equal(why.text, "block id 8 is listed twice");
	memset(seen, 0, sizeof(seen));
	assert_int_equal(kvt_block_ids_check(ids + 5, 1, 64, seen, &why), KVT_BAD_INPUT);
	assert_string_equal(why.text, "block id 64 is outside the pool of 64");
}

TESTS("block map",
	EACH(cases, test_map),
	NAMED(test_all, "all sizes 1 to 8, all joins, slot by slot"),
	NAMED(test_whole, "whole blocks, as far as there is room"),
	NAMED(test_prefix, "a prefix that is there already"),
	NAMED(test_refused, "tables that do not hold the range"),
	NAMED(test_ids, "ids that come twice"))
