/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_store_parsers.c - headers, keys and messages of LMCache and Mooncake,
 * honest and lying
 *
 * Each kind of bytes is made here from its description, cut at every byte, made
 * longer, changed at every byte, and given every lie about a length.
 */
#include "formats/crc32c.h"
#include "formats/lmcache_header.h"
#include "formats/lmcache_key.h"
#include "formats/mooncake_store.h"
#include "formats/mooncake_tensor.h"
#include "tests/unit/formats/dump_fixture.h"

/* ---- bytes as they lie ---------------------------------------------------- */

struct bytes {
	uint8_t s[8192];
	size_t n;
};

static void put(struct bytes *b, uint64_t value, int nbytes)
{
	assert_true(b->n + 8 <= sizeof(b->s));
	for (int i = 0; i < nbytes; i++)
		b->s[b->n++] = (uint8_t)(value >> 8 * i);
}

static void put_text(struct bytes *b, const char *text)
{
	assert_true(b->n + strlen(text) <= sizeof(b->s));
	memcpy(b->s + b->n, text, strlen(text));
	b->n += strlen(text);
}

static void put_zeros(struct bytes *b, size_t n)
{
	assert_true(b->n + n <= sizeof(b->s));
	memset(b->s + b->n, 0, n);
	b->n += n;
}

static void put_varint(struct bytes *b, uint64_t value)
{
	for (; value > 127; value >>= 7)
		put(b, (value & 127) | 128, 1);
	put(b, value, 1);
}

static void put_number(struct bytes *b, int field, uint64_t value)
{
	put_varint(b, (uint64_t)field << 3);
	put_varint(b, value);
}

static void put_field(struct bytes *b, int field, const void *bytes, size_t n)
{
	put_varint(b, (uint64_t)field << 3 | 2);
	put_varint(b, n);
	assert_true(b->n + n <= sizeof(b->s));
	memcpy(b->s + b->n, bytes, n);
	b->n += n;
}

/* ---- keys ------------------------------------------------------------------ */

static struct key_case {
	const char *what, *text, *expected;	/* fields; or of the message */
	enum kvt_status status;
} keys[] = {
	{ "a key", "meta-llama-Llama@2@1@ab12@bfloat16",
	  "meta-llama-Llama 2 1 ab12 bfloat16 -1 -1 []", 0 },
	{ "a layer", "m@1@0@ff@half@31", "m 1 0 ff float16 31 -1 []", 0 },
	{ "tags", "m@1@0@ff@fp8_e4m3fn@user%a@x%1", "m 1 0 ff float8_e4m3fn -1 -1 [user%a@x%1]",
	  0 },
	{ "a layer and tags", "m@1@0@ff@float@0@x%1", "m 1 0 ff float32 0 -1 [x%1]", 0 },
	{ "a tag that begins with a digit", "m@1@0@ff@float@7%b", "m 1 0 ff float32 -1 -1 [7%b]",
	  0 },
	{ "a negative hash", "m@1@0@-ff@float", "m 1 0 -ff float32 -1 -1 []", 0 },
	{ "percent-encoded", "a%2Fb%401%400%40ff%40uint8", "a/b 1 0 ff uint8 -1 -1 []", 0 },
	{ "percent-encoded tags", "a%401%400%40ff%40uint8%40x%251", "a 1 0 ff uint8 -1 -1 [x%1]",
	  0 },
	{ "of an L2 adapter", "org-SEP-model@0x04020402@1f@00ab", "org/model 4 2 00ab - -1 31 []",
	  0 },
	{ "with a salt", "m@0x01000100@0@00ab@salt", "m 1 0 00ab - -1 0 [salt]", 0 },
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
	{ "L2 ranks of 7 digits", "m@0x1000100@0@00ab", "ranks", KVT_BAD_INPUT },
	{ "an L2 world of none", "m@0x00000000@0@00ab", "worker 0 of 0", KVT_BAD_INPUT },
	{ "an L2 key without a hash", "m@0x01000100@0", "hash", KVT_BAD_INPUT },
	{ "an L2 key with more", "m@0x01000100@0@00ab@a@b", "salt", KVT_BAD_INPUT },
};
enum { NKEYS = sizeof(keys) / sizeof(keys[0]) };

static void test_key(void **state)
{
	const struct key_case *c = *state;
	struct kvt_lmcache_key key;
	struct kvt_error err = { "" };
	char *text = strdup(c->text), got[256];
	enum kvt_status status = kvt_lmcache_key_parse(&key, text, &err);

	expect(status, c->status, &err, c->expected);
	if (!status) {
		snprintf(got, sizeof(got), "%s %d %d %s %s %d %d [%s]", key.model,
			 (int)key.world, (int)key.worker, key.hash,
			 key.dtype ? key.dtype->name : "-", (int)key.layer, (int)key.group,
			 key.tags);
		assert_string_equal(got, c->expected);
	}
	free(text);
}

