/* SPDX-License-Identifier: Apache-2.0 */
/* test_manifest.c - what manifests say, and what they may not say */
#include "tests/unit/fixture.h"

/* Most rows change one thing of this. */
#define SIZES "\"sizes\": {\"layers\": 3, \"num_blocks\": 5, \"block_size\": 16," \
	      " \"num_kv_heads\": 2, \"head_dim\": 8}"
#define BASE "\"layout\": \"nhd\", \"dtype\": \"bfloat16\", " SIZES
#define MAMBA \
	"\"layout\": \"mamba-page\", \"page_bytes\": 48, \"sizes\": {\"layers\": 1," \
	" \"num_blocks\": 2}, \"conv_layout\": \"SD\""
#define CONV "\"conv\": {\"byte_offset\": 0, \"dtype\": \"bf16\", \"shape\": [2, 4]," \
	     " \"x\": [0, 2], \"B\": [2, 3], \"C\": [3, 4]}"
#define SSM "\"ssm\": {\"byte_offset\": 16, \"dtype\": \"fp32\", \"shape\": [2, 2, 2]}"
#define X32 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X256 X32 X32 X32 X32 X32 X32 X32 X32
#define GROUP8 GROUP GROUP GROUP GROUP GROUP GROUP GROUP GROUP
#define GROUP "{\"layout\": \"nhd\"},"

enum { BASE_BYTES = 3 * 5 * 16 * 2 * 2 * 8 * 2 };

