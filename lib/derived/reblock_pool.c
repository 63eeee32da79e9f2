/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reblock_pool.c - a pool that is cut anew where it lies
 *
 *	larger	blocks k*i .. k*i + k - 1 become block i: ids must follow each other
 *		from a multiple of k, and so must every k entries of a table
 *	smaller	block b becomes b*k .. b*k + k - 1, wherever it is used
 *
 * New ids are the old ones divided, or times k.  Nothing moves: spans say which slots of
 * which old blocks a new one has.  What a table does not fill is left out of it.
 */
#include "lib/derived/reblock.h"

#include <stdlib.h>

/* ---- can the pool stay where it is? ------------------------------------- */

/* k blocks whose numbers in the engine's pool are those of one larger block. */
static enum kvt_status check_pool(const struct regroup *g, int64_t k,
				  struct kvt_error *why)
{
	const struct kvt_group *group = group_before(g);
	int64_t nblocks = group->shape.n[KVT_AXIS_B];

	if (nblocks % k)
		return kvt_fail(why, KVT_BAD_INPUT,
				"%lld blocks are not a multiple of %lld", LL(nblocks), LL(k));
	for (int64_t b = 0; b < nblocks; b++) {
		uint64_t first = kvt_block_id(group, b - b % k);
		uint64_t want = first + (uint64_t)(b % k);

		if (first % (uint64_t)k || kvt_block_id(group, b) != want)
			return kvt_fail(why, KVT_BAD_INPUT,
					"expected block %llu, found %llu",
					(unsigned long long)(want - first % (uint64_t)k),
					(unsigned long long)kvt_block_id(group, b));
	}
	return KVT_OK;
}

/*
 * Entries that the tokens of a request need.  More were allocated ahead; fewer are
 * left by a window, whose table holds the last ones.
 */
static int64_t needed(const struct regroup *g, const struct kvt_request *request,
		      int64_t slots)
{
	int64_t tps = group_before(g)->tokens_per_slot;
	int64_t n = request->ntokens / tps + (request->ntokens % tps != 0);

	return n / slots + (n % slots != 0);
}

/* Every k entries of a table must be one larger block, in order. */
static enum kvt_status check_entry(const struct regroup *g, int64_t k,
				   const struct kvt_request *request, int64_t i,
				   struct kvt_error *why)
{
	const uint32_t *blocks = request->blocks[g->index];
	int64_t null = kvt_null_block(g->from, g->index), b = blocks[i];
	unsigned long long id = kvt_block_id(group_before(g), b);

	if (null >= 0 && b / k == null / k)
		return kvt_fail(why, KVT_BAD_INPUT,
				"request %s has block %llu, which would be joined with the null block",
				request->id, id);
	if (i % k == 0 && b % k)
		return kvt_fail(why, KVT_BAD_INPUT,
				"entry %lld of request %s is block %llu, not a multiple of %lld",
				LL(i), request->id, id, LL(k));
	if (i % k && b != (int64_t)blocks[i - 1] + 1)
		return kvt_fail(why, KVT_BAD_INPUT,
				"entry %lld of request %s is block %llu, not the one after block %llu",
				LL(i), request->id, id,
				(unsigned long long)kvt_block_id(group_before(g),
								    blocks[i - 1]));
	return KVT_OK;
}

static enum kvt_status check_tables(const struct regroup *g, int64_t k,
				    struct kvt_error *why)
{
	int64_t null = kvt_null_block(g->from, g->index);

	for (int64_t r = 0; r < g->from->nrequests; r++) {
		const struct kvt_request *request = &g->from->request[r];
		int64_t n = request->nblocks[g->index];
		int64_t lost = needed(g, request, g->size) - n;

		if (n && lost > 0 && lost % k)
			return kvt_fail(why, KVT_BAD_INPUT,
					"the table of request %s begins with its block %lld, not a multiple of %lld",
					request->id, LL(lost), LL(k));
		for (int64_t i = 0; i < n; i++)
			if (check_entry(g, k, request, i, why))
				return KVT_BAD_INPUT;
	}
	if (null < 0 || null % k == 0)
		return KVT_OK;
	return kvt_fail(why, KVT_BAD_INPUT, "block %llu is the null block",
			(unsigned long long)kvt_block_id(group_before(g), null));
}

enum kvt_status can_regroup(const struct regroup *g, struct kvt_error *why)
{
	int64_t k = g->slots / g->size;
	enum kvt_status status;

	if (g->size % g->slots == 0)
		return KVT_OK;
	if (g->slots % g->size)
		return kvt_fail(why, KVT_BAD_INPUT,
				"neither of %lld and %lld divides the other",
				LL(g->size), LL(g->slots));
	status = check_pool(g, k, why);
	return status || !g->live ? status : check_tables(g, k, why);
}

