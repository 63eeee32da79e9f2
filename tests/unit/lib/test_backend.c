/* SPDX-License-Identifier: Apache-2.0 */
/* test_backend.c - what vLLM's backends refuse, and the bytes they wrote */
#include "lib/kvt/connect.h"
#include "tests/unit/tests.h"

/* ---- configurations ------------------------------------------------------ */

struct check_case {
	const char *what, *backend;
	struct kvt_backend_config config;
	const char *reasons;		/* vLLM's words, joined by "; " */
};

#define LLAMA .head_size = 128, .dtype = "bfloat16", .cache_dtype = "auto", \
	.block_size = 16
#define DEEPSEEK .head_size = 576, .dtype = "bfloat16", .cache_dtype = "auto", \
	.block_size = 64, .mla = true

static struct check_case checks[] = {
	{ "a common model", "FLASH_ATTN", { LLAMA, .sliding_window = true,
	  .connector = true, .sinks = true }, "" },
	{ "nothing is known", "FLASH_ATTN", { 0 }, "" },
	{ "ROCM_ATTN never reaches a connector", "ROCM_ATTN",
	  { LLAMA, .connector = true }, "KV connector not supported" },
	{ "ROCM_ATTN without one", "ROCM_ATTN", { LLAMA }, "" },
	{ "its heir has an answer of its own", "ROCM_AITER_UNIFIED_ATTN",
	  { LLAMA, .connector = true }, "" },
	{ "AITER has connectors", "ROCM_AITER_FA", { LLAMA, .connector = true }, "" },
	{ "all reasons, in vLLM's order", "ROCM_ATTN",
	  { .head_size = 40, .dtype = "float64", .cache_dtype = "nvfp4",
	    .block_size = 8, .mla = true, .sparse = true, .sinks = true,
	    .sliding_window = true, .connector = true },
	  "head_size not supported; dtype not supported; kv_cache_dtype not supported; "
	  "block_size not supported; MLA not supported; attention sinks not supported; "
	  "sparse not supported; KV connector not supported" },
	{ "MLA wants MLA, sparse wants sparse", "FLASHMLA_SPARSE",
	  { LLAMA, .sliding_window = true },
	  "head_size not supported; block_size not supported; non-MLA not supported; "
	  "non-sparse not supported; sliding window not supported" },
	{ "a latent", "FLASHMLA", { DEEPSEEK, .connector = true }, "" },
	{ "a latent elsewhere", "FLASH_ATTN", { DEEPSEEK },
	  "head_size not supported; MLA not supported" },
	{ "CUTLASS has blocks of 128", "CUTLASS_MLA", { DEEPSEEK },
	  "block_size not supported" },
	{ "CPU_MLA has blocks of 16 exactly", "CPU_MLA",
	  { .block_size = 32, .mla = true }, "block_size not supported" },
	{ "and 16 it is", "CPU_MLA", { .block_size = 16, .mla = true }, "" },
	{ "a kernel's block may be part of one", "AMX_MLA",
	  { .block_size = 96, .mla = true }, "" },
	{ "CPU_ATTN has blocks of 32", "CPU_ATTN", { .block_size = 16 },
	  "block_size not supported" },
	{ "kernels of NVIDIA on ROCm", "FLASHINFER_MLA", { DEEPSEEK, .rocm = true },
	  "runs on CUDA only" },
	{ "kernels of AMD on CUDA, whatever else is wrong", "ROCM_ATTN",
	  { DEEPSEEK, .capability = 90 }, "runs on ROCm only" },
	{ "a CPU is no GPU", "CPU_ATTN", { .rocm = true }, "runs on CPUs only" },
	{ "nor is an XPU", "XPU_MLA_SPARSE",
	  { DEEPSEEK, .sparse = true, .capability = 90 }, "runs on XPUs only" },
	{ "Triton runs on all", "TRITON_ATTN", { LLAMA, .rocm = true }, "" },
	{ "sinks of FlashInfer on 9.0", "FLASHINFER",
	  { LLAMA, .sinks = true, .capability = 90 }, "" },
	{ "from 8.0 on without an end", "FLASH_ATTN", { LLAMA, .capability = 130 },
	  "" },
	{ "up to 12.1", "FLASHINFER", { LLAMA, .capability = 122 },
	  "compute capability not supported" },
	{ "one number alone", "HPC_ATTN", { .block_size = 64, .capability = 100 },
	  "compute capability not supported" },
	{ "dense latents are Hopper's", "FLASHMLA", { DEEPSEEK, .capability = 100 },
	  "FlashMLA Dense is only supported on Hopper devices." },
	{ "PCP and DCP together", "FLASHINFER_MLA_SPARSE",
	  { DEEPSEEK, .sparse = true, .pcp = true, .dcp = true },
	  "FLASHINFER_MLA_SPARSE does not support combined PCP+DCP" },
	{ "blocks of 64 on Hopper", "FLASHMLA_SPARSE_DSV41",
	  { .block_size = 64, .mla = true, .sparse = true, .capability = 90 }, "" },
	{ "and not elsewhere", "FLASHMLA_SPARSE_DSV41",
	  { .block_size = 64, .mla = true, .sparse = true, .capability = 100 },
	  "block_size not supported" },
	{ "non-causal latents of AITER", "ROCM_AITER_MLA",
	  { DEEPSEEK, .non_causal = true }, "" },
	{ "but for float16", "ROCM_AITER_MLA",
	  { .dtype = "half", .cache_dtype = "auto", .mla = true, .non_causal = true },
	  "non-causal fp16 MLA decode not supported" },
	{ "a name without code has one reason", "TORCH_SDPA", { DEEPSEEK },
	  "not implemented in this release of vLLM" },
	{ "every reason of a decoder", "HPC_ATTN",
	  { .head_size = 64, .dtype = "float", .cache_dtype = "nvfp4", .block_size = 32,
	    .type = "encoder_only", .capability = 100, .mla = true, .sparse = true,
	    .sinks = true, .sliding_window = true, .connector = true, .mm_prefix = true,
	    .head_scales = true, .rswa = true, .non_causal = true,
	    .batch_invariant = true, .pcp = true, .dcp = true,
	    .adaptive_verification = true },
	  "head_size not supported; dtype not supported; kv_cache_dtype not supported; "
	  "block_size not supported; partial multimodal token full attention not "
	  "supported; MLA not supported; attention sinks not supported; sparse not "
	  "supported; per-head quant scales not supported; compute capability not "
	  "supported; attention type encoder_only not supported; sliding window not "
	  "supported; R-SWA not supported; non-causal attention not supported; "
	  "non-causal MLA attention with DCP not supported; batch invariance not "
	  "supported; PCP not supported; DCP not supported" },
	{ "a query of lengths", "TRITON_FLASH_ATTN",
	  { .head_size = 256, .adaptive_verification = true },
	  "device-cpu query lens mismatch not supported, this is needed for adaptive "
	  "verification" },
	{ "reasons of its own come last", "B12X",
	  { .dtype = "half", .cache_dtype = "float16" },
	  "dtype not supported; kv_cache_dtype not supported; "
	  "b12x currently requires bfloat16 queries" },
	{ "nvfp4 with heads of 64", "FLASHINFER",
	  { .cache_dtype = "nvfp4", .head_size = 64, .capability = 90 },
	  "fa2 prefill misreads an NVFP4 KV cache at head_size 64" },
	{ "and on SM100", "FLASHINFER",
	  { .cache_dtype = "nvfp4", .head_size = 64, .capability = 100 }, "" },
	{ "TOKENSPEED_MLA is fp8 only", "TOKENSPEED_MLA", { DEEPSEEK },
	  "kv_cache_dtype not supported" },
	{ "fp8_ds_mla is of sparse backends", "FLASHMLA_SPARSE",
	  { .cache_dtype = "fp8_ds_mla", .mla = true, .sparse = true }, "" },
	{ "and of no other", "FLASHMLA", { .cache_dtype = "fp8_ds_mla", .mla = true },
	  "kv_cache_dtype not supported" },
	{ "any head size that 8 divides", "FLASH_ATTN", { .head_size = 40 }, "" },
	{ "none that it does not", "FLASH_ATTN", { .head_size = 36 },
	  "head_size not supported" },
	{ "none above 512", "FLASH_ATTN", { .head_size = 520 },
	  "head_size not supported" },
	{ "Triton from 32 on", "TRITON_ATTN", { .head_size = 31 },
	  "head_size not supported" },
	{ "Triton has no end", "TRITON_ATTN", { .head_size = 4000, .dtype = "float" },
	  "" },
	{ "FlexAttention has no list", "FLEX_ATTENTION", { .head_size = 7 }, "" },
	{ "a scale for each head", "TRITON_ATTN",
	  { .cache_dtype = "int8_per_token_head" }, "" },
	{ "nvfp4 is FlashInfer's", "FLASHINFER", { .cache_dtype = "nvfp4_4over6" },
	  "" },
	{ "an unknown cache dtype", "FLASHINFER", { .cache_dtype = "fp9" },
	  "kv_cache_dtype not supported" },
	{ "an unknown dtype", "FLASHINFER", { .dtype = "auto" },
	  "dtype not supported" },
	{ "slots are TurboQuant's own", "TURBOQUANT", { .cache_dtype = "bfloat16" },
	  "kv_cache_dtype not supported" },
	{ "HPC_ATTN", "HPC_ATTN", { LLAMA, .sliding_window = true },
	  "block_size not supported; sliding window not supported" },
};

