/* SPDX-License-Identifier: Apache-2.0 */
/* test_hdf5.c - snapshots come back as they were written */
#include <unistd.h>

#include "tests/sample.h"
#include "tests/unit/tests.h"

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

#define succeeds(call) do {						\
	struct kvt_error err_ = { "" };				\
	enum kvt_status status_ = call;					\
									\
	if (status_)							\
		fail_msg("%s: %d: %s", #call, status_, err_.text);	\
} while (0)

/* ---- reading back ------------------------------------------------------- */

static void check_tiles(struct kvt_dump *reader, int g)
{
	const struct kvt_group *group = &kvt_dump_snapshot(reader)->group[g];
	const struct kvt_tiling *tiling = kvt_dump_tiling(reader, g);
	struct kvt_stored stored = { .capacity = kvt_stored_bound(tiling) };
	uint8_t *tile = malloc((size_t)tiling->nbytes);
	int64_t begin[KVT_NAXES] = { 0 };
	struct kvt_codec_scratch *scratch;

	succeeds(kvt_codec_scratch_new(&scratch, &err_));
	stored.bytes = malloc((size_t)stored.capacity);
	do {
		struct kvt_box box = sample_tile_box(tiling, begin);

		succeeds(kvt_read_tile(reader, g, begin, &stored, &err_));
		succeeds(kvt_stored_check(&stored, tiling, &err_));
		succeeds(kvt_decode(tile, &stored, tiling, scratch, &err_));
		assert_true(sample_box(tile, group, g, &box, true));
	} while (sample_next_tile(begin, tiling, &group->shape));
	kvt_codec_scratch_free(scratch);
	free(stored.bytes);
	free(tile);
}

static void check_run(struct kvt_dump *reader, int g)
{
	const struct kvt_group *group = &kvt_dump_snapshot(reader)->group[g];
	struct kvt_box box = kvt_box_whole(&group->shape);
	uint8_t *buf;
	int64_t n;

	succeeds(kvt_shape_nbytes(&n, &group->shape, &err_));
	buf = malloc((size_t)n);
	succeeds(kvt_dump_read(reader, g, &box, NULL, buf, &err_));
	assert_true(sample_box(buf, group, g, &box, true));
	free(buf);
}

/* All of them, then each layer's last block by itself. */
static void check_cells(struct kvt_dump *reader, int g)
{
	const struct kvt_group *group = &kvt_dump_snapshot(reader)->group[g];
	struct kvt_box box = kvt_box_whole(&group->shape);
	int64_t h = group->shape.n[KVT_AXIS_H], k = group->shape.n[KVT_AXIS_K];
	uint64_t *cell = malloc((size_t)sample_count(&box) * sizeof(*cell));
	int64_t i = 0;

	assert_true(kvt_dump_has_cells(reader, g));
	succeeds(kvt_read_cells(reader, g, &box, cell, &err_));
	for (int64_t l = 0; l < box.end[KVT_AXIS_L]; l++)
		for (int64_t b = 0; b < box.end[KVT_AXIS_B]; b++)
			for (int64_t j = 0; j < h * k; j++)
				assert_true(cell[i++] == sample_cell(group, g, l,
							b, j / k, j % k));
	for (int64_t l = 0; l < group->shape.n[KVT_AXIS_L]; l++) {
		box.begin[KVT_AXIS_L] = l;
		box.end[KVT_AXIS_L] = l + 1;
		box.begin[KVT_AXIS_B] = box.end[KVT_AXIS_B] - 1;
		box.begin[KVT_AXIS_H] = h - 1;
		succeeds(kvt_read_cells(reader, g, &box, cell, &err_));
		for (int64_t j = 0; j < k; j++)
			assert_true(cell[j] == sample_cell(group, g, l,
					box.begin[KVT_AXIS_B], h - 1, j));
	}
	free(cell);
}

static void same_table(const void *a, const void *b, int64_t n, size_t elem)
{
	assert_int_equal(a != NULL, b != NULL);
	if (a && n)
		assert_memory_equal(a, b, (size_t)n * elem);
}

static void same_string(const char *a, const char *b)
{
	assert_int_equal(a != NULL, b != NULL);
	if (a)
		assert_string_equal(a, b);
}

static void same_group(const struct kvt_group *a, const struct kvt_group *b)
{
	int64_t layers = a->shape.n[KVT_AXIS_L], blocks = a->shape.n[KVT_AXIS_B];

	assert_string_equal(a->id, b->id);
	assert_int_equal(a->kind, b->kind);
	assert_ptr_equal(a->dtype, b->dtype);
	assert_true(kvt_layout_equal(&a->layout, &b->layout));
	assert_memory_equal(&a->shape, &b->shape, sizeof(a->shape));
	/* from here to the components all are int64_t */
	assert_memory_equal(&a->block_size, &b->block_size,
			    offsetof(struct kvt_group, ncomponents) -
			    offsetof(struct kvt_group, block_size));
	assert_int_equal(a->ncomponents, b->ncomponents);
	assert_memory_equal(a->component, b->component, sizeof(a->component));
	for (int64_t i = 0; a->layer_names && i < layers; i++)
		assert_string_equal(a->layer_names[i], b->layer_names[i]);
	same_table(a->layer_ids, b->layer_ids, layers, sizeof(*a->layer_ids));
	same_table(a->block_ids, b->block_ids, blocks, sizeof(*a->block_ids));
	same_table(a->block_valid, b->block_valid, blocks, sizeof(*a->block_valid));
	for (int64_t i = 0; a->block_names && i < blocks; i++)
		assert_string_equal(a->block_names[i], b->block_names[i]);
}

