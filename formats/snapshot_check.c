/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_check.c - what must hold between the fields of a snapshot
 *
 * The same rules for every format, on reading and on writing, so that nothing
 * behind them has to doubt an index or a size again.
 */
#include "formats/format.h"

#include <string.h>

#define LL(x) ((long long)(x))

enum { MAX_LAYERS = 1 << 16 };

/* ---- groups ------------------------------------------------------------- */

static enum kvt_status check_extents(const struct kvt_group *g, struct kvt_error *err)
{
	int64_t states, nbytes, k = g->shape.n[KVT_AXIS_K];

	if (!g->dtype || g->shape.elem != g->dtype->elem)
		return kvt_fail(
			err, KVT_BAD_INPUT,
			"group %s: element of %lld bytes does not fit type %s",
			g->id, LL(g->shape.elem),
			g->dtype ? g->dtype->name : "?");
	for (int a = 0; a < KVT_NAXES; a++) {
		/* no layers or blocks is an empty dump; no head is no dump */
		int64_t least = a != KVT_AXIS_L && a != KVT_AXIS_B;

		if (g->shape.n[a] < least)
			return kvt_fail(err, KVT_BAD_INPUT,
					"group %s: %s extent is %lld, expected "
					"at least %lld",
					g->id, kvt_axis_name(a),
					LL(g->shape.n[a]), LL(least));
	}
	/* tables have these lengths, also where there is no data to bound them */
	if (g->shape.n[KVT_AXIS_L] > MAX_LAYERS || g->shape.n[KVT_AXIS_B] > UINT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: %lld layers of %lld blocks, "
				"at most %d of %lld are supported", g->id,
				LL(g->shape.n[KVT_AXIS_L]), LL(g->shape.n[KVT_AXIS_B]),
				MAX_LAYERS, LL(UINT32_MAX));
	if (k > 2 || (g->layout.nplanes == 2 && k != 2))
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: kv extent is %lld, expected %s", g->id, LL(k),
				k > 2 ? "1 or 2" : "2 for a layout of two planes");
	if (kvt_shape_nbytes(&nbytes, &g->shape, NULL))
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: larger than 2^63 bytes", g->id);
	if (g->tokens_per_state == -1) {
		states = g->kind == KVT_MAMBA_CONV ? g->shape.n[KVT_AXIS_S] : 1;
	} else if (g->tokens_per_state < 1 || g->block_size < 1 ||
		   g->block_size % g->tokens_per_state) {
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: blocks of %lld tokens cannot hold states of %lld tokens",
				g->id, LL(g->block_size), LL(g->tokens_per_state));
	} else {
		states = g->block_size / g->tokens_per_state;
	}
	if (states != g->shape.n[KVT_AXIS_S])
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: %lld states a block, expected %lld (block size %lld, %lld tokens a state)",
				g->id, LL(g->shape.n[KVT_AXIS_S]), LL(states),
				LL(g->block_size), LL(g->tokens_per_state));
	if (g->block_size < 0 || g->window < 0)
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: negative block size or window", g->id);
	return KVT_OK;
}

static enum kvt_status check_layout(const struct kvt_group *g, struct kvt_error *err)
{
	struct kvt_box box = kvt_box_whole(&g->shape);
	struct kvt_shape page = g->shape;
	struct kvt_views views;
	struct kvt_error why;
	int64_t content;

	if (g->layout.nplanes < 1 || g->layout.nplanes > 2)
		return kvt_fail(err, KVT_BAD_INPUT, "group %s: no layout", g->id);
	if (kvt_layout_views(&views, &g->layout, &box, g->shape.elem, &why))
		return kvt_fail(err, KVT_BAD_INPUT, "group %s: layout %s: %s", g->id,
				kvt_layout_string(&g->layout).s, why.text);
	if (!g->page_bytes && !g->page_offset)
		return KVT_OK;
	page.n[KVT_AXIS_L] = page.n[KVT_AXIS_B] = 1;
	if (kvt_shape_nbytes(&content, &page, err) || g->page_offset < 0 ||
	    g->page_bytes < content || g->page_offset > g->page_bytes - content)
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: page of %lld bytes cannot hold %lld "
				"bytes from byte %lld",
				g->id, LL(g->page_bytes), LL(content),
				LL(g->page_offset));
	if (g->page_bytes != content &&
	    !kvt_layout_predicates(&g->layout, &g->shape).block_compact)
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: pages of %lld bytes in layout %s, whose pages are not one run",
				g->id, LL(g->page_bytes),
				kvt_layout_string(&g->layout).s);
	return KVT_OK;
}

/*
 * Ranks share the heads evenly; with more ranks than heads each head is held
 * by a group of neighbours (ranks 0 and 1 hold head 0 of 4 for TP 8).
 */
