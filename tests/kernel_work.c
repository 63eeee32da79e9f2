/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_work.c - the permutations that the benchmark times */
#include "tests/kernel_check.h"

#include <stdlib.h>
#include <string.h>

/* ---- cases -------------------------------------------------------------- */

/*
 * Axis letters as in layouts; "d" and "x" are D/x and D%x.  The number of
 * blocks follows from the size asked for.  'reblock' source blocks go to one
 * destination block, in shuffled order.
 */
static const struct bench_case {
	const char *name, *src, *dst;
	int64_t layers, slots, heads, content, elem, x;
	int reblock;
} cases[] = {
	{ "NHD to HND",        "LBSHD", "LBHSD",  32, 16,  8,  256, 2, 0, 0 },
	{ "HND to NHD",        "LBHSD", "LBSHD",  32, 16,  8,  256, 2, 0, 0 },
	{ "NHD to BLSHC",      "LBSHD", "BLSHD",  32, 16,  8,  256, 2, 0, 0 },
	{ "NHD to BHLSC",      "LBSHD", "BHLSD",  32, 16,  8,  256, 2, 0, 0 },
	{ "HND to BHLSC",      "LBHSD", "BHLSD",  32, 16,  8,  256, 2, 0, 0 },
	{ "reblock 16:64 NHD", "LBSHD", "LBSHD",  32, 16,  8,  256, 2, 0, 4 },
	{ "reblock 16:64 HND", "LBHSD", "LBHSD",  32, 16,  8,  256, 2, 0, 4 },
	{ "MLA to BLSHC",      "LBSHD", "BLSHD",  32, 64,  1,  576, 2, 0, 0 },
	{ "fp8 K, D=64",       "LBSHD", "LBHSD",  32, 16,  8,   64, 1, 0, 0 },
	{ "x-pack of K",       "LBSHD", "LBHdSx", 32, 16,  8,  128, 2, 8, 0 },
	{ "scales",            "LBSHD", "LBHSD",  32, 16,  8,    1, 4, 0, 0 },
	{ "V d-major",         "LBSHD", "LBHDS",  32, 16,  8,  128, 2, 0, 0 },
	{ "content of 2 B",    "LBSHD", "LBHSD",  32, 16,  8,    1, 2, 0, 0 },
};
enum { NCASES = sizeof(cases) / sizeof(cases[0]) };

static const char *const axis_letters = "LBSHKD";

/* Strides of a dense buffer whose axes stand in this order. */
static struct kvt_view view_of(const char *order, const struct kvt_shape *shape,
			       int64_t x)
{
	struct kvt_view view = { .shape = *shape };
	int64_t stride = shape->elem;

	for (size_t i = strlen(order); i-- > 0;) {
		char c = order[i];
		struct kvt_factor f = { .axis = KVT_AXIS_D, .div = 1,
					.stride = stride };

		if (c != 'd' && c != 'x')
			f.axis = (enum kvt_axis)(strchr(axis_letters, c) -
						 axis_letters);
		f.n = c == 'x' ? x : shape->n[f.axis];
		if (c == 'd') {
			f.div = x;
			f.n /= x;
		}
		stride *= f.n;
		view.factor[view.nfactors++] = f;
	}
	return view;
}

/* ---- plans -------------------------------------------------------------- */

static void shuffle(int64_t *order, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		order[i] = i;
	for (int64_t i = n - 1; i > 0; i--) {
		int64_t j = (int64_t)(check_random() % (uint64_t)(i + 1));
		int64_t t = order[i];

		order[i] = order[j];
		order[j] = t;
	}
}

static void make_plan(struct kvt_plan *plan, const struct kvt_view *dst,
		      const struct kvt_view *src)
{
	struct kvt_error err;

	if (kvt_plan_init(plan, dst, src, &err))
		check_bail_out(err.text);
}

/* One plan per source block; the destination has larger ones. */
static void plan_blocks(struct work *work, const struct bench_case *c,
			struct kvt_shape shape, struct kvt_shape large)
{
	int64_t nblocks = shape.n[KVT_AXIS_B];
	int64_t *order = calloc((size_t)nblocks, sizeof(*order));
	struct kvt_view src = view_of(c->src, &shape, c->x);
	struct kvt_view dst = view_of(c->dst, &large, c->x);

	if (!order)
		check_bail_out("out of memory");
	shuffle(order, nblocks);
	for (int64_t b = 0; b < nblocks; b++) {
		int64_t slots = shape.n[KVT_AXIS_S], at = order[b] % c->reblock;
		struct kvt_view from, to;
		struct kvt_error err;

		if (kvt_view_narrow(&from, &src, KVT_AXIS_B, b, b + 1, &err) ||
		    kvt_view_narrow(&to, &dst, KVT_AXIS_B, order[b] / c->reblock,
				    order[b] / c->reblock + 1, &err) ||
		    kvt_view_narrow(&to, &to, KVT_AXIS_S, at * slots,
				    (at + 1) * slots, &err))
			check_bail_out(err.text);
		make_plan(&work->plan[b], &to, &from);
	}
	work->nplans = (int)nblocks;
	free(order);
}

const char *bench_case_name(int i)
{
	return i < NCASES ? cases[i].name : NULL;
}

void bench_case_plan(struct work *work, int i, int64_t nbytes)
{
	const struct bench_case *c = &cases[i];
	int64_t block = c->layers * c->slots * c->heads * c->content * c->elem;
	int64_t nblocks = nbytes / block / 4 * 4;
	struct kvt_shape shape = {
		{ c->layers, nblocks, c->slots, c->heads, 1, c->content },
		c->elem
	};
	struct kvt_shape large = shape;
	struct kvt_view src = view_of(c->src, &shape, c->x);
	struct kvt_view dst = view_of(c->dst, &shape, c->x);

	if (!nblocks || nblocks > BENCH_MAX_PLANS)
		check_bail_out("--mib is too small or too large for the cases");
	work->nbytes = nblocks * block;
	work->nplans = 1;
	if (!c->reblock) {
		make_plan(&work->plan[0], &dst, &src);
		return;
	}
	large.n[KVT_AXIS_B] /= c->reblock;
	large.n[KVT_AXIS_S] *= c->reblock;
	plan_blocks(work, c, shape, large);
}
