/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c - where vLLM's backends put bytes, and what connectors need
 *
 * Rows are a backend's order of a cache in a range of releases, under conditions.  What
 * is known of the run rules some out.  Whether a backend could have written a dump is
 * asked of all rows that are left, since any may hold; what it will write, of the usual
 * ones.
 */
#include "lib/vllm/backend.h"

#include <stdio.h>
#include <string.h>

#include "lib/kvt/choice.h"
#include "lib/layout/words.h"

/* ---- layouts ------------------------------------------------------------ */

enum {
	CROSS_LAYER = 1 << 0,		/* a connector wants all layers in one */
	WITH_CONNECTOR = 1 << 1, WITHOUT_CONNECTOR = 1 << 2,
	SM10 = 1 << 3, NOT_SM10 = 1 << 4, SHUFFLED = 1 << 5, NOT_SHUFFLED = 1 << 6,
	BF16_TILES = 1 << 7,		/* a CPU's matrices of bfloat16 take the pages */
};

#define IN(first, last) KVT_VLLM_0_##first, KVT_VLLM_0_##last
#define EITHER "NHD HND"		/* as vLLM is told */
#define ANY "LBNHC LBHNC BLNHC BLHNC BHLNC LHBNC"
#define CPU_PAGES "cpu-vec cpu-amx cpu-neon-bf16"

/*
 * A release with rows of a backend's own uses these and no others; else those of MLA,
 * for what takes latents; else those of "*".  Names without bytes say where the bytes
 * are.  AITER's shuffle of 0.26 lets values begin inside keys: it has no row.  What
 * begins with K in 0.22 is strided inside of B where layers of Mamba share the memory.
 */
