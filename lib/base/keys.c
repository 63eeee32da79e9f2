/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c - one behaviour for every list of KEY=VALUE
 *
 * A list is cut at its commas, an entry at its first '=', and the key looked up in the
 * caller's table, which says of what type the value is and where it goes.  A bit of
 * keys->seen for each row tells what comes a second time, so that entries may come
 * from several options, too.
 */
#include "lib/base/keys.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/nearest.h"
#include "lib/base/number.h"

enum { LONGEST = 1023 };	/* of a list that is copied */

/* ---- keys --------------------------------------------------------------- */

static bool is_called(const char *name, const char *key, size_t n)
{
	if (!name || strlen(name) != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (name[i] != key[i] && !(strchr("-_", name[i]) && strchr("-_", key[i])))
			return false;
	return true;
}

static const struct kvt_key *find(const struct kvt_keys *keys, const char *key, size_t n)
{
	for (const struct kvt_key *k = keys->key; k->name; k++)
		if (is_called(k->name, key, n) || is_called(k->old, key, n))
			return k;
	return NULL;
}

static enum kvt_status unknown(const struct kvt_keys *keys, const char *key, size_t n,
			       struct kvt_error *err)
{
	char word[41], list[320] = "";
	struct kvt_nearest near;
	size_t used = 0;

	snprintf(word, sizeof(word), "%.*s", (int)(n < 40 ? n : 40), key);
	near = kvt_nearest_start(word);
	for (const struct kvt_key *k = keys->key; k->name; k++) {
		kvt_nearest_offer(&near, k->name);
		if (used < sizeof(list))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 used ? ", " : "", k->name);
	}
	if (kvt_nearest_found(&near))
		return kvt_fail(err, KVT_USAGE,
				"%.140s: there is no key '%s', did you mean '%s'? Keys are %s",
				keys->what, word, kvt_nearest_found(&near), list);
	return kvt_fail(err, KVT_USAGE, "%.140s: there is no key '%s': keys are %s",
			keys->what, word, list);
}

/* ---- values ------------------------------------------------------------- */

static const char *const expected[] = {
	[KVT_KEY_COUNT] = "a whole number above 0, such as 16 or 2k",
	[KVT_KEY_NUMBER] = "a whole number, such as 16 or 2k",
	[KVT_KEY_INTEGER] = "a whole number, such as -4 or 2k",
	[KVT_KEY_REAL] = "a number, such as 0.5",
	[KVT_KEY_TEXT] = "a value",
	[KVT_KEY_FLAG] = "no value",
	[KVT_KEY_SPAN] = "two numbers, such as 0:16",
};

static bool take_span(int64_t out[2], const char *text)
{
	return kvt_number_take(&out[0], &text) && *text++ == ':' &&
	       kvt_number_take(&out[1], &text) && !*text;
}

static bool take_integer(int64_t *out, const char *text)
{
	bool minus = text[0] == '-';

	if (!kvt_number_parse(out, text + minus))
		return false;
	*out = minus ? -*out : *out;
	return true;
}

static bool take_value(void *field, enum kvt_key_type type, const char *value)
{
	int64_t n[2];
	double real;

	switch (type) {
	case KVT_KEY_COUNT: case KVT_KEY_NUMBER:
		if (!kvt_number_parse(n, value) || n[0] < (type == KVT_KEY_COUNT) ||
		    n[0] == INT64_MAX)
			return false;
		memcpy(field, n, sizeof(n[0]));
		return true;
	case KVT_KEY_INTEGER:
		if (!take_integer(n, value))
			return false;
		memcpy(field, n, sizeof(n[0]));
		return true;
	case KVT_KEY_REAL:
		if (!kvt_real_parse(&real, value, strlen(value)))
			return false;
		memcpy(field, &real, sizeof(real));
		return true;
	case KVT_KEY_TEXT:
		memcpy(field, &value, sizeof(value));
		return *value;
	case KVT_KEY_SPAN:
		if (!take_span(n, value))
			return false;
		memcpy(field, n, sizeof(n));
		return true;
	case KVT_KEY_FLAG:
		break;
	}
	return false;
}

/* ---- lists -------------------------------------------------------------- */

enum kvt_status kvt_keys_put(struct kvt_keys *keys, const char *key, size_t n,
			     const char *value, struct kvt_error *err)
{
	const struct kvt_key *k = find(keys, key, n);
	char *field = keys->to;
	uint64_t bit;

	if (!n || (!value && (!k || k->type != KVT_KEY_FLAG)))
		return kvt_fail(err, KVT_USAGE, "%.140s: '%.*s', expected KEY=VALUE",
				keys->what, (int)(n < 60 ? n : 60), key);
	if (!k)
		return unknown(keys, key, n, err);
	bit = (uint64_t)1 << (k - keys->key);
	if (keys->seen & bit)
		return kvt_fail(err, KVT_USAGE, "%.140s: %.*s is given twice", keys->what,
				(int)n, key);
	keys->seen |= bit;
	if (!value) {
		*(bool *)(field + k->field) = true;
		return KVT_OK;
	}
	if (take_value(field + k->field, k->type, value))
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE, "%.140s: %.*s is '%.60s', expected %s",
			keys->what, (int)n, key, value, expected[k->type]);
}

enum kvt_status kvt_keys_parse(struct kvt_keys *keys, char *text, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	while (!status && text) {
		char *next = strchr(text, ',');
		size_t n;

		if (next)
			*next++ = '\0';
		n = strcspn(text, "=");
		status = kvt_keys_put(keys, text, n, text[n] ? text + n + 1 : NULL, err);
		text = next;
	}
	return status;
}

enum kvt_status kvt_keys_copy(struct kvt_keys *keys, const char *text,
			      struct kvt_error *err)
{
	char copy[LONGEST + 1];

	if (snprintf(copy, sizeof(copy), "%s", text) > LONGEST)
		return kvt_fail(err, KVT_USAGE, "%.140s is longer than %d characters",
				keys->what, LONGEST);
	return kvt_keys_parse(keys, copy, err);
}
