/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caches.c - tensors of pages, and where each layer of a group has its own
 *
 * vLLM's CanonicalKVCaches: each tensor is [pages, page bytes], and a layer of a group is
 * a reference into one.  Blocks outermost make one tensor, whose rows hold the pages of
 * all layers; layers outermost make a tensor of each, which groups of one pool share by
 * position.  Any other order has no such pages.
 */
#include "lib/ops/describe/describe.h"

/* Without padding, and as far as it is from the next one. */
static int64_t content_of(const struct kvt_group *g)
{
	struct kvt_shape shape = g->shape;
	int64_t nbytes;

	shape.n[KVT_AXIS_L] = shape.n[KVT_AXIS_B] = 1;
	return kvt_shape_nbytes(&nbytes, &shape, NULL) ? -1 : nbytes;
}

static int64_t page_of(const struct kvt_group *g)
{
	int64_t content = content_of(g);

	return g->page_bytes > content ? g->page_bytes : content;
}

/*
 * From one layer to the next in a row, 0 where each has a tensor; -1: the layout cannot
 * have such pages.
 */
static int64_t step_of(const struct kvt_canonical_facts *f, int group)
{
	const struct kvt_group *g = &f->snapshot->group[group];
	const struct kvt_layout *layout = f->layout[group];
	struct kvt_box box = kvt_box_whole(&g->shape);
	struct kvt_views views;

	if (kvt_layout_views(&views, layout, &box, g->shape.elem, NULL))
		return -1;
	if (layout->plane[0].part[0].axis == KVT_AXIS_L)
		return 0;
	if (layout->plane[0].part[1].axis == KVT_AXIS_L)
		return page_of(g);
	return page_of(g) != content_of(g) ? -1 :
	       kvt_view_stride(&views.view[0], KVT_AXIS_L);
}

int64_t kvt_cache_tensors(const struct kvt_canonical_facts *f)
{
	const struct kvt_snapshot *s = f->snapshot;
	enum kvt_axis first = s->ngroups ? kvt_layout_outermost(f->layout[0]) : KVT_NAXES;
	int64_t row;

	if (first == KVT_NAXES)
		return 0;
	for (int g = 0; g < s->ngroups; g++)
		if (kvt_layout_outermost(f->layout[g]) != first ||
		    content_of(&s->group[g]) < 0 || step_of(f, g) < 0 ||
		    __builtin_mul_overflow(page_of(&s->group[g]),
					   s->group[g].shape.n[KVT_AXIS_L], &row))
			return 0;
	return first == KVT_AXIS_B ? 1 : f->request.npositions;
}

struct kvt_cache_tensor kvt_cache_tensor(const struct kvt_canonical_facts *f, int64_t i)
{
	bool one = kvt_layout_outermost(f->layout[0]) == KVT_AXIS_B;
	struct kvt_cache_tensor t = { f->request.nblocks,
				      one ? f->request.row_bytes : 0 };

	for (int g = 0; g < f->snapshot->ngroups; g++) {
		const struct kvt_group *group = &f->snapshot->group[g];
		int64_t layers = group->shape.n[KVT_AXIS_L];
		int64_t page = one ? page_of(group) * layers :
			       i < layers ? page_of(group) : 0;

		if (page > t.page_bytes)
			t.page_bytes = page;
	}
	return t;
}

struct kvt_cache_ref kvt_cache_ref(const struct kvt_canonical_facts *f, int group,
				   int64_t layer)
{
	const struct kvt_group *g = &f->snapshot->group[group];
	bool one = kvt_layout_outermost(f->layout[group]) == KVT_AXIS_B;

	return (struct kvt_cache_ref){
		.tensor = one ? 0 : layer, .page_bytes = content_of(g),
		.offset = g->page_offset + layer * step_of(f, group),
	};
}
