/* SPDX-License-Identifier: Apache-2.0 */
/* backend_layout.c - where vLLM's backends put bytes, and what connectors need */
#include "lib/vllm/backend.h"

#include <string.h>

#include "lib/kvt/choice.h"

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
	bool has_latents = backend->can & KVT_BACKEND_CAN_MLA;
	unsigned eras = 0;

	for (int i = 0; fits(layout, shape) && i < NLAYOUTS; i++) {
		struct kvt_layout theirs;

		if (strcmp(layouts[i].backend, backend->name) &&
		    (!has_latents || strcmp(layouts[i].backend, "MLA")))
			continue;
		if (!kvt_layout_parse(&theirs, layouts[i].layout, NULL) &&
		    kvt_layout_agree(layout, &theirs, shape))
			eras |= layouts[i].eras;
	}
	return eras;
}

/* ---- of the current release --------------------------------------------- */

/* Keys and values that are two head slots, or in an order of their own. */
static const struct {
	const char *backend, *layout;
} own[] = {
	{ "B12X", "LBKSHD" }, { "B12X", "BLKSHD" },
	{ "CPU_ATTN", "cpu-vec" }, { "CPU_ATTN", "cpu-amx" },
	{ "CPU_ATTN", "cpu-neon-bf16" },
	{ "ROCM_ATTN", "rocm-paged" }, { "ROCM_ATTN", "rocm-paged-page" },
	{ "ROCM_SEGMENTED_ATTN", "rocm-paged" },
	{ "ROCM_SEGMENTED_ATTN", "rocm-paged-page" },
};

const char *kvt_backend_layouts(const struct kvt_backend *backend)
{
	return backend->layouts;
}

static bool is_it(const char *name, const struct kvt_layout *layout,
		  const struct kvt_shape *shape)
{
	struct kvt_layout theirs;

	return !kvt_layout_parse(&theirs, name, NULL) &&
	       kvt_layout_agree(layout, &theirs, shape);
}

bool kvt_backend_writes(const struct kvt_backend *backend,
			const struct kvt_layout *layout, const struct kvt_shape *shape)
{
	struct kvt_kv_layouts declared, theirs;
	bool has_own = false, found = false;

	if (!fits(layout, shape) ||
	    kvt_kv_layouts_parse(&declared, backend->layouts ? backend->layouts : "",
				 NULL) ||
	    kvt_kv_layouts_common(&theirs, &declared, 1, NULL))
		return false;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		if (strcmp(own[i].backend, backend->name))
			continue;
		has_own = true;
		found |= is_it(own[i].layout, layout, shape);
	}
	for (int i = 0; !has_own && !found && i < theirs.n; i++)
		found = is_it(kvt_kv_layout_name(theirs.at[i]), layout, shape);
	return found;
}

/* ---- connectors --------------------------------------------------------- */

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
