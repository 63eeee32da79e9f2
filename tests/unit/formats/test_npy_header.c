/* SPDX-License-Identifier: Apache-2.0 */
/* test_npy_header.c - npy headers, honest and lying */
#include "formats/parse/npy_header.h"
#include "tests/unit/fixture.h"

/* ---- headers ------------------------------------------------------------ */

/* A version 1 header of 'text', padded to 128 bytes. */
static int64_t version1(uint8_t head[256], const char *text)
{
	size_t n = strlen(text);

	assert_true(n < 117);
	memset(head, ' ', 256);
	memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
	memcpy(head + 10, text, n);
	head[127] = '\n';
	return 128;
}

static struct parse_case {
	const char *what, *text;
	enum kvt_status status;
	const char *part;		/* of the message; or "rank/elem/bytes" */
} cases[] = {
	{ "as numpy writes it",
	  "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 0, "2/4/24" },
	{ "double quotes, no blanks, other order",
	  "{\"shape\":(7,),\"fortran_order\":False,\"descr\":\"|u1\"}", 0, "1/1/7" },
	{ "a single element", "{'descr': '<f8', 'fortran_order': False, 'shape': ()}",
	  0, "0/8/8" },
	{ "long integers of Python 2",
	  "{'descr': '<u2', 'fortran_order': False, 'shape': (3L, 4L)}", 0, "2/2/24" },
	{ "an extent of 0", "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5)}",
	  0, "2/4/0" },
	{ "plain bytes", "{'descr': '|V2', 'fortran_order': False, 'shape': (5,)}", 0,
	  "1/2/10" },
	{ "Fortran order of one axis is C order",
	  "{'descr': '<f4', 'fortran_order': True, 'shape': (5,)}", 0, "1/4/20" },
	{ "Fortran order", "{'descr': '<f4', 'fortran_order': True, 'shape': (5, 2)}",
	  KVT_UNSUPPORTED, "Fortran" },
	{ "big-endian", "{'descr': '>f4', 'fortran_order': False, 'shape': (5,)}",
	  KVT_UNSUPPORTED, "big-endian" },
	{ "objects", "{'descr': '|O', 'fortran_order': False, 'shape': (5,)}",
	  KVT_UNSUPPORTED, "'|O'" },
	{ "strings", "{'descr': '<U8', 'fortran_order': False, 'shape': (5,)}",
	  KVT_UNSUPPORTED, "'<U8'" },
	{ "records",
	  "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (5,)}",
	  KVT_UNSUPPORTED, "records" },
	{ "floats of three bytes",
	  "{'descr': '<f3', 'fortran_order': False, 'shape': (5,)}", KVT_UNSUPPORTED,
	  "'<f3'" },
	{ "a number in brackets",
	  "{'descr': '<f4', 'fortran_order': False, 'shape': (5)}",
	  KVT_BAD_INPUT, "tuple" },
	{ "a list as shape", "{'descr': '<f4', 'fortran_order': False, 'shape': [5]}",
	  KVT_BAD_INPUT, "tuple" },
	{ "a negative extent",
	  "{'descr': '<f4', 'fortran_order': False, 'shape': (-5,)}", KVT_BAD_INPUT,
	  "extent" },
	{ "an extent beyond 2^63",
	  "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}",
	  KVT_BAD_INPUT, "2^63" },
	{ "a product beyond 2^63",
	  "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
	  KVT_BAD_INPUT, "2^63" },
	{ "a product beyond 2^63 that a 0 would hide",
	  "{'descr': '<f4','fortran_order': False,'shape': (4294967296,4294967296,0)}",
	  KVT_BAD_INPUT, "2^63" },
	{ "a key missing", "{'descr': '<f4', 'shape': (5,)}", KVT_BAD_INPUT,
	  "once each" },
	{ "a key too many",
	  "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), 'x': 1}",
	  KVT_BAD_INPUT, "once each" },
	{ "a key twice",
	  "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (5,)}",
	  KVT_BAD_INPUT, "once each" },
	{ "something behind the dict",
	  "{'descr': '<f4', 'fortran_order': False, 'shape': (5,)} x", KVT_BAD_INPUT,
	  "after" },
	{ "an expression", "__import__('os').system('true')", KVT_BAD_INPUT, "dict" },
	{ "a truth value that is an expression",
	  "{'descr': '<f4', 'fortran_order': not 1, 'shape': (5,)}", KVT_BAD_INPUT,
	  "True or False" },
	{ "an escape", "{'descr': '<f\\x34', 'fortran_order': False, 'shape': (5,)}",
	  KVT_BAD_INPUT, "plain string" },
	{ "a long descriptor",
	  "{'descr': '<f4444444444444444444', 'fortran_order': False, 'shape': (5,)}",
	  KVT_BAD_INPUT, "short" },
	{ "no comma between extents",
	  "{'descr': '<f4', 'fortran_order': False, 'shape': (5 5)}", KVT_BAD_INPUT,
	  "comma" },
	{ "an open string", "{'descr", KVT_BAD_INPUT, "string" },
	{ "an open tuple", "{'shape': (5, ", KVT_BAD_INPUT, "extent" },
	{ "nothing", "", KVT_BAD_INPUT, "dict" },
};

static void test_parse(void **state)
{
	const struct parse_case *c = *state;
	struct kvt_npy_header header;
	uint8_t head[256];
	int64_t n = version1(head, c->text);
	char got[64];

	expect(kvt_npy_parse(&header, head, n, "x.npy", &why), c->status, c->part);
	if (c->status)
		return;
	snprintf(got, sizeof(got), "%d/%d/%lld", header.rank, (int)header.elem,
		 (long long)header.nbytes);
	assert_string_equal(got, c->part);
	assert_int_equal(header.data, 128);
}

static const char fair[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";

static void test_truncated_header(void)
{
	struct kvt_npy_header header;
	uint8_t head[256];
	int64_t n = version1(head, fair);

	for (int64_t i = 0; i < n; i++) {
		/* an exact copy, so that a sanitizer sees what is read past it */
		uint8_t *copy = room((size_t)i + !i);

		memcpy(copy, head, (size_t)i);
		expect(kvt_npy_parse(&header, copy, i, "x", &why), KVT_BAD_INPUT, NULL);
	}
	ok(kvt_npy_parse(&header, head, n, "x", &why));
}

/* Whatever one byte becomes, the parser ends, and says something. */
static void test_changed_header(void)
{
	struct kvt_npy_header header;
	uint8_t head[256];
	int64_t n = version1(head, fair);
	int refused = 0;

	for (int64_t i = 0; i < n; i++)
		for (int bit = 0; bit < 8; bit++) {
			enum kvt_status status;

			why.text[0] = '\0';
			head[i] ^= (uint8_t)(1 << bit);
			status = kvt_npy_parse(&header, head, n, "x", &why);
			assert_true(!status == !why.text[0]);
			refused += status != KVT_OK;
			head[i] ^= (uint8_t)(1 << bit);
		}
	assert_true(refused > 700);
}

static void test_lengths(void)
{
	static const struct {
		uint8_t major, length[4];
		enum kvt_status status;
		const char *part;
	} rows[] = {
		{ 1, { 0, 0, ' ', ' ' }, KVT_BAD_INPUT, "does not end its line" },
		{ 1, { 0xff, 0xff, ' ', ' ' }, KVT_BAD_INPUT, "at most 10000" },
		{ 1, { 0x77, 0, ' ', ' ' }, KVT_BAD_INPUT, "cut off" },
		{ 1, { 0x75, 0, ' ', ' ' }, KVT_BAD_INPUT, "does not end its line" },
		{ 2, { 0xff, 0xff, 0xff, 0xff }, KVT_BAD_INPUT, "at most 10000" },
		{ 3, { 0, 0, 0, 0x80 }, KVT_BAD_INPUT, "at most 10000" },
		{ 2, { 0x75, 0, 0, 0 }, KVT_BAD_INPUT, "cut off" },
		{ 0, { 0x76, 0, ' ', ' ' }, KVT_UNSUPPORTED, "version 0.0" },
		{ 4, { 0x76, 0, ' ', ' ' }, KVT_UNSUPPORTED, "version 4.0" },
	};
	struct kvt_npy_header header;
	uint8_t head[256];

	for (size_t i = 0; i < LENGTH(rows); i++) {
		int64_t n = version1(
			head,
			"  {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}");

		head[6] = rows[i].major;
		memcpy(head + 8, rows[i].length, 4);
		expect(kvt_npy_parse(&header, head, n, "x", &why), rows[i].status,
		       rows[i].part);
	}
}

/* Versions 2 and 3 have a length of four bytes. */
static void test_versions(void)
{
	struct kvt_npy_header header;
	uint8_t head[256];

	for (uint8_t major = 2; major < 4; major++) {
		int64_t n = version1(
			head,
			"  {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}");

		head[6] = major;
		memcpy(head + 8, "\x74\0\0\0", 4);
		ok(kvt_npy_parse(&header, head, n, "x", &why));
		assert_int_equal(header.data, 128);
		assert_int_equal(header.rank, 2);
	}
}

/* The bytes that numpy wrote for the same array. */
static void test_print(void)
{
	static const struct {
		const char *path;
		int rank;
		int64_t shape[8];
	} rows[] = {
		{"testdata/kv/s260k/paged_bs16/packed_nhd.bf16.npy",
		 6,
		 {5, 48, 16, 4, 2, 8}},
		{"testdata/kv/mla144/paged_bs16/mla_blsc.bf16.npy", 4, {15, 3, 16, 144}},
	};
	uint8_t head[KVT_NPY_MAX_HEAD];

	for (size_t i = 0; i < 2; i++) {
		size_t n;
		uint8_t *bytes = read_file(rows[i].path, &n);

		assert_int_equal(kvt_npy_print(head, "<u2", rows[i].rank, rows[i].shape),
				 128);
		assert_memory_equal(head, bytes, 128);
	}
}

static void test_print_any_rank(void)
{
	const int64_t shape[8] = { INT64_MAX, 1, 2, 3, 4, 5, 6, INT64_MAX };
	uint8_t head[KVT_NPY_MAX_HEAD];
	struct kvt_npy_header header;

	for (int rank = 0; rank <= 8; rank++) {
		/* shapes that do not overflow */
		const int64_t *s = rank < 7 ? shape + 1 : NULL;
		int64_t n;

		if (!s)
			break;
		n = kvt_npy_print(head, "<f4", rank, s);
		assert_int_equal(n % 64, 0);
		ok(kvt_npy_parse(&header, head, n, "x", &why));
		assert_int_equal(header.rank, rank);
		assert_memory_equal(header.shape, s, (size_t)rank * sizeof(*s));
	}
	assert_true(kvt_npy_print(head, "<f4", 8, shape) < 256);
}

TESTS("npy header",
	EACH(cases, test_parse),
	NAMED(test_truncated_header, "a header cut at each byte"),
	NAMED(test_changed_header, "a header with each bit flipped"),
	NAMED(test_lengths, "lengths that lie"),
	NAMED(test_versions, "versions 2 and 3"),
	NAMED(test_print, "headers are those of numpy"),
	NAMED(test_print_any_rank, "headers of any rank are read again"))
