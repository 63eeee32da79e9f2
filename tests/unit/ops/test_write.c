/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_write.c - derived dumps into files, read back and held against what they say
 *
 * Snapshots have tiles and cells: of tiles that move, the stored bytes must be those
 * of the source; cells are hashed here from the elements, but by the product.
 */
#include "tests/unit/fixture.h"

#include <xxhash.h>

#include "lib/ops/write/plan.h"
#include "lib/run/leaf.h"

static const int64_t extents[] = { 4, 12, 4, 4, 2, 16 };

static struct kvt_snapshot *describe(const char *layout)
{
	struct kvt_snapshot *s = snapshot_of(layout, extents);

	add_request(s, "a", 14, IDS(5, 0, 11, 3));
	return s;
}

/* ---- writing ------------------------------------------------------------ */

/* What became of it. */
struct outcome {
	bool direct, make_cells, hold_cells;
	int64_t ntiles, moved;
	int64_t memory;
};

static enum kvt_status transform(struct outcome *out, const char *path,
				 const struct kvt_dump *source,
				 const struct kvt_create_options *options,
				 const char *layout, int threads, struct kvt_error *err)
{
	struct kvt_writer *writer;
	struct transform t = { .n = 1, .source = &source, .writer = &writer,
			       .run = { .threads = threads } };
	struct kvt_snapshot to;
	enum kvt_status status;

	ok(kvt_snapshot_copy(&to, kvt_dump_snapshot(source), NULL));
	if (layout)
		ok(kvt_layout_parse(&to.group[0].layout, layout, NULL));
	ok(kvt_create(&writer, path, options, &to, &why));
	kvt_snapshot_free(&to);
	ok(transform_plan(&t, &why));
	*out = (struct outcome){
		t.step[0].direct, t.step[0].make_cells, t.step[0].hold_cells,
		t.step[0].ntiles, tiles_that_move(&t.step[0]), transform_memory(&t),
	};
	if (!(status = transform_run(&t, err)))
		ok(kvt_publish(&writer, 1, &why));
	kvt_close_writer(writer);
	return status;
}

/* ---- what is there ------------------------------------------------------ */

/* The hash of the slots and channels of a layer, block, head and kv. */
static uint64_t cell_of(const uint32_t *numbers, const int64_t n[KVT_NAXES],
			const int64_t at[KVT_NAXES])
{
	uint32_t cell[256];
	int64_t m = 0;

	assert_true(n[NS] * n[ND] <= 256);
	for (int64_t s = 0; s < n[NS]; s++)
		for (int64_t d = 0; d < n[ND]; d++)
			cell[m++] = numbers[((((at[NL] * n[NB] + at[NB]) * n[NS] + s) *
					      n[NH] + at[NH]) * n[NK] + at[NK]) * n[ND] +
					    d];
	return XXH64(cell, (size_t)m * sizeof(*cell), 0);
}

static struct kvt_box cells_box(const struct kvt_box *box)
{
	struct kvt_box firsts = *box;

	firsts.begin[NS] = firsts.begin[ND] = 0;
	firsts.end[NS] = firsts.end[ND] = 1;
	return firsts;
}

static void check_cells(const struct kvt_dump *dump)
{
	const struct kvt_group *g = kvt_dump_group(dump, 0);
	struct kvt_box all = kvt_box_whole(&g->shape), firsts = cells_box(&all);
	uint32_t *numbers = read_numbers(dump, 0);
	int64_t i[KVT_NAXES] = { 0 }, at = 0;
	uint64_t *cells = zeros((size_t)(g->shape.n[NL] * g->shape.n[NB] *
					  g->shape.n[NH] * g->shape.n[NK]) * 8);

	assert_true(kvt_dump_has_cells(dump, 0));
	ok(kvt_read_cells(dump, 0, &all, cells, &why));
	do
		assert_int_equal(cells[at++], cell_of(numbers, g->shape.n, i));
	while (next_index(i, &firsts));
}

/* Written and read back: elements and cells are what they should be. */
static struct kvt_dump *rewrite(struct outcome *out, const char *path,
				const struct kvt_dump *source,
				const struct kvt_create_options *options,
				const char *layout)
{
	struct kvt_dump *dump;

	ok(transform(out, path, source, options, layout, 3, &why));
	dump = open_dump(path);
	check_cells(dump);
	return dump;
}

