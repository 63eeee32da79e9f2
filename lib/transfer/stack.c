/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stack.c - the descriptor lists of connectors
 *
 * A list passes three stages, each of which looks one element ahead at most:
 * descriptors in the stack's order, neighbours that are merged, operations that
 * gather several of these or are cut.  Nothing is stored.
 *
 * Rows of stacks[] are names; what the first three do is from vLLM's NIXL and Mooncake
 * connectors, and lib/kvt/stack.h says it.
 */
#include "lib/kvt/stack.h"
#include "lib/transfer/xfer.h"

#include <string.h>

static const struct {
	const char *name;
	bool regions, merges;
	enum kvt_scope scope;		/* of what has no regions */
} stacks[] = {
	[KVT_STACK_NIXL] = { "nixl", true, true, KVT_SCOPE_LAYER },
	[KVT_STACK_NIXL_PACKED] = { "nixl-packed", true, true, KVT_SCOPE_RFC },
	[KVT_STACK_MOONCAKE] = { "mooncake", true, true, KVT_SCOPE_LAYER },
	[KVT_STACK_RFC] = { "rfc", false, false, KVT_SCOPE_RFC },
	[KVT_STACK_LAYER] = { "layer", false, false, KVT_SCOPE_LAYER },
	[KVT_STACK_MAX] = { "max", false, false, KVT_SCOPE_MAX },
};

const char *kvt_stack_name(enum kvt_stack stack)
{
	return stack < KVT_NSTACKS ? stacks[stack].name : "unknown";
}

bool kvt_stack_is_vllm(enum kvt_stack stack)
{
	return stacks[stack].regions;
}

bool kvt_stack_find(enum kvt_stack *out, const char *name)
{
	for (int i = 0; i < KVT_NSTACKS; i++)
		if (!strcmp(stacks[i].name, name)) {
			*out = (enum kvt_stack)i;
			return true;
		}
	return false;
}

const char *kvt_coalesce_name(enum kvt_coalesce coalesce)
{
	static const char *const names[] = { "stack", "off", "nixl", "full" };

	return coalesce < KVT_NCOALESCES ? names[coalesce] : "unknown";
}

int64_t kvt_slice_count(int64_t len, int64_t slice, int64_t fragment)
{
	if (!slice || len <= slice + fragment)
		return 1;
	len -= fragment;
	return len / slice + !!(len % slice);
}

/* ---- regions ------------------------------------------------------------- */

/* Do keys and values of a layer's block have regions of their own? */
static bool apart(const struct kvt_views *views)
{
	const struct kvt_view *v = &views->view[0];
	bool inside = false;		/* are heads or slots outside of K? */

	if (views->count == 2 || v->shape.n[KVT_AXIS_K] < 2)
		return views->count == 2;
	for (int i = 0; i < v->nfactors && v->factor[i].axis != KVT_AXIS_K; i++)
		inside |= v->factor[i].axis == KVT_AXIS_S ||
			  v->factor[i].axis == KVT_AXIS_H;
	return !inside;
}

static enum kvt_status narrow(struct kvt_view *v, enum kvt_axis axis, int64_t begin,
			      int64_t count, struct kvt_error *err)
{
	return kvt_view_narrow(v, v, axis, begin, begin + count, err);
}

/* What a descriptor is to hold of a block: a layer or all, keys, values or both. */
struct wanted {
	bool packed;			/* all layers */
	int k;				/* 0 keys, 1 values, -1 both */
	enum kvt_axis axis;
	int64_t from, count;		/* along it; 0: all */
};

/* The same as bytes of the first block; both planes, where there are two. */
struct part {
	int n;
	struct kvt_view view[2];
};

static enum kvt_status part_of(struct part *out, const struct kvt_xfer_side *side,
				const struct wanted *w, struct kvt_error *err)
{
	const struct kvt_views *all = &side->views;
	enum kvt_status status;

	*out = (struct part){ .n = 0 };
	for (int i = 0; i < all->count; i++) {
		struct kvt_view v = all->view[i];

		if (all->count == 2 && w->k >= 0 && w->k != i)
			continue;
		if ((!w->packed && (status = narrow(&v, KVT_AXIS_L, 0, 1, err))) ||
		    (status = narrow(&v, KVT_AXIS_B, 0, 1, err)) ||
		    (w->k >= 0 && all->count == 1 &&
		     (status = narrow(&v, KVT_AXIS_K, w->k, 1, err))) ||
		    (w->count && (status = narrow(&v, w->axis, w->from, w->count, err))))
			return status;
		out->view[out->n++] = v;
	}
	return KVT_OK;
}

