/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flat_parts.c - the parts of flat groups: kept in little room, checked, sorted
 *
 * A part is a box of a group and where its elements are in which file.  Folders have
 * millions of them whose strides are the same: views are kept once, a part has the
 * number of its views and an offset.
 */
#include "formats/format.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

/* The difference of all offsets, if that is all that differs. */
static bool same_views(int64_t *delta, const struct kvt_views *a,
		       const struct kvt_views *b)
{
	if (a->count != b->count || a->first_k != b->first_k || a->nbytes != b->nbytes)
		return false;
	*delta = 0;
	for (int i = 0; i < a->count; i++) {
		const struct kvt_view *x = &a->view[i], *y = &b->view[i];
		int64_t here;

		if (__builtin_sub_overflow(y->offset, x->offset, &here) ||
		    (i && here != *delta) || x->nfactors != y->nfactors ||
		    memcmp(&x->shape, &y->shape, sizeof(x->shape)))
			return false;
		*delta = here;
		for (int j = 0; j < x->nfactors; j++) {
			const struct kvt_factor *f = &x->factor[j], *g = &y->factor[j];

			if (f->axis != g->axis || f->div != g->div || f->n != g->n ||
			    f->stride != g->stride)
				return false;
		}
	}
	return true;
}

/* Views that are there already, of the last few, or one more. */
static enum kvt_status share_views(struct kvt_placed *out, struct kvt_flat *flat,
				   const struct kvt_views *views, struct kvt_error *err)
{
	int32_t n = flat->nviews;
	enum { LAST = 4 };

	for (out->views = n - 1; out->views >= 0 && out->views >= n - LAST; out->views--)
		if (same_views(&out->offset, &flat->views[out->views], views))
			return KVT_OK;
	if (n == INT32_MAX || !KVT_GROW(&flat->views, n))
		return kvt_fail(err, KVT_SYSTEM, "out of memory for %d views", n);
	out->views = flat->nviews++;
	out->offset = 0;
	flat->views[n] = *views;
	return KVT_OK;
}

enum kvt_status kvt_flat_add(struct kvt_flat *flat, const struct kvt_file_part *part,
			     struct kvt_error *err)
{
	struct kvt_placed placed = { .file = part->file, .box = part->box };
	int64_t n = flat->nparts;
	enum kvt_status status;

	if (!KVT_GROW(&flat->placed, n))
		return kvt_fail(err, KVT_SYSTEM, "out of memory for %lld ranges", LL(n));
	if ((status = share_views(&placed, flat, &part->views, err)))
		return status;
	flat->placed[flat->nparts++] = placed;
	return KVT_OK;
}

struct kvt_file_part kvt_flat_part(const struct kvt_flat *flat, int64_t i)
{
	const struct kvt_placed *placed = &flat->placed[i];
	struct kvt_file_part out = { placed->file, placed->box,
				     flat->views[placed->views] };

	for (int v = 0; v < out.views.count; v++)
		out.views.view[v].offset += placed->offset;
	return out;
}

void kvt_flat_free(struct kvt_flat *flat)
{
	free(flat->placed);
	free(flat->views);
	*flat = (struct kvt_flat){ 0 };
}

static enum kvt_status check_part(const struct kvt_file_part *part,
				  const struct kvt_files *files,
				  const struct kvt_group *group, struct kvt_error *err)
{
	const struct kvt_file *file;

	for (int a = 0; a < KVT_NAXES; a++)
		if (part->box.begin[a] < 0 || part->box.end[a] < part->box.begin[a] ||
		    part->box.end[a] > group->shape.n[a])
			return kvt_fail(err, KVT_BAD_INPUT,
					"a range has %s %lld:%lld, the group has %lld",
					kvt_axis_name(a), LL(part->box.begin[a]),
					LL(part->box.end[a]), LL(group->shape.n[a]));
	if (part->file < 0)
		return KVT_OK;
	file = &files->file[part->file];
	for (int i = 0; i < part->views.count; i++) {
		int64_t end;
		enum kvt_status status = kvt_view_end(&end, &part->views.view[i], err);

		if (status)
			return status;
		if (end > file->nbytes)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: has %lld bytes, data would end at byte %lld",
					file->path, LL(file->nbytes), LL(end));
	}
	return KVT_OK;
}

static int by_begin(const void *a, const void *b)
{
	const struct kvt_placed *p = a, *q = b;

	for (int i = 0; i < KVT_NAXES; i++)
		if (p->box.begin[i] != q->box.begin[i])
			return p->box.begin[i] < q->box.begin[i] ? -1 : 1;
	return 0;
}

enum kvt_status kvt_flat_seal(struct kvt_flat *flat, const struct kvt_files *files,
			      const struct kvt_group *group, struct kvt_error *err)
{
	for (int64_t i = 0; i < flat->nparts; i++) {
		const struct kvt_file_part part = kvt_flat_part(flat, i);
		enum kvt_status status = check_part(&part, files, group, err);

		if (status)
			return status;
		for (int a = 0; a < 2; a++) {
			int64_t n = part.box.end[a] - part.box.begin[a];

			if (n > flat->span[a])
				flat->span[a] = n;
		}
	}
	if (flat->nparts)
		qsort(flat->placed, (size_t)flat->nparts, sizeof(*flat->placed),
		      by_begin);
	return KVT_OK;
}
