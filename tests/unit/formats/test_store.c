/* SPDX-License-Identifier: Apache-2.0 */
/* test_store.c - what names of files in stores say, and digests of their configs */
#include "formats/sglang/hicache.h"
#include "formats/vllm/offload.h"
#include "tests/unit/fixture.h"

#define HASH "0123456789abcdef0123456789abcdef"

static void same_part(const struct kvt_name_part *part, const char *text,
		      const char *name)
{
	if (!kvt_name_part_equal(part, text))
		fail_msg("%s: '%.*s', expected '%s'", name, (int)part->n, part->s, text);
}

static void test_hicache(void)
{
	static const struct {
		const char *name, *pool, *model, *rank;
		/* rank and size of TP, PP, CP and DCP, page of DCP; 0: no DCP */
		int n[9];
	} cases[] = {
		{ HASH "_m_0_1.bin", "kv", "m", "0_1", { 0, 1, 0, 1, 0, 1 } },
		{ HASH "_org-m_3_8.bin", "kv", "org-m", "3_8", { 3, 8, 0, 1, 0, 1 } },
		{ HASH "_m_0_4_2_1.bin", "kv", "m", "0_4_2_1", { 0, 4, 1, 2, 0, 1 } },
		{ HASH "_m_1_2_cp3_4.bin", "kv", "m", "1_2_cp3_4", { 1, 2, 0, 1, 3, 4 } },
		{ HASH "_m_2_1.bin", "kv", "m", "2_1", { 0, 1, 1, 2, 0, 1 } },
		{ HASH "_m.bin", "kv", "m", "", { 0, 1, 0, 1, 0, 1 } },
		{ HASH "__0_2.bin", "kv", "", "0_2", { 0, 2, 0, 1, 0, 1 } },
		{ HASH "_m_v2_5_5.bin", "kv", "m_v2_5_5", "", { 0, 1, 0, 1, 0, 1 } },
		{ HASH "_m_07_8.bin", "kv", "m_07_8", "", { 0, 1, 0, 1, 0, 1 } },
		{ HASH "_m_9_3_0_1.bin", "kv", "m_9_3", "0_1", { 0, 1, 0, 1, 0, 1 } },
		{ HASH ".swa_m_0_1.bin", "swa", "m", "0_1", { 0, 1, 0, 1, 0, 1 } },
		{ HASH ".draft_swa_m_0_1.bin", "draft_swa", "m", "0_1",
		  { 0, 1, 0, 1, 0, 1 } },
		{ HASH ".deepseek_v4_c4_indexer_m.bin", "deepseek_v4_c4_indexer", "m", "",
		  { 0, 1, 0, 1, 0, 1 } },
		{ HASH ".deepseek_v4_c2_indexer_scale_m.bin",
		  "deepseek_v4_c2_indexer_scale", "m", "", { 0, 1, 0, 1, 0, 1 } },
		{ HASH ".deepseek_v4_c128_rope_m.bin", "deepseek_v4_c128_rope", "m", "",
		  { 0, 1, 0, 1, 0, 1 } },
		{ HASH ".auxiliary_swa_m_0_1.bin", "auxiliary_swa", "m", "0_1",
		  { 0, 1, 0, 1, 0, 1 } },
		{ HASH "_m_tp4_dcp1_2_page64.bin", "kv", "m", "tp4_dcp1_2_page64",
		  { 1, 4, 0, 1, 0, 1, 1, 2, 64 } },
		{ HASH "_m_2_1_cp0_2_tp2_dcp0_2_page32.bin", "kv", "m",
		  "2_1_cp0_2_tp2_dcp0_2_page32", { 0, 2, 1, 2, 0, 2, 0, 2, 32 } },
		{ HASH ".mamba_m_3_4_tp4_dcp1_2_page64.bin", "mamba", "m",
		  "3_4_tp4_dcp1_2_page64", { 3, 4, 0, 1, 0, 1, 1, 2, 64 } },
		/* a rank beyond the size, a size that TP or the page is no multiple of */
		{ HASH "_m_tp2_dcp2_2_page32.bin", "kv", "m_tp2_dcp2_2_page32", "",
		  { 0, 1, 0, 1, 0, 1 } },
		{ HASH "_m_tp3_dcp0_2_page32.bin", "kv", "m_tp3_dcp0_2_page32", "",
		  { 0, 1, 0, 1, 0, 1 } },
		{ HASH "_m_tp2_dcp0_2_page33.bin", "kv", "m_tp2_dcp0_2_page33", "",
		  { 0, 1, 0, 1, 0, 1 } },
	};
	static const char *const others[] = {
		"", ".bin", "m_0_1.bin", HASH ".bin", HASH "_m_0_1", HASH "_m_0_1.bin.gz",
		"0123456789ABCDEF0123_m_0_1.bin", "0123456789abcde_m_0_1.bin",
		HASH "._m_0_1.bin", HASH ".swa.bin", "a/" HASH "_m_0_1.bin",
	};

	for (size_t i = 0; i < LENGTH(cases); i++) {
		const char *name = cases[i].name;
		struct kvt_hicache_name got;

		if (!kvt_hicache_parse(&got, name))
			fail_msg("%s: is no name", name);
		same_part(&got.hash, HASH, name);
		same_part(&got.pool, cases[i].pool, name);
		same_part(&got.model, cases[i].model, name);
		same_part(&got.rank, cases[i].rank, name);
		assert_int_equal(got.tp_rank, cases[i].n[0]);
		assert_int_equal(got.tp_size, cases[i].n[1]);
		assert_int_equal(got.pp_rank, cases[i].n[2]);
		assert_int_equal(got.pp_size, cases[i].n[3]);
		assert_int_equal(got.cp_rank, cases[i].n[4]);
		assert_int_equal(got.cp_size, cases[i].n[5]);
		assert_int_equal(got.dcp_rank, cases[i].n[6]);
		assert_int_equal(got.dcp_size, cases[i].n[7] ? cases[i].n[7] : 1);
		assert_int_equal(got.page, cases[i].n[8]);
	}
	for (size_t i = 0; i < LENGTH(others); i++) {
		struct kvt_hicache_name got;

		if (kvt_hicache_parse(&got, others[i]))
			fail_msg("'%s' is a name", others[i]);
	}
}

