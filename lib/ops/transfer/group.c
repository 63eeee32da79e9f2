/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - a group of a transfer from its two ends, and its figures */
#include "lib/ops/transfer/transfer.h"

#include <stdlib.h>
#include <string.h>

/* ---- operands ------------------------------------------------------------ */

enum { DEFAULT_TOKENS = 2048 };

static enum kvt_status none_of(const struct opt_said *said, const char *why,
			       struct kvt_error *err)
{
	for (; said->name; said++)
		if (said->given)
			return kvt_fail(err, KVT_USAGE, "--%s %s", said->name, why);
	return KVT_OK;
}

enum kvt_replicas sim_replicas(const struct sim_args *a)
{
	return a->replicas && !strcmp(a->replicas, "modulo") ? KVT_MODULO : KVT_GROUPED;
}

enum kvt_status sim_take_dumps(struct sim_args *a, int n, char **argv,
			       struct kvt_error *err)
{
	const struct opt_said made[] = {
		{ a->model, "model" }, { a->spec.n, "spec" },
		{ a->dtype, "cache-dtype" }, { a->tokens, "tokens" },
		{ a->src.text, "src" }, { a->dst.text, "dst" }, { a->conv, "conv" },
		{ 0 }
	};
	const struct opt_said dumped[] = {
		{ a->request, "request" }, { a->mamba_groups, "mamba-groups" }, { 0 }
	};

	if (n && n != 2)
		return kvt_fail(err, KVT_USAGE, "expected no dumps or two, got %d", n);
	if (n) {
		a->src.file = argv[0];
		a->dst.file = argv[1];
		return none_of(made, "is what two dumps say themselves", err);
	}
	if (a->model && a->spec.n)
		return kvt_fail(err, KVT_USAGE, "--model and --spec exclude each other");
	if (!a->tokens)
		a->tokens = DEFAULT_TOKENS;
	return none_of(dumped, "is of two dumps", err);
}

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
	kvt_dump_close(sim->readers[0]);
	kvt_dump_close(sim->readers[1]);
	sim->readers[0] = sim->readers[1] = NULL;
}

/* ---- figures ------------------------------------------------------------ */

enum kvt_status sim_figures_init(struct sim_figures *out, struct kvt_error *err)
{
	*out = (struct sim_figures){ .sizes.room = SIM_SIZES };
	out->sizes.bin = malloc(SIM_SIZES * sizeof(*out->sizes.bin));
	return out->sizes.bin ? KVT_OK : kvt_fail(err, KVT_SYSTEM, "out of memory");
}

void sim_figures_free(struct sim_figures *figures)
{
	free(figures->sizes.bin);
}

enum kvt_status sim_count(struct sim_figures *f, const struct sim_group *group,
			  enum kvt_scope scope, struct kvt_error *err)
{
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_nest nest;
	struct kvt_pair pair;
	enum kvt_status status;

	while (kvt_pair_next(&pair, &walk, &group->xfer)) {
		int64_t ops = f->tally.ops;

		if ((status = kvt_nest_init(&nest, &group->xfer, &pair, err)) ||
		    (status = kvt_pair_tally(&f->tally, &f->sizes, &nest, scope, err)))
			return status;
		ops = f->tally.ops - ops;
		if (!f->pairs++ || ops < f->least)
			f->least = ops;
		if (ops > f->most)
			f->most = ops;
	}
	return KVT_OK;
}
