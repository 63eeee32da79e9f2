/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - a group of a transfer: its plan, from what both ends say
 *
 * In: for each end the spec of any rank, the number of ranks, the layout and pool
 * of a rank, and for each request a table of blocks.  Out: a struct kvt_xfer, the
 * plan of lib/transfer, over entries: runs of slots that lie in one block on both
 * sides.  Plans keep their entries sorted; the order in which requests have them is
 * kept too, because a stack posts them in that order.
 */
#include "sim/ops/transfer.h"

#include <stdlib.h>
#include <string.h>

/* ---- groups ------------------------------------------------------------- */

static enum kvt_status end_side(struct kvt_xfer_side *side,
				const struct kvt_transfer_end *end, const char *name,
				struct kvt_error *err)
{
	struct kvt_error why = { "" };
	enum kvt_status status;

	status = kvt_xfer_side_init(side, &end->spec, end->ranks, &end->layout,
				    end->layers, end->table.pool, end->strides,
				    end->offset, &why);
	if (status)
		return kvt_fail(err, status, "%s: %.400s", name, why.text);
	side->replicas = end->replicas;
	side->deal = end->deal.size;
	side->deal_rank = end->deal.rank;
	return KVT_OK;
}

/* If an id comes twice in one table, it is unknown which copy is right. */
static enum kvt_status check_ids(const struct kvt_block_table *table, const char *side,
				 struct kvt_error *err)
{
	struct kvt_error why = { "" };
	enum kvt_status status;
	uint8_t *seen;

	if (table->pool < 1 || table->pool > UINT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: a pool of %lld blocks", side,
				LL(table->pool));
	if (!(seen = calloc((size_t)table->pool / 8 + 1, 1)))
		return kvt_no_memory(err, NULL);
	status = kvt_block_ids_check(table->ids, table->nids, table->pool, seen, &why);
	free(seen);
	return status ? kvt_fail(err, status, "%s: %.400s", side, why.text) : KVT_OK;
}

/* Plans sort the entries; a stack posts them as they were asked for. */
static enum kvt_status keep_order(struct kvt_transfer_group *g, int64_t n,
				  struct kvt_error *err)
{
	g->order = malloc((size_t)(n + 1) * sizeof(*g->order));
	if (!g->order)
		return kvt_no_memory(err, NULL);
	memcpy(g->order, g->entry, (size_t)n * sizeof(*g->order));
	g->norder = n;
	return KVT_OK;
}

/* Which slots of its request the entries from..n are. */
static void number_slots(struct kvt_transfer_group *g, int64_t from, int64_t n,
			 int64_t begin)
{
	for (int64_t i = from; i < n; i++) {
		g->slot[i] = begin;
		begin += g->entry[i].count;
	}
}

static enum kvt_status add_entries(struct kvt_transfer_group *g, int64_t *n,
				   const struct kvt_transfer_move *moves, int64_t nmoves,
				   struct kvt_error *err)
{
	int64_t room = 0;
	enum kvt_status status;

	for (int64_t i = 0; i < nmoves; i++) {
		if ((status = check_ids(&moves[i].src, "source", err)) ||
		    (status = check_ids(&moves[i].dst, "destination", err)))
			return status;
		room += kvt_xfer_entries_most(&moves[i].src, &moves[i].dst);
	}
	g->entry = malloc((size_t)(room + 1) * sizeof(*g->entry));
	g->slot = malloc((size_t)(room + 1) * sizeof(*g->slot));
	if (!g->entry || !g->slot)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < nmoves; i++) {
		int64_t from = *n;

		status = kvt_xfer_entries(g->entry, n, room, &moves[i].src, &moves[i].dst,
					  moves[i].begin, moves[i].end, err);
		if (status)
			return status;
		number_slots(g, from, *n, moves[i].begin);
	}
	return keep_order(g, *n, err);
}

/* The plan, over entries that are there. */
static enum kvt_status join(struct kvt_transfer_group *g, int64_t n,
			    const struct kvt_transfer_end *src,
			    const struct kvt_transfer_end *dst, struct kvt_error *err)
{
	struct kvt_xfer_side from, to;
	enum kvt_status status;

	if ((status = end_side(&from, src, "source", err)) ||
	    (status = end_side(&to, dst, "destination", err)))
		return status;
	return kvt_xfer_init(&g->xfer, &from, &to, g->entry, n, err);
}

