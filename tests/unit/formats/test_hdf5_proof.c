/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hdf5_proof.c - what a snapshot's own checksums refuse, though HDF5 and the
 * schema have nothing against it
 */
#include <unistd.h>
#include <zlib.h>

#include "formats/file/proof.h"
#include "tests/damage.h"
#include "tests/temporary.h"
#include "tests/unit/tests.h"

static char path[TEMPORARY_NAME];

static int make_names(void **state)
{
	(void)state;
	temporary_file(path, "proof");
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	return 0;
}

static int remove_files(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

/* ---- tables ------------------------------------------------------------- */

static void nothing(hid_t f) { (void)f; }

static void names_other(hid_t f)
{
	hid_t type = text_type(1);

	put_table(f, G0 "/layer_names", type, 2, 0, "ac");
	H5Tclose(type);
}

static void ids_gone(hid_t f) { H5Ldelete(f, G0 "/layer_ids", H5P_DEFAULT); }

static void ids_new(hid_t f)
{
	hid_t space = H5Screate_simple(1, (hsize_t[]){ 5 }, NULL);
	hid_t table = H5Dcreate2(f, G0 "/block_ids", H5T_STD_U64LE, space, H5P_DEFAULT,
				 H5P_DEFAULT, H5P_DEFAULT);

	H5Dwrite(table, H5T_STD_U64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
		 (uint64_t[]){ 0, 1, 2, 3, 4 });
	H5Dclose(table);
	H5Sclose(space);
}

static void table_other(hid_t f)
{
	put_table(f, "/requests/0/block_table/g0", H5T_STD_U32LE, 5, 0,
		  (uint32_t[]){ 0, 1, 3, 2, 4 });
}

static void request_other(hid_t f) { put_str(f, "/requests/0", "request_id", "s"); }
static void request_gone(hid_t f) { H5Ldelete(f, "/requests", H5P_DEFAULT); }
static void heads_other(hid_t f) { put_int(f, G0, "total_num_heads", H5T_STD_U64LE, 4); }
static void window_new(hid_t f) { put_int(f, G0, "window", H5T_STD_I64LE, 16); }
static void retained_new(hid_t f) { put_int(f, G0, "retained_tokens", H5T_STD_I64LE, 3); }
static void null_new(hid_t f) { put_int(f, G0, "null_block", H5T_STD_I64LE, 1); }
static void pool_new(hid_t f) { put_str(f, G0, "pool", "p"); }
static void prompt_new(hid_t f)
{
	put_int(f, "/requests/0", "prompt_tokens", H5T_STD_U64LE, 2);
}

static void cells_gone(hid_t f) { H5Ldelete(f, G0 "/content_digest", H5P_DEFAULT); }

static void cells_sum_other(hid_t f)
{
	put_int(f, G0 "/content_digest", "checksum", H5T_STD_U64LE, 1);
}

static void sum_missing(hid_t f) { drop_attr(f, "/", "tables_checksum"); }
static void sum_signed(hid_t f) { put_int(f, "/", "tables_checksum", H5T_STD_I64LE, 1); }

static void version_lower(hid_t f)
{
	put(f, "/", "format_version", H5T_STD_U32LE, 2, (uint32_t[]){ 1, 0 });
}

static const struct row {
	const char *name;
	void (*damage)(hid_t file);
	const char *why;		/* NULL: it is none */
} rows[] = {
	{ "nothing", nothing, NULL },
	{ "unprove", unprove, NULL },
	{ "names_other", names_other, "tables or attributes are damaged" },
	{ "ids_gone", ids_gone, "tables or attributes are damaged" },
	{ "ids_new", ids_new, "tables or attributes are damaged" },
	{ "table_other", table_other, "tables or attributes are damaged" },
	{ "request_other", request_other, "tables or attributes are damaged" },
	{ "request_gone", request_gone, "tables or attributes are damaged" },
	{ "heads_other", heads_other, "tables or attributes are damaged" },
	{ "window_new", window_new, "tables or attributes are damaged" },
	{ "retained_new", retained_new, "tables or attributes are damaged" },
	{ "null_new", null_new, "tables or attributes are damaged" },
	{ "pool_new", pool_new, "tables or attributes are damaged" },
	{ "prompt_new", prompt_new, "tables or attributes are damaged" },
	{ "cells_gone", cells_gone, "tables or attributes are damaged" },
	{ "cells_sum_other", cells_sum_other, "tables or attributes are damaged" },
	{ "sum_missing", sum_missing, "attribute tables_checksum is missing, which "
				      "version 1.1 has" },
	{ "sum_signed", sum_signed, "tables_checksum is not a little-endian integer" },
	{ "version_lower", version_lower, "format_version is 1.0, which has no attribute "
					  "tables_checksum, but there is one" },
};

static enum kvt_status open_changed(struct kvt_dump **reader, void (*change)(hid_t),
				    struct kvt_error *err)
{
	hid_t file;

	write_good(path, "nhd");
	file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
	assert_true(file >= 0);
	change(file);
	H5Fclose(file);
	*reader = NULL;
	return kvt_open(reader, path, NULL, err);
}

static void tables(void **state)
{
	const struct row *row = *state;
	struct kvt_dump *reader;
	enum kvt_status status = open_changed(&reader, row->damage, &why);

	if (status != (row->why ? KVT_BAD_INPUT : KVT_OK) ||
	    (row->why && !strstr(why.text, row->why)))
		fail_msg("status %d: %s", status, why.text);
	if (!row->why) {
		assert_int_equal(kvt_dump_proven(reader)->tables,
				 row->damage == nothing);
		assert_int_equal(kvt_dump_proven(reader)->cells[0],
				 row->damage == nothing);
	}
	kvt_dump_close(reader);
}

/* ---- cells -------------------------------------------------------------- */

static void other_cell(hid_t f)
{
	hid_t cells = H5Dopen2(f, G0 "/content_digest", H5P_DEFAULT);
	uint64_t all[2 * 5 * 2 * 2];

	H5Dread(cells, H5T_STD_U64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, all);
	all[39] ^= 1;
	H5Dwrite(cells, H5T_STD_U64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, all);
	H5Dclose(cells);
}

/* The file opens; whoever wants any of the cells hears of it. */
static void cells(void)
{
	struct kvt_box box = { .end = { 1, 1, 16, 2, 2, 64 } };
	struct kvt_dump *reader;
	uint64_t some[4];

	ok(open_changed(&reader, nothing, &why));
	ok(kvt_read_cells(reader, 0, &box, some, &why));
	kvt_dump_close(reader);
	ok(open_changed(&reader, other_cell, &why));
	expect(kvt_read_cells(reader, 0, &box, some, &why), KVT_BAD_INPUT,
	       "content_digest is damaged");
	kvt_dump_close(reader);
}

/* ---- bytes -------------------------------------------------------------- */

enum { BEGIN = 1000, LENGTH = 3 * KVT_RANGE_BYTES + 77, ALL = BEGIN + LENGTH + 500 };
static uint8_t bytes[ALL], other[ALL];

struct bytes {
	struct kvt_files files;
	struct kvt_file_proof proof;
	uint64_t sum[4];
};

static void start(struct bytes *b)
{
	int index;

	*b = (struct bytes){ .sum = { 0 } };
	unlink(path);
	ok(kvt_files_create(&b->files, &index, path, ALL, &why));
	ok(kvt_proof_add(&b->proof, BEGIN, LENGTH, b->sum, &why));
	b->files.file[0].proof = &b->proof;
	for (int i = 0; i < ALL; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
}

static void end(struct bytes *b)
{
	kvt_proof_free(&b->proof);
	kvt_files_close(&b->files);
}

/* In steps of 'step' bytes, which no range has to begin or end with. */
static void write_in(struct bytes *b, int step)
{
	for (int at = 0; at < ALL; at += step)
		ok(kvt_file_write(&b->files.file[0], bytes + at,
				  at + step < ALL ? step : ALL - at, at, &why));
	ok(kvt_proof_complete(&b->files.file[0], &why));
}

/* As somebody else would, whose sums these are not. */
static void put_byte(struct bytes *b, int at, uint8_t value)
{
	struct kvt_file plain = b->files.file[0];

	plain.proof = NULL;
	ok(kvt_file_write(&plain, &value, 1, at, &why));
}

static enum kvt_status read_at(struct bytes *b, int at, int n)
{
	memset(other, 0xa5, ALL);
	return kvt_file_read(&b->files.file[0], other + at, n, at, &why);
}

/* A reader of its own: what it has seen is not what another one has. */
static void again(struct bytes *b)
{
	kvt_proof_free(&b->proof);
	ok(kvt_proof_add(&b->proof, BEGIN, LENGTH, b->sum, &why));
}

static void any_steps(void)
{
	static const int steps[] = { 1, 1000, 4096, KVT_RANGE_BYTES, 100000, ALL };
	uint64_t sum[4];
	struct bytes b;

	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		start(&b);
		write_in(&b, steps[i]);
		if (i)
			assert_memory_equal(sum, b.sum, sizeof(sum));
		memcpy(sum, b.sum, sizeof(sum));
		again(&b);
		ok(read_at(&b, 0, ALL));
		assert_memory_equal(bytes, other, ALL);
		end(&b);
	}
}

/* A byte of each range, before and behind: whose reads hear of it. */
static void every_range(void)
{
	static const int at[] = { 0, BEGIN - 1, BEGIN, BEGIN + KVT_RANGE_BYTES - 1,
				  BEGIN + KVT_RANGE_BYTES, BEGIN + 2 * KVT_RANGE_BYTES,
				  BEGIN + LENGTH - 1, BEGIN + LENGTH, ALL - 1 };
	struct bytes b;

	start(&b);
	write_in(&b, ALL);
	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		bool inside = at[i] >= BEGIN && at[i] < BEGIN + LENGTH;
		int range = inside ? (at[i] - BEGIN) / KVT_RANGE_BYTES : -1;

		put_byte(&b, at[i], bytes[at[i]] ^ 1);
		again(&b);
		assert_int_equal(read_at(&b, 0, ALL), inside ? KVT_BAD_INPUT : KVT_OK);
		for (int p = 0; p < 4; p++) {
			again(&b);
			/* another byte of the range than the damaged one */
			assert_int_equal(read_at(&b, BEGIN + p * KVT_RANGE_BYTES + 1, 8),
					 p == range ? KVT_BAD_INPUT : KVT_OK);
		}
		put_byte(&b, at[i], bytes[at[i]]);
	}
	again(&b);
	ok(read_at(&b, BEGIN + LENGTH + 3, 90));
	ok(read_at(&b, BEGIN - 9, 20));
	assert_memory_equal(bytes + BEGIN - 9, other + BEGIN - 9, 20);
	end(&b);
}

