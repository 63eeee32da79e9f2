/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fault.c - what each fault makes of a small cache, written out by hand
 *
 * Elements of the expected cache are numbered from 1 on in the order L B S H K D.
 */
#include "tests/unit/lib/fault_window.h"
#include "tests/unit/tests.h"

struct fault_case {
	const char *fault;
	int64_t arg[KVT_FAULT_ARGS];
	double factor;
	int64_t n[KVT_NAXES];		/* L B S H K D */
	enum kvt_kind kind;
	int64_t layer, block;
	uint8_t becomes[24];
};

#define ALL .layer = -1, .block = -1

static const struct fault_case cases[] = {
	{ "swap-heads", { 0, 2 }, 0, { 1, 1, 2, 3, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 3, 2, 1, 6, 5, 4 } },
	{ "copy-head", { 2, 0 }, 0, { 1, 1, 2, 3, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 2, 1, 4, 5, 4 } },
	/* rank 0 takes heads 0 2 4, rank 1 takes 1 3 5 */
	{ "rank-map", { 2 }, 0, { 1, 1, 1, 6, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 3, 5, 2, 4, 6 } },
	/* rank r of 8 takes head r modulo 4; ranks 0 2 4 6 stand for the heads */
	{ "rank-map", { 8 }, 0, { 1, 1, 1, 4, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 3, 1, 3 } },
	/* in memory s0h0 s0h1 s0h2 s1h0 s1h1 s1h2; heads of two slots are read */
	{ "swap-heads-slots", { 0 }, 0, { 1, 1, 2, 3, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 3, 5, 2, 4, 6 } },
	/* in memory h0s0 h0s1 h1s0 h1s1 h2s0 h2s1 = 1 4 2 5 3 6 */
	{ "swap-heads-slots", { 1 }, 0, { 1, 1, 2, 3, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 4, 2, 5, 3, 6 } },
	{ "swap-kv", { 0 }, 0, { 1, 1, 2, 1, 2, 2 }, KVT_FULL_ATTENTION, ALL,
	  { 3, 4, 1, 2, 7, 8, 5, 6 } },
	/* in memory k0 v0 k1 v1 k2 v2; k0 k1 k2 v0 v1 v2 are read */
	{ "split-kv", { 0, 0 }, 0, { 1, 1, 3, 1, 2, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 4, 2, 5, 3, 6 } },
	{ "split-kv", { 1, 0 }, 0, { 1, 1, 3, 1, 2, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 3, 5, 2, 4, 6 } },
	/* heads outside: memory h0: k0 v0 k1 v1, h1: ...; each head apart */
	{ "split-kv", { 0, 2 }, 0, { 1, 1, 2, 2, 2, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 5, 3, 7, 2, 6, 4, 8 } },
	/* all slots of head 0 before those of head 1: 1 2 5 6 3 4 7 8 */
	{ "split-kv", { 0, 1 }, 0, { 1, 1, 2, 2, 2, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 3, 5, 7, 2, 4, 6, 8 } },
	{ "rope-pairs", { 0, 6 }, 0, { 1, 1, 1, 1, 2, 6 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 4, 2, 5, 3, 6, 7, 8, 9, 10, 11, 12 } },
	{ "rope-pairs", { 1, 6 }, 0, { 1, 1, 1, 1, 2, 6 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 3, 5, 2, 4, 6, 7, 8, 9, 10, 11, 12 } },
	{ "rope-pairs", { 0, 4 }, 0, { 1, 1, 1, 1, 1, 6 }, KVT_MLA, ALL,
	  { 1, 2, 3, 5, 4, 6 } },
	/* keys 1 2 3 4, 9 10 11 12 in packs of 2: 1 2 9 10 3 4 11 12 */
	{ "x-packing", { 0, 2, 0 }, 0, { 1, 1, 2, 1, 2, 4 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 2, 9, 10, 5, 6, 7, 8, 3, 4, 11, 12, 13, 14, 15, 16 } },
	/* values 5 6 7 8 13 14 15 16 taken for packs of 1: 5 7 13 15, 6 8 14 16 */
	{ "x-packing", { 1, 1, 1 }, 0, { 1, 1, 2, 1, 2, 4 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 2, 3, 4, 5, 7, 13, 15, 9, 10, 11, 12, 6, 8, 14, 16 } },
	{ "conv-order", { 0 }, 0, { 1, 1, 2, 1, 1, 3 }, KVT_MAMBA_CONV, ALL,
	  { 1, 3, 5, 2, 4, 6 } },
	{ "conv-order", { 1 }, 0, { 1, 1, 2, 1, 1, 3 }, KVT_MAMBA_CONV, ALL,
	  { 1, 4, 2, 5, 3, 6 } },
	/* x 1 2 3 4, B 5 6, C 7 8; ranks have 1 2 5 7 and 3 4 6 8 */
	{ "conv-parts", { 0, 2 }, 0, { 1, 1, 1, 1, 1, 8 }, KVT_MAMBA_CONV, ALL,
	  { 1, 2, 5, 7, 3, 4, 6, 8 } },
	{ "conv-parts", { 1, 2 }, 0, { 1, 1, 1, 1, 1, 8 }, KVT_MAMBA_CONV, ALL,
	  { 1, 2, 5, 6, 3, 7, 4, 8 } },
	{ "shift-tokens", { 1 }, 0, { 1, 2, 3, 1, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 1, 2, 3, 4, 5 } },
	{ "shift-tokens", { -2 }, 0, { 1, 2, 3, 1, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 3, 4, 5, 6, 5, 6 } },
	{ "shift-blocks", { 1, 0 }, 0, { 1, 3, 2, 1, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 2, 1, 2, 3, 4 } },
	{ "shift-blocks", { -1, 1 }, 0, { 1, 3, 2, 1, 1, 1 }, KVT_MAMBA_SSM, ALL,
	  { 3, 4, 5, 6, 5, 6 } },
	{ "stale-block", { 2, 0 }, 0, { 2, 3, 1, 1, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 2, 1, 4, 5, 4 } },
	{ "stale-block", { 2, 0 }, 0, { 2, 3, 1, 1, 1, 1 }, KVT_FULL_ATTENTION,
	  .layer = 1, .block = -1, .becomes = { 1, 2, 3, 4, 5, 4 } },
	{ "wrong-layer", { 0, 1 }, 0, { 2, 3, 1, 1, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 4, 5, 6, 4, 5, 6 } },
	{ "zero-block", { 0 }, 0, { 2, 3, 1, 1, 1, 1 }, KVT_FULL_ATTENTION,
	  .layer = -1, .block = 1, .becomes = { 1, 0, 3, 4, 0, 6 } },
	{ "zero-kv", { 1 }, 0, { 1, 2, 1, 1, 2, 2 }, KVT_FULL_ATTENTION,
	  .layer = -1, .block = 1, .becomes = { 1, 2, 3, 4, 5, 6, 0, 0 } },
	/* memory L B H S: 1 3 2 4, 5 7 6 8; four bytes from the third of a block */
	{ "zero-tail", { 10 }, 0, { 1, 2, 2, 2, 1, 1 }, KVT_FULL_ATTENTION, ALL,
	  { 1, 2, 3, 4, 5, 0, 0, 0 } },
};

