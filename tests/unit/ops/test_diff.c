/* SPDX-License-Identifier: Apache-2.0 */
/* test_diff.c - sums, tolerances, alignment and both passes, by made-up dumps */
#include "tests/unit/fixture.h"

#include <math.h>

#include "lib/ops/diff/internal.h"

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* ---- numbers ------------------------------------------------------------ */

/* A pair of element types, as far as a meter looks at one. */
struct types {
	struct diff_pair pair;
	struct kvt_group group[NSIDES];
};

static void types_init(struct types *t, const char *a, const char *b)
{
	*t = (struct types){ .pair = { .id = "g0", .half = -1, .nkv = 1 } };
	t->group[SIDE_A].dtype = kvt_dtype_find(a);
	t->group[SIDE_B].dtype = kvt_dtype_find(b);
	for (int s = 0; s < NSIDES; s++) {
		assert_non_null(t->group[s].dtype);
		t->pair.group[s] = &t->group[s];
	}
}

enum { N = 700 };	/* not a multiple of what is decoded at once */

/* Steps of nextafterf() from a to b, by construction; INFINITY where not finite. */
static float make_numbers(float *a, float *b, uint64_t *ulp)
{
	uint64_t random = 1;
	float most = 0;

	for (int i = 0; i < N; i++) {
		a[i] = (float)next_random(&random) / 1e6f - 500;
		b[i] = a[i];
		ulp[i] = i % 3 && i >= 300 ? next_random(&random) % 20 : 0;
		for (uint64_t k = 0; k < ulp[i]; k++)
			b[i] = nextafterf(b[i], i % 2 ? INFINITY : -INFINITY);
		most = fmaxf(most, fabsf(a[i] - b[i]));
	}
	return most;
}

static void near_to(double is, double wanted, const char *what)
{
	if (!(fabs(is - wanted) <= 1e-12 * fabs(wanted) + 1e-300))
		fail_msg("%s: %.17g, expected %.17g", what, is, wanted);
}

static void test_sums(void)
{
	const int64_t key[KVT_NAXES] = { 3, 1, 4, 1, 0, 0 };
	const struct diff_criteria criteria = { 0 };
	struct diff_sums sums = { 0 }, wanted = { 0 };
	struct deviation first = { 0 }, worst[3];
	uint8_t bad[N] = { 0 };
	struct heat dims[N] = { { 0 } };
	struct findings findings = { .sums = &sums, .first = &first, .worst = worst,
				     .room = 3, .bad_dim = bad, .by_dim = dims };
	float a[N], b[N], most;
	uint64_t ulp[N];
	struct types t;
	struct meter m;

	types_init(&t, "float32", "float32");
	ok(meter_init(&m, &t.pair, &criteria, NULL));
	most = make_numbers(a, b, ulp);
	a[610] = b[610] = INFINITY;
	a[611] = b[611] = NAN;
	b[612] = NAN;
	b[613] = -INFINITY;
	for (int i = 0; i < N; i++) {
		bool finite = isfinite(a[i]) && isfinite(b[i]);
		double x = finite ? (double)a[i] : 0, y = finite ? (double)b[i] : 0;

		wanted.aa += x * x;
		wanted.bb += y * y;
		wanted.ab += x * y;
		wanted.dd += (x - y) * (x - y);
		wanted.a += x;
		wanted.b += y;
		wanted.unequal += memcmp(&a[i], &b[i], 4) != 0;
		if (finite && wanted.max_ulp < ulp[i])
			wanted.max_ulp = ulp[i];
	}
	meter_run(&m, (uint8_t *)a, (uint8_t *)b, N, key, &findings);
	assert_int_equal(sums.n, N);
	assert_int_equal(sums.unequal, wanted.unequal);
	assert_int_equal(sums.outside, wanted.unequal);
	assert_int_equal(sums.nonfinite, 4);
	assert_int_equal(sums.lost, 2);
	near_to(sums.aa, wanted.aa, "aa");
	near_to(sums.bb, wanted.bb, "bb");
	near_to(sums.ab, wanted.ab, "ab");
	near_to(sums.dd, wanted.dd, "dd");
	near_to(sums.a, wanted.a, "a");
	near_to(sums.b, wanted.b, "b");
	near_to(sums.max_abs, (double)most, "max_abs");
	near_to(kvt_diff_rel_l2(&sums), sqrt(wanted.dd / wanted.aa), "rel-l2");
	near_to(kvt_diff_cosine(&sums), wanted.ab / sqrt(wanted.aa * wanted.bb),
		"cosine");
	assert_int_equal(findings.nworst, 3);
	/* what is finite on one side only is worse than anything; then the first */
	assert_true(worst[0].key[ND] == 612 && worst[1].key[ND] == 613);
	assert_true(first.set && first.key[NL] == 3 && ulp[first.key[ND]]);
	for (int i = 0; i < first.key[ND]; i++)
		assert_int_equal(memcmp(&a[i], &b[i], 4), 0);
	for (int i = 0; i < N; i++) {
		assert_int_equal(bad[i], memcmp(&a[i], &b[i], 4) != 0);
		assert_int_equal(dims[i].bad, bad[i]);
		assert_int_equal(dims[i].lost, i == 612 || i == 613);
		assert_int_equal(dims[i].n, 1);
	}
	meter_free(&m);
}

