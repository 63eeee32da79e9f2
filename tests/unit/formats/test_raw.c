/* SPDX-License-Identifier: Apache-2.0 */
/* test_raw.c - headerless bytes: their size is all that can be checked */
#include "tests/unit/fixture.h"

#define NHD "\"layout\": \"nhd\", \"dtype\": \"bf16\", \"sizes\": {\"layers\": 3," \
	    " \"num_blocks\": 5, \"block_size\": 16, \"num_kv_heads\": 2, \"head_dim\": 8}"

static const struct kvt_hints all_hints = {
	.layout = "nhd", .dtype = "bf16", .layers = 3, .blocks = 5, .block_size = 16,
	.heads = 2, .head_dim = 8,
};

static struct raw_case {
	const char *what, *manifest;
	struct kvt_hints hints;
	int64_t before, after;		/* bytes around the data */
	enum kvt_status status;
	const char *part;
} cases[] = {
	{ "a manifest", "{" NHD "}", { 0 }, 0, 0, KVT_OK, NULL },
	{ "bytes before the data", "{" NHD ", \"skip\": 28}", { 0 }, 28, 0, KVT_OK,
	  NULL },
	{ "fewer bytes before than said", "{" NHD ", \"skip\": 28}", { 0 }, 27, 0,
	  KVT_BAD_INPUT, "15359 bytes" },
	{ "bytes before, as a hint", "{" NHD "}", { .skip = 5 }, 5, 0, KVT_OK, NULL },
	{ "bytes before, said differently", "{" NHD ", \"skip\": 28}", { .skip = 27 },
	  28, 0,
	  KVT_BAD_INPUT, "--skip is 27, but data begins at byte 28" },
	{ "bytes before beyond the end", "{" NHD ", \"skip\": 99999}", { 0 }, 0, 0,
	  KVT_BAD_INPUT, "begin at byte 99999" },
	{ "a byte behind the data", "{" NHD "}", { 0 }, 0, 1, KVT_BAD_INPUT, "15361" },
	{ "nothing said", NULL, { 0 }, 0, 0, KVT_BAD_INPUT,
	  "in no format that kvtool knows" },
	{ "format said, nothing else", NULL, { .format = "raw" }, 0, 0, KVT_BAD_INPUT,
	  "--layout" },
	{ "a layout without sizes", NULL, { .layout = "nhd", .dtype = "bf16" }, 0, 0,
	  KVT_BAD_INPUT, "its sizes are not known; give --" },
	{ "one size left open", NULL,
	  { .layout = "nhd", .dtype = "bf16", .blocks = 5, .block_size = 16, .heads = 2,
	    .head_dim = 8 }, 0, 0, KVT_OK, NULL },
	{ "one size left open that is none", NULL,
	  { .layout = "nhd", .dtype = "bf16", .blocks = 7, .block_size = 16, .heads = 2,
	    .head_dim = 8 }, 0, 0, KVT_BAD_INPUT, "--layers" },
	{ "hints against the manifest", "{" NHD "}", { .heads = 4 }, 0, 0, KVT_BAD_INPUT,
	  "--heads is 4" },
	{ "hints that agree", "{" NHD "}", { .heads = 2, .head_dim = 8,
	  .block_size = 16 },
	  0, 0, KVT_OK, NULL },
	{ "a block size against the manifest", "{" NHD "}", { .block_size = 32 }, 0, 0,
	  KVT_BAD_INPUT, "--block-size is 32" },
	{ "content that is opaque and not", NULL,
	  { .layout = "nhd", .dtype = "bf16", .head_dim = 8, .content = 16 }, 0, 0,
	  KVT_USAGE, "not both" },
	{ "a manifest elsewhere that is not there", NULL,
	  { .manifest = "/nowhere/m.json" },
	  0, 0, KVT_SYSTEM, "/nowhere/m.json" },
};

/* The bytes of the made-up cache, between others. */
static void write_raw(const char *path, int64_t before, int64_t after)
{
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct kvt_box box = kvt_box_whole(&s->group[0].shape);
	int64_t nbytes = box_bytes(&s->group[0], &box);
	uint8_t *buf = zeros((size_t)(before + nbytes + after));

	sample_box(buf + before, &s->group[0], 0, &box, false);
	write_file(path, buf, (size_t)(before + nbytes + after));
}

static void test_open(void **state)
{
	const struct raw_case *c = *state;
	struct kvt_dump *reader;
	const char *folder = new_folder();
	struct path p = join(folder, "a.bin");

	write_raw(p.s, c->before, c->after);
	if (c->manifest)
		write_text(join(folder, "a.json").s, c->manifest);
	expect(kvt_open(&reader, p.s, &c->hints, &why), c->status, c->part);
	if (!c->status)
		check_dump(keep_dump(reader));
}

