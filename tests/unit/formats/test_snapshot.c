/* SPDX-License-Identifier: Apache-2.0 */
/* test_snapshot.c - what must hold between the fields, and what follows from them */
#include "tests/unit/fixture.h"

/* ---- invariants --------------------------------------------------------- */

static const uint32_t some_blocks[] = { 4, 1, 3, 5 };

/* Request A of so many tokens in so many of some_blocks[]; first_token; two holes. */
struct asked {
	int64_t ntokens;
	int nblocks;
	int64_t first_token, hole[4];
};

#define ASKED(tokens, blocks, first)							\
	.ntokens = tokens, .nblocks = blocks, .first_token = first
/* Blocks 6 to 8: three tokens are missing in the first. */
#define LATER ASKED(45, 3, 6 * 16 + 3)

static void add_asked(struct kvt_snapshot *s, const struct asked *asked)
{
	const int64_t *hole = asked->hole;

	add_request(s, "A", asked->ntokens, asked->nblocks, some_blocks);
	s->request[0].first_token = asked->first_token;
	for (int i = 0; i < 4 && hole[i]; i += 2)
		assert_true(kvt_request_add_hole(&s->request[0], 0, hole[i],
						 hole[i + 1]));
}

static void no_head_axis(struct kvt_snapshot *s)
{
	ok(kvt_layout_parse(&s->group[0].layout, "LBSC", NULL));
}
static void uneven_split(struct kvt_snapshot *s)
{
	ok(kvt_layout_parse(&s->group[0].layout, "LBKHS/3DS%3", NULL));
}
static void heads_outside(struct kvt_snapshot *s)
{
	ok(kvt_layout_parse(&s->group[0].layout, "LHBSC", NULL));
}
static void too_valid(struct kvt_snapshot *s)
{
	s->group[0].block_valid = calloc(5, sizeof(uint32_t));
	s->group[0].block_valid[4] = 17;
}
static void nameless_layer(struct kvt_snapshot *s)
{
	s->group[0].layer_names = calloc(3, sizeof(char *));
}
static void name_parts(struct kvt_snapshot *s)
{
	for (int c = 0; c < s->group[0].ncomponents; c++)
		s->group[0].component[c].name[0] = 'x';
}
static void same_ids(struct kvt_snapshot *s)
{
	small_group(s, "g0", "nhd", "bf16", false);
}
/* Keys of layers 0 to 2 in a group and values in another. */
static void halves(struct kvt_snapshot *s, int64_t heads, const char *k, const char *v)
{
	small_group(s, v, "nhd", "bf16", false);
	strcpy(s->group[0].id, k);
	for (int g = 0; g < 2; g++) {
		s->group[g].shape.n[NK] = 1;
		add_part(&s->group[g], g ? "v" : "k", 0, s->group[g].shape.n[ND], 0);
	}
	s->group[1].shape.n[NH] = s->group[1].total_heads = heads;
}
static void halves_alike(struct kvt_snapshot *s) { halves(s, 2, "g0.k", "g0.v"); }
static void halves_unlike(struct kvt_snapshot *s) { halves(s, 1, "g0.k", "g0.v"); }
static void halves_of_layers(struct kvt_snapshot *s) { halves(s, 4, "keys", "values"); }
static void halves_of_kinds(struct kvt_snapshot *s)
{
	halves_of_layers(s);
	s->group[1].kind = KVT_SLIDING_WINDOW;
}
static void no_table(struct kvt_snapshot *s)
{
	free(s->request[0].blocks[0]);
	s->request[0].blocks[0] = NULL;
}
static void no_blocks(struct kvt_snapshot *s) { s->request[0].nblocks[0] = 0; }
static void nameless_request(struct kvt_snapshot *s)
{
	free(s->request[0].id);
	s->request[0].id = NULL;
}
static void hole_nowhere(struct kvt_snapshot *s) { s->request[0].hole[1].group = 1; }

#define G(field, value) SET(group[0].field, value)
/* A head of an SSM state holds 8 elements. */
#define STATE(a, b) G(kind, KVT_MAMBA_SSM), G(shape.n[NS], 1), G(shape.n[NK], 1),	\
	G(tokens_per_slot, -1), G(state[0], a), G(state[1], b)
#define REPLICA(rank, head) G(shape.n[NH], 1), G(total_heads, 4), G(replication, 2),	\
	G(head_start, head), SET(parallel.tp_size, 8), SET(parallel.tp_rank, rank)
#define RANK_1_OF_2 G(total_heads, 4), G(head_start, 2), SET(parallel.tp_size, 2),	\
	SET(parallel.tp_rank, 1)
#define COMPONENT(at, count) G(ncomponents, 1), G(component[0].start, at),		\
	G(component[0].length, count)

