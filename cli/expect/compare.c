/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c - what changed between two contracts
 *
 * Clauses belong together by group, key and operator.  Each value is compared by its
 * type, so that nhd and LBSHC, bf16 and bfloat16 are the same.  The first words are those
 * of what somebody decided (layout, type, block size, heads); strides and sizes follow
 * from these, and come below.
 */
#include "cli/expect/expect.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- are they the same? --------------------------------------------------- */

static bool same_value(const struct clause_key *key, const char *a, const char *b)
{
	struct kvt_layout x, y;

	if (!strcmp(a, b))
		return true;
	switch (key ? key->type : CLAUSE_TEXT) {
	case CLAUSE_LAYOUT:
		return !kvt_layout_parse(&x, a, NULL) && !kvt_layout_parse(&y, b, NULL) &&
		       kvt_layout_equal(&x, &y);
	case CLAUSE_DTYPE:
		return kvt_dtype_find(a) == kvt_dtype_find(b);
	case CLAUSE_INT:
	case CLAUSE_PARALLEL:
		return strcmp(a, "null") && strcmp(b, "null") &&
		       strtoll(a, NULL, 10) == strtoll(b, NULL, 10);
	default:
		return false;
	}
}

/* Each of a's values is one of b's. */
static bool has_all(const struct clause *a, const struct clause *b)
{
	for (int i = 0; i < a->nvalues; i++) {
		int k = 0;

		while (k < b->nvalues && !same_value(a->key, a->value[i], b->value[k]))
			k++;
		if (k == b->nvalues)
			return false;
	}
	return true;
}

static bool same_clause(const struct clause *a, const struct clause *b)
{
	return has_all(a, b) && has_all(b, a);
}

/* ---- what belongs together ------------------------------------------------- */

static const char *group_of(const struct contract *c, const struct clause *clause)
{
	return clause->section < 0 ? "" : c->section[clause->section].clause.value[0];
}

/* The clause of 'in' that says the same thing as one of 'of'; NULL: there is none. */
static const struct clause *partner(const struct contract *in, const struct contract *of,
				    const struct clause *clause)
{
	/* != may be said several times, each of another value */
	for (int i = 0; i < in->nclauses; i++) {
		const struct clause *c = &in->clause[i];

		if (c->key == clause->key && c->op == clause->op &&
		    !strcmp(group_of(in, c), group_of(of, clause)) &&
		    (c->op != CLAUSE_IS_NOT || same_clause(c, clause)))
			return c;
	}
	return NULL;
}

static const struct clause *named(const struct contract *in, const char *group)
{
	for (int i = 0; i < in->nsections; i++)
		if (!strcmp(in->section[i].clause.value[0], group))
			return &in->section[i].clause;
	return NULL;
}

static void add(struct contract_changes *out, const struct clause *old,
		const struct clause *new, bool is_group)
{
	out->change[out->n++] = (struct contract_change){ { old, new }, is_group };
}

/* What is alone in contract 'side': groups, with what is said of them, and clauses. */
static void add_alone(struct contract_changes *out, const struct contract contracts[2],
		      int side)
{
	const struct contract *own = &contracts[side], *other = &contracts[!side];
	const struct clause *none = NULL;

	for (int i = 0; i < own->nsections; i++) {
		const struct clause *c = &own->section[i].clause;

		if (!named(other, c->value[0]))
			add(out, side ? none : c, side ? c : none, true);
	}
	for (int i = 0; i < own->nclauses; i++) {
		const struct clause *c = &own->clause[i];

		if ((c->section < 0 || named(other, group_of(own, c))) &&
		    !partner(other, own, c))
			add(out, side ? none : c, side ? c : none, false);
	}
}

enum kvt_status contract_compare(struct contract_changes *out,
				 const struct contract contracts[2],
				 struct kvt_error *err)
{
	const struct contract *old = &contracts[0], *new = &contracts[1];
	size_t room = 1;

	for (int i = 0; i < 2; i++)
		room += (size_t)contracts[i].nclauses + (size_t)contracts[i].nsections;
	*out = (struct contract_changes){ .change = calloc(room, sizeof(*out->change)) };
	if (!out->change)
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < old->nclauses; i++) {
		const struct clause *to = partner(new, old, &old->clause[i]);

		out->nclauses += to != NULL;
		if (to && !same_clause(&old->clause[i], to))
			add(out, &old->clause[i], to, false);
	}
	add_alone(out, contracts, 0);
	add_alone(out, contracts, 1);
	return KVT_OK;
}

/* ---- in words ---------------------------------------------------------------- */

static const char *const ops[] = {
	[CLAUSE_IS] = "", [CLAUSE_IS_NOT] = "not ",
	[CLAUSE_AT_LEAST] = "at least ", [CLAUSE_AT_MOST] = "at most ",
};