static void test_endings(void **state)
{
	static const struct {
		const char *name;
		int backend;		/* -1: none */
	} rows[] = {
		{ "k.pt", KVT_LMCACHE_DISK }, { "k.data", KVT_LMCACHE_FS },
		{ "k.kvcache.safetensors", KVT_LMCACHE_GDS }, { "k.weka1", KVT_LMCACHE_GDS },
		{ "k.kvcache.safetensors.metadata", KVT_LMCACHE_TWIN },
		{ "k.weka1.metadata", KVT_LMCACHE_TWIN },
		{ ".pt", -1 }, { "k.safetensors", -1 }, { "k.metadata", -1 }, { "", -1 },
		{ "kpt", -1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		enum kvt_lmcache_backend backend;
		size_t stem;
		bool found = kvt_lmcache_backend(&backend, &stem, rows[i].name);

		assert_int_equal(found ? (int)backend : -1, rows[i].backend);
		assert_true(!found || stem == 1);
	}
}

/* ---- LMCache's seven integers ------------------------------------------------ */

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
	{ "KV_T2D of one token, behind a 1", { 16, 2, 3, 1, 1, 2, 4 }, 7, 0, 0,
	  "2: bfloat16 1 1 4" },
	{ "KV_T2D of one token, before a 0", { 16, 2, 3, 1, 2, 4, 0 }, 7, 0, 0,
	  "2: bfloat16 1 1 4" },
	{ "KV_2TD behind a 1", { 64, 3, 3, 1, 2, 4, 4 }, 7, 0, 0, "3: bfloat16 1 4 4" },
	{ "KV_2TD before a 0", { 64, 3, 3, 2, 4, 4, 0 }, 7, 0, 0, "3: bfloat16 1 4 4" },
	{ "MLA", { 96, 6, 3, 1, 3, 4, 4 }, 7, 0, 0, "6: bfloat16 3 4 4" },
	{ "MLA before a 0", { 96, 6, 3, 3, 4, 4, 0 }, 7, 0, 0, "6: bfloat16 3 4 4" },
	{ "two groups", { 192 + 32, 1, 3, 2, 3, 4, 4, 7, 2, 1, 4, 4 }, 12, 0, 0,
	  "1: bfloat16 3 4 4, float8_e4m3fn 1 4 4" },
	{ "one byte more", { 192, 1, 3, 2, 3, 4, 4 }, 7, 1, 0, "none" },
	{ "one byte less", { 192, 1, 3, 2, 3, 4, 4 }, 7, -1, 0, "none" },
	{ "a negative length", { -28, 1, 3, 2, 3, 4, 4 }, 7, 0, 0, "none" },
	{ "a length of 0", { 0, 1, 3, 2, 3, 4, 4 }, 7, 0, KVT_BAD_INPUT, "192 bytes, but 0" },
	{ "shapes of more", { 192, 1, 3, 2, 3, 5, 4 }, 7, 0, KVT_BAD_INPUT,
	  "240 bytes, but 192" },
	{ "extents whose product overflows",
	  { 192, 1, 5, 2, INT32_MAX, INT32_MAX, INT32_MAX }, 7, 0, KVT_BAD_INPUT, "2^63" },
	{ "an extent of 0", { 192, 1, 3, 2, 0, 4, 4 }, 7, 0, KVT_BAD_INPUT, "KV_2LTD" },
	{ "a negative extent", { 192, 1, 3, 2, -3, -4, 4 }, 7, 0, KVT_BAD_INPUT, "KV_2LTD" },
	{ "no keys and values", { 96, 1, 3, 1, 3, 4, 4 }, 7, 0, KVT_BAD_INPUT, "KV_2LTD" },
	{ "four extents of three", { 192, 3, 3, 2, 3, 4, 4 }, 7, 0, KVT_BAD_INPUT, "KV_2TD" },
	{ "nothing but padding", { 0, 3, 3, 0, 0, 0, 0 }, 7, 0, KVT_BAD_INPUT, "KV_2TD" },
	{ "groups of unlike tokens", { 192 + 40, 1, 3, 2, 3, 4, 4, 7, 2, 1, 5, 4 }, 12, 0,
	  KVT_BAD_INPUT, "5 tokens, array 0 has 4" },
	{ "no element type", { 192, 1, 0, 2, 3, 4, 4 }, 7, 0, KVT_BAD_INPUT, "type 0" },
	{ "an element type of later", { 192, 1, 9, 2, 3, 4, 4 }, 7, 0, KVT_UNSUPPORTED,
	  "type 9" },
	{ "a negative element type", { 192, 1, -3, 2, 3, 4, 4 }, 7, 0, KVT_UNSUPPORTED,
	  "type -3" },
	{ "undefined", { 192, 0, 3, 2, 3, 4, 4 }, 7, 0, KVT_UNSUPPORTED, "UNDEFINED" },
	{ "binary", { 192, 4, 3, 192, 0, 0, 0 }, 7, 0, KVT_UNSUPPORTED, "BINARY" },
	{ "a format of later", { 192, 7, 3, 2, 3, 4, 4 }, 7, 0, KVT_UNSUPPORTED, "format 7" },
	{ "a negative format", { 192, -1, 3, 2, 3, 4, 4 }, 7, 0, KVT_UNSUPPORTED,
	  "format -1" },
};
enum { NFS = sizeof(fs_cases) / sizeof(fs_cases[0]) };

