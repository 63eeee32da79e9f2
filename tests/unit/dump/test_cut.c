/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cut.c - boxes of random groups: each layer and block once, at tile borders
 */
#include "lib/kvt/tile.h"
#include "lib/run/pipeline.h"
#include "tests/unit/random.h"
#include "tests/unit/tests.h"

enum { L = KVT_AXIS_L, B = KVT_AXIS_B, ROUNDS = 4000 };

static const int64_t box_limit = 4 << 20;	/* whatever memory there is */

/* A group and what is asked of its boxes. */
struct sample {
	struct kvt_group group;
	struct kvt_layout to;
	struct kvt_tiling src, dst;
	bool has_src, has_dst, has_to, src_by_layer, dst_by_layer;
	int64_t page;			/* bytes of a layer and block */
	int64_t limit;
	int64_t least[2];		/* layers and blocks that tiles force together */
};

static bool random_layout(struct kvt_layout *out)
{
	bool by_layer = below(2);

	ok(kvt_layout_parse(out, by_layer ? "BLSHKD" : "LBKSHD", NULL));
	return by_layer;
}

static void random_tiling(struct kvt_tiling *out, const struct kvt_shape *shape)
{
	memcpy(out->n, shape->n, sizeof(out->n));
	out->n[L] = 1 + below(4);
	out->n[B] = 1 + below(9);
	out->nbytes = 1;		/* only extents count here */
}

static int64_t common_multiple(int64_t a, int64_t b)
{
	int64_t m = a;

	while (m % b)
		m += a;
	return m;
}

static void random_sample(struct sample *s)
{
	struct kvt_shape *shape = &s->group.shape;

	*s = (struct sample){ .page = 4 };
	shape->elem = 4;
	shape->n[L] = 1 + below(24);
	shape->n[B] = 1 + below(below(2) ? 300 : 20);
	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++) {
		shape->n[a] = 1 + below(a == KVT_AXIS_K ? 2 : 40);
		s->page *= shape->n[a];
	}
	s->src_by_layer = random_layout(&s->group.layout);
	s->dst_by_layer = random_layout(&s->to);
	s->has_src = below(2);
	s->has_dst = below(2);
	s->has_to = s->has_dst || below(2);
	s->least[0] = s->least[1] = 1;
	random_tiling(&s->src, shape);
	random_tiling(&s->dst, shape);
	for (int a = 0; a < 2; a++) {
		if (s->has_src)
			s->least[a] = s->src.n[a];
		if (s->has_dst)
			s->least[a] = common_multiple(s->least[a], s->dst.n[a]);
	}
	s->limit = below(2) ? INT64_MAX : 1 + below(8 << 20);
}

/* Begins and ends with tiles, or where the group ends. */
static void check_borders(const struct sample *s, const struct kvt_box *box)
{
	for (int a = 0; a < 2; a++) {
		int64_t n = s->group.shape.n[a];

		assert_in_range(box->begin[a], 0, n - 1);
		assert_in_range(box->end[a], box->begin[a] + 1, n);
		assert_int_equal(box->begin[a] % s->least[a], 0);
		assert_true(box->end[a] % s->least[a] == 0 || box->end[a] == n);
	}
	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++) {
		assert_int_equal(box->begin[a], 0);
		assert_int_equal(box->end[a], s->group.shape.n[a]);
	}
}

static void check_cover(const struct sample *s, const struct kvt_cut *cut)
{
	int64_t nl = s->group.shape.n[L], nb = s->group.shape.n[B];
	uint8_t *seen = calloc((size_t)(nl * nb), 1);

	assert_int_equal(cut->box_bytes, cut->layers * cut->blocks * s->page);
	for (int64_t i = 0; i < cut->nboxes; i++) {
		struct kvt_box box = kvt_cut_box(cut, i);

		check_borders(s, &box);
		assert_true(box.end[L] - box.begin[L] <= cut->layers);
		assert_true(box.end[B] - box.begin[B] <= cut->blocks);
		for (int64_t l = box.begin[L]; l < box.end[L]; l++)
			for (int64_t b = box.begin[B]; b < box.end[B]; b++)
				assert_int_equal(seen[l * nb + b]++, 0);
	}
	for (int64_t i = 0; i < nl * nb; i++)
		assert_int_equal(seen[i], 1);
	free(seen);
}

/* Flat files are read in long runs: along what lies together, then along the other. */
static void check_runs(const struct sample *s, const struct kvt_cut *cut)
{
	int64_t nl = s->group.shape.n[L], nb = s->group.shape.n[B];
	bool both = s->has_to && !s->has_dst && s->src_by_layer != s->dst_by_layer;

	if (s->has_src || both)
		return;
	if (s->src_by_layer && cut->blocks > s->least[1])
		assert_true(cut->layers >= nl);
	if (!s->src_by_layer && cut->layers > s->least[0])
		assert_true(cut->blocks >= nb);
}

/* Blocks lie in rows of tiles in any order: how many rows the boxes want. */
struct rows {
	int64_t n, row[512];
};

static int64_t count_rows(const void *context, const struct kvt_cut *cut)
{
	const struct rows *rows = context;
	int64_t sum = 0;

	for (int64_t b = 0; b < rows->n; b += cut->blocks) {
		bool seen[512] = { false };

		for (int64_t i = b; i < b + cut->blocks && i < rows->n; i++) {
			sum += !seen[rows->row[i]];
			seen[rows->row[i]] = true;
		}
	}
	return sum;
}

