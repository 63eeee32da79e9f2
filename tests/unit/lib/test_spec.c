/* SPDX-License-Identifier: Apache-2.0 */
/* test_spec.c - specs of real models: bytes and channels worked out by hand */
#include "lib/kvt/spec.h"
#include "tests/unit/tests.h"

/* ---- pages --------------------------------------------------------------- */

#define LLAMA     { .block_size = 16, .heads = 8, .head_dim = 128 }
#define QWEN235   { .block_size = 16, .heads = 4, .head_dim = 128 }
#define GPT_OSS   { .block_size = 16, .heads = 8, .head_dim = 64, .window = 128 }
#define DEEPSEEK  { .block_size = 64, .latent = 576 }
#define NEMOTRON  { .heads = 128, .head_dim = 64, .groups = 8, .state_size = 128, \
		    .kernel = 4 }
#define BAMBA     { .heads = 128, .head_dim = 64, .groups = 1, .state_size = 256, \
		    .kernel = 4 }
#define FALCON    { .heads = 128, .head_dim = 8, .groups = 1, .state_size = 256, \
		    .kernel = 4 }
#define QWEN_NEXT { .heads = 32, .head_dim = 128, .key_heads = 16, .key_dim = 128, \
		    .kernel = 4 }
#define JAMBA     { .inter = 8192, .state_size = 16, .kernel = 4 }

struct page_case {
	const char *what, *preset;
	struct kvt_spec_args args;
	int64_t slots;
	int64_t page[5];		/* on 1, 2, 4, 8, 16 ranks; 0: not given */
	int64_t replication;		/* on 16 ranks */
};

