/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rule.c - what names depend on, from the options of kvtool why
 *
 * All prompts have one rule, which cli/naming.c reads from the options.  The second of
 * two has the same facts but for those that --other names:
 *
 *	KEY=VALUE	engine, hash, seed, salt, extra-key, lora, block-size
 *	no-KEY		seed, salt, extra-key, lora, item: it has none
 *
 * They are taken in the order of the command line: a hash is one of the engine so far.
 */
#include "cli/why/why.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/number.h"

bool why_has_rule(const struct why *w)
{
	const struct naming_said *s = &w->said;

	return s->engine || s->hash || s->seed || s->salt || s->extra_key || s->lora ||
	       s->items.n || s->block_size || s->without_vllm;
}

enum kvt_status why_rules(struct why *w, struct kvt_error *err)
{
	enum kvt_status status;

	if (!w->said.engine)
		return kvt_fail(err, KVT_USAGE,
				"who names blocks must be said: --engine=vllm, or another one that kvtool prefix --engine=list prints");
	if ((status = naming_take(&w->rule.key, &w->rule.block, &w->said, err)))
		return status;
	w->prompt = calloc((size_t)w->prompts.count + 1, sizeof(*w->prompt));
	if (!w->prompt)
		return kvt_no_memory(err, NULL);
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
		return naming_engine(&out->key, fact + 7, NULL, err);
	if (!strncmp(fact, "hash=", 5))
		return naming_engine(&out->key, out->key.rule->name, fact + 5, err);
	if (!strncmp(fact, "block-size=", 11) &&
	    kvt_number_parse(&out->block, fact + 11) && out->block > 0 &&
	    out->block <= INT32_MAX)
		return KVT_OK;
	if (!strncmp(fact, "lora=", 5))
		return naming_lora(&out->key, w->other_lora, fact + 5, err);
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
	for (int i = 0; !status && i < w->other.n; i++)
		status = take_fact(out, w, w->other.s[i], err);
	return status;
}
