/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_seen.c - verifying by hashes of what was decoded while it was copied
 *
 * Hashes are made here of the elements that the test numbered.  That nothing is read
 * again is seen by writing zeros over the source; that nothing is missed, by comparing
 * random copies, right and wrong ones, with and without hashes: both must say the same.
 */
#include "tests/fewer.h"
#include "tests/unit/fixture.h"
#include "tests/unit/random.h"

#include <fcntl.h>
#include <xxhash.h>

#include "lib/dump/seen.h"
#include "lib/ops/compare/compare.h"
#include "lib/ops/write/plan.h"

static const int64_t extents[] = { 2, 12, 4, 4, 2, 16 };

/* Tiles of four blocks. */
static const struct kvt_create_options small = { .tile_bytes = 1 << 10,
						 .no_sync = true };

static void drop_seen(void *which)
{
	struct seen *seen = which;

	seen_free(seen);
}

/* Written and read back; 'seen' NULL: nothing is watched. */
static struct kvt_dump *copy(const char *path, const struct kvt_dump *source,
			     const char *layout, struct seen **seen)
{
	struct kvt_writer *writer;
	struct transform t = { .n = 1, .source = &source, .writer = &writer,
			       .run = { .threads = 2 } };
	struct kvt_snapshot to;

	ok(kvt_snapshot_copy(&to, kvt_dump_snapshot(source), &why));
	ok(kvt_layout_parse(&to.group[0].layout, layout, &why));
	ok(kvt_create(&writer, path, &small, &to, &why));
	kvt_snapshot_free(&to);
	ok(transform_plan(&t, &why));
	if (seen)
		ok(transform_watch(&t, &why));
	ok(transform_run(&t, &why));
	ok(kvt_publish(&writer, 1, &why));
	kvt_close_writer(writer);
	if (seen)
		*seen = keep_by(t.seen, drop_seen);
	return open_dump(path);
}

/* As the tables say, but for the element numbered 'wrong'; -1: none. */
static struct kvt_dump *numbered(const char *path, const char *layout, int64_t wrong)
{
	struct kvt_snapshot *s = snapshot_of(layout, extents);
	struct kvt_dump *memory;

	add_request(s, "a", 14, IDS(5, 0, 11, 3));
	memory = number_dump(s, 0);
	if (wrong >= 0)
		((uint32_t *)bytes_of(memory, 0))[wrong] ^= 1;
	return copy(path, memory, layout, NULL);
}

static struct kvt_dump *some_blocks(const struct kvt_dump *dump, int n,
				    const struct kvt_range *blocks)
{
	const struct kvt_slice_options options = { .blocks = { n, blocks } };
	struct kvt_dump *out;

	ok(kvt_dump_slice(&out, dump, &options, &why));
	return keep_dump(out);
}

#define SOME(dump, ...) some_blocks(dump, LENGTH(((struct kvt_range[]){ __VA_ARGS__ })), \
				    (const struct kvt_range[]){ __VA_ARGS__ })

static enum kvt_status verify(const struct kvt_dump *source,
			      const struct kvt_dump *written, const struct seen *seen,
			      struct kvt_error *err)
{
	const struct kvt_run run = { .threads = 2 };

	err->text[0] = '\0';
	return verify_source(source, written, seen, &run, err);
}

/* ---- hashes ------------------------------------------------------------- */

static uint64_t cell_of(const struct kvt_group *g, const int64_t at[KVT_NAXES])
{
	int64_t i[KVT_NAXES], n = 0;
	uint32_t cell[64];

	memcpy(i, at, sizeof(i));
	for (i[NS] = 0; i[NS] < extents[NS]; i[NS]++)
		for (i[ND] = 0; i[ND] < extents[ND]; i[ND]++)
			cell[n++] = number_of(g, 0, i);
	assert_int_equal(n, 64);
	return XXH3_64bits(cell, sizeof(cell));
}

/* Of the tiles that were decoded, and of these alone. */
static void test_hashes(void **state)
{
	struct kvt_dump *source = numbered(join(*state, "a.h5").s, "LBSHKD", -1);
	const struct kvt_group *g = kvt_dump_group(source, 0);
	struct kvt_box firsts = kvt_box_whole(&g->shape);
	int64_t i[KVT_NAXES] = { 0 }, known = 0;
	struct seen *seen;

	assert_int_equal(kvt_dump_tiling(source, 0)->n[NB], 4);
	firsts.end[NS] = firsts.end[ND] = 1;
	copy(join(*state, "b.h5").s, SOME(source, { 1, 3 }, { 10, 11 }), "LBHSKD", &seen);
	assert_int_equal(seen_bytes(seen), 2 * 12 * 4 * 2 * 8);
	do {
		bool read = i[NB] / 4 != 1;

		assert_int_equal(seen_cell(seen, kvt_dump_is_leaf(source), 0, i),
				 read ? cell_of(g, i) : 0);
		known += read;
	} while (next_index(i, &firsts));
	assert_int_equal(known, 2 * 8 * 4 * 2);
}

