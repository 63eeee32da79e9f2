/* SPDX-License-Identifier: Apache-2.0 */
/* test_npy.c - dumps as npy: written and read, and against their manifests */
#include "tests/unit/fixture.h"

/* ---- dumps -------------------------------------------------------------- */

static struct dump_case {
	const char *what, *layout, *dtype;
	bool latent;
} dumps[] = {
	{ "nhd", "nhd", "bf16", false },
	{ "hnd, fp8", "hnd", "fp8_e4m3", false },
	{ "bhlsc, float32", "bhlsc", "fp32", false },
	{ "keys first", "kv-first-nhd", "fp16", false },
	{ "K between heads and slots", "head-halves", "bf16", false },
	{ "split D", "L B K H S D/4 D%4", "bf16", false },
	{ "planes that meet", "rocm-paged", "bf16", false },
	{ "planes that meet, S split", "aiter-shuffle", "bf16", false },
	{ "planes packed for vector units", "cpu-vec", "bf16", false },
	{ "latent", "mla", "bf16", true },
	{ "latent across layers", "mla-cross", "fp8_e5m2", true },
};

/* What is written is read again: every element, and every field. */
static void dump_round_trip(const struct dump_case *c, const char *path)
{
	static const uint32_t a[] = { 4, 1, 2 };
	struct kvt_dump *reader;
	struct kvt_snapshot *s = small_snapshot(c->layout, c->dtype, c->latent);

	add_request(s, "A", 41, 3, a);
	add_request(s, "B", 17, IDS(4, 3));
	s->null_block = 0;
	s->model = strdup("m \"quoted\" \xc3\xa4");
	s->source_format = strdup("hdf5");
	ok(kvt_snapshot_complete(s, &why));
	ok(sample_write(path, s, NULL, &why));
	reader = open_dump(path);
	same_snapshot(s, kvt_dump_snapshot(reader));
	if (c->layout[0] != 'r' && c->layout[0] != 'a' && c->layout[0] != 'c')
		check_dump(reader);
	else
		check_box(reader, 0, &(struct kvt_box){ .end = { 3, 5, 16, 2, 2, 8 } });
}

static void test_dump(void **state)
{
	const char *folder = new_folder();

	dump_round_trip(*state, join(folder, "a.npy").s);
}

/* The dense buffer of the whole is the array, as numpy wrote it. */
static void test_real(void)
{
	static const char *const paths[] = {
		"testdata/kv/s260k/paged_bs16/packed_nhd.bf16.npy",
		"testdata/kv/s260k/paged_bs16/packed_hnd.bf16.npy",
		"testdata/kv/s260k/paged_bs16/packed_bhlsc.bf16.npy",
		"testdata/kv/s260k/paged_bs16/kv_first_nhd.bf16.npy",
		"testdata/kv/s260k/paged_bs16/cpu.bf16.npy",
		"testdata/kv/s260k/paged_bs16/rocm_x.bf16.npy",
		"testdata/kv/s260k/paged_bs16/aiter_shuffle.bf16.npy",
		"testdata/kv/s260k/paged_bs32/packed_nhd.bf16.npy",
		"testdata/kv/gqa64/paged_bs16/cpu_vec.bf16.npy",
		"testdata/kv/mla144/paged_bs16/mla_lbsc.bf16.npy",
		"testdata/kv/mla144/paged_bs16/mla_blsc.bf16.npy",
	};

	for (size_t i = 0; i < LENGTH(paths); i++) {
		struct kvt_dump *reader;
		struct kvt_box box;
		uint8_t *bytes, *buf;
		size_t n;

		reader = open_dump(paths[i]);
		bytes = read_file(paths[i], &n);
		box = kvt_box_whole(&kvt_dump_snapshot(reader)->group[0].shape);
		assert_int_equal(box_bytes(&kvt_dump_snapshot(reader)->group[0], &box),
				 n - 128);
		buf = room(n);
		ok(kvt_dump_read(reader, 0, &box, NULL, buf, &why));
		assert_memory_equal(buf, bytes + 128, n - 128);
	}
}

