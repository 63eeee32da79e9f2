/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.c - where the names of two prompts part, and why
 *
 * That something differs does not make it a cause: a salt is one from the first block on,
 * a picture where it begins, a token in its block, a seed in all engines but SGLang.  So
 * each difference is tried alone, on the first prompt: those after which names part in
 * the very block in which they do are the causes.
 */
#include "lib/ops/why/why.h"

#include <string.h>

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_items(const struct kvt_prefix_key *a, const struct kvt_prefix_key *b)
{
	for (int i = 0; i < a->nitems && i < b->nitems; i++)
		if (strcmp(a->item[i].id, b->item[i].id) ||
		    a->item[i].begin != b->item[i].begin ||
		    a->item[i].end != b->item[i].end)
			return false;
	return a->nitems == b->nitems;
}

/* Gives *to that part of 'from'; was it another one? */
static bool take_part(struct kvt_why_prompt *to, const struct kvt_why_prompt *from,
		      enum kvt_why_part part)
{
	struct kvt_prefix_key *a = &to->rule.key;
	const struct kvt_prefix_key *b = &from->rule.key;
	struct kvt_why_prompt before = *to;

	switch (part) {
	case KVT_WHY_ENGINE:
		a->rule = b->rule;
		return before.rule.key.rule != b->rule;
	case KVT_WHY_HASH:
		a->hash = b->hash;
		return before.rule.key.hash != b->hash;
	case KVT_WHY_SEED:
		a->seed = b->seed;
		return !same_text(before.rule.key.seed, b->seed);
	case KVT_WHY_SALT:
		a->salt = b->salt;
		return !same_text(before.rule.key.salt, b->salt);
	case KVT_WHY_EXTRA_KEY:
		a->extra_key = b->extra_key;
		return !same_text(before.rule.key.extra_key, b->extra_key);
	case KVT_WHY_LORA:
		a->lora = b->lora;
		a->lora_path = b->lora_path;
		return !same_text(before.rule.key.lora, b->lora) ||
		       !same_text(before.rule.key.lora_path, b->lora_path);
	case KVT_WHY_PICTURES:
		a->nitems = b->nitems;
		a->item = b->item;
		return !same_items(&before.rule.key, b);
	case KVT_WHY_WITHOUT_VLLM:
		a->without_vllm = b->without_vllm;
		return before.rule.key.without_vllm != b->without_vllm;
	case KVT_WHY_BLOCK_SIZE:
		to->rule.block = from->rule.block;
		return before.rule.block != from->rule.block;
	case KVT_WHY_TOKEN:
		to->token = from->token;
		to->ntokens = from->ntokens;
		return true;
	case KVT_WHY_NOT_FULL:
	case KVT_WHY_NPARTS:
		break;
	}
	return false;
}

/* Blocks of which both have the same name; a name is of no block of another size. */
static int64_t same_blocks(const struct kvt_why_chain *a, const struct kvt_why_chain *b)
{
	int64_t n = a->nblocks < b->nblocks ? a->nblocks : b->nblocks, i = 0;
	char x[KVT_PREFIX_NAME], y[KVT_PREFIX_NAME];

	if (a->rule.block != b->rule.block)
		return 0;
	for (; i < n; i++) {
		kvt_prefix_name(x, &a->block[i]);
		kvt_prefix_name(y, &b->block[i]);
		if (strcmp(x, y))
			break;
	}
	return i;
}

static int64_t first_token(const struct kvt_why_prompt p[2])
{
	int64_t n = p[0].ntokens < p[1].ntokens ? p[0].ntokens : p[1].ntokens;

	for (int64_t i = 0; i < n; i++)
		if (p[0].token[i] != p[1].token[i])
			return i;
	return -1;
}

/*
 * Does this part alone make names part in block 'at'?  One that the first prompt's rule
 * cannot take - another engine's - is a cause from the first block on.
 */
static enum kvt_status is_cause(bool *out, const struct kvt_why_prompt p[2],
				const struct kvt_why_chain *chain, enum kvt_why_part part,
				int64_t at, struct kvt_error *err)
{
	struct kvt_why_prompt changed = p[0];
	struct kvt_why_chain other;
	struct kvt_error why = { "" };
	enum kvt_status status;

	*out = false;
	if (!take_part(&changed, &p[1], part))
		return KVT_OK;
	status = kvt_why_chain(&other, &changed, at + 1, &why);
	if (status == KVT_SYSTEM)
		return kvt_fail(err, status, "%s", why.text);
	*out = status ? at == 0 : other.nblocks > at && same_blocks(chain, &other) == at;
	kvt_why_chain_free(&other);
	return KVT_OK;
}

enum kvt_status kvt_why_pair(struct kvt_why_pair *out, const struct kvt_why_prompt p[2],
			     struct kvt_error *err)
{
	struct kvt_why_chain chain[2] = { { 0 }, { 0 } };
	enum kvt_status status = KVT_OK;
	bool is;

	*out = (struct kvt_why_pair){ .token = first_token(p) };
	for (int i = 0; !status && i < 2; i++) {
		status = kvt_why_chain(&chain[i], &p[i], 0, err);
		out->nblocks[i] = chain[i].nblocks;
		out->over[i] = chain[i].over;
	}
	if (!status)
		out->same = same_blocks(&chain[0], &chain[1]);
	if (!status && out->same < chain[0].nblocks && out->same < chain[1].nblocks) {
		for (int part = 0; !status && part < KVT_WHY_NOT_FULL; part++) {
			status = is_cause(&is, p, &chain[0], part, out->same, err);
			out->causes |= (unsigned)(!status && is) << part;
		}
	} else if (!status && out->nblocks[0] != out->nblocks[1]) {
		out->causes = 1u << KVT_WHY_NOT_FULL;
	}
	kvt_why_chain_free(&chain[0]);
	kvt_why_chain_free(&chain[1]);
	return status;
}
