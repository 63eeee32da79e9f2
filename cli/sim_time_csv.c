/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_time_csv.c - every operation of a transfer with its times
 *
 * The simulation knows when a batch begins and ends.  In between an operation
 * takes its part of the time: as much of it as it would need alone.
 */
#include "cli/sim_time.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define LL(x) ((long long)(x))

/* Which state of the request a block of the source begins with. */
struct where {
	int64_t block, state, count, at;
};

struct csv {
	const struct time_report *report;
	const struct sim_group *group;
	struct kvt_pair pair;
	struct where *where;		/* owned; of the group, by block */
	int64_t n;			/* the batch, by number */
	double whole, done;		/* time of all its operations; of those so far */
	int64_t posted;			/* how many are */
};

static int by_block(const void *a, const void *b)
{
	const struct where *x = a, *y = b;

	return x->block != y->block ? (x->block > y->block) - (x->block < y->block) :
				      (x->state > y->state) - (x->state < y->state);
}

static enum kvt_status map_blocks(struct csv *c, struct kvt_error *err)
{
	const struct sim_group *g = c->group;
	int64_t at = g->begin;

	c->where = malloc(((size_t)g->norder + 1) * sizeof(*c->where));
	if (!c->where)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t i = 0; i < g->norder; i++) {
		c->where[i] =
			(struct where) { g->order[i].src_block, g->order[i].src_state,
					 g->order[i].count, at };
		at += g->order[i].count;
	}
	qsort(c->where, (size_t)g->norder, sizeof(*c->where), by_block);
	return KVT_OK;
}

/* Of whole blocks, a state may lie behind the last one of the request. */
static int64_t state_of(const struct csv *c, int64_t block, int64_t state)
{
	int64_t low = 0, high = c->group->norder - 1;

	if (c->group->xfer.src.spec.tokens_per_state.num < 0)
		state = 0;
	while (low < high) {
		int64_t mid = (low + high + 1) / 2;
		const struct where *w = &c->where[mid];

		if (w->block < block || (w->block == block && w->state <= state))
			low = mid;
		else
			high = mid - 1;
	}
	return c->where[low].at + state - c->where[low].state;
}

static double alone_ns(const struct kvt_link *link, int64_t len)
{
	struct kvt_link plain = *link;

	plain.setup_ns = 0;
	/* parts of a nanosecond count when there are many */
	plain.op_ps *= 1000;
	if (plain.rate)
		plain.rate = plain.rate / 1000 + !plain.rate;
	return (double)kvt_link_ns(&plain, 1, len) / 1e3;
}

static const char *slice_of(const struct csv *c, int64_t channel)
{
	const struct kvt_exchange *ex = &c->pair.exchange;

	for (int i = 0; i < ex->count; i++)
		if (channel >= ex->range[i].src &&
		    channel < ex->range[i].src + ex->range[i].count)
			return ex->range[i].part;
	return "all";
}

static void print_place(const struct csv *c, const struct kvt_op *op)
{
	const struct kvt_views *views = &c->group->xfer.src.views;
	bool heads = c->pair.exchange.axis == KVT_AXIS_H;
	int64_t a[KVT_NAXES], z[KVT_NAXES], s, t, head, last;

	if (!kvt_views_find(views, op->src, a) ||
	    !kvt_views_find(views, op->src + op->len - 1, z)) {
		printf("all,,,,,,");
		return;
	}
	s = state_of(c, a[KVT_AXIS_B], a[KVT_AXIS_S]);
	t = state_of(c, z[KVT_AXIS_B], z[KVT_AXIS_S]);
	head = heads ? c->pair.global + a[KVT_AXIS_H] - c->pair.exchange.range[0].src :
		       a[KVT_AXIS_D];
	last = heads ? c->pair.global + z[KVT_AXIS_H] - c->pair.exchange.range[0].src :
		       z[KVT_AXIS_D];
	printf("%s,%lld,%lld,%lld,%lld,%lld,%lld", heads ? "head" :
	       slice_of(c, a[KVT_AXIS_D]), LL(a[KVT_AXIS_L]),
	       LL(llabs(z[KVT_AXIS_L] - a[KVT_AXIS_L]) + 1), LL(s < t ? s : t),
	       LL(llabs(t - s) + 1), LL(head < last ? head : last),
	       LL(llabs(last - head) + 1));
}

static void print_op(struct csv *c, const struct kvt_op *op)
{
	const struct clock_batch *b = &c->report->times->batch[c->n];
	const struct kvt_link *link = &c->report->how->link;
	double span = c->whole > 0 ? (double)(b->arrived - b->begin) / c->whole : 0;
	int64_t start = b->begin + (int64_t)(c->done * span), end, post;

	c->done += alone_ns(link, op->len);
	end = b->begin + (int64_t)(c->done * span + 0.5);
	post = b->post + (int64_t)((double)(b->posted - b->post) * (double)++c->posted /
				   (double)c->report->posts->batch[c->n].ops);
	printf("%lld,%lld,%lld,%s,", LL(c->n), LL(c->pair.src_rank), LL(c->pair.dst_rank),
	       c->group->name);
	print_place(c, op);
	printf(",%lld,%lld,%lld,%lld,%lld,%lld\n", LL(op->src), LL(op->dst), LL(op->len),
	       LL(post), LL(start), LL(end > b->arrived ? b->arrived : end));
}

static enum kvt_status walk_pair(struct csv *c, bool print, struct kvt_error *err)
{
	struct kvt_posts posts;
	struct kvt_op op;
	enum kvt_status status;

	status = posts_start(&posts, c->group, &c->pair, c->report->how, err);
	while (!status && kvt_post_next(&op, &posts) && !ferror(stdout)) {
		if (print)
			print_op(c, &op);
		else
			c->whole += alone_ns(&c->report->how->link, op.len);
	}
	return status;
}

/* One batch: the groups one after the other. */
static enum kvt_status walk_batch(struct csv *c, bool print, struct kvt_error *err)
{
	const struct posts_batch *b = &c->report->posts->batch[c->n];
	const struct sim *sim = c->report->sim;
	enum kvt_status status = KVT_OK;

	for (int g = 0; !status && g < sim->ngroups; g++) {
		struct kvt_pair_walk walk = { 0, 0 };

		c->group = &sim->group[g];
		if ((status = map_blocks(c, err)))
			return status;
		while (!status && kvt_pair_next(&c->pair, &walk, &c->group->xfer))
			if (c->pair.src_rank == b->src_rank &&
			    c->pair.dst_rank == b->dst_rank)
				status = walk_pair(c, print, err);
		free(c->where);
		c->where = NULL;
	}
	return status;
}

enum kvt_status time_csv(const struct time_report *r, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (r->how->stage)
		return kvt_fail(err, KVT_USAGE,
				"--csv lists operations between caches, not between the buffers of --stage");
	puts("pair,src_rank,dst_rank,group,slice,layer0,layers,token0,tokens,head0,heads,"
	     "src_off,dst_off,len,t_post,t_start,t_end");
	for (int64_t n = 0; !status && n < r->posts->n; n++) {
		struct csv c = { .report = r, .n = n };

		if (!(status = walk_batch(&c, false, err)))
			status = walk_batch(&c, true, err);
	}
	return status;
}
