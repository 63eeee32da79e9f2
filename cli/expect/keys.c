/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c - the clauses there are, and how their values are written
 *
 * A row of keys[]: its name, how its value is written, whether it is of a group, and the
 * field of describe --json that it is compared with; without one judge.c computes it.
 * kvtool-contract(5) has them for people.
 */
#include "cli/expect/contract.h"

#include <string.h>

#include "cli/cli.h"
#include "lib/kvt/connect.h"
#include "lib/base/nearest.h"
#include "lib/base/number.h"

#define INT(name)     { name, CLAUSE_INT, true, name }
#define IS(name)      { name, CLAUSE_BOOL, true, "predicates." name }
#define OF_RANK(name) { name, CLAUSE_PARALLEL, false, NULL }

static const struct clause_key keys[] = {
	{ "format", CLAUSE_TEXT, false, "format" },
	{ "model", CLAUSE_TEXT, false, "model" },
	{ "groups", CLAUSE_GROUPS, false, NULL },
	{ "null_block", CLAUSE_INT, false, "null_block" },
	{ "release", CLAUSE_RELEASE, false, NULL },
	OF_RANK("tp_size"), OF_RANK("tp_rank"), OF_RANK("pp_size"), OF_RANK("pp_rank"),
	OF_RANK("dp_size"), OF_RANK("dp_rank"), OF_RANK("dcp_size"), OF_RANK("dcp_rank"),
	{ "digest.tokens", CLAUSE_DIGEST, false, NULL },
	{ "digest.blocks", CLAUSE_DIGEST, false, NULL },

	{ "kind", CLAUSE_KIND, true, "kind" },
	{ "layout", CLAUSE_LAYOUT, true, NULL },
	{ "dtype", CLAUSE_DTYPE, true, "dtype" },
	{ "content_type", CLAUSE_TEXT, true, "content_type" },
	{ "strides", CLAUSE_STRIDES, true, NULL },
	{ "strides.keys", CLAUSE_STRIDES, true, NULL },
	{ "strides.values", CLAUSE_STRIDES, true, NULL },
	{ "head_dim", CLAUSE_INT, true, "dim" },
	INT("layers"), INT("blocks"), INT("slots"), INT("heads"), INT("kv"), INT("dim"),
	INT("block_size"), INT("kernel_block_size"), INT("tokens_per_slot"),
	INT("total_heads"), INT("head_start"), INT("replication"), INT("window"),
	INT("page_bytes"), INT("page_offset"), INT("alignment"), INT("element_bytes"),
	INT("bytes_per_token"), INT("bytes_per_block"), INT("bytes_per_layer"),
	INT("data_bytes"),
	IS("layer_compact"), IS("block_compact"), IS("block_contiguous"),
	IS("block_outermost"), IS("head_run"), IS("kernel_split_neutral"),
	{ "layer_names", CLAUSE_NAMES, true, NULL },
	{ "layer_ids", CLAUSE_RANGES, true, NULL },
	{ "parts", CLAUSE_PARTS, true, NULL },
	{ "backend", CLAUSE_BACKEND, true, NULL },
	{ "supports_kv_connector", CLAUSE_BACKEND, true, NULL },
	{ "connector", CLAUSE_CONNECTOR, true, NULL },
};
enum { NKEYS = sizeof(keys) / sizeof(keys[0]) };

const struct clause_key *clause_key_at(int i)
{
	return i >= 0 && i < NKEYS ? &keys[i] : NULL;
}

/* What a clause is called now that had another name in a version before. */
static const char *name_now(const char *name)
{
	static const struct {
		const char *old, *name;
	} rows[] = {
		{ "states", "slots" }, { "tokens_per_state", "tokens_per_slot" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].old, name))
			return rows[i].name;
	return name;
}

const struct clause_key *clause_key_find(const char *name)
{
	name = name_now(name);
	for (int i = 0; i < NKEYS; i++)
		if (!strcmp(keys[i].name, name))
			return &keys[i];
	return NULL;
}

/* ---- values with parts -------------------------------------------------- */

