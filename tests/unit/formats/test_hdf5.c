/* SPDX-License-Identifier: Apache-2.0 */
/* test_hdf5.c - snapshots come back as they were written */
#include "tests/fewer.h"
#include "tests/unit/fixture.h"

static char path[TEMPORARY_NAME], other[TEMPORARY_NAME];

static int make_names(void **state)
{
	(void)state;
	temporary_file(path, "hdf5");
	temporary_file(other, "hdf5-b");
	return 0;
}

static int remove_files(void **state)
{
	(void)state;
	unlink(path);
	unlink(other);
	return 0;
}

/* ---- reading back ------------------------------------------------------- */

static void check_tiles(struct kvt_dump *reader, int g)
{
	const struct kvt_group *group = &kvt_dump_snapshot(reader)->group[g];
	const struct kvt_tiling *tiling = kvt_dump_tiling(reader, g);
	struct kvt_stored stored = { .capacity = kvt_stored_bound(tiling) };
	uint8_t *tile = room((size_t)tiling->nbytes);
	int64_t begin[KVT_NAXES] = { 0 };
	struct kvt_codec_scratch *scratch;

	ok(kvt_codec_scratch_new(&scratch, &why));
	stored.bytes = room((size_t)stored.capacity);
	do {
		struct kvt_box box = sample_tile_box(tiling, begin);

		ok(kvt_read_tile(reader, g, begin, &stored, &why));
		ok(kvt_stored_check(&stored, tiling, &why));
		ok(kvt_decode(tile, &stored, tiling, scratch, &why));
		assert_true(sample_box(tile, group, g, &box, true));
	} while (sample_next_tile(begin, tiling, &group->shape));
	kvt_codec_scratch_free(scratch);
}

static void check_run(struct kvt_dump *reader, int g)
{
	const struct kvt_box all = kvt_box_whole(&kvt_dump_group(reader, g)->shape);

	check_box(reader, g, &all);
}

/* All of them, then each layer's last block by itself. */
static void check_cells(struct kvt_dump *reader, int g)
{
	const struct kvt_group *group = &kvt_dump_snapshot(reader)->group[g];
	struct kvt_box box = kvt_box_whole(&group->shape);
	int64_t h = group->shape.n[NH], k = group->shape.n[NK];
	uint64_t *cell = room((size_t)sample_count(&box) * sizeof(*cell));
	int64_t i = 0;

	assert_true(kvt_dump_has_cells(reader, g));
	ok(kvt_read_cells(reader, g, &box, cell, &why));
	for (int64_t l = 0; l < box.end[NL]; l++)
		for (int64_t b = 0; b < box.end[NB]; b++)
			for (int64_t j = 0; j < h * k; j++)
				assert_true(cell[i++] == sample_cell(group, g, l,
							b, j / k, j % k));
	for (int64_t l = 0; l < group->shape.n[NL]; l++) {
		box.begin[NL] = l;
		box.end[NL] = l + 1;
		box.begin[NB] = box.end[NB] - 1;
		box.begin[NH] = h - 1;
		ok(kvt_read_cells(reader, g, &box, cell, &why));
		for (int64_t j = 0; j < k; j++)
			assert_true(cell[j] == sample_cell(group, g, l,
					box.begin[NB], h - 1, j));
	}
}

static void round_trip(const struct kvt_snapshot *snapshot,
		       struct kvt_create_options options)
{
	struct kvt_snapshot *written = new_snapshot();
	struct kvt_dump *reader;

	options.force = true;
	ok(sample_write(path, snapshot, &options, &why));
	ok(kvt_snapshot_copy(written, snapshot, &why));
	ok(kvt_snapshot_complete(written, &why));
	if (!written->source_format)
		written->source_format = strdup("hdf5");
	reader = open_dump(path);
	assert_string_equal(kvt_dump_format(reader), "hdf5");
	same_snapshot(written, kvt_dump_snapshot(reader));
	for (int g = 0; g < snapshot->ngroups; g++) {
		if (sample_is_empty(&snapshot->group[g].shape))
			continue;
		assert_int_equal(kvt_dump_tiling(reader, g) == NULL,
				 options.uncompressed);
		if (options.uncompressed)
			check_run(reader, g);
		else
			check_tiles(reader, g);
		check_cells(reader, g);
	}
	let_go();
}

