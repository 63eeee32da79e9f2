/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hdf5_foreign.c - snapshots that HDF5 itself wrote, or that time, disks
 * and other programs have changed
 */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/hdf5/zstd_filter.h"
#include "tests/fewer.h"
#include "tests/damage.h"
#include "tests/temporary.h"
#include "tests/unit/tests.h"

static char path[TEMPORARY_NAME];

static int make_names(void **state)
{
	(void)state;
	temporary_file(path, "foreign");
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	H5Zregister(&kvt_zstd_filter);
	return 0;
}

static int remove_files(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

/* ---- reading ------------------------------------------------------------ */

/* KVT_OK if every tile decodes to what was written, KVT_MISMATCH if not. */
static enum kvt_status read_tiles(struct kvt_dump *reader,
				  struct kvt_error *err)
{
	const struct kvt_group *group = &kvt_dump_snapshot(reader)->group[0];
	const struct kvt_tiling *tiling = kvt_dump_tiling(reader, 0);
	struct kvt_stored stored = { .capacity = kvt_stored_bound(tiling) };
	uint8_t *tile = malloc((size_t)tiling->nbytes);
	struct kvt_codec_scratch *scratch = NULL;
	int64_t begin[KVT_NAXES] = { 0 };
	enum kvt_status status = kvt_codec_scratch_new(&scratch, err);

	stored.bytes = malloc((size_t)stored.capacity);
	do {
		struct kvt_box box = sample_tile_box(tiling, begin);

		if (!status)
			status = kvt_read_tile(reader, 0, begin, &stored, err);
		if (!status)
			status = kvt_decode(tile, &stored, tiling, scratch, err);
		if (!status && !sample_box(tile, group, 0, &box, true))
			status = kvt_fail(err, KVT_MISMATCH, "wrong data");
	} while (!status && sample_next_tile(begin, tiling, &group->shape));
	kvt_codec_scratch_free(scratch);
	free(stored.bytes);
	free(tile);
	return status;
}

static enum kvt_status read_all(struct kvt_error *err)
{
	struct kvt_dump *reader = NULL;
	enum kvt_status status = kvt_open(&reader, path, NULL, err);

	if (!status)
		status = read_tiles(reader, err);
	kvt_dump_close(reader);
	return status;
}

/* ---- what HDF5 makes of it ---------------------------------------------- */

static void *plain_data(int64_t *nbytes)
{
	struct kvt_group group;
	struct kvt_box box;
	int64_t n[KVT_NAXES] = { 2, 5, 16, 2, 2, 64 };
	void *buf;

	assert_int_equal(sample_group(&group, "nhd", "bfloat16", n, NULL), 0);
	box = kvt_box_whole(&group.shape);
	assert_int_equal(kvt_shape_nbytes(nbytes, &group.shape, NULL), 0);
	buf = malloc((size_t)*nbytes);
	sample_box(buf, &group, 0, &box, false);
	return buf;
}

/* Our file through HDF5's own reading, with its shuffle and its Fletcher-32. */
static void hdf5_reads_ours(void)
{
	int64_t nbytes;
	void *expected = plain_data(&nbytes), *buf = malloc((size_t)nbytes);
	hid_t file, data, type;

	write_good(path, "nhd");
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	data = H5Dopen2(file, DATA, H5P_DEFAULT);
	type = H5Dget_type(data);
	assert_true(H5Dread(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, buf) >= 0);
	assert_memory_equal(buf, expected, (size_t)nbytes);
	H5Tclose(type);
	H5Dclose(data);
	H5Fclose(file);
	free(buf);
	free(expected);
}

enum { SHUFFLE = 1, ZSTD = 2, FLETCHER32 = 4, RAW_EDGES = 8 };

/* The same data in chunks of HDF5's making. */
static void rewrite(hid_t dcpl, int filters)
{
	int64_t nbytes;
	void *plain = plain_data(&nbytes);
	hid_t file, data, type;
	unsigned level = 3;

	if (filters & SHUFFLE)
		H5Pset_shuffle(dcpl);
	if (filters & ZSTD)
		H5Pset_filter(dcpl, KVT_ZSTD_FILTER, 0, 1, &level);
	if (filters & FLETCHER32)
		H5Pset_fletcher32(dcpl);
	if (filters & RAW_EDGES)
		H5Pset_chunk_opts(dcpl, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
	write_good(path, "nhd");
	file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
	put_data(file, dcpl, 0, NULL);
	data = H5Dopen2(file, DATA, H5P_DEFAULT);
	type = H5Dget_type(data);
	assert_true(H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, plain) >= 0);
	H5Tclose(type);
	H5Dclose(data);
	H5Fclose(file);
	free(plain);
}

static void we_read_hdf5s(void)
{
	for (int filters = 0; filters < 16; filters++) {
		rewrite(chunked(1, 4, 16, 1, 1, 64), filters);
		if (read_all(&why))
			fail_msg("filters %d: %s", filters, why.text);
	}
}

static void any_chunk_shape(void)
{
	static const hsize_t rows[][KVT_NAXES] = {
		/* L B S H K D */
		{ 2, 5, 16, 2, 2, 64 }, { 1, 1, 16, 2, 2, 64 },
		{ 2, 1, 1, 1, 1, 1 },   { 1, 3, 5, 2, 1, 7 },
		{ 1, 16, 16, 1, 1, 64 }, { 2, 16, 7, 1, 2, 33 },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		const hsize_t *n = rows[i];

		rewrite(chunked(n[0], n[1], n[2], n[3], n[4], n[5]),
			SHUFFLE | ZSTD | FLETCHER32);
		if (read_all(&why))
			fail_msg("row %zu: %s", i, why.text);
	}
}

/* D/x S x: chunks of whole inner parts are boxes, others are not. */
static void chunks_of_split_axes(void)
{
	static const char *const planes[] = { G0 "/data_k", G0 "/data_v" };
	static const struct {
		hsize_t n[2][6];
		enum kvt_status status;
		const char *why;
	} rows[] = {
		/* L B H D/x S x, then L B H D S; data is missing: looked for */
		{ { { 1, 1, 1, 4, 16, 8 }, { 1, 1, 1, 32, 16 } },
		  KVT_BAD_INPUT, "missing" },
		{ { { 1, 1, 1, 4, 16, 8 }, { 1, 1, 1, 16, 16 } },
		  KVT_UNSUPPORTED, "chunked differently" },
		{ { { 1, 1, 1, 4, 16, 4 }, { 1, 1, 1, 32, 16 } },
		  KVT_UNSUPPORTED, "cut dim_inner" },
	};

	for (size_t i = 0; i < 3; i++) {
		hid_t file;

		write_good(path, "rocm-paged");
		file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
		for (int p = 0; p < 2; p++) {
			hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);

			H5Pset_chunk(dcpl, p ? 5 : 6, rows[i].n[p]);
			H5Pset_filter(dcpl, KVT_ZSTD_FILTER, 0, 0, NULL);
			H5Lmove(file, planes[p], file, DATA, H5P_DEFAULT,
				H5P_DEFAULT);
			put_data(file, dcpl, 0, NULL);
			H5Lmove(file, DATA, file, planes[p], H5P_DEFAULT,
				H5P_DEFAULT);
		}
		H5Fclose(file);
		if (read_all(&why) != rows[i].status ||
		    !strstr(why.text, rows[i].why))
			fail_msg("row %zu: %s", i, why.text);
	}
}

