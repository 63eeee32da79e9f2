/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_check.c - what must hold between the fields of a snapshot
 *
 * The same rules for every format, on reading and on writing, so that nothing
 * behind them has to doubt an index or a size again.
 */
#include "lib/kvt/snapshot.h"
#include "lib/snapshot/halves.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LAYERS = 1 << 16 };

/* Who hears of it: the first sentence for 'err', or all with their names. */
struct check {
	struct kvt_error *err;
	const struct kvt_inspector *inspector;	/* NULL: the first one ends it */
};

static enum kvt_status flaw(struct check *c, const char *name, const char *format, ...)
	KVT_PRINTF(3, 4);
static enum kvt_status flaw(struct check *c, const char *name, const char *format, ...)
{
	char text[sizeof(c->err->text)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!c->inspector)
		return kvt_fail(c->err, KVT_BAD_INPUT, "%s", text);
	c->inspector->found(c->inspector->context, name, text);
	return KVT_BAD_INPUT;
}

/* ---- groups ------------------------------------------------------------- */

static enum kvt_status check_extents(const struct kvt_group *g, struct check *c)
{
	int64_t slots, nbytes, k = g->shape.n[KVT_AXIS_K];

	if (!g->dtype || g->shape.elem != g->dtype->elem)
		return flaw(c, "group.type",
			    "group %s: element of %lld bytes does not fit type %s",
			    g->id, LL(g->shape.elem),
			    g->dtype ? g->dtype->name : "?");
	for (int a = 0; a < KVT_NAXES; a++) {
		/* no layers or blocks is an empty dump; no head is no dump */
		int64_t least = a != KVT_AXIS_L && a != KVT_AXIS_B;

		if (g->shape.n[a] < least)
			return flaw(c, "group.extent",
				    "group %s: %s extent is %lld, expected at least %lld", g->id, kvt_axis_name(a),
				    LL(g->shape.n[a]), LL(least));
	}
	/* tables have these lengths, also where there is no data to bound them */
	if (g->shape.n[KVT_AXIS_L] > MAX_LAYERS || g->shape.n[KVT_AXIS_B] > UINT32_MAX)
		return flaw(c, "group.extent",
			    "group %s: %lld layers of %lld blocks, at most %d of %lld are supported", g->id,
			    LL(g->shape.n[KVT_AXIS_L]), LL(g->shape.n[KVT_AXIS_B]),
			    MAX_LAYERS, LL(UINT32_MAX));
	if (k > 2 || (g->layout.nplanes == 2 && k != 2))
		return flaw(c, "group.kv",
			    "group %s: kv extent is %lld, expected %s", g->id, LL(k),
			    k > 2 ? "1 or 2" : "2 for a layout of two planes");
	if (kvt_shape_nbytes(&nbytes, &g->shape, NULL))
		return flaw(c, "group.size", "group %s: larger than 2^63 bytes", g->id);
	if (g->tokens_per_slot == -1) {
		slots = g->kind == KVT_MAMBA_CONV ? g->shape.n[KVT_AXIS_S] : 1;
	} else if (g->tokens_per_slot < 1 || g->block_size < 1 ||
		   g->block_size % g->tokens_per_slot) {
		return flaw(c, "group.slots",
			    "group %s: blocks of %lld tokens cannot hold slots of %lld tokens", g->id, LL(g->block_size), LL(g->tokens_per_slot));
	} else {
		slots = g->block_size / g->tokens_per_slot;
	}
	if (slots != g->shape.n[KVT_AXIS_S])
		return flaw(c, "group.slots",
			    "group %s: %lld slots a block, expected %lld (block size %lld, %lld tokens a slot)",
			    g->id, LL(g->shape.n[KVT_AXIS_S]), LL(slots),
			    LL(g->block_size), LL(g->tokens_per_slot));
	if (g->block_size < 0 || g->window < 0 || g->retained < 0)
		return flaw(c, "group.slots",
			    "group %s: negative block size, window or retained tokens",
			    g->id);
	return KVT_OK;
}