/* Slots that are no run, no room, and tiles that only move. */
static void test_nothing(void **state)
{
	static const struct kvt_range blocks[] = { { 1, 3 } };
	const char *const layouts[] = { "LBHKDS", "LBSHKD" };
	struct seen *seen;

	for (int l = 0; l < 2; l++) {
		struct kvt_dump *source = numbered(join(*state, l ? "a.h5" : "t.h5").s,
						   layouts[l], -1), *part, *out;

		part = l ? source : some_blocks(source, 1, blocks);
		out = copy(join(*state, l ? "b.h5" : "u.h5").s, part, layouts[l], &seen);
		assert_int_equal(seen_bytes(seen), 0);
		ok(verify(part, out, seen, &why));
		ok(seen_new(&seen, 2 * 12 * 4 * 2 * 8 - 1, &why));
		ok(seen_watch(seen, source, &why));
		assert_false(seen_has(seen, kvt_dump_is_leaf(source), 0));
		seen_free(seen);
	}
}

/* ---- verifying ---------------------------------------------------------- */

static void write_zeros(const char *path)
{
	int fd = open(path, O_WRONLY);
	uint8_t zeros[4096] = { 0 };
	struct stat st;

	assert_true(fd >= 0 && !fstat(fd, &st));
	for (off_t at = 0; at < st.st_size; at += (off_t)sizeof(zeros))
		assert_int_equal(pwrite(fd, zeros, sizeof(zeros), at), sizeof(zeros));
	close(fd);
}

static void test_not_read_again(void **state)
{
	static const struct kvt_range blocks[] = { { 1, 4 }, { 6, 12 } };
	struct path path = join(*state, "a.h5");
	struct kvt_dump *source = numbered(path.s, "LBSHKD", -1);
	struct kvt_dump *part = some_blocks(source, 2, blocks), *out;
	struct seen *seen;

	out = copy(join(*state, "b.h5").s, part, "LBHSKD", &seen);
	ok(verify(part, out, NULL, &why));
	write_zeros(path.s);
	ok(verify(part, out, seen, &why));
	assert_int_not_equal(verify(part, out, NULL, &why), KVT_OK);
}

/* A hash that is wrong, here of a tile of noise: what is right is read, and found so. */
static void test_wrong_hash(void **state)
{
	static const struct kvt_range blocks[] = { { 1, 4 } };
	const int64_t begin[KVT_NAXES] = { 0 };
	struct kvt_dump *source = numbered(join(*state, "a.h5").s, "LBSHKD", -1);
	struct kvt_dump *part = some_blocks(source, 1, blocks), *out;
	uint8_t noise[1 << 10];
	struct seen *seen;

	out = copy(join(*state, "b.h5").s, part, "LBHSKD", &seen);
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)(i * 37);
	assert_int_equal(kvt_dump_tiling(source, 0)->nbytes, sizeof(noise));
	seen_tile(seen, kvt_dump_is_leaf(source), 0, begin, noise);
	ok(verify(part, out, seen, &why));
}

/* Blocks of a random half of the pool, in order. */
static int draw_blocks(struct kvt_range blocks[12])
{
	int n = 0;

	for (int b = 0; b < 12; b++)
		if (below(2) || (b == 11 && !n))
			blocks[n++] = (struct kvt_range){ b, b + 1 };
	return n;
}

/* True: the element that is wrong was found. */
static bool check_copy(const char *folder, const char *from, const char *to)
{
	const int64_t count = extents[NL] * extents[NB] * extents[NS] * extents[NH] *
			      extents[NK] * extents[ND];
	struct kvt_dump *source = numbered(join(folder, "a.h5").s, from, -1);
	struct kvt_dump *other = numbered(join(folder, "o.h5").s, from, below(count));
	struct kvt_dump *part, *wrong, *copied, *differs;
	struct kvt_range blocks[12];
	struct kvt_error with = { "" }, without = { "" };
	int n = draw_blocks(blocks);
	enum kvt_status status;
	struct seen *seen;

	part = some_blocks(source, n, blocks);
	wrong = some_blocks(other, n, blocks);
	copied = copy(join(folder, "b.h5").s, part, to, &seen);
	differs = copy(join(folder, "c.h5").s, wrong, to, NULL);
	ok(verify(part, copied, seen, &why));
	status = verify(part, differs, NULL, &without);
	assert_int_equal(verify(part, differs, seen, &with), status);
	assert_string_equal(with.text, without.text);
	assert_true(status == KVT_OK || status == KVT_MISMATCH);
	let_go();
	remove_tree(folder);
	assert_int_equal(mkdir(folder, 0700), 0);
	return status == KVT_MISMATCH;
}

static void test_random(void **state)
{
	static const char *const layouts[] = { "LBSHKD", "LBHSKD", "BLSHKD", "LBHKDS",
					       "BHLSKD", "LBKSHD" };
	int found = 0;

	seed = 1;
	for (int round = 0; round < fewer(60); round++)
		found += check_copy(*state, layouts[below(6)], layouts[below(6)]);
	assert_true(every() > 1 || (found > 10 && found < 50));
}

TESTS("seen",
	IN_FOLDER(test_hashes), IN_FOLDER(test_nothing), IN_FOLDER(test_not_read_again),
	IN_FOLDER(test_wrong_hash), IN_FOLDER(test_random))