/* ---- layouts and types -------------------------------------------------- */

static bool layout_has(const struct kvt_layout *layout, enum kvt_axis axis)
{
	for (int i = 0; i < layout->plane[0].nparts; i++)
		if (layout->plane[0].part[i].axis == axis)
			return true;
	return false;
}

static void one_group(struct kvt_snapshot *snapshot, const char *layout,
		      bool latent, const char *dtype)
{
	int64_t n[KVT_NAXES] = { 2, 5, 32, 2, 2, 32 };
	struct kvt_layout parsed;

	ok(kvt_layout_parse(&parsed, layout, &why));
	for (int a = 0; a < KVT_NAXES; a++)
		if (!layout_has(&parsed, a) &&
		    !(a == NK && parsed.nplanes == 2))
			n[a] = 1;
	if (latent)
		n[NK] = 1;
	kvt_snapshot_init(snapshot);
	snapshot->ngroups = 1;
	ok(sample_group(&snapshot->group[0], layout, dtype, n, &why));
}

static void every_preset(void)
{
	const struct kvt_preset *preset;
	struct kvt_snapshot snapshot;

	for (int i = 0; (preset = kvt_preset_at(i)); i++)
		for (int how = i % every() % 2; how < 2; how += every()) {
			one_group(&snapshot, preset->axes, preset->latent,
				  "bfloat16");
			/* to leave a cut tile at the end of the blocks */
			round_trip(&snapshot, (struct kvt_create_options){
				.uncompressed = how, .tile_bytes = 4096 });
		}
}

static void every_layout_without_k(void)
{
	static const char *const layouts[] = { "LKBSHD", "K L B S H D", "HLBSKD" };
	struct kvt_snapshot snapshot;

	/* K of extent 1, wherever it stands, is no dimension */
	for (size_t i = 0; i < LENGTH(layouts); i++) {
		one_group(&snapshot, layouts[i], true, "float16");
		round_trip(&snapshot, (struct kvt_create_options){ 0 });
	}
}

static void every_dtype(void)
{
	static const char *const layouts[] = { "nhd", "rocm-paged", "cpu-amx" };
	const struct kvt_dtype *dtype;
	struct kvt_snapshot snapshot;

	for (int i = 0; (dtype = kvt_dtype_at(i)); i++)
		for (size_t j = (size_t)(i % every() % 3); j < 3; j += every())
			for (int how = 0; how < 2; how++) {
				one_group(&snapshot, layouts[j], false,
					  dtype->name);
				round_trip(&snapshot,
					   (struct kvt_create_options){
						   .uncompressed = how });
			}
}

/* ---- everything else a snapshot says ------------------------------------ */

static void *table_of(size_t n, size_t elem)
{
	uint8_t *p = calloc(n ? n : 1, elem);

	for (size_t i = 0; i < n; i++)
		p[i * elem] = (uint8_t)(i % 3);
	return p;
}

static char **names_of(size_t n)
{
	char **names = calloc(n, sizeof(*names));

	for (size_t i = 0; i < n; i++) {
		names[i] = malloc(48);
		snprintf(names[i], 48, "model.layers.%zu.\xc3\xa9", i);
	}
	return names;
}

static void fill_group(struct kvt_group *group)
{
	size_t layers = (size_t)group->shape.n[NL];
	size_t blocks = (size_t)group->shape.n[NB];

	group->layer_names = names_of(layers);
	group->layer_ids = table_of(layers, sizeof(uint32_t));
	group->block_ids = table_of(blocks, sizeof(uint64_t));
	group->block_ids[0] = UINT64_MAX;
	group->block_valid = table_of(blocks, sizeof(uint32_t));
	group->block_names = names_of(blocks);
}

