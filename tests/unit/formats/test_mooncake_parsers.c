/* SPDX-License-Identifier: Apache-2.0 */
/* test_mooncake_parsers.c - what Mooncake writes around values, honest and lying */
#include "formats/mooncake/mooncake.h"
#include "lib/hash/crc32c.h"
#include "tests/unit/formats/made_bytes.h"

/* ---- fields of fixed places ---------------------------------------------- */

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
	put_zeros(b, 8);
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

static enum kvt_status parse_checkpoint(const uint8_t *s, int64_t n,
					struct kvt_error *err)
{
	struct kvt_mooncake_checkpoint c;
	enum kvt_status status = kvt_mooncake_checkpoint_parse(&c, s, n, 6 * 4096, "x",
							       err);

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
	struct kvt_mooncake_values values = { 0 };
	enum kvt_status status = kvt_mooncake_entry_parse(&values, s, n, n, 0, "x", err);

	if (!status)
		assert_true(values.count == 1 &&
			    values.value[0].offset + values.value[0].nbytes == n);
	/* as good as cut: it is told to be empty */
	if (!status && !values.value[0].nbytes)
		status = kvt_fail(err, KVT_BAD_INPUT, "empty");
	kvt_mooncake_values_free(&values);
	return status;
}

static enum kvt_status parse_bucket(const uint8_t *s, int64_t n, struct kvt_error *err)
{
	struct kvt_mooncake_values values = { 0 };
	enum kvt_status status = kvt_mooncake_bucket_parse(&values, s, n, 317, 0, "x",
							   err);

	kvt_mooncake_values_free(&values);
	return status;
}

static struct kind kinds[] = {
	{ "a tensor", make_tensor, parse_tensor, false },
	{ "a key and a value", make_entry, parse_entry, false },
	{ "a bucket", make_bucket, parse_bucket, false },
	{ "a checkpoint", make_checkpoint, parse_checkpoint, false },
	{ "a record", make_record, parse_record, true },
};

/* ---- every field that can lie -------------------------------------------- */