/* ---- damage ------------------------------------------------------------- */

static void a_missing_tile(void)
{
	hid_t file, dcpl = chunked(1, 4, 16, 1, 1, 64);

	write_good(path, "nhd");
	file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
	H5Pset_filter(dcpl, KVT_ZSTD_FILTER, 0, 0, NULL);
	put_data(file, dcpl, 0, NULL);
	H5Fclose(file);
	expect(read_all(&why), KVT_BAD_INPUT, "block 0, slot 0, head 0, kv 0: missing");
}

static long file_size(void)
{
	struct stat st;

	return stat(path, &st) ? 0 : (long)st.st_size;
}

static void flip(long bit)
{
	FILE *f = fopen(path, "r+b");
	int c;

	fseek(f, bit / 8, SEEK_SET);
	c = getc(f);
	fseek(f, bit / 8, SEEK_SET);
	putc(c ^ 1 << bit % 8, f);
	fclose(f);
}

/*
 * libhdf5 1.10 loses memory when it refuses a damaged object, which is not what
 * is tested here: a child of its own goes without being asked what it leaves.
 */
static bool in_child(bool (*test)(void))
{
	int fd[2];
	char answer = 'n';

	assert_int_equal(pipe(fd), 0);
	if (fork() == 0) {
		answer = test() ? 'y' : 'n';
		if (write(fd[1], &answer, 1) == 1)
			raise(SIGKILL);
		_exit(1);
	}
	close(fd[1]);
	if (read(fd[0], &answer, 1) != 1)
		answer = 'n';
	close(fd[0]);
	wait(NULL);
	return answer == 'y';
}

static bool every_flip_is_found_or_harmless(void)
{
	long bits = 8 * file_size(), found = 0, flips = 0;

	for (long bit = 5; bit < bits; bit += 1999 * every(), flips++) {
		enum kvt_status status;

		flip(bit);
		status = read_all(&why);
		flip(bit);
		if (status == KVT_MISMATCH)
			return false;
		found += status != KVT_OK;
	}
	/* cells and labels have no checksum, and there are gaps */
	return found > flips * 3 / 4 && read_all(&why) == KVT_OK;
}

