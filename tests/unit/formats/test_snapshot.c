/* SPDX-License-Identifier: Apache-2.0 */
/* test_snapshot.c - what must hold between the fields, and what follows from them */
#include "tests/unit/formats/dump_fixture.h"

/* ---- invariants --------------------------------------------------------- */

static void extent_zero(struct kvt_snapshot *s) { s->group[0].shape.n[NH] = 0; }
static void extent_negative(struct kvt_snapshot *s) { s->group[0].shape.n[NB] = -1; }
static void three_kv(struct kvt_snapshot *s) { s->group[0].shape.n[NK] = 3; }
static void no_dtype(struct kvt_snapshot *s) { s->group[0].dtype = NULL; }
static void elem_of_other(struct kvt_snapshot *s) { s->group[0].shape.elem = 4; }
static void huge(struct kvt_snapshot *s) { s->group[0].shape.n[ND] = INT64_C(1) << 60; }
static void slots_half(struct kvt_snapshot *s) { s->group[0].block_size = 32; }
static void slots_uneven(struct kvt_snapshot *s) { s->group[0].tokens_per_slot = 3; }
static void slots_none(struct kvt_snapshot *s) { s->group[0].tokens_per_slot = 0; }
static void recurrent(struct kvt_snapshot *s) { s->group[0].tokens_per_slot = -1; }
static void compressed(struct kvt_snapshot *s)
{
	s->group[0].block_size = 64;
	s->group[0].tokens_per_slot = 4;
}
/* A head holds 8 elements. */
static void state_of(struct kvt_snapshot *s, int64_t a, int64_t b)
{
	struct kvt_group *group = &s->group[0];

	group->kind = KVT_MAMBA_SSM;
	group->shape.n[NS] = group->shape.n[NK] = 1;
	group->shape.n[ND] = 8;
	group->tokens_per_slot = -1;
	group->state[0] = a;
	group->state[1] = b;
}
static void state_alike(struct kvt_snapshot *s) { state_of(s, 2, 4); }
static void state_larger(struct kvt_snapshot *s) { state_of(s, 2, 5); }
static void state_huge(struct kvt_snapshot *s) { state_of(s, INT64_MAX, INT64_MAX); }
static void state_endless(struct kvt_snapshot *s)
{
	state_of(s, 2, 4);
	s->group[0].state[2] = s->group[0].state[3] = 1;
}
static void state_of_attention(struct kvt_snapshot *s)
{
	state_of(s, 2, 4);
	s->group[0].kind = KVT_FULL_ATTENTION;
}
static void no_layout(struct kvt_snapshot *s) { s->group[0].layout.nplanes = 0; }
static void no_head_axis(struct kvt_snapshot *s)
{
	ok(kvt_layout_parse(&s->group[0].layout, "LBSC", NULL));
}
static void uneven_split(struct kvt_snapshot *s)
{
	ok(kvt_layout_parse(&s->group[0].layout, "LBKHS/3DS%3", NULL));
}
static void heads_beyond(struct kvt_snapshot *s) { s->group[0].head_start = 1; }
static void heads_wrap(struct kvt_snapshot *s) { s->group[0].head_start = INT64_MAX; }
static void heads_none(struct kvt_snapshot *s) { s->group[0].total_heads = 0; }
static void rank_1_of_2(struct kvt_snapshot *s)
{
	s->group[0].total_heads = 4;
	s->group[0].head_start = 2;
	s->parallel.tp_size = 2;
	s->parallel.tp_rank = 1;
}
static void rank_1_with_heads_of_0(struct kvt_snapshot *s)
{
	rank_1_of_2(s);
	s->group[0].head_start = 0;
}
static void replica(struct kvt_snapshot *s, int64_t rank, int64_t head)
{
	s->group[0].shape.n[NH] = 1;
	s->group[0].total_heads = 4;
	s->group[0].head_start = head;
	s->group[0].replication = 2;
	s->parallel.tp_size = 8;
	s->parallel.tp_rank = rank;
}
static void replicas_grouped(struct kvt_snapshot *s) { replica(s, 5, 2); }
static void replicas_interleaved(struct kvt_snapshot *s) { replica(s, 5, 1); }
static void replicas_miscounted(struct kvt_snapshot *s)
{
	replica(s, 5, 2);
	s->group[0].replication = 4;
}
static void rank_beyond(struct kvt_snapshot *s) { s->parallel.tp_rank = 1; }
static void size_none(struct kvt_snapshot *s) { s->parallel.pp_size = 0; }
static void page_small(struct kvt_snapshot *s) { s->group[0].page_bytes = 100; }
static void page_padded(struct kvt_snapshot *s) { s->group[0].page_bytes = 2048; }
static void page_beyond(struct kvt_snapshot *s)
{
	s->group[0].page_bytes = 2048;
	s->group[0].page_offset = 1025;
}
static void page_in_parts(struct kvt_snapshot *s)
{
	page_padded(s);
	ok(kvt_layout_parse(&s->group[0].layout, "LHBSC", NULL));
}
static void null_beyond(struct kvt_snapshot *s) { s->null_block = 5; }
static void null_zero(struct kvt_snapshot *s) { s->null_block = 0; }
static void too_valid(struct kvt_snapshot *s)
{
	s->group[0].block_valid = calloc(5, sizeof(uint32_t));
	s->group[0].block_valid[4] = 17;
}
static void nameless_layer(struct kvt_snapshot *s)
{
	s->group[0].layer_names = calloc(3, sizeof(char *));
}
static void component(struct kvt_snapshot *s, int64_t start, int64_t length)
{
	s->group[0].ncomponents = 1;
	s->group[0].component[0] = (struct kvt_component){ "x", start, length, 0 };
}
static void component_fits(struct kvt_snapshot *s) { component(s, 4, 4); }
static void component_long(struct kvt_snapshot *s) { component(s, 4, 5); }
static void component_wraps(struct kvt_snapshot *s) { component(s, 4, INT64_MAX); }
static void component_twice(struct kvt_snapshot *s)
{
	component(s, 0, 1);
	s->group[0].ncomponents = 2;
	s->group[0].component[1] = s->group[0].component[0];
}
static void same_ids(struct kvt_snapshot *s)
{
	s->ngroups = 2;
	make_group(&s->group[1], "g0", "nhd", "bf16", false);
}
/* Keys of layers 0 to 2 in a group and values in another. */
static void halves(struct kvt_snapshot *s, int64_t heads, const char *k, const char *v)
{
	s->ngroups = 2;
	make_group(&s->group[1], v, "nhd", "bf16", false);
	strcpy(s->group[0].id, k);
	for (int g = 0; g < 2; g++) {
		s->group[g].shape.n[NK] = 1;
		s->group[g].ncomponents = 1;
		s->group[g].component[0] = (struct kvt_component){
			.length = s->group[g].shape.n[ND] };
		strcpy(s->group[g].component[0].name, g ? "v" : "k");
	}
	s->group[1].shape.n[NH] = s->group[1].total_heads = heads;
}
static void halves_alike(struct kvt_snapshot *s) { halves(s, 2, "g0.k", "g0.v"); }
static void halves_unlike(struct kvt_snapshot *s) { halves(s, 1, "g0.k", "g0.v"); }
static void halves_of_layers(struct kvt_snapshot *s) { halves(s, 4, "keys", "values"); }
static void halves_of_kinds(struct kvt_snapshot *s)
{
	halves(s, 4, "keys", "values");
	s->group[1].kind = KVT_SLIDING_WINDOW;
}
static void no_groups(struct kvt_snapshot *s) { s->ngroups = 0; }
static void no_id(struct kvt_snapshot *s) { s->group[0].id[0] = '\0'; }
static void no_kind(struct kvt_snapshot *s) { s->group[0].kind = KVT_NKINDS; }
static const uint32_t some_blocks[] = { 4, 1, 3, 5 };
static void full_request(struct kvt_snapshot *s)
{
	add_request(s, "A", 48, 3, some_blocks);
}
static void long_request(struct kvt_snapshot *s)
{
	add_request(s, "A", 49, 3, some_blocks);
}
static void long_window(struct kvt_snapshot *s)
{
	long_request(s);
	s->group[0].window = 32;
}
static void foreign_block(struct kvt_snapshot *s)
{
	add_request(s, "A", 9, 4, some_blocks);
}
static void minus_tokens(struct kvt_snapshot *s)
{
	add_request(s, "A", -1, 1, some_blocks);
}
static void begins_later(struct kvt_snapshot *s)
{
	/* blocks 6 to 8: three tokens are missing in the first */
	add_request(s, "A", 45, 3, some_blocks);
	s->request[0].first_token = 6 * 16 + 3;
}
static void begins_too_late(struct kvt_snapshot *s)
{
	add_request(s, "A", 35, 3, some_blocks);
	s->request[0].first_token = 6 * 16 + 14;
}
static void begins_before(struct kvt_snapshot *s)
{
	full_request(s);
	s->request[0].first_token = -1;
}
static void begins_never(struct kvt_snapshot *s)
{
	add_request(s, "A", 16, 3, some_blocks);
	s->request[0].first_token = INT64_MAX - 15;
}
static void begins_in_slot(struct kvt_snapshot *s)
{
	add_request(s, "A", 8, 1, some_blocks);
	compressed(s);
	s->request[0].first_token = 3;
}
static void holes(struct kvt_snapshot *s, int64_t a, int64_t b, int64_t c, int64_t d)
{
	begins_later(s);
	assert_true(kvt_request_add_hole(&s->request[0], 0, a, b));
	assert_true(kvt_request_add_hole(&s->request[0], 0, c, d));
}
static void has_holes(struct kvt_snapshot *s) { holes(s, 99, 100, 101, 144); }
static void holes_touch(struct kvt_snapshot *s) { holes(s, 99, 101, 101, 144); }
static void holes_mixed(struct kvt_snapshot *s) { holes(s, 101, 144, 99, 100); }
static void hole_empty(struct kvt_snapshot *s) { holes(s, 99, 100, 110, 110); }
static void hole_before(struct kvt_snapshot *s) { holes(s, 98, 100, 110, 111); }
static void hole_behind(struct kvt_snapshot *s) { holes(s, 99, 100, 110, 145); }
static void hole_nowhere(struct kvt_snapshot *s)
{
	has_holes(s);
	s->request[0].hole[1].group = 1;
}
static void many_layers(struct kvt_snapshot *s)
{
	s->group[0].shape.n[NL] = 1 << 20;
	s->group[0].shape.n[NB] = 0;
}
static void many_blocks(struct kvt_snapshot *s)
{
	s->group[0].shape.n[NL] = 0;
	s->group[0].shape.n[NB] = INT64_C(1) << 32;
}
static void empty_pool(struct kvt_snapshot *s) { s->group[0].shape.n[NB] = 0; }

