/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reblock_gather.c - blocks of another size, one after the other as requests need
 * them
 *
 * A new block is known by the slots it holds.  Two requests share one if they
 * have the same slots of the old pool there, as far as the shorter of them goes:
 * so whatever the old pool shared stays shared where it fills whole blocks.
 */
#include "lib/derived/reblock.h"

#include <stdlib.h>

/* A new block: the slots of a request from first on. */
struct owner {
	int64_t request, first, count;	/* request -1: the null block */
	int64_t next;			/* of those that begin alike; -1: none */
};

struct gathering {
	struct regroup *g;
	int64_t null;			/* of the old pool; -1: none */
	int64_t nowners;
	struct owner *owner;
	int64_t nbuckets, *bucket;	/* first owner by first slot; -1: none */
};

static uint32_t block_at(const struct gathering *x, int64_t request, int64_t slot)
{
	const struct kvt_request *r = &x->g->from->request[request];

	return r->blocks[x->g->index][slot / x->g->size];
}

/* ---- which new blocks there are ----------------------------------------- */

/* Neither ends inside an old block that the other leaves there. */
static bool same_slots(const struct gathering *x, const struct owner *a,
		       const struct owner *b)
{
	int64_t n = a->count < b->count ? a->count : b->count, size = x->g->size;

	if (a->first % size != b->first % size)
		return false;
	for (int64_t i = 0; i < n; i += size - (a->first + i) % size)
		if (block_at(x, a->request, a->first + i) !=
		    block_at(x, b->request, b->first + i))
			return false;
	return true;
}

static bool is_null(const struct gathering *x, const struct owner *a)
{
	int64_t size = x->g->size;

	for (int64_t i = 0; i < a->count; i += size - (a->first + i) % size)
		if (block_at(x, a->request, a->first + i) != x->null)
			return false;
	return true;
}

/* The block that holds what 'wanted' holds, a new one if need be. */
static int64_t find_owner(struct gathering *x, const struct owner *wanted)
{
	uint64_t key = block_at(x, wanted->request, wanted->first) *
		       (uint64_t)x->g->size +
		       (uint64_t)(wanted->first % x->g->size);
	int64_t *bucket = &x->bucket[key * UINT64_C(0x9e3779b97f4a7c15) %
				     (uint64_t)x->nbuckets];

	for (int64_t i = *bucket; i >= 0; i = x->owner[i].next) {
		struct owner *o = &x->owner[i];

		if (!same_slots(x, o, wanted))
			continue;
		if (wanted->count > o->count) {
			o->request = wanted->request;
			o->first = wanted->first;
			o->count = wanted->count;
		}
		return i;
	}
	x->owner[x->nowners] = *wanted;
	x->owner[x->nowners].next = *bucket;
	*bucket = x->nowners;
	return x->nowners++;
}

static enum kvt_status new_table(struct gathering *x, int64_t r, struct kvt_error *err)
{
	struct regroup *g = x->g;
	struct kvt_request *request = &g->to->request[r];
	int64_t slots = live_slots(group_before(g), &g->from->request[r], g->index);
	int64_t n = (slots + g->slots - 1) / g->slots;
	uint32_t *blocks = malloc(((size_t)n + 1) * sizeof(*blocks));

	if (!blocks)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < n; i++) {
		struct owner wanted = { .request = r, .first = i * g->slots };

		wanted.count = slots - wanted.first < g->slots ?
			       slots - wanted.first : g->slots;
		blocks[i] = x->null >= 0 && is_null(x, &wanted) ? 0 :
			    (uint32_t)find_owner(x, &wanted);
	}
	free(request->blocks[g->index]);
	request->blocks[g->index] = blocks;
	request->nblocks[g->index] = n;
	return KVT_OK;
}

static enum kvt_status count_entries(int64_t *out, const struct regroup *g,
				     struct kvt_error *err)
{
	const struct kvt_group *group = group_before(g);