static struct page_case pages[] = {
	{ "Llama-3.1-8B", "gqa", LLAMA, 16, { 65536, 32768, 0, 8192, 8192 }, 2 },
	{ "Qwen3-235B", "gqa", QWEN235, 16, { 32768, 16384, 0, 8192, 8192 }, 4 },
	{ "gpt-oss", "sliding-window", GPT_OSS, 16, { 32768, 16384, 0, 4096, 4096 }, 2 },
	{ "DeepSeek V3", "mla", DEEPSEEK, 64,
	  { 73728, 73728, 73728, 73728, 73728 }, 16 },
	{ "DeepSeek V3.2", "fp8-ds-mla", { 0 }, 64,
	  { 41984, 41984, 41984, 41984, 41984 }, 16 },
	{ "indexer", "indexer", { 0 }, 64, { 8448, 8448, 8448, 8448, 8448 }, 16 },
	{ "DeepSeek V4, C4A", "dsv4-c4a", { 0 }, 64,
	  { 37440, 37440, 37440, 37440, 37440 }, 16 },
	{ "DeepSeek V4, C128A", "dsv4-c128a", { 0 }, 2, { 1728, 1728, 1728, 1728, 1728 },
	  16 },
	{ "DeepSeek V4, window", "dsv4-swa", { 0 }, 64, { 37440, 0, 0, 37440 }, 16 },
	{ "DeepSeek V4, bf16", "dsv4-c4a-bf16", { 0 }, 64, { 65536, 0, 65536 }, 16 },
	{ "DeepSeek V4, window, bf16", "dsv4-swa-bf16", { 0 }, 64, { 65536 }, 16 },
	{ "DeepSeek V4, C128A, bf16", "dsv4-c128a-bf16", { 0 }, 2, { 2048 }, 16 },
	{ "compressor C4", "dsv4-compressor-c4", { 0 }, 4, { 32832, 0, 32832 }, 16 },
	{ "compressor C128", "dsv4-compressor-c128", { 0 }, 8, { 32832 }, 16 },
	{ "indexer C4", "dsv4-indexer", { 0 }, 64, { 8640, 8640 }, 16 },
	{ "indexer compressor", "dsv4-indexer-compressor", { 0 }, 4, { 8640 }, 16 },
	{ "the RFC's DeepSeek V4", "compressed",
	  { .block_size = 16, .heads = 8, .head_dim = 128, .ratio = 4 }, 4,
	  { 16384, 8192, 4096, 2048, 2048 }, 2 },
	{ "K of 192, V of 128", "gqa",
	  { .block_size = 16, .heads = 4, .head_dim = 192, .head_dim_v = 128 }, 16,
	  { 40960, 20480, 10240, 10240, 10240 }, 4 },
	{ "fp8 without scales", "gqa",
	  { .block_size = 16, .heads = 8, .head_dim = 128, .elem = 1 }, 16,
	  { 32768, 16384 }, 2 },
	{ "pooled cross attention", "cross",
	  { .block_size = 16, .heads = 4, .head_dim = 64, .ratio = 2 }, 32,
	  { 32768, 16384, 8192, 8192 }, 4 },
	{ "8 bits and a scale", "int8-per-token-head",
	  { .block_size = 1, .heads = 1, .head_dim = 128 }, 1, { 264 }, 16 },
	{ "fp8 and a scale", "fp8-per-token-head",
	  { .block_size = 1, .heads = 1, .head_dim = 128 }, 1, { 264 }, 16 },
	{ "4 bits and a scale", "int4-per-token-head",
	  { .block_size = 1, .heads = 1, .head_dim = 128 }, 1, { 136 }, 16 },
	{ "nvfp4 block", "nvfp4", { .block_size = 16, .heads = 2, .head_dim = 64 }, 16,
	  { 2304, 1152 }, 8 },
	{ "turboquant k8v4", "turboquant-k8v4",
	  { .block_size = 1, .heads = 1, .head_dim = 128 }, 1, { 196 }, 16 },
	{ "turboquant 4bit", "turboquant-4bit-nc",
	  { .block_size = 1, .heads = 1, .head_dim = 128 }, 1, { 134 }, 16 },
	{ "turboquant k3v4", "turboquant-k3v4-nc",
	  { .block_size = 1, .heads = 1, .head_dim = 128 }, 1, { 118 }, 16 },
	{ "turboquant, an odd slot", "turboquant-k3v4-nc",
	  { .block_size = 1, .heads = 1, .head_dim = 8 }, 1, { 14 }, 16 },
	{ "turboquant 3bit", "turboquant-3bit-nc",
	  { .block_size = 1, .heads = 1, .head_dim = 128 }, 1, { 102 }, 16 },
	{ "latent and two scales", "mla-per-token-head",
	  { .block_size = 1, .latent = 576, .elem = 1 }, 1, { 584 }, 16 },

	{ "Nemotron-H conv", "mamba2-conv", NEMOTRON, 1,
	  { 61440, 30720, 15360, 7680, 4608 }, 1 },
	{ "Nemotron-H SSM", "mamba2-ssm", NEMOTRON, 1,
	  { 4194304, 2097152, 1048576, 524288, 262144 }, 1 },
	{ "Bamba conv", "mamba2-conv", BAMBA, 1,
	  { 52224, 27648, 15360, 9216, 6144 }, 1 },
	{ "Bamba SSM", "mamba2-ssm", BAMBA, 1,
	  { 8388608, 4194304, 2097152, 1048576, 524288 }, 1 },
	{ "Falcon-H1 conv", "mamba2-conv", FALCON, 1,
	  { 9216, 6144, 4608, 3840, 3456 }, 1 },
	{ "Falcon-H1 SSM", "mamba2-ssm", FALCON, 1,
	  { 1048576, 524288, 262144, 131072, 65536 }, 1 },
	{ "Qwen3-Next conv", "gdn-conv", QWEN_NEXT, 1, { 49152, 24576, 12288, 6144 }, 1 },
	{ "Qwen3-Next SSM", "gdn-ssm", QWEN_NEXT, 1,
	  { 2097152, 1048576, 524288, 262144 }, 1 },
	{ "Jamba conv", "mamba1-conv", JAMBA, 1, { 49152, 24576, 12288, 6144 }, 1 },
	{ "Jamba SSM", "mamba1-ssm", JAMBA, 1, { 524288, 262144, 131072, 65536 }, 1 },
	{ "KDA conv", "kda-conv", { .heads = 32, .head_dim = 128, .kernel = 4 }, 1,
	  { 73728, 36864, 18432, 9216, 4608 }, 1 },
	{ "KDA SSM", "kda-ssm", { .heads = 32, .head_dim = 128 }, 1,
	  { 2097152, 1048576, 524288, 262144, 131072 }, 1 },
	{ "short convolution", "short-conv", { .inter = 2048, .kernel = 3 }, 1,
	  { 8192, 4096, 2048, 1024, 512 }, 1 },
	{ "linear attention", "linear-attention", { .heads = 16, .head_dim = 64 }, 1,
	  { 262144, 131072, 65536, 32768, 16384 }, 1 },
	{ "speculative taps", "gdn-conv",
	  { .heads = 4, .head_dim = 2, .key_heads = 2, .key_dim = 2, .kernel = 4,
	    .spec_tokens = 2 }, 1, { 160, 80 }, 1 },
};

