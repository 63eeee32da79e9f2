/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preset.c - the layouts that have names, and names that are refused
 *
 * A name is looked up by itself, '_' and '-' and case alike, then as letters of axes.
 * One that several projects use for different orders is not guessed: ambiguous[] has
 * what may be meant.
 *
 * Facts: names with a prefix are those of enums of the projects: KVCacheLayout of vLLM
 * 0.32.0, KvBlockLayout of Dynamo's KVBM, KVCacheLayoutType of FlexKV, the layouts of
 * HiCache's host pools in SGLang 0.5.23, EngineKVFormat of LMCache 0.5.6.
 */
#include "lib/base/nearest.h"
#include "lib/layout/words.h"

#include <ctype.h>
#include <string.h>

/*
 * First the names of kvtool, then those of projects, which carry a prefix.  Where a
 * backend of vLLM puts bytes so is not said here: lib/vllm/layout.c has it, by release.
 */
static const struct kvt_preset presets[] = {
	/* packed: keys and values side by side, or content of any sort */
	{ "nhd",   "LBSHC", "RFC default", false },
	{ "hnd",   "LBHSC", "", false },
	{ "blshc", "BLSHC", "RFC", false },
	{ "blhsc", "BLHSC", "", false },
	{ "bhlsc", "BHLSC", "RFC", false },
	{ "lhbsc", "LHBSC", "", false },

	/* keys and values apart */
	{ "kv-first-nhd", "LKBSHD", "", false },
	{ "kv-first-hnd", "LKBHSD", "", false },
	{ "blocks-first-nhd", "LBKSHD", "", false },
	{ "blocks-first-hnd", "LBKHSD", "", false },
	{ "flex-split", "LBSKHD", "", false },
	{ "head-halves", "LBHKSD", "CPU backend if nothing is packed", false },
	{ "cross-nhd", "BLKSHD", "", false },
	{ "cross-hnd", "BLKHSD", "TensorRT-LLM pools; KVBM", false },
	{ "cross-flex", "BLSKHD", "", false },
	{ "cross-head", "BHLKSD", "", false },
	{ "cross-kv-head", "BKHLSD", "", false },
	{ "cross-layer-head", "BLHKSD", "KVBM UniversalPP", false },
	{ "hicache-layer-first", "KLBSHD", "SGLang HiCache host pool", false },
	{ "hicache-page-first", "KBSLHD", "SGLang HiCache host pool", false },
	{ "hicache-page-first-direct", "KBLSHD", "SGLang HiCache host pool", false },
	{ "hicache-page-head", "KBHSLD", "SGLang HiCache host pool", false },

	/* one content vector per slot */
	{ "mla", "LBSC", "MLA of every engine", true },
	{ "mla-cross", "BLSC", "MLA, all layers in one", true },

	/* planes */
	{ "rocm-paged", "K:L K B H D/x S x V:L K B H D S", "", false },
	{ "rocm-paged-page",
	  "K:L B K H D/x S x V:L B K H D S",
	  "before 0.32 beside Mamba layers", false },
	{ "aiter-shuffle",
	  "K:L B K H D/x S x V:L B K H S/x D S%x",
	  "AITER shuffle", false },
	{ "aiter-shuffle-kv-first",
	  "K:L K B H D/x S x V:L K B H S/x D S%x",
	  "AITER shuffle", false },
	{ "cpu-vec", "K:LBHKDS V:LBHKSD", "ISA vec, vec16, rvv, vxe, vsx, neon", false },
	{ "cpu-vec-kv-first", "K:LKBHDS V:LKBHSD", "ISA vec, vec16, neon", false },
	{ "cpu-amx",
	  "K:L B H K S/16 D/2 S%16 D%2 V:L B H K D/16 S/2 D%16 S%2",
	  "ISA amx", false },
	{ "cpu-amx-kv-first",
	  "K:L K B H S/16 D/2 S%16 D%2 V:L K B H D/16 S/2 D%16 S%2",
	  "ISA amx", false },
	{ "cpu-neon-bf16",
	  "K:L B H K S/8 D/4 S%8 D%4 V:L B H K D/2 S/4 D%2 S%4",
	  "Arm with bf16 matmul", false },
	{ "cpu-neon-bf16-kv-first",
	  "K:L K B H S/8 D/4 S%8 D%4 V:L K B H D/2 S/4 D%2 S%4",
	  "Arm with bf16 matmul", false },
	{ "sglang-pool", "K:LBSHD V:LBSHD", "SGLang device pool", false },
	{ "flashinfer-pair-nhd", "K:LBSHD V:LBSHD", "FlashInfer pair of tensors", false },
	{ "flashinfer-pair-hnd", "K:LBHSD V:LBHSD", "FlashInfer pair of tensors", false },

	/* recurrent states */
	{ "conv-sd", "LBSD", "conv state, taps outside channels", true },
	{ "conv-ds", "LBDS", "conv state, channels outside taps", true },
	{ "ssm", "LBHC", "SSM state", true },

	{ "vllm:LBNHC", "LBSHC", "vLLM since 0.32", false },
	{ "vllm:LBHNC", "LBHSC", "vLLM since 0.32", false },
	{ "vllm:BLNHC", "BLSHC", "vLLM since 0.32", false },
	{ "vllm:BLHNC", "BLHSC", "vLLM since 0.32", false },
	{ "vllm:BHLNC", "BHLSC", "vLLM since 0.32", false },
	{ "vllm:LHBNC", "LHBSC", "vLLM since 0.32", false },
	{ "kvbm:OperationalNHD", "BLKSHD", "Dynamo KVBM", false },
	{ "kvbm:OperationalHND", "BLKHSD", "Dynamo KVBM", false },
	{ "kvbm:UniversalTP", "BHLKSD", "Dynamo KVBM", false },
	{ "kvbm:UniversalPP", "BLHKSD", "Dynamo KVBM", false },
	{ "flexkv:LAYERFIRST", "LKBSHD", "FlexKV", false },
	{ "flexkv:BLOCKFIRST", "BLKSHD", "FlexKV", false },
	{ "flexkv:LAYERBLOCK", "LBKSHD", "FlexKV", false },
	{ "sglang:layer_first", "KLBSHD", "SGLang HiCache", false },
	{ "sglang:page_first", "KBSLHD", "SGLang HiCache", false },
	{ "sglang:page_first_direct", "KBLSHD", "SGLang HiCache", false },
	{ "sglang:page_head", "KBHSLD", "SGLang HiCache", false },
	{ "trtllm:pool", "BLKHSD", "TensorRT-LLM", false },
	{ "lmcache:NB_NL_TWO_BS_NH_HS", "BLKSHD", "LMCache", false },
	{ "lmcache:NL_X_TWO_NB_BS_NH_HS", "LKBSHD", "LMCache", false },
	{ "lmcache:NL_X_NB_TWO_BS_NH_HS", "LBKSHD", "LMCache", false },
	{ "lmcache:NL_X_NB_BS_HS", "LBSC", "LMCache", true },
	{ "lmcache:NL_X_NBBS_ONE_HS", "LBSC", "LMCache", true },
	{ "lmcache:TWO_X_NL_X_NBBS_NH_HS", "K:LBSHD V:LBSHD", "LMCache", false },
	{ "lmcache:TWO_X_NL_X_NB_BS_NH_HS", "K:LBSHD V:LBSHD", "LMCache", false },
	{ "lmcache:NL_X_TWO_NB_NH_BS_HS", "LKBHSD", "LMCache", false },
	{ "lmcache:NL_X_NB_TWO_NH_BS_HS", "LBKHSD", "LMCache", false },
	{ "lmcache:NB_NL_TWO_NH_BS_HS", "BLKHSD", "LMCache", false },
	{ "lmcache:NL_X_NB_NH_BS_TWO_HS", "LBHSC", "LMCache", false },
};
enum { NPRESETS = sizeof(presets) / sizeof(presets[0]) };

