/* SPDX-License-Identifier: Apache-2.0 */
/* test_flat.c - boxes of groups that lie in files, in one run or in many */
#include "tests/unit/formats/dump_fixture.h"

/* ---- boxes of one array ------------------------------------------------- */

/* From dense to scattered: runs of 2 bytes up to the whole in one read. */
static struct box_case {
	const char *what, *layout;
	struct kvt_box box;
} boxes[] = {
	{ "everything", "nhd", { { 0 }, { 3, 5, 16, 2, 2, 8 } } },
	{ "nothing", "nhd", { { 1, 2, 0, 0, 0, 0 }, { 1, 2, 16, 2, 2, 8 } } },
	{ "one layer", "nhd", { { 1 }, { 2, 5, 16, 2, 2, 8 } } },
	{ "one block of all layers", "nhd", { { 0, 3 }, { 3, 4, 16, 2, 2, 8 } } },
	{ "one head, slots outside", "nhd", { { 0, 0, 0, 1 }, { 3, 5, 16, 2, 2, 8 } } },
	{ "one head, heads outside", "hnd", { { 0, 0, 0, 1 }, { 3, 5, 16, 2, 2, 8 } } },
	{ "one slot", "nhd", { { 0, 0, 7 }, { 3, 5, 8, 2, 2, 8 } } },
	{ "values only", "nhd", { { 0, 0, 0, 0, 1 }, { 3, 5, 16, 2, 2, 8 } } },
	{ "values only, keys first", "kv-first-nhd", { { 0, 0, 0, 0, 1 }, { 3, 5, 16, 2,
	  2, 8 } } },
	{ "one element everywhere", "nhd", { { 0, 0, 0, 0, 0, 5 }, { 3, 5, 16, 2, 2,
	  6 } } },
	{ "one element once", "bhlsc", { { 2, 4, 15, 1, 1, 7 }, { 3, 5, 16, 2, 2, 8 } } },
	{ "blocks outermost, some of all axes", "bhlsc", { { 1, 1, 3, 0, 0, 2 }, { 3, 4,
	  9, 1, 2, 5 } } },
	{ "planes of two buffers, both", "sglang-pool", { { 0, 1 }, { 3, 4, 16, 2, 2,
	  8 } } },
	{ "planes of two buffers, values", "sglang-pool", { { 0, 1, 0, 0, 1 }, { 3, 4,
	  16, 2, 2, 8 } } },
	{ "planes that meet, one head", "rocm-paged", { { 0, 1, 0, 1 }, { 3, 4, 16, 2,
	  2, 8 } } },
	{ "S split, values of one block", "aiter-shuffle", { { 1, 3, 0, 0, 1 }, { 2, 4,
	  16, 2, 2, 8 } } },
	{ "D split", "L B K H S D/4 D%4", { { 1, 3 }, { 2, 5, 16, 2, 2, 8 } } },
};

/* A file with 13 bytes before the group. */
struct array {
	struct kvt_snapshot snapshot;
	struct kvt_files files;
	struct kvt_flat flat;
	void *folder;
};

static void open_array(struct array *a, const char *layout, bool fill)
{
	struct kvt_group *g = &a->snapshot.group[0];
	struct kvt_box whole;
	int64_t nbytes;
	struct path p;
	uint8_t *buf;
	int file;

	memset(a, 0, sizeof(*a));
	make_snapshot(&a->snapshot, layout, "bf16", false);
	assert_int_equal(make_folder(&a->folder), 0);
	p = join(a->folder, "a");
	whole = kvt_box_whole(&g->shape);
	nbytes = box_bytes(g, &whole);
	ok(kvt_files_create(&a->files, &file, p.s, 13 + nbytes, &why));
	buf = calloc(1, (size_t)nbytes + 13);
	if (fill) {
		fill_box(g, &whole, buf + 13);
		ok(kvt_file_write(&a->files.file[0], buf, nbytes + 13, 0, &why));
	}
	free(buf);
	ok(kvt_flat_whole(&a->flat, g, false, file, 13, &why));
	ok(kvt_flat_seal(&a->flat, &a->files, g, &why));
}

static void close_array(struct array *a)
{
	kvt_flat_free(&a->flat);
	kvt_files_close(&a->files);
	kvt_snapshot_free(&a->snapshot);
	remove_folder(&a->folder);
}

