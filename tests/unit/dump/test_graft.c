/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graft.c - slots of one dump in another, element by element
 *
 * The expectation is an array of which donor element is where, filled by a loop over
 * the spans; elements that it leaves empty are the base's.
 */
#include "lib/kvt/connect.h"
#include "tests/unit/fixture.h"

enum { BASE, DONOR };

/* Layers, blocks, slots and heads of a dump of one group; layers by ids, or in order. */
struct extents {
	int64_t layers, blocks, slots, heads;
	uint32_t id[4];
};

#define EXTENTS(l, b, s, h) { l, b, s, h, { 0 } }

static struct kvt_dump *make(int who, struct extents e)
{
	const int64_t n[] = { e.layers, e.blocks, e.slots, e.heads, 2, 2 };
	struct kvt_snapshot *s = snapshot_of(who == BASE ? "LBKSHD" : "BHLSKD", n);

	if (e.id[0])
		number_layers(&s->group[0], e.id);
	return number_dump(s, who);
}

static struct kvt_dump *make_conv(int who, int64_t channels)
{
	const int64_t n[] = { 1, 2, 3, 1, 1, channels };
	struct kvt_snapshot *s = new_snapshot();

	new_group(s, "conv", KVT_MAMBA_CONV, "conv-sd", n);
	return number_dump(s, who);
}

static struct kvt_dump *graft(const struct kvt_dump *base, const struct kvt_dump *donor,
			      const struct kvt_graft *one)
{
	struct kvt_graft grafts[KVT_MAX_GROUPS] = { *one };
	struct kvt_dump *out = NULL;

	ok(kvt_dump_graft(&out, base, donor, grafts, &why));
	return keep_dump(out);
}

static void refused(const struct kvt_dump *base, const struct kvt_dump *donor,
		    const struct kvt_graft *one, const char *part)
{
	struct kvt_graft grafts[KVT_MAX_GROUPS] = { *one };
	struct kvt_dump *out = NULL;

	expect(kvt_dump_graft(&out, base, donor, grafts, &why), KVT_BAD_INPUT, part);
	assert_null(out);
}

/* Where in the donor (block, slot) is what stands here; false: the base's. */
static bool comes_from(int64_t there[2], const struct kvt_graft *g, int64_t slots,
		       int64_t block, int64_t slot)
{
	for (int64_t i = 0; i < g->nspans; i++) {
		const struct kvt_block_span *s = &g->span[i];
		int64_t n = s->nblocks ? s->nblocks : 1;
		int64_t count = s->nblocks ? slots : s->count;

		if (block < s->dst_block || block >= s->dst_block + n ||
		    slot < s->dst_slot || slot >= s->dst_slot + count)
			continue;
		there[0] = s->src_block + block - s->dst_block;
		there[1] = s->src_slot + slot - s->dst_slot;
		return true;
	}
	return false;
}

/* Does the donor give this position of the axis?  Where it has it. */
static bool is_given(int64_t *there, const struct kvt_exchange *given, int64_t at)
{
	if (!given)
		return true;
	for (int r = 0; r < given->count; r++)
		if (at >= given->range[r].dst &&
		    at < given->range[r].dst + given->range[r].count) {
			*there = given->range[r].src + at - given->range[r].dst;
			return true;
		}
	return false;
}

static void check_graft(const struct kvt_dump *dump, const struct kvt_dump *base,
			const struct kvt_dump *donor, const struct kvt_graft *g)
{
	const struct kvt_group *here = kvt_dump_group(base, 0);
	const struct kvt_group *there = kvt_dump_group(donor, 0);
	struct kvt_box all = kvt_box_whole(&here->shape);
	uint32_t *numbers = read_numbers(dump, 0), *at = numbers;
	int64_t i[KVT_NAXES] = { 0 };

	do {
		enum kvt_axis axis = g->given ? g->given->axis : KVT_AXIS_H;
		int64_t j[KVT_NAXES], slot[2] = { 0, 0 };

		memcpy(j, i, sizeof(j));
		if (!comes_from(slot, g, here->shape.n[NS], i[NB], i[NS]) ||
		    !is_given(&j[axis], g->given, i[axis])) {
			expect_number(*at++, number_of(here, BASE, i), i);
			continue;
		}
		j[NB] = slot[0];
		j[NS] = slot[1];
		for (j[NL] = 0; kvt_layer_id(there, j[NL]) != kvt_layer_id(here, i[NL]); )
			j[NL]++;
		expect_number(*at++, number_of(there, DONOR, j), i);
	} while (next_index(i, &all));
	same_group(kvt_dump_group(dump, 0), here);
}

