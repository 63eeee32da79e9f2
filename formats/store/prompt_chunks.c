/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt_chunks.c - chunks that are named by hashes become the requests of prompts
 *
 * A chunk is as long as the store makes them; the last of a prompt may be shorter, and is
 * then called after the tokens that it has.
 */
#include <stdlib.h>

#include "formats/store/chains.h"

static bool has_chunk(const void *context, const char *name)
{
	return kvt_chunks_find(context, name) != NULL;
}

/* A name is the hash of so many tokens: a chunk of fewer was cut. */
static enum kvt_status check_tokens(const struct kvt_chunks *c,
				    const struct kvt_chunk_run *run, int64_t expected,
				    struct kvt_error *err)
{
	const struct kvt_chunk *chunk = &c->chunk[run->first];

	if (chunk->tokens == expected)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: chunk %.80s has %lld tokens, but its name is that of %lld",
			c->where, chunk->id, LL(chunk->tokens), LL(expected));
}

static enum kvt_status take_prompt(struct kvt_chains *out, int64_t *used, int64_t i,
				   struct kvt_leaf *leaf, const struct kvt_chunks *c,
				   const struct kvt_hints *hints, struct kvt_error *err)
{
	const struct kvt_prompt *prompt = &out->named.prompts.prompt[i];
	struct kvt_chain *chain = &out->chain[out->count++];
	int64_t n = out->named.count[i], left = prompt->ntokens;
	bool *there = calloc((size_t)n + 1, sizeof(*there));
	enum kvt_status status = there ? KVT_OK : kvt_no_memory(err, c->where);

	*chain = (struct kvt_chain){ prompt->name, 0, &out->runs[*used], 0 };
	for (int64_t k = 0; !status && k < n; k++, left -= c->full) {
		const char *name = out->named.name[i][k];
		const struct kvt_chunk_run *run = kvt_chunks_find(c, name);

		there[k] = run != NULL;
		if (run)
			status = check_tokens(c, run, left < c->full ? left : c->full,
					      err);
		if (run && chain->count == k)
			chain->run[chain->count++] = run - c->run;
	}
	*used += chain->count;
	if (!status)
		status = kvt_sought_add(leaf, prompt, "", there, n, c->full, chain->count,
					hints, err);
	free(there);
	return status;
}

enum kvt_status kvt_chains_of_prompts(struct kvt_chains *out, struct kvt_reader *reader,
				      const struct kvt_chunks *c,
				      const struct kvt_hints *hints,
				      struct kvt_error *err)
{
	int64_t names = 0, used = 0;
	enum kvt_status status;

	if (!c->named_by)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: --prompt: keys of its chunks are no hashes that kvtool knows how to make",
				c->where);
	if ((status = kvt_named_find(&out->named, c->named_by, c->full, has_chunk, c,
				     c->where, hints, err)))
		return status;
	for (int64_t i = 0; i < out->named.prompts.count; i++)
		names += out->named.count[i];
	if ((status = kvt_chains_reserve(out, out->named.prompts.count, names, c->where,
					 err)))
		return status;
	snprintf(reader->leaf.named_by, sizeof(reader->leaf.named_by), "%s",
		 out->named.how);
	for (int64_t i = 0; !status && i < out->named.prompts.count; i++)
		status = take_prompt(out, &used, i, &reader->leaf, c, hints, err);
	return status;
}
