/* SPDX-License-Identifier: Apache-2.0 */
/* test_spec_refuse.c - specs that contradict themselves, their rank or a model */
#include "lib/kvt/spec.h"
#include "tests/unit/tests.h"

/* ---- what a preset refuses ----------------------------------------------- */

#define LLAMA     { .block_size = 16, .heads = 8, .head_dim = 128 }
#define NEMOTRON  { .heads = 128, .head_dim = 64, .groups = 8, .state_size = 128, \
		    .kernel = 4 }
#define QWEN_NEXT { .heads = 32, .head_dim = 128, .key_heads = 16, .key_dim = 128, \
		    .kernel = 4 }
#define JAMBA     { .inter = 8192, .state_size = 16, .kernel = 4 }

static const struct {
	const char *preset;
	struct kvt_spec_args args;
	int64_t ranks;
	const char *says;
} bad_args[] = {
	{ "gqa", { .block_size = 16, .heads = 8 }, 1, "gqa needs head_dim" },
	{ "gqa", { .heads = 8, .head_dim = 128 }, 1, "gqa needs block_size" },
	{ "sliding-window", LLAMA, 1, "sliding-window needs window" },
	{ "mamba2-conv", JAMBA, 1, "mamba2-conv needs heads" },
	{ "gqa", { .block_size = 16, .heads = -8, .head_dim = 128 }, 1, "heads is -8" },
	{ "gqa", { .block_size = 16, .heads = 8, .head_dim = INT64_MAX }, 1,
	  "head_dim is 9223372036854775807" },
	{ "gqa", LLAMA, 3, "head: 8 cannot be divided evenly among 3 ranks: neither" },
	{ "mamba2-ssm", NEMOTRON, 256, "128 cannot be divided evenly among 256 ranks, "
				       "which must" },
	{ "mamba1-conv", { .inter = 8, .kernel = 4 }, 3, "x: 8 cannot be divided evenly "
							 "among 3" },
	{ "mamba1-conv", { .inter = 8, .kernel = 4 }, 16, "x: 8 cannot be divided evenly "
							  "among 16" },
	{ "mamba2-conv", { .heads = 12, .head_dim = 2, .groups = 4, .state_size = 2,
			   .kernel = 4 }, 6, "B: 4 cannot be divided evenly among 6 "
					     "ranks" },
	{ "gdn-conv", QWEN_NEXT, 32, "q: 16 cannot be divided evenly among 32 ranks, "
				     "which must" },
	{ "mamba2-conv", { .heads = 4, .head_dim = 2, .inter = 9, .groups = 1,
			   .state_size = 2, .kernel = 4 }, 1, "4 heads of 2 are 8" },
	{ "mamba1-conv", { .inter = 8, .kernel = 1 }, 1, "a kernel of 1 has no taps" },
	{ "dsv4-c128a", { .block_size = 64 }, 1,
	  "a block of 64 tokens does not hold whole slots of 128" },
	{ "nvfp4", { .block_size = 16, .heads = 2, .head_dim = 72 }, 1,
	  "head_dim is 72" },
	{ "mamba2-conv", { .heads = 1 << 20, .head_dim = 1 << 20, .groups = 1,
			   .state_size = 1, .kernel = 4 }, 1, "expected 1 to" },
};

static void test_bad_args(void)
{
	for (size_t i = 0; i < LENGTH(bad_args); i++) {
		struct kvt_rank rank = { bad_args[i].ranks, 0 };
		struct kvt_spec spec;

		expect(kvt_spec_make(&spec, bad_args[i].preset, &bad_args[i].args, rank,
				     &why), KVT_BAD_INPUT, bad_args[i].says);
	}
}

static void test_unknown(void)
{
	struct kvt_spec_args args = { 0 };
	struct kvt_spec spec;
	int n = 0;

	assert_int_equal(kvt_spec_make(&spec, "gqq", &args, (struct kvt_rank){ 1, 0 },
				       NULL), KVT_USAGE);
	while (kvt_spec_preset_at(n))
		n++;
	assert_int_equal(n, 67);
	assert_null(kvt_spec_preset_at(-1));
}

/* ---- what a file may claim ------------------------------------------------ */

