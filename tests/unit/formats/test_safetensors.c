/* SPDX-License-Identifier: Apache-2.0 */
/* test_safetensors.c - headers, honest and lying, and dumps as safetensors */
#include "formats/tensor/safetensors_header.h"
#include "tests/unit/fixture.h"

/* ---- headers ------------------------------------------------------------ */

#define T(name, type, shape, begin, end) \
	"\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape \
	",\"data_offsets\":[" #begin "," #end "]}"

static struct header_case {
	const char *what, *json;
	int64_t ndata;
	enum kvt_status status;
	const char *part;
} headers[] = {
	{ "one tensor", "{" T("a", "BF16", "[2,3]", 0, 12) "}", 12, KVT_OK, NULL },
	{ "two, not in order", "{" T("b", "F32", "[2]", 6, 14) "," T("a", "U8", "[6]",
	  0, 6) "}",
	  14, KVT_OK, NULL },
	{ "padded with blanks", "{" T("a", "BF16", "[2,3]", 0, 12) "}   ", 12, KVT_OK,
	  NULL },
	{ "a single element", "{" T("a", "F64", "[]", 0, 8) "}", 8, KVT_OK, NULL },
	{ "an empty tensor", "{" T("a", "F64", "[0,7]", 0, 0) "," T("b", "U8", "[1]", 0,
	  1) "}",
	  1, KVT_OK, NULL },
	{ "no tensor", "{}", 0, KVT_OK, NULL },
	{ "metadata", "{\"__metadata__\":{\"a\":\"b\"}," T("a", "U8", "[1]", 0, 1) "}", 1,
	  KVT_OK, NULL },
	{ "unknown keys in an entry",
	  "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"fmt\":1}}", 1,
	  KVT_OK, NULL },
	{ "four-bit elements", "{" T("a", "F4", "[3,2]", 0, 3) "}", 3, KVT_OK, NULL },
	{ "four-bit elements that fill no byte", "{" T("a", "F4", "[3]", 0, 1) "}", 1,
	  KVT_BAD_INPUT, "a part" },
	{ "an unknown type", "{" T("a", "F128", "[1]", 0, 16) "}", 16, KVT_UNSUPPORTED,
	  "F128" },
	{ "no data for an empty header", "{}", 1, KVT_BAD_INPUT, "1 bytes of data" },
	{ "a hole at the start", "{" T("a", "U8", "[1]", 1, 2) "}", 2, KVT_BAD_INPUT,
	  "begins at byte 1" },
	{ "a hole between", "{" T("a", "U8", "[1]", 0, 1) "," T("b", "U8", "[1]", 2,
	  3) "}",
	  3, KVT_BAD_INPUT, "expected 1" },
	{ "an overlap", "{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 1, 3) "}",
	  3,
	  KVT_BAD_INPUT, "expected 2" },
	{ "bytes behind the last", "{" T("a", "U8", "[1]", 0, 1) "}", 2, KVT_BAD_INPUT,
	  "2 bytes of data" },
	{ "data that end too soon", "{" T("a", "U8", "[2]", 0, 2) "}", 1, KVT_BAD_INPUT,
	  "expected 0 to 1" },
	{ "an end before the beginning", "{" T("a", "U8", "[1]", 1, 0) "}", 1,
	  KVT_BAD_INPUT,
	  "expected 1 to 1" },
	{ "a negative beginning", "{" T("a", "U8", "[1]", -1, 0) "}", 1, KVT_BAD_INPUT,
	  "is -1" },
	{ "a shape of another size", "{" T("a", "U8", "[3]", 0, 2) "}", 2, KVT_BAD_INPUT,
	  "make 3" },
	{ "a negative extent", "{" T("a", "U8", "[-2]", 0, 2) "}", 2, KVT_BAD_INPUT,
	  "is -2" },
	{ "a product that overflows",
	  "{" T("a", "U8", "[4294967296,4294967296]", 0, 0) "}", 0, KVT_BAD_INPUT,
	  "or more" },
	{ "a product that a 0 would hide",
	  "{" T("a", "U8", "[4294967296,4294967296,0]", 0, 0) "}", 0, KVT_BAD_INPUT,
	  "or more" },
	{ "more than 32 axes",
	  "{" T("a", "U8",
	  "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
		0, 1) "}", 1, KVT_BAD_INPUT, "32 axes" },
	{ "no type", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, KVT_UNSUPPORTED,
	  "(none)" },
	{ "no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1,
	  KVT_BAD_INPUT,
	  "no shape" },
	{ "no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, KVT_BAD_INPUT,
	  "data_offsets" },
	{ "one offset", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}",
	  1,
	  KVT_BAD_INPUT, "data_offsets" },
	{ "three offsets",
	  "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}",
	  1, KVT_BAD_INPUT, "expected 2" },
	{ "a name twice", "{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 1,
	  2) "}", 2,
	  KVT_BAD_INPUT, "duplicate" },
	{ "a tensor that is a number", "{\"a\":3}", 0, KVT_BAD_INPUT, "no tensor" },
	{ "a name that is empty", "{" T("", "U8", "[1]", 0, 1) "}", 1, KVT_BAD_INPUT,
	  "no tensor" },
	{ "metadata that is no object", "{\"__metadata__\":3}", 0, KVT_BAD_INPUT,
	  "__metadata__" },
	{ "metadata that is no text", "{\"__metadata__\":{\"a\":3}}", 0, KVT_BAD_INPUT,
	  "not a string" },
	{ "blanks before the brace", " {}", 0, KVT_BAD_INPUT, "begin with {" },
	{ "an array", "[]", 0, KVT_BAD_INPUT, "begin with {" },
	{ "text behind the object", "{}x", 0, KVT_BAD_INPUT, NULL },
	{ "text that is no UTF-8", "{\"\xff\":{}}", 0, KVT_BAD_INPUT, NULL },
};

