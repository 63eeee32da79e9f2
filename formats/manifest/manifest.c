/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c - what a dump means, from the JSON beside it and from the user
 *
 * Most dumps are bytes whose shape lives elsewhere.  Here everything that is
 * said about one is collected, and nothing is guessed; proof.c asks
 * whether it is said of this file, and formats/describe/fit.c compares it with the file.
 */
#include "formats/manifest/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "formats/describe/caches.h"

/* ---- the top level ------------------------------------------------------ */

static enum kvt_status take_parallel(struct kvt_snapshot *out,
				     const struct kvt_json *in)
{
	struct kvt_parallel *p = &out->parallel;
	const struct {
		const char *key;
		int64_t *out, min;
	} rows[] = {
		{ "tp_size",  &p->tp_size,  1 }, { "tp_rank",  &p->tp_rank,  0 },
		{ "pp_size",  &p->pp_size,  1 }, { "pp_rank",  &p->pp_rank,  0 },
		{ "dp_size",  &p->dp_size,  1 }, { "dp_rank",  &p->dp_rank,  0 },
		{ "dcp_size", &p->dcp_size, 1 }, { "dcp_rank", &p->dcp_rank, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		enum kvt_status status = kvt_json_int(rows[i].out, in, rows[i].key,
						      rows[i].min, INT32_MAX);

		if (status)
			return status;
		out->has_parallel |= json_object_get(in->object, rows[i].key) != NULL;
	}
	return KVT_OK;
}

static enum kvt_status take_file(struct kvt_manifest *out, const struct kvt_json *in)
{
	const char *file = NULL, *dtype = NULL;
	const json_t *shape = NULL;
	enum kvt_status status;

	if ((status = kvt_json_string(&file, in, "file")) ||
	    (status = kvt_json_string(&dtype, in, "npy_dtype")) ||
	    (status = kvt_json_array(&shape, in, "file_shape")) ||
	    (status = kvt_json_int(&out->skip, in, "skip", 0, KVT_MOST)) ||
	    (status = kvt_json_int(&out->tensor.rows, in, "rows", 1, KVT_MOST)) ||
	    (status = kvt_json_int(&out->tensor.row_bytes, in, "row_bytes", 1,
				   KVT_MOST)) ||
	    (status = kvt_manifest_take_sum(&out->sum, in)))
		return status;
	if ((status = kvt_caches_parse(&out->caches, in)))
		return status;
	if (out->caches && out->tensor.rows)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: has rows and tensors, expected one of them", in->name);
	if (!out->tensor.rows != !out->tensor.row_bytes)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: has one of rows and row_bytes, expected both",
				in->name);
	if ((file && strlen(file) >= sizeof(out->file)) ||
	    (dtype && strlen(dtype) >= sizeof(out->npy_dtype)))
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: file or npy_dtype is too long", in->name);
	if (file)
		strcpy(out->file, file);
	if (dtype)
		strcpy(out->npy_dtype, dtype);
	if (json_array_size(shape) > 8)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: file_shape has %zu extents, expected at most 8",
				in->name, json_array_size(shape));
	for (; (size_t)out->rank < json_array_size(shape); out->rank++) {
		status = kvt_json_int_at(&out->file_shape[out->rank], in, "file_shape",
					 shape, (size_t)out->rank, 0, KVT_MOST);
		if (status)
			return status;
	}
	return KVT_OK;
}

static enum kvt_status take_groups(struct kvt_manifest *out, const struct kvt_json *in,
				   const json_t *groups)
{
	struct kvt_group *group;
	const char *layout = NULL;
	enum kvt_status status;
	char id[32];

	if (json_is_string(json_object_get(in->object, "layout")))
		layout = json_string_value(json_object_get(in->object, "layout"));
	if (layout && !strcmp(layout, "mamba-page"))
		return kvt_manifest_mamba(out, in);
	if (!groups) {
		if ((status = kvt_manifest_add_group(&group, &out->snapshot, "g0",
						     in->name, in->err)))
			return status;
		return kvt_manifest_group(out, group, in);
	}
	for (size_t g = 0; g < json_array_size(groups); g++) {
		struct kvt_json object = { json_array_get(groups, g), in->name, in->err };

		if (!json_is_object(object.object))
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: groups[%zu] is not an object", in->name, g);
		snprintf(id, sizeof(id), "g%zu", g);
		if ((status = kvt_manifest_add_group(&group, &out->snapshot, id,
						     in->name, in->err)) ||
		    (status = kvt_manifest_group(out, group, &object)))
			return status;
		if (!out->has_layout)
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: group %s has no layout", in->name, group->id);
	}
	return KVT_OK;
}

static enum kvt_status take_manifest(struct kvt_manifest *out,
				     const struct kvt_json *in)
{
	struct kvt_snapshot *s = &out->snapshot;
	const json_t *groups = NULL;
	enum kvt_status status;

	if ((status = kvt_json_array(&groups, in, "groups")) ||
	    (status = kvt_json_copy_string(&s->model, in, "model")) ||
	    (status = kvt_json_copy_string(&s->note, in, "note")) ||
	    (status = kvt_json_copy_string(&s->source_format, in, "source_format")) ||
	    (status = take_parallel(s, in)) ||
	    (status = take_file(out, in)) ||
	    (status = take_groups(out, in, groups)))
		return status;
	return kvt_manifest_requests(s, in, groups);
}

/* ---- parsing ------------------------------------------------------------ */

void kvt_manifest_init(struct kvt_manifest *manifest)
{
	*manifest = (struct kvt_manifest){ .sum = { -1, -1 } };
	kvt_snapshot_init(&manifest->snapshot);
}

void kvt_manifest_free(struct kvt_manifest *manifest)
{
	kvt_snapshot_free(&manifest->snapshot);
	kvt_caches_free(manifest->caches);
	manifest->caches = NULL;
	free(manifest->path);
	manifest->path = NULL;
}

/* All of what describe --canonical --json prints has one inside. */
static const json_t *whole(const json_t *json)
{
	const json_t *caches = json_object_get(json_object_get(json, "canonical"),
					       "caches");

	return json_is_object(caches) ? caches : json;
}

enum kvt_status kvt_manifest_parse(struct kvt_manifest *out, const char *text,
				   size_t nbytes, const char *name,
				   const struct kvt_hints *hints,
				   struct kvt_error *err)
{
	struct kvt_json in = { NULL, name, err };
	enum kvt_status status;
	json_t *json;

	kvt_manifest_init(out);
	if ((status = kvt_json_parse(&json, text, nbytes, name, err)))
		return status;
	in.object = whole(json);
	if (!(status = take_manifest(out, &in)))
		status = kvt_manifest_hints(out, hints, name, err);
	json_decref(json);
	if (status)
		kvt_manifest_free(out);
	return status;
}
