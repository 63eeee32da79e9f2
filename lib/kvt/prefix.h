/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefix.h - the names that prefix caches give to the blocks of a prompt
 *
 * An engine calls a block by a hash of its tokens, of what else its cache depends on
 * (salt, LoRA, pictures), and of the block before: so a name is of a whole prefix, and
 * two prompts share blocks as far as names are equal.  Rules are rows of a table, one for
 * each range of releases that names alike; a chain is worked out block by block and is a
 * plain value: copy it to try several continuations.
 *
 *	struct kvt_prefix_key key = { .rule = kvt_prefix_rule_find("vllm"), .seed = "0" };
 *	struct kvt_prefix chain;
 *
 *	kvt_prefix_start(&chain, &key, err);
 *	kvt_prefix_next(&chain, tokens, 16, err);	 // chain.hash, kvt_prefix_name()
 *
 * Nothing here allocates; what a key points at is borrowed while chains of it are used.
 */
#ifndef KVT_PREFIX_H
#define KVT_PREFIX_H

#include <stddef.h>

#include "lib/kvt/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kvt_prefix_hash {
	KVT_PREFIX_DEFAULT,		/* the engine's own */
	KVT_PREFIX_SHA256,		/* of a pickle; in SGLang of bytes */
	KVT_PREFIX_SHA256_CBOR,
	KVT_PREFIX_XXHASH,		/* XXH3, 128 bits, of the same pickle */
	KVT_PREFIX_XXHASH_CBOR,
	KVT_PREFIX_BUILTIN,		/* hash() of a tuple, as CPython has it */
	KVT_PREFIX_BLAKE3,
	KVT_PREFIX_NHASHES,
};
const char *kvt_prefix_hash_name(enum kvt_prefix_hash hash);	/* "sha256_cbor" */
/* KVT_PREFIX_NHASHES: there is none of that name. */
enum kvt_prefix_hash kvt_prefix_hash_find(const char *name);

/* What is hashed, and what becomes of the hash. */
enum kvt_prefix_form {
	KVT_PREFIX_VLLM,		/* (parent, tokens, extras), all bytes of it */
	KVT_PREFIX_LMCACHE,		/* (parent, tokens, ()); 8 bytes as a number */
	KVT_PREFIX_LMCACHE_MP,		/* blake3; or as vLLM, without extras */
	KVT_PREFIX_SGLANG,		/* digest before it, tokens of 4 bytes */
	KVT_PREFIX_SGLANG_EVENT,	/* likewise; 8 bytes as a number with a sign */
};

/* What a key may say. */
enum kvt_prefix_part {
	KVT_PREFIX_SEED = 1, KVT_PREFIX_SALT = 2, KVT_PREFIX_LORA = 4,
	KVT_PREFIX_LORA_PATH = 8, KVT_PREFIX_ITEMS = 16, KVT_PREFIX_EXTRA_KEY = 32,
	KVT_PREFIX_WITHOUT_VLLM = 64,
};

/* How one range of releases of an engine names blocks. */
struct kvt_prefix_rule {
	const char *name;		/* "vllm", "vllm-0.30": --engine */
	const char *what;		/* "vLLM 0.31 and later" */
	const char *why_not;		/* NULL; else why names cannot be worked out */
	enum kvt_prefix_form form;
	unsigned hashes;		/* bits 1u << enum kvt_prefix_hash */
	enum kvt_prefix_hash usual;	/* the engine's default */
	unsigned parts;			/* of a key; others are refused, not ignored */
	bool tagged;			/* extras begin with what they are */
	bool random;			/* without a seed, whatever the hash */
	bool partial;			/* a last block that is not full has a name */
	int64_t block;			/* the engine's default, in tokens; 0: none */
};
const struct kvt_prefix_rule *kvt_prefix_rule_at(int i);	/* NULL past the last */
const struct kvt_prefix_rule *kvt_prefix_rule_find(const char *name);	/* or NULL */

/* What stands for a picture, or other data: tokens begin .. end-1 of the prompt. */
struct kvt_prefix_item {
	const char *id;			/* the engine's identifier of it */
	int64_t begin, end;
};

/* What names depend on besides tokens.  Zeroed but for 'rule' is a plain prompt. */
struct kvt_prefix_key {
	const struct kvt_prefix_rule *rule;
	enum kvt_prefix_hash hash;
	const char *seed;		/* PYTHONHASHSEED; NULL: it was not set */
	const char *salt;		/* NULL: none; "" is one */
	const char *extra_key;		/* SGLang's, likewise */
	const char *lora, *lora_path;	/* NULL: none; vLLM since 0.31 hashes the path */
	bool without_vllm;		/* LMCache where vLLM cannot be imported */
	int nitems;
	const struct kvt_prefix_item *item;	/* in the order of their tokens */
};

enum { KVT_PREFIX_BYTES = 32, KVT_PREFIX_NAME = 2 * KVT_PREFIX_BYTES + 1 };

/* A prefix: a prompt up to the end of some block. */
struct kvt_prefix {
	const struct kvt_prefix_key *key;
	enum kvt_prefix_hash algorithm;
	int64_t tokens;			/* of all its blocks */
	int nbytes;			/* of the hash; 0: SGLang, before any block */
	uint8_t hash[KVT_PREFIX_BYTES];	/* of the last block, or before any */
};

/*
 * The empty prefix.  KVT_BAD_INPUT: names depend on a seed that was not set, so that each
 * process had a random one that nothing keeps; the sentence says so.  KVT_USAGE: the
 * engine does not know such a part of a key, or such a hash.  KVT_UNSUPPORTED: a rule of
 * which no more than its name is known.
 */
KVT_MUST_CHECK enum kvt_status
kvt_prefix_start(struct kvt_prefix *out, const struct kvt_prefix_key *key,
		 struct kvt_error *err);

/*
 * One block more, of n tokens.  Whether the engine names a block that is not full is
 * rule->partial: the caller decides what a full one is.  KVT_BAD_INPUT: tokens that the
 * engine could not have hashed, or a block whose hash does not follow from values alone
 * (a pickle of two equal strings); KVT_UNSUPPORTED: more than 64 KiB in one block.  The
 * prefix is as before then.
 */
KVT_MUST_CHECK enum kvt_status
kvt_prefix_next(struct kvt_prefix *prefix, const int64_t *tokens, int64_t n,
		struct kvt_error *err);

/* As file names and keys have it: lower-case hex; of builtin Python's, "-18f1...". */
void kvt_prefix_name(char out[KVT_PREFIX_NAME], const struct kvt_prefix *prefix);

/* ---- where a block lies ---------------------------------------------------- */

/* What names of files and keys say besides the hash. */
struct kvt_prefix_place {
	const char *model;		/* NULL: only vLLM's need none */
	const char *dtype;		/* LMCache in the engine's process: "bfloat16" */
	struct kvt_rank rank;		/* of TP; size 0: none, as of MLA in SGLang */
	int64_t group;			/* of vLLM's and of LMCache's objects */
	const char *salt;		/* part of a key of LMCache's second level */
};

/*
 * "762/b2_g0/762b...bin" of vLLM, below the folder of the rank; the key of LMCache, the
 * file of its second level; the file of SGLang.  False: the rule has none, or needs more
 * than 'place' says, or it does not fit.
 */
bool kvt_prefix_file(char *out, size_t room, const struct kvt_prefix *prefix,
		     const struct kvt_prefix_place *place);

#ifdef __cplusplus
}
#endif

#endif
