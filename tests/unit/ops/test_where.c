/* SPDX-License-Identifier: Apache-2.0 */
/* test_where.c - coordinates as people write them, offsets, and whose a slot is */
#include "lib/ops/where/where.h"
#include "tests/unit/fixture.h"

/* Layers 3 to 5, blocks 40 to 44 of a pool, 2 heads; A and B share a block. */
static struct kvt_snapshot *make(void)
{
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);

	number_layers(&s->group[0], (const uint32_t[]){ 3, 4, 5 });
	add_request(s, "A", 41, IDS(4, 1, 2));
	add_request(s, "B", 17, IDS(4, 3));
	s->group[0].block_ids = malloc(5 * sizeof(uint64_t));
	assert_non_null(s->group[0].block_ids);
	for (uint64_t i = 0; i < 5; i++)
		s->group[0].block_ids[i] = 40 + i;
	return s;
}

/* ---- coordinates -------------------------------------------------------- */

#define REST ",head=0,kv=k,dim=0"

static const struct {
	const char *text;
	int64_t index[6], byte;
} elements[] = {
	{ "layer=1,block=42,slot=3,head=1,kv=v,dim=5", { 1, 2, 3, 1, 1, 5 }, 0 },
	{ "dim=5,kv=v,head=1,slot=3,block=42,layer=1", { 1, 2, 3, 1, 1, 5 }, 0 },
	{ "layer=1,block_id=42,slot=3,head=1,kv=values,dim=5", { 1, 2, 3, 1, 1, 5 }, 0 },
	{ "layer=1,block=42,state=3,head=1,kv=v,dim=5", { 1, 2, 3, 1, 1, 5 }, 0 },
	{ "layer_id=4,block=42,slot=3,head=1,kv=v,dim=5", { 1, 2, 3, 1, 1, 5 }, 0 },
	{ "layer=0x1,position=2,slot=3,local_head=1,kv=1,dim=5",
	  { 1, 2, 3, 1, 1, 5 }, 0 },
	{ "group=g0,layer=0,block=40,slot=0" REST ",byte=1", { 0 }, 1 },
	/* 16 tokens a block: token 17 is slot 1 of A's second one */
	{ "request=A,token=17,layer=2" REST, { 2, 1, 1, 0, 0, 0 }, 0 },
	{ "request=A,token=40,layer=2" REST, { 2, 2, 8, 0, 0, 0 }, 0 },
	{ "request=B,token=16,layer=2" REST, { 2, 3, 0, 0, 0, 0 }, 0 },
};

static const struct {
	const char *text, *part;
} refused[] = {
	{ "block=40,slot=0" REST, "expected layer, too, such as" },
	{ "layer=3,block=40,slot=0" REST, "layer is 3, expected 0 to 2" },
	{ "layer=x,block=40,slot=0" REST, "layer is 'x', expected a whole number" },
	{ "layer=0,block=4x,slot=0" REST, "block is '4x', expected a whole number" },
	{ "layer_id=6,block=40,slot=0" REST, "no layer of group g0 is layer 6" },
	{ "layer_id=x,block=40,slot=0" REST, "layer_id is 'x', expected a whole" },
	{ "layer=1,layer_id=1,block=40" REST, "layer and layer_id are given" },
	{ "lyer=1,block=40,slot=0" REST, "no key 'lyer', did you mean 'layer'?" },
	{ "layer=1,layer=1,block=40,slot=0" REST, "layer is given twice" },
	{ "layer=1,block=40,slot=0,state=0" REST, "state is given twice" },
	{ "layer,block=40,slot=0" REST, "'layer', expected KEY=VALUE" },
	{ "layer=,block=40", "layer is '', expected a value" },
	{ "layer=0,block=7,slot=0" REST, "no block of group g0 has id 7" },
	{ "layer=0,position=5,slot=0" REST, "position is 5, expected 0 to 4" },
	{ "layer=0,block=40,position=0" REST, "expected one of block, position and" },
	{ "layer=0,block=40,block_id=40,slot=0" REST, "expected one of block, pos" },
	{ "layer=0,token=3" REST, "token is given without its request" },
	{ "layer=0,request=C,token=3" REST, "there is no request 'C', the dump has 2" },
	{ "layer=0,request=A,token=41" REST, "token is 41, expected 0 to 40" },
	{ "layer=0,request=A,token=3,slot=3" REST, "slot and token are given" },
	{ "layer=0,block=40,slot=0,head=2,kv=k,dim=0", "head is 2, expected 0 to 1" },
	{ "layer=0,block=40,slot=0,head=0,local_head=0,kv=k", "head and local_head" },
	{ "layer=0,block=40,slot=0,head=0,kv=q,dim=0", "kv is 'q', expected k or v" },
	{ "layer=0,block=40,slot=0,head=0,dim=0", "expected kv, too, such as" },
	{ "layer=0,block=40,slot=0" REST ",byte=2", "byte is 2, expected 0 to 1" },
	{ "layer=0,block=40,slot=0" REST ",row=0", "no key 'row'" },
	{ "layer=0,block=40,slot=0" REST ",count=1", "no key 'count'" },
	{ "layer=0" REST, "expected block, too, such as layer=0" REST ",block=40" },
	{ "group=g1,layer=0", "there is no group 'g1', the first is g0" },
};