static void test_hints_alone(void **state)
{
	struct path p = join(*state, "a");
	struct kvt_dump *reader;

	write_raw(p.s, 0, 0);
	ok(kvt_open(&reader, p.s, &all_hints, &why));
	keep_dump(reader);
	assert_string_equal(kvt_dump_format(reader), "raw");
	assert_string_equal(kvt_dump_snapshot(reader)->source_format, "raw");
	check_dump(reader);
}

/* The manifest beside it, under both names, and elsewhere. */
static void test_where(void **state)
{
	static const char *const names[] = { "a.json", "a.b.bin.json", "a.b.json" };
	static const bool found[] = { false, true, true };
	struct path p = join(*state, "a.b.bin");
	struct kvt_dump *reader;

	write_raw(p.s, 0, 0);
	for (int i = 0; i < 3; i++) {
		struct path m = join(*state, names[i]);
		struct kvt_hints hints = { .manifest = m.s };

		write_text(m.s, "{" NHD "}");
		expect(kvt_open(&reader, p.s, NULL, &why),
		       found[i] ? KVT_OK : KVT_BAD_INPUT, NULL);
		if (found[i])
			keep_dump(reader);
		ok(kvt_open(&reader, p.s, &hints, &why));
		keep_dump(reader);
		unlink(m.s);
	}
}

static void test_round_trip(void **state)
{
	static const struct {
		const char *name, *layout;
		bool latent;
	} rows[] = {
		{ "a.bin", "hnd", false }, { "b.raw", "sglang-pool", false },
		{ "c.bin", "mla", true },  { "d.bin", "cross-kv-head", false },
	};

	for (int i = 0; i < 4; i++) {
		struct path p = join(*state, rows[i].name);
		struct kvt_dump *reader;
		struct kvt_snapshot *s = small_snapshot(rows[i].layout, "fp16",
							rows[i].latent);

		s->source_format = strdup("npy");
		ok(kvt_snapshot_complete(s, &why));
		/* two buffers have no shape together, but bytes */
		if (i == 1) {
			expect(sample_write(p.s, s, NULL, &why), KVT_UNSUPPORTED,
			       "separate keys and values");
		} else {
			ok(sample_write(p.s, s, NULL, &why));
			reader = open_dump(p.s);
			same_snapshot(s, kvt_dump_snapshot(reader));
			check_dump(reader);
		}
	}
}

/* Pages with a gap: the gap is zeros, and content is where the engine has it. */
static void test_pages(void **state)
{
	struct path p = join(*state, "a.bin");
	struct kvt_dump *reader;
	struct kvt_snapshot *s = small_snapshot("blshc", "bf16", false);
	uint8_t *bytes;
	size_t n;

	s->group[0].page_bytes = 1100;
	s->group[0].page_offset = 60;
	ok(sample_write(p.s, s, NULL, &why));
	bytes = read_file(p.s, &n);
	assert_int_equal(n, 15 * 1100);
	for (size_t i = 0; i < n; i++)
		if (i % 1100 < 60 || i % 1100 >= 60 + 1024)
			assert_int_equal(bytes[i], 0);
	/* block 2, layer 1: page 7; its first element */
	assert_int_equal(bytes[7 * 1100 + 60],
			 byte_at((const int64_t[]){ 1, 2, 0, 0, 0, 0 }, 0));
	reader = open_dump(p.s);
	check_dump(reader);
}

/* A file that shrinks after it was opened. */
static void test_shrinks(void **state)
{
	struct path p = join(*state, "a.bin");
	struct kvt_box box = { .end = { 3, 5, 16, 2, 2, 8 } };
	struct kvt_dump *reader;
	uint8_t *buf = room(15360);

	write_raw(p.s, 0, 0);
	ok(kvt_open(&reader, p.s, &all_hints, &why));
	keep_dump(reader);
	assert_int_equal(truncate(p.s, 15000), 0);
	expect(kvt_dump_read(reader, 0, &box, NULL, buf, &why), KVT_BAD_INPUT,
	       "ends at byte 15000, 360 more expected");
}

TESTS("raw",
	EACH(cases, test_open),
	NAMED_IN_FOLDER(test_hints_alone, "hints alone"),
	NAMED_IN_FOLDER(test_where, "where a manifest is looked for"),
	NAMED_IN_FOLDER(test_round_trip, "written and read"),
	NAMED_IN_FOLDER(test_pages, "pages with gaps"),
	NAMED_IN_FOLDER(test_shrinks, "a file that shrinks while it is open"))