/* Views do not overlap, so what fills the bytes from its first to its last is a run. */
static bool is_run(const struct part *p, int64_t *begin, int64_t *len)
{
	int64_t end = 0;

	*begin = INT64_MAX;
	*len = 0;
	for (int i = 0; i < p->n; i++) {
		const struct kvt_view *v = &p->view[i];
		int64_t n = v->shape.elem, last = v->offset + n;

		for (int k = 0; k < v->nfactors; k++) {
			n *= v->factor[k].n;
			last += (v->factor[k].n - 1) * v->factor[k].stride;
		}
		*begin = v->offset < *begin ? v->offset : *begin;
		end = last > end ? last : end;
		*len += n;
	}
	return end - *begin == *len;
}

/* Is every byte as far behind the first on both sides? */
static bool same_bytes(const struct part *src, const struct part *dst)
{
	int64_t ahead = 0;

	for (int i = 0; i < src->n && src->n == dst->n; i++) {
		struct kvt_plan plan;

		if (kvt_plan_init(&plan, &dst->view[i], &src->view[i], NULL))
			return false;
		for (int k = 0; k < plan.nloops; k++)
			if (plan.src_stride[k] != plan.dst_stride[k])
				return false;
		if (i && plan.dst_offset - plan.src_offset != ahead)
			return false;
		ahead = plan.dst_offset - plan.src_offset;
	}
	return src->n == dst->n;
}

static int64_t count_runs(const struct part *p)
{
	int64_t n = 0;

	for (int i = 0; i < p->n; i++) {
		struct kvt_plan plan;

		n += kvt_plan_init(&plan, &p->view[i], &p->view[i], NULL) ? 1 :
		     kvt_plan_nruns(&plan);
	}
	return n;
}

/* Both are one run, and the same one unless a receiver permutes it later. */
static enum kvt_status check_runs(struct kvt_post_region *r, const struct part *src,
				  const struct part *dst, bool permuted,
				  struct kvt_error *err)
{
	int64_t whole;
	bool from = is_run(src, &r->src, &r->len), to = is_run(dst, &r->dst, &whole);

	if (from && to && (permuted || same_bytes(src, dst)))
		return KVT_OK;
	if (from && to)
		return kvt_fail(err, KVT_BAD_INPUT,
				"both sides must have one layout: the bytes of a block are in another order");
	return kvt_fail(err, KVT_BAD_INPUT,
			"heads must be contiguous: what moves of a block is %lld runs, not one (layout hnd would do)",
			LL(count_runs(from ? dst : src)));
}

static enum kvt_status add_region(struct kvt_posts *p, const struct kvt_xfer *x,
				  const struct wanted *src_part,
				  const struct wanted *dst_part, struct kvt_error *err)
{
	struct kvt_post_region *r = &p->regions[p->nregions];
	struct part src, dst;
	enum kvt_status status;

	if ((status = part_of(&src, &x->src, src_part, err)) ||
	    (status = part_of(&dst, &x->dst, dst_part, err)) ||
	    (status = check_runs(r, &src, &dst, p->chunk > 0, err)))
		return status;
	r->src_layer = p->packed ? 0 : kvt_view_stride(&x->src.views.view[0], KVT_AXIS_L);
	r->dst_layer = p->packed ? 0 : kvt_view_stride(&x->dst.views.view[0], KVT_AXIS_L);
	r->src_block = kvt_view_stride(&src.view[0], KVT_AXIS_B);
	r->dst_block = kvt_view_stride(&dst.view[0], KVT_AXIS_B);
	p->nregions++;
	return KVT_OK;
}

/* Do both planes, of keys and of values, fill one region together? */
static bool joined(const struct kvt_xfer_side *side, const struct wanted *w)
{
	struct part part;
	int64_t begin, len;

	return side->views.count == 2 && !part_of(&part, side, w, NULL) &&
	       is_run(&part, &begin, &len);
}

static enum kvt_status add_regions(struct kvt_posts *p, const struct kvt_xfer *x,
				   const struct kvt_exchange *ex, struct kvt_error *err)
{
	const struct wanted all = { .packed = p->packed, .k = -1, .axis = ex->axis };
	bool two = (!p->packed || x->src.views.count == 2 || x->dst.views.count == 2) &&
		   (apart(&x->src.views) || apart(&x->dst.views)) &&
		   (p->chunk || !joined(&x->src, &all) || !joined(&x->dst, &all));
	enum kvt_status status = KVT_OK;

	p->layers = p->packed ? 1 : x->layers;
	if (p->packed && !two)
		return add_region(p, x, &all, &all, err);
	for (int k = two ? 0 : -1; !status && k < (two ? 2 : 0); k++)
		for (int i = 0; !status && i < ex->count; i++) {
			const struct kvt_exchange_range *e = &ex->range[i];
			struct wanted src = all, dst = all;

			src.k = dst.k = k;
			src.count = dst.count = e->count;
			src.from = e->src;
			dst.from = e->dst;
			status = add_region(p, x, &src, &dst, err);
		}
	return status;
}

