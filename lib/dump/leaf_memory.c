/* SPDX-License-Identifier: Apache-2.0 */
/* leaf_memory.c - leaves over buffers of the caller, and over a constant */
#include "lib/dump/map.h"

#include <stdlib.h>
#include <string.h>

struct memory_leaf {
	struct kvt_leaf leaf;
	const void *bytes[KVT_MAX_GROUPS];	/* borrowed */
	uint8_t fill;
};

static const void *memory_bytes(const struct kvt_leaf *leaf, int group)
{
	return ((const struct memory_leaf *)leaf)->bytes[group];
}

static enum kvt_status memory_read(const struct kvt_leaf *leaf, int group,
				   const struct kvt_box *box, void *buf,
				   struct kvt_error *err)
{
	const struct kvt_group *g = &leaf->snapshot.group[group];
	struct placed src = { &g->layout, kvt_box_whole(&g->shape),
			      (uint8_t *)(uintptr_t)memory_bytes(leaf, group) };
	struct placed dst = { &g->layout, *box, buf };

	return copy_box(NULL, &dst, &src, box, g->shape.elem, err);
}

static enum kvt_status constant_read(const struct kvt_leaf *leaf, int group,
				     const struct kvt_box *box, void *buf,
				     struct kvt_error *err)
{
	struct kvt_shape shape = kvt_box_shape(box,
					       leaf->snapshot.group[group].shape.elem);
	int64_t nbytes;
	enum kvt_status status = kvt_shape_nbytes(&nbytes, &shape, err);

	if (!status)
		memset(buf, ((const struct memory_leaf *)leaf)->fill, (size_t)nbytes);
	return status;
}

static void memory_close(struct kvt_leaf *leaf)
{
	free(leaf);
}

static const struct kvt_leaf_ops memory_ops = {
	.read_box = memory_read, .bytes = memory_bytes, .close = memory_close,
};
static const struct kvt_leaf_ops constant_ops = {
	.read_box = constant_read, .close = memory_close,
};

/* What all leaves here begin with; on failure 'leaf' needs no more than free(). */
static enum kvt_status leaf_init(struct kvt_leaf *leaf, const struct kvt_leaf_ops *ops,
				 const char *format, const struct kvt_snapshot *info,
				 struct kvt_error *err)
{
	enum kvt_status status;

	leaf->ops = ops;
	leaf->format = format;
	if ((status = kvt_snapshot_copy(&leaf->snapshot, info, err)) ||
	    (status = kvt_snapshot_check(&leaf->snapshot, err)) ||
	    (status = kvt_snapshot_complete(&leaf->snapshot, err)))
		kvt_snapshot_free(&leaf->snapshot);
	return status;
}

static enum kvt_status make(struct kvt_dump **out, const struct kvt_leaf_ops *ops,
			    const char *format, const struct kvt_snapshot *info,
			    const void *const bytes[], uint8_t fill,
			    struct kvt_error *err)
{
	struct memory_leaf *m = calloc(1, sizeof(*m));
	enum kvt_status status;

	if (!m)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	m->fill = fill;
	for (int g = 0; bytes && g < info->ngroups; g++)
		m->bytes[g] = bytes[g];
	if ((status = leaf_init(&m->leaf, ops, format, info, err))) {
		free(m);
		return status;
	}
	return kvt_dump_of_leaf(out, &m->leaf, err);
}

enum kvt_status kvt_dump_of_memory(struct kvt_dump **out, const struct kvt_snapshot *info,
				   const void *const bytes[], struct kvt_error *err)
{
	return make(out, &memory_ops, "memory", info, bytes, 0, err);
}

enum kvt_status kvt_dump_of_constant(struct kvt_dump **out,
				     const struct kvt_snapshot *info, uint8_t fill,
				     struct kvt_error *err)
{
	return make(out, &constant_ops, "constant", info, NULL, fill, err);
}

/* ---- tensors --------------------------------------------------------------------- */

struct tensors_leaf {
	struct kvt_leaf leaf;
	int64_t nparts;
	struct kvt_tensor_part part[];
};

static enum kvt_status read_part(const struct kvt_tensor_part *part,
				 const struct kvt_box *both, const struct placed *dst,
				 int64_t elem, struct kvt_error *err)
{
	const struct kvt_box in_part = box_inside(both, &part->box);
	const struct kvt_views views = {
		.count = 1, .first_k = (int)part->box.begin[KVT_AXIS_K],
		.view = { part->view },
	};

	return copy_views(NULL, dst, both, &views, &in_part, part->data, elem, err);
}

