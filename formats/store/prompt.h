/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt.h - files that are named by hashes, and the prompts whose blocks they are
 *
 * Whoever has the token ids of a prompt can work out what its blocks are called, in
 * order, so a tree that knows no requests has some.  How names were made is in no file: a
 * few ways are tried, and one block that is called so proves all of it, for a name is the
 * hash of a whole prefix.
 */
#ifndef KVT_STORE_PROMPT_H
#define KVT_STORE_PROMPT_H

#include "formats/format.h"
#include "formats/manifest/prompts.h"
#include "lib/kvt/prefix.h"

/* Prompts, and what the blocks of each are called by the way that was found. */
struct kvt_named {
	struct kvt_prompts prompts;
	int64_t unit;			/* tokens that a name more is of */
	char (**name)[KVT_PREFIX_NAME];	/* of each prompt, in order; owned */
	int64_t *count;			/* of names of each prompt; owned */
	bool partial;			/* a last one that is not full has a name */
	char how[128];			/* "sha256, seed 0, by vLLM 0.31 and later" */
};

/*
 * Reads hints->prompts and finds how names of 'family' were made: "vllm", "lmcache",
 * "lmcache-mp", "sglang".  'has' says whether there is a block of that name.  If there is
 * none of any prompt by any way, KVT_BAD_INPUT, unless the user said all of it.
 */
KVT_MUST_CHECK enum kvt_status
kvt_named_find(struct kvt_named *out, const char *family, int64_t unit,
	       bool (*has)(const void *context, const char *name), const void *context,
	       const char *path, const struct kvt_hints *hints, struct kvt_error *err);
void kvt_named_free(struct kvt_named *named);

/*
 * What is there of a prompt becomes one of leaf->sought; 'there' has a flag for each file
 * of 'each' tokens, 'reached' says how many of them a reader comes to.
 */
KVT_MUST_CHECK enum kvt_status
kvt_sought_add(struct kvt_leaf *leaf, const struct kvt_prompt *prompt, const char *group,
	       const bool *there, int64_t count, int64_t each, int64_t reached,
	       const struct kvt_hints *hints, struct kvt_error *err);

/*
 * Requests of a reader whose groups have names of blocks, HASH or HASH:PLACE.  Each is as
 * long as its blocks follow each other in all groups; of one with a window the last ones
 * are enough.
 */
KVT_MUST_CHECK enum kvt_status
kvt_prompt_place(struct kvt_reader *reader, const struct kvt_hints *hints,
		 struct kvt_error *err);

#endif
