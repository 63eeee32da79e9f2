/* SPDX-License-Identifier: Apache-2.0 */
/* xfer_ops.c - walks the ops of a pair of ranks by ascending source offset */
#include "lib/xfer.h"

/* The next row: equal runs of which none joins its neighbour in the row. */
static bool next_row(struct kvt_mark *mark, struct kvt_ops *ops)
{
	const struct kvt_nest *nest = ops->nest;

	while (ops->depth >= 0) {
		struct kvt_frame *f = &ops->frame[ops->depth], *child = f + 1;
		struct kvt_copies *copies = &ops->copies[ops->depth];

		if (copies->n > 0) {
			child->src += copies->src;
			child->dst[0] += copies->dst;
			child->dst[1] += copies->dst;
			child->mark.layer += copies->layers;
			child->mark.tap += copies->taps;
			child->at = 0;
			child->state = -1;
		} else if (!kvt_frame_step(child, copies, f, nest, ops->depth)) {
			ops->depth--;
			continue;
		}
		if (ops->depth + 1 < nest->nlevels[child->plane > 0]) {
			copies->n--;
			ops->copies[++ops->depth].n = 0;
			continue;
		}
		*mark = child->mark;
		ops->op = (struct kvt_op){ child->src, child->dst[0],
					   nest->inner[child->plane > 0] };
		ops->left = copies->n;
		ops->src_step = copies->src;
		ops->dst_step = copies->dst;
		copies->n = 0;
		return true;
	}
	return false;
}

void kvt_ops_start(struct kvt_ops *ops, const struct kvt_nest *nest,
		   enum kvt_scope scope)
{
	*ops = (struct kvt_ops){ .nest = nest, .scope = scope };
	ops->frame[0] = kvt_frame_root(nest);
	if (nest->xfer->nentries == 0)
		ops->depth = -1;
}

/*
 * A row that is one run becomes one op.  Returns the mark of its last byte,
 * 'first' being that of its first.
 */
static struct kvt_mark close_row(struct kvt_ops *ops, const struct kvt_mark *first)
{
	const struct kvt_copies *by = &ops->copies[ops->depth];
	struct kvt_mark last = *first, next = *first;

	next.layer += by->layers;
	next.tap += by->taps;
	last.layer += by->layers * (ops->left - 1);
	last.tap += by->taps * (ops->left - 1);
	if (ops->left > 1 && ops->src_step == ops->op.len &&
	    ops->dst_step == ops->op.len && kvt_may_join(ops->scope, first, &next)) {
		ops->op.len *= ops->left;
		ops->left = 1;
	}
	return last;
}

static void take(struct kvt_ops *ops)
{
	ops->held = ops->op;
	ops->op.src += ops->src_step;
	ops->op.dst += ops->dst_step;
	ops->left--;
}

bool kvt_op_next(struct kvt_op *out, struct kvt_ops *ops)
{
	struct kvt_mark first, last;

	for (;;) {
		*out = ops->held;
		if (ops->left > 0) {
			take(ops);
			return true;
		}
		if (!next_row(&first, ops)) {
			ops->held.len = 0;
			return out->len > 0;
		}
		last = close_row(ops, &first);
		if (out->len && out->src + out->len == ops->op.src &&
		    out->dst + out->len == ops->op.dst &&
		    kvt_may_join(ops->scope, &ops->mark, &first)) {
			take(ops);
			ops->held = (struct kvt_op){ out->src, out->dst,
						     out->len + ops->held.len };
			out->len = 0;
		} else {
			take(ops);
		}
		ops->mark = last;
		if (out->len)
			return true;
	}
}