/* Takes 'g', which is freed if 'status' is no success. */
static enum kvt_status finish(struct kvt_transfer_group *out,
			      struct kvt_transfer_group *g, const char *name,
			      enum kvt_status status, const struct kvt_error *why,
			      struct kvt_error *err)
{
	snprintf(g->name, sizeof(g->name), "%s", name);
	if (status) {
		kvt_transfer_group_free(g);
		return kvt_fail(err, status, "%s: %.460s", name, why->text);
	}
	*out = *g;
	return KVT_OK;
}

enum kvt_status kvt_transfer_group_init(struct kvt_transfer_group *out, const char *name,
					const struct kvt_transfer_end *src,
					const struct kvt_transfer_end *dst,
					const struct kvt_transfer_move *moves,
					int64_t nmoves, struct kvt_error *err)
{
	struct kvt_transfer_group g = { .src_layout = src->layout,
					.dst_layout = dst->layout };
	struct kvt_error why = { "" };
	int64_t n = 0;
	enum kvt_status status = add_entries(&g, &n, moves, nmoves, &why);

	if (!status)
		status = join(&g, n, src, dst, &why);
	return finish(out, &g, name, status, &why, err);
}

/* The slots of a token, as many as stay in one block there. */
static int64_t place(int64_t *block, int64_t *slot, const struct kvt_transfer_end *end,
		     int64_t token)
{
	int64_t at = kvt_deal_count(&end->deal, token);

	*block = end->table.ids[at / end->table.slots];
	*slot = at % end->table.slots;
	return end->table.slots - *slot;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* One entry a run of tokens that are neighbours on both; g->entry NULL only counts. */
static int64_t deal_entries(struct kvt_transfer_group *g,
			    const struct kvt_transfer_end *src,
			    const struct kvt_transfer_end *dst, int64_t begin,
			    int64_t end)
{
	int64_t n = 0, next;

	for (int64_t at = begin; at < end; at = next) {
		struct kvt_block_span span = { .nblocks = 0 };
		int64_t room;

		next = least(least(kvt_deal_end(&src->deal, at),
				   kvt_deal_end(&dst->deal, at)), end);
		if (!kvt_deal_has(&src->deal, at) || !kvt_deal_has(&dst->deal, at))
			continue;
		room = place(&span.src_block, &span.src_slot, src, at);
		room = least(room, place(&span.dst_block, &span.dst_slot, dst, at));
		next = least(next, at + room);
		span.count = next - at;
		if (g->entry) {
			g->entry[n] = span;
			g->slot[n] = at;
		}
		n++;
	}
	return n;
}

static enum kvt_status add_dealt(struct kvt_transfer_group *g, int64_t *n,
				 const struct kvt_transfer_end *src,
				 const struct kvt_transfer_end *dst, int64_t begin,
				 int64_t end, struct kvt_error *err)
{
	struct kvt_block_map map;
	enum kvt_status status;

	if ((status = check_ids(&src->table, "source", err)) ||
	    (status = check_ids(&dst->table, "destination", err)) ||
	    (status = kvt_block_map_init(&map, &src->table, &dst->table, 0, 0, err)))
		return status;
	if (kvt_deal_count(&src->deal, end) > src->table.nids * src->table.slots ||
	    kvt_deal_count(&dst->deal, end) > dst->table.nids * dst->table.slots)
		return kvt_fail(err, KVT_BAD_INPUT, "%lld tokens do not fit the blocks",
				LL(end));
	*n = deal_entries(g, src, dst, begin, end);
	g->entry = malloc((size_t)(*n + 1) * sizeof(*g->entry));
	g->slot = malloc((size_t)(*n + 1) * sizeof(*g->slot));
	if (!g->entry || !g->slot)
		return kvt_no_memory(err, NULL);
	deal_entries(g, src, dst, begin, end);
	return keep_order(g, *n, err);
}

enum kvt_status kvt_transfer_group_init_dealt(struct kvt_transfer_group *out,
					      const char *name,
					      const struct kvt_transfer_end *src,
					      const struct kvt_transfer_end *dst,
					      int64_t begin, int64_t end,
					      struct kvt_error *err)
{
	struct kvt_transfer_group g = { .src_layout = src->layout,
					.dst_layout = dst->layout };
	struct kvt_transfer_move same = { src->table, dst->table,
					  kvt_deal_count(&src->deal, begin),
					  kvt_deal_count(&src->deal, end) };
	struct kvt_error why = { "" };
	int64_t n = 0;
	enum kvt_status status;

	/* where both deal alike, slots follow each other as in any table */
	if (src->deal.size == dst->deal.size && src->deal.chunk == dst->deal.chunk)
		return src->deal.rank == dst->deal.rank ?
		       kvt_transfer_group_init(out, name, src, dst, &same, 1, err) :
		       kvt_transfer_group_init(out, name, src, dst, &same, 0, err);
	status = add_dealt(&g, &n, src, dst, begin, end, &why);
	if (!status)
		status = join(&g, n, src, dst, &why);
	return finish(out, &g, name, status, &why, err);
}

void kvt_transfer_group_free(struct kvt_transfer_group *group)
{
	free(group->entry);
	free(group->order);
	free(group->slot);
	group->entry = group->order = NULL;
	group->slot = NULL;
}

struct kvt_transfer_group *kvt_transfer_group_new(struct kvt_transfer_plan *transfer,
						  struct kvt_error *err)
{
	size_t n = (size_t)transfer->ngroups + 1;
	struct kvt_transfer_group *group = realloc(transfer->group, n * sizeof(*group));

	if (!group) {
		kvt_no_memory(err, NULL);
		return NULL;
	}
	transfer->group = group;
	return &group[transfer->ngroups];
}

void kvt_transfer_free(struct kvt_transfer_plan *transfer)
{
	for (int i = 0; i < transfer->ngroups; i++)
		kvt_transfer_group_free(&transfer->group[i]);
	free(transfer->group);
	transfer->group = NULL;
	transfer->ngroups = 0;
}

/* ---- proof -------------------------------------------------------------- */

static enum kvt_status prove(const struct kvt_transfer_group *g, struct kvt_error *err)
{
	int64_t n = kvt_xfer_nmoves(&g->xfer);
	struct kvt_move *moves = malloc((size_t)(n + 1) * sizeof(*moves));
	struct kvt_error why = { "" };
	struct kvt_proof proof;
	enum kvt_status status;

	if (!moves)
		return kvt_no_memory(err, NULL);
	status = kvt_xfer_prove(&proof, &g->xfer, moves, &why);
	free(moves);
	return status ? kvt_fail(err, status, "%s: %.400s", g->name, why.text) : KVT_OK;
}

enum kvt_status kvt_transfer_prove(const struct kvt_transfer_plan *transfer,
				   struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < transfer->ngroups; i++)
		status = prove(&transfer->group[i], err);
	return status;
}