static enum kvt_status check_layout(const struct kvt_group *g, struct check *c)
{
	struct kvt_box box = kvt_box_whole(&g->shape);
	struct kvt_shape page = g->shape;
	struct kvt_views views;
	struct kvt_error why;
	int64_t content;

	if (g->layout.nplanes < 1 || g->layout.nplanes > 2)
		return flaw(c, "layout.missing", "group %s: no layout", g->id);
	if (kvt_layout_views(&views, &g->layout, &box, g->shape.elem, &why))
		return flaw(c, "layout.misfit", "group %s: layout %s: %s", g->id,
			    kvt_layout_string(&g->layout).s, why.text);
	if (!g->page_bytes && !g->page_offset)
		return KVT_OK;
	page.n[KVT_AXIS_L] = page.n[KVT_AXIS_B] = 1;
	if (kvt_shape_nbytes(&content, &page, NULL) || g->page_offset < 0 ||
	    g->page_bytes < content || g->page_offset > g->page_bytes - content)
		return flaw(c, "page.size",
			    "group %s: page of %lld bytes cannot hold %lld bytes from byte %lld", g->id, LL(g->page_bytes), LL(content),
			    LL(g->page_offset));
	if (g->page_bytes != content &&
	    !kvt_layout_predicates(&g->layout, &g->shape).block_compact)
		return flaw(c, "page.split",
			    "group %s: pages of %lld bytes in layout %s, whose pages are not one run", g->id, LL(g->page_bytes),
			    kvt_layout_string(&g->layout).s);
	return KVT_OK;
}

/*
 * Ranks share the heads evenly; with more ranks than heads each head is held
 * by a group of neighbours (ranks 0 and 1 hold head 0 of 4 for TP 8).
 */
