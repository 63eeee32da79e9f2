/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.c - when the batches of one transfer are posted, on the wire, done
 *
 * Three passes.  Posting: sources copy into their buffers one batch after the other,
 * if there are buffers; the poster, source or destination, posts one batch
 * after the other, in the order of the list.  The wire: each batch is a flow that
 * begins when its posting does, and flows that meet at the card of a source or a
 * destination share it (lib/transfer/link_sim.c).  Copying out: destinations copy in
 * the order of arrival.  A batch that meets no other takes what the closed form of
 * kvt_link_ns() says.
 */
#include "sim/ops/batches.h"

#include <stdlib.h>

struct run {
	const struct kvt_batches *posts;
	const struct kvt_batch_how *how;
	struct kvt_batch_time *batch;
	int64_t *src_free, *dst_free;	/* until when a rank copies, then posts */
	struct kvt_nic *nics;		/* of sources, then of destinations */
	struct kvt_flow *flows;
	int64_t *order;			/* batches by the time of their posting */
};

static int64_t copy_ns(const struct run *r, int64_t bytes)
{
	return r->how->stage ? (int64_t)((double)bytes * 1e9 /
					 (double)r->how->copy_rate + 0.5) : 0;
}

static void run_free(struct run *r)
{
	free(r->src_free);
	free(r->dst_free);
	free(r->nics);
	free(r->flows);
	free(r->order);
}

static enum kvt_status run_init(struct run *r, struct kvt_error *err)
{
	size_t src = (size_t)r->posts->src_ranks, dst = (size_t)r->posts->dst_ranks;
	size_t n = (size_t)r->posts->n;