static void fill_request(struct kvt_request *request, const char *id, int64_t n)
{
	request->id = strdup(id);
	request->ntokens = n;
	request->ntoken_ids = n + 1;
	request->token_ids = table_of((size_t)n + 1, sizeof(int32_t));
	request->token_ids[0] = -1;
	request->nblocks[0] = 3;
	request->blocks[0] = table_of(3, sizeof(uint32_t));
	request->nblocks[2] = 1;
	request->blocks[2] = table_of(1, sizeof(uint32_t));
}

static void full_snapshot(struct kvt_snapshot *snapshot)
{
	static const int64_t attention[] = { 3, 7, 16, 4, 2, 64 };
	static const int64_t conv[] = { 2, 4, 3, 1, 1, 96 };
	static const int64_t ssm[] = { 2, 4, 1, 8, 1, 512 };
	struct kvt_group *group = snapshot->group;

	kvt_snapshot_init(snapshot);
	snapshot->ngroups = 3;
	ok(sample_group(&group[0], "hnd", "bfloat16", attention, &why));
	ok(sample_group(&group[1], "conv-sd", "bfloat16", conv, &why));
	ok(sample_group(&group[2], "ssm", "float32", ssm, &why));
	strcpy(group[0].id, "z");
	strcpy(group[1].id, "conv");
	strcpy(group[2].id, "ssm");
	group[0].kind = KVT_SLIDING_WINDOW;
	group[0].window = 1024;
	group[0].total_heads = 8;
	group[0].head_start = 4;
	group[0].page_bytes = 16 * 4 * 256 + 4096;
	group[0].page_offset = 128;
	group[1].kind = KVT_MAMBA_CONV;
	group[1].ncomponents = 3;
	group[1].component[0] = (struct kvt_component){ "x", 0, 64, 64 };
	group[1].component[1] = (struct kvt_component){ "B", 64, 16, 128 };
	group[1].component[2] = (struct kvt_component){ "C", 80, 16, 160 };
	group[2].kind = KVT_MAMBA_SSM;
	group[2].total_heads = 16;
	group[2].head_start = 8;
	for (int g = 0; g < 3; g++)
		fill_group(&group[g]);
	for (int g = 1; g < 3; g++) {
		group[g].tokens_per_slot = -1;
		group[g].block_size = 64;
		for (int b = 0; b < 4; b++)
			group[g].block_valid[b] = 1;
	}
	snapshot->has_parallel = true;
	snapshot->parallel = (struct kvt_parallel){ 2, 1, 3, 2, 4, 3, 1, 0 };
	snapshot->null_block = 0;
	snapshot->model = strdup("a model");
	snapshot->source_format = strdup("npy");
	snapshot->note = strdup("line one\nline two");
	snapshot->nrequests = 12;
	snapshot->request = calloc(12, sizeof(*snapshot->request));
	for (int r = 0; r < 12; r++) {
		char id[16];

		snprintf(id, sizeof(id), "req %d", r);
		fill_request(&snapshot->request[r], id, 30 + r);
		for (int i = 0; i < r % 4; i++)
			assert_true(kvt_request_add_hole(&snapshot->request[r], 0, 7 * i,
							 7 * i + 1 + r % 5));
	}
}

static void everything(void)
{
	struct kvt_snapshot snapshot;

	full_snapshot(&snapshot);
	for (int how = 0; how < 2; how++)
		round_trip(&snapshot, (struct kvt_create_options){
			.uncompressed = how });
	kvt_snapshot_free(&snapshot);
}

static void no_blocks(void)
{
	struct kvt_snapshot snapshot;

	for (int how = 0; how < 4; how++) {
		one_group(&snapshot, how & 1 ? "rocm-paged" : "nhd", false,
			  "bfloat16");
		snapshot.group[0].shape.n[how & 2 ? NL : NB] = 0;
		round_trip(&snapshot, (struct kvt_create_options){ 0 });
	}
}

