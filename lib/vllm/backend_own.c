/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend_own.c - the reasons against a backend in vLLM's words, those of all backends
 * and what one refuses for reasons of its own
 *
 * After the reasons that all backends share vLLM asks each for one more, of what is
 * wrong together.  Here are those that the configuration and the compute capability
 * decide; what is installed, and what a model's own numbers decide, is not asked.
 */
#include "lib/vllm/backend.h"

#include <string.h>

const char *kvt_backend_reason_text(enum kvt_backend_reason reason)
{
	static const char *const text[KVT_NBACKEND_REASONS] = {
		[KVT_BACKEND_NO_CODE] = "not implemented in this release of vLLM",
		[KVT_BACKEND_CUDA_ONLY] = "runs on CUDA only",
		[KVT_BACKEND_ROCM_ONLY] = "runs on ROCm only",
		[KVT_BACKEND_CPU_ONLY] = "runs on CPUs only",
		[KVT_BACKEND_XPU_ONLY] = "runs on XPUs only",
		[KVT_BACKEND_HEAD_SIZE] = "head_size not supported",
		[KVT_BACKEND_DTYPE] = "dtype not supported",
		[KVT_BACKEND_CACHE_DTYPE] = "kv_cache_dtype not supported",
		[KVT_BACKEND_BLOCK_SIZE] = "block_size not supported",
		[KVT_BACKEND_MM_PREFIX] =
			"partial multimodal token full attention not supported",
		[KVT_BACKEND_MLA] = "MLA not supported",
		[KVT_BACKEND_NON_MLA] = "non-MLA not supported",
		[KVT_BACKEND_SINKS] = "attention sinks not supported",
		[KVT_BACKEND_SPARSE] = "sparse not supported",
		[KVT_BACKEND_NON_SPARSE] = "non-sparse not supported",
		[KVT_BACKEND_HEAD_SCALES] = "per-head quant scales not supported",
		[KVT_BACKEND_CAPABILITY] = "compute capability not supported",
		[KVT_BACKEND_ENCODER] = "attention type encoder not supported",
		[KVT_BACKEND_ENCODER_ONLY] = "attention type encoder_only not supported",
		[KVT_BACKEND_ENCODER_DECODER] =
			"attention type encoder_decoder not supported",
		[KVT_BACKEND_SLIDING_WINDOW] = "sliding window not supported",
		[KVT_BACKEND_RSWA] = "R-SWA not supported",
		[KVT_BACKEND_NON_CAUSAL] = "non-causal attention not supported",
		[KVT_BACKEND_NON_CAUSAL_DCP] =
			"non-causal MLA attention with DCP not supported",
		[KVT_BACKEND_INVARIANT] = "batch invariance not supported",
		[KVT_BACKEND_CONNECTOR] = "KV connector not supported",
		[KVT_BACKEND_PCP] = "PCP not supported",
		[KVT_BACKEND_DCP] = "DCP not supported",
		[KVT_BACKEND_LENGTHS] =
			("device-cpu query lens mismatch not supported, this is needed "
			 "for adaptive verification"),
		[KVT_BACKEND_OWN] = "not in this combination",
	};

	return text[reason];
}

static bool is_one_of(const char *word, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(word, *list))
			return true;
	return false;
}

static int major_of(const struct kvt_backend_config *c)
{
	return c->capability / 10;
}

bool kvt_backend_quantised(const char *cache_dtype)
{
	static const char *const plain[] = { "auto", "float16", "bfloat16", NULL };

	return cache_dtype && !is_one_of(cache_dtype, plain);
}

static const char *of_old_flash_attn(const struct kvt_backend_config *c)
{
	return c->sinks && c->capability && c->capability < 90 ?
	       "sink not supported on compute capability < 9.0" : NULL;
}

static const char *of_flash_attn(const struct kvt_backend_config *c)
{
	if (of_old_flash_attn(c))
		return of_old_flash_attn(c);
	if (c->mm_prefix && kvt_backend_quantised(c->cache_dtype) && c->capability == 90)
		return "SM90 FP8 KV with mm_prefix requires Triton";
	return NULL;
}

static const char *of_flashinfer(const struct kvt_backend_config *c)
{
	int major = major_of(c);

	if (!c->cache_dtype || strncmp(c->cache_dtype, "nvfp4", 5) ||
	    (major != 8 && major != 9 && major != 12))
		return NULL;
	if (c->head_size == 64)
		return "fa2 prefill misreads an NVFP4 KV cache at head_size 64";
	return c->sinks ? "the sink prefill wrapper cannot read an NVFP4 KV cache" : NULL;
}

static const char *of_flashmla_sparse(const struct kvt_backend_config *c)
{
	static const char *const without_rope[] = {
		"auto", "bfloat16", "float16", "fp8_ds_mla", NULL
	};
	bool fits = !c->cache_dtype || is_one_of(c->cache_dtype, without_rope);

	if (c->head_size == 512 && (!fits || (c->capability && major_of(c) != 9)))
		return "FLASHMLA_SPARSE supports head_size 512 only with bf16 or "
		       "fp8_ds_mla kv-cache on SM90 (NoPE)";
	if (c->cache_dtype && !strcmp(c->cache_dtype, "nvfp4_ds_mla") && c->capability &&
	    major_of(c) != 10)
		return "FLASHMLA_SPARSE only supports the nvfp4_ds_mla kv-cache dtype on "
		       "SM100 (Blackwell)";
	return NULL;
}