/* ---- the pool, cut anew ------------------------------------------------- */

static enum kvt_status add_rows(struct regroup *g, int64_t block, int64_t slot,
				int64_t at, int64_t count, struct kvt_error *err)
{
	int64_t end = slot + count;

	if (g->live && !g->keep_stale && block != kvt_null_block(g->from, g->index) &&
	    end > g->live[block])
		end = g->live[block];
	if (end <= slot)
		return KVT_OK;
	return add_span(g, (struct map_span){ (uint32_t)block, (uint32_t)slot,
						 (uint32_t)at, (uint32_t)(end - slot) },
			err);
}

static enum kvt_status cut_pool(struct regroup *g, int64_t nblocks, struct kvt_error *err)
{
	int64_t count = g->size < g->slots ? g->size : g->slots;
	enum kvt_status status;

	g->map->first = calloc((size_t)nblocks + 1, sizeof(*g->map->first));
	if (!g->map->first)
		return kvt_no_memory(err, NULL);
	for (int64_t b = 0; b < nblocks; b++) {
		for (int64_t at = 0; at < g->slots; at += count) {
			int64_t row = b * g->slots + at;

			if ((status = add_rows(g, row / g->size, row % g->size, at,
					       count, err)))
				return status;
		}
		g->map->first[b + 1] = g->nspans;
	}
	return KVT_OK;
}

/* Of 'n' entries of new blocks, those behind the last token. */
static int64_t spare(const struct regroup *g, const struct kvt_request *request,
		     int64_t n)
{
	int64_t had = request->nblocks[g->index], end = needed(g, request, g->slots);
	int64_t lost = needed(g, request, g->size) - had;

	/* what a window lost in front counts, too */
	if (lost > 0)
		n += lost * g->size / g->slots;
	return n > end ? n - end : 0;
}

/*
 * Entry i of the new table: a block of k, or the (i % k)th part of one.  It ends
 * with the last token, or there would be more entries each time.
 */
static enum kvt_status cut_table(struct regroup *g, struct kvt_request *request,
				 struct kvt_error *err)
{
	int64_t had = request->nblocks[g->index], n, parts = g->size / g->slots;
	int64_t k = g->slots / g->size, null = kvt_null_block(g->from, g->index);
	uint32_t *old = request->blocks[g->index], *blocks;

	if (!had)
		return KVT_OK;
	if (parts && had > MAX_ENTRIES / parts)
		return kvt_fail(err, KVT_BAD_INPUT,
				"request %s: %lld blocks become more than %d",
				request->id, LL(had), MAX_ENTRIES);
	n = parts ? had * parts : (had - 1) / k + 1;
	if (g->size != g->slots)
		n -= spare(g, request, n);
	if (!(blocks = malloc(((size_t)n + 1) * sizeof(*blocks))))
		return kvt_no_memory(err, NULL);
	/* the null block is one block still: its first part */
	for (int64_t i = 0; i < n; i++)
		blocks[i] = (uint32_t)(!parts ? old[i * k] / k :
				       old[i / parts] == null ? null * parts :
				       old[i / parts] * parts + i % parts);
	free(old);
	request->blocks[g->index] = blocks;
	request->nblocks[g->index] = n;
	return KVT_OK;
}

static uint64_t *cut_ids(const struct regroup *g, int64_t nblocks)
{
	uint64_t *ids = calloc((size_t)nblocks + 1, sizeof(*ids));

	for (int64_t b = 0; ids && b < nblocks; b++) {
		int64_t row = b * g->slots;
		uint64_t id = group_before(g)->block_ids[row / g->size];

		ids[b] = g->slots < g->size ?
			 id * (uint64_t)(g->size / g->slots) +
			 (uint64_t)(row % g->size / g->slots) :
			 id / (uint64_t)(g->slots / g->size);
	}
	return ids;
}

enum kvt_status regroup(struct regroup *g, struct kvt_error *err)
{
	struct kvt_group *group = &g->to->group[g->index];
	int64_t n = group->shape.n[KVT_AXIS_B] * g->size / g->slots;
	enum kvt_status status = KVT_OK;

	if (n > MAX_ENTRIES)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld blocks, at most %d are supported",
				group->id, LL(n), MAX_ENTRIES);
	if (group->block_ids) {
		free(group->block_ids);
		if (!(group->block_ids = cut_ids(g, n)))
			return kvt_no_memory(err, NULL);
	}
	for (int64_t r = 0; !status && r < g->to->nrequests; r++)
		status = cut_table(g, &g->to->request[r], err);
	if (!status)
		status = cut_pool(g, n, err);
	g->said->how = KVT_REGROUPED;
	g->said->blocks_after = n;
	g->said->stale_kept = g->keep_stale ? g->said->stale : 0;
	return status;
}
