/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reblock.c - which way each group goes to another block size
 *
 *	pool	a block becomes several of the pool, where it lies, or neighbours one;
 *		block ids follow by a rule (reblock_pool.c)
 *	gather	blocks are made anew in the order of requests (reblock_gather.c)
 *
 * A pool is cut where its blocks can be divided, or its neighbours joined, without a
 * request noticing; else each request's slots are gathered.  What no request has is
 * counted as stale.
 */
#include "lib/derived/reblock.h"

#include <stdlib.h>
#include <string.h>

/* ---- what the tables say ------------------------------------------------ */

static bool has_tables(const struct regroup *g)
{
	for (int64_t r = 0; r < g->from->nrequests; r++)
		if (g->from->request[r].nblocks[g->index])
			return true;
	return false;
}

/*
 * A block that is at two places of a request cannot be right at both; only the
 * null block may be.  Entries behind the last token are no one's.
 */
static enum kvt_status count_live(struct regroup *g, const struct kvt_request *request,
				  int64_t *seen, int64_t mark, struct kvt_error *err)
{
	const uint32_t *blocks = request->blocks[g->index];
	int64_t slots = live_slots(group_before(g), request, g->index), left;

	for (int64_t i = 0; (left = slots - i * g->size) > 0; i++) {
		uint32_t b = blocks[i];
		uint64_t id = kvt_block_id(group_before(g), b);

		if ((int64_t)b == kvt_null_block(g->from, g->index))
			continue;
		if (seen[b] == mark)
			return kvt_fail(err, KVT_BAD_INPUT,
					"request %s: block %llu of %s is listed twice in its table",
					request->id, (unsigned long long)id,
					group_before(g)->id);
		seen[b] = mark;
		if (left > g->size)
			left = g->size;
		if (g->live[b] < left)
			g->live[b] = (uint32_t)left;
	}
	return KVT_OK;
}

static enum kvt_status find_live(struct regroup *g, struct kvt_error *err)
{
	int64_t nblocks = group_before(g)->shape.n[KVT_AXIS_B], *seen;
	enum kvt_status status = KVT_OK;

	if (!has_tables(g))
		return KVT_OK;
	g->live = calloc((size_t)nblocks + 1, sizeof(*g->live));
	seen = calloc((size_t)nblocks + 1, sizeof(*seen));
	if (!g->live || !seen)
		status = kvt_no_memory(err, NULL);
	for (int64_t r = 0; !status && r < g->from->nrequests; r++)
		status = count_live(g, &g->from->request[r], seen, r + 1, err);
	free(seen);
	for (int64_t b = 0; !status && b < nblocks; b++)
		if (b != kvt_null_block(g->from, g->index))
			g->said->stale += g->size - g->live[b];
	return status;
}

/* What a window still has begins nobody knows where inside a larger block. */
static enum kvt_status check_windows(const struct regroup *g, struct kvt_error *err)
{
	const struct kvt_group *group = group_before(g);

	for (int64_t r = 0; r < g->from->nrequests; r++) {
		const struct kvt_request *request = &g->from->request[r];
		int64_t n = request->nblocks[g->index], size = group->block_size;

		if (!n || group->tokens_per_slot < 1 || g->slots == g->size ||
		    (request->ntokens - 1) / size < n)
			continue;
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the table of request %s has only %lld of its %lld blocks (a window); the new block size must divide %lld",
				group->id, request->id, LL(n),
				LL((request->ntokens - 1) / size + 1), LL(size));
	}
	return KVT_OK;
}

/* ---- one group ---------------------------------------------------------- */

/* Gives the group its new shape, and a layout that can hold it. */
static enum kvt_status reshape(struct regroup *g,
			       const struct kvt_reblock_options *options,
			       struct kvt_error *err)
{
	struct kvt_group *group = &g->to->group[g->index];
	struct kvt_box whole;
	struct kvt_views views;
	struct kvt_error why;