/* ---- tiles -------------------------------------------------------------- */

static void tile_extents(void)
{
	static const struct {
		int64_t slots, dim, tile_bytes, blocks;
	} rows[] = {
		{ 16, 128, 0, 8 }, { 64, 128, 0, 2 }, { 128, 128, 0, 1 },
		{ 256, 128, 0, 1 }, { 16, 128, 65536, 16 }, { 16, 96, 0, 16 },
		{ 16, 128, 1 << 30, 32 },	/* no more than 30 blocks need */
	};
	struct kvt_snapshot snapshot;

	unlink(path);
	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_create_options options = {
			.tile_bytes = rows[i].tile_bytes, .force = true };
		int64_t n[] = { 1, 30, rows[i].slots, 2, 2, rows[i].dim };
		const struct kvt_tiling *tiling;
		struct kvt_writer *writer;

		kvt_snapshot_init(&snapshot);
		snapshot.ngroups = 1;
		ok(sample_group(&snapshot.group[0], "nhd", "bfloat16", n,
				      &why));
		ok(kvt_create(&writer, path, &options, &snapshot, &why));
		tiling = kvt_writer_tiling(writer, 0);
		assert_int_equal(tiling->n[NL], 1);
		assert_int_equal(tiling->n[NB], rows[i].blocks);
		assert_int_equal(tiling->n[NS], rows[i].slots);
		assert_int_equal(tiling->n[NH], 1);
		assert_int_equal(tiling->n[NK], 1);
		assert_int_equal(tiling->n[ND], rows[i].dim);
		assert_true(tiling->shuffle && tiling->zstd && tiling->fletcher32);
		kvt_close_writer(writer);
		/* nothing was committed, nothing is left */
		assert_int_not_equal(access(path, F_OK), 0);
	}
}

/* Reblocking 16 -> 64 slots: as many slots in a tile, so that it can move. */
static void tiles_like_the_source(void)
{
	struct kvt_tiling like = { .n = { 1, 8, 16, 1, 1, 128 }, .nbytes = 32768,
		.elem = 2, .shuffle = true, .zstd = true, .fletcher32 = true };
	struct kvt_create_options options = { .like = &like, .force = true,
		.tile_bytes = 4096 };
	static const int64_t slots[] = { 16, 8, 32, 64, 128, 256, 48 };
	static const int64_t blocks[] = { 8, 16, 4, 2, 1, 1, 1 };
	struct kvt_snapshot snapshot;

	for (int i = 0; i < 7; i++) {
		int64_t n[] = { 1, 30, slots[i], 2, 2, 128 };
		struct kvt_writer *writer;

		kvt_snapshot_init(&snapshot);
		snapshot.ngroups = 1;
		ok(sample_group(&snapshot.group[0], "nhd", "bfloat16", n,
				      &why));
		ok(kvt_create(&writer, path, &options, &snapshot, &why));
		assert_int_equal(kvt_writer_tiling(writer, 0)->n[NB],
				 blocks[i]);
		assert_int_equal(kvt_writer_tiling(writer, 0)->n[2], slots[i]);
		kvt_close_writer(writer);
	}
}

static void the_same_file_again(void)
{
	struct kvt_create_options options = { .force = true };
	struct kvt_snapshot snapshot;
	char command[2 * TEMPORARY_NAME + 16];

	full_snapshot(&snapshot);
	ok(sample_write(path, &snapshot, &options, &why));
	ok(sample_write(other, &snapshot, &options, &why));
	snprintf(command, sizeof(command), "cmp %s %s", path, other);
	assert_int_equal(system(command), 0);
	kvt_snapshot_free(&snapshot);
}

TESTS_AROUND("hdf5", make_names, remove_files,
	TEST(every_preset), TEST(every_layout_without_k), TEST(every_dtype),
	TEST(everything), TEST(no_blocks), TEST(tile_extents),
	TEST(tiles_like_the_source), TEST(the_same_file_again))
