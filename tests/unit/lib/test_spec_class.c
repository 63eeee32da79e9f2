/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_spec_class.c - specs of each class, against what vLLM 0.32's own answered
 *
 * A row is one spec made in vLLM, and what its properties said: heads, states of a block
 * and bytes of each, bytes of a page before and after padding, the most bytes of a
 * request, the width of its block table and the multiple that steps between blocks are.
 */
#include "lib/kvt/spec.h"
#include "tests/unit/tests.h"

#define LONG { .tokens = 131072, .in_flight = 8192, .encoder = 1500 }
#define PARALLEL { .tokens = 131072, .in_flight = 8192, .dcp = 2 }
#define WHISPER { .tokens = 448, .in_flight = 8192, .encoder = 1500 }

enum { H, N, C, UNPADDED, PAGE, MOST, WIDTH, STRIDE, NUMBERS };

static const struct {
	const char *what, *class, *preset;
	struct kvt_spec_args args;
	int64_t tp;
	struct kvt_demand demand;
	int64_t number[NUMBERS];		/* 0: vLLM has none */
	bool cached, mapped;
} rows[] = {
	{ "Llama-3.1-8B bf16", "FullAttentionSpec", "gqa",
	  { .block_size = 16, .heads = 8, .head_dim = 128 },
	  1, LONG, { 8, 16, 512, 65536, 65536, 536870912, 8192, 1 }, true, true },
	{ "same, TP8", "FullAttentionSpec", "gqa",
	  { .block_size = 16, .heads = 8, .head_dim = 128 },
	  8, LONG, { 1, 16, 512, 8192, 8192, 67108864, 8192, 1 }, true, true },
	{ "same, dcp 2", "FullAttentionSpec", "gqa",
	  { .block_size = 16, .heads = 8, .head_dim = 128 },
	  1, PARALLEL, { 8, 16, 512, 65536, 65536, 268435456, 4096, 1 }, true, true },
	{ "gpt-oss sliding 128", "SlidingWindowSpec", "sliding-window",
	  { .block_size = 16, .heads = 8, .head_dim = 64, .window = 128 },
	  1, LONG, { 8, 16, 256, 32768, 32768, 17072128, 8192, 1 }, true, true },
	{ "gpt-oss sliding 128, extra 3", "SlidingWindowSpec", "sliding-window",
	  { .block_size = 16, .heads = 8, .head_dim = 64, .window = 128, .retained = 3 },
	  1, LONG, { 8, 16, 256, 32768, 32768, 17104896, 8192, 1 }, true, true },
	{ "Llama-4 Scout local 8192", "ChunkedLocalAttentionSpec", "chunked-local",
	  { .block_size = 16, .heads = 8, .head_dim = 128, .window = 8192 },
	  1, LONG, { 8, 16, 512, 65536, 65536, 67108864, 8192, 1 }, true, true },
	{ "R-SWA 1024", "RSWASpec", "rswa",
	  { .block_size = 16, .heads = 8, .head_dim = 128, .window = 1024 },
	  1, LONG, { 8, 16, 512, 65536, 65536, 536870912, 8192, 1 }, true, true },
	{ "sink 16", "SinkFullAttentionSpec", "sink",
	  { .block_size = 16, .heads = 8, .head_dim = 128 },
	  1, LONG, { 8, 16, 512, 65536, 65536, 536870912, 8192, 1 }, true, true },
	{ "Whisper-large-v3 cross, 1500", "CrossAttentionSpec", "cross",
	  { .block_size = 16, .heads = 20, .head_dim = 64 },
	  1, WHISPER, { 20, 16, 256, 81920, 81920, 7700480, 28, 1 }, true, true },
	{ "pooled, 1/4", "FullAttentionSpec", "pooled",
	  { .block_size = 16, .heads = 20, .head_dim = 64, .ratio = 4 },
	  1, WHISPER, { 20, 64, 256, 327680, 327680, 9175040, 28, 1 }, true, true },
	{ "encoder only", "EncoderOnlyAttentionSpec", "encoder-only",
	  { .block_size = 16, .heads = 12, .head_dim = 64 },
	  1, LONG, { 12, 16, 256, 49152, 49152, 0, 8192, 1 }, true, true },
	{ "DeepSeek-V3 bf16", "MLAAttentionSpec", "mla",
	  { .block_size = 64, .latent = 576 },
	  1, LONG, { 1, 64, 1152, 73728, 73728, 150994944, 2048, 1 }, true, true },
	{ "V3.2 fp8_ds_mla", "MLAAttentionSpec", "fp8-ds-mla",
	  { .block_size = 64 },
	  1, LONG, { 1, 64, 656, 41984, 41984, 85983232, 2048, 1 }, true, true },
	{ "V3.2 nvfp4_ds_mla", "MLAAttentionSpec", "nvfp4-ds-mla",
	  { .block_size = 64 },
	  1, LONG, { 1, 64, 352, 22528, 22528, 46137344, 2048, 1 }, true, true },
	{ "V3.2 indexer fp8", "MLAAttentionSpec", "indexer",
	  { .block_size = 64 },
	  1, LONG, { 1, 64, 132, 8448, 8448, 17301504, 2048, 1 }, true, true },
	{ "V4 C4A 584, align 576", "MLAAttentionSpec", "dsv4-c4a",
	  { .block_size = 256 },
	  1, LONG, { 1, 64, 584, 37376, 37440, 19169280, 512, 1 }, true, true },
	{ "V4 C128A 584", "MLAAttentionSpec", "dsv4-c128a",
	  { .block_size = 256 },
	  1, LONG, { 1, 2, 584, 1168, 1728, 884736, 512, 1 }, true, true },
	{ "V4 C4A FlashInfer plain fp8", "MLAAttentionSpec", "dsv4-c4a-fp8",
	  { .block_size = 256 },
	  1, LONG, { 1, 64, 512, 32768, 32768, 16777216, 512, 1 }, true, true },
	{ "V4 C128A FlashInfer plain bf16", "MLAAttentionSpec", "dsv4-c128a-bf16",
	  { .block_size = 256 },
	  1, LONG, { 1, 2, 1024, 2048, 2048, 1048576, 512, 1 }, true, true },
	{ "V4 indexer C4 fp8 132", "MLAAttentionSpec", "dsv4-indexer",
	  { .block_size = 256 },
	  1, LONG, { 1, 64, 132, 8448, 8640, 4423680, 512, 1 }, true, true },
	{ "V4 indexer C4 MXFP4 68, align 576", "MLAAttentionSpec", "dsv4-indexer-mxfp4",
	  { .block_size = 256 },
	  1, LONG, { 1, 64, 68, 4352, 4608, 2359296, 512, 1 }, true, true },
	{ "V4 indexer MXFP4 68, align 512", "MLAAttentionSpec", "dsv41-indexer-mxfp4",
	  { .block_size = 256, .ratio = 4 },
	  1, LONG, { 1, 64, 68, 4352, 4608, 2359296, 512, 1 }, true, true },
	{ "V4 SWA 128, 584", "SlidingWindowMLASpec", "dsv4-swa",
	  { .block_size = 64, .window = 128 },
	  1, LONG, { 1, 64, 584, 37376, 37440, 4904640, 2048, 1 }, true, true },
	{ "V4 compressor state C4", "SlidingWindowMLASpec", "dsv4-compressor-c4",
	  { .block_size = 4, .window = 8 },
	  1, LONG, { 1, 4, 8192, 32768, 32832, 67338432, 32768, 1 }, true, true },
	{ "V4 compressor state C128", "SlidingWindowMLASpec", "dsv4-compressor-c128",
	  { .block_size = 8, .window = 128 },
	  1, LONG, { 1, 8, 4096, 32768, 32832, 34178112, 16384, 1 }, true, true },
	{ "V4 compressor of it", "SlidingWindowMLASpec", "dsv4-indexer-compressor",
	  { .block_size = 4, .window = 8 },
	  1, LONG, { 1, 4, 2048, 8192, 8640, 17720640, 32768, 1 }, true, true },
	{ "V4.1 main ratio 1, 528", "MLAAttentionSpec", "dsv41-main",
	  { .block_size = 128, .ratio = 1 },
	  1, LONG, { 1, 128, 528, 67584, 67584, 69206016, 1024, 1 }, true, true },
	{ "V4.1 main ratio 2, 528", "MLAAttentionSpec", "dsv41-main",
	  { .block_size = 128, .ratio = 2 },
	  1, LONG, { 1, 64, 528, 33792, 33792, 34603008, 1024, 1 }, true, true },
	{ "V4.1 main ratio 2, 288", "MLAAttentionSpec", "dsv41-main-fp4",
	  { .block_size = 128, .ratio = 2 },
	  1, LONG, { 1, 64, 288, 18432, 18432, 18874368, 1024, 1 }, true, true },
	{ "V4.1 main ratio 2, 288, block 256", "MLAAttentionSpec", "dsv41-main-fp4",
	  { .block_size = 256, .ratio = 2 },
	  1, LONG, { 1, 128, 288, 36864, 36864, 18874368, 512, 1 }, true, true },
	{ "V4.1 main ratio 1, 288, block 256", "MLAAttentionSpec", "dsv41-main-fp4",
	  { .block_size = 256, .ratio = 1 },
	  1, LONG, { 1, 256, 288, 73728, 73728, 37748736, 512, 1 }, true, true },
	{ "V4.1 SWA 128, 528, replay", "SlidingWindowMLASpec", "dsv41-swa",
	  { .block_size = 64, .window = 128, .replay = 1 },
	  1, LONG, { 1, 64, 528, 33792, 33792, 4426752, 2048, 1 }, false, true },
	{ "V4.1 indexer ratio 2 MXFP4 68", "MLAAttentionSpec", "dsv41-indexer-mxfp4",
	  { .block_size = 256, .ratio = 2, .stride = 512 },
	  1, LONG, { 1, 128, 68, 8704, 8704, 4456448, 512, 512 }, true, true },
	{ "V4.1 compressor ring", "CircularBufferSpec", "ring",
	  { .block_size = 8, .heads = 1, .head_dim = 1024, .elem = 4 },
	  1, LONG, { 1, 8, 4096, 32768, 32768, 32768, 1, 1 }, false, false },
	{ "GLM-5.3 MLA NoPE 512 bf16", "MLAAttentionSpec", "mla",
	  { .block_size = 128, .latent = 512 },
	  1, LONG, { 1, 128, 1024, 131072, 131072, 134217728, 1024, 1 }, true, true },
	{ "GLM-5.3 indexer kpool 16", "MLAAttentionSpec", "kpool-indexer",
	  { .block_size = 1024, .ratio = 16 },
	  1, LONG, { 1, 64, 132, 8448, 8448, 1081344, 128, 1 }, true, true },
	{ "GLM-5.3 kpool tail (no spec)", "CircularBufferSpec", "ring",
	  { .block_size = 16, .heads = 2, .head_dim = 128 },
	  1, LONG, { 2, 16, 256, 8192, 8192, 8192, 1, 1 }, false, false },
	{ "GLM-5.3 kpool tail (3 drafts)", "CircularBufferSpec", "ring",
	  { .block_size = 32, .heads = 2, .head_dim = 128 },
	  1, LONG, { 2, 32, 256, 16384, 16384, 16384, 1, 1 }, false, false },
	{ "QSA raw key ring", "CircularBufferSpec", "ring",
	  { .block_size = 16, .heads = 1, .head_dim = 128 },
	  1, LONG, { 1, 16, 256, 4096, 4096, 4096, 1, 1 }, false, false },
	{ "QSA raw key + MRoPE", "CircularBufferSpec", "ring",
	  { .block_size = 16, .heads = 1, .head_dim = 140 },
	  1, LONG, { 1, 16, 280, 4480, 4480, 4480, 1, 1 }, false, false },
	{ "nvfp4 GQA H8 D128 FlashInfer", "FullAttentionSpec", "nvfp4",
	  { .block_size = 16, .heads = 8, .head_dim = 128 },
	  1, LONG, { 16, 16, 72, 18432, 18432, 150994944, 8192, 1 }, true, true },
	{ "HiSparse hot", "HiSparseHotSpec", "hisparse-hot",
	  { .block_size = 64, .latent = 656, .blocks = 32 },
	  1, LONG, { 0, 0, 0, 0, 41984, 1343488, 32, 1 }, false, false },
	{ "HiSparse resident", "HiSparseResidentSpec", "hisparse-resident",
	  { .block_size = 64, .latent = 656 },
	  1, LONG, { 0, 0, 0, 0, 41984, 5373952, 2048, 1 }, false, true },
};
enum { NROWS = LENGTH(rows) };