/* Tiles of 2 layers and 4 blocks or so, that the next writer is to keep. */
static const struct kvt_create_options small = { .tile_bytes = 1 << 10 };

static struct kvt_dump *write_source(const char *folder)
{
	struct outcome out;
	struct kvt_dump *dump = rewrite(&out, join(folder, "a.h5").s,
					number_dump(describe("LBKSHD"), 0), &small, NULL);

	assert_true(out.make_cells);
	assert_false(out.hold_cells);
	assert_false(out.direct);
	assert_true(out.ntiles > 1);
	assert_int_equal(out.moved, 0);
	return dump;
}

static struct kvt_create_options like(const struct kvt_dump *dump)
{
	return (struct kvt_create_options){ .like = kvt_dump_tiling(dump, 0) };
}

static struct kvt_stored load_tile(const struct kvt_dump *dump,
				   const int64_t begin[KVT_NAXES])
{
	int64_t room = kvt_stored_bound(kvt_dump_tiling(dump, 0));
	struct kvt_stored stored = { .bytes = malloc((size_t)room), .capacity = room };

	ok(kvt_read_tile(dump, 0, begin, &stored, &why));
	return stored;
}

/* What of a tile is outside the group is zero. */
static void check_padding(const struct kvt_dump *dump, const int64_t begin[KVT_NAXES])
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(dump, 0);
	const struct kvt_group *g = kvt_dump_group(dump, 0);
	struct kvt_stored stored = load_tile(dump, begin);
	uint32_t *tile = room((size_t)tiling->nbytes);
	struct kvt_codec_scratch *scratch;
	int64_t i[KVT_NAXES], outside = 0;
	struct kvt_box box;

	memcpy(i, begin, sizeof(i));
	for (int a = 0; a < KVT_NAXES; a++) {
		box.begin[a] = begin[a];
		box.end[a] = begin[a] + tiling->n[a];
	}
	ok(kvt_codec_scratch_new(&scratch, &why));
	ok(kvt_decode(tile, &stored, tiling, scratch, &why));
	do {
		uint32_t got = tile[dense_at(g, &box, i) / 4];
		bool inside = true;

		for (int a = 0; a < KVT_NAXES; a++)
			inside &= i[a] < g->shape.n[a];
		expect_number(got, inside ? number_of(g, 0, i) : 0, i);
		outside += !inside;
	} while (next_index(i, &box));
	assert_true(outside > 0);
	kvt_codec_scratch_free(scratch);
	free(stored.bytes);
}

/* Byte for byte the stored tiles of leaves, at the place where they are there. */
static int64_t check_moved(const struct kvt_dump *source, const struct kvt_dump *written)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(written, 0);
	const int64_t *n = kvt_dump_group(written, 0)->shape.n;
	int64_t begin[KVT_NAXES] = { 0 }, count = 0;
	int a = 0;

	while (a >= 0) {
		int64_t there[KVT_NAXES];
		int group = -1;
		const struct kvt_dump *leaf = kvt_dump_trace(source, 0, begin, &group,
							     there);
		struct kvt_stored old, new;

		assert_non_null(leaf);
		old = load_tile(leaf, there);
		new = load_tile(written, begin);
		assert_int_equal(old.nbytes, new.nbytes);
		assert_int_equal(old.filter_mask, new.filter_mask);
		assert_memory_equal(old.bytes, new.bytes, (size_t)old.nbytes);
		free(old.bytes);
		free(new.bytes);
		count++;
		for (a = KVT_NAXES - 1; a >= 0; a--) {
			if ((begin[a] += tiling->n[a]) < n[a])
				break;
			begin[a] = 0;
		}
	}
	return count;
}

/* ---- snapshots ---------------------------------------------------------- */

static void test_snapshot(void **state)
{
	struct kvt_dump *dump = write_source(*state);

	expect_shape(kvt_dump_group(dump, 0), extents);
	expect_table(dump, 0, 0, IDS(5, 0, 11, 3));
	check_places(dump, 0);
}

static struct kvt_dump *slice(const struct kvt_dump *dump,
			      const struct kvt_slice_options *options)
{
	struct kvt_dump *out;

	ok(kvt_dump_slice(&out, dump, options, &why));
	return keep_dump(out);
}

static struct kvt_dump *rank_of(const struct kvt_dump *dump, int64_t size, int64_t rank)
{
	return slice(dump, &(struct kvt_slice_options){ .rank = { size, rank } });
}

