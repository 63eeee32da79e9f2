/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_compare.c - which element is which, and what differs
 *
 * Elements of the dumps are numbers that say what they are (fixture.h), so those that
 * are paired are equal until the test makes one wrong: then just that one must be told,
 * with both values, and nothing of what is not paired.
 */
#include "tests/fewer.h"
#include "tests/unit/fixture.h"
#include "tests/unit/random.h"

#include "lib/ops/compare/compare.h"
#include "sim/ops/verify.h"

/* Memory with which a dump of several MiB is compared in several boxes. */
enum { LITTLE = 3 << 20 };

/* ---- two dumps ---------------------------------------------------------- */

static const char *const layouts[] = {
	"LBSHKD", "LBHSKD", "BLSHKD", "BHLSKD", "LBKSHD", "LKBHSD", "L B K H D/2 S D%2",
};

/* 'n' different ones of [0, most), in any order. */
static void draw_ids(uint64_t *out, int64_t n, int64_t most)
{
	for (int64_t i = 0, j; i < n; ) {
		out[i] = (uint64_t)below(most);
		for (j = 0; j < i && out[j] != out[i]; )
			j++;
		i += j == i;
	}
}

/* Of a model of 5 layers and 8 heads, and a pool of 10 blocks. */
static struct kvt_dump *draw_dump(int64_t slots, int64_t channels)
{
	const int64_t nlayers = 1 + below(4), blocks = 1 + below(9);
	const int64_t n[] = { nlayers, blocks, slots, 1 + below(4), 2, channels };
	struct kvt_snapshot *s = new_snapshot();
	struct kvt_group *g;
	uint32_t layers[4];
	uint64_t ids[9];

	g = new_group(s, "g0", KVT_FULL_ATTENTION, layouts[below(LENGTH(layouts))], n);
	g->total_heads = 8;
	g->head_start = below(3);
	draw_ids(ids, n[NL], 5);
	for (int64_t i = 0; i < n[NL]; i++)
		layers[i] = (uint32_t)ids[i];
	number_layers(g, layers);
	draw_ids(ids, n[NB], 10);
	number_blocks(g, ids);
	return number_dump(s, 0);
}

static bool has_id(const struct kvt_group *g, enum kvt_axis axis, uint64_t id)
{
	for (int64_t i = 0; i < g->shape.n[axis]; i++)
		if (element_id(g, axis, i) == id)
			return true;
	return false;
}

/* Has 'a' the element of 'b'?  As the numbers say, not as pairs.c does. */
static bool is_paired(const struct kvt_group *a, const struct kvt_group *b,
		      const int64_t i[KVT_NAXES])
{
	int64_t head = b->head_start + i[NH];

	return has_id(a, KVT_AXIS_L, b->layer_ids[i[NL]]) &&
	       has_id(a, KVT_AXIS_B, b->block_ids[i[NB]]) && head >= a->head_start &&
	       head < a->head_start + a->shape.n[NH];
}

/* ---- what was told ------------------------------------------------------ */

enum { MOST = 256 };

struct told {
	int n, stop;
	struct unequal at[MOST];
};

static bool tell(void *context, const struct unequal *d)
{
	struct told *told = context;

	assert_true(told->n < MOST);
	told->at[told->n++] = *d;
	return told->n != told->stop;
}

/* Everything that both have. */
static enum kvt_status compare(struct told *told, int64_t *nbytes,
			       const struct kvt_dump *a, const struct kvt_dump *b,
			       int threads, int64_t memory, struct kvt_error *err)
{
	const struct pairs_side from = { kvt_dump_snapshot(a), 0 };
	const struct pairs_side to = { kvt_dump_snapshot(b), 0 };
	const struct kvt_run run = { .threads = threads, .memory = memory };
	struct slot_pairs slots;
	struct head_pairs heads;
	struct comparison c = { .a = a, .b = b, .slots = &slots, .heads = &heads };
	enum kvt_status status;

	ok(slot_pairs_by_ids(&slots, from, to, &why));
	ok(head_pairs_init(&heads, pairs_group(from), pairs_group(to), &why));
	if (told)
		told->n = 0;
	status = compare_elements(&c, 1, NULL, &run, told ? tell : NULL, told, err);
	*nbytes = c.nbytes;
	slot_pairs_free(&slots);
	head_pairs_free(&heads);
	return status;
}

/* ---- random dumps ------------------------------------------------------- */