	*out = 1;
	for (int64_t r = 0; r < g->from->nrequests; r++) {
		int64_t n = live_slots(group, &g->from->request[r], g->index);

		*out += n / g->slots + (n % g->slots != 0);
		if (*out > MAX_ENTRIES)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: requests take more than %d blocks of %lld slots",
					group->id, MAX_ENTRIES, LL(g->slots));
	}
	return KVT_OK;
}

/* ---- where their slots come from ---------------------------------------- */

/* Slots of one owner from 'at' to 'end' of its block. */
static enum kvt_status add_slots(struct gathering *x, const struct owner *o, int64_t at,
				 int64_t end, int64_t *nulls, struct kvt_error *err)
{
	int64_t size = x->g->size, count;

	for (; at < end; at += count) {
		int64_t slot = (o->first + at) % size;
		uint32_t block = block_at(x, o->request, o->first + at);
		enum kvt_status status;

		count = size - slot < end - at ? size - slot : end - at;
		if (block == x->null)
			*nulls += count;
		if ((status = add_span(x->g, (struct map_span){
					block, (uint32_t)slot, (uint32_t)at,
					(uint32_t)count }, err)))
			return status;
	}
	return KVT_OK;
}

static enum kvt_status fill_owner(struct gathering *x, const struct owner *o,
				  int64_t *live, struct kvt_error *err)
{
	struct regroup *g = x->g;
	int64_t nulls = 0, unused = 0, end = o->count, held;
	enum kvt_status status;

	if (o->request < 0)
		return add_span(g, (struct map_span){
				(uint32_t)x->null, 0, 0,
				(uint32_t)(g->size < g->slots ? g->size : g->slots) },
				err);
	held = g->from->request[o->request].nblocks[g->index] * g->size - o->first;
	if (g->keep_stale)
		end = held < g->slots ? held : g->slots;
	if ((status = add_slots(x, o, 0, o->count, &nulls, err)) ||
	    (status = add_slots(x, o, o->count, end, &unused, err)))
		return status;
	*live += o->count - nulls;
	g->said->stale_kept += end - o->count - unused;
	return KVT_OK;
}

static enum kvt_status fill_owners(struct gathering *x, struct kvt_error *err)
{
	struct regroup *g = x->g;
	int64_t live = 0;

	g->map->first = calloc((size_t)x->nowners + 1, sizeof(*g->map->first));
	if (!g->map->first)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < x->nowners; i++) {
		enum kvt_status status = fill_owner(x, &x->owner[i], &live, err);

		if (status)
			return status;
		g->map->first[i + 1] = g->nspans;
	}
	g->said->copied = live;
	for (int64_t b = 0; b < group_before(g)->shape.n[KVT_AXIS_B]; b++) {
		g->said->copied -= g->live[b];
		g->said->dropped += !g->live[b] && b != x->null;
	}
	return KVT_OK;
}

enum kvt_status gather(struct regroup *g, struct kvt_error *err)
{
	struct gathering x = { .g = g, .null = kvt_null_block(g->from, g->index) };
	struct kvt_group *group = &g->to->group[g->index];
	enum kvt_status status;
	int64_t n;

	if ((status = count_entries(&n, g, err)))
		return status;
	x.nbuckets = n;
	x.owner = calloc((size_t)n, sizeof(*x.owner));
	x.bucket = malloc((size_t)n * sizeof(*x.bucket));
	if (!x.owner || !x.bucket)
		status = kvt_no_memory(err, NULL);
	for (int64_t i = 0; !status && i < n; i++)
		x.bucket[i] = -1;
	if (!status && x.null >= 0)
		x.owner[x.nowners++] = (struct owner){ .request = -1 };
	for (int64_t r = 0; !status && r < g->from->nrequests; r++)
		if (g->from->request[r].nblocks[g->index])
			status = new_table(&x, r, err);
	if (!status)
		status = fill_owners(&x, err);
	free(x.owner);
	free(x.bucket);
	free(group->block_ids);
	group->block_ids = NULL;
	group->pool[0] = '\0';		/* of the new numbers this group has them all */
	g->said->how = KVT_GATHERED;
	g->said->blocks_after = x.nowners;
	return status;
}
