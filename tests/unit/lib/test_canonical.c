/* SPDX-License-Identifier: Apache-2.0 */
/* test_canonical.c - the shared allocation of vLLM #37885, and when it applies */
#include "lib/kvt/connect.h"
#include "tests/unit/tests.h"

/* ---- the pull request's own example --------------------------------------- */

/* Three groups, two positions, fp16: 16 slots of 4 heads of 8. */
static const struct kvt_spec full = {
	.kind = KVT_FULL_ATTENTION, .block_size = 16, .num_heads = 4,
	.total_heads = 4, .replication = 1, .tokens_per_slot = { 1, 1 },
	.content_size = 32, .ncontent = 2, .content = { 2, 8 }, .elem = 2,
};
static const struct kvt_spec window = {
	.kind = KVT_SLIDING_WINDOW, .block_size = 16, .num_heads = 4,
	.total_heads = 4, .replication = 1, .tokens_per_slot = { 1, 1 },
	.content_size = 32, .ncontent = 2, .content = { 2, 8 }, .elem = 2,
	.window = 1024,
};
static const struct kvt_backend_order slots_first = {
	"FLASH_ATTN", "KBSHD", 6, { 2, 0, 1, 3, 4, 5 },
};
static const struct kvt_backend_order heads_first = {
	"FLASH_ATTN", "KBSHD", 6, { 2, 4, 0, 1, 3, 5 },
};
static const int64_t tensors[] = { 20480, 20480 };

/* What a row of the table of reasons may change. */
struct example {
	struct kvt_spec spec[3];
	struct kvt_backend_order backend[3];
	struct kvt_canonical_group group[3];
	int64_t tensor[2];
	struct kvt_canonical_request request;
};

static void example(struct example *e, const struct kvt_backend_order *backend)
{
	*e = (struct example){ .spec = { full, window, window } };
	memcpy(e->tensor, tensors, sizeof(tensors));
	for (int i = 0; i < 3; i++) {
		e->backend[i] = *backend;
		e->group[i] = (struct kvt_canonical_group){
			.spec = &e->spec[i], .nbackends = 1, .backend = &e->backend[i] };
	}
	e->request = (struct kvt_canonical_request){
		.has_connector = true, .prefers_cross_layer = true,
		.supports_hma = true, .ngroups = 3, .group = e->group,
		.npositions = 2, .tensor_nbytes = e->tensor, .nblocks = 10,
	};
}

static void test_sizes(void)
{
	struct example e;
	struct kvt_canonical c;

	example(&e, &slots_first);
	assert_int_equal(kvt_canonical_check(&e.request).reasons, 0);
	assert_false(kvt_canonical_init(&c, &e.request, NULL));
	assert_int_equal(c.page, 2048);
	assert_int_equal(c.npositions, 2);
	assert_int_equal(c.row, 4096);
	assert_int_equal(c.nblocks, 10);
	assert_int_equal(c.nbytes, 40960);
}

static void check_strides(const struct kvt_backend_order *backend,
			  const int64_t want[5], int64_t position)
{
	static const enum kvt_axis axes[] = { KVT_AXIS_K, KVT_AXIS_B, KVT_AXIS_S,
					      KVT_AXIS_H, KVT_AXIS_D };
	struct example e;
	struct kvt_view view;

	example(&e, backend);
	for (int group = 0; group < 3; group++)
		for (int i = 0; i < 2; i++) {
			int64_t at[KVT_NAXES] = { 0 };

			assert_false(kvt_canonical_layer(&view, &e.request, group, i,
							 NULL));
			assert_int_equal(kvt_view_at(&view, at), 2 * position * i);
			for (int a = 0; a < 5; a++) {
				int64_t one[KVT_NAXES] = { 0 };

				one[axes[a]] = 1;
				assert_int_equal(kvt_view_at(&view, one) -
						 kvt_view_at(&view, at), 2 * want[a]);
			}
		}
}

static void test_strides(void)
{
	check_strides(&slots_first, (int64_t[]){ 512, 2048, 32, 8, 1 }, 1024);
	check_strides(&heads_first, (int64_t[]){ 128, 2048, 8, 512, 1 }, 256);
}

/* full.1, block 3, V, token 5, head 2, element 0 */
static void test_byte(void)
{
	static const int64_t at[KVT_NAXES] = { 0, 3, 5, 2, 1, 0 };
	struct example e;
	struct kvt_view view;

	example(&e, &slots_first);
	assert_false(kvt_canonical_layer(&view, &e.request, 0, 1, NULL));
	assert_int_equal(kvt_view_at(&view, at), 15712);
}