/* A wrong element of b, and whether it has a partner. */
struct wrong {
	int64_t at[KVT_NAXES];
	uint32_t was;
	bool paired;
};

static bool same_index(const int64_t a[KVT_NAXES], const int64_t b[KVT_NAXES])
{
	return !memcmp(a, b, KVT_NAXES * sizeof(a[0]));
}

/* Different elements of b; it has more. */
static int make_wrong(struct wrong *wrong, int n, struct kvt_dump *b,
		      const struct kvt_group *ga, const struct kvt_group *gb)
{
	int paired = 0;

	for (int i = 0, j; i < n; ) {
		uint32_t *number;

		for (int a = 0; a < KVT_NAXES; a++)
			wrong[i].at[a] = below(gb->shape.n[a]);
		for (j = 0; j < i && !same_index(wrong[j].at, wrong[i].at); )
			j++;
		if (j < i)
			continue;
		number = number_at(b, 0, wrong[i].at);
		wrong[i].was = *number;
		*number ^= UINT32_C(1) << below(32);
		wrong[i].paired = is_paired(ga, gb, wrong[i].at);
		paired += wrong[i++].paired;
	}
	return paired;
}

static void check_told(const struct told *told, const struct wrong *wrong, int n)
{
	for (int i = 0; i < told->n; i++) {
		const struct unequal *d = &told->at[i];
		int j = 0;

		while (j < n && !same_index(wrong[j].at, d->index))
			j++;
		assert_true(j < n && wrong[j].paired);
		assert_memory_equal(d->was, &wrong[j].was, 4);
		assert_memory_not_equal(d->is, d->was, 4);
	}
}

static int64_t count_paired(const struct kvt_group *ga, const struct kvt_group *gb)
{
	const struct kvt_box all = kvt_box_whole(&gb->shape);
	int64_t i[KVT_NAXES] = { 0 }, n = 0;

	do
		n += is_paired(ga, gb, i);
	while (next_index(i, &all));
	return n;
}

static void test_random(void)
{
	int differ = 0, boxes = 0;

	for (int round = 0; round < fewer(400); round++) {
		bool large = round % 25 == 0;
		int64_t slots = large ? 16 : 1 << below(3), nbytes[3];
		int64_t channels = large ? 128 : 2 << below(3);
		struct kvt_dump *a = draw_dump(slots, channels);
		struct kvt_dump *b = draw_dump(slots, channels);
		const struct kvt_group *ga = kvt_dump_group(a, 0);
		const struct kvt_group *gb = kvt_dump_group(b, 0);
		int64_t memory = large ? LITTLE : 0;
		static struct told one, four;
		struct wrong wrong[12];
		int n = (int)below(gb->shape.n[NB] * slots * channels < 12 ? 4 : 13);
		int paired = make_wrong(wrong, n, b, ga, gb);

		expect(compare(&one, &nbytes[0], a, b, 1, memory, &why),
		       paired ? KVT_MISMATCH : KVT_OK, NULL);
		assert_int_equal(one.n, paired);
		check_told(&one, wrong, n);
		expect(compare(&four, &nbytes[1], a, b, 4, memory, &why),
		       paired ? KVT_MISMATCH : KVT_OK, NULL);
		assert_int_equal(four.n, paired);
		for (int i = 0; i < one.n; i++)
			assert_true(same_index(one.at[i].index, four.at[i].index));
		assert_int_equal(nbytes[0], 4 * count_paired(ga, gb));
		assert_int_equal(nbytes[1], nbytes[0]);
		expect(compare(NULL, &nbytes[2], a, b, 4, memory, &why),
		       paired ? KVT_MISMATCH : KVT_OK, paired ? "g0: block" : NULL);
		differ += paired > 1;
		boxes += large && paired > 1;
		let_go();
	}
	assert_true(every() > 1 || (differ > 50 && boxes > 1));
}

/* ---- order -------------------------------------------------------------- */

/* Two equal dumps, in other layouts. */
static struct kvt_dump *make_one(const char *layout, const int64_t extents[])
{
	struct kvt_snapshot *s = snapshot_of(layout, extents);

	add_request(s, "a", 4 * extents[NS] - 4, IDS(5, 0, 11, 3));
	return number_dump(s, 0);
}

static void flip(const struct kvt_dump *dump, const int64_t at[KVT_NAXES])
{
	*number_at(dump, 0, at) ^= 1;
}

