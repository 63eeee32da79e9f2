/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batches.c - what a stack posts, batch by batch
 *
 * A stack that merges nothing posts a scope, which is counted in closed form by
 * kvt_pair_tally().  Any other is walked, operation by operation, as kvt_posts does
 * it.  Then the link cuts what is longer than its slice.
 */
#include "sim/ops/batches.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

/* ---- batches ------------------------------------------------------------- */

static bool before(const struct kvt_batch *b, int64_t src, int64_t dst)
{
	return b->dst_rank < dst || (b->dst_rank == dst && b->src_rank < src);
}

/* The batch of that pair, made if there is none: groups come one by one. */
static struct kvt_batch *batch_of(struct kvt_batches *p, int64_t src, int64_t dst)
{
	int64_t at = p->n;

	while (at > 0 && !before(&p->batch[at - 1], src, dst))
		at--;
	if (at < p->n && p->batch[at].src_rank == src && p->batch[at].dst_rank == dst)
		return &p->batch[at];
	if (!KVT_GROW(&p->batch, p->n))
		return NULL;
	memmove(&p->batch[at + 1], &p->batch[at],
		(size_t)(p->n - at) * sizeof(*p->batch));
	p->n++;
	p->batch[at] = (struct kvt_batch){ .src_rank = src, .dst_rank = dst };
	return &p->batch[at];
}

static void add(struct kvt_batch *to, const struct kvt_batch *b)
{
	to->listed += b->listed;
	to->merged += b->merged;
	to->ops += b->ops;
	to->bytes += b->bytes;
}

void kvt_batches_free(struct kvt_batches *posts)
{
	free(posts->batch);
	posts->batch = NULL;
	posts->n = 0;
}

/* ---- counting ------------------------------------------------------------ */

/* A scope as it is can be counted without a walk. */
static bool is_scope(const struct kvt_posting *how)
{
	return how->stack >= KVT_STACK_RFC && how->coalesce != KVT_COALESCE_NIXL &&
	       how->sge < 2;
}

static enum kvt_scope scope_of(const struct kvt_posting *how)
{
	static const enum kvt_scope scopes[] = {
		[KVT_STACK_RFC] = KVT_SCOPE_RFC, [KVT_STACK_LAYER] = KVT_SCOPE_LAYER,
		[KVT_STACK_MAX] = KVT_SCOPE_MAX,
	};

	return how->coalesce == KVT_COALESCE_FULL ? KVT_SCOPE_MAX : scopes[how->stack];
}

static enum kvt_status count_scope(struct kvt_batch *b,
				   const struct kvt_transfer_group *g,
				   const struct kvt_pair *pair, struct kvt_sizes *sizes,
				   const struct kvt_posting *how, struct kvt_error *err)
{
	struct kvt_tally tally = { 0 };
	struct kvt_nest nest;
	enum kvt_status status;

	sizes->n = 0;
	if ((status = kvt_nest_init(&nest, &g->xfer, pair, err)) ||
	    (status = kvt_pair_tally(&tally, sizes, &nest, scope_of(how), err)))
		return status;
	b->listed = b->merged = tally.ops;
	b->bytes = tally.bytes;
	for (int i = 0; i < sizes->n; i++)
		b->ops += sizes->bin[i].count *
			  kvt_slice_count(sizes->bin[i].size, how->slice, how->fragment);
	return KVT_OK;
}

enum kvt_status kvt_batch_start(struct kvt_posts *out, const struct kvt_transfer_group *g,
				const struct kvt_pair *pair,
				const struct kvt_batch_how *how, struct kvt_error *err)
{
	struct kvt_posting instead = how->posting;
	struct kvt_error why = { "" };
	enum kvt_status status;

	status = kvt_posts_start(out, &how->posting, &g->xfer, pair, g->order, g->norder,
				 &why);
	if (!status)
		return KVT_OK;
	if (status != KVT_BAD_INPUT || !how->force)
		return kvt_fail(err, status, "%s: %.400s", g->name, why.text);
	instead.stack = KVT_STACK_LAYER;
	return kvt_posts_start(out, &instead, &g->xfer, pair, g->order, g->norder, err);
}

static enum kvt_status count_walk(struct kvt_batch *b, const struct kvt_transfer_group *g,
				  const struct kvt_pair *pair,
				  const struct kvt_batch_how *how, struct kvt_error *err)
{
	struct kvt_posts posts;
	struct kvt_op op;
	enum kvt_status status = kvt_batch_start(&posts, g, pair, how, err);

	if (status)
		return status;
	while (kvt_post_next(&op, &posts))
		;
	b->listed = posts.listed;
	b->merged = posts.merged;
	b->ops = posts.ops;
	b->bytes = posts.bytes;
	return KVT_OK;
}

/* One sentence a group, of its first pair: the others are alike. */
static void warn_refused(const struct kvt_transfer_group *g,
			 const struct kvt_batch_how *how)
{
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_error why = { "" };
	struct kvt_posts posts;
	struct kvt_pair pair;

	if (how->force && kvt_pair_next(&pair, &walk, &g->xfer) &&
	    kvt_posts_start(&posts, &how->posting, &g->xfer, &pair, g->order, g->norder,
			    &why))
		kvt_run_warn(&how->run, "warning: %s: %s; counted as scope layer",
			     g->name, why.text);
}

