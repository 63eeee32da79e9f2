/* SPDX-License-Identifier: Apache-2.0 */
/* test_diagnose_values.c - constant factors and flipped bits, named or not */
#include <float.h>
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
				.args = { .n = { (int64_t)i % 3 }, .factor = factors[i] },
				.given = { true }, .layer = 2, .block = -1,
			};
			struct kvt_diagnosis d;
			struct caches *c = make(GQA, types[t]);
			double found;

			/* what is 0 stays, and does not differ */
			memset(c->expected + c->nbytes - 8, 0, 8);
			assert_true(plant(c, &strike));
			ok(caches_diagnose(&d, c));
			assert_non_null(d.decided);
			assert_string_equal(d.decided->fault->name, "scale");
			assert_int_equal(d.decided->args.n[0], i % 3);
			assert_int_equal(d.decided->explained, d.difference.count);
			found = d.decided->args.factor / factors[i];
			assert_true(found > (t == 3 ? 0.85 : 0.995) &&
				    found < (t == 3 ? 1.15 : 1.005));
			assert_int_equal(d.difference.where.begin[KVT_AXIS_L], 2);
			assert_int_equal(d.difference.where.begin[KVT_AXIS_K],
					 i % 3 == 1);
		}
}

static void put(uint8_t *element, double x)
{
	kvt_dtype_encode(kvt_dtype_find("float32"), element, x);
}

/* All are twice as large but one, which may be so or not. */
static void test_odd_one(void)
{
	static const struct {
		double a, b;
		bool may;
	} rows[] = {
		{ 0, 0, true }, { 0, 5, false }, { 3, -6, false },
		{ INFINITY, INFINITY, true }, { INFINITY, 5, false },
		{ NAN, NAN, true }, { NAN, 5, false }, { 3, NAN, false },
		{ 3, INFINITY, true },		/* too large to be stored */
	};

	for (size_t r = 0; r < LENGTH(rows); r++) {
		struct caches *c = make(SSM, "float32");

		for (int64_t i = 0; i < c->nbytes; i += 4)
			put(c->suspect + i, 2 * kvt_dtype_decode(c->window.dtype,
								 c->expected + i));
		put(c->expected + 40, rows[r].a);
		put(c->suspect + 40, rows[r].b);
		if (!strcmp(caches_name(c), "scale") != rows[r].may)
			fail_msg("%g became %g: %s", rows[r].a, rows[r].b,
				 caches_name(c));
	}
}

