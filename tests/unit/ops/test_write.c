/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_write.c - derived dumps into files, read back and held against what they say
 *
 * Snapshots have tiles and cells: of tiles that move, the stored bytes must be those
 * of the source; cells are hashed here from the elements, but by the product.
 */
#include "tests/unit/dump/places.h"

#include <xxhash.h>

#include "lib/ops/write/plan.h"
#include "lib/run/leaf.h"

static const int64_t extents[] = { 4, 12, 4, 4, 2, 16 };

static void describe(struct kvt_snapshot *s, const char *layout)
{
	kvt_snapshot_init(s);
	new_group(s, "g0", KVT_FULL_ATTENTION, layout, extents);
	add_request(s, "a", 14, 4, (const uint32_t[]){ 5, 0, 11, 3 });
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

static struct kvt_dump *open_dump(const char *path)
{
	struct kvt_dump *dump;

	ok(kvt_open(&dump, path, NULL, &why));
	return dump;
}

/* Written and read back. */
static struct kvt_dump *rewrite(struct outcome *out, const char *path,
				const struct kvt_dump *source,
				const struct kvt_create_options *options)
{
	ok(transform(out, path, source, options, NULL, 3, &why));
	return open_dump(path);
}

/* Tiles of 2 layers and 4 blocks or so, that the next writer is to keep. */
static const struct kvt_create_options small = { .tile_bytes = 1 << 10 };

static struct kvt_dump *write_source(const char *path)
{
	struct placed_dump memory;
	struct kvt_snapshot s;
	struct kvt_dump *dump;
	struct outcome out;

	describe(&s, "LBKSHD");
	memory = number_dump(&s, 0);
	dump = rewrite(&out, path, memory.dump, &small);
	assert_true(out.make_cells);
	assert_false(out.hold_cells);
	assert_false(out.direct);
	assert_true(out.ntiles > 1);
	assert_int_equal(out.moved, 0);
	drop_dump(&memory);
	return dump;
}

static struct kvt_create_options like(const struct kvt_dump *dump)
{
	return (struct kvt_create_options){ .like = kvt_dump_tiling(dump, 0) };
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
	uint64_t *cells = calloc((size_t)(g->shape.n[NL] * g->shape.n[NB] *
					  g->shape.n[NH] * g->shape.n[NK]), 8);

	assert_true(kvt_dump_has_cells(dump, 0));
	ok(kvt_read_cells(dump, 0, &all, cells, &why));
	do
		assert_int_equal(cells[at++], cell_of(numbers, g->shape.n, i));
	while (next_index(i, &firsts));
	free(cells);
	free(numbers);
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
	uint32_t *tile = malloc((size_t)tiling->nbytes);
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
	free(tile);
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
	struct path path = join(*state, "a.h5");
	struct kvt_dump *dump = write_source(path.s);

	expect_shape(kvt_dump_group(dump, 0), extents);
	expect_table(dump, 0, 0, 4, (const uint32_t[]){ 5, 0, 11, 3 });
	check_places(dump, 0);
	check_cells(dump);
	kvt_dump_close(dump);
}

static struct kvt_dump *slice(const struct kvt_dump *dump,
			      const struct kvt_slice_options *options)
{
	struct kvt_dump *out;

	ok(kvt_dump_slice(&out, dump, options, &why));
	return out;
}

/* Whole rows of tiles: they move, and so do cells. */
static void test_tiles_move(void **state)
{
	struct kvt_dump *dump = write_source(join(*state, "a.h5").s), *part, *out;
	const struct kvt_tiling *tiling = kvt_dump_tiling(dump, 0);
	const struct kvt_range rows[] = { { tiling->n[NB], 12 } };
	const struct kvt_slice_options options = { .blocks = { 1, rows } };
	const struct kvt_create_options create = like(dump);
	struct outcome outcome;

	assert_true(tiling->n[NB] < 12);
	part = slice(dump, &options);
	out = rewrite(&outcome, join(*state, "b.h5").s, part, &create);
	assert_true(outcome.direct);
	assert_false(outcome.make_cells);
	assert_int_equal(outcome.moved, outcome.ntiles);
	assert_int_equal(check_moved(part, out), outcome.ntiles);
	check_places(out, 0);
	check_cells(out);
	kvt_dump_close(out);
	kvt_dump_close(part);
	kvt_dump_close(dump);
}

/* Blocks out of the middle of tiles: made again, but cells are still theirs. */
static void test_tiles_are_cut(void **state)
{
	static const struct kvt_range blocks[] = { { 1, 4 }, { 6, 7 }, { 9, 12 } };
	const struct kvt_slice_options options = { .blocks = { 3, blocks } };
	int64_t last[KVT_NAXES] = { 0 };
	struct kvt_dump *dump = write_source(join(*state, "a.h5").s), *part, *out;
	const struct kvt_create_options create = like(dump);
	struct outcome outcome;

	part = slice(dump, &options);
	out = rewrite(&outcome, join(*state, "b.h5").s, part, &create);
	assert_false(outcome.make_cells);
	assert_int_equal(outcome.moved, 0);
	expect_blocks(kvt_dump_group(out, 0), 7,
		      (const uint64_t[]){ 1, 2, 3, 6, 9, 10, 11 });
	check_places(out, 0);
	check_cells(out);
	last[NB] = 6 / kvt_dump_tiling(out, 0)->n[NB] * kvt_dump_tiling(out, 0)->n[NB];
	check_padding(out, last);
	kvt_dump_close(out);
	kvt_dump_close(part);
	kvt_dump_close(dump);
}

/* Tiles of other extents: none moves, though the source has them all. */
static void test_other_tiles(void **state)
{
	const struct kvt_create_options large = { .tile_bytes = 1 << 14 };
	struct kvt_dump *dump = write_source(join(*state, "a.h5").s), *out;
	struct outcome outcome;

	out = rewrite(&outcome, join(*state, "b.h5").s, dump, &large);
	assert_int_not_equal(kvt_dump_tiling(out, 0)->nbytes,
			     kvt_dump_tiling(dump, 0)->nbytes);
	assert_false(outcome.direct);
	assert_int_equal(outcome.moved, 0);
	check_places(out, 0);
	check_cells(out);
	kvt_dump_close(out);
	kvt_dump_close(dump);
}

/* Blocks of half the size have no cells yet. */
static void test_reblocked(void **state)
{
	const struct kvt_reblock_options options = { .block_size = 2 };
	struct kvt_dump *dump = write_source(join(*state, "a.h5").s), *part, *out;
	struct kvt_reblocked said[KVT_MAX_GROUPS];
	struct outcome outcome;
	uint32_t *old, *new;

	ok(kvt_dump_reblock(&part, said, dump, &options, &why));
	assert_false(kvt_dump_has_cells(part, 0));
	out = rewrite(&outcome, join(*state, "b.h5").s, part, &small);
	assert_true(outcome.make_cells);
	check_cells(out);
	expect_table(out, 0, 0, 7, (const uint32_t[]){ 10, 11, 0, 1, 22, 23, 6 });
	/* in the order L B S, all slots follow each other as they did */
	old = read_numbers(dump, 0);
	new = read_numbers(out, 0);
	assert_memory_equal(old, new, 4 * 12 * 4 * 4 * 2 * 16 * 4);
	free(old);
	free(new);
	kvt_dump_close(out);
	kvt_dump_close(part);
	kvt_dump_close(dump);
}

/* Two ranks in files of their own, joined: each tile is one of theirs. */
static void test_merged(void **state)
{
	static const char *const names[] = { "r0", "r1" };
	struct kvt_dump *dump = write_source(join(*state,
						  "a.h5").s), *rank[2], *all, *out;
	const struct kvt_dump *ranks[2];
	struct kvt_create_options create;
	struct outcome outcome;

	for (int r = 0; r < 2; r++) {
		struct kvt_dump *part = slice(dump, &(struct kvt_slice_options){
				.rank = { 2, r } });

		ranks[r] = rank[r] = rewrite(&outcome, join(*state, r ? "r1.h5" :
							    "r0.h5").s, part, &small);
		kvt_dump_close(part);
	}
	ok(kvt_dump_merge(&all, ranks, names, 2, &why));
	create = like(rank[0]);
	out = rewrite(&outcome, join(*state, "b.h5").s, all, &create);
	assert_int_equal(outcome.moved, outcome.ntiles);
	assert_int_equal(check_moved(all, out), outcome.ntiles);
	check_places(out, 0);
	check_cells(out);
	kvt_dump_close(out);
	kvt_dump_close(all);
	kvt_dump_close(rank[0]);
	kvt_dump_close(rank[1]);
	kvt_dump_close(dump);
}

/* The file does not depend on how many threads wrote it; there are seven boxes. */
static void test_threads(void **state)
{
	static const int64_t many[] = { 8, 100, 8, 4, 2, 32 };
	const size_t count = 8 * 100 * 8 * 4 * 2 * 32;
	uint32_t *numbers = malloc(count * sizeof(*numbers)), seed = 1;
	const void *data[KVT_MAX_GROUPS] = { numbers };
	struct kvt_dump *dump;
	struct kvt_snapshot s;
	size_t nbytes[2];
	uint8_t *bytes[2];

	/* some of it packs well, and some does not */
	for (size_t i = 0; i < count; i++)
		numbers[i] = (seed = seed * 1664525 + 1013904223) >> (8 + i / 40000 % 24);
	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, "LBKSHD", many);
	ok(kvt_dump_of_memory(&dump, &s, data, &why));
	for (int i = 0; i < 2; i++) {
		struct path path = join(*state, i ? "many.h5" : "one.h5");
		const struct kvt_create_options options = { .no_sync = true };
		struct outcome outcome;

		ok(transform(&outcome, path.s, dump, &options, NULL, i ? 8 : 1, &why));
		bytes[i] = read_file(path.s, &nbytes[i]);
	}
	assert_int_equal(nbytes[0], nbytes[1]);
	assert_memory_equal(bytes[0], bytes[1], nbytes[0]);
	free(bytes[0]);
	free(bytes[1]);
	kvt_dump_close(dump);
	free(numbers);
}

