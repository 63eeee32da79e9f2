/* SPDX-License-Identifier: Apache-2.0 */
/* group_pieces.c - where groups are in a file: dense arrays, or pages with gaps */
#include "formats/format.h"

/*
 * In the engine's pages a block takes page_bytes, whatever its content needs;
 * the strides of layer and block come from that, all others from the content.
 */
static enum kvt_status spread_pages(struct kvt_views *views,
				    const struct kvt_group *group,
				    struct kvt_error *err)
{
	const struct kvt_order *order = &group->layout.plane[0];
	int64_t inner = group->page_bytes, outer;
	enum kvt_axis fast = KVT_AXIS_B, slow = KVT_AXIS_L;

	for (int i = 0; i < order->nparts; i++) {
		if (order->part[i].axis == KVT_AXIS_L)
			break;
		if (order->part[i].axis == KVT_AXIS_B) {
			fast = KVT_AXIS_L;
			slow = KVT_AXIS_B;
			break;
		}
	}
	if (__builtin_mul_overflow(inner, group->shape.n[fast], &outer) ||
	    outer > INT64_MAX / 2 / (group->shape.n[slow] + 1))
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: pages of %lld bytes are more than 2^62 bytes",
				group->id, (long long)group->page_bytes);
	for (int i = 0; i < views->count; i++) {
		kvt_view_set_stride(&views->view[i], fast, inner);
		kvt_view_set_stride(&views->view[i], slow, outer);
	}
	return KVT_OK;
}

static bool has_gaps(const struct kvt_group *group)
{
	struct kvt_shape page = group->shape;
	int64_t content;

	page.n[KVT_AXIS_L] = page.n[KVT_AXIS_B] = 1;
	return group->page_bytes && (kvt_shape_nbytes(&content, &page, NULL) ||
				     content != group->page_bytes);
}

enum kvt_status kvt_piece_init(struct kvt_piece *out, const struct kvt_group *group,
			       const struct kvt_box *box, int file, int64_t offset,
			       struct kvt_error *err)
{
	struct kvt_box whole = kvt_box_whole(&group->shape);
	struct kvt_piece piece = { .file = file, .box = *box };
	enum kvt_status status;

	if ((status = kvt_layout_views(&piece.views, &group->layout, &whole,
				       group->shape.elem, err)))
		return status;
	if (has_gaps(group) && (status = spread_pages(&piece.views, group, err)))
		return status;
	if ((status = kvt_views_narrow(&piece.views, &piece.views, box, err)))
		return status;
	for (int i = 0; i < piece.views.count; i++)
		if (__builtin_add_overflow(piece.views.view[i].offset,
					   offset + (has_gaps(group) ?
						     group->page_offset : 0),
					   &piece.views.view[i].offset))
			return kvt_fail(err, KVT_BAD_INPUT,
					"group %s: offset %lld overflows", group->id,
					(long long)offset);
	*out = piece;
	return KVT_OK;
}

static enum kvt_status page_file_bytes(int64_t *out,
				       const struct kvt_snapshot *snapshot,
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

enum kvt_status kvt_snapshot_file_bytes(int64_t *out,
					const struct kvt_snapshot *snapshot,
					struct kvt_error *err)
{
	int64_t nbytes = 0, dense;
	enum kvt_status status;

	for (int g = 0; g < snapshot->ngroups; g++)
		if (has_gaps(&snapshot->group[g]))
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

enum kvt_status kvt_flats_whole(struct kvt_flat *flats,
				const struct kvt_snapshot *snapshot, int file,
				int64_t offset, struct kvt_error *err)
{
	for (int g = 0; g < snapshot->ngroups; g++) {
		const struct kvt_group *group = &snapshot->group[g];
		struct kvt_box box = kvt_box_whole(&group->shape);
		struct kvt_piece piece;
		enum kvt_status status;
		int64_t dense;

		if ((status = kvt_piece_init(&piece, group, &box, file, offset, err)) ||
		    (status = kvt_flat_add(&flats[g], &piece, err)) ||
		    (status = kvt_shape_nbytes(&dense, &group->shape, err)))
			return status;
		if (!has_gaps(group))
			offset += dense;
	}
	return KVT_OK;
}