/* Kernel blocks of 8: a page of a position comes in two ranges of its row. */
static void test_kernel_block(void)
{
	struct example e;
	struct kvt_view view;

	example(&e, &slots_first);
	e.group[1].kernel_block = 8;
	assert_false(kvt_canonical_layer(&view, &e.request, 1, 1, NULL));
	assert_int_equal(view.shape.n[KVT_AXIS_B], 20);
	assert_int_equal(view.shape.n[KVT_AXIS_S], 8);
	assert_int_equal(kvt_view_at(&view, (int64_t[KVT_NAXES]){ 0 }), 1024);
	assert_int_equal(kvt_view_at(&view, (int64_t[KVT_NAXES]){ 0, 7 }),
			 1024 + 7 * 2048);
	e.request.row_bytes = 5000;
	assert_false(kvt_canonical_layer(&view, &e.request, 1, 1, NULL));
	assert_int_equal(kvt_view_at(&view, (int64_t[KVT_NAXES]){ 0, 7 }),
			 1024 + 3 * 5000 + 2048);
	e.request.row_bytes = 0;
	e.group[1].kernel_block = 6;
	assert_int_equal(kvt_canonical_layer(&view, &e.request, 1, 1, &why),
			 KVT_BAD_INPUT);
	assert_string_equal(why.text,
			    "kernel blocks of 6 tokens do not fill blocks of 16");
}

/* ---- reasons -------------------------------------------------------------- */

static void no_connector(struct example *e) { e->request.has_connector = false; }
static void per_layer(struct example *e) { e->request.prefers_cross_layer = false; }
static void no_hma(struct example *e) { e->request.supports_hma = false; }
static void recurrent(struct example *e) { e->spec[2].kind = KVT_MAMBA_SSM; }
static void mixed(struct example *e) { e->group[1].mixed = true; }
static void page(struct example *e) { e->spec[1].page_size_padded = 4096; }
static void half_slots(struct example *e) { e->spec[0].tokens_per_slot.num = 32; }
static void tensor(struct example *e) { e->tensor[1] = 20479; }
static void no_order(struct example *e) { e->backend[0].norder = 0; }
static void no_layers(struct example *e) { e->backend[1].norder = 5; }
static void no_backend(struct example *e)
{
	for (int i = 0; i < 3; i++)
		e->group[i].nbackends = 0;
}
static void no_groups(struct example *e)
{
	e->request.ngroups = 0;
}
static void layers_first(struct example *e)
{
	for (int i = 0; i < 3; i++)
		memcpy(e->backend[i].order, (int[]){ 0, 2 }, 2 * sizeof(int));
}
static void other_order(struct example *e)
{
	e->backend[2] = heads_first;
}
/* the same numbers, of other axes */
static void other_shape(struct example *e)
{
	e->backend[2].shape = "KBHSD";
}
static void slots_outermost(struct example *e)
{
	for (int i = 0; i < 3; i++)
		memcpy(e->backend[i].order, (int[]){ 3, 0, 1, 2 }, 4 * sizeof(int));
}
static void opaque(struct example *e)
{
	e->spec[0].kind = KVT_OPAQUE;
}
static void no_pages(struct example *e)
{
	for (int i = 0; i < 3; i++)
		e->spec[i].tokens_per_slot.num = 32;
}
static void two(struct example *e)
{
	layers_first(e);
	e->backend[1].norder = 0;
}
static void mla(struct example *e)
{
	for (int i = 0; i < 3; i++) {
		e->spec[i].kind = KVT_MLA;
		e->backend[i] = (struct kvt_backend_order){ "MLA", "BSC", 4,
							    { 1, 0, 2, 3 } };
	}
}

#define BIT(r) (1u << (r))
static const struct {
	void (*change)(struct example *e);
	unsigned reasons;
	enum kvt_canonical_reason first;
	const char *name;
} reasons[] = {
	{ no_connector, BIT(KVT_NO_CONNECTOR), KVT_NO_CONNECTOR, "no_connector" },
	{ per_layer, BIT(KVT_CONNECTOR_PREFERS_PER_LAYER),
	  KVT_CONNECTOR_PREFERS_PER_LAYER, "connector_prefers_per_layer" },
	{ no_hma, BIT(KVT_CONNECTOR_NO_HMA), KVT_CONNECTOR_NO_HMA, "connector_no_hma" },
	{ no_groups, BIT(KVT_NO_GROUPS) | BIT(KVT_NO_BACKEND), KVT_NO_GROUPS,
	  "no_groups" },
	{ recurrent, BIT(KVT_NON_ATTENTION_GROUP), KVT_NON_ATTENTION_GROUP,
	  "non_attention_group" },
	{ mixed, BIT(KVT_NON_ATTENTION_GROUP), KVT_NON_ATTENTION_GROUP,
	  "non_attention_group" },
	{ page, BIT(KVT_PAGE_SIZE_DIFFERS), KVT_PAGE_SIZE_DIFFERS, "page_size_differs" },
	{ half_slots, BIT(KVT_PAGE_SIZE_DIFFERS), KVT_PAGE_SIZE_DIFFERS,
	  "page_size_differs" },
	{ tensor, BIT(KVT_TENSOR_SIZE_DIFFERS), KVT_TENSOR_SIZE_DIFFERS,
	  "tensor_size_differs" },
	{ no_order, BIT(KVT_NO_STRIDE_ORDER) | BIT(KVT_STRIDE_ORDER_DIFFERS),
	  KVT_NO_STRIDE_ORDER, "no_stride_order" },
	{ no_layers, BIT(KVT_LAYER_AXIS_MISSING) | BIT(KVT_STRIDE_ORDER_DIFFERS),
	  KVT_LAYER_AXIS_MISSING, "layer_axis_missing" },
	{ layers_first, BIT(KVT_BLOCKS_NOT_OUTERMOST), KVT_BLOCKS_NOT_OUTERMOST,
	  "blocks_not_outermost" },
	{ slots_outermost, BIT(KVT_BLOCKS_NOT_OUTERMOST), KVT_BLOCKS_NOT_OUTERMOST,
	  "blocks_not_outermost" },
	{ opaque, BIT(KVT_NON_ATTENTION_GROUP), KVT_NON_ATTENTION_GROUP,
	  "non_attention_group" },
	{ no_pages, BIT(KVT_PAGE_SIZE_DIFFERS), KVT_PAGE_SIZE_DIFFERS,
	  "page_size_differs" },
	{ other_order, BIT(KVT_STRIDE_ORDER_DIFFERS), KVT_STRIDE_ORDER_DIFFERS,
	  "stride_order_differs" },
	{ other_shape, BIT(KVT_STRIDE_ORDER_DIFFERS), KVT_STRIDE_ORDER_DIFFERS,
	  "stride_order_differs" },
	{ no_backend, BIT(KVT_NO_BACKEND), KVT_NO_BACKEND, "no_backend" },
	/* backend by backend: the first one's reason, though it has a later number */
	{ two, BIT(KVT_BLOCKS_NOT_OUTERMOST) | BIT(KVT_NO_STRIDE_ORDER) |
	       BIT(KVT_STRIDE_ORDER_DIFFERS), KVT_BLOCKS_NOT_OUTERMOST,
	  "blocks_not_outermost" },
	{ mla, 0, KVT_NCANONICAL_REASONS, NULL },
};