/* ---- flat files --------------------------------------------------------- */

/* Tiles into one array in another order. */
static void test_flat(void **state)
{
	static const struct kvt_create_options flat = { .uncompressed = true };
	struct path path = join(*state, "b.h5");
	struct kvt_dump *dump = write_source(join(*state, "a.h5").s), *out;
	struct outcome outcome;

	ok(transform(&outcome, path.s, dump, &flat, "BLHKSD", 4, &why));
	assert_int_equal(outcome.ntiles, 0);
	assert_false(outcome.make_cells);
	out = open_dump(path.s);
	assert_null(kvt_dump_tiling(out, 0));
	assert_string_equal(kvt_layout_string(&kvt_dump_group(out, 0)->layout).s,
			    "BLHKSD");
	check_places(out, 0);
	check_cells(out);
	kvt_dump_close(out);
	kvt_dump_close(dump);
}

/* The bytes of a file without a header are those of the layout, one after the other. */
static void test_raw(void **state)
{
	static const struct kvt_create_options raw = { .format = "raw" };
	struct path path = join(*state, "b.bin");
	struct placed_dump memory;
	struct outcome outcome;
	struct kvt_snapshot s;
	struct kvt_group to;
	struct kvt_box all;
	int64_t i[KVT_NAXES] = { 0 };
	uint8_t *bytes;
	size_t nbytes;

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, "LBKSHD", extents);
	memory = number_dump(&s, 0);
	ok(transform(&outcome, path.s, memory.dump, &raw, "BLHKSD", 4, &why));
	assert_false(outcome.make_cells);
	bytes = read_file(path.s, &nbytes);
	to = *kvt_dump_group(memory.dump, 0);
	ok(kvt_layout_parse(&to.layout, "BLHKSD", NULL));
	all = kvt_box_whole(&to.shape);
	assert_int_equal(nbytes, box_bytes(&to, &all));
	do
		expect_number(((uint32_t *)(void *)bytes)[
				((((i[NB] * 4 + i[NL]) * 4 + i[NH]) * 2 + i[NK]) * 4 +
				 i[NS]) * 16 + i[ND]], number_of(&to, 0, i), i);
	while (next_index(i, &all));
	free(bytes);
	drop_dump(&memory);
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
	free(((struct cell_leaf *)leaf)->numbers);
	free(leaf);
}

