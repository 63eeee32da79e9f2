/* SPDX-License-Identifier: Apache-2.0 */
/* test_region_rows.c - rows of blocks that meet, against looking at every pair */
#include "lib/transfer/region_table.h"
#include "tests/unit/random.h"
#include "tests/unit/tests.h"

/* The first block of a that shares a byte with one of b; and is j such a one? */
static bool all_pairs(int64_t *first, int64_t j, bool *met, const struct kvt_rows *a,
		      const struct kvt_rows *b)
{
	*met = false;
	for (int64_t i = 0; i < a->blocks; i++) {
		int64_t at = a->base + i * a->stride;
		bool any = false;

		for (int64_t k = 0; k < b->blocks; k++) {
			int64_t to = b->base + k * b->stride;

			if (at < to + b->len && to < at + a->len) {
				any = true;
				*met |= k == j;
			}
		}
		if (any) {
			*first = i;
			return true;
		}
	}
	return false;
}

static struct kvt_rows draw(void)
{
	return (struct kvt_rows){
		.base = below(200), .stride = 1 + below(40),
		.blocks = 1 + below(12), .len = 1 + below(9),
	};
}

static void meets_as_pairs_do(void)
{
	int yes = 0;

	seed = 5;
	for (int n = 0; n < 200000; n++) {
		struct kvt_rows a = draw(), b = draw();
		int64_t i = -1, j = -1, first = -1;
		bool met, real = kvt_rows_meet(&i, &j, &a, &b);

		assert_int_equal(all_pairs(&first, j, &met, &a, &b), real);
		yes += real;
		if (real) {
			assert_int_equal(i, first);
			assert_true(met);
		}
	}
	assert_in_range(yes, 10000, 190000);
}

/* Blocks that no one could walk through. */
static void meets_at_once(void)
{
	const int64_t many = INT64_C(1) << 28;
	struct kvt_rows a = { 0, (INT64_C(1) << 31) + 1, many, 1 };
	struct kvt_rows b = { 70000001, INT64_C(1) << 31, many, 1 };
	int64_t i, j;

	assert_true(kvt_rows_meet(&i, &j, &a, &b));
	assert_int_equal(a.base + i * a.stride, b.base + j * b.stride);
	a.stride = b.stride;
	assert_false(kvt_rows_meet(&i, &j, &a, &b));
	assert_int_equal(kvt_rows_end(&b), 70000001 + (many - 1) * b.stride + 1);
}

static void joined_rows(void)
{
	const struct kvt_rows kernel = { 64, 10, 9, 8 };
	struct kvt_rows manager = kvt_rows_joined(&kernel, 4);

	assert_int_equal(manager.base, 64);
	assert_int_equal(manager.stride, 40);
	assert_int_equal(manager.blocks, 2);
	assert_int_equal(manager.len, 38);
}

TESTS("region rows",
	NAMED(meets_as_pairs_do, "random rows meet as all pairs of blocks do"),
	NAMED(meets_at_once, "rows of 2^28 blocks at once"),
	NAMED(joined_rows, "blocks of a kernel joined to the manager's"))
