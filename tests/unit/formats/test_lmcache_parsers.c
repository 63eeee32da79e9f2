/* SPDX-License-Identifier: Apache-2.0 */
/* test_lmcache_parsers.c - names and headers of LMCache, honest and lying */
#include "formats/lmcache/lmcache.h"
#include "tests/unit/formats/made_bytes.h"

/* ---- keys ---------------------------------------------------------------- */

static struct key_case {
	const char *what, *text, *expected;	/* fields; or of the message */
	enum kvt_status status;
} keys[] = {
	{ "a key", "meta-llama-Llama@2@1@ab12@bfloat16",
	  "meta-llama-Llama 2 1 ab12 bfloat16 -1 -1 []", 0 },
	{ "a layer", "m@1@0@ff@half@31", "m 1 0 ff float16 31 -1 []", 0 },
	{ "tags", "m@1@0@ff@fp8_e4m3fn@user%a@x%1",
	  "m 1 0 ff float8_e4m3fn -1 -1 [user%a@x%1]", 0 },
	{ "a layer and tags", "m@1@0@ff@float@0@x%1", "m 1 0 ff float32 0 -1 [x%1]", 0 },
	{ "a tag that begins with a digit", "m@1@0@ff@float@7%b",
	  "m 1 0 ff float32 -1 -1 [7%b]", 0 },
	{ "a negative hash", "m@1@0@-ff@float", "m 1 0 -ff float32 -1 -1 []", 0 },
	{ "percent-encoded", "a%2Fb%401%400%40ff%40uint8", "a/b 1 0 ff uint8 -1 -1 []",
	  0 },
	{ "percent-encoded tags", "a%401%400%40ff%40uint8%40x%251",
	  "a 1 0 ff uint8 -1 -1 [x%1]", 0 },
	{ "of an L2 adapter", "org-SEP-model@0x04020402@1f@00ab",
	  "org/model 4 2 00ab - -1 31 []", 0 },
	{ "with a salt", "m@0x01000100@0@00ab@salt", "m 1 0 00ab - -1 0 [salt]", 0 },
	{ "of S3", "org/model@04020402@1f@00ab@salt",
	  "org/model 4 2 00ab - -1 31 [salt]", 0 },
	{ "of raw_block", "org%2Fm@0x01000100@0@00ab", "org/m 1 0 00ab - -1 0 []", 0 },
	{ "no '@'", "model", "MODEL@WORLD", KVT_BAD_INPUT },
	{ "nothing", "", "MODEL@WORLD", KVT_BAD_INPUT },
	{ "no model", "@1@0@ff@half", "MODEL@WORLD", KVT_BAD_INPUT },
	{ "no dtype", "m@1@0@ff", "dtype", KVT_BAD_INPUT },
	{ "an unknown dtype", "m@1@0@ff@fp7", "'fp7'", KVT_BAD_INPUT },
	{ "a world of none", "m@0@0@ff@half", "worker 0 of 0", KVT_BAD_INPUT },
	{ "a worker too many", "m@2@2@ff@half", "worker 2 of 2", KVT_BAD_INPUT },
	{ "a negative worker", "m@2@-1@ff@half", "worker '-1'", KVT_BAD_INPUT },
	{ "a world beyond 2^31", "m@4294967297@0@ff@half", "world size", KVT_BAD_INPUT },
	{ "no hash", "m@1@0@@half", "hash", KVT_BAD_INPUT },
	{ "a hash that is none", "m@1@0@xyz@half", "hash 'xyz'", KVT_BAD_INPUT },
	{ "a minus alone", "m@1@0@-@half", "hash", KVT_BAD_INPUT },
	{ "a layer beyond 2^31", "m@1@0@ff@half@4294967296", "layer", KVT_BAD_INPUT },
	{ "a layer that is no number", "m@1@0@ff@half@3x", "layer", KVT_BAD_INPUT },
	{ "a tag without a value", "m@1@0@ff@half@x", "NAME%VALUE", KVT_BAD_INPUT },
	{ "an empty tag", "m@1@0@ff@half@", "NAME%VALUE", KVT_BAD_INPUT },
	{ "a cut percent code", "a%2", "percent", KVT_BAD_INPUT },
	{ "an encoded NUL", "a%00%401%400%40ff%40half", "percent", KVT_BAD_INPUT },
	{ "a control character", "m\n@1@0@ff@half", "printable", KVT_BAD_INPUT },
	{ "no UTF-8", "a%ff%401%400%40ff%40half", "UTF-8", KVT_BAD_INPUT },
	{ "an L2 model with a cut code", "m%2@0x01000100@0@00ab", "percent",
	  KVT_BAD_INPUT },
	{ "L2 ranks of 7 digits", "m@0x1000100@0@00ab", "ranks", KVT_BAD_INPUT },
	{ "an L2 world of none", "m@0x00000000@0@00ab", "worker 0 of 0", KVT_BAD_INPUT },
	{ "an L2 key without a hash", "m@0x01000100@0", "hash", KVT_BAD_INPUT },
	{ "an L2 key with more", "m@0x01000100@0@00ab@a@b", "salt", KVT_BAD_INPUT },
};