static enum kvt_status check_heads(const struct kvt_group *g,
				   const struct kvt_parallel *p, struct check *c)
{
	int64_t heads = g->shape.n[KVT_AXIS_H], total = g->total_heads;
	int64_t first = g->head_start, begin, end;

	if (total < 1 || total > INT32_MAX || first < 0 || first > total ||
	    heads > total - first)
		return flaw(c, "tp.heads",
			    "group %s: %lld heads from %lld on, of %lld in all", g->id,
			    LL(heads), LL(first), LL(total));
	if (g->replication < 1)
		return flaw(c, "tp.replication",
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
		return flaw(c, "tp.heads",
			    "group %s: heads %lld to %lld of %lld, but rank %lld of %lld holds %lld to %lld",
			    g->id, LL(first), LL(first + heads - 1), LL(total),
			    LL(p->tp_rank), LL(p->tp_size), LL(begin), LL(end - 1));
	if (g->replication > 1 &&
	    (p->tp_size <= total || g->replication * total != p->tp_size))
		return flaw(c, "tp.replication",
			    "group %s: replication is %lld, expected %lld for %lld heads on %lld ranks", g->id, LL(g->replication),
			    LL(p->tp_size > total ? p->tp_size / total : 1), LL(total),
			    LL(p->tp_size));
	return KVT_OK;
}

static enum kvt_status check_components(const struct kvt_group *g, struct check *c)
{
	int64_t width = g->shape.n[KVT_AXIS_D];

	if (g->ncomponents < 0 || g->ncomponents > KVT_MAX_COMPONENTS)
		return flaw(c, "parts.count",
			    "group %s: %d components, at most %d are supported",
			    g->id, g->ncomponents, KVT_MAX_COMPONENTS);
	for (int i = 0; i < g->ncomponents; i++) {
		const struct kvt_component *part = &g->component[i];

		if (!part->name[0] || part->start < 0 || part->length < 0 ||
		    part->global_start < 0 || part->start > width ||
		    part->length > width - part->start)
			return flaw(c, "parts.range",
				    "group %s: component '%s' holds %lld elements from %lld of %lld", g->id, part->name,
				    LL(part->length), LL(part->start), LL(width));
		for (int j = 0; j < i; j++)
			if (!strcmp(part->name, g->component[j].name))
				return flaw(c, "parts.duplicate",
					    "group %s: two components named '%s'",
					    g->id, part->name);
	}
	return KVT_OK;
}

/* Rows are whole, and in one run. */
static enum kvt_status check_state(const struct kvt_group *g, struct check *c)
{
	int64_t n = 1;
	int i;

	if (!g->state[0])
		return KVT_OK;
	if (g->kind != KVT_MAMBA_SSM)
		return flaw(c, "group.state",
			    "group %s: an SSM state has a shape, but its kind is %s", g->id,
			    kvt_kind_name(g->kind));
	for (i = 0; i < KVT_STATE_AXES && g->state[i]; i++)
		if (g->state[i] < 0 || __builtin_mul_overflow(n, g->state[i], &n))
			n = -1;
	if (n != g->shape.n[KVT_AXIS_D] || i == KVT_STATE_AXES)
		return flaw(c, "group.state",
			    "group %s: a head of its recurrent state has %lld elements, but its shape does not",
			    g->id, LL(g->shape.n[KVT_AXIS_D]));
	return KVT_OK;
}

static enum kvt_status check_content(const struct kvt_group *g, struct check *c)
{
	const struct kvt_content_type *type = g->content.type;
	struct kvt_packing packing;
	struct kvt_error why;

	if (!type)
		return KVT_OK;
	if (strcmp(g->dtype->name, "uint8"))
		return flaw(c, "content.type",
			    "group %s: dtype is %s, expected uint8 for %s", g->id,
			    g->dtype->name, type->name);
	/* of latents, for which vLLM has types of their own, there is one row */
	if (type->pairs && g->shape.n[KVT_AXIS_K] == 1 && kvt_group_half(g) < 0 &&
	    (g->kind != KVT_MLA || type->vllm))
		return flaw(c, "content.row",
			    "group %s: keys and values of %s are separate rows: give their size as head_dim, not as content", g->id, type->name);
	if (kvt_packing_init(&packing, &g->content, &g->shape, g->tokens_per_slot, &why))
		return flaw(c, "content.row", "group %s: %s", g->id, why.text);
	if (kvt_content_keeps(&g->content, &g->layout, &g->shape, &why))
		return flaw(c, "content.torn", "group %s: %s", g->id, why.text);
	return KVT_OK;
}

/* One of a layer, or of each head of the model; all of them numbers above 0. */
static enum kvt_status check_scales(const struct kvt_group *g, struct check *c)
{
	int64_t n = kvt_group_nscales(g);

	if (g->scales && g->scale_heads != 1 && g->scale_heads != g->total_heads)
		return flaw(c, "group.type",
			    "group %s: %lld scales for the keys of a layer, expected 1 or one for each of %lld heads",
			    g->id, LL(g->scale_heads), LL(g->total_heads));
	for (int64_t i = 0; i < n; i++)
		if (!(g->scales[i] > 0) || !isfinite(g->scales[i]))
			return flaw(c, "group.type",
				    "group %s: a scale of layer %llu is %g, expected a number above 0",
				    g->id, (unsigned long long)
				    kvt_layer_id(g, i / 2 / g->scale_heads),
				    (double)g->scales[i]);
	return KVT_OK;
}

static enum kvt_status check_tables(const struct kvt_group *g, struct check *c)
{
	enum kvt_status status = check_scales(g, c);

	if (status && !c->inspector)
		return status;

	for (int64_t i = 0; g->layer_names && i < g->shape.n[KVT_AXIS_L]; i++)
		if (!g->layer_names[i])
			return flaw(c, "layers.name",
				    "group %s: layer %lld has no name", g->id, LL(i));
	for (int64_t i = 0; g->block_names && i < g->shape.n[KVT_AXIS_B]; i++)
		if (!g->block_names[i])
			return flaw(c, "blocks.name",
				    "group %s: block %llu has no name", g->id,
				    (unsigned long long)kvt_block_id(g, i));
	for (int64_t i = 0; g->block_valid && i < g->shape.n[KVT_AXIS_B]; i++) {
		if (g->block_valid[i] <= g->shape.n[KVT_AXIS_S])
			continue;
		status = flaw(c, "valid.capacity",
			      "group %s: block %llu has %lu live slots of %lld", g->id,
			      (unsigned long long)kvt_block_id(g, i),
			      (unsigned long)g->block_valid[i],
			      LL(g->shape.n[KVT_AXIS_S]));
		if (!c->inspector)
			break;
	}
	return status;
}

/* ---- requests ----------------------------------------------------------- */

static enum kvt_status check_table(const struct kvt_request *request,
				   const struct kvt_group *g, int index, struct check *c)
{
	const uint32_t *blocks = request->blocks[index];
	int64_t n = request->nblocks[index];
	enum kvt_status status = KVT_OK;

	if (n < 0 || (n > 0 && !blocks))
		return flaw(c, "table.broken",
			    "request %s: broken block table", request->id);
	for (int64_t i = 0; i < n; i++) {
		if (blocks[i] < g->shape.n[KVT_AXIS_B])
			continue;
		status = flaw(c, "table.out-of-pool",
			      "request %s: block table entry %lld is position %lu, group %s has %lld blocks",
			      request->id, LL(i), (unsigned long)blocks[i], g->id,
			      LL(g->shape.n[KVT_AXIS_B]));
		if (!c->inspector)
			return status;
	}
	/* a window keeps its last blocks only, a recurrent group one state */
	if (n > 0 && g->tokens_per_slot > 0 && !kvt_table_may_end(g) &&
	    request->ntokens > 0 &&
	    (kvt_request_skip(request, g) + request->ntokens - 1) / g->block_size >= n)
		return flaw(c, "table.too-short",
			    "request %s: %lld tokens do not fit %lld blocks of %lld",
			    request->id, LL(request->ntokens), LL(n), LL(g->block_size));
	if (n > 0 && g->tokens_per_slot > 0 && request->first_token % g->tokens_per_slot)
		return flaw(c, "request.first-token",
			    "request %s: token %lld begins no slot of %lld tokens",
			    request->id, LL(request->first_token),
			    LL(g->tokens_per_slot));
	return status;
}

static enum kvt_status check_holes(const struct kvt_snapshot *s,
				   const struct kvt_request *request, struct check *c)
{
	int64_t end = request->first_token + request->ntokens;

	for (int64_t i = 0; i < request->nholes; i++) {
		const struct kvt_hole *h = &request->hole[i], *last = i ? h - 1 : NULL;

		if (h->group < 0 || h->group >= s->ngroups ||
		    s->group[h->group].tokens_per_slot < 1 || h->begin >= h->end ||
		    h->begin < request->first_token || h->end > end ||
		    (last && (last->group > h->group || (last->group == h->group &&
							 last->end >= h->begin))))
			return flaw(c, "request.holes",
				    "request %s: hole %lld, tokens %lld to %lld, is outside tokens %lld to %lld or not in order",
				    request->id, LL(i), LL(h->begin), LL(h->end - 1),
				    LL(request->first_token), LL(end - 1));
	}
	return KVT_OK;
}

static enum kvt_status check_request(const struct kvt_snapshot *s, int64_t r,
				     struct check *c)
{
	const struct kvt_request *request = &s->request[r];
	enum kvt_status status = KVT_OK;
	int64_t nblocks = 0, end;

	if (!request->id)
		return flaw(c, "request.id", "request %lld has no id", LL(r));
	if (request->ntokens < 0 || request->ntoken_ids < 0 ||
	    (request->ntoken_ids > 0 && !request->token_ids))
		return flaw(c, "request.tokens", "request %s: %lld tokens, %lld ids",
			    request->id, LL(request->ntokens), LL(request->ntoken_ids));
	if (request->first_token < 0 || request->prompt_tokens < 0 ||
	    __builtin_add_overflow(request->first_token, request->ntokens, &end))
		return flaw(c, "request.first-token",
			    "request %s: %lld tokens from token %lld on, %lld of the prompt", request->id, LL(request->ntokens),
			    LL(request->first_token), LL(request->prompt_tokens));
	if ((status = check_holes(s, request, c)) && !c->inspector)
		return status;
	for (int g = 0; g < s->ngroups; g++) {
		enum kvt_status one = check_table(request, &s->group[g], g, c);

		if (one && !c->inspector)
			return one;
		status = one ? one : status;
		nblocks += request->nblocks[g];
	}
	if (request->ntokens > 0 && !nblocks)
		return flaw(c, "table.missing",
			    "request %s: %lld tokens, but no block table",
			    request->id, LL(request->ntokens));
	return status;
}

/* ---- all of it ---------------------------------------------------------- */

static enum kvt_status check_parallel(const struct kvt_parallel *p, struct check *c)
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
			return flaw(c, "tp.rank", "%s rank %lld of %lld",
				    rows[i].name, LL(rows[i].rank), LL(rows[i].size));
	return KVT_OK;
}

