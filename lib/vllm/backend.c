/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c - what vLLM's attention backends support, and what they refuse */
#include "lib/vllm/backend.h"

#include <string.h>

/* ---- bits of a row ------------------------------------------------------ */

enum { F16 = 1 << 0, BF16 = 1 << 1, F32 = 1 << 2 };
static const char *const dtypes[] = { "float16", "bfloat16", "float32" };

enum {
	AUTO = 1 << 0, C_F16 = 1 << 1, C_BF16 = 1 << 2, FP8 = 1 << 3, E4M3 = 1 << 4,
	E5M2 = 1 << 5, DS_MLA = 1 << 6, NVFP4 = 1 << 7, PER_HEAD = 1 << 8,
	TURBO = 1 << 9, ULTRA = 1 << 10, NVFP4_DS_MLA = 1 << 11,
};
static const struct {
	const char *name;
	unsigned bit;
} cache_dtypes[] = {
	{ "auto", AUTO }, { "float16", C_F16 }, { "bfloat16", C_BF16 },
	{ "fp8", FP8 }, { "fp8_e4m3", E4M3 }, { "fp8_e5m2", E5M2 },
	{ "fp8_ds_mla", DS_MLA }, { "nvfp4_ds_mla", NVFP4_DS_MLA },
	{ "nvfp4", NVFP4 }, { "nvfp4_4over6", NVFP4 },
	{ "int4_per_token_head", PER_HEAD }, { "int8_per_token_head", PER_HEAD },
	{ "fp8_per_token_head", PER_HEAD }, { "turboquant_k8v4", TURBO },
	{ "turboquant_4bit_nc", TURBO }, { "turboquant_k3v4_nc", TURBO },
	{ "turboquant_3bit_nc", TURBO }, { "ultraquant_4bit", ULTRA },
	{ "fp8_inc", 0 },
};
enum { NCACHE_DTYPES = sizeof(cache_dtypes) / sizeof(cache_dtypes[0]) };

/* What queries attend to; without a bit only decoders are supported. */
enum { ENCODER = 1 << 0, ENCODER_ONLY = 1 << 1, CROSS = 1 << 2 };
static const char *const types[] = { "encoder", "encoder_only", "encoder_decoder" };

enum {
	MLA = KVT_BACKEND_CAN_MLA, SPARSE = 1 << 1, SINKS = 1 << 2, PREFIX = 1 << 3,
	SCALES = 1 << 4, WINDOW = 1 << 5, RSWA = 1 << 6, NON_CAUSAL = 1 << 7,
	NON_CAUSAL_DCP = 1 << 8, INVARIANT = 1 << 9, CONNECTOR = 1 << 10,
	PCP = 1 << 11, DCP = 1 << 12, LENGTHS = 1 << 13,
	NOTHING = 1 << 14,		/* a name without code */
};

#define HALF (F16 | BF16)
#define PLAIN (AUTO | C_F16 | C_BF16)
#define FP8S (FP8 | E4M3)
#define ANY_TYPE (ENCODER | ENCODER_ONLY | CROSS)
#define USUAL (CONNECTOR | LENGTHS)
#define LATENT { 320, 512, 576 }
#define SM(major) (1u << (major))
#define AMPERE_ON (SM(8) | SM(9) | SM(10) | SM(11) | SM(12))
#define V4 { 512 }

/*
 * In the order of the engine's list.  What a device or an installed library decides
 * counts as supported: of FLASH_ATTN and its like sinks, a prefix, scales of heads,
 * fp8 and heads above 256; of FLASHINFER sinks, nvfp4, blocks above 64 and LENGTHS.
 */
