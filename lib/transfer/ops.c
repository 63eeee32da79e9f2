/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.c - walks the ops of a pair of ranks by ascending source offset
 *
 * A nest of loops (nest.c) is walked with a frame a level.  What a level repeats evenly
 * is not walked but kept as copies of a row; a row that is one run is one op, and copies
 * that follow each other on both sides become part of it.  An op is held back until the
 * next one does not join it, so ops are as long as their scope allows.  Memory: the
 * frames.
 */
#include "lib/transfer/xfer.h"

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
			child->slot = -1;
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

void kvt_ops_start(struct kvt_ops *ops, const struct kvt_nest *nest, enum kvt_scope scope)
{
	*ops = (struct kvt_ops){ .nest = nest, .scope = scope };
	ops->frame[0] = kvt_frame_root(nest);
	if (nest->xfer->nentries == 0)
		ops->depth = -1;
}

static void shift(struct kvt_mark *mark, const struct kvt_copies *by, int64_t n)
{
	mark->layer += by->layers * n;
	mark->tap += by->taps * n;
}

/*
 * Does the op go on in the next copy?  'last' is the mark of its last byte,
 * 'first' that of its first.
 */
static bool goes_on(const struct kvt_ops *ops, const struct kvt_copies *by,
		    const struct kvt_mark *first, const struct kvt_mark *last)
{
	struct kvt_mark next = *first;

	if (by->src != ops->op.len || by->dst != ops->op.len)
		return false;
	shift(&next, by, 1);
	return kvt_may_join(ops->scope, last, &next);
}

/*
 * A row that is one run becomes one op, and copies of it that follow each other
 * become part of it.  A copy that is as long as the step to the next one has
 * nothing else in it, so that no loop inside needs to be finished.  Returns the
 * mark of the last byte, 'first' being that of the first.
 */
static struct kvt_mark close_row(struct kvt_ops *ops, const struct kvt_mark *first)
{
	struct kvt_copies row = { ops->left, ops->src_step, ops->dst_step,
				  ops->copies[ops->depth].layers,
				  ops->copies[ops->depth].taps };
	struct kvt_mark last = *first;

	if (row.n > 1 && goes_on(ops, &row, first, &last)) {
		ops->op.len *= row.n;
		ops->left = 1;
	}
	shift(&last, &row, row.n - 1);
	for (int d = ops->depth - 1; ops->left == 1 && d >= 0; d--) {
		struct kvt_copies *by = &ops->copies[d];

		if (!by->n)
			continue;
		if (!goes_on(ops, by, first, &last))
			break;
		ops->op.len *= by->n + 1;
		shift(&last, by, by->n);
		by->n = 0;
		ops->depth = d;
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
