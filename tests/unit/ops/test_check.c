/* SPDX-License-Identifier: Apache-2.0 */
/* test_check.c - findings on snapshots of which one thing is wrong */
#include "lib/ops/check/check.h"
#include "tests/unit/fixture.h"

/* Requests A and B share their first block; nothing is wrong. */
static struct kvt_snapshot *make(void)
{
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);

	s->null_block = 0;
	s->parallel.tp_size = 1;
	add_request(s, "A", 41, IDS(4, 1, 2));
	add_request(s, "B", 17, IDS(4, 3));
	ok(kvt_snapshot_complete(s, NULL));
	free(s->group[0].block_valid);
	s->group[0].block_valid = NULL;
	return s;
}

/* ---- one fault, one finding --------------------------------------------- */

static void set_valid(struct kvt_snapshot *s, uint32_t block2)
{
	static const uint32_t valid[] = { 0, 16, 9, 1, 16 };

	s->group[0].block_valid = malloc(sizeof(valid));
	memcpy(s->group[0].block_valid, valid, sizeof(valid));
	s->group[0].block_valid[2] = block2;
}

static void set_ids(struct kvt_snapshot *s, uint64_t last)
{
	s->group[0].block_ids = malloc(5 * sizeof(uint64_t));
	for (uint64_t i = 0; i < 5; i++)
		s->group[0].block_ids[i] = i < 4 ? 10 + i : last;
}

static void set_tokens(struct kvt_snapshot *s, int r, int64_t n, int32_t fifth)
{
	s->request[r].token_ids = calloc((size_t)n, sizeof(int32_t));
	s->request[r].ntoken_ids = n;
	s->request[r].token_ids[5] = fifth;
}

static void rename_layer(struct kvt_snapshot *s, int l, const char *name)
{
	free(s->group[0].layer_names[l]);
	s->group[0].layer_names[l] = strdup(name);
}

static void sound(struct kvt_snapshot *s) { (void)s; }
static void sound_valid(struct kvt_snapshot *s) { set_valid(s, 9); }
static void sound_ids(struct kvt_snapshot *s) { set_ids(s, 14); }
static void short_valid(struct kvt_snapshot *s) { set_valid(s, 8); }
static void long_valid(struct kvt_snapshot *s) { set_valid(s, 10); }
static void null_valid(struct kvt_snapshot *s)
{
	set_valid(s, 9);
	s->group[0].block_valid[0] = 3;
}
static void same_ids(struct kvt_snapshot *s) { set_ids(s, 12); }
static void null_entry(struct kvt_snapshot *s) { s->request[0].blocks[0][1] = 0; }
static void repeated(struct kvt_snapshot *s) { s->request[0].blocks[0][2] = 1; }
/* B's second block becomes A's second, after different first ones */
static void no_prefix(struct kvt_snapshot *s)
{
	s->request[1].blocks[0][0] = 3;
	s->request[1].blocks[0][1] = 1;
}
static void elsewhere(struct kvt_snapshot *s)
{
	s->request[1].blocks[0][0] = 3;
	s->request[1].blocks[0][1] = 2;
}
static void other_tokens(struct kvt_snapshot *s)
{
	set_tokens(s, 0, 41, 1);
	set_tokens(s, 1, 17, 2);
}
static void same_tokens(struct kvt_snapshot *s)
{
	set_tokens(s, 0, 41, 1);
	set_tokens(s, 1, 17, 1);
}
static void few_tokens(struct kvt_snapshot *s) { set_tokens(s, 0, 40, 0); }
static void spare(struct kvt_snapshot *s) { s->request[0].ntokens = 32; }
static void request_twice(struct kvt_snapshot *s) { s->request[1].id[0] = 'A'; }
static void same_layer(struct kvt_snapshot *s)
{
	rename_layer(s, 1, "model.layers.0.attn");
	rename_layer(s, 2, "model.layers.1.attn");
}
static void layer_order(struct kvt_snapshot *s)
{
	rename_layer(s, 0, "model.layers.1.attn");
	rename_layer(s, 1, "model.layers.0.attn");
}
static void layer_gap(struct kvt_snapshot *s)
{
	rename_layer(s, 2, "model.layers.5.attn");
}
static void half_a_rank(struct kvt_snapshot *s) { s->group[0].total_heads = 4; }

