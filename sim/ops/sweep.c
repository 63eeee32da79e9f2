/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep.c - deployments as rows: what they post, how long it takes, their ranking
 *
 * A row is one transfer with one stack on one link.  What a stack posts is counted by
 * batches.c and timed by clock.c.  Through buffers, a rank copies all that it has
 * into them first and all that it got out of them last, so that the longest copies of
 * either side are added to the time on the wire.  The ranking compares each row with
 * each other one: quadratic in rows, of which there are some hundreds at most.
 */
#include "sim/ops/sweep.h"

#include <stdlib.h>

#include "lib/base/grow.h"

/* ---- rows ------------------------------------------------------------------ */

enum kvt_status kvt_sweep_add_row(struct kvt_sweep *s, const struct kvt_sweep_row *r,
				  struct kvt_error *err)
{
	if (!KVT_GROW(&s->row, s->n))
		return kvt_no_memory(err, NULL);
	s->row[s->n++] = *r;
	return KVT_OK;
}

static struct kvt_sweep_row row_of(const struct kvt_transfer_plan *transfer,
				   const char *const layout[2], enum kvt_stack stack,
				   int64_t sge)
{
	const struct kvt_transfer_group *g = &transfer->group[0];
	const struct kvt_xfer_side *side[2] = { &g->xfer.src, &g->xfer.dst };
	const struct kvt_layout *own[2] = { &g->src_layout, &g->dst_layout };
	struct kvt_sweep_row r = { .stack = stack, .sge = sge };

	for (int s = 0; s < 2; s++) {
		snprintf(r.layout[s], sizeof(r.layout[s]), "%.60s",
			 layout[s] ? layout[s] : kvt_layout_string(own[s]).s);
		r.block_size[s] = side[s]->spec.block_size;
		r.tp[s] = side[s]->ranks;
	}
	return r;
}

static enum kvt_status add_timed(struct kvt_sweep *s, struct kvt_sweep_row *r,
				 const struct kvt_batches *posts, int64_t copies,
				 struct kvt_error *err)
{
	struct kvt_batch_times times;
	enum kvt_status status = kvt_clock_run_plain(&times, posts, s->link, err);

	if (status)
		return status;
	r->bytes = posts->sum.bytes;
	r->ns = times.end + copies;
	kvt_clock_free(&times);
	return kvt_sweep_add_row(s, r, err);
}

/* ---- what a stack posts ---------------------------------------------------- */

/* The scope that comes next to what a stack posts. */
static enum kvt_scope scope_near(enum kvt_stack stack)
{
	static const enum kvt_scope scopes[] = {
		[KVT_STACK_NIXL] = KVT_SCOPE_LAYER,
		[KVT_STACK_NIXL_PACKED] = KVT_SCOPE_RFC,
		[KVT_STACK_MOONCAKE] = KVT_SCOPE_LAYER, [KVT_STACK_RFC] = KVT_SCOPE_RFC,
		[KVT_STACK_LAYER] = KVT_SCOPE_LAYER, [KVT_STACK_MAX] = KVT_SCOPE_MAX,
	};

	return scopes[stack];
}

/* A stack that merges nothing posts a scope, of which the uncut ops are shown. */
static bool is_scope(const struct kvt_sweep_row *r)
{
	return r->stack >= KVT_STACK_RFC && r->sge == 1;
}

enum kvt_status kvt_sweep_add(struct kvt_sweep *s,
			      const struct kvt_transfer_plan *transfer,
			      const char *const layout[2], enum kvt_stack stack,
			      int64_t sge, struct kvt_error *err)
{
	struct kvt_batch_how how = {
		.posting = { .stack = stack, .sge = sge, .slice = s->link->slice },
	};
	struct kvt_sweep_row r = row_of(transfer, layout, stack, sge);
	struct kvt_error why = { "" };
	struct kvt_batches posts;
	enum kvt_status status = kvt_sweep_why(&r.why, transfer, scope_near(stack), err);

	if (status)
		return status;
	if (stack == KVT_STACK_MOONCAKE && s->link->slice)
		how.posting.fragment = KVT_MOONCAKE_FRAGMENT;
	status = kvt_batches_count(&posts, transfer, &how, &why);
	if (status == KVT_BAD_INPUT && stack < KVT_STACK_RFC) {
		snprintf(r.refused, sizeof(r.refused), "%.200s", why.text);
		return kvt_sweep_add_row(s, &r, err);
	}
	if (status)
		return kvt_fail(err, status, "%.500s", why.text);
	r.ops = is_scope(&r) ? posts.sum.merged : posts.sum.ops;
	status = add_timed(s, &r, &posts, 0, err);
	kvt_batches_free(&posts);
	return status;
}

/* ---- buffers --------------------------------------------------------------- */

/* The longest that a rank copies: into its buffers, and out of them. */
static int64_t copy_ns(const struct kvt_batches *p, int64_t rate)
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

enum kvt_status kvt_sweep_add_staged(struct kvt_sweep *s,
				     const struct kvt_transfer_plan *transfer,
				     const char *const layout[2], enum kvt_stack stack,
				     int64_t sge, const struct kvt_sweep_stage *stage,
				     struct kvt_error *err)
{
	const struct kvt_batch_how how = {
		.posting = { .stack = KVT_STACK_RFC, .slice = s->link->slice },
		.stage = stage->size,
	};
	struct kvt_sweep_row r = row_of(transfer, layout, stack, sge);
	struct kvt_batches posts;
	enum kvt_status status;
	int64_t copies;

	if ((status = kvt_sweep_why(&r.why, transfer, scope_near(stack), err)) ||
	    (status = kvt_batches_count(&posts, transfer, &how, err)))
		return status;
	for (int64_t i = 0; i < posts.n; i++)
		r.ops += posts.batch[i].bytes / stage->size +
			 !!(posts.batch[i].bytes % stage->size);
	r.stage = stage->size;
	r.copied = 2 * posts.sum.bytes;
	if ((copies = copy_ns(&posts, stage->copy_rate)) < 0)
		status = kvt_no_memory(err, NULL);
	else
		status = add_timed(s, &r, &posts, copies, err);
	kvt_batches_free(&posts);
	return status;
}

/* ---- ranking --------------------------------------------------------------- */

/* What a stack refuses comes last. */
static bool slower(const struct kvt_sweep_row *a, const struct kvt_sweep_row *b)
{
	if (!a->refused[0] != !b->refused[0])
		return a->refused[0];
	return a->ns > b->ns || (a->ns == b->ns && a->ops > b->ops);
}

void kvt_sweep_rank(struct kvt_sweep *s)
{
	for (int64_t i = 1; i < s->n; i++) {
		struct kvt_sweep_row r = s->row[i];
		int64_t at = i;

		for (; at && slower(&s->row[at - 1], &r); at--)
			s->row[at] = s->row[at - 1];
		s->row[at] = r;
	}
	for (int64_t i = 0; i < s->n; i++) {
		const struct kvt_sweep_row *r = &s->row[i];
		bool beaten = r->refused[0];

		for (int64_t j = 0; j < s->n; j++) {
			const struct kvt_sweep_row *o = &s->row[j];

			beaten |= !o->refused[0] && o->ops <= r->ops && o->ns <= r->ns &&
				  o->copied <= r->copied &&
				  (o->ops < r->ops || o->ns < r->ns ||
				   o->copied < r->copied);
		}
		s->row[i].pareto = !beaten;
	}
}

void kvt_sweep_free(struct kvt_sweep *s)
{
	free(s->row);
	s->row = NULL;
	s->n = 0;
}