static void make(struct kvt_spec *spec, struct kvt_spec_size *size, int i)
{
	if (kvt_spec_make(spec, rows[i].preset, &rows[i].args,
			  (struct kvt_rank){ rows[i].tp, 0 }, &why) ||
	    kvt_spec_size(size, spec, &why))
		fail_msg("%s: %s", rows[i].what, why.text);
}

/* vLLM has K and V, or K and a gate, as heads where kvtool has them in the content. */
static void test_sizes(void)
{
	for (int i = 0; i < NROWS; i++) {
		const int64_t *n = rows[i].number;
		struct kvt_spec_size size;
		struct kvt_spec spec;

		make(&spec, &size, i);
		assert_int_equal(size.page, n[PAGE]);
		if (!n[N])
			continue;
		assert_int_equal(size.num_slots, n[N]);
		assert_int_equal(spec.num_heads * spec.content_size, n[H] * n[C]);
		assert_int_equal(size.unpadded, n[UNPADDED]);
		assert_true(rows[i].args.stride == n[STRIDE] || n[STRIDE] == 1);
	}
}

static void test_requests(void)
{
	for (int i = 0; i < NROWS; i++) {
		int64_t most, width;

		if (kvt_spec_blocks(&most, &width, rows[i].preset, &rows[i].args,
				    &rows[i].demand, &why))
			fail_msg("%s: %s", rows[i].what, why.text);
		assert_int_equal(most * rows[i].number[PAGE], rows[i].number[MOST]);
		assert_int_equal(width, rows[i].number[WIDTH]);
	}
}