static void test_first(void)
{
	const int64_t extents[] = { 4, 96, 16, 4, 2, 64 };
	const int64_t late[] = { 3, 90, 0, 0, 0, 0 }, early[] = { 1, 11, 10, 3, 1, 59 };
	struct kvt_dump *a = make_one("LBSHKD", extents);
	struct kvt_dump *b = make_one("BHLSKD", extents);
	int64_t nbytes;

	flip(b, late);
	flip(b, early);
	for (int threads = 1; threads < 5; threads++)
		expect(compare(NULL, &nbytes, a, b, threads, LITTLE, &why),
		       KVT_MISMATCH,
		       "g0: request a token 42, block 11 slot 10 layer 1 head 3 kv 1 dim "
		       "59 is 0x");
	flip(b, early);
	expect(compare(NULL, &nbytes, a, b, 4, 0, &why), KVT_MISMATCH,
	       "g0: block 90 slot 0 layer 3 head 0 kv 0 dim 0 is 0x");
}

/* Of one box 64 at most, the first ones; and no more when told to stop. */
static void test_many(void)
{
	const int64_t extents[] = { 4, 12, 4, 4, 2, 16 };
	static struct told told;
	struct kvt_dump *a = make_one("LBSHKD", extents);
	struct kvt_dump *b = make_one("BHLSKD", extents);
	int64_t nbytes, at[KVT_NAXES] = { 0 };
	const struct kvt_box all = kvt_box_whole(&kvt_dump_group(a, 0)->shape);

	do
		if (at[NL] == 2)
			flip(b, at);
	while (next_index(at, &all));
	expect(compare(&told, &nbytes, a, b, 2, 0, &why), KVT_MISMATCH, NULL);
	assert_int_equal(told.n, MOST_DIFFERENCES);
	memset(at, 0, sizeof(at));
	at[NL] = 2;
	for (int i = 0; i < told.n; i++) {
		assert_true(same_index(told.at[i].index, at));
		next_index(at, &all);
	}
	told.stop = 5;
	expect(compare(&told, &nbytes, a, b, 2, 0, &why), KVT_MISMATCH, NULL);
	assert_int_equal(told.n, 5);
	told.stop = 0;
}

/* ---- tokens ------------------------------------------------------------- */

static struct kvt_dump *make_pool(int64_t blocks, int64_t slots, int64_t tokens, int n,
				    const uint32_t *table)
{
	const int64_t size[] = { 1, blocks, slots, 1, 2, 2 };
	struct kvt_snapshot *s = snapshot_of("LBSHKD", size);

	add_request(s, "a", tokens, n, table);
	return number_dump(s, 0);
}

/* Where each slot of b is in a: block * slots + slot; -1: it is not compared. */
static void expect_slots(const struct slot_pairs *pairs, const struct kvt_dump *a,
			 const struct kvt_dump *b, const int *where)
{
	const int64_t *na = kvt_dump_group(a, 0)->shape.n;
	const int64_t *nb = kvt_dump_group(b, 0)->shape.n;
	const struct kvt_box all = kvt_box_whole(&kvt_dump_group(b, 0)->shape);
	int64_t n;
	struct target_span *w = slot_pairs_in(&n, pairs, &all);

	for (int64_t i = 0; i < nb[NB] * nb[NS]; i++) {
		int64_t found = -1;

		for (int64_t j = 0; j < n; j++)
			if (w[j].to == i / nb[NS] && i % nb[NS] >= w[j].span.at &&
			    i % nb[NS] < w[j].span.at + w[j].span.count) {
				assert_int_equal(found, -1);
				found = w[j].span.block * na[NS] + w[j].span.slot +
					i % nb[NS] - w[j].span.at;
			}
		assert_int_equal(found, where[i]);
	}
	free(w);
}