	kvt_group_drop_names(group);
	group->shape.n[KVT_AXIS_B] = g->said->blocks_after;
	group->shape.n[KVT_AXIS_S] = g->slots;
	/* counted anew where the tables tell */
	free(group->block_valid);
	group->block_valid = NULL;
	if (group->tokens_per_slot > 0)
		group->block_size = g->slots * group->tokens_per_slot;
	whole = kvt_box_whole(&group->shape);
	if (!kvt_layout_views(&views, &group->layout, &whole, group->shape.elem, &why))
		return KVT_OK;
	if (!options->layout)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: layout %s cannot hold blocks of %lld slots: %s; choose another with --to",
				group->id, kvt_layout_string(&group->layout).s,
				LL(g->slots), why.text);
	group->layout = *options->layout;
	return KVT_OK;
}

/*
 * Would blocks of so many tokens be other pages?  Pages can go into blocks as they are
 * where a kernel's page is known to be less than a block, or has all rows that it can.
 */
static bool keeps_planes(const struct kvt_group *group, int64_t block_size)
{
	int64_t most = kvt_content_page_rows(&group->content);

	if (!group->content.type || !group->content.type->planar ||
	    block_size == group->block_size)
		return false;
	return block_size % group->tokens_per_slot ||
	       (group->shape.n[KVT_AXIS_S] == 1 && kvt_group_packing(group).rows != most);
}

static enum kvt_status set_sizes(struct regroup *g,
				 const struct kvt_reblock_options *options,
				 struct kvt_error *err)
{
	const struct kvt_group *group = group_before(g);
	int64_t tps = group->tokens_per_slot;

	g->size = g->slots = group->shape.n[KVT_AXIS_S];
	g->said->size_before = tps > 0 ? group->block_size : 0;
	g->said->blocks_before = g->said->blocks_after = group->shape.n[KVT_AXIS_B];
	if (!group->shape.n[KVT_AXIS_L])
		/* then its blocks may be any number, with no bytes behind them */
		return kvt_fail(err, KVT_BAD_INPUT, "%s has no layers", group->id);
	if (keeps_planes(group, options->block_size))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: a block of %s is one page of planes, which cannot be divided",
				group->id, group->content.type->name);
	if (tps > 0 && options->block_size % tps)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: blocks of %lld tokens cannot hold slots of %lld tokens",
				group->id, LL(options->block_size), LL(tps));
	if (tps > 0)
		g->slots = options->block_size / tps;
	if (g->size > INT32_MAX)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: blocks of %lld slots, at most %ld are supported",
				group->id, LL(g->size), (long)INT32_MAX);
	return KVT_OK;
}

static enum kvt_status choose(struct regroup *g,
			      const struct kvt_reblock_options *options,
			      struct kvt_error *err)
{
	const struct kvt_group *group = group_before(g);
	struct kvt_error *why = &g->said->why;
	enum kvt_status status;

	if (!g->live && (options->compact || options->stale == KVT_STALE_ZERO))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: no request has a block table, so it is not known which blocks are in use",
				group->id);
	g->keep_stale = options->stale == KVT_STALE_KEEP;
	if (!options->compact && !can_regroup(g, why)) {
		g->keep_stale = options->stale != KVT_STALE_ZERO;
		if (g->keep_stale && g->slots == g->size) {
			g->said->stale_kept = g->said->stale;
			return KVT_OK;
		}
		return regroup(g, err);
	}
	if (!g->live)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: blocks of %lld can become blocks of %lld only with block tables, and there are none: %s",
				group->id, LL(g->said->size_before),
				LL(options->block_size), why->text);
	if ((status = check_windows(g, err)))
		return status;
	return gather(g, err);
}

static enum kvt_status reblock_group(struct derivation *d, int index,
				     struct kvt_reblocked *said,
				     const struct kvt_reblock_options *options,
				     struct kvt_error *err)
{
	struct regroup g = {
		.from = kvt_dump_snapshot(d->source[0]), .to = &d->snapshot,
		.index = index, .map = &d->group[index], .said = said,
	};
	enum kvt_status status;

