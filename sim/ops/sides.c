/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sides.c - all ranks of both sides of a transfer, and the plan between them
 *
 * A plan is of one rank of each side, so all ranks of a side must be laid out alike.
 * A new destination is the merged source with another layout, block size, pool and
 * tables, cut into ranks; each of its groups gets blocks of its own, and no two
 * requests share one.  The entries of the plan are kept by destination block, so
 * that those of a box are found by bisection.
 */
#include "sim/ops/exec.h"

#include <stdlib.h>
#include <string.h>

#include "lib/derived/slice.h"

/* A plan is of one rank of each side: the others must be laid out as that is. */
static enum kvt_status check_alike(const struct kvt_ranks *side, struct kvt_error *err)
{
	const struct kvt_snapshot *a = kvt_ranks_snapshot(side, 0);

	for (int r = 1; r < side->n; r++)
		for (int g = 0; g < a->ngroups; g++) {
			const struct kvt_group *x = &a->group[g];
			const struct kvt_group *y = &kvt_ranks_snapshot(side,
									r)->group[g];

			if (memcmp(&x->shape, &y->shape, sizeof(x->shape)) ||
			    !kvt_layout_equal(&x->layout, &y->layout))
				return kvt_fail(err, KVT_BAD_INPUT,
						"%s: rank %d is %s of %lld heads, rank 0 %s of %lld",
						x->id, r, kvt_layout_string(&y->layout).s,
						LL(y->shape.n[KVT_AXIS_H]),
						kvt_layout_string(&x->layout).s,
						LL(x->shape.n[KVT_AXIS_H]));
		}
	return KVT_OK;
}

/* ---- operands -------------------------------------------------------- */

enum kvt_status kvt_sides_unchanged(const struct kvt_sides *sides, struct kvt_error *err)
{
	const struct kvt_ranks *side[] = { &sides->src, &sides->dst };
	enum kvt_status status = KVT_OK;

	for (int s = 0; s < 2; s++)
		for (int i = 0; !status && side[s]->file && i < side[s]->n; i++)
			if (side[s]->file[i].reader)
				status = kvt_dump_unchanged(side[s]->file[i].reader, err);
	return status;
}

void kvt_ranks_free(struct kvt_ranks *side)
{
	for (int i = 0; side->file && i < side->n; i++)
		kvt_dump_close(side->file[i].reader);
	for (int i = 0; side->made && i < side->n; i++)
		kvt_snapshot_free(&side->made[i]);
	free(side->file);
	free(side->made);
	*side = (struct kvt_ranks){ .n = 0 };
}

void kvt_sides_free(struct kvt_sides *sides)
{
	for (int i = 0; sides->span && i < sides->transfer.ngroups; i++)
		free(sides->span[i]);
	free(sides->span);
	sides->span = NULL;
	kvt_transfer_free(&sides->transfer);
	seen_free(sides->seen);
	sides->seen = NULL;
	kvt_ranks_free(&sides->src);
	kvt_ranks_free(&sides->dst);
}

const struct kvt_snapshot *kvt_ranks_snapshot(const struct kvt_ranks *side, int rank)
{
	return side->made ? &side->made[rank] :
			    kvt_dump_snapshot(side->file[rank].reader);
}

enum kvt_status kvt_ranks_check(struct kvt_ranks *side, struct kvt_error *err)
{
	enum kvt_status status = rank_files_check(side->file, side->n, err);

	return status ? status : check_alike(side, err);
}

/* ---- do both sides fit? ---------------------------------------------- */

/* Plans go by number and width: names and types must not contradict them. */
static enum kvt_status check_groups(const struct kvt_sides *sides, struct kvt_error *err)
{
	const struct kvt_snapshot *src = kvt_ranks_snapshot(&sides->src, 0);
	const struct kvt_snapshot *dst = kvt_ranks_snapshot(&sides->dst, 0);

