/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_correspond.c - which states, heads and channels of two sides are the same */
#include "lib/ops/compare/transfer.h"

#include <stdlib.h>
#include <string.h>

#define LL(x) ((long long)(x))

/* ---- which states belong together ------------------------------------ */

static enum kvt_status add_pair(struct verifying *v, const struct target_span *w,
				struct kvt_error *err)
{
	int64_t states = group_of(v, 0)->shape.n[KVT_AXIS_S];
	enum kvt_status status = span_list_add(&v->pairs, w, err);

	if (status)
		return status;
	memset(v->arrived + w->to * states + w->span.at, 1, w->span.count);
	return KVT_OK;
}

/* One table, and the state of the request that it begins with. */
struct table {
	const uint32_t *blocks;
	int64_t n, states, first;
};

static struct table table_of(const struct kvt_table *t)
{
	return (struct table){ t->blocks, t->nblocks, t->each, t->first * t->each };
}

static enum kvt_status pair_states(struct verifying *v, const struct table *a,
				   const struct table *b, int64_t begin, int64_t end,
				   struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = begin, n; !status && i < end; i += n) {
		int64_t x = i - a->first, y = i - b->first;
		struct target_span w;

		if (x / a->states >= a->n || y / b->states >= b->n)
			return kvt_fail(err, KVT_MISMATCH, "%s: state %lld has no block",
					group_of(v, 0)->id, LL(i));
		n = a->states - x % a->states;
		n = n < b->states - y % b->states ? n : b->states - y % b->states;
		n = n < end - i ? n : end - i;
		w = (struct target_span){
			{ a->blocks[x / a->states], (uint32_t)(x % a->states),
			  (uint32_t)(y % b->states), (uint32_t)n },
			b->blocks[y / b->states],
		};
		status = add_pair(v, &w, err);
	}
	return status;
}

/* A block of a recurrent group is one state; engines move the last one. */
static enum kvt_status pair_blocks(struct verifying *v, const struct kvt_request *a,
				 const struct kvt_request *b, struct kvt_error *err)
{
	int64_t n = a->nblocks[v->src_group], m = b->nblocks[v->group];
	const int64_t states = group_of(v, 0)->shape.n[KVT_AXIS_S];
	struct target_span w = { .span.count = (uint32_t)states };

	bool all = v->sides->all_states && n == m;
	enum kvt_status status = KVT_OK;

	if (!n || !m)
		return KVT_OK;
	for (int64_t i = all ? 0 : n - 1; !status && i < n; i++) {
		w.span.block = a->blocks[v->src_group][i];
		w.to = b->blocks[v->group][all ? i : m - 1];
		status = add_pair(v, &w, err);
	}
	return status;
}

static enum kvt_status pair_request(struct verifying *v, const struct kvt_request *a,
				    const struct kvt_request *b, struct kvt_error *err)
{
	const struct kvt_table from = kvt_table_of(kvt_ranks_snapshot(&v->sides->src, 0),
						   v->src_group, a);
	const struct kvt_table to = kvt_table_of(kvt_ranks_snapshot(v->after, 0),
						 v->group, b);
	int64_t per = to.group->tokens_per_state, end;
	int64_t cached = v->sides->cached < a->ntokens ? v->sides->cached : a->ntokens;
	const struct table src = table_of(&from), dst = table_of(&to);
	int64_t room = dst.first + dst.n * dst.states;
	enum kvt_status status = KVT_OK;
	struct kvt_range live;

	if (per < 0)
		return pair_blocks(v, a, b, err);
	for (int64_t at = (a->first_token + cached) / per; !status; at = live.end) {
		live = kvt_table_next(&from, at);
		end = live.end;
		if (live.begin == end)
			break;
		if (v->sides->whole && end == from.states.end) {
			end = src.first + (end - src.first + src.states - 1) /
					  src.states * src.states;
			end = end < room ? end : room;
		}
		status = pair_states(v, &src, &dst, live.begin, end, err);
	}
	return status;
}

const struct kvt_request *request_named(const struct kvt_snapshot *s, const char *id)
{
	for (int64_t r = 0; r < s->nrequests; r++)
		if (!strcmp(s->request[r].id, id))
			return &s->request[r];
	return NULL;
}

bool is_moved(const struct kvt_sides *sides, const char *id)
{
	return !sides->request || !strcmp(sides->request, id);
}

enum kvt_status pair_requests(struct verifying *v, struct kvt_error *err)
{
	const struct kvt_snapshot *src = kvt_ranks_snapshot(&v->sides->src, 0);
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < src->nrequests; i++) {
		const struct kvt_request *a = &src->request[i], *b;

		b = request_named(kvt_ranks_snapshot(v->after, 0), a->id);
		if (b && is_moved(v->sides, a->id))
			status = pair_request(v, a, b, err);
	}
	return status;
}

/* ---- which heads and channels ---------------------------------------- */

static const struct kvt_component *part_at(const struct kvt_group *g, int64_t d)
{
	for (int i = 0; i < g->ncomponents; i++)
		if (d >= g->component[i].start &&
		    d < g->component[i].start + g->component[i].length)
			return &g->component[i];
	return NULL;
}

int64_t channel_in(const struct kvt_group *b, const struct kvt_group *a, int64_t d)
{
	const struct kvt_component *x = part_at(a, d);
	int64_t global = x ? x->global_start + d - x->start : -1;

	for (int i = 0; x && i < b->ncomponents; i++) {
		const struct kvt_component *y = &b->component[i];

		if (!strcmp(x->name, y->name) && global >= y->global_start &&
		    global < y->global_start + y->length)
			return y->start + global - y->global_start;
	}
	return -1;
}

static enum kvt_status find_owner(struct owner *out, const struct verifying *v, int rank,
				  int64_t i, struct kvt_error *err)
{
	const struct kvt_group *g = group_of(v, rank);
	enum kvt_axis axis = is_conv(v) ? KVT_AXIS_D : KVT_AXIS_H;

	for (int r = 0; r < v->sides->src.n; r++) {
		const struct kvt_group *s =
			&kvt_ranks_snapshot(&v->sides->src, r)->group[v->src_group];
		int64_t at = is_conv(v) ? channel_in(s, g, i) :
					  g->head_start + i - s->head_start;

		if (at < 0 || at >= s->shape.n[axis])
			continue;
		*out = (struct owner){ r, at };
		return KVT_OK;
	}
	return kvt_fail(err, KVT_MISMATCH,
			"%s: rank %d has %s %lld, which no rank of the source has",
			g->id, rank, is_conv(v) ? "channel" : "head",
			LL(kvt_head_id(g, i)));
}

enum kvt_status find_owners(struct verifying *v, struct kvt_error *err)
{
	int ranks = v->after->n;
	enum kvt_status status = KVT_OK;

	v->nowners = group_of(v, 0)->shape.n[is_conv(v) ? KVT_AXIS_D : KVT_AXIS_H];
	v->owner = calloc((size_t)(ranks * v->nowners) + 1, sizeof(*v->owner));
	if (!v->owner)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int r = 0; r < ranks; r++)
		for (int64_t i = 0; !status && i < v->nowners; i++)
			status = find_owner(&v->owner[r * v->nowners + i], v, r, i, err);
	return status;
}