static void test_ulp(void)
{
	const int64_t key[KVT_NAXES] = { 0 };
	const struct diff_criteria criteria = { 0 };
	float a[N], b[N];
	uint64_t ulp[N];
	struct types t;
	struct meter m;

	types_init(&t, "float32", "float32");
	ok(meter_init(&m, &t.pair, &criteria, NULL));
	make_numbers(a, b, ulp);
	a[0] = -0x1p-149f;	/* across zero, which both signs share */
	b[0] = 0x1p-149f;
	ulp[0] = 2;
	for (int i = 0; i < N; i++) {
		struct diff_sums sums = { 0 };
		struct deviation first = { 0 };
		uint8_t bad;
		struct findings findings = { .sums = &sums, .first = &first,
					     .bad_dim = &bad };

		meter_run(&m, (uint8_t *)&a[i], (uint8_t *)&b[i], 1, key, &findings);
		assert_int_equal(sums.max_ulp, ulp[i]);
	}
	meter_free(&m);
}

/* The list holds the largest errors, whatever the order that they come in. */
static void test_worst(void)
{
	enum { MANY = 200, ROOM = 7 };
	uint64_t random = 7;
	struct deviation list[ROOM], all[MANY];
	int64_t n = 0;

	for (int i = 0; i < MANY; i++) {
		all[i] = (struct deviation){ .error = (double)(next_random(&random) % 50),
					     .key = { 0, MANY - i } };
		worst_insert(list, &n, ROOM, &all[i]);
	}
	assert_int_equal(n, ROOM);
	for (int i = 0; i < ROOM; i++) {
		int before = 0;

		for (int j = 0; j < MANY; j++)
			before += all[j].error > list[i].error ||
				  (!(all[j].error < list[i].error) &&
				   all[j].key[NB] < list[i].key[NB]);
		assert_int_equal(before, i);
	}
}

/* ---- tolerance ---------------------------------------------------------- */

static const struct diff_scale unscaled[NSIDES] = { { false, { 1, 1 } },
						    { false, { 1, 1 } } };

static void check_auto(const char *a, const char *b, double ra, double rb,
		       double absolute)
{
	const struct diff_criteria criteria = { .tolerance = { .given = true,
							       .automatic = true } };
	double rtol = (ra + rb) / (1 - ra);
	struct diff_tolerance out;
	struct types t;

	types_init(&t, a, b);
	ok(tolerance_of_pair(&out, &criteria, &t.pair, unscaled, NULL));
	near_to(out.value[T_RTOL], rtol, "rtol");
	near_to(out.value[T_ATOL], absolute * (1 + rtol), "atol");
}

