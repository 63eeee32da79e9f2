/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contract.c - reading a contract: lines, groups, clauses
 *
 *	kvtool-contract 1		the first line
 *	KEY OP VALUE | VALUE		a clause, of the dump
 *	group ID, group *		from here on of that group, or of every one
 *	# comment			"a value" with blanks, bars or signs in quotes
 *
 * kvtool-contract(5) has the grammar.  Lines are cut up in place; errors have their
 * number.
 */
#include "cli/expect/contract.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "lib/base/grow.h"
#include "lib/base/nearest.h"

enum { VERSION = 1, MAX_CLAUSES = 4096 };

/* ---- characters --------------------------------------------------------- */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static char *skip_blanks(char *s)
{
	while (is_blank(*s))
		s++;
	return s;
}

/* Cuts blanks off the end; s[n] is written. */
static void end_at(char *s, size_t n)
{
	while (n > 0 && is_blank(s[n - 1]))
		n--;
	s[n] = '\0';
}

/* A '#' begins a comment at the start of a line or after a blank. */
static void cut_comment(char *line)
{
	bool quoted = false;

	for (char *s = line; *s; s++) {
		if (quoted && *s == '\\' && s[1])
			s++;
		else if (*s == '"')
			quoted = !quoted;
		else if (*s == '#' && !quoted && (s == line || is_blank(s[-1]))) {
			*s = '\0';
			return;
		}
	}
}

/* ---- values ------------------------------------------------------------- */

/* Takes the quotes off in place; NULL if the last one is missing. */
static char *unquote(char *s)
{
	char *to = s;

	for (s++; *s && *s != '"'; *to++ = *s++)
		if (*s == '\\' && (s[1] == '"' || s[1] == '\\'))
			s++;
	if (*s != '"')
		return NULL;
	*to = '\0';
	return s + 1;
}

/* Cuts the next value off *rest, which becomes NULL after the last. */
static const char *next_value(char **rest)
{
	char *value = skip_blanks(*rest), *end = value;

	if (*value == '"') {
		end = unquote(value);
		if (!end)
			return NULL;
		end = skip_blanks(end);
		if (*end && *end != '|')
			return NULL;
		*rest = *end ? end + 1 : NULL;
		return value;
	}
	end = value + strcspn(value, "|\"");
	if (*end == '"')
		return NULL;
	*rest = *end ? end + 1 : NULL;
	end_at(value, (size_t)(end - value));
	return *value ? value : NULL;
}

void clause_quote(char *out, size_t room, const char *value)
{
	size_t n = strlen(value), used = 0;
	bool plain = n && !is_blank(value[0]) && !is_blank(value[n - 1]) &&
		     !strpbrk(value, "\"|#\\");

	if (room < 2 * n + 3)
		return;
	if (!plain)
		out[used++] = '"';
	for (const char *s = value; *s; s++) {
		if (*s == '"' || (*s == '\\' && !plain))
			out[used++] = '\\';
		out[used++] = *s;
	}
	if (!plain)
		out[used++] = '"';
	out[used] = '\0';
}

/* ---- one clause --------------------------------------------------------- */

static const struct {
	const char *text;
	enum clause_op op;
} ops[] = {
	{ "!=", CLAUSE_IS_NOT }, { ">=", CLAUSE_AT_LEAST }, { "<=", CLAUSE_AT_MOST },
	{ "=", CLAUSE_IS },
};
enum { NOPS = sizeof(ops) / sizeof(ops[0]) };

enum kvt_status clause_parse(struct clause *out, char *text, struct kvt_error *err)
{
	char *op = text + strcspn(text, "=!<>"), *rest = NULL;

	*out = (struct clause){ .section = -1, .name = text };
	for (int i = 0; i < NOPS && !rest; i++)
		if (!strncmp(op, ops[i].text, strlen(ops[i].text))) {
			out->op = ops[i].op;
			rest = op + strlen(ops[i].text);
		}
	if (!rest || op == text || *rest == '=')
		return kvt_fail(err, KVT_BAD_INPUT,
				"'%.100s' is not a clause, expected KEY = VALUE", text);
	end_at(text, (size_t)(op - text));
	out->key = clause_key_find(text);
	while (rest) {
		const char *value = next_value(&rest);

		if (!value)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%.60s: a value is empty or its quotes are not closed",
					text);
		if (out->nvalues == CLAUSE_MAX_VALUES)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%.60s: more than %d alternatives", text,
					CLAUSE_MAX_VALUES);
		out->value[out->nvalues++] = value;
	}
	return KVT_OK;
}

/* ---- lines -------------------------------------------------------------- */

struct parser {
	struct contract *out;
	const char *name;		/* of the file */
	struct kvt_error *err;
	int line;
	bool begun;			/* the first line was there */
};

static enum kvt_status bad(struct parser *p, enum kvt_status status, const char *why)
{
	return kvt_fail(p->err, status, "%s:%d: %.400s", p->name, p->line, why);
}

static enum kvt_status take_begin(struct parser *p, const char *line)
{
	static const char word[] = "kvtool-contract";
	char *end = NULL;
	long version = 0;

	p->begun = true;
	if (!strncmp(line, word, sizeof(word) - 1) && is_blank(line[sizeof(word) - 1]))
		version = strtol(line + sizeof(word), &end, 10);
	if (!end || *end || version < 1)
		return bad(p, KVT_BAD_INPUT,
			   "expected 'kvtool-contract 1' before everything else");
	if (version > VERSION)
		return bad(p, KVT_UNSUPPORTED, "a contract of a later version than 1");
	return KVT_OK;
}

