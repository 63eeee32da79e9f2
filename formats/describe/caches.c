/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caches.c - "tensors" and "group_data_refs" of a manifest
 *
 *	"tensors": [{"num_blocks": 64, "page_size_bytes": 4096}, ..],
 *	"group_data_refs": [[{"layer_name": .., "tensor_idx": 0, "offset": 0,
 *			      "page_size_bytes": .., "n_heads": .., "h_stride": ..,
 *			      "bs_stride": .., "replicated": false}, ..], ..]
 *
 * A list for each group, an entry for each layer.  The keys are those of vLLM's
 * CanonicalKVCaches (#37853, #46954); "offset" says where a
 * layer is in a page of its tensor, which may be a row of all layers.
 */
#include "formats/describe/caches.h"
#include "lib/base/order.h"

#include <stdlib.h>
#include <string.h>

/* ---- parsing ------------------------------------------------------------ */

static void take_flag(int64_t *out, const struct kvt_json *in, const char *key)
{
	const json_t *value = json_object_get(in->object, key);

	*out = -1;
	if (!value || json_is_null(value))
		return;
	if (!json_is_boolean(value))
		kvt_json_bad(in, "%s is not true or false", key);
	*out = json_is_true(value);
}

static struct kvt_json take_object(const struct kvt_json *in, const char *key,
				   const json_t *list, size_t i)
{
	const json_t *object = json_array_get(list, i);

	if (!json_is_object(object))
		kvt_json_bad(in, "an entry of %s is not an object", key);
	return kvt_json_of(in, object);
}

static void take_tensor(struct kvt_rows *out, const struct kvt_json *in)
{
	kvt_json_int(&out->rows, in, "num_blocks", 1, KVT_MOST);
	kvt_json_int(&out->row_bytes, in, "page_size_bytes", 1, KVT_MOST);
	if (!out->rows || !out->row_bytes)
		kvt_json_bad(in, "a tensor has no num_blocks or page_size_bytes");
}

static void take_ref(struct kvt_page_ref *out, const struct kvt_json *in)
{
	*out = (struct kvt_page_ref){ .tensor = -1, .page_bytes = -1, .n_heads = -1,
				      .h_stride = -1, .bs_stride = -1 };
	kvt_json_copy_string(&out->layer, in, "layer_name");
	kvt_json_int(&out->tensor, in, "tensor_idx", 0, KVT_MOST);
	kvt_json_int(&out->offset, in, "offset", 0, KVT_MOST);
	kvt_json_int(&out->page_bytes, in, "page_size_bytes", 0, KVT_MOST);
	kvt_json_int(&out->n_heads, in, "n_heads", 0, KVT_MOST);
	kvt_json_int(&out->h_stride, in, "h_stride", 0, KVT_MOST);
	kvt_json_int(&out->bs_stride, in, "bs_stride", 0, KVT_MOST);
	take_flag(&out->replicated, in, "replicated");
	if (out->tensor < 0)
		kvt_json_bad(in, "a reference of group_data_refs has no tensor_idx");
}

static void take_refs(struct kvt_caches *out, int g, const struct kvt_json *in,
		      const json_t *list)
{
	size_t n = json_array_size(list);

	if (!json_is_array(list))
		kvt_json_bad(in, "group_data_refs[%d] is not an array", g);
	else if (!(out->ref[g] = calloc(n + 1, sizeof(*out->ref[g]))))
		kvt_json_no_memory(in);
	for (size_t i = 0; !*in->status && i < n; i++) {
		struct kvt_json object = take_object(in, "group_data_refs", list, i);
		struct kvt_page_ref *ref = &out->ref[g][i];

		out->nrefs[g]++;
		take_ref(ref, &object);
		if (ref->tensor >= out->ntensors)
			kvt_json_bad(in, "tensor_idx is %lld, but there are %lld tensors",
				     LL(ref->tensor), LL(out->ntensors));
		if (!ref->layer != !out->ref[g][0].layer)
			kvt_json_bad(in,
				     "some references of group_data_refs[%d] have no layer_name",
				     g);
	}
}

void kvt_caches_parse(struct kvt_caches **out, const struct kvt_json *in)
{
	const json_t *tensors = NULL, *refs = NULL;
	struct kvt_caches *c;
	size_t n;

	kvt_json_array(&tensors, in, "tensors");
	kvt_json_array(&refs, in, "group_data_refs");
	if (!tensors != !refs)
		kvt_json_bad(in, "has one of tensors and group_data_refs, expected both");
	if (!tensors || *in->status)
		return;
	n = json_array_size(tensors);
	*out = c = calloc(1, sizeof(*c));
	if (!c || !(c->tensor = calloc(n + 1, sizeof(*c->tensor))))
		kvt_json_no_memory(in);
	for (size_t i = 0; !*in->status && i < n; i++) {
		struct kvt_json object = take_object(in, "tensors", tensors, i);

		take_tensor(&c->tensor[c->ntensors++], &object);
	}
	n = json_array_size(refs);
	if (n > KVT_MAX_GROUPS)
		kvt_json_bad(in, "more than %d groups", KVT_MAX_GROUPS);
	for (size_t g = 0; !*in->status && g < n; g++)
		take_refs(c, c->ngroups++, in, json_array_get(refs, g));
}

void kvt_caches_free(struct kvt_caches *caches)
{
	if (!caches)
		return;
	for (int g = 0; g < caches->ngroups; g++) {
		for (int64_t i = 0; i < caches->nrefs[g]; i++)
			free(caches->ref[g][i].layer);
		free(caches->ref[g]);
	}
	free(caches->tensor);
	free(caches);
}

/* ---- what they tell ----------------------------------------------------- */

static enum kvt_status take_names(struct kvt_group *group, const struct kvt_caches *c,
				  int g, const char *name, struct kvt_error *err)
{
	int64_t n = c->nrefs[g];

	if (group->layer_names || !n || !c->ref[g][0].layer)
		return KVT_OK;
	group->layer_names = calloc((size_t)n + 1, sizeof(*group->layer_names));
	for (int64_t i = 0; group->layer_names && i < n; i++)
		if (!(group->layer_names[i] = strdup(c->ref[g][i].layer)))
			return kvt_no_memory(err, name);
	return group->layer_names ? KVT_OK : kvt_no_memory(err, name);
}

/* What is in a page, where one rank has all heads; a slot is a token then. */
static void fill_page(int64_t n[KVT_NAXES], const struct kvt_page_ref *ref)
{
	if (n[KVT_AXIS_H] < 0)
		n[KVT_AXIS_H] = ref->n_heads;
	if (n[KVT_AXIS_S] < 0 && ref->bs_stride > 0 &&
	    ref->page_bytes >= ref->bs_stride && ref->page_bytes % ref->bs_stride == 0)
		n[KVT_AXIS_S] = ref->page_bytes / ref->bs_stride;
}

enum kvt_status kvt_caches_fill(struct kvt_manifest *manifest, const char *name,
				struct kvt_error *err)
{
	struct kvt_snapshot *s = &manifest->snapshot;
	const struct kvt_caches *c = manifest->caches;
	enum kvt_status status;

	if (c->ngroups != s->ngroups)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: group_data_refs is of %d groups, but the manifest describes %d; groups says what each is",
				name, c->ngroups, s->ngroups);
	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_page_ref *first = &c->ref[g][0];
		int64_t *n = s->group[g].shape.n;

		if (n[KVT_AXIS_L] < 0)
			n[KVT_AXIS_L] = c->nrefs[g];
		if (n[KVT_AXIS_L] != c->nrefs[g])
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: group %s has %lld layers, but %lld references",
					name, s->group[g].id, LL(n[KVT_AXIS_L]),
					LL(c->nrefs[g]));
		if ((status = take_names(&s->group[g], c, g, name, err)))
			return status;
		if (!c->nrefs[g])
			continue;
		if (n[KVT_AXIS_B] < 0)
			n[KVT_AXIS_B] = c->tensor[first->tensor].rows;
		if (first->n_heads > 0 && s->parallel.tp_size == 1)
			fill_page(n, first);
	}
	return KVT_OK;
}

