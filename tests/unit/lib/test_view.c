/* SPDX-License-Identifier: Apache-2.0 */
/* test_view.c - where layouts put elements: golden offsets, strides, refusals */
#include "lib/kvt/kvt.h"
#include "tests/fewer.h"
#include "tests/unit/lib/axis_oracle.h"
#include "tests/unit/lib/views_of.h"
#include "tests/unit/tests.h"

/* ---- golden offsets ----------------------------------------------------- */

/* LAYOUTS 12.1: element l=1 b=3 s=17 h=1 d=13 of a cache of 2-byte elements. */
static struct golden_case {
	const char *preset;
	int64_t key, value;
} golden[] = {
	{ "nhd",                       279834, 279962 },
	{ "hnd",                       274714, 274842 },
	{ "blshc",                     345370, 345498 },
	{ "blhsc",                     340250, 340378 },
	{ "bhlsc",                     332058, 332186 },
	{ "lhbsc",                     233754, 233882 },
	{ "kv-first-nhd",              221850, 303770 },
	{ "kv-first-hnd",              219290, 301210 },
	{ "blocks-first-nhd",          271002, 287386 },
	{ "blocks-first-hnd",          268442, 284826 },
	{ "flex-split",                279706, 280218 },
	{ "head-halves",               272538, 276634 },
	{ "cross-nhd",                 336538, 352922 },
	{ "cross-hnd",                 333978, 350362 },
	{ "cross-flex",                345242, 345754 },
	{ "cross-head",                329882, 333978 },
	{ "cross-kv-head",             313498, 362650 },
	{ "cross-layer-head",          338074, 342170 },
	{ "hicache-layer-first",       139930, 385690 },
	{ "hicache-page-first",        174234, 419994 },
	{ "hicache-page-first-direct", 172698, 418458 },
	{ "hicache-page-head",         166426, 412186 },
	{ "rocm-paged",                217882, 299874 },
	{ "rocm-paged-page",           267034, 283490 },
	{ "aiter-shuffle",             267034, 284882 },
	{ "aiter-shuffle-kv-first",    217882, 301266 },
	{ "cpu-vec",                   271202, 276634 },
	{ "cpu-amx",                   272774, 274998 },
	{ "cpu-neon-bf16",             272586, 275274 },
};

static void test_golden(void **state)
{
	const struct kvt_shape shape = { .n = { 3, 5, 32, 4, 2, 64 }, .elem = 2 };
	const struct golden_case *c = *state;
	struct kvt_layout layout = layout_of(c->preset);
	struct kvt_views views = views_of(c->preset, &shape);
	int64_t index[KVT_NAXES] = { 1, 3, 17, 1, 0, 13 };
	struct kvt_text axes = kvt_layout_string(&layout);

	assert_int_equal(views.nbytes, 491520);
	assert_int_equal(views_at(&views, index), c->key);
	assert_int_equal(oracle_at(axes.s, shape.n, 2, 0, index), c->key);
	index[KVT_AXIS_K] = 1;
	assert_int_equal(views_at(&views, index), c->value);
	assert_int_equal(oracle_at(axes.s, shape.n, 2, 0, index), c->value);
}

/* LAYOUTS 8.3: element t=17 of S=32, D=64 inside one half, in elements. */
static struct pack_case {
	const char *preset;
	int64_t d, key, value;
} packs[] = {
	{ "cpu-vec",       5,  177, 1093 },
	{ "cpu-amx",       5,  1091, 267 },
	{ "cpu-neon-bf16", 5,  1061, 165 },
	{ "rocm-paged",    13, 397,  433 },
	{ "aiter-shuffle", 13, 397,  1129 },
};

static void test_pack(void **state)
{
	const struct kvt_shape shape = { .n = { 1, 1, 32, 1, 2, 64 }, .elem = 2 };
	const struct pack_case *c = *state;
	struct kvt_views views = views_of(c->preset, &shape);
	int64_t index[KVT_NAXES] = { 0, 0, 17, 0, 0, c->d };

	assert_int_equal(views_at(&views, index), 2 * c->key);
	index[KVT_AXIS_K] = 1;
	assert_int_equal(views_at(&views, index), 2 * (32 * 64 + c->value));
}

/* ---- strides ------------------------------------------------------------ */

/* LAYOUTS 5, L=3 B=8 H=4 S=16 C=256 bytes; and with pages of 20480 bytes. */
static struct stride_case {
	const char *preset;
	int64_t l, b, s, h;
	int64_t padded_l, padded_b;	/* 0: the page is not one run */
} strides[] = {
	{ "nhd",   131072, 16384, 1024, 256,   163840, 20480 },
	{ "hnd",   131072, 16384, 256,  4096,  163840, 20480 },
	{ "blshc", 16384,  49152, 1024, 256,   20480,  61440 },
	{ "blhsc", 16384,  49152, 256,  4096,  20480,  61440 },
	{ "bhlsc", 4096,   49152, 256,  12288, 0,      0 },
	{ "lhbsc", 131072, 4096,  256,  32768, 0,      0 },
};