/* ---- operations ----------------------------------------------------------- */

enum kvt_status kvt_transfer_find_op(struct kvt_op_place *out,
				     const struct kvt_transfer_plan *transfer, int64_t n,
				     struct kvt_error *err)
{
	int64_t left = n;

	for (int g = 0; g < transfer->ngroups; g++) {
		const struct kvt_xfer *x = &transfer->group[g].xfer;
		struct kvt_pair_walk walk = { 0, 0 };
		struct kvt_pair pair;

		while (kvt_pair_next(&pair, &walk, x)) {
			struct kvt_nest nest;
			struct kvt_ops ops;
			struct kvt_op op;
			enum kvt_status status = kvt_nest_init(&nest, x, &pair, err);

			if (status)
				return status;
			kvt_ops_start(&ops, &nest, KVT_SCOPE_RFC);
			while (kvt_op_next(&op, &ops)) {
				if (left--)
					continue;
				out->rank = (int)pair.dst_rank;
				out->group = transfer->group[g].dst_group;
				if (kvt_views_find(&x->dst.views, op.dst, out->index))
					return KVT_OK;
			}
		}
	}
	return kvt_fail(err, KVT_BAD_INPUT, "--corrupt-op is %lld, there are %lld ops",
			LL(n), LL(n - left));
}