static void test_tokens(void)
{
	struct kvt_dump *a = make_pool(5, 2, 7, IDS(4, 1, 0, 3));
	struct kvt_dump *b = make_pool(3, 4, 7, IDS(2, 0));
	const struct pairs_side from = { kvt_dump_snapshot(a), 0 };
	const struct pairs_side to = { kvt_dump_snapshot(b), 0 };
	struct token_choice choice = { .request = NULL };
	struct slot_pairs pairs, rest;

	ok(slot_pairs_by_tokens(&pairs, from, to, &choice, &why));
	expect_slots(&pairs, a, b, (int[]){ 0, 1, 6, -1, -1, -1, -1, -1, 8, 9, 2, 3 });
	ok(slot_pairs_rest(&rest, to, &pairs, &why));
	expect_slots(&rest, b, b, (int[]){ -1, -1, -1, 3, 4, 5, 6, 7, -1, -1, -1, -1 });
	slot_pairs_free(&rest);
	slot_pairs_free(&pairs);
	choice = (struct token_choice){ .cached = 3, .whole = true };
	ok(slot_pairs_by_tokens(&pairs, from, to, &choice, &why));
	expect_slots(&pairs, a, b, (int[]){ 0, 1, 6, 7, -1, -1, -1, -1, -1, -1, -1, 3 });
	slot_pairs_free(&pairs);
	choice = (struct token_choice){ .request = "b" };
	ok(slot_pairs_by_tokens(&pairs, from, to, &choice, &why));
	assert_false(slot_pairs_any(&pairs, to));
	slot_pairs_free(&pairs);
	ok(slot_pairs_of_pools(&pairs, from, to, &why));
	expect_slots(&pairs, a, b, (int[]){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -1 });
	slot_pairs_free(&pairs);
}

/* The digest of both sides is one only if no live token was passed over. */
static void test_all_paired(void)
{
	struct kvt_dump *a = make_pool(5, 2, 7, IDS(4, 1, 0, 3));
	struct kvt_dump *b = make_pool(3, 4, 7, IDS(2, 0));
	const struct pairs_side from = { kvt_dump_snapshot(a), 0 };
	const struct pairs_side to = { kvt_dump_snapshot(b), 0 };
	const struct token_choice choice = { .request = NULL };
	struct slot_pairs pairs;

	ok(slot_pairs_by_tokens(&pairs, from, to, &choice, &why));
	ok(check_all_paired(&pairs, from, to, &why));
	pairs.span.at[1].span.block ^= 1;
	expect(check_all_paired(&pairs, from, to, &why), KVT_MISMATCH,
	       "g0: request a: slot ");
	pairs.span.at[1].span.block ^= 1;
	pairs.span.n--;
	expect(check_all_paired(&pairs, from, to, &why), KVT_MISMATCH,
	       " was not compared with the source");
	pairs.span.n++;
	slot_pairs_free(&pairs);
}

/* ---- heads -------------------------------------------------------------- */

static void test_heads(void)
{
	const int64_t four[] = { 1, 1, 1, 4, 2, 2 }, two[] = { 1, 1, 1, 2, 2, 2 };
	struct kvt_snapshot *s = new_snapshot();
	struct kvt_group *a, *b;
	struct head_pairs p, q;

	a = new_group(s, "a", KVT_FULL_ATTENTION, "LBSHKD", two);
	b = new_group(s, "b", KVT_FULL_ATTENTION, "LBSHKD", four);
	a->head_start = 2;
	ok(head_pairs_init(&p, a, b, &why));
	assert_memory_equal(p.head, ((int64_t[]){ -1, -1, 0, 1 }), 32);
	assert_true(p.same_channels && head_pairs_any(&p, b));
	a->head_start = 3;
	ok(head_pairs_init(&q, a, b, &why));
	head_pairs_without(&q, &p, b);
	assert_false(head_pairs_any(&q, b));
	head_pairs_free(&p);
	head_pairs_free(&q);
	a->dtype = kvt_dtype_find("int32");
	expect(head_pairs_init(&p, a, b, &why), KVT_BAD_INPUT, "another shape or type");
}

/* Channels of a conv state have numbers within their parts. */
static void test_channels(void)
{
	const int64_t n[] = { 1, 1, 2, 1, 1, 6 }, half[] = { 1, 1, 2, 1, 1, 4 };
	struct kvt_snapshot *s = new_snapshot();
	struct kvt_group *a, *b;
	struct head_pairs p;

	a = new_group(s, "a", KVT_MAMBA_CONV, "LBSHKD", n);
	b = new_group(s, "b", KVT_MAMBA_CONV, "LBSHKD", half);
	add_part(a, "x", 0, 4, 0);
	add_part(a, "B", 4, 2, 0);
	add_part(b, "x", 0, 2, 2);
	add_part(b, "B", 2, 2, 1);
	ok(head_pairs_init(&p, a, b, &why));
	assert_memory_equal(p.channel, ((int64_t[]){ 2, 3, 5, -1 }), 32);
	assert_false(p.same_channels);
	head_pairs_free(&p);
}

/* ---- several of each ---------------------------------------------------- */

