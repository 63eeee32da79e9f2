/* SPDX-License-Identifier: Apache-2.0 */
/* test_slice_runs.c - slices as runs of a page, and what is refused */
#include "tests/unit/lib/cut_views.h"
#include "tests/unit/tests.h"

/* ---- models, as one rank would hold all of them -------------------------- */

/* 8 heads, 16 slots, 512 bytes per (slot, head) */
static const struct kvt_spec gqa = {
	.kind = KVT_FULL_ATTENTION, .block_size = 16, .num_heads = 8,
	.total_heads = 8, .replication = 1, .tokens_per_slot = { 1, 1 },
	.content_size = 512, .ncontent = 2, .content = { 2, 128 }, .elem = 2,
};
static const struct kvt_spec mla = {
	.kind = KVT_MLA, .block_size = 64, .num_heads = 1, .total_heads = 1,
	.replication = 1, .tokens_per_slot = { 1, 1 }, .content_size = 656,
	.ncontent = 1, .content = { 656 }, .elem = 1,
};

/* x 8 (4 heads of 2), N 2, kernel 4, 2-byte conv, float32 SSM */
#define RECURRENT .block_size = 1, .num_heads = 1, .total_heads = 1, .replication = 1, \
	.tokens_per_slot = { -1, 1 }
static const struct kvt_spec conv2 = {
	.kind = KVT_MAMBA_CONV, RECURRENT, .content_size = 96, .ncontent = 2,
	.content = { 16, 3 }, .elem = 2, .nparts = 3,
	.part = { { "x", 4, 2, true }, { "B", 2, 2, false }, { "C", 2, 2, false } },
};
static const struct kvt_spec conv1 = {
	.kind = KVT_MAMBA_CONV, RECURRENT, .content_size = 72, .ncontent = 2,
	.content = { 12, 3 }, .elem = 2, .nparts = 3,
	.part = { { "x", 4, 2, true }, { "B", 1, 2, false }, { "C", 1, 2, false } },
};
static const struct kvt_spec gdn = {
	.kind = KVT_MAMBA_CONV, RECURRENT, .content_size = 96, .ncontent = 2,
	.content = { 16, 3 }, .elem = 2, .nparts = 3,
	.part = { { "q", 2, 2, true }, { "k", 2, 2, true }, { "v", 4, 2, true } },
};
static const struct kvt_spec mamba1 = {
	.kind = KVT_MAMBA_CONV, RECURRENT, .content_size = 48, .ncontent = 2,
	.content = { 8, 3 }, .elem = 2, .nparts = 1, .part = { { "x", 8, 1, true } },
};
static const struct kvt_spec ssm = {
	.kind = KVT_MAMBA_SSM, .block_size = 1, .num_heads = 4, .total_heads = 4,
	.replication = 1, .no_replicas = true, .tokens_per_slot = { -1, 1 },
	.content_size = 16, .ncontent = 2, .content = { 2, 2 }, .elem = 4,
};
static const struct kvt_spec ssm1 = {	/* Mamba-1: a head is a channel */
	.kind = KVT_MAMBA_SSM, .block_size = 1, .num_heads = 8, .total_heads = 8,
	.replication = 1, .no_replicas = true, .tokens_per_slot = { -1, 1 },
	.content_size = 8, .ncontent = 1, .content = { 2 }, .elem = 4,
};

/* ---- runs ---------------------------------------------------------------- */

struct run {
	int src, dst, length;
};

struct runs_case {
	const char *what;
	const struct kvt_spec *spec;
	const char *src_order, *dst_order;
	int src_ranks, src_rank, dst_ranks, dst_rank;
	int src_at, dst_at;		/* of the slot in its page */
	int nruns;
	struct run run[9];		/* the first ones */
};