static void test_element(void)
{
	struct kvt_snapshot *s = make();

	for (size_t i = 0; i < LENGTH(elements); i++) {
		struct kvt_where p;

		ok(kvt_where_parse_at(&p, s, elements[i].text, &why));
		if (p.region != KVT_ELEMENT || p.group || p.byte != elements[i].byte ||
		    memcmp(p.index, elements[i].index, sizeof(elements[i].index)))
			fail_msg("%s is l %d b %d s %d h %d k %d d %d", elements[i].text,
				 (int)p.index[NL], (int)p.index[NB], (int)p.index[NS],
				 (int)p.index[NH], (int)p.index[NK], (int)p.index[ND]);
	}
}

static void test_refused(void)
{
	struct kvt_snapshot *s = make();

	for (size_t i = 0; i < LENGTH(refused); i++) {
		struct kvt_where p = { .group = 77 };

		expect(kvt_where_parse_at(&p, s, refused[i].text, &why), KVT_USAGE,
		       refused[i].part);
		assert_int_equal(p.group, 77);
	}
	s->group[0].head_start = 6;
	expect(kvt_where_parse_at(&(struct kvt_where){ 0 }, s,
				  "layer=0,block=40,slot=0,kv=k,dim=0", &why), KVT_USAGE,
	       "expected head, too, such as layer=0,block=40,slot=0,kv=k,dim=0,head=6");
}

/* A request that has no blocks here, and one whose first blocks are gone. */
static void test_parts_of_tables(void)
{
	static const uint32_t last[] = { 2, 3 };
	struct kvt_snapshot *s = make();
	struct kvt_where p;

	add_request(s, "none", 5, 0, last);
	add_request(s, "late", 41, 2, last);
	expect(kvt_where_parse_at(&p, s, "layer=0,request=late,token=33" REST, &why),
	       KVT_UNSUPPORTED, "the 2 blocks of request late do not cover");
	s->group[0].kind = KVT_SLIDING_WINDOW;
	s->group[0].window = 16;
	expect(kvt_where_parse_at(&p, s, "layer=0,request=none,token=3" REST, &why),
	       KVT_USAGE, "request none has no blocks in group g0");
	expect(kvt_where_parse_at(&p, s, "layer=0,request=late,token=3" REST, &why),
	       KVT_UNSUPPORTED,
	       "the 2 blocks of request late do not cover all its tokens; give block "
	       "instead");
	ok(kvt_where_parse_at(&p, s, "layer=0,request=late,token=33" REST, &why));
	/* entry 1 of those of tokens 16 to 40 */
	assert_int_equal(p.index[NB], 3);
	assert_int_equal(p.index[NS], 1);
	/* token 33 of slots of four */
	s->group[0].kind = KVT_FULL_ATTENTION;
	s->group[0].window = 0;
	s->group[0].tokens_per_slot = 4;
	s->group[0].block_size = 64;
	ok(kvt_where_parse_at(&p, s, "layer=0,request=A,token=33" REST, &why));
	assert_int_equal(p.index[NB], 4);
	assert_int_equal(p.index[NS], 8);
	/* states: the newest, and which row of it is said */
	s->group[0].tokens_per_slot = -1;
	ok(kvt_where_parse_at(&p, s, "layer=0,request=A,slot=2" REST, &why));
	assert_int_equal(p.index[NB], 2);
	assert_int_equal(p.index[NS], 2);
}