static void test_key(void **state)
{
	const struct key_case *c = *state;
	struct kvt_lmcache_key key;
	char *text = strdup(c->text), got[256];
	enum kvt_status status = kvt_lmcache_key_parse(&key, text, &why);

	expect(status, c->status, c->expected);
	if (!status) {
		snprintf(got, sizeof(got), "%s %d %d %s %s %d %d [%s]", key.model,
			 (int)key.world, (int)key.worker, key.hash,
			 key.dtype ? key.dtype->name : "-", (int)key.layer,
			 (int)key.group, key.tags);
		assert_string_equal(got, c->expected);
	}
	free(text);
}

static void test_endings(void)
{
	static const struct {
		const char *name;
		int backend;		/* -1: none */
	} rows[] = {
		{ "k.pt", KVT_LMCACHE_DISK },
		{ "k.data", KVT_LMCACHE_FS },
		{ "k.kvcache.safetensors", KVT_LMCACHE_GDS },
		{ "k.weka1", KVT_LMCACHE_GDS },
		{ "k.kvcache.safetensors.metadata", KVT_LMCACHE_TWIN },
		{ "k.weka1.metadata", KVT_LMCACHE_TWIN },
		{ ".pt", -1 },
		{ "k.safetensors", -1 },
		{ "k.metadata", -1 },
		{ "", -1 },
		{ "kpt", -1 },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		enum kvt_lmcache_backend backend;
		size_t stem;
		bool found = kvt_lmcache_backend(&backend, &stem, rows[i].name);

		assert_int_equal(found ? (int)backend : -1, rows[i].backend);
		assert_true(!found || stem == 1);
	}
}

/* ---- LMCache's seven integers -------------------------------------------- */