/* Half a unit in the last place of 11, 8 and 24 bits, and half the least number. */
static void test_automatic(void)
{
	check_auto("float16", "bfloat16", 0x1p-11, 0x1p-8, 0x1p-25 + 0x1p-134);
	check_auto("bfloat16", "float16", 0x1p-8, 0x1p-11, 0x1p-25 + 0x1p-134);
	check_auto("float32", "bfloat16", 0x1p-24, 0x1p-8, 0x1p-150 + 0x1p-134);
	check_auto("float32", "float32", 0x1p-24, 0x1p-24, 0x1p-149);
}

static void test_terms(void)
{
	/* a given term stays as it is */
	struct diff_criteria criteria = { .tolerance = { .given = true, .automatic = true,
		.has = { [T_RTOL] = true }, .value = { [T_RTOL] = 0.25 } } };
	struct diff_tolerance out;
	struct types t;

	types_init(&t, "float16", "bfloat16");
	ok(tolerance_of_pair(&out, &criteria, &t.pair, unscaled, NULL));
	near_to(out.value[T_RTOL], 0.25, "rtol");
	assert_true(out.has[T_ATOL] && out.value[T_ATOL] > 0);
	criteria = (struct diff_criteria){ .exact = false };
	expect(tolerance_of_pair(&out, &criteria, &t.pair, unscaled, &why), KVT_BAD_INPUT,
	       "--tolerance=auto");
	criteria.exact = true;
	ok(tolerance_of_pair(&out, &criteria, &t.pair, unscaled, &why));
	criteria = (struct diff_criteria){ .tolerance = { .given = true,
		.has = { [T_ULP] = true } } };
	expect(tolerance_of_pair(&out, &criteria, &t.pair, unscaled, &why), KVT_BAD_INPUT,
	       "ulp needs the same type");
	types_init(&t, "bfloat16", "float8_e4m3fn");
	criteria.tolerance.has[T_ULP] = false;
	expect(tolerance_of_pair(&out, &criteria, &t.pair, unscaled, &why), KVT_BAD_INPUT,
	       "--scale-b");
}

/* ---- two dumps of one model --------------------------------------------- */

/*
 * Layers 0, 1, 2 and heads 2, 3 of four in blocks of 16, against layers 1, 2, 5 and all
 * heads in blocks of 8.  Request y is in both, x and z are in one.
 */
static struct kvt_snapshot *make_a(void)
{
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);

	number_layers(&s->group[0], (const uint32_t[]){ 0, 1, 2 });
	number_blocks(&s->group[0], (const uint64_t[]){ 10, 3, 8, 1, 6 });
	set_second_rank(s);
	add_request(s, "x", 40, IDS(2, 0, 4));
	add_request(s, "y", 20, IDS(1, 3));
	return s;
}

static struct kvt_snapshot *make_b(void)
{
	struct kvt_snapshot *s = small_snapshot("hnd", "bf16", false);

	s->group[0].block_size = s->group[0].shape.n[NS] = 8;
	s->group[0].shape.n[NB] = 10;
	s->group[0].shape.n[NH] = s->group[0].total_heads = 4;
	number_layers(&s->group[0], (const uint32_t[]){ 1, 2, 5 });
	add_request(s, "y", 20, IDS(5, 7, 1));
	add_request(s, "z", 8, IDS(0));
	return s;
}

enum { NONE, ONE_ELEMENT, SWAPPED_HEADS };

enum { BAD_LAYER = 2, BAD_TOKEN = 9, BAD_HEAD = 3, BAD_KV = 1, BAD_DIM = 5 };

