/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - which block of a pool is whose, in runs of neighbours
 *
 * A pool may have a million blocks, but those of a request lie together more often than
 * not: so runs are few, and whoever draws them opens only what is looked at.
 */
#include <stdlib.h>

#include "lib/base/grow.h"
#include "lib/base/order.h"
#include "lib/ops/view/view.h"

struct owner {
	enum kvt_view_use use;
	int64_t request;
};

/* Are all tokens of the i-th block of a request where it has no slot? */
static bool is_passed(const struct kvt_request *q, const struct kvt_group *group, int g,
		      int64_t i)
{
	int64_t begin = q->first_token - kvt_request_skip(q, group) +
			i * group->block_size, end = begin + group->block_size;
	struct kvt_range live;

	if (!group->block_size || !q->nholes)
		return false;
	if (begin < q->first_token)
		begin = q->first_token;
	if (end > q->first_token + q->ntokens)
		end = q->first_token + q->ntokens;
	live = kvt_request_live(q, g, begin, end);
	return live.begin >= live.end;
}

static void mark(struct owner *owner, struct kvt_view_pool *pool,
		 const struct kvt_snapshot *s, int g)
{
	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_request *q = &s->request[r];

		for (int64_t i = 0; i < q->nblocks[g]; i++) {
			struct owner *o = &owner[q->blocks[g][i]];

			if (o->use == KVT_VIEW_NULL)
				continue;
			if (o->use == KVT_VIEW_FREE) {
				o->use = is_passed(q, &s->group[g], g, i) ?
					 KVT_VIEW_PASSED : KVT_VIEW_OWNED;
				o->request = r;
				pool->used++;
			} else if (o->request != r && o->use != KVT_VIEW_SHARED) {
				o->use = KVT_VIEW_SHARED;
				pool->shared++;
			}
		}
	}
}

struct place {
	uint64_t id;
	int64_t block;
};

static void mark_table(struct owner *owner, const struct place *at, int64_t n,
		       const struct kvt_snapshot *s, int other, int64_t r)
{
	for (int64_t i = 0; i < s->request[r].nblocks[other]; i++) {
		const struct place key = { .id = kvt_block_id(
			&s->group[other], s->request[r].blocks[other][i]) };
		const struct place *found = bsearch(&key, at, (size_t)n, sizeof(*at),
						    kvt_by_uint64);
		struct owner *o = found ? &owner[found->block] : NULL;

		if (o && o->use == KVT_VIEW_FREE)
			*o = (struct owner){ KVT_VIEW_OTHER, r };
	}
}

/* Groups of one pool share its ids: a block that this one has not may be another's. */
static bool mark_others(struct owner *owner, const struct kvt_snapshot *s, int g)
{
	const struct kvt_group *group = &s->group[g];
	int64_t n = group->shape.n[KVT_AXIS_B];
	struct place *at = NULL;

	for (int other = 0; other < s->ngroups; other++) {
		if (other == g || !kvt_groups_share(group, &s->group[other]))
			continue;
		if (!at) {
			if (!(at = calloc((size_t)n + 1, sizeof(*at))))
				return false;
			for (int64_t b = 0; b < n; b++)
				at[b] = (struct place){ kvt_block_id(group, b), b };
			qsort(at, (size_t)n, sizeof(*at), kvt_by_uint64);
		}
		for (int64_t r = 0; r < s->nrequests; r++)
			mark_table(owner, at, n, s, other, r);
	}
	free(at);
	return true;
}

/* Neighbours in the dump, and by their ids. */
static bool add_runs(struct kvt_view_pool *pool, const struct owner *owner,
		     const struct kvt_group *group)
{
	int64_t n = group->shape.n[KVT_AXIS_B];

	for (int64_t b = 0; b < n; b++) {
		struct kvt_view_run *last = b ? &pool->run[pool->nruns - 1] : NULL;

		if (last && owner[b].use == last->use &&
		    owner[b].request == last->request &&
		    kvt_block_id(group, b) == kvt_block_id(group, b - 1) + 1) {
			last->count++;
			continue;
		}
		if (!KVT_GROW(&pool->run, pool->nruns))
			return false;
		pool->run[pool->nruns++] = (struct kvt_view_run){
			b, 1, owner[b].use, owner[b].request };
	}
	return true;
}

enum kvt_status kvt_view_pool(struct kvt_view_pool *pool, const struct kvt_snapshot *s,
			      int g, struct kvt_error *err)
{
	int64_t n = s->group[g].shape.n[KVT_AXIS_B], null = kvt_null_block(s, g);
	struct owner *owner = calloc((size_t)n + 1, sizeof(*owner));
	bool good = owner != NULL;

	*pool = (struct kvt_view_pool){ .known = s->nrequests > 0 };
	for (int64_t b = 0; good && b < n; b++)
		owner[b] = (struct owner){
			b == null ? KVT_VIEW_NULL : KVT_VIEW_FREE, -1 };
	if (good)
		mark(owner, pool, s, g);
	good = good && mark_others(owner, s, g);
	good = good && add_runs(pool, owner, &s->group[g]);
	free(owner);
	return good ? KVT_OK : kvt_no_memory(err, NULL);
}

void kvt_view_pool_free(struct kvt_view_pool *pool)
{
	free(pool->run);
	*pool = (struct kvt_view_pool){ 0 };
}