static void test_page(void **state)
{
	const struct page_case *c = *state;

	for (int i = 0; i < 5; i++) {
		struct kvt_rank rank = { 1 << i, (1 << i) - 1 };
		struct kvt_spec spec, whole, again;
		struct kvt_spec_size size;
		struct kvt_shape shape;
		int64_t nbytes = 0;

		if (!c->page[i])
			continue;
		if (kvt_spec_make(&spec, c->preset, &c->args, rank, &why) ||
		    kvt_spec_make(&whole, c->preset, &c->args,
				  (struct kvt_rank){ 1, 0 }, &why) ||
		    kvt_spec_size(&size, &spec, &why) ||
		    kvt_spec_shape(&shape, &spec, 3, 5, &why) ||
		    kvt_shape_nbytes(&nbytes, &shape, &why) ||
		    kvt_spec_share(&again, &whole, rank, &why))
			fail_msg("%d ranks: %s", 1 << i, why.text);
		assert_int_equal(size.num_slots, c->slots);
		assert_int_equal(size.page, c->page[i]);
		assert_int_equal(nbytes, 3 * 5 * size.unpadded);
		assert_int_equal(again.content_size, spec.content_size);
		assert_int_equal(again.num_heads, spec.num_heads);
		assert_int_equal(again.head_start, spec.head_start);
		if (rank.size == 16)
			assert_int_equal(spec.replication, c->replication);
	}
}

/* ---- channels of a conv state -------------------------------------------- */

static const struct {
	const char *preset;
	struct kvt_spec_args args;
	int rows[5][4];			/* on 1, 2, 4, 8, 16 ranks: all, then parts */
} convs[] = {
	{ "mamba2-conv", NEMOTRON,
	  { { 10240, 8192, 1024, 1024 }, { 5120, 4096, 512, 512 },
	    { 2560, 2048, 256, 256 }, { 1280, 1024, 128, 128 },
	    { 768, 512, 128, 128 } } },
	{ "mamba2-conv", BAMBA,
	  { { 8704, 8192, 256, 256 }, { 4608, 4096, 256, 256 },
	    { 2560, 2048, 256, 256 }, { 1536, 1024, 256, 256 },
	    { 1024, 512, 256, 256 } } },
	{ "mamba2-conv", FALCON,
	  { { 1536, 1024, 256, 256 }, { 1024, 512, 256, 256 },
	    { 768, 256, 256, 256 }, { 640, 128, 256, 256 }, { 576, 64, 256, 256 } } },
	{ "gdn-conv", QWEN_NEXT,
	  { { 8192, 2048, 2048, 4096 }, { 4096, 1024, 1024, 2048 },
	    { 2048, 512, 512, 1024 }, { 1024, 256, 256, 512 } } },
};