static const struct kvt_leaf_ops numbers_ops = {
	.read_box = numbers_read, .has_cells = numbers_have_cells,
	.fetch_cells = numbers_cells, .close = numbers_close,
};

static struct kvt_dump *make_cells(bool wrong, bool proven)
{
	struct cell_leaf *c = calloc(1, sizeof(*c));
	struct placed_dump memory;
	struct kvt_dump *dump;
	struct kvt_snapshot s;

	describe(&s, "LBKSHD");
	memory = number_dump(&s, 0);
	c->numbers = read_numbers(memory.dump, 0);
	drop_dump(&memory);
	c->wrong = wrong;
	c->leaf.ops = &numbers_ops;
	c->leaf.format = "test";
	c->leaf.proven.cells[0] = proven;
	describe(&c->leaf.snapshot, "LBKSHD");
	ok(kvt_snapshot_complete(&c->leaf.snapshot, &why));
	ok(kvt_dump_of_leaf(&dump, &c->leaf, &why));
	return dump;
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
			struct kvt_dump *dump = make_cells(wrong, false), *out;
			struct outcome outcome;
			enum kvt_status status = transform(&outcome, path.s, dump,
							   &options,
							   NULL, 2, &why);

			assert_true(outcome.make_cells);
			assert_true(outcome.hold_cells);
			expect(status, wrong ? KVT_BAD_INPUT : KVT_OK,
			       "group g0: layer 2 block 7 head 3 kv 1 does not match "
			       "content_digest of the input");
			kvt_dump_close(dump);
			if (wrong)
				continue;
			out = open_dump(path.s);
			check_cells(out);
			kvt_dump_close(out);
		}
}

