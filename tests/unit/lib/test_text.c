/* SPDX-License-Identifier: Apache-2.0 */
/* test_text.c - what of a name reaches a terminal */
#include "lib/kvt/kvt.h"
#include "tests/unit/tests.h"

/* All of 's' as people see it. */
static const char *plain(const char *s, size_t n)
{
	static char out[256];
	char part[KVT_PLAIN_MAX];
	const char *end = s + n;

	out[0] = '\0';
	while (s < end) {
		int taken = kvt_plain_next(part, s, end);

		assert_in_range(taken, 1, 4);
		assert_true(end - s >= taken);
		strcat(out, part);
		s += taken;
	}
	return out;
}

static void test_text_stays(void)
{
	/* the last before and the first after each range of controls */
	static const char *const texts[] = {
		" ~", "a\\nb", "\xc2\xa0", "\xd0\xb6", "\xd8\x9b\xd8\x9d",
		"\xe2\x80\x8d\xe2\x80\x90", "\xe2\x80\xa7\xe2\x80\xaf",
		"\xe2\x81\xa5\xe2\x81\xaa", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf",
	};

	for (size_t i = 0; i < LENGTH(texts); i++)
		assert_string_equal(plain(texts[i], strlen(texts[i])), texts[i]);
}

static void test_controls_are_escaped(void)
{
	assert_string_equal(plain("a\nb\rc\td", 7), "a\\nb\\rc\\td");
	assert_string_equal(plain("\0\x1b[m\x1f\x7f", 6), "\\x00\\x1b[m\\x1f\\x7f");
	assert_string_equal(plain("\xc2\x80\xc2\x9b\xc2\x9f", 6),
			    "\\xc2\\x80\\xc2\\x9b\\xc2\\x9f");
	assert_string_equal(plain("\xd8\x9c", 2), "\\xd8\\x9c");
	for (int last = 0x8e; last <= 0xae; last++) {
		char s[] = { '\xe2', '\x80', (char)last, '\0' };
		bool acts = last <= 0x8f || last >= 0xa8;

		assert_int_equal(strlen(plain(s, 3)), acts ? 12 : 3);
	}
	for (int last = 0xa6; last <= 0xa9; last++) {
		char s[] = { '\xe2', '\x81', (char)last, '\0' };

		assert_int_equal(strlen(plain(s, 3)), 12);
	}
}

static void test_what_is_no_utf8(void)
{
	assert_string_equal(plain("a\xff\x80z", 4), "a\\xff\\x80z");
	/* cut short, by the end or by another character */
	assert_string_equal(plain("\xe2\x80", 2), "\\xe2\\x80");
	assert_string_equal(plain("\xf0\x9f\x98", 3), "\\xf0\\x9f\\x98");
	assert_string_equal(plain("\xd0z", 2), "\\xd0z");
	/* a longer form than needed, a surrogate, beyond the last */
	assert_string_equal(plain("\xc0\x8a", 2), "\\xc0\\x8a");
	assert_string_equal(plain("\xed\xa0\x80", 3), "\\xed\\xa0\\x80");
	assert_string_equal(plain("\xf4\x90\x80\x80", 4), "\\xf4\\x90\\x80\\x80");
}

static void test_sentence_is_one_line(void)
{
	struct kvt_error err, again;
	char name[600];

	assert_int_equal(kvt_fail(&err, KVT_BAD_INPUT, "%s: %d", "a\nkvtool: b\x1b", 3),
			 KVT_BAD_INPUT);
	assert_string_equal(err.text, "a\\nkvtool: b\\x1b: 3");
	/* a reason within a sentence is not escaped twice */
	assert_int_equal(kvt_fail(&again, KVT_SYSTEM, "x: %s", err.text), KVT_SYSTEM);
	assert_string_equal(again.text, "x: a\\nkvtool: b\\x1b: 3");
	/* what gets longer is cut between two characters */
	memset(name, '\x1b', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(kvt_fail(&err, KVT_USAGE, "%s", name), KVT_USAGE);
	assert_int_equal(strlen(err.text), (sizeof(err.text) - 1) / 4 * 4);
	assert_string_equal(err.text + strlen(err.text) - 8, "\\x1b\\x1b");
	assert_int_equal(kvt_fail(NULL, KVT_USAGE, "%s", name), KVT_USAGE);
}

TESTS("text",
	NAMED(test_text_stays, "what is text stays as it is"),
	NAMED(test_controls_are_escaped, "characters that act are escaped"),
	NAMED(test_what_is_no_utf8, "bytes that are no UTF-8 are escaped"),
	NAMED(test_sentence_is_one_line, "a sentence is one line"))
