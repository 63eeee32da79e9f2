/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caches.c - tensors one after the other, of whose pages each layer has a part
 *
 *	tensor 0	[page of block 0][page of block 1] ...	page_size_bytes each
 *	tensor 1	...					no header, no gaps
 *
 *	a layer		'offset' in each page of tensor 'tensor_idx'
 *
 * vLLM's CanonicalKVCaches, with the bytes of its tensors: a manifest has "tensors" and
 * "group_data_refs" (kvtool-manifest(5)).  A group has the pages that its block_ids name.
 */
#include "formats/tensor/canonical.h"

#include <stdlib.h>

#include "formats/describe/caches.h"

/* Where each begins; the last is the end.  NULL: they are not the file. */
static int64_t *starts_of(const struct kvt_caches *c, int64_t skip)
{
	int64_t *start = calloc((size_t)c->ntensors + 1, sizeof(*start)), nbytes;

	if (!start)
		return NULL;
	start[0] = skip;
	for (int64_t i = 0; i < c->ntensors; i++)
		if (__builtin_mul_overflow(c->tensor[i].rows, c->tensor[i].row_bytes,
					   &nbytes) ||
		    __builtin_add_overflow(start[i], nbytes, &start[i + 1]))
			start[i + 1] = INT64_MAX - KVT_MOST;	/* no file is so long */
	return start;
}

/* ---- one group ---------------------------------------------------------- */

struct placing {
	struct kvt_flat *flat;
	const struct kvt_group *group;
	const struct kvt_caches *caches;
	const int64_t *start;
	int file;
	struct kvt_views dense;		/* of the group, as if all were in order */
};

/*
 * One layer, its blocks a page of the tensor apart: as it would be among all layers, less
 * the layers before it.
 */
static enum kvt_status layer_views(struct kvt_views *out, const struct placing *p,
				   int64_t layer, const struct kvt_page_ref *ref,
				   struct kvt_error *err)
{
	const struct kvt_rows *tensor = &p->caches->tensor[ref->tensor];
	int64_t end = 0;

	*out = p->dense;
	for (int i = 0; i < out->count; i++) {
		struct kvt_view *view = &out->view[i], one;
		int64_t before = layer * kvt_view_stride(view, KVT_AXIS_L);
		enum kvt_status status;

		kvt_view_set_stride(view, KVT_AXIS_B, tensor->row_bytes);
		if ((status = kvt_view_narrow(view, view, KVT_AXIS_L, layer, layer + 1,
					      err)))
			return status;
		view->offset += ref->offset - before;
		if (!view->shape.n[KVT_AXIS_B])
			continue;
		if ((status = kvt_view_narrow(&one, view, KVT_AXIS_B, 0, 1, err)) ||
		    (status = kvt_view_end(&end, &one, err)))
			return status;
		if (end > tensor->row_bytes)
			return kvt_fail(err, KVT_BAD_INPUT,
					"group %s: layer %lld ends at byte %lld of a page of tensor %lld, which has %lld",
					p->group->id, LL(layer), LL(end), LL(ref->tensor),
					LL(tensor->row_bytes));
	}
	return KVT_OK;
}