/* Those that the format proves go over as they are. */
static void test_cells_are_copied(void **state)
{
	struct path path = join(*state, "a.h5");
	struct kvt_dump *dump = make_cells(true, true), *out;
	const struct kvt_box all = kvt_box_whole(&kvt_dump_group(dump, 0)->shape);
	struct outcome outcome;
	uint64_t *old = calloc(4 * 12 * 4 * 2, 8), *new = calloc(4 * 12 * 4 * 2, 8);

	ok(transform(&outcome, path.s, dump, &small, NULL, 2, &why));
	assert_false(outcome.make_cells);
	out = open_dump(path.s);
	ok(kvt_read_cells(dump, 0, &all, old, &why));
	ok(kvt_read_cells(out, 0, &all, new, &why));
	assert_memory_equal(old, new, 4 * 12 * 4 * 2 * 8);
	free(old);
	free(new);
	kvt_dump_close(out);
	kvt_dump_close(dump);
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
		rank[r] = slice(dump, &(struct kvt_slice_options){
				.rank = { NRANKS, r } });
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
		kvt_dump_close(rank[r]);
		out[r] = status ? NULL : open_dump(path[r].s);
	}
	return status;
}

/* What ranks share of a leaf is read once, and each has its own. */
static void test_several(void **state)
{
	static const char *const endings[] = { "h5", "npy", "safetensors" };
	struct kvt_dump *tiled = write_source(join(*state, "a.h5").s);
	struct placed_dump memory;
	struct kvt_snapshot s;

	describe(&s, "BSHLKD");
	memory = number_dump(&s, 0);
	for (int e = 0; e < 3; e++)
		for (int from = 0; from < 2; from++) {
			struct kvt_dump *out[NRANKS];

			ok(write_ranks(out, *state, endings[e],
				       from ? memory.dump : tiled, NULL, &why));
			for (int r = 0; r < NRANKS; r++) {
				assert_int_equal(kvt_dump_group(out[r], 0)->head_start,
						 r);
				check_places(out[r], 0);
				if (!e)
					check_cells(out[r]);
				kvt_dump_close(out[r]);
			}
			for (int r = 0; r < NRANKS; r++) {
				char name[32];

				snprintf(name, sizeof(name), "rank%d.%s", r, endings[e]);
				remove(join(*state, name).s);
				snprintf(name, sizeof(name), "rank%d.json", r);
				remove(join(*state, name).s);
			}
		}
	kvt_dump_close(tiled);
	drop_dump(&memory);
}

