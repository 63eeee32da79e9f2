/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.c - facts: KEY=VALUE that the user gives for one format
 *
 * Each format lists the keys that it asks for; any other is refused before a file is
 * opened.
 */
#include "formats/format.h"

#include <string.h>

#include "lib/base/keys.h"
#include "lib/base/number.h"

enum { MOST_FACTS = 32 };		/* of one format */

static bool has_key(const char *fact, const char *key, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (fact[i] != key[i] && !(fact[i] == '_' && key[i] == '-'))
			return false;
	return fact[n] == '=';
}

const char *kvt_fact(const struct kvt_hints *hints, const char *key)
{
	size_t n = strlen(key);

	for (int i = 0; hints && i < hints->facts.n; i++)
		if (has_key(hints->facts.s[i], key, n))
			return hints->facts.s[i] + n + 1;
	return NULL;
}

enum kvt_status kvt_fact_int(int64_t *out, const struct kvt_hints *hints, const char *key,
			     int64_t min, int64_t max, struct kvt_error *err)
{
	const char *text = kvt_fact(hints, key);
	int64_t value;

	if (!text)
		return KVT_OK;
	if (!kvt_number_parse(&value, text) || value < min || value > max)
		return kvt_fail(err, KVT_USAGE, "%s is '%.40s', expected %lld to %lld",
				key, text, LL(min), LL(max));
	*out = value;
	return KVT_OK;
}

/* What names are made of: keys that every format has whose files are named so. */
static void add_prompt_facts(struct kvt_key key[MOST_FACTS + 1])
{
	static const char *const facts[] = {
		"engine", "hash", "seed", "salt", "extra-key", "lora", "window",
	};
	int n = 0;

	while (key[n].name)
		n++;
	for (int i = 0; i < (int)(sizeof(facts) / sizeof(facts[0])) && n < MOST_FACTS;
	     i++, n++)
		key[n] = (struct kvt_key){ facts[i], KVT_KEY_TEXT,
					   (size_t)n * sizeof(const char *), NULL };
}

enum kvt_status kvt_facts_check(const struct kvt_hints *hints,
				const struct kvt_format *format, struct kvt_error *err)
{
	struct kvt_key key[MOST_FACTS + 1] = { { NULL, KVT_KEY_TEXT, 0, NULL } };
	const char *value[MOST_FACTS];
	char what[64];
	struct kvt_keys keys = { what, key, value, 0 };
	enum kvt_status status = KVT_OK;

	snprintf(what, sizeof(what), "--set of format %s", format->info.name);
	for (int i = 0; format->facts && format->facts[i] && i < MOST_FACTS; i++)
		key[i] = (struct kvt_key){ format->facts[i], KVT_KEY_TEXT,
					   (size_t)i * sizeof(value[0]), NULL };
	if (format->takes & KVT_TAKES_PROMPT)
		add_prompt_facts(key);
	for (int i = 0; !status && hints && i < hints->facts.n; i++) {
		const char *fact = hints->facts.s[i];
		size_t n = strcspn(fact, "=");

		if (fact[n] && !key[0].name)
			return kvt_fail(err, KVT_USAGE,
					"--set=%.60s: format %s has no settings", fact,
					format->info.name);
		status = kvt_keys_put(&keys, fact, n, fact[n] ? fact + n + 1 : NULL, err);
	}
	return status;
}
