/* SPDX-License-Identifier: Apache-2.0 */
/* expect_hold.c - what a clause finds in a dump, and whether that is expected */
#include "cli/expect.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* What a clause is judged by. */
struct judging {
	const struct expect_dump *dump;
	const struct clause_key *key;
	const char *name;
	const struct group_facts *f;	/* NULL: the whole dump */
	const json_t *value;		/* of the field, if the key has one */
};

/* Text that grows to the end of a buffer and no further. */
struct text {
	char *s;
	size_t room, used;
};

static void add(struct text *t, const char *format, ...) KVT_PRINTF(2, 3);
static void add(struct text *t, const char *format, ...)
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
		add(t, "%s", json_string_value(value));
		break;
	case JSON_INTEGER:
		add(t, "%lld", (long long)json_integer_value(value));
		break;
	case JSON_REAL:
		add(t, "%.15g", json_real_value(value));
		break;
	case JSON_ARRAY:
		/* arrays of numbers or names: "0,1,3,2,4" */
		for (size_t i = 0; i < json_array_size(value); i++) {
			const json_t *item = json_array_get(value, i);

			add(t, "%s", i ? "," : "");
			if (!json_is_array(item) && !json_is_object(item))
				text_of(t, item);
		}
		break;
	default:
		add(t, "%s", json_is_true(value) ? "true" : json_is_false(value) ?
			     "false" : json_is_null(value) ? "null" : "an object");
	}
}

/* "predicates.head_run" inside 'object'; NULL if there is no such field. */
static const json_t *field(const json_t *object, const char *path)
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

static bool same_field(const struct judging *j, const char *found, const char *wanted)
{
	if (json_is_integer(j->value) && strspn(wanted, "-0123456789") == strlen(wanted))
		return *wanted && json_integer_value(j->value) == strtoll(wanted, NULL, 10);
	if (json_is_number(j->value))
		return same_number(j->value, wanted);
	return !strcmp(found, wanted);
}

static void find_field(struct text *t, const struct judging *j)
{
	text_of(t, j->value);
}

/* ---- the whole dump ----------------------------------------------------- */

static void find_parallel(struct text *t, const struct judging *j)
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
			add(t, "%lld", (long long)rows[i].n);
}

static void find_groups(struct text *t, const struct judging *j)
{
	const struct kvt_snapshot *s = j->dump->d->snapshot;

	for (int g = 0; g < s->ngroups; g++)
		add(t, "%s%s", g ? " " : "", s->group[g].id);
}

static void find_digest(struct text *t, const struct judging *j)
{
	const char *digest = j->dump->digest[!strcmp(j->key->name, "digest.blocks")];

	add(t, "%s", digest ? digest : "not there: no request is known");
}

static bool same_text(const struct judging *j, const char *found, const char *wanted)
{
	(void)j;
	return !strcmp(found, wanted);
}

/* Words, whatever blanks are between them. */
static bool same_words(const struct judging *j, const char *found, const char *wanted)
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

static bool same_dtype(const struct judging *j, const char *found, const char *wanted)
{
	(void)found;
	return kvt_dtype_find(wanted) == j->f->group->dtype;
}

static void find_layout(struct text *t, const struct judging *j)
{
	add(t, "%s", human_layout(&j->f->group->layout).s);
}

/*
 * Layouts are equal if every byte is at the same place: axes of extent 1 stand
 * anywhere.
 */
static bool same_layout(const struct judging *j, const char *found, const char *wanted)
{
	const struct kvt_group *group = j->f->group;
	struct kvt_box box = kvt_box_whole(&group->shape);
	struct kvt_layout layout;
	struct kvt_views va, vb;
	struct kvt_plans plans;

	(void)found;
	if (kvt_layout_parse(&layout, wanted, NULL))
		return false;
	if (kvt_layout_equal(&layout, &group->layout))
		return true;
	if (kvt_layout_views(&va, &layout, &box, group->shape.elem, NULL) ||
	    kvt_layout_views(&vb, &group->layout, &box, group->shape.elem, NULL) ||
	    kvt_plans_init(&plans, &va, &vb, NULL))
		return false;
	for (int i = 0; i < plans.count; i++) {
		const struct kvt_plan *p = &plans.plan[i];

		if (p->src_offset != p->dst_offset)
			return false;
		for (int k = 0; k < p->nloops; k++)
			if (p->src_stride[k] != p->dst_stride[k])
				return false;
	}
	return true;
}

