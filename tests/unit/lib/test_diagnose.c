/* SPDX-License-Identifier: Apache-2.0 */
/* test_diagnose.c - a fault is named if it, and it alone, explains everything */
#include "tests/fewer.h"
#include "tests/unit/lib/fault_window.h"
#include "tests/unit/tests.h"

/* ---- named -------------------------------------------------------------- */

/* Several faults may do the same; then none of them is named. */
static void check_planted(const struct caches *c, const struct kvt_strike *strike)
{
	struct kvt_diagnosis d;
	bool explains = false;

	ok(caches_diagnose(&d, c));
	for (int i = 0; i < d.nhypotheses; i++)
		explains |= d.hypothesis[i].fault == strike->fault &&
			    d.hypothesis[i].verdict == KVT_EXPLAINS;
	if (!explains)
		fail_msg("%s,%s is not explained", strike->fault->name,
			 kvt_fault_text(strike->fault, &strike->args, &c->window).s);
	if (d.nexplain != 1) {
		assert_null(d.decided);
		return;
	}
	assert_ptr_equal(d.decided->fault, strike->fault);
	/* more than one set of arguments does the same, or it begins elsewhere */
	if (d.decided->nargs == 1 && strcmp(strike->fault->name, "zero-tail") &&
	    strcmp(strike->fault->name, "shift-tokens"))
		assert_memory_equal(d.decided->args.n, strike->args.n,
				    sizeof(strike->args.n));
	assert_int_equal(d.decided->explained + d.decided->unknown, d.difference.count);
}

/* Who asks for one fault gets what all together say, or nothing. */
static void check_only(const struct caches *c, const struct kvt_fault *planted)
{
	struct kvt_diagnosis all, only;
	const struct kvt_fault *fault;

	ok(caches_diagnose(&all, c));
	ok(caches_diagnose_only(&only, c, planted));
	assert_int_equal(only.nexplain, all.nexplain);
	assert_true(!only.decided == !all.decided);
	if (all.decided)
		assert_ptr_equal(only.decided->fault, all.decided->fault);
	for (int i = 0; all.nexplain && (fault = kvt_fault_at(i)); i++) {
		if (all.hypothesis[i].verdict == KVT_EXPLAINS)
			continue;
		ok(caches_diagnose_only(&only, c, fault));
		assert_true(!only.decided || only.decided->fault != fault);
	}
}

static void test_all(void)
{
	const struct kvt_fault *fault;

	for (int i = 0; (fault = kvt_fault_at(i)); i++) {
		int planted = 0;

		for (int seed = 0; seed < 4 * NSHAPES; seed += every() > 1 ? 5 : 1) {
			struct kvt_strike strike = { .fault = fault, .layer = -1,
						     .block = -1,
						     .seed = (uint64_t)seed };
			struct caches *c = make(seed % NSHAPES,
						seed % 8 < 4 ? "bfloat16" : "float32");

			/* the two lowest bits may be rounding */
			if (plant(c, &strike) && strcmp(fault->name, "flip-bits")) {
				check_planted(c, &strike);
				if (seed < 2 && i % every() == 0)
					check_only(c, fault);
				planted++;
			}
		}
		/* with one request, and no more than three layers */
		assert_true(planted || !strcmp(fault->name, "flip-bits") ||
			    !strcmp(fault->name, "swap-requests") ||
			    !strcmp(fault->name, "permute-layers"));
	}
}