static void same_request(const struct kvt_request *a,
			 const struct kvt_request *b)
{
	same_string(a->id, b->id);
	assert_int_equal(a->ntokens, b->ntokens);
	assert_int_equal(a->ntoken_ids, b->ntoken_ids);
	same_table(a->token_ids, b->token_ids, a->ntoken_ids, sizeof(*a->token_ids));
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		assert_int_equal(a->nblocks[g], b->nblocks[g]);
		same_table(a->blocks[g], b->blocks[g], a->nblocks[g],
			   sizeof(*a->blocks[g]));
	}
}

static void same_snapshot(const struct kvt_snapshot *a,
			  const struct kvt_snapshot *b)
{
	assert_int_equal(a->ngroups, b->ngroups);
	for (int g = 0; g < a->ngroups; g++)
		same_group(&a->group[g], &b->group[g]);
	assert_int_equal(a->nrequests, b->nrequests);
	for (int64_t r = 0; r < a->nrequests; r++)
		same_request(&a->request[r], &b->request[r]);
	assert_int_equal(a->has_parallel, b->has_parallel);
	assert_memory_equal(&a->parallel, &b->parallel, sizeof(a->parallel));
	assert_int_equal(a->null_block, b->null_block);
	same_string(a->model, b->model);
	same_string(a->note, b->note);
	if (a->source_format)
		same_string(a->source_format, b->source_format);
}

static void round_trip(const struct kvt_snapshot *snapshot,
		       struct kvt_create_options options)
{
	struct kvt_dump *reader;

	options.force = true;
	succeeds(sample_write(path, snapshot, &options, &err_));
	succeeds(kvt_open(&reader, path, NULL, &err_));
	assert_string_equal(kvt_dump_format(reader), "hdf5");
	same_snapshot(snapshot, kvt_dump_snapshot(reader));
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
	kvt_dump_close(reader);
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

	succeeds(kvt_layout_parse(&parsed, layout, &err_));
	for (int a = 0; a < KVT_NAXES; a++)
		if (!layout_has(&parsed, a) &&
		    !(a == KVT_AXIS_K && parsed.nplanes == 2))
			n[a] = 1;
	if (latent)
		n[KVT_AXIS_K] = 1;
	kvt_snapshot_init(snapshot);
	snapshot->ngroups = 1;
	succeeds(sample_group(&snapshot->group[0], layout, dtype, n, &err_));
}

static void every_preset(void)
{
	const struct kvt_preset *preset;
	struct kvt_snapshot snapshot;

	for (int i = 0; (preset = kvt_preset_at(i)); i++)
		for (int how = 0; how < 2; how++) {
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
		for (size_t j = 0; j < 3; j++)
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
	size_t layers = (size_t)group->shape.n[KVT_AXIS_L];
	size_t blocks = (size_t)group->shape.n[KVT_AXIS_B];

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
	succeeds(sample_group(&group[0], "hnd", "bfloat16", attention, &err_));
	succeeds(sample_group(&group[1], "conv-sd", "bfloat16", conv, &err_));
	succeeds(sample_group(&group[2], "ssm", "float32", ssm, &err_));
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
		snapshot.group[0].shape.n[how & 2 ? KVT_AXIS_L : KVT_AXIS_B] = 0;
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
		succeeds(sample_group(&snapshot.group[0], "nhd", "bfloat16", n,
				      &err_));
		succeeds(kvt_create(&writer, path, &options, &snapshot, &err_));
		tiling = kvt_writer_tiling(writer, 0);
		assert_int_equal(tiling->n[KVT_AXIS_L], 1);
		assert_int_equal(tiling->n[KVT_AXIS_B], rows[i].blocks);
		assert_int_equal(tiling->n[KVT_AXIS_S], rows[i].slots);
		assert_int_equal(tiling->n[KVT_AXIS_H], 1);
		assert_int_equal(tiling->n[KVT_AXIS_K], 1);
		assert_int_equal(tiling->n[KVT_AXIS_D], rows[i].dim);
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
		succeeds(sample_group(&snapshot.group[0], "nhd", "bfloat16", n,
				      &err_));
		succeeds(kvt_create(&writer, path, &options, &snapshot, &err_));
		assert_int_equal(kvt_writer_tiling(writer, 0)->n[KVT_AXIS_B],
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
	succeeds(sample_write(path, &snapshot, &options, &err_));
	succeeds(sample_write(other, &snapshot, &options, &err_));
	snprintf(command, sizeof(command), "cmp %s %s", path, other);
	assert_int_equal(system(command), 0);
	kvt_snapshot_free(&snapshot);
}

TESTS_AROUND("hdf5", make_names, remove_files,
	TEST(every_preset), TEST(every_layout_without_k), TEST(every_dtype),
	TEST(everything), TEST(no_blocks), TEST(tile_extents),
	TEST(tiles_like_the_source), TEST(the_same_file_again))