static struct parse_case {
	const char *what, *text;
	int64_t nbytes;			/* of the data */
	enum kvt_status status;
	const char *part;
} cases[] = {
	{ "all that is needed", "{" BASE "}", BASE_BYTES, KVT_OK, NULL },
	{ "unknown keys are ignored",
	  "{" BASE ", \"address_map\": {\"K\": [[]]}, \"x\": 1}",
	  BASE_BYTES, KVT_OK, NULL },
	{ "null is as if it were not there",
	  "{" BASE ", \"file_axes\": null, \"tp_size\": null}",
	  BASE_BYTES, KVT_OK, NULL },
	{ "one byte more", "{" BASE "}", BASE_BYTES + 1, KVT_BAD_INPUT, "15361" },
	{ "one byte less", "{" BASE "}", BASE_BYTES - 1, KVT_BAD_INPUT, "15359" },
	{ "nothing", "", 0, KVT_BAD_INPUT, NULL },
	{ "an array", "[1]", 0, KVT_BAD_INPUT, "not an object" },
	{ "a key twice", "{" BASE ", \"layout\": \"nhd\"}", BASE_BYTES, KVT_BAD_INPUT,
	  "duplicate" },
	{ "a request twice", "{" BASE ", \"num_tokens\": {\"A\": 1, \"A\": 2}}",
	  BASE_BYTES,
	  KVT_BAD_INPUT, "duplicate" },
	{ "something behind the object", "{" BASE "} x", BASE_BYTES, KVT_BAD_INPUT,
	  NULL },
	{ "no layout", "{\"dtype\": \"bf16\", " SIZES "}", BASE_BYTES, KVT_BAD_INPUT,
	  "--layout" },
	{ "no element type", "{\"layout\": \"nhd\", " SIZES "}", BASE_BYTES,
	  KVT_BAD_INPUT,
	  "--dtype" },
	{ "a type that is several",
	  "{\"layout\": \"nhd\", \"dtype\": \"fp8\", " SIZES "}",
	  BASE_BYTES, KVT_BAD_INPUT, "'fp8'" },
	{ "a number as layout", "{\"layout\": 3}", 0, KVT_BAD_INPUT,
	  "layout is an integer" },
	{ "a bare tuple as layout", "{\"layout\": \"0,1,2,3,4\"}", 0, KVT_BAD_INPUT,
	  "rfc:" },
	{ "a layout beyond axes", "{\"layout\": \"nvfp4-hnd\"}", 0, KVT_UNSUPPORTED,
	  NULL },
	{ "a fraction as size", "{" BASE ", \"head_start\": 0.0}", BASE_BYTES,
	  KVT_BAD_INPUT,
	  "head_start is 0.0, expected an integer" },
	{ "a negative size", "{\"layout\": \"nhd\", \"dtype\": \"bf16\","
	  " \"sizes\": {\"layers\": -1}}", 0, KVT_BAD_INPUT, "layers is -1" },
	{ "a size beyond 2^63", "{\"layout\": \"nhd\", \"dtype\": \"bf16\","
	  " \"sizes\": {\"layers\": 99999999999999999999}}", 0, KVT_BAD_INPUT,
	  "integer" },
	{ "sizes whose product overflows", "{\"layout\": \"nhd\", \"dtype\": \"bf16\","
	  " \"sizes\": {\"layers\": 4294967296, \"num_blocks\": 4294967296,"
	  " \"block_size\": 16, \"num_kv_heads\": 2, \"head_dim\": 8}}", 0, KVT_BAD_INPUT,
	  "2^63" },
	{ "an overflow that no data would hide",
	  "{\"layout\": \"nhd\", \"dtype\": \"bf16\","
	  " \"sizes\": {\"layers\": 4294967296, \"num_blocks\": 0,"
	  " \"block_size\": 4294967296, \"num_kv_heads\": 2, \"head_dim\": 8}}", 0,
	  KVT_BAD_INPUT, "2^63" },
	{ "sizes that are no object", "{\"layout\": \"nhd\", \"sizes\": [3]}", 0,
	  KVT_BAD_INPUT, "sizes is an array" },
	{ "head_dim and content", "{\"layout\": \"nhd\", \"dtype\": \"bf16\","
	  " \"sizes\": {\"head_dim\": 8, \"content\": 16}}", 0, KVT_BAD_INPUT,
	  "one of them" },
	{ "head_dim for opaque content", "{\"layout\": \"mla\", \"dtype\": \"bf16\","
	  " \"sizes\": {\"layers\": 1, \"num_blocks\": 1, \"block_size\": 1,"
	  " \"head_dim\": 8}}", 32, KVT_BAD_INPUT, "opaque" },
	{ "opaque content in a layout with heads",
	  "{\"layout\": \"nhd\", \"dtype\": \"u8\","
	  " \"sizes\": {\"layers\": 1, \"num_blocks\": 2, \"block_size\": 4,"
	  " \"num_kv_heads\": 3, \"content\": 5}}", 120, KVT_OK, NULL },
	{ "one open extent follows from the size",
	  "{\"layout\": \"nhd\", \"dtype\": \"bf16\","
	  " \"sizes\": {\"layers\": 3, \"block_size\": 16, \"num_kv_heads\": 2,"
	  " \"head_dim\": 8}}", BASE_BYTES, KVT_OK, NULL },
	{ "if it divides it", "{\"layout\": \"nhd\", \"dtype\": \"bf16\","
	  " \"sizes\": {\"layers\": 3, \"block_size\": 16, \"num_kv_heads\": 2,"
	  " \"head_dim\": 8}}", BASE_BYTES + 512, KVT_BAD_INPUT, "--blocks" },
	{ "two open extents", "{\"layout\": \"nhd\", \"dtype\": \"bf16\","
	  " \"sizes\": {\"block_size\": 16, \"num_kv_heads\": 2, \"head_dim\": 8}}",
	  BASE_BYTES, KVT_BAD_INPUT, "its sizes are not known; give --layers" },
	{ "heads said twice, differently", "{" BASE ", \"head_count\": 4}", BASE_BYTES,
	  KVT_BAD_INPUT, "head_count is 4" },
	{ "names of fewer layers", "{" BASE ", \"layer_names\": [\"a\", \"b\"]}",
	  BASE_BYTES,
	  KVT_BAD_INPUT, "layer_names is 2" },
	{ "names of fewer blocks", "{" BASE ", \"block_names\": [\"a\", \"b\"]}",
	  BASE_BYTES, KVT_BAD_INPUT, "block_names is 2" },
	{ "a layer's name that is a number",
	  "{" BASE ", \"layer_names\": [\"a\", \"b\", 3]}",
	  BASE_BYTES, KVT_BAD_INPUT, "an integer" },
	{ "a name that hides its end", "{" BASE ", \"model\": \"a\\u0000b\"}", BASE_BYTES,
	  KVT_BAD_INPUT, NULL },
	{ "live slots of fewer blocks", "{" BASE ", \"block_valid\": [1]}", BASE_BYTES,
	  KVT_BAD_INPUT, "block_valid is 1" },
	{ "a rank of several heads, which are its own", "{" BASE ", \"tp_size\": 2,"
	  " \"tp_rank\": 1}", BASE_BYTES, KVT_OK, NULL },
	{ "a rank of one head, of which others may have replicas",
	  "{\"layout\": \"nhd\", \"dtype\": \"bf16\", \"tp_size\": 2, \"tp_rank\": 1,"
	  " \"sizes\": {\"layers\": 3, \"block_size\": 16, \"num_kv_heads\": 1,"
	  " \"head_dim\": 8}}", BASE_BYTES, KVT_BAD_INPUT, "which is 2 if each rank" },
	{ "rank whose heads follow", "{" BASE ", \"tp_size\": 2, \"tp_rank\": 1,"
	  " \"total_kv_heads\": 4}", BASE_BYTES, KVT_OK, NULL },
	{ "rank with heads of another", "{" BASE ", \"tp_size\": 2, \"tp_rank\": 1,"
	  " \"total_kv_heads\": 4, \"head_start\": 0}", BASE_BYTES, KVT_BAD_INPUT,
	  "holds 2 to 3" },
	{ "an id of a block twice", "{" BASE ", \"block_ids\": [7, 8, 9, 8, 6]}",
	  BASE_BYTES, KVT_BAD_INPUT, "block_ids has 8 twice" },
	{ "a table with a block that is not in block_ids", "{" BASE ", \"block_ids\":"
	  " [7, 8, 9, 5, 6], \"block_table\": {\"A\": [4]}, \"num_tokens\": {\"A\": 1}}",
	  BASE_BYTES, KVT_BAD_INPUT, "request A: block 4 is not in block_ids" },
	{ "tokens that are no object", "{" BASE ", \"num_tokens\": [1]}", BASE_BYTES,
	  KVT_BAD_INPUT, "num_tokens is an array" },
	{ "tables of a group that are no object", "{" BASE ", \"block_table\": 3}",
	  BASE_BYTES, KVT_BAD_INPUT, "block_table is" },
	{ "a number of tokens that is text", "{" BASE ", \"num_tokens\": {\"A\": \"1\"}}",
	  BASE_BYTES, KVT_BAD_INPUT, "A is" },
	{ "ids of tokens that are no list", "{" BASE ", \"num_tokens\": {\"A\": 1},"
	  " \"token_ids\": {\"A\": 1}}", BASE_BYTES, KVT_BAD_INPUT, "A is" },
	{ "an id of a token beyond 32 bits", "{" BASE ", \"num_tokens\": {\"A\": 1},"
	  " \"token_ids\": {\"A\": [2147483648]}}", BASE_BYTES, KVT_BAD_INPUT,
	  "2147483648" },
	{ "ids of tokens of a request that is nowhere else",
	  "{" BASE ", \"token_ids\": {\"A\": [1]}}", BASE_BYTES, KVT_BAD_INPUT,
	  "num_tokens lacks request A" },
	{ "a first token before the first", "{" BASE ", \"num_tokens\": {\"A\": 1},"
	  " \"first_token\": {\"A\": -1}}", BASE_BYTES, KVT_BAD_INPUT, "A is -1" },
	{ "holes that are no pairs", "{" BASE ", \"num_tokens\": {\"A\": 9},"
	  " \"holes\": {\"A\": [[1, 2], 3]}}", BASE_BYTES, KVT_BAD_INPUT, "not pairs" },
	{ "holes that are text", "{" BASE ", \"num_tokens\": {\"A\": 9},"
	  " \"holes\": {\"A\": \"1\"}}", BASE_BYTES, KVT_BAD_INPUT, "A is" },
	{ "a hole before the first token", "{" BASE ", \"num_tokens\": {\"A\": 9},"
	  " \"holes\": {\"A\": [[-1, 2]]}}", BASE_BYTES, KVT_BAD_INPUT, "A" },
	{ "a hole behind the last token", "{" BASE ", \"num_tokens\": {\"A\": 9},"
	  " \"block_table\": {\"A\": [0]}, \"holes\": {\"A\": [[8, 10]]}}", BASE_BYTES,
	  KVT_BAD_INPUT, "tokens 8 to 9" },
	{ "tokens seen that are no list", "{" BASE ", \"tokens_seen\": {\"A\": 4}}",
	  BASE_BYTES, KVT_BAD_INPUT, "A is" },
	{ "tokens seen that are text", "{" BASE ", \"tokens_seen\": {\"A\": [\"x\"]}}",
	  BASE_BYTES, KVT_BAD_INPUT, "A" },
	{ "states of two intervals", "{" BASE ", \"tokens_seen\": {\"A\": [4, 8],"
	  " \"B\": [5, 9]}}", BASE_BYTES, KVT_BAD_INPUT,
	  "tokens_seen begins with 4 and with 5" },
	{ "a table without its tokens", "{" BASE ", \"block_table\": {\"A\": [1]}}",
	  BASE_BYTES, KVT_BAD_INPUT, "num_tokens lacks request A" },
	{ "a table outside the pool", "{" BASE ", \"block_table\": {\"A\": [5]},"
	  " \"num_tokens\": {\"A\": 3}}", BASE_BYTES, KVT_BAD_INPUT, "entry 0 is "
								     "position 5" },
	{ "a table entry beyond 2^32",
	  "{" BASE ", \"block_table\": {\"A\": [4294967296]},"
	  " \"num_tokens\": {\"A\": 3}}", BASE_BYTES, KVT_BAD_INPUT, "4294967296" },
	{ "a table that is no list", "{" BASE ", \"block_table\": {\"A\": 5},"
	  " \"num_tokens\": {\"A\": 3}}", BASE_BYTES, KVT_BAD_INPUT,
	  "expected an array" },
	{ "more tokens than blocks", "{" BASE ", \"block_table\": {\"A\": [4]},"
	  " \"num_tokens\": {\"A\": 17}}", BASE_BYTES, KVT_BAD_INPUT, "17 tokens" },
	{ "a block id that is not in the dump",
	  "{" BASE ", \"block_ids\": [9, 8, 7, 6, 5],"
	  " \"block_table\": {\"A\": [4]}, \"num_tokens\": {\"A\": 17}}", BASE_BYTES,
	  KVT_BAD_INPUT, "not in block_ids" },
	{ "a block id twice", "{" BASE ", \"block_ids\": [9, 8, 7, 9, 5]}", BASE_BYTES,
	  KVT_BAD_INPUT, "9 twice" },
	{ "a null block outside the pool", "{" BASE ", \"null_block\": 5}", BASE_BYTES,
	  KVT_BAD_INPUT, "null block is at position 5" },
	{ "an unknown kind", "{" BASE ", \"kind\": \"quantum\"}", BASE_BYTES,
	  KVT_UNSUPPORTED,
	  "quantum" },
	{ "slots of no tokens", "{" BASE ", \"tokens_per_slot\": 0}", BASE_BYTES,
	  KVT_BAD_INPUT, "tokens_per_slot is 0" },
	{ "slots that do not divide a block", "{" BASE ", \"tokens_per_slot\": 3}",
	  BASE_BYTES, KVT_BAD_INPUT, "3 tokens per slot" },
	{ "slots of no tokens, as they were called before",
	  "{" BASE ", \"tokens_per_state\": 0}", BASE_BYTES, KVT_BAD_INPUT,
	  "tokens_per_state is 0" },
	{ "four tokens per slot, as they were called before",
	  "{" BASE ", \"tokens_per_state\": 4}", BASE_BYTES / 4, KVT_OK, NULL },
	{ "tokens a slot by both names",
	  "{" BASE ", \"tokens_per_state\": 4, \"tokens_per_slot\": 4}",
	  BASE_BYTES / 4, KVT_OK, NULL },
	{ "tokens a slot by two names that differ",
	  "{" BASE ", \"tokens_per_state\": 4, \"tokens_per_slot\": 2}",
	  BASE_BYTES / 4, KVT_BAD_INPUT,
	  "tokens_per_slot is 2, but tokens_per_state, its old name, is 4" },
	{ "four tokens per slot", "{" BASE ", \"tokens_per_slot\": 4}", BASE_BYTES / 4,
	  KVT_OK, NULL },
	{ "pages with padding", "{" BASE ", \"page_bytes\": 1040}", 15 * 1040, KVT_OK,
	  NULL },
	{ "the same without the padding", "{" BASE ", \"page_bytes\": 1040}", BASE_BYTES,
	  KVT_OK, NULL },
	{ "pages of another size", "{" BASE ", \"page_bytes\": 1040}", 15 * 1041,
	  KVT_BAD_INPUT, "pages make 15600" },
	{ "pages too small", "{" BASE ", \"page_bytes\": 1000}", 15000, KVT_BAD_INPUT,
	  "cannot hold" },
	{ "a component beyond the content", "{" BASE ", \"content\": [[\"a\", 9]]}",
	  BASE_BYTES, KVT_BAD_INPUT, "'a'" },
	{ "a component without a length", "{" BASE ", \"content\": [[\"a\"]]}",
	  BASE_BYTES,
	  KVT_BAD_INPUT, "name and a length" },
	{ "nine components", "{" BASE ", \"content\": [[\"a\",0],[\"b\",0],[\"c\",0],"
	  "[\"d\",0],[\"e\",0],[\"f\",0],[\"g\",0],[\"h\",0],[\"i\",0]]}", BASE_BYTES,
	  KVT_BAD_INPUT, "more than 8" },
	{ "a component without a name", "{" BASE ", \"content\": [[\"\", 1]]}",
	  BASE_BYTES, KVT_BAD_INPUT, "component name '' has not 1 to" },
	{ "axes of the file that are no layout's",
	  "{" BASE ", \"file_axes\": [\"L\", \"" X256 "\"]}", BASE_BYTES,
	  KVT_BAD_INPUT, "file_axes has too many entries" },
	{ "a name of 256 bytes", "{" BASE ", \"file\": \"" X256 "\"}", BASE_BYTES,
	  KVT_BAD_INPUT, "file or npy_dtype is too long" },
	{ "a shape of the file that is another", "{" BASE ", \"file_shape\": [15360]}",
	  BASE_BYTES, KVT_BAD_INPUT, "file_shape 15360 makes 30720" },
	{ "a shape in bytes",
	  "{" BASE ", \"file_shape\": [15360], \"npy_dtype\": \"|u1\"}",
	  BASE_BYTES, KVT_OK, NULL },
	{ "a shape of nine axes", "{" BASE ", \"file_shape\": [1,1,1,1,1,1,1,1,1]}",
	  BASE_BYTES, KVT_BAD_INPUT, "at most 8" },

	{ "a page of conv and ssm", "{" MAMBA ", " CONV ", " SSM "}", 96, KVT_OK, NULL },
	{ "of another size", "{" MAMBA ", " CONV ", " SSM "}", 95, KVT_BAD_INPUT,
	  "pages make 96" },
	{ "without conv", "{" MAMBA ", " SSM "}", 96, KVT_BAD_INPUT, "needs conv" },
	{ "an order of taps that is none", "{" MAMBA "S\", " CONV ", " SSM "}", 96,
	  KVT_BAD_INPUT, NULL },
	{ "ssm beyond the page", "{" MAMBA ", " CONV ", \"ssm\": {\"byte_offset\": 17,"
	  " \"dtype\": \"fp32\", \"shape\": [2, 2, 2]}}", 96, KVT_BAD_INPUT,
	  "from byte 17" },
	{ "heads that contradict the shape", "{" MAMBA ", " CONV ", \"ssm\": {"
	  "\"byte_offset\": 16, \"dtype\": \"fp32\", \"shape\": [2, 2, 2],"
	  " \"heads\": [0, 3]}}", 96, KVT_BAD_INPUT, "heads 0 to 2" },
	{ "a shape that overflows", "{" MAMBA ", " CONV ", \"ssm\": {\"dtype\": \"fp32\","
	  " \"shape\": [2, 4611686018427387903, 3]}}", 96, KVT_BAD_INPUT, "overflows" },
	{ "x of another length elsewhere", "{" MAMBA ", \"conv\": {\"dtype\": \"bf16\","
	  " \"shape\": [2, 4], \"x\": [0, 2], \"global_x\": [0, 3]}, " SSM "}", 96,
	  KVT_BAD_INPUT, "differ in length" },
	{ "x that ends before it begins", "{" MAMBA ", \"conv\": {\"dtype\": \"bf16\","
	  " \"shape\": [2, 4], \"x\": [2, 0]}, " SSM "}", 96, KVT_BAD_INPUT,
	  "x is not a range [begin, end)" },
	{ "x of one end", "{" MAMBA ", \"conv\": {\"dtype\": \"bf16\","
	  " \"shape\": [2, 4], \"x\": [0]}, " SSM "}", 96, KVT_BAD_INPUT,
	  "x has 1 entries, expected more" },
	{ "states of one extent", "{" MAMBA ", \"conv\": {\"dtype\": \"bf16\","
	  " \"shape\": [4]}, " SSM "}", 96, KVT_BAD_INPUT,
	  "conv needs a shape of at least 2 extents" },
	{ "conv states without their order", "{\"layout\": \"mamba-page\","
	  " \"page_bytes\": 48, \"sizes\": {\"layers\": 1, \"num_blocks\": 2}, " CONV ", "
	  SSM "}", 96, KVT_BAD_INPUT, "conv_layout is not given" },
	{ "groups that are no objects", "{\"groups\": [3]}", 0, KVT_BAD_INPUT,
	  "groups[0]" },
	{ "a group without a layout", "{\"groups\": [{\"dtype\": \"bf16\"}]}", 0,
	  KVT_BAD_INPUT, "g0 has no layout" },
	{ "33 groups", "{\"groups\": [" GROUP8 GROUP8 GROUP8 GROUP8
	  " {\"layout\": \"nhd\"}]}", 0, KVT_BAD_INPUT, "more than 32 groups" },
	{ "a group without an id", "{\"groups\": [{\"layout\": \"nhd\", \"id\": \"\"}]}",
	  0, KVT_BAD_INPUT, "group id '' has not 1 to" },
	{ "two groups, one of no element type", "{\"groups\": [{" BASE "},"
	  " {\"layout\": \"nhd\", " SIZES "}]}", 2 * BASE_BYTES, KVT_BAD_INPUT,
	  "element type of group g1 is not given" },
	{ "two groups, one of any number of blocks", "{\"groups\": [{" BASE "},"
	  " {\"layout\": \"nhd\", \"dtype\": \"bf16\", \"sizes\": {\"layers\": 3,"
	  " \"block_size\": 16, \"num_kv_heads\": 2, \"head_dim\": 8}}]}",
	  2 * BASE_BYTES, KVT_BAD_INPUT, "block extent of group g1 is not given" },
};

