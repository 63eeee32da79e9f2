/* SPDX-License-Identifier: Apache-2.0 */
/* test_manifest_proof.c - a manifest and its file: what damage tells them apart */
#include "tests/fewer.h"
#include "tests/unit/fixture.h"

#include <fcntl.h>

/* ---- the checksum ------------------------------------------------------- */

/* By its definition, a bit at a time. */
static uint32_t crc_by_bits(uint32_t crc, const uint8_t *p, size_t n)
{
	crc = ~crc;
	while (n--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
	}
	return ~crc;
}

/* ---- samples ------------------------------------------------------------ */

enum { PAGE = 4096, LARGE = 64 << 20 };

static struct kvt_file_sum sum_of(const char *path)
{
	struct kvt_files files = { .count = 0 };
	struct kvt_file_sum sum;
	int index;

	ok(kvt_files_open(&files, &index, path, &why));
	ok(kvt_file_sum(&sum, &files.file[index], &why));
	kvt_files_close(&files);
	return sum;
}

static void poke(const char *path, int64_t at, uint8_t bits)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= bits;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* Up to 4 MiB every byte counts; a byte more, and it is samples. */
static void test_whole(void **state)
{
	static const size_t sizes[] = { 0, 1, 7, PAGE - 1, PAGE, PAGE + 1, 100000,
					(4 << 20) - 1, 4 << 20 };
	struct path p = join(*state, "f");
	uint8_t *bytes = room(4 << 20);

	for (size_t i = 0; i < 4 << 20; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 24);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		struct kvt_file_sum sum;

		write_file(p.s, bytes, sizes[i]);
		sum = sum_of(p.s);
		assert_int_equal(sum.nbytes, sizes[i]);
		assert_int_equal(sum.crc32, crc_by_bits(0, bytes, sizes[i]));
	}
}

/* A run of 1/512 of a file cannot hide between two samples, wherever it begins. */
static void test_runs(void **state)
{
	enum { RUN = LARGE / 512 };
	struct path p = join(*state, "f");
	uint8_t *run = room(RUN), *none = zeros(RUN);
	struct kvt_file_sum before;
	uint64_t random = 88172645463325252u;
	int fd;

	memset(run, 0x5a, RUN);
	write_file(p.s, "", 0);
	assert_int_equal(truncate(p.s, LARGE), 0);
	before = sum_of(p.s);
	assert_int_equal(before.nbytes, LARGE);
	fd = open(p.s, O_RDWR);
	for (int i = 0; i < 60; i++) {
		int64_t at = i == 0 ? 0 : i == 1 ? LARGE - RUN :
			     (int64_t)(random % (LARGE - RUN));

		assert_int_equal(pwrite(fd, run, RUN, at), RUN);
		assert_int_not_equal(sum_of(p.s).crc32, before.crc32);
		assert_int_equal(pwrite(fd, none, RUN, at), RUN);
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
	}
	assert_int_equal(sum_of(p.s).crc32, before.crc32);
	close(fd);
}

/* The first and the last byte are always sampled; a size is no size of another. */
static void test_ends(void **state)
{
	struct path p = join(*state, "f");
	struct kvt_file_sum before;

	write_file(p.s, "", 0);
	for (int64_t size = (4 << 20) + 1; size < LARGE; size = size * 3 + 11) {
		assert_int_equal(truncate(p.s, size), 0);
		before = sum_of(p.s);
		assert_int_equal(before.nbytes, size);
		for (int end = 0; end < 2; end++) {
			poke(p.s, end ? size - 1 : 0, 1);
			assert_int_not_equal(sum_of(p.s).crc32, before.crc32);
			poke(p.s, end ? size - 1 : 0, 1);
		}
	}
}

/* ---- pairs -------------------------------------------------------------- */

struct pair {
	const char *data, *side;
};

static struct pair pairs[] = { { "a.npy", "a.json" }, { "a.bin", "a.bin.json" } };

static enum kvt_status try_open(const char *path, bool trust, struct kvt_error *err)
{
	struct kvt_hints hints = { .trust_manifest = trust };
	struct kvt_dump *reader;
	enum kvt_status status = kvt_open(&reader, path, &hints, err);

	if (!status)
		kvt_dump_close(reader);
	return status;
}

static void write_pair(const char *folder, const struct pair *pair, const char *layout)
{
	const struct kvt_create_options options = { .force = true, .no_sync = true };
	struct kvt_snapshot *s = small_snapshot(layout, "bf16", false);

	ok(sample_write(join(folder, pair->data).s, s, &options, &why));
}