static int64_t stride_of(const struct kvt_view *view, enum kvt_axis axis)
{
	int64_t index[KVT_NAXES] = { 0 };

	index[axis] = 1;
	return kvt_view_at(view, index) - view->offset;
}

static void test_stride(void **state)
{
	const struct kvt_shape shape = { .n = { 3, 8, 16, 4, 2, 128 }, .elem = 1 };
	const struct stride_case *c = *state;
	struct kvt_view view = views_of(c->preset, &shape).view[0];
	int64_t end;

	assert_int_equal(stride_of(&view, KVT_AXIS_L), c->l);
	assert_int_equal(stride_of(&view, KVT_AXIS_B), c->b);
	assert_int_equal(stride_of(&view, KVT_AXIS_S), c->s);
	assert_int_equal(stride_of(&view, KVT_AXIS_H), c->h);
	assert_int_equal(stride_of(&view, KVT_AXIS_K), 128);
	assert_int_equal(stride_of(&view, KVT_AXIS_D), 1);
	if (!c->padded_l)
		return;
	kvt_view_set_stride(&view, KVT_AXIS_L, c->padded_l);
	kvt_view_set_stride(&view, KVT_AXIS_B, c->padded_b);
	assert_int_equal(stride_of(&view, KVT_AXIS_L), c->padded_l);
	assert_int_equal(stride_of(&view, KVT_AXIS_B), c->padded_b);
	assert_int_equal(stride_of(&view, KVT_AXIS_H), c->h);
	ok(kvt_view_end(&end, &view, &why));
	assert_int_equal(end, 3 * 8 * 20480 - 4096);	/* no padding at the end */
}

/* ---- every element ------------------------------------------------------ */

/* Layouts without names, and axes of one entry. */
static const char *const unnamed[] = {
	"BSLHC", "LBKDSH", "DSHBLK", "L B S/8 H S%8 C", "D/2 S/4 K S%4 H D%2 B L",
	"S%8 L B S/8 H C", "K:L B K D S H V:L B K H S/2 D/4 S%2 D%4",
	"K:LBDSHK V:LBDSHK", "K:KLBSHD V:KBLHDS", "K:LBHD/8SD%8 V:BLHSD",
};

static void check_elements(const char *text, const int64_t n[KVT_NAXES],
			   int64_t elem, int64_t first_k)
{
	struct kvt_layout layout = layout_of(text);
	struct kvt_text axes = kvt_layout_string(&layout);
	struct kvt_box box = { { 0, 0, 0, 0, first_k, 0 },
			       { n[0], n[1], n[2], n[3], first_k + n[4], n[5] } };
	int64_t index[KVT_NAXES] = { 0 };
	struct kvt_views views;

	if (kvt_layout_views(&views, &layout, &box, elem, &why))
		fail_msg("%s: %s", text, why.text);
	if (views.first_k != first_k ||
	    views.nbytes != n[0] * n[1] * n[2] * n[3] * n[4] * n[5] * elem)
		fail_msg("%s: %d bytes from %d on", text, (int)views.nbytes,
			 (int)views.first_k);
	do {
		int64_t at = views_at(&views, index);

		if (at != oracle_at(axes.s, n, elem, first_k, index))
			fail_msg("%s: element %d,%d,%d,%d,%d,%d is at %d", text,
				 (int)index[0], (int)index[1], (int)index[2],
				 (int)index[3], (int)index[4], (int)index[5], (int)at);
	} while (oracle_next(index, n));
}

static void check_shapes(const char *text)
{
	/* small ones first */
	static const int64_t shapes[][KVT_NAXES] = {
		{ 1, 2, 16, 1, 2, 16 }, { 2, 2, 16, 3, 1, 16 },
		{ 3, 1, 16, 5, 2, 48 }, { 2, 3, 32, 2, 2, 32 },
	};
	enum { NSHAPES = LENGTH(shapes) };
	struct kvt_layout layout = layout_of(text);
	struct kvt_text axes = kvt_layout_string(&layout);

	for (int i = 0; i < fewer(NSHAPES); i++) {
		int64_t n[KVT_NAXES];

		memcpy(n, shapes[i], sizeof(n));
		oracle_drop_absent(n, axes.s);
		check_elements(text, n, 1, 0);
		check_elements(text, n, 2, 0);
		check_elements(text, n, 4, 0);
		n[KVT_AXIS_K] = 1;
		check_elements(text, n, 2, 1);
	}
}

static void test_elements(void)
{
	const struct kvt_preset *preset;

	for (int i = 0; (preset = kvt_preset_at(i)); i++)
		check_shapes(preset->name);
	for (int i = 0; i < LENGTH(unnamed); i++)
		check_shapes(unnamed[i]);
}

/* ---- refusals ----------------------------------------------------------- */