/* Two states in one page: each is where the manifest says, and they come back. */
static void test_pages(void **state)
{
	static const char path[] = "testdata/kv/mamba2g4/tp2_SD/rank1.npy";
	struct path copy = join(*state, "a.npy");
	const struct kvt_snapshot *s;
	struct kvt_dump *reader, *again;
	struct kvt_writer *writer;
	uint8_t *bytes, *written, *buf = room(1 << 20);
	size_t n, m;

	reader = open_dump(path);
	bytes = read_file(path, &n);
	s = kvt_dump_snapshot(reader);
	assert_int_equal(s->ngroups, 2);
	ok(kvt_create(&writer, copy.s, NULL, s, &why));
	for (int g = 0; g < 2; g++) {
		struct kvt_box box = kvt_box_whole(&s->group[g].shape);

		ok(kvt_dump_read(reader, g, &box, NULL, buf, &why));
		ok(kvt_write_box(writer, g, &box, buf, &why));
		/* layer 2, block 4: pages of 9344 bytes, conv of 1152, then ssm */
		box.begin[NL] = 2;
		box.begin[NB] = 4;
		box.end[NB] = 5;
		ok(kvt_dump_read(reader, g, &box, NULL, buf, &why));
		assert_memory_equal(buf,
				    bytes + 128 + (2 * 6 + 4) * 9344 + (g ? 1152 : 0),
				    g ? 8192 : 1152);
	}
	ok(kvt_commit(writer, &why));
	kvt_close_writer(writer);
	written = read_file(copy.s, &m);
	assert_int_equal(n, m);
	assert_memory_equal(bytes, written, n);
	again = open_dump(copy.s);
	same_snapshot(s, kvt_dump_snapshot(again));
}

/* ---- contradictions ----------------------------------------------------- */

static struct against_case {
	const char *what, *manifest;
	struct kvt_hints hints;
	enum kvt_status status;
	const char *part;
} against[] = {
	{ "nothing but the array: candidates are listed", NULL, { .dtype = "bf16" },
	  KVT_BAD_INPUT,
	  "could be nhd/flex-split (3 layers, 5 blocks of 16 tokens, 2 heads of 8), hnd/" },
	{ "a layout, a type", NULL, { .layout = "nhd", .dtype = "bf16" }, KVT_OK, NULL },
	{ "a layout, no type", NULL, { .layout = "nhd" }, KVT_BAD_INPUT, "--dtype" },
	{ "a type of another size", NULL, { .layout = "nhd", .dtype = "fp32" },
	  KVT_BAD_INPUT, "2 bytes" },
	{ "a layout whose K is elsewhere", NULL,
	  { .layout = "kv-first-nhd", .dtype = "bf16" }, KVT_BAD_INPUT, "give" },
	{ "blocks that are not so many", NULL,
	  { .layout = "nhd", .dtype = "bf16", .blocks = 4 },
	  KVT_BAD_INPUT, "--blocks is 4, but group g0 has 5" },
	{ "a manifest that fits",
	  "{\"layout\": \"nhd\", \"dtype\": \"bfloat16\", \"npy_dtype\": \"<u2\","
	  " \"file_shape\": [3, 5, 16, 2, 2, 8]}", { 0 }, KVT_OK, NULL },
	{ "axes instead of a layout",
	  "{\"file_axes\": [\"L\", \"B\", \"S\", \"H\", \"K\", \"D\"], \"dtype\": \"bf16\"}",
	  { 0 }, KVT_OK, NULL },
	{ "axes that contradict the layout",
	  "{\"layout\": \"hnd\", \"file_axes\": [\"L\", \"B\", \"S\", \"H\", \"C\"],"
	  " \"dtype\": \"bf16\"}", { 0 }, KVT_BAD_INPUT, "file_axes are LBSHC" },
	{ "another shape of the same size",
	  "{\"layout\": \"nhd\", \"dtype\": \"bf16\", \"file_shape\": [3, 5, 2, 16, 2, 8]}",
	  { 0 }, KVT_BAD_INPUT, "file_shape is 3 x 5 x 2" },
	{ "another npy type",
	  "{\"layout\": \"nhd\", \"dtype\": \"bf16\", \"npy_dtype\": \"<f2\"}", { 0 },
	  KVT_BAD_INPUT, "npy_dtype is <f2" },
	{ "sizes with slots and heads exchanged",
	  "{\"layout\": \"nhd\", \"dtype\": \"bf16\", \"sizes\": {\"layers\": 3,"
	  " \"num_blocks\": 5, \"block_size\": 2, \"num_kv_heads\": 16, \"head_dim\": 8}}",
	  { 0 }, KVT_BAD_INPUT, "not 16" },
	{ "the layout of another array of this size",
	  "{\"layout\": \"hnd\", \"dtype\": \"bf16\", \"sizes\": {\"layers\": 3,"
	  " \"num_blocks\": 5, \"block_size\": 16, \"num_kv_heads\": 2, \"head_dim\": 8}}",
	  { 0 }, KVT_BAD_INPUT, "in layout LBHSC has 16 for the head extent, not 2" },
	{ "a hint against the manifest", "{\"layout\": \"nhd\", \"dtype\": \"bf16\"}",
	  { .layout = "hnd" },
	  KVT_BAD_INPUT, "--layout is hnd (LBHSC), but group g0 has nhd (LBSHC)" },
	{ "a type against the manifest", "{\"layout\": \"nhd\", \"dtype\": \"bf16\"}",
	  { .dtype = "fp16" },
	  KVT_BAD_INPUT, "--dtype is fp16, but group g0 has bfloat16" },
	{ "a layout that is none", NULL, { .layout = "LBQ", .dtype = "bf16" }, KVT_USAGE,
	  "LBQ" },
	{ "a layout in the manifest that is none", "{\"layout\": \"LBQ\"}", { 0 },
	  KVT_BAD_INPUT, "LBQ" },
	{ "a manifest that is no JSON", "{\"layout\": ", { 0 }, KVT_BAD_INPUT, "a.json" },
	{ "data that begin elsewhere",
	  "{\"layout\": \"nhd\", \"dtype\": \"bf16\", \"skip\": 64}", { 0 },
	  KVT_BAD_INPUT,
	  "at 64" },
};