static struct check_case {
	const char *what;
	const char *name, *part;	/* of the rule,
		of its sentence; NULL: all is well */
	struct set set[9];
	struct asked asked;
	void (*change)(struct kvt_snapshot *);
} checks[] = {
	{ "no head", "group.extent", "head extent is 0", .set = { G(shape.n[NH], 0) } },
	{ "a negative number of blocks", "group.extent", "block extent is -1",
	  .set = { G(shape.n[NB], -1) } },
	{ "no blocks: an empty dump", NULL, NULL, .set = { G(shape.n[NB], 0) } },
	{ "a million layers without data", "group.extent", "1048576 layers",
	  .set = { G(shape.n[NL], 1 << 20), G(shape.n[NB], 0) } },
	{ "2^32 blocks without data", "group.extent", "4294967296 blocks",
	  .set = { G(shape.n[NL], 0), G(shape.n[NB], INT64_C(1) << 32) } },
	{ "three of key and value", "group.kv", "kv extent is 3",
	  .set = { G(shape.n[NK], 3) } },
	{ "no element type", "group.type", "type ?", .set = { G(dtype, 0) } },
	{ "element of another size than its type", "group.type", "4 bytes",
	  .set = { G(shape.elem, 4) } },
	{ "more than 2^63 bytes", "group.size", "2^63",
	  .set = { G(shape.n[ND], INT64_C(1) << 60) } },
	{ "half as many slots as tokens", "group.slots", "expected 32",
	  .set = { G(block_size, 32) } },
	{ "slots that do not divide a block", "group.slots", "3 tokens",
	  .set = { G(tokens_per_slot, 3) } },
	{ "slots of no tokens", "group.slots", "0 tokens",
	  .set = { G(tokens_per_slot, 0) } },
	{ "one slot for all tokens has one slot", "group.slots", "expected 1",
	  .set = { G(tokens_per_slot, -1) } },
	{ "an SSM state of heads of 2 x 4", NULL, NULL, .set = { STATE(2, 4) } },
	{ "of heads of more", "group.state", "has 8 elements", .set = { STATE(2, 5) } },
	{ "of 2^64 elements", "group.state", "has 8 elements",
	  .set = { STATE(INT64_MAX, INT64_MAX) } },
	{ "of a list that does not end", "group.state", "has 8 elements",
	  .set = { STATE(2, 4), G(state[2], 1), G(state[3], 1) } },
	{ "of attention", "group.state", "kind is full_attention",
	  .set = { STATE(2, 4), G(kind, KVT_FULL_ATTENTION) } },
	{ "four tokens per slot", NULL, NULL,
	  .set = { G(block_size, 64), G(tokens_per_slot, 4) } },
	{ "no layout", "layout.missing", "no layout", .set = { G(layout.nplanes, 0) } },
	{ "layout without the head axis", "layout.misfit", "head",
	  .change = no_head_axis },
	{ "split that does not divide", "layout.misfit", "split",
	  .change = uneven_split },
	{ "heads beyond the last", "tp.heads", "2 heads from 1 on, of 2",
	  .set = { G(head_start, 1) } },
	{ "heads beyond 2^63", "tp.heads", "heads", .set = { G(head_start, INT64_MAX) } },
	{ "a model of no heads", "tp.heads", "of 0 in all",
	  .set = { G(total_heads, 0) } },
	{ "keys and values apart", NULL, NULL, .change = halves_alike },
	{ "of other heads", "kv.heads", "heads 0 to 1 of 2, its values 0 to 0 of 1;",
	  .change = halves_unlike },
	{ "of other heads, by their layers", "kv.heads", "its values 0 to 3 of 4",
	  .change = halves_of_layers },
	{ "of other kinds", NULL, NULL, .change = halves_of_kinds },
	{ "rank 1 of 2 with its heads", NULL, NULL, .set = { RANK_1_OF_2 } },
	{ "rank 1 of 2 with heads of rank 0", "tp.heads", "holds 2 to 3",
	  .set = { RANK_1_OF_2, G(head_start, 0) } },
	{ "replicas are grouped: rank 5 of 8 holds head 2 of 4", NULL, NULL,
	  .set = { REPLICA(5, 2) } },
	{ "replicas are not interleaved", "tp.heads", "holds 2 to 2",
	  .set = { REPLICA(5, 1) } },
	{ "replicas that TP does not make", "tp.replication", "expected 2",
	  .set = { REPLICA(5, 2), G(replication, 4) } },
	{ "rank beyond the size", "tp.rank", "tp rank 1 of 1",
	  .set = { SET(parallel.tp_rank, 1) } },
	{ "no pipeline stage", "tp.rank", "pp rank",
	  .set = { SET(parallel.pp_size, 0) } },
	{ "page smaller than its content", "page.size", "100 bytes",
	  .set = { G(page_bytes, 100) } },
	{ "page with padding", NULL, NULL, .set = { G(page_bytes, 2048) } },
	{ "content that ends beyond its page", "page.size", "from byte 1025",
	  .set = { G(page_bytes, 2048), G(page_offset, 1025) } },
	{ "padding where a page is no run", "page.split", "not one run",
	  .set = { G(page_bytes, 2048) }, .change = heads_outside },
	{ "null block outside the pool", "null.out-of-pool",
	  "null block is at position 5", .set = { SET(null_block, 5) } },
	{ "null block 0", NULL, NULL, .set = { SET(null_block, 0) } },
	{ "more live slots than slots", "valid.capacity", "block 4 has 17",
	  .change = too_valid },
	{ "a layer without a name", "layers.name", "no name", .change = nameless_layer },
	{ "component to the end", NULL, NULL, .set = { COMPONENT(4, 4) },
	  .change = name_parts },
	{ "component beyond the end", "parts.range", "'x'", .set = { COMPONENT(4, 5) },
	  .change = name_parts },
	{ "component that wraps around", "parts.range", "'x'",
	  .set = { COMPONENT(4, INT64_MAX) }, .change = name_parts },
	{ "two components of one name", "parts.duplicate", "two components",
	  .set = { COMPONENT(0, 1), G(ncomponents, 2), G(component[1].length, 1) },
	  .change = name_parts },
	{ "two groups of one name", "group.duplicate", "two groups", .change = same_ids },
	{ "no group", "group.count", "0 groups", .set = { SET(ngroups, 0) } },
	{ "group without a name", "group.id", "no id", .set = { G(id[0], 0) } },
	{ "group without a kind", "group.kind", "no kind",
	  .set = { G(kind, KVT_NKINDS) } },
	{ "request that fills its blocks", NULL, NULL, .asked = { ASKED(48, 3, 0) } },
	{ "request longer than its blocks", "table.too-short", "49 tokens",
	  .asked = { ASKED(49, 3, 0) } },
	{ "request whose window keeps the last blocks", NULL, NULL,
	  .set = { G(window, 32) }, .asked = { ASKED(49, 3, 0) } },
	{ "block table outside the pool", "table.out-of-pool", "entry 3 is position 5",
	  .asked = { ASKED(9, 4, 0) } },
	{ "negative number of tokens", "request.tokens", "-1 tokens",
	  .asked = { ASKED(-1, 1, 0) } },
	{ "more components than there can be", "parts.count", "9 components",
	  .set = { G(ncomponents, KVT_MAX_COMPONENTS + 1) } },
	{ "blocks of a table that is not there", "table.broken", "broken block table",
	  .asked = { ASKED(48, 3, 0) }, .change = no_table },
	{ "tokens in no block", "table.missing", "no block table",
	  .asked = { ASKED(48, 3, 0) },
	  .change = no_blocks },
	{ "request without an id", "request.id", "has no id",
	  .asked = { ASKED(48, 3, 0) },
	  .change = nameless_request },
	{ "request that begins inside its first block", NULL, NULL, .asked = { LATER } },
	{ "request that ends behind its blocks", "table.too-short",
	  "35 tokens do not fit 3 blocks", .asked = { ASKED(35, 3, 6 * 16 + 14) } },
	{ "request that begins before token 0", "request.first-token",
	  "from token -1 on", .asked = { ASKED(48, 3, -1) } },
	{ "request that ends behind 2^63", "request.first-token", "from token 9",
	  .asked = { ASKED(16, 3, INT64_MAX - 15) } },
	{ "request with holes", NULL, NULL,
	  .asked = { LATER, .hole = { 99, 100, 101, 144 } } },
	{ "holes that touch", "request.holes", "hole 1",
	  .asked = { LATER, .hole = { 99, 101, 101, 144 } } },
	{ "holes that are in no order", "request.holes", "hole 1",
	  .asked = { LATER, .hole = { 101, 144, 99, 100 } } },
	{ "hole of nothing", "request.holes", "hole 1",
	  .asked = { LATER, .hole = { 99, 100, 110, 110 } } },
	{ "hole before the first token", "request.holes", "tokens 98 to 99",
	  .asked = { LATER, .hole = { 98, 100, 110, 111 } } },
	{ "hole behind the last token", "request.holes", "tokens 110 to 144",
	  .asked = { LATER, .hole = { 99, 100, 110, 145 } } },
	{ "hole of a group that is none", "request.holes", "hole 1",
	  .asked = { LATER, .hole = { 99, 100, 101, 144 } }, .change = hole_nowhere },
	{ "request that begins inside a slot", "request.first-token",
	  "token 3 begins no slot of 4 tokens",
	  .set = { G(block_size, 64), G(tokens_per_slot, 4) }, .asked =
		{ ASKED(8, 1, 3) } },
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
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);

	ok(kvt_snapshot_check(s, &why));
	set_numbers(s, c->set);
	if (c->asked.nblocks)
		add_asked(s, &c->asked);
	if (c->change)
		c->change(s);
	expect(kvt_snapshot_check(s, &why), c->name ? KVT_BAD_INPUT : KVT_OK, c->part);
	expect_heard(s, c->name, &why);
}

