/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graft.c - slots of one dump in another, element by element
 *
 * The expectation is an array of which donor element is where, filled by a loop over
 * the spans; elements that it leaves empty are the base's.
 */
#include "lib/kvt/connect.h"
#include "tests/unit/dump/places.h"

enum { BASE, DONOR };

/* A dump of one group: layers by their ids, or in order. */
static struct placed_dump make(int who, int64_t layers, int64_t blocks, int64_t slots,
			       int64_t heads, const uint32_t *ids)
{
	const int64_t n[] = { layers, blocks, slots, heads, 2, 2 };
	struct kvt_snapshot s;

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, who == BASE ? "LBKSHD" : "BHLSKD", n);
	if (ids)
		number_layers(&s.group[0], ids);
	return number_dump(&s, who);
}

static struct kvt_dump *graft(const struct kvt_dump *base, const struct kvt_dump *donor,
			      const struct kvt_graft *one)
{
	struct kvt_graft grafts[KVT_MAX_GROUPS] = { *one };
	struct kvt_dump *out = NULL;

	ok(kvt_dump_graft(&out, base, donor, grafts, &why));
	return out;
}

static void refused(const struct kvt_dump *base, const struct kvt_dump *donor,
		    const struct kvt_graft *one, enum kvt_status status, const char *part)
{
	struct kvt_graft grafts[KVT_MAX_GROUPS] = { *one };
	struct kvt_dump *out = NULL;

	expect(kvt_dump_graft(&out, base, donor, grafts, &why), status, part);
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
			const struct kvt_dump *donor, const struct kvt_graft *g,
			bool constant)
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
			expect_number(*at++, constant ? 0x33333333 :
				      number_of(here, BASE, i), i);
			continue;
		}
		j[NB] = slot[0];
		j[NS] = slot[1];
		for (j[NL] = 0; kvt_layer_id(there, j[NL]) != kvt_layer_id(here, i[NL]); )
			j[NL]++;
		expect_number(*at++, number_of(there, DONOR, j), i);
	} while (next_index(i, &all));
	free(numbers);
	same_group(kvt_dump_group(dump, 0), here);
}

/* ---- which slots -------------------------------------------------------- */

static void test_whole_blocks(void)
{
	static const struct kvt_block_span spans[] = {
		{ .src_block = 3, .dst_block = 0, .nblocks = 2 },
		{ .src_block = 0, .dst_block = 4, .nblocks = 1 },
	};
	const struct kvt_graft g = { .span = spans, .nspans = 2 };
	struct placed_dump base = make(BASE, 2, 6, 3, 2, NULL);
	struct placed_dump donor = make(DONOR, 2, 5, 3, 2, NULL);
	struct kvt_dump *out = graft(base.dump, donor.dump, &g);

	check_graft(out, base.dump, donor.dump, &g, false);
	kvt_dump_close(out);
	drop_dump(&base);
	drop_dump(&donor);
}

/* Blocks of 4 and of 6 slots, spans in any order, neighbours and gaps. */
static void test_spans(void)
{
	static const struct kvt_block_span spans[] = {
		{ 0, 5, 2, 1, 1, 0 }, { 1, 0, 2, 2, 2, 0 }, { 2, 2, 0, 0, 4, 0 },
		{ 0, 0, 1, 3, 1, 0 }, { 2, 0, 1, 0, 2, 0 },
	};
	const struct kvt_graft g = { .span = spans, .nspans = 5 };
	struct placed_dump base = make(BASE, 2, 3, 4, 2, NULL);
	struct placed_dump donor = make(DONOR, 2, 3, 6, 2, NULL);
	struct kvt_dump *out = graft(base.dump, donor.dump, &g);

	check_graft(out, base.dump, donor.dump, &g, false);
	/* without what it was made of */
	kvt_dump_close(out);
	drop_dump(&base);
	drop_dump(&donor);
}

/* All of the base is the donor's, and it is not read: of it there is no leaf left. */
static void test_all(void)
{
	static const struct kvt_block_span span = { .nblocks = 4 };
	const struct kvt_graft g = { .span = &span, .nspans = 1 };
	struct placed_dump base = make(BASE, 2, 4, 4, 2, NULL);
	struct placed_dump donor = make(DONOR, 2, 4, 4, 2, NULL);
	struct kvt_dump *out = graft(base.dump, donor.dump, &g);

	check_graft(out, base.dump, donor.dump, &g, false);
	for (int i = 0; kvt_dump_leaf(out, i); i++)
		assert_int_equal(kvt_dump_leaf_group(out, i, 0) >= 0,
				 kvt_dump_leaf(out, i) == donor.dump);
	kvt_dump_close(out);
	drop_dump(&base);
	drop_dump(&donor);
}

