/* SPDX-License-Identifier: Apache-2.0 */
/* test_flat.c - boxes of groups that lie in files, in one run or in many */
#include "tests/unit/fixture.h"

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

struct array {
	struct kvt_group *g;
	struct kvt_files files;
	struct kvt_flat flat;
};

static void close_array(void *array)
{
	struct array *a = array;

	kvt_flat_free(&a->flat);
	kvt_files_close(&a->files);
	free(a);
}

static struct array *new_array(const char *layout, const char *dtype)
{
	struct kvt_snapshot *s = small_snapshot(layout, dtype, false);
	struct array *a = keep_by(calloc(1, sizeof(*a)), close_array);

	a->g = &s->group[0];
	return a;
}

/* A file with 13 bytes before the group. */
static struct array *open_array(const char *layout, bool fill)
{
	struct array *a = new_array(layout, "bf16");
	struct kvt_box whole = kvt_box_whole(&a->g->shape);
	int64_t nbytes = box_bytes(a->g, &whole);
	uint8_t *buf = zeros((size_t)nbytes + 13);
	int file;

	ok(kvt_files_create(&a->files, &file, join(new_folder(), "a").s, 13 + nbytes,
			    &why));
	if (fill) {
		sample_box(buf + 13, a->g, 0, &whole, false);
		ok(kvt_file_write(&a->files.file[0], buf, nbytes + 13, 0, &why));
	}
	ok(kvt_flat_whole(&a->flat, a->g, false, file, 13, &why));
	ok(kvt_flat_seal(&a->flat, &a->files, a->g, &why));
	return a;
}

static void test_read(void **state)
{
	const struct box_case *c = *state;
	struct array *a = open_array(c->layout, true);
	int64_t nbytes = box_bytes(a->g, &c->box);
	uint8_t *buf = room((size_t)nbytes + 1);

	memset(buf, 0xa5, (size_t)nbytes + 1);
	ok(kvt_flat_read(&a->flat, &a->files, a->g, &c->box, buf, &why));
	assert_true(sample_box(buf, a->g, 0, &c->box, true));
	assert_int_equal(buf[nbytes], 0xa5);
}

/* Writing a box changes its own bytes and no other. */
static void test_write(void **state)
{
	const struct box_case *c = *state;
	struct array *a = open_array(c->layout, false);
	struct kvt_box whole = kvt_box_whole(&a->g->shape);
	uint8_t *buf = room((size_t)box_bytes(a->g, &c->box) + 1), *before, *after;
	int64_t i[KVT_NAXES];
	size_t n;

	sample_box(buf, a->g, 0, &c->box, false);
	ok(kvt_flat_write(&a->flat, &a->files, a->g, &c->box, buf, &why));
	after = read_file(a->files.file[0].path, &n);
	before = zeros(n);
	memcpy(i, c->box.begin, sizeof(i));
	if (sample_count(&c->box))
		do {
			int64_t at = 13 + dense_at(a->g, &whole, i);

			before[at] = byte_at(i, 0);
			before[at + 1] = byte_at(i, 1);
		} while (next_index(i, &c->box));
	assert_memory_equal(before, after, n);
}

static void test_outside(void)
{
	static const struct kvt_box rows[] = {
		{ { 0 }, { 4, 5, 16, 2, 2, 8 } },
		{ { -1 }, { 3, 5, 16, 2, 2, 8 } },
		{ { 0, 3 }, { 3, 2, 16, 2, 2, 8 } },
		{ { 0 }, { 3, 5, 16, 2, 2, INT64_MAX } },
	};
	struct array *a = open_array("nhd", true);
	uint8_t buf[16];

	for (int i = 0; i < 4; i++) {
		expect(kvt_flat_read(&a->flat, &a->files, a->g, &rows[i], buf, &why),
		       KVT_USAGE, "is outside");
		expect(kvt_flat_write(&a->flat, &a->files, a->g, &rows[i], buf, &why),
		       KVT_USAGE, "is outside");
	}
}