static void many_components(struct kvt_snapshot *s)
{
	s->group[0].ncomponents = KVT_MAX_COMPONENTS + 1;
}
static void no_table(struct kvt_snapshot *s)
{
	full_request(s);
	free(s->request[0].blocks[0]);
	s->request[0].blocks[0] = NULL;
}
static void no_blocks(struct kvt_snapshot *s)
{
	full_request(s);
	s->request[0].nblocks[0] = 0;
}
static void nameless_request(struct kvt_snapshot *s)
{
	full_request(s);
	free(s->request[0].id);
	s->request[0].id = NULL;
}

static struct check_case {
	const char *what;
	void (*change)(struct kvt_snapshot *);
	enum kvt_status status;
	const char *part;
	const char *name;		/* for an inspector */
} checks[] = {
	{ "no head", extent_zero, KVT_BAD_INPUT, "head extent is 0", "group.extent" },
	{ "a negative number of blocks", extent_negative, KVT_BAD_INPUT,
	  "block extent is -1", "group.extent" },
	{ "no blocks: an empty dump", empty_pool, KVT_OK, NULL, NULL },
	{ "a million layers without data", many_layers, KVT_BAD_INPUT, "1048576 layers",
	  "group.extent" },
	{ "2^32 blocks without data", many_blocks, KVT_BAD_INPUT, "4294967296 blocks",
	  "group.extent" },
	{ "three of key and value", three_kv, KVT_BAD_INPUT, "kv extent is 3",
	  "group.kv" },
	{ "no element type", no_dtype, KVT_BAD_INPUT, "type ?", "group.type" },
	{ "element of another size than its type", elem_of_other, KVT_BAD_INPUT,
	  "4 bytes", "group.type" },
	{ "more than 2^63 bytes", huge, KVT_BAD_INPUT, "2^63", "group.size" },
	{ "half as many slots as tokens", slots_half, KVT_BAD_INPUT, "expected 32",
	  "group.slots" },
	{ "slots that do not divide a block", slots_uneven, KVT_BAD_INPUT, "3 tokens",
	  "group.slots" },
	{ "slots of no tokens", slots_none, KVT_BAD_INPUT, "0 tokens",
	  "group.slots" },
	{ "one slot for all tokens has one slot", recurrent, KVT_BAD_INPUT,
	  "expected 1", "group.slots" },
	{ "an SSM state of heads of 2 x 4", state_alike, KVT_OK, NULL, NULL },
	{ "of heads of more", state_larger, KVT_BAD_INPUT, "has 8 elements",
	  "group.state" },
	{ "of 2^64 elements", state_huge, KVT_BAD_INPUT, "has 8 elements",
	  "group.state" },
	{ "of a list that does not end", state_endless, KVT_BAD_INPUT, "has 8 elements",
	  "group.state" },
	{ "of attention", state_of_attention, KVT_BAD_INPUT, "kind is full_attention",
	  "group.state" },
	{ "four tokens per slot", compressed, KVT_OK, NULL, NULL },
	{ "no layout", no_layout, KVT_BAD_INPUT, "no layout", "layout.missing" },
	{ "layout without the head axis", no_head_axis, KVT_BAD_INPUT, "head",
	  "layout.misfit" },
	{ "split that does not divide", uneven_split, KVT_BAD_INPUT, "split",
	  "layout.misfit" },
	{ "heads beyond the last", heads_beyond, KVT_BAD_INPUT,
	  "2 heads from 1 on, of 2", "tp.heads" },
	{ "heads beyond 2^63", heads_wrap, KVT_BAD_INPUT, "heads", "tp.heads" },
	{ "a model of no heads", heads_none, KVT_BAD_INPUT, "of 0 in all", "tp.heads" },
	{ "keys and values apart", halves_alike, KVT_OK, NULL, NULL },
	{ "of other heads", halves_unlike, KVT_BAD_INPUT,
	  "heads 0 to 1 of 2, its values 0 to 0 of 1;", "kv.heads" },
	{ "of other heads, by their layers", halves_of_layers, KVT_BAD_INPUT,
	  "its values 0 to 3 of 4", "kv.heads" },
	{ "of other kinds", halves_of_kinds, KVT_OK, NULL, NULL },
	{ "rank 1 of 2 with its heads", rank_1_of_2, KVT_OK, NULL, NULL },
	{ "rank 1 of 2 with heads of rank 0", rank_1_with_heads_of_0, KVT_BAD_INPUT,
	  "holds 2 to 3", "tp.heads" },
	{ "replicas are grouped: rank 5 of 8 holds head 2 of 4", replicas_grouped,
	  KVT_OK, NULL, NULL },
	{ "replicas are not interleaved", replicas_interleaved, KVT_BAD_INPUT,
	  "holds 2 to 2", "tp.heads" },
	{ "replicas that TP does not make", replicas_miscounted, KVT_BAD_INPUT,
	  "expected 2", "tp.replication" },
	{ "rank beyond the size", rank_beyond, KVT_BAD_INPUT, "tp rank 1 of 1",
	  "tp.rank" },
	{ "no pipeline stage", size_none, KVT_BAD_INPUT, "pp rank", "tp.rank" },
	{ "page smaller than its content", page_small, KVT_BAD_INPUT, "100 bytes",
	  "page.size" },
	{ "page with padding", page_padded, KVT_OK, NULL, NULL },
	{ "content that ends beyond its page", page_beyond, KVT_BAD_INPUT,
	  "from byte 1025", "page.size" },
	{ "padding where a page is no run", page_in_parts, KVT_BAD_INPUT,
	  "not one run", "page.split" },
	{ "null block outside the pool", null_beyond, KVT_BAD_INPUT,
	  "null block is at position 5",
	  "null.out-of-pool" },
	{ "null block 0", null_zero, KVT_OK, NULL, NULL },
	{ "more live slots than slots", too_valid, KVT_BAD_INPUT, "block 4 has 17",
	  "valid.capacity" },
	{ "a layer without a name", nameless_layer, KVT_BAD_INPUT, "no name",
	  "layers.name" },
	{ "component to the end", component_fits, KVT_OK, NULL, NULL },
	{ "component beyond the end", component_long, KVT_BAD_INPUT, "'x'",
	  "parts.range" },
	{ "component that wraps around", component_wraps, KVT_BAD_INPUT, "'x'",
	  "parts.range" },
	{ "two components of one name", component_twice, KVT_BAD_INPUT,
	  "two components", "parts.duplicate" },
	{ "two groups of one name", same_ids, KVT_BAD_INPUT, "two groups",
	  "group.duplicate" },
	{ "no group", no_groups, KVT_BAD_INPUT, "0 groups", "group.count" },
	{ "group without a name", no_id, KVT_BAD_INPUT, "no id", "group.id" },
	{ "group without a kind", no_kind, KVT_BAD_INPUT, "no kind", "group.kind" },
	{ "request that fills its blocks", full_request, KVT_OK, NULL, NULL },
	{ "request longer than its blocks", long_request, KVT_BAD_INPUT, "49 tokens",
	  "table.too-short" },
	{ "request whose window keeps the last blocks", long_window, KVT_OK, NULL, NULL },
	{ "block table outside the pool", foreign_block, KVT_BAD_INPUT,
	  "entry 3 is position 5",
	  "table.out-of-pool" },
	{ "negative number of tokens", minus_tokens, KVT_BAD_INPUT, "-1 tokens",
	  "request.tokens" },
	{ "more components than there can be", many_components, KVT_BAD_INPUT,
	  "9 components", "parts.count" },
	{ "blocks of a table that is not there", no_table, KVT_BAD_INPUT,
	  "broken block table", "table.broken" },
	{ "tokens in no block", no_blocks, KVT_BAD_INPUT, "no block table",
	  "table.missing" },
	{ "request without an id", nameless_request, KVT_BAD_INPUT, "has no id",
	  "request.id" },
	{ "request that begins inside its first block", begins_later, KVT_OK, NULL,
	  NULL },
	{ "request that ends behind its blocks", begins_too_late, KVT_BAD_INPUT,
	  "35 tokens do not fit 3 blocks", "table.too-short" },
	{ "request that begins before token 0", begins_before, KVT_BAD_INPUT,
	  "from token -1 on", "request.first-token" },
	{ "request that ends behind 2^63", begins_never, KVT_BAD_INPUT, "from token 9",
	  "request.first-token" },
	{ "request with holes", has_holes, KVT_OK, NULL, NULL },
	{ "holes that touch", holes_touch, KVT_BAD_INPUT, "hole 1",
	  "request.holes" },
	{ "holes that are in no order", holes_mixed, KVT_BAD_INPUT, "hole 1",
	  "request.holes" },
	{ "hole of nothing", hole_empty, KVT_BAD_INPUT, "hole 1",
	  "request.holes" },
	{ "hole before the first token", hole_before, KVT_BAD_INPUT, "tokens 98 to 99",
	  "request.holes" },
	{ "hole behind the last token", hole_behind, KVT_BAD_INPUT, "tokens 110 to 144",
	  "request.holes" },
	{ "hole of a group that is none", hole_nowhere, KVT_BAD_INPUT, "hole 1",
	  "request.holes" },
	{ "request that begins inside a slot", begins_in_slot, KVT_BAD_INPUT,
	  "token 3 begins no slot of 4 tokens", "request.first-token" },
};