static struct rows draw_rows(int64_t n)
{
	struct rows rows = { .n = n };
	int64_t tile = 1 + below(8);

	assert_true(n <= 512);
	for (int64_t i = 0; i < n; i++)
		rows.row[i] = i / tile;
	for (int64_t i = n - 1; i > 0 && below(8); i--) {
		int64_t j = below(i + 1), row = rows.row[i];

		rows.row[i] = rows.row[j];
		rows.row[j] = row;
	}
	return rows;
}

/* Fewer rows, or the limit is why not; never more, and what was good stays. */
static void check_gather(const struct sample *s, struct kvt_cut *cut)
{
	const struct rows rows = draw_rows(s->group.shape.n[B]);
	const int64_t limit = 1 + below(16 << 20), before = cut->box_bytes;
	const struct kvt_cut was = *cut;
	const struct kvt_cut least =
		kvt_cut_choose(&s->group, s->has_src ? &s->src : NULL,
			       s->has_to ? &s->to : NULL, s->has_dst ? &s->dst : NULL, 0);
	struct kvt_cut all = least;
	int64_t best;

	all.blocks = rows.n + 1;
	best = count_rows(&rows, &all);
	ok(kvt_cut_gather(cut, &least, limit, count_rows, &rows, &why));
	check_cover(s, cut);
	assert_true(cut->box_bytes <= (before > limit ? before : limit));
	assert_true(cut->blocks >= rows.n || cut->blocks % s->least[1] == 0);
	if (count_rows(&rows, &was) <= best + best / 4)
		assert_memory_equal(cut, &was, sizeof(was));
	else if (cut->blocks < rows.n && count_rows(&rows, cut) > best + best / 4)
		/* half as many boxes would be too large */
		assert_true(least.box_bytes / least.blocks * (2 * cut->blocks + 2 *
				s->least[1]) > limit || cut->layers > least.layers);
}

static void test_random(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct sample s;
		struct kvt_cut cut;
		int64_t limit, least;

		seed = (uint64_t)i;
		random_sample(&s);
		limit = s.limit < box_limit ? s.limit : box_limit;
		least = s.page * s.least[0] * s.least[1];
		cut = kvt_cut_choose(&s.group, s.has_src ? &s.src : NULL,
				 s.has_to ? &s.to : NULL, s.has_dst ? &s.dst : NULL,
				 s.limit);
		check_cover(&s, &cut);
		check_runs(&s, &cut);
		assert_true(cut.box_bytes <= (least > limit ? least : limit));
		check_gather(&s, &cut);
	}
}

/* Many pages fit a box: it holds as many as the limit lets it. */
static void test_size(void)
{
	struct kvt_group g = { .shape = { .n = { 8, 4096, 16, 4, 2, 32 }, .elem = 2 } };
	const int64_t page = 16 * 4 * 2 * 32 * 2;	/* 8 KiB: 512 make 4 MiB */
	struct kvt_layout other;
	struct kvt_cut cut;

	ok(kvt_layout_parse(&g.layout, "LBKSHD", NULL));
	ok(kvt_layout_parse(&other, "BLKSHD", NULL));
	cut = kvt_cut_choose(&g, NULL, NULL, NULL, INT64_MAX);
	assert_int_equal(cut.layers, 1);
	assert_int_equal(cut.blocks, 512);
	assert_int_equal(cut.nboxes, 8 * 8);
	cut = kvt_cut_choose(&g, NULL, NULL, NULL, 10 * page);
	assert_int_equal(cut.layers, 1);
	assert_int_equal(cut.blocks, 10);
	/* to a file in the other order: both are doubled while four times as much fits */
	cut = kvt_cut_choose(&g, NULL, &other, NULL, INT64_MAX);
	assert_int_equal(cut.layers, 8);
	assert_int_equal(cut.blocks, 32);
	g.layout = other;
	cut = kvt_cut_choose(&g, NULL, NULL, NULL, INT64_MAX);
	assert_int_equal(cut.layers, 8);
	assert_int_equal(cut.blocks, 64);
}

/* Nothing to read: no box. */
static void test_empty(void)
{
	struct kvt_group g = { .shape = { .n = { 3, 0, 1, 1, 1, 1 }, .elem = 1 } };
	const struct rows rows = { .n = 0 };
	struct kvt_cut cut, least;

	ok(kvt_layout_parse(&g.layout, "LBKSHD", NULL));
	cut = kvt_cut_choose(&g, NULL, NULL, NULL, INT64_MAX);
	assert_int_equal(cut.nboxes, 0);
	least = kvt_cut_choose(&g, NULL, NULL, NULL, 0);
	ok(kvt_cut_gather(&cut, &least, 1 << 20, count_rows, &rows, NULL));
	assert_int_equal(cut.nboxes, 0);
	g.shape.n[L] = 0;
	g.shape.n[B] = 3;
	cut = kvt_cut_choose(&g, NULL, NULL, NULL, INT64_MAX);
	assert_int_equal(cut.nboxes, 0);
}

TESTS("cut",
	TEST(test_random), TEST(test_size), TEST(test_empty))
