/* SPDX-License-Identifier: Apache-2.0 */
/* test_layout.c - layouts as people write them: read, printed, refused */
#include "lib/kvt/kvt.h"
#include "tests/unit/tests.h"

/* ---- reading ------------------------------------------------------------ */

struct parse_case {
	const char *what, *text, *string;
};

static struct parse_case reads[] = {
	{ "C is kept open and printed closed", "LBSHKD", "LBSHC" },
	{ "blanks between letters", " L B  H\tS C ", "LBHSC" },
	{ "N is S", "LBNHC", "LBSHC" },
	{ "K apart from D stays open", "L K B S H D", "LKBSHD" },
	{ "C inside an order is opened", "LBCSH", "LBKDSH" },
	{ "x is the inner part of D", "LBKHDSx", "L B K H D/x S x" },
	{ "x right behind D is a split all the same", "LBKHSDx", "L B K H S D/x x" },
	{ "D%x is x", "L B D/x S D%x", "L B D/x S x" },
	{ "splits among compact letters", "LBKHS/8DS%8", "L B K H S/8 D S%8" },
	{ "a split S before C", "L B S/8 H S%8 C", "L B S/8 H S%8 C" },
	{ "S split by x", "L B K H S/x D S%x", "L B K H S/x D S%x" },
	{ "S and D split", "LBKHS/16 D/2 S%16 D%2", "L B K H S/16 D/2 S%16 D%2" },
	{ "the inner part may stand first", "S%4 D S/4", "S%4 D S/4" },
	{ "the largest split", "S/1073741824 D S%1073741824",
	  "S/1073741824 D S%1073741824" },
	{ "no head: MLA", "LBSC", "LBSC" },
	{ "no K: conv state", "LBSD", "LBSD" },
	{ "no layer: one file a layer", "BHSC", "BHSC" },
	{ "only content", "C", "C" },
	{ "two buffers", "K:LBSHD V:LBSHD", "K:LBSHD V:LBSHD" },
	{ "planes that meet at K", "K:LKBHDSx V:LKBHDS",
	  "K:L K B H D/x S x V:L K B H D S" },
	{ "planes without a blank between", "K:LKBHDSV:LKBHSD", "K:LKBHDS V:LKBHSD" },
	{ "planes do not close K and D", "K:LBSHKD V:LBSHKD", "K:LBSHKD V:LBSHKD" },
	{ "preset in capitals", "ROCM-PAGED", "K:L K B H D/x S x V:L K B H D S" },
	{ "preset with underscores", "kv_first_nhd", "LKBSHD" },
	{ "preset in lower-case letters of its axes", "lbnhc", "LBSHC" },
	{ "NHD alone is a preset, not three axes", "NHD", "LBSHC" },
	{ "three axes otherwise", "N H D", "SHD" },
	{ "vLLM's name", "vLLM:LBHNC", "LBHSC" },
	{ "KVBM's name", "kvbm:UniversalTP", "BHLKSD" },
	{ "FlexKV's name", "FlexKV:BLOCKFIRST", "BLKSHD" },
	{ "SGLang's page_first", "sglang:page_first", "KBSLHD" },
	{ "LMCache's name", "lmcache:NL_X_NB_TWO_NH_BS_HS", "LBKHSD" },
	{ "TensorRT-LLM's pool", "trtllm:pool", "BLKHSD" },
	{ "tuple in brackets, with blanks", "rfc:(0, 1, 3, 2, 4)", "LBHSC" },
	{ "tuple that has no name", "vllm:1,3,0,2,4", "BSLHC" },
	{ "tuple with C inside", "rfc:0,1,4,2,3", "LBKDSH" },
};

static void check_string(const char *text, const char *string)
{
	struct kvt_layout layout, again;

	ok(kvt_layout_parse(&layout, text, &why));
	assert_string_equal(kvt_layout_string(&layout).s, string);
	ok(kvt_layout_parse(&again, string, &why));
	assert_true(kvt_layout_equal(&layout, &again));
}

static void test_read(void **state)
{
	const struct parse_case *c = *state;

	check_string(c->text, c->string);
}

/* ---- refusing ----------------------------------------------------------- */

struct refuse_case {
	const char *what, *text;
	enum kvt_status status;
	const char *says[3];	/* all of them */
};

