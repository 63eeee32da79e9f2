/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_tensors.c - a leaf over tensors of any strides, of the host or of a device
 *
 * What is in the host's memory is copied from where it is.  What is on a device is
 * permuted there into the order in which the group is read, in boxes that a staging
 * buffer holds, and comes over as one run a box: elements that lie apart would cross
 * the host's link one by one.
 */
#include "lib/dump/map.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"
#include "lib/kvt/device.h"

/* ---- on a device ----------------------------------------------------------------- */

enum { STAGE_BYTES = 16 << 20 };	/* more only where one block has more */

/* A buffer on a device and one of the host that it reaches, of one leaf. */
struct stage {
	struct kvt_device *device;	/* borrowed */
	void *there, *here;
	int64_t room;
};

struct tensors_leaf {
	struct kvt_leaf leaf;
	pthread_mutex_t lock;		/* of the stages */
	int64_t nstages;
	struct stage *stage;		/* one for each device */
	int64_t nparts;
	struct kvt_tensor_part part[];
};

static void stage_free(struct stage *s)
{
	kvt_device_free(s->device, s->there);
	kvt_device_pinned_free(s->device, s->here);
	s->there = s->here = NULL;
	s->room = 0;
}

static enum kvt_status stage_reserve(struct stage *s, int64_t nbytes,
				     struct kvt_error *err)
{
	const int64_t room = nbytes > STAGE_BYTES ? nbytes : STAGE_BYTES;
	enum kvt_status status;

	if (nbytes <= s->room)
		return KVT_OK;
	stage_free(s);
	if ((status = kvt_device_alloc(&s->there, s->device, room, err)) ||
	    (status = kvt_device_pinned_alloc(&s->here, s->device, room, err))) {
		stage_free(s);
		return status;
	}
	s->room = room;
	return KVT_OK;
}

/* The group's own order, unless it cuts an axis in two: then elements as they are
   numbered, for a box need not begin where a cut does. */
static const struct kvt_layout *stage_layout(const struct kvt_layout *layout)
{
	for (int p = 0; p < layout->nplanes; p++)
		for (int i = 0; i < layout->plane[p].nparts; i++)
			if (layout->plane[p].part[i].kind != KVT_WHOLE)
				return &kvt_layout_slots;
	return layout;
}

/* A box: permuted on the device, brought over, put where it belongs. */
static enum kvt_status read_staged(struct stage *s, const struct kvt_tensor_part *part,
				   const struct kvt_box *box, const struct placed *dst,
				   int64_t elem, struct kvt_error *err)
{
	const struct kvt_box in_part = box_inside(box, &part->box);
	struct placed src = { stage_layout(dst->layout), *box, NULL };
	struct kvt_views to, from = {
		.count = 1, .first_k = (int)part->box.begin[KVT_AXIS_K],
		.view = { part->view },
	};
	struct kvt_plans plans;
	enum kvt_status status;

	if ((status = kvt_layout_views(&to, src.layout, box, elem, err)) ||
	    (status = kvt_views_narrow(&from, &from, &in_part, err)) ||
	    (status = kvt_plans_init(&plans, &to, &from, err)) ||
	    (status = stage_reserve(s, to.nbytes, err)))
		return status;
	for (int i = 0; !status && i < plans.count; i++)
		status = kvt_device_copy(s->device, s->there, part->data, &plans.plan[i],
					 NULL, err);
	if (status || (status = kvt_device_copy_out(s->device, s->here, s->there,
						    to.nbytes, NULL, err)) ||
	    (status = kvt_device_wait(s->device, NULL, err)))
		return status;
	src.bytes = s->here;
	return copy_box(NULL, dst, &src, box, elem, err);
}

/* The longest run of layers, then of blocks, whose elements a stage holds. */
static struct kvt_box next_box(const struct kvt_box *both, const int64_t at[2],
			       int64_t block_bytes)
{
	const int64_t blocks = both->end[KVT_AXIS_B] - both->begin[KVT_AXIS_B];
	const int64_t fit = block_bytes < STAGE_BYTES ? STAGE_BYTES / block_bytes : 1;
	struct kvt_box box = *both;

	box.begin[KVT_AXIS_L] = at[0];
	box.begin[KVT_AXIS_B] = at[1];
	if (at[1] != both->begin[KVT_AXIS_B] || fit < blocks) {
		box.end[KVT_AXIS_L] = at[0] + 1;
		if (fit < box.end[KVT_AXIS_B] - at[1])
			box.end[KVT_AXIS_B] = at[1] + fit;
	} else if (fit / blocks < box.end[KVT_AXIS_L] - at[0]) {
		box.end[KVT_AXIS_L] = at[0] + fit / blocks;
	}
	return box;
}

static enum kvt_status read_boxes(struct stage *s, const struct kvt_tensor_part *part,
				  const struct kvt_box *both, const struct placed *dst,
				  int64_t elem, struct kvt_error *err)
{
	int64_t at[2] = { both->begin[KVT_AXIS_L], both->begin[KVT_AXIS_B] };
	int64_t block_bytes = elem;
	enum kvt_status status = KVT_OK;

	for (int a = 0; a < KVT_NAXES; a++)
		if (a != KVT_AXIS_L && a != KVT_AXIS_B)
			block_bytes *= both->end[a] - both->begin[a];
	while (!status && at[0] < both->end[KVT_AXIS_L]) {
		const struct kvt_box box = next_box(both, at, block_bytes);

		status = read_staged(s, part, &box, dst, elem, err);
		at[1] = box.end[KVT_AXIS_B];
		if (at[1] == both->end[KVT_AXIS_B]) {
			at[0] = box.end[KVT_AXIS_L];
			at[1] = both->begin[KVT_AXIS_B];
		}
	}
	return status;
}