/* What earlier releases answered, with their name in the configuration. */
static struct check_case earlier[] = {
	{ "and had others", "CPU_ATTN", { .release = KVT_VLLM_0_26,
	  .block_size = 16 }, "" },
	{ "none divides 8", "CPU_ATTN", { .release = KVT_VLLM_0_22, .block_size = 8 },
	  "block_size not supported" },
	{ "no code yet", "B12X", { .release = KVT_VLLM_0_26, LLAMA },
	  "not implemented in this release of vLLM" },
	{ "what was not asked was not refused", "ROCM_ATTN",
	  { .release = KVT_VLLM_0_22, LLAMA, .connector = true, .pcp = true,
	  .dcp = true, .rswa = true }, "" },
	{ "connectors are asked since 0.24", "ROCM_ATTN",
	  { .release = KVT_VLLM_0_24, LLAMA, .connector = true, .pcp = true },
	  "KV connector not supported" },
	{ "its heir had the same answer then", "ROCM_AITER_UNIFIED_ATTN",
	  { .release = KVT_VLLM_0_26, LLAMA, .connector = true },
	  "KV connector not supported" },
	{ "float32 before 0.26", "ROCM_AITER_UNIFIED_ATTN",
	  { .release = KVT_VLLM_0_24, .dtype = "float32" }, "" },
	{ "and not then", "ROCM_AITER_UNIFIED_ATTN", { .release = KVT_VLLM_0_26,
	  .dtype = "float32" },
	  "dtype not supported" },
	{ "but not before", "FLASHINFER", { .release = KVT_VLLM_0_26, LLAMA,
	  .sinks = true, .capability = 90 },
	  "attention sinks not supported" },
	{ "unknown devices have them", "FLASHINFER",
	  { .release = KVT_VLLM_0_26, LLAMA, .sinks = true }, "" },
	{ "nvfp4 on 9.0 is new", "FLASHINFER",
	  { .release = KVT_VLLM_0_26, .head_size = 128, .cache_dtype = "nvfp4",
	  .capability = 90 },
	  "kv_cache_dtype not supported" },
	{ "a Turing card", "FLASHINFER", { .release = KVT_VLLM_0_22, LLAMA,
	  .capability = 75 }, "" },
	{ "which was dropped", "FLASHINFER", { .release = KVT_VLLM_0_24, LLAMA,
	  .capability = 75 },
	  "compute capability not supported" },
	{ "and all above it before", "HPC_ATTN", { .release = KVT_VLLM_0_26,
	  .block_size = 64, .capability = 100 }, "" },
	{ "DCP by its own words", "FLASH_ATTN_MLA_SPARSE",
	  { .release = KVT_VLLM_0_26, DEEPSEEK, .sparse = true, .dcp = true },
	  "FlashAttention MLA Sparse does not support DCP for now" },
};

