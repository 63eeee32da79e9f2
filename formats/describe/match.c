/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match.c - the dimensions of an array against the axes of a layout
 *
 * An array has a dimension for each part of the order, but for what engines leave out or
 * join: layers that are tensors of their own, keys and values in two tensors or side by
 * side in a head, heads of content that has none, tokens that are not yet in blocks, or
 * all that a block has, where its sizes are known.  Where an engine declares a shape and
 * keeps the bytes of a block in an order of its own, the shape it declares counts.
 */
#include "formats/describe/describe.h"

#include <string.h>

/* Layouts that a shape does not show, and the order that engines declare instead. */
static const struct {
	const char *preset, *declared;
} packed[] = {
	{ "rocm-paged", "LKBSHD" }, { "rocm-paged-page", "LKBSHD" },
	{ "aiter-shuffle-kv-first", "LKBSHD" }, { "aiter-shuffle", "LBKSHD" },
	{ "cpu-vec", "LBHSC" }, { "cpu-vec-kv-first", "LKBHSD" },
	{ "cpu-amx", "LBHSC" }, { "cpu-amx-kv-first", "LKBHSD" },
	{ "cpu-neon-bf16", "LBHSC" }, { "cpu-neon-bf16-kv-first", "LKBHSD" },
};
enum { NPACKED = sizeof(packed) / sizeof(packed[0]) };

static bool is_whole(const struct kvt_order *order)
{
	for (int i = 0; i < order->nparts; i++)
		if (order->part[i].kind != KVT_WHOLE)
			return false;
	return true;
}

/* Does each part stand for one axis of an array?  Of two planes, in the same order. */
static bool has_axes(const struct kvt_layout *layout)
{
	const struct kvt_order *order = layout->plane, *other = &layout->plane[1];

	for (int i = 0; i < order->nparts; i++)
		if (order->part[i].kind != KVT_WHOLE ||
		    (layout->nplanes == 2 &&
		     (order->part[i].axis == KVT_AXIS_K || i >= other->nparts ||
		      other->part[i].kind != KVT_WHOLE ||
		      other->part[i].axis != order->part[i].axis)))
			return false;
	return true;
}

bool kvt_layout_declared(struct kvt_layout *out, bool *is_packed,
			 const struct kvt_layout *layout)
{
	*out = *layout;
	*is_packed = layout->nplanes == 2 && !kvt_layout_apart(layout);
	if (layout->nplanes == 1)
		return is_whole(&layout->plane[0]);
	if (kvt_layout_apart(layout))
		return has_axes(layout);
	for (int i = 0; i < NPACKED; i++)
		if (!kvt_layout_parse(out, packed[i].preset, NULL) &&
		    kvt_layout_equal(out, layout))
			return !kvt_layout_parse(out, packed[i].declared, NULL);
	return false;
}

/* What is matched, and what is known of it. */
struct match {
	const struct kvt_array *array;
	const struct kvt_order *order;
	bool latent, planes;
	int64_t slots;			/* of a block; -1: not known */
	int at;				/* dimensions that were taken */
	bool one_head;			/* that of no heads was among them */
};

static bool take(int64_t *n, struct match *m)
{
	if (m->at == m->array->rank)
		return false;
	*n = m->array->shape[m->at++];
	return true;
}

static bool joins_content(const struct match *m, int part)
{
	return m->latent || (part + 1 < m->order->nparts &&
			     m->order->part[part + 1].axis == KVT_AXIS_D);
}

/* All tokens: as many blocks as there are, if it is known what a block is. */
static bool take_tokens(int64_t found[KVT_NAXES], struct kvt_reading *as,
			struct match *m, int64_t blocks)
{
	if (!take(&as->tokens, m))
		return false;
	found[KVT_AXIS_B] = blocks;
	found[KVT_AXIS_S] = m->slots;
	if (m->slots > 0)
		found[KVT_AXIS_B] = as->tokens / m->slots;
	else if (blocks > 0)
		found[KVT_AXIS_S] = as->tokens / blocks;
	else
		return true;
	return found[KVT_AXIS_B] * found[KVT_AXIS_S] == as->tokens;
}

/* An axis of 1 before the slots or after them. */
static void take_head(struct match *m)
{
	if (m->one_head || m->at == m->array->rank || m->array->shape[m->at] != 1)
		return;
	m->one_head = true;
	m->at++;
}

/* The last dimension is all that is left of the order, whose sizes must be known. */
static bool take_rest(int64_t found[KVT_NAXES], int *part, struct match *m,
		      const int64_t known[KVT_NAXES])
{
	int64_t left;

	if (!take(&left, m))
		return false;
	for (; *part < m->order->nparts; ++*part) {
		enum kvt_axis axis = m->order->part[*part].axis;
		int64_t n = axis == KVT_AXIS_K ? 2 - m->latent :
			    axis == KVT_AXIS_S ? m->slots : known[axis];

		if (n < 1 || left % n)
			return false;
		found[axis] = n;
		left /= n;
	}
	return left == 1;
}