static void describe(char out[256], const struct kvt_lmcache_header *h)
{
	int used = snprintf(out, 256, "%d:", (int)h->fmt);

	for (int i = 0; i < h->narrays; i++)
		used += snprintf(out + used, (size_t)(256 - used), "%s %s %d %d %d", i ? "," : "",
				 h->array[i].dtype->name, (int)h->array[i].layers,
				 (int)h->array[i].tokens, (int)h->array[i].width);
}

static void test_fs(void **state)
{
	const struct fs_case *c = *state;
	struct kvt_lmcache_header h;
	struct kvt_error err = { "" };
	struct bytes b = { .n = 0 };
	char got[256] = "none";
	bool found;

	for (int i = 0; i < c->nhead; i++)
		put(&b, (uint32_t)c->head[i], 4);
	expect(kvt_lmcache_fs_parse(&h, &found, b.s, (int64_t)b.n,
				    (int64_t)b.n + c->head[0] + c->more, "x", &err),
	       c->status, &err, c->expected);
	if (c->status)
		return;
	if (found)
		describe(got, &h);
	assert_string_equal(got, c->expected);
	assert_true(!found || h.data == (int64_t)b.n);
}

/* ---- LMCache's JSON ---------------------------------------------------------- */

#define GDS(dtype, shape, offsets, rest) "{\"kvcache\": {\"dtype\": " dtype \
	", \"shape\": " shape ", \"data_offsets\": " offsets rest "}}"
#define V1 ", \"__metadata__\": {\"lmcache_version\": \"1\"}"

static struct gds_case {
	const char *what, *text;
	int64_t payload;
	enum kvt_status status;
	const char *expected;
} gds_cases[] = {
	{ "as LMCache writes it", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 1" V1),
	  192, 0, "1: bfloat16 3 4 4" },
	{ "names of its own", GDS("\"F8E4M3FN\"", "[2, 3, 4, 4]", "[0, 96]", ", \"fmt\": 1" V1),
	  96, 0, "1: float8_e4m3fn 3 4 4" },
	{ "MLA", GDS("\"BF16\"", "[1, 3, 4, 4]", "[0, 96]", ", \"fmt\": 6" V1), 96, 0,
	  "6: bfloat16 3 4 4" },
	{ "a layer", GDS("\"BF16\"", "[2, 4, 4]", "[0, 64]", ", \"fmt\": 3" V1), 64, 0,
	  "3: bfloat16 1 4 4" },
	{ "several arrays", GDS("\"BF16\"", "[112]", "[0, 224]", ", \"fmt\": 1, "
	  "\"shapes\": [[2, 3, 4, 4], [2, 1, 4, 4]], \"dtypes\": [\"BF16\", \"U8\"]" V1), 224, 0,
	  "1: bfloat16 3 4 4, uint8 1 4 4" },
	{ "one byte more", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 1" V1), 193,
	  KVT_BAD_INPUT, "193 bytes follow" },
	{ "one byte less", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 1" V1), 191,
	  KVT_BAD_INPUT, "191 bytes follow" },
	{ "an end that is not the shape's",
	  GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 191]", ", \"fmt\": 1" V1), 191, KVT_BAD_INPUT,
	  "192 bytes, but 191" },
	{ "a begin that is not 0",
	  GDS("\"BF16\"", "[2, 3, 4, 4]", "[1, 193]", ", \"fmt\": 1" V1), 193, KVT_BAD_INPUT,
	  "data_offsets" },
	{ "three offsets", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 1, 2]", ", \"fmt\": 1" V1), 192,
	  KVT_BAD_INPUT, "3 numbers" },
	{ "a negative extent", GDS("\"BF16\"", "[2, -3, 4, 4]", "[0, 192]", ", \"fmt\": 1" V1),
	  192, KVT_BAD_INPUT, "shape is -3" },
	{ "an extent of 0", GDS("\"BF16\"", "[2, 0, 4, 4]", "[0, 0]", ", \"fmt\": 1" V1), 0,
	  KVT_BAD_INPUT, "KV_2LTD" },
	{ "a product that overflows", GDS("\"BF16\"",
	  "[2, 4294967296, 4294967296, 4294967296]", "[0, 192]", ", \"fmt\": 1" V1), 192,
	  KVT_BAD_INPUT, "2^63" },
	{ "five extents", GDS("\"BF16\"", "[2, 3, 4, 2, 2]", "[0, 192]", ", \"fmt\": 1" V1), 192,
	  KVT_BAD_INPUT, "5 extents" },
	{ "no shape", "{\"kvcache\": {\"dtype\": \"BF16\", \"data_offsets\": [0, 192], \"fmt\": 1"
	  V1 "}}", 192, KVT_BAD_INPUT, "0 extents" },
	{ "an unknown type", GDS("\"F7\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 1" V1), 192,
	  KVT_UNSUPPORTED, "'F7'" },
	{ "no format", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", V1), 192, KVT_BAD_INPUT,
	  "fmt is missing" },
	{ "an unknown format", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 8" V1),
	  192, KVT_UNSUPPORTED, "format 8" },
	{ "a version of later", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]",
	  ", \"fmt\": 1, \"__metadata__\": {\"lmcache_version\": \"2\"}"), 192, KVT_UNSUPPORTED,
	  "'2'" },
	{ "no version", GDS("\"BF16\"", "[2, 3, 4, 4]", "[0, 192]", ", \"fmt\": 1"), 192,
	  KVT_BAD_INPUT, "missing" },
	{ "shapes without dtypes", GDS("\"BF16\"", "[112]", "[0, 192]",
	  ", \"fmt\": 1, \"shapes\": [[2, 3, 4, 4]]" V1), 192, KVT_BAD_INPUT, "1 shapes and 0" },
	{ "shapes that are numbers", GDS("\"BF16\"", "[112]", "[0, 192]",
	  ", \"fmt\": 1, \"shapes\": [2], \"dtypes\": [\"BF16\"]" V1), 192, KVT_BAD_INPUT,
	  "shapes[0]" },
	{ "another tensor", "{\"kvcache\": {}, \"x\": {}}", 0, KVT_BAD_INPUT, "nothing else" },
	{ "a key twice", "{\"kvcache\": {}, \"kvcache\": {}}", 0, KVT_BAD_INPUT, "uplicate" },
	{ "no JSON", "kvcache", 0, KVT_BAD_INPUT, NULL },
};
enum { NGDS = sizeof(gds_cases) / sizeof(gds_cases[0]) };

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
	struct kvt_error err = { "" };
	struct bytes b;
	char got[256];

	make_gds(&b, c->text);
	expect(kvt_lmcache_gds_parse(&h, b.s, (int64_t)b.n, (int64_t)b.n + c->payload, "x", &err),
	       c->status, &err, c->expected);
	if (c->status)
		return;
	describe(got, &h);
	assert_string_equal(got, c->expected);
	assert_true(kvt_lmcache_is_gds(b.s, (int64_t)b.n));
}