/* Whole ranges keep the sum of what was to be written, whatever the disk has. */
static void sums_from_memory(void)
{
	struct bytes b;

	start(&b);
	ok(kvt_file_write(&b.files.file[0], bytes, ALL, 0, &why));
	put_byte(&b, BEGIN + 5, bytes[BEGIN + 5] ^ 8);
	ok(kvt_proof_complete(&b.files.file[0], &why));
	again(&b);
	assert_int_equal(read_at(&b, BEGIN, 1), KVT_BAD_INPUT);
	end(&b);
}

/* ---- one sum of all ------------------------------------------------------ */

/* A member of several ranges, one inside it, and one behind, whose sum is wrong. */
static void start_members(struct bytes *b)
{
	const int end = BEGIN + LENGTH;
	uint32_t sum = (uint32_t)crc32_z(0, bytes + BEGIN, LENGTH);

	kvt_proof_free(&b->proof);
	assert_int_equal(kvt_proof_add_member(&b->proof, end, 500, 1, "after", &why), 0);
	assert_int_equal(kvt_proof_add_member(&b->proof, BEGIN, LENGTH, sum, "all", &why),
			 0);
	sum = (uint32_t)crc32_z(0, bytes + BEGIN + 100, 50);
	assert_int_equal(kvt_proof_add_member(&b->proof, BEGIN + 100, 50, sum, "in",
					      &why), 0);
}