/* Whole rows of tiles: they move, and so do cells. */
static void test_tiles_move(void **state)
{
	struct kvt_dump *dump = write_source(*state), *part, *out;
	const struct kvt_tiling *tiling = kvt_dump_tiling(dump, 0);
	const struct kvt_range rows[] = { { tiling->n[NB], 12 } };
	const struct kvt_slice_options options = { .blocks = { 1, rows } };
	const struct kvt_create_options create = like(dump);
	struct outcome outcome;

	assert_true(tiling->n[NB] < 12);
	part = slice(dump, &options);
	out = rewrite(&outcome, join(*state, "b.h5").s, part, &create, NULL);
	assert_true(outcome.direct);
	assert_false(outcome.make_cells);
	assert_int_equal(outcome.moved, outcome.ntiles);
	assert_int_equal(check_moved(part, out), outcome.ntiles);
	check_places(out, 0);
}

/* Blocks out of the middle of tiles: made again, but cells are still theirs. */
static void test_tiles_are_cut(void **state)
{
	static const struct kvt_range blocks[] = { { 1, 4 }, { 6, 7 }, { 9, 12 } };
	const struct kvt_slice_options options = { .blocks = { 3, blocks } };
	int64_t last[KVT_NAXES] = { 0 };
	struct kvt_dump *dump = write_source(*state), *part, *out;
	const struct kvt_create_options create = like(dump);
	struct outcome outcome;

	part = slice(dump, &options);
	out = rewrite(&outcome, join(*state, "b.h5").s, part, &create, NULL);
	assert_false(outcome.make_cells);
	assert_int_equal(outcome.moved, 0);
	expect_blocks(kvt_dump_group(out, 0), IDS64(1, 2, 3, 6, 9, 10, 11));
	check_places(out, 0);
	last[NB] = 6 / kvt_dump_tiling(out, 0)->n[NB] * kvt_dump_tiling(out, 0)->n[NB];
	check_padding(out, last);
}

/* Tiles of other extents: none moves, though the source has them all. */
static void test_other_tiles(void **state)
{
	const struct kvt_create_options large = { .tile_bytes = 1 << 14 };
	struct kvt_dump *dump = write_source(*state), *out;
	struct outcome outcome;

	out = rewrite(&outcome, join(*state, "b.h5").s, dump, &large, NULL);
	assert_int_not_equal(kvt_dump_tiling(out, 0)->nbytes,
			     kvt_dump_tiling(dump, 0)->nbytes);
	assert_false(outcome.direct);
	assert_int_equal(outcome.moved, 0);
	check_places(out, 0);
}

/* Blocks of half the size have no cells yet. */
static void test_reblocked(void **state)
{
	const struct kvt_reblock_options options = { .block_size = 2 };
	struct kvt_dump *dump = write_source(*state), *part, *out;
	struct kvt_reblocked said[KVT_MAX_GROUPS];
	struct outcome outcome;
	uint32_t *old, *new;

	ok(kvt_dump_reblock(&part, said, dump, &options, &why));
	keep_dump(part);
	assert_false(kvt_dump_has_cells(part, 0));
	out = rewrite(&outcome, join(*state, "b.h5").s, part, &small, NULL);
	assert_true(outcome.make_cells);
	expect_table(out, 0, 0, IDS(10, 11, 0, 1, 22, 23, 6));
	/* in the order L B S, all slots follow each other as they did */
	old = read_numbers(dump, 0);
	new = read_numbers(out, 0);
	assert_memory_equal(old, new, 4 * 12 * 4 * 4 * 2 * 16 * 4);
}

/* Two ranks in files of their own, joined: each tile is one of theirs. */
static void test_merged(void **state)
{
	static const char *const names[] = { "r0", "r1" };
	struct kvt_dump *dump = write_source(*state), *all, *out;
	const struct kvt_dump *ranks[2];
	struct kvt_create_options create;
	struct outcome outcome;

	for (int r = 0; r < 2; r++)
		ranks[r] = rewrite(&outcome, join(*state, r ? "r1.h5" : "r0.h5").s,
				   rank_of(dump, 2, r), &small, NULL);
	ok(kvt_dump_merge(&all, ranks, names, 2, &why));
	keep_dump(all);
	create = like(ranks[0]);
	out = rewrite(&outcome, join(*state, "b.h5").s, all, &create, NULL);
	assert_int_equal(outcome.moved, outcome.ntiles);
	assert_int_equal(check_moved(all, out), outcome.ntiles);
	check_places(out, 0);
}