/* ---- a reference for each layer ----------------------------------------- */

/* By their names, whatever their order. */
static enum kvt_status order_refs(struct kvt_caches *c, const struct kvt_group *group,
				  int g, const char *name, struct kvt_error *err)
{
	int64_t n = c->nrefs[g];
	struct kvt_page_ref *old = c->ref[g], *in_order;

	if (!n || !old[0].layer)
		return KVT_OK;
	if (!(in_order = calloc((size_t)n + 1, sizeof(*in_order))))
		return kvt_no_memory(err, name);
	qsort(old, (size_t)n, sizeof(*old), kvt_by_name);
	for (int64_t l = 0; l < n; l++) {
		const struct kvt_page_ref key = { .layer = group->layer_names[l] };
		const struct kvt_page_ref *found = bsearch(&key, old, (size_t)n,
							   sizeof(*old), kvt_by_name);

		if (!found || (found > old && !kvt_by_name(found, found - 1)) ||
		    (found && found + 1 < old + n && !kvt_by_name(found, found + 1))) {
			free(in_order);
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: group %s has %s reference for layer '%.100s'",
					name, group->id, found ? "more than one" : "no",
					key.layer);
		}
		in_order[l] = *found;
	}
	/* each is found once: names of layers differ, as those of references do */
	c->ref[g] = in_order;
	free(old);
	return KVT_OK;
}