static void test_nothing(void)
{
	const struct kvt_graft g = { .nspans = 0 };
	struct placed_dump base = make(BASE, 2, 4, 4, 2, NULL);
	struct placed_dump donor = make(DONOR, 1, 1, 1, 1, NULL);
	struct kvt_dump *out = graft(base.dump, donor.dump, &g);

	check_places(out, BASE);
	kvt_dump_close(out);
	drop_dump(&base);
	drop_dump(&donor);
}

/* The donor has them in another order, and others. */
static void test_layers(void)
{
	static const struct kvt_block_span span = { 0, 0, 1, 0, 2, 0 };
	const struct kvt_graft g = { .span = &span, .nspans = 1 };
	struct placed_dump base = make(BASE, 3, 2, 2, 1, (const uint32_t[]){ 5, 1, 3 });
	struct placed_dump donor = make(DONOR, 4, 1, 2, 1,
					(const uint32_t[]){ 3, 5, 2, 1 });
	struct placed_dump lacks = make(DONOR, 3, 1, 2, 1,
					(const uint32_t[]){ 3, 5, 2 });
	struct kvt_dump *out = graft(base.dump, donor.dump, &g);

	check_graft(out, base.dump, donor.dump, &g, false);
	kvt_dump_close(out);
	refused(base.dump, lacks.dump, &g, KVT_BAD_INPUT,
		"g0: no layer 1 on the other side");
	drop_dump(&base);
	drop_dump(&donor);
	drop_dump(&lacks);
}

/* ---- which heads -------------------------------------------------------- */

/* Of four heads here the donor, which has two, gives the third and first. */
static void test_given_heads(void)
{
	static const struct kvt_block_span spans[] = {
		{ 0, 1, 0, 0, 2, 0 }, { 1, 0, 1, 1, 1, 0 },
	};
	const struct kvt_exchange given = {
		.axis = KVT_AXIS_H, .count = 2,
		.range = { { "head", 0, 2, 1 }, { "head", 1, 0, 1 } },
	};
	const struct kvt_graft g = { .span = spans, .nspans = 2, .given = &given };
	struct placed_dump base = make(BASE, 2, 2, 3, 4, NULL);
	struct placed_dump donor = make(DONOR, 2, 2, 3, 2, NULL);
	struct kvt_dump *out = graft(base.dump, donor.dump, &g);

	check_graft(out, base.dump, donor.dump, &g, false);
	kvt_dump_close(out);
	drop_dump(&base);
	drop_dump(&donor);
}

static struct placed_dump make_conv(int who, int64_t channels)
{
	const int64_t n[] = { 1, 2, 3, 1, 1, channels };
	struct kvt_snapshot s;

	kvt_snapshot_init(&s);
	new_group(&s, "conv", KVT_MAMBA_CONV, "conv-sd", n);
	return number_dump(&s, who);
}

static void test_given_channels(void)
{
	static const struct kvt_block_span span = { .src_block = 1, .nblocks = 1 };
	const struct kvt_exchange given = {
		.axis = KVT_AXIS_D, .count = 3,
		.range = { { "x", 0, 2, 2 }, { "B", 2, 7, 1 }, { "C", 3, 9, 1 } },
	};
	const struct kvt_graft g = { .span = &span, .nspans = 1, .given = &given };
	struct placed_dump base = make_conv(BASE, 10), donor = make_conv(DONOR, 4);
	struct kvt_dump *out = graft(base.dump, donor.dump, &g);

	check_graft(out, base.dump, donor.dump, &g, false);
	kvt_dump_close(out);
	drop_dump(&base);
	drop_dump(&donor);
}

