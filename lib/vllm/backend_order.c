/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend_order.c - which backend vLLM asks first, and which one it takes
 *
 * Lists are those of its platforms, cuda.py and rocm.py, by compute capability: read from
 * the releases of release.c, and a condition says since when a name is in it.
 */
#include "lib/vllm/backend.h"

#include <string.h>

enum { MAX_ORDER = 10 };

static const char *const gqa[] = {
	"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT", NULL
};
static const char *const gqa_sm100[] = {
	"FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT", NULL
};
static const char *const mla[] = {
	"FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", NULL
};
static const char *const mla_sm100[] = {
	"FLASHINFER_MLA", "TOKENSPEED_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA",
	"TRITON_MLA", NULL
};
static const char *const mla_sm120[] = {
	"TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120", NULL
};

struct order {
	const char *name[MAX_ORDER];
	int n;
};

static void add(struct order *out, const char *name)
{
	out->name[out->n++] = name;
}

static void add_all(struct order *out, const char *const *list)
{
	for (; *list; list++)
		add(out, *list);
}

static void order_mla(struct order *out, const struct kvt_backend_config *c,
		      const struct kvt_backend_platform *p)
{
	const char *few[] = { "FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE" };
	bool first = kvt_backend_quantised(c->cache_dtype) ||
		     (p->heads && p->heads <= 16);

	if (p->capability / 10 == 12 && c->release >= KVT_VLLM_0_24) {
		add_all(out, mla_sm120);
	} else if (p->capability / 10 == 10) {
		add_all(out, mla_sm100);
		add(out, few[!first]);
		add(out, few[first]);
	} else {
		add_all(out, mla);
		if (c->release >= KVT_VLLM_0_32 && c->head_size == 512)
			add(out, "FLASHINFER_MLA_SPARSE_SM90");
		if (c->release >= KVT_VLLM_0_26)
			add(out, "FLASH_ATTN_MLA_SPARSE");
		add(out, "FLASHMLA_SPARSE");
		if (c->release >= KVT_VLLM_0_32 && c->head_size != 512)
			add(out, "FLASHINFER_MLA_SPARSE_SM90");
	}
}

/* A connector changes nothing here. */
static void order_cuda(struct order *out, const struct kvt_backend_config *c,
		       const struct kvt_backend_platform *p)
{
	bool routes = c->mm_prefix && c->release >= KVT_VLLM_0_32;
	int major = p->capability / 10;

	if (c->mla) {
		order_mla(out, c, p);
	} else if (major == 10 && (!c->non_causal || c->release < KVT_VLLM_0_26)) {
		if (routes)
			add(out, "TRITON_FLASHINFER");
		add_all(out, gqa_sm100);
	} else {
		if (major == 9 && routes)
			add(out, "TRITON_FLASH_ATTN");
		add_all(out, gqa);
	}
}

static void order_rocm(struct order *out, const struct kvt_backend_config *c,
		       const struct kvt_backend_platform *p)
{
	bool newest = c->release >= KVT_VLLM_0_32;
	bool rdna = p->rdna_aiter && !p->aiter && newest;
	bool crosses = c->type && !strcmp(c->type, "encoder_decoder") &&
		       c->release >= KVT_VLLM_0_26;

	if (c->sparse) {
		add(out, "ROCM_AITER_MLA_SPARSE");
		return;
	}
	if (c->mla) {
		if (p->aiter_mla)
			add(out, "ROCM_AITER_MLA");
		add(out, "TRITON_MLA");
		if (p->aiter_mla)
			add(out, "ROCM_AITER_TRITON_MLA");
		return;
	}
	if (rdna)
		add(out, "ROCM_AITER_UNIFIED_ATTN");
	if (!(c->connector && c->release >= KVT_VLLM_0_24) && !crosses)
		add(out, "ROCM_ATTN");
	if (p->aiter_mha)
		add(out, "ROCM_AITER_FA");
	if (p->aiter)
		add(out, "ROCM_AITER_UNIFIED_ATTN");
	add(out, "TRITON_ATTN");
	add(out, "TURBOQUANT");
	if (newest)
		add(out, "ULTRAQUANT");
}

int kvt_backend_order_of(const struct kvt_backend **out, int room,
			 const struct kvt_backend_config *config,
			 const struct kvt_backend_platform *platform)
{
	struct order order = { .n = 0 };

	if (platform->rocm)
		order_rocm(&order, config, platform);
	else
		order_cuda(&order, config, platform);
	for (int i = 0; i < order.n && i < room; i++)
		out[i] = kvt_backend_find(order.name[i]);
	return order.n;
}