static struct fault {
	const char *what;
	void (*make)(struct kvt_snapshot *s);
	const char *rule;		/* NULL: nothing is found */
	const char *text;		/* a part of the sentence */
} faults[] = {
	{ "a sound dump", sound, NULL, NULL },
	{ "valid counts", sound_valid, NULL, NULL },
	{ "ids of blocks", sound_ids, NULL, NULL },
	{ "the same tokens", same_tokens, NULL, NULL },
	{ "too few valid", short_valid, "valid.short",
	  "8 valid slots, but requests hold 9" },
	{ "too many valid", long_valid, "valid.excess", "10 valid slots, but" },
	{ "a null block of something", null_valid, "null.valid", "3 valid slots" },
	{ "an id twice", same_ids, "blocks.duplicate-id", "id 12 is listed twice" },
	{ "a token in the null block", null_entry, "table.null-block", "entry 1 of" },
	{ "a block twice in a table", repeated, "table.repeated", "entries 1 and 2" },
	{ "shared without its prefix", no_prefix, "table.shared",
	  "entry 1 is that of request A, entry 0 before it is not" },
	{ "shared at another place", elsewhere, "table.shared",
	  "entry 1 here, but entry 2 of request A" },
	{ "shared by other tokens", other_tokens, "table.shared-tokens",
	  "token 5 is 1 there and 2 here" },
	{ "ids of fewer tokens", few_tokens, "request.token-ids",
	  "41 tokens, but ids of 40" },
	{ "a block too many", spare, "table.spare",
	  "3 blocks, but 32 tokens need only 2" },
	{ "a request twice", request_twice, "request.duplicate", "is listed twice" },
	{ "a layer twice", same_layer, "layers.duplicate-name", "is also layer 0" },
	{ "layers in disorder", layer_order, "layers.order",
	  "layer 0 of the model comes after layer 1" },
	{ "a layer left out", layer_gap, "layers.gap", "layers 2 to 4 are in no group" },
	{ "fewer heads than a rank's", half_a_rank, "tp.partial",
	  "heads 0 to 1, but rank 0" },
};

static void test_fault(void **state)
{
	const struct fault *f = *state;
	struct kvt_findings r = { .nfindings = 0 };
	struct kvt_snapshot *s = make();

	for (int l = 0; l < 3; l++) {
		char name[40];

		snprintf(name, sizeof(name), "model.layers.%d.attn", l);
		rename_layer(s, l, name);
	}
	f->make(s);
	assert_true(kvt_check_tables(&r, s));
	assert_true(kvt_check_layers(&r, s));
	kvt_check_heads(&r, s);
	if (r.nfindings != !!f->rule)
		fail_msg("%d findings, the first: %s", r.nfindings,
			 r.nfindings ? r.finding[0].text : "none");
	if (f->rule) {
		const struct kvt_rule *rule = kvt_rule_at(r.finding[0].rule);

		assert_string_equal(rule->name, f->rule);
		if (!strstr(r.finding[0].text, f->text))
			fail_msg("'%s', expected '%s' in it", r.finding[0].text, f->text);
		assert_int_equal(r.count[r.finding[0].rule], 1);
		assert_int_equal(r.total[rule->severity], 1);
	}
	kvt_findings_free(&r);
}

/* ---- the list ----------------------------------------------------------- */

static void test_rules(void)
{
	const struct kvt_rule *rule, *other;
	int n = 0;

	for (; (rule = kvt_rule_at(n)); n++)
		for (int i = 0; i < n; i++) {
			other = kvt_rule_at(i);
			assert_string_not_equal(rule->name, other->name);
		}
	assert_in_range(n, 50, KVT_MAX_RULES);
	assert_null(kvt_rule_at(-1));
	assert_string_equal(kvt_severity_name(KVT_ERROR), "error");
}