static const struct kvt_backend backends[] = {
	{ .name = "FLASH_ATTN",
	  .can = SINKS | PREFIX | SCALES | WINDOW | RSWA | NON_CAUSAL | INVARIANT
		  | DCP | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .types = ANY_TYPE, .least = 8, .step = 8, .most = 512, .block = { 16 },
	  .majors = AMPERE_ON },
	{ .name = "FLASH_ATTN_DIFFKV",
	  .can = SINKS | PREFIX | SCALES | WINDOW | RSWA | NON_CAUSAL | INVARIANT
		  | DCP | USUAL, .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .types = ANY_TYPE, .least = 8, .step = 8, .most = 512, .block = { 16 },
	  .majors = AMPERE_ON },
	{ .name = "TRITON_ATTN",
	  .can = SINKS | PREFIX | WINDOW | RSWA | NON_CAUSAL | INVARIANT | USUAL,
	  .dtypes = HALF | F32, .cache_dtypes = PLAIN | FP8S | E5M2 | PER_HEAD,
	  .types = ANY_TYPE, .least = 32, .step = 1, .block = { 16 } },
	{ .name = "TRITON_ATTN_DIFFKV",
	  .can = SINKS | PREFIX | WINDOW | RSWA | NON_CAUSAL | INVARIANT | USUAL,
	  .dtypes = HALF | F32, .cache_dtypes = AUTO | C_BF16 | FP8S, .least = 32,
	  .step = 1, .block = { 16 } },
	{ .name = "TRITON_FLASH_ATTN",
	  .can = PREFIX | SCALES | WINDOW | RSWA | CONNECTOR, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S, .size = { 256, 512 }, .block = { 16 },
	  .majors = SM(9),
	  .layouts = "LBNHC LBHNC BLNHC BLHNC BHLNC LHBNC" },
	{ .name = "ROCM_ATTN", .can = WINDOW | NON_CAUSAL | LENGTHS,
	  .dtypes = HALF | F32, .cache_dtypes = PLAIN | FP8S | E5M2,
	  .types = ENCODER | ENCODER_ONLY,
	  .size = { 32, 64, 80, 96, 128, 160, 192, 224, 256 }, .block = { 16 },
	  .layouts = "LHBNC LBHNC" },
	{ .name = "ROCM_SEGMENTED_ATTN", .can = SINKS | WINDOW | NON_CAUSAL | LENGTHS,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S, .size = { 64, 128, 256 },
	  .block = { 16 },
	  .layouts = "LHBNC LBHNC" },
	{ .name = "ROCM_AITER_MLA", .can = MLA | NON_CAUSAL_DCP | PCP | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2, .block = { 1 } },
	{ .name = "ROCM_AITER_TRITON_MLA",
	  .can = MLA | NON_CAUSAL_DCP | PCP | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S | E5M2, .block = { 1 } },
	{ .name = "ROCM_AITER_FA", .can = SINKS | WINDOW | NON_CAUSAL | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2, .size = { 64, 128, 256 },
	  .block = { 16, 32 },
	  .layouts = "LBHNC LHBNC" },
	{ .name = "ROCM_AITER_MLA_SPARSE", .can = MLA | SPARSE | PCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S, .block = { 1, 16 },
	  .layouts = "LBNHC LBHNC BLHNC" },
	{ .name = "XPU_MLA_SPARSE", .can = MLA | SPARSE | PCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN, .size = { 576 }, .block = { 1 } },
	{ .name = "TORCH_SDPA", .can = NOTHING },
	{ .name = "FLASHINFER", .can = SINKS | WINDOW | NON_CAUSAL | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2 | NVFP4,
	  .size = { 64, 128, 256, 512 }, .block = { 16, 32, 64 }, .majors = AMPERE_ON },
	{ .name = "TRITON_FLASHINFER", .can = PREFIX | WINDOW | CONNECTOR,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2, .size = { 256, 512 },
	  .block = { 64 }, .majors = SM(10),
	  .layouts = "LBNHC LBHNC BLNHC BLHNC BHLNC LHBNC" },
	{ .name = "FLASHINFER_MLA",
	  .can = MLA | NON_CAUSAL | NON_CAUSAL_DCP | PCP | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S, .size = LATENT, .block = { 32, 64 },
	  .majors = SM(10) },
	{ .name = "TOKENSPEED_MLA",
	  .can = MLA | NON_CAUSAL | NON_CAUSAL_DCP | PCP | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = FP8S, .size = LATENT, .block = { 32, 64 }, .majors = SM(10) },
	{ .name = "FLASHINFER_MLA_SPARSE", .can = MLA | SPARSE | PCP | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S, .size = { 512, 576 },
	  .block = { 32 }, .majors = SM(10) },
	{ .name = "FLASHINFER_MLA_SPARSE_SM120", .can = MLA | SPARSE | PCP | USUAL,
	  .dtypes = BF16, .cache_dtypes = AUTO | FP8S | DS_MLA, .size = { 512, 576 },
	  .block = { 64 }, .majors = SM(12) },
	{ .name = "FLASHINFER_MLA_SPARSE_SM90", .can = MLA | SPARSE | PCP | USUAL,
	  .dtypes = BF16, .cache_dtypes = AUTO | C_BF16 | FP8S, .size = { 512, 576 },
	  .block = { 64 }, .majors = SM(9) },
	{ .name = "TRITON_MLA", .can = MLA | NON_CAUSAL | INVARIANT | PCP | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S, .block = { 16 } },
	{ .name = "CUTLASS_MLA", .can = MLA | PCP | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S, .size = LATENT, .block = { 128 },
	  .majors = SM(10) },
	{ .name = "FLASHMLA", .can = MLA | PCP | DCP | USUAL, .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S, .size = LATENT, .block = { 64 },
	  .majors = SM(9) | SM(10) },
	{ .name = "FLASHMLA_SPARSE", .can = MLA | SPARSE | PCP | DCP | USUAL,
	  .dtypes = BF16, .cache_dtypes = AUTO | C_BF16 | DS_MLA | FP8 | NVFP4_DS_MLA,
	  .size = { 512, 576 }, .block = { 64 }, .majors = SM(9) | SM(10) },
	{ .name = "FLASHMLA_SPARSE_DSV4", .can = MLA | SPARSE | SINKS | USUAL,
	  .dtypes = BF16, .cache_dtypes = AUTO | DS_MLA | FP8, .size = V4,
	  .block = { 256 }, .majors = SM(9) | SM(10) },
	{ .name = "FLASHINFER_MLA_SPARSE_DSV4", .can = MLA | SPARSE | SINKS | USUAL,
	  .dtypes = BF16, .cache_dtypes = AUTO | C_BF16 | FP8S | DS_MLA, .size = V4,
	  .block = { 256 }, .majors = SM(10) | SM(12) },
	{ .name = "ROCM_FLASHMLA_SPARSE_DSV4", .can = MLA | SPARSE | SINKS | USUAL,
	  .dtypes = BF16, .cache_dtypes = AUTO | DS_MLA | FP8, .size = V4,
	  .block = { 256 }, .majors = SM(9) | SM(10) },
	{ .name = "FLASHMLA_SPARSE_DSV41", .can = MLA | SPARSE | SINKS | USUAL,
	  .dtypes = BF16, .cache_dtypes = AUTO | DS_MLA | FP8, .size = V4,
	  .block = { 128 }, .majors = SM(9) | SM(10) },
	{ .name = "FLASHINFER_MLA_SPARSE_DSV41", .can = MLA | SPARSE | SINKS | USUAL,
	  .dtypes = BF16, .cache_dtypes = AUTO | C_BF16 | FP8S | DS_MLA, .size = V4,
	  .block = { 128 }, .majors = SM(10) | SM(12) },
	{ .name = "FLASHMLA_MEGA_ATTN_DSV41", .can = MLA | SPARSE | SINKS | USUAL,
	  .dtypes = BF16, .cache_dtypes = AUTO | DS_MLA | FP8 | NVFP4_DS_MLA,
	  .size = V4, .block = { 128 }, .majors = SM(10) },
	{ .name = "B12X", .can = SINKS | WINDOW | USUAL, .dtypes = BF16,
	  .cache_dtypes = AUTO | C_BF16 | FP8S, .size = { 64, 128, 192, 256 },
	  .block = { 64, 128 }, .exact_block = true, .majors = SM(12),
	  .layouts = "LBHNC BLHNC" },
	{ .name = "FLASH_ATTN_MLA", .can = MLA | INVARIANT | PCP | DCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN, .size = LATENT, .block = { 16 },
	  .majors = SM(9) },
	{ .name = "FLASH_ATTN_MLA_SPARSE", .can = MLA | SPARSE | PCP | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN, .block = { 64 }, .majors = SM(9) },
	{ .name = "MINIMAX_M3_SPARSE", .can = SPARSE | USUAL, .dtypes = HALF,
	  .cache_dtypes = C_BF16 | FP8S | E5M2, .size = { 128 }, .block = { 128 } },
	{ .name = "CUTLASS_MSA", .can = SPARSE | USUAL, .dtypes = HALF,
	  .cache_dtypes = C_BF16 | FP8S | E5M2, .size = { 128 }, .block = { 128 } },
	{ .name = "TRITON_MSA", .can = SPARSE | USUAL, .dtypes = HALF,
	  .cache_dtypes = C_BF16 | FP8S | E5M2, .size = { 128 }, .block = { 128 } },
	{ .name = "NO_ATTENTION", .can = NOTHING },
	{ .name = "FLEX_ATTENTION",
	  .can = PREFIX | WINDOW | RSWA | NON_CAUSAL | INVARIANT | USUAL,
	  .dtypes = HALF | F32, .cache_dtypes = PLAIN, .types = ENCODER_ONLY,
	  .block = { 16 },
	  .layouts = "LBNHC" },
	{ .name = "HPC_ATTN", .can = USUAL, .dtypes = HALF,
	  .cache_dtypes = AUTO | C_BF16 | E4M3, .size = { 128 }, .block = { 64 },
	  .majors = SM(9),
	  .layouts = "LBNHC" },
	{ .name = "ROCM_AITER_UNIFIED_ATTN", .can = SINKS | WINDOW | USUAL,
	  .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2, .types = ANY_TYPE,
	  .least = 32, .step = 1, .block = { 16 },
	  .layouts = "LBHNC LHBNC" },
	{ .name = "CPU_ATTN", .can = WINDOW | NON_CAUSAL | USUAL, .dtypes = HALF | F32,
	  .cache_dtypes = AUTO | FP8S | E5M2, .types = ANY_TYPE,
	  .size = { 32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512 },
	  .block = { 32 }, .older_block = 16,
	  .layouts = "LBHNC" },
	{ .name = "CPU_MLA", .can = MLA | PCP | USUAL, .dtypes = HALF | F32,
	  .cache_dtypes = AUTO, .size = { 576 }, .block = { 16 },
	  .exact_block = true },
	{ .name = "AMX_MLA", .can = MLA | PCP | USUAL, .dtypes = BF16,
	  .cache_dtypes = PLAIN, .size = { 576 }, .block = { 32 } },
	{ .name = "TURBOQUANT", .can = USUAL, .dtypes = HALF, .cache_dtypes = TURBO,
	  .block = { 16, 32, 64, 128 },
	  .layouts = "LBNHC" },
	{ .name = "ULTRAQUANT", .can = USUAL, .dtypes = BF16, .cache_dtypes = ULTRA,
	  .block = { 16, 32, 64, 128 },
	  .layouts = "LBNHC" },
	{ .name = "CUSTOM", .can = NOTHING },
};
enum { NBACKENDS = sizeof(backends) / sizeof(backends[0]) };

