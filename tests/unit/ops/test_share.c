/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_share.c - the work list: each box once, whatever the shapes and the shards
 *
 * And a digest that several make: their results, exchanged in memory, give what one
 * process gives, for any division of the units.
 */
#include "tests/unit/fixture.h"

#include "lib/kvt/share.h"
#include "lib/ops/digest/digest.h"

enum { MIB = 1 << 20 };

static uint32_t draws;

static int64_t draw(int64_t most)
{
	draws = draws * 1664525 + 1013904223;
	return (int64_t)(draws >> 8) % most;
}

static void list_of(struct kvt_work_list *list, int64_t npasses)
{
	*list = (struct kvt_work_list){ 0 };
	for (int64_t p = 0; p < npasses; p++) {
		struct kvt_pass pass = { .label = "pass", .about = p, .count = draw(40) };

		pass.nbytes = pass.count * draw(3) * draw(100) * MIB / 2 + draw(2);
		ok(kvt_work_list_add(list, &pass, &why));
	}
	ok(kvt_work_list_cut(list, &why));
}

/* Units are the boxes of each pass in a row, and their bytes those of the pass. */
static void check_units(const struct kvt_work_list *list)
{
	int64_t u = 0;

	for (int64_t p = 0; p < list->npasses; p++) {
		int64_t next = 0, nbytes = 0;

		assert_int_equal(list->first[p], u);
		for (; u < list->nunits && list->unit[u].pass == p; u++) {
			assert_int_equal(list->unit[u].begin, next);
			assert_true(list->unit[u].end > next);
			next = list->unit[u].end;
			nbytes += list->unit[u].nbytes;
		}
		assert_int_equal(next, list->pass[p].count);
		if (list->pass[p].count)
			assert_int_equal(nbytes, list->pass[p].nbytes);
	}
	assert_int_equal(u, list->nunits);
}

/* Owners ascend, are shards, and none has more than its length and one unit. */
static void check_owners(const struct kvt_work_list *list, int64_t count)
{
	int64_t last = 0, most = 0, nbytes[64] = { 0 }, total = 0;

	for (int64_t u = 0; u < list->nunits; u++) {
		int64_t owner = kvt_unit_owner(list, u, count);

		assert_in_range(owner, last, count - 1);
		last = owner;
		nbytes[owner] += list->unit[u].nbytes;
		total += list->unit[u].nbytes;
		if (list->unit[u].nbytes > most)
			most = list->unit[u].nbytes;
	}
	for (int64_t i = 0; i < count; i++)
		assert_true(nbytes[i] <= total / count + most + 1);
}

static void test_random_lists(void)
{
	draws = 7;
	for (int i = 0; i < 500; i++) {
		struct kvt_work_list list;

		list_of(&list, draw(12) + 1);
		check_units(&list);
		for (int64_t n = 1; n < 64; n += draw(5) + 1)
			check_owners(&list, n);
		kvt_work_list_free(&list);
	}
}

/* By hand: 3 boxes of 40 MiB are 3 units, of 30 MiB they are 2 and 1. */
static void test_units_by_hand(void)
{
	static const struct { int64_t box, first_end; } rows[] = {
		{ 40, 1 }, { 30, 2 }, { 32, 2 }, { 33, 1 }, { 64, 1 }, { 300, 1 },
		{ 21, 3 },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_work_list list = { 0 };
		const struct kvt_pass pass = { .label = "pass", .count = 3,
					       .nbytes = 3 * rows[i].box * MIB };

		ok(kvt_work_list_add(&list, &pass, &why));
		expect(kvt_work_list_add(&list, &pass, &why), KVT_SYSTEM, NULL);
		ok(kvt_work_list_cut(&list, &why));
		assert_int_equal(list.unit[0].end, rows[i].first_end);
		kvt_work_list_free(&list);
	}
}

