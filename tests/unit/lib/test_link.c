/* SPDX-License-Identifier: Apache-2.0 */
/* test_link.c - the closed form against tables that others published */
#include "lib/kvt/link.h"
#include "tests/unit/tests.h"

static const struct kvt_link *preset(const char *name)
{
	const struct kvt_link *link;

	for (int i = 0; (link = kvt_link_preset(i)); i++)
		if (!strcmp(link->name, name))
			return link;
	fail_msg("no preset %s", name);
	return NULL;
}

/* ---- published tables ----------------------------------------------------- */

#define KiB 1024.0
#define MiB (1024 * KiB)
#define GiB (1024 * MiB)

/* Bytes of one operation and what was measured, in microseconds. */
struct row {
	double bytes, us;
};

struct table {
	const char *what, *preset;
	int64_t nops;
	struct row row[10];
	double mean, most;	/* per cent; of the fit that gave the preset */
};

static struct table tables[] = {
	{ "FastDeploy, ConnectX-7, 1538 ops", "cx7-400g-verbs", 1538, {
		{ 1 * KiB, 147.602 }, { 2 * KiB, 179.682 }, { 4 * KiB, 218.359 },
		{ 8 * KiB, 344.620 }, { 16 * KiB, 603.848 }, { 32 * KiB, 1157.23 },
		{ 64 * KiB, 2267.08 }, { 128 * KiB, 4493.73 }, { 256 * KiB, 8957.51 },
	}, 1.7, 5.5 },
	{ "UCCL, one 100G rail, 256 parts", "cx-100g-uccl", 256, {
		{ 1 * KiB, 69.3686 }, { 4 * KiB, 131.351 }, { 16 * KiB, 388.361 },
		{ 64 * KiB, 1414.49 }, { 256 * KiB, 5520.18 },
	}, 0.05, 0.13 },
	{ "Mooncake on EFA, write, 2048 ops", "efa-p5en-w", 2048, {
		{ 64 * KiB, 1382.12 }, { 128 * KiB, 1406.75 }, { 256 * KiB, 1652.42 },
		{ 512 * KiB, 3002.47 }, { 1 * MiB, 6090.60 }, { 2 * MiB, 11707.1 },
	}, 1.4, 2.7 },
	{ "UCX cuda_ipc put, one NVLink2", "nvlink2-cudaipc", 1, {
		{ 1 * KiB, 2.327 }, { 8 * KiB, 2.314 }, { 16 * KiB, 2.422 },
		{ 32 * KiB, 2.994 }, { 64 * KiB, 4.341 }, { 128 * KiB, 7.032 },
		{ 256 * KiB, 12.404 }, { 512 * KiB, 23.459 }, { 1 * MiB, 44.813 },
	}, 0.5, 0.8 },
	{ "vLLM and Mooncake, one request", "vllm-mooncake-8xcx7", 1, {
		{ 20 * MiB, 540 }, { 38 * MiB, 610 }, { 74 * MiB, 920 },
		{ 146 * MiB, 1500 }, { 290 * MiB, 2510 }, { 578 * MiB, 4750 },
		{ 1.13 * GiB, 8840 }, { 2.25 * GiB, 16430 }, { 4.5 * GiB, 31650 },
	}, 3.6, 6.5 },
};

static void test_table(void **state)
{
	const struct table *t = *state;
	double sum = 0, most = 0;
	int n = 0;

	for (; n < 10 && t->row[n].us > 0; n++) {
		int64_t bytes = (int64_t)((double)t->nops * t->row[n].bytes);
		double us = (double)kvt_link_ns(preset(t->preset), t->nops, bytes) / 1e3;
		double off = 100 * (us / t->row[n].us - 1);

		off = off < 0 ? -off : off;
		if (off > 10)
			fail_msg("row %d: %.3f us, published %.3f", n, us, t->row[n].us);
		sum += off;
		most = off > most ? off : most;
	}
	assert_true(n >= 5);
	if (sum / n > t->mean || most > t->most)
		fail_msg("off by %.2f %% on average, %.2f at most", sum / n, most);
}

/* ---- ratios that were observed while serving ------------------------------ */

/* The same bytes in more and in fewer operations; which times slower. */
struct observed {
	const char *what, *preset;
	int64_t ops[2], bytes[2];
	double ratio, within;
};