#define P(s, sr, d, dr) s, sr, d, dr, 0, 0
static struct runs_case cases[] = {
	{ "4 to 4 ranks in one order: a page", &gqa, "BSHKD", "BSHKD", P(4, 1, 4, 1),
	  1, { { 0, 0, 16384 } } },
	{ "HND, 4 to 2: the second half", &gqa, "BHSKD", "BHSKD", P(4, 1, 2, 0),
	  1, { { 0, 16384, 16384 } } },
	{ "HND, 4 to 1, rank 0", &gqa, "BHSKD", "BHSKD", P(4, 0, 1, 0),
	  1, { { 0, 0, 16384 } } },
	{ "HND, 4 to 1, rank 2", &gqa, "BHSKD", "BHSKD", P(4, 2, 1, 0),
	  1, { { 0, 32768, 16384 } } },
	{ "HND, 4 to 1, rank 3", &gqa, "BHSKD", "BHSKD", P(4, 3, 1, 0),
	  1, { { 0, 49152, 16384 } } },
	{ "HND, 2 to 4, rank 0 to 1", &gqa, "BHSKD", "BHSKD", P(2, 0, 4, 1),
	  1, { { 16384, 0, 16384 } } },
	{ "HND, 2 to 4, rank 0 to 2: nothing", &gqa, "BHSKD", "BHSKD", P(2, 0, 4, 2),
	  0, { { 0, 0, 0 } } },
	{ "NHD, 4 to 2: a run per slot", &gqa, "BSHKD", "BSHKD", P(4, 1, 2, 0),
	  16, { { 0, 1024, 1024 }, { 1024, 3072, 1024 }, { 2048, 5120, 1024 } } },
	{ "NHD, 2 to 4: a run per slot", &gqa, "BSHKD", "BSHKD", P(2, 0, 4, 1),
	  16, { { 1024, 0, 1024 }, { 3072, 1024, 1024 }, { 5120, 2048, 1024 } } },
	{ "HND to NHD", &gqa, "BHSKD", "BSHKD", P(4, 0, 4, 0),
	  32, { { 0, 0, 512 }, { 8192, 512, 512 }, { 512, 1024, 512 } } },
	{ "a latent has one head", &mla, "BHSKD", "BSHKD", P(1, 0, 1, 0),
	  1, { { 0, 0, 41984 } } },
	{ "a latent goes whole, 2 to 8", &mla, "BHSKD", "BSHKD", P(2, 1, 8, 6),
	  1, { { 0, 0, 41984 } } },
	{ "a latent goes whole, 8 to 2", &mla, "BHSKD", "BSHKD", P(8, 4, 2, 1),
	  1, { { 0, 0, 41984 } } },
	{ "a latent comes from one rank only", &mla, "BHSKD", "BSHKD", P(8, 5, 2, 1),
	  0, { { 0, 0, 0 } } },

	{ "2 groups, DS, rank 0", &conv2, "BDS", "BDS", P(1, 0, 2, 0), 3,
	  { { 0, 0, 24 }, { 48, 24, 12 }, { 72, 36, 12 } } },
	{ "2 groups, DS, rank 1", &conv2, "BDS", "BDS", P(1, 0, 2, 1), 3,
	  { { 24, 0, 24 }, { 60, 24, 12 }, { 84, 36, 12 } } },
	{ "2 groups, SD, rank 1", &conv2, "BSD", "BSD", P(1, 0, 2, 1), 9,
	  { { 8, 0, 8 }, { 40, 16, 8 }, { 72, 32, 8 },
	    { 20, 8, 4 }, { 52, 24, 4 }, { 84, 40, 4 },
	    { 28, 12, 4 }, { 60, 28, 4 }, { 92, 44, 4 } } },
	{ "2 groups, SSM, rank 0", &ssm, "BHD", "BHD", 1, 0, 2, 0, 96, 48, 1,
	  { { 96, 48, 32 } } },
	{ "2 groups, SSM, rank 1", &ssm, "BHD", "BHD", 1, 0, 2, 1, 96, 48, 1,
	  { { 128, 48, 32 } } },

