/* SPDX-License-Identifier: Apache-2.0 */
/* values.c - the value of a clause in a dump, and what is the same */
#include "cli/expect/values.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void text_add(struct text *t, const char *format, ...)
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
		text_add(t, "%lld", (long long)json_integer_value(value));
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

const json_t *json_field(const json_t *object, const char *path)
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
	/* exact, beyond 2^53 too */
	if (json_is_integer(j->value) && !wanted[strspn(wanted, "-0123456789")])
		return *wanted &&
		       json_integer_value(j->value) == strtoll(wanted, NULL, 10);
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
			text_add(t, "%lld", (long long)rows[i].n);
}

static void find_groups(struct text *t, const struct judging *j)
{
	const struct kvt_snapshot *s = j->dump->d->snapshot;

	for (int g = 0; g < s->ngroups; g++)
		text_add(t, "%s%s", g ? " " : "", s->group[g].id);
}

static void find_digest(struct text *t, const struct judging *j)
{
	const char *digest = j->dump->digest[!strcmp(j->key->name, "digest.blocks")];

	text_add(t, "%s", digest ? digest : "not there: no request is known");
}

static bool same_text(const struct judging *j, const char *found, const char *wanted)
{
	(void)j;
	return !strcmp(found, wanted);
}

static bool same_digest(const struct judging *j, const char *found, const char *wanted)
{
	const char *kvd1 = !strcmp(j->key->name, "digest.tokens") ? j->dump->kvd1 : NULL;

	return !strcmp(found, wanted) || (kvd1 && !strcmp(kvd1, wanted));
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
	text_add(t, "%s", human_layout(&j->f->group->layout).s);
}

static bool same_layout(const struct judging *j, const char *found, const char *wanted)
{
	const struct kvt_group *group = j->f->group;
	struct kvt_layout layout;

	(void)found;
	return !kvt_layout_parse(&layout, wanted, NULL) &&
	       kvt_layout_agree(&layout, &group->layout, &group->shape);
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
		text_add(t, "%s", strchr(j->name, '.') ?
			     "not apart: keys and values are one array" :
			     "of keys and of values apart");
	/* along an axis of one entry nobody goes */
	for (size_t i = 0; i < json_array_size(axes); i++)
		if (stride_at(&word, j, axes, i) > 1)
			text_add(t, "%s%s:%lld", t->used ? " " : "", word.name,
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

/* ---- all types ---------------------------------------------------------- */

static void find_ranges(struct text *t, const struct judging *j)
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

		text_add(t, "%s%s:%lld+%lld", i ? " " : "", c->name, (long long)c->start,
		    (long long)c->length);
		if (c->global_start != c->start)
			text_add(t, "@%lld", (long long)c->global_start);
	}
}

/* Those without are judged by reasons or patterns, not by a value. */
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
	[CLAUSE_DIGEST] = { find_digest, same_digest },
};

bool judging_find(struct text *t, const struct judging *j)
{
	enum clause_type type = j->key ? j->key->type : CLAUSE_INT;

	if (types[type].find)
		types[type].find(t, j);
	return types[type].find != NULL;
}

bool judging_same(const struct judging *j, const char *found, const char *wanted)
{
	return types[j->key ? j->key->type : CLAUSE_INT].same(j, found, wanted);
}
