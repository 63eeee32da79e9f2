/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - lists in a manifest: parts of the content, tables of a group */
#include "formats/manifest/manifest.h"

#include <stdlib.h>
#include <string.h>

#define LL(x) ((long long)(x))

/* ---- components of the content ------------------------------------------ */

enum kvt_status kvt_add_component(struct kvt_group *group, const char *name,
				     int64_t start, int64_t length, int64_t global,
				     const struct kvt_json *in)
{
	struct kvt_component *c = &group->component[group->ncomponents];

	if (group->ncomponents == KVT_MAX_COMPONENTS)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: more than %d components of the content", in->name,
				KVT_MAX_COMPONENTS);
	if (!*name || strlen(name) >= sizeof(c->name))
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: component name '%.40s' has not 1 to %zu characters",
				in->name, name, sizeof(c->name) - 1);
	strcpy(c->name, name);
	c->start = start;
	c->length = length;
	c->global_start = global;
	group->ncomponents++;
	return KVT_OK;
}

/* ["k_pe", 16] follows the one before it; an object says where it starts. */
static enum kvt_status take_component(struct kvt_group *group, int64_t *end,
				      const json_t *entry, const struct kvt_json *in)
{
	struct kvt_json object = { entry, in->name, in->err };
	int64_t start = *end, length = -1, global = -1;
	const char *name = NULL;
	enum kvt_status status;

	if (json_is_array(entry) && json_array_size(entry) == 2) {
		if ((status = kvt_json_string_at(&name, in, "content", entry,
						 0)) ||
		    (status = kvt_json_int_at(&length, in, "content", entry, 1,
					      0, KVT_MOST)))
			return status;
	} else if (json_is_object(entry)) {
		if ((status = kvt_json_string(&name, &object, "name")) ||
		    (status = kvt_json_int(&start, &object, "start", 0,
					   KVT_MOST)) ||
		    (status = kvt_json_int(&length, &object, "length", 0,
					   KVT_MOST)) ||
		    (status = kvt_json_int(&global, &object, "global_start", 0,
					   KVT_MOST)))
			return status;
	}
	if (!name || length < 0 || start > KVT_MOST - length)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: content has an entry without a name and a length",
				in->name);
	*end = start + length;
	return kvt_add_component(group, name, start, length, global < 0 ? start : global,
			     in);
}

enum kvt_status kvt_take_components(struct kvt_group *group,
				       const struct kvt_json *in)
{
	const json_t *list = NULL;
	enum kvt_status status = kvt_json_array(&list, in, "content");
	int64_t end = 0;

	for (size_t i = 0; !status && i < json_array_size(list); i++)
		status = take_component(group, &end, json_array_get(list, i), in);
	return status;
}

/* ---- tables ------------------------------------------------------------- */

/* A table as long as an axis, whose length therefore says the extent. */
static enum kvt_status take_table(void **out, struct kvt_group *group,
				  enum kvt_axis axis, const struct kvt_json *in,
				  const char *key, size_t elem)
{
	bool text = strstr(key, "_names") != NULL;
	const json_t *list = NULL;
	enum kvt_status status;
	size_t n;

	if ((status = kvt_json_array(&list, in, key)) || !list)
		return status;
	n = json_array_size(list);
	if ((status = kvt_manifest_extent(group, axis, (int64_t)n, key, in->name,
					  in->err)))
		return status;
	if (!(*out = calloc(n ? n : 1, elem)))
		return kvt_fail(in->err, KVT_SYSTEM, "%s: out of memory", in->name);
	for (size_t i = 0; !status && i < n; i++) {
		const char *s;
		int64_t v = 0;

		if (text) {
			status = kvt_json_string_at(&s, in, key, list, i);
			if (!status && !(((char **)*out)[i] = strdup(s)))
				status = kvt_fail(in->err, KVT_SYSTEM,
						  "%s: out of memory", in->name);
		} else {
			status = kvt_json_int_at(&v, in, key, list, i, 0,
						 elem == 8 ? KVT_MOST : UINT32_MAX);
			if (elem == 8)
				((uint64_t *)*out)[i] = (uint64_t)v;
			else
				((uint32_t *)*out)[i] = (uint32_t)v;
		}
	}
	return status;
}

enum kvt_status kvt_take_tables(struct kvt_group *group, const struct kvt_json *in)
{
	void *names = NULL, *layers = NULL, *ids = NULL, *valid = NULL, *stored = NULL;
	enum kvt_status status;

	(void)((status = take_table(&names, group, KVT_AXIS_L, in, "layer_names",
				    sizeof(char *))) ||
	       (status = take_table(&layers, group, KVT_AXIS_L, in, "layer_ids",
				    sizeof(uint32_t))) ||
	       (status = take_table(&ids, group, KVT_AXIS_B, in, "block_ids",
				    sizeof(uint64_t))) ||
	       (status = take_table(&valid, group, KVT_AXIS_B, in, "block_valid",
				    sizeof(uint32_t))) ||
	       (status = take_table(&stored, group, KVT_AXIS_B, in, "block_names",
				    sizeof(char *))));
	/* also on failure: the snapshot frees them */
	group->layer_names = names;
	group->layer_ids = layers;
	group->block_ids = ids;
	group->block_valid = valid;
	group->block_names = stored;
	return status;
}

