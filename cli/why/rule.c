/* SPDX-License-Identifier: Apache-2.0 */
/* rule.c - what names depend on, from the options of kvtool why */
#include "cli/why/why.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/number.h"

bool why_has_rule(const struct why *w)
{
	const struct why_said *s = &w->said;

	return s->engine || s->hash || s->seed || s->salt || s->extra_key || s->lora ||
	       s->item.n || s->block_size || s->without_vllm;
}

/* "ID:BEGIN-END"; an id may have colons of its own. */
static enum kvt_status take_item(struct why *w, const char *text, struct kvt_error *err)
{
	int n = w->rule.key.nitems;
	struct kvt_prefix_item *item = &w->item[n];
	const char *colon = strrchr(text, ':'), *at = colon ? colon + 1 : "";
	size_t length = colon ? (size_t)(colon - text) : 0;

	if (n == WHY_ITEMS || length >= sizeof(w->item_text[0]))
		return kvt_fail(err, KVT_USAGE,
				"--item: more than %d, or an identifier that is longer than %zu bytes",
				WHY_ITEMS, sizeof(w->item_text[0]) - 1);
	if (!length || !kvt_number_take(&item->begin, &at) || *at++ != '-' ||
	    !kvt_number_take(&item->end, &at) || *at || item->end <= item->begin)
		return kvt_fail(err, KVT_USAGE,
				"--item is '%.100s', expected ID:BEGIN-END, the tokens that stand for it, END not among them",
				text);
	if (n && item->begin < item[-1].end)
		return kvt_fail(err, KVT_USAGE,
				"--item %.80s begins before the one before it ends; give them in the order of their tokens",
				text);
	memcpy(w->item_text[n], text, length);
	w->item_text[n][length] = '\0';
	item->id = w->item_text[n];
	w->rule.key.item = w->item;
	w->rule.key.nitems++;
	return KVT_OK;
}

/* "NAME" or "NAME=PATH"; the name lies in 'room' then. */
static enum kvt_status take_lora(struct kvt_prefix_key *key, char room[WHY_LORA],
				 const char *text, struct kvt_error *err)
{
	const char *equals = strchr(text, '=');
	size_t length = equals ? (size_t)(equals - text) : strlen(text);

	if (length >= WHY_LORA)
		return kvt_fail(err, KVT_USAGE, "--lora has a longer name than %d bytes",
				WHY_LORA - 1);
	memcpy(room, text, length);
	room[length] = '\0';
	key->lora = room;
	key->lora_path = equals ? equals + 1 : NULL;
	return KVT_OK;
}

static enum kvt_status take_engine(struct kvt_prefix_key *key, const char *name,
				   struct kvt_error *err)
{
	const struct kvt_prefix_rule *rule;
	char list[400] = "";

	if ((key->rule = kvt_prefix_rule_find(name)))
		return KVT_OK;
	for (int i = 0; (rule = kvt_prefix_rule_at(i)); i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
			 i ? ", " : "", rule->name);
	return kvt_fail(err, KVT_USAGE, "--engine is '%.60s', expected one of %s", name,
			list);
}

static enum kvt_status take_hash(struct kvt_prefix_key *key, const char *name,
				 struct kvt_error *err)
{
	key->hash = kvt_prefix_hash_find(name);
	return key->hash != KVT_PREFIX_NHASHES ? KVT_OK :
	       kvt_fail(err, KVT_USAGE,
			"--hash is '%.60s', expected sha256, sha256_cbor, xxhash, xxhash_cbor, builtin or blake3",
			name);
}

static enum kvt_status take_rule(struct why *w, struct kvt_error *err)
{
	const struct why_said *s = &w->said;
	struct kvt_prefix_key *key = &w->rule.key;
	enum kvt_status status = KVT_OK;

	if (s->engine)
		status = take_engine(key, s->engine, err);
	if (!status && s->hash)
		status = take_hash(key, s->hash, err);
	for (int i = 0; !status && i < s->item.n; i++)
		status = take_item(w, s->item.s[i], err);
	if (!status && s->lora)
		status = take_lora(key, w->lora[0], s->lora, err);
	key->seed = s->seed;
	key->salt = s->salt;
	key->extra_key = s->extra_key;
	key->without_vllm = s->without_vllm;
	w->rule.block = s->block_size;
	return status;
}

enum kvt_status why_rules(struct why *w, struct kvt_error *err)
{
	enum kvt_status status = take_rule(w, err);

	if (status)
		return status;
	if (!w->rule.key.rule)
		return kvt_fail(err, KVT_USAGE,
				"what names blocks must be said: --engine=vllm, or another of kvtool prefix --help");
	if (!w->rule.block)
		w->rule.block = w->rule.key.rule->block;
	if (!w->rule.block)
		return kvt_fail(err, KVT_USAGE,
				"how many tokens a block has must be said: --block-size=16, or what the engine was given");
	w->prompt = calloc((size_t)w->prompts.count + 1, sizeof(*w->prompt));
	if (!w->prompt)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t i = 0; i < w->prompts.count; i++)
		w->prompt[i] = (struct kvt_why_prompt){
			w->prompts.prompt[i].name, w->prompts.prompt[i].token,
			w->prompts.prompt[i].ntokens, w->rule,
		};
	return KVT_OK;
}

/* ---- of a second prompt ------------------------------------------------- */

static enum kvt_status take_fact(struct kvt_why_rule *out, struct why *w,
				 const char *fact, struct kvt_error *err)
{
	const struct {
		const char *name, **text;
	} texts[] = {
		{ "seed=", &out->key.seed }, { "salt=", &out->key.salt },
		{ "extra-key=", &out->key.extra_key },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		size_t n = strlen(texts[i].name);

		if (!strncmp(fact, texts[i].name, n)) {
			*texts[i].text = fact + n;
			return KVT_OK;
		}
		/* "no-salt" */
		if (!strncmp(fact, "no-", 3) && strlen(fact) == n + 2 &&
		    !strncmp(fact + 3, texts[i].name, n - 1)) {
			*texts[i].text = NULL;
			return KVT_OK;
		}
	}
	if (!strncmp(fact, "engine=", 7))
		return take_engine(&out->key, fact + 7, err);
	if (!strncmp(fact, "hash=", 5))
		return take_hash(&out->key, fact + 5, err);
	if (!strncmp(fact, "block-size=", 11) &&
	    kvt_number_parse(&out->block, fact + 11) && out->block > 0 &&
	    out->block <= INT32_MAX)
		return KVT_OK;
	if (!strncmp(fact, "lora=", 5))
		return take_lora(&out->key, w->lora[1], fact + 5, err);
	if (!strcmp(fact, "no-lora")) {
		out->key.lora = out->key.lora_path = NULL;
		return KVT_OK;
	}
	if (!strcmp(fact, "no-item")) {
		out->key.nitems = 0;
		return KVT_OK;
	}
	return kvt_fail(err, KVT_USAGE,
			"--other is '%.60s', expected engine=, hash=, seed=, salt=, extra-key=, lora= or block-size=, or no-seed, no-salt, no-extra-key, no-lora or no-item",
			fact);
}

enum kvt_status why_other_rule(struct kvt_why_rule *out, struct why *w,
			       struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*out = w->rule;
	for (int i = 0; !status && i < w->said.other.n; i++)
		status = take_fact(out, w, w->said.other.s[i], err);
	return status;
}
