/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canonical.c - one allocation for all layers of a model, and when it applies
 *
 *	row of block b	[page of layer 0][page of layer 1] ...	nblocks rows
 *
 * In: a model's groups, what its connector asks for and the orders of its backends.
 * Out: the reasons against one allocation, a bit each, in the order in which vLLM asks
 * (#37885); or the sizes of rows, and the view that a layer has of them.
 */
#include "lib/kvt/connect.h"

#include <string.h>

static const char *const reason_names[KVT_NCANONICAL_REASONS] = {
	[KVT_NO_CONNECTOR] = "no_connector",
	[KVT_CONNECTOR_PREFERS_PER_LAYER] = "connector_prefers_per_layer",
	[KVT_CONNECTOR_NO_HMA] = "connector_no_hma",
	[KVT_NO_GROUPS] = "no_groups",
	[KVT_NON_ATTENTION_GROUP] = "non_attention_group",
	[KVT_PAGE_SIZE_DIFFERS] = "page_size_differs",
	[KVT_TENSOR_SIZE_DIFFERS] = "tensor_size_differs",
	[KVT_NO_STRIDE_ORDER] = "no_stride_order",
	[KVT_LAYER_AXIS_MISSING] = "layer_axis_missing",
	[KVT_BLOCKS_NOT_OUTERMOST] = "blocks_not_outermost",
	[KVT_STRIDE_ORDER_DIFFERS] = "stride_order_differs",
	[KVT_NO_BACKEND] = "no_backend",
};

const char *kvt_canonical_reason_name(enum kvt_canonical_reason reason)
{
	return reason_names[reason];
}

/* ---- reasons ------------------------------------------------------------ */

static void object(struct kvt_canonical_verdict *verdict,
		   enum kvt_canonical_reason reason)
{
	if (!verdict->reasons)
		verdict->first = reason;
	verdict->reasons |= 1u << reason;
}

static bool is_attention(const struct kvt_canonical_group *group)
{
	enum kvt_kind kind = group->spec->kind;

	return !group->mixed && !kvt_is_recurrent(kind) && kind != KVT_OPAQUE;
}

/* -1 for a spec that has no page; it then equals no other. */
static int64_t page_of(const struct kvt_spec *spec)
{
	struct kvt_spec_size size;

	return kvt_spec_size(&size, spec, NULL) ? -1 : size.page;
}

static void ask_groups(struct kvt_canonical_verdict *verdict,
		       const struct kvt_canonical_request *request)
{
	int64_t page;

	if (request->ngroups < 1) {
		object(verdict, KVT_NO_GROUPS);
		return;
	}
	for (int i = 0; i < request->ngroups; i++)
		if (!is_attention(&request->group[i]))
			object(verdict, KVT_NON_ATTENTION_GROUP);
	page = page_of(request->group[0].spec);
	for (int i = 0; i < request->ngroups; i++)
		if (page < 0 || page_of(request->group[i].spec) != page)
			object(verdict, KVT_PAGE_SIZE_DIFFERS);
	for (int64_t i = 1; i < request->npositions; i++)
		if (request->tensor_nbytes[i] != request->tensor_nbytes[0])
			object(verdict, KVT_TENSOR_SIZE_DIFFERS);
}

/* Numbers mean axes of the shape: of another shape they mean others. */
static bool same_order(const struct kvt_backend_order *a,
		       const struct kvt_backend_order *b)
{
	return a->norder == b->norder && !strcmp(a->shape, b->shape) &&
	       !memcmp(a->order, b->order, (size_t)a->norder * sizeof(a->order[0]));
}

/* 'before' is the backend asked before this one, NULL for the first. */
static void ask_backend(struct kvt_canonical_verdict *verdict,
			const struct kvt_backend_order *backend,
			const struct kvt_backend_order *before)
{
	const char *blocks = strchr(backend->shape, 'B');

	if (backend->norder < 1) {
		object(verdict, KVT_NO_STRIDE_ORDER);
		return;
	}
	if (backend->norder != (int)strlen(backend->shape) + 1) {
		object(verdict, KVT_LAYER_AXIS_MISSING);
		return;
	}
	if (!blocks || backend->order[0] != blocks - backend->shape + 1)
		object(verdict, KVT_BLOCKS_NOT_OUTERMOST);
	if (before && !same_order(before, backend))
		object(verdict, KVT_STRIDE_ORDER_DIFFERS);
}

struct kvt_canonical_verdict
kvt_canonical_check(const struct kvt_canonical_request *request)
{
	struct kvt_canonical_verdict verdict = { 0, KVT_NCANONICAL_REASONS };
	const struct kvt_backend_order *before = NULL;

	if (!request->has_connector)
		object(&verdict, KVT_NO_CONNECTOR);
	if (!request->prefers_cross_layer)
		object(&verdict, KVT_CONNECTOR_PREFERS_PER_LAYER);
	if (!request->supports_hma)
		object(&verdict, KVT_CONNECTOR_NO_HMA);
	ask_groups(&verdict, request);
	for (int i = 0; i < request->ngroups; i++)
		for (int j = 0; j < request->group[i].nbackends; j++) {
			ask_backend(&verdict, &request->group[i].backend[j], before);
			before = &request->group[i].backend[j];
		}
	if (!before)
		object(&verdict, KVT_NO_BACKEND);
	return verdict;
}

/* ---- sizes -------------------------------------------------------------- */

enum kvt_status kvt_canonical_init(struct kvt_canonical *out,
				   const struct kvt_canonical_request *request,
				   struct kvt_error *err)
{
	struct kvt_canonical_verdict verdict = kvt_canonical_check(request);
	struct kvt_canonical c = { .nblocks = request->nblocks,
				   .npositions = request->npositions };
	int64_t tensor;

	if (verdict.reasons)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"layers cannot share one allocation: %s",
				reason_names[verdict.first]);
	c.page = page_of(request->group[0].spec);
	if (c.nblocks < 1 || c.npositions < 1 ||
	    __builtin_mul_overflow(c.page, c.nblocks, &tensor) ||
	    __builtin_mul_overflow(c.page, c.npositions, &c.row) ||
	    __builtin_mul_overflow(c.row < request->row_bytes ?
				   request->row_bytes : c.row, c.nblocks, &c.nbytes))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld tensors of %lld pages of %lld bytes",
				LL(c.npositions), LL(c.nblocks), LL(c.page));
	if (request->tensor_nbytes[0] != tensor)
		return kvt_fail(err, KVT_BAD_INPUT,
				"tensors have %lld bytes, but %lld pages of %lld are %lld", LL(request->tensor_nbytes[0]),
				LL(c.nblocks), LL(c.page),
				LL(tensor));
	if (c.row < request->row_bytes)
		c.row = request->row_bytes;
	*out = c;
	return KVT_OK;
}

