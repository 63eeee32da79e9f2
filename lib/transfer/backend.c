/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c - which of vLLM's backends could use a cache, and which wrote it */
#include "lib/kvt/connect.h"

#include <string.h>

/* ---- what backends support ---------------------------------------------- */

enum { F16 = 1 << 0, BF16 = 1 << 1, F32 = 1 << 2 };
static const char *const dtypes[] = { "float16", "bfloat16", "float32" };

enum {
	AUTO = 1 << 0, C_F16 = 1 << 1, C_BF16 = 1 << 2, FP8 = 1 << 3, E4M3 = 1 << 4,
	E5M2 = 1 << 5, DS_MLA = 1 << 6, NVFP4 = 1 << 7, PER_HEAD = 1 << 8,
	TURBO = 1 << 9,
};
static const struct {
	const char *name;
	unsigned bit;
} cache_dtypes[] = {
	{ "auto", AUTO }, { "float16", C_F16 }, { "bfloat16", C_BF16 },
	{ "fp8", FP8 }, { "fp8_e4m3", E4M3 }, { "fp8_e5m2", E5M2 },
	{ "fp8_ds_mla", DS_MLA }, { "nvfp4", NVFP4 }, { "nvfp4_4over6", NVFP4 },
	{ "int4_per_token_head", PER_HEAD }, { "int8_per_token_head", PER_HEAD },
	{ "fp8_per_token_head", PER_HEAD }, { "turboquant_k8v4", TURBO },
	{ "turboquant_4bit_nc", TURBO }, { "turboquant_k3v4_nc", TURBO },
	{ "turboquant_3bit_nc", TURBO },
};

#define HALF (F16 | BF16)
#define PLAIN (AUTO | C_F16 | C_BF16)
#define FP8S (FP8 | E4M3)

enum { MAX_SIZES = 12 };

/*
 * Sinks in FLASH_ATTN and FLASHINFER, and heads above 256 in FLASH_ATTN, are the
 * device's to say: not refused.
 */
struct kvt_backend {
	const char *name;
	unsigned dtypes, cache_dtypes;
	int block;			/* multiples of it; 0: exactly 16 */
	/* head sizes: a list, or from 'least' to 'most' by 'step' */
	int least, step, most;
	int size[MAX_SIZES];
	bool mla, sparse, sinks, window, no_connector;
};