/* Most faults have a name of their own here. */
static void test_named(void)
{
	static const struct {
		const char *fault;
		enum shape shape;
		int64_t arg[KVT_FAULT_ARGS];
	} rows[] = {
		{ "swap-heads", GQA, { 1, 4 } }, { "swap-heads", SSM, { 0, 5 } },
		{ "zero-kv", GQA, { 0 } }, { "zero-kv", GQA, { 1 } },
		{ "copy-head", GQA, { 1, 4 } }, { "rank-map", GQA, { 3 } },
		{ "rank-map", SSM, { 12 } }, { "swap-heads-slots", GQA, { 0 } },
		{ "swap-heads-slots", GQA, { 1 } }, { "swap-kv", GQA, { 0 } },
		{ "split-kv", GQA, { 0, 0 } }, { "split-kv", GQA, { 1, 2 } },
		{ "rope-pairs", GQA, { 0, 16 } }, { "rope-pairs", MLA, { 1, 8 } },
		{ "x-packing", GQA, { 0, 8, 0 } }, { "x-packing", GQA, { 1, 1, 1 } },
		{ "conv-order", CONV, { 1 } }, { "conv-parts", CONV, { 0, 4 } },
		{ "shift-tokens", GQA, { 1 } }, { "shift-tokens", MLA, { -1 } },
		{ "stale-block", CONV, { 4, 1 } }, { "wrong-layer", GQA, { 1, 2 } },
		{ "padding", GQA, { 512 } }, { "byte-order", MLA, { 0 } },
		{ "scale", SSM, { 2 } }, { "ssm-order", SSM, { 8 } },
		{ "swap-blocks", GQA, { 1, 4 } }, { "swap-blocks", CONV, { 0, 2 } },
		{ "permute-blocks", MLA, { 4 } }, { "shift-table", GQA, { 2, 1 } },
		{ "stale-blocks", GQA, { 2 } }, { "swap-layers", SSM, { 0, 1 } },
		{ "rotate-layers", GQA, { -1 } }, { "rotate-heads", SSM, { 2 } },
		{ "permute-heads", GQA, { 4 } }, { "swap-ranks", GQA, { 3, 0, 2 } },
		{ "copy-rank", SSM, { 2, 1, 0 } }, { "shift-tokens", GQA, { 9, 6 } },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_strike strike = { .fault = kvt_fault_find(rows[i].fault),
					     .given = { true, true, true },
					     .layer = -1, .block = -1 };
		struct caches *c = make(rows[i].shape, "float16");

		memcpy(strike.args.n, rows[i].arg, sizeof(rows[i].arg));
		assert_true(plant(c, &strike));
		assert_string_equal(caches_name(c), rows[i].fault);
	}
}

/* ---- not named ---------------------------------------------------------- */

/* Is it that fault that explains a part, or none? */
static void check_part(const struct caches *c, const struct kvt_fault *fault)
{
	struct kvt_diagnosis d;

	ok(caches_diagnose(&d, c));
	assert_int_equal(d.nexplain, 0);
	if (!d.decided)
		return;
	assert_int_equal(d.decided->verdict, KVT_EXPLAINS_PART);
	/* a table that was shifted but for one end is blocks that were, a tail blocks */
	if (strncmp(fault->name, "shift-", 6) && strcmp(fault->name, "zero-tail"))
		assert_string_equal(d.decided->fault->name, fault->name);
	assert_true(d.decided->explained < d.difference.count);
}

/* Two faults at once, or a fault and one more bit, are no single fault. */
static void test_two_faults(void)
{
	const struct kvt_fault *fault;

	for (int i = 0; (fault = kvt_fault_at(i)); i++) {
		struct kvt_strike strike = { .fault = fault, .layer = -1, .block = -1,
					     .seed = 3 };
		struct caches *c = make(strstr(fault->name, "conv") ? CONV :
					strstr(fault->name, "ssm") ? SSM : GQA,
					"bfloat16");

		if (!plant(c, &strike)) {
			/* two requests; four layers */
			assert_true(!strcmp(fault->name, "swap-requests") ||
				    !strcmp(fault->name, "permute-layers"));
			continue;
		}
		if (strcmp(fault->name, "flip-bits")) {
			for (int64_t at = 0; at < c->nbytes; at += c->nbytes / 7)
				c->suspect[at | 1] ^= 0x20;
			check_part(c, fault);
		}
	}
}

/* One element more anywhere, be it the first of a page that no fault has hit. */
static void test_one_more(void)
{
	static const struct {
		const char *fault;
		int64_t arg[KVT_FAULT_ARGS];
	} rows[] = {
		{ "swap-heads", { 1, 4 } }, { "swap-kv", { 0 } },
		{ "wrong-layer", { 0, 1 } }, { "rope-pairs", { 0, 16 } },
	};
	struct caches *c = make(GQA, "bfloat16");

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_strike strike = { .fault = kvt_fault_find(rows[i].fault),
					     .given = { true, true, true },
					     .layer = 0, .block = -1 };

		memcpy(strike.args.n, rows[i].arg, sizeof(rows[i].arg));
		assert_true(plant(c, &strike));
		assert_string_equal(caches_name(c), rows[i].fault);
		for (int page = 0; page < 18; page += every() > 1 ? 5 : 1) {
			int64_t at = c->nbytes / 18 * page;
			uint8_t was = c->suspect[at];

			c->suspect[at] ^= 0x55;
			check_part(c, strike.fault);
			c->suspect[at] = was;
		}
	}
}