static void test_check(void **state)
{
	const struct check_case *c = *state;
	const struct kvt_backend *backend = kvt_backend_find(c->backend);
	char text[1024] = "";
	unsigned reasons;

	assert_non_null(backend);
	reasons = kvt_backend_check(backend, &c->config);
	for (int i = 0; i < KVT_NBACKEND_REASONS; i++) {
		if (!(reasons >> i & 1))
			continue;
		if (*text)
			strcat(text, "; ");
		strcat(text, i == KVT_BACKEND_OWN ?
		       kvt_backend_own_reason(backend, &c->config) :
		       kvt_backend_reason_text(i));
	}
	assert_string_equal(text, c->reasons);
}

static void test_newest(void **state)
{
	struct check_case *c = *state;

	c->config.release = KVT_NEWEST_RELEASE;
	test_check(state);
}

static void test_names(void)
{
	int without = 0, n = 0;

	for (int i = 0; kvt_backend_at(i); i++, n++) {
		const struct kvt_backend *backend = kvt_backend_at(i);

		assert_ptr_equal(kvt_backend_find(kvt_backend_name(backend)), backend);
		without += !kvt_backend_has_connector(backend,
							 KVT_NEWEST_RELEASE);
	}
	assert_int_equal(n, 46);
	assert_int_equal(without, 2 + 3);	/* three have no code */
	assert_null(kvt_backend_at(-1));
	assert_null(kvt_backend_find("flash_attn"));
}

