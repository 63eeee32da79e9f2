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

/* ---- slips -------------------------------------------------------------- */

/*
 * Keys of the object at the top and of a group, which is the same one where there is one
 * group.  At the end what is not read, but no slip either.
 */
static const char *const known[] = {
	"file", "file_bytes", "sample_crc32", "npy_dtype", "file_shape", "skip", "rows",
	"row_bytes", "tensors", "group_data_refs", "groups", "model", "note",
	"source_format", "tp_size", "tp_rank", "pp_size", "pp_rank", "dp_size", "dp_rank",
	"dcp_size", "dcp_rank", "num_tokens", "tokens_seen", "first_token",
	"prompt_tokens", "token_ids", "id", "kind", "layout", "file_axes", "dtype",
	"content_type", "sizes", "state_order", "state_shape", "tokens_per_slot",
	"tokens_per_state", "total_kv_heads", "head_start", "head_count", "replicas",
	"page_bytes", "page_offset", "window", "retained_tokens", "pool", "cast",
	"content", "layer_names", "layer_ids", "block_ids", "block_valid", "block_names",
	"block_table", "holes", "null_block", "conv_layout", "conv", "ssm",
	"ep_size", "ep_rank", "cp_size", "cp_rank", "sp_size", "sp_rank", NULL
};
static const char *const known_sizes[] = {
	"layers", "num_blocks", "block_size", "slots", "states", "num_kv_heads",
	"head_dim", "content", NULL
};

/* What nobody reads says nothing: a slip would go by unseen, as would a size outside. */
static void check_keys(const struct kvt_json *in)
{
	struct kvt_json sizes;

	kvt_json_object(&sizes, in, "sizes");
	kvt_json_slips(in, known);
	kvt_json_slips(&sizes, known_sizes);
	for (int i = 0; known_sizes[i]; i++) {
		const json_t *here = json_object_get(in->object, known_sizes[i]);
		const json_t *there = json_object_get(sizes.object, known_sizes[i]);

		if (json_is_integer(here) && !json_equal(here, there))
			kvt_json_bad(in,
				     "%s is outside sizes, expected {\"sizes\": {\"%s\": %lld}}",
				     known_sizes[i], known_sizes[i],
				     LL(json_integer_value(here)));
	}
}

/* ---- the top level ------------------------------------------------------ */

static void take_parallel(struct kvt_snapshot *out, const struct kvt_json *in)
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
		kvt_json_int(rows[i].out, in, rows[i].key, rows[i].min, INT32_MAX);
		out->has_parallel |= json_object_get(in->object, rows[i].key) != NULL;
	}
}

static void take_file(struct kvt_manifest *out, const struct kvt_json *in)
{
	const char *file = "", *dtype = "";
	const json_t *shape = NULL;

	kvt_json_string(&file, in, "file");
	kvt_json_string(&dtype, in, "npy_dtype");
	kvt_json_array(&shape, in, "file_shape");
	kvt_json_int(&out->skip, in, "skip", 0, KVT_MOST);
	kvt_json_int(&out->tensor.rows, in, "rows", 1, KVT_MOST);
	kvt_json_int(&out->tensor.row_bytes, in, "row_bytes", 1, KVT_MOST);
	kvt_manifest_take_sum(&out->sum, in);
	kvt_caches_parse(&out->caches, in);
	if (out->caches && out->tensor.rows)
		kvt_json_bad(in, "has rows and tensors, expected one of them");
	if (!out->tensor.rows != !out->tensor.row_bytes)
		kvt_json_bad(in, "has one of rows and row_bytes, expected both");
	if (strlen(file) >= sizeof(out->file) || strlen(dtype) >= sizeof(out->npy_dtype))
		kvt_json_bad(in, "file or npy_dtype is too long");
	if (json_array_size(shape) > 8)
		kvt_json_bad(in, "file_shape has %zu extents, expected at most 8",
			     json_array_size(shape));
	if (*in->status)
		return;
	strcpy(out->file, file);
	strcpy(out->npy_dtype, dtype);
	for (; (size_t)out->rank < json_array_size(shape); out->rank++)
		kvt_json_int_at(&out->file_shape[out->rank], in, "file_shape", shape,
				(size_t)out->rank, 0, KVT_MOST);
}

static struct kvt_group *add_group(struct kvt_manifest *out, const char *id,
				   const struct kvt_json *in)
{
	struct kvt_group *group = NULL;

	if (!*in->status)
		*in->status = kvt_manifest_add_group(&group, &out->snapshot, id, in->name,
						     in->err);
	return group;
}

static void take_groups(struct kvt_manifest *out, const struct kvt_json *in,
			const json_t *groups)
{
	struct kvt_group *group;
	const char *layout = json_string_value(json_object_get(in->object, "layout"));
	char id[32];

	if (layout && !strcmp(layout, "mamba-page")) {
		kvt_manifest_mamba(out, in);
		return;
	}
	if (!groups && (group = add_group(out, "g0", in)))
		kvt_manifest_group(out, group, in);
	for (size_t g = 0; g < json_array_size(groups); g++) {
		const struct kvt_json object = kvt_json_of(in, json_array_get(groups, g));

		if (!json_is_object(object.object))
			kvt_json_bad(in, "groups[%zu] is not an object", g);
		check_keys(&object);
		snprintf(id, sizeof(id), "g%zu", g);
		if (!(group = add_group(out, id, in)))
			return;
		kvt_manifest_group(out, group, &object);
		if (!out->has_layout)
			kvt_json_bad(in, "group %s has no layout", group->id);
	}
}

static void take_manifest(struct kvt_manifest *out, const struct kvt_json *in)
{
	struct kvt_snapshot *s = &out->snapshot;
	const json_t *groups = NULL;

	check_keys(in);
	kvt_json_array(&groups, in, "groups");
	kvt_json_copy_string(&s->model, in, "model");
	kvt_json_copy_string(&s->note, in, "note");
	kvt_json_copy_string(&s->source_format, in, "source_format");
	take_parallel(s, in);
	take_file(out, in);
	take_groups(out, in, groups);
	kvt_manifest_requests(s, in, groups);
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
				   const struct kvt_hints *hints, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { NULL, name, err, &status };
	json_t *json;

	kvt_manifest_init(out);
	if ((status = kvt_json_parse(&json, text, nbytes, name, err)))
		return status;
	in.object = whole(json);
	take_manifest(out, &in);
	if (!status)
		status = kvt_manifest_hints(out, hints, name, err);
	json_decref(json);
	if (status)
		kvt_manifest_free(out);
	return status;
}
