/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xfer.h - what the files that plan transfers share; for lib/ only
 *
 *	xfer.c		both sides, the moves between ranks (model/slice.c)
 *	entries.c	which slots of the source go where: spans, sorted by source
 *	nest.c		of one pair of ranks the loops, slowest source stride first
 *	step.c		one step of one loop
 *	ops.c		all of them in turn: copies (source, destination, length)
 *	tally.c		how many those are, without walking them
 *	regions.c	the same bytes as few strided copies (struct kvt_plan)
 *	stack.c		what a connector posts of them
 *	prove.c, views.c	every byte that moves is written exactly once
 */
#ifndef KVT_XFER_H
#define KVT_XFER_H

#include <stddef.h>

#include "lib/kvt/transfer.h"

/* One state stands for all tokens and fills its block. */
static inline bool kvt_xfer_is_recurrent(const struct kvt_spec *spec)
{
	return spec->tokens_per_slot.num < 0;
}

/* Slots of a block, as entries count them. */
static inline int64_t kvt_xfer_block_slots(const struct kvt_xfer_side *side)
{
	return kvt_xfer_is_recurrent(&side->spec) ?
	       1 : side->views.view[0].shape.n[KVT_AXIS_S];
}

/*
 * Sorts by source, joins what is doubled, checks against pools and each other;
 * sets nentries and slots.
 */
KVT_MUST_CHECK enum kvt_status
kvt_entries_sort(struct kvt_xfer *x, struct kvt_block_span *entry, int64_t n,
		 struct kvt_error *err);

/*
 * Refuses views of which two elements share a byte, or whose strides interleave
 * so that this is not certain.
 */
KVT_MUST_CHECK enum kvt_status
kvt_views_disjoint(const struct kvt_views *views, struct kvt_error *err);

/* ---- loops -------------------------------------------------------------- */

/*
 * What both sides hold of plane k.  H is cut to the exchange; D, the channels of
 * a conv state, is not: its parts lie apart.
 */
struct kvt_both {
	struct kvt_view src, dst;
};
KVT_MUST_CHECK enum kvt_status
kvt_nest_views(struct kvt_both *out, const struct kvt_nest *nest, int k,
	       struct kvt_error *err);

/* Where the whole nest begins. */
struct kvt_frame kvt_frame_root(const struct kvt_nest *nest);

/*
 * The next child of a level, which stands for 'copies' of it in a row, each
 * 'src_step' and 'dst_step' behind the last.
 */
bool kvt_frame_step(struct kvt_frame *child, struct kvt_copies *copies,
		    struct kvt_frame *frame, const struct kvt_nest *nest, int depth);

/* May two bytes that are neighbours on both sides be in one op? */
static inline bool kvt_may_join(enum kvt_scope scope, const struct kvt_mark *a,
				const struct kvt_mark *b)
{
	if (scope == KVT_SCOPE_MAX)
		return true;
	if (a->entry != b->entry || a->part != b->part || a->tap != b->tap)
		return false;
	return scope == KVT_SCOPE_RFC || a->layer == b->layer;
}

#endif