static void test_against(void **state)
{
	const struct against_case *c = *state;
	struct kvt_dump *reader;
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct path p, side;
	const char *folder = new_folder();

	p = join(folder, "a.npy");
	side = join(folder, "a.json");
	ok(sample_write(p.s, s, NULL, &why));
	unlink(side.s);
	if (c->manifest)
		write_text(side.s, c->manifest);
	expect(kvt_open(&reader, p.s, &c->hints, &why), c->status, c->part);
	if (!c->status)
		check_dump(keep_dump(reader));
}

/* With a byte more or less, and cut at each byte of the header. */
static void test_wrong_size(void **state)
{
	struct path p = join(*state, "a.npy");
	struct kvt_dump *reader;
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	uint8_t *bytes;
	size_t n;

	ok(sample_write(p.s, s, NULL, &why));
	bytes = read_file(p.s, &n);
	write_file(p.s, bytes, n + 1);
	expect(kvt_open(&reader, p.s, NULL, &why), KVT_BAD_INPUT, "after the header");
	write_file(p.s, bytes, n - 1);
	expect(kvt_open(&reader, p.s, NULL, &why), KVT_BAD_INPUT, "after the header");
	for (size_t i = 0; i < 128; i++) {
		write_file(p.s, bytes, i);
		expect(kvt_open(&reader, p.s, NULL, &why), KVT_BAD_INPUT, NULL);
	}
}

static void test_apart(void **state)
{
	struct path p = join(*state, "a.npy");
	struct kvt_snapshot *s = small_snapshot("sglang-pool", "bf16", false);

	expect(sample_write(p.s, s, NULL, &why), KVT_UNSUPPORTED, "safetensors or hdf5");
	s = small_snapshot("nhd", "bf16", false);
	small_group(s, "g1", "nhd", "bf16", false);
	expect(sample_write(p.s, s, NULL, &why), KVT_UNSUPPORTED, "2 groups");
	assert_int_equal(count_entries(*state), 0);
}

TESTS("npy",
	EACH(dumps, test_dump), EACH(against, test_against),
	NAMED(test_real, "real dumps are read as they lie"),
	NAMED_IN_FOLDER(test_pages, "recurrent pages are read and written"),
	NAMED_IN_FOLDER(test_wrong_size, "files of a wrong size"),
	NAMED_IN_FOLDER(test_apart, "what is no single array"))