static struct observed observations[] = {
	{ "4,563 descriptors or 70, as 5.2 ms and 2.1 ms", "vllm-mooncake",
	  { 4563, 70 }, { 75 << 20, 75 << 20 }, 2.5, 0.10 },
	{ "8,192 copies of 8 KiB or 512 of 128 KiB, as 10.0 ms and 1.49",
	  "pcie5-ce-batch",
	  { 8192, 512 }, { 8192 << 13, 512 << 17 }, 6.7, 0.10 },
	{ "a pair of 163,840 ops, or of 128", "cx7-400g-mooncake",
	  { 163840, 128 }, { 80 << 20, 80 << 20 }, 49, 0.10 },
};

static void test_observed(void **state)
{
	const struct observed *o = *state;
	const struct kvt_link *link = preset(o->preset);
	double slow = (double)kvt_link_ns(link, o->ops[0], o->bytes[0]);
	double fast = (double)kvt_link_ns(link, o->ops[1], o->bytes[1]);

	if (slow / fast > o->ratio * (1 + o->within) ||
	    slow / fast < o->ratio * (1 - o->within))
		fail_msg("%.3f ms and %.3f ms: %.2f, expected %.2f", slow / 1e6,
			 fast / 1e6, slow / fast, o->ratio);
}

/* 23,252 and about 9,500 descriptors of one READ: until all are posted. */
static void test_posting(void)
{
	const struct kvt_link *link = preset("vllm-nixl-rc");
	const struct kvt_link *copies = preset("pcie5-ce-batch");

	assert_in_range(kvt_link_post_ns(link, 23252), 71640000, 87560000);	/* 79.6 */
	assert_in_range(kvt_link_post_ns(link, 9500), 28800000, 35200000);	/* 32 */
	assert_in_range(kvt_link_post_ns(copies, 8192), 4800000, 5300000);
}

/* Llama-3.1-70B, TP 4 to 8, one pair of ranks, 80 MiB. */
static void test_worked(void)
{
	static const struct {
		int64_t ops;
		double mooncake, nixl;	/* ms */
	} rows[] = { { 163840, 100, 821 }, { 10240, 6.6, 53 }, { 128, 2.1, 2.7 } };

	for (int i = 0; i < 3; i++) {
		double a = (double)kvt_link_ns(preset("cx7-400g-mooncake"), rows[i].ops,
					       80 << 20) / 1e6;
		double b = (double)kvt_link_ns(preset("vllm-nixl-rc"), rows[i].ops,
					       80 << 20) / 1e6;

		assert_true(a > rows[i].mooncake * .97 && a < rows[i].mooncake * 1.03);
		assert_true(b > rows[i].nixl * .97 && b < rows[i].nixl * 1.03);
	}
}

/* ---- the rest -------------------------------------------------------------- */

static void test_presets(void)
{
	const struct kvt_link *link;
	int n = 0;

	for (; (link = kvt_link_preset(n)); n++) {
		ok(kvt_link_check(link, &why));
		assert_non_null(link->source);
		assert_true(strcmp(kvt_quality_name(link->quality), "unknown"));
		for (int i = 0; i < n; i++)
			assert_string_not_equal(link->name, kvt_link_preset(i)->name);
	}
	assert_int_equal(n, 23);
	assert_null(kvt_link_preset(-1));
}

static void test_edges(void)
{
	struct kvt_link link = { .name = "x", .overlap = 1, .setup_ns = 7, .op_ps = 1500,
				 .rate = 1000000000 };

	assert_int_equal(kvt_link_ns(&link, 0, 0), 0);
	assert_int_equal(kvt_link_ns(&link, 2, 10), 7 + 3 + 10);
	link.overlap = KVT_OVERLAP_FULL;
	assert_int_equal(kvt_link_ns(&link, 2, 10), 7 + 10);
	assert_int_equal(kvt_link_ns(&link, 20, 10), 7 + 30);
	assert_int_equal(kvt_link_ns(&link, INT64_MAX, 10), INT64_MAX);
	link.overlap = 2;
	assert_int_equal(kvt_link_ns(&link, 2000, 4000), 7 + 5000);
	link.overlap = 3;
	assert_int_equal(kvt_link_check(&link, &why), KVT_BAD_INPUT);
	assert_string_equal(why.text, "x: overlap is 3, expected 1, 2, 4 or inf");
	link.overlap = 4;
	link.post_ps = 1501;
	assert_int_equal(kvt_link_check(&link, NULL), KVT_BAD_INPUT);
	link.post_ps = -1;
	assert_int_equal(kvt_link_check(&link, NULL), KVT_BAD_INPUT);
}

TESTS("link",
	EACH(tables, test_table),
	EACH(observations, test_observed), TEST(test_worked), TEST(test_presets),
	TEST(test_edges), TEST(test_posting))