/* ---- copies, and what follows ------------------------------------------- */

static void test_copy(void)
{
	struct kvt_snapshot *s = small_snapshot("hnd", "fp16", false), copy;

	add_request(s, "A", 20, IDS(2, 0));
	s->request[0].token_ids = calloc(3, sizeof(int32_t));
	s->request[0].ntoken_ids = 3;
	s->request[0].token_ids[2] = -7;
	s->group[0].block_ids = calloc(5, sizeof(uint64_t));
	s->group[0].block_ids[1] = 99;
	s->group[0].layer_ids = calloc(3, sizeof(uint32_t));
	s->group[0].block_names = calloc(5, sizeof(char *));
	for (int i = 0; i < 5; i++)
		s->group[0].block_names[i] = strdup(i % 2 ? "odd" : "");
	s->model = strdup("m");
	s->note = strdup("n");
	ok(kvt_snapshot_complete(s, &why));
	ok(kvt_snapshot_copy(&copy, s, &why));
	same_snapshot(s, &copy);
	assert_ptr_not_equal(s->request[0].blocks[0], copy.request[0].blocks[0]);
	assert_ptr_not_equal(s->group[0].layer_names[0], copy.group[0].layer_names[0]);
	drop_now(s);
	assert_string_equal(copy.request[0].id, "A");
	kvt_snapshot_free(&copy);
	kvt_snapshot_free(&copy);	/* an empty one is freed for free */
}

