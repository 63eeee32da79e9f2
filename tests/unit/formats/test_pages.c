/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pages.c - files without a header: what is asked for, sizes to the byte,
 * and every element where loops over its coordinates put it
 */
#include "formats/describe/describe.h"
#include "formats/store/pages.h"
#include "tests/unit/fixture.h"

static const struct kvt_format test_format = {
	.info = { "test", "", .reads = true, .writes = false }
};

static struct kvt_reader *make_reader(const char *layout, bool latent)
{
	struct kvt_reader *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->format = &test_format;
	r->leaf.path = strdup("pages");
	ok(kvt_snapshot_copy(&r->leaf.snapshot,
			     small_snapshot(layout, "bfloat16", latent),
			     &why));
	return r;
}

/* The bytes of 'box' where axes of these letters, slowest first, put them; a T
 * is all tokens of the box in order, 'tokens' of them. */
static int64_t put_axes(uint8_t *out, const char *axes, const struct kvt_group *g,
			const struct kvt_box *box, int64_t tokens)
{
	int64_t i[KVT_NAXES], slots = g->shape.n[NS], nbytes = 0;

	memcpy(i, box->begin, sizeof(i));
	do {
		int64_t at = 0;

		for (const char *c = axes; *c; c++) {
			int a = (int)(strchr("LBSHKD", *c) - "LBSHKD");
			int64_t n, x;

			if (*c == 'T') {
				n = tokens;
				x = (i[NB] - box->begin[NB]) * slots + i[NS];
				if (x >= tokens)
					goto next;
			} else {
				n = box->end[a] - box->begin[a];
				x = i[a] - box->begin[a];
			}
			at = at * n + x;
		}
		for (int b = 0; b < 2; b++)
			out[2 * at + b] = byte_at(i, b);
		if (2 * at + 2 > nbytes)
			nbytes = 2 * at + 2;
next:		;
	} while (next_index(i, box));
	return nbytes;
}

/* A file with 'skip' bytes before and 'pad' bytes behind. */
static int open_file(struct kvt_reader *r, const char *folder, int number,
		     const uint8_t *bytes, int64_t nbytes, int64_t skip, int64_t pad)
{
	uint8_t *all = room((size_t)(skip + nbytes + pad) + 1);
	char name[16];
	int index;

	memset(all, 0x5a, (size_t)(skip + nbytes + pad));
	memcpy(all + skip, bytes, (size_t)nbytes);
	snprintf(name, sizeof(name), "%d", number);
	write_file(join(folder, name).s, all, (size_t)(skip + nbytes + pad));
	ok(kvt_files_open(&r->files, &index, join(folder, name).s, &why));
	return index;
}

/* The reader as a dump, which then has it. */
static struct kvt_dump *seal(struct kvt_reader *r)
{
	struct kvt_dump *dump;

	ok(kvt_flat_seal(&r->flat[0], &r->files, &r->leaf.snapshot.group[0], &why));
	ok(kvt_reader_dump(&dump, r, &why));
	return keep_dump(dump);
}

/* ---- boxes -------------------------------------------------------------- */

/* Five blocks in files of two, two and one; three layers in files of one. */
static void test_add(void **state)
{
	static const struct {
		const char *layout, *axes;
		enum kvt_axis counted;
		int64_t each, skip, pad;
		bool latent;
	} cases[] = {
		{ "BLSHKD", "BLSHKD", KVT_AXIS_B, 2, 0, 0, false },
		{ "BKSLHD", "BKSLHD", KVT_AXIS_B, 2, 28, 0, false },
		{ "KBHSLD", "KBHSLD", KVT_AXIS_B, 2, 0, 5, false },
		{ "LBSHC", "LBSHKD", KVT_AXIS_L, 1, 4096, 100, false },
		{ "K:LBSHD V:LBSHD", "KLBSHD", KVT_AXIS_B, 2, 1, 1, false },
		{ "BLSC", "BLSD", KVT_AXIS_B, 2, 0, 0, true },
	};
	uint8_t *buf = room(1 << 20);

	for (size_t c = 0; c < LENGTH(cases); c++) {
		struct kvt_reader *r = make_reader(cases[c].layout, cases[c].latent);
		struct kvt_dump *dump;
		const struct kvt_group *g = &r->leaf.snapshot.group[0];
		enum kvt_axis a = cases[c].counted;
		int number = 0;

		for (int64_t at = 0; at < g->shape.n[a]; at += cases[c].each) {
			struct kvt_box box = kvt_box_whole(&g->shape);
			int64_t nbytes;
			int file;

			box.begin[a] = at;
			if (at + cases[c].each < box.end[a])
				box.end[a] = at + cases[c].each;
			nbytes = put_axes(buf, cases[c].axes, g, &box, 0);
			file = open_file(r, *state, (int)c * 10 + number++, buf, nbytes,
					 cases[c].skip, cases[c].pad);
			expect(kvt_pages_add(r, 0, file, &box, cases[c].skip + 1,
					     cases[c].pad, &why), KVT_BAD_INPUT,
			       "expected");
			ok(kvt_pages_add(r, 0, file, &box, cases[c].skip, cases[c].pad,
					 &why));
		}
		dump = seal(r);
		check_dump(dump);
	}
}

