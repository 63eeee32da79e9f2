/* SPDX-License-Identifier: Apache-2.0 */
/* test_aggregate.c - the traces of vLLM's KVOutputAggregator, report by report */
#include "lib/kvt/connect.h"
#include "tests/unit/tests.h"

static void test_two_workers(void)
{
	struct kvt_countdown a = { 0 };

	assert_false(kvt_countdown_report(&a, 2));
	assert_int_equal(a.left, 1);
	assert_true(kvt_countdown_report(&a, 2));
	assert_int_equal(a.left, 0);
	assert_int_equal(a.rounds, 1);
}

/* Four are expected; from step 2 on it is one, but b keeps its four. */
static void test_running_countdown_keeps_its_count(void)
{
	struct kvt_countdown b = { 0 }, c = { 0 };
	int64_t expected = 4;

	assert_false(kvt_countdown_report(&b, expected));
	expected = kvt_expected_reports(expected, 1);
	assert_true(kvt_countdown_report(&c, expected));
	assert_false(kvt_countdown_report(&b, expected));
	assert_false(kvt_countdown_report(&b, expected));
	assert_true(kvt_countdown_report(&b, expected));
	assert_int_equal(b.expected, 4);
	assert_int_equal(c.expected, 1);
}

/* One step: w0 reports d; w1 brings a count of 1 and reports d and e. */
static void test_count_comes_before_ids(void)
{
	struct kvt_countdown d = { 0 }, e = { 0 };
	int64_t expected = 3;

	assert_false(kvt_countdown_report(&d, expected));
	expected = kvt_expected_reports(expected, 1);
	assert_false(kvt_countdown_report(&d, expected));
	assert_true(kvt_countdown_report(&e, expected));
	assert_int_equal(d.left, 1);
}

static void test_a_later_report_starts_afresh(void)
{
	struct kvt_countdown a = { 0 };

	assert_true(kvt_countdown_report(&a, 1));
	assert_false(kvt_countdown_report(&a, 2));
	assert_int_equal(a.left, 1);
	assert_int_equal(a.expected, 2);
	assert_true(kvt_countdown_report(&a, 2));
	assert_int_equal(a.rounds, 2);
}

static void test_no_count_is_no_change(void)
{
	struct kvt_countdown a = { 0 };

	assert_int_equal(kvt_expected_reports(4, 0), 4);
	assert_int_equal(kvt_expected_reports(4, -1), 4);
	assert_int_equal(kvt_expected_reports(4, 4), 4);
	/* a count below 1 would never end */
	assert_true(kvt_countdown_report(&a, 0));
}

static void test_names(void)
{
	assert_string_equal(kvt_direction_name(KVT_SENDING), "finished_sending");
	assert_string_equal(kvt_direction_name(KVT_RECVING), "finished_recving");
}

TESTS("aggregate",
	NAMED(test_two_workers, "two workers, one report each"),
	NAMED(test_running_countdown_keeps_its_count,
	      "a countdown that runs keeps its count"),
	NAMED(test_count_comes_before_ids, "a worker's count comes before its ids"),
	NAMED(test_a_later_report_starts_afresh,
	      "a report after the last one starts afresh"),
	NAMED(test_no_count_is_no_change, "no count is no change"),
	NAMED(test_names, "names of directions"))
