/* SPDX-License-Identifier: Apache-2.0 */
/* test_choice.c - the order of a cache, as vLLM 0.32 chooses it, and zeroing */
#include "lib/kvt/choice.h"
#include "tests/unit/tests.h"

/* ---- names -------------------------------------------------------------- */

static void test_names(void)
{
	static const struct {
		const char *name;
		bool compact, outermost;
	} rows[KVT_NKV_LAYOUTS] = {
		{ "LBHNC", true, false }, { "LBNHC", true, false },
		{ "LHBNC", false, false }, { "BLHNC", true, true },
		{ "BLNHC", true, true }, { "BHLNC", false, true },
	};
	enum kvt_kv_layout layout;

	for (int i = 0; i < KVT_NKV_LAYOUTS; i++) {
		assert_false(kvt_kv_layout_parse(&layout, rows[i].name, &why));
		assert_int_equal(layout, i);
		assert_string_equal(kvt_kv_layout_name(layout), rows[i].name);
		assert_int_equal(kvt_kv_layout_block_compact(layout), rows[i].compact);
		assert_int_equal(kvt_kv_layout_block_outermost(layout),
				 rows[i].outermost);
	}
	assert_false(kvt_kv_layout_parse(&layout, "HND", &why));
	assert_int_equal(layout, KVT_LBHNC);
	assert_false(kvt_kv_layout_parse(&layout, "NHD", &why));
	assert_int_equal(layout, KVT_LBNHC);
	expect(kvt_kv_layout_parse(&layout, "BNLHC", &why), KVT_USAGE, NULL);
	expect(kvt_kv_layout_parse(&layout, "lbhnc", &why), KVT_USAGE, NULL);
}

static void test_lists(void)
{
	struct kvt_kv_layouts list;

	assert_false(kvt_kv_layouts_parse(&list, " LBHNC,NHD  BHLNC ", &why));
	assert_int_equal(list.n, 3);
	assert_int_equal(list.at[1], KVT_LBNHC);
	assert_false(kvt_kv_layouts_parse(&list, "", &why));
	assert_int_equal(list.n, 0);
	expect(kvt_kv_layouts_parse(&list, "HND LBHNC", &why), KVT_USAGE, NULL);
	expect(kvt_kv_layouts_parse(&list, "LBHNCLBHNCLBHNCLBHNCLBHNC", &why), KVT_USAGE,
	       NULL);
}

/* ---- what several take --------------------------------------------------- */

#define ALL "LBNHC LBHNC BLNHC BLHNC BHLNC LHBNC"

static void test_common(void)
{
	static const struct {
		const char *list[4];	/* "": declares none */
		const char *common;	/* NULL: an error */
	} rows[] = {
		{ { NULL }, ALL },
		{ { "" }, ALL },
		{ { "", "" }, ALL },
		{ { "LBHNC" }, "LBHNC" },
		{ { "LBHNC BLHNC", "" }, "LBHNC BLHNC" },
		{ { "LBHNC BLHNC", "LBHNC BLHNC" }, "LBHNC BLHNC" },
		{ { "LHBNC LBHNC", "LBNHC LBHNC" }, "LBHNC" },
		{ { "LBHNC LHBNC", "LHBNC LBHNC" }, "LBHNC LHBNC" },
		{ { "LHBNC LBHNC", "LHBNC LBHNC", "LBHNC LHBNC" }, "LHBNC LBHNC" },
		{ { "BLHNC", "BLHNC BLNHC", "LBHNC BLHNC" }, "BLHNC" },
		{ { "BLHNC BLNHC", "BLNHC BLHNC" }, "BLHNC BLNHC" },
		{ { "LBNHC", "LBHNC" }, NULL },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_kv_layouts list[4], common, want;
		int n = 0;

		for (; n < 4 && rows[i].list[n]; n++)
			assert_false(kvt_kv_layouts_parse(&list[n], rows[i].list[n],
							  &why));
		if (!rows[i].common) {
			expect(kvt_kv_layouts_common(&common, list, n, &why),
			       KVT_BAD_INPUT, NULL);
			continue;
		}
		assert_false(kvt_kv_layouts_common(&common, list, n, &why));
		assert_false(kvt_kv_layouts_parse(&want, rows[i].common, &why));
		assert_int_equal(common.n, want.n);
		assert_memory_equal(common.at, want.at,
				    (size_t)want.n * sizeof(want.at[0]));
	}
}