static enum kvt_status differs(const struct kvt_group *group, const char *layer,
			       const char *key, int64_t said, int64_t is,
			       const char *name, struct kvt_error *err)
{
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: group %s, layer %.100s: %s is %lld, but what the group says of itself makes it %lld",
			name, group->id, layer ? layer : "?", key, LL(said), LL(is));
}

static enum kvt_status check_ref(const struct kvt_page_ref *ref,
				 const struct kvt_snapshot *s, int g, int64_t page,
				 const char *name, struct kvt_error *err)
{
	const struct kvt_head_slices is = kvt_head_slices_of(s, g);
	const struct {
		const char *key;
		int64_t said, is;
	} rows[] = {
		{ "page_size_bytes", ref->page_bytes, page },
		{ "n_heads", ref->n_heads, is.n_heads },
		{ "h_stride", ref->h_stride, is.h_stride },
		{ "bs_stride", ref->bs_stride, is.bs_stride },
		{ "replicated", ref->replicated, is.replicated },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].said >= 0 && rows[i].said != rows[i].is)
			return differs(&s->group[g], ref->layer, rows[i].key,
				       rows[i].said, rows[i].is, name, err);
	return KVT_OK;
}

enum kvt_status kvt_caches_check(struct kvt_manifest *manifest, const char *name,
				 struct kvt_error *err)
{
	const struct kvt_snapshot *s = &manifest->snapshot;
	struct kvt_caches *c = manifest->caches;
	enum kvt_status status;

	for (int g = 0; g < s->ngroups; g++) {
		struct kvt_shape page = s->group[g].shape;
		int64_t nbytes;

		page.n[KVT_AXIS_L] = page.n[KVT_AXIS_B] = 1;
		if ((status = kvt_shape_nbytes(&nbytes, &page, err)) ||
		    (status = order_refs(c, &s->group[g], g, name, err)))
			return status;
		for (int64_t i = 0; i < c->nrefs[g]; i++)
			if ((status = check_ref(&c->ref[g][i], s, g, nbytes, name, err)))
				return status;
	}
	return KVT_OK;
}
