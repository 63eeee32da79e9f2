/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_trial.c - a plan that is wrong does not pass
 *
 * One sound plan, and the same with one fault each, of those that a planner could make:
 * what is tried must differ then, and say so.
 */
#include "tests/fewer.h"
#include "tests/unit/fixture.h"

#include "sim/ops/trial.h"

enum { TOKENS = 100 };

/* A source of two ranks, and the plan to a destination of another form. */
struct fixture {
	struct kvt_held_side held, src;
	struct kvt_sides sides;
};

static void plan_to(struct kvt_sides *sides, const struct kvt_held_side *from,
		 const char *layout, int64_t ranks, int64_t block_size)
{
	struct kvt_new_side side = {
		.pool = { .ranks = ranks, .block_size = block_size,
			  .ids = { .words = "contig" } },
	};
	const struct kvt_transfer_how how = { .request = NULL };

	ok(kvt_layout_parse(&side.pool.layout, layout, &why));
	*sides = (struct kvt_sides){ .src = from->ranks };
	ok(kvt_sides_make_dst(sides, &side, &why));
	ok(kvt_sides_join(sides, "source", "destination", &how, &why));
}

static void forget(struct kvt_sides *sides)
{
	sides->src = (struct kvt_ranks){ .n = 0 };
	kvt_sides_free(sides);
}

static enum kvt_status try_it(struct kvt_held_side *out, const struct kvt_sides *sides,
			      const struct kvt_held_side *from, int64_t corrupt,
			      struct kvt_error *err)
{
	const struct kvt_trial_how how = { .most = 64 << 20, .corrupt = corrupt };
	struct kvt_verified verified;
	enum kvt_status status = kvt_trial_run(out, &verified, sides, from, &how, err);

	if (!status)
		assert_true(verified.bytes > 0);
	return status;
}

static void setup(struct fixture *f)
{
	struct kvt_model_group group;
	struct kvt_model_transfer from = { .group = &group, .ngroups = 1,
					   .tokens = TOKENS };
	struct kvt_ranks one;
	int64_t groups;

	ok(kvt_model_group_parse(&group, "gqa:layers=2,heads=8,head-dim=4", &why));
	ok(kvt_ranks_of_model(&one, &groups, &from, &why));
	ok(kvt_held_sample(&f->held, &one, 1 << 20, &why));
	kvt_ranks_free(&one);
	plan_to(&f->sides, &f->held, "nhd", 2, 16);
	ok(try_it(&f->src, &f->sides, &f->held, -1, &why));
	forget(&f->sides);
	plan_to(&f->sides, &f->src, "hnd", 4, 24);
}

static void teardown(struct fixture *f)
{
	forget(&f->sides);
	kvt_held_free(&f->src);
	kvt_held_free(&f->held);
}

/* ---- faults -------------------------------------------------------------- */

static void none(struct kvt_sides *sides)
{
	(void)sides;
}

/* Two runs of slots change places at the source. */
static void swap_runs(struct kvt_sides *sides)
{
	struct kvt_block_span *e = sides->transfer.group[0].entry;
	int64_t block = e[0].src_block;

	assert_true(e[0].count == e[3].count && e[0].src_slot == e[3].src_slot);
	e[0].src_block = e[3].src_block;
	e[3].src_block = block;
}

static void shift_run(struct kvt_sides *sides)
{
	struct kvt_block_span *e = sides->transfer.group[0].entry;

	e[1].count--;
	e[1].src_slot++;
}

static void lose_run(struct kvt_sides *sides)
{
	sides->transfer.group[0].xfer.nentries--;
}

static void write_twice(struct kvt_sides *sides)
{
	struct kvt_block_span *e = sides->transfer.group[0].entry;

	e[1].dst_block = e[0].dst_block;
	e[1].dst_slot = e[0].dst_slot;
}

static void leave_pool(struct kvt_sides *sides)
{
	sides->transfer.group[0].entry[0].dst_block = 1000;
}

static void other_layout(struct kvt_sides *sides)
{
	ok(kvt_layout_parse(&sides->transfer.group[0].dst_layout, "nhd", &why));
}

static const struct {
	const char *name;
	void (*plant)(struct kvt_sides *sides);
	bool passes;
	const char *says;
} faults[] = {
	{ "none", none, true, "" },
	{ "two runs swapped", swap_runs, false, "expected 0x" },
	{ "a run a slot too far", shift_run, false, "expected 0x" },
	{ "a run lost", lose_run, false, "expected 0x" },
	{ "two runs to one place", write_twice, false, "" },
	{ "a block outside the pool", leave_pool, false, "" },
	{ "the layout of the source", other_layout, false, "expected 0x" },
};

static void test_faults(void)
{
	for (size_t i = 0; i < LENGTH(faults); i++) {
		struct kvt_held_side out;
		struct fixture f;
		enum kvt_status status;

		setup(&f);
		faults[i].plant(&f.sides);
		status = try_it(&out, &f.sides, &f.src, -1, &why);
		if (!status)
			kvt_held_free(&out);
		if (!status != faults[i].passes || !strstr(why.text, faults[i].says))
			fail_msg("%s: status %d, '%s'", faults[i].name, (int)status,
				 why.text);
		teardown(&f);
	}
}

/* Each op, spoilt, is noticed. */
static void test_every_op(void)
{
	struct kvt_held_side out;
	struct fixture f;
	int64_t n = 0;

	setup(&f);
	for (;; n += every()) {
		struct kvt_op_place place;
		enum kvt_status status = try_it(&out, &f.sides, &f.src, n, &why);

		if (kvt_transfer_find_op(&place, &f.sides.transfer, n, &why)) {
			ok(status);
			kvt_held_free(&out);
			break;
		}
		assert_int_equal(status, KVT_MISMATCH);
	}
	assert_true(n > 100);
	teardown(&f);
}

/* What takes more than there is room for is not begun. */
static void test_room(void)
{
	const struct kvt_trial_how how = { .most = 1000, .corrupt = -1 };
	struct kvt_verified verified;
	struct kvt_held_side out;
	struct fixture f;

	setup(&f);
	expect(kvt_trial_run(&out, &verified, &f.sides, &f.src, &how, &why),
	       KVT_UNSUPPORTED, "--mem-limit");
	teardown(&f);
}

TESTS("trial",
	TEST(test_faults), TEST(test_every_op), TEST(test_room))