static enum kvt_status take_group(struct parser *p, const char *id)
{
	struct contract *c = p->out;

	if (!*id || strpbrk(id, " \t"))
		return bad(p, KVT_BAD_INPUT, "expected the id of one group, or *");
	for (int i = 0; i < c->nsections; i++)
		if (!strcmp(c->section[i].clause.value[0], id))
			return bad(p, KVT_BAD_INPUT, "this group is listed twice");
	if (c->nsections == MAX_CLAUSES)
		return bad(p, KVT_BAD_INPUT, "more than 4096 groups");
	if (!KVT_GROW(&c->section, c->nsections))
		return bad(p, KVT_SYSTEM, "out of memory");
	c->section[c->nsections] = (struct contract_section){ {
		.line = p->line, .section = c->nsections, .name = "group",
		.nvalues = 1, .value = { id } } };
	c->nsections++;
	return KVT_OK;
}

static enum kvt_status unknown_key(struct parser *p, const struct clause *clause)
{
	struct kvt_nearest near = kvt_nearest_start(clause->name);
	char why[240];

	for (int i = 0; clause_key_at(i); i++)
		kvt_nearest_offer(&near, clause_key_at(i)->name);
	snprintf(why, sizeof(why), "unknown clause '%.60s'%s", clause->name,
		 kvt_nearest_hint(&near, "; see kvtool-contract(5)").s);
	return bad(p, KVT_BAD_INPUT, why);
}

/* Does the contract say this already? */
static const struct clause *find_same(const struct contract *c,
				      const struct clause *clause)
{
	for (int i = 0; clause->op != CLAUSE_IS_NOT && i < c->nclauses; i++)
		if (c->clause[i].key == clause->key && c->clause[i].op == clause->op &&
		    c->clause[i].section == clause->section)
			return &c->clause[i];
	return NULL;
}

static enum kvt_status add_clause(struct parser *p, const struct clause *clause)
{
	struct contract *c = p->out;
	const struct clause *same = find_same(c, clause);
	char why[100];

	if (same) {
		snprintf(why, sizeof(why), "%s is given twice, first on line %d",
			 clause->name, same->line);
		return bad(p, KVT_BAD_INPUT, why);
	}
	if (c->nclauses == MAX_CLAUSES)
		return bad(p, KVT_BAD_INPUT, "more than 4096 clauses");
	if (!KVT_GROW(&c->clause, c->nclauses))
		return bad(p, KVT_SYSTEM, "out of memory");
	c->clause[c->nclauses++] = *clause;
	return KVT_OK;
}

static enum kvt_status take_clause(struct parser *p, char *line)
{
	struct kvt_error why = { "" };
	struct clause clause;

	if (clause_parse(&clause, line, &why))
		return bad(p, KVT_BAD_INPUT, why.text);
	if (!clause.key)
		return unknown_key(p, &clause);
	if (clause.key->of_group && !p->out->nsections)
		return bad(p, KVT_BAD_INPUT,
			   "this is a clause of a group, expected a line 'group ID' before it");
	if (!clause.key->of_group && p->out->nsections)
		return bad(p, KVT_BAD_INPUT,
			   "this is a clause of the dump, expected before the first group");
	if (clause_check(&clause, &why))
		return bad(p, KVT_BAD_INPUT, why.text);
	clause.line = p->line;
	clause.section = p->out->nsections - 1;
	return add_clause(p, &clause);
}

static enum kvt_status take_line(struct parser *p, char *line)
{
	for (const char *s = line; *s; s++)
		if ((unsigned char)*s < ' ' && *s != '\t')
			return bad(p, KVT_BAD_INPUT,
				   "a control character: this is no contract, which kvtool expect write makes");
	cut_comment(line);
	line = skip_blanks(line);
	end_at(line, strlen(line));
	if (!*line)
		return KVT_OK;
	if (!p->begun)
		return take_begin(p, line);
	if (!strncmp(line, "group", 5) && is_blank(line[5]) &&
	    *skip_blanks(line + 5) != '=')
		return take_group(p, skip_blanks(line + 5));
	return take_clause(p, line);
}

/* ---- the whole file ----------------------------------------------------- */

enum kvt_status contract_parse(struct contract *out, const char *text, size_t nbytes,
			       const char *name, struct kvt_error *err)
{
	struct parser p = { .out = out, .name = name, .err = err };
	enum kvt_status status = KVT_OK;
	char *line, *end;

	*out = (struct contract){ .text = malloc(nbytes + 1) };
	if (!out->text)
		return kvt_no_memory(err, name);
	if (nbytes)
		memcpy(out->text, text, nbytes);
	out->text[nbytes] = '\0';
	for (line = out->text; !status && line < out->text + nbytes; line = end + 1) {
		end = line + strcspn(line, "\n");
		p.line++;
		/* a zero would end the line before its end */
		if (*end != '\n' && end < out->text + nbytes)
			return bad(&p, KVT_BAD_INPUT,
				   "a control character: this is no contract, which kvtool expect write makes");
		*end = '\0';
		if (end > line && end[-1] == '\r')
			end[-1] = '\0';
		status = take_line(&p, line);
	}
	if (!status && !p.begun) {
		p.line++;
		status = bad(&p, KVT_BAD_INPUT, "is empty, expected 'kvtool-contract 1'");
	}
	return status;
}

void contract_free(struct contract *contract)
{
	free(contract->text);
	free(contract->section);
	free(contract->clause);
	*contract = (struct contract){ 0 };
}