/* A thousand times the data has no more than twice the units that are too many. */
static void test_large_lists(void)
{
	struct kvt_work_list list = { 0 };
	const struct kvt_pass pass = { .label = "pass", .count = INT64_C(10) << 20,
				       .nbytes = (INT64_C(10) << 20) * 4 * MIB };

	ok(kvt_work_list_add(&list, &pass, &why));
	ok(kvt_work_list_cut(&list, &why));
	check_units(&list);
	assert_int_equal(list.unit_bytes, INT64_C(4) << 30);
	assert_int_equal(list.nunits, 10240);
	kvt_work_list_free(&list);
}

/* ---- several that digest one dump ----------------------------------------- */

enum { MOST_RESULTS = 256 };

/* Results of all, by pass; who has this one does every 'step'-th box from 'first' on. */
struct several {
	struct kvt_unit_result result[KVT_MAX_GROUPS][MOST_RESULTS];
	int64_t n[KVT_MAX_GROUPS], count, at, first, step;
	int64_t pass;
};

static enum kvt_status begin(void *context, const struct kvt_pass *pass,
			     struct kvt_error *err)
{
	struct several *s = context;

	(void)err;
	s->pass = pass->part;
	s->count = pass->count;
	s->at = s->first;
	return KVT_OK;
}

static bool next(void *context, int64_t *from, int64_t *to)
{
	struct several *s = context;

	if (s->at >= s->count)
		return false;
	*from = s->at;
	*to = s->at + 1;
	s->at += s->step;
	return true;
}

static enum kvt_status store(void *context, const struct kvt_unit_result *result,
			     struct kvt_error *err)
{
	struct several *s = context;
	struct kvt_unit_result *to = &s->result[s->pass][s->n[s->pass]++];
	void *bytes = malloc((size_t)result->nbytes + 1);

	(void)err;
	assert_true(s->n[s->pass] <= MOST_RESULTS);
	assert_non_null(bytes);
	memcpy(bytes, result->bytes, (size_t)result->nbytes);
	*to = *result;
	to->bytes = bytes;
	return KVT_OK;
}

static const struct kvt_unit_result *known(void *context, int64_t i)
{
	struct several *s = context;

	return i < s->n[s->pass] ? &s->result[s->pass][i] : NULL;
}

static void test_digest_of_several(void)
{
	struct several *all = zeros(sizeof(*all));
	const struct kvt_sharing sharing = { all, true, begin, next, store, known };
	const struct kvt_run shared = { .threads = 2, .share = &sharing },
			     alone = { .threads = 1 };
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct digests one, d;
	struct kvt_dump *m;

	s->group[0].shape.n[NB] = 6 * (MIB / box_bytes(&s->group[0],
						     &(struct kvt_box){ .end = {
				1, 1, s->group[0].shape.n[NS], s->group[0].shape.n[NH],
				s->group[0].shape.n[NK], s->group[0].shape.n[ND] } }));
	add_request(s, "alpha", 40, 3, (uint32_t[]){ 2, 0, 4 });
	add_request(s, "beta", 30, 2, (uint32_t[]){ 2, 9 });
	m = make_dump(s, hashed, 0)->dump;
	ok(kvt_digests_compute(&one, m, DIGEST_NEWEST, &alone, &why));
	for (int64_t i = 0; i < 3; i++) {
		all->first = i;
		all->step = 3;
		ok(kvt_digests_compute(&d, m, DIGEST_NEWEST, &shared, &why));
		/* whoever is not the last lacks some */
		assert_int_equal(!memcmp(&d.whole, &one.whole, sizeof(d.whole)), i == 2);
		kvt_digests_free(&d);
	}
	assert_true(all->n[0] > 2);
	/* a result that is too short is noticed */
	((struct kvt_unit_result *)&all->result[0][1])->nbytes -= 8;
	all->first = all->count;
	expect(kvt_digests_compute(&d, m, DIGEST_NEWEST, &shared, &why),
	       KVT_BAD_INPUT, "damaged");
	kvt_digests_free(&d);
	kvt_digests_free(&one);
	for (int64_t i = 0; i < all->n[0]; i++)
		free((void *)(uintptr_t)all->result[0][i].bytes);
}

TESTS("share",
	TEST(test_units_by_hand), TEST(test_random_lists), TEST(test_large_lists),
	TEST(test_digest_of_several))