/* ---- layouts ------------------------------------------------------------- */

#define R22 (1 << KVT_VLLM_0_22)
#define R24 (1 << KVT_VLLM_0_24)
#define R26 (1 << KVT_VLLM_0_26)
#define R32 (1 << KVT_VLLM_0_32)

struct wrote_case {
	const char *what, *backend, *layout;
	int64_t heads, kv;
	unsigned releases;
};

static struct wrote_case wrote[] = {
	{ "NHD of the RFC", "FLASH_ATTN", "nhd", 4, 2, R26 | R32 },
	{ "HND of the RFC", "FLASH_ATTN", "hnd", 4, 2, R26 | R32 },
	{ "two halves of a layer", "FLASH_ATTN", "kv-first-nhd", 4, 2, R22 },
	{ "two halves of a block", "FLASH_ATTN", "blocks-first-hnd", 4, 2, R22 | R24 },
	{ "FlashInfer had it earlier", "FLASHINFER",
	  "blocks-first-nhd", 4, 2, R22 | R24 },
	{ "cross-layer", "TRITON_ATTN", "BHLKSD", 4, 2, R24 },
	{ "cross-layer before", "TRITON_ATTN", "BKHLSD", 4, 2, R22 },
	{ "any order that has a name", "FLASH_ATTN", "blhsc", 4, 2, R32 },
	{ "never", "FLASH_ATTN", "rocm-paged", 4, 2, 0 },
	{ "ROCM_ATTN, labelled as a shape", "ROCM_ATTN", "kv-first-nhd", 4, 2, 0 },
	{ "ROCM_ATTN", "ROCM_ATTN", "rocm-paged", 4, 2, R22 | R24 | R26 | R32 },
	{ "whose LHBNC is no lhbsc", "ROCM_ATTN", "lhbsc", 4, 2, 0 },
	{ "a new name, the same bytes", "ROCM_SEGMENTED_ATTN",
	  "rocm-paged", 4, 2, R32 },
	{ "AITER is HND since 0.26", "ROCM_AITER_FA", "nhd", 4, 2, 0 },
	{ "with one head that is the same", "ROCM_AITER_FA", "nhd", 1, 2, R26 | R32 },
	{ "AITER shuffle", "ROCM_AITER_FA", "aiter-shuffle", 4, 2, R24 | R32 },
	{ "AITER shuffle, K first", "ROCM_AITER_FA", "aiter-shuffle-kv-first", 4, 2,
	  R22 | R32 },
	{ "HPC_ATTN stayed split", "HPC_ATTN", "blocks-first-nhd", 4, 2, R26 },
	{ "up to 0.32", "HPC_ATTN", "nhd", 4, 2, R32 },
	{ "a CPU has its own", "CPU_ATTN", "cpu-amx", 4, 2, R24 | R26 | R32 },
	{ "halves without packing are a trap", "CPU_ATTN", "head-halves", 4, 2, 0 },
	{ "a latent", "FLASHMLA", "mla", 1, 1, R22 | R24 | R26 | R32 },
	{ "a latent by another name", "FLASHMLA", "hnd", 1, 1, R22 | R24 | R26 | R32 },
	{ "latents of all layers", "FLASHMLA", "mla-cross", 1, 1, R24 | R26 | R32 },
	{ "which this backend lacked", "ROCM_AITER_MLA", "mla-cross", 1, 1, R32 },
	{ "and this one, which was not there", "AMX_MLA", "mla", 1, 1, R32 },
	{ "a layout that does not fit", "FLASHMLA", "mla", 4, 2, 0 },
};