/* ---- fields of fixed places ---------------------------------------------------- */

/* A shard of 2 of 4 along H of [2, 3, 4, 4, 8]. */
static void make_tensor(struct bytes *b)
{
	static const int64_t whole[8] = { 2, 3, 4, 4, 8, -1, -1, -1 };
	static const int64_t local[8] = { 2, 3, 4, 2, 8, -1, -1, -1 };

	*b = (struct bytes){ .n = 0 };
	put(b, 0x4d4f4f4e, 4);
	put(b, 1, 2);
	put(b, 304, 2);
	put(b, 12, 4);
	put(b, 5, 4);
	put(b, 1, 4);
	put(b, 0, 4);
	put(b, 304, 8);
	put(b, 768, 8);
	for (int i = 0; i < 8; i++)
		put(b, (uint64_t)whole[i], 8);
	for (int i = 0; i < 8; i++)
		put(b, (uint64_t)local[i], 8);
	put(b, 1, 4);
	put(b, 0, 4);
	put(b, 1, 4);			/* TP */
	put(b, 0, 4);
	put(b, 1, 4);
	put(b, 2, 4);
	put(b, 3, 4);
	put_zeros(b, 12 + 3 * 32);
	put_zeros(b, 768);
}

static void make_checkpoint(struct bytes *b)
{
	struct bytes state = { .n = 0 };

	put(&state, 0, 8);
	put(&state, 12, 8);		/* ranges count pages of 4096 */
	put_zeros(&state, 3 * 8);
	put(&state, 100, 4);
	put(&state, 2, 4);		/* two nodes */
	put_zeros(&state, 3 * 4 + 32 + 4 * 256 + 4);
	for (uint32_t i = 0; i < 2; i++) {
		put(&state, 3 * i, 4);
		put(&state, 3, 4);
		put_zeros(&state, 16);
		put(&state, 1, 4);
	}
	put_zeros(&state, 8);
	*b = (struct bytes){ .n = 0 };
	put_number(b, 1, 3);
	put_field(b, 2, state.s, state.n);
	put_number(b, 3, 7);
}

static void make_record(struct bytes *b)
{
	*b = (struct bytes){ .n = 0 };
	put(b, 3, 4);
	put(b, 100, 4);
	put(b, 6, 8);
	put(b, 1, 4);
	put(b, 0, 4);
}

