/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.c - does a dump hold to a clause, and to a contract?
 *
 * In: a clause, and the object of describe --json with the facts that it was made of.
 * Most clauses are about one value: it is found as text, by the type of the clause's
 * key (the table 'types'), and compared with each of the values that will do.  Names
 * of layers, backends and connectors have reasons instead of a value.  A contract is
 * judged clause by clause, in the order of its lines, for each group that it means.
 */
#include "cli/expect/expect.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

/* What a clause is judged by. */
struct subject {
	const struct expect_dump *dump;
	const struct clause_key *key;	/* NULL: a field of that name */
	const char *name;
	const struct kvt_group_facts *f;	/* NULL: the whole dump */
	const json_t *value;		/* of the field, if the key has one */
};

/* Text that grows to the end of a buffer and no further. */
struct text {
	char *s;
	size_t room, used;
};
KVT_PRINTF(2, 3) static void text_add(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	if (t->used + 1 >= t->room)
		return;
	va_start(args, format);
	n = vsnprintf(t->s + t->used, t->room - t->used, format, args);
	va_end(args);
	t->used += n > 0 ? (size_t)n : 0;
	if (t->used >= t->room)
		t->used = t->room - 1;
}

/* ---- fields of the JSON object ------------------------------------------ */

static void text_of(struct text *t, const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_STRING:
		text_add(t, "%s", json_string_value(value));
		break;
	case JSON_INTEGER:
		text_add(t, "%lld", LL(json_integer_value(value)));
		break;
	case JSON_REAL:
		text_add(t, "%.15g", json_real_value(value));
		break;
	case JSON_ARRAY:
		/* arrays of numbers or names: "0,1,3,2,4" */
		for (size_t i = 0; i < json_array_size(value); i++) {
			const json_t *item = json_array_get(value, i);

			text_add(t, "%s", i ? "," : "");
			if (!json_is_array(item) && !json_is_object(item))
				text_of(t, item);
		}
		break;
	default:
		text_add(t, "%s", json_is_true(value) ? "true" : json_is_false(value) ?
			 "false" : json_is_null(value) ? "null" : "an object");
	}
}

/* "predicates.head_run" inside 'object'; NULL if there is no such field. */
static const json_t *json_field(const json_t *object, const char *path)
{
	char key[64];
	const char *dot;

	while (json_is_object(object)) {
		dot = strchr(path, '.');
		if (!dot)
			return json_object_get(object, path);
		if (dot - path >= (long)sizeof(key))
			return NULL;
		memcpy(key, path, (size_t)(dot - path));
		key[dot - path] = '\0';
		object = json_object_get(object, key);
		path = dot + 1;
	}
	return NULL;
}

static bool same_number(const json_t *value, const char *wanted)
{
	char *end;
	double x = strtod(wanted, &end);

	return *wanted && !*end && x == json_number_value(value);
}

static bool same_field(const struct subject *j, const char *found, const char *wanted)
{
	/* exact, beyond 2^53 too */
	if (json_is_integer(j->value) && !wanted[strspn(wanted, "-0123456789")])
		return *wanted &&
		       json_integer_value(j->value) == strtoll(wanted, NULL, 10);
	if (json_is_number(j->value))
		return same_number(j->value, wanted);
	return !strcmp(found, wanted);
}

static void find_field(struct text *t, const struct subject *j)
{
	text_of(t, j->value);
}

/* ---- the whole dump ----------------------------------------------------- */

static void find_parallel(struct text *t, const struct subject *j)
{
	const struct kvt_parallel *p = &j->dump->d->snapshot->parallel;
	const struct {
		const char *name;
		int64_t n;
	} rows[] = {
		{ "tp_size", p->tp_size }, { "tp_rank", p->tp_rank },
		{ "pp_size", p->pp_size }, { "pp_rank", p->pp_rank },
		{ "dp_size", p->dp_size }, { "dp_rank", p->dp_rank },
		{ "dcp_size", p->dcp_size }, { "dcp_rank", p->dcp_rank },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].name, j->key->name))
			text_add(t, "%lld", LL(rows[i].n));
}

static void find_groups(struct text *t, const struct subject *j)
{
	const struct kvt_snapshot *s = j->dump->d->snapshot;

	for (int g = 0; g < s->ngroups; g++)
		text_add(t, "%s%s", g ? " " : "", s->group[g].id);
}

static void find_digest(struct text *t, const struct subject *j)
{
	const char *digest = j->dump->digest[!strcmp(j->key->name, "digest.blocks")];

	text_add(t, "%s", digest ? digest : "not available: the dump has no requests");
}

static bool same_text(const struct subject *j, const char *found, const char *wanted)
{
	(void)j;
	return !strcmp(found, wanted);
}