static void number(struct caches *c)
{
	for (int64_t i = 0; i < c->nbytes / 2; i++)
		c->expected[2 * i] = (uint8_t)(i + 1);
}

static void test_case(void **state)
{
	const struct fault_case *row = *state;
	struct kvt_strike strike = {
		.fault = kvt_fault_find(row->fault), .given = { true, true, true },
		.layer = row->layer, .block = row->block,
	};
	struct caches *c = new_caches(row->kind, "uint16", "LBHSC", row->n);

	assert_non_null(strike.fault);
	memcpy(strike.args.n, row->arg, sizeof(row->arg));
	strike.args.factor = row->factor;
	number(c);
	if (row->kind == KVT_MAMBA_CONV && row->n[KVT_AXIS_D] == 8) {
		c->window.nparts = 3;
		c->window.part[0] = (struct kvt_row_part){ 0, 4 };
		c->window.part[1] = (struct kvt_row_part){ 4, 2 };
		c->window.part[2] = (struct kvt_row_part){ 6, 2 };
	}
	ok(kvt_fault_plant(c->suspect, &strike, &c->window, c->expected, &why));
	for (int64_t i = 0; i < c->nbytes / 2; i++) {
		assert_int_equal(c->suspect[2 * i], row->becomes[i]);
		assert_int_equal(c->suspect[2 * i + 1], 0);
	}
}