static void make_entry(struct bytes *b)
{
	*b = (struct bytes){ .n = 0 };
	put_field(b, 1, "key", 3);
	put_field(b, 2, "0123456789", 10);
}

/* Two values of 10 and 300 bytes; offset 0 is left out, as messages do. */
static void make_bucket(struct bytes *b)
{
	struct bytes place = { .n = 0 };

	*b = (struct bytes){ .n = 0 };
	put_number(b, 1, 3 + 10 + 4 + 300);
	put_field(b, 2, "key", 3);
	put_field(b, 2, "key2", 4);
	put_number(&place, 2, 3);
	put_number(&place, 3, 10);
	put_field(b, 3, place.s, place.n);
	place.n = 0;
	put_number(&place, 1, 13);
	put_number(&place, 2, 4);
	put_number(&place, 3, 300);
	put_field(b, 3, place.s, place.n);
}

static enum kvt_status parse_tensor(const uint8_t *s, int64_t n, struct kvt_error *err)
{
	struct kvt_mooncake_tensor t;
	enum kvt_status status = kvt_mooncake_tensor_parse(&t, s, n, n, "x", err);

	if (!status)
		assert_true(t.data + t.nbytes == n && t.rank <= 8 && t.dtype);
	return status;
}

static enum kvt_status parse_checkpoint(const uint8_t *s, int64_t n, struct kvt_error *err)
{
	struct kvt_mooncake_checkpoint c;
	enum kvt_status status = kvt_mooncake_checkpoint_parse(&c, s, n, 6 * 4096, "x", err);

	if (!status)
		free(c.extent);
	return status;
}

static enum kvt_status parse_record(const uint8_t *s, int64_t n, struct kvt_error *err)
{
	struct kvt_mooncake_extent extent = { 4096, 4096 + 100 };
	struct kvt_mooncake_record r;

	if (n < KVT_MOONCAKE_RECORD)
		return kvt_fail(err, KVT_BAD_INPUT, "cut");
	return kvt_mooncake_record_parse(&r, s, &extent, "x", err);
}

static enum kvt_status parse_entry(const uint8_t *s, int64_t n, struct kvt_error *err)
{
	struct kvt_values values = { 0 };
	enum kvt_status status = kvt_mooncake_entry_parse(&values, s, n, n, 0, "x", err);

	if (!status)
		assert_true(values.count == 1 &&
			    values.value[0].offset + values.value[0].nbytes == n);
	kvt_values_free(&values);
	return status;
}

static enum kvt_status parse_bucket(const uint8_t *s, int64_t n, struct kvt_error *err)
{
	struct kvt_values values = { 0 };
	enum kvt_status status = kvt_mooncake_bucket_parse(&values, s, n, 317, 0, "x", err);

	kvt_values_free(&values);
	return status;
}

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

static struct kind {
	const char *what;
	void (*make)(struct bytes *);
	enum kvt_status (*parse)(const uint8_t *, int64_t, struct kvt_error *);
	bool open_end;			/* what follows is none of its business */
} kinds[] = {
	{ "a header of the FS connector", make_fs, parse_fs, false },
	{ "a header of GDS", make_whole_gds, parse_gds, false },
	{ "a tensor", make_tensor, parse_tensor, false },
	{ "a key and a value", make_entry, parse_entry, false },
	{ "a bucket", make_bucket, parse_bucket, false },
	{ "a checkpoint", make_checkpoint, parse_checkpoint, false },
	{ "a record", make_record, parse_record, true },
};
enum { NKINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* An exact copy, so that a sanitizer sees what is read past it. */
static enum kvt_status parse_copy(const struct kind *kind, const uint8_t *s, size_t n,
				  struct kvt_error *err)
{
	uint8_t *copy = malloc(n + !n);
	enum kvt_status status;