	if ((status = set_sizes(&g, options, err)) ||
	    (status = step_whole(g.map, group_before(&g), index, err)))
		return status;
	/* a state for all tokens has no other size; without tables it stays */
	if (group_before(&g)->tokens_per_slot < 1 &&
	    !(options->compact && has_tables(&g)))
		return KVT_OK;
	if (!(status = find_live(&g, err)) && !(status = choose(&g, options, err)) &&
	    g.map->first)
		status = reshape(&g, options, err);
	free(g.live);
	return status;
}

/* ---- all of them -------------------------------------------------------- */

/* The null block of an unknown pool is lost. */
static void set_null(struct kvt_snapshot *to, const struct kvt_snapshot *from,
		     const struct kvt_reblocked *all)
{
	for (int g = 0; g < to->ngroups; g++) {
		const struct kvt_reblocked *said = &all[g];
		int64_t size = from->group[g].shape.n[KVT_AXIS_S];
		int64_t slots = to->group[g].shape.n[KVT_AXIS_S];
		int64_t null = kvt_null_block(from, g);
		bool tables = false;

		for (int64_t r = 0; r < from->nrequests; r++)
			tables |= from->request[r].nblocks[g] > 0;
		if (null >= 0)
			null = said->how == KVT_GATHERED ? 0 : null * size / slots;
		kvt_set_null(to, g, slots > size && !tables ? -1 : null);
	}
	kvt_share_null(to);
}

/* Pages are dense now, also those that other groups share with a new one. */
static void set_pages(struct kvt_snapshot *to, const struct kvt_snapshot *from)
{
	for (int g = 0; g < to->ngroups; g++) {
		int64_t page = from->group[g].page_bytes;

		if (to->group[g].block_size == from->group[g].block_size)
			continue;
		for (int i = 0; i < to->ngroups; i++)
			if (from->group[i].page_bytes == page)
				to->group[i].page_bytes = to->group[i].page_offset = 0;
	}
}

/* A window need not begin where a block of the new size does. */
static enum kvt_status starts_at_zero(const struct kvt_snapshot *from,
				      struct kvt_error *err)
{
	for (int64_t r = 0; r < from->nrequests; r++)
		if (from->request[r].first_token)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"request '%s' begins at token %lld; only whole requests can be reblocked",
					from->request[r].id,
					LL(from->request[r].first_token));
	return KVT_OK;
}

/* Fills the derivation; free it if this fails. */
static enum kvt_status reblock(struct derivation *d, struct kvt_reblocked *said,
			       const struct kvt_reblock_options *options,
			       struct kvt_error *err)
{
	const struct kvt_snapshot *from = kvt_dump_snapshot(d->source[0]);
	bool blocks = false;
	enum kvt_status status;

	for (int g = 0; g < from->ngroups; g++)
		blocks |= from->group[g].tokens_per_slot > 0;
	if (!blocks)
		return kvt_fail(err, KVT_BAD_INPUT,
				"all groups are recurrent; no group has blocks of tokens");
	if ((status = starts_at_zero(from, err)) ||
	    (status = kvt_snapshot_copy(&d->snapshot, from, err)))
		return status;
	for (int g = 0; g < from->ngroups; g++)
		if ((status = reblock_group(d, g, &said[g], options, err)))
			return status;
	set_null(&d->snapshot, from, said);
	set_pages(&d->snapshot, from);
	return number_pools(&d->snapshot, from, said, err);
}

enum kvt_status kvt_dump_reblock(struct kvt_dump **out,
				 struct kvt_reblocked said[KVT_MAX_GROUPS],
				 const struct kvt_dump *dump,
				 const struct kvt_reblock_options *options,
				 struct kvt_error *err)
{
	struct derivation d = { .nsources = 1, .source = &dump };

	memset(said, 0, KVT_MAX_GROUPS * sizeof(*said));
	if (options->block_size < 1)
		return kvt_fail(err, KVT_USAGE,
				"blocks of %lld tokens, expected 1 or more",
				LL(options->block_size));
	kvt_snapshot_init(&d.snapshot);
	return derive(out, &d, reblock(&d, said, options, err), err);
}