static void test_claims(void)
{
	static const struct {
		enum kvt_kind kind;
		int64_t heads, total, start, replication, ranks, rank;
		const char *says;		/* "": it is right */
	} rows[] = {
		{ KVT_FULL_ATTENTION, 8, 8, 0, 1, 1, 0, "" },
		{ KVT_FULL_ATTENTION, 2, 8, 6, 1, 4, 3, "" },
		{ KVT_FULL_ATTENTION, 1, 4, 1, 1, 4, 1, "" },
		{ KVT_FULL_ATTENTION, 1, 2, 0, 2, 4, 1, "" },
		{ KVT_MLA, 1, 1, 0, 4, 4, 1, "" },
		{ KVT_FULL_ATTENTION, 1, 4, 2, 1, 4, 1, "head_start is 2, expected 1" },
		{ KVT_FULL_ATTENTION, 1, 2, 0, 4, 4, 1, "replication is 4, expected 2" },
		{ KVT_FULL_ATTENTION, 2, 4, 1, 1, 4, 1, "num_heads is 2, expected 1" },
		{ KVT_FULL_ATTENTION, 1, 6, 0, 1, 4, 1, "6 cannot be divided evenly "
							"among 4" },
		{ KVT_FULL_ATTENTION, 1, -4, 0, 1, 4, 1, "there are -4 heads" },
		{ KVT_FULL_ATTENTION, 1, 4, 0, 1, 0, 0, "there are 0 ranks" },
		{ KVT_FULL_ATTENTION, 1, 4, 0, 1, 4, 4, "rank is 4" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_spec spec = {
			.kind = rows[i].kind, .block_size = 16,
			.num_heads = rows[i].heads, .total_heads = rows[i].total,
			.head_start = rows[i].start, .replication = rows[i].replication,
			.tokens_per_slot = { 1, 1 }, .content_size = 512,
		};
		struct kvt_rank rank = { rows[i].ranks, rows[i].rank };

		expect(kvt_spec_check(&spec, rank, &why),
		       *rows[i].says ? KVT_BAD_INPUT : KVT_OK, rows[i].says);
	}
}

/* A conv state of 12 channels (1 group) that says it has 8. */
static void test_conv(void)
{
	struct kvt_spec spec = {
		.kind = KVT_MAMBA_CONV, .num_heads = 1, .total_heads = 1,
		.replication = 1, .tokens_per_slot = { -1, 1 },
		.content_size = 48, .ncontent = 2, .content = { 8, 3 }, .elem = 2,
		.nparts = 3,
		.part = { { "x", 4, 2, true }, { "B", 1, 2, false },
			  { "C", 1, 2, false } },
	};

	assert_false(kvt_spec_check(&spec, (struct kvt_rank){ 2, 1 }, NULL));
	assert_int_equal(kvt_spec_check(&spec, (struct kvt_rank){ 1, 0 }, &why),
			 KVT_BAD_INPUT);
	assert_string_equal(why.text, "content_size is 48, expected 72 on rank 0 "
			    "of 1");
	spec.ncontent = -1;
	spec.kind = KVT_MLA;
	expect(kvt_spec_check(&spec, (struct kvt_rank){ 1, 0 }, &why), KVT_BAD_INPUT,
	       "content has -1 extents");
	spec.kind = KVT_MAMBA_CONV;
	spec.ncontent = 1;
	expect(kvt_spec_check(&spec, (struct kvt_rank){ 2, 1 }, &why), KVT_BAD_INPUT,
	       "expected channels and taps");
}

static void test_bad_size(void)
{
	static const struct {
		struct kvt_spec spec;
		const char *says;
	} rows[] = {
		{ { .block_size = 64, .num_heads = 1, .content_size = 8,
		    .tokens_per_slot = { 128, 1 } }, "does not hold whole slots" },
		{ { .block_size = 64, .num_heads = 1, .content_size = 8,
		    .tokens_per_slot = { 2, 3 } }, "tokens per slot are 2/3" },
		{ { .block_size = 64, .num_heads = 1, .content_size = 8,
		    .tokens_per_slot = { 0, 1 } }, "tokens per slot are 0/1" },
		{ { .block_size = 64, .num_heads = 1, .content_size = 8,
		    .tokens_per_slot = { -2, 1 } }, "tokens per slot are -2/1" },
		{ { .block_size = 0, .num_heads = 1, .content_size = 8,
		    .tokens_per_slot = { 1, 1 } }, "block size is 0 tokens" },
		{ { .block_size = 64, .num_heads = 0, .content_size = 8,
		    .tokens_per_slot = { 1, 1 } }, "64 slots of 0 heads" },
		{ { .block_size = INT64_MAX, .num_heads = 2, .content_size = 8,
		    .tokens_per_slot = { 1, 1 } }, "a page of" },
		{ { .block_size = INT64_MAX, .num_heads = 1, .content_size = 1,
		    .tokens_per_slot = { 1, 1 }, .alignment = 512 }, "a page of" },
		{ { .block_size = 64, .num_heads = 1, .content_size = 8,
		    .tokens_per_slot = { 1, 1 }, .page_size_padded = 511 },
		  "the padded page has 511 bytes, its content 512" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_spec_size size;

		expect(kvt_spec_size(&size, &rows[i].spec, &why), KVT_BAD_INPUT,
		       rows[i].says);
	}
}

TESTS("spec refusals",
	NAMED(test_bad_args, "numbers that a preset refuses"),
	NAMED(test_unknown, "names of presets"),
	NAMED(test_claims, "heads that a rank cannot have"),
	NAMED(test_conv, "a conv state with too few channels"),
	NAMED(test_bad_size, "pages that engines would truncate"))
