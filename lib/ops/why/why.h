/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why.h - why a prefix cache has a prompt, or has not: by the names of its blocks
 *
 * What a name depends on is a rule; two prompts share a cache as far as their names are
 * the same, and where they part, it is for a token or for something in their rules.
 */
#ifndef KVT_WHY_H
#define KVT_WHY_H

#include "lib/kvt/prefix.h"

/* What may be different. */
enum kvt_why_part {
	KVT_WHY_ENGINE, KVT_WHY_HASH, KVT_WHY_SEED, KVT_WHY_SALT, KVT_WHY_EXTRA_KEY,
	KVT_WHY_LORA, KVT_WHY_PICTURES, KVT_WHY_WITHOUT_VLLM, KVT_WHY_BLOCK_SIZE,
	KVT_WHY_TOKEN, KVT_WHY_NOT_FULL, KVT_WHY_NPARTS,
};
const char *kvt_why_part_name(enum kvt_why_part part);		/* "block-size" */

struct kvt_why_rule {
	struct kvt_prefix_key key;
	int64_t block;			/* tokens of one name */
};

struct kvt_why_prompt {
	const char *name;
	const int64_t *token;
	int64_t ntokens;
	struct kvt_why_rule rule;
};

/* The names of a prompt: of full blocks; of what is left, where the engine names it. */
struct kvt_why_chain {
	struct kvt_prefix *block;	/* owned */
	int64_t nblocks, over;		/* over: tokens that no name is of */
	struct kvt_why_rule rule;	/* a chain stays where it is */
};
/* At most 'most' blocks of it; 0: all. */
KVT_MUST_CHECK enum kvt_status
kvt_why_chain(struct kvt_why_chain *out, const struct kvt_why_prompt *prompt,
	      int64_t most, struct kvt_error *err);
void kvt_why_chain_free(struct kvt_why_chain *chain);

/* ---- two prompts: pair.c ------------------------------------------------ */

struct kvt_why_pair {
	int64_t nblocks[2], over[2];
	int64_t same;			/* blocks from the first on */
	unsigned causes;		/* bits 1u << part, of block 'same'; or 0 */
	int64_t token;			/* the first that differs; -1: none does */
};
KVT_MUST_CHECK enum kvt_status
kvt_why_pair(struct kvt_why_pair *out, const struct kvt_why_prompt prompt[2],
	     struct kvt_error *err);

/* ---- names that are there: near.c --------------------------------------- */

/* Is this one there? */
typedef bool kvt_why_has_fn(void *context, const struct kvt_prefix *prefix);

enum { KVT_WHY_MORE = 16 };

/* Salts and LoRAs that were seen there, to be tried, too. */
struct kvt_why_seen {
	int nsalts, nloras;
	const char *salt[KVT_WHY_MORE], *lora[KVT_WHY_MORE];
};

struct kvt_why_near {
	unsigned changed;		/* bits 1u << part; 0: nothing was found */
	struct kvt_why_rule rule;
	int64_t tried;			/* how many others */
	int64_t block;			/* the first that is there */
	char text[300];			/* "seed 0, blocks of 32" */
};

/*
 * Under what else would the first blocks of a prompt be there?  Those that change least
 * are tried first.  What was told of a rule is kept where the answer does not need it.
 */
void kvt_why_near(struct kvt_why_near *out, const struct kvt_why_prompt *prompt,
		  const struct kvt_why_seen *seen, kvt_why_has_fn *has, void *context);

#endif