static enum kvt_status read_from_device(struct tensors_leaf *t,
					const struct kvt_tensor_part *part,
					const struct kvt_box *both,
					const struct placed *dst, int64_t elem,
					struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	pthread_mutex_lock(&t->lock);
	for (int64_t i = 0; i < t->nstages; i++)
		if (t->stage[i].device == part->device) {
			status = read_boxes(&t->stage[i], part, both, dst, elem, err);
			break;
		}
	pthread_mutex_unlock(&t->lock);
	return status;
}

/* A stage for each device that parts name, without memory as yet. */
static enum kvt_status add_stages(struct tensors_leaf *t, struct kvt_error *err)
{
	for (int64_t i = 0; i < t->nparts; i++) {
		struct kvt_device *device = t->part[i].device;
		int64_t k = 0;

		while (k < t->nstages && t->stage[k].device != device)
			k++;
		if (!device || k < t->nstages)
			continue;
		if (!KVT_GROW(&t->stage, t->nstages))
			return kvt_no_memory(err, NULL);
		t->stage[t->nstages++] = (struct stage){ .device = device };
	}
	return KVT_OK;
}

static void tensors_free(struct tensors_leaf *t)
{
	for (int64_t i = 0; i < t->nstages; i++)
		stage_free(&t->stage[i]);
	free(t->stage);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static void tensors_close(struct kvt_leaf *leaf)
{
	tensors_free((struct tensors_leaf *)leaf);
}

/* ---- of either ------------------------------------------------------------------- */

static enum kvt_status read_part(struct tensors_leaf *t,
				 const struct kvt_tensor_part *part,
				 const struct kvt_box *both, const struct placed *dst,
				 int64_t elem, struct kvt_error *err)
{
	const struct kvt_box in_part = box_inside(both, &part->box);
	const struct kvt_views views = {
		.count = 1, .first_k = (int)part->box.begin[KVT_AXIS_K],
		.view = { part->view },
	};

	if (part->device)
		return read_from_device(t, part, both, dst, elem, err);
	return copy_views(NULL, dst, both, &views, &in_part, part->data, elem, err);
}

static enum kvt_status tensors_read(const struct kvt_leaf *leaf, int group,
				    const struct kvt_box *box, void *buf,
				    struct kvt_error *err)
{
	struct tensors_leaf *t = (struct tensors_leaf *)(uintptr_t)leaf;
	const struct kvt_group *g = &leaf->snapshot.group[group];
	struct placed dst = { &g->layout, *box, buf };
	enum kvt_status status = KVT_OK;
	struct kvt_box both;

	for (int64_t i = 0; !status && i < t->nparts; i++)
		if (t->part[i].group == group && box_common(&both, box, &t->part[i].box))
			status = read_part(t, &t->part[i], &both, &dst, g->shape.elem,
					   err);
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
	if (!only || only->device ||
	    kvt_layout_views(&views, &g->layout, &whole, g->shape.elem, NULL) ||
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
	.read_box = tensors_read, .bytes = tensors_bytes, .close = tensors_close,
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
				LL(i), part->group);
	whole = kvt_box_whole(&info->group[part->group].shape);
	for (int a = 0; a < KVT_NAXES; a++)
		if (part->view.shape.n[a] != part->box.end[a] - part->box.begin[a])
			return kvt_fail(err, KVT_BAD_INPUT,
					"tensor %lld: has %lld %ss, expected %lld", LL(i),
					LL(part->view.shape.n[a]), kvt_axis_name(a),
					LL(part->box.end[a] - part->box.begin[a]));
	if (!box_common(&both, &whole, &part->box) ||
	    memcmp(&both, &part->box, sizeof(both)) || !part->data ||
	    part->view.shape.elem != info->group[part->group].shape.elem ||
	    !factors_fit(&part->view))
		return kvt_fail(err, KVT_BAD_INPUT,
				"tensor %lld: is not a part of its group", LL(i));
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
						LL(j), LL(i), info->group[p->group].id);
		has[p->group] += nbytes;	/* apart, so no more than the group */
	}
	for (int g = 0; g < info->ngroups; g++) {
		if ((status = kvt_shape_nbytes(&nbytes, &info->group[g].shape, err)))
			return status;
		if (has[g] != nbytes)
			return kvt_fail(err, KVT_BAD_INPUT,
					"tensors have %lld of the %lld bytes of %s",
					LL(has[g]), LL(nbytes), info->group[g].id);
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
				LL(nparts), MOST);
	if ((status = kvt_snapshot_check(info, err)) ||
	    (status = check_parts(parts, nparts, info, err)))
		return status;
	t = calloc(1, sizeof(*t) + (size_t)nparts * sizeof(*parts));
	if (!t)
		return kvt_no_memory(err, NULL);
	t->nparts = nparts;
	if (nparts)
		memcpy(t->part, parts, (size_t)nparts * sizeof(*parts));
	pthread_mutex_init(&t->lock, NULL);
	if ((status = add_stages(t, err)) ||
	    (status = leaf_init(&t->leaf, &tensors_ops, "memory", info, err))) {
		tensors_free(t);
		return status;
	}
	return kvt_dump_of_leaf(out, &t->leaf, err);
}