	memcpy(copy, s, n);
	err->text[0] = '\0';
	status = kind->parse(copy, (int64_t)n, err);
	free(copy);
	return status;
}

static void test_cut(void **state)
{
	const struct kind *kind = *state;
	struct kvt_error err;
	struct bytes b;

	kind->make(&b);
	for (size_t n = 0; n < b.n; n++)
		expect(parse_copy(kind, b.s, n, &err), KVT_BAD_INPUT, &err, NULL);
	expect(parse_copy(kind, b.s, b.n, &err), KVT_OK, &err, NULL);
	b.s[b.n] = 0;
	if (!kind->open_end)
		expect(parse_copy(kind, b.s, b.n + 1, &err), KVT_BAD_INPUT, &err, NULL);
}

/* Whatever one byte becomes, the parser ends, and says something. */
static void test_changed(void **state)
{
	static const uint8_t values[] = { 0, 1, 0x7f, 0x80, 0xff };
	const struct kind *kind = *state;
	struct kvt_error err;
	struct bytes b;
	int refused = 0;

	kind->make(&b);
	for (size_t i = 0; i < b.n && i < 1400; i++)
		for (size_t v = 0; v < sizeof(values); v++) {
			uint8_t was = b.s[i];
			enum kvt_status status;

			b.s[i] = values[v];
			status = parse_copy(kind, b.s, b.n, &err);
			if (status != KVT_OK && status != KVT_BAD_INPUT &&
			    status != KVT_UNSUPPORTED)
				fail_msg("byte %d as %d: status %d", (int)i, values[v], status);
			assert_true(!status || err.text[0]);
			refused += status != KVT_OK;
			b.s[i] = was;
		}
	assert_true(refused > 20);
}

/* ---- every field that can lie ----------------------------------------------------- */

static struct lie {
	const char *what;
	int kind;			/* of kinds[] */
	size_t at;
	int nbytes;
	uint64_t value;
	enum kvt_status status;
	const char *part;
} lies[] = {
	{ "tensor: magic", 2, 0, 4, 0, KVT_BAD_INPUT, "magic" },
	{ "tensor: version", 2, 4, 2, 2, KVT_UNSUPPORTED, "version 2" },
	{ "tensor: header size", 2, 6, 2, 303, KVT_UNSUPPORTED, "303" },
	{ "tensor: element type below 0", 2, 8, 4, UINT32_MAX, KVT_BAD_INPUT, "type" },
	{ "tensor: element type above", 2, 8, 4, 15, KVT_BAD_INPUT, "type" },
	{ "tensor: rank below 0", 2, 12, 4, UINT32_MAX, KVT_BAD_INPUT, "rank" },
	{ "tensor: rank above", 2, 12, 4, 9, KVT_BAD_INPUT, "rank" },
	{ "tensor: rank of less", 2, 12, 4, 4, KVT_BAD_INPUT, "extent" },
	{ "tensor: rank of more", 2, 12, 4, 6, KVT_BAD_INPUT, "extent" },
	{ "tensor: layout kind", 2, 16, 4, 2, KVT_BAD_INPUT, "kind" },
	{ "tensor: not a shard", 2, 16, 4, 0, KVT_BAD_INPUT, "local extent" },
	{ "tensor: data before the header's end", 2, 24, 8, 303, KVT_BAD_INPUT, "offset" },
	{ "tensor: data of 0", 2, 24, 8, 0, KVT_BAD_INPUT, "offset" },
	{ "tensor: data behind the end", 2, 24, 8, 5000, KVT_BAD_INPUT, "offset" },
	{ "tensor: data below 0", 2, 24, 8, UINT64_MAX, KVT_BAD_INPUT, "offset" },
	{ "tensor: no bytes", 2, 32, 8, 0, KVT_BAD_INPUT, "size" },
	{ "tensor: bytes beyond 2^63", 2, 32, 8, UINT64_MAX, KVT_BAD_INPUT, "size" },
	{ "tensor: extent of 0", 2, 104 + 8, 8, 0, KVT_BAD_INPUT, "size" },
	{ "tensor: extent below 0", 2, 104 + 8, 8, UINT64_MAX - 2, KVT_BAD_INPUT, "extent" },
	{ "tensor: extent above the whole", 2, 104 + 8, 8, 4, KVT_BAD_INPUT, "local extent" },
	{ "tensor: whole extent below 0", 2, 40 + 8, 8, UINT64_MAX - 2, KVT_BAD_INPUT,
	  "extent" },
	{ "tensor: unused extent of 0", 2, 104 + 56, 8, 0, KVT_BAD_INPUT, "extent" },
	{ "tensor: axes", 2, 168, 4, 5, KVT_BAD_INPUT, "axis count" },
	{ "tensor: axis kind", 2, 176, 4, 5, KVT_BAD_INPUT, "axis kind" },
	{ "tensor: shard rank below 0", 2, 184, 4, UINT32_MAX, KVT_BAD_INPUT, "shard rank" },
	{ "tensor: shard rank above", 2, 184, 4, 2, KVT_BAD_INPUT, "shard rank" },
	{ "tensor: no shards", 2, 188, 4, 0, KVT_BAD_INPUT, "shard count" },
	{ "tensor: split dimension", 2, 192, 4, 5, KVT_BAD_INPUT, "split" },
	{ "entry: key of 0", 3, 1, 1, 0, KVT_BAD_INPUT, NULL },
	{ "entry: key beyond the end", 3, 1, 1, 127, KVT_BAD_INPUT, "longer" },
	{ "entry: value of less", 3, 6, 1, 9, KVT_BAD_INPUT, "9 bytes" },
	{ "entry: value of more", 3, 6, 1, 11, KVT_BAD_INPUT, "11 bytes" },
	{ "entry: value of 0", 3, 6, 1, 0, KVT_BAD_INPUT, "0 bytes" },
	{ "entry: another field first", 3, 0, 1, 0x1a, KVT_BAD_INPUT, "key" },
	{ "bucket: data size", 4, 1, 2, 0x02bc, KVT_BAD_INPUT, "data_size" },
	{ "bucket: a key size", 4, 17, 1, 4, KVT_BAD_INPUT, "value 0" },
	{ "checkpoint: version", 5, 1, 1, 4, KVT_UNSUPPORTED, "version 4" },
	{ "checkpoint: no sequence", 5, 5 + 1120 + 2 * 32 + 1, 1, 0, KVT_BAD_INPUT,
	  "sequence" },
	{ "checkpoint: nodes", 5, 5 + 44, 4, 3, KVT_BAD_INPUT, "3 nodes" },
	{ "checkpoint: no nodes", 5, 5 + 44, 4, 0, KVT_BAD_INPUT, "0 nodes" },
	{ "checkpoint: 2^32 nodes", 5, 5 + 44, 4, UINT32_MAX, KVT_BAD_INPUT, "nodes" },
	{ "checkpoint: shift", 5, 5 + 8, 8, 64, KVT_BAD_INPUT, "state" },
	{ "checkpoint: base beyond 2^63", 5, 5, 8, UINT64_MAX, KVT_BAD_INPUT, "range" },
	{ "checkpoint: a range behind the end", 5, 5 + 1120, 4, 4, KVT_BAD_INPUT, "range" },
	{ "checkpoint: a range without end", 5, 5 + 1124, 4, UINT32_MAX, KVT_BAD_INPUT,
	  "range" },
	{ "checkpoint: ranges that overlap", 5, 5 + 1120, 4, 1, KVT_BAD_INPUT, "overlap" },
	{ "record: no key", 6, 0, 4, 0, KVT_BAD_INPUT, "key" },
	{ "record: key without end", 6, 0, 4, UINT32_MAX, KVT_BAD_INPUT, "key" },
	{ "record: value of more", 6, 4, 4, 101, KVT_BAD_INPUT, "set aside" },
	{ "record: value without end", 6, 4, 4, UINT32_MAX, KVT_BAD_INPUT, "set aside" },
	{ "record: flags of later", 6, 16, 4, 3, KVT_UNSUPPORTED, "flags" },
};
enum { NLIES = sizeof(lies) / sizeof(lies[0]) };

static void test_lie(void **state)
{
	const struct lie *lie = *state;
	struct kvt_error err;
	struct bytes b;

	kinds[lie->kind].make(&b);
	for (int i = 0; i < lie->nbytes; i++)
		b.s[lie->at + (size_t)i] = (uint8_t)(lie->value >> 8 * i);
	expect(parse_copy(&kinds[lie->kind], b.s, b.n, &err), lie->status, &err, lie->part);
}

/* ---- messages ---------------------------------------------------------------------- */

static struct bucket_case {
	const char *what;
	int64_t nbytes;			/* of the bucket */
	enum kvt_status status;
	const char *part;
} buckets[] = {
	{ "bucket: as it should be", 317, 0, NULL },
	{ "bucket: padded to 4096", 4096, 0, NULL },
	{ "bucket: padded too far", 8192, KVT_BAD_INPUT, "8192" },
	{ "bucket: shorter", 316, KVT_BAD_INPUT, "316" },
	{ "bucket: longer", 318, KVT_BAD_INPUT, "318" },
};
enum { NBUCKETS = sizeof(buckets) / sizeof(buckets[0]) };

static void test_bucket(void **state)
{
	const struct bucket_case *c = *state;
	struct kvt_values values = { 0 };
	struct kvt_error err = { "" };
	struct bytes b;

	make_bucket(&b);
	expect(kvt_mooncake_bucket_parse(&values, b.s, (int64_t)b.n, c->nbytes, 5, "x", &err),
	       c->status, &err, c->part);
	if (!c->status) {
		assert_int_equal(values.count, 2);
		assert_string_equal(values.value[1].key, "key2");
		assert_int_equal(values.value[0].offset, 3);
		assert_int_equal(values.value[0].nbytes, 10);
		assert_int_equal(values.value[1].offset, 17);
		assert_int_equal(values.value[1].nbytes, 300);
		assert_int_equal(values.value[1].file, 5);
	}
	kvt_values_free(&values);
}

/* A place that is not where the one before it ends. */
static void test_odd_buckets(void **state)
{
	static const struct {
		const char *part;
		uint64_t offset, nkey, nbytes;
	} rows[] = {
		{ "value 0", 1, 3, 10 }, { "value 0", 0, 4, 10 },
		{ "value 0", 0, 3, INT64_MAX }, { "negative", 0, 3, UINT64_MAX },
		{ "negative", UINT64_MAX, 3, 10 }, { "data_size", 0, 3, 9 },
	};
	struct kvt_error err = { "" };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct bytes b = { .n = 0 }, place = { .n = 0 };
		struct kvt_values values = { 0 };

		put_number(&place, 1, rows[i].offset);
		put_number(&place, 2, rows[i].nkey);
		put_number(&place, 3, rows[i].nbytes);
		put_number(&b, 1, 13);
		put_field(&b, 2, "key", 3);
		put_field(&b, 3, place.s, place.n);
		expect(kvt_mooncake_bucket_parse(&values, b.s, (int64_t)b.n, 13, 0, "x", &err),
		       KVT_BAD_INPUT, &err, rows[i].part);
		kvt_values_free(&values);
	}
}

