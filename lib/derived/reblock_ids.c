/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reblock_ids.c - one numbering for groups of one pool
 *
 * Blocks that are gathered get new numbers.  Where no block of one group was a block of
 * another, this stays so: the groups count on, one after the other, and have the null
 * block in common.
 */
#include "lib/derived/reblock.h"

#include <stdlib.h>
#include <string.h>

#include "lib/snapshot/ids.h"

/* The ids that tables of a group have, but for the null block. */
struct used {
	int64_t n;
	struct id_index *list;		/* sorted; one id may be there more than once */
};

static enum kvt_status find_used(struct used *out, const struct kvt_snapshot *s, int g,
				 struct kvt_error *err)
{
	int64_t null = kvt_null_block(s, g), entries = 0;

	for (int64_t r = 0; r < s->nrequests; r++)
		entries += s->request[r].nblocks[g];
	if (!(out->list = calloc((size_t)entries + 1, sizeof(*out->list))))
		return kvt_no_memory(err, NULL);
	for (int64_t r = 0; r < s->nrequests; r++)
		for (int64_t i = 0; i < s->request[r].nblocks[g]; i++) {
			int64_t b = s->request[r].blocks[g][i];

			if (b != null)
				out->list[out->n++] = (struct id_index){
					kvt_block_id(&s->group[g], b), b };
		}
	id_index_sort(out->list, out->n);
	return KVT_OK;
}

static bool apart(const struct used *a, const struct used *b)
{
	for (int64_t i = 0; i < a->n; i++)
		if (id_index_find(b->list, b->n, a->list[i].id))
			return false;
	return a->n && b->n;
}

/* A file that names pools says it; else it is one where no block is of both. */
static bool may_share(const struct kvt_snapshot *s, const struct used *used, int a, int b)
{
	const struct kvt_group *x = &s->group[a], *y = &s->group[b];

	return (kvt_groups_share(x, y) || (!x->pool[0] && !y->pool[0])) &&
	       apart(&used[a], &used[b]);
}

/* The first group of the pool of each. */
static void find_pools(int pool[KVT_MAX_GROUPS], const struct kvt_snapshot *s,
		       const struct used *used)
{
	for (int g = 0; g < s->ngroups; g++) {
		pool[g] = g;
		for (int first = 0; first < g && pool[g] == g; first++) {
			bool all = pool[first] == first;

			for (int i = first; all && i < g; i++)
				all = pool[i] != first || may_share(s, used, i, g);
			if (all)
				pool[g] = first;
		}
	}
}

/* Are the new numbers those of one pool, as nothing moved in it? */
static bool stays(const struct kvt_snapshot *to, const struct kvt_snapshot *from,
		  const struct kvt_reblocked *said, int a, int b)
{
	const int S = KVT_AXIS_S;	/* of at most INT32_MAX slots */

	return said[b].how != KVT_GATHERED &&
	       from->group[a].shape.n[S] * to->group[b].shape.n[S] ==
	       from->group[b].shape.n[S] * to->group[a].shape.n[S];
}

static enum kvt_status number(struct kvt_group *group, int64_t null, uint64_t *next,
			      struct kvt_error *err)
{
	int64_t n = group->shape.n[KVT_AXIS_B];
	uint64_t *ids = calloc((size_t)n + 1, sizeof(*ids));

	if (!ids)
		return kvt_no_memory(err, NULL);
	for (int64_t b = 0; b < n; b++)
		ids[b] = b == null ? 0 : (*next)++;
	free(group->block_ids);
	group->block_ids = ids;
	return KVT_OK;
}

static enum kvt_status number_pool(struct kvt_snapshot *to,
				   const struct kvt_snapshot *from, const int *pool,
				   int first, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	uint64_t next = 0;

	for (int g = first; g < to->ngroups; g++)
		if (pool[g] == first && kvt_null_block(to, g) >= 0)
			next = 1;
	for (int g = first; !status && g < to->ngroups; g++)
		if (pool[g] == first) {
			memcpy(to->group[g].pool, from->group[g].pool,
			       sizeof(to->group[g].pool));
			status = number(&to->group[g], kvt_null_block(to, g), &next, err);
		}
	return status;
}

enum kvt_status number_pools(struct kvt_snapshot *to, const struct kvt_snapshot *from,
			     const struct kvt_reblocked *said, struct kvt_error *err)
{
	struct used used[KVT_MAX_GROUPS] = { { 0, NULL } };
	enum kvt_status status = KVT_OK;
	int pool[KVT_MAX_GROUPS];

	for (int g = 0; !status && g < from->ngroups; g++)
		status = find_used(&used[g], from, g, err);
	if (!status)
		find_pools(pool, from, used);
	for (int first = 0; !status && first < from->ngroups; first++) {
		bool several = false, same = said[first].how != KVT_GATHERED;

		for (int g = first + 1; g < from->ngroups; g++)
			if (pool[g] == first) {
				several = true;
				same &= stays(to, from, said, first, g);
			}
		if (several && !same)
			status = number_pool(to, from, pool, first, err);
	}
	for (int g = 0; g < from->ngroups; g++)
		free(used[g].list);
	return status;
}