/* Blocks of a layer in pages that are larger than they need. */
static void test_padded_pages(void **state)
{
	struct kvt_reader *r = make_reader("BLSHKD", false);
	struct kvt_dump *dump;
	struct kvt_group *g = &r->leaf.snapshot.group[0];
	struct kvt_box box = kvt_box_whole(&g->shape), page;
	uint8_t *buf = zeros(5 * 3 * 1100);

	g->page_bytes = 1100;		/* of 1024 */
	for (int64_t b = 0; b < 5; b++)
		for (int64_t l = 0; l < 3; l++) {
			page = box;
			page.begin[NB] = b;
			page.end[NB] = b + 1;
			page.begin[NL] = l;
			page.end[NL] = l + 1;
			put_axes(buf + (b * 3 + l) * 1100, "SHKD", g, &page, 0);
		}
	for (int64_t b = 0; b < 5; b++) {
		int file = open_file(r, *state, (int)b, buf + b * 3300, 3300, 0, 0);

		page = box;
		page.begin[NB] = b;
		page.end[NB] = b + 1;
		ok(kvt_pages_add(r, 0, file, &page, 0, 0, &why));
	}
	dump = seal(r);
	check_dump(dump);
}

/* ---- tokens ------------------------------------------------------------- */

static void test_tokens(void **state)
{
	static const struct {
		const char *layout, *axes;
		bool latent;
	} cases[] = {
		{ "KLBSHD", "KLTHD", false }, { "BSKHD", "TKHD", false },
		{ "LBSHKD", "LTHKD", false }, { "LBSC", "LTD", true },
		{ "LBSHC", "LTHKD", false }, { "K:LBSHD V:LBSHD", "KLTHD", false },
	};
	/* 1, 2 and 2 blocks; values begin elsewhere in each */
	const int64_t tokens[3] = { 16, 21, 17 };
	uint8_t *buf = room(1 << 20);

	for (size_t c = 0; c < LENGTH(cases); c++) {
		struct kvt_reader *r = make_reader(cases[c].layout, cases[c].latent);
		struct kvt_dump *dump;
		struct kvt_group *g = &r->leaf.snapshot.group[0];
		int64_t block = 0, nbytes;

		if (!strchr(cases[c].axes, 'L'))
			g->shape.n[NL] = 1;
		for (int f = 0; f < 3; f++) {
			struct kvt_box box = kvt_box_whole(&g->shape);
			int64_t blocks = (tokens[f] + 15) / 16;
			int file;

			box.begin[NB] = block;
			box.end[NB] = block + blocks;
			nbytes = put_axes(buf, cases[c].axes, g, &box, tokens[f]);
			file = open_file(r, *state, (int)c * 10 + f, buf, nbytes, 7, 0);
			ok(kvt_pages_place_tokens(r, 0, file, &box, tokens[f], 7, &why));
			block += blocks;
		}
		dump = seal(r);
		for (int64_t b = 0; b < 5; b++) {
			struct kvt_box box = kvt_box_whole(&g->shape);
			int64_t rest = b == 2 ? 5 : b == 4 ? 1 : 16;

			box.begin[NB] = b;
			box.end[NB] = b + 1;
			box.end[NS] = rest;
			check_box(dump, 0, &box);
			box.begin[NS] = rest;
			box.end[NS] = 16;
			nbytes = box_bytes(g, &box);
			memset(buf, 1, (size_t)nbytes);
			ok(kvt_dump_read(dump, 0, &box, NULL, buf, &why));
			for (int64_t i = 0; i < nbytes; i++)
				assert_int_equal(buf[i], 0);
		}
	}
}