/* Names that say too little; each with what its users may have meant. */
static const struct {
	const char *name, *candidates;
} ambiguous[] = {
	{ "page-first",
	  "sglang:page_first (KBSLHD), sglang:page_first_direct (KBLSHD) or blshc (BLSHC)" },
	{ "block-first",
	  "flexkv:BLOCKFIRST (BLKSHD), blocks-first-nhd (LBKSHD) or blocks-first-hnd (LBKHSD)" },
	{ "blockfirst",
	  "flexkv:BLOCKFIRST (BLKSHD), blocks-first-nhd (LBKSHD) or blocks-first-hnd (LBKHSD)" },
	{ "blocks-first",
	  "blocks-first-nhd (LBKSHD), blocks-first-hnd (LBKHSD) or flexkv:BLOCKFIRST (BLKSHD)" },
	{ "layer-first", "sglang:layer_first (KLBSHD) or flexkv:LAYERFIRST (LKBSHD)" },
	{ "layerfirst", "flexkv:LAYERFIRST (LKBSHD) or sglang:layer_first (KLBSHD)" },
	{ "cross-layer",
	  "blshc (BLSHC), bhlsc (BHLSC), cross-nhd (BLKSHD), cross-hnd (BLKHSD), cross-flex (BLSKHD), cross-head (BHLKSD) or cross-kv-head (BKHLSD)" },
	{ "universal",      "kvbm:UniversalTP (BHLKSD) or kvbm:UniversalPP (BLHKSD)" },
	{ "kvbm:universal", "kvbm:UniversalTP (BHLKSD) or kvbm:UniversalPP (BLHKSD)" },
	{ "operational", "kvbm:OperationalNHD (BLKSHD) or kvbm:OperationalHND (BLKHSD)" },
	{ "kv-first",       "kv-first-nhd (LKBSHD) or kv-first-hnd (LKBHSD)" },
	{ "hicache",
	  "hicache-layer-first, hicache-page-first, hicache-page-first-direct or hicache-page-head" },
	{ "vllm:nhd",
	  "kv-first-nhd (LKBSHD, release 0.22), blocks-first-nhd (LBKSHD, 0.24) or nhd (LBSHC)" },
	{ "vllm:hnd",
	  "kv-first-hnd (LKBHSD, release 0.22), blocks-first-hnd (LBKHSD, 0.24) or hnd (LBHSC)" },
	{ "flashinfer:nhd",
	  "blocks-first-nhd (LBKSHD), flashinfer-pair-nhd (two buffers LBSHD) or, under vLLM since 0.26, nhd (LBSHC)" },
	{ "flashinfer:hnd",
	  "blocks-first-hnd (LBKHSD), flashinfer-pair-hnd (two buffers LBHSD) or, under vLLM since 0.26, hnd (LBHSC)" },
	{ "cpu",
	  "cpu-vec, cpu-amx or cpu-neon-bf16, by instruction set and element type; each also -kv-first" },
	{ "rocm",           "rocm-paged or rocm-paged-page" },
	{ "aiter",
	  "hnd, kv-first-nhd, blocks-first-nhd, aiter-shuffle or aiter-shuffle-kv-first" },
	{ "conv",           "conv-sd (LBSD) or conv-ds (LBDS)" },
};
enum { NAMBIGUOUS = sizeof(ambiguous) / sizeof(ambiguous[0]) };