static bool is_empty(const struct kvt_box *box)
{
	for (int i = 0; i < KVT_NAXES; i++)
		if (box->begin[i] == box->end[i])
			return true;
	return false;
}

static void test_read(void **state)
{
	const struct box_case *c = *state;
	struct array a;
	int64_t nbytes;
	uint8_t *buf;

	open_array(&a, c->layout, true);
	nbytes = box_bytes(&a.snapshot.group[0], &c->box);
	buf = malloc((size_t)nbytes + 1);
	memset(buf, 0xa5, (size_t)nbytes + 1);
	ok(kvt_flat_read(&a.flat, &a.files, &a.snapshot.group[0], &c->box, buf, &why));
	if (!is_empty(&c->box))
		check_filled(&a.snapshot.group[0], &c->box, buf);
	assert_int_equal(buf[nbytes], 0xa5);
	free(buf);
	close_array(&a);
}

/* Writing a box changes its own bytes and no other. */
static void test_write(void **state)
{
	const struct box_case *c = *state;
	struct kvt_box whole;
	struct kvt_group *g;
	struct array a;
	uint8_t *buf, *before, *after;
	size_t n;
	int64_t i[KVT_NAXES];

	open_array(&a, c->layout, false);
	g = &a.snapshot.group[0];
	whole = kvt_box_whole(&g->shape);
	buf = malloc((size_t)box_bytes(g, &c->box) + 1);
	if (!is_empty(&c->box))
		fill_box(g, &c->box, buf);
	ok(kvt_flat_write(&a.flat, &a.files, g, &c->box, buf, &why));
	after = read_file(a.files.file[0].path, &n);
	before = calloc(1, n);
	memcpy(i, c->box.begin, sizeof(i));
	if (!is_empty(&c->box))
		do {
			int64_t at = 13 + dense_at(g, &whole, i);

			before[at] = byte_at(i, 0);
			before[at + 1] = byte_at(i, 1);
		} while (next_index(i, &c->box));
	assert_memory_equal(before, after, n);
	free(buf);
	free(before);
	free(after);
	close_array(&a);
}

static void test_outside(void)
{
	static const struct kvt_box rows[] = {
		{ { 0 }, { 4, 5, 16, 2, 2, 8 } },
		{ { -1 }, { 3, 5, 16, 2, 2, 8 } },
		{ { 0, 3 }, { 3, 2, 16, 2, 2, 8 } },
		{ { 0 }, { 3, 5, 16, 2, 2, INT64_MAX } },
	};
	uint8_t buf[16];
	struct array a;

	open_array(&a, "nhd", true);
	for (int i = 0; i < 4; i++) {
		expect(kvt_flat_read(&a.flat, &a.files, &a.snapshot.group[0], &rows[i],
				     buf, &why), KVT_USAGE, "is outside");
		expect(kvt_flat_write(&a.flat, &a.files, &a.snapshot.group[0], &rows[i],
				      buf, &why), KVT_USAGE, "is outside");
	}
	close_array(&a);
}

/* ---- wide arrays: batches that do not fit the scratch buffer ------------ */

/* Heads of 1 KiB rows, 3000 of them: a head is 1000 B of every 4000 B. */
static void test_batches(void)
{
	struct kvt_group *g;
	struct kvt_box box;
	struct array a;
	uint8_t *buf;
	int64_t nbytes;

	memset(&a, 0, sizeof(a));
	make_snapshot(&a.snapshot, "nhd", "u8", false);
	g = &a.snapshot.group[0];
	memcpy(g->shape.n, ((int64_t[]){ 1, 3, 1000, 4, 2, 500 }), 48);
	box = kvt_box_whole(&g->shape);
	nbytes = box_bytes(g, &box);
	assert_int_equal(make_folder(&a.folder), 0);
	ok(kvt_files_create(&a.files, &(int){0}, join(a.folder, "a").s, nbytes, &why));
	buf = malloc((size_t)nbytes);
	for (int64_t i = 0; i < nbytes; i++)
		buf[i] = (uint8_t)(i * 2654435761u >> 13);
	ok(kvt_flat_whole(&a.flat, g, false, 0, 0, &why));
	ok(kvt_flat_seal(&a.flat, &a.files, g, &why));
	ok(kvt_flat_write(&a.flat, &a.files, g, &box, buf, &why));
	for (int64_t h = 0; h < 4; h++) {
		box.begin[NH] = h;
		box.end[NH] = h + 1;
		ok(kvt_flat_read(&a.flat, &a.files, g, &box, buf, &why));
		for (int64_t row = 0; row < 3000; row++)
			for (int64_t d = 0; d < 1000; d++) {
				int64_t i = (row * 4 + h) * 1000 + d;

				assert_int_equal(buf[row * 1000 + d],
						 (uint8_t)(i * 2654435761u >> 13));
			}
	}
	free(buf);
	close_array(&a);
}

