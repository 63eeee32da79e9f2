/* SPDX-License-Identifier: Apache-2.0 */
/* made.c - a destination that no file holds yet, out of the source and --dst */
#include "lib/ops/transfer/sides.h"

#include <stdlib.h>
#include <string.h>

#include "lib/dump/slice.h"

#define LL(x) ((long long)(x))

/* ---- layouts --------------------------------------------------------- */

static bool is_attention(const struct kvt_group *g)
{
	return g->kind != KVT_MAMBA_CONV && g->kind != KVT_MAMBA_SSM;
}

static enum kvt_status lay_out(struct kvt_group *g, const struct sim_place *p,
			       const char *conv, struct kvt_error *err)
{
	struct kvt_box whole = kvt_box_whole(&g->shape);
	struct kvt_layout layout = g->layout;
	struct kvt_views views;
	struct kvt_error why;

	if (g->kind == KVT_MAMBA_CONV && conv) {
		enum kvt_status status = sim_conv_layout(&layout, &g->layout, conv, err);

		if (status)
			return status;
	} else if (is_attention(g) && p->layout.nplanes) {
		layout = p->layout;
	}
	if (kvt_layout_views(&views, &layout, &whole, g->shape.elem, &why))
		return kvt_fail(err, KVT_UNSUPPORTED, "%s cannot be %s: %s", g->id,
				kvt_layout_string(&layout).s, why.text);
	if (kvt_content_keeps(&g->content, &layout, &g->shape, &why))
		return kvt_fail(err, KVT_UNSUPPORTED, "%s: %s", g->id, why.text);
	g->layout = layout;
	if (!kvt_layout_predicates(&layout, &g->shape).block_compact)
		g->page_bytes = g->page_offset = 0;
	return KVT_OK;
}

/* ---- blocks and tables ----------------------------------------------- */

/* How many blocks a request takes; a recurrent state keeps those it has. */
static int64_t blocks_of(const struct kvt_request *r, const struct kvt_group *g,
			 int index)
{
	int64_t tokens = kvt_request_skip(r, g) + r->ntokens;

	if (g->tokens_per_state < 0 || !r->nblocks[index])
		return r->nblocks[index];
	return tokens / g->block_size + (tokens % g->block_size != 0);
}

static enum kvt_status new_tables(struct kvt_snapshot *s, int index, const uint32_t *ids,
				  struct kvt_error *err)
{
	for (int64_t i = 0; i < s->nrequests; i++) {
		struct kvt_request *r = &s->request[i];
		int64_t n = blocks_of(r, &s->group[index], index);
		uint32_t *blocks = malloc(((size_t)n + 1) * sizeof(*blocks));

		if (!blocks)
			return kvt_fail(err, KVT_SYSTEM, "out of memory");
		memcpy(blocks, ids, (size_t)n * sizeof(*blocks));
		free(r->blocks[index]);
		r->blocks[index] = blocks;
		r->nblocks[index] = n;
		ids += n;
	}
	return KVT_OK;
}

static enum kvt_status cut_blocks(struct kvt_group *g, int64_t size,
				  struct kvt_error *err)
{
	if (g->tokens_per_state < 0 || !size)
		return KVT_OK;
	if (size % g->tokens_per_state || size > INT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: blocks of %lld tokens cannot hold states of %lld tokens",
				g->id, LL(size), LL(g->tokens_per_state));
	g->block_size = size;
	g->shape.n[KVT_AXIS_S] = size / g->tokens_per_state;
	return KVT_OK;
}

/*
 * What a pool has if nobody says: the blocks that the ids reach, and at least one
 * in sixteen that nothing goes to, where a stray write shows.
 */
static enum kvt_status choose_pool(int64_t *pool, uint32_t **ids, const char *pattern,
				   int64_t n, struct kvt_error *err)
{
	bool spread = !strcmp(pattern, "scatter") || !strncmp(pattern, "list:", 5) ||
		      !strncmp(pattern, "file:", 5);
	int64_t most = n + n / 16 + 1, drawn = spread ? 0 : most;
	enum kvt_status status = sim_ids(ids, &drawn, pattern, n, err);

	*pool = most;
	for (int64_t i = 0; !status && i < n; i++)
		if ((*ids)[i] >= *pool)
			*pool = (int64_t)(*ids)[i] + 1;
	if (status || *pool <= SIM_MOST_POOL)
		return status;
	free(*ids);
	return kvt_fail(err, KVT_BAD_INPUT,
			"block id %lld is outside any pool, which has at most %d", LL(*pool - 1),
			SIM_MOST_POOL);
}