	r->src_free = calloc(src + 1, sizeof(*r->src_free));
	r->dst_free = calloc(dst + 1, sizeof(*r->dst_free));
	r->nics = calloc(src + dst + 1, sizeof(*r->nics));
	r->flows = calloc(n + 1, sizeof(*r->flows));
	r->order = calloc(n + 1, sizeof(*r->order));
	if (!r->src_free || !r->dst_free || !r->nics || !r->flows || !r->order)
		return kvt_no_memory(err, NULL);
	for (size_t i = 0; i < src + dst; i++)
		r->nics[i].rate = r->how->link.rate ? (double)r->how->link.rate : 1e30;
	return KVT_OK;
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Sources gather one batch after the other; then posters post in the same way. */
static void set_posts(struct run *r)
{
	const struct kvt_batches *p = r->posts;
	int64_t *poster = r->how->push ? r->src_free : r->dst_free;

	for (int64_t i = 0; i < p->n; i++) {
		const struct kvt_batch *b = &p->batch[i];

		r->src_free[b->src_rank] += copy_ns(r, b->bytes);
		r->batch[i].ready = r->src_free[b->src_rank];
	}
	for (int64_t s = 0; s < p->src_ranks; s++)
		r->src_free[s] = 0;
	for (int64_t i = 0; i < p->n; i++) {
		const struct kvt_batch *b = &p->batch[i];
		int64_t *busy = &poster[r->how->push ? b->src_rank : b->dst_rank];
		struct kvt_link link = kvt_batch_link(r->how, b->ops, b->bytes);
		int64_t at = i;

		r->batch[i].post = later(*busy, r->batch[i].ready);
		*busy = r->batch[i].posted =
			r->batch[i].post + kvt_link_post_ns(&link, b->ops);
		r->batch[i].closed = kvt_link_ns(&link, b->ops, b->bytes) +
				     2 * copy_ns(r, b->bytes);
		for (; at && r->batch[r->order[at - 1]].post > r->batch[i].post; at--)
			r->order[at] = r->order[at - 1];
		r->order[at] = i;
	}
}

static void note_arrivals(struct run *r, struct kvt_sim *sim, int64_t until)
{
	struct kvt_flow *done;

	while ((done = kvt_sim_next(sim, until)))
		r->batch[done->id].arrived = done->end;
}

static void run_wire(struct run *r)
{
	struct kvt_sim sim;

	kvt_sim_init(&sim, r->how->share);
	for (int64_t k = 0; k < r->posts->n; k++) {
		int64_t i = r->order[k];
		const struct kvt_batch *b = &r->posts->batch[i];
		struct kvt_link link = kvt_batch_link(r->how, b->ops, b->bytes);
		struct kvt_flow *flow = &r->flows[i];

		note_arrivals(r, &sim, r->batch[i].post);
		flow->id = i;
		flow->src = &r->nics[b->src_rank];
		flow->dst = &r->nics[r->posts->src_ranks + b->dst_rank];
		kvt_sim_add(&sim, flow, &link, b->ops, b->bytes);
		r->batch[i].begin = flow->begin;
	}
	note_arrivals(r, &sim, INT64_MAX);
}

/* Destinations scatter in the order in which batches arrive. */
static void set_ends(struct run *r)
{
	int64_t n = r->posts->n;

	for (int64_t i = 0; i < n; i++) {
		int64_t at = i;

		for (; at && r->batch[r->order[at - 1]].arrived > r->batch[i].arrived;
		     at--)
			r->order[at] = r->order[at - 1];
		r->order[at] = i;
	}
	for (int64_t d = 0; d < r->posts->dst_ranks; d++)
		r->dst_free[d] = 0;
	for (int64_t k = 0; k < n; k++) {
		const struct kvt_batch *b = &r->posts->batch[r->order[k]];
		struct kvt_batch_time *c = &r->batch[r->order[k]];
		int64_t *busy = &r->dst_free[b->dst_rank];

		*busy = c->end = later(*busy, c->arrived) + copy_ns(r, b->bytes);
	}
}

static void sum_up(struct kvt_batch_times *out, const struct kvt_batches *p,
		   const struct kvt_batch_how *how)
{
	int64_t *busy =
		calloc((size_t)later(p->src_ranks, p->dst_ranks) + 1, sizeof(*busy));

	out->alone = true;
	for (int64_t i = 0; i < p->n; i++) {
		const struct kvt_batch_time *c = &out->batch[i];
		int64_t rank = how->push ? p->batch[i].src_rank : p->batch[i].dst_rank;
		double off = c->closed
				     ? (double)(c->end - c->closed) / (double)c->closed
				     : 0;

		out->end = later(out->end, c->end);
		out->closed = later(out->closed, c->closed);
		if (busy)
			busy[rank] += c->posted - c->post;
		if (busy)
			out->posting = later(out->posting, busy[rank]);
		if (off < 0)
			off = -off;
		if (off > out->worst)
			out->worst = off;
		for (int64_t j = 0; j < i && out->alone; j++)
			out->alone = p->batch[j].src_rank != p->batch[i].src_rank &&
				     p->batch[j].dst_rank != p->batch[i].dst_rank;
	}
	free(busy);
}

enum kvt_status kvt_clock_run(struct kvt_batch_times *out,
			      const struct kvt_batches *posts,
			      const struct kvt_batch_how *how, struct kvt_error *err)
{
	struct run r = { .posts = posts, .how = how };
	enum kvt_status status;

	*out = (struct kvt_batch_times){ .batch = calloc((size_t)posts->n + 1,
						     sizeof(*out->batch)) };
	r.batch = out->batch;
	status = out->batch ? run_init(&r, err)
			    : kvt_no_memory(err, NULL);
	if (!status) {
		set_posts(&r);
		run_wire(&r);
		set_ends(&r);
		sum_up(out, posts, how);
	}
	run_free(&r);
	if (status)
		kvt_clock_free(out);
	return status;
}

enum kvt_status kvt_clock_run_plain(struct kvt_batch_times *out,
				    const struct kvt_batches *posts,
				    const struct kvt_link *link, struct kvt_error *err)
{
	const struct kvt_batch_how how = {
		.link = *link, .share = link->rate ? KVT_SHARE_FAIR : KVT_SHARE_NONE,
	};

	return kvt_clock_run(out, posts, &how, err);
}

void kvt_clock_free(struct kvt_batch_times *times)
{
	free(times->batch);
	times->batch = NULL;
}
