/* SPDX-License-Identifier: Apache-2.0 */
/* naming.h - options for what names of blocks depend on, and prompts: prefix and why */
#ifndef KVTOOL_NAMING_H
#define KVTOOL_NAMING_H

#include "cli/opt.h"
#include "formats/manifest/prompts.h"
#include "lib/kvt/prefix.h"

enum { NAMING_ITEMS = 32, NAMING_LORA = 256 };

/* Zeroed, then filled by the rows of NAMING_OPTS(). */
struct naming_said {
	struct opt_strings prompts, items;
	const char *engine, *hash, *seed, *salt, *extra_key, *lora;
	bool without_vllm;
	int64_t block_size;
	/* room for what a key points at */
	char lora_name[NAMING_LORA], *copy[NAMING_ITEMS];
	struct kvt_prefix_item item[NAMING_ITEMS];
};

#define NAMING_OPTS(p) \
	{ "prompt", 0, OPT_STRINGS, &(p)->prompts, "[NAME=]FILE|-|N,N,...", \
	  "token ids: JSON, npy, or a number on each line" }, \
	{ "engine", 0, OPT_STRING, &(p)->engine, "NAME", \
	  "who names: vllm, lmcache, sglang, ...; or list" }, \
	{ "block-size", 0, OPT_COUNT, &(p)->block_size, "N", \
	  "tokens in a block, a page or a chunk" }, \
	{ "hash", 0, OPT_STRING, &(p)->hash, "NAME", \
	  "sha256, sha256_cbor, xxhash, xxhash_cbor, builtin, blake3" }, \
	{ "seed", 0, OPT_STRING, &(p)->seed, "TEXT", \
	  "what PYTHONHASHSEED was set to; default: it was not" }, \
	{ "salt", 0, OPT_STRING, &(p)->salt, "TEXT", "cache salt of the request" }, \
	{ "extra-key", 0, OPT_STRING, &(p)->extra_key, "TEXT", \
	  "extra key of the request (SGLang)" }, \
	{ "lora", 0, OPT_STRING, &(p)->lora, "NAME[=PATH]", \
	  "LoRA of the request; vLLM since 0.31 names by its path, too" }, \
	{ "item", 0, OPT_STRINGS, &(p)->items, "ID:BEGIN-END", \
	  "a picture and the tokens that stand for it" }, \
	{ "without-vllm", 0, OPT_FLAG, &(p)->without_vllm, NULL, \
	  "LMCache ran where vLLM could not be imported" }

/* --engine=list: prints the rules; was it said? */
bool naming_list(const struct naming_said *said);

/*
 * The key, and tokens of a block: as the engine has them where nothing was said.
 * KVT_USAGE where it has none, too, or where an option is no such thing.
 */
KVT_MUST_CHECK enum kvt_status
naming_take(struct kvt_prefix_key *key, int64_t *block_size, struct naming_said *said,
	    struct kvt_error *err);
/* Of a key alone: names of an engine, of a hash (or NULL); "NAME[=PATH]". */
KVT_MUST_CHECK enum kvt_status
naming_engine(struct kvt_prefix_key *key, const char *engine, const char *hash,
	      struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
naming_lora(struct kvt_prefix_key *key, char room[NAMING_LORA], const char *text,
	    struct kvt_error *err);

/* "-" is standard input, once. */
KVT_MUST_CHECK enum kvt_status
naming_prompts(struct kvt_prompts *out, const struct naming_said *said,
	       struct kvt_error *err);
void naming_free(struct naming_said *said);

#endif