/* ---- what stacks refuse --------------------------------------------------- */

static enum kvt_status check_blocks(struct kvt_posts *p, const struct kvt_xfer *x,
				    struct kvt_error *err)
{
	const char *name = kvt_stack_name(p->how.stack);
	int64_t src = kvt_xfer_block_slots(&x->src);
	int64_t dst = kvt_xfer_block_slots(&x->dst);

	if (src != dst && (p->how.stack != KVT_STACK_NIXL || dst < src || dst % src))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: blocks of %lld and of %lld slots: %s", name,
				LL(src), LL(dst),
				p->how.stack == KVT_STACK_NIXL ?
				"the reader's must be a multiple of the other's" :
				"both sides must have one block size");
	p->chunk = src == dst ? 0 : src;
	for (int64_t i = 0; i < p->norder; i++)
		if ((p->order[i].dst_slot - p->order[i].src_slot) % src)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: slot %lld of a block goes to slot %lld: it moves whole blocks only",
					name, LL(p->order[i].src_slot),
					LL(p->order[i].dst_slot));
	return KVT_OK;
}

/* Connectors pair ranks by dividing, and tokens that are dealt out by whole blocks. */
static enum kvt_status check_ranks(const struct kvt_xfer *x, struct kvt_error *err)
{
	struct kvt_error why = { "" };
	int64_t ratio, src = kvt_xfer_side_ranks(&x->src) / x->src.ranks;
	int64_t dst = kvt_xfer_side_ranks(&x->dst) / x->dst.ranks;
	enum kvt_status status;

	if (src != dst)
		return kvt_fail(err, KVT_BAD_INPUT,
				"DCP is %lld on the source and %lld on the destination, so no block is moved whole",
				LL(src), LL(dst));
	status = kvt_tp_ratio(&ratio, x->dst.ranks, x->src.ranks, &why);
	return status ? kvt_fail(err, status, "%.400s, as the destination reads",
				 why.text) : KVT_OK;
}

/* ---- nixl ------------------------------------------------------------------ */

/*
 * What the handshake of vLLM 0.32 asserts (_validate_remote_agent_handshake) and
 * how a layer becomes a region (register_kv_caches).  The destination is local.
 */

static bool outside(const struct kvt_view *v, enum kvt_axis a, enum kvt_axis b)
{
	return kvt_view_stride(v, a) > kvt_view_stride(v, b);
}

/* Axes that both sides have several of stand in one order. */
static bool same_order(const struct kvt_xfer *x)
{
	static const enum kvt_axis axes[] = { KVT_AXIS_L, KVT_AXIS_B, KVT_AXIS_H,
					      KVT_AXIS_S, KVT_AXIS_K };
	const struct kvt_view *a = &x->src.views.view[0], *b = &x->dst.views.view[0];
	unsigned several = 0;

	for (int i = 0; i < 5; i++)
		several |= (unsigned)(a->shape.n[axes[i]] > 1 &&
				      b->shape.n[axes[i]] > 1) << i;
	for (int i = 0; i < 5; i++)
		for (int j = 0; j < i; j++)
			if (several >> i & several >> j & 1 &&
			    outside(a, axes[i], axes[j]) != outside(b, axes[i], axes[j]))
				return false;
	return x->src.views.count == x->dst.views.count;
}

/* Where blocks are outermost, a page that is not [heads][slots] goes with its row. */
static bool needs_row(const struct kvt_xfer_side *side, int64_t layers)
{
	const struct kvt_view *v = &side->views.view[0];
	bool split = apart(&side->views);
	const struct wanted page = { .k = split ? 0 : -1 };
	struct part part;
	int64_t begin, len;

	if (layers < 2 || !outside(v, KVT_AXIS_B, KVT_AXIS_L) ||
	    part_of(&part, side, &page, NULL))
		return false;
	if (!is_run(&part, &begin, &len))
		return true;
	return !split && v->shape.n[KVT_AXIS_H] > 1 && v->shape.n[KVT_AXIS_S] > 1 &&
	       outside(v, KVT_AXIS_S, KVT_AXIS_H);
}

static enum kvt_status check_heads(const struct kvt_posts *p, const struct kvt_xfer *x,
				   struct kvt_error *err)
{
	bool fewer = x->dst.ranks < x->src.ranks;