/* What an inspector heard. */
struct heard {
	int count;
	char name[32], text[512];	/* the first */
};

static void hear(void *context, const char *name, const char *text)
{
	struct heard *heard = context;

	if (heard->count++)
		return;
	snprintf(heard->name, sizeof(heard->name), "%s", name);
	snprintf(heard->text, sizeof(heard->text), "%s", text);
}

/* It hears the sentence that the check ends with, and its name. */
static void expect_heard(const struct kvt_snapshot *s, const char *name,
			 const struct kvt_error *err)
{
	struct heard heard = { .count = 0 };
	const struct kvt_inspector inspector = { .found = hear, .context = &heard };

	kvt_snapshot_inspect(s, &inspector);
	assert_int_equal(heard.count, name != NULL);
	if (name) {
		assert_string_equal(heard.name, name);
		assert_string_equal(heard.text, err->text);
	}
}

static void test_check(void **state)
{
	const struct check_case *c = *state;
	struct kvt_snapshot s;

	make_snapshot(&s, "nhd", "bf16", false);
	ok(kvt_snapshot_check(&s, &why));
	c->change(&s);
	expect(kvt_snapshot_check(&s, &why), c->status, c->part);
	expect_heard(&s, c->name, &why);
	kvt_snapshot_free(&s);
}