static void fill(uint8_t *bytes, int64_t n, uint8_t value)
{
	memset(bytes, value, (size_t)n);
}

/* All heads alike: what moves heads can have changed nothing, or be anything. */
static void test_equal_heads(void)
{
	struct kvt_strike strike = { .fault = kvt_fault_find("swap-heads"),
				     .layer = -1, .block = -1 };
	struct caches *c = make(SSM, "float32");

	for (int64_t row = 0; row < c->nbytes; row += 64 * 6)
		for (int h = 1; h < 6; h++)
			memcpy(c->expected + row + h * 64, c->expected + row, 64);
	assert_int_equal(kvt_fault_plant(c->suspect, &strike, &c->window, c->expected,
					 NULL), KVT_BAD_INPUT);
	memcpy(c->suspect, c->expected, (size_t)c->nbytes);
	assert_string_equal(caches_name(c), "none");
}

/* With two heads a copy of head 0 and a rank map for four ranks are the same. */
static void test_several(void)
{
	static const int64_t n[KVT_NAXES] = { 1, 2, 2, 2, 2, 8 };
	struct kvt_strike strike = { .fault = kvt_fault_find("copy-head"),
				     .args = { .n = { 1, 0 } }, .given = { true, true },
				     .layer = -1, .block = -1 };
	struct kvt_diagnosis d;
	struct caches *c =
		caches_fill(new_caches(KVT_FULL_ATTENTION, "bfloat16", "LBSHC", n));

	assert_true(plant(c, &strike));
	ok(caches_diagnose(&d, c));
	assert_int_equal(d.nexplain, 2);
	assert_null(d.decided);
}

/* One slot a block: blocks and tokens shift alike, and blocks are what is said. */
static void test_one_slot(void)
{
	static const int64_t n[KVT_NAXES] = { 1, 6, 1, 2, 2, 8 };
	struct kvt_strike strike = { .fault = kvt_fault_find("shift-tokens"),
				     .args = { .n = { 1 } }, .given = { true },
				     .layer = -1, .block = -1 };
	struct caches *c =
		caches_fill(new_caches(KVT_FULL_ATTENTION, "bfloat16", "LBSHC", n));

	assert_true(plant(c, &strike));
	assert_string_equal(caches_name(c), "shift-blocks");
}

/* Zeros everywhere: zeroed blocks, a lost tail, a factor of nearly 0. */
static void test_zeros(void)
{
	struct caches *c = make(GQA, "bfloat16");

	fill(c->suspect, c->nbytes, 0);
	assert_string_equal(caches_name(c), "several");
	memcpy(c->suspect, c->expected, (size_t)c->nbytes);
	fill(c->suspect + c->nbytes / 18 * 7, c->nbytes / 18, 0);	/* layer 1,
		block 1 */
	assert_string_equal(caches_name(c), "zero-block");
	c->suspect[c->nbytes / 18 * 7 + 101] = 0x3f;
	assert_string_equal(caches_name(c), "none");
	fill(c->expected, c->nbytes, 0);
	fill(c->suspect, c->nbytes, 0);
	assert_string_equal(caches_name(c), "none");
}

/* The order of bytes needs bytes, and the tail a layout. */
static void test_lacking(void)
{
	struct caches *c = make(GQA, "bfloat16");

	fill(c->suspect + c->nbytes / 2 + 100, c->nbytes / 2 - 100, 0);
	assert_string_equal(caches_name(c), "zero-tail");
	c->window.layout = NULL;
	assert_string_equal(caches_name(c), "part");

	c = make(MLA, "float8_e4m3fn");
	for (int64_t i = 0; i < c->nbytes; i++)
		c->suspect[i] = (uint8_t)~c->expected[i];
	assert_string_equal(caches_name(c), "none");
}

/* ---- what nobody knows -------------------------------------------------- */

/* Of three pages that differ two hold padding, which may be anything. */
static void test_mostly_unknown(void)
{
	static const int64_t n[KVT_NAXES] = { 1, 4, 2, 1, 1, 32 };
	struct kvt_strike strike = { .fault = kvt_fault_find("padding"),
				     .args = { .n = { 128 } }, .given = { true },
				     .layer = -1, .block = -1 };
	struct caches *c = caches_fill(new_caches(KVT_MLA, "bfloat16", "LBSC", n));

	assert_true(plant(c, &strike));
	check_part(c, kvt_fault_find("zero-block"));
	strike.args.n[0] = 32;
	assert_true(plant(c, &strike));
	assert_string_equal(caches_name(c), "padding");
}