/* A transfer: each rank into what the ones before it left of a constant. */
static void test_ranks_on_a_constant(void)
{
	static const struct kvt_block_span span = { 1, 0, 0, 1, 2, 0 };
	const int64_t n[] = { 2, 2, 3, 4, 2, 2 };
	struct placed_dump donor[2];
	struct kvt_dump *pool, *out;
	const struct kvt_group *g;
	struct kvt_snapshot s;
	struct kvt_box all;
	uint32_t *numbers, *at;
	int64_t i[KVT_NAXES] = { 0 };

	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, "LBKSHD", n);
	ok(kvt_dump_of_constant(&pool, &s, 0x33, &why));
	for (int r = 0; r < 2; r++) {
		const struct kvt_exchange given = {
			.axis = KVT_AXIS_H, .count = 1,
			.range = { { "head", 0, 2 * r, 2 } },
		};
		const struct kvt_graft one = { .span = &span, .nspans = 1,
					       .given = &given };

		donor[r] = make(1 + r, 2, 2, 3, 2, NULL);
		out = graft(pool, donor[r].dump, &one);
		kvt_dump_close(pool);
		pool = out;
	}
	g = kvt_dump_group(pool, 0);
	all = kvt_box_whole(&g->shape);
	numbers = at = read_numbers(pool, 0);
	do {
		bool given = i[NB] == 0 && i[NS] >= 1;
		int64_t j[KVT_NAXES];

		memcpy(j, i, sizeof(j));
		j[NB] = 1;
		j[NS] = i[NS] - 1;
		j[NH] = i[NH] % 2;
		expect_number(*at++, given ? number_of(g, 1 + (int)(i[NH] / 2), j) :
			      0x33333333, i);
	} while (next_index(i, &all));
	free(numbers);
	kvt_dump_close(pool);
	drop_dump(&donor[0]);
	drop_dump(&donor[1]);
}

/* Random spans that do not meet, on a constant or on a dump. */
static void test_random(void)
{
	uint64_t seed = 7;

	for (int round = 0; round < 60; round++) {
		struct kvt_block_span spans[64];
		struct kvt_graft g = { .span = spans };
		int64_t draw[8], here, there, nb;
		struct placed_dump base, donor;
		struct kvt_dump *out;

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
		base = make(BASE, 2, nb, here, 2, NULL);
		donor = make(DONOR, 2, 3, there, 2, NULL);
		out = graft(base.dump, donor.dump, &g);
		check_graft(out, base.dump, donor.dump, &g, false);
		kvt_dump_close(out);
		drop_dump(&base);
		drop_dump(&donor);
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
	struct placed_dump base = make(BASE, 2, 3, 3, 2, NULL);
	struct placed_dump donor = make(DONOR, 2, 3, 4, 2, NULL);

	for (size_t i = 0; i < LENGTH(cases); i++) {
		const struct kvt_graft g = { .span = cases[i].span, .nspans = 2 };

		refused(base.dump, donor.dump, &g, KVT_BAD_INPUT, cases[i].text);
	}
	drop_dump(&base);
	drop_dump(&donor);
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
	struct placed_dump base = make(BASE, 1, 1, 1, 4, NULL);
	struct placed_dump donor = make(DONOR, 1, 1, 1, 2, NULL);

	for (size_t i = 0; i < LENGTH(cases); i++) {
		const struct kvt_graft g = { .span = &span, .nspans = 1,
					     .given = &cases[i] };

		refused(base.dump, donor.dump, &g, KVT_BAD_INPUT,
			"is outside a group, or is listed twice");
	}
	drop_dump(&base);
	drop_dump(&donor);
}

static void test_unlike(void)
{
	static const struct kvt_block_span span = { 0, 0, 0, 0, 1, 0 };
	struct kvt_graft g = { .span = &span, .nspans = 1 };
	struct placed_dump base = make(BASE, 1, 1, 1, 4, NULL);
	struct placed_dump donor = make(DONOR, 1, 1, 1, 2, NULL);
	struct kvt_dump *other;
	struct kvt_snapshot s;

	refused(base.dump, donor.dump, &g, KVT_BAD_INPUT,
		"extent is 4 in one and 2 in the other");
	g.from = 1;
	refused(base.dump, donor.dump, &g, KVT_BAD_INPUT, "the donor has no group 1");
	g.from = 0;
	kvt_snapshot_init(&s);
	new_group(&s, "g0", KVT_FULL_ATTENTION, "LBKSHD",
		  kvt_dump_group(base.dump, 0)->shape.n)->dtype = kvt_dtype_find("int32");
	ok(kvt_dump_of_constant(&other, &s, 0, &why));
	refused(base.dump, other, &g, KVT_BAD_INPUT, "g0: the elements have other types");
	kvt_dump_close(other);
	drop_dump(&base);
	drop_dump(&donor);
}

TESTS("graft",
	TEST(test_whole_blocks),
	TEST(test_spans),
	TEST(test_all),
	TEST(test_nothing),
	TEST(test_layers),
	TEST(test_given_heads),
	TEST(test_given_channels),
	TEST(test_ranks_on_a_constant),
	TEST(test_random),
	TEST(test_twice_or_outside),
	TEST(test_given_is_wrong),
	TEST(test_unlike))
