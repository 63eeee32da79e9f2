/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canonical.c - the one tensor that all layers of a model could share
 *
 * The dump's groups are turned into the request that an engine would make of its
 * allocator (specs, stride orders, bytes of each tensor), and lib/transfer judges it:
 * the reasons against one tensor, or its layout.  Of the twelve conditions of vLLM
 * #37885 a dump answers nine; the first three are the connector's, which is taken to
 * be one that wants such a tensor.
 */
#include "lib/ops/describe/describe.h"

#include <stdlib.h>
#include <string.h>

#include "lib/layout/words.h"
#include "lib/run/leaf.h"

/* ---- the request that the dump makes ------------------------------------ */

static struct kvt_spec spec_of(const struct kvt_group *group)
{
	const int64_t *n = group->shape.n;
	int64_t content = n[KVT_AXIS_K] * n[KVT_AXIS_D] * group->shape.elem;
	struct kvt_spec spec = {
		.kind = group->kind, .block_size = group->block_size,
		.num_heads = n[KVT_AXIS_H], .total_heads = group->total_heads,
		.head_start = group->head_start, .replication = group->replication,
		.tokens_per_slot = { group->tokens_per_slot, 1 },
		.content_size = content, .elem = group->shape.elem,
		.page_size_padded = group->page_bytes, .window = group->window,
		.ncontent = n[KVT_AXIS_K] == 2 ? 2 : 1,
		.content = { n[KVT_AXIS_K] == 2 ? 2 : n[KVT_AXIS_D], n[KVT_AXIS_D] },
	};

	/* taps and the like are one slot here: only its size counts */
	if (group->tokens_per_slot < 0) {
		spec.ncontent = 0;
		spec.content_size = content * n[KVT_AXIS_S];
	}
	return spec;
}

/* As vLLM numbers the axes of a layer, whatever their order in memory. */
static int axis_number(const char *letters, enum kvt_axis axis)
{
	return axis == KVT_AXIS_L ? 0 :
	       1 + (int)(strchr(letters, kvt_axis_letter(axis)) - letters);
}

/*
 * Blocks of a kernel that follow each other in a block are blocks to its backend: for
 * B S/n ... S%n this is B ... S.
 */
static void join_blocks(struct kvt_order *order)
{
	int s = kvt_order_find(order, KVT_AXIS_B) + 1;

	if (!s || s == order->nparts || order->part[s].axis != KVT_AXIS_S ||
	    order->part[s].kind != KVT_OUTER)
		return;
	order->nparts--;
	for (int i = s; i < order->nparts; i++)
		order->part[i] = order->part[i + 1];
	for (int i = s; i < order->nparts; i++)
		if (order->part[i].axis == KVT_AXIS_S)
			order->part[i].kind = KVT_WHOLE;
}

/* The stride order of a cache that has this layout; none if it is no such. */
static void order_of(struct kvt_backend_order *out, char letters[KVT_NAXES + 1],
		     const struct kvt_layout *layout)
{
	static const enum kvt_axis logical[] = { KVT_AXIS_B, KVT_AXIS_H, KVT_AXIS_S,
						 KVT_AXIS_K, KVT_AXIS_D };
	struct kvt_order joined = layout->plane[0];
	const struct kvt_order *order = &joined;
	unsigned there = 0;
	int n = 0;

	join_blocks(&joined);
	*out = (struct kvt_backend_order){ .name = "dump", .shape = letters };
	letters[0] = '\0';
	if (layout->nplanes != 1 || order->nparts > KVT_NAXES)
		return;
	for (int i = 0; i < order->nparts; i++) {
		if (order->part[i].kind != KVT_WHOLE)
			return;
		there |= 1u << order->part[i].axis;
	}
	for (size_t i = 0; i < sizeof(logical) / sizeof(logical[0]); i++)
		if (there >> logical[i] & 1)
			letters[n++] = kvt_axis_letter(logical[i]);
	letters[n] = '\0';
	for (int i = 0; i < order->nparts; i++)
		out->order[i] = axis_number(letters, order->part[i].axis);
	out->norder = order->nparts;
}

/* Of one head and the like a layout has several names: that of the first group. */
static const struct kvt_layout *layout_of(const struct kvt_snapshot *s, int g)
{
	const struct kvt_layout *first = &s->group[0].layout;

	return kvt_layout_agree(first, &s->group[g].layout, &s->group[g].shape) ?
	       first : &s->group[g].layout;
}

/*
 * Blocks of the pool: the rows of a file that is such a tensor; else one for each id up
 * to the greatest.  A group has some of them, so how many it has says nothing.
 */