struct values {
	char s[512];
};

static struct values values_of(const struct clause *c)
{
	struct values out;
	size_t n = (size_t)snprintf(out.s, sizeof(out.s), "%s", ops[c->op]);

	for (int i = 0; i < c->nvalues && n < sizeof(out.s); i++)
		n += (size_t)snprintf(out.s + n, sizeof(out.s) - n, "%s%s",
				      i ? " or " : "", expect_named(c, i).s);
	return out;
}

struct sentence_of_change contract_change_text(const struct contract contracts[2],
					       const struct contract_change *change)
{
	const struct clause *old = change->clause[0], *new = change->clause[1];
	const struct clause *any = new ? new : old;
	const char *group = change->is_group ? "" :
			    group_of(&contracts[new != NULL], any);
	struct sentence_of_change out;
	int n = snprintf(out.s, sizeof(out.s), "%.60s%s", group, *group ? ": " : "");

	snprintf(out.s + n, sizeof(out.s) - (size_t)n,
		 old && new ? "%s from %s to %s" : old ? "no more: %s %s" : "new: %s %s",
		 change->is_group ? "group" : any->name,
		 old ? values_of(old).s : values_of(new).s, new ? values_of(new).s : "");
	return out;
}

/* What somebody decides, and what it is called. */
static const struct {
	const char *key, *word;
} decisions[] = {
	{ "layout", "" }, { "kind", "" }, { "dtype", "" }, { "content_type", "" },
	{ "block_size", "block " }, { "layers", "layers " }, { "heads", "heads " },
	{ "total_heads", "heads of the model " }, { "head_dim", "head dim " },
	{ "window", "window " }, { "tp_size", "TP " },
};

/* "NHD": the name that most know, or the axes; any other value as it is. */
static struct values short_value(const struct clause *c)
{
	struct kvt_layout layout;
	struct values out = values_of(c);
	const char *name;

	if (c->key->type != CLAUSE_LAYOUT || c->nvalues != 1 || c->op != CLAUSE_IS ||
	    kvt_layout_parse(&layout, c->value[0], NULL))
		return out;
	name = kvt_layout_name(&layout, 0);
	snprintf(out.s, sizeof(out.s), "%s", name ? name : kvt_layout_string(&layout).s);
	for (char *s = out.s; *s; s++)
		*s = (char)toupper((unsigned char)*s);
	return out;
}

/* Of several groups that change alike it is said once. */
void contract_changes_words(char *out, size_t room,
			    const struct contract_changes *changes)
{
	size_t n = 0;

	*out = '\0';
	for (size_t i = 0; i < sizeof(decisions) / sizeof(decisions[0]); i++)
		for (int k = 0; k < changes->n; k++) {
			const struct contract_change *c = &changes->change[k];
			char words[1200];

			if (!c->clause[0] || !c->clause[1] || c->is_group ||
			    strcmp(c->clause[0]->key->name, decisions[i].key))
				continue;
			snprintf(words, sizeof(words), "%s%.500s to %.500s",
				 decisions[i].word, short_value(c->clause[0]).s,
				 short_value(c->clause[1]).s);
			if (!strstr(out, words) && n + strlen(words) + 3 < room)
				n += (size_t)sprintf(out + n, "%s%s", n ? ", " : "",
						     words);
		}
}

void contract_changes_json(struct json_out *out, const struct contract contracts[2],
			   const char *const names[2],
			   const struct contract_changes *changes)
{
	char words[1024];
	json_t *list;

	contract_changes_words(words, sizeof(words), changes);
	json_start(out);
	json_put_text(out, out->root, "old", names[0]);
	json_put_text(out, out->root, "new", names[1]);
	json_put_bool(out, out->root, "equal", !changes->n);
	json_put_text(out, out->root, "summary", words);
	list = json_put_array(out, out->root, "changes");
	for (int i = 0; i < changes->n; i++) {
		const struct contract_change *c = &changes->change[i];
		const struct clause *any = c->clause[c->clause[1] != NULL];
		const char *group = c->is_group ? any->value[0] :
				    group_of(&contracts[c->clause[1] != NULL], any);
		json_t *o = json_append_object(out, list);

		json_put_text(out, o, "group", *group ? group : NULL);
		json_put_text(out, o, "clause", c->is_group ? "group" : any->name);
		for (int k = 0; k < 2; k++)
			json_put_text(out, o, k ? "is" : "was",
				      c->clause[k] ? values_of(c->clause[k]).s : NULL);
		for (int k = 0; k < 2; k++)
			json_put_known(out, o, k ? "new_line" : "old_line",
				       c->clause[k] ? c->clause[k]->line : 0,
				       c->clause[k] != NULL);
	}
}