/* ---- copies, and what follows ------------------------------------------- */

static void test_copy(void)
{
	static const uint32_t blocks[] = { 2, 0 };
	struct kvt_snapshot s, copy;

	make_snapshot(&s, "hnd", "fp16", false);
	add_request(&s, "A", 20, 2, blocks);
	s.request[0].token_ids = calloc(3, sizeof(int32_t));
	s.request[0].ntoken_ids = 3;
	s.request[0].token_ids[2] = -7;
	s.group[0].block_ids = calloc(5, sizeof(uint64_t));
	s.group[0].block_ids[1] = 99;
	s.group[0].layer_ids = calloc(3, sizeof(uint32_t));
	s.group[0].block_names = calloc(5, sizeof(char *));
	for (int i = 0; i < 5; i++)
		s.group[0].block_names[i] = strdup(i % 2 ? "odd" : "");
	s.model = strdup("m");
	s.note = strdup("n");
	ok(kvt_snapshot_complete(&s, &why));
	ok(kvt_snapshot_copy(&copy, &s, &why));
	same_snapshot(&s, &copy);
	assert_ptr_not_equal(s.request[0].blocks[0], copy.request[0].blocks[0]);
	assert_ptr_not_equal(s.group[0].layer_names[0], copy.group[0].layer_names[0]);
	kvt_snapshot_free(&s);
	assert_string_equal(copy.request[0].id, "A");
	kvt_snapshot_free(&copy);
	kvt_snapshot_free(&copy);	/* an empty one is freed for free */
}

