/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scales.c - scales of an fp8 cache, from checkpoints and from JSON
 *
 * Engines keep them outside of the cache.  Whatever the file, they become one table,
 * [layer][keys, values][heads or 1], which has to be full and of numbers above 0:
 *
 *	checkpoint	a tensor for a layer's keys, and one for its values
 *	JSON		one number a layer for both, or the list of a manifest
 */
#include "formats/tensor/scales.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/file/tree.h"
#include "formats/parse/json.h"
#include "formats/tensor/safetensors_header.h"

enum { MOST_TEXT = 64 << 20 };

struct filling {
	const struct kvt_snapshot *snapshot;
	const struct kvt_group *group;
	const char *path;
	struct kvt_error *err;
	float *scale;			/* [L][2][heads]; 0: not found */
	int64_t heads;
};

static enum kvt_status make_room(struct filling *f, int64_t heads)
{
	int64_t layers = f->group->shape.n[KVT_AXIS_L];

	if (heads != 1 && heads != f->group->total_heads)
		return kvt_fail(f->err, KVT_BAD_INPUT,
				"%s: has %lld scales for a layer, expected 1 or one for each of the %lld heads of %s",
				f->path, LL(heads), LL(f->group->total_heads),
				f->group->id);
	f->heads = heads;
	f->scale = calloc((size_t)(layers * 2 * heads) + 1, sizeof(*f->scale));
	return f->scale ? KVT_OK : kvt_no_memory(f->err, f->path);
}

static enum kvt_status check_all(const struct filling *f)
{
	int64_t n = f->group->shape.n[KVT_AXIS_L] * 2 * f->heads;

	for (int64_t i = 0; i < n; i++)
		if (!(f->scale[i] > 0) || !isfinite(f->scale[i]))
			return kvt_fail(f->err, KVT_BAD_INPUT,
					"%s: has no scale above 0 for the %s of layer %llu",
					f->path, i / f->heads % 2 ? "values" : "keys",
					(unsigned long long)
					kvt_layer_id(f->group, i / f->heads / 2));
	return KVT_OK;
}

/* ---- a checkpoint ----------------------------------------------------------- */

/* 0: of keys, 1: of values; -1: it is none of them. */
static int half_of(const char *name)
{
	return kvt_path_ends(name, ".k_scale") ? 0 :
	       kvt_path_ends(name, ".v_scale") ? 1 : -1;
}

static int64_t index_of(const struct kvt_group *group, int64_t layer)
{
	int64_t l = 0;

	while (l < group->shape.n[KVT_AXIS_L] &&
	       kvt_layer_id(group, l) != (uint64_t)layer)
		l++;
	return l < group->shape.n[KVT_AXIS_L] ? l : -1;
}

static enum kvt_status take_tensor(struct filling *f, const struct kvt_file *file,
				   int64_t data, const struct kvt_tensor *t)
{
	int64_t layer, l, n, elem = t->dtype ? t->dtype->elem : 0;
	int half = half_of(t->name);
	enum kvt_status status;
	uint8_t *bytes;

	if (half < 0 || !kvt_layer_number(&layer, t->name) ||
	    (l = index_of(f->group, layer)) < 0)
		return KVT_OK;
	if (!t->dtype || !t->dtype->is_float || elem < 2)
		return kvt_fail(f->err, KVT_BAD_INPUT,
				"%s: %.100s is %s, expected a float", f->path, t->name,
				t->type);
	n = (t->end - t->begin) / elem;
	if ((!f->scale && (status = make_room(f, n))))
		return status;
	if (n != f->heads)
		return kvt_fail(f->err, KVT_BAD_INPUT,
				"%s: %.100s has %lld numbers, others have %lld", f->path,
				t->name, LL(n), LL(f->heads));
	if (!(bytes = malloc((size_t)(n * elem) + 1)))
		return kvt_no_memory(f->err, f->path);
	status = kvt_file_read(file, bytes, n * elem, data + t->begin, f->err);
	for (int64_t h = 0; !status && h < n; h++)
		f->scale[(l * 2 + half) * n + h] =
			(float)kvt_dtype_decode(t->dtype, bytes + h * elem);
	free(bytes);
	return status;
}

static enum kvt_status read_checkpoint(struct filling *f, const struct kvt_file *file)
{
	struct kvt_tensors tensors = { .count = 0 };
	enum kvt_status status = kvt_tensors_read(&tensors, file, f->err);

