/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pool_layout.c - the layouts of vLLM's pools: names, tuples, strides, promises
 *
 * As KVCacheLayout of vLLM 0.32 and its compute_layout_strides() answered for 2 layers of
 * 3 blocks of 4 states of 2 heads of 16 bytes, whole and cut into kernel blocks of 2.
 */
#include "lib/kvt/view.h"
#include "tests/unit/tests.h"

enum { NSTRIDES = 5 };
static const enum kvt_axis axes[NSTRIDES] = { KVT_AXIS_L, KVT_AXIS_B, KVT_AXIS_H,
					      KVT_AXIS_S, KVT_AXIS_D };

static const struct {
	const char *name, *alias;
	int order[NSTRIDES];			/* of L B H N C */
	int64_t whole[NSTRIDES], cut[NSTRIDES];	/* of L B H N C */
	bool layer_compact, block_contiguous, block_compact, block_outermost;
} rows[] = {
	{ "LBHNC", "hnd", { 0, 1, 2, 3, 4 }, { 384, 128, 64, 16, 1 },
	  { 384, 64, 32, 16, 1 }, true, true, true, false },
	{ "LBNHC", "nhd", { 0, 1, 3, 2, 4 }, { 384, 128, 16, 32, 1 },
	  { 384, 64, 16, 32, 1 }, true, false, true, false },
	{ "LHBNC", "lhbsc", { 0, 2, 1, 3, 4 }, { 384, 64, 192, 16, 1 },
	  { 384, 32, 192, 16, 1 }, true, false, false, false },
	{ "BLHNC", "blhsc", { 1, 0, 2, 3, 4 }, { 128, 256, 64, 16, 1 },
	  { 64, 128, 32, 16, 1 }, false, true, true, true },
	{ "BLNHC", "blshc", { 1, 0, 3, 2, 4 }, { 128, 256, 16, 32, 1 },
	  { 64, 128, 16, 32, 1 }, false, false, true, true },
	{ "BHLNC", "bhlsc", { 1, 2, 0, 3, 4 }, { 64, 256, 128, 16, 1 },
	  { 32, 128, 64, 16, 1 }, false, false, false, true },
};
enum { NROWS = LENGTH(rows) };

static struct kvt_layout parsed(const char *format, const char *name)
{
	struct kvt_layout layout;
	char text[32];

	snprintf(text, sizeof(text), format, name);
	if (kvt_layout_parse(&layout, text, &why))
		fail_msg("%s: %s", text, why.text);
	return layout;
}

static void test_names(void)
{
	static const char *const forms[] = { "%s", "vllm:%s", "vLLM:%s" };

	for (int i = 0; i < NROWS; i++) {
		struct kvt_layout alias = parsed("%s", rows[i].alias);
		int order[5];

		for (int k = 0; k < 3; k++) {
			struct kvt_layout layout = parsed(forms[k], rows[i].name);

			assert_true(kvt_layout_equal(&layout, &alias));
		}
		assert_true(kvt_layout_tuple(order, &alias, KVT_VLLM));
		assert_memory_equal(order, rows[i].order, sizeof(order));
	}
}

static void check_strides(const char *name, const struct kvt_shape *shape,
			  const int64_t want[NSTRIDES])
{
	struct kvt_layout layout = parsed("%s", name);
	struct kvt_box box = kvt_box_whole(shape);
	struct kvt_views views;

	if (kvt_layout_views(&views, &layout, &box, shape->elem, &why))
		fail_msg("%s: %s", name, why.text);
	assert_int_equal(views.count, 1);
	for (int k = 0; k < NSTRIDES; k++)
		assert_int_equal(kvt_view_stride(&views.view[0], axes[k]), want[k]);
}

static void test_strides(void)
{
	const struct kvt_shape whole = { { 2, 3, 4, 2, 1, 16 }, 1 };
	const struct kvt_shape cut = { { 2, 6, 2, 2, 1, 16 }, 1 };

	for (int i = 0; i < NROWS; i++) {
		check_strides(rows[i].name, &whole, rows[i].whole);
		check_strides(rows[i].name, &cut, rows[i].cut);
	}
}

static void test_promises(void)
{
	const struct kvt_shape shape = { { 2, 3, 4, 2, 1, 16 }, 1 };

	for (int i = 0; i < NROWS; i++) {
		struct kvt_layout layout = parsed("%s", rows[i].name);
		struct kvt_predicates p = kvt_layout_predicates(&layout, &shape);

		assert_int_equal(p.layer_compact, rows[i].layer_compact);
		assert_int_equal(p.block_contiguous, rows[i].block_contiguous);
		assert_int_equal(p.block_compact, rows[i].block_compact);
		assert_int_equal(p.block_outermost, rows[i].block_outermost);
	}
}

TESTS("pool layouts",
	TEST(test_names), TEST(test_strides), TEST(test_promises))
