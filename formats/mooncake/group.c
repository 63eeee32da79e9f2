/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - a group from the header of a tensor object
 *
 * In: a tensor's extents, local and whole, and how it was sharded (tensor.c); a layout
 * from the user, in which S counts tokens.  Out: shape, layout and rank of the group.
 *
 * Axes follow the layout from the slowest on, without B.  A tensor may have one less:
 * then the last extent is heads and elements, or keys, values and elements, in one.
 *
 * A shard of TP that divides no dimension is a replica: each rank has all heads.  One
 * that divides must divide the axis of heads, evenly, and one of PP that of layers,
 * which are then numbered from there on; anything else is refused, as nothing says where
 * it belongs.
 */
#include <stdlib.h>

#include "formats/describe/describe.h"
#include "formats/mooncake/mooncake.h"
#include "lib/base/print.h"

/* The axes of an array of the layout, T for B S. */
struct axes {
	int count;
	enum kvt_axis axis[KVT_MAX_PARTS];
};

static struct axes axes_of(const struct kvt_layout *layout)
{
	const struct kvt_order *order = &layout->plane[0];
	struct axes out = { 0 };

	for (int i = 0; i < order->nparts; i++)
		if (order->part[i].axis != KVT_AXIS_B)
			out.axis[out.count++] = order->part[i].axis;
	return out;
}

const struct kvt_mooncake_axis *kvt_mooncake_axis(const struct kvt_mooncake_tensor *t,
						  int kind)
{
	for (int i = 0; i < t->naxes; i++)
		if ((int)t->axis[i].kind == kind)
			return &t->axis[i];
	return NULL;
}

int64_t kvt_mooncake_tokens(const struct kvt_mooncake_tensor *t,
			    const struct kvt_group *group)
{
	struct axes axes = axes_of(&group->layout);

	for (int i = 0; i < t->rank && i < axes.count; i++)
		if (axes.axis[i] == KVT_AXIS_S)
			return t->local[i];
	return 0;
}

/* ---- extents ------------------------------------------------------------- */

/* The last extent is heads of elements, or keys and values of them. */
static enum kvt_status split_last(struct kvt_mooncake *o, struct kvt_group *group,
				  enum kvt_axis before, int64_t width, const char *name)
{
	int64_t *n = group->shape.n;

	if (before == KVT_AXIS_H)
		return kvt_chunks_heads(group, width, o->hints, name, o->err);
	if (kvt_layout_latent(&group->layout) || o->hints->content) {
		n[KVT_AXIS_K] = n[KVT_AXIS_H] = 1;
		n[KVT_AXIS_D] = width;
		return KVT_OK;
	}
	if (width % 2)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: content of %lld elements is not a key and a value", name,
				LL(width));
	n[KVT_AXIS_K] = 2;
	n[KVT_AXIS_D] = width / 2;
	return KVT_OK;
}

static enum kvt_status take_extents(struct kvt_mooncake *o, struct kvt_group *group,
				    const char *name)
{
	const struct kvt_mooncake_tensor *t = &o->tensor;
	struct axes axes = axes_of(&group->layout);
	int last = axes.count - 1;
	bool joined = t->rank == last && last > 0 && axes.axis[last] == KVT_AXIS_D &&
		      (axes.axis[last - 1] == KVT_AXIS_H ||
		       axes.axis[last - 1] == KVT_AXIS_K);

	if (t->rank != axes.count && !joined)
		return kvt_fail(
			o->err, KVT_BAD_INPUT,
			"%s: tensors have %d axes, layout %s has %d",
			name, t->rank, kvt_layout_string(&group->layout).s, axes.count);
	for (int i = 0; i < KVT_NAXES; i++)
		group->shape.n[i] = 1;
	for (int i = 0; i < t->rank; i++)
		group->shape.n[axes.axis[i]] = t->local[i];
	if (joined)
		return split_last(o, group, axes.axis[last - 1], t->local[last - 1],
				  name);
	if (group->shape.n[KVT_AXIS_K] != 2 && group->shape.n[KVT_AXIS_K] != 1)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: layout %s makes %lld of keys and values, expected 2", name,
				kvt_layout_string(&group->layout).s,
				LL(group->shape.n[KVT_AXIS_K]));
	return KVT_OK;
}

/* ---- shards -------------------------------------------------------------- */

