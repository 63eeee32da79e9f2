/* SPDX-License-Identifier: Apache-2.0 */
/* test_link_sim.c - batches that share cards: alone, in pairs, and at random */
#include "lib/kvt/link.h"
#include "tests/unit/tests.h"

static const struct kvt_link plain = { .name = "plain", .overlap = 1, .rate = 1000 };

static double off_by(int64_t got, int64_t expected)
{
	double d = (double)(got - expected) / (double)expected;

	return d < 0 ? -d : d;
}

/* ---- alone ----------------------------------------------------------------- */

static void test_alone(void)
{
	static const int64_t ops[] = { 1, 70, 4563, 163840 };
	const struct kvt_link *link;

	for (int share = 0; share < KVT_NSHARES; share++)
	for (int p = 0; (link = kvt_link_preset(p)); p++)
	for (int i = 0; i < 4; i++) {
		double rate = link->rate ? (double)link->rate : 1e15;
		struct kvt_nic src = { .rate = rate }, dst = { .rate = rate };
		struct kvt_flow flow = { .src = &src, .dst = &dst };
		int64_t bytes = ops[i] * 8192;
		int64_t expected = kvt_link_ns(link, ops[i], bytes);
		struct kvt_sim sim;

		kvt_sim_init(&sim, (enum kvt_share)share);
		sim.now = 1000;
		kvt_sim_add(&sim, &flow, link, ops[i], bytes);
		assert_ptr_equal(kvt_sim_next(&sim, INT64_MAX), &flow);
		if (llabs(flow.end - 1000 - expected) > 2)
			fail_msg("%s, %lld ops: %lld ns, closed form %lld", link->name,
				 (long long)ops[i], (long long)flow.end - 1000,
				 (long long)expected);
		assert_null(kvt_sim_next(&sim, INT64_MAX));
	}
}

/* ---- in pairs -------------------------------------------------------------- */

struct pair {
	const char *what;
	enum kvt_share share;
	int64_t bytes[2];		/* at 1000 bytes a second */
	int64_t start[2];		/* seconds */
	bool same_src, same_dst;
	int64_t end[2];			/* seconds */
};

static struct pair pairs[] = {
	{ "fair: both end late", KVT_SHARE_FAIR, { 1000, 1000 }, { 0, 0 },
	  true, false, { 2, 2 } },
	{ "fair: the short one first", KVT_SHARE_FAIR, { 3000, 1000 }, { 0, 0 },
	  true, true, { 4, 2 } },
	{ "fair: one comes later", KVT_SHARE_FAIR, { 3000, 1000 }, { 0, 1 },
	  false, true, { 4, 3 } },
	{ "fair: nothing shared", KVT_SHARE_FAIR, { 3000, 1000 }, { 0, 0 },
	  false, false, { 3, 1 } },
	{ "fifo: in turn", KVT_SHARE_FIFO, { 3000, 1000 }, { 0, 1 },
	  true, false, { 3, 4 } },
	{ "fifo: nothing shared", KVT_SHARE_FIFO, { 3000, 1000 }, { 0, 1 },
	  false, false, { 3, 2 } },
	{ "none: as if alone", KVT_SHARE_NONE, { 3000, 1000 }, { 0, 1 },
	  true, true, { 3, 2 } },
};

static void test_pair(void **state)
{
	const struct pair *p = *state;
	struct kvt_nic src[2] = { { .rate = 1000 }, { .rate = 1000 } };
	struct kvt_nic dst[2] = { { .rate = 1000 }, { .rate = 1000 } };
	struct kvt_flow flow[2] = {
		{ .src = &src[0], .dst = &dst[0] },
		{ .src = &src[!p->same_src], .dst = &dst[!p->same_dst] },
	};
	struct kvt_sim sim;

	kvt_sim_init(&sim, p->share);
	kvt_sim_add(&sim, &flow[0], &plain, 1, p->bytes[0]);
	assert_null(kvt_sim_next(&sim, p->start[1] * 1000000000));
	kvt_sim_add(&sim, &flow[1], &plain, 1, p->bytes[1]);
	assert_non_null(kvt_sim_next(&sim, INT64_MAX));
	assert_non_null(kvt_sim_next(&sim, INT64_MAX));
	for (int i = 0; i < 2; i++)
		if (llabs(flow[i].end - p->end[i] * 1000000000) > 10)
			fail_msg("flow %d ends at %lld ns", i, (long long)flow[i].end);
}

/* A flow that posts slowly leaves the wire to the other. */
static void test_slow_poster(void)
{
	struct kvt_link slow = { .name = "slow", .overlap = 1, .rate = 1000,
				 .op_ps = 3000000000000 };
	struct kvt_nic src = { .rate = 1000 }, dst = { .rate = 1000 };
	struct kvt_flow a = { .src = &src, .dst = &dst }, b = a;
	struct kvt_sim sim;

	kvt_sim_init(&sim, KVT_SHARE_FAIR);
	kvt_sim_add(&sim, &a, &slow, 1, 1000);		/* 250 bytes a second */
	kvt_sim_add(&sim, &b, &plain, 1, 3000);		/* gets the other 750 */
	assert_non_null(kvt_sim_next(&sim, INT64_MAX));
	assert_non_null(kvt_sim_next(&sim, INT64_MAX));
	assert_true(off_by(a.end, 4000000000) < 1e-6);
	assert_true(off_by(b.end, 4000000000) < 1e-6);
}

/* ---- faults ---------------------------------------------------------------- */

