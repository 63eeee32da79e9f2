/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near.c - under what other rule the names of a prompt would be there
 *
 * A rule has a handful of parts, each with a few values that are used: a name is a hash,
 * so that one that is there settles all of them together.  All are tried that change up
 * to three parts, those with the fewest changes first.  Salts and LoRAs have no usual
 * values; those that were seen elsewhere are tried, and none.
 */
#include "lib/ops/why/why.h"

#include <stdio.h>
#include <string.h>

enum {
	MOST_CHANGES = 3,
	MOST_BLOCKS = 16,		/* the first ones: a chunk's name is its last */
};

/* PYTHONHASHSEED as guides and charts set it; NULL: not set. */
static const char *const seeds[] = {
	NULL, "0", "1", "42", "123", "1234", "12345", "1337", "2024", "2025", "2026",
};
static const int64_t blocks[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024 };
enum {
	NSEEDS = sizeof(seeds) / sizeof(seeds[0]),
	NBLOCKS = sizeof(blocks) / sizeof(blocks[0]),
};

struct search {
	const struct kvt_why_prompt *told;
	const struct kvt_why_seen *seen;
	kvt_why_has_fn *has;
	void *context;
	struct kvt_why_near *out;
	struct kvt_why_prompt now;
};

/* The i-th other value of a part into s->now; false: there are no more. */
static bool other(struct search *s, enum kvt_why_part part, int i)
{
	const struct kvt_prefix_key *told = &s->told->rule.key;
	struct kvt_prefix_key *key = &s->now.rule.key;

	switch (part) {
	case KVT_WHY_ENGINE:
		return (key->rule = kvt_prefix_rule_at(i));
	case KVT_WHY_HASH:
		key->hash = (enum kvt_prefix_hash)i;
		return i < KVT_PREFIX_NHASHES;
	case KVT_WHY_SEED:
		key->seed = i < NSEEDS ? seeds[i] : NULL;
		return i < NSEEDS;
	case KVT_WHY_SALT:
		key->salt = i && i <= s->seen->nsalts ? s->seen->salt[i - 1] : NULL;
		return i <= s->seen->nsalts;
	case KVT_WHY_EXTRA_KEY:
		key->extra_key = NULL;
		return i < 1;
	case KVT_WHY_LORA:
		key->lora = i && i <= s->seen->nloras ? s->seen->lora[i - 1] : NULL;
		key->lora_path = i ? told->lora_path : NULL;
		return i <= s->seen->nloras;
	case KVT_WHY_PICTURES:
		key->nitems = 0;
		return i < 1;
	case KVT_WHY_WITHOUT_VLLM:
		key->without_vllm = !told->without_vllm;
		return i < 1;
	case KVT_WHY_BLOCK_SIZE:
		s->now.rule.block = i < NBLOCKS ? blocks[i] : 1;
		return i < NBLOCKS;
	case KVT_WHY_TOKEN:
	case KVT_WHY_NOT_FULL:
	case KVT_WHY_NPARTS:
		break;
	}
	return false;
}

static bool same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static int hash_of(const struct kvt_prefix_key *key)
{
	return (int)(key->hash ? key->hash : key->rule->usual);
}

static bool is_changed(const struct search *s, enum kvt_why_part part)
{
	const struct kvt_why_rule *a = &s->told->rule, *b = &s->now.rule;
	const bool changed[] = {
		a->key.rule != b->key.rule, hash_of(&a->key) != hash_of(&b->key),
		!same(a->key.seed, b->key.seed), !same(a->key.salt, b->key.salt),
		!same(a->key.extra_key, b->key.extra_key),
		!same(a->key.lora, b->key.lora), a->key.nitems != b->key.nitems,
		a->key.without_vllm != b->key.without_vllm, a->block != b->block,
	};

	return changed[part];
}

/* "hash sha256_cbor, seed 0, no salt" */
static void describe(struct kvt_why_near *out, const struct search *s)
{
	const struct kvt_prefix_key *k = &s->now.rule.key;
	char number[24], seed[64];
	const char *said[KVT_WHY_TOKEN];
	size_t n = 0;

	snprintf(number, sizeof(number), "%lld", LL(s->now.rule.block));
	snprintf(seed, sizeof(seed), "'%.40s'", k->seed ? k->seed : "");
	said[KVT_WHY_ENGINE] = k->rule->name;
	said[KVT_WHY_HASH] = kvt_prefix_hash_name((enum kvt_prefix_hash)hash_of(k));
	said[KVT_WHY_SEED] = k->seed ? seed : "not set";
	said[KVT_WHY_SALT] = k->salt ? k->salt : "none";
	said[KVT_WHY_EXTRA_KEY] = said[KVT_WHY_PICTURES] = "none";
	said[KVT_WHY_LORA] = k->lora ? k->lora : "none";
	said[KVT_WHY_WITHOUT_VLLM] = k->without_vllm ? "yes" : "no";
	said[KVT_WHY_BLOCK_SIZE] = number;
	out->text[0] = '\0';
	for (int part = 0; part < KVT_WHY_TOKEN; part++)
		if (out->changed & 1u << part && n < sizeof(out->text))
			n += (size_t)snprintf(out->text + n, sizeof(out->text) - n,
					      "%s%s %.40s", n ? ", " : "",
					      kvt_why_part_name(part), said[part]);
}

static bool try_it(struct search *s, unsigned changed)
{
	struct kvt_why_chain chain;
	struct kvt_error why = { "" };
	int64_t i = 0;
	bool found = false;

	s->out->tried++;
	if (kvt_why_chain(&chain, &s->now, MOST_BLOCKS, &why))
		return false;
	for (; !found && i < chain.nblocks; i++)
		found = s->has(s->context, &chain.block[i]);
	kvt_why_chain_free(&chain);
	if (!found)
		return false;
	s->out->changed = changed;
	s->out->rule = s->now.rule;
	s->out->block = i - 1;
	describe(s->out, s);
	return true;
}

/* All ways to change 'n' of the parts from 'first' on. */
static bool try_all(struct search *s, int first, int n, unsigned changed)
{
	struct kvt_why_rule before = s->now.rule;

	if (!n)
		return try_it(s, changed);
	for (int part = first; part < KVT_WHY_TOKEN; part++) {
		for (int i = 0; other(s, part, i); i++)
			if (is_changed(s, part) &&
			    try_all(s, part + 1, n - 1, changed | 1u << part))
				return true;
		s->now.rule = before;
	}
	return false;
}

void kvt_why_near(struct kvt_why_near *out, const struct kvt_why_prompt *prompt,
		  const struct kvt_why_seen *seen, kvt_why_has_fn *has, void *context)
{
	struct search s = { prompt, seen, has, context, out, *prompt };

	*out = (struct kvt_why_near){ .rule = prompt->rule };
	for (int n = 1; n <= MOST_CHANGES && !out->changed; n++)
		try_all(&s, 0, n, 0);
}