static struct refuse_case refusals[] = {
	{ "bare tuple: both readings", "0,1,2,3,4", KVT_BAD_INPUT,
	  { "rfc: it is LBSHC", "vllm: LBHSC" } },
	{ "bare tuple in brackets", "(0,1,3,2,4)", KVT_BAD_INPUT,
	  { "rfc: it is LBHSC", "vllm: LBSHC" } },
	{ "tuple of 4", "rfc:0,1,2,3", KVT_BAD_INPUT, { "4 numbers" } },
	{ "tuple of 6", "0,1,2,3,4,5", KVT_BAD_INPUT, { "6 numbers" } },
	{ "tuple of 3", "vllm:0,1,2", KVT_USAGE, { "5 numbers, not 3" } },
	{ "tuple with an entry twice", "rfc:0,1,1,2,3", KVT_USAGE, { "0 to 4 once" } },
	{ "tuple with an entry above 4", "rfc:0,1,2,3,5", KVT_USAGE, { "0 to 4 once" } },
	{ "bare tuple that is no permutation", "0,0,0,0,0", KVT_USAGE, { "once" } },
	{ "tuple that stops", "rfc:0,1,", KVT_USAGE, { "unknown name" } },
	{ "bracket that stays open", "rfc:(0,1,2,3,4", KVT_USAGE, { "unknown name" } },
	{ "page_first", "page_first", KVT_BAD_INPUT,
	  { "sglang:page_first (KBSLHD)", "blshc" } },
	{ "blocks first", "blocks first", KVT_BAD_INPUT,
	  { "flexkv:BLOCKFIRST (BLKSHD)", "blocks-first-nhd (LBKSHD)" } },
	{ "universal", "Universal", KVT_BAD_INPUT,
	  { "kvbm:UniversalTP", "kvbm:UniversalPP" } },
	{ "cross-layer", "cross_layer", KVT_BAD_INPUT,
	  { "blshc", "cross-hnd", "cross-kv-head" } },
	{ "vLLM NHD without its time", "vLLM:NHD", KVT_BAD_INPUT,
	  { "LKBSHD", "LBKSHD", "LBSHC" } },
	{ "FlashInfer NHD", "flashinfer:NHD", KVT_BAD_INPUT,
	  { "LBKSHD", "flashinfer-pair-nhd" } },
	{ "CPU without instruction set", "cpu", KVT_BAD_INPUT, { "cpu-amx" } },
	{ "what no order expresses", "nvfp4-hnd", KVT_UNSUPPORTED,
	  { "cannot be described by an order" } },
	{ "nothing", "", KVT_USAGE, { "empty" } },
	{ "blanks", "  ", KVT_USAGE, { "empty" } },
	{ "no word of ours", "foo", KVT_USAGE, { "'foo'", "unknown name" } },
	{ "letters swapped", "hdn", KVT_USAGE, { "did you mean 'hnd'?" } },
	{ "letter missing", "rocm-page", KVT_USAGE, { "did you mean 'rocm-paged'?" } },
	{ "letter too many", "NHDD", KVT_USAGE, { "D occurs twice", "'nhd'?" } },
	{ "far from everything", "kvcache", KVT_USAGE, { "unknown name" } },
	{ "axis twice", "LBLSHC", KVT_USAGE, { "axis L occurs twice" } },
	{ "S and N", "LBNSHC", KVT_USAGE, { "axis S occurs twice" } },
	{ "no such axis", "LBQHC", KVT_USAGE, { "no axis 'Q'" } },
	{ "lower case", "lbsqc", KVT_USAGE, { "unknown name" } },
	{ "C beside K", "LBSHCK", KVT_USAGE, { "C means K and D" } },
	{ "C beside D", "LDBSHC", KVT_USAGE, { "C means K and D" } },
	{ "C twice", "LBSHCC", KVT_USAGE, { "C occurs twice" } },
	{ "no content", "LBSH", KVT_USAGE, { "no content axis" } },
	{ "x before D", "LBHxSD", KVT_USAGE, { "x must follow" } },
	{ "x without D", "LBHSCx", KVT_USAGE, { "x must follow" } },
	{ "x twice", "LBHDSxx", KVT_USAGE, { "D occurs twice" } },
	{ "head split", "LBH/2SH%2C", KVT_USAGE, { "axis H is split" } },
	{ "layer split", "L/2BSHCL%2", KVT_USAGE, { "axis L is split" } },
	{ "no inner part", "LBS/8HD", KVT_USAGE, { "inner (%) part is missing" } },
	{ "no outer part", "LBHD%8S", KVT_USAGE, { "outer (/) part is missing" } },
	{ "parts of two sizes", "S/8 D S%4", KVT_USAGE, { "split differently" } },
	{ "parts of 8 and x", "D/8 S x", KVT_USAGE, { "split differently" } },
	{ "split and whole", "S/8 S D", KVT_USAGE, { "S occurs twice" } },
	{ "split twice", "S/8 S/4 S%4 D", KVT_USAGE, { "S occurs twice" } },
	{ "split by nothing", "S/ D S%8", KVT_USAGE, { "a split needs" } },
	{ "split by 0", "S/0 D S%0", KVT_USAGE, { "a split needs" } },
	{ "split by 1", "S/1 D S%1", KVT_USAGE, { "a split needs" } },
	{ "split beyond 2^30", "S/1073741825 D S%1073741825", KVT_USAGE,
	  { "a split needs" } },
	{ "split beyond 2^64", "S/99999999999999999999 D", KVT_USAGE,
	  { "a split needs" } },
	{ "keys only", "K:LBSHD", KVT_USAGE, { "V:" } },
	{ "values first", "V:LBSHD K:LBSHD", KVT_USAGE, { "unknown name" } },
	{ "empty plane", "K: V:LBSHD", KVT_USAGE, { "no content axis" } },
	{ "C in a plane", "K:LBSC V:LBSC", KVT_USAGE, { "holds D, not C" } },
	{ "K in one plane only", "K:LKBSHD V:LBSHD", KVT_USAGE, { "only one plane" } },
	{ "H in one plane only", "K:LBSHD V:LBSD", KVT_USAGE, { "only one plane" } },
	{ "L in the plane of keys only", "K:LBSHD V:BSHD", KVT_USAGE,
	  { "only one plane has axis L" } },
	{ "L in the plane of values only", "K:BSHD V:LBSHD", KVT_USAGE,
	  { "only one plane has axis L" } },
	{ "B in one plane only", "K:LBSHD V:LSHD", KVT_USAGE,
	  { "only one plane has axis B" } },
	{ "planes that meet in two places", "K:LKBSHD V:LBKSHD", KVT_USAGE,
	  { "differ before K" } },
	{ "planes that differ before they meet", "K:LBKSHD V:BLKSHD", KVT_USAGE,
	  { "differ before K" } },
	{ "control characters are not repeated", "\033[31m", KVT_USAGE, { "'?[31m'" } },
};

