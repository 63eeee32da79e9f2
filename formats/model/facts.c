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
	enum kvt_status status;

	for (const char *at = keys; at;) {
		int64_t n = 0;

		at = next_key(key, at);
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
	}
	next_key(key, keys);
	for (size_t i = 0; !found && i < ndefaults; i++) {
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
				"%s: num_hidden_layers is missing; "
				"--set=num_hidden_layers=N gives it",
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