static void test_header(void **state)
{
	const struct header_case *c = *state;
	struct kvt_tensors tensors;

	expect(kvt_tensors_parse(&tensors, c->json, (int64_t)strlen(c->json), c->ndata,
				 "x", &why), c->status, c->part);
	if (!c->status)
		kvt_tensors_free(&tensors);
}

static void put_length(uint8_t *bytes, uint64_t n)
{
	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(n >> 8 * i);
}

/* A length field against a file of 200 bytes. */
static void test_lengths(void **state)
{
	static const uint64_t lengths[] = {
		0, 1, 193, 200, 100000000, 100000001, (uint64_t)1 << 63, UINT64_MAX,
		UINT64_MAX - 7,
	};
	struct path p = join(*state, "a.safetensors");
	struct kvt_dump *reader;
	uint8_t bytes[200];

	for (size_t i = 0; i < LENGTH(lengths); i++) {
		memset(bytes, ' ', sizeof(bytes));
		put_length(bytes, lengths[i]);
		memcpy(bytes + 8, "{\"a\":{}}", 8);
		write_file(p.s, bytes, sizeof(bytes));
		expect(kvt_open(&reader, p.s, NULL, &why), KVT_BAD_INPUT,
		       "a.safetensors");
	}
}

/* Whole files cut and extended. */
static void test_cut(void **state)
{
	struct path p = join(*state, "a.safetensors");
	struct kvt_dump *reader;
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	uint8_t *bytes;
	size_t n, nhead;

	ok(sample_write(p.s, s, NULL, &why));
	bytes = read_file(p.s, &n);
	nhead = 8 + bytes[0] + 256 * (size_t)bytes[1];
	assert_int_equal(nhead % 8, 0);
	for (size_t i = 0; i <= nhead; i++) {
		write_file(p.s, bytes, i);
		expect(kvt_open(&reader, p.s, NULL, &why), KVT_BAD_INPUT, NULL);
	}
	write_file(p.s, bytes, n - 1);
	expect(kvt_open(&reader, p.s, NULL, &why), KVT_BAD_INPUT, NULL);
	write_file(p.s, bytes, n + 1);
	expect(kvt_open(&reader, p.s, NULL, &why), KVT_BAD_INPUT, NULL);
	write_file(p.s, bytes, n);
	reader = open_dump(p.s);
}

/* ---- dumps -------------------------------------------------------------- */