static enum kvt_status count_blocks(struct kvt_canonical_request *r,
				    const struct kvt_dump *dump, struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);

	if (leaf && leaf->rows) {
		r->nblocks = leaf->rows;
		r->row_bytes = leaf->row_bytes;
		return KVT_OK;
	}
	for (int g = 0; g < s->ngroups; g++)
		for (int64_t b = 0; b < s->group[g].shape.n[KVT_AXIS_B]; b++) {
			uint64_t id = kvt_block_id(&s->group[g], b);

			if (id >= INT64_MAX)
				return kvt_fail(err, KVT_BAD_INPUT,
						"group %s has block %llu, which no pool has room for", s->group[g].id,
						(unsigned long long)id);
			if ((int64_t)id >= r->nblocks)
				r->nblocks = (int64_t)id + 1;
		}
	return KVT_OK;
}

/* Tensor i holds layer i of each group that has so many. */
static enum kvt_status count_tensors(struct kvt_canonical_facts *f, struct kvt_error *err)
{
	const struct kvt_snapshot *s = f->snapshot;
	struct kvt_canonical_request *r = &f->request;
	struct kvt_spec_size size;
	enum kvt_status status;

	for (int g = 0; g < s->ngroups; g++)
		if (s->group[g].shape.n[KVT_AXIS_L] > r->npositions)
			r->npositions = s->group[g].shape.n[KVT_AXIS_L];
	f->tensor = calloc((size_t)r->npositions + 1, sizeof(*f->tensor));
	if (!f->tensor)
		return kvt_no_memory(err, NULL);
	r->tensor_nbytes = f->tensor;
	for (int g = s->ngroups - 1; g >= 0; g--) {
		int64_t nbytes;

		if ((status = kvt_spec_size(&size, &f->spec[g], err)))
			return status;
		if (__builtin_mul_overflow(size.page, r->nblocks, &nbytes))
			return kvt_fail(err, KVT_BAD_INPUT, "%s: its size overflows",
					s->group[g].id);
		for (int64_t i = 0; i < s->group[g].shape.n[KVT_AXIS_L]; i++)
			f->tensor[i] = nbytes;
	}
	return KVT_OK;
}

static enum kvt_status ask(struct kvt_canonical_facts *f, const struct kvt_dump *dump,
			   bool asked, struct kvt_error *err)
{
	const struct kvt_snapshot *s = f->snapshot;
	enum kvt_status status;

	for (int g = 0; g < s->ngroups; g++) {
		f->spec[g] = spec_of(&s->group[g]);
		const struct kvt_layout *layout = asked ? &f->asked : layout_of(s, g);
		struct kvt_predicates is = kvt_layout_predicates(layout,
								 &s->group[g].shape);

		f->layout[g] = asked ? layout : &s->group[g].layout;
		order_of(&f->backend[g], f->letters[g], layout);
		f->group[g] = (struct kvt_canonical_group){
			.spec = &f->spec[g], .nbackends = 1,
			.kernel_block = s->group[g].tokens_per_slot > 0 ?
				is.kernel_slots * s->group[g].tokens_per_slot : 0,
			.backend = &f->backend[g] };
	}
	f->request = (struct kvt_canonical_request){
		.has_connector = true, .prefers_cross_layer = true,
		.supports_hma = true, .ngroups = s->ngroups, .group = f->group };
	if ((status = count_blocks(&f->request, dump, err)) ||
	    (status = count_tensors(f, err)))
		return status;
	f->verdict = kvt_canonical_check(&f->request);
	return f->verdict.reasons ? KVT_OK :
	       kvt_canonical_init(&f->whole, &f->request, err);
}

enum kvt_status kvt_describe_canonical(struct kvt_description *d, const char *layout,
				       struct kvt_error *err)
{
	struct kvt_layout asked = { 0 };
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (layout && (status = kvt_layout_parse(&asked, layout, &why)))
		return kvt_fail(err, status, "layout '%.100s': %s", layout, why.text);
	d->canonical = calloc(1, sizeof(*d->canonical));
	if (!d->canonical)
		return kvt_no_memory(err, NULL);
	d->canonical->snapshot = d->snapshot;
	d->canonical->asked = asked;
	status = ask(d->canonical, d->dump, layout != NULL, &why);
	return status ? kvt_fail(err, status, "%.200s: %s", d->path, why.text) : KVT_OK;
}

void kvt_canonical_facts_free(struct kvt_canonical_facts *f)
{
	if (f)
		free(f->tensor);
	free(f);
}

/* ---- where a layer is --------------------------------------------------- */

struct kvt_canonical_place kvt_canonical_place(const struct kvt_canonical_facts *f,
					       int group, int64_t i)
{
	struct kvt_canonical_place p = { .one_run = f->backend[group].order[1] == 0 &&
					 !f->group[group].kernel_block };
	static const int64_t first[KVT_NAXES];

	p.has_view = !kvt_canonical_layer(&p.view, &f->request, group, i, NULL);
	p.known = p.has_view || p.one_run;
	p.offset = p.has_view ? kvt_view_at(&p.view, first) : i * f->whole.page;
	return p;
}