static void test_rules(void)
{
	for (int i = 0; i < NROWS; i++) {
		const struct kvt_class_rule *rule =
			kvt_class_rule(kvt_spec_class_of(rows[i].preset, &rows[i].args));

		assert_string_equal(rule->name, rows[i].class);
		assert_int_equal(kvt_spec_cached(rows[i].preset, &rows[i].args),
				 rows[i].cached);
		assert_int_equal(rule->mapped, rows[i].mapped);
	}
}

/* Words of BlockStored events, as get_kv_cache_spec_kind() has them. */
static void test_words(void)
{
	static const char *const words[KVT_NCLASSES] = {
		"full_attention", "mla_attention", "full_attention",
		"sink_full_attention", "mla_attention", "sliding_window",
		"sliding_window_mla", "chunked_local_attention", "cross_attention",
		"encoder_only_attention", "mamba", "unknown", "unknown", "unknown",
	};

	for (int c = 0; c < KVT_NCLASSES; c++)
		assert_string_equal(kvt_class_rule((enum kvt_spec_class)c)->word,
				    words[c]);
}

/* A conv and an SSM state are one page of vLLM's, of which a request has some. */
static void test_states(void)
{
	struct kvt_spec_args args = { .block_size = 16, .heads = 32, .head_dim = 128,
				      .key_heads = 16, .key_dim = 128, .kernel = 4 };
	const struct {
		int64_t spec_tokens;
		struct kvt_demand demand;
		int64_t page, most, width;
	} cases[] = {
		{ 0, LONG, 2146304, 2146304, 1 },
		{ 2, { .tokens = 131072, .drafts = 2, .align = true }, 2179072, 8716288,
		  8194 },
		{ 2, { .tokens = 131072, .drafts = 2 }, 2179072, 3 * 2179072, 3 },
	};

	for (size_t i = 0; i < LENGTH(cases); i++) {
		struct kvt_spec conv, ssm;
		struct kvt_spec_size a, b;
		int64_t most, width;

		args.spec_tokens = cases[i].spec_tokens;
		assert_int_equal(kvt_spec_make(&conv, "gdn-conv", &args,
					       (struct kvt_rank){ 1, 0 }, NULL), KVT_OK);
		assert_int_equal(kvt_spec_make(&ssm, "gdn-ssm", &args,
					       (struct kvt_rank){ 1, 0 }, NULL), KVT_OK);
		ok(kvt_spec_size(&a, &conv, NULL));
		ok(kvt_spec_size(&b, &ssm, NULL));
		assert_int_equal(a.page + b.page, cases[i].page);
		ok(kvt_spec_blocks(&most, &width, "gdn-ssm", &args, &cases[i].demand,
				   NULL));
		assert_int_equal(most * cases[i].page, cases[i].most);
		assert_int_equal(width, cases[i].width);
	}
}

static void test_refused(void)
{
	const struct kvt_spec_args none = { .window = 8 };
	const struct kvt_spec_args window = { .block_size = 16, .window = 8 };
	const struct kvt_demand two = { .tokens = 8, .dcp = 2 }, less = { .tokens = -1 };
	const struct kvt_demand one = { .tokens = 8 };
	int64_t most, width;

	expect(kvt_spec_blocks(&most, &width, "sliding-window", &window, &two, &why),
	       KVT_BAD_INPUT, "2 context parallel ranks cannot share");
	expect(kvt_spec_blocks(&most, &width, "gqa", &window, &less, &why), KVT_BAD_INPUT,
	       NULL);
	expect(kvt_spec_blocks(&most, &width, "gqa", &none, &one, &why), KVT_BAD_INPUT,
	       "block size is 0");
}

TESTS("spec classes",
	TEST(test_sizes), TEST(test_requests), TEST(test_rules), TEST(test_words),
	TEST(test_states), TEST(test_refused))