/* Inside the pool, and each once: no two requests share a new block. */
static enum kvt_status check_ids(const uint32_t *ids, int64_t n, int64_t pool,
				 const char *group, struct kvt_error *err)
{
	bool *taken = calloc((size_t)pool + 1, sizeof(*taken));
	enum kvt_status status = taken ? KVT_OK :
				 kvt_fail(err, KVT_SYSTEM, "out of memory");

	for (int64_t i = 0; !status && i < n; i++) {
		if (ids[i] >= pool)
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: block id %lld is outside the pool of %lld",
					  group, LL(ids[i]), LL(pool));
		else if (taken[ids[i]])
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: block id %lld comes twice", group,
					  LL(ids[i]));
		else
			taken[ids[i]] = true;
	}
	free(taken);
	return status;
}

/* Requests share no blocks: each has its own part of the ids. */
static enum kvt_status place_group(struct kvt_snapshot *s, int index,
				   const struct sim_place *p, const char *conv,
				   struct kvt_error *err)
{
	struct kvt_group *g = &s->group[index];
	struct kvt_error why = { "" };
	int64_t total = 0, pool = p->pool;
	enum kvt_status status;
	uint32_t *ids;

	if ((status = cut_blocks(g, p->block_size, err)) ||
	    (status = lay_out(g, p, conv, err)))
		return status;
	for (int64_t i = 0; i < s->nrequests; i++)
		total += blocks_of(&s->request[i], g, index);
	status = pool ? sim_ids(&ids, &pool, p->ids, total, &why) :
			choose_pool(&pool, &ids, p->ids, total, &why);
	if (status)
		return kvt_fail(err, status, "%s: %.400s", g->id, why.text);
	status = check_ids(ids, total, pool, g->id, err);
	g->shape.n[KVT_AXIS_B] = pool;
	free(g->block_ids);
	free(g->block_valid);
	g->pool[0] = '\0';		/* each group gets numbers of its own */
	g->block_ids = NULL;
	g->block_valid = NULL;
	if (!status)
		status = new_tables(s, index, ids, err);
	free(ids);
	return status;
}

/* ---- ranks ----------------------------------------------------------- */

static enum kvt_status make_rank(struct kvt_snapshot *out, const struct kvt_snapshot *all,
				 struct kvt_rank rank, int64_t mamba_groups,
				 struct kvt_error *err)
{
	struct pick pick = { .rank = rank, .mamba_groups = mamba_groups };
	struct kvt_error why = { "" };
	enum kvt_status status;

	if ((status = kvt_snapshot_copy(out, all, err)))
		return status;
	for (int g = 0; !status && g < out->ngroups; g++) {
		struct source_part part;

		status = pick_width(&part, &out->group[g], all, &pick, &why);
	}
	if (status)
		return kvt_fail(err, status, "--dst: %.400s", why.text);
	out->parallel.tp_size = rank.size;
	out->parallel.tp_rank = rank.index;
	out->has_parallel = true;
	/* every entry has a block of its own, whatever the source has there */
	for (int g = 0; g < out->ngroups; g++)
		kvt_set_null(out, g, -1);
	kvt_share_null(out);
	place_in_pages(out);
	return kvt_snapshot_check(out, err);
}

static enum kvt_status make_ranks(struct side *dst, const struct kvt_snapshot *all,
				  int64_t n, int64_t mamba_groups, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (n > KVT_MAX_RANKS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"--dst: %lld ranks, expected at most %d",
				LL(n), KVT_MAX_RANKS);
	dst->made = calloc((size_t)n, sizeof(*dst->made));
	if (!dst->made)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	while (!status && dst->n < n) {
		kvt_snapshot_init(&dst->made[dst->n]);
		status = make_rank(&dst->made[dst->n], all,
				   (struct kvt_rank){ n, dst->n }, mamba_groups, err);
		dst->n++;
	}
	return status;
}

enum kvt_status make_destination(struct sides *sides, const struct sim_args *args,
				 struct kvt_error *err)
{
	struct sim_place place = { .name = "dst", .tp = sides->src.n, .ids = "contig" };
	int n = sides->src.n;
	struct kvt_dump **readers = calloc((size_t)n, sizeof(*readers));
	struct source whole;
	enum kvt_status status;

	if (!readers)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	status = sim_take_place(&place, args->dst.text, err);
	if (!status) {
		status = join_source(&whole, readers, sides->src.file, n, err);
		for (int g = 0; !status && g < whole.snapshot.ngroups; g++)
			status = place_group(&whole.snapshot, g, &place, args->conv, err);
		if (!status)
			status = make_ranks(&sides->dst, &whole.snapshot, place.tp,
					    args->mamba_groups, err);
		source_free(&whole);
	}
	free(readers);
	return status;
}