static const struct kvt_backend backends[] = {
	{ .name = "FLASH_ATTN", .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .block = 16, .least = 8, .step = 8, .most = 512, .sinks = true,
	  .window = true },
	{ .name = "FLASH_ATTN_DIFFKV", .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .block = 16, .least = 8, .step = 8, .most = 512, .sinks = true,
	  .window = true },
	{ .name = "FLASHINFER", .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S | E5M2 | NVFP4, .block = 16,
	  .size = { 64, 128, 256, 512 }, .sinks = true, .window = true },
	{ .name = "TRITON_ATTN", .dtypes = HALF | F32,
	  .cache_dtypes = PLAIN | FP8S | E5M2 | PER_HEAD, .block = 16,
	  .least = 32, .step = 1, .sinks = true, .window = true },
	{ .name = "TRITON_ATTN_DIFFKV", .dtypes = HALF | F32,
	  .cache_dtypes = AUTO | C_BF16, .block = 16, .least = 32, .step = 1,
	  .sinks = true, .window = true },
	{ .name = "FLEX_ATTENTION", .dtypes = HALF | F32, .cache_dtypes = PLAIN,
	  .block = 16, .window = true },
	{ .name = "CPU_ATTN", .dtypes = HALF | F32, .cache_dtypes = AUTO | FP8S | E5M2,
	  .block = 16,
	  .size = { 32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512 },
	  .window = true },
	{ .name = "ROCM_ATTN", .dtypes = HALF | F32,
	  .cache_dtypes = PLAIN | FP8S | E5M2, .block = 16,
	  .size = { 32, 64, 80, 96, 128, 160, 192, 224, 256 }, .window = true,
	  .no_connector = true },
	{ .name = "ROCM_AITER_FA", .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2,
	  .block = 16, .size = { 64, 128, 256 }, .sinks = true, .window = true },
	/* inherits its answer from ROCM_ATTN, although its blocks are first */
	{ .name = "ROCM_AITER_UNIFIED_ATTN", .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S | E5M2, .block = 16, .least = 32, .step = 1,
	  .sinks = true, .window = true, .no_connector = true },
	{ .name = "HPC_ATTN", .dtypes = HALF, .cache_dtypes = AUTO | C_BF16 | E4M3,
	  .block = 64, .size = { 128 } },
	{ .name = "TURBOQUANT", .dtypes = HALF, .cache_dtypes = TURBO, .block = 16 },

	{ .name = "CUTLASS_MLA", .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .block = 128, .size = { 320, 576 }, .mla = true },
	{ .name = "FLASH_ATTN_MLA", .dtypes = HALF, .cache_dtypes = PLAIN, .block = 16,
	  .size = { 320, 576 }, .mla = true },
	{ .name = "FLASHINFER_MLA", .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .block = 32, .size = { 320, 576 }, .mla = true },
	{ .name = "FLASHMLA", .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .block = 64, .size = { 320, 576 }, .mla = true },
	{ .name = "TOKENSPEED_MLA", .dtypes = HALF, .cache_dtypes = FP8S, .block = 32,
	  .size = { 320, 576 }, .mla = true },
	{ .name = "TRITON_MLA", .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .block = 16, .mla = true },
	{ .name = "CPU_MLA", .dtypes = HALF | F32, .cache_dtypes = AUTO, .block = 0,
	  .size = { 576 }, .mla = true },
	{ .name = "ROCM_AITER_MLA", .dtypes = HALF, .cache_dtypes = PLAIN | FP8S | E5M2,
	  .block = 1, .mla = true },
	{ .name = "ROCM_AITER_TRITON_MLA", .dtypes = HALF,
	  .cache_dtypes = PLAIN | FP8S | E5M2, .block = 1, .mla = true },
	{ .name = "ROCM_AITER_MLA_SPARSE", .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .block = 1, .mla = true, .sparse = true },
	{ .name = "FLASHMLA_SPARSE", .dtypes = BF16,
	  .cache_dtypes = AUTO | C_BF16 | DS_MLA | FP8, .block = 64, .size = { 576 },
	  .mla = true, .sparse = true },
	{ .name = "FLASH_ATTN_MLA_SPARSE", .dtypes = HALF, .cache_dtypes = PLAIN,
	  .block = 64, .mla = true, .sparse = true },
	{ .name = "FLASHINFER_MLA_SPARSE", .dtypes = HALF, .cache_dtypes = PLAIN | FP8S,
	  .block = 32, .size = { 576 }, .mla = true, .sparse = true },
	{ .name = "FLASHINFER_MLA_SPARSE_SM120", .dtypes = BF16,
	  .cache_dtypes = AUTO | FP8S | DS_MLA, .block = 64, .size = { 576 },
	  .mla = true, .sparse = true },
	{ .name = "XPU_MLA_SPARSE", .dtypes = HALF, .cache_dtypes = PLAIN, .block = 1,
	  .size = { 576 }, .mla = true, .sparse = true },
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
	return !backend->no_connector;
}

/* ---- configurations ----------------------------------------------------- */

const char *kvt_backend_reason_text(enum kvt_backend_reason reason)
{
	static const char *const text[KVT_NBACKEND_REASONS] = {
		[KVT_BACKEND_HEAD_SIZE] = "head_size not supported",
		[KVT_BACKEND_DTYPE] = "dtype not supported",
		[KVT_BACKEND_CACHE_DTYPE] = "kv_cache_dtype not supported",
		[KVT_BACKEND_BLOCK_SIZE] = "block_size not supported",
		[KVT_BACKEND_MLA] = "MLA not supported",
		[KVT_BACKEND_NON_MLA] = "non-MLA not supported",
		[KVT_BACKEND_SINKS] = "attention sinks not supported",
		[KVT_BACKEND_SPARSE] = "sparse not supported",
		[KVT_BACKEND_NON_SPARSE] = "non-sparse not supported",
		[KVT_BACKEND_SLIDING_WINDOW] = "sliding window not supported",
		[KVT_BACKEND_CONNECTOR] = "KV connector not supported",
	};

	return text[reason];
}

