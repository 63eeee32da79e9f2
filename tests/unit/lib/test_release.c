/* SPDX-License-Identifier: Apache-2.0 */
/* test_release.c - names of releases, and what is none */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lib/kvt/release.h"

static void test_names(void **state)
{
	(void)state;
	for (int i = 0; i < KVT_NRELEASES; i++) {
		const char *name = kvt_release_name((enum kvt_release)i);
		enum kvt_release got = KVT_NRELEASES;

		assert_int_equal(kvt_release_parse(&got, name, NULL), KVT_OK);
		assert_int_equal(got, i);
		assert_non_null(kvt_release_summary((enum kvt_release)i));
	}
}

static const struct {
	const char *text;
	int release;			/* -1: none */
} rows[] = {
	{ "0.22.1", KVT_VLLM_0_22 }, { "v0.26", KVT_VLLM_0_26 },
	{ "0.32.0", KVT_NEWEST_RELEASE }, { "0.24.10", KVT_VLLM_0_24 },
	{ "0.2", -1 }, { "0.220", -1 }, { "0.26.", -1 }, { "0.26.x", -1 },
	{ "0.25", -1 }, { "", -1 }, { "v", -1 }, { "vv0.26", -1 }, { "0.26 ", -1 },
	{ "0.26.1.2", -1 }, { "list", -1 },
};

static void test_numbers(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvt_error err = { "" };
		enum kvt_release got = KVT_NRELEASES;

		if (rows[i].release >= 0) {
			assert_int_equal(kvt_release_parse(&got, rows[i].text, &err),
					 KVT_OK);
			assert_int_equal(got, rows[i].release);
			continue;
		}
		assert_int_equal(kvt_release_parse(&got, rows[i].text, &err), KVT_USAGE);
		assert_non_null(strstr(err.text, "0.22, 0.24, 0.26 or 0.32"));
		assert_int_equal(got, KVT_NRELEASES);
	}
}

#define TEST(f, sentence) { sentence, f, NULL, NULL, NULL }

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_names, "each release has a name, which is read back"),
		TEST(test_numbers, "corrections are of a release; what is near is none"),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("release", tests, NULL, NULL);
}
