/* SPDX-License-Identifier: Apache-2.0 */
/* test_diagnose_values.c - constant factors and flipped bits, named or not */
#include <math.h>

#include "tests/unit/lib/fault_window.h"
#include "tests/unit/tests.h"

/* ---- factors ------------------------------------------------------------ */

static void test_factors(void)
{
	static const double factors[] = { 0.5, 2, 0.3, 1.7, -1, 0.125, 3, 240 };
	static const char *const types[] = { "bfloat16", "float16", "float32",
					     "float8_e5m2" };

	for (size_t i = 0; i < LENGTH(factors); i++)
		for (size_t t = 0; t < LENGTH(types); t++) {
			struct kvt_strike strike = {
				.fault = kvt_fault_find("scale"),
				.args = { .n = { 1 }, .factor = factors[i] },
				.given = { true }, .layer = 2, .block = -1,
			};
			struct kvt_diagnosis d;
			struct caches *c = make(GQA, types[t]);
			double found;

			assert_true(plant(c, &strike));
			ok(caches_diagnose(&d, c));
			assert_non_null(d.decided);
			assert_string_equal(d.decided->fault->name, "scale");
			assert_int_equal(d.decided->args.n[0], 1);
			found = d.decided->args.factor / factors[i];
			assert_true(found > (t == 3 ? 0.85 : 0.995) &&
				    found < (t == 3 ? 1.15 : 1.005));
			assert_int_equal(d.difference.where.begin[KVT_AXIS_L], 2);
			assert_int_equal(d.difference.where.begin[KVT_AXIS_K], 1);
		}
}

/* Noise is no factor, and a few values are no evidence. */
static void test_no_factor(void)
{
	struct caches *c = make(GQA, "bfloat16");

	for (int64_t i = 0; i < c->nbytes; i += 2)
		c->suspect[i] = (uint8_t)(c->expected[i] ^ (i / 2 % 3 == 0 ? 3 : 0));
	assert_string_equal(caches_name(c), "none");
}

/* Both sides were rounded: no factor makes one of the other exactly. */
static void test_factor_of_source(void)
{
	static const struct {
		double factor;
		bool negated;
		const char *name;
	} cases[] = {
		{ 4, false, "scale" }, { 0.3, false, "scale" },
		/* rounding twice is no factor; another sign refutes it */
		{ 1, false, "none" }, { 4, true, "none" },
	};

	for (size_t t = 0; t < LENGTH(cases); t++) {
		const struct kvt_dtype *dtype = kvt_dtype_find("float8_e4m3fn");
		struct caches *c = make(GQA, dtype->name);

		for (int64_t i = 0; i < c->nbytes; i++) {
			double x = (double)(i * 7919 % 997 + 3) / 900;
			double noise = t == 2 ? 1 + (double)(i % 5 - 2) / 40 : 1;

			kvt_dtype_encode(dtype, c->expected + i, x);
			kvt_dtype_encode(dtype, c->suspect + i,
					 x * cases[t].factor * noise);
		}
		c->suspect[1] ^= cases[t].negated ? 0x80 : 0;
		assert_string_equal(caches_name(c), cases[t].name);
	}
}

/* As near to a factor of 1 as the tolerance: nothing is explained by that. */
static void test_factor_of_one(void)
{
	static const uint8_t one[4] = { 0x00, 0x00, 0x80, 0x3f };
	static const uint8_t more[4] = { 0xa4, 0x70, 0x8d, 0x3f };	/* 1.105 */
	struct caches *c = make(SSM, "float32");

	for (int64_t i = 0; i < c->nbytes; i += 4) {
		memcpy(c->expected + i, one, 4);
		memcpy(c->suspect + i, more, 4);
	}
	assert_string_equal(caches_name(c), "scale");
	c->window.rtol = 0.1;
	assert_string_equal(caches_name(c), "none");
}

/* A share of infinity is everything: it must not swallow a difference. */
static void test_not_finite(void)
{
	static const float pairs[][2] = {
		{ (float)INFINITY, 5 }, { 5, (float)INFINITY }, { (float)NAN, 5 },
		{ 5, (float)NAN }, { (float)INFINITY, -(float)INFINITY },
		{ (float)INFINITY, (float)NAN },
		/* and these are the same */
		{ (float)INFINITY, (float)INFINITY }, { (float)NAN, -(float)NAN },
	};
	struct kvt_difference d;
	struct caches *c = make(SSM, "float32");

	c->window.rtol = 0.1;
	for (size_t i = 0; i < 8; i++) {
		memcpy(c->expected + 4 * i, &pairs[i][0], 4);
		memcpy(c->suspect + 4 * i, &pairs[i][1], 4);
	}
	kvt_window_compare(&d, &c->window, c->expected, c->suspect);
	assert_int_equal(d.count, 6);
}

/* ---- bits --------------------------------------------------------------- */

static void test_bits(void)
{
	struct caches *c = make(GQA, "bfloat16");

	for (int i = 0; i < 64; i++)
		c->suspect[400 + 16 * i] ^= 0x10;
	assert_string_equal(caches_name(c), "flip-bits");
	c->suspect[396] ^= 0x10;		/* more than can be chance */
	assert_string_equal(caches_name(c), "none");
	memcpy(c->suspect, c->expected, (size_t)c->nbytes);
	c->suspect[400] ^= 0x10;
	assert_string_equal(caches_name(c), "flip-bits");
	c->suspect[802] ^= 0x01;
	assert_string_equal(caches_name(c), "flip-bits");
	c->suspect[802] ^= 0x04;		/* two bits of one element */
	assert_string_equal(caches_name(c), "none");
	memcpy(c->suspect, c->expected, (size_t)c->nbytes);
	c->suspect[400] ^= 0x02;		/* may as well be rounding */
	assert_string_equal(caches_name(c), "none");
	for (int64_t i = 0; i < c->nbytes; i += 2)	/* all of them: no accident */
		c->suspect[i] = c->expected[i] ^ 0x10;
	assert_string_equal(caches_name(c), "none");
}

/* Few are many where there are not many. */
static void test_small(void)
{
	static const int64_t n[KVT_NAXES] = { 1, 1, 2, 1, 1, 32 };
	struct caches *c = caches_fill(new_caches(KVT_MLA, "bfloat16", "LBSC", n));

	for (int i = 0; i < 4; i++)
		c->suspect[30 * i] ^= 0x10;
	assert_string_equal(caches_name(c), "flip-bits");
	c->suspect[120] ^= 0x10;
	assert_string_equal(caches_name(c), "none");
}

TESTS("diagnose_values",
	TEST(test_factors), TEST(test_no_factor), TEST(test_factor_of_source),
	TEST(test_factor_of_one), TEST(test_not_finite), TEST(test_bits),
	TEST(test_small))