static void test_tensor(void **state)
{
	struct kvt_mooncake_tensor t;
	struct kvt_error err = { "" };
	struct bytes b;

	(void)state;
	make_tensor(&b);
	expect(kvt_mooncake_tensor_parse(&t, b.s, KVT_MOONCAKE_HEADER, (int64_t)b.n, "x", &err),
	       KVT_OK, &err, NULL);
	assert_string_equal(t.dtype->name, "bfloat16");
	assert_int_equal(t.rank, 5);
	assert_int_equal(t.local[3], 2);
	assert_int_equal(t.whole[3], 4);
	assert_int_equal(t.naxes, 1);
	assert_int_equal(t.axis[0].kind, KVT_MOONCAKE_TP);
	assert_int_equal(t.axis[0].rank, 1);
	assert_int_equal(t.axis[0].count, 2);
	assert_int_equal(t.axis[0].dim, 3);
	assert_int_equal(t.data, 304);
	assert_int_equal(t.nbytes, 768);
}

static void test_checkpoint(void **state)
{
	struct kvt_mooncake_checkpoint c;
	struct kvt_error err = { "" };
	struct bytes b;

	(void)state;
	make_checkpoint(&b);
	expect(kvt_mooncake_checkpoint_parse(&c, b.s, (int64_t)b.n, 6 * 4096, "x", &err), KVT_OK,
	       &err, NULL);
	assert_int_equal(c.seq, 7);
	assert_int_equal(c.count, 2);
	assert_int_equal(c.extent[1].offset, 3 * 4096);
	assert_int_equal(c.extent[1].nbytes, 3 * 4096);
	free(c.extent);
}