static void test_wrote(void **state)
{
	const struct wrote_case *c = *state;
	struct kvt_shape shape = { { 3, 5, 32, c->heads, c->kv, 64 }, 2 };
	struct kvt_layout layout;

	ok(kvt_layout_parse(&layout, c->layout, &why));
	assert_int_equal(kvt_backend_wrote(kvt_backend_find(c->backend), &layout, &shape),
			 c->releases);
}

/* Every row can be read, is of a backend that there is, and is found again. */
static void test_rows(void)
{
	int n = 0;

	for (; kvt_backend_layout_at(n); n++) {
		const struct kvt_backend_layout *row = kvt_backend_layout_at(n);
		bool mla = strstr(row->backend, "MLA") != NULL;
		struct kvt_shape shape = { { 3, 5, 32, mla ? 1 : 4, mla ? 1 : 2, 64 },
					   2 };
		const struct kvt_backend *backend =
			!strcmp(row->backend, "MLA") ? kvt_backend_find("TRITON_MLA") :
			!strcmp(row->backend, "*") ? kvt_backend_find("TRITON_ATTN") :
			kvt_backend_find(row->backend);
		char words[200], *word;

		assert_non_null(backend);
		snprintf(words, sizeof(words),
	  "%s", row->bytes ? row->bytes : row->names);
		for (word = strtok(words, " "); word; word = strtok(NULL, " ")) {
			unsigned wanted = 0;
			struct kvt_layout layout;

			for (int r = (int)row->since; r <= (int)row->until; r++)
				wanted |= 1u << r;
			assert_int_equal(kvt_layout_parse(&layout, word, NULL), 0);
			assert_int_equal(kvt_backend_wrote(backend, &layout, &shape) &
						 wanted, wanted);
		}
	}
	assert_true(n > 60);
	assert_null(kvt_backend_layout_at(-1));
}