	for (int g = 0; g < src->ngroups; g++) {
		const struct kvt_group *a = &src->group[g];
		int to = kvt_group_named(dst, a->id);
		const struct kvt_group *b = to < 0 ? NULL : &dst->group[to];

		if (!b)
			return kvt_fail(err, KVT_BAD_INPUT,
					"the destination has no group '%s'", a->id);
		if (!kvt_group_same_type(a, b))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: the source holds %s, the destination %s",
					a->id, kvt_group_type(a).s, kvt_group_type(b).s);
		for (int64_t l = 0; l < a->shape.n[KVT_AXIS_L] &&
				    l < b->shape.n[KVT_AXIS_L]; l++)
			if (kvt_layer_id(a, l) != kvt_layer_id(b, l))
				return kvt_fail(err, KVT_BAD_INPUT,
						"%s: the source has layer %lld where the destination has layer %lld",
						a->id, LL(kvt_layer_id(a, l)),
						LL(kvt_layer_id(b, l)));
	}
	return KVT_OK;
}

/* A request has as many tokens on both sides, or one of them is wrong. */
static enum kvt_status check_requests(const struct kvt_sides *sides,
				      struct kvt_error *err)
{
	const struct kvt_snapshot *src = kvt_ranks_snapshot(&sides->src, 0);
	const struct kvt_snapshot *dst = kvt_ranks_snapshot(&sides->dst, 0);

	for (int64_t i = 0; i < src->nrequests; i++)
		for (int64_t j = 0; j < dst->nrequests; j++) {
			const struct kvt_request *a = &src->request[i];
			const struct kvt_request *b = &dst->request[j];

			if (!strcmp(a->id, b->id) && a->ntokens != b->ntokens)
				return kvt_fail(err, KVT_BAD_INPUT,
						"request '%.60s' has %lld tokens in the source and %lld in the destination",
						a->id, LL(a->ntokens), LL(b->ntokens));
		}
	return KVT_OK;
}

/* ---- entries by destination ------------------------------------------ */

int kvt_span_by_target(const void *a, const void *b)
{
	const struct kvt_block_span *x = a, *y = b;

	if (x->dst_block != y->dst_block)
		return x->dst_block < y->dst_block ? -1 : 1;
	return x->dst_slot < y->dst_slot ? -1 : x->dst_slot > y->dst_slot;
}

static enum kvt_status sort_spans(struct kvt_sides *sides, struct kvt_error *err)
{
	const struct kvt_transfer_plan *transfer = &sides->transfer;

	sides->span = calloc((size_t)transfer->ngroups + 1, sizeof(*sides->span));
	for (int i = 0; sides->span && i < transfer->ngroups; i++) {
		const struct kvt_xfer *x = &transfer->group[i].xfer;
		size_t n = (size_t)x->nentries;

		sides->span[i] = malloc((n + 1) * sizeof(**sides->span));
		if (!sides->span[i])
			return kvt_no_memory(err, NULL);
		memcpy(sides->span[i], x->entry, n * sizeof(**sides->span));
		qsort(sides->span[i], n, sizeof(**sides->span), kvt_span_by_target);
	}
	return sides->span ? KVT_OK : kvt_no_memory(err, NULL);
}