static struct lie {
	const char *what;
	int kind;			/* of kinds[] */
	size_t at;
	int nbytes;
	uint64_t value;
	enum kvt_status status;
	const char *part;
} lies[] = {
	{ "tensor: magic", 0, 0, 4, 0, KVT_BAD_INPUT, "magic" },
	{ "tensor: version", 0, 4, 2, 2, KVT_UNSUPPORTED, "version 2" },
	{ "tensor: header size", 0, 6, 2, 303, KVT_UNSUPPORTED, "303" },
	{ "tensor: element type below 0", 0, 8, 4, UINT32_MAX, KVT_BAD_INPUT, "type" },
	{ "tensor: element type above", 0, 8, 4, 15, KVT_BAD_INPUT, "type" },
	{ "tensor: rank below 0", 0, 12, 4, UINT32_MAX, KVT_BAD_INPUT, "rank" },
	{ "tensor: rank above", 0, 12, 4, 9, KVT_BAD_INPUT, "rank" },
	{ "tensor: rank of less", 0, 12, 4, 4, KVT_BAD_INPUT, "extent" },
	{ "tensor: rank of more", 0, 12, 4, 6, KVT_BAD_INPUT, "extent" },
	{ "tensor: layout kind", 0, 16, 4, 2, KVT_BAD_INPUT, "kind" },
	{ "tensor: not a shard", 0, 16, 4, 0, KVT_BAD_INPUT, "local extent" },
	{ "tensor: data before the header's end", 0, 24, 8, 303, KVT_BAD_INPUT,
	  "offset" },
	{ "tensor: data of 0", 0, 24, 8, 0, KVT_BAD_INPUT, "offset" },
	{ "tensor: data behind the end", 0, 24, 8, 5000, KVT_BAD_INPUT, "offset" },
	{ "tensor: data below 0", 0, 24, 8, UINT64_MAX, KVT_BAD_INPUT, "offset" },
	{ "tensor: no bytes", 0, 32, 8, 0, KVT_BAD_INPUT, "size" },
	{ "tensor: bytes beyond 2^63", 0, 32, 8, UINT64_MAX, KVT_BAD_INPUT, "size" },
	{ "tensor: extent of 0", 0, 104 + 8, 8, 0, KVT_BAD_INPUT, "size" },
	{ "tensor: extent below 0", 0, 104 + 8, 8, UINT64_MAX - 2, KVT_BAD_INPUT,
	  "extent" },
	{ "tensor: extent above the whole", 0, 104 + 8, 8, 4, KVT_BAD_INPUT,
	  "local extent" },
	{ "tensor: whole extent below 0", 0, 40 + 8, 8, UINT64_MAX - 2, KVT_BAD_INPUT,
	  "extent" },
	{ "tensor: unused extent of 0", 0, 104 + 56, 8, 0, KVT_BAD_INPUT, "extent" },
	{ "tensor: axes", 0, 168, 4, 5, KVT_BAD_INPUT, "axis count" },
	{ "tensor: axis kind", 0, 176, 4, 5, KVT_BAD_INPUT, "axis kind" },
	{ "tensor: shard rank below 0", 0, 184, 4, UINT32_MAX, KVT_BAD_INPUT,
	  "shard rank" },
	{ "tensor: shard rank above", 0, 184, 4, 2, KVT_BAD_INPUT, "shard rank" },
	{ "tensor: no shards", 0, 188, 4, 0, KVT_BAD_INPUT, "shard count" },
	{ "tensor: split dimension", 0, 192, 4, 5, KVT_BAD_INPUT, "split" },
	{ "entry: key of 0", 1, 1, 1, 0, KVT_BAD_INPUT, NULL },
	{ "entry: a NUL and no tenant", 1, 2, 1, 0, KVT_BAD_INPUT, "tenant" },
	{ "entry: a NUL and no key", 1, 4, 1, 0, KVT_BAD_INPUT, "TENANT NUL KEY" },
	{ "entry: key beyond the end", 1, 1, 1, 127, KVT_BAD_INPUT, "key" },
	{ "entry: value of less", 1, 6, 1, 9, KVT_BAD_INPUT, "9 bytes" },
	{ "entry: value of more", 1, 6, 1, 11, KVT_BAD_INPUT, "11 bytes" },
	{ "entry: value of 0", 1, 6, 1, 0, KVT_BAD_INPUT, "0 bytes" },
	{ "entry: another field first", 1, 0, 1, 0x1a, KVT_BAD_INPUT, "key" },
	{ "bucket: data size", 2, 1, 2, 0x02bc, KVT_BAD_INPUT, "data_size" },
	{ "bucket: a key size", 2, 17, 1, 4, KVT_BAD_INPUT, "value 0" },
	{ "checkpoint: version", 3, 1, 1, 4, KVT_UNSUPPORTED, "version 4" },
	{ "checkpoint: no sequence", 3, 5 + 1120 + 2 * 32 + 1, 1, 0, KVT_BAD_INPUT,
	  "sequence" },
	{ "checkpoint: nodes", 3, 5 + 44, 4, 3, KVT_BAD_INPUT, "3 nodes" },
	{ "checkpoint: no nodes", 3, 5 + 44, 4, 0, KVT_BAD_INPUT, "0 nodes" },
	{ "checkpoint: 2^32 nodes", 3, 5 + 44, 4, UINT32_MAX, KVT_BAD_INPUT, "nodes" },
	{ "checkpoint: shift", 3, 5 + 8, 8, 64, KVT_BAD_INPUT, "state" },
	{ "checkpoint: base beyond 2^63", 3, 5, 8, UINT64_MAX, KVT_BAD_INPUT, "range" },
	{ "checkpoint: a range behind the end", 3, 5 + 1120, 4, 4, KVT_BAD_INPUT,
	  "range" },
	{ "checkpoint: a range without end", 3, 5 + 1124, 4, UINT32_MAX, KVT_BAD_INPUT,
	  "range" },
	{ "checkpoint: ranges that overlap", 3, 5 + 1120, 4, 1, KVT_BAD_INPUT,
	  "overlap" },
	{ "record: no key", 4, 0, 4, 0, KVT_BAD_INPUT, "key" },
	{ "record: key without end", 4, 0, 4, UINT32_MAX, KVT_BAD_INPUT, "key" },
	{ "record: value of more", 4, 4, 4, 101, KVT_BAD_INPUT, "were allocated" },
	{ "record: value without end", 4, 4, 4, UINT32_MAX, KVT_BAD_INPUT,
		  "were allocated" },
	{ "record: a checksum without the flag", 4, 20, 4, 1, KVT_BAD_INPUT, "flag" },
	{ "record: flags of later", 4, 16, 4, 3, KVT_UNSUPPORTED, "flags" },
};

