/* SPDX-License-Identifier: Apache-2.0 */
/* test_narrow.c - slices of views count from where the whole is */
#include "lib/kvt/kvt.h"
#include "tests/unit/lib/axis_oracle.h"
#include "tests/unit/lib/views_of.h"
#include "tests/unit/tests.h"

static struct narrow_case {
	const char *what, *layout;
	enum kvt_axis axis;
	int64_t begin, end;
	enum kvt_status status;
} narrows[] = {
	{ "heads of NHD", "nhd", KVT_AXIS_H, 1, 3, KVT_OK },
	{ "one layer of blocks-outermost", "blshc", KVT_AXIS_L, 1, 2, KVT_OK },
	{ "blocks of paged planes", "rocm-paged", KVT_AXIS_B, 2, 5, KVT_OK },
	{ "everything", "cpu-amx", KVT_AXIS_S, 0, 32, KVT_OK },
	{ "whole groups of a split S", "aiter-shuffle", KVT_AXIS_S, 8, 24, KVT_OK },
	{ "inside one group of a split S", "aiter-shuffle", KVT_AXIS_S, 9, 14, KVT_OK },
	{ "exactly one group", "aiter-shuffle", KVT_AXIS_S, 16, 24, KVT_OK },
	{ "inside the last group", "aiter-shuffle", KVT_AXIS_S, 31, 32, KVT_OK },
	{ "inside one group of a split D", "rocm-paged", KVT_AXIS_D, 1, 8, KVT_OK },
	{ "across two groups", "aiter-shuffle", KVT_AXIS_S, 7, 9, KVT_UNSUPPORTED },
	{ "a group and a half", "aiter-shuffle", KVT_AXIS_S, 8, 20, KVT_UNSUPPORTED },
	{ "nothing", "hnd", KVT_AXIS_B, 3, 3, KVT_OK },
	{ "nothing amid a group", "aiter-shuffle", KVT_AXIS_S, 3, 3, KVT_OK },
	{ "nothing of one plane's K", "head-halves", KVT_AXIS_K, 1, 1, KVT_OK },
	{ "values of one plane", "head-halves", KVT_AXIS_K, 1, 2, KVT_OK },
	{ "values of two planes", "cpu-vec", KVT_AXIS_K, 1, 2, KVT_OK },
	{ "values of two buffers", "sglang-pool", KVT_AXIS_K, 1, 2, KVT_OK },
	{ "keys of two buffers", "sglang-pool", KVT_AXIS_K, 0, 1, KVT_OK },
	{ "beyond the end", "nhd", KVT_AXIS_H, 3, 5, KVT_BAD_INPUT },
	{ "before the start", "nhd", KVT_AXIS_H, -1, 2, KVT_BAD_INPUT },
	{ "backwards", "nhd", KVT_AXIS_H, 3, 2, KVT_BAD_INPUT },
	{ "K beyond two planes", "cpu-vec", KVT_AXIS_K, 1, 3, KVT_BAD_INPUT },
};

static void test_narrow(void **state)
{
	const struct kvt_shape shape = { .n = { 2, 5, 32, 4, 2, 32 }, .elem = 2 };
	const struct narrow_case *c = *state;
	struct kvt_views whole = views_of(c->layout, &shape), part;
	struct kvt_box box = kvt_box_whole(&shape);
	int64_t index[KVT_NAXES] = { 0 }, n[KVT_NAXES];

	box.begin[c->axis] = c->begin;
	box.end[c->axis] = c->end;
	assert_int_equal(kvt_views_narrow(&part, &whole, &box, &why), c->status);
	if (c->status) {
		assert_true(*why.text);
		return;
	}
	memcpy(n, shape.n, sizeof(n));
	n[c->axis] = c->end - c->begin;
	if (part.count == 1)
		assert_memory_equal(part.view[0].shape.n, n, sizeof(n));
	if (c->axis == KVT_AXIS_K)
		assert_int_equal(part.first_k, c->begin);
	/* offsets count from the whole, whatever was cut */
	while (n[c->axis] > 0) {
		int64_t there[KVT_NAXES];

		memcpy(there, index, sizeof(there));
		there[c->axis] += c->begin;
		assert_int_equal(views_at(&part, index), views_at(&whole, there));
		if (!oracle_next(index, n))
			break;
	}
}

/* Asking for an element of nothing is no use, but must not trap. */
static void test_nothing(void)
{
	const struct kvt_shape shape = { .n = { 2, 0, 32, 4, 2, 32 }, .elem = 2 };
	const int64_t origin[KVT_NAXES] = { 0 };
	struct kvt_views views = views_of("aiter-shuffle", &shape);
	int64_t end = -1;

	assert_int_equal(views.nbytes, 0);
	ok(kvt_view_end(&end, &views.view[0], NULL));
	assert_int_equal(end, 0);
	(void)kvt_view_at(&views.view[0], origin);
}

TESTS("narrow",
	EACH(narrows, test_narrow),
	NAMED(test_nothing, "an element of nothing"))