static void test_no_tokens(void **state)
{
	static const char *const layouts[] = { "LBHSC", "K:LBKHD/xSx V:LBKHDS" };
	uint8_t *buf = zeros(1 << 16);

	for (int i = 0; i < 2; i++) {
		struct kvt_reader *r = make_reader(layouts[i], false);
		struct kvt_box box = kvt_box_whole(&r->leaf.snapshot.group[0].shape);
		int file = open_file(r, *state, i, buf, 3 * 16 * 64, 0, 0);

		expect(kvt_pages_place_tokens(r, 0, file, &box, 16, 0, &why),
		       KVT_UNSUPPORTED, "cannot hold tokens");
		kvt_reader_free(r);
	}
}

/* ---- what has to be said ------------------------------------------------ */

static void test_fit(void)
{
	static const struct {
		const char *layout;	/* that the format knows; NULL: it does not */
		int64_t nbytes;
		struct kvt_hints hints;
		const char *part;	/* of the sentence; NULL: 3 layers, 8 elements */
	} cases[] = {
		{ "BLSHKD", 3072, { .dtype = "bf16", .layers = 3, .block_size = 16,
				    .heads = 2, .head_dim = 8 }, NULL },
		{ "BLSHKD", 3072, { .dtype = "bf16", .layers = 3, .block_size = 16,
				    .heads = 2 }, NULL },
		{ "BLSHKD", 3072, { .dtype = "bf16", .block_size = 16, .heads = 2,
				    .head_dim = 8 }, NULL },
		{ NULL, 3072, { .layout = "BLSHKD", .dtype = "bf16", .block_size = 16,
				.heads = 2, .head_dim = 8, .blocks = 99 }, NULL },
		{ "BLSHKD", 3072, { .layers = 3 },
		  "give --dtype, --block-size, --heads, --head-dim (one" },
		{ NULL, 3072, { .layers = 3, .block_size = 16, .heads = 2,
				.head_dim = 8 },
		  "give --layout, --dtype" },
		{ "BLSC", 3072, { .dtype = "bf16", .layers = 3 },
		  "give --block-size, --content-size (one" },
		{ "BLSHKD", 3074, { .dtype = "bf16", .layers = 3, .block_size = 16,
				    .heads = 2, .head_dim = 8 },
		  "has 3074 bytes of data, but layout, sizes and type make 3072" },
		{ "BLSHKD", 3074, { .dtype = "bf16", .layers = 3, .block_size = 16,
				    .heads = 2 }, "give --head-dim" },
		{ "BLSHKD", 3072, { .dtype = "bf16", .layers = INT64_MAX / 2,
				    .block_size = 16, .heads = 2, .head_dim = 8 },
		  "" },
	};
	for (size_t i = 0; i < LENGTH(cases); i++) {
		struct kvt_pages_known known = { .name = "file",
						 .nbytes = cases[i].nbytes };
		struct kvt_group g;

		kvt_manifest_blank_group(&g, "g0");
		g.shape.n[NB] = 1;
		if (cases[i].layout)
			ok(kvt_layout_parse(&g.layout, cases[i].layout, &why));
		expect(kvt_pages_fit(&g, &known, &cases[i].hints, &why),
		       cases[i].part ? KVT_BAD_INPUT : KVT_OK, cases[i].part);
		if (cases[i].part)
			continue;
		assert_int_equal(g.shape.n[NL], 3);
		assert_int_equal(g.shape.n[ND], 8);
		assert_int_equal(g.total_heads, 2);
		/* blocks that are said are those of all files: kvt_open() compares */
		assert_int_equal(g.shape.n[NB], 1);
	}
}

TESTS("pages",
	IN_FOLDER(test_add), IN_FOLDER(test_padded_pages), IN_FOLDER(test_tokens),
	IN_FOLDER(test_no_tokens), TEST(test_fit))