/* A part's channels on a rank are what a transfer to that rank moves. */
static void test_conv_rows(void)
{
	for (size_t c = 0; c < LENGTH(convs); c++)
		for (int i = 0; i < 5 && convs[c].rows[i][0]; i++) {
			struct kvt_rank one = { 1, 0 }, rank = { 1 << i, 0 };
			struct kvt_spec whole, spec;
			struct kvt_side src = { &whole, one }, dst = { &spec, rank };
			struct kvt_exchange x;
			const char *preset = convs[c].preset;

			if (kvt_spec_make(&whole, preset, &convs[c].args, one, &why) ||
			    kvt_spec_share(&spec, &whole, rank, &why) ||
			    kvt_exchange_init(&x, &src, &dst, &why))
				fail_msg("%s", why.text);
			assert_int_equal(spec.content[0], convs[c].rows[i][0]);
			assert_int_equal(x.count, 3);
			for (int p = 0; p < 3; p++)
				assert_int_equal(x.range[p].count,
						 convs[c].rows[i][p + 1]);
		}
}

/* ---- whole caches -------------------------------------------------------- */

#define TOKEN(n) { .block_size = 1, .heads = n, .head_dim = 128 }

static void test_bytes_per_token(void)
{
	static const struct {
		const char *preset;
		struct kvt_spec_args args;
		int64_t layers, ranks, nbytes;
	} models[] = {
		{ "gqa", TOKEN(8), 32, 1, 131072 },
		{ "gqa", TOKEN(8), 80, 1, 327680 },
		{ "gqa", TOKEN(8), 36, 1, 147456 },
		{ "gqa", TOKEN(4), 48, 1, 98304 },
		{ "gqa", TOKEN(4), 94, 1, 192512 },
		{ "gqa", TOKEN(4), 94, 8, 385024 },
		{ "gqa", { .block_size = 1, .heads = 8, .head_dim = 64 }, 12, 1, 24576 },
		{ "mla", { .block_size = 1, .latent = 576 }, 61, 1, 70272 },
		{ "fp8-ds-mla", { .block_size = 1 }, 61, 1, 40016 },
		{ "gqa", { .block_size = 1, .heads = 2, .head_dim = 256 }, 12, 1, 24576 },
	};

	for (size_t i = 0; i < LENGTH(models); i++) {
		struct kvt_rank rank = { models[i].ranks, 0 };
		struct kvt_spec spec;
		struct kvt_spec_size size;

		assert_int_equal(kvt_spec_make(&spec, models[i].preset, &models[i].args,
					       rank, NULL), 0);
		assert_int_equal(kvt_spec_size(&size, &spec, NULL), 0);
		assert_int_equal(size.page * models[i].layers * models[i].ranks,
				 models[i].nbytes);
	}
}

static void test_slots(void)
{
	static const struct {
		struct kvt_ratio ratio;
		int64_t tokens, slots;
	} rows[] = {
		{ { 1, 1 }, 0, 0 }, { { 1, 1 }, 421, 421 }, { { 4, 1 }, 8, 2 },
		{ { 4, 1 }, 9, 3 }, { { 128, 1 }, 1, 1 }, { { 128, 1 }, 0, 0 },
		{ { -1, 1 }, 421, 1 }, { { 1, 2 }, 3, 6 }, { { 1, 3 }, 1, 3 },
		{ { 4, 1 }, INT64_MAX, INT64_MAX / 4 + 1 },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_spec spec = { .tokens_per_slot = rows[i].ratio };

		assert_int_equal(kvt_spec_slots(&spec, rows[i].tokens), rows[i].slots);
	}
}