/* The file does not depend on how many threads wrote it; there are seven boxes. */
static void test_threads(void **state)
{
	static const int64_t many[] = { 8, 100, 8, 4, 2, 32 };
	const size_t count = 8 * 100 * 8 * 4 * 2 * 32;
	uint32_t *numbers = room(count * sizeof(*numbers)), seed = 1;
	const void *data[KVT_MAX_GROUPS] = { numbers };
	struct kvt_dump *dump;
	size_t nbytes[2];
	uint8_t *bytes[2];

	/* some of it packs well, and some does not */
	for (size_t i = 0; i < count; i++)
		numbers[i] = (seed = seed * 1664525 + 1013904223) >> (8 + i / 40000 % 24);
	ok(kvt_dump_of_memory(&dump, snapshot_of("LBKSHD", many), data, &why));
	keep_dump(dump);
	for (int i = 0; i < 2; i++) {
		struct path path = join(*state, i ? "many.h5" : "one.h5");
		const struct kvt_create_options options = { .no_sync = true };
		struct outcome outcome;

		ok(transform(&outcome, path.s, dump, &options, NULL, i ? 8 : 1, &why));
		bytes[i] = read_file(path.s, &nbytes[i]);
	}
	assert_int_equal(nbytes[0], nbytes[1]);
	assert_memory_equal(bytes[0], bytes[1], nbytes[0]);
}

/* ---- flat files --------------------------------------------------------- */

/* Tiles into one array in another order. */
static void test_flat(void **state)
{
	static const struct kvt_create_options flat = { .uncompressed = true };
	struct kvt_dump *dump = write_source(*state), *out;
	struct outcome outcome;

	out = rewrite(&outcome, join(*state, "b.h5").s, dump, &flat, "BLHKSD");
	assert_int_equal(outcome.ntiles, 0);
	assert_false(outcome.make_cells);
	assert_null(kvt_dump_tiling(out, 0));
	assert_string_equal(kvt_layout_string(&kvt_dump_group(out, 0)->layout).s,
			    "BLHKSD");
	check_places(out, 0);
}

/* The bytes of a file without a header are those of the layout, one after the other. */
static void test_raw(void **state)
{
	static const struct kvt_create_options raw = { .format = "raw" };
	struct path path = join(*state, "b.bin");
	struct kvt_dump *memory = number_dump(snapshot_of("LBKSHD", extents), 0);
	const struct kvt_group *g = kvt_dump_group(memory, 0);
	const struct kvt_box all = kvt_box_whole(&g->shape);
	int64_t i[KVT_NAXES] = { 0 };
	struct outcome outcome;
	uint32_t *numbers;
	size_t nbytes;

	ok(transform(&outcome, path.s, memory, &raw, "BLHKSD", 4, &why));
	assert_false(outcome.make_cells);
	numbers = (void *)read_file(path.s, &nbytes);
	assert_int_equal(nbytes, box_bytes(g, &all));
	do
		expect_number(numbers[((((i[NB] * 4 + i[NL]) * 4 + i[NH]) * 2 + i[NK])
				       * 4 + i[NS]) * 16 + i[ND]], number_of(g, 0, i), i);
	while (next_index(i, &all));
}

/* ---- cells without a proof ---------------------------------------------- */

/* A leaf of numbers that has cells, one of them wrong if it is told so. */
struct cell_leaf {
	struct kvt_leaf leaf;
	uint32_t *numbers;		/* in the order of the indices */
	bool wrong;
};

static enum kvt_status numbers_read(const struct kvt_leaf *leaf, int group,
				    const struct kvt_box *box, void *buf,
				    struct kvt_error *err)
{
	const struct kvt_group *g = &leaf->snapshot.group[group];
	int64_t i[KVT_NAXES];

	(void)err;
	memcpy(i, box->begin, sizeof(i));
	do
		((uint32_t *)buf)[dense_at(g, box, i) / 4] = number_of(g, 0, i);
	while (next_index(i, box));
	return KVT_OK;
}

static bool numbers_have_cells(const struct kvt_leaf *leaf, int group)
{
	(void)leaf, (void)group;
	return true;
}