static void test_lie(void **state)
{
	const struct lie *lie = *state;
	struct bytes b;

	kinds[lie->kind].make(&b);
	for (int i = 0; i < lie->nbytes; i++)
		b.s[lie->at + (size_t)i] = (uint8_t)(lie->value >> 8 * i);
	expect(parse_copy(&kinds[lie->kind], b.s, b.n, &why), lie->status, lie->part);
}

/* ---- messages ------------------------------------------------------------ */

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

static void test_bucket(void **state)
{
	const struct bucket_case *c = *state;
	struct kvt_mooncake_values values = { 0 };
	struct bytes b;

	make_bucket(&b);
	expect(kvt_mooncake_bucket_parse(&values, b.s, (int64_t)b.n, c->nbytes, 5, "x",
					 &why), c->status, c->part);
	if (!c->status) {
		assert_int_equal(values.count, 2);
		assert_string_equal(values.value[1].key, "key2");
		assert_int_equal(values.value[0].offset, 3);
		assert_int_equal(values.value[0].nbytes, 10);
		assert_int_equal(values.value[1].offset, 17);
		assert_int_equal(values.value[1].nbytes, 300);
		assert_int_equal(values.value[1].file, 5);
	}
	kvt_mooncake_values_free(&values);
}

/* What a store calls a value: TENANT NUL KEY, or a key of the tenant "default". */
static void test_names(void)
{
	static const struct {
		const char *text;
		int64_t n;
		const char *tenant, *key, *part;
		bool is_text;
	} rows[] = {
		{ "k", 1, "default", "k", NULL, true },
		{ "default\0k", 9, "default", "k", NULL, true },
		{ "team a\0a/b:c", 12, "team a", "a/b:c", NULL, true },
		{ "t\0a\tb", 5, "t", "a\tb", NULL, false },
		{ "t\0\xff", 3, "t", "\xff", NULL, false },
		{ "t\0a\0b", 5, NULL, NULL, "TENANT NUL KEY", false },
		{ "t\0", 2, NULL, NULL, "TENANT NUL KEY", false },
		{ "\0k", 2, NULL, NULL, "cannot be a tenant", false },
		{ "_t\0k", 4, NULL, NULL, "cannot be a tenant", false },
		{ "t\n\0k", 4, NULL, NULL, "cannot be a tenant", false },
		{ "", 0, NULL, NULL, "0 bytes", false },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_mooncake_values values = { 0 };

		expect(kvt_mooncake_values_add(&values, rows[i].text, rows[i].n,
					       &(struct kvt_mooncake_value){ .file = 1 },
					       "x", &why),
		       rows[i].key ? KVT_OK : KVT_BAD_INPUT, rows[i].part);
		assert_int_equal(values.count, rows[i].key ? 1 : 0);
		if (rows[i].key) {
			assert_string_equal(values.value[0].tenant, rows[i].tenant);
			assert_string_equal(values.value[0].key, rows[i].key);
			assert_int_equal(values.value[0].ntext, rows[i].n);
			assert_int_equal(kvt_mooncake_has_text(&values.value[0]),
					 rows[i].is_text);
		}
		kvt_mooncake_values_free(&values);
	}
}