/* Wherever it is: an error, or the right data; never other data. */
static void a_flipped_bit(void)
{
	write_good(path, "nhd");
	assert_true(in_child(every_flip_is_found_or_harmless));
}

static bool every_cut_is_found(void)
{
	for (long n = file_size() - 1; n > 0; n -= 1 + n / 20 * every())
		if (truncate(path, n) || read_all(&why) != KVT_BAD_INPUT)
			return false;
	return true;
}

static void a_short_file(void)
{
	write_good(path, "nhd");
	assert_true(in_child(every_cut_is_found));
}

static void what_is_no_file(void)
{
	struct kvt_hints hints = { .format = "hdf5" };
	struct kvt_dump *reader = NULL;
	FILE *f;

	unlink(path);
	expect(kvt_open(&reader, path, &hints, &why), KVT_SYSTEM, NULL);
	assert_int_equal(mkfifo(path, 0600), 0);
	expect(kvt_open(&reader, path, &hints, &why), KVT_BAD_INPUT, NULL);
	unlink(path);
	f = fopen(path, "w");
	fputs("no HDF5 at all", f);
	fclose(f);
	expect(kvt_open(&reader, path, &hints, &why), KVT_BAD_INPUT, "not an HDF5 file");
}

static void a_file_being_written(void)
{
	hid_t file;

	write_good(path, "nhd");
	file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
	assert_int_not_equal(read_all(&why), KVT_OK);
	H5Fclose(file);
	ok(read_all(&why));
}

static void a_user_block(void)
{
	hid_t fcpl = H5Pcreate(H5P_FILE_CREATE);
	struct kvt_dump *reader = NULL;

	H5Pset_userblock(fcpl, 1024);
	H5Fclose(H5Fcreate(path, H5F_ACC_TRUNC, fcpl, H5P_DEFAULT));
	H5Pclose(fcpl);
	/* found behind it, and named for what it is */
	expect(kvt_open(&reader, path, NULL, &why), KVT_UNSUPPORTED, "user block");
}

/* ---- calls -------------------------------------------------------------- */

static void hints_that_differ(void)
{
	static const struct {
		struct kvt_hints hints;
		enum kvt_status status;
	} rows[] = {
		{ { .layout = "nhd", .dtype = "bf16", .layers = 2, .blocks = 5,
		    .block_size = 16, .heads = 2, .head_dim = 64 }, KVT_OK },
		{ { .layout = "hnd" }, KVT_BAD_INPUT },
		{ { .dtype = "fp16" }, KVT_BAD_INPUT },
		{ { .layers = 3 }, KVT_BAD_INPUT },
		{ { .content = 64 }, KVT_BAD_INPUT },
		{ { .dtype = "real" }, KVT_USAGE },
		{ { .layout = "upside down" }, KVT_USAGE },
		{ { .skip = 8 }, KVT_USAGE },
	};

	write_good(path, "nhd");
	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_dump *reader = NULL;

		assert_int_equal(kvt_open(&reader, path, &rows[i].hints, NULL),
				 rows[i].status);
		kvt_dump_close(reader);
	}
}

static void tiles_that_are_none(void)
{
	static const int64_t begins[][KVT_NAXES] = {
		{ 2 }, { -1 }, { 0, 4 }, { 0, 0, 8 }, { 0, 0, 0, 2 },
		{ 0, 0, 0, 0, 2 }, { 0, 0, 0, 0, 0, 1 },
	};
	struct kvt_stored stored = { 0 };
	struct kvt_dump *reader;

	write_good(path, "nhd");
	ok(kvt_open(&reader, path, NULL, NULL));
	for (size_t i = 0; i < LENGTH(begins); i++)
		assert_int_equal(kvt_read_tile(reader, 0, begins[i], &stored,
						NULL), KVT_USAGE);
	assert_int_equal(kvt_read_tile(reader, 1, begins[0], &stored, NULL),
			 KVT_USAGE);
	kvt_dump_close(reader);
}

TESTS_AROUND("hdf5_foreign", make_names, remove_files,
	TEST(hdf5_reads_ours), TEST(we_read_hdf5s), TEST(any_chunk_shape),
	TEST(chunks_of_split_axes), TEST(a_missing_tile), TEST(a_flipped_bit),
	TEST(a_short_file), TEST(what_is_no_file), TEST(a_file_being_written),
	TEST(a_user_block), TEST(hints_that_differ), TEST(tiles_that_are_none))