/* One part of the order; 'part' moves on over what it takes together with others. */
static bool take_part(int64_t found[KVT_NAXES], int *part, struct kvt_reading *as,
		      struct match *m, const int64_t known[KVT_NAXES])
{
	const struct kvt_order *order = m->order;
	enum kvt_axis axis = order->part[*part].axis;

	if (as->joined && m->at == m->array->rank - 1)
		return take_rest(found, part, m, known);
	if (axis == KVT_AXIS_K && as->fuse)
		return joins_content(m, *part);
	if ((axis == KVT_AXIS_H && as->no_heads) || (axis == KVT_AXIS_L && as->one_layer))
		return true;
	if (axis == KVT_AXIS_B && as->flat) {
		++*part;
		return *part < order->nparts &&
		       order->part[*part].axis == KVT_AXIS_S &&
		       take_tokens(found, as, m, known[KVT_AXIS_B]);
	}
	if (as->one_head && (axis == KVT_AXIS_S || axis == KVT_AXIS_D))
		take_head(m);
	return take(&found[axis], m);
}

/*
 * The extents that an array of this shape has if its axes are those of the order, read
 * that way.  False if the shape does not fit, or not what is known.
 */
static bool match_axes(int64_t n[KVT_NAXES], struct kvt_reading *as, struct match m)
{
	int64_t found[KVT_NAXES];

	for (int a = 0; a < KVT_NAXES; a++)
		found[a] = 1;
	if (m.planes && m.array->apart)
		found[KVT_AXIS_K] = 2;
	else if (m.planes && !take(&found[KVT_AXIS_K], &m))
		return false;
	for (int i = 0; i < m.order->nparts; i++)
		if (!take_part(found, &i, as, &m, n))
			return false;
	if (m.at != m.array->rank)
		return false;
	if (as->fuse && !m.latent) {
		if (found[KVT_AXIS_D] % 2)
			return false;
		found[KVT_AXIS_D] /= 2;
		found[KVT_AXIS_K] = 2;
	}
	if (found[KVT_AXIS_K] != (m.latent ? 1 : 2))
		return false;
	/* planes have K there, and their slots and elements in one axis behind it */
	if (as->declared && as->fuse && found[KVT_AXIS_S] == 2)
		return false;
	for (int a = 0; a < KVT_NAXES; a++)
		if (n[a] >= 0 && found[a] >= 0 && n[a] != found[a])
			return false;
	memcpy(n, found, sizeof(found));
	return true;
}

static bool has_part(const struct kvt_order *order, enum kvt_axis axis)
{
	for (int i = 0; i < order->nparts; i++)
		if (order->part[i].axis == axis)
			return true;
	return false;
}

/* Keys and values side by side in a head. */
static bool has_content(const struct kvt_order *order)
{
	return order->nparts > 1 && order->part[order->nparts - 2].axis == KVT_AXIS_K;
}

/* Ways to read it that make no sense of any layout, or of this one. */
static bool is_idle(const struct kvt_reading *as, const struct match *m)
{
	return (as->no_heads && !m->latent) || (as->one_layer && m->array->of_layers) ||
	       (as->fuse && !has_part(m->order, KVT_AXIS_K)) ||
	       (as->declared && !as->fuse && !as->joined && has_content(m->order)) ||
	       (as->joined && (as->fuse || as->no_heads || as->one_head || as->flat)) ||
	       (as->one_head && (!m->latent || has_part(m->order, KVT_AXIS_H)));
}

bool kvt_match_shape(int64_t n[KVT_NAXES], struct kvt_reading *as,
		     const struct kvt_layout *layout, bool latent, int64_t slots,
		     const struct kvt_array *array)
{
	struct kvt_layout declared;
	struct match m = { array, &declared.plane[0], latent, false, slots, 0, false };
	bool is_packed;
	int one;

	if (!kvt_layout_declared(&declared, &is_packed, layout) ||
	    (array->apart && !kvt_layout_apart(&declared)))
		return false;
	if (array->of_layers && m.order->part[0].axis != KVT_AXIS_L)
		return false;
	m.planes = declared.nplanes == 2;
	/* whoever has layers within keys and values has all of them in one tensor */
	one = m.order->part[0].axis == KVT_AXIS_L || m.planes ? 4 : 16;
	/* all axes before those of one layer, blocks before tokens that are in none */
	for (int i = 0; i < 64; i++) {
		*as = (struct kvt_reading){ .fuse = i & 1, .no_heads = i & 2,
					    .one_layer = i & one, .one_head = i & 8,
					    .flat = i & (20 - one), .joined = i & 32,
					    .declared = is_packed };
		if (!is_idle(as, &m) && match_axes(n, as, m))
			return true;
	}
	return false;
}

int64_t kvt_group_slots(const struct kvt_group *group)
{
	int64_t each = group->tokens_per_slot;

	if (group->shape.n[KVT_AXIS_S] >= 0)
		return group->shape.n[KVT_AXIS_S];
	if (!each && !kvt_is_recurrent(group->kind))
		each = kvt_content_ratio(group);
	return each == 1 && group->block_size > 0 ? group->block_size : -1;
}