/* Blocks whose ids follow each other are one part. */
static enum kvt_status place_layer(const struct placing *p, int64_t layer,
				   const struct kvt_page_ref *ref, struct kvt_error *err)
{
	const struct kvt_rows *tensor = &p->caches->tensor[ref->tensor];
	int64_t n = p->group->shape.n[KVT_AXIS_B], end;
	struct kvt_file_part part = { .file = p->file };
	struct kvt_views views;
	enum kvt_status status = layer_views(&views, p, layer, ref, err);

	for (int64_t b = 0; !status && b < n; b = end) {
		uint64_t id = kvt_block_id(p->group, b);
		struct kvt_box rows = kvt_box_whole(&p->group->shape);

		for (end = b + 1; end < n && kvt_block_id(p->group, end) ==
					     kvt_block_id(p->group, end - 1) + 1;)
			end++;
		if (id >= (uint64_t)tensor->rows ||
		    (uint64_t)(end - b) > (uint64_t)tensor->rows - id)
			return kvt_fail(err, KVT_BAD_INPUT,
					"group %s has block %llu, but tensor %lld has %lld pages",
					p->group->id,
					(unsigned long long)id + (uint64_t)(end - b) - 1,
					LL(ref->tensor), LL(tensor->rows));
		rows.begin[KVT_AXIS_L] = 0;
		rows.end[KVT_AXIS_L] = 1;
		rows.begin[KVT_AXIS_B] = b;
		rows.end[KVT_AXIS_B] = end;
		if ((status = kvt_views_narrow(&part.views, &views, &rows, err)))
			return status;
		for (int i = 0; i < part.views.count; i++)
			part.views.view[i].offset += p->start[ref->tensor] +
				((int64_t)id - b) * tensor->row_bytes;
		part.box = rows;
		part.box.begin[KVT_AXIS_L] = layer;
		part.box.end[KVT_AXIS_L] = layer + 1;
		status = kvt_flat_add(p->flat, &part, err);
	}
	return status;
}

static enum kvt_status place_group(struct placing *p, const struct kvt_page_ref *ref,
				   struct kvt_error *err)
{
	const struct kvt_group *g = p->group;
	struct kvt_box whole = kvt_box_whole(&g->shape);
	enum kvt_status status;

	if (kvt_layout_outermost(&g->layout) == KVT_NAXES)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"group %s is %s, but in tensors of pages blocks are outermost, or layers and then blocks",
				g->id, kvt_layout_string(&g->layout).s);
	if ((status = kvt_layout_views(&p->dense, &g->layout, &whole, g->shape.elem,
				       err)))
		return status;
	for (int64_t l = 0; !status && l < g->shape.n[KVT_AXIS_L]; l++)
		status = place_layer(p, l, &ref[l], err);
	return status;
}

/* ---- the file ----------------------------------------------------------- */

static enum kvt_status place_all(struct kvt_reader *reader, struct kvt_manifest *manifest,
				 const int64_t *start, int index, struct kvt_error *err)
{
	const struct kvt_caches *c = manifest->caches;
	int64_t size = reader->files.file[index].nbytes;

	if (start[c->ntensors] != size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld bytes, but its %lld tensors have %lld",
				reader->leaf.path, LL(size),
				LL(c->ntensors), LL(start[c->ntensors]));
	for (int g = 0; g < manifest->snapshot.ngroups; g++) {
		struct placing p = { .flat = &reader->flat[g], .caches = c,
				     .file = index, .start = start,
				     .group = &manifest->snapshot.group[g] };
		struct kvt_error why = { "" };
		enum kvt_status status = place_group(&p, c->ref[g], &why);

		if (status)
			return kvt_fail(err, status, "%s: %s", reader->leaf.path,
					why.text);
	}
	return KVT_OK;
}

enum kvt_status kvt_caches_fit(struct kvt_reader *reader, struct kvt_manifest *manifest,
			       int index, struct kvt_error *err)
{
	const struct kvt_caches *c = manifest->caches;
	const char *path = reader->leaf.path;
	enum kvt_status status;
	int64_t *start;

	if ((status = kvt_caches_fill(manifest, path, err)) ||
	    (status = kvt_manifest_complete(manifest, path, err)) ||
	    (status = kvt_caches_check(manifest, path, err)))
		return status;
	if (!(start = starts_of(c, manifest->skip)))
		return kvt_no_memory(err, path);
	status = place_all(reader, manifest, start, index, err);
	free(start);
	if (status)
		return status;
	if (c->ntensors == 1) {
		reader->leaf.rows = c->tensor[0].rows;
		reader->leaf.row_bytes = c->tensor[0].row_bytes;
	}
	return kvt_manifest_adopt(reader, manifest, err);
}