/* Sixteen are kept, and all are counted; names of a file cannot drive a terminal. */
static void test_many(void)
{
	struct kvt_findings r = { .nfindings = 0 };

	for (int i = 0; i < 50; i++)
		kvt_find(&r, "live.zero", kvt_find_at("slot=%d\x1b", i),
			 "\x1b[31m\n%d", i);
	kvt_find_more(&r, "live.zero", 1000);
	kvt_find(&r, "tile.damaged", kvt_find_at("%s", ""), "x");
	assert_int_equal(r.nfindings, KVT_MAX_FINDINGS + 1);
	assert_int_equal(r.total[KVT_WARNING], 1050);
	assert_int_equal(r.total[KVT_ERROR], 1);
	assert_int_equal(r.count[r.finding[0].rule], 1050);
	assert_string_equal(r.finding[15].at, "slot=15?");
	assert_string_equal(r.finding[15].text, "?[31m?15");
	assert_false(r.out_of_memory);
	kvt_findings_free(&r);
}

/* ---- data --------------------------------------------------------------- */

/* Zeros from byte 'at' on, in the file's data. */
static void zero(const char *path, int64_t at, int64_t nbytes)
{
	size_t size;
	uint8_t *bytes = read_file(path, &size);

	assert_in_range(at + nbytes, 1, size);
	memset(bytes + at, 0, (size_t)nbytes);
	write_file(path, bytes, size);
}

/* NHD: all heads of a slot, keys and values, are one run. */
static void test_data(void)
{
	const struct kvt_run run = { .threads = 2 };
	struct kvt_findings r = { .nfindings = 0 };
	struct path path = join(new_folder(), "a.npy");
	const int64_t index[KVT_NAXES] = { [NL] = 1, [NB] = 2, [NS] = 8 };
	const struct kvt_hints hints = { .trust_manifest = true };
	struct kvt_snapshot *s = make();
	struct kvt_dump *dump;
	int64_t buffer, at;

	s->null_block = -1;
	set_valid(s, 9);
	ok(sample_write(path.s, s, NULL, &why));
	ok(kvt_open(&dump, path.s, &hints, &why));
	keep_dump(dump);
	ok(kvt_dump_locate(&buffer, &at, dump, KVT_FILES, 0, index, &why));
	zero(path.s, at, 2 * 2 * 8 * 2);
	/* the slot before it keeps its first element: its values alone are all zeros */
	zero(path.s, at - 2 * 2 * 8 * 2 + 2, 2 * 2 * 8 * 2 - 2);
	ok(kvt_open(&dump, path.s, &hints, &why));
	keep_dump(dump);
	ok(kvt_check_dump(&r, dump, path.s, true, &run, &why));
	assert_string_equal(r.format, "npy");
	assert_int_equal(r.looked.blocks, 5);
	assert_true(r.looked.data);
	assert_int_equal(r.nfindings, 3);
	assert_string_equal(kvt_rule_at(r.finding[0].rule)->name, "live.zero");
	assert_string_equal(r.finding[0].at, "group=g0,layer=1,block=2,slot=8");
	/* of 3 layers: 16 slots of block 0, 7 of A's last block, 15 of B's */
	assert_string_equal(kvt_rule_at(r.finding[1].rule)->name, "component.zero");
	assert_string_equal(r.finding[1].at, "group=g0,layer=1,block=2,slot=7,kv=v");
	assert_string_equal(kvt_rule_at(r.finding[2].rule)->name, "stale.slots");
	assert_memory_equal(r.finding[2].text, "114 unused slots ", 17);
	kvt_findings_free(&r);
}

TESTS("check",
	EACH(faults, test_fault),
	NAMED(test_rules, "rules"),
	NAMED(test_many, "many findings"),
	NAMED(test_data, "live and stale data"))