/* A file is an entry by its size, or by its name where it was cut. */
static void test_is_entry(void)
{
	static const uint8_t odd[] = { 10, 5, 't', 0, 'a', '/', '?', 0x12, 9, 'v' };
	struct bytes b;

	make_entry(&b);
	assert_true(kvt_mooncake_is_entry(b.s, (int64_t)b.n, (int64_t)b.n, "other"));
	assert_false(kvt_mooncake_is_entry(b.s, (int64_t)b.n, (int64_t)b.n + 1, "other"));
	assert_true(kvt_mooncake_is_entry(b.s, (int64_t)b.n, (int64_t)b.n + 1, "key"));
	assert_true(kvt_mooncake_is_entry(odd, sizeof(odd), sizeof(odd), "t_a__"));
	assert_false(kvt_mooncake_is_entry(odd, sizeof(odd), sizeof(odd), "t_a_?"));
	assert_false(kvt_mooncake_is_entry(odd, sizeof(odd), sizeof(odd), "t_a_"));
	assert_false(kvt_mooncake_is_entry(odd, 4, sizeof(odd), "t_a__"));
	assert_false(kvt_mooncake_is_entry(odd, 0, 0, "t_a__"));
}

/* A place that is not where the one before it ends. */
static void test_odd_buckets(void)
{
	static const struct {
		const char *part;
		uint64_t offset, nkey, nbytes;
	} rows[] = {
		{ "value 0", 1, 3, 10 }, { "value 0", 0, 4, 10 },
		{ "value 0", 0, 3, INT64_MAX }, { "negative", 0, 3, UINT64_MAX },
		{ "negative", UINT64_MAX, 3, 10 }, { "data_size", 0, 3, 9 },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct bytes b = { .n = 0 }, place = { .n = 0 };
		struct kvt_mooncake_values values = { 0 };

		put_number(&place, 1, rows[i].offset);
		put_number(&place, 2, rows[i].nkey);
		put_number(&place, 3, rows[i].nbytes);
		put_number(&b, 1, 13);
		put_field(&b, 2, "key", 3);
		put_field(&b, 3, place.s, place.n);
		expect(kvt_mooncake_bucket_parse(&values, b.s, (int64_t)b.n, 13, 0, "x",
						 &why), KVT_BAD_INPUT, rows[i].part);
		kvt_mooncake_values_free(&values);
	}
}

static void test_tensor(void)
{
	struct kvt_mooncake_tensor t;
	struct bytes b;

	make_tensor(&b);
	ok(kvt_mooncake_tensor_parse(&t, b.s, KVT_MOONCAKE_HEADER, (int64_t)b.n, "x",
				     &why));
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

static void test_checkpoint(void)
{
	struct kvt_mooncake_checkpoint c;
	struct bytes b;

	make_checkpoint(&b);
	ok(kvt_mooncake_checkpoint_parse(&c, b.s, (int64_t)b.n, 6 * 4096, "x", &why));
	assert_int_equal(c.seq, 7);
	assert_int_equal(c.count, 2);
	assert_int_equal(c.extent[1].offset, 3 * 4096);
	assert_int_equal(c.extent[1].nbytes, 3 * 4096);
	free(c.extent);
}

/* The check value of the CRC catalogues, and parts of any length. */
static void test_crc(void)
{
	uint8_t s[100];
	uint32_t whole;

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

TESTS("parsers of Mooncake",
	EACH(kinds, test_cut), EACH(kinds, test_changed), EACH(lies, test_lie),
	EACH(buckets, test_bucket),
	NAMED(test_tensor, "a tensor's fields"),
	NAMED(test_checkpoint, "a checkpoint's ranges"),
	NAMED(test_odd_buckets, "buckets with places that are none"),
	NAMED(test_names, "names of values, with and without a tenant"),
	NAMED(test_is_entry, "files that begin with their key"),
	NAMED(test_crc, "CRC-32C"))