/* ---- which slots, layers, heads and channels ---------------------------- */

static struct grafted {
	const char *what;
	struct extents base, donor;
	int nspans;
	struct kvt_block_span span[5];
	struct kvt_exchange given;	/* none: all of it; channels: of a conv state */
} grafted[] = {
	{ "whole blocks", EXTENTS(2, 6, 3, 2), EXTENTS(2, 5, 3, 2), .nspans = 2,
	  .span = { { .src_block = 3, .dst_block = 0, .nblocks = 2 },
		    { .src_block = 0, .dst_block = 4, .nblocks = 1 } } },
	{ "blocks of 4 and of 6 slots, spans in any order, neighbours and gaps",
	  EXTENTS(2, 3, 4, 2), EXTENTS(2, 3, 6, 2), .nspans = 5,
	  .span = { { 0, 5, 2, 1, 1, 0 }, { 1, 0, 2, 2, 2, 0 }, { 2, 2, 0, 0, 4, 0 },
		    { 0, 0, 1, 3, 1, 0 }, { 2, 0, 1, 0, 2, 0 } } },
	{ "all of the base is the donor's", EXTENTS(2, 4, 4, 2), EXTENTS(2, 4, 4, 2),
	  .nspans = 1, .span = { { .nblocks = 4 } } },
	{ "the donor has layers in another order, and others",
	  { 3, 2, 2, 1, { 5, 1, 3 } }, { 4, 1, 2, 1, { 3, 5, 2, 1 } },
	  .nspans = 1, .span = { { 0, 0, 1, 0, 2, 0 } } },
	{ "of four heads the donor, which has two, gives the third and first",
	  EXTENTS(2, 2, 3, 4), EXTENTS(2, 2, 3, 2),
	  .nspans = 2, .span = { { 0, 1, 0, 0, 2, 0 }, { 1, 0, 1, 1, 1, 0 } },
	  .given = { KVT_AXIS_H, 2, { { "head", 0, 2, 1 }, { "head", 1, 0, 1 } } } },
	{ "channels: of ten the donor, which has four, gives these",
	  .nspans = 1, .span = { { .src_block = 1, .nblocks = 1 } },
	  .given = { KVT_AXIS_D, 3,
		     { { "x", 0, 2, 2 }, { "B", 2, 7, 1 }, { "C", 3, 9, 1 } } } },
};

static void test_grafted(void **state)
{
	const struct grafted *c = *state;
	const struct kvt_graft g = { .span = c->span, .nspans = c->nspans,
				     .given = c->given.count ? &c->given : NULL };
	bool conv = c->given.axis == KVT_AXIS_D && c->given.count;
	struct kvt_dump *base = conv ? make_conv(BASE, 10) : make(BASE, c->base);
	struct kvt_dump *donor = conv ? make_conv(DONOR, 4) : make(DONOR, c->donor);

	check_graft(graft(base, donor, &g), base, donor, &g);
}

/* Where all is the donor's, the base is not read: of it there is no leaf left. */
static void test_all(void)
{
	static const struct kvt_block_span span = { .nblocks = 4 };
	const struct kvt_graft g = { .span = &span, .nspans = 1 };
	struct kvt_dump *donor = make(DONOR, (struct extents)EXTENTS(2, 4, 4, 2));
	struct kvt_dump *out = graft(make(BASE, (struct extents)EXTENTS(2, 4, 4, 2)),
				     donor, &g);

	for (int i = 0; kvt_dump_leaf(out, i); i++)
		assert_int_equal(kvt_dump_leaf_group(out, i, 0) >= 0,
				 kvt_dump_leaf(out, i) == donor);
}