/* No flipped bit of the data, no cut and no addition is read. */
static void test_damage(void **state)
{
	const struct pair *pair = *state;
	const char *folder = new_folder();
	uint8_t *bytes;
	size_t n, head;
	struct path p;

	write_pair(folder, pair, "nhd");
	p = join(folder, pair->data);
	bytes = read_file(p.s, &n);
	head = n % 1024;
	for (size_t i = 0; i < n; i += every() > 1 ? 9 : 1) {
		enum kvt_status status;

		poke(p.s, (int64_t)i, (uint8_t)(1 << i % 8));
		status = try_open(p.s, false, &why);
		/* of a header the reader of npy may say that it is of another kind */
		if (status != KVT_UNSUPPORTED || i >= head)
			expect(status, KVT_BAD_INPUT, NULL);
		poke(p.s, (int64_t)i, (uint8_t)(1 << i % 8));
	}
	ok(try_open(p.s, false, &why));
	for (size_t i = 0; i < n; i += 97 * every()) {
		write_file(p.s, bytes, i);
		expect(try_open(p.s, false, &why), KVT_BAD_INPUT, NULL);
	}
	write_file(p.s, bytes, n + 1);
	expect(try_open(p.s, false, &why), KVT_BAD_INPUT, NULL);
	/* what was changed on purpose is read when that is said */
	bytes[n - 1] ^= 1;
	write_file(p.s, bytes, n);
	expect(try_open(p.s, false, &why), KVT_BAD_INPUT, "--trust-manifest");
	ok(try_open(p.s, true, &why));
}

/* What each key says by itself; a folder is no file that could be meant instead. */
static void test_keys(void **state)
{
	static const struct {
		const char *says, *part;
	} rows[] = {
		{ "\"a.npy\", \"file_bytes\": 0", "was written for a.npy with 0 bytes" },
		{ "\"a.npy\", \"sample_crc32\": 5", "samples have CRC-32 " },
		{ "\"b.npy\", \"sample_crc32\": 5", "was written for b.npy with 5" },
	};
	const char *folder = *state;
	char text[200];

	write_pair(folder, &pairs[0], "nhd");
	assert_int_equal(mkdir(join(folder, "b.npy").s, 0777), 0);
	for (size_t i = 0; i < LENGTH(rows); i++) {
		snprintf(text, sizeof(text), "{\"layout\": \"nhd\", \"file\": %s}",
			 rows[i].says);
		write_text(join(folder, "a.json").s, text);
		expect(try_open(join(folder, "a.npy").s, false, &why), KVT_BAD_INPUT,
		       rows[i].part);
	}
}

/*
 * Each half of a new pair beside the other half of the old one, as a run leaves
 * them that was killed between two names: the size is the same, the layout is not.
 */
static void test_halves(void **state)
{
	static const char *const layouts[] = { "nhd", "hnd", "bhlsc", "blshc" };
	const struct pair *pair = *state;
	const char *folder = new_folder();
	uint8_t *data[4], *side[4];
	size_t ndata[4], nside[4];

	for (int i = 0; i < 4; i++) {
		write_pair(folder, pair, layouts[i]);
		data[i] = read_file(join(folder, pair->data).s, &ndata[i]);
		side[i] = read_file(join(folder, pair->side).s, &nside[i]);
	}
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++) {
			struct path p = join(folder, pair->data);

			write_file(p.s, data[i], ndata[i]);
			write_file(join(folder, pair->side).s, side[j], nside[j]);
			expect(try_open(p.s, false, &why),
			       i == j ? KVT_OK : KVT_BAD_INPUT, NULL);
		}
}

/* As it lies in the folder that a pair is written in before it gets its name. */
static void test_staged(void **state)
{
	const struct pair *pair = *state;
	struct path from, to, staging;
	const char *folder = new_folder();

	write_pair(folder, pair, "nhd");
	staging = join(folder, "a.tmp-123");
	assert_int_equal(mkdir(staging.s, 0700), 0);
	for (int i = 0; i < 2; i++) {
		from = join(folder, i ? pair->side : pair->data);
		to = join(staging.s, i ? pair->side : pair->data);
		assert_int_equal(rename(from.s, to.s), 0);
	}
	ok(try_open(join(staging.s, pair->data).s, false, &why));
}

TESTS("manifest_proof",
	NAMED_IN_FOLDER(test_whole, "a small file counts as a whole"),
	NAMED_IN_FOLDER(test_runs, "no long run hides in a large one"),
	NAMED_IN_FOLDER(test_ends, "both ends are sampled"),
	NAMED_WITH(&pairs[0], test_damage, "damaged npy"),
	NAMED_WITH(&pairs[1], test_damage, "damaged raw"),
	NAMED_IN_FOLDER(test_keys, "one key of a manifest"),
	NAMED_WITH(&pairs[0], test_halves, "halves of two npy pairs"),
	NAMED_WITH(&pairs[1], test_halves, "halves of two raw pairs"),
	NAMED_WITH(&pairs[0], test_staged, "an npy pair in a folder of its own"),
	NAMED_WITH(&pairs[1], test_staged, "a raw pair in a folder of its own"))