/* ---- many ranges -------------------------------------------------------- */

/*
 * Each (layer, run of blocks) is a range, added in no order; runs of 1, 2 and 2
 * blocks, each in another part of the file, with slots of the last one missing.
 */
static void open_ranges(struct array *a, bool fill)
{
	static const int64_t runs[][2] = { { 3, 5 }, { 0, 1 }, { 1, 3 } };
	struct kvt_group *g;
	int64_t at = 0;
	uint8_t *buf = calloc(1, 1 << 16);

	memset(a, 0, sizeof(*a));
	make_snapshot(&a->snapshot, "nhd", "bf16", false);
	g = &a->snapshot.group[0];
	assert_int_equal(make_folder(&a->folder), 0);
	ok(kvt_files_create(&a->files, &(int){0}, join(a->folder, "a").s, 1 << 16, &why));
	for (int r = 0; r < 3; r++)
		for (int l = 2; l >= 0; l--)
			for (int part = 0; part < 2; part++) {
				struct kvt_file_part range = { .file = part };

				range.file = part && r == 0 ? -1 : 0;
				range.box = kvt_box_whole(&g->shape);
				range.box.begin[NL] = l;
				range.box.end[NL] = l + 1;
				range.box.begin[NB] = runs[r][0];
				range.box.end[NB] = runs[r][1];
				range.box.begin[NS] = part ? 12 : 0;
				range.box.end[NS] = part ? 16 : 12;
				ok(kvt_layout_views(&range.views, &g->layout, &range.box,
						    2, &why));
				range.views.view[0].offset += at;
				if (range.file == 0 && fill)
					fill_box(g, &range.box, buf + at);
				if (range.file == 0)
					at += range.views.nbytes;
				ok(kvt_flat_add(&a->flat, &range, &why));
			}
	ok(kvt_file_write(&a->files.file[0], buf, 1 << 16, 0, &why));
	ok(kvt_flat_seal(&a->flat, &a->files, g, &why));
	free(buf);
}

/* Every box of layers, blocks and slots, against the definition. */
static void test_ranges(void)
{
	struct kvt_group *g;
	struct array a;
	uint8_t buf[1 << 14];
	int count = 0;

	open_ranges(&a, true);
	g = &a.snapshot.group[0];
	for (int l0 = 0; l0 < 3; l0++)
		for (int l1 = l0 + 1; l1 <= 3; l1++)
			for (int b0 = 0; b0 < 5; b0++)
				for (int b1 = b0 + 1; b1 <= 5; b1++)
					for (int s0 = 0; s0 < 16; s0 += 5) {
						struct kvt_box box = {
							{l0, b0, s0, 0, 0, 0},
							{l1, b1, s0 + 1, 2, 2, 8}};
						int64_t i[KVT_NAXES];

						memset(buf, 0xa5, sizeof(buf));
						ok(kvt_flat_read(&a.flat, &a.files, g,
								 &box, buf, &why));
						memcpy(i, box.begin, sizeof(i));
						do {
							bool hole =
								i[NB] >= 3 && i[NS] >= 12;

							assert_int_equal(
								buf[dense_at(g, &box, i)],
								hole ? 0 : byte_at(i, 0));
						} while (next_index(i, &box));
						count++;
					}
	assert_int_equal(count, 6 * 15 * 4);
	close_array(&a);
}