static enum kvt_status check_group(const struct kvt_snapshot *s, int index,
				   struct check *c)
{
	const struct kvt_group *g = &s->group[index];
	int64_t null = kvt_null_block(s, index);
	enum kvt_status status;

	if (!g->id[0] || !memchr(g->id, 0, sizeof(g->id)))
		return flaw(c, "group.id", "group %d has no id", index);
	for (int i = 0; i < index; i++)
		if (!strcmp(g->id, s->group[i].id))
			return flaw(c, "group.duplicate", "two groups named %s", g->id);
	if ((unsigned)g->kind >= KVT_NKINDS)
		return flaw(c, "group.kind", "group %s has no kind", g->id);
	if (null < -1 || (null >= 0 && null >= g->shape.n[KVT_AXIS_B]))
		return flaw(c, "null.out-of-pool",
			    "null block is at position %lld, group %s has %lld blocks",
			    LL(null), g->id, LL(g->shape.n[KVT_AXIS_B]));
	if (!memchr(g->pool, 0, sizeof(g->pool)))
		return flaw(c, "group.id", "group %s: the name of its pool has no end",
			    g->id);
	if ((status = check_extents(g, c)) ||
	    (status = check_layout(g, c)) ||
	    (status = check_heads(g, &s->parallel, c)) ||
	    (status = check_components(g, c)) ||
	    (status = check_state(g, c)) ||
	    (status = check_content(g, c)))
		return status;
	return check_tables(g, c);
}