static struct refuse_case {
	const char *what, *layout;
	struct kvt_shape shape;
	const char *says;	/* NULL: accepted */
} refusals[] = {
	{ "a split that does not divide D", "rocm-paged",
	  { { 1, 1, 16, 1, 2, 12 }, 2 }, "12 is not a multiple of the split 8" },
	{ "a split that does not divide S", "cpu-amx",
	  { { 1, 1, 24, 1, 2, 32 }, 2 }, "24 is not a multiple of the split 16" },
	{ "x is 4 for 4 bytes", "rocm-paged", { { 1, 1, 16, 1, 2, 12 }, 4 }, NULL },
	{ "heads in a layout without", "LBSC", { { 1, 1, 16, 2, 1, 12 }, 4 },
	  "no head axis (H), but the head extent is 2" },
	{ "keys and values in a layout without", "conv-sd",
	  { { 1, 1, 3, 1, 2, 12 }, 4 }, "no kv axis (K)" },
	{ "layers in a layout without", "BSHC", { { 2, 1, 3, 1, 2, 12 }, 4 },
	  "no layer axis (L)" },
	{ "one of what is absent", "SD", { { 1, 1, 3, 1, 1, 12 }, 4 }, NULL },
	{ "none of what is absent", "SD", { { 0, 1, 3, 1, 1, 12 }, 4 }, NULL },
	{ "heads in one of two planes without", "K:LBSD V:LBDS",
	  { { 1, 1, 3, 2, 2, 12 }, 4 }, "no head axis (H)" },
	{ "three entries of K for two planes", "rocm-paged",
	  { { 1, 1, 16, 1, 3, 16 }, 2 }, "outside the two planes" },
	{ "negative extent", "nhd", { { 1, -1, 16, 1, 2, 16 }, 2 },
	  "block extent is -1" },
	{ "no element size", "nhd", { { 1, 1, 16, 1, 2, 16 }, 0 }, "at least 1" },
	{ "2^63 bytes", "nhd",
	  { { 1 << 20, 1 << 20, 1 << 20, 1, 2, 1 }, 4 }, "larger than 2^63" },
	{ "2^62 bytes", "nhd", { { 1 << 20, 1 << 20, 1 << 20, 1, 2, 1 }, 2 }, NULL },
	{ "no data does not hide 2^63 bytes", "nhd",
	  { { 1 << 20, 0, 1 << 20, 1 << 20, 2, 1 }, 4 }, "larger than 2^63" },
	{ "no data, and a large split",
	  "L S/1073741824 D B H K S%1073741824",
	  { { 1, 1 << 20, 0, 1, 1, 1 }, 1 }, NULL },
	{ "no data, and a split beyond 2^63",
	  "L S/1073741824 D B H K S%1073741824",
	  { { 1 << 20, 1 << 20, 0, 1 << 20, 1, 1 }, 1 }, "larger than 2^63" },
};

static void test_refuse(void **state)
{
	const struct refuse_case *c = *state;
	struct kvt_layout layout = layout_of(c->layout);
	struct kvt_box box = kvt_box_whole(&c->shape);
	struct kvt_views views;

	expect(kvt_layout_views(&views, &layout, &box, c->shape.elem, &why),
	       c->says ? KVT_BAD_INPUT : KVT_OK, c->says);
}

/* Strides and offsets of a descriptor that lies. */
static void test_end(void)
{
	const struct kvt_shape shape = { .n = { 4, 2, 2, 2, 2, 2 }, .elem = 2 };
	struct kvt_view view = views_of("nhd", &shape).view[0], bad;
	int64_t end;

	view.offset = 100;
	ok(kvt_view_end(&end, &view, &why));
	assert_int_equal(end, 100 + 256);

	bad = view;
	kvt_view_set_stride(&bad, KVT_AXIS_L, INT64_MAX / 4);
	expect(kvt_view_end(&end, &bad, &why), KVT_BAD_INPUT, "2^63");
	kvt_view_set_stride(&bad, KVT_AXIS_L, INT64_MAX);
	expect(kvt_view_end(&end, &bad, &why), KVT_BAD_INPUT, NULL);
	kvt_view_set_stride(&bad, KVT_AXIS_L, -64);
	expect(kvt_view_end(&end, &bad, &why), KVT_BAD_INPUT, "layer stride is -64");
	bad = view;
	bad.offset = -1;
	expect(kvt_view_end(&end, &bad, &why), KVT_BAD_INPUT, NULL);
	bad.offset = INT64_MAX;
	expect(kvt_view_end(&end, &bad, &why), KVT_BAD_INPUT, NULL);
}

TESTS("view",
	EACH_BY(golden, preset, test_golden), EACH_BY(packs, preset, test_pack),
	EACH_BY(strides, preset, test_stride),
	NAMED(test_elements, "every element of every layout"),
	EACH(refusals, test_refuse),
	NAMED(test_end, "the end of a view with foreign strides"))