/* An element follows from what it is in the model, and from the fault. */
static void model_element(uint8_t *element, const struct kvt_snapshot *s, int group,
			  int fault, const int64_t i[KVT_NAXES])
{
	const struct kvt_group *g = &s->group[group];
	int64_t is[KVT_NAXES] = { (int64_t)kvt_layer_id(g, i[NL]), -1, -1,
				  g->head_start + i[NH], i[NK], i[ND] };

	assert_int_equal(g->shape.elem, 2);
	if (fault == SWAPPED_HEADS)
		is[NH] ^= 1;
	for (int64_t r = 0; r < s->nrequests; r++)
		for (int64_t j = 0; j < s->request[r].nblocks[0]; j++)
			if (s->request[r].blocks[0][j] == i[NB]) {
				is[NB] = s->request[r].id[0];
				is[NS] = j * g->shape.n[NS] + i[NS];
			}
	element[0] = byte_at(is, 0);
	element[1] = 0x3f;	/* from 0.5 to just below 2 */
	if (fault == ONE_ELEMENT && is[NL] == BAD_LAYER && is[NB] == 'y' &&
	    is[NS] == BAD_TOKEN && is[NH] == BAD_HEAD && is[NK] == BAD_KV &&
	    is[ND] == BAD_DIM)
		element[0] ^= 0x40;
}

/* Two sides, their pairs and what comparing these told; goes with the test. */
struct two {
	struct rank_file file[NSIDES][2];
	struct diff_side side[NSIDES];
	struct diff_pairs pairs;
	struct diff_result r;
};

static void drop_two(void *two)
{
	struct two *t = two;

	kvt_diff_result_free(&t->r);
	kvt_diff_pairs_free(&t->pairs);
	for (int s = 0; s < NSIDES; s++)
		kvt_diff_side_free(&t->side[s]);
	free(t);
}

static struct two *new_two(void)
{
	return keep_by(calloc(1, sizeof(struct two)), drop_two);
}

static void open_side(struct two *t, int side, int n)
{
	const struct kvt_run run = { .threads = 2 };

	ok(kvt_diff_side_init(&t->side[side], side == SIDE_A ? "a" : "b", t->file[side],
			      n,
			      &run, &why));
}

static struct two *two_of(struct kvt_dump *a, struct kvt_dump *b)
{
	struct two *t = new_two();

	t->file[SIDE_A][0] = (struct rank_file){ "a", a };
	t->file[SIDE_B][0] = (struct rank_file){ "b", b };
	open_side(t, SIDE_A, 1);
	open_side(t, SIDE_B, 1);
	return t;
}

/* The fault is in B. */
static struct two *two_open(int fault)
{
	struct kvt_dump *a = make_dump(make_a(), model_element, NONE)->dump;

	return two_of(a, make_dump(make_b(), model_element, fault)->dump);
}

static void align(struct two *t, enum diff_by by)
{
	const struct diff_alignment how = { .by = by };

	ok(kvt_diff_align(&t->pairs, t->side, &how, &why));
}

/* Bit by bit, unless there are criteria. */
static struct diff_result *compare(struct two *t, const struct diff_criteria *criteria,
				   const struct diff_options *options)
{
	kvt_diff_result_free(&t->r);
	t->r = (struct diff_result){ .equal = false };
	ok(kvt_diff_compare(&t->r, t->pairs.pair,
			    criteria ? criteria : &(struct diff_criteria){ 0 }, options,
			    &why));
	return &t->r;
}

/* ---- alignment ---------------------------------------------------------- */

static void expect_unmatched(const struct diff_unmatched *u, int side, const char *text)
{
	for (int i = 0; i < u->n; i++)
		if (u->item[i].side == side && strstr(u->item[i].text, text))
			return;
	fail_msg("nothing says that only %c has %s", "AB"[side], text);
}

