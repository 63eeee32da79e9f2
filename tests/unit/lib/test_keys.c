/* SPDX-License-Identifier: Apache-2.0 */
/* test_keys.c - numbers and lists of KEY=VALUE as people write them */
#include "lib/base/keys.h"
#include "lib/base/number.h"
#include "tests/unit/tests.h"

/* ---- numbers ------------------------------------------------------------ */

static void test_whole(void)
{
	static const struct {
		const char *text;
		bool good;
		int64_t n;
	} cases[] = {
		{ "0", true, 0 }, { "17", true, 17 }, { "010", true, 10 },
		{ "0x1f", true, 31 }, { "0X10", true, 16 }, { "2k", true, 2048 },
		{ "3M", true, 3 << 20 }, { "1g", true, 1 << 30 },
		{ "9223372036854775806", true, INT64_MAX - 1 },
		{ "9223372036854775807", true, INT64_MAX },
		{ "9223372036854775808", false, 0 }, { "0x8000000000000000", false, 0 },
		{ "9007199254740992k", false, 0 }, { "", false, 0 }, { "k", false, 0 },
		{ "-1", false, 0 }, { "+1", false, 0 }, { " 1", false, 0 },
		{ "1 ", false, 0 }, { "1 k", false, 0 }, { "2kk", false, 0 },
		{ "2kb", false, 0 }, { "12a", false, 0 }, { "1.5", false, 0 },
		{ "1e3", false, 0 }, { "0x", false, 0 }, { "0x-1", false, 0 },
		{ "0x 1", false, 0 }, { "0xg", false, 0 }, { "x1", false, 0 },
		{ "0x0x1", false, 0 }, { "0x1k", false, 0 },
	};

	for (size_t i = 0; i < LENGTH(cases); i++) {
		int64_t n = -5;
		bool good = kvt_number_parse(&n, cases[i].text);

		if (good != cases[i].good || n != (good ? cases[i].n : -5))
			fail_msg("'%s' is %d, %lld", cases[i].text, good, (long long)n);
	}
}

static void test_real(void)
{
	static const struct {
		const char *text;
		bool good;
		double n;
	} cases[] = {
		{ "0", true, 0 }, { "0.5", true, .5 }, { ".5", true, .5 },
		{ "5.", true, 5 },
		{ "-2", true, -2 }, { "1e-3", true, 1e-3 }, { "1E+3", true, 1000 },
		{ "", false, 0 }, { "-", false, 0 }, { ".", false, 0 },
		{ "+1", false, 0 },
		{ " 1", false, 0 }, { "\v1", false, 0 }, { "1 ", false, 0 },
		{ "- 1", false, 0 }, { "--1", false, 0 }, { "nan", false, 0 },
		{ "inf", false, 0 }, { "-inf", false, 0 }, { "1e999", false, 0 },
		{ "1,5", false, 0 }, { "1x", false, 0 },
	};

	for (size_t i = 0; i < LENGTH(cases); i++) {
		double n = 0;
		bool good = kvt_real_parse(&n, cases[i].text, strlen(cases[i].text));

		if (good != cases[i].good || (good && n != cases[i].n))
			fail_msg("'%s' is %d, %g", cases[i].text, good, n);
	}
}

/* ---- lists -------------------------------------------------------------- */

struct all {
	int64_t count, number, integer, span[2];
	double real;
	const char *text;
	bool flag;
};

#define KEY(name, type, field) { name, type, offsetof(struct all, field), NULL }
static const struct kvt_key table[] = {
	KEY("block-size", KVT_KEY_COUNT, count), KEY("number", KVT_KEY_NUMBER, number),
	KEY("integer", KVT_KEY_INTEGER, integer), KEY("real", KVT_KEY_REAL, real),
	{ "text", KVT_KEY_TEXT, offsetof(struct all, text), "words" },
	KEY("flag", KVT_KEY_FLAG, flag), KEY("span", KVT_KEY_SPAN, span),
	{ NULL, KVT_KEY_FLAG, 0, NULL },
};