static enum kvt_status check_heads(const struct kvt_group *g,
				   const struct kvt_parallel *p,
				   struct kvt_error *err)
{
	int64_t heads = g->shape.n[KVT_AXIS_H], total = g->total_heads;
	int64_t first = g->head_start, begin, end;

	if (total < 1 || total > INT32_MAX || first < 0 || first > total ||
	    heads > total - first)
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: %lld heads from %lld on, of %lld in all", g->id,
				LL(heads), LL(first), LL(total));
	if (g->replication < 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: replication is %lld, expected at least 1",
				g->id, LL(g->replication));
	if (p->tp_size < 2)
		return KVT_OK;
	/* both are below 2^31: no product overflows */
	begin = p->tp_rank * total / p->tp_size;
	end = ((p->tp_rank + 1) * total + p->tp_size - 1) / p->tp_size;
	if (p->tp_size > total)
		end = begin + 1;
	if (first < begin || first + heads > end)
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: heads %lld to %lld of %lld, but rank %lld of %lld holds %lld to %lld",
				g->id, LL(first), LL(first + heads - 1), LL(total),
				LL(p->tp_rank), LL(p->tp_size), LL(begin), LL(end - 1));
	if (g->replication > 1 &&
	    (p->tp_size <= total || g->replication * total != p->tp_size))
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: replication is %lld, expected %lld for %lld heads on %lld ranks",
				g->id, LL(g->replication),
				LL(p->tp_size > total ? p->tp_size / total : 1),
				LL(total), LL(p->tp_size));
	return KVT_OK;
}

static enum kvt_status check_components(const struct kvt_group *g,
					struct kvt_error *err)
{
	int64_t width = g->shape.n[KVT_AXIS_D];

	if (g->ncomponents < 0 || g->ncomponents > KVT_MAX_COMPONENTS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: %d components, at most %d are supported",
				g->id, g->ncomponents, KVT_MAX_COMPONENTS);
	for (int i = 0; i < g->ncomponents; i++) {
		const struct kvt_component *c = &g->component[i];

		if (!c->name[0] || c->start < 0 || c->length < 0 || c->global_start < 0 ||
		    c->start > width || c->length > width - c->start)
			return kvt_fail(err, KVT_BAD_INPUT,
					"group %s: component '%s' holds %lld "
					"elements from %lld of %lld",
					g->id, c->name, LL(c->length),
					LL(c->start), LL(width));
		for (int j = 0; j < i; j++)
			if (!strcmp(c->name, g->component[j].name))
				return kvt_fail(err, KVT_BAD_INPUT,
						"group %s: two components named '%s'",
						g->id, c->name);
	}
	return KVT_OK;
}

static enum kvt_status check_tables(const struct kvt_group *g, struct kvt_error *err)
{
	for (int64_t i = 0; g->layer_names && i < g->shape.n[KVT_AXIS_L]; i++)
		if (!g->layer_names[i])
			return kvt_fail(err, KVT_BAD_INPUT,
					"group %s: layer %lld has no name", g->id, LL(i));
	for (int64_t i = 0; g->block_valid && i < g->shape.n[KVT_AXIS_B]; i++)
		if (g->block_valid[i] > g->shape.n[KVT_AXIS_S])
			return kvt_fail(err, KVT_BAD_INPUT,
					"group %s: block %lld has %lu live states of %lld",
					g->id, LL(i), (unsigned long)g->block_valid[i],
					LL(g->shape.n[KVT_AXIS_S]));
	return KVT_OK;
}

/* ---- requests ----------------------------------------------------------- */

static enum kvt_status check_table(const struct kvt_request *request,
				   const struct kvt_group *g, int index,
				   struct kvt_error *err)
{
	const uint32_t *blocks = request->blocks[index];
	int64_t n = request->nblocks[index];

	if (n < 0 || (n > 0 && !blocks))
		return kvt_fail(err, KVT_BAD_INPUT,
				"request %s: broken block table", request->id);
	for (int64_t i = 0; i < n; i++)
		if (blocks[i] >= g->shape.n[KVT_AXIS_B])
			return kvt_fail(err, KVT_BAD_INPUT,
					"request %s: block table entry %lld is "
					"%lu, group %s has %lld blocks",
					request->id, LL(i),
					(unsigned long)blocks[i], g->id,
					LL(g->shape.n[KVT_AXIS_B]));
	/* a window keeps its last blocks only, a recurrent group one state */
	if (n > 0 && g->tokens_per_state > 0 && !g->window && request->ntokens > 0 &&
	    (kvt_request_skip(request, g) + request->ntokens - 1) / g->block_size >= n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"request %s: %lld tokens do not fit %lld blocks of %lld",
				request->id, LL(request->ntokens), LL(n),
				LL(g->block_size));
	if (n > 0 && g->tokens_per_state > 0 &&
	    request->first_token % g->tokens_per_state)
		return kvt_fail(err, KVT_BAD_INPUT,
				"request %s: token %lld begins no state of %lld tokens",
				request->id, LL(request->first_token),
				LL(g->tokens_per_state));
	return KVT_OK;
}