/* Pages of 32 bytes that the engine keeps 64 bytes apart. */
static void test_padding(void)
{
	static const int64_t n[KVT_NAXES] = { 1, 4, 2, 1, 1, 8 };
	struct kvt_strike strike = { .fault = kvt_fault_find("padding"),
				     .args = { .n = { 32 } }, .given = { true },
				     .layer = -1, .block = -1 };
	static const int from[4] = { 0, -1, 1, -1 };
	struct caches *c = new_caches(KVT_FULL_ATTENTION, "uint16", "LBSHC", n);

	number(c);
	ok(kvt_fault_plant(c->suspect, &strike, &c->window, c->expected, NULL));
	for (int b = 0; b < 4; b++)
		for (int i = 0; i < 16; i++)
			assert_int_equal(c->suspect[32 * b + 2 * i],
					 from[b] < 0 ? 0 : 16 * from[b] + i + 1);
}

/* The last token of a request has nobody behind it, whatever the slot holds. */
static void test_last_token(void)
{
	static const int64_t n[KVT_NAXES] = { 1, 2, 2, 1, 1, 1 };
	static const uint8_t use[4] = { 0, 0, 0, KVT_STALE }, becomes[4] = { 2, 3, 3, 4 };
	struct kvt_strike strike = { .fault = kvt_fault_find("shift-tokens"),
				     .args = { .n = { -1 } }, .given = { true },
				     .layer = -1, .block = -1 };
	struct caches *c = new_caches(KVT_MLA, "uint16", "LBSC", n);

	number(c);
	c->window.use = use;
	ok(kvt_fault_plant(c->suspect, &strike, &c->window, c->expected, NULL));
	for (int i = 0; i < 4; i++)
		assert_int_equal(c->suspect[2 * i], becomes[i]);
}

/* Bytes turned round; keys alone times a factor, rounded to the nearest. */
static void test_values(void)
{
	static const int64_t n[KVT_NAXES] = { 1, 1, 1, 1, 2, 4 };
	static const uint16_t before[8] = { 0x3f80, 0xbf83, 0x0000, 0x3f81,
					    0x4000, 0x7f7f, 0x8000, 0x0001 };
	/* -1.53515625 and 1.51171875 are half way between two: to the even one */
	static const uint16_t scaled[8] = { 0x3fc0, 0xbfc4, 0x0000, 0x3fc2,
					    0x4000, 0x7f7f, 0x8000, 0x0001 };
	static const uint16_t reversed[8] = { 0x803f, 0x83bf, 0x0000, 0x813f,
					      0x0040, 0x7f7f, 0x0080, 0x0100 };
	struct kvt_strike strike = { .layer = -1, .block = -1, .given = { true },
				     .args = { .factor = 1.5 } };
	struct caches *c = new_caches(KVT_FULL_ATTENTION, "bfloat16", "LBSHC", n);

	for (int i = 0; i < 8; i++) {
		c->expected[2 * i] = (uint8_t)before[i];
		c->expected[2 * i + 1] = (uint8_t)(before[i] >> 8);
	}
	strike.fault = kvt_fault_find("scale");
	ok(kvt_fault_plant(c->suspect, &strike, &c->window, c->expected, NULL));
	for (int i = 0; i < 8; i++)
		assert_int_equal(c->suspect[2 * i] | c->suspect[2 * i + 1] << 8,
				 scaled[i]);
	strike.fault = kvt_fault_find("byte-order");
	ok(kvt_fault_plant(c->suspect, &strike, &c->window, c->expected, NULL));
	for (int i = 0; i < 8; i++)
		assert_int_equal(c->suspect[2 * i] | c->suspect[2 * i + 1] << 8,
				 reversed[i]);
}

/* As many bits as asked for, one an element, in live slots only. */
static void test_flips(void)
{
	static const int64_t n[KVT_NAXES] = { 2, 3, 4, 2, 2, 8 };
	static const uint8_t use[12] = { 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 1, 1 };
	struct kvt_strike strike = { .fault = kvt_fault_find("flip-bits"), .seed = 5,
				     .args = { .n = { 40 } }, .given = { true },
				     .layer = -1, .block = -1 };
	int hit = 0;
	struct caches *c =
		caches_fill(new_caches(KVT_FULL_ATTENTION, "bfloat16", "LBSHC", n));

	c->window.use = use;
	ok(kvt_fault_plant(c->suspect, &strike, &c->window, c->expected, NULL));
	for (int64_t i = 0; i < c->nbytes / 2; i++) {
		int x = (c->expected[2 * i] ^ c->suspect[2 * i]) |
			(c->expected[2 * i + 1] ^ c->suspect[2 * i + 1]) << 8;

		if (!x)
			continue;
		hit++;
		assert_int_equal(x & (x - 1), 0);
		assert_int_equal(use[i / 32 % 12], KVT_LIVE);
	}
	assert_int_equal(hit, 40);
}

