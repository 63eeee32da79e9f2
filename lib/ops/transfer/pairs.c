/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c - the batches of a transfer, one a pair of ranks, and their times */
#include "lib/ops/transfer/pairs.h"

#include <stdlib.h>

/* ---- counting ----------------------------------------------------------- */

static bool before(const struct sim_batch *b, const struct kvt_pair *pair)
{
	return b->dst_rank < pair->dst_rank ||
	       (b->dst_rank == pair->dst_rank && b->src_rank < pair->src_rank);
}

/* The batch of that pair, made if there is none; later groups find it again. */
static struct sim_batch *batch_of(struct sim_pairs *p, const struct kvt_pair *pair)
{
	int64_t at = p->n;

	while (at > 0 && !before(&p->batch[at - 1], pair))
		at--;
	if (at < p->n && p->batch[at].src_rank == pair->src_rank &&
	    p->batch[at].dst_rank == pair->dst_rank)
		return &p->batch[at];
	if (p->n == p->room) {
		int64_t room = p->room ? 2 * p->room : 64;
		void *more = realloc(p->batch, (size_t)room * sizeof(*p->batch));

		if (!more)
			return NULL;
		p->batch = more;
		p->room = room;
	}
	for (int64_t i = p->n++; i > at; i--)
		p->batch[i] = p->batch[i - 1];
	p->batch[at] = (struct sim_batch){ .src_rank = pair->src_rank,
					   .dst_rank = pair->dst_rank };
	return &p->batch[at];
}

static enum kvt_status add_pair(struct sim_pairs *p, const struct kvt_xfer *xfer,
				const struct kvt_pair *pair, struct kvt_sizes *sizes,
				enum kvt_scope scope, const struct kvt_link *link,
				struct kvt_error *err)
{
	struct sim_batch *batch = batch_of(p, pair);
	struct kvt_tally tally = { 0 };
	struct kvt_nest nest;
	enum kvt_status status;

	if (!batch)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	sizes->n = 0;
	if ((status = kvt_nest_init(&nest, xfer, pair, err)) ||
	    (status = kvt_pair_tally(&tally, sizes, &nest, scope, err)))
		return status;
	batch->ops += tally.ops;
	batch->bytes += tally.bytes;
	for (int i = 0; i < sizes->n; i++)
		batch->link_ops += kvt_link_ops(link, sizes->bin[i].count,
						sizes->bin[i].size);
	p->ops += tally.ops;
	p->bytes += tally.bytes;
	return KVT_OK;
}

static enum kvt_status add_group(struct sim_pairs *p, const struct kvt_xfer *xfer,
				 struct kvt_sizes *sizes, enum kvt_scope scope,
				 const struct kvt_link *link, struct kvt_error *err)
{
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_pair pair;
	enum kvt_status status = KVT_OK;

	if (p->src_ranks < xfer->src.ranks)
		p->src_ranks = xfer->src.ranks;
	if (p->dst_ranks < xfer->dst.ranks)
		p->dst_ranks = xfer->dst.ranks;
	while (!status && kvt_pair_next(&pair, &walk, xfer))
		status = add_pair(p, xfer, &pair, sizes, scope, link, err);
	return status;
}

enum kvt_status sim_pairs_count(struct sim_pairs *out, const struct sim *sim,
				enum kvt_scope scope, const struct kvt_link *link,
				struct kvt_error *err)
{
	struct sim_pairs p = { 0 };
	struct sim_figures f;
	enum kvt_status status = sim_figures_init(&f, err);

	if (status)
		return status;
	for (int g = 0; !status && g < sim->ngroups; g++)
		status = add_group(&p, &sim->group[g].xfer, &f.sizes, scope, link, err);
	sim_figures_free(&f);
	if (status)
		sim_pairs_free(&p);
	else
		*out = p;
	return status;
}

void sim_pairs_stage(struct sim_pairs *p, int64_t chunk, const struct kvt_link *link)
{
	p->ops = 0;
	for (int64_t i = 0; i < p->n; i++) {
		struct sim_batch *b = &p->batch[i];
		int64_t whole = b->bytes / chunk, rest = b->bytes % chunk;

		b->ops = whole + !!rest;
		b->link_ops = kvt_link_ops(link, whole, chunk) +
			      kvt_link_ops(link, !!rest, rest);
		p->ops += b->ops;
	}
}

void sim_pairs_free(struct sim_pairs *p)
{
	free(p->batch);
	p->batch = NULL;
}

/* ---- time --------------------------------------------------------------- */

/* A poster goes on to its next batch when it is done with the last. */
static void set_posts(struct sim_pairs *p, const struct kvt_link *link)
{
	for (int64_t i = 0; i < p->n; i++) {
		struct sim_batch *b = &p->batch[i];
		bool same = i && b[-1].dst_rank == b->dst_rank;

		b->post = same ? b[-1].posted : 0;
		b->posted = b->post + kvt_link_post_ns(link, b->link_ops);
	}
}

struct clock {
	struct kvt_sim sim;
	struct kvt_nic *nics;		/* of sources, then of destinations */
	struct kvt_flow *flows;		/* one a batch */
	int64_t *order;			/* batches by the start of their posting */
};

static enum kvt_status clock_init(struct clock *c, const struct sim_pairs *p,
				  const struct kvt_link *link, struct kvt_error *err)
{
	int64_t ranks = p->src_ranks + p->dst_ranks;

	kvt_sim_init(&c->sim, link->rate ? KVT_SHARE_FAIR : KVT_SHARE_NONE);
	c->nics = calloc((size_t)ranks + 1, sizeof(*c->nics));
	c->flows = calloc((size_t)p->n + 1, sizeof(*c->flows));
	c->order = calloc((size_t)p->n + 1, sizeof(*c->order));
	if (!c->nics || !c->flows || !c->order)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t i = 0; i < ranks; i++)
		c->nics[i].rate = link->rate ? (double)link->rate : 1e30;
	for (int64_t i = 0; i < p->n; i++) {
		int64_t at = i;

		for (; at && p->batch[c->order[at - 1]].post > p->batch[i].post; at--)
			c->order[at] = c->order[at - 1];
		c->order[at] = i;
	}
	return KVT_OK;
}

static void note_ends(struct clock *c, struct sim_pairs *p, int64_t until)
{
	struct kvt_flow *done;

	while ((done = kvt_sim_next(&c->sim, until))) {
		p->batch[done->id].end = done->end;
		if (done->end > p->duration)
			p->duration = done->end;
	}
}

static void run(struct clock *c, struct sim_pairs *p, const struct kvt_link *link)
{
	for (int64_t i = 0; i < p->n; i++) {
		struct sim_batch *b = &p->batch[c->order[i]];
		struct kvt_flow *flow = &c->flows[i];

		note_ends(c, p, b->post);
		flow->id = c->order[i];
		flow->src = &c->nics[b->src_rank];
		flow->dst = &c->nics[p->src_ranks + b->dst_rank];
		kvt_sim_add(&c->sim, flow, link, b->link_ops, b->bytes);
		b->begin = flow->begin;
	}
	note_ends(c, p, INT64_MAX);
}

enum kvt_status sim_pairs_time(struct sim_pairs *p, const struct kvt_link *link,
			       struct kvt_error *err)
{
	struct clock c = { .nics = NULL };
	enum kvt_status status;

	p->duration = 0;
	set_posts(p, link);
	if (!(status = clock_init(&c, p, link, err)))
		run(&c, p, link);
	free(c.nics);
	free(c.flows);
	free(c.order);
	return status;
}