/* ---- what is looked at -------------------------------------------------- */

/* Stale slots may differ; they are neither evidence nor counted. */
static void test_use(void)
{
	uint8_t use[24] = { 0 };
	struct kvt_strike strike = { .fault = kvt_fault_find("swap-kv"), .layer = -1,
				     .block = -1 };
	struct kvt_diagnosis d;
	struct caches *c = make(GQA, "bfloat16");

	for (int s = 20; s < 24; s++)
		use[s] = KVT_STALE;
	c->window.use = use;
	assert_true(plant(c, &strike));
	c->suspect[c->nbytes - 1] ^= 0x40;
	ok(caches_diagnose(&d, c));
	assert_non_null(d.decided);
	assert_string_equal(d.decided->fault->name, "swap-kv");
	assert_int_equal(d.difference.live, c->nbytes / 2 / 24 * 20);
	assert_int_equal(d.difference.where.end[KVT_AXIS_B], 5);
}

/* Rounding everywhere hides a fault from equality, but not from a tolerance. */
static void test_tolerance(void)
{
	struct kvt_strike strike = { .fault = kvt_fault_find("swap-heads"),
				     .args = { .n = { 1, 4 } }, .given = { true, true },
				     .layer = -1, .block = -1 };
	struct caches *c = make(GQA, "bfloat16");

	assert_true(plant(c, &strike));
	for (int64_t i = 0; i < c->nbytes; i += 2)
		c->suspect[i] ^= 1;
	assert_string_equal(caches_name(c), "none");
	c->window.rtol = 0.01;
	assert_string_equal(caches_name(c), "swap-heads");
}

/* Ids are what is printed; a window may begin anywhere. */
static void test_text(void)
{
	static const int64_t layers[2] = { 7, 9 };
	struct kvt_fault_args args = { .n = { 0, 1 }, .factor = 0.125 };
	struct caches *c = make(SSM, "float32");

	c->window.layer_ids = layers;
	c->window.head_start = 12;
	assert_string_equal(kvt_fault_text(kvt_fault_find("wrong-layer"), &args,
					   &c->window).s, "layer=7,from=9");
	assert_string_equal(kvt_fault_text(kvt_fault_find("swap-heads"), &args,
					   &c->window).s, "a=12,b=13");
	assert_string_equal(kvt_fault_text(kvt_fault_find("scale"), &args,
					   &c->window).s, "kv=0,factor=0.125");
	assert_string_equal(kvt_fault_text(kvt_fault_find("swap-kv"), &args,
					   &c->window).s, "");
}

static void test_bad_window(void)
{
	static const struct {
		int64_t start, length, prev;
		const char *dtype, *says;
	} rows[] = {
		{ 0, 16, 99, "bfloat16", "beside one beyond the 6 blocks" },
		{ 0, 16, 0, "float32", "elements of 2 bytes, expected those of float32" },
		{ 0, 15, 0, "bfloat16", "part 0 of a row is 15 elements from 0" },
		{ 1, 15, 0, "bfloat16", "part 0 of a row is 15 elements from 1" },
		{ 0, 17, 0, "bfloat16", "part 0 of a row is 17 elements from 0" },
		{ 0, INT64_MAX, 0, "bfloat16", "part 0 of a row" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct caches *c = make(GQA, "bfloat16");
		int64_t nbytes;

		c->window.nparts = 1;
		c->window.part[0].start = rows[i].start;
		c->window.part[0].length = rows[i].length;
		c->prev[3] = rows[i].prev;
		c->window.dtype = kvt_dtype_find(rows[i].dtype);
		expect(kvt_diagnose_scratch(&nbytes, &c->window, &why), KVT_BAD_INPUT,
		       rows[i].says);
	}
}

TESTS("diagnose",
	TEST(test_all), TEST(test_named), TEST(test_two_faults), TEST(test_one_more),
	TEST(test_equal_heads), TEST(test_several), TEST(test_one_slot), TEST(test_zeros),
	TEST(test_lacking), TEST(test_mostly_unknown), TEST(test_use),
	TEST(test_tolerance), TEST(test_text), TEST(test_bad_window))