static enum kvt_status odd_shard(struct kvt_mooncake *o, const char *what, int dim,
				 const char *name)
{
	return kvt_fail(o->err, KVT_UNSUPPORTED,
			"%s: a %s shard that divides dimension %d, which is not the axis of %s on all ranks",
			name, what, dim, *what == 'T' ? "heads" : "layers");
}

/* Which part of the axis a shard is; whole: how long that is in the model. */
static bool even_share(int64_t *whole, const struct kvt_mooncake *o,
		       const struct kvt_mooncake_axis *axis, enum kvt_axis kind,
		       const struct kvt_group *group)
{
	const struct kvt_mooncake_tensor *t = &o->tensor;
	struct axes axes = axes_of(&group->layout);

	if (axis->dim < 0 || axes.axis[axis->dim] != kind || t->local[axis->dim] < 1 ||
	    t->whole[axis->dim] / axis->count != t->local[axis->dim] ||
	    t->whole[axis->dim] % axis->count)
		return false;
	*whole = group->shape.n[kind] * axis->count;
	return true;
}

static enum kvt_status share_heads(struct kvt_mooncake *o, struct kvt_group *group,
				   const struct kvt_mooncake_axis *axis, const char *name)
{
	struct kvt_parallel *p = &o->reader->leaf.snapshot.parallel;

	p->tp_size = axis->count;
	p->tp_rank = axis->rank;
	o->reader->leaf.snapshot.has_parallel = true;
	if (axis->dim < 0) {		/* every rank has all of it */
		group->total_heads = group->shape.n[KVT_AXIS_H];
		group->head_start = 0;
		group->replication = axis->count;
		return KVT_OK;
	}
	if (!even_share(&group->total_heads, o, axis, KVT_AXIS_H, group))
		return odd_shard(o, "TP", axis->dim, name);
	return KVT_OK;
}

static enum kvt_status share_layers(struct kvt_mooncake *o, struct kvt_group *group,
				    const struct kvt_mooncake_axis *axis,
				    const char *name)
{
	struct kvt_parallel *p = &o->reader->leaf.snapshot.parallel;
	int64_t whole, n = group->shape.n[KVT_AXIS_L];

	if (!even_share(&whole, o, axis, KVT_AXIS_L, group) || whole > UINT32_MAX)
		return odd_shard(o, "PP", axis->dim, name);
	p->pp_size = axis->count;
	p->pp_rank = axis->rank;
	o->reader->leaf.snapshot.has_parallel = true;
	group->layer_ids = calloc((size_t)n + 1, sizeof(*group->layer_ids));
	if (!group->layer_ids)
		return kvt_no_memory(o->err, o->path);
	for (int64_t l = 0; l < n; l++)
		group->layer_ids[l] = (uint32_t)(axis->rank * n + l);
	return KVT_OK;
}

static enum kvt_status take_shards(struct kvt_mooncake *o, struct kvt_group *group,
				   const char *name)
{
	bool seen[KVT_MOONCAKE_OTHER + 1] = { false };
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < o->tensor.naxes; i++) {
		const struct kvt_mooncake_axis *axis = &o->tensor.axis[i];

		if (seen[axis->kind])
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: is listed as the same kind of shard twice", name);
		seen[axis->kind] = true;
		if (axis->count == 1)
			continue;
		if (axis->kind == KVT_MOONCAKE_TP)
			status = share_heads(o, group, axis, name);
		else if (axis->kind == KVT_MOONCAKE_PP)
			status = share_layers(o, group, axis, name);
		else
			status = kvt_fail(o->err, KVT_UNSUPPORTED,
					  "%s: is a shard of kind %d; only TP and PP are known",
					  name, (int)axis->kind);
	}
	return status;
}

enum kvt_status kvt_mooncake_group(struct kvt_mooncake *o, struct kvt_group *group,
				   const char *name)
{
	const struct kvt_mooncake_tensor *t = &o->tensor;
	enum kvt_status status;

	if (!o->hints->layout)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: a tensor of %s does not record which axis is which; give --layout, such as KLSHD",
				name, kvt_extents_text(t->rank, t->local).s);
	group->dtype = kvt_hint_dtype(t->dtype, o->hints, group->id);
	if ((status = kvt_chunks_layout(&group->layout, o->hints->layout, false,
					o->err)) ||
	    (status = take_extents(o, group, name)))
		return status;
	if (kvt_layout_latent(&group->layout))
		group->kind = KVT_MLA;
	return take_shards(o, group, name);
}
