/* SPDX-License-Identifier: Apache-2.0 */
/* test_fault_window.c - what a diagnosis knows of a group, and a fault planted in it */
#include "tests/unit/fixture.h"

#include "lib/ops/fault/plant.h"

/* Two requests that share their first block; block 3 is in none. */
static struct kvt_snapshot *some_requests(void)
{
	struct kvt_snapshot *s = small_snapshot("hnd", "bf16", false);

	number_layers(&s->group[0], (const uint32_t[]){ 4, 7, 9 });
	number_blocks(&s->group[0], (const uint64_t[]){ 10, 3, 8, 1, 6 });
	add_request(s, "alpha", 40, IDS(2, 0, 4));
	add_request(s, "beta", 20, IDS(2, 1));
	return s;
}

/* ---- facts -------------------------------------------------------------- */

static void check_use(const struct kvt_window *w, int64_t block, int64_t nlive)
{
	for (int64_t i = 0; i < 16; i++)
		assert_int_equal(w->use[block * 16 + i],
				 i < nlive ? KVT_LIVE : KVT_STALE);
}

static void test_facts(void)
{
	struct kvt_snapshot *s = some_requests();
	struct kvt_window w;

	ok(kvt_snapshot_complete(s, &why));
	ok(kvt_window_init(&w, s, 0, &why));
	check_use(&w, 2, 16);
	check_use(&w, 0, 16);
	check_use(&w, 4, 8);	/* alpha: 40 = 16 + 16 + 8 */
	check_use(&w, 1, 4);	/* beta: 20 = 16 + 4 */
	check_use(&w, 3, 0);
	assert_int_equal(w.layer_ids[1], 7);
	assert_int_equal(w.block_ids[0], 10);
	assert_ptr_equal(w.layout, &s->group[0].layout);
	kvt_window_free(&w);
}

static void test_null_block(void)
{
	struct kvt_snapshot *s = some_requests();
	struct kvt_window w;

	kvt_set_null(s, 0, 3);
	ok(kvt_window_init(&w, s, 0, &why));
	for (int64_t i = 0; i < 16; i++)
		assert_int_equal(w.use[3 * 16 + i], KVT_NULL_BLOCK);
	kvt_window_free(&w);
}

/* Without requests nothing says that a slot is not live, and no block has neighbours. */
static void test_no_requests(void)
{
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct kvt_window w;

	ok(kvt_window_init(&w, s, 0, &why));
	for (int64_t b = 0; b < 5; b++)
		check_use(&w, b, 16);
	assert_null(w.prev);
	assert_null(w.next);
	kvt_window_free(&w);
}

/* ---- neighbours --------------------------------------------------------- */

static void check_neighbours(const struct kvt_snapshot *s, int64_t first, int step,
			     int64_t n, const int64_t *wanted)
{
	int64_t is[8] = { 99, 99, 99, 99, 99, 99, 99, 99 };

	kvt_window_neighbours(is, s, 0, first, n, step);
	for (int64_t i = 0; i < n; i++)
		if (is[i] != wanted[i])
			fail_msg("block %d, step %d: %d, expected %d", (int)(first + i),
				 step, (int)is[i], (int)wanted[i]);
	assert_int_equal(is[n], 99);
}

static void test_neighbours(void)
{
	enum { NONE = KVT_NOT_THERE, AWAY = KVT_NOT_HERE };
	/* alpha 2 0 4, beta 2 1: they do not agree on what follows 2 */
	static const int64_t prev[] = { 2, 2, NONE, NONE, 0 };
	static const int64_t next[] = { 4, NONE, AWAY, NONE, NONE };
	/* of blocks 1 to 3 alone, counted from 1 */
	static const int64_t prev_inside[] = { 1, NONE, NONE };
	static const int64_t next_inside[] = { NONE, AWAY, NONE };
	/* of blocks 3 and 4: block 0, before 4, is not among them */
	static const int64_t prev_end[] = { NONE, AWAY };
	struct kvt_snapshot *s = some_requests();

	check_neighbours(s, 0, -1, 5, prev);
	check_neighbours(s, 0, 1, 5, next);
	check_neighbours(s, 1, -1, 3, prev_inside);
	check_neighbours(s, 1, 1, 3, next_inside);
	check_neighbours(s, 3, -1, 2, prev_end);
}