static enum kvt_status tensors_read(const struct kvt_leaf *leaf, int group,
				    const struct kvt_box *box, void *buf,
				    struct kvt_error *err)
{
	const struct tensors_leaf *t = (const struct tensors_leaf *)leaf;
	const struct kvt_group *g = &leaf->snapshot.group[group];
	struct placed dst = { &g->layout, *box, buf };
	enum kvt_status status = KVT_OK;
	struct kvt_box both;

	for (int64_t i = 0; !status && i < t->nparts; i++)
		if (t->part[i].group == group && box_common(&both, box, &t->part[i].box))
			status = read_part(&t->part[i], &both, &dst, g->shape.elem, err);
	return status;
}

/* The array itself, where one tensor is all of the group as its layout has it. */
static const void *tensors_bytes(const struct kvt_leaf *leaf, int group)
{
	const struct tensors_leaf *t = (const struct tensors_leaf *)leaf;
	const struct kvt_group *g = &leaf->snapshot.group[group];
	struct kvt_box whole = kvt_box_whole(&g->shape);
	const struct kvt_tensor_part *only = NULL;
	struct kvt_views views;

	for (int64_t i = 0; i < t->nparts; i++)
		if (t->part[i].group == group) {
			if (only)
				return NULL;
			only = &t->part[i];
		}
	if (!only || kvt_layout_views(&views, &g->layout, &whole, g->shape.elem, NULL) ||
	    views.count != 1 || only->view.offset ||
	    views.view[0].nfactors != only->view.nfactors)
		return NULL;
	for (int i = 0; i < only->view.nfactors; i++) {
		const struct kvt_factor *a = &views.view[0].factor[i];
		const struct kvt_factor *b = &only->view.factor[i];

		if (a->axis != b->axis || a->div != b->div || a->n != b->n ||
		    a->stride != b->stride)
			return NULL;
	}
	return only->data;
}

static const struct kvt_leaf_ops tensors_ops = {
	.read_box = tensors_read, .bytes = tensors_bytes, .close = memory_close,
};

/* Do the factors of each axis make up its extent? */
static bool factors_fit(const struct kvt_view *view)
{
	int64_t n[KVT_NAXES] = { 1, 1, 1, 1, 1, 1 };

	if (view->nfactors < 0 || view->nfactors > KVT_MAX_FACTORS)
		return false;
	for (int i = 0; i < view->nfactors; i++) {
		const struct kvt_factor *f = &view->factor[i];

		if ((int)f->axis < 0 || f->axis >= KVT_NAXES || f->div < 1 || f->n < 1 ||
		    __builtin_mul_overflow(n[f->axis], f->n, &n[f->axis]))
			return false;
	}
	return !memcmp(n, view->shape.n, sizeof(n));
}

/* Is the part in its group, and does the view have it? */
static enum kvt_status check_part(const struct kvt_tensor_part *part,
				  const struct kvt_snapshot *info, int64_t i,
				  struct kvt_error *err)
{
	struct kvt_box whole, both;
	int64_t end;

	if (part->group < 0 || part->group >= info->ngroups)
		return kvt_fail(err, KVT_BAD_INPUT, "tensor %lld: there is no group %d",
				(long long)i, part->group);
	whole = kvt_box_whole(&info->group[part->group].shape);
	for (int a = 0; a < KVT_NAXES; a++)
		if (part->view.shape.n[a] != part->box.end[a] - part->box.begin[a])
			return kvt_fail(err, KVT_BAD_INPUT,
					"tensor %lld: has %lld %ss, expected %lld",
					(long long)i, (long long)part->view.shape.n[a],
					kvt_axis_name(a),
					(long long)(part->box.end[a] -
						    part->box.begin[a]));
	if (!box_common(&both, &whole, &part->box) ||
	    memcmp(&both, &part->box, sizeof(both)) || !part->data ||
	    part->view.shape.elem != info->group[part->group].shape.elem ||
	    !factors_fit(&part->view))
		return kvt_fail(err, KVT_BAD_INPUT,
				"tensor %lld: is not a part of its group", (long long)i);
	return kvt_view_end(&end, &part->view, err);
}