const struct kvt_backend *kvt_backend_at(int i)
{
	return i >= 0 && i < NBACKENDS ? &backends[i] : NULL;
}

const struct kvt_backend *kvt_backend_find(const char *name)
{
	for (int i = 0; i < NBACKENDS; i++)
		if (!strcmp(backends[i].name, name))
			return &backends[i];
	return NULL;
}

const char *kvt_backend_name(const struct kvt_backend *backend)
{
	return backend->name;
}

bool kvt_backend_has_connector(const struct kvt_backend *backend)
{
	return backend->can & CONNECTOR;
}

/* ---- kinds of layers ----------------------------------------------------- */

enum { KIND_FULL, KIND_WINDOW, KIND_MLA, KIND_MLA_WINDOW, KIND_ENCODER_ONLY, KIND_CROSS,
       NKINDS };
static const char *const kinds[NKINDS] = {
	"full_attention", "sliding_window", "mla_attention", "sliding_window_mla",
	"encoder_only_attention", "cross_attention",
};

const char *kvt_backend_kind_at(int i)
{
	return i < NKINDS ? kinds[i] : NULL;
}

const char *kvt_backend_kind(const struct kvt_backend_config *config)
{
	if (config->type && !strcmp(config->type, "encoder_only"))
		return kinds[KIND_ENCODER_ONLY];
	if (config->type && !strcmp(config->type, "encoder_decoder"))
		return kinds[KIND_CROSS];
	return kinds[config->mla ? (int)KIND_MLA + config->sliding_window :
				   (int)KIND_FULL + config->sliding_window];
}