static struct dump_case {
	const char *what, *layout, *dtype;
	bool latent, second;
} dumps[] = {
	{ "one tensor", "nhd", "bf16", false, false },
	{ "layers inside blocks", "bhlsc", "fp8_e5m2", false, false },
	{ "planes apart: two tensors", "sglang-pool", "bf16", false, false },
	{ "planes apart, heads first", "flashinfer-pair-hnd", "fp32", false, false },
	{ "latent", "mla", "fp16", true, false },
	{ "two groups of unlike types", "hnd", "bf16", false, true },
	{ "two groups, one in two tensors", "sglang-pool", "fp32", false, true },
};

static void test_dump(void **state)
{
	const struct dump_case *c = *state;
	struct kvt_dump *reader;
	struct kvt_snapshot *s = small_snapshot(c->layout, c->dtype, c->latent);
	const char *folder = new_folder();
	struct path p = join(folder, "a.safetensors");

	if (c->second) {
		small_group(s, "other", "mla-cross", "fp16", true);
		s->group[1].page_bytes = 4096;	/* in the engine, not in the file */
	}
	s->source_format = strdup("x");
	ok(kvt_snapshot_complete(s, &why));
	ok(sample_write(p.s, s, NULL, &why));
	assert_int_equal(count_entries(folder), 1);
	reader = open_dump(p.s);
	same_snapshot(s, kvt_dump_snapshot(reader));
	check_dump(reader);
}

/* ---- files of others ---------------------------------------------------- */

/* Layers (or their keys and values) as separate, each from 'layout'. */
struct tensor_of {
	const char *name;
	int64_t layer;
	int k;				/* -1: both */
};

static void write_layers(const char *path, const char *layout, int n,
			 const struct tensor_of *of)
{
	struct kvt_tensor tensor[16] = { { 0 } };
	struct kvt_tensors tensors = { .count = n, .tensor = tensor };
	struct kvt_snapshot *s = small_snapshot(layout, "bf16", false);
	uint8_t *bytes = zeros(1 << 17);
	int64_t at = 0, nhead;
	char *head;

	for (int i = 0; i < n; i++) {
		const int64_t both[] = { 5, 16, 2, 2, 8 }, one[] = { 5, 16, 2, 8 };
		struct kvt_box box = { .end = { 0, 5, 16, 2, 2, 8 } };

		box.begin[NL] = of[i].layer;
		box.end[NL] = of[i].layer + 1;
		if (of[i].k >= 0) {
			box.begin[NK] = of[i].k;
			box.end[NK] = of[i].k + 1;
		}
		tensor[i] = (struct kvt_tensor){.name = (char *)(uintptr_t)of[i].name,
						.rank = of[i].k < 0 ? 5 : 4,
						.begin = at};
		strcpy(tensor[i].type, "BF16");
		memcpy(tensor[i].shape, of[i].k < 0 ? both : one, of[i].k < 0 ? 40 : 32);
		sample_box(bytes + 4096 + at, &s->group[0], 0, &box, false);
		at += box_bytes(&s->group[0], &box);
		tensor[i].end = at;
	}
	ok(kvt_tensors_print(&head, &nhead, &tensors, NULL, &why));
	assert_true(nhead < 4096);
	memcpy(bytes + 4096 - nhead, head, (size_t)nhead);
	write_file(path, bytes + 4096 - nhead, (size_t)(nhead + at));
	free(head);
}

