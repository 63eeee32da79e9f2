/* SPDX-License-Identifier: Apache-2.0 */
/* test_locate.c - every byte of a buffer leads back to its element, or to none */
#include "lib/kvt/kvt.h"
#include "tests/unit/lib/axis_oracle.h"
#include "tests/unit/lib/random_layout.h"
#include "tests/unit/lib/views_of.h"
#include "tests/unit/tests.h"

/* ---- the table ---------------------------------------------------------- */

/* Who owns each byte: 1 + the number of an element, 0 if nobody does. */
struct table {
	int64_t nbytes;
	int32_t *owner;
	bool overlap;
};

static void table_init(struct table *t, int64_t nbytes)
{
	t->nbytes = nbytes;
	t->overlap = false;
	t->owner = calloc((size_t)nbytes, sizeof(*t->owner));
	assert_non_null(t->owner);
}

static int32_t number_of(const int64_t index[6], const int64_t n[6])
{
	struct oracle_place p = { 0, 1 };

	for (int a = 0; a < 6; a++)
		oracle_step(&p, index[a], n[a]);
	return (int32_t)p.at;
}

static void table_put(struct table *t, int64_t at, int64_t elem, int32_t number)
{
	for (int64_t b = at; b < at + elem; b++) {
		assert_in_range(b, 0, t->nbytes - 1);
		t->overlap |= t->owner[b] != 0;
		t->owner[b] = number + 1;
	}
}

static void check_table(const struct table *t, const struct kvt_views *views,
			const int64_t n[6], int64_t elem, const char *what)
{
	for (int64_t b = -2; b < t->nbytes + 40; b++) {
		int32_t owner = b >= 0 && b < t->nbytes ? t->owner[b] : 0;
		int64_t index[KVT_NAXES] = { 7, 7, 7, 7, 7, 7 };
		bool found = kvt_views_find(views, b, index);

		if (found != (owner != 0) ||
		    (found && number_of(index, n) + 1 != owner))
			fail_msg("%s: byte %lld of element %d: found %d, L%d B%d S%d "
				 "H%d K%d D%d", what, (long long)b, owner - 1, found,
				 (int)index[0], (int)index[1], (int)index[2],
				 (int)index[3], (int)index[4], (int)index[5]);
		if (!found) {
			for (int a = 0; a < KVT_NAXES; a++)
				assert_int_equal(index[a], 7);
			continue;
		}
		for (int a = 0; a < KVT_NAXES; a++)
			assert_in_range(index[a], 0, n[a] - 1);
		assert_in_range(b - kvt_views_at(views, index), 0, elem - 1);
	}
}

/* ---- layouts ------------------------------------------------------------ */

static void random_extents(struct kvt_shape *shape, uint64_t *seed)
{
	static const int64_t s[] = { 1, 2, 4, 12, 16 }, d[] = { 1, 4, 8, 16, 24 };

	*shape = (struct kvt_shape){ .elem = 1 << random_below(seed, 3) };
	shape->n[KVT_AXIS_L] = 1 + random_below(seed, 3);
	shape->n[KVT_AXIS_B] = 1 + random_below(seed, 4);
	shape->n[KVT_AXIS_S] = s[random_below(seed, 5)];
	shape->n[KVT_AXIS_H] = 1 + random_below(seed, 3);
	shape->n[KVT_AXIS_K] = 2;
	shape->n[KVT_AXIS_D] = d[random_below(seed, 5)];
}

/* Against the addresses that the letters of the axis string have. */
static void test_layouts(void **state)
{
	enum random_kind kind = *(enum random_kind *)*state;
	uint64_t seed = 11 + kind;

	for (int round = 0; round < 60; round++) {
		struct kvt_shape shape;
		struct kvt_views views;
		int64_t index[6] = { 0 };
		char text[200];
		struct table t;

		random_extents(&shape, &seed);
		random_layout(text, kind,
			      &(struct random_shape){ shape.n[KVT_AXIS_S],
				      shape.n[KVT_AXIS_D], shape.elem }, &seed);
		views = views_of(text, &shape);
		table_init(&t, views.nbytes);
		do {
			table_put(&t, oracle_at(text, shape.n, shape.elem, 0, index),
				  shape.elem, number_of(index, shape.n));
		} while (oracle_next(index, shape.n));
		assert_false(t.overlap);
		check_table(&t, &views, shape.n, shape.elem, text);
		free(t.owner);
	}
}

static enum random_kind kinds[] = { RANDOM_ONE, RANDOM_JOINED, RANDOM_APART };

/* ---- strides of any kind ------------------------------------------------ */

/* What an address is, by its definition. */
static int64_t address_of(const struct kvt_view *view, const int64_t index[6])
{
	int64_t at = view->offset;

	for (int i = 0; i < view->nfactors; i++) {
		const struct kvt_factor *f = &view->factor[i];

		at += index[f->axis] / f->div % f->n * f->stride;
	}
	return at;
}

static void make_table(struct table *t, const struct kvt_view *view)
{
	int64_t index[6] = { 0 }, end;

	ok(kvt_view_end(&end, view, NULL));
	table_init(t, end);
	do {
		table_put(t, address_of(view, index), view->shape.elem,
			  number_of(index, view->shape.n));
	} while (oracle_next(index, view->shape.n));
}

/* A gap behind any factor, and bytes in front. */
static void pad(struct kvt_view *view, uint64_t *seed)
{
	int64_t reach = view->shape.elem;

	view->offset = random_below(seed, 50);
	for (int i = view->nfactors - 1; i >= 0; i--) {
		struct kvt_factor *f = &view->factor[i];

		f->stride = reach;
		if (!random_below(seed, 2))
			f->stride += random_below(seed, 9);
		reach = (f->n - 1) * f->stride + reach;
	}
}