static enum kvt_status settle(const struct bytes *b, int64_t *i, bool all,
			      struct kvt_error *err)
{
	return kvt_proof_settle(&b->files.file[0], i, all, NULL, err);
}

static void members(void)
{
	static const struct {
		int at, n, damaged;	/* what is read; a wrong byte of it, or none */
		const char *name;	/* of the member that is found */
	} reads[] = {
		{ BEGIN, LENGTH, 0, NULL }, { BEGIN + LENGTH - 1, 1, 0, NULL },
		{ 0, BEGIN, BEGIN, NULL }, { BEGIN + 7, 1, BEGIN + LENGTH - 1, "all" },
		{ BEGIN + KVT_RANGE_BYTES, 9, BEGIN + 120, "all" },
		{ BEGIN + 149, 1, BEGIN + 100, "all" }, { BEGIN + LENGTH, 1, 0, "after" },
		{ BEGIN + LENGTH - 1, 2, 0, "after" }, { 0, ALL, BEGIN + 150, "all" },
	};
	struct bytes b;

	start(&b);
	ok(kvt_file_write(&b.files.file[0], bytes, ALL, 0, &why));
	for (size_t r = 0; r < sizeof(reads) / sizeof(*reads); r++) {
		int64_t i = 0;

		if (reads[r].damaged)
			put_byte(&b, reads[r].damaged, bytes[reads[r].damaged] ^ 4);
		start_members(&b);
		ok(settle(&b, &i, false, &why));
		ok(read_at(&b, reads[r].at, reads[r].n));
		for (int again = 0; again < 2; again++) {
			i = 0;
			assert_int_equal(settle(&b, &i, false, &why),
					 reads[r].name ? KVT_BAD_INPUT : KVT_OK);
			if (reads[r].name)
				assert_non_null(strstr(why.text, reads[r].name));
		}
		put_byte(&b, reads[r].damaged, bytes[reads[r].damaged]);
	}
	end(&b);
}

/* All of them, one after the other, whatever was read. */
static void all_members(void)
{
	struct bytes b;
	int64_t i = 0;

	start(&b);
	ok(kvt_file_write(&b.files.file[0], bytes, ALL, 0, &why));
	put_byte(&b, BEGIN + 120, bytes[BEGIN + 120] ^ 4);
	start_members(&b);
	for (int n = 1; n <= 3; n++) {
		expect(settle(&b, &i, true, &why), KVT_BAD_INPUT, NULL);
		assert_int_equal(i, n);
	}
	ok(settle(&b, &i, true, &why));
	end(&b);
}

TESTS_AROUND("hdf5_proof", make_names, remove_files,
	EACH_BY(rows, name, tables), TEST(cells), TEST(any_steps), TEST(every_range),
	TEST(sums_from_memory), TEST(members), TEST(all_members))