static struct layers_case {
	const char *what;
	struct tensor_of of[6];
	struct kvt_hints hints;
	enum kvt_status status;
	const char *part;
} layers[] = {
	{ "a tensor for each layer, not in order",
	  { { "layers.10.kv", 1, -1 }, { "layers.9.kv", 0, -1 }, { "layers.11.kv", 2,
	    -1 } },
	  { .layout = "nhd" }, KVT_OK, NULL },
	{ "nothing but shapes",
	  { { "layers.0.kv", 0, -1 }, { "layers.1.kv", 1, -1 } }, { 0 }, KVT_BAD_INPUT,
	  "could be nhd" },
	{ "layers that are not outermost in the layout",
	  { { "layers.0.kv", 0, -1 }, { "layers.1.kv", 1, -1 } }, { .layout = "blshc" },
	  KVT_BAD_INPUT, "not outermost" },
	{ "a gap, as of a layer that keeps nothing",
	  { { "layers.0.kv", 0, -1 }, { "layers.2.kv", 1, -1 } }, { .layout = "nhd" },
	  KVT_OK, NULL },
	{ "a layer twice",
	  { { "layers.1.kv", 0, -1 }, { "layers.01.kv", 1, -1 } }, { .layout = "nhd" },
	  KVT_BAD_INPUT, "both layer 1" },
	{ "a name without a number",
	  { { "layers.1.kv", 0, -1 }, { "kv", 1, -1 } }, { .layout = "nhd" },
	    KVT_BAD_INPUT,
	  "'kv'" },
	{ "a name with two numbers, of which one is the same",
	  { { "a.1.2", 0, -1 }, { "a.1.3", 1, -1 } }, { .layout = "nhd" }, KVT_OK, NULL },
	{ "keys and values for each layer",
	  { { "layers.0.k", 0, 0 }, { "layers.0.v", 0, 1 }, { "layers.1.k", 1, 0 },
	    { "layers.1.v", 1, 1 }, { "layers.2.v", 2, 1 }, { "layers.2.k", 2, 0 } },
	  { .layout = "sglang-pool", .block_size = 16, .heads = 2, .head_dim = 8 },
	    KVT_OK,
	  NULL },
	{ "in a layout that has them together",
	  { { "layers.0.k", 0, 0 }, { "layers.0.v", 0, 1 }, { "layers.1.k", 1, 0 },
	    { "layers.1.v", 1, 1 } },
	  { .layout = "nhd", .block_size = 16, .heads = 2, .head_dim = 8 }, KVT_BAD_INPUT,
	  "has them together" },
	{ "values missing",
	  { { "layers.0.k", 0, 0 }, { "layers.0.v", 0, 1 }, { "layers.1.k", 1, 0 } },
	  { .layout = "sglang-pool", .block_size = 16, .heads = 2, .head_dim = 8 },
	  KVT_BAD_INPUT, "has layers.1.k but no layers.1.v" },
	{ "a tensor beside a pair",
	  { { "k", 0, 0 }, { "v", 0, 1 }, { "x", 1, 0 } },
	  { .layout = "sglang-pool", .block_size = 16, .heads = 2, .head_dim = 8 },
	  KVT_BAD_INPUT, "not 1 pairs" },
};

static void test_layers(void **state)
{
	const struct layers_case *c = *state;
	struct kvt_dump *reader;
	struct path p = join(new_folder(), "a.safetensors");
	int n = 0;

	while (n < 6 && c->of[n].name)
		n++;
	write_layers(p.s, c->of[0].k < 0 ? "nhd" : "sglang-pool", n, c->of);
	expect(kvt_open(&reader, p.s, &c->hints, &why), c->status, c->part);
	if (!c->status)
		check_dump(keep_dump(reader));
}

/* Real files with a manifest beside them: data begin behind 88 bytes. */
static void test_real(void)
{
	static const char *const paths[] = {
		"testdata/kv/s260k/tp2/rank1.packed_nhd.bf16.safetensors",
		"testdata/kv/s260k/tp4/rank3.packed_hnd.bf16.safetensors",
	};

	for (int i = 0; i < 2; i++) {
		const struct kvt_group *g;
		struct kvt_dump *reader;
		struct kvt_box box;
		uint8_t *bytes, *buf;
		size_t n;

		reader = open_dump(paths[i]);
		bytes = read_file(paths[i], &n);
		g = &kvt_dump_snapshot(reader)->group[0];
		assert_int_equal(g->head_start, i ? 3 : 2);
		assert_int_equal(g->total_heads, 4);
		box = kvt_box_whole(&g->shape);
		buf = room(n);
		ok(kvt_dump_read(reader, 0, &box, NULL, buf, &why));
		assert_int_equal(n - 88, box_bytes(g, &box));
		assert_memory_equal(buf, bytes + 88, n - 88);
	}
}

TESTS("safetensors",
	EACH(headers, test_header), EACH(dumps, test_dump), EACH(layers, test_layers),
	NAMED_IN_FOLDER(test_lengths, "lengths that lie"),
	NAMED_IN_FOLDER(test_cut, "files cut at each byte of the header"),
	NAMED(test_real, "real files"))