/* ---- configurations ----------------------------------------------------- */

static bool has_head_size(const struct kvt_backend *b, int64_t size)
{
	if (b->step)
		return size >= b->least && size % b->step == 0 &&
		       (!b->most || size <= b->most);
	for (int i = 0; i < KVT_BACKEND_MAX_SIZES && b->size[i]; i++)
		if (b->size[i] == size)
			return true;
	return !b->size[0];	/* no list: any */
}

static bool has_dtype(const struct kvt_backend *b, const char *name)
{
	const struct kvt_dtype *dtype = kvt_dtype_find(name);

	for (unsigned i = 0; dtype && i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (!strcmp(dtypes[i], dtype->name))
			return b->dtypes >> i & 1;
	return false;
}

const char *kvt_backend_cache_dtype(int i)
{
	return i < NCACHE_DTYPES ? cache_dtypes[i].name : NULL;
}

static bool has_cache_dtype(const struct kvt_backend *b, const char *name)
{
	for (int i = 0; i < NCACHE_DTYPES; i++)
		if (!strcmp(cache_dtypes[i].name, name))
			return b->cache_dtypes & cache_dtypes[i].bit;
	return false;
}

static bool has_block_size(const struct kvt_backend *b,
			   const struct kvt_backend_config *c)
{
	if (c->any_release && b->older_block && c->block_size % b->older_block == 0)
		return true;
	for (int i = 0; i < KVT_BACKEND_MAX_BLOCKS && b->block[i]; i++)
		if (b->exact_block ? c->block_size == b->block[i] :
				     c->block_size % b->block[i] == 0)
			return true;
	return false;
}

static bool has_capability(const struct kvt_backend *b, int capability)
{
	int major = capability / 10;

	return !capability || !b->majors || (major < 32 && b->majors >> major & 1);
}

/* Of its types the engine asks for one. */
static bool lacks_type(const struct kvt_backend *b, const struct kvt_backend_config *c,
		       unsigned type)
{
	for (unsigned i = 0; c->type && i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(types[i], c->type))
			return type == 1u << i && !(b->types & type);
	return false;
}

unsigned kvt_backend_check(const struct kvt_backend *b,
			   const struct kvt_backend_config *c)
{
	const bool refused[KVT_NBACKEND_REASONS] = {
		[KVT_BACKEND_HEAD_SIZE] = c->head_size && !has_head_size(b, c->head_size),
		[KVT_BACKEND_DTYPE] = c->dtype && !has_dtype(b, c->dtype),
		[KVT_BACKEND_CACHE_DTYPE] = c->cache_dtype &&
					    !has_cache_dtype(b, c->cache_dtype),
		[KVT_BACKEND_BLOCK_SIZE] = c->block_size && !has_block_size(b, c),
		[KVT_BACKEND_MM_PREFIX] = c->mm_prefix && !(b->can & PREFIX),
		[KVT_BACKEND_MLA] = c->mla && !(b->can & MLA),
		[KVT_BACKEND_NON_MLA] = !c->mla && b->can & MLA,
		[KVT_BACKEND_SINKS] = c->sinks && !(b->can & SINKS),
		[KVT_BACKEND_SPARSE] = c->sparse && !(b->can & SPARSE),
		[KVT_BACKEND_NON_SPARSE] = !c->sparse && b->can & SPARSE,
		[KVT_BACKEND_HEAD_SCALES] = c->head_scales && !(b->can & SCALES),
		[KVT_BACKEND_CAPABILITY] = !has_capability(b, c->capability),
		[KVT_BACKEND_ENCODER] = lacks_type(b, c, ENCODER),
		[KVT_BACKEND_ENCODER_ONLY] = lacks_type(b, c, ENCODER_ONLY),
		[KVT_BACKEND_ENCODER_DECODER] = lacks_type(b, c, CROSS),
		[KVT_BACKEND_SLIDING_WINDOW] = c->sliding_window && !(b->can & WINDOW),
		[KVT_BACKEND_RSWA] = c->rswa && !(b->can & RSWA),
		[KVT_BACKEND_NON_CAUSAL] = c->non_causal && !(b->can & NON_CAUSAL),
		[KVT_BACKEND_NON_CAUSAL_DCP] = c->mla && c->non_causal && c->dcp &&
					       !(b->can & NON_CAUSAL_DCP),
		[KVT_BACKEND_INVARIANT] = c->batch_invariant && !(b->can & INVARIANT),
		[KVT_BACKEND_CONNECTOR] = c->connector && !(b->can & CONNECTOR),
		[KVT_BACKEND_PCP] = c->pcp && !(b->can & PCP),
		[KVT_BACKEND_DCP] = c->dcp && !(b->can & DCP),
		[KVT_BACKEND_LENGTHS] = c->adaptive_verification && !(b->can & LENGTHS),
		[KVT_BACKEND_OWN] = kvt_backend_own_reason(b, c) != NULL,
	};
	unsigned reasons = 0;

	if (b->can & NOTHING)
		return 1u << KVT_BACKEND_NO_CODE;
	for (int i = 0; i < KVT_NBACKEND_REASONS; i++)
		reasons |= (unsigned)refused[i] << i;
	return reasons;
}