static void test_alignment(void)
{
	/* where the blocks of y are, as positions in the dumps */
	static const int64_t in_a[] = { 1, 3 }, in_b[] = { 5, 7, 1 };
	struct two *t = two_open(NONE);
	const struct diff_pair *p;
	int seen[20] = { 0 };

	align(t, BY_AUTO);
	assert_int_equal(t->pairs.n, 1);
	p = &t->pairs.pair[0];
	assert_true(p->by_tokens);
	assert_int_equal(p->nlayers, 2);
	assert_true(p->layer[SIDE_A][0] == 1 && p->layer[SIDE_B][0] == 0);
	assert_true(p->layer[SIDE_A][1] == 2 && p->layer[SIDE_B][1] == 1);
	assert_int_equal(p->nheads, 2);
	assert_true(p->head[SIDE_A] == 0 && p->head[SIDE_B] == 2);
	assert_int_equal(p->nslots, 20);
	for (int64_t i = 0; i < p->nsegments; i++) {
		const struct diff_segment *s = &p->segment[i];

		assert_int_equal(p->ordered[s->ordinal], i);
		for (int64_t k = 0; k < s->count; k++) {
			int64_t token = s->position + k;

			assert_true(token >= 0 && token < 20);
			seen[token]++;
			assert_int_equal(s->block[SIDE_A], in_a[token / 16]);
			assert_int_equal(s->slot[SIDE_A] + k, token % 16);
			assert_int_equal(s->block[SIDE_B], in_b[token / 8]);
			assert_int_equal(s->slot[SIDE_B] + k, token % 8);
		}
	}
	for (int i = 0; i < 20; i++)
		assert_int_equal(seen[i], 1);
	assert_int_equal(t->pairs.unmatched.n, 5);
	expect_unmatched(&t->pairs.unmatched, SIDE_A, "layers 0 of g0");
	expect_unmatched(&t->pairs.unmatched, SIDE_B, "layers 5 of g0");
	expect_unmatched(&t->pairs.unmatched, SIDE_B, "heads 0 to 1 of g0");
	expect_unmatched(&t->pairs.unmatched, SIDE_A, "request x");
	expect_unmatched(&t->pairs.unmatched, SIDE_B, "request z");
}

static void refuses(const struct diff_alignment *how, enum kvt_status status,
		    const char *part)
{
	struct two *t = two_open(NONE);

	expect(kvt_diff_align(&t->pairs, t->side, how, &why), status, part);
}

static void test_matches(void)
{
	static const char *const x_is_z[] = { "x=z" }, *const twice[] = { "x=z", "x=y" },
				 *const unknown[] = { "q=y" };
	struct two *t = two_open(NONE);

	refuses(&(struct diff_alignment){ .by = BY_BLOCKS }, KVT_BAD_INPUT,
		"block sizes differ, 16 slots in A and 8 in B");
	refuses(&(struct diff_alignment){ .nmatches = 2, .match = twice }, KVT_USAGE,
		"each request can be paired with only one");
	refuses(&(struct diff_alignment){ .nmatches = 1, .match = unknown },
		KVT_BAD_INPUT,
		"q=y");
	ok(kvt_diff_align(&t->pairs, t->side, &(struct diff_alignment){
		    .nmatches = 1, .match = x_is_z }, &why));
	/* 8 of the 40 tokens of x, and the 20 of y */
	assert_int_equal(t->pairs.pair[0].nslots, 28);
	expect_unmatched(&t->pairs.unmatched, SIDE_A, "tokens 8 to 39 of request x");
}

/* ---- both passes -------------------------------------------------------- */

static void test_equal(void)
{
	struct two *t = two_open(NONE);
	const struct diff_result *r;

	align(t, BY_TOKENS);
	r = compare(t, NULL, &(struct diff_options){ .nworst = 5 });
	assert_true(r->equal && !r->differs && !r->measured);
}