static bool has_head_size(const struct kvt_backend *b, int64_t size)
{
	if (b->step)
		return size >= b->least && size % b->step == 0 &&
		       (!b->most || size <= b->most);
	for (int i = 0; i < MAX_SIZES && b->size[i]; i++)
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

static bool has_cache_dtype(const struct kvt_backend *b, const char *name)
{
	for (size_t i = 0; i < sizeof(cache_dtypes) / sizeof(cache_dtypes[0]); i++)
		if (!strcmp(cache_dtypes[i].name, name))
			return b->cache_dtypes & cache_dtypes[i].bit;
	return false;
}

static bool has_block_size(const struct kvt_backend *b, int64_t size)
{
	return b->block ? size % b->block == 0 : size == 16;
}

unsigned kvt_backend_check(const struct kvt_backend *b,
			   const struct kvt_backend_config *c)
{
	const bool refused[KVT_NBACKEND_REASONS] = {
		[KVT_BACKEND_HEAD_SIZE] = c->head_size && !has_head_size(b, c->head_size),
		[KVT_BACKEND_DTYPE] = c->dtype && !has_dtype(b, c->dtype),
		[KVT_BACKEND_CACHE_DTYPE] = c->cache_dtype &&
					    !has_cache_dtype(b, c->cache_dtype),
		[KVT_BACKEND_BLOCK_SIZE] = c->block_size &&
					   !has_block_size(b, c->block_size),
		[KVT_BACKEND_MLA] = c->mla && !b->mla,
		[KVT_BACKEND_NON_MLA] = !c->mla && b->mla,
		[KVT_BACKEND_SINKS] = c->sinks && !b->sinks,
		[KVT_BACKEND_SPARSE] = c->sparse && !b->sparse,
		[KVT_BACKEND_NON_SPARSE] = !c->sparse && b->sparse,
		[KVT_BACKEND_SLIDING_WINDOW] = c->sliding_window && !b->window,
		[KVT_BACKEND_CONNECTOR] = c->connector && b->no_connector,
	};
	unsigned reasons = 0;

	for (int i = 0; i < KVT_NBACKEND_REASONS; i++)
		reasons |= (unsigned)refused[i] << i;
	return reasons;
}

/* ---- layouts ------------------------------------------------------------ */

#define E1 KVT_ERA_KV_FIRST
#define E2 KVT_ERA_BLOCKS_FIRST
#define E3 KVT_ERA_PACKED
#define ANY "any"

static const struct kvt_backend_layout layouts[] = {
	{ "FLASH_ATTN", "NHD", "LKBSHD", E1 },
	{ "FLASH_ATTN", "NHD", "LBKSHD", E2 },
	{ "FLASH_ATTN", "NHD", "LBSHC", E3 },
	{ "FLASH_ATTN", "HND", "LKBHSD", E1 },
	{ "FLASH_ATTN", "HND", "LBKHSD", E2 },
	{ "FLASH_ATTN", "HND", "LBHSC", E3 },
	{ "FLASH_ATTN", "+L NHD", "BLKSHD", E1 | E2 },
	{ "FLASH_ATTN", "+L NHD", "BLSHC", E3 },
	{ "FLASH_ATTN", "+L HND", "BHLKSD", E1 | E2 },
	{ "FLASH_ATTN", "+L HND", "BHLSC", E3 },
	{ "FLASHINFER", "NHD", "LBKSHD", E1 | E2 },
	{ "FLASHINFER", "NHD", "LBSHC", E3 },
	{ "FLASHINFER", "HND", "LBKHSD", E1 | E2 },
	{ "FLASHINFER", "HND", "LBHSC", E3 },
	{ "FLASHINFER", "+L NHD", "BLKSHD", E1 | E2 },
	{ "FLASHINFER", "+L NHD", "BLSHC", E3 },
	{ "FLASHINFER", "+L HND", "BKHLSD", E1 | E2 },
	{ "FLASHINFER", "+L HND", "BHLSC", E3 },
	{ "TRITON_ATTN", "NHD", "LBKSHD", E1 | E2 },
	{ "TRITON_ATTN", "NHD", "LBSHC", E3 },
	{ "TRITON_ATTN", "HND", "LBKHSD", E1 | E2 },
	{ "TRITON_ATTN", "HND", "LBHSC", E3 },
	{ "TRITON_ATTN", "+L NHD", "BLKSHD", E1 | E2 },
	{ "TRITON_ATTN", "+L NHD", "BLSHC", E3 },
	{ "TRITON_ATTN", "+L HND", "BKHLSD", E1 },
	{ "TRITON_ATTN", "+L HND", "BHLKSD", E2 },
	{ "TRITON_ATTN", "+L HND", "BHLSC", E3 },
	{ "FLEX_ATTENTION", ANY, "LKBSHD", E1 },
	{ "FLEX_ATTENTION", ANY, "LBSKHD", E2 },
	{ "FLEX_ATTENTION", ANY, "LBSHC", E3 },
	{ "FLEX_ATTENTION", "+L", "BLSKHD", E2 },
	{ "FLEX_ATTENTION", "+L", "BLSHC", E3 },
	{ "FLASH_ATTN_DIFFKV", "NHD", "LBSHC", E1 | E2 | E3 },
	{ "FLASH_ATTN_DIFFKV", "HND", "LBHSC", E1 | E2 | E3 },
	{ "FLASH_ATTN_DIFFKV", "+L NHD", "BLSHC", E1 | E2 | E3 },
	{ "FLASH_ATTN_DIFFKV", "+L HND", "BHLSC", E1 | E2 | E3 },
	{ "TRITON_ATTN_DIFFKV", "NHD", "LBSHC", E2 | E3 },
	{ "TRITON_ATTN_DIFFKV", "HND", "LBHSC", E2 | E3 },
	{ "TRITON_ATTN_DIFFKV", "+L NHD", "BLSHC", E2 | E3 },
	{ "TRITON_ATTN_DIFFKV", "+L HND", "BHLSC", E2 | E3 },
	{ "CPU_ATTN", "vec", "cpu-vec-kv-first", E1 },
	{ "CPU_ATTN", "vec", "cpu-vec", E2 | E3 },
	{ "CPU_ATTN", "amx", "cpu-amx-kv-first", E1 },
	{ "CPU_ATTN", "amx", "cpu-amx", E2 | E3 },
	{ "CPU_ATTN", "neon bf16", "cpu-neon-bf16-kv-first", E1 },
	{ "CPU_ATTN", "neon bf16", "cpu-neon-bf16", E2 | E3 },
	{ "ROCM_ATTN", ANY, "rocm-paged", E1 | E2 | E3 },
	{ "ROCM_ATTN", "beside Mamba", "rocm-paged-page", E1 | E2 | E3 },
	{ "ROCM_AITER_FA", ANY, "LKBSHD", E1 },
	{ "ROCM_AITER_FA", ANY, "LBKSHD", E2 },
	{ "ROCM_AITER_FA", ANY, "LBHSC", E3 },
	{ "ROCM_AITER_FA", "shuffle", "aiter-shuffle-kv-first", E1 },
	{ "ROCM_AITER_FA", "shuffle", "aiter-shuffle", E2 },
	{ "ROCM_AITER_UNIFIED_ATTN", ANY, "LKBSHD", E1 },
	{ "ROCM_AITER_UNIFIED_ATTN", ANY, "LBKSHD", E2 },
	{ "ROCM_AITER_UNIFIED_ATTN", ANY, "LBHSC", E3 },
	{ "HPC_ATTN", "NHD", "LBKSHD", E2 | E3 },
	{ "HPC_ATTN", "+L NHD", "BLKSHD", E2 | E3 },
	{ "TURBOQUANT", ANY, "LBSHC", E1 | E2 },
	{ "TURBOQUANT", ANY, "LBHSC", E3 },
	{ "CUTLASS_MLA", "+L", "BLSC", E2 | E3 },
	{ "FLASH_ATTN_MLA", "+L", "BLSC", E2 | E3 },
	{ "FLASHINFER_MLA", "+L", "BLSC", E2 | E3 },
	{ "FLASHMLA", "+L", "BLSC", E2 | E3 },
	{ "TRITON_MLA", "+L", "BLSC", E2 | E3 },
	{ "MLA", ANY, "LBSC", E1 | E2 | E3 },	/* all of them */
};
enum { NLAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

const struct kvt_backend_layout *kvt_backend_layout_at(int i)
{
	return i >= 0 && i < NLAYOUTS ? &layouts[i] : NULL;
}

static bool fits(const struct kvt_layout *layout, const struct kvt_shape *shape)
{
	struct kvt_box whole = kvt_box_whole(shape);
	struct kvt_views views;

	return !kvt_layout_views(&views, layout, &whole, shape->elem, NULL);
}

unsigned kvt_backend_wrote(const struct kvt_backend *backend,
			   const struct kvt_layout *layout,
			   const struct kvt_shape *shape)
{
	unsigned eras = 0;

	for (int i = 0; fits(layout, shape) && i < NLAYOUTS; i++) {
		struct kvt_layout theirs;

		if (strcmp(layouts[i].backend, backend->name) &&
		    (!backend->mla || strcmp(layouts[i].backend, "MLA")))
			continue;
		if (!kvt_layout_parse(&theirs, layouts[i].layout, NULL) &&
		    kvt_layout_agree(layout, &theirs, shape))
			eras |= layouts[i].eras;
	}
	return eras;
}

/* Heads of a block follow each other, in it or in its keys and in its values. */
static bool heads_first(const struct kvt_layout *layout, const struct kvt_shape *shape)
{
	struct kvt_shape half = *shape;

	half.n[KVT_AXIS_K] = 1;
	return kvt_layout_predicates(layout, shape).block_contiguous ||
	       (layout->nplanes == 1 &&
		kvt_layout_predicates(layout, &half).block_contiguous);
}

unsigned kvt_connector_unmet(const struct kvt_layout *layout,
			     const struct kvt_shape *shape, bool unequal_tp)
{
	unsigned unmet = 0;

	if (!kvt_blocks_first(layout, shape))
		unmet |= KVT_NEED_BLOCKS_FIRST;
	if (kvt_splits_k_and_v(layout, shape))
		unmet |= KVT_NEED_K_WITH_V;
	/* one head is a run anywhere; the predicate leaves it out */
	if (unequal_tp && !heads_first(layout, shape))
		unmet |= KVT_NEED_HEADS_FIRST;
	if (shape->n[KVT_AXIS_S] % 16)
		unmet |= KVT_NEED_BLOCK_SIZE;
	return unmet;
}
