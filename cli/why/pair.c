/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.c - where the names of two prompts part, and why, in words
 *
 * A name is of all blocks before it, so only the first one that differs has a cause; the
 * later ones follow.  lib/ops/why finds it, by changing one fact at a time.
 */
#include "cli/why/why.h"

#include <string.h>

struct human why_blocks(int64_t begin, int64_t end)
{
	struct human text;

	if (end - begin == 1)
		snprintf(text.s, sizeof(text.s), "block %lld", LL(begin));
	else
		snprintf(text.s, sizeof(text.s), "blocks %lld to %lld", LL(begin),
			 LL(end - 1));
	return text;
}

static void say_prompt(const struct kvt_why_prompt *p, int64_t nblocks, int64_t over)
{
	plainf("%s: %lld token%s, %lld block%s of %lld", p->name, LL(p->ntokens),
	       plural(p->ntokens), LL(nblocks), plural(nblocks), LL(p->rule.block));
	if (over)
		plainf(", and %lld token%s that no name is of", LL(over), plural(over));
	plainf("\n");
}

static const char *text_or_none(const char *text)
{
	return text ? text : "none";
}

/* "salt: s1, none" */
static void say_cause(const struct kvt_why_prompt p[2], enum kvt_why_part part)
{
	const struct kvt_prefix_key *a = &p[0].rule.key, *b = &p[1].rule.key;

	plainf("  %s", kvt_why_part_name(part));
	switch (part) {
	case KVT_WHY_ENGINE:
		plainf(": %s, %s", a->rule->name, b->rule->name);
		break;
	case KVT_WHY_HASH:
		plainf(": %s, %s", kvt_prefix_hash_name(a->hash),
		       kvt_prefix_hash_name(b->hash));
		break;
	case KVT_WHY_SEED:
		plainf(": %s, %s", a->seed ? a->seed : "not set",
		       b->seed ? b->seed : "not set");
		break;
	case KVT_WHY_SALT:
		plainf(": %s, %s", text_or_none(a->salt), text_or_none(b->salt));
		break;
	case KVT_WHY_EXTRA_KEY:
		plainf(": %s, %s", text_or_none(a->extra_key),
		       text_or_none(b->extra_key));
		break;
	case KVT_WHY_LORA:
		plainf(": %s, %s", text_or_none(a->lora), text_or_none(b->lora));
		break;
	case KVT_WHY_BLOCK_SIZE:
		plainf(": %lld, %lld", LL(p[0].rule.block), LL(p[1].rule.block));
		break;
	default:
		break;
	}
	plainf("\n");
}

static void say_token(const struct why *w, const struct kvt_why_prompt p[2],
		      const struct kvt_why_pair *r)
{
	plainf("  token %lld", LL(r->token));
	if (w->tokens)
		plainf(": %lld, %lld", LL(p[0].token[r->token]),
		       LL(p[1].token[r->token]));
	plainf("\n");
}

static void say_not_full(const struct kvt_why_prompt p[2], const struct kvt_why_pair *r)
{
	int which = r->nblocks[1] < r->nblocks[0];

	if (r->over[which])
		plainf("  not-full: %s has %lld of the %lld tokens of block %lld\n",
		       p[which].name, LL(r->over[which]), LL(p[which].rule.block),
		       LL(r->same));
	else
		plainf("  not-full: %s ends before block %lld\n", p[which].name,
		       LL(r->same));
}

static void print_pair(const struct why *w, const struct kvt_why_prompt p[2],
		       const struct kvt_why_pair *r)
{
	for (int i = 0; i < 2; i++)
		say_prompt(&p[i], r->nblocks[i], r->over[i]);
	if (r->same)
		plainf("%s: the same names\n", why_blocks(0, r->same).s);
	if (!r->causes) {
		plainf("no block has a name of its own\n");
		return;
	}
	plainf("block %lld: the first that differs\n", LL(r->same));
	for (int part = 0; part < KVT_WHY_TOKEN; part++)
		if (r->causes & 1u << part)
			say_cause(p, part);
	if (r->causes & 1u << KVT_WHY_NOT_FULL)
		say_not_full(p, r);
	if (r->causes & 1u << KVT_WHY_TOKEN ||
	    (r->token >= 0 && r->causes & 1u << KVT_WHY_NOT_FULL))
		say_token(w, p, r);
}

static void put_pair(struct why *w, const struct kvt_why_prompt p[2],
		     const struct kvt_why_pair *r)
{
	struct json_out *out = &w->out;
	json_t *list = json_put_array(out, out->root, "prompts"), *o;

	for (int i = 0; i < 2; i++) {
		o = json_append_object(out, list);
		json_put_text(out, o, "prompt", p[i].name);
		json_put_int(out, o, "tokens", p[i].ntokens);
		json_put_int(out, o, "blocks", r->nblocks[i]);
		json_put_int(out, o, "block_size", p[i].rule.block);
		json_put_int(out, o, "tokens_over", r->over[i]);
	}
	json_put_int(out, out->root, "same_blocks", r->same);
	list = json_put_array(out, out->root, "causes");
	for (int part = 0; part < KVT_WHY_NPARTS; part++)
		if (r->causes & 1u << part)
			json_append_text(out, list, kvt_why_part_name(part));
	json_put_known(out, out->root, "token", r->token, r->token >= 0);
}

enum kvt_status why_pair(struct why *w, struct kvt_error *err)
{
	struct kvt_why_prompt p[2] = { w->prompt[0], w->prompt[w->prompts.count - 1] };
	struct kvt_why_pair result;
	enum kvt_status status = why_other_rule(&p[1].rule, w, err);

	if (!status)
		status = kvt_why_pair(&result, p, err);
	if (status)
		return status;
	if (w->json) {
		put_pair(w, p, &result);
		status = json_print(&w->out, false, err);
	} else {
		print_pair(w, p, &result);
	}
	return status ? status : result.causes ? KVT_MISMATCH : KVT_OK;
}
