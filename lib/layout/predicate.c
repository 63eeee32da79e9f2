/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predicate.c - what a layout promises about runs of bytes
 *
 * In: an order and a shape.  Out: whether a block, a head of it, or a layer is one run,
 * and how kernel blocks lie.  Parts of extent 1 are nowhere in memory and are left out
 * first; then each question is whether some axes are the tail of what is left.
 */
#include "lib/layout/words.h"

/* The parts of an order that are anywhere in memory: their extent is not 1. */
struct present {
	int count;
	const struct kvt_part *part[KVT_MAX_PARTS + 1];
};

/* What separate buffers amount to: K before everything. */
static const struct kvt_part apart = { KVT_AXIS_K, KVT_WHOLE, 0 };

static int64_t part_extent(const struct kvt_part *part, const struct kvt_shape *shape)
{
	int64_t n = shape->n[part->axis], split = part->split;

	if (part->kind == KVT_WHOLE)
		return n;
	if (!split)
		split = shape->elem < 16 ? 16 / shape->elem : 1;
	return part->kind == KVT_OUTER ? n / split : split;
}

/* 'keep' counts whatever its extent is; KVT_NAXES for none. */
static struct present present_parts(const struct kvt_order *order,
				    const struct kvt_shape *shape, int keep)
{
	struct present out = { .count = 0 };

	if (kvt_order_find(order, KVT_AXIS_K) < 0 && shape->n[KVT_AXIS_K] != 1)
		out.part[out.count++] = &apart;
	for (int i = 0; i < order->nparts; i++) {
		const struct kvt_part *part = &order->part[i];

		if ((int)part->axis == keep || part_extent(part, shape) != 1)
			out.part[out.count++] = part;
	}
	return out;
}

static int find(const struct present *p, enum kvt_axis axis)
{
	for (int i = 0; i < p->count; i++)
		if (p->part[i]->axis == axis)
			return i;
	return -1;
}

/* Where the tail of parts of 'axes' begins; -1 if some stand before it. */
static int tail_of(const struct present *p, unsigned axes)
{
	int i = p->count;

	while (i > 0 && axes & 1u << p->part[i - 1]->axis)
		i--;
	for (int j = 0; j < i; j++)
		if (axes & 1u << p->part[j]->axis)
			return -1;
	return i;
}

/*
 * A kernel block is a range of slots that becomes a block of its own, so B
 * counts even where there is only one; with one slot there is nothing to cut.
 */
static bool splits_neutrally(const struct kvt_order *order, const struct kvt_shape *shape)
{
	struct present p = present_parts(order, shape, KVT_AXIS_B);
	int b = find(&p, KVT_AXIS_B), s = find(&p, KVT_AXIS_S);

	return s < 0 || (b >= 0 && s == b + 1 &&
			 part_extent(p.part[s], shape) == shape->n[KVT_AXIS_S]);
}

/* Layers may stand between: then the blocks of a kernel are inside a page. */
static int64_t kernel_slots(const struct kvt_order *order, const struct kvt_shape *shape)
{
	int s = kvt_order_find(order, KVT_AXIS_B) + 1;

	while (s && s < order->nparts && order->part[s].axis == KVT_AXIS_L)
		s++;
	if (!s || s == order->nparts || order->part[s].axis != KVT_AXIS_S ||
	    order->part[s].kind != KVT_OUTER || part_extent(&order->part[s], shape) < 2)
		return 0;
	return shape->n[KVT_AXIS_S] / part_extent(&order->part[s], shape);
}

static struct kvt_predicates predicates_of(const struct kvt_order *order,
					   const struct kvt_shape *shape)
{
	const unsigned head = 1u << KVT_AXIS_S | 1u << KVT_AXIS_K | 1u << KVT_AXIS_D;
	struct present p = present_parts(order, shape, KVT_NAXES);
	int heads = find(&p, KVT_AXIS_H), slots = tail_of(&p, head);

	return (struct kvt_predicates){
		.layer_compact = find(&p, KVT_AXIS_L) <= 0,
		.block_compact = tail_of(&p, head | 1u << KVT_AXIS_H) >= 0,
		.block_contiguous = slots >= 0 &&
				    (heads < 0 || heads == slots - 1),
		.block_outermost = find(&p, KVT_AXIS_B) <= 0,
		.head_run = slots >= 0,
		.kernel_split_neutral = splits_neutrally(order, shape),
		.kv_position = find(&p, KVT_AXIS_K),
		.kernel_slots = kernel_slots(order, shape),
	};
}

enum kvt_axis kvt_layout_outermost(const struct kvt_layout *layout)
{
	enum kvt_axis first = layout->plane[0].part[0].axis;

	for (int i = 0; i < layout->nplanes; i++) {
		const struct kvt_order *order = &layout->plane[i];

		/* planes without K are buffers of their own */
		if (order->part[0].axis != first || order->nparts < 2 ||
		    (layout->nplanes > 1 && kvt_order_find(order, KVT_AXIS_K) < 2) ||
		    (first == KVT_AXIS_L && order->part[1].axis != KVT_AXIS_B))
			return KVT_NAXES;
	}
	return first == KVT_AXIS_B || first == KVT_AXIS_L ? first : KVT_NAXES;
}

struct kvt_predicates kvt_layout_predicates(const struct kvt_layout *layout,
					    const struct kvt_shape *shape)
{
	struct kvt_predicates p = predicates_of(&layout->plane[0], shape), v;

	if (layout->nplanes == 1)
		return p;
	v = predicates_of(&layout->plane[1], shape);
	p.layer_compact &= v.layer_compact;
	p.block_compact &= v.block_compact;
	p.block_contiguous &= v.block_contiguous;
	p.block_outermost &= v.block_outermost;
	p.head_run &= v.head_run;
	p.kernel_split_neutral &= v.kernel_split_neutral;
	if (p.kernel_slots != v.kernel_slots)
		p.kernel_slots = 0;
	return p;
}