	for (int64_t i = 0; !status && i < tensors.count; i++)
		status = take_tensor(f, file, tensors.data, &tensors.tensor[i]);
	kvt_tensors_free(&tensors);
	if (!status && !f->scale)
		status = kvt_fail(f->err, KVT_BAD_INPUT,
				  "%s: has no tensors k_scale and v_scale of layers of %s",
				  f->path, f->group->id);
	return status;
}

/* ---- JSON --------------------------------------------------------------------- */

/* One number a layer, for keys and values. */
static enum kvt_status read_factors(struct filling *f, const json_t *factors)
{
	char rank[32], layer[32];
	const json_t *mine;
	enum kvt_status status = make_room(f, 1);

	snprintf(rank, sizeof(rank), "%lld", LL(f->snapshot->parallel.tp_rank));
	mine = json_object_get(factors, rank);
	for (int64_t l = 0; !status && l < f->group->shape.n[KVT_AXIS_L]; l++) {
		const json_t *x;

		snprintf(layer, sizeof(layer), "%llu",
			 (unsigned long long)kvt_layer_id(f->group, l));
		x = json_object_get(mine, layer);
		f->scale[l * 2] = f->scale[l * 2 + 1] = (float)json_number_value(x);
	}
	return status;
}

/* As a manifest has them: as many layers as the group, in its order. */
static enum kvt_status read_said(struct filling *f, const json_t *list)
{
	int64_t layers = f->group->shape.n[KVT_AXIS_L], heads, n = 0;
	const json_t *first = json_array_get(json_array_get(list, 0), 0);
	enum kvt_status status = make_room(f, heads = (int64_t)json_array_size(first));

	if (!status && (int64_t)json_array_size(list) != layers)
		status = kvt_fail(f->err, KVT_BAD_INPUT,
				  "%s: has scales of %zu layers, and %s has %lld", f->path,
				  json_array_size(list), f->group->id, LL(layers));
	for (int64_t i = 0; !status && i < layers * 2; i++) {
		const json_t *half = json_array_get(json_array_get(list, (size_t)i / 2),
						    (size_t)i % 2);

		for (int64_t h = 0; h < heads; h++)
			f->scale[n++] = (float)json_number_value(
				json_array_get(half, (size_t)h));
	}
	return status;
}

/* The list of the manifest's group of that id, or of its only one. */
static const json_t *said_in(const json_t *root, const char *id)
{
	const json_t *groups = json_object_get(root, "groups"), *group;
	size_t i;

	json_array_foreach((json_t *)groups, i, group) {
		const char *name = json_string_value(json_object_get(group, "id"));

		if (!strcmp(name ? name : "g0", id))
			return json_object_get(json_object_get(group, "cast"), "scales");
	}
	return json_object_get(json_object_get(root, "cast"), "scales");
}

static enum kvt_status read_json(struct filling *f, struct kvt_files *files)
{
	const json_t *factors, *said;
	json_t *root = NULL;
	size_t nbytes;
	char *text = NULL;
	enum kvt_status status = kvt_tree_text(&text, &nbytes, files, f->path, MOST_TEXT,
					       f->err);

	if (!status)
		status = kvt_json_parse(&root, text, nbytes, f->path, f->err);
	free(text);
	if (status)
		return status;
	factors = json_object_get(json_object_get(root, "kv_cache"), "scaling_factor");
	said = said_in(root, f->group->id);
	status = factors ? read_factors(f, factors) : said ? read_said(f, said) :
		 kvt_fail(f->err, KVT_BAD_INPUT,
			  "%s: has neither kv_cache.scaling_factor nor the cast of a manifest",
			  f->path);
	json_decref(root);
	return status;
}

enum kvt_status kvt_scales_read(float **out, int64_t *heads,
				const struct kvt_snapshot *snapshot, int group,
				const char *path, struct kvt_error *err)
{
	struct filling f = { .snapshot = snapshot, .group = &snapshot->group[group],
			     .path = path, .err = err };
	struct kvt_files files = { .count = 0 };
	uint8_t first = 0;
	int index;
	enum kvt_status status = kvt_files_open(&files, &index, path, err);

	if (!status && files.file[index].nbytes)
		status = kvt_file_read(&files.file[index], &first, 1, 0, err);
	if (!status)
		status = first == '{' ?
			 read_json(&f, &files) :
			 read_checkpoint(&f, &files.file[index]);
	kvt_files_close(&files);
	if (!status)
		status = check_all(&f);
	if (status) {
		free(f.scale);
		return status;
	}
	*out = f.scale;
	*heads = f.heads;
	return KVT_OK;
}