static void test_ranges_written(void)
{
	struct kvt_box whole = { .end = { 3, 5, 16, 2, 2, 8 } };
	uint8_t *buf = malloc(15360), *back = malloc(15360);
	struct kvt_group *g;
	struct array a;
	int64_t i[KVT_NAXES] = { 0 };

	open_ranges(&a, false);
	g = &a.snapshot.group[0];
	fill_box(g, &whole, buf);
	ok(kvt_flat_write(&a.flat, &a.files, g, &whole, buf, &why));
	ok(kvt_flat_read(&a.flat, &a.files, g, &whole, back, &why));
	do {
		bool hole = i[NB] >= 3 && i[NS] >= 12;

		assert_int_equal(back[dense_at(g, &whole, i)], hole ? 0 : byte_at(i, 0));
	} while (next_index(i, &whole));
	free(buf);
	free(back);
	close_array(&a);
}

/* ---- ranges that are wrong ---------------------------------------------- */

static void shift(struct kvt_file_part *p) { p->views.view[0].offset += 14; }
static void negative(struct kvt_file_part *p) { p->views.view[0].offset = -2; }
static void far(struct kvt_file_part *p) { p->views.view[0].offset = INT64_MAX - 3; }
static void stride(struct kvt_file_part *p)
{
	kvt_view_set_stride(&p->views.view[0], KVT_AXIS_L, INT64_MAX / 2);
}
static void back(struct kvt_file_part *p)
{
	kvt_view_set_stride(&p->views.view[0], KVT_AXIS_L, -2);
}
static void layers(struct kvt_file_part *p) { p->box.end[NL] = 4; }
static void blocks(struct kvt_file_part *p) { p->box.begin[NB] = -1; }

static struct seal_case {
	const char *what;
	void (*change)(struct kvt_file_part *);
	const char *part;
} seals[] = {
	{ "a range that ends beyond its file", shift, "would end at byte 15387" },
	{ "a range before its file", negative, NULL },
	{ "a range that wraps around", far, NULL },
	{ "a stride that overflows", stride, NULL },
	{ "a stride that goes back", back, NULL },
	{ "more layers than the group", layers, "layer 0:4" },
	{ "blocks before the first", blocks, "block -1:5" },
};

static void test_seal(void **state)
{
	const struct seal_case *c = *state;
	struct kvt_file_part range;
	struct array a;

	open_array(&a, "nhd", true);
	range = kvt_flat_part(&a.flat, 0);
	c->change(&range);
	kvt_flat_free(&a.flat);
	ok(kvt_flat_add(&a.flat, &range, &why));
	expect(kvt_flat_seal(&a.flat, &a.files, &a.snapshot.group[0], &why),
	       KVT_BAD_INPUT, c->part);
	close_array(&a);
}

/* Ranges that differ by one offset share views, and come back as they were. */
static void test_shared_views(void)
{
	static const int64_t shift[][2] = { { 0, 0 }, { 16, 16 }, { 8, 24 }, { 0, 24 } };
	struct kvt_flat flat = { 0 };
	struct kvt_file_part range = { .file = 0 };
	struct kvt_snapshot s;

	make_snapshot(&s, "K:LBSHD V:LBSHD", "bf16", false);
	range.box = kvt_box_whole(&s.group[0].shape);
	for (int i = 0; i < 4; i++) {
		ok(kvt_layout_views(&range.views, &s.group[0].layout, &range.box, 2,
				    &why));
		for (int v = 0; v < 2; v++)
			range.views.view[v].offset += shift[i][v];
		ok(kvt_flat_add(&flat, &range, &why));
	}
	assert_int_equal(flat.nviews, 3);
	for (int i = 0; i < 4; i++) {
		struct kvt_file_part back = kvt_flat_part(&flat, i);

		assert_int_equal(back.views.view[0].offset, shift[i][0]);
		assert_int_equal(back.views.view[1].offset, 3 * 5 * 16 * 2 * 8 * 2 +
				 shift[i][1]);
	}
	kvt_flat_free(&flat);
	kvt_snapshot_free(&s);
}

TESTS("flat",
	EACH(boxes, test_read),
	EACH(boxes, test_write),
	EACH(seals, test_seal),
	NAMED(test_shared_views, "views that ranges share"),
	NAMED(test_outside, "boxes outside the group"),
	NAMED(test_batches, "batches larger than the buffer"),
	NAMED(test_ranges, "every box of many ranges"),
	NAMED(test_ranges_written, "many ranges written"))