/* What is known of device, connector and setting rules rows out. */
static void test_conditions(void)
{
	static const struct {
		const char *backend, *layout;
		struct kvt_backend_config config;
		bool writes;
	} rows[] = {
#define NEWEST .release = KVT_NEWEST_RELEASE
#define LLAMA32 .head_size = 128, .dtype = "bf16", .block_size = 32
		{ "ROCM_AITER_UNIFIED_ATTN", "lhbsc", { NEWEST }, true },
		{ "ROCM_AITER_UNIFIED_ATTN", "lhbsc", { NEWEST, .connector = true },
	  false },
		{ "ROCM_AITER_UNIFIED_ATTN", "hnd", { NEWEST, .connector = true },
	  true },
		{ "FLASHINFER", "nhd", { NEWEST }, true },
		{ "FLASHINFER", "nhd", { NEWEST, .capability = 90 }, true },
		{ "FLASHINFER", "nhd", { NEWEST, .capability = 103 }, false },
		{ "FLASHINFER", "bhlsc", { NEWEST, .capability = 100 }, false },
		{ "FLASHINFER", "lhbsc", { NEWEST, .capability = 100 }, false },
		{ "FLASHINFER", "blhsc", { NEWEST, .capability = 100 }, true },
		{ "TRITON_FLASHINFER", "nhd", { NEWEST, .capability = 100 }, false },
		{ "FLASHINFER", "blocks-first-nhd",
		  { .release = KVT_VLLM_0_24, .capability = 100 }, false },
		{ "FLASHINFER", "nhd", { .release = KVT_VLLM_0_26, .capability = 100 },
		  false },
		{ "ROCM_AITER_FA", "hnd", { NEWEST }, true },
		{ "ROCM_AITER_FA", "hnd", { NEWEST, .shuffle = true }, false },
		{ "ROCM_AITER_FA", "aiter-shuffle", { NEWEST, .shuffle = true }, true },
		{ "ROCM_AITER_FA", "aiter-shuffle", { .release = KVT_VLLM_0_26 },
	  false },
		{ "CPU_ATTN", "cpu-amx", { NEWEST, LLAMA32 }, true },
		{ "CPU_ATTN", "cpu-neon-bf16", { NEWEST, .dtype = "float16" }, false },
		{ "CPU_ATTN", "cpu-neon-bf16-kv-first",
		  { .release = KVT_VLLM_0_22, .dtype = "float32" }, false },
		{ "CPU_ATTN", "cpu-vec-kv-first",
		  { .release = KVT_VLLM_0_22, .dtype = "float32" }, true },
		{ "CPU_ATTN", "cpu-amx", { NEWEST, .head_size = 80 }, false },
		{ "CPU_ATTN", "cpu-amx",
		  { .release = KVT_VLLM_0_26, .block_size = 48 }, false },
		{ "CPU_ATTN", "cpu-vec", { NEWEST, .head_size = 80 }, true },
	};
	const struct kvt_shape shape = { { 3, 5, 32, 4, 2, 64 }, 2 };

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_layout layout;

		assert_int_equal(kvt_layout_parse(&layout, rows[i].layout, NULL), 0);
		assert_int_equal(kvt_backend_writes(kvt_backend_find(rows[i].backend),
						    &rows[i].config, &layout, &shape),
				 rows[i].writes);
	}
}

/* ---- what a connector needs ---------------------------------------------- */