/* How many values tell of a factor, in all and of each layer. */
static void test_evidence(void)
{
	static const struct {
		int64_t layers, elements;
		const char *dtype, *name;
	} rows[] = {
		{ 1, 8, "float32", "scale" }, { 1, 7, "float32", "none" },
		{ 2, 4, "float32", "scale" }, { 3, 3, "float32", "none" },
		/* rounded from one source on both sides */
		{ 1, 64, "float8_e4m3fn", "scale" }, { 1, 63, "float8_e4m3fn", "none" },
	};

	for (size_t r = 0; r < LENGTH(rows); r++) {
		const int64_t n[KVT_NAXES] = { rows[r].layers, 1, 1, 1, 1,
					       rows[r].elements };
		struct caches *c = new_caches(KVT_MAMBA_SSM, rows[r].dtype, "LBHC", n);
		const int64_t elem = c->window.shape.elem;

		for (int64_t i = 0; i < c->nbytes; i += elem) {
			double x = (double)(i * 7919 % 997 + 3) / 900;

			kvt_dtype_encode(c->window.dtype, c->expected + i, x);
			kvt_dtype_encode(c->window.dtype, c->suspect + i,
					 x * (elem == 1 ? 0.3 : 2));
		}
		assert_string_equal(caches_name(c), rows[r].name);
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
		double rtol;
	} cases[] = {
		{ 4, false, "scale", 0 }, { 0.3, false, "scale", 0 },
		/* rounding twice is no factor; another sign refutes it */
		{ 1, false, "none", 0 }, { 4, true, "none", 0 },
		/* a tolerance allows for it already */
		{ 0.3, false, "none", 1e-9 },
	};

	for (size_t t = 0; t < LENGTH(cases); t++) {
		const struct kvt_dtype *dtype = kvt_dtype_find("float8_e4m3fn");
		struct caches *c = make(GQA, dtype->name);

		for (int64_t i = 0; i < c->nbytes; i++) {
			/* what is nearly half of the least becomes 0 */
			double x = i % 50 ? (double)(i * 7919 % 997 + 3) / 900 : 0.00095;
			double noise = t == 2 ? 1 + (double)(i % 5 - 2) / 40 : 1;

			x = i % 3 ? x : -x;
			kvt_dtype_encode(dtype, c->expected + i, x);
			kvt_dtype_encode(dtype, c->suspect + i,
					 x * cases[t].factor * noise);
		}
		c->suspect[1] ^= cases[t].negated ? 0x80 : 0;
		c->window.rtol = cases[t].rtol;
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

/* ---- cut, and not finite -------------------------------------------------- */

/* Of what was cut nothing tells the factor but its sign; so some must not be. */
static void test_cut(void)
{
	struct caches *c = make(GQA, "float8_e4m3fn");
	struct kvt_strike strike = {
		.fault = kvt_fault_find("saturate"), .layer = 1, .block = -1,
		.args = { .n = { 2 }, .factor = 240 }, .given = { true },
	};
	struct kvt_diagnosis d;
	int64_t cut = 0;

	c->expected[c->nbytes / 3] = 0x7e;	/* which is no larger then */
	assert_true(plant(c, &strike));
	for (int64_t i = 0; i < c->nbytes; i++)
		cut += (c->suspect[i] & 0x7f) == 0x7e && c->suspect[i] != c->expected[i];
	ok(caches_diagnose(&d, c));
	assert_non_null(d.decided);
	assert_string_equal(d.decided->fault->name, "saturate");
	assert_int_equal(d.decided->args.n[0], 2);
	assert_int_equal(d.decided->args.n[1], cut);
	assert_true(cut > 8 && fabs(d.decided->args.factor - 240) < 40);
	for (int64_t i = 0; i < c->nbytes; i++)
		c->suspect[i] = 0x7e | (c->expected[i] & 0x80);
	assert_string_equal(caches_name(c), "none");
}

/* A few that were cut are in the way of no factor, each layer has its own. */
static void test_few_cut(void)
{
	struct caches *c = make(SSM, "float32");
	const int64_t layer = c->nbytes / 2;
	struct kvt_diagnosis d;

	for (int64_t i = 0; i < c->nbytes; i += 4)
		put(c->suspect + i, (i < layer ? 2 : 3) *
		    kvt_dtype_decode(c->window.dtype, c->expected + i));
	for (int k = 0; k < 8; k++) {
		ok(caches_diagnose(&d, c));
		assert_non_null(d.decided);
		assert_string_equal(d.decided->fault->name, "scale");
		assert_int_equal(d.decided->nargs, 2);
		assert_int_equal(d.decided->args.n[1], 0);
		assert_true(d.decided->args.factor == 2);
		put(c->expected + 64 * k, 3e38);
		put(c->suspect + 64 * k, FLT_MAX);
	}
	assert_string_equal(caches_name(c), "saturate");
}

static void put_bf16(struct caches *c, uint16_t expected, uint16_t suspect)
{
	memcpy(c->suspect, c->expected, (size_t)c->nbytes);
	for (int i = 0; i < 10; i++) {
		memcpy(c->expected + 16 * i, &expected, 2);
		memcpy(c->suspect + 16 * i, &suspect, 2);
	}
}

static void test_nan(void)
{
	struct caches *c = make(GQA, "bfloat16");

	put_bf16(c, 0x3f80, 0x7fc1);
	assert_string_equal(caches_name(c), "nan");
	put_bf16(c, 0x7f00, 0x7f80);		/* one bit of each, all the same */
	assert_string_equal(caches_name(c), "flip-bits");
	put_bf16(c, 0x7f80, 0x7fe1);		/* was infinite */
	assert_string_equal(caches_name(c), "none");
}

/* ---- bits --------------------------------------------------------------- */

static void test_bits(void)
{
	struct kvt_strike strike = { .fault = kvt_fault_find("flip-bits"), .layer = -1,
				     .block = -1, .args = { .n = { 64 } },
				     .given = { true } };
	struct caches *c = make(GQA, "bfloat16");

	assert_true(plant(c, &strike));
	memcpy(c->suspect, c->expected, (size_t)c->nbytes);
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
	/* three of the half that is live */
	memcpy(c->suspect + 64, c->expected + 64, 64);
	c->window.use = (const uint8_t[]){ KVT_LIVE, KVT_STALE };
	assert_string_equal(caches_name(c), "none");
	c->suspect[60] = c->expected[60];
	assert_string_equal(caches_name(c), "flip-bits");
}

TESTS("diagnose_values",
	TEST(test_factors), TEST(test_odd_one), TEST(test_evidence),
	TEST(test_no_factor), TEST(test_factor_of_source), TEST(test_factor_of_one),
	TEST(test_cut), TEST(test_few_cut), TEST(test_nan), TEST(test_not_finite),
	TEST(test_bits), TEST(test_small))
