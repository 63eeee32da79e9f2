/* SPDX-License-Identifier: Apache-2.0 */
/*
 * naming.c - what names of blocks depend on, as options say it
 *
 * prefix and why have the same options, and engines ignore what they do not hash: so each
 * is taken into a key here, and refused where the engine's rule has no place for it.
 */
#include "cli/naming.h"
#include "lib/base/number.h"
#include "print/out/streams.h"

#include <stdlib.h>
#include <string.h>

static void print_rules(void)
{
	const struct kvt_prefix_rule *rule;

	for (int i = 0; (rule = kvt_prefix_rule_at(i)); i++) {
		const char *comma = "";

		plainf("%-14s %s: ", rule->name, rule->what);
		for (int h = 1; !rule->why_not && h < KVT_PREFIX_NHASHES; h++) {
			if (!(rule->hashes & 1u << h))
				continue;
			plainf("%s%s%s", comma, kvt_prefix_hash_name(h),
			       h == (int)rule->usual ? " (default)" : "");
			comma = ", ";
		}
		plainf("%s%s\n", rule->why_not ? "not known, " : "",
		       rule->why_not ? rule->why_not : "");
	}
}

bool naming_list(const struct naming_said *said)
{
	if (!said->engine || strcmp(said->engine, "list"))
		return false;
	print_rules();
	return true;
}

/* "ID:BEGIN-END": ids may have a colon. */
static enum kvt_status take_item(struct kvt_prefix_key *key, struct naming_said *all,
				 char *said, struct kvt_error *err)
{
	struct kvt_prefix_item *item = &all->item[key->nitems];
	char *colon = strrchr(said, ':');
	const char *at = colon ? colon + 1 : "";

	if (!colon || colon == said || !kvt_number_take(&item->begin, &at) ||
	    *at++ != '-' || !kvt_number_take(&item->end, &at) || *at ||
	    item->end <= item->begin)
		return kvt_fail(err, KVT_USAGE,
				"--item is '%.100s', expected ID:BEGIN-END, the tokens that stand for it, END not among them",
				said);
	*colon = '\0';
	item->id = said;
	if (key->nitems && item->begin < item[-1].end)
		return kvt_fail(err, KVT_USAGE,
				"--item %.80s begins before the one before it ends; give them in the order of their tokens",
				said);
	key->nitems++;
	key->item = all->item;
	return KVT_OK;
}

enum kvt_status naming_engine(struct kvt_prefix_key *key, const char *engine,
			      const char *hash, struct kvt_error *err)
{
	if (!(key->rule = kvt_prefix_rule_find(engine)))
		return kvt_fail(err, KVT_USAGE,
				"--engine is '%.40s', which is none; kvtool prefix --engine=list prints all",
				engine);
	if (hash && (key->hash = kvt_prefix_hash_find(hash)) == KVT_PREFIX_NHASHES)
		return kvt_fail(err, KVT_USAGE,
				"--hash is '%.40s', expected sha256, sha256_cbor, xxhash, xxhash_cbor, builtin or blake3",
				hash);
	return KVT_OK;
}

enum kvt_status naming_lora(struct kvt_prefix_key *key, char room[NAMING_LORA],
			    const char *text, struct kvt_error *err)
{
	const char *equals = strchr(text, '=');
	size_t n = equals ? (size_t)(equals - text) : strlen(text);

	if (n >= NAMING_LORA)
		return kvt_fail(err, KVT_USAGE, "--lora has too long a name");
	memcpy(room, text, n);
	room[n] = '\0';
	key->lora = room;
	key->lora_path = equals ? equals + 1 : NULL;
	return KVT_OK;
}

enum kvt_status naming_take(struct kvt_prefix_key *key, int64_t *block_size,
			    struct naming_said *said, struct kvt_error *err)
{
	enum kvt_status status = naming_engine(key, said->engine, said->hash, err);

	for (int i = 0; !status && i < said->items.n; i++) {
		said->copy[i] = strdup(said->items.s[i]);
		status = said->copy[i] ? take_item(key, said, said->copy[i], err) :
					 kvt_no_memory(err, NULL);
	}
	if (!status && said->lora)
		status = naming_lora(key, said->lora_name, said->lora, err);
	if (status)
		return status;
	key->seed = said->seed;
	key->salt = said->salt;
	key->extra_key = said->extra_key;
	key->without_vllm = said->without_vllm;
	*block_size = said->block_size ? said->block_size : key->rule->block;
	return *block_size || key->rule->why_not ? KVT_OK :
	       kvt_fail(err, KVT_USAGE,
			"--block-size is needed: names of %s depend on how many tokens a block has",
			key->rule->what);
}

enum kvt_status naming_prompts(struct kvt_prompts *out, const struct naming_said *said,
			       struct kvt_error *err)
{
	struct kvt_facts from = { 0 };
	bool stream = false;

	for (int i = 0; i < said->prompts.n; i++) {
		const char *text = said->prompts.s[i];

		if (is_stream(text)) {
			char *operand = (char[]){ "-" };
			enum kvt_status status;

			if (stream)
				return kvt_fail(err, KVT_USAGE,
						"--prompt=- was given twice");
			stream = true;
			if ((status = stream_in(1, &operand, err)))
				return status;
			text = stream_in_path;
		}
		from.s[from.n++] = text;
	}
	return kvt_prompts_read(out, &from, err);
}

void naming_free(struct naming_said *said)
{
	for (int i = 0; i < NAMING_ITEMS; i++)
		free(said->copy[i]);
}