/* ---- one layer ---------------------------------------------------------- */

/* The blocks of a kernel, 'each' to a row of the tensor. */
static void set_rows(struct kvt_view *view, int64_t each, int64_t row)
{
	int b = 0;

	while (b < view->nfactors && view->factor[b].axis != KVT_AXIS_B)
		b++;
	if (each == 1) {
		kvt_view_set_stride(view, KVT_AXIS_B, row);
		return;
	}
	for (int i = view->nfactors++; i > b; i--)
		view->factor[i] = view->factor[i - 1];
	view->factor[b].div = each;
	view->factor[b].n /= each;
	view->factor[b].stride = row;
	view->factor[b + 1].n = each;
}

/* The letters in physical order, which is what the layout parser reads. */
static enum kvt_status layout_of(struct kvt_layout *out,
				 const struct kvt_backend_order *backend,
				 struct kvt_error *err)
{
	char text[KVT_NAXES + 2];

	if (backend->norder > KVT_NAXES + 1)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: %d axes, expected at most %d",
				backend->name, backend->norder, KVT_NAXES + 1);
	for (int i = 0; i < backend->norder; i++) {
		int axis = backend->order[i];

		if (axis < 0 || axis >= backend->norder)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: stride order names axis %d of %d",
					backend->name, axis, backend->norder);
		text[i] = axis ? backend->shape[axis - 1] : 'L';
	}
	text[backend->norder] = '\0';
	return kvt_layout_parse(out, text, err);
}

enum kvt_status kvt_canonical_layer(struct kvt_view *out,
				    const struct kvt_canonical_request *request,
				    int group, int64_t position, struct kvt_error *err)
{
	const struct kvt_canonical_group *g;
	struct kvt_spec spec;
	struct kvt_canonical c;
	struct kvt_layout layout;
	struct kvt_shape shape;
	struct kvt_views views;
	struct kvt_box box;
	enum kvt_status status;
	int64_t blocks;

	if ((status = kvt_canonical_init(&c, request, err)))
		return status;
	if (group < 0 || group >= request->ngroups || !request->group[group].nbackends)
		return kvt_fail(err, KVT_BAD_INPUT, "there is no group %d", group);
	g = &request->group[group];
	spec = *g->spec;
	if (g->kernel_block)
		spec.block_size = g->kernel_block;
	if (spec.block_size < 1 || g->spec->block_size % spec.block_size ||
	    __builtin_mul_overflow(c.nblocks, g->spec->block_size / spec.block_size,
				   &blocks))
		return kvt_fail(err, KVT_BAD_INPUT,
				"kernel blocks of %lld tokens do not fill blocks of %lld",
				LL(spec.block_size), LL(g->spec->block_size));
	if ((status = layout_of(&layout, &g->backend[0], err)) ||
	    (status = kvt_spec_shape(&shape, &spec, c.npositions, blocks, err)))
		return status;
	box = kvt_box_whole(&shape);
	if ((status = kvt_layout_views(&views, &layout, &box, shape.elem, err)))
		return status;
	if (views.nbytes != c.page * c.npositions * c.nblocks)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"pages of %lld bytes are padded, which a dense layout cannot show", LL(c.page));
	set_rows(&views.view[0], blocks / c.nblocks, c.row);
	return kvt_view_narrow(out, &views.view[0], KVT_AXIS_L, position,
			       position + 1, err);
}
