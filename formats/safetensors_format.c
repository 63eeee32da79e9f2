/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_format.c - dumps as safetensors
 *
 * Three arrangements are read: one tensor for all layers, keys and values in a
 * tensor each, and a tensor (or such a pair) for each layer.  What kvtool
 * writes is of the first two, with the manifest in the header's metadata, so
 * that such a file describes itself.
 */
#include "formats/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

#include "formats/layer_names.h"

static bool safetensors_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)path;
	/* a length that no header has is still a damaged header of this kind */
	return nhead >= 10 && head[8] == '{' &&
	       (head[9] == '"' || head[9] == '}' || head[9] == ' ');
}

/* ---- names -------------------------------------------------------------- */

/* Endings that tell the keys of a pair from its values. */
static const char *const pairs[][2] = {
	{".k", ".v"},
	{"_k", "_v"},
	{".key", ".value"},
	{"_key", "_value"},
	{".keys", ".values"},
	{".k_cache", ".v_cache"},
	{".key_cache", ".value_cache"},
};
enum { NPAIRS = sizeof(pairs) / sizeof(pairs[0]) };

/* The tensor of the values that go with keys called 'name'; NULL: no keys. */
static const struct kvt_tensor *partner(const struct kvt_tensors *tensors,
					const char *name)
{
	size_t n = strlen(name);

	for (int i = 0; i < NPAIRS; i++) {
		size_t m = strlen(pairs[i][0]);
		const struct kvt_tensor *found;
		char *other;

		if (n <= m || strcmp(name + n - m, pairs[i][0]))
			continue;
		if (!(other = malloc(n + strlen(pairs[i][1]) + 1)))
			return NULL;
		memcpy(other, name, n - m);
		strcpy(other + n - m, pairs[i][1]);
		found = kvt_tensors_find(tensors, other);
		free(other);
		if (found)
			return found;
	}
	return NULL;
}

/* ---- reading ------------------------------------------------------------ */

struct opening {
	struct kvt_reader *reader;
	struct kvt_tensors tensors;
	struct kvt_manifest manifest;
	int file;
	struct kvt_error *err;
};

static enum kvt_status check_type(const struct opening *o, const struct kvt_tensor *t)
{
	if (t->dtype)
		return KVT_OK;
	return kvt_fail(o->err, KVT_UNSUPPORTED, "%s: tensor %.100s has elements of %s",
			o->reader->path, t->name, t->type);
}

/* All of a group in one tensor, or each plane in its own. */
static enum kvt_status add_whole(struct opening *o, int g, const struct kvt_tensor *t,
				 const struct kvt_tensor *values, bool pages)
{
	const struct kvt_group *group = &o->manifest.snapshot.group[g];
	struct kvt_box box = kvt_box_whole(&group->shape);
	int64_t at = o->tensors.data + t->begin;
	struct kvt_piece piece;
	enum kvt_status status;

	if (!values)
		return kvt_flat_whole(&o->reader->flat[g], group, pages, o->file, at,
				      o->err);
	box.end[KVT_AXIS_K] = 1;
	if ((status = kvt_piece_init(&piece, group, &box, false, o->file, at, o->err)) ||
	    (status = kvt_flat_add(&o->reader->flat[g], &piece, o->err)))
		return status;
	box.begin[KVT_AXIS_K] = 1;
	box.end[KVT_AXIS_K] = 2;
	/* the view of the values begins behind the keys, the tensor need not */
	at = o->tensors.data + values->begin - (t->end - t->begin);
	if ((status = kvt_piece_init(&piece, group, &box, false, o->file, at, o->err)))
		return status;
	return kvt_flat_add(&o->reader->flat[g], &piece, o->err);
}

static enum kvt_status check_pair(const struct opening *o, const struct kvt_tensor *k,
				  const struct kvt_tensor *v)
{
	if (k->rank == v->rank && !strcmp(k->type, v->type) &&
	    !memcmp(k->shape, v->shape, (size_t)k->rank * sizeof(*k->shape)))
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: tensors %.100s and %.100s differ in shape or type",
			o->reader->path, k->name, v->name);
}

/* The layout must say the same as the tensors: planes together, or apart. */
static enum kvt_status check_apart(const struct opening *o, const struct kvt_layout *l,
				   bool apart)
{
	if (!o->manifest.has_layout || kvt_layout_apart(l) == apart)
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: keys and values are %s, but layout %s has them %s",
			o->reader->path, apart ? "tensors of their own" : "in one tensor",
			kvt_layout_string(l).s, apart ? "together" : "apart");
}