/* ---- errors -------------------------------------------------------------- */

static void test_refused(void)
{
	struct kvt_kv_layouts one = { 1, { KVT_LBHNC } };
	struct kvt_layout_request r = { .resolved = -1, .requested = -1,
					.connector = -1, .worker = &one };
	struct kvt_layout_choice choice;

	expect(kvt_layout_choose(&choice, &r, &why), KVT_BAD_INPUT, "no worker");
	r.nworkers = 1;
	assert_false(kvt_layout_choose(&choice, &r, &why));
	assert_int_equal(choice.layout, KVT_LBHNC);
	r.requested = KVT_LBNHC;
	expect(kvt_layout_choose(&choice, &r, &why), KVT_BAD_INPUT,
	       "LBNHC is requested, but possible are LBHNC");
	r.requested = -1;
	r.connector = KVT_BLHNC;
	assert_false(kvt_layout_choose(&choice, &r, &why));
	assert_int_equal(choice.why, KVT_LAYOUT_DROPPED);
	assert_int_equal(choice.layout, KVT_LBHNC);
}

static void test_connectors(void)
{
	static const char *const multi[] = { "MultiConnector", "NixlConnector" };
	static const char *const no[] = { "nixl" };
	const struct kvt_connector_model model = { .release = KVT_NEWEST_RELEASE };
	int layout;

	expect(kvt_connector_layout(&layout, no, 1, &model, &why), KVT_USAGE, NULL);
	expect(kvt_connector_layout(&layout, multi, 2, &model, &why), KVT_USAGE, NULL);
	assert_false(kvt_connector_layout(&layout, multi, 1, &model, &why));
	assert_int_equal(layout, -1);
	assert_false(kvt_connector_layout(&layout, NULL, 0, &model, &why));
	assert_int_equal(layout, -1);
	assert_null(kvt_connector_at(KVT_NEWEST_RELEASE, -1));
}

static bool has(enum kvt_release release, const char *name)
{
	const char *at;

	for (int i = 0; (at = kvt_connector_at(release, i)); i++)
		if (!strcmp(at, name))
			return true;
	return false;
}

static void test_releases(void)
{
	static const char *const hisparse[] = { "HiSparseConnector" };
	static const char *const offload[] = { "OffloadingConnector" };
	struct kvt_connector_model model = { .release = KVT_VLLM_0_26, .hisparse = true };
	const struct kvt_zeroing_spec two[] = { { .dtype = "bfloat16" },
						{ .dtype = "float16" } };
	int layout;

	assert_true(has(KVT_VLLM_0_22, "P2pNcclConnector"));
	assert_false(has(KVT_VLLM_0_24, "P2pNcclConnector"));
	assert_false(has(KVT_VLLM_0_22, "NixlPullConnector"));
	assert_true(has(KVT_VLLM_0_24, "NixlPullConnector"));
	assert_int_equal(kvt_connector_layout(&layout, hisparse, 1, &model, &why),
			 KVT_USAGE);
	assert_string_equal(why.text, "release 0.26 of vLLM has no HiSparseConnector, "
			    "which is there since 0.32");
	assert_false(kvt_connector_layout(&layout, offload, 1, &model, &why));
	assert_string_equal(kvt_kv_layout_word((enum kvt_kv_layout)layout, model.release),
			    "HND");
	model.release = KVT_VLLM_0_32;
	assert_false(kvt_connector_layout(&layout, offload, 1, &model, &why));
	assert_string_equal(kvt_kv_layout_word((enum kvt_kv_layout)layout, model.release),
			    "BLHNC");
	assert_true(kvt_needs_zeroing(KVT_VLLM_0_32, two, 2));
	assert_false(kvt_needs_zeroing(KVT_VLLM_0_26, two, 2));
}

TESTS("choice",
	TEST(test_names), TEST(test_lists), TEST(test_common), TEST(test_refused),
	TEST(test_connectors), TEST(test_releases))