/* Heads 2r and 2r + 1 of four, of both sides. */
static struct kvt_dump *make_rank(int64_t heads, int64_t start, const char *layout)
{
	const int64_t n[] = { 2, 3, 2, heads, 2, 4 };
	struct kvt_snapshot *s = snapshot_of(layout, n);
	struct kvt_group *g = &s->group[0];

	g->total_heads = 4;
	g->head_start = start;
	return number_dump(s, 0);
}

static void test_ranks(void)
{
	struct kvt_dump *const a[] = {
		make_rank(2, 0, "LBSHKD"), make_rank(2, 2, "LBHSKD"),
	};
	struct kvt_dump *const b[] = {
		make_rank(1, 1, "BLSHKD"), make_rank(3, 1, "LBKSHD"),
	};
	const int64_t at[] = { 1, 2, 0, 2, 1, 3 };
	const struct kvt_run run = { .threads = 2 };
	struct comparison list[4];
	struct head_pairs heads[4];
	struct slot_pairs slots;
	int n = 0;

	ok(slot_pairs_by_ids(&slots,
			     (struct pairs_side){ kvt_dump_snapshot(a[0]), 0 },
			     (struct pairs_side){ kvt_dump_snapshot(b[0]), 0 },
			     &why));
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 2; j++) {
			ok(head_pairs_init(&heads[n], kvt_dump_group(a[i], 0),
					   kvt_dump_group(b[j], 0), &why));
			list[n] = (struct comparison){
				.a = a[i], .b = b[j], .slots = &slots,
				.heads = &heads[n], .name = j ? "rank 1" : "rank 0",
				.was = " in it",
			};
			n++;
		}
	ok(compare_elements(list, n, NULL, &run, NULL, NULL, &why));
	/* a head of 2 layers, 3 blocks, 2 slots, kv, 4 channels of 4 bytes */
	assert_int_equal(list[0].nbytes, 384);
	assert_int_equal(list[1].nbytes, 384);
	assert_int_equal(list[2].nbytes, 0);
	assert_int_equal(list[3].nbytes, 2 * 384);
	flip(b[1], at);
	expect(compare_elements(list, n, NULL, &run, NULL, NULL, &why), KVT_MISMATCH,
	       "g0: rank 1: block 2 slot 0 layer 1 head 3 kv 1 dim 3 is 0x");
	assert_non_null(strstr(why.text, " in it"));
	for (int i = 0; i < n; i++)
		head_pairs_free(&heads[i]);
	slot_pairs_free(&slots);
}

/* ---- tables ------------------------------------------------------------- */

static const struct kvt_snapshot *snapshot_pool(int64_t tokens, int n,
						const uint32_t *table)
{
	return kvt_dump_snapshot(make_pool(5, 2, tokens, n, table));
}

static void test_tables(void)
{
	const struct kvt_snapshot *is = snapshot_pool(7, IDS(4, 1, 0, 3));
	const struct kvt_snapshot *wrong = snapshot_pool(7, IDS(4, 2, 0, 3));
	const struct kvt_snapshot *cut = snapshot_pool(7, IDS(4, 1, 0, 3, 2));

	ok(check_tables(snapshot_pool(7, IDS(4, 1, 0, 3)), is, &why));
	expect(check_tables(wrong, is, &why), KVT_MISMATCH,
	       "g0: request a: entry 1 of its table is block 2, expected 1");
	expect(check_tables(snapshot_pool(6, IDS(4, 1, 0, 3)), is, &why), KVT_MISMATCH,
	       "request a: 7 tokens from 0 became 6 from 0");
	expect(check_tables(cut, is, &why), KVT_MISMATCH,
	       "g0: request a: a table of 5 blocks, expected 4");
	expect(check_tables_of_leaf(wrong, 0, is, 0, &why), KVT_MISMATCH,
	       "entry 1 of its table is block 2, expected 1");
	ok(check_tables_of_leaf(cut, 0, is, 0, &why));
}

TESTS("compare",
	NAMED(test_random, "random dumps with wrong elements"),
	NAMED(test_first, "the first difference"),
	NAMED(test_many, "many differences"),
	NAMED(test_tokens, "slots by tokens"),
	NAMED(test_all_paired, "all live tokens are paired"),
	NAMED(test_heads, "heads"),
	NAMED(test_channels, "channels of parts"),
	NAMED(test_ranks, "ranks of both sides"),
	NAMED(test_tables, "tables"))