/* One tensor, or one pair, for all layers. */
static enum kvt_status open_single(struct opening *o, const struct kvt_tensor *t,
				   const struct kvt_tensor *values)
{
	struct kvt_array array = kvt_tensor_array(t, o->reader->path);
	enum kvt_status status;

	if ((status = check_type(o, t)) ||
	    (values && (status = check_pair(o, t, values))) ||
	    (values && (status = check_apart(o, &o->manifest.snapshot.group[0].layout,
					     true))))
		return status;
	if (values) {
		array.nbytes *= 2;
		array.rank = 0;
	}
	if ((status = kvt_manifest_fit(&o->manifest, &array, o->err)))
		return status;
	return add_whole(o, 0, t, values, o->manifest.pages);
}

/* Several groups, each with the tensors of its name. */
static enum kvt_status open_groups(struct opening *o)
{
	struct kvt_snapshot *s = &o->manifest.snapshot;
	struct kvt_array array = { .name = o->reader->path };
	enum kvt_status status;

	for (int64_t i = 0; i < o->tensors.count; i++)
		array.nbytes += o->tensors.tensor[i].end - o->tensors.tensor[i].begin;
	if ((status = kvt_manifest_fit(&o->manifest, &array, o->err)))
		return status;
	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_tensor *t, *values = NULL;
		char name[40];
		int64_t nbytes;

		snprintf(name, sizeof(name), "%s%s", s->group[g].id,
			 kvt_layout_apart(&s->group[g].layout) ? ".k" : "");
		if ((t = kvt_tensors_find(&o->tensors, name)))
			values = partner(&o->tensors, name);
		if (!t || (kvt_layout_apart(&s->group[g].layout) && !values))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: no tensor '%s' for group %s", o->reader->path,
					name, s->group[g].id);
		if ((status = kvt_shape_nbytes(&nbytes, &s->group[g].shape, o->err)))
			return status;
		if (nbytes != (t->end - t->begin) * (values ? 2 : 1) ||
		    t->dtype != s->group[g].dtype)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: tensor %s does not fit group %s of %lld bytes of %s",
					o->reader->path, name, s->group[g].id,
					(long long)nbytes, s->group[g].dtype->name);
		if ((status = add_whole(o, g, t, values, false)))
			return status;
	}
	return KVT_OK;
}

/* ---- a tensor for each layer -------------------------------------------- */

/* Layers, without the values of pairs; count is that of layers. */
static enum kvt_status list_layers(struct kvt_layer *layer, int64_t *count,
				   bool *apart, const struct opening *o)
{
	const struct kvt_tensors *tensors = &o->tensors;
	int64_t npairs = 0;

	*count = 0;
	for (int64_t i = 0; i < tensors->count; i++)
		npairs += partner(tensors, tensors->tensor[i].name) != NULL;
	*apart = npairs > 0;
	for (int64_t i = 0; i < tensors->count; i++) {
		const char *name = tensors->tensor[i].name;

		if (!*apart || partner(tensors, name))
			layer[(*count)++] = (struct kvt_layer){ name, -1, i };
	}
	if (*apart && 2 * npairs != tensors->count)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: %lld tensors are not %lld pairs of keys and values",
				o->reader->path, (long long)tensors->count,
				(long long)npairs);
	return kvt_layers_sort(layer, *count, o->reader->path, o->err);
}

static enum kvt_status check_alike(const struct opening *o,
				   const struct kvt_layer *layer, int64_t count)
{
	const struct kvt_tensor *first = &o->tensors.tensor[layer[0].index];
	enum kvt_status status = check_type(o, first);

	for (int64_t i = 0; !status && i < count; i++) {
		const struct kvt_tensor *t = &o->tensors.tensor[layer[i].index];
		const struct kvt_tensor *values = partner(&o->tensors, t->name);

		status = check_pair(o, first, t);
		if (!status && values)
			status = check_pair(o, first, values);
	}
	return status;
}

/* Layers that are files or tensors of their own stand outside all else. */
static enum kvt_status check_outermost(const struct opening *o,
				       const struct kvt_layout *layout)
{
	for (int i = 0; i < layout->nplanes; i++)
		if (layout->plane[i].part[0].axis != KVT_AXIS_L)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: has a tensor for each layer, but in layout %s layers are not outermost",
					o->reader->path, kvt_layout_string(layout).s);
	return KVT_OK;
}

static enum kvt_status add_layer(struct opening *o, int64_t l,
				 const struct kvt_tensor *t, int k)
{
	const struct kvt_group *group = &o->manifest.snapshot.group[0];
	struct kvt_piece piece = { .file = o->file, .box = kvt_box_whole(&group->shape) };
	enum kvt_status status;

	piece.box.begin[KVT_AXIS_L] = l;
	piece.box.end[KVT_AXIS_L] = l + 1;
	if (k >= 0) {
		piece.box.begin[KVT_AXIS_K] = k;
		piece.box.end[KVT_AXIS_K] = k + 1;
	}
	if ((status = kvt_layout_views(&piece.views, &group->layout, &piece.box,
				       group->shape.elem, o->err)))
		return status;
	for (int i = 0; i < piece.views.count; i++)
		piece.views.view[i].offset += o->tensors.data + t->begin;
	return kvt_flat_add(&o->reader->flat[0], &piece, o->err);
}