/* Several planes per block, or several element types: no order says that. */
static const char *const beyond[] = {
	"nvfp4-hnd", "indexer", "indexer-rocm", "dsv4-main", "dsv4-swa", "mamba-page",
};
enum { NBEYOND = sizeof(beyond) / sizeof(beyond[0]) };

/* ---- finding ------------------------------------------------------------ */

/* Projects write page_first, page-first and "page first". */
static int fold(char c)
{
	return c == '_' || c == ' ' ? '-' : tolower((unsigned char)c);
}

static bool same_name(const char *a, const char *b)
{
	for (; *a && fold(*a) == fold(*b); a++)
		b++;
	return !*a && !*b;
}

/* "lbnhc" for "LBSHC". */
static bool same_letters(const char *text, const char *axes)
{
	for (; *text && *axes; text++, axes++) {
		int letter = tolower((unsigned char)*text);

		if ((letter == 'n' ? 's' : letter) != tolower((unsigned char)*axes))
			return false;
	}
	return !*text && !*axes;
}

const struct kvt_preset *kvt_preset_at(int i)
{
	return i >= 0 && i < NPRESETS ? &presets[i] : NULL;
}

const struct kvt_preset *kvt_preset_find(const char *name)
{
	for (int i = 0; i < NPRESETS; i++)
		if (same_name(name, presets[i].name))
			return &presets[i];
	for (int i = 0; i < NPRESETS; i++)
		if (same_letters(name, presets[i].axes))
			return &presets[i];
	return NULL;
}

enum kvt_status kvt_preset_refuse(const char *name, struct kvt_error *err)
{
	for (int i = 0; i < NAMBIGUOUS; i++)
		if (same_name(name, ambiguous[i].name))
			return kvt_fail(err, KVT_BAD_INPUT,
					"the name has several meanings, give %s",
					ambiguous[i].candidates);
	for (int i = 0; i < NBEYOND; i++)
		if (same_name(name, beyond[i]))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"its blocks cannot be described by an order of axes");
	return KVT_OK;
}

/* ---- suggesting --------------------------------------------------------- */

struct kvt_text kvt_layout_hint(const char *name)
{
	struct kvt_nearest near = kvt_nearest_start(name);

	for (int i = 0; i < NPRESETS; i++)
		kvt_nearest_offer(&near, presets[i].name);
	return kvt_nearest_hint(&near, "");
}