static bool same_digest(const struct subject *j, const char *found, const char *wanted)
{
	const char *kvd1 = !strcmp(j->key->name, "digest.tokens") ? j->dump->kvd1 : NULL;

	return !strcmp(found, wanted) || (kvd1 && !strcmp(kvd1, wanted));
}

/* Words, whatever blanks are between them. */
static bool same_words(const struct subject *j, const char *found, const char *wanted)
{
	(void)j;
	for (;;) {
		size_t n = strcspn(found, " "), m;

		wanted += strspn(wanted, " \t");
		m = strcspn(wanted, " \t");
		if (n != m || strncmp(found, wanted, n))
			return false;
		if (!n)
			return true;
		found += n + (found[n] == ' ');
		wanted += m;
	}
}

/* ---- groups ------------------------------------------------------------- */

static bool same_dtype(const struct subject *j, const char *found, const char *wanted)
{
	(void)found;
	return kvt_dtype_find(wanted) == j->f->group->dtype;
}

static void find_layout(struct text *t, const struct subject *j)
{
	text_add(t, "%s", human_layout(&j->f->group->layout).s);
}

static bool same_layout(const struct subject *j, const char *found, const char *wanted)
{
	const struct kvt_group *group = j->f->group;
	struct kvt_layout layout;

	(void)found;
	return !kvt_layout_parse(&layout, wanted, NULL) &&
	       kvt_layout_agree(&layout, &group->layout, &group->shape);
}

/* The plane that the clause is about; NULL: there is none of this name. */
static const json_t *plane_of(const struct subject *j)
{
	const char *dot = strchr(j->name, '.'), *wanted = dot ? dot + 1 : "all";
	const json_t *groups = json_object_get(j->dump->json, "groups");
	size_t g = (size_t)(j->f - j->dump->d->group);
	const json_t *planes = json_object_get(json_array_get(groups, g), "memory");

	for (size_t i = 0; i < json_array_size(planes); i++) {
		const json_t *plane = json_array_get(planes, i);

		if (!strcmp(json_string_value(json_object_get(plane, "holds")), wanted))
			return json_object_get(plane, "axes");
	}
	return NULL;
}

/* "L", "D/8", "D%8", as layouts are written. */
static int64_t stride_at(struct clause_word *out, const struct subject *j,
			 const json_t *axes, size_t i)
{
	const json_t *axis = json_array_get(axes, i);
	const char *letter = json_string_value(json_object_get(axis, "axis"));
	const char *part = json_string_value(json_object_get(axis, "part"));
	int64_t extent = json_integer_value(json_object_get(axis, "extent"));

	/* of an outer part the inner one tells how many are together */
	for (size_t k = 0; !strcmp(part, "outer") && k < json_array_size(axes); k++) {
		const json_t *inner = json_array_get(axes, k);

		if (!strcmp(json_string_value(json_object_get(inner, "axis")), letter) &&
		    !strcmp(json_string_value(json_object_get(inner, "part")), "inner"))
			extent = json_integer_value(json_object_get(inner, "extent"));
	}
	out->n = json_integer_value(json_object_get(axis, "stride"));
	if (!strcmp(part, "whole"))
		snprintf(out->name, sizeof(out->name), "%s", letter);
	else
		snprintf(out->name, sizeof(out->name), "%s%c%lld", letter,
			 *part == 'o' ? '/' : '%', LL(extent));
	/* those of layers and blocks are of the pages, if there are some */
	if (j->f->page_stride[0] && (*letter == 'L' || *letter == 'B'))
		out->n = j->f->page_stride[*letter == 'B'];
	return json_integer_value(json_object_get(axis, "extent"));
}

static void find_strides(struct text *t, const struct subject *j)
{
	const json_t *axes = plane_of(j);
	struct clause_word word;

	if (!axes)
		text_add(t, "%s", strchr(j->name, '.') ?
			 "not available: keys and values are one array" :
			 "separate for keys and for values");
	/* the stride of an axis of one entry means nothing */
	for (size_t i = 0; i < json_array_size(axes); i++)
		if (stride_at(&word, j, axes, i) > 1)
			text_add(t, "%s%s:%lld", t->used ? " " : "", word.name,
				 LL(word.n));
}

static bool same_strides(const struct subject *j, const char *found, const char *wanted)
{
	const json_t *axes = plane_of(j);
	struct clause_word want, word;

	(void)found;
	while (clause_next_stride(&wanted, &want)) {
		bool same = false;

		for (size_t i = 0; i < json_array_size(axes); i++) {
			stride_at(&word, j, axes, i);
			same |= word.n == want.n && !strcmp(word.name, want.name);
		}
		if (!same)
			return false;
	}
	return axes != NULL;
}

/* ---- all types ---------------------------------------------------------- */