bool clause_next_range(const char **text, int64_t *begin, int64_t *end)
{
	const char *s = *text;

	if (!kvt_number_take(begin, &s))
		return false;
	*end = *begin + 1;
	if (*s == ':' && (s++, !kvt_number_take(end, &s) || *end <= *begin))
		return false;
	if (*s == ',' && s[1])
		s++;
	*text = s;
	return true;
}

/* A name up to ':', and a number after it. */
bool clause_next_stride(const char **text, struct clause_word *out)
{
	const char *s = *text, *colon;

	s += strspn(s, " \t");
	colon = s + strcspn(s, ": \t");
	if (*colon != ':' || colon == s || colon - s >= (long)sizeof(out->name))
		return false;
	memcpy(out->name, s, (size_t)(colon - s));
	out->name[colon - s] = '\0';
	s = colon + 1;
	if (!kvt_number_take(&out->n, &s) || (*s && !strchr(" \t", *s)))
		return false;
	*text = s;
	return true;
}

enum { ALL_RELEASES = (1 << KVT_NRELEASES) - 1 };

/* Times whose bytes differ, by names that contracts had before releases. */
static const struct {
	const char *name;
	unsigned releases;
} eras[] = {
	{ "kv-first", 1 << KVT_VLLM_0_22 }, { "blocks-first", 1 << KVT_VLLM_0_24 },
	{ "packed", 1 << KVT_VLLM_0_26 | 1 << KVT_VLLM_0_32 },
};
enum { NERAS = sizeof(eras) / sizeof(eras[0]) };

/* 0: there is no such one. */
static unsigned releases_of(const char *word)
{
	enum kvt_release release;

	for (int i = 0; i < NERAS; i++)
		if (!strcmp(word, eras[i].name))
			return eras[i].releases;
	return kvt_release_parse(&release, word, NULL) ? 0 : 1u << release;
}

const struct kvt_backend *clause_backend(unsigned *out, const char *value)
{
	size_t n = strcspn(value, "@");
	char name[64];

	*out = ALL_RELEASES;
	if (n >= sizeof(name))
		return NULL;
	memcpy(name, value, n);
	name[n] = '\0';
	if (value[n])
		*out = releases_of(value + n + 1);
	return *out ? kvt_backend_find(name) : NULL;
}

unsigned contract_releases(const struct contract *contract)
{
	unsigned releases = 0;

	for (int i = 0; i < contract->nclauses; i++) {
		const struct clause *c = &contract->clause[i];

		for (int k = 0; c->key->type == CLAUSE_RELEASE && k < c->nvalues; k++)
			releases |= releases_of(c->value[k]);
	}
	return releases;
}

/* ---- is this a value of the type? --------------------------------------- */

static bool is_int(const char *value)
{
	int64_t n;

	if (!strcmp(value, "null"))
		return true;
	value += *value == '-';
	return kvt_number_take(&n, &value) && !*value;
}

static bool is_bool(const char *value)
{
	return !strcmp(value, "true") || !strcmp(value, "false");
}

static bool is_kind(const char *value)
{
	enum kvt_kind kind;

	return kvt_kind_find(&kind, value);
}

static bool is_dtype(const char *value)
{
	return kvt_dtype_find(value) != NULL;
}

static bool is_strides(const char *value)
{
	struct clause_word word;

	while (clause_next_stride(&value, &word))
		if (!strchr("LBSHKD", word.name[0]))
			return false;
	return !*value;
}

static bool is_ranges(const char *value)
{
	int64_t begin, end;

	while (*value)
		if (!clause_next_range(&value, &begin, &end))
			return false;
	return true;
}

/* "x:0+128 B:128+32@256": name, first channel, channels, first one in the model */
static bool is_parts(const char *value)
{
	while (*value) {
		const char *colon = value + strcspn(value, ": ");
		int64_t n;

		if (*colon != ':' || colon == value)
			return false;
		value = colon + 1;
		if (!kvt_number_take(&n, &value) || *value++ != '+' ||
		    !kvt_number_take(&n, &value) ||
		    (*value == '@' && (value++, !kvt_number_take(&n, &value))) ||
		    (*value && *value != ' '))
			return false;
		value += strspn(value, " ");
	}
	return true;
}