/* Blocks 1 and 2 shared, the tail of 3 unused, 0 and 4 free. */
static void test_live_slots(void)
{
	static const uint32_t a[] = { 1, 2, 3 }, b[] = { 1, 2 };
	static const uint32_t expected[] = { 0, 16, 16, 5, 0 };
	struct kvt_snapshot s;

	make_snapshot(&s, "nhd", "bf16", false);
	add_request(&s, "A", 37, 3, a);
	add_request(&s, "B", 20, 2, b);
	ok(kvt_snapshot_complete(&s, &why));
	assert_memory_equal(s.group[0].block_valid, expected, sizeof(expected));
	assert_string_equal(s.group[0].layer_names[2], "layers.2");
	kvt_snapshot_free(&s);
}

/* Tokens 20 to 52 of A: the first block is counted from its beginning. */
static void test_live_later(void)
{
	static const uint32_t a[] = { 3, 1, 2 };
	static const uint32_t expected[] = { 0, 16, 5, 16, 0 };
	struct kvt_snapshot s;

	make_snapshot(&s, "nhd", "bf16", false);
	add_request(&s, "A", 33, 3, a);
	s.request[0].first_token = 20;
	ok(kvt_snapshot_complete(&s, &why));
	assert_memory_equal(s.group[0].block_valid, expected, sizeof(expected));
	kvt_snapshot_free(&s);
}

