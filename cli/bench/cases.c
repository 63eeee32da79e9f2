/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases.c - the copies that kvtool bench runs
 *
 * A case is a shape and two layouts: two views, and the plan of copies between them.
 * In: about how many bytes.  Out: the plan for two layers, and as many blocks as make
 * that, a multiple of four, so that four can be joined.  In two cases the shape changes,
 * too: the destination of "reblock" has larger blocks and is seen by the blocks and
 * slots of the source, and the source of "tp-slice" is one share of the heads.
 */
#include "cli/bench/bench.h"

enum { LAYERS = 2 };

/* Llama-3.1-8B and 70B, fp8, DeepSeek's latents, scales; blocks as engines have them. */
static const struct bench_case cases[] = {
	{ "nhd-hnd", "nhd", "hnd", 16, 8, 2, 128, 2, 0, 0, "heads of a block gathered" },
	{ "hnd-nhd", "hnd", "nhd", 16, 8, 2, 128, 2, 0, 0, "and scattered again" },
	{ "kv-first", "kv-first-nhd", "hnd", 16, 8, 2, 128, 2, 0, 0,
	  "keys and values joined" },
	{ "nhd-blshc", "nhd", "blshc", 16, 8, 2, 128, 2, 0, 0,
	  "all layers of a block together" },
	{ "nhd-bhlsc", "nhd", "bhlsc", 16, 8, 2, 128, 2, 0, 0,
	  "all layers of a head together" },
	{ "hnd-bhlsc", "hnd", "bhlsc", 16, 8, 2, 128, 2, 0, 0,
	  "the same from whole heads" },
	{ "rocm", "nhd", "rocm-paged", 16, 8, 2, 128, 2, 0, 0,
	  "keys in parts of 16 bytes, values transposed" },
	{ "fp8", "kv-first-nhd", "kv-first-hnd", 16, 8, 2, 64, 1, 0, 0,
	  "one byte an element" },
	{ "mla", "mla", "mla-cross", 64, 1, 1, 576, 2, 0, 0, "latents, layers together" },
	{ "scales", "nhd", "hnd", 16, 8, 2, 1, 2, 0, 0, "4 bytes a slot and head" },
	{ "reblock", "hnd", "hnd", 16, 8, 2, 128, 2, 4, 0, "blocks of 16 into 64" },
	{ "tp-slice", "nhd", "nhd", 16, 8, 2, 128, 2, 0, 4, "heads of a rank of 4" },
};

const struct bench_case *bench_case_at(int i)
{
	return i >= 0 && i < (int)(sizeof(cases) / sizeof(cases[0])) ? &cases[i] : NULL;
}

static int64_t page_bytes(const struct bench_case *c)
{
	return c->slots * c->heads * c->kv * c->dims * c->elem;
}

static enum kvt_status views_of(struct kvt_views *out, const char *name,
				const struct kvt_shape *shape, struct kvt_error *err)
{
	const struct kvt_box whole = kvt_box_whole(shape);
	struct kvt_layout layout;
	enum kvt_status status = kvt_layout_parse(&layout, name, err);

	return status ? status : kvt_layout_views(out, &layout, &whole, shape->elem, err);
}

/*
 * A dense HND view of larger blocks, by the blocks and slots of the source: 'joined'
 * of them stand where one slot axis was.
 */
static void join_blocks(struct kvt_views *v, const struct bench_case *c)
{
	struct kvt_view *view = &v->view[0];
	const int64_t *n = view->shape.n;
	const int64_t content = c->kv * c->dims * c->elem, slots = c->slots * c->joined;
	const int64_t page = slots * c->heads * content;
	const struct kvt_factor factors[] = {
		{ KVT_AXIS_L, 1, n[KVT_AXIS_L], page * n[KVT_AXIS_B] / c->joined },
		{ KVT_AXIS_B, c->joined, n[KVT_AXIS_B] / c->joined, page },
		{ KVT_AXIS_H, 1, c->heads, slots * content },
		{ KVT_AXIS_B, 1, c->joined, c->slots * content },
		{ KVT_AXIS_S, 1, c->slots, content },
		{ KVT_AXIS_K, 1, c->kv, c->dims * c->elem },
		{ KVT_AXIS_D, 1, c->dims, c->elem },
	};

	view->nfactors = sizeof(factors) / sizeof(factors[0]);
	for (int i = 0; i < view->nfactors; i++)
		view->factor[i] = factors[i];
}

/* The second share, so that nothing begins where it did. */
static enum kvt_status take_share(struct kvt_views *src, struct kvt_shape *shape,
				  const struct bench_case *c, struct kvt_error *err)
{
	struct kvt_box part = kvt_box_whole(shape);

	shape->n[KVT_AXIS_H] /= c->shares;
	part.begin[KVT_AXIS_H] = shape->n[KVT_AXIS_H];
	part.end[KVT_AXIS_H] = 2 * shape->n[KVT_AXIS_H];
	return kvt_views_narrow(src, src, &part, err);
}

enum kvt_status bench_plan_init(struct bench_plan *out, const struct bench_case *c,
				int64_t nbytes, struct kvt_error *err)
{
	int64_t blocks = nbytes / page_bytes(c) / LAYERS / 4 * 4;
	struct kvt_shape shape = {
		.n = { LAYERS, blocks < 4 ? 4 : blocks, c->slots, c->heads, c->kv,
		       c->dims },
		.elem = c->elem,
	};
	struct kvt_views src, dst;
	enum kvt_status status;

	if ((status = views_of(&src, c->from, &shape, err)))
		return status;
	out->src_bytes = src.nbytes;
	if (c->shares && (status = take_share(&src, &shape, c, err)))
		return status;
	if ((status = views_of(&dst, c->to, &shape, err)))
		return status;
	out->dst_bytes = dst.nbytes;
	if (c->joined)
		join_blocks(&dst, c);
	if ((status = kvt_plans_init(&out->plans, &dst, &src, err)))
		return status;
	return kvt_plans_cover(&out->plans, dst.nbytes, err);
}