static void test_failing_card(void)
{
	struct kvt_nic src = { .rate = 1000 }, dst = { .rate = 1000 };
	struct kvt_flow flow = { .src = &src, .dst = &dst };
	struct kvt_sim sim;

	kvt_sim_init(&sim, KVT_SHARE_FAIR);
	kvt_sim_add(&sim, &flow, &plain, 1, 2000);
	assert_null(kvt_sim_next(&sim, 500000000));
	kvt_sim_set_rate(&sim, &dst, 0);
	assert_null(kvt_sim_next(&sim, 5000000000));
	assert_true(flow.left > 1499 && flow.left < 1501);
	kvt_sim_set_rate(&sim, &dst, 500);
	assert_ptr_equal(kvt_sim_next(&sim, INT64_MAX), &flow);
	assert_true(off_by(flow.end, 8000000000) < 1e-6);
}

static void test_cancel(void)
{
	struct kvt_nic src = { .rate = 1000 }, dst = { .rate = 1000 };
	struct kvt_flow a = { .src = &src, .dst = &dst }, b = a, c = a;
	struct kvt_sim sim;

	kvt_sim_init(&sim, KVT_SHARE_FAIR);
	kvt_sim_add(&sim, &a, &plain, 1, 1000);
	kvt_sim_add(&sim, &b, &plain, 1, 1000);
	assert_null(kvt_sim_next(&sim, 1000000000));
	kvt_sim_cancel(&sim, &b);
	assert_true(b.left > 499 && b.left < 501);
	kvt_sim_add(&sim, &c, &plain, 1, 0);
	assert_ptr_equal(kvt_sim_next(&sim, INT64_MAX), &c);
	assert_ptr_equal(kvt_sim_next(&sim, INT64_MAX), &a);
	assert_true(off_by(a.end, 1500000000) < 1e-6);
	assert_int_equal(sim.nflows, 0);
}

/* ---- at random -------------------------------------------------------------- */

enum { NICS = 4, FLOWS = 24 };

static uint64_t dice(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

static double used(const struct kvt_sim *sim, const struct kvt_nic *nic)
{
	double sum = 0;

	for (const struct kvt_flow *f = sim->flows; f; f = f->next)
		sum += f->src == nic || f->dst == nic ? f->rate : 0;
	return sum;
}

static double fastest(const struct kvt_sim *sim, const struct kvt_nic *nic)
{
	double most = 0;

	for (const struct kvt_flow *f = sim->flows; f; f = f->next)
		if ((f->src == nic || f->dst == nic) && f->rate > most)
			most = f->rate;
	return most;
}

/*
 * What max-min fair means: each flow is as fast as it can be alone, or one of
 * its cards is full and carries no faster one.
 */
static void assert_fair(const struct kvt_sim *sim)
{
	for (const struct kvt_flow *f = sim->flows; f; f = f->next) {
		const struct kvt_nic *side[] = { f->src, f->dst };
		bool fair = f->rate >= f->cap * (1 - 1e-9);

		if (f->begin > sim->now)
			continue;
		for (int i = 0; i < 2; i++) {
			double sum = used(sim, side[i]);

			assert_true(sum <= side[i]->rate * (1 + 1e-9));
			fair |= sum >= side[i]->rate * (1 - 1e-9) &&
				f->rate >= fastest(sim, side[i]) * (1 - 1e-9);
		}
		if (!fair)
			fail_msg("flow %lld has %g bytes a second", (long long)f->id,
				 f->rate);
	}
}

static void test_fair(void)
{
	uint64_t seed = 42;
	int64_t checked = 0;

	for (int round = 0; round < 200; round++) {
		struct kvt_nic src[NICS], dst[NICS];
		struct kvt_flow flow[FLOWS] = { 0 }, *done;
		struct kvt_sim sim;
		int64_t n = 0, last = 0;

		for (int i = 0; i < NICS; i++) {
			src[i].rate = 500 + (double)(dice(&seed) % 3) * 500;
			dst[i].rate = 500 + (double)(dice(&seed) % 3) * 500;
		}
		kvt_sim_init(&sim, KVT_SHARE_FAIR);
		for (int i = 0; i < FLOWS; i++) {
			struct kvt_link link = plain;

			link.op_ps = (int64_t)(dice(&seed) % 3) * 1000000000000;
			link.setup_ns = (int64_t)(dice(&seed) % 2) * 100000000;
			flow[i].id = i;
			flow[i].src = &src[dice(&seed) % NICS];
			flow[i].dst = &dst[dice(&seed) % NICS];
			kvt_sim_add(&sim, &flow[i], &link, 1,
				    (int64_t)(dice(&seed) % 5000));
			if (dice(&seed) % 3)
				continue;
			while ((done = kvt_sim_next(&sim, sim.now + 50000000)))
				n++;
			/* whoever asks for nothing sees the rates of now */
			done = kvt_sim_next(&sim, sim.now);
			n += !!done;
			if (!sim.stale) {
				assert_fair(&sim);
				checked++;
			}
		}
		while ((done = kvt_sim_next(&sim, INT64_MAX))) {
			assert_true(done->end >= last && done->end >= done->begin);
			last = done->end;
			n++;
		}
		assert_int_equal(n, FLOWS);
	}
	assert_true(checked > 200);
}

TESTS("link_sim",
	EACH(pairs, test_pair), TEST(test_alone), TEST(test_slow_poster),
	TEST(test_failing_card), TEST(test_cancel), TEST(test_fair))