	if (fewer && x->src.ranks > x->src.spec.total_heads)
		return kvt_fail(err, KVT_BAD_INPUT,
				"nixl: %lld ranks hold %lld heads, some twice: fewer ranks, %lld, do not read that",
				LL(x->src.ranks), LL(x->src.spec.total_heads),
				LL(x->dst.ranks));
	if (fewer && p->chunk)
		return kvt_fail(err, KVT_BAD_INPUT,
				"nixl: blocks of %lld and of %lld slots must have one size where %lld ranks read from %lld",
				LL(kvt_xfer_block_slots(&x->src)),
				LL(kvt_xfer_block_slots(&x->dst)),
				LL(x->dst.ranks), LL(x->src.ranks));
	return KVT_OK;
}

static enum kvt_status check_nixl(struct kvt_posts *p, const struct kvt_xfer *x,
				  struct kvt_error *err)
{
	enum kvt_status status;

	/* a latent is on every rank, and states of Mamba are dealt by parts */
	if (x->src.spec.kind == KVT_MLA || kvt_xfer_is_recurrent(&x->src.spec))
		return KVT_OK;
	if ((status = check_heads(p, x, err)))
		return status;
	if (!same_order(x))
		return kvt_fail(err, KVT_BAD_INPUT,
				"nixl: both sides must have one layout");
	p->packed = needs_row(&x->src, x->layers) || needs_row(&x->dst, x->layers);
	if (p->packed && x->src.ranks != x->dst.ranks)
		return kvt_fail(err, KVT_BAD_INPUT,
				"nixl: heads must be contiguous: a block is one region of all layers (layout hnd would do)");
	if (p->packed && p->chunk)
		return kvt_fail(err, KVT_BAD_INPUT,
				"nixl: a block is one region of all layers, which blocks of another size do not make");
	return KVT_OK;
}

static enum kvt_status check_packed(const struct kvt_xfer *x, struct kvt_error *err)
{
	const struct kvt_view *v[2] = { &x->src.views.view[0], &x->dst.views.view[0] };

	for (int s = 0; s < 2 && x->layers > 1; s++)
		if (kvt_view_stride(v[s], KVT_AXIS_B) < kvt_view_stride(v[s], KVT_AXIS_L))
			return kvt_fail(err, KVT_BAD_INPUT,
					"nixl-packed: the layers of a block are not together (layout blshc would do)");
	return KVT_OK;
}

static enum kvt_status start_regions(struct kvt_posts *p, const struct kvt_xfer *x,
				     const struct kvt_pair *pair, struct kvt_error *err)
{
	struct kvt_error why = { "" };
	enum kvt_status status;

	if ((status = check_blocks(p, x, err)) ||
	    (p->how.stack == KVT_STACK_NIXL && (status = check_nixl(p, x, err))))
		return status;
	status = add_regions(p, x, &pair->exchange, &why);
	return status ? kvt_fail(err, status, "%s: %.400s", kvt_stack_name(p->how.stack),
				 why.text) : KVT_OK;
}

/* Only of whole blocks are the bytes of a stack those of the plan. */
static enum kvt_status check_full(const struct kvt_posts *p, const struct kvt_xfer *x,
				  struct kvt_error *err)
{
	for (int64_t i = 0; i < p->norder; i++)
		if (p->order[i].count != kvt_xfer_block_slots(&x->src) ||
		    p->order[i].count != kvt_xfer_block_slots(&x->dst))
			return kvt_fail(
				err, KVT_UNSUPPORTED,
				"full coalescing of %s is known for whole blocks of one size only, as partial=whole moves them",
				kvt_stack_name(p->how.stack));
	return KVT_OK;
}

static enum kvt_status start_scope(struct kvt_posts *p, const struct kvt_xfer *x,
				   const struct kvt_pair *pair, enum kvt_scope scope,
				   struct kvt_error *err)
{
	enum kvt_status status = kvt_nest_init(&p->nest, x, pair, err);

	p->scoped = true;
	if (!status)
		kvt_ops_start(&p->walk, &p->nest, scope);
	return status;
}

enum kvt_status kvt_posts_start(struct kvt_posts *posts, const struct kvt_posting *how,
				const struct kvt_xfer *xfer, const struct kvt_pair *pair,
				const struct kvt_block_span *order, int64_t norder,
				struct kvt_error *err)
{
	struct kvt_posts *p = posts;
	struct kvt_error why = { "" };
	enum kvt_status status;