/* All that kvt_open() does with a manifest. */
static enum kvt_status settle(struct kvt_manifest *m, const char *text, size_t n,
			      int64_t nbytes, struct kvt_error *err)
{
	struct kvt_array array = { .name = "data", .nbytes = nbytes };
	enum kvt_status status = kvt_manifest_parse(m, text, n, "m.json", NULL, err);

	if (status)
		return status;
	if ((status = kvt_manifest_fit(m, &array, err)) ||
	    (status = kvt_snapshot_check(&m->snapshot, err)) ||
	    (status = kvt_snapshot_complete(&m->snapshot, err)))
		kvt_manifest_free(m);
	return status;
}

/* ---- round trips -------------------------------------------------------- */

/* The text of a snapshot makes the same snapshot. */
static void same_again(const struct kvt_snapshot *s, int64_t nbytes)
{
	char *text = kvt_manifest_text(s, &(struct kvt_data_file){ .name = "data" });
	struct kvt_manifest m;

	assert_non_null(text);
	ok(settle(&m, text, strlen(text), nbytes, &why));
	same_snapshot(s, &m.snapshot);
	kvt_manifest_free(&m);
	free(text);
}

/* What is read is also written, and read again. */
static void test_parse(void **state)
{
	const struct parse_case *c = *state;
	struct kvt_manifest m;

	expect(settle(&m, c->text, strlen(c->text), c->nbytes, &why), c->status, c->part);
	if (c->status)
		return;
	same_again(&m.snapshot, c->nbytes);
	kvt_manifest_free(&m);
}