static void test_values(void)
{
	char text[] = "block_size=2k,number=0,integer=-0x10,real=-.5,words=a=b,flag,"
		      "span=0:16";
	struct all all = { 0 };
	struct kvt_keys keys = { "--it", table, &all, 0 };

	ok(kvt_keys_parse(&keys, text, &why));
	assert_int_equal(all.count, 2048);
	assert_int_equal(all.number, 0);
	assert_int_equal(all.integer, -16);
	assert_true(all.real == -.5 && all.flag);
	assert_string_equal(all.text, "a=b");
	assert_int_equal(all.span[0], 0);
	assert_int_equal(all.span[1], 16);
	assert_int_equal(keys.seen, 127);
}

static void test_refusals(void)
{
	static const char *const cases[][2] = {
		{ "number=1,number=2", "--it: number is given twice" },
		{ "block-size=1,block_size=1", "--it: block_size is given twice" },
		{ "flag,flag", "--it: flag is given twice" },
		{ "text=a,words=b", "--it: words is given twice" },
		{ "nubmer=1",
		  "--it: there is no key 'nubmer', did you mean 'number'? Keys are "
		  "block-size, number, integer, real, text, flag, span" },
		{ "quite=1", "--it: there is no key 'quite': keys are block-size" },
		{ "Number=1", "there is no key 'Number', did you mean 'number'?" },
		{ " number=1", "there is no key ' number', did you mean 'number'?" },
		{ "number =1", "there is no key 'number ', did you mean 'number'?" },
		{ "number", "--it: 'number', expected KEY=VALUE" },
		{ "", "--it: '', expected KEY=VALUE" },
		{ "=1", "--it: '', expected KEY=VALUE" },
		{ ",number=1", "'', expected KEY=VALUE" },
		{ "number=1,", "'', expected KEY=VALUE" },
		{ "number=1,,real=2", "'', expected KEY=VALUE" },
		{ "number=",
		  "--it: number is '', expected a whole number, such as 16 or 2k" },
		{ "number=-1", "number is '-1', expected a whole number" },
		{ "number=+1", "number is '+1'" }, { "number= 1", "number is ' 1'" },
		{ "number=1 ", "number is '1 '" }, { "number=two", "number is 'two'" },
		{ "block-size=0", "block-size is '0', expected a whole number above 0" },
		{ "integer=--1", "integer is '--1'" },
		{ "integer=+1", "integer is '+1'" },
		{ "real=x", "real is 'x', expected a number, such as 0.5" },
		{ "real=", "real is ''" }, { "text=", "text is '', expected a value" },
		{ "flag=1", "flag is '1', expected no value" },
		{ "flag=", "flag is '', expected no value" },
		{ "span=1", "span is '1', expected two numbers, such as 0:16" },
		{ "span=1:2:3", "span is" }, { "span=1:", "span is" },
		{ "span=-1:2", "span is" }, { "number=9223372036854775807", "number is" },
	};

	for (size_t i = 0; i < LENGTH(cases); i++) {
		struct all all = { 0 };
		struct kvt_keys keys = { "--it", table, &all, 0 };
		enum kvt_status status = kvt_keys_copy(&keys, cases[i][0], &why);

		if (status != KVT_USAGE || !strstr(why.text, cases[i][1]))
			fail_msg("'%s': %d, %s", cases[i][0], status, why.text);
	}
}

static void test_long(void)
{
	char text[2000];
	struct all all = { 0 };
	struct kvt_keys keys = { "--it", table, &all, 0 };

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(kvt_keys_copy(&keys, text, &why), KVT_USAGE);
	assert_string_equal(why.text, "--it is longer than 1023 characters");
	expect(kvt_keys_put(&keys, text, sizeof(text) - 1, "1", &why), KVT_USAGE, NULL);
	keys.what = text;
	expect(kvt_keys_put(&keys, "number", 6, text, &why), KVT_USAGE,
	       "expected a whole number");
}

TESTS("keys",
	TEST(test_whole), TEST(test_real), TEST(test_values), TEST(test_refusals),
	TEST(test_long))
