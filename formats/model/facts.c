/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c - single facts of a config.json
 *
 * A fact may have several names, by version; then they must agree.  Of a nested config
 * the text model's is read.
 */
#include "formats/model/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/print.h"

enum { MOST = 1 << 20 };

void kvt_config_note(struct config *c, const char *format, ...)
{
	va_list args;

	if (c->out->nnotes == KVT_CONFIG_NOTES)
		return;
	va_start(args, format);
	vsnprintf(c->out->note[c->out->nnotes++], sizeof(c->out->note[0]), format, args);
	va_end(args);
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
	const size_t ndefaults = sizeof(c->family->defaults) /
				 sizeof(c->family->defaults[0]);
	char key[64], first[64] = "";
	int64_t found = 0;
	const char *at = keys;
	bool there = false;
	enum kvt_status status;

	do {
		int64_t n = 0;

		at = next_key(key, at);
		there |= json_object_get(c->in.object, key) != NULL;
		if ((status = kvt_json_int(&n, &c->in, key, 1, MOST)))
			return status;
		if (n && found && n != found)
			return kvt_fail(c->in.err, KVT_BAD_INPUT,
					"%s: %s is %lld, but %s is %lld", c->in.name,
					first, (long long)found, key, (long long)n);
		if (n && !found) {
			found = n;
			snprintf(first, sizeof(first), "%s", key);
		}
	} while (at);
	next_key(key, keys);
	for (size_t i = 0; !there && !c->foreign && i < ndefaults; i++) {
		const char *name = c->family->defaults[i].key;

		if (!name || strcmp(name, key))
			continue;
		found = c->family->defaults[i].value;
		kvt_config_note(c, "%s is missing: %lld, as %s has it by default", key,
				(long long)found, c->family->type);
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
		return kvt_fail(c->in.err, KVT_BAD_INPUT,
				"%s: %s is missing, which %s needs; --set=%s=N gives it",
				c->in.name, key, c->family->type, key);
	*out = n;
	return KVT_OK;
}

enum kvt_status kvt_config_need_layers(struct config *c)
{
	if (!c->nlayers)
		return kvt_fail(c->in.err, KVT_BAD_INPUT,
				"%s: num_hidden_layers is missing; --set=num_hidden_layers=N gives it",
				c->in.name);
	return KVT_OK;
}

enum kvt_status kvt_config_flag(bool *out, struct config *c, const char *key)
{
	const json_t *value = json_object_get(c->in.object, key);

	if (!value || json_is_null(value))
		return KVT_OK;
	if (!json_is_boolean(value))
		return kvt_fail(c->in.err, KVT_BAD_INPUT,
				"%s: %s is not true or false", c->in.name, key);
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
		return kvt_fail(c->in.err, KVT_BAD_INPUT,
				"%s: %s has %zu layers, but num_hidden_layers is %lld",
				c->in.name, key, n, LL(c->nlayers));
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