/* The check value of the CRC catalogues, and pieces of any length. */
static void test_crc(void **state)
{
	uint8_t s[100];
	uint32_t whole;

	(void)state;
	assert_int_equal(kvt_crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(kvt_crc32c(0, "", 0), 0);
	for (int i = 0; i < 100; i++)
		s[i] = (uint8_t)(i * 37 + 11);
	whole = kvt_crc32c(0, s, 100);
	for (size_t n = 0; n <= 100; n++)
		assert_int_equal(kvt_crc32c(kvt_crc32c(0, s, n), s + n, 100 - n), whole);
	/* 32 bytes of 0 and of 0xff, RFC 3720 B.4 */
	memset(s, 0, 32);
	assert_int_equal(kvt_crc32c(0, s, 32), 0x8a9136aa);
	memset(s, 0xff, 32);
	assert_int_equal(kvt_crc32c(0, s, 32), 0x62a8ab43);
}

static struct CMUnitTest fixed[] = {
	{ "endings", test_endings, NULL, NULL, NULL },
	{ "a tensor's fields", test_tensor, NULL, NULL, NULL },
	{ "a checkpoint's ranges", test_checkpoint, NULL, NULL, NULL },
	{ "buckets with places that are none", test_odd_buckets, NULL, NULL, NULL },
	{ "CRC-32C", test_crc, NULL, NULL, NULL },
};
enum { NFIXED = sizeof(fixed) / sizeof(fixed[0]) };

/* One test a row of a table. */
static struct CMUnitTest tests[NKEYS + NFS + NGDS + 2 * NKINDS + NLIES + NBUCKETS + NFIXED];
static size_t ntests;

static void add(const char *what, CMUnitTestFunction run, void *row)
{
	tests[ntests++] = (struct CMUnitTest){ .name = what, .test_func = run,
					       .initial_state = row };
}

int main(void)
{
	for (int i = 0; i < NKEYS; i++)
		add(keys[i].what, test_key, &keys[i]);
	for (int i = 0; i < NFS; i++)
		add(fs_cases[i].what, test_fs, &fs_cases[i]);
	for (int i = 0; i < NGDS; i++)
		add(gds_cases[i].what, test_gds, &gds_cases[i]);
	for (int i = 0; i < NKINDS; i++)
		add(kinds[i].what, test_cut, &kinds[i]);
	for (int i = 0; i < NKINDS; i++)
		add(kinds[i].what, test_changed, &kinds[i]);
	for (int i = 0; i < NLIES; i++)
		add(lies[i].what, test_lie, &lies[i]);
	for (int i = 0; i < NBUCKETS; i++)
		add(buckets[i].what, test_bucket, &buckets[i]);
	for (int i = 0; i < NFIXED; i++)
		tests[ntests++] = fixed[i];
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("parsers of stores", tests, NULL, NULL);
}