static void test_run(void)
{
	struct kvt_element_run run;
	struct kvt_snapshot *s = make();

	ok(kvt_where_parse_run(&run, s, "layer=1", &why));
	assert_int_equal(run.place.index[NL], 1);
	assert_int_equal(run.place.index[NB], 0);
	assert_int_equal(run.count, 8);
	ok(kvt_where_parse_run(&run, s, "block=41,kv=v,dim=7,count=4096", &why));
	assert_int_equal(run.place.index[NB], 1);
	assert_int_equal(run.place.index[NK], 1);
	assert_int_equal(run.place.index[ND], 7);
	assert_int_equal(run.count, 4096);
	expect(kvt_where_parse_run(&run, s, "count=4097", &why), KVT_USAGE,
	       "count is 4097, expected 0 to 4096");
	expect(kvt_where_parse_run(&run, s, "row=0", &why), KVT_USAGE,
	       "the content is not a page of rows");
	expect(kvt_where_parse_run(&run, s, "byte=0", &why), KVT_USAGE, "no key 'byte'");
}

/* ---- offsets ------------------------------------------------------------ */

/* Every element is found, and its bytes lead back to it. */
static void test_there_and_back(void)
{
	struct path path = join(new_folder(), "a.npy");
	struct kvt_whereabouts at, back;
	struct kvt_snapshot *s = make();
	struct kvt_dump *dump;
	struct kvt_box box;
	int64_t i[KVT_NAXES];
	uint8_t *bytes;
	size_t nbytes;
	char text[200];

	ok(kvt_snapshot_complete(s, &why));
	ok(sample_write(path.s, s, NULL, &why));
	dump = open_dump(path.s);
	bytes = read_file(path.s, &nbytes);
	box = kvt_box_whole(&s->group[0].shape);
	memcpy(i, box.begin, sizeof(i));
	do {
		snprintf(text, sizeof(text),
			 "layer=%d,position=%d,slot=%d,head=%d,kv=%c,dim=%d,byte=1",
			 (int)i[NL], (int)i[NB], (int)i[NS], (int)i[NH],
			 i[NK] ? 'v' : 'k', (int)i[ND]);
		ok(kvt_where_at(&at, dump, text, &why));
		assert_true(at.in_files && at.in_memory);
		assert_true(at.file_offset >= 0 && at.file_offset < (int64_t)nbytes);
		assert_int_equal(bytes[at.file_offset], byte_at(i, 1));
		snprintf(text, sizeof(text), "0x%llx",
			 (unsigned long long)at.file_offset);
		ok(kvt_where_offset(&back, dump, KVT_FILES, text, &why));
		same_bytes(back.place.index, i, sizeof(i), text);
		assert_int_equal(back.place.byte, 1);
		assert_int_equal(back.memory_offset, at.memory_offset);
	} while (next_index(i, &box));
	ok(kvt_where_offset(&back, dump, KVT_FILES, "0", &why));
	assert_int_equal(back.place.region, KVT_HEADER);
	assert_true(back.in_files && !back.in_memory);
	expect(kvt_where_offset(&back, dump, KVT_FILES, "1.5", &why), KVT_USAGE,
	       "expected a whole number");
	expect(kvt_where_offset(&back, dump, KVT_FILES, "a:b:5", &why), KVT_USAGE,
	       "has no file 'a:b'");
}

/* ---- tenants ------------------------------------------------------------ */

static enum kvt_holding holds(const struct kvt_snapshot *s, int64_t block, int64_t slot)
{
	struct kvt_where p = { .region = KVT_ELEMENT };

	p.index[NB] = block;
	p.index[NS] = slot;
	return kvt_where_holds(s, &p);
}