static enum kvt_status numbers_cells(const struct kvt_leaf *leaf, int group,
				     const struct kvt_box *box, uint64_t *cells,
				     struct kvt_error *err)
{
	const struct cell_leaf *c = (const struct cell_leaf *)leaf;
	struct kvt_box firsts = cells_box(box);
	int64_t i[KVT_NAXES];

	(void)group, (void)err;
	memcpy(i, firsts.begin, sizeof(i));
	do {
		*cells = cell_of(c->numbers, extents, i);
		if (c->wrong && i[NL] == 2 && i[NB] == 7 && i[NH] == 3 && i[NK] == 1)
			++*cells;
		cells++;
	} while (next_index(i, &firsts));
	return KVT_OK;
}

static void numbers_close(struct kvt_leaf *leaf)
{
	free(leaf);
}

static const struct kvt_leaf_ops numbers_ops = {
	.read_box = numbers_read, .has_cells = numbers_have_cells,
	.fetch_cells = numbers_cells, .close = numbers_close,
};

static struct kvt_dump *make_cells(bool wrong, bool proven)
{
	struct cell_leaf *c = calloc(1, sizeof(*c));
	struct kvt_snapshot *s = describe("LBKSHD");
	struct kvt_dump *dump;

	c->numbers = read_numbers(number_dump(s, 0), 0);
	c->wrong = wrong;
	c->leaf.ops = &numbers_ops;
	c->leaf.format = "test";
	c->leaf.proven.cells[0] = proven;
	ok(kvt_snapshot_copy(&c->leaf.snapshot, s, &why));
	ok(kvt_snapshot_complete(&c->leaf.snapshot, &why));
	ok(kvt_dump_of_leaf(&dump, &c->leaf, &why));
	return keep_dump(dump);
}

/* Cells that nothing proves are made again and held against the stored ones. */
static void test_cells_are_held(void **state)
{
	for (int wrong = 0; wrong < 2; wrong++)
		for (int flat = 0; flat < 2; flat++) {
			struct kvt_create_options options = {
				.uncompressed = flat, .tile_bytes = 1 << 10,
				.force = true,
			};
			struct path path = join(*state, "a.h5");
			struct kvt_dump *dump = make_cells(wrong, false);
			struct outcome outcome;
			enum kvt_status status = transform(&outcome, path.s, dump,
							   &options,
							   NULL, 2, &why);

			assert_true(outcome.make_cells);
			assert_true(outcome.hold_cells);
			expect(status, wrong ? KVT_BAD_INPUT : KVT_OK,
			       "group g0: layer 2 block 7 head 3 kv 1 does not match "
			       "content_digest of the input");
			if (!wrong)
				check_cells(open_dump(path.s));
			let_go();
		}
}

/* Those that the format proves go over as they are. */
static void test_cells_are_copied(void **state)
{
	struct path path = join(*state, "a.h5");
	struct kvt_dump *dump = make_cells(true, true), *out;
	const struct kvt_box all = kvt_box_whole(&kvt_dump_group(dump, 0)->shape);
	struct outcome outcome;
	uint64_t *old = zeros(4 * 12 * 4 * 2 * 8), *new = zeros(4 * 12 * 4 * 2 * 8);

	ok(transform(&outcome, path.s, dump, &small, NULL, 2, &why));
	assert_false(outcome.make_cells);
	out = open_dump(path.s);
	ok(kvt_read_cells(dump, 0, &all, old, &why));
	ok(kvt_read_cells(out, 0, &all, new, &why));
	assert_memory_equal(old, new, 4 * 12 * 4 * 2 * 8);
}

/* ---- several at once ---------------------------------------------------- */

enum { NRANKS = 4 };

/* Ranks of 'dump' into files, all in one run. */
static enum kvt_status write_ranks(struct kvt_dump *out[NRANKS], const char *folder,
				   const char *ending, const struct kvt_dump *dump,
				   const struct spoiled *spoil, struct kvt_error *err)
{
	struct kvt_dump *rank[NRANKS];
	struct kvt_writer *writer[NRANKS];
	struct transform t = {
		.n = NRANKS, .source = (const struct kvt_dump *const *)rank,
		.writer = writer, .spoil = spoil, .run = { .threads = 3 },
	};
	struct path path[NRANKS];
	enum kvt_status status;

	for (int r = 0; r < NRANKS; r++) {
		char name[32];

		snprintf(name, sizeof(name), "rank%d.%s", r, ending);
		path[r] = join(folder, name);
		rank[r] = rank_of(dump, NRANKS, r);
		ok(kvt_create(&writer[r], path[r].s, &small, kvt_dump_snapshot(rank[r]),
			      &why));
	}
	status = spoil ? transform_plan(&t, err) :
		 kvt_write(writer, t.source, NRANKS, &t.run, err);
	if (!status && spoil)
		status = transform_run(&t, err);
	if (!status)
		ok(kvt_publish(writer, NRANKS, &why));
	for (int r = 0; r < NRANKS; r++) {
		kvt_close_writer(writer[r]);
		out[r] = status ? NULL : open_dump(path[r].s);
	}
	return status;
}