	{ "1 group, DS, rank 0", &conv1, "BDS", "BDS", P(1, 0, 2, 0), 3,
	  { { 0, 0, 24 }, { 48, 24, 12 }, { 60, 36, 12 } } },
	{ "1 group, DS, rank 1: B and C whole", &conv1, "BDS", "BDS", P(1, 0, 2, 1), 3,
	  { { 24, 0, 24 }, { 48, 24, 12 }, { 60, 36, 12 } } },
	{ "1 group, SD, rank 1", &conv1, "BSD", "BSD", P(1, 0, 2, 1), 9,
	  { { 8, 0, 8 }, { 32, 16, 8 }, { 56, 32, 8 },
	    { 16, 8, 4 }, { 40, 24, 4 }, { 64, 40, 4 },
	    { 20, 12, 4 }, { 44, 28, 4 }, { 68, 44, 4 } } },
	{ "1 group, SSM, rank 1", &ssm, "BHD", "BHD", 1, 0, 2, 1, 72, 48, 1,
	  { { 104, 48, 32 } } },
	{ "1 group, merge, rank 0 brings B and C", &conv1, "BDS", "BDS", P(2, 0, 1, 0),
	  3, { { 0, 0, 24 }, { 24, 48, 12 }, { 36, 60, 12 } } },
	{ "1 group, merge, rank 1 brings x only", &conv1, "BDS", "BDS", P(2, 1, 1, 0),
	  1, { { 0, 24, 24 } } },
	{ "1 group, merge, SSM of rank 0", &ssm, "BHD", "BHD", 2, 0, 1, 0, 48, 72, 1,
	  { { 48, 72, 32 } } },
	{ "1 group, merge, SSM of rank 1", &ssm, "BHD", "BHD", 2, 1, 1, 0, 48, 72, 1,
	  { { 48, 104, 32 } } },

	{ "gated delta net, rank 1", &gdn, "BDS", "BDS", P(1, 0, 2, 1), 3,
	  { { 12, 0, 12 }, { 36, 12, 12 }, { 72, 24, 24 } } },
	{ "Mamba-1, conv, rank 1", &mamba1, "BDS", "BDS", P(1, 0, 2, 1), 1,
	  { { 24, 0, 24 } } },
	{ "Mamba-1, SSM, rank 1", &ssm1, "BHD", "BHD", 1, 0, 2, 1, 48, 24, 1,
	  { { 48 + 32, 24, 32 } } },
};

static struct kvt_view page(const struct kvt_spec *spec, const char *order, int at)
{
	struct kvt_layout layout;
	struct kvt_views views;
	struct kvt_shape shape;
	struct kvt_box box;

	if (kvt_spec_shape(&shape, spec, 1, 1, &why) ||
	    kvt_layout_parse(&layout, order, &why))
		fail_msg("%s", why.text);
	box = kvt_box_whole(&shape);
	ok(kvt_layout_views(&views, &layout, &box, shape.elem, &why));
	views.view[0].offset = at;
	return views.view[0];
}

static void compare(const struct runs_case *c, const struct cut_views *cut)
{
	int n = 0;

	for (int i = 0; i < cut->count; i++) {
		struct kvt_plan plan;
		struct kvt_plan_walk walk;

		assert_false(kvt_plan_init(&plan, &cut->dst[i], &cut->src[i], NULL));
		kvt_plan_walk_start(&walk, &plan);
		for (; !walk.done; kvt_plan_walk_next(&walk), n++) {
			if (n >= 9 || !c->run[n].length)
				continue;
			assert_int_equal(walk.src, c->run[n].src);
			assert_int_equal(walk.dst, c->run[n].dst);
			assert_int_equal(plan.run, c->run[n].length);
		}
	}
	assert_int_equal(n, c->nruns);
}

static void test_runs(void **state)
{
	const struct runs_case *c = *state;
	struct kvt_spec src, dst;
	struct kvt_side from = { &src, { c->src_ranks, c->src_rank } };
	struct kvt_side to = { &dst, { c->dst_ranks, c->dst_rank } };
	struct kvt_view source, destination;
	struct cut_views cut;

	if (kvt_spec_share(&src, c->spec, from.rank, &why) ||
	    kvt_spec_share(&dst, c->spec, to.rank, &why))
		fail_msg("%s", why.text);
	source = page(&src, c->src_order, c->src_at);
	destination = page(&dst, c->dst_order, c->dst_at);
	ok(cut_views(&cut, &from, &source, &to, &destination, &why));
	compare(c, &cut);
}

