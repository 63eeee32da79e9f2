/* SPDX-License-Identifier: Apache-2.0 */
/* model_text.c - caches as words: "gqa:layers=80,heads=8,head-dim=128" */
#include "lib/kvt/model.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(n, m) { n, offsetof(struct kvt_model_group, m) }
static const struct {
	const char *name;
	size_t offset;
} keys[] = {
	KEY("layers", layers), KEY("heads", args.heads), KEY("head-dim", args.head_dim),
	KEY("head-dim-v", args.head_dim_v), KEY("latent", args.latent),
	KEY("ratio", args.ratio), KEY("window", args.window), KEY("inter", args.inter),
	KEY("groups", args.groups), KEY("state-size", args.state_size),
	KEY("key-heads", args.key_heads), KEY("key-dim", args.key_dim),
	KEY("kernel", args.kernel), KEY("spec-tokens", args.spec_tokens),
	KEY("elem", args.elem), KEY("block-size", args.block_size),
};
enum { NKEYS = sizeof(keys) / sizeof(keys[0]), WORD = 40 };

/* "word" before one of 'ends'; false if there is none, or it is too long. */
static bool take_word(char word[static WORD], const char **at, const char *ends)
{
	size_t n = strcspn(*at, ends);

	if (!n || n >= WORD)
		return false;
	memcpy(word, *at, n);
	word[n] = '\0';
	*at += n;
	return true;
}

/* 'seen' are the keys so far, bit by bit. */
static enum kvt_status take_number(struct kvt_model_group *g, unsigned *seen,
				   const char *key, const char *value,
				   struct kvt_error *err)
{
	enum { DIGITS = 18 };	/* as many fit */
	int64_t n = strtoll(value, NULL, 10);

	for (int i = 0; i < NKEYS; i++) {
		if (strcmp(keys[i].name, key))
			continue;
		if (*seen & 1u << i)
			return kvt_fail(err, KVT_USAGE, "%s is given twice", key);
		*seen |= 1u << i;
		if (value[strspn(value, "0123456789")] || strlen(value) > DIGITS || n < 1)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s is '%s', expected a whole number above 0",
					key, value);
		memcpy((char *)g + keys[i].offset, &n, sizeof(n));
		return KVT_OK;
	}
	return kvt_fail(err, KVT_USAGE, "there is no key '%s'", key);
}

static const char *find_spec(const char *name)
{
	const struct kvt_spec_preset *preset;

	for (int i = 0; (preset = kvt_spec_preset_at(i)); i++)
		if (!strcmp(preset->name, name))
			return preset->name;
	return NULL;
}

enum kvt_status kvt_model_group_parse(struct kvt_model_group *out, const char *text,
				      struct kvt_error *err)
{
	struct kvt_model_group g = { .name = "g0" };
	char key[WORD], value[WORD];
	const char *at = text;
	enum kvt_status status;
	unsigned seen = 0;

	if (!take_word(key, &at, ":") || !(g.spec = find_spec(key)))
		return kvt_fail(err, KVT_USAGE, "there is no spec '%.60s'", text);
	while (*at) {
		const char *word = ++at;

		if (!take_word(key, &at, "=,") || *at++ != '=' ||
		    !take_word(value, &at, ","))
			return kvt_fail(err, KVT_USAGE, "'%.60s', expected KEY=N", word);
		if ((status = take_number(&g, &seen, key, value, err)))
			return status;
	}
	*out = g;
	return KVT_OK;
}

struct kvt_group_text kvt_model_group_text(const struct kvt_model_group *group)
{
	struct kvt_group_text out;
	size_t n = (size_t)snprintf(out.s, sizeof(out.s), "%.40s", group->spec);
	char mark = ':';

	for (int i = 0; i < NKEYS; i++) {
		int64_t value;

		memcpy(&value, (const char *)group + keys[i].offset, sizeof(value));
		if (!value || n >= sizeof(out.s))
			continue;
		n += (size_t)snprintf(out.s + n, sizeof(out.s) - n, "%c%s=%lld", mark,
				      keys[i].name, (long long)value);
		mark = ',';
	}
	return out;
}
