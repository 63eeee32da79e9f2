/* SPDX-License-Identifier: Apache-2.0 */
/* test_choice.c - the order of a cache, as vLLM 0.32 chooses it, and zeroing */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lib/kvt/choice.h"

/* ---- names -------------------------------------------------------------- */

static void test_names(void **state)
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
	struct kvt_error err;

	(void)state;
	for (int i = 0; i < KVT_NKV_LAYOUTS; i++) {
		assert_false(kvt_kv_layout_parse(&layout, rows[i].name, &err));
		assert_int_equal(layout, i);
		assert_string_equal(kvt_kv_layout_name(layout), rows[i].name);
		assert_int_equal(kvt_kv_layout_block_compact(layout), rows[i].compact);
		assert_int_equal(kvt_kv_layout_block_outermost(layout),
				 rows[i].outermost);
	}
	assert_false(kvt_kv_layout_parse(&layout, "HND", &err));
	assert_int_equal(layout, KVT_LBHNC);
	assert_false(kvt_kv_layout_parse(&layout, "NHD", &err));
	assert_int_equal(layout, KVT_LBNHC);
	assert_int_equal(kvt_kv_layout_parse(&layout, "BNLHC", &err), KVT_USAGE);
	assert_int_equal(kvt_kv_layout_parse(&layout, "lbhnc", &err), KVT_USAGE);
}

static void test_lists(void **state)
{
	struct kvt_kv_layouts list;
	struct kvt_error err;

	(void)state;
	assert_false(kvt_kv_layouts_parse(&list, " LBHNC,NHD  BHLNC ", &err));
	assert_int_equal(list.n, 3);
	assert_int_equal(list.at[1], KVT_LBNHC);
	assert_false(kvt_kv_layouts_parse(&list, "", &err));
	assert_int_equal(list.n, 0);
	assert_int_equal(kvt_kv_layouts_parse(&list, "HND LBHNC", &err), KVT_USAGE);
	assert_int_equal(kvt_kv_layouts_parse(&list, "LBHNCLBHNCLBHNCLBHNCLBHNC", &err),
			 KVT_USAGE);
}

/* ---- what several take --------------------------------------------------- */

#define ALL "LBNHC LBHNC BLNHC BLHNC BHLNC LHBNC"

static void test_common(void **state)
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

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvt_kv_layouts list[4], common, want;
		struct kvt_error err;
		int n = 0;

		for (; n < 4 && rows[i].list[n]; n++)
			assert_false(kvt_kv_layouts_parse(&list[n], rows[i].list[n],
							  &err));
		if (!rows[i].common) {
			assert_int_equal(kvt_kv_layouts_common(&common, list, n, &err),
					 KVT_BAD_INPUT);
			continue;
		}
		assert_false(kvt_kv_layouts_common(&common, list, n, &err));
		assert_false(kvt_kv_layouts_parse(&want, rows[i].common, &err));
		assert_int_equal(common.n, want.n);
		assert_memory_equal(common.at, want.at,
				    (size_t)want.n * sizeof(want.at[0]));
	}
}

/* ---- errors -------------------------------------------------------------- */

static void test_refused(void **state)
{
	struct kvt_kv_layouts one = { 1, { KVT_LBHNC } };
	struct kvt_layout_request r = { .resolved = -1, .requested = -1,
					.connector = -1, .worker = &one };
	struct kvt_layout_choice choice;
	struct kvt_error err;

	(void)state;
	assert_int_equal(kvt_layout_choose(&choice, &r, &err), KVT_BAD_INPUT);
	assert_non_null(strstr(err.text, "no worker"));
	r.nworkers = 1;
	assert_false(kvt_layout_choose(&choice, &r, &err));
	assert_int_equal(choice.layout, KVT_LBHNC);
	r.requested = KVT_LBNHC;
	assert_int_equal(kvt_layout_choose(&choice, &r, &err), KVT_BAD_INPUT);
	assert_non_null(strstr(err.text, "LBNHC is requested, but possible are LBHNC"));
	r.requested = -1;
	r.connector = KVT_BLHNC;
	assert_false(kvt_layout_choose(&choice, &r, &err));
	assert_int_equal(choice.why, KVT_LAYOUT_DROPPED);
	assert_int_equal(choice.layout, KVT_LBHNC);
}

static void test_connectors(void **state)
{
	static const char *const multi[] = { "MultiConnector", "NixlConnector" };
	static const char *const no[] = { "nixl" };
	const struct kvt_connector_model model = { .release = KVT_NEWEST_RELEASE };
	struct kvt_error err;
	int layout;

	(void)state;
	assert_int_equal(kvt_connector_layout(&layout, no, 1, &model, &err), KVT_USAGE);
	assert_int_equal(kvt_connector_layout(&layout, multi, 2, &model, &err),
			 KVT_USAGE);
	assert_false(kvt_connector_layout(&layout, multi, 1, &model, &err));
	assert_int_equal(layout, -1);
	assert_false(kvt_connector_layout(&layout, NULL, 0, &model, &err));
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

static void test_releases(void **state)
{
	static const char *const hisparse[] = { "HiSparseConnector" };
	static const char *const offload[] = { "OffloadingConnector" };
	struct kvt_connector_model model = { .release = KVT_VLLM_0_26, .hisparse = true };
	const struct kvt_zeroing_spec two[] = { { .dtype = "bfloat16" },
						{ .dtype = "float16" } };
	struct kvt_error err;
	int layout;

	(void)state;
	assert_true(has(KVT_VLLM_0_22, "P2pNcclConnector"));
	assert_false(has(KVT_VLLM_0_24, "P2pNcclConnector"));
	assert_false(has(KVT_VLLM_0_22, "NixlPullConnector"));
	assert_true(has(KVT_VLLM_0_24, "NixlPullConnector"));
	assert_int_equal(kvt_connector_layout(&layout, hisparse, 1, &model, &err),
			 KVT_USAGE);
	assert_string_equal(err.text, "release 0.26 of vLLM has no HiSparseConnector, "
			    "which is there since 0.32");
	assert_false(kvt_connector_layout(&layout, offload, 1, &model, &err));
	assert_string_equal(kvt_kv_layout_word((enum kvt_kv_layout)layout, model.release),
			    "HND");
	model.release = KVT_VLLM_0_32;
	assert_false(kvt_connector_layout(&layout, offload, 1, &model, &err));
	assert_string_equal(kvt_kv_layout_word((enum kvt_kv_layout)layout, model.release),
			    "BLHNC");
	assert_true(kvt_needs_zeroing(KVT_VLLM_0_32, two, 2));
	assert_false(kvt_needs_zeroing(KVT_VLLM_0_26, two, 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_common),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_connectors),
		cmocka_unit_test(test_releases),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("choice", tests, NULL, NULL);
}
