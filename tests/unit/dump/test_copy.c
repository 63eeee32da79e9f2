/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_copy.c - copies between boxes, the same ones again at other places
 *
 * A worker keeps the plan of its last copy for those that differ by where they begin.
 * Random boxes, orders and parts, many of them of the extents of the one before: each
 * element must be where the views of both boxes say, and nothing else may change.
 */
#include "tests/fewer.h"
#include "tests/unit/fixture.h"
#include "tests/unit/random.h"

#include "lib/dump/read.h"

static const char *const layouts[] = {
	"LBSHKD", "LBHSKD", "BLSHKD", "BHLSKD", "KLBHSD", "LBHKDS",
	"L B K H D/2 S D%2", "K:LBHKDS V:LBHKSD",
};
enum { NLAYOUTS = LENGTH(layouts), MOST = 1 << 16 };

/* A box of some order; D and S of an order that splits them are whole in each part. */
struct side {
	struct kvt_layout layout;
	struct placed at;
	uint8_t bytes[MOST];
};

static struct kvt_box draw_box(const int64_t n[KVT_NAXES],
			       const int64_t least[KVT_NAXES])
{
	struct kvt_box box;

	for (int a = 0; a < KVT_NAXES; a++) {
		int64_t extent = least[a] + below(n[a] - least[a] + 1);

		box.begin[a] = below(n[a] - extent + 1);
		box.end[a] = box.begin[a] + extent;
	}
	return box;
}

static void draw_side(struct side *side, const char *layout, const int64_t n[KVT_NAXES],
		      const int64_t least[KVT_NAXES])
{
	ok(kvt_layout_parse(&side->layout, layout, NULL));
	side->at = (struct placed){ &side->layout, draw_box(n, least), side->bytes };
	for (int i = 0; i < MOST; i++)
		side->bytes[i] = (uint8_t)below(256);
}

/* A part of those extents anywhere in the box. */
static struct kvt_box draw_part(const struct kvt_box *box,
				const int64_t extent[KVT_NAXES])
{
	struct kvt_box part;

	for (int a = 0; a < KVT_NAXES; a++) {
		part.begin[a] = box->begin[a] +
				below(box->end[a] - box->begin[a] - extent[a] + 1);
		part.end[a] = part.begin[a] + extent[a];
	}
	return part;
}

/* The box with those extents anywhere in the group. */
static void move_box(struct side *side, const int64_t n[KVT_NAXES])
{
	for (int a = 0; a < KVT_NAXES; a++) {
		int64_t extent = side->at.box.end[a] - side->at.box.begin[a];

		box_take(&side->at.box, a, below(n[a] - extent + 1), extent);
	}
}

static int64_t place(const struct placed *at, const int64_t index[KVT_NAXES])
{
	int64_t i[KVT_NAXES];
	struct kvt_views views;

	for (int a = 0; a < KVT_NAXES; a++)
		i[a] = index[a] - at->box.begin[a];
	ok(kvt_layout_views(&views, at->layout, &at->box, 2, &why));
	return kvt_views_at(&views, i);
}

static void check_copy(struct kvt_worker *worker, struct side *dst, struct side *src,
		       const struct kvt_box *to, const struct kvt_box *from)
{
	static uint8_t expected[MOST];
	int64_t i[KVT_NAXES], j[KVT_NAXES];

	memcpy(expected, dst->bytes, MOST);
	memcpy(i, to->begin, sizeof(i));
	do {
		for (int a = 0; a < KVT_NAXES; a++)
			j[a] = i[a] - to->begin[a] + from->begin[a];
		memcpy(expected + place(&dst->at, i), src->bytes + place(&src->at, j), 2);
	} while (next_index(i, to));
	ok(copy_part(worker, &dst->at, to, &src->at, from, 2, &why));
	assert_memory_equal(dst->bytes, expected, MOST);
}

static void test_again(void)
{
	static const int64_t n[] = { 2, 4, 4, 3, 2, 4 }, one[] = { 1, 1, 1, 1, 1, 1 };
	/* of an axis that is split a part has all */
	static const int64_t all[] = { 1, 1, 1, 1, 1, 4 };
	static struct side dst, src;
	struct kvt_worker worker = { .pipeline = NULL };

	seed = 1;
	for (int round = 0; round < fewer(3000); round++) {
		const char *to = layouts[below(NLAYOUTS)];
		const char *from = below(3) ? layouts[below(NLAYOUTS)] : to;
		bool split = strchr(to, '/') || strchr(from, '/');
		const int64_t *least = split ? all : one;
		int64_t extent[KVT_NAXES];

		draw_side(&dst, to, n, least);
		draw_side(&src, from, n, least);
		for (int a = 0; a < KVT_NAXES; a++) {
			int64_t x = dst.at.box.end[a] - dst.at.box.begin[a];
			int64_t y = src.at.box.end[a] - src.at.box.begin[a];

			extent[a] = least[a] + below((x < y ? x : y) - least[a] + 1);
		}
		for (int again = 0; again < 4; again++) {
			struct kvt_box t, f;

			move_box(&dst, n);
			move_box(&src, n);
			t = draw_part(&dst.at.box, extent);
			f = draw_part(&src.at.box, extent);
			/* keys stay keys where they have an order of their own */
			if (strchr(to, ':') || strchr(from, ':')) {
				if (t.begin[NK] < src.at.box.begin[NK] ||
				    t.end[NK] > src.at.box.end[NK])
					continue;
				box_take(&f, KVT_AXIS_K, t.begin[NK],
					 t.end[NK] - t.begin[NK]);
			}
			check_copy(&worker, &dst, &src, &t, &f);
		}
	}
	assert_non_null(worker.copied);
	free(worker.copied);
}

TESTS("copy",
	TEST(test_again))