/* Each element of a group in one part: none twice, and all of them. */
static enum kvt_status check_parts(const struct kvt_tensor_part *parts, int64_t n,
				   const struct kvt_snapshot *info, struct kvt_error *err)
{
	int64_t has[KVT_MAX_GROUPS] = { 0 }, nbytes;
	struct kvt_box both;
	enum kvt_status status;

	for (int64_t i = 0; i < n; i++) {
		const struct kvt_tensor_part *p = &parts[i];

		if ((status = check_part(p, info, i, err)) ||
		    (status = kvt_shape_nbytes(&nbytes, &p->view.shape, err)))
			return status;
		for (int64_t j = 0; j < i; j++)
			if (parts[j].group == p->group &&
			    box_common(&both, &parts[j].box, &p->box))
				return kvt_fail(err, KVT_BAD_INPUT,
						"tensors %lld and %lld have the same elements of %s",
						(long long)j, (long long)i,
						info->group[p->group].id);
		has[p->group] += nbytes;	/* apart, so no more than the group */
	}
	for (int g = 0; g < info->ngroups; g++) {
		if ((status = kvt_shape_nbytes(&nbytes, &info->group[g].shape, err)))
			return status;
		if (has[g] != nbytes)
			return kvt_fail(err, KVT_BAD_INPUT,
					"tensors have %lld of the %lld bytes of %s",
					(long long)has[g], (long long)nbytes,
					info->group[g].id);
	}
	return KVT_OK;
}

enum kvt_status kvt_dump_of_tensors(struct kvt_dump **out,
				    const struct kvt_snapshot *info,
				    const struct kvt_tensor_part *parts, int64_t nparts,
				    struct kvt_error *err)
{
	enum { MOST = 1 << 14 };	/* each is held against each */
	struct tensors_leaf *t;
	enum kvt_status status;

	if (nparts < 0 || nparts > MOST)
		return kvt_fail(err, KVT_UNSUPPORTED, "%lld tensors, expected at most %d",
				(long long)nparts, MOST);
	if ((status = kvt_snapshot_check(info, err)) ||
	    (status = check_parts(parts, nparts, info, err)))
		return status;
	t = calloc(1, sizeof(*t) + (size_t)nparts * sizeof(*parts));
	if (!t)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	t->nparts = nparts;
	if (nparts)
		memcpy(t->part, parts, (size_t)nparts * sizeof(*parts));
	if ((status = leaf_init(&t->leaf, &tensors_ops, "memory", info, err))) {
		free(t);
		return status;
	}
	return kvt_dump_of_leaf(out, &t->leaf, err);
}

/* ---- replace ------------------------------------------------------------------- */

/* A snapshot of one group without tables or requests. */
static enum kvt_status make_group(struct kvt_dump **out, const struct kvt_snapshot *from,
				  const struct kvt_group *group,
				  const struct kvt_layout *layout, const void *bytes,
				  struct kvt_error *err)
{
	struct kvt_snapshot info;

	kvt_snapshot_init(&info);
	info.ngroups = 1;
	info.parallel = from->parallel;
	info.has_parallel = from->has_parallel;
	info.group[0] = *group;
	info.group[0].layout = *layout;
	info.group[0].page_bytes = info.group[0].page_offset = 0;
	info.group[0].layer_names = NULL;
	info.group[0].layer_ids = NULL;
	info.group[0].block_ids = NULL;
	info.group[0].block_valid = NULL;
	info.group[0].block_names = NULL;
	return kvt_dump_of_memory(out, &info, &bytes, err);
}

enum kvt_status kvt_dump_replace(struct kvt_dump **out, const struct kvt_dump *dump,
				 int group, const struct kvt_layout *layout,
				 const void *bytes, struct kvt_error *err)
{
	const struct kvt_snapshot *from = kvt_dump_snapshot(dump);
	const struct kvt_dump *source[] = { dump, NULL };
	struct derivation d = { .nsources = 2, .source = source };
	struct kvt_dump *made = NULL;
	enum kvt_status status;

	if (group < 0 || group >= from->ngroups)
		return kvt_fail(err, KVT_USAGE, "there is no group %d", group);
	if ((status = make_group(&made, from, &from->group[group], layout, bytes, err)))
		return status;
	source[1] = made;
	kvt_snapshot_init(&d.snapshot);
	status = kvt_snapshot_copy(&d.snapshot, from, err);
	for (int g = 0; !status && g < from->ngroups; g++) {
		status = step_whole(&d.group[g], &from->group[g], g == group ? 0 : g,
				    err);
		if (!status)
			d.group[g].part->source = g == group;
	}
	if (status)
		derivation_free(&d);
	else
		status = derive(out, &d, err);
	kvt_dump_close(made);
	return status;
}
