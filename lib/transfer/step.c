/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.c - one step of one loop of a pair of ranks
 *
 * A level is one of six kinds: a plain loop, ranges of channels, blocks that have
 * entries, outer parts of a slot, entries of a block, planes.  A step gives the child's
 * place on both sides, and how often that repeats at one stride: walked by ops.c,
 * counted by tally.c.
 */
#include "lib/transfer/xfer.h"

struct kvt_frame kvt_frame_root(const struct kvt_nest *nest)
{
	const struct kvt_xfer *x = nest->xfer;
	int two = nest->nplanes == 2;

	return (struct kvt_frame){
		.src = nest->src_offset[nest->first_plane],
		.dst = { nest->dst_offset[0], nest->dst_offset[two] },
		.end = x->nentries, .hi = kvt_xfer_block_slots(&x->src),
		.plane = two ? -1 : 0, .slot = -1,
	};
}

static bool step_plain(struct kvt_frame *child, struct kvt_copies *copies,
		       struct kvt_frame *f, const struct kvt_level *l)
{
	bool layer = l->axis == KVT_AXIS_L;

	if (l->dst[0] == l->dst[1]) {
		if (f->at++)
			return false;
		*copies = (struct kvt_copies){ l->n, l->src, l->dst[0], layer, l->cut };
		return true;
	}
	if (f->at == l->n)
		return false;
	child->src += f->at * l->src;
	child->dst[0] += f->at * l->dst[0];
	child->dst[1] += f->at * l->dst[1];
	if (layer)
		child->mark.layer = f->at;
	f->at++;
	return true;
}

static bool step_ranges(struct kvt_frame *child, struct kvt_copies *copies,
			struct kvt_frame *f, const struct kvt_level *l,
			const struct kvt_exchange *e)
{
	const struct kvt_exchange_range *range = &e->range[f->at];

	if (f->at == e->count)
		return false;
	child->src += range->src * l->src;
	child->dst[0] += range->dst * l->dst[0];
	child->dst[1] = child->dst[0];
	child->mark.part = (int)f->at++;
	*copies = (struct kvt_copies){ range->count, l->src, l->dst[0], 0, 0 };
	return true;
}

static bool step_block(struct kvt_frame *child, struct kvt_frame *f,
		       const struct kvt_level *l, const struct kvt_block_span *entry)
{
	int64_t i = f->entry + f->at;

	if (i >= f->end)
		return false;
	child->entry = i;
	child->src += entry[i].src_block * l->src;
	while (i < f->end && entry[i].src_block == entry[child->entry].src_block)
		i++;
	child->end = i;
	f->at = i - f->entry;
	return true;
}

static bool step_slot(struct kvt_frame *child, struct kvt_frame *f,
		      const struct kvt_level *l)
{
	if (f->at == l->n)
		return false;
	child->src += f->at * l->src;
	child->lo += f->at * l->div;
	child->hi = child->lo + l->div;
	f->at++;
	return true;
}

static bool step_plane(struct kvt_frame *child, struct kvt_frame *f,
		       const struct kvt_nest *nest)
{
	int k = f->at ? !nest->first_plane : nest->first_plane;

	if (f->at == 2)
		return false;
	child->plane = k;
	child->src += nest->src_offset[k] - nest->src_offset[nest->first_plane];
	child->dst[0] = child->dst[1] = f->dst[k];
	f->at++;
	return true;
}

/*
 * Where a slot begins in the destination, and in 'step' and 'row' how far the
 * next one is and how many at most follow so.
 */
static int64_t place_slot(int64_t *step, int64_t *row, const struct kvt_view *view,
			  int64_t block, int64_t slot, bool taps)
{
	int64_t at = 0;

	*step = 0;
	for (int i = 0; i < view->nfactors; i++) {
		const struct kvt_factor *f = &view->factor[i];
		int64_t index = slot;

		if (f->axis == KVT_AXIS_B)
			at += block * f->stride;
		if (f->axis != KVT_AXIS_S || f->n < 2 || taps)
			continue;
		if (f->div > 1 || index >= f->n)	/* divisions are slow */
			index = slot / f->div % f->n;
		at += index * f->stride;
		if (f->div > 1)
			continue;
		*step = f->stride;
		if (*row > f->n - index)
			*row = f->n - index;
	}
	return at;
}

/* The slots of an entry that the frame may still take. */
static struct kvt_range slots_left(const struct kvt_frame *f,
				   const struct kvt_block_span *e)
{
	struct kvt_range r = { e->src_slot, e->src_slot + e->count };

	if (r.begin < f->slot)
		r.begin = f->slot;
	if (r.begin < f->lo)
		r.begin = f->lo;
	if (r.end > f->hi)
		r.end = f->hi;
	return r;
}

/* The rest of the entry, or as much of it as has one stride on both sides. */
static bool step_entry(struct kvt_frame *child, struct kvt_copies *copies,
		       struct kvt_frame *f, const struct kvt_level *l,
		       const struct kvt_nest *nest)
{
	const struct kvt_views *dst = &nest->xfer->dst.views;
	const struct kvt_block_span *e;
	struct kvt_range left;
	int64_t row, step[2] = { 0, 0 };

	for (;; f->at++, f->slot = -1) {
		if (f->entry + f->at >= f->end)
			return false;
		e = &nest->xfer->entry[f->entry + f->at];
		left = slots_left(f, e);
		if (left.begin < left.end)
			break;
	}
	row = left.end - left.begin;
	/* of a plane that is chosen both turns find the same; dst[1] is not read then */
	for (int i = 0; i < nest->nplanes; i++) {
		int k = f->plane < 0 ? i : f->plane;

		child->dst[i] += place_slot(&step[i], &row,
			&dst->view[dst->count == 2 ? k : 0], e->dst_block,
			e->dst_slot + (left.begin - e->src_slot), nest->taps);
	}
	if (nest->nplanes == 1) {
		child->dst[1] = child->dst[0];
		step[1] = step[0];
	}
	if (step[0] != step[1])
		row = 1;
	f->slot = left.begin + row;
	child->src += (left.begin - f->lo) * l->src;
	child->mark.entry = f->entry + f->at;
	*copies = (struct kvt_copies){ row, l->src, step[0], 0, 0 };
	return true;
}

bool kvt_frame_step(struct kvt_frame *child, struct kvt_copies *copies,
		    struct kvt_frame *f, const struct kvt_nest *nest, int depth)
{
	const struct kvt_level *l = &nest->level[f->plane > 0][depth];

	*child = *f;
	child->at = 0;
	child->slot = -1;
	*copies = (struct kvt_copies){ .n = 1 };
	switch (l->kind) {
	case KVT_LEVEL_PLAIN:
		return step_plain(child, copies, f, l);
	case KVT_LEVEL_RANGES:
		return step_ranges(child, copies, f, l, &nest->exchange);
	case KVT_LEVEL_BLOCK:
		return step_block(child, f, l, nest->xfer->entry);
	case KVT_LEVEL_SLOT:
		return step_slot(child, f, l);
	case KVT_LEVEL_ENTRY:
		return step_entry(child, copies, f, l, nest);
	case KVT_LEVEL_PLANE:
		return step_plane(child, f, nest);
	}
	return false;
}