static void test_refuse(void **state)
{
	const struct refuse_case *c = *state;
	struct kvt_layout layout, untouched;

	memset(&layout, 0x5a, sizeof(layout));
	untouched = layout;
	assert_int_equal(kvt_layout_parse(&layout, c->text, &why), c->status);
	for (int i = 0; i < 3 && c->says[i]; i++)
		if (!strstr(why.text, c->says[i]))
			fail_msg("\"%s\" lacks \"%s\"", why.text, c->says[i]);
	assert_memory_equal(&layout, &untouched, sizeof(layout));
	assert_int_equal(kvt_layout_parse(&layout, c->text, NULL), c->status);
}

/* No text may be read beyond its end, whatever it is. */
static void test_long_text(void)
{
	char text[4096];
	struct kvt_layout layout;

	for (size_t n = 1; n < sizeof(text); n++) {
		memset(text, n % 2 ? 'L' : '0', n);
		text[n] = '\0';
		assert_int_equal(kvt_layout_parse(&layout, text, &why), KVT_USAGE);
	}
	assert_non_null(strstr(why.text, "longer than"));
}

/* ---- tuples ------------------------------------------------------------- */

/* LAYOUTS 2.3 and 5; what a tuple means in either convention. */
static struct tuple_case {
	const char *what;
	int order[5];
	const char *rfc, *vllm;
} tuples[] = {
	{ "tuple 0,1,2,3,4", { 0, 1, 2, 3, 4 }, "LBSHC", "LBHSC" },
	{ "tuple 0,1,3,2,4", { 0, 1, 3, 2, 4 }, "LBHSC", "LBSHC" },
	{ "tuple 1,0,2,3,4", { 1, 0, 2, 3, 4 }, "BLSHC", "BLHSC" },
	{ "tuple 1,0,3,2,4", { 1, 0, 3, 2, 4 }, "BLHSC", "BLSHC" },
	{ "tuple 1,3,0,2,4, not its own inverse", { 1, 3, 0, 2, 4 }, "BHLSC", "BSLHC" },
	{ "tuple 1,2,0,3,4, not its own inverse", { 1, 2, 0, 3, 4 }, "BSLHC", "BHLSC" },
	{ "tuple 0,3,1,2,4, not its own inverse", { 0, 3, 1, 2, 4 }, "LHBSC", "LSBHC" },
	{ "tuple 0,2,1,3,4", { 0, 2, 1, 3, 4 }, "LSBHC", "LHBSC" },
};

static void check_tuple(const int order[5], const char *prefix, const char *string,
			enum kvt_convention convention)
{
	char text[32];
	struct kvt_layout layout;
	int back[5];