static void test_nothing(void)
{
	const struct kvt_graft g = { .nspans = 0 };

	check_places(graft(make(BASE, (struct extents)EXTENTS(2, 4, 4, 2)),
			   make(DONOR, (struct extents)EXTENTS(1, 1, 1, 1)), &g), BASE);
}

static void test_lacks_a_layer(void)
{
	static const struct kvt_block_span span = { 0, 0, 1, 0, 2, 0 };
	const struct kvt_graft g = { .span = &span, .nspans = 1 };

	refused(make(BASE, (struct extents){ 3, 2, 2, 1, { 5, 1, 3 } }),
		make(DONOR, (struct extents){ 3, 1, 2, 1, { 3, 5, 2 } }), &g,
		"g0: no layer 1 on the other side");
}

/* A transfer: each rank into what the ones before it left of a constant. */
static void test_ranks_on_a_constant(void)
{
	static const struct kvt_block_span span = { 1, 0, 0, 1, 2, 0 };
	const int64_t n[] = { 2, 2, 3, 4, 2, 2 };
	struct kvt_dump *pool;

	ok(kvt_dump_of_constant(&pool, snapshot_of("LBKSHD", n), 0x33, &why));
	keep_dump(pool);
	for (int r = 0; r < 2; r++) {
		const struct kvt_exchange given = {
			.axis = KVT_AXIS_H, .count = 1,
			.range = { { "head", 0, 2 * r, 2 } },
		};
		const struct kvt_graft one = { .span = &span, .nspans = 1,
					       .given = &given };

		pool = graft(pool, make(1 + r, (struct extents)EXTENTS(2, 2, 3, 2)),
			     &one);
	}
	EXPECT_NUMBERS(pool, 0, i, i[NB] == 0 && i[NS] >= 1 ?
		       place_number(1 + (int)(i[NH] / 2), i[NL], 1, i[NS] - 1, i[NH] % 2,
				    i[NK], i[ND]) : 0x33333333);
}

/* Random spans that do not meet, on a constant or on a dump. */
static void test_random(void)
{
	uint64_t seed = 7;

	for (int round = 0; round < 60; round++) {
		struct kvt_block_span spans[64];
		struct kvt_graft g = { .span = spans };
		int64_t draw[8], here, there, nb;
		struct kvt_dump *base, *donor;

		for (int d = 0; d < 8; d++) {
			seed = seed * UINT64_C(6364136223846793005) + 1;
			draw[d] = (int64_t)(seed >> 40);
		}
		here = 1 + draw[0] % 5;
		there = 1 + draw[1] % 5;
		nb = 1 + draw[2] % 4;
		for (int64_t b = nb - 1; b >= 0; b--)
			for (int64_t at = 0, count; at < here; at += count) {
				int64_t from;

				seed = seed * UINT64_C(6364136223846793005) + 1;
				from = (int64_t)(seed >> 35) % there;
				count = 1 + (int64_t)(seed >> 45) % (there - from);
				if (count > here - at)
					count = here - at;
				if (seed >> 62)
					spans[g.nspans++] = (struct kvt_block_span){
						(int64_t)(seed >> 50) % 3, from, b, at,
						count, 0 };
			}
		base = make(BASE, (struct extents)EXTENTS(2, nb, here, 2));
		donor = make(DONOR, (struct extents)EXTENTS(2, 3, there, 2));
		check_graft(graft(base, donor, &g), base, donor, &g);
	}
}

/* ---- refusals ----------------------------------------------------------- */