static void test_unmet(void)
{
	static const struct {
		const char *layout;
		int64_t slots, heads, kv;
		bool unequal;
		unsigned unmet, before;		/* newest; 0.24 */
	} rows[] = {
		{ "hnd", 16, 4, 2, true, 0, 0 },
		{ "nhd", 16, 4, 2, false, 0, 0 },
		{ "nhd", 16, 4, 2, true, KVT_NEED_HEADS_FIRST, KVT_NEED_HEADS_FIRST },
		{ "nhd", 16, 1, 2, true, 0, 0 },
		{ "hnd", 24, 4, 2, true, KVT_NEED_BLOCK_SIZE, KVT_NEED_BLOCK_SIZE },
		{ "hnd", 8, 4, 2, false, KVT_NEED_BLOCK_SIZE, KVT_NEED_BLOCK_SIZE },
		{ "kv-first-hnd", 16, 4, 2, false,
		  KVT_NEED_BLOCKS_FIRST | KVT_NEED_K_WITH_V, 0 },
		{ "kv-first-hnd", 16, 4, 2, true,
		  KVT_NEED_BLOCKS_FIRST | KVT_NEED_K_WITH_V, 0 },
		{ "kv-first-nhd", 16, 4, 2, true, KVT_NEED_BLOCKS_FIRST |
		  KVT_NEED_K_WITH_V | KVT_NEED_HEADS_FIRST, KVT_NEED_HEADS_FIRST },
		{ "rocm-paged", 16, 4, 2, false,
		  KVT_NEED_BLOCKS_FIRST | KVT_NEED_K_WITH_V, 0 },
		{ "blocks-first-hnd", 16, 4, 2, false, 0, 0 },
		{ "LHBSC", 16, 4, 2, false, KVT_NEED_BLOCKS_FIRST,
		  KVT_NEED_BLOCKS_FIRST },
		{ "mla", 64, 1, 1, true, 0, 0 },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_shape shape = { { 3, 5, rows[i].slots, rows[i].heads,
					     rows[i].kv, 64 }, 2 };
		struct kvt_layout layout;

		assert_int_equal(kvt_layout_parse(&layout, rows[i].layout, NULL), 0);
		assert_int_equal(kvt_connector_unmet(KVT_NEWEST_RELEASE, &layout, &shape,
						     rows[i].unequal), rows[i].unmet);
		assert_int_equal(kvt_connector_unmet(KVT_VLLM_0_24, &layout, &shape,
						     rows[i].unequal), rows[i].before);
	}
}

/* The engine's own words for a shape that it makes up; by hand from its sources. */
static void test_regions(void)
{
	static const struct {
		const char *backend;
		enum kvt_release release;
		bool mla, states, cross, known, blocks_first, split;
	} rows[] = {
		{ "FLASH_ATTN", KVT_VLLM_0_22, false, false, false, true, false, true },
		{ "FLASH_ATTN", KVT_VLLM_0_22, false, false, true, true, false, false },
		{ "FLASH_ATTN", KVT_VLLM_0_24, false, false, false, true, true, false },
		{ "FLASHINFER", KVT_VLLM_0_22, false, false, false, true, true, false },
		{ "FLASH_ATTN_DIFFKV", KVT_VLLM_0_24, false, false, false, true,
	  false, true },
		{ "FLEX_ATTENTION", KVT_VLLM_0_24, false, false, false, true, true,
	  false },
		{ "CPU_ATTN", KVT_VLLM_0_24, false, false, false, true, false, true },
		{ "ROCM_ATTN", KVT_VLLM_0_24, false, false, false, true, false, true },
		{ "ROCM_ATTN", KVT_VLLM_0_24, false, true, false, true, true, false },
		{ NULL, KVT_VLLM_0_22, true, false, false, true, false, false },
		{ NULL, KVT_VLLM_0_22, false, true, false, true, true, false },
		{ NULL, KVT_VLLM_0_22, false, false, false, false, false, false },
		{ "FLASH_ATTN", KVT_VLLM_0_26, false, false, false, false, false,
	  false },
		{ "HPC_ATTN", KVT_VLLM_0_24, false, false, false, false, false, false },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_kv_regions got = { false, false };

		assert_int_equal(kvt_kv_regions(&got, rows[i].release, rows[i].backend ?
						kvt_backend_find(rows[i].backend) : NULL,
						rows[i].mla, rows[i].states,
						rows[i].cross),
				 rows[i].known);
		assert_int_equal(got.blocks_first, rows[i].blocks_first);
		assert_int_equal(got.split, rows[i].split);
	}
}

TESTS("backend",
	EACH(checks, test_newest), EACH(earlier, test_check), EACH(wrote, test_wrote),
	NAMED(test_names, "names, and the two without a connector"),
	NAMED(test_rows, "every layout can be read"),
	NAMED(test_conditions, "device, connector and setting rule layouts out"),
	NAMED(test_regions, "keys and values apart, as 0.24 and before saw it"),
	NAMED(test_unmet, "what a connector needs of the bytes"))