/* A padded page is of one allocation; the alignment is of the model. */
static void test_share(void)
{
	struct kvt_spec_args llama = LLAMA;
	struct kvt_spec spec, share;
	struct kvt_spec_size size;

	assert_false(kvt_spec_make(&spec, "gqa", &llama, (struct kvt_rank){ 2, 1 },
				   NULL));
	spec.page_size_padded = 40000;
	assert_false(kvt_spec_check(&spec, (struct kvt_rank){ 2, 1 }, NULL));
	assert_false(kvt_spec_size(&size, &spec, NULL));
	assert_int_equal(size.page, 40000);
	assert_int_equal(size.unpadded, 32768);
	spec.alignment = 3 * 4096;
	assert_false(kvt_spec_share(&share, &spec, (struct kvt_rank){ 4, 3 }, NULL));
	assert_false(kvt_spec_size(&size, &share, NULL));
	assert_int_equal(size.page, 2 * 3 * 4096);
	assert_int_equal(share.head_start, 6);
}

static void test_shapes(void)
{
	static const struct {
		const char *preset;
		struct kvt_spec_args args;
		int64_t n[KVT_NAXES], elem;
	} rows[] = {
		{ "gqa", LLAMA, { 3, 5, 16, 8, 2, 128 }, 2 },
		{ "gqa",
		  { .block_size = 16, .heads = 2, .head_dim = 192, .head_dim_v = 128 },
		  { 3, 5, 16, 2, 1, 320 }, 2 },
		{ "mla", DEEPSEEK, { 3, 5, 64, 1, 1, 576 }, 2 },
		{ "fp8-ds-mla", { 0 }, { 3, 5, 64, 1, 1, 656 }, 1 },
		{ "dsv4-c4a", { 0 }, { 3, 5, 64, 1, 1, 584 }, 1 },
		{ "mamba2-conv", BAMBA, { 3, 5, 3, 1, 1, 8704 }, 2 },
		{ "mamba2-ssm", BAMBA, { 3, 5, 1, 128, 1, 64 * 256 }, 4 },
		{ "mamba1-ssm", JAMBA, { 3, 5, 1, 8192, 1, 16 }, 4 },
		{ "kda-ssm", { .heads = 4, .head_dim = 2 }, { 3, 5, 1, 4, 1, 4 }, 4 },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_spec spec;
		struct kvt_shape shape;

		assert_int_equal(kvt_spec_make(&spec, rows[i].preset, &rows[i].args,
					       (struct kvt_rank){ 1, 0 }, NULL), 0);
		assert_int_equal(kvt_spec_shape(&shape, &spec, 3, 5, NULL), 0);
		assert_memory_equal(shape.n, rows[i].n, sizeof(shape.n));
		assert_int_equal(shape.elem, rows[i].elem);
	}
}

/* Two extents are keys and values only if the first of them is 2. */
static void test_shape_content(void)
{
	struct kvt_spec spec = {
		.kind = KVT_FULL_ATTENTION, .block_size = 16, .num_heads = 1,
		.tokens_per_slot = { 1, 1 }, .content_size = 64, .ncontent = 2,
		.content = { 4, 8 }, .elem = 2,
	};
	struct kvt_shape shape;

	assert_false(kvt_spec_shape(&shape, &spec, 1, 1, NULL));
	assert_int_equal(shape.n[KVT_AXIS_K], 1);
	assert_int_equal(shape.n[KVT_AXIS_D], 32);
	spec.ncontent = 0;
	assert_false(kvt_spec_shape(&shape, &spec, 1, 1, NULL));
	assert_int_equal(shape.n[KVT_AXIS_D], 64);
	assert_int_equal(shape.elem, 1);
}

TESTS("spec",
	EACH(pages, test_page),
	NAMED(test_conv_rows, "channels of x, B and C"),
	NAMED(test_bytes_per_token, "bytes of a token in whole models"),
	NAMED(test_slots, "slots of some tokens"),
	NAMED(test_shapes, "extents of views"),
	NAMED(test_shape_content, "contents that are no keys and values"),
	NAMED(test_share, "a share leaves the padding behind"))