static void check_place(const struct diff_pair *p, const struct deviation *d)
{
	struct diff_coordinates c = kvt_diff_locate(p, d);

	assert_int_equal(c.layer, BAD_LAYER);
	assert_string_equal(c.request, "y");
	assert_int_equal(c.token, BAD_TOKEN);
	assert_int_equal(c.head, BAD_HEAD);
	assert_int_equal(c.kv, BAD_KV);
	assert_int_equal(c.dim, BAD_DIM);
	assert_true(c.block[SIDE_A] == 3 && c.position[SIDE_A] == 1);
	assert_true(c.block[SIDE_B] == 7 && c.position[SIDE_B] == 7);
	assert_true(c.slot[SIDE_A] == 9 && c.slot[SIDE_B] == 1);
	assert_string_equal(c.place[SIDE_B].file, "b");
}

static void check_heat(const struct diff_result *r)
{
	int64_t bad = 0;

	for (int64_t l = 0; l < r->pair->nlayers; l++)
		for (int64_t h = 0; h < r->pair->nheads; h++)
			assert_int_equal(r->by_head[l * r->pair->nheads + h].bad,
					 kvt_diff_layer(r, l) == BAD_LAYER &&
					 kvt_diff_head(r, h) == BAD_HEAD);
	for (int64_t i = 0; i < r->pair->nlayers * r->ncolumns; i++) {
		struct diff_column c = kvt_diff_column(r, i % r->ncolumns);

		bad += r->by_segment[i].bad;
		if (r->by_segment[i].bad)
			assert_true(c.token[0] <= BAD_TOKEN && c.token[1] >= BAD_TOKEN);
	}
	assert_int_equal(bad, 1);
}

static void test_different(void)
{
	struct diff_options options = { .nworst = 5, .run = { .threads = 1 } };
	struct two *t = two_open(ONE_ELEMENT);
	const struct diff_result *r;
	struct diff_sums sums;

	align(t, BY_TOKENS);
	r = compare(t, NULL, &options);
	assert_true(!r->equal && r->differs && r->measured);
	assert_int_equal(r->sums.n, diff_pair_elements(t->pairs.pair));
	assert_int_equal(r->sums.n, 2 * 20 * 2 * 2 * 8);
	assert_int_equal(r->sums.unequal, 1);
	assert_int_equal(r->nworst, 1);
	check_place(r->pair, &r->first);
	check_place(r->pair, &r->worst[0]);
	check_heat(r);
	sums = r->sums;
	options.run.threads = 4;
	assert_memory_equal(&sums, &compare(t, NULL, &options)->sums, sizeof(sums));
	options.verdict_only = true;
	r = compare(t, NULL, &options);
	assert_true(r->differs && !r->measured);
}

/* Each term by itself, on either side of what the one wrong element does. */
static void test_verdict(void)
{
	const struct diff_options options = { .nworst = 1 };
	struct two *t = two_open(ONE_ELEMENT);
	const struct diff_result *r;
	double bound[NTERMS];

	align(t, BY_TOKENS);
	r = compare(t, NULL, &options);
	bound[T_ATOL] = bound[T_MAX_ABS] = r->first.error;
	bound[T_RTOL] = r->first.error / r->first.value[SIDE_A];
	bound[T_ULP] = 64;
	bound[T_REL_L2] = kvt_diff_rel_l2(&r->sums);
	bound[T_COSINE] = kvt_diff_cosine(&r->sums);
	bound[T_PCC] = kvt_diff_pcc(&r->sums);
	for (int i = 0; i < 2 * NTERMS; i++) {
		struct diff_criteria criteria = { .tolerance.given = true };
		enum diff_term term = i / 2;
		/* from 1 down for the last two, and up from 0 for the others */
		bool kept = i % 2;
		double more = (term >= T_COSINE) == kept ? 1 - 1e-9 : 1 + 1e-9;

		/* which kvt_diff_attend() judges */
		if (term == T_ATTENTION)
			continue;

		criteria.tolerance.has[term] = true;
		criteria.tolerance.value[term] = bound[term] * more;
		r = compare(t, &criteria, &options);
		if (r->differs == kept)
			fail_msg("term %d, bound %.17g: the verdict is wrong", (int)term,
				 criteria.tolerance.value[term]);
		assert_int_equal(r->broken, kept ? NTERMS : term);
	}
}

