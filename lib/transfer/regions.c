/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions.c - a pair of ranks as few strided copies
 *
 * In: a nest.  Out: plans, one after the other: entries that are alike and evenly apart,
 * in both pools, are one plan with a loop around them; else an entry is a plan, or where
 * its slots lie in parts of a split axis, a slot.  All regions together move the bytes
 * of the ops, each once; their order is not that of the source.
 */
#include "lib/transfer/xfer.h"

void kvt_xfer_regions_start(struct kvt_xfer_regions *regions, const struct kvt_nest *nest)
{
	*regions = (struct kvt_xfer_regions){ .nest = nest };
}

/* Entries from 'i' on that are alike and whose blocks are evenly apart. */
static int64_t row_length(const struct kvt_xfer *x, int64_t i)
{
	const struct kvt_block_span *e = x->entry + i;
	int64_t n = 1, left = x->nentries - i, src, dst;

	if (left < 2)
		return left;
	src = e[1].src_block - e->src_block;
	dst = e[1].dst_block - e->dst_block;
	for (; n < left; n++)
		if (e[n].count != e->count || e[n].src_slot != e->src_slot ||
		    e[n].dst_slot != e->dst_slot ||
		    e[n].src_block - e[n - 1].src_block != src ||
		    e[n].dst_block - e[n - 1].dst_block != dst)
			break;
	/* two may be the end of nothing: leave the second to the next row */
	return n == 2 && left > 2 ? 1 : n;
}

static int64_t block_stride(const struct kvt_view *view)
{
	for (int i = 0; i < view->nfactors; i++)
		if (view->factor[i].axis == KVT_AXIS_B)
			return view->factor[i].stride;
	return 0;
}

static int64_t magnitude(int64_t n)
{
	return n < 0 ? -n : n;
}

/*
 * The copy of one entry becomes that of a row of them.  False if there is no
 * room for another loop.
 */
static bool repeat_plan(struct kvt_plan *p, int64_t n, int64_t src, int64_t dst)
{
	int at = 0;

	if (n < 2)
		return true;
	while (at < p->nloops && magnitude(p->dst_stride[at]) > magnitude(dst))
		at++;
	if (at == p->nloops ? src == p->run && dst == p->run :
	    src == p->src_stride[at] * p->n[at] && dst == p->dst_stride[at] * p->n[at]) {
		*(at == p->nloops ? &p->run : &p->n[at]) *= n;
		return true;
	}
	if (p->nloops == KVT_MAX_LOOPS)
		return false;
	for (int i = p->nloops++; i > at; i--) {
		p->n[i] = p->n[i - 1];
		p->src_stride[i] = p->src_stride[i - 1];
		p->dst_stride[i] = p->dst_stride[i - 1];
	}
	p->n[at] = n;
	p->src_stride[at] = src;
	p->dst_stride[at] = dst;
	return true;
}

static enum kvt_status cut(struct kvt_view *view, int64_t block, int64_t slot,
			   int64_t count, const struct kvt_range *channels)
{
	enum kvt_status status;

	if ((status = kvt_view_narrow(view, view, KVT_AXIS_B, block, block + 1, NULL)))
		return status;
	if (channels)
		return kvt_view_narrow(view, view, KVT_AXIS_D, channels->begin,
				       channels->end, NULL);
	return kvt_view_narrow(view, view, KVT_AXIS_S, slot, slot + count, NULL);
}

/* Splits of a slot axis may not nest, or be cut by an entry: then it fails. */
static enum kvt_status plan_entry(struct kvt_plan *out, const struct kvt_both *whole,
				  const struct kvt_nest *nest,
				  const struct kvt_block_span *e, int part)
{
	const struct kvt_exchange_range *r = &nest->exchange.range[part];
	struct kvt_range from = { r->src, r->src + r->count };
	struct kvt_range to = { r->dst, r->dst + r->count };
	struct kvt_both v = *whole;
	enum kvt_status status;

	if ((status = cut(&v.src, e->src_block, e->src_slot, e->count,
			  nest->taps ? &from : NULL)) ||
	    (status = cut(&v.dst, e->dst_block, e->dst_slot, e->count,
			  nest->taps ? &to : NULL)))
		return status;
	return kvt_plan_init(out, &v.dst, &v.src, NULL);
}

/*
 * The region at the cursor: a row of entries if their copies are alike, one
 * entry, or a single slot of it where the layout keeps slots together that
 * the entry separates.
 */
static int64_t make_region(struct kvt_xfer_region *out,
			   const struct kvt_xfer_regions *r, const struct kvt_both *v)
{
	const struct kvt_xfer *x = r->nest->xfer;
	struct kvt_block_span e = x->entry[r->entry];
	const struct kvt_block_span *next = &x->entry[r->entry + 1];
	int64_t n = 1;

	*out = (struct kvt_xfer_region){ .entry = r->entry, .entries = 1,
					 .part = r->part, .plane = r->plane };
	if (!r->slot && !plan_entry(&out->plan, v, r->nest, &e, r->part)) {
		n = row_length(x, r->entry);
		if (n > 1 && repeat_plan(&out->plan, n,
				block_stride(&v->src) * (next->src_block - e.src_block),
				block_stride(&v->dst) * (next->dst_block - e.dst_block)))
			out->entries = n;
		return e.count;
	}
	e.src_slot += r->slot;
	e.dst_slot += r->slot;
	e.count = 1;
	if (plan_entry(&out->plan, v, r->nest, &e, r->part))
		out->plan.run = 0;
	return r->slot + 1;
}

bool kvt_xfer_region_next(struct kvt_xfer_region *out, struct kvt_xfer_regions *r)
{
	const struct kvt_xfer *x = r->nest->xfer;
	int nparts = r->nest->taps ? r->nest->exchange.count : 1;
	struct kvt_both v;
	int64_t slots;

	if (r->entry >= x->nentries || kvt_nest_views(&v, r->nest, r->plane, NULL))
		return false;
	slots = make_region(out, r, &v);
	if (slots < x->entry[r->entry].count) {
		r->slot = slots;
		return true;
	}
	r->slot = 0;
	r->entry += out->entries;
	if (r->entry < x->nentries)
		return true;
	r->entry = 0;
	if (++r->part < nparts)
		return true;
	r->part = 0;
	if (++r->plane == r->nest->nplanes)
		r->entry = x->nentries;
	return true;
}