/* The first entry of a block or of one after it. */
static int64_t first_entry(const struct kvt_sides *sides, int part, int64_t block)
{
	int64_t low = 0, high = sides->transfer.group[part].xfer.nentries;

	while (low < high) {
		int64_t middle = low + (high - low) / 2;

		if (sides->span[part][middle].dst_block < block)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct kvt_carry_box kvt_carry_box_of(const struct kvt_sides *sides, int part,
				      const struct kvt_box *box)
{
	const int64_t *begin = box->begin, *end = box->end;
	int64_t first = first_entry(sides, part, begin[KVT_AXIS_B]);

	return (struct kvt_carry_box){
		.sides = sides, .part = part,
		.layers = { begin[KVT_AXIS_L], end[KVT_AXIS_L] },
		.blocks = { begin[KVT_AXIS_B], end[KVT_AXIS_B] },
		.span = sides->span[part] + first,
		.nspans = first_entry(sides, part, end[KVT_AXIS_B]) - first,
	};
}

/* ---- the plan -------------------------------------------------------- */

enum kvt_status kvt_sides_join(struct kvt_sides *sides, const char *src_name,
			       const char *dst_name, const struct kvt_transfer_how *how,
			       struct kvt_error *err)
{
	const struct kvt_transfer_dumps dumps = {
		.src_name = src_name, .dst_name = dst_name,
		.src = kvt_ranks_snapshot(&sides->src,
					  0), .dst = kvt_ranks_snapshot(&sides->dst, 0),
	};
	enum kvt_status status;

	sides->request = how->request;
	sides->cached = how->cached;
	sides->whole = how->whole;
	sides->all_states = how->all_states;
	if ((status = check_groups(sides, err)) ||
	    (status = kvt_transfer_of_dumps(&sides->transfer, &dumps, how, err)) ||
	    (status = check_requests(sides, err)))
		return status;
	return sort_spans(sides, err);
}

enum kvt_status kvt_sides_nbytes(int64_t *out, const struct kvt_sides *sides,
				 struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*out = 0;
	for (int g = 0; !status && g < sides->transfer.ngroups; g++) {
		int64_t bytes = 0, unique;

		status = kvt_xfer_nbytes(&bytes, &unique, &sides->transfer.group[g].xfer,
					 err);
		*out += bytes;
	}
	return status;
}

/* ---- a new destination: layouts -------------------------------------- */

static enum kvt_status lay_out(struct kvt_group *g, const struct kvt_transfer_pool *p,
			       const char *conv, struct kvt_error *err)
{
	struct kvt_box whole = kvt_box_whole(&g->shape);
	struct kvt_layout layout = g->layout;
	struct kvt_views views;
	struct kvt_error why;

	if (g->kind == KVT_MAMBA_CONV && conv) {
		enum kvt_status status = kvt_conv_layout(&layout, &g->layout, conv, err);

		if (status)
			return status;
	} else if (!kvt_is_recurrent(g->kind) && p->layout.nplanes) {
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

/* ---- a new destination: blocks and tables ---------------------------- */

/* How many blocks a request takes; a recurrent state keeps those it has. */
static int64_t blocks_of(const struct kvt_request *r, const struct kvt_group *g,
			 int index)
{
	int64_t tokens = kvt_request_skip(r, g) + r->ntokens;

	if (g->tokens_per_slot < 0 || !r->nblocks[index])
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
			return kvt_no_memory(err, NULL);
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
	if (g->tokens_per_slot < 0 || !size)
		return KVT_OK;
	if (size % g->tokens_per_slot || size > INT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: blocks of %lld tokens cannot hold slots of %lld tokens",
				g->id, LL(size), LL(g->tokens_per_slot));
	g->block_size = size;
	g->shape.n[KVT_AXIS_S] = size / g->tokens_per_slot;
	return KVT_OK;
}

/*
 * The size of a pool that was not given: the blocks that the ids reach, and at least one
 * in sixteen that nothing goes to, where a stray write shows.
 */
static enum kvt_status choose_pool(int64_t *pool, uint32_t **ids,
				   const struct kvt_id_pattern *pattern, int64_t n,
				   struct kvt_error *err)
{
	const char *words = pattern->words;
	bool spread = !strcmp(words, "scatter") || !strncmp(words, "list:", 5) ||
		      !strncmp(words, "file:", 5);
	int64_t most = n + n / 16 + 1, drawn = spread ? 0 : most;
	enum kvt_status status = kvt_block_ids(ids, &drawn, pattern, n, err);

	*pool = most;
	for (int64_t i = 0; !status && i < n; i++)
		if ((*ids)[i] >= *pool)
			*pool = (int64_t)(*ids)[i] + 1;
	if (status || *pool <= KVT_MOST_POOL)
		return status;
	free(*ids);
	return kvt_fail(err, KVT_BAD_INPUT,
			"block id %lld is outside any pool, which has at most %d",
			LL(*pool - 1), KVT_MOST_POOL);
}

/* Inside the pool, and each once: no two requests share a new block. */
static enum kvt_status check_ids(const uint32_t *ids, int64_t n, int64_t pool,
				 const char *group, struct kvt_error *err)
{
	bool *taken = calloc((size_t)pool + 1, sizeof(*taken));
	enum kvt_status status = taken ? KVT_OK : kvt_no_memory(err, NULL);

	for (int64_t i = 0; !status && i < n; i++) {
		if (ids[i] >= pool)
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: block id %lld is outside the pool of %lld",
					  group, LL(ids[i]), LL(pool));
		else if (taken[ids[i]])
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: block id %lld is listed twice", group,
					  LL(ids[i]));
		else
			taken[ids[i]] = true;
	}
	free(taken);
	return status;
}

/* Requests share no blocks: each has its own part of the ids. */
static enum kvt_status place_group(struct kvt_snapshot *s, int index,
				   const struct kvt_transfer_pool *p, const char *conv,
				   struct kvt_error *err)
{
	struct kvt_group *g = &s->group[index];
	struct kvt_error why = { "" };
	int64_t total = 0, pool = p->blocks;
	enum kvt_status status;
	uint32_t *ids;

	if ((status = cut_blocks(g, p->block_size, err)) ||
	    (status = lay_out(g, p, conv, err)))
		return status;
	for (int64_t i = 0; i < s->nrequests; i++)
		total += blocks_of(&s->request[i], g, index);
	status = pool ? kvt_block_ids(&ids, &pool, &p->ids, total, &why) :
			choose_pool(&pool, &ids, &p->ids, total, &why);
	if (status)
		return kvt_fail(err, status, "%s: %.400s", g->id, why.text);
	status = check_ids(ids, total, pool, g->id, err);
	kvt_group_drop_names(g);	/* those of the source's blocks */
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

/* ---- a new destination: ranks ---------------------------------------- */

static enum kvt_status make_rank(struct kvt_snapshot *out, const struct kvt_snapshot *all,
				 struct kvt_rank rank, int64_t mamba_groups,
				 struct kvt_error *err)
{
	const struct kvt_slice_options options = { .rank = rank,
						   .mamba_groups = mamba_groups };
	struct kvt_error why = { "" };
	enum kvt_status status;

	if ((status = kvt_snapshot_copy(out, all, err)))
		return status;
	for (int g = 0; !status && g < out->ngroups; g++) {
		struct step_part part;

		status = slice_width(&part, &out->group[g], all, &options, &why);
	}
	if (status)
		return kvt_fail(err, status, "tp=%lld: %.400s", LL(rank.size), why.text);
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

static enum kvt_status make_ranks(struct kvt_ranks *dst, const struct kvt_snapshot *all,
				  int64_t n, int64_t mamba_groups, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (n > KVT_MAX_RANKS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"tp=%lld, expected at most %d", LL(n), KVT_MAX_RANKS);
	dst->made = calloc((size_t)n, sizeof(*dst->made));
	if (!dst->made)
		return kvt_no_memory(err, NULL);
	while (!status && dst->n < n) {
		kvt_snapshot_init(&dst->made[dst->n]);
		status = make_rank(&dst->made[dst->n], all,
				   (struct kvt_rank){ n, dst->n }, mamba_groups, err);
		dst->n++;
	}
	return status;
}

enum kvt_status kvt_sides_make_dst(struct kvt_sides *sides,
				   const struct kvt_new_side *from, struct kvt_error *err)
{
	int n = sides->src.n;
	int64_t ranks = from->pool.ranks ? from->pool.ranks : n;
	struct kvt_dump *joined = NULL;
	struct kvt_snapshot whole;
	enum kvt_status status;

	kvt_snapshot_init(&whole);
	if (!(status = rank_files_join(&joined, sides->src.file, n, err)))
		status = kvt_snapshot_copy(&whole, kvt_dump_snapshot(joined), err);
	for (int g = 0; !status && g < whole.ngroups; g++)
		status = place_group(&whole, g, &from->pool, from->conv, err);
	if (!status)
		status = make_ranks(&sides->dst, &whole, ranks, from->mamba_groups, err);
	kvt_snapshot_free(&whole);
	kvt_dump_close(joined);
	return status;
}
