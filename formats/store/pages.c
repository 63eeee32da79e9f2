/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.c - what files without a header hold, and where
 *
 * See pages.h.  Of the extents of a file all but one must be said; the length of the
 * file gives that one, and is otherwise held against all of them.
 */
#include "formats/store/pages.h"

#include <string.h>

#include "formats/describe/describe.h"

/* ---- what is missing ---------------------------------------------------- */

struct missing {
	char text[160];
	size_t used;
	int count, open;		/* all facts; those that are extents */
};

static void lacks(struct missing *m, const char *option)
{
	m->used += (size_t)snprintf(m->text + m->used, sizeof(m->text) - m->used, "%s%s",
				    m->count++ ? ", " : "", option);
}

static void look_for(struct missing *m, const struct kvt_group *group, bool has_layout,
		     int64_t ranks)
{
	const int64_t *n = group->shape.n;
	bool opaque = has_layout && kvt_group_opaque(group);
	const struct {
		const char *option;
		bool open;
	} extents[] = {
		{ "--layers",     n[KVT_AXIS_L] < 0 },
		{ "--blocks",     n[KVT_AXIS_B] < 0 },
		{ "--block-size", n[KVT_AXIS_S] < 0 && group->block_size < 0 },
		{ "--heads",      n[KVT_AXIS_H] < 0 && !opaque },
		{ opaque ? "--content-size" : "--head-dim", n[KVT_AXIS_D] < 0 },
	};

	if (!has_layout)
		lacks(m, "--layout");
	if (!group->dtype)
		lacks(m, "--dtype");
	if (ranks > 1 && group->total_heads < 0 && !opaque)
		lacks(m, "--set total-heads");
	for (size_t i = 0; i < sizeof(extents) / sizeof(extents[0]); i++)
		if (extents[i].open) {
			lacks(m, extents[i].option);
			m->open++;
		}
}

static enum kvt_status refuse_missing(const struct kvt_group *group, bool has_layout,
				      int64_t ranks, bool sized, const char *name,
				      struct kvt_error *err)
{
	struct missing m = { .used = 0 };

	look_for(&m, group, has_layout, ranks);
	if (!m.count || (sized && m.count == 1 && m.open == 1))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.200s: these files have no header: give %s%s", name,
			m.text, sized && m.open ?
			" (one of the numbers can be computed from the size of the files)" : "");
}

/* Bytes of a group whose extents are all given or follow from its kind. */
static enum kvt_status given_bytes(int64_t *out, const struct kvt_group *group,
				   struct kvt_error *err)
{
	struct kvt_shape shape = group->shape;
	int64_t tokens = group->tokens_per_slot > 1 ? group->tokens_per_slot : 1;

	if (shape.n[KVT_AXIS_S] < 0)
		shape.n[KVT_AXIS_S] = group->block_size / tokens;
	if (shape.n[KVT_AXIS_K] < 0)
		shape.n[KVT_AXIS_K] = kvt_group_opaque(group) ? 1 : 2;
	if (shape.n[KVT_AXIS_H] < 0)
		shape.n[KVT_AXIS_H] = 1;
	return kvt_shape_nbytes(out, &shape, err);
}

/* ---- one file ----------------------------------------------------------- */