/* ---- wide arrays: batches that do not fit the scratch buffer ------------ */

/* Heads of 1 KiB rows, 3000 of them: a head is 1000 B of every 4000 B. */
static void test_batches(void)
{
	struct array *a = new_array("nhd", "u8");
	struct kvt_box box;
	int64_t nbytes;
	uint8_t *buf;

	memcpy(a->g->shape.n, ((int64_t[]){ 1, 3, 1000, 4, 2, 500 }), 48);
	box = kvt_box_whole(&a->g->shape);
	nbytes = box_bytes(a->g, &box);
	ok(kvt_files_create(&a->files, &(int){0}, join(new_folder(), "a").s, nbytes,
			    &why));
	buf = room((size_t)nbytes);
	for (int64_t i = 0; i < nbytes; i++)
		buf[i] = (uint8_t)(i * 2654435761u >> 13);
	ok(kvt_flat_whole(&a->flat, a->g, false, 0, 0, &why));
	ok(kvt_flat_seal(&a->flat, &a->files, a->g, &why));
	ok(kvt_flat_write(&a->flat, &a->files, a->g, &box, buf, &why));
	for (int64_t h = 0; h < 4; h++) {
		box.begin[NH] = h;
		box.end[NH] = h + 1;
		ok(kvt_flat_read(&a->flat, &a->files, a->g, &box, buf, &why));
		for (int64_t row = 0; row < 3000; row++)
			for (int64_t d = 0; d < 1000; d++) {
				int64_t i = (row * 4 + h) * 1000 + d;

				assert_int_equal(buf[row * 1000 + d],
						 (uint8_t)(i * 2654435761u >> 13));
			}
	}
}

/* ---- many ranges -------------------------------------------------------- */

/*
 * Each (layer, run of blocks) is a range, added in no order; runs of 1, 2 and 2
 * blocks, each in another part of the file, with slots of the last one missing.
 */
static struct array *open_ranges(bool fill)
{
	static const int64_t runs[][2] = { { 3, 5 }, { 0, 1 }, { 1, 3 } };
	struct array *a = new_array("nhd", "bf16");
	uint8_t *buf = zeros(1 << 16);
	int64_t at = 0;

	ok(kvt_files_create(&a->files, &(int){0}, join(new_folder(), "a").s, 1 << 16,
			    &why));
	for (int r = 0; r < 3; r++)
		for (int l = 2; l >= 0; l--)
			for (int part = 0; part < 2; part++) {
				struct kvt_file_part range = { .file = part };

				range.file = part && r == 0 ? -1 : 0;
				range.box = kvt_box_whole(&a->g->shape);
				range.box.begin[NL] = l;
				range.box.end[NL] = l + 1;
				range.box.begin[NB] = runs[r][0];
				range.box.end[NB] = runs[r][1];
				range.box.begin[NS] = part ? 12 : 0;
				range.box.end[NS] = part ? 16 : 12;
				ok(kvt_layout_views(&range.views, &a->g->layout,
						    &range.box, 2, &why));
				range.views.view[0].offset += at;
				if (range.file == 0 && fill)
					sample_box(buf + at, a->g, 0, &range.box, false);
				if (range.file == 0)
					at += range.views.nbytes;
				ok(kvt_flat_add(&a->flat, &range, &why));
			}
	ok(kvt_file_write(&a->files.file[0], buf, 1 << 16, 0, &why));
	ok(kvt_flat_seal(&a->flat, &a->files, a->g, &why));
	return a;
}

