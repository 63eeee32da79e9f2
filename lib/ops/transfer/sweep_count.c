/* SPDX-License-Identifier: Apache-2.0 */
/* sweep_count.c - the operations of a row, and how long they take */
#include <stdlib.h>

#include "lib/ops/transfer/pairs.h"
#include "lib/ops/transfer/posts.h"
#include "lib/ops/transfer/sweep.h"

static enum kvt_status add_row(struct sweep *s, const struct sweep_row *r,
			       struct kvt_error *err)
{
	if (s->n == s->room) {
		int64_t room = s->room ? 2 * s->room : 32;
		void *more = realloc(s->row, (size_t)room * sizeof(*s->row));

		if (!more)
			return kvt_fail(err, KVT_SYSTEM, "out of memory");
		s->row = more;
		s->room = room;
	}
	s->row[s->n++] = *r;
	return KVT_OK;
}

static enum kvt_status add_timed(struct sweep *s, struct sweep_row *r,
				 struct sim_pairs *p, int64_t copies,
				 struct kvt_error *err)
{
	enum kvt_status status = sim_pairs_time(p, s->link, err);

	if (status)
		return status;
	r->ops = p->ops;
	r->bytes = p->bytes;
	r->ns = p->duration + copies;
	return add_row(s, r, err);
}

/* ---- what a stack posts ---------------------------------------------------- */

enum kvt_scope sweep_scope(enum kvt_stack stack)
{
	static const enum kvt_scope scopes[] = {
		[KVT_STACK_NIXL] = KVT_SCOPE_LAYER,
		[KVT_STACK_NIXL_PACKED] = KVT_SCOPE_RFC,
		[KVT_STACK_MOONCAKE] = KVT_SCOPE_LAYER, [KVT_STACK_RFC] = KVT_SCOPE_RFC,
		[KVT_STACK_LAYER] = KVT_SCOPE_LAYER, [KVT_STACK_MAX] = KVT_SCOPE_MAX,
	};

	return scopes[stack];
}

static enum kvt_status take_posts(struct sim_pairs *out, const struct posts *posts,
				  struct kvt_error *err)
{
	struct sim_pairs p = { .n = posts->n, .room = posts->n,
			       .src_ranks = posts->src_ranks,
			       .dst_ranks = posts->dst_ranks, .ops = posts->sum.ops,
			       .bytes = posts->sum.bytes };

	if (!(p.batch = calloc((size_t)p.n + 1, sizeof(*p.batch))))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t i = 0; i < p.n; i++) {
		const struct posts_batch *b = &posts->batch[i];

		/* they are cut as the link wants them already */
		p.batch[i] = (struct sim_batch){ .src_rank = b->src_rank,
						 .dst_rank = b->dst_rank,
						 .ops = b->ops, .bytes = b->bytes,
						 .link_ops = b->ops };
	}
	*out = p;
	return KVT_OK;
}

static enum kvt_status count_posts(struct sim_pairs *out, const struct sim *sim,
				   const struct sweep_row *r, const struct kvt_link *link,
				   struct kvt_error *err)
{
	struct posts_how how = {
		.posting = { .stack = r->stack, .sge = r->sge, .slice = link->slice },
	};
	struct posts posts;
	enum kvt_status status;

	if (r->stack == KVT_STACK_MOONCAKE && link->slice)
		how.posting.fragment = KVT_MOONCAKE_FRAGMENT;
	if ((status = posts_count(&posts, sim, &how, err)))
		return status;
	status = take_posts(out, &posts, err);
	posts_free(&posts);
	return status;
}

enum kvt_status sweep_posts(struct sweep *s, const struct sim *sim, struct sweep_row *r,
			    struct kvt_error *err)
{
	struct kvt_error why = { "" };
	struct sim_pairs p;
	bool scope = r->stack >= KVT_STACK_RFC && r->sge == 1;
	enum kvt_status status =
		scope ? sim_pairs_count(&p, sim, sweep_scope(r->stack), s->link, &why) :
			count_posts(&p, sim, r, s->link, &why);

	if (status == KVT_BAD_INPUT && r->stack < KVT_STACK_RFC) {
		snprintf(r->refused, sizeof(r->refused), "%.200s", why.text);
		return add_row(s, r, err);
	}
	if (status)
		return kvt_fail(err, status, "%.500s", why.text);
	status = add_timed(s, r, &p, 0, err);
	sim_pairs_free(&p);
	return status;
}

/* ---- buffers --------------------------------------------------------------- */

/* The longest that a rank copies: into its buffers, and out of them. */
static int64_t copy_ns(const struct sim_pairs *p, int64_t rate)
{
	int64_t *sum = calloc((size_t)(p->src_ranks + p->dst_ranks) + 1, sizeof(*sum));
	int64_t most[2] = { 0, 0 };

	if (!sum)
		return -1;
	for (int64_t i = 0; i < p->n; i++) {
		sum[p->batch[i].src_rank] += p->batch[i].bytes;
		sum[p->src_ranks + p->batch[i].dst_rank] += p->batch[i].bytes;
	}
	for (int64_t i = 0; i < p->src_ranks + p->dst_ranks; i++)
		if (sum[i] > most[i >= p->src_ranks])
			most[i >= p->src_ranks] = sum[i];
	free(sum);
	return (int64_t)((double)(most[0] + most[1]) / (double)rate + .5);
}

enum kvt_status sweep_staged(struct sweep *s, const struct sim *sim,
			     const struct sweep_row *row, const struct sweep_stage *stage,
			     struct kvt_error *err)
{
	struct sweep_row r = *row;
	struct sim_pairs p;
	enum kvt_status status = sim_pairs_count(&p, sim, KVT_SCOPE_RFC, s->link, err);
	int64_t copies;

	if (status)
		return status;
	sim_pairs_stage(&p, stage->size, s->link);
	r.stage = stage->size;
	r.copied = 2 * p.bytes;
	r.refused[0] = '\0';
	if ((copies = copy_ns(&p, stage->copy_rate)) < 0)
		status = kvt_fail(err, KVT_SYSTEM, "out of memory");
	else
		status = add_timed(s, &r, &p, copies, err);
	sim_pairs_free(&p);
	return status;
}