static void test_holds(void)
{
	static const uint32_t last[] = { 2, 3 };
	struct kvt_snapshot *s = make();

	add_request(s, "none", 5, 0, last);
	s->null_block = 0;
	assert_int_equal(holds(s, 0, 0), KVT_HOLDS_NULL);
	assert_int_equal(holds(s, 4, 0), KVT_HOLDS_LIVE);
	/* A ends with token 40, the ninth of its third block */
	assert_int_equal(holds(s, 2, 8), KVT_HOLDS_LIVE);
	assert_int_equal(holds(s, 2, 9), KVT_HOLDS_STALE);
	assert_int_equal(holds(s, 3, 0), KVT_HOLDS_LIVE);
	assert_int_equal(holds(s, 3, 1), KVT_HOLDS_STALE);
	/* tokens 25 to 40 of a table without its beginning */
	add_request(s, "late", 41, 2, last);
	add_request(s, "none too", 5, 0, last);
	s->group[0].kind = KVT_SLIDING_WINDOW;
	s->group[0].window = 16;
	assert_int_equal(holds(s, 3, 8), KVT_HOLDS_LIVE);
	assert_int_equal(holds(s, 3, 9), KVT_HOLDS_STALE);
	s = small_snapshot("nhd", "bf16", false);
	assert_int_equal(holds(s, 2, 8), KVT_HOLDS_UNKNOWN);
	s->group[0].block_valid = calloc(5, sizeof(uint32_t));
	s->group[0].block_valid[2] = 9;
	assert_int_equal(holds(s, 2, 8), KVT_HOLDS_LIVE);
	assert_int_equal(holds(s, 2, 9), KVT_HOLDS_STALE);
}

static void test_tenants(void)
{
	struct kvt_where p = { .region = KVT_ELEMENT };
	struct kvt_tenancy at = { 0, 0 };
	struct kvt_snapshot *s = make();
	struct kvt_tenant t;

	p.index[NB] = 4;
	p.index[NS] = 7;
	assert_true(kvt_next_tenant(&t, &at, s, &p));
	assert_string_equal(t.request->id, "A");
	assert_int_equal(t.token, 7);
	assert_int_equal(t.ntokens, 1);
	assert_true(kvt_next_tenant(&t, &at, s, &p));
	assert_string_equal(t.request->id, "B");
	assert_false(kvt_next_tenant(&t, &at, s, &p));
	at = (struct kvt_tenancy){ 0, 0 };
	p.index[NB] = 1;
	assert_true(kvt_next_tenant(&t, &at, s, &p));
	assert_int_equal(t.token, 23);
	assert_false(kvt_next_tenant(&t, &at, s, &p));
	/* C begins with token 20, the fifth of that block, which has 16 */
	add_request(s, "C", 13, IDS(1));
	s->request[2].first_token = 20;
	at = (struct kvt_tenancy){ 1, 0 };
	assert_true(kvt_next_tenant(&t, &at, s, &p));
	assert_int_equal(t.token, 23);
	p.index[NS] = 3;
	at = (struct kvt_tenancy){ 1, 0 };
	assert_false(kvt_next_tenant(&t, &at, s, &p));
	/* the last slot of A, of four tokens, has one */
	s->group[0].tokens_per_slot = 4;
	s->group[0].block_size = 64;
	p.index[NB] = 4;
	p.index[NS] = 10;
	at = (struct kvt_tenancy){ 0, 0 };
	assert_true(kvt_next_tenant(&t, &at, s, &p));
	assert_int_equal(t.token, 40);
	assert_int_equal(t.ntokens, 1);
}

static void test_component(void)
{
	struct kvt_snapshot *s = make();
	struct kvt_group *g = &s->group[0];

	g->ncomponents = 2;
	g->component[0] = (struct kvt_component){ .start = 1, .length = 3 };
	g->component[1] = (struct kvt_component){ .start = 4, .length = 2 };
	assert_null(kvt_where_component(g, 0));
	assert_ptr_equal(kvt_where_component(g, 1), &g->component[0]);
	assert_ptr_equal(kvt_where_component(g, 3), &g->component[0]);
	assert_ptr_equal(kvt_where_component(g, 4), &g->component[1]);
	assert_null(kvt_where_component(g, 6));
}

TESTS("where",
	NAMED(test_element, "an element"),
	NAMED(test_refused, "what is refused"),
	NAMED(test_parts_of_tables, "tables that are parts"),
	NAMED(test_run, "a run of elements"),
	NAMED(test_there_and_back, "there and back"),
	NAMED(test_holds, "live, stale, null"),
	NAMED(test_tenants, "tenants of a slot"),
	NAMED(test_component, "components"))