static void find_ranges(struct text *t, const struct subject *j)
{
	const struct kvt_group *group = j->f->group;
	int64_t n = group->shape.n[KVT_AXIS_L], from = 0;

	if (!group->layer_ids)
		text_add(t, "not known");
	for (int64_t i = 1; group->layer_ids && i <= n; i++) {
		const uint32_t *id = group->layer_ids;

		if (i < n && id[i] == id[i - 1] + 1)
			continue;
		text_add(t, i - from > 1 ? "%s%lu:%lu" : "%s%lu", t->used ? "," : "",
			 (unsigned long)id[from], (unsigned long)id[i - 1] + 1);
		from = i;
	}
}

static bool same_ranges(const struct subject *j, const char *found, const char *wanted)
{
	const struct kvt_group *group = j->f->group;
	int64_t n = group->shape.n[KVT_AXIS_L], at = 0, begin, end;

	(void)found;
	if (!group->layer_ids)
		return false;
	while (clause_next_range(&wanted, &begin, &end))
		for (; begin < end; begin++, at++)
			if (at >= n || group->layer_ids[at] != begin)
				return false;
	return at == n;
}

static void find_parts(struct text *t, const struct subject *j)
{
	const struct kvt_group *group = j->f->group;

	for (int i = 0; i < group->ncomponents; i++) {
		const struct kvt_component *c = &group->component[i];

		text_add(t, "%s%s:%lld+%lld", i ? " " : "", c->name, LL(c->start),
			 LL(c->length));
		if (c->global_start != c->start)
			text_add(t, "@%lld", LL(c->global_start));
	}
}

/* Those without are judged by reasons or patterns, not by a value. */
static const struct {
	void (*find)(struct text *t, const struct subject *j);
	bool (*same)(const struct subject *j, const char *found, const char *wanted);
} types[CLAUSE_NTYPES] = {
	[CLAUSE_TEXT] = { find_field, same_text },
	[CLAUSE_INT] = { find_field, same_field },
	[CLAUSE_BOOL] = { find_field, same_text },
	[CLAUSE_KIND] = { find_field, same_text },
	[CLAUSE_PARALLEL] = { find_parallel, same_text },
	[CLAUSE_GROUPS] = { find_groups, same_words },
	[CLAUSE_DTYPE] = { find_field, same_dtype },
	[CLAUSE_LAYOUT] = { find_layout, same_layout },
	[CLAUSE_STRIDES] = { find_strides, same_strides },
	[CLAUSE_RANGES] = { find_ranges, same_ranges },
	[CLAUSE_PARTS] = { find_parts, same_words },
	[CLAUSE_DIGEST] = { find_digest, same_digest },
};

/* False: the clause is judged in another way, there is no one value. */
static bool find_value(struct text *t, const struct subject *j)
{
	enum clause_type type = j->key ? j->key->type : CLAUSE_INT;

	if (types[type].find)
		types[type].find(t, j);
	return types[type].find != NULL;
}

/* Is what was found what is wanted? */
static bool is_same(const struct subject *j, const char *found, const char *wanted)
{
	return types[j->key ? j->key->type : CLAUSE_INT].same(j, found, wanted);
}

/* ---- one clause --------------------------------------------------------- */

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

static void judge_values(struct outcome *out, const struct subject *j)
{
	const struct clause *c = out->clause;
	struct text t = { out->found, sizeof(out->found), 0 };
	char *end;

	find_value(&t, j);
	if (c->op == CLAUSE_AT_LEAST || c->op == CLAUSE_AT_MOST) {
		long long n = strtoll(out->found, &end, 10);

		out->holds = *out->found && !*end && compare(c, n);
		return;
	}
	for (int i = 0; i < c->nvalues && !out->holds; i++)
		out->holds = is_same(j, out->found, c->value[i]);
	out->holds ^= c->op == CLAUSE_IS_NOT;
}

/* What is said here of vLLM is of these: nothing that a dump could break. */
static void judge_release(struct outcome *out, const struct subject *j)
{
	out->holds = true;
	out->releases = j->dump->releases;
	snprintf(out->found, sizeof(out->found), "%s",
		 kvt_releases_text(out->releases).s);
}

/* Each layer needs one of the patterns. */
static void judge_names(struct outcome *out, const struct subject *j)
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
			 group->layer_names[l], LL(l));
	}
}

/* Some backend of the list, each in releases of its own, or none of it. */
static void judge_reasons(struct outcome *out, const struct subject *j)
{
	const struct clause *c = out->clause;
	struct text t = { out->found, sizeof(out->found), 0 };

	for (int i = 0; i < c->nvalues; i++) {
		unsigned releases;
		char why[256];

		if (j->key->type == CLAUSE_BACKEND)
			releases = backend_reasons(why, sizeof(why), j->key, c->value[i],
						   j->dump, j->f->group);
		else
			releases = connector_reasons(why, sizeof(why), c->value[i],
						     j->dump, j->f->group);
		if (!out->releases && releases)
			snprintf(out->found, sizeof(out->found), "%.100s", c->value[i]);
		else if (!out->releases)
			text_add(&t, "%snot %s (%s)", i ? ", " : "", c->value[i], why);
		out->releases |= releases;
	}
	out->holds = (out->releases != 0) != (c->op == CLAUSE_IS_NOT);
}