	snprintf(text, sizeof(text), "%s%d,%d,%d,%d,%d", prefix, order[0], order[1],
		 order[2], order[3], order[4]);
	check_string(text, string);
	ok(kvt_layout_parse(&layout, string, NULL));
	assert_true(kvt_layout_tuple(back, &layout, convention));
	assert_memory_equal(back, order, sizeof(back));
}

static void test_tuple(void **state)
{
	const struct tuple_case *c = *state;

	check_tuple(c->order, "rfc:", c->rfc, KVT_RFC);
	check_tuple(c->order, "vllm:", c->vllm, KVT_VLLM);
}

static void test_no_tuple(void)
{
	static const char *const without[] = {
		"LBKSHD", "LBSC", "LBSD", "KLBSHD", "rocm-paged", "LBDKSH",
		"L B S/8 H S%8 C", "LBKHDSx", "sglang-pool",
	};
	struct kvt_layout layout;
	int order[5];

	for (size_t i = 0; i < LENGTH(without); i++) {
		ok(kvt_layout_parse(&layout, without[i], NULL));
		assert_false(kvt_layout_tuple(order, &layout, KVT_RFC));
		assert_false(kvt_layout_tuple(order, &layout, KVT_VLLM));
	}
}

/* ---- presets ------------------------------------------------------------ */

static void test_presets(void)
{
	const struct kvt_preset *preset;
	int n;

	for (n = 0; (preset = kvt_preset_at(n)); n++) {
		struct kvt_layout layout;
		const char *name;
		bool found = false;

		ok(kvt_layout_parse(&layout, preset->name, &why));
		assert_string_equal(kvt_layout_string(&layout).s, preset->axes);
		check_string(preset->axes, preset->axes);
		for (int i = 0; (name = kvt_layout_name(&layout, i)); i++)
			found |= name == preset->name;
		assert_true(found);
		assert_non_null(preset->found_in);
	}
	assert_true(n >= 40);
	assert_null(kvt_preset_at(-1));
}

static void test_names(void)
{
	struct kvt_layout layout;

	ok(kvt_layout_parse(&layout, "LBSHKD", NULL));
	assert_string_equal(kvt_layout_name(&layout, 0), "nhd");
	assert_string_equal(kvt_layout_name(&layout, 1), "vllm:LBNHC");
	assert_null(kvt_layout_name(&layout, 2));
	ok(kvt_layout_parse(&layout, "BSLHC", NULL));
	assert_null(kvt_layout_name(&layout, 0));
}

static void test_equal(void)
{
	struct kvt_layout nhd, hnd, pair, split8, splitx;

	ok(kvt_layout_parse(&nhd, "NHD", NULL));
	ok(kvt_layout_parse(&hnd, "HND", NULL));
	ok(kvt_layout_parse(&pair, "K:LBSHD V:LBSHD", NULL));
	ok(kvt_layout_parse(&split8, "LBKHD/8SD%8", NULL));
	ok(kvt_layout_parse(&splitx, "LBKHDSx", NULL));
	assert_true(kvt_layout_equal(&nhd, &nhd));
	assert_false(kvt_layout_equal(&nhd, &hnd));
	assert_false(kvt_layout_equal(&nhd, &pair));
	assert_false(kvt_layout_equal(&split8, &splitx));
}

/* Axes: L B S H K D. */
static void test_agree(void)
{
	static const struct kvt_shape many = { { 2, 3, 4, 2, 2, 8 }, 2 };
	static const struct kvt_shape one_head = { { 2, 3, 4, 1, 2, 8 }, 2 };
	struct kvt_layout nhd, hnd, split8, splitx;

	ok(kvt_layout_parse(&nhd, "NHD", NULL));
	ok(kvt_layout_parse(&hnd, "HND", NULL));
	ok(kvt_layout_parse(&split8, "LBKHD/8SD%8", NULL));
	ok(kvt_layout_parse(&splitx, "LBKHDSx", NULL));
	assert_true(kvt_layout_agree(&nhd, &nhd, &many));
	assert_false(kvt_layout_agree(&nhd, &hnd, &many));
	assert_true(kvt_layout_agree(&nhd, &hnd, &one_head));
	assert_true(kvt_layout_agree(&split8, &splitx, &many));
	assert_false(kvt_layout_agree(&split8, &nhd, &one_head));
}

TESTS("layout",
	EACH(reads, test_read), EACH(refusals, test_refuse), EACH(tuples, test_tuple),
	NAMED(test_long_text, "text of any length is read or refused"),
	NAMED(test_no_tuple, "orders that no tuple expresses have none"),
	NAMED(test_presets, "every preset is read, printed and found again"),
	NAMED(test_names, "a layout has its names, ours first"),
	NAMED(test_equal, "layouts are equal if their orders are"),
	NAMED(test_agree, "layouts agree if the bytes of a shape do"))