static enum kvt_status check_halves(const struct kvt_snapshot *s, struct check *c)
{
	struct kvt_error why;
	enum kvt_status status = halves_check(s, &why);

	if (status == KVT_BAD_INPUT)
		return flaw(c, "kv.heads", "%s", why.text);
	return status ? kvt_fail(c->err, status, "%s", why.text) : KVT_OK;
}

static enum kvt_status check_snapshot(const struct kvt_snapshot *snapshot,
				      struct check *c)
{
	enum kvt_status status = check_parallel(&snapshot->parallel, c);
	bool sound = true;

	if (status)
		return status;
	if (snapshot->ngroups < 1 || snapshot->ngroups > KVT_MAX_GROUPS)
		return flaw(c, "group.count", "%d groups, expected 1 to %d",
			    snapshot->ngroups, KVT_MAX_GROUPS);
	for (int g = 0; g < snapshot->ngroups; g++) {
		if ((status = check_group(snapshot, g, c)) && !c->inspector)
			return status;
		sound &= !status;
	}
	if (sound && (status = check_halves(snapshot, c)) && !c->inspector)
		return status;
	/* tables of a group that is none mean nothing */
	for (int64_t r = 0; sound && r < snapshot->nrequests; r++)
		if ((status = check_request(snapshot, r, c)) && !c->inspector)
			return status;
	return KVT_OK;
}

enum kvt_status kvt_snapshot_check(const struct kvt_snapshot *snapshot,
				   struct kvt_error *err)
{
	struct check c = { .err = err };

	return check_snapshot(snapshot, &c);
}

void kvt_snapshot_inspect(const struct kvt_snapshot *snapshot,
			  const struct kvt_inspector *inspector)
{
	struct check c = { .inspector = inspector };

	/* nobody needs the verdict: he has heard all of it */
	if (check_snapshot(snapshot, &c))
		return;
}