/* What cannot be is refused, and by whose fault it is. */
static void test_refused(void)
{
	static const struct {
		const char *fault;
		enum kvt_kind kind;
		int64_t n[KVT_NAXES];
		int64_t arg;
		bool given;
		enum kvt_status status;
		const char *says;
	} rows[] = {
		{ "swap-heads", KVT_MLA, { 1, 2, 2, 1, 1, 4 }, 0, false, KVT_UNSUPPORTED,
		  "swap-heads needs two heads" },
		{ "swap-heads", KVT_FULL_ATTENTION, { 1, 2, 2, 4, 1, 4 }, 4, true,
		  KVT_USAGE, "swap-heads: a is 4, expected 0 to 3" },
		{ "rank-map", KVT_FULL_ATTENTION, { 1, 2, 2, 6, 1, 4 }, 4, true,
		  KVT_USAGE, "these arguments do not fit this cache" },
		/* rank r has head r modulo 3: every fourth one is right */
		{ "rank-map", KVT_FULL_ATTENTION, { 1, 2, 2, 3, 1, 4 }, 12, true,
		  KVT_USAGE, "these arguments do not fit this cache" },
		{ "swap-kv", KVT_MLA, { 1, 2, 2, 1, 1, 4 }, 0, false, KVT_UNSUPPORTED,
		  "needs keys and values" },
		{ "swap-heads-slots", KVT_FULL_ATTENTION, { 1, 2, 1, 4, 2, 4 }, 0, false,
		  KVT_UNSUPPORTED, "two slots a block" },
		{ "shift-tokens", KVT_MAMBA_SSM, { 1, 2, 1, 4, 1, 4 }, 0, false,
		  KVT_UNSUPPORTED, "needs tokens" },
		{ "conv-parts", KVT_MAMBA_CONV, { 1, 2, 3, 1, 1, 4 }, 0, false,
		  KVT_UNSUPPORTED, "several parts" },
		{ "zero-kv", KVT_MLA, { 1, 2, 2, 1, 1, 4 }, 0, false, KVT_UNSUPPORTED,
		  "keys and values" },
		{ "wrong-layer", KVT_MLA, { 1, 2, 2, 1, 1, 4 }, 0, false,
		  KVT_UNSUPPORTED, "two layers" },
		{ "scale", KVT_MLA, { 1, 2, 2, 1, 1, 4 }, 0, false, KVT_UNSUPPORTED,
		  "a floating point type" },
		{ "zero-block", KVT_MLA, { 1, 2, 2, 1, 1, 4 }, 0, false, KVT_BAD_INPUT,
		  "zero-block would not change any live element of this dump" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_strike strike = { .fault = kvt_fault_find(rows[i].fault),
					     .layer = -1, .block = -1 };
		struct caches *c = new_caches(rows[i].kind, "uint16", "LBSHC", rows[i].n);

		strike.args.n[0] = rows[i].arg;
		strike.given[0] = rows[i].given;
		expect(kvt_fault_plant(c->suspect, &strike, &c->window, c->expected,
				       &why),
		       rows[i].status, rows[i].says);
	}
}

/* One seed, one result, and the null block is left alone. */
static void test_seed(void)
{
	static const int64_t n[KVT_NAXES] = { 2, 4, 2, 4, 2, 8 };
	static const uint8_t use[8] = { 2, 2 };
	const struct kvt_fault *fault;
	struct caches *c = new_caches(KVT_FULL_ATTENTION, "bfloat16", "LBSHC", n);

	c->window.use = use;
	for (int i = 0; (fault = kvt_fault_at(i)); i++) {
		struct kvt_strike first = { .fault = fault, .seed = 9, .layer = -1,
					    .block = -1 }, second = first;
		uint8_t *again = malloc((size_t)c->nbytes);

		assert_non_null(again);
		if (!kvt_fault_plant(c->suspect, &first, &c->window, c->expected, NULL)) {
			ok(kvt_fault_plant(again, &second, &c->window, c->expected,
					   NULL));
			assert_memory_equal(again, c->suspect, c->nbytes);
			assert_memory_equal(c->suspect, c->expected, c->nbytes / 8);
		}
		free(again);
	}
}

TESTS("fault",
	EACH_BY(cases, fault, test_case),
	TEST(test_padding), TEST(test_values), TEST(test_flips),
	TEST(test_refused), TEST(test_seed), TEST(test_last_token))
