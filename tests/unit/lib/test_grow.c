/* SPDX-License-Identifier: Apache-2.0 */
/* test_grow.c - lists that double when their count is a power of two */
#include "lib/base/grow.h"
#include "tests/unit/tests.h"

/* A sanitizer, and valgrind, see an element that is written where there is no room. */
static void grows_by_one(void)
{
	struct pair { int64_t a; char b; } *list = NULL;
	const char **names = NULL;
	int32_t n = 0;

	for (; n < 1000; n++) {
		assert_true(KVT_GROW(&list, n));
		list[n] = (struct pair){ n, (char)n };
		assert_true(KVT_GROW(&names, n));
		names[n] = "x";
	}
	while (n--)
		assert_int_equal(list[n].a, n);
	free(list);
	free(names);
}

/* Emptied, or shorter, and filled again. */
static void grows_again(void)
{
	int *list = NULL;

	for (int length = 0; length < 70; length++)
		for (int n = length / 2; n < length; n++) {
			assert_true(KVT_GROW(&list, n));
			list[n] = n;
		}
	for (int n = 0; n < 35; n++) {
		assert_true(KVT_GROW(&list, n));
		list[n] = n;
	}
	free(list);
}

/* Of a list that has no room, nothing is lost; nor is memory asked for that wraps. */
static void refuses_what_wraps(void)
{
	static const struct { int64_t n; size_t size; } cases[] = {
		{ (int64_t)1 << 62, 2 }, { (int64_t)1 << 62, 4 }, { (int64_t)1 << 62, 8 },
		{ (int64_t)1 << 61, 4 }, { (int64_t)1 << 32, (size_t)1 << 31 },
		{ 0, (size_t)PTRDIFF_MAX + 1 }, { 1, (size_t)PTRDIFF_MAX },
	};
	void *list = malloc(1), *as_it_was = list;

	for (size_t i = 0; i < LENGTH(cases); i++) {
		assert_false(kvt_grow(&list, cases[i].n, cases[i].size));
		assert_ptr_equal(list, as_it_was);
	}
	free(list);
}

TESTS("grow",
	TEST(grows_by_one), TEST(grows_again), TEST(refuses_what_wraps))