static enum kvt_status add_layers(struct opening *o, const struct kvt_layer *layer,
				  int64_t count, bool apart)
{
	enum kvt_status status = KVT_OK;

	for (int64_t l = 0; !status && l < count; l++) {
		const struct kvt_tensor *t = &o->tensors.tensor[layer[l].index];

		status = add_layer(o, l, t, apart ? 0 : -1);
		if (!status && apart)
			status = add_layer(o, l, partner(&o->tensors, t->name), 1);
	}
	return status;
}

/* The array that the layers would be if they were one. */
static enum kvt_status fit_layers(struct opening *o, const struct kvt_layer *layer,
				  int64_t count, bool apart)
{
	struct kvt_group *group = &o->manifest.snapshot.group[0];
	const struct kvt_tensor *first = &o->tensors.tensor[layer[0].index];
	struct kvt_array array = kvt_tensor_array(first, o->reader->path);
	enum kvt_status status;

	if ((status = kvt_manifest_extent(group, KVT_AXIS_L, count, "tensors",
					  o->reader->path, o->err)) ||
	    (status = check_apart(o, &group->layout, apart)) ||
	    (o->manifest.has_layout && (status = check_outermost(o, &group->layout))))
		return status;
	if (__builtin_mul_overflow(array.nbytes, apart ? 2 * count : count,
				   &array.nbytes))
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: too many tensors",
				o->reader->path);
	if (apart || array.rank == KVT_SAFETENSORS_MAX_RANK) {
		array.rank = 0;
	} else {
		memmove(array.shape + 1, array.shape,
			(size_t)array.rank * sizeof(*array.shape));
		array.shape[0] = count;
		array.rank++;
	}
	if ((status = kvt_manifest_fit(&o->manifest, &array, o->err)))
		return status;
	return kvt_layers_tables(group, layer, count, o->reader->path, o->err);
}

static enum kvt_status open_layers(struct opening *o)
{
	struct kvt_layer *layer = calloc((size_t)o->tensors.count, sizeof(*layer));
	enum kvt_status status;
	int64_t count = 0;
	bool apart;

	if (!layer)
		return kvt_fail(o->err, KVT_SYSTEM, "%s: out of memory",
				o->reader->path);
	(void)((status = list_layers(layer, &count, &apart, o)) ||
	       (status = check_alike(o, layer, count)) ||
	       (status = fit_layers(o, layer, count, apart)) ||
	       (status = add_layers(o, layer, count, apart)));
	free(layer);
	return status;
}

/* ---- which arrangement -------------------------------------------------- */

static enum kvt_status open_tensors(struct opening *o)
{
	const struct kvt_tensor *first = o->tensors.tensor, *values = NULL;
	int64_t count = o->tensors.count;

	if (!count)
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: has no tensors",
				o->reader->path);
	if (o->manifest.snapshot.ngroups > 1)
		return open_groups(o);
	if (count == 1)
		return open_single(o, first, NULL);
	if (count == 2) {
		values = partner(&o->tensors, first->name);
		if (!values && (values = partner(&o->tensors, first[1].name))) {
			values = first;
			first = first + 1;
		}
	}
	return values ? open_single(o, first, values) : open_layers(o);
}

static enum kvt_status load_manifest(struct opening *o, const struct kvt_hints *hints)
{
	const char *path = o->reader->path;
	bool found;

	if (o->tensors.manifest && !(hints && hints->manifest))
		return kvt_manifest_parse(&o->manifest, o->tensors.manifest,
					  strlen(o->tensors.manifest), path, hints,
					  o->err);
	return kvt_manifest_load(&o->manifest, &found, path, hints, o->err);
}

static enum kvt_status safetensors_open(struct kvt_reader *reader, const char *path,
					const struct kvt_hints *hints,
					struct kvt_error *err)
{
	struct opening o = { .reader = reader, .err = err };
	enum kvt_status status;

	if ((status = kvt_files_open(&reader->files, &o.file, path, err)) ||
	    (status = kvt_tensors_read(&o.tensors, &reader->files.file[o.file], err)))
		return status;
	if (!(status = load_manifest(&o, hints))) {
		if (!(status = open_tensors(&o)))
			status = kvt_manifest_adopt(reader, &o.manifest, err);
		kvt_manifest_free(&o.manifest);
	}
	kvt_tensors_free(&o.tensors);
	return status;
}

static const char *const endings[] = { ".safetensors", NULL };

const struct kvt_format kvt_safetensors_format = {
	.info = { "safetensors", "tensors with a JSON header that describes them",
		  true, true },
	.endings = endings,
	.probe = safetensors_probe,
	.open = safetensors_open,
	.create = kvt_safetensors_create,
	.finish = kvt_safetensors_finish,
};