enum kvt_status kvt_pages_fit(struct kvt_group *group,
			      const struct kvt_pages_known *known,
			      const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_manifest m = { .has_layout = group->layout.nplanes > 0 }, all;
	struct kvt_array array = { .name = known->name, .nbytes = known->nbytes };
	const struct kvt_hints said = kvt_hints_of(hints, group->id);
	struct kvt_group *fitted = &m.snapshot.group[0];
	enum kvt_status status;

	if (known->unnoticed && !known->nbytes)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: is empty", known->name);
	kvt_snapshot_init(&m.snapshot);
	m.snapshot.ngroups = 1;
	*fitted = *group;
	if (known->parallel)
		m.snapshot.parallel = *known->parallel;
	/* content that is no key and value has one head, if nothing says more */
	if (said.content && said.heads <= 1 && fitted->kind == KVT_NKINDS)
		fitted->kind = KVT_MLA;
	if ((status = kvt_manifest_hints(&m, &said, known->name, err)) ||
	    (status = kvt_fact_int(&fitted->total_heads, hints, "total-heads", 1, 1 << 20,
				   err)))
		return status;
	all = m;
	kvt_manifest_fill_dtype(&all.snapshot.group[0], &said, NULL);
	if ((status = kvt_manifest_fill(&all, 0, known->name, err)) ||
	    (status = refuse_missing(&all.snapshot.group[0], m.has_layout,
				     m.snapshot.parallel.tp_size, known->nbytes >= 0,
				     known->name, err)) ||
	    (known->nbytes < 0 &&
	     (status = given_bytes(&array.nbytes, &all.snapshot.group[0], err))) ||
	    (status = kvt_manifest_fit(&m, &array, err)))
		return status;
	if (m.derived && known->unnoticed && !(hints && hints->blocks))
		*known->unnoticed = KVT_DERIVED;
	*group = *fitted;
	return KVT_OK;
}

/* ---- ranges ------------------------------------------------------------- */

enum kvt_status kvt_pages_expect(const struct kvt_file *file, int64_t skip,
				 int64_t nbytes, int64_t pad, struct kvt_error *err)
{
	int64_t size;

	if (!__builtin_add_overflow(skip, nbytes, &size) &&
	    !__builtin_add_overflow(size, pad, &size) && size == file->nbytes)
		return KVT_OK;
	if (!file->nbytes)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: is empty, expected %lld bytes",
				file->path, LL(nbytes));
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: has %lld bytes, expected %lld of data after %lld and before %lld more",
			file->path, LL(file->nbytes), LL(nbytes), LL(skip), LL(pad));
}

enum kvt_status kvt_pages_part(struct kvt_file_part *out, const struct kvt_group *group,
				const struct kvt_box *box, int file, int64_t offset,
				struct kvt_error *err)
{
	struct kvt_group part = *group;
	enum kvt_status status;
	struct kvt_box whole;

	part.shape = kvt_box_shape(box, part.shape.elem);
	whole = kvt_box_whole(&part.shape);
	status = kvt_file_part_init(out, &part, &whole, kvt_group_has_gaps(&part), file,
				offset, err);
	out->box = *box;
	return status;
}

enum kvt_status kvt_pages_add_part(struct kvt_flat *flat, const struct kvt_group *group,
				    const struct kvt_box *box, int file, int64_t offset,
				    struct kvt_error *err)
{
	struct kvt_file_part range;
	enum kvt_status status = kvt_pages_part(&range, group, box, file, offset, err);

	return status ? status : kvt_flat_add(flat, &range, err);
}

enum kvt_status kvt_pages_add(struct kvt_reader *reader, int group, int file,
			      const struct kvt_box *box, int64_t skip, int64_t pad,
			      struct kvt_error *err)
{
	const struct kvt_group *g = &reader->leaf.snapshot.group[group];
	struct kvt_shape shape = kvt_box_shape(box, g->shape.elem);
	enum kvt_status status;
	int64_t nbytes;

	if (kvt_group_has_gaps(g)) {
		shape.n[KVT_AXIS_S] = shape.n[KVT_AXIS_H] = shape.n[KVT_AXIS_K] = 1;
		shape.n[KVT_AXIS_D] = g->page_bytes;
		shape.elem = 1;
	}
	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)) ||
	    (status = kvt_pages_expect(&reader->files.file[file], skip, nbytes, pad,
				       err)))
		return status;
	return kvt_pages_add_part(&reader->flat[group], g, box, file, skip, err);
}

/* ---- tokens in order ---------------------------------------------------- */

/* Is an axis of tokens what the layout has where B and S are? */
static bool joins_tokens(const struct kvt_layout *layout)
{
	for (int p = 0; p < layout->nplanes; p++) {
		const struct kvt_order *order = &layout->plane[p];
		int i = 0;

		while (i < order->nparts && order->part[i].axis != KVT_AXIS_B)
			i++;
		if (i + 1 >= order->nparts || order->part[i + 1].axis != KVT_AXIS_S)
			return false;
		for (i = 0; i < order->nparts; i++)
			if (order->part[i].kind != KVT_WHOLE)
				return false;
	}
	return layout->nplanes > 0;
}