/* ---- ranks and diagnosis ------------------------------------------------ */

/* Heads count from head_start in the model; 'who': those of the dump are swapped. */
static void model_heads(uint8_t *element, const struct kvt_snapshot *s, int g, int who,
			const int64_t i[KVT_NAXES])
{
	const int64_t of[KVT_NAXES] = {
		i[NL], i[NB], i[NS], s->group[g].head_start + (i[NH] ^ who), i[NK], i[ND],
	};
	const uint64_t bits = sample_element(g, of);

	memcpy(element, &bits, (size_t)s->group[g].shape.elem);
}

/* All that both have, in one pair. */
static struct diff_result *compare_all(struct two *t)
{
	align(t, BY_AUTO);
	assert_int_equal(t->pairs.n, 1);
	assert_int_equal(t->pairs.unmatched.n, 0);
	return compare(t, NULL, &(struct diff_options){ .nworst = 1 });
}

/* All heads in one dump, and in those of two ranks, named in any order. */
static void test_ranks(void)
{
	struct kvt_snapshot *whole = small_snapshot("nhd", "bf16", false);
	struct rank_file one, two[2];
	struct two *t;

	whole->group[0].shape.n[NH] = whole->group[0].total_heads = 4;
	one = (struct rank_file){ "whole", make_dump(whole, model_heads, 0)->dump };
	for (int i = 0; i < 2; i++) {
		struct kvt_snapshot *rank = small_snapshot("hnd", "bf16", false);

		set_second_rank(rank);
		if (!i) {
			rank->parallel.tp_rank = 0;
			rank->group[0].head_start = 0;
		}
		two[!i] = (struct rank_file){ i ? "r1" : "r0",
					      make_dump(rank, model_heads, 0)->dump };
	}
	t = new_two();
	t->file[SIDE_A][0] = one;
	memcpy(t->file[SIDE_B], two, sizeof(two));
	open_side(t, SIDE_A, 1);
	open_side(t, SIDE_B, 2);
	assert_true(compare_all(t)->equal);
	assert_int_equal(diff_pair_elements(t->pairs.pair), 3 * 5 * 16 * 4 * 2 * 8);
}

/* The diagnosis has to find all that differs, and what did it. */
static void check_swapped(struct diff_result *r, int64_t layers, int64_t blocks)
{
	const struct kvt_run run = { .threads = 2 };

	ok(kvt_diff_diagnose(r, NULL, &run, &why));
	assert_non_null(r->diagnosis);
	assert_non_null(r->diagnosis->found.decided);
	assert_string_equal(r->diagnosis->found.decided->fault->name, "swap-heads");
	assert_int_equal(r->diagnosis->found.difference.count, r->sums.unequal);
	assert_int_equal(r->diagnosis->layers, layers);
	assert_int_equal(r->diagnosis->blocks, blocks);
}

/* Request y alone is in both, in blocks of other sizes. */
static void test_diagnosis_by_tokens(void)
{
	struct two *t = two_open(SWAPPED_HEADS);

	align(t, BY_TOKENS);
	check_swapped(compare(t, NULL, &(struct diff_options){ .nworst = 1 }), 2, 10);
}

/* The pools are alike: blocks by their ids. */
static void test_diagnosis(void)
{
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct kvt_dump *a = make_dump(s, model_heads, 0)->dump;
	struct kvt_dump *b = make_dump(s, model_heads, 1)->dump;
	struct diff_result *r = compare_all(two_of(a, b));

	assert_true(r->differs && r->first.set);
	check_swapped(r, 3, 5);
}

TESTS("diff",
	TEST(test_sums), TEST(test_ulp), TEST(test_worst), TEST(test_automatic),
	TEST(test_terms), TEST(test_alignment), TEST(test_matches), TEST(test_equal),
	TEST(test_different), TEST(test_verdict), TEST(test_ranks), TEST(test_diagnosis),
	TEST(test_diagnosis_by_tokens))