static void test_half(void)
{
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct kvt_group *g = &s->group[0];

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

/* ---- live slots --------------------------------------------------------- */

/* They follow from block tables; 16 slots a block. */
static struct live_case {
	const char *what;
	struct {
		int64_t ntokens;
		int nblocks;
		uint32_t block[3];
	} a, b;
	uint32_t live[5];
	struct set set[3];
	int64_t first_token, hole[4];
} lives[] = {
	{ "blocks 1 and 2 shared, the tail of 3 unused, 0 and 4 free",
	  { 37, 3, { 1, 2, 3 } }, { 20, 2, { 1, 2 } }, { 0, 16, 16, 5, 0 },
	  .first_token = 0 },
	{ "tokens 20 to 52: the first block is counted from its beginning",
	  { 33, 3, { 3, 1, 2 } }, .live = { 0, 16, 5, 16, 0 }, .first_token = 20 },
	{ "two tokens per slot: 37 tokens begin their 19th slot",
	  { 37, 2, { 4, 0 } }, .live = { 3, 0, 0, 0, 16 },
	  .set = { G(block_size, 32), G(tokens_per_slot, 2) } },
	{ "0 to 3 and 14 to 36 are missing: the last of block 3, all of block 1",
	  { 40, 3, { 3, 1, 2 } }, .live = { 0, 0, 8, 14, 0 }, .hole = { 0, 4, 14, 37 } },
};

static void test_live(void **state)
{
	const struct live_case *c = *state;
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);

	set_numbers(s, c->set);
	add_request(s, "A", c->a.ntokens, c->a.nblocks, c->a.block);
	s->request[0].first_token = c->first_token;
	for (int i = 0; i < 4 && c->hole[1]; i += 2)
		assert_true(kvt_request_add_hole(&s->request[0], 0, c->hole[i],
						 c->hole[i + 1]));
	if (c->b.nblocks)
		add_request(s, "B", c->b.ntokens, c->b.nblocks, c->b.block);
	ok(kvt_snapshot_complete(s, &why));
	assert_memory_equal(s->group[0].block_valid, c->live, sizeof(c->live));
	assert_string_equal(s->group[0].layer_names[2], "layers.2");
}

/* Without requests, or where a window has let go of blocks, they are not made up. */
static void test_live_unknown(void)
{
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);

	ok(kvt_snapshot_complete(s, &why));
	assert_null(s->group[0].block_valid);
	add_request(s, "A", 49, 3, some_blocks);
	s->group[0].window = 32;
	ok(kvt_snapshot_complete(s, &why));
	assert_null(s->group[0].block_valid);
}

TESTS("snapshot",
	EACH(checks, test_check), EACH(lives, test_live),
	NAMED(test_copy, "a copy is deep"),
	NAMED(test_holes, "runs of tokens between holes"),
	NAMED(test_half, "keys or values alone say so"),
	NAMED(test_live_unknown, "live slots are not made up"))