/* Runs between holes, from every token to every other one. */
static void test_holes(void)
{
	static const struct kvt_hole list[] = { { 0, 0, 64 }, { 1, 7, 9 }, { 1, 20, 50 },
						{ 2, 1, 2 } };
	struct kvt_request q = { .first_token = 5, .ntokens = 45 };

	for (int i = 0; i < 4; i++)
		assert_true(kvt_request_add_hole(&q, (int)list[i].group, list[i].begin,
						 list[i].end));
	assert_int_equal(kvt_request_missing(&q, 1), 32);
	for (int64_t begin = 0; begin < 60; begin++)
		for (int64_t end = begin; end < 60; end++) {
			struct kvt_range got = kvt_request_live(&q, 1, begin, end);
			bool live[60];
			int64_t at = begin;

			for (int64_t t = 0; t < 60; t++)
				live[t] = (t >= 5 && t < 7) || (t >= 9 && t < 20) ||
					  t >= 50;
			while (at < end && !live[at])
				at++;
			assert_int_equal(got.begin, at);
			while (at < end && live[at])
				at++;
			assert_int_equal(got.end, at);
		}
	free(q.hole);
}

/* Of A 0 to 3 and 14 to 36 are missing: the last slots of block 3, all of block 1. */
static void test_live_holes(void)
{
	static const uint32_t a[] = { 3, 1, 2 };
	static const uint32_t expected[] = { 0, 0, 8, 14, 0 };
	struct kvt_snapshot s;

	make_snapshot(&s, "nhd", "bf16", false);
	add_request(&s, "A", 40, 3, a);
	assert_true(kvt_request_add_hole(&s.request[0], 0, 0, 4));
	assert_true(kvt_request_add_hole(&s.request[0], 0, 14, 37));
	ok(kvt_snapshot_complete(&s, &why));
	assert_memory_equal(s.group[0].block_valid, expected, sizeof(expected));
	kvt_snapshot_free(&s);
}