/* ---- refusals ------------------------------------------------------------ */

static void refused(const struct kvt_spec *src, struct kvt_rank s,
		    const struct kvt_spec *dst, struct kvt_rank d,
		    enum kvt_status status, const char *says)
{
	struct kvt_side from = { src, s }, to = { dst, d };
	struct kvt_exchange x = { .count = -7 };

	expect(kvt_exchange_init(&x, &from, &to, &why), status, says);
	assert_int_equal(x.count, -7);
}

static void test_refused(void)
{
	const struct kvt_rank one = { 1, 0 }, two = { 2, 1 }, three = { 3, 0 };
	struct kvt_spec a = gqa, b;

	refused(&gqa, one, &gqa, two, KVT_BAD_INPUT, "num_heads is 8, expected 4");
	refused(&gqa, three, &gqa, one, KVT_BAD_INPUT,
		"8 cannot be divided evenly among 3 ranks");
	refused(&gqa, one, &mla, one, KVT_BAD_INPUT, "the destination mla");
	refused(&conv2, one, &conv1, one, KVT_BAD_INPUT, "B is 2 on the source and 1");
	refused(&conv2, one, &gdn, one, KVT_BAD_INPUT, "part 0 is x on the source and q");
	a.total_heads = a.num_heads = 4;
	refused(&a, one, &gqa, one, KVT_BAD_INPUT, "head is 4 on the source and 8");
	a = gqa;
	a.content[1] = 64;
	a.content_size = 256;
	refused(&a, one, &gqa, one, KVT_BAD_INPUT, "content_size is 256");
	a.content_size = 300;
	refused(&a, one, &gqa, one, KVT_BAD_INPUT, "but the content has 256 bytes");
	a = gqa;
	a.head_start = 1;
	refused(&a, one, &gqa, one, KVT_BAD_INPUT, "head_start is 1, expected 0");
	a = gqa;
	a.tokens_per_slot.num = 4;
	refused(&a, one, &gqa, one, KVT_BAD_INPUT, "tokens per slot is 4");
	a = conv1;
	a.part[0].units = 3;
	assert_int_equal(kvt_spec_share(&b, &a, two, NULL), KVT_BAD_INPUT);
	a = conv1;
	a.content[1] = 4;
	a.content_size = 96;
	refused(&a, one, &conv1, one, KVT_BAD_INPUT, "taps is 4 on the source and 3");
	a = conv1;
	a.elem = 4;
	a.content_size = 144;
	refused(&a, one, &conv1, one, KVT_BAD_INPUT, "element size is 4 on the source");
	a = conv1;
	a.nparts = 0;
	refused(&a, one, &a, one, KVT_BAD_INPUT, "does not tell x, B and C apart");
	a = gqa;
	a.planar = true;
	ok(kvt_spec_share(&b, &a, two, NULL));
	refused(&a, one, &b, two, KVT_UNSUPPORTED, "planar content");
	refused(&a, one, &gqa, one, KVT_BAD_INPUT, "planar content is 1");
}

/* Planes go from rank to rank whole, or not at all. */
static void test_planar(void)
{
	struct kvt_spec spec = gqa;
	struct kvt_transfer same = { &spec, &spec, 2, 2, 3 };
	struct kvt_transfer split = { &spec, &spec, 2, 4, 3 };
	struct kvt_transfer copies = { &spec, &spec, 8, 16, 3 };

	spec.planar = true;
	ok(kvt_transfer_check(&same, NULL));
	ok(kvt_transfer_check(&copies, NULL));
	assert_int_equal(kvt_transfer_check(&split, &why), KVT_UNSUPPORTED);
	assert_string_equal(why.text, "2 heads a rank cannot be cut from planar content "
			    "of 4");
}

TESTS("slice runs",
	EACH(cases, test_runs), TEST(test_refused), TEST(test_planar))