/* One byte, of the writer and element that were named. */
static void test_spoiled(void **state)
{
	const struct spoiled spoil = { .writer = 2, .index = { 3, 7, 2, 0, 1, 5 } };
	struct kvt_dump *dump = write_source(join(*state, "a.h5").s), *out[NRANKS];

	ok(write_ranks(out, *state, "h5", dump, &spoil, &why));
	for (int r = 0; r < NRANKS; r++) {
		const struct kvt_group *g = kvt_dump_group(out[r], 0);
		struct kvt_box all = kvt_box_whole(&g->shape);
		uint32_t *numbers = read_numbers(out[r], 0), *at = numbers;
		int64_t i[KVT_NAXES] = { 0 };

		do {
			bool here = r == spoil.writer &&
				    !memcmp(i, spoil.index, sizeof(i));

			expect_number(*at++, number_of(g, 0, i) ^ (here ? 0xff : 0), i);
		} while (next_index(i, &all));
		free(numbers);
		kvt_dump_close(out[r]);
	}
	kvt_dump_close(dump);
}

static void test_unlike(void **state)
{
	struct kvt_dump *dump = write_source(join(*state, "a.h5").s);
	struct kvt_dump *half = slice(dump, &(struct kvt_slice_options){
			.rank = { 2, 1 } });
	const struct kvt_dump *source[] = { dump, half };
	struct kvt_writer *writer[2];
	const struct kvt_run run = { .threads = 1 };

	for (int i = 0; i < 2; i++)
		ok(kvt_create(&writer[i], join(*state, i ? "c.h5" : "b.h5").s, &small,
			      kvt_dump_snapshot(source[i]), &why));
	expect(kvt_write(writer, source, 2, &run, &why), KVT_USAGE,
	       "output 2 has another layout than the first");
	for (int i = 0; i < 2; i++)
		kvt_close_writer(writer[i]);
	kvt_dump_close(half);
	kvt_dump_close(dump);
}

/* ---- memory ------------------------------------------------------------- */

/* What it says beforehand is not more than it was told. */
static void test_memory(void **state)
{
	struct kvt_dump *dump = write_source(join(*state, "a.h5").s);
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
	kvt_dump_close(dump);
}

TESTS("write",
	IN_FOLDER(test_snapshot),
	IN_FOLDER(test_tiles_move),
	IN_FOLDER(test_tiles_are_cut),
	IN_FOLDER(test_other_tiles),
	IN_FOLDER(test_reblocked),
	IN_FOLDER(test_merged),
	IN_FOLDER(test_threads),
	IN_FOLDER(test_flat),
	IN_FOLDER(test_raw),
	IN_FOLDER(test_cells_are_held),
	IN_FOLDER(test_cells_are_copied),
	IN_FOLDER(test_several),
	IN_FOLDER(test_spoiled),
	IN_FOLDER(test_unlike),
	IN_FOLDER(test_memory))