static struct fs_case {
	const char *what;
	int32_t head[12];		/* of seven or twelve */
	int nhead;
	int64_t more;			/* bytes behind the payload said */
	enum kvt_status status;
	const char *expected;		/* "fmt: type layers tokens width, ..."; "none" */
} fs_cases[] = {
	{ "KV_2LTD", { 192, 1, 3, 2, 3, 4, 4 }, 7, 0, 0, "1: bfloat16 3 4 4" },
	{ "half", { 192, 1, 1, 2, 3, 4, 4 }, 7, 0, 0, "1: float16 3 4 4" },
	{ "KV_T2D behind a 1", { 64, 2, 3, 1, 4, 2, 4 }, 7, 0, 0, "2: bfloat16 1 4 4" },
	{ "KV_T2D before a 0", { 64, 2, 3, 4, 2, 4, 0 }, 7, 0, 0, "2: bfloat16 1 4 4" },
	{ "KV_T2D of one token, behind a 1",
	  { 16, 2, 3, 1, 1, 2, 4 },
	  7,
	  0,
	  0,
	  "2: bfloat16 1 1 4" },
	{ "KV_T2D of one token, before a 0",
	  { 16, 2, 3, 1, 2, 4, 0 },
	  7,
	  0,
	  0,
	  "2: bfloat16 1 1 4" },
	{ "KV_2TD behind a 1", { 64, 3, 3, 1, 2, 4, 4 }, 7, 0, 0, "3: bfloat16 1 4 4" },
	{ "KV_2TD before a 0", { 64, 3, 3, 2, 4, 4, 0 }, 7, 0, 0, "3: bfloat16 1 4 4" },
	{ "MLA", { 96, 6, 3, 1, 3, 4, 4 }, 7, 0, 0, "6: bfloat16 3 4 4" },
	{ "MLA before a 0", { 96, 6, 3, 3, 4, 4, 0 }, 7, 0, 0, "6: bfloat16 3 4 4" },
	{ "two groups",
	  { 192 + 32, 1, 3, 2, 3, 4, 4, 7, 2, 1, 4, 4 },
	  12,
	  0,
	  0,
	  "1: bfloat16 3 4 4, float8_e4m3fn 1 4 4" },
	{ "one byte more", { 192, 1, 3, 2, 3, 4, 4 }, 7, 1, KVT_BAD_INPUT,
	  "192 bytes follow it, but 193 do: the file was extended" },
	{ "one byte less", { 192, 1, 3, 2, 3, 4, 4 }, 7, -1, KVT_BAD_INPUT,
	  "192 bytes follow it, but 191 do: the file was cut" },
	{ "half of two groups", { 192 + 32, 1, 3, 2, 3, 4, 4, 7, 2, 1, 4, 4 }, 12, -112,
	  KVT_BAD_INPUT, "224 bytes follow it, but 112 do: the file was cut" },
	{ "no header, for no shape makes its length", { 191, 1, 3, 2, 3, 4, 4 }, 7, -1, 0,
	  "none" },
	{ "a negative length", { -28, 1, 3, 2, 3, 4, 4 }, 7, 0, 0, "none" },
	{ "a length of 0",
	  { 0, 1, 3, 2, 3, 4, 4 },
	  7,
	  0,
	  KVT_BAD_INPUT,
	  "192 bytes, but 0" },
	{ "shapes of more",
	  { 192, 1, 3, 2, 3, 5, 4 },
	  7,
	  0,
	  KVT_BAD_INPUT,
	  "240 bytes, but 192" },
	{ "extents whose product overflows",
	  { 192, 1, 5, 2, INT32_MAX, INT32_MAX, INT32_MAX },
	  7,
	  0,
	  KVT_BAD_INPUT,
	  "2^63" },
	{ "an extent of 0", { 192, 1, 3, 2, 0, 4, 4 }, 7, 0, KVT_BAD_INPUT, "KV_2LTD" },
	{ "a negative extent",
	  { 192, 1, 3, 2, -3, -4, 4 },
	  7,
	  0,
	  KVT_BAD_INPUT,
	  "KV_2LTD" },
	{ "no keys and values",
	  { 96, 1, 3, 1, 3, 4, 4 },
	  7,
	  0,
	  KVT_BAD_INPUT,
	  "KV_2LTD" },
	{ "four extents of three",
	  { 192, 3, 3, 2, 3, 4, 4 },
	  7,
	  0,
	  KVT_BAD_INPUT,
	  "KV_2TD" },
	{ "nothing but padding", { 0, 3, 3, 0, 0, 0, 0 }, 7, 0, KVT_BAD_INPUT, "KV_2TD" },
	{ "groups of unlike tokens",
	  { 192 + 40, 1, 3, 2, 3, 4, 4, 7, 2, 1, 5, 4 },
	  12,
	  0,
	  KVT_BAD_INPUT,
	  "5 tokens, array 0 has 4" },
	{ "no element type", { 192, 1, 0, 2, 3, 4, 4 }, 7, 0, KVT_BAD_INPUT, "type 0" },
	{ "an element type of later",
	  { 192, 1, 9, 2, 3, 4, 4 },
	  7,
	  0,
	  KVT_UNSUPPORTED,
	  "type 9" },
	{ "a negative element type",
	  { 192, 1, -3, 2, 3, 4, 4 },
	  7,
	  0,
	  KVT_UNSUPPORTED,
	  "type -3" },
	{ "undefined", { 192, 0, 3, 2, 3, 4, 4 }, 7, 0, KVT_UNSUPPORTED, "UNDEFINED" },
	{ "binary", { 192, 4, 3, 192, 0, 0, 0 }, 7, 0, KVT_UNSUPPORTED, "BINARY" },
	{ "a format of later",
	  { 192, 7, 3, 2, 3, 4, 4 },
	  7,
	  0,
	  KVT_UNSUPPORTED,
	  "format 7" },
	{ "a negative format",
	  { 192, -1, 3, 2, 3, 4, 4 },
	  7,
	  0,
	  KVT_UNSUPPORTED,
	  "format -1" },
};

