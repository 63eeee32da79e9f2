/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stack.c - the descriptor lists of connectors
 *
 * A list passes three stages, each of which looks one element ahead at most:
 * descriptors in the stack's order, neighbours that are merged, operations that
 * gather several of these or are cut.  Nothing is stored.
 */
#include "lib/kvt_stack.h"
#include "lib/xfer.h"

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

static int64_t stride_of(const struct kvt_view *view, enum kvt_axis axis)
{
	for (int i = 0; i < view->nfactors; i++)
		if (view->factor[i].axis == axis)
			return view->factor[i].stride;
	return 0;
}

/* Do keys and values of a block lie apart? */
static bool apart(const struct kvt_views *views)
{
	const struct kvt_view *v = &views->view[0];

	for (int i = 0; i < v->nfactors && v->shape.n[KVT_AXIS_K] > 1; i++) {
		const struct kvt_factor *f = &v->factor[i];

		if ((f->axis == KVT_AXIS_S || f->axis == KVT_AXIS_H) && f->n > 1 &&
		    f->stride < stride_of(v, KVT_AXIS_K))
			return true;
	}
	return false;
}

static enum kvt_status narrow(struct kvt_view *v, enum kvt_axis axis, int64_t begin,
			      int64_t count, struct kvt_error *err)
{
	return kvt_view_narrow(v, v, axis, begin, begin + count, err);
}

/* Of one block: the plane k (-1: both), and where the pair's part of it begins. */
static enum kvt_status block_of(struct kvt_view *out, const struct kvt_xfer_side *side,
				int k, bool packed, enum kvt_axis axis, int64_t from,
				int64_t count, struct kvt_error *err)
{
	struct kvt_view v = side->views.view[side->views.count == 2 && k > 0];
	enum kvt_status status;

	if ((!packed && (status = narrow(&v, KVT_AXIS_L, 0, 1, err))) ||
	    (status = narrow(&v, KVT_AXIS_B, 0, 1, err)) ||
	    (k >= 0 && side->views.count == 1 &&
	     (status = narrow(&v, KVT_AXIS_K, k, 1, err))) ||
	    (count && (status = narrow(&v, axis, from, count, err))))
		return status;
	*out = v;
	return KVT_OK;
}

/* Both are one run, and the same one unless a receiver permutes it later. */
static enum kvt_status check_runs(const struct kvt_view *src, const struct kvt_view *dst,
				  bool permuted, int64_t *len, struct kvt_error *err)
{
	struct kvt_plan from, to;
	enum kvt_status status;

	status = permuted ? kvt_plan_init(&from, src, src, err) :
			    kvt_plan_init(&from, dst, src, err);
	if (status || (status = kvt_plan_init(&to, dst, dst, err)))
		return status;
	if (from.nloops || to.nloops)
		return kvt_fail(err, KVT_BAD_INPUT,
				"heads must be contiguous: what moves of a block is %lld runs, not one (layout hnd would do)",
				(long long)(from.nloops ? kvt_plan_nruns(&from) :
							  kvt_plan_nruns(&to)));
	*len = from.run;
	return KVT_OK;
}

static enum kvt_status add_region(struct kvt_posts *p, const struct kvt_xfer *x, int k,
				  enum kvt_axis axis,
				  const struct kvt_exchange_range *range,
				  struct kvt_error *err)
{
	struct kvt_post_region *r = &p->regions[p->nregions];
	bool packed = p->how.stack == KVT_STACK_NIXL_PACKED;
	struct kvt_view src, dst;
	enum kvt_status status;

