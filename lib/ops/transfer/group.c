/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - a group of a transfer: its plan, from what both ends say
 *
 * In: for each end the spec of any rank, the number of ranks, the layout and pool
 * of a rank, and for each request a table of blocks.  Out: a struct kvt_xfer, the
 * plan of lib/transfer, over entries: runs of states that lie in one block on both
 * sides.  Plans keep their entries sorted; the order in which requests have them is
 * kept beside, because a stack posts them in that order.
 */
#include "lib/ops/transfer/transfer.h"

#include <stdlib.h>
#include <string.h>

#define LL(x) ((long long)(x))

/* ---- groups ------------------------------------------------------------- */

static enum kvt_status end_side(struct kvt_xfer_side *side, const struct sim_end *end,
				const char *name, struct kvt_error *err)
{
	struct kvt_error why = { "" };
	enum kvt_status status;

	status = kvt_xfer_side_init(side, &end->spec, end->ranks, &end->layout,
				    end->layers, end->table.pool, end->strides,
				    end->offset, &why);
	if (status)
		return kvt_fail(err, status, "%s: %.400s", name, why.text);
	side->replicas = end->replicas;
	return KVT_OK;
}

/* An id that comes twice in one table: nobody can say which copy is right. */
static enum kvt_status check_ids(const struct kvt_block_table *table, const char *side,
				 struct kvt_error *err)
{
	struct kvt_error why = { "" };
	enum kvt_status status;
	uint8_t *seen;

	if (table->pool < 1 || table->pool > UINT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: a pool of %lld blocks", side,
				(long long)table->pool);
	if (!(seen = calloc((size_t)table->pool / 8 + 1, 1)))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	status = kvt_block_ids_check(table->ids, table->nids, table->pool, seen, &why);
	free(seen);
	return status ? kvt_fail(err, status, "%s: %.400s", side, why.text) : KVT_OK;
}

/* Plans sort the entries; a stack posts them as they were asked for. */
static enum kvt_status keep_order(struct sim_group *g, int64_t n, struct kvt_error *err)
{
	g->order = malloc((size_t)(n + 1) * sizeof(*g->order));
	if (!g->order)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	memcpy(g->order, g->entry, (size_t)n * sizeof(*g->order));
	g->norder = n;
	return KVT_OK;
}

/* Which states of its request the entries from..n are. */
static void number_states(struct sim_group *g, int64_t from, int64_t n, int64_t begin)
{
	for (int64_t i = from; i < n; i++) {
		g->state[i] = begin;
		begin += g->entry[i].count;
	}
}

static enum kvt_status add_entries(struct sim_group *g, int64_t *n,
				   const struct sim_move *moves, int64_t nmoves,
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
	g->state = malloc((size_t)(room + 1) * sizeof(*g->state));
	if (!g->entry || !g->state)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t i = 0; i < nmoves; i++) {
		int64_t from = *n;

		status = kvt_xfer_entries(g->entry, n, room, &moves[i].src,
					  &moves[i].dst, moves[i].begin, moves[i].end,
					  err);
		if (status)
			return status;
		number_states(g, from, *n, moves[i].begin);
	}
	return keep_order(g, *n, err);
}

static enum kvt_status fill(struct sim_group *g, const struct sim_end *src,
			    const struct sim_end *dst, const struct sim_move *moves,
			    int64_t nmoves, struct kvt_error *err)
{
	struct kvt_xfer_side from, to;
	int64_t n = 0;
	enum kvt_status status;

	if ((status = end_side(&from, src, "source", err)) ||
	    (status = end_side(&to, dst, "destination", err)) ||
	    (status = add_entries(g, &n, moves, nmoves, err)))
		return status;
	return kvt_xfer_init(&g->xfer, &from, &to, g->entry, n, err);
}

enum kvt_status sim_group_init(struct sim_group *out, const char *name,
			       const struct sim_end *src, const struct sim_end *dst,
			       const struct sim_move *moves, int64_t nmoves,
			       struct kvt_error *err)
{
	struct sim_group g = { .src_layout = src->layout, .dst_layout = dst->layout };
	struct kvt_error why = { "" };
	enum kvt_status status = fill(&g, src, dst, moves, nmoves, &why);

	snprintf(g.name, sizeof(g.name), "%s", name);
	if (status) {
		sim_group_free(&g);
		return kvt_fail(err, status, "%s: %.460s", name, why.text);
	}
	*out = g;
	return KVT_OK;
}

enum kvt_status sim_group_init_one(struct sim_group *out, const char *name,
				   const struct sim_end *src, const struct sim_end *dst,
				   int64_t begin, int64_t end, struct kvt_error *err)
{
	struct sim_move move = { src->table, dst->table, begin, end };

	return sim_group_init(out, name, src, dst, &move, 1, err);
}

void sim_group_free(struct sim_group *group)
{
	free(group->entry);
	free(group->order);
	free(group->state);
	group->entry = group->order = NULL;
	group->state = NULL;
}

struct sim_group *sim_group_new(struct sim *sim, struct kvt_error *err)
{
	size_t n = (size_t)sim->ngroups + 1;
	struct sim_group *group = realloc(sim->group, n * sizeof(*group));

	if (!group) {
		kvt_fail(err, KVT_SYSTEM, "out of memory");
		return NULL;
	}
	sim->group = group;
	return &group[sim->ngroups];
}

void sim_free(struct sim *sim)
{
	for (int i = 0; i < sim->ngroups; i++)
		sim_group_free(&sim->group[i]);
	free(sim->group);
	sim->group = NULL;
	sim->ngroups = 0;
}

/* ---- proof -------------------------------------------------------------- */

static enum kvt_status prove(const struct sim_group *g, struct kvt_error *err)
{
	int64_t n = kvt_xfer_nmoves(&g->xfer);
	struct kvt_move *moves = malloc((size_t)(n + 1) * sizeof(*moves));
	struct kvt_error why = { "" };
	struct kvt_proof proof;
	enum kvt_status status;

	if (!moves)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	status = kvt_xfer_prove(&proof, &g->xfer, moves, &why);
	free(moves);
	return status ? kvt_fail(err, status, "%s: %.400s", g->name, why.text) : KVT_OK;
}

enum kvt_status kvt_transfer_prove(const struct sim *sim, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < sim->ngroups; i++)
		status = prove(&sim->group[i], err);
	return status;
}

/* ---- operations ----------------------------------------------------------- */

enum kvt_status kvt_transfer_find_op(struct kvt_op_place *out, const struct sim *sim,
				     int64_t n, struct kvt_error *err)
{
	int64_t left = n;

	for (int g = 0; g < sim->ngroups; g++) {
		const struct kvt_xfer *x = &sim->group[g].xfer;
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
				out->group = sim->group[g].dst_group;
				if (kvt_views_find(&x->dst.views, op.dst, out->index))
					return KVT_OK;
			}
		}
	}
	return kvt_fail(err, KVT_BAD_INPUT, "--corrupt-op is %lld, there are %lld ops",
			LL(n), LL(n - left));
}