/* All tokens as blocks of one slot: their strides are those of the array. */
static enum kvt_status token_views(struct kvt_views *out, const struct kvt_group *group,
				   const struct kvt_box *where, int64_t tokens,
				   struct kvt_error *err)
{
	struct kvt_shape shape = kvt_box_shape(where, group->shape.elem);
	struct kvt_box box;

	if (!joins_tokens(&group->layout))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"layout %s cannot hold tokens in order",
				kvt_layout_string(&group->layout).s);
	shape.n[KVT_AXIS_B] = tokens;
	shape.n[KVT_AXIS_S] = 1;
	box = kvt_box_whole(&shape);
	return kvt_layout_views(out, &group->layout, &box, shape.elem, err);
}

enum kvt_status kvt_pages_token_bytes(int64_t *out, const struct kvt_group *group,
				      int64_t tokens, struct kvt_error *err)
{
	struct kvt_shape shape = group->shape;

	shape.n[KVT_AXIS_B] = tokens;
	shape.n[KVT_AXIS_S] = 1;
	return kvt_shape_nbytes(out, &shape, err);
}

/* The tokens of 'box', the first of them number 'token' of the array. */
static enum kvt_status add_tokens(struct kvt_reader *reader, int g, int file,
				  const struct kvt_box *box,
				  const struct kvt_views *tokens, int64_t token,
				  int64_t skip, struct kvt_error *err)
{
	const struct kvt_group *group = &reader->leaf.snapshot.group[g];
	struct kvt_file_part range = { .file = file, .box = *box };
	enum kvt_status status = kvt_layout_views(&range.views, &group->layout, box,
						  group->shape.elem, err);

	for (int i = 0; !status && i < range.views.count; i++) {
		const struct kvt_view *array = &tokens->view[i];
		struct kvt_view *view = &range.views.view[i];
		int64_t row = kvt_view_stride(array, KVT_AXIS_B);

		for (enum kvt_axis a = 0; a < KVT_NAXES; a++)
			if (a != KVT_AXIS_B && a != KVT_AXIS_S)
				kvt_view_set_stride(view, a, kvt_view_stride(array, a));
		kvt_view_set_stride(view, KVT_AXIS_B, row * group->shape.n[KVT_AXIS_S]);
		kvt_view_set_stride(view, KVT_AXIS_S, row);
		view->offset = array->offset + skip + token * row;
	}
	return status ? status : kvt_flat_add(&reader->flat[g], &range, err);
}

enum kvt_status kvt_pages_place_tokens(struct kvt_reader *reader, int g, int file,
				       const struct kvt_box *where, int64_t tokens,
				       int64_t offset, struct kvt_error *err)
{
	const struct kvt_group *group = &reader->leaf.snapshot.group[g];
	int64_t slots = group->shape.n[KVT_AXIS_S];
	int64_t full = slots > 0 ? tokens / slots : 0;
	int64_t rest = slots > 0 ? tokens % slots : 0;
	struct kvt_file_part zeros = { .file = -1 };
	struct kvt_box box = *where;
	struct kvt_views views;
	enum kvt_status status;

	if ((status = token_views(&views, group, where, tokens, err)))
		return status;
	box.end[KVT_AXIS_B] = box.begin[KVT_AXIS_B] + full;
	if (full && (status = add_tokens(reader, g, file, &box, &views, 0, offset, err)))
		return status;
	if (!rest)
		return KVT_OK;
	box.begin[KVT_AXIS_B] += full;
	box.end[KVT_AXIS_B] = box.begin[KVT_AXIS_B] + 1;
	zeros.box = box;
	box.end[KVT_AXIS_S] = zeros.box.begin[KVT_AXIS_S] = rest;
	if ((status = add_tokens(reader, g, file, &box, &views, full * slots, offset,
				 err)))
		return status;
	return kvt_flat_add(&reader->flat[g], &zeros, err);
}