static enum kvt_status check_request(const struct kvt_snapshot *s, int64_t r,
				     struct kvt_error *err)
{
	const struct kvt_request *request = &s->request[r];
	enum kvt_status status;
	int64_t nblocks = 0, end;

	if (!request->id)
		return kvt_fail(err, KVT_BAD_INPUT, "request %lld has no id", LL(r));
	if (request->ntokens < 0 || request->ntoken_ids < 0 ||
	    (request->ntoken_ids > 0 && !request->token_ids))
		return kvt_fail(err, KVT_BAD_INPUT, "request %s: %lld tokens, %lld ids",
				request->id, LL(request->ntokens),
				LL(request->ntoken_ids));
	if (request->first_token < 0 ||
	    __builtin_add_overflow(request->first_token, request->ntokens, &end))
		return kvt_fail(err, KVT_BAD_INPUT,
				"request %s: %lld tokens from token %lld on",
				request->id, LL(request->ntokens),
				LL(request->first_token));
	for (int g = 0; g < s->ngroups; g++) {
		if ((status = check_table(request, &s->group[g], g, err)))
			return status;
		nblocks += request->nblocks[g];
	}
	if (request->ntokens > 0 && !nblocks)
		return kvt_fail(err, KVT_BAD_INPUT,
				"request %s: %lld tokens, but no block table",
				request->id, LL(request->ntokens));
	return KVT_OK;
}

/* ---- all of it ---------------------------------------------------------- */

static enum kvt_status check_parallel(const struct kvt_parallel *p,
				      struct kvt_error *err)
{
	const struct {
		const char *name;
		int64_t size, rank;
	} rows[] = {
		{ "tp", p->tp_size, p->tp_rank },    { "pp", p->pp_size, p->pp_rank },
		{ "dp", p->dp_size, p->dp_rank },    { "dcp", p->dcp_size, p->dcp_rank },
	};

	for (int i = 0; i < 4; i++)
		if (rows[i].size < 1 || rows[i].size > INT32_MAX || rows[i].rank < 0 ||
		    rows[i].rank >= rows[i].size)
			return kvt_fail(err, KVT_BAD_INPUT, "%s rank %lld of %lld",
					rows[i].name, LL(rows[i].rank), LL(rows[i].size));
	return KVT_OK;
}

static enum kvt_status check_group(const struct kvt_snapshot *s, int index,
				   struct kvt_error *err)
{
	const struct kvt_group *g = &s->group[index];
	enum kvt_status status;

	if (!g->id[0] || !memchr(g->id, 0, sizeof(g->id)))
		return kvt_fail(err, KVT_BAD_INPUT, "group %d has no id", index);
	for (int i = 0; i < index; i++)
		if (!strcmp(g->id, s->group[i].id))
			return kvt_fail(err, KVT_BAD_INPUT, "two groups named %s", g->id);
	if ((unsigned)g->kind >= KVT_NKINDS)
		return kvt_fail(err, KVT_BAD_INPUT, "group %s has no kind", g->id);
	if (s->null_block < -1 || (s->null_block >= 0 &&
				   s->null_block >= g->shape.n[KVT_AXIS_B]))
		return kvt_fail(err, KVT_BAD_INPUT,
				"null block is %lld, group %s has %lld blocks",
				LL(s->null_block), g->id, LL(g->shape.n[KVT_AXIS_B]));
	if ((status = check_extents(g, err)) ||
	    (status = check_layout(g, err)) ||
	    (status = check_heads(g, &s->parallel, err)) ||
	    (status = check_components(g, err)))
		return status;
	return check_tables(g, err);
}

enum kvt_status kvt_snapshot_check(const struct kvt_snapshot *snapshot,
				   struct kvt_error *err)
{
	enum kvt_status status = check_parallel(&snapshot->parallel, err);

	if (status)
		return status;
	if (snapshot->ngroups < 1 || snapshot->ngroups > KVT_MAX_GROUPS)
		return kvt_fail(err, KVT_BAD_INPUT, "%d groups, expected 1 to %d",
				snapshot->ngroups, KVT_MAX_GROUPS);
	for (int g = 0; g < snapshot->ngroups; g++)
		if ((status = check_group(snapshot, g, err)))
			return status;
	for (int64_t r = 0; r < snapshot->nrequests; r++)
		if ((status = check_request(snapshot, r, err)))
			return status;
	return KVT_OK;
}