/* What ranks share of a leaf is read once, and each has its own. */
static void test_several(void **state)
{
	static const char *const endings[] = { "h5", "npy", "safetensors" };
	struct kvt_dump *from[] = { write_source(*state),
				    number_dump(describe("BSHLKD"), 0) };

	for (int e = 0; e < 3; e++)
		for (int f = 0; f < 2; f++) {
			struct kvt_dump *out[NRANKS];

			ok(write_ranks(out, *state, endings[e], from[f], NULL, &why));
			for (int r = 0; r < NRANKS; r++) {
				char name[32];

				assert_int_equal(kvt_dump_group(out[r], 0)->head_start,
						 r);
				check_places(out[r], 0);
				if (!e)
					check_cells(out[r]);
				snprintf(name, sizeof(name), "rank%d.%s", r, endings[e]);
				remove(join(*state, name).s);
				snprintf(name, sizeof(name), "rank%d.json", r);
				remove(join(*state, name).s);
			}
		}
}

/* One byte, of the writer and element that were named. */
static void test_spoiled(void **state)
{
	const struct spoiled spoil = { .writer = 2, .index = { 3, 7, 2, 0, 1, 5 } };
	struct kvt_dump *dump = write_source(*state), *out[NRANKS];

	ok(write_ranks(out, *state, "h5", dump, &spoil, &why));
	for (int r = 0; r < NRANKS; r++)
		EXPECT_NUMBERS(out[r], 0, i, number_of(kvt_dump_group(out[r], 0), 0, i) ^
			       (r == spoil.writer && !memcmp(i, spoil.index, sizeof(i)) ?
				0xff : 0));
}

static void test_unlike(void **state)
{
	struct kvt_dump *dump = write_source(*state);
	const struct kvt_dump *source[] = { dump, rank_of(dump, 2, 1) };
	struct kvt_writer *writer[2];
	const struct kvt_run run = { .threads = 1 };

	for (int i = 0; i < 2; i++)
		ok(kvt_create(&writer[i], join(*state, i ? "c.h5" : "b.h5").s, &small,
			      kvt_dump_snapshot(source[i]), &why));
	expect(kvt_write(writer, source, 2, &run, &why), KVT_USAGE,
	       "output 2 has another layout than the first");
	for (int i = 0; i < 2; i++)
		kvt_close_writer(writer[i]);
}

/* ---- memory ------------------------------------------------------------- */

/* What it says beforehand is not more than it was told. */
static void test_memory(void **state)
{
	struct kvt_dump *dump = write_source(*state);
	struct path path = join(*state, "b.h5");
	struct kvt_writer *writer;
	const struct kvt_dump *source = dump;
	struct transform t = { .n = 1, .source = &source, .writer = &writer,
			       .run = { .threads = 8, .memory = 3 << 20 } };

	ok(kvt_create(&writer, path.s, &small, kvt_dump_snapshot(dump), &why));
	ok(transform_plan(&t, &why));
	assert_in_range(transform_memory(&t), 2 << 20, 4 << 20);
	ok(transform_run(&t, &why));
	kvt_close_writer(writer);
	assert_int_equal(count_entries(*state), 1);	/* it was not published */
}

TESTS("write",
	IN_FOLDER(test_snapshot), IN_FOLDER(test_tiles_move),
	IN_FOLDER(test_tiles_are_cut), IN_FOLDER(test_other_tiles),
	IN_FOLDER(test_reblocked), IN_FOLDER(test_merged), IN_FOLDER(test_threads),
	IN_FOLDER(test_flat), IN_FOLDER(test_raw), IN_FOLDER(test_cells_are_held),
	IN_FOLDER(test_cells_are_copied), IN_FOLDER(test_several),
	IN_FOLDER(test_spoiled), IN_FOLDER(test_unlike), IN_FOLDER(test_memory))
