/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_expect.c - what a CI job demands of a dump
 *
 * Every field of the JSON object can be expected, by its key.  A key of a group
 * must hold in all groups, unless it is written with the group's id: g0.dtype.
 */
#include "cli/describe.h"

#include <stdlib.h>
#include <string.h>

struct expecting {
	const struct description *d;
	const char *key;
	const char *value;
	enum kvt_status status;
	int nfound;
};

static void text_of(char *out, size_t room, const json_t *value)
{
	size_t used = 0;

	switch (json_typeof(value)) {
	case JSON_STRING:
		snprintf(out, room, "%s", json_string_value(value));
		break;
	case JSON_INTEGER:
		snprintf(out, room, "%lld", (long long)json_integer_value(value));
		break;
	case JSON_REAL:
		snprintf(out, room, "%.15g", json_real_value(value));
		break;
	case JSON_ARRAY:
		/* arrays of numbers or names: "0,1,3,2,4" */
		*out = '\0';
		for (size_t i = 0; i < json_array_size(value) && used + 1 < room; i++) {
			const json_t *item = json_array_get(value, i);

			if (i)
				out[used++] = ',';
			out[used] = '\0';
			if (!json_is_array(item) && !json_is_object(item))
				text_of(out + used, room - used, item);
			used += strlen(out + used);
		}
		break;
	default:
		snprintf(out, room, "%s", json_is_true(value) ? "true" :
			 json_is_false(value) ? "false" :
			 json_is_null(value) ? "null" : "an object");
	}
}

static bool same(const json_t *value, const char *text, const char *wanted)
{
	char *end;
	double x;

	if (!json_is_number(value))
		return !strcmp(text, wanted);
	x = strtod(wanted, &end);
	return *wanted && !*end && x == json_number_value(value);
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

static void hold(struct expecting *e, const char *group, const json_t *value)
{
	char text[512];

	if (!value)
		return;
	e->nfound++;
	text_of(text, sizeof(text), value);
	if (same(value, text, e->value))
		return;
	complain(&cmd_describe, "%s: %s%s%s is %s, expected %s", e->d->path,
		 group ? group : "", group ? ": " : "", e->key, text, e->value);
	e->status = KVT_MISMATCH;
}

static enum kvt_status expect_field(struct expecting *e, const json_t *json,
				    struct kvt_error *err)
{
	const json_t *groups = json_object_get(json, "groups");

	if (strcmp(e->key, "groups") && strcmp(e->key, "requests"))
		hold(e, NULL, field(json, e->key));
	for (size_t g = 0; !e->nfound && g < json_array_size(groups); g++) {
		const json_t *group = json_array_get(groups, g);
		const char *id = json_string_value(json_object_get(group, "id"));
		size_t length = id ? strlen(id) : 0;

		if (length && !strncmp(e->key, id, length) && e->key[length] == '.')
			hold(e, NULL, field(group, e->key + length + 1));
	}
	if (!e->nfound)
		for (size_t g = 0; g < json_array_size(groups); g++)
			hold(e, e->d->snapshot->group[g].id,
			     field(json_array_get(groups, g), e->key));
	if (!e->nfound)
		return kvt_fail(err, KVT_USAGE, "--expect %s: there is no such "
				"field; see kvtool-json(5)", e->key);
	return e->status;
}

/*
 * Layouts are equal if every byte is at the same place: axes of extent 1 stand
 * anywhere.
 */
static bool same_bytes(const struct kvt_layout *a, const struct kvt_group *group)
{
	struct kvt_box box = kvt_box_whole(&group->shape);
	struct kvt_views va, vb;
	struct kvt_plans plans;

	if (kvt_layout_equal(a, &group->layout))
		return true;
	if (kvt_layout_views(&va, a, &box, group->shape.elem, NULL) ||
	    kvt_layout_views(&vb, &group->layout, &box, group->shape.elem, NULL) ||
	    kvt_plans_init(&plans, &va, &vb, NULL))
		return false;
	for (int i = 0; i < plans.count; i++) {
		const struct kvt_plan *p = &plans.plan[i];

		if (p->src_offset != p->dst_offset)
			return false;
		for (int j = 0; j < p->nloops; j++)
			if (p->src_stride[j] != p->dst_stride[j])
				return false;
	}
	return true;
}

static enum kvt_status expect_layout(const struct description *d, const char *text,
				     struct kvt_error *err)
{
	struct kvt_layout wanted;
	enum kvt_status status = kvt_layout_parse(&wanted, text, err);

	if (status)
		return status;
	for (int g = 0; g < d->snapshot->ngroups; g++) {
		const struct kvt_group *group = &d->snapshot->group[g];

		if (same_bytes(&wanted, group))
			continue;
		complain(&cmd_describe, "%s: %s: layout is %s, expected %s", d->path,
			 group->id, human_layout(&group->layout).s,
			 kvt_layout_string(&wanted).s);
		status = KVT_MISMATCH;
	}
	return status;
}

enum kvt_status describe_expect(const struct description *d,
				const struct describe_options *options,
				const json_t *json, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK, s;

	if (options->expect_layout)
		status = expect_layout(d, options->expect_layout, err);
	for (int i = 0; i < options->expect.n && status <= KVT_MISMATCH; i++) {
		struct expecting e = { .d = d };
		const char *text = options->expect.s[i], *is = strchr(text, '=');
		char key[64];

		if (!is || is == text || is - text >= (long)sizeof(key))
			return kvt_fail(err, KVT_USAGE, "--expect is '%.100s', "
					"expected KEY=VALUE", text);
		memcpy(key, text, (size_t)(is - text));
		key[is - text] = '\0';
		e.key = key;
		e.value = is + 1;
		s = !strcmp(key, "layout") ? expect_layout(d, e.value, err) :
		    expect_field(&e, json, err);
		status = worse(status, s);
	}
	return status;
}
