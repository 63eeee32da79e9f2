/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rule.c - which engines' names can be worked out, and those that cannot
 *
 * A row is one way of naming.  Facts: vLLM 0.32.0, 0.30 and 0.26.0 (v1/core/
 * kv_cache_utils.py, utils/hashing.py), LMCache 0.5.6 (v1/token_database.py,
 * v1/multiprocess/token_hasher.py), SGLang 0.5.23 (srt/mem_cache/utils.py).
 */
#include "lib/kvt/prefix.h"

#include <string.h>

#define BIT(hash) (1u << KVT_PREFIX_##hash)

enum {
	VLLM_HASHES = BIT(SHA256) | BIT(SHA256_CBOR) | BIT(XXHASH) | BIT(XXHASH_CBOR),
	VLLM_PARTS = KVT_PREFIX_SEED | KVT_PREFIX_SALT | KVT_PREFIX_LORA |
		     KVT_PREFIX_ITEMS,
	SGLANG_PARTS = KVT_PREFIX_SALT | KVT_PREFIX_EXTRA_KEY,
};

static const struct kvt_prefix_rule rules[] = {
	{ "vllm", "vLLM 0.31 and later", NULL, KVT_PREFIX_VLLM, VLLM_HASHES,
	  KVT_PREFIX_SHA256, VLLM_PARTS | KVT_PREFIX_LORA_PATH, .tagged = true },
	{ "vllm-0.30", "vLLM 0.29 and 0.30", NULL, KVT_PREFIX_VLLM, VLLM_HASHES,
	  KVT_PREFIX_SHA256, .parts = VLLM_PARTS },
	{ "vllm-0.28", "vLLM until 0.28", NULL, KVT_PREFIX_VLLM, VLLM_HASHES,
	  KVT_PREFIX_SHA256, VLLM_PARTS, .random = true },
	{ "lmcache", "LMCache in the engine's process", NULL, KVT_PREFIX_LMCACHE,
	  VLLM_HASHES | BIT(BUILTIN), KVT_PREFIX_BUILTIN,
	  KVT_PREFIX_SEED | KVT_PREFIX_WITHOUT_VLLM, .random = true, .partial = true,
	  .block = 256 },
	{ "lmcache-mp", "LMCache's server of its own, and its second level", NULL,
	  KVT_PREFIX_LMCACHE_MP, VLLM_HASHES | BIT(BLAKE3), KVT_PREFIX_BLAKE3,
	  KVT_PREFIX_SEED, .random = true, .block = 256 },
	{ "sglang", "SGLang's radix tree and HiCache", NULL, KVT_PREFIX_SGLANG,
	  BIT(SHA256), KVT_PREFIX_SHA256, .parts = SGLANG_PARTS },
	{ "sglang-event", "hashes in SGLang's KV events", NULL, KVT_PREFIX_SGLANG_EVENT,
	  BIT(SHA256), KVT_PREFIX_SHA256, .parts = SGLANG_PARTS },
	{ .name = "mooncake", .what = "Mooncake's store",
	  .why_not = "its keys are those of the engine; give sglang or lmcache-mp" },
	{ .name = "flexkv", .what = "FlexKV",
	  .why_not = "no file that it named was there to prove a rule by" },
	{ .name = "dynamo", .what = "Dynamo's KVBM",
	  .why_not = "no object that it named was there to prove a rule by" },
	{ .name = "llm-d", .what = "llm-d's index",
	  .why_not = "no key of it was there to prove a rule by" },
	{ .name = "tensorrt-llm", .what = "TensorRT-LLM",
	  .why_not = "no key of it was there to prove a rule by" },
};
enum { NRULES = sizeof(rules) / sizeof(rules[0]) };

const struct kvt_prefix_rule *kvt_prefix_rule_at(int i)
{
	return i >= 0 && i < NRULES ? &rules[i] : NULL;
}

const struct kvt_prefix_rule *kvt_prefix_rule_find(const char *name)
{
	for (int i = 0; i < NRULES; i++)
		if (!strcmp(rules[i].name, name))
			return &rules[i];
	return NULL;
}

static const char *const hashes[KVT_PREFIX_NHASHES] = {
	[KVT_PREFIX_DEFAULT] = "default",
	[KVT_PREFIX_SHA256] = "sha256", [KVT_PREFIX_SHA256_CBOR] = "sha256_cbor",
	[KVT_PREFIX_XXHASH] = "xxhash", [KVT_PREFIX_XXHASH_CBOR] = "xxhash_cbor",
	[KVT_PREFIX_BUILTIN] = "builtin", [KVT_PREFIX_BLAKE3] = "blake3",
};

const char *kvt_prefix_hash_name(enum kvt_prefix_hash hash)
{
	return hashes[hash];
}

enum kvt_prefix_hash kvt_prefix_hash_find(const char *name)
{
	int i = KVT_PREFIX_DEFAULT + 1;

	while (i < KVT_PREFIX_NHASHES && strcmp(hashes[i], name))
		i++;
	return (enum kvt_prefix_hash)i;
}
