/* SPDX-License-Identifier: Apache-2.0 */
/* judge.c - does a dump hold to a clause, and to a contract? */
#include "cli/expect/values.h"

#include <stdlib.h>
#include <string.h>

/* Does '*' of the pattern stand for what is left over? */
static bool matches(const char *pattern, const char *name)
{
	const char *star = NULL, *again = NULL;

	while (*name) {
		if (*pattern == '*') {
			star = pattern++;
			again = name;
		} else if (*pattern == *name) {
			pattern++;
			name++;
		} else if (star) {
			pattern = star + 1;
			name = ++again;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

static bool compare(const struct clause *c, long long found)
{
	long long wanted = strtoll(c->value[0], NULL, 10);

	return c->op == CLAUSE_AT_LEAST ? found >= wanted : found <= wanted;
}

static void judge_values(struct outcome *out, const struct judging *j)
{
	const struct clause *c = out->clause;
	struct text t = { out->found, sizeof(out->found), 0 };
	char *end;

	judging_find(&t, j);
	if (c->op == CLAUSE_AT_LEAST || c->op == CLAUSE_AT_MOST) {
		long long n = strtoll(out->found, &end, 10);

		out->holds = *out->found && !*end && compare(c, n);
		return;
	}
	for (int i = 0; i < c->nvalues && !out->holds; i++)
		out->holds = judging_same(j, out->found, c->value[i]);
	out->holds ^= c->op == CLAUSE_IS_NOT;
}

/* Each layer needs one of the patterns. */
static void judge_names(struct outcome *out, const struct judging *j)
{
	const struct kvt_group *group = j->f->group;
	const struct clause *c = out->clause;

	out->holds = true;
	for (int64_t l = 0; out->holds && l < group->shape.n[KVT_AXIS_L]; l++) {
		bool any = false;

		for (int i = 0; i < c->nvalues; i++)
			any |= matches(c->value[i], group->layer_names[l]);
		out->holds = any != (c->op == CLAUSE_IS_NOT);
		snprintf(out->found, sizeof(out->found), "%.400s for layer %lld",
			 group->layer_names[l], (long long)l);
	}
}

/* Some backend of the list, or none of it. */
static void judge_reasons(struct outcome *out, const struct judging *j)
{
	const struct clause *c = out->clause;
	struct text t = { out->found, sizeof(out->found), 0 };

	for (int i = 0; i < c->nvalues && !out->holds; i++) {
		char why[256];

		if (j->key->type == CLAUSE_BACKEND)
			backend_reasons(why, sizeof(why), j->key, c->value[i],
					j->f->group);
		else
			connector_reasons(why, sizeof(why), c->value[i], j->f->group);
		out->holds = !*why;
		text_add(&t, "%snot %s (%s)", i ? ", " : "", c->value[i], why);
		if (out->holds)
			snprintf(out->found, sizeof(out->found), "%.100s", c->value[i]);
	}
	out->holds ^= c->op == CLAUSE_IS_NOT;
}

static void tell_expected(struct outcome *out)
{
	static const char *const words[] = {
		[CLAUSE_IS] = "", [CLAUSE_IS_NOT] = "none of ",
		[CLAUSE_AT_LEAST] = "at least ", [CLAUSE_AT_MOST] = "at most ",
	};
	const struct clause *c = out->clause;
	struct text t = { out->expected, sizeof(out->expected), 0 };
	struct kvt_layout layout;

	text_add(&t, "%s", words[c->op]);
	for (int i = 0; i < c->nvalues; i++) {
		bool is_layout = c->key && c->key->type == CLAUSE_LAYOUT &&
				 !kvt_layout_parse(&layout, c->value[i], NULL);

		text_add(&t, "%s%s", i ? " or " : "", is_layout ?
		    kvt_layout_string(&layout).s : c->value[i]);
	}
}

static bool start(struct judging *j, const struct clause_key *key, const char *name,
		  const struct expect_dump *dump, int g)
{
	const json_t *object = dump->json;
	const char *path = key ? key->field : name;

	*j = (struct judging){ .dump = dump, .key = key, .name = name };
	if (g >= 0) {
		j->f = &dump->d->group[g];
		object = json_array_get(json_object_get(object, "groups"), (size_t)g);
	}
	if (path)
		j->value = json_field(object, path);
	return !path || j->value;
}

bool expect_judge(struct outcome *out, const struct clause *clause,
		  const struct expect_dump *dump, int g)
{
	struct judging j;

	*out = (struct outcome){ .clause = clause };
	if (!start(&j, clause->key, clause->name, dump, g))
		return false;
	if (j.f)
		snprintf(out->group, sizeof(out->group), "%s", j.f->group->id);
	tell_expected(out);
	if (clause->key && clause->key->type == CLAUSE_NAMES)
		judge_names(out, &j);
	else if (clause->key && (clause->key->type == CLAUSE_BACKEND ||
				 clause->key->type == CLAUSE_CONNECTOR))
		judge_reasons(out, &j);
	else
		judge_values(out, &j);
	return true;
}

void expect_value(char *out, size_t room, const struct clause_key *key,
		  const struct expect_dump *dump, int g)
{
	struct text t = { out, room, 0 };
	struct judging j;

	*out = '\0';
	if (!start(&j, key, key->name, dump, g))
		return;
	if (key->type == CLAUSE_LAYOUT)
		text_add(&t, "%s", kvt_layout_string(&j.f->group->layout).s);
	else
		judging_find(&t, &j);
}

void outcome_text(char *out, size_t room, const struct outcome *o)
{
	snprintf(out, room, "%s%s%s is %s, expected %s", o->group,
		 *o->group ? ": " : "", o->clause->name, *o->found ? o->found : "empty",
		 *o->expected ? o->expected : "empty");
	/* names are a file's to choose, a terminal's state is not */
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
}

/* ---- a whole contract --------------------------------------------------- */

static void add_outcome(struct expect_result *r, const struct outcome *outcome)
{
	if (r->noutcomes == r->room) {
		int room = r->room ? 2 * r->room : 64;
		struct outcome *more = realloc(r->outcome, (size_t)room * sizeof(*more));

		if (!more) {
			r->out_of_memory = true;
			return;
		}
		r->outcome = more;
		r->room = room;
	}
	r->outcome[r->noutcomes++] = *outcome;
	if (!outcome->holds)
		r->status = worse(r->status, KVT_MISMATCH);
}

static void judge_one(struct expect_result *r, const struct clause *clause,
		  const struct expect_dump *dump, int g)
{
	struct outcome outcome;

	if (expect_judge(&outcome, clause, dump, g))
		add_outcome(r, &outcome);
}

static bool is_meant(const struct contract_section *section, const char *group)
{
	const char *id = section->clause.value[0];

	return !strcmp(id, "*") || !strcmp(id, group);
}

/* A contract for a group that the dump lacks is broken by its first line. */
static void judge_section(struct expect_result *r, const struct contract_section *s,
			  const struct expect_dump *dump)
{
	const struct kvt_snapshot *snapshot = dump->d->snapshot;
	struct outcome missing = { .clause = &s->clause };
	size_t used;

	for (int g = 0; g < snapshot->ngroups; g++)
		if (is_meant(s, snapshot->group[g].id))
			return;
	used = (size_t)snprintf(missing.found, sizeof(missing.found), "one of");
	for (int g = 0; g < snapshot->ngroups && used < sizeof(missing.found) - 40; g++)
		used += (size_t)snprintf(missing.found + used,
					 sizeof(missing.found) - used, " %s",
					 snapshot->group[g].id);
	snprintf(missing.expected, sizeof(missing.expected), "%.400s",
		 s->clause.value[0]);
	add_outcome(r, &missing);
}

void expect_contract_held(struct expect_result *r, const struct contract *c,
			  const struct expect_dump *dump)
{
	const struct kvt_snapshot *snapshot = dump->d->snapshot;
	int seen = 0;

	for (int i = 0; i < c->nclauses; i++) {
		const struct clause *clause = &c->clause[i];

		/* groups stand where their line is, also in what is printed */
		for (; seen <= clause->section; seen++)
			judge_section(r, &c->section[seen], dump);
		if (clause->section < 0) {
			judge_one(r, clause, dump, -1);
			continue;
		}
		for (int g = 0; g < snapshot->ngroups; g++)
			if (is_meant(&c->section[clause->section], snapshot->group[g].id))
				judge_one(r, clause, dump, g);
	}
	for (; seen < c->nsections; seen++)
		judge_section(r, &c->section[seen], dump);
}