static const struct kvt_backend_layout layouts[] = {
	{ "FLASH_ATTN", IN(22, 22), 0, EITHER, "LKBSHD LKBHSD" },
	{ "FLASH_ATTN", IN(22, 22), 0, EITHER, "LBKSHD LBKHSD" },
	{ "FLASH_ATTN", IN(22, 22), CROSS_LAYER, EITHER, "BLKSHD BHLKSD" },
	{ "FLASH_ATTN", IN(24, 24), 0, EITHER, "LBKSHD LBKHSD" },
	{ "FLASH_ATTN", IN(24, 24), CROSS_LAYER, EITHER, "BLKSHD BHLKSD" },
	{ "FLASH_ATTN", IN(26, 26), 0, EITHER, "LBSHC LBHSC" },
	{ "FLASH_ATTN", IN(26, 26), CROSS_LAYER, EITHER, "BLSHC BHLSC" },
	{ "FLASHINFER", IN(22, 24), NOT_SM10, EITHER, "LBKSHD LBKHSD" },
	{ "FLASHINFER", IN(22, 24), NOT_SM10 | CROSS_LAYER, EITHER, "BLKSHD BKHLSD" },
	{ "FLASHINFER", IN(22, 24), SM10, "HND", "LBKHSD" },
	{ "FLASHINFER", IN(22, 24), SM10 | CROSS_LAYER, "HND", "BKHLSD" },
	{ "FLASHINFER", IN(26, 26), NOT_SM10, EITHER, "LBSHC LBHSC" },
	{ "FLASHINFER", IN(26, 26), NOT_SM10 | CROSS_LAYER, EITHER, "BLSHC BHLSC" },
	{ "FLASHINFER", IN(26, 26), SM10, "HND", "LBHSC" },
	{ "FLASHINFER", IN(26, 26), SM10 | CROSS_LAYER, "HND", "BHLSC" },
	{ "FLASHINFER", IN(32, 32), NOT_SM10, NULL, ANY },
	{ "FLASHINFER", IN(32, 32), SM10, "LBHNC BLHNC", NULL },
	{ "TRITON_FLASHINFER", IN(32, 32), NOT_SM10, ANY, NULL },
	{ "TRITON_FLASHINFER", IN(32, 32), SM10, "LBHNC BLHNC", NULL },
	{ "TRITON_FLASH_ATTN", IN(32, 32), 0, ANY, NULL },
	{ "TRITON_ATTN", IN(22, 24), 0, EITHER, "LBKSHD LBKHSD" },
	{ "TRITON_ATTN", IN(22, 22), CROSS_LAYER, EITHER, "BLKSHD BKHLSD" },
	{ "TRITON_ATTN", IN(24, 24), CROSS_LAYER, EITHER, "BLKSHD BHLKSD" },
	{ "TRITON_ATTN", IN(26, 26), 0, EITHER, "LBSHC LBHSC" },
	{ "TRITON_ATTN", IN(26, 26), CROSS_LAYER, EITHER, "BLSHC BHLSC" },
	{ "FLASH_ATTN_DIFFKV", IN(22, 26), 0, EITHER, "LBSHC LBHSC" },
	{ "FLASH_ATTN_DIFFKV", IN(22, 26), CROSS_LAYER, EITHER, "BLSHC BHLSC" },
	{ "TRITON_ATTN_DIFFKV", IN(24, 26), 0, EITHER, "LBSHC LBHSC" },
	{ "TRITON_ATTN_DIFFKV", IN(24, 26), CROSS_LAYER, EITHER, "BLSHC BHLSC" },
	{ "FLEX_ATTENTION", IN(22, 22), 0, EITHER, "LKBSHD LKBSHD" },
	{ "FLEX_ATTENTION", IN(22, 22), 0, EITHER, "LBKSHD LBKSHD" },
	{ "FLEX_ATTENTION", IN(24, 24), 0, EITHER, "LBSKHD LBSKHD" },
	{ "FLEX_ATTENTION", IN(24, 24), CROSS_LAYER, EITHER, "BLSKHD BLSKHD" },
	{ "FLEX_ATTENTION", IN(26, 26), 0, EITHER, "LBSHC LBSHC" },
	{ "FLEX_ATTENTION", IN(26, 26), CROSS_LAYER, EITHER, "BLSHC BLSHC" },
	{ "FLEX_ATTENTION", IN(32, 32), 0, "LBNHC", NULL },
	{ "CPU_ATTN", IN(22, 22), BF16_TILES, "HND",
	  "cpu-vec-kv-first cpu-amx-kv-first cpu-neon-bf16-kv-first" },
	{ "CPU_ATTN", IN(22, 22), 0, "HND", "cpu-vec-kv-first" },
	{ "CPU_ATTN", IN(24, 26), BF16_TILES, "HND", CPU_PAGES },
	{ "CPU_ATTN", IN(24, 26), 0, "HND", "cpu-vec" },
	{ "CPU_ATTN", IN(32, 32), BF16_TILES, "LBHNC", CPU_PAGES },
	{ "CPU_ATTN", IN(32, 32), 0, "LBHNC", "cpu-vec" },
	{ "ROCM_ATTN", IN(22, 26), 0, EITHER, "rocm-paged rocm-paged" },
	/* the same: blocks first */
	{ "ROCM_ATTN", IN(22, 26), 0, EITHER, "rocm-paged-page rocm-paged-page" },
	{ "ROCM_ATTN", IN(32, 32), 0, "LHBNC LBHNC", "rocm-paged rocm-paged-page" },
	{ "ROCM_SEGMENTED_ATTN", IN(32, 32), 0, "LHBNC LBHNC",
	  "rocm-paged rocm-paged-page" },
	{ "ROCM_AITER_FA", IN(22, 22), NOT_SHUFFLED, EITHER, "LKBSHD LKBSHD" },
	{ "ROCM_AITER_FA", IN(22, 22), NOT_SHUFFLED, EITHER, "LBKSHD LBKSHD" },
	{ "ROCM_AITER_FA", IN(22, 22), SHUFFLED, EITHER,
	  "aiter-shuffle-kv-first aiter-shuffle-kv-first" },
	{ "ROCM_AITER_FA", IN(24, 24), NOT_SHUFFLED, EITHER, "LBKSHD LBKSHD" },
	{ "ROCM_AITER_FA", IN(24, 24), SHUFFLED, EITHER, "aiter-shuffle aiter-shuffle" },
	{ "ROCM_AITER_FA", IN(26, 26), NOT_SHUFFLED, EITHER, "LBHSC LBHSC" },
	{ "ROCM_AITER_FA", IN(32, 32), NOT_SHUFFLED, "LBHNC LHBNC", NULL },
	{ "ROCM_AITER_FA", IN(32, 32), SHUFFLED, "LHBNC LBHNC",
	  "aiter-shuffle-kv-first aiter-shuffle" },
	{ "ROCM_AITER_UNIFIED_ATTN", IN(22, 22), 0, EITHER, "LKBSHD LKBSHD" },
	{ "ROCM_AITER_UNIFIED_ATTN", IN(22, 22), 0, EITHER, "LBKSHD LBKSHD" },
	{ "ROCM_AITER_UNIFIED_ATTN", IN(24, 24), 0, EITHER, "LBKSHD LBKSHD" },
	{ "ROCM_AITER_UNIFIED_ATTN", IN(26, 26), 0, EITHER, "LBHSC LBHSC" },
	{ "ROCM_AITER_UNIFIED_ATTN", IN(32, 32), WITHOUT_CONNECTOR, "LBHNC LHBNC", NULL },
	{ "ROCM_AITER_UNIFIED_ATTN", IN(32, 32), WITH_CONNECTOR, "LBHNC", NULL },
	{ "HPC_ATTN", IN(26, 26), 0, "NHD", "LBKSHD" },
	{ "HPC_ATTN", IN(26, 26), CROSS_LAYER, "NHD", "BLKSHD" },
	{ "HPC_ATTN", IN(32, 32), 0, "LBNHC", NULL },
	{ "B12X", IN(32, 32), 0, "LBHNC BLHNC", "LBKSHD BLKSHD" },
	{ "TURBOQUANT", IN(22, 24), 0, EITHER, "LBSHC LBSHC" },
	{ "TURBOQUANT", IN(26, 26), 0, EITHER, "LBHSC LBHSC" },
	{ "TURBOQUANT", IN(32, 32), 0, "LBNHC", NULL },
	{ "ULTRAQUANT", IN(32, 32), 0, "LBNHC", NULL },
	{ "MINIMAX_M3_SPARSE", IN(24, 24), 0, EITHER, "LBKSHD LBKHSD" },
	{ "MINIMAX_M3_SPARSE", IN(26, 26), 0, EITHER, "LBSHC LBHSC" },
	{ "ROCM_AITER_MLA_SPARSE", IN(32, 32), 0, "LBNHC LBHNC BLHNC", NULL },
	{ "MLA", IN(22, 26), 0, EITHER, "LBSC LBSC" },
	{ "CUTLASS_MLA", IN(24, 26), CROSS_LAYER, EITHER, "BLSC BLSC" },
	{ "FLASH_ATTN_MLA", IN(24, 26), CROSS_LAYER, EITHER, "BLSC BLSC" },
	{ "FLASHINFER_MLA", IN(24, 26), CROSS_LAYER, EITHER, "BLSC BLSC" },
	{ "FLASHMLA", IN(24, 26), CROSS_LAYER, EITHER, "BLSC BLSC" },
	{ "TRITON_MLA", IN(24, 26), CROSS_LAYER, EITHER, "BLSC BLSC" },
	{ "*", IN(32, 32), 0, NULL, ANY },
};
enum { NLAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

const struct kvt_backend_layout *kvt_backend_layout_at(int i)
{
	return i >= 0 && i < NLAYOUTS ? &layouts[i] : NULL;
}

static bool is_in(const struct kvt_backend_layout *row, enum kvt_release release)
{
	return row->since <= release && release <= row->until;
}

/* Has the release rows of this name for layers on their own? */
static bool has_rows(const char *name, enum kvt_release release)
{
	for (int i = 0; i < NLAYOUTS; i++)
		if (!strcmp(layouts[i].backend, name) && is_in(&layouts[i], release) &&
		    !(layouts[i].when & CROSS_LAYER))
			return true;
	return false;
}

/* Tiles are of bfloat16, 32 tokens and 32 values; what is not known may be so. */
static bool has_bf16_tiles(const struct kvt_backend_config *c)
{
	const struct kvt_dtype *dtype = c->dtype ? kvt_dtype_find(c->dtype) : NULL;

	return (!c->dtype || (dtype && !strcmp(dtype->name, "bfloat16"))) &&
	       c->block_size % 32 == 0 && c->head_size % 32 == 0;
}

/* Conditions that what is known rules out; what is wanted may tell the device. */
static unsigned ruled_out(const struct kvt_backend *b, const struct kvt_backend_config *c)
{
	unsigned out = c->connector ? WITHOUT_CONNECTOR : 0;
	unsigned majors = kvt_backend_majors(b, c);

	if (c->capability)
		out |= c->capability / 10 == 10 ? NOT_SM10 : SM10;
	else if (majors == 1u << 10)
		out |= NOT_SM10;
	else if (!(majors >> 10 & 1))
		out |= SM10;
	return out | (c->shuffle ? NOT_SHUFFLED : 0) |
	       (has_bf16_tiles(c) ? 0 : BF16_TILES);
}

/* Those that hold unless one hears of anything else. */
static unsigned unusual(const struct kvt_backend *b, const struct kvt_backend_config *c)
{
	unsigned out = ruled_out(b, c);

	/* one of both is usual, unless the other one is all there is */
	return out | CROSS_LAYER | (c->connector ? 0 : WITH_CONNECTOR) |
	       (c->capability || out & NOT_SM10 ? 0 : SM10) | (c->shuffle ? 0 : SHUFFLED);
}

/* The next row from *i on that is of the backend, but for conditions in 'without'. */
static const struct kvt_backend_layout *next_row(int *i, const struct kvt_backend *b,
						 enum kvt_release release,
						 unsigned without)
{
	const struct kvt_backend *row = kvt_backend_of(b, release);
	const char *name;

	if (!row)
		return NULL;
	name = has_rows(b->name, release) ? b->name :
	       row->can & MLA && has_rows("MLA", release) ? "MLA" : "*";
	for (; *i < NLAYOUTS; ++*i) {
		const struct kvt_backend_layout *at = &layouts[*i];

		if (is_in(at, release) && !(at->when & without) &&
		    (!strcmp(at->backend, name) || !strcmp(at->backend, b->name)))
			return &layouts[(*i)++];
	}
	return NULL;
}

static bool fits(const struct kvt_layout *layout, const struct kvt_shape *shape)
{
	struct kvt_box whole = kvt_box_whole(shape);
	struct kvt_views views;

	return !kvt_layout_views(&views, layout, &whole, shape->elem, NULL);
}

/* Is one of the words of a row where these bytes are? */
static bool puts_there(const struct kvt_backend_layout *row,
		       const struct kvt_layout *layout, const struct kvt_shape *shape)
{
	for (const char *p = row->bytes ? row->bytes : row->names; *p; p += *p == ' ') {
		struct kvt_layout theirs;
		char word[32] = "";
		size_t n = strcspn(p, " ");

		memcpy(word, p, n < sizeof(word) ? n : sizeof(word) - 1);
		if (!kvt_layout_parse(&theirs, word, NULL) &&
		    kvt_layout_agree(layout, &theirs, shape))
			return true;
		p += n;
	}
	return false;
}

bool kvt_backend_writes(const struct kvt_backend *backend,
			const struct kvt_backend_config *config,
			const struct kvt_layout *layout, const struct kvt_shape *shape)
{
	const struct kvt_backend_layout *row;

	if (!fits(layout, shape))
		return false;
	for (int i = 0; (row = next_row(&i, backend, config->release,
					ruled_out(backend, config))); )
		if (puts_there(row, layout, shape))
			return true;
	return false;
}

unsigned kvt_backend_wrote(const struct kvt_backend *backend,
			   const struct kvt_layout *layout, const struct kvt_shape *shape)
{
	unsigned releases = 0;

	for (int r = 0; r < KVT_NRELEASES; r++) {
		const struct kvt_backend_config config = {
			.release = (enum kvt_release)r,
			.dtype = shape->elem > 2 ? "float32" : NULL,
			.block_size = shape->n[KVT_AXIS_S],
			.head_size = shape->n[KVT_AXIS_D],
		};

		if (kvt_backend_writes(backend, &config, layout, shape))
			releases |= 1u << r;
	}
	return releases;
}

const struct kvt_backend_layout *
kvt_backend_layouts(const struct kvt_backend *backend,
		    const struct kvt_backend_config *config)
{
	int i = 0;

	return next_row(&i, backend, config->release, unusual(backend, config));
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

/* In regions of keys and of values: nothing of a block is outside of B, or of H. */
static bool outer_in_regions(const struct kvt_layout *layout,
			     const struct kvt_shape *shape, enum kvt_axis outer)
{
	static const enum kvt_axis inner[] = { KVT_AXIS_H, KVT_AXIS_S, KVT_AXIS_D };

	for (int p = 0; p < layout->nplanes; p++)
		for (int i = 0; i < 3; i++)
			if (inner[i] != outer && shape->n[inner[i]] > 1 &&
			    kvt_order_find(&layout->plane[p], inner[i]) <
				    kvt_order_find(&layout->plane[p], outer))
				return false;
	return true;
}

static unsigned unmet_in_regions(const struct kvt_layout *layout,
				 const struct kvt_shape *shape, bool unequal_tp)
{
	unsigned unmet = 0;

	if (!outer_in_regions(layout, shape, KVT_AXIS_B))
		unmet |= KVT_NEED_BLOCKS_FIRST;
	if (unequal_tp && shape->n[KVT_AXIS_H] > 1 &&
	    !outer_in_regions(layout, shape, KVT_AXIS_H))
		unmet |= KVT_NEED_HEADS_FIRST;
	return unmet;
}

static unsigned unmet_in_blocks(const struct kvt_layout *layout,
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
	return unmet;
}

/* Has the cache of one layer five axes, of which blocks are the first? */
static bool begins_with_blocks(const struct kvt_backend *b, enum kvt_release release)
{
	const struct kvt_backend_config config = { .release = release };
	const struct kvt_backend_layout *row = kvt_backend_layouts(b, &config);
	struct kvt_layout layout;
	char word[32];

	if (!row || snprintf(word, sizeof(word), "%.*s", (int)strcspn(row->bytes, " "),
			     row->bytes) >= (int)sizeof(word) ||
	    kvt_layout_parse(&layout, word, NULL))
		return false;
	/* of a CPU keys and values are one axis, whatever is inside */
	for (int p = 0; p < layout.nplanes; p++) {
		int block = kvt_order_find(&layout.plane[p], KVT_AXIS_B);
		int half = kvt_order_find(&layout.plane[p], KVT_AXIS_K);

		if (half < block || (layout.nplanes == 2 && half != block + 1))
			return false;
		/* side by side in a slot: one axis, too */
		if (half == layout.plane[p].nparts - 2 && layout.nplanes == 1)
			return false;
	}
	return true;
}

bool kvt_kv_regions(struct kvt_kv_regions *out, enum kvt_release release,
		    const struct kvt_backend *backend, bool mla, bool states,
		    bool cross_layer)
{
	if (release > KVT_VLLM_0_24 ||
	    (!backend && !mla && !states) ||
	    (backend && !kvt_backend_of(backend, release)))
		return false;
	out->blocks_first = states || (!mla && begins_with_blocks(backend, release));
	out->split = !cross_layer && !mla && !out->blocks_first;
	return true;
}

static bool registers_k_and_v(enum kvt_release release, const struct kvt_layout *layout,
			      const struct kvt_shape *shape)
{
	return release <= KVT_VLLM_0_24 && kvt_splits_k_and_v(layout, shape);
}

unsigned kvt_connector_unmet(enum kvt_release release, const struct kvt_layout *layout,
			     const struct kvt_shape *shape, bool unequal_tp)
{
	unsigned unmet = registers_k_and_v(release, layout, shape) ?
			 unmet_in_regions(layout, shape, unequal_tp) :
			 unmet_in_blocks(layout, shape, unequal_tp);

	return unmet | (shape->n[KVT_AXIS_S] % 16 ? KVT_NEED_BLOCK_SIZE : 0);
}