/* Everything that a snapshot can hold, in two groups. */
static void test_everything(void)
{
	static const uint32_t a[] = { 4, 0, 2 };
	struct kvt_snapshot *s = small_snapshot("hnd", "bf16", false);

	small_group(s, "latent", "mla-cross", "fp32", true);
	for (int g = 0; g < 2; g++) {
		struct kvt_group *group = &s->group[g];

		group->layer_ids = calloc(3, 4);
		group->layer_ids[1] = 7u + (unsigned)g;
		group->block_ids = calloc(5, 8);
		for (unsigned i = 0; i < 5; i++)
			group->block_ids[i] = ((uint64_t)1 << 40) - i * i;
		group->block_valid = calloc(5, 4);
		group->block_valid[3] = 9;
		group->block_names = calloc(5, sizeof(char *));
		for (int i = 0; i < 5; i++)
			group->block_names[i] = strdup(i == 2 ? "\"\\" : "0a1b");
	}
	s->group[0].window = 32;
	s->group[0].total_heads = 8;
	s->group[0].head_start = 4;
	s->group[1].page_bytes = 2048;
	s->group[1].page_offset = 512;
	s->group[1].replication = 4;
	s->group[1].ncomponents = 2;
	s->group[1].component[0] = (struct kvt_component){ "b", 8, 8, 100 };
	s->group[1].component[1] = (struct kvt_component){ "a", 0, 8, 0 };
	add_request(s, "second by name", 40, 3, a);
	s->request[0].token_ids = calloc(2, 4);
	s->request[0].ntoken_ids = 2;
	s->request[0].token_ids[0] = INT32_MIN;
	s->request[0].first_token = 1 << 20 | 5;
	assert_true(kvt_request_add_hole(&s->request[0], 0, 1 << 20 | 6, 1 << 20 | 7));
	assert_true(kvt_request_add_hole(&s->request[0], 0, 1 << 20 | 9, 1 << 20 | 45));
	add_request(s, "a \"quoted\" one", 0, 0, a);
	s->request[1].nblocks[1] = 2;
	s->request[1].blocks[1] = calloc(2, 4);
	s->request[1].blocks[1][1] = 3;
	s->parallel = (struct kvt_parallel){ 4, 2, 3, 1, 5, 4, 2, 1 };
	s->has_parallel = true;
	s->null_block = 4;
	s->model = strdup("model");
	s->note = strdup("two\nlines");
	s->source_format = strdup("hdf5");
	ok(kvt_snapshot_complete(s, &why));
	ok(kvt_snapshot_check(s, &why));
	same_again(s, 3 * 5 * 16 * (2 * 2 * 8 * 2 + 16 * 4));
}

