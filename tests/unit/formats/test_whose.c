/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_whose.c - how often formats/vllm/whose.h claims what is not so
 *
 * Files of a model in which only the values of the first layer repeat: in true orders
 * nothing wrong may ever be said; with their pieces in random order something may be
 * said as often as theory has it, three in C(12, 4) = 495.
 */
#include "formats/vllm/whose.h"
#include "tests/fewer.h"
#include "tests/unit/tests.h"

enum { LAYERS = 3, HEADS = 4, SLOTS = 8, ROW = 16, WORDS = 11, PAGE = SLOTS * 2 * ROW,
       BYTES = LAYERS * HEADS * PAGE };

static const struct kvt_whose_shape shape = { LAYERS, HEADS, 1, SLOTS, ROW };
static uint64_t state = 20261127;

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * UINT64_C(0x2545f4914f6cdd1d);
}

static void random_row(uint8_t *out)
{
	for (int i = 0; i < ROW; i += 8) {
		uint64_t bits = draw();

		memcpy(out + i, &bits, 8);
	}
}

static uint8_t values[WORDS][HEADS][ROW];

/* A file of 't' ranks; in a page a head, a slot, keys and values. */
static void make_file(uint8_t *out, int t)
{
	int word[SLOTS], heads = HEADS / t;

	for (int n = 0; n < SLOTS; n++)
		word[n] = (int)(draw() % WORDS);
	for (int cell = 0; cell < LAYERS * HEADS; cell++) {
		int rank = cell / (LAYERS * heads), layer = cell / heads % LAYERS;
		int head = rank * heads + cell % heads;

		for (int n = 0; n < SLOTS; n++, out += 2 * ROW) {
			random_row(out);
			random_row(out + ROW);
			if (!layer)
				memcpy(out + ROW, values[word[n]][head], ROW);
		}
	}
}

static void set_up_words(void)
{
	for (int i = 0; i < WORDS; i++)
		for (int h = 0; h < HEADS; h++)
			random_row(values[i][h]);
}

static void true_orders(void **unused)
{
	uint8_t file[BYTES];
	int known = 0, trials = fewer(1500);

	(void)unused;
	set_up_words();
	for (int i = 0; i < trials; i++) {
		int t = 1 << i % 3, n = 1 + i % 4;
		struct kvt_whose *w = kvt_whose_new(&shape, n);
		struct kvt_whose_answer all;

		assert_non_null(w);
		for (int f = 0; f < n; f++) {
			make_file(file, t);
			kvt_whose_see(w, file);
		}
		kvt_whose_settle(w);
		all = kvt_whose_all(w);
		known += all.order >= 0;
		if (all.order >= 0)
			assert_int_equal(kvt_whose_order_at(w, all.order)->ranks, t);
		assert_true(all.page != KVT_WHOSE_NHD);
		kvt_whose_free(w);
	}
	assert_true(known > trials * 13 / 15);
}

static void random_orders(void **unused)
{
	uint8_t file[BYTES], mixed[BYTES];
	int claims = 0, pages = 0, trials = fewer(6000);

	(void)unused;
	set_up_words();
	for (int i = 0; i < trials; i++) {
		struct kvt_whose *w = kvt_whose_new(&shape, 3);
		int at[LAYERS * HEADS];

		assert_non_null(w);
		for (int k = 0; k < LAYERS * HEADS; k++) {
			int other = (int)(draw() % (uint64_t)(k + 1));

			at[k] = at[other];
			at[other] = k;
		}
		for (int f = 0; f < 3; f++) {
			make_file(file, 1);
			for (int k = 0; k < LAYERS * HEADS; k++)
				memcpy(mixed + k * PAGE, file + at[k] * PAGE, PAGE);
			kvt_whose_see(w, mixed);
		}
		kvt_whose_settle(w);
		claims += kvt_whose_all(w).order >= 0;
		pages += kvt_whose_all(w).page == KVT_WHOSE_NHD;
		kvt_whose_free(w);
	}
	print_message("%d of %d random orders claimed, theory %d\n", claims, trials,
		      trials * 3 / 495);
	assert_true(claims > 0 && claims <= 2 * trials * 3 / 495);
	assert_int_equal(pages, 0);
}

/* More than are kept: those that come later are held against the kept ones. */
static void many_files(void **unused)
{
	enum { MANY = 11500, FIRST = 11100 };
	struct kvt_whose *w = kvt_whose_new(&shape, MANY);
	uint8_t file[BYTES];
	int known = 0;

	(void)unused;
	set_up_words();
	assert_non_null(w);
	for (int f = 0; f < MANY; f++) {
		make_file(file, f < FIRST ? 1 : 2);
		kvt_whose_see(w, file);
	}
	kvt_whose_settle(w);
	assert_int_equal(kvt_whose_all(w).order, -1);
	for (int f = 0; f < MANY; f++) {
		struct kvt_whose_answer is = kvt_whose_file(w, f);

		known += is.order >= 0;
		assert_false(kvt_whose_is_foreign(w, f));
		if (is.order >= 0)
			assert_int_equal(kvt_whose_order_at(w, is.order)->ranks,
					 f < FIRST ? 1 : 2);
	}
	assert_true(known > MANY * 9 / 10);
	kvt_whose_free(w);
}

static void nothing_to_tell(void **unused)
{
	static const struct kvt_whose_shape none[] = {
		{ 1, 4, 1, 8, 16 }, { 3, 1, 1, 8, 16 }, { 3, 4, 0, 8, 16 },
		{ 3, 4, 1, 0, 16 }, { 3, 4, 1, 8, 8 }, { 1 << 20, 1 << 20, 1, 8, 16 },
		{ INT64_MAX / 4, 4, INT64_MAX, 8, 16 }, { 64, 64, 1, 1 << 20, 16 },
	};

	(void)unused;
	for (size_t i = 0; i < LENGTH(none); i++) {
		assert_false(kvt_whose_can_tell(&none[i]));
		assert_null(kvt_whose_new(&none[i], 1));
	}
}

TESTS("whose",
	WITH(NULL, true_orders), WITH(NULL, random_orders), WITH(NULL, many_files),
	WITH(NULL, nothing_to_tell))