	*p = (struct kvt_posts){ .how = *how, .order = order, .norder = norder,
				 .packed = how->stack == KVT_STACK_NIXL_PACKED };
	if (stacks[how->stack].regions && (status = check_ranks(xfer, &why)))
		return kvt_fail(err, status, "%s: %.400s", kvt_stack_name(how->stack),
				why.text);
	if (stacks[how->stack].regions && how->coalesce == KVT_COALESCE_FULL &&
	    (status = check_full(p, xfer, err)))
		return status;
	if (how->coalesce == KVT_COALESCE_FULL)
		return start_scope(p, xfer, pair, KVT_SCOPE_MAX, err);
	if (how->stack == KVT_STACK_NIXL_PACKED) {
		if ((status = check_packed(xfer, err)))
			return status;
		if (xfer->src.ranks != xfer->dst.ranks)
			return start_scope(p, xfer, pair, KVT_SCOPE_RFC, err);
	}
	return stacks[how->stack].regions ?
	       start_regions(p, xfer, pair, err) :
	       start_scope(p, xfer, pair, stacks[how->stack].scope, err);
}

/* ---- the list ------------------------------------------------------------- */

/* 'row' tells the regions of the list apart. */
static bool listed(struct kvt_op *out, int64_t *row, struct kvt_posts *p)
{
	const struct kvt_post_region *r = &p->regions[p->region];
	const struct kvt_block_span *e;

	if (p->scoped) {
		*row = 0;
		return kvt_op_next(out, &p->walk);
	}
	if (p->at == p->norder) {
		p->at = 0;
		r = &p->regions[++p->region];
		if (p->region == p->nregions) {
			p->region = 0;
			r = &p->regions[0];
			p->layer++;
		}
	}
	if (p->layer >= p->layers || !p->norder || !p->nregions)
		return false;
	e = &p->order[p->at++];
	*row = p->layer * p->nregions + p->region;
	*out = (struct kvt_op){
		r->src + p->layer * r->src_layer + e->src_block * r->src_block,
		r->dst + p->layer * r->dst_layer + e->dst_block * r->dst_block,
		r->len
	};
	if (p->chunk)
		out->dst += e->dst_slot / p->chunk * r->len;
	return true;
}

static bool pull(struct kvt_op *out, int64_t *row, struct kvt_posts *p)
{
	if (p->have[0]) {
		p->have[0] = false;
		*out = p->ahead[0];
		*row = p->row[0];
		return true;
	}
	if (!listed(out, row, p))
		return false;
	p->listed++;
	return true;
}

/* Grows 'op' by 'next' if both are one run. */
static bool join(struct kvt_op *op, const struct kvt_op *next, bool descending)
{
	if (op->src + op->len == next->src && op->dst + op->len == next->dst) {
		op->len += next->len;
		return true;
	}
	if (descending && next->src + next->len == op->src &&
	    next->dst + next->len == op->dst) {
		op->src = next->src;
		op->dst = next->dst;
		op->len += next->len;
		return true;
	}
	return false;
}

static bool merged(struct kvt_op *out, struct kvt_posts *p)
{
	bool merge = p->how.coalesce == KVT_COALESCE_STACK ?
		     stacks[p->how.stack].merges && !p->scoped :
		     p->how.coalesce == KVT_COALESCE_NIXL;
	int64_t row, next_row;
	struct kvt_op next;

	if (!pull(out, &row, p))
		return false;
	p->merged++;
	while (merge && pull(&next, &next_row, p)) {
		if (next_row == row && join(out, &next, p->how.descending))
			continue;
		p->ahead[0] = next;
		p->row[0] = next_row;
		p->have[0] = true;
		break;
	}
	return true;
}

/* As many as may be one operation that writes one run. */
static bool gathered(struct kvt_op *out, struct kvt_posts *p)
{
	struct kvt_op next;

	if (p->have[1]) {
		p->have[1] = false;
		*out = p->ahead[1];
	} else if (!merged(out, p)) {
		return false;
	}
	for (int64_t n = 1; n < p->how.sge && merged(&next, p); n++) {
		if (out->dst + out->len != next.dst) {
			p->ahead[1] = next;
			p->have[1] = true;
			break;
		}
		out->len += next.len;
	}
	return true;
}

bool kvt_post_next(struct kvt_op *out, struct kvt_posts *p)
{
	if (!p->rest.len && !gathered(&p->rest, p))
		return false;
	*out = p->rest;
	if (kvt_slice_count(out->len, p->how.slice, p->how.fragment) > 1)
		out->len = p->how.slice;
	p->rest.src += out->len;
	p->rest.dst += out->len;
	p->rest.len -= out->len;
	p->ops++;
	p->bytes += out->len;
	return true;
}
