/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tiles.c - in which order of a box its tiles are runs
 *
 * Of random tilings and boxes: what is said to be a run must have each element of the
 * tile where the tile itself has it, and what must be one is said to be.
 */
#include "tests/unit/fixture.h"
#include "tests/unit/random.h"

#include "lib/dump/read.h"

static const char *const layouts[] = {
	"LBSHKD", "LBHSKD", "BLSHKD", "BHLSKD", "LBKSHD", "KLBHSD", "LBHKDS",
	"L B K H D/2 S D%2", "LHBSKD", "K:LBSHD V:LBHSD",
};

static struct kvt_views views_of(const struct kvt_layout *layout,
				 const struct kvt_box *box)
{
	struct kvt_views views;

	ok(kvt_layout_views(&views, layout, box, 4, &why));
	return views;
}

/* Tiles of one head and kv, and of all slots and channels, as snapshots have them. */
static struct kvt_tiling draw_tiling(const int64_t n[KVT_NAXES], bool usual)
{
	struct kvt_tiling t = { .nbytes = 4, .elem = 4 };

	for (int a = 0; a < KVT_NAXES; a++) {
		t.n[a] = !usual ? 1 + below(n[a]) : a == NS || a == ND ? n[a] :
			 a == NB ? 1 + below(3) : 1;
		t.nbytes *= t.n[a];
	}
	return t;
}

/* True: the tile is a run of the box. */
static bool check_tile(const struct kvt_layout *layout, const struct kvt_layout *runs,
		       const struct kvt_tiling *tiling, const struct kvt_box *box,
		       const int64_t begin[KVT_NAXES])
{
	static uint8_t bytes[1 << 20];
	const struct placed placed = { runs, *box, bytes };
	const uint8_t *at = tile_run_at(&placed, runs, tiling, begin);
	struct kvt_box tile;
	struct kvt_views in_box, in_tile;
	int64_t i[KVT_NAXES];

	if (!at)
		return false;
	for (int a = 0; a < KVT_NAXES; a++) {
		tile.begin[a] = i[a] = begin[a];
		tile.end[a] = begin[a] + tiling->n[a];
		assert_true(tile.begin[a] >= box->begin[a] && tile.end[a] <= box->end[a]);
	}
	in_box = views_of(runs, box);
	in_tile = views_of(layout, &tile);
	do {
		int64_t here[KVT_NAXES], there[KVT_NAXES];

		for (int a = 0; a < KVT_NAXES; a++) {
			here[a] = i[a] - box->begin[a];
			there[a] = i[a] - begin[a];
		}
		assert_int_equal(kvt_views_at(&in_box, here),
				 at - bytes + kvt_views_at(&in_tile, there));
	} while (next_index(i, &tile));
	return true;
}

static void test_runs(void)
{
	int found = 0, usual_found = 0, usual = 0;

	for (int round = 0; round < 3000; round++) {
		const int64_t n[] = { 1 + below(3), 1 + below(9), 1 + below(4),
		1 + below(3),
				      2, 2 << below(2) };
		const struct kvt_shape shape = { .n = { n[0], n[1], n[2], n[3], n[4],
							n[5] }, .elem = 4 };
		const char *text = layouts[below(LENGTH(layouts))];
		bool as_usual = below(2) || strchr(text, '/');	/* no split is torn */
		struct kvt_tiling tiling = draw_tiling(n, as_usual);
		struct kvt_box box = kvt_box_whole(&shape);
		int64_t begin[KVT_NAXES];
		struct kvt_layout layout, runs;

		ok(kvt_layout_parse(&layout, text, NULL));
		runs = tile_runs(&layout, &tiling, &shape);
		for (int a = 0; a < KVT_NAXES; a++)
			begin[a] = below((n[a] + tiling.n[a] - 1) / tiling.n[a]) *
				   tiling.n[a];
		if (below(2)) {
			/* a range: one row of tiles */
			box.begin[NB] = begin[NB];
			box.end[NB] = begin[NB] + tiling.n[NB];
			box = box_cut(&box, &shape);
		}
		if (check_tile(&layout, &runs, &tiling, &box, begin)) {
			found++;
			usual_found += as_usual;
		}
		usual += as_usual && layout.nplanes == 1 &&
			 layout.plane[0].part[1].axis == KVT_AXIS_B &&
			 begin[NB] + tiling.n[NB] <= n[NB];
	}
	/* where B is next to the layers, all of them */
	assert_true(usual > 500 && usual_found >= usual && found > usual_found);
}

TESTS("tiles",
	NAMED(test_runs, "tiles as runs of a box"))
