/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.c - where groups are in a file: dense arrays, or pages with gaps
 *
 * In: a group, a box of it, and the byte at which its array or its pages begin.  Out:
 * a range, whose strides are those of the layout, or of pages that are larger than
 * their content and may be shared by several groups.
 */
#include "formats/format.h"
#include "lib/layout/words.h"

/*
 * In the engine's pages a block takes page_bytes, whatever its content needs;
 * the strides of layer and block come from that, all others from the content.
 */
static enum kvt_status spread_pages(struct kvt_views *views,
				    const struct kvt_group *group, struct kvt_error *err)
{
	bool first = kvt_order_blocks_first(&group->layout.plane[0]);
	enum kvt_axis fast = first ? KVT_AXIS_L : KVT_AXIS_B;
	enum kvt_axis slow = first ? KVT_AXIS_B : KVT_AXIS_L;
	int64_t inner = group->page_bytes, outer;

	if (__builtin_mul_overflow(inner, group->shape.n[fast], &outer) ||
	    outer > INT64_MAX / 2 / (group->shape.n[slow] + 1))
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: pages of %lld bytes are more than 2^62 bytes",
				group->id, LL(group->page_bytes));
	for (int i = 0; i < views->count; i++) {
		kvt_view_set_stride(&views->view[i], fast, inner);
		kvt_view_set_stride(&views->view[i], slow, outer);
	}
	return KVT_OK;
}

bool kvt_group_has_gaps(const struct kvt_group *group)
{
	struct kvt_shape page = group->shape;
	int64_t content;

	page.n[KVT_AXIS_L] = page.n[KVT_AXIS_B] = 1;
	return group->page_bytes && (kvt_shape_nbytes(&content, &page, NULL) ||
				     content != group->page_bytes);
}

bool kvt_snapshot_has_pages(const struct kvt_snapshot *snapshot)
{
	for (int g = 0; g < snapshot->ngroups; g++)
		if (kvt_group_has_gaps(&snapshot->group[g]))
			return true;
	return false;
}

enum kvt_status kvt_file_part_init(struct kvt_file_part *out,
			       const struct kvt_group *group,
			       const struct kvt_box *box, bool pages, int file,
			       int64_t offset, struct kvt_error *err)
{
	struct kvt_box whole = kvt_box_whole(&group->shape);
	struct kvt_file_part range = { .file = file, .box = *box };
	enum kvt_status status;

	if ((status = kvt_layout_views(&range.views, &group->layout, &whole,
				       group->shape.elem, err)))
		return status;
	if (pages && (status = spread_pages(&range.views, group, err)))
		return status;
	if ((status = kvt_views_narrow(&range.views, &range.views, box, err)))
		return status;
	if (pages)
		offset += group->page_offset;
	for (int i = 0; i < range.views.count; i++)
		if (__builtin_add_overflow(range.views.view[i].offset, offset,
					   &range.views.view[i].offset))
			return kvt_fail(err, KVT_BAD_INPUT,
					"group %s: offset %lld overflows", group->id,
					LL(offset));
	*out = range;
	return KVT_OK;
}

static enum kvt_status page_file_bytes(int64_t *out, const struct kvt_snapshot *snapshot,
				       struct kvt_error *err)
{
	const struct kvt_group *first = &snapshot->group[0];
	const int64_t *n = first->shape.n;

	for (int g = 1; g < snapshot->ngroups; g++) {
		const struct kvt_group *group = &snapshot->group[g];

		if (group->page_bytes != first->page_bytes ||
		    group->shape.n[KVT_AXIS_L] != n[KVT_AXIS_L] ||
		    group->shape.n[KVT_AXIS_B] != n[KVT_AXIS_B])
			return kvt_fail(err, KVT_BAD_INPUT,
					"groups %s and %s do not share their pages",
					first->id, group->id);
	}
	if (__builtin_mul_overflow(n[KVT_AXIS_L], n[KVT_AXIS_B], out) ||
	    __builtin_mul_overflow(*out, first->page_bytes, out))
		return kvt_fail(err, KVT_BAD_INPUT, "pages are more than 2^63 bytes");
	return KVT_OK;
}

enum kvt_status kvt_snapshot_file_bytes(int64_t *out, const struct kvt_snapshot *snapshot,
					bool pages, struct kvt_error *err)
{
	int64_t nbytes = 0, dense;
	enum kvt_status status;

	if (pages)
		return page_file_bytes(out, snapshot, err);
	for (int g = 0; g < snapshot->ngroups; g++) {
		if ((status = kvt_shape_nbytes(&dense, &snapshot->group[g].shape, err)))
			return status;
		if (__builtin_add_overflow(nbytes, dense, &nbytes))
			return kvt_fail(err, KVT_BAD_INPUT,
					"groups are more than 2^63 bytes");
	}
	*out = nbytes;
	return KVT_OK;
}