static void describe(char out[256], const struct kvt_lmcache_header *h)
{
	int used = snprintf(out, 256, "%d:", (int)h->fmt);

	for (int i = 0; i < h->narrays; i++)
		used += snprintf(out + used, (size_t)(256 - used), "%s %s %d %d %d",
				 i ? "," : "", h->array[i].dtype->name,
				 (int)h->array[i].layers, (int)h->array[i].tokens,
				 (int)h->array[i].width);
}

static void test_fs(void **state)
{
	const struct fs_case *c = *state;
	struct kvt_lmcache_header h;
	struct bytes b = { .n = 0 };
	char got[256] = "none";
	bool found;

	for (int i = 0; i < c->nhead; i++)
		put(&b, (uint32_t)c->head[i], 4);
	expect(kvt_lmcache_fs_parse(&h, &found, b.s, (int64_t)b.n,
				    (int64_t)b.n + c->head[0] + c->more, "x", &why),
	       c->status, c->expected);
	if (c->status)
		return;
	if (found)
		describe(got, &h);
	assert_string_equal(got, c->expected);
	assert_true(!found || h.data == (int64_t)b.n);
}

/* ---- LMCache's JSON ------------------------------------------------------ */

#define GDS(dtype, shape, offsets, rest) "{\"kvcache\": {\"dtype\": " dtype \
	", \"shape\": " shape ", \"data_offsets\": " offsets rest "}}"
#define V1 ", \"__metadata__\": {\"lmcache_version\": \"1\"}"

static struct gds_case {
	const char *what, *text;
	int64_t payload;
	enum kvt_status status;
	const char *expected;
} gds_cases[] = {
	{ "as LMCache writes it",
	  GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 1" V1), 192, 0,
	  "1: bfloat16 3 4 4" },
	{ "names of its own",
	  GDS("\"F8E4M3FN\"", "[2, 3, 4, 4]", "[0, 96]", ", \"fmt\": 1" V1), 96, 0,
	  "1: float8_e4m3fn 3 4 4" },
	{ "MLA", GDS("\"BF16\"", "[1, 3, 4, 4]", "[0, 96]", ", \"fmt\": 6" V1), 96, 0,
	  "6: bfloat16 3 4 4" },
	{ "a layer", GDS("\"BF16\"", "[2, 4, 4]", "[0, 64]", ", \"fmt\": 3" V1), 64, 0,
	  "3: bfloat16 1 4 4" },
	{ "several arrays",
	  GDS("\"BF16\"", "[112]", "[0, 224]",
	      ", \"fmt\": 1, "
	      "\"shapes\": [[2, 3, 4, 4], [2, 1, 4, 4]], \"dtypes\": [\"BF16\", \"U8\"]" V1),
	  224, 0, "1: bfloat16 3 4 4, uint8 1 4 4" },
	{ "one byte more", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 1" V1),
	  193, KVT_BAD_INPUT, "193 bytes follow" },
	{ "one byte less", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 1" V1),
	  191, KVT_BAD_INPUT, "191 bytes follow" },
	{ "an end that is not the shape's",
	  GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 191]", ", \"fmt\": 1" V1), 191,
	  KVT_BAD_INPUT, "192 bytes, but 191" },
	{ "a begin that is not 0",
	  GDS("\"BF16\"", "[2, 3, 4, 4]", "[1, 193]", ", \"fmt\": 1" V1), 193,
	  KVT_BAD_INPUT, "data_offsets" },
	{ "three offsets",
	  GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 1, 2]", ", \"fmt\": 1" V1), 192,
	  KVT_BAD_INPUT, "3 numbers" },
	{ "a negative extent",
	  GDS("\"BF16\"", "[2, -3, 4, 4]", "[0, 192]", ", \"fmt\": 1" V1), 192,
	  KVT_BAD_INPUT, "shape is -3" },
	{ "an extent of 0", GDS("\"BF16\"", "[2, 0, 4, 4]", "[0, 0]", ", \"fmt\": 1" V1),
	  0, KVT_BAD_INPUT, "KV_2LTD" },
	{ "a product that overflows",
	  GDS("\"BF16\"", "[2, 4294967296, 4294967296, 4294967296]", "[0, 192]",
	      ", \"fmt\": 1" V1),
	  192, KVT_BAD_INPUT, "2^63" },
	{ "five extents",
	  GDS("\"BF16\"", "[2, 3, 4, 2, 2]", "[0, 192]", ", \"fmt\": 1" V1), 192,
	  KVT_BAD_INPUT, "5 extents" },
	{ "no shape",
	  "{\"kvcache\": {\"dtype\": \"BF16\", \"data_offsets\": [0, 192], \"fmt\": 1" V1
	  "}}",
	  192, KVT_BAD_INPUT, "0 extents" },
	{ "an unknown type", GDS("\"F7\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 1" V1),
	  192, KVT_UNSUPPORTED, "'F7'" },
	{ "no format", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", V1), 192,
	  KVT_BAD_INPUT, "fmt is missing" },
	{ "an unknown format",
	  GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 8" V1), 192,
	  KVT_UNSUPPORTED, "format 8" },
	{ "a version of later",
	  GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]",
	      ", \"fmt\": 1, \"__metadata__\": {\"lmcache_version\": \"2\"}"),
	  192, KVT_UNSUPPORTED, "'2'" },
	{ "no version", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 1"), 192,
	  KVT_BAD_INPUT, "missing" },
	{ "shapes without dtypes",
	  GDS("\"BF16\"", "[112]", "[0, 192]",
	      ", \"fmt\": 1, \"shapes\": [[2, 3, 4, 4]]" V1),
	  192, KVT_BAD_INPUT, "1 shapes and 0" },
	{ "shapes that are numbers",
	  GDS("\"BF16\"", "[112]", "[0, 192]",
	      ", \"fmt\": 1, \"shapes\": [2], \"dtypes\": [\"BF16\"]" V1),
	  192, KVT_BAD_INPUT, "shapes[0]" },
	{ "another tensor", "{\"kvcache\": {}, \"x\": {}}", 0, KVT_BAD_INPUT,
	  "nothing else" },
	{ "a key twice", "{\"kvcache\": {}, \"kvcache\": {}}", 0, KVT_BAD_INPUT,
	  "uplicate" },
	{ "no JSON", "kvcache", 0, KVT_BAD_INPUT, NULL },
};