/* Every box of layers, blocks and slots, against the definition. */
static void test_ranges(void)
{
	struct array *a = open_ranges(true);
	uint8_t buf[1 << 14];
	int count = 0;

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
						ok(kvt_flat_read(&a->flat, &a->files,
								 a->g,
								 &box, buf, &why));
						memcpy(i, box.begin, sizeof(i));
						do {
							bool hole =
								i[NB] >= 3 && i[NS] >= 12;

							assert_int_equal(
								buf[dense_at(a->g, &box,
									     i)],
								hole ? 0 : byte_at(i, 0));
						} while (next_index(i, &box));
						count++;
					}
	assert_int_equal(count, 6 * 15 * 4);
}

static void test_ranges_written(void)
{
	struct kvt_box whole = { .end = { 3, 5, 16, 2, 2, 8 } };
	uint8_t *buf = room(15360), *back = room(15360);
	struct array *a = open_ranges(false);
	int64_t i[KVT_NAXES] = { 0 };

	sample_box(buf, a->g, 0, &whole, false);
	ok(kvt_flat_write(&a->flat, &a->files, a->g, &whole, buf, &why));
	ok(kvt_flat_read(&a->flat, &a->files, a->g, &whole, back, &why));
	do {
		bool hole = i[NB] >= 3 && i[NS] >= 12;

		assert_int_equal(back[dense_at(a->g, &whole, i)],
				 hole ? 0 : byte_at(i, 0));
	} while (next_index(i, &whole));
}

/* ---- ranges that are wrong ---------------------------------------------- */

enum { SHIFT, OFFSET, STRIDE, LAYERS, BLOCKS };

static struct seal_case {
	const char *what;
	int change;
	int64_t to;
	const char *part;
} seals[] = {
	{ "a range that ends beyond its file", SHIFT, 14,
	  "would end at byte 15387" },
	{ "a range before its file", OFFSET, -2, NULL },
	{ "a range that wraps around", OFFSET, INT64_MAX - 3, NULL },
	{ "a stride that overflows", STRIDE, INT64_MAX / 2, NULL },
	{ "a stride that goes back", STRIDE, -2, NULL },
	{ "more layers than the group", LAYERS, 4, "layer 0:4" },
	{ "blocks before the first", BLOCKS, -1, "block -1:5" },
};

static void test_seal(void **state)
{
	const struct seal_case *c = *state;
	struct array *a = open_array("nhd", true);
	struct kvt_file_part range = kvt_flat_part(&a->flat, 0);

	if (c->change == SHIFT)
		range.views.view[0].offset += c->to;
	else if (c->change == OFFSET)
		range.views.view[0].offset = c->to;
	else if (c->change == STRIDE)
		kvt_view_set_stride(&range.views.view[0], KVT_AXIS_L, c->to);
	else if (c->change == LAYERS)
		range.box.end[NL] = c->to;
	else
		range.box.begin[NB] = c->to;
	kvt_flat_free(&a->flat);
	ok(kvt_flat_add(&a->flat, &range, &why));
	expect(kvt_flat_seal(&a->flat, &a->files, a->g, &why), KVT_BAD_INPUT, c->part);
}

/* Ranges that differ by one offset share views, and come back as they were. */
static void test_shared_views(void)
{
	static const int64_t shift[][2] = { { 0, 0 }, { 16, 16 }, { 8, 24 }, { 0, 24 } };
	struct kvt_flat flat = { 0 };
	struct kvt_file_part range = { .file = 0 };
	struct kvt_snapshot *s = small_snapshot("K:LBSHD V:LBSHD", "bf16", false);

	range.box = kvt_box_whole(&s->group[0].shape);
	for (int i = 0; i < 4; i++) {
		ok(kvt_layout_views(&range.views, &s->group[0].layout, &range.box, 2,
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
}

TESTS("flat",
	EACH(boxes, test_read), EACH(boxes, test_write), EACH(seals, test_seal),
	NAMED(test_shared_views, "views that ranges share"),
	NAMED(test_outside, "boxes outside the group"),
	NAMED(test_batches, "batches larger than the buffer"),
	NAMED(test_ranges, "every box of many ranges"),
	NAMED(test_ranges_written, "many ranges written"))
