/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c - facts: KEY=VALUE that the user gives for one format
 *
 * Each format lists the keys that it asks for; any other is refused before a file is
 * opened.
 */
#include "formats/format.h"

#include <stdlib.h>
#include <string.h>

static bool has_key(const char *fact, const char *key, size_t n)
{
	return !strncmp(fact, key, n) && fact[n] == '=';
}

const char *kvt_fact(const struct kvt_hints *hints, const char *key)
{
	size_t n = strlen(key);

	for (int i = 0; hints && i < hints->facts.n; i++)
		if (has_key(hints->facts.s[i], key, n))
			return hints->facts.s[i] + n + 1;
	return NULL;
}

enum kvt_status kvt_fact_int(int64_t *out, const struct kvt_hints *hints,
			     const char *key, int64_t min, int64_t max,
			     struct kvt_error *err)
{
	const char *text = kvt_fact(hints, key);
	size_t n = text ? strlen(text) : 0;
	int64_t value;

	if (!text)
		return KVT_OK;
	value = n && n < 19 && !text[strspn(text, "0123456789")] ?
		strtoll(text, NULL, 10) : -1;
	if (value < min || value > max)
		return kvt_fail(err, KVT_USAGE, "%s is '%.40s', expected %lld to %lld",
				key, text, (long long)min, (long long)max);
	*out = value;
	return KVT_OK;
}

static bool is_known(const struct kvt_format *format, const char *fact)
{
	for (int i = 0; format->facts && format->facts[i]; i++)
		if (has_key(fact, format->facts[i], strlen(format->facts[i])))
			return true;
	return false;
}

static enum kvt_status refuse(const char *fact, const struct kvt_format *format,
			      struct kvt_error *err)
{
	char list[200] = "";
	size_t used = 0;

	for (int i = 0; format->facts && format->facts[i]; i++)
		if (strlen(format->facts[i]) + 3 < sizeof(list) - used)
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 i ? ", " : "", format->facts[i]);
	if (!used)
		return kvt_fail(err, KVT_USAGE, "--set=%.60s: format %s has no settings",
				fact, format->info.name);
	return kvt_fail(err, KVT_USAGE,
			"--set=%.60s: the settings of format %s are %s; see kvtool-formats(7)",
			fact, format->info.name, list);
}

enum kvt_status kvt_facts_check(const struct kvt_hints *hints,
				const struct kvt_format *format, struct kvt_error *err)
{
	for (int i = 0; hints && i < hints->facts.n; i++) {
		const char *fact = hints->facts.s[i];
		size_t n = strcspn(fact, "=");

		if (!fact[n] || !n)
			return kvt_fail(err, KVT_USAGE, "'%.60s' is not KEY=VALUE", fact);
		if (!is_known(format, fact))
			return refuse(fact, format, err);
		for (int j = 0; j < i; j++)
			if (has_key(hints->facts.s[j], fact, n))
				return kvt_fail(err, KVT_USAGE, "%.*s is given twice",
						(int)n, fact);
	}
	return KVT_OK;
}