static void test_padded(void)
{
	int64_t gaps = 0;
	uint64_t seed = 5;

	for (int round = 0; round < 120; round++) {
		struct kvt_shape shape;
		struct kvt_views views;
		char text[200];
		struct table t;

		random_extents(&shape, &seed);
		random_layout(text, RANDOM_ONE,
			      &(struct random_shape){ shape.n[KVT_AXIS_S],
				      shape.n[KVT_AXIS_D], shape.elem }, &seed);
		views = views_of(text, &shape);
		pad(&views.view[0], &seed);
		make_table(&t, &views.view[0]);
		assert_false(t.overlap);
		for (int64_t b = 0; b < t.nbytes; b++)
			gaps += !t.owner[b];
		check_table(&t, &views, shape.n, shape.elem, text);
		free(t.owner);
	}
	assert_true(gaps > 1000);
}

/* Strides that do not nest: 3 x 4 and 2 x 6 bytes, say. */
static void test_interleaved(void)
{
	int checked = 0, interleaved = 0;
	uint64_t seed = 3;

	for (int round = 0; round < 4000; round++) {
		struct kvt_views views = { .count = 1 };
		struct kvt_view *v = &views.view[0];
		struct table t;

		*v = (struct kvt_view){ .nfactors = 3, .shape = { .elem = 2 } };
		for (int a = 0; a < KVT_NAXES; a++)
			v->shape.n[a] = 1;
		for (int i = 0; i < 3; i++) {
			int64_t n = 1 + random_below(&seed, 4);

			v->shape.n[i] = n;
			v->factor[i] = (struct kvt_factor){ (enum kvt_axis)i, 1, n,
				1 + random_below(&seed, 24) };
		}
		make_table(&t, v);
		if (!t.overlap) {
			check_table(&t, &views, v->shape.n, 2, "three strides");
			checked++;
			for (int i = 0; i < 9; i++) {
				const struct kvt_factor *p = &v->factor[i / 3];
				const struct kvt_factor *q = &v->factor[i % 3];

				if (p->n > 1 && p->stride < q->stride && q->n > 1 &&
				    p->stride * p->n > q->stride + 1) {
					interleaved++;
					break;
				}
			}
		}
		free(t.owner);
	}
	assert_true(checked > 500 && interleaved > 50);
}

/* ---- what has no element ------------------------------------------------ */

static void test_nothing(void)
{
	const struct kvt_shape none = { .n = { 2, 0, 16, 2, 2, 8 }, .elem = 2 };
	const struct kvt_shape one = { .n = { 1, 1, 1, 1, 1, 1 }, .elem = 4 };
	struct kvt_views views = views_of("nhd", &none);
	int64_t index[KVT_NAXES] = { 7 };

	assert_false(kvt_views_find(&views, 0, index));
	assert_int_equal(index[0], 7);
	views = views_of("nhd", &one);
	assert_true(kvt_views_find(&views, 3, index));
	assert_int_equal(index[0], 0);
	assert_false(kvt_views_find(&views, 4, index));
	assert_false(kvt_views_find(&views, INT64_MAX, index));
	assert_false(kvt_views_find(&views, -1, index));
	assert_false(kvt_views_find(&views, INT64_MIN, index));
}

/* All indices at one place: the first of them. */
static void test_same_place(void)
{
	const struct kvt_shape shape = { .n = { 3, 2, 1, 1, 1, 4 }, .elem = 1 };
	struct kvt_views views = views_of("nhd", &shape);
	int64_t index[KVT_NAXES];

	kvt_view_set_stride(&views.view[0], KVT_AXIS_L, 0);
	assert_true(kvt_views_find(&views, 6, index));
	assert_int_equal(index[KVT_AXIS_L], 0);
	assert_int_equal(index[KVT_AXIS_B], 1);
	assert_int_equal(index[KVT_AXIS_D], 2);
	assert_false(kvt_views_find(&views, 8, index));
}

/* LAYOUTS 12.1, backwards, and where a size has no room in 32 bits. */
static void test_golden(void)
{
	const struct kvt_shape shape = { .n = { 3, 5, 32, 4, 2, 64 }, .elem = 2 };
	const struct kvt_shape huge = { .n = { 1 << 10, 1 << 20, 16, 128, 2, 128 },
					.elem = 2 };
	const int64_t want[KVT_NAXES] = { 1, 3, 17, 1, 1, 13 };
	const int64_t far[KVT_NAXES] = { 1023, 1048574, 3, 100, 0, 77 };
	static const struct {
		const char *preset;
		int64_t value;
	} rows[] = {
		{ "nhd", 279962 }, { "bhlsc", 332186 }, { "rocm-paged", 299874 },
		{ "aiter-shuffle", 284882 }, { "cpu-amx", 274998 },
		{ "hicache-page-head", 412186 },
	};
	struct kvt_views views;
	int64_t index[KVT_NAXES];

	for (size_t i = 0; i < LENGTH(rows); i++)
		for (int64_t byte = 0; byte < 2; byte++) {
			views = views_of(rows[i].preset, &shape);
			assert_true(kvt_views_find(&views, rows[i].value + byte, index));
			assert_memory_equal(index, want, sizeof(want));
		}
	views = views_of("nhd", &huge);
	assert_true(kvt_views_find(&views, kvt_views_at(&views, far) + 1, index));
	assert_memory_equal(index, far, sizeof(far));
}

TESTS("locate",
	WITH(&kinds[0], test_layouts), WITH(&kinds[1], test_layouts),
	WITH(&kinds[2], test_layouts), TEST(test_padded), TEST(test_interleaved),
	TEST(test_nothing), TEST(test_same_place), TEST(test_golden))