static void test_half(void)
{
	struct kvt_snapshot s;
	struct kvt_group *g = &s.group[0];

	make_snapshot(&s, "nhd", "bf16", false);
	g->ncomponents = 1;
	g->component[0] = (struct kvt_component){ "v", 0, g->shape.n[ND], 0 };
	assert_int_equal(kvt_group_half(g), -1);	/* it has both */
	g->shape.n[NK] = 1;
	assert_int_equal(kvt_group_half(g), 1);
	g->component[0].name[0] = 'k';
	assert_int_equal(kvt_group_half(g), 0);
	g->component[0].length--;
	assert_int_equal(kvt_group_half(g), -1);
	g->component[0].length++;
	g->kind = KVT_MLA;
	assert_int_equal(kvt_group_half(g), -1);
	kvt_snapshot_free(&s);
}

/* Two tokens per slot: 37 tokens begin their 19th slot. */
static void test_live_compressed(void)
{
	static const uint32_t a[] = { 4, 0 };
	static const uint32_t expected[] = { 3, 0, 0, 0, 16 };
	struct kvt_snapshot s;

	make_snapshot(&s, "nhd", "bf16", false);
	s.group[0].block_size = 32;
	s.group[0].tokens_per_slot = 2;
	add_request(&s, "A", 37, 2, a);
	ok(kvt_snapshot_complete(&s, &why));
	assert_memory_equal(s.group[0].block_valid, expected, sizeof(expected));
	kvt_snapshot_free(&s);
}

static void test_live_unknown(void)
{
	struct kvt_snapshot s;

	make_snapshot(&s, "nhd", "bf16", false);
	ok(kvt_snapshot_complete(&s, &why));
	assert_null(s.group[0].block_valid);
	long_window(&s);
	ok(kvt_snapshot_complete(&s, &why));
	assert_null(s.group[0].block_valid);
	kvt_snapshot_free(&s);
}

TESTS("snapshot",
	EACH(checks, test_check),
	NAMED(test_copy, "a copy is deep"),
	NAMED(test_live_slots, "live slots follow from block tables"),
	NAMED(test_live_later, "live slots of a request that begins later"),
	NAMED(test_live_compressed, "live slots of two tokens"),
	NAMED(test_holes, "runs of tokens between holes"),
	NAMED(test_live_holes, "live slots between holes"),
	NAMED(test_half, "keys or values alone say so"),
	NAMED(test_live_unknown, "live slots are not made up"))