/* Real manifests: what they say is kept, whatever kvtool writes it like. */
static void test_real(void)
{
	static const struct {
		const char *path;
		int64_t nbytes;
	} rows[] = {
		{ "testdata/kv/s260k/paged_bs16/packed_nhd.bf16.json", 491520 },
		{ "testdata/kv/s260k/paged_bs16/aiter_shuffle.bf16.json", 491520 },
		{ "testdata/kv/s260k/tp4/rank3.packed_hnd.bf16.json", 122880 },
		{ "testdata/kv/gqa64/paged_bs16/rocm_x.bf16.json", 393216 },
		{ "testdata/kv/mla144/paged_bs16/mla_blsc.bf16.json", 207360 },
		{ "testdata/kv/mamba2g4/tp1_DS/rank0.json", 336384 },
		{ "testdata/kv/mamba2g4/tp4_DS/rank3.json", 84096 },
		{ "testdata/kv/mamba2g4/tp2_SD/rank1.json", 168192 },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_manifest m;
		size_t n;
		char *text = (char *)read_file(rows[i].path, &n);

		ok(settle(&m, text, n, rows[i].nbytes, &why));
		same_again(&m.snapshot, rows[i].nbytes);
		kvt_manifest_free(&m);
	}
}

/* Field by field, from the sidecar read by eye. */
static void test_real_fields(void)
{
	const struct kvt_group *conv, *ssm;
	struct kvt_manifest m;
	size_t n;
	char *text = (char *)read_file("testdata/kv/mamba2g4/tp4_DS/rank3.json", &n);

	ok(settle(&m, text, n, 84096, &why));
	conv = &m.snapshot.group[0];
	ssm = &m.snapshot.group[1];
	assert_int_equal(m.snapshot.parallel.tp_size, 4);
	assert_int_equal(m.snapshot.parallel.tp_rank, 3);
	assert_string_equal(conv->id, "conv");
	assert_int_equal(conv->kind, KVT_MAMBA_CONV);
	assert_int_equal(conv->shape.n[NS], 3);
	assert_int_equal(conv->shape.n[ND], 96);
	assert_string_equal(kvt_layout_string(&conv->layout).s, "LBDS");
	assert_int_equal(conv->page_bytes, 4672);
	assert_int_equal(conv->page_offset, 0);
	assert_int_equal(conv->ncomponents, 3);
	assert_string_equal(conv->component[1].name, "B");
	assert_int_equal(conv->component[1].start, 64);
	assert_int_equal(conv->component[1].length, 16);
	assert_int_equal(conv->component[1].global_start, 304);
	assert_int_equal(conv->block_size, 64);
	assert_int_equal(conv->tokens_per_slot, -1);
	assert_string_equal(ssm->dtype->name, "float32");
	assert_int_equal(ssm->shape.n[NH], 2);
	assert_int_equal(ssm->shape.n[ND], 512);
	assert_int_equal(ssm->head_start, 6);
	assert_int_equal(ssm->total_heads, 8);
	assert_int_equal(ssm->page_offset, 576);
	assert_int_equal(m.snapshot.nrequests, 2);
	assert_int_equal(m.snapshot.request[0].ntokens, 133);
	assert_int_equal(m.snapshot.request[0].nblocks[1], 3);
	assert_int_equal(m.snapshot.request[0].blocks[0][1], 5);
	kvt_manifest_free(&m);
}