	if ((status = block_of(&src, &x->src, k, packed, axis, range ? range->src : 0,
			       range ? range->count : 0, err)) ||
	    (status = block_of(&dst, &x->dst, k, packed, axis, range ? range->dst : 0,
			       range ? range->count : 0, err)) ||
	    (status = check_runs(&src, &dst, p->chunk > 0, &r->len, err)))
		return status;
	r->src = src.offset;
	r->dst = dst.offset;
	r->src_layer = packed ? 0 : stride_of(&x->src.views.view[0], KVT_AXIS_L);
	r->dst_layer = packed ? 0 : stride_of(&x->dst.views.view[0], KVT_AXIS_L);
	r->src_block = stride_of(&x->src.views.view[k > 0 &&
				 x->src.views.count == 2], KVT_AXIS_B);
	r->dst_block = stride_of(&x->dst.views.view[k > 0 && x->dst.views.count == 2],
				 KVT_AXIS_B);
	p->nregions++;
	return KVT_OK;
}

static enum kvt_status add_regions(struct kvt_posts *p, const struct kvt_xfer *x,
				   const struct kvt_exchange *ex, struct kvt_error *err)
{
	bool packed = p->how.stack == KVT_STACK_NIXL_PACKED;
	bool two = x->src.views.count == 2 || x->dst.views.count == 2 ||
		   (!packed && (apart(&x->src.views) || apart(&x->dst.views)));
	enum kvt_status status = KVT_OK;

	p->layers = packed ? 1 : x->layers;
	if (packed && !two)
		return add_region(p, x, -1, ex->axis, NULL, err);
	for (int k = two ? 0 : -1; !status && k < (two ? 2 : 0); k++)
		for (int i = 0; !status && i < ex->count; i++)
			status = add_region(p, x, k, ex->axis, &ex->range[i], err);
	return status;
}

/* ---- what stacks refuse --------------------------------------------------- */

static enum kvt_status check_blocks(struct kvt_posts *p, const struct kvt_xfer *x,
				    struct kvt_error *err)
{
	const char *name = kvt_stack_name(p->how.stack);
	int64_t src = kvt_xfer_block_states(&x->src);
	int64_t dst = kvt_xfer_block_states(&x->dst);

	if (src != dst && (p->how.stack != KVT_STACK_NIXL || dst < src || dst % src))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: blocks of %lld and of %lld states: %s", name,
				(long long)src, (long long)dst,
				p->how.stack == KVT_STACK_NIXL ?
				"the reader's must be a multiple of the other's" :
				"both sides must have one block size");
	p->chunk = src == dst ? 0 : src;
	for (int64_t i = 0; i < p->norder; i++)
		if ((p->order[i].dst_state - p->order[i].src_state) % src)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: state %lld of a block goes to state %lld: it moves whole blocks only",
					name, (long long)p->order[i].src_state,
					(long long)p->order[i].dst_state);
	return KVT_OK;
}

static enum kvt_status check_packed(const struct kvt_xfer *x, struct kvt_error *err)
{
	const struct kvt_view *v[2] = { &x->src.views.view[0], &x->dst.views.view[0] };

	for (int s = 0; s < 2 && x->layers > 1; s++)
		if (stride_of(v[s], KVT_AXIS_B) < stride_of(v[s], KVT_AXIS_L))
			return kvt_fail(err, KVT_BAD_INPUT,
					"nixl-packed: the layers of a block are not together (layout blshc would do)");
	return KVT_OK;
}

static enum kvt_status start_regions(struct kvt_posts *p, const struct kvt_xfer *x,
				     const struct kvt_pair *pair, struct kvt_error *err)
{
	struct kvt_error why = { "" };
	enum kvt_status status;

	if ((status = check_blocks(p, x, err)))
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
		if (p->order[i].count != kvt_xfer_block_states(&x->src) ||
		    p->order[i].count != kvt_xfer_block_states(&x->dst))
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
				const struct kvt_xfer *xfer,
				const struct kvt_pair *pair,
				const struct kvt_block_span *order, int64_t norder,
				struct kvt_error *err)
{
	struct kvt_posts *p = posts;
	enum kvt_status status;

	*p = (struct kvt_posts){ .how = *how, .order = order, .norder = norder };
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
		out->dst += e->dst_state / p->chunk * r->len;
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