enum kvt_status kvt_flat_whole(struct kvt_flat *flat, const struct kvt_group *group,
			       bool pages, int file, int64_t offset,
			       struct kvt_error *err)
{
	struct kvt_box box = kvt_box_whole(&group->shape);
	struct kvt_file_part range;
	enum kvt_status status;

	if ((status = kvt_file_part_init(&range, group, &box, pages, file, offset, err)))
		return status;
	return kvt_flat_add(flat, &range, err);
}

enum kvt_status kvt_flats_whole(struct kvt_flat *flats,
				const struct kvt_snapshot *snapshot, bool pages,
				int file, int64_t offset, struct kvt_error *err)
{
	for (int g = 0; g < snapshot->ngroups; g++) {
		const struct kvt_group *group = &snapshot->group[g];
		enum kvt_status status;
		int64_t dense;

		if ((status = kvt_flat_whole(&flats[g], group, pages, file,
					     offset, err)) ||
		    (status = kvt_shape_nbytes(&dense, &group->shape, err)))
			return status;
		if (!pages)
			offset += dense;
	}
	return KVT_OK;
}

/* ---- shapes of files ---------------------------------------------------- */

/* As the engine has them: a page of one layer is one run of bytes. */
static int page_shape(int64_t shape[8], const struct kvt_group *group)
{
	const int64_t pages[5] = { group->shape.n[KVT_AXIS_L],
				   group->shape.n[KVT_AXIS_B], 1, 1, group->page_bytes };

	for (int i = 0; i < 5; i++)
		shape[i] = pages[i];
	return 5;
}

/* Extent of the i-th part of an order, as a view of the group has it. */
static int64_t part_extent(const struct kvt_order *order, int i,
			   const struct kvt_view *view)
{
	const struct kvt_part *part = &order->part[i];

	for (int j = 0; j < view->nfactors; j++) {
		const struct kvt_factor *f = &view->factor[j];

		if (f->axis == part->axis && (f->div > 1) == (part->kind == KVT_OUTER))
			return f->n;
	}
	return 1;
}

bool kvt_layout_apart(const struct kvt_layout *layout)
{
	const struct kvt_order *order = &layout->plane[0];

	for (int i = 0; i < order->nparts; i++)
		if (order->part[i].axis == KVT_AXIS_K)
			return false;
	return layout->nplanes == 2;
}

enum kvt_status kvt_group_array_shape(int *rank, int64_t shape[8],
				      const struct kvt_group *group,
				      struct kvt_error *err)
{
	const struct kvt_order *order = &group->layout.plane[0];
	struct kvt_box box = kvt_box_whole(&group->shape);
	bool joined = group->layout.nplanes == 2 && !kvt_layout_apart(&group->layout);
	struct kvt_views views;
	enum kvt_status status;
	int64_t left = -1;

	if ((status = kvt_layout_views(&views, &group->layout, &box,
				       group->shape.elem, err)))
		return status;
	*rank = 0;
	for (int i = 0; i < order->nparts; i++) {
		enum kvt_axis axis = order->part[i].axis;
		/* views of joined planes have lost their K */
		int64_t n = axis == KVT_AXIS_K ? group->shape.n[axis] :
						 part_extent(order, i, &views.view[0]);

		if (left >= 0) {
			left *= n;	/* after K the planes have no common axes */
			continue;
		}
		if (n != 1 || (axis != KVT_AXIS_K &&
			       (axis != KVT_AXIS_H || group->kind != KVT_MLA)))
			shape[(*rank)++] = n;
		if (joined && axis == KVT_AXIS_K)
			left = 1;
	}
	if (left >= 0)
		shape[(*rank)++] = left;
	return KVT_OK;
}

enum kvt_status kvt_snapshot_file_shape(int *rank, int64_t shape[8],
					const struct kvt_dtype **dtype,
					const struct kvt_snapshot *snapshot,
					const char *name, struct kvt_error *err)
{
	const struct kvt_group *group = &snapshot->group[0];
	int64_t nbytes;

	if (kvt_snapshot_has_pages(snapshot) &&
	    !page_file_bytes(&nbytes, snapshot, NULL)) {
		*rank = page_shape(shape, group);
		*dtype = kvt_dtype_find("uint8");
		return KVT_OK;
	}
	if (snapshot->ngroups > 1)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s holds one array, not %d groups; use safetensors or hdf5",
				name, snapshot->ngroups);
	if (kvt_layout_apart(&group->layout))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s holds one array, but layout %s has separate keys and values; use safetensors or hdf5",
				name, kvt_layout_string(&group->layout).s);
	*dtype = group->dtype;
	return kvt_group_array_shape(rank, shape, group, err);
}