static enum kvt_status count_group(struct kvt_batches *p,
				   const struct kvt_transfer_group *g,
				   struct kvt_sizes *sizes,
				   const struct kvt_batch_how *how, struct kvt_error *err)
{
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_pair pair;
	enum kvt_status status;

	if (p->src_ranks < kvt_xfer_side_ranks(&g->xfer.src))
		p->src_ranks = kvt_xfer_side_ranks(&g->xfer.src);
	if (p->dst_ranks < kvt_xfer_side_ranks(&g->xfer.dst))
		p->dst_ranks = kvt_xfer_side_ranks(&g->xfer.dst);
	warn_refused(g, how);
	while (kvt_pair_next(&pair, &walk, &g->xfer)) {
		struct kvt_batch *b, one = { .src_rank = pair.src_rank,
					       .dst_rank = pair.dst_rank };

		if (!(b = batch_of(p, pair.src_rank, pair.dst_rank)))
			return kvt_no_memory(err, NULL);
		status = is_scope(&how->posting) ?
			 count_scope(&one, g, &pair, sizes, &how->posting, err) :
			 count_walk(&one, g, &pair, how, err);
		if (status)
			return status;
		add(b, &one);
	}
	return KVT_OK;
}

/* Through buffers, an operation is as long as these are. */
static void finish(struct kvt_batches *p, const struct kvt_batch_how *how)
{
	const struct kvt_posting *k = &how->posting;

	for (int64_t i = 0; i < p->n; i++) {
		struct kvt_batch *b = &p->batch[i];

		if (how->stage) {
			int64_t whole = b->bytes / how->stage,
				rest = b->bytes % how->stage;

			b->ops = whole * kvt_slice_count(how->stage, k->slice, 0);
			if (rest)
				b->ops += kvt_slice_count(rest, k->slice, 0);
		}
		add(&p->sum, b);
	}
}

enum kvt_status kvt_batches_count(struct kvt_batches *out,
				  const struct kvt_transfer_plan *transfer,
				  const struct kvt_batch_how *how, struct kvt_error *err)
{
	struct kvt_batches p = { 0 };
	struct kvt_figures f;
	enum kvt_status status = kvt_figures_init(&f, err);

	if (status)
		return status;
	for (int g = 0; !status && g < transfer->ngroups; g++)
		status = count_group(&p, &transfer->group[g], &f.sizes, how, err);
	kvt_figures_free(&f);
	if (status) {
		kvt_batches_free(&p);
		return status;
	}
	finish(&p, how);
	*out = p;
	return KVT_OK;
}

enum kvt_status kvt_batches_uniform(struct kvt_batches *out, int64_t ops, int64_t size,
				    const struct kvt_batch_how *how,
				    struct kvt_error *err)
{
	struct kvt_batches p = { .src_ranks = 1, .dst_ranks = 1 };
	int64_t cuts = kvt_slice_count(size, how->posting.slice, how->posting.fragment);
	struct kvt_batch *b;

	if (ops > INT64_MAX / size || ops > INT64_MAX / cuts)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld operations of %lld bytes are more than 2^63 bytes",
				LL(ops), LL(size));
	if (!(b = batch_of(&p, 0, 0)))
		return kvt_no_memory(err, NULL);
	b->listed = b->merged = ops;
	b->ops = ops * cuts;
	b->bytes = ops * size;
	finish(&p, how);
	*out = p;
	return KVT_OK;
}

enum kvt_status kvt_batches_of_scope(struct kvt_batches *out,
				     const struct kvt_transfer_plan *transfer,
				     enum kvt_scope scope, const struct kvt_link *link,
				     struct kvt_error *err)
{
	static const enum kvt_stack stacks[] = {
		[KVT_SCOPE_MAX] = KVT_STACK_MAX, [KVT_SCOPE_RFC] = KVT_STACK_RFC,
		[KVT_SCOPE_LAYER] = KVT_STACK_LAYER,
	};
	const struct kvt_batch_how how = {
		.posting = { .stack = stacks[scope], .slice = link ? link->slice : 0 },
	};

	return kvt_batches_count(out, transfer, &how, err);
}

/* ---- the link ------------------------------------------------------------- */

/*
 * By Little's law, n operations of which w are outstanding, each for the latency
 * and its own time, need at least n * (latency + own) / w.
 */
struct kvt_link kvt_batch_link(const struct kvt_batch_how *how, int64_t ops,
			       int64_t bytes)
{
	struct kvt_link link = how->link;
	double alone, least;

	if (!how->window || !ops)
		return link;
	alone = (double)(kvt_link_ns(&link, ops, bytes) - link.setup_ns);
	least = ((double)ops * (double)how->latency_ps / 1e3 + alone) /
		(double)how->window;
	if (least <= alone)
		return link;
	if (alone <= 0) {
		link.op_ps = (int64_t)(least * 1e3 / (double)ops);
		return link;
	}
	link.op_ps = (int64_t)((double)link.op_ps * (least / alone));
	link.rate = (int64_t)((double)link.rate / (least / alone));
	return link;
}
