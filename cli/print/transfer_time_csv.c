/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_time_csv.c - every operation of a transfer with its times
 *
 * The simulation knows when a batch begins and ends.  In between an operation
 * takes its part of the time: as much of it as it would need alone.
 */
#include "cli/cmd/transfer/time.h"
#include "lib/ops/transfer/carries.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define LL(x) ((long long)(x))

struct csv {
	const struct time_report *report;
	const struct sim_group *group;
	struct kvt_pair pair;
	struct op_places places;	/* of the group */
	int64_t n;			/* the batch, by number */
	double whole, done;		/* time of all its operations; of those so far */
	int64_t posted;			/* how many are */
};

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

static void print_op(struct csv *c, const struct kvt_op *op)
{
	const struct clock_batch *b = &c->report->times->batch[c->n];
	const struct kvt_link *link = &c->report->how->link;
	struct op_where where = op_where(&c->places, &c->pair, op);
	double span = c->whole > 0 ? (double)(b->arrived - b->begin) / c->whole : 0;
	int64_t start = b->begin + (int64_t)(c->done * span), end, post;

	c->done += alone_ns(link, op->len);
	end = b->begin + (int64_t)(c->done * span + 0.5);
	post = b->post + (int64_t)((double)(b->posted - b->post) * (double)++c->posted /
				   (double)c->report->posts->batch[c->n].ops);
	plainf("%lld,%lld,%lld,%s,", LL(c->n), LL(c->pair.src_rank), LL(c->pair.dst_rank),
	       c->group->name);
	op_where_print(&where);
	plainf(",%lld,%lld,%lld,%lld,%lld,%lld\n", LL(op->src), LL(op->dst), LL(op->len),
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
		if ((status = op_places_init(&c->places, c->group, err)))
			return status;
		while (!status && kvt_pair_next(&c->pair, &walk, &c->group->xfer))
			if (c->pair.src_rank == b->src_rank &&
			    c->pair.dst_rank == b->dst_rank)
				status = walk_pair(c, print, err);
		op_places_free(&c->places);
	}
	return status;
}

enum kvt_status time_csv(const struct time_report *r, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (r->how->stage)
		return kvt_fail(err, KVT_USAGE,
				"--csv lists operations between caches, not between the buffers of --stage");
	puts("pair,src_rank,dst_rank,group," OP_WHERE_COLUMNS
	     ",src_off,dst_off,len,t_post,t_start,t_end");
	for (int64_t n = 0; !status && n < r->posts->n; n++) {
		struct csv c = { .report = r, .n = n };

		if (!(status = walk_batch(&c, false, err)))
			status = walk_batch(&c, true, err);
	}
	return status;
}