/* ---- data --------------------------------------------------------------- */

/* Element i of a window of 3 layers, 5 blocks, 16 slots, 2 heads, 2 and 8. */
static const uint8_t *element_of(const uint8_t *data, const int64_t i[KVT_NAXES])
{
	return data + 2 * (((((i[NL] * 5 + i[NB]) * 16 + i[NS]) * 2 + i[NH]) * 2 +
			    i[NK]) * 8 + i[ND]);
}

static bool is_as_made(const uint8_t *data, const int64_t i[KVT_NAXES])
{
	const uint8_t *is = element_of(data, i);

	return is[0] == byte_at(i, 0) && is[1] == byte_at(i, 1);
}

static void test_read(void)
{
	const struct kvt_run run = { .threads = 2 };
	int64_t i[KVT_NAXES] = { 0 };
	struct kvt_snapshot *s = some_requests();
	struct kvt_dump *made;
	struct kvt_box box;
	uint8_t *data;

	box = kvt_box_whole(&s->group[0].shape);
	made = make_dump(s, hashed, 0)->dump;
	data = room((size_t)box_bytes(&s->group[0], &box));
	ok(kvt_window_read(data, made, 0, &run, &why));
	do
		assert_true(is_as_made(data, i));
	while (next_index(i, &box));
}

/* ---- planting ----------------------------------------------------------- */

/* Block id 10 of layer id 7 becomes zeros, and nothing else. */
static void test_plant(void)
{
	const struct kvt_run run = { .threads = 1 };
	struct fault_request asked = { .fault = kvt_fault_find("zero-block"),
				       .has_layer = true, .layer = 7,
				       .has_block = true, .block = 10 };
	struct planted planted = { .id = NULL };
	int64_t i[KVT_NAXES] = { 0 }, changed = 0;
	struct kvt_snapshot *s = some_requests();
	struct kvt_dump *made;
	struct kvt_box box;

	box = kvt_box_whole(&s->group[0].shape);
	made = make_dump(s, hashed, 0)->dump;
	ok(kvt_plant_fault(&planted, made, &asked, &run, &why));
	assert_string_equal(planted.id, "g0");
	do {
		const uint8_t *is = element_of(planted.bytes, i);

		if (i[NL] == 1 && i[NB] == 0) {
			assert_true(!is[0] && !is[1]);
			changed += !is_as_made(planted.bytes, i);
		} else {
			assert_true(is_as_made(planted.bytes, i));
		}
	} while (next_index(i, &box));
	assert_int_equal(planted.difference.count, changed);
	assert_int_equal(planted.difference.where.begin[NL], 1);
	assert_int_equal(planted.difference.where.end[NL], 2);
	kvt_planted_free(&planted);
}

static void test_refused(void)
{
	const struct kvt_run run = { .threads = 1 }, little = { .memory = 4 << 10 };
	const struct fault_request good = { .fault = kvt_fault_find("zero-block"),
					    .has_block = true, .block = 10 };
	struct fault_request asked = good;
	struct planted planted = { .id = NULL };
	struct kvt_snapshot *s = some_requests();
	struct kvt_dump *made;

	made = make_dump(s, hashed, 0)->dump;
	asked.block = 0;	/* a position, but no id */
	expect(kvt_plant_fault(&planted, made, &asked, &run, &why), KVT_USAGE,
	       "there is no block 0");
	asked = good;
	asked.group = "g1";
	expect(kvt_plant_fault(&planted, made, &asked, &run, &why), KVT_USAGE,
	       "there is no group 'g1'");
	asked = good;
	asked.block = 1;	/* at position 3, which no request uses */
	expect(kvt_plant_fault(&planted, made, &asked, &run, &why), KVT_BAD_INPUT,
	       "live");
	expect(kvt_plant_fault(&planted, made, &good, &little, &why),
	       KVT_UNSUPPORTED,
	       "g0 has 15 KiB and needs twice that, more than the 4 KiB");
	kvt_planted_free(&planted);
}

TESTS("fault_window",
	TEST(test_facts), TEST(test_null_block), TEST(test_no_requests),
	TEST(test_neighbours), TEST(test_read), TEST(test_plant), TEST(test_refused))
