/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe.c - what a command line demands of a dump
 *
 * Every clause of a contract can be expected, and every field of the JSON object
 * by its key.  What belongs to groups must hold in all of them, unless it is
 * written with the group's id: g0.dtype.
 */
#include "print/describe.h"

#include <stdlib.h>
#include <string.h>

#include "cli/expect/expect.h"

struct expecting {
	const struct command *command;
	struct expect_dump dump;
	struct clause clause;
	enum kvt_status status;
	int nfound;
};

static void hold(struct expecting *e, int g)
{
	struct outcome outcome;
	char text[1100];

	if (!expect_judge(&outcome, &e->clause, &e->dump, g))
		return;
	e->nfound++;
	if (outcome.holds)
		return;
	outcome_text(text, sizeof(text), &outcome);
	complain(e->command, "%s: %s", e->dump.d->path, text);
	e->status = KVT_MISMATCH;
}

/* "g0.dtype": the group; the clause is then about what follows. */
static int named_group(struct expecting *e)
{
	const struct kvt_snapshot *s = e->dump.d->snapshot;
	const char *name = e->clause.name;

	for (int g = 0; g < s->ngroups; g++) {
		size_t n = strlen(s->group[g].id);

		if (strncmp(name, s->group[g].id, n) || name[n] != '.')
			continue;
		e->clause.name = name + n + 1;
		e->clause.key = clause_key_find(e->clause.name);
		return g;
	}
	return -1;
}

static enum kvt_status expect_one(struct expecting *e, struct kvt_error *err)
{
	const char *name = e->clause.name;
	int named = -1, ngroups = e->dump.d->snapshot->ngroups;
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (!e->clause.key && strcmp(name, "requests"))
		hold(e, -1);
	if (e->nfound)
		return e->status;
	if (!e->clause.key)
		named = named_group(e);
	if (e->clause.key && (status = clause_check(&e->clause, &why)))
		return kvt_fail(err, e->clause.key->type == CLAUSE_LAYOUT ? status :
				KVT_USAGE, "%s", why.text);
	if (e->clause.key && e->clause.key->type == CLAUSE_DIGEST)
		return kvt_fail(err, KVT_USAGE,
				"--expect %s: use kvtool digest, or kvtool expect", name);
	if (named >= 0)
		hold(e, named);
	else if (e->clause.key && !e->clause.key->of_group)
		hold(e, -1);
	else
		for (int g = 0; g < ngroups; g++)
			hold(e, g);
	if (!e->nfound)
		return kvt_fail(err, KVT_USAGE,
				"--expect %s: there is no such field; see kvtool-json(5)", name);
	return e->status;
}

static enum kvt_status expect_text(const struct expecting *all, const char *option,
				   const char *text, struct kvt_error *err)
{
	struct expecting e = *all;
	char *words = malloc(strlen(text) + sizeof("layout="));
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (!words)
		return kvt_no_memory(err, NULL);
	/* --expect-layout is short for this */
	sprintf(words, "%s%s", *option ? "layout=" : "", text);
	if (clause_parse(&e.clause, words, &why))
		status = kvt_fail(err, KVT_USAGE,
				  "--expect%s is '%.100s', expected %s", option, text,
				  *option ? "a layout" : "KEY=VALUE");
	else
		status = expect_one(&e, err);
	free(words);
	return status;
}

enum kvt_status describe_expect(const struct command *command,
				const struct kvt_description *d, const char *layout,
				const struct opt_strings *clauses, const json_t *json,
				struct kvt_error *err)
{
	const struct expecting all = { command, .dump = { .d = d, .json = json } };
	enum kvt_status status = KVT_OK;

	if (layout)
		status = expect_text(&all, "-layout", layout, err);
	for (int i = 0; i < clauses->n && status <= KVT_MISMATCH; i++)
		status = worse(status, expect_text(&all, "", clauses->s[i], err));
	return status;
}