static const char *of_flashinfer_v4(const struct kvt_backend_config *c)
{
	static const char *const sm10[] = {
		"auto", "bfloat16", "fp8", "fp8_e4m3", NULL
	};
	static const char *const sm12[] = { "fp8", "fp8_e4m3", "fp8_ds_mla", NULL };

	if (!c->capability)
		return NULL;
	if (major_of(c) != 10 && major_of(c) != 12)
		return "FLASHINFER_MLA_SPARSE_DSV4 requires SM10x or SM12x";
	if (!c->cache_dtype)
		return NULL;
	if (major_of(c) == 10 && !strcmp(c->cache_dtype, "fp8_ds_mla"))
		return "FLASHINFER_MLA_SPARSE_DSV4 SM10x uses the plain per-tensor FP8 "
		       "KV layout, not fp8_ds_mla";
	return is_one_of(c->cache_dtype, major_of(c) == 10 ? sm10 : sm12) ? NULL :
	       kvt_backend_reason_text(KVT_BACKEND_CACHE_DTYPE);
}

static const char *of_flash_attn_mla_sparse(const struct kvt_backend_config *c)
{
	if (kvt_backend_quantised(c->cache_dtype))
		return "FlashAttention MLA Sparse currently supports only FP16/BF16 KV "
		       "cache";
	return c->dcp ? "FlashAttention MLA Sparse does not support DCP for now" : NULL;
}

static const char *of_flashinfer_sparse(const struct kvt_backend_config *c)
{
	return c->pcp && c->dcp ?
	       "FLASHINFER_MLA_SPARSE does not support combined PCP+DCP" : NULL;
}

/* Where sparse kernels are not meant, those for latents as they are. */
static const char *of_flashmla(const struct kvt_backend_config *c)
{
	return !c->sparse && c->capability && major_of(c) != 9 ?
	       "FlashMLA Dense is only supported on Hopper devices." : NULL;
}

/* Its kernels run anything but this. */
static const char *of_aiter_mla(const struct kvt_backend_config *c)
{
	static const char *const as_the_model[] = { "auto", "float16", NULL };
	const struct kvt_dtype *dtype = c->dtype ? kvt_dtype_find(c->dtype) : NULL;

	return c->non_causal && dtype && !strcmp(dtype->name, "float16") &&
	       (!c->cache_dtype || is_one_of(c->cache_dtype, as_the_model)) ?
	       "non-causal fp16 MLA decode not supported" : NULL;
}

static const char *of_b12x(const struct kvt_backend_config *c)
{
	static const char *const fp8[] = { "fp8", "fp8_e4m3", NULL };
	const struct kvt_dtype *dtype = c->dtype ? kvt_dtype_find(c->dtype) : NULL;

	if (c->dtype && (!dtype || strcmp(dtype->name, "bfloat16")))
		return "b12x currently requires bfloat16 queries";
	if (c->cache_dtype && !strcmp(c->cache_dtype, "float16"))
		return "b12x does not support float16 KV cache";
	return kvt_backend_quantised(c->cache_dtype) && !is_one_of(c->cache_dtype, fp8) ?
	       "b12x currently supports only fp8/fp8_e4m3 quantized KV cache dtypes" :
	       NULL;
}

#define IN(first, last) KVT_VLLM_0_##first, KVT_VLLM_0_##last

static const struct {
	const char *backend;
	enum kvt_release since, until;
	const char *(*reason)(const struct kvt_backend_config *c);
} rows[] = {
	{ "FLASH_ATTN", IN(22, 26), of_old_flash_attn },
	{ "FLASH_ATTN", IN(32, 32), of_flash_attn },
	{ "FLASH_ATTN_DIFFKV", IN(22, 26), of_old_flash_attn },
	{ "FLASH_ATTN_DIFFKV", IN(32, 32), of_flash_attn },
	{ "FLASHINFER", IN(32, 32), of_flashinfer },
	{ "FLASHMLA", IN(22, 32), of_flashmla },
	{ "FLASHMLA_SPARSE", IN(32, 32), of_flashmla_sparse },
	{ "FLASHINFER_MLA_SPARSE", IN(32, 32), of_flashinfer_sparse },
	{ "FLASHINFER_MLA_SPARSE_DSV4", IN(24, 32), of_flashinfer_v4 },
	{ "FLASHINFER_MLA_SPARSE_DSV41", IN(32, 32), of_flashinfer_v4 },
	{ "FLASH_ATTN_MLA_SPARSE", IN(26, 32), of_flash_attn_mla_sparse },
	{ "ROCM_AITER_MLA", IN(32, 32), of_aiter_mla },
	{ "ROCM_AITER_TRITON_MLA", IN(32, 32), of_aiter_mla },
	{ "B12X", IN(32, 32), of_b12x },
};

const char *kvt_backend_own_reason(const struct kvt_backend *backend,
				   const struct kvt_backend_config *config)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].backend, backend->name) &&
		    rows[i].since <= config->release && rows[i].until >= config->release)
			return rows[i].reason(config);
	return NULL;
}
