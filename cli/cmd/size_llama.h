/* SPDX-License-Identifier: Apache-2.0 */
/* size_llama.h - kvtool size of a GGUF: what llama.cpp would allocate */
#ifndef KVTOOL_SIZE_LLAMA_H
#define KVTOOL_SIZE_LLAMA_H

#include "print/size.h"

struct size_llama_args {
	const char *type_k, *type_v;	/* NULL: not said */
	int64_t ubatch;			/* 0: not said */
	bool unified, swa_full, no_flash;
};

/* As llama.cpp calls them. */
#define OPT_LLAMA(p) \
	{ "cache-type-k", 0, OPT_STRING, &(p)->type_k, "TYPE", \
	  "of a GGUF: type of keys, such as q8_0; default f16" }, \
	{ "cache-type-v", 0, OPT_STRING, &(p)->type_v, "TYPE", \
	  "of a GGUF: type of values; default f16" }, \
	{ "unified", 0, OPT_FLAG, &(p)->unified, NULL, \
	  "of a GGUF: all requests share the cells (--kv-unified)" }, \
	{ "swa-full", 0, OPT_FLAG, &(p)->swa_full, NULL, \
	  "of a GGUF: windows have as many cells as the context" }, \
	{ "ubatch", 0, OPT_COUNT, &(p)->ubatch, "N", \
	  "of a GGUF: tokens of a batch that is computed at once; default 512" }, \
	{ "no-flash-attn", 0, OPT_FLAG, &(p)->no_flash, NULL, \
	  "of a GGUF: without flash attention" }

/* Options of vLLM that were given, of a GGUF, or of llama.cpp, of anything else. */
KVT_MUST_CHECK enum kvt_status
size_llama_check(const struct size_llama_args *a, bool is_gguf, const char *other,
		 struct kvt_error *err);

/* Prints; r->tokens, r->requests and r->memory count. */
KVT_MUST_CHECK enum kvt_status
size_llama(struct size_report *r, const struct size_llama_args *a, bool json,
	   struct kvt_error *err);

#endif
