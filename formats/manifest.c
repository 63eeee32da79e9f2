/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c - what a dump means, from the JSON beside it and from the user
 *
 * Most dumps are bytes whose shape lives elsewhere.  Here everything that is
 * said about one is collected, and nothing is guessed; manifest_fit.c compares
 * it with the file.
 */
#include "formats/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LL(x) ((long long)(x))

enum { MAX_MANIFEST = 16 * 1024 * 1024 };

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
	    (status = kvt_json_int(&out->skip, in, "skip", 0, KVT_MOST)))
		return status;
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
					"%s: groups[%zu] is no object", in->name, g);
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

/* ---- parsing and loading ------------------------------------------------ */

void kvt_manifest_free(struct kvt_manifest *manifest)
{
	kvt_snapshot_free(&manifest->snapshot);
	free(manifest->path);
	manifest->path = NULL;
}

enum kvt_status kvt_manifest_parse(struct kvt_manifest *out, const char *text,
				   size_t nbytes, const char *name,
				   const struct kvt_hints *hints,
				   struct kvt_error *err)
{
	struct kvt_json in = { NULL, name, err };
	enum kvt_status status;
	json_t *json;

	*out = (struct kvt_manifest){ .rank = 0 };
	kvt_snapshot_init(&out->snapshot);
	if ((status = kvt_json_parse(&json, text, nbytes, name, err)))
		return status;
	in.object = json;
	if (!(status = take_manifest(out, &in)))
		status = kvt_manifest_hints(out, hints, name, err);
	json_decref(json);
	if (status)
		kvt_manifest_free(out);
	return status;
}

/* The path of the manifest, which need not exist; NULL: out of memory. */
static char *beside(const char *path, bool append)
{
	const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
	size_t stem = strlen(path);
	char *out;

	if (!append && dot && dot > (slash ? slash + 1 : path))
		stem = (size_t)(dot - path);
	if (!(out = malloc(stem + sizeof(".json"))))
		return NULL;
	memcpy(out, path, stem);
	strcpy(out + stem, ".json");
	return out;
}

/* *out is NULL if there is none. */
static enum kvt_status find_manifest(char **out, const char *path,
				     const struct kvt_hints *hints,
				     struct kvt_error *err)
{
	struct stat st;

	*out = NULL;
	if (hints && hints->manifest) {
		if (!(*out = strdup(hints->manifest)))
			return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", path);
		return KVT_OK;
	}
	for (int append = 0; append < 2; append++) {
		char *name = beside(path, append);

		if (!name)
			return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", path);
		if (!stat(name, &st) && strcmp(name, path)) {
			*out = name;
			return KVT_OK;
		}
		free(name);
	}
	return KVT_OK;
}

/* malloc()ed; the text is not terminated. */
static enum kvt_status read_text(char **text, int64_t *nbytes, const char *path,
				 struct kvt_error *err)
{
	struct kvt_files files = { 0 };
	enum kvt_status status;
	int index;

	if ((status = kvt_files_open(&files, &index, path, err)))
		return status;
	*text = NULL;
	*nbytes = files.file[index].nbytes;
	if (*nbytes > MAX_MANIFEST)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: %lld bytes are too many for a manifest, at most %d",
				  path, LL(*nbytes), MAX_MANIFEST);
	else if (!(*text = malloc((size_t)*nbytes + 1)))
		status = kvt_fail(err, KVT_SYSTEM, "%s: out of memory", path);
	else
		status = kvt_file_read(&files.file[index], *text, *nbytes, 0, err);
	kvt_files_close(&files);
	if (status) {
		free(*text);
		*text = NULL;
	}
	return status;
}

/* Nothing but hints. */
static enum kvt_status hints_alone(struct kvt_manifest *out, const char *path,
				   const struct kvt_hints *hints,
				   struct kvt_error *err)
{
	struct kvt_group *group;
	enum kvt_status status;

	*out = (struct kvt_manifest){ .rank = 0 };
	kvt_snapshot_init(&out->snapshot);
	if ((status = kvt_manifest_add_group(&group, &out->snapshot, "g0", path, err)) ||
	    (status = kvt_manifest_hints(out, hints, path, err)))
		kvt_manifest_free(out);
	return status;
}

enum kvt_status kvt_manifest_load(struct kvt_manifest *out, bool *found,
				  const char *path, const struct kvt_hints *hints,
				  struct kvt_error *err)
{
	int64_t nbytes = 0;
	char *name, *text = NULL;
	enum kvt_status status = find_manifest(&name, path, hints, err);

	if (status)
		return status;
	*found = name != NULL;
	if (!name)
		return hints_alone(out, path, hints, err);
	if (!(status = read_text(&text, &nbytes, name, err)))
		status = kvt_manifest_parse(out, text, (size_t)nbytes, name, hints, err);
	free(text);
	if (status)
		free(name);
	else
		out->path = name;
	return status;
}
