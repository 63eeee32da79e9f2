/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c - single facts of a config.json
 *
 * A fact may have several names, by version; then they must agree.  Of a nested config
 * the text model's is read.
 */
#include "formats/model/rules.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20 };

void kvt_config_note(struct config *c, const char *format, ...)
{
	va_list args;

	char *note = c->out->note[c->out->nnotes];

	if (c->out->nnotes == KVT_CONFIG_NOTES)
		return;
	va_start(args, format);
	vsnprintf(note, sizeof(c->out->note[0]), format, args);
	va_end(args);
	for (int i = 0; i < c->out->nnotes; i++)
		if (!strcmp(c->out->note[i], note))
			return;
	c->out->nnotes++;
}

/* What follows a word of "a b c", or NULL where it is none of them. */
const char *kvt_config_word(const char *words, const char *word, size_t n)
{
	while (words && *words) {
		size_t length = strcspn(words, " ");

		if (length == n && !strncmp(words, word, n))
			return words + length;
		words += length;
		words += strspn(words, " ");
	}
	return NULL;
}

/* The first of "a|b"; returns what follows it, NULL at the end. */
static const char *next_key(char key[static 64], const char *keys)
{
	size_t n = strcspn(keys, "|");

	snprintf(key, 64, "%.*s", (int)n, keys);
	return keys[n] ? keys + n + 1 : NULL;
}

enum kvt_status kvt_config_get(int64_t *out, struct config *c, const char *keys)
{
	char key[64], first[64] = "";
	int64_t found = 0;
	const char *at = keys, *value;
	bool there = false;
	enum kvt_status status;

	do {
		int64_t n = 0;

		at = next_key(key, at);
		there |= json_object_get(c->in.object, key) != NULL;
		if ((status = kvt_json_int(&n, &c->in, key, 1, MOST)))
			return status;
		if (n && found && n != found)
			return kvt_json_bad(&c->in, "%s is %lld, but %s is %lld", first,
					    LL(found), key, LL(n));
		if (n && !found) {
			found = n;
			snprintf(first, sizeof(first), "%s", key);
		}
	} while (at);
	next_key(key, keys);
	value = kvt_config_word(c->family->defaults, key, strlen(key));
	if (value && !there && !c->foreign) {
		found = strtoll(value, NULL, 10);
		kvt_config_note(c, "%s is missing: %lld, as %s has it by default", key,
				LL(found), c->type);
	}
	if (found)
		*out = found;
	return KVT_OK;
}

enum kvt_status kvt_config_need(int64_t *out, struct config *c, const char *keys)
{
	enum kvt_status status;
	int64_t n = 0;
	char key[64];

	if ((status = kvt_config_get(&n, c, keys)))
		return status;
	next_key(key, keys);
	if (!n)
		return kvt_json_bad(&c->in,
				    "%s is missing, which %s needs; --set=%s=N gives it",
				    key, c->type, key);
	*out = n;
	return KVT_OK;
}

enum kvt_status kvt_config_need_layers(struct config *c)
{
	if (!c->nlayers)
		return kvt_json_bad(&c->in,
				    "num_hidden_layers is missing; --set=num_hidden_layers=N gives it");
	return KVT_OK;
}

enum kvt_status kvt_config_flag(bool *out, struct config *c, const char *key)
{
	const json_t *value = json_object_get(c->in.object, key);

	if (!value || json_is_null(value))
		return KVT_OK;
	if (!json_is_boolean(value))
		return kvt_json_bad(&c->in, "%s is not true or false", key);
	*out = json_is_true(value);
	return KVT_OK;
}

bool kvt_config_is_off(const json_t *value)
{
	return !value || json_is_null(value) || json_is_false(value) ||
	       (json_is_number(value) && json_number_value(value) == 0) ||
	       (json_is_string(value) && !json_string_length(value)) ||
	       (json_is_array(value) && !json_array_size(value)) ||
	       (json_is_object(value) && !json_object_size(value));
}

/* ---- facts of some layers ------------------------------------------------- */

static const char per_layer[] = "per_layer_config";

/* What is different of a layer, under its number, which may begin with zeros; or NULL. */
static const json_t *layer_facts(const json_t *all, int64_t layer)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)all, key, value)
		if (key[strspn(key, "0123456789")] == '\0' &&
		    strtoll(key, NULL, 10) == layer)
			return value;
	return NULL;
}

/* No facts, and none that differ, are the same. */
static bool same_facts(const json_t *a, const json_t *b)
{
	if (kvt_config_is_off(a) || kvt_config_is_off(b))
		return kvt_config_is_off(a) && kvt_config_is_off(b);
	return json_equal(a, b);
}

enum kvt_status kvt_config_enter_kind(struct config *c, int kind)
{
	const json_t *first = NULL;
	struct kvt_json all;
	int64_t at = -1;
	enum kvt_status status = kvt_json_object(&all, &c->in, per_layer);

	if (status || !all.object)
		return status;
	for (int64_t i = 0; i < c->nlayers; i++) {
		const json_t *facts = c->kind[i] == kind ? layer_facts(all.object, i) :
							   NULL;

		if (c->kind[i] != kind)
			continue;
		if (at >= 0 && !same_facts(facts, first))
			return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
					       "%s: layer %lld differs from layer %lld, which is of its kind: give the caches with --spec",
					       per_layer, LL(i), LL(at));
		first = facts;
		at = at < 0 ? i : at;
	}
	if (kvt_config_is_off(first))
		return KVT_OK;
	if (!json_is_object(first))
		return kvt_json_bad(&c->in, "%s: what layer %lld has is not an object",
				    per_layer, LL(at));
	c->layer = json_copy((json_t *)(uintptr_t)c->in.object);
	if (!c->layer || json_object_update(c->layer, (json_t *)(uintptr_t)first))
		return kvt_no_memory(c->in.err, NULL);
	c->of_all = c->in.object;
	c->in.object = c->layer;
	return KVT_OK;
}

void kvt_config_leave_kind(struct config *c)
{
	if (!c->layer)
		return;
	c->in.object = c->of_all;
	json_decref(c->layer);
	c->layer = NULL;
}

/* ---- lists with an entry a layer ------------------------------------------ */

/* As many numbers as there are layers; more only for layers that draft tokens. */
static enum kvt_status check_length(struct config *c, const char *key, size_t n)
{
	int64_t drafts = 1, more = (int64_t)n - c->nlayers;
	enum kvt_status status = kvt_json_int(&drafts, &c->in, "num_nextn_predict_layers",
					      0, CONFIG_LAYERS);

	if (status)
		return status;
	if (n < 1 || n > CONFIG_LAYERS || (c->nlayers && (more < 0 || more > drafts)))
		return kvt_json_bad(&c->in,
				    "%s has %zu layers, but num_hidden_layers is %lld",
				    key, n, LL(c->nlayers));
	if (!c->nlayers)
		c->nlayers = (int64_t)n;
	return KVT_OK;
}

enum kvt_status kvt_config_layer_list(const json_t **out, struct config *c,
				      const char *key)
{
	enum kvt_status status = kvt_json_array(out, &c->in, key);

	return status || !*out ? status : check_length(c, key, json_array_size(*out));
}

enum kvt_status kvt_config_used_list(const json_t **out, struct config *c,
				     const char *key)
{
	*out = NULL;
	return kvt_config_is_off(json_object_get(c->in.object, key)) ? KVT_OK :
	       kvt_config_layer_list(out, c, key);
}