/* ---- damage ------------------------------------------------------------- */

static void test_truncated(void)
{
	size_t n;
	char *text =
		(char *)read_file("testdata/kv/s260k/tp4/rank3.packed_hnd.bf16.json", &n);
	struct kvt_manifest m;

	while (n && text[n - 1] != '}')
		n--;
	for (size_t i = 0; i < n; i++) {
		char *copy = room(i + !i);

		memcpy(copy, text, i);
		expect(settle(&m, copy, i, 122880, &why), KVT_BAD_INPUT, NULL);
	}
	ok(settle(&m, text, n, 122880, &why));
	kvt_manifest_free(&m);
}

static void test_deep(void)
{
	char text[4096];
	struct kvt_manifest m;

	for (int depth = 63; depth <= 65; depth++) {
		int n = snprintf(text, sizeof(text), "{" BASE ", \"x\": ");

		/* the object is the first level */
		memset(text + n, '[', (size_t)depth - 1);
		memset(text + n + depth - 1, ']', (size_t)depth - 1);
		strcpy(text + n + 2 * (depth - 1), "}");
		expect(settle(&m, text, strlen(text), BASE_BYTES, &why),
		       depth > 64 ? KVT_BAD_INPUT : KVT_OK, "deeper than 64");
		if (depth <= 64)
			kvt_manifest_free(&m);
	}
	memset(text, '[', sizeof(text));
	expect(settle(&m, text, sizeof(text), 0, &why), KVT_BAD_INPUT, "deeper");
}

TESTS("manifest",
	EACH(cases, test_parse),
	NAMED(test_everything, "everything that a snapshot can hold"),
	NAMED(test_real, "real manifests come back"),
	NAMED(test_real_fields, "a real manifest, field by field"),
	NAMED(test_truncated, "a manifest cut at each byte"),
	NAMED(test_deep, "JSON nested too deep"))
