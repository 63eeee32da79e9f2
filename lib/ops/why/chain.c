/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.c - the names of a prompt, block by block
 *
 * Each name is made of the one before it and of its own tokens, so two chains part once
 * and for all: names behind the first that differs differ, too.  A block that is not
 * full has a name only where the engine's rule gives it one.
 */
#include "lib/ops/why/why.h"

#include <stdlib.h>

const char *kvt_why_part_name(enum kvt_why_part part)
{
	static const char *const names[KVT_WHY_NPARTS] = {
		"engine", "hash", "seed", "salt", "extra-key", "lora", "pictures",
		"without-vllm", "block-size", "token", "not-full",
	};

	return names[part];
}

void kvt_why_chain_free(struct kvt_why_chain *chain)
{
	free(chain->block);
	*chain = (struct kvt_why_chain){ 0 };
}

enum kvt_status kvt_why_chain(struct kvt_why_chain *out,
			      const struct kvt_why_prompt *prompt, int64_t most,
			      struct kvt_error *err)
{
	int64_t size = prompt->rule.block, n = prompt->ntokens / size;
	struct kvt_prefix chain;
	enum kvt_status status;

	n += prompt->rule.key.rule->partial && prompt->ntokens % size;
	n = most && n > most ? most : n;
	*out = (struct kvt_why_chain){ .rule = prompt->rule };
	if ((status = kvt_prefix_start(&chain, &out->rule.key, err)))
		return status;
	if (!(out->block = malloc((size_t)(n + !n) * sizeof(*out->block))))
		return kvt_no_memory(err, NULL);
	for (; out->nblocks < n; out->nblocks++) {
		int64_t begin = out->nblocks * size, left = prompt->ntokens - begin;

		status = kvt_prefix_next(&chain, prompt->token + begin,
					 left < size ? left : size, err);
		if (status) {
			kvt_why_chain_free(out);
			return status;
		}
		out->block[out->nblocks] = chain;
	}
	out->over = prompt->ntokens - chain.tokens;
	return KVT_OK;
}