static void test_twice_or_outside(void)
{
	static const struct {
		struct kvt_block_span span[2];
		const char *text;
	} cases[] = {
		{ { { 0, 0, 1, 0, 2, 0 }, { 1, 0, 1, 1, 1, 0 } },
		  "g0: slot 1 of block 1 is listed twice" },
		{ { { .nblocks = 2 }, { 1, 0, 1, 2, 1, 0 } },
		  "g0: slot 2 of block 1 is listed twice" },
		{ { { 0, 0, 3, 0, 1, 0 }, { 0, 0, 0, 0, 1, 0 } }, "outside a pool" },
		{ { { 3, 0, 0, 0, 1, 0 }, { 0, 0, 1, 0, 1, 0 } }, "outside a pool" },
		{ { { 0, 0, 0, 2, 2, 0 }, { 0, 0, 1, 0, 1, 0 } }, "outside a pool" },
		{ { { 0, 3, 0, 0, 2, 0 }, { 0, 0, 1, 0, 1, 0 } }, "outside a pool" },
		{ { { 0, -1, 0, 0, 2, 0 }, { 0, 0, 1, 0, 1, 0 } }, "outside a pool" },
		{ { { 0, 0, 0, 0, 0, 0 }, { 0, 0, 1, 0, 1, 0 } }, "outside a pool" },
		{ { { .src_block = 2, .nblocks = 2 }, { 0, 0, 2, 0, 1, 0 } },
		  "outside a pool" },
	};
	struct kvt_dump *base = make(BASE, (struct extents)EXTENTS(2, 3, 3, 2));
	struct kvt_dump *donor = make(DONOR, (struct extents)EXTENTS(2, 3, 4, 2));

	for (size_t i = 0; i < LENGTH(cases); i++) {
		const struct kvt_graft g = { .span = cases[i].span, .nspans = 2 };

		refused(base, donor, &g, cases[i].text);
	}
}

static void test_given_is_wrong(void)
{
	static const struct kvt_block_span span = { 0, 0, 0, 0, 1, 0 };
	static const struct kvt_exchange cases[] = {
		/* beyond the donor, beyond the base, twice */
		{ KVT_AXIS_H, 1, { { "head", 1, 0, 2 } } },
		{ KVT_AXIS_H, 1, { { "head", 0, 3, 2 } } },
		{ KVT_AXIS_H, 2, { { "head", 0, 1, 2 }, { "head", 0, 2, 1 } } },
		{ KVT_AXIS_H, 1, { { "head", -1, 0, 1 } } },
	};
	struct kvt_dump *base = make(BASE, (struct extents)EXTENTS(1, 1, 1, 4));
	struct kvt_dump *donor = make(DONOR, (struct extents)EXTENTS(1, 1, 1, 2));

	for (size_t i = 0; i < LENGTH(cases); i++) {
		const struct kvt_graft g = { .span = &span, .nspans = 1,
					     .given = &cases[i] };

		refused(base, donor, &g, "is outside a group, or is listed twice");
	}
}

static void test_unlike(void)
{
	static const struct kvt_block_span span = { 0, 0, 0, 0, 1, 0 };
	struct kvt_graft g = { .span = &span, .nspans = 1 };
	struct kvt_dump *base = make(BASE, (struct extents)EXTENTS(1, 1, 1, 4));
	struct kvt_dump *donor = make(DONOR, (struct extents)EXTENTS(1, 1, 1, 2));
	struct kvt_dump *other;
	struct kvt_snapshot *s = new_snapshot();

	refused(base, donor, &g, "extent is 4 in one and 2 in the other");
	g.from = 1;
	refused(base, donor, &g, "the donor has no group 1");
	g.from = 0;
	new_group(s, "g0", KVT_FULL_ATTENTION, "LBKSHD",
		  kvt_dump_group(base, 0)->shape.n)->dtype = kvt_dtype_find("int32");
	ok(kvt_dump_of_constant(&other, s, 0, &why));
	keep_dump(other);
	refused(base, other, &g, "g0: the elements have other types");
}

TESTS("graft",
	EACH(grafted, test_grafted), TEST(test_all), TEST(test_nothing),
	TEST(test_lacks_a_layer), TEST(test_ranks_on_a_constant), TEST(test_random),
	TEST(test_twice_or_outside), TEST(test_given_is_wrong), TEST(test_unlike))