static void make_gds(struct bytes *b, const char *text)
{
	*b = (struct bytes){ .n = 0 };
	put(b, KVT_LMCACHE_GDS_HEADER - 8, 8);
	put_text(b, text);
	memset(b->s + b->n, ' ', KVT_LMCACHE_GDS_HEADER - b->n);
	b->n = KVT_LMCACHE_GDS_HEADER;
}

static void test_gds(void **state)
{
	const struct gds_case *c = *state;
	struct kvt_lmcache_header h;
	struct bytes b;
	char got[256];

	make_gds(&b, c->text);
	expect(kvt_lmcache_gds_parse(&h, b.s, (int64_t)b.n, (int64_t)b.n + c->payload,
				     "x", &why), c->status, c->expected);
	if (c->status)
		return;
	describe(got, &h);
	assert_string_equal(got, c->expected);
	assert_true(kvt_lmcache_is_gds(b.s, (int64_t)b.n));
}

/* ---- at every byte ------------------------------------------------------- */

static enum kvt_status parse_fs(const uint8_t *s, int64_t n, struct kvt_error *err)
{
	struct kvt_lmcache_header h;
	enum kvt_status status;
	bool found;

	status = kvt_lmcache_fs_parse(&h, &found, s, n < KVT_LMCACHE_FS_HEADER ? n :
				      KVT_LMCACHE_FS_HEADER, n, "x", err);
	return status || found ? status : kvt_fail(err, KVT_BAD_INPUT, "no header");
}

static void make_fs(struct bytes *b)
{
	static const uint32_t head[] = { 192, 1, 3, 2, 3, 4, 4 };

	*b = (struct bytes){ .n = 0 };
	for (int i = 0; i < 7; i++)
		put(b, head[i], 4);
	put_zeros(b, 192);
}

static enum kvt_status parse_gds(const uint8_t *s, int64_t n, struct kvt_error *err)
{
	struct kvt_lmcache_header h;

	return kvt_lmcache_gds_parse(&h, s, n, n, "x", err);
}

static void make_whole_gds(struct bytes *b)
{
	make_gds(b, gds_cases[0].text);
	put_zeros(b, 192);
}

static struct kind kinds[] = {
	{ "a header of the FS connector", make_fs, parse_fs, false },
	{ "a header of GDS", make_whole_gds, parse_gds, false },
};

TESTS("parsers of LMCache",
	EACH(keys, test_key), EACH(fs_cases, test_fs), EACH(gds_cases, test_gds),
	EACH(kinds, test_cut), EACH(kinds, test_changed),
	NAMED(test_endings, "endings"))