/* The plane that the clause is about; NULL: there is none of this name. */
static const json_t *plane_of(const struct judging *j)
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
static int64_t stride_at(struct clause_word *out, const struct judging *j,
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
			 *part == 'o' ? '/' : '%', (long long)extent);
	/* those of layers and blocks are of the pages, if there are some */
	if (j->f->page_stride[0] && (*letter == 'L' || *letter == 'B'))
		out->n = j->f->page_stride[*letter == 'B'];
	return json_integer_value(json_object_get(axis, "extent"));
}

static void find_strides(struct text *t, const struct judging *j)
{
	const json_t *axes = plane_of(j);
	struct clause_word word;

	if (!axes)
		add(t, "%s", strchr(j->name, '.') ?
			     "not apart: keys and values are one array" :
			     "of keys and of values apart");
	/* along an axis of one entry nobody goes */
	for (size_t i = 0; i < json_array_size(axes); i++)
		if (stride_at(&word, j, axes, i) > 1)
			add(t, "%s%s:%lld", t->used ? " " : "", word.name,
			    (long long)word.n);
}

static bool same_strides(const struct judging *j, const char *found, const char *wanted)
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

/* ---- all types ---------------------------------------------------------- */

static void find_ranges(struct text *t, const struct judging *j)
{
	const struct kvt_group *group = j->f->group;
	int64_t n = group->shape.n[KVT_AXIS_L], from = 0;

	if (!group->layer_ids)
		add(t, "not known");
	for (int64_t i = 1; group->layer_ids && i <= n; i++) {
		const uint32_t *id = group->layer_ids;

		if (i < n && id[i] == id[i - 1] + 1)
			continue;
		add(t, i - from > 1 ? "%s%lu:%lu" : "%s%lu", t->used ? "," : "",
		    (unsigned long)id[from], (unsigned long)id[i - 1] + 1);
		from = i;
	}
}

static bool same_ranges(const struct judging *j, const char *found, const char *wanted)
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

static void find_parts(struct text *t, const struct judging *j)
{
	const struct kvt_group *group = j->f->group;

	for (int i = 0; i < group->ncomponents; i++) {
		const struct kvt_component *c = &group->component[i];

		add(t, "%s%s:%lld+%lld", i ? " " : "", c->name, (long long)c->start,
		    (long long)c->length);
		if (c->global_start != c->start)
			add(t, "@%lld", (long long)c->global_start);
	}
}

/* found: what is computed; NULL: the field.  same: NULL: judged alone, below. */
static const struct {
	void (*find)(struct text *t, const struct judging *j);
	bool (*same)(const struct judging *j, const char *found, const char *wanted);
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
	[CLAUSE_DIGEST] = { find_digest, same_text },
};

static bool compare(const struct clause *c, long long found)
{
	long long wanted = strtoll(c->value[0], NULL, 10);

	return c->op == CLAUSE_AT_LEAST ? found >= wanted : found <= wanted;
}

static void judge_values(struct outcome *out, const struct judging *j)
{
	const struct clause *c = out->clause;
	struct text t = { out->found, sizeof(out->found), 0 };
	enum clause_type type = j->key ? j->key->type : CLAUSE_INT;
	char *end;

	types[type].find(&t, j);
	if (c->op == CLAUSE_AT_LEAST || c->op == CLAUSE_AT_MOST) {
		long long n = strtoll(out->found, &end, 10);

		out->holds = *out->found && !*end && compare(c, n);
		return;
	}
	for (int i = 0; i < c->nvalues && !out->holds; i++)
		out->holds = types[type].same(j, out->found, c->value[i]);
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
		add(&t, "%snot %s (%s)", i ? ", " : "", c->value[i], why);
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

	add(&t, "%s", words[c->op]);
	for (int i = 0; i < c->nvalues; i++) {
		bool is_layout = c->key && c->key->type == CLAUSE_LAYOUT &&
				 !kvt_layout_parse(&layout, c->value[i], NULL);

		add(&t, "%s%s", i ? " or " : "", is_layout ?
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
		j->value = field(object, path);
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
	else if (clause->key && !types[clause->key->type].find)
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
	if (!start(&j, key, key->name, dump, g) || !types[key->type].find)
		return;
	if (key->type == CLAUSE_LAYOUT)
		add(&t, "%s", kvt_layout_string(&j.f->group->layout).s);
	else if (key->type != CLAUSE_STRIDES || plane_of(&j))
		types[key->type].find(&t, &j);
}

void outcome_text(char *out, size_t room, const struct outcome *o)
{
	snprintf(out, room, "%s%s%s is %s, expected %s", o->group,
		 *o->group ? ": " : "", o->clause->name, o->found, o->expected);
}
