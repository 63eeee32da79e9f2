/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally.c - counts the ops of a pair of ranks without walking them
 *
 * What a loop repeats is counted once: of its runs only the first and the last
 * can join those of the next copy, and they do so at every seam or at none.
 */
#include "lib/transfer/xfer.h"

/* A run that may still grow at one of its ends. */
struct run {
	struct kvt_op op;
	struct kvt_mark mark;
};

/* Runs in a row, without those inside, which are counted already. */
struct chain {
	bool any, whole;		/* whole: head and tail are one run */
	struct run head, tail;
};

struct count {
	const struct kvt_nest *nest;
	enum kvt_scope scope;
	struct kvt_tally tally;
	struct kvt_sizes *sizes;
	enum kvt_status status;
	struct kvt_error *err;
};

static enum kvt_status add_size(struct kvt_sizes *sizes, int64_t size, int64_t count,
				struct kvt_error *err)
{
	struct kvt_size_count *bin = sizes->bin;
	int lo = 0, hi = sizes->n;

	while (lo < hi) {
		int mid = lo + (hi - lo) / 2;

		if (bin[mid].size < size)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < sizes->n && bin[lo].size == size) {
		if (__builtin_add_overflow(bin[lo].count, count, &bin[lo].count))
			return kvt_fail(err, KVT_BAD_INPUT, "more than 2^63 ops");
		return KVT_OK;
	}
	if (sizes->n == sizes->room)
		return kvt_fail(err, KVT_SYSTEM, "ops have more than %d sizes",
				sizes->room);
	for (int i = sizes->n++; i > lo; i--)
		bin[i] = bin[i - 1];
	bin[lo] = (struct kvt_size_count){ size, count };
	return KVT_OK;
}

static void done(struct count *c, int64_t len, int64_t n)
{
	int64_t bytes;

	if (n < 1 || c->status)
		return;
	if (__builtin_mul_overflow(len, n, &bytes) ||
	    __builtin_add_overflow(c->tally.bytes, bytes, &c->tally.bytes) ||
	    __builtin_add_overflow(c->tally.ops, n, &c->tally.ops))
		c->status = kvt_fail(c->err, KVT_BAD_INPUT,
				     "more than 2^63 bytes are to be moved");
	else if (c->sizes)
		c->status = add_size(c->sizes, len, n, c->err);
}

/* Does 'b' continue 'a'?  If not, 'n' such breaks are counted. */
static bool joins(struct count *c, const struct run *a, const struct run *b,
		  enum kvt_axis axis, int64_t n)
{
	bool src = a->op.src + a->op.len == b->op.src;
	bool dst = a->op.dst + a->op.len == b->op.dst;
	enum kvt_break why = !src && !dst ? KVT_BREAK_BOTH :
			     !src ? KVT_BREAK_SOURCE :
			     !dst ? KVT_BREAK_DESTINATION : KVT_BREAK_SCOPE;

	if (src && dst && kvt_may_join(c->scope, &a->mark, &b->mark))
		return true;
	if (axis == KVT_AXIS_S && a->mark.entry != b->mark.entry)
		axis = KVT_AXIS_B;
	c->tally.breaks[axis][why] += n;
	return false;
}

static struct chain append(struct count *c, const struct chain *a,
			   const struct chain *b, enum kvt_axis axis, int64_t times)
{
	struct chain out = { true, false, a->head, b->tail };

	if (!a->any || !b->any)
		return a->any ? *a : *b;
	if (!joins(c, &a->tail, &b->head, axis, times)) {
		if (!a->whole)
			done(c, a->tail.op.len, times);
		if (!b->whole)
			done(c, b->head.op.len, times);
		return out;
	}
	out.whole = a->whole && b->whole;
	if (!a->whole && !b->whole)
		done(c, a->tail.op.len + b->head.op.len, times);
	if (a->whole)
		out.head.op.len += b->head.op.len;
	if (b->whole) {
		out.tail = a->tail;
		out.tail.mark = b->tail.mark;
		out.tail.op.len += b->tail.op.len;
	}
	if (out.whole)
		out.head = out.tail;
	return out;
}

static void shift(struct run *run, const struct kvt_copies *by, int64_t n)
{
	run->op.src += by->src * n;
	run->op.dst += by->dst * n;
	run->mark.layer += by->layers * n;
	run->mark.tap += by->taps * n;
}

static struct chain repeat(struct count *c, const struct chain *one,
			   const struct kvt_copies *copies, enum kvt_axis axis,
			   int64_t times)
{
	struct chain out = *one;
	struct run next = one->head;
	int64_t n = copies->n;

	if (!one->any || n < 2)
		return out;
	shift(&next, copies, 1);
	shift(&out.tail, copies, n - 1);
	if (!joins(c, &one->tail, &next, axis, (n - 1) * times)) {
		done(c, one->tail.op.len, (one->whole ? n - 2 : n - 1) * times);
		if (!one->whole)
			done(c, one->head.op.len, (n - 1) * times);
		out.whole = false;
	} else if (one->whole) {
		out.head.op.len *= n;
		out.tail.op = out.head.op;
	} else {
		done(c, one->tail.op.len + one->head.op.len, (n - 1) * times);
	}
	return out;
}

/* All that a level holds, 'times' of which are alike.  Depth is at most 16. */
static struct chain level(struct count *c, struct kvt_frame *f, int depth, int64_t times)
{
	int k = f->plane > 0;
	struct chain all = { .any = false }, part;
	struct kvt_copies copies;
	struct kvt_frame child;

	if (depth == c->nest->nlevels[k]) {
		all.any = all.whole = true;
		all.head.op = (struct kvt_op){ f->src, f->dst[0], c->nest->inner[k] };
		all.head.mark = f->mark;
		all.tail = all.head;
		return all;
	}
	while (kvt_frame_step(&child, &copies, f, c->nest, depth)) {
		enum kvt_axis axis = c->nest->level[k][depth].axis;

		part = level(c, &child, depth + 1, times * copies.n);
		part = repeat(c, &part, &copies, axis, times);
		all = append(c, &all, &part, axis, times);
	}
	return all;
}

enum kvt_status kvt_pair_tally(struct kvt_tally *tally, struct kvt_sizes *sizes,
			       const struct kvt_nest *nest, enum kvt_scope scope,
			       struct kvt_error *err)
{
	struct count c = { .nest = nest, .scope = scope, .tally = *tally,
			   .sizes = sizes, .err = err };
	struct kvt_frame root = kvt_frame_root(nest);
	struct chain all = level(&c, &root, 0, 1);

	if (all.any)
		done(&c, all.head.op.len, 1);
	if (all.any && !all.whole)
		done(&c, all.tail.op.len, 1);
	if (c.status)
		return c.status;
	*tally = c.tally;
	return KVT_OK;
}

int64_t kvt_sizes_at(const struct kvt_sizes *sizes, int64_t i)
{
	for (int b = 0; b < sizes->n; b++) {
		if (i < sizes->bin[b].count)
			return sizes->bin[b].size;
		i -= sizes->bin[b].count;
	}
	return 0;
}