/* A note travels with a dump, which anybody may have written. */
static void test_notes(void)
{
	static const struct {
		const char *note;
		bool is, has_row;
	} rows[] = {
		{ "offload config: {}", true, false },
		{ "offload rows: 2 ranks, page 0, align 0, {}", true, true },
		{ "offload rows: 65536 ranks, page 1099511627776, align 1073741824, {}",
		  true, true },
		{ "offload rows: 0 ranks, page 0, align 0, {}", false, true },
		{ "offload rows: 65537 ranks, page 0, align 0, {}", false, true },
		{ "offload rows: 2 ranks, page 1099511627777, align 0, {}", false, true },
		{ "offload rows: 2 ranks, page 0, align 1073741825, {}", false, true },
		{ "offload rows: 2 ranks, page -1, align 0, {}", false, true },
		{ "offload rows: 9999999999999999 ranks, page 0, align 0, {}", false,
		  true },
		{ "offload rows: 2 ranks", false, true },
		{ "offload rows: ", false, true },
		{ "by hand", false, false },
	};
	struct kvt_offload_row row;
	const char *config;
	bool has_row;

	for (size_t i = 0; i < LENGTH(rows); i++) {
		if (kvt_offload_read_note(&config, &row, &has_row, rows[i].note) !=
		    rows[i].is || has_row != rows[i].has_row)
			fail_msg("%s", rows[i].note);
		if (rows[i].is)
			assert_string_equal(config, "{}");
	}
	assert_false(kvt_offload_read_note(&config, &row, &has_row, NULL));
}

static void test_offload(void)
{
	static const char *const others[] = {
		"", "abc/de_g0/abcdef", "abc/de_g0/abdef0.bin", "abc/de_g0/abcde.bin",
		"abd/de_g0/abcdef.bin", "abc/df_g0/abcdef.bin", "abc/de_g/abcdef.bin",
		"abc/de_g00/abcdef.bin", "abc/de_g123/abcdef.bin", "abc/de_h0/abcdef.bin",
		"abc/de_g0/abcdef.bin~", "abc/de_g0/abcdeF.bin", "ab/de_g0/abcdef.bin",
	};
	struct kvt_name_part hash;
	int group;

	assert_true(kvt_offload_name(&hash, &group, "abc/de_g0/abcdef.bin"));
	same_part(&hash, "abcdef", "abcdef");
	assert_int_equal(group, 0);
	assert_true(kvt_offload_name(&hash, &group, "012/34_g12/" HASH ".bin"));
	same_part(&hash, HASH, HASH);
	assert_int_equal(group, 12);
	for (size_t i = 0; i < LENGTH(others); i++)
		if (kvt_offload_name(&hash, &group, others[i]))
			fail_msg("'%s' is a name", others[i]);
}

/* hashlib.sha256(json.dumps(config, sort_keys=True, separators=(",", ":")) ...) */
static void test_digest(void)
{
	static const char text[] =
		"{\"model_name\": \"org/\xc3\xa9\", \"blocks_per_file\": 2,"
		" \"kv_cache_groups\": [{\"layer_names\": [\"l.0\"], \"block_size\": 16}]}";
	struct kvt_offload_config config;
	char digest[13];

	ok(kvt_offload_parse(&config, text, strlen(text), "text", &why));
	assert_int_equal(config.blocks_per_file, 2);
	assert_int_equal(config.group[0].block_size, 16);
	assert_true(kvt_offload_digest(digest, config.json));
	assert_string_equal(digest, "5a19f5519037");
	kvt_offload_free(&config);
}

static void test_blocks_first(void)
{
	static const struct {
		const char *in, *blocks, *layers;
	} cases[] = {
		{ "LBSHC", "BLSHC", "BLSHC" }, { "KBSLHD", "BKSLHD", "BLKSHD" },
		{ "HSC", "BLHSC", "BLHSC" }, { "BHLSC", "BHLSC", "BLHSC" },
		{ "K:LBHDS V:LBHSD", "K:BLHDS V:BLHSD", "K:BLHDS V:BLHSD" },
	};

	for (size_t i = 0; i < LENGTH(cases); i++) {
		struct kvt_layout in, want, got;

		for (int layers = 0; layers < 2; layers++) {
			const char *text = layers ? cases[i].layers : cases[i].blocks;

			assert_int_equal(kvt_layout_parse(&in, cases[i].in, NULL), 0);
			assert_int_equal(kvt_layout_parse(&want, text, NULL), 0);
			got = kvt_layout_blocks_first(&in, layers);
			assert_string_equal(kvt_layout_string(&got).s,
					    kvt_layout_string(&want).s);
			assert_true(kvt_layout_equal(&got, &want));
		}
	}
}

TESTS("store",
	TEST(test_hicache), TEST(test_offload), TEST(test_notes), TEST(test_digest),
	TEST(test_blocks_first))
