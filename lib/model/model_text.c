/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_text.c - caches as words: "gqa:layers=80,heads=8,head-dim=128"
 *
 *	KIND[:KEY=N[,KEY=N]..]		keys[]; kinds are those of spec_preset.c
 *
 * Writing gives what reading takes: keys in the order of keys[], those that are 0 left
 * out.
 */
#include "lib/kvt/model.h"
#include "lib/base/keys.h"
#include "lib/base/nearest.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define KEY(n, m) { n, KVT_KEY_COUNT, offsetof(struct kvt_model_group, m), NULL }
static const struct kvt_key keys[] = {
	KEY("layers", layers), KEY("heads", args.heads), KEY("head-dim", args.head_dim),
	KEY("head-dim-v", args.head_dim_v), KEY("latent", args.latent),
	KEY("ratio", args.ratio), KEY("window", args.window), KEY("inter", args.inter),
	KEY("groups", args.groups), KEY("state-size", args.state_size),
	KEY("key-heads", args.key_heads), KEY("key-dim", args.key_dim),
	KEY("kernel", args.kernel), KEY("spec-tokens", args.spec_tokens),
	KEY("elem", args.elem), KEY("block-size", args.block_size),
	KEY("retained", args.retained), KEY("blocks", args.blocks),
	KEY("stride", args.stride), KEY("leader", args.leader),
	KEY("replay", args.replay), { NULL, KVT_KEY_FLAG, 0, NULL },
};
enum { WORD = 40 };

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

/* head_dim is head-dim, as kinds are written here. */
static void write_dashes(char *word)
{
	for (; *word; word++)
		if (*word == '_')
			*word = '-';
}

static enum kvt_status no_kind(const char *text, struct kvt_error *err)
{
	static const char list[] = "'kvtool help specs' prints the kinds and their keys";
	int length = (int)strcspn(text, ":");
	const struct kvt_spec_preset *preset;
	struct kvt_nearest near;
	char kind[64];

	if (!text[length] && strchr(text, '='))
		return kvt_fail(err, KVT_USAGE,
				"'%.60s', expected a ':' after the kind, such as gqa:layers=4,heads=8,head-dim=128; %s",
				text, list);
	snprintf(kind, sizeof(kind), "%.*s", length, text);
	near = kvt_nearest_start(kind);
	for (int i = 0; (preset = kvt_spec_preset_at(i)); i++)
		kvt_nearest_offer(&near, preset->name);
	if (kvt_nearest_found(&near))
		return kvt_fail(err, KVT_USAGE,
				"there is no kind '%s', did you mean '%s'? %s", kind,
				kvt_nearest_found(&near), list);
	return kvt_fail(err, KVT_USAGE, "there is no kind '%s': %s", kind, list);
}

static const char *find_spec(const char *name)
{
	const struct kvt_spec_preset *preset;
	char plain[WORD], wanted[WORD];

	snprintf(wanted, sizeof(wanted), "%s", name);
	write_dashes(wanted);
	for (int i = 0; (preset = kvt_spec_preset_at(i)); i++) {
		snprintf(plain, sizeof(plain), "%s", preset->name);
		write_dashes(plain);
		if (!strcmp(plain, wanted))
			return preset->name;
	}
	return NULL;
}

enum kvt_status kvt_model_group_parse(struct kvt_model_group *out, const char *text,
				      struct kvt_error *err)
{
	struct kvt_model_group g = { .name = "g0" };
	struct kvt_keys list = { NULL, keys, &g, 0 };
	const char *at = text;
	enum kvt_status status;
	char kind[WORD];

	if (!take_word(kind, &at, ":") || !(g.spec = find_spec(kind)))
		return no_kind(text, err);
	list.what = g.spec;
	if (*at && (status = kvt_keys_copy(&list, at + 1, err)))
		return status;
	*out = g;
	return KVT_OK;
}

struct kvt_group_text kvt_model_group_text(const struct kvt_model_group *group)
{
	struct kvt_group_text out;
	size_t n = (size_t)snprintf(out.s, sizeof(out.s), "%.40s", group->spec);
	char mark = ':';

	for (int i = 0; keys[i].name; i++) {
		int64_t value;

		memcpy(&value, (const char *)group + keys[i].field, sizeof(value));
		if (!value || n >= sizeof(out.s))
			continue;
		n += (size_t)snprintf(out.s + n, sizeof(out.s) - n, "%c%s=%lld", mark,
				      keys[i].name, LL(value));
		mark = ',';
	}
	return out;
}