static void test_reasons(void)
{
	unsigned all = 0;

	for (size_t i = 0; i < LENGTH(reasons); i++) {
		struct kvt_canonical_verdict verdict;
		struct example e;
		struct kvt_canonical c = { .row = -7 };

		example(&e, &slots_first);
		reasons[i].change(&e);
		verdict = kvt_canonical_check(&e.request);
		assert_int_equal(verdict.reasons, reasons[i].reasons);
		assert_int_equal(verdict.first, reasons[i].first);
		all |= verdict.reasons;
		if (!reasons[i].name)
			continue;
		assert_string_equal(kvt_canonical_reason_name(verdict.first),
				    reasons[i].name);
		expect(kvt_canonical_init(&c, &e.request, &why), KVT_UNSUPPORTED,
		       reasons[i].name);
		assert_int_equal(c.row, -7);
	}
	assert_int_equal(all, (1u << KVT_NCANONICAL_REASONS) - 1);
}

/* ---- refusals ------------------------------------------------------------- */

static void test_refused(void)
{
	struct example e;
	struct kvt_canonical c;
	struct kvt_view view;

	example(&e, &slots_first);
	e.request.nblocks = 9;
	assert_int_equal(kvt_canonical_init(&c, &e.request, &why), KVT_BAD_INPUT);
	assert_string_equal(why.text, "tensors have 20480 bytes, but 9 pages of 2048 "
			    "are 18432");
	e.request.nblocks = INT64_MAX / 1024;
	assert_int_equal(kvt_canonical_init(&c, &e.request, NULL), KVT_BAD_INPUT);
	e.request.nblocks = 0;
	assert_int_equal(kvt_canonical_init(&c, &e.request, NULL), KVT_BAD_INPUT);

	example(&e, &slots_first);
	assert_int_equal(kvt_canonical_layer(&view, &e.request, 3, 0, NULL),
			 KVT_BAD_INPUT);
	assert_int_equal(kvt_canonical_layer(&view, &e.request, 0, 2, NULL),
			 KVT_BAD_INPUT);
	for (int i = 0; i < 3; i++)
		e.backend[i].order[5] = 6;
	assert_int_equal(kvt_canonical_layer(&view, &e.request, 0, 0, &why),
			 KVT_BAD_INPUT);
	assert_string_equal(why.text, "FLASH_ATTN: stride order names axis 6 of 6");
	for (int i = 0; i < 3; i++)
		e.backend[i].order[5] = 1;	/* K twice */
	assert_int_not_equal(kvt_canonical_layer(&view, &e.request, 0, 0, NULL), KVT_OK);

	example(&e, &slots_first);
	for (int i = 0; i < 3; i++)
		e.spec[i].page_size_padded = 4096;
	e.tensor[0] = e.tensor[1] = 40960;
	expect(kvt_canonical_layer(&view, &e.request, 0, 0, &why), KVT_UNSUPPORTED,
	       "pages of 4096 bytes are padded");
}

TESTS("canonical",
	NAMED(test_sizes, "sizes of the pull request's example"),
	NAMED(test_strides, "strides and aliases of its layers"),
	NAMED(test_byte, "one byte of it"),
	NAMED(test_kernel_block, "kernel blocks smaller than blocks"),
	NAMED(test_reasons, "each reason why it does not apply"),
	NAMED(test_refused, "tensors that contradict their pages"))
