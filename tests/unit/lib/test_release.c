/* SPDX-License-Identifier: Apache-2.0 */
/* test_release.c - names of releases, and what is none */
#include "lib/kvt/release.h"
#include "tests/unit/tests.h"

static void test_names(void)
{
	for (int i = 0; i < KVT_NRELEASES; i++) {
		const char *name = kvt_release_name((enum kvt_release)i);
		enum kvt_release got = KVT_NRELEASES;

		ok(kvt_release_parse(&got, name, NULL));
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

static void test_numbers(void)
{
	for (size_t i = 0; i < LENGTH(rows); i++) {
		enum kvt_release got = KVT_NRELEASES;

		if (rows[i].release >= 0) {
			ok(kvt_release_parse(&got, rows[i].text, &why));
			assert_int_equal(got, rows[i].release);
			continue;
		}
		expect(kvt_release_parse(&got, rows[i].text, &why), KVT_USAGE,
		       "0.22, 0.24, 0.26 or 0.32");
		assert_int_equal(got, KVT_NRELEASES);
	}
}

TESTS("release",
	NAMED(test_names, "each release has a name, which is read back"),
	NAMED(test_numbers, "corrections are of a release; what is near is none"))