static bool is_backend(const char *value)
{
	unsigned meant;

	return clause_backend(&meant, value) != NULL;
}

static bool is_release(const char *value)
{
	return releases_of(value) != 0;
}

static bool is_connector(const char *value)
{
	return !strcmp(value, "equal_tp") || !strcmp(value, "unequal_tp");
}

static bool is_digest(const char *value)
{
	size_t n = strlen("kvd1:tokens:");

	return (!strncmp(value, "kvd1:tokens:", n) ||
		!strncmp(value, "kvd2:tokens:", n) ||
		!strncmp(value, "kvd1:blocks:", n)) &&
	       strspn(value + n, "0123456789abcdef") == 32 && !value[n + 32];
}

static const struct {
	bool (*is)(const char *value);	/* NULL: anything */
	const char *wanted;
} types[CLAUSE_NTYPES] = {
	[CLAUSE_INT] = { is_int, "a whole number or null" },
	[CLAUSE_PARALLEL] = { is_int, "a whole number" },
	[CLAUSE_BOOL] = { is_bool, "true or false" },
	[CLAUSE_KIND] = { is_kind, "a kind such as full_attention" },
	[CLAUSE_DTYPE] = { is_dtype, "an element type such as bfloat16" },
	[CLAUSE_STRIDES] = { is_strides,
			     "axes with their strides such as L:98304 B:2048" },
	[CLAUSE_RANGES] = { is_ranges, "numbers and ranges such as 0:5,7" },
	[CLAUSE_PARTS] = { is_parts, "parts such as x:0+128 B:128+32@256" },
	[CLAUSE_BACKEND] = { is_backend,
			     "a backend of vLLM such as FLASH_ATTN or FLASH_ATTN@0.26" },
	[CLAUSE_RELEASE] = { is_release, "a release of vLLM such as 0.32" },
	[CLAUSE_CONNECTOR] = { is_connector, "equal_tp or unequal_tp" },
	[CLAUSE_DIGEST] = { is_digest, "what kvtool digest prints" },
};

/* A wrong name of a backend is most often a slip. */
static const char *nearest_backend(const char *value)
{
	struct kvt_nearest near = kvt_nearest_start(value);

	for (int i = 0; kvt_backend_at(i); i++)
		kvt_nearest_offer(&near, kvt_backend_name(kvt_backend_at(i)));
	return kvt_nearest_found(&near);
}

static enum kvt_status check_value(const struct clause_key *key, const char *value,
				   struct kvt_error *err)
{
	struct kvt_layout layout;
	const char *near;

	if (key->type == CLAUSE_LAYOUT)
		return kvt_layout_parse(&layout, value, err);
	if (!types[key->type].is || types[key->type].is(value)) {
		if (key->type == CLAUSE_DIGEST && strncmp(value + 5, key->name + 7, 6))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s is '%.100s', another scope", key->name,
					value);
		return KVT_OK;
	}
	near = key->type == CLAUSE_BACKEND ? nearest_backend(value) : NULL;
	if (near)
		return kvt_fail(err, KVT_BAD_INPUT, "%s is '%.100s', did you mean '%s'?",
				key->name, value, near);
	return kvt_fail(err, KVT_BAD_INPUT, "%s is '%.100s', expected %s", key->name,
			value, types[key->type].wanted);
}

enum kvt_status clause_check(const struct clause *c, struct kvt_error *err)
{
	bool ordered = c->op == CLAUSE_AT_LEAST || c->op == CLAUSE_AT_MOST;
	bool number = c->key->type == CLAUSE_INT || c->key->type == CLAUSE_PARALLEL;

	if (ordered && (!number || c->nvalues > 1 || !strcmp(c->value[0], "null")))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: only one number can be compared with %s", c->name,
				c->op == CLAUSE_AT_LEAST ? ">=" : "<=");
	if (c->key->type == CLAUSE_RELEASE && c->op != CLAUSE_IS)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: only = makes sense", c->name);
	for (int i = 0; i < c->nvalues; i++) {
		enum kvt_status status = check_value(c->key, c->value[i], err);

		if (status)
			return status;
	}
	return KVT_OK;
}