/* A layout by its axes, and by the name that most know if 'named'. */
static struct human value_of(const struct clause *clause, int i, bool named)
{
	struct kvt_layout layout;
	struct human out;
	const char *name;

	if (!clause->key || clause->key->type != CLAUSE_LAYOUT ||
	    kvt_layout_parse(&layout, clause->value[i], NULL)) {
		snprintf(out.s, sizeof(out.s), "%s", clause->value[i]);
		return out;
	}
	name = named ? kvt_layout_name(&layout, 0) : NULL;
	snprintf(out.s, sizeof(out.s), "%s%s%s%s", kvt_layout_string(&layout).s,
		 name ? " (" : "", name ? name : "", name ? ")" : "");
	return out;
}

struct human expect_named(const struct clause *clause, int i)
{
	return value_of(clause, i, true);
}

static void tell_expected(char *out, size_t room, const struct clause *c, bool named)
{
	static const char *const words[] = {
		[CLAUSE_IS] = "", [CLAUSE_IS_NOT] = "none of ",
		[CLAUSE_AT_LEAST] = "at least ", [CLAUSE_AT_MOST] = "at most ",
	};
	struct text t = { out, room, 0 };

	text_add(&t, "%s", words[c->op]);
	for (int i = 0; i < c->nvalues; i++)
		text_add(&t, "%s%s", i ? " or " : "", value_of(c, i, named).s);
}

static bool start(struct subject *j, const struct clause_key *key, const char *name,
		  const struct expect_dump *dump, int g)
{
	const json_t *object = dump->json;
	const char *path = key ? key->field : name;

	*j = (struct subject){ .dump = dump, .key = key, .name = name };
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
	struct subject j;

	*out = (struct outcome){ .clause = clause };
	if (!start(&j, clause->key, clause->name, dump, g))
		return false;
	if (j.f)
		snprintf(out->group, sizeof(out->group), "%s", j.f->group->id);
	tell_expected(out->expected, sizeof(out->expected), clause, false);
	if (clause->key && clause->key->type == CLAUSE_NAMES)
		judge_names(out, &j);
	else if (clause->key && clause->key->type == CLAUSE_RELEASE)
		judge_release(out, &j);
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
	struct subject j;

	*out = '\0';
	if (!start(&j, key, key->name, dump, g))
		return;
	if (key->type == CLAUSE_LAYOUT)
		text_add(&t, "%s", kvt_layout_string(&j.f->group->layout).s);
	else
		find_value(&t, &j);
}

void outcome_text(char *out, size_t room, const struct outcome *o)
{
	char expected[sizeof(o->expected)];

	snprintf(expected, sizeof(expected), "%s", *o->expected ? o->expected : "empty");
	/* JSON has the axes alone */
	if (o->clause->key && o->clause->key->type == CLAUSE_LAYOUT)
		tell_expected(expected, sizeof(expected), o->clause, true);
	snprintf(out, room, "%s%s%s is %s, expected %s", o->group,
		 *o->group ? ": " : "", o->clause->name, *o->found ? o->found : "empty",
		 expected);
	/* names are a file's to choose, a terminal's state is not */
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
}

/* ---- a whole contract --------------------------------------------------- */

static void add_outcome(struct expect_result *r, const struct outcome *outcome)
{
	if (!KVT_GROW(&r->outcome, r->noutcomes)) {
		r->out_of_memory = true;
		return;
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

/*
 * One release wrote the dump: some of those in which a clause about the engine holds
 * must be one of all others, too.  The first clause that leaves none is broken.
 */
static void judge_together(struct expect_result *r)
{
	for (int i = 0; i < r->noutcomes; i++) {
		struct outcome *o = &r->outcome[i];
		unsigned both = r->releases ? r->releases & o->releases : o->releases;

		if (!o->holds || !o->releases || !o->clause->key->of_group)
			continue;
		if (!both) {
			o->holds = false;
			snprintf(o->found, sizeof(o->found), "of vLLM %s",
				 kvt_releases_text(o->releases).s);
			snprintf(o->expected, sizeof(o->expected),
				 "one release for all clauses, of %s by those before it",
				 kvt_releases_text(r->releases).s);
			r->status = worse(r->status, KVT_MISMATCH);
		}
		r->releases = both;
		if (!both)
			return;
	}
}

void expect_judge_contract(struct expect_result *r, const struct contract *c,
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
	judge_together(r);
}
